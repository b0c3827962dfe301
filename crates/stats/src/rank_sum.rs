//! Whether one set of samples lies above another: the rank-sum test (Mann & Whitney 1947), one-sided.
//!
//! U is the number of pairs in which the sample of the first set is the greater. Where nothing differs, every order of the
//! n + m samples is as likely as any other, and the number of orders with U = u is the coefficient of q^u in
//!
//! ```text
//! (1 - q^(m+1)) … (1 - q^(m+n))  /  (1 - q) … (1 - q^n)
//! ```
//!
//! It assumes nothing of the distribution. Equal samples count as not greater, which errs to the safe side, as does whatever
//! moves both sets alike (a drift, in rounds that have both).

use crate::estimate::normal_below;

/// The most samples of both sets whose orders are counted: C(50, 25) is exact in an f64. Beyond it the normal approximation with
/// continuity correction is taken, which errs to the safe side at the small probabilities that matter here.
const EXACT: usize = 50;

/// The probability of so many pairs in favour of `above` if it were no higher than `below`; 1 where one of them is empty.
#[must_use]
pub fn p_above(above: &[f64], below: &[f64]) -> f64 {
    let (n, m) = (above.len(), below.len());
    let greater = above.iter().map(|high| below.iter().filter(|low| high > low).count()).sum::<usize>();
    if n == 0 || m == 0 {
        return 1.0;
    }
    if n + m > EXACT {
        let (n, m) = (n as f64, m as f64);
        let spread = (n * m * (n + m + 1.0) / 12.0).sqrt();
        return normal_below(-(greater as f64 - 0.5 - n * m / 2.0) / spread);
    }
    let orders = orders(n, m);
    let tail: f64 = orders[greater..].iter().sum();
    tail / orders.iter().sum::<f64>()
}

/// The smallest probability that so many samples in each of two sets can have.
#[must_use]
pub fn least(each: usize) -> f64 {
    let each = each as f64;
    (2.0 * libm::lgamma(each + 1.0) - libm::lgamma(2.0 * each + 1.0)).exp()
}

/// How many orders have each U from 0 to nm.
fn orders(n: usize, m: usize) -> Vec<f64> {
    let mut ways = vec![0.0; n * m + 1];
    ways[0] = 1.0;
    for factor in 1..=n {
        let up = m + factor;
        for at in (up..ways.len()).rev() {
            ways[at] -= ways[at - up];
        }
        for at in factor..ways.len() {
            ways[at] += ways[at - factor];
        }
    }
    ways
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_that_of_all_orders() {
        // Of three and two samples there are ten orders: U = 0 … 6 in 1, 1, 2, 2, 2, 1 and 1 of them.
        assert_eq!(orders(3, 2), [1.0, 1.0, 2.0, 2.0, 2.0, 1.0, 1.0]);
        assert_eq!(orders(2, 3), orders(3, 2));
        let p = p_above(&[4.0, 5.0, 6.0], &[1.0, 2.0]);
        assert!(
            (p - 0.1).abs() < 1e-12 && (p_above(&[4.0, 5.0, 1.5], &[1.0, 2.0]) - 0.2).abs() < 1e-12,
            "{p}"
        );
        assert!((orders(25, 25).iter().sum::<f64>() - 126_410_606_437_752.0).abs() < 0.5);
        assert!((p_above(&[2.0; 15], &[1.0; 15]) / least(15) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn equal_samples_and_none_at_all_say_nothing() {
        assert!((p_above(&[1.0; 9], &[1.0; 9]) - 1.0).abs() < 1e-12);
        assert!((p_above(&[], &[1.0]) - 1.0).abs() < 1e-12);
        assert!(p_above(&[1.0; 40], &[1.0; 40]) > 0.999);
    }

    #[test]
    fn where_nothing_differs_it_is_as_small_as_a_level_no_oftener_than_that() {
        let mut state = 7_u64;
        let mut draw = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        for (n, m) in [(9, 9), (15, 12), (31, 31)] {
            let small = (0..4000).filter(|_| {
                let (first, second): (Vec<f64>, Vec<f64>) =
                    ((0..n).map(|_| draw()).collect(), (0..m).map(|_| draw()).collect());
                p_above(&first, &second) <= 0.05
            });
            let share = small.count() as f64 / 4000.0;
            assert!((0.03..0.06).contains(&share), "{n} and {m}: {share}");
        }
    }

    #[test]
    fn beyond_what_is_counted_the_approximation_errs_to_the_safe_side() {
        let apart = |each: usize| {
            let (high, low): (Vec<f64>, Vec<f64>) = (
                (0..each).map(|at| at as f64 + each as f64).collect(),
                (0..each).map(|at| at as f64).collect(),
            );
            p_above(&high, &low)
        };
        assert!(apart(26) > least(26) && apart(26) < 1e-8, "{}", apart(26));
    }
}
