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
}

impl Mock {
    fn new(clock: &Clock) -> Self {
        Self { clock: clock.clone(), pinned: None, governors: vec!["performance"], still: false }
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
        let elapsed = Duration::from_nanos(self.nanos[cell] * passes);
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
        budget: Duration::from_secs(3600),
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
        let distinct: std::collections::BTreeSet<&Cell> = order.iter().copied().collect();
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
