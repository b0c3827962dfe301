//! What this machine can do: reading, writing and copying in each cache and in memory, by the widest registers there are.
//!
//! [`LimitsSubject`] is surveyed by `haul copy --limits`. [`Ceilings::measure`] takes the best of a few of its samples in a second
//! or two: what no sample of a survey can be far above, and which routine its ceilings are measured with (see `beside`). They
//! are limits of what this knows to do and not of the hardware: another program may be faster.

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

    /// How long it takes to find its limits, with those of the one before it: memory is written first, and walked often.
    pub(super) fn takes(self) -> Duration {
        Duration::from_millis(if self == Self::Dram { 4000 } else { 300 })
    }

    /// The one before it, of which a part of what is walked may still be.
    fn before(self) -> Self {
        match self {
            Self::L1 | Self::L2 => Self::L1,
            Self::Llc => Self::L2,
            Self::Dram => Self::Llc,
        }
    }
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
    copies: Vec<(Level, Routine)>,
}

impl Ceilings {
    /// Measures those of some levels on the calling thread, in a second or two. `tell` hears which.
    ///
    /// # Errors
    /// Where there is no memory for it, and where its user stops it.
    pub fn measure(cpu: u32, levels: &[Level], stop: &Stop, tell: &mut dyn FnMut(&str)) -> Result<Self> {
        // What nothing in a level can be faster than is reading in the level before.
        let near = levels.iter().map(|level| level.before());
        let levels: Vec<Level> = Level::ALL
            .into_iter()
            .filter(|level| levels.iter().copied().chain(near.clone()).any(|of| of == *level))
            .collect();
        let mut subject = LimitsSubject::of(cpu, &levels);
        subject.set_up(stop, tell)?;
        let mut rates = Vec::new();
        for cell in 0..subject.cells().len() {
            if stop.requested().is_some() {
                return Err(WorkloadError::Interrupted("the machine's limits were measured"));
            }
            let (level, action) = subject.kinds[cell];
            tell(&format!("limits: {action} in {level}"));
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
            rates.push((level, action, best));
        }
        Ok(Self { sizes: subject.sizes, rates, copies: subject.copies })
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
        let of = self.rates.iter().filter(|(of, _, _)| *of == level).map(|(_, _, rate)| *rate);
        let most = of.chain(self.rate(level.before(), "read")).fold(0.0, f64::max);
        (most > 0.0).then_some(most)
    }

    /// What copied fastest in a level, or what chooses by itself.
    pub(super) fn fastest(&self, level: Level) -> Routine {
        self.copies.iter().find(|(of, _)| *of == level).map_or_else(Routine::best, |(_, routine)| *routine)
    }

    /// Bytes walked to be in a level.
    pub(super) fn footprint(&self, level: Level) -> u64 {
        footprint(&self.sizes, level)
    }

    /// Caches of these sizes, for tests of what follows from them.
    #[cfg(test)]
    pub(super) fn of_sizes(l2: u64, llc: u64) -> Self {
        Self { sizes: vec![(Level::L1, l2 / 32), (Level::L2, l2), (Level::Llc, llc)], ..Self::default() }
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
                "copy_routine": self.copies.iter().find(|(of, _)| of == level).map(|(_, routine)| routine.name()),
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

/// Bytes walked to be in a level: half of it, but more than twice the one before; of memory twice the last level.
fn footprint(sizes: &[(Level, u64)], level: Level) -> u64 {
    let size = |level| sizes.iter().find(|(of, _)| *of == level).map(|(_, size)| *size);
    let bytes = match level {
        Level::L1 | Level::L2 => size(level).unwrap_or(0) / 2,
        Level::Llc => (size(level).unwrap_or(0) / 2).min(MOST_LLC.max(4 * size(Level::L2).unwrap_or(0))),
        Level::Dram => sizes.last().map_or(0, |(_, size)| 2 * size).clamp(LEAST_DRAM, MOST_DRAM),
    };
    bytes / 128 * 128
}

/// Reads, writes and copies of each level, to be surveyed.
pub struct LimitsSubject {
    cells: Vec<Cell>,
    kinds: Vec<(Level, &'static str)>,
    sizes: Vec<(Level, u64)>,
    copies: Vec<(Level, Routine)>,
    /// Both halves; none before it is set up.
    memory: Option<(Pages, Pages)>,
}

impl LimitsSubject {
    /// The limits of all levels that a CPU has.
    #[must_use]
    pub fn new(cpu: u32) -> Self {
        Self::of(cpu, &Level::ALL)
    }

    /// Those of some levels, as far as it has them. Nothing is measured before [`Subject::set_up`].
    fn of(cpu: u32, levels: &[Level]) -> Self {
        let sizes = sizes(&processor::caches(cpu));
        let there = |level: &&Level| **level == Level::Dram || sizes.iter().any(|(of, _)| of == *level);
        let kinds: Vec<(Level, &'static str)> =
            levels.iter().filter(there).flat_map(|&level| ACTIONS.map(|action| (level, action))).collect();
        let text = |text: &str| CellValue::Text(text.to_owned());
        let cell = |(level, action): &(Level, &str)| {
            Cell::from([("level".to_owned(), text(&level.to_string())), ("does".to_owned(), text(action))])
        };
        Self { cells: kinds.iter().map(cell).collect(), kinds, sizes, copies: Vec::new(), memory: None }
    }

    fn footprint(&self, level: Level) -> u64 {
        footprint(&self.sizes, level)
    }

    /// The routine that copies fastest in a level, by one look at each.
    fn find_fastest(&mut self, level: Level) -> Routine {
        let half = usize::try_from(self.footprint(level) / 2).unwrap_or(0);
        let passes = ((1 << 20) / half.max(1)).max(1) as u64;
        let mut best = (Duration::MAX, Routine::best());
        // Byte and word loops are no ceiling anywhere, and slow enough to be felt here.
        for routine in Routine::all()
            .filter(|routine| !routine.name().starts_with(['i', 'w']) && routine.name() != "bytes")
        {
            let Some((src, dst)) = &mut self.memory else { break };
            let (to, from) = (&mut dst.bytes_mut()[..half], &src.bytes()[..half]);
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

    fn set_up_takes(&self) -> Duration {
        Level::ALL
            .into_iter()
            .filter(|level| self.kinds.iter().any(|(of, _)| of == level))
            .map(Level::takes)
            .sum()
    }

    fn set_up(&mut self, stop: &Stop, tell: &mut dyn FnMut(&str)) -> Result<()> {
        let mut levels: Vec<Level> = self.kinds.iter().map(|(level, _)| *level).collect();
        levels.dedup();
        let most = levels.iter().map(|&level| self.footprint(level)).max().unwrap_or(LEAST_DRAM);
        // A copy has half of it at either end; what reads or writes has both halves, one after the other.
        self.memory = Some((Pages::new(ByteCount(most / 2), None)?, Pages::new(ByteCount(most / 2), None)?));
        for level in levels {
            if stop.requested().is_some() {
                return Err(WorkloadError::Interrupted("the machine's limits were measured"));
            }
            tell(&format!("limits: the fastest routine in {level}"));
            let routine = self.find_fastest(level);
            self.copies.push((level, routine));
        }
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
        let Some((src, dst)) = &mut self.memory else {
            return Err(WorkloadError::Invalid("the memory of the limits was not set up".to_owned()));
        };
        let (to, from) = (&mut dst.bytes_mut()[..half], &mut src.bytes_mut()[..half]);
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
        let pages = self.memory.as_ref().map(|(src, _)| src.got().to_string());
        json!({"levels": levels, "pages": pages})
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
