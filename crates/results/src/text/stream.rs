//! Streams: one row for each cell of the sweep, and for each arm where a comparison came to nothing.
//!
//! A row is made of the complete runs of its cell; where there is none, of a run cut short, and the row says so. Two
//! columns of the same metric differ in whose it is, which is the second line of the heading. On a shared host the
//! column `both` has what the one kernel spent on both ends, and the ends are told apart by the time of their threads.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use haul_stats::estimate::two_modes;
use haul_stats::{CellValue, Metric, Reading, Scope};
use serde_json::Value as Json;

use super::number::{NONE, Number, Scale};
use super::table::{Align, Column, Table};
use super::wrap::{label, paragraph};
use super::{LONGEST_NAME, Layout, axis_name, axis_value, cell_name, enumerate, foreign, in_column_order};
use crate::record::{Cell, Document, Interval, Run, Status};

/// What a stream's table shows, in this order, where any run has it.
const SHOWN: [(Metric, Scope, &str); 8] = [
    (Metric::Throughput, Scope::Receiver, "throughput"),
    (Metric::CpuUtilization, Scope::Sender, "CPU"),
    (Metric::CpuUtilization, Scope::Receiver, "CPU"),
    (Metric::CpuUtilization, Scope::SharedHost, "CPU"),
    (Metric::ServiceDemand, Scope::Sender, "demand"),
    (Metric::ServiceDemand, Scope::Receiver, "demand"),
    (Metric::ServiceDemand, Scope::SharedHost, "demand"),
    (Metric::Retransmits, Scope::Sender, "retrans"),
];

/// The runs of one cell.
struct Row<'a> {
    cell: &'a Cell,
    arm: Option<&'a str>,
    all: usize,
    /// Those the numbers are made of.
    counted: Vec<&'a Run>,
    cut_short: bool,
}

impl Row<'_> {
    fn values(&self, metric: Metric, scope: Scope) -> Vec<f64> {
        let readings = self.counted.iter().filter_map(|run| reading(run, metric, scope));
        readings.filter_map(|reading| reading.value).map(haul_stats::Value::as_f64).collect()
    }
}

pub(super) fn reading(run: &Run, metric: Metric, scope: Scope) -> Option<&Reading> {
    run.readings.iter().find(|reading| reading.metric == metric && reading.scope == scope)
}

/// The runs by cell and arm, in the order a curve is read, whatever the order in which they ran.
fn rows(runs: &[Run]) -> Vec<Row<'_>> {
    let axes = in_column_order(runs.iter().flat_map(|run| run.cell.keys()));
    let mut arms: Vec<Option<&str>> = Vec::new();
    let mut groups: BTreeMap<(Vec<Option<&CellValue>>, usize), Vec<&Run>> = BTreeMap::new();
    for run in runs {
        let arm = run.arm.as_deref();
        let place = arms.iter().position(|known| *known == arm).unwrap_or_else(|| {
            arms.push(arm);
            arms.len() - 1
        });
        let levels = axes.iter().map(|axis| run.cell.get(*axis)).collect();
        groups.entry((levels, place)).or_default().push(run);
    }
    let mut rows = Vec::with_capacity(groups.len());
    for runs in groups.into_values() {
        let Some(first) = runs.first() else { continue };
        let (cell, arm) = (&first.cell, first.arm.as_deref());
        let of = |wanted: Status| runs.iter().copied().filter(move |run| run.status == wanted);
        let mut counted: Vec<&Run> = of(Status::Complete).collect();
        let cut_short = counted.is_empty();
        if cut_short {
            counted = of(Status::Interrupted).filter(|run| !run.readings.is_empty()).collect();
        }
        rows.push(Row { cell, arm, all: runs.len(), cut_short: cut_short && !counted.is_empty(), counted });
    }
    rows
}

pub(super) fn show(out: &mut String, document: &Document, layout: Layout) {
    let rows = rows(&document.runs);
    if rows.iter().all(|row| row.counted.is_empty()) {
        out.push_str("\nno run gave a number\n");
        return;
    }
    let repeated = rows.iter().any(|row| row.all != 1 || row.cut_short);
    let split: Vec<_> =
        rows.iter().map(|row| two_modes(&row.values(Metric::Throughput, Scope::Receiver))).collect();
    let mut table = Table { keys: keys(document, &rows), ..Table::default() };
    if repeated {
        let entries = rows.iter().zip(&split).map(|(row, split)| {
            let mut entry = match row.counted.len() {
                _ if row.cut_short => "part".to_owned(),
                counted if counted == row.all => counted.to_string(),
                counted => format!("{counted}/{}", row.all),
            };
            if split.is_some() {
                entry.push_str(" !");
            }
            entry
        });
        table.keys.push(Column::text(&["runs"], Align::Right, entries.collect()));
    }
    let columns = columns(&rows);
    for &(metric, scope, name) in &columns {
        let entries: Vec<Option<Number>> =
            rows.iter().map(|row| Number::of(&row.values(metric, scope))).collect();
        table.values.push(Column::numbers(&[name, whose(scope)], metric.facts().unit, &entries));
    }
    out.push('\n');
    out.push_str(&table.render(layout.columns()));
    let counts: Vec<usize> = rows.iter().map(|row| row.counted.len()).collect();
    spread_note(out, &counts, layout);
    if rows.iter().any(|row| row.cut_short) {
        paragraph(
            out,
            "  ",
            "part: of a run that was cut short; the numbers cover what had run",
            2,
            layout.columns(),
        );
    }
    for (row, split) in rows.iter().zip(&split) {
        points(out, row, rows.len() == 1, *split, layout);
    }
    absences(out, &rows, &columns, layout);
    sources(out, &rows, &columns, layout);
    if let [only] = document.runs.as_slice() {
        intervals(out, &only.intervals, layout);
    } else if document.runs.iter().any(|run| !run.intervals.is_empty()) {
        paragraph(
            out,
            "",
            "The intervals of each run are in the record: --format json shows them.",
            0,
            layout.columns(),
        );
    }
}

/// The columns that name a row: the axes of the sweep, and message and flows in any case.
fn keys(document: &Document, rows: &[Row]) -> Vec<Column> {
    let (message, flows) = ("message_bytes".to_owned(), "flows".to_owned());
    let axes = rows.iter().flat_map(|row| row.cell.keys()).chain([&message, &flows]);
    let column = |axis: &str| {
        let entries: Vec<Option<String>> = rows
            .iter()
            .map(|row| {
                let value = row.cell.get(axis).cloned().or_else(|| option(document, row, axis));
                value.map(|value| axis_value(axis, &value))
            })
            .collect();
        let known = entries.iter().any(Option::is_some);
        let entries = entries.into_iter().map(|entry| entry.unwrap_or_else(|| NONE.to_owned())).collect();
        known.then(|| Column::text(&[&axis_name(axis)], Align::Right, entries))
    };
    let mut keys: Vec<Column> = in_column_order(axes).into_iter().filter_map(column).collect();
    if rows.iter().any(|row| row.arm.is_some()) {
        let arms =
            rows.iter().map(|row| row.arm.map_or_else(|| NONE.to_owned(), |arm| label(arm, LONGEST_NAME)));
        keys.push(Column::text(&["arm"], Align::Left, arms.collect()));
    }
    keys
}

/// What an axis stood at where it was not swept: in force, else as asked for.
fn option(document: &Document, row: &Row, axis: &str) -> Option<CellValue> {
    let short = axis.strip_suffix("_bytes").unwrap_or(axis);
    let effective = row.counted.iter().map(|run| &run.effective);
    let value =
        effective.chain([&document.options.effective, &document.options.requested]).find_map(|options| {
            options.get(axis).or_else(|| options.get(short)).filter(|value| !value.is_null())
        })?;
    match value {
        Json::String(text) => Some(CellValue::Text(text.clone())),
        value => value.as_u64().map(CellValue::Int),
    }
}

/// The columns of which any run has a reading. Without the receiver's throughput the sender's is shown, as such.
fn columns(rows: &[Row]) -> Vec<(Metric, Scope, &'static str)> {
    let has = |metric, scope, value: bool| {
        let runs = rows.iter().flat_map(|row| &row.counted);
        runs.filter_map(|run| reading(run, metric, scope)).any(|reading| !value || reading.value.is_some())
    };
    let mut columns: Vec<_> =
        SHOWN.into_iter().filter(|&(metric, scope, _)| has(metric, scope, false)).collect();
    if !has(Metric::Throughput, Scope::Receiver, true) && has(Metric::Throughput, Scope::Sender, true) {
        columns.insert(columns.len().min(1), (Metric::Throughput, Scope::Sender, "throughput"));
    }
    columns
}

pub(super) fn whose(scope: Scope) -> &'static str {
    match scope {
        Scope::Sender => "sender",
        Scope::Receiver => "receiver",
        Scope::Client => "client",
        Scope::Server => "server",
        Scope::SharedHost => "both",
        Scope::Run => "",
    }
}

/// Says what ± is: never an interval of the mean.
pub(super) fn spread_note(out: &mut String, counts: &[usize], layout: Layout) {
    let Some(&most) = counts.iter().max() else { return };
    if most < 2 {
        return;
    }
    let runs = if counts.iter().all(|&count| count == most) {
        format!("{most} runs")
    } else {
        "the runs of a row".to_owned()
    };
    paragraph(out, "± ", &format!("standard deviation of {runs}"), 2, layout.columns());
}

/// The throughput of each run of a cell, where there is room for it or where one mean would mislead.
fn points(
    out: &mut String,
    row: &Row,
    alone: bool,
    split: Option<haul_stats::estimate::TwoModes>,
    layout: Layout,
) {
    let values = row.values(Metric::Throughput, Scope::Receiver);
    if values.len() < 2 || !(alone || split.is_some()) {
        return;
    }
    let numbers: Vec<Number> = values.iter().map(|&mean| Number { mean, stddev: None }).collect();
    let scale = Scale::of(Metric::Throughput.facts().unit, &numbers);
    if let Some(modes) = split {
        let at =
            if row.cell.is_empty() || alone { String::new() } else { format!("{}: ", cell_name(row.cell)) };
        let text = format!(
            "{at}two groups of runs, {} near {} and {} near {} {}: no single mean describes them",
            modes.n_low,
            scale.show(modes.low),
            modes.n_high,
            scale.show(modes.high),
            scale.unit
        );
        paragraph(out, "! ", &text, 2, layout.columns());
    }
    let shown: Vec<String> = values.iter().map(|&value| scale.show(value)).collect();
    paragraph(out, "  ", &format!("each run, {}: {}", scale.unit, shown.join(" ")), 4, layout.columns());
}

/// Why numbers are missing, by column.
fn absences(out: &mut String, rows: &[Row], columns: &[(Metric, Scope, &str)], layout: Layout) {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for &(metric, scope, name) in columns {
        let runs = rows.iter().flat_map(|row| &row.counted);
        let absent =
            runs.filter_map(|run| reading(run, metric, scope)).filter(|reading| reading.value.is_none());
        for reason in absent.map(|reading| reading.reason.as_deref().unwrap_or("no reason was given")) {
            let column = format!("{name} ({})", whose(scope));
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, columns)) if columns.contains(&column) => {}
                Some((_, columns)) => columns.push(column),
                None => reasons.push((reason, vec![column])),
            }
        }
    }
    for (reason, columns) in reasons {
        let text = format!("{}: {}", enumerate(&columns), foreign(reason));
        paragraph(out, &format!("{NONE} "), &text, 2, layout.columns());
    }
}

/// Where the CPU figures come from: the same column can mean another thing on another kernel.
fn sources(out: &mut String, rows: &[Row], columns: &[(Metric, Scope, &str)], layout: Layout) {
    for metric in [Metric::CpuUtilization, Metric::ServiceDemand] {
        let mut by_source: Vec<(&str, Vec<String>, &str)> = Vec::new();
        for &(_, scope, name) in columns.iter().filter(|(shown, _, _)| *shown == metric) {
            let runs = rows.iter().flat_map(|row| &row.counted);
            let readings =
                runs.filter_map(|run| reading(run, metric, scope)).filter(|reading| reading.value.is_some());
            for source in readings.map(|reading| reading.source.as_ref()) {
                let whose = whose(scope).to_owned();
                match by_source.iter_mut().find(|(known, _, _)| *known == source) {
                    Some((_, scopes, _)) if scopes.contains(&whose) => {}
                    Some((_, scopes, _)) => scopes.push(whose),
                    None => by_source.push((source, vec![whose], name)),
                }
            }
        }
        for (source, scopes, name) in by_source {
            let mut text = String::new();
            let _ = write!(text, "{name} ({}): {}", enumerate(&scopes), foreign(source));
            paragraph(out, "  ", &text, 4, layout.columns());
        }
    }
}

/// The slices of the window of a single run.
fn intervals(out: &mut String, intervals: &[Interval], layout: Layout) {
    if intervals.is_empty() {
        return;
    }
    let number = |value: f64| Number { mean: value, stddev: None }.finite();
    let column = |heading: &[&str], unit: &str, pick: &dyn Fn(&Interval) -> Option<f64>| {
        let entries: Vec<Option<Number>> =
            intervals.iter().map(|slice| pick(slice).and_then(number)).collect();
        Column::numbers(heading, unit, &entries)
    };
    let mut table = Table {
        keys: vec![
            column(&["from"], "s", &|slice| Some(slice.start_s)),
            column(&["to"], "s", &|slice| Some(slice.start_s + slice.seconds)),
        ],
        values: vec![column(&["throughput"], "bit/s", &|slice| slice.bits_per_second)],
        stacked: false,
    };
    if intervals.iter().any(|slice| slice.retransmits.is_some()) {
        table
            .values
            .push(column(&["retrans"], "segments", &|slice| slice.retransmits.map(|count| count as f64)));
    }
    layout.heading(out, "intervals");
    out.push_str(&table.render(layout.columns()));
}
