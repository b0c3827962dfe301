//! From what two ends saw to numbers that cannot be misread.
//!
//! Pure: two [`EndReport`]s in, readings and doubts out. The rules are those a sceptic would ask for.
//! The headline is the count of the end that knows (the receiver's bytes, the requester's answers) over that end's own
//! elapsed time. CPU is the whole host's where the ends are on two kernels; where they share one (the same boot id) the
//! whole is shown once and the ends are told apart by the time of their threads, never both counted twice. Service
//! demand divides by what has *arrived*: what was only handed to a kernel has not been moved. [`validity`] says when a
//! run must not become a number at all.
//!
//! What all workloads share is here; what is one workload's own is in the module named after it.

use std::borrow::Cow;
use std::time::Duration;

use haul_host::socket::TcpFacts;
use haul_stats::{Doubt, DoubtId, Metric, MonoNanos, Reading, Scope};
use serde_json::json;

use crate::report::{EndReport, RunOutcome, ThreadReport};
use crate::spec::{RunSpec, Transport, Workload};

mod datagram;
mod exchange;
mod stream;
mod whole;

pub use whole::{in_force, whole};

/// Least share of the window in which all flows must have been moving for their rates to be added.
pub const MIN_OVERLAP: f64 = 0.95;

/// Least share of the window asked for that must have been seen: what is left of a late opening is an accident.
const LEAST_WINDOW: f64 = 0.5;

/// Share of the window from which a thread counts as saturating its CPU; the rest is what a scheduler tick may take.
const BOUND_SHARE: f64 = 0.97;

/// Share of one CPU that a shared host may be busy beyond the workload's own threads: soft interrupts outside them, the
/// sampling threads and an idle system's own work stay below it.
const OTHER_LOAD: f64 = 0.25;

/// Share of the host's CPU time taken by the hypervisor from which a run is doubted.
const STEAL_SHARE: f64 = 0.02;

/// Why a run that ended in order still gives no number.
pub fn validity(spec: &RunSpec, outcome: &RunOutcome) -> Result<(), String> {
    for (end, report) in [("client", &outcome.client), ("server", &outcome.server)] {
        for (index, flow) in report.flows.iter().enumerate() {
            if let Some(fault) = &flow.fault {
                return Err(format!("{end}: flow {index} broke off: {fault}"));
            }
        }
    }
    let counting = outcome.counting();
    let whose = if spec.workload == Workload::Stream { "receiver" } else { "client" };
    if counting.window().is_zero() {
        return Err("the run ended before its window opened: shorten --warmup or lengthen --time".to_owned());
    }
    if counting.window() < spec.window.mul_f64(LEAST_WINDOW) && spec.bytes.is_none() {
        return Err(format!(
            "the {whose} saw only {:.1?} of the window of {:?}: it was woken late; lengthen --time, or quieten the machine",
            counting.window(),
            spec.window
        ));
    }
    match (spec.workload, spec.transport) {
        (Workload::Stream, Transport::Tcp) => stream::validity(spec, outcome),
        (Workload::Stream, Transport::Udp) => datagram::validity(spec, outcome),
        (Workload::Rr | Workload::Crr, _) => exchange::validity(spec, outcome),
    }
}

/// The readings of one leg of a finished run, and what is to be doubted about them.
#[must_use]
pub fn of(spec: &RunSpec, outcome: &RunOutcome) -> (Vec<Reading>, Vec<Doubt>) {
    let (mut readings, own) = match (spec.workload, spec.transport) {
        (Workload::Stream, Transport::Tcp) => stream::of(spec, outcome),
        (Workload::Stream, Transport::Udp) => datagram::of(spec, outcome),
        (Workload::Rr | Workload::Crr, _) => exchange::of(spec, outcome),
    };
    for (end, scope) in ends(spec, outcome) {
        readings.push(Reading::real(Metric::Window, scope, end.window().as_secs_f64(), "CLOCK_MONOTONIC"));
    }
    readings.push(Reading::real(
        Metric::Overlap,
        Scope::Run,
        common(spec, outcome) * 100.0,
        "flows under way and both ends' windows, by the estimated clock offset",
    ));
    let mut doubts = doubts(spec, outcome);
    doubts.extend(own);
    (readings, doubts)
}

/// What is left of a run whose other end was lost: this end's own figures, the other's absent with the reason.
#[must_use]
pub fn partial(own: &EndReport, reason: &str) -> Vec<Reading> {
    if own.role.leads() == own.role.counts() {
        exchange::partial(own, reason)
    } else if own.datagrams().is_some() {
        datagram::partial(own, reason)
    } else {
        stream::partial(own, reason)
    }
}

/// The two ends by the names their numbers have: the one that leads first.
fn ends<'a>(spec: &RunSpec, outcome: &'a RunOutcome) -> [(&'a EndReport, Scope); 2] {
    match spec.workload {
        Workload::Stream => [(outcome.sender(), Scope::Sender), (outcome.receiver(), Scope::Receiver)],
        Workload::Rr | Workload::Crr => [(&outcome.client, Scope::Client), (&outcome.server, Scope::Server)],
    }
}

/// What CPU time is divided by.
#[derive(Debug, Clone, Copy)]
enum Per {
    /// So many bytes that have arrived.
    Kib(u64),
    /// So many transactions.
    Transaction(u64),
}

impl Per {
    fn demand(self, cpu: Duration, scope: Scope, whose: &str) -> Reading {
        let micros = cpu.as_secs_f64() * 1e6;
        let (metric, value, what) = match self {
            Self::Kib(bytes) => (Metric::ServiceDemand, micros / (bytes as f64 / 1024.0), "payload received"),
            Self::Transaction(count) => {
                (Metric::ServiceDemandTransaction, micros / count as f64, "transactions")
            }
        };
        Reading::real(metric, scope, value, format!("{whose} / {what}"))
    }

    fn absent(self, scope: Scope, whose: &str, reason: String) -> Reading {
        let metric = match self {
            Self::Kib(_) => Metric::ServiceDemand,
            Self::Transaction(_) => Metric::ServiceDemandTransaction,
        };
        Reading::absent(metric, scope, whose.to_owned(), reason)
    }
}

/// The CPU time of both ends, and what it comes to for each unit of work.
fn cost(readings: &mut Vec<Reading>, spec: &RunSpec, outcome: &RunOutcome, per: Per) {
    cost_of(readings, ends(spec, outcome), outcome.shared_host(), per);
}

fn cost_of(readings: &mut Vec<Reading>, ends: [(&EndReport, Scope); 2], shared: bool, per: Per) {
    if shared {
        let [(one, _), _] = ends;
        cpu(readings, one, Scope::SharedHost);
        readings.push(demand_of_host(one, Scope::SharedHost, per));
        for (end, scope) in ends {
            readings.push(thread_cpu(end, scope));
            readings.push(demand_of_threads(end, scope, per));
        }
    } else {
        for (end, scope) in ends {
            cpu(readings, end, scope);
            readings.push(thread_cpu(end, scope));
            readings.push(demand_of_host(end, scope, per));
        }
    }
}

/// The share of the window in which every flow was under way. A flow that is starved is under way: its rate is low, and
/// may be added.
fn overlap(report: &EndReport) -> f64 {
    let mut from = report.window_start;
    let mut until = report.window_end;
    for flow in &report.flows {
        let (Some(first), Some(last)) = (flow.first, flow.last) else { return 0.0 };
        from = from.max(first);
        until = until.min(last);
    }
    until.since(from).as_secs_f64() / report.window().as_secs_f64()
}

/// The share of the window of the end that counts which is also the other's, with every flow under way.
fn common(spec: &RunSpec, outcome: &RunOutcome) -> f64 {
    let counting = outcome.counting();
    let offset = outcome.clock_offset.server_minus_client_ns;
    // The other's edges on the clock of the end that counts.
    let (other, shift) = if outcome.client.role.counts() {
        (&outcome.server, offset.saturating_neg())
    } else {
        (&outcome.client, offset)
    };
    let here = |at: MonoNanos| MonoNanos(at.0.saturating_add_signed(shift));
    let from = here(other.window_start).max(counting.window_start);
    let until = here(other.window_end).min(counting.window_end);
    let windows = until.since(from).as_secs_f64() / counting.window().as_secs_f64();
    windows.min(exchange::common(spec, counting))
}

fn cpu(readings: &mut Vec<Reading>, end: &EndReport, scope: Scope) {
    let Some(used) = &end.cpu else {
        let reason = end.cpu_reason.clone().unwrap_or_else(|| "not reported".to_owned());
        readings.push(Reading::absent(Metric::CpuBusy, scope, "/proc/stat", reason.clone()));
        readings.push(Reading::absent(Metric::CpuUtilization, scope, "/proc/stat", reason));
        return;
    };
    let source = || Cow::Owned(format!("{}, resolution {:?}", used.source, used.resolution));
    let whole = used.elapsed.as_secs_f64() * f64::from(used.ncpu);
    readings.push(Reading::real(Metric::CpuBusy, scope, used.busy.as_secs_f64(), source()));
    readings.push(Reading::real(
        Metric::CpuUtilization,
        scope,
        used.busy.as_secs_f64() / whole * 100.0,
        source(),
    ));
    let split = if used.split_is_ticks { "/proc/stat, sampled at ticks" } else { "/proc/stat" };
    for (metric, time) in [
        (Metric::CpuUser, used.user + used.nice),
        (Metric::CpuSystem, used.system),
        (Metric::CpuIrq, used.irq),
        (Metric::CpuSoftirq, used.softirq),
        (Metric::CpuSteal, used.steal),
    ] {
        readings.push(Reading::real(metric, scope, time.as_secs_f64(), split));
    }
}

/// CPU time of all worker threads of an end, or the reason one of them has none.
fn threads_total(end: &EndReport) -> Result<Duration, String> {
    let mut total = Duration::ZERO;
    for thread in &end.threads {
        match &thread.cpu {
            Some(time) => total += time.total,
            None => return Err(thread.reason.clone().unwrap_or_else(|| "not reported".to_owned())),
        }
    }
    if end.threads.is_empty() { Err("no worker thread was reported".to_owned()) } else { Ok(total) }
}

const THREAD_CLOCK: &str = "per-thread CPU clock, ns";

fn thread_cpu(end: &EndReport, scope: Scope) -> Reading {
    match threads_total(end) {
        Ok(total) => Reading::real(Metric::ThreadCpu, scope, total.as_secs_f64(), THREAD_CLOCK),
        Err(reason) => Reading::absent(Metric::ThreadCpu, scope, THREAD_CLOCK, reason),
    }
}

fn demand_of_threads(end: &EndReport, scope: Scope, per: Per) -> Reading {
    const WHOSE: &str = "threads: per-thread CPU clock";
    match threads_total(end) {
        Ok(total) => per.demand(total, scope, WHOSE),
        Err(reason) => per.absent(scope, WHOSE, reason),
    }
}

fn demand_of_host(end: &EndReport, scope: Scope, per: Per) -> Reading {
    const WHOSE: &str = "system: busy time of all CPUs";
    match &end.cpu {
        Some(used) => per.demand(used.busy, scope, WHOSE),
        None => per.absent(scope, WHOSE, end.cpu_reason.clone().unwrap_or_else(|| "not reported".to_owned())),
    }
}

fn retransmits(sender: &EndReport, scope: Scope) -> Reading {
    let counts: Option<u64> = sender.flows.iter().map(|flow| flow.window_retransmits).sum();
    match counts {
        Some(count) => {
            Reading::count(Metric::Retransmits, scope, count, "TCP_INFO, difference over the window")
        }
        None => Reading::absent(
            Metric::Retransmits,
            scope,
            "TCP_INFO",
            "the sender's kernel did not report it for every flow",
        ),
    }
}

fn tcp_info(readings: &mut Vec<Reading>, sender: &EndReport) {
    let mean = |pick: &dyn Fn(&TcpFacts) -> Option<f64>| -> Option<f64> {
        let values: Option<Vec<f64>> =
            sender.flows.iter().map(|flow| flow.tcp.as_ref().and_then(pick)).collect();
        let values = values.filter(|values| !values.is_empty())?;
        Some(values.iter().sum::<f64>() / values.len() as f64)
    };
    let share = |part: Option<u64>, whole: Option<u64>| match (part?, whole?) {
        (_, 0) => None,
        (part, whole) => Some(part as f64 / whole as f64 * 100.0),
    };
    for (metric, value) in [
        (Metric::Rtt, mean(&|tcp| tcp.rtt_us.map(|rtt| rtt as f64))),
        (Metric::Cwnd, mean(&|tcp| tcp.cwnd.map(|cwnd| cwnd as f64))),
        (Metric::RwndLimited, mean(&|tcp| share(tcp.rwnd_limited_us, tcp.busy_us))),
        (Metric::SndbufLimited, mean(&|tcp| share(tcp.sndbuf_limited_us, tcp.busy_us))),
    ] {
        readings.push(match value {
            Some(value) => Reading::real(metric, Scope::Sender, value, "TCP_INFO"),
            None => {
                Reading::absent(metric, Scope::Sender, "TCP_INFO", "the sender's kernel did not report it")
            }
        });
    }
}

/// The options in force at both ends, read back from the sockets and threads.
#[must_use]
pub fn effective(spec: &RunSpec, outcome: &RunOutcome) -> serde_json::Value {
    let end = |report: &EndReport| {
        let socket = report.flows.first().and_then(|flow| flow.socket.as_ref());
        let socket = socket.or_else(|| exchange::connection(report));
        let same = report.flows.iter().all(|flow| match (socket, flow.socket.as_ref()) {
            (Some(a), Some(b)) => {
                a.sndbuf == b.sndbuf
                    && a.rcvbuf == b.rcvbuf
                    && a.mss == b.mss
                    && a.cc == b.cc
                    && a.tos == b.tos
            }
            _ => false,
        });
        json!({
            "host": report.host,
            "socket": socket,
            "flows_alike": same,
            "threads": report.threads.len(),
            "zerocopy": report.zerocopy(),
            "affinity": report.threads.iter().map(|thread| thread.affinity.clone()).collect::<Vec<_>>(),
            "numa_nodes": report.threads.iter().map(|thread| thread.node).collect::<Vec<_>>(),
        })
    };
    json!({
        "client": end(&outcome.client),
        "server": end(&outcome.server),
        "message_bytes": spec.message,
        "clock_offset_ns": outcome.clock_offset.server_minus_client_ns,
        "clock_offset_error_ns": u64::try_from(outcome.clock_offset.error.as_nanos()).ok(),
        "send_with": spec.send_with,
        "send_file": spec.send_with.is_from_file().then(|| {
            spec.send_file.as_ref().map_or("memory".into(), |path| path.to_string_lossy())
        }),
        "recv_with": spec.recv_with,
        "send_offset_bytes": spec.send_offset,
        "recv_offset_bytes": spec.recv_offset,
        "datagrams": datagram::effective(spec, outcome),
        "exchange": exchange::effective(spec, outcome),
        "rate": spec.rate.map(|rate| json!({
            "requested": rate,
            "achieved": finite(outcome.sender().window_units() as f64 * 8.0 / outcome.sender().window().as_secs_f64()),
        })),
    })
}

/// A number as JSON can have it.
fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

fn doubts(spec: &RunSpec, outcome: &RunOutcome) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let (sender, receiver) = (outcome.sender(), outcome.receiver());
    if outcome.shared_host() {
        doubts.push(Doubt::new(DoubtId::SharedHost, "client and server run on the same kernel"));
        other_load(&mut doubts, outcome);
    }
    let free: Vec<&str> = [("client", &outcome.client), ("server", &outcome.server)]
        .into_iter()
        .filter(|(_, report)| {
            report
                .threads
                .iter()
                .any(|thread| thread.affinity.as_ref().is_none_or(|cpus| cpus.cpus().len() > 1))
        })
        .map(|(end, _)| end)
        .collect();
    if !free.is_empty() {
        doubts.push(Doubt::new(
            DoubtId::Unpinned,
            format!("worker threads of the {} may move between CPUs", free.join(" and the ")),
        ));
    }
    let cc = sender.flows.first().and_then(|flow| flow.socket.as_ref()?.cc.as_deref());
    if outcome.shared_host() && cc.is_some_and(|cc| cc.starts_with("bbr")) {
        doubts.push(Doubt::new(DoubtId::PacingCc, "the sender's congestion control is bbr"));
    }
    clamped(&mut doubts, spec, outcome);
    for (end, name) in ends(spec, outcome) {
        let window = end.window().as_secs_f64();
        let bound = |thread: &&ThreadReport| {
            thread.cpu.as_ref().is_some_and(|cpu| cpu.total.as_secs_f64() > window * BOUND_SHARE)
        };
        let count = end.threads.iter().filter(bound).count();
        // A thread that spins does so also with nothing to do.
        if count > 0 && !spec.spin {
            doubts.push(Doubt::new(
                DoubtId::CpuBound,
                format!("{count} of {} threads of the {name} kept a CPU busy throughout", end.threads.len()),
            ));
        }
        if let Some(cpu) = &end.cpu
            && cpu.steal.as_secs_f64() > window * f64::from(cpu.ncpu) * STEAL_SHARE
            && !(outcome.shared_host() && end.role.leads())
        {
            doubts.push(Doubt::new(
                DoubtId::Steal,
                format!(
                    "{:.2} s of CPU time were stolen in a window of {window:.2} s",
                    cpu.steal.as_secs_f64()
                ),
            ));
        }
        if !end.drained {
            doubts.push(Doubt::new(
                DoubtId::DrainTimedOut,
                format!("the {name} gave up on data still in flight after the end"),
            ));
        }
    }
    let common = common(spec, outcome);
    if common < MIN_OVERLAP {
        doubts.push(Doubt::new(
            DoubtId::Overlap,
            format!("only {:.0} % of the window is common to both ends and all flows", common * 100.0),
        ));
    }
    if outcome.client.shared_server || outcome.server.shared_server {
        doubts.push(Doubt::new(DoubtId::ServerShared, "the server was measuring for another client as well"));
    }
    let error = outcome.clock_offset.error;
    if error > receiver.window().mul_f64(0.01).max(Duration::from_millis(1)) {
        doubts.push(Doubt::new(
            DoubtId::ClockOffset,
            format!("the windows of the two ends may be {error:?} apart"),
        ));
    }
    doubts
}

/// On one kernel all of the workload's threads are known, so what else kept its CPUs busy is known too. Between two hosts
/// it is not: there the NIC's interrupts run outside the threads by right.
fn other_load(doubts: &mut Vec<Doubt>, outcome: &RunOutcome) {
    // Within a few ticks of the CPU counters there is no saying who used what.
    const LEAST: Duration = Duration::from_millis(50);
    let Some(cpu) = outcome.client.cpu.as_ref().filter(|_| outcome.client.window() >= LEAST) else { return };
    let (Ok(client), Ok(server)) = (threads_total(&outcome.client), threads_total(&outcome.server)) else {
        return;
    };
    let others =
        cpu.busy.saturating_sub(client + server).as_secs_f64() / outcome.client.window().as_secs_f64();
    if others > OTHER_LOAD {
        doubts.push(Doubt::new(
            DoubtId::OtherLoad,
            format!("others used {others:.1} of the {} CPUs of this host in the window", cpu.ncpu),
        ));
    }
}

fn clamped(doubts: &mut Vec<Doubt>, spec: &RunSpec, outcome: &RunOutcome) {
    for (end, report) in [("client", &outcome.client), ("server", &outcome.server)] {
        let socket = report.flows.first().and_then(|flow| flow.socket.as_ref());
        let Some(socket) = socket.or_else(|| exchange::connection(report)) else { continue };
        for clamp in socket.clamped(&spec.sockets(end == "client")) {
            doubts.push(Doubt::new(
                DoubtId::BufferClamped,
                format!(
                    "{end}: {} of {} asked for, {} given (limit: {})",
                    clamp.buffer, clamp.asked, clamp.got, clamp.sysctl
                ),
            ));
        }
    }
}
