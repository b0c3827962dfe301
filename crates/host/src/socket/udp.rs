//! UDP sockets: what they are asked for, how large a datagram may be, where it was lost.
//!
//! A server has one socket bound to its port and one more for each client, bound to the same port and connected; the
//! kernel gives a datagram to the connected one. The hot path is [`super::send()`] and [`super::recv()`], or the
//! batches: [`SendBatch`], [`RecvBatch`], and [`recv_segments`] where the kernel joins datagrams of one flow
//! ([`set_gro`]).
//!
//! A connected socket ends by shutdown(2), which wakes a receive that waits. From then on one that may wait returns 0,
//! which is also what an empty datagram looks like (a [`RecvBatch`] without `WAITFORONE` fills with them): so a
//! protocol on top sends none that are empty. A receive with `DONTWAIT` is told nothing, only that it would wait.
//!
//! Kernel: udp(7), net/ipv4/udp.c. Sizes: RFC 768, RFC 8200.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::BorrowedFd;

use socket2::{Domain, SockRef, Socket, Type};

use super::{Requested, open, take_both, why_not_bound, why_not_connected};
use crate::error::{HostError, Named as _, Result};
use crate::sys;

mod batch;

pub use batch::{Received, RecvBatch, SendBatch, recv_segments};

/// Waits for datagrams on `address`. An IPv6 wildcard takes IPv4 too. The port can be shared, by [`connected`] and by
/// any other process that asks to share it: who must know that a port is his listens on the same one by TCP.
pub fn bind(address: SocketAddr, requested: &Requested) -> Result<UdpSocket> {
    bound(address, requested).map(Into::into)
}

/// A socket for the datagrams of one peer, which `local` may share with a socket of [`bind`]. What arrives between its
/// binding and its connecting may be from anyone.
pub fn connected(local: SocketAddr, peer: SocketAddr, requested: &Requested) -> Result<UdpSocket> {
    let socket = bound(local, requested)?;
    let joined = socket.connect(&peer.into()).named("connect to", || format!("UDP {peer}"));
    joined.map_err(|error| match error.errno() {
        Some(libc::EAFNOSUPPORT | libc::EINVAL) => {
            error.with_hint(format!("it cannot be reached from {}: use addresses of one family", local.ip()))
        }
        _ => why_not_connected(error),
    })?;
    Ok(socket.into())
}

fn bound(address: SocketAddr, requested: &Requested) -> Result<Socket> {
    let object = || format!("UDP {address}");
    let socket = open(address, Type::DGRAM)?;
    let prepare = "set the options of a socket for";
    take_both(&socket, address).named(prepare, object)?;
    let share = || socket.set_reuse_address(true).named(prepare, object);
    // A port the kernel chooses must be nobody else's, and among sockets that may share theirs it is not: of 200 connected
    // to one peer, four had a port that another had.
    let chosen = address.port() == 0;
    if !chosen {
        share()?;
    }
    requested.apply_to(&socket)?;
    socket
        .bind(&address.into())
        .named("bind a socket to", object)
        .map_err(|error| why_not_bound(error, address))?;
    if chosen {
        share()?;
    }
    Ok(socket)
}

/// `UDP_SEGMENT`: the kernel cuts what one send hands over into datagrams of `size` bytes, up to 64 of them (128 since
/// Linux 6.9), the last of which may be shorter. 0 is off.
pub fn set_segment(fd: BorrowedFd<'_>, size: u16) -> Result<()> {
    let set = sys::set_option(fd, libc::SOL_UDP, libc::UDP_SEGMENT, size.into());
    set.named("set UDP_SEGMENT to", || size.to_string()).map_err(|error| since(error, "4.18"))
}

/// `UDP_GRO`: the kernel may hand over several datagrams of one flow in one receive, joined. Receive with
/// [`recv_segments`] or [`RecvBatch`] then, which tell their size, and with room for 64 KiB.
pub fn set_gro(fd: BorrowedFd<'_>) -> Result<()> {
    let set = sys::set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1);
    set.named("set", || "UDP_GRO".into()).map_err(|error| since(error, "5.0"))
}

fn since(error: HostError, version: &str) -> HostError {
    match error.errno() {
        Some(libc::ENOPROTOOPT) => error.with_hint(format!("it takes a UDP socket and Linux {version}")),
        _ => error,
    }
}

/// The largest packet that reaches the peer of a connected socket in one piece, as far as the kernel knows: the MTU of
/// the route's device, or less once a router has said so.
pub fn path_mtu(fd: BorrowedFd<'_>) -> Result<u32> {
    let object = || "a UDP socket".to_owned();
    let domain = SockRef::from(&fd).domain().named("read the family of", object)?;
    let (level, name) = match domain {
        Domain::IPV6 => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
        _ => (libc::IPPROTO_IP, libc::IP_MTU),
    };
    let read = sys::int_option(fd, level, name).named("read the path MTU of", object);
    let mtu = read.map_err(|error| match error.errno() {
        Some(libc::ENOTCONN) => error.with_hint("only a connected socket has a path"),
        _ => error,
    })?;
    u32::try_from(mtu).map_err(|_| HostError::Answer {
        operation: "read the path MTU of",
        object: object(),
        what: format!("it is {mtu}"),
    })
}

/// The largest datagram whose packet is not larger than `mtu`, without IP options or extension headers. An IPv6 socket
/// that carries IPv4 counts as IPv4.
#[must_use]
pub fn max_payload(mtu: u32, ipv6: bool) -> u16 {
    const UDP: u32 = 8;
    // IPv4 counts its own header in its 16-bit length, IPv6 does not.
    let (header, most) = if ipv6 { (40, 65_535 - UDP) } else { (20, 65_535 - 20 - UDP) };
    u16::try_from(mtu.saturating_sub(header + UDP).min(most)).unwrap_or(u16::MAX)
}

/// How many datagrams this socket has dropped since it was opened, for want of room in its receive buffer or for a bad
/// checksum: `SK_MEMINFO_DROPS`, exact, modulo 2^32.
///
/// Not `SO_RXQ_OVFL`: that control message carries the count of the moment its datagram was queued, so what is lost
/// after the last one is not in it; after 19,944 drops with nobody reading it still said 0.
pub fn drops(fd: BorrowedFd<'_>) -> Result<u64> {
    /// `SK_MEMINFO_DROPS` of `include/uapi/linux/sock_diag.h`, since Linux 4.12.
    const DROPS: usize = 8;
    let object = || "a UDP socket".to_owned();
    let words = sys::memory_info(fd).named("read SO_MEMINFO of", object)?;
    words.get(DROPS).map(|&drops| drops.into()).ok_or_else(|| HostError::Answer {
        operation: "read SO_MEMINFO of",
        object: object(),
        what: format!("it has {} words, and no count of drops", words.len()),
    })
}

/// Whether an error of a send says that the datagram is larger than may be sent in one piece.
#[must_use]
pub fn too_large(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMSGSIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_the_mtu_less_the_headers_and_never_more_than_udp_can_say() {
        for (mtu, ipv6, payload) in [
            (1500, false, 1472),
            (1500, true, 1452),
            (1280, true, 1232),
            (65_535, false, 65_507),
            (65_536, false, 65_507),
            (65_575, true, 65_527),
            (u32::MAX, true, 65_527),
            (48, true, 0),
            (0, false, 0),
        ] {
            assert_eq!(max_payload(mtu, ipv6), payload, "{mtu}, IPv6 {ipv6}");
        }
    }
}
