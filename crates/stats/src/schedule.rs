//! The order in which runs of several arms follow each other.
//!
//! Whatever changes with time (heat, a neighbour, a filling page cache) must not be charged to one arm. Every block
//! runs each arm once, so that pairs are adjacent in time; a random cyclic Latin square of `arms` blocks gives each arm
//! each position once, so that being first is charged to nobody; each square is drawn anew, so that no disturbance with
//! a period of its own can keep in step with the order. For two arms this is ABBA or BAAB, at random. (Fisher, *The
//! Design of Experiments*, 1935, ch. V.)
//!
//! Carry-over from one arm to the next is not balanced, only randomised between squares.

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

/// The order of the arms in each block: `blocks` permutations of `0..arms`.
///
/// Counted from the first block, each group of `arms` blocks holds every arm at every position exactly once; a last,
/// shorter group at most once. One seed gives one order within a release of haul, not across releases: a record keeps
/// the order itself.
#[must_use]
pub fn blocks(arms: usize, blocks: usize, seed: u64) -> Vec<Vec<usize>> {
    if arms == 0 {
        return vec![Vec::new(); blocks];
    }
    let mut rng = StdRng::seed_from_u64(seed);
    let mut order: Vec<usize> = (0..arms).collect();
    let mut shifts = order.clone();
    let mut plan = Vec::with_capacity(blocks);
    while plan.len() < blocks {
        order.shuffle(&mut rng);
        shifts.shuffle(&mut rng);
        for &shift in shifts.iter().take(blocks - plan.len()) {
            let mut block = order.clone();
            block.rotate_left(shift);
            plan.push(block);
        }
    }
    plan
}

/// The order of `cells` cells in each of so many rounds: a permutation drawn anew for each, from one seed.
///
/// With as many cells as a survey has, the rotations of [`blocks`] would make one cell follow the same other one in nearly
/// every round, and what that one left in the caches would be charged to it.
pub fn rounds(cells: usize, rounds: usize, seed: u64) -> impl Iterator<Item = Vec<usize>> {
    let mut rng = StdRng::seed_from_u64(seed);
    let cells: Vec<usize> = (0..cells).collect();
    (0..rounds).map(move |_| {
        let mut order = cells.clone();
        order.shuffle(&mut rng);
        order
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_block_runs_every_arm_and_every_square_balances_positions(
            arms in 1usize..7, count in 0usize..40, seed: u64,
        ) {
            let plan = blocks(arms, count, seed);
            prop_assert_eq!(plan.len(), count);
            for square in plan.chunks(arms) {
                for block in square {
                    prop_assert_eq!(block.iter().copied().collect::<BTreeSet<_>>(), (0..arms).collect());
                    prop_assert_eq!(block.len(), arms);
                }
                for position in 0..arms {
                    let held: BTreeSet<_> = square.iter().map(|block| block[position]).collect();
                    prop_assert_eq!(held.len(), square.len(), "an arm held position {} twice", position);
                }
            }
        }
    }

    #[test]
    fn every_round_has_every_cell_once_and_no_cell_a_lasting_neighbour() {
        let order: Vec<Vec<usize>> = rounds(33, 20, 7).collect();
        assert_eq!(order, rounds(33, 20, 7).collect::<Vec<_>>());
        assert_ne!(order, rounds(33, 20, 8).collect::<Vec<_>>());
        let mut neighbours = BTreeSet::new();
        for round in &order {
            assert_eq!(round.iter().copied().collect::<BTreeSet<_>>(), (0..33).collect());
            neighbours.extend(round.windows(2).map(|pair| (pair[0], pair[1])));
        }
        // 640 draws from 1,056 pairs have about 480 different ones; rotations of one order had 33.
        assert!(neighbours.len() > 400, "{}", neighbours.len());
        assert!(rounds(0, 2, 1).all(|round| round.is_empty()));
    }

    #[test]
    fn a_seed_repeats_its_order_and_seeds_differ() {
        assert_eq!(blocks(3, 30, 7), blocks(3, 30, 7));
        assert_ne!(blocks(3, 30, 7), blocks(3, 30, 8));
    }

    #[test]
    fn two_arms_are_not_strictly_periodic() {
        let first: Vec<usize> = blocks(2, 40, 1).iter().map(|block| block[0]).collect();
        assert!(
            first.chunks(2).any(|pair| pair == [0, 1]) && first.chunks(2).any(|pair| pair == [1, 0]),
            "{first:?}"
        );
    }

    #[test]
    fn no_arms_give_empty_blocks() {
        assert_eq!(blocks(0, 2, 1), vec![Vec::<usize>::new(); 2]);
    }
}
