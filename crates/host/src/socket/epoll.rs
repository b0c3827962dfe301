//! Waiting for sockets: for many at once by epoll(7), level-triggered, for one by poll(2).

use std::io;
use std::ops::BitOr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::error::{Named as _, Result};
use crate::sys;

/// What to wait for on a descriptor. Its end and its errors are always waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interest(u32);

impl Interest {
    /// Data to read, a connection to accept, or the end.
    pub const READ: Self = Self(libc::EPOLLIN.cast_unsigned());
    /// Room to write.
    pub const WRITE: Self = Self(libc::EPOLLOUT.cast_unsigned());
    /// Nothing but end and errors.
    pub const NONE: Self = Self(0);
}

impl BitOr for Interest {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// One descriptor that is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The token it was added with.
    pub token: u64,
    /// A read would not wait: there are data, a connection, the end or an error.
    pub readable: bool,
    /// A write would not wait: there is room, or an error.
    pub writable: bool,
    /// The connection has failed or is closed in both directions.
    pub closed: bool,
}

/// Waits until a read of `fd` would not: for data, a connection, the end or an error; false where `timeout` passed or a
/// signal came first.
#[inline]
pub fn await_readable(fd: BorrowedFd<'_>, timeout: Duration) -> io::Result<bool> {
    match sys::wait_for(fd, libc::POLLIN, timeout) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        other => other,
    }
}

/// A set of descriptors and the room for their events.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
    events: Vec<sys::EpollEvent>,
}

impl Epoll {
    /// An empty set that reports up to `capacity` events (at least one) per wait.
    pub fn new(capacity: usize) -> Result<Self> {
        let fd = sys::epoll_create().named("make", || "an epoll instance".into())?;
        Ok(Self { fd, events: vec![sys::EpollEvent { events: 0, u64: 0 }; capacity.max(1)] })
    }

    /// Adds a descriptor; its events carry `token`. Closing it takes it out.
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> Result<()> {
        self.change(libc::EPOLL_CTL_ADD, fd, token, interest)
            .named("add to epoll", || format!("descriptor {token}"))
    }

    /// Changes what to wait for.
    pub fn modify(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> Result<()> {
        let changed = self.change(libc::EPOLL_CTL_MOD, fd, token, interest);
        changed.named("change in epoll", || format!("descriptor {token}"))
    }

    /// Takes a descriptor out.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> Result<()> {
        let removed = self.change(libc::EPOLL_CTL_DEL, fd, 0, Interest::NONE);
        removed.named("remove from epoll", || "a descriptor".into())
    }

    fn change(&self, operation: i32, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        sys::epoll_change(self.fd.as_fd(), operation, fd, interest.0, token)
    }

    /// Waits until something is ready, for `timeout` at most: exactly that since Linux 5.11, rounded up to whole
    /// milliseconds before. A signal ends the wait early, with no events.
    pub fn wait(&mut self, timeout: Duration) -> Result<impl Iterator<Item = Event> + '_> {
        let count = match sys::epoll_wait(self.fd.as_fd(), &mut self.events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            other => other,
        };
        let count = count.named("wait for", || "the descriptors of an epoll instance".into())?;
        Ok(self.events[..count].iter().map(|event| {
            let has = |bits: libc::c_int| event.events & bits.cast_unsigned() != 0;
            Event {
                token: event.u64,
                readable: has(libc::EPOLLIN | libc::EPOLLHUP | libc::EPOLLERR | libc::EPOLLRDHUP),
                writable: has(libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR),
                closed: has(libc::EPOLLHUP | libc::EPOLLERR),
            }
        }))
    }
}
