//! The ways to have the kernel move a block between a descriptor and a user's buffer.
//!
//! Each function is one system call, or as many as the way needs, and returns the bytes it moved and the call's own error: they
//! are what is measured, so nothing stands around them. Where a place is given the descriptor's own does not move.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::error::{Named as _, Result};
use crate::sys;

/// `read(2)`.
#[inline]
pub fn read(fd: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
    sys::read(fd, into)
}

/// `write(2)`.
#[inline]
pub fn write(fd: BorrowedFd<'_>, from: &[u8]) -> io::Result<usize> {
    sys::write(fd, from)
}

/// `pread(2)`.
#[inline]
pub fn read_at(fd: BorrowedFd<'_>, at: usize, into: &mut [u8]) -> io::Result<usize> {
    sys::read_at(fd, at, into)
}

/// `pwrite(2)`.
#[inline]
pub fn write_at(fd: BorrowedFd<'_>, at: usize, from: &[u8]) -> io::Result<usize> {
    sys::write_at(fd, at, from)
}

/// `readv(2)` into the two halves of the buffer; with a place `preadv(2)`.
#[inline]
pub fn read_halves(fd: BorrowedFd<'_>, at: Option<usize>, into: &mut [u8]) -> io::Result<usize> {
    match at {
        Some(at) => sys::read_halves_at(fd, at, into),
        None => sys::read_halves(fd, into),
    }
}

/// `writev(2)` from the two halves of the buffer; with a place `pwritev(2)`.
#[inline]
pub fn write_halves(fd: BorrowedFd<'_>, at: Option<usize>, from: &[u8]) -> io::Result<usize> {
    match at {
        Some(at) => sys::write_halves_at(fd, at, from),
        None => sys::write_halves(fd, from),
    }
}

/// `vmsplice(2)` out of a pipe, which copies into the buffer.
#[inline]
pub fn from_pipe(pipe: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
    sys::from_pipe(pipe, into)
}

/// `vmsplice(2)` into a pipe, which copies nothing: the pipe has the buffer's pages, and who writes to them before they are read
/// changes what is read.
#[inline]
pub fn into_pipe(pipe: BorrowedFd<'_>, from: &[u8]) -> io::Result<usize> {
    sys::into_pipe(pipe, from)
}

/// `splice(2)` from a place in a file into a pipe, which copies nothing.
#[inline]
pub fn file_to_pipe(
    file: BorrowedFd<'_>,
    at: usize,
    pipe: BorrowedFd<'_>,
    length: usize,
) -> io::Result<usize> {
    sys::splice((file, Some(place(at))), (pipe, None), length)
}

/// `splice(2)` from a pipe to a place in a file, which copies into the page cache.
#[inline]
pub fn pipe_to_file(
    pipe: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    at: usize,
    length: usize,
) -> io::Result<usize> {
    sys::splice((pipe, None), (file, Some(place(at))), length)
}

/// A place in a file as the kernel takes it: none is further than memory reaches.
fn place(at: usize) -> i64 {
    i64::try_from(at).unwrap_or(i64::MAX)
}

/// How many bytes wait in a pipe or a stream socket.
pub fn arrived(fd: BorrowedFd<'_>) -> io::Result<usize> {
    sys::arrived(fd)
}

/// An `io_uring` with one operation in it at a time.
#[derive(Debug)]
pub struct Ring(sys::Ring);

impl Ring {
    /// Makes the ring.
    ///
    /// # Errors
    /// Where the kernel has none, or does not let this user have one.
    pub fn new() -> Result<Self> {
        let ring = sys::Ring::new().named("make", || "an io_uring".to_owned());
        ring.map(Self).map_err(|error| match error.errno() {
            Some(libc::EPERM) => error.with_hint(
                "kernel.io_uring_disabled, or the container's filter of system calls, forbids it: leave io_uring out of --with",
            ),
            Some(libc::ENOSYS) => error.with_hint("this kernel has none: leave io_uring out of --with"),
            _ => error,
        })
    }

    /// Reads from a place in a file, or from where the descriptor stands.
    #[inline]
    pub fn read(&mut self, fd: impl AsFd, at: Option<usize>, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(fd.as_fd(), at.map(|at| at as u64), into)
    }

    /// Writes to a place in a file, or to where the descriptor stands.
    #[inline]
    pub fn write(&mut self, fd: impl AsFd, at: Option<usize>, from: &[u8]) -> io::Result<usize> {
        self.0.write(fd.as_fd(), at.map(|at| at as u64), from)
    }
}

#[cfg(test)]
mod tests {
    use haul_stats::ByteCount;

    use super::*;
    use crate::cached::CachedFile;

    type Reads<'a> = &'a mut dyn FnMut(&mut [u8]) -> io::Result<usize>;
    type Writes<'a> = &'a mut dyn FnMut(&[u8]) -> io::Result<usize>;

    #[test]
    fn every_way_reads_the_same_bytes_of_a_file() {
        let file = CachedFile::memory(ByteCount(100_000)).expect("memory");
        let fd = file.as_fd();
        let (pipe, into_the_pipe) = io::pipe().expect("a pipe");
        let mut ring = Ring::new().expect("a ring");
        let mut wanted = vec![0; 4096];
        assert_eq!(read_at(fd, 8_195, &mut wanted).expect("pread"), 4096);
        let ways: [(&str, Reads<'_>); 3] = [
            ("preadv", &mut |into| read_halves(fd, Some(8_195), into)),
            ("io_uring", &mut |into| ring.read(&file, Some(8_195), into)),
            ("splice", &mut |into| {
                assert_eq!(file_to_pipe(fd, 8_195, into_the_pipe.as_fd(), 4096)?, 4096);
                from_pipe(pipe.as_fd(), into)
            }),
        ];
        for (name, way) in ways {
            let mut found = vec![0; 4096];
            assert_eq!(way(&mut found).expect(name), 4096, "{name}");
            assert!(found == wanted, "{name}");
        }
        assert_eq!(read_at(fd, 100_000, &mut wanted).expect("the end"), 0);
        assert_eq!(ring.read(&file, Some(100_000), &mut wanted).expect("the end"), 0);
        let error = ring.read(&into_the_pipe, None, &mut wanted).expect_err("the end for writing");
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    }

    #[test]
    fn every_way_writes_what_is_read_back() {
        let file = CachedFile::memory(ByteCount(20_000)).expect("memory");
        let fd = file.as_fd();
        let (pipe, into_the_pipe) = io::pipe().expect("a pipe");
        let mut ring = Ring::new().expect("a ring");
        let ways: [(&str, Writes<'_>); 4] = [
            ("pwrite", &mut |from| write_at(fd, 5_001, from)),
            ("pwritev", &mut |from| write_halves(fd, Some(5_001), from)),
            ("io_uring", &mut |from| ring.write(&file, Some(5_001), from)),
            ("splice", &mut |from| {
                assert_eq!(into_pipe(into_the_pipe.as_fd(), from)?, from.len());
                pipe_to_file(pipe.as_fd(), fd, 5_001, from.len())
            }),
        ];
        for (number, (name, way)) in (1..).zip(ways) {
            let from = vec![number; 6_000];
            assert_eq!(way(&from).expect(name), 6_000, "{name}");
            let mut found = vec![0; 6_002];
            read_at(fd, 5_000, &mut found).expect("pread");
            assert!(found[1..6_001] == from[..] && found[0] != number && found[6_001] != number, "{name}");
        }
    }

    #[test]
    fn a_descriptor_without_places_is_read_in_order() {
        let (pipe, into_the_pipe) = io::pipe().expect("a pipe");
        let mut ring = Ring::new().expect("a ring");
        let bytes: Vec<u8> = (0..90).collect();
        assert_eq!(write(into_the_pipe.as_fd(), &bytes[..30]).expect("write"), 30);
        assert_eq!(write_halves(into_the_pipe.as_fd(), None, &bytes[30..60]).expect("writev"), 30);
        assert_eq!(ring.write(&into_the_pipe, None, &bytes[60..]).expect("io_uring"), 30);
        assert_eq!(arrived(pipe.as_fd()).expect("FIONREAD"), 90);
        let mut found = vec![0; 90];
        assert_eq!(read(pipe.as_fd(), &mut found[..30]).expect("read"), 30);
        assert_eq!(read_halves(pipe.as_fd(), None, &mut found[30..60]).expect("readv"), 30);
        assert_eq!(ring.read(&pipe, None, &mut found[60..]).expect("io_uring"), 30);
        assert_eq!((found, arrived(pipe.as_fd()).expect("FIONREAD")), (bytes, 0));
    }
}
