//! The figures of a survey: one axis as a table with a row for each cell, two as a map of medians, more as one map for each
//! combination of the others; or a row for each cell in any case.
//!
//! All numbers come from the document's own figures ([`crate::figures`]), so that text and JSON say the same. What a cell is
//! compared with is said below the numbers; where the two intervals overlap it is marked, in tables and maps alike, because then
//! there may be no change. Colour only says again what the numbers say.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use haul_stats::{CellValue, Metric, Scope};
use serde_json::Value as Json;

use super::number::{NONE, Number, Scale, percent, signed};
use super::table::{Align, Column, Table};
use super::wrap::paragraph;
use super::{Layout, Style, axis_name, axis_value, document_shaped, in_column_order};
use crate::figures::{self, FEWEST, compared, levels};
use crate::record::{Cell, CellFigure, Document};

/// Backgrounds of a map from the slowest to the fastest, of the 256 colours of terminals; black on each can be read.
const HEAT: [u8; 5] = [167, 215, 229, 151, 71];

/// What stands before a figure whose interval overlaps that of its base, or that has none.
const MARK: &str = "~";

/// How the cells of a survey are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shape {
    /// A table where one axis is swept, maps where more are.
    #[default]
    Maps,
    /// A row for each cell, with all that is known of it.
    Rows,
}

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
pub fn survey(
    document: &Document,
    beside: Option<&Beside>,
    shape: Shape,
    layout: impl Into<Layout>,
) -> String {
    let layout = layout.into();
    let mut out = document_shaped(document, shape, layout);
    if let Some(beside) = beside {
        published(&mut out, document, beside, layout);
    }
    out
}

/// What is known of a cell: its figures by metric.
struct Known<'a> {
    cell: &'a Cell,
    figures: Vec<&'a CellFigure>,
}

impl<'a> Known<'a> {
    fn figure(&self, metric: Metric) -> Option<&'a CellFigure> {
        let of = |figure: &&&CellFigure| figure.metric == metric && figure.scope == Scope::Run;
        self.figures.iter().find(of).copied()
    }

    /// The figure that stands for the cell.
    fn rate(&self) -> Option<&'a CellFigure> {
        self.figure(Metric::CopyRate).filter(|figure| figure.median.is_some_and(f64::is_finite))
    }
}

impl CellFigure {
    /// What stands before it: nothing where it is the base, or differs from it.
    fn mark(&self) -> &'static str {
        if self.change_pct.is_none() || self.apart == Some(true) { "" } else { MARK }
    }

    fn middle(&self) -> f64 {
        self.median.unwrap_or(f64::NAN)
    }
}

/// The figures of the document, or of its runs where it is of a haul that kept none.
fn figures_of(document: &Document) -> Cow<'_, [CellFigure]> {
    if document.cells.is_empty() {
        return Cow::Owned(figures::cells(document));
    }
    Cow::Borrowed(&document.cells)
}

/// The figures by cell, in their order.
fn by_cell(figures: &[CellFigure]) -> Vec<Known<'_>> {
    let mut places: BTreeMap<&Cell, usize> = BTreeMap::new();
    let mut known: Vec<Known<'_>> = Vec::new();
    for figure in figures {
        let place = *places.entry(&figure.cell).or_insert_with(|| {
            known.push(Known { cell: &figure.cell, figures: Vec::new() });
            known.len() - 1
        });
        if let Some(known) = known.get_mut(place) {
            known.figures.push(figure);
        }
    }
    known
}

/// How many cells there are, and how many of them have no number.
pub(super) fn count(document: &Document) -> (usize, usize) {
    let figures = figures_of(document);
    let known = by_cell(&figures);
    (known.len(), known.iter().filter(|known| known.figures.iter().all(|figure| figure.n == 0)).count())
}

pub(super) fn show(out: &mut String, document: &Document, shape: Shape, layout: Layout) {
    let figures = figures_of(document);
    let known = by_cell(&figures);
    if known.iter().all(|known| known.rate().is_none()) {
        out.push_str("\nno sample gave a number\n");
        return;
    }
    let cells: Vec<&Cell> = known.iter().map(|known| known.cell).collect();
    let mut axes = in_column_order(cells.iter().flat_map(|cell| cell.keys()));
    axes.retain(|axis| levels(&cells, axis).len() > 1);
    out.push('\n');
    if axes.len() < 2 || shape == Shape::Rows {
        table(out, &axes, &known, layout);
    } else {
        maps(out, &axes, &cells, &known, layout);
    }
    ceilings(out, &figures, layout);
    conditions(out, document, &cells, layout);
}

fn scale(known: &[Known<'_>]) -> Scale {
    let rates = known.iter().filter_map(Known::rate);
    let rates: Vec<Number> = rates.map(|rate| Number { mean: rate.middle(), stddev: None }).collect();
    Scale::of(Metric::CopyRate.facts().unit, &rates)
}

fn table(out: &mut String, axes: &[&str], known: &[Known<'_>], layout: Layout) {
    let scale = scale(known);
    let text = |heading: &[&str], of: &dyn Fn(&CellFigure) -> String| {
        let entries = known.iter().map(|known| known.rate().map_or_else(|| NONE.to_owned(), of));
        Column::text(heading, Align::Right, entries.collect())
    };
    let range = |ends: Option<(f64, f64)>| {
        ends.map_or_else(
            || NONE.to_owned(),
            |(low, high)| format!("{}..{}", scale.show(low), scale.show(high)),
        )
    };
    let rates = || known.iter().filter_map(Known::rate);
    let mut table = Table { keys: axis_keys(axes, known), ..Table::default() };
    table.values.push(text(&["rate", "median", &scale.unit], &|rate| scale.show(rate.middle())));
    if rates().any(|rate| rate.interval.is_some()) {
        let interval = |rate: &CellFigure| range(rate.interval.map(|[low, high]| (low, high)));
        table.values.push(text(&["rate", "interval", &scale.unit], &interval).joined(true));
    }
    if rates().any(|rate| rate.n > 1) {
        let whole = |rate: &CellFigure| range(rate.min.zip(rate.max));
        table.values.push(text(&["rate", "min..max", &scale.unit], &whole).joined(true));
    }
    if rates().any(|rate| rate.change_pct.is_some()) {
        table.values.push(text(&["change", "%"], &change));
    }
    for (metric, heading, unit, factor) in [
        (Metric::CopyCpu, "CPU", Metric::CopyCpu.facts().unit, 1.0),
        (Metric::CopyTime, "call", "ns", 1.0),
        (Metric::ReadTime, "read-through", "us", 1e6),
        (Metric::WriteTime, "write-through", "us", 1e6),
        (Metric::CyclesPerByte, "cycles", Metric::CyclesPerByte.facts().unit, 1.0),
        (Metric::InstructionsPerByte, "instructions", Metric::InstructionsPerByte.facts().unit, 1.0),
        (Metric::CeilingShare, "of ceiling", Metric::CeilingShare.facts().unit, 1.0),
    ] {
        let median = |known: &Known<'_>| {
            Number { mean: known.figure(metric)?.median? * factor, stddev: None }.finite()
        };
        let entries: Vec<Option<Number>> = known.iter().map(median).collect();
        if entries.iter().any(Option::is_some) {
            table.values.push(Column::numbers(&[heading], unit, &entries));
        }
    }
    out.push_str(&table.render(layout.columns()));
    notes(out, known, layout);
    compared_with(out, known, "change: against", layout);
}

/// The columns that name a row; what was not swept stands below.
fn axis_keys(axes: &[&str], known: &[Known<'_>]) -> Vec<Column> {
    let column = |axis: &&str| {
        let entry = |known: &Known<'_>| {
            known.cell.get(*axis).map_or_else(|| NONE.to_owned(), |at| axis_value(axis, at))
        };
        Column::text(&[&axis_name(axis)], Align::Right, known.iter().map(entry).collect())
    };
    axes.iter().map(column).collect()
}

fn change(rate: &CellFigure) -> String {
    let Some(change) = rate.change_pct else { return NONE.to_owned() };
    let mark = rate.mark();
    format!("{mark}{}{}", if mark.is_empty() { "" } else { " " }, signed(change, 1))
}

/// What the figures stand on.
fn notes(out: &mut String, known: &[Known<'_>], layout: Layout) {
    let rates = || known.iter().filter_map(Known::rate);
    let (least, most) =
        (rates().map(|rate| rate.n).min().unwrap_or(0), rates().map(|rate| rate.n).max().unwrap_or(0));
    let samples = match (least, most) {
        (1, 1) => "1 sample of each cell".to_owned(),
        _ if least == most => format!("medians of {most} samples"),
        _ => format!("medians of {least} to {most} samples"),
    };
    let reached = rates().filter_map(|rate| rate.confidence).fold(f64::INFINITY, f64::min);
    let text = if reached.is_finite() {
        format!(
            "{samples}; the interval is that of the median, at {}, whatever the distribution",
            percent((reached * 1000.0).floor() / 10.0)
        )
    } else {
        format!("{samples}: too few for an interval, which takes {FEWEST}")
    };
    paragraph(out, "  ", &text, 4, layout.columns());
}

/// What a cell is compared with, and what the mark says.
fn compared_with(out: &mut String, known: &[Known<'_>], lead: &str, layout: Layout) {
    let cells: Vec<&Cell> = known.iter().map(|known| known.cell).collect();
    let Some(axis) = compared(&cells) else { return };
    let rates = || known.iter().filter_map(Known::rate);
    if !rates().any(|rate| rate.change_pct.is_some()) {
        return;
    }
    let first = levels(&cells, axis).first().map(|first| axis_value(axis, first)).unwrap_or_default();
    let others =
        cells.iter().any(|cell| cell.keys().any(|other| other != axis && levels(&cells, other).len() > 1));
    let alike = if others { ", all else alike" } else { "" };
    let mark = if rates().any(|rate| rate.interval.is_some()) {
        format!("; {MARK} where the two intervals overlap, so that there may be none")
    } else {
        format!("; {MARK} because there are no intervals, so that there may be none")
    };
    // The name of a routine or a call says what it is.
    let name = match axis {
        "routine" | "with" => String::new(),
        axis => format!("{} ", axis_name(axis)),
    };
    let text = format!("{lead} {name}{first}{alike}{mark}");
    paragraph(out, "  ", &text, 4, layout.columns());
}

/// How near to what this machine can do the best cells come, for each place of the bytes.
fn ceilings(out: &mut String, figures: &[CellFigure], layout: Layout) {
    let mut best: Vec<(&str, f64)> = Vec::new();
    for figure in figures.iter().filter(|figure| figure.metric == Metric::CeilingShare) {
        let (Some(source), Some(share)) = (figure.source.as_deref(), figure.median) else { continue };
        match best.iter_mut().find(|(known, _)| *known == source) {
            Some((_, known)) => *known = known.max(share),
            None => best.push((source, share)),
        }
    }
    for (source, share) in best {
        let source = super::foreign(source);
        // A share of what the cell itself has raised says nothing.
        let text = match source.split_once(", raised to ") {
            Some((ceiling, raised)) => {
                let ceiling = ceiling.trim_start_matches("of ");
                format!("best cell: beyond {ceiling} as it was measured; {raised} stands in its place")
            }
            None => format!("best cell: {share:.0} % {source}"),
        };
        paragraph(out, "  ", &text, 4, layout.columns());
    }
}

/// The rates of a map by their places on its two axes.
type Block<'a> = BTreeMap<(&'a CellValue, &'a CellValue), &'a CellFigure>;

/// A map for each combination of the axes beyond two: the longest goes down, and what is compared, or the next, across.
fn maps(out: &mut String, axes: &[&str], cells: &[&Cell], known: &[Known<'_>], layout: Layout) {
    let mut by_length: Vec<&str> = axes.to_vec();
    by_length.sort_by_key(|axis| (std::cmp::Reverse(levels(cells, axis).len()), *axis != "size_bytes"));
    let side_by_side = compared(cells).and_then(|axis| by_length.iter().position(|known| *known == axis));
    if let Some(place) = side_by_side.filter(|place| *place > 1) {
        let compared = by_length.remove(place);
        by_length.insert(1, compared);
    }
    let [down, across, others @ ..] = by_length.as_slice() else { return };
    let scale = scale(known);
    let medians = || known.iter().filter_map(Known::rate).map(CellFigure::middle);
    let bounds = (medians().fold(f64::INFINITY, f64::min), medians().fold(0.0, f64::max));
    // Where nothing has an interval every figure would have the mark, which would say nothing.
    let marked = known.iter().filter_map(Known::rate).any(|rate| rate.interval.is_some());
    let mut blocks: Vec<(Vec<&CellValue>, Block<'_>)> = Vec::new();
    for known in known {
        let (Some(at_down), Some(at_across)) = (known.cell.get(*down), known.cell.get(*across)) else {
            continue;
        };
        let name: Vec<&CellValue> = others.iter().filter_map(|axis| known.cell.get(*axis)).collect();
        let index = blocks.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            blocks.push((name, BTreeMap::new()));
            blocks.len() - 1
        });
        if let (Some(rate), Some((_, block))) = (known.rate(), blocks.get_mut(index)) {
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
        let (rows, columns) = (levels(cells, down), levels(cells, across));
        let map = Map { down, across, rows, columns, block, scale: &scale, bounds, marked };
        map.show(out, layout);
    }
    notes(out, known, layout);
    if marked {
        compared_with(out, known, "compared with", layout);
    }
    let widest = known.iter().filter_map(|known| {
        let rate = known.rate()?;
        let [low, high] = rate.interval?;
        Some((high - low) / 2.0 / rate.middle() * 100.0)
    });
    let widest = widest.fold(f64::NAN, f64::max);
    let widest = if widest.is_finite() {
        format!("half of the widest interval is {} of its median; ", percent(widest))
    } else {
        String::new()
    };
    let text = format!(
        "rate in {}; {widest}--long has a row with interval, time and CPU time for each cell, --format json every sample",
        scale.unit
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
    marked: bool,
}

impl Map<'_> {
    /// As many columns side by side as fit, the rest below.
    fn show(&self, out: &mut String, layout: Layout) {
        let names: Vec<String> = self.rows.iter().map(|row| axis_value(self.down, row)).collect();
        let corner = format!("{} \\ {}", axis_name(self.down), axis_name(self.across));
        let first = names.iter().chain([&corner]).map(|name| name.chars().count()).max().unwrap_or(0);
        let columns: Vec<(String, Vec<Option<&CellFigure>>)> =
            self.columns.iter().map(|at| self.column(at)).collect();
        let text = |rate: Option<&CellFigure>| {
            let mark = |rate: &CellFigure| if self.marked { rate.mark() } else { "" };
            rate.map_or_else(
                || NONE.to_owned(),
                |rate| format!("{}{}", mark(rate), self.scale.show(rate.middle())),
            )
        };
        let width = |(name, rates): &(String, Vec<Option<&CellFigure>>)| {
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

    fn column(&self, at: &CellValue) -> (String, Vec<Option<&CellFigure>>) {
        let rates = self.rows.iter().map(|row| self.block.get(&(*row, at)).copied());
        (axis_value(self.across, at), rates.collect())
    }

    fn painted(&self, text: &str, rate: Option<&CellFigure>, style: Style) -> String {
        let (low, high) = self.bounds;
        let Some(rate) = rate.filter(|_| style == Style::Colour && high > low) else {
            return text.to_owned();
        };
        let share = (rate.middle() - low) / (high - low);
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

/// The values of an option that a footer shows, as text; nothing where it is not asked for, or off.
fn asked(requested: &Json, axis: &str) -> Option<String> {
    let one = |value: &Json| match value {
        Json::String(text) => Some(super::foreign(text)),
        Json::Number(number) => number
            .as_u64()
            .map(|value| axis_value(axis, &CellValue::Int(value)))
            .or_else(|| Some(number.to_string())),
        Json::Bool(true) => Some(String::new()),
        _ => None,
    };
    match requested.get(axis)? {
        Json::Array(values) => match values.as_slice() {
            [only] => one(only),
            _ => None,
        },
        value => one(value),
    }
}

/// On which CPU, with which clock, and what was not swept.
fn conditions(out: &mut String, document: &Document, cells: &[&Cell], layout: Layout) {
    let (effective, requested) = (&document.options.effective, &document.options.requested);
    let sampling = effective.get("sampling");
    let number = |name: &str| sampling?.get(name)?.as_f64();
    let mut parts = Vec::new();
    if let Some(name) = effective.get("source").and_then(|source| source.get("name")).and_then(Json::as_str) {
        parts.push(super::foreign(name));
    }
    let written = requested.get("direction").and_then(Json::as_str) == Some("write");
    for axis in CONDITIONS {
        if levels(cells, axis).len() > 1 {
            continue;
        }
        let Some(value) = asked(requested, axis).filter(|value| !USUAL.contains(&(axis, value.as_str())))
        else {
            continue;
        };
        parts.push(format!("{} {value}", axis_name(axis)).trim_end().to_owned());
    }
    if written {
        parts.push("written to".to_owned());
    }
    let cpus: Vec<String> = effective
        .get("cpus")
        .and_then(Json::as_array)
        .map(|cpus| cpus.iter().filter_map(Json::as_u64).map(|cpu| cpu.to_string()).collect())
        .unwrap_or_default();
    match sampling.and_then(|sampling| sampling.get("cpu")).and_then(Json::as_u64) {
        _ if cpus.len() > 1 => parts.push(format!("on CPUs {}", super::enumerate(&cpus))),
        Some(cpu) => parts.push(format!("on CPU {cpu}")),
        None => {}
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
    if let (Some(made), Some(asked)) = (number("rounds"), requested.get("rounds").and_then(Json::as_f64))
        && made < asked
    {
        parts.push(format!("{made} rounds of {asked}, as far as the time went"));
    }
    for routine in effective.get("routines").and_then(Json::as_array).into_iter().flatten() {
        let name = |key: &str| routine.get(key).and_then(Json::as_str).map(super::foreign);
        if let (Some(asked), Some(name)) = (name("asked"), name("name"))
            && asked != name
        {
            parts.push(format!("{asked} is {name}"));
        }
    }
    if !parts.is_empty() {
        paragraph(out, "  ", &parts.join("; "), 4, layout.columns());
    }
}

/// What goes without saying.
const USUAL: [(&str, &str); 2] = [("does", "copy"), ("threads", "1")];

/// What is said below the figures where it was asked for and not swept.
const CONDITIONS: [&str; 15] = [
    "block_bytes",
    "working_set_bytes",
    "with",
    "routine",
    "size_bytes",
    "src_offset_bytes",
    "dst_offset_bytes",
    "distance_bytes",
    "overlap_bytes",
    "cache",
    "pages",
    "does",
    "threads",
    "shuffle",
    "selection",
];

/// Today's figures beside the published ones.
fn published(out: &mut String, document: &Document, beside: &Beside, layout: Layout) {
    let figures = figures_of(document);
    let known = by_cell(&figures);
    let only = |known: &Known<'_>| match known.cell.iter().next() {
        Some((axis, CellValue::Int(level))) if known.cell.len() == 1 && *axis == beside.axis => Some(*level),
        _ => None,
    };
    let today: Vec<(u64, Option<&CellFigure>)> =
        known.iter().filter_map(|known| Some((only(known)?, known.rate()))).collect();
    let shared = today.iter().any(|(level, _)| beside.rows.iter().any(|row| row.level == *level));
    let Some(base) =
        today.first().and_then(|(_, rate)| *rate).filter(|_| shared && today.len() == known.len())
    else {
        return;
    };
    layout.heading(out, &beside.title);
    let column = |heading: &[&str], entries: Vec<String>| Column::text(heading, Align::Right, entries);
    let or_none = |value: Option<String>| value.unwrap_or_else(|| NONE.to_owned());
    let levels = today.iter().map(|(level, _)| axis_value(&beside.axis, &CellValue::Int(*level)));
    let mut table =
        Table { keys: vec![column(&[&axis_name(&beside.axis)], levels.collect())], ..Table::default() };
    let seconds = |rate: &CellFigure| beside.bytes as f64 / rate.middle();
    let now = today.iter().map(|(_, rate)| or_none(rate.map(|rate| format!("{:.4}", seconds(rate)))));
    table.values.push(column(&["today", "s"], now.collect()));
    let slower = |rate: &CellFigure| {
        let mark = rate.mark();
        let blank = if mark.is_empty() { "" } else { " " };
        format!("{mark}{blank}{}", signed((seconds(rate) / seconds(base) - 1.0) * 100.0, 1))
    };
    let changes = today.iter().map(|(_, rate)| or_none(rate.map(slower)));
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
