//! Numbers of requests and responses.
//!
//! The client's count is the headline, over the client's own window: a response that was sent has not been received. Every
//! latency is the client's too, and says with its source what it was measured from.

use std::collections::BTreeSet;
use std::time::Duration;

use haul_host::thread::CpuList;
use haul_stats::latency::{Histogram, Quantile};
use haul_stats::{Doubt, DoubtId, Metric, Reading, Scope};
use serde_json::json;

use super::{MIN_OVERLAP, Per, cost, finite, overlap, retransmits, thread_cpu};
use crate::exchange::ExchangeReport;
use crate::report::{Detail, EndReport, Role, RunOutcome};
use crate::spec::{RunSpec, Transport, Workload};

/// Share of the pace asked for from which it counts as held.
const PACE_HELD: f64 = 0.97;

/// Share of the window from which a stall is more than one of many, where it is also so many times what is usual.
const STALL_SHARE: f64 = 0.1;
const STALL_TIMES: f64 = 20.0;

/// Share of an open loop's transactions that may be missing at the end of the window, beside those on their way.
const MISSING_SHARE: f64 = 0.01;

/// Share of the client's ports, held by closed connections to one address, from which the next connect is doubted. The
/// kernel searches one half of the range first: up to there a connect takes twice as long, from there on a hundred times.
const PORTS_SHARE: f64 = 0.4;

const COUNTED: &str = "responses complete at the client / client's elapsed time";

/// Source of a closed loop's latencies.
const SERVICE_TIME: &str = "service time, closed loop; buckets within 0.1 %";

/// Source of an open loop's.
const INTENDED: &str = "from the intended send time, open loop; buckets within 0.1 %";

const PERCENTILES: [(Metric, Quantile); 6] = [
    (Metric::LatencyP50, Quantile::P50),
    (Metric::LatencyP90, Quantile::P90),
    (Metric::LatencyP95, Quantile::P95),
    (Metric::LatencyP99, Quantile::P99),
    (Metric::LatencyP99_9, Quantile::P99_9),
    (Metric::LatencyP99_99, Quantile::P99_99),
];

/// What an end has to say beside its counters.
fn detail(end: &EndReport) -> Option<&ExchangeReport> {
    match &end.detail {
        Detail::Exchange(exchange) => Some(exchange),
        _ => None,
    }
}

/// Why an exchange that ended in order gives no number.
pub(super) fn validity(spec: &RunSpec, outcome: &RunOutcome) -> Result<(), String> {
    let (client, server) = (&outcome.client, &outcome.server);
    let (asked, answered) = (client.total_units(), server.total_units());
    if client.window_units() == 0 {
        return Err(if asked == 0 {
            "not one transaction was completed in the window: is the data path filtered between the ends?"
                .to_owned()
        } else {
            format!(
                "not one transaction was completed in the client's window of {:.1?}, though {asked} were before or after \
                 it: an end stalled, or the rate is too low; lengthen --time",
                client.window()
            )
        });
    }
    // What is under way when the client gives up waiting, or what UDP loses, is answered and not received.
    let whole = spec.workload == Workload::Rr && spec.transport == Transport::Tcp;
    let begun = detail(client).map_or(u64::MAX, |exchange| exchange.begun);
    let more = spec.transport == Transport::Tcp && answered > begun;
    if asked > answered || more || (whole && client.drained && server.drained && asked != answered) {
        return Err(format!("the ends disagree: {answered} responses were sent and {asked} received"));
    }
    let overlap = common(spec, client);
    if overlap < MIN_OVERLAP {
        let what = if client.flows.len() == 1 {
            "the flow was under way"
        } else {
            "the rates of the flows may not be added: they overlapped"
        };
        return Err(format!("{what} in only {:.0} % of the window: lengthen --warmup", overlap * 100.0));
    }
    Ok(())
}

/// The share of the window in which every flow was under way. One that keeps a schedule is so from the start, also while
/// none of it is due.
pub(super) fn common(spec: &RunSpec, report: &EndReport) -> f64 {
    if spec.pace.is_none() {
        return overlap(report);
    }
    let until = report.flows.iter().filter_map(|flow| flow.last).fold(report.window_end, Ord::min);
    until.since(report.window_start).as_secs_f64() / report.window().as_secs_f64()
}

/// The readings of an exchange, and what of it is to be doubted.
pub(super) fn of(spec: &RunSpec, outcome: &RunOutcome) -> (Vec<Reading>, Vec<Doubt>) {
    let client = &outcome.client;
    let nothing = ExchangeReport::default();
    let exchange = detail(client).unwrap_or(&nothing);
    let mut readings = vec![rate(client), completed(client)];
    latencies(&mut readings, method(spec), &exchange.latency);
    readings.extend(what_is_missing(spec, exchange));
    if let Some(pace) = spec.pace {
        readings.push(Reading::count(Metric::RequestedTransactions, Scope::Client, pace.0, "--rate"));
    }
    cost(&mut readings, spec, outcome, Per::Transaction(client.window_units()));
    match (spec.workload, spec.transport) {
        (Workload::Crr, _) => {
            readings.push(retransmits_of_all(client, Scope::Client));
            readings.push(retransmits_of_all(&outcome.server, Scope::Server));
        }
        (_, Transport::Tcp) => {
            for (end, scope) in [(client, Scope::Client), (&outcome.server, Scope::Server)] {
                readings.push(retransmits(end, scope));
            }
            readings.push(rtt(client));
        }
        (_, Transport::Udp) => {}
    }
    (readings, doubts(spec, outcome, exchange))
}

/// What is left of a run whose other end was lost: this end's own figures.
pub(super) fn partial(own: &EndReport, reason: &str) -> Vec<Reading> {
    let scope = if own.role == Role::Requester { Scope::Client } else { Scope::Server };
    let mut readings = Vec::new();
    if own.role == Role::Requester {
        readings.extend([rate(own), completed(own)]);
        if let Some(exchange) = detail(own) {
            latencies(&mut readings, "of the client, until the server was lost", &exchange.latency);
        }
    } else {
        let source = "the other end's report";
        readings.push(Reading::absent(Metric::Transactions, Scope::Client, source, reason));
    }
    readings.push(Reading::real(Metric::Window, scope, own.window().as_secs_f64(), "CLOCK_MONOTONIC"));
    readings.push(thread_cpu(own, scope));
    readings
}

/// The options of an exchange, and how it was timed.
pub(super) fn effective(spec: &RunSpec, outcome: &RunOutcome) -> Option<serde_json::Value> {
    if spec.workload == Workload::Stream {
        return None;
    }
    let client = &outcome.client;
    // What the number of transactions allows at best: those of one run are seldom independent, and runs differ by more.
    let interval = |&(metric, quantile): &(Metric, Quantile)| {
        let (low, high) = detail(client)?.latency.interval(quantile, 0.95)?;
        Some((metric.facts().name.to_owned(), json!([low as f64 / 1e3, high as f64 / 1e3])))
    };
    let intervals: serde_json::Map<_, _> = PERCENTILES.iter().filter_map(interval).collect();
    Some(json!({
        "latency_intervals_95_us": intervals,
        "request_bytes": spec.request,
        "response_bytes": spec.response,
        "in_flight": spec.in_flight,
        "spin": spec.spin,
        "busy_poll_us": spec.busy_poll_us,
        "closed_by": (spec.workload == Workload::Crr).then_some(if spec.reset { "reset" } else { "fin" }),
        "timeout_ns": (spec.transport == Transport::Udp).then(|| u64::try_from(spec.timeout.as_nanos()).ok()),
        "latency_from": method(spec),
        "latency_relative_error": 0.001,
        "begun": detail(client).map(|exchange| exchange.begun),
        "ports": detail(client).and_then(|exchange| exchange.ports),
        "pace": spec.pace.map(|pace| json!({
            "requested": pace,
            "achieved": finite(client.window_units() as f64 / client.window().as_secs_f64()),
        })),
    }))
}

/// What a connection of an end was like, where the flows make them as they go.
pub(super) fn connection(end: &EndReport) -> Option<&haul_host::socket::SocketFacts> {
    detail(end)?.connection.as_ref()
}

fn method(spec: &RunSpec) -> &'static str {
    if spec.pace.is_some() { INTENDED } else { SERVICE_TIME }
}

fn rate(client: &EndReport) -> Reading {
    let rate = client.window_units() as f64 / client.window().as_secs_f64();
    Reading::real(Metric::Transactions, Scope::Client, rate, COUNTED)
}

fn completed(client: &EndReport) -> Reading {
    let source = "sum over the flows";
    Reading::count(Metric::TransactionsWindow, Scope::Client, client.window_units(), source)
}

fn latencies(readings: &mut Vec<Reading>, method: &'static str, latency: &Histogram) {
    const NONE: &str = "no transaction was completed in the window";
    let micros = |metric, nanos: Result<f64, String>| match nanos {
        Ok(nanos) => Reading::real(metric, Scope::Client, nanos / 1e3, method),
        Err(reason) => Reading::absent(metric, Scope::Client, method, reason),
    };
    let one = |nanos: Option<f64>| nanos.ok_or_else(|| NONE.to_owned());
    readings.push(micros(Metric::LatencyMin, one(latency.min().map(|nanos| nanos as f64))));
    readings.push(micros(Metric::LatencyMean, one(latency.mean())));
    for (metric, quantile) in PERCENTILES {
        let percentile = latency.percentile(quantile);
        readings.push(micros(
            metric,
            percentile.map(|nanos| nanos as f64).map_err(|too_few| too_few.to_string()),
        ));
    }
    readings.push(micros(Metric::LatencyMax, one(latency.max().map(|nanos| nanos as f64))));
}

/// What no latency shows.
fn what_is_missing(spec: &RunSpec, exchange: &ExchangeReport) -> Vec<Reading> {
    let source = "times between completions of a flow, and since the last";
    let mut readings = vec![match exchange.longest_stall {
        Some(stall) => Reading::real(Metric::LongestStall, Scope::Client, stall.as_secs_f64() * 1e6, source),
        None => Reading::absent(Metric::LongestStall, Scope::Client, source, "the window never opened"),
    }];
    // What a closed loop has under way when the window closes is not late: a request of each flow always is. What UDP lost of it
    // shows in what was sent again.
    if spec.pace.is_some() {
        let source = "due less complete";
        readings.push(Reading::count(Metric::Unanswered, Scope::Client, exchange.unanswered, source));
    }
    if spec.transport == Transport::Udp {
        let source = "timeouts of the client, difference over the window";
        readings.push(Reading::count(Metric::Resends, Scope::Client, exchange.resends, source));
    }
    readings
}

/// How the spinning threads share their CPUs: two on one wait for each other's time slice.
fn spinning(outcome: &RunOutcome) -> String {
    let ends = [&outcome.client, &outcome.server];
    let crowded = |ends: &[&EndReport]| {
        let threads: usize = ends.iter().map(|end| end.threads.len()).sum();
        let affinities =
            ends.iter().flat_map(|end| &end.threads).filter_map(|thread| thread.affinity.as_ref());
        let cpus: BTreeSet<u32> = affinities.flat_map(CpuList::cpus).copied().collect();
        (!cpus.is_empty() && threads > cpus.len()).then_some((threads, cpus.len()))
    };
    let found =
        if outcome.shared_host() { crowded(&ends) } else { ends.iter().find_map(|end| crowded(&[end])) };
    match found {
        Some((threads, cpus)) => format!(
            "{threads} threads spun on {cpus} CPUs, and waited for each other's time slice: what they measured is the scheduler"
        ),
        None => "the threads of both ends spun".to_owned(),
    }
}

/// Of connections that are gone nobody can ask the kernel one by one.
fn retransmits_of_all(end: &EndReport, scope: Scope) -> Reading {
    const SOURCE: &str = "RetransSegs of /proc/net/snmp: every connection of this end's network namespace";
    if let Some(count) = detail(end).and_then(|exchange| exchange.namespace_retransmits) {
        return Reading::count(Metric::Retransmits, scope, count, SOURCE);
    }
    let reason = "its connections are closed, and the kernel's sum over all of them could not be read";
    Reading::absent(Metric::Retransmits, scope, SOURCE, reason)
}

fn rtt(client: &EndReport) -> Reading {
    let of = |flow: &crate::report::FlowReport| flow.tcp.as_ref()?.rtt_us.map(|rtt| rtt as f64);
    let rtts: Option<Vec<f64>> = client.flows.iter().map(of).collect();
    if let Some(rtts) = rtts.filter(|rtts| !rtts.is_empty()) {
        let mean = rtts.iter().sum::<f64>() / rtts.len() as f64;
        return Reading::real(Metric::Rtt, Scope::Client, mean, "TCP_INFO");
    }
    Reading::absent(Metric::Rtt, Scope::Client, "TCP_INFO", "the client's kernel did not report it")
}

fn doubts(spec: &RunSpec, outcome: &RunOutcome, exchange: &ExchangeReport) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let client = &outcome.client;
    let latency = &exchange.latency;
    let left_out: Vec<_> = PERCENTILES
        .into_iter()
        .filter_map(|(_, quantile)| Some((quantile, latency.percentile(quantile).err()?)))
        .collect();
    if let [(first, too_few), ..] = left_out.as_slice() {
        let text = format!("{} transactions, and {first} takes {}", too_few.n, too_few.needed);
        doubts.push(Doubt::new(DoubtId::FewSamples, text));
    }
    let (window, count) = (client.window(), client.window_units() as f64);
    // Behind a stall an open loop's mean is made of the stall itself: what is usual there is a turn of its schedule.
    let usual = match spec.pace {
        None => latency.mean().map(|nanos| Duration::from_secs_f64(nanos * 1e-9)),
        Some(pace) => latency.min().map(|nanos| {
            Duration::from_nanos(nanos)
                .max(Duration::from_secs(1) * spec.flows / u32::try_from(pace.0).unwrap_or(u32::MAX).max(1))
        }),
    };
    let stall = exchange.longest_stall.zip(usual);
    doubts.extend(stall.and_then(|(stall, usual)| stalled(stall, window, usual)));
    match spec.pace {
        None => {}
        Some(pace) => {
            let asked = pace.0 as f64 * window.as_secs_f64();
            // Each flow may stand just before one at one edge and just after one at the other.
            let behind = count + f64::from(spec.flows) < asked * PACE_HELD;
            if behind {
                let text = format!("{:.1} % of the {pace} asked for were completed", count / asked * 100.0);
                doubts.push(Doubt::new(DoubtId::RateMissed, text));
            }
            let on_the_way = pace.0 as f64 * latency.min().unwrap_or(0) as f64 * 1e-9;
            let missing = exchange.unanswered as f64;
            // Behind its pace, what is on the way is more with every second.
            let usual = if behind { 0.0 } else { 2.0 * on_the_way + f64::from(spec.flows) };
            if missing > (count * MISSING_SHARE).max(usual) {
                let text = format!(
                    "{} transactions were due and not complete when the window closed",
                    exchange.unanswered
                );
                doubts.push(Doubt::new(DoubtId::Unanswered, text));
            }
        }
    }
    let strangers = detail(&outcome.server).map_or(0, |server| server.strangers);
    if strangers > 0 {
        let text = format!("the server's ports were connected to {strangers} times by somebody else");
        doubts.push(Doubt::new(DoubtId::Strangers, text));
    }
    if spec.spin {
        doubts.push(Doubt::new(DoubtId::Spinning, spinning(outcome)));
    }
    if let Some(ports) = exchange.ports
        && ports.held as f64 > ports.range as f64 * PORTS_SHARE
    {
        let text = format!(
            "about {} of the {} local ports were held by closed connections to one port of the server: beyond half of \
             them each connect searches for a free one",
            ports.held.min(ports.range),
            ports.range
        );
        doubts.push(Doubt::new(DoubtId::PortExhaustion, text));
    }
    doubts
}

fn stalled(stall: Duration, window: Duration, usual: Duration) -> Option<Doubt> {
    if stall <= window.mul_f64(STALL_SHARE) || stall <= usual.mul_f64(STALL_TIMES) {
        return None;
    }
    let text = format!("a flow completed nothing for {stall:.1?}, in a window of {window:.1?}");
    Some(Doubt::new(DoubtId::Stalled, text))
}
