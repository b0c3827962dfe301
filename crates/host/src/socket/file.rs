//! Sending from a file's pages: sendfile(2), and splice(2) through a pipe.
//!
//! Neither copies the bytes into the socket: the pages of the page cache are handed over, and the receiver on the same
//! kernel copies straight from them. Who changes the file while its pages are on their way changes what is received.

use std::fs::File;
use std::fs::OpenOptions;
use std::io::{self, PipeReader, PipeWriter, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use haul_stats::ByteCount;

use crate::error::{HostError, Named as _, Result};
use crate::sys;

/// A file to send from.
///
/// What it is made of decides what sending it costs. A file in memory (`memfd_create(2)`) has pages of 4 KiB wherever there was
/// one; filesystems that keep their cache in larger pieces hand over pages that lie side by side, which the kernel puts into
/// one fragment: 17 % more throughput from a file of 128 KiB on ext4 than from one in memory (Linux 6.18, one TCP connection
/// over loopback).
#[derive(Debug)]
pub struct SourceFile {
    file: File,
    length: u64,
}

impl SourceFile {
    /// A file of `length` bytes, which `make` writes in pieces, from the first on.
    pub fn in_memory(length: ByteCount, mut make: impl FnMut(&mut [u8])) -> Result<Self> {
        /// Few calls, and no second copy of the whole file.
        const PIECE: usize = 1 << 20;
        let object = || format!("a file of {} in memory", length.about());
        let mut file = sys::memory_file(c"haul-payload").named("make", object)?;
        let mut piece = vec![0; PIECE];
        let mut left = length.0;
        while left > 0 {
            let bytes = &mut piece[..PIECE.min(usize::try_from(left).unwrap_or(PIECE))];
            make(bytes);
            file.write_all(bytes).named("fill", object)?;
            left -= bytes.len() as u64;
        }
        Ok(Self { file, length: length.0 })
    }

    /// A file that is there: a regular one, because nothing else has pages to hand over.
    pub fn open(path: &Path) -> Result<Self> {
        let object = || path.display().to_string();
        // A FIFO would wait here for somebody to write to it.
        let file =
            OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).named("open", object)?;
        let facts = file.metadata().named("look at", object)?;
        if !facts.is_file() {
            let wanted = "a regular file, and nothing else has pages to hand over: name one, or leave it out";
            return Err(HostError::Invalid { text: object(), wanted });
        }
        Ok(Self { file, length: facts.len() })
    }

    /// Its length, when it was opened.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

/// A place in a file as the kernel takes it. A file in memory is never as long as to overflow it.
fn offset(at: u64) -> i64 {
    i64::try_from(at).unwrap_or(i64::MAX)
}

/// `sendfile(2)`: hands up to `length` bytes of `file` from `at` on to a socket and returns how many it took. The error
/// is the system call's own.
#[inline]
pub fn sendfile(to: BorrowedFd<'_>, file: &SourceFile, at: u64, length: usize) -> io::Result<usize> {
    sys::sendfile(to, file.file.as_fd(), offset(at), length)
}

/// A pipe that pages of a file pass through on their way to a socket.
#[derive(Debug)]
pub struct Pipe {
    reader: PipeReader,
    writer: PipeWriter,
    size: usize,
}

impl Pipe {
    /// A pipe for `length` bytes, or as many as this user may have (`fs.pipe-max-size`, 1 MiB by default).
    pub fn new(length: usize) -> Result<Self> {
        /// A page for each of the kernel's 16 default places (pipe(7)).
        const DEFAULT: usize = 64 << 10;
        /// What every user gets by default; root may have more, but more is no faster.
        const MOST: usize = 1 << 20;
        let object = || "a pipe".to_owned();
        let (reader, writer) = io::pipe().named("make", object)?;
        // One page more: bytes that do not begin at a page boundary touch one more.
        let wanted = length.saturating_add(4096).clamp(DEFAULT, MOST);
        // A limit set lower than the default leaves the pipe as it is.
        let wanted = i32::try_from(wanted).unwrap_or(i32::MAX);
        let size = sys::pipe_size(writer.as_fd(), wanted).unwrap_or(DEFAULT);
        Ok(Self { reader, writer, size })
    }

    /// How many bytes of whole pages it holds.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Puts up to `length` bytes of `file` from `at` on into the pipe and returns how many it took.
    #[inline]
    pub fn fill(&self, file: &SourceFile, at: u64, length: usize) -> io::Result<usize> {
        sys::splice_from(file.file.as_fd(), offset(at), self.writer.as_fd(), length)
    }

    /// Hands up to `length` bytes of the pipe to a socket and returns how many it took.
    #[inline]
    pub fn drain(&self, to: BorrowedFd<'_>, length: usize) -> io::Result<usize> {
        sys::splice_to(self.reader.as_fd(), to, length)
    }
}
