//! The table of a measurement that compares nothing: a row for each cell, a column for each number its runs have.
//!
//! One list of columns serves all workloads, because no two of them have the same numbers: a column is shown where any
//! run has a reading for it. Two columns of the same metric differ in whose it is, which is the second line of the
//! heading. On a shared host the column `both` has what the one kernel spent on both ends, and the ends are told apart by
//! the time of their threads. What is missing, where the CPU figures come from and what the latencies are counted from
//! stands below the table, each once.

use std::borrow::Cow;
use std::fmt::Write as _;

use haul_stats::estimate::{TwoModes, two_modes};
use haul_stats::{CellValue, Metric, Quantile, Reading, Scope, Value};
use serde_json::Value as Json;

use super::number::{NONE, Number, Scale, grouped};
use super::rows::{Row, headline, is_exchange, keys, legs, reading, rows, value};
use super::table::{Align, Column, Table};
use super::wrap::paragraph;
use super::{Layout, cell_name, enumerate, foreign, moved, plural, single};
use crate::record::{Document, Kind, Run};

/// A column: what it shows, and the first line of its heading.
type Shown = (Metric, Scope, &'static str);

/// What a table shows, in this order, where any run has it.
const SHOWN: [Shown; 30] = [
    (Metric::Throughput, Scope::Run, "throughput"),
    (Metric::Throughput, Scope::Receiver, "throughput"),
    (Metric::Throughput, Scope::Server, "throughput"),
    (Metric::Throughput, Scope::Client, "throughput"),
    (Metric::PacketRate, Scope::Receiver, "packets"),
    (Metric::PacketRate, Scope::Server, "packets"),
    (Metric::PacketRate, Scope::Client, "packets"),
    (Metric::Loss, Scope::Receiver, "loss"),
    (Metric::Loss, Scope::Server, "loss"),
    (Metric::Loss, Scope::Client, "loss"),
    (Metric::Transactions, Scope::Client, "transactions"),
    (Metric::LatencyP50, Scope::Client, LATENCY),
    (Metric::LatencyP99, Scope::Client, LATENCY),
    (Metric::LatencyP99_9, Scope::Client, LATENCY),
    (Metric::CpuUtilization, Scope::Sender, "CPU"),
    (Metric::CpuUtilization, Scope::Receiver, "CPU"),
    (Metric::CpuUtilization, Scope::Client, "CPU"),
    (Metric::CpuUtilization, Scope::Server, "CPU"),
    (Metric::CpuUtilization, Scope::SharedHost, "CPU"),
    (Metric::ServiceDemand, Scope::Sender, "demand"),
    (Metric::ServiceDemand, Scope::Receiver, "demand"),
    (Metric::ServiceDemand, Scope::Client, "demand"),
    (Metric::ServiceDemand, Scope::Server, "demand"),
    (Metric::ServiceDemand, Scope::SharedHost, "demand"),
    (Metric::ServiceDemandTransaction, Scope::Client, "demand"),
    (Metric::ServiceDemandTransaction, Scope::Server, "demand"),
    (Metric::ServiceDemandTransaction, Scope::SharedHost, "demand"),
    (Metric::Retransmits, Scope::Sender, "retrans"),
    (Metric::Retransmits, Scope::Client, "retrans"),
    (Metric::Retransmits, Scope::Server, "retrans"),
];

const LATENCY: &str = "latency";

/// The percentiles and the samples each of them stands on.
const PERCENTILES: [(Metric, Quantile); 12] = [
    (Metric::LatencyP50, Quantile::P50),
    (Metric::LatencyP90, Quantile::P90),
    (Metric::LatencyP95, Quantile::P95),
    (Metric::LatencyP99, Quantile::P99),
    (Metric::LatencyP99_9, Quantile::P99_9),
    (Metric::LatencyP99_99, Quantile::P99_99),
    (Metric::GapP50, Quantile::P50),
    (Metric::GapP99, Quantile::P99),
    (Metric::ProbeIdleP50, Quantile::P50),
    (Metric::ProbeIdleP99, Quantile::P99),
    (Metric::ProbeLoadedP50, Quantile::P50),
    (Metric::ProbeLoadedP99, Quantile::P99),
];

/// Which percentile a metric is, if it is one.
pub(super) fn quantile(metric: Metric) -> Option<Quantile> {
    PERCENTILES.iter().find(|(known, _)| *known == metric).map(|(_, quantile)| *quantile)
}

/// How many samples the reading would have needed, where it is absent for want of them.
pub(super) fn needed(reading: &Reading) -> Option<u64> {
    let few = reading.value.is_none() && reading.reason.as_ref()?.starts_with("n too small");
    quantile(reading.metric).filter(|_| few).map(Quantile::needed)
}

/// Whose a number is, where that does not go without saying; of what goes both ways, to which end.
pub(super) fn whose(metric: Metric, scope: Scope) -> &'static str {
    let of_payload = matches!(metric, Metric::Throughput | Metric::PacketRate | Metric::Loss);
    let of_exchange = matches!(metric, Metric::Transactions | Metric::Unanswered | Metric::Resends)
        || metric.facts().name.starts_with("latency");
    match scope {
        Scope::Receiver if matches!(metric, Metric::Loss | Metric::PacketRate) => "",
        Scope::Client if of_exchange => "",
        Scope::Client if of_payload => "to client",
        Scope::Server if of_payload => "to server",
        Scope::Run if metric == Metric::Throughput => "both ways",
        Scope::Sender => "sender",
        Scope::Receiver => "receiver",
        Scope::Client => "client",
        Scope::Server => "server",
        Scope::SharedHost => "both",
        Scope::Run => "",
    }
}

pub(super) fn show(out: &mut String, document: &Document, layout: Layout) {
    let rows = rows(&document.runs);
    if rows.iter().all(|row| row.counted.is_empty()) {
        out.push_str("\nno run gave a number\n");
        return;
    }
    let measured: Vec<&Run> = document.runs.iter().filter(|run| !run.profiled).collect();
    let only = match measured.as_slice() {
        [only] => Some(*only),
        _ => None,
    };
    let known_by = headline(&rows);
    let split: Vec<_> = rows.iter().map(|row| two_modes(&row.values(known_by.0, known_by.1))).collect();
    let mut table = Table { keys: keys(document, &rows), ..Table::default() };
    if rows.iter().any(|row| row.all != 1 || row.cut_short) {
        table.keys.push(counts(&rows, &split));
    }
    let columns = columns(&rows, is_exchange(document));
    table.values = values(&rows, &columns);
    out.push('\n');
    out.push_str(&table.render(layout.columns()));
    let counts: Vec<usize> = rows.iter().map(|row| row.counted.len()).collect();
    spread_note(out, &counts, layout);
    if rows.iter().any(|row| row.cut_short) {
        let text = "part: of a run that was cut short; the numbers cover what had run";
        paragraph(out, "  ", text, 2, layout.columns());
    }
    moved::show(out, &rows, layout);
    for (row, split) in rows.iter().zip(&split) {
        points(out, row, known_by, rows.len() == 1, *split, layout);
    }
    let named: Vec<_> = columns
        .iter()
        .map(|&(metric, scope, name)| (metric, scope, full_name(metric, scope, name)))
        .collect();
    // What a single run has too few of is told with its latencies.
    absences(out, &rows, &named, "transactions", only.is_none(), layout);
    if let Some(text) = counted_from(document, &rows) {
        paragraph(out, "  ", &text, 4, layout.columns());
    }
    if only.is_none() {
        let runs: Vec<&Run> = rows.iter().flat_map(|row| &row.counted).copied().collect();
        let troubles = troubles(&runs, 1);
        if is_exchange(document) && !troubles.is_empty() {
            let text = format!("of all runs together: {}", troubles.join(", "));
            paragraph(out, "  ", &text, 4, layout.columns());
        }
    }
    sources(out, &rows, &columns, layout);
    beside_the_load(out, document, &rows, layout);
    if let Some(only) = only {
        single::show(out, only, layout);
    } else if document.runs.iter().any(|run| !run.intervals.is_empty()) {
        let text = "The intervals of each run are in the record: --format json shows them.";
        paragraph(out, "", text, 0, layout.columns());
    }
}

/// How many runs a row is made of.
fn counts(rows: &[Row], split: &[Option<TwoModes>]) -> Column {
    let entries = rows.iter().zip(split).map(|(row, split)| {
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
    Column::text(&["runs"], Align::Right, entries.collect())
}

/// The columns there is something to show in. Without the receiver's throughput the sender's is shown, as such.
fn columns(rows: &[Row], exchange: bool) -> Vec<Shown> {
    let any = |metric, scope, wanted: &dyn Fn(&Reading) -> bool| {
        let runs = rows.iter().flat_map(|row| &row.counted);
        runs.filter_map(|run| reading(run, metric, scope)).any(wanted)
    };
    let known = |metric, scope| any(metric, scope, &|reading| reading.value.is_some());
    let there = |&(metric, scope, _): &Shown| match metric {
        // Most runs are too short for it.
        Metric::LatencyP99_9 => known(metric, scope),
        // Of an exchange it is told below, with the rest of what went wrong.
        Metric::Retransmits if exchange => false,
        _ => any(metric, scope, &|_| true),
    };
    let mut columns: Vec<_> = SHOWN.into_iter().filter(there).collect();
    if !known(Metric::Throughput, Scope::Receiver) && known(Metric::Throughput, Scope::Sender) {
        columns.insert(columns.len().min(1), (Metric::Throughput, Scope::Sender, "throughput"));
    }
    columns
}

fn values(rows: &[Row], columns: &[Shown]) -> Vec<Column> {
    let numbers = |metric, scope| -> Vec<Option<Number>> {
        rows.iter().map(|row| Number::of(&row.values(metric, scope))).collect()
    };
    let latencies = columns.iter().filter(|(_, _, name)| *name == LATENCY);
    let latencies: Vec<Number> =
        latencies.flat_map(|&(metric, scope, _)| numbers(metric, scope)).flatten().collect();
    let mut before = "";
    let column = |&(metric, scope, name): &Shown| {
        let joined = name == std::mem::replace(&mut before, name);
        let (unit, entries) = (metric.facts().unit, numbers(metric, scope));
        let column = if name == LATENCY {
            let which = quantile(metric).map_or_else(String::new, |quantile| quantile.to_string());
            Column::numbers_beside(&[&which, ""], unit, &entries, &latencies)
        } else {
            Column::numbers(&[name, whose(metric, scope)], unit, &entries)
        };
        column.joined(joined)
    };
    columns.iter().map(column).collect()
}

/// A column in a sentence: "demand (sender)", "latency p99".
fn full_name(metric: Metric, scope: Scope, name: &str) -> String {
    match (quantile(metric), whose(metric, scope)) {
        (Some(quantile), _) => format!("{name} {quantile}"),
        (None, "") => name.to_owned(),
        (None, whose) => format!("{name} ({whose})"),
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

/// The headline of each run of a cell, where there is room for it or where one mean would mislead.
fn points(
    out: &mut String,
    row: &Row,
    (metric, scope): (Metric, Scope),
    alone: bool,
    split: Option<TwoModes>,
    layout: Layout,
) {
    let values = row.values(metric, scope);
    if values.len() < 2 || !(alone || split.is_some()) {
        return;
    }
    let numbers: Vec<Number> = values.iter().map(|&mean| Number { mean, stddev: None }).collect();
    let scale = Scale::of(metric.facts().unit, &numbers);
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
    let what = if metric == Metric::Transactions { "transactions of each run" } else { "each run" };
    paragraph(out, "  ", &format!("{what}, {}: {}", scale.unit, shown.join(" ")), 4, layout.columns());
}

/// Why numbers are missing, by column. Of percentiles with too few `samples` only what they need, and that `few` says
/// whether to tell at all.
fn absences(
    out: &mut String,
    rows: &[Row],
    columns: &[(Metric, Scope, String)],
    samples: &str,
    few: bool,
    layout: Layout,
) {
    let mut reasons: Vec<(Cow<'_, str>, Vec<&str>)> = Vec::new();
    for (metric, scope, column) in columns {
        let runs = rows.iter().flat_map(|row| &row.counted);
        let absent =
            runs.filter_map(|run| reading(run, *metric, *scope)).filter(|reading| reading.value.is_none());
        for reading in absent {
            let reason = match (needed(reading), reading.reason.as_deref()) {
                (Some(_), _) if !few => continue,
                (Some(needed), _) => {
                    Cow::Owned(format!("n too small, {} {samples} are needed", grouped(needed)))
                }
                (None, reason) => Cow::Borrowed(reason.unwrap_or("no reason was given")),
            };
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, columns)) if columns.contains(&column.as_str()) => {}
                Some((_, columns)) => columns.push(column),
                None => reasons.push((reason, vec![column])),
            }
        }
    }
    for (reason, columns) in reasons {
        let columns: Vec<String> = columns.into_iter().map(str::to_owned).collect();
        let text = format!("{}: {}", enumerate(&columns), foreign(&reason));
        paragraph(out, &format!("{NONE} "), &text, 2, layout.columns());
    }
}

/// What a latency is counted from: without that word two of them cannot be compared.
fn counted_from(document: &Document, rows: &[Row]) -> Option<String> {
    let runs: Vec<&Run> = rows.iter().flat_map(|row| &row.counted).copied().collect();
    let timed = |run: &&Run| value(run, Metric::LatencyP50, Scope::Client).is_some();
    if !runs.iter().any(timed) {
        return None;
    }
    let due = |run: &Run| run.readings.iter().any(|reading| reading.metric == Metric::RequestedTransactions);
    let at_a_rate = |options: &Json| options.get("rate_per_s").is_some_and(Json::is_number);
    let asked = |run: &Run| {
        at_a_rate(&document.options.requested)
            || legs(&run.effective).into_iter().any(at_a_rate)
            || matches!(run.cell.get("rate_per_s"), Some(CellValue::Int(_)))
    };
    // A run that has the reading says it best: an arm can have a rate of its own.
    let told = runs.iter().any(|run| due(run));
    let paced = runs.iter().filter(|run| if told { due(run) } else { asked(run) }).count();
    let mut text = if paced == 0 {
        "latency: service time; a closed loop sends nothing while it waits, so a stall counts once".to_owned()
    } else if paced == runs.len() {
        "latency: from the time a request was due (--rate), so what a stall held up counts with its wait"
            .to_owned()
    } else {
        "latency: service time where no rate was asked for, else from the time a request was due".to_owned()
    };
    let workload = document.options.requested.get("workload").and_then(Json::as_str);
    if document.kind == Kind::Crr || workload == Some("crr") {
        text.push_str("; opening the connection is part of it");
    }
    Some(text)
}

/// What exchanges had to do again or left undone, where it is at least so much.
pub(super) fn troubles(runs: &[&Run], least: u64) -> Vec<String> {
    let counted = |(metric, one, what): (Metric, &str, &str)| {
        let readings =
            runs.iter().flat_map(|run| run.readings.iter().filter(|reading| reading.metric == metric));
        let counts = readings.filter_map(|reading| match reading.value? {
            Value::Int(count) => Some(count),
            Value::Real(_) => None,
        });
        let count = counts.reduce(u64::saturating_add).filter(|count| *count >= least)?;
        Some(format!(
            "{} {} {what}",
            grouped(count),
            plural(usize::try_from(count).unwrap_or(usize::MAX), one)
        ))
    };
    let kinds = [
        (Metric::Unanswered, "request", "unanswered"),
        (Metric::Resends, "datagram", "sent again"),
        (Metric::Retransmits, "segment", "sent again"),
    ];
    kinds.into_iter().filter_map(counted).collect()
}

/// Where the CPU figures come from: the same column can mean another thing on another kernel.
fn sources(out: &mut String, rows: &[Row], columns: &[Shown], layout: Layout) {
    for metric in [Metric::CpuUtilization, Metric::ServiceDemand, Metric::ServiceDemandTransaction] {
        let mut by_source: Vec<(&str, Vec<String>, &str)> = Vec::new();
        for &(_, scope, name) in columns.iter().filter(|(shown, _, _)| *shown == metric) {
            let runs = rows.iter().flat_map(|row| &row.counted);
            let readings =
                runs.filter_map(|run| reading(run, metric, scope)).filter(|reading| reading.value.is_some());
            for source in readings.map(|reading| reading.source.as_ref()) {
                let whose = whose(metric, scope).to_owned();
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

/// What a probe saw without the load and with it, and how many times as long the latter is.
fn beside_the_load(out: &mut String, document: &Document, rows: &[Row], layout: Layout) {
    const PROBES: [(&str, Metric, Metric); 2] = [
        ("p50", Metric::ProbeIdleP50, Metric::ProbeLoadedP50),
        ("p99", Metric::ProbeIdleP99, Metric::ProbeLoadedP99),
    ];
    let runs = || rows.iter().flat_map(|row| &row.counted);
    let probed = |metric| runs().any(|run| reading(run, metric, Scope::Run).is_some());
    if !PROBES.iter().any(|(_, idle, loaded)| probed(*idle) || probed(*loaded)) {
        return;
    }
    let numbers = |metric| -> Vec<Option<Number>> {
        rows.iter().map(|row| Number::of(&row.values(metric, Scope::Run))).collect()
    };
    let metrics = || PROBES.iter().flat_map(|(_, idle, loaded)| [*idle, *loaded]);
    let all: Vec<Number> = metrics().flat_map(numbers).flatten().collect();
    let mut table = Table { keys: keys(document, rows), ..Table::default() };
    let mut named = Vec::new();
    for (which, idle, loaded) in PROBES {
        for (metric, when) in [(idle, "idle"), (loaded, "loaded")] {
            let entries = numbers(metric);
            let column = Column::numbers_beside(&[which, when], metric.facts().unit, &entries, &all);
            table.values.push(column.joined(when == "loaded"));
            named.push((metric, Scope::Run, format!("{when} {which}")));
        }
        let times = |run: &&Run| {
            Some(value(run, loaded, Scope::Run)? / value(run, idle, Scope::Run).filter(|idle| *idle > 0.0)?)
        };
        let times = rows.iter().map(|row| row.counted.iter().filter_map(times).collect::<Vec<f64>>());
        let times: Vec<Option<Number>> = times.map(|times| Number::of(&times)).collect();
        table.values.push(Column::numbers(&[which, "ratio"], "×", &times).joined(true));
    }
    layout.heading(out, "latency beside the load, seen by a probe");
    out.push_str(&table.render(layout.columns()));
    let counts: Vec<usize> = rows.iter().map(|row| row.counted.len()).collect();
    spread_note(out, &counts, layout);
    absences(out, rows, &named, "round trips", true, layout);
}
