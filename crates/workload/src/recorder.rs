//! When to look at the counters, and what the looks add up to.
//!
//! Pure: the time and the counts are passed in, so a test can step a clock that jumps, stalls or runs late. The window
//! is the difference of the snapshots at its two edges, and so is each interval, which makes the sum of the intervals
//! the window to the byte. Real times are recorded, not the planned ones: a recorder that was woken late reports the
//! window it really saw, never the planned length over too many bytes or too few.
//!
//! ```text
//! start ── warm-up ──┬─ slice ─ slice ─ … ─┬─ close
//!                    open                  each interval ends on its own edge
//! ```
//!
//! Slices are looked at only for as long as a flow has not moved yet: they tell when it did.

use std::time::Duration;

use haul_stats::MonoNanos;

use crate::datagram;
use crate::report::IntervalReport;

/// Slices a window is looked at in: they tell when a late flow began, to 2 % of the window.
const SLICES: u32 = 50;

/// No slice is shorter: looking costs a wake-up.
const MIN_SLICE: Duration = Duration::from_millis(5);

/// What is read beside the counters, from the start of the flows on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Beside {
    /// Segments sent again, at a sender that has looked.
    pub(crate) retransmits: Option<u64>,
    /// Datagrams of the window known to be missing, at a receiver of such.
    pub(crate) missing: Option<u64>,
}

/// What a look at the counters led to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The window opened.
    pub(crate) opened: bool,
    /// An interval ended.
    pub(crate) interval: Option<IntervalReport>,
    /// The window closed.
    pub(crate) closed: bool,
}

/// A flow's counter at the edges of the window, and when it first moved.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FlowMarks {
    at_open: u64,
    latest: u64,
    /// When the flow was first seen to have moved; the opening of the window where it had before.
    pub(crate) first: Option<MonoNanos>,
}

impl FlowMarks {
    /// What was completed between the edges.
    pub(crate) fn window_units(&self) -> u64 {
        self.latest - self.at_open
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    WarmUp,
    Open,
    Closed,
}

/// Cuts cumulative counters into a window and its intervals.
#[derive(Debug)]
pub(crate) struct Recorder {
    phase: Phase,
    opens: MonoNanos,
    closes: MonoNanos,
    /// When it would close if nothing cut it.
    planned: MonoNanos,
    slice: Duration,
    next_slice: MonoNanos,
    interval: Option<Duration>,
    next_interval: MonoNanos,
    interval_from: (MonoNanos, u64, Beside),
    /// Bytes of a datagram, where the counters are of such.
    datagram: Option<u64>,
    flows: Vec<FlowMarks>,
    window: (MonoNanos, MonoNanos),
    intervals: Vec<IntervalReport>,
}

impl Recorder {
    pub(crate) fn new(
        start: MonoNanos,
        warmup: Duration,
        window: Duration,
        interval: Option<Duration>,
        flows: usize,
        datagram: Option<u64>,
    ) -> Self {
        let opens = start.after(warmup);
        Self {
            phase: Phase::WarmUp,
            opens,
            closes: opens.after(window),
            planned: opens.after(window),
            slice: (window / SLICES).max(MIN_SLICE),
            next_slice: opens,
            interval,
            next_interval: opens,
            interval_from: (opens, 0, Beside::default()),
            datagram,
            flows: vec![FlowMarks::default(); flows],
            window: (opens, opens),
            intervals: Vec::new(),
        }
    }

    /// A window that is open from the start: everything the flows do is in it.
    pub(crate) fn from_the_start(
        start: MonoNanos,
        window: Duration,
        interval: Option<Duration>,
        flows: usize,
    ) -> Self {
        let mut recorder = Self::new(start, Duration::ZERO, window, interval, flows, None);
        let nothing = Beside { retransmits: Some(0), missing: None };
        recorder.look(start, &vec![0; flows], nothing);
        recorder
    }

    /// When to look next; `None` once the window has closed.
    pub(crate) fn next(&self) -> Option<MonoNanos> {
        match self.phase {
            Phase::WarmUp => Some(self.opens),
            Phase::Open => {
                let mut next = self.closes;
                if self.flows.iter().any(|flow| flow.first.is_none()) {
                    next = next.min(self.next_slice);
                }
                if self.interval.is_some() {
                    next = next.min(self.next_interval);
                }
                Some(next)
            }
            Phase::Closed => None,
        }
    }

    /// Takes the counters as they stand `now`: one per flow, and what is counted of all of them together.
    pub(crate) fn look(&mut self, now: MonoNanos, bytes: &[u64], beside: Beside) -> Seen {
        let mut seen = Seen::default();
        match self.phase {
            Phase::WarmUp if now >= self.opens => {
                self.phase = Phase::Open;
                self.window = (now, now);
                for (flow, &count) in self.flows.iter_mut().zip(bytes) {
                    *flow = FlowMarks { at_open: count, latest: count, first: (count > 0).then_some(now) };
                }
                // What is missing of the sender's window is counted from nothing, also where that has opened already.
                let beside = Beside { missing: beside.missing.map(|_| 0), ..beside };
                self.interval_from = (now, bytes.iter().sum(), beside);
                // A late opening does not move the closing: the other end closes when it was agreed, and only what both
                // windows cover is common.
                self.next_slice = now.after(self.slice);
                if let Some(interval) = self.interval {
                    self.next_interval = now.after(interval);
                }
                seen.opened = true;
            }
            Phase::Open => {
                let previous = self.window.1;
                self.mark(now, previous, bytes);
                let closes = now >= self.closes;
                if let Some(interval) = self.interval
                    && (now >= self.next_interval || closes)
                {
                    seen.interval = Some(self.cut_interval(now, bytes, beside));
                    while self.next_interval <= now {
                        self.next_interval = self.next_interval.after(interval);
                    }
                }
                while self.next_slice <= now {
                    self.next_slice = self.next_slice.after(self.slice);
                }
                if closes {
                    self.phase = Phase::Closed;
                    seen.closed = true;
                }
            }
            Phase::WarmUp | Phase::Closed => {}
        }
        seen
    }

    /// Closes the window `now`, before its time.
    pub(crate) fn cut(&mut self, now: MonoNanos, bytes: &[u64], beside: Beside) -> Seen {
        self.closes = self.closes.min(now);
        match self.phase {
            Phase::WarmUp => {
                self.phase = Phase::Closed;
                Seen { closed: true, ..Seen::default() }
            }
            Phase::Open => self.look(now, bytes, beside),
            Phase::Closed => Seen::default(),
        }
    }

    fn mark(&mut self, now: MonoNanos, previous: MonoNanos, bytes: &[u64]) {
        for (flow, &count) in self.flows.iter_mut().zip(bytes) {
            if count > flow.latest {
                // It moved at some time since the last look: the earliest is taken.
                flow.first.get_or_insert(previous);
                flow.latest = count;
            }
        }
        self.window.1 = now;
    }

    fn cut_interval(&mut self, now: MonoNanos, bytes: &[u64], beside: Beside) -> IntervalReport {
        let (start, from, then) = self.interval_from;
        let total: u64 = bytes.iter().sum();
        let units = total - from;
        let missing = beside.missing.zip(then.missing);
        if let Some((now, then)) = missing {
            // More has come late than was passed over: it was missing in an interval before.
            datagram::take_back(&mut self.intervals, then.saturating_sub(now));
        }
        let lost = missing.map(|(now, then)| now.saturating_sub(then));
        let report = IntervalReport {
            start,
            end: now,
            units,
            retransmits: beside.retransmits.zip(then.retransmits).map(|(now, then)| now.saturating_sub(then)),
            packets: self.datagram.map(|datagram| units / datagram.max(1)),
            // With nothing there to tell by, nothing is told.
            lost: lost.filter(|&lost| lost > 0 || units > 0),
        };
        self.interval_from = (now, total, beside);
        self.intervals.push(report);
        report
    }

    /// The real edges of the window.
    pub(crate) fn window(&self) -> (MonoNanos, MonoNanos) {
        self.window
    }

    /// When the window is to close.
    pub(crate) fn closes(&self) -> MonoNanos {
        self.closes
    }

    /// When it was to close before anything cut it.
    pub(crate) fn planned(&self) -> MonoNanos {
        self.planned
    }

    /// Whether the window has closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Each flow's share.
    pub(crate) fn flows(&self) -> &[FlowMarks] {
        &self.flows
    }

    /// The intervals so far.
    pub(crate) fn into_intervals(self) -> Vec<IntervalReport> {
        self.intervals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn recorder(interval_ms: Option<u64>) -> Recorder {
        Recorder::new(
            MonoNanos(1_000 * MS),
            Duration::from_millis(100),
            Duration::from_secs(1),
            interval_ms.map(Duration::from_millis),
            2,
            None,
        )
    }

    fn retransmits(count: u64) -> Beside {
        Beside { retransmits: Some(count), missing: None }
    }

    /// Runs the recorder on time, both flows at a byte per microsecond, and returns it closed.
    fn drive(mut recorder: Recorder, late: impl Fn(u64) -> u64) -> Recorder {
        let mut looks = 0;
        while let Some(due) = recorder.next() {
            let now = MonoNanos(due.0 + late(looks));
            let count = (now.0 - 1_000 * MS) / 1_000;
            recorder.look(now, &[count, count], retransmits(looks));
            looks += 1;
            assert!(looks < 10_000, "the recorder never closed");
        }
        recorder
    }

    #[test]
    fn warm_up_bytes_are_not_in_the_window() {
        let done = drive(recorder(None), |_| 0);
        assert_eq!(done.window(), (MonoNanos(1_100 * MS), MonoNanos(2_100 * MS)));
        assert_eq!(done.flows()[0].window_units(), 1_000_000);
    }

    #[test]
    fn intervals_sum_to_the_window_whatever_the_lateness() {
        for late in [0, 1, 3 * MS, 70 * MS, 400 * MS] {
            for interval in [10, 33, 100, 1_000] {
                let done = drive(recorder(Some(interval)), |look| if look % 3 == 0 { late } else { 0 });
                let (start, end) = done.window();
                let total: u64 = done.flows().iter().map(FlowMarks::window_units).sum();
                let intervals = done.into_intervals();
                assert_eq!(
                    intervals.iter().map(|i| i.units).sum::<u64>(),
                    total,
                    "late {late} interval {interval}"
                );
                assert_eq!(intervals.first().map(|i| i.start), Some(start));
                assert_eq!(intervals.last().map(|i| i.end), Some(end));
                assert!(intervals.windows(2).all(|pair| pair[0].end == pair[1].start));
                assert!(intervals.iter().all(|i| i.end > i.start), "an interval of no length");
            }
        }
    }

    #[test]
    fn a_late_closing_is_reported_as_a_longer_window() {
        let done = drive(recorder(None), |look| if look == 1 { 300 * MS } else { 0 });
        let (start, end) = done.window();
        let rate = done.flows()[0].window_units() as f64 / end.since(start).as_secs_f64();
        assert!((rate - 1e6).abs() < 1.0, "rate {rate} over {:?}", end.since(start));
    }

    #[test]
    fn a_late_opening_shortens_the_window_and_keeps_its_end() {
        let done = drive(recorder(None), |look| if look == 0 { 250 * MS } else { 0 });
        assert_eq!(done.window(), (MonoNanos(1_350 * MS), MonoNanos(2_100 * MS)));
        assert_eq!(done.flows()[0].window_units(), 750_000);
    }

    #[test]
    fn an_opening_after_the_end_leaves_no_window() {
        let done = drive(recorder(None), |look| if look == 0 { 5_000 * MS } else { 0 });
        let (start, end) = done.window();
        assert!(end.since(start).is_zero());
        assert_eq!(done.flows()[0].window_units(), 0);
    }

    #[test]
    fn a_cut_in_the_warm_up_leaves_no_window_and_a_cut_in_the_window_a_shorter_one() {
        let mut cut = recorder(Some(100));
        assert!(cut.cut(MonoNanos(1_050 * MS), &[5, 5], Beside::default()).closed);
        let (start, end) = cut.window();
        assert!(end.since(start).is_zero());

        let mut cut = recorder(Some(100));
        cut.look(MonoNanos(1_100 * MS), &[10, 10], Beside::default());
        let seen = cut.cut(MonoNanos(1_350 * MS), &[40, 50], Beside::default());
        assert!(seen.closed);
        assert_eq!(cut.window(), (MonoNanos(1_100 * MS), MonoNanos(1_350 * MS)));
        assert_eq!(cut.flows().iter().map(FlowMarks::window_units).sum::<u64>(), 70);
    }

    #[test]
    fn a_flow_that_starts_late_shows_when() {
        let mut late = recorder(None);
        let mut looks = 0;
        while let Some(now) = late.next() {
            late.look(now, &[1 + looks, u64::from(looks >= 20)], Beside::default());
            looks += 1;
        }
        let (start, _) = late.window();
        assert_eq!(late.flows()[0].first, Some(start));
        assert_eq!(late.flows()[1].first, Some(start.after(Duration::from_millis(19 * 20))));
        assert_eq!(looks, 22, "once every flow has moved there is nothing to look for before the close");
    }

    proptest! {
        #[test]
        fn any_sequence_of_looks_keeps_the_sum(
            steps in proptest::collection::vec((0u64..60 * MS, 0u64..5_000, 0u64..5_000), 1..200),
            interval in proptest::option::of(10u64..500),
        ) {
            let mut recorder = recorder(interval);
            let (mut now, mut a, mut b) = (1_000 * MS, 0, 0);
            for (step, da, db) in steps {
                now += step;
                a += da;
                b += db;
                recorder.look(MonoNanos(now), &[a, b], Beside::default());
            }
            let open = recorder.phase == Phase::Open;
            recorder.cut(MonoNanos(now), &[a, b], Beside::default());
            let total: u64 = recorder.flows().iter().map(FlowMarks::window_units).sum();
            let intervals = recorder.into_intervals();
            if interval.is_some() && (open || !intervals.is_empty()) {
                prop_assert_eq!(intervals.iter().map(|i| i.units).sum::<u64>(), total);
            }
        }
    }
}
