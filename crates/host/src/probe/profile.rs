//! Where the CPUs of this host were: samples of all of them, by symbol of the kernel and of every program.
//!
//! Each CPU has an event that fires `hz` times a second and writes where it was into a ring; a thread empties the rings ten times a
//! second and adds up equal samples. Names are looked up after the window ([`Profiler::finish`]), never in it. Memory is
//! bounded: so many distinct addresses and stacks, and what finds no room is counted as `other`.
//!
//! ```text
//! start ─▶ per CPU: event ─▶ ring ─▶ (10/s) decode ─▶ tally of [open, close)
//! finish ─▶ kallsyms, ELF ─▶ symbols, classes, stacks ─▶ Profile
//! ```
//!
//! Where the CPU has a counter of cycles, a sample stands for so many cycles, and is taken also where interrupts are off. Where it
//! has none, a timer takes the samples (`cpu-clock`), each stands for time, and code that keeps interrupts off is charged to where they
//! are allowed again. Which of the two it was is in the profile ([`Profile::event`]): never compare one with the other.
//!
//! Where `perf_event_paranoid` forbids all CPUs to this user, [`Profiler::start_or_threads`] takes what it leaves: the given threads of
//! this process, with or without the kernel's part. Such a profile names what it lacks and why, and is never taken for the other.
//!
//! Samples are told apart by the kernel's `CLOCK_MONOTONIC` (`use_clockid`), so the edges of the window are exact, whenever the
//! rings are emptied.

mod class;
pub mod record;
mod tally;

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::record::{CALL_CHAIN, SAMPLE_TYPE};
use self::tally::{Names, Tally};
use super::counters::Cores;
use super::permission::{Asked, Facts, Narrowed, Obstacle};
use super::symbols::kernel::KernelSymbols;
use crate::error::{HostError, Named as _, Result};
use crate::sys::{self, PerfAttributes, PerfOf, PerfRing, perf_flag};
use crate::thread::{self, CpuList, Tid};

pub use self::class::Class;

/// How to sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileOptions {
    /// Samples a second and CPU, from 1 to `kernel.perf_event_max_sample_rate`. A number that no timer of the kernel is a multiple of
    /// does not walk in step with it.
    pub hz: u32,
    /// Callers too: stacks, and what is softirq. Each sample then takes a few hundred bytes and some
    /// microseconds more: where 997 samples a second took 2.5 % of a busy CPU (a virtual machine, whose timers are dear), with callers it
    /// was 3.2 %.
    pub call_chains: bool,
    /// What to sample by, the first that this host has. The one that was used is recorded.
    pub events: Vec<Sampler>,
}

impl Default for ProfileOptions {
    fn default() -> Self {
        Self { hz: 997, call_chains: true, events: vec![Sampler::Cycles, Sampler::CpuClock] }
    }
}

/// What makes a CPU tell where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sampler {
    /// The CPU's counter of cycles.
    Cycles,
    /// A timer of the kernel.
    CpuClock,
}

impl Sampler {
    /// As `perf` calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cycles => "cycles",
            Self::CpuClock => "cpu-clock",
        }
    }

    /// What a sample stands for an amount of.
    #[must_use]
    pub fn unit(self) -> Unit {
        match self {
            Self::Cycles => Unit::Cycles,
            Self::CpuClock => Unit::Nanoseconds,
        }
    }
}

/// Of what the amounts of a profile are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// CPU time, in ns.
    Nanoseconds,
    /// Cycles of CPUs that were not halted.
    Cycles,
}

impl Unit {
    /// As amounts are labelled.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nanoseconds => "ns",
            Self::Cycles => "cycles",
        }
    }
}

/// In what a CPU was busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Context {
    /// User mode.
    User,
    /// The kernel, for a system call, a fault or a thread of its own; or unknown, where no call chains were asked for.
    Kernel,
    /// A soft interrupt, wherever it ran.
    Softirq,
    /// An interrupt.
    Hardirq,
}

/// What a symbol cost in the window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SymbolCost {
    /// Its name, demangled; `[unknown]` where there is none.
    pub symbol: String,
    /// Where it is: `[kernel]`, a module (`tcp_bbr`), the name of a file (`libc.so.6`), `[vdso]`, `[anonymous]`.
    pub module: String,
    /// What kind of work.
    pub class: Class,
    /// In what the CPU was.
    pub context: Context,
    /// Whether a thread of this process was there, itself or interrupted.
    pub own: bool,
    /// The thread that was there, itself or interrupted; `None` where it is not one of the busiest, and for idle CPUs.
    pub thread: Option<Tid>,
    /// Samples in it, not in what it called.
    pub samples: u64,
    /// What they stand for, in the profile's unit.
    pub amount: u64,
}

/// What a class of the kernel's work, or user mode, cost in the window: of all samples, also those not listed by symbol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassCost {
    /// Which.
    pub class: Class,
    /// Samples in it.
    pub samples: u64,
    /// What they stand for, in the profile's unit.
    pub amount: u64,
}

/// Where the CPUs of a host were in a window. `samples` = those of `symbols` + `other` + `idle`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// What was sampled by: `cycles` or `cpu-clock`. Profiles of different events are not to be compared.
    pub event: String,
    /// Of what all amounts are.
    pub unit: Unit,
    /// Samples a second and CPU that were asked for.
    pub hz: u32,
    /// CPUs that were sampled.
    pub cpus: u32,
    /// The length of the window.
    pub window: Duration,
    /// Samples of the window.
    pub samples: u64,
    /// What they stand for.
    pub amount: u64,
    /// Samples for which there was no room in a ring. They are missing.
    pub lost: u64,
    /// How often the kernel stopped sampling a CPU for the rest of a tick, because it took too much time. Those are missing too.
    pub throttled: u64,
    /// Records that were not understood.
    pub malformed: u64,
    /// Samples whose address has no symbol.
    pub unresolved: u64,
    /// Samples of CPUs with nothing to do.
    pub idle: u64,
    /// Samples beyond the symbols listed.
    pub other: u64,
    /// The costliest first, at most [`Profile::MOST_SYMBOLS`]; idle is not among them.
    pub symbols: Vec<SymbolCost>,
    /// All but idle, by class, the costliest first.
    pub classes: Vec<ClassCost>,
    /// Folded stacks with their samples, the most frequent first, at most [`Profile::MOST_STACKS`]: the command, then its frames from the
    /// outermost, between `;`, those of the kernel with `_[k]` behind them.
    pub stacks: Vec<(String, u64)>,
    /// Samples beyond the stacks listed.
    pub other_stacks: u64,
    /// Build ids by file, and the kernel's as `[kernel]`: which code the names are of.
    pub build_ids: BTreeMap<String, String>,
    /// Why it is of a few threads of this process and not of all CPUs; `None`: it is of all CPUs.
    #[serde(default)]
    pub host_reason: Option<String>,
    /// Why what the kernel did is not in it; `None`: it is.
    #[serde(default)]
    pub kernel_reason: Option<String>,
    /// What to know about it.
    pub notes: Vec<String>,
}

impl Profile {
    /// No more symbols are listed.
    pub const MOST_SYMBOLS: usize = 1000;
    /// No more stacks are listed.
    pub const MOST_STACKS: usize = 4000;

    /// The stacks as flame graphs take them: a line each, `frame;frame;frame count`.
    #[must_use]
    pub fn folded(&self) -> String {
        let mut text = String::new();
        for (stack, samples) in &self.stacks {
            text.push_str(stack);
            text.push(' ');
            text.push_str(&samples.to_string());
            text.push('\n');
        }
        text
    }

    /// The share of samples with a symbol, 0 to 1, of all that were not idle.
    #[must_use]
    pub fn resolved(&self) -> f64 {
        let busy = self.samples.saturating_sub(self.idle);
        if busy == 0 { 1.0 } else { 1.0 - self.unresolved as f64 / busy as f64 }
    }
}

/// Samples all CPUs until it is finished or dropped, or a few threads where that is all this user may have.
#[derive(Debug)]
pub struct Profiler {
    shared: Arc<Shared>,
    reader: Option<JoinHandle<Tally>>,
    /// What the reader hands over where it is asked to.
    handed: Receiver<Tally>,
    /// Names, once they were looked up: a window that follows another finds most of its own there.
    names: Option<Names>,
    used: Used,
    hz: u32,
    cpus: u32,
}

/// What the reader is asked to do when it wakes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Wish {
    #[default]
    Nothing,
    /// Empty the rings, hand over what there is, and begin anew.
    Hand,
    Stop,
}

#[derive(Debug)]
struct Shared {
    /// The edges of the window in ns of the monotonic clock; `u64::MAX`: not yet.
    open: AtomicU64,
    close: AtomicU64,
    wish: Mutex<Wish>,
    wake: Condvar,
}

/// What is sampled by, and what there is to say about it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Used {
    sampler: Sampler,
    notes: Vec<String>,
    chains: bool,
    /// What it is less than a profile of the host.
    narrowed: Option<Narrowed>,
}

/// Whose samples are taken.
#[derive(Debug, Clone, Copy)]
enum Subject<'a> {
    Cpus(&'a CpuList),
    /// `kernel`: with what the kernel does for them.
    Threads {
        threads: &'a [Tid],
        kernel: bool,
    },
}

/// How often the rings are emptied. A wake-up costs a few microseconds, so this is not to be seen in what is measured.
const EMPTY_EVERY: Duration = Duration::from_millis(100);
/// A ring holds what comes in so many seconds, by the largest records: with a quarter of one, and CPUs that compilers were using
/// too, the reader was late enough to lose a tenth of the samples.
const HELD: f64 = 1.0;
/// Callers of a sample at most. Paths through the network are thirty to forty deep.
const DEEPEST: u16 = 64;

impl Profiler {
    /// Begins to sample. Nothing counts before [`Profiler::mark_open`].
    ///
    /// # Errors
    /// A rate that the kernel does not allow, or what stands in the way of any event; see [`preflight`].
    pub fn start(options: &ProfileOptions) -> Result<Self> {
        check_rate(options.hz)?;
        let cpus = CpuList::online()?;
        let (events, used) =
            open(options, Subject::Cpus(&cpus), &cores(), &Facts::host()).map_err(refused)?;
        Self::sample(options, events, used, &cpus)
    }

    /// Begins to sample all CPUs, or where `perf_event_paranoid` forbids that to this user what it leaves: `threads` of this
    /// process, with the kernel's part (level 1) or without ([`Profile::host_reason`], [`Profile::kernel_reason`] say so).
    ///
    /// # Errors
    /// As [`Profiler::start`]; and where not even that is allowed, what forbids it.
    pub fn start_or_threads(options: &ProfileOptions, threads: &[Tid]) -> Result<Self> {
        check_rate(options.hz)?;
        let (cpus, cores, facts) = (CpuList::online()?, cores(), Facts::host());
        let refusal = match open(options, Subject::Cpus(&cpus), &cores, &facts) {
            Ok((events, used)) => return Self::sample(options, events, used, &cpus),
            Err(refusal) => refusal,
        };
        let Some(narrowed) = facts.narrowed(refusal.errno) else { return Err(refused(refusal)) };
        Self::threads(options, threads, narrowed, &facts)
    }

    /// Begins to sample `threads` where all CPUs may not be; `None` where they may, because then another end of this host does it.
    ///
    /// # Errors
    /// As [`Profiler::start_or_threads`].
    pub fn start_threads_where_forbidden(options: &ProfileOptions, threads: &[Tid]) -> Result<Option<Self>> {
        check_rate(options.hz)?;
        let facts = Facts::host();
        let Err(errno) = of_a_cpu() else { return Ok(None) };
        facts.narrowed(errno).map(|narrowed| Self::threads(options, threads, narrowed, &facts)).transpose()
    }

    fn threads(options: &ProfileOptions, threads: &[Tid], narrowed: Narrowed, facts: &Facts) -> Result<Self> {
        let subject = Subject::Threads { threads, kernel: narrowed.kernel_reason.is_none() };
        let (events, mut used) = open(options, subject, &cores(), facts).map_err(refused)?;
        used.narrowed = Some(narrowed);
        Self::sample(options, events, used, &CpuList::online()?)
    }

    fn sample(options: &ProfileOptions, events: Vec<OwnedFd>, used: Used, cpus: &CpuList) -> Result<Self> {
        let mut pages = ring_pages(options.hz, used.chains);
        if used.narrowed.is_some() {
            // What an ordinary user may lock is for all rings together, and there are as many as threads.
            pages = (pages / events.len().next_power_of_two()).max(FEWEST_PAGES);
        }
        let mut rings = Vec::with_capacity(events.len());
        for event in events {
            let ring = map(&event, pages)?;
            rings.push((event, ring));
        }
        let shared = Arc::new(Shared {
            open: AtomicU64::new(u64::MAX),
            close: AtomicU64::new(u64::MAX),
            wish: Mutex::default(),
            wake: Condvar::new(),
        });
        for (event, _) in &rings {
            sys::perf_enable(event.as_fd()).named("start", || "sampling".into())?;
        }
        let tally = Tally::new(std::process::id(), used.chains);
        let (seen, all) = (Arc::clone(&shared), cpus.clone());
        let (hand, handed) = sync_channel(1);
        let work = move || read_rings(rings, &seen, tally, &all, &hand);
        let reader = std::thread::Builder::new().name("haul-profile".into()).spawn(work);
        let reader = reader.named("start", || "the thread that reads samples".into())?;
        let count = u32::try_from(cpus.cpus().len()).unwrap_or(u32::MAX);
        Ok(Self { shared, reader: Some(reader), handed, names: None, used, hz: options.hz, cpus: count })
    }

    /// From now on samples count.
    pub fn mark_open(&self) {
        self.shared.open.store(now(), Ordering::SeqCst);
    }

    /// From now on samples do not count any more.
    pub fn mark_close(&self) {
        self.shared.close.store(now(), Ordering::SeqCst);
    }

    /// What it was called as it began: `cycles` or `cpu-clock`.
    #[must_use]
    pub fn event(&self) -> &'static str {
        self.used.sampler.name()
    }

    /// Ends sampling, closes the window where it is open, and looks up the names: a few tens of milliseconds of one CPU.
    ///
    /// # Errors
    /// A window without a sample, with the likely cause.
    pub fn finish(mut self) -> Result<Profile> {
        if self.shared.close.load(Ordering::SeqCst) == u64::MAX {
            self.mark_close();
        }
        let tally = self.stop().ok_or_else(|| HostError::Unavailable {
            operation: "read",
            object: "the samples".into(),
            reason: "the thread that reads them ended early (a bug in haul)".into(),
        })?;
        let (open, close) =
            (self.shared.open.load(Ordering::SeqCst), self.shared.close.load(Ordering::SeqCst));
        let window = Duration::from_nanos(close.saturating_sub(open));
        if tally.samples() == 0 {
            return Err(HostError::Unavailable {
                operation: "profile",
                object: "this host".into(),
                reason: self.why_none(&tally, open, window),
            });
        }
        let header = self.header(window);
        Ok(tally.profile(header, self.names.get_or_insert_with(Names::host)))
    }

    /// The samples since [`Profiler::mark_open`], or since the last `take`, with names; sampling goes on. What was looked up is
    /// kept for the next time, as long as it holds: the kernel's names until its modules change, those of files while they can be opened.
    /// Memory is bounded as that of one window. A window without a sample is no error here, because CPUs that were halted have none.
    ///
    /// # Errors
    /// A window that was never opened, or is closed; the reader's end.
    pub fn take(&mut self) -> Result<Profile> {
        let refused = |reason: &str| HostError::Unavailable {
            operation: "read",
            object: "the samples so far".into(),
            reason: reason.into(),
        };
        let open = self.shared.open.load(Ordering::SeqCst);
        if open == u64::MAX || self.shared.close.load(Ordering::SeqCst) != u64::MAX {
            return Err(refused("the window is not open"));
        }
        let until = now();
        *self.shared.wish.lock().unwrap_or_else(PoisonError::into_inner) = Wish::Hand;
        self.shared.wake.notify_all();
        let tally = self
            .handed
            .recv()
            .map_err(|_| refused("the thread that reads them ended early (a bug in haul)"))?;
        // What came between the two is of the next window by its clock, and of this by its ring: some microseconds.
        self.shared.open.store(until, Ordering::SeqCst);
        let header = self.header(Duration::from_nanos(until.saturating_sub(open)));
        let names = self.names.get_or_insert_with(Names::host);
        names.refresh();
        Ok(tally.profile(header, names))
    }

    fn header(&self, window: Duration) -> tally::Header {
        tally::Header {
            event: self.used.sampler.name().to_owned(),
            unit: self.used.sampler.unit(),
            hz: self.hz,
            cpus: self.cpus,
            window,
            notes: self.used.notes.clone(),
            narrowed: self.used.narrowed.clone(),
        }
    }

    fn why_none(&self, tally: &Tally, open: u64, window: Duration) -> String {
        let expected = window.as_secs_f64() * f64::from(self.hz) * f64::from(self.cpus);
        if open == u64::MAX {
            "no sample: its window was never opened".into()
        } else if expected < 10.0 {
            format!("no sample: {} ms at {} Hz is too short a window", window.as_millis(), self.hz)
        } else if tally.lost() > 0 {
            format!("no sample: all {} were lost, because the rings were not read in time", tally.lost())
        } else if tally.malformed() > 0 {
            format!("no sample: {} records were not understood", tally.malformed())
        } else if tally.outside() > 0 {
            format!("no sample in the window, and {} outside of it: the clocks disagree", tally.outside())
        } else if let Some(Narrowed { kernel_reason: Some(reason), .. }) = &self.used.narrowed {
            format!(
                "no sample: these threads were in user mode too rarely, and the kernel's part is not to be had: {reason}"
            )
        } else if self.used.narrowed.is_some() {
            "no sample: these threads did not run".into()
        } else if self.used.sampler == Sampler::Cycles {
            "no sample: the counter of cycles never fired, as where a virtual machine counts and gives no interrupts, or \
             where nothing ran; sample by cpu-clock"
                .into()
        } else {
            "no sample: the kernel's timers never fired".into()
        }
    }

    /// Ends the reader.
    fn stop(&mut self) -> Option<Tally> {
        let reader = self.reader.take()?;
        *self.shared.wish.lock().unwrap_or_else(PoisonError::into_inner) = Wish::Stop;
        self.shared.wake.notify_all();
        reader.join().ok()
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        self.stop();
    }
}

fn now() -> u64 {
    u64::try_from(sys::monotonic().as_nanos()).unwrap_or(u64::MAX)
}

fn check_rate(hz: u32) -> Result<()> {
    const FILE: &str = "/proc/sys/kernel/perf_event_max_sample_rate";
    /// The kernel's own default.
    const USUAL: u32 = 100_000;
    let most = fs::read_to_string(FILE).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(USUAL);
    if (1..=most).contains(&hz) {
        return Ok(());
    }
    Err(HostError::Unavailable {
        operation: "sample",
        object: format!("{hz} times a second"),
        reason: format!(
            "kernel.perf_event_max_sample_rate = {most}: from 1 to that many are possible (the kernel lowers it where \
                         sampling took too much time)"
        ),
    })
}

/// Less is not worth a ring, where it can be had.
const FEWEST_PAGES: usize = 16;

/// Room for what comes in [`HELD`] seconds, by the largest records, as a power of two of pages.
fn ring_pages(hz: u32, chains: bool) -> usize {
    /// Header and fields of a sample, without callers.
    const FIXED: f64 = 48.0;
    let record = FIXED + if chains { 8.0 * f64::from(DEEPEST + 4) } else { 0.0 };
    let bytes = record * f64::from(hz) * HELD;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 2^27")]
    let pages = bytes as usize / sys::page_size() + 1;
    pages.next_power_of_two().clamp(FEWEST_PAGES, 1024)
}

/// Maps a ring, a smaller one where so much memory may not be locked (`kernel.perf_event_mlock_kb`).
fn map(event: &OwnedFd, pages: usize) -> Result<PerfRing> {
    const LEAST: usize = 4;
    let mut pages = pages;
    loop {
        match PerfRing::map(event.as_fd(), pages) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) && pages > LEAST => pages /= 2,
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                let error = HostError::os("map", "the rings of samples", error);
                return Err(HostError::Unavailable {
                    operation: "map",
                    object: "the rings of samples".into(),
                    reason: format!(
                        "{error}; raise kernel.perf_event_mlock_kb or ulimit -l, or give haul CAP_IPC_LOCK"
                    ),
                });
            }
            other => return other.named("map", || "the rings of samples".into()),
        }
    }
}

/// `PERF_TYPE_HARDWARE` and `PERF_COUNT_HW_CPU_CYCLES`; `PERF_TYPE_SOFTWARE` and `PERF_COUNT_SW_CPU_CLOCK`.
const CYCLES: (u32, u64) = (0, 0);
const CPU_CLOCK: (u32, u64) = (1, 0);

fn cores() -> Vec<Cores> {
    super::counters::kinds_of_cores()
}

fn attributes(sampler: Sampler, hz: u32, chains: bool) -> PerfAttributes {
    let (kind, config) = match sampler {
        Sampler::Cycles => CYCLES,
        Sampler::CpuClock => CPU_CLOCK,
    };
    PerfAttributes {
        kind,
        config,
        sample: u64::from(hz),
        sample_type: SAMPLE_TYPE | if chains { CALL_CHAIN } else { 0 },
        flags: perf_flag::DISABLED
            | perf_flag::COMMAND
            | perf_flag::FREQUENCY
            | perf_flag::SAMPLE_ID_ALL
            | perf_flag::USE_CLOCK,
        clock: libc::CLOCK_MONOTONIC,
        max_stack: if chains { deepest() } else { 0 },
        ..PerfAttributes::default()
    }
}

/// [`DEEPEST`], or less where the kernel allows less.
fn deepest() -> u16 {
    let allowed = fs::read_to_string("/proc/sys/kernel/perf_event_max_stack");
    allowed.ok().and_then(|text| text.trim().parse().ok()).map_or(DEEPEST, |most: u16| most.min(DEEPEST))
}

/// Why no event could be opened, by the last sampler that was tried.
#[derive(Debug)]
struct Refusal {
    errno: Option<i32>,
    reason: String,
    object: &'static str,
}

fn refused(refusal: Refusal) -> HostError {
    HostError::Unavailable { operation: "profile", object: refusal.object.into(), reason: refusal.reason }
}

/// An event on each CPU or thread, by the first sampler this host has.
fn open(
    options: &ProfileOptions,
    subject: Subject<'_>,
    cores: &[Cores],
    facts: &Facts,
) -> std::result::Result<(Vec<OwnedFd>, Used), Refusal> {
    let (host, kernel) = match subject {
        Subject::Cpus(_) => (true, true),
        Subject::Threads { kernel, .. } => (false, kernel),
    };
    let object = if host { "this host" } else { "threads of this process" };
    let mut notes = Vec::new();
    let mut refusal = Refusal { errno: None, reason: "no event to sample by was named".into(), object };
    for &sampler in &options.events {
        let attributes = attributes(sampler, options.hz, options.call_chains);
        match open_all(&attributes, sampler, subject, cores) {
            Ok(events) => {
                if sampler == Sampler::CpuClock && kernel {
                    notes.push(
                        "sampled by a timer: what ran with interrupts off is charged to where they were allowed again"
                            .to_owned(),
                    );
                }
                if !options.call_chains && kernel {
                    notes.push(
                        "without call chains: softirq is not told from the rest of the kernel".to_owned(),
                    );
                }
                return Ok((events, Used { sampler, notes, chains: options.call_chains, narrowed: None }));
            }
            Err(error) => {
                let asked = Asked { host, kernel, tracepoint: false, cores: sampler == Sampler::Cycles };
                let errno = error.raw_os_error();
                let reason = facts.reason(errno, asked);
                notes.push(format!("not sampled by {}: {reason}", sampler.name()));
                refusal = Refusal { errno, reason, object };
            }
        }
    }
    Err(refusal)
}

fn open_all(
    attributes: &PerfAttributes,
    sampler: Sampler,
    subject: Subject<'_>,
    cores: &[Cores],
) -> std::io::Result<Vec<OwnedFd>> {
    let open = |of: PerfOf, config: u64, also: u64| {
        // The more precise the better: 2 is the instruction itself, 0 somewhere behind it. Not every CPU has all.
        let levels: &[u64] = if sampler == Sampler::Cycles { &[2, 1, 0] } else { &[0] };
        let mut answer = Err(std::io::ErrorKind::Unsupported.into());
        for level in levels {
            let flags = attributes.flags | also | level << perf_flag::PRECISE_SHIFT;
            answer = sys::perf_open(&PerfAttributes { config, flags, ..*attributes }, of, None);
            if answer.is_ok() {
                break;
            }
        }
        answer
    };
    let of_kind = |cores: &Cores| attributes.config | u64::from(cores.kind) << 32;
    let cycles = sampler == Sampler::Cycles;
    match subject {
        Subject::Cpus(cpus) => {
            let on = |&cpu: &u32| {
                let kind = cores.iter().find(|cores| cycles && cores.cpus.cpus().contains(&cpu));
                open(PerfOf::Cpu(cpu), kind.map_or(attributes.config, of_kind), 0)
            };
            cpus.cpus().iter().map(on).collect()
        }
        Subject::Threads { threads, kernel } => {
            let user = perf_flag::EXCLUDE_KERNEL | perf_flag::EXCLUDE_HYPERVISOR;
            let also = if kernel { 0 } else { user };
            // An event of a thread counts on the cores of one kind, so where there are several it takes one for each.
            let mut configs: Vec<u64> = cores.iter().filter(|_| cycles).map(of_kind).collect();
            if configs.is_empty() {
                configs.push(attributes.config);
            }
            let each = threads.iter().flat_map(|&tid| configs.iter().map(move |&config| (tid, config)));
            each.map(|(tid, config)| open(PerfOf::Thread(tid.number()), config, also)).collect()
        }
    }
}

fn read_rings(
    mut rings: Vec<(OwnedFd, PerfRing)>,
    shared: &Shared,
    mut tally: Tally,
    cpus: &CpuList,
    hand: &SyncSender<Tally>,
) -> Tally {
    // Whoever started it may be pinned to the CPU that is measured. Where a cpuset forbids the others, it stays.
    let _ = thread::pin_current(cpus);
    let mut bytes = Vec::new();
    loop {
        let wish = {
            let wish = shared.wish.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = shared.wake.wait_timeout_while(wish, EMPTY_EVERY, |wish| *wish == Wish::Nothing);
            let mut wish = waited.unwrap_or_else(PoisonError::into_inner).0;
            let asked = *wish;
            if asked == Wish::Hand {
                *wish = Wish::Nothing;
            }
            asked
        };
        for (event, ring) in &mut rings {
            if wish == Wish::Stop {
                // What it still writes would not be of the window.
                let _ = sys::perf_disable(event.as_fd());
            }
            bytes.clear();
            ring.drain(&mut bytes);
            let window = shared.open.load(Ordering::SeqCst)..shared.close.load(Ordering::SeqCst);
            tally.take(&bytes, &window);
        }
        match wish {
            Wish::Nothing => {}
            Wish::Hand => {
                let next = tally.anew();
                // Whoever asked waits for it; where it has gone there will be a stop.
                let _ = hand.send(std::mem::replace(&mut tally, next));
            }
            Wish::Stop => return tally,
        }
    }
}

/// What keeps a profile of this host from being had ([`Obstacle::fatal`]) or from being whole, named exactly. haul changes none
/// of it.
#[must_use]
pub fn preflight() -> Vec<Obstacle> {
    Facts::host().obstacles(of_a_cpu(), KernelSymbols::visible())
}

/// Whether a whole CPU may be sampled, and the error number where not.
fn of_a_cpu() -> std::result::Result<(), Option<i32>> {
    let cpu = CpuList::online().ok().and_then(|list| list.cpus().first().copied()).unwrap_or(0);
    let opened = sys::perf_open(&attributes(Sampler::CpuClock, 1, false), PerfOf::Cpu(cpu), None);
    opened.map(drop).map_err(|error| error.raw_os_error())
}
