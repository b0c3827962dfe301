//! What is looked at beside the runs: events counted, symbols sampled, and what is said where that may not be.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use haul_results::profile::{Count, Whose};
use haul_results::record::{Document, Run};
use haul_stats::{DoubtId, Metric, Scope};

use crate::process::{Ended, HAUL, Home, Running, count, doubts};

const NOBODY: u32 = 65_534;

fn haul(arguments: &[&str]) -> Ended {
    let home = Home::without_key();
    Running::start(home.haul(arguments)).end()
}

/// A short stream between the two hosts of a lab.
fn lab(arguments: &[&str]) -> Document {
    let usual = ["stream", "lab", "--cc", "reno", "-t", "700ms", "--warmup", "200ms", "--format", "json"];
    haul(&[&usual, arguments].concat()).complete()
}

fn counted<'a>(run: &'a Run, event: &str, scope: Scope, whose: Whose) -> &'a Count {
    let found = run.counts.iter().find(|it| it.event == event && it.scope == scope && it.whose == whose);
    found.unwrap_or_else(|| panic!("no {event} of {scope} in {:?}", run.counts))
}

#[test]
fn events_are_counted_of_the_host_once_and_of_the_threads_of_each_end() {
    let document = lab(&["--counters", "--pin", "0,1"]);
    let run = &document.runs[0];
    let host = counted(run, "task-clock", Scope::SharedHost, Whose::Host);
    // Two CPUs' clocks run whether they are idle or not.
    let window = 0.7e9 * 2.0;
    assert!(host.value.is_some_and(|ns| (ns as f64 / window - 1.0).abs() < 0.25), "{host:?}");
    for (end, thread) in [(Scope::Sender, "sender"), (Scope::Receiver, "receiver")] {
        let own = counted(run, "task-clock", end, Whose::Threads).value.unwrap() as f64 * 1e-9;
        let clock = crate::process::value(run, Metric::ThreadCpu, end);
        // The two are read one after the other, and whoever reads them can lose its CPU in between; a thread's clock also leaves
        // out what the hypervisor took. The exact comparison is with `perf stat`, in haul-host.
        assert!(
            (own - clock).abs() <= 0.25 * clock + 10e-3,
            "{thread}: {own} s counted, {clock} s on its clock"
        );
        assert_eq!(
            count(run, Metric::ContextSwitches, end),
            counted(run, "context-switches", end, Whose::Threads).value.unwrap()
        );
    }
    for absent in run.counts.iter().filter(|it| it.value.is_none()) {
        assert!(absent.reason.as_deref().is_some_and(|reason| !reason.is_empty()), "{absent:?}");
    }
}

#[test]
fn a_run_without_counters_has_none_and_an_event_that_is_none_is_a_usage_error() {
    assert!(lab(&[]).runs[0].counts.is_empty());
    for bad in ["no-such-event", "cycles,", "r", "sched:", ""] {
        let ended = haul(&["stream", "lab", "-t", "300ms", "--event", bad]);
        assert_eq!(ended.code, Some(2), "{bad}: {ended:?}");
        assert!(ended.out.is_empty() && ended.err.contains("event"), "{bad}: {ended:?}");
    }
}

#[test]
fn a_profile_names_the_kernels_copy_at_both_ends_and_its_runs_are_in_no_statistic() {
    let document = lab(&["--profile=1997", "--profile-runs", "6", "--runs", "2", "--pin", "0,1"]);
    assert_eq!(document.runs.len(), 8);
    assert!(document.runs.iter().enumerate().all(|(index, run)| run.profiled == (index >= 2)));
    assert!(document.runs[..2].iter().all(|run| run.profiles.is_empty()));
    let of = |scope: Scope, threads: bool| {
        let found = document.costs.iter().find(|costs| costs.scope == scope && costs.threads_only == threads);
        found.unwrap_or_else(|| panic!("no costs of {scope}"))
    };
    for end in [Scope::Sender, Scope::Receiver] {
        let costs = of(end, true);
        let copy = costs.classes.iter().find(|row| row.name == "copy").expect("a class copy");
        assert!(copy.share_pct > 2.0 && copy.cost.mean > 0.0, "{end}: {copy:?}");
        let symbols: Vec<_> =
            costs.symbols.iter().filter(|row| row.class.as_deref() == Some("copy")).collect();
        assert!(
            symbols.iter().any(|row| row.name.contains("cop") || row.name.contains("movs")),
            "{symbols:?}"
        );
        assert_eq!(costs.runs, 6);
        assert!(costs.total.cost.interval.is_some(), "six runs give an interval");
    }
    // What the samples come to is what the CPUs were busy: two ways of measuring the same.
    let sampled = of(Scope::SharedHost, false).total.cost.mean / 1e3;
    let runs = document.runs.iter().filter(|run| run.profiled);
    let demand: Vec<f64> =
        runs.map(|run| crate::process::value(run, Metric::ServiceDemand, Scope::SharedHost)).collect();
    let demand = demand.iter().sum::<f64>() / demand.len() as f64;
    assert!((sampled / demand - 1.0).abs() < 0.15, "{sampled} µs/KiB sampled, {demand} µs/KiB by idle time");
}

#[test]
fn an_arm_that_copies_less_has_a_cheaper_class_copy() {
    let ended = haul(&[
        "ab",
        "stream",
        "lab",
        "--cc",
        "reno",
        "-t",
        "300ms",
        "--warmup",
        "100ms",
        "--pin",
        "0,1",
        "--pairs",
        "1",
        "--profile",
        "--profile-runs",
        "8",
        "--arm",
        "read:opt.recv-with=read",
        "--arm",
        "discard:opt.recv-with=discard",
        "--format",
        "json",
    ]);
    let document = ended.complete();
    let receiver = document.cost_changes.iter().find(|it| it.scope == Scope::Receiver && it.threads_only);
    let receiver = receiver.expect("changes of the receiver's threads");
    assert_eq!((receiver.pairs, receiver.base.as_str(), receiver.arm.as_str()), (8, "read", "discard"));
    let copy = receiver.classes.iter().find(|row| row.name == "copy").expect("a class copy");
    assert!(copy.change.change < 0.0 && copy.change.interval.is_some_and(|[_, high]| high < 0.0), "{copy:?}");
}

#[test]
fn pictures_of_a_profile_are_files_and_one_that_cannot_be_is_found_out_first() {
    let home = Home::without_key();
    let (svg, folded) = (home.path().join("flame.svg"), home.path().join("folded"));
    let (svg, folded) = (svg.to_str().unwrap(), folded.to_str().unwrap());
    let usual = [
        "stream",
        "lab",
        "--cc",
        "reno",
        "-t",
        "400ms",
        "--warmup",
        "100ms",
        "--profile",
        "--profile-runs",
        "1",
    ];
    let ended = Running::start(
        home.haul(&[&usual[..], &["--flame-graph", svg, "--folded", folded, "--quiet"]].concat()),
    )
    .end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let (svg, folded) = (fs::read_to_string(svg).unwrap(), fs::read_to_string(folded).unwrap());
    assert!(svg.contains("</svg>") && svg.contains("tcp_"), "{} bytes", svg.len());
    let whole = |line: &str| line.rsplit_once(' ').is_some_and(|(_, count)| count.parse::<u64>().is_ok());
    assert!(folded.lines().count() > 3 && folded.lines().all(whole), "{folded}");
    for bad in ["/no/such/directory/x.svg", "/tmp"] {
        let ended = Running::start(home.haul(&[&usual[..], &["--flame-graph", bad]].concat())).end();
        assert!(ended.code == Some(2) && ended.err.contains("flame-graph"), "{bad}: {ended:?}");
    }
}

#[test]
fn a_picture_that_finds_no_room_is_not_left_half_written() {
    let home = Home::without_key();
    let svg = home.path().join("flame.svg");
    let mut command = Command::new("sh");
    // Files of this process end at a block, as on a full disk.
    command.args([
        "-c",
        "ulimit -f 2; exec \"$0\" \"$@\"",
        HAUL,
        "stream",
        "lab",
        "--cc",
        "reno",
        "-t",
        "400ms",
    ]);
    command.args(["--warmup", "100ms", "--profile", "--profile-runs", "1", "--quiet"]);
    command.arg("--flame-graph").arg(&svg);
    home.equip(&mut command);
    let ended = Running::start(command).end();
    assert!(ended.code != Some(0) && ended.err.contains("cannot write"), "{ended:?}");
    assert!(ended.err.contains("flame.svg") && !svg.exists(), "{ended:?}");
}

/// A command of an ordinary user: who runs the tests may do more.
fn ordinary(home: &Home, arguments: &[&str]) -> Ended {
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let program = home.path().join("haul");
    fs::copy(HAUL, &program).unwrap();
    let mut command = Command::new(&program);
    command.args(arguments).uid(NOBODY).gid(NOBODY);
    home.equip(&mut command);
    Running::start(command).end()
}

fn paranoid() -> i32 {
    fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap().trim().parse().unwrap()
}

#[test]
fn an_ordinary_user_is_told_what_forbids_a_profile_and_keeps_the_other_numbers() {
    let home = Home::without_key();
    // A message of a byte, so that user mode is seen often enough.
    let document = ordinary(
        &home,
        &[
            "stream",
            "lab",
            "--cc",
            "reno",
            "--message",
            "16",
            "-t",
            "600ms",
            "--warmup",
            "50ms",
            "--format",
            "json",
            "--profile",
            "--profile-runs",
            "1",
            "--counters",
        ],
    )
    .complete();
    assert!(crate::process::value(&document.runs[0], Metric::Throughput, Scope::Receiver) > 0.0);
    let level = paranoid();
    if level <= 0 {
        return;
    }
    let named = format!("kernel.perf_event_paranoid = {level} forbids ");
    let run = &document.runs[1];
    let doubted: Vec<_> = run.warnings.iter().filter(|doubt| doubt.id == DoubtId::NotProfiled).collect();
    assert!(!doubted.is_empty() && doubted.iter().all(|doubt| doubt.text.contains(&named)), "{doubted:?}");
    assert!(doubts(&document, DoubtId::NotProfiled).iter().all(|text| text.contains(&named)));
    if level > 2 {
        let reason = run.profiles[0].reason.as_deref().expect("no profile for an ordinary user");
        assert!(reason.contains(&named) && reason.contains("CAP_PERFMON"), "{reason}");
        return;
    }
    // What is left to it: the threads of each end, at this level without the kernel's part.
    let sender = run.profiles.iter().find(|profile| profile.scope == Scope::Sender).expect("of the sender");
    assert_eq!((sender.reason.as_deref(), sender.whose), (None, Whose::Threads), "{sender:?}");
    assert!(sender.host_reason.as_ref().is_some_and(|reason| reason.contains(&named)), "{sender:?}");
    if level == 2 {
        assert!(sender.kernel_amount.is_none() && sender.symbols.iter().all(|it| it.module != "[kernel]"));
        assert!(sender.kernel_reason.as_ref().is_some_and(|reason| reason.contains(&named)), "{sender:?}");
        let costs = document.costs.iter().find(|costs| costs.scope == Scope::Sender).expect("costs");
        assert!(costs.threads_only && costs.kernel_reason == sender.kernel_reason, "{costs:?}");
    }
}

#[test]
fn a_profile_in_user_mode_is_never_shown_without_saying_so() {
    if paranoid() != 2 {
        return;
    }
    let home = Home::without_key();
    let picture = home.path().join("user.svg");
    let ended = ordinary(
        &home,
        &[
            "stream",
            "lab",
            "--cc",
            "reno",
            "--message",
            "16",
            "-t",
            "600ms",
            "--warmup",
            "50ms",
            "--profile",
            "--profile-runs",
            "1",
            "--flame-graph",
            picture.to_str().unwrap(),
        ],
    );
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.contains("what the sender's threads did in user mode only"), "{}", ended.out);
    let flat = ended.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        flat.contains("what the kernel did is not in it: kernel.perf_event_paranoid = 2 forbids"),
        "{flat}"
    );
    let pictures = fs::read_dir(home.path()).unwrap().flatten().map(|entry| entry.path());
    let pictures: Vec<_> = pictures.filter(|path| path.extension().is_some_and(|it| it == "svg")).collect();
    assert!(!pictures.is_empty());
    for picture in pictures {
        let text = fs::read_to_string(&picture).unwrap();
        assert!(text.contains("its threads in user mode only"), "{}", picture.display());
    }
}
