//! Many datagrams in one system call, from and to memory that is there from the start.
//!
//! Each message has a place of its own that begins at a cache line. A call is the system call and nothing else, but for
//! a length that recvmmsg(2) shortens and the next call needs whole.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use haul_stats::ByteCount;

use crate::error::{Named as _, Result};
use crate::socket::{Flags, PageBuffer};
use crate::sys::{self, Batch};

/// A cache line, or more where lines are shorter: two messages never share one.
const LINE: usize = 64;

fn batch(count: usize, size: usize) -> Result<Batch> {
    let object = || format!("for {count} messages of {}", ByteCount(size as u64));
    let (count, stride) = (count.max(1), size.max(1).checked_next_multiple_of(LINE).unwrap_or(usize::MAX));
    // What overflows is too much to map, which is what the error says then.
    let payload = PageBuffer::new(ByteCount(count.saturating_mul(stride) as u64))?;
    Batch::new(payload.into_mapping(), count, size, stride).named("make room", object)
}

/// Datagrams to send together.
#[derive(Debug)]
pub struct SendBatch(Batch);

impl SendBatch {
    /// Room for `count` messages (at least one) of `size` bytes, all zero.
    pub fn new(count: usize, size: usize) -> Result<Self> {
        batch(count, size).map(Self)
    }

    /// How many messages there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.count()
    }

    /// A message, to write; none where the number is past the last.
    #[inline]
    pub fn message_mut(&mut self, index: usize) -> &mut [u8] {
        self.0.message_mut(index)
    }

    /// `sendmmsg(2)`: sends the messages of `range`, at most 1024, on a connected socket and returns how many of them
    /// the kernel took; it may be fewer, and then the next call meets the reason.
    #[inline]
    pub fn send(&mut self, fd: BorrowedFd<'_>, range: Range<usize>, flags: Flags) -> io::Result<usize> {
        self.0.send(fd, range, libc::MSG_NOSIGNAL | flags.0)
    }
}

/// A datagram, or several that the kernel joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received<'a> {
    /// What arrived, as far as there was room for it.
    pub bytes: &'a [u8],
    /// Whether there was more than room for it.
    pub truncated: bool,
    /// With `UDP_GRO`, the size of the datagrams in `bytes` (the last may be shorter); `None` is one datagram.
    pub segment: Option<u16>,
}

impl<'a> Received<'a> {
    fn new(arrived: sys::Arrived<'a>) -> Self {
        Self { bytes: arrived.bytes, truncated: arrived.truncated, segment: arrived.segment }
    }

    /// The datagrams, one by one. One that is empty is there too.
    #[inline]
    pub fn datagrams(self) -> impl Iterator<Item = &'a [u8]> {
        let size = self.segment.map_or(self.bytes.len(), usize::from).max(1);
        let empty = self.bytes.is_empty().then_some(self.bytes);
        empty.into_iter().chain(self.bytes.chunks(size))
    }
}

/// Datagrams to receive together.
#[derive(Debug)]
pub struct RecvBatch(Batch);

impl RecvBatch {
    /// Room for `count` messages (at least one) of up to `size` bytes.
    pub fn new(count: usize, size: usize) -> Result<Self> {
        batch(count, size).map(Self)
    }

    /// How many messages there is room for.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.count()
    }

    /// `recvmmsg(2)`: returns how many messages it filled. On a blocking socket it waits for all there is room for;
    /// with [`Flags::WAITFORONE`] for the first, with [`Flags::DONTWAIT`] for none.
    #[inline]
    pub fn recv(&mut self, fd: BorrowedFd<'_>, flags: Flags) -> io::Result<usize> {
        self.0.receive(fd, flags.0)
    }

    /// What the last receive filled.
    #[inline]
    pub fn messages(&self) -> impl Iterator<Item = Received<'_>> {
        self.0.arrived().map(Received::new)
    }
}

/// `recvmsg(2)`: one datagram, or several that the kernel joined, with their size.
#[inline]
pub fn recv_segments<'a>(fd: BorrowedFd<'_>, buffer: &'a mut [u8], flags: Flags) -> io::Result<Received<'a>> {
    sys::receive_message(fd, buffer, flags.0).map(Received::new)
}
