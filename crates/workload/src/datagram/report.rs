//! What the two ends of a stream of datagrams have to say, and what they lost between them.
//!
//! The sender says how many it sent in each phase, the receiver how many different ones of each phase came: what is lost is
//! the difference, by construction neither negative nor more than was sent. Where it was lost is another matter: some
//! counters are exact ([`ReceivedReport::socket`], [`SentReport::refused`]), others are of a whole device or host and count
//! for everybody there. So none is taken for more than was lost, the exact ones come first, and the path has the rest.
//!
//! ```text
//! run      refused, then full sockets, then the sender's queues, then the receiver's host, each up to what is left; path
//! window   the same with what was counted in the window, and no part larger than that of the run
//! ```
//!
//! The counters' window and that of the datagrams differ by what was under way at its edges. Over the run they do not,
//! which is why the run bounds the window: where nothing was lost on the path at all, nothing was in the window.

use haul_stats::latency::Histogram;
use serde::{Deserialize, Serialize};

use crate::report::{IntervalReport, RunOutcome};

use super::header::{Form, SEQUENCES};

/// More datagrams than any run can carry, and more bytes or nanoseconds.
const MOST: u64 = 1 << 53;

/// A count by the part of the run in which a datagram was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Phased {
    /// Before the sender's window.
    pub warmup: u64,
    /// In it.
    pub window: u64,
    /// After it.
    pub after: u64,
}

impl Phased {
    /// Over the whole run.
    #[must_use]
    pub fn total(self) -> u64 {
        self.warmup + self.window + self.after
    }

    fn each(self, other: Self, both: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            warmup: both(self.warmup, other.warmup),
            window: both(self.window, other.window),
            after: both(self.after, other.after),
        }
    }

    /// No more in any phase than `other` has.
    pub(super) fn at_most(self, other: Self) -> Self {
        self.each(other, u64::min)
    }

    fn is_possible(self) -> bool {
        [self.warmup, self.window, self.after].into_iter().all(|count| count <= MOST)
    }
}

impl std::ops::Add for Phased {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.each(other, |a, b| a + b)
    }
}

impl From<[u64; 3]> for Phased {
    fn from([warmup, window, after]: [u64; 3]) -> Self {
        Self { warmup, window, after }
    }
}

/// What a counter of this host counted in the end's window, and over the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Drops {
    /// In the window.
    pub window: u64,
    /// From before the first datagram to behind the last.
    pub run: u64,
}

impl Drops {
    fn times(self, each: u64) -> Self {
        Self { window: self.window.saturating_mul(each), run: self.run.saturating_mul(each) }
    }

    fn is_possible(self) -> bool {
        self.window <= self.run && self.run <= MOST
    }
}

/// Drops of a part of the host, or why they are not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Counted {
    /// They were read.
    #[serde(rename = "drops")]
    Drops(Drops),
    /// They could not be.
    #[serde(rename = "unknown")]
    Unknown(String),
}

impl Counted {
    fn drops(&self) -> Option<Drops> {
        match self {
            Self::Drops(drops) => Some(*drops),
            Self::Unknown(_) => None,
        }
    }

    fn is_possible(&self) -> bool {
        self.drops().is_none_or(Drops::is_possible)
    }
}

/// What the sending end says of all flows together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SentReport {
    /// Datagrams handed to the kernel.
    pub packets: Phased,
    /// Of these, those it would not take for want of room in the device's queue or of memory.
    pub refused: Phased,
    /// Datagrams in one call, at most.
    pub train: u32,
    /// The largest packet that reaches the receiver in one piece, as far as the sender's kernel knows.
    pub path_mtu: Option<u32>,
    /// Whether it went by IPv6.
    pub ipv6: bool,
    /// What the queueing discipline and the device that the packets leave through dropped, whoever sent it.
    pub queue: Counted,
}

/// What the receiving end says of all flows together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReceivedReport {
    /// Different datagrams.
    pub packets: Phased,
    /// Datagrams sent in the window that had come before.
    pub duplicates: u64,
    /// Those that came after one with a higher number.
    pub reordered: u64,
    /// How far the furthest of them was behind.
    pub extent: u64,
    /// Those so far behind that nobody can tell whether they had come before: they count as lost.
    pub late: u64,
    /// Datagrams over the whole run that were no payload of it.
    pub foreign: u64,
    /// Receives over the whole run in which the kernel could give joined datagrams.
    pub receives: u64,
    /// The datagrams it gave in them.
    pub joined: u64,
    /// Mean of the flows' jitter at the end of the window, ns; `None` where no flow had two transit times.
    pub jitter_ns: Option<f64>,
    /// Times between arrivals of datagrams sent in the window, of those that were timed.
    pub gaps: Histogram,
    /// What the flows' own sockets dropped: of joined datagrams, one for all of them.
    pub socket: Counted,
    /// What the device and the host dropped before a socket, whoever it was for.
    pub host: Counted,
}

/// What one end has to say of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DatagramReport {
    /// The sender.
    Sent(SentReport),
    /// The receiver.
    Received(ReceivedReport),
}

impl DatagramReport {
    /// Says what in a report from the other end cannot be true.
    pub fn check(&self) -> Result<(), String> {
        let holds = |fact: bool, what: &str| if fact { Ok(()) } else { Err(what.to_owned()) };
        match self {
            Self::Sent(sent) => {
                let refused = sent.packets.each(sent.refused, |all, some| u64::from(some > all));
                holds(sent.packets.is_possible(), "more datagrams were sent than can be")?;
                holds(refused.total() == 0, "more datagrams were refused than sent")?;
                holds(sent.queue.is_possible(), "a queue dropped more than it can have")
            }
            Self::Received(seen) => {
                holds(seen.packets.is_possible(), "more datagrams came than can have")?;
                holds(seen.reordered <= seen.packets.window, "more datagrams were overtaken than came")?;
                holds(seen.extent < SEQUENCES, "a datagram was overtaken by more than can be")?;
                let more = [seen.duplicates, seen.late, seen.foreign, seen.receives, seen.joined];
                holds(
                    more.into_iter().all(|count| count <= MOST),
                    "more datagrams came again than can have",
                )?;
                holds(seen.receives <= seen.joined, "fewer datagrams came than were received")?;
                let jitter = seen.jitter_ns.is_none_or(|jitter| (0.0..=MOST as f64).contains(&jitter));
                holds(jitter, "its jitter is no time")?;
                holds(seen.gaps.count() <= MOST, "there were more gaps than arrivals")?;
                let possible = seen.socket.is_possible() && seen.host.is_possible();
                holds(possible, "a socket dropped more than it can have")
            }
        }
    }
}

/// Makes the losses of the receiver's intervals add up to the window's, now that the sender has said what it sent: what was
/// passed over near an edge, or behind the last arrival, only shows then.
pub(crate) fn settle(outcome: &mut RunOutcome) {
    let Some(lost) = Both::of(outcome).map(|both| both.lost().window) else { return };
    let receiver = if outcome.client.role.counts() { &mut outcome.client } else { &mut outcome.server };
    settle_to(&mut receiver.intervals, lost);
}

fn settle_to(intervals: &mut [IntervalReport], lost: u64) {
    let known = intervals.iter().filter_map(|interval| interval.lost).fold(0, u64::saturating_add);
    take_back(intervals, known.saturating_sub(lost));
    if let Some(last) = intervals.last_mut().filter(|_| known < lost) {
        last.lost = Some(last.lost.unwrap_or(0) + (lost - known));
    }
}

/// Takes losses back that were none, from the latest interval that has some to the earliest.
pub(crate) fn take_back(intervals: &mut [IntervalReport], mut lost: u64) {
    for interval in intervals.iter_mut().rev() {
        if let Some(of) = &mut interval.lost {
            *of -= take(&mut lost, *of);
        }
    }
}

/// What was lost, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lost {
    /// All of it: the sum of the others.
    pub total: u64,
    /// In the sender's own queues.
    pub sender: u64,
    /// In the receiver's host.
    pub receiver: u64,
    /// In neither.
    pub path: u64,
}

/// What both ends together say of a leg.
#[derive(Debug, Clone, Copy)]
pub struct Both<'a> {
    /// The sender's half.
    pub sent: &'a SentReport,
    /// The receiver's.
    pub received: &'a ReceivedReport,
}

impl<'a> Both<'a> {
    /// The halves of a run, where each end told its own.
    #[must_use]
    pub fn of(outcome: &'a RunOutcome) -> Option<Self> {
        match (outcome.sender().datagrams()?, outcome.receiver().datagrams()?) {
            (DatagramReport::Sent(sent), DatagramReport::Received(received)) => Some(Self { sent, received }),
            _ => None,
        }
    }

    /// What was lost of the datagrams of each phase.
    #[must_use]
    pub fn lost(self) -> Phased {
        self.sent.packets.each(self.received.packets, u64::saturating_sub)
    }

    /// Whether more came than was sent: datagrams that are told apart cannot.
    #[must_use]
    pub fn is_contradiction(self, message: u64) -> bool {
        let more = self.received.packets.each(self.sent.packets, u64::saturating_sub);
        Form::of(message) != Form::Count && more.total() > 0
    }

    /// Where what was sent in the window was lost.
    #[must_use]
    pub fn window(self) -> Lost {
        self.parts().0
    }

    /// Where all that was sent was lost.
    #[must_use]
    pub fn run(self) -> Lost {
        self.parts().1
    }

    /// How many datagrams one drop of a receiver's socket stands for: the kernel counts what it joined as one.
    #[must_use]
    pub fn joined_each(self) -> u64 {
        self.received.joined.div_ceil(self.received.receives.max(1)).max(1)
    }

    fn parts(self) -> (Lost, Lost) {
        let lost = self.lost();
        let refused = Drops { window: self.sent.refused.window, run: self.sent.refused.total() };
        let socket = self.received.socket.drops().unwrap_or_default().times(self.joined_each());
        let queue = self.sent.queue.drops().unwrap_or_default();
        let host = self.received.host.drops().unwrap_or_default();

        let counted = [refused, socket, queue, host];
        let mut left = lost.total();
        let most = counted.map(|drops| take(&mut left, drops.run));
        let run = sum(most, left);

        let mut left = lost.window;
        let bounded = |place: usize| counted[place].window.min(most[place]);
        let mut parts = [0, 1, 2, 3].map(|place| take(&mut left, bounded(place)));
        let path = take(&mut left, run.path);
        // What is left was counted on the wrong side of an edge: the run knows that it belongs to one of these.
        for (part, most) in parts.iter_mut().zip(most) {
            *part += take(&mut left, most - *part);
        }
        (sum(parts, path), run)
    }
}

/// Takes up to so many of what is left.
fn take(left: &mut u64, most: u64) -> u64 {
    let taken = most.min(*left);
    *left -= taken;
    taken
}

fn sum([refused, socket, queue, host]: [u64; 4], path: u64) -> Lost {
    let (sender, receiver) = (refused + queue, socket + host);
    Lost { total: sender + receiver + path, sender, receiver, path }
}

#[cfg(test)]
pub(crate) mod tests {
    use haul_stats::MonoNanos;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Counts of every size, those no run can have included.
    fn count() -> impl Strategy<Value = u64> {
        prop_oneof![3 => Just(0), 20 => 0..1_000_u64, 5 => 0..=MOST, 1 => any::<u64>()]
    }

    fn phased() -> impl Strategy<Value = Phased> {
        [count(), count(), count()].prop_map(Phased::from)
    }

    fn counted() -> impl Strategy<Value = Counted> {
        prop_oneof![
            5 => (count(), count()).prop_map(|(window, run)| Counted::Drops(Drops { window, run })),
            1 => Just(Counted::Unknown("it is not said".to_owned())),
        ]
    }

    prop_compose! {
        pub(crate) fn sent()(
            packets in phased(), refused in phased(), train in 0..200_u32,
            path_mtu in proptest::option::of(any::<u32>()), ipv6 in any::<bool>(), queue in counted(),
        ) -> SentReport {
            SentReport { packets, refused: refused.at_most(packets), train, path_mtu, ipv6, queue }
        }
    }

    prop_compose! {
        pub(crate) fn received()(
            packets in phased(), more in vec(count(), 6), jitter_ns in proptest::option::of(-1.0..1e18),
            gaps in vec(any::<u64>(), 0..30), socket in counted(), host in counted(),
        ) -> ReceivedReport {
            let mut histogram = Histogram::default();
            for gap in gaps {
                histogram.record(gap);
            }
            ReceivedReport {
                packets,
                duplicates: more[0],
                reordered: more[1].min(packets.window),
                extent: more[2],
                late: more[3],
                foreign: more[4],
                receives: more[5] / 7,
                joined: more[5],
                jitter_ns,
                gaps: histogram,
                socket,
                host,
            }
        }
    }

    fn is_possible(sent: &SentReport, received: &ReceivedReport) -> bool {
        DatagramReport::Sent(sent.clone()).check().is_ok()
            && DatagramReport::Received(received.clone()).check().is_ok()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, max_global_rejects: 200_000, ..ProptestConfig::default() })]

        #[test]
        fn what_was_lost_was_lost_somewhere_and_nowhere_more_than_in_the_whole_run(
            sent in sent(), received in received(),
        ) {
            prop_assume!(is_possible(&sent, &received));
            let both = Both { sent: &sent, received: &received };
            let (window, run) = (both.window(), both.run());
            for (lost, total) in [(window, both.lost().window), (run, both.lost().total())] {
                prop_assert_eq!(lost.total, total);
                prop_assert_eq!(lost.sender + lost.receiver + lost.path, total);
            }
            prop_assert!(window.sender <= run.sender && window.receiver <= run.receiver && window.path <= run.path);
            // Loss is between nothing and everything.
            prop_assert!(window.total <= sent.packets.window);
        }

        #[test]
        fn what_came_and_what_was_lost_is_what_was_sent(sent in sent(), received in received()) {
            prop_assume!(is_possible(&sent, &received));
            let received = ReceivedReport { packets: received.packets.at_most(sent.packets), ..received };
            let both = Both { sent: &sent, received: &received };
            prop_assert_eq!(both.run().total + received.packets.total(), sent.packets.total());
            prop_assert_eq!(both.window().total + received.packets.window, sent.packets.window);
            prop_assert!(!both.is_contradiction(100));
        }

        #[test]
        fn intervals_lose_what_the_window_lost(
            losses in vec(proptest::option::of(0..50_u64), 1..20), lost in 0..1_000_u64,
        ) {
            let interval = |lost| IntervalReport {
                start: MonoNanos(0), end: MonoNanos(1), units: 0, retransmits: None, packets: Some(0), lost,
            };
            let mut intervals: Vec<_> = losses.iter().copied().map(interval).collect();
            settle_to(&mut intervals, lost);
            prop_assert_eq!(intervals.iter().filter_map(|interval| interval.lost).sum::<u64>(), lost);
            let last = intervals.len() - 1;
            for (interval, before) in intervals[..last].iter().zip(&losses) {
                prop_assert_eq!(interval.lost.is_some(), before.is_some(), "an idle interval stays without a figure");
                prop_assert!(interval.lost <= *before);
            }
        }
    }

    pub(crate) fn sample() -> (SentReport, ReceivedReport) {
        let packets = Phased { warmup: 100, window: 1_000, after: 10 };
        let none = || Counted::Drops(Drops::default());
        let refused = Phased::default();
        let sent =
            SentReport { packets, refused, train: 1, path_mtu: Some(1500), ipv6: false, queue: none() };
        let received = ReceivedReport {
            packets,
            duplicates: 0,
            reordered: 0,
            extent: 0,
            late: 0,
            foreign: 0,
            receives: 0,
            joined: 0,
            jitter_ns: None,
            gaps: Histogram::default(),
            socket: none(),
            host: none(),
        };
        (sent, received)
    }

    #[test]
    fn exact_counters_come_before_those_that_count_for_everybody() {
        let (mut sent, mut received) = sample();
        received.packets.window = 900;
        sent.refused.window = 10;
        received.socket = Counted::Drops(Drops { window: 30, run: 30 });
        sent.queue = Counted::Drops(Drops { window: 1_000_000, run: 1_000_000 });
        received.host = Counted::Drops(Drops { window: 5, run: 5 });
        let lost = Both { sent: &sent, received: &received }.window();
        assert_eq!((lost.total, lost.sender, lost.receiver, lost.path), (100, 70, 30, 0));
        sent.queue = Counted::Drops(Drops { window: 20, run: 20 });
        let lost = Both { sent: &sent, received: &received }.window();
        assert_eq!((lost.sender, lost.receiver, lost.path), (30, 35, 35));
    }

    #[test]
    fn drops_counted_beside_the_window_are_not_charged_to_a_path_that_lost_nothing() {
        let (sent, mut received) = sample();
        // All of the loss is the socket's; 7 of its drops fell just before the receiver's window opened.
        received.packets = Phased { warmup: 60, window: 800, after: 10 };
        received.socket = Counted::Drops(Drops { window: 193, run: 240 });
        let both = Both { sent: &sent, received: &received };
        let (window, run) = (both.window(), both.run());
        assert_eq!((window.total, window.receiver, window.path), (200, 200, 0));
        assert_eq!((run.total, run.receiver, run.path), (240, 240, 0));
    }

    #[test]
    fn a_drop_of_joined_datagrams_stands_for_all_of_them() {
        let (sent, mut received) = sample();
        (received.receives, received.joined) = (20, 800);
        received.packets = Phased { warmup: 100, window: 690, after: 10 };
        received.socket = Counted::Drops(Drops { window: 8, run: 8 });
        let lost = Both { sent: &sent, received: &received }.window();
        assert_eq!((lost.receiver, lost.path), (310, 0), "8 drops of 40 each, and no more than were lost");
    }

    #[test]
    fn a_report_that_contradicts_itself_is_refused_with_the_reason() {
        type Spoil = fn(&mut SentReport, &mut ReceivedReport);
        let spoils: [(&str, Spoil); 9] = [
            ("sent than can be", |sent, _| sent.packets.window = u64::MAX),
            ("refused than sent", |sent, _| sent.refused.after = 11),
            ("a queue dropped", |sent, _| sent.queue = Counted::Drops(Drops { window: 2, run: 1 })),
            ("came than can have", |_, received| received.packets.after = u64::MAX),
            ("overtaken than came", |_, received| received.reordered = 1_001),
            ("by more than can be", |_, received| received.extent = SEQUENCES),
            ("came again", |_, received| received.duplicates = u64::MAX),
            ("no time", |_, received| received.jitter_ns = Some(f64::NAN)),
            ("a socket dropped", |_, received| {
                received.socket = Counted::Drops(Drops { window: 0, run: u64::MAX });
            }),
        ];
        let (sent, received) = sample();
        assert!(is_possible(&sent, &received));
        for (what, spoil) in spoils {
            let (mut sent, mut received) = sample();
            spoil(&mut sent, &mut received);
            let said = DatagramReport::Sent(sent)
                .check()
                .and_then(|()| DatagramReport::Received(received).check())
                .expect_err(what);
            assert!(said.contains(what), "{said}");
        }
    }
}
