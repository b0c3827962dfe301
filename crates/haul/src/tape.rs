//! Events to standard output as they happen, one JSON object a line, from a thread of its own.
//!
//! Whoever measures never waits for the reader: what does not fit into the bounded queue is dropped and counted, and the
//! count stands in the next line that is written. The document at the end is not part of the queue and is never dropped.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use haul_lab::runner::Event;
use serde_json::{Value as Json, json};

/// Events in flight: minutes of a reader that is stopped.
const QUEUE: usize = 4096;

/// Standard output as a line of events.
pub(crate) struct Tape {
    queue: Option<SyncSender<Json>>,
    dropped: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
    /// The run under way, from 1.
    run: usize,
}

impl Tape {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (queue, events) = sync_channel(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        let own = Arc::clone(&dropped);
        let thread =
            std::thread::Builder::new().name("haul-tape".to_owned()).spawn(move || write(&events, &own))?;
        Ok(Self { queue: Some(queue), dropped, thread: Some(thread), run: 0 })
    }

    /// Tells of an event.
    pub(crate) fn event(&mut self, event: &Event<'_>) {
        let line = match event {
            Event::Said { arm, text } => json!({"event": "said", "arm": arm, "text": text}),
            Event::Checking { arm } => json!({"event": "checking", "arm": arm}),
            Event::Preparing { what, left } => {
                json!({"event": "preparing", "what": what, "left_s": left.as_secs_f64()})
            }
            Event::Calibrating { number, of, cell, left } => json!({
                "event": "calibrating", "number": number, "of": of, "cell": cell, "left_s": left.as_secs_f64(),
            }),
            Event::Begins { number, of, arm, block, cell, left } => {
                self.run = *number;
                json!({
                    "event": "begins", "run": number, "of": of, "arm": arm, "block": block, "cell": cell,
                    "left_s": left.as_secs_f64(),
                })
            }
            Event::Interval(interval) => json!({"event": "interval", "run": self.run, "interval": interval}),
            Event::Ended(run) => json!({"event": "ended", "run": self.run, "result": run}),
            Event::Restoring => json!({"event": "restoring"}),
        };
        if self.queue.as_ref().is_none_or(|queue| queue.try_send(line).is_err()) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Tape {
    /// Waits until all of it is written: the document follows on the same output.
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // It has nothing to return, and no panic of its own.
            let _ = thread.join();
        }
    }
}

fn write(events: &Receiver<Json>, dropped: &AtomicU64) {
    let mut gone = false;
    for mut event in events {
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0
            && let Some(fields) = event.as_object_mut()
        {
            fields.insert("dropped".to_owned(), json!(lost));
        }
        // Who closed the pipe has seen enough; the queue is emptied all the same.
        gone = gone || writeln!(io::stdout(), "{event}").is_err();
    }
}
