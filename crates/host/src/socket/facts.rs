//! What the kernel says about a socket: its effective options, and `TCP_INFO`.
//!
//! `struct tcp_info` (include/uapi/linux/tcp.h) has grown with almost every kernel. The kernel returns the length it
//! knows; a field beyond that is `None` here, never zero. Fields are read by their offset, so that this
//! file does not depend on which headers libc was made from.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use haul_stats::ByteCount;
use serde::{Deserialize, Serialize};
use socket2::{SockAddr, SockRef, Type};

use super::{Requested, udp};
use crate::error::{HostError, Named as _, Result};
use crate::sys;

/// The effective options of a connected socket, TCP or UDP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketFacts {
    /// The send buffer as the kernel accounts it: twice what was asked for, or the present autotuned size.
    pub sndbuf: ByteCount,
    /// The receive buffer, likewise.
    pub rcvbuf: ByteCount,
    /// Whether the kernel adapts the send buffer itself.
    pub sndbuf_autotuned: bool,
    /// Whether the kernel adapts the receive buffer itself.
    pub rcvbuf_autotuned: bool,
    /// The largest segment sent, in bytes of payload; `None` for UDP.
    pub mss: Option<u32>,
    /// The congestion control; `None` for UDP, which has none.
    pub cc: Option<String>,
    /// Whether small messages are sent at once; `None` for UDP, where all are.
    pub nodelay: Option<bool>,
    /// UDP: the largest packet that reaches the peer in one piece, as far as is known. TCP's is in [`TcpFacts::pmtu`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_mtu: Option<u32>,
    /// Type of service or traffic class of the packets; `None` where it cannot be read.
    pub tos: Option<u8>,
    /// This end's address; of IPv4 also where the socket is one of both.
    pub local: SocketAddr,
    /// The other end's address, likewise.
    pub peer: SocketAddr,
}

/// A buffer that is smaller than was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clamp {
    /// Which: `sndbuf` or `rcvbuf`.
    pub buffer: String,
    /// What was asked for.
    pub asked: ByteCount,
    /// What can be used of what there is: half the kernel's figure, whose other half is for its own overhead.
    pub got: ByteCount,
    /// The sysctl that caps it.
    pub sysctl: String,
}

impl SocketFacts {
    /// Reads the options of a connected TCP or UDP socket. `requested` tells which buffers were fixed on kernels before
    /// 5.14, which do not say so themselves.
    pub fn read(socket: BorrowedFd<'_>, requested: &Requested) -> Result<Self> {
        let options = SockRef::from(&socket);
        let kind = options.r#type().named("read the type of", || "a socket".into())?;
        let tcp = kind == Type::STREAM;
        let object = || if tcp { "a TCP socket" } else { "a UDP socket" }.to_owned();
        let (sndbuf_fixed, rcvbuf_fixed) = match sys::buffer_locks(socket) {
            Ok(fixed) => fixed,
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                (requested.sndbuf.is_some(), requested.rcvbuf.is_some())
            }
            Err(error) => return Err(HostError::os("read SO_BUF_LOCK of", object(), error)),
        };
        let address = |given: SockAddr| {
            given.as_socket().ok_or_else(|| HostError::Answer {
                operation: "read the address of",
                object: object(),
                what: "it is not an IP address".to_owned(),
            })
        };
        let peer = address(options.peer_addr().named("read the peer's address of", object)?)?;
        // An IPv6 socket that carries IPv4 sends with the IPv4 option.
        let tos = if peer.is_ipv6() && !is_mapped(peer) { options.tclass_v6() } else { options.tos_v4() };
        let mut facts = Self {
            sndbuf: ByteCount(options.send_buffer_size().named("read the send buffer of", object)? as u64),
            rcvbuf: ByteCount(options.recv_buffer_size().named("read the receive buffer of", object)? as u64),
            // UDP's buffers are as large as they were at the start.
            sndbuf_autotuned: tcp && !sndbuf_fixed,
            rcvbuf_autotuned: tcp && !rcvbuf_fixed,
            mss: None,
            cc: None,
            nodelay: None,
            path_mtu: None,
            local: canonical(address(options.local_addr().named("read the local address of", object)?)?),
            peer: canonical(peer),
            tos: tos.ok().and_then(|tos| u8::try_from(tos).ok()),
        };
        if tcp {
            let cc = options.tcp_congestion().named("read the congestion control of", object)?;
            facts.mss = Some(options.tcp_mss().named("read the segment size of", object)?);
            facts.cc = Some(String::from_utf8_lossy(&cc).trim_end_matches('\0').to_owned());
            facts.nodelay = Some(options.tcp_nodelay().named("read TCP_NODELAY of", object)?);
        } else {
            facts.path_mtu = Some(udp::path_mtu(socket)?);
        }
        Ok(facts)
    }

    /// The buffers that came out smaller than requested.
    #[must_use]
    pub fn clamped(&self, requested: &Requested) -> Vec<Clamp> {
        [
            ("sndbuf", "net.core.wmem_max", requested.sndbuf, self.sndbuf),
            ("rcvbuf", "net.core.rmem_max", requested.rcvbuf, self.rcvbuf),
        ]
        .into_iter()
        .filter_map(|(buffer, sysctl, asked, kernel)| {
            let (asked, got) = (asked?, ByteCount(kernel.0 / 2));
            let (buffer, sysctl) = (buffer.to_owned(), sysctl.to_owned());
            (got < asked).then_some(Clamp { buffer, asked, got, sysctl })
        })
        .collect()
    }
}

/// Whether an IPv6 address stands for an IPv4 one.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn is_mapped(address: SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(address) if address.ip().to_ipv4_mapped().is_some())
}

macro_rules! tcp_facts {
    ($($(#[$doc:meta])* $name:ident: $width:ident at $offset:literal;)+) => {
        /// What the kernel counted on a TCP connection; `None` is a field this kernel does not have.
        #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
        pub struct TcpFacts {
            $($(#[$doc])* pub $name: Option<u64>,)+
        }

        impl TcpFacts {
            /// Takes the fields from the prefix of `struct tcp_info` the kernel returned.
            fn from_bytes(info: &[u8]) -> Self {
                Self {
                    $($name: info.get($offset..$offset + size_of::<$width>()).and_then(|bytes| {
                        bytes.try_into().ok().map(|bytes| u64::from($width::from_ne_bytes(bytes)))
                    }),)+
                }
            }
        }
    };
}

tcp_facts! {
    /// Segments sent again, over the life of the connection.
    retransmits_total: u32 at 100;
    /// Smoothed round trip time, µs.
    rtt_us: u32 at 68;
    /// Its mean deviation, µs.
    rttvar_us: u32 at 72;
    /// Least round trip time seen, µs.
    min_rtt_us: u32 at 148;
    /// Congestion window, segments.
    cwnd: u32 at 80;
    /// Slow start threshold, segments; 2^31 − 1 while there is none.
    ssthresh: u32 at 76;
    /// Path MTU, bytes.
    pmtu: u32 at 60;
    /// Segments in flight.
    unacked: u32 at 24;
    /// Segments taken for lost.
    lost: u32 at 32;
    /// Time with data to send, µs.
    busy_us: u64 at 168;
    /// Of that, time held back by the receiver's window, µs.
    rwnd_limited_us: u64 at 176;
    /// Of that, time held back by the send buffer, µs.
    sndbuf_limited_us: u64 at 184;
    /// Payload the peer has acknowledged, bytes.
    bytes_acked: u64 at 120;
    /// Payload received, bytes.
    bytes_received: u64 at 128;
    /// Payload sent, repetitions included, bytes.
    bytes_sent: u64 at 200;
    /// Payload sent again, bytes.
    bytes_retransmitted: u64 at 208;
    /// Payload in the send buffer that was never sent, bytes.
    notsent_bytes: u32 at 144;
    /// Segments sent.
    segments_out: u32 at 136;
    /// Segments received.
    segments_in: u32 at 140;
    /// Rate at which the peer acknowledged most recently, bytes/s.
    delivery_rate: u64 at 160;
    /// Rate the kernel paces at, bytes/s; 2^64 − 1 is no pacing.
    pacing_rate: u64 at 104;
    /// How often segments arrived in another order, as the sender saw it.
    reorderings: u32 at 220;
    /// Segments that arrived ahead of a gap, as the receiver saw it.
    out_of_order: u32 at 224;
}

impl TcpFacts {
    /// Reads `TCP_INFO`. The socket may have failed since: the counts stay until it is closed.
    pub fn read(socket: BorrowedFd<'_>) -> Result<Self> {
        // About twice the structure of today: a longer one would only lose fields this version does not know.
        let mut info = [0; 512];
        let length = sys::tcp_info(socket, &mut info).named("read TCP_INFO of", || "a TCP socket".into())?;
        Ok(Self::from_bytes(&info[..length]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_the_kernel_does_not_have_is_none_and_the_others_are_read_at_their_place() {
        // Every byte of the structure differs from its neighbours, so a wrong offset or width shows.
        let info: Vec<u8> = (0..=255).collect();
        let whole = TcpFacts::from_bytes(&info[..248]);
        assert_eq!(whole.retransmits_total, Some(u64::from(u32::from_ne_bytes([100, 101, 102, 103]))));
        assert_eq!(whole.busy_us, Some(u64::from_ne_bytes([168, 169, 170, 171, 172, 173, 174, 175])));
        assert_eq!(whole.out_of_order, Some(u64::from(u32::from_ne_bytes([224, 225, 226, 227]))));
        // Linux 3.10 ends after tcpi_total_retrans, Linux 4.9 before the busy times.
        let old = TcpFacts::from_bytes(&info[..104]);
        assert_eq!((old.retransmits_total, old.bytes_acked), (whole.retransmits_total, None));
        let middle = TcpFacts::from_bytes(&info[..168]);
        assert_eq!((middle.delivery_rate, middle.busy_us), (whole.delivery_rate, None));
        assert_eq!(TcpFacts::from_bytes(&info[..103]).retransmits_total, None, "half a field is no field");
        assert_eq!(TcpFacts::from_bytes(&[]), TcpFacts::default());
    }
}
