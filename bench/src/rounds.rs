//! Rounds: each runs every row of a table once, in random order.
//!
//! Ratios are taken within rounds, because the machine may be shared and its speed drifts. A run that fails is reported and
//! leaves its round out of the row's ratios; a row that has failed twice is not tried again.

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;

use crate::bench::Bench;
use crate::figures::Rounds;
use crate::table::Table;

/// What came of a table.
#[derive(Debug, Default)]
pub(crate) struct Results {
    /// By the name of the row.
    pub(crate) figures: BTreeMap<String, Rounds>,
    /// The name of the row, and why its run failed.
    pub(crate) failures: Vec<(String, String)>,
}

/// Runs a table.
pub(crate) fn run(bench: &Bench, table: &Table, rounds: usize, random: &mut SmallRng) -> Results {
    const TRIES: usize = 2;
    const HURRIED_TRIES: u32 = 4;
    let mut results = Results::default();
    let mut order: Vec<usize> = (0..table.rows.len()).collect();
    for round in 1..=rounds {
        order.shuffle(random);
        for &row in &order {
            let row = &table.rows[row];
            let failed = results.failures.iter().filter(|(name, _)| *name == row.name).count();
            let figure = if failed < TRIES {
                let mut measured = bench.measure(table, row);
                // One hurried round asks whether a row can run; a machine that stalls for half a second says nothing of that.
                let mut again = if bench.hurried { HURRIED_TRIES - 1 } else { 0 };
                while let (Err(error), 1..) = (&measured, again) {
                    eprintln!("{}: tried again: {error:#}", row.name);
                    again -= 1;
                    measured = bench.measure(table, row);
                }
                measured.map_err(|error| results.failures.push((row.name.clone(), format!("{error:#}")))).ok()
            } else {
                None
            };
            results.figures.entry(row.name.clone()).or_default().push(figure);
        }
        eprintln!("round {round} of {rounds} done: {}", table.title);
    }
    results
}
