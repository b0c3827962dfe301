//! What a run is asked to do: the requested side of every option, as the client sends it to the server.
//!
//! A specification is checked once, by [`StreamSpec::check`], at both ends: the server trusts no client to have done
//! so, and its limits bound what a session can make it allocate or how long it can hold it.

use std::fmt;
use std::time::Duration;

use haul_host::socket::Requested;
use haul_host::thread::CpuList;
use haul_stats::{BitRate, ByteCount};
use serde::{Deserialize, Serialize};

use crate::mode::{RecvWith, SendWith};

/// The default message: below about 64 KiB a stream is bound by calls and segments, not by bytes (16 KiB halves the
/// throughput of a veth pair), and above 128 KiB nothing more is gained.
pub const DEFAULT_MESSAGE: ByteCount = ByteCount(128 << 10);

/// The largest message: one buffer per flow is allocated at each end.
pub const MAX_MESSAGE: ByteCount = ByteCount(64 << 20);

/// The most memory for the buffers of one end: filling it takes about a second.
pub const MAX_BUFFERS: ByteCount = ByteCount(1 << 30);

/// The largest offset past a page boundary: one more is the next page.
pub const MAX_OFFSET: ByteCount = ByteCount(4095);

/// The most flows of one run: each takes a descriptor at each end and the usual limit is 1,024.
pub const MAX_FLOWS: u32 = 1_000;

/// What a segment may hold: `TCP_MIN_MSS` and `MAX_TCP_WINDOW` of include/net/tcp.h, the kernel's own bounds.
pub const MSS: std::ops::RangeInclusive<u32> = 88..=32_767;

/// The fewest messages of a flow in a window that make a rate: with fewer, where the window's edges fall decides.
const LEAST_MESSAGES: u32 = 10;

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
    /// How the sender hands them over.
    pub send_with: SendWith,
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
            send_with: SendWith::default(),
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
    /// An offset that reaches the next page.
    #[error("an offset of {0} bytes: give 0 to {most} bytes past the page boundary", most = MAX_OFFSET.0)]
    Offset(u64),
    /// No rate at all.
    #[error("a rate of 0: give bits per second, as 10M or 1G, or leave --rate out for as fast as it goes")]
    Rate,
    /// A rate at which too few messages fit into the window.
    #[error(
        "at {rate} a flow sends a message of {message} every {every:.2?}, and fewer than {LEAST_MESSAGES} fit into the window: \
         give a --message of {most} or less, or a longer --time"
    )]
    Coarse {
        /// The rate of all flows.
        rate: BitRate,
        /// The message.
        message: ByteCount,
        /// How long one takes at that rate.
        every: Duration,
        /// The largest that does.
        most: ByteCount,
    },
    /// A segment the kernel does not allow.
    #[error("segments of {0} bytes: give {least} to {most}", least = MSS.start(), most = MSS.end())]
    Mss(u32),
    /// Bits that TCP sets itself.
    #[error(
        "a type of service of {0:#04x}: the two low bits are ECN's, and TCP sets them; give a multiple of 4, as 0xb8 for DSCP 46 (EF)"
    )]
    Tos(u8),
    /// Options that exclude each other.
    #[error("{what}: {remedy}")]
    Combination {
        /// What does not go together, and why.
        what: &'static str,
        /// What to do instead.
        remedy: &'static str,
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

impl SpecError {
    /// Whether another option can make it right.
    #[must_use]
    pub fn depends_on_others(&self) -> bool {
        matches!(self, Self::Coarse { .. } | Self::Combination { .. } | Self::Interval(_))
    }
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
            mss: self.mss,
            tos: self.tos,
            user_timeout: Some(DATA_TIMEOUT),
            ..Requested::default()
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
        for offset in [self.send_offset, self.recv_offset] {
            if offset > MAX_OFFSET {
                return Err(SpecError::Offset(offset.0));
            }
        }
        self.check_combinations()?;
        self.check_rate()?;
        if let Some(mss) = self.mss.filter(|mss| !MSS.contains(mss)) {
            return Err(SpecError::Mss(mss));
        }
        if let Some(tos) = self.tos.filter(|tos| tos & 3 != 0) {
            return Err(SpecError::Tos(tos));
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

    /// Says whether the rate is one, given the message and the window.
    fn check_rate(&self) -> Result<(), SpecError> {
        const NANOS: u128 = 1_000_000_000;
        let Some(rate) = self.rate else { return Ok(()) };
        if rate.0 == 0 {
            return Err(SpecError::Rate);
        }
        let (asked, flows) = (u128::from(rate.0), u128::from(self.flows));
        let every = u128::from(self.message.0) * 8 * flows * NANOS / asked;
        let longest = self.window.as_nanos() / u128::from(LEAST_MESSAGES);
        if every > longest {
            // At least a byte: a rate that does not even allow that wants a longer window, as the text says.
            let most = (longest * asked / (8 * flows * NANOS)).max(1);
            return Err(SpecError::Coarse {
                rate,
                message: self.message,
                every: Duration::from_nanos(u64::try_from(every).unwrap_or(u64::MAX)),
                most: ByteCount(u64::try_from(most).unwrap_or(u64::MAX)),
            });
        }
        Ok(())
    }

    /// Says which options exclude each other.
    fn check_combinations(&self) -> Result<(), SpecError> {
        const PAGE: u64 = 4096;
        let no = |what, remedy| Err(SpecError::Combination { what, remedy });
        if self.send_with.is_from_file() && self.send_offset.0 > 0 {
            return no(
                "sendfile and splice send pages of a file, and a send offset is one into a buffer",
                "use --send-with write or zerocopy, or leave --send-offset out",
            );
        }
        if self.recv_with == RecvWith::Discard && self.recv_offset.0 > 0 {
            return no(
                "a receiver that discards has no buffer that anything is copied to",
                "use --recv-with read, or leave --recv-offset out",
            );
        }
        if self.send_with == SendWith::Zerocopy && self.payload == Payload::Fresh {
            return no(
                "zerocopy sends from a ring of buffers and does not walk 64 MiB",
                "use --payload stamped or repeat, or --send-with write",
            );
        }
        if self.payload == Payload::Fresh && self.send_offset.0 > 0 && !self.message.0.is_multiple_of(PAGE) {
            return no(
                "a fresh payload is walked message by message, and only whole pages keep their offset",
                "give --message as a multiple of 4K, or use --payload stamped",
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_exclude_each_other_are_refused_with_the_remedy() {
        let base = StreamSpec::default;
        let (one, odd) = (ByteCount(1), ByteCount(1000));
        let cases = [
            (StreamSpec { send_with: SendWith::Sendfile, send_offset: one, ..base() }, "--send-with write"),
            (StreamSpec { send_with: SendWith::Splice, send_offset: one, ..base() }, "--send-with write"),
            (StreamSpec { recv_with: RecvWith::Discard, recv_offset: one, ..base() }, "--recv-with read"),
            (StreamSpec { send_with: SendWith::Zerocopy, payload: Payload::Fresh, ..base() }, "stamped"),
            (StreamSpec { payload: Payload::Fresh, send_offset: one, message: odd, ..base() }, "multiple"),
            (StreamSpec { send_offset: ByteCount(4096), ..base() }, "0 to 4095"),
            (StreamSpec { recv_offset: ByteCount(4096), ..base() }, "0 to 4095"),
            (StreamSpec { rate: Some(BitRate(0)), ..base() }, "leave --rate out"),
            (StreamSpec { rate: Some(BitRate(1)), ..base() }, "longer --time"),
            (StreamSpec { mss: Some(87), ..base() }, "88 to 32767"),
            (StreamSpec { mss: Some(32_768), ..base() }, "88 to 32767"),
            (StreamSpec { tos: Some(0x11), ..base() }, "a multiple of 4"),
        ];
        for (spec, remedy) in cases {
            let error = spec.check().expect_err(remedy).to_string();
            assert!(error.contains(remedy), "{error}");
        }
        for send_with in SendWith::ALL {
            for recv_with in RecvWith::ALL {
                assert_eq!(StreamSpec { send_with, recv_with, ..base() }.check(), Ok(()));
            }
        }
        let slow = StreamSpec { rate: Some(BitRate(1_000_000)), window: Duration::from_secs(1), ..base() };
        let text = slow.check().expect_err("coarse").to_string();
        assert!(text.contains("1.05s") && text.contains("--message of 12500 or less"), "{text}");
        assert_eq!(StreamSpec { message: ByteCount(12_500), ..slow }.check(), Ok(()));
        let both = StreamSpec { send_offset: one, recv_offset: MAX_OFFSET, ..base() };
        assert_eq!(both.check(), Ok(()));
    }
}
