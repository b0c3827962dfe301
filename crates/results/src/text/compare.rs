//! Comparisons: what two arms came to, the change with its interval, and the verdict.
//!
//! One cell makes one table with a row for each metric; a sweep makes one table for each metric with a row for each
//! cell, because that is how a curve is read. The verdict shown is the corrected one; where the comparison alone would
//! have said something else, a `*` says so. Below the tables the same is said in sentences ([`sentence`]), which are
//! what most readers need.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use haul_stats::{Comparison, DoubtId, Metric, Scope, Verdict};

use super::cells::{quantile, spread_note, whose};
use super::number::{NONE, Number, Scale, change_decimals, percent, signed};
use super::table::{Align, Column, Table};
use super::wrap::{label, paragraph};
use super::{
    LONGEST_NAME, Layout, Tone, axis_name, axis_value, cell_name, enumerate, foreign, in_column_order, plural,
};
use crate::record::{Cell, Document};

/// Longest name of an arm that still heads a column; a longer one is named above the table.
const LONGEST_HEADING: usize = 10;

/// What a verdict is marked with where the comparison alone had another.
const DIFFERS: &str = " *";

/// What a verdict is marked with where one of the means stands for two groups of runs.
const TWO_MODES: &str = " !";

/// The comparisons of a sweep get a sentence each up to so many; beyond, they are counted by metric.
const MOST_SENTENCES: usize = 12;

/// The verdicts in the order in which they matter to a reader.
const IN_ORDER: [Verdict; 4] = [Verdict::Worse, Verdict::Better, Verdict::Equivalent, Verdict::Undecided];

pub(super) fn show(out: &mut String, document: &Document, layout: Layout) {
    let all = &document.comparisons;
    if all.is_empty() {
        out.push_str("\nno comparison could be made\n");
        super::cells::show(out, document, layout);
        return;
    }
    let axes = Axes::of(all);
    for arms in groups(all, |c| (&c.base.arm, &c.arm.arm)) {
        let Some(first) = arms.first() else { continue };
        out.push('\n');
        title(out, first, &arms, &axes, layout);
        if axes.swept.is_empty() {
            let rows: Vec<&Comparison> = arms.iter().copied().filter(|c| has_row(c)).collect();
            out.push_str(&by_metric(&rows, layout));
        } else {
            let asked: Vec<&Comparison> = arms.iter().copied().filter(|c| !c.metric.is_beside()).collect();
            for metric in groups_of(&asked, |c| (c.metric, c.scope)) {
                out.push('\n');
                out.push_str(&by_cell(&metric, &axes, layout));
            }
        }
    }
    notes(out, all, layout);
    layout.heading(out, "verdicts");
    let asked = || all.iter().filter(|c| !c.metric.is_beside());
    if axes.swept.is_empty() || asked().count() <= MOST_SENTENCES {
        for comparison in asked().filter(|c| corrected(c).is_some()) {
            let at = match cell_name(&axes.swept_of(comparison)) {
                at if at.is_empty() => at,
                at => format!("{at}: "),
            };
            paragraph(out, "  ", &format!("{at}{}", sentence(comparison)), 4, layout.columns());
        }
    } else {
        let asked: Vec<&Comparison> = asked().collect();
        for family in groups_of(&asked, |c| (&c.base.arm, &c.arm.arm, c.metric, c.scope)) {
            paragraph(out, "  ", &summary(&family), 4, layout.columns());
        }
    }
}

/// Whether a comparison is worth a row: of what explains a change, interrupts by what was done, and queues that were too short.
/// The others are in the record.
fn has_row(comparison: &Comparison) -> bool {
    match comparison.metric {
        Metric::InterruptsPerGb | Metric::InterruptsPerTransaction | Metric::PacketsPerInterrupt => true,
        Metric::SoftnetDropped | Metric::SoftnetSqueezed => {
            [comparison.base.mean, comparison.arm.mean].into_iter().flatten().any(|mean| mean > 0.0)
        }
        metric => !metric.is_beside(),
    }
}

/// The axes of the cells: those that differ name the rows, the others are told once.
struct Axes {
    fixed: Cell,
    swept: Vec<String>,
}

impl Axes {
    fn of(all: &[Comparison]) -> Self {
        let cells: Vec<&Cell> = all.iter().map(|c| &c.cell).collect();
        let axes: BTreeSet<&String> = cells.iter().flat_map(|cell| cell.keys()).collect();
        let (mut fixed, mut swept) = (Cell::new(), Vec::new());
        for axis in axes {
            match cells[0].get(axis) {
                Some(value) if cells.iter().all(|cell| cell.get(axis) == Some(value)) => {
                    fixed.insert(axis.clone(), value.clone());
                }
                _ => swept.push(axis.clone()),
            }
        }
        Self { fixed, swept }
    }

    fn swept_of(&self, comparison: &Comparison) -> Cell {
        let swept = comparison.cell.iter().filter(|(axis, _)| self.swept.contains(axis));
        swept.map(|(axis, value)| (axis.clone(), value.clone())).collect()
    }
}

/// The comparisons in groups of equal key, in the order in which the keys first appear.
fn groups<'a, K: PartialEq>(
    all: &'a [Comparison],
    key: impl Fn(&'a Comparison) -> K,
) -> Vec<Vec<&'a Comparison>> {
    groups_of(&all.iter().collect::<Vec<_>>(), key)
}

fn groups_of<'a, K: PartialEq>(
    all: &[&'a Comparison],
    key: impl Fn(&'a Comparison) -> K,
) -> Vec<Vec<&'a Comparison>> {
    let mut groups: Vec<(K, Vec<&Comparison>)> = Vec::new();
    for &comparison in all {
        let key = key(comparison);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, members)) => members.push(comparison),
            None => groups.push((key, vec![comparison])),
        }
    }
    groups.into_iter().map(|(_, members)| members).collect()
}

/// The verdict that counts.
pub(super) fn corrected(comparison: &Comparison) -> Option<Verdict> {
    comparison.verdict_corrected.or(comparison.verdict)
}

fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::Equivalent => "equivalent",
        Verdict::Undecided => "undecided",
    }
}

fn name(arm: &str) -> String {
    label(arm, LONGEST_NAME)
}

/// "on against off, the base: 10 pairs, 1 run of on failed; message 128K, flows 1".
fn title(out: &mut String, first: &Comparison, all: &[&Comparison], axes: &Axes, layout: Layout) {
    let mut text = format!("{} against {}, the base", name(&first.arm.arm), name(&first.base.arm));
    let least = all.iter().map(|c| c.arm.n).min().unwrap_or(0);
    let most = all.iter().map(|c| c.arm.n).max().unwrap_or(0);
    let _ = match (least, most) {
        (1, 1) => write!(text, ": 1 pair"),
        (least, most) if least == most => write!(text, ": {most} pairs"),
        (least, most) => write!(text, ": {least} to {most} pairs"),
    };
    for side in [&first.base, &first.arm] {
        let failed = all
            .iter()
            .map(|c| if side.arm == c.arm.arm { c.arm.failed } else { c.base.failed })
            .max()
            .unwrap_or(0);
        if failed > 0 {
            let _ = write!(text, ", {failed} {} of {} not counted", plural(failed, "run"), name(&side.arm));
        }
    }
    if !axes.fixed.is_empty() {
        let _ = write!(text, "; {}", cell_name(&axes.fixed));
    }
    let start = out.len();
    paragraph(out, "", &text, 2, layout.columns());
    let shown = out.split_off(start);
    for line in shown.lines() {
        let _ = writeln!(out, "{}", layout.paint(Tone::Heading, line));
    }
}

/// A row for each metric.
pub(super) fn by_metric(all: &[&Comparison], layout: Layout) -> String {
    let scales: Vec<Scale> = all.iter().map(|c| Scale::of(&c.unit, &sides(c))).collect();
    let labels = |separator: &str| {
        let rows = all.iter().zip(&scales).map(|(c, scale)| {
            let whose = match whose(c.metric, c.scope) {
                "" => String::new(),
                whose => format!("{whose}, "),
            };
            let (name, unit) = row_name(c.metric, &scale.unit);
            format!("{name}{separator}{whose}{unit}")
        });
        Column::text(&[], Align::Left, rows.collect())
    };
    let mut table = Table { keys: vec![labels(", ")], values: values(all, &scales), stacked: false };
    if !table.fits_inline(layout.columns()) {
        (table.keys, table.stacked) = (vec![labels("\n  ")], true);
    }
    painted(&table.render(layout.columns()), layout)
}

/// A row for each cell of one metric.
fn by_cell(all: &[&Comparison], axes: &Axes, layout: Layout) -> String {
    let Some(first) = all.first() else { return String::new() };
    let numbers: Vec<Number> = all.iter().flat_map(|c| sides(c)).collect();
    let scale = Scale::of(&first.unit, &numbers);
    let cells: Vec<&Cell> = all.iter().map(|c| &c.cell).collect();
    let keys = in_column_order(axes.swept.iter()).into_iter().map(|axis| {
        let entries = cells
            .iter()
            .map(|cell| cell.get(axis).map_or_else(|| NONE.to_owned(), |value| axis_value(axis, value)));
        Column::text(&[&axis_name(axis)], Align::Right, entries.collect())
    });
    let heading = format!("{}, {}", described(first.metric, first.scope), scale.unit);
    let scales = vec![scale; all.len()];
    let table = Table { keys: keys.collect(), values: values(all, &scales), stacked: false };
    format!("{heading}\n{}", painted(&table.render(layout.columns()), layout))
}

fn sides(comparison: &Comparison) -> Vec<Number> {
    [base(comparison), arm(comparison)].into_iter().flatten().collect()
}

fn base(comparison: &Comparison) -> Option<Number> {
    Number { mean: comparison.base.mean?, stddev: comparison.base.stddev }.finite()
}

fn arm(comparison: &Comparison) -> Option<Number> {
    Number { mean: comparison.arm.mean?, stddev: comparison.arm.stddev }.finite()
}

/// The change and the interval, where they are numbers.
pub(super) fn change(comparison: &Comparison) -> (Option<f64>, Option<[f64; 2]>) {
    let change = comparison.change_pct.filter(|change| change.is_finite());
    (change, comparison.interval_pct.filter(|ends| ends.iter().all(|end| end.is_finite())))
}

pub(super) fn decimals(comparison: &Comparison) -> usize {
    let (change, interval) = change(comparison);
    let numbers: Vec<f64> = change.into_iter().chain(interval.into_iter().flatten()).collect();
    change_decimals(&numbers, comparison.min_effect_pct)
}

/// Base, arm, change, interval and verdict.
fn values(all: &[&Comparison], scales: &[Scale]) -> Vec<Column> {
    let Some(first) = all.first() else { return Vec::new() };
    let heads = [(&first.base.arm, "base"), (&first.arm.arm, "arm")].map(|(arm, role)| {
        let arm = name(arm);
        if arm.chars().count() <= LONGEST_HEADING { arm } else { role.to_owned() }
    });
    let [base_head, arm_head] = heads;
    let bases: Vec<_> = all.iter().map(|c| base(c)).collect();
    let arms: Vec<_> = all.iter().map(|c| arm(c)).collect();
    let places = all.iter().map(|c| decimals(c)).max().unwrap_or(1);
    let changes =
        all.iter().map(|c| change(c).0.map_or_else(|| NONE.to_owned(), |change| signed(change, places)));
    let ends: Vec<Option<[String; 2]>> =
        all.iter().map(|c| change(c).1.map(|ends| ends.map(|end| signed(end, places)))).collect();
    let [low, high] =
        [0, 1].map(|side| ends.iter().flatten().map(|ends| ends[side].chars().count()).max().unwrap_or(0));
    let intervals = ends.iter().map(|ends| match ends {
        Some([from, to]) => format!("{from:>low$} … {to:>high$}"),
        None => NONE.to_owned(),
    });
    let verdicts = all.iter().map(|c| {
        let Some(verdict) = corrected(c) else { return NONE.to_owned() };
        let differs = if c.verdict == Some(verdict) { "" } else { DIFFERS };
        let split = if c.doubts.iter().any(|doubt| doubt.id == DoubtId::TwoModes) { TWO_MODES } else { "" };
        format!("{}{differs}{split}", verdict_name(verdict))
    });
    let level = format!("{} interval", percent(first.confidence * 100.0));
    vec![
        Column::spread(&[&base_head], &bases, scales),
        Column::spread(&[&arm_head], &arms, scales),
        Column::text(&["change", "%"], Align::Right, changes.collect()),
        Column::text(&[&level, "%"], Align::Right, intervals.collect()),
        Column::text(&["verdict"], Align::Left, verdicts.collect()),
    ]
}

/// The table with its verdicts coloured: they end their lines, so no width depends on it.
fn painted(table: &str, layout: Layout) -> String {
    let mut out = String::with_capacity(table.len());
    for line in table.lines() {
        let text = line.trim_end_matches([' ', '*', '!']);
        let word =
            IN_ORDER.into_iter().find(|verdict| text.ends_with(&format!("  {}", verdict_name(*verdict))));
        match word {
            Some(verdict) => {
                let (before, rest) = line.split_at(text.len() - verdict_name(verdict).len());
                let (word, marks) = rest.split_at(verdict_name(verdict).len());
                let _ = write!(out, "{before}{}{marks}", layout.paint(tone(verdict), word));
            }
            None => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

fn tone(verdict: Verdict) -> Tone {
    match verdict {
        Verdict::Better | Verdict::Equivalent => Tone::Good,
        Verdict::Worse => Tone::Bad,
        Verdict::Undecided => Tone::Unsure,
    }
}

/// What the columns and marks mean.
fn notes(out: &mut String, all: &[Comparison], layout: Layout) {
    let Some(first) = all.first() else { return };
    let width = layout.columns();
    let counts: Vec<usize> = all.iter().map(|c| c.arm.n).collect();
    spread_note(out, &counts, layout);
    let judged = all.iter().filter(|c| c.verdict.is_some()).count();
    let family =
        if judged > 1 { "; verdicts are corrected for all comparisons of the experiment" } else { "" };
    let least = percent(first.min_effect_pct);
    let rule = format!(
        "change: from the pairs, not from the means; better and worse: all of the interval beyond ±{least}, \
         equivalent: all of it within{family}"
    );
    paragraph(out, "  ", &rule, 2, width);
    let lone: Vec<Verdict> = all.iter().filter_map(alone).collect();
    if !lone.is_empty() {
        let text = format!("without the correction: {}", enumerate(&counted(&lone)));
        paragraph(out, "* ", &text, 2, width);
    }
    if all.iter().any(|c| c.doubts.iter().any(|doubt| doubt.id == DoubtId::TwoModes)) {
        paragraph(
            out,
            "! ",
            "the runs of an arm fall into two groups: no single mean describes them",
            2,
            width,
        );
    }
}

/// The verdict of a comparison alone, where the corrected one differs.
fn alone(comparison: &Comparison) -> Option<Verdict> {
    comparison.verdict.filter(|verdict| Some(*verdict) != corrected(comparison))
}

/// "3 worse", "1 better".
fn counted(verdicts: &[Verdict]) -> Vec<String> {
    let count = |wanted| verdicts.iter().filter(|verdict| **verdict == wanted).count();
    let counts = IN_ORDER.map(|verdict| (verdict, count(verdict)));
    counts
        .iter()
        .filter(|(_, n)| *n > 0)
        .map(|(verdict, n)| format!("{n} {}", verdict_name(*verdict)))
        .collect()
}

/// `service demand`, `CPU utilization`, `p99 latency`.
pub(super) fn metric_name(metric: Metric) -> String {
    let words = metric.facts().name.replace('_', " ");
    if let (Some(quantile), false) = (quantile(metric), words.starts_with("gap")) {
        return match words.split_once(' ') {
            Some(("probe", rest)) if rest.starts_with("idle") => format!("{quantile} latency without load"),
            Some(("probe", _)) => format!("{quantile} latency under load"),
            _ => format!("{quantile} latency"),
        };
    }
    match metric {
        Metric::Rtt => "round trip time".to_owned(),
        Metric::Transactions => "transaction rate".to_owned(),
        Metric::LatencyMin => "shortest latency".to_owned(),
        Metric::LatencyMean => "mean latency".to_owned(),
        Metric::LatencyMax => "longest latency".to_owned(),
        Metric::ServiceDemandTransaction => "service demand".to_owned(),
        Metric::Unanswered => "unanswered requests".to_owned(),
        Metric::InterruptsPerGb => "interrupts per GB".to_owned(),
        _ => match words.strip_prefix("cpu ") {
            Some(rest) => format!("CPU {rest}"),
            None => words,
        },
    }
}

/// The name and the unit of a row: the table of a comparison has no column to spare.
fn row_name(metric: Metric, unit: &str) -> (String, String) {
    let name = metric_name(metric);
    match metric {
        Metric::ServiceDemandTransaction => {
            ("demand/transaction".to_owned(), unit.trim_end_matches("/transaction").to_owned())
        }
        // Of what they are told by the unit.
        Metric::InterruptsPerGb | Metric::InterruptsPerTransaction => {
            ("interrupts".to_owned(), unit.to_owned())
        }
        Metric::PacketsPerInterrupt => ("packets".to_owned(), "1/interrupt".to_owned()),
        _ => (name.replace("latency under", "under").replace("latency without", "without"), unit.to_owned()),
    }
}

/// The metric and whose it is, where that does not go without saying.
fn described(metric: Metric, scope: Scope) -> String {
    let name = metric_name(metric);
    match (metric, scope) {
        (Metric::Throughput, Scope::Run) => format!("{name} of both ways together"),
        (Metric::Throughput | Metric::PacketRate, Scope::Receiver)
        | (Metric::Retransmits, Scope::Sender)
        | (_, Scope::Run) => name,
        (_, Scope::SharedHost) => format!("{name} of both ends together"),
        (_, scope) => match whose(metric, scope) {
            "" => name,
            whose if whose.starts_with("to ") => format!("{name} to the {scope}"),
            _ => format!("{name} of the {scope}"),
        },
    }
}

/// What a comparison says, for people.
///
/// "With on, throughput is 24.6 % lower than with off (95 % interval -25.1 … -24.0 %): worse." The cell is left to
/// whoever shows more than one.
#[must_use]
pub fn sentence(comparison: &Comparison) -> String {
    let (arm, base) = (name(&comparison.arm.arm), name(&comparison.base.arm));
    let what = described(comparison.metric, comparison.scope);
    let plural = [Metric::Retransmits, Metric::Resends, Metric::Unanswered, Metric::Duplicates]
        .contains(&comparison.metric);
    let be = if plural { "are" } else { "is" };
    let places = decimals(comparison);
    let (change, interval) = change(comparison);
    let range = interval.map(|[low, high]| {
        let level = percent(comparison.confidence * 100.0);
        format!("{level} interval {} … {} %", signed(low, places), signed(high, places))
    });
    let reason = comparison.reason.as_deref().map(foreign);
    let because = reason.as_ref().map_or(String::new(), |reason| format!("; {reason}"));
    let mut text = match (corrected(comparison), change) {
        (Some(Verdict::Undecided), change) => {
            // Most reasons name the interval themselves.
            let range = range.filter(|_| !reason.as_ref().is_some_and(|reason| reason.contains("interval")));
            let known: Vec<String> = change
                .map(|change| format!("change {} %", signed(change, places)))
                .into_iter()
                .chain(range)
                .collect();
            let known = if known.is_empty() { String::new() } else { format!(" ({})", known.join(", ")) };
            let because = reason.map_or(String::new(), |reason| format!(": {reason}"));
            format!("Whether {arm} changes {what} is undecided{known}{because}.")
        }
        (Some(Verdict::Equivalent), change) => {
            let known =
                change.map(|change| format!("change {} %", signed(change, places))).into_iter().chain(range);
            let known = known.collect::<Vec<_>>().join(", ");
            let known = if known.is_empty() { String::new() } else { format!(" ({known})") };
            let least = percent(comparison.min_effect_pct);
            format!(
                "With {arm}, {what} {be} within ±{least} of that with {base}{known}: equivalent{because}."
            )
        }
        (verdict, Some(change)) => {
            let direction = if change < 0.0 { "lower" } else { "higher" };
            let size = signed(change.abs(), places);
            let range = range.map_or(String::new(), |range| format!(" ({range})"));
            let verdict = verdict.map_or("no verdict, it describes the run", verdict_name);
            format!(
                "With {arm}, {what} {be} {} % {direction} than with {base}{range}: {verdict}{because}.",
                size.trim_start_matches('+')
            )
        }
        (verdict, None) => {
            let verdict = verdict.map_or("not to be compared", verdict_name);
            format!("With {arm}, {what} {be} {verdict}{}{because}.", means(comparison))
        }
    };
    if let Some(alone) = alone(comparison) {
        let _ = write!(text, " Alone it would be {}.", verdict_name(alone));
    }
    text
}

/// " (12.0 ± 3.1 segments, 0 ± 0 with off)", for a change that has no percentage.
fn means(comparison: &Comparison) -> String {
    let (Some(of_arm), Some(of_base)) = (arm(comparison), base(comparison)) else { return String::new() };
    let scale = Scale::of(&comparison.unit, &[of_arm, of_base]);
    format!(
        " (mean {} {}, {} with {})",
        scale.show(of_arm.mean),
        scale.unit,
        scale.show(of_base.mean),
        name(&comparison.base.arm)
    )
}

/// How the cells of a sweep came out on one metric.
fn summary(family: &[&Comparison]) -> String {
    let Some(first) = family.first() else { return String::new() };
    let mut parts = Vec::new();
    for verdict in IN_ORDER {
        let members: Vec<&&Comparison> = family.iter().filter(|c| corrected(c) == Some(verdict)).collect();
        let changes: Vec<f64> = members.iter().filter_map(|c| change(c).0).collect();
        if members.is_empty() {
            continue;
        }
        let mut part = format!("{} in {} of {} cells", verdict_name(verdict), members.len(), family.len());
        let low = changes.iter().copied().fold(f64::INFINITY, f64::min);
        let high = changes.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if matches!(verdict, Verdict::Better | Verdict::Worse) && low.is_finite() {
            let places = members.iter().map(|c| decimals(c)).max().unwrap_or(1);
            let range = if changes.len() == 1 {
                format!(" ({} %)", signed(low, places))
            } else {
                format!(" ({} … {} %)", signed(low, places), signed(high, places))
            };
            part.push_str(&range);
        }
        parts.push(part);
    }
    let mut reasons: Vec<String> = Vec::new();
    let undecided = family.iter().filter(|c| corrected(c) == Some(Verdict::Undecided));
    for reason in undecided.filter_map(|c| c.reason.as_deref()).map(foreign) {
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    let outcome =
        if parts.is_empty() { "no verdict, it describes the runs".to_owned() } else { enumerate(&parts) };
    let (arm, base) = (name(&first.arm.arm), name(&first.base.arm));
    let mut text = format!("{arm} against {base}, {}: {outcome}", described(first.metric, first.scope));
    match reasons.as_slice() {
        [] => {}
        [only] => {
            let _ = write!(text, " ({only})");
        }
        [one, more @ ..] => {
            let _ =
                write!(text, " ({one}; {} other {} in the record)", more.len(), plural(more.len(), "reason"));
        }
    }
    text.push('.');
    let lone: Vec<Verdict> = family.iter().filter_map(|c| alone(c)).collect();
    if !lone.is_empty() {
        let _ = write!(text, " Alone: {}.", enumerate(&counted(&lone)));
    }
    text
}
