use std::time::Duration;

use haul_host::probe::counters::{CountsCycles, Cycles};
use haul_host::signal::Stop;
use haul_stats::Value;

use super::*;

/// Cycles so much more with every read.
struct Fake(u64);

impl CountsCycles for Fake {
    fn read(&mut self) -> Option<Cycles> {
        self.0 += 1;
        let at = self.0;
        Some(Cycles { cycles: 1000 * at, instructions: 3000 * at, enabled: at, running: at })
    }
}

fn here() -> CpuList {
    thread::affinity_of_current().expect("the CPUs of this thread")
}

fn subject(spec: &CopySpec) -> Result<CopySubject> {
    CopySubject::counting(spec, &here(), None, Ceilings::sizes_only(0), Err("no counter in tests".to_owned()))
}

fn spec(names: &str) -> CopySpec {
    CopySpec {
        movers: names.split(',').map(|name| name.parse().expect(name)).collect(),
        ..CopySpec::default()
    }
}

fn refused(spec: &CopySpec) -> String {
    match subject(spec) {
        Ok(_) => panic!("it was taken"),
        Err(error) => {
            assert_eq!(error.exit(), 2, "{error}");
            error.to_string()
        }
    }
}

fn value(readings: &[Reading], metric: Metric) -> Option<f64> {
    readings.iter().find(|reading| reading.metric == metric)?.value.map(Value::as_f64)
}

#[test]
fn what_cannot_be_measured_is_refused_with_its_option_and_the_remedy() {
    let cpus = here().cpus().len();
    for (spec, option, remedy) in [
        (CopySpec { offsets: vec![(64, 0)], ..spec("bytes") }, "--src-offset 64", "--distance"),
        (CopySpec { offsets: vec![(0, 4096)], ..spec("bytes") }, "--dst-offset 4096", "0 to 63"),
        (CopySpec { distances: vec![Some(4096)], ..spec("bytes") }, "--distance 4096", "0 to 4095"),
        (CopySpec { sizes: vec![0], ..spec("bytes") }, "--size 0", "1 byte"),
        (CopySpec { sizes: vec![u64::MAX], ..spec("bytes") }, "--size 1844", "8G"),
        (CopySpec { threads: vec![cpus + 1], ..spec("bytes") }, "--threads", "a CPU of its own"),
        (CopySpec { threads: vec![0], ..spec("bytes") }, "--threads 0", "give 1 to"),
        (CopySpec { overlap: Some(64), ..spec("libc") }, "libc promise nothing", "--overlap -64"),
        (CopySpec { overlap: Some(4096), ..spec("memmove") }, "--overlap 4096", "up to 4095 apart"),
        (
            CopySpec { overlap: Some(i64::MIN), ..spec("memmove") },
            "--overlap -9223372036854775808",
            "give less",
        ),
        (spec("memmove"), "--routine memmove", "give --overlap"),
        (CopySpec { overlap: Some(-64), shuffle: true, ..spec("bytes") }, "--overlap", "leave out"),
    ] {
        let text = refused(&spec);
        assert!(text.contains(option) && text.contains(remedy), "{option}, {remedy}: {text}");
    }
    for (name, says) in [("memcpy", "there is no routine 'memcpy'"), ("", "there is no routine ''")] {
        let text = name.parse::<Mover>().expect_err(name).to_string();
        assert!(text.contains(says) && text.contains("rep-movsb") == cfg!(target_arch = "x86_64"), "{text}");
    }
}

#[test]
fn every_routine_is_sampled_and_verified_in_every_state_its_size_fits() {
    let movers: Vec<Mover> = Mover::all().collect();
    // Cold memory is twice the last cache, which can be half a gigabyte: too much for a test.
    let caches = vec![CacheState::Hot, CacheState::L2, CacheState::Flushed];
    let spec = CopySpec {
        movers,
        sizes: vec![1, 200, 5000],
        offsets: vec![(0, 0), (3, 61)],
        caches,
        does: vec![Does::Copy, Does::CopyRead],
        ..CopySpec::default()
    };
    let mut subject = subject(&spec).expect("fits");
    let known = !haul_host::processor::caches(0).is_empty();
    let mut sampled = 0;
    for cell in 0..subject.cells().len() {
        if subject.points[cell].cache == CacheState::L2 && !known {
            assert!(subject.prepare(cell).is_err());
            continue;
        }
        subject.prepare(cell).expect("prepare");
        let sample = subject.sample(cell, 5).expect("sample");
        let size = subject.points[cell].size as u64;
        assert_eq!(
            (sample.bytes.0, sample.calls, sample.passes),
            (5 * size, 5, 5),
            "{:?}",
            subject.cells()[cell]
        );
        subject.verify(cell).expect("verify");
        sampled += 1;
    }
    assert!(sampled >= 6 * 2 * 2 * 2);
}

#[test]
fn checksums_have_three_ways_and_all_of_them_are_sampled() {
    let does = vec![Does::Sum, Does::CopySum, Does::Fused];
    let spec =
        CopySpec { movers: Mover::all_sums().collect(), sizes: vec![777], does, ..CopySpec::default() };
    let count = spec.movers.len();
    let mut subject = subject(&spec).expect("fits");
    assert_eq!(subject.cells().len(), 3 * count);
    for cell in 0..subject.cells().len() {
        subject.prepare(cell).expect("prepare");
        assert_eq!(subject.sample(cell, 3).expect("sample").bytes, ByteCount(3 * 777));
        subject.verify(cell).expect("verify");
    }
    let copies = CopySpec { does: vec![Does::Sum], ..spec_of_bytes() };
    assert!(refused(&copies).contains("nothing is left to measure"), "a copy routine sums nothing");
}

fn spec_of_bytes() -> CopySpec {
    spec("bytes")
}

#[test]
fn the_distance_is_drawn_anew_for_each_sample_or_as_asked_for_and_recorded() {
    let mut random = subject(&CopySpec { offsets: vec![(1, 5)], ..spec("bytes") }).expect("fits");
    let mut seen = std::collections::BTreeSet::new();
    random.prepare(0).expect("prepare");
    for _ in 0..20 {
        let sample = random.sample(0, 1).expect("sample");
        let distance = value(&random.readings(0, &sample), Metric::CopyDistance).expect("recorded");
        assert!(distance < 4096.0 && (distance % 64.0 - 4.0).abs() < 0.5, "{distance}");
        seen.insert(distance.to_bits());
    }
    assert!(seen.len() > 5, "{} distances in 20 samples", seen.len());
    let distances = vec![Some(0), Some(1), Some(4095)];
    let mut asked = subject(&CopySpec { offsets: vec![(3, 0)], distances, ..spec("bytes") }).expect("fits");
    for (cell, wanted) in [(0, 0.0), (1, 1.0), (2, 4095.0)] {
        asked.prepare(cell).expect("prepare");
        let sample = asked.sample(cell, 1).expect("sample");
        assert_eq!(value(&asked.readings(cell, &sample), Metric::CopyDistance), Some(wanted));
    }
}

#[test]
fn shuffled_lengths_are_up_to_the_size_and_counted_as_they_are() {
    let mut subject = subject(&CopySpec { sizes: vec![1000], shuffle: true, ..spec("bytes") }).expect("fits");
    subject.prepare(0).expect("prepare");
    let sample = subject.sample(0, 1024).expect("sample");
    let mean = sample.bytes.0 as f64 / 1024.0;
    // Log-uniform from 1 to 1000: (1000 - 1) / ln 1000 = 145.
    assert!((100.0..200.0).contains(&mean), "{mean} bytes on the average");
}

#[test]
fn overlapping_ends_are_for_those_who_promise_it_and_the_others_are_named() {
    let movers: Vec<Mover> = Mover::all().collect();
    let mut subject =
        subject(&CopySpec { movers, overlap: Some(-64), ..CopySpec::default() }).expect("some promise it");
    subject.prepare(0).expect("prepare");
    assert_eq!(subject.sample(0, 2).expect("sample").bytes, ByteCount(2 * 4096));
    let skipped = subject.effective()["skipped"]["routines"].clone();
    assert!(skipped.as_array().is_some_and(|names| names.contains(&json!("libc"))), "{skipped}");
}

#[test]
fn counters_are_readings_where_there_are_some_and_one_reason_where_there_are_none() {
    let count: Box<dyn CountsCycles> = Box::new(Fake(0));
    let mut counted =
        CopySubject::counting(&spec("bytes"), &here(), None, Ceilings::sizes_only(0), Ok(count))
            .expect("fits");
    counted.prepare(0).expect("prepare");
    let sample = counted.sample(0, 1).expect("sample");
    assert_eq!((sample.cycles, sample.instructions), (Some(1000), Some(3000)));
    assert_eq!(value(&counted.readings(0, &sample), Metric::CyclesPerByte), Some(1000.0 / 4096.0));
    let mut uncounted = subject(&spec("bytes")).expect("fits");
    uncounted.prepare(0).expect("prepare");
    let sample = uncounted.sample(0, 1).expect("sample");
    assert_eq!(value(&uncounted.readings(0, &sample), Metric::CyclesPerByte), None);
    assert_eq!(uncounted.effective()["counters"]["reason"], json!("no counter in tests"));
}

#[test]
fn the_record_says_which_code_ran_by_name_file_symbol_and_hash() {
    let subject = subject(&spec("bytes,best,libc")).expect("fits");
    let effective = subject.effective();
    let routines = effective["routines"].as_array().expect("a list").clone();
    assert_eq!(routines.len(), 3);
    let best = haul_copy::Routine::best().name();
    assert_eq!((&routines[1]["asked"], &routines[1]["name"]), (&json!("best"), &json!(best)));
    assert_eq!(subject.cells()[1]["routine"].to_string(), "best", "a cell has the name that was asked for");
    for routine in &routines[..2] {
        assert_eq!(routine["code_hash"].as_str().map(str::len), Some(16), "{routine}");
        assert!(routine["symbol"].as_str().is_some_and(|symbol| symbol.contains("haul_copy")), "{routine}");
    }
    assert_ne!(routines[0]["code_hash"], routines[1]["code_hash"]);
    assert!(routines[2]["file"].as_str().is_some_and(|file| file.contains("libc")), "{}", routines[2]);
}

#[test]
fn a_rate_that_no_machine_reaches_is_no_sample() {
    let mut subject = subject(&spec("bytes")).expect("fits");
    let stop = Stop::never().expect("stop");
    let mut told = Vec::new();
    subject.ceilings =
        Ceilings::measure(here().cpus()[0], &[Level::L1], &stop, &mut |what| told.push(what.to_owned()))
            .expect("memory");
    assert!(told.iter().any(|what| what.contains("limits: copy in")), "{told:?}");
    let point = subject.points[0];
    let at = |nanos| Sample {
        elapsed: Duration::from_nanos(nanos),
        bytes: ByteCount(1 << 30),
        ..Sample::default()
    };
    let error = subject.plausible(&point, &at(10)).expect_err("a gigabyte in 10 ns").to_string();
    assert!(error.contains("bytes copied 4096 bytes at") && error.contains("not timed"), "{error}");
    subject.plausible(&point, &at(10_000_000_000)).expect("a gigabyte in 10 s");
}

#[test]
fn a_size_that_does_not_fit_a_cache_is_refused_and_the_smaller_one_goes_on() {
    if haul_host::processor::caches(0).is_empty() {
        return assert!(
            subject(&CopySpec { caches: vec![CacheState::L2], ..spec("bytes") }).unwrap().prepare(0).is_err()
        );
    }
    let spec = CopySpec { sizes: vec![64, 1 << 30], caches: vec![CacheState::L2], ..spec("bytes") };
    let mut subject = subject(&spec).expect("planned");
    subject.prepare(0).expect("64 bytes fit");
    let error = subject.prepare(1).expect_err("a gigabyte").to_string();
    assert!(error.contains("in the state 'l2'") && error.contains("smaller --size"), "{error}");
}

#[test]
fn threads_copy_at_once_and_their_rates_add_up() {
    let cpus = here().cpus().len();
    let mut subject =
        subject(&CopySpec { sizes: vec![1 << 16], threads: vec![cpus], ..spec("best") }).expect("fits");
    subject.prepare(0).expect("prepare");
    let sample = subject.sample(0, 2000).expect("sample");
    assert!(sample.bytes.0 > 0 && sample.calls > 0);
    assert!(sample.thread_cpu.is_some(), "else every sample would count as disturbed");
    let cpu = subject.readings(0, &sample).into_iter().find(|reading| reading.metric == Metric::CopyCpu);
    assert!(cpu.is_none() || cpus == 1, "one thread's is not that of all");
    if cpus > 1 {
        assert_eq!(
            subject.effective()["common_window"],
            Json::Null,
            "what is tried before the rounds is no sample"
        );
        subject.round(0).expect("a round");
        subject.sample(0, 2000).expect("sample");
        let effective = subject.effective();
        assert!(effective["common_window"].as_f64().is_some_and(|common| (0.0..=1.0).contains(&common)));
        assert_eq!(effective["cpus"].as_array().map(Vec::len), Some(cpus));
    }
}

#[test]
fn ends_that_share_bytes_are_moved_up_and_down_and_every_byte_is_looked_at() {
    for by in [-4000, -64, -1, 0, 1, 64, 4000] {
        let movers: Vec<Mover> = Mover::all_within().collect();
        let mut subject =
            subject(&CopySpec { movers, overlap: Some(by), ..CopySpec::default() }).expect("memmove does");
        let names: Vec<String> = subject.cells().iter().map(|cell| cell["routine"].to_string()).collect();
        assert!(names.iter().any(|name| name == "memmove"), "{by}: {names:?}");
        assert_eq!(names.len() == 1, by > 0, "upwards nobody else promises it: {by}: {names:?}");
        for (cell, name) in names.iter().enumerate() {
            subject.prepare(cell).expect("prepare");
            assert_eq!(subject.sample(cell, 3).expect("sample").bytes, ByteCount(3 * 4096));
            subject.verify(cell).unwrap_or_else(|error| panic!("{name} by {by}: {error}"));
            let share = &subject.concluding(cell, &[])[0];
            assert!(
                share.value.is_none() && share.reason.as_deref().is_some_and(|why| why.contains("apart"))
            );
        }
    }
    // Of several sizes those whose ends lie apart are left out, by name.
    let spec = CopySpec { sizes: vec![64, 4096], overlap: Some(-64), ..spec("memmove") };
    let subject = subject(&spec).expect("one is left");
    assert_eq!((subject.cells().len(), &subject.effective()["skipped"]["sizes"]), (1, &json!([64])));
}

#[test]
fn a_share_is_of_what_was_possible_in_the_same_rounds_and_no_cell_is_above_it() {
    let cpus = here();
    let spec = CopySpec {
        sizes: vec![64, 4096],
        does: vec![Does::Copy, Does::CopyRead],
        threads: if cpus.cpus().len() > 1 { vec![1, 2] } else { vec![1] },
        ..spec("best,bytes")
    };
    let mut subject = CopySubject::new(&spec, &cpus, cpus.cpus()[0]).expect("fits");
    let mut told = 0;
    subject.set_up(&Stop::never().expect("stop"), &mut |_| told += 1).expect("memory");
    assert!(told > 4);
    let cells = subject.cells().len();
    let mut rates = vec![Vec::new(); cells];
    for round in 0..3 {
        subject.round(round).expect("a round");
        for (cell, rates) in rates.iter_mut().enumerate() {
            subject.prepare(cell).expect("prepare");
            let sample = subject.sample(cell, 200).expect("sample");
            rates.push(sample.bytes.0 as f64 / sample.elapsed.as_secs_f64());
        }
    }
    let medians: Vec<Option<f64>> = rates
        .iter()
        .map(|rates| haul_stats::estimate::Summary::of(rates).map(|summary| summary.median))
        .collect();
    subject.settle(&medians);
    for (cell, median) in medians.iter().enumerate() {
        let reading = Reading::real(Metric::CopyRate, Scope::Run, median.expect("sampled"), "a median");
        let share = subject.concluding(cell, &[reading]).remove(0);
        if subject.points[cell].does == Does::CopyRead {
            assert!(share.value.is_none() && share.reason.is_some_and(|why| why.contains("read as well")));
            continue;
        }
        let value = share.value.map(Value::as_f64).expect("a share");
        assert!(value > 0.0 && value <= 100.0 + 1e-9, "{value}");
        let threads = subject.points[cell].threads;
        assert_eq!(share.source.contains("with 2 threads"), threads == 2, "{}", share.source);
    }
    // Where a cell is above all samples of the ceiling, the ceiling is the cell's, and says so.
    let faster: Vec<Option<f64>> = medians.iter().map(|_| Some(1e15)).collect();
    subject.settle(&faster);
    let share =
        subject.concluding(0, &[Reading::real(Metric::CopyRate, Scope::Run, 1e15, "a median")]).remove(0);
    assert_eq!(share.value.map(Value::as_f64), Some(100.0));
    assert!(share.source.contains("raised to the best cell's"), "{}", share.source);
    let ceilings = subject.effective()["ceilings"].clone();
    assert_eq!(ceilings[0]["rounds_bytes_per_second"].as_array().map(Vec::len), Some(3), "{ceilings}");
}

#[test]
fn sizes_around_the_last_cache_are_copied_with_and_without_a_reader_and_known_by_where_they_fit() {
    // A last level of 1 MiB stands for one of any size.
    const LLC: u64 = 1 << 20;
    let tenths = [1, 2, 5, 10, 20, 40];
    let spec = CopySpec {
        movers: Mover::all().filter(|mover| mover.name().ends_with("-nt")).chain([Mover::best()]).collect(),
        sizes: tenths.iter().map(|tenths| LLC * tenths / 10).collect(),
        does: vec![Does::Copy, Does::CopyRead],
        caches: vec![CacheState::Hot, CacheState::Cold],
        ..CopySpec::default()
    };
    let ceilings = Ceilings::of_sizes(64 << 10, LLC);
    let mut subject =
        CopySubject::counting(&spec, &here(), None, ceilings, Err("no counter in tests".to_owned()))
            .expect("fits");
    let mut seen = std::collections::BTreeSet::new();
    for cell in 0..subject.cells().len() {
        let point = subject.points[cell];
        let level = subject.ceilings.level_of(point.cache, 2 * point.size as u64);
        let fits = point.cache == CacheState::Hot && 2 * point.size as u64 <= LLC;
        assert_eq!(level, if fits { Level::Llc } else { Level::Dram }, "{:?}", subject.cells()[cell]);
        seen.insert((point.does, level.to_string()));
        subject.prepare(cell).expect("prepare");
        assert_eq!(subject.sample(cell, 2).expect("sample").bytes, ByteCount(2 * point.size as u64));
        subject.verify(cell).expect("verify");
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
}

#[test]
fn a_selection_is_of_this_cpu_or_refused() {
    let here = this_cpu().expect("this CPU has a name");
    let table = Selection::new(here, haul_copy::Routine::best());
    fits_here(&table).expect("made here");
    let other = haul_copy::selection::Cpu::new("elsewhere", here.numbers()).expect("a name");
    let error = fits_here(&Selection::new(other, haul_copy::Routine::best())).expect_err("made elsewhere");
    assert!(error.to_string().contains("elsewhere") && error.to_string().contains("--thresholds"), "{error}");
    let mut subject =
        subject(&CopySpec { movers: vec![Mover::selected(table)], ..CopySpec::default() }).expect("fits");
    subject.prepare(0).expect("prepare");
    assert_eq!(subject.sample(0, 3).expect("sample").bytes, ByteCount(3 * 4096));
    subject.verify(0).expect("verify");
}
