//! What a run is asked to do: the requested side of every option, as the client sends it to the server.
//!
//! One flat specification serves all workloads, because an arm or a sweep names an option without knowing what else is
//! asked for; [`RunSpec::check`] says what does not go together. It is checked at both ends: the server trusts no client
//! to have done so, and its limits bound what a session can make it allocate or how long it can hold it.
//!
//! A run has one or more *legs* ([`RunSpec::legs`]) that start together, each a workload in one direction over flows of
//! its own: a stream both ways is two, a stream with a latency probe beside it is a stream and an exchange.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use haul_host::socket::Requested;
use haul_host::thread::CpuList;
use haul_stats::{BitRate, ByteCount, PerSecond};
use serde::{Deserialize, Serialize};

use crate::mode::{RecvWith, SendWith};

mod check;

pub use check::SpecError;

/// The default message: below about 64 KiB a stream is bound by calls and segments, not by bytes (16 KiB halves the
/// throughput of a veth pair), and above 128 KiB nothing more is gained.
pub const DEFAULT_MESSAGE: ByteCount = ByteCount(128 << 10);

/// The largest message: one buffer per flow is allocated at each end.
pub const MAX_MESSAGE: ByteCount = ByteCount(64 << 20);

/// The most memory for the buffers of one end: filling it takes about a second.
pub const MAX_BUFFERS: ByteCount = ByteCount(1 << 30);

/// The largest offset past a page boundary: one more is the next page.
pub const MAX_OFFSET: ByteCount = ByteCount(4095);

/// The most flows of one run: each takes a descriptor at each end.
pub const MAX_FLOWS: u32 = 10_000;

/// The most worker threads at an end: beyond the CPUs of any one host they only take turns.
pub const MAX_THREADS: u32 = 1_024;

/// The largest request or response of an exchange, and the most of them a flow may have under way.
pub const MAX_EXCHANGE: ByteCount = ByteCount(16 << 20);

/// The most requests of one flow under way.
pub const MAX_IN_FLIGHT: u32 = 4_096;

/// The most transactions a second that can be asked for: a hundred times what the fastest loop on one CPU makes.
pub const MAX_PACE: PerSecond = PerSecond(100_000_000);

/// The most payload of a UDP datagram: 65,535 less the headers of IPv4 and UDP.
pub const MAX_DATAGRAM: ByteCount = ByteCount(65_507);

/// The most datagrams handed over in one call: `UIO_MAXIOV`.
pub const MAX_BATCH: u32 = 1_024;

/// What a segment may hold: `TCP_MIN_MSS` and `MAX_TCP_WINDOW` of include/net/tcp.h, the kernel's own bounds.
pub const MSS: std::ops::RangeInclusive<u32> = 88..=32_767;

/// The fewest messages of a flow in a window that make a rate: with fewer, where the window's edges fall decides.
const LEAST_MESSAGES: u32 = 10;

/// The longest warm-up plus window a server agrees to, so that no client can hold it for ever.
pub const MAX_LIFETIME: Duration = Duration::from_hours(24);

/// The most events of a run, and the most bytes of the name of one: a kernel has some thousand, and a CPU counts a few at a
/// time.
pub const MAX_EVENTS: usize = 64;

/// The most bytes of an event's name.
pub const MAX_EVENT_NAME: usize = 128;

/// The samples a second and CPU that may be asked for: beyond, the sampling is what is measured.
pub const PROFILE_HZ: std::ops::RangeInclusive<u32> = 1..=20_000;

/// How long a data connection may go without an acknowledgement before its kernel gives it up: longer than the control
/// connection's own silence, which names the fault better.
const DATA_TIMEOUT: Duration = Duration::from_secs(15);

/// What is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Every flow moves bytes one way, as fast as it can or at a rate.
    #[default]
    Stream,
    /// Every flow exchanges requests and responses.
    Rr,
    /// Every transaction is a connection of its own: connect, request, response, close.
    Crr,
}

/// What carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Byte streams.
    #[default]
    Tcp,
    /// Datagrams.
    Udp,
}

/// Which way the payload goes, seen from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The client sends, the server receives.
    Send,
    /// The server sends, the client receives.
    Receive,
    /// Both at once, each over flows of its own.
    Both,
}

impl Direction {
    /// Its name on the command line and in the record.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Both => "both",
        }
    }
}

/// Where the worker threads run, beside what is pinned by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// Wherever the scheduler puts them.
    #[default]
    Free,
    /// A flow's two threads share a CPU where one kernel runs both ends; between two hosts each flow is served by a
    /// thread on the CPU that its packets arrive on.
    Pair,
}

/// A request/response exchange beside a stream, to see what the load does to latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Probe {
    /// Transactions per second.
    pub rate: PerSecond,
}

/// What is looked at beside the workload, at each end.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Observe {
    /// Events to count, in groups: those of one group are on the counters together. Each is a name that
    /// [`Event::parse`](haul_host::probe::counters::Event::parse) knows, at the end that counts.
    pub events: Vec<Vec<String>>,
    /// Samples a second and CPU, where the CPUs are sampled.
    pub profile_hz: Option<u32>,
    /// Whose whole host is looked at, beside the threads of either end.
    pub hosts: Hosts,
    /// Why this end takes no profile, whatever it was asked for: its own word, which is not sent.
    #[serde(skip)]
    pub refused: Option<String>,
}

/// Whose host is looked at as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hosts {
    /// Each end looks at its own.
    #[default]
    Both,
    /// Both ends run on one kernel, which the client looks at.
    Client,
    /// Another leg of the run does that.
    Neither,
}

impl Hosts {
    /// Whether an end looks at its host.
    #[must_use]
    pub fn includes(self, client: bool) -> bool {
        match self {
            Self::Both => true,
            Self::Client => client,
            Self::Neither => false,
        }
    }
}

/// Where the bytes of a message come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Payload {
    /// One random buffer, with a fresh 64-bit count written into every 16 KiB of it before each send: no 32 KiB of
    /// payload repeat, and the source stays in cache as it does for a program that has just made its data.
    #[default]
    Stamped,
    /// 64 MiB of random data, walked: nothing repeats within that span, and the source comes from memory or the last
    /// cache level (a half to two thirds less throughput on the machine this was tried on).
    Fresh,
    /// The same buffer each time, as most peers do it.
    Repeat,
}

/// Which CPUs the worker threads of each end may use.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Pin {
    /// The client's; `None` leaves the scheduler free.
    pub client: Option<CpuList>,
    /// The server's.
    pub server: Option<CpuList>,
}

/// What one run does, with every option as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own, on or off")]
pub struct RunSpec {
    /// What is run.
    pub workload: Workload,
    /// Over what.
    pub transport: Transport,
    /// Which way the payload goes.
    pub direction: Direction,
    /// Flows: data connections, or UDP address pairs; of each direction where there are two.
    pub flows: u32,
    /// Worker threads at each end; `None` for one per CPU.
    pub threads: Option<u32>,
    /// Bytes given to each send call, and the size of the receive buffer; of UDP, the payload of a datagram.
    pub message: ByteCount,
    /// Whether `message` is to be what fits the path's MTU, whatever it says (UDP).
    pub fit_message: bool,
    /// Payload of all flows of a direction after which the run is over; `None` for as long as the window is.
    pub bytes: Option<ByteCount>,
    /// Whether trains of datagrams are handed over as one (`UDP_SEGMENT`).
    pub segment: bool,
    /// Whether the receiver takes datagrams of a train as one (`UDP_GRO`).
    pub gro: bool,
    /// Datagrams handed over, or taken, in one call.
    pub batch: u32,
    /// Whether datagrams may be cut up on the way; `None` is the kernel's own choice.
    pub dont_fragment: Option<bool>,
    /// Bytes of a request.
    pub request: ByteCount,
    /// Bytes of a response.
    pub response: ByteCount,
    /// Requests a flow has under way at most.
    pub in_flight: u32,
    /// Transactions per second of all flows together, begun on time whatever the last one took; `None` begins one when
    /// one has ended.
    pub pace: Option<PerSecond>,
    /// How long a UDP response is waited for before the request is sent again.
    pub timeout: Duration,
    /// Whether the threads ask again and again instead of sleeping.
    pub spin: bool,
    /// How long the kernel polls the device for a blocked call (`SO_BUSY_POLL`), in microseconds.
    pub busy_poll_us: Option<u32>,
    /// Whether connections of `crr` are closed by a reset, which leaves no `TIME_WAIT` behind.
    pub reset: bool,
    /// An exchange beside a stream.
    pub probe: Option<Probe>,
    /// The client's device, whatever the route says.
    pub bind_device: Option<String>,
    /// Firewall mark of the client's packets.
    pub mark: Option<u32>,
    /// Where the threads run.
    pub placement: Placement,
    /// Requested send buffer; `None` leaves it to the kernel's autotuning.
    pub sndbuf: Option<ByteCount>,
    /// Requested receive buffer.
    pub rcvbuf: Option<ByteCount>,
    /// `TCP_NODELAY` on every data socket.
    pub nodelay: bool,
    /// Congestion control of the sender's sockets; `None` is the host's default.
    pub cc: Option<String>,
    /// Source of the bytes.
    pub payload: Payload,
    /// How the sender hands them over.
    pub send_with: SendWith,
    /// The client's file that is sent, where it is not one in memory. Its path is told to the server with all else, which
    /// never opens it.
    #[serde(serialize_with = "as_text")]
    pub send_file: Option<PathBuf>,
    /// How the receiver takes them.
    pub recv_with: RecvWith,
    /// Where each message begins, in bytes past a page boundary.
    pub send_offset: ByteCount,
    /// Where the receive buffer begins, likewise.
    pub recv_offset: ByteCount,
    /// The rate all flows together are held to; `None` for as fast as they can.
    pub rate: Option<BitRate>,
    /// The largest segment; `None` is what the path allows.
    pub mss: Option<u32>,
    /// Type of service (IPv4) or traffic class (IPv6) of the packets of both ends.
    pub tos: Option<u8>,
    /// Time the flows run before the window opens.
    pub warmup: Duration,
    /// Length of the measured window.
    pub window: Duration,
    /// Length of the intervals the window is cut into; `None` for none.
    pub interval: Option<Duration>,
    /// Placement of the worker threads.
    pub pin: Pin,
    /// What is looked at beside the workload.
    pub observe: Observe,
}

/// A path as the other end may read of it, who never opens it: names need not be text, and JSON has no other.
#[expect(clippy::ref_option, reason = "serde passes the field itself")]
fn as_text<S: serde::Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.to_string_lossy()).serialize(to)
}

impl Default for RunSpec {
    fn default() -> Self {
        Self {
            workload: Workload::Stream,
            transport: Transport::Tcp,
            direction: Direction::Send,
            flows: 1,
            threads: None,
            message: DEFAULT_MESSAGE,
            fit_message: false,
            bytes: None,
            segment: false,
            gro: false,
            batch: 1,
            dont_fragment: None,
            request: ByteCount(1),
            response: ByteCount(1),
            in_flight: 1,
            pace: None,
            timeout: Duration::from_millis(200),
            spin: false,
            busy_poll_us: None,
            reset: false,
            probe: None,
            bind_device: None,
            mark: None,
            placement: Placement::Free,
            sndbuf: None,
            rcvbuf: None,
            nodelay: false,
            cc: None,
            payload: Payload::default(),
            send_with: SendWith::default(),
            send_file: None,
            recv_with: RecvWith::default(),
            send_offset: ByteCount(0),
            recv_offset: ByteCount(0),
            rate: None,
            mss: None,
            tos: None,
            warmup: Duration::from_secs(1),
            window: Duration::from_secs(10),
            interval: None,
            pin: Pin::default(),
            observe: Observe::default(),
        }
    }
}

impl fmt::Display for RunSpec {
    /// What a server logs: "TCP stream from the client, 1 flow, 128K messages, 10s".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flows, message, request, response, window, .. } = self;
        let over = match self.transport {
            Transport::Tcp => "TCP",
            Transport::Udp => "UDP",
        };
        let plural = if *flows == 1 { "" } else { "s" };
        match self.workload {
            Workload::Stream => {
                let way = match self.direction {
                    Direction::Send => "from the client",
                    Direction::Receive => "to the client",
                    Direction::Both => "both ways",
                };
                write!(f, "{over} stream {way}, {flows} flow{plural}, {message} messages, {window:?}")
            }
            Workload::Rr => {
                write!(f, "{over} exchange, {flows} flow{plural}, {request}/{response} bytes, {window:?}")
            }
            Workload::Crr => {
                write!(f, "{over} connections, {flows} at a time, {request}/{response} bytes, {window:?}")
            }
        }
    }
}

impl RunSpec {
    /// Warm-up and window together: how long the flows run.
    #[must_use]
    pub fn lifetime(&self) -> Duration {
        self.warmup.saturating_add(self.window)
    }

    /// The legs of the run: what starts together, each in one direction over flows of its own.
    #[must_use]
    pub fn legs(&self) -> Vec<Self> {
        let one = |direction| Self { direction, probe: None, ..self.clone() };
        let mut legs = match self.direction {
            Direction::Both if self.workload == Workload::Stream => {
                vec![one(Direction::Send), one(Direction::Receive)]
            }
            direction => vec![one(direction)],
        };
        if let Some(probe) = self.probe {
            legs.push(self.probing(probe));
        }
        // They run at the same time on the same hosts: one look is enough.
        for leg in legs.iter_mut().skip(1) {
            leg.observe =
                Observe { profile_hz: None, hosts: Hosts::Neither, ..std::mem::take(&mut leg.observe) };
        }
        legs
    }

    /// The exchange that measures latency beside the rest: its own socket options are the kernel's defaults, because it
    /// stands for somebody else's traffic.
    #[must_use]
    pub fn probing(&self, probe: Probe) -> Self {
        Self {
            workload: Workload::Rr,
            pace: Some(probe.rate),
            nodelay: true,
            in_flight: MAX_IN_FLIGHT,
            tos: self.tos,
            bind_device: self.bind_device.clone(),
            mark: self.mark,
            warmup: self.warmup,
            window: self.window,
            ..Self::default()
        }
    }

    /// The run that measures the probe's latency without the load: as long as the loaded one where that is short.
    #[must_use]
    pub fn idle(&self) -> Self {
        const LONGEST: Duration = Duration::from_secs(3);
        let alone = self.probing(self.probe.unwrap_or(Probe { rate: PerSecond(1) }));
        let warmup = self.warmup.min(Duration::from_millis(200));
        Self { window: self.window.min(LONGEST), warmup, ..alone }
    }

    /// Whether the client leads at this workload: it sends, or asks.
    #[must_use]
    pub fn client_leads(&self) -> bool {
        self.workload != Workload::Stream || self.direction == Direction::Send
    }

    /// Flows that are connected before the start: `crr` makes its own as it goes.
    #[must_use]
    pub fn connections(&self) -> u32 {
        if self.workload == Workload::Crr { 0 } else { self.flows }
    }

    /// What each data socket of an end is asked for.
    #[must_use]
    pub fn sockets(&self, client: bool) -> Requested {
        Requested {
            sndbuf: self.sndbuf,
            rcvbuf: self.rcvbuf,
            nodelay: self.nodelay,
            cc: self.cc.clone(),
            mss: self.mss,
            tos: self.tos,
            user_timeout: Some(DATA_TIMEOUT),
            // A device and a mark are of the host they are on: of the client's, where they were given.
            bind_device: self.bind_device.clone().filter(|_| client),
            mark: self.mark.filter(|_| client),
            busy_poll_us: self.busy_poll_us,
            dont_fragment: self.dont_fragment,
        }
    }

    /// The placement asked for at one end.
    #[must_use]
    pub fn pin_of(&self, client: bool) -> Option<&CpuList> {
        if client { self.pin.client.as_ref() } else { self.pin.server.as_ref() }
    }
}
