//! Counters and profiles beside those of `perf` on the same threads at the same time, and what an ordinary user gets.
//!
//! `perf` is told by a pipe when to begin, so that all of the work is in its window and in haul's.

#[path = "common/work.rs"]
mod work;

use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use haul_host::privilege;
use haul_host::probe::counters::{Count, Counters, Event, Of};
use haul_host::probe::profile::{self, Profile, ProfileOptions, Profiler, Sampler};
use haul_host::thread;

use work::{a_hot_loop, used};

/// `perf`, counting or recording from now on.
struct Perf {
    child: Child,
}

impl Perf {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        let (control, answer) = (folder.join("control"), folder.join("answer"));
        for fifo in [&control, &answer] {
            let made = Command::new("mkfifo").arg(fifo).status().expect("mkfifo, of coreutils");
            assert!(made.success(), "mkfifo");
        }
        let (command, rest) = arguments.split_first().expect("a command");
        let child = Command::new("perf")
            .args([command, "-D", "-1", "--control"])
            .arg(format!("fifo:{},{}", control.display(), answer.display()))
            .args(rest)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("this test wants perf: ./ci.sh setup installs it (Debian: linux-perf)");
        // Opened for both, so that nobody waits for the other to open.
        let open = |path: &Path| OpenOptions::new().read(true).write(true).open(path).expect("a fifo");
        open(&control).write_all(b"enable\n").map(|()| wait_for(open(&answer), "ack")).expect("control");
        Self { child }
    }

    /// Ends it as ^C would: it writes what it has.
    fn end(mut self) {
        let killed =
            Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().expect("kill");
        assert!(killed.success());
        self.child.wait().expect("perf ends");
    }
}

fn wait_for(file: File, text: &str) {
    let (send, answered) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let _ = BufReader::new(file).read_line(&mut line);
        send.send(line)
    });
    let line = answered.recv_timeout(Duration::from_mins(1)).expect("perf answers");
    assert!(line.contains(text), "{line}");
}

fn value(counts: &[Count], event: &str) -> u64 {
    let count =
        counts.iter().find(|count| count.event == event).unwrap_or_else(|| panic!("{event}: {counts:?}"));
    count.value.unwrap_or_else(|| panic!("{event}: {:?}", count.reason))
}

/// The counts of `perf stat -x,`: value, unit, event, …; the value of a clock is in milliseconds.
fn stat(text: &str, event: &str) -> f64 {
    let line = text
        .lines()
        .find(|line| line.split(',').nth(2) == Some(event))
        .unwrap_or_else(|| panic!("{event}: {text}"));
    line.split(',').next().and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

#[test]
fn counters_of_a_thread_are_those_of_perf_stat() {
    const NAMES: [&str; 4] = ["task-clock", "context-switches", "page-faults", "cpu-migrations"];
    let folder = tempfile::tempdir().expect("folder");
    let (go, begin) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    let worker = std::thread::spawn(move || {
        tell.send(thread::current_tid()).expect("told");
        begin.recv().expect("begin");
        a_hot_loop(Duration::from_millis(300));
        for turn in 0..200 {
            std::thread::sleep(Duration::from_micros(100));
            // More than the allocator ever keeps, given back at once: each is fresh, and a fault.
            let mut fresh = vec![0_u8; 40 << 20];
            fresh[turn] = 1;
            black_box(fresh);
        }
        tell.send(thread::current_tid()).expect("told");
        // The thread is to be there when it is read.
        let _ = begin.recv();
    });
    let tid = told.recv().expect("the thread's number");
    let output = folder.path().join("stat");
    let perf = Perf::start(
        folder.path(),
        &["stat", "-x,", "-e", &NAMES.join(","), "-t", &tid.to_string(), "-o", &output.display().to_string()],
    );
    let events = NAMES.map(|name| Event::parse(name).expect(name)).to_vec();
    let counters = Counters::open(&[events], Of::Thread(tid));
    let before = counters.read();
    go.send(()).expect("go");
    told.recv().expect("done");
    let counts = counters.read().since(&before);
    perf.end();
    drop(go);
    worker.join().expect("no panic");
    let text = fs::read_to_string(&output).expect("what perf wrote");
    let near = |haul: f64, perf: f64, slack: f64| (haul - perf).abs() <= 0.02 * perf + slack;
    let (haul, perf) = (value(&counts, "task-clock") as f64 / 1e6, stat(&text, "task-clock"));
    assert!(perf > 250.0 && near(haul, perf, 0.0), "task-clock: {haul} ms, perf {perf} ms");
    // Waking up and going to sleep again may be in one window and not in the other.
    for (event, least) in [("context-switches", 200.0), ("page-faults", 30.0), ("cpu-migrations", 0.0)] {
        let (haul, perf) = (value(&counts, event) as f64, stat(&text, event));
        assert!(perf >= least && near(haul, perf, 2.0), "{event}: {haul}, perf {perf}\n{text}");
    }
}

/// The samples of this process by symbol that `perf script` lists.
fn script(data: &Path) -> Vec<String> {
    let output = Command::new("perf")
        .args(["script", "-F", "pid,ip,sym", "-i"])
        .arg(data)
        .output()
        .expect("perf script");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let own = std::process::id().to_string();
    let of = |line: &str| {
        let mut fields = line.split_whitespace();
        (fields.next()? == own).then(|| fields.nth(1).unwrap_or("[unknown]").to_owned())
    };
    text.lines().filter_map(of).collect()
}

fn share(profile: &Profile, name: &str) -> f64 {
    let own = profile.symbols.iter().filter(|symbol| symbol.own);
    let sum = |part: &str| {
        own.clone().filter(|symbol| symbol.symbol.contains(part)).map(|symbol| symbol.samples).sum::<u64>()
    };
    sum(name) as f64 / sum("").max(1) as f64
}

#[test]
fn shares_of_a_profile_are_those_of_perf_record() {
    let folder = tempfile::tempdir().expect("folder");
    let data = folder.path().join("data");
    let mut file = tempfile::tempfile_in("/dev/shm").expect("a file in memory");
    file.write_all(&vec![7; 1 << 18]).expect("write");
    let perf = Perf::start(
        folder.path(),
        &["record", "-a", "-e", "cpu-clock", "-F", "4999", "-o", &data.display().to_string()],
    );
    let options = ProfileOptions { hz: 4999, call_chains: false, events: vec![Sampler::CpuClock] };
    let profiler = Profiler::start(&options).expect("these tests want root, or CAP_PERFMON");
    profiler.mark_open();
    let mut buffer = vec![0; 1 << 18];
    let end = used() + Duration::from_millis(1500);
    while used() < end {
        a_hot_loop(Duration::from_millis(10));
        let end = used() + Duration::from_millis(10);
        while used() < end {
            file.rewind().expect("rewind");
            file.read_exact(&mut buffer).expect("read");
        }
    }
    profiler.mark_close();
    perf.end();
    let profile = profiler.finish().expect("samples");
    let perf = script(&data);
    assert!(perf.len() > 2000, "{} samples of perf", perf.len());
    let copy = profile
        .symbols
        .iter()
        .filter(|symbol| symbol.own && symbol.class == profile::Class::Copy)
        .map(|symbol| symbol.symbol.clone())
        .next()
        .expect("a copy");
    for name in ["a_hot_loop", copy.as_str()] {
        let by_perf = perf.iter().filter(|symbol| symbol.contains(name)).count() as f64 / perf.len() as f64;
        let by_haul = share(&profile, name);
        // Two samplers of some 7000 samples differ by 0.8 points in one standard deviation.
        assert!(by_perf > 0.1 && (by_haul - by_perf).abs() < 0.03, "{name}: {by_haul}, perf {by_perf}");
    }
}

#[test]
fn obstacles_are_fatal_exactly_where_a_profile_cannot_be_had() {
    let obstacles = profile::preflight();
    let fatal = obstacles.iter().any(|obstacle| obstacle.fatal);
    let started = Profiler::start(&ProfileOptions::default());
    assert_eq!(started.is_err(), fatal, "{obstacles:?} {:?}", started.err().map(|error| error.to_string()));
    for obstacle in obstacles {
        println!("obstacle {obstacle}");
    }
    let events =
        ["task-clock", "context-switches", "page-faults"].map(|name| Event::parse(name).expect(name));
    let counters = Counters::open(&[events.to_vec()], Of::Thread(thread::current_tid()));
    let before = counters.read();
    a_hot_loop(Duration::from_millis(5));
    for count in counters.read().since(&before) {
        println!("count {} {:?} {}", count.event, count.value.is_some(), count.reason.unwrap_or_default());
    }
}

#[test]
fn a_profile_is_of_all_cpus_or_names_what_it_lacks() {
    let own = [thread::current_tid()];
    let options = ProfileOptions::default();
    let whole = Profiler::start(&options);
    let beside = Profiler::start_threads_where_forbidden(&options, &own);
    match (&whole, &beside) {
        (Ok(_), beside) => assert!(matches!(beside, Ok(None)), "another end samples all CPUs: {beside:?}"),
        (Err(error), Err(narrow)) => assert_eq!(error.to_string(), narrow.to_string(), "nothing is left"),
        (Err(_), beside) => assert!(matches!(beside, Ok(Some(_))), "{beside:?}"),
    }
    let all = whole.is_ok();
    drop((whole, beside));
    let profiler = match Profiler::start_or_threads(&options, &own) {
        Ok(profiler) => profiler,
        Err(error) => return println!("no profile: {error}"),
    };
    profiler.mark_open();
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(&vec![7; 1 << 16]).expect("write");
    let (end, mut buffer) = (used() + Duration::from_millis(400), vec![0; 1 << 16]);
    while used() < end {
        a_hot_loop(Duration::from_millis(5));
        file.rewind().expect("rewind");
        file.read_exact(&mut buffer).expect("read");
    }
    profiler.mark_close();
    let profile = profiler.finish().expect("samples");
    assert_eq!(profile.host_reason.is_none(), all, "{profile:?}");
    assert!(share(&profile, "a_hot_loop") > 0.5, "{:?}", profile.symbols);
    if !all {
        assert!(profile.symbols.iter().all(|symbol| symbol.own), "{:?}", profile.symbols);
    }
    let kernel = profile.symbols.iter().any(|symbol| symbol.context != profile::Context::User);
    assert_eq!(kernel, profile.kernel_reason.is_none(), "{:?} {:?}", profile.kernel_reason, profile.symbols);
    let reason = |reason: &Option<String>| reason.clone().unwrap_or_else(|| "-".to_owned());
    println!("profile: host {}; kernel {}", reason(&profile.host_reason), reason(&profile.kernel_reason));
}

/// The two tests above, as `nobody`.
#[test]
fn an_ordinary_user_is_told_what_forbids_it_and_counts_what_is_left() {
    let exe = std::env::current_exe().expect("this program");
    let folder = tempfile::tempdir().expect("folder");
    let copy = folder.path().join("perf-test");
    fs::copy(&exe, &copy).expect("copy");
    for path in [folder.path(), &copy] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("chmod");
    }
    let as_nobody = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let mut command = if privilege::effective_root() {
        let mut command = Command::new("setpriv");
        command.args(as_nobody).arg(&copy);
        command
    } else {
        Command::new(&copy)
    };
    let output = command
        .args(["--exact", "--nocapture", "--test-threads", "1"])
        .args([
            "obstacles_are_fatal_exactly_where_a_profile_cannot_be_had",
            "a_profile_is_of_all_cpus_or_names_what_it_lacks",
        ])
        .current_dir("/")
        .output()
        .expect("setpriv, of util-linux");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let level = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").expect("perf events");
    let level: i32 = level.trim().parse().expect("a number");
    let obstacle = format!("obstacle kernel.perf_event_paranoid = {level}: ");
    assert_eq!(text.contains(&obstacle), level > 0, "{text}");
    // The name of the test stands before what it prints.
    let told = |line: &str| line.split_once(" ... ").map_or(line, |(_, told)| told).to_owned();
    let profile =
        text.lines().map(told).find(|line| line.starts_with("profile: ") || line.starts_with("no profile: "));
    let profile = profile.unwrap_or_else(|| panic!("{text}"));
    let named = format!("kernel.perf_event_paranoid = {level} forbids ");
    match level {
        ..=0 => assert_eq!(profile, "profile: host -; kernel -"),
        1 => assert!(profile.contains(&named) && profile.ends_with("; kernel -"), "{profile}"),
        2 => assert!(profile.contains(&format!("; kernel {named}events of the kernel")), "{profile}"),
        _ => assert!(profile.starts_with("no profile: ") && profile.contains(&named), "{profile}"),
    }
    match level {
        ..=1 => assert!(text.contains("count context-switches true"), "{text}"),
        2 => {
            assert!(text.contains("count task-clock true \n"), "time is of no mode: {text}");
            let said = "count page-faults:u true of user mode only: kernel.perf_event_paranoid = 2 forbids events of the kernel";
            assert!(text.contains(said), "{text}");
            assert!(text.contains("count context-switches false kernel.perf_event_paranoid = 2"), "{text}");
        }
        _ => assert!(text.contains("count task-clock false kernel.perf_event_paranoid"), "{text}"),
    }
}
