//! Sending without a copy: `MSG_ZEROCOPY`, and the notices that say when a buffer is free again.
//!
//! The kernel numbers the send calls of a socket that carried the flag, from 0, and queues a notice for each, in ranges
//! where it can. Until then the buffer must not be written: it is what is on the wire. A notice also tells whether the
//! kernel copied the bytes after all, as it does for every packet that stays on this host.
//!
//! Kernel: `Documentation/networking/msg_zerocopy.rst`; include/uapi/linux/errqueue.h.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crate::error::{Named as _, Result};
use crate::sys;

/// `SO_EE_ORIGIN_ZEROCOPY` and `SO_EE_CODE_ZEROCOPY_COPIED` of include/uapi/linux/errqueue.h.
const ORIGIN: u8 = 5;
const COPIED: u8 = 1;

/// What one notice says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completed {
    /// Number of the first send call it is about.
    pub first: u32,
    /// Number of the last; numbers wrap at 2^32.
    pub last: u32,
    /// Whether the kernel copied the bytes after all.
    pub copied: bool,
}

impl Completed {
    /// How many calls it is about.
    #[must_use]
    pub fn calls(&self) -> u32 {
        self.last.wrapping_sub(self.first).wrapping_add(1)
    }
}

/// Lets `stream` send without a copy.
pub fn enable_zerocopy(socket: impl AsFd) -> Result<()> {
    let set = sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1);
    set.named("set", || "SO_ZEROCOPY".into()).map_err(|error| match error.errno() {
        Some(libc::ENOPROTOOPT | libc::EOPNOTSUPP) => {
            error.with_hint("this kernel does not send without a copy: use --send-with write")
        }
        _ => error,
    })
}

/// `send(2)` with `MSG_ZEROCOPY`. [`lacks_room`] tells its own failure from that of the connection.
#[inline]
pub fn send_zerocopy(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    sys::send(fd, bytes, libc::MSG_NOSIGNAL | libc::MSG_ZEROCOPY)
}

/// Whether a send failed for want of room: for notices not yet read (`net.core.optmem_max`), or for locked memory
/// (`ulimit -l`).
#[must_use]
pub fn lacks_room(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOBUFS)
}

/// The next notice, without waiting; `None` where there is none.
pub fn completion(fd: BorrowedFd<'_>) -> io::Result<Option<Completed>> {
    loop {
        match sys::next_error(fd) {
            Ok(Some(entry)) if entry.origin == ORIGIN && entry.errno == 0 => {
                let copied = entry.code & COPIED != 0;
                return Ok(Some(Completed { first: entry.info, last: entry.data, copied }));
            }
            // Something else the kernel had to say of this socket: an ICMP error, a time stamp nobody asked for.
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

/// Waits for a notice, or for the socket to fail; false where `timeout` passed or a signal came first.
pub fn await_notice(fd: BorrowedFd<'_>, timeout: Duration) -> io::Result<bool> {
    match sys::wait_for(fd, 0, timeout) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        other => other,
    }
}
