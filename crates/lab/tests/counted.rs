//! Cycles and instructions from counters that are injected, all the way: sample, record, JSON, text. Many machines have none.

use std::time::Duration;

use haul_host::probe::counters::{CountsCycles, Cycles};
use haul_host::signal::Stop;
use haul_host::thread;
use haul_lab::record::Start;
use haul_lab::runner::Event;
use haul_lab::survey::{self, Survey, ThisHost};
use haul_results::record::{Document, Kind, Status};
use haul_results::text::{self, Shape, Width};
use haul_results::{figures, json};
use haul_stats::{Metric, Value};
use haul_workload::local::copy::{Ceilings, CopySpec, CopySubject, Mover};
use serde_json::json;

/// A megacycle, and three mega-instructions, with every read: one before a sample and one after it.
struct Ticking(u64);

impl CountsCycles for Ticking {
    fn read(&mut self) -> Option<Cycles> {
        self.0 += 1;
        let at = self.0;
        Some(Cycles { cycles: at << 20, instructions: 3 * (at << 20), enabled: at, running: at })
    }
}

fn surveyed(counters: Result<Box<dyn CountsCycles>, String>) -> Document {
    let here = thread::affinity_of_current().expect("the CPUs of this thread");
    let movers = ["bytes", "words"].map(|name| name.parse::<Mover>().expect(name)).to_vec();
    let spec = CopySpec { movers, sizes: vec![4096], ..CopySpec::default() };
    let mut subject =
        CopySubject::counting(&spec, &here, None, Ceilings::sizes_only(0), counters).expect("fits");
    let survey = Survey {
        rounds: 7,
        sample: Duration::from_micros(200),
        budget: Duration::from_mins(1),
        seed: 3,
        pin: None,
        requested: json!({"routine": ["bytes", "words"], "size_bytes": [4096], "rounds": 7}),
    };
    let stop = Stop::never().expect("stop");
    let measured = survey::run(&survey, &mut subject, &mut ThisHost, &stop, &mut |_: &Event<'_>| {});
    Start::now().document(Kind::Copy, vec!["haul".to_owned(), "copy".to_owned()], measured)
}

#[test]
fn counted_cycles_and_instructions_go_through_the_record_the_json_and_the_text() {
    let document = surveyed(Ok(Box::new(Ticking(0))));
    assert_eq!(document.status, Status::Complete);
    let mut written = Vec::new();
    json::write(&document, &mut written).expect("written");
    let read = json::parse(std::str::from_utf8(&written).expect("UTF-8")).expect("read back");
    assert_eq!(read.cells, document.cells);
    let passes = document.options.effective["sampling"]["passes"].as_array().expect("passes").clone();
    for (cell, passes) in ["bytes", "words"].iter().zip(&passes) {
        let bytes = 4096.0 * passes.as_f64().expect("a number");
        for (metric, counted) in [
            (Metric::CyclesPerByte, f64::from(1 << 20)),
            (Metric::InstructionsPerByte, 3.0 * f64::from(1 << 20)),
        ] {
            let of_cell = |routine: &haul_stats::CellValue| routine.to_string() == *cell;
            let samples: Vec<f64> = read
                .runs
                .iter()
                .filter(|run| run.status == Status::Complete && of_cell(&run.cell["routine"]))
                .flat_map(|run| &run.readings)
                .filter(|reading| reading.metric == metric)
                .filter_map(|reading| reading.value.map(Value::as_f64))
                .collect();
            assert!(
                !samples.is_empty() && samples.iter().all(|of| (of - counted / bytes).abs() < 1e-9),
                "{samples:?}"
            );
            let figure =
                read.cells.iter().find(|figure| figure.metric == metric && of_cell(&figure.cell["routine"]));
            let figure = figure.expect("a figure");
            assert!((figure.median.expect("a median") - counted / bytes).abs() < 1e-9);
            assert_eq!(figure.n, samples.len() as u64);
        }
    }
    assert_eq!(read.cells, figures::cells(&read), "the figures are those of the runs");
    let text = text::survey(&read, None, Shape::Maps, Width(120));
    let shown = |words: &[&str]| words.iter().all(|word| text.contains(word));
    assert!(shown(&["cycles", "instructions", "cycles/B", "instructions/B"]), "{text}");
}

#[test]
fn without_counters_there_are_no_such_columns_and_the_record_says_why() {
    let document = surveyed(Err("no counter in tests".to_owned()));
    assert!(document.cells.iter().all(|figure| figure.metric != Metric::CyclesPerByte));
    assert_eq!(document.options.effective["counters"]["reason"], "no counter in tests");
    let share = document.cells.iter().find(|figure| figure.metric == Metric::CeilingShare).expect("a figure");
    assert_eq!((share.median, share.reason.as_deref()), (None, Some("no ceiling was measured")));
    assert!(!text::survey(&document, None, Shape::Rows, Width(120)).contains("cycles"));
}
