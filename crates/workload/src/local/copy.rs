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
use std::time::Duration;

use haul_copy::Selection;
use haul_host::memory::PageKind;
use haul_host::probe::counters::{CountsCycles, CycleCounter};
use haul_host::signal::Stop;
use haul_host::thread::{self, CpuList};
use haul_stats::reading::CellValue;
use haul_stats::{ByteCount, Cell, Metric, Reading, Scope};
use serde_json::{Value as Json, json};

mod arena;
mod beside;
mod limits;
mod mover;
mod threads;

pub use arena::CacheState;
pub use limits::{Ceilings, Level, LimitsSubject};
pub use mover::{Does, Mover};

use super::{Sample, Subject, rates, thread_cpu};
use crate::error::{Result, WorkloadError};
use crate::spec::SpecError;
use arena::{Arena, stride};
use beside::Ceiling;
use threads::together;

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
        let largest = self.sizes.iter().copied().max().unwrap_or(0);
        if let Some(by) = self.overlap.filter(|by| by.unsigned_abs() >= largest) {
            return bad(format!(
                "--overlap {by}: the ends of a copy of {} share bytes up to {} apart: give less, or a larger --size",
                ByteCount(largest),
                largest.saturating_sub(1)
            ));
        }
        if self.overlap.is_none() && self.movers.iter().any(|mover| matches!(mover, Mover::Memmove)) {
            return bad("--routine memmove is for ends that share bytes: give --overlap, or take libc, which is memcpy".to_owned());
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
        level("size_bytes", true, CellValue::Int(size));
        level(
            "src_offset_bytes",
            several(self.offsets.iter().map(|of| of.0).collect()),
            CellValue::Int(offsets.0),
        );
        level(
            "dst_offset_bytes",
            several(self.offsets.iter().map(|of| of.1).collect()),
            CellValue::Int(offsets.1),
        );
        level("distance_bytes", self.distances.len() > 1, CellValue::Int(distance.unwrap_or(0)));
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
    /// Whether the ceilings are still to be measured.
    unmeasured: bool,
    /// Those that the cells stand beside.
    beside: Vec<Ceiling>,
    counters: std::result::Result<Box<dyn CountsCycles>, String>,
    /// Of the last sample.
    distance: usize,
    /// The least share that the windows of threads had in common, in the rounds so far.
    common: Option<f64>,
    skipped: Vec<String>,
    /// Sizes whose ends lie apart where others overlap.
    apart: Vec<usize>,
}

impl CopySubject {
    /// Checks the specification. `cpus` are those to run on, the one of a single thread is `first`. Nothing is measured before
    /// [`Subject::set_up`], which must be called on the thread that is to be counted.
    ///
    /// # Errors
    /// What of it cannot be measured here, with the remedy.
    pub fn new(spec: &CopySpec, cpus: &CpuList, first: u32) -> Result<Self> {
        let ceilings = Ceilings::sizes_only(first);
        let counters = Err("the counters were not opened".to_owned());
        Ok(Self { unmeasured: true, ..Self::counting(spec, cpus, Some(first), ceilings, counters)? })
    }

    /// The same with ceilings that are known, and something else that counts or the reason why nothing does: for tests.
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
        let (mut skipped, mut apart) = (Vec::new(), Vec::new());
        let (cells, points): (Vec<Cell>, Vec<Point>) = points
            .into_iter()
            .filter(|(_, point)| {
                if point.overlap.is_some_and(|by| by.unsigned_abs() >= point.size as u64) {
                    if !apart.contains(&point.size) {
                        apart.push(point.size);
                    }
                    return false;
                }
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
            unmeasured: false,
            beside: Vec::new(),
            counters,
            distance: 0,
            common: None,
            skipped,
            apart,
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
                    .filter(|_| alone)
                    .or(timed.cpu),
                bytes: ByteCount(timed.bytes),
                calls: passes,
                cycles: counted.map(|counted| counted.0),
                instructions: counted.map(|counted| counted.1),
                ..Sample::default()
            }
        } else {
            let (sample, common) = together(arenas, &self.cpus, &point, extent, shift, stamp, passes)?;
            self.common = self.common.map(|least| least.min(common));
            sample
        };
        self.plausible(&point, &sample)?;
        Ok(sample)
    }

    fn set_up(&mut self, stop: &Stop, tell: &mut dyn FnMut(&str)) -> Result<()> {
        if !self.unmeasured {
            return Ok(());
        }
        let counters = CycleCounter::open().map(|counters| Box::new(counters) as Box<dyn CountsCycles>);
        self.counters = counters.map_err(|error| error.to_string());
        let wanted = beside::wanted(&self.points, &self.ceilings);
        let levels: Vec<Level> = wanted.iter().map(|(level, _)| *level).collect();
        let first = self.cpus.first().copied().unwrap_or(0);
        self.ceilings = Ceilings::measure(first, &levels, stop, tell)?;
        for (level, threads) in wanted {
            if stop.requested().is_some() {
                return Err(WorkloadError::Interrupted("the machine's limits were measured"));
            }
            tell(&format!("limits: copies in {level}"));
            let routine = self.ceilings.fastest(level);
            self.beside.push(Ceiling::new((level, threads), routine, &self.ceilings, &self.cpus)?);
        }
        self.unmeasured = false;
        Ok(())
    }

    fn set_up_takes(&self) -> Duration {
        if !self.unmeasured {
            return Duration::ZERO;
        }
        let wanted = beside::wanted(&self.points, &self.ceilings);
        wanted.iter().map(|(level, _)| level.takes()).sum()
    }

    fn round(&mut self, round: u32) -> Result<()> {
        if round == 0 {
            // What calibration saw is in no sample.
            self.common = Some(1.0);
        }
        for index in 0..self.beside.len() {
            let draw = self.draw();
            self.beside[index].sample(&self.cpus, draw)?;
        }
        Ok(())
    }

    fn settle(&mut self, medians: &[Option<f64>]) {
        for ceiling in &mut self.beside {
            ceiling.settle(&self.points, medians, &self.ceilings);
        }
    }

    fn concluding(&self, cell: usize, readings: &[Reading]) -> Vec<Reading> {
        let rate = readings.iter().find(|reading| reading.metric == Metric::CopyRate);
        let rate = rate.and_then(|reading| reading.value).map(haul_stats::Value::as_f64);
        vec![beside::share(&self.beside, &self.points[cell], rate, &self.ceilings)]
    }

    fn verify(&mut self, cell: usize) -> Result<()> {
        let point = self.points[cell];
        self.prepare(cell)?;
        let (shift, stamp) = (point.offsets.1, self.draw());
        let arena = self.arenas.get_mut(&point.pages).and_then(|arenas| arenas.first_mut());
        arena.map_or(Ok(()), |arena| arena.verify(&point, shift, stamp))
    }

    fn readings(&self, cell: usize, sample: &Sample) -> Vec<Reading> {
        let mut readings = rates(sample);
        if self.points[cell].threads > 1 {
            // It is known of the most disturbed thread, and is not the CPU time of all.
            readings.retain(|reading| reading.metric != Metric::CopyCpu);
        }
        readings.push(Reading::count(
            Metric::CopyDistance,
            Scope::Run,
            self.distance as u64,
            "addresses of the sample",
        ));
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
            "limits": self.ceilings.as_json(),
            "ceilings": beside::as_json(&self.beside),
            "cpu_model": haul_host::processor::model().map(|model| json!({
                "vendor": model.vendor, "numbers": model.numbers, "flags": model.flags,
            })),
            "pages": pages,
            "counters": self.counters.as_ref().err().map_or_else(
                || json!({"source": "perf_event_open"}),
                |reason| json!({"source": null, "reason": reason}),
            ),
        });
        let threads = self.points.iter().map(|point| point.threads).max().unwrap_or(1);
        if threads > 1 {
            effective["common_window"] = json!(self.common);
            effective["cpus"] = json!(self.cpus.iter().take(threads).collect::<Vec<_>>());
        }
        if !(self.skipped.is_empty() && self.apart.is_empty()) {
            effective["skipped"] = json!({
                "routines": self.skipped,
                "routines_reason": "they promise nothing where source and destination overlap so",
                "sizes": self.apart,
                "sizes_reason": "their ends share no byte",
            });
        }
        effective
    }
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
