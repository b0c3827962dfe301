//! What a survey promises, held against a subject without memory and a clock of its own.

use std::cell::Cell as Shared;
use std::rc::Rc;

use haul_host::signal::Signal;
use haul_stats::{ByteCount, Cell, CellValue, Reading};
use haul_workload::WorkloadError;
use haul_workload::local;

use super::*;

/// Time that passes only where something says so.
#[derive(Clone, Default)]
struct Clock(Rc<Shared<u64>>);

impl Clock {
    fn pass(&self, time: Duration) {
        self.0.set(self.0.get() + u64::try_from(time.as_nanos()).unwrap());
    }
}

/// A host whose clock has steps of 25 ns, one for each read.
struct Mock {
    clock: Clock,
    pinned: Option<u32>,
    /// The facts, one after the other.
    governors: Vec<&'static str>,
    still: bool,
    /// Asked for twice a sample: how often the CPU was lost, by the answer's number.
    asked: Shared<u64>,
    lost: fn(u64) -> u64,
    emulated: bool,
}

impl Mock {
    fn new(clock: &Clock) -> Self {
        Self {
            clock: clock.clone(),
            pinned: None,
            governors: vec!["performance"],
            still: false,
            asked: Shared::new(0),
            lost: |_| 0,
            emulated: false,
        }
    }
}

impl Bench for Mock {
    fn now(&self) -> MonoNanos {
        if !self.still {
            self.clock.pass(Duration::from_nanos(25));
        }
        MonoNanos(self.clock.0.get())
    }

    fn pin(&mut self, wanted: Option<u32>) -> Result<u32, LabError> {
        self.pinned = Some(wanted.unwrap_or(3));
        Ok(self.pinned.unwrap())
    }

    fn emulator(&self) -> Option<String> {
        self.emulated.then(|| "this is a program for riscv64 under emulation".to_owned())
    }

    fn preemptions(&self) -> u64 {
        self.asked.set(self.asked.get() + 1);
        (self.lost)(self.asked.get())
    }

    fn facts(&mut self) -> Result<Facts, LabError> {
        let governor = if self.governors.len() > 1 { self.governors.remove(0) } else { self.governors[0] };
        let fact = haul_results::record::Fact { value: Some(governor.to_owned()), reason: None };
        Ok(Facts::from([("cpu.governor".to_owned(), fact)]))
    }
}

/// Cells that take so many nanoseconds for a pass.
struct Rack {
    cells: Vec<Cell>,
    nanos: Vec<u64>,
    clock: Clock,
    stop: Stop,
    log: Vec<String>,
    refuse: Option<usize>,
    /// From which sample on the cell fails.
    breaks: Option<(usize, usize)>,
    /// The cell that moves something else, and after how many looks.
    wrong: Option<(usize, usize)>,
    looks: usize,
    stop_after: Option<usize>,
    samples: usize,
    /// The sample that another program made long.
    disturbed: Option<usize>,
}

impl Rack {
    fn new(clock: &Clock, nanos: &[u64]) -> Self {
        let cell = |offset: u64| Cell::from([("offset_bytes".to_owned(), CellValue::Int(offset))]);
        Self {
            cells: (0..nanos.len() as u64).map(cell).collect(),
            nanos: nanos.to_vec(),
            clock: clock.clone(),
            stop: Stop::never().unwrap(),
            log: Vec::new(),
            refuse: None,
            breaks: None,
            wrong: None,
            looks: 0,
            stop_after: None,
            samples: 0,
            disturbed: None,
        }
    }
}

impl Subject for Rack {
    fn cells(&self) -> &[Cell] {
        &self.cells
    }

    fn prepare(&mut self, cell: usize) -> Result<(), WorkloadError> {
        self.log.push(format!("prepare {cell}"));
        // Longer than any sample: it must not be in them.
        self.clock.pass(Duration::from_millis(20));
        if self.refuse == Some(cell) {
            return Err(WorkloadError::Invalid("the source is not in the page cache: warm it".to_owned()));
        }
        Ok(())
    }

    fn sample(&mut self, cell: usize, passes: u64) -> Result<Sample, WorkloadError> {
        self.log.push(format!("sample {cell} × {passes}"));
        self.samples += 1;
        if self.stop_after == Some(self.samples) {
            self.stop.request(Signal::Int);
        }
        if self.breaks.is_some_and(|(which, from)| which == cell && self.samples >= from) {
            return Err(WorkloadError::Invalid("the file shrank".to_owned()));
        }
        let lost =
            if self.disturbed == Some(self.samples) { Duration::from_millis(4) } else { Duration::ZERO };
        let elapsed = Duration::from_nanos(self.nanos[cell] * passes) + lost;
        self.clock.pass(elapsed);
        Ok(Sample { passes, elapsed, bytes: ByteCount(4096 * passes), calls: passes, ..Sample::default() })
    }

    fn verify(&mut self, cell: usize) -> Result<(), WorkloadError> {
        self.looks += 1;
        match self.wrong {
            Some((which, after)) if which == cell && self.looks > after => {
                Err(WorkloadError::Invalid("byte 7 differs".to_owned()))
            }
            _ => Ok(()),
        }
    }

    fn readings(&self, _cell: usize, sample: &Sample) -> Vec<Reading> {
        local::rates(sample)
    }

    fn effective(&self) -> Json {
        json!({"pages": "4k"})
    }
}

fn survey() -> Survey {
    Survey {
        rounds: 8,
        sample: Duration::from_millis(1),
        budget: Duration::from_hours(1),
        seed: 7,
        pin: None,
        requested: json!({"seed": 7}),
    }
}

fn made(survey: &Survey, rack: &mut Rack) -> Measured {
    let mut bench = Mock::new(&rack.clock);
    let stop = rack.stop.clone();
    run(survey, rack, &mut bench, &stop, &mut |_: &Event<'_>| {})
}

#[test]
fn every_round_samples_every_cell_once_in_an_order_of_its_own() {
    let clock = Clock::default();
    let mut rack = Rack::new(&clock, &[1000, 2000, 4000, 8000, 1000]);
    let measured = made(&survey(), &mut rack);
    assert_eq!((measured.status, &measured.failure), (Status::Complete, &None));
    assert_eq!(measured.runs.len(), 5 * 8);
    let mut orders = Vec::new();
    for round in measured.runs.chunks(5) {
        assert!(round.iter().all(|run| run.block == round[0].block && run.status == Status::Complete));
        let order: Vec<&Cell> = round.iter().map(|run| &run.cell).collect();
        let distinct: BTreeSet<&Cell> = order.iter().copied().collect();
        assert_eq!(distinct.len(), 5);
        orders.push(order);
    }
    assert!(orders.windows(2).any(|pair| pair[0] != pair[1]), "the order is drawn anew");
    // What prepares a cell comes before every sample, and nothing between.
    let of = |entry: &String| entry.split(' ').take(2).map(str::to_owned).collect::<Vec<_>>();
    for pair in rack.log.chunks(2) {
        let (first, second) = (of(&pair[0]), of(&pair[1]));
        assert_eq!((first[0].as_str(), second[0].as_str()), ("prepare", "sample"));
        assert_eq!(first[1], second[1]);
    }
    let again = made(&survey(), &mut Rack::new(&Clock::default(), &[1000, 2000, 4000, 8000, 1000]));
    let order = |measured: &Measured| measured.runs.iter().map(|run| run.cell.clone()).collect::<Vec<_>>();
    assert_eq!(order(&measured), order(&again), "a seed repeats its order");
}

#[test]
fn a_sample_is_as_long_as_asked_and_what_prepares_it_is_not_in_it() {
    let mut rack = Rack::new(&Clock::default(), &[10, 1_000_000, 50_000_000]);
    let measured = made(&survey(), &mut rack);
    let rate = |offset: u64| -> Vec<f64> {
        let of = |run: &&Run| run.cell["offset_bytes"] == CellValue::Int(offset);
        measured.runs.iter().filter(of).map(|run| run.readings[0].value.unwrap().as_f64()).collect()
    };
    // 4,096 bytes a pass, whatever the 20 ms of preparation.
    assert!(rate(0).iter().all(|rate| (rate / (4096.0 / 10e-9) - 1.0).abs() < 1e-6), "{:?}", rate(0));
    assert!(rate(2).iter().all(|rate| (rate / (4096.0 / 50e-3) - 1.0).abs() < 1e-6));
    let passes: Vec<u64> =
        serde_json::from_value(measured.options.effective["sampling"]["passes"].clone()).unwrap();
    assert!(
        passes[0] >= 100_000 && passes[0] < 250_000,
        "a millisecond of 10 ns, and not far more: {passes:?}"
    );
    assert_eq!(passes[1..], [1, 1]);
    assert_eq!(measured.options.effective["pages"], "4k", "the subject's own is there as well");
}

#[test]
fn no_sample_is_shorter_than_a_thousand_steps_of_the_clock() {
    let clock = Clock::default();
    let mut rack = Rack::new(&clock, &[7]);
    let short = Survey { sample: Duration::from_nanos(1), ..survey() };
    let measured = made(&short, &mut rack);
    let sampling = &measured.options.effective["sampling"];
    let near = |name: &str, wanted: f64| (sampling[name].as_f64().unwrap() - wanted).abs() < 1e-12;
    assert!(near("clock_step_s", 25e-9) && near("sample_s", 25e-6), "{sampling}");
    assert!(sampling["passes"][0].as_u64().unwrap() * 7 >= 25_000);

    let mut bench = Mock { still: true, ..Mock::new(&clock) };
    let stop = Stop::never().unwrap();
    let measured = run(&survey(), &mut rack, &mut bench, &stop, &mut |_: &Event<'_>| {});
    let failure = measured.failure.expect("nothing can be timed");
    assert!(failure.text.contains("the monotonic clock stood still"), "{}", failure.text);
}

#[test]
fn a_sample_that_came_out_too_short_is_kept_and_does_not_count() {
    /// Fast once it is calibrated.
    struct Sudden(Rack);
    impl Subject for Sudden {
        fn cells(&self) -> &[Cell] {
            self.0.cells()
        }
        fn prepare(&mut self, cell: usize) -> Result<(), WorkloadError> {
            self.0.prepare(cell)
        }
        fn sample(&mut self, cell: usize, passes: u64) -> Result<Sample, WorkloadError> {
            let sample = self.0.sample(cell, passes)?;
            Ok(if cell == 0 && self.0.samples == 12 {
                Sample { elapsed: Duration::from_micros(24), ..sample }
            } else {
                sample
            })
        }
        fn readings(&self, cell: usize, sample: &Sample) -> Vec<Reading> {
            self.0.readings(cell, sample)
        }
        fn effective(&self) -> Json {
            Json::Null
        }
    }
    let clock = Clock::default();
    let mut sudden = Sudden(Rack::new(&clock, &[1_000_000]));
    let stop = Stop::never().unwrap();
    let more = Survey { rounds: 20, ..survey() };
    let measured = run(&more, &mut sudden, &mut Mock::new(&clock), &stop, &mut |_: &Event<'_>| {});
    assert_eq!(measured.status, Status::Complete);
    let failed: Vec<&Run> = measured.runs.iter().filter(|run| run.status == Status::Failed).collect();
    assert_eq!((failed.len(), measured.runs.len()), (1, 20));
    let text = &failed[0].failure.as_ref().unwrap().text;
    assert!(text.contains("24µs, less than 1000 steps of the clock (25µs)"), "{text}");
    assert!(failed[0].readings.is_empty());
    assert!(
        measured
            .warnings
            .iter()
            .any(|doubt| doubt.id == DoubtId::FailedRuns && doubt.text.starts_with("1 of 20 samples"))
    );
}

#[test]
fn a_sample_that_lost_its_cpu_is_void_and_taken_again_but_not_without_end() {
    let clock = Clock::default();
    let stop = Stop::never().unwrap();
    let once = Survey { rounds: 1, ..survey() };
    // Lost once, in the middle of the first sample.
    let mut bench = Mock { lost: |asked| u64::from(asked > 1), ..Mock::new(&clock) };
    let measured = run(&once, &mut Rack::new(&clock, &[1000]), &mut bench, &stop, &mut |_: &Event<'_>| {});
    let statuses: Vec<Status> = measured.runs.iter().map(|run| run.status).collect();
    assert_eq!((measured.status, statuses), (Status::Complete, vec![Status::Void, Status::Complete]));
    assert!(measured.runs[0].failure.as_ref().unwrap().text.contains("had CPU 3"));
    let doubt = measured.warnings.iter().find(|doubt| doubt.id == DoubtId::OtherLoad).expect("it says so");
    assert!(
        doubt.text.starts_with("1 of 2 samples are void: other programs had CPU 3 for "),
        "{}",
        doubt.text
    );
    let void = measured.runs.iter().find(|run| run.status == Status::Void).expect("it is kept");
    let why = &void.failure.as_ref().expect("why").text;
    assert!(why.starts_with("another program had CPU 3 for ") && why.contains("ms"), "{why}");

    let mut busy = Mock { lost: |asked| asked, ..Mock::new(&clock) };
    let measured = run(&once, &mut Rack::new(&clock, &[1000]), &mut busy, &stop, &mut |_: &Event<'_>| {});
    // Each try takes 20 ms to prepare.
    assert_eq!(measured.runs.len(), 5);
    assert!(measured.runs.iter().all(|run| run.status == Status::Void));
    assert_eq!(measured.status, Status::Failed, "there is no number");
    assert!(measured.failure.unwrap().text.contains("had CPU 3"));
}

#[test]
fn a_cpu_that_was_lost_for_a_moment_only_voids_nothing() {
    let sample = |cpu| Sample { elapsed: Duration::from_millis(100), thread_cpu: cpu, ..Sample::default() };
    assert!(
        lost_much(&sample(Some(Duration::from_micros(99_600)))).is_none()
            && lost_much(&sample(Some(Duration::from_secs(1)))).is_none()
    );
    assert_eq!(lost_much(&sample(Some(Duration::from_micros(99_400)))), Some(Duration::from_micros(600)));
    assert_eq!(lost_much(&sample(None)), Some(Duration::from_millis(100)), "unknown is all of it");
    let helped = Sample { worker_cpu: Duration::from_millis(90), ..sample(Some(Duration::from_millis(10))) };
    assert_eq!(lost_much(&helped), None, "who waits for a thread of the kernel's has lost nothing");
}

#[test]
fn a_cell_that_cannot_be_measured_says_why_and_the_others_go_on() {
    let mut rack = Rack::new(&Clock::default(), &[1000, 2000, 3000]);
    rack.refuse = Some(1);
    let measured = made(&survey(), &mut rack);
    assert_eq!(measured.status, Status::Complete);
    let (failed, counted): (Vec<&Run>, Vec<&Run>) =
        measured.runs.iter().partition(|run| run.status == Status::Failed);
    assert_eq!((failed.len(), counted.len()), (1, 2 * 8), "it is not tried again");
    assert!(failed[0].failure.as_ref().unwrap().text.contains("not in the page cache: warm it"));
    assert_eq!(failed[0].block, None, "it never came into a round");

    let mut alone = Rack::new(&Clock::default(), &[1000]);
    alone.refuse = Some(0);
    let measured = made(&survey(), &mut alone);
    let failure = measured.failure.expect("nothing is left");
    assert_eq!((measured.status, failure.exit), (Status::Failed, 1));
    assert!(failure.text.contains("not in the page cache: warm it"), "{}", failure.text);
    assert_eq!(measured.runs.len(), 1);
}

#[test]
fn a_cell_that_fails_three_times_in_a_row_is_left_alone() {
    let mut rack = Rack::new(&Clock::default(), &[1_000_000, 2_000_000]);
    rack.breaks = Some((0, 8));
    let measured = made(&survey(), &mut rack);
    let failed = measured.runs.iter().filter(|run| run.status == Status::Failed).count();
    assert_eq!((measured.status, failed), (Status::Complete, 3));
    let of_other = measured.runs.iter().filter(|run| run.cell["offset_bytes"] == CellValue::Int(1)).count();
    assert_eq!(of_other, 8);

    let mut rack = Rack::new(&Clock::default(), &[1_000_000]);
    rack.breaks = Some((0, 4));
    let measured = made(&survey(), &mut rack);
    assert_eq!(measured.status, Status::Failed, "with the last cell the survey fails");
    assert!(measured.failure.unwrap().text.contains("the file shrank"));
    assert!(measured.runs.iter().any(|run| run.status == Status::Complete), "what there is stands");
}

#[test]
fn what_was_moved_wrongly_voids_all_samples_of_its_cell() {
    // Three looks in the calibration, and then at the end again.
    let mut rack = Rack::new(&Clock::default(), &[1000, 2000, 3000]);
    rack.wrong = Some((1, 3));
    let measured = made(&survey(), &mut rack);
    assert_eq!(measured.status, Status::Complete);
    for run in &measured.runs {
        let wrong = run.cell["offset_bytes"] == CellValue::Int(1);
        assert_eq!(run.status, if wrong { Status::Void } else { Status::Complete });
        assert_eq!(
            run.failure.as_ref().map(|failure| failure.text.contains("byte 7")),
            wrong.then_some(true)
        );
    }
    let mut early = Rack::new(&Clock::default(), &[1000, 2000]);
    early.wrong = Some((1, 0));
    let measured = made(&survey(), &mut early);
    assert_eq!(
        measured.runs.iter().filter(|run| run.status == Status::Failed).count(),
        1,
        "found while calibrating"
    );
}

#[test]
fn a_stop_between_samples_keeps_what_there_is() {
    let mut rack = Rack::new(&Clock::default(), &[1_000_000, 1_000_000]);
    rack.stop_after = Some(9);
    let measured = made(&survey(), &mut rack);
    assert_eq!((measured.status, &measured.failure), (Status::Interrupted, &None));
    let complete = measured.runs.iter().filter(|run| run.status == Status::Complete).count();
    assert!(complete > 0 && complete == measured.runs.len());
    let doubt = measured.warnings.iter().find(|doubt| doubt.id == DoubtId::Interrupted).expect("it says so");
    assert!(doubt.text.contains(&format!("after {complete} samples of 16")), "{}", doubt.text);
}

#[test]
fn the_budget_ends_a_survey_after_a_whole_round_and_never_before_an_interval_can_be_had() {
    let endless = Survey { rounds: 1000, ..survey() };
    let rounds = |budget| {
        let mut rack = Rack::new(&Clock::default(), &[1_000_000, 1_000_000]);
        let measured = made(&Survey { budget, ..endless.clone() }, &mut rack);
        assert_eq!(measured.status, Status::Complete);
        assert_eq!(measured.runs.len() % 2, 0, "whole rounds");
        assert_eq!(
            measured.options.effective["sampling"]["rounds"].as_u64(),
            Some(measured.runs.len() as u64 / 2)
        );
        (measured.runs.len() / 2, measured.elapsed)
    };
    assert_eq!(rounds(Duration::ZERO).0, FEWEST_ROUNDS as usize);
    let (made, elapsed) = rounds(Duration::from_secs(2));
    // A round takes 42 ms, and the calibration as much.
    assert!((44..=47).contains(&made) && elapsed <= Duration::from_secs(2), "{made} in {elapsed:?}");
}

#[test]
fn it_is_pinned_and_the_host_that_changed_meanwhile_is_doubted() {
    let clock = Clock::default();
    let mut bench = Mock { governors: vec!["performance", "powersave"], ..Mock::new(&clock) };
    let stop = Stop::never().unwrap();
    let mut rack = Rack::new(&clock, &[1000]);
    let measured =
        run(&Survey { pin: Some(1), ..survey() }, &mut rack, &mut bench, &stop, &mut |_: &Event<'_>| {});
    assert_eq!((bench.pinned, &measured.options.effective["sampling"]["cpu"]), (Some(1), &json!(1)));
    let doubt =
        measured.warnings.iter().find(|doubt| doubt.id == DoubtId::EnvironmentChanged).expect("it says so");
    assert!(doubt.text.contains("cpu.governor: performance → powersave"), "{}", doubt.text);
    assert!(doubt.advice.contains("repeat it"));
    let quiet = made(&survey(), &mut Rack::new(&Clock::default(), &[1000]));
    assert!(quiet.warnings.is_empty(), "{:?}", quiet.warnings);
    assert_eq!(quiet.options.effective["sampling"]["cpu"], 3);
    assert!(quiet.environment.client.is_some() && quiet.environment.server.is_none());
}

#[test]
fn who_watches_hears_of_every_sample_and_of_the_time_left() {
    let clock = Clock::default();
    let mut rack = Rack::new(&clock, &[1_000_000, 1_000_000]);
    let stop = Stop::never().unwrap();
    let (mut tried, mut begun, mut ended) = (Vec::new(), Vec::new(), 0);
    let mut watch = |event: &Event<'_>| match event {
        Event::Calibrating { number, of, .. } => tried.push((*number, *of)),
        Event::Begins { number, of, block, left, .. } => begun.push((*number, *of, *block, *left)),
        Event::Ended(_) => ended += 1,
        _ => {}
    };
    run(&survey(), &mut rack, &mut Mock::new(&clock), &stop, &mut watch);
    assert_eq!(tried, [(1, 2), (2, 2)]);
    assert_eq!((begun.len(), ended), (16, 16));
    assert!(
        begun
            .iter()
            .enumerate()
            .all(|(index, seen)| (seen.0, seen.1, seen.2 as usize) == (index + 1, 16, index / 2))
    );
    let lefts: Vec<Duration> = begun.iter().skip(1).map(|seen| seen.3).collect();
    assert!(lefts.windows(2).all(|pair| pair[1] <= pair[0] + Duration::from_millis(1)), "{lefts:?}");
    assert!(lefts[14] < Duration::from_millis(30), "{lefts:?}");
}

#[test]
fn what_cannot_be_surveyed_is_refused_before_anything_is_touched() {
    for (cells, rounds) in [(0, 8), (3, 100_000)] {
        let mut rack = Rack::new(&Clock::default(), &vec![1000; cells]);
        let measured = made(&Survey { rounds, ..survey() }, &mut rack);
        let failure = measured.failure.expect("refused");
        assert_eq!(failure.exit, 2);
        assert!(failure.text.contains("fewer values or --rounds"), "{}", failure.text);
        assert!(rack.log.is_empty());
    }
}

#[test]
fn a_calibration_that_lost_its_cpu_makes_no_samples_that_are_too_short() {
    let clock = Clock::default();
    for disturbed in 1..4 {
        let mut rack = Rack { disturbed: Some(disturbed), ..Rack::new(&clock, &[100, 1_000]) };
        let stop = rack.stop.clone();
        let measured = run(&survey(), &mut rack, &mut Mock::new(&clock), &stop, &mut |_: &Event<'_>| {});
        let complete = measured.runs.iter().filter(|run| run.status == Status::Complete).count();
        assert_eq!(complete, 16, "{:?}", measured.runs.iter().find_map(|run| run.failure.clone()));
    }
}

#[test]
fn this_host_has_a_clock_a_cpu_and_facts() {
    let mut host = ThisHost;
    let step = clock_step(&host).expect("a clock that goes");
    assert!(step < Duration::from_micros(100), "{step:?}");
    std::thread::scope(|scope| {
        let pinned =
            scope.spawn(|| (ThisHost.pin(None), ThisHost.pin(Some(8191)).map_err(|error| error.to_string())));
        let (last, absent) = pinned.join().expect("no panic");
        let cpus = thread::affinity_of_current().expect("affinity");
        assert_eq!(last.expect("pinned"), *cpus.cpus().last().expect("a CPU"));
        assert!(absent.expect_err("there is no such CPU").contains("--pin 8191"));
    });
    assert!(!host.facts().expect("facts").is_empty());
}

#[test]
fn times_under_emulation_are_kept_and_void_and_there_is_no_figure() {
    let clock = Clock::default();
    let mut rack = Rack::new(&clock, &[1000, 2000]);
    let mut bench = Mock { emulated: true, ..Mock::new(&clock) };
    let stop = rack.stop.clone();
    let measured = run(&survey(), &mut rack, &mut bench, &stop, &mut |_: &Event<'_>| {});
    assert_eq!(measured.status, Status::Failed);
    assert!(
        measured
            .failure
            .as_ref()
            .is_some_and(|failure| failure.exit == 1 && failure.text.contains("riscv64"))
    );
    assert!(measured.runs.iter().all(|run| run.status == Status::Void && !run.readings.is_empty()));
    assert!(measured.warnings.iter().any(|doubt| doubt.id == DoubtId::Emulated));
    let document =
        crate::record::Start::now().document(haul_results::record::Kind::Copy, Vec::new(), measured);
    assert!(document.cells.iter().all(|figure| figure.n == 0 && figure.reason.is_some()));
}

#[test]
fn cells_without_a_number_are_named_where_others_have_one() {
    let clock = Clock::default();
    let mut rack = Rack::new(&clock, &[1000, 2000, 3000]);
    rack.refuse = Some(1);
    let measured = made(&survey(), &mut rack);
    assert_eq!((measured.status, &measured.failure), (Status::Complete, &None));
    let named = measured.warnings.iter().find(|doubt| doubt.id == DoubtId::Unmeasured).expect("a doubt");
    assert!(
        named.text.starts_with("1 of 3 cells have no number: (offset 1); the first because"),
        "{}",
        named.text
    );
    assert!(named.text.contains("page cache"), "{}", named.text);
    let document =
        crate::record::Start::now().document(haul_results::record::Kind::Read, Vec::new(), measured);
    let without: Vec<_> = document.cells.iter().filter(|figure| figure.n == 0).collect();
    assert_eq!(without.len(), 1);
    assert!(without[0].reason.as_deref().is_some_and(|why| why.contains("page cache")));
}
