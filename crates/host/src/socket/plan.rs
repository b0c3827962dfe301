//! A connection prepared once and opened many times, as a test of connection set-up does.
//!
//! ```text
//! new:   addresses and options made ready; one socket gets them, so that a refusal comes here, with its remedy
//! open:  socket(2), a setsockopt(2) for each option, bind(2) where an address was given, connect(2)
//! ```
//!
//! [`ConnectPlan::open`] takes no memory and returns the system call's own error: the caller acts on `EADDRNOTAVAIL`
//! (no port is left for this peer, see [`crate::probe::ports`]) and counts the others.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::requested::{Requested, Wish};
use super::{open, why_not_bound};
use crate::error::{Named as _, Result};

/// How each connection is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Opening {
    /// Do not wait, now or later: a connection under way counts as opened, and is writable (or has an error) when done.
    pub nonblocking: bool,
    /// Close with a reset, see [`reset_on_close`](super::reset_on_close()).
    pub reset_on_close: bool,
}

/// What every connection to one peer has in common, made ready.
#[derive(Debug, Clone)]
pub struct ConnectPlan {
    domain: Domain,
    kind: Type,
    peer: SockAddr,
    local: Option<SockAddr>,
    wishes: Vec<Wish>,
}

impl ConnectPlan {
    /// A plan for TCP connections to `peer`. With `local`, they come from that address; its port 0 leaves the port to
    /// the kernel, which then needs it to be free for this peer only.
    pub fn new(
        peer: SocketAddr,
        local: Option<SocketAddr>,
        requested: &Requested,
        opening: Opening,
    ) -> Result<Self> {
        let domain = Domain::for_address(peer);
        let mut wishes = requested.wishes(domain, Type::STREAM);
        if opening.reset_on_close {
            wishes.push(reset_on_close());
        }
        if let Some(local) = local {
            wishes.push(if local.port() == 0 {
                let option = (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT);
                Wish::switch(option, "IP_BIND_ADDRESS_NO_PORT")
            } else {
                // The connection before this one may be in TIME_WAIT with the same port.
                Wish::switch((libc::SOL_SOCKET, libc::SO_REUSEADDR), "SO_REUSEADDR")
            });
        }
        let trial = open(peer, Type::STREAM)?;
        wishes.iter().try_for_each(|wish| wish.set(trial.as_fd()))?;
        if let Some(local) = local {
            let bound = trial.bind(&local.into()).named("connect from", || format!("TCP {local}"));
            bound.map_err(|error| why_not_bound(error, local))?;
        }
        let kind = if opening.nonblocking { Type::STREAM.nonblocking() } else { Type::STREAM };
        Ok(Self { domain, kind: kind.cloexec(), peer: peer.into(), local: local.map(SockAddr::from), wishes })
    }

    /// Opens a connection. The error is the system call's own. A connect that a signal ends is none: it goes on, and the first
    /// send waits for it.
    #[inline]
    pub fn open(&self) -> io::Result<TcpStream> {
        let socket = Socket::new_raw(self.domain, self.kind, Some(Protocol::TCP))?;
        for wish in &self.wishes {
            wish.set_raw(socket.as_fd())?;
        }
        if let Some(local) = &self.local {
            socket.bind(local)?;
        }
        match socket.connect(&self.peer) {
            Err(error) if !matches!(error.raw_os_error(), Some(libc::EINPROGRESS | libc::EINTR)) => {
                Err(error)
            }
            _ => Ok(socket.into()),
        }
    }
}

/// `SO_LINGER` with no time.
pub(super) fn reset_on_close() -> Wish {
    // struct linger: on, and the seconds.
    let [on, seconds] = [1_i32, 0].map(i32::to_ne_bytes);
    Wish::bytes((libc::SOL_SOCKET, libc::SO_LINGER), &[on, seconds].concat(), "set", "SO_LINGER")
}
