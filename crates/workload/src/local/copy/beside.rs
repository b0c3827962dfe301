//! The ceilings that the cells of a survey stand beside.
//!
//! ```text
//! before the rounds   for each place of the bytes that a cell has, and each number of threads: memory, passes, a first rate
//! every round         one sample of each, in the same state of the machine as the round's cells
//! at the end          the median of those; raised to the median of the best cell there, where one is above it
//! ```
//!
//! So a share is of what was possible meanwhile and not of a lucky moment before, and the share of a cell is never above 100 %.

use std::time::Duration;

use haul_copy::Routine;
use haul_stats::estimate::Summary;
use haul_stats::{Metric, Reading, Scope};

use super::arena::{Arena, CacheState};
use super::limits::{Ceilings, Level};
use super::mover::{Does, Mover};
use super::threads::together;
use super::{Point, stride};
use crate::error::Result;

/// How long a sample takes at least: as a cell's by default.
const SAMPLE: Duration = Duration::from_millis(1);

/// What copies fastest where some of the cells are.
pub(super) struct Ceiling {
    level: Level,
    point: Point,
    arenas: Vec<Arena>,
    passes: u64,
    /// Bytes per second, before the first round.
    first: f64,
    /// One in each round.
    rates: Vec<f64>,
    /// At the end: the rate, and what reached it.
    settled: Option<(f64, String)>,
}

/// Why a cell stands beside no ceiling; `None` where it does.
pub(super) fn none_for(point: &Point) -> Option<&'static str> {
    if point.overlap.is_some() {
        return Some("a ceiling is that of ends which lie apart");
    }
    match point.does {
        Does::Copy | Does::Fused => None,
        Does::CopyRead => Some("a ceiling is that of copies alone, and here the copy is read as well"),
        Does::Sum | Does::CopySum => Some("a ceiling is that of copies alone, and this sums as well"),
    }
}

/// The places of the bytes, and the numbers of threads, that some of these cells have.
pub(super) fn wanted(points: &[Point], ceilings: &Ceilings) -> Vec<(Level, usize)> {
    let mut wanted: Vec<(Level, usize)> = Vec::new();
    for point in points.iter().filter(|point| none_for(point).is_none()) {
        let of = (ceilings.level_of(point.cache, 2 * point.size as u64), point.threads);
        if !wanted.contains(&of) {
            wanted.push(of);
        }
    }
    wanted
}

impl Ceiling {
    /// Makes the memory of it, and takes the first sample.
    pub(super) fn new(
        (level, threads): (Level, usize),
        routine: Routine,
        ceilings: &Ceilings,
        cpus: &[u32],
    ) -> Result<Self> {
        // What threads share they have a part of each; no less than what is beyond the caches of their own.
        let shared = matches!(level, Level::Llc | Level::Dram);
        let whole = ceilings.footprint(level) / 2;
        let part = if shared { whole / threads as u64 } else { whole };
        let least = 2 * ceilings.size(Level::L2).unwrap_or(0);
        let bytes = if shared { part.max(least).min(whole) } else { part };
        let point = Point {
            mover: Mover::Routine(routine),
            size: usize::try_from(bytes).unwrap_or(usize::MAX).max(64),
            offsets: (0, 0),
            distance: None,
            overlap: None,
            cache: CacheState::Hot,
            pages: None,
            does: Does::Copy,
            threads,
            shuffle: false,
        };
        let extent = stride(point.size);
        let arenas = (0..threads).map(|_| Arena::new(extent, None)).collect::<Result<Vec<_>>>()?;
        let mut ceiling =
            Self { level, point, arenas, passes: 1, first: 0.0, rates: Vec::new(), settled: None };
        loop {
            let (rate, took) = ceiling.once(cpus, 0, ceiling.passes)?;
            if took >= SAMPLE {
                ceiling.first = rate;
                return Ok(ceiling);
            }
            ceiling.passes *= 4;
        }
    }

    /// Bytes per second of so many passes, and what they took.
    fn once(&mut self, cpus: &[u32], draw: u64, passes: u64) -> Result<(f64, Duration)> {
        let (extent, shift) = (stride(self.point.size), usize::try_from(draw % 64).unwrap_or(0) * 64);
        if self.point.threads > 1 {
            let (sample, _) = together(&mut self.arenas, cpus, &self.point, extent, shift, draw, passes)?;
            return Ok((sample.bytes.0 as f64 / sample.elapsed.as_secs_f64(), sample.elapsed));
        }
        let Some(arena) = self.arenas.first_mut() else { return Ok((0.0, Duration::MAX)) };
        let timed = arena.run(&self.point, extent, shift, draw, passes)?;
        Ok((timed.bytes as f64 / timed.elapsed.as_secs_f64(), timed.elapsed))
    }

    /// A sample of a round.
    pub(super) fn sample(&mut self, cpus: &[u32], draw: u64) -> Result<()> {
        let (rate, _) = self.once(cpus, draw, self.passes)?;
        self.rates.push(rate);
        Ok(())
    }

    fn is_of(&self, point: &Point, ceilings: &Ceilings) -> bool {
        let level = ceilings.level_of(point.cache, 2 * point.size as u64);
        none_for(point).is_none() && (level, point.threads) == (self.level, self.point.threads)
    }

    /// Decides what it is, from its own samples and the medians of the cells.
    pub(super) fn settle(&mut self, points: &[Point], medians: &[Option<f64>], ceilings: &Ceilings) {
        let own = Summary::of(&self.rates).map_or(self.first, |summary| summary.median);
        let best = points
            .iter()
            .zip(medians)
            .filter(|(point, _)| self.is_of(point, ceilings))
            .filter_map(|(_, median)| *median)
            .fold(0.0, f64::max);
        self.settled = Some(if best > own {
            (best, format!("raised to the best cell's {:.1} GB/s", best / 1e9))
        } else {
            (own, format!("{:.1} GB/s by {}", own / 1e9, self.point.mover.name()))
        });
    }

    /// In words.
    fn words(&self, by: &str) -> String {
        let threads = match self.point.threads {
            1 => String::new(),
            more => format!(" with {more} threads"),
        };
        format!("of the copy ceiling of {}{threads}, {by}", self.level)
    }
}

/// The share of a rate in the ceiling of its cell, or why there is none.
pub(super) fn share(of: &[Ceiling], point: &Point, rate: Option<f64>, ceilings: &Ceilings) -> Reading {
    let absent = |reason: &str| {
        Reading::absent(Metric::CeilingShare, Scope::Run, "the ceilings of this survey", reason)
    };
    if let Some(reason) = none_for(point) {
        return absent(reason);
    }
    let settled = of.iter().find(|ceiling| ceiling.is_of(point, ceilings));
    let Some((ceiling, (most, by))) = settled.and_then(|ceiling| Some((ceiling, ceiling.settled.as_ref()?)))
    else {
        return absent("no ceiling was measured");
    };
    let Some(rate) = rate else { return absent("the sample has no rate") };
    Reading::real(Metric::CeilingShare, Scope::Run, rate / most * 100.0, ceiling.words(by))
}

/// What they were, for the record.
pub(super) fn as_json(of: &[Ceiling]) -> serde_json::Value {
    of.iter()
        .map(|ceiling| {
            serde_json::json!({
                "level": ceiling.level.to_string(),
                "threads": ceiling.point.threads,
                "routine": ceiling.point.mover.name(),
                "bytes_each": ceiling.point.size,
                "before_bytes_per_second": ceiling.first,
                "rounds_bytes_per_second": ceiling.rates,
                "ceiling_bytes_per_second": ceiling.settled.as_ref().map(|(rate, _)| rate),
                "by": ceiling.settled.as_ref().map(|(_, by)| by),
            })
        })
        .collect()
}
