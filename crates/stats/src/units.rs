//! Units that numbers carry across functions, and how people write them.
//!
//! Sizes are binary (`64K` is 65 536 bytes) because buffers and messages are; rates are SI because links are. Time is
//! [`Duration`] for lengths and [`MonoNanos`] for instants: the kernel's `CLOCK_MONOTONIC` in nanoseconds, which unlike
//! `std::time::Instant` can be sent to another process on the same kernel and compared there.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A text that is not the size, duration or percentage it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// Not a size.
    #[error("'{0}' is not a size: write bytes as 1400, or with a binary suffix as 64K, 1M, 2G")]
    Size(String),
    /// A size of 2^64 bytes or more.
    #[error("'{0}' is too large a size: it must be below 2^64 bytes")]
    SizeOverflow(String),
    /// Not a rate.
    #[error("'{0}' is not a rate: write bits per second with an SI suffix, as in 10M, 2.5G or 800K")]
    Rate(String),
    /// A rate of 2^64 bit/s or more.
    #[error("'{0}' is too large a rate: it must be below 2^64 bit/s")]
    RateOverflow(String),
    /// Not a number of events per second.
    #[error("'{0}' is not a number per second: write it as 100/s, or with an SI suffix as in 2.5K/s")]
    PerSecond(String),
    /// Not a duration.
    #[error("'{0}' is not a duration: write the unit, as in 10s, 500ms or 2m")]
    Duration(String),
    /// Not a duration, where a bare number is one too.
    #[error("'{0}' is not a duration: write seconds as 10 or 0.5, or a unit, as in 10s, 500ms or 2m")]
    Seconds(String),
    /// Not a percentage.
    #[error("'{0}' is not a percentage: write it as 1% or 0.5%")]
    Percent(String),
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ByteCount(pub u64);

impl ByteCount {
    /// The count as a length in memory; `None` where it does not fit.
    #[must_use]
    pub fn as_usize(self) -> Option<usize> {
        usize::try_from(self.0).ok()
    }

    /// The count for people, in three digits and with its unit: `8.3 KiB`, `512 bytes`.
    #[must_use]
    pub fn about(self) -> impl fmt::Display {
        let found = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")]
            .into_iter()
            .find(|(shift, _)| self.0 >> shift > 0);
        let Some((shift, unit)) = found else {
            return format!("{} byte{}", self.0, if self.0 == 1 { "" } else { "s" });
        };
        let value = self.0 as f64 / (1_u64 << shift) as f64;
        let places = usize::from(value < 99.95 && self.0.trailing_zeros() < shift);
        format!("{value:.places$} {unit}")
    }
}

impl FromStr for ByteCount {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let shift = match &text[digits.len()..] {
            "" | "B" => 0,
            "K" | "k" | "KiB" => 10,
            "M" | "m" | "MiB" => 20,
            "G" | "g" | "GiB" => 30,
            "T" | "t" | "TiB" => 40,
            _ => return Err(UnitError::Size(text.to_owned())),
        };
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(UnitError::Size(text.to_owned()));
        }
        let count: u64 = digits.parse().map_err(|_| UnitError::SizeOverflow(text.to_owned()))?;
        count.checked_mul(1 << shift).map(Self).ok_or_else(|| UnitError::SizeOverflow(text.to_owned()))
    }
}

impl fmt::Display for ByteCount {
    /// The shortest exact form: `131072` prints as `128K`, `1000` as `1000`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, suffix) in [(40, "T"), (30, "G"), (20, "M"), (10, "K")] {
            if self.0 != 0 && self.0.trailing_zeros() >= shift {
                return f.pad(&format!("{}{suffix}", self.0 >> shift));
            }
        }
        f.pad(&self.0.to_string())
    }
}

/// A rate in bits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BitRate(pub u64);

/// The SI suffixes of a rate, by their power of ten.
const RATES: [(u32, &str); 4] = [(12, "T"), (9, "G"), (6, "M"), (3, "K")];

impl FromStr for BitRate {
    type Err = UnitError;

    /// `10M`, `2.5G`, `800k`: exact, so a fraction of a bit is refused.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let bad = || UnitError::Rate(text.to_owned());
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let suffix = &text[digits.len()..];
        let known = RATES.iter().find(|(_, name)| name.eq_ignore_ascii_case(suffix));
        let power = match known {
            Some(&(power, _)) => power,
            None if suffix.is_empty() => 0,
            None => return Err(bad()),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let are_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !are_digits(whole) || !are_digits(fraction) || digits.ends_with('.') {
            return Err(bad());
        }
        let fraction = fraction.trim_end_matches('0');
        let places = u32::try_from(fraction.len()).map_err(|_| bad())?;
        let left = power.checked_sub(places).ok_or_else(bad)?;
        let count: u64 =
            format!("{whole}{fraction}").parse().map_err(|_| UnitError::RateOverflow(text.to_owned()))?;
        count.checked_mul(10_u64.pow(left)).map(Self).ok_or_else(|| UnitError::RateOverflow(text.to_owned()))
    }
}

impl fmt::Display for BitRate {
    /// The shortest exact form in whole units: `10000000` prints as `10M`, `2500000000` as `2500M`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (power, suffix) in RATES {
            let unit = 10_u64.pow(power);
            if self.0 != 0 && self.0.is_multiple_of(unit) {
                return f.pad(&format!("{}{suffix}", self.0 / unit));
            }
        }
        f.pad(&self.0.to_string())
    }
}

/// Events per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PerSecond(pub u64);

impl FromStr for PerSecond {
    type Err = UnitError;

    /// `100/s`, `1000`, `2.5K/s`, `1M`: whole events only.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let bad = || UnitError::PerSecond(text.to_owned());
        let count = text.strip_suffix("/s").unwrap_or(text);
        count.parse::<BitRate>().map(|rate| Self(rate.0)).map_err(|_| bad())
    }
}

impl fmt::Display for PerSecond {
    /// The shortest exact form in whole units: `1000` prints as `1K/s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/s", BitRate(self.0)))
    }
}

/// An instant of `CLOCK_MONOTONIC`, in nanoseconds since the clock's own start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MonoNanos(pub u64);

impl MonoNanos {
    /// The time from `earlier` to `self`; zero where `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The instant `length` after `self`.
    #[must_use]
    pub fn after(self, length: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Reads a duration that names its unit: `10s`, `1.5s`, `250ms`, `2m`, `1h`.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let bad = || UnitError::Duration(text.to_owned());
    // Nothing is the same in every unit.
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale = match &text[digits.len()..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(bad()),
    };
    if !digits.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err(bad());
    }
    let count: f64 = digits.parse().map_err(|_| bad())?;
    Duration::try_from_secs_f64(count * scale).map_err(|_| bad())
}

/// Reads a duration as [`parse_duration`] does, and a bare number as seconds: the lengths that iperf3 and netperf take so.
pub fn parse_seconds(text: &str) -> Result<Duration, UnitError> {
    let bare = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let read = if bare { parse_duration(&format!("{text}s")) } else { parse_duration(text) };
    read.map_err(|_| UnitError::Seconds(text.to_owned()))
}

/// Reads a percentage, `1%` or `0.5%`, as a fraction.
pub fn parse_percent(text: &str) -> Result<f64, UnitError> {
    let bad = || UnitError::Percent(text.to_owned());
    let digits = text.strip_suffix('%').ok_or_else(bad)?;
    let value: f64 = digits.trim().parse().map_err(|_| bad())?;
    if value.is_finite() && value >= 0.0 { Ok(value / 100.0) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn events_per_second_are_whole() {
        for (text, count) in [("100/s", 100), ("1000", 1000), ("2.5K/s", 2500), ("1M", 1_000_000)] {
            let read: PerSecond = text.parse().unwrap();
            assert_eq!(read.0, count, "{text}");
            assert_eq!(read.to_string().parse(), Ok(read));
        }
        for text in ["", "/s", "-1/s", "1/m", "0.5/s", "x"] {
            assert_eq!(text.parse::<PerSecond>(), Err(UnitError::PerSecond(text.to_owned())));
        }
    }

    #[test]
    fn a_count_for_people_has_its_unit() {
        for (bytes, shown) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (512, "512 bytes"),
            (8512, "8.3 KiB"),
            (64 << 10, "64 KiB"),
            ((1 << 20) + 1, "1.0 MiB"),
            (1_500 << 20, "1.5 GiB"),
            (250 << 20, "250 MiB"),
            (u64::MAX, "16777216 TiB"),
        ] {
            assert_eq!(ByteCount(bytes).about().to_string(), shown);
        }
    }

    #[test]
    fn sizes_are_binary_and_exact() {
        let size = |text: &str| text.parse::<ByteCount>().map(|size| size.0);
        for (text, bytes) in [
            ("0", 0),
            ("1400", 1400),
            ("64K", 65_536),
            ("1MiB", 1 << 20),
            ("2g", 2 << 30),
            ("3T", 3 << 40),
            ("7B", 7),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "K", "-1", "+1", "1.5K", "1 K", "64KB", "1e3", "0x10", "１"] {
            assert_eq!(size(text), Err(UnitError::Size(text.to_owned())), "{text}");
        }
        for text in ["18446744073709551616", "16777216T"] {
            assert_eq!(size(text), Err(UnitError::SizeOverflow(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn rates_are_si_and_exact() {
        let rate = |text: &str| text.parse::<BitRate>().map(|rate| rate.0);
        for (text, bits) in [
            ("0", 0),
            ("1500", 1500),
            ("10M", 10_000_000),
            ("2.5G", 2_500_000_000),
            ("0.5k", 500),
            ("1.250T", 1_250_000_000_000),
        ] {
            assert_eq!(rate(text), Ok(bits), "{text}");
        }
        for text in ["", "M", "-1M", "+1M", ".5G", "1.G", "1.5", "1.0001K", "10Mbit", "1 G", "1e6", "1.2.3M"]
        {
            assert_eq!(rate(text), Err(UnitError::Rate(text.to_owned())), "{text}");
        }
        for text in ["18446744073709551616", "18446745T", "99999999999999999999.9G"] {
            assert_eq!(rate(text), Err(UnitError::RateOverflow(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        for (text, length) in [
            ("10s", Duration::from_secs(10)),
            ("1.5s", Duration::from_millis(1500)),
            ("250ms", Duration::from_millis(250)),
            ("20us", Duration::from_micros(20)),
            ("2m", Duration::from_mins(2)),
            ("1h", Duration::from_hours(1)),
        ] {
            assert_eq!(parse_duration(text), Ok(length), "{text}");
        }
        for text in ["", "10", "s", "-1s", "1e3s", "..s", "infs", "1d", "99999999999999999999h"] {
            assert_eq!(parse_duration(text), Err(UnitError::Duration(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn a_length_without_a_unit_is_in_seconds() {
        for (text, length) in [
            ("10", Duration::from_secs(10)),
            ("0.25", Duration::from_millis(250)),
            ("0", Duration::ZERO),
            ("10s", Duration::from_secs(10)),
            ("500ms", Duration::from_millis(500)),
            ("2m", Duration::from_mins(2)),
        ] {
            assert_eq!(parse_seconds(text), Ok(length), "{text}");
        }
        for text in ["", "s", ".", "1.2.3", "-1", "1e3", "inf", "10x", "10 s", "99999999999999999999"] {
            assert_eq!(parse_seconds(text), Err(UnitError::Seconds(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn percentages_need_their_sign() {
        for (text, fraction) in [("1%", 0.01), ("0.5 %", 0.005), ("0%", 0.0), ("250%", 2.5)] {
            assert_eq!(parse_percent(text), Ok(fraction), "{text}");
        }
        for text in ["", "1", "%", "-1%", "NaN%", "inf%", "1%%"] {
            assert_eq!(parse_percent(text), Err(UnitError::Percent(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn an_instant_never_yields_a_negative_length() {
        let (early, late) = (MonoNanos(5), MonoNanos(9));
        assert_eq!(late.since(early), Duration::from_nanos(4));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(early.after(Duration::MAX), MonoNanos(u64::MAX));
    }

    proptest! {
        #[test]
        fn a_printed_size_reads_back(bytes: u64, shift in 0u32..64) {
            let size = ByteCount(bytes >> shift << (shift / 2));
            prop_assert_eq!(size.to_string().parse(), Ok(size));
        }

        #[test]
        fn a_printed_rate_reads_back(bits: u64, power in 0u32..19) {
            let unit = 10_u64.pow(power);
            for rate in [BitRate(bits), BitRate(bits / unit * unit)] {
                prop_assert_eq!(rate.to_string().parse(), Ok(rate));
            }
        }

        #[test]
        fn no_rate_like_text_panics(text in "[0-9.KMGTkmgt-]{0,24}") {
            let _ = text.parse::<BitRate>();
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = text.parse::<BitRate>();
            let _ = (text.parse::<ByteCount>(), parse_duration(&text), parse_percent(&text));
            let _ = parse_seconds(&text);
        }
    }
}
