//! A comparison in the lab, short enough for a test.

use std::path::Path;
use std::time::Duration;

use haul_host::settings::Consent;
use haul_host::signal::Stop;
use haul_lab::live::LiveRig;
use haul_lab::{Arm, Event, Measured, Plan, Rules, Target, Topology, runner};
use haul_wire::Trust;
use haul_workload::RunSpec;

/// One stream of 128 KiB messages for a fifth of a second.
pub(crate) fn spec() -> RunSpec {
    RunSpec {
        cc: Some("reno".to_owned()),
        warmup: Duration::from_millis(50),
        window: Duration::from_millis(500),
        ..RunSpec::default()
    }
}

/// A comparison of these arms.
pub(crate) fn plan(arms: &[&str], pairs: u32, allow_side_effects: bool) -> Plan {
    let arms = arms.iter().map(|arm| arm.parse::<Arm>().unwrap()).collect();
    let consent = Consent { side_effects: allow_side_effects, global: false };
    let rules = Rules { repeats: pairs, seed: 3, consent, ..Rules::default() };
    Plan::compare(&spec(), &[], arms, rules).unwrap()
}

/// A connected rig on `target`, its journal in `state`.
pub(crate) fn rig(target: &str, state: &Path) -> LiveRig {
    let target: Target = target.parse().unwrap();
    let topology =
        Topology::open(&target, &Trust::Open, state).unwrap_or_else(|error| panic!("{target}: {error}"));
    LiveRig::connect(topology, &Stop::never().unwrap()).unwrap_or_else(|error| panic!("{target}: {error}"))
}

/// Runs a plan to its end.
pub(crate) fn measure(plan: &Plan, rig: &mut LiveRig, stop: &Stop) -> Measured {
    runner::run(plan, rig, stop, &mut |_: &Event<'_>| {})
}
