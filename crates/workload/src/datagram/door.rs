//! How UDP flows come to be: a datagram has no connection to be accepted, and nobody may be sent one uninvited.
//!
//! ```text
//! client                                  server (its own port, shared with the control connection)
//!   socket connected to the server
//!   hello ──────────────────────────────▶ known token, from the control connection's own address?
//!     again every 100 ms until …             a socket of that port connected to where the hello came from
//!   ◀─────────── ready, on the control connection, once every flow has come
//! ```
//!
//! The answer travels on the control connection, so that no lost datagram can keep a flow from being made, and nothing is
//! sent to an address that has not completed the handshake there. A hello that was sent again may arrive behind its
//! flow's making: it is told from payload by its first two bits (see [`super`]).

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use haul_host::socket::{self, Requested, udp};
use haul_stats::ByteCount;
use haul_wire::DataHello;

use crate::error::Result;
use crate::spec::{MAX_DATAGRAM, RunSpec};

/// How often a hello is sent again.
pub(crate) const AGAIN: Duration = Duration::from_millis(100);

/// How many hellos are sent in one go, and how long the server gets to read them: more than its socket has room for (277
/// with the default buffer) would be lost again and again.
pub(crate) const AT_ONCE: usize = 128;
pub(crate) const BETWEEN: Duration = Duration::from_millis(2);

/// A flow's socket at the client; the hello is still to be sent.
pub(crate) fn socket(local: IpAddr, server: SocketAddr, requested: &Requested) -> Result<OwnedFd> {
    Ok(udp::connected(SocketAddr::new(local, 0), server, requested)?.into())
}

/// Says which flow the socket is.
pub(crate) fn knock(socket: &OwnedFd, hello: &DataHello) -> io::Result<()> {
    match socket::send(socket.as_fd(), &hello.encode()) {
        // Nobody may be there yet, or any more: the control connection knows better.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        sent => sent.map(drop),
    }
}

/// The server's socket of a flow whose hello has come, where it comes from the client of this session.
pub(crate) fn open(
    control: &TcpStream,
    from: SocketAddr,
    leg: &RunSpec,
) -> haul_host::Result<Option<OwnedFd>> {
    let (Ok(local), Ok(client)) = (control.local_addr(), control.peer_addr()) else { return Ok(None) };
    if from.ip().to_canonical() != client.ip().to_canonical() {
        return Ok(None);
    }
    let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let socket = udp::connected(canonical(local), canonical(from), &leg.sockets(false))?;
    Ok(Some(socket.into()))
}

/// The payload of a datagram that just fits the path to the server.
pub(crate) fn fitting(server: SocketAddr) -> Result<ByteCount> {
    let any = if server.is_ipv6() { IpAddr::from([0_u16; 8]) } else { IpAddr::from([0_u8; 4]) };
    let socket = udp::connected(SocketAddr::new(any, 0), server, &Requested::default())?;
    let mtu = udp::path_mtu(socket.as_fd())?;
    let fits = ByteCount(u64::from(udp::max_payload(mtu, server.is_ipv6())));
    Ok(fits.min(MAX_DATAGRAM))
}
