//! When the transactions of an open loop are due, whatever became of those before.
//!
//! ```text
//! transaction k of flow f, of F that share R a second:   origin + ⌊(k·F + f) · 10⁹ ÷ R⌋ ns
//! ```
//!
//! Taken together the flows are due evenly, never two at once, and no rate drifts: what a division leaves over is carried
//! on. Pure: the origin is passed in.

use std::time::Duration;

use haul_stats::{MonoNanos, PerSecond};

const NANOS: u64 = 1_000_000_000;

/// Beyond it a sum of remainders would not fit, and every transaction of any run is due within a nanosecond.
const MOST: u64 = 1 << 62;

/// The part of a schedule that one flow has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    rate: u64,
    flow: u32,
    flows: u32,
}

impl Share {
    /// Flow `flow` of `flows` that share `rate`.
    pub(crate) fn new(rate: PerSecond, flow: u32, flows: u32) -> Self {
        Self { rate: rate.0.clamp(1, MOST), flow, flows: flows.max(1) }
    }

    /// When its transaction `index` is due, counted from 0 and from the origin.
    pub(crate) fn offset(self, index: u64) -> Duration {
        let place = u128::from(index) * u128::from(self.flows) + u128::from(self.flow);
        let nanos = place * u128::from(NANOS) / u128::from(self.rate);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// How many of its transactions are due when so long has passed since the origin.
    pub(crate) fn due_after(self, elapsed: Duration) -> u64 {
        // ⌊place · 10⁹ ÷ R⌋ ≤ elapsed, which is place < (elapsed + 1) · R ÷ 10⁹.
        let places = ((elapsed.as_nanos() + 1) * u128::from(self.rate)).div_ceil(u128::from(NANOS));
        let own = places.saturating_sub(u128::from(self.flow)).div_ceil(u128::from(self.flows));
        u64::try_from(own).unwrap_or(u64::MAX)
    }
}

/// A walk through one flow's schedule.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    next: MonoNanos,
    /// What is left of the next time below a nanosecond, in parts of `rate`.
    rest: u64,
    every: u64,
    left: u64,
    rate: u64,
}

impl Schedule {
    /// From the flow's first transaction on.
    pub(crate) fn new(share: Share, origin: MonoNanos) -> Self {
        let Share { rate, flow, flows } = share;
        let (first, between) = (u64::from(flow) * NANOS, u64::from(flows) * NANOS);
        Self {
            next: origin.after(Duration::from_nanos(first / rate)),
            rest: first % rate,
            every: between / rate,
            left: between % rate,
            rate,
        }
    }

    /// When the next one is due.
    #[inline]
    pub(crate) fn next(&self) -> MonoNanos {
        self.next
    }

    /// Goes on to the one after that.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.rest += self.left;
        let carry = u64::from(self.rest >= self.rate);
        self.rest -= carry * self.rate;
        self.next.0 = self.next.0.saturating_add(self.every + carry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn times(rate: u64, flow: u32, flows: u32, count: usize) -> Vec<u64> {
        let mut schedule = Schedule::new(Share::new(PerSecond(rate), flow, flows), MonoNanos(0));
        let mut walk = || {
            let at = schedule.next().0;
            schedule.advance();
            at
        };
        (0..count).map(|_| walk()).collect()
    }

    #[test]
    fn the_flows_together_are_due_evenly_and_never_two_at_once() {
        for (rate, flows) in [(1_000, 1), (1_000, 7), (999_983, 200), (3, 2)] {
            let mut all: Vec<u64> = (0..flows).flat_map(|flow| times(rate, flow, flows, 50)).collect();
            all.sort_unstable();
            let gap = NANOS / rate;
            assert!(
                all.windows(2).all(|pair| (gap..=gap + 1).contains(&(pair[1] - pair[0]))),
                "{rate}/{flows}"
            );
        }
    }

    #[test]
    fn a_rate_that_divides_badly_does_not_drift() {
        let a_day = 86_400;
        let share = Share::new(PerSecond(7), 0, 1);
        assert_eq!(share.offset(7 * a_day), Duration::from_secs(a_day));
        let walked = times(7, 0, 1, 70_001);
        assert_eq!(walked.last(), Some(&(10_000 * NANOS)));
    }

    #[test]
    fn rates_beyond_any_machine_neither_overflow_nor_stand_still() {
        for rate in [u64::MAX, MOST, NANOS, 1] {
            let share = Share::new(PerSecond(rate), 9_999, 10_000);
            let mut schedule = Schedule::new(share, MonoNanos(u64::MAX - 5));
            for _ in 0..1_000 {
                schedule.advance();
            }
            assert!(share.due_after(Duration::from_hours(24)) > 0);
        }
    }

    proptest! {
        #[test]
        fn walking_jumping_and_counting_agree(
            rate in prop_oneof![1..100_u64, 1..5_000_000_u64, 900_000_000..2_000_000_000_u64],
            (flow, flows) in (1..50_u32).prop_flat_map(|flows| (0..flows, Just(flows))),
            elapsed in prop_oneof![0..100_u64, 0..5_000_000_000_u64],
        ) {
            let share = Share::new(PerSecond(rate), flow, flows);
            let walked = times(rate, flow, flows, 300);
            for (index, &at) in walked.iter().enumerate() {
                prop_assert_eq!(share.offset(index as u64), Duration::from_nanos(at));
            }
            let due = share.due_after(Duration::from_nanos(elapsed));
            let at = |index| share.offset(index).as_nanos();
            prop_assert!(due == 0 || at(due - 1) <= u128::from(elapsed));
            prop_assert!(at(due) > u128::from(elapsed));
        }
    }
}
