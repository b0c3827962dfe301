//! Copy routines as a subject: which, how long, how the ends lie, in which cache, in which pages.
//!
//! ```text
//! spec ─ check ─▶ points (one for each cell) ─ prepare ─▶ memory of the kind of pages asked for, a ring of places in it
//!                                              sample ──▶ stamp ─ caches as asked ─ timed passes ─ the stamp has arrived?
//! ```
//!
//! What a copy costs depends on things that programs leave to chance, so each is an axis or is drawn anew for each sample and
//! recorded: where in a page the destination lies relative to the source ([`Metric::CopyDistance`]), what is in which cache (the
//! ring, see `arena`), what pages the memory has. Addresses and lengths are opaque to the compiler, both ends are written
//! before anything is timed, the fence of streaming stores is in the time, and a sample above what the machine can do is no
//! number.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use haul_copy::Selection;
use haul_host::memory::PageKind;
use haul_host::probe::counters::{CountsCycles, CycleCounter};
use haul_host::thread::{self, CpuList};
use haul_stats::reading::CellValue;
use haul_stats::{ByteCount, Cell, Doubt, Metric, Reading, Scope};
use serde_json::{Value as Json, json};

mod arena;
mod limits;
mod mover;

pub use arena::CacheState;
pub use limits::{Ceilings, Level, LimitsSubject};
pub use mover::{Does, Mover};

use super::{Sample, Subject, rates, thread_cpu};
use crate::error::{Result, WorkloadError};
use crate::spec::SpecError;
use arena::{Arena, Timed};

/// Bytes of a cache line: an offset is counted from one.
pub const LINE: u64 = 64;

/// A distance is counted modulo this.
pub const PAGE: u64 = 4096;

/// The longest copy: what fits memory is known only when it is asked for.
const LONGEST: u64 = 8 << 30;

/// How far above what the machine can do in the same memory a copy may be: ceilings are measured in a moment, and noisy.
const PLAUSIBLE: f64 = 2.0;

/// What is to be measured.
#[derive(Debug, Clone)]
pub struct CopySpec {
    /// What copies.
    pub movers: Vec<Mover>,
    /// Bytes of a copy.
    pub sizes: Vec<u64>,
    /// Bytes past a line, of source and destination.
    pub offsets: Vec<(u64, u64)>,
    /// (dst − src) modulo a page; random for each sample where none is given.
    pub distances: Vec<Option<u64>>,
    /// Both ends in one buffer, the destination so many bytes above the source.
    pub overlap: Option<i64>,
    /// Where the bytes are before they are copied.
    pub caches: Vec<CacheState>,
    /// Pages; whatever the system gives where none is given.
    pub pages: Vec<Option<PageKind>>,
    /// What is done besides.
    pub does: Vec<Does>,
    /// Threads at once.
    pub threads: Vec<usize>,
    /// Lengths up to the size, drawn anew for each copy, log-uniformly.
    pub shuffle: bool,
    /// What random choices follow from.
    pub seed: u64,
}

impl Default for CopySpec {
    fn default() -> Self {
        Self {
            movers: vec![Mover::best()],
            sizes: vec![4096],
            offsets: vec![(0, 0)],
            distances: vec![None],
            overlap: None,
            caches: vec![CacheState::Hot],
            pages: vec![None],
            does: vec![Does::Copy],
            threads: vec![1],
            shuffle: false,
            seed: 0,
        }
    }
}

/// A cell, as it is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    pub(crate) mover: Mover,
    pub(crate) size: usize,
    pub(crate) offsets: (usize, usize),
    pub(crate) distance: Option<usize>,
    pub(crate) overlap: Option<i64>,
    pub(crate) cache: CacheState,
    pub(crate) pages: Option<PageKind>,
    pub(crate) does: Does,
    pub(crate) threads: usize,
    pub(crate) shuffle: bool,
}

impl CopySpec {
    /// The cells, and how each is measured.
    fn points(&self, cpus: usize) -> Result<Vec<(Cell, Point)>> {
        let bad = |what: String| Err(WorkloadError::Spec(SpecError::Local(what)));
        if let Some(size) = self.sizes.iter().find(|&&size| size == 0 || size > LONGEST) {
            return bad(format!("--size {size}: a copy has 1 byte to {}", ByteCount(LONGEST)));
        }
        let beyond = |&&(src, dst): &&(u64, u64)| src >= LINE || dst >= LINE;
        if let Some((src, dst)) = self.offsets.iter().find(beyond) {
            return bad(format!(
                "--src-offset {src} --dst-offset {dst}: an offset is counted from a cache line, 0 to {}; --distance says where in \
                 a page the destination lies",
                LINE - 1
            ));
        }
        if let Some(distance) = self.distances.iter().flatten().find(|&&distance| distance >= PAGE) {
            return bad(format!("--distance {distance}: it is (dst - src) modulo a page, 0 to {}", PAGE - 1));
        }
        if let Some(threads) = self.threads.iter().find(|&&threads| threads == 0 || threads > cpus) {
            return bad(format!(
                "--threads {threads}: each has a CPU of its own, and this process may use {cpus}: give 1 to {cpus}"
            ));
        }
        if self.overlap.is_some()
            && (self.does != [Does::Copy] || self.caches != [CacheState::Hot] || self.shuffle)
        {
            return bad("--overlap goes with copies of hot buffers only: leave out --cache, --shuffle, --then-read and --checksum".to_owned());
        }
        let mut points = Vec::new();
        for &mover in &self.movers {
            for &size in &self.sizes {
                for &(src, dst) in &self.offsets {
                    for &distance in &self.distances {
                        for &cache in &self.caches {
                            for &pages in &self.pages {
                                for &does in self.does.iter().filter(|does| mover.can(**does)) {
                                    for &threads in &self.threads {
                                        points.push(self.point(
                                            mover,
                                            size,
                                            (src, dst),
                                            distance,
                                            cache,
                                            pages,
                                            does,
                                            threads,
                                        ));
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
        Ok(points)
    }

    #[expect(clippy::too_many_arguments, reason = "one for each axis")]
    fn point(
        &self,
        mover: Mover,
        size: u64,
        offsets: (u64, u64),
        distance: Option<u64>,
        cache: CacheState,
        pages: Option<PageKind>,
        does: Does,
        threads: usize,
    ) -> (Cell, Point) {
        let mut cell = Cell::new();
        let mut level = |name: &str, swept: bool, value: CellValue| {
            if swept {
                cell.insert(name.to_owned(), value);
            }
        };
        let several = |mut of: Vec<u64>| {
            of.sort_unstable();
            of.dedup();
            of.len() > 1
        };
        let text = |value: &dyn std::fmt::Display| CellValue::Text(value.to_string());
        level("routine", true, text(&mover.name()));
        level("size", true, CellValue::Int(size));
        level("src_offset", several(self.offsets.iter().map(|of| of.0).collect()), CellValue::Int(offsets.0));
        level("dst_offset", several(self.offsets.iter().map(|of| of.1).collect()), CellValue::Int(offsets.1));
        level("distance", self.distances.len() > 1, CellValue::Int(distance.unwrap_or(0)));
        level("cache", self.caches.len() > 1, text(&cache));
        level("pages", self.pages.len() > 1, pages.map_or_else(|| text(&"any"), |pages| text(&pages)));
        level("does", self.does.len() > 1, text(&does));
        level("threads", self.threads.len() > 1, CellValue::Int(threads as u64));
        let length = |of: u64| usize::try_from(of).unwrap_or(usize::MAX);
        let point = Point {
            mover,
            size: length(size),
            offsets: (length(offsets.0), length(offsets.1)),
            distance: distance.map(length),
            overlap: self.overlap,
            cache,
            pages,
            does,
            threads,
            shuffle: self.shuffle,
        };
        (cell, point)
    }
}

/// The routines of a [`CopySpec`], to be surveyed.
pub struct CopySubject {
    cells: Vec<Cell>,
    points: Vec<Point>,
    /// By kind of pages, one for each thread.
    arenas: BTreeMap<Option<PageKind>, Vec<Arena>>,
    cpus: Vec<u32>,
    seed: u64,
    drawn: u64,
    ceilings: Ceilings,
    counters: std::result::Result<Box<dyn CountsCycles>, String>,
    /// Of the last sample.
    distance: usize,
    /// The least share that the windows of threads had in common.
    common: f64,
    skipped: Vec<String>,
}

impl CopySubject {
    /// Checks the specification. `ceilings` were measured before; `cpus` are those to run on, the one of a single thread first.
    ///
    /// # Errors
    /// What of it cannot be measured here, with the remedy.
    pub fn new(spec: &CopySpec, cpus: &CpuList, first: Option<u32>, ceilings: Ceilings) -> Result<Self> {
        let counters = CycleCounter::open().map(|counters| Box::new(counters) as Box<dyn CountsCycles>);
        Self::counting(spec, cpus, first, ceilings, counters.map_err(|error| error.to_string()))
    }

    /// The same with something else that counts, or with the reason why nothing does.
    ///
    /// # Errors
    /// As [`CopySubject::new`].
    pub fn counting(
        spec: &CopySpec,
        cpus: &CpuList,
        first: Option<u32>,
        ceilings: Ceilings,
        counters: std::result::Result<Box<dyn CountsCycles>, String>,
    ) -> Result<Self> {
        let mut cpus = cpus.cpus().to_vec();
        if let Some(place) = first.and_then(|first| cpus.iter().position(|&cpu| cpu == first)) {
            cpus.swap(0, place);
        }
        let points = spec.points(cpus.len())?;
        let mut skipped = Vec::new();
        let (cells, points): (Vec<Cell>, Vec<Point>) = points
            .into_iter()
            .filter(|(_, point)| {
                let may = point.overlap.is_none_or(|by| point.mover.moves(by, point.size));
                if !may && !skipped.contains(&point.mover.name().to_owned()) {
                    skipped.push(point.mover.name().to_owned());
                }
                may
            })
            .unzip();
        if cells.is_empty() {
            return Err(WorkloadError::Spec(SpecError::Local(format!(
                "nothing is left to measure: {} promise nothing where the ends overlap so (a destination below the source is \
                 promised by more: --overlap -64)",
                skipped.join(", ")
            ))));
        }
        Ok(Self {
            cells,
            points,
            arenas: BTreeMap::new(),
            cpus,
            seed: spec.seed,
            drawn: 0,
            ceilings,
            counters,
            distance: 0,
            common: 1.0,
            skipped,
        })
    }

    /// A number from the seed: splitmix64, Steele, Lea, Flood 2014.
    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        mix(self.seed.wrapping_add(self.drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// A sample that no machine could make is no sample.
    fn plausible(&self, point: &Point, sample: &Sample) -> Result<()> {
        let rate = sample.bytes.0 as f64 / sample.elapsed.as_secs_f64();
        let level = self.ceilings.level_of(point.cache, 2 * point.size as u64);
        let Some(limit) = self.ceilings.most(level).map(|most| most * PLAUSIBLE * point.threads as f64)
        else {
            return Ok(());
        };
        if rate <= limit {
            return Ok(());
        }
        Err(WorkloadError::Invalid(format!(
            "{} copied {} bytes at {:.1} GB/s, more than {PLAUSIBLE} times what this machine can do in {level} ({:.1} GB/s for each \
             thread): something was not copied, or not timed",
            point.mover.name(),
            point.size,
            rate / 1e9,
            limit / PLAUSIBLE / point.threads as f64 / 1e9
        )))
    }
}

pub(crate) fn mix(mut value: u64) -> u64 {
    value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

impl Subject for CopySubject {
    fn cells(&self) -> &[Cell] {
        &self.cells
    }

    fn prepare(&mut self, cell: usize) -> Result<()> {
        let point = self.points[cell];
        let extent = arena::extent(&point, &self.ceilings)?;
        let arenas = self.arenas.entry(point.pages).or_default();
        arenas.truncate(arenas.iter().position(|arena| arena.extent() < extent).unwrap_or(arenas.len()));
        while arenas.len() < point.threads {
            // As large as the largest cell of this kind of pages wants, so that it is made once.
            let most = self
                .points
                .iter()
                .filter(|other| other.pages == point.pages && other.cache == point.cache)
                .filter_map(|other| arena::extent(other, &self.ceilings).ok())
                .fold(extent, usize::max);
            arenas.push(Arena::new(most, point.pages)?);
        }
        Ok(())
    }

    fn sample(&mut self, cell: usize, passes: u64) -> Result<Sample> {
        let point = self.points[cell];
        let extent = arena::extent(&point, &self.ceilings)?;
        let (place, stamp) = (self.draw(), self.draw());
        let (src, dst) = point.offsets;
        let shift = match point.distance {
            Some(distance) => (src + distance) % 4096,
            None => usize::try_from(place % 64).unwrap_or(0) * 64 + dst,
        };
        self.distance = (shift + 4096 - src) % 4096;
        let nothing = || WorkloadError::Invalid("the memory of the cell was not prepared".to_owned());
        let arenas = self
            .arenas
            .get_mut(&point.pages)
            .filter(|arenas| arenas.len() >= point.threads)
            .ok_or_else(nothing)?;
        let sample = if point.threads == 1 {
            let before = (
                thread_cpu(thread::current_tid()),
                self.counters.as_mut().ok().and_then(|count| count.read()),
            );
            let timed = arenas[0].run(&point, extent, shift, stamp, passes)?;
            let after = (
                thread_cpu(thread::current_tid()),
                self.counters.as_mut().ok().and_then(|count| count.read()),
            );
            // Where caches are made ready within a sample the thread did more than was timed.
            let alone = timed.alone;
            let counted =
                after.1.zip(before.1).and_then(|(after, before)| after.since(before)).filter(|_| alone);
            Sample {
                passes,
                elapsed: timed.elapsed,
                thread_cpu: after
                    .0
                    .zip(before.0)
                    .map(|(after, before)| after.saturating_sub(before))
                    .filter(|_| alone),
                bytes: ByteCount(timed.bytes),
                calls: passes,
                cycles: counted.map(|counted| counted.0),
                instructions: counted.map(|counted| counted.1),
            }
        } else {
            let (sample, common) = together(arenas, &self.cpus, &point, extent, shift, stamp, passes)?;
            self.common = self.common.min(common);
            sample
        };
        self.plausible(&point, &sample)?;
        Ok(sample)
    }

    fn verify(&mut self, cell: usize) -> Result<()> {
        let point = self.points[cell];
        self.prepare(cell)?;
        let (shift, stamp) = (point.offsets.1, self.draw());
        let arena = self.arenas.get_mut(&point.pages).and_then(|arenas| arenas.first_mut());
        arena.map_or(Ok(()), |arena| arena.verify(&point, shift, stamp))
    }

    fn readings(&self, cell: usize, sample: &Sample) -> Vec<Reading> {
        let point = &self.points[cell];
        let mut readings = rates(sample);
        readings.push(Reading::count(
            Metric::CopyDistance,
            Scope::Run,
            self.distance as u64,
            "addresses of the sample",
        ));
        let level = self.ceilings.level_of(point.cache, 2 * point.size as u64);
        let ceiling =
            self.ceilings.copy(level).filter(|_| point.threads == 1 && matches!(point.does, Does::Copy));
        if let Some(ceiling) = ceiling {
            let rate = sample.bytes.0 as f64 / sample.elapsed.as_secs_f64();
            let source = format!("the fastest copy in {level}, before the survey");
            readings.push(Reading::real(Metric::CeilingShare, Scope::Run, rate / ceiling * 100.0, source));
        }
        readings
    }

    fn effective(&self) -> Json {
        let mut names: Vec<Mover> = Vec::new();
        for point in &self.points {
            if !names.contains(&point.mover) {
                names.push(point.mover);
            }
        }
        let pages: BTreeMap<String, String> = self
            .arenas
            .iter()
            .filter_map(|(asked, arenas)| {
                let asked = asked.map_or_else(|| "any".to_owned(), |asked| asked.to_string());
                Some((asked, arenas.first()?.got()))
            })
            .collect();
        let mut effective = json!({
            "routines": names.iter().map(Mover::identity).collect::<Vec<_>>(),
            "ceilings": self.ceilings.as_json(),
            "cpu_model": haul_host::processor::model().map(|model| json!({
                "vendor": model.vendor, "numbers": model.numbers, "flags": model.flags,
            })),
            "pages": pages,
            "counters": self.counters.as_ref().err().map_or_else(
                || json!({"source": "perf_event_open"}),
                |reason| json!({"source": null, "reason": reason}),
            ),
        });
        if self.points.iter().any(|point| point.threads > 1) {
            effective["common_window"] = json!(self.common);
        }
        if !self.skipped.is_empty() {
            effective["skipped"] = json!({"routines": self.skipped, "reason": "they promise nothing where source and destination overlap so"});
        }
        effective
    }

    fn doubts(&self) -> Vec<Doubt> {
        Vec::new()
    }
}

/// All threads copy from before the first begins to count until after the last has done with it, each pinned to a CPU of its own:
/// so each counts while all others load the machine. The sample is the sum of their rates over what their windows have in common.
fn together(
    arenas: &mut [Arena],
    cpus: &[u32],
    point: &Point,
    extent: usize,
    shift: usize,
    stamp: u64,
    passes: u64,
) -> Result<(Sample, f64)> {
    let (start, running, done) = (Barrier::new(point.threads), AtomicUsize::new(0), AtomicUsize::new(0));
    let outcomes: Vec<Result<(Timed, Option<Duration>)>> = std::thread::scope(|scope| {
        let workers: Vec<_> = arenas
            .iter_mut()
            .zip(cpus)
            .take(point.threads)
            .map(|(arena, &cpu)| {
                let (start, running, done) = (&start, &running, &done);
                scope.spawn(move || {
                    let pinned = thread::pin_current(&std::iter::once(cpu).collect());
                    let warm = arena.run(point, extent, shift, stamp, 1);
                    start.wait();
                    running.fetch_add(1, Ordering::Relaxed);
                    while running.load(Ordering::Relaxed) < point.threads {
                        arena.load(point, extent, shift);
                    }
                    let before = thread_cpu(thread::current_tid());
                    let timed = arena.run(point, extent, shift, stamp ^ 1, passes);
                    let used = thread_cpu(thread::current_tid())
                        .zip(before)
                        .map(|(after, before)| after.saturating_sub(before));
                    done.fetch_add(1, Ordering::Relaxed);
                    while done.load(Ordering::Relaxed) < point.threads && timed.is_ok() {
                        arena.load(point, extent, shift);
                    }
                    pinned?;
                    warm?;
                    Ok((timed?, used))
                })
            })
            .collect();
        let ended = |outcome: std::thread::Result<_>| {
            outcome.unwrap_or_else(|_| Err(WorkloadError::Invalid("a copying thread panicked".to_owned())))
        };
        workers.into_iter().map(|worker| ended(worker.join())).collect()
    });
    let all = outcomes.into_iter().collect::<Result<Vec<_>>>()?;
    let begin = all.iter().map(|(timed, _)| timed.begin).max().unwrap_or_default();
    let end = all.iter().map(|(timed, _)| timed.end).min().unwrap_or_default();
    let longest = all.iter().map(|(timed, _)| timed.end.since(timed.begin)).max().unwrap_or_default();
    let window = end.since(begin);
    let common = window.as_secs_f64() / longest.as_secs_f64().max(1e-9);
    let rate: f64 =
        all.iter().map(|(timed, _)| timed.bytes as f64 / timed.elapsed.as_secs_f64().max(1e-9)).sum();
    // Of one thread on the average: the time of a call is a thread's.
    let each_second: f64 =
        all.iter().map(|(timed, _)| passes as f64 / timed.elapsed.as_secs_f64().max(1e-9)).sum::<f64>()
            / all.len() as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count of bytes, or calls, of a moment"
    )]
    let over = |rate: f64| (rate * longest.as_secs_f64()).round() as u64;
    let sample = Sample {
        passes,
        elapsed: longest,
        bytes: ByteCount(over(rate)),
        calls: over(each_second).max(1),
        ..Sample::default()
    };
    Ok((sample, common))
}

/// Whether a table was made for this CPU.
///
/// # Errors
/// For which it was, and which this is.
pub fn fits_here(selection: &Selection) -> Result<()> {
    let here = this_cpu();
    if here == Some(selection.cpu()) {
        return Ok(());
    }
    let here = here.map_or_else(|| "one that /proc/cpuinfo does not name".to_owned(), |cpu| cpu.to_string());
    Err(WorkloadError::Spec(SpecError::Local(format!(
        "the selection was made on the CPU {}, and this is {here}: make one here with haul copy --thresholds",
        selection.cpu()
    ))))
}

/// This CPU, as a table names it.
#[must_use]
pub fn this_cpu() -> Option<haul_copy::selection::Cpu> {
    let model = haul_host::processor::model()?;
    haul_copy::selection::Cpu::new(&model.vendor, model.numbers)
}

#[cfg(test)]
mod tests;
