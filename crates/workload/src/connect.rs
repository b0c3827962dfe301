//! Connections of one transaction each: connect, send a request, receive the response, close.
//!
//! ```text
//! client, flow f                        server: listeners for each flow, on ports of its own
//!   socket, its options, connect ─────▶ accept       (of the client's address; others are closed)
//!   send request ─────────────────────▶ recv
//!   recv ◀───────────────────────────── send response
//!   close ────────────────────────────▶ recv the end, close
//! ```
//!
//! The client closes first, so that it is the client that pays for a closed connection: its port stays taken for a minute
//! in `TIME_WAIT` (see [`haul_host::probe::ports`]), and a fast loop to one port of the server runs out of them within a
//! second. With every port of the server's there are all the client's once more, so a flow takes turns among as many as
//! [`LISTENERS`] has for it; both ends count its connections, and so know whose turn it is. A connect that still finds no
//! port ends the flow with what to do about it; one that has to search for long is what [`PortsReport`] is for.
//!
//! A flow's socket in the engine stands for it while it has no connection: the listener at the server, at the client a
//! socket of no protocol, which is never ready. The connection is the work's own, and the engine can neither wait on
//! it, in a blocking worker, nor shut it down: hence the bounded waits.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use haul_host::clock;
use haul_host::probe::{net, ports};
use haul_host::socket::{self, ConnectPlan, Flags, Interest, Opening, Requested, SocketFacts};
use haul_stats::MonoNanos;

use crate::end::{Ends, Ledger, Workers};
use crate::engine::{Engine, Manner, Moved, Place, Work};
use crate::error::{Result, WorkloadError};
use crate::exchange::book::{Book, BookLedger, Page};
use crate::exchange::schedule::Schedule;
use crate::exchange::{ExchangeReport, PortsReport, Sizes, make_buffers, send_run, with_buffers};
use crate::legs::Flows;
use crate::report::{Detail, Role};
use crate::spec::RunSpec;

/// The longest a call blocks, so that the stop flag, or a listener that was shut down, is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// How long a connection may take to be made: as long as a data connection of any other workload.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// How long a client that is to end waits for the response under way.
const PATIENCE: Duration = Duration::from_secs(1);

/// Ports the server listens on for all flows together, where they are fewer: 14,000 connections a minute can be had with
/// each before a connect has to search.
const LISTENERS: usize = 64;

/// Connections in a row to one port.
const TURN: u64 = 16;

/// The server's listeners, as many for each flow, flow by flow. The kernel chooses their ports.
pub(crate) fn listeners(leg: &RunSpec, local: IpAddr) -> Result<Vec<TcpListener>> {
    let address = SocketAddr::new(local.to_canonical(), 0);
    let flows = leg.flows as usize;
    let count = flows * (LISTENERS / flows.max(1)).max(1);
    (0..count).map(|_| Ok(socket::listen(address, &leg.sockets(false))?)).collect()
}

/// The client's side of the flows: where they connect to.
pub(crate) fn flows(leg: &RunSpec, server: IpAddr, ports: &[u16]) -> Result<Flows> {
    let flows = leg.flows as usize;
    if ports.is_empty() || !ports.len().is_multiple_of(flows) {
        let what = format!("the server listens on {} ports for {flows} flows", ports.len());
        return Err(WorkloadError::Invalid(what));
    }
    let stand_in = |error| WorkloadError::os("create", "the socket that stands for a flow", error);
    let sockets = (0..flows).map(|_| UnixDatagram::unbound()).collect::<io::Result<Vec<_>>>();
    let peers = ports.chunks(ports.len() / flows);
    let peers = peers.map(|own| own.iter().map(|&port| SocketAddr::new(server, port)).collect());
    Ok(Flows { peers: peers.collect(), ..sockets.map_err(stand_in)?.into_iter().collect() })
}

/// The server's side: the first listener of each flow stands for it. Only the client is served.
pub(crate) fn served(leg: &RunSpec, listeners: Vec<TcpListener>, client: SocketAddr) -> Flows {
    let each = (listeners.len() / leg.flows.max(1) as usize).max(1);
    let all: Vec<Arc<OwnedFd>> = listeners.into_iter().map(|listener| Arc::new(listener.into())).collect();
    let listeners: Vec<Vec<Arc<OwnedFd>>> = all.chunks(each).map(<[_]>::to_vec).collect();
    Flows {
        sockets: listeners.iter().filter_map(|own| own.first().cloned()).collect(),
        peers: vec![vec![client]; listeners.len()],
        listeners,
    }
}

/// Starts the workers of one end.
pub(crate) fn workers(end: Ends<'_>, flows: Flows) -> Result<Workers> {
    let spec = end.spec;
    let Flows { sockets, peers, listeners } = flows;
    let sizes = Sizes::of(spec)?;
    let facts = Arc::new(OnceLock::new());
    let seen = Seen { facts: Arc::clone(&facts), requested: spec.sockets(end.client) };
    let peer = peers.iter().flatten().next().copied();
    let peer = peer.ok_or_else(|| WorkloadError::Invalid("there is nobody to connect to".to_owned()))?.ip();
    let crew = end.crew(sockets, None, Manner::Block)?;
    if end.role == Role::Responder {
        listeners
            .iter()
            .flatten()
            .try_for_each(|listener| socket::set_timeouts(listener, Some(LOOK), Some(LOOK)))?;
        let engine = Engine::prepare(crew, move |place| {
            let own = listeners.get(place.flow as usize).cloned().unwrap_or_default();
            Answering::new(sizes, peer, own, place, seen.clone())
        })?;
        return Ok(Workers { engine, ledger: Box::new(ServerLedger { facts }), ceiling: None });
    }
    let book = Book::new(spec.flows, spec.pace);
    let ledger = ClientLedger {
        book: BookLedger::new(Arc::clone(&book)),
        facts,
        server: peer,
        each: peers.first().map_or(1, Vec::len) as u64,
        reset: spec.reset,
        retransmits: None,
        ports: None,
    };
    let reset = spec.reset;
    let engine = Engine::prepare(crew, move |place| {
        let own = peers.get(place.flow as usize).map_or(&[][..], Vec::as_slice);
        Connecting::new(sizes, own, reset, place, book.page(place), seen.clone())
    })?;
    Ok(Workers { engine, ledger: Box::new(ledger), ceiling: None })
}

/// Whose turn it is among so many, at a flow's connection number `index`.
#[inline]
fn turn(index: u64, of: usize) -> usize {
    usize::try_from(index / TURN % (of as u64).max(1)).unwrap_or(0)
}

/// What the first connection of an end was like.
#[derive(Debug, Clone)]
struct Seen {
    facts: Arc<OnceLock<SocketFacts>>,
    requested: Requested,
}

impl Seen {
    /// Looks at a connection, where none has been looked at yet.
    #[inline]
    fn look(&self, connection: &TcpStream) {
        if self.facts.get().is_none()
            && let Ok(facts) = SocketFacts::read(connection.as_fd(), &self.requested)
        {
            // Another flow's is as good.
            let _ = self.facts.set(facts);
        }
    }
}

/// The server's side of the report: what a connection really used.
#[derive(Debug)]
struct ServerLedger {
    facts: Arc<OnceLock<SocketFacts>>,
}

impl Ledger for ServerLedger {
    fn detail(&mut self) -> Detail {
        let connection = self.facts.get().cloned();
        Detail::Exchange(Box::new(ExchangeReport { connection, ..ExchangeReport::default() }))
    }
}

/// The client's: its transactions, and what became of its ports.
#[derive(Debug)]
struct ClientLedger {
    book: BookLedger,
    facts: Arc<OnceLock<SocketFacts>>,
    server: IpAddr,
    /// Ports of the server's that a flow takes turns among.
    each: u64,
    reset: bool,
    retransmits: Option<u64>,
    ports: Option<PortsReport>,
}

impl ClientLedger {
    fn ports(&self) -> haul_host::Result<PortsReport> {
        let range = ports::ephemeral_range()?;
        let hold = if self.reset { Duration::ZERO } else { ports::held_for(self.server)? };
        let retransmits = net::tcp_retransmits().ok();
        Ok(PortsReport {
            range: u64::from(range.end().saturating_sub(*range.start())) + 1,
            held: self.book.most_within(hold).div_ceil(self.each),
            retransmits: retransmits.zip(self.retransmits).and_then(|(now, then)| now.checked_sub(then)),
        })
    }
}

impl Ledger for ClientLedger {
    fn open(&mut self) {
        self.book.open();
        self.retransmits = net::tcp_retransmits().ok();
    }

    fn close(&mut self) {
        self.book.close();
        self.ports = self.ports().ok();
    }

    fn detail(&mut self) -> Detail {
        let (connection, ports) = (self.facts.get().cloned(), self.ports);
        Detail::Exchange(Box::new(ExchangeReport { connection, ports, ..self.book.report() }))
    }
}

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
struct Connecting {
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
    fn new(
        sizes: Sizes,
        peers: &[SocketAddr],
        reset: bool,
        place: Place,
        page: Page,
        seen: Seen,
    ) -> Result<Self> {
        make_buffers(sizes.response, sizes.request)?;
        let waits = place.manner == Manner::Block;
        let opening = Opening { nonblocking: !waits, reset_on_close: reset, timeout: waits.then_some(LOOK) };
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

/// A connection at the server.
struct Taken {
    stream: TcpStream,
    /// Bytes of the request that have come.
    got: usize,
    /// Bytes of the response that the kernel has not taken.
    owed: usize,
}

/// One flow of the side that answers.
struct Answering {
    sizes: Sizes,
    client: IpAddr,
    listeners: Vec<Arc<OwnedFd>>,
    /// Which of them the next connection comes to.
    at: usize,
    /// How many of them epoll knows; the first it knows as the flow's own.
    known: usize,
    accepted: u64,
    seen: Seen,
    taken: Option<Taken>,
    waits: bool,
    turned: bool,
}

impl Answering {
    fn new(
        sizes: Sizes,
        client: IpAddr,
        listeners: Vec<Arc<OwnedFd>>,
        place: Place,
        seen: Seen,
    ) -> Result<Self> {
        make_buffers(sizes.request, sizes.response)?;
        let (client, waits) = (client.to_canonical(), place.manner == Manner::Block);
        if !waits {
            let set = |listener: &Arc<OwnedFd>| socket::set_nonblocking(listener.as_fd(), true);
            let set = listeners.iter().try_for_each(set);
            set.map_err(|error| WorkloadError::os("prepare", "a listener", error))?;
        }
        let (at, known, accepted) = (0, 1, 0);
        Ok(Self { sizes, client, listeners, at, known, accepted, seen, taken: None, waits, turned: false })
    }

    /// Takes the next connection; `None` where the listener was shut down. Only the client's own address is let in, and
    /// it takes the place of a connection that has no more to say, or has not said anything.
    #[inline]
    fn accept(&mut self) -> io::Result<Option<()>> {
        let Some(listener) = self.listeners.get(self.at) else { return Ok(None) };
        let (stream, from) = match socket::accept(listener.as_fd(), !self.waits) {
            Ok(accepted) => accepted,
            // What accept4(2) says of a listener that was shut down.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => return Ok(Some(())),
            Err(error) => {
                if error.kind() == io::ErrorKind::WouldBlock && self.taken.is_none() {
                    self.catch_up()?;
                }
                return Err(error);
            }
        };
        let busy =
            self.taken.as_ref().is_some_and(|it| it.owed > 0 || (1..self.sizes.request).contains(&it.got));
        if from.ip().to_canonical() == self.client && !busy {
            self.taken = Some(Taken { stream, got: 0, owed: 0 });
            self.turned = !self.waits;
            self.accepted += 1;
        }
        Ok(Some(()))
    }

    /// Goes on to the listener whose turn it is.
    #[inline]
    fn take_turns(&mut self) {
        self.at = turn(self.accepted, self.listeners.len());
        if !self.waits && self.at >= self.known {
            // From its first turn on, epoll knows it too.
            self.known = self.at + 1;
            self.turned = true;
        }
    }

    /// Nobody came: a stranger on the client's host may have been counted, and the client be one behind.
    fn catch_up(&mut self) -> io::Result<()> {
        let reach = if self.waits { self.listeners.len() } else { self.known };
        for (at, listener) in self.listeners.iter().enumerate().take(reach) {
            if at != self.at && socket::await_readable(listener.as_fd(), Duration::ZERO)? {
                (self.at, self.accepted) = (at, at as u64 * TURN);
                break;
            }
        }
        Ok(())
    }

    /// One receive, and the response where that was the last of the request.
    #[inline]
    fn answer(&mut self) -> io::Result<u64> {
        let Sizes { request, response, .. } = self.sizes;
        let Some(taken) = &mut self.taken else { return Ok(0) };
        if taken.owed == 0 {
            // Once it is answered, one byte more than there may be is room enough for the end.
            let rest = if taken.got < request { request - taken.got } else { 1 };
            let received = with_buffers(|inbox, _| {
                socket::recv(taken.stream.as_fd(), &mut inbox[..rest], Flags::WAITALL)
            });
            match received {
                Ok(received) if received > 0 && taken.got < request => taken.got += received,
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
                {
                    return Err(error);
                }
                // The client has closed it, in order or by a reset, or says more than it was to.
                Ok(_) | Err(_) => {
                    self.taken = None;
                    self.take_turns();
                    return Ok(0);
                }
            }
            if taken.got < request {
                return Ok(0);
            }
            taken.owed = response;
        }
        let sent = with_buffers(|_, outbox| send_run(taken.stream.as_fd(), &outbox[..response], taken.owed));
        match sent {
            Ok(0) => return Err(io::ErrorKind::WouldBlock.into()),
            Ok(sent) => taken.owed -= sent,
            // Whoever asked has gone: its own end knows why.
            Err(_) => {
                self.taken = None;
                self.take_turns();
            }
        }
        let Some(Taken { stream, owed: 0, .. }) = &self.taken else { return Ok(0) };
        self.seen.look(stream);
        Ok(1)
    }
}

impl Work for Answering {
    const LEADS: bool = false;
    const NAME: &'static str = "accept";

    #[inline]
    fn step(&mut self, _fd: BorrowedFd<'_>) -> io::Result<Moved> {
        if self.taken.is_none() {
            if self.accept()?.is_none() {
                return Ok(Moved::End);
            }
            if !self.waits {
                return Ok(Moved::Units(0));
            }
        }
        match self.answer() {
            // In epoll it may have been a listener that was ready; blocked, it is time to look at them.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let ready =
                    |listener: &Arc<OwnedFd>| socket::await_readable(listener.as_fd(), Duration::ZERO);
                if self.waits && !self.listeners.get(self.at).map_or(Ok(true), ready)? {
                    return Err(error);
                }
                match self.accept()? {
                    Some(()) => Ok(Moved::Units(0)),
                    None => Ok(Moved::End),
                }
            }
            answered => answered.map(Moved::Units),
        }
    }

    fn interest(&self) -> Interest {
        if self.taken.as_ref().is_some_and(|taken| taken.owed > 0) { Interest::WRITE } else { Interest::READ }
    }

    fn turned(&mut self) -> bool {
        std::mem::take(&mut self.turned)
    }

    fn own_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.taken {
            Some(taken) => Some(taken.stream.as_fd()),
            None => self.listeners.get(self.at).map(|listener| listener.as_fd()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_host::socket::set_timeouts;
    use std::net::Ipv4Addr;

    const ONE: usize = 1;
    const HOME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn leg(flows: u32) -> RunSpec {
        RunSpec { workload: crate::Workload::Crr, flows, ..RunSpec::default() }
    }

    fn seen() -> Seen {
        Seen { facts: Arc::default(), requested: Requested::default() }
    }

    /// A responder of one flow with its listeners, and where they are.
    fn answering(manner: Manner) -> (Answering, Vec<SocketAddr>) {
        let listeners = listeners(&leg(1), HOME).expect("listen");
        let at = listeners.iter().map(|it| it.local_addr().expect("address")).collect();
        for listener in &listeners {
            set_timeouts(listener, Some(LOOK), Some(LOOK)).expect("timeouts");
        }
        let flows = served(&leg(1), listeners, (HOME, 1).into());
        let own = flows.listeners.into_iter().next().expect("a flow's");
        let sizes = Sizes { request: ONE, response: ONE, in_flight: 1 };
        let place = Place { flow: 0, lane: 0, manner };
        (Answering::new(sizes, HOME, own, place, seen()).expect("buffers"), at)
    }

    /// Steps until something has been answered, or nothing came for a while.
    fn serve(answering: &mut Answering, stand_in: BorrowedFd<'_>) -> u64 {
        let until = clock::now().after(Duration::from_millis(500));
        while clock::now() < until {
            match answering.step(stand_in) {
                Ok(Moved::Units(units)) if units > 0 => return units,
                Ok(Moved::End) => break,
                Ok(_) | Err(_) => {}
            }
        }
        0
    }

    fn ask(stream: &TcpStream) {
        socket::send(stream.as_fd(), &[7]).expect("ask");
    }

    #[test]
    fn ports_are_shared_out_among_the_flows_and_each_has_one_at_least() {
        for (flows, each) in [(1, 64), (3, 21), (64, 1), (100, 1)] {
            let leg = leg(flows);
            let listeners = listeners(&leg, HOME).expect("listen");
            assert_eq!(listeners.len(), flows as usize * each);
            let ports: Vec<u16> =
                listeners.iter().map(|it| it.local_addr().expect("address").port()).collect();
            let client = super::flows(&leg, HOME, &ports).expect("flows");
            let server = served(&leg, listeners, (HOME, 9).into());
            assert_eq!((client.sockets.len(), server.sockets.len()), (flows as usize, flows as usize));
            assert!(client.peers.iter().all(|own| own.len() == each));
            assert!(server.listeners.iter().all(|own| own.len() == each));
            super::flows(&leg, HOME, &[]).expect_err("a server without a port");
        }
        flows(&leg(2), HOME, &[1, 2, 3]).expect_err("ports that cannot be shared out");
    }

    #[test]
    fn both_ends_know_whose_turn_it_is() {
        assert_eq!((turn(0, 3), turn(TURN - 1, 3), turn(TURN, 3), turn(3 * TURN, 3)), (0, 0, 1, 0));
        assert_eq!((turn(u64::MAX, 1), turn(5, 0)), (0, 0));
    }

    #[test]
    fn only_the_clients_address_is_served_and_a_silent_connection_gives_way() {
        for manner in [Manner::Block, Manner::Epoll] {
            let (mut answering, at) = answering(manner);
            let stand_in = UnixDatagram::unbound().expect("socket");
            let other = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), 0));
            let plan = ConnectPlan::new(at[0], Some(other), &Requested::default(), Opening::default());
            let stranger = plan.expect("plan").open().expect("connect");
            ask(&stranger);
            stranger.set_read_timeout(Some(Duration::from_secs(2))).expect("timeout");
            assert_eq!(serve(&mut answering, stand_in.as_fd()), 0, "{manner:?}");
            let mut byte = [0];
            let heard = socket::recv(stranger.as_fd(), &mut byte, Flags::NONE);
            assert!(matches!(heard, Ok(0) | Err(_)), "closed without a word: {heard:?}");
            let silent = TcpStream::connect(at[0]).expect("connect");
            let client = TcpStream::connect(at[0]).expect("connect");
            ask(&client);
            assert_eq!(serve(&mut answering, stand_in.as_fd()), 1, "{manner:?}");
            assert_eq!(socket::recv(client.as_fd(), &mut byte, Flags::NONE).expect("a response"), 1);
            drop(silent);
        }
    }

    #[test]
    fn a_client_that_has_counted_otherwise_is_found_where_it_is() {
        let (mut answering, at) = answering(Manner::Block);
        let stand_in = UnixDatagram::unbound().expect("socket");
        for listener in [0, 5, 6, 2] {
            let client = TcpStream::connect(at[listener]).expect("connect");
            ask(&client);
            assert_eq!(serve(&mut answering, stand_in.as_fd()), 1, "listener {listener}");
        }
    }

    #[test]
    fn a_listener_that_was_shut_down_is_the_end_also_under_a_client_that_does_not_read() {
        for manner in [Manner::Block, Manner::Epoll] {
            let (mut answering, at) = answering(manner);
            let stand_in = UnixDatagram::unbound().expect("socket");
            let client = TcpStream::connect(at[0]).expect("connect");
            while answering.taken.is_none() {
                let _ = answering.step(stand_in.as_fd());
            }
            socket::shutdown(answering.listeners[0].as_fd(), std::net::Shutdown::Both).expect("shut down");
            assert_eq!(answering.step(stand_in.as_fd()).expect("step"), Moved::End, "{manner:?}");
            drop(client);
        }
    }

    #[test]
    fn a_connection_that_is_refused_or_closed_unanswered_is_a_fault_with_its_address() {
        let sizes = Sizes { request: ONE, response: ONE, in_flight: 1 };
        for manner in [Manner::Block, Manner::Epoll] {
            let place = Place { flow: 0, lane: 0, manner };
            let new = |peer| {
                let page = Book::new(1, None).page(place);
                Connecting::new(sizes, &[peer], false, place, page, seen()).expect("plan")
            };
            let stand_in = UnixDatagram::unbound().expect("socket");
            let step = |flow: &mut Connecting| {
                flow.begin(stand_in.as_fd()).expect("begin");
                let until = clock::now().after(Duration::from_secs(2));
                loop {
                    assert!(clock::now() < until, "no fault");
                    match flow.step(stand_in.as_fd()) {
                        Err(error) if error.kind() != io::ErrorKind::WouldBlock => return error.to_string(),
                        _ => {}
                    }
                }
            };
            let listener = TcpListener::bind((HOME, 0)).expect("bind");
            let peer = listener.local_addr().expect("address");
            let mut flow = new(peer);
            let closing = std::thread::spawn(move || {
                let (stream, _) = listener.accept().expect("accept");
                socket::recv(stream.as_fd(), &mut [0], Flags::NONE).expect("a request");
            });
            assert!(step(&mut flow).contains("before it had answered"));
            closing.join().expect("no panic");
            let text = step(&mut new(peer));
            assert!(
                text.contains(&format!("cannot connect to {peer}")) && text.contains("refused"),
                "{text}"
            );
        }
    }
}
