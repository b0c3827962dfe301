//! A rate held by a bounded token bucket, kept as the time of the next send.
//!
//! ```text
//! send when now ≥ due, then   due = max(due, now − slack) + bytes ÷ rate
//! ```
//!
//! This is the bucket turned round (the virtual scheduling form of the generic cell rate algorithm, ITU-T I.371): how far
//! `due` lies in the past is what the bucket holds, and the slack is its size. A wake-up that came late is made up for, so
//! that the mean is the rate asked for; a stall longer than the slack is lost, so that it is not followed by a burst.
//! Pure: the time is passed in. Nothing of it knows of windows, which is why it is the same before and after one opens.

use std::time::Duration;

use haul_stats::{BitRate, MonoNanos};

/// The most time that is made up for: a scheduler's tick (4 ms at HZ=250) and a little.
const SLACK_NS: u64 = 5_000_000;

/// The pace of one flow.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    due: MonoNanos,
    /// What the division by the rate left over, so that no rate drifts.
    rest: u128,
    rate: u128,
    flows: u128,
}

impl Bucket {
    /// The bucket of one of `flows` that share `rate`.
    pub(crate) fn new(rate: BitRate, flows: u32) -> Self {
        Self {
            due: MonoNanos::default(),
            rest: 0,
            rate: u128::from(rate.0.max(1)),
            flows: u128::from(flows.max(1)),
        }
    }

    /// Empty at `now`: the first message goes at once, and nothing is owed.
    pub(crate) fn start(&mut self, now: MonoNanos) {
        (self.due, self.rest) = (now, 0);
    }

    /// When the next send may be made.
    pub(crate) fn due(&self) -> MonoNanos {
        self.due
    }

    /// Takes what was sent out of the bucket.
    pub(crate) fn spend(&mut self, now: MonoNanos, bytes: u64) {
        const NANOBITS: u128 = 8 * 1_000_000_000;
        let oldest = MonoNanos(now.0.saturating_sub(SLACK_NS));
        if self.due < oldest {
            (self.due, self.rest) = (oldest, 0);
        }
        let cost = u128::from(bytes) * NANOBITS * self.flows + self.rest;
        self.rest = cost % self.rate;
        let length = u64::try_from(cost / self.rate).unwrap_or(u64::MAX);
        self.due = self.due.after(Duration::from_nanos(length));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    /// Sends `message` bytes whenever they are due, woken `late(n)` after that, until `until`; gives when each was sent.
    fn drive(rate: u64, message: u64, until: u64, mut late: impl FnMut(u64) -> u64) -> Vec<u64> {
        let mut bucket = Bucket::new(BitRate(rate), 1);
        bucket.start(MonoNanos(0));
        let (mut now, mut sends) = (0, Vec::new());
        loop {
            now = now.max(bucket.due().0) + late(sends.len() as u64);
            if now >= until {
                return sends;
            }
            bucket.spend(MonoNanos(now), message);
            sends.push(now);
        }
    }

    #[test]
    fn the_mean_is_the_rate_asked_for_to_the_message_also_with_a_rate_that_divides_badly() {
        for (rate, message) in [(8_000_000, 1_000), (7_777_777, 1_000), (1_000_000_007, 1_448), (3, 1)] {
            let sends = drive(rate, message, 10_000 * MS, |_| 0).len() as u64;
            let exact = rate as f64 * 10.0 / 8.0 / message as f64;
            assert!((sends as f64 - exact).abs() <= 1.0, "{rate}: {sends} sends, {exact:.1} wanted");
        }
    }

    #[test]
    fn wake_ups_that_come_late_are_made_up_for() {
        let sends = drive(100_000_000, 12_500, 10_000 * MS, |n| if n % 3 == 0 { 2 * MS } else { 0 });
        assert!((9_990..=10_001).contains(&sends.len()), "{} of 10000", sends.len());
    }

    #[test]
    fn a_stall_is_not_followed_by_a_burst() {
        // A message each millisecond, and a stall of a second after the hundredth.
        let sends = drive(100_000_000, 12_500, 3_000 * MS, |n| if n == 100 { 1_000 * MS } else { 0 });
        let stalled = sends[100];
        let at_once = sends[100..].iter().filter(|&&at| at < stalled + MS / 2).count();
        assert!(at_once <= 6, "{at_once} messages in one go");
        let lost = 3_000 - sends.len();
        assert!((990..=1_000).contains(&lost), "what the stall took is lost, not caught up: {lost}");
    }

    #[test]
    fn flows_share_the_rate() {
        let mut bucket = Bucket::new(BitRate(80_000_000), 4);
        bucket.start(MonoNanos(MS));
        assert_eq!(bucket.due(), MonoNanos(MS));
        bucket.spend(MonoNanos(MS), 2_500);
        assert_eq!(bucket.due(), MonoNanos(2 * MS), "2,500 bytes a millisecond are a quarter of 80 Mbit/s");
    }

    proptest! {
        /// Between any two instants no more goes than the rate allows for the time between, the slack, and one message.
        #[test]
        fn no_span_of_time_holds_more_than_the_bucket(
            rate in 1_000_000..100_000_000_000_u64,
            message in 1..200_000_u64,
            stalls in proptest::collection::vec(prop_oneof![8 => Just(0), 3 => 0..3 * MS, 1 => 0..500 * MS], 1..200),
        ) {
            let mut sends = Vec::new();
            let mut bucket = Bucket::new(BitRate(rate), 1);
            bucket.start(MonoNanos(0));
            let mut now = 0;
            for stall in stalls {
                now = bucket.due().0.max(now) + stall;
                bucket.spend(MonoNanos(now), message);
                sends.push(now);
            }
            for (first, &from) in sends.iter().enumerate() {
                for (more, &to) in sends[first..].iter().enumerate() {
                    let sent = (more as u64 + 1) as f64 * message as f64;
                    let time = (to - from) as f64 + SLACK_NS as f64;
                    let allowed = rate as f64 / 8e9 * (time + 2.0) + message as f64;
                    prop_assert!(sent <= allowed * (1.0 + 1e-9), "{sent} bytes in {} ns, {allowed} allowed", to - from);
                }
            }
        }
    }
}
