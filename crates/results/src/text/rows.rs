//! The runs of a document, by what they have in common: one row for each cell of the sweep, and for each arm where a
//! comparison came to nothing.
//!
//! A row is made of the complete runs of its cell; where there is none, of a run cut short, and the row says so. What
//! names a row are the levels of its cell, and what every run of its workload has in any case, swept or not.

use std::collections::BTreeMap;

use haul_stats::{CellValue, Metric, Reading, Scope, Value};
use serde_json::Value as Json;

use super::number::NONE;
use super::table::{Align, Column};
use super::wrap::label;
use super::{LONGEST_NAME, axis_name, axis_value, in_column_order, in_words};
use crate::record::{Cell, Document, Kind, Run, Status};

/// The number a run is known by, of those it has.
const HEADLINES: [(Metric, Scope); 3] = [
    (Metric::Throughput, Scope::Run),
    (Metric::Throughput, Scope::Receiver),
    (Metric::Transactions, Scope::Client),
];

/// The runs of one cell.
pub(super) struct Row<'a> {
    pub(super) cell: &'a Cell,
    pub(super) arm: Option<&'a str>,
    pub(super) all: usize,
    /// Those the numbers are made of.
    pub(super) counted: Vec<&'a Run>,
    pub(super) cut_short: bool,
}

impl Row<'_> {
    pub(super) fn values(&self, metric: Metric, scope: Scope) -> Vec<f64> {
        self.counted.iter().filter_map(|run| value(run, metric, scope)).collect()
    }
}

pub(super) fn reading(run: &Run, metric: Metric, scope: Scope) -> Option<&Reading> {
    run.readings.iter().find(|reading| reading.metric == metric && reading.scope == scope)
}

pub(super) fn value(run: &Run, metric: Metric, scope: Scope) -> Option<f64> {
    reading(run, metric, scope)?.value.map(Value::as_f64)
}

/// The runs by cell and arm, in the order a curve is read, whatever the order in which they ran.
pub(super) fn rows(runs: &[Run]) -> Vec<Row<'_>> {
    let axes = in_column_order(runs.iter().flat_map(|run| run.cell.keys()));
    let mut arms: Vec<Option<&str>> = Vec::new();
    let mut groups: BTreeMap<(Vec<Option<&CellValue>>, usize), Vec<&Run>> = BTreeMap::new();
    for run in runs.iter().filter(|run| !run.profiled) {
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

/// The headline of these runs.
pub(super) fn headline(rows: &[Row]) -> (Metric, Scope) {
    let known = |&(metric, scope): &(Metric, Scope)| {
        rows.iter().flat_map(|row| &row.counted).any(|run| value(run, metric, scope).is_some())
    };
    HEADLINES.into_iter().find(known).unwrap_or((Metric::Throughput, Scope::Receiver))
}

/// Whether the runs are exchanges of requests and responses, and not streams.
pub(super) fn is_exchange(document: &Document) -> bool {
    let workload = document.options.requested.get("workload").and_then(Json::as_str);
    matches!(document.kind, Kind::Rr | Kind::Crr)
        || matches!(workload, Some("rr" | "crr"))
        || document.runs.iter().any(|run| reading(run, Metric::Transactions, Scope::Client).is_some())
}

/// What was in force in each leg of a run; a run of one leg has it in one piece.
pub(super) fn legs(effective: &Json) -> Vec<&Json> {
    match effective.get("legs").and_then(Json::as_array) {
        Some(legs) => legs.iter().collect(),
        None => vec![effective],
    }
}

/// Whether an arm gives the option a value of its own, so that what was asked for all of them is not asked of each.
pub(super) fn set_by_an_arm(requested: &Json, key: &str) -> bool {
    let name = format!("opt.{}=", in_words(key).replace('_', "-"));
    let arms = requested.get("arms").and_then(Json::as_array);
    arms.is_some_and(|arms| arms.iter().filter_map(Json::as_str).any(|arm| arm.contains(&name)))
}

/// The columns that name a row: the axes of the sweep, and what tells the size of the work in any case.
pub(super) fn keys(document: &Document, rows: &[Row]) -> Vec<Column> {
    let always: &[&str] = if is_exchange(document) {
        &["request_bytes", "response_bytes", "flows"]
    } else {
        &["message_bytes", "flows"]
    };
    let always: Vec<String> = always.iter().map(|axis| (*axis).to_owned()).collect();
    let axes = rows.iter().flat_map(|row| row.cell.keys()).chain(&always);
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
    let short = in_words(axis);
    let effective = row.counted.iter().map(|run| &run.effective).chain([&document.options.effective]);
    let places = effective.filter_map(|effective| legs(effective).into_iter().next());
    let requested = &document.options.requested;
    let requested = Some(requested).filter(|requested| !set_by_an_arm(requested, axis));
    let value = places.chain(requested).find_map(|options| {
        options.get(axis).or_else(|| options.get(short)).filter(|value| !value.is_null())
    })?;
    match value {
        Json::String(text) => Some(CellValue::Text(text.clone())),
        value => value.as_u64().map(CellValue::Int),
    }
}
