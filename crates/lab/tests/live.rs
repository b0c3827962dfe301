//! The whole path from a plan to a document, on real sockets: in the lab and on loopback. The lab needs root; an ordinary
//! user's is in `unprivileged.rs`.

mod common;

use std::time::{Duration, Instant};

use haul_host::privilege;
use haul_host::signal::{Signal, Stop};
use haul_lab::live::LiveRig;
use haul_lab::rig::Rig as _;
use haul_lab::{Axis, Event, Measured, Plan, Rules, runner};
use haul_results::record::Status;
use haul_stats::{Comparison, DoubtId, Metric, Scope, Verdict};

use common::{measure, plan, rig, spec};

fn needs_root() {
    assert!(privilege::effective_root(), "this test makes network namespaces: run it as root");
}

fn of(measured: &Measured, metric: Metric, scope: Scope) -> &Comparison {
    let found = measured.comparisons.iter().find(|found| found.metric == metric && found.scope == scope);
    found.unwrap_or_else(|| panic!("{metric} at {scope} was not compared: {:?}", measured.failure))
}

/// The features of the client's device, with what is wanted of them.
fn features(rig: &mut LiveRig) -> Vec<(String, Option<String>)> {
    let facts = rig.fingerprint().unwrap().client.unwrap();
    facts
        .into_iter()
        .filter(|(key, _)| key.starts_with("nic.feature"))
        .map(|(key, fact)| (key, fact.value))
        .collect()
}

#[test]
fn the_lab_tells_segmentation_offload_off_from_on_and_leaves_the_device_as_it_was() {
    needs_root();
    let state = tempfile::tempdir().unwrap();
    let mut rig = rig("lab", state.path());
    let before = features(&mut rig);
    assert!(before.len() > 10, "a veth has dozens of features: {before:?}");
    let plan = plan(&["on:nic.tso=on", "off:nic.tso=off"], 6, true);
    let measured = measure(&plan, &mut rig, &Stop::never().unwrap());

    assert_eq!((measured.status, &measured.failure), (Status::Complete, &None));
    assert_eq!(measured.runs.len(), 12);
    assert!(measured.runs.iter().all(|run| run.status == Status::Complete), "{:?}", measured.warnings);
    let throughput = of(&measured, Metric::Throughput, Scope::Receiver);
    assert_eq!(throughput.base.n, 6);
    assert!(throughput.change_pct.unwrap() < -10.0, "{throughput:?}");
    // On a machine busy with other things the spread may shut the gate, but never turn the verdict round.
    assert!(matches!(throughput.verdict, Some(Verdict::Worse | Verdict::Undecided)), "{throughput:?}");
    // Every feature that moved, by name, in the arm that moved it.
    let settings = |arm: &str| measured.options.effective[arm]["settings"].clone();
    for feature in ["tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-tcp-ecn-segmentation"] {
        assert_eq!(settings("off")[format!("client nic.{feature}")], "on -> off", "{}", settings("off"));
    }
    assert!(settings("on").is_null(), "it was on: {}", settings("on"));
    let facts = measured.environment.client.as_ref().unwrap();
    assert_eq!(facts["nic.driver"].value.as_deref(), Some("veth"));

    assert_eq!(features(&mut rig), before, "every feature must be wanted as before");
    let left: Vec<_> = walk(state.path());
    assert!(left.is_empty(), "a journal was left behind: {left:?}");
}

fn walk(folder: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("json")).collect()
}

/// F4: one kernel, one figure for both ends, and the ends told apart by their threads.
#[test]
fn both_ends_on_one_kernel_are_never_counted_twice() {
    needs_root();
    let state = tempfile::tempdir().unwrap();
    let mut rig = rig("lab", state.path());
    let plan = Plan::repeat(&spec(), &[], Rules::default()).unwrap();
    let measured = measure(&plan, &mut rig, &Stop::never().unwrap());
    assert_eq!((measured.status, &measured.failure), (Status::Complete, &None));
    let readings = &measured.runs[0].readings;
    let busy: Vec<Scope> = readings
        .iter()
        .filter(|reading| reading.metric == Metric::CpuBusy)
        .map(|reading| reading.scope)
        .collect();
    assert_eq!(busy, [Scope::SharedHost]);
    for reading in readings.iter().filter(|reading| reading.metric == Metric::ServiceDemand) {
        let by_threads = reading.source.starts_with("threads");
        assert_eq!(by_threads, reading.scope != Scope::SharedHost, "{reading:?}");
    }
    assert!(measured.warnings.iter().any(|doubt| doubt.id == DoubtId::SharedHost));
    assert!(
        !measured.warnings.iter().any(|doubt| doubt.id == DoubtId::SoftwareLoopback),
        "a veth is a device"
    );
}

/// B10: what never left the kernel is labelled.
#[test]
fn loopback_is_labelled_and_needs_no_root() {
    let state = tempfile::tempdir().unwrap();
    let mut rig = rig("loopback", state.path());
    let axes = [Axis::parse("message", "16K,128K").unwrap()];
    let plan = Plan::repeat(&spec(), &axes, Rules { repeats: 2, ..Rules::default() }).unwrap();
    let measured = measure(&plan, &mut rig, &Stop::never().unwrap());
    assert_eq!((measured.status, &measured.failure), (Status::Complete, &None));
    assert_eq!(measured.runs.len(), 4);
    let doubt = measured.warnings.iter().find(|doubt| doubt.id == DoubtId::SoftwareLoopback);
    assert!(doubt.is_some_and(|doubt| doubt.text.contains("lo")), "{:?}", measured.warnings);

    let arms = ["a:server:nic.gro=off", "b:"];
    let measured = measure(&common::plan(&arms, 1, false), &mut rig, &Stop::never().unwrap());
    let failure = measured.failure.unwrap();
    assert!(failure.exit == 2 && failure.text.contains("share one device"), "{}", failure.text);
}

#[test]
fn a_setting_of_the_servers_device_is_applied_measured_and_put_back() {
    needs_root();
    let state = tempfile::tempdir().unwrap();
    let mut rig = rig("lab", state.path());
    let server = |rig: &mut LiveRig| {
        let facts = rig.fingerprint().unwrap().server.unwrap();
        facts["nic.feature.tx-nocache-copy"].value.clone()
    };
    let before = server(&mut rig);
    let plan = plan(&["off:server:nic.tx-nocache-copy=off", "on:server:nic.tx-nocache-copy=on"], 1, false);
    let mut seen = Vec::new();
    let measured = runner::run(&plan, &mut rig, &Stop::never().unwrap(), &mut |event: &Event<'_>| {
        if let Event::Ended(run) = event {
            seen.push((run.arm.clone(), run.status));
        }
    });
    assert_eq!((measured.status, &measured.failure), (Status::Complete, &None));
    assert_eq!(seen.len(), 2);
    assert_eq!(server(&mut rig), before);
}

/// H1, H2, H3: an arm that is not what it says stops before the first run.
#[test]
fn an_arm_that_cannot_be_put_in_force_as_written_stops_before_the_first_run() {
    needs_root();
    for (arms, needle) in [
        (["a:", "b:nic.tx=off"], "--allow-side-effects"),
        (["a:", "b:nic.sg=off,nic.tso=on"], "tx-scatter-gather"),
        (["a:", "b:nic.lro=on"], "not possible"),
        (["a:", "b:nic.tsoo=on"], "no feature of that name"),
        (["a:", "b:server:nic.lro=on"], "not possible"),
        (["a:", "b:nic.tso=on"], "change nothing against each other"),
    ] {
        let state = tempfile::tempdir().unwrap();
        let mut rig = rig("lab", state.path());
        let before = features(&mut rig);
        let measured = measure(&plan(&arms, 6, false), &mut rig, &Stop::never().unwrap());
        assert_eq!((measured.status, measured.runs.len()), (Status::Failed, 0), "{arms:?}");
        let text = measured.failure.unwrap().text;
        assert!(text.contains(needle), "{arms:?}: '{needle}' is missing from: {text}");
        assert_eq!(features(&mut rig), before, "{arms:?}");
    }
}

/// A11, H5: an interrupt in mid-run ends soon, with what there is, and with everything put back.
#[test]
fn an_interrupt_in_mid_run_ends_soon_and_puts_everything_back() {
    needs_root();
    let state = tempfile::tempdir().unwrap();
    let mut rig = rig("lab", state.path());
    let before = features(&mut rig);
    let mut long = spec();
    long.window = Duration::from_secs(30);
    long.interval = Some(Duration::from_millis(50));
    let arms =
        vec!["off:nic.tx-nocache-copy=off".parse().unwrap(), "on:nic.tx-nocache-copy=on".parse().unwrap()];
    let plan = Plan::compare(&long, &[], arms, Rules { repeats: 6, ..Rules::default() }).unwrap();
    let stop = Stop::never().unwrap();
    let (mut intervals, asked) = (0, stop.clone());
    let begun = Instant::now();
    let measured = runner::run(&plan, &mut rig, &stop, &mut |event: &Event<'_>| {
        if matches!(event, Event::Interval(_)) {
            intervals += 1;
            if intervals == 5 {
                asked.request(Signal::Int);
            }
        }
    });
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!((measured.status, &measured.failure), (Status::Interrupted, &None));
    assert_eq!((measured.runs.len(), measured.runs[0].status), (1, Status::Interrupted));
    let window = measured.runs[0].readings.iter().find(|reading| reading.metric == Metric::Window).unwrap();
    let seconds = window.value.unwrap().as_f64();
    assert!(seconds > 0.2 && seconds < 8.0, "the real elapsed time, not the planned: {seconds} s");
    assert_eq!(features(&mut rig), before);
}

#[test]
fn taking_a_lab_away_is_quick_and_another_can_be_made_at_once() {
    needs_root();
    let state = tempfile::tempdir().unwrap();
    for target in ["lab", "lab:mtu=9000", "lab:ipv6"] {
        let made = rig(target, state.path());
        let begun = Instant::now();
        drop(made);
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(1), "{target}: {took:?}");
    }
}

#[test]
fn a_server_that_is_not_there_ends_in_the_peers_exit_code() {
    let state = tempfile::tempdir().unwrap();
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let target = free.to_string().parse().unwrap();
    let topology = haul_lab::Topology::open(&target, &haul_wire::Trust::Open, state.path()).unwrap();
    let error = LiveRig::connect(topology, &Stop::never().unwrap()).err().expect("nobody listens");
    assert_eq!(error.exit(), 4);
    assert!(error.to_string().contains("haul serve"), "{error}");
}
