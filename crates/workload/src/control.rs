//! A control connection as a blocking conversation that never blocks for long.
//!
//! Joins a socket to haul-wire's sans-I/O session: writes what it wants written, reads what there is, passes the time
//! in, and hands back events. [`Conversation::pump`] is the only place at either end that waits, and it waits for
//! everything at once: the peer, a second descriptor (the workers' bell, a stop request), the session's own deadline
//! and the caller's.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use haul_host::clock;
use haul_host::signal::Stop;
use haul_host::socket::{Epoll, Interest};
use haul_stats::MonoNanos;
use haul_wire::session::{Role, Session};
use haul_wire::{Event, Message, Now, WireError};

use crate::error::{Result, WorkloadError};

/// Descriptors a pump can watch beside the connection: a stop request, or a session's bell and the server's stop, and a
/// bell for each leg.
const WATCHED: usize = 5;

/// The longest wait for any one answer. The session's own deadlines are shorter where it has one; a peer that only
/// repeats that it is alive must not hold us beyond all of them.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// Reads in a row of one pump: a peer that never stops talking must keep nobody from the clock, or from a stop.
const READS: u32 = 16;

/// What waits to be sent from which on nothing more is read: a peer that asks and does not listen fills its own buffers, not
/// ours. No report is that long.
const MOST_UNSENT: usize = 16 << 20;

/// How often a wait looks whether the user wants it to end.
const STOP_LOOK: Duration = Duration::from_millis(50);

fn heed(stop: &Stop) -> Result<()> {
    match stop.requested() {
        Some(_) => Err(WorkloadError::Interrupted("waiting for the other end")),
        None => Ok(()),
    }
}

/// epoll counts in milliseconds: the last stretch before an instant is slept through exactly.
const FINE: Duration = Duration::from_micros(1_500);

/// The time as haul-wire takes it: the monotonic clock.
pub(crate) fn wire_now() -> Now {
    Now(Duration::from_nanos(clock::now().0))
}

/// One end of a control connection.
pub(crate) struct Conversation<R: Role> {
    socket: TcpStream,
    session: Session<R>,
    /// The other end, as error texts name it.
    peer: String,
    epoll: Epoll,
    interest: Interest,
    established: bool,
    events: VecDeque<Message>,
    failed: bool,
}

impl<R: Role> Conversation<R> {
    pub(crate) fn new(socket: TcpStream, session: Session<R>, peer: String) -> Result<Self> {
        let epoll = Self::prepare(&socket)?;
        Ok(Self::over(socket, epoll, session, peer))
    }

    /// All of [`Conversation::new`] that can fail: the socket stays with the caller, who can say why before it closes.
    pub(crate) fn prepare(socket: &TcpStream) -> Result<Epoll> {
        let fault = |error| WorkloadError::os("prepare", "the control connection", error);
        socket.set_nonblocking(true).map_err(fault)?;
        socket.set_nodelay(true).map_err(fault)?;
        let epoll = Epoll::new(1 + WATCHED)?;
        epoll.add(socket.as_fd(), 0, Interest::READ)?;
        Ok(epoll)
    }

    /// A conversation over a socket that has been prepared.
    pub(crate) fn over(socket: TcpStream, epoll: Epoll, session: Session<R>, peer: String) -> Self {
        Self {
            socket,
            session,
            peer,
            epoll,
            interest: Interest::READ,
            established: false,
            events: VecDeque::new(),
            failed: false,
        }
    }

    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Also wakes a pump when `fd` is readable.
    pub(crate) fn watch(&self, fd: BorrowedFd<'_>) -> Result<()> {
        Ok(self.epoll.add(fd, 1, Interest::READ)?)
    }

    pub(crate) fn unwatch(&self, fd: BorrowedFd<'_>) {
        // A descriptor that was never added needs no removal.
        let _ = self.epoll.remove(fd);
    }

    /// Queues a message and sends what the socket takes at once.
    pub(crate) fn send(&mut self, message: &Message) -> Result<()> {
        if let Err(refused) = self.session.send(wire_now(), message) {
            // The other end may have said its last word meanwhile, and nobody has listened yet: that is the reason then.
            let closed = self.events.iter().find_map(|event| match event {
                Message::Closed { reason } => Some(reason.clone()),
                _ => None,
            });
            return match closed {
                Some(reason) => Err(WorkloadError::Lost {
                    peer: self.peer.clone(),
                    phase: "in the session",
                    reason: reason.unwrap_or_else(|| "it closed the session".to_owned()),
                    partial: Vec::new(),
                }),
                None => self.wire(Err(refused)),
            };
        }
        self.flush()
    }

    /// The next message that has come, without waiting.
    pub(crate) fn next(&mut self) -> Option<Message> {
        self.events.pop_front()
    }

    /// Waits until a message has come, a watched descriptor is readable or `until` has passed, whichever is first, and
    /// does what the session needs meanwhile.
    pub(crate) fn pump(&mut self, until: Option<MonoNanos>) -> Result<()> {
        self.flush()?;
        let now = clock::now();
        let deadline = MonoNanos(u64::try_from(self.session.deadline().0.as_nanos()).unwrap_or(u64::MAX));
        let until = until.map_or(deadline, |until| until.min(deadline));
        let rest = until.since(now);
        let wait = rest.saturating_sub(FINE);
        if wait.is_zero() {
            clock::sleep_until(until);
        }
        let readable = self.epoll.wait(wait)?.filter(|event| event.token == 0).any(|event| event.readable);
        if readable && self.session.output().len() < MOST_UNSENT {
            self.read()?;
        }
        let ticked = self.session.tick(wire_now());
        self.wire(ticked)?;
        self.collect();
        self.flush()
    }

    /// Waits until messages may be sent.
    pub(crate) fn establish(&mut self, stop: &Stop) -> Result<()> {
        while !self.established {
            self.pump(Some(clock::now().after(STOP_LOOK)))?;
            heed(stop)?;
        }
        Ok(())
    }

    /// Waits for the next message: until the session's own deadline, [`ANSWER_LIMIT`] or, where it may, the user ends the
    /// wait.
    pub(crate) fn answer(&mut self, stop: Option<&Stop>) -> Result<Message> {
        let until = clock::now().after(ANSWER_LIMIT);
        loop {
            if let Some(message) = self.next() {
                return Ok(message);
            }
            stop.map_or(Ok(()), heed)?;
            if clock::now() >= until {
                return Err(WorkloadError::Lost {
                    peer: self.peer.clone(),
                    phase: "waiting for its answer",
                    reason: format!("it says that it is alive, and nothing else, for {ANSWER_LIMIT:?}"),
                    partial: Vec::new(),
                });
            }
            self.pump(Some(clock::now().after(STOP_LOOK)))?;
        }
    }

    /// Sends what is left, for as long as a refused peer may take to read why.
    pub(crate) fn finish(&mut self) {
        const LINGER: Duration = Duration::from_millis(500);
        let until = clock::now().after(LINGER);
        while !self.session.output().is_empty() && clock::now() < until && self.flush().is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
        // The peer may have closed first.
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
    }

    /// Says that nothing more will come, and waits until the other end says the same.
    pub(crate) fn await_end(&mut self, longest: Duration) {
        // It may have closed first, or be gone: then there is nothing to wait for.
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
        let until = clock::now().after(longest);
        let mut sink = [0; 4096];
        loop {
            let rest = until.since(clock::now());
            let ready = !rest.is_zero()
                && self.socket.set_nonblocking(false).is_ok()
                && self.socket.set_read_timeout(Some(rest)).is_ok();
            match self.socket.read(&mut sink) {
                Ok(read) if read > 0 && ready => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted && ready => {}
                _ => return,
            }
        }
    }

    fn read(&mut self) -> Result<()> {
        let mut buffer = [0; 16 << 10];
        for _ in 0..READS {
            match self.socket.read(&mut buffer) {
                Ok(0) => return self.hear_the_end(),
                // Who closes without having read our hello resets the connection: to us it is the same.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset && !self.established => {
                    return self.hear_the_end();
                }
                Ok(read) => {
                    let received = self.session.receive(wire_now(), &buffer[..read]);
                    self.collect();
                    self.wire(received)?;
                    if read < buffer.len() {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.lost(&error)),
            }
        }
        Ok(())
    }

    fn hear_the_end(&mut self) -> Result<()> {
        let closed = self.session.receive_end();
        self.collect();
        self.wire(closed)
    }

    fn collect(&mut self) {
        while let Some(event) = self.session.event() {
            match event {
                Event::Established => self.established = true,
                Event::Message(message) => self.events.push_back(message),
            }
        }
    }

    fn flush(&mut self) -> Result<()> {
        while !self.session.output().is_empty() {
            match self.socket.write(self.session.output()) {
                Ok(sent) => self.session.sent(sent),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.lost(&error)),
            }
        }
        let interest = match self.session.output().len() {
            0 => Interest::READ,
            unsent if unsent < MOST_UNSENT => Interest::READ | Interest::WRITE,
            _ => Interest::WRITE,
        };
        if interest != self.interest {
            self.epoll.modify(self.socket.as_fd(), 0, interest)?;
            self.interest = interest;
        }
        Ok(())
    }

    fn lost(&self, error: &io::Error) -> WorkloadError {
        WorkloadError::Lost {
            peer: self.peer.clone(),
            phase: "talking on the control connection",
            reason: error.to_string(),
            partial: Vec::new(),
        }
    }

    /// Turns the session's error into this crate's, after writing what the peer should still hear.
    fn wire<T>(&mut self, result: std::result::Result<T, WireError>) -> Result<T> {
        result.map_err(|source| {
            if !self.failed {
                self.failed = true;
                // The error at hand is the one to report, not that its notice could not be sent.
                let _ = self.flush();
            }
            match source {
                WireError::PeerSilent { .. } | WireError::PeerClosed { .. } | WireError::Deadline { .. } => {
                    WorkloadError::Lost {
                        peer: self.peer.clone(),
                        phase: "on the control connection",
                        reason: source.to_string(),
                        partial: Vec::new(),
                    }
                }
                source => WorkloadError::Control { peer: self.peer.clone(), source },
            }
        })
    }
}
