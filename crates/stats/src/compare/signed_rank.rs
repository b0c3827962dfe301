//! The one-sample signed-rank test and what follows from it: estimate, interval and tail probabilities.
//!
//! For n independent effects, each distributed symmetrically about θ, let W be the n(n+1)/2 *Walsh averages*
//! (xᵢ + xⱼ)/2, i ≤ j. Then
//!
//! ```text
//! T(θ) = #{W > θ}     is Wilcoxon's rank sum of the effects above θ (Tukey 1949)
//! median W            estimates θ (Hodges & Lehmann 1963)
//! [W(k+1), W(N−k)]    covers θ unless T ≤ k at either end: confidence 1 − 2 P(T ≤ k)
//! ```
//!
//! and T has, at the true θ, the distribution of the sum of a random subset of 1…n, whatever the effects' own. It is
//! counted exactly up to [`EXACT`] effects. Test and interval are two readings of the same sorted list, so they cannot
//! contradict each other. Ties and repeated values only widen the closed interval (Noether 1967).

use crate::estimate::{median_of_sorted, normal_below, sorted};

/// The largest n whose 2ⁿ subsets are counted exactly in 64 bits. Beyond it the normal approximation errs to the safe
/// side: it says 0.0249 for 0.0247, and 0.0014 for 0.0012.
const EXACT: usize = 63;

/// A set of effects, ready to be asked about.
pub(super) struct SignedRank {
    walsh: Vec<f64>,
    null: Null,
}

impl SignedRank {
    /// `None` of no effects.
    pub(super) fn new(effects: &[f64]) -> Option<Self> {
        let pairs =
            effects.iter().enumerate().flat_map(|(i, x)| effects[i..].iter().map(|y| f64::midpoint(*x, *y)));
        let walsh = sorted(&pairs.collect::<Vec<_>>());
        (!walsh.is_empty()).then(|| Self { walsh, null: Null::new(effects.len()) })
    }

    /// The Hodges–Lehmann estimate.
    pub(super) fn estimate(&self) -> f64 {
        median_of_sorted(&self.walsh)
    }

    /// The narrowest interval that misses the true effect with probability `alpha` at most, half of it on either
    /// side; `None` where there are too few effects for any.
    pub(super) fn interval(&self, alpha: f64) -> Option<[f64; 2]> {
        let outside = self.null.at_most(alpha / 2.0)?;
        Some([self.walsh[outside], self.walsh[self.walsh.len() - 1 - outside]])
    }

    /// The probability of so few averages at or below `theta` if the true effect were `theta`: small says it is above.
    pub(super) fn p_above(&self, theta: f64) -> f64 {
        self.null.tail(self.walsh.partition_point(|w| *w <= theta))
    }

    /// The probability of so few averages at or above `theta` if the true effect were `theta`: small says it is below.
    pub(super) fn p_below(&self, theta: f64) -> f64 {
        self.null.tail(self.walsh.len() - self.walsh.partition_point(|w| *w < theta))
    }
}

/// The distribution of T at the true effect.
enum Null {
    /// `P(T ≤ t)` at index t.
    Exact(Vec<f64>),
    /// Approximated: `largest` is the largest T there can be, twice the mean.
    Normal { largest: usize, stddev: f64 },
}

impl Null {
    fn new(n: usize) -> Self {
        let largest = n * (n + 1) / 2;
        if n > EXACT {
            return Self::approximated(n);
        }
        // Subsets of 1…rank by their sum: those without `rank`, and those with it.
        let mut subsets = vec![0u64; largest + 1];
        subsets[0] = 1;
        for rank in 1..=n {
            for sum in (rank..=rank * (rank + 1) / 2).rev() {
                subsets[sum] += subsets[sum - rank];
            }
        }
        let all = (1u64 << n) as f64;
        let running = subsets.iter().scan(0u64, |sum, count| {
            *sum += count;
            Some(*sum as f64 / all)
        });
        Self::Exact(running.collect())
    }

    fn approximated(n: usize) -> Self {
        let largest = n * (n + 1) / 2;
        Self::Normal { largest, stddev: (largest as f64 * (2 * n + 1) as f64 / 12.0).sqrt() }
    }

    /// `P(T ≤ t)`.
    fn tail(&self, t: usize) -> f64 {
        match self {
            Self::Exact(below) => below[t],
            Self::Normal { largest, stddev } => {
                normal_below((t as f64 + 0.5 - *largest as f64 / 2.0) / stddev)
            }
        }
    }

    /// The largest t with `P(T ≤ t) ≤ p`, below the median of T.
    fn at_most(&self, p: f64) -> Option<usize> {
        let half = match self {
            Self::Exact(below) => below.len() / 2,
            Self::Normal { largest, .. } => largest / 2,
        };
        (0..half).take_while(|t| self.tail(*t) <= p).last()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Wilcoxon 1945, as in Hollander, Wolfe & Chicken (2014), table A.4: the largest k with P(T ≤ k) ≤ 0.025.
    #[test]
    fn critical_values_are_the_published_ones() {
        let published = [
            (5, None),
            (6, Some(0)),
            (7, Some(2)),
            (8, Some(3)),
            (9, Some(5)),
            (10, Some(8)),
            (20, Some(52)),
            (50, Some(434)),
        ];
        for (n, critical) in published {
            assert_eq!(Null::new(n).at_most(0.025), critical, "n = {n}");
        }
    }

    #[test]
    fn the_exact_distribution_counts_sign_patterns() {
        for n in 1..=12usize {
            let null = Null::new(n);
            let rank_sum = |signs: u32| (1..=n).filter(|rank| signs >> (rank - 1) & 1 == 1).sum::<usize>();
            for t in 0..=n * (n + 1) / 2 {
                let patterns = (0..1u32 << n).filter(|signs| rank_sum(*signs) <= t).count();
                assert_eq!(
                    null.tail(t).to_bits(),
                    (patterns as f64 / f64::from(1u32 << n)).to_bits(),
                    "n = {n}, t = {t}"
                );
            }
        }
    }

    #[test]
    fn the_approximation_takes_over_on_the_safe_side() {
        let (exact, normal) = (Null::new(EXACT), Null::approximated(EXACT));
        for (p, largest_excess) in [(0.025, 0.01), (0.005, 0.07), (0.00125, 0.17)] {
            let t = exact.at_most(p).expect("63 effects decide at any of these levels");
            let (is, said) = (exact.tail(t), normal.tail(t));
            println!("n = {EXACT}: P(T <= {t}) = {is:.6}, approximated {said:.6}");
            assert!((0.0..=largest_excess).contains(&(said / is - 1.0)), "{is} {said}");
            assert!(normal.at_most(p) <= Some(t));
        }
    }

    proptest! {
        #[test]
        fn test_and_interval_agree_at_every_shift(
            effects in proptest::collection::vec(-8i32..8, 1..14), shift in -9i32..9, alpha in 0.001f64..0.6,
        ) {
            let effects: Vec<f64> = effects.into_iter().map(f64::from).collect();
            let (ranks, theta) = (SignedRank::new(&effects).unwrap(), f64::from(shift) / 2.0);
            let interval = ranks.interval(alpha);
            let beyond = |side: fn([f64; 2], f64) -> bool| interval.is_some_and(|ends| side(ends, theta));
            prop_assert_eq!(2.0 * ranks.p_above(theta) <= alpha, beyond(|ends, theta| ends[0] > theta));
            prop_assert_eq!(2.0 * ranks.p_below(theta) <= alpha, beyond(|ends, theta| ends[1] < theta));
        }

        #[test]
        fn mirrored_effects_give_the_mirrored_answer(effects in proptest::collection::vec(-1e3f64..1e3, 1..80)) {
            let mirrored: Vec<f64> = effects.iter().map(|x| -x).collect();
            let (ranks, mirror) = (SignedRank::new(&effects).unwrap(), SignedRank::new(&mirrored).unwrap());
            prop_assert_eq!(Some(ranks.estimate()), Some(-mirror.estimate()));
            prop_assert_eq!(ranks.interval(0.05).map(|[low, high]| [-high, -low]), mirror.interval(0.05));
            prop_assert_eq!(Some(ranks.p_above(1.0)), Some(mirror.p_below(-1.0)));
        }
    }
}
