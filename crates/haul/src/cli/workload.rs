//! The options of workloads.
//!
//! Each is text under the name that arms and sweeps know it by ([`haul_lab::option`]), which reads and checks it; here is
//! what help says of it, and which commands have it.
#![expect(clippy::doc_markdown, reason = "the doc comments are the help text, where backticks would show")]

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use haul_stats::units;

/// An option by its name, and what was given for it.
pub(crate) type Given<'a> = (&'static str, Option<&'a str>);

/// What every workload has.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Load")]
pub(crate) struct CommonOptions {
    /// Length of the measured window, in seconds or with a unit, as 500ms or 2m [default: 10s]: CPU figures of most kernels
    /// have 10 ms steps, so seconds, not milliseconds
    #[arg(long, short = 't', value_parser = units::parse_seconds)]
    pub(crate) time: Option<Duration>,
    /// Time before the window that does not count, in seconds or with a unit [default: 1s]: raise it where slow start or a long
    /// path takes longer
    #[arg(long, value_name = "TIME", value_parser = units::parse_seconds)]
    pub(crate) warmup: Option<Duration>,
    /// Also report each slice of the window, of so many seconds, or with a unit: to see whether a rate is steady (not for
    /// statistics)
    #[arg(long, value_name = "TIME", value_parser = units::parse_seconds)]
    pub(crate) interval: Option<Duration>,
    /// Use UDP instead of TCP
    #[arg(long)]
    pub(crate) udp: bool,
    /// Flows at the same time: data connections, or UDP address pairs [list] [default: 1]
    #[arg(long)]
    flows: Option<String>,
    /// Worker threads at each end [list] [default: one per CPU, and never more than flows]
    #[arg(long)]
    threads: Option<String>,
    /// Hold all flows together to a rate: of a stream bits per second, as 10M or 1G, to compare the cost of two arms at the
    /// same load; of rr and crr transactions per second, as 1000/s, whose latency then counts from when each was due [list]
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// Send buffer: set it to compare with others' fixed buffers; unset, the kernel tunes it [list]
    #[arg(long, help_heading = "Sockets")]
    sndbuf: Option<String>,
    /// Receive buffer, likewise [list]
    #[arg(long, help_heading = "Sockets")]
    rcvbuf: Option<String>,
    /// TCP_NODELAY, on or off: matters for messages smaller than a segment; rr and crr have it on unless told otherwise
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true, default_missing_value = "on", help_heading = "Sockets")]
    nodelay: Option<String>,
    /// Congestion control of the data sockets: bbr paces, which hides what a veth or loopback can do; reno does not
    #[arg(long, value_name = "NAME", help_heading = "Sockets")]
    cc: Option<String>,
    /// Largest TCP segment, 88 to 32767: to see what more packets cost without another MTU [list]
    #[arg(long, value_name = "BYTES", help_heading = "Sockets")]
    mss: Option<String>,
    /// Type of service of the packets, as 0xb8 (DSCP 46 times 4): where the path or a queue treats classes differently
    #[arg(long, value_name = "OCTET", help_heading = "Sockets")]
    tos: Option<String>,
    /// The same by its code point, 0 to 63, or its class, as EF or AF41
    #[arg(long, value_name = "POINT", conflicts_with = "tos", help_heading = "Sockets")]
    dscp: Option<String>,
    /// Let the kernel poll the NIC for so long in a blocked call, as 50us: latency for CPU time, on NICs that can
    #[arg(long, value_name = "TIME", help_heading = "Sockets")]
    busy_poll: Option<String>,
    /// Send from this device of the client, whatever its routes say: where two lead to the server
    #[arg(long, value_name = "DEVICE", help_heading = "Sockets")]
    bind_device: Option<String>,
    /// Firewall mark of the client's packets, as 7 or 0x7: for policy routing and queues (takes CAP_NET_ADMIN)
    #[arg(long, value_name = "MARK", help_heading = "Sockets")]
    mark: Option<String>,
    /// CPUs of the worker threads, as CLIENT[,SERVER], each one CPU, a range 0-3 or a set 0+2; thread by thread in turn:
    /// unpinned runs have two modes
    #[arg(long, value_name = "CLIENT[,SERVER]", help_heading = "Placement")]
    pin: Option<String>,
    /// 'pair' puts the two threads of a flow on one CPU where one machine runs both ends, and each flow on the CPU its
    /// packets arrive on elsewhere: for many flows
    #[arg(long, value_name = "free|pair", help_heading = "Placement")]
    placement: Option<String>,
}

impl CommonOptions {
    /// What was given, by name; the rate comes last, because what it is depends on the rest.
    pub(crate) fn given(&self) -> Vec<Given<'_>> {
        vec![
            ("flows", self.flows.as_deref()),
            ("threads", self.threads.as_deref()),
            ("sndbuf", self.sndbuf.as_deref()),
            ("rcvbuf", self.rcvbuf.as_deref()),
            ("nodelay", self.nodelay.as_deref()),
            ("cc", self.cc.as_deref()),
            ("mss", self.mss.as_deref()),
            ("tos", self.tos.as_deref()),
            ("dscp", self.dscp.as_deref()),
            ("busy-poll", self.busy_poll.as_deref()),
            ("bind-device", self.bind_device.as_deref()),
            ("mark", self.mark.as_deref()),
            ("pin", self.pin.as_deref()),
            ("placement", self.placement.as_deref()),
            ("rate", self.rate.as_deref()),
        ]
    }
}

/// What a stream does.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Stream")]
pub(crate) struct StreamOptions {
    /// Bytes per send call: below 64K a TCP stream measures calls, above it bytes; of UDP the payload of a datagram, 1 to
    /// 65507 [list] [default: 128K; UDP: what fits the path]
    #[arg(long, short = 'm')]
    message: Option<String>,
    /// Which way the payload goes, seen from the client [default: send]
    #[arg(long, value_enum)]
    direction: Option<Way>,
    /// End when so much has been moved, all flows of a direction together, instead of after --time, which is then the longest
    /// it may take [default: 1h]
    #[arg(long, value_name = "SIZE")]
    pub(crate) bytes: Option<String>,
    /// Also exchange a request of one byte so many times a second, beside the stream and before it: what the load does to the
    /// latency of others
    #[arg(long, value_name = "rr:RATE")]
    pub(crate) probe: Option<String>,
    /// Where the bytes come from: 'fresh' to read the source from memory, 'repeat' to do as other tools do [default: stamped]
    #[arg(long, value_enum)]
    payload: Option<Content>,
    /// How the sender hands bytes over: to compare what a copy costs with what avoiding it costs [default: write]
    #[arg(long, value_enum, value_name = "HOW")]
    send_with: Option<Giving>,
    /// The file to send, with sendfile or splice: what it lies on decides how large the pieces of it are that a filesystem
    /// hands over, and so what sending costs; without it, one in memory is sent, of pages of 4 KiB
    #[arg(long, value_name = "FILE")]
    pub(crate) send_file: Option<PathBuf>,
    /// How the receiver takes bytes: 'discard' to load the sender or the path without the receiver's copy [default: read]
    #[arg(long, value_enum, value_name = "HOW")]
    recv_with: Option<Taking>,
    /// Bytes past a page at which each message begins, 0 to 4095: to see what an unaligned source costs, 0..64 [list]
    #[arg(long, value_name = "BYTES")]
    send_offset: Option<String>,
    /// Bytes past a page at which the receive buffer begins: likewise for the destination [list]
    #[arg(long, value_name = "BYTES")]
    recv_offset: Option<String>,
    /// UDP: hand over trains of datagrams that the kernel or the NIC cuts up (UDP_SEGMENT), as QUIC servers do
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true, default_missing_value = "on", help_heading = "Datagrams")]
    segment: Option<String>,
    /// UDP: take datagrams of a train as one (UDP_GRO)
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true, default_missing_value = "on", help_heading = "Datagrams")]
    gro: Option<String>,
    /// UDP: datagrams per call (sendmmsg, recvmmsg): where calls cost more than packets [list] [default: 1]
    #[arg(long, value_name = "COUNT", help_heading = "Datagrams")]
    batch: Option<String>,
    /// UDP: refuse to have datagrams cut up on the way: to find out what passes whole
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true, default_missing_value = "on", help_heading = "Datagrams")]
    dont_fragment: Option<String>,
}

impl StreamOptions {
    /// What was given, by name.
    pub(crate) fn given(&self) -> Vec<Given<'_>> {
        vec![
            ("message", self.message.as_deref()),
            ("direction", self.direction.map(Way::name)),
            ("payload", self.payload.map(Content::name)),
            ("send-with", self.send_with.map(Giving::name)),
            ("recv-with", self.recv_with.map(Taking::name)),
            ("send-offset", self.send_offset.as_deref()),
            ("recv-offset", self.recv_offset.as_deref()),
            ("segment", self.segment.as_deref()),
            ("gro", self.gro.as_deref()),
            ("batch", self.batch.as_deref()),
            ("dont-fragment", self.dont_fragment.as_deref()),
        ]
    }

    /// What of it was given that has no name in arms.
    pub(crate) fn given_besides(&self) -> Vec<Given<'_>> {
        vec![("bytes", self.bytes.as_deref()), ("probe", self.probe.as_deref())]
    }
}

/// What an exchange does.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Exchange")]
pub(crate) struct ExchangeOptions {
    /// Bytes of a request [list] [default: 1]
    #[arg(long, value_name = "SIZE")]
    request: Option<String>,
    /// Bytes of a response [list] [default: 1]
    #[arg(long, value_name = "SIZE")]
    response: Option<String>,
    /// Requests a flow of rr has under way at most [list] [default: 1]: more measures throughput of transactions, and each
    /// waits for those before it
    #[arg(long, value_name = "COUNT")]
    in_flight: Option<String>,
    /// UDP: send a request again that was not answered within this time [default: 200ms]
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// Let the threads ask again and again instead of sleeping: what the path can do without wake-ups, for whole CPUs
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    spin: Option<String>,
    /// How crr closes: 'reset' leaves no TIME_WAIT behind, where ports run out otherwise [default: fin]
    #[arg(long, value_name = "fin|reset")]
    close: Option<String>,
}

impl ExchangeOptions {
    /// What was given, by name.
    pub(crate) fn given(&self) -> Vec<Given<'_>> {
        vec![
            ("request", self.request.as_deref()),
            ("response", self.response.as_deref()),
            ("in-flight", self.in_flight.as_deref()),
            ("timeout", self.timeout.as_deref()),
            ("spin", self.spin.as_deref()),
            ("close", self.close.as_deref()),
        ]
    }
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Giving {
    /// send: the kernel copies from a buffer, as most programs do
    Write,
    /// sendfile from a file of 64 MiB in memory, as a server of static files does: no copy (--payload repeat: one message)
    Sendfile,
    /// splice from the same file through a pipe, as a proxy does: no copy
    Splice,
    /// send with MSG_ZEROCOPY: no copy on a NIC that can; on one host the kernel copies after all, and haul says so
    Zerocopy,
}

impl Giving {
    fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Sendfile => "sendfile",
            Self::Splice => "splice",
            Self::Zerocopy => "zerocopy",
        }
    }
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taking {
    /// recv: the kernel copies to a buffer, as programs do
    Read,
    /// recv with MSG_TRUNC: nothing is copied to user memory
    Discard,
    /// TCP_ZEROCOPY_RECEIVE: whole pages are mapped, on paths that deliver them (MTU 4148 and a NIC that splits headers)
    Zerocopy,
}

impl Taking {
    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Discard => "discard",
            Self::Zerocopy => "zerocopy",
        }
    }
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the client to the server
    Send,
    /// From the server to the client
    Receive,
    /// Both at once, each over flows of its own
    Both,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Both => "both",
        }
    }
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// One buffer, a fresh count written into every 16 KiB before each send: no 32 KiB repeat
    Stamped,
    /// 64 MiB of random bytes, walked
    Fresh,
    /// The same buffer each time
    Repeat,
}

impl Content {
    fn name(self) -> &'static str {
        match self {
            Self::Stamped => "stamped",
            Self::Fresh => "fresh",
            Self::Repeat => "repeat",
        }
    }
}
