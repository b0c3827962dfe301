//! Call chains for other programs and for the eye: folded stacks, and flame graphs of them.
//!
//! Folded stacks are a line for each chain, `outermost;…;innermost COUNT`, which many programs read. A flame graph is drawn of
//! them by `inferno`: the width of a frame is the share of samples it is on. Two arms give a differential one, of costs and not of
//! shares: samples of either arm are turned into what they cost for each unit of work, a chain is as wide as it is dear in the arm
//! in which it is dearer, so that what only the base has is seen too, and red where it became dearer, blue where cheaper.

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
    let mut options = Options::default();
    "samples".clone_into(&mut options.count_name);
    options.subtitle = Some(format!("samples of {}, idle CPUs left out", costs.event));
    draw(&folded(&costs.stacks), title, options)
}

/// The flame graph of both arms' frames, coloured by how the arm changed what they cost.
///
/// # Errors
/// [`ResultsError::Picture`] where neither has call chains.
pub fn difference(base: &Costs, arm: &Costs, title: &str) -> Result<String, ResultsError> {
    /// Whole numbers are drawn: these are thousandths of the unit.
    const PARTS: f64 = 1000.0;
    let mut both: BTreeMap<&str, [f64; 2]> = BTreeMap::new();
    for (side, costs) in [base, arm].into_iter().enumerate() {
        let samples = costs.stacks.iter().map(|stack| stack.samples).sum::<u64>();
        let each = costs.total.cost.mean * PARTS / samples.max(1) as f64;
        for stack in &costs.stacks {
            both.entry(&stack.frames).or_default()[side] += stack.samples as f64 * each;
        }
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cost is not negative, and bounded"
    )]
    let whole = |cost: f64| cost.round() as u64;
    let mut lines = String::new();
    for (frames, costs) in &both {
        let [before, after] = costs.map(whole);
        // What is drawn as wide as its second number has the larger one as that; the first keeps the difference of the two.
        let width = before.max(after);
        let _ = writeln!(lines, "{} {} {width}", clean(frames), width + before - after);
    }
    let mut options = Options::default();
    // A factor would be drawn, but is not in the percentages of changes.
    options.count_name = match arm.unit.strip_prefix("ns/") {
        Some(per) => format!("ps/{per}"),
        None => format!("thousandths of {}", arm.unit),
    };
    options.subtitle = Some(format!(
        "change of cost, {} by {}: red dearer, blue cheaper; as wide as in the dearer arm",
        arm.unit, arm.event
    ));
    draw(&lines, title, options)
}

/// A name with a line end would be two lines, one with a blank before a number another count.
fn clean(frames: &str) -> String {
    frames.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn draw(lines: &str, title: &str, mut options: Options<'_>) -> Result<String, ResultsError> {
    title.clone_into(&mut options.title);
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
    fn a_difference_is_of_costs_and_shows_what_only_the_base_has() {
        let of = |stacks: &[(&str, u64)], mean: f64| {
            let mut costs = costs(stacks);
            costs.total.cost.mean = mean;
            costs
        };
        // Twice the samples at the same cost is no difference; half the share of twice the cost is none either.
        let base = of(&[("a;x", 10), ("a;y", 10)], 40.0);
        let more = difference(&base, &of(&[("a;x", 20), ("a;y", 20)], 40.0), "arm against base").unwrap();
        assert!(more.contains("x (20,000 ps/KiB, 50.00%; 0.00%)"), "{more}");
        let dearer = of(&[("a;x", 10), ("a;y", 30)], 80.0);
        let grown = difference(&base, &dearer, "arm against base").unwrap();
        assert!(
            grown.contains("x (20,000 ps/KiB, 25.00%; 0.00%)"),
            "its share fell, its cost did not: {grown}"
        );
        assert!(grown.contains("y (60,000 ps/KiB, 75.00%; +50.00%)"), "{grown}");
        let without = of(&[("a;x", 10)], 20.0);
        let gone = difference(&base, &without, "arm against base").unwrap();
        assert!(gone.contains("y (20,000 ps/KiB, 50.00%; -50.00%)"), "a frame that is gone is seen: {gone}");
        assert!(gone.contains("change of cost, ns/KiB by cpu-clock"), "{gone}");
    }
}
