//! Numbers of a TCP stream.

use haul_stats::{Doubt, DoubtId, Metric, Reading, Scope};

use super::{MIN_OVERLAP, Per, cost, ends, overlap, retransmits, tcp_info, thread_cpu};
use crate::mode::{RecvWith, SendWith};
use crate::report::{Detail, EndReport, Role, RunOutcome};
use crate::spec::RunSpec;

/// Share of the tool's own ceiling above which a result says more about the tool than about the path.
const CEILING_SHARE: f64 = 0.8;

/// Share of the rate asked for from which it counts as reached.
const RATE_REACHED: f64 = 0.97;

/// Source of the receiver's rate.
pub(super) const TAKEN: &str = "receiver's bytes / receiver's elapsed time";

/// Source of the sender's: an upper bound on what has been moved.
pub(super) const HANDED_OVER: &str = "bytes handed to the sender's kernel / sender's elapsed time";

/// Why a stream that ended in order gives no number.
pub(super) fn validity(spec: &RunSpec, outcome: &RunOutcome) -> Result<(), String> {
    let receiver = outcome.receiver();
    something_came(receiver)?;
    let (sent, arrived) = (outcome.sender().total_units(), receiver.total_units());
    let drained = outcome.sender().drained && receiver.drained;
    if arrived > sent || (drained && arrived != sent) {
        return Err(format!("the ends disagree: {sent} bytes were sent and {arrived} received"));
    }
    if let Some(bytes) = spec.bytes {
        // The flows of a run by amount end when they are done: there is no window that all of them fill.
        return if arrived == bytes.0 {
            Ok(())
        } else {
            Err(format!(
                "only {arrived} of {} bytes arrived within {:?}: lengthen --time",
                bytes.0, spec.window
            ))
        };
    }
    side_by_side(receiver)
}

/// Why a receiver that got nothing gives no number.
pub(super) fn something_came(receiver: &EndReport) -> Result<(), String> {
    if receiver.window_units() > 0 {
        return Ok(());
    }
    let total = receiver.total_units();
    Err(if total == 0 {
        "not one byte reached the receiver in the window: is the data path filtered between the ends? \
                    (control and data use the same port)"
            .to_owned()
    } else {
        format!(
            "not one byte reached the receiver in its window of {:.1?}, though {total} did before or after it: an end \
                 stalled, or TCP waited to send again what was lost (200 ms at least); lengthen --time",
            receiver.window()
        )
    })
}

/// Why the rates of flows that did not run together give no number.
pub(super) fn side_by_side(receiver: &EndReport) -> Result<(), String> {
    let overlap = overlap(receiver);
    if overlap >= MIN_OVERLAP {
        return Ok(());
    }
    let what = if receiver.flows.len() == 1 {
        "the flow was under way"
    } else {
        "the rates of the flows may not be added: they overlapped"
    };
    Err(format!("{what} in only {:.0} % of the window: lengthen --warmup", overlap * 100.0))
}

/// The readings of a stream, and what of it is to be doubted.
pub(super) fn of(spec: &RunSpec, outcome: &RunOutcome) -> (Vec<Reading>, Vec<Doubt>) {
    let (sender, receiver) = (outcome.sender(), outcome.receiver());
    let mut readings = vec![rate(receiver, Scope::Receiver, TAKEN), rate(sender, Scope::Sender, HANDED_OVER)];
    cost(&mut readings, spec, outcome, Per::Kib(receiver.window_units()));
    readings.push(retransmits(sender, Scope::Sender));
    for (end, scope) in ends(spec, outcome) {
        readings.push(Reading::count(Metric::BytesWindow, scope, end.window_units(), "sum over the flows"));
        readings.push(Reading::count(Metric::BytesTotal, scope, end.total_units(), "sum over the flows"));
    }
    tcp_info(&mut readings, sender);
    if let Some(rate) = spec.rate {
        readings.push(Reading::count(Metric::RequestedRate, Scope::Sender, rate.0, "--rate"));
    }
    if spec.send_with == SendWith::Zerocopy {
        readings.push(zerocopy(sender));
    }
    if spec.recv_with == RecvWith::Zerocopy {
        readings.push(mapped(receiver));
    }
    readings.push(ceiling(
        sender,
        if spec.send_with == SendWith::Write {
            "not measured at the sending end"
        } else {
            "only a loop that copies from a buffer (--send-with write) has a ceiling of its own"
        },
    ));
    (readings, doubts(spec, outcome))
}

/// What the sender's own loop could reach, or why that is not known.
pub(super) fn ceiling(sender: &EndReport, absent: &str) -> Reading {
    match sender.ceiling {
        Some(bytes) => Reading::real(
            Metric::ToolCeiling,
            Scope::Sender,
            bytes * 8.0,
            "the same send loop, one thread, into /dev/null",
        ),
        None => Reading::absent(Metric::ToolCeiling, Scope::Sender, "/dev/null", absent),
    }
}

/// What is left of a run whose other end was lost: this end's own figures, the other's absent with the reason.
pub(super) fn partial(own: &EndReport, reason: &str) -> Vec<Reading> {
    let (scope, other, source) = match own.role {
        Role::Sender => (Scope::Sender, Scope::Receiver, HANDED_OVER),
        _ => (Scope::Receiver, Scope::Sender, TAKEN),
    };
    vec![
        rate(own, scope, source),
        Reading::absent(Metric::Throughput, other, "the other end's report", reason),
        Reading::count(Metric::BytesWindow, scope, own.window_units(), "sum over the flows"),
        Reading::count(Metric::BytesTotal, scope, own.total_units(), "sum over the flows"),
        Reading::real(Metric::Window, scope, own.window().as_secs_f64(), "CLOCK_MONOTONIC"),
        thread_cpu(own, scope),
    ]
}

pub(super) fn rate(end: &EndReport, scope: Scope, source: &'static str) -> Reading {
    Reading::real(
        Metric::Throughput,
        scope,
        end.window_units() as f64 * 8.0 / end.window().as_secs_f64(),
        source,
    )
}

fn zerocopy(sender: &EndReport) -> Reading {
    const SOURCE: &str = "SO_EE_CODE_ZEROCOPY_COPIED, difference over the window";
    let absent = |reason: &str| Reading::absent(Metric::ZerocopyCopied, Scope::Sender, SOURCE, reason);
    match sender.zerocopy() {
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

fn mapped(receiver: &EndReport) -> Reading {
    const SOURCE: &str = "TCP_ZEROCOPY_RECEIVE, difference over the window";
    let Detail::Mapped(bytes) = receiver.detail else {
        let reason = "the window never opened at the receiver";
        return Reading::absent(Metric::ReceiveMapped, Scope::Receiver, SOURCE, reason);
    };
    // An empty window is no share of anything, and the reading says so by itself.
    let share = bytes.mapped as f64 / (bytes.mapped + bytes.copied) as f64 * 100.0;
    Reading::real(Metric::ReceiveMapped, Scope::Receiver, share, SOURCE)
}

/// What the ways of sending, receiving and pacing leave to be doubted.
fn doubts(spec: &RunSpec, outcome: &RunOutcome) -> Vec<Doubt> {
    let sender = outcome.sender();
    let mut doubts = limits(spec, sender);
    if let Some(sends) = sender.zerocopy().filter(|sends| sends.copied > 0) {
        doubts.push(Doubt::new(
            DoubtId::ZerocopyCopied,
            format!("the kernel copied {} of {} sends after all", sends.copied, sends.completed),
        ));
    }
    if let Detail::Mapped(bytes) = outcome.receiver().detail
        && bytes.copied > bytes.mapped
    {
        let share = bytes.copied as f64 / (bytes.mapped + bytes.copied) as f64 * 100.0;
        let text = format!("the kernel copied {share:.0} % of what the receiver was to have mapped");
        doubts.push(Doubt::new(DoubtId::ReceiveCopied, text));
    }
    if spec.recv_with == RecvWith::Discard {
        let text = "the receiver dropped the payload in its kernel: nothing was copied to user memory";
        doubts.push(Doubt::new(DoubtId::Discarded, text));
    }
    doubts
}

/// A rate that the sender missed, and one that its own loop sets.
pub(super) fn limits(spec: &RunSpec, sender: &EndReport) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    if let Some(rate) = spec.rate {
        let asked = rate.0 as f64 / 8.0 * sender.window().as_secs_f64();
        let sent = sender.window_units() as f64;
        // Each flow may stand just before a message at one edge and just after one at the other.
        let edges = spec.message.0 as f64 * f64::from(spec.flows);
        if sent + edges < asked * RATE_REACHED {
            let share = sent / asked * 100.0;
            let text = format!("{share:.1} % of the {rate}bit/s asked for were handed to the kernel");
            doubts.push(Doubt::new(DoubtId::RateMissed, text));
        }
    }
    if let Some(bytes) = sender.ceiling {
        let rate =
            sender.window_units() as f64 / sender.window().as_secs_f64() / sender.threads.len().max(1) as f64;
        if rate > bytes * CEILING_SHARE {
            doubts.push(Doubt::new(
                DoubtId::ToolLimited,
                if rate > bytes {
                    "each sending thread was as fast as the send loop alone had been when it was measured"
                        .to_owned()
                } else {
                    let share = rate / bytes * 100.0;
                    format!("each sending thread reached {share:.0} % of what the send loop alone can do")
                },
            ));
        }
    }
    doubts
}
