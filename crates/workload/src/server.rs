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

mod line;
mod porch;
mod session;

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use haul_host::clock;
use haul_host::settings::Reach;
use haul_host::signal::Stop;
use haul_host::socket::{self, Requested, udp};
use haul_stats::MonoNanos;
use haul_wire::{DataHello, Key, Token};

use crate::error::{Result, WorkloadError};
use crate::report::{EndReport, RunOutcome};
use crate::spec::RunSpec;
use line::Line;
use porch::Porch;

/// The port of haul's control protocol.
pub const DEFAULT_PORT: u16 = 4285;

/// Lines about strangers in a second of the log; more are counted and told in one.
const STRANGERS: u32 = 20;

/// How a server is run.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// The key clients must have; `None` lets anyone in.
    pub key: Option<Key>,
    /// How far clients may change settings of this host; `None` lets them change nothing.
    pub allow_settings: Option<Reach>,
    /// Sessions at a time.
    pub max_sessions: u32,
    /// Where the settings' journal is kept.
    pub journal: PathBuf,
}

/// Something worth a line in the server's log.
#[derive(Debug, Clone, PartialEq)]
pub enum ServeEvent {
    /// A client was let in.
    Opened {
        /// Who: user, host and address.
        client: String,
        /// How long it had waited in line, where it had.
        waited: Option<Duration>,
    },
    /// A client found no session free. Told once of a client that asks again and again.
    Full {
        /// Who.
        client: String,
        /// Who holds the sessions.
        reason: String,
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
        /// What is known of it.
        run: Box<ServedRun>,
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
    /// So many more connections were turned away within a second than were told.
    Hushed {
        /// How many.
        count: u64,
    },
    /// Settings of this host changed, or could not be put back.
    Settings {
        /// For whom.
        client: String,
        /// What.
        what: String,
    },
}

/// A run as its server knows it once it is over.
#[derive(Debug, Clone, PartialEq)]
pub struct ServedRun {
    /// What was asked for.
    pub spec: RunSpec,
    /// What was seen of it.
    pub seen: Seen,
}

/// What a server knows of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    /// Both ends of each leg, as the client knows them too, but for its profile.
    Both(Vec<RunOutcome>),
    /// This end alone, by leg.
    Own {
        /// What it saw.
        reports: Vec<EndReport>,
        /// Why not more.
        reason: String,
    },
}

/// What the server tells its owner.
pub type Observe = Arc<dyn Fn(&ServeEvent) + Send + Sync>;

/// A listening server.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    datagrams: UdpSocket,
}

/// What the accepting thread has for a session.
#[derive(Debug)]
enum Knock {
    /// One of its flows.
    Flow(DataHello, TcpStream),
    /// The first datagram of one of its flows, and where it came from.
    Datagram(DataHello, SocketAddr),
    /// That no flow can be taken now, and why.
    NoMore(String),
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
    door: mpsc::Sender<Knock>,
    bell: UnixStream,
}

impl Holder {
    /// Passes something on to the session; false where it is ending.
    fn knock(&self, knock: Knock) -> bool {
        let passed = self.door.send(knock).is_ok();
        // A full bell has rung already.
        let _ = (&self.bell).write(&[1]);
        passed
    }
}

/// What the accepting thread and the sessions share.
struct Shared {
    options: ServeOptions,
    holders: Mutex<Vec<Holder>>,
    line: Mutex<Line>,
    strangers: Mutex<Strangers>,
    observe: Observe,
    stop: Stop,
}

/// How many connections were turned away in the present second.
#[derive(Debug, Default)]
struct Strangers {
    second: MonoNanos,
    told: u32,
    hushed: u64,
}

impl Shared {
    fn holders(&self) -> MutexGuard<'_, Vec<Holder>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, event: &ServeEvent) {
        (self.observe)(event);
    }

    /// Tells that a connection was turned away: each of the first few of a second, the others in one line. Nobody can
    /// fill the log's disk by connecting.
    fn turn_away(&self, from: SocketAddr, reason: String) {
        self.note(Some(ServeEvent::TurnedAway { from, reason }));
    }

    /// Counts a connection that made room before it had said anything: there is nothing to name, and many such lines
    /// would take the place of those that name somebody.
    fn crowd_out(&self) {
        self.note(None);
    }

    fn note(&self, event: Option<ServeEvent>) {
        let mut strangers = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock::now();
        let mut hushed = 0;
        if now.since(strangers.second) >= Duration::from_secs(1) {
            hushed = strangers.hushed;
            *strangers = Strangers { second: now, told: 0, hushed: 0 };
        }
        let event = event.filter(|_| strangers.told < STRANGERS);
        strangers.told += u32::from(event.is_some());
        strangers.hushed += u64::from(event.is_none());
        drop(strangers);
        if hushed > 0 {
            self.tell(&ServeEvent::Hushed { count: hushed });
        }
        if let Some(event) = event {
            self.tell(&event);
        }
    }
}

impl Server {
    /// Listens, for TCP and UDP on one port; nothing is accepted before [`Server::run`].
    pub fn bind(listen: SocketAddr) -> Result<Self> {
        /// A port that is free for TCP may be taken for UDP: where the kernel chooses, it may choose again.
        const CHOICES: u32 = 8;
        let mut tried = 0;
        loop {
            tried += 1;
            let listener = socket::listen(listen, &Requested::default())?;
            let at = listener
                .local_addr()
                .map_err(|error| WorkloadError::os("read", "the address of the listening socket", error))?;
            let datagrams = match udp::bind(at, &Requested::default()) {
                Ok(datagrams) => datagrams,
                Err(_) if listen.port() == 0 && tried < CHOICES => continue,
                Err(error) => return Err(error.into()),
            };
            listener
                .set_nonblocking(true)
                .and_then(|()| datagrams.set_nonblocking(true))
                .map_err(|error| WorkloadError::os("prepare", "the listening sockets", error))?;
            return Ok(Self { listener, datagrams });
        }
    }

    /// Where it listens, with the port the kernel chose where none was given.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        self.listener
            .local_addr()
            .map_err(|error| WorkloadError::os("read", "the address of the listening socket", error))
    }

    /// Serves until a stop is requested, then ends every session and puts every setting back.
    pub fn run(self, options: ServeOptions, stop: &Stop, observe: Observe) -> Result<()> {
        let (holders, line, strangers) = (Mutex::default(), Mutex::default(), Mutex::default());
        let shared = Arc::new(Shared { options, holders, line, strangers, observe, stop: stop.clone() });
        let mut porch = Porch::new(&shared, self.listener, self.datagrams)?;
        while shared.stop.requested().is_none() {
            porch.tend()?;
        }
        porch.close();
        Ok(())
    }
}

/// Since when, as people say it.
fn seconds_since(then: MonoNanos) -> u64 {
    clock::now().since(then).as_secs()
}
