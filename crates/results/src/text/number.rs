//! How numbers are shown: one unit and one number of decimals for all that are to be compared by eye.
//!
//! A [`Scale`] is chosen from all the numbers of a column (or of a row, where a row is one metric). The largest keeps
//! four significant digits and the smallest two, so neither a fast nor a slow cell is rounded away, and a spread keeps
//! two. Numbers never take an exponent: the unit, which stands in the heading, is moved instead. Signs are ASCII, so a
//! table pasted into a mail can be read by awk as well.

use haul_stats::estimate::Summary;

/// Significant digits of the largest number of a column: one part in a thousand, the least change haul resolves.
const DIGITS_LARGEST: i32 = 4;

/// Significant digits of the smallest.
const DIGITS_SMALLEST: i32 = 2;

/// Significant digits of a spread; more would claim to know how far the spread itself is off.
const DIGITS_SPREAD: i32 = 2;

/// No column has more decimals, however small its numbers: a nanosecond in a second.
const MAX_DECIMALS: i32 = 9;

/// Units of which there is no half.
const COUNTS: [&str; 8] =
    ["segments", "B", "packets", "datagrams", "transactions", "switches", "migrations", "faults"];

/// Units that need no decimals where all numbers are whole, but do where a part of one is seen.
const WHOLE: [&str; 3] = ["bit/s", "1/s", "s"];

/// What stands where there is no number.
pub(super) const NONE: &str = "–";

/// A number of a table: the mean of some runs and how far they spread, or one value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number {
    pub(super) mean: f64,
    pub(super) stddev: Option<f64>,
}

impl Number {
    /// What these runs come to; `None` where there is none with a finite value.
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let summary = Summary::of(values)?;
        Self { mean: summary.mean, stddev: summary.stddev }.finite()
    }

    /// The number, where it is one.
    pub(super) fn finite(self) -> Option<Self> {
        let stddev = self.stddev.filter(|spread| spread.is_finite());
        self.mean.is_finite().then_some(Self { mean: self.mean, stddev })
    }
}

/// A unit as shown, and the decimals that suit a set of numbers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scale {
    pub(super) unit: String,
    divisor: f64,
    decimals: usize,
}

impl Scale {
    /// The scale that suits these numbers of that unit.
    pub(super) fn of(unit: &str, numbers: &[Number]) -> Self {
        Self::beside(unit, numbers, numbers)
    }

    /// The scale of numbers that are read beside others of their kind: the unit is that of all, the decimals their own.
    pub(super) fn beside(unit: &str, numbers: &[Number], all: &[Number]) -> Self {
        let (name, divisor) = shown_in(unit, all);
        let nonzero = |value: &f64| *value > 0.0;
        let means: Vec<f64> =
            numbers.iter().map(|number| number.mean.abs() / divisor).filter(nonzero).collect();
        // What is below a millionth of its number is how computers divide, not how runs differ.
        let spreads = numbers.iter().filter_map(|number| {
            let spread = number.stddev.filter(|spread| *spread >= number.mean.abs() * 1e-6)?;
            Some(spread / divisor).filter(nonzero)
        });
        let whole =
            numbers.iter().all(|number| number.mean.fract() == 0.0 && number.stddev.is_none_or(|s| s == 0.0));
        let decimals = if whole && (COUNTS.contains(&unit) || (WHOLE.contains(&unit) && name == unit)) {
            0
        } else {
            let large = places(means.iter().copied().fold(0.0, f64::max), DIGITS_LARGEST);
            let small = places(means.iter().copied().fold(f64::INFINITY, f64::min), DIGITS_SMALLEST);
            let spread = places(spreads.fold(0.0, f64::max), DIGITS_SPREAD);
            large.max(small).max(spread).clamp(0, MAX_DECIMALS)
        };
        Self { unit: name.to_owned(), divisor, decimals: usize::try_from(decimals).unwrap_or(0) }
    }

    /// The value in this scale.
    pub(super) fn show(&self, value: f64) -> String {
        unsigned_zero(format!("{:.*}", self.decimals, value / self.divisor))
    }
}

/// What these numbers of a unit are shown in, and what they are divided by.
///
/// Rates follow the largest of them, as links are named. Times follow the smallest: a median is read in microseconds
/// although the longest of a million took milliseconds.
fn shown_in<'a>(unit: &'a str, numbers: &[Number]) -> (&'a str, f64) {
    let means = || numbers.iter().map(|number| number.mean.abs()).filter(|mean| *mean > 0.0);
    let largest = means().fold(0.0, f64::max);
    let smallest = means().fold(f64::INFINITY, f64::min);
    let least = if smallest.is_finite() { smallest } else { 0.0 };
    match unit {
        "bit/s" if largest >= 1e9 || numbers.is_empty() => ("Gbit/s", 1e9),
        "bit/s" if largest >= 1e6 => ("Mbit/s", 1e6),
        "bit/s" if largest >= 1e3 => ("kbit/s", 1e3),
        "B/s" if largest >= 1e9 || numbers.is_empty() => ("GB/s", 1e9),
        "B/s" if largest >= 1e6 => ("MB/s", 1e6),
        "B/s" if largest >= 1e3 => ("kB/s", 1e3),
        "1/s" if largest >= 1e6 => ("M/s", 1e6),
        "1/s" if largest >= 1e3 => ("k/s", 1e3),
        "us" if least >= 1e6 => ("s", 1e6),
        "us" if least >= 1e3 => ("ms", 1e3),
        "us" => ("µs", 1.0),
        "us/KiB" => ("µs/KiB", 1.0),
        "us/transaction" => ("µs/transaction", 1.0),
        other => (other, 1.0),
    }
}

/// One number with its unit: `1.204 ms`, `17 packets`.
pub(super) fn quantity(unit: &str, value: f64) -> String {
    let Some(number) = (Number { mean: value, stddev: None }).finite() else { return NONE.to_owned() };
    let scale = Scale::of(unit, &[number]);
    format!("{} {}", scale.show(value), scale.unit)
}

/// A count in prose: `1,234,567`.
pub(super) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The decimals that give a value so many significant digits.
fn places(value: f64, digits: i32) -> i32 {
    if value <= 0.0 || !value.is_finite() {
        return 0;
    }
    #[expect(clippy::cast_possible_truncation, reason = "the decimal exponent of an f64 lies within ±324")]
    let exponent = value.log10().floor() as i32;
    digits - 1 - exponent
}

/// "-0.0" says nothing that "0.0" does not.
fn unsigned_zero(text: String) -> String {
    match text.strip_prefix(['-', '+']) {
        Some(rest) if !rest.bytes().any(|b| b.is_ascii_digit() && b != b'0') => rest.to_owned(),
        _ => text,
    }
}

/// A percentage with its sign.
pub(super) fn signed(percent: f64, decimals: usize) -> String {
    unsigned_zero(format!("{percent:+.decimals$}"))
}

/// A percentage as short as it is exact to two decimals: `1 %`, `0.5 %`.
pub(super) fn percent(value: f64) -> String {
    let text = format!("{value:.2}");
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

/// The decimals with which a change and its interval can be shown without a bound appearing on the other side of a
/// limit that the verdict turned on: -0.96 must not read as -1.0 where 1 % is the least effect.
pub(super) fn change_decimals(numbers: &[f64], min_effect_pct: f64) -> usize {
    let side = |value: f64, limit: f64| value.partial_cmp(&limit);
    let faithful = |decimals: usize| {
        let rounded = |value: f64| format!("{value:.decimals$}").parse().unwrap_or(value);
        numbers.iter().all(|&value| {
            [-min_effect_pct, 0.0, min_effect_pct]
                .iter()
                .all(|&limit| side(rounded(value), limit) == side(value, limit))
        })
    };
    (1..=3).find(|&decimals| faithful(decimals)).unwrap_or(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(values: &[f64]) -> Vec<Number> {
        values.iter().map(|&mean| Number { mean, stddev: None }).collect()
    }

    #[test]
    fn the_unit_moves_so_that_no_number_needs_an_exponent() {
        for (values, unit, shown) in [
            (&[5.321e10][..], "Gbit/s", &["53.21"][..]),
            (&[5.321e10, 1.234e9], "Gbit/s", &["53.21", "1.23"]),
            (&[5.321e10, 1.234e7], "Gbit/s", &["53.210", "0.012"]),
            (&[9.4e8], "Mbit/s", &["940.0"]),
            (&[999.0], "bit/s", &["999"]),
            (&[0.0], "bit/s", &["0"]),
        ] {
            check("bit/s", values, unit, shown);
        }
        for (values, unit, shown) in [
            (&[81_234.5][..], "k/s", &["81.23"][..]),
            (&[1_234_567.0, 980.0], "M/s", &["1.23457", "0.00098"]),
            (&[100.0], "1/s", &["100"]),
            (&[99.5], "1/s", &["99.50"]),
        ] {
            check("1/s", values, unit, shown);
        }
    }

    fn check(base: &str, values: &[f64], unit: &str, shown: &[&str]) {
        let scale = Scale::of(base, &plain(values));
        assert_eq!(scale.unit, unit, "{values:?}");
        let got: Vec<String> = values.iter().map(|&value| scale.show(value)).collect();
        assert_eq!(got, shown, "{values:?}");
    }

    #[test]
    fn times_are_in_the_unit_of_the_shortest_of_them() {
        for (values, unit, shown) in [
            (&[12.9][..], "µs", &["12.90"][..]),
            (&[12.9, 12_043.0], "µs", &["13", "12043"]),
            (&[1204.0], "ms", &["1.204"]),
            (&[2_500_000.0], "s", &["2.500"]),
            (&[0.02], "µs", &["0.02000"]),
            (&[0.0], "µs", &["0"]),
        ] {
            check("us", values, unit, shown);
        }
        let (median, tail) = (plain(&[12.9]), plain(&[12_043.0]));
        let scale = Scale::beside("us", &tail, &[median, tail.clone()].concat());
        assert_eq!((scale.unit.as_str(), scale.show(12_043.0)), ("µs", "12043".to_owned()));
    }

    #[test]
    fn one_number_has_its_unit_behind_it() {
        for (unit, value, shown) in [
            ("us", 1204.0, "1.204 ms"),
            ("us/transaction", 23.456, "23.46 µs/transaction"),
            ("packets", 17.0, "17 packets"),
            ("%", 0.0561, "0.05610 %"),
            ("us", f64::NAN, "–"),
        ] {
            assert_eq!(quantity(unit, value), shown);
        }
    }

    #[test]
    fn counts_in_prose_are_grouped() {
        for (count, shown) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(count), shown);
        }
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn a_spread_is_never_rounded_to_nothing() {
        let scale = Scale::of("us/KiB", &[Number { mean: 0.152, stddev: Some(0.000_12) }]);
        assert_eq!((scale.show(0.152), scale.show(0.000_12)), ("0.15200".to_owned(), "0.00012".to_owned()));
    }

    #[test]
    fn counts_stay_whole() {
        for unit in COUNTS {
            check(unit, &[0.0, 123_456_789.0], unit, &["0", "123456789"]);
            check(unit, &[3.0, 4.5], unit, &["3.000", "4.500"]);
        }
    }

    #[test]
    fn rounding_moves_no_bound_across_a_limit() {
        for (numbers, decimals) in [
            (&[-24.6, -25.1, -24.0][..], 1),
            (&[-0.96, -1.8, -0.2], 2),
            (&[0.5, -0.04, 0.9], 2),
            (&[1.0, 0.999_9, 1.2], 3),
        ] {
            assert_eq!(change_decimals(numbers, 1.0), decimals, "{numbers:?}");
        }
    }

    #[test]
    fn zero_has_no_sign() {
        assert_eq!(
            (signed(-0.04, 1), signed(0.0, 1), signed(3.0, 1)),
            ("0.0".into(), "0.0".into(), "+3.0".into())
        );
    }
}
