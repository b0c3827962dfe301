//! `haul top`: where the CPUs are while bytes move, again and again.
//!
//! ```text
//! host: CPU, devices, profiler ──┐
//!                                ├─▶ Slice ─▶ State ─▶ view: a screen, a block of text, a line of JSON
//! child: its events, as jsonl ───┘
//! ```
//!
//! One thread looks, adds up and draws; the profiler's reader and the readers of the child's outputs are the others. A workload is this
//! same binary as a child, in a process group of its own, so that ^C at the terminal reaches it once and in order, through this
//! process. However this process ends, the kernel sends the child SIGTERM ([`end_with_watcher`]), and it puts back what it changed.

mod child;
mod slice;
mod state;
mod view;

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use haul_host::signal::{Signal, Stop};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event as Input, KeyCode, KeyEventKind, KeyModifiers};

use crate::cli::{Top, TopFormat};
use crate::measure::{layout, print};
use child::Workload;
use slice::Watcher;
use state::State;

/// Tells a child whose end it shares.
const WATCHER: &str = "HAUL_WATCHER";

/// The shortest and the longest interval.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_mins(1));

/// How long keys, signals and the child's end may go unnoticed.
const LOOK: Duration = Duration::from_millis(100);

/// Where `haul top` started this process, has it end with that.
pub(crate) fn end_with_watcher() -> Result<()> {
    let Some(watcher) = std::env::var(WATCHER).ok().and_then(|pid| pid.parse().ok()) else { return Ok(()) };
    haul_host::privilege::end_with_parent(watcher).context("haul top has ended")
}

/// `haul top`.
pub(crate) fn top(args: &Top) -> Result<ExitCode> {
    if !(INTERVALS.0..=INTERVALS.1).contains(&args.interval) {
        bail!("--interval is from 250ms to 60s");
    }
    if let Some(device) = &args.device {
        haul_host::link::link_by_name(device)?;
    }
    let stop = Stop::install()?;
    // Before anything is drawn: what is wrong with its arguments is said in plain words.
    let workload = match args.workload.as_slice() {
        [] => None,
        arguments => Some(Workload::start(arguments)?),
    };
    let on_screen = args.format == TopFormat::Text
        && !args.plain
        && io::stdout().is_terminal()
        && io::stdin().is_terminal();
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let state = State::new(args.interval, workload.as_ref().map(Workload::title), colour && on_screen);
    let watcher = Watcher::start(args.hz, args.device.clone());
    let mut top = Running { state, watcher, workload, stop, shown: 0, asked_to_end: None };
    if on_screen {
        let mut screen = OnScreen::open()?;
        top.watch(args, &mut Face::Screen(&mut screen))?;
    } else {
        top.watch(args, &mut Face::Lines(args.format))?;
    }
    match top.workload {
        Some(workload) => workload.finish(args.format),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// The alternate screen, left however this ends: at a panic by the hook that ratatui sets, else by going.
struct OnScreen(DefaultTerminal);

impl OnScreen {
    fn open() -> Result<Self> {
        ratatui::try_init().map(Self).context("cannot take the terminal over; --plain does without")
    }
}

impl Drop for OnScreen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing put back.
        let _ = ratatui::try_restore();
    }
}

enum Face<'a> {
    Screen(&'a mut OnScreen),
    Lines(TopFormat),
}

struct Running {
    state: State,
    watcher: Watcher,
    workload: Option<Workload>,
    stop: Stop,
    shown: u64,
    asked_to_end: Option<Instant>,
}

/// What a key asks for.
#[derive(Debug, PartialEq, Eq)]
enum Wish {
    Nothing,
    Redraw,
    Quit,
}

impl Running {
    /// Looks and shows until somebody or something ends it.
    fn watch(&mut self, args: &Top, face: &mut Face<'_>) -> Result<()> {
        let mut last = Instant::now();
        let mut frozen: Option<State> = None;
        self.draw(face, None);
        loop {
            let left = (last + self.state.interval).saturating_duration_since(Instant::now());
            let wish = self.wait(left.min(LOOK), face)?;
            if wish == Wish::Quit && !self.end(Signal::Int) {
                return Ok(());
            }
            if let Some(signal) = self.stop.requested()
                && self.asked_to_end.is_none()
                && !self.end(signal)
            {
                return Ok(());
            }
            if let Some(workload) = &mut self.workload {
                workload.hear();
                // Its last interval is in its document.
                if workload.has_ended()? {
                    return Ok(());
                }
                if self.asked_to_end.is_some_and(|asked| asked.elapsed() > child::PATIENCE) {
                    workload.kill();
                }
            }
            let due = last.elapsed() >= self.state.interval;
            if due {
                last = Instant::now();
                let slice = self.watcher.look(self.workload.as_mut());
                let line = matches!(face, Face::Lines(TopFormat::Jsonl))
                    .then(|| slice.json(self.state.began.elapsed()));
                self.state.take(slice);
                self.shown += 1;
                if let Some(line) = line
                    && write_line(&line.to_string())?
                {
                    self.end(Signal::Int);
                    if self.workload.is_none() {
                        return Ok(());
                    }
                }
            }
            if self.state.paused && frozen.is_none() {
                frozen = Some(self.state.clone());
            } else if !self.state.paused {
                frozen = None;
            }
            if due && let Face::Lines(TopFormat::Text) = face {
                if write_line(&view::text(&self.state))? && !self.end(Signal::Int) {
                    return Ok(());
                }
            } else if due || wish == Wish::Redraw {
                if let Some(frozen) = &mut frozen {
                    frozen.look_like(&self.state);
                }
                self.draw(face, frozen.as_ref());
            }
            if args.count.is_some_and(|count| self.shown >= count)
                && self.asked_to_end.is_none()
                && !self.end(Signal::Int)
            {
                return Ok(());
            }
        }
    }

    /// Asks the workload to end; false where there is none to wait for.
    fn end(&mut self, signal: Signal) -> bool {
        let Some(workload) = &mut self.workload else { return false };
        if self.asked_to_end.is_some() {
            workload.kill();
        } else {
            self.asked_to_end = Some(Instant::now());
            self.state.ending = true;
            workload.signal(signal);
        }
        true
    }

    fn draw(&self, face: &mut Face<'_>, frozen: Option<&State>) {
        if let Face::Screen(screen) = face {
            // A terminal that is gone is told by a signal.
            let _ = screen.0.draw(|frame| view::draw(frame, frozen.unwrap_or(&self.state)));
        }
    }

    fn wait(&mut self, length: Duration, face: &Face<'_>) -> Result<Wish> {
        if matches!(face, Face::Lines(_)) {
            std::thread::sleep(length);
            return Ok(Wish::Nothing);
        }
        let mut wish = Wish::Nothing;
        let mut length = length;
        while self.stop.requested().is_none() && event::poll(length).context("cannot read keys")? {
            length = Duration::ZERO;
            wish = match event::read().context("cannot read keys")? {
                Input::Key(key) if key.kind != KeyEventKind::Release => {
                    let control = key.modifiers.contains(KeyModifiers::CONTROL);
                    self.key(key.code, control)
                }
                Input::Resize(..) => Wish::Redraw,
                _ => continue,
            };
            if wish == Wish::Quit {
                break;
            }
        }
        Ok(wish)
    }

    fn key(&mut self, code: KeyCode, control: bool) -> Wish {
        let state = &mut self.state;
        match code {
            KeyCode::Char('c') if control => return Wish::Quit,
            KeyCode::Char('q') | KeyCode::Esc => return Wish::Quit,
            KeyCode::Char(' ') => state.paused = !state.paused,
            KeyCode::Char('c') => state.by_class = !state.by_class,
            KeyCode::Char('t') => state.whose = state.whose.next(),
            KeyCode::Char('+') => state.interval = (state.interval * 2).min(INTERVALS.1),
            KeyCode::Char('-') => state.interval = (state.interval / 2).max(INTERVALS.0),
            KeyCode::Char('?' | 'h') => state.help = !state.help,
            _ => return Wish::Nothing,
        }
        Wish::Redraw
    }
}

/// Writes a line; true where nobody reads any more.
fn write_line(text: &str) -> Result<bool> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(true),
        Err(error) => Err(error).context("cannot write to standard output"),
    }
}

/// Prints what a workload ended in, as the workload would have.
fn print_document(document: &haul_results::record::Document) -> Result<()> {
    match print(&haul_results::text::document(document, layout())) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write the result to standard output")
        }
        _ => Ok(()),
    }
}
