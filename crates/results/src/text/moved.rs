//! What runs moved and in what time, below their table: what a rate was divided from, and what it took on the way.
//!
//! Of several runs each number is told from the least to the most. What was sent again is told by the payload that
//! arrived: how many segments were sent in the window is not known, because the kernel merges and cuts them.

use haul_stats::{Metric, Scope, Value};

use super::Layout;
use super::number::{Number, Scale, grouped};
use super::rows::{Row, reading, value};
use super::wrap::{bound, paragraph};
use crate::record::Run;

/// The ends that received in a run: of one direction, or of both.
const RECEIVERS: [&[Scope]; 2] = [&[Scope::Receiver], &[Scope::Client, Scope::Server]];

/// What is shown with its digits in groups.
const COUNTED: [&str; 2] = ["transactions", "segments"];

/// The ends that sent, likewise.
const SENDERS: [&[Scope]; 2] = [&[Scope::Sender], &[Scope::Client, Scope::Server]];

pub(super) fn show(out: &mut String, rows: &[Row], layout: Layout) {
    let runs: Vec<&Run> = rows.iter().flat_map(|row| &row.counted).copied().collect();
    let each = |number: &dyn Fn(&Run) -> Option<f64>| -> Vec<f64> {
        runs.iter().filter_map(|run| number(run)).collect()
    };
    let bytes = |run: &Run| sum(run, Metric::BytesWindow, &RECEIVERS);
    let again = |run: &Run| sum(run, Metric::Retransmits, &SENDERS).filter(|_| bytes(run).is_some());
    let window = |run: &Run| {
        let ends = [Scope::Receiver, Scope::Client, Scope::Server];
        ends.iter().filter_map(|&end| value(run, Metric::Window, end)).reduce(f64::max)
    };
    let at = |metric, scope| move |run: &Run| value(run, metric, scope);

    let work = range_of_bytes(&each(&bytes)).map(|bytes| format!("moved {bytes}"));
    let done = at(Metric::TransactionsWindow, Scope::Client);
    let work = work.or_else(|| Some(format!("completed {}", range("transactions", &each(&done))?)));
    let time = range("s", &each(&window));
    let mut parts: Vec<String> = match (work, time) {
        (Some(work), Some(time)) => vec![format!("{work} in {time}")],
        (work, time) => work.into_iter().chain(time.map(|time| format!("window {time}"))).collect(),
    };
    let count = each(&again);
    let share = each(&|run| Some(again(run)? / (bytes(run).filter(|bytes| *bytes > 0.0)? / 1e9)));
    if let (Some(segments), Some(share)) = (range("segments", &count), range("per GB", &share))
        && count.iter().any(|count| *count > 0.0)
    {
        let segments = if count == [1.0] { "1 segment".to_owned() } else { segments };
        parts.push(format!("{segments} sent again, {share}"));
    }
    if let Some(rtt) = range("us", &each(&at(Metric::Rtt, Scope::Sender))) {
        parts.push(format!("RTT of the sender {rtt}"));
    }
    if let Some(cwnd) = range("segments", &each(&at(Metric::Cwnd, Scope::Sender))) {
        parts.push(format!("its congestion window {cwnd}"));
    }
    listed(out, if runs.len() > 1 { "each run: " } else { "" }, &parts, layout);

    // The copies that were to be saved.
    let shares = [
        (Metric::ZerocopyCopied, Scope::Sender, "of the sends were copied after all"),
        (Metric::ReceiveMapped, Scope::Receiver, "of the bytes received were mapped"),
    ];
    let share = |(metric, scope, what): (Metric, Scope, &str)| {
        Some(format!("{} {what}", range("%", &each(&at(metric, scope)))?))
    };
    listed(out, "", &shares.into_iter().filter_map(share).collect::<Vec<_>>(), layout);
}

/// A count over the first of these groups of ends that has it.
fn sum(run: &Run, metric: Metric, groups: &[&[Scope]]) -> Option<f64> {
    groups.iter().find_map(|group| {
        let known = group.iter().filter_map(|&end| reading(run, metric, end));
        known.filter_map(|reading| reading.value).map(Value::as_f64).reduce(|a, b| a + b)
    })
}

/// "10.00 s", or "10.00 to 10.02 s".
fn range(unit: &str, values: &[f64]) -> Option<String> {
    let numbers: Vec<Number> =
        values.iter().filter_map(|&mean| Number { mean, stddev: None }.finite()).collect();
    let ends = numbers.iter().map(|number| number.mean);
    let (least, most) = (ends.clone().reduce(f64::min)?, ends.reduce(f64::max)?);
    let scale = Scale::of(unit, &numbers);
    let counts = COUNTED.contains(&unit) && numbers.iter().all(|number| number.mean.fract() == 0.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
    let show = |value: f64| if counts { grouped(value as u64) } else { scale.show(value) };
    let (least, most) = (show(least), show(most));
    Some(if least == most {
        format!("{most} {}", scale.unit)
    } else {
        format!("{least} to {most} {}", scale.unit)
    })
}

fn range_of_bytes(values: &[f64]) -> Option<String> {
    let most = values.iter().copied().fold(0.0, f64::max);
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let (divisor, unit) = units.into_iter().find(|(size, _)| most >= *size).unwrap_or((1.0, "B"));
    range(unit, &values.iter().map(|value| value / divisor).collect::<Vec<_>>())
}

fn listed(out: &mut String, lead: &str, parts: &[String], layout: Layout) {
    if !parts.is_empty() {
        let parts: Vec<String> = parts.iter().map(|part| bound(part)).collect();
        paragraph(out, &format!("  {lead}"), &parts.join("; "), 4, layout.columns());
    }
}
