//! What both ends looked at beside a run, as the record has it: events, profiles, and the readings made of events.
//!
//! Whose a number is follows the rule of CPU time: of two hosts each is its own, a shared host is shown once, and its ends are
//! told apart by their threads. A ratio is made only of events of one group, which were on the counters together, and of no
//! estimate that rests on less than half of the window (`docs/method.md`).

use haul_host::probe::counters;
use haul_host::probe::profile;
use haul_host::thread::Tid;
use haul_results::profile::{Count, Profile, Stack, Symbol, Whose};
use haul_stats::{Doubt, DoubtId, Metric, Reading, Scope};
use haul_workload::{Direction, RunOutcome, RunSpec, Workload};

/// Share of the window for which an event must have been on a counter for a ratio to be made of it.
const LEAST_ACTIVE: f64 = 0.5;

/// What was looked at, as the record has it.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    pub(crate) counts: Vec<Count>,
    pub(crate) profiles: Vec<Profile>,
    pub(crate) readings: Vec<Reading>,
    pub(crate) doubts: Vec<Doubt>,
}

/// The work both ends did: what costs are divided by.
#[derive(Clone, Copy)]
enum Work {
    Bytes(u64),
    Transactions(u64),
}

impl Work {
    /// What the legs moved, a probe's own exchange not counted.
    fn of(spec: &RunSpec, outcomes: &[RunOutcome]) -> Self {
        let loads = outcomes.iter().filter(|leg| leg.spec.workload == spec.workload);
        let units = loads.map(|leg| leg.counting().window_units()).fold(0, u64::saturating_add);
        if spec.workload == Workload::Stream { Self::Bytes(units) } else { Self::Transactions(units) }
    }

    /// So much, of what costs are shown for.
    fn shown(self) -> (f64, &'static str) {
        match self {
            Self::Bytes(bytes) => (bytes as f64 / 1024.0, "KiB"),
            Self::Transactions(count) => (count as f64, "transaction"),
        }
    }
}

/// Everything the ends of a run looked at.
pub(crate) fn looked(spec: &RunSpec, outcomes: &[RunOutcome]) -> Looked {
    let mut all = Looked::default();
    let Some(first) = outcomes.first() else { return all };
    let shared = first.shared_host();
    let work = Work::of(spec, outcomes);
    let ends =
        [(true, &first.client), (false, &first.server)].map(|(client, end)| (scope(spec, client), end));
    for (scope, end) in ends {
        let Some(observed) = &end.observed else { continue };
        let host = if shared { Scope::SharedHost } else { scope };
        all.counts.extend(observed.host.iter().map(|count| counted(count, host, Whose::Host)));
        all.counts.extend(observed.threads.iter().map(|count| counted(count, scope, Whose::Threads)));
        if !observed.host.is_empty() {
            ratios(&mut all.readings, &observed.host, host, "all CPUs", work);
        }
        if shared && !observed.threads.is_empty() {
            ratios(&mut all.readings, &observed.threads, scope, "threads", work);
        }
        if let Some(found) = &observed.profile {
            let narrowed = found.host_reason.is_some();
            // Threads that were sampled alone are those of this leg, so their cost is for what it moved.
            let legs = if narrowed { &outcomes[..1] } else { outcomes };
            let (work, of) = (Work::of(spec, legs), if narrowed { scope } else { host });
            all.profiles.push(profiled(found, of, work, &threads(spec, legs, shared, scope)));
            if let Some(reason) = &found.host_reason {
                let what = match &found.kernel_reason {
                    Some(reason) => format!("only its worker threads, and these in user mode: {reason}"),
                    None => format!("only its worker threads: {reason}"),
                };
                all.doubts.push(Doubt::new(DoubtId::NotProfiled, format!("{scope}: {what}")));
            }
        } else if let Some(reason) = &observed.reason {
            let hz = spec.observe.profile_hz.unwrap_or_default();
            all.profiles.push(absent(host, hz, work, reason.clone()));
            all.doubts.push(Doubt::new(DoubtId::NotProfiled, format!("{host}: {reason}")));
        }
    }
    all
}

/// What an end is called in this run.
fn scope(spec: &RunSpec, client: bool) -> Scope {
    match (spec.workload, spec.direction, client) {
        (Workload::Stream, Direction::Send, true) | (Workload::Stream, Direction::Receive, false) => {
            Scope::Sender
        }
        (Workload::Stream, Direction::Send, false) | (Workload::Stream, Direction::Receive, true) => {
            Scope::Receiver
        }
        (_, _, true) => Scope::Client,
        (_, _, false) => Scope::Server,
    }
}

/// The worker threads by number, and the end they belong to: of both where they are on one host.
fn threads(spec: &RunSpec, outcomes: &[RunOutcome], shared: bool, own: Scope) -> Vec<(Tid, Scope)> {
    let ends = outcomes.iter().flat_map(|leg| [(true, &leg.client), (false, &leg.server)]);
    let named = ends.map(|(client, end)| (scope(spec, client), end));
    let wanted = named.filter(|(scope, _)| shared || *scope == own);
    wanted.flat_map(|(scope, end)| end.threads.iter().filter_map(move |it| Some((it.tid?, scope)))).collect()
}

fn counted(count: &counters::Count, scope: Scope, whose: Whose) -> Count {
    Count {
        scope,
        whose,
        event: count.event.clone(),
        group: count.group,
        value: count.value,
        estimate: count.estimate,
        active_pct: (!count.enabled.is_zero()).then(|| count.active() * 100.0),
        reason: count.reason.clone(),
    }
}

/// The readings that events make.
fn ratios(readings: &mut Vec<Reading>, counts: &[counters::Count], scope: Scope, whose: &str, work: Work) {
    let source = |what: &str| format!("perf events of {whose}: {what}");
    let per = |name: &str| of(counts, name).find_map(|count| sound(count).map(|value| value as f64));
    let wanted = |name: &str| of(counts, name).next().is_some();
    let reason = |name: &str| {
        let why = of(counts, name).find_map(|count| count.reason.clone());
        why.unwrap_or_else(|| format!("{name} was on a counter for less than half of the window"))
    };
    let (cycles, instructions) = match work {
        Work::Bytes(_) => (Metric::CyclesPerByte, Metric::InstructionsPerByte),
        Work::Transactions(_) => (Metric::CyclesPerTransaction, Metric::InstructionsPerTransaction),
    };
    let units = match work {
        Work::Bytes(units) | Work::Transactions(units) => units as f64,
    };
    for (name, metric) in [("cycles", cycles), ("instructions", instructions)] {
        match per(name) {
            Some(value) => readings.push(Reading::real(metric, scope, value / units, source(name))),
            None if wanted(name) => readings.push(Reading::absent(metric, scope, source(name), reason(name))),
            None => {}
        }
    }
    let together = of(counts, "instructions").find_map(|one| {
        let other = of(counts, "cycles").find(|other| other.group == one.group)?;
        Some(sound(one)? as f64 / sound(other)? as f64)
    });
    if let Some(ratio) = together {
        let source = source("instructions / cycles of one group");
        readings.push(Reading::real(Metric::InstructionsPerCycle, scope, ratio, source));
    }
    for (name, metric) in [
        ("context-switches", Metric::ContextSwitches),
        ("cpu-migrations", Metric::CpuMigrations),
        ("page-faults", Metric::PageFaults),
    ] {
        match of(counts, name).find_map(|count| count.value) {
            Some(value) => readings.push(Reading::count(metric, scope, value, source(name))),
            None if wanted(name) => readings.push(Reading::absent(metric, scope, source(name), reason(name))),
            None => {}
        }
    }
}

/// The counts of an event: it can be in several groups, and with modifiers it is another.
fn of<'a>(counts: &'a [counters::Count], name: &'a str) -> impl Iterator<Item = &'a counters::Count> {
    counts.iter().filter(move |count| count.event == name)
}

/// The count, where it may be divided.
fn sound(count: &counters::Count) -> Option<u64> {
    count.value.filter(|value| *value > 0 && count.active() >= LEAST_ACTIVE)
}

/// The class of user mode of programs that have no part in the run.
const BESIDE: &str = "other programs";

fn profiled(found: &profile::Profile, scope: Scope, work: Work, threads: &[(Tid, Scope)]) -> Profile {
    let whose = |tid: Option<Tid>| threads.iter().find(|(known, _)| Some(*known) == tid).map(|(_, end)| *end);
    // What such a program makes the kernel do is not told apart: a soft interrupt is nobody's.
    let is_beside =
        |it: &profile::SymbolCost| it.class == profile::Class::User && !it.own && whose(it.thread).is_none();
    let symbol = |it: &profile::SymbolCost| Symbol {
        symbol: it.symbol.clone(),
        module: it.module.clone(),
        class: if is_beside(it) { BESIDE.to_owned() } else { it.class.name().to_owned() },
        thread: whose(it.thread),
        samples: it.samples,
        amount: it.amount as f64,
    };
    let mut symbols: Vec<Symbol> = found.symbols.iter().map(symbol).collect();
    if found.other > 0 {
        // Beyond the symbols that are listed: they cost as much a sample as all the others.
        symbols.push(Symbol {
            symbol: "[others]".to_owned(),
            module: "[others]".to_owned(),
            class: "other".to_owned(),
            thread: None,
            samples: found.other,
            amount: found.amount as f64 / found.samples.max(1) as f64 * found.other as f64,
        });
    }
    let mut profile = absent(scope, found.hz, work, String::new());
    profile.reason = None;
    let kernel = found.symbols.iter().filter(|it| it.context != profile::Context::User);
    let kernel = kernel.map(|it| it.amount as f64).sum::<f64>();
    Profile {
        whose: if found.host_reason.is_some() { Whose::Threads } else { Whose::Host },
        host_reason: found.host_reason.clone(),
        kernel_amount: found.kernel_reason.is_none().then_some(kernel),
        kernel_reason: found.kernel_reason.clone(),
        event: found.event.clone(),
        unit: found.unit.name().to_owned(),
        samples: found.samples,
        idle: found.idle,
        lost: found.lost,
        throttled: found.throttled,
        unresolved: found.unresolved,
        symbols,
        notes: found.notes.clone(),
        stacks: found
            .stacks
            .iter()
            .map(|(frames, samples)| Stack { frames: frames.clone(), samples: *samples })
            .collect(),
        ..profile
    }
}

fn absent(scope: Scope, hz: u32, work: Work, reason: String) -> Profile {
    let (work, per) = work.shown();
    Profile {
        scope,
        whose: Whose::Host,
        host_reason: None,
        kernel_amount: None,
        kernel_reason: Some(reason.clone()),
        event: String::new(),
        unit: "ns".to_owned(),
        hz,
        samples: 0,
        idle: 0,
        lost: 0,
        throttled: 0,
        unresolved: 0,
        work,
        per: per.to_owned(),
        symbols: Vec::new(),
        reason: Some(reason),
        notes: Vec::new(),
        stacks: Vec::new(),
    }
}
