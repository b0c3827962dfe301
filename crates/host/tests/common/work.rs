//! Work whose cost is known, for the tests of counters and profiles.

use std::hint::black_box;
use std::time::Duration;

use haul_host::thread;

/// CPU time of this thread: on a machine that others use too, that is what there are samples of.
pub(crate) fn used() -> Duration {
    thread::cpu_clock(thread::current_tid()).expect("a clock")
}

/// For so much CPU time. Without a call in the inner loop, so that also without optimisation all of it is here.
#[inline(never)]
pub(crate) fn a_hot_loop(time: Duration) -> u64 {
    let end = used() + time;
    let mut sum = 1_u64;
    while used() < end {
        let mut turn = 0_u64;
        while turn < 100_000 {
            sum ^= sum << 5 ^ turn;
            turn += 1;
        }
        black_box(sum);
    }
    sum
}
