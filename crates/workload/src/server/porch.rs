//! Where connections stand until they have said what they are.
//!
//! A connection is heard as soon as it is accepted: the hello of an honest peer travels right behind its connection and
//! is there by then. Only who has not spoken yet takes one of [`PENDING`] places, for the handshake's deadline at most,
//! and the one that has been silent longest makes room for the next. So neither a thousand flows of one run nor a flood
//! of silent strangers keeps the other out.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use haul_host::socket::{Epoll, Interest};
use haul_wire::{Arrival, DataHello, HELLO_LEN, Hello, Incoming, ServerSession, Trust};

use super::{Knock, Shared, session};
use crate::control::wire_now;
use crate::error::{Result, WorkloadError, out_of_descriptors};

/// Connections that have not yet said what they are.
const PENDING: usize = 64;

/// Connections taken between two looks at those that wait.
const BATCH: usize = 64;

/// Session threads beyond the slots: enough to tell refused clients why, too few to exhaust the host.
const WAITING_ROOM: usize = 32;

/// The wait where nothing is due, after which ended session threads are collected.
const IDLE: Duration = Duration::from_secs(5);

const LISTENER: u64 = 0;
const STOP: u64 = 1;
const DATAGRAMS: u64 = 2;
const FIRST_PLACE: u64 = 3;

/// A connection that has not yet said what it is.
struct Pending {
    place: u64,
    stream: TcpStream,
    from: SocketAddr,
    incoming: Incoming,
}

/// The accepting thread's state.
pub(super) struct Porch<'a> {
    shared: &'a Arc<Shared>,
    listener: TcpListener,
    /// Where UDP flows say which they are: the same port.
    datagrams: UdpSocket,
    epoll: Epoll,
    pending: Vec<Pending>,
    sessions: Vec<JoinHandle<()>>,
    next_place: u64,
}

impl<'a> Porch<'a> {
    pub(super) fn new(shared: &'a Arc<Shared>, listener: TcpListener, datagrams: UdpSocket) -> Result<Self> {
        let epoll = Epoll::new(PENDING + 3)?;
        epoll.add(datagrams.as_fd(), DATAGRAMS, Interest::READ)?;
        epoll.add(listener.as_fd(), LISTENER, Interest::READ)?;
        epoll.add(shared.stop.as_fd(), STOP, Interest::READ)?;
        let pending = Vec::with_capacity(PENDING);
        Ok(Self {
            shared,
            listener,
            datagrams,
            epoll,
            pending,
            sessions: Vec::new(),
            next_place: FIRST_PLACE,
        })
    }

    /// Waits for something to happen and does what it asks for.
    pub(super) fn tend(&mut self) -> Result<()> {
        let now = wire_now();
        let due = self.pending.iter().map(|one| now.until(one.incoming.deadline())).min();
        let tokens: Vec<u64> = self.epoll.wait(due.unwrap_or(IDLE))?.map(|event| event.token).collect();
        for token in tokens {
            if token == LISTENER {
                self.accept();
            } else if token == DATAGRAMS {
                self.take_datagrams();
            } else if let Some(at) = self.pending.iter().position(|one| one.place == token) {
                let one = self.pending.swap_remove(at);
                if let Some(one) = self.hear(one) {
                    self.pending.push(one);
                }
            }
        }
        let (now, shared) = (wire_now(), self.shared);
        self.pending.retain_mut(|one| match one.incoming.tick(now) {
            Ok(()) => true,
            Err(error) => {
                shared.turn_away(one.from, error.to_string());
                false
            }
        });
        self.sessions.retain(|thread| !thread.is_finished());
        Ok(())
    }

    /// Lets nobody in any more and waits for the sessions, which end by themselves once a stop is requested.
    pub(super) fn close(self) {
        drop((self.pending, self.listener, self.datagrams));
        for thread in self.sessions {
            // A session that panicked has let go of all it held while unwinding.
            let _ = thread.join();
        }
    }

    fn accept(&mut self) {
        for _ in 0..BATCH {
            let (stream, from) = match self.listener.accept() {
                // What speaks IPv4 to a listener of both is known by its address of IPv4.
                Ok((stream, from)) => (stream, SocketAddr::new(from.ip().to_canonical(), from.port())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                    ) =>
                {
                    continue;
                }
                Err(error) => return self.cannot_accept(error),
            };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            let trust = self.shared.options.key.clone().map_or(Trust::Open, Trust::Key);
            let place = self.next_place;
            self.next_place += 1;
            let one = Pending { place, stream, from, incoming: Incoming::new(wire_now(), trust) };
            if let Some(one) = self.hear(one)
                && self.epoll.add(one.stream.as_fd(), one.place, Interest::READ).is_ok()
            {
                self.make_room();
                self.pending.push(one);
            }
        }
    }

    /// Hands the first datagrams of flows to their sessions. Anything else is dropped without a word, in either direction:
    /// the sender's address proves nothing, and a line in the log for each would be its to write.
    fn take_datagrams(&self) {
        let mut buffer = [0; HELLO_LEN + 1];
        for _ in 0..BATCH {
            // What went wrong with one of them, or with an earlier answer, concerns no other.
            let Ok((length, from)) = self.datagrams.recv_from(&mut buffer) else { return };
            let Some(Ok(Hello::Data(hello))) =
                buffer[..length].first_chunk().filter(|_| length == HELLO_LEN).map(Hello::decode)
            else {
                continue;
            };
            let holders = self.shared.holders();
            if let Some(holder) = holders.iter().find(|holder| holder.token == hello.token) {
                holder.knock(Knock::Datagram(hello, from));
            }
        }
    }

    fn make_room(&mut self) {
        if self.pending.len() < PENDING {
            return;
        }
        let longest = self.pending.iter().enumerate().min_by_key(|(_, one)| one.incoming.deadline());
        if let Some((at, _)) = longest {
            self.pending.swap_remove(at);
            self.shared.crowd_out();
        }
    }

    /// The listener stays readable, and without a pause this would spin. Whoever waits for flows that cannot be opened
    /// is told, and by giving up makes room for others.
    fn cannot_accept(&self, error: io::Error) {
        const PAUSE: Duration = Duration::from_millis(100);
        let full = out_of_descriptors(&error);
        let reason = WorkloadError::os("accept", "a connection", error).to_string();
        if full {
            for holder in self.shared.holders().iter() {
                holder.knock(Knock::NoMore(reason.clone()));
            }
        }
        self.shared.turn_away(SocketAddr::from(([0, 0, 0, 0], 0)), reason);
        std::thread::sleep(PAUSE);
    }

    /// Reads what a connection has said, and no further than what belongs to its hello; gives it back where that is not
    /// enough to know it.
    fn hear(&mut self, mut one: Pending) -> Option<Pending> {
        let mut buffer = [0; HELLO_LEN];
        let read = match one.stream.read(&mut buffer) {
            Ok(0) => {
                self.shared.turn_away(one.from, one.incoming.receive_end().to_string());
                return None;
            }
            Ok(read) => read,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return Some(one);
            }
            Err(error) => {
                self.shared.turn_away(one.from, error.to_string());
                return None;
            }
        };
        let now = wire_now();
        let (taken, arrival) = one.incoming.receive(now, &buffer[..read]);
        if matches!(arrival, Arrival::Control(_) | Arrival::Data(_)) {
            // It lives on elsewhere: left here, every segment of a flow would wake this thread (half the throughput).
            // One that was heard as it came was never here.
            let _ = self.epoll.remove(one.stream.as_fd());
        }
        match arrival {
            Arrival::NeedMore => return Some(one),
            Arrival::Control(mut session) => match session.receive(now, &buffer[taken..read]) {
                Ok(()) => self.begin(one.stream, session, one.from),
                Err(error) => self.shared.turn_away(one.from, error.to_string()),
            },
            Arrival::Data(hello) => self.deliver(hello, one.stream, one.from),
            Arrival::Foreign(found) => {
                self.shared.turn_away(one.from, format!("it is not haul: found {found}"));
            }
            Arrival::Refused(error) => {
                // Whoever does not read the few bytes of a refusal does without.
                let _ = one.stream.write(one.incoming.output());
                self.shared.turn_away(one.from, error.to_string());
            }
        }
        None
    }

    fn begin(&mut self, stream: TcpStream, session: Box<ServerSession>, from: SocketAddr) {
        self.sessions.retain(|thread| !thread.is_finished());
        if self.sessions.len() < self.shared.options.max_sessions as usize + WAITING_ROOM {
            self.sessions.extend(session::start(self.shared, stream, session, from));
        } else {
            self.shared.turn_away(from, "more clients are waiting than this server has room for".to_owned());
        }
    }

    /// Hands a data connection to its session.
    fn deliver(&self, hello: DataHello, stream: TcpStream, from: SocketAddr) {
        let holders = self.shared.holders();
        let holder = holders.iter().find(|holder| holder.token == hello.token);
        let delivered = holder.is_some_and(|holder| holder.knock(Knock::Flow(hello, stream)));
        drop(holders);
        if !delivered {
            self.shared.turn_away(from, "a data connection of no session here".to_owned());
        }
    }
}
