//! The runner's promises, held against a rig without hosts and with a clock of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};

use haul_host::settings::{Consent, Setting};
use haul_host::signal::Signal;
use haul_stats::{Metric, Reading, Scope, Verdict};
use haul_workload::{RunSpec, WorkloadError};
use serde_json::json;

use super::*;
use crate::arm::Arm;
use crate::plan::{Axis, Rules};
use crate::rig::Taken;

/// What the rig is told to do in one run instead of succeeding.
#[derive(Clone)]
enum Mishap {
    Unreachable,
    Invalid,
    Lost,
    Interrupted,
    /// The user stops it and the run still gives what it had.
    StoppedInMidRun,
    /// Somebody changes a fact of the client during the run.
    Governor(&'static str),
    Panic,
}

/// A pair of hosts that exists in its own log only.
struct Mock {
    log: Vec<String>,
    clock: Duration,
    /// The features that are on now, and those before anything was applied.
    features: BTreeMap<String, bool>,
    governor: String,
    /// Throughput in Gbit/s while a feature is on.
    rate: fn(&BTreeMap<String, bool>, &RunSpec, usize) -> f64,
    mishaps: BTreeMap<usize, Mishap>,
    /// Before which runs somebody changes the governor, and to what.
    between: BTreeMap<usize, &'static str>,
    refuses: Option<&'static str>,
    flips_back: bool,
    side_effect: Option<&'static str>,
    restore_fails: bool,
    runs: usize,
    /// Whether its runs tell of interrupts, too: twice as many where TSO is off.
    beside: bool,
    carrier: u32,
    stop: Stop,
    intervals: usize,
}

impl Mock {
    fn new() -> Self {
        Self {
            log: Vec::new(),
            clock: Duration::ZERO,
            features: BTreeMap::from([("tso".to_owned(), true), ("gro".to_owned(), true)]),
            governor: "performance".to_owned(),
            // A little noise that depends on nothing but the run's number, so that tests repeat exactly.
            rate: |features, _, run| {
                let noise = 1.0 + 0.001 * ((run * 7 % 5) as f64 - 2.0);
                noise * if features["tso"] { 50.0 } else { 40.0 }
            },
            mishaps: BTreeMap::new(),
            between: BTreeMap::new(),
            refuses: None,
            flips_back: false,
            side_effect: None,
            restore_fails: false,
            runs: 0,
            beside: false,
            carrier: 1,
            stop: Stop::never().unwrap(),
            intervals: 0,
        }
    }

    fn restored(&self) -> bool {
        self.log.last().is_some_and(|entry| entry == "restore") && self.features.values().all(|on| *on)
    }

    fn applied(&self) -> Vec<&str> {
        self.log.iter().filter_map(|entry| entry.strip_prefix("apply ")).collect()
    }
}

impl Rig for Mock {
    fn now(&self) -> MonoNanos {
        MonoNanos::default().after(self.clock)
    }

    fn apply(&mut self, settings: &[Setting], _: Consent) -> Result<Applied, LabError> {
        let texts: Vec<String> = settings.iter().map(ToString::to_string).collect();
        self.log.push(format!("apply {}", texts.join(",")));
        // As a Tuner does: what is not listed goes back.
        self.features.values_mut().for_each(|on| *on = true);
        for setting in settings {
            let text = setting.to_string();
            let (feature, state) = text.trim_start_matches("nic.").split_once('=').expect("a setting");
            if self.refuses == Some(feature) {
                return Err(LabError::Setup {
                    what: setting.to_string(),
                    why: "the device did not take it".to_owned(),
                });
            }
            self.features.insert(feature.to_owned(), state == "on");
        }
        // A device that takes its link down to change a feature.
        self.carrier += 2;
        if let Some(change) = self.between.remove(&self.runs) {
            self.governor = change.to_owned();
        }
        let side_effects = self.side_effect.filter(|_| !settings.is_empty()).map(str::to_owned);
        Ok(Applied { side_effects: side_effects.into_iter().collect(), ..Applied::default() })
    }

    fn verify(&mut self) -> Result<(), LabError> {
        self.log.push("verify".to_owned());
        if self.flips_back {
            return Err(LabError::Setup { what: "tso".to_owned(), why: "it is on again".to_owned() });
        }
        Ok(())
    }

    fn fingerprint(&mut self) -> Result<Environment, LabError> {
        self.log.push("fingerprint".to_owned());
        self.clock += Duration::from_millis(10);
        let fact = |value: String| Fact { value: Some(value), reason: None };
        let mut client: Facts = self
            .features
            .iter()
            .map(|(name, on)| (format!("nic.feature.{name}"), fact(on.to_string())))
            .collect();
        client.insert("cpu.governor".to_owned(), fact(self.governor.clone()));
        client.insert("nic.carrier_changes".to_owned(), fact(self.carrier.to_string()));
        Ok(Environment {
            client: Some(client),
            server: Some(Facts::from([("kernel".to_owned(), fact("6".into()))])),
        })
    }

    fn run(
        &mut self,
        spec: &RunSpec,
        _: &Stop,
        on_interval: &mut (dyn FnMut(&Interval) + Send),
    ) -> Result<Taken, LabError> {
        let run = self.runs;
        self.runs += 1;
        self.log.push(format!("run {}", spec.message));
        self.clock += spec.lifetime();
        for index in 0..self.intervals {
            on_interval(&Interval {
                direction: Some("send".to_owned()),
                start_s: index as f64,
                seconds: 1.0,
                bytes: Some(1),
                bits_per_second: Some(8.0),
                transactions: None,
                transactions_per_second: None,
                retransmits: None,
                packets: None,
                lost: None,
            });
        }
        let rate = (self.rate)(&self.features, spec, run) * 1e9;
        let mut taken = Taken {
            ending: Ending::Complete,
            readings: vec![
                Reading::real(Metric::Throughput, Scope::Receiver, rate, "mock"),
                Reading::real(Metric::ServiceDemand, Scope::Sender, 1e10 / rate, "mock"),
            ],
            doubts: Vec::new(),
            effective: json!({ "message_bytes": spec.message }),
            activity: json!(null),
            intervals: Vec::new(),
            counts: Vec::new(),
            profiles: Vec::new(),
        };
        if self.beside {
            let times = if self.features["tso"] { 1.0 } else { 2.0 };
            let real = |metric, value| Reading::real(metric, Scope::SharedHost, value, "mock");
            let noise = (run % 3) as f64;
            taken.readings.extend([
                real(Metric::InterruptsPerGb, times * 1000.0 + noise),
                real(Metric::PacketsPerInterrupt, 40.0 / times + noise),
                Reading::count(Metric::SoftnetSqueezed, Scope::SharedHost, run as u64 % 2, "mock"),
                Reading::absent(Metric::InterruptsNicPerGb, Scope::SharedHost, "mock", "it has no line"),
            ]);
        }
        match self.mishaps.get(&run).cloned() {
            None => {}
            Some(Mishap::Unreachable) => return Err(unreachable()),
            Some(Mishap::Interrupted) => return Err(interrupted()),
            Some(Mishap::Invalid) => taken.ending = Ending::Invalid("not one byte arrived".to_owned()),
            Some(Mishap::Lost) => taken.ending = Ending::Lost("lost the server".to_owned()),
            Some(Mishap::StoppedInMidRun) => {
                self.stop.request(Signal::Int);
                taken.ending = Ending::Interrupted;
            }
            Some(Mishap::Governor(to)) => self.governor = to.to_owned(),
            Some(Mishap::Panic) => panic!("a fault of haul's own"),
        }
        Ok(taken)
    }

    fn restore(&mut self) -> Result<(), LabError> {
        self.log.push("restore".to_owned());
        if self.restore_fails {
            return Err(LabError::Restore("client: haul-c tso".to_owned()));
        }
        self.features.values_mut().for_each(|on| *on = true);
        Ok(())
    }
}

fn unreachable() -> LabError {
    let source = std::io::ErrorKind::ConnectionRefused.into();
    WorkloadError::Unreachable { target: ([192, 0, 2, 1], 4285).into(), source }.into()
}

fn interrupted() -> LabError {
    WorkloadError::Interrupted("connecting").into()
}

fn plan_of(arms: &[&str], repeats: u32, null: bool) -> Plan {
    let arms: Vec<Arm> = arms.iter().map(|arm| arm.parse().unwrap()).collect();
    let rules = Rules { repeats, null, seed: 11, ..Rules::default() };
    Plan::compare(&RunSpec::default(), &[], arms, rules).unwrap()
}

fn on_off(pairs: u32) -> Plan {
    plan_of(&["on:nic.tso=on", "off:nic.tso=off"], pairs, false)
}

/// The arms of a plan of one pair, as the seed has ordered them.
fn order_of_one_pair(plan: &Plan) -> [&str; 2] {
    [0, 1].map(|position| plan.arms()[plan.order()[0][position].arm.unwrap()].name.as_str())
}

fn single(runs: u32) -> Plan {
    let rules = Rules { repeats: runs, seed: 11, ..Rules::default() };
    Plan::repeat(&RunSpec::default(), &[], rules).unwrap()
}

fn measure(plan: &Plan, mock: &mut Mock) -> Measured {
    let stop = mock.stop.clone();
    run(plan, mock, &stop, &mut |_: &Event<'_>| {})
}

fn statuses(measured: &Measured) -> Vec<Status> {
    measured.runs.iter().map(|run| run.status).collect()
}

fn throughput(measured: &Measured, arm: &str) -> Comparison {
    let found = measured
        .comparisons
        .iter()
        .find(|comparison| comparison.metric == Metric::Throughput && comparison.arm.arm == arm);
    found
        .unwrap_or_else(|| panic!("no comparison of throughput with {arm}: {:?}", measured.comparisons))
        .clone()
}

#[test]
fn each_run_is_applied_described_measured_described_and_verified_and_all_is_put_back() {
    let mut mock = Mock::new();
    let plan = on_off(1);
    let measured = measure(&plan, &mut mock);
    assert_eq!(measured.status, Status::Complete, "{:?}", measured.failure);
    let [first, second] = order_of_one_pair(&plan);
    let expected = format!(
        "apply nic.tso=on; fingerprint; apply nic.tso=off; fingerprint; \
         apply nic.tso={first}; fingerprint; run 128K; fingerprint; verify; \
         apply nic.tso={second}; fingerprint; run 128K; fingerprint; verify; \
         restore"
    );
    assert_eq!(mock.log.join("; "), expected);
}

#[test]
fn a_measurement_that_compares_nothing_sets_nothing() {
    let mut mock = Mock::new();
    let measured = measure(&single(2), &mut mock);
    assert_eq!(measured.status, Status::Complete);
    assert_eq!(
        mock.log,
        [
            "fingerprint",
            "fingerprint",
            "run 128K",
            "fingerprint",
            "fingerprint",
            "run 128K",
            "fingerprint",
            "restore"
        ]
    );
    assert!(measured.comparisons.is_empty());
    assert_eq!(measured.options.effective, json!({ "message_bytes": 131_072 }));
}

#[test]
fn ends_of_different_mtus_are_doubted_and_those_that_tell_none_are_not() {
    let host = |name: &str, mtu: Option<&str>| -> Option<Facts> {
        let fact = |value: Option<&str>| Fact { value: value.map(str::to_owned), reason: None };
        Some(Facts::from([("nic.name".to_owned(), fact(Some(name))), ("nic.mtu".to_owned(), fact(mtu))]))
    };
    let doubt = |client, server| unequal_mtus(&Environment { client, server }).map(|doubt| doubt.text);
    let found = doubt(host("eth0", Some("9000")), host("ens3", Some("1500")));
    assert_eq!(found.as_deref(), Some("the MTU is 9000 at the client (eth0), 1500 at the server (ens3)"));
    assert_eq!(doubt(host("eth0", Some("1500")), host("ens3", Some("1500"))), None);
    assert_eq!(doubt(host("eth0", Some("1500")), host("ens3", None)), None);
    assert_eq!(doubt(host("eth0", Some("1500")), None), None);
}

#[test]
fn a_clear_change_is_found_and_the_null_arm_shows_none() {
    let mut mock = Mock::new();
    let measured = measure(&plan_of(&["on:nic.tso=on", "off:nic.tso=off"], 10, true), &mut mock);
    let off = throughput(&measured, "off");
    assert_eq!((off.verdict, off.verdict_corrected), (Some(Verdict::Worse), Some(Verdict::Worse)));
    assert!((off.change_pct.unwrap() + 20.0).abs() < 0.5, "{:?}", off.change_pct);
    assert_eq!(throughput(&measured, "null").verdict, Some(Verdict::Equivalent));
    assert_eq!(measured.runs.len(), 30);
    assert!(measured.runs.iter().enumerate().all(|(index, run)| run.index as usize == index));
}

/// C1: what changes with time is charged to nobody.
#[test]
fn a_hog_that_starts_half_way_is_charged_to_neither_arm() {
    for seed in 0..20 {
        let mut mock = Mock::new();
        mock.rate =
            |_, _, run| (if run < 20 { 50.0 } else { 30.0 }) * (1.0 + 0.001 * ((run * 7 % 5) as f64 - 2.0));
        let arms = ["a:nic.tso=on", "b:nic.tso=off"].map(|arm| arm.parse().unwrap()).to_vec();
        let rules = Rules { repeats: 20, seed, ..Rules::default() };
        let plan = Plan::compare(&RunSpec::default(), &[], arms, rules).unwrap();
        let verdict = throughput(&measure(&plan, &mut mock), "b").verdict;
        assert!(
            matches!(verdict, Some(Verdict::Equivalent | Verdict::Undecided)),
            "seed {seed}: {verdict:?}"
        );
    }
}

/// C4: fewer pairs than can decide give no verdict, and the number that could.
#[test]
fn too_few_pairs_never_decide_and_are_never_quietly_increased() {
    for pairs in [1, 2, 3, 4, 5] {
        let mut mock = Mock::new();
        let measured = measure(&on_off(pairs), &mut mock);
        assert_eq!(measured.runs.len(), 2 * pairs as usize);
        let off = throughput(&measured, "off");
        assert_eq!(off.verdict, Some(Verdict::Undecided), "{pairs} pairs");
        assert!(off.reason.as_deref().is_some_and(|reason| reason.contains('6')), "{:?}", off.reason);
    }
}

/// C13: a failed run is kept with its reason, counted, and out of the statistics.
#[test]
fn failed_runs_are_kept_counted_and_out_of_the_statistics() {
    let mut mock = Mock::new();
    mock.mishaps = BTreeMap::from([(4, Mishap::Unreachable), (13, Mishap::Invalid)]);
    let measured = measure(&on_off(30), &mut mock);
    assert_eq!(measured.status, Status::Complete);
    assert_eq!(measured.runs.len(), 60, "no run may be repeated for having failed");
    let failed: Vec<_> = measured.runs.iter().filter(|run| run.status == Status::Failed).collect();
    assert_eq!(failed.iter().map(|run| run.failure.as_ref().unwrap().exit).collect::<Vec<_>>(), [4, 1]);
    assert!(failed[1].failure.as_ref().unwrap().text.contains("not one byte"));
    let off = throughput(&measured, "off");
    assert_eq!((off.base.n, off.base.failed + off.arm.failed), (28, 2));
    let doubt = measured.warnings.iter().find(|doubt| doubt.id == DoubtId::FailedRuns).unwrap();
    assert!(doubt.text.starts_with("2 of 60 runs failed"), "{}", doubt.text);
}

/// C13: with more than a tenth of the runs gone, what is left is not a sample of what was asked for.
#[test]
fn a_verdict_is_withheld_when_too_many_runs_failed() {
    let mut mock = Mock::new();
    mock.mishaps = [3, 8, 14].into_iter().map(|run| (run, Mishap::Unreachable)).collect();
    let off = throughput(&measure(&on_off(10), &mut mock), "off");
    assert_eq!(off.verdict, Some(Verdict::Undecided));
    assert!(off.reason.is_some_and(|reason| reason.contains("failed")));
}

/// C11: a change nobody asked for during a run voids it, and with it the pair.
#[test]
fn a_change_of_the_host_during_a_run_voids_the_pair() {
    let mut mock = Mock::new();
    mock.mishaps = BTreeMap::from([(5, Mishap::Governor("powersave"))]);
    let measured = measure(&on_off(10), &mut mock);
    assert_eq!(measured.status, Status::Complete);
    let void: Vec<_> = measured.runs.iter().filter(|run| run.status == Status::Void).collect();
    assert_eq!(void.len(), 1);
    let text = &void[0].failure.as_ref().unwrap().text;
    assert!(text.contains("client cpu.governor: performance → powersave"), "{text}");
    assert!(!void[0].readings.is_empty(), "its numbers are kept");
    assert_eq!(throughput(&measured, "off").base.n, 9);
    assert!(measured.warnings.iter().any(|doubt| doubt.text.starts_with("1 of 20 runs are void")));
}

/// C11: the two runs of a pair must have been made on hosts in the same state.
#[test]
fn a_change_between_the_two_runs_of_a_pair_voids_it_and_one_between_pairs_does_not() {
    for (before_run, expected_void) in [(5, 1), (6, 0)] {
        let mut mock = Mock::new();
        mock.between = BTreeMap::from([(before_run, "powersave")]);
        let measured = measure(&on_off(10), &mut mock);
        let void: Vec<_> = measured.runs.iter().filter(|run| run.status == Status::Void).collect();
        assert_eq!(void.len(), expected_void, "changed before run {before_run}");
        if let Some(run) = void.first() {
            assert_eq!((run.block, run.arm.as_deref()), (Some(2), Some("off")));
            assert!(run.failure.as_ref().unwrap().text.contains("cpu.governor"), "{:?}", run.failure);
        }
        assert_eq!(throughput(&measured, "off").base.n, 10 - expected_void);
        let told =
            measured.warnings.iter().filter(|doubt| doubt.text.contains("each pair was run in one state"));
        assert_eq!(told.count(), 1, "{:?}", measured.warnings);
    }
}

/// H6: a device that takes its link down for every change must not void everything.
#[test]
fn a_link_that_bounces_when_it_is_set_voids_nothing() {
    let mut mock = Mock::new();
    let measured = measure(&on_off(6), &mut mock);
    assert!(mock.carrier > 20 && statuses(&measured).iter().all(|status| *status == Status::Complete));
}

/// H6: somebody flips the setting back behind haul's back.
#[test]
fn a_setting_that_is_no_longer_in_force_after_the_run_voids_it() {
    let mut mock = Mock::new();
    mock.flips_back = true;
    let measured = measure(&on_off(2), &mut mock);
    assert!(statuses(&measured).iter().all(|status| *status == Status::Void), "{:?}", statuses(&measured));
    assert_eq!(measured.status, Status::Failed, "no valid run is no success");
    assert_eq!(measured.failure.as_ref().map(|failure| failure.exit), Some(1));
    assert!(mock.restored());
}

/// H2: an arm that cannot be put in force stops everything before the first run.
#[test]
fn a_setting_that_does_not_take_stops_before_the_first_run_and_names_the_arm() {
    let mut mock = Mock::new();
    mock.refuses = Some("gro");
    let measured = measure(&plan_of(&["on:nic.tso=on", "off:nic.gro=off"], 10, false), &mut mock);
    assert_eq!((measured.status, measured.runs.len()), (Status::Failed, 0));
    let failure = measured.failure.unwrap();
    assert!(
        failure.text.starts_with("arm 'off'") && failure.text.contains("did not take"),
        "{}",
        failure.text
    );
    assert_eq!(mock.runs, 0);
    assert!(mock.restored(), "{:?}", mock.log);
}

#[test]
fn side_effects_that_were_accepted_are_told() {
    let mut mock = Mock::new();
    mock.side_effect = Some("client nic.tx-tcp-segmentation: on → off");
    let measured = measure(&on_off(1), &mut mock);
    let told: Vec<_> = measured.warnings.iter().filter(|doubt| doubt.id == DoubtId::SideEffects).collect();
    assert_eq!(told.len(), 2, "once for each arm, not for each run");
    assert!(told[0].text.contains("tx-tcp-segmentation"));
}

#[test]
fn arms_that_leave_the_hosts_alike_are_refused_before_the_first_run() {
    let mut mock = Mock::new();
    // tso is on already: neither arm changes anything.
    let measured = measure(&plan_of(&["plain:", "on:nic.tso=on"], 10, false), &mut mock);
    let failure = measured.failure.unwrap();
    assert_eq!((measured.status, failure.exit, mock.runs), (Status::Failed, 2, 0));
    assert!(failure.text.contains("'plain' and 'on' change nothing"), "{}", failure.text);
    assert!(mock.restored());

    let mut mock = Mock::new();
    let measured = measure(&plan_of(&["plain:", "small:opt.message=1K"], 1, false), &mut mock);
    assert_eq!(measured.status, Status::Complete, "arms may differ in the workload alone");
}

#[test]
fn the_null_arm_is_not_taken_for_an_arm_that_changes_nothing() {
    let mut mock = Mock::new();
    let measured = measure(&plan_of(&["on:nic.tso=on"], 6, true), &mut mock);
    assert_eq!(measured.status, Status::Complete, "{:?}", measured.failure);
    assert_eq!(throughput(&measured, "null").base.n, 6);
    assert_eq!(mock.applied().len(), 1 + 12, "the null arm needs no check of its own");
}

/// A11, H5: whatever ends an experiment, the hosts are put back and what there is is kept.
#[test]
fn an_interrupt_keeps_what_there_is_and_puts_everything_back() {
    for mishap in [Mishap::StoppedInMidRun, Mishap::Interrupted] {
        let mut mock = Mock::new();
        mock.mishaps = BTreeMap::from([(13, mishap)]);
        let measured = measure(&on_off(10), &mut mock);
        assert_eq!((measured.status, measured.failure.as_ref()), (Status::Interrupted, None));
        assert_eq!((measured.runs.len(), statuses(&measured)[13]), (14, Status::Interrupted));
        assert_eq!(throughput(&measured, "off").base.n, 6, "a half pair does not count");
        assert!(measured.warnings.iter().any(|doubt| doubt.text.contains("13 complete runs of 20")));
        assert!(mock.restored(), "{:?}", mock.log.last());
    }
}

#[test]
fn a_stop_between_runs_is_heeded_before_the_next_one() {
    let mut mock = Mock::new();
    let stop = mock.stop.clone();
    let mut ended = 0;
    let measured = run(&on_off(10), &mut mock, &stop.clone(), &mut |event: &Event<'_>| {
        if matches!(event, Event::Ended(_)) {
            ended += 1;
            if ended == 5 {
                stop.request(Signal::Term);
            }
        }
    });
    assert_eq!((measured.status, measured.runs.len(), mock.runs), (Status::Interrupted, 5, 5));
    assert!(mock.restored());
}

#[test]
fn a_stop_before_the_first_run_touches_nothing() {
    let mut mock = Mock::new();
    mock.stop.request(Signal::Int);
    let measured = measure(&on_off(10), &mut mock);
    assert_eq!((measured.status, mock.log.as_slice()), (Status::Interrupted, &["restore".to_owned()][..]));
}

#[test]
fn a_panic_still_puts_everything_back() {
    let mut mock = Mock::new();
    mock.mishaps = BTreeMap::from([(1, Mishap::Panic)]);
    let outcome = catch_unwind(AssertUnwindSafe(|| measure(&on_off(3), &mut mock)));
    assert!(outcome.is_err());
    assert!(mock.restored(), "{:?}", mock.log);
}

#[test]
fn settings_that_could_not_be_put_back_end_in_failure_and_keep_the_numbers() {
    let mut mock = Mock::new();
    mock.restore_fails = true;
    let measured = measure(&on_off(6), &mut mock);
    assert_eq!((measured.status, measured.runs.len()), (Status::Failed, 12));
    let failure = measured.failure.clone().unwrap();
    assert!(failure.text.contains("haul settings restore"), "{}", failure.text);
    assert_eq!(throughput(&measured, "off").verdict, Some(Verdict::Worse));
}

#[test]
fn it_gives_up_after_three_lost_peers_or_failures_of_one_arm_in_a_row() {
    let every = |mishap: Mishap| (0..100).map(|run| (run, mishap.clone())).collect::<BTreeMap<_, _>>();
    for (mishap, made, exit) in [(Mishap::Unreachable, 3, 4), (Mishap::Lost, 3, 4), (Mishap::Invalid, 5, 1)] {
        let mut mock = Mock::new();
        mock.mishaps = every(mishap);
        let measured = measure(&on_off(10), &mut mock);
        assert_eq!((measured.status, measured.runs.len()), (Status::Failed, made), "{:?}", measured.failure);
        assert_eq!(measured.failure.as_ref().unwrap().exit, exit);
        assert!(mock.restored());
    }
    // Two of ten lost, never three in a row: it goes on to the end.
    let mut mock = Mock::new();
    mock.mishaps = BTreeMap::from([(2, Mishap::Lost), (3, Mishap::Lost)]);
    assert_eq!(measure(&on_off(10), &mut mock).runs.len(), 20);
}

#[test]
fn a_peer_lost_in_mid_run_leaves_this_ends_numbers() {
    let mut mock = Mock::new();
    mock.mishaps = BTreeMap::from([(0, Mishap::Lost)]);
    let measured = measure(&single(1), &mut mock);
    assert_eq!(measured.failure, Some(Failure { exit: 4, text: "lost the server".to_owned() }));
    assert!(!measured.runs[0].readings.is_empty());
}

/// A6: what gave no number is no success, for any one cell or arm.
#[test]
fn a_cell_without_one_valid_run_fails_the_whole() {
    let axes = [Axis::parse("message", "1K,2K").unwrap()];
    let rules = Rules { repeats: 1, seed: 1, ..Rules::default() };
    let plan = Plan::repeat(&RunSpec::default(), &axes, rules).unwrap();
    let mut mock = Mock::new();
    mock.mishaps = BTreeMap::from([(1, Mishap::Invalid)]);
    let measured = measure(&plan, &mut mock);
    assert_eq!(statuses(&measured), [Status::Complete, Status::Failed]);
    let failure = measured.failure.unwrap();
    assert_eq!((measured.status, failure.exit), (Status::Failed, 1));
    assert!(failure.text.contains("not one byte"));
}

#[test]
fn each_cell_is_compared_by_itself_and_the_family_is_one_metric() {
    let axes = [Axis::parse("message", "1K,2K,4K,8K,16K,32K,64K,128K").unwrap()];
    let arms = ["on:nic.tso=on", "off:nic.tso=off"].map(|arm| arm.parse().unwrap()).to_vec();
    let rules = Rules { repeats: 10, seed: 5, ..Rules::default() };
    let plan = Plan::compare(&RunSpec::default(), &axes, arms, rules).unwrap();
    let measured = measure(&plan, &mut Mock::new());
    assert_eq!(measured.runs.len(), 160);
    assert_eq!(measured.comparisons.len(), 8 * 2, "two metrics have readings");
    for comparison in &measured.comparisons {
        assert_eq!(comparison.base.n, 10);
        assert_eq!(comparison.verdict_corrected, Some(Verdict::Worse), "{comparison:?}");
    }
}

#[test]
fn what_explains_a_change_is_compared_too_and_asks_for_no_more_pairs() {
    let arms = ["on:nic.tso=on", "off:nic.tso=off"].map(|arm| arm.parse().unwrap()).to_vec();
    let rules = Rules { repeats: 10, seed: 5, ..Rules::default() };
    let plan = Plan::compare(&RunSpec::default(), &[], arms, rules).unwrap();
    let without = measure(&plan, &mut Mock::new());
    let mut mock = Mock::new();
    mock.beside = true;
    let with = measure(&plan, &mut mock);
    // The demand and the throughput are judged as they were: the rest is a family of its own, and behind them.
    assert_eq!(with.comparisons[..without.comparisons.len()], without.comparisons);
    let beside: Vec<_> = with.comparisons[without.comparisons.len()..].iter().collect();
    let found: Vec<_> = beside.iter().map(|it| (it.metric, it.scope, it.verdict_corrected)).collect();
    let expected = [
        (Metric::InterruptsPerGb, Scope::SharedHost, Some(Verdict::Worse)),
        // More packets an interrupt are neither better nor worse.
        (Metric::PacketsPerInterrupt, Scope::SharedHost, None),
        (Metric::SoftnetSqueezed, Scope::SharedHost, Some(Verdict::Undecided)),
    ];
    assert_eq!(found, expected, "a reading that no run has is not compared");
    assert!(beside.iter().all(|it| it.doubts.is_empty() && it.arm.failed == 0), "{beside:?}");
}

#[test]
fn two_modes_of_repeated_runs_are_told() {
    let mut mock = Mock::new();
    mock.rate = |_, _, run| if run % 3 == 0 { 10.0 + 0.01 * run as f64 } else { 50.0 + 0.01 * run as f64 };
    let measured = measure(&single(20), &mut mock);
    let doubt = measured.warnings.iter().find(|doubt| doubt.id == DoubtId::TwoModes);
    assert!(doubt.is_some_and(|doubt| doubt.text.contains("7 runs around 10.")), "{:?}", measured.warnings);
}

#[test]
fn whoever_watches_sees_every_step_and_the_time_left() {
    let mut mock = Mock::new();
    mock.intervals = 2;
    let stop = mock.stop.clone();
    let mut log = Vec::new();
    let plan = on_off(1);
    run(&plan, &mut mock, &stop, &mut |event: &Event<'_>| {
        log.push(match event {
            Event::Said { arm, text } => format!("said {arm} {text}"),
            Event::Checking { arm } => format!("check {}", arm.unwrap_or("-")),
            Event::Begins { number, of, arm, left, .. } => {
                format!("run {number} of {of}, {}, {:.1} s left", arm.unwrap_or("-"), left.as_secs_f64())
            }
            Event::Interval(interval) => format!("interval {}", interval.start_s),
            Event::Ended(run) => format!("ended {:?}", run.status),
            Event::Restoring => "restoring".to_owned(),
            Event::Preparing { .. } | Event::Calibrating { .. } => panic!("a plan has nothing to calibrate"),
        });
    });
    let [first, second] = order_of_one_pair(&plan);
    let expected = format!(
        "check on; check off; \
         run 1 of 2, {first}, 22.7 s left; interval 0; interval 1; ended Complete; \
         run 2 of 2, {second}, 11.0 s left; interval 0; interval 1; ended Complete; \
         restoring"
    );
    assert_eq!(log.join("; "), expected);
}
