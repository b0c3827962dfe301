//! What a part of a path costs in each of some runs, and how that changes: symbols and classes of a profile.
//!
//! A cost is CPU time, or cycles, for each unit of work, which adds up over the parts; a share does not say whether a part
//! became dearer, only whether it grew against the others. A part may be absent from a run (its cost is 0 there), so the
//! effect of a pair is the *difference*, not the log ratio of [`Decide`](super::Decide).
//!
//! ```text
//! cost      mean of the runs, interval of the signed-rank test turned round             (signed_rank)
//! change    Hodges–Lehmann estimate and interval of the paired differences
//! p         of no change at all; Holm over all parts of one table                       (family)
//! ```
//!
//! No minimum effect is asked for: how much a function may cost is a question of the path, not of the function.

use serde::{Deserialize, Serialize};

use super::Verdict;
use super::signed_rank::SignedRank;

/// The cost of one part of a path over some runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Mean of the runs.
    pub mean: f64,
    /// Where the cost of all such runs lies; `None` where there are too few.
    pub interval: Option<[f64; 2]>,
    /// Runs it was taken from.
    pub runs: usize,
}

impl Cost {
    /// The cost of a part that came to so much in each run; `None` of no runs.
    #[must_use]
    pub fn of(runs: &[f64], confidence: f64) -> Option<Self> {
        let interval = SignedRank::new(runs)?.interval(1.0 - confidence);
        let mean = mean_of(runs.iter().copied());
        // Of a skewed set the mean can lie beyond the interval of the middle: then both are true, and it is widened.
        let interval = interval.map(|[low, high]| [low.min(mean), high.max(mean)]);
        Some(Self { mean, interval, runs: runs.len() })
    }
}

/// How the cost of one part differs between two arms.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CostChange {
    /// Mean of the base's runs.
    pub base: f64,
    /// Mean of the arm's.
    pub arm: f64,
    /// The change of a pair, estimated.
    pub change: f64,
    /// Its interval; `None` where there are too few pairs.
    pub interval: Option<[f64; 2]>,
    /// The chance of differences like these if there were none.
    pub p_value: Option<f64>,
    /// Better where it is cheaper, worse where it is dearer, undecided where the interval holds no change. Of this part alone.
    pub verdict: Verdict,
    /// The same as one of all parts looked at ([`correct_costs`]).
    pub verdict_corrected: Verdict,
}

impl CostChange {
    /// The change over `(base, arm)` of each pair; `None` of no pairs.
    #[must_use]
    pub fn of(pairs: &[(f64, f64)], confidence: f64) -> Option<Self> {
        // Of two sums of nothing −0 and 0 differ by a sign only.
        let differences: Vec<f64> = pairs.iter().map(|(base, arm)| arm - base + 0.0).collect();
        let ranks = SignedRank::new(&differences)?;
        let interval = ranks.interval(1.0 - confidence);
        let verdict = match interval {
            Some([low, _]) if low > 0.0 => Verdict::Worse,
            Some([_, high]) if high < 0.0 => Verdict::Better,
            _ => Verdict::Undecided,
        };
        Some(Self {
            base: mean_of(pairs.iter().map(|(base, _)| *base)),
            arm: mean_of(pairs.iter().map(|(_, arm)| *arm)),
            change: ranks.estimate() + 0.0,
            interval,
            p_value: interval.map(|_| (2.0 * ranks.p_above(0.0).min(ranks.p_below(0.0))).min(1.0)),
            verdict,
            verdict_corrected: verdict,
        })
    }
}

/// The mean; a sum of nothing is −0, which becomes 0.
fn mean_of(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len() as f64;
    values.sum::<f64>() / n + 0.0
}

/// Corrects the verdicts of all parts of one table for their number (Holm 1979).
pub fn correct_costs<'a>(changes: impl IntoIterator<Item = &'a mut CostChange>, confidence: f64) {
    let mut family: Vec<&mut CostChange> = changes.into_iter().collect();
    family.sort_by(|a, b| a.p_value.unwrap_or(1.0).total_cmp(&b.p_value.unwrap_or(1.0)));
    let (size, mut standing) = (family.len(), true);
    for (rank, change) in family.into_iter().enumerate() {
        let alpha = (1.0 - confidence) / (size - rank) as f64;
        standing &= change.p_value.is_some_and(|p| p <= alpha);
        change.verdict_corrected = if standing { change.verdict } else { Verdict::Undecided };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_has_an_interval_from_six_runs_on_and_holds_its_mean() {
        assert_eq!(Cost::of(&[], 0.95), None);
        let five = Cost::of(&[10.0, 11.0, 12.0, 13.0, 14.0], 0.95).expect("runs");
        assert_eq!((five.mean, five.interval, five.runs), (12.0, None, 5));
        let six = Cost::of(&[10.0, 11.0, 12.0, 13.0, 14.0, 15.0], 0.95).expect("runs");
        assert_eq!((six.mean, six.interval), (12.5, Some([10.0, 15.0])));
        let mut skewed = vec![1.0; 30];
        skewed.push(1_000.0);
        let skewed = Cost::of(&skewed, 0.95).expect("runs");
        assert!(skewed.interval.is_some_and(|[low, high]| low <= skewed.mean && skewed.mean <= high));
    }

    #[test]
    fn a_part_that_is_cheaper_in_every_pair_is_and_its_mirror_is_dearer() {
        let pairs: Vec<(f64, f64)> =
            (0..8).map(|i| (50.0 + f64::from(i), 40.0 + f64::from(i) * 0.9)).collect();
        let change = CostChange::of(&pairs, 0.95).expect("pairs");
        assert_eq!(change.verdict, Verdict::Better);
        assert!(change.interval.is_some_and(|[_, high]| high < 0.0) && change.change < -9.0, "{change:?}");
        let mirrored: Vec<(f64, f64)> = pairs.iter().map(|&(base, arm)| (arm, base)).collect();
        let mirrored = CostChange::of(&mirrored, 0.95).expect("pairs");
        assert_eq!((mirrored.verdict, mirrored.change), (Verdict::Worse, -change.change));
        assert_eq!(mirrored.p_value, change.p_value);
    }

    #[test]
    fn a_part_that_only_one_arm_has_is_compared_too() {
        let pairs: Vec<(f64, f64)> = (0..6).map(|i| (0.0, 3.0 + f64::from(i) / 10.0)).collect();
        let change = CostChange::of(&pairs, 0.95).expect("pairs");
        assert_eq!((change.base, change.verdict), (0.0, Verdict::Worse));
    }

    #[test]
    fn few_pairs_and_mixed_ones_decide_nothing() {
        let few = CostChange::of(&[(5.0, 1.0); 5], 0.95).expect("pairs");
        assert_eq!((few.interval, few.p_value, few.verdict), (None, None, Verdict::Undecided));
        let mixed: Vec<(f64, f64)> = (0..10).map(|i| (5.0, 5.0 + f64::from(i) - 4.5)).collect();
        assert_eq!(CostChange::of(&mixed, 0.95).expect("pairs").verdict, Verdict::Undecided);
    }

    #[test]
    fn among_many_parts_only_what_is_clear_enough_stands() {
        let clear: Vec<(f64, f64)> = (0..12).map(|i| (10.0 + f64::from(i), 5.0)).collect();
        let faint: Vec<(f64, f64)> = (0..6).map(|i| (10.0 + f64::from(i), 5.0)).collect();
        let mut family: Vec<CostChange> =
            [&clear, &faint, &faint].map(|pairs| CostChange::of(pairs, 0.95).expect("pairs")).to_vec();
        correct_costs(&mut family, 0.95);
        let corrected: Vec<Verdict> = family.iter().map(|change| change.verdict_corrected).collect();
        assert_eq!(corrected, [Verdict::Better, Verdict::Undecided, Verdict::Undecided]);
        assert!(family.iter().all(|change| change.verdict == Verdict::Better));
    }
}
