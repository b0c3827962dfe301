//! The memory of copies, and where its lines are before one.
//!
//! ```text
//! hot       one place, copied again and again                      its lines are in the nearest cache that holds them
//! l2, llc   a ring of places larger than the cache before          each was last touched a walk of the ring ago, and the ring
//!           and smaller than this one, walked before each sample   fits: so it is in this cache and not in the one before
//! cold      a ring of twice the last level                         each was last touched twice that level ago
//! flushed   places, flushed before they are copied, untimed        in no cache, but in the TLB
//! ```
//!
//! A ring is walked in an order that no prefetcher foresees. Source and destination have a mapping each, and the same stride, so
//! that every place of a ring has the same distance modulo a page. A cache state that a size does not fit is refused by name.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use haul_copy::touch;
use haul_host::clock;
use haul_host::memory::{PageKind, Pages};
use haul_host::thread;
use haul_stats::{ByteCount, MonoNanos};

use super::limits::{Ceilings, Level};
use super::mover::Does;
use super::{Point, mix};
use crate::error::{Result, WorkloadError};
use crate::local::thread_cpu;
use crate::spec::SpecError;

/// Where the bytes are before they are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CacheState {
    /// As near as they fit.
    Hot,
    /// In the second level.
    L2,
    /// In the last level.
    Llc,
    /// In memory, a walk of twice the last level ago.
    Cold,
    /// In memory, by an instruction that took them there.
    Flushed,
}

impl CacheState {
    /// All.
    pub const ALL: [Self; 5] = [Self::Hot, Self::L2, Self::Llc, Self::Cold, Self::Flushed];
}

impl fmt::Display for CacheState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Hot => "hot",
            Self::L2 => "l2",
            Self::Llc => "llc",
            Self::Cold => "cold",
            Self::Flushed => "flushed",
        })
    }
}

impl FromStr for CacheState {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|state| state.to_string() == text).ok_or_else(|| {
            WorkloadError::Spec(SpecError::Local(format!(
                "--cache '{text}': give hot, l2, llc, cold or flushed"
            )))
        })
    }
}

/// Beyond a place: a page for the destination's shift, and a line.
const SLACK: usize = 4096 + 128;

/// Of memory that is flushed between batches: enough that a batch of short copies is far above the clock's step.
const FLUSHED: usize = 1 << 20;

/// The most of a ring in the last level: a part of it is enough, and a shared one is not ours alone.
const MOST_LLC: usize = 16 << 20;

/// Lengths drawn for --shuffle.
const LENGTHS: usize = 1024;

/// From one place to the next.
pub(super) fn stride(size: usize) -> usize {
    // An odd number of lines, so that places do not all fall into the same sets of a cache.
    ((size + 192).div_ceil(64) | 1) * 64
}

/// How many bytes of source, and of destination, a cell needs.
pub(super) fn extent(point: &Point, ceilings: &Ceilings) -> Result<usize> {
    let one = stride(point.size);
    let size = |level| ceilings.size(level).map(|size| usize::try_from(size).unwrap_or(usize::MAX));
    let refuse = |why: String| {
        Err(WorkloadError::Invalid(format!(
            "{} bytes cannot be copied in the state '{}': {why}",
            point.size, point.cache
        )))
    };
    let within = |level: Level, extent: usize| {
        if one <= extent {
            return Ok(extent);
        }
        let most = ByteCount(extent as u64);
        refuse(format!(
            "source and destination may have {most} each to be in {level}: give a smaller --size, or another --cache"
        ))
    };
    let unknown = "this host does not say how large its caches are: use --cache hot or flushed".to_owned();
    match point.cache {
        CacheState::Hot => Ok(if let Some(by) = point.overlap {
            one + usize::try_from(by.unsigned_abs()).unwrap_or(usize::MAX >> 2).min(usize::MAX >> 2)
        } else {
            one
        }),
        CacheState::Flushed => Ok(one.max(FLUSHED)),
        CacheState::L2 => match size(Level::L2) {
            Some(l2) => within(Level::L2, l2 / 4),
            None => refuse(unknown),
        },
        CacheState::Llc => match (size(Level::Llc), size(Level::L2)) {
            (Some(llc), l2) => within(Level::Llc, (llc / 4).min(MOST_LLC).max(l2.unwrap_or(0) * 2)),
            (None, _) => refuse(unknown),
        },
        CacheState::Cold => match size(Level::Llc).or(size(Level::L2)) {
            Some(last) => Ok(one.max(last)),
            None => refuse(unknown),
        },
    }
}

/// What a timed stretch took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timed {
    pub(super) begin: MonoNanos,
    pub(super) end: MonoNanos,
    /// Without what was done between batches.
    pub(super) elapsed: Duration,
    pub(super) bytes: u64,
    /// Nothing was done between batches.
    pub(super) alone: bool,
    /// CPU time of the thread in the batches alone, where something was done between them.
    pub(super) cpu: Option<Duration>,
}

/// Source and destination.
pub(super) struct Arena {
    src: Pages,
    dst: Pages,
    extent: usize,
    /// The ring walked last: its stride and order, and where it stands.
    ring: (usize, Vec<u32>, usize),
    lengths: (usize, Vec<usize>),
}

impl Arena {
    pub(super) fn new(extent: usize, pages: Option<PageKind>) -> Result<Self> {
        let length = ByteCount((extent + SLACK) as u64);
        let (src, dst) = (Pages::new(length, pages)?, Pages::new(length, pages)?);
        Ok(Self { src, dst, extent, ring: (0, Vec::new(), 0), lengths: (0, Vec::new()) })
    }

    pub(super) fn extent(&self) -> usize {
        self.extent
    }

    pub(super) fn got(&self) -> String {
        self.src.got().to_string()
    }

    /// Makes the ring of such places, unless it is the one walked last. Not to be timed.
    fn ring_of(&mut self, extent: usize, size: usize) {
        let stride = stride(size);
        let count = (extent / stride).max(1);
        let (known, order, at) = &mut self.ring;
        if (*known, order.len()) == (stride, count) {
            return;
        }
        (*known, *at) = (stride, 0);
        *order = (0..u32::try_from(count).unwrap_or(u32::MAX)).collect();
        // Fisher and Yates, by a fixed seed: the order matters, which one does not.
        for from in (1..order.len()).rev() {
            order.swap(from, usize::try_from(mix(from as u64)).unwrap_or(0) % (from + 1));
        }
    }

    /// Where the next place of the ring begins.
    #[inline]
    fn next(&mut self) -> usize {
        let (stride, order, at) = &mut self.ring;
        *at = if *at + 1 < order.len() { *at + 1 } else { 0 };
        order.get(*at).map_or(0, |&place| place as usize * *stride)
    }

    fn length(&mut self, size: usize, pass: u64) -> usize {
        if self.lengths.0 != size {
            let draw = |at: usize| {
                let part = (mix(at as u64) >> 11) as f64 / (1_u64 << 53) as f64;
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "between 1 and size"
                )]
                let length = (size as f64).powf(part) as usize;
                length.clamp(1, size)
            };
            self.lengths = (size, (0..LENGTHS).map(draw).collect());
        }
        self.lengths.1[usize::try_from(pass).unwrap_or(0) % LENGTHS]
    }

    /// Both ends of a place.
    fn ends(&mut self, at: usize, size: usize, src: usize, shift: usize) -> (&mut [u8], &[u8]) {
        (&mut self.dst.bytes_mut()[at + shift..][..size], &self.src.bytes()[at + src..][..size])
    }

    /// `passes` copies, with the caches as asked for. What arrives is looked at.
    pub(super) fn run(
        &mut self,
        point: &Point,
        extent: usize,
        shift: usize,
        stamp: u64,
        passes: u64,
    ) -> Result<Timed> {
        let (size, src, mover, does) = (point.size, point.offsets.0, point.mover, point.does);
        if let Some(by) = point.overlap {
            return self.overlapping(point, by, passes);
        }
        if point.cache == CacheState::Hot {
            self.stamp(src, size, stamp);
            let (to, from) = self.ends(0, size, src, shift);
            mover.repeat(does, to, from, 1);
            let timed = if point.shuffle {
                let lengths: Vec<usize> = (0..LENGTHS as u64).map(|pass| self.length(size, pass)).collect();
                let (to, from) = self.ends(0, size, src, shift);
                let begin = clock::now();
                let mut bytes = 0;
                let mut lengths = lengths.iter().cycle();
                for _ in 0..passes {
                    let length = *lengths.next().unwrap_or(&size);
                    mover.once(does, &mut to[..length], &from[..length]);
                    bytes += length as u64;
                }
                Timed::of(begin, bytes)
            } else {
                self.stamp(src, size, !stamp);
                let (to, from) = self.ends(0, size, src, shift);
                let begin = clock::now();
                mover.repeat(does, to, from, passes);
                Timed::of(begin, passes * size as u64)
            };
            return self.arrived(timed, point, 0, shift);
        }
        self.ring_of(extent, size);
        // Draws the lengths, where there are any.
        let _ = self.length(size, 0);
        match point.cache {
            CacheState::L2 | CacheState::Llc => {
                touch::read(&self.src.bytes()[..extent]);
                touch::read(&self.dst.bytes()[..extent]);
            }
            CacheState::Flushed => {
                if !touch::flush(&[]) {
                    return Err(WorkloadError::Invalid(
                        "this CPU has no instruction to flush a cache: use --cache cold".to_owned(),
                    ));
                }
            }
            CacheState::Hot | CacheState::Cold => {}
        }
        let batch =
            if point.cache == CacheState::Flushed { (extent / stride(size)).max(1) as u64 } else { passes };
        let (first, mut elapsed, mut bytes, mut left) = (clock::now(), Duration::ZERO, 0, passes);
        let (mut last, mut cpu) = (0, Some(Duration::ZERO));
        let thread = thread::current_tid();
        while left > 0 {
            let now = left.min(batch);
            if point.cache == CacheState::Flushed {
                let _ = touch::flush(&self.src.bytes()[..extent + SLACK])
                    && touch::flush(&self.dst.bytes()[..extent + SLACK]);
            }
            let used = if point.cache == CacheState::Flushed { thread_cpu(thread) } else { None };
            let begin = clock::now();
            for pass in 0..now {
                last = self.next();
                let length = if point.shuffle { self.length(size, pass) } else { size };
                let (to, from) = self.ends(last, length, src, shift);
                mover.once(does, to, from);
                bytes += length as u64;
            }
            elapsed += clock::now().since(begin);
            if point.cache == CacheState::Flushed {
                let batch = thread_cpu(thread).zip(used).map(|(after, before)| after.saturating_sub(before));
                cpu = cpu.zip(batch).map(|(sum, batch)| sum + batch);
            }
            left -= now;
        }
        let timed = Timed {
            begin: first,
            end: clock::now(),
            elapsed,
            bytes,
            alone: point.cache != CacheState::Flushed,
            cpu: cpu.filter(|_| point.cache == CacheState::Flushed),
        };
        self.arrived(timed, point, last, shift)
    }

    /// Keeps copying, so that others are not alone; not timed.
    pub(super) fn load(&mut self, point: &Point, extent: usize, shift: usize) {
        self.ring_of(extent, point.size);
        let at = self.next();
        let (to, from) = self.ends(at, point.size, point.offsets.0, shift);
        point.mover.once(point.does, to, from);
    }

    fn overlapping(&mut self, point: &Point, by: i64, passes: u64) -> Result<Timed> {
        let (from, to) = ends_within(point, by);
        let buffer = self.src.bytes_mut();
        let done = point.mover.repeat_within(buffer, from, to, point.size, 1);
        let begin = clock::now();
        if !(done && point.mover.repeat_within(buffer, from, to, point.size, passes)) {
            return Err(WorkloadError::Invalid(format!(
                "{} does not promise to move {} bytes by {by}",
                point.mover.name(),
                point.size
            )));
        }
        Ok(Timed::of(begin, passes * point.size as u64))
    }

    /// New bytes at both ends of the first place's source: what arrives there was copied after this.
    fn stamp(&mut self, src: usize, size: usize, stamp: u64) {
        let ends = stamp.to_ne_bytes();
        let length = size.min(8);
        let source = &mut self.src.bytes_mut()[src..][..size];
        source[..length].copy_from_slice(&ends[..length]);
        source[size - length..].copy_from_slice(&ends[8 - length..]);
    }

    /// Whether the ends of the place that was copied last are its source's.
    fn arrived(&mut self, timed: Timed, point: &Point, at: usize, shift: usize) -> Result<Timed> {
        let (to, from) = self.ends(at, point.size, point.offsets.0, shift);
        let length = point.size.min(8);
        let ends = |of: &[u8]| (of[..length].to_vec(), of[of.len() - length..].to_vec());
        if point.does == Does::Sum || point.shuffle || ends(to) == ends(from) {
            return Ok(timed);
        }
        Err(WorkloadError::Invalid(format!(
            "{} did not copy what it was timed for ({} bytes)",
            point.mover.name(),
            point.size
        )))
    }

    /// One copy, of which every byte is looked at, and those around it.
    pub(super) fn verify(&mut self, point: &Point, shift: usize, stamp: u64) -> Result<()> {
        if point.does == Does::Sum {
            return Ok(());
        }
        let (size, src) = (point.size, point.offsets.0);
        let wrong = || {
            Err(WorkloadError::Invalid(format!(
                "{} copied {size} bytes wrongly: its samples are void",
                point.mover.name()
            )))
        };
        if let Some(by) = point.overlap {
            let (from, to) = ends_within(point, by);
            let buffer = self.src.bytes_mut();
            for (at, byte) in (0_u64..).zip(buffer.iter_mut()) {
                *byte = mix(stamp.wrapping_add(at / 8)).to_ne_bytes()[usize::try_from(at % 8).unwrap_or(0)];
            }
            let mut expected = buffer.to_vec();
            expected.copy_within(from..from + size, to);
            let done = point.mover.repeat_within(buffer, from, to, size, 1);
            return if done && *buffer == *expected { Ok(()) } else { wrong() };
        }
        for (at, byte) in (0_u64..).zip(&mut self.src.bytes_mut()[src..][..size]) {
            *byte = mix(stamp.wrapping_add(at / 8)).to_ne_bytes()[usize::try_from(at % 8).unwrap_or(0)];
        }
        let around = |arena: &Self| {
            let bytes = arena.dst.bytes();
            (bytes[..shift].last().copied(), bytes.get(shift + size).copied())
        };
        let before = around(self);
        let (to, from) = self.ends(0, size, src, shift);
        point.mover.once(point.does, to, from);
        if to == from && around(self) == before {
            return Ok(());
        }
        wrong()
    }
}

/// Where source and destination begin in one buffer, the destination `by` bytes above the source.
fn ends_within(point: &Point, by: i64) -> (usize, usize) {
    let (first, apart) = (point.offsets.0, usize::try_from(by.unsigned_abs()).unwrap_or(usize::MAX >> 2));
    if by < 0 { (first + apart, first) } else { (first, first + apart) }
}

impl Timed {
    fn of(begin: MonoNanos, bytes: u64) -> Self {
        let end = clock::now();
        Self { begin, end, elapsed: end.since(begin), bytes, alone: true, cpu: None }
    }
}
