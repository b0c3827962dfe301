//! How blocks are moved: one loop for each way, with nothing in it but the call.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Seek as _, SeekFrom};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use haul_host::block::{self, Block, Ring, WriteEnd};
use haul_host::clock;
use haul_host::signal::Stop;
use haul_host::thread::Tid;
use haul_stats::MonoNanos;

use super::options::{Places, ReadWith};
use crate::error::{Result, WorkloadError};
use crate::local::{Sample, thread_cpu};

/// What the ways need besides a buffer.
#[derive(Debug)]
pub(super) struct Ways {
    ring: Option<Ring>,
    pipe: Option<(PipeReader, PipeWriter)>,
    stop: Stop,
}

/// One end of a channel, or a device: what has no places.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outlet<'fd> {
    fd: BorrowedFd<'fd>,
    /// Where it is the end of a pipe that is written to.
    pipe: Option<WriteEnd<'fd>>,
}

impl<'fd> Outlet<'fd> {
    pub(super) fn new(fd: BorrowedFd<'fd>) -> Self {
        Self { fd, pipe: WriteEnd::of(fd).ok() }
    }
}

/// A way was asked for that nothing was made for: a slip in this module.
fn missing() -> io::Error {
    io::ErrorKind::Unsupported.into()
}

/// Asked to stop: whoever sees it knows why, because the request stays.
fn stopped() -> io::Error {
    io::ErrorKind::Interrupted.into()
}

impl Ways {
    /// Makes a ring and a pipe, where they are wanted. What takes long ends early at the request to stop.
    pub(super) fn new(ring: bool, pipe: bool, stop: Stop) -> Result<Self> {
        let made = pipe.then(io::pipe).transpose();
        let pipe = made.map_err(|error| WorkloadError::os("make", "a pipe", error))?;
        Ok(Self { ring: ring.then(Ring::new).transpose()?, pipe, stop })
    }

    #[inline]
    pub(super) fn go_on(&self) -> io::Result<()> {
        if self.stop.requested().is_some() { Err(stopped()) } else { Ok(()) }
    }

    /// Goes once through the range, block by block, and returns the bytes of it.
    #[inline]
    pub(super) fn pass(
        &mut self,
        mut file: &File,
        with: ReadWith,
        places: Places,
        buffer: &mut Block<'_>,
    ) -> io::Result<u64> {
        let fd = file.as_fd();
        let mut bytes = 0;
        for chunk in places.chunks() {
            self.go_on()?;
            bytes += match with {
                ReadWith::Pread => each(chunk, |at| block::plain(fd, Some(at), buffer)),
                ReadWith::Readv => each(chunk, |at| block::halves(fd, Some(at), buffer)),
                ReadWith::Read => {
                    file.seek(SeekFrom::Start(chunk.from as u64))?;
                    each(chunk, |_| block::plain(fd, None, buffer))
                }
                ReadWith::IoUring => {
                    let ring = self.ring.as_mut().ok_or_else(missing)?;
                    each(chunk, |at| ring.plain(fd, Some(at), buffer))
                }
                ReadWith::Splice => {
                    let (reader, writer) = self.pipe.as_ref().ok_or_else(missing)?;
                    let (reader, writer) = (reader.as_fd(), writer.as_fd());
                    match buffer {
                        Block::Into(into) => each(chunk, |at| through_pipe(fd, at, reader, writer, into)),
                        Block::From(from) => {
                            let writer = WriteEnd::of(writer)?;
                            each(chunk, |at| from_pages(fd, at, reader, writer, from))
                        }
                    }
                }
                ReadWith::MmapCopy => Err(missing()),
            }?;
        }
        Ok(bytes)
    }

    /// One call without a place.
    #[inline]
    fn one(&mut self, end: Outlet<'_>, with: ReadWith, buffer: &mut Block<'_>) -> io::Result<usize> {
        match (with, buffer) {
            (ReadWith::Readv, buffer) => block::halves(end.fd, None, buffer),
            (ReadWith::IoUring, buffer) => {
                self.ring.as_mut().ok_or_else(missing)?.plain(end.fd, None, buffer)
            }
            (ReadWith::Splice, Block::Into(into)) => block::from_pipe(end.fd, into),
            (ReadWith::Splice, Block::From(from)) => block::into_pipe(end.pipe.ok_or_else(missing)?, from),
            (ReadWith::Read | ReadWith::Pread | ReadWith::MmapCopy, buffer) => {
                block::plain(end.fd, None, buffer)
            }
        }
    }

    /// Takes a block out of a channel, or puts one into it, and returns in how many calls.
    #[inline]
    pub(super) fn whole(
        &mut self,
        end: Outlet<'_>,
        with: ReadWith,
        buffer: &mut Block<'_>,
    ) -> io::Result<u64> {
        let (mut done, mut calls, length) = (0, 0, buffer.len());
        while done < length {
            let moved = self.one(end, with, &mut buffer.part(done, length))?;
            if moved == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            done += moved;
            calls += 1;
        }
        Ok(calls)
    }

    /// Reads from a device until the working set is full, again from its start where it ends; bytes and calls.
    #[inline]
    pub(super) fn drain(
        &mut self,
        mut file: &File,
        with: ReadWith,
        places: Places,
        buffer: &mut Block<'_>,
    ) -> io::Result<(u64, u64)> {
        /// Calls between two looks at the request to stop, of small blocks: a file of procfs takes a millisecond for one.
        const CALLS: usize = 64;
        let (wanted, mut bytes, mut calls) = (places.bytes(), 0, 0);
        let end = Outlet::new(file.as_fd());
        let most = (CHUNK / places.block).clamp(1, CALLS);
        let (mut ended, mut unlooked) = (false, 0);
        while bytes < wanted {
            if unlooked == 0 {
                self.go_on()?;
                unlooked = most;
            }
            unlooked -= 1;
            let moved = self.one(end, with, buffer)? as u64;
            if moved == 0 {
                if std::mem::replace(&mut ended, true) {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, EMPTY));
                }
                file.seek(SeekFrom::Start(0))?;
                continue;
            }
            ended = false;
            bytes += moved;
            calls += 1;
        }
        Ok((bytes, calls))
    }
}

/// What to do where a device gives nothing.
const EMPTY: &str = "it is empty: name one that gives bytes, as /dev/zero";

/// The most that is moved between two looks at the request to stop: a tenth of a second of the slowest memory.
pub(super) const CHUNK: usize = 16 << 20;

/// And the most calls, some of which take a microsecond for a byte.
pub(super) const CHUNK_CALLS: usize = 32 << 10;

/// A call moved less than a block.
pub(super) const SHORT: &str = "a call moved less than a block";

/// One call for each block. A short one is an error, because it would count a copy that was not made.
#[inline]
pub(super) fn each(places: Places, mut call: impl FnMut(usize) -> io::Result<usize>) -> io::Result<u64> {
    let mut at = places.from;
    for _ in 0..places.calls {
        if call(at)? != places.block {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, SHORT));
        }
        at += places.block;
    }
    Ok(places.bytes())
}

/// A block of a file by its pages into the pipe, and copied out of it; in pieces where the pipe holds less.
#[inline]
fn through_pipe(
    file: BorrowedFd<'_>,
    at: usize,
    reader: BorrowedFd<'_>,
    writer: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        let piped = block::file_to_pipe(file, at + done, writer, buffer.len() - done)?;
        if piped == 0 {
            break;
        }
        let until = done + piped;
        while done < until {
            done += block::from_pipe(reader, buffer.get_mut(done..until).unwrap_or_default())?;
        }
    }
    Ok(done)
}

/// The buffer's pages into the pipe, and copied out of it into the file; in pieces where the pipe holds less.
#[inline]
fn from_pages(
    file: BorrowedFd<'_>,
    at: usize,
    reader: BorrowedFd<'_>,
    writer: WriteEnd<'_>,
    buffer: &[u8],
) -> io::Result<usize> {
    /// Of a pipe's 16 places, so that bytes which do not begin at a page boundary never wait for one.
    const PIECE: usize = 15 * 4096;
    let mut done = 0;
    while done < buffer.len() {
        let until = buffer.len().min(done + PIECE);
        let piped = done + block::into_pipe(writer, buffer.get(done..until).unwrap_or_default())?;
        while done < piped {
            match block::pipe_to_file(reader, file, at + done, piped - done)? {
                0 => return Ok(done),
                moved => done += moved,
            }
        }
    }
    Ok(done)
}

/// A stopwatch of the thread: its CPU time and the clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begun {
    thread: Tid,
    cpu: Option<Duration>,
    clock: MonoNanos,
}

impl Begun {
    #[inline]
    pub(super) fn now(thread: Tid) -> Self {
        // The clock last, and first in the end: the other is a system call.
        Self { cpu: thread_cpu(thread), thread, clock: clock::now() }
    }

    /// Adds what has passed.
    #[inline]
    pub(super) fn add_to(self, sample: &mut Sample) {
        sample.elapsed += clock::now().since(self.clock);
        let spent = self.cpu.zip(thread_cpu(self.thread)).map(|(before, after)| after.saturating_sub(before));
        sample.thread_cpu = sample.thread_cpu.zip(spent).map(|(so_far, spent)| so_far + spent);
    }
}
