//! How blocks are moved: one loop for each way, with nothing in it but the call.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Seek as _, SeekFrom};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use haul_host::block::{self, Ring};
use haul_host::clock;
use haul_host::thread::Tid;
use haul_stats::MonoNanos;

use super::options::{Places, ReadWith, Way};
use crate::error::{Result, WorkloadError};
use crate::local::{Sample, thread_cpu};

/// What the ways need besides a buffer.
#[derive(Debug)]
pub(super) struct Ways {
    ring: Option<Ring>,
    pipe: Option<(PipeReader, PipeWriter)>,
}

/// A way was asked for that nothing was made for: a slip in this module.
fn missing() -> io::Error {
    io::ErrorKind::Unsupported.into()
}

impl Ways {
    /// Makes a ring and a pipe, where they are wanted.
    pub(super) fn new(ring: bool, pipe: bool) -> Result<Self> {
        let made = pipe.then(io::pipe).transpose();
        let pipe = made.map_err(|error| WorkloadError::os("make", "a pipe", error))?;
        Ok(Self { ring: ring.then(Ring::new).transpose()?, pipe })
    }

    /// Goes once through the range, block by block, and returns the bytes of it.
    #[inline]
    pub(super) fn pass(
        &mut self,
        mut file: &File,
        way: Way,
        with: ReadWith,
        places: Places,
        buffer: &mut [u8],
    ) -> io::Result<u64> {
        let fd = file.as_fd();
        match (way, with) {
            (Way::Read, ReadWith::Pread) => each(places, |at| block::read_at(fd, at, buffer)),
            (Way::Write, ReadWith::Pread) => each(places, |at| block::write_at(fd, at, buffer)),
            (Way::Read, ReadWith::Readv) => each(places, |at| block::read_halves(fd, Some(at), buffer)),
            (Way::Write, ReadWith::Readv) => each(places, |at| block::write_halves(fd, Some(at), buffer)),
            (_, ReadWith::Read) => {
                file.seek(SeekFrom::Start(places.from as u64))?;
                match way {
                    Way::Read => each(places, |_| block::read(fd, buffer)),
                    Way::Write => each(places, |_| block::write(fd, buffer)),
                }
            }
            (_, ReadWith::IoUring) => {
                let ring = self.ring.as_mut().ok_or_else(missing)?;
                match way {
                    Way::Read => each(places, |at| ring.read(fd, Some(at), buffer)),
                    Way::Write => each(places, |at| ring.write(fd, Some(at), buffer)),
                }
            }
            (_, ReadWith::Splice) => {
                let (reader, writer) = self.pipe.as_ref().ok_or_else(missing)?;
                let (reader, writer) = (reader.as_fd(), writer.as_fd());
                match way {
                    Way::Read => each(places, |at| through_pipe(fd, at, reader, writer, buffer)),
                    Way::Write => each(places, |at| from_pages(fd, at, reader, writer, buffer)),
                }
            }
            (_, ReadWith::MmapCopy) => Err(missing()),
        }
    }

    /// Takes a block out of a channel, and returns in how many calls.
    #[inline]
    pub(super) fn take(&mut self, fd: BorrowedFd<'_>, with: ReadWith, buffer: &mut [u8]) -> io::Result<u64> {
        let (mut done, mut calls) = (0, 0);
        while done < buffer.len() {
            let left = buffer.get_mut(done..).unwrap_or_default();
            let moved = match with {
                ReadWith::Readv => block::read_halves(fd, None, left)?,
                ReadWith::IoUring => self.ring.as_mut().ok_or_else(missing)?.read(fd, None, left)?,
                ReadWith::Splice => block::from_pipe(fd, left)?,
                ReadWith::Read | ReadWith::Pread | ReadWith::MmapCopy => block::read(fd, left)?,
            };
            if moved == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            done += moved;
            calls += 1;
        }
        Ok(calls)
    }

    /// Puts a block into a channel, and returns in how many calls.
    #[inline]
    pub(super) fn give(&mut self, fd: BorrowedFd<'_>, with: ReadWith, buffer: &[u8]) -> io::Result<u64> {
        let (mut done, mut calls) = (0, 0);
        while done < buffer.len() {
            let left = buffer.get(done..).unwrap_or_default();
            let moved = match with {
                ReadWith::Readv => block::write_halves(fd, None, left)?,
                ReadWith::IoUring => self.ring.as_mut().ok_or_else(missing)?.write(fd, None, left)?,
                ReadWith::Splice => block::into_pipe(fd, left)?,
                ReadWith::Read | ReadWith::Pread | ReadWith::MmapCopy => block::write(fd, left)?,
            };
            if moved == 0 {
                return Err(io::ErrorKind::WriteZero.into());
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
        buffer: &mut [u8],
    ) -> io::Result<(u64, u64)> {
        let (wanted, mut bytes, mut calls) = (places.bytes(), 0, 0);
        let mut ended = false;
        while bytes < wanted {
            let moved = match with {
                ReadWith::Readv => block::read_halves(file.as_fd(), None, buffer)?,
                ReadWith::IoUring => self.ring.as_mut().ok_or_else(missing)?.read(file, None, buffer)?,
                _ => block::read(file.as_fd(), buffer)?,
            } as u64;
            if moved == 0 {
                if std::mem::replace(&mut ended, true) {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it is empty"));
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

/// One call for each block. A short one is an error, because it would count a copy that was not made.
#[inline]
pub(super) fn each(places: Places, mut call: impl FnMut(usize) -> io::Result<usize>) -> io::Result<u64> {
    let mut at = places.from;
    for _ in 0..places.calls {
        if call(at)? != places.block {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "a call moved less than a block; was the file truncated meanwhile?",
            ));
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
    writer: BorrowedFd<'_>,
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
