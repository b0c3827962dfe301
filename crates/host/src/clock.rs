//! The one clock of all measurements: `CLOCK_MONOTONIC`, read in nanoseconds.
//!
//! `std::time::Instant` is the same clock without its value; haul needs the value, because two processes on one kernel
//! (the ends of a lab) compare instants.

use haul_stats::MonoNanos;

use crate::sys;

/// The present instant.
#[must_use]
#[inline]
pub fn now() -> MonoNanos {
    let time = sys::monotonic();
    MonoNanos(time.as_secs() * 1_000_000_000 + u64::from(time.subsec_nanos()))
}

/// Sleeps until `instant`, also across signals; returns at once where it has passed.
pub fn sleep_until(instant: MonoNanos) {
    sys::sleep_until(instant.since(MonoNanos::default()));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_clock_goes_on_and_a_sleep_ends_at_its_instant_not_before() {
        let start = now();
        let wake = start.after(Duration::from_millis(20));
        sleep_until(wake);
        let woken = now();
        assert!(woken >= wake, "woken {:?} early", wake.since(woken));
        sleep_until(start);
        assert!(now().since(woken) < Duration::from_secs(1), "an instant in the past must not wait");
    }
}
