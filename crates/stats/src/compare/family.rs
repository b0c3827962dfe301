//! Many comparisons at once: the chance of *any* false claim, not of each.
//!
//! Holm's step-down (Holm 1979): with p-values in ascending order, the r-th of k (from 0) stands if it is at most
//! α / (k − r), and none after the first that does not. It needs no independence: metrics of one run are anything but.
//! Its proof covers differences claimed where there are none of that size; that directions and equivalences keep to
//! the same rate is shown by simulation.

use super::{Comparison, Verdict, pairs_for};

/// Sets `verdict_corrected` of every comparison from the whole family: all of one experiment that carry a verdict, the
/// undecided included. Correcting again gives the same result.
pub fn correct(comparisons: &mut [Comparison]) {
    correct_as_planned(comparisons, 0);
}

/// The same, where so many comparisons were planned and some came to nothing. That changes no verdict; but how many pairs
/// are needed is said as it was before the first run, and for all alike: Holm's later steps ask for fewer only once the
/// first has been taken.
pub fn correct_as_planned(comparisons: &mut [Comparison], planned: usize) {
    let mut family: Vec<&mut Comparison> = comparisons.iter_mut().filter(|c| c.verdict.is_some()).collect();
    family.sort_by(|a, b| a.p_value.unwrap_or(1.0).total_cmp(&b.p_value.unwrap_or(1.0)));
    let size = family.len();
    let mut standing = true;
    for (rank, comparison) in family.into_iter().enumerate() {
        let alpha = (1.0 - comparison.confidence) / (size - rank) as f64;
        standing &= comparison.p_value.is_some_and(|p| p <= alpha);
        comparison.verdict_corrected = Some(Verdict::Undecided);
        if standing {
            comparison.verdict_corrected = comparison.verdict;
        } else if comparison.verdict != Some(Verdict::Undecided) {
            let needed = pairs_for((1.0 - comparison.confidence) / size.max(planned) as f64);
            comparison.reason = Some(if comparison.base.n < needed {
                format!("does not stand among {size} comparisons: at least {needed} pairs are needed")
            } else {
                format!("does not stand among {size} comparisons (Holm)")
            });
        }
    }
}
