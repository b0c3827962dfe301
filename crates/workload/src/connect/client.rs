//! The side that connects and asks.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use haul_host::clock;
use haul_host::probe::ports;
use haul_host::socket::{self, ConnectPlan, Flags, Interest, Opening, Requested};
use haul_stats::MonoNanos;

use super::{CONNECT_LIMIT, LOOK, PATIENCE, Seen, turn};
use crate::engine::{Manner, Moved, Place, Work};
use crate::error::Result;
use crate::exchange::book::Page;
use crate::exchange::schedule::Schedule;
use crate::exchange::{Sizes, make_buffers, send_run, with_buffers};

/// A connection at the client.
struct Open {
    stream: TcpStream,
    peer: SocketAddr,
    start: MonoNanos,
    since: MonoNanos,
    unsent: usize,
    got: usize,
}

/// Why there is no connection, and what to do about it.
fn why_not(peer: SocketAddr, error: &io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::AddrNotAvailable {
        return io::Error::new(error.kind(), format!("cannot connect to {peer}: {error}"));
    }
    let range = ports::ephemeral_range();
    let range =
        range.map_or_else(|_| String::new(), |range| format!(" of {}-{}", range.start(), range.end()));
    let text = format!(
        "no local port{range} is free for a connection to {peer}, because closed connections hold theirs for a minute: \
         widen net.ipv4.ip_local_port_range, set net.ipv4.tcp_tw_reuse=1, close by a reset, use more --flows, or \
         shorten --time"
    );
    io::Error::new(error.kind(), text)
}

/// One flow of the side that asks.
pub(super) struct Connecting {
    sizes: Sizes,
    /// How to connect, by port of the server's.
    plans: Vec<(SocketAddr, ConnectPlan)>,
    opened: u64,
    page: Page,
    seen: Seen,
    /// The times of an open loop.
    next: Option<Schedule>,
    /// When the last transaction ended, which is when the next one of a closed loop begins.
    ready: MonoNanos,
    open: Option<Open>,
    waits: bool,
    turned: bool,
    ending: bool,
    patience: Option<MonoNanos>,
}

impl Connecting {
    pub(super) fn new(
        sizes: Sizes,
        peers: &[SocketAddr],
        reset: bool,
        place: Place,
        page: Page,
        seen: Seen,
    ) -> Result<Self> {
        make_buffers(sizes.response, sizes.request)?;
        let waits = place.manner == Manner::Block;
        let opening = Opening { nonblocking: !waits, reset_on_close: reset };
        // Each option costs a call for each connection, and this one is for those that last.
        let requested = Requested { user_timeout: None, ..seen.requested.clone() };
        Ok(Self {
            sizes,
            plans: peers
                .iter()
                .map(|&peer| Ok((peer, ConnectPlan::new(peer, None, &requested, opening)?)))
                .collect::<Result<_>>()?,
            opened: 0,
            page,
            seen,
            next: None,
            ready: MonoNanos(0),
            open: None,
            waits,
            turned: false,
            ending: false,
            patience: None,
        })
    }

    /// Opens the next connection, where it is time.
    fn open(&mut self) -> io::Result<()> {
        let (start, since) = match &mut self.next {
            None => (self.ready, self.ready),
            Some(next) => {
                let now = clock::now();
                if next.next() > now {
                    return Ok(());
                }
                let due = next.next();
                next.advance();
                (due, now)
            }
        };
        let Some((peer, plan)) = self.plans.get(turn(self.opened, self.plans.len())) else { return Ok(()) };
        self.page.begin(1);
        let stream = plan.open().map_err(|error| why_not(*peer, &error))?;
        self.opened += 1;
        self.open = Some(Open { stream, peer: *peer, start, since, unsent: self.sizes.request, got: 0 });
        self.turned = !self.waits;
        Ok(())
    }

    /// Sends what is left of the request; whether it is all with the kernel.
    #[inline]
    fn ask(&mut self) -> io::Result<bool> {
        let Some(open) = &mut self.open else { return Ok(false) };
        if open.unsent == 0 {
            return Ok(true);
        }
        let sent = with_buffers(|_, outbox| {
            send_run(open.stream.as_fd(), &outbox[..self.sizes.request], open.unsent)
        });
        let connected = open.unsent < self.sizes.request;
        match sent {
            Ok(sent) => open.unsent -= sent,
            // Time to look at the clock.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if connected => return Err(error),
            Err(error) => return Err(why_not(open.peer, &error)),
        }
        if open.unsent == self.sizes.request && clock::now().since(open.since) > CONNECT_LIMIT {
            return Err(why_not(open.peer, &io::ErrorKind::TimedOut.into()));
        }
        Ok(open.unsent == 0)
    }
}

impl Work for Connecting {
    const LEADS: bool = true;
    const NAME: &'static str = "connect";
    const OWN_TABLE: bool = true;
    const NUDGE: Option<Duration> = Some(LOOK);

    fn begin(&mut self, _fd: BorrowedFd<'_>) -> io::Result<()> {
        self.next = self.page.schedule();
        self.ready = clock::now();
        Ok(())
    }

    #[inline]
    fn step(&mut self, _fd: BorrowedFd<'_>) -> io::Result<Moved> {
        if self.open.is_none() {
            if self.ending {
                return Ok(Moved::Units(0));
            }
            self.open()?;
        }
        let waiting = self.open.as_ref().is_some_and(|open| open.unsent == 0);
        if !self.ask()? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if !waiting && !self.waits {
            // The response takes a while: epoll will tell.
            return Ok(Moved::Units(0));
        }
        let Some(open) = &mut self.open else { return Ok(Moved::Units(0)) };
        let rest = self.sizes.response - open.got;
        let received =
            with_buffers(|inbox, _| socket::recv(open.stream.as_fd(), &mut inbox[..rest], Flags::WAITALL))?;
        if received == 0 {
            let text = "the server closed the connection before it had answered";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        open.got += received;
        if open.got < self.sizes.response {
            return Ok(Moved::Units(0));
        }
        let start = open.start;
        self.seen.look(&open.stream);
        self.open = None;
        self.ready = clock::now();
        self.page.complete(start, self.ready);
        Ok(Moved::Units(1))
    }

    fn interest(&self) -> Interest {
        match &self.open {
            Some(open) if open.unsent > 0 => Interest::WRITE,
            // Of the socket that stands for the flow as well, so that it need not be told apart.
            _ => Interest::READ,
        }
    }

    #[inline]
    fn due(&self) -> Option<MonoNanos> {
        if self.open.is_some() || self.ending {
            return None;
        }
        Some(self.next.as_ref().map_or(self.ready, Schedule::next))
    }

    #[inline]
    fn idle(&self) -> bool {
        self.open.is_none()
    }

    fn turned(&mut self) -> bool {
        std::mem::take(&mut self.turned)
    }

    fn own_fd(&self) -> Option<BorrowedFd<'_>> {
        self.open.as_ref().map(|open| open.stream.as_fd())
    }

    fn wind_up(&mut self) -> bool {
        self.ending = true;
        if self.open.is_none() {
            return true;
        }
        let now = clock::now();
        now >= *self.patience.get_or_insert(now.after(PATIENCE))
    }

    fn leave(&mut self, _fd: BorrowedFd<'_>) {
        self.open = None;
    }
}
