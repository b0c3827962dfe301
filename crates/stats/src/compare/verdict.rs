//! The step from effects to a verdict: what an effect is, which gates must be open, and what to say when nothing can
//! be concluded.
//!
//! The verdict is the claim with the smallest p-value, where that is within 1 − confidence. Because test and interval
//! are dual (see `signed_rank`), this is the rule about the whole interval, and gives the family correction a number to
//! work with.

use super::signed_rank::SignedRank;
use super::{Better, Decide, Side, Verdict, pairs_for};

/// ((z₀.₉₇₅ + z₀.₈) / z₀.₉₇₅)²: pairs for an interval that decides in four of five repetitions, relative to pairs for
/// one whose expected end just reaches the bound.
const PAIRS_FOR_POWER: f64 = 2.04;

/// The most pairs worth suggesting: a week of pairs of 10 s runs.
const MOST_PAIRS: f64 = 30_000.0;

/// The effect of each pair, on the scale it is tested on.
pub(super) struct Effects {
    values: Vec<f64>,
    scale: Scale,
}

#[derive(Clone, Copy, PartialEq)]
enum Scale {
    LogRatio,
    /// A zero somewhere: differences, as shares of the mean of the base.
    ShareOfBase,
    /// The base is 0 throughout: differences have a direction but no relative size.
    Absolute,
}

impl Effects {
    pub(super) fn of(pairs: &[(f64, f64)]) -> Self {
        if pairs.iter().all(|(base, arm)| *base > 0.0 && *arm > 0.0) {
            let values = pairs.iter().map(|(base, arm)| (arm / base).ln()).collect();
            return Self { values, scale: Scale::LogRatio };
        }
        let base_mean = pairs.iter().map(|(base, _)| base).sum::<f64>().abs() / pairs.len() as f64;
        let (unit, scale) = if base_mean != 0.0 {
            (base_mean, Scale::ShareOfBase)
        } else if pairs.iter().all(|(base, arm)| arm - base == 0.0) {
            (1.0, Scale::ShareOfBase)
        } else {
            (1.0, Scale::Absolute)
        };
        Self { values: pairs.iter().map(|(base, arm)| (arm - base) / unit).collect(), scale }
    }

    pub(super) fn values(&self) -> &[f64] {
        &self.values
    }

    /// Whether every value is positive, so that changes are ratios.
    pub(super) fn is_ratio(&self) -> bool {
        self.scale == Scale::LogRatio
    }

    /// `effect` in percent of the base; `None` where that is no size. A change of a count that is often 0, as shares of
    /// its mean, has ends like -140 %: only no change at all is a percentage there.
    pub(super) fn pct(&self, effect: f64) -> Option<f64> {
        match self.scale {
            Scale::LogRatio => Some(effect.exp_m1() * 100.0),
            Scale::ShareOfBase => self.values.iter().all(|value| *value == 0.0).then_some(0.0),
            Scale::Absolute => None,
        }
    }

    /// Whether the spread of an arm speaks against a verdict. A count that is often 0 spreads by its nature; and where
    /// even the nearer end of the interval is a larger change than the spread, no spread explains it.
    pub(super) fn spread_matters(&self, cv: f64, interval: [f64; 2]) -> bool {
        let [low, high] = interval;
        let nearer = if low * high > 0.0 { low.abs().min(high.abs()).copysign(low) } else { 0.0 };
        self.scale == Scale::LogRatio && nearer.exp_m1().abs() <= cv
    }

    /// The changes down and up from which on they matter.
    fn bounds(&self, min_effect: f64) -> [f64; 2] {
        match self.scale {
            Scale::LogRatio => [(1.0 - min_effect).max(0.0).ln(), min_effect.ln_1p()],
            Scale::ShareOfBase => [-min_effect, min_effect],
            Scale::Absolute => [0.0, 0.0],
        }
    }

    /// The estimates from the first and from the second half of the experiment alone.
    fn halves(&self) -> Option<[f64; 2]> {
        let (first, second) = self.values.split_at(self.values.len() / 2);
        Some([SignedRank::new(first)?.estimate(), SignedRank::new(second)?.estimate()])
    }
}

/// A verdict, the smallest 1 − confidence at which it stands, and why it is not another.
pub(super) struct Finding {
    pub(super) verdict: Verdict,
    pub(super) p_value: Option<f64>,
    pub(super) reason: Option<String>,
}

impl Finding {
    fn decided(verdict: Verdict, p_value: f64) -> Self {
        Self { verdict, p_value: Some(p_value), reason: None }
    }

    fn undecided(p_value: Option<f64>, reason: String) -> Self {
        Self { verdict: Verdict::Undecided, p_value, reason: Some(reason) }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Claim {
    Up,
    Down,
    Same,
}

impl Decide {
    /// The verdict on `effects`, one of `family`; `ranked` is `None` where they are too few for an interval.
    pub(super) fn judge(
        &self,
        better: Better,
        sides: &[Side<'_>; 2],
        effects: &Effects,
        ranked: Option<(&SignedRank, [f64; 2])>,
        family: usize,
    ) -> Finding {
        let needed = pairs_for((1.0 - self.confidence) / family as f64);
        let withheld = |reason| Finding::undecided(None, reason);
        if let Some(side) = sides.iter().find(|side| side.failed_beyond(self.max_failed)) {
            let (failed, attempted, limit) = (side.failed, side.attempted(), percent(self.max_failed));
            return withheld(format!(
                "withheld: {failed} of {attempted} runs of {} failed, more than {limit}",
                side.name
            ));
        }
        let Some((ranks, interval)) = ranked else {
            let (n, confidence) = (effects.values.len(), percent(self.confidence));
            let what = if family > 1 { format!(" {family} comparisons") } else { String::new() };
            return withheld(format!(
                "n = {n} cannot decide{what} at {confidence}: at least {needed} pairs are needed"
            ));
        };
        for side in sides {
            let matters = |cv: &f64| *cv > self.max_spread && effects.spread_matters(*cv, interval);
            if let Some(cv) = side.cv().filter(matters) {
                let (name, limit) = (side.name, percent(self.max_spread));
                return withheld(format!(
                    "the spread of {name} is {:.1} % of its mean, more than {limit}",
                    cv * 100.0
                ));
            }
        }

        let [down, up] = effects.bounds(self.min_effect);
        let (above, below) = (ranks.p_above(up), ranks.p_below(down));
        let same = ranks.p_above(down).max(ranks.p_below(up));
        let difference = if above < below { (Claim::Up, above) } else { (Claim::Down, below) };
        let (claim, one_sided) = if same < difference.1 { (Claim::Same, same) } else { difference };
        let p_value = (2.0 * one_sided).min(1.0);
        if p_value > 1.0 - self.confidence {
            let open = self.what_is_open(effects, ranks.estimate(), interval, needed);
            return Finding::undecided(Some(p_value), open);
        }
        if claim == Claim::Same {
            return Finding::decided(Verdict::Equivalent, p_value);
        }
        let sign = if claim == Claim::Up { 1.0 } else { -1.0 };
        if let Some(halves) = effects.halves().filter(|halves| halves.iter().any(|half| half * sign <= 0.0)) {
            let [first, second] =
                halves.map(|half| effects.pct(half).map_or("?".into(), |pct| format!("{pct:+.2} %")));
            return withheld(format!(
                "the halves of the experiment disagree: {first} in the first, {second} in the second"
            ));
        }
        let improved = (claim == Claim::Up) == (better == Better::Higher);
        Finding::decided(if improved { Verdict::Better } else { Verdict::Worse }, p_value)
    }

    /// Says what the interval leaves open, and how many pairs would close it if the estimate holds: the half-width
    /// shrinks as 1/√n. Fewer than `needed` decide nothing.
    fn what_is_open(&self, effects: &Effects, estimate: f64, [low, high]: [f64; 2], needed: usize) -> String {
        let (Some(low_pct), Some(high_pct)) = (effects.pct(low), effects.pct(high)) else {
            return "the interval of the differences contains no change, and of counts that are often 0 there is no \
                    percentage"
                .to_owned();
        };
        let [down, up] = effects.bounds(self.min_effect);
        let (half_width, distance) = if estimate > up {
            (estimate - low, estimate - up)
        } else if estimate < down {
            (high - estimate, down - estimate)
        } else {
            ((high - estimate).max(estimate - low), (up - estimate).min(estimate - down))
        };
        let pairs = (effects.values.len() as f64 * PAIRS_FOR_POWER * (half_width / distance).powi(2)).ceil();
        let pairs = pairs.max(needed as f64);
        let outlook = if pairs <= MOST_PAIRS {
            format!("about {pairs:.0} pairs would decide if the estimate holds")
        } else {
            "the estimate is too close to the minimum effect for more pairs to decide".to_owned()
        };
        let bound = percent(self.min_effect);
        format!(
            "the interval {low_pct:+.2} % to {high_pct:+.2} % is neither beyond nor within ±{bound}; {outlook}"
        )
    }
}

/// A fraction as a percentage, without the digits that floating point adds.
fn percent(fraction: f64) -> String {
    format!("{} %", (fraction * 1e6).round() / 1e4)
}
