//! The figures of a survey: one axis as a table with a row for each cell, two as a map of medians, more as one map for each
//! combination of the others.
//!
//! A median has the interval of [`haul_stats::estimate::median_interval`], which assumes nothing of how samples are distributed.
//! The first cell, in the order the values were given, is what the others are compared with; where the two intervals overlap
//! the change is marked, because then it may be none. Colour only says again what the numbers say.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use haul_stats::estimate::{MedianInterval, Summary, median_interval};
use haul_stats::{CellValue, Metric, Scope};
use serde_json::Value as Json;

use super::number::{NONE, Number, Scale, percent, signed};
use super::rows::{Row, rows};
use super::table::{Align, Column, Table};
use super::wrap::paragraph;
use super::{Layout, Style, axis_name, axis_value, document as whole, in_column_order, plural};
use crate::record::Document;

/// How sure an interval is to be.
const CONFIDENCE: f64 = 0.95;

/// Backgrounds of a map from the slowest to the fastest, of the 256 colours of terminals; black on each can be read.
const HEAT: [u8; 5] = [167, 215, 229, 151, 71];

/// Figures that others published, to stand beside those of a survey of one axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Beside {
    /// The axis, as the record names it.
    pub axis: String,
    /// Heading of the table.
    pub title: String,
    /// The bytes whose time is shown, in seconds.
    pub bytes: u64,
    /// What the columns are called.
    pub columns: Vec<String>,
    /// What they are, and where they come from.
    pub note: String,
    /// The figures.
    pub rows: Vec<BesideRow>,
}

/// Published figures of one point of the axis.
#[derive(Debug, Clone, PartialEq)]
pub struct BesideRow {
    /// Where on the axis.
    pub level: u64,
    /// The figures in seconds, by column; `None` where none was published.
    pub values: Vec<Option<f64>>,
}

/// The document of a survey as text, with what others published beside it.
#[must_use]
pub fn survey(document: &Document, beside: Option<&Beside>, layout: impl Into<Layout>) -> String {
    let layout = layout.into();
    let mut out = whole(document, layout);
    if let Some(beside) = beside {
        published(&mut out, document, beside, layout);
    }
    out
}

/// What is known of a cell: the median of its rate, and where that lies.
#[derive(Debug, Clone, Copy)]
struct Rate {
    summary: Summary,
    interval: Option<MedianInterval>,
}

impl Rate {
    fn of(row: &Row) -> Option<Self> {
        let values = row.values(Metric::CopyRate, Scope::Run);
        Some(Self { summary: Summary::of(&values)?, interval: median_interval(&values, CONFIDENCE) })
    }

    /// Whether the samples tell the two apart.
    fn is_apart_from(&self, other: &Self) -> bool {
        self.interval.zip(other.interval).is_some_and(|(own, other)| own.is_apart_from(&other))
    }

    /// What stands before a change: nothing where it is one, or where it is the base's own.
    fn mark(&self, base: &Self) -> &'static str {
        if self.is_apart_from(base) || self.summary == base.summary { "" } else { "~ " }
    }

    fn change_pct(&self, base: &Self) -> f64 {
        (self.summary.median / base.summary.median - 1.0) * 100.0
    }
}

pub(super) fn show(out: &mut String, document: &Document, layout: Layout) {
    let rows = in_given_order(document);
    let rates: Vec<Option<Rate>> = rows.iter().map(Rate::of).collect();
    if rates.iter().all(Option::is_none) {
        out.push_str("\nno sample gave a number\n");
        return;
    }
    let axes = in_column_order(rows.iter().flat_map(|row| row.cell.keys()));
    out.push('\n');
    if axes.len() < 2 {
        table(out, &rows, &rates, layout);
    } else {
        maps(out, &axes, &rows, &rates, layout);
    }
    conditions(out, document, layout);
}

/// The rows, the values of each axis in the order they were given.
fn in_given_order(document: &Document) -> Vec<Row<'_>> {
    let mut rows = rows(&document.runs);
    let requested = &document.options.requested;
    let place = |axis: &String, value: &CellValue| {
        let same = |given: &Json| match value {
            CellValue::Int(value) => given.as_u64() == Some(*value),
            CellValue::Text(value) => given.as_str() == Some(value),
        };
        let given = requested.get(axis).and_then(Json::as_array);
        given.and_then(|given| given.iter().position(same)).unwrap_or(usize::MAX)
    };
    let places =
        |row: &Row| -> Vec<usize> { row.cell.iter().map(|(axis, value)| place(axis, value)).collect() };
    rows.sort_by_cached_key(places);
    rows
}

fn scale(rates: &[Option<Rate>]) -> Scale {
    let known: Vec<Number> =
        rates.iter().flatten().map(|rate| Number { mean: rate.summary.median, stddev: None }).collect();
    Scale::of(Metric::CopyRate.facts().unit, &known)
}

fn table(out: &mut String, rows: &[Row], rates: &[Option<Rate>], layout: Layout) {
    let scale = scale(rates);
    let text = |heading: &[&str], of: &dyn Fn(&Rate) -> String| {
        let entries = rates.iter().map(|rate| rate.as_ref().map_or_else(|| NONE.to_owned(), of));
        Column::text(heading, Align::Right, entries.collect())
    };
    let range = |low: f64, high: f64| format!("{}..{}", scale.show(low), scale.show(high));
    let interval = |rate: &Rate| rate.interval.map_or_else(|| NONE.to_owned(), |of| range(of.low, of.high));
    let whole = |rate: &Rate| range(rate.summary.min, rate.summary.max);
    let mut table = Table { keys: axis_keys(rows), ..Table::default() };
    table.values.push(text(&["rate", "median", &scale.unit], &|rate| scale.show(rate.summary.median)));
    if rates.iter().flatten().any(|rate| rate.summary.n > 1) {
        table.values.push(text(&["rate", "interval", &scale.unit], &interval).joined(true));
        table.values.push(text(&["rate", "min..max", &scale.unit], &whole).joined(true));
    }
    let base = rates.first().copied().flatten();
    if let Some(base) = base.filter(|_| rates.len() > 1) {
        table.values.push(text(&["change", "%"], &|rate| change(rate, &base)));
    }
    for (metric, heading, unit, factor) in [
        (Metric::CopyCpu, "CPU", Metric::CopyCpu.facts().unit, 1.0),
        (Metric::CopyTime, "call", "ns", 1.0),
        (Metric::ReadTime, "read-through", "us", 1e6),
        (Metric::WriteTime, "write-through", "us", 1e6),
        (Metric::CyclesPerByte, "cycles", Metric::CyclesPerByte.facts().unit, 1.0),
        (Metric::CeilingShare, "of ceiling", Metric::CeilingShare.facts().unit, 1.0),
    ] {
        let median = |row: &Row| {
            let median = Summary::of(&row.values(metric, Scope::Run))?.median;
            Number { mean: median * factor, stddev: None }.finite()
        };
        let entries: Vec<Option<Number>> = rows.iter().map(median).collect();
        if entries.iter().any(Option::is_some) {
            table.values.push(Column::numbers(&[heading], unit, &entries));
        }
    }
    out.push_str(&table.render(layout.columns()));
    notes(out, rates, base.is_some() && rates.len() > 1, layout);
}

/// The columns that name a row; what was not swept stands above.
fn axis_keys(rows: &[Row]) -> Vec<Column> {
    if rows.iter().all(|row| row.cell.is_empty()) {
        return Vec::new();
    }
    let axes = in_column_order(rows.iter().flat_map(|row| row.cell.keys()));
    let column = |axis: &str| {
        let entries = rows
            .iter()
            .map(|row| row.cell.get(axis).map_or_else(|| NONE.to_owned(), |at| axis_value(axis, at)));
        Column::text(&[&axis_name(axis)], Align::Right, entries.collect())
    };
    axes.into_iter().map(column).collect()
}

fn change(rate: &Rate, base: &Rate) -> String {
    format!("{}{}", rate.mark(base), signed(rate.change_pct(base), 1))
}

/// What the figures stand on.
fn notes(out: &mut String, rates: &[Option<Rate>], compared: bool, layout: Layout) {
    let known = || rates.iter().flatten();
    let (least, most) = (
        known().map(|rate| rate.summary.n).min().unwrap_or(0),
        known().map(|rate| rate.summary.n).max().unwrap_or(0),
    );
    let samples = if least == most {
        format!("{most} {}", plural(most, "sample"))
    } else {
        format!("{least} to {most} samples")
    };
    let reached = known().filter_map(|rate| Some(rate.interval?.confidence)).fold(f64::INFINITY, f64::min);
    let text = if reached.is_finite() {
        format!(
            "medians of {samples}; the interval is that of the median, at {}, whatever the distribution",
            percent((reached * 1000.0).floor() / 10.0)
        )
    } else {
        format!("medians of {samples}: too few for an interval, which takes 6")
    };
    paragraph(out, "  ", &text, 4, layout.columns());
    if compared {
        let text = "change: against the first row; ~ where the two intervals overlap, so that it may be none";
        paragraph(out, "  ", text, 4, layout.columns());
    }
}

/// The rates of a map by their places on its two axes.
type Block<'a> = BTreeMap<(&'a CellValue, &'a CellValue), &'a Rate>;

/// A map for each combination of the axes beyond the two longest.
fn maps(out: &mut String, axes: &[&str], rows: &[Row], rates: &[Option<Rate>], layout: Layout) {
    let levels = |axis: &str| {
        let mut levels: Vec<&CellValue> = Vec::new();
        for value in rows.iter().filter_map(|row| row.cell.get(axis)) {
            if !levels.contains(&value) {
                levels.push(value);
            }
        }
        levels
    };
    let mut by_length: Vec<&str> = axes.to_vec();
    by_length.sort_by_key(|axis| std::cmp::Reverse(levels(axis).len()));
    let [down, across, others @ ..] = by_length.as_slice() else { return };
    let scale = scale(rates);
    let medians = || rates.iter().flatten().map(|rate| rate.summary.median);
    let bounds = (medians().fold(f64::INFINITY, f64::min), medians().fold(0.0, f64::max));
    let mut blocks: Vec<(Vec<&CellValue>, Block<'_>)> = Vec::new();
    for (row, rate) in rows.iter().zip(rates) {
        let (Some(at_down), Some(at_across)) = (row.cell.get(*down), row.cell.get(*across)) else { continue };
        let name: Vec<&CellValue> = others.iter().filter_map(|axis| row.cell.get(*axis)).collect();
        let known = blocks.iter().position(|(known, _)| *known == name);
        let index = known.unwrap_or_else(|| {
            blocks.push((name, BTreeMap::new()));
            blocks.len() - 1
        });
        if let (Some(rate), Some((_, block))) = (rate, blocks.get_mut(index)) {
            block.insert((at_down, at_across), rate);
        }
    }
    for (index, (name, block)) in blocks.iter().enumerate() {
        let named: Vec<String> = others
            .iter()
            .zip(name)
            .map(|(axis, value)| format!("{} {}", axis_name(axis), axis_value(axis, value)))
            .collect();
        if !named.is_empty() {
            let _ = writeln!(out, "{}{}", if index > 0 { "\n" } else { "" }, named.join(", "));
        }
        let map =
            Map { down, across, rows: levels(down), columns: levels(across), block, scale: &scale, bounds };
        map.show(out, layout);
    }
    let widest = rates.iter().flatten().filter_map(|rate| {
        let interval = rate.interval?;
        Some((interval.high - interval.low) / 2.0 / interval.median * 100.0)
    });
    let widest = widest.fold(0.0, f64::max);
    notes(out, rates, false, layout);
    let text = format!(
        "rate in {}; half of the widest interval is {} of its median; every sample, with its CPU time, is in --format json",
        scale.unit,
        percent(widest)
    );
    paragraph(out, "  ", &text, 4, layout.columns());
}

/// A map of two axes.
struct Map<'a> {
    down: &'a str,
    across: &'a str,
    rows: Vec<&'a CellValue>,
    columns: Vec<&'a CellValue>,
    block: &'a Block<'a>,
    scale: &'a Scale,
    bounds: (f64, f64),
}

impl Map<'_> {
    /// As many columns side by side as fit, the rest below.
    fn show(&self, out: &mut String, layout: Layout) {
        let names: Vec<String> = self.rows.iter().map(|row| axis_value(self.down, row)).collect();
        let corner = format!("{} \\ {}", axis_name(self.down), axis_name(self.across));
        let first = names.iter().chain([&corner]).map(|name| name.chars().count()).max().unwrap_or(0);
        let columns: Vec<(String, Vec<Option<&Rate>>)> =
            self.columns.iter().map(|at| self.column(at)).collect();
        let text = |rate: Option<&Rate>| {
            rate.map_or_else(|| NONE.to_owned(), |rate| self.scale.show(rate.summary.median))
        };
        let width = |(name, rates): &(String, Vec<Option<&Rate>>)| {
            let widest = rates.iter().map(|rate| text(*rate).chars().count()).max().unwrap_or(0);
            // A blank on either side, so that a colour has an edge.
            widest.max(name.chars().count()) + 2
        };
        let mut rest = columns.as_slice();
        while !rest.is_empty() {
            let mut used = first;
            let fitting = rest.iter().take_while(|column| {
                used += width(column);
                used <= layout.columns()
            });
            let (page, left) = rest.split_at(fitting.count().max(1));
            rest = left;
            let _ = write!(out, "{corner:>first$}");
            for column in page {
                let _ = write!(out, "{:>1$} ", column.0, width(column) - 1);
            }
            trim(out);
            for (row, name) in names.iter().enumerate() {
                let _ = write!(out, "{name:>first$}");
                for column in page {
                    let rate = column.1.get(row).copied().flatten();
                    let shown = format!("{:>1$} ", text(rate), width(column) - 1);
                    out.push_str(&self.painted(&shown, rate, layout.style));
                }
                trim(out);
            }
            if !rest.is_empty() {
                out.push('\n');
            }
        }
    }

    fn column(&self, at: &CellValue) -> (String, Vec<Option<&Rate>>) {
        let rates = self.rows.iter().map(|row| self.block.get(&(*row, at)).copied());
        (axis_value(self.across, at), rates.collect())
    }

    fn painted(&self, text: &str, rate: Option<&Rate>, style: Style) -> String {
        let (low, high) = self.bounds;
        let Some(rate) = rate.filter(|_| style == Style::Colour && high > low) else {
            return text.to_owned();
        };
        let share = (rate.summary.median - low) / (high - low);
        let steps = HEAT.len();
        let step = (0..steps).rev().find(|&step| share >= step as f64 / steps as f64).unwrap_or(0);
        format!("\u{1b}[30;48;5;{}m{text}\u{1b}[0m", HEAT[step])
    }
}

/// Ends a line without the blanks before its end.
fn trim(out: &mut String) {
    out.truncate(out.trim_end_matches(' ').len());
    out.push('\n');
}

/// On which CPU, with which clock, and what was read.
fn conditions(out: &mut String, document: &Document, layout: Layout) {
    let effective = &document.options.effective;
    let sampling = effective.get("sampling");
    let number = |name: &str| sampling?.get(name)?.as_f64();
    let mut parts = Vec::new();
    if let Some(name) = effective.get("source").and_then(|source| source.get("name")).and_then(Json::as_str) {
        parts.push(super::foreign(name));
    }
    for axis in ["block_bytes", "working_set_bytes"] {
        if let Some(value) = document.options.requested.get(axis).and_then(Json::as_u64) {
            parts.push(format!("{} {}", axis_name(axis), axis_value(axis, &CellValue::Int(value))));
        }
    }
    let written = document.options.requested.get("direction").and_then(Json::as_str) == Some("write");
    for axis in ["with", "routine"] {
        if let Some(value) = document.options.requested.get(axis).and_then(Json::as_str) {
            parts.push(format!("{axis} {}", super::foreign(value)));
        }
    }
    if written {
        parts.push("written to".to_owned());
    }
    if let Some(cpu) = sampling.and_then(|sampling| sampling.get("cpu")).and_then(Json::as_u64) {
        parts.push(format!("on CPU {cpu}"));
    }
    if let (Some(sample), Some(step)) = (number("sample_s"), number("clock_step_s")) {
        let length = if sample < 1e-3 {
            format!("{:.0} µs", sample * 1e6)
        } else {
            format!("{:.0} ms", sample * 1e3)
        };
        parts.push(format!("samples of {length} or more"));
        parts.push(format!("clock step {:.0} ns", step * 1e9));
    }
    if let (Some(made), Some(asked)) =
        (number("rounds"), document.options.requested.get("rounds").and_then(Json::as_f64))
        && made < asked
    {
        parts.push(format!("{made} rounds of {asked}, as far as the time went"));
    }
    if !parts.is_empty() {
        paragraph(out, "  ", &parts.join("; "), 4, layout.columns());
    }
}

/// Today's figures beside the published ones.
fn published(out: &mut String, document: &Document, beside: &Beside, layout: Layout) {
    let rows = in_given_order(document);
    let only = |row: &Row| match row.cell.iter().next() {
        Some((axis, CellValue::Int(level))) if row.cell.len() == 1 && *axis == beside.axis => Some(*level),
        _ => None,
    };
    let today: Vec<(u64, Option<Rate>)> =
        rows.iter().filter_map(|row| Some((only(row)?, Rate::of(row)))).collect();
    let shared = today.iter().any(|(level, _)| beside.rows.iter().any(|row| row.level == *level));
    let Some(base) =
        today.first().and_then(|(_, rate)| *rate).filter(|_| shared && today.len() == rows.len())
    else {
        return;
    };
    layout.heading(out, &beside.title);
    let column = |heading: &[&str], entries: Vec<String>| Column::text(heading, Align::Right, entries);
    let or_none = |value: Option<String>| value.unwrap_or_else(|| NONE.to_owned());
    let levels = today.iter().map(|(level, _)| axis_value(&beside.axis, &CellValue::Int(*level)));
    let mut table =
        Table { keys: vec![column(&[&axis_name(&beside.axis)], levels.collect())], ..Table::default() };
    let seconds = |rate: &Rate| beside.bytes as f64 / rate.summary.median;
    let now =
        today.iter().map(|(_, rate)| or_none(rate.as_ref().map(|rate| format!("{:.4}", seconds(rate)))));
    table.values.push(column(&["today", "s"], now.collect()));
    let slower = |rate: &Rate| {
        format!("{}{}", rate.mark(&base), signed((seconds(rate) / seconds(&base) - 1.0) * 100.0, 1))
    };
    let changes = today.iter().map(|(_, rate)| or_none(rate.as_ref().map(slower)));
    table.values.push(column(&["today", "%"], changes.collect()).joined(true));
    let first = today.first().map(|(level, _)| *level);
    for (index, name) in beside.columns.iter().enumerate() {
        let figure = |level: u64| {
            let row = beside.rows.iter().find(|row| row.level == level)?;
            row.values.get(index).copied().flatten()
        };
        let shown = today.iter().map(|(level, _)| or_none(figure(*level).map(|value| format!("{value:.3}"))));
        table.values.push(column(&[name, "s"], shown.collect()));
        // Of the first column alone: it is what today's copy is the successor of.
        if let (0, Some(base)) = (index, first.and_then(figure)) {
            let change = |value: f64| signed((value / base - 1.0) * 100.0, 1);
            let shown = today.iter().map(|(level, _)| or_none(figure(*level).map(change)));
            table.values.push(column(&[name, "%"], shown.collect()).joined(true));
        }
    }
    out.push_str(&table.render(layout.columns()));
    paragraph(out, "  ", &format!("%: against the first row. {}", beside.note), 4, layout.columns());
}
