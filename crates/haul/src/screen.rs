//! Standard error, on a thread of its own: whoever measures never waits for a terminal.
//!
//! Lines and progress go into a bounded queue and are shown by one thread. If that falls behind, because the reader is
//! stopped or slow, what does not fit is dropped and counted, and the count is shown once there is room again. On a
//! terminal there is a bar with the time left; elsewhere only lines.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Events in flight. A run has a handful and an interval one, so this is minutes of a stopped terminal.
const QUEUE: usize = 1024;

/// The length of the bar, which is time: a single run moves it too.
const WHOLE: u64 = 1000;

/// How often the bar moves without news.
const REDRAW: Duration = Duration::from_millis(500);

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

/// How far things were when it was last told, and how long the rest was to take.
struct Course {
    began: Instant,
    told: Instant,
    left: Option<Duration>,
    text: String,
}

impl Course {
    /// How far things are by now, in parts of [`WHOLE`], and what to say of it.
    fn at(&self, now: Instant) -> (u64, String) {
        let Some(left) = self.left else { return (0, self.text.clone()) };
        let left = left.saturating_sub(now.saturating_duration_since(self.told));
        let gone = now.saturating_duration_since(self.began);
        let parts = gone.as_millis() * u128::from(WHOLE) / (gone + left).as_millis().max(1);
        let said = if left.is_zero() { "at its end".to_owned() } else { format!("{} left", brief(left)) };
        // The time first: what does not fit the terminal is cut off at the end.
        (u64::try_from(parts).unwrap_or(WHOLE).min(WHOLE), format!("{said}: {}", self.text))
    }
}

fn draw(bar: &ProgressBar, course: &Course) {
    let (parts, text) = course.at(Instant::now());
    bar.set_position(parts);
    bar.set_message(text);
}

fn show(shows: &Receiver<Show>, dropped: &AtomicU64, bar: bool) {
    let bar = if bar { ProgressBar::new(WHOLE) } else { ProgressBar::hidden() };
    if !bar.is_hidden() {
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(4));
        if let Ok(style) = ProgressStyle::with_template("{bar:24} {wide_msg}") {
            bar.set_style(style);
        }
    }
    let mut course: Option<Course> = None;
    loop {
        let next = match shows.recv_timeout(REDRAW) {
            Ok(next) => next,
            // A run of minutes has no news, but less and less time left.
            Err(RecvTimeoutError::Timeout) => {
                if let Some(course) = &course {
                    draw(&bar, course);
                }
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        };
        match next {
            Show::Line(text) => bar.suspend(|| put_line(&text)),
            Show::Progress { done, of, text, left } => {
                let now = Instant::now();
                let began = course.as_ref().map_or(now, |course| course.began);
                let text = match of {
                    0 => text,
                    _ if text.is_empty() => format!("run {} of {of}", done + 1),
                    _ => format!("run {} of {of}: {text}", done + 1),
                };
                draw(&bar, course.insert(Course { began, told: now, left, text }));
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
    let own = line.clone();
    let started = std::thread::Builder::new().name("haul-last-words".to_owned()).spawn(move || {
        put_line(&line);
        // Nobody waits any more where it took too long.
        let _ = done.send(());
    });
    match started {
        Ok(_) => drop(written.recv_timeout(LAST_WORDS)),
        // Better said with a wait than not at all.
        Err(_) => put_line(&own),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_starts_empty_ends_full_and_moves_within_a_run() {
        let began = Instant::now();
        let after = |seconds| began + Duration::from_secs(seconds);
        let course = |told, left: Option<u64>| Course {
            began,
            told: after(told),
            left: left.map(Duration::from_secs),
            text: "run 1 of 2".to_owned(),
        };
        let shown = |course: Course, at| course.at(after(at));
        assert_eq!(shown(course(0, None), 0), (0, "run 1 of 2".to_owned()), "while the path is tried");
        assert_eq!(shown(course(0, Some(20)), 0), (0, "20 s left: run 1 of 2".to_owned()));
        assert_eq!(shown(course(0, Some(20)), 5), (250, "15 s left: run 1 of 2".to_owned()));
        assert_eq!(
            shown(course(10, Some(30)), 10),
            (250, "30 s left: run 1 of 2".to_owned()),
            "slower than thought"
        );
        assert_eq!(shown(course(0, Some(20)), 20), (WHOLE, "at its end: run 1 of 2".to_owned()));
        assert_eq!(shown(course(0, Some(20)), 90).0, WHOLE, "and no further");
    }
}
