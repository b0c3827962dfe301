//! Call chains for other programs and for the eye: folded stacks, and flame graphs of them.
//!
//! Folded stacks are a line for each chain, `outermost;…;innermost COUNT`, which many programs read. A flame graph is drawn of
//! them by `inferno`: the width of a frame is the share of samples it is on. Two arms give a differential one, in which a frame
//! has the width it has under the arm, red where it grew and blue where it shrank. Samples, not costs, are drawn: a picture of
//! two arms at different rates is normalised, and the table of costs says what became dearer.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use inferno::flamegraph::{self, Options};

use crate::error::ResultsError;
use crate::profile::{Costs, Stack};

/// The chains as lines, the most frequent first.
#[must_use]
pub fn folded(stacks: &[Stack]) -> String {
    let mut out = String::new();
    for stack in stacks {
        let _ = writeln!(out, "{} {}", clean(&stack.frames), stack.samples);
    }
    out
}

/// The flame graph of a table of costs, as SVG.
///
/// # Errors
/// [`ResultsError::Picture`] where it has no call chains.
pub fn graph(costs: &Costs, title: &str) -> Result<String, ResultsError> {
    draw(&folded(&costs.stacks), title, &costs.event)
}

/// The flame graph of an arm, coloured by how it differs from the base.
///
/// # Errors
/// [`ResultsError::Picture`] where neither has call chains.
pub fn difference(base: &Costs, arm: &Costs, title: &str) -> Result<String, ResultsError> {
    let mut both: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    for (side, costs) in [base, arm].into_iter().enumerate() {
        for stack in &costs.stacks {
            both.entry(&stack.frames).or_default()[side] += stack.samples;
        }
    }
    // As if both had as many samples: one arm may have been busier.
    let totals = [0, 1].map(|side| both.values().map(|counts| counts[side]).sum::<u64>());
    let mut lines = String::new();
    for (frames, [before, after]) in &both {
        let before = u128::from(*before) * u128::from(totals[1]) / u128::from(totals[0].max(1));
        let _ = writeln!(lines, "{} {before} {after}", clean(frames));
    }
    draw(&lines, title, &arm.event)
}

/// A name with a line end would be two lines, one with a blank before a number another count.
fn clean(frames: &str) -> String {
    frames.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn draw(lines: &str, title: &str, event: &str) -> Result<String, ResultsError> {
    let mut options = Options::default();
    title.clone_into(&mut options.title);
    "samples".clone_into(&mut options.count_name);
    options.subtitle = Some(format!("samples of {event}, idle CPUs left out"));
    options.hash = true;
    // What the picture needs is in it: it is looked at long after, and without a network.
    "monospace".clone_into(&mut options.font_type);
    let mut picture = Vec::new();
    flamegraph::from_lines(&mut options, lines.lines(), &mut picture)
        .map_err(|error| ResultsError::Picture(error.to_string()))?;
    String::from_utf8(picture).map_err(|error| ResultsError::Picture(error.to_string()))
}

#[cfg(test)]
mod tests {
    use haul_stats::compare::Cost;
    use haul_stats::{Cell, Scope};

    use super::*;
    use crate::profile::CostRow;

    fn costs(stacks: &[(&str, u64)]) -> Costs {
        let stacks =
            stacks.iter().map(|(frames, samples)| Stack { frames: (*frames).to_owned(), samples: *samples });
        let cost = Cost { mean: 1.0, interval: None, runs: 1 };
        Costs {
            cell: Cell::new(),
            arm: None,
            scope: Scope::SharedHost,
            threads_only: false,
            unit: "ns/KiB".to_owned(),
            event: "cpu-clock".to_owned(),
            runs: 1,
            samples: 10,
            idle_pct: 0.0,
            unresolved_pct: 0.0,
            lost: 0,
            host_reason: None,
            kernel_reason: None,
            confidence: 0.95,
            total: CostRow { name: "all".to_owned(), module: None, class: None, share_pct: 100.0, cost },
            classes: Vec::new(),
            symbols: Vec::new(),
            stacks: stacks.collect(),
        }
    }

    #[test]
    fn folded_stacks_are_a_line_each_whatever_is_in_a_name() {
        let costs = costs(&[("haul;send;copy", 7), ("evil\nname;x", 1)]);
        assert_eq!(folded(&costs.stacks), "haul;send;copy 7\nevil?name;x 1\n");
    }

    #[test]
    fn a_flame_graph_names_its_frames_and_needs_nothing_from_elsewhere() {
        let picture = graph(&costs(&[("haul;send;copyin", 7), ("haul;recv", 3)]), "both ends").unwrap();
        assert!(picture.contains("copyin") && picture.contains("both ends") && picture.ends_with("</svg>"));
        assert!(!picture.contains("<script src") && !picture.contains("href=\"http"));
        assert!(matches!(graph(&costs(&[]), "nothing"), Err(ResultsError::Picture(_))));
    }

    #[test]
    fn a_difference_is_of_shares_not_of_counts() {
        // Twice the samples in the same shares is no difference.
        let (base, arm) = (costs(&[("a;x", 10), ("a;y", 10)]), costs(&[("a;x", 20), ("a;y", 20)]));
        let picture = difference(&base, &arm, "arm against base").unwrap();
        assert!(picture.contains("x (20 samples, 50.00%; 0.00%)"), "{picture}");
        let moved = costs(&[("a;x", 30), ("a;y", 10)]);
        assert!(difference(&base, &moved, "arm against base").unwrap().contains("+25.00%"));
    }
}
