//! TCP sockets with what was asked for, and what the kernel made of it.
//!
//! Three things are kept apart: [`Requested`] is what the user set, [`SocketFacts`] what the socket has (a buffer is
//! clamped in silence, case by case), [`TcpFacts`] what the kernel counted on the connection. The hot path is
//! [`send()`] and [`recv()`]: one system call each and nothing else.
//!
//! Kernel: socket(7), tcp(7), `net/core/sock.c` (`SO_SNDBUF` doubles what it is given, after the cap of
//! `net.core.wmem_max`).

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use haul_stats::ByteCount;
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::error::{HostError, Named as _, Result};
use crate::sys;

mod buffer;
mod epoll;
mod facts;
mod file;
pub mod udp;
mod zerocopy;

pub use buffer::PageBuffer;
pub use epoll::{Epoll, Event, Interest};
pub use facts::{Clamp, SocketFacts, TcpFacts};
pub use file::{MemoryFile, Pipe, sendfile};
pub use zerocopy::{Completed, await_notice, completion, enable_zerocopy, lacks_room, send_zerocopy};

/// What the user asked of each socket; what is unset is left to the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Requested {
    /// Send buffer, as the application sees it (the kernel reserves twice that).
    pub sndbuf: Option<ByteCount>,
    /// Receive buffer, likewise.
    pub rcvbuf: Option<ByteCount>,
    /// `TCP_NODELAY`: send small messages at once.
    pub nodelay: bool,
    /// Congestion control by the kernel's name for it.
    pub cc: Option<String>,
    /// `TCP_MAXSEG`: the largest segment, before TCP's own options are taken from it.
    pub mss: Option<u32>,
    /// `IP_TOS` or `IPV6_TCLASS`: DSCP in the upper six bits.
    pub tos: Option<u8>,
    /// `TCP_USER_TIMEOUT`: give up on a peer that acknowledges nothing for so long.
    pub user_timeout: Option<Duration>,
}

/// Connections the kernel may hold for us before we accept them: more than the flows of any one session, and capped by
/// `net.core.somaxconn` (4096 by default) anyway.
const BACKLOG: i32 = 4096;

/// Listens on `address`; accepted connections inherit what is requested. An IPv6 wildcard takes IPv4 too.
pub fn listen(address: SocketAddr, requested: &Requested) -> Result<TcpListener> {
    let object = || format!("TCP {address}");
    let socket = tcp(address)?;
    let prepared = || {
        if address.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        // Connections of an earlier server in TIME_WAIT would otherwise keep the port for a minute.
        socket.set_reuse_address(true)
    };
    prepared().named("set the options of a socket for", object)?;
    requested.apply(&socket)?;
    let listening =
        socket.bind(&address.into()).and_then(|()| socket.listen(BACKLOG)).named("listen on", object);
    listening.map_err(|error| match error.errno() {
        Some(libc::EADDRINUSE) => {
            error.with_hint("another process listens there: stop it, or choose another port")
        }
        Some(libc::EADDRNOTAVAIL) => {
            error.with_hint("the address is not one of this host, or of this network namespace")
        }
        Some(libc::EACCES) => error.with_hint("ports below 1024 take root: choose a higher one"),
        _ => error,
    })?;
    Ok(socket.into())
}

/// Connects to `address`, waiting for `timeout` at most. The stream is blocking.
pub fn connect(address: SocketAddr, requested: &Requested, timeout: Duration) -> Result<TcpStream> {
    let socket = tcp(address)?;
    // Before connecting: the window scale is fixed by the receive buffer at that moment.
    requested.apply(&socket)?;
    let connected = socket.connect_timeout(&address.into(), timeout);
    connected.named("connect to", || format!("TCP {address}")).map_err(|error| match &error {
        HostError::Os { source, .. } if source.kind() == io::ErrorKind::TimedOut => {
            error.with_hint("no answer: is the address right, and does a firewall let the port through?")
        }
        _ => match error.errno() {
            Some(libc::ECONNREFUSED) => {
                error.with_hint("nothing listens there: start 'haul serve' on that host")
            }
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => {
                error.with_hint("no route leads there: check the address")
            }
            Some(libc::EADDRNOTAVAIL) => error
                .with_hint("no local port is free: widen net.ipv4.ip_local_port_range, or use fewer flows"),
            _ => error,
        },
    })?;
    Ok(socket.into())
}

fn tcp(address: SocketAddr) -> Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP));
    socket.named("open a socket for", || format!("TCP {address}")).map_err(|error| match error.errno() {
        Some(libc::EMFILE) => error.with_hint("too many open files: raise 'ulimit -n', or use fewer flows"),
        _ => error,
    })
}

impl Requested {
    /// Sets everything requested on an accepted connection, which took over only what its listener had.
    pub fn apply_to(&self, connection: &impl std::os::fd::AsFd) -> Result<()> {
        self.apply(&SockRef::from(connection))
    }

    /// Sets everything requested on an open socket. Buffers are clamped by the kernel in silence:
    /// [`SocketFacts::clamped`] tells.
    fn apply(&self, socket: &Socket) -> Result<()> {
        if let Some(size) = self.sndbuf {
            socket
                .set_send_buffer_size(buffer_size(size))
                .named("set the send buffer to", || size.to_string())?;
        }
        if let Some(size) = self.rcvbuf {
            socket
                .set_recv_buffer_size(buffer_size(size))
                .named("set the receive buffer to", || size.to_string())?;
        }
        if self.nodelay {
            socket.set_tcp_nodelay(true).named("set", || "TCP_NODELAY".into())?;
        }
        if let Some(name) = &self.cc {
            set_congestion_control(socket, name)?;
        }
        if let Some(mss) = self.mss {
            socket.set_tcp_mss(mss).named("set the segment size to", || mss.to_string())?;
        }
        if let Some(tos) = self.tos {
            set_tos(socket, tos)?;
        }
        if let Some(length) = self.user_timeout {
            set_user_timeout(socket, length)?;
        }
        Ok(())
    }
}

/// The largest size that reaches the kernel's own clamp: more than that is negative there.
fn buffer_size(size: ByteCount) -> usize {
    const LARGEST: u64 = i32::MAX as u64;
    size.0.min(LARGEST) as usize
}

fn set_congestion_control(socket: &Socket, name: &str) -> Result<()> {
    let list = |key: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{key}"));
        text.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
    };
    let set = socket.set_tcp_congestion(name.as_bytes());
    set.named("set the congestion control to", || name.to_owned()).map_err(|error| match error.errno() {
        Some(libc::ENOENT) => {
            error.with_hint(format!("this kernel has {}", list("tcp_available_congestion_control")))
        }
        Some(libc::EPERM) => error.with_hint(format!(
            "without CAP_NET_ADMIN only these are allowed: {}; net.ipv4.tcp_allowed_congestion_control widens it",
            list("tcp_allowed_congestion_control")
        )),
        _ => error,
    })
}

/// An IPv6 socket may carry IPv4 (an accepted connection of a wildcard listener): then the IPv4 option decides.
fn set_tos(socket: &Socket, tos: u8) -> Result<()> {
    let value = || format!("{tos:#04x}");
    if socket.domain().named("read the family of", || "a TCP socket".into())? == Domain::IPV6 {
        socket.set_tclass_v6(tos.into()).named("set the traffic class to", value)?;
    }
    socket.set_tos_v4(tos.into()).named("set the type of service to", value)
}

/// Lets a connection die when the peer acknowledges nothing for `length`, also while data wait to be sent.
pub fn set_user_timeout(socket: &impl std::os::fd::AsFd, length: Duration) -> Result<()> {
    let set = SockRef::from(socket).set_tcp_user_timeout(Some(length));
    set.named("set TCP_USER_TIMEOUT to", || format!("{} ms", length.as_millis()))
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
    u32::try_from(cpu as isize).map_err(|_| io::Error::from_raw_os_error(libc::ENODATA))
}

/// How a call of [`recv()`] behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(libc::c_int);

impl Flags {
    /// Plain.
    pub const NONE: Self = Self(0);
    /// Do not wait, whatever the socket's mode.
    pub const DONTWAIT: Self = Self(libc::MSG_DONTWAIT);
    /// TCP: drop the bytes in the kernel instead of copying them; the buffer stays as it was and gives the length only.
    pub const DISCARD: Self = Self(libc::MSG_TRUNC);
    /// Wait until the buffer is full.
    pub const WAITALL: Self = Self(libc::MSG_WAITALL);

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
    sys::send(fd, bytes, libc::MSG_NOSIGNAL)
}

/// `recv(2)`: takes bytes from the kernel; 0 is the peer's orderly end. The error is the system call's own.
#[inline]
pub fn recv(fd: BorrowedFd<'_>, buffer: &mut [u8], flags: Flags) -> io::Result<usize> {
    sys::recv(fd, buffer, flags.0)
}
