//! What of a specification cannot be run, and what to do instead.

use std::time::Duration;

use haul_stats::{BitRate, ByteCount};

use super::{
    Direction, LEAST_MESSAGES, MAX_BATCH, MAX_BUFFERS, MAX_DATAGRAM, MAX_EVENT_NAME, MAX_EVENTS,
    MAX_EXCHANGE, MAX_FLOWS, MAX_IN_FLIGHT, MAX_LIFETIME, MAX_MESSAGE, MAX_OFFSET, MAX_PACE, MAX_THREADS,
    MSS, PROFILE_HZ, Payload, Placement, RunSpec, Transport, Workload,
};
use crate::mode::{RecvWith, SendWith};
use crate::stream;

/// A specification that cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A measurement on this host alone that cannot be: of which object, why, and the remedy.
    #[error("{0}")]
    Local(String),
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
        "an interval of {0:?} in a window of up to {1:?}: give at least 10ms, not more than the window, and not more than \
         100,000 of them"
    )]
    Interval(Duration, Duration),
    /// A datagram larger than IP carries.
    #[error("a datagram of {0} bytes: give 1 to {most}", most = MAX_DATAGRAM.0)]
    Datagram(u64),
    /// A datagram that has to fit a packet, and does not.
    #[error(
        "datagrams of {message} bytes do not fit packets of {mtu} bytes, the path's MTU, and may not be cut up: give a --message \
         of {most} or less, or leave --segment and --dont-fragment out"
    )]
    Unfit {
        /// The datagram.
        message: u64,
        /// The path's MTU.
        mtu: u32,
        /// The largest that fits.
        most: u64,
    },
    /// A request or response that is empty or too large.
    #[error("a {which} of {bytes} bytes: give 1 to {most}")]
    Exchange {
        /// `request` or `response`.
        which: &'static str,
        /// What was asked for.
        bytes: u64,
        /// The most of this transport.
        most: ByteCount,
    },
    /// No request under way, or more than a flow can keep.
    #[error("{0} requests under way in a flow: give 1 to {MAX_IN_FLIGHT}")]
    InFlight(u32),
    /// No thread, or more than any host has use for.
    #[error("{0} threads: give 1 to {MAX_THREADS}")]
    Threads(u32),
    /// No datagram in a call, or more than the kernel takes.
    #[error("{0} datagrams in a call: give 1 to {MAX_BATCH}")]
    Batch(u32),
    /// A wait that no response could meet, or that no run could end with.
    #[error("a timeout of {0:?}: give 1ms to 10s")]
    Timeout(Duration),
    /// No payload at all.
    #[error("0 bytes to move: give a size, as 1G, or leave --bytes out and give --time")]
    Bytes,
    /// A device's name that cannot be one.
    #[error("'{0}' is no network device's name")]
    Device(String),
    /// More events than a run counts.
    #[error("{0} events to count: give {MAX_EVENTS} at most, in groups of a few")]
    Events(usize),
    /// A name that cannot be an event.
    #[error("'{0}' is no event's name: give one as cycles, context-switches, r01c2 or sched:sched_switch")]
    Event(String),
    /// A rate of sampling that cannot be.
    #[error("{0} samples a second: give {least} to {most}", least = PROFILE_HZ.start(), most = PROFILE_HZ.end())]
    ProfileHz(u32),
    /// A name that cannot be a congestion control.
    #[error("'{0}' is no congestion control's name")]
    Cc(String),
}

impl SpecError {
    /// Whether another option can make it right.
    #[must_use]
    pub fn depends_on_others(&self) -> bool {
        matches!(
            self,
            Self::Coarse { .. } | Self::Combination { .. } | Self::Interval(..) | Self::Unfit { .. }
        )
    }
}

impl RunSpec {
    /// Says what of it cannot be run.
    pub fn check(&self) -> Result<(), SpecError> {
        if self.flows == 0 || self.flows > MAX_FLOWS {
            return Err(SpecError::Flows(self.flows));
        }
        if let Some(threads) = self.threads.filter(|threads| !(1..=MAX_THREADS).contains(threads)) {
            return Err(SpecError::Threads(threads));
        }
        match self.workload {
            Workload::Stream => self.check_stream()?,
            Workload::Rr | Workload::Crr => self.check_exchange()?,
        }
        if let Some(name) = &self.bind_device
            // dev_valid_name() of net/core/dev.c.
            && (name.is_empty()
                || name.len() > 15
                || matches!(name.as_str(), "." | "..")
                || name.bytes().any(|b| b == b'/' || b == b':' || b.is_ascii_whitespace()))
        {
            return Err(SpecError::Device(name.clone()));
        }
        self.check_combinations()?;
        self.check_rate()?;
        self.check_observe()?;
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
            return Err(SpecError::Interval(interval, self.window));
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

    /// Says what cannot be looked at, or not so often. Whether a host knows an event is found out there.
    fn check_observe(&self) -> Result<(), SpecError> {
        let events: usize = self.observe.events.iter().map(|group| group.len().max(1)).sum();
        if events > MAX_EVENTS {
            return Err(SpecError::Events(events));
        }
        let nameless = |name: &&String| {
            name.is_empty() || name.len() > MAX_EVENT_NAME || name.chars().any(|c| c.is_control() || c == ' ')
        };
        if let Some(name) = self.observe.events.iter().flatten().find(nameless) {
            return Err(SpecError::Event(name.clone()));
        }
        match self.observe.profile_hz.filter(|hz| !PROFILE_HZ.contains(hz)) {
            Some(hz) => Err(SpecError::ProfileHz(hz)),
            None => Ok(()),
        }
    }

    /// Says what of a stream's own options cannot be run.
    fn check_stream(&self) -> Result<(), SpecError> {
        // What is to fit the path is not known before there is one.
        if !self.fit_message {
            if self.transport == Transport::Udp && (self.message.0 == 0 || self.message > MAX_DATAGRAM) {
                return Err(SpecError::Datagram(self.message.0));
            }
            if self.message.0 == 0 || self.message > MAX_MESSAGE {
                return Err(SpecError::Message(self.message.0));
            }
            let each = self.message.0.saturating_mul(u64::from(self.batch));
            if each.saturating_mul(u64::from(self.flows)) > MAX_BUFFERS.0 {
                return Err(SpecError::Buffers { flows: self.flows, message: self.message });
            }
        }
        if !(1..=MAX_BATCH).contains(&self.batch) {
            return Err(SpecError::Batch(self.batch));
        }
        for offset in [self.send_offset, self.recv_offset] {
            if offset > MAX_OFFSET {
                return Err(SpecError::Offset(offset.0));
            }
        }
        if self.bytes == Some(ByteCount(0)) {
            return Err(SpecError::Bytes);
        }
        Ok(())
    }

    /// Says what of an exchange's own options cannot be run.
    fn check_exchange(&self) -> Result<(), SpecError> {
        let most = if self.transport == Transport::Udp { MAX_DATAGRAM } else { MAX_EXCHANGE };
        for (which, bytes) in [("request", self.request), ("response", self.response)] {
            if bytes.0 == 0 || bytes > most {
                return Err(SpecError::Exchange { which, bytes: bytes.0, most });
            }
            if bytes.0.saturating_mul(u64::from(self.flows)) > MAX_BUFFERS.0 {
                return Err(SpecError::Buffers { flows: self.flows, message: bytes });
            }
        }
        if !(1..=MAX_IN_FLIGHT).contains(&self.in_flight) {
            return Err(SpecError::InFlight(self.in_flight));
        }
        if self.timeout < Duration::from_millis(1) || self.timeout > Duration::from_secs(10) {
            return Err(SpecError::Timeout(self.timeout));
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
        if self.workload != Workload::Stream || self.fit_message {
            return Ok(());
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
        let no = |what, remedy| Err(SpecError::Combination { what, remedy });
        if self.pace.or(self.probe.map(|probe| probe.rate)).is_some_and(|pace| pace.0 == 0) {
            return Err(SpecError::Rate);
        }
        if self.pace.is_some_and(|pace| pace > MAX_PACE) {
            return no("more transactions a second than any host makes", "give --rate as 1000/s or 100K/s");
        }
        if self.reset && self.workload != Workload::Crr {
            return no("only crr closes a connection for each transaction", "leave --close out, or use crr");
        }
        let udp = self.transport == Transport::Udp;
        if self.workload == Workload::Crr {
            if udp {
                return no("UDP has no connections to open and close", "use rr --udp");
            }
            if self.in_flight > 1 {
                return no("a connection of crr carries one transaction", "give --flows for more at a time");
            }
        }
        if self.bytes.is_some() && (udp || self.workload != Workload::Stream) {
            return no("only a TCP stream moves an exact amount", "give --time instead of --bytes");
        }
        if self.bytes.is_some() && self.warmup > Duration::ZERO {
            return no("all that a run by amount moves counts, from the first byte", "leave --warmup out");
        }
        if !udp && self.timeout != Self::default().timeout {
            return no("TCP sends again by itself", "leave --timeout out, or add --udp");
        }
        if self.workload != Workload::Stream && self.probe.is_some() {
            return no("a probe stands beside a stream", "use stream --probe, or rr alone");
        }
        if udp {
            if self.send_with != SendWith::Write || self.recv_with != RecvWith::Read {
                return no(
                    "datagrams are sent with send and received with recv",
                    "leave --send-with and --recv-with out, or leave --udp out",
                );
            }
            if self.cc.is_some() || self.mss.is_some() {
                return no("UDP has neither congestion control nor segments", "leave --cc and --mss out");
            }
            if self.send_offset.0 > 0 || self.recv_offset.0 > 0 || self.payload == Payload::Fresh {
                return no(
                    "offsets and a walked payload are for TCP streams",
                    "leave --send-offset, --recv-offset and --payload out, or leave --udp out",
                );
            }
            if self.segment && self.batch > 1 {
                return no("a train of segments is one call already", "give either --segment or --batch");
            }
            if self.workload == Workload::Rr && self.in_flight > 1 && self.request.0.min(self.response.0) < 8
            {
                return no(
                    "several requests under way are told apart by the 8 bytes they begin with",
                    "give --request and --response of 8 or more, or --in-flight 1",
                );
            }
        } else if self.segment
            || self.gro
            || self.batch > 1
            || self.dont_fragment.is_some()
            || self.fit_message
        {
            return no("trains, batches and fragments are of datagrams", "add --udp");
        }
        if self.placement == Placement::Pair && (self.pin.client.is_some() || self.pin.server.is_some()) {
            return no("--placement pair chooses the CPUs itself", "leave --pin out, or --placement");
        }
        self.check_source()
    }

    /// Looks whether the file that is to be sent can be: a regular one, readable, and no shorter than a message. Not part of
    /// [`check`](Self::check), which is made at both ends: the file is the client's.
    ///
    /// # Errors
    /// What is wrong with it, by the name of the option.
    pub fn check_file(&self) -> Result<(), SpecError> {
        let Some(path) = self.send_file.as_deref() else { return Ok(()) };
        let found = stream::source(Some(path), self.payload, self.message);
        found.map(drop).map_err(|error| SpecError::Local(format!("--send-file: {error}")))
    }

    /// What is sent, and where from.
    fn check_source(&self) -> Result<(), SpecError> {
        const PAGE: u64 = 4096;
        let no = |what, remedy| Err(SpecError::Combination { what, remedy });
        if self.send_with.is_from_file() && self.send_offset.0 > 0 {
            return no(
                "sendfile and splice send pages of a file, and a send offset is one into a buffer",
                "use --send-with write or zerocopy, or leave --send-offset out",
            );
        }
        if self.send_file.is_some() {
            if !self.send_with.is_from_file() {
                return no("a file is sent by sendfile or splice", "add --send-with sendfile");
            }
            if self.direction != Direction::Send {
                return no(
                    "only the client's own file can be sent",
                    "use --direction send, or leave --send-file out",
                );
            }
            if self.payload != Payload::default() {
                return no("what is sent is the file", "leave --payload out, or --send-file");
            }
        }
        if self.recv_with != RecvWith::Read && self.recv_offset.0 > 0 {
            return no(
                "a receiver that discards, or maps, has no buffer whose place matters",
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
    use super::super::Probe;
    use super::*;
    use haul_stats::PerSecond;

    #[test]
    fn options_that_exclude_each_other_are_refused_with_the_remedy() {
        let base = RunSpec::default;
        let udp = || RunSpec { transport: Transport::Udp, message: ByteCount(1000), ..base() };
        let (one, odd) = (ByteCount(1), ByteCount(1000));
        let file = || Some("a file".into());
        let cases = [
            (RunSpec { send_with: SendWith::Sendfile, send_offset: one, ..base() }, "--send-with write"),
            (RunSpec { send_with: SendWith::Splice, send_offset: one, ..base() }, "--send-with write"),
            (RunSpec { send_file: file(), ..base() }, "--send-with sendfile"),
            (
                RunSpec {
                    send_file: file(),
                    direction: Direction::Receive,
                    send_with: SendWith::Splice,
                    ..base()
                },
                "--direction send",
            ),
            (
                RunSpec {
                    send_file: file(),
                    payload: Payload::Repeat,
                    send_with: SendWith::Sendfile,
                    ..base()
                },
                "leave --payload out",
            ),
            (RunSpec { recv_with: RecvWith::Discard, recv_offset: one, ..base() }, "--recv-with read"),
            (RunSpec { send_with: SendWith::Zerocopy, payload: Payload::Fresh, ..base() }, "stamped"),
            (RunSpec { payload: Payload::Fresh, send_offset: one, message: odd, ..base() }, "multiple"),
            (RunSpec { send_offset: ByteCount(4096), ..base() }, "0 to 4095"),
            (RunSpec { recv_offset: ByteCount(4096), ..base() }, "0 to 4095"),
            (RunSpec { rate: Some(BitRate(0)), ..base() }, "leave --rate out"),
            (RunSpec { rate: Some(BitRate(1)), ..base() }, "longer --time"),
            (RunSpec { mss: Some(87), ..base() }, "88 to 32767"),
            (RunSpec { mss: Some(32_768), ..base() }, "88 to 32767"),
            (RunSpec { tos: Some(0x11), ..base() }, "a multiple of 4"),
            (RunSpec { threads: Some(0), ..base() }, "1 to 1024"),
            (RunSpec { bytes: Some(ByteCount(0)), ..base() }, "--time"),
            (RunSpec { bytes: Some(one), ..base() }, "leave --warmup out"),
            (RunSpec { bytes: Some(one), warmup: Duration::ZERO, ..udp() }, "give --time"),
            (RunSpec { segment: true, ..base() }, "add --udp"),
            (RunSpec { bind_device: Some("a b".to_owned()), ..base() }, "device"),
            (RunSpec { workload: Workload::Crr, transport: Transport::Udp, ..base() }, "rr --udp"),
            (RunSpec { workload: Workload::Crr, in_flight: 2, ..base() }, "--flows"),
            (RunSpec { workload: Workload::Rr, in_flight: 0, ..base() }, "1 to 4096"),
            (RunSpec { workload: Workload::Rr, request: ByteCount(0), ..base() }, "a request of 0"),
            (
                RunSpec { workload: Workload::Rr, probe: Some(Probe { rate: PerSecond(1) }), ..base() },
                "stream --probe",
            ),
            (RunSpec { pace: Some(PerSecond(0)), workload: Workload::Rr, ..base() }, "leave --rate out"),
            (RunSpec { message: MAX_DATAGRAM, batch: 0, ..udp() }, "1 to 1024"),
            (RunSpec { message: ByteCount(65_508), ..udp() }, "1 to 65507"),
            (RunSpec { cc: Some("reno".to_owned()), ..udp() }, "leave --cc"),
            (RunSpec { segment: true, batch: 2, ..udp() }, "either"),
            (RunSpec { send_with: SendWith::Sendfile, ..udp() }, "leave --udp out"),
            (RunSpec { workload: Workload::Rr, in_flight: 2, ..udp() }, "--in-flight 1"),
        ];
        for (spec, remedy) in cases {
            let error = spec.check().expect_err(remedy).to_string();
            assert!(error.contains(remedy), "{error}");
        }
        for send_with in SendWith::ALL {
            for recv_with in RecvWith::ALL {
                assert_eq!(RunSpec { send_with, recv_with, ..base() }.check(), Ok(()));
            }
        }
        let slow = RunSpec { rate: Some(BitRate(1_000_000)), window: Duration::from_secs(1), ..base() };
        let text = slow.check().expect_err("coarse").to_string();
        assert!(text.contains("1.05s") && text.contains("--message of 12500 or less"), "{text}");
        assert_eq!(RunSpec { message: ByteCount(12_500), ..slow }.check(), Ok(()));
        let both = RunSpec { send_offset: one, recv_offset: MAX_OFFSET, ..base() };
        assert_eq!(both.check(), Ok(()));
    }
}
