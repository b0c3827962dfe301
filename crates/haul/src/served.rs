//! The runs of a server on standard output, each as it ends: a line each, or one document that is whole when the server ends.
//!
//! Sessions never wait for the reader: what does not fit into the bounded queue is dropped and counted, and the count stands in the
//! next run that is written. Numbers are made in the thread that writes, so no run waits for those of another.
//!
//! ```text
//! jsonl   {run}\n{run}\n…
//! json    {"haul":…,"kind":"serve","runs":[ {run} , {run} … ]}     begun with the first byte, ended with the server
//! ```

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use haul_host::clock;
use haul_lab::{record, served};
use haul_wire::error::printable;
use haul_workload::server::{ServeEvent, ServedRun};
use serde_json::{Value as Json, json};

use crate::screen::say;

use crate::cli::ServeFormat;

/// Runs in flight: a run takes tenths of a second, so that is a reader which is stopped for seconds. Each can be megabytes, and what
/// is in it the client decides.
const QUEUE: usize = 32;

struct Ended {
    client: String,
    at: String,
    run: Box<ServedRun>,
}

/// Standard output as a list of runs.
pub(crate) struct Runs {
    queue: SyncSender<Option<Ended>>,
    dropped: Arc<AtomicU64>,
    thread: JoinHandle<Option<io::Error>>,
}

/// Takes what ended; for the threads of sessions.
#[derive(Clone)]
pub(crate) struct Inlet {
    queue: SyncSender<Option<Ended>>,
    dropped: Arc<AtomicU64>,
}

impl Inlet {
    /// Writes a run that has ended; other events are the log's.
    pub(crate) fn event(&self, event: &ServeEvent) {
        let ServeEvent::RunEnded { client, run, .. } = event else { return };
        let at = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let told = Ended { client: printable(client).clone(), at, run: run.clone() };
        if self.queue.try_send(Some(told)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Runs {
    /// Starts the thread; `None` where only the log was asked for.
    pub(crate) fn start(format: ServeFormat) -> io::Result<Option<Self>> {
        if format == ServeFormat::Text {
            return Ok(None);
        }
        let (queue, runs) = sync_channel(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        let own = Arc::clone(&dropped);
        let whole = format == ServeFormat::Json;
        let thread = std::thread::Builder::new()
            .name("haul-served".to_owned())
            .spawn(move || write(&runs, &own, whole, &mut io::stdout()))?;
        Ok(Some(Self { queue, dropped, thread }))
    }

    /// The way in.
    pub(crate) fn inlet(&self) -> Inlet {
        Inlet { queue: self.queue.clone(), dropped: Arc::clone(&self.dropped) }
    }

    /// Waits, not for ever, until all of it is written; says what became of it. A session that ends later writes nothing more.
    pub(crate) fn finish(self) -> Result<(), String> {
        /// A reader that takes longer than this for what a pipe holds has stopped.
        const PATIENCE: Duration = Duration::from_secs(2);
        const LOOK: Duration = Duration::from_millis(10);
        let until = clock::now().after(PATIENCE);
        let stalled = || Err("nobody reads standard output: the runs on it are not whole".to_owned());
        while let Err(TrySendError::Full(_)) = self.queue.try_send(None) {
            if clock::now() >= until {
                return stalled();
            }
            clock::sleep_until(clock::now().after(LOOK));
        }
        while !self.thread.is_finished() {
            if clock::now() >= until {
                return stalled();
            }
            clock::sleep_until(clock::now().after(LOOK));
        }
        match self.thread.join() {
            Ok(Some(error)) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(format!("cannot write the runs to standard output: {error}"))
            }
            _ => Ok(()),
        }
    }
}

fn object(ended: &Ended, index: usize, dropped: u64) -> Json {
    let mut run = served::run(&ended.run);
    run.index = u32::try_from(index).unwrap_or(u32::MAX);
    let mut object = json!({
        "client": ended.client,
        "ended": ended.at,
        "options": {"requested": ended.run.spec},
        "run": run,
    });
    if dropped > 0 {
        object["dropped"] = json!(dropped);
    }
    object
}

/// Writes until the queue ends, and returns the first failure: later runs are taken and not written.
fn write(
    runs: &Receiver<Option<Ended>>,
    dropped: &AtomicU64,
    whole: bool,
    out: &mut impl io::Write,
) -> Option<io::Error> {
    let mut failed = None;
    let mut put = |text: String| {
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        if let Err(error) = written {
            say(&format!("haul: cannot write the runs to standard output: {error}"));
            failed = Some(error);
        }
        failed.is_none()
    };
    let stamp = json!(record::stamp());
    // Who closed the pipe has seen enough; the queue is emptied all the same.
    let mut open = !whole || put(format!("{{\"haul\":{stamp},\"kind\":\"serve\",\"runs\":["));
    for (index, ended) in runs.iter().map_while(|told| told).enumerate() {
        let mut object = object(&ended, index, dropped.swap(0, Ordering::Relaxed));
        let text = if whole {
            format!("{}\n{object}", if index > 0 { "," } else { "" })
        } else {
            object["haul"] = stamp.clone();
            format!("{object}\n")
        };
        open = open && put(text);
    }
    if whole && open {
        put("\n]}\n".to_owned());
    }
    failed
}

#[cfg(test)]
mod tests {
    use haul_workload::RunSpec;
    use haul_workload::server::Seen;

    use super::*;

    fn written(whole: bool, runs: usize) -> String {
        let (queue, receiver) = sync_channel(8);
        for _ in 0..runs {
            let seen = Seen::Own { reports: Vec::new(), reason: "it did not say".to_owned() };
            let run = Box::new(ServedRun { spec: RunSpec::default(), seen });
            queue.send(Some(Ended { client: "ada".to_owned(), at: "now".to_owned(), run })).unwrap();
        }
        drop(queue);
        let mut out = Vec::new();
        write(&receiver, &AtomicU64::new(3), whole, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_document_is_whole_with_no_run_one_and_many_and_lines_stand_for_themselves() {
        for count in [0, 1, 3] {
            let document: Json = serde_json::from_str(&written(true, count)).unwrap();
            assert_eq!(document["runs"].as_array().unwrap().len(), count);
            let lines = written(false, count);
            let lines: Vec<Json> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!(lines.len(), count);
            for (index, line) in lines.iter().enumerate() {
                assert_eq!(line["run"]["failure"]["text"], "it did not say");
                assert_eq!(line["run"]["index"], index);
                assert_eq!(line["dropped"], if index == 0 { json!(3) } else { Json::Null });
            }
        }
    }
}
