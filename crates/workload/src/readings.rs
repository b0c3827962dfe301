//! From what two ends saw to numbers that cannot be misread.
//!
//! Pure: two [`EndReport`]s in, readings and doubts out. The rules are those a sceptic would ask for.
//! The headline is the receiver's bytes over the receiver's own elapsed time. CPU is the whole host's where the ends
//! are on two kernels; where they share one (the same boot id) the whole is shown once and the ends are told apart by
//! the time of their threads, never both counted twice. Service demand divides by payload *received*: what was only
//! handed to a kernel has not been moved. [`validity`] says when a run must not become a number at all.

use std::borrow::Cow;
use std::time::Duration;

use haul_host::socket::TcpFacts;
use haul_stats::{Doubt, DoubtId, Metric, MonoNanos, Reading, Scope};
use serde_json::json;

use crate::mode::{RecvWith, SendWith};
use crate::report::{EndReport, Role, RunOutcome, ThreadReport};
use crate::spec::StreamSpec;

/// Least share of the window in which all flows must have been moving for their rates to be added.
pub const MIN_OVERLAP: f64 = 0.95;

/// Least share of the window asked for that must have been seen: what is left of a late opening is an accident.
const LEAST_WINDOW: f64 = 0.5;

/// Share of the tool's own ceiling above which a result says more about the tool than about the path.
const CEILING_SHARE: f64 = 0.8;

/// Share of the rate asked for from which it counts as reached.
const RATE_REACHED: f64 = 0.97;

/// Source of the receiver's rate.
const TAKEN: &str = "receiver's bytes / receiver's elapsed time";

/// Source of the sender's: an upper bound on what has been moved.
const HANDED_OVER: &str = "bytes handed to the sender's kernel / sender's elapsed time";

/// Share of the window from which a thread counts as saturating its CPU; the rest is what a scheduler tick may take.
const BOUND_SHARE: f64 = 0.97;

/// Share of one CPU that a shared host may be busy beyond the workload's own threads: soft interrupts outside them, the
/// sampling threads and an idle system's own work stay below it.
const OTHER_LOAD: f64 = 0.25;

/// Share of the host's CPU time taken by the hypervisor from which a run is doubted.
const STEAL_SHARE: f64 = 0.02;

/// Why a run that ended in order still gives no number.
pub fn validity(spec: &StreamSpec, outcome: &RunOutcome) -> Result<(), String> {
    for (end, report) in [("client", &outcome.client), ("server", &outcome.server)] {
        for (index, flow) in report.flows.iter().enumerate() {
            if let Some(fault) = &flow.fault {
                return Err(format!("{end}: flow {index} broke off: {fault}"));
            }
        }
    }
    let receiver = outcome.receiver();
    if receiver.window().is_zero() {
        return Err("the run ended before its window opened: shorten --warmup or lengthen --time".to_owned());
    }
    if receiver.window() < spec.window.mul_f64(LEAST_WINDOW) {
        return Err(format!(
            "the receiver saw only {:.1?} of the window of {:?}: it was woken late; lengthen --time, or quieten the machine",
            receiver.window(),
            spec.window
        ));
    }
    if receiver.window_bytes() == 0 {
        let total = receiver.total_bytes();
        return Err(if total == 0 {
            "not one byte reached the receiver in the window: is the data path filtered between the ends? \
                    (control and data use the same port)"
                .to_owned()
        } else {
            format!(
                "not one byte reached the receiver in its window of {:.1?}, though {total} did before or after it: an end \
                 stalled; lengthen --time",
                receiver.window()
            )
        });
    }
    let (sent, arrived) = (outcome.sender().total_bytes(), receiver.total_bytes());
    let drained = outcome.sender().drained && receiver.drained;
    if arrived > sent || (drained && arrived != sent) {
        return Err(format!("the ends disagree: {sent} bytes were sent and {arrived} received"));
    }
    let overlap = overlap(receiver);
    if overlap < MIN_OVERLAP {
        let what = if receiver.flows.len() == 1 {
            "the flow was under way"
        } else {
            "the rates of the flows may not be added: they overlapped"
        };
        return Err(format!("{what} in only {:.0} % of the window: lengthen --warmup", overlap * 100.0));
    }
    Ok(())
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

/// The share of the receiver's window that is also the sender's, with every flow under way.
fn common(outcome: &RunOutcome) -> f64 {
    let receiver = outcome.receiver();
    let offset = outcome.clock_offset.server_minus_client_ns;
    // The sender's edges on the receiver's clock.
    let shift = if outcome.client.role == Role::Sender { offset } else { offset.saturating_neg() };
    let at_receiver = |at: MonoNanos| MonoNanos(at.0.saturating_add_signed(shift));
    let sender = outcome.sender();
    let from = at_receiver(sender.window_start).max(receiver.window_start);
    let until = at_receiver(sender.window_end).min(receiver.window_end);
    let windows = until.since(from).as_secs_f64() / receiver.window().as_secs_f64();
    windows.min(overlap(receiver))
}

/// The readings of a finished run, and what is to be doubted about them.
#[must_use]
pub fn of(spec: &StreamSpec, outcome: &RunOutcome) -> (Vec<Reading>, Vec<Doubt>) {
    let (sender, receiver) = (outcome.sender(), outcome.receiver());
    let mut readings = vec![rate(receiver, Scope::Receiver, TAKEN), rate(sender, Scope::Sender, HANDED_OVER)];
    let moved = receiver.window_bytes();
    let ends = [(sender, Scope::Sender), (receiver, Scope::Receiver)];
    if outcome.shared_host() {
        cpu(&mut readings, &outcome.client, Scope::SharedHost);
        readings.push(demand_of_host(&outcome.client, Scope::SharedHost, moved));
        for (end, scope) in ends {
            readings.push(thread_cpu(end, scope));
            readings.push(demand_of_threads(end, scope, moved));
        }
    } else {
        for (end, scope) in ends {
            cpu(&mut readings, end, scope);
            readings.push(thread_cpu(end, scope));
            readings.push(demand_of_host(end, scope, moved));
        }
    }
    readings.push(retransmits(sender));
    for (end, scope) in ends {
        readings.push(Reading::count(Metric::BytesWindow, scope, end.window_bytes(), "sum over the flows"));
        readings.push(Reading::count(Metric::BytesTotal, scope, end.total_bytes(), "sum over the flows"));
        readings.push(Reading::real(Metric::Window, scope, end.window().as_secs_f64(), "CLOCK_MONOTONIC"));
    }
    readings.push(Reading::real(
        Metric::Overlap,
        Scope::Run,
        common(outcome) * 100.0,
        "flows under way at the receiver and both ends' windows, by the estimated clock offset",
    ));
    tcp_info(&mut readings, sender);
    if let Some(rate) = spec.rate {
        readings.push(Reading::count(Metric::RequestedRate, Scope::Sender, rate.0, "--rate"));
    }
    if spec.send_with == SendWith::Zerocopy {
        readings.push(zerocopy(sender));
    }
    match sender.ceiling {
        Some(bytes) => readings.push(Reading::real(
            Metric::ToolCeiling,
            Scope::Sender,
            bytes * 8.0,
            "the same send loop, one thread, into /dev/null",
        )),
        None => readings.push(Reading::absent(
            Metric::ToolCeiling,
            Scope::Sender,
            "/dev/null",
            if spec.send_with == SendWith::Write {
                "not measured at the sending end"
            } else {
                "only a loop that copies from a buffer (--send-with write) has a ceiling of its own"
            },
        )),
    }
    let doubts = doubts(spec, outcome);
    (readings, doubts)
}

/// What is left of a run whose other end was lost: this end's own figures, the other's absent with the reason.
#[must_use]
pub fn partial(own: &EndReport, reason: &str) -> Vec<Reading> {
    let (scope, other, source) = match own.role {
        Role::Sender => (Scope::Sender, Scope::Receiver, HANDED_OVER),
        Role::Receiver => (Scope::Receiver, Scope::Sender, TAKEN),
    };
    vec![
        rate(own, scope, source),
        Reading::absent(Metric::Throughput, other, "the other end's report", reason),
        Reading::count(Metric::BytesWindow, scope, own.window_bytes(), "sum over the flows"),
        Reading::count(Metric::BytesTotal, scope, own.total_bytes(), "sum over the flows"),
        Reading::real(Metric::Window, scope, own.window().as_secs_f64(), "CLOCK_MONOTONIC"),
        thread_cpu(own, scope),
    ]
}

fn rate(end: &EndReport, scope: Scope, source: &'static str) -> Reading {
    Reading::real(
        Metric::Throughput,
        scope,
        end.window_bytes() as f64 * 8.0 / end.window().as_secs_f64(),
        source,
    )
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

fn per_kib(cpu: Duration, moved: u64) -> f64 {
    cpu.as_secs_f64() * 1e6 / (moved as f64 / 1024.0)
}

fn demand_of_threads(end: &EndReport, scope: Scope, moved: u64) -> Reading {
    const SOURCE: &str = "threads: per-thread CPU clock / payload received";
    match threads_total(end) {
        Ok(total) => Reading::real(Metric::ServiceDemand, scope, per_kib(total, moved), SOURCE),
        Err(reason) => Reading::absent(Metric::ServiceDemand, scope, SOURCE, reason),
    }
}

fn demand_of_host(end: &EndReport, scope: Scope, moved: u64) -> Reading {
    const SOURCE: &str = "system: busy time of all CPUs / payload received";
    match &end.cpu {
        Some(used) => Reading::real(Metric::ServiceDemand, scope, per_kib(used.busy, moved), SOURCE),
        None => Reading::absent(
            Metric::ServiceDemand,
            scope,
            SOURCE,
            end.cpu_reason.clone().unwrap_or_else(|| "not reported".to_owned()),
        ),
    }
}

fn zerocopy(sender: &EndReport) -> Reading {
    const SOURCE: &str = "SO_EE_CODE_ZEROCOPY_COPIED, difference over the window";
    let absent = |reason: &str| Reading::absent(Metric::ZerocopyCopied, Scope::Sender, SOURCE, reason);
    match sender.zerocopy {
        Some(sends) if sends.completed > 0 => Reading::real(
            Metric::ZerocopyCopied,
            Scope::Sender,
            sends.copied as f64 / sends.completed as f64 * 100.0,
            SOURCE,
        ),
        Some(_) => absent("the kernel completed no send in the window"),
        None => absent("the window never opened at the sender"),
    }
}

fn retransmits(sender: &EndReport) -> Reading {
    let counts: Option<u64> = sender.flows.iter().map(|flow| flow.window_retransmits).sum();
    match counts {
        Some(count) => {
            Reading::count(Metric::Retransmits, Scope::Sender, count, "TCP_INFO, difference over the window")
        }
        None => Reading::absent(
            Metric::Retransmits,
            Scope::Sender,
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
pub fn effective(spec: &StreamSpec, outcome: &RunOutcome) -> serde_json::Value {
    let end = |report: &EndReport| {
        let socket = report.flows.first().and_then(|flow| flow.socket.as_ref());
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
            "zerocopy": report.zerocopy,
            "affinity": report.threads.iter().map(|thread| thread.affinity.clone()).collect::<Vec<_>>(),
        })
    };
    json!({
        "client": end(&outcome.client),
        "server": end(&outcome.server),
        "message_bytes": spec.message,
        "clock_offset_ns": outcome.clock_offset.server_minus_client_ns,
        "clock_offset_error_ns": u64::try_from(outcome.clock_offset.error.as_nanos()).ok(),
        "send_with": spec.send_with,
        "recv_with": spec.recv_with,
        "send_offset_bytes": spec.send_offset,
        "recv_offset_bytes": spec.recv_offset,
        "rate": spec.rate.map(|rate| json!({
            "requested": rate,
            "achieved": finite(outcome.sender().window_bytes() as f64 * 8.0 / outcome.sender().window().as_secs_f64()),
        })),
    })
}

/// A number as JSON can have it.
fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

fn doubts(spec: &StreamSpec, outcome: &RunOutcome) -> Vec<Doubt> {
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
    modes(&mut doubts, spec, outcome);
    if let Some(bytes) = sender.ceiling {
        let rate =
            sender.window_bytes() as f64 / sender.window().as_secs_f64() / sender.threads.len().max(1) as f64;
        if rate > bytes * CEILING_SHARE {
            doubts.push(Doubt::new(
                DoubtId::ToolLimited,
                format!(
                    "each sending thread reached {:.0} % of what the send loop alone can do",
                    rate / bytes * 100.0
                ),
            ));
        }
    }
    for (end, name) in [(sender, "sender"), (receiver, "receiver")] {
        let window = end.window().as_secs_f64();
        let bound = |thread: &&ThreadReport| {
            thread.cpu.as_ref().is_some_and(|cpu| cpu.total.as_secs_f64() > window * BOUND_SHARE)
        };
        let count = end.threads.iter().filter(bound).count();
        if count > 0 {
            doubts.push(Doubt::new(
                DoubtId::CpuBound,
                format!("{count} of {} threads of the {name} kept a CPU busy throughout", end.threads.len()),
            ));
        }
        if let Some(cpu) = &end.cpu
            && cpu.steal.as_secs_f64() > window * f64::from(cpu.ncpu) * STEAL_SHARE
            && !(outcome.shared_host() && end.role == Role::Sender)
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
    let common = common(outcome);
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
    let Some(cpu) = &outcome.client.cpu else { return };
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

/// What the ways of sending, receiving and pacing leave to be doubted.
fn modes(doubts: &mut Vec<Doubt>, spec: &StreamSpec, outcome: &RunOutcome) {
    let sender = outcome.sender();
    if let Some(rate) = spec.rate {
        let asked = rate.0 as f64 / 8.0 * sender.window().as_secs_f64();
        let sent = sender.window_bytes() as f64;
        // Each flow may stand just before a message at one edge and just after one at the other.
        let edges = spec.message.0 as f64 * f64::from(spec.flows);
        if sent + edges < asked * RATE_REACHED {
            let share = sent / asked * 100.0;
            let text = format!("{share:.1} % of the {rate}bit/s asked for were handed to the kernel");
            doubts.push(Doubt::new(DoubtId::RateMissed, text));
        }
    }
    if let Some(sends) = sender.zerocopy.filter(|sends| sends.copied > 0) {
        doubts.push(Doubt::new(
            DoubtId::ZerocopyCopied,
            format!("the kernel copied {} of {} sends after all", sends.copied, sends.completed),
        ));
    }
    if spec.recv_with == RecvWith::Discard {
        let text = "the receiver dropped the payload in its kernel: nothing was copied to user memory";
        doubts.push(Doubt::new(DoubtId::Discarded, text));
    }
}

fn clamped(doubts: &mut Vec<Doubt>, spec: &StreamSpec, outcome: &RunOutcome) {
    for (end, report) in [("client", &outcome.client), ("server", &outcome.server)] {
        let Some(socket) = report.flows.first().and_then(|flow| flow.socket.as_ref()) else { continue };
        for clamp in socket.clamped(&spec.sockets()) {
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
