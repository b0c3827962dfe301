//! Receiving without a copy: `TCP_ZEROCOPY_RECEIVE` puts the pages a NIC wrote into this process's memory.
//!
//! Only whole pages can be: payload that begins at a page and fills it, as with header split and an MTU of a page and
//! the headers (4148 for 4 KiB, IPv4 and time stamps). The rest is copied. So a step yields, in the order of the
//! stream, some bytes that are mapped and some that are in the caller's buffer:
//!
//! ```text
//! getsockopt: pages of the step before go ─▶ whole pages come ─▶ less than a page after them into the buffer
//!       recv: what the kernel says cannot be mapped next, into the rest of the buffer; or, where there was nothing,
//!             the socket's word on whether that is the end
//! ```
//!
//! Kernel: `tcp_zerocopy_receive` in net/ipv4/tcp.c, and its selftest `tcp_mmap.c`. It never waits: see
//! [`await_readable`](super::await_readable).

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU64;

use haul_stats::ByteCount;

use crate::error::{Named as _, Result};
use crate::sys::{self, Taken, Window};

/// What a step took from the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mapped {
    /// Bytes that are mapped, see [`MappedReceive::words`].
    pub mapped: usize,
    /// Bytes that follow those, at the start of the buffer.
    pub copied: usize,
    /// Nothing came because the peer has closed its side.
    pub end: bool,
}

/// A receiver that maps what can be mapped.
#[derive(Debug)]
pub struct MappedReceive {
    window: Window,
    page: usize,
    /// An error that came with the last bytes, for the step after them.
    failed: Option<io::Error>,
}

impl MappedReceive {
    /// A receiver that maps up to `span` at a time, rounded up to whole pages, of streams like that of the TCP socket
    /// `fd`.
    pub fn new(fd: BorrowedFd<'_>, span: ByteCount) -> Result<Self> {
        let page = sys::page_size();
        let object = || format!("{span} of a TCP stream");
        let length = span.as_usize().and_then(|span| span.max(1).checked_next_multiple_of(page));
        // The kernel counts in 32 bits.
        let length = length.filter(|length| u32::try_from(*length).is_ok());
        let too_long = || io::Error::from_raw_os_error(libc::ENOMEM);
        let length = length.ok_or_else(too_long).named("map", object)?;
        let window = Window::new(fd, length).named("map", object).map_err(|error| match error.errno() {
            Some(libc::ENODEV | libc::EINVAL) => {
                error.with_hint("this kernel does not map what it receives here: use --recv-with read")
            }
            _ => error,
        })?;
        Ok(Self { window, page, failed: None })
    }

    /// Takes what has arrived, without waiting: [`io::ErrorKind::WouldBlock`] where that is nothing. What the step
    /// before mapped is let go. `buffer` must have room for a byte, and a page of it is put to use even where all else
    /// is mapped.
    #[inline]
    pub fn step(&mut self, fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Mapped> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if buffer.is_empty() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // Where all that has arrived fits into what the kernel is offered here, it copies and maps nothing; less than a
        // page it could not map anyway.
        let offered = buffer.len().min(self.page - 1);
        let taken = match self.window.receive(fd, &mut buffer[..offered]) {
            Ok(taken) => taken,
            // The end, or so the kernel says; recv knows.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Taken::default(),
            Err(error) => return Err(error),
        };
        let Taken { mapped, mut copied, unmappable, error } = taken;
        if error != 0 {
            let error = io::Error::from_raw_os_error(error);
            if mapped + copied == 0 {
                return Err(error);
            }
            self.failed = Some(error);
        }
        let nothing = mapped + copied == 0;
        let room = buffer.len() - copied;
        let wanted = if unmappable > 0 { unmappable.min(room) } else { usize::from(nothing) * offered };
        if wanted > 0 {
            match sys::recv(fd, &mut buffer[copied..copied + wanted], libc::MSG_DONTWAIT) {
                Ok(0) if nothing => return Ok(Mapped { end: true, ..Mapped::default() }),
                Ok(received) => copied += received,
                Err(error) if nothing => return Err(error),
                // Whatever it is, the next step meets it too.
                Err(_) => {}
            }
        }
        Ok(Mapped { mapped, copied, end: false })
    }

    /// What the last step mapped, eight bytes to a word in memory order ([`u64::to_ne_bytes`]). Atomic, because a
    /// sender on this host that does not copy either may still write to the very same pages.
    #[must_use]
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        self.window.words()
    }
}
