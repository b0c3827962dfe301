//! Sockets with what was asked for, and what the kernel made of it: TCP here, UDP in [`udp`].
//!
//! Three things are kept apart: [`Requested`] is what the user set, [`SocketFacts`] what the socket has (a buffer is
//! clamped in silence, case by case), [`TcpFacts`] what the kernel counted on the connection. The hot path is
//! [`send()`], [`recv()`], [`accept()`], [`ConnectPlan::open`] and the batches of [`udp`]: the system calls they are
//! named for and nothing else, no memory taken, and the error the system call's own, because the caller acts on it.
//!
//! Kernel: socket(7), tcp(7), udp(7), `net/core/sock.c` (`SO_SNDBUF` doubles what it is given, after the cap of
//! `net.core.wmem_max`).

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::error::{HostError, Named as _, Result};
use crate::sys;

mod buffer;
mod epoll;
mod facts;
mod file;
mod mapped;
mod plan;
mod requested;
pub mod udp;
mod zerocopy;

pub use buffer::PageBuffer;
pub use epoll::{Epoll, Event, Interest, await_readable};
pub use facts::{Clamp, SocketFacts, TcpFacts};
pub use file::{Pipe, SourceFile, sendfile};
pub use mapped::{Mapped, MappedReceive};
pub use plan::{ConnectPlan, Opening};
pub use requested::{Requested, set_user_timeout};
pub use zerocopy::{Completed, await_notice, completion, enable_zerocopy, lacks_room, send_zerocopy};

/// Connections the kernel may hold for us before we accept them: more than the flows of any one session, and capped by
/// `net.core.somaxconn` (4096 by default) anyway.
const BACKLOG: i32 = 4096;

/// Listens on `address`; accepted connections inherit what is requested. An IPv6 wildcard takes IPv4 too.
pub fn listen(address: SocketAddr, requested: &Requested) -> Result<TcpListener> {
    let object = || format!("TCP {address}");
    let socket = open(address, Type::STREAM)?;
    // Connections of an earlier server in TIME_WAIT would otherwise keep the port for a minute.
    take_both(&socket, address)
        .and_then(|()| socket.set_reuse_address(true))
        .named("set the options of a socket for", object)?;
    requested.apply_to(&socket)?;
    let listening =
        socket.bind(&address.into()).and_then(|()| socket.listen(BACKLOG)).named("listen on", object);
    listening.map_err(|error| why_not_bound(error, address))?;
    Ok(socket.into())
}

/// Lets an IPv6 wildcard take IPv4 too.
fn take_both(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    if address.is_ipv6() { socket.set_only_v6(false) } else { Ok(()) }
}

fn why_not_bound(error: HostError, address: SocketAddr) -> HostError {
    match error.errno() {
        // A port of the kernel's own choice cannot be another's: there is none left.
        Some(libc::EADDRINUSE) if address.port() == 0 => {
            error.with_hint("no local port is free: widen net.ipv4.ip_local_port_range, or use fewer flows")
        }
        Some(libc::EADDRINUSE) => {
            error.with_hint("another process listens there: stop it, or choose another port")
        }
        Some(libc::EADDRNOTAVAIL) => {
            error.with_hint("the address is not one of this host, or of this network namespace")
        }
        Some(libc::EACCES) => error.with_hint("ports below 1024 take root: choose a higher one"),
        _ => error,
    }
}

/// Connects to `address`, waiting for `timeout` at most. The stream is blocking.
pub fn connect(address: SocketAddr, requested: &Requested, timeout: Duration) -> Result<TcpStream> {
    let socket = open(address, Type::STREAM)?;
    // Before connecting: the window scale is fixed by the receive buffer at that moment.
    requested.apply_to(&socket)?;
    let connected = socket.connect_timeout(&address.into(), timeout);
    connected.named("connect to", || format!("TCP {address}")).map_err(|error| match &error {
        HostError::Os { source, .. } if source.kind() == io::ErrorKind::TimedOut => {
            error.with_hint("no answer: is the address right, and does a firewall let the port through?")
        }
        _ => why_not_connected(error),
    })?;
    Ok(socket.into())
}

fn why_not_connected(error: HostError) -> HostError {
    match error.errno() {
        Some(libc::ECONNREFUSED) => error.with_hint("nothing listens there: start 'haul serve' on that host"),
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => {
            error.with_hint("no route leads there: check the address")
        }
        Some(libc::EADDRNOTAVAIL) => {
            error.with_hint("no local port is free: widen net.ipv4.ip_local_port_range, or use fewer flows")
        }
        _ => error,
    }
}

fn open(address: SocketAddr, kind: Type) -> Result<Socket> {
    let (protocol, name) = match kind {
        Type::STREAM => (Protocol::TCP, "TCP"),
        _ => (Protocol::UDP, "UDP"),
    };
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol));
    socket.named("open a socket for", || format!("{name} {address}")).map_err(|error| match error.errno() {
        Some(libc::EMFILE) => error.with_hint("too many open files: raise 'ulimit -n', or use fewer flows"),
        _ => error,
    })
}

/// `accept4(2)`: the next connection of a listener and the peer's address. The connection has what the listener had of
/// buffers, TCP options and [`linger`](reset_on_close); whether it waits is `nonblocking` alone.
#[inline]
pub fn accept(listener: BorrowedFd<'_>, nonblocking: bool) -> io::Result<(TcpStream, SocketAddr)> {
    let flags = libc::SOCK_CLOEXEC | if nonblocking { libc::SOCK_NONBLOCK } else { 0 };
    let (socket, address) = SockRef::from(&listener).accept4(flags)?;
    // Only a Unix-domain listener has other addresses.
    let address = address.as_socket().ok_or(io::ErrorKind::InvalidInput)?;
    Ok((socket.into(), address))
}

/// Bounds each receive and each send of a blocking socket; it then fails with [`io::ErrorKind::WouldBlock`]. `None` is
/// no bound, and what is below a microsecond counts as one.
pub fn set_timeouts(socket: &impl AsFd, recv: Option<Duration>, send: Option<Duration>) -> Result<()> {
    // The kernel takes zero for no bound.
    let least = |length: Duration| length.max(Duration::from_micros(1));
    let options = SockRef::from(socket);
    let set = options.set_read_timeout(recv.map(least));
    let set = set.and_then(|()| options.set_write_timeout(send.map(least)));
    set.named("bound the waits of", || "a socket".into())
}

/// `SO_LINGER` with no time: closing the socket drops what is unsent and resets the connection, which then leaves no
/// `TIME_WAIT` behind. What a listener has set, its connections have too.
pub fn reset_on_close(socket: &impl AsFd) -> Result<()> {
    plan::reset_on_close().set(socket.as_fd())
}

/// `shutdown(2)`: nothing more is sent, or received, or both; whoever is blocked in a call of it wakes.
pub fn shutdown(fd: BorrowedFd<'_>, how: Shutdown) -> io::Result<()> {
    SockRef::from(&fd).shutdown(how)
}

/// Whether calls on the socket wait.
pub fn set_nonblocking(fd: BorrowedFd<'_>, nonblocking: bool) -> io::Result<()> {
    SockRef::from(&fd).set_nonblocking(nonblocking)
}

/// The CPU that the kernel last took a packet of this connection on (`SO_INCOMING_CPU`).
pub fn incoming_cpu(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let cpu = SockRef::from(&fd).cpu_affinity()?;
    // The kernel says −1 of a socket that has had no packet yet.
    u32::try_from(cpu.cast_signed()).map_err(|_| io::Error::from_raw_os_error(libc::ENODATA))
}

/// How a call of [`recv()`] or [`send_flags`] behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(libc::c_int);

impl Flags {
    /// Plain.
    pub const NONE: Self = Self(0);
    /// Do not wait, whatever the socket's mode.
    pub const DONTWAIT: Self = Self(libc::MSG_DONTWAIT);
    /// TCP: drop the bytes in the kernel instead of copying them; the buffer stays as it was and gives the length only.
    /// UDP: give the datagram's own length, also where the buffer is shorter; the buffer is filled.
    pub const DISCARD: Self = Self(libc::MSG_TRUNC);
    /// Wait until the buffer is full.
    pub const WAITALL: Self = Self(libc::MSG_WAITALL);
    /// Look at what is there and leave it there.
    pub const PEEK: Self = Self(libc::MSG_PEEK);
    /// Batches: wait for the first message only, and take those that have come by then.
    pub const WAITFORONE: Self = Self(libc::MSG_WAITFORONE);

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// `send(2)`: hands bytes to the kernel and returns how many it took. The error is the system call's own, because the
/// caller acts on its kind.
#[inline]
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    send_flags(fd, bytes, Flags::NONE)
}

/// [`send()`] with flags: [`Flags::DONTWAIT`] for a caller that would rather try again than sleep.
#[inline]
pub fn send_flags(fd: BorrowedFd<'_>, bytes: &[u8], flags: Flags) -> io::Result<usize> {
    sys::send(fd, bytes, libc::MSG_NOSIGNAL | flags.0)
}

/// `recv(2)`: takes bytes from the kernel; 0 is the peer's orderly end. The error is the system call's own.
#[inline]
pub fn recv(fd: BorrowedFd<'_>, buffer: &mut [u8], flags: Flags) -> io::Result<usize> {
    sys::recv(fd, buffer, flags.0)
}
