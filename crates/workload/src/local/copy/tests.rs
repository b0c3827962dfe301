use haul_host::probe::counters::Cycles;
use haul_host::signal::Stop;
use haul_stats::Value;

use super::*;

/// Counts so much more with every read.
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
    subject.ceilings = Ceilings::measure(here().cpus()[0], &Stop::never().expect("stop")).expect("memory");
    let point = subject.points[0];
    let at = |nanos| Sample {
        elapsed: Duration::from_nanos(nanos),
        bytes: ByteCount(1 << 30),
        ..Sample::default()
    };
    let error = subject.plausible(&point, &at(10)).expect_err("a gigabyte in 10 ns").to_string();
    assert!(error.contains("bytes copied 4096 bytes at") && error.contains("not timed"), "{error}");
    subject.plausible(&point, &at(10_000_000_000)).expect("a gigabyte in 10 s");
    let share = value(&subject.readings(0, &at(10_000_000_000)), Metric::CeilingShare).expect("a ceiling");
    assert!(share > 0.0 && share < 100.0, "{share}");
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
    if cpus > 1 {
        assert!(
            subject.effective()["common_window"].as_f64().is_some_and(|common| (0.0..=1.0).contains(&common))
        );
    }
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
