//! What the samples of a survey come to: one figure for each cell and metric, made here and nowhere else.
//!
//! ```text
//! runs ─▶ by cell, in the order asked for ─▶ median, interval, extremes ─▶ against the base ─▶ [`CellFigure`]
//! ```
//!
//! The document has the figures and the text shows them, so that the two cannot differ. A median has the interval of
//! [`haul_stats::estimate::median_interval`], which assumes nothing of how samples are distributed. The *base* of a cell is the
//! one with the first value of the [compared axis](compared) and all else alike.

use std::collections::BTreeMap;

use haul_stats::estimate::{MedianInterval, Summary, median_interval};
use haul_stats::{CellValue, Metric, Reading, Scope};
use serde_json::Value as Json;

use crate::record::{Cell, CellFigure, Document, Run, Status};

/// How sure an interval is to be.
pub const CONFIDENCE: f64 = 0.95;

/// The fewest samples that have an interval at that confidence.
pub const FEWEST: usize = 6;

/// Axes whose values do the same work, and are compared with each other wherever they are swept.
const COMPARED: [&str; 2] = ["routine", "with"];

/// The figures of a survey, the cells in the order asked for.
#[must_use]
pub fn cells(document: &Document) -> Vec<CellFigure> {
    let groups = in_given_order(&document.runs, &document.options.requested);
    let known: Vec<&Cell> = groups.iter().map(|(cell, _)| *cell).collect();
    let mut figures: Vec<CellFigure> = Vec::new();
    for (cell, runs) in &groups {
        let complete: Vec<&Run> = runs.iter().copied().filter(|run| run.status == Status::Complete).collect();
        if complete.is_empty() {
            figures.push(without_number(cell, runs));
            continue;
        }
        for (metric, scope) in metrics(&complete) {
            figures.push(figure(cell, metric, scope, &complete));
        }
    }
    against_base(&mut figures, &known);
    figures
}

/// The axis along which cells are compared: the routine or the call, where it is swept, else the longest axis there is. `None`
/// where nothing is swept.
#[must_use]
pub fn compared<'a>(cells: &[&'a Cell]) -> Option<&'a str> {
    let swept = |axis: &&str| levels(cells, axis).len() > 1;
    let mut axes: Vec<&str> = cells.iter().flat_map(|cell| cell.keys().map(String::as_str)).collect();
    axes.sort_unstable();
    axes.dedup();
    axes.retain(swept);
    let named = COMPARED.iter().find_map(|name| axes.iter().find(|axis| *axis == name));
    // The first of the longest: `max_by_key` would take the last.
    named.or_else(|| axes.iter().rev().max_by_key(|axis| levels(cells, axis).len())).copied()
}

/// The values of an axis, in the order in which they come.
pub(crate) fn levels<'a>(cells: &[&'a Cell], axis: &str) -> Vec<&'a CellValue> {
    let mut levels: Vec<&CellValue> = Vec::new();
    for value in cells.iter().filter_map(|cell| cell.get(axis)) {
        if !levels.contains(&value) {
            levels.push(value);
        }
    }
    levels
}

/// The runs by cell, the values of each axis in the order they were given.
fn in_given_order<'a>(runs: &'a [Run], requested: &Json) -> Vec<(&'a Cell, Vec<&'a Run>)> {
    let mut groups: BTreeMap<&Cell, Vec<&Run>> = BTreeMap::new();
    for run in runs {
        groups.entry(&run.cell).or_default().push(run);
    }
    let place = |axis: &String, value: &CellValue| {
        let same = |given: &Json| match value {
            CellValue::Int(value) => given.as_u64() == Some(*value),
            CellValue::Text(value) => given.as_str() == Some(value),
        };
        let given = requested.get(axis).and_then(Json::as_array);
        given.and_then(|given| given.iter().position(same)).unwrap_or(usize::MAX)
    };
    let mut groups: Vec<(&Cell, Vec<&Run>)> = groups.into_iter().collect();
    groups.sort_by_cached_key(|(cell, _)| -> Vec<usize> {
        cell.iter().map(|(axis, value)| place(axis, value)).collect()
    });
    groups
}

/// What was read of these runs, in the order of the metrics. What was drawn by chance is no figure of a cell.
fn metrics(runs: &[&Run]) -> Vec<(Metric, Scope)> {
    let mut found: Vec<(Metric, Scope)> = Vec::new();
    for reading in runs.iter().flat_map(|run| &run.readings) {
        let of = (reading.metric, reading.scope);
        if reading.metric != Metric::CopyDistance && !found.contains(&of) {
            found.push(of);
        }
    }
    found.sort_by_key(|(metric, _)| Metric::ALL.iter().position(|known| known == metric));
    found
}

fn figure(cell: &Cell, metric: Metric, scope: Scope, runs: &[&Run]) -> CellFigure {
    let readings: Vec<&Reading> = runs
        .iter()
        .filter_map(|run| {
            run.readings.iter().find(|reading| reading.metric == metric && reading.scope == scope)
        })
        .collect();
    let finite = |value: &f64| value.is_finite();
    let values: Vec<f64> = readings
        .iter()
        .filter_map(|reading| reading.value.map(haul_stats::Value::as_f64))
        .filter(finite)
        .collect();
    let (summary, interval) = (Summary::of(&values), median_interval(&values, CONFIDENCE));
    let source = readings.first().map(|reading| reading.source.to_string());
    let few = format!(
        "{} {}: too few for an interval at {} %, which takes {FEWEST}",
        values.len(),
        if values.len() == 1 { "sample" } else { "samples" },
        CONFIDENCE * 100.0
    );
    let reason = match (summary, interval) {
        (None, _) => readings.iter().find_map(|reading| reading.reason.clone()),
        (Some(_), None) => Some(few),
        (Some(_), Some(_)) => None,
    };
    CellFigure {
        cell: cell.clone(),
        metric,
        scope,
        unit: metric.facts().unit.to_owned(),
        n: values.len() as u64,
        median: summary.map(|summary| summary.median),
        interval: interval.map(|of| [of.low, of.high]),
        confidence: interval.map(|of| of.confidence),
        min: summary.map(|summary| summary.min),
        max: summary.map(|summary| summary.max),
        change_pct: None,
        apart: None,
        source,
        reason,
    }
}

/// The one figure of a cell that no sample gave a number of.
fn without_number(cell: &Cell, runs: &[&Run]) -> CellFigure {
    let why = runs.iter().rev().find_map(|run| run.failure.as_ref());
    CellFigure {
        cell: cell.clone(),
        metric: Metric::CopyRate,
        scope: Scope::Run,
        unit: Metric::CopyRate.facts().unit.to_owned(),
        n: 0,
        median: None,
        interval: None,
        confidence: None,
        min: None,
        max: None,
        change_pct: None,
        apart: None,
        source: None,
        reason: Some(why.map_or_else(|| "no sample of it was taken".to_owned(), |why| why.text.clone())),
    }
}

/// Sets each figure against that of its base; the base has nothing to be set against.
fn against_base(figures: &mut [CellFigure], cells: &[&Cell]) {
    let Some(axis) = compared(cells) else { return };
    let Some(first) = levels(cells, axis).first().map(|value| (*value).clone()) else { return };
    let key = |figure: &CellFigure| (figure.cell.clone(), figure.metric.facts().name, figure.scope);
    let bases: BTreeMap<_, _> = figures
        .iter()
        .filter(|figure| figure.cell.get(axis) == Some(&first))
        .filter_map(|figure| Some((key(figure), (figure.median?, figure.interval))))
        .collect();
    for figure in figures {
        if figure.cell.get(axis).is_none_or(|level| *level == first) {
            continue;
        }
        let mut of = key(figure);
        of.0.insert(axis.to_owned(), first.clone());
        let (Some(&(base, interval)), Some(median)) = (bases.get(&of), figure.median) else { continue };
        let change = (median / base - 1.0) * 100.0;
        figure.change_pct = Some(change).filter(|change| change.is_finite());
        figure.apart =
            figure.interval.zip(interval).map(|(own, base)| of_ends(own).is_apart_from(&of_ends(base)));
    }
}

fn of_ends([low, high]: [f64; 2]) -> MedianInterval {
    MedianInterval { median: f64::midpoint(low, high), low, high, confidence: CONFIDENCE }
}
