//! What one set of runs says by itself: its summary, and three tests of whether a summary may stand for it.
//!
//! A mean and a standard deviation describe runs that scatter around one value, do not move with time and do not depend
//! on each other. [`two_modes`], [`drift`] and [`autocorrelation`] each answer `Some` only where chance alone would
//! have produced as much in about one of a hundred sets ([`DOUBT_LEVEL`]); `tests/simulation.rs` checks
//! the rates. `None` is not proof of the opposite: six runs show little.
//!
//! All functions take values in the order in which they were measured, and expect finite ones, as
//! [`Reading`](crate::Reading) has. The pairwise ones need n²/2 numbers of memory: n counts runs, not samples.

use std::fmt;

/// The chance at which the tests of this module fire on runs that have nothing wrong.
///
/// They are looked at for every metric and cell; at the customary 5 % a report of twenty numbers would carry a doubt
/// for nothing.
pub const DOUBT_LEVEL: f64 = 0.01;

/// The smallest distance of two modes, and the smallest drift, worth a doubt: twice the default minimum effect. Less
/// cannot mislead a reader of the mean.
const MATTERS: f64 = 0.02;

/// The usual figures of a set of runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Number of runs.
    pub n: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Sample standard deviation (n − 1); `None` for a single run.
    pub stddev: Option<f64>,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// Middle value, or the mean of the middle two.
    pub median: f64,
    /// Coefficient of variation, stddev ÷ |mean|; `None` where either is missing or the mean is 0.
    pub cv: Option<f64>,
}

impl Summary {
    /// The figures of `values`; `None` of none.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let n = sorted.len();
        // Rounding must not put the mean of equal runs beside them: their spread is 0.
        let mean = (sorted.iter().sum::<f64>() / n as f64).max(min).min(max);
        let squares: f64 = sorted.iter().map(|value| (value - mean).powi(2)).sum();
        let stddev = (n > 1).then(|| (squares / (n - 1) as f64).sqrt());
        let cv = stddev.filter(|_| mean != 0.0).map(|stddev| stddev / mean.abs());
        Some(Self { n, mean, stddev, min, max, median: median_of_sorted(&sorted), cv })
    }
}

/// Two groups of runs with nothing between them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TwoModes {
    /// Median of the lower group.
    pub low: f64,
    /// Median of the higher group.
    pub high: f64,
    /// Runs in the lower group.
    pub n_low: usize,
    /// Runs in the higher group.
    pub n_high: usize,
}

/// The two groups the runs fall into, where one gap between them is too wide for a single mode.
///
/// The uniform distribution is the one-moded one whose sample looks most like two groups (Hartigan & Hartigan 1985).
/// Given the ends of a uniform sample of n, one of its gaps exceeds the share g of the range with probability
/// (1 − g)^(n−2) (David & Nagaraja, *Order Statistics*, 2003, §6.4), hence one of c gaps with at most c times that.
/// A tenth of the runs is trimmed from either end first, which leaves a uniform sample uniform, and groups of one, or
/// of less than a tenth of the runs, are not looked at: stray runs are outliers, not a mode. Where most values repeat (small counts, a coarse clock) gaps
/// mean nothing, and the answer is `None`.
#[must_use]
pub fn two_modes(values: &[f64]) -> Option<TwoModes> {
    let sorted = sorted(values);
    let distinct = 1 + sorted.windows(2).filter(|pair| pair[0] < pair[1]).count();
    let trim = sorted.len() / 10;
    let smallest = trim.max(2);
    let core = &sorted[trim..sorted.len() - trim];
    if core.len() < 2 * smallest || distinct * 2 <= sorted.len() {
        return None;
    }
    let splits = smallest..=core.len() - smallest;
    let chances = splits.clone().count() as f64;
    let (split, gap) = splits.map(|at| (at, core[at] - core[at - 1])).max_by(|a, b| a.1.total_cmp(&b.1))?;
    let share = gap / (core[core.len() - 1] - core[0]);
    let by_chance = chances * (1.0 - share).powf((core.len() - 2) as f64);

    let (lower, higher) = sorted.split_at(trim + split);
    let (low, high) = (median_of_sorted(lower), median_of_sorted(higher));
    (by_chance <= DOUBT_LEVEL && high - low >= MATTERS * high.abs()).then_some(TwoModes {
        low,
        high,
        n_low: lower.len(),
        n_high: higher.len(),
    })
}

/// A movement of the runs with time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Drift {
    /// The last is this share above the first; below, where it is negative, and then less than all of it.
    By(f64),
    /// Later runs are higher. Some are not positive, so the movement has a direction and is no share of anything.
    Up,
    /// Later runs are lower, likewise.
    Down,
}

impl fmt::Display for Drift {
    /// `rose by 9.5 %`, `fell by 41.0 %`, `rose`, `fell`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::By(share) if *share < 0.0 => write!(f, "fell by {:.1} %", -share * 100.0),
            Self::By(share) => write!(f, "rose by {:.1} %", share * 100.0),
            Self::Up => f.write_str("rose"),
            Self::Down => f.write_str("fell"),
        }
    }
}

/// How the runs moved from the first to the last, where they did move.
///
/// Whether: the Mann–Kendall test (Mann 1945, Kendall 1975), two-sided, with the variance corrected for ties and the
/// statistic for continuity. How far: the Theil–Sen slope (Sen 1968) of the logarithms, as the ratio of its ends; a slope
/// of the values themselves can fall by more than all there is. Both use ranks or medians only, so one wild run neither
/// makes nor hides a drift. A step half way is found too, in 14 runs or more.
#[must_use]
pub fn drift(values: &[f64]) -> Option<Drift> {
    let median = Summary::of(values)?.median;
    let n = values.len() as f64;
    let ratios = values.iter().all(|value| *value > 0.0);
    let mut score = 0i64;
    let mut slopes = Vec::with_capacity(values.len() * values.len().saturating_sub(1) / 2);
    for (i, earlier) in values.iter().enumerate() {
        for (distance, later) in values[i..].iter().enumerate().skip(1) {
            score += later.total_cmp(earlier) as i64;
            let step = if ratios { (later / earlier).ln() } else { later - earlier };
            slopes.push(step / distance as f64);
        }
    }
    let ordered = sorted(values);
    let spread = |n: f64| n * (n - 1.0) * (2.0 * n + 5.0) / 18.0;
    let ties: f64 =
        ordered.chunk_by(|a, b| a.total_cmp(b).is_eq()).map(|tied| spread(tied.len() as f64)).sum();
    let z = (score.unsigned_abs() as f64 - 1.0) / (spread(n) - ties).sqrt();
    if 2.0 * normal_below(-z) > DOUBT_LEVEL || median == 0.0 {
        return None;
    }
    let moved = median_of_sorted(&sorted(&slopes)) * (n - 1.0);
    if ratios {
        let share = moved.exp_m1();
        return (share.abs() >= MATTERS).then_some(Drift::By(share));
    }
    let way = if moved < 0.0 { Drift::Down } else { Drift::Up };
    (moved.abs() >= MATTERS * median.abs()).then_some(way)
}

/// The lag-1 autocorrelation of the runs, where it is positive beyond chance.
///
/// Positive dependence makes an interval from n runs narrower than it should be; negative makes it wider, which is
/// safe and not reported. Of independent runs the coefficient has mean −1/n and variance (n − 2)²/n²(n − 1)
/// (Moran 1948).
#[must_use]
pub fn autocorrelation(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    let mean = Summary::of(values)?.mean;
    let products: f64 = values.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let coefficient = products / squares;
    let z = (coefficient + 1.0 / n) * n * (n - 1.0).sqrt() / (n - 2.0);
    (n > 2.0 && normal_below(-z) <= DOUBT_LEVEL).then_some(coefficient)
}

/// The median of a set of runs, and where that of all such runs lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MedianInterval {
    /// Middle value, or the mean of the middle two.
    pub median: f64,
    /// Lower end: one of the runs.
    pub low: f64,
    /// Upper end: one of the runs.
    pub high: f64,
    /// The confidence reached, at least what was asked for: only some can be had, because the ends are runs.
    pub confidence: f64,
}

impl MedianInterval {
    /// Whether no value lies in both: only then are two medians told apart.
    #[must_use]
    pub fn is_apart_from(&self, other: &Self) -> bool {
        self.high < other.low || other.high < self.low
    }
}

/// An interval for the median that assumes nothing of how the runs are distributed, but that they are alike and independent;
/// `None` where there are too few for that confidence (6 give 96.9 %).
///
/// Each run lies below the median with probability ½, so the k-th smallest lies above it with that of fewer than k heads
/// in n throws (the sign test turned round; David & Nagaraja, *Order Statistics*, 2003, §7.1). The k-th smallest and the
/// k-th largest are its ends, k being the largest that keeps the confidence.
#[must_use]
pub fn median_interval(values: &[f64], confidence: f64) -> Option<MedianInterval> {
    let n = values.len();
    let throws = n as f64;
    let ways = |k: f64| libm::lgamma(throws + 1.0) - libm::lgamma(k + 1.0) - libm::lgamma(throws - k + 1.0);
    let exactly = |k: usize| (ways(k as f64) - throws * std::f64::consts::LN_2).exp();
    let (mut rank, mut outside, mut reached) = (0, 0.0, 0.0);
    for next in 1..=n / 2 {
        outside += 2.0 * exactly(next - 1);
        if 1.0 - outside < confidence {
            break;
        }
        (rank, reached) = (next, 1.0 - outside);
    }
    let sorted = sorted(values);
    let low = *sorted.get(rank.checked_sub(1)?)?;
    let high = *sorted.get(n - rank)?;
    Some(MedianInterval { median: median_of_sorted(&sorted), low, high, confidence: reached })
}

/// Spearman's rank correlation of two readings of the same things: 1 where both put them into one order, −1 where into
/// opposite ones; `None` where there is no order (fewer than two, or all alike), or the two are not of one length.
///
/// Ties have the mean of their ranks. (Spearman, *The proof and measurement of association between two things*, 1904.)
#[must_use]
pub fn spearman(first: &[f64], second: &[f64]) -> Option<f64> {
    if first.len() != second.len() {
        return None;
    }
    let (first, second) = (ranks(first), ranks(second));
    // Both sets of ranks have the same mean.
    let mean = f64::midpoint(first.len() as f64, 1.0);
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>();
    let spread = (product(&first, &first) * product(&second, &second)).sqrt();
    (spread > 0.0).then(|| (product(&first, &second) / spread).clamp(-1.0, 1.0))
}

/// The rank of each value from 1, the mean of theirs where some are equal.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut before = 0;
    for tied in order.chunk_by(|&a, &b| values[a].total_cmp(&values[b]).is_eq()) {
        let rank = before as f64 + f64::midpoint(tied.len() as f64, 1.0);
        for &at in tied {
            ranks[at] = rank;
        }
        before += tied.len();
    }
    ranks
}

/// The probability that a standard normal variable is at most `z`.
pub(crate) fn normal_below(z: f64) -> f64 {
    0.5 * libm::erfc(-z / std::f64::consts::SQRT_2)
}

pub(crate) fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

/// The median of a non-empty sorted slice.
pub(crate) fn median_of_sorted(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_summary_has_only_what_the_runs_give() {
        assert_eq!(Summary::of(&[]), None);
        let one = Summary::of(&[4.0]).unwrap();
        assert_eq!((one.n, one.mean, one.median, one.stddev, one.cv), (1, 4.0, 4.0, None, None));
        let four = Summary::of(&[5.0, 2.0, 3.0, 6.0]).unwrap();
        assert_eq!((four.n, four.mean, four.median, four.min, four.max), (4, 4.0, 4.0, 2.0, 6.0));
        assert_eq!(four.stddev, Some((10.0f64 / 3.0).sqrt()));
        assert_eq!(four.cv, Some((10.0f64 / 3.0).sqrt() / 4.0));
        assert_eq!(Summary::of(&[0.0, 0.0]).unwrap().cv, None);
    }

    #[test]
    fn two_groups_are_told_from_one_with_strays() {
        type Groups = Option<(usize, usize)>;
        let cases: [(&str, &[f64], Groups); 9] = [
            ("one core or two", &[5.0, 9.1, 5.1, 9.0, 5.05, 9.15, 5.02, 9.07, 5.08, 9.02], Some((5, 5))),
            ("three of ten", &[5.0, 5.1, 5.05, 9.0, 9.1, 9.05, 9.2, 9.15, 9.12, 9.02], Some((3, 7))),
            ("even spread", &[1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9], None),
            ("one stray", &[9.0, 9.1, 9.05, 9.02, 9.07, 9.15, 9.11, 9.03, 9.08, 2.0], None),
            (
                "groups too close to matter",
                &[1.0, 1.0001, 1.0002, 1.0003, 1.01, 1.0101, 1.0102, 1.0103],
                None,
            ),
            ("small counts", &[0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0], None),
            ("no spread", &[3.0; 8], None),
            ("too few", &[1.0, 1.001, 9.0], None),
            ("none", &[], None),
        ];
        for (what, runs, groups) in cases {
            assert_eq!(two_modes(runs).map(|modes| (modes.n_low, modes.n_high)), groups, "{what}");
        }
    }

    #[test]
    fn a_drift_is_told_with_its_size() {
        let rising: Vec<f64> = (0..11).map(|i| 100.0 + f64::from(i)).collect();
        let size = |runs: &[f64]| match drift(runs) {
            Some(Drift::By(share)) => share,
            other => panic!("{other:?}"),
        };
        assert!((size(&rising) - 0.1).abs() < 1e-3, "{}", size(&rising));
        let falling: Vec<f64> = rising.iter().rev().copied().collect();
        assert!(((1.0 + size(&falling)) * (1.0 + size(&rising)) - 1.0).abs() < 1e-12, "there and back again");

        let mut stray = rising;
        stray[5] = 1e6;
        assert!((size(&stray) - 0.1).abs() < 0.02, "one wild run does not make the slope");

        let step = |runs: usize| -> Vec<f64> {
            let waver = |i: usize| 1e-3 * [0.0, 2.0, 1.0][i % 3];
            (0..runs).map(|i| if i * 2 < runs { 10.0 } else { 7.0 } + waver(i)).collect()
        };
        assert!(drift(&step(14)).is_some());
        let slight: Vec<f64> = (0..40).map(|i| 100.0 + f64::from(i) / 100.0).collect();
        assert_eq!(drift(&slight), None, "0.4 % misleads nobody");
        for still in [&[][..], &[1.0], &[1.0, 2.0], &[2.0; 30], &[1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0]] {
            assert_eq!(drift(still), None, "{still:?}");
        }
    }

    #[test]
    fn nothing_falls_by_more_than_all_of_it() {
        // A line through these falls by 134 % of their median.
        let fading: Vec<f64> = (0..12).map(|i| 10.0 * (-0.18 * f64::from(i)).exp()).collect();
        let Some(Drift::By(share)) = drift(&fading) else { panic!("it fades") };
        assert!((share + 0.862).abs() < 1e-3, "{share}");
        assert_eq!(drift(&fading).unwrap().to_string(), "fell by 86.2 %");

        let counts: Vec<f64> = (0..12).map(|i| f64::from(12 - i) - 3.0).map(|left| left.max(0.0)).collect();
        assert_eq!(drift(&counts).map(|moved| moved.to_string()).as_deref(), Some("fell"));
        let grown: Vec<f64> = counts.iter().rev().copied().collect();
        assert_eq!(drift(&grown), Some(Drift::Up));
    }

    #[test]
    fn only_positive_dependence_is_reported() {
        let wave: Vec<f64> = (0..24).map(|i| (f64::from(i) / 4.0).sin()).collect();
        assert!(autocorrelation(&wave).unwrap() > 0.8);
        let alternating: Vec<f64> = (0..24).map(|i| f64::from(i % 2)).collect();
        for silent in [&alternating[..], &[], &[1.0], &[1.0, 2.0], &[0.1; 9]] {
            assert_eq!(autocorrelation(silent), None, "{silent:?}");
        }
    }

    #[test]
    fn the_median_lies_between_runs_as_often_as_said() {
        // Tables of the sign test: Conover, Practical Nonparametric Statistics, 1999, A3.
        let runs = |n: u32| (1..=n).map(f64::from).collect::<Vec<_>>();
        for n in 0..6 {
            assert_eq!(median_interval(&runs(n), 0.95), None, "{n} runs cannot say so much");
        }
        for (n, low, high, reached) in
            [(6, 1.0, 6.0, 0.96875), (9, 2.0, 8.0, 0.9609), (15, 4.0, 12.0, 0.9648), (25, 8.0, 18.0, 0.9567)]
        {
            let interval = median_interval(&runs(n), 0.95).unwrap();
            assert_eq!((interval.low, interval.high), (low, high), "{n}");
            assert!((interval.median - f64::midpoint(f64::from(n), 1.0)).abs() < 1e-12);
            assert!((interval.confidence - reached).abs() < 1e-4, "{n}: {}", interval.confidence);
        }
        let many = median_interval(&runs(10_000), 0.95).unwrap();
        assert!((many.low - 4902.0).abs() <= 1.0 && (many.confidence - 0.95).abs() < 0.002, "{many:?}");
        assert!(median_interval(&runs(9), 0.95).unwrap().is_apart_from(
            &median_interval(&runs(9).iter().map(|run| run + 7.0).collect::<Vec<_>>(), 0.95).unwrap()
        ));
        assert!(!median_interval(&runs(9), 0.95).unwrap().is_apart_from(
            &median_interval(&runs(9).iter().map(|run| run + 6.0).collect::<Vec<_>>(), 0.95).unwrap()
        ));
    }

    #[test]
    fn two_orders_agree_from_wholly_to_not_at_all() {
        let close = |found: Option<f64>, wanted: f64| (found.unwrap() - wanted).abs() < 1e-12;
        let order = [1.0, 2.0, 3.0, 4.0, 5.0];
        assert!(close(spearman(&order, &order.map(f64::exp)), 1.0), "only the order counts");
        assert!(close(spearman(&order, &order.map(|value| -value)), -1.0));
        assert!(close(spearman(&order, &[2.0, 1.0, 4.0, 3.0, 5.0]), 0.8));
        // Ranks 1.5 1.5 3 4 against 1 2 3 4: 4.5 / sqrt(4.5 × 5).
        assert!(close(spearman(&[7.0, 7.0, 8.0, 9.0], &[1.0, 2.0, 3.0, 4.0]), 4.5 / 22.5f64.sqrt()));
        for (first, second) in
            [(&[][..], &[][..]), (&[1.0], &[1.0]), (&[2.0, 2.0], &[1.0, 3.0]), (&[1.0], &[1.0, 2.0])]
        {
            assert_eq!(spearman(first, second), None, "{first:?} {second:?}");
        }
    }

    #[test]
    fn the_normal_distribution_has_its_table_values() {
        for (z, below) in [(0.0, 0.5), (-1.959_963_984_540_054, 0.025), (1.644_853_626_951_472, 0.95)] {
            assert!((normal_below(z) - below).abs() < 1e-14, "{z}");
        }
    }

    proptest! {
        #[test]
        fn scale_changes_no_answer_but_the_sizes(
            runs in proptest::collection::vec(1.0f64..2.0, 0..40), exponent in -20i32..20,
        ) {
            // A power of two scales floats exactly.
            let scale = 2f64.powi(exponent);
            let scaled: Vec<f64> = runs.iter().map(|run| run * scale).collect();
            prop_assert_eq!(Summary::of(&scaled).and_then(|s| s.cv), Summary::of(&runs).and_then(|s| s.cv));
            prop_assert_eq!(drift(&scaled), drift(&runs));
            prop_assert_eq!(autocorrelation(&scaled), autocorrelation(&runs));
            let groups = |runs: &[f64]| two_modes(runs).map(|modes| (modes.n_low, modes.n_high));
            prop_assert_eq!(groups(&scaled), groups(&runs));
        }

        #[test]
        fn a_median_lies_within_its_interval_and_that_within_the_runs(
            runs in proptest::collection::vec(-1e9f64..1e9, 0..60), confidence in 0.5f64..1.0,
        ) {
            if let Some(found) = median_interval(&runs, confidence) {
                let summary = Summary::of(&runs).unwrap();
                prop_assert!((found.median - summary.median).abs() <= 0.0);
                prop_assert!(summary.min <= found.low && found.low <= found.median);
                prop_assert!(found.median <= found.high && found.high <= summary.max);
                prop_assert!(found.confidence >= confidence && found.confidence < 1.0);
            }
        }

        #[test]
        fn rank_correlation_is_symmetric_and_bounded(
            pairs in proptest::collection::vec((-5i32..5, -5i32..5), 0..30),
        ) {
            let (first, second): (Vec<f64>, Vec<f64>) =
                pairs.into_iter().map(|(a, b)| (f64::from(a), f64::from(b))).unzip();
            let there = spearman(&first, &second);
            prop_assert_eq!(there, spearman(&second, &first));
            prop_assert!(there.is_none_or(|rho| (-1.0..=1.0).contains(&rho)));
        }

        #[test]
        fn a_summary_lies_within_its_runs(runs in proptest::collection::vec(-1e9f64..1e9, 1..40)) {
            let summary = Summary::of(&runs).unwrap();
            prop_assert!(summary.min <= summary.median && summary.median <= summary.max);
            prop_assert!(summary.min <= summary.mean && summary.mean <= summary.max);
        }
    }
}
