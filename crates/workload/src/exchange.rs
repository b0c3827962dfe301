//! Requests and responses.
//!
//! A transaction is a request of so many bytes and a response of so many. One flow to a thread is the bare loop: a send,
//! a receive and a look at the clock for each. The requester counts and times, the responder answers and counts; neither
//! looks at the payload, but for the number that tells the datagrams of UDP apart (`datagram`).
//!
//! ```text
//! closed loop   as many are under way as were asked for; the next begins when one is complete, and is timed from then
//! open loop     each is due at a time of its own (see [`schedule`]) and timed from that, also while it waits for its turn
//! ```
//!
//! Several under way must never block in a send: with both ends' buffers full of what the other does not read, neither would
//! go on. So a requester of several waits in epoll and always reads; a responder takes no request before it has got rid
//! of its responses, and needs no more memory than for one.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use haul_host::socket::{PageBuffer, SocketFacts};
use haul_stats::ByteCount;
use haul_stats::latency::Histogram;
use serde::{Deserialize, Serialize};

use crate::end::{Ends, NoLedger, Workers};
use crate::engine::{Engine, Manner};
use crate::error::Result;
use crate::legs::Flows;
use crate::report::Role;
use crate::spec::{RunSpec, SpecError, Transport};
use crate::stream;

pub(crate) mod book;
mod datagram;
pub(crate) mod schedule;
mod tcp;

use book::{Book, BookLedger};
pub(crate) use tcp::send_run;

/// What one end has to say of it. Only the requester's has times and counts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ExchangeReport {
    /// How long the transactions took that were completed in the window.
    pub latency: Histogram,
    /// The longest time in the window for which a flow completed nothing of what was under way or due.
    pub longest_stall: Option<Duration>,
    /// Transactions begun or due, and not complete when the window closed.
    pub unanswered: u64,
    /// Transactions begun over the whole life of the flows.
    pub begun: u64,
    /// Requests that were sent again in the window.
    pub resends: u64,
    /// What a connection really used, where flows make them as they go.
    pub connection: Option<SocketFacts>,
    /// What such connections leave behind.
    pub ports: Option<PortsReport>,
    /// Connections of others to the server's ports, over the whole life of the flows.
    #[serde(default)]
    pub strangers: u64,
    /// TCP segments that all of this end's network namespace sent again in the window, where flows make connections as they
    /// go; `None` where it is not counted.
    #[serde(default)]
    pub namespace_retransmits: Option<u64>,
}

/// Local ports of connections that come and go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PortsReport {
    /// How many ports the kernel chooses from.
    pub range: u64,
    /// The most of them that closed connections to one address held as the window closed.
    pub held: u64,
}

impl ExchangeReport {
    /// Says what in a report from the other end cannot be true.
    pub fn check(&self) -> std::result::Result<(), String> {
        /// More transactions than any run has.
        const MOST: u64 = 1 << 53;
        let holds = |fact: bool, what: &str| if fact { Ok(()) } else { Err(what.to_owned()) };
        let ports = self.ports.unwrap_or_default();
        let counts = [
            self.latency.count(),
            self.unanswered,
            self.begun,
            self.resends,
            self.strangers,
            ports.range,
            ports.held,
            self.namespace_retransmits.unwrap_or_default(),
        ];
        holds(counts.into_iter().all(|count| count <= MOST), "it had more transactions than can be had")?;
        holds(self.latency.count() <= self.begun, "it completed more transactions than it began")
    }
}

/// Starts the workers of one end of an exchange over connections, or pairs of addresses, that are there already.
pub(crate) fn workers(end: Ends<'_>, flows: Flows) -> Result<Workers> {
    let spec = end.spec;
    let (sockets, sizes) = (flows.sockets, Sizes::of(spec)?);
    let udp = spec.transport == Transport::Udp;
    if end.role == Role::Responder {
        let crew = end.crew(sockets, None, Manner::Block)?;
        let engine = if udp {
            Engine::prepare(crew, move |place| datagram::Responding::new(sizes, place))?
        } else {
            Engine::prepare(crew, move |_| tcp::Responding::new(sizes))?
        };
        return Ok(Workers { engine, ledger: Box::new(NoLedger), ceiling: None });
    }
    let book = Book::new(spec.flows, spec.pace);
    // A datagram never blocks for long, so that a closed loop of several needs no epoll.
    let blocks = spec.in_flight == 1 || (udp && spec.pace.is_none());
    let crew = end.crew(sockets, None, if blocks { Manner::Block } else { Manner::Epoll })?;
    let pages = Arc::clone(&book);
    let engine = if udp {
        let timeout = spec.timeout;
        datagram::bound_waits(&crew.sockets, timeout)?;
        Engine::prepare(crew, move |place| {
            datagram::Requesting::new(sizes, timeout, pages.page(place), place.manner)
        })?
    } else {
        Engine::prepare(crew, move |place| tcp::Requesting::new(sizes, pages.page(place)))?
    };
    Ok(Workers { engine, ledger: Box::new(BookLedger::new(book)), ceiling: None })
}

/// The sizes of an exchange.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) request: usize,
    pub(crate) response: usize,
    pub(crate) in_flight: usize,
}

impl Sizes {
    pub(crate) fn of(spec: &RunSpec) -> Result<Self> {
        let length = |bytes: ByteCount| bytes.as_usize().ok_or(SpecError::Message(bytes.0));
        Ok(Self {
            request: length(spec.request)?,
            response: length(spec.response)?,
            in_flight: spec.in_flight as usize,
        })
    }

    /// How much of a run of messages is handed over, or taken, in one call: all that may be under way, up to what is no
    /// longer worth it, and one in any case.
    fn span(self, message: usize) -> usize {
        /// A send of more than one message gains nothing beyond this: it is what a segment of TSO holds.
        const WORTH: usize = 64 << 10;
        message.max(WORTH.min(message.saturating_mul(self.in_flight)))
    }
}

/// A worker's two buffers. Its flows take turns in them: what is received is not looked at again, and what is sent is the
/// same for all, so that five thousand flows find both in the cache.
struct Buffers {
    inbox: PageBuffer,
    outbox: PageBuffer,
}

thread_local! {
    static BUFFERS: RefCell<Option<Buffers>> = const { RefCell::new(None) };
}

/// Sees to it that this thread's buffers have room for so much.
pub(crate) fn make_buffers(inbox: usize, outbox: usize) -> Result<()> {
    BUFFERS.with_borrow_mut(|buffers| {
        let present = buffers.as_ref().map_or((0, 0), |it| (it.inbox.len(), it.outbox.len()));
        if present.0 < inbox || present.1 < outbox {
            let new = |length: usize| PageBuffer::new(ByteCount(length as u64));
            let mut outbox = new(outbox.max(present.1))?;
            stream::fill(outbox.at_mut(0));
            *buffers = Some(Buffers { inbox: new(inbox.max(present.0))?, outbox });
        }
        Ok(())
    })
}

/// Lends this thread's buffers, the one to receive into and the one to send from.
#[inline]
pub(crate) fn with_buffers<T>(use_them: impl FnOnce(&mut [u8], &mut [u8]) -> io::Result<T>) -> io::Result<T> {
    BUFFERS.with_borrow_mut(|buffers| match buffers {
        Some(Buffers { inbox, outbox }) => use_them(inbox.at_mut(0), outbox.at_mut(0)),
        None => Err(io::Error::other("this thread has made no buffers")),
    })
}

#[cfg(test)]
mod tests;
