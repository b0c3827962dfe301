//! Reading what is in memory already into a user's buffer, or writing it there: the kernel's copy, and little else.
//!
//! ```text
//! file     ├─ file offset ─┤ block │ block │ …  │     the first `working set` bytes from there on, again and again
//! channel  [ filled, not timed ] ─▶ block │ block     as much at a time as fits, until the working set has passed
//! buffer   ├ a page ┤─ offset ─┤ block ┤              always the same memory: its distance from a page is an axis
//! ```
//!
//! It is the timer of the alignment tests of 2002 grown up: there a file of 1 GiB was read through by 8 KiB into a buffer whose
//! address moved by a byte. How much of a file is walked decides which memory the copy comes from, so it is an axis as well: on
//! today's CPUs a misaligned buffer costs while the source is in a cache, and hides behind the memory's own time where not.
//!
//! Of a file every sample is preceded by the kernel's word that all of it is in the page cache. A user's file is never written.
//!
//! A pass may take minutes, and whoever waits for it is heard within it: what is long is done in chunks, with a look at the
//! request to stop between them.

mod moves;
mod options;

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::Duration;

use haul_copy::MappedFile;
use haul_host::block::{self, Block, Workers};
use haul_host::cached::{self, CachedFile};
use haul_host::channel::{Channel, ChannelKind, Given};
use haul_host::memory::{self, Room};
use haul_host::signal::Stop;
use haul_host::socket::PageBuffer;
use haul_host::thread::{self, Tid};
use haul_stats::{ByteCount, Cell, Doubt, DoubtId, Reading, Scope};
use serde_json::{Value as Json, json};

use super::{Sample, Subject, rates};
use crate::error::{Result, WorkloadError};
use crate::spec::SpecError;
use moves::{Begun, Outlet, Ways, each};
pub use options::{Point, ReadOptions, ReadWith, SourceKind, Way};

/// Ranges up to this size are gone through once before a sample of another range: what was there before is in no cache that
/// matters. A larger one is in none of its own either.
const WARM_MOST: u64 = 64 << 20;

/// The share of the available memory that haul's own file and buffer may take.
const MEMORY_SHARE: u64 = 80;

/// Faster than any of this, in bytes a second: what a survey takes at least is counted with it.
const NONE_FASTER: f64 = 20e9;

/// Walks through the working set besides those of the rounds: two to calibrate, one to look at what was moved, and one then at the
/// end.
const WALKS_BESIDES: u64 = 4;

/// The share of a sample from which on the kernel's own threads have had a part in it.
const WORKERS_SHARE: f64 = 0.05;

/// What a channel is filled with.
const FILL: u8 = 0x5a;

/// Where the bytes are.
#[derive(Debug)]
enum Source {
    File { file: CachedFile, mapped: Option<MappedFile> },
    Device { file: File, name: String },
    Channel(Channel),
}

/// A source, a buffer beside it, and the cells over both.
#[derive(Debug)]
pub struct ReadSubject {
    way: Way,
    warm: bool,
    cells: Vec<Cell>,
    points: Vec<Point>,
    source: Source,
    buffer: PageBuffer,
    ways: Ways,
    thread: Tid,
    stop: Stop,
    /// The kernel's own threads have made the copies of some sample.
    by_workers: bool,
    /// The range of the file and the way of the sample before.
    last: Option<(u64, u64, ReadWith)>,
    /// How often a range was read because it was not all in the page cache, and by which call that was known.
    warmed: u64,
    asked_by: Option<&'static str>,
}

impl ReadSubject {
    /// Makes the source and the buffer, both written. What takes long, now or later, ends where `stop` is requested.
    pub fn new(options: &ReadOptions, stop: &Stop) -> Result<Self> {
        let (options, points) = options.points()?;
        let end = points.iter().map(|point| point.end().0).max().unwrap_or(0);
        let buffer = points.iter().map(|point| point.offset.0 + point.block.0).max().unwrap_or(0);
        let own = if options.source == SourceKind::Memory { end } else { 0 };
        room_for(ByteCount(own.saturating_add(buffer)))?;
        let source = Self::source(&options, ByteCount(end), stop)?;
        let room = memory::room();
        for point in &points {
            fits(&source, point, options.way, room.as_ref())?;
        }
        let mut buffer = PageBuffer::new(ByteCount(buffer))?;
        fill(buffer.at_mut(0), 0xa5, stop)?;
        let any = |with| points.iter().any(|point| point.with == with);
        let ways = Ways::new(any(ReadWith::IoUring), any(ReadWith::Splice), stop.clone())?;
        Ok(Self {
            stop: stop.clone(),
            by_workers: false,
            way: options.way,
            warm: options.warm,
            cells: points.iter().map(|point| options.cell(point)).collect(),
            points,
            source,
            buffer,
            ways,
            thread: thread::current_tid(),
            last: None,
            warmed: 0,
            asked_by: None,
        })
    }

    /// How long the walks of a survey of so many rounds take at least, whatever the memory: none is faster than 20 GB/s.
    #[must_use]
    pub fn takes_at_least(&self, rounds: u32) -> Duration {
        let walks = u64::from(rounds).saturating_add(WALKS_BESIDES);
        let bytes: f64 = self.points.iter().map(|point| point.walked() as f64).sum();
        Duration::try_from_secs_f64(bytes * walks as f64 / NONE_FASTER).unwrap_or(Duration::MAX)
    }

    fn source(options: &ReadOptions, end: ByteCount, stop: &Stop) -> Result<Source> {
        let path = || options.file.as_deref().unwrap_or(Path::new(""));
        let file = match options.source {
            SourceKind::Channel(kind) => return Ok(Source::Channel(Channel::new(kind)?)),
            SourceKind::Device => {
                let name = path().display().to_string();
                return Ok(Source::Device { file: cached::open_device(path())?, name });
            }
            SourceKind::Memory => CachedFile::memory(end, stop)?,
            SourceKind::File => CachedFile::open(path())?,
        };
        let wants_mapping = options.with.contains(&ReadWith::MmapCopy);
        let mapped = wants_mapping.then(|| MappedFile::shared(file.file())).transpose();
        let mapped = mapped.map_err(|error| gone(file.name(), &error))?;
        Ok(Source::File { file, mapped })
    }

    /// Sees to it that all of the cell's range is in the page cache, or refuses.
    fn hot(&mut self, point: Point) -> Result<()> {
        let Source::File { file, .. } = &self.source else { return Ok(()) };
        let range = point.from.0..point.end().0;
        // Of pages larger than the smallest the kernel counts what is beyond the end as well.
        if let Some(error) = shortened(file) {
            return Err(error);
        }
        let first = file.cached(range.clone())?;
        self.asked_by = Some(first.source);
        if first.is_whole() {
            return Ok(());
        }
        let refused = |pages, of, remedy: &str| {
            let name = file.name();
            WorkloadError::Invalid(format!(
                "{pages} of {of} pages of {name} are in the page cache, and a read of the others is no copy from memory: {remedy}"
            ))
        };
        if !self.warm {
            return Err(refused(first.pages, first.of, "read it before, or leave --no-warm out"));
        }
        file.warm(range.clone(), &self.stop)?;
        let again = file.cached(range)?;
        self.warmed += 1;
        if again.is_whole() {
            return Ok(());
        }
        Err(refused(again.pages, again.of, "they do not stay; give a smaller --working-set, or free memory"))
    }

    /// What is really the matter with what failed: the user wants to stop, or somebody made the file shorter.
    fn blamed(&self, error: WorkloadError) -> WorkloadError {
        if self.stop.requested().is_some() {
            return WorkloadError::Interrupted("the working set was walked");
        }
        match &self.source {
            Source::File { file, .. } => shortened(file).unwrap_or(error),
            _ => error,
        }
    }

    /// All passes over a file or a device: bytes and calls.
    fn walk(&mut self, point: Point, passes: u64) -> Result<(u64, u64)> {
        let places = point.places()?;
        let Self { way, source, buffer, ways, .. } = self;
        let buffer = buffer.at_mut(places.offset).get_mut(..places.block).unwrap_or_default();
        let (mut bytes, mut calls) = (0, passes.saturating_mul(places.calls as u64));
        match source {
            Source::File { file, mapped: Some(mapped) } if point.with == ReadWith::MmapCopy => {
                let failed = |error: &haul_copy::Error| gone(file.name(), error);
                let handler = haul_copy::Handler::install().map_err(|error| failed(&error))?;
                let thread = handler.thread().map_err(|error| failed(&error))?;
                for _ in 0..passes {
                    for chunk in places.chunks() {
                        let mut fault = None;
                        let moved = ways.go_on().and_then(|()| {
                            each(chunk, |at| {
                                mapped.read_on(&thread, at as u64, buffer).map_err(|error| {
                                    fault = Some(failed(&error));
                                    io::ErrorKind::UnexpectedEof.into()
                                })
                            })
                        });
                        bytes +=
                            moved.map_err(|error| fault.unwrap_or_else(|| way.failed(file.name(), error)))?;
                    }
                }
            }
            Source::File { file, .. } => {
                let mut block = way.block(buffer);
                for _ in 0..passes {
                    let moved = ways.pass(file.file(), point.with, places, &mut block);
                    bytes += moved.map_err(|error| way.failed(file.name(), error))?;
                }
            }
            Source::Device { file, name } => {
                calls = 0;
                let mut block = way.block(buffer);
                for _ in 0..passes {
                    let drained = ways.drain(file, point.with, places, &mut block);
                    let (moved, made) = drained.map_err(|error| way.failed(name, error))?;
                    bytes += moved;
                    calls += made;
                }
            }
            Source::Channel(_) => calls = 0,
        }
        Ok((bytes, calls))
    }

    /// All passes through a channel: filled and drained in turn, one of the two timed.
    fn flow(&mut self, point: Point, passes: u64) -> Result<Sample> {
        let places = point.places()?;
        let Self { way, source, buffer, ways, thread, stop, .. } = self;
        let mut sample = begun(passes);
        let Source::Channel(channel) = source else { return Ok(sample) };
        let failed = |error| way.failed(channel.kind().name(), error);
        let (sender, receiver) = (Outlet::new(channel.sender()), Outlet::new(channel.receiver()));
        let buffer = buffer.at_mut(places.offset).get_mut(..places.block).unwrap_or_default();
        let at_once = at_once(channel, *way, &point);
        let datagrams = channel.kind() == ChannelKind::Udp;
        let mut other = vec![FILL; places.block];
        // Filled in one piece, where it need not be datagrams: nobody measures how.
        let filling = vec![FILL; places.block * if datagrams { 1 } else { at_once.min(places.calls) }];
        for _ in 0..passes {
            let mut left = places.calls;
            while left > 0 {
                ways.go_on().map_err(failed)?;
                let blocks = left.min(at_once);
                let bytes = blocks * places.block;
                left -= blocks;
                sample.bytes.0 += bytes as u64;
                if *way == Way::Read {
                    let (times, piece) = if datagrams { (blocks, places.block) } else { (1, bytes) };
                    for _ in 0..times {
                        let mut piece = Block::From(filling.get(..piece).unwrap_or_default());
                        ways.whole(sender, ReadWith::Read, &mut piece).map_err(failed)?;
                    }
                    channel.await_arrival(bytes, stop)?;
                    let mut block = Block::Into(buffer);
                    let begun = Begun::now(*thread);
                    for _ in 0..blocks {
                        sample.calls += ways.whole(receiver, point.with, &mut block).map_err(failed)?;
                    }
                    begun.add_to(&mut sample);
                } else {
                    let mut block = Block::From(buffer);
                    let begun = Begun::now(*thread);
                    for _ in 0..blocks {
                        sample.calls += ways.whole(sender, point.with, &mut block).map_err(failed)?;
                    }
                    begun.add_to(&mut sample);
                    channel.await_arrival(bytes, stop)?;
                    for _ in 0..blocks {
                        let mut out = Block::Into(&mut other);
                        ways.whole(receiver, ReadWith::Read, &mut out).map_err(failed)?;
                    }
                    if other[..] != *buffer {
                        return Err(WorkloadError::Invalid(format!(
                            "what came out of the {} is not what went in",
                            channel.kind().name()
                        )));
                    }
                }
            }
        }
        Ok(sample)
    }

    /// A sample of whatever the source is.
    fn timed(&mut self, point: Point, passes: u64) -> Result<Sample> {
        if matches!(self.source, Source::Channel(_)) {
            return self.flow(point, passes);
        }
        let mut sample = begun(passes);
        let begun = Begun::now(self.thread);
        let (bytes, calls) = self.walk(point, passes)?;
        begun.add_to(&mut sample);
        (sample.bytes, sample.calls) = (ByteCount(bytes), calls);
        Ok(sample)
    }

    /// Whether the last block is where it should be, and no byte beside it.
    fn looked_at(&mut self, point: Point, mark: u8) -> Result<()> {
        let places = point.places()?;
        // What was there before must not pass for what is moved.
        fill(self.buffer.at_mut(0), mark, &self.stop)?;
        let wanted = if let Source::Channel(_) = self.source {
            self.flow(point, 1)?;
            vec![if self.way == Way::Read { FILL } else { mark }; places.block]
        } else {
            self.walk(point, 1)?;
            let Source::File { file, .. } = &self.source else { return Ok(()) };
            let mut bytes = vec![0; places.block];
            let at = places.from + (places.calls - 1) * places.block;
            block::plain(file.as_fd(), Some(at), &mut Block::Into(&mut bytes))
                .map_err(|error| self.way.failed(file.name(), error))?;
            bytes
        };
        let found = self.buffer.at(places.offset).get(..places.block).unwrap_or_default();
        let beside = self.buffer.at(0).get(..places.offset).unwrap_or_default();
        if found != wanted || beside.iter().any(|&byte| byte != mark) {
            return Err(WorkloadError::Invalid(format!(
                "the last block of {} does not hold what was moved: is somebody writing to the file?",
                self.name()
            )));
        }
        Ok(())
    }

    fn point(&self, cell: usize) -> Result<Point> {
        let none = || WorkloadError::Invalid(format!("there is no cell {cell}"));
        self.points.get(cell).copied().ok_or_else(none)
    }
}

impl Subject for ReadSubject {
    fn cells(&self) -> &[Cell] {
        &self.cells
    }

    fn prepare(&mut self, cell: usize) -> Result<()> {
        let point = self.point(cell)?;
        self.hot(point).map_err(|error| self.blamed(error))?;
        let range = (point.from.0, point.working_set.0, point.with);
        if self.last != Some(range) && !matches!(self.source, Source::Channel(_)) {
            let known = self.last.replace(range).is_some();
            if point.working_set.0 <= WARM_MOST || !known {
                self.walk(point, 1).map_err(|error| self.blamed(error))?;
            }
        }
        Ok(())
    }

    fn sample(&mut self, cell: usize, passes: u64) -> Result<Sample> {
        let point = self.point(cell)?;
        if point.with != ReadWith::IoUring {
            return self.timed(point, passes).map_err(|error| self.blamed(error));
        }
        // Outside of what is timed. What fills and drains a channel meanwhile uses no ring.
        let before = Workers::now();
        let mut sample = self.timed(point, passes).map_err(|error| self.blamed(error))?;
        sample.worker_cpu = Workers::now().since(&before);
        self.by_workers |= sample.worker_cpu > sample.elapsed.mul_f64(WORKERS_SHARE);
        Ok(sample)
    }

    fn verify(&mut self, cell: usize) -> Result<()> {
        let point = self.point(cell)?;
        if matches!(self.source, Source::Device { .. }) {
            return Ok(());
        }
        let mark = 0x33_u8.wrapping_add(u8::try_from(cell % 64).unwrap_or(0));
        self.looked_at(point, mark).map_err(|error| self.blamed(error))
    }

    fn readings(&self, cell: usize, sample: &Sample) -> Vec<Reading> {
        let mut readings = rates(sample);
        let Some(point) = self.points.get(cell) else { return readings };
        // Of a device that ends early, of as many bytes as a read-through has.
        let share = point.walked() as f64 / sample.bytes.0 as f64;
        let seconds = sample.elapsed.as_secs_f64() * share;
        readings.insert(
            0,
            Reading::real(self.way.time(), Scope::Run, seconds, "CLOCK_MONOTONIC around the sample"),
        );
        readings
    }

    fn effective(&self) -> Json {
        let source = match &self.source {
            Source::File { file, .. } => json!({
                "name": file.name(),
                "length_bytes": file.length(),
                "own": file.is_own(),
                "cached_by": self.asked_by,
                "warmed": self.warmed,
            }),
            Source::Device { name, .. } => json!({"name": name}),
            Source::Channel(channel) => json!({"name": channel.kind().name(), "room_bytes": channel.room()}),
        };
        json!({
            "source": source,
            "buffer_bytes": self.buffer.len(),
            "io_uring_workers": self.by_workers,
            "counters": null,
            "counters_reason": "cycles and instructions are not counted by haul read",
        })
    }

    fn doubts(&self) -> Vec<Doubt> {
        if !self.by_workers {
            return Vec::new();
        }
        let text = format!(
            "the kernel had threads of its own (io-wq) make the copies that io_uring was asked for out of {}: their CPU time is in \
             the CPU figures, and the time of a call has the way to them and back",
            self.name()
        );
        vec![Doubt::new(DoubtId::IoWorkers, text)]
    }
}

impl ReadSubject {
    fn name(&self) -> String {
        match &self.source {
            Source::File { file, .. } => file.name().to_owned(),
            Source::Device { name, .. } => name.clone(),
            Source::Channel(channel) => channel.kind().name().to_owned(),
        }
    }
}

/// A sample with nothing in it yet.
fn begun(passes: u64) -> Sample {
    Sample { passes, thread_cpu: Some(Duration::ZERO), ..Sample::default() }
}

/// How many blocks a channel is filled with at once; 0 where not one fits.
fn at_once(channel: &Channel, way: Way, point: &Point) -> usize {
    let given = match (way, point.with) {
        (Way::Read, _) => Given::Together,
        (Way::Write, ReadWith::Splice) => Given::Lent,
        (Way::Write, _) => Given::Each,
    };
    channel.blocks(point.block.as_usize().unwrap_or(usize::MAX), given)
}

/// Writes all of it, and ends early at the request to stop.
fn fill(buffer: &mut [u8], with: u8, stop: &Stop) -> Result<()> {
    for piece in buffer.chunks_mut(moves::CHUNK) {
        if stop.requested().is_some() {
            return Err(WorkloadError::Interrupted("the buffer was written"));
        }
        piece.fill(with);
    }
    Ok(())
}

/// Refuses what would push others, or haul itself, out of memory.
fn room_for(wanted: ByteCount) -> Result<()> {
    let Some(room) = memory::room() else { return Ok(()) };
    if wanted.0 / MEMORY_SHARE > room.left.0 / 100 {
        return Err(SpecError::Local(format!(
            "{} of memory are wanted for the file and the buffer, and {} leaves {} of {}: give a smaller --working-set or \
             --block",
            wanted.about(),
            room.limit,
            room.left.about(),
            room.of.about()
        ))
        .into());
    }
    Ok(())
}

/// Refuses a cell that reaches beyond the source.
fn fits(source: &Source, point: &Point, way: Way, room: Option<&Room>) -> Result<()> {
    let no = |what: String, remedy: &str| Err(SpecError::Local(format!("{what}: {remedy}")).into());
    let too_little = |room: &&Room| room.of.0 < point.working_set.0;
    match (source, room.filter(too_little)) {
        (Source::File { file, .. }, _) if file.length().0 < point.end().0 => {
            let (name, length) = (file.name(), file.length());
            let what = if length.0 < point.block.0 {
                format!("{name} has {}, less than a block of {}", length.about(), point.block)
            } else {
                format!(
                    "{name} has {}, and {} are to be walked from byte {} on",
                    length.about(),
                    point.working_set,
                    point.from.0
                )
            };
            no(what, "give a larger file, or a smaller --block, --working-set or --file-offset")
        }
        (Source::File { file, .. }, Some(room)) => {
            let (name, wanted) = (file.name(), point.working_set.about());
            no(
                format!(
                    "{wanted} of {name} cannot be in memory at once, where {} has {}",
                    room.limit,
                    room.of.about()
                ),
                "give a smaller --working-set",
            )
        }
        (Source::Channel(channel), _) if at_once(channel, way, point) == 0 => {
            let (kind, room) = (channel.kind().name(), channel.room());
            no(
                format!("a block of {} does not fit a {kind}, which holds {room} here", point.block),
                "give a smaller --block",
            )
        }
        _ => Ok(()),
    }
}

/// Where a file is shorter than when it was opened, that.
fn shortened(file: &CachedFile) -> Option<WorkloadError> {
    let (name, before, now) = (file.name(), file.length().about(), file.shortened()?.about());
    Some(WorkloadError::Invalid(format!(
        "{name} was truncated while it was read: it had {before} and has {now} now; leave it alone and repeat"
    )))
}

/// A mapping that cannot be read any more.
fn gone(name: &str, error: &haul_copy::Error) -> WorkloadError {
    WorkloadError::Invalid(match error {
        haul_copy::Error::Vanished { offset, .. } => format!(
            "cannot read {name}: byte {offset} of its mapping is gone, by a truncation or an error of what it lies on; leave the \
             file alone and repeat"
        ),
        error => format!("cannot read {name} through a mapping: {error}"),
    })
}

#[cfg(test)]
mod tests;
