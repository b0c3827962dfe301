//! A survey: every cell of a sweep sampled again and again on this host, in rounds, so that what differs is the cell.
//!
//! ```text
//!   pin ─ clock step ─ fingerprint ─ what the subject is to know (set_up)
//!   every cell once:  prepare ─ sample, with more passes until it is long enough ─ verify      calibration, and warm-up
//!   every round:      what is measured beside the cells;  a new random order of the cells;  prepare ─ sample ─ a run of the record
//!   every cell once:  verify                            what differs voids all samples of the cell
//!   fingerprint       a change nobody asked for is a doubt
//! ```
//!
//! A machine drifts (clock rates, neighbours, a hypervisor), and a sweep that walks its axis in order makes the drift look like
//! an effect of the axis. Here each round has every cell once, so drift meets all of them alike. A sample in the middle of which
//! another program took the CPU is void and taken again, because the kernel counts that and not because of what came out; what
//! else disturbs one the median leaves out.
//!
//! It knows neither what is measured ([`Subject`]) nor a real clock ([`Bench`]), so its promises are tested without either.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use haul_host::signal::Stop;
use haul_host::{clock, thread};
use haul_results::record::{Environment, Facts, Failure, Options, Run, Status};
use haul_stats::estimate::Summary;
use haul_stats::{Cell, Doubt, DoubtId, Metric, MonoNanos, schedule};
use haul_workload::local::{Sample, Subject};
use serde_json::{Value as Json, json};

use crate::error::LabError;
use crate::runner::{Event, Measured, Observer, told_changes};

/// The fewest steps of the clock a sample may take: its length is then known to a thousandth.
pub const FEWEST_STEPS: u32 = 1_000;

/// Rounds made even where the time is up: the fewest of which a median has an interval at 95 %.
pub const FEWEST_ROUNDS: u32 = 6;

/// The most samples of one survey.
pub const MOST_SAMPLES: usize = 200_000;

/// After how many failures in a row a cell is left alone, as the runner does with an arm.
const GIVE_UP_AFTER: u32 = 3;

/// How often the clock is read to find its step. Its reads differ by more than a step now and then, never by less.
const CLOCK_READS: u32 = 20_000;

/// More passes than a sample can need: one of a nanosecond would take twenty minutes.
const MOST_PASSES: u64 = 1 << 40;

/// How long a sample is to take: tens of thousands of steps of most clocks, and short beside a scheduler's slice (3 ms), so that
/// another program on the CPU meets few samples. With 5 ms every other one lost its CPU beside a compiler.
pub const SAMPLE: Duration = Duration::from_millis(1);

/// How often a sample is taken at one place of a round, where others took the CPU away in the middle of it.
const TRIES: u32 = 8;

/// How long a sample is tried for there: one that takes longer than a scheduler's slice would be disturbed for ever beside others.
const TRIED_FOR: Duration = Duration::from_millis(100);

/// The share of a sample's time that its thread may have been without a CPU: half of the smallest change worth a word.
const LOST_SHARE: f64 = 0.005;

/// How a survey is made.
#[derive(Debug, Clone)]
pub struct Survey {
    /// Samples of each cell.
    pub rounds: u32,
    /// How long a sample is to take at least.
    pub sample: Duration,
    /// When no further round is begun; [`FEWEST_ROUNDS`] are made all the same, where so many were asked for.
    pub budget: Duration,
    /// What the order of the cells follows from.
    pub seed: u64,
    /// The CPU to measure on; the last allowed one where none is given.
    pub pin: Option<u32>,
    /// What was asked for, as the record has it.
    pub requested: Json,
}

/// The host a survey is made on, as far as the survey itself touches it.
pub trait Bench {
    /// Monotonic time.
    fn now(&self) -> MonoNanos;

    /// Binds this thread to one CPU, the last allowed one where none is wanted, and returns the one it is bound to.
    fn pin(&mut self, wanted: Option<u32>) -> Result<u32, LabError>;

    /// What imitates this CPU, where something does: its times are not a CPU's.
    fn emulator(&self) -> Option<String> {
        None
    }

    /// How often this thread has lost its CPU to another while it wanted to go on.
    fn preemptions(&self) -> u64;

    /// Describes the host as it is now.
    fn facts(&mut self) -> Result<Facts, LabError>;
}

/// This host.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThisHost;

impl Bench for ThisHost {
    fn now(&self) -> MonoNanos {
        clock::now()
    }

    fn pin(&mut self, wanted: Option<u32>) -> Result<u32, LabError> {
        let allowed = thread::affinity_of_current()?;
        if let Some(cpu) = wanted.filter(|cpu| !allowed.cpus().contains(cpu)) {
            return Err(LabError::Plan(format!(
                "--pin {cpu} is not one of the CPUs that this process may use: give one of {allowed}"
            )));
        }
        let last = allowed.cpus().last().copied();
        let cpu = wanted.or(last).unwrap_or(0);
        thread::pin_current(&std::iter::once(cpu).collect())?;
        Ok(thread::current_cpu()?)
    }

    fn emulator(&self) -> Option<String> {
        haul_host::emulation::emulator()
    }

    fn preemptions(&self) -> u64 {
        thread::preemptions().unwrap_or(0)
    }

    fn facts(&mut self) -> Result<Facts, LabError> {
        crate::live::own_facts()
    }
}

/// Makes the survey. Always returns what there is.
pub fn run(
    survey: &Survey,
    subject: &mut dyn Subject,
    bench: &mut dyn Bench,
    stop: &Stop,
    observer: &mut dyn Observer,
) -> Measured {
    let started = bench.now();
    let cells = subject.cells().len();
    let mut course = Course {
        survey,
        started,
        cells: vec![State::default(); cells],
        runs: Vec::new(),
        doubts: Vec::new(),
        environment: Environment::default(),
        rounds: 0,
        cpu: None,
        lost: Duration::ZERO,
        step: Duration::ZERO,
        wanted: survey.sample,
        emulator: bench.emulator(),
    };
    let outcome = course.drive(subject, bench, stop, observer);
    course.conclude(subject);
    let (runs, mut doubts) = (std::mem::take(&mut course.runs), std::mem::take(&mut course.doubts));
    let numbers = runs.iter().any(|run| run.status == Status::Complete);
    let last = || runs.iter().rev().find_map(|run| run.failure.clone());
    let outcome = outcome.or_else(|error| match error {
        LabError::Workload(error) if error.is_interrupt() => Ok(End::Interrupted),
        other => Err(other),
    });
    if matches!(outcome, Ok(End::Done)) {
        doubts.extend(without_number(subject.cells(), &runs));
    }
    if let Some(emulator) = &course.emulator {
        doubts.push(Doubt::new(DoubtId::Emulated, emulator.clone()));
    }
    let (status, failure) = match outcome {
        Ok(End::Done) if numbers => (Status::Complete, None),
        Ok(End::Done) => (Status::Failed, last()),
        Ok(End::Interrupted) => {
            let complete = runs.iter().filter(|run| run.status == Status::Complete).count();
            let text =
                format!("stopped by its user after {complete} samples of {}", cells * survey.rounds as usize);
            doubts.push(Doubt::new(DoubtId::Interrupted, text));
            (Status::Interrupted, None)
        }
        Err(error) => (Status::Failed, Some(Failure { exit: error.exit(), text: error.to_string() })),
    };
    doubts.extend(subject.doubts());
    doubts.extend(left_out(&runs, course.cpu, course.lost));
    Measured {
        status,
        failure,
        elapsed: bench.now().since(started),
        options: Options { requested: survey.requested.clone(), effective: course.effective(subject) },
        environment: course.environment,
        runs,
        comparisons: Vec::new(),
        costs: Vec::new(),
        cost_changes: Vec::new(),
        warnings: doubts,
    }
}

/// Why a sample is void that another program disturbed: which CPU it took, and for how long.
fn taken(cpu: Option<u32>, lost: Duration) -> String {
    let cpu = cpu.map_or("the CPU".to_owned(), |cpu| format!("CPU {cpu}"));
    format!("{TAKEN} {cpu} for {} in the middle of it", brief(lost))
}

/// A short time for people.
fn brief(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        ..1e-3 => format!("{:.0} µs", seconds * 1e6),
        ..1.0 => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{seconds:.1} s"),
    }
}

/// How that text begins, by which such samples are known.
const TAKEN: &str = "another program had";

/// Doubts where samples are not in the figures; `lost` is how long other programs had the CPU.
fn left_out(runs: &[Run], cpu: Option<u32>, lost: Duration) -> Vec<Doubt> {
    let why = |run: &Run| run.failure.as_ref().map(|failure| failure.text.clone()).unwrap_or_default();
    let out = runs.iter().filter(|run| matches!(run.status, Status::Failed | Status::Void));
    let (disturbed, others): (Vec<&Run>, Vec<&Run>) = out.partition(|run| why(run).starts_with(TAKEN));
    let mut doubts = Vec::new();
    if let Some(first) = others.first() {
        let text =
            format!("{} of {} samples gave no number; the first: {}", others.len(), runs.len(), why(first));
        doubts.push(Doubt::new(DoubtId::FailedRuns, text));
    }
    if !disturbed.is_empty() {
        let cpu = cpu.map_or("their CPU".to_owned(), |cpu| format!("CPU {cpu}"));
        let text = format!(
            "{} of {} samples are void: other programs had {cpu} for {} of them",
            disturbed.len(),
            runs.len(),
            brief(lost)
        );
        doubts.push(Doubt::new(DoubtId::OtherLoad, text));
    }
    doubts
}

/// Cells that are named where they have no number; the others are counted.
const NAMED: usize = 4;

/// A doubt where cells have no number, which names them; `None` where none has one, because that is a failure.
fn without_number(cells: &[Cell], runs: &[Run]) -> Option<Doubt> {
    let complete: BTreeSet<&Cell> =
        runs.iter().filter(|run| run.status == Status::Complete).map(|run| &run.cell).collect();
    let out: Vec<&Cell> = cells.iter().filter(|cell| !complete.contains(cell)).collect();
    let first = out.first().filter(|_| !complete.is_empty())?;
    let why = runs.iter().filter(|run| run.cell == **first).find_map(|run| run.failure.as_ref());
    // A record has plain blanks.
    let name = |cell: &&Cell| format!("({})", haul_results::text::cell_name(cell).replace('\u{a0}', " "));
    let mut names: Vec<String> = out.iter().take(NAMED).map(name).collect();
    if out.len() > NAMED {
        names.push(format!("and {} more", out.len() - NAMED));
    }
    let text = format!(
        "{} of {} cells have no number: {}; the first because {}",
        out.len(),
        cells.len(),
        names.join(", "),
        why.map_or("no sample of it was taken", |why| why.text.as_str())
    );
    Some(Doubt::new(DoubtId::Unmeasured, text))
}

/// How long a sample was without its CPU, where that is much; unknown is all of it.
fn lost_much(sample: &Sample) -> Option<Duration> {
    let used = sample.thread_cpu.map_or(Duration::ZERO, |cpu| cpu + sample.worker_cpu);
    Some(sample.elapsed.saturating_sub(used)).filter(|lost| *lost > sample.elapsed.mul_f64(LOST_SHARE))
}

enum End {
    Done,
    Interrupted,
}

/// What is known of a cell.
#[derive(Debug, Clone, Default)]
struct State {
    /// Passes of a sample; none before it is calibrated.
    passes: u64,
    /// Failures in a row.
    failed: u32,
    /// Nothing more is tried.
    out: bool,
}

struct Course<'a> {
    survey: &'a Survey,
    started: MonoNanos,
    cells: Vec<State>,
    runs: Vec<Run>,
    doubts: Vec<Doubt>,
    environment: Environment,
    /// Whole rounds made.
    rounds: u32,
    cpu: Option<u32>,
    /// How long other programs had the CPU in samples that are void for it.
    lost: Duration,
    /// The clock's step.
    step: Duration,
    /// How long a sample is to take.
    wanted: Duration,
    /// What imitates the CPU.
    emulator: Option<String>,
}

impl Course<'_> {
    fn drive(
        &mut self,
        subject: &mut dyn Subject,
        bench: &mut dyn Bench,
        stop: &Stop,
        observer: &mut dyn Observer,
    ) -> Result<End, LabError> {
        let count = self.cells.len();
        if count == 0 || count.saturating_mul(self.survey.rounds as usize) > MOST_SAMPLES {
            return Err(LabError::Plan(format!(
                "{count} cells in {} rounds: a survey has 1 to {MOST_SAMPLES} samples; give fewer values or --rounds",
                self.survey.rounds
            )));
        }
        self.cpu = Some(bench.pin(self.survey.pin)?);
        self.step = clock_step(bench)?;
        self.wanted = self.wanted.max(self.step * FEWEST_STEPS);
        self.environment.client = Some(bench.facts()?);
        let whole = self.at_first() + subject.set_up_takes();
        let begun = bench.now();
        subject.set_up(stop, &mut |what| {
            let left = whole.saturating_sub(bench.now().since(begun));
            observer.event(&Event::Preparing { what, left });
        })?;
        let begun = bench.now();
        for cell in 0..count {
            if stop.requested().is_some() {
                return Ok(End::Interrupted);
            }
            let left = self.at_first().saturating_sub(bench.now().since(begun));
            let levels = &subject.cells()[cell];
            observer.event(&Event::Calibrating { number: cell + 1, of: count, cell: levels, left });
            self.calibrate(cell, subject, bench);
        }
        let begun = bench.now();
        let mut longest = Duration::ZERO;
        for order in schedule::rounds(count, self.survey.rounds as usize, self.survey.seed) {
            let round_begun = bench.now();
            let spent = round_begun.since(self.started);
            if self.rounds >= FEWEST_ROUNDS && spent + longest > self.survey.budget {
                break;
            }
            subject.round(self.rounds)?;
            for (place, &cell) in order.iter().enumerate() {
                if stop.requested().is_some() {
                    return Ok(End::Interrupted);
                }
                if self.cells[cell].out {
                    continue;
                }
                let number = self.rounds as usize * count + place;
                let left = self.left(number, begun, bench);
                observer.event(&Event::Begins {
                    number: number + 1,
                    of: count * self.survey.rounds as usize,
                    arm: None,
                    block: self.rounds,
                    cell: &subject.cells()[cell],
                    left,
                });
                self.sample(cell, subject, bench);
                if let Some(run) = self.runs.last() {
                    observer.event(&Event::Ended(run));
                }
            }
            self.anything_left()?;
            self.rounds += 1;
            longest = longest.max(bench.now().since(round_begun));
        }
        for cell in 0..count {
            self.check(cell, subject);
            if stop.requested().is_some() {
                return Ok(End::Interrupted);
            }
        }
        self.anything_left()?;
        let after = Environment { client: Some(bench.facts()?), server: None };
        if let Some(text) = told_changes(&self.environment, &after) {
            let advice =
                "somebody changed this host during the survey: repeat it when nobody does".to_owned();
            self.doubts.push(Doubt { id: DoubtId::EnvironmentChanged, text, advice });
        }
        Ok(End::Done)
    }

    /// The time all of it will take, as far as the plan tells.
    fn at_first(&self) -> Duration {
        /// Samples that trying a cell takes: from one pass on, by a growing number.
        const TRYING: u32 = 6;
        let each = self
            .survey
            .rounds
            .saturating_add(TRYING)
            .saturating_mul(u32::try_from(self.cells.len()).unwrap_or(u32::MAX));
        let least = FEWEST_ROUNDS
            .min(self.survey.rounds)
            .saturating_mul(u32::try_from(self.cells.len()).unwrap_or(u32::MAX));
        self.survey.budget.max(self.wanted.saturating_mul(least)).min(self.wanted.saturating_mul(each))
    }

    /// Adds to each sample what follows for it from all of them.
    fn conclude(&mut self, subject: &mut dyn Subject) {
        let cells = subject.cells().to_vec();
        let places: BTreeMap<&Cell, usize> = cells.iter().enumerate().map(|(at, cell)| (cell, at)).collect();
        let mut rates: Vec<Vec<f64>> = vec![Vec::new(); cells.len()];
        let complete = |run: &&mut Run| run.status == Status::Complete;
        for run in self.runs.iter_mut().filter(complete) {
            let rate = run.readings.iter().find(|reading| reading.metric == Metric::CopyRate);
            let rate = rate.and_then(|reading| reading.value).map(haul_stats::Value::as_f64);
            if let (Some(&at), Some(rate)) = (places.get(&run.cell), rate) {
                rates[at].push(rate);
            }
        }
        let medians: Vec<Option<f64>> =
            rates.iter().map(|rates| Summary::of(rates).map(|summary| summary.median)).collect();
        subject.settle(&medians);
        for run in self.runs.iter_mut().filter(complete) {
            if let Some(&at) = places.get(&run.cell) {
                let more = subject.concluding(at, &run.readings);
                run.readings.extend(more);
            }
        }
    }

    /// Time left: from what a sample took so far, but no more than the budget has.
    fn left(&self, done: usize, begun: MonoNanos, bench: &dyn Bench) -> Duration {
        let now = bench.now();
        let of = self.cells.len() * self.survey.rounds as usize;
        let budget = self.survey.budget.saturating_sub(now.since(self.started));
        if done == 0 {
            return budget.min(self.wanted.saturating_mul(u32::try_from(of).unwrap_or(u32::MAX)));
        }
        let each = now.since(begun).as_secs_f64() / done as f64;
        let least = self.cells.len() * FEWEST_ROUNDS.min(self.survey.rounds) as usize;
        let time = |until: usize| {
            Duration::try_from_secs_f64(each * until.saturating_sub(done) as f64).unwrap_or(Duration::MAX)
        };
        time(of).min(budget).max(time(least))
    }

    /// Fails where nothing can be measured any more.
    fn anything_left(&self) -> Result<(), LabError> {
        if self.cells.iter().any(|cell| !cell.out) {
            return Ok(());
        }
        let last = self.runs.iter().rev().find_map(|run| run.failure.as_ref());
        let (exit, text) =
            last.map_or((1, "no cell gave a number".to_owned()), |last| (last.exit, last.text.clone()));
        Err(LabError::NoCell { text, exit })
    }

    /// Finds out how many passes a sample takes.
    fn calibrate(&mut self, cell: usize, subject: &mut dyn Subject, bench: &dyn Bench) {
        let mut passes = 1;
        let mut confirmed = false;
        let outcome = loop {
            let sample = subject.prepare(cell).and_then(|()| subject.sample(cell, passes));
            let sample = match sample {
                Ok(sample) => sample,
                Err(error) => break Err(LabError::from(error)),
            };
            if sample.elapsed >= self.wanted {
                if confirmed {
                    break subject.verify(cell).map_err(LabError::from);
                }
                // Where another program had the CPU meanwhile, a few passes looked long: they have to be long twice.
                confirmed = true;
                continue;
            }
            confirmed = false;
            if passes >= MOST_PASSES {
                break Err(LabError::Plan(format!(
                    "{passes} passes took {:?}: too little to be timed",
                    sample.elapsed
                )));
            }
            // The first passes are the slowest, so what they promise is too little: never less than twice, and never so
            // much that a wrong promise is a long wait.
            let promised = self.wanted.as_secs_f64() / sample.elapsed.as_secs_f64().max(1e-9) * 1.1;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 2 and 16")]
            let factor = promised.clamp(2.0, 16.0).ceil() as u64;
            passes *= factor;
        };
        self.cells[cell].passes = passes;
        // Who wants to stop has no failed cell to hear of.
        if let Some(error) = outcome.err().filter(|error| !error.is_interrupt()) {
            self.cells[cell].out = true;
            let run = self.run(cell, None, subject, bench);
            self.runs.push(Run { status: Status::Failed, failure: Some(failure(&error)), ..run });
        }
    }

    /// Takes a sample of a cell; again where another program had the CPU meanwhile, which says nothing of the cell.
    fn sample(&mut self, cell: usize, subject: &mut dyn Subject, bench: &dyn Bench) {
        let begun = bench.now();
        for _ in 0..TRIES {
            let run = self.run(cell, Some(self.rounds), subject, bench);
            let prepared = subject.prepare(cell);
            let before = bench.preemptions();
            let sample = prepared.and_then(|()| subject.sample(cell, self.cells[cell].passes));
            let lost = bench.preemptions().saturating_sub(before);
            let outcome = sample.map_err(LabError::from).and_then(|sample| self.long_enough(sample));
            let state = &mut self.cells[cell];
            let (run, again) = match outcome {
                Err(error) if error.is_interrupt() => return,
                Ok(sample) if let Some(time) = lost_much(&sample).filter(|_| lost > 0) => {
                    self.lost += time;
                    let failure = Failure { exit: 1, text: taken(self.cpu, time) };
                    let readings = subject.readings(cell, &sample);
                    (Run { status: Status::Void, failure: Some(failure), readings, ..run }, true)
                }
                Ok(sample) if self.emulator.is_some() => {
                    let text = self.emulator.clone().unwrap_or_default();
                    let readings = subject.readings(cell, &sample);
                    let failure = Some(Failure { exit: 1, text });
                    (Run { status: Status::Void, failure, readings, ..run }, false)
                }
                Ok(sample) => {
                    state.failed = 0;
                    (Run { readings: subject.readings(cell, &sample), ..run }, false)
                }
                Err(error) => {
                    state.failed += 1;
                    state.out = state.failed >= GIVE_UP_AFTER;
                    (Run { status: Status::Failed, failure: Some(failure(&error)), ..run }, false)
                }
            };
            self.runs.push(run);
            if !again || bench.now().since(begun) > TRIED_FOR {
                return;
            }
        }
    }

    fn long_enough(&self, sample: Sample) -> Result<Sample, LabError> {
        let least = self.step * FEWEST_STEPS;
        if sample.elapsed >= least {
            return Ok(sample);
        }
        Err(LabError::Workload(haul_workload::WorkloadError::Invalid(format!(
            "a sample took {:?}, less than {FEWEST_STEPS} steps of the clock ({least:?})",
            sample.elapsed
        ))))
    }

    /// Looks at what a cell moved, and voids its samples where it is not what it should be.
    fn check(&mut self, cell: usize, subject: &mut dyn Subject) {
        if self.cells[cell].out {
            return;
        }
        let Err(error) = subject.verify(cell).map_err(LabError::from) else { return };
        if error.is_interrupt() {
            return;
        }
        self.cells[cell].out = true;
        let failure = failure(&error);
        let levels = &subject.cells()[cell];
        let of_cell =
            self.runs.iter_mut().filter(|run| run.cell == *levels && run.status == Status::Complete);
        for run in of_cell {
            (run.status, run.failure) = (Status::Void, Some(failure.clone()));
        }
    }

    fn run(&self, cell: usize, round: Option<u32>, subject: &dyn Subject, bench: &dyn Bench) -> Run {
        Run {
            index: u32::try_from(self.runs.len()).unwrap_or(u32::MAX),
            arm: None,
            block: round,
            cell: subject.cells()[cell].clone(),
            profiled: false,
            status: Status::Complete,
            failure: None,
            at_s: bench.now().since(self.started).as_secs_f64(),
            // What was in force is in force for all of them.
            effective: Json::Null,
            readings: Vec::new(),
            intervals: Vec::new(),
            counts: Vec::new(),
            profiles: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// What was in force: the subject's own, and how it was sampled.
    fn effective(&self, subject: &dyn Subject) -> Json {
        let mut effective = match subject.effective() {
            Json::Object(fields) => fields,
            other => BTreeMap::from([("subject".to_owned(), other)]).into_iter().collect(),
        };
        let passes: Vec<u64> = self.cells.iter().map(|cell| cell.passes).collect();
        let sampling = json!({
            "cpu": self.cpu,
            "rounds": self.rounds,
            "clock_step_s": self.step.as_secs_f64(),
            "sample_s": self.wanted.as_secs_f64(),
            "passes": passes,
        });
        effective.insert("sampling".to_owned(), sampling);
        Json::Object(effective)
    }
}

fn failure(error: &LabError) -> Failure {
    Failure { exit: error.exit(), text: error.to_string() }
}

/// The smallest step of the clock that can be seen: the least difference of two reads that differ.
fn clock_step(bench: &dyn Bench) -> Result<Duration, LabError> {
    let mut before = bench.now();
    let mut least = None;
    for _ in 0..CLOCK_READS {
        let now = bench.now();
        let step = now.since(before);
        if step > Duration::ZERO {
            least = Some(least.map_or(step, |least: Duration| least.min(step)));
        }
        before = now;
    }
    least.ok_or_else(|| LabError::Setup {
        what: "a survey".to_owned(),
        why: format!(
            "the monotonic clock stood still over {CLOCK_READS} reads: this host cannot time anything"
        ),
    })
}

#[cfg(test)]
mod tests;
