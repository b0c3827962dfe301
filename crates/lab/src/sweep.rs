//! The values of a swept option: `1,4,16`, `0..32`, `0..4032+64`, `512..65536*2`, or any of these joined by commas.
//!
//! Ranges are inclusive because people read them so; `+K` adds K instead of one, and `*K` multiplies, since sizes matter by
//! their ratio. A value may appear once only: two cells with the same levels could not be told apart in the record.
//! Bounded, because a slip of the finger (`1..65536`) would otherwise plan a week of runs without a word.

use haul_stats::{ByteCount, PerSecond};

use crate::error::LabError;

/// The most values of one axis, and the most cells of one plan: at one second each it is already close to three hours.
pub const MAX_VALUES: usize = 10_000;

/// What the suffixes of a value mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suffix {
    /// Sizes and counts: K is 1,024.
    Binary,
    /// Rates: K is 1,000.
    Si,
}

/// Reads the values of one axis, in the order given.
///
/// # Errors
/// [`LabError::Sweep`] names the part of the text that cannot be read and what to write instead.
pub fn parse(text: &str, suffix: Suffix) -> Result<Vec<u64>, LabError> {
    let size = |text: &str, item: &str| size(text, item, suffix);
    let mut values = Vec::new();
    for item in text.split(',') {
        match item.split_once("..") {
            None => values.push(size(text, item)?),
            Some((low, high)) => range(text, low, high, suffix, &mut values)?,
        }
        if values.len() > MAX_VALUES {
            return Err(too_many(text));
        }
    }
    let mut sorted = values.clone();
    sorted.sort_unstable();
    if let Some([twice, _]) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(bad(text, format!("the value {twice} is in it twice: name each value once")));
    }
    Ok(values)
}

/// Appends the values of `low..high`, `low..high+step` or `low..high*factor`, the last one not above `high`.
fn range(text: &str, low: &str, high: &str, suffix: Suffix, values: &mut Vec<u64>) -> Result<(), LabError> {
    let (high, factor, step) = match (high.split_once('*'), high.split_once('+')) {
        (Some((high, factor)), _) => (high, Some(factor), None),
        (None, Some((high, step))) => (high, None, Some(step)),
        (None, None) => (high, None, None),
    };
    let (low, high) = (size(text, low, suffix)?, size(text, high, suffix)?);
    if low > high {
        return Err(bad(
            text,
            format!("the range {low}..{high} runs backwards: write the smaller end first"),
        ));
    }
    let Some(factor) = factor else {
        let step = step.map_or(Ok(1), |step| size(text, step, suffix))?;
        if step == 0 {
            return Err(bad(text, "the step 0 does not grow: give 1 or more after '+'".to_owned()));
        }
        if (high - low) / step >= MAX_VALUES as u64 {
            return Err(too_many(text));
        }
        values.extend((0..=(high - low) / step).map(|index| low + index * step));
        return Ok(());
    };
    let factor = size(text, factor, Suffix::Binary)?;
    if factor < 2 {
        return Err(bad(text, format!("the factor {factor} does not grow: give 2 or more after '*'")));
    }
    if low == 0 {
        return Err(bad(
            text,
            "a multiplied range cannot start at 0: start it at 1, or write 0,1..N*K".to_owned(),
        ));
    }
    values.extend(
        std::iter::successors(Some(low), |value| value.checked_mul(factor))
            .take_while(|&value| value <= high),
    );
    Ok(())
}

fn size(text: &str, item: &str, suffix: Suffix) -> Result<u64, LabError> {
    let item = item.trim();
    if item.is_empty() {
        return Err(bad(text, "a value is missing: write 1,4,16 or 0..32 or 512..64K*2".to_owned()));
    }
    let value = match suffix {
        Suffix::Binary => item.parse::<ByteCount>().map(|count| count.0),
        // Of bits, or of transactions: the number is the same.
        Suffix::Si => item.parse::<PerSecond>().map(|rate| rate.0),
    };
    value.map_err(|error| bad(text, error.to_string()))
}

fn bad(text: &str, why: String) -> LabError {
    LabError::Sweep { text: text.to_owned(), why }
}

fn too_many(text: &str) -> LabError {
    bad(
        text,
        format!("it has more than {MAX_VALUES} values: use a factor, as in 512..64K*2, or fewer values"),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_ranges_and_factors_are_inclusive_and_keep_their_order() {
        for (text, expected) in [
            ("64", vec![64]),
            ("1,4,16", vec![1, 4, 16]),
            ("16,4,1", vec![16, 4, 1]),
            ("0..4", vec![0, 1, 2, 3, 4]),
            ("7..7", vec![7]),
            ("0..4032+64", (0..64).map(|index| index * 64).collect()),
            ("1..10+4", vec![1, 5, 9]),
            ("64..1K+512", vec![64, 576]),
            ("512..4096*2", vec![512, 1024, 2048, 4096]),
            ("512..5000*2", vec![512, 1024, 2048, 4096]),
            ("1K..64K*4", vec![1024, 4096, 16384, 65536]),
            ("0, 1..8*2, 10", vec![0, 1, 2, 4, 8, 10]),
            ("1M,64K", vec![1 << 20, 65536]),
        ] {
            assert_eq!(parse(text, Suffix::Binary).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn a_sweep_that_cannot_be_read_names_the_text_and_the_remedy() {
        for (text, part, remedy) in [
            ("", "a value is missing", "1,4,16"),
            ("1,,2", "a value is missing", "1,4,16"),
            ("1..", "a value is missing", "0..32"),
            ("8..4", "runs backwards", "smaller end first"),
            ("1..8*1", "does not grow", "2 or more"),
            ("1..8+0", "does not grow", "1 or more"),
            ("1..8+", "a value is missing", "0..32"),
            ("0..65535+2", "more than 10000 values", "factor"),
            ("0..8*2", "cannot start at 0", "start it at 1"),
            ("4,4", "twice", "once"),
            ("1..4,2", "twice", "once"),
            ("12x", "'12x' is not a size", "64K"),
            ("-1", "'-1' is not a size", "64K"),
            ("1...4", "'.4' is not a size", "64K"),
            ("0..10000", "more than 10000 values", "factor"),
            ("0..9999,20000", "more than 10000 values", "factor"),
            ("99999999999T", "2^64", ""),
        ] {
            let error = parse(text, Suffix::Binary).unwrap_err().to_string();
            for needle in [part, remedy, &format!("'{text}'")] {
                assert!(error.contains(needle), "{text}: '{needle}' is missing from: {error}");
            }
        }
        assert_eq!(parse("0..9999", Suffix::Binary).unwrap().len(), MAX_VALUES);
    }

    proptest! {
        #[test]
        fn no_text_panics_or_grows_past_the_bound(text in "[0-9KMT.,*+ -]{0,24}") {
            if let Ok(values) = parse(&text, Suffix::Binary) {
                prop_assert!(!values.is_empty() && values.len() <= MAX_VALUES);
            }
        }

        #[test]
        fn a_written_list_reads_back(values in proptest::collection::hash_set(any::<u64>(), 1..50)) {
            let values: Vec<u64> = values.into_iter().collect();
            let text = values.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
            prop_assert_eq!(parse(&text, Suffix::Binary).unwrap(), values);
        }
    }
}
