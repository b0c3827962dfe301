//! What those who ask write down, and what the thread that watches the clock makes of it.
//!
//! ```text
//! worker     per lane: a count for each bucket of latency, and of what was sent again     relaxed, one writer each,
//!            per flow: begun, done, when the last was done, the longest wait in the window     never reset
//! watcher    window opens: copy the counts, say so to the workers      closes: copy again; the difference is the report
//! ```
//!
//! A stall is the time a flow completed nothing although something was under way or due. It begins at the last completion,
//! but not before what is missing was due, nor before the window; the one still open when the window closes counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use haul_host::clock;
use haul_stats::latency::{BUCKETS, Histogram, bucket_of};
use haul_stats::{MonoNanos, PerSecond};

use super::ExchangeReport;
use super::schedule::{Schedule, Share};
use crate::end::Ledger;
use crate::engine::Place;
use crate::report::Detail;

/// What the flows of one worker count together.
#[derive(Debug)]
struct Tally {
    buckets: Vec<AtomicU64>,
    resent: AtomicU64,
}

impl Tally {
    fn new() -> Self {
        Self { buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(), resent: AtomicU64::new(0) }
    }
}

/// One flow, alone on its cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Marks {
    begun: AtomicU64,
    done: AtomicU64,
    last: AtomicU64,
    longest: AtomicU64,
}

/// Adds to a counter that has one writer.
#[inline]
fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
}

/// What one end's requesters write to.
#[derive(Debug)]
pub(crate) struct Book {
    tallies: Mutex<Vec<(usize, Arc<Tally>)>>,
    marks: Vec<Marks>,
    /// When the window opened; 0 until then.
    opened: AtomicU64,
    /// When the flows began, which is where all schedules do.
    origin: OnceLock<MonoNanos>,
    pace: Option<PerSecond>,
}

impl Book {
    /// A book for so many flows, of an open loop where there is a pace.
    pub(crate) fn new(flows: u32, pace: Option<PerSecond>) -> Arc<Self> {
        Arc::new(Self {
            tallies: Mutex::default(),
            marks: (0..flows).map(|_| Marks::default()).collect(),
            opened: AtomicU64::new(0),
            origin: OnceLock::new(),
            pace,
        })
    }

    /// A flow's own page.
    pub(crate) fn page(self: &Arc<Self>, place: Place) -> Page {
        let mut tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        let known = tallies.iter().find(|(lane, _)| *lane == place.lane).map(|(_, tally)| Arc::clone(tally));
        let tally = known.unwrap_or_else(|| {
            let tally = Arc::new(Tally::new());
            tallies.push((place.lane, Arc::clone(&tally)));
            tally
        });
        let flow = place.flow as usize;
        Page { book: Arc::clone(self), tally, flow, begun: 0, done: 0, last: 0, longest: 0 }
    }

    fn share(&self, flow: usize) -> Option<Share> {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Some(Share::new(self.pace?, count(flow), count(self.marks.len())))
    }

    fn counts(&self) -> Counts {
        let tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts = Counts { buckets: vec![0; BUCKETS], resent: 0 };
        for (_, tally) in tallies.iter() {
            for (sum, count) in counts.buckets.iter_mut().zip(&tally.buckets) {
                *sum += count.load(Ordering::Relaxed);
            }
            counts.resent += tally.resent.load(Ordering::Relaxed);
        }
        counts
    }

    /// The longest stall of a window from `opened` to `now`, and how many transactions are missing at its end.
    fn missing(&self, opened: MonoNanos, now: MonoNanos) -> (Duration, u64) {
        let (mut longest, mut missing) = (Duration::ZERO, 0_u64);
        for (flow, marks) in self.marks.iter().enumerate() {
            let done = marks.done.load(Ordering::Relaxed);
            let last = MonoNanos(marks.last.load(Ordering::Relaxed));
            let begun = marks.begun.load(Ordering::Relaxed);
            let (wanted, since) = match (self.share(flow), self.origin.get()) {
                (Some(share), Some(origin)) => {
                    (share.due_after(now.since(*origin)), origin.after(share.offset(done)))
                }
                // One that waits for its turn began right after the one before.
                _ => (begun, MonoNanos(0)),
            };
            longest = longest.max(Duration::from_nanos(marks.longest.load(Ordering::Relaxed)));
            if wanted > done {
                longest = longest.max(now.since(since.max(last).max(opened)));
            }
            missing = missing.saturating_add(wanted.saturating_sub(done));
        }
        (longest, missing)
    }

    fn begun(&self) -> u64 {
        self.marks.iter().map(|marks| marks.begun.load(Ordering::Relaxed)).sum()
    }
}

/// What one flow writes, in the hands of its worker.
#[derive(Debug)]
pub(crate) struct Page {
    book: Arc<Book>,
    tally: Arc<Tally>,
    flow: usize,
    begun: u64,
    done: u64,
    last: u64,
    longest: u64,
}

impl Page {
    /// The flow begins: its schedule, where it has one. The first to begin sets the origin of all.
    pub(crate) fn schedule(&self) -> Option<Schedule> {
        let origin = *self.book.origin.get_or_init(clock::now);
        Some(Schedule::new(self.book.share(self.flow)?, origin))
    }

    /// So many transactions were begun.
    #[inline]
    pub(crate) fn begin(&mut self, count: u64) {
        self.begun += count;
        self.book.marks[self.flow].begun.store(self.begun, Ordering::Relaxed);
    }

    /// One that was begun, or due, at `start` is complete.
    #[inline]
    pub(crate) fn complete(&mut self, start: MonoNanos, now: MonoNanos) {
        let marks = &self.book.marks[self.flow];
        add(&self.tally.buckets[bucket_of(now.0.saturating_sub(start.0))], 1);
        let opened = self.book.opened.load(Ordering::Relaxed);
        if opened != 0 {
            let wait = now.0.saturating_sub(self.last.max(start.0).max(opened));
            if wait > self.longest {
                self.longest = wait;
                marks.longest.store(wait, Ordering::Relaxed);
            }
        }
        self.last = now.0;
        self.done += 1;
        marks.last.store(self.last, Ordering::Relaxed);
        marks.done.store(self.done, Ordering::Relaxed);
    }

    /// A request was sent once more.
    pub(crate) fn resend(&self) {
        add(&self.tally.resent, 1);
    }
}

/// A copy of the counts.
#[derive(Debug)]
struct Counts {
    buckets: Vec<u64>,
    resent: u64,
}

/// Makes a report of a book.
#[derive(Debug)]
pub(crate) struct BookLedger {
    book: Arc<Book>,
    opening: Option<Counts>,
    report: ExchangeReport,
}

impl BookLedger {
    pub(crate) fn new(book: Arc<Book>) -> Self {
        Self { book, opening: None, report: ExchangeReport::default() }
    }

    /// About how many transactions one flow has completed within the last so long, at most: as if it had gone evenly.
    pub(crate) fn most_within(&self, length: Duration) -> u64 {
        let Some(began) = self.book.origin.get() else { return 0 };
        let most = self.book.marks.iter().map(|marks| marks.done.load(Ordering::Relaxed)).max().unwrap_or(0);
        let elapsed = clock::now().since(*began).max(length).as_nanos().max(1);
        u64::try_from(u128::from(most) * length.as_nanos() / elapsed).unwrap_or(most)
    }

    /// The report, once the flows are over.
    pub(crate) fn report(&mut self) -> ExchangeReport {
        let mut report = std::mem::take(&mut self.report);
        report.begun = self.book.begun();
        report
    }
}

impl Ledger for BookLedger {
    fn open(&mut self) {
        self.opening = Some(self.book.counts());
        self.book.opened.store(clock::now().0, Ordering::Relaxed);
    }

    fn close(&mut self) {
        let Some(then) = self.opening.take() else { return };
        let now = self.book.counts();
        let passed = then.buckets.iter().zip(&now.buckets).map(|(then, now)| now - then);
        // More than 2^63 transactions are centuries of them.
        self.report.latency = Histogram::from_counts(passed.enumerate()).unwrap_or_default();
        self.report.resends = now.resent - then.resent;
        let opened = MonoNanos(self.book.opened.load(Ordering::Relaxed));
        let (longest, missing) = self.book.missing(opened, clock::now());
        (self.report.longest_stall, self.report.unanswered) = (Some(longest), missing);
    }

    fn detail(&mut self) -> Detail {
        Detail::Exchange(Box::new(self.report()))
    }
}
