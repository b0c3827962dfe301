//! From the paired runs of two arms to an estimate, an interval and one of four verdicts.
//!
//! ```text
//! effect of a pair   ln(arm / base); with a zero anywhere, (arm − base) / mean of base
//! estimate, interval Hodges–Lehmann and signed-rank, over the effects           (signed_rank)
//! better, worse      the whole interval lies beyond the minimum effect, and both halves of the experiment agree
//! equivalent         the whole interval lies within ± the minimum effect
//! undecided          anything else, with the reason; also where a gate is shut: too few pairs, too many failures, too
//!                    wide a spread
//! many comparisons   Holm's step-down over the family                           (family)
//! ```
//!
//! `docs/method.md` gives the reasons and the sources; `tests/simulation.rs` holds the error rates to their promise.
//! Nothing here stops an experiment early: the number of pairs is decided before the first one.

mod cost;
mod family;
mod signed_rank;
mod verdict;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::estimate::{self, Drift, Summary};
use crate::reading::{Better, Cell, Metric, Scope};
use crate::{Doubt, DoubtId};

pub use cost::{Cost, CostChange, correct_costs};
pub use family::{correct, correct_as_planned};
use signed_rank::SignedRank;
use verdict::Effects;

/// What one arm is, seen from the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Better than the base by more than the minimum effect.
    Better,
    /// Worse than the base by more than the minimum effect.
    Worse,
    /// Not different from the base by as much as the minimum effect.
    Equivalent,
    /// The runs do not tell.
    Undecided,
}

/// The rules of a decision, stated before the experiment. All are fractions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Decide {
    /// The smallest change that matters.
    pub min_effect: f64,
    /// The confidence of the interval.
    pub confidence: f64,
    /// The coefficient of variation of an arm above which no verdict is given.
    pub max_spread: f64,
    /// The share of failed runs of an arm above which no verdict is given.
    pub max_failed: f64,
}

impl Default for Decide {
    fn default() -> Self {
        Self { min_effect: 0.01, confidence: 0.95, max_spread: 0.30, max_failed: 0.10 }
    }
}

/// The runs of two arms, paired.
#[derive(Debug, Clone, Copy)]
pub struct Pairs<'a> {
    /// What was measured.
    pub metric: Metric,
    /// Whose it is.
    pub scope: Scope,
    /// The point of the sweep.
    pub cell: &'a Cell,
    /// The baseline, by name.
    pub base: &'a str,
    /// The arm compared with it, by name.
    pub arm: &'a str,
    /// `(base, arm)` of each pair in which both runs gave a value, in the order measured. One value is one *run*: the
    /// intervals of one run share a connection and a placement, and are not independent.
    pub values: &'a [(f64, f64)],
    /// Runs of the baseline that failed.
    pub base_failed: usize,
    /// Runs of the arm that failed.
    pub arm_failed: usize,
}

/// One side of a comparison: only pairs that count, hence the same `n` on both sides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArmSummary {
    /// Its name.
    pub arm: String,
    /// Mean of the runs.
    pub mean: Option<f64>,
    /// Sample standard deviation of the runs: their spread, not the uncertainty of anything.
    pub stddev: Option<f64>,
    /// Runs in the statistics.
    pub n: usize,
    /// Runs that failed.
    pub failed: usize,
}

/// One metric of two arms in one cell, compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// What was measured.
    pub metric: Metric,
    /// Whose it is.
    pub scope: Scope,
    /// The metric's unit, for those who read the document alone.
    pub unit: Cow<'static, str>,
    /// The point of the sweep.
    pub cell: Cell,
    /// The baseline.
    pub base: ArmSummary,
    /// The arm compared with it.
    pub arm: ArmSummary,
    /// The estimated change from base to arm. Not the ratio of the two means: it is paired and robust.
    pub change_pct: Option<f64>,
    /// The interval of that estimate.
    pub interval_pct: Option<[f64; 2]>,
    /// The confidence of the interval and of the verdict.
    pub confidence: f64,
    /// The smallest change that matters.
    pub min_effect_pct: f64,
    /// The smallest 1 − confidence at which the verdict stands; `None` where none could be given.
    pub p_value: Option<f64>,
    /// The verdict on this comparison alone; `None` for a metric without a better direction.
    pub verdict: Option<Verdict>,
    /// The verdict as one of a family ([`correct`]); of a family of one until then.
    pub verdict_corrected: Option<Verdict>,
    /// Why the verdict is undecided, or did not survive the correction, or why there is no percentage.
    pub reason: Option<String>,
    /// What else speaks against these numbers.
    pub doubts: Vec<Doubt>,
}

/// The fewest pairs that can decide anything at `confidence`: when all agree, the signs alone have probability
/// 2 × 2⁻ⁿ.
#[must_use]
pub fn min_pairs(confidence: f64) -> usize {
    pairs_for(1.0 - confidence)
}

fn pairs_for(alpha: f64) -> usize {
    // The floor ends the loop, at 1023 pairs, also for a confidence that is none.
    let alpha = alpha.max(f64::MIN_POSITIVE);
    std::iter::successors(Some(1.0), |p| Some(p / 2.0)).take_while(|p| *p > alpha).count() + 1
}

/// The runs of one arm that are in pairs, and how many are not.
struct Side<'a> {
    name: &'a str,
    values: Vec<f64>,
    summary: Option<Summary>,
    failed: usize,
}

impl<'a> Side<'a> {
    fn new(name: &'a str, values: Vec<f64>, failed: usize) -> Self {
        Self { name, summary: Summary::of(&values), values, failed }
    }

    fn attempted(&self) -> usize {
        self.values.len() + self.failed
    }

    fn failed_beyond(&self, share: f64) -> bool {
        self.failed as f64 > share * self.attempted() as f64
    }

    fn cv(&self) -> Option<f64> {
        self.summary?.cv
    }

    fn into_summary(self) -> ArmSummary {
        ArmSummary {
            arm: self.name.to_owned(),
            mean: self.summary.map(|summary| summary.mean),
            stddev: self.summary.and_then(|summary| summary.stddev),
            n: self.values.len(),
            failed: self.failed,
        }
    }
}

impl Decide {
    /// Compares the arm with the base. A pair that holds a value that is not finite counts as failed on both sides.
    #[must_use]
    pub fn compare(&self, pairs: &Pairs<'_>) -> Comparison {
        self.compare_among(pairs, 1)
    }

    /// The same for one of a family of so many comparisons ([`correct_as_planned`]): how many pairs would decide is said
    /// for the family, because only what stands in it counts.
    #[must_use]
    pub fn compare_among(&self, pairs: &Pairs<'_>, family: usize) -> Comparison {
        let (usable, lost): (Vec<_>, Vec<_>) =
            pairs.values.iter().partition(|(base, arm)| base.is_finite() && arm.is_finite());
        let (base, arm) = usable.iter().copied().unzip();
        let sides = [
            Side::new(pairs.base, base, pairs.base_failed + lost.len()),
            Side::new(pairs.arm, arm, pairs.arm_failed + lost.len()),
        ];
        let effects = Effects::of(&usable);
        let ranks = SignedRank::new(effects.values());
        let ranked = ranks.as_ref().and_then(|ranks| Some((ranks, ranks.interval(1.0 - self.confidence)?)));
        let interval = ranked.map(|(_, interval)| interval);

        let facts = pairs.metric.facts();
        let judged = facts.better != Better::Neither;
        let finding = judged.then(|| self.judge(facts.better, &sides, &effects, ranked, family.max(1)));
        let verdict = finding.as_ref().map(|finding| finding.verdict);
        let p_value = finding.as_ref().and_then(|finding| finding.p_value);
        let no_percentage = || "a count that is often 0 has no percentage".to_owned();
        let reason = finding.and_then(|finding| finding.reason);
        let reason = reason.or_else(|| effects.pct(0.0).is_none().then(no_percentage));
        let doubts = self.doubts(pairs.metric, &sides, &effects);
        let [base, arm] = sides.map(Side::into_summary);
        Comparison {
            metric: pairs.metric,
            scope: pairs.scope,
            unit: Cow::Borrowed(facts.unit),
            cell: pairs.cell.clone(),
            base,
            arm,
            change_pct: ranks.as_ref().and_then(|ranks| effects.pct(ranks.estimate())),
            interval_pct: interval.and_then(|[low, high]| Some([effects.pct(low)?, effects.pct(high)?])),
            confidence: self.confidence,
            min_effect_pct: self.min_effect * 100.0,
            p_value,
            verdict,
            verdict_corrected: verdict,
            reason,
            doubts,
        }
    }

    fn doubts(&self, metric: Metric, sides: &[Side<'_>; 2], effects: &Effects) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        let mut doubt = |id, text| doubts.push(Doubt::new(id, text));
        for side in sides {
            let (name, failed) = (side.name, side.failed);
            if failed > 0 {
                doubt(DoubtId::FailedRuns, format!("{failed} of {} runs of {name} failed", side.attempted()));
            }
            if let Some(cv) = side.cv().filter(|cv| *cv > self.max_spread && effects.is_ratio()) {
                let share = cv * 100.0;
                doubt(
                    DoubtId::Spread,
                    format!("the standard deviation of the {metric} of {name} is {share:.1} % of its mean"),
                );
            }
            if let Some(modes) = estimate::two_modes(&side.values) {
                let (n_low, n_high, apart) =
                    (modes.n_low, modes.n_high, (1.0 - modes.low / modes.high) * 100.0);
                let text = format!(
                    "{name} has two groups of runs: {n_low} are about {apart:.0} % below the other {n_high}"
                );
                doubt(DoubtId::TwoModes, text);
            }
        }
        if let Some(drift) = drift_of_both(sides) {
            doubt(
                DoubtId::Drift,
                format!("the {metric} of both arms {drift} from the first run to the last"),
            );
        }
        if let Some(r) = estimate::autocorrelation(effects.values()) {
            doubt(
                DoubtId::Dependence,
                format!("the changes of successive pairs have a correlation of {r:+.2}"),
            );
        }
        doubts
    }
}

/// The drift of all runs, each relative to its arm: twice as many runs show more than those of one arm.
fn drift_of_both(sides: &[Side<'_>; 2]) -> Option<Drift> {
    let median = |side: &Side<'_>| side.summary.map(|summary| summary.median).filter(|median| *median != 0.0);
    let [base, arm] = sides;
    let (base_median, arm_median) = (median(base)?, median(arm)?);
    let runs = base.values.iter().zip(&arm.values).flat_map(|(b, a)| [b / base_median, a / arm_median]);
    estimate::drift(&runs.collect::<Vec<_>>())
}
