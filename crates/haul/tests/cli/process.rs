//! A haul process: started with an environment of its own, waited for within a bound, killed if the test fails.

use std::fs;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use haul_results::json;
use haul_results::record::{Document, Run, Status};
use haul_stats::{DoubtId, Metric, Reading, Scope, Value};
use haul_wire::Key;
use tempfile::TempDir;

/// How long anything may take that has no bound of its own: a loaded machine runs these tests ten times slower than an
/// idle one.
pub(crate) const BOUND: Duration = Duration::from_mins(1);

/// Between two looks at something that has no descriptor to wait for.
const LOOK: Duration = Duration::from_millis(5);

/// The program under test.
pub(crate) const HAUL: &str = env!("CARGO_BIN_EXE_haul");

/// The key of every server here that has one.
pub(crate) fn key() -> String {
    Key::from_random([7; 32]).reveal()
}

/// Waits until `is_so`, and fails with `what` where that takes too long.
pub(crate) fn wait_until(what: &str, bound: Duration, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + bound;
    while !is_so() {
        assert!(Instant::now() < until, "waited {bound:?} for {what}, in vain");
        thread::sleep(LOOK);
    }
}

/// The arguments of a command line, none of which has a blank in it.
pub(crate) fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// Where one host keeps what haul keeps: journal, key, home.
pub(crate) struct Home(TempDir);

impl Home {
    /// A home with the key in it.
    pub(crate) fn new() -> Self {
        let home = Self::without_key();
        let directory = home.0.path().join("config/haul");
        fs::create_dir_all(&directory).unwrap();
        let options = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).clone();
        let mut file = options.open(directory.join("key")).unwrap();
        std::io::Write::write_all(&mut file, key().as_bytes()).unwrap();
        home
    }

    pub(crate) fn without_key() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// `haul ARGUMENTS`, with nothing of this process's environment, `PATH` included.
    pub(crate) fn haul(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(HAUL);
        command.args(arguments);
        self.equip(&mut command);
        command
    }

    /// The same with a limit of the shell in force, as `ulimit -n 16`.
    pub(crate) fn limited_haul(&self, limit: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &format!("{limit}; exec \"$@\""), "sh", HAUL]).args(arguments);
        self.equip(&mut command);
        command
    }

    pub(crate) fn equip(&self, command: &mut Command) {
        command.env_clear().current_dir("/").env("USER", "ada");
        command.env("HAUL_STATE_DIR", self.0.path().join("state"));
        command.env("HOME", self.0.path()).env("XDG_CONFIG_HOME", self.0.path().join("config"));
    }

    /// The journals of changes that are in force, or were left.
    pub(crate) fn journals(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.0.path().join("state/journal")) else { return Vec::new() };
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.extension().is_some_and(|it| it == "jsonl")).collect()
    }
}

/// A text that grows while a process writes.
struct Caught {
    text: Arc<Mutex<String>>,
    thread: JoinHandle<()>,
}

impl Caught {
    fn start(mut from: impl Read + Send + 'static) -> Self {
        let text: Arc<Mutex<String>> = Arc::default();
        let kept = Arc::clone(&text);
        let thread = thread::spawn(move || {
            let mut buffer = [0; 8192];
            while let Ok(read @ 1..) = from.read(&mut buffer) {
                kept.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..read]));
            }
        });
        Self { text, thread }
    }

    fn now(&self) -> String {
        self.text.lock().unwrap().clone()
    }
}

/// A process under way.
pub(crate) struct Running {
    child: Child,
    out: Option<Caught>,
    err: Option<Caught>,
    begun: Instant,
}

impl Running {
    /// Starts it, catching both outputs.
    pub(crate) fn start(command: Command) -> Self {
        let mut command = command;
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self::start_as_is(command)
    }

    /// Starts it with the outputs the command has.
    pub(crate) fn start_as_is(mut command: Command) -> Self {
        let begun = Instant::now();
        let mut child =
            command.stdin(Stdio::null()).spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let out = child.stdout.take().map(Caught::start);
        let err = child.stderr.take().map(Caught::start);
        Self { child, out, err, begun }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by name: `INT`, `STOP`, `KILL`.
    pub(crate) fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// What it has written to standard error so far.
    pub(crate) fn said(&self) -> String {
        self.err.as_ref().map(Caught::now).unwrap_or_default()
    }

    /// What it has written to standard output so far.
    pub(crate) fn shown(&self) -> String {
        self.out.as_ref().map(Caught::now).unwrap_or_default()
    }

    /// Waits until standard error has `needle`.
    pub(crate) fn says(&mut self, needle: &str) {
        let until = Instant::now() + BOUND;
        while !self.said().contains(needle) {
            let ended = self.child.try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < until,
                "'{needle}' was never said ({ended:?}): {}",
                self.said()
            );
            thread::sleep(LOOK);
        }
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end, for at most `bound`.
    pub(crate) fn end_within(mut self, bound: Duration) -> Ended {
        let until = Instant::now() + bound;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "not over after {bound:?}: {} {}", self.shown(), self.said());
            thread::sleep(LOOK);
        };
        let took = self.begun.elapsed();
        let all = |caught: Option<Caught>| {
            caught.map_or_else(String::new, |caught| {
                caught.thread.join().unwrap();
                caught.text.lock().unwrap().clone()
            })
        };
        let (out, err) = (all(self.out.take()), all(self.err.take()));
        Ended { code: status.code(), signal: status.signal(), out, err, took }
    }

    pub(crate) fn end(self) -> Ended {
        self.end_within(BOUND)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A stopped process dies of SIGKILL as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a process by its number.
pub(crate) fn signal(pid: u32, name: &str) {
    let status = Command::new("/bin/sh").args(["-c", &format!("kill -{name} {pid}")]).status().unwrap();
    assert!(status.success(), "kill -{name} {pid}");
}

/// A process that is over.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) took: Duration,
}

impl Ended {
    /// The one document on standard output, read strictly.
    pub(crate) fn document(&self) -> Document {
        assert!(self.out.ends_with("}\n") && self.out.starts_with('{'), "not one document: {self:?}");
        let document = json::parse(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out));
        let code = match (document.status, &document.failure) {
            (Status::Complete, _) => 0,
            (_, Some(failure)) => i32::from(failure.exit),
            (_, None) => 1,
        };
        assert_eq!(self.code, Some(code), "exit code and document disagree: {self:?}");
        document
    }

    /// The document of a run that went well.
    pub(crate) fn complete(&self) -> Document {
        let document = self.document();
        let failed: Vec<_> = document.runs.iter().filter_map(|run| run.failure.as_ref()).collect();
        assert_eq!(document.status, Status::Complete, "{:?} {failed:?} {}", document.failure, self.err);
        document
    }

    /// No haul may ever panic.
    pub(crate) fn is_calm(&self) -> bool {
        !self.err.contains("panicked") && self.code != Some(101) && self.signal.is_none()
    }
}

/// A reading of a run.
pub(crate) fn reading(run: &Run, metric: Metric, scope: Scope) -> &Reading {
    let found = run.readings.iter().find(|reading| reading.metric == metric && reading.scope == scope);
    found.unwrap_or_else(|| panic!("no {metric} of {scope} in {:?}", run.readings))
}

/// The number of a reading of a run.
pub(crate) fn value(run: &Run, metric: Metric, scope: Scope) -> f64 {
    let reading = reading(run, metric, scope);
    reading.value.unwrap_or_else(|| panic!("{metric} of {scope}: {:?}", reading.reason)).as_f64()
}

/// The count of a reading of a run.
pub(crate) fn count(run: &Run, metric: Metric, scope: Scope) -> u64 {
    match reading(run, metric, scope).value {
        Some(Value::Int(count)) => count,
        other => panic!("{metric} of {scope} is no count: {other:?}"),
    }
}

/// The texts of a kind of doubt, about the runs and about the whole.
pub(crate) fn doubts(document: &Document, id: DoubtId) -> Vec<String> {
    let all = document.runs.iter().flat_map(|run| &run.warnings).chain(&document.warnings);
    all.filter(|doubt| doubt.id == id).map(|doubt| doubt.text.clone()).collect()
}
