//! The arguments of `haul read`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use haul_host::channel::ChannelKind;
use haul_lab::LabError;
use haul_lab::sweep::{self, Suffix};
use haul_workload::local::read::{ReadOptions, ReadWith, SourceKind, Way};

use super::{Output, Rows, Sampling};
use crate::survey::each_once;

const EXAMPLES: &str = "\
Examples:
  haul read                                    what an unaligned buffer costs: the table of 2002 with today's numbers
  haul read --working-set 256K,64M,1G          the same with the source in the cache, and out of it
  haul read FILE --file-offset 0..7 --offset 0 an unaligned source and an aligned buffer
  haul read --offset 0,1 --with read,pread,readv,mmap-copy,io_uring,splice
  haul read --source tcp --block 1K..64K*2     out of a socket

Sizes take K, M, G (KiB, MiB, GiB). Options marked [list] take a list (0,1,64) or a range (0..32, 1K..64K*2) as well; of two
such options every combination is a cell.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Read {
    /// A file to read, which is never written; without one, a file in memory of haul's own
    pub(crate) file: Option<PathBuf>,
    /// What to read from. A pipe or a pair of sockets is filled and drained in turn by one thread, and only the draining is
    /// timed; 'device' is a character device or a file of procfs, named as FILE [default: file with a FILE, else memfd]
    #[arg(long, value_enum, help_heading = "What is read")]
    source: Option<Source>,
    /// How much is walked [list]: 256K sits in the second-level cache, 1G comes from memory and hides what alignment costs; of
    /// what has no end at most 64G [default: 256K, or all of a smaller file]
    #[arg(long, value_name = "SIZE", help_heading = "What is read")]
    working_set: Option<String>,
    /// Where in the file it begins [list]: an unaligned source
    #[arg(long, value_name = "BYTES", default_value = "0", help_heading = "What is read")]
    file_offset: String,
    /// Refuse a file that is not all in the page cache, where it would be read once first
    #[arg(long, help_heading = "What is read")]
    no_warm: bool,
    /// Bytes of a call [list]
    #[arg(long, value_name = "SIZE", default_value = "8K", help_heading = "How it is read")]
    block: String,
    /// How far past a page boundary the buffer begins [list]
    #[arg(long, value_name = "BYTES", default_value = "0..32,48,63,64", help_heading = "How it is read")]
    offset: String,
    /// By which calls [list]: read, pread, readv, mmap-copy (by haul-copy, out of a mapping), io_uring, splice (through a pipe);
    /// with --direction write their counterparts write, pwrite, writev [default: pread or pwrite, without a place read or write]
    #[arg(long, value_name = "CALL", help_heading = "How it is read")]
    with: Option<String>,
    /// 'write' goes the other way, from the buffer to the kernel: into haul's own file, a pipe or a socket
    #[arg(long, value_enum, default_value_t = Direction::Read, help_heading = "How it is read")]
    direction: Direction,
    #[command(flatten)]
    pub(crate) sampling: Sampling,
    #[command(flatten)]
    pub(crate) rows: Rows,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// A file, named as FILE
    File,
    /// A file in memory
    Memfd,
    /// A pipe
    Pipe,
    /// A pair of Unix stream sockets
    Unix,
    /// A TCP connection over 127.0.0.1
    Tcp,
    /// A pair of UDP sockets over 127.0.0.1
    Udp,
    /// A character device or a file of procfs, named as FILE
    Device,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// From the kernel to the buffer
    Read,
    /// From the buffer to the kernel
    Write,
}

impl Read {
    /// The options as the workload takes them.
    pub(crate) fn options(&self) -> Result<ReadOptions, LabError> {
        let list = |name: &str, text: &str| {
            sweep::parse(text, Suffix::Binary).map_err(|error| match error {
                LabError::Sweep { text, why } => LabError::Sweep { text: format!("--{name} {text}"), why },
                other => other,
            })
        };
        let way = if self.direction == Direction::Read { Way::Read } else { Way::Write };
        let call = |name: &str| {
            let bad = |why| LabError::Option { key: "with".to_owned(), value: name.to_owned(), why };
            ReadWith::named(name, way).map_err(bad)
        };
        let calls = |text: &str| each_once("with", text, call);
        let source = match (self.source, &self.file) {
            (Some(Source::File), _) | (None, Some(_)) => SourceKind::File,
            (Some(Source::Memfd) | None, _) => SourceKind::Memory,
            (Some(Source::Device), _) => SourceKind::Device,
            (Some(Source::Pipe), _) => SourceKind::Channel(ChannelKind::Pipe),
            (Some(Source::Unix), _) => SourceKind::Channel(ChannelKind::Unix),
            (Some(Source::Tcp), _) => SourceKind::Channel(ChannelKind::Tcp),
            (Some(Source::Udp), _) => SourceKind::Channel(ChannelKind::Udp),
        };
        let options = ReadOptions {
            source,
            file: self.file.clone(),
            way,
            warm: !self.no_warm,
            block: list("block", &self.block)?,
            offset: list("offset", &self.offset)?,
            file_offset: list("file-offset", &self.file_offset)?,
            working_set: self
                .working_set
                .as_deref()
                .map_or(Ok(Vec::new()), |text| list("working-set", text))?,
            with: self.with.as_deref().map_or(Ok(Vec::new()), calls)?,
        };
        Ok(options)
    }
}
