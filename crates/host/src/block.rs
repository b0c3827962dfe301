//! The ways to have the kernel move a block between a descriptor and a user's buffer.
//!
//! Each function is one system call, or as many as the way needs, and returns the bytes it moved and the call's own error: they
//! are what is measured, so nothing stands around them. Where a place is given the descriptor's own does not move. A [`Block`] says
//! which way it goes, so that reading and writing are one function each.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::error::{Named as _, Result};
use crate::sys;
use crate::thread::{self, Tid};

pub use crate::sys::{Block, WriteEnd};

/// `read(2)` or `write(2)`; with a place `pread(2)` or `pwrite(2)`.
#[inline]
pub fn plain(fd: BorrowedFd<'_>, at: Option<usize>, block: &mut Block<'_>) -> io::Result<usize> {
    sys::plain(fd, at, block)
}

/// `readv(2)` or `writev(2)` of the two halves of the buffer; with a place `preadv(2)` or `pwritev(2)`.
#[inline]
pub fn halves(fd: BorrowedFd<'_>, at: Option<usize>, block: &mut Block<'_>) -> io::Result<usize> {
    sys::halves(fd, at, block)
}

/// `vmsplice(2)` out of a pipe, which copies into the buffer.
#[inline]
pub fn from_pipe(pipe: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
    sys::from_pipe(pipe, into)
}

/// `vmsplice(2)` into a pipe, which copies nothing: the pipe has the buffer's pages, and who writes to them before they are read
/// changes what is read.
#[inline]
pub fn into_pipe(pipe: WriteEnd<'_>, from: &[u8]) -> io::Result<usize> {
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

    /// Reads or writes a block, from a place in a file or from where the descriptor stands.
    #[inline]
    pub fn plain(
        &mut self,
        fd: BorrowedFd<'_>,
        at: Option<usize>,
        block: &mut Block<'_>,
    ) -> io::Result<usize> {
        self.0.plain(fd, at.map(|at| at as u64), block)
    }
}

/// CPU time, each since it began, of the threads that the kernel has added to this process for the operations of its rings.
///
/// What a descriptor cannot do without a wait the kernel hands to one of them (io-wq, io_uring/io-wq.c), whether it would have had to
/// wait or not: files in memory are never read in place (Linux 6.18). The copy is then made by another thread, maybe on another CPU,
/// and the thread that asked only waits for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Workers(BTreeMap<Tid, Duration>);

impl Workers {
    /// Those that there are now. Where the process may not look at itself there are none.
    #[must_use]
    pub fn now() -> Self {
        let Ok(tasks) = fs::read_dir("/proc/self/task") else { return Self::default() };
        let worker = |task: fs::DirEntry| {
            let name = fs::read_to_string(task.path().join("comm")).ok()?;
            let tid: Tid =
                task.file_name().to_str()?.parse().ok().filter(|_| name.starts_with("iou-wrk-"))?;
            Some((tid, thread::cpu_clock(tid).ok()?))
        };
        Self(tasks.filter_map(|task| worker(task.ok()?)).collect())
    }

    /// What they have used since `earlier`. One that has ended meanwhile, as they do after seconds without work, is left out.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Duration {
        let used = |(tid, now): (&Tid, &Duration)| {
            now.saturating_sub(earlier.0.get(tid).copied().unwrap_or_default())
        };
        self.0.iter().map(used).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use haul_stats::ByteCount;

    use super::*;
    use crate::cached::CachedFile;
    use crate::signal::Stop;

    type Way<'a> = (&'static str, &'a mut dyn FnMut(Block<'_>) -> io::Result<usize>);

    fn memory(bytes: u64) -> CachedFile {
        CachedFile::memory(ByteCount(bytes), &Stop::never().expect("stop")).expect("memory")
    }

    /// The only direction of a way that has one.
    fn into(block: Block<'_>) -> &mut [u8] {
        match block {
            Block::Into(bytes) => bytes,
            Block::From(_) => panic!("to be written to"),
        }
    }

    #[test]
    fn every_way_reads_the_same_bytes_of_a_file() {
        let file = memory(100_000);
        let fd = file.as_fd();
        let (pipe, into_the_pipe) = io::pipe().expect("a pipe");
        let mut ring = Ring::new().expect("a ring");
        let mut wanted = vec![0; 4096];
        assert_eq!(plain(fd, Some(8_195), &mut Block::Into(&mut wanted)).expect("pread"), 4096);
        let ways: [Way<'_>; 3] = [
            ("preadv", &mut |mut block| halves(fd, Some(8_195), &mut block)),
            ("io_uring", &mut |mut block| ring.plain(fd, Some(8_195), &mut block)),
            ("splice", &mut |block| {
                assert_eq!(file_to_pipe(fd, 8_195, into_the_pipe.as_fd(), 4096)?, 4096);
                from_pipe(pipe.as_fd(), into(block))
            }),
        ];
        for (name, way) in ways {
            let mut found = vec![0; 4096];
            assert_eq!(way(Block::Into(&mut found)).expect(name), 4096, "{name}");
            assert!(found == wanted, "{name}");
        }
        let mut end = Block::Into(&mut wanted);
        assert_eq!(plain(fd, Some(100_000), &mut end).expect("the end"), 0);
        assert_eq!(ring.plain(fd, Some(100_000), &mut end).expect("the end"), 0);
        let error = ring.plain(into_the_pipe.as_fd(), None, &mut end).expect_err("the end for writing");
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    }

    #[test]
    fn every_way_writes_what_is_read_back() {
        let file = memory(20_000);
        let fd = file.as_fd();
        let (pipe, into_the_pipe) = io::pipe().expect("a pipe");
        let writer = WriteEnd::of(into_the_pipe.as_fd()).expect("the end for writing");
        let mut ring = Ring::new().expect("a ring");
        let ways: [Way<'_>; 4] = [
            ("pwrite", &mut |mut block| plain(fd, Some(5_001), &mut block)),
            ("pwritev", &mut |mut block| halves(fd, Some(5_001), &mut block)),
            ("io_uring", &mut |mut block| ring.plain(fd, Some(5_001), &mut block)),
            ("splice", &mut |block| {
                let Block::From(from) = block else { panic!("to be read from") };
                assert_eq!(into_pipe(writer, from)?, from.len());
                pipe_to_file(pipe.as_fd(), fd, 5_001, from.len())
            }),
        ];
        for (number, (name, way)) in (1..).zip(ways) {
            let from = vec![number; 6_000];
            assert_eq!(way(Block::From(&from)).expect(name), 6_000, "{name}");
            let mut found = vec![0; 6_002];
            plain(fd, Some(5_000), &mut Block::Into(&mut found)).expect("pread");
            assert!(found[1..6_001] == from[..] && found[0] != number && found[6_001] != number, "{name}");
        }
    }

    #[test]
    fn a_descriptor_without_places_is_read_in_order() {
        let (pipe, into_the_pipe) = io::pipe().expect("a pipe");
        let (reader, writer) = (pipe.as_fd(), into_the_pipe.as_fd());
        let mut ring = Ring::new().expect("a ring");
        let bytes: Vec<u8> = (0..90).collect();
        let mut from = Block::From(&bytes);
        assert_eq!(plain(writer, None, &mut from.part(0, 30)).expect("write"), 30);
        assert_eq!(halves(writer, None, &mut from.part(30, 60)).expect("writev"), 30);
        assert_eq!(ring.plain(writer, None, &mut from.part(60, 90)).expect("io_uring"), 30);
        assert_eq!(arrived(reader).expect("FIONREAD"), 90);
        let mut found = vec![0; 90];
        let mut to = Block::Into(&mut found);
        assert_eq!(plain(reader, None, &mut to.part(0, 30)).expect("read"), 30);
        assert_eq!(halves(reader, None, &mut to.part(30, 60)).expect("readv"), 30);
        assert_eq!(ring.plain(reader, None, &mut to.part(60, 90)).expect("io_uring"), 30);
        assert_eq!((found, arrived(reader).expect("FIONREAD")), (bytes, 0));
    }

    #[test]
    fn the_reading_end_of_a_pipe_is_none_to_hand_pages_to() {
        let (pipe, into_the_pipe) = io::pipe().expect("a pipe");
        let error = WriteEnd::of(pipe.as_fd()).expect_err("the kernel would write to what it is to read");
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        WriteEnd::of(into_the_pipe.as_fd()).expect("the other end");
    }

    #[test]
    fn what_a_ring_hands_to_threads_of_its_own_is_counted() {
        let file = memory(1 << 20);
        let mut ring = Ring::new().expect("a ring");
        let mut buffer = vec![0; 1 << 20];
        // Linux 6.18 has a thread for every read of such a file; where it is read in place, there is none to count.
        let before = Workers::now();
        let clock = || thread::cpu_clock(thread::current_tid()).expect("clock");
        let begun = clock();
        for _ in 0..50 {
            ring.plain(file.as_fd(), Some(0), &mut Block::Into(&mut buffer)).expect("read");
        }
        let own = clock().saturating_sub(begun);
        let all = own + Workers::now().since(&before);
        let begun = clock();
        for _ in 0..50 {
            plain(file.as_fd(), Some(0), &mut Block::Into(&mut buffer)).expect("read");
        }
        let plainly = clock().saturating_sub(begun);
        // The same copies: a figure without the workers was a tenth of it.
        assert!(all > plainly / 2, "{all:?} in all, {own:?} of it its own, and {plainly:?} by pread");
    }
}
