//! What is asked of a read: the axes, which of them go together, and the cells they make.

use std::fmt;
use std::io;
use std::path::PathBuf;

use haul_host::block::Block;
use haul_host::channel::ChannelKind;
use haul_stats::{ByteCount, Cell, CellValue, Metric};
use serde_json::{Value as Json, json};

use super::moves::{CHUNK, CHUNK_CALLS};
use crate::error::{Result, WorkloadError};
use crate::spec::SpecError;

/// The largest block and the furthest offset: what a call moves in more than a second is no sample.
const MOST: u64 = 1 << 30;

/// The most that one walk takes out of what has no end of its own, a device or a channel: some seconds of it.
const MOST_ENDLESS: ByteCount = ByteCount(64 << 30);

/// The most cells of one survey.
const MOST_CELLS: usize = 10_000;

/// How much is walked where nothing is said: in the second-level cache of today's CPUs, where a misaligned buffer shows.
const WORKING_SET: ByteCount = ByteCount(256 << 10);

/// What is read from, or written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceKind {
    /// A file of the user's.
    File,
    /// A file in memory of haul's own.
    Memory,
    /// A character device, or a file of procfs.
    Device,
    /// A pipe or a pair of sockets.
    Channel(ChannelKind),
}

impl SourceKind {
    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Memory => "memfd",
            Self::Device => "device",
            Self::Channel(kind) => kind.name(),
        }
    }
}

/// By which call. With [`Way::Write`] it is the call's counterpart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReadWith {
    /// `read(2)`, each from where the one before ended.
    Read,
    /// `pread(2)`.
    Pread,
    /// `preadv(2)`, or `readv(2)` where there are no places, into the two halves of the buffer.
    Readv,
    /// A copy from a mapping of the file, by haul-copy's best routine.
    MmapCopy,
    /// One operation at a time through an `io_uring`.
    IoUring,
    /// `splice(2)` of pages into a pipe, and `vmsplice(2)` out of it.
    Splice,
}

impl ReadWith {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Read, Self::Pread, Self::Readv, Self::MmapCopy, Self::IoUring, Self::Splice];

    /// What the call is called that goes this way.
    #[must_use]
    pub fn name(self, way: Way) -> &'static str {
        match (self, way) {
            (Self::Read, Way::Read) => "read",
            (Self::Read, Way::Write) => "write",
            (Self::Pread, Way::Read) => "pread",
            (Self::Pread, Way::Write) => "pwrite",
            (Self::Readv, Way::Read) => "readv",
            (Self::Readv, Way::Write) => "writev",
            (Self::MmapCopy, _) => "mmap-copy",
            (Self::IoUring, _) => "io_uring",
            (Self::Splice, _) => "splice",
        }
    }

    /// The call of that name, or the counterpart of one that goes the other way.
    ///
    /// # Errors
    /// Which names there are.
    pub fn named(text: &str, way: Way) -> std::result::Result<Self, String> {
        let names = || ReadWith::ALL.map(|with| with.name(way)).join(", ");
        let is_it = |with: &Self| [Way::Read, Way::Write].iter().any(|way| with.name(*way) == text);
        Self::ALL.into_iter().find(is_it).ok_or_else(|| format!("give some of {}", names()))
    }
}

/// Which way the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Way {
    /// From the kernel to the user: `copy_to_user`.
    #[default]
    Read,
    /// From the user to the kernel: `copy_from_user`.
    Write,
}

impl Way {
    pub(super) fn failed(self, object: &str, error: io::Error) -> WorkloadError {
        let operation = if self == Self::Read { "read from" } else { "write to" };
        if error.kind() == io::ErrorKind::WouldBlock {
            let nothing =
                "it has nothing to give now, and is not waited for: name one that always has, as /dev/zero";
            return WorkloadError::os(operation, object, io::Error::new(error.kind(), nothing));
        }
        WorkloadError::os(operation, object, error)
    }

    /// The buffer, with this way.
    pub(super) fn block(self, buffer: &mut [u8]) -> Block<'_> {
        if self == Self::Read { Block::Into(buffer) } else { Block::From(buffer) }
    }

    /// What one walk through the working set is called.
    pub(super) fn time(self) -> Metric {
        if self == Self::Read { Metric::ReadTime } else { Metric::WriteTime }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(if *self == Self::Read { "read" } else { "write" })
    }
}

/// The axes; each has one value or more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOptions {
    /// What is read from.
    pub source: SourceKind,
    /// The user's file or device.
    pub file: Option<PathBuf>,
    /// Which way.
    pub way: Way,
    /// Whether what is not in the page cache is read first, or refused.
    pub warm: bool,
    /// Bytes of a call.
    pub block: Vec<u64>,
    /// The buffer's distances from a page.
    pub offset: Vec<u64>,
    /// Where in the file it begins.
    pub file_offset: Vec<u64>,
    /// How much is walked; 256 KiB, or all of a smaller file, where nothing is said.
    pub working_set: Vec<u64>,
    /// By which calls; the source's usual one where nothing is said.
    pub with: Vec<ReadWith>,
}

impl Default for ReadOptions {
    /// As in 2002, but for the source, which is in the second-level cache.
    fn default() -> Self {
        Self {
            source: SourceKind::Memory,
            file: None,
            way: Way::Read,
            warm: true,
            block: vec![8 << 10],
            offset: (0..=32).chain([48, 63, 64]).collect(),
            file_offset: vec![0],
            working_set: Vec::new(),
            with: Vec::new(),
        }
    }
}

/// One combination of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Bytes of a call.
    pub block: ByteCount,
    /// The buffer's distance from a page.
    pub offset: ByteCount,
    /// Where in the file it begins.
    pub from: ByteCount,
    /// How much is walked.
    pub working_set: ByteCount,
    /// By which call.
    pub with: ReadWith,
}

/// A point's numbers as the calls want them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    pub(super) block: usize,
    pub(super) offset: usize,
    pub(super) from: usize,
    pub(super) calls: usize,
}

impl Places {
    pub(super) fn bytes(self) -> u64 {
        self.calls as u64 * self.block as u64
    }

    /// The same in parts, none of which takes long.
    #[inline]
    pub(super) fn chunks(self) -> impl Iterator<Item = Self> {
        let most = (CHUNK / self.block.max(1)).clamp(1, CHUNK_CALLS);
        (0..self.calls).step_by(most).map(move |first| Self {
            from: self.from + first * self.block,
            calls: most.min(self.calls - first),
            ..self
        })
    }
}

impl Point {
    /// The first byte of the file that it does not need.
    #[must_use]
    pub fn end(&self) -> ByteCount {
        ByteCount(self.from.0.saturating_add(self.working_set.0))
    }

    /// Bytes of a read-through: whole blocks.
    #[must_use]
    pub fn walked(&self) -> u64 {
        self.working_set.0 / self.block.0 * self.block.0
    }

    pub(super) fn places(&self) -> Result<Places> {
        let size = |bytes: u64| usize::try_from(bytes).map_err(|_| SpecError::Message(bytes));
        Ok(Places {
            block: size(self.block.0)?,
            offset: size(self.offset.0)?,
            from: size(self.from.0)?,
            calls: size(self.working_set.0 / self.block.0)?,
        })
    }
}

fn no<T>(what: impl fmt::Display, remedy: impl fmt::Display) -> Result<T> {
    Err(SpecError::Local(format!("{what}: {remedy}")).into())
}

impl ReadOptions {
    /// The options with nothing left open, as the record has them.
    pub fn settled(&self) -> Result<Self> {
        let mut settled = self.clone();
        if settled.with.is_empty() {
            let placed = matches!(self.source, SourceKind::File | SourceKind::Memory);
            settled.with.push(if placed { ReadWith::Pread } else { ReadWith::Read });
        }
        if settled.working_set.is_empty() {
            settled.working_set.push(self.usual_working_set()?.0);
        }
        Ok(settled)
    }

    /// 256 KiB, at least a block, and no more than a file has.
    fn usual_working_set(&self) -> Result<ByteCount> {
        let block = self.block.iter().max().copied().unwrap_or(1);
        let usual = WORKING_SET.0.max(block);
        let (SourceKind::File, Some(path)) = (self.source, &self.file) else { return Ok(ByteCount(usual)) };
        let metadata = std::fs::metadata(path);
        let length =
            metadata.map_err(|error| WorkloadError::os("open", path.display().to_string(), error))?.len();
        let after = length.saturating_sub(self.file_offset.iter().max().copied().unwrap_or(0));
        // A file that is smaller than a block is refused with its length, later.
        Ok(ByteCount(usual.min((after / block * block).max(block))))
    }

    /// As JSON, the way they stand in a record.
    #[must_use]
    pub fn requested(&self) -> Json {
        let list = |values: &[u64]| match values {
            [only] => json!(only),
            values => json!(values),
        };
        let with: Vec<&str> = self.with.iter().map(|with| with.name(self.way)).collect();
        json!({
            "source": self.source.name(),
            "file": self.file.as_ref().map(|path| path.display().to_string()),
            "direction": self.way.to_string(),
            "block_bytes": list(&self.block),
            "offset_bytes": list(&self.offset),
            "file_offset_bytes": list(&self.file_offset),
            "working_set_bytes": list(&self.working_set),
            "with": if let [only] = with.as_slice() { json!(only) } else { json!(with) },
            "warm": self.warm,
        })
    }

    /// The cell of a point: its values on the axes that have several.
    pub(super) fn cell(&self, point: &Point) -> Cell {
        let axes = [
            ("block_bytes", self.block.len(), CellValue::Int(point.block.0)),
            ("file_offset_bytes", self.file_offset.len(), CellValue::Int(point.from.0)),
            ("offset_bytes", self.offset.len(), CellValue::Int(point.offset.0)),
            ("with", self.with.len(), CellValue::Text(point.with.name(self.way).to_owned())),
            ("working_set_bytes", self.working_set.len(), CellValue::Int(point.working_set.0)),
        ];
        axes.into_iter()
            .filter(|(_, values, _)| *values > 1)
            .map(|(axis, _, value)| (axis.to_owned(), value))
            .collect()
    }

    /// Every combination, in the order of the axes; nothing is left open in the options that come with them.
    pub(super) fn points(&self) -> Result<(Self, Vec<Point>)> {
        self.check()?;
        let settled = self.settled()?;
        let Self { block, offset, file_offset, working_set, with, .. } = &settled;
        let counts = [block.len(), offset.len(), file_offset.len(), working_set.len(), with.len()];
        let cells = counts.iter().fold(1_usize, |cells, &count| cells.saturating_mul(count));
        if cells == 0 || cells > MOST_CELLS {
            return no(
                format!("{cells} combinations of these values"),
                "give fewer values of some option: 10,000 are the most",
            );
        }
        let mut points = Vec::with_capacity(cells);
        for &with in with {
            for &working_set in working_set {
                for &block in block {
                    for &from in file_offset {
                        for &offset in offset {
                            let [block, offset, from, working_set] =
                                [block, offset, from, working_set].map(ByteCount);
                            let point = Point { block, offset, from, working_set, with };
                            settled.allows(&point)?;
                            points.push(point);
                        }
                    }
                }
            }
        }
        Ok((settled, points))
    }

    /// What does not go together, whatever the values.
    fn check(&self) -> Result<()> {
        let source = self.source;
        // First: whoever names a FILE because it is missing must not be told then to leave it out.
        if self.way == Way::Write && matches!(source, SourceKind::File | SourceKind::Device) {
            return no(
                "--direction write would change a file of yours",
                "leave FILE and --source out, or give --source memfd, pipe, unix, tcp or udp: only what haul makes itself is \
                 written to",
            );
        }
        match (source, &self.file) {
            (SourceKind::File | SourceKind::Device, None) => {
                return no(
                    format!("--source {} needs a FILE", source.name()),
                    "name one, or leave --source out",
                );
            }
            (SourceKind::Memory | SourceKind::Channel(_), Some(_)) => {
                return no(
                    format!("--source {} is of haul's own making, and a FILE is given", source.name()),
                    "leave one of the two out",
                );
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether a combination of values can be.
    fn allows(&self, point: &Point) -> Result<()> {
        let placed = matches!(self.source, SourceKind::File | SourceKind::Memory);
        let source = self.source.name();
        if point.block.0 == 0 || point.block.0 > MOST {
            return no(format!("a block of {}", point.block), "give 1 byte to 1G");
        }
        if point.offset.0 > MOST {
            return no(format!("an offset of {}", point.offset), "give at most 1G");
        }
        if point.working_set.0 < point.block.0 {
            return no(
                format!("a working set of {} is less than a block of {}", point.working_set, point.block),
                "raise --working-set, or lower --block",
            );
        }
        if point.from.0.checked_add(point.working_set.0).is_none_or(|end| i64::try_from(end).is_err()) {
            return no(
                "a working set beyond the end of any file",
                "give a smaller --file-offset or --working-set",
            );
        }
        if !placed && point.working_set.0 > MOST_ENDLESS.0 {
            return no(
                format!("a working set of {} out of --source {source}, which has no end", point.working_set),
                format_args!("give at most {MOST_ENDLESS}: more of the same says no more"),
            );
        }
        if !placed && point.from.0 > 0 {
            return no(format!("--source {source} has no --file-offset"), "leave it out, or read a file");
        }
        let with = point.with.name(self.way);
        let without_place = [ReadWith::Read, ReadWith::Readv].map(|with| with.name(self.way)).join(" or ");
        match point.with {
            ReadWith::MmapCopy if self.way == Way::Write => {
                return no("--with mmap-copy only reads", "leave it out, or give --direction read");
            }
            ReadWith::Pread | ReadWith::MmapCopy if !placed => {
                return no(
                    format!("--with {with} takes a place, and --source {source} has none"),
                    format_args!("give {without_place}"),
                );
            }
            ReadWith::Splice if !placed && self.source != SourceKind::Channel(ChannelKind::Pipe) => {
                return no(
                    format!("--with splice works with files and pipes, not with --source {source}"),
                    format_args!("give {without_place}"),
                );
            }
            ReadWith::Readv if point.block.0 < 2 => {
                return no(
                    format!("a block of one byte has no two halves for {with}"),
                    "give --block 2 or more, or another --with",
                );
            }
            _ => {}
        }
        if self.source == SourceKind::Channel(ChannelKind::Udp) && point.block.0 > 65_507 {
            return no(format!("a datagram of {}", point.block), "give a --block of 65507 or less");
        }
        Ok(())
    }
}
