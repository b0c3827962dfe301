//! The other end: lets clients in, gives each a session, and never lets one of them hold what is another's.
//!
//! One thread accepts. It reads the first bytes of every new connection without ever blocking on one of them: a
//! scanner, a browser or a silent peer costs a slot among 64 for at most the handshake's deadline, and the
//! oldest makes room for the newest. A control connection becomes a session on a thread of its own; a data connection
//! is handed to the session whose token it shows. Everything a session holds (its slot, its flows, the settings it
//! changed) is let go when its thread ends, and its thread ends when the client falls silent.
//!
//! ```text
//!            ┌ hello: control ─▶ session thread ── slot free? ─▶ opened / refused (who holds it, since when)
//! accept ────┼ hello: data ────▶ token known? ───▶ that session's thread
//!            └ anything else ──▶ named in one event, closed
//! ```

mod session;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use haul_host::clock;
use haul_host::signal::Stop;
use haul_host::socket::{self, Epoll, Interest, Requested};
use haul_stats::MonoNanos;
use haul_wire::{Arrival, DataHello, HELLO_LEN, Incoming, Key, ServerSession, Token, Trust};

use crate::control::wire_now;
use crate::error::{Result, WorkloadError};

/// The port of haul's control protocol.
pub const DEFAULT_PORT: u16 = 4285;

/// Connections that have not yet said what they are.
const PENDING: usize = 64;

/// Session threads beyond the slots: enough to tell refused clients why, too few to exhaust the host.
const WAITING_ROOM: usize = 32;

/// How a server is run.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The key clients must have; `None` lets anyone in.
    pub key: Option<Key>,
    /// Whether clients may change settings of this host.
    pub allow_settings: bool,
    /// Sessions at a time.
    pub max_sessions: u32,
    /// Where the settings' journal is kept.
    pub journal: PathBuf,
}

/// Something worth a line in the server's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServeEvent {
    /// A client was let in.
    Opened {
        /// Who: user, host and address.
        client: String,
    },
    /// A run began.
    Run {
        /// Whose.
        client: String,
        /// What.
        what: String,
    },
    /// A run ended.
    RunEnded {
        /// Whose.
        client: String,
        /// With what.
        what: String,
    },
    /// A session ended.
    Closed {
        /// Whose.
        client: String,
        /// Why, where it was not the client's own wish.
        reason: Option<String>,
    },
    /// A connection was turned away.
    TurnedAway {
        /// From where.
        from: SocketAddr,
        /// Why.
        reason: String,
    },
    /// Settings of this host changed, or could not be put back.
    Settings {
        /// For whom.
        client: String,
        /// What.
        what: String,
    },
}

/// What the server tells its owner.
pub type Observe = Arc<dyn Fn(&ServeEvent) + Send + Sync>;

/// A listening server.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    options: ServeOptions,
}

/// A session that holds a slot.
#[derive(Debug)]
struct Holder {
    token: Token,
    who: String,
    since: MonoNanos,
    running: bool,
    /// Another session ran at the same time as this one's present run.
    shared: bool,
    door: mpsc::Sender<(DataHello, TcpStream)>,
    bell: UnixStream,
}

/// What the accepting thread and the sessions share.
struct Shared {
    options: ServeOptions,
    holders: Mutex<Vec<Holder>>,
    observe: Observe,
    stop: Stop,
}

impl Shared {
    fn holders(&self) -> MutexGuard<'_, Vec<Holder>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, event: &ServeEvent) {
        (self.observe)(event);
    }
}

/// A connection that has not yet said what it is.
struct Pending {
    stream: TcpStream,
    from: SocketAddr,
    incoming: Incoming,
}

impl Server {
    /// Listens; nothing is accepted before [`Server::run`].
    pub fn bind(options: ServeOptions) -> Result<Self> {
        let listener = socket::listen(options.listen, &Requested::default())?;
        listener
            .set_nonblocking(true)
            .map_err(|error| WorkloadError::os("prepare", "the listening socket", error))?;
        Ok(Self { listener, options })
    }

    /// Where it listens, with the port the kernel chose where none was given.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        self.listener
            .local_addr()
            .map_err(|error| WorkloadError::os("read", "the address of the listening socket", error))
    }

    /// Serves until a stop is requested, then ends every session and puts every setting back.
    pub fn run(self, stop: &Stop, observe: Observe) -> Result<()> {
        let Self { listener, options } = self;
        let shared = Arc::new(Shared { options, holders: Mutex::default(), observe, stop: stop.clone() });
        let mut epoll = Epoll::new(PENDING + 2)?;
        epoll.add(listener.as_fd(), LISTENER, Interest::READ)?;
        epoll.add(stop.as_fd(), STOP, Interest::READ)?;
        let mut pending: Vec<(u64, Pending)> = Vec::with_capacity(PENDING);
        let mut sessions: Vec<JoinHandle<()>> = Vec::new();
        let mut next_slot = FIRST_SLOT;
        while stop.requested().is_none() {
            let now = wire_now();
            let due = pending.iter().map(|(_, pending)| now.until(pending.incoming.deadline())).min();
            // The bound on the wait only collects ended session threads.
            let wait = due.unwrap_or(Duration::from_secs(5));
            let tokens: Vec<u64> = epoll.wait(wait)?.map(|event| event.token).collect();
            for token in tokens {
                if token == LISTENER {
                    accept(&listener, &shared, &epoll, &mut pending, &mut next_slot);
                } else if let Some(at) = pending.iter().position(|(slot, _)| *slot == token) {
                    let (slot, one) = pending.swap_remove(at);
                    match hear(&shared, &epoll, one) {
                        Heard::More(one) => pending.push((slot, one)),
                        Heard::Done => {}
                        Heard::Session(stream, session, from) => {
                            sessions.retain(|thread| !thread.is_finished());
                            let room = shared.options.max_sessions as usize + WAITING_ROOM;
                            if sessions.len() < room {
                                sessions.extend(session::start(&shared, stream, session, from));
                            } else {
                                let reason =
                                    "more clients are waiting than this server has room for".to_owned();
                                shared.tell(&ServeEvent::TurnedAway { from, reason });
                            }
                        }
                    }
                }
            }
            let now = wire_now();
            pending.retain_mut(|(_, one)| match one.incoming.tick(now) {
                Ok(()) => true,
                Err(error) => {
                    shared.tell(&ServeEvent::TurnedAway { from: one.from, reason: error.to_string() });
                    false
                }
            });
            sessions.retain(|thread| !thread.is_finished());
        }
        drop((pending, listener));
        for thread in sessions {
            // A session that panicked has let go of all it held while unwinding.
            let _ = thread.join();
        }
        Ok(())
    }
}

const LISTENER: u64 = 0;
const STOP: u64 = 1;
const FIRST_SLOT: u64 = 2;

/// Takes every connection that waits.
fn accept(
    listener: &TcpListener,
    shared: &Shared,
    epoll: &Epoll,
    pending: &mut Vec<(u64, Pending)>,
    next_slot: &mut u64,
) {
    loop {
        let (stream, from) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error)
                if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) =>
            {
                continue;
            }
            Err(error) => {
                // Out of descriptors: the listener stays readable, and without a pause this would spin.
                let from = SocketAddr::from(([0, 0, 0, 0], 0));
                let reason = format!("cannot accept: {error} (raise the limit on open files: ulimit -n)");
                shared.tell(&ServeEvent::TurnedAway { from, reason });
                std::thread::sleep(Duration::from_millis(100));
                return;
            }
        };
        if stream.set_nonblocking(true).is_err()
            || epoll.add(stream.as_fd(), *next_slot, Interest::READ).is_err()
        {
            continue;
        }
        if pending.len() >= PENDING {
            let oldest = pending.iter().enumerate().min_by_key(|(_, (_, one))| one.incoming.deadline());
            if let Some((at, _)) = oldest {
                let (_, one) = pending.swap_remove(at);
                let reason = "it made room for a newer connection".to_owned();
                shared.tell(&ServeEvent::TurnedAway { from: one.from, reason });
            }
        }
        let trust = shared.options.key.clone().map_or(Trust::Open, Trust::Key);
        pending.push((*next_slot, Pending { stream, from, incoming: Incoming::new(wire_now(), trust) }));
        *next_slot += 1;
    }
}

enum Heard {
    More(Pending),
    Session(TcpStream, Box<ServerSession>, SocketAddr),
    Done,
}

/// Reads what a pending connection has said, and no further than what belongs to its hello.
fn hear(shared: &Shared, epoll: &Epoll, mut one: Pending) -> Heard {
    let mut buffer = [0; HELLO_LEN];
    let read = match one.stream.read(&mut buffer) {
        Ok(0) => {
            let reason = one.incoming.receive_end().to_string();
            shared.tell(&ServeEvent::TurnedAway { from: one.from, reason });
            return Heard::Done;
        }
        Ok(read) => read,
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            return Heard::More(one);
        }
        Err(error) => {
            shared.tell(&ServeEvent::TurnedAway { from: one.from, reason: error.to_string() });
            return Heard::Done;
        }
    };
    let now = wire_now();
    let (taken, arrival) = one.incoming.receive(now, &buffer[..read]);
    if matches!(arrival, Arrival::Control(_) | Arrival::Data(_)) {
        // It lives on elsewhere: left here, every segment of a flow would wake this thread (half the throughput).
        let _ = epoll.remove(one.stream.as_fd());
    }
    match arrival {
        Arrival::NeedMore => Heard::More(one),
        Arrival::Control(mut session) => match session.receive(now, &buffer[taken..read]) {
            Ok(()) => Heard::Session(one.stream, session, one.from),
            Err(error) => {
                shared.tell(&ServeEvent::TurnedAway { from: one.from, reason: error.to_string() });
                Heard::Done
            }
        },
        Arrival::Data(hello) => {
            deliver(shared, hello, one.stream, one.from);
            Heard::Done
        }
        Arrival::Foreign(found) => {
            shared.tell(&ServeEvent::TurnedAway {
                from: one.from,
                reason: format!("it is not haul: found {found}"),
            });
            Heard::Done
        }
        Arrival::Refused(error) => {
            // Whoever does not read the few bytes of a refusal does without.
            let _ = one.stream.write(one.incoming.output());
            shared.tell(&ServeEvent::TurnedAway { from: one.from, reason: error.to_string() });
            Heard::Done
        }
    }
}

/// Hands a data connection to its session.
fn deliver(shared: &Shared, hello: DataHello, stream: TcpStream, from: SocketAddr) {
    let holders = shared.holders();
    let delivered = holders.iter().find(|holder| holder.token == hello.token).is_some_and(|holder| {
        let passed = holder.door.send((hello, stream)).is_ok();
        // A full bell has rung already.
        let _ = (&holder.bell).write(&[1]);
        passed
    });
    drop(holders);
    if !delivered {
        let reason = "a data connection of no session here".to_owned();
        shared.tell(&ServeEvent::TurnedAway { from, reason });
    }
}

/// Since when, as people say it.
fn seconds_since(then: MonoNanos) -> u64 {
    clock::now().since(then).as_secs()
}
