//! The plan of `haul demo`: the whole idea in under a minute, on one machine, with nothing set up.
//!
//! It repeats the question of the `nocache-2014` experiment in the lab: does `tx-nocache-copy`, a NIC feature that makes
//! the kernel copy past the cache, make one stream cheaper or dearer? On one machine the receiver reads those bytes from
//! the same caches, so a clear answer is to be expected, and the null arm beside it shows what no change looks like. The
//! parameters are chosen for time: ten pairs decide at 95 % with room for a disagreeing one, and three arms of ten runs
//! of 1.2 s take less than three quarters of a minute.

use std::time::Duration;

use haul_host::thread::{self, CpuList};
use haul_stats::ByteCount;
use haul_workload::{Pin, RunSpec};

use crate::arm::Arm;
use crate::error::LabError;
use crate::plan::{Plan, Rules};

/// Where it runs.
pub const TARGET: &str = "lab";

/// Pairs of each arm with the base.
const PAIRS: u32 = 10;

/// The plan. The seed decides the order of the runs and is kept in the record.
///
/// Both ends are pinned, each to a CPU of its own, where this process may use two: free to move they fall into two modes
/// that differ by more than the feature does.
///
/// # Errors
/// None: the parts are constant and tried by a test.
pub fn plan(seed: u64) -> Result<Plan, LabError> {
    let spec = RunSpec {
        message: ByteCount(128 << 10),
        // bbr, the default of some hosts, paces a veth to a fifth of what it carries and would hide the copies.
        cc: Some("reno".to_owned()),
        warmup: Duration::from_millis(200),
        window: Duration::from_secs(1),
        pin: apart(),
        ..RunSpec::default()
    };
    let arms = vec!["off:nic.tx-nocache-copy=off".parse::<Arm>()?, "on:nic.tx-nocache-copy=on".parse()?];
    let rules = Rules { repeats: PAIRS, null: true, seed, ..Rules::default() };
    Plan::compare(&spec, &[], arms, rules)
}

/// One CPU for each end; none where there is only one, or where it cannot be told.
fn apart() -> Pin {
    let one = |cpu: &u32| cpu.to_string().parse().ok();
    match thread::affinity_of_current().as_ref().map(CpuList::cpus) {
        Ok([client, server, ..]) => Pin { client: one(client), server: one(server) },
        _ => Pin::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demonstration_is_under_a_minute_and_can_decide() {
        let plan = plan(1).unwrap();
        assert!(plan.expected() < Duration::from_secs(50), "{:?}", plan.expected());
        assert!(PAIRS as usize >= haul_stats::compare::min_pairs(haul_stats::Decide::default().confidence));
        assert_eq!(
            plan.arms().iter().map(|arm| arm.name.as_str()).collect::<Vec<_>>(),
            ["off", "on", "null"]
        );
    }
}
