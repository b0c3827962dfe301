//! Numbers of a run of several legs.
//!
//! A leg's own numbers would say "sender" of both ends of a stream that goes both ways, and count one host's CPU once for
//! each leg. So the legs of such a run are told apart by the end that *received*, what they cost is taken together, and a
//! probe adds nothing but its latencies.

use haul_stats::{Doubt, DoubtId, Metric, Reading, Scope};
use serde_json::{Value as Json, json};

use super::{Per, activity, cost_of, datagram, effective, of, retransmits, stream};
use crate::report::{EndReport, RunOutcome};
use crate::spec::{Direction, RunSpec, Transport, Workload};

/// The readings of a finished run, and what is to be doubted about them. `idle` is the probe's exchange without the load.
#[must_use]
pub fn whole(
    spec: &RunSpec,
    outcomes: &[RunOutcome],
    idle: Option<&RunOutcome>,
) -> (Vec<Reading>, Vec<Doubt>) {
    let is_probe = |outcome: &&RunOutcome| spec.probe.is_some() && outcome.spec.workload == Workload::Rr;
    let (probes, loads): (Vec<&RunOutcome>, Vec<&RunOutcome>) = outcomes.iter().partition(is_probe);
    let (mut readings, mut doubts) = match loads.as_slice() {
        [outcome] => of(&outcome.spec, outcome),
        loads => both(spec, loads),
    };
    if let Some(loaded) = probes.first() {
        latencies(&mut readings, [Metric::ProbeIdleP50, Metric::ProbeIdleP99], idle);
        latencies(&mut readings, [Metric::ProbeLoadedP50, Metric::ProbeLoadedP99], Some(loaded));
        crowded(&mut doubts, outcomes);
        for (name, leg) in [("without load", idle), ("under load", Some(loaded))] {
            let of_the_leg = leg.map_or_else(Vec::new, |leg| of(&leg.spec, leg).1);
            let stalls = of_the_leg.into_iter().filter(|doubt| doubt.id == DoubtId::Stalled);
            doubts.extend(
                stalls.map(|doubt| Doubt::new(doubt.id, format!("the probe {name}: {}", doubt.text))),
            );
        }
    }
    (readings, doubts)
}

/// A stream each way.
fn both(spec: &RunSpec, legs: &[&RunOutcome]) -> (Vec<Reading>, Vec<Doubt>) {
    let (mut readings, mut doubts): (Vec<Reading>, Vec<Doubt>) = (Vec::new(), Vec::new());
    let (mut total, mut bits) = (0_u64, 0.0);
    for outcome in legs {
        let receiver = outcome.receiver();
        let (to, from) = match outcome.spec.direction {
            Direction::Receive => (Scope::Client, Scope::Server),
            Direction::Send | Direction::Both => (Scope::Server, Scope::Client),
        };
        total = total.saturating_add(receiver.window_units());
        let rate = stream::rate(receiver, to, stream::TAKEN);
        bits += rate.value.map_or(0.0, haul_stats::Value::as_f64);
        let own_doubts = of(&outcome.spec, outcome).1;
        readings.push(rate);
        readings.push(Reading::real(Metric::Window, to, receiver.window().as_secs_f64(), "CLOCK_MONOTONIC"));
        readings.push(Reading::count(Metric::BytesWindow, to, receiver.window_units(), "sum over the flows"));
        readings.push(Reading::count(Metric::BytesTotal, to, receiver.total_units(), "sum over the flows"));
        if outcome.spec.transport == Transport::Tcp {
            readings.push(retransmits(outcome.sender(), from));
        }
        if outcome.spec.transport == Transport::Udp {
            // The end the datagrams of one direction were for says which.
            let packets = datagram::packets(&outcome.spec, outcome);
            readings.extend(packets.into_iter().map(|reading| Reading { scope: to, ..reading }));
        }
        for doubt in own_doubts {
            if !doubts.iter().any(|known| known.id == doubt.id && known.text == doubt.text) {
                doubts.push(doubt);
            }
        }
    }
    readings.insert(0, all_of_it(spec, legs, total, bits));
    if let Some(outcome) = merged(legs) {
        let ends = [(&outcome.client, Scope::Client), (&outcome.server, Scope::Server)];
        let (shared, per) = (outcome.shared_host(), Per::Kib(total));
        cost_of(&mut readings, ends, shared, per);
        let (beside, of_hosts) = activity::of(ends, shared, per);
        readings.extend(beside);
        // Each leg has told its own already, by the names of a single direction.
        let told = of_hosts.iter().map(|doubt| doubt.id).collect::<Vec<_>>();
        doubts.retain(|doubt| !told.contains(&doubt.id));
        doubts.extend(of_hosts);
    }
    if let Some(rate) = spec.rate {
        readings.push(Reading::count(Metric::RequestedRate, Scope::Run, rate.0, "--rate, each direction"));
    }
    (readings, doubts)
}

/// Both directions together. Rates of one window may be added; of a run by amount, whose directions end when they are
/// done, only the whole may be divided by the whole time.
fn all_of_it(spec: &RunSpec, legs: &[&RunOutcome], total: u64, bits: f64) -> Reading {
    if spec.bytes.is_none() {
        return Reading::real(Metric::Throughput, Scope::Run, bits, "sum of both directions");
    }
    let longest = legs.iter().map(|outcome| outcome.receiver().window()).max().unwrap_or_default();
    let source = "bytes of both directions / time until the slower one was done";
    Reading::real(Metric::Throughput, Scope::Run, total as f64 * 8.0 / longest.as_secs_f64(), source)
}

/// The legs as one: the threads of both at each end, the host's CPU once.
fn merged(legs: &[&RunOutcome]) -> Option<RunOutcome> {
    let end = |pick: fn(&RunOutcome) -> &EndReport| {
        let mut ends = legs.iter().map(|outcome| pick(outcome));
        let mut whole = ends.next()?.clone();
        for other in ends {
            whole.threads.extend(other.threads.iter().cloned());
        }
        Some(whole)
    };
    let first = legs.first()?;
    let (spec, clock_offset) = (first.spec.clone(), first.clock_offset);
    Some(RunOutcome { spec, client: end(|it| &it.client)?, server: end(|it| &it.server)?, clock_offset })
}

/// The probe's median latency and its tail, under these names.
fn latencies(readings: &mut Vec<Reading>, names: [Metric; 2], found: Option<&RunOutcome>) {
    let own = found.map_or_else(Vec::new, |outcome| of(&outcome.spec, outcome).0);
    for (metric, latency) in names.into_iter().zip([Metric::LatencyP50, Metric::LatencyP99]) {
        let reading = own.iter().find(|reading| reading.metric == latency);
        readings.push(match reading {
            Some(reading) => Reading { metric, scope: Scope::Run, ..reading.clone() },
            None => Reading::absent(metric, Scope::Run, "--probe", "the probe gave no latency"),
        });
    }
}

/// Whether the probe had a CPU of its own to answer on.
fn crowded(doubts: &mut Vec<Doubt>, outcomes: &[RunOutcome]) {
    let Some(first) = outcomes.first() else { return };
    let threads: usize = outcomes
        .iter()
        .map(|leg| leg.client.threads.len() + if leg.shared_host() { leg.server.threads.len() } else { 0 })
        .sum();
    let cpus = first.client.cpu.as_ref().map_or(0, |cpu| cpu.ncpu as usize);
    if cpus > 0 && threads > cpus {
        let text = format!("{threads} threads of load and probe share {cpus} CPUs");
        doubts.push(Doubt::new(DoubtId::ProbeShared, text));
    }
}

/// The options in force at both ends, by leg where there are several.
#[must_use]
pub fn in_force(outcomes: &[RunOutcome]) -> Json {
    let each: Vec<Json> = outcomes.iter().map(|outcome| effective(&outcome.spec, outcome)).collect();
    match <[Json; 1]>::try_from(each) {
        Ok([only]) => only,
        Err(several) => json!({ "legs": several }),
    }
}
