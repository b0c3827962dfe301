//! The demonstration, told to somebody who has not seen a comparison yet: two numbers, one sentence, what to try next.
//!
//! The record behind it is as complete as any; this face leaves out what needs explaining first. Throughput and the
//! CPU cost of both ends together are the two questions of the whole project, and the base arm against itself says how
//! far to trust the answers.

use std::fmt::Write as _;

use haul_stats::{Comparison, DoubtId, Metric, Scope, Verdict};

use super::compare::{by_metric, change, corrected, decimals};
use super::number::{percent, signed};
use super::wrap::paragraph;
use super::{Layout, Tone, headline, left_out};
use crate::record::{Document, Status};

/// What is demonstrated.
#[derive(Debug, Clone, Copy)]
pub struct Demonstration<'a> {
    /// What the arm that is not the base does, as a sentence begins: "Turning tx-nocache-copy on".
    pub doing: &'a str,
    /// The arm that repeats the base.
    pub null: &'a str,
    /// Commands to try next, each with what it answers.
    pub next: &'a [(&'a str, &'a str)],
}

/// The demonstration's document as text. A document without comparisons tells how it ended, and no more.
#[must_use]
pub fn demonstration(document: &Document, story: &Demonstration<'_>, layout: impl Into<Layout>) -> String {
    let layout = layout.into();
    let mut out = String::new();
    headline(&mut out, document, layout);
    let shown: Vec<&Comparison> = document
        .comparisons
        .iter()
        .filter(|c| {
            (c.metric, c.scope) == (Metric::Throughput, Scope::Receiver)
                || (c.metric, c.scope) == (Metric::ServiceDemand, Scope::SharedHost)
        })
        .collect();
    let (null, real): (Vec<&Comparison>, Vec<&Comparison>) =
        shown.into_iter().partition(|c| c.arm.arm == story.null);
    for arms in [&real, &null] {
        if !arms.is_empty() {
            let _ = write!(out, "\n{}", by_metric(arms, layout));
        }
    }
    if let [first, second] = real.as_slice() {
        out.push('\n');
        let start = out.len();
        paragraph(&mut out, "", &answer(story.doing, first, second), 0, layout.columns());
        let text = out.split_off(start);
        for line in text.lines() {
            let _ = writeln!(out, "{}", layout.paint(Tone::Heading, line));
        }
        if let Some(floor) = floor(&null) {
            paragraph(&mut out, "", &floor, 0, layout.columns());
        }
    }
    let text = "The changes come from the pairs of runs, not from the two means beside them.";
    paragraph(&mut out, "", text, 0, layout.columns());
    if real.iter().chain(&null).any(|c| c.doubts.iter().any(|doubt| doubt.id == DoubtId::TwoModes)) {
        let text = "! The runs of an arm fall into two groups, and their mean is in neither: something else came and went. \
                    Run it again when this machine has nothing else to do.";
        paragraph(&mut out, "", text, 2, layout.columns());
    }
    left_out(&mut out, document, layout);
    if document.status == Status::Complete {
        out.push_str("\ntry next\n");
        for (command, answers) in story.next {
            paragraph(&mut out, "  ", command, 6, layout.columns());
            paragraph(&mut out, "      ", answers, 6, layout.columns());
        }
    }
    out
}

/// The whole verdict in one sentence.
fn answer(doing: &str, throughput: &Comparison, demand: &Comparison) -> String {
    let speed = match corrected(throughput) {
        Some(Verdict::Worse) => "slower",
        Some(Verdict::Better) => "faster",
        Some(Verdict::Equivalent) => "neither faster nor slower",
        Some(Verdict::Undecided) | None => "",
    };
    let cost = match corrected(demand) {
        Some(Verdict::Worse) => "dearer in CPU",
        Some(Verdict::Better) => "cheaper in CPU",
        Some(Verdict::Equivalent) => "neither cheaper nor dearer in CPU",
        Some(Verdict::Undecided) | None => "",
    };
    let numbers = format!("throughput {}, CPU time per byte {}", measured(throughput), measured(demand));
    match (speed, cost) {
        ("", "") => format!("Whether it matters could not be decided here: {numbers}. {}", why(throughput)),
        ("", cost) => format!(
            "{doing} makes this stream {cost}; whether it is faster or slower could not be decided: {numbers}."
        ),
        (speed, "") => format!(
            "{doing} makes this stream {speed}; whether it costs more CPU could not be decided: {numbers}."
        ),
        (speed, cost) => format!("{doing} makes this stream {speed} and {cost}: {numbers}."),
    }
}

/// "-26.3 % (95 % interval -36.0 … -19.0 %)".
fn measured(comparison: &Comparison) -> String {
    let places = decimals(comparison);
    match change(comparison) {
        (Some(size), Some([low, high])) => format!(
            "{} % ({} interval {} … {} %)",
            signed(size, places),
            percent(comparison.confidence * 100.0),
            signed(low, places),
            signed(high, places)
        ),
        _ => "unknown".to_owned(),
    }
}

fn why(comparison: &Comparison) -> String {
    comparison.reason.as_deref().map_or(String::new(), |reason| format!("{}.", super::foreign(reason)))
}

/// How the base came out against itself.
fn floor(null: &[&Comparison]) -> Option<String> {
    let first = null.first()?;
    let changes: Vec<String> = null.iter().map(|c| measured(c)).collect();
    let fooled = null.iter().any(|c| matches!(corrected(c), Some(Verdict::Better | Verdict::Worse)));
    let base = super::label(&first.base.arm, super::LONGEST_NAME);
    let mut text = format!("The noise floor, '{base}' against itself: {}.", changes.join(" and "));
    if fooled {
        text.push_str(" That should be no difference: this machine is too noisy just now, run it again.");
    }
    Some(text)
}
