//! What a run is asked to do: the requested side of every option, as the client sends it to the server.
//!
//! A specification is checked once, by [`StreamSpec::check`], at both ends: the server trusts no client to have done
//! so, and its limits bound what a session can make it allocate or how long it can hold it.

use std::fmt;
use std::time::Duration;

use haul_host::socket::Requested;
use haul_host::thread::CpuList;
use haul_stats::ByteCount;
use serde::{Deserialize, Serialize};

/// The default message: below about 64 KiB a stream is bound by calls and segments, not by bytes (16 KiB halves the
/// throughput of a veth pair), and above 128 KiB nothing more is gained.
pub const DEFAULT_MESSAGE: ByteCount = ByteCount(128 << 10);

/// The largest message: one buffer per flow is allocated at each end.
pub const MAX_MESSAGE: ByteCount = ByteCount(64 << 20);

/// The most memory for the buffers of one end: filling it takes about a second.
pub const MAX_BUFFERS: ByteCount = ByteCount(1 << 30);

/// The most flows of one run: each takes a descriptor at each end and the usual limit is 1,024.
pub const MAX_FLOWS: u32 = 1_000;

/// The longest warm-up plus window a server agrees to, so that no client can hold it for ever.
pub const MAX_LIFETIME: Duration = Duration::from_hours(24);

/// How long a data connection may go without an acknowledgement before its kernel gives it up: longer than the control
/// connection's own silence, which names the fault better.
const DATA_TIMEOUT: Duration = Duration::from_secs(15);

/// Which way the payload goes, seen from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The client sends, the server receives.
    Send,
    /// The server sends, the client receives.
    Receive,
}

/// Where the bytes of a message come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Payload {
    /// One random buffer, with a fresh 64-bit count written into every 1,408 bytes of it before each send: no full
    /// packet's payload repeats, and the source stays in cache as it does for a program that has just made its data.
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

/// A TCP stream: every flow moves bytes one way as fast as it can for a fixed time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSpec {
    /// Which way the payload goes.
    pub direction: Direction,
    /// Data connections.
    pub flows: u32,
    /// Bytes given to each send call, and the size of the receive buffer.
    pub message: ByteCount,
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
    /// Time the flows run before the window opens.
    pub warmup: Duration,
    /// Length of the measured window.
    pub window: Duration,
    /// Length of the intervals the window is cut into; `None` for none.
    pub interval: Option<Duration>,
    /// Placement of the worker threads.
    pub pin: Pin,
}

impl Default for StreamSpec {
    fn default() -> Self {
        Self {
            direction: Direction::Send,
            flows: 1,
            message: DEFAULT_MESSAGE,
            sndbuf: None,
            rcvbuf: None,
            nodelay: false,
            cc: None,
            payload: Payload::default(),
            warmup: Duration::from_secs(1),
            window: Duration::from_secs(10),
            interval: None,
            pin: Pin::default(),
        }
    }
}

impl fmt::Display for StreamSpec {
    /// What a server logs: "1 flow of 128K messages, received, for 10s".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flows, message, window, .. } = self;
        let (plural, way) = (
            if *flows == 1 { "" } else { "s" },
            match self.direction {
                Direction::Send => "from the client",
                Direction::Receive => "to the client",
            },
        );
        write!(f, "TCP stream {way}, {flows} flow{plural}, {message} messages, {window:?}")
    }
}

/// A specification that cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// No flow, or more than one end can hold.
    #[error("{0} flows: give 1 to {MAX_FLOWS}")]
    Flows(u32),
    /// An empty or oversized message.
    #[error("a message of {0} bytes: give 1 to {MAX_MESSAGE}")]
    Message(u64),
    /// More buffers than one end can be expected to fill.
    #[error(
        "{flows} flows with messages of {message}: their buffers are more than {MAX_BUFFERS} at each end"
    )]
    Buffers {
        /// The flows.
        flows: u32,
        /// The message.
        message: ByteCount,
    },
    /// A window too short to mean anything or too long to allow.
    #[error("a window of {0:?}: give 10ms to 24h, warm-up included")]
    Window(Duration),
    /// An interval that does not divide the window sensibly.
    #[error(
        "an interval of {0:?}: give at least 10ms, not more than the window, and not more than 100,000 of them"
    )]
    Interval(Duration),
    /// A name that cannot be a congestion control.
    #[error("'{0}' is no congestion control's name")]
    Cc(String),
}

impl StreamSpec {
    /// Warm-up and window together: how long the flows run.
    #[must_use]
    pub fn lifetime(&self) -> Duration {
        self.warmup.saturating_add(self.window)
    }

    /// What each data socket is asked for, at both ends.
    #[must_use]
    pub fn sockets(&self) -> Requested {
        Requested {
            sndbuf: self.sndbuf,
            rcvbuf: self.rcvbuf,
            nodelay: self.nodelay,
            cc: self.cc.clone(),
            user_timeout: Some(DATA_TIMEOUT),
        }
    }

    /// The placement asked for at one end.
    #[must_use]
    pub fn pin_of(&self, client: bool) -> Option<&CpuList> {
        if client { self.pin.client.as_ref() } else { self.pin.server.as_ref() }
    }

    /// Says what of it cannot be run.
    pub fn check(&self) -> Result<(), SpecError> {
        if self.flows == 0 || self.flows > MAX_FLOWS {
            return Err(SpecError::Flows(self.flows));
        }
        if self.message.0 == 0 || self.message > MAX_MESSAGE {
            return Err(SpecError::Message(self.message.0));
        }
        if self.message.0.saturating_mul(u64::from(self.flows)) > MAX_BUFFERS.0 {
            return Err(SpecError::Buffers { flows: self.flows, message: self.message });
        }
        // 10 ms is the resolution of the CPU counters of most kernels: a shorter window has no CPU figure at all.
        if self.window < Duration::from_millis(10) || self.lifetime() > MAX_LIFETIME {
            return Err(SpecError::Window(self.window));
        }
        if let Some(interval) = self.interval
            && (interval < Duration::from_millis(10)
                || interval > self.window
                || self.window.as_nanos() / interval.as_nanos() > 100_000)
        {
            return Err(SpecError::Interval(interval));
        }
        // The kernel's own limit is TCP_CA_NAME_MAX, 16 bytes with the terminating zero (include/net/tcp.h).
        if let Some(cc) = &self.cc
            && (cc.is_empty()
                || cc.len() > 15
                || !cc.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'))
        {
            return Err(SpecError::Cc(cc.clone()));
        }
        Ok(())
    }
}
