//! How times are counted, and what may be said of their distribution: buckets, histograms, percentiles.
//!
//! ```text
//! bucket      ns below 1,024 have one each; above, every power of two is cut into 512 of equal width
//! value       the middle of the bucket: at most 1 part in 1,024 from any time in it
//! percentile  the smallest time that all but one in N samples do not exceed, once ten samples lie beyond it
//! interval    order statistics: ranks l, u with P(B < l), P(B ≥ u) ≤ (1 − confidence) / 2 for binomial B (n, q)
//! ```
//!
//! Log-linear buckets are those of `HdrHistogram` (Tene) and neper's `histo.c`; the interval is in David & Nagaraja,
//! *Order Statistics*, 2003, §7.1, and assumes nothing about the distribution. A histogram holds counts and nothing
//! else, so that merging and the difference of two snapshots are exact, in any order; what is derived from it is within
//! the error of a bucket. Workers do not write to one: they count in an array of [`BUCKETS`] by [`bucket_of`].
//!
//! A histogram travels as a flat list of counts, bucket by bucket, in which a 0 is followed by the length of a run of
//! empty ones: `[0, 1500, 7, 9, 0, 3, 1]`. Memory grows with the list that came, never by a number in it.

use std::collections::BTreeMap;
use std::fmt;
use std::iter;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

/// Each power of two has 2 to this many buckets: the fewest whose half width stays below 0.1 % of the value.
const BITS: u32 = 9;

/// The first time that is not told from longer ones: 2^42 ns, 73 minutes.
const LIMIT: u64 = 1 << 42;

/// The number of buckets. The last one holds every time from 2^42 ns (73 minutes) on.
pub const BUCKETS: usize = bucket_of(LIMIT) + 1;

/// The most samples that merging, counting and reading a histogram will add up to. From there, single ones would have
/// to come in for 292 years, one each nanosecond, to overflow.
const MOST: u64 = 1 << 63;

/// The samples from which the ranks of an interval are no longer worked out but scaled up from those of this many:
/// some 10^5 steps, a fraction of a millisecond. An interval is narrower in truth where there are more.
const WORKED_OUT: u64 = 100_000_000;

/// Binomial weights are left out from this share of the middle one on; all of them together are below 10^-13.
const TINY: f64 = 1e-18;

/// The bucket of a time in nanoseconds, below [`BUCKETS`].
#[inline]
#[must_use]
pub const fn bucket_of(ns: u64) -> usize {
    let ns = if ns < LIMIT { ns } else { LIMIT };
    let shift = (ns | 1 << BITS).ilog2() - BITS;
    #[expect(clippy::cast_possible_truncation, reason = "below BUCKETS, which is a usize")]
    let bucket = ((shift as u64) << BITS) as usize + (ns >> shift) as usize;
    bucket
}

/// The time in nanoseconds that stands for a bucket: its middle, and 2^42 for the last.
///
/// At most 0.1 % from every time in the bucket but those in the last, and exact below 1,024 ns. There is none beyond the
/// last bucket; the answer is the last one's.
#[must_use]
pub const fn value_of(bucket: usize) -> u64 {
    let low = lowest_in(bucket);
    if bucket < BUCKETS - 1 { low + (lowest_in(bucket + 1) - low) / 2 } else { low }
}

/// The shortest time in a bucket.
const fn lowest_in(bucket: usize) -> u64 {
    let bucket = if bucket < BUCKETS { bucket } else { BUCKETS - 1 };
    let shift = (bucket >> BITS).saturating_sub(1);
    ((bucket - (shift << BITS)) as u64) << shift
}

/// A percentile haul reports, as the one in N samples that may exceed it: no decimal fraction stands between what is
/// asked for and what is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Quantile {
    /// The median.
    P50,
    /// One in 10 is longer.
    P90,
    /// One in 20 is longer.
    P95,
    /// One in 100 is longer.
    P99,
    /// One in 1,000 is longer.
    P99_9,
    /// One in 10,000 is longer.
    P99_99,
}

impl Quantile {
    /// Every percentile, in ascending order.
    pub const ALL: &[Self] = &[Self::P50, Self::P90, Self::P95, Self::P99, Self::P99_9, Self::P99_99];

    /// N, where one in N samples may exceed the percentile.
    const fn one_in(self) -> u64 {
        match self {
            Self::P50 => 2,
            Self::P90 => 10,
            Self::P95 => 20,
            Self::P99 => 100,
            Self::P99_9 => 1_000,
            Self::P99_99 => 10_000,
        }
    }

    /// The samples from which on the percentile is more than the accident of a few: ten are expected beyond it.
    #[must_use]
    pub const fn needed(self) -> u64 {
        10 * self.one_in()
    }

    /// The rank of the percentile among `n` samples in ascending order, from 1.
    const fn rank(self, n: u64) -> u64 {
        n - n / self.one_in()
    }
}

impl fmt::Display for Quantile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P95 => "p95",
            Self::P99 => "p99",
            Self::P99_9 => "p99.9",
            Self::P99_99 => "p99.99",
        })
    }
}

/// Why a percentile is not given: it would be one of the few largest samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("n too small: {n} of {needed} needed")]
pub struct TooFew {
    /// The samples there are.
    pub n: u64,
    /// The samples there must be.
    pub needed: u64,
}

/// What cannot be a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HistogramError {
    /// A bucket that does not exist.
    #[error("a histogram has {BUCKETS} buckets, and none with index {0}")]
    Bucket(usize),
    /// More samples than can be told apart from an overflow.
    #[error("the counts of a histogram come to more than 2^63 samples")]
    TooMany,
    /// Two snapshots in the wrong order, or of different counters.
    #[error("bucket {0} of a histogram has fewer samples than in an earlier snapshot")]
    NotLater(usize),
}

/// How many samples fell into each bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// By bucket; a bucket without samples is not here.
    counts: BTreeMap<usize, u64>,
    total: u64,
}

impl Histogram {
    /// The histogram of counts by bucket, as workers keep them.
    pub fn from_counts(counts: impl IntoIterator<Item = (usize, u64)>) -> Result<Self, HistogramError> {
        let mut histogram = Self::default();
        for (bucket, count) in counts {
            histogram.add(bucket, count)?;
        }
        Ok(histogram)
    }

    /// Counts one sample.
    pub fn record(&mut self, ns: u64) {
        *self.counts.entry(bucket_of(ns)).or_default() += 1;
        self.total += 1;
    }

    /// Counts `count` samples of one length.
    pub fn record_n(&mut self, ns: u64, count: u64) -> Result<(), HistogramError> {
        self.add(bucket_of(ns), count)
    }

    /// Counts every sample of `other` as well. On an error nothing has changed.
    pub fn merge(&mut self, other: &Self) -> Result<(), HistogramError> {
        self.total = self.total_with(other.total)?;
        for (bucket, count) in &other.counts {
            *self.counts.entry(*bucket).or_default() += count;
        }
        Ok(())
    }

    /// The samples that came after `earlier`, a snapshot of the same counters.
    pub fn since(&self, earlier: &Self) -> Result<Self, HistogramError> {
        let mut later = self.clone();
        for (&bucket, before) in &earlier.counts {
            let now = later.counts.get(&bucket).copied().unwrap_or(0);
            match now.checked_sub(*before) {
                None => return Err(HistogramError::NotLater(bucket)),
                Some(0) => later.counts.remove(&bucket),
                Some(left) => later.counts.insert(bucket, left),
            };
            later.total -= before;
        }
        Ok(later)
    }

    /// The number of samples.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.total
    }

    /// Whether there is no sample.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// The number of samples of 2^42 ns or more, whose length is not known: all figures take them for 2^42 ns.
    #[must_use]
    pub fn saturated(&self) -> u64 {
        self.counts.get(&(BUCKETS - 1)).copied().unwrap_or(0)
    }

    /// The shortest sample, in ns.
    #[must_use]
    pub fn min(&self) -> Option<u64> {
        self.counts.first_key_value().map(|(bucket, _)| value_of(*bucket))
    }

    /// The longest sample, in ns.
    #[must_use]
    pub fn max(&self) -> Option<u64> {
        self.counts.last_key_value().map(|(bucket, _)| value_of(*bucket))
    }

    /// The arithmetic mean, in ns; finite, and not beside the samples.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let (min, max) = (self.min()?, self.max()?);
        // Below 2^42 times 2^64: exact.
        let sum: u128 = self
            .counts
            .iter()
            .map(|(bucket, count)| u128::from(value_of(*bucket)) * u128::from(*count))
            .sum();
        // Rounding must not put the mean of equal samples beside them: their spread is 0.
        Some((sum as f64 / self.total as f64).max(min as f64).min(max as f64))
    }

    /// The sample standard deviation (n − 1), in ns; `None` for fewer than two samples.
    #[must_use]
    pub fn stddev(&self) -> Option<f64> {
        let mean = self.mean()?;
        // Squares would overflow 128 bits; deviations in floating point lose nothing that matters, and stay finite.
        let squares =
            |(bucket, count): (&usize, &u64)| *count as f64 * (value_of(*bucket) as f64 - mean).powi(2);
        let squares: f64 = self.counts.iter().map(squares).sum();
        (self.total > 1).then(|| (squares / (self.total - 1) as f64).sqrt())
    }

    /// The percentile, in ns, or how many samples it takes to say.
    pub fn percentile(&self, quantile: Quantile) -> Result<u64, TooFew> {
        let (n, needed) = (self.total, quantile.needed());
        let bucket = if n >= needed { self.bucket_at(quantile.rank(n)) } else { None };
        bucket.map(value_of).ok_or(TooFew { n, needed })
    }

    /// The interval, in ns, that covers the percentile with at least this confidence (as 0.95), whatever the
    /// distribution of the samples; `None` where there are too few for one, or its end lies among the saturated.
    ///
    /// It takes samples to be independent. Those of one run seldom are, and runs differ by more than this: it says what
    /// the number of samples allows at best, and is no substitute for a second run.
    #[must_use]
    pub fn interval(&self, quantile: Quantile, confidence: f64) -> Option<(u64, u64)> {
        let (low, high) = ranks(self.total, quantile, confidence)?;
        let (low, high) = (self.bucket_at(low)?, self.bucket_at(high)?);
        (high < BUCKETS - 1).then(|| (lowest_in(low), lowest_in(high + 1) - 1))
    }

    /// The bucket of the sample of this rank, from 1.
    fn bucket_at(&self, rank: u64) -> Option<usize> {
        let mut seen = 0;
        let mut reached = |count: u64| {
            seen += count;
            seen >= rank
        };
        self.counts.iter().find(|(_, count)| reached(**count)).map(|(bucket, _)| *bucket)
    }

    fn add(&mut self, bucket: usize, count: u64) -> Result<(), HistogramError> {
        if bucket >= BUCKETS {
            return Err(HistogramError::Bucket(bucket));
        }
        self.total = self.total_with(count)?;
        if count > 0 {
            *self.counts.entry(bucket).or_default() += count;
        }
        Ok(())
    }

    fn total_with(&self, more: u64) -> Result<u64, HistogramError> {
        self.total.checked_add(more).filter(|total| *total <= MOST).ok_or(HistogramError::TooMany)
    }
}

/// The ranks, from 1, of the samples between which the percentile of `n` lies with at least this confidence.
///
/// The number B of samples that do not exceed the true percentile is binomial. Its weights follow from one another,
/// outward from the middle, so that nothing over- or underflows.
fn ranks(n: u64, quantile: Quantile, confidence: f64) -> Option<(u64, u64)> {
    if !(confidence > 0.0 && confidence < 1.0) {
        return None;
    }
    let odds = (quantile.one_in() - 1) as f64;
    let of = n.min(WORKED_OUT);
    let middle = quantile.rank(of);
    let down = |&(k, weight): &(u64, f64)| {
        let next = weight * k as f64 / ((of - k + 1) as f64 * odds);
        (next > TINY).then(|| (k - 1, next))
    };
    let up = |&(k, weight): &(u64, f64)| {
        let next = weight * (of - k) as f64 * odds / (k + 1) as f64;
        (next > TINY).then(|| (k + 1, next))
    };
    let below: Vec<f64> = iter::successors(Some((middle, 1.0)), down).map(|(_, weight)| weight).collect();
    let above: Vec<f64> =
        iter::successors(Some((middle, 1.0)), up).map(|(_, weight)| weight).skip(1).collect();

    let each_side = (1.0 - confidence) / 2.0 * (below.iter().sum::<f64>() + above.iter().sum::<f64>());
    let outside = |weights: &[f64]| {
        let mut tail = 0.0;
        let within = |weight: &&f64| {
            tail += **weight;
            tail <= each_side
        };
        weights.iter().rev().take_while(within).count() as u64
    };
    let low = middle + 1 - below.len() as u64 + outside(&below);
    let high = middle + 1 + above.len() as u64 - outside(&above);
    let scaled = |rank: u64, round: u128| {
        let rank = (u128::from(rank) * u128::from(n) + round) / u128::from(of);
        u64::try_from(rank).ok()
    };
    if low == 0 || high > of {
        return None;
    }
    Some((scaled(low, 0)?, scaled(high, u128::from(of) - 1)?))
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut next = 0;
        serializer.collect_seq(self.counts.iter().flat_map(|(&bucket, &count)| {
            let empty = bucket - next;
            next = bucket + 1;
            [0, empty as u64, count].into_iter().skip(if empty == 0 { 2 } else { 0 })
        }))
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Counts)
    }
}

/// Reads a histogram from the list it travels as.
struct Counts;

impl<'de> Visitor<'de> for Counts {
    type Value = Histogram;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the counts of a histogram, with 0 and its length for a run of empty buckets")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Histogram, A::Error> {
        let mut histogram = Histogram::default();
        let mut bucket = 0_usize;
        while let Some(count) = list.next_element()? {
            let step = if count == 0 {
                let empty: Option<u64> = list.next_element()?;
                let empty = empty.ok_or_else(|| A::Error::custom("a run of empty buckets has no length"))?;
                usize::try_from(empty).unwrap_or(usize::MAX)
            } else {
                histogram.add(bucket, count).map_err(A::Error::custom)?;
                1
            };
            // What lies beyond every bucket is refused with the count that stands there.
            bucket = bucket.saturating_add(step);
        }
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    /// Times of every magnitude, the unmeasurably long included.
    fn any_time() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0_u32..64).prop_map(|(bits, shift)| bits >> shift)
    }

    /// Times that are not cut off.
    fn time() -> impl Strategy<Value = u64> {
        any_time().prop_map(|ns| ns % LIMIT)
    }

    fn histogram(times: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        for ns in times {
            histogram.record(*ns);
        }
        histogram
    }

    fn merged(one: &Histogram, other: &Histogram) -> Histogram {
        let mut both = one.clone();
        both.merge(other).unwrap();
        both
    }

    fn read(json: &str) -> Result<Histogram, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    /// Within the error of a bucket.
    fn close(value: u64, truth: u64) -> bool {
        value.abs_diff(truth) * 1_000 <= truth
    }

    #[test]
    fn buckets_join_without_a_gap_and_their_values_are_within_a_thousandth() {
        assert_eq!(BUCKETS, 17_409);
        for bucket in 0..BUCKETS - 1 {
            let (low, high) = (lowest_in(bucket), lowest_in(bucket + 1) - 1);
            assert!(low <= high, "{bucket}");
            assert_eq!((bucket_of(low), bucket_of(high)), (bucket, bucket));
            assert!(
                close(value_of(bucket), low) && close(value_of(bucket), high),
                "{bucket}: {low} to {high}"
            );
        }
        for ns in 0..1_024 {
            assert_eq!(value_of(bucket_of(ns)), ns);
        }
    }

    #[test]
    fn times_too_long_to_tell_apart_share_the_last_bucket_and_are_counted() {
        assert_eq!((bucket_of(LIMIT - 1), bucket_of(LIMIT)), (BUCKETS - 2, BUCKETS - 1));
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        for beyond in [BUCKETS - 1, BUCKETS, usize::MAX] {
            assert_eq!(value_of(beyond), LIMIT);
        }
        let times = histogram(&[5, LIMIT, u64::MAX]);
        assert_eq!((times.count(), times.saturated(), times.max()), (3, 2, Some(LIMIT)));
        assert_eq!(histogram(&[LIMIT - 1]).saturated(), 0);
        assert_eq!(histogram(&[LIMIT; 1_000]).interval(Quantile::P50, 0.95), None, "nobody knows how long");
    }

    #[test]
    fn a_percentile_of_few_samples_is_refused_with_the_number_it_takes() {
        let known = |n: u64| {
            let times = histogram(&(1..=n).map(|i| i * 1_000).collect::<Vec<_>>());
            Quantile::ALL
                .iter()
                .filter(|q| times.percentile(**q).is_ok())
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(known(0), [""; 0]);
        assert_eq!(known(10), [""; 0]);
        assert_eq!(known(71), ["p50"]);
        assert_eq!(known(999), ["p50", "p90", "p95"]);
        assert_eq!(known(1_000), ["p50", "p90", "p95", "p99"]);
        assert_eq!(known(10_000), ["p50", "p90", "p95", "p99", "p99.9"]);
        assert_eq!(known(100_000), ["p50", "p90", "p95", "p99", "p99.9", "p99.99"]);

        let too_few = histogram(&[1_000; 71]).percentile(Quantile::P99).unwrap_err();
        assert_eq!(too_few, TooFew { n: 71, needed: 1_000 });
        assert_eq!(too_few.to_string(), "n too small: 71 of 1000 needed");
    }

    #[test]
    fn nothing_is_said_of_no_samples() {
        let none = Histogram::default();
        assert!(none.is_empty());
        assert_eq!((none.count(), none.saturated(), none.min(), none.max()), (0, 0, None, None));
        assert_eq!((none.mean(), none.stddev(), none.interval(Quantile::P50, 0.95)), (None, None, None));
        assert_eq!(histogram(&[5]).stddev(), None, "one sample has no spread");
    }

    #[test]
    fn a_tenth_more_and_four_times_more_are_told_apart() {
        let p99 = |slow: u64| {
            let mut times = Histogram::default();
            times.record_n(100_000, 950).unwrap();
            times.record_n(slow, 50).unwrap();
            times.percentile(Quantile::P99).unwrap()
        };
        let (base, tenth, fourfold) = (p99(1_900_000), p99(2_100_000), p99(7_700_000));
        for (value, truth) in [(base, 1_900_000), (tenth, 2_100_000), (fourfold, 7_700_000)] {
            assert!(close(value, truth), "{value} for {truth}");
        }
    }

    #[test]
    fn samples_without_number_neither_overflow_nor_turn_into_no_number() {
        let weight = 1 << 33;
        let mut times = Histogram::default();
        for ns in [1, 50_000, LIMIT - 1, u64::MAX] {
            times.record_n(ns, weight).unwrap();
        }
        let mut doubled = 2;
        while let Ok(()) = times.merge(&times.clone()) {
            doubled += 1;
            assert_eq!(times.count(), weight << doubled);
            assert_eq!(times.percentile(Quantile::P50).map(|ns| close(ns, 50_000)), Ok(true));
            assert_eq!(times.percentile(Quantile::P99_99), Ok(LIMIT));
            let (mean, stddev) = (times.mean().unwrap(), times.stddev().unwrap());
            assert!((mean / (LIMIT as f64 / 2.0) - 1.0).abs() < 1e-3, "{mean}");
            assert!((stddev / mean - 1.0).abs() < 1e-3, "{stddev}");
            assert!(times.interval(Quantile::P90, 0.95).is_none(), "among the saturated");
        }
        assert_eq!(times.count(), MOST);

        let full = times.clone();
        assert_eq!(times.merge(&histogram(&[1])), Err(HistogramError::TooMany));
        assert_eq!(times.record_n(1, u64::MAX), Err(HistogramError::TooMany));
        assert_eq!(times, full, "what is refused is not counted by half");
    }

    #[test]
    fn a_snapshot_has_no_difference_to_one_of_other_counters() {
        let (early, late) = (histogram(&[5, 9]), histogram(&[5, 5, 9]));
        assert_eq!(late.since(&early), Ok(histogram(&[5])));
        assert_eq!(early.since(&early), Ok(Histogram::default()));
        assert_eq!(early.since(&late), Err(HistogramError::NotLater(5)));
        assert_eq!(late.since(&histogram(&[7])), Err(HistogramError::NotLater(7)));
    }

    #[test]
    fn a_count_for_a_bucket_that_does_not_exist_is_refused() {
        assert_eq!(Histogram::from_counts([(BUCKETS, 0)]), Err(HistogramError::Bucket(BUCKETS)));
        assert_eq!(Histogram::from_counts([(0, 1 << 62), (1, 1 << 63)]), Err(HistogramError::TooMany));
        assert_eq!(Histogram::from_counts([(9, 1), (5, 0), (9, 1)]), Ok(histogram(&[9, 9])));
    }

    #[test]
    fn a_histogram_is_written_as_counts_with_runs_of_empty_buckets() {
        for (times, json) in [
            (&[][..], "[]"),
            (&[0, 0, 1], "[2,1]"),
            (&[5, 5, 6, 9], "[0,5,2,1,0,2,1]"),
            (&[u64::MAX], "[0,17408,1]"),
        ] {
            assert_eq!(serde_json::to_string(&histogram(times)).unwrap(), json);
            assert_eq!(read(json), Ok(histogram(times)));
        }
    }

    #[test]
    fn a_hostile_list_is_refused_by_what_is_wrong_with_it() {
        let beyond = "a histogram has 17409 buckets, and none with index";
        let endless = format!("[0,17409,{}1]", "1,".repeat(40_000));
        for (json, wrong) in [
            ("[0,17409,1]", beyond),
            ("[0,18446744073709551615,1]", beyond),
            ("[0,18446744073709551615,0,18446744073709551615,7]", beyond),
            ("[1,0,17408,1]", beyond),
            (endless.as_str(), beyond),
            ("[9223372036854775808,1]", "more than 2^63 samples"),
            ("[18446744073709551615]", "more than 2^63 samples"),
            ("[18446744073709551616]", "invalid type"),
            ("[-1]", "invalid value"),
            ("[1.5]", "invalid type"),
            ("[[0,1]]", "invalid type"),
            ("{}", "expected the counts of a histogram"),
            ("[3,0]", "a run of empty buckets has no length"),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.contains(wrong), "{json:.60}: {error}");
        }
        assert_eq!(
            read("[0,0,0,0,0,99999999,0,0]"),
            Ok(Histogram::default()),
            "empty buckets hold no memory"
        );
    }

    #[test]
    fn ten_million_samples_take_a_few_tens_of_kib_whatever_their_spread() {
        let seed = 20_260_412;
        let mut rng = StdRng::seed_from_u64(seed);
        let mut counts = vec![0_u64; BUCKETS];
        for _ in 0..10_000_000 {
            // A body around 20 µs and, in one of a hundred, a tail that halves with each doubling, up to seconds.
            let body = 20_000.0 * (0.4 * (rng.random::<f64>() + rng.random::<f64>() - 1.0)).exp();
            let slow = if rng.random_bool(0.01) { rng.random::<f64>().recip() } else { 1.0 };
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time in ns")]
            let ns = (body * slow) as u64;
            counts[bucket_of(ns)] += 1;
        }
        let usual = Histogram::from_counts(counts.into_iter().enumerate()).unwrap();
        let everywhere = Histogram::from_counts((0..BUCKETS).map(|bucket| (bucket, 574))).unwrap();
        let every_second =
            Histogram::from_counts((0..BUCKETS).step_by(2).map(|bucket| (bucket, 1_149))).unwrap();
        for (times, kib) in [(usual, 16), (everywhere, 80), (every_second, 80)] {
            let json = serde_json::to_string(&times).unwrap();
            println!("{} samples: {} bytes", times.count(), json.len());
            assert!(
                json.len() < kib << 10,
                "{} bytes for {} samples (seed {seed})",
                json.len(),
                times.count()
            );
        }
    }

    #[test]
    fn the_ranks_of_an_interval_are_those_of_the_tables() {
        // Conover, Practical Nonparametric Statistics, 1999, §3.2; David & Nagaraja 2003, §7.1.
        assert_eq!(ranks(100, Quantile::P50, 0.95), Some((40, 61)));
        assert_eq!(ranks(10, Quantile::P50, 0.95), Some((2, 9)));
        assert_eq!(ranks(6, Quantile::P50, 0.95), Some((1, 6)));
        for (n, quantile) in [(0, Quantile::P50), (5, Quantile::P50), (300, Quantile::P99)] {
            assert_eq!(ranks(n, quantile, 0.95), None, "{n} samples cannot tell {quantile}");
        }
        for confidence in [f64::NAN, -1.0, 0.0, 1.0, f64::INFINITY] {
            assert_eq!(ranks(100, Quantile::P50, confidence), None);
        }
    }

    #[test]
    fn beyond_what_is_worked_out_an_interval_keeps_its_share_of_the_ranks() {
        for quantile in Quantile::ALL {
            let (low, high) = ranks(WORKED_OUT, *quantile, 0.95).unwrap();
            assert_eq!(ranks(WORKED_OUT << 20, *quantile, 0.95), Some((low << 20, high << 20)));
            let (low, high) = ranks(u64::MAX, *quantile, 0.95).unwrap();
            assert!(low < quantile.rank(u64::MAX) && quantile.rank(u64::MAX) < high);
        }
    }

    proptest! {
        #[test]
        fn every_time_is_within_a_thousandth_of_its_buckets_value(ns in any_time()) {
            let value = value_of(bucket_of(ns));
            prop_assert!(if ns < LIMIT { close(value, ns) } else { value == LIMIT }, "{} for {}", value, ns);
            prop_assert!(bucket_of(ns) < BUCKETS);
        }

        #[test]
        fn a_longer_time_is_in_no_lower_bucket(one in any_time(), other in any_time()) {
            prop_assert_eq!(bucket_of(one.min(other)), bucket_of(one).min(bucket_of(other)));
        }

        #[test]
        fn figures_are_those_of_the_sorted_samples(mut times in vec(time(), 1..12_000)) {
            let counted = histogram(&times);
            times.sort_unstable();
            let n = times.len();
            prop_assert_eq!(counted.count(), n as u64);
            let (min, max) = (counted.min().unwrap(), counted.max().unwrap());
            prop_assert!(close(min, times[0]) && close(max, times[n - 1]));
            let all_but_one_in = [2, 10, 20, 100, 1_000, 10_000];
            for (quantile, one_in) in Quantile::ALL.iter().zip(all_but_one_in) {
                let covers = |x: &&u64| times.partition_point(|y| y <= x) * one_in >= n * (one_in - 1);
                let truth = *times.iter().find(covers).unwrap();
                let needed = 10 * one_in;
                match counted.percentile(*quantile) {
                    Ok(value) => prop_assert!(n >= needed && close(value, truth), "{}", quantile),
                    Err(few) => prop_assert!(n < needed && few.needed == needed as u64, "{}", quantile),
                }
            }

            let mean = times.iter().map(|ns| *ns as f64).sum::<f64>() / n as f64;
            prop_assert!((counted.mean().unwrap() - mean).abs() <= mean / 1_000.0);
            if let Some(stddev) = counted.stddev() {
                let squares: f64 = times.iter().map(|ns| (*ns as f64 - mean).powi(2)).sum();
                let truth = (squares / (n - 1) as f64).sqrt();
                let rms = (squares / n as f64 + mean * mean).sqrt();
                prop_assert!((stddev - truth).abs() <= 3.0 * rms / 1_000.0, "{} for {}", stddev, truth);
            }
        }

        #[test]
        fn an_interval_holds_the_percentile_and_widens_with_confidence(times in vec(time(), 20..2_000)) {
            let counted = histogram(&times);
            for quantile in Quantile::ALL {
                let Some((low, high)) = counted.interval(*quantile, 0.9) else { continue };
                if let Ok(value) = counted.percentile(*quantile) {
                    prop_assert!(low <= value && value <= high);
                }
                if let Some((lower, higher)) = counted.interval(*quantile, 0.99) {
                    prop_assert!(lower <= low && high <= higher);
                }
            }
        }

        #[test]
        fn the_ranks_of_an_interval_are_the_tightest_whose_tails_are_light_enough(
            n in 1_u64..400, quantile in proptest::sample::select(Quantile::ALL), confidence in 0.5..0.999,
        ) {
            let (p, each_side) = (1.0 / quantile.one_in() as f64, (1.0 - confidence) / 2.0);
            // From the top, with logarithms: another way than the one under test.
            let factorial = |k: u64| libm::lgamma(k as f64 + 1.0);
            let weight = |k: u64| {
                let choices = factorial(n) - factorial(k) - factorial(n - k);
                (choices + (n - k) as f64 * p.ln() + k as f64 * (1.0 - p).ln()).exp()
            };
            let at_least = |k: u64| (k..=n).map(weight).sum::<f64>();
            let below = |k: u64| (0..k).map(weight).sum::<f64>();
            let low = (1..=n).rev().find(|l| below(*l) <= each_side);
            let high = (1..=n).find(|u| at_least(*u) <= each_side);
            prop_assert_eq!(ranks(n, quantile, confidence), low.zip(high));
        }

        #[test]
        fn merging_is_counting_together_in_any_order(
            a in vec(any_time(), 0..200), b in vec(any_time(), 0..200), c in vec(any_time(), 0..200),
        ) {
            let together = histogram(&[a.clone(), b.clone(), c.clone()].concat());
            let [a, b, c] = [a, b, c].map(|times| histogram(&times));
            prop_assert_eq!(&merged(&merged(&a, &b), &c), &together);
            prop_assert_eq!(&merged(&a, &merged(&b, &c)), &together);
            prop_assert_eq!(&merged(&merged(&c, &b), &a), &together);
            prop_assert_eq!(&merged(&a, &Histogram::default()), &a);
        }

        #[test]
        fn a_window_is_what_was_counted_between_its_snapshots(
            before in vec(any_time(), 0..200), within in vec(any_time(), 0..200),
        ) {
            let (before, within) = (histogram(&before), histogram(&within));
            prop_assert_eq!(merged(&before, &within).since(&before), Ok(within));
        }

        #[test]
        fn what_is_written_reads_back(times in vec((any_time(), 1_u64..1 << 40), 0..300)) {
            let mut counted = Histogram::default();
            for (ns, count) in times {
                counted.record_n(ns, count).unwrap();
            }
            prop_assert_eq!(read(&serde_json::to_string(&counted).unwrap()), Ok(counted));
        }

        #[test]
        fn no_list_of_numbers_panics(
            numbers in vec(prop_oneof![Just(0), 0_u64..20_000, any::<u64>()], 0..40),
        ) {
            if let Ok(counted) = read(&serde_json::to_string(&numbers).unwrap()) {
                prop_assert_eq!(read(&serde_json::to_string(&counted).unwrap()), Ok(counted));
            }
        }
    }
}
