//! A workload under `haul top`: this binary as a child, its events heard, its document kept.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use haul_host::signal::{self, Signal};
use haul_results::record::{Document, Interval};
use serde_json::Value as Json;

use super::WATCHER;
use crate::cli::TopFormat;
use crate::screen::say;

/// How long a workload that was asked to end may take: a peer that is silent is given up after 8 s.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

/// Events in flight: many more than come between two looks.
const QUEUE: usize = 1024;

/// Of its standard error so much is kept.
const MOST_SAID: u64 = 64 << 10;

enum Heard {
    Interval(Interval),
    Begins(String),
    Document(Box<Result<Document, String>>),
}

/// What moved since the last look, by direction: payload or transactions, and the seconds they took.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Moved {
    pub(crate) bytes: Option<u64>,
    pub(crate) transactions: Option<u64>,
    pub(crate) seconds: f64,
}

/// The child.
pub(crate) struct Workload {
    child: Child,
    title: String,
    events: Receiver<Heard>,
    reader: Option<JoinHandle<()>>,
    said: Option<JoinHandle<String>>,
    moved: BTreeMap<Option<String>, Moved>,
    phase: String,
    document: Option<Box<Result<Document, String>>>,
    status: Option<ExitStatus>,
}

impl Workload {
    /// Starts it.
    pub(crate) fn start(arguments: &[OsString]) -> Result<Self> {
        let texts: Vec<String> = arguments.iter().map(|it| it.to_string_lossy().into_owned()).collect();
        if !matches!(texts[0].as_str(), "stream" | "rr" | "crr" | "ab") {
            bail!("'{}' is no workload that can be watched: give stream, rr, crr or ab after '--'", texts[0]);
        }
        let given = |name: &str| {
            texts
                .iter()
                .any(|text| text == name || text.strip_prefix(name).is_some_and(|rest| rest.starts_with('=')))
        };
        if given("--format") {
            bail!(
                "leave out --format behind '--': haul top reads the workload itself; its own --format goes before '--'"
            );
        }
        let program = std::env::current_exe().context("cannot find this program, to start it again")?;
        let mut command = Command::new(program);
        command.args(arguments).args(["--format", "jsonl"]);
        for (name, value) in [("--interval", Some("1s")), ("--quiet", None)] {
            let short = name == "--quiet" && given("-q");
            if !(given(name) || short) {
                command.arg(name).args(value);
            }
        }
        command.env(WATCHER, std::process::id().to_string()).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start the workload")?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let (send, events) = sync_channel(QUEUE);
        let hear = move || {
            for line in out.map(BufReader::new).into_iter().flat_map(|out| out.lines().map_while(Result::ok))
            {
                if let Some(heard) = understand(&line)
                    && send.send(heard).is_err()
                {
                    return;
                }
            }
        };
        let listen = move || {
            let mut text = Vec::new();
            if let Some(mut err) = err {
                // What was said until it cannot be read is what there is. The rest is read and dropped, or the child would wait.
                let _ = err.by_ref().take(MOST_SAID).read_to_end(&mut text);
                let _ = std::io::copy(&mut err, &mut std::io::sink());
            }
            String::from_utf8_lossy(&text).into_owned()
        };
        // From here on the child is this one's, and goes with it.
        let mut workload = Self {
            child,
            title: texts.join(" "),
            events,
            reader: None,
            said: None,
            moved: BTreeMap::new(),
            phase: String::new(),
            document: None,
            status: None,
        };
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        workload.reader = Some(thread("haul-top-out").spawn(hear).context("cannot start a thread")?);
        workload.said = Some(thread("haul-top-err").spawn(listen).context("cannot start a thread")?);
        Ok(workload)
    }

    pub(crate) fn title(&self) -> String {
        self.title.clone()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it is at: `run 3 of 20, arm off`.
    pub(crate) fn phase(&self) -> &str {
        &self.phase
    }

    /// Takes in what it has told so far.
    pub(crate) fn hear(&mut self) {
        while let Ok(heard) = self.events.try_recv() {
            match heard {
                Heard::Begins(phase) => self.phase = phase,
                Heard::Document(document) => self.document = Some(document),
                Heard::Interval(interval) => {
                    let moved = self.moved.entry(interval.direction).or_default();
                    moved.seconds += interval.seconds;
                    let add = |sum: &mut Option<u64>, more: Option<u64>| {
                        if let Some(more) = more {
                            *sum = Some(sum.unwrap_or(0) + more);
                        }
                    };
                    add(&mut moved.bytes, interval.bytes);
                    add(&mut moved.transactions, interval.transactions);
                }
            }
        }
    }

    /// What moved since the last time, per second, all directions together: bytes, transactions.
    pub(crate) fn rates(&mut self) -> Option<(Option<f64>, Option<f64>)> {
        let moved = std::mem::take(&mut self.moved);
        let mut rates = None;
        for of in moved.into_values().filter(|of| of.seconds > 0.0) {
            let (bytes, transactions) = rates.get_or_insert((None, None));
            let add = |sum: &mut Option<f64>, more: Option<u64>| {
                if let Some(more) = more {
                    *sum = Some(sum.unwrap_or(0.0) + more as f64 / of.seconds);
                }
            };
            add(bytes, of.bytes);
            add(transactions, of.transactions);
        }
        rates
    }

    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        self.status = self.child.try_wait().context("cannot wait for the workload")?;
        Ok(self.status.is_some())
    }

    /// Asks it to end. One that has ended already needs no asking.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.status.is_none() {
            let _ = signal::send(self.child.id(), signal);
        }
    }

    /// Ends it at once.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// Prints its document as it would have, and gives its exit code.
    pub(crate) fn finish(mut self, format: TopFormat) -> Result<ExitCode> {
        let status = match self.status {
            Some(status) => status,
            None => self.child.wait().context("cannot wait for the workload")?,
        };
        self.status = Some(status);
        while self.reader.as_ref().is_some_and(|reader| !reader.is_finished()) {
            self.hear();
            std::thread::sleep(Duration::from_millis(1));
        }
        self.hear();
        let said = self.said.take().and_then(|said| said.join().ok()).unwrap_or_default();
        let said = said.trim_end();
        if !said.is_empty() {
            say(said);
        }
        match self.document.take().map(|document| *document) {
            Some(Ok(document)) => {
                if format == TopFormat::Jsonl {
                    let line = haul_results::json::write_line(&document, std::io::stdout().lock());
                    if let Err(error) = line
                        && !error.is_closed_pipe()
                    {
                        return Err(error).context("cannot write the result to standard output");
                    }
                } else if !(document.runs.is_empty() && document.failure.is_some()) {
                    super::print_document(&document)?;
                }
            }
            Some(Err(error)) => bail!("the workload's document was not understood: {error}"),
            None => match (status.signal(), status.code()) {
                (Some(signal), _) => bail!("the workload died of signal {signal}, without a document"),
                // It has said why.
                (None, Some(code)) if code != 0 && !said.is_empty() => {}
                (None, code) => {
                    bail!("the workload ended without a document, with exit code {}", code.unwrap_or(0));
                }
            },
        }
        Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
    }
}

impl Drop for Workload {
    /// Whatever goes wrong here, it is not left running: it is asked to put things back, and killed where it does not.
    fn drop(&mut self) {
        if self.status.is_some() || self.has_ended().unwrap_or(true) {
            return;
        }
        self.signal(Signal::Term);
        let until = std::time::Instant::now() + PATIENCE;
        while std::time::Instant::now() < until {
            // Its output must not stop it.
            while self.events.try_recv().is_ok() {}
            if self.has_ended().unwrap_or(true) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A line of the child's.
fn understand(line: &str) -> Option<Heard> {
    let event: Json = serde_json::from_str(line).ok()?;
    match event.get("event")?.as_str()? {
        "interval" => serde_json::from_value(event.get("interval")?.clone()).ok().map(Heard::Interval),
        "begins" => {
            let number = |key: &str| event.get(key).and_then(Json::as_u64);
            let arm = event
                .get("arm")
                .and_then(Json::as_str)
                .map_or_else(String::new, |arm| format!(", arm {arm}"));
            Some(Heard::Begins(format!("run {} of {}{arm}", number("run")?, number("of")?)))
        }
        "document" => {
            let document = event.get("document")?.to_string();
            let document = haul_results::json::parse(&document).map_err(|error| error.to_string());
            Some(Heard::Document(Box::new(document)))
        }
        _ => None,
    }
}
