//! From the profiles of runs to what each symbol costs, and to what an arm changed in it.
//!
//! ```text
//! a run's cost of a symbol      amount sampled in it ÷ work done in the window        (ns/KiB, cycles/transaction …)
//! of a cell and arm             over its profiled runs: mean, interval                (haul_stats::compare::Cost)
//! of an arm against the base    over the blocks in which both were profiled           (CostChange, Holm over the table)
//! ```
//!
//! A host's table has everything that was not idle, so that it adds up to the CPU time of the path. Where both ends share a
//! kernel there is one such table, and one more for the worker threads of each end, which is how a sender's copy is told
//! from a receiver's. What is below a thousandth of the whole is one row, *others*: a long tail of single samples says nothing,
//! but leaving it out would make the rest look like more.

use std::collections::{BTreeMap, BTreeSet};

use haul_results::profile::{ChangeRow, CostChanges, CostRow, Costs, Profile, Stack, Whose};
use haul_results::record::{Run, Status};
use haul_stats::Scope;
use haul_stats::compare::{Cost, CostChange, correct_costs};

use crate::plan::Plan;

/// The most rows of a table: what a reader scrolls through, and a document keeps for each cell and arm.
const MOST_ROWS: usize = 200;

/// Share of the whole below which a symbol is one of the others.
const LEAST_SHARE: f64 = 0.001;

/// The name of what is left.
const OTHERS: &str = "others";

/// What a table is about: whose samples it counts.
type Table = (Scope, bool);

/// A symbol: its name, its module and its class.
type Key = (String, String, String);

/// One profiled run, as a table sees it: the cost of each symbol.
struct Seen<'a> {
    profile: &'a Profile,
    block: Option<u32>,
    symbols: BTreeMap<Key, f64>,
}

impl Seen<'_> {
    fn total(&self) -> f64 {
        self.symbols.values().sum()
    }

    fn class(&self, class: &str) -> f64 {
        self.symbols.iter().filter(|(key, _)| key.2 == class).map(|(_, cost)| cost).sum()
    }

    fn symbol(&self, key: &Key) -> f64 {
        self.symbols.get(key).copied().unwrap_or(0.0)
    }

    /// Whether both saw the same part of the same thing: samples of another event, or without the kernel, count something else.
    fn is_like(&self, other: &Self) -> bool {
        let (one, other) = (self.profile, other.profile);
        one.event == other.event
            && one.whose == other.whose
            && one.kernel_reason.is_some() == other.kernel_reason.is_some()
    }

    fn unit(&self) -> String {
        format!("{}/{}", self.profile.unit, self.profile.per)
    }
}

/// The costs of every cell and arm that was profiled.
pub(crate) fn costs(plan: &Plan, runs: &[Run]) -> Vec<Costs> {
    let confidence = plan.rules().decide.confidence;
    let mut all = Vec::new();
    for ((cell, arm), group) in grouped(plan, runs) {
        for table in tables(&group) {
            let seen = seen(&group, table);
            let Some(first) = seen.first() else { continue };
            let seen: Vec<&Seen<'_>> = seen.iter().filter(|run| run.is_like(first)).collect();
            let total: Vec<f64> = seen.iter().map(|run| run.total()).collect();
            let whole = total.iter().sum::<f64>();
            let row = |name: &str, key: Option<&Key>, values: &[f64]| {
                let cost = Cost::of(values, confidence)?;
                let share_pct = if whole > 0.0 { values.iter().sum::<f64>() / whole * 100.0 } else { 0.0 };
                let (module, class) = (key.map(|key| key.1.clone()), key.map(|key| key.2.clone()));
                Some(CostRow { name: name.to_owned(), module, class, share_pct, cost })
            };
            let Some(everything) = row("all", None, &total) else { continue };
            let classes = classes(&seen);
            let mut classes: Vec<CostRow> = classes
                .iter()
                .filter_map(|class| {
                    row(class, None, &seen.iter().map(|run| run.class(class)).collect::<Vec<_>>())
                })
                .collect();
            let (keys, others) = keys(&seen, whole);
            let of = |key: &Key| seen.iter().map(|run| run.symbol(key)).collect::<Vec<_>>();
            let mut symbols: Vec<CostRow> =
                keys.iter().filter_map(|key| row(&key.0, Some(key), &of(key))).collect();
            dearest_first(&mut classes);
            dearest_first(&mut symbols);
            if !others.is_empty() {
                let rest: Vec<f64> =
                    seen.iter().map(|run| others.iter().map(|key| run.symbol(key)).sum()).collect();
                symbols.extend(row(OTHERS, None, &rest));
            }
            let sum = |part: fn(&Profile) -> u64| seen.iter().map(|run| part(run.profile)).sum::<u64>();
            let (samples, idle) = (sum(|it| it.samples), sum(|it| it.idle));
            let awake = samples.saturating_sub(idle);
            let alone = seen[0].profile.whose == Whose::Threads;
            let share = |part: u64, of: u64| if of > 0 { part as f64 / of as f64 * 100.0 } else { 0.0 };
            all.push(Costs {
                cell: plan.cells()[cell].levels.clone(),
                arm: arm.map(|arm| plan.arms()[arm].name.clone()),
                scope: table.0,
                threads_only: table.1,
                unit: seen[0].unit(),
                event: seen[0].profile.event.clone(),
                runs: seen.len(),
                samples: if table.1 && !alone { samples_of(&seen, table.0) } else { awake },
                idle_pct: share(idle, samples),
                unresolved_pct: share(sum(|it| it.unresolved), awake),
                lost: sum(|it| it.lost),
                host_reason: seen[0].profile.host_reason.clone(),
                kernel_reason: seen[0].profile.kernel_reason.clone(),
                confidence,
                total: everything,
                classes,
                symbols,
                stacks: if table.1 && !alone { Vec::new() } else { stacks(&seen) },
            });
        }
    }
    all
}

/// How every arm's costs differ from the base's.
pub(crate) fn changes(plan: &Plan, runs: &[Run]) -> Vec<CostChanges> {
    let Some(base) = plan.arms().first() else { return Vec::new() };
    let confidence = plan.rules().decide.confidence;
    let groups = grouped(plan, runs);
    let mut all = Vec::new();
    for cell in 0..plan.cells().len() {
        let Some(base_runs) = groups.get(&(cell, Some(0))) else { continue };
        for (arm, named) in plan.arms().iter().enumerate().skip(1) {
            let Some(arm_runs) = groups.get(&(cell, Some(arm))) else { continue };
            for table in tables(base_runs) {
                let (base_seen, arm_seen) = (seen(base_runs, table), seen(arm_runs, table));
                let pairs = paired(&base_seen, &arm_seen);
                let unit = base_seen.first().map(Seen::unit).unwrap_or_default();
                let mut changes = CostChanges {
                    cell: plan.cells()[cell].levels.clone(),
                    base: base.name.clone(),
                    arm: named.name.clone(),
                    scope: table.0,
                    threads_only: table.1,
                    kernel_reason: base_seen.first().and_then(|it| it.profile.kernel_reason.clone()),
                    unit,
                    pairs: pairs.len(),
                    confidence,
                    total: None,
                    classes: Vec::new(),
                    symbols: Vec::new(),
                    reason: None,
                };
                if pairs.is_empty() {
                    changes.reason = Some(no_pairs(&base_seen, &arm_seen));
                } else {
                    compare(&mut changes, &pairs);
                }
                all.push(changes);
            }
        }
    }
    all
}

/// Fills in the rows of a comparison from its pairs.
fn compare(changes: &mut CostChanges, pairs: &[(&Seen<'_>, &Seen<'_>)]) {
    let confidence = changes.confidence;
    let row = |name: &str, key: Option<&Key>, of: &dyn Fn(&Seen<'_>) -> f64| {
        let values: Vec<(f64, f64)> = pairs.iter().map(|(base, arm)| (of(base), of(arm))).collect();
        let (module, class) = (key.map(|key| key.1.clone()), key.map(|key| key.2.clone()));
        let change = CostChange::of(&values, confidence)?;
        Some(ChangeRow { name: name.to_owned(), module, class, change })
    };
    let both: Vec<&Seen<'_>> = pairs.iter().flat_map(|&(base, arm)| [base, arm]).collect();
    let whole = both.iter().map(|run| run.total()).sum::<f64>();
    changes.total = row("all", None, &|run| run.total());
    changes.classes =
        classes(&both).iter().filter_map(|class| row(class, None, &|run| run.class(class))).collect();
    let (keys, others) = keys(&both, whole);
    changes.symbols = keys.iter().filter_map(|key| row(&key.0, Some(key), &|run| run.symbol(key))).collect();
    if !others.is_empty() {
        let rest = |run: &Seen<'_>| others.iter().map(|key| run.symbol(key)).sum();
        changes.symbols.extend(row(OTHERS, None, &rest));
    }
    // Classes are sums of symbols: each table is a family of its own, or the same change would be counted twice.
    for rows in [&mut changes.classes, &mut changes.symbols] {
        correct_costs(rows.iter_mut().map(|row| &mut row.change), confidence);
        rows.sort_by(|a, b| b.change.change.abs().total_cmp(&a.change.change.abs()));
    }
}

/// The complete runs that have a profile, by cell and arm.
fn grouped<'a>(plan: &Plan, runs: &'a [Run]) -> BTreeMap<(usize, Option<usize>), Vec<&'a Run>> {
    let mut groups: BTreeMap<_, Vec<&Run>> = BTreeMap::new();
    let made = plan.order().iter().flatten().zip(runs);
    for (slot, run) in made.filter(|(_, run)| run.status == Status::Complete && !run.profiles.is_empty()) {
        groups.entry((slot.cell, slot.arm)).or_default().push(run);
    }
    groups
}

/// What there are tables of: each host, and the threads of each end where the host is shared, or where no more was allowed.
fn tables(runs: &[&Run]) -> Vec<Table> {
    let profiles = || runs.iter().flat_map(|run| &run.profiles);
    let of = |whose: Whose| profiles().filter(move |profile| profile.whose == whose);
    let hosts: BTreeSet<Table> = of(Whose::Host).map(|profile| (profile.scope, false)).collect();
    let alone = of(Whose::Threads).map(|profile| (profile.scope, true));
    let shared = of(Whose::Host).filter(|profile| profile.scope == Scope::SharedHost);
    let threads =
        shared.flat_map(|profile| &profile.symbols).filter_map(|symbol| Some((symbol.thread?, true)));
    let threads: BTreeSet<Table> = threads.chain(alone).collect();
    hosts.into_iter().chain(threads).collect()
}

/// The runs as one table sees them, those whose profile came to nothing left out.
fn seen<'a>(runs: &[&'a Run], (scope, threads_only): Table) -> Vec<Seen<'a>> {
    let of = |run: &&'a Run| {
        let find = |scope: Scope, whose: Whose| {
            run.profiles.iter().find(|profile| profile.scope == scope && profile.whose == whose)
        };
        let alone = find(scope, Whose::Threads).filter(|_| threads_only);
        let host = if threads_only { Scope::SharedHost } else { scope };
        let profile = alone.or_else(|| find(host, Whose::Host))?;
        let usable = profile.reason.is_none() && profile.work.is_finite() && profile.work > 0.0;
        let mut symbols: BTreeMap<Key, f64> = BTreeMap::new();
        let of_table = |thread: Option<Scope>| !threads_only || alone.is_some() || thread == Some(scope);
        let counted = profile.symbols.iter().filter(|it| of_table(it.thread));
        for symbol in counted.filter(|symbol| symbol.amount.is_finite()) {
            let key = (symbol.symbol.clone(), symbol.module.clone(), symbol.class.clone());
            *symbols.entry(key).or_default() += symbol.amount / profile.work;
        }
        usable.then_some(Seen { profile, block: run.block, symbols })
    };
    runs.iter().filter_map(of).collect()
}

/// The runs of the same block that sampled the same event.
fn paired<'a, 'b>(base: &'a [Seen<'b>], arm: &'a [Seen<'b>]) -> Vec<(&'a Seen<'b>, &'a Seen<'b>)> {
    let alike = |one: &Seen<'_>, other: &Seen<'_>| {
        one.block == other.block && one.is_like(other) && one.unit() == other.unit()
    };
    base.iter().filter_map(|one| Some((one, arm.iter().find(|other| alike(one, other))?))).collect()
}

fn no_pairs(base: &[Seen<'_>], arm: &[Seen<'_>]) -> String {
    match (base.first(), arm.first()) {
        (Some(one), Some(other)) if one.profile.event != other.profile.event => {
            format!("the base was sampled by {}, the arm by {}", one.profile.event, other.profile.event)
        }
        (Some(one), Some(other)) if !one.is_like(other) => {
            let part = |seen: &Seen<'_>| match (seen.profile.whose, &seen.profile.kernel_reason) {
                (Whose::Host, _) => "everything on its host".to_owned(),
                (Whose::Threads, None) => "its threads alone".to_owned(),
                (Whose::Threads, Some(reason)) => format!("its threads in user mode alone ({reason})"),
            };
            format!("of the base {} was sampled, of the arm {}", part(one), part(other))
        }
        (Some(_), Some(_)) => "no block has a profile of both arms".to_owned(),
        (None, _) => "the base has no profile".to_owned(),
        (_, None) => "the arm has no profile".to_owned(),
    }
}

fn classes(runs: &[&Seen<'_>]) -> BTreeSet<String> {
    runs.iter().flat_map(|run| run.symbols.keys().map(|key| key.2.clone())).collect()
}

/// The symbols that have a row of their own, and those that share one.
fn keys(runs: &[&Seen<'_>], whole: f64) -> (Vec<Key>, Vec<Key>) {
    let mut sums: BTreeMap<&Key, f64> = BTreeMap::new();
    for (key, cost) in runs.iter().flat_map(|run| &run.symbols) {
        *sums.entry(key).or_default() += cost;
    }
    let mut sums: Vec<(&Key, f64)> = sums.into_iter().collect();
    sums.sort_by(|a, b| b.1.total_cmp(&a.1));
    let shown = sums.iter().take(MOST_ROWS).take_while(|(_, sum)| *sum >= whole * LEAST_SHARE).count();
    let (own, others) = sums.split_at(shown);
    let names = |part: &[(&Key, f64)]| part.iter().map(|(key, _)| (*key).clone()).collect();
    (names(own), names(others))
}

fn samples_of(runs: &[&Seen<'_>], scope: Scope) -> u64 {
    let symbols = runs.iter().flat_map(|run| &run.profile.symbols);
    symbols.filter(|symbol| symbol.thread == Some(scope)).map(|symbol| symbol.samples).sum()
}

/// The call chains of all runs together.
fn stacks(runs: &[&Seen<'_>]) -> Vec<Stack> {
    /// What a picture shows, and a document keeps.
    const MOST_STACKS: usize = 2_000;
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for stack in runs.iter().flat_map(|run| &run.profile.stacks) {
        *sums.entry(&stack.frames).or_default() += stack.samples;
    }
    let mut all: Vec<Stack> =
        sums.into_iter().map(|(frames, samples)| Stack { frames: frames.to_owned(), samples }).collect();
    all.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| a.frames.cmp(&b.frames)));
    let rest: u64 = all.iter().skip(MOST_STACKS).map(|stack| stack.samples).sum();
    all.truncate(MOST_STACKS);
    if rest > 0 {
        all.push(Stack { frames: OTHERS.to_owned(), samples: rest });
    }
    all
}

fn dearest_first(rows: &mut [CostRow]) {
    rows.sort_by(|a, b| b.cost.mean.total_cmp(&a.cost.mean));
}

#[cfg(test)]
mod tests {
    use haul_results::profile::Symbol;
    use haul_stats::{Cell, Verdict};
    use haul_workload::RunSpec;
    use serde_json::Value as Json;

    use super::*;
    use crate::plan::{Profiled, Profiling, Rules};

    const BLOCKS: u32 = 8;

    fn plan(arms: &[&str]) -> Plan {
        let rules = Rules {
            repeats: 1,
            profile: Some(Profiling { hz: 997, of: Profiled::More(BLOCKS) }),
            seed: 3,
            ..Rules::default()
        };
        if arms.is_empty() {
            return Plan::repeat(&RunSpec::default(), &[], rules).unwrap();
        }
        let arms = arms.iter().map(|text| text.parse().unwrap()).collect();
        Plan::compare(&RunSpec::default(), &[], arms, rules).unwrap()
    }

    fn symbol(name: &str, class: &str, thread: Option<Scope>, amount: f64) -> Symbol {
        let (symbol, module) = (name.to_owned(), "[kernel]".to_owned());
        Symbol { symbol, module, class: class.to_owned(), thread, samples: 10, amount }
    }

    fn profile(event: &str, work: f64, symbols: Vec<Symbol>) -> Profile {
        Profile {
            scope: Scope::SharedHost,
            whose: Whose::Host,
            host_reason: None,
            kernel_amount: Some(0.0),
            kernel_reason: None,
            event: event.to_owned(),
            unit: "ns".to_owned(),
            hz: 997,
            samples: 100,
            idle: 40,
            lost: 0,
            throttled: 0,
            unresolved: 6,
            work,
            per: "KiB".to_owned(),
            symbols,
            reason: None,
            notes: Vec::new(),
            stacks: vec![Stack { frames: "haul;send;copyin".to_owned(), samples: 3 }],
        }
    }

    /// The runs of a plan, each with the profile `of` gives for its arm and block.
    fn made(plan: &Plan, of: impl Fn(Option<usize>, u32) -> Vec<Profile>) -> Vec<Run> {
        let slots = plan.order().iter().flatten().enumerate();
        let run = |(index, slot): (usize, &crate::plan::Slot)| Run {
            index: u32::try_from(index).unwrap(),
            arm: slot.arm.map(|arm| plan.arms()[arm].name.clone()),
            block: slot.arm.map(|_| slot.block),
            cell: Cell::new(),
            profiled: slot.profiled,
            status: Status::Complete,
            failure: None,
            at_s: 0.0,
            effective: Json::Null,
            readings: Vec::new(),
            intervals: Vec::new(),
            activity: Json::Null,
            counts: Vec::new(),
            profiles: if slot.profiled { of(slot.arm, slot.block) } else { Vec::new() },
            warnings: Vec::new(),
        };
        slots.map(run).collect()
    }

    #[test]
    fn costs_add_up_to_the_whole_and_the_threads_of_each_end_have_a_table() {
        let plan = plan(&[]);
        let runs = made(&plan, |_, _| {
            let symbols = vec![
                symbol("copyin", "copy", Some(Scope::Sender), 300.0),
                symbol("copyout", "copy", Some(Scope::Receiver), 500.0),
                symbol("tcp_sendmsg", "tcp", Some(Scope::Sender), 100.0),
                symbol("kworker", "other", None, 100.0),
            ];
            vec![profile("cpu-clock", 10.0, symbols)]
        });
        assert_eq!(plan.runs(), 1 + BLOCKS as usize);
        let costs = costs(&plan, &runs);
        let heads: Vec<(Scope, bool)> = costs.iter().map(|it| (it.scope, it.threads_only)).collect();
        assert_eq!(heads, [(Scope::SharedHost, false), (Scope::Sender, true), (Scope::Receiver, true)]);
        let host = &costs[0];
        assert_eq!((host.unit.as_str(), host.runs, host.total.cost.mean), ("ns/KiB", 8, 100.0));
        assert_eq!((host.idle_pct, host.unresolved_pct), (40.0, 10.0));
        assert_eq!((host.classes[0].name.as_str(), host.classes[0].share_pct), ("copy", 80.0));
        let sum: f64 = host.symbols.iter().map(|row| row.cost.mean).sum();
        assert!((sum - host.total.cost.mean).abs() < 1e-9);
        assert_eq!(costs[1].symbols[0].name, "copyin");
        assert!((costs[1].symbols[0].share_pct - 75.0).abs() < 1e-9);
        assert_eq!(host.stacks, [Stack { frames: "haul;send;copyin".to_owned(), samples: 24 }]);
        assert!(costs[1].stacks.is_empty() && changes(&plan, &runs).is_empty());
    }

    #[test]
    fn a_share_that_grew_alone_is_no_change_of_cost() {
        let plan = plan(&["a:", "b:opt.message=4K"]);
        let runs = made(&plan, |arm, block| {
            let wobble = f64::from(block % 3);
            let tcp = if arm == Some(1) { 200.0 + wobble } else { 600.0 + wobble };
            let symbols = vec![symbol("copy", "copy", None, 400.0 + wobble), symbol("tcp", "tcp", None, tcp)];
            vec![profile("cpu-clock", 1.0, symbols)]
        });
        let shares: Vec<f64> = costs(&plan, &runs)
            .iter()
            .map(|costs| costs.classes.iter().find(|row| row.name == "copy").unwrap().share_pct)
            .collect();
        assert!(shares[0] < 41.0 && shares[1] > 65.0, "{shares:?}");
        let all = changes(&plan, &runs);
        let of = |name: &str| all[0].symbols.iter().find(|row| row.name == name).unwrap().change;
        assert_eq!(of("copy").verdict, Verdict::Undecided);
        assert_eq!((of("tcp").verdict, of("tcp").verdict_corrected), (Verdict::Better, Verdict::Better));
        assert_eq!((of("tcp").change, all[0].pairs), (-400.0, 8));
    }

    #[test]
    fn arms_that_were_sampled_by_different_events_are_not_compared() {
        let plan = plan(&["a:", "b:opt.message=4K"]);
        let runs = made(&plan, |arm, _| {
            let event = if arm == Some(1) { "cycles" } else { "cpu-clock" };
            vec![profile(event, 1.0, vec![symbol("copy", "copy", None, 4.0)])]
        });
        let all = changes(&plan, &runs);
        assert_eq!(all.len(), 1);
        assert!(all[0].total.is_none() && all[0].symbols.is_empty());
        let reason = all[0].reason.as_deref().unwrap();
        assert!(reason.contains("cpu-clock") && reason.contains("cycles"), "{reason}");
    }

    /// The profile of an end's threads in user mode, as an ordinary user gets it.
    fn narrowed(scope: Scope, symbols: Vec<Symbol>) -> Profile {
        let reason = |what: &str| Some(format!("kernel.perf_event_paranoid = 2 forbids {what}"));
        Profile {
            scope,
            whose: Whose::Threads,
            host_reason: reason("events of whole CPUs"),
            kernel_amount: None,
            kernel_reason: reason("events of the kernel"),
            ..profile("cpu-clock", 1.0, symbols)
        }
    }

    #[test]
    fn threads_in_user_mode_have_a_table_that_says_so_and_are_not_compared_with_more() {
        let user = |amount| vec![symbol("send_loop", "user", Some(Scope::Sender), amount)];
        let plan = plan(&["a:", "b:opt.message=4K"]);
        let runs = made(&plan, |_, block| vec![narrowed(Scope::Sender, user(4.0 + f64::from(block)))]);
        let costs = costs(&plan, &runs);
        assert_eq!((costs[0].scope, costs[0].threads_only, costs[0].samples), (Scope::Sender, true, 60 * 8));
        assert!(costs[0].kernel_reason.as_ref().is_some_and(|reason| reason.ends_with("of the kernel")));
        assert_eq!(costs[0].stacks.len(), 1, "they are the only picture there is");
        let alike = changes(&plan, &runs);
        assert!(alike.len() == 1 && alike[0].pairs == 8 && alike[0].kernel_reason.is_some(), "{alike:?}");
        let runs = made(&plan, |arm, _| {
            let whole = Profile { kernel_reason: None, ..narrowed(Scope::Sender, user(4.0)) };
            vec![if arm == Some(1) { whole } else { narrowed(Scope::Sender, user(4.0)) }]
        });
        let changes = changes(&plan, &runs);
        assert!(changes[0].total.is_none(), "user mode is less than user mode and the kernel");
        let reason = changes[0].reason.as_deref().unwrap();
        assert!(
            reason.contains("its threads in user mode alone (kernel.perf_event_paranoid = 2"),
            "{reason}"
        );
    }

    #[test]
    fn a_run_without_a_usable_profile_is_left_out_and_a_long_tail_is_one_row() {
        let plan = plan(&[]);
        let runs = made(&plan, |_, block| {
            let mut symbols: Vec<Symbol> =
                (0..400).map(|i| symbol(&format!("f{i}"), "other", None, 1e-3)).collect();
            symbols.push(symbol("big", "copy", None, 1_000.0));
            let mut profile = profile("cpu-clock", if block == 0 { 0.0 } else { 1.0 }, symbols);
            if block == 1 {
                profile.reason = Some("no samples".to_owned());
            }
            vec![profile]
        });
        let costs = costs(&plan, &runs);
        assert_eq!((costs.len(), costs[0].runs), (1, BLOCKS as usize - 2));
        let names: Vec<&str> = costs[0].symbols.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["big", OTHERS]);
        assert!((costs[0].symbols[1].cost.mean - 0.4).abs() < 1e-9);
    }
}
