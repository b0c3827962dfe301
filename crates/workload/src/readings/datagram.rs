//! Numbers of a stream of datagrams.
//!
//! Whatever was lost comes from the receiver's count of what the sender says it sent; a half that is missing makes the
//! numbers absent, with the reason, and never a substitute. Both are of the sender's window, so that what was sent is what
//! came and what was lost, to the datagram; rates are of the receiver's own window.

use std::fmt::Write as _;

use haul_stats::latency::Quantile;
use haul_stats::{Doubt, DoubtId, Metric, Reading, Scope};
use serde_json::{Value, json};

use super::stream::{HANDED_OVER, ceiling, limits, rate, side_by_side, something_came};
use super::{Per, cost, ends, stream};
use crate::datagram::{Both, Counted, DatagramReport, Lost, ReceivedReport, timed_every};
use crate::report::{EndReport, RunOutcome};
use crate::spec::RunSpec;

/// Share of the datagrams from which loss is doubted: one in a thousand halves what many a TCP carries.
const DOUBTED_LOSS: f64 = 0.001;

/// Source of the headline.
const TAKEN: &str = "payload of datagrams that had not come before / receiver's elapsed time";

/// Source of what is known from the headers.
const HEADERS: &str = "sequence numbers of the datagrams sent in the window";

/// Source of what counts and cannot tell one from another.
const COUNTS: &str = "counts of the datagrams sent in the window: messages below 8 bytes carry no number";

/// Why a run that ended in order gives no number.
pub(super) fn validity(spec: &RunSpec, outcome: &RunOutcome) -> Result<(), String> {
    let receiver = outcome.receiver();
    something_came(receiver)?;
    if let Some(both) = Both::of(outcome) {
        let (sent, came) = (both.sent.packets, both.received.packets);
        if both.is_contradiction(spec.message.0) {
            let (sent, came) = (sent.total(), came.total());
            return Err(format!("the ends disagree: {sent} datagrams were sent and {came} received"));
        }
    }
    side_by_side(receiver)
}

/// The readings of a stream of datagrams, and what of it is to be doubted.
pub(super) fn of(spec: &RunSpec, outcome: &RunOutcome) -> (Vec<Reading>, Vec<Doubt>) {
    let (sender, receiver) = (outcome.sender(), outcome.receiver());
    let mut readings = vec![rate(receiver, Scope::Receiver, TAKEN), rate(sender, Scope::Sender, HANDED_OVER)];
    cost(&mut readings, spec, outcome, Per::Kib(receiver.window_units()));
    readings.extend(packets(spec, outcome));
    for (end, scope) in ends(spec, outcome) {
        readings.push(Reading::count(Metric::BytesWindow, scope, end.window_units(), "sum over the flows"));
        readings.push(Reading::count(Metric::BytesTotal, scope, end.total_units(), "sum over the flows"));
    }
    if let Some(rate) = spec.rate {
        readings.push(Reading::count(Metric::RequestedRate, Scope::Sender, rate.0, "--rate"));
    }
    readings.push(ceiling(
        sender,
        if spec.segment || spec.batch > 1 {
            "only the loop that sends one datagram a call has a ceiling of its own"
        } else {
            "not measured at the sending end"
        },
    ));
    (readings, doubts(spec, outcome))
}

/// What became of the datagrams of one direction.
pub(super) fn packets(spec: &RunSpec, outcome: &RunOutcome) -> Vec<Reading> {
    const SOURCE: &str = "datagrams that had not come before / receiver's elapsed time";
    let receiver = outcome.receiver();
    let came = receiver.window_units() as f64 / spec.message.0 as f64;
    let rate = came / receiver.window().as_secs_f64();
    let mut readings = vec![Reading::real(Metric::PacketRate, Scope::Receiver, rate, SOURCE)];
    readings.extend(counts(spec, outcome));
    readings
}

/// What is left of a run whose other end was lost.
pub(super) fn partial(own: &EndReport, reason: &str) -> Vec<Reading> {
    let mut readings = stream::partial(own, reason);
    match own.datagrams() {
        Some(DatagramReport::Sent(sent)) => {
            readings.push(packets_sent(sent.packets.window));
        }
        Some(DatagramReport::Received(received)) => readings.push(packets_received(received)),
        None => {}
    }
    let lost = |metric| Reading::absent(metric, Scope::Receiver, "both ends' reports", reason);
    readings.extend([Metric::Loss, Metric::Lost].map(lost));
    readings
}

fn packets_sent(count: u64) -> Reading {
    Reading::count(
        Metric::PacketsSent,
        Scope::Sender,
        count,
        "datagrams of the sender's window, by its own count",
    )
}

fn packets_received(received: &ReceivedReport) -> Reading {
    const SOURCE: &str = "datagrams of the sender's window that came, also behind the end of the receiver's";
    Reading::count(Metric::PacketsReceived, Scope::Receiver, received.packets.window, SOURCE)
}

/// What was sent, what came of it, in what order and how far apart.
fn counts(spec: &RunSpec, outcome: &RunOutcome) -> Vec<Reading> {
    let Some(both) = Both::of(outcome) else {
        let missing = |metric| {
            Reading::absent(
                metric,
                Scope::Receiver,
                "both ends' reports",
                "an end did not report on its datagrams",
            )
        };
        return [
            Metric::PacketsReceived,
            Metric::Loss,
            Metric::Lost,
            Metric::LostSender,
            Metric::LostPath,
            Metric::LostReceiver,
            Metric::Duplicates,
            Metric::Reordered,
            Metric::ReorderExtent,
            Metric::Jitter,
        ]
        .map(missing)
        .into();
    };
    let received = both.received;
    let mut readings = vec![packets_sent(both.sent.packets.window), packets_received(received)];
    readings.extend(loss(spec, both));
    readings.extend(order(spec, received));
    let gaps = &received.gaps;
    let source = || {
        let which = match timed_every(spec) {
            1 => String::new(),
            every => format!(" between a timed datagram, one in {every}, and the next"),
        };
        format!("receiver's clock at the receive call{which}; datagrams of one call came together")
    };
    let us = |ns: u64| ns as f64 / 1e3;
    for (metric, quantile) in [(Metric::GapP50, Quantile::P50), (Metric::GapP99, Quantile::P99)] {
        readings.push(match gaps.percentile(quantile) {
            Ok(_) if spec.gro => Reading::absent(metric, Scope::Receiver, source(), JOINED),
            Ok(ns) => Reading::real(metric, Scope::Receiver, us(ns), source()),
            Err(few) => Reading::absent(metric, Scope::Receiver, source(), few.to_string()),
        });
    }
    readings.push(match gaps.max() {
        Some(_) if spec.gro => Reading::absent(Metric::GapMax, Scope::Receiver, source(), JOINED),
        // A greatest of some would be read as the greatest of all.
        Some(_) if timed_every(spec) > 1 => {
            let reason = "only some datagrams of so fast a flow are timed: give --rate for fewer than 100,000 a second";
            Reading::absent(Metric::GapMax, Scope::Receiver, source(), reason)
        }
        Some(ns) => Reading::real(Metric::GapMax, Scope::Receiver, us(ns), source()),
        None => Reading::absent(Metric::GapMax, Scope::Receiver, source(), "fewer than two datagrams came"),
    });
    readings
}

/// Why a receiver that takes joined datagrams knows no gaps.
const JOINED: &str = "datagrams that the kernel joined (UDP_GRO) come at one instant";

/// What was lost, as a share, in all and by place.
fn loss(spec: &RunSpec, both: Both<'_>) -> Vec<Reading> {
    const SENDER: &str =
        "refused sends, and drops of the route's qdisc and device, whoever sent it, up to what was lost";
    const RECEIVER: &str =
        "SO_MEMINFO of the flows' sockets, and drops of the host before a socket up to what was lost";
    const JOINED: &str =
        "SO_MEMINFO of the flows' sockets, times the datagrams joined in one receive, up to what was lost";
    const PATH: &str = "lost, less what either end's host dropped";
    let (sent, came) = (both.sent.packets.window, both.received.packets.window);
    let Lost { total, sender, receiver, path } = both.window();
    let source = if spec.message.0 < 8 { COUNTS } else { HEADERS };
    let share = if sent == 0 {
        Reading::absent(Metric::Loss, Scope::Receiver, source, "no datagram was sent in the window")
    } else {
        Reading::real(Metric::Loss, Scope::Receiver, total as f64 / (total + came) as f64 * 100.0, source)
    };
    let in_receiver = if both.joined_each() > 1 { JOINED } else { RECEIVER };
    let at = |metric, count, source, unknown: &[&Counted]| {
        let reason = unknown.iter().find_map(|counted| match counted {
            Counted::Unknown(reason) => Some(reason.clone()),
            Counted::Drops(_) => None,
        });
        match reason {
            // Where nothing was lost, none of it was lost anywhere.
            Some(reason) if total > 0 => Reading::absent(metric, Scope::Receiver, source, reason),
            _ => Reading::count(metric, Scope::Receiver, count, source),
        }
    };
    let (queue, socket, host) = (&both.sent.queue, &both.received.socket, &both.received.host);
    vec![
        share,
        Reading::count(Metric::Lost, Scope::Receiver, total, source),
        at(Metric::LostSender, sender, SENDER, &[queue]),
        at(Metric::LostPath, path, PATH, &[queue, socket, host]),
        at(Metric::LostReceiver, receiver, in_receiver, &[socket, host]),
    ]
}

/// Copies, order and jitter, as far as the messages have room to tell.
fn order(spec: &RunSpec, received: &ReceivedReport) -> Vec<Reading> {
    let source = match timed_every(spec) {
        1 => "RFC 3550 A.8 at the end of the window, mean over the flows".to_owned(),
        every => {
            format!("RFC 3550 A.8 of one datagram in {every}, at the end of the window, mean over the flows")
        }
    };
    let ordered = [
        (Metric::Duplicates, received.duplicates),
        (Metric::Reordered, received.reordered),
        (Metric::ReorderExtent, received.extent),
    ];
    let mut readings: Vec<Reading> = ordered
        .into_iter()
        .map(|(metric, count)| {
            if spec.message.0 < 8 {
                let reason = "a message of fewer than 8 bytes has no room for a sequence number";
                return Reading::absent(metric, Scope::Receiver, HEADERS, reason);
            }
            Reading::count(metric, Scope::Receiver, count, HEADERS)
        })
        .collect();
    let reason = if spec.message.0 < 16 {
        "a message of fewer than 16 bytes has no room for a time stamp"
    } else {
        "fewer than two timed datagrams of the window came on any flow"
    };
    readings.push(match received.jitter_ns {
        Some(ns) => Reading::real(Metric::Jitter, Scope::Receiver, ns / 1e3, source),
        None => Reading::absent(Metric::Jitter, Scope::Receiver, source, reason),
    });
    readings
}

fn doubts(spec: &RunSpec, outcome: &RunOutcome) -> Vec<Doubt> {
    let mut doubts = limits(spec, outcome.sender());
    let Some(both) = Both::of(outcome) else { return doubts };
    let Lost { total, sender, receiver, path } = both.window();
    let sent = total + both.received.packets.window;
    if total as f64 > sent as f64 * DOUBTED_LOSS {
        let share = total as f64 / sent as f64 * 100.0;
        let mut text = format!(
            "{total} of {sent} datagrams were lost ({share:.2} %): {sender} in the sender's host, {path} on the path, \
             {receiver} in the receiver's host"
        );
        if both.received.late > 0 {
            let late = both.received.late.min(total);
            // A string takes all that is written to it.
            let _ = write!(text, "; {late} of them came, too far behind to be told from a second copy");
        }
        doubts.push(Doubt::new(DoubtId::UdpLoss, text));
    }
    if let Some((fragments, mtu)) = fragments(spec, both).filter(|(fragments, _)| *fragments > 1) {
        let text = format!(
            "a datagram of {} bytes does not fit the path's MTU of {mtu}: it travels in {fragments} fragments",
            spec.message.0
        );
        doubts.push(Doubt::new(DoubtId::Fragmented, text));
    }
    if outcome.shared_host() && both.joined_each() > 1 {
        let text = format!(
            "trains of {} datagrams reached the receiver's socket whole: no packet of the rate shown ever existed",
            both.sent.train
        );
        doubts.push(Doubt::new(DoubtId::GroNominal, text));
    }
    doubts
}

/// Into how many fragments a datagram is cut, and by which MTU.
fn fragments(spec: &RunSpec, both: Both<'_>) -> Option<(u64, u32)> {
    /// The header of UDP, which is in the first fragment only.
    const UDP: u64 = 8;
    let mtu = both.sent.path_mtu?;
    let datagram = spec.message.0 + UDP;
    // IPv6 has a header of its own for fragments, which a whole packet does without.
    let (header, of_fragment) = if both.sent.ipv6 { (40, 48) } else { (20, 20) };
    if datagram <= u64::from(mtu).saturating_sub(header) {
        return Some((1, mtu));
    }
    let last = u64::from(mtu).checked_sub(of_fragment)?;
    // All but the last are a multiple of 8 (RFC 791, RFC 8200).
    let each = last & !7;
    (each > 0).then(|| (1 + datagram.saturating_sub(last).div_ceil(each), mtu))
}

/// What became of the options of datagrams.
pub(super) fn effective(spec: &RunSpec, outcome: &RunOutcome) -> Value {
    let Some(both) = Both::of(outcome) else { return Value::Null };
    let run = both.run();
    json!({
        "message_sent_bytes": sent_length(outcome, both),
        "path_mtu": both.sent.path_mtu,
        "fragments_each": fragments(spec, both).map(|(fragments, _)| fragments),
        "per_call": both.sent.train,
        "timed_every": timed_every(spec),
        "segment_bytes": spec.segment.then_some(spec.message),
        "joined_each": spec.gro.then(|| both.joined_each()),
        "whole_run": {
            "sent": both.sent.packets.total(),
            "received": both.received.packets.total(),
            "lost": run.total,
            "lost_sender": run.sender,
            "lost_path": run.path,
            "lost_receiver": run.receiver,
        },
        "foreign": both.received.foreign,
    })
}

/// The length of the datagrams as they came; what came in another length counts as foreign.
fn sent_length(outcome: &RunOutcome, both: Both<'_>) -> Option<u64> {
    outcome.receiver().total_units().checked_div(both.received.packets.total())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::datagram::report::tests::{received, sample, sent};
    use haul_stats::ByteCount;

    fn message(bytes: u64) -> RunSpec {
        RunSpec { message: ByteCount(bytes), ..RunSpec::default() }
    }

    #[test]
    fn fragments_are_those_of_the_kernel() {
        // Counted with FragCreates of a veth: 45, 2, 3 and 49; the others by the rules of RFC 791 and RFC 8200.
        for (mtu, ipv6, bytes, fragments) in [
            (1500, false, 65_507, 45),
            (1500, true, 1453, 2),
            (9000, false, 20_000, 3),
            (1280, true, 60_000, 49),
            (1500, false, 1472, 1),
            (1500, false, 1473, 2),
            (1500, true, 1452, 1),
            (1500, false, 2952, 2),
            (1500, false, 2953, 3),
            (65_536, false, 65_507, 1),
        ] {
            let (mut sent, received) = sample();
            (sent.path_mtu, sent.ipv6) = (Some(mtu), ipv6);
            let both = Both { sent: &sent, received: &received };
            assert_eq!(super::fragments(&message(bytes), both), Some((fragments, mtu)), "{bytes} by {mtu}");
        }
        let (mut sent, received) = sample();
        for mtu in [0, 20, 28, 48, 50] {
            sent.path_mtu = Some(mtu);
            // An MTU that no path has, as a peer may claim: no answer, or a large one, and no panic.
            let _ = fragments(&message(1000), Both { sent: &sent, received: &received });
        }
    }

    #[test]
    fn what_a_host_does_not_count_is_absent_where_something_was_lost() {
        let (mut sent, mut received) = sample();
        sent.queue = Counted::Unknown("netlink is shut".to_owned());
        let value = |sent: &_, received: &_, metric| {
            let readings = loss(&message(1000), Both { sent, received });
            readings.into_iter().find(|reading| reading.metric == metric).expect("a reading")
        };
        assert_eq!(value(&sent, &received, Metric::LostSender).reason, None, "nothing was lost at all");
        received.packets.window -= 1;
        for (metric, known) in [
            (Metric::LostSender, false),
            (Metric::LostPath, false),
            (Metric::LostReceiver, true),
            (Metric::Lost, true),
        ] {
            let reading = value(&sent, &received, metric);
            assert_eq!(reading.value.is_some(), known, "{metric}");
            assert!(known || reading.reason.is_some_and(|reason| reason == "netlink is shut"));
        }
    }

    proptest! {
        // A case that is refused is no case: too many of them fail the test.
        #![proptest_config(ProptestConfig { max_global_rejects: 200_000, ..ProptestConfig::default() })]

        /// Whatever two ends say, a report that passes gives loss between nothing and everything, and parts that sum to it.
        #[test]
        fn no_report_that_passes_breaks_the_readings(sent in sent(), received in received(), bytes in 1..65_508_u64) {
            prop_assume!(DatagramReport::Sent(sent.clone()).check().is_ok());
            prop_assume!(DatagramReport::Received(received.clone()).check().is_ok());
            let both = Both { sent: &sent, received: &received };
            let mut readings = loss(&message(bytes), both);
            readings.extend(order(&message(bytes), &received));
            for reading in &readings {
                prop_assert!(reading.value.is_none_or(|value| value.as_f64().is_finite()));
                prop_assert_eq!(reading.value.is_none(), reading.reason.is_some());
                if let (Metric::Loss, Some(share)) = (reading.metric, reading.value) {
                    prop_assert!((0.0..=100.0).contains(&share.as_f64()), "{:?}", share);
                }
            }
            let _ = fragments(&message(bytes), both);
        }
    }
}
