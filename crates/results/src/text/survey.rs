//! The table of a survey: a row for each cell, its median rate with the interval of the median, and how the first cell
//! compares.

use haul_stats::estimate::{MedianInterval, Summary, median_interval};
use haul_stats::{Metric, Scope};

use super::Layout;
use super::number::{NONE, Number, Scale, signed};
use super::rows::{Row, keys, rows};
use super::table::{Align, Column, Table};
use super::wrap::paragraph;
use crate::record::Document;

/// How sure an interval is to be.
const CONFIDENCE: f64 = 0.95;

pub(super) fn show(out: &mut String, document: &Document, layout: Layout) {
    let rows = rows(&document.runs);
    if rows.iter().all(|row| row.counted.is_empty()) {
        out.push_str("\nno sample gave a number\n");
        return;
    }
    let values: Vec<Vec<f64>> = rows.iter().map(|row| row.values(Metric::CopyRate, Scope::Run)).collect();
    let medians: Vec<Option<f64>> =
        values.iter().map(|values| Summary::of(values).map(|summary| summary.median)).collect();
    let intervals: Vec<Option<MedianInterval>> =
        values.iter().map(|values| median_interval(values, CONFIDENCE)).collect();
    let known: Vec<Number> = medians.iter().flatten().map(|&mean| Number { mean, stddev: None }).collect();
    let scale = Scale::of("B/s", &known);
    let mut table = Table { keys: keys(document, &rows), ..Table::default() };
    let column = |heading: &[&str], entries: Vec<String>| Column::text(heading, Align::Right, entries);
    let shown = |value: Option<f64>| value.map_or_else(|| NONE.to_owned(), |value| scale.show(value));
    table.values.push(column(&["rate", &scale.unit], medians.iter().map(|&median| shown(median)).collect()));
    let range = |interval: &Option<MedianInterval>| {
        interval
            .map_or_else(|| NONE.to_owned(), |of| format!("{}..{}", scale.show(of.low), scale.show(of.high)))
    };
    table.values.push(column(&["95 %", &scale.unit], intervals.iter().map(range).collect()));
    table.values.push(column(&["to first", "%"], changes(&medians, &intervals)));
    table.values.push(cost(&rows));
    out.push('\n');
    out.push_str(&table.render(layout.columns()));
    let text = "~: the intervals of the two medians overlap, so no difference is shown";
    paragraph(out, "  ", text, 4, layout.columns());
}

/// How far the median of each row is from that of the first; marked where their intervals overlap.
fn changes(medians: &[Option<f64>], intervals: &[Option<MedianInterval>]) -> Vec<String> {
    let base = (medians.first().copied().flatten(), intervals.first().copied().flatten());
    let change = |(&median, interval): (&Option<f64>, &Option<MedianInterval>)| {
        let (Some(base), Some(median)) = (base.0, median) else { return NONE.to_owned() };
        let apart = base_apart(base_interval(intervals), *interval);
        format!("{}{}", if apart { "" } else { "~ " }, signed((median / base - 1.0) * 100.0, 1))
    };
    medians.iter().zip(intervals).map(change).collect()
}

fn base_interval(intervals: &[Option<MedianInterval>]) -> Option<MedianInterval> {
    intervals.first().copied().flatten()
}

fn base_apart(base: Option<MedianInterval>, other: Option<MedianInterval>) -> bool {
    base.zip(other).is_some_and(|(base, other)| base.is_apart_from(&other))
}

fn cost(rows: &[Row]) -> Column {
    let of = |row: &Row| {
        let median = Summary::of(&row.values(Metric::CopyCpu, Scope::Run))?.median;
        Number { mean: median, stddev: None }.finite()
    };
    let entries: Vec<Option<Number>> = rows.iter().map(of).collect();
    Column::numbers(&["CPU"], Metric::CopyCpu.facts().unit, &entries)
}
