//! Text of what was counted and sampled.

use haul_results::profile::{ChangeRow, CostChanges, CostRow, Costs, Count, Profile, Whose};
use haul_results::record::{Document, Kind};
use haul_results::{json, text};
use haul_stats::compare::{Cost, CostChange, correct_costs};
use haul_stats::{Cell, Scope};

use crate::sample::{cell, document, four_verdicts, run, shared_host};
use crate::text::shown;

fn costs(scope: Scope, threads_only: bool, arm: Option<&str>, runs: usize) -> Costs {
    let row = |name: &str, place: Option<(&str, &str)>, each: f64| {
        let values: Vec<f64> = (0..runs).map(|i| each * (1.0 + i as f64 / 100.0)).collect();
        CostRow {
            name: name.to_owned(),
            module: place.map(|(module, _)| module.to_owned()),
            class: place.map(|(_, class)| class.to_owned()),
            share_pct: each / 108.0 * 100.0,
            cost: Cost::of(&values, 0.95).expect("runs"),
        }
    };
    let kernel = |name: &str, class: &'static str, each: f64| row(name, Some(("[kernel]", class)), each);
    let mut symbols = vec![
        kernel("rep_movs_alternative", "copy", 41.2),
        kernel("_copy_from_iter", "copy", 12.0),
        row("a_very_long_name_of_a_function_in_a_driver", Some(("mlx5_core", "driver")), 9.5),
        row("haul_workload::stream::send", Some(("haul", "user")), 4.25),
    ];
    symbols.extend((0..16).map(|i| kernel(&format!("tcp_function_{i}"), "tcp", 2.0 - f64::from(i) / 10.0)));
    symbols.push(row("others", None, 1.1));
    Costs {
        cell: Cell::new(),
        arm: arm.map(str::to_owned),
        scope,
        threads_only,
        unit: "ns/KiB".to_owned(),
        event: "cpu-clock".to_owned(),
        runs,
        samples: 112_340,
        idle_pct: 12.25,
        unresolved_pct: 2.5,
        lost: 3,
        host_reason: None,
        kernel_reason: None,
        confidence: 0.95,
        total: row("all", None, 108.0),
        classes: vec![row("copy", None, 53.2), row("tcp", None, 20.0), row("driver", None, 9.5)],
        symbols,
        stacks: Vec::new(),
    }
}

fn changes(pairs: usize) -> CostChanges {
    let row = |name: &str, place: Option<(&str, &str)>, base: f64, arm: f64| {
        let values: Vec<(f64, f64)> = (0..pairs).map(|i| (base, arm + i as f64 / 100.0)).collect();
        ChangeRow {
            name: name.to_owned(),
            module: place.map(|(module, _)| module.to_owned()),
            class: place.map(|(_, class)| class.to_owned()),
            change: CostChange::of(&values, 0.95).expect("pairs"),
        }
    };
    let mut changes = CostChanges {
        cell: Cell::new(),
        base: "off".to_owned(),
        arm: "on".to_owned(),
        scope: Scope::SharedHost,
        threads_only: false,
        kernel_reason: None,
        unit: "ns/KiB".to_owned(),
        pairs,
        confidence: 0.95,
        total: Some(row("all", None, 108.0, 121.0)),
        classes: vec![row("copy", None, 53.0, 66.0), row("tcp", None, 20.0, 19.98)],
        symbols: vec![
            row("__copy_user_nocache", Some(("[kernel]", "copy")), 0.0, 41.5),
            row("rep_movs_alternative", Some(("[kernel]", "copy")), 41.2, 12.5),
            row("tcp_sendmsg_locked", Some(("[kernel]", "tcp")), 5.0, 4.98),
        ],
        reason: None,
    };
    correct_costs(changes.classes.iter_mut().map(|row| &mut row.change), 0.95);
    correct_costs(changes.symbols.iter_mut().map(|row| &mut row.change), 0.95);
    changes
}

fn stream() -> Document {
    let at = cell(&[("message_bytes", 131_072), ("flows", 1)]);
    let mut runs = vec![run(0, at.clone(), shared_host(21.4))];
    runs.extend((1..7).map(|index| {
        let mut profiled = run(index, at.clone(), shared_host(20.9));
        profiled.profiled = true;
        profiled.profiles = vec![profile(None)];
        profiled
    }));
    document(Kind::Stream, "haul stream lab --profile", runs)
}

fn profile(reason: Option<&str>) -> Profile {
    Profile {
        scope: Scope::SharedHost,
        whose: Whose::Host,
        host_reason: None,
        kernel_amount: None,
        kernel_reason: None,
        event: "cpu-clock".to_owned(),
        unit: "ns".to_owned(),
        hz: 997,
        samples: 0,
        idle: 0,
        lost: 0,
        throttled: 0,
        unresolved: 0,
        work: 1.0,
        per: "KiB".to_owned(),
        symbols: Vec::new(),
        reason: reason.map(str::to_owned),
        notes: Vec::new(),
        stacks: Vec::new(),
    }
}

#[test]
fn what_each_class_and_symbol_costs() {
    let mut document = stream();
    document.costs = vec![costs(Scope::SharedHost, false, None, 6), costs(Scope::Sender, true, None, 6)];
    insta::assert_snapshot!(shown(&document, 80));
}

#[test]
fn a_cost_from_too_few_runs_has_no_interval_and_says_how_many_give_one() {
    let mut document = stream();
    document.costs = vec![costs(Scope::Receiver, false, None, 3)];
    let text = shown(&document, 80);
    assert!(text.contains("6 profiled runs are the fewest"), "{text}");
}

#[test]
fn what_an_arm_changed_in_the_cost_of_each_symbol() {
    let mut document = four_verdicts();
    document.cost_changes = vec![changes(8)];
    document.costs =
        vec![costs(Scope::SharedHost, false, Some("off"), 8), costs(Scope::SharedHost, false, Some("on"), 8)];
    insta::assert_snapshot!(shown(&document, 80));
}

#[test]
fn a_long_name_gives_way_to_the_verdict_of_its_row() {
    let mut document = four_verdicts();
    let mut long = changes(8);
    for row in &mut long.symbols {
        row.name = format!("{}_with_a_name_that_never_ends_at_all", row.name);
        for number in [&mut row.change.base, &mut row.change.arm, &mut row.change.change] {
            *number *= 100.0;
        }
        row.change.interval = row.change.interval.map(|ends| ends.map(|end| end * 100.0));
    }
    document.cost_changes = vec![CostChanges { unit: "ns/transaction".to_owned(), ..long }];
    let text = shown(&document, 80);
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("__copy_user")).collect();
    assert!(rows.len() == 1 && rows[0].ends_with("dearer"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn arms_that_cannot_be_compared_say_why() {
    let mut document = four_verdicts();
    let reason = Some("the base was sampled by cycles, the arm by cpu-clock".to_owned());
    let emptied = CostChanges { total: None, classes: Vec::new(), symbols: Vec::new(), reason, ..changes(8) };
    document.cost_changes = vec![emptied];
    let text = shown(&document, 80);
    assert!(text.contains("no change of costs: the base was sampled by cycles"), "{text}");
}

#[test]
fn what_could_not_be_profiled_is_told_once_with_the_runs() {
    let mut document = stream();
    for run in document.runs.iter_mut().filter(|run| run.profiled) {
        run.profiles = vec![profile(Some("kernel.perf_event_paranoid is 4; be root, or lower it"))];
    }
    let text = shown(&document, 80);
    assert_eq!(text.matches("perf_event_paranoid is 4").count(), 1, "{text}");
    assert!(text.contains("in 6 runs"), "{text}");
}

#[test]
fn counts_with_estimates_and_events_this_cpu_lacks() {
    let mut document = stream();
    let count = |scope, whose, event: &str, value, active: f64| Count {
        scope,
        whose,
        event: event.to_owned(),
        group: 0,
        value,
        estimate: active < 100.0,
        active_pct: Some(active),
        reason: value.is_none().then(|| "this CPU gives the kernel no such counter".to_owned()),
    };
    document.runs[0].counts = vec![
        count(Scope::SharedHost, Whose::Host, "context-switches", Some(1_234_567), 100.0),
        count(Scope::Sender, Whose::Threads, "cache-misses", Some(98_765), 40.0),
        count(Scope::SharedHost, Whose::Host, "cycles", None, 0.0),
        count(Scope::SharedHost, Whose::Host, "instructions", None, 0.0),
        count(Scope::Sender, Whose::Threads, "cycles", None, 0.0),
    ];
    insta::assert_snapshot!(shown(&document, 80));
}

#[test]
fn a_profile_of_less_than_the_host_says_so_where_its_numbers_stand() {
    let reason = |what: &str| Some(format!("kernel.perf_event_paranoid = 2 forbids {what} to this user"));
    let mut document = stream();
    let narrowed = Costs {
        host_reason: reason("events of whole CPUs"),
        kernel_reason: reason("events of the kernel"),
        ..costs(Scope::Sender, true, None, 6)
    };
    document.costs = vec![narrowed.clone()];
    insta::assert_snapshot!(shown(&document, 80));
    document.costs = vec![Costs { kernel_reason: None, ..narrowed }];
    let text = shown(&document, 80).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("of all CPUs nothing is in it: kernel.perf_event_paranoid = 2"), "{text}");
    document.cost_changes = vec![CostChanges {
        scope: Scope::Sender,
        threads_only: true,
        kernel_reason: reason("events of the kernel"),
        ..changes(8)
    }];
    let text = shown(&document, 80).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("on against off: what the sender's threads did in user mode only"), "{text}");
    assert!(text.contains("what the kernel did is not in it: kernel.perf_event_paranoid = 2"), "{text}");
}

#[test]
fn a_document_with_profiles_is_read_back_as_it_was_written() {
    let mut document = stream();
    document.costs = vec![costs(Scope::SharedHost, false, None, 6)];
    document.cost_changes = vec![changes(8)];
    let mut written = Vec::new();
    json::write(&document, &mut written).unwrap();
    let read = json::parse(std::str::from_utf8(&written).unwrap()).unwrap();
    assert_eq!(read, document);
    assert_eq!(text::document(&read, text::Width::PAGE), text::document(&document, text::Width::PAGE));
}
