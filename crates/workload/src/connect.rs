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
//! it, in a blocking worker, nor shut it down: hence the nudges.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use haul_host::probe::{net, ports};
use haul_host::socket::{self, Requested, SocketFacts};

use crate::end::{Ends, Ledger, Workers};
use crate::engine::{Crew, Engine, Manner};
use crate::error::{Result, WorkloadError};
use crate::exchange::book::{Book, BookLedger};
use crate::exchange::{ExchangeReport, PortsReport, Sizes};
use crate::legs::Flows;
use crate::report::{Detail, Role};
use crate::spec::RunSpec;

mod client;
mod server;

use client::Connecting;
use server::Answering;

/// How often a blocked call is ended, so that the stop flag, or a listener that was shut down, is looked at.
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
    let strangers = Arc::<AtomicU64>::default();
    let seen = Seen {
        facts: Arc::clone(&facts),
        requested: spec.sockets(end.client),
        strangers: Arc::clone(&strangers),
    };
    let peer = peers.iter().flatten().next().copied();
    let peer = peer.ok_or_else(|| WorkloadError::Invalid("there is nobody to connect to".to_owned()))?.ip();
    let crew = end.crew(sockets, None, Manner::Block)?;
    if end.role == Role::Responder {
        let crew = Crew { keep: listeners.iter().flatten().cloned().collect(), ..crew };
        let engine = Engine::prepare(crew, move |place| {
            let own = listeners.get(place.flow as usize).cloned().unwrap_or_default();
            Answering::new(sizes, peer, own, place, seen.clone())
        })?;
        return Ok(Workers {
            engine,
            ledger: Box::new(ServerLedger { facts, again: Again::default(), strangers }),
            ceiling: None,
        });
    }
    let book = Book::new(spec.flows, spec.pace);
    let ledger = ClientLedger {
        book: BookLedger::new(Arc::clone(&book)),
        facts,
        server: peer,
        each: peers.first().map_or(1, Vec::len) as u64,
        reset: spec.reset,
        again: Again::default(),
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
    /// Connections of others, of which there should be none.
    strangers: Arc<AtomicU64>,
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

/// What the network namespace of this end sent again in the window. Connections that are gone cannot be asked one by one, and
/// asking each before it goes would be a call for each.
#[derive(Debug, Default)]
struct Again {
    opening: Option<u64>,
    closing: Option<u64>,
}

impl Again {
    fn open(&mut self) {
        self.opening = net::tcp_retransmits().ok();
    }

    fn close(&mut self) {
        self.closing = net::tcp_retransmits().ok();
    }

    fn count(&self) -> Option<u64> {
        self.closing?.checked_sub(self.opening?)
    }
}

/// The server's side of the report: what a connection really used.
#[derive(Debug)]
struct ServerLedger {
    facts: Arc<OnceLock<SocketFacts>>,
    again: Again,
    strangers: Arc<AtomicU64>,
}

impl Ledger for ServerLedger {
    fn open(&mut self) {
        self.again.open();
    }

    fn close(&mut self) {
        self.again.close();
    }

    fn detail(&mut self) -> Detail {
        let (connection, namespace_retransmits) = (self.facts.get().cloned(), self.again.count());
        let strangers = self.strangers.load(Ordering::Relaxed);
        Detail::Exchange(Box::new(ExchangeReport {
            connection,
            strangers,
            namespace_retransmits,
            ..ExchangeReport::default()
        }))
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
    again: Again,
    ports: Option<PortsReport>,
}

impl ClientLedger {
    fn ports(&self) -> haul_host::Result<PortsReport> {
        let range = ports::ephemeral_range()?;
        let hold = if self.reset { Duration::ZERO } else { ports::held_for(self.server)? };
        Ok(PortsReport {
            range: u64::from(range.end().saturating_sub(*range.start())) + 1,
            held: self.book.most_within(hold).div_ceil(self.each),
        })
    }
}

impl Ledger for ClientLedger {
    fn open(&mut self) {
        self.book.open();
        self.again.open();
    }

    fn close(&mut self) {
        self.book.close();
        self.again.close();
        self.ports = self.ports().ok();
    }

    fn detail(&mut self) -> Detail {
        let (connection, ports) = (self.facts.get().cloned(), self.ports);
        let namespace_retransmits = self.again.count();
        Detail::Exchange(Box::new(ExchangeReport {
            connection,
            ports,
            namespace_retransmits,
            ..self.book.report()
        }))
    }
}
