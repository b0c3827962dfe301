//! What this machine can do: reading, writing and copying in each cache and in memory, by the widest registers there are.
//!
//! [`LimitsSubject`] is surveyed by `haul copy --limits`. [`Ceilings::measure`] takes the best of a few of its samples in a second
//! or two, so that each result of a survey can stand beside the highest rate in the same memory. It is a ceiling of what this
//! knows to do and not of the hardware: another program may be faster.

use std::fmt;
use std::time::Duration;

use haul_copy::{Routine, touch};
use haul_host::clock;
use haul_host::memory::Pages;
use haul_host::processor::{self, Cache};
use haul_host::signal::Stop;
use haul_stats::reading::CellValue;
use haul_stats::{ByteCount, Cell, Reading};
use serde_json::{Value as Json, json};

use super::arena::CacheState;
use crate::error::{Result, WorkloadError};
use crate::local::{Sample, Subject, rates, thread_cpu};

/// Where bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// The first cache.
    L1,
    /// The second.
    L2,
    /// The last one, where it is a third.
    Llc,
    /// Memory.
    Dram,
}

impl Level {
    const ALL: [Self; 4] = [Self::L1, Self::L2, Self::Llc, Self::Dram];
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::L1 => "L1",
            Self::L2 => "L2",
            Self::Llc => "LLC",
            Self::Dram => "DRAM",
        })
    }
}

/// What is done, to find how fast it can be.
const ACTIONS: [&str; 4] = ["read", "write", "stream", "copy"];

/// The most of the last level that is walked: a shared one is not ours alone.
const MOST_LLC: u64 = 32 << 20;

/// Memory is walked by twice the last level, but no more than this.
const MOST_DRAM: u64 = 1 << 30;

/// And where no cache is known.
const LEAST_DRAM: u64 = 64 << 20;

/// How long a sample of the short form takes, and how many there are of each: the best of three leaves out what was disturbed.
const SHORT: Duration = Duration::from_millis(2);
const TRIES: u32 = 3;

/// The highest rates, in bytes per second, and the sizes they belong to.
#[derive(Debug, Clone, Default)]
pub struct Ceilings {
    sizes: Vec<(Level, u64)>,
    rates: Vec<(Level, &'static str, f64)>,
    copies: Vec<(Level, &'static str)>,
}

impl Ceilings {
    /// Measures them on the calling thread, in a few seconds.
    ///
    /// # Errors
    /// Where there is no memory for it, and where its user stops it.
    pub fn measure(cpu: u32, stop: &Stop) -> Result<Self> {
        let mut subject = LimitsSubject::new(cpu)?;
        let mut rates = Vec::new();
        for cell in 0..subject.cells().len() {
            if stop.requested().is_some() {
                return Err(WorkloadError::Interrupted("the machine's limits were measured"));
            }
            let mut best = 0.0_f64;
            for _ in 0..TRIES {
                let mut passes = 1;
                let sample = loop {
                    let sample = subject.sample(cell, passes)?;
                    if sample.elapsed >= SHORT {
                        break sample;
                    }
                    passes *= 4;
                };
                best = best.max(sample.bytes.0 as f64 / sample.elapsed.as_secs_f64());
            }
            let (level, action) = subject.kinds[cell];
            rates.push((level, action, best));
        }
        Ok(Self {
            sizes: subject.sizes,
            rates,
            copies: subject.copies.iter().map(|(level, routine)| (*level, routine.name())).collect(),
        })
    }

    /// Only the sizes of the caches, without a rate: nothing is implausible then.
    #[must_use]
    pub fn sizes_only(cpu: u32) -> Self {
        Self { sizes: sizes(&processor::caches(cpu)), ..Self::default() }
    }

    /// The size of a cache; `None` where it is not known.
    pub(super) fn size(&self, level: Level) -> Option<u64> {
        self.sizes.iter().find(|(of, _)| *of == level).map(|(_, size)| *size)
    }

    fn rate(&self, level: Level, action: &str) -> Option<f64> {
        self.rates.iter().find(|(of, what, _)| *of == level && *what == action).map(|(_, _, rate)| *rate)
    }

    /// What nothing in a level can be faster than: the highest rate of anything in it, and reading in the level before, since
    /// a part of what is walked may still be there.
    pub(super) fn most(&self, level: Level) -> Option<f64> {
        let before = match level {
            Level::L1 | Level::L2 => Level::L1,
            Level::Llc => Level::L2,
            Level::Dram => Level::Llc,
        };
        let of = self.rates.iter().filter(|(of, _, _)| *of == level).map(|(_, _, rate)| *rate);
        let most = of.chain(self.rate(before, "read")).fold(0.0, f64::max);
        (most > 0.0).then_some(most)
    }

    /// The highest rate of copying.
    pub(super) fn copy(&self, level: Level) -> Option<f64> {
        self.rate(level, "copy")
    }

    /// Where bytes of a copy are: both ends of it, `footprint` bytes.
    pub(super) fn level_of(&self, cache: CacheState, footprint: u64) -> Level {
        match cache {
            CacheState::L2 => Level::L2,
            CacheState::Llc => Level::Llc,
            CacheState::Cold | CacheState::Flushed => Level::Dram,
            CacheState::Hot => self
                .sizes
                .iter()
                .find(|(_, size)| footprint <= *size)
                .map_or(Level::Dram, |(level, _)| *level),
        }
    }

    pub(super) fn as_json(&self) -> Json {
        let entry = |level: &Level| {
            json!({
                "level": level.to_string(),
                "cache_bytes": self.size(*level),
                "read_bytes_per_second": self.rate(*level, "read"),
                "write_bytes_per_second": self.rate(*level, "write"),
                "stream_bytes_per_second": self.rate(*level, "stream"),
                "copy_bytes_per_second": self.rate(*level, "copy"),
                "copy_routine": self.copies.iter().find(|(of, _)| of == level).map(|(_, name)| *name),
            })
        };
        Level::ALL.iter().filter(|level| self.rate(**level, "read").is_some()).map(entry).collect()
    }
}

/// The sizes of the levels that the kernel tells; the last of three or more is the last level.
fn sizes(caches: &[Cache]) -> Vec<(Level, u64)> {
    let size = |level| caches.iter().find(|cache| cache.level == level).map(|cache| cache.size.0);
    let last = caches.last().filter(|cache| cache.level > 2).map(|cache| cache.size.0);
    [(Level::L1, size(1)), (Level::L2, size(2)), (Level::Llc, last)]
        .into_iter()
        .filter_map(|(level, size)| Some((level, size?)))
        .collect()
}

/// Reads, writes and copies of each level, to be surveyed.
pub struct LimitsSubject {
    cells: Vec<Cell>,
    kinds: Vec<(Level, &'static str)>,
    sizes: Vec<(Level, u64)>,
    copies: Vec<(Level, Routine)>,
    src: Pages,
    dst: Pages,
}

impl LimitsSubject {
    /// Finds the sizes of the caches of a CPU, and for each level the routine that copies fastest there.
    ///
    /// # Errors
    /// Where there is no memory for it.
    pub fn new(cpu: u32) -> Result<Self> {
        let sizes = sizes(&processor::caches(cpu));
        let mut subject = Self {
            cells: Vec::new(),
            kinds: Vec::new(),
            copies: Vec::new(),
            src: Pages::new(ByteCount(1), None)?,
            dst: Pages::new(ByteCount(1), None)?,
            sizes,
        };
        let levels: Vec<Level> = Level::ALL
            .into_iter()
            .filter(|&level| level == Level::Dram || subject.sizes.iter().any(|(of, _)| *of == level))
            .collect();
        let most = levels.iter().map(|&level| subject.footprint(level)).max().unwrap_or(LEAST_DRAM);
        // A copy has half of it at either end; what reads or writes has both halves, one after the other.
        subject.src = Pages::new(ByteCount(most / 2), None)?;
        subject.dst = Pages::new(ByteCount(most / 2), None)?;
        for level in levels {
            let routine = subject.fastest(level);
            subject.copies.push((level, routine));
            for action in ACTIONS {
                let text = |text: &str| CellValue::Text(text.to_owned());
                subject.cells.push(Cell::from([
                    ("level".to_owned(), text(&level.to_string())),
                    ("does".to_owned(), text(action)),
                ]));
                subject.kinds.push((level, action));
            }
        }
        Ok(subject)
    }

    /// Bytes walked to be in a level: half of it, but more than twice the one before; of memory twice the last level.
    fn footprint(&self, level: Level) -> u64 {
        let size = |level| self.sizes.iter().find(|(of, _)| *of == level).map(|(_, size)| *size);
        let bytes = match level {
            Level::L1 | Level::L2 => size(level).unwrap_or(0) / 2,
            Level::Llc => (size(level).unwrap_or(0) / 2).min(MOST_LLC.max(4 * size(Level::L2).unwrap_or(0))),
            Level::Dram => self.sizes.last().map_or(0, |(_, size)| 2 * size).clamp(LEAST_DRAM, MOST_DRAM),
        };
        bytes / 128 * 128
    }

    /// The routine that copies fastest in a level, by one look at each.
    fn fastest(&mut self, level: Level) -> Routine {
        let half = usize::try_from(self.footprint(level) / 2).unwrap_or(0);
        let passes = ((1 << 20) / half.max(1)).max(1) as u64;
        let mut best = (Duration::MAX, Routine::best());
        // Byte and word loops are no ceiling anywhere, and slow enough to be felt here.
        for routine in Routine::all()
            .filter(|routine| !routine.name().starts_with(['i', 'w']) && routine.name() != "bytes")
        {
            let (to, from) = (&mut self.dst.bytes_mut()[..half], &self.src.bytes()[..half]);
            if level != Level::Dram {
                routine.repeat(to, from, 1);
            }
            for _ in 0..2 {
                let begin = clock::now();
                routine.repeat(to, from, passes);
                let took = clock::now().since(begin);
                if took < best.0 {
                    best = (took, routine);
                }
                if level == Level::Dram {
                    break;
                }
            }
        }
        best.1
    }
}

impl Subject for LimitsSubject {
    fn cells(&self) -> &[Cell] {
        &self.cells
    }

    fn prepare(&mut self, _cell: usize) -> Result<()> {
        Ok(())
    }

    fn sample(&mut self, cell: usize, passes: u64) -> Result<Sample> {
        let (level, action) = self.kinds[cell];
        let half = usize::try_from(self.footprint(level) / 2).unwrap_or(0);
        let routine = self
            .copies
            .iter()
            .find(|(of, _)| *of == level)
            .map_or_else(Routine::best, |(_, routine)| *routine);
        let (to, from) = (&mut self.dst.bytes_mut()[..half], &mut self.src.bytes_mut()[..half]);
        let mut once = |times| {
            for _ in 0..times {
                match action {
                    "read" => {
                        touch::read(to);
                        touch::read(from);
                    }
                    "write" => {
                        touch::write(to, 1);
                        touch::write(from, 1);
                    }
                    "stream" => {
                        touch::stream(to, 1);
                        touch::stream(from, 1);
                    }
                    _ => routine.repeat(to, from, 1),
                }
            }
        };
        if level != Level::Dram {
            once(1);
        }
        let thread = haul_host::thread::current_tid();
        let (begin, before) = (clock::now(), thread_cpu(thread));
        once(passes);
        let (elapsed, after) = (clock::now().since(begin), thread_cpu(thread));
        let both = if action == "copy" { 1 } else { 2 };
        Ok(Sample {
            passes,
            elapsed,
            thread_cpu: after.zip(before).map(|(after, before)| after.saturating_sub(before)),
            bytes: ByteCount(passes * half as u64 * both),
            calls: passes * both,
            ..Sample::default()
        })
    }

    fn readings(&self, _cell: usize, sample: &Sample) -> Vec<Reading> {
        rates(sample)
    }

    fn effective(&self) -> Json {
        let levels: Vec<Json> = self
            .copies
            .iter()
            .map(|(level, routine)| {
                json!({
                    "level": level.to_string(),
                    "cache_bytes": self.sizes.iter().find(|(of, _)| of == level).map(|(_, size)| *size),
                    "walked_bytes": self.footprint(*level),
                    "copy_routine": routine.name(),
                })
            })
            .collect();
        json!({"levels": levels, "pages": self.src.got().to_string()})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(level: u32, size: u64) -> Cache {
        Cache { level, size: ByteCount(size), shared: String::new() }
    }

    #[test]
    fn the_last_of_three_levels_is_the_last_level_and_two_have_none() {
        let three = sizes(&[cache(1, 48 << 10), cache(2, 2 << 20), cache(3, 260 << 20)]);
        assert_eq!(three, [(Level::L1, 48 << 10), (Level::L2, 2 << 20), (Level::Llc, 260 << 20)]);
        assert_eq!(
            sizes(&[cache(1, 32 << 10), cache(2, 1 << 20)]),
            [(Level::L1, 32 << 10), (Level::L2, 1 << 20)]
        );
        assert_eq!(sizes(&[]), []);
    }

    #[test]
    fn a_copy_is_where_both_of_its_ends_fit() {
        let ceilings =
            Ceilings { sizes: sizes(&[cache(1, 48 << 10), cache(2, 2 << 20)]), ..Ceilings::default() };
        for (footprint, level) in
            [(1, Level::L1), (48 << 10, Level::L1), ((48 << 10) + 1, Level::L2), (3 << 20, Level::Dram)]
        {
            assert_eq!(ceilings.level_of(CacheState::Hot, footprint), level, "{footprint}");
        }
        assert_eq!(ceilings.level_of(CacheState::Flushed, 1), Level::Dram);
        assert_eq!(ceilings.level_of(CacheState::L2, 1), Level::L2);
    }
}
