//! What became of the datagrams of one flow, from their sequence numbers alone.
//!
//! ```text
//! block of 64 sequence numbers ──▶ slot (block mod 1,024): the newest block that was there, and a bit for each number
//!   a newer block in the slot    the datagram is more than 65,000 behind: too late to tell whether it came before
//!   its bit is set               it came before
//!   below the highest seen       it was overtaken (RFC 4737, section 3), by as many as it is behind
//! ```
//!
//! Nothing is ever cleared or searched: a slot is taken over by the next block that needs it, so a datagram costs the same
//! whatever its number is, and a peer that jumps through the numbers spoils single slots of its own count. What is too
//! late to tell counts as not received, because a second copy counted as a first would make more arrive than was sent.
//!
//! Jitter is that of RFC 3550, section 6.4.1, in the integers of its appendix A.8: of the datagrams sent in the window, in
//! the order of their arrival. The two ends' clocks need not agree, since only differences of transit times count.
//!
//! All counts are atomics with one writer, so that another thread can read them while the flow runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use haul_stats::MonoNanos;
use haul_stats::latency::{BUCKETS, Histogram, HistogramError, bucket_of};

use super::header::{Header, Phase};

/// Slots: with 64 numbers in each, what is up to 65,472 behind is told exactly. 16 KiB a flow; at a million datagrams a
/// second, 65 ms of a path that reorders.
const SLOTS: usize = 1024;

/// The largest difference of transit times that counts: more than an hour is a clock that was set, or a lie.
const MOST_JITTER_NS: u64 = 1 << 42;

/// A count with one writer.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    #[inline]
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn add(&self, more: u64) {
        self.set(self.get().saturating_add(more));
    }
}

/// What a receiver counted of one flow, alone on its cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Seen {
    /// Different datagrams, by the phase they were sent in.
    pub(super) distinct: [Count; 3],
    /// Numbers of the window that were passed over and have not come since.
    pub(super) missing: Count,
    /// Datagrams of the window that had come before.
    pub(super) duplicates: Count,
    /// Those that came after one with a higher number.
    pub(super) reordered: Count,
    /// How far the furthest of them was behind.
    pub(super) extent: Count,
    /// Those that came too late to tell.
    pub(super) late: Count,
    /// Datagrams that are no payload of this run.
    pub(super) foreign: Count,
    /// Receives in which the kernel could give joined datagrams, and the datagrams it gave in them.
    pub(super) receives: Count,
    pub(super) joined: Count,
    /// Transit times seen in the window, and sixteen times the jitter in ns.
    pub(super) transits: Count,
    pub(super) jitter_16: Count,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    block: u64,
    bits: u64,
}

/// Tells the datagrams of one flow apart.
#[derive(Debug)]
pub(super) struct Tracker {
    pub(super) seen: Arc<Seen>,
    /// The highest number seen, and one.
    next: u64,
    slots: Box<[Slot]>,
    transit: Option<u64>,
}

impl Tracker {
    pub(super) fn new(seen: Arc<Seen>) -> Self {
        Self { seen, next: 0, slots: vec![Slot::default(); SLOTS].into(), transit: None }
    }

    /// Takes note of a datagram that has arrived; whether it is one more.
    #[inline]
    pub(super) fn take(&mut self, header: Header, now: MonoNanos) -> bool {
        let new = header.sequence.is_none_or(|sequence| self.is_new(header.phase, sequence));
        if new {
            self.seen.distinct[header.phase as usize].add(1);
            if let (Phase::Window, Some(sent)) = (header.phase, header.sent) {
                self.time(now.0.wrapping_sub(sent.0));
            }
        }
        new
    }

    #[inline]
    fn is_new(&mut self, phase: Phase, sequence: u64) -> bool {
        let (block, bit) = (sequence / 64, 1 << (sequence % 64));
        let in_window = u64::from(phase == Phase::Window);
        #[expect(clippy::cast_possible_truncation, reason = "below SLOTS")]
        let slot = &mut self.slots[(block % SLOTS as u64) as usize];
        if slot.block > block {
            self.seen.late.add(in_window);
            return false;
        }
        if slot.block < block {
            *slot = Slot { block, bits: 0 };
        }
        if slot.bits & bit != 0 {
            self.seen.duplicates.add(in_window);
            return false;
        }
        slot.bits |= bit;
        if sequence >= self.next {
            if sequence > self.next {
                // Those passed over at an edge of the window may belong to either side of it; the sender knows in the end.
                self.seen.missing.add(in_window * (sequence - self.next));
            }
            self.next = sequence + 1;
        } else if phase == Phase::Window {
            self.seen.missing.set(self.seen.missing.get().saturating_sub(1));
            self.seen.reordered.add(1);
            self.seen.extent.set(self.seen.extent.get().max(self.next - 1 - sequence));
        }
        true
    }

    #[inline]
    fn time(&mut self, transit: u64) {
        if let Some(before) = self.transit.replace(transit) {
            let change = transit.wrapping_sub(before).cast_signed().unsigned_abs().min(MOST_JITTER_NS);
            let jitter = self.seen.jitter_16.get();
            self.seen.jitter_16.set(jitter + change - ((jitter + 8) >> 4));
        }
        self.seen.transits.add(1);
    }
}

/// Times between arrivals, counted by one worker for all of its flows.
#[derive(Debug)]
pub(super) struct Gaps(Box<[Count]>);

impl Default for Gaps {
    fn default() -> Self {
        Self((0..BUCKETS).map(|_| Count::default()).collect())
    }
}

impl Gaps {
    #[inline]
    pub(super) fn add(&self, gap_ns: u64, times: u64) {
        if let Some(bucket) = self.0.get(bucket_of(gap_ns)) {
            bucket.add(times);
        }
    }

    pub(super) fn read(&self) -> Result<Histogram, HistogramError> {
        let counts = self.0.iter().map(Count::get).enumerate();
        Histogram::from_counts(counts.filter(|(_, count)| *count > 0))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn tracker() -> Tracker {
        Tracker::new(Arc::default())
    }

    fn header(phase: Phase, sequence: u64) -> Header {
        Header { phase, sequence: Some(sequence), sent: None }
    }

    /// The counts as the definitions have them, with memory of everything.
    #[derive(Debug, Default, PartialEq)]
    struct Oracle {
        came: HashSet<u64>,
        distinct: [u64; 3],
        duplicates: u64,
        reordered: u64,
        extent: u64,
        highest: Option<u64>,
    }

    impl Oracle {
        fn take(&mut self, phase: Phase, sequence: u64) {
            let window = phase == Phase::Window;
            if !self.came.insert(sequence) {
                self.duplicates += u64::from(window);
                return;
            }
            self.distinct[phase as usize] += 1;
            if let Some(highest) = self.highest.filter(|&highest| sequence < highest) {
                self.reordered += u64::from(window);
                self.extent = self.extent.max(if window { highest - sequence } else { 0 });
            } else {
                self.highest = Some(sequence);
            }
        }
    }

    fn agrees(tracker: &Tracker, oracle: &Oracle) {
        let seen = &tracker.seen;
        assert_eq!([0, 1, 2].map(|place: usize| seen.distinct[place].get()), oracle.distinct);
        assert_eq!(seen.duplicates.get(), oracle.duplicates, "duplicates");
        assert_eq!(seen.reordered.get(), oracle.reordered, "reordered");
        assert_eq!(seen.extent.get(), oracle.extent, "extent");
    }

    /// What a path does to a datagram.
    #[derive(Debug, Clone, Copy)]
    enum Fate {
        Arrives,
        IsLost,
        ComesTwice,
        /// It is overtaken by so many.
        IsHeldBack(usize),
        /// Its copy is.
        IsEchoed(usize),
    }

    fn fate() -> impl Strategy<Value = Fate> {
        prop_oneof![
            10 => Just(Fate::Arrives),
            3 => Just(Fate::IsLost),
            1 => Just(Fate::ComesTwice),
            2 => (1..300_usize).prop_map(Fate::IsHeldBack),
            1 => (1..300_usize).prop_map(Fate::IsEchoed),
        ]
    }

    /// The numbers in the order in which they arrive.
    fn arrivals(fates: &[Fate]) -> Vec<u64> {
        let mut order: Vec<(usize, u64)> = Vec::new();
        for (place, fate) in fates.iter().enumerate() {
            let sequence = place as u64;
            match *fate {
                Fate::Arrives => order.push((place, sequence)),
                Fate::IsLost => {}
                Fate::ComesTwice => order.extend([(place, sequence); 2]),
                Fate::IsHeldBack(by) => order.push((place + by, sequence)),
                Fate::IsEchoed(by) => order.extend([(place, sequence), (place + by, sequence)]),
            }
        }
        order.sort_by_key(|(at, _)| *at);
        order.into_iter().map(|(_, sequence)| sequence).collect()
    }

    proptest! {
        #[test]
        fn counts_are_exact_whatever_a_path_loses_repeats_and_reorders(
            fates in vec(fate(), 1..2_000), opens in 0..500_u64, closes in 500..2_000_u64,
        ) {
            let phase = |sequence: u64| match sequence {
                _ if sequence < opens => Phase::WarmUp,
                _ if sequence < closes => Phase::Window,
                _ => Phase::After,
            };
            let (mut tracker, mut oracle) = (tracker(), Oracle::default());
            for sequence in arrivals(&fates) {
                tracker.take(header(phase(sequence), sequence), MonoNanos(0));
                oracle.take(phase(sequence), sequence);
            }
            agrees(&tracker, &oracle);
            prop_assert_eq!(tracker.seen.late.get(), 0);
            // Every datagram sent in the window has either come or is lost.
            let sent = (fates.len() as u64).min(closes).saturating_sub(opens);
            prop_assert!(tracker.seen.distinct[1].get() <= sent);
        }

        #[test]
        fn what_is_missing_is_what_was_passed_over_and_has_not_come(fates in vec(fate(), 1..2_000)) {
            let (mut tracker, mut came, mut passed) = (tracker(), HashSet::new(), 0);
            for sequence in arrivals(&fates) {
                tracker.take(header(Phase::Window, sequence), MonoNanos(0));
                came.insert(sequence);
                passed = passed.max(sequence + 1);
                prop_assert_eq!(tracker.seen.missing.get(), passed - came.len() as u64);
            }
        }

        /// No number, in whatever order, counts more than one datagram or makes a second copy a first.
        #[test]
        fn a_peer_that_invents_numbers_only_spoils_its_own_count(
            sequences in vec(
                prop_oneof![3 => 0..200_u64, 2 => 0..super::super::header::SEQUENCES, 1 => 65_400..65_700_u64],
                1..500,
            ),
        ) {
            let mut tracker = tracker();
            let mut came = HashSet::new();
            for &sequence in &sequences {
                let new = tracker.take(header(Phase::Window, sequence), MonoNanos(0));
                prop_assert!(came.insert(sequence) || !new, "{} came twice and counted twice", sequence);
            }
            let seen = &tracker.seen;
            let counted = seen.distinct[1].get() + seen.duplicates.get() + seen.late.get();
            prop_assert_eq!(counted, sequences.len() as u64);
            prop_assert_eq!(tracker.slots.len(), SLOTS, "its memory does not grow");
        }

        #[test]
        fn jitter_is_that_of_the_rfc_whatever_the_clocks_say(
            transits in vec(0..10_000_000_u64, 0..200), offset in any::<u64>(),
        ) {
            let mut tracker = tracker();
            let (mut exact, mut before) = (0.0_f64, None::<u64>);
            for (sequence, &transit) in transits.iter().enumerate() {
                let sequence = sequence as u64;
                let sent = MonoNanos(offset.wrapping_add(sequence * 1_000_000));
                let now = MonoNanos(sequence * 1_000_000 + transit);
                let header = Header { sent: Some(sent), ..header(Phase::Window, sequence) };
                tracker.take(header, now);
                if let Some(before) = before.replace(transit) {
                    exact += (transit.abs_diff(before) as f64 - exact) / 16.0;
                }
            }
            prop_assert_eq!(tracker.seen.transits.get(), transits.len() as u64);
            let jitter = tracker.seen.jitter_16.get() as f64 / 16.0;
            // Integers of a sixteenth of a nanosecond, rounded at each step.
            prop_assert!((jitter - exact).abs() <= 1.0, "{} for {}", jitter, exact);
        }
    }

    #[test]
    fn a_datagram_that_waited_for_65000_others_is_still_told_from_its_copy() {
        let mut tracker = tracker();
        let held = 70_000;
        for sequence in (0..held + 65_000).filter(|&sequence| sequence != held) {
            assert!(tracker.take(header(Phase::Window, sequence), MonoNanos(0)));
        }
        assert_eq!(tracker.seen.missing.get(), 1);
        assert!(tracker.take(header(Phase::Window, held), MonoNanos(0)), "it is new");
        assert!(!tracker.take(header(Phase::Window, held), MonoNanos(0)), "and now it is not");
        let seen = &tracker.seen;
        assert_eq!((seen.missing.get(), seen.reordered.get(), seen.extent.get()), (0, 1, 64_999));
        assert_eq!((seen.duplicates.get(), seen.late.get()), (1, 0));
        assert!(!tracker.take(header(Phase::Window, 10), MonoNanos(0)), "further behind nobody can tell");
        assert_eq!(tracker.seen.late.get(), 1);
    }

    #[test]
    fn a_jump_through_the_numbers_costs_no_more_than_a_step() {
        let mut tracker = tracker();
        let mut sequence = 0;
        let start = std::time::Instant::now();
        for _ in 0..1_000_000 {
            sequence = (sequence + (1 << 55) + 64) % super::super::header::SEQUENCES;
            tracker.take(header(Phase::Window, sequence), MonoNanos(0));
        }
        // Clearing a window of 8 KiB for each would take a hundred times as long; a debug build takes some 50 ms.
        assert!(start.elapsed() < std::time::Duration::from_secs(5), "{:?}", start.elapsed());
    }

    #[test]
    fn a_single_datagram_has_no_jitter_and_a_clock_that_is_set_does_not_overflow_it() {
        let mut tracker = tracker();
        let at = |sequence, sent| Header { sent: Some(MonoNanos(sent)), ..header(Phase::Window, sequence) };
        tracker.take(at(0, u64::MAX), MonoNanos(0));
        assert_eq!((tracker.seen.transits.get(), tracker.seen.jitter_16.get()), (1, 0));
        for sequence in 1..1_000 {
            tracker.take(at(sequence, if sequence % 2 == 0 { 0 } else { 1 << 63 }), MonoNanos(sequence));
        }
        let jitter = tracker.seen.jitter_16.get() / 16;
        assert!(jitter <= MOST_JITTER_NS, "{jitter}");
    }

    #[test]
    fn datagrams_without_a_number_are_counted_by_phase() {
        let mut tracker = tracker();
        for phase in [Phase::WarmUp, Phase::Window, Phase::Window, Phase::After] {
            assert!(tracker.take(Header { phase, sequence: None, sent: None }, MonoNanos(0)));
        }
        assert_eq!([0, 1, 2].map(|place: usize| tracker.seen.distinct[place].get()), [1, 2, 1]);
    }

    #[test]
    fn gaps_are_read_as_they_were_counted() {
        let gaps = Gaps::default();
        gaps.add(1_000, 3);
        gaps.add(u64::MAX, 1);
        let read = gaps.read().expect("counts");
        assert_eq!((read.count(), read.saturated(), read.min()), (4, 1, Some(1_000)));
    }
}
