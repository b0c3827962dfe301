//! stub
use super::Requested;
use crate::error::{Named as _, Result};
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{SocketAddr, UdpSocket};
/// Binds.
pub fn bind(address: SocketAddr, _requested: &Requested) -> Result<UdpSocket> {
    let object = || format!("UDP {address}");
    let make = || {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        if address.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        Ok::<_, std::io::Error>(socket.into())
    };
    make().named("bind", object)
}
/// Binds and connects.
pub fn connected(local: SocketAddr, peer: SocketAddr, requested: &Requested) -> Result<UdpSocket> {
    let socket = bind(local, requested)?;
    socket.connect(peer).named("connect to", || format!("UDP {peer}"))?;
    Ok(socket)
}
/// MTU.
pub fn path_mtu(_fd: std::os::fd::BorrowedFd<'_>) -> Result<u32> {
    Ok(1500)
}
/// payload
#[must_use]
pub fn max_payload(mtu: u32, ipv6: bool) -> u32 {
    mtu - if ipv6 { 48 } else { 28 }
}
