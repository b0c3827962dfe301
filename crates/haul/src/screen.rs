//! Standard error, on a thread of its own: whoever measures never waits for a terminal.
//!
//! Lines and progress go into a bounded queue and are shown by one thread. If that falls behind, because the reader is
//! stopped or slow, what does not fit is dropped and counted, and the count is shown once there is room again. On a
//! terminal there is a bar with the time left; elsewhere only lines.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Events in flight. A run has a handful and an interval one, so this is minutes of a stopped terminal.
const QUEUE: usize = 1024;

/// How long the end of the program waits for a reader that does not read.
const LAST_WORDS: Duration = Duration::from_millis(300);

enum Show {
    Line(String),
    Progress { done: u64, of: u64, text: String, left: Option<Duration> },
    Done,
}

/// Standard error, shared by all who have something to say.
#[derive(Clone)]
pub(crate) struct Screen {
    queue: SyncSender<Show>,
    dropped: Arc<AtomicU64>,
}

/// Ends the screen's thread when it goes, after what was said has been shown.
pub(crate) struct Showing {
    screen: Screen,
    thread: Option<JoinHandle<()>>,
}

impl Screen {
    /// Starts the thread. Lines are always shown; progress unless it is not wanted.
    pub(crate) fn start(progress: bool) -> io::Result<Showing> {
        let (queue, shows) = sync_channel(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        let screen = Self { queue, dropped: Arc::clone(&dropped) };
        let thread = std::thread::Builder::new()
            .name("haul-screen".to_owned())
            .spawn(move || show(&shows, &dropped, progress && io::stderr().is_terminal()))?;
        Ok(Showing { screen, thread: Some(thread) })
    }

    /// Shows a line.
    pub(crate) fn line(&self, text: impl Into<String>) {
        self.put(Show::Line(text.into()));
    }

    /// Shows how far things are.
    pub(crate) fn progress(&self, done: u64, of: u64, text: String, left: Option<Duration>) {
        self.put(Show::Progress { done, of, text, left });
    }

    fn put(&self, show: Show) {
        if self.queue.try_send(show).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Showing {
    pub(crate) fn screen(&self) -> Screen {
        self.screen.clone()
    }
}

impl Drop for Showing {
    fn drop(&mut self) {
        self.screen.put(Show::Done);
        let until = Instant::now() + LAST_WORDS;
        let Some(thread) = self.thread.take() else { return };
        while !thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn show(shows: &Receiver<Show>, dropped: &AtomicU64, bar: bool) {
    let bar = if bar { ProgressBar::new(0) } else { ProgressBar::hidden() };
    if !bar.is_hidden() {
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(4));
        if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len}  {wide_msg}") {
            bar.set_style(style);
        }
    }
    while let Ok(next) = shows.recv() {
        match next {
            Show::Line(text) => bar.suspend(|| put_line(&text)),
            Show::Progress { done, of, text, left } => {
                bar.set_length(of);
                bar.set_position(done);
                let left = left.map(|left| format!("{} left", brief(left)));
                let said = [text, left.unwrap_or_default()].into_iter().filter(|part| !part.is_empty());
                bar.set_message(said.collect::<Vec<_>>().join(", "));
            }
            Show::Done => break,
        }
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            bar.suspend(|| {
                put_line(&format!("({lost} lines were dropped: this output was not read fast enough)"));
            });
        }
    }
    bar.finish_and_clear();
}

/// Writes a line to standard error. Who closed it does not want it.
fn put_line(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes a line to standard error before the program ends, and waits no longer than [`LAST_WORDS`] for its reader.
pub(crate) fn say(text: &str) {
    // What a peer or an argument put into it must not speak to the terminal.
    let turns = |c| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let clean = |c: char| if (c.is_control() && c != '\n') || turns(c) { '\u{fffd}' } else { c };
    let (line, (done, written)) = (text.chars().map(clean).collect::<String>(), sync_channel(1));
    let started = std::thread::Builder::new().name("haul-last-words".to_owned()).spawn(move || {
        put_line(&line);
        // Nobody waits any more where it took too long.
        let _ = done.send(());
    });
    if started.is_ok() {
        let _ = written.recv_timeout(LAST_WORDS);
    }
}

/// An error with its causes, each said once: some of ours name their cause in their own words.
pub(crate) fn with_causes(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// A length of time for people: `42 s`, `3 min 20 s`, `2 h 5 min`.
pub(crate) fn brief(length: Duration) -> String {
    let seconds = length.as_millis().div_ceil(1000);
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}
