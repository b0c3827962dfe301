//! What a single run has to say beyond its row of the table: the distribution of its latencies, what became of its
//! datagrams, and the slices of its window.
//!
//! A percentile is shown where there are samples enough for it; what the others would have needed is told in one line.
//! All times of a distribution are in one unit, so that they can be compared by eye.

use haul_stats::{Metric, Quantile, Reading, Scope, Value};

use super::beside;
use super::cells::{needed, quantile, troubles, whose};
use super::number::{NONE, Number, Scale, grouped, quantity};
use super::rows::{reading, value};
use super::table::{Align, Column, Table};
use super::wrap::{bound, paragraph};
use super::{Layout, enumerate, foreign};
use crate::record::{Interval, Run};

/// The figures of a distribution of latencies, in ascending order but for the mean.
const LATENCIES: [(Metric, &str); 9] = [
    (Metric::LatencyMin, "min"),
    (Metric::LatencyP50, "p50"),
    (Metric::LatencyP90, "p90"),
    (Metric::LatencyP95, "p95"),
    (Metric::LatencyP99, "p99"),
    (Metric::LatencyP99_9, "p99.9"),
    (Metric::LatencyP99_99, "p99.99"),
    (Metric::LatencyMax, "max"),
    (Metric::LatencyMean, "mean"),
];

/// Whose numbers describe the datagrams of one direction; of a single direction it is known whose.
const WAYS: [(&[Scope], &str); 3] = [
    (&[Scope::Receiver, Scope::Sender, Scope::Run], ""),
    (&[Scope::Server], "to the server: "),
    (&[Scope::Client], "to the client: "),
];

pub(super) fn show(out: &mut String, run: &Run, layout: Layout) {
    latencies(out, run, layout);
    datagrams(out, run, layout);
    beside::show(out, run, layout);
    intervals(out, &run.intervals, layout);
}

/// The reading of a metric that only one end can have.
fn of_any(run: &Run, metric: Metric) -> Option<&Reading> {
    let mut all = run.readings.iter().filter(|reading| reading.metric == metric);
    let first = all.clone().next();
    all.find(|reading| reading.value.is_some()).or(first)
}

fn count(reading: Option<&Reading>) -> Option<String> {
    match reading?.value? {
        Value::Int(count) => Some(grouped(count)),
        Value::Real(value) => {
            let scale = Scale::of("packets", &[Number { mean: value, stddev: None }.finite()?]);
            Some(scale.show(value))
        }
    }
}

fn latencies(out: &mut String, run: &Run, layout: Layout) {
    let readings: Vec<(&str, &Reading)> = LATENCIES
        .iter()
        .filter_map(|(metric, name)| Some((*name, reading(run, *metric, Scope::Client)?)))
        .collect();
    if readings.is_empty() {
        return;
    }
    let n = count(of_any(run, Metric::TransactionsWindow));
    let heading = n
        .as_ref()
        .map_or_else(|| "latency of all transactions".to_owned(), |n| format!("latency of {n} transactions"));
    layout.heading(out, &heading);
    let known: Vec<(&str, Number)> = readings
        .iter()
        .filter_map(|(name, reading)| {
            Some((*name, Number { mean: reading.value?.as_f64(), stddev: None }.finite()?))
        })
        .collect();
    if !known.is_empty() {
        let all: Vec<Number> = known.iter().map(|(_, number)| *number).collect();
        let column =
            |(name, number): &(&str, Number)| Column::numbers_beside(&[name], "us", &[Some(*number)], &all);
        let table = Table { values: known.iter().map(column).collect(), ..Table::default() };
        out.push_str(&table.render(layout.columns()));
    }
    let few: Vec<(Quantile, u64)> = readings
        .iter()
        .filter_map(|(_, reading)| Some((quantile(reading.metric)?, needed(reading)?)))
        .collect();
    if !few.is_empty() {
        let names: Vec<String> = few.iter().map(|(quantile, _)| quantile.to_string()).collect();
        let needed: Vec<String> = few.iter().map(|(_, needed)| grouped(*needed)).collect();
        let verb = if few.len() == 1 { "needs" } else { "need" };
        let text = format!("{} {verb} {} transactions", enumerate(&names), enumerate(&needed));
        paragraph(out, &format!("{NONE} "), &text, 2, layout.columns());
    }
    let mut parts: Vec<String> = Vec::new();
    if let Some(longest) = of_any(run, Metric::LongestStall).and_then(|reading| reading.value) {
        parts.push(format!("longest stall {}", quantity("us", longest.as_f64())));
    }
    parts.extend(troubles(&[run], 0));
    listed(out, "", &parts, layout);
}

/// The parts in one paragraph, none of them broken at a line's end; nothing where there is none.
fn listed(out: &mut String, way: &str, parts: &[String], layout: Layout) {
    if !parts.is_empty() {
        let parts: Vec<String> = parts.iter().map(|part| bound(part)).collect();
        paragraph(out, &format!("  {way}"), &parts.join(", "), 4, layout.columns());
    }
}

/// Sent, received, lost and where, out of order, and when they came.
fn datagrams(out: &mut String, run: &Run, layout: Layout) {
    let told = |scopes: &[Scope]| {
        let metrics =
            [Metric::PacketRate, Metric::PacketsReceived, Metric::Loss, Metric::Lost, Metric::PacketsSent];
        metrics.iter().any(|metric| scopes.iter().any(|scope| value(run, *metric, *scope).is_some()))
    };
    let ways: Vec<_> = WAYS.iter().filter(|(scopes, _)| told(scopes)).collect();
    if !ways.is_empty() {
        layout.heading(out, "datagrams");
    }
    for (scopes, way) in ways {
        let find = |metric| {
            let mut all = scopes.iter().filter_map(|scope| reading(run, metric, *scope));
            let first = all.clone().next();
            all.find(|reading| reading.value.is_some()).or(first)
        };
        let [became, places, order, times] = one_way(find);
        if way.is_empty() {
            for (lead, parts) in [("", became), ("lost: ", places), ("", order), ("", times)] {
                listed(out, lead, &parts, layout);
            }
        } else {
            listed(out, way, &[became, places, order, times].concat(), layout);
        }
    }
}

/// What became of the datagrams of a direction, where they were lost, in which order they came, and when.
fn one_way<'a>(find: impl Fn(Metric) -> Option<&'a Reading>) -> [Vec<String>; 4] {
    let number = |metric| find(metric)?.value.map(Value::as_f64);
    let counted =
        |metric, before: &str, after: &str| Some(format!("{before}{}{after}", count(find(metric))?));
    let sent = counted(Metric::PacketsSent, "", " sent");
    let received = counted(Metric::PacketsReceived, "", " received");
    let share = number(Metric::Loss).map(|loss| quantity("%", loss));
    let lost = match (count(find(Metric::Lost)), share) {
        (Some(lost), Some(share)) => Some(format!("{lost} lost ({share})")),
        (Some(lost), None) => Some(format!("{lost} lost")),
        (None, share) => share.map(|share| format!("{share} lost")),
    };
    let became = [sent, received, lost];

    // Where nothing was lost there is no place to name.
    let any = number(Metric::Lost).or_else(|| number(Metric::Loss)).is_none_or(|lost| lost > 0.0);
    let places = [
        (Metric::LostSender, "in the sender's host"),
        (Metric::LostPath, "on the path"),
        (Metric::LostReceiver, "in the receiver's host"),
    ];
    let places = places.map(|(metric, place)| {
        let reading = find(metric).filter(|_| any)?;
        Some(match (count(Some(reading)), reading.reason.as_deref()) {
            (Some(count), _) => format!("{count} {place}"),
            (None, Some(reason)) => format!("{NONE} {place} ({})", foreign(reason)),
            (None, None) => format!("{NONE} {place}"),
        })
    });

    let behind = number(Metric::Reordered).is_none_or(|reordered| reordered > 0.0);
    let order = [
        counted(Metric::Duplicates, "", " duplicates"),
        counted(Metric::Reordered, "", " reordered"),
        counted(Metric::ReorderExtent, "at most ", " behind").filter(|_| behind),
    ];

    let gaps = [(Metric::GapP50, "p50"), (Metric::GapP99, "p99"), (Metric::GapMax, "max")];
    let gaps: Vec<(&str, f64)> =
        gaps.iter().filter_map(|(metric, name)| Some((*name, number(*metric)?))).collect();
    let all: Vec<Number> = gaps.iter().map(|(_, mean)| Number { mean: *mean, stddev: None }).collect();
    let scale = Scale::of("us", &all);
    let shown: Vec<String> = gaps.iter().map(|(name, gap)| format!("{name} {}", scale.show(*gap))).collect();
    let times = [
        number(Metric::Jitter).map(|jitter| format!("jitter {}", quantity("us", jitter))),
        (!shown.is_empty()).then(|| format!("between arrivals {} {}", shown.join(", "), scale.unit)),
    ];
    let parts = |parts: &[Option<String>]| parts.iter().flatten().cloned().collect();
    [parts(&became), parts(&places), parts(&order), parts(&times)]
}

/// The slices of the window, of either direction, in order of time.
fn intervals(out: &mut String, intervals: &[Interval], layout: Layout) {
    if intervals.is_empty() {
        return;
    }
    let mut slices: Vec<&Interval> = intervals.iter().collect();
    slices.sort_by(|a, b| a.start_s.total_cmp(&b.start_s));
    let numbers = |pick: &dyn Fn(&Interval) -> Option<f64>| -> Vec<Option<Number>> {
        let number = |slice: &&Interval| Number { mean: pick(slice)?, stddev: None }.finite();
        slices.iter().map(number).collect()
    };
    let known = |heading: &str, unit: &str, pick: &dyn Fn(&Interval) -> Option<f64>| {
        let entries = numbers(pick);
        entries.iter().any(Option::is_some).then(|| Column::numbers(&[heading], unit, &entries))
    };
    let starts = numbers(&|slice| Some(slice.start_s));
    let ends = numbers(&|slice| Some(slice.start_s + slice.seconds));
    // How far the first start lies from 0 is no reason for decimals.
    let scale = Scale::of("s", &ends.iter().copied().flatten().collect::<Vec<_>>());
    let time = |heading: &str, at: &[Option<Number>]| {
        Column::spread(&[heading, &scale.unit], at, &vec![scale.clone(); at.len()])
    };
    let mut keys = vec![time("from", &starts), time("to", &ends)];
    let direction = |slice: &Interval| match slice.direction.as_deref() {
        Some("send") => whose(Metric::Throughput, Scope::Server).to_owned(),
        Some("receive") => whose(Metric::Throughput, Scope::Client).to_owned(),
        Some(other) => super::label(other, super::LONGEST_NAME),
        None => NONE.to_owned(),
    };
    let directions: Vec<String> = slices.iter().map(|slice| direction(slice)).collect();
    if directions.windows(2).any(|pair| pair[0] != pair[1]) {
        keys.push(Column::text(&["direction"], Align::Left, directions));
    }
    let count = |count: Option<u64>| count.map(|count| count as f64);
    let rate = known("throughput", "bit/s", &|slice| slice.bits_per_second)
        .or_else(|| known("payload", "B", &|slice| count(slice.bytes)));
    let transactions = known("transactions", "1/s", &|slice| slice.transactions_per_second)
        .or_else(|| known("transactions", "", &|slice| count(slice.transactions)));
    let again = known("retrans", "segments", &|slice| count(slice.retransmits));
    let lost = known("lost", "datagrams", &|slice| count(slice.lost));
    let values = [rate, transactions, again, lost].into_iter().flatten().collect();
    layout.heading(out, "intervals");
    out.push_str(&Table { keys, values, stacked: false }.render(layout.columns()));
}
