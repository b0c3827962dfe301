//! Runs a plan: for each run apply → fingerprint → run → fingerprint → verify → record, and puts everything back.
//!
//! ```text
//!   every arm once:  apply, fingerprint          the arm's reference; stops here where a setting does not take, drags
//!                                                others along, or two arms leave the hosts in the same state
//!   every group (one cell of one block, its arms adjacent in time, in the plan's order):
//!       every arm:   apply ─ fingerprint ─ run ─ fingerprint ─ verify
//!                      │         │          │        └──────┴─ changed meanwhile ......... void
//!                      └─────────┴──────────┴─ went wrong ................................ failed
//!       against the base: both hosts moved away from their references alike? ... no ...... void
//!   whatever happened: restore, then compare what is complete
//! ```
//!
//! What a sceptic would ask of it: a failed or void run is kept with its reason and stays out of the statistics; nothing
//! is ever run again because of how it came out; a change of the hosts that nobody asked for voids the pair, inside a run
//! or between the two runs of a pair; the hosts are put back on every way out. It does not measure ([`Rig`]) and does not
//! decide (`verdicts`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use haul_host::signal::Stop;
use haul_results::profile::{CostChanges, Costs};
use haul_results::record::{Environment, Fact, Facts, Failure, Interval, Options, Run, Status};
use haul_stats::{Cell, Comparison, Doubt, DoubtId, MonoNanos};
use serde_json::{Map, Value as Json};

use crate::error::LabError;
use crate::plan::{Plan, Slot};
use crate::profiles;
use crate::rig::{Applied, Ending, Restoring, Rig};
use crate::verdicts;

/// After how many failures in a row, of one arm or by loss of the peer, nothing more is tried: a thing that failed three
/// times without one success is not bad luck, and a hundred more runs of it would only take time.
const GIVE_UP_AFTER: u32 = 3;

/// Facts that only ever count up: within a run a change of them tells that something happened, from run to run they
/// differ by what haul itself did (some drivers take the link down to change a feature).
const COUNTERS: &[&str] = &["nic.carrier_changes"];

/// How many changes a text lists before it says how many more there are.
const LISTED: usize = 4;

/// What happens while a plan runs, for whoever watches.
#[derive(Debug)]
pub enum Event<'a> {
    /// An arm's commands wrote something.
    Said {
        /// The arm.
        arm: &'a str,
        /// End, command and output.
        text: &'a str,
    },
    /// An arm is tried without a run; `None` where nothing is compared.
    Checking {
        /// The arm.
        arm: Option<&'a str>,
    },
    /// A survey finds out what it is to know before its cells.
    Preparing {
        /// What is being done.
        what: &'a str,
        /// Time left for everything, from the plan.
        left: Duration,
    },
    /// A cell of a survey is tried, to find how many passes a sample takes.
    Calibrating {
        /// Its number, from 1.
        number: usize,
        /// How many there are.
        of: usize,
        /// The cell.
        cell: &'a Cell,
        /// Time left for everything.
        left: Duration,
    },
    /// A run begins.
    Begins {
        /// Its number, from 1.
        number: usize,
        /// How many there will be.
        of: usize,
        /// The arm.
        arm: Option<&'a str>,
        /// The block, from 0.
        block: u32,
        /// The cell.
        cell: &'a Cell,
        /// Time left for everything, this run included, from the plan and from the runs so far.
        left: Duration,
    },
    /// An interval of the present run has passed.
    Interval(&'a Interval),
    /// A run ended, however it did. What becomes of it can still change: a later run of its block may void it.
    Ended(&'a Run),
    /// The hosts are being put back.
    Restoring,
}

/// Watches a plan run.
pub trait Observer: Send {
    /// Something happened. Must not block: the runs wait for it.
    fn event(&mut self, event: &Event<'_>);
}

impl<F: FnMut(&Event<'_>) + Send> Observer for F {
    fn event(&mut self, event: &Event<'_>) {
        self(event);
    }
}

/// Everything a plan left, as the record has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// How it ended.
    pub status: Status,
    /// Why it failed.
    pub failure: Option<Failure>,
    /// Elapsed time.
    pub elapsed: Duration,
    /// Options as asked for and as in force.
    pub options: Options,
    /// The hosts as they were before the first run, the first arm in force.
    pub environment: Environment,
    /// Every run, in the order made.
    pub runs: Vec<Run>,
    /// The comparisons.
    pub comparisons: Vec<Comparison>,
    /// What each symbol costs, where runs were profiled.
    pub costs: Vec<Costs>,
    /// How the arms differ in it.
    pub cost_changes: Vec<CostChanges>,
    /// Doubts about the whole.
    pub warnings: Vec<Doubt>,
}

/// Runs a plan on a rig. Always returns what there is, and always puts the rig back first.
pub fn run(plan: &Plan, rig: &mut dyn Rig, stop: &Stop, observer: &mut dyn Observer) -> Measured {
    let started = rig.now();
    let mut rig = Restoring::new(rig);
    let mut experiment = Experiment::new(plan, stop, started);
    let outcome = experiment.drive(rig.rig(), observer);
    let mut doubts = rig.rig().doubts();
    observer.event(&Event::Restoring);
    let elapsed = rig.rig().now().since(started);
    let restored = rig.finish();
    doubts.append(&mut experiment.doubts);
    let Experiment { runs, references, in_force, .. } = experiment;

    // What the kernel delivers to itself passes no device but lo, whatever the address it has belongs to.
    let local = doubts.iter().any(|doubt| doubt.id == DoubtId::SoftwareLoopback);
    doubts.extend(references.first().filter(|_| !local).and_then(unequal_mtus));

    let (status, failure) = conclude(plan, &runs, outcome, restored);
    let comparisons = verdicts::comparisons(plan, &runs);
    doubts.extend(verdicts::doubts(plan, &runs));
    if status == Status::Interrupted {
        let complete = runs.iter().filter(|run| run.status == Status::Complete).count();
        let text = format!("stopped by its user after {complete} complete runs of {}", plan.runs());
        doubts.push(Doubt::new(DoubtId::Interrupted, text));
    }
    Measured {
        status,
        failure,
        elapsed,
        options: Options {
            requested: plan.requested().clone(),
            effective: effective(plan, &runs, &in_force),
        },
        environment: references.into_iter().next().unwrap_or_default(),
        comparisons,
        costs: profiles::costs(plan, &runs),
        cost_changes: profiles::changes(plan, &runs),
        warnings: doubts,
        runs,
    }
}

/// A doubt where the interfaces on the path have different MTUs.
fn unequal_mtus(hosts: &Environment) -> Option<Doubt> {
    let fact = |facts: &Option<Facts>, name| facts.as_ref()?.get(name)?.value.clone();
    let end = |facts| {
        let device = fact(facts, "nic.name").map_or_else(String::new, |name| format!(" ({name})"));
        Some((fact(facts, "nic.mtu")?, device))
    };
    let ((client, here), (server, there)) = (end(&hosts.client)?, end(&hosts.server)?);
    let text = format!("the MTU is {client} at the client{here}, {server} at the server{there}");
    (client != server).then(|| Doubt::new(DoubtId::MtuMismatch, text))
}

/// How the experiment came to its end.
enum Outcome {
    Done,
    Interrupted,
}

/// A finished run of the present group, and how its hosts differ from the arm's reference.
struct Seen {
    arm: usize,
    run: usize,
    moved: BTreeMap<String, String>,
}

struct Experiment<'a> {
    plan: &'a Plan,
    stop: &'a Stop,
    /// What each arm changes on the hosts, by end and item.
    in_force: Vec<BTreeMap<String, String>>,
    started: MonoNanos,
    /// The hosts under each arm, before the first run.
    references: Vec<Environment>,
    runs: Vec<Run>,
    doubts: Vec<Doubt>,
    /// Failures in a row, by arm, and of the peer.
    failed: Vec<u32>,
    lost: u32,
    /// The changes since the references that were already told of.
    known: BTreeMap<String, String>,
    /// Measured and planned time of the runs so far, for the time left.
    spent: Duration,
    planned: Duration,
    total: Duration,
}

impl<'a> Experiment<'a> {
    fn new(plan: &'a Plan, stop: &'a Stop, started: MonoNanos) -> Self {
        Self {
            plan,
            stop,
            started,
            in_force: Vec::new(),
            references: Vec::new(),
            runs: Vec::with_capacity(plan.runs()),
            doubts: Vec::new(),
            failed: vec![0; plan.arms().len().max(1)],
            lost: 0,
            known: BTreeMap::new(),
            spent: Duration::ZERO,
            planned: Duration::ZERO,
            total: plan.expected(),
        }
    }

    fn stopped(&self) -> bool {
        self.stop.requested().is_some()
    }

    fn drive(&mut self, rig: &mut dyn Rig, observer: &mut dyn Observer) -> Result<Outcome, LabError> {
        if self.stopped() || !self.check(rig, observer)? {
            return Ok(Outcome::Interrupted);
        }
        for group in self.plan.order() {
            // What forbids one profile forbids them all: further runs of that kind would only take time.
            let forbidden = |run: &Run| {
                run.profiled && !run.profiles.is_empty() && run.profiles.iter().all(|it| it.reason.is_some())
            };
            if self.runs.last().is_some_and(forbidden) {
                return Ok(Outcome::Done);
            }
            let mut seen = Vec::with_capacity(group.len());
            for &slot in group {
                if self.stopped() {
                    self.judge(&seen);
                    return Ok(Outcome::Interrupted);
                }
                let (run, before, left_behind) = self.one(slot, rig, observer);
                observer.event(&Event::Ended(&run));
                let (index, status) = (self.runs.len(), run.status);
                self.runs.push(run);
                let arm = slot.arm.unwrap_or(0);
                if let (Status::Complete, Some(before)) = (status, before) {
                    let moved = moved(&self.references[arm], &before);
                    seen.push(Seen { arm, run: index, moved });
                }
                if status == Status::Interrupted {
                    self.judge(&seen);
                    return Ok(Outcome::Interrupted);
                }
                if let Err(error) = self.streak(arm, left_behind) {
                    self.judge(&seen);
                    return Err(error);
                }
            }
            self.judge(&seen);
        }
        Ok(Outcome::Done)
    }

    /// Tries every arm without a run. False where the user stopped it.
    fn check(&mut self, rig: &mut dyn Rig, observer: &mut dyn Observer) -> Result<bool, LabError> {
        let arms = self.plan.arms();
        if arms.is_empty() {
            observer.event(&Event::Checking { arm: None });
            self.references.push(rig.fingerprint()?);
            return Ok(true);
        }
        let all: Vec<_> = arms.iter().flat_map(|arm| arm.settings.clone()).collect();
        rig.reserve(&all);
        for (index, arm) in arms.iter().enumerate() {
            if self.stopped() {
                return Ok(false);
            }
            if self.plan.is_null(index) {
                self.references.push(self.references[0].clone());
                self.in_force.push(self.in_force[0].clone());
                continue;
            }
            observer.event(&Event::Checking { arm: Some(&arm.name) });
            let tried = rig
                .apply(&arm.settings, self.plan.rules().consent)
                .and_then(|applied| Ok((applied, rig.fingerprint()?)));
            let in_arm = |source| LabError::InArm { arm: arm.name.clone(), source: Box::new(source) };
            let (Applied { side_effects, said, in_force }, environment) = tried.map_err(in_arm)?;
            if !side_effects.is_empty() {
                let text = format!("arm '{}' also changed {}", arm.name, list(&side_effects));
                self.doubts.push(Doubt::new(DoubtId::SideEffects, text));
            }
            for text in said {
                observer.event(&Event::Said { arm: &arm.name, text: &text });
            }
            self.references.push(environment);
            self.in_force.push(in_force);
        }
        for (index, arm) in arms.iter().enumerate().filter(|(index, _)| !self.plan.is_null(*index)) {
            for (earlier, other) in arms[..index].iter().enumerate() {
                let slot = |arm| Slot { block: 0, cell: 0, arm: Some(arm), profiled: false };
                let same_load = self.plan.specify(slot(index))? == self.plan.specify(slot(earlier))?;
                // A fingerprint does not have every file and every command.
                let same_settings = self.in_force[earlier] == self.in_force[index];
                if same_load
                    && same_settings
                    && moved(&self.references[earlier], &self.references[index]).is_empty()
                {
                    return Err(LabError::ArmsAlike { first: other.name.clone(), second: arm.name.clone() });
                }
            }
        }
        Ok(true)
    }

    /// A run of which nothing is known yet but what it is to be.
    fn blank(&self, slot: Slot, began: MonoNanos) -> Run {
        let plan = self.plan;
        let arm = slot.arm.map(|arm| &plan.arms()[arm]);
        let cell = &plan.cells()[slot.cell];
        Run {
            index: u32::try_from(self.runs.len()).unwrap_or(u32::MAX),
            arm: arm.map(|arm| arm.name.clone()),
            block: arm.map(|_| slot.block),
            cell: cell.levels.clone(),
            profiled: slot.profiled && !plan.profiles_together(),
            status: Status::Complete,
            failure: None,
            at_s: began.since(self.started).as_secs_f64(),
            effective: Json::Null,
            activity: Json::Null,
            readings: Vec::new(),
            intervals: Vec::new(),
            counts: Vec::new(),
            profiles: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Makes one run. Also returns the hosts as they were before it, and the error that kept it from being made.
    fn one(
        &mut self,
        slot: Slot,
        rig: &mut dyn Rig,
        observer: &mut dyn Observer,
    ) -> (Run, Option<Environment>, Option<Failure>) {
        let plan = self.plan;
        let arm = slot.arm.map(|arm| &plan.arms()[arm]);
        let cell = &plan.cells()[slot.cell];
        let began = rig.now();
        observer.event(&Event::Begins {
            number: self.runs.len() + 1,
            of: plan.runs(),
            arm: arm.map(|arm| arm.name.as_str()),
            block: slot.block,
            cell: &cell.levels,
            left: self.left(),
        });
        let mut run = self.blank(slot, began);
        let mut before = None;
        let mut fill = || -> Result<(), LabError> {
            let spec = plan.specify(slot)?;
            let said = match arm {
                Some(arm) => rig.apply(&arm.settings, plan.rules().consent)?.said,
                None => Vec::new(),
            };
            let environment = before.insert(rig.fingerprint()?);
            let taken =
                rig.run(&spec, self.stop, &mut |interval| observer.event(&Event::Interval(interval)))?;
            run.readings = taken.readings;
            run.intervals = taken.intervals;
            run.counts = taken.counts;
            run.profiles = taken.profiles;
            run.effective = taken.effective;
            if let (false, Json::Object(effective)) = (said.is_empty(), &mut run.effective) {
                effective.insert("commands_said".to_owned(), said.into());
            }
            run.activity = taken.activity;
            run.warnings = taken.doubts;
            match taken.ending {
                Ending::Complete => {}
                Ending::Interrupted => {
                    run.status = Status::Interrupted;
                    return Ok(());
                }
                Ending::Invalid(text) => {
                    fail(&mut run, Status::Failed, 1, format!("the measurement is invalid: {text}"));
                    return Ok(());
                }
                Ending::Lost(text) => {
                    fail(&mut run, Status::Failed, 4, text);
                    return Ok(());
                }
            }
            // From here on there are numbers: what goes wrong now leaves them doubtful, not absent.
            match rig.fingerprint() {
                Ok(after) => {
                    let changes = changes(environment, &after);
                    if !changes.is_empty() {
                        let text = format!("changed during the run: {}", list(&changes));
                        run.warnings.push(Doubt::new(DoubtId::EnvironmentChanged, text.clone()));
                        fail(&mut run, Status::Void, 1, text);
                        return Ok(());
                    }
                }
                // Its user would not wait for it: the numbers stand, and nothing says whether the hosts stayed as they were.
                Err(error) if error.is_interrupt() => {
                    run.status = Status::Interrupted;
                    return Ok(());
                }
                Err(error) => {
                    let text = format!("the hosts could not be described after the run: {error}");
                    fail(&mut run, Status::Void, error.exit(), text);
                    return Ok(());
                }
            }
            if arm.is_some()
                && let Err(error) = rig.verify()
            {
                let text = format!("the arm's settings were not in force after the run: {error}");
                run.warnings.push(Doubt::new(DoubtId::EnvironmentChanged, text.clone()));
                fail(&mut run, Status::Void, error.exit(), text);
            }
            Ok(())
        };
        if let Err(error) = fill() {
            if error.is_interrupt() {
                run.status = Status::Interrupted;
            } else {
                fail(&mut run, Status::Failed, error.exit(), error.to_string());
            }
        }
        self.spent += rig.now().since(began);
        self.planned += plan.expected_run(slot.cell);
        let failure = run.failure.clone().filter(|failure| run.status == Status::Failed || failure.exit == 4);
        (run, before, failure)
    }

    /// Counts failures in a row, and says when it is enough.
    fn streak(&mut self, arm: usize, failure: Option<Failure>) -> Result<(), LabError> {
        let Some(failure) = failure else {
            (self.failed[arm], self.lost) = (0, 0);
            return Ok(());
        };
        self.failed[arm] += 1;
        self.lost = if failure.exit == 4 { self.lost + 1 } else { 0 };
        // What was asked for wrongly does not come right by asking again.
        if failure.exit == 2 || self.lost >= GIVE_UP_AFTER || self.failed[arm] >= GIVE_UP_AFTER {
            let count = self.failed[arm].max(self.lost);
            return Err(LabError::GaveUp { count, last: failure.text, exit: failure.exit });
        }
        Ok(())
    }

    /// Voids the runs of a group whose hosts moved away from their reference in another way than the base's did:
    /// something changed between the two runs of the pair.
    fn judge(&mut self, seen: &[Seen]) {
        let Some(base) = seen.iter().find(|seen| seen.arm == 0) else { return };
        for other in seen.iter().filter(|seen| seen.arm != 0 && seen.moved != base.moved) {
            let keys: BTreeSet<&String> = base.moved.keys().chain(other.moved.keys()).collect();
            let differing: Vec<String> = keys
                .into_iter()
                .filter(|&key| base.moved.get(key) != other.moved.get(key))
                .map(|key| {
                    other
                        .moved
                        .get(key)
                        .or(base.moved.get(key))
                        .map_or(key.clone(), |to| format!("{key}: {to}"))
                })
                .collect();
            let text =
                format!("changed between this run and that of the base arm beside it: {}", list(&differing));
            let run = &mut self.runs[other.run];
            run.warnings.push(Doubt::new(DoubtId::EnvironmentChanged, text.clone()));
            fail(run, Status::Void, 1, text);
        }
        let unanimous = seen.iter().all(|other| other.moved == base.moved);
        if unanimous && base.moved != self.known {
            self.known.clone_from(&base.moved);
            let all: Vec<String> = base.moved.iter().map(|(key, to)| format!("{key}: {to}")).collect();
            let text = if all.is_empty() {
                "the hosts are back to what they were before the first run; each pair was run in one state"
                    .to_owned()
            } else {
                format!(
                    "changed since the check before the first run: {}; each pair was run in one state",
                    list(&all)
                )
            };
            self.doubts.push(Doubt::new(DoubtId::EnvironmentChanged, text));
        }
    }

    /// The time left for everything: the plan's, scaled by how the runs so far kept to it.
    fn left(&self) -> Duration {
        let rest = self.total.saturating_sub(self.planned);
        if self.planned.is_zero() {
            return rest;
        }
        rest.mul_f64((self.spent.as_secs_f64() / self.planned.as_secs_f64()).clamp(0.1, 10.0))
    }
}

fn fail(run: &mut Run, status: Status, exit: u8, text: String) {
    run.status = status;
    run.failure = Some(Failure { exit, text });
}

/// How the whole ended. Numbers that nothing stands behind must not end in success: neither settings left behind, nor
/// a cell or an arm without one complete run.
fn conclude(
    plan: &Plan,
    runs: &[Run],
    outcome: Result<Outcome, LabError>,
    restored: Result<(), LabError>,
) -> (Status, Option<Failure>) {
    let failed = |exit, text| (Status::Failed, Some(Failure { exit, text }));
    let (status, failure) = match outcome {
        Ok(Outcome::Interrupted) => (Status::Interrupted, None),
        Err(error) if error.is_interrupt() => (Status::Interrupted, None),
        Err(error) => failed(error.exit(), error.to_string()),
        Ok(Outcome::Done) => without_numbers(plan, runs).map_or((Status::Complete, None), |run| {
            let failure = run.failure.clone();
            failure.map_or_else(
                || failed(1, "a run left no number".to_owned()),
                |failure| match run.status {
                    Status::Void => failed(failure.exit, format!("no run was valid: {}", failure.text)),
                    _ => failed(failure.exit, failure.text),
                },
            )
        }),
    };
    match restored {
        Ok(()) => (status, failure),
        Err(error) => {
            let before = failure.map_or(String::new(), |failure| format!("{}; moreover ", failure.text));
            failed(1, format!("{before}{error}"))
        }
    }
}

/// The last run of a cell and arm that has no complete one.
fn without_numbers<'a>(plan: &Plan, runs: &'a [Run]) -> Option<&'a Run> {
    let groups = verdicts::grouped(plan, runs);
    let empty = groups.values().find(|group| group.iter().all(|run| run.status != Status::Complete));
    empty.and_then(|group| group.last().copied())
}

/// The options in force: those of the first complete run, by arm where arms are compared.
///
/// An arm's `settings` are what its settings come to on these hosts.
fn effective(plan: &Plan, runs: &[Run], in_force: &[BTreeMap<String, String>]) -> Json {
    let first = |arm: Option<&str>| {
        runs.iter()
            .find(|run| run.status == Status::Complete && run.arm.as_deref() == arm)
            .map(|run| run.effective.clone())
    };
    if plan.arms().is_empty() {
        return first(None).unwrap_or_default();
    }
    let by_arm = plan.arms().iter().enumerate().filter_map(|(index, arm)| {
        let mut effective = first(Some(&arm.name))?;
        let settings = in_force.get(index).filter(|settings| !settings.is_empty());
        if let (Some(settings), Json::Object(effective)) = (settings, &mut effective) {
            effective.insert("settings".to_owned(), serde_json::json!(settings));
        }
        Some((arm.name.clone(), effective))
    });
    Json::Object(by_arm.collect::<Map<_, _>>())
}

fn ends(environment: &Environment) -> [(&'static str, Option<&Facts>); 2] {
    [("client", environment.client.as_ref()), ("server", environment.server.as_ref())]
}

/// What differs between two descriptions of the hosts: the fact's name by end, and from what to what.
fn differences(before: &Environment, after: &Environment) -> BTreeMap<String, (String, String)> {
    let mut found = BTreeMap::new();
    for ((end, before), (_, after)) in ends(before).into_iter().zip(ends(after)) {
        let empty = Facts::new();
        let (before, after) = (before.unwrap_or(&empty), after.unwrap_or(&empty));
        for key in before.keys().chain(after.keys()) {
            let value = |facts: &Facts| match facts.get(key) {
                Some(Fact { value: Some(value), .. }) => value.clone(),
                _ => "not known".to_owned(),
            };
            let (was, is) = (value(before), value(after));
            if was != is {
                found.insert(format!("{end} {key}"), (was, is));
            }
        }
    }
    found
}

/// The changes from one description to another in a sentence, apart from what only counts up; `None` where there is none.
pub(crate) fn told_changes(before: &Environment, after: &Environment) -> Option<String> {
    let changes: Vec<String> =
        moved(before, after).into_iter().map(|(key, change)| format!("{key}: {change}")).collect();
    (!changes.is_empty()).then(|| list(&changes))
}

/// Every change, as text.
fn changes(before: &Environment, after: &Environment) -> Vec<String> {
    differences(before, after).into_iter().map(|(key, (was, is))| format!("{key}: {was} → {is}")).collect()
}

/// How the hosts differ from a reference, apart from what only counts up.
fn moved(reference: &Environment, now: &Environment) -> BTreeMap<String, String> {
    differences(reference, now)
        .into_iter()
        .filter(|(key, _)| !COUNTERS.iter().any(|counter| key.ends_with(counter)))
        .map(|(key, (was, is))| (key, format!("{was} → {is}")))
        .collect()
}

/// The first few of a list of changes.
fn list(changes: &[String]) -> String {
    let shown = changes.iter().take(LISTED).cloned().collect::<Vec<_>>().join(", ");
    match changes.len().saturating_sub(LISTED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests;
