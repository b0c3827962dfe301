//! Profiles against what is known of the work: which function was hot, what the kernel copied, when nothing ran, and what `perf` says.

#[path = "common/work.rs"]
mod work;

use std::fs::File;
use std::hint::black_box;
use std::io::{Read as _, Seek as _, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haul_host::HostError;
use haul_host::probe::profile::{Class, Context, Profile, ProfileOptions, Profiler, Sampler, SymbolCost};

use work::{a_hot_loop, used};

/// A profile of the time that `work` takes.
fn profiled(options: &ProfileOptions, work: impl FnOnce()) -> Profile {
    let profiler = Profiler::start(options).expect("these tests want root, or CAP_PERFMON");
    profiler.mark_open();
    work();
    profiler.mark_close();
    profiler.finish().expect("samples")
}

fn own(profile: &Profile) -> impl Iterator<Item = &SymbolCost> {
    profile.symbols.iter().filter(|symbol| symbol.own)
}

fn share_of_own(profile: &Profile, wanted: impl Fn(&SymbolCost) -> bool) -> f64 {
    let sum = |of: &dyn Fn(&SymbolCost) -> bool| {
        own(profile).filter(|one| of(one)).map(|one| one.samples).sum::<u64>()
    };
    sum(&wanted) as f64 / sum(&|_| true).max(1) as f64
}

fn adds_up(profile: &Profile) {
    let listed: u64 = profile.symbols.iter().map(|symbol| symbol.samples).sum();
    assert_eq!(listed + profile.other + profile.idle, profile.samples, "{profile:?}");
    let classes: u64 = profile.classes.iter().map(|class| class.samples).sum();
    assert_eq!(classes + profile.idle, profile.samples);
    let stacks: u64 = profile.stacks.iter().map(|(_, samples)| samples).sum();
    if !profile.stacks.is_empty() {
        assert_eq!(stacks + profile.other_stacks + profile.idle, profile.samples);
    }
}

#[test]
fn a_hot_function_is_found_by_its_name_in_most_samples_of_this_process() {
    let _alone = alone();
    for call_chains in [false, true] {
        let options = ProfileOptions { call_chains, ..ProfileOptions::default() };
        let profile = profiled(&options, || spin(Duration::from_millis(500)));
        adds_up(&profile);
        let hot = |symbol: &SymbolCost| symbol.class == Class::User && symbol.symbol.contains("a_hot_loop");
        let share = share_of_own(&profile, hot);
        assert!(share > 0.8, "{share} of own samples, {:?}", own(&profile).take(8).collect::<Vec<_>>());
        let own_samples: u64 = own(&profile).map(|symbol| symbol.samples).sum();
        let expected = |share: f64| share * 0.5 * 997.0;
        let seen = (own_samples + profile.lost) as f64;
        assert!(
            seen > expected(0.8) && (own_samples as f64) < expected(1.3),
            "{own_samples} samples of half a second"
        );
        assert_eq!(profile.stacks.is_empty(), !call_chains);
        if call_chains {
            let folded = profile.folded();
            assert!(folded.lines().any(|line| line.contains("a_hot_loop")), "{folded}");
        }
        assert!(profile.build_ids.keys().any(|path| path.contains("profile")), "{:?}", profile.build_ids);
        let json = serde_json::to_string(&profile).expect("json");
        assert_eq!(serde_json::from_str::<Profile>(&json).expect("back"), profile);
    }
}

fn spin(time: Duration) {
    black_box(a_hot_loop(time));
}

/// The tests are threads of one process, and what is looked at is often that: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads `file` again and again.
fn read_for(file: &mut File, time: Duration) {
    let mut buffer = vec![0; 1 << 18];
    let end = used() + time;
    while used() < end {
        file.rewind().expect("rewind");
        file.read_exact(&mut buffer).expect("read");
    }
}

#[test]
fn what_the_kernel_copies_is_named_and_of_the_class_copy() {
    let _alone = alone();
    let mut file = tempfile::tempfile_in("/dev/shm").expect("a file in memory");
    file.write_all(&vec![7; 1 << 18]).expect("write");
    let profile = profiled(&ProfileOptions::default(), || read_for(&mut file, Duration::from_millis(400)));
    adds_up(&profile);
    let copies = share_of_own(&profile, |symbol| symbol.class == Class::Copy);
    assert!(copies > 0.25, "{copies}: {:?}", own(&profile).take(8).collect::<Vec<_>>());
    let named = own(&profile).find(|symbol| symbol.class == Class::Copy).expect("a copy");
    assert_eq!((named.module.as_str(), named.context), ("[kernel]", Context::Kernel), "{named:?}");
    assert!(
        profile.folded().lines().any(|line| line.contains("vfs_read_[k];") && line.contains(&named.symbol))
    );
    // And without copying none.
    let profile = profiled(&ProfileOptions::default(), || spin(Duration::from_millis(200)));
    let copies = share_of_own(&profile, |symbol| symbol.class == Class::Copy);
    assert!(copies < 0.1, "{copies}");
}

#[test]
fn a_host_that_sleeps_is_idle_and_one_that_works_is_not() {
    let _alone = alone();
    let options = ProfileOptions { events: vec![Sampler::CpuClock], ..ProfileOptions::default() };
    let asleep = profiled(&options, || std::thread::sleep(Duration::from_millis(400)));
    let awake = profiled(&options, || spin(Duration::from_millis(400)));
    let own_samples = |profile: &Profile| own(profile).map(|symbol| symbol.samples).sum::<u64>();
    assert!(own_samples(&asleep) < 40, "{:?}", asleep.symbols);
    assert!(own_samples(&awake) + awake.lost > 200, "{:?}", awake.symbols);
    for profile in [&asleep, &awake] {
        adds_up(profile);
        assert!(
            profile.symbols.iter().all(|symbol| !symbol.symbol.contains("safe_halt")),
            "{:?}",
            profile.symbols
        );
        assert!(profile.stacks.iter().all(|(stack, _)| !stack.ends_with("halt_[k]")), "{:?}", profile.stacks);
        assert_eq!((profile.event.as_str(), profile.amount / profile.samples), ("cpu-clock", 1_003_009));
    }
    // Others may be busy here: this process's work takes idle time away, all else being equal.
    let busy = |profile: &Profile| profile.samples - profile.idle;
    assert!(busy(&awake) >= own_samples(&awake));
}

#[test]
fn only_the_window_counts() {
    let _alone = alone();
    let profiler = Profiler::start(&ProfileOptions::default()).expect("start");
    spin(Duration::from_millis(250));
    profiler.mark_open();
    std::thread::sleep(Duration::from_millis(250));
    profiler.mark_close();
    spin(Duration::from_millis(250));
    let profile = profiler.finish().expect("samples");
    let hot: u64 =
        own(&profile).filter(|symbol| symbol.symbol.contains("hot_loop")).map(|symbol| symbol.samples).sum();
    assert_eq!(hot, 0, "{:?}", profile.symbols);
    assert!(profile.window >= Duration::from_millis(250));
    let most = profile.window.as_secs_f64() * 997.0 * f64::from(profile.cpus);
    assert!(profile.samples as f64 <= most * 1.05 + 2.0, "{} of {most}", profile.samples);
}

#[test]
fn no_sample_is_an_error_that_says_why() {
    let _alone = alone();
    let profiler = Profiler::start(&ProfileOptions::default()).expect("start");
    let error = profiler.finish().expect_err("never opened").to_string();
    assert!(error.contains("its window was never opened"), "{error}");
    let profiler = Profiler::start(&ProfileOptions { hz: 1, ..ProfileOptions::default() }).expect("start");
    profiler.mark_open();
    let error = profiler.finish().expect_err("too short").to_string();
    assert!(error.contains("too short a window"), "{error}");
}

#[test]
fn a_rate_the_kernel_does_not_allow_is_refused_with_the_one_it_allows() {
    let _alone = alone();
    for hz in [0, u32::MAX] {
        let error =
            Profiler::start(&ProfileOptions { hz, ..ProfileOptions::default() }).expect_err("refused");
        assert!(matches!(error, HostError::Unavailable { .. }));
        assert!(error.to_string().contains("kernel.perf_event_max_sample_rate = "), "{error}");
    }
}

#[test]
fn the_event_that_was_used_is_told_and_another_is_never_put_in_its_place() {
    let _alone = alone();
    let cycles = ProfileOptions { events: vec![Sampler::Cycles], ..ProfileOptions::default() };
    match Profiler::start(&cycles) {
        Ok(profiler) => assert_eq!(profiler.event(), "cycles"),
        Err(error) => {
            let text = error.to_string();
            assert!(text.starts_with("cannot profile this host: ") && text.contains("counter"), "{text}");
            let either =
                profiled(&ProfileOptions::default(), || std::thread::sleep(Duration::from_millis(50)));
            assert_eq!(either.event, "cpu-clock");
            assert!(
                either.notes.iter().any(|note| note.starts_with("not sampled by cycles: ")),
                "{:?}",
                either.notes
            );
        }
    }
}

#[test]
fn a_profiler_that_is_dropped_ends_its_thread() {
    let _alone = alone();
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").expect("tasks").flatten();
        let name = |path: std::path::PathBuf| std::fs::read_to_string(path.join("comm")).unwrap_or_default();
        tasks.filter(|task| name(task.path()).trim() == "haul-profile").count()
    };
    let profiler = Profiler::start(&ProfileOptions::default()).expect("start");
    // It names itself, a moment after it was started.
    profiler.mark_open();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(threads(), 1);
    drop(profiler);
    assert_eq!(threads(), 0);
}

/// Spins until told to stop, in a function of its own name.
#[inline(never)]
fn spin_for_windows(stop: &std::sync::atomic::AtomicBool) -> u64 {
    let mut sum = 0_u64;
    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
        sum = black_box(sum.wrapping_mul(31).wrapping_add(7));
    }
    sum
}

#[test]
fn windows_follow_one_another_and_a_symbol_that_stops_is_gone_from_the_next() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let options = ProfileOptions { hz: 997, call_chains: false, ..ProfileOptions::default() };
    let mut profiler = Profiler::start(&options).expect("these tests want root, or CAP_PERFMON");
    assert!(profiler.take().is_err(), "a window that was never opened");
    profiler.mark_open();
    let spun = |profile: &Profile| -> u64 {
        let own = profile.symbols.iter().filter(|cost| cost.symbol.contains("spin_for_windows"));
        own.map(|cost| cost.samples).sum()
    };
    let stop = std::sync::Arc::new(AtomicBool::new(false));
    let seen = std::sync::Arc::clone(&stop);
    let spinner = std::thread::spawn(move || spin_for_windows(&seen));
    for window in 0..2 {
        std::thread::sleep(Duration::from_millis(700));
        let profile = profiler.take().expect("a window");
        // Of a machine that does much else its share may be a tenth of a CPU.
        assert!(
            spun(&profile) > 5,
            "window {window}: {} of {}: {:?}",
            spun(&profile),
            profile.samples,
            profile.symbols
        );
        assert!(profile.window >= Duration::from_millis(500), "{:?}", profile.window);
    }
    stop.store(true, Ordering::Relaxed);
    spinner.join().expect("it stops");
    // What it did before it stopped.
    profiler.take().expect("a window");
    std::thread::sleep(Duration::from_millis(300));
    let after = profiler.take().expect("a window");
    assert_eq!(spun(&after), 0, "{after:?}");
    profiler.mark_close();
    assert!(profiler.take().is_err(), "a window that is closed");
}
