//! From the runs of an experiment to its comparisons and to the doubts about the whole.
//!
//! A pair is one block's run of the base and of the arm in one cell, both complete, both with a value. Nothing else
//! enters the statistics: failed runs are counted beside them, void and interrupted ones only shown.
//!
//! The family whose error is controlled together is the whole experiment: every metric, cell and arm. What that asks of
//! the number of pairs is [`pairs_to_decide`], and is said before the first run. The null arm is a family of its own: it
//! asks about the noise, not about the change.

use std::collections::BTreeMap;

use haul_results::record::{Run, Status};
use haul_stats::compare::{self, Pairs};
use haul_stats::estimate::{self, Summary};
use haul_stats::{Cell, Comparison, Decide, Doubt, DoubtId, Metric, Scope};

use haul_workload::{Direction, RunSpec, Transport, Workload};

use crate::plan::Plan;

/// What is compared, where the runs have it. Totals and limits describe a run; only these say whether it became cheaper,
/// faster or less sure to arrive. Of latency the median and the tail that most runs are long enough for: percentiles move
/// together, and each more of them asks for more pairs.
const COMPARED: &[(Metric, Scope)] = &[
    (Metric::Throughput, Scope::Run),
    (Metric::Throughput, Scope::Receiver),
    (Metric::Throughput, Scope::Server),
    (Metric::Throughput, Scope::Client),
    (Metric::PacketRate, Scope::Receiver),
    (Metric::Loss, Scope::Receiver),
    (Metric::Transactions, Scope::Client),
    (Metric::LatencyP50, Scope::Client),
    (Metric::LatencyP99, Scope::Client),
    (Metric::ServiceDemand, Scope::Sender),
    (Metric::ServiceDemand, Scope::Receiver),
    (Metric::ServiceDemand, Scope::Client),
    (Metric::ServiceDemand, Scope::Server),
    (Metric::ServiceDemand, Scope::SharedHost),
    (Metric::ServiceDemandTransaction, Scope::Client),
    (Metric::ServiceDemandTransaction, Scope::Server),
    (Metric::ServiceDemandTransaction, Scope::SharedHost),
    (Metric::CpuUtilization, Scope::Sender),
    (Metric::CpuUtilization, Scope::Receiver),
    (Metric::CpuUtilization, Scope::Client),
    (Metric::CpuUtilization, Scope::Server),
    (Metric::CpuUtilization, Scope::SharedHost),
    (Metric::Retransmits, Scope::Sender),
    (Metric::ProbeLoadedP50, Scope::Run),
    (Metric::ProbeLoadedP99, Scope::Run),
];

/// What explains a change, of each host ([`Metric::is_beside`]): compared too, as a family of its own.
const BESIDE: [Metric; 9] = [
    Metric::InterruptsPerGb,
    Metric::InterruptsPerTransaction,
    Metric::InterruptsNicPerGb,
    Metric::PacketsPerInterrupt,
    Metric::SoftnetDropped,
    Metric::SoftnetSqueezed,
    Metric::DevicePacketsPerSecond,
    Metric::DeviceDrops,
    Metric::QdiscDrops,
];

/// The ends it is of; where both are on one kernel, what a host counts is of both.
const HOSTS: [Scope; 5] = [Scope::Sender, Scope::Receiver, Scope::Client, Scope::Server, Scope::SharedHost];

/// The number a run is known by, of those it has.
const HEADLINES: &[(Metric, Scope)] = &[
    (Metric::Throughput, Scope::Run),
    (Metric::Throughput, Scope::Receiver),
    (Metric::Transactions, Scope::Client),
];

/// The runs by cell and arm, in order of time. They were made in the plan's order, from its start.
pub(crate) fn grouped<'a>(plan: &Plan, runs: &'a [Run]) -> BTreeMap<(usize, Option<usize>), Vec<&'a Run>> {
    let mut groups: BTreeMap<_, Vec<&Run>> = BTreeMap::new();
    let made = plan.order().iter().flatten().zip(runs);
    for (slot, run) in made.filter(|(_, run)| !run.profiled) {
        groups.entry((slot.cell, slot.arm)).or_default().push(run);
    }
    groups
}

/// Every comparison the runs allow: by cell, then by arm, then in the order of [`COMPARED`] and [`BESIDE`].
pub(crate) fn comparisons(plan: &Plan, runs: &[Run]) -> Vec<Comparison> {
    // As it was said before the first run: for the null arm's smaller family too, or two numbers would be.
    let (at_once, _) = pairs_to_decide(plan);
    let beside = BESIDE.iter().flat_map(|&metric| HOSTS.map(|scope| (metric, scope)));
    let known = |(metric, scope): &(Metric, Scope)| {
        runs.iter().any(|run| run.counts() && value(run, *metric, *scope).is_some())
    };
    let beside: Vec<(Metric, Scope)> = beside.filter(known).collect();
    let compared: Vec<(Metric, Scope)> = COMPARED.iter().copied().filter(known).collect();
    let mut all: Vec<((usize, usize, usize), Comparison)> = Vec::new();
    for null in [false, true] {
        all.extend(family(plan, runs, &compared, null, Some(at_once)));
        let explaining = family(plan, runs, &beside, null, None);
        all.extend(explaining.into_iter().map(|((cell, arm, position), comparison)| {
            // Its spread is no doubt about what is asked, and a device without interrupts is no failed run.
            let doubts = Vec::new();
            ((cell, arm, compared.len() + position), Comparison { doubts, ..comparison })
        }));
    }
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, comparison)| comparison).collect()
}

/// The comparisons of one family, each with its cell, arm and position in `compared`. `at_once`: how many were planned; where nothing was
/// planned, as many as there are.
fn family(
    plan: &Plan,
    runs: &[Run],
    compared: &[(Metric, Scope)],
    null: bool,
    at_once: Option<usize>,
) -> Vec<((usize, usize, usize), Comparison)> {
    let Some(base) = plan.arms().first() else { return Vec::new() };
    let groups = grouped(plan, runs);
    let of = |cell: usize, arm: usize| groups.get(&(cell, Some(arm))).map_or(&[][..], Vec::as_slice);
    let arms: Vec<usize> = (1..plan.arms().len()).filter(|arm| plan.is_null(*arm) == null).collect();
    let size = at_once.unwrap_or((compared.len() * arms.len() * plan.cells().len()).max(1));
    let (mut places, mut family) = (Vec::new(), Vec::new());
    for (position, &(metric, scope)) in compared.iter().enumerate() {
        for &arm in &arms {
            for (cell, planned) in plan.cells().iter().enumerate() {
                let (base_runs, arm_runs) = (of(cell, 0), of(cell, arm));
                let failed = |runs: &[&Run]| {
                    if metric.is_beside() { 0 } else { failures(runs, metric, scope) }
                };
                places.push((cell, arm, position));
                let pairs = Pairs {
                    metric,
                    scope,
                    cell: &planned.levels,
                    base: &base.name,
                    arm: &plan.arms()[arm].name,
                    values: &pairs(base_runs, arm_runs, metric, scope),
                    base_failed: failed(base_runs),
                    arm_failed: failed(arm_runs),
                };
                family.push(plan.rules().decide.compare_among(&pairs, size));
            }
        }
    }
    compare::correct_as_planned(&mut family, size);
    places.into_iter().zip(family).collect()
}

/// How many comparisons the plan leads to, and how many pairs the clearest of them needs before it can stand among them.
#[must_use]
pub fn pairs_to_decide(plan: &Plan) -> (usize, usize) {
    let arms = (1..plan.arms().len()).filter(|arm| !plan.is_null(*arm)).count().max(1);
    let each: usize = plan.cells().iter().map(|cell| compared_at_once(&cell.spec)).sum();
    let family = each * arms;
    (family, compare::min_pairs(1.0 - (1.0 - plan.rules().decide.confidence) / family as f64))
}

/// How many entries of [`COMPARED`] a run has: throughput, the demand and the use of CPU of either end (or the demand of
/// both and of either by its threads, and the use of the shared host), and what is the workload's own.
fn compared_at_once(spec: &RunSpec) -> usize {
    let plain = spec.workload == Workload::Stream
        && spec.transport == Transport::Tcp
        && spec.direction != Direction::Both;
    let own = if plain { 2 + 4 } else { 3 + 4 };
    own + if spec.probe.is_some() { 2 } else { 0 }
}

fn value(run: &Run, metric: Metric, scope: Scope) -> Option<f64> {
    let reading = run.readings.iter().find(|reading| reading.metric == metric && reading.scope == scope)?;
    reading.value.map(haul_stats::Value::as_f64)
}

/// The values of the blocks in which both runs count, in order of time.
fn pairs(base: &[&Run], arm: &[&Run], metric: Metric, scope: Scope) -> Vec<(f64, f64)> {
    let values = |runs: &[&Run]| -> BTreeMap<Option<u32>, f64> {
        let counting = runs.iter().filter(|run| run.status == Status::Complete);
        counting.filter_map(|run| Some((run.block, value(run, metric, scope)?))).collect()
    };
    let arm = values(arm);
    values(base).into_iter().filter_map(|(block, base)| Some((base, *arm.get(&block)?))).collect()
}

/// Runs that should have given a value and did not.
fn failures(runs: &[&Run], metric: Metric, scope: Scope) -> usize {
    runs.iter()
        .filter(|run| match run.status {
            Status::Failed => true,
            Status::Complete => {
                let mut readings = run.readings.iter();
                let found = readings.find(|reading| reading.metric == metric && reading.scope == scope);
                // A percentile that a complete run is too short for is missing, but nothing has failed.
                let short = |reason: &str| reason.starts_with("n too small");
                found.is_none_or(|reading| {
                    reading.value.is_none() && !reading.reason.as_deref().is_some_and(short)
                })
            }
            Status::Void | Status::Interrupted => false,
        })
        .count()
}

/// What is to be doubted about all runs together: how many failed or are void, the doubts of single runs gathered by
/// kind, and, where nothing is compared, what the runs of a cell look like beside each other.
pub(crate) fn doubts(plan: &Plan, runs: &[Run]) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    for (status, id, what) in [
        (Status::Failed, DoubtId::FailedRuns, "failed"),
        (Status::Void, DoubtId::EnvironmentChanged, "are void"),
    ] {
        let of: Vec<&Run> = runs.iter().filter(|run| run.status == status).collect();
        if let Some(first) = of.first() {
            let why = first.failure.as_ref().map_or("no reason was given", |failure| failure.text.as_str());
            let text = format!(
                "{} of {} runs {what}; the first (run {}): {why}",
                of.len(),
                runs.len(),
                first.index + 1
            );
            doubts.push(Doubt::new(id, text));
        }
    }
    // Those of void runs are told above, with their reason.
    let mut by_kind: BTreeMap<DoubtId, (usize, &Doubt)> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.status != Status::Void) {
        // A run can doubt the same of both its ends: it is one run all the same.
        let of_run: BTreeMap<DoubtId, &Doubt> =
            run.warnings.iter().rev().map(|doubt| (doubt.id, doubt)).collect();
        for (id, doubt) in of_run {
            by_kind.entry(id).or_insert((0, doubt)).0 += 1;
        }
    }
    for (id, (count, first)) in by_kind {
        let text = if count == runs.len() {
            first.text.clone()
        } else {
            format!("{} (in {count} of {} runs)", first.text, runs.len())
        };
        doubts.push(Doubt { id, text, advice: first.advice.clone() });
    }
    if plan.arms().is_empty() {
        let groups = grouped(plan, runs);
        for (index, cell) in plan.cells().iter().enumerate() {
            let here = groups.get(&(index, None)).map_or(&[][..], Vec::as_slice);
            let values = |metric, scope| -> Vec<f64> {
                let counting = here.iter().filter(|run| run.status == Status::Complete);
                counting.filter_map(|run| value(run, metric, scope)).collect()
            };
            let headline = HEADLINES.iter().map(|&(metric, scope)| (metric, values(metric, scope)));
            let Some((metric, values)) = headline.into_iter().find(|(_, values)| !values.is_empty()) else {
                continue;
            };
            let place =
                if plan.cells().len() > 1 { format!(" at {}", levels(&cell.levels)) } else { String::new() };
            repeated(&mut doubts, metric, &values, &plan.rules().decide, &place);
        }
    }
    doubts
}

/// Whether a mean may stand for these repeated runs.
fn repeated(doubts: &mut Vec<Doubt>, metric: Metric, values: &[f64], decide: &Decide, place: &str) {
    let (scale, unit) = match metric {
        Metric::Transactions => (1e3, "k/s"),
        _ => (1e9, "Gbit/s"),
    };
    if let Some(modes) = estimate::two_modes(values) {
        let text = format!(
            "{metric}{place} fall into two groups: {} runs around {:.3} and {} around {:.3} {unit}",
            modes.n_low,
            modes.low / scale,
            modes.n_high,
            modes.high / scale
        );
        doubts.push(Doubt::new(DoubtId::TwoModes, text));
    }
    if let Some(drift) = estimate::drift(values) {
        let text = format!("{metric}{place} {drift} from the first run to the last");
        doubts.push(Doubt::new(DoubtId::Drift, text));
    }
    if let Some(cv) = Summary::of(values).and_then(|summary| summary.cv).filter(|cv| *cv > decide.max_spread)
    {
        let text = format!("the standard deviation of {metric}{place} is {:.0} % of its mean", cv * 100.0);
        doubts.push(Doubt::new(DoubtId::Spread, text));
    }
}

fn levels(cell: &Cell) -> String {
    cell.iter().map(|(factor, level)| format!("{factor}={level}")).collect::<Vec<_>>().join(", ")
}
