//! Two private hosts joined by a wire, made by haul itself: the place where everything can be tried with nothing set up.
//!
//! ```text
//!   network namespace "client"          network namespace "server"
//!   haul-c 198.18.0.1/24  2001:2::1/64 ═══ haul-s 198.18.0.2/24  2001:2::2/64        (a veth pair)
//! ```
//!
//! The addresses are those set aside for benchmarks (RFC 2544 and RFC 6815, RFC 5180), so a lab can never be taken
//! for a real network. Both namespaces are anonymous: any number of labs can exist at once without meeting, and the
//! kernel removes each with the last descriptor, socket and thread in it, also when haul is killed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use haul_stats::ByteCount;

use crate::error::Result;
use crate::link::{self, Link};
use crate::netns::Netns;

/// A veth has its carrier within microseconds of both ends being up; the bound is for a machine that stalls.
const CARRIER_DEADLINE: Duration = Duration::from_secs(2);

const CLIENT: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
const CLIENT6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1);
const SERVER6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 2);

/// How the wire of a lab is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VethOptions {
    /// The largest packet of both ends.
    pub mtu: ByteCount,
}

impl Default for VethOptions {
    /// Ethernet's 1500 bytes.
    fn default() -> Self {
        Self { mtu: ByteCount(1500) }
    }
}

/// Two network namespaces and the wire between them.
#[derive(Debug)]
pub struct VethLab {
    /// Where the client runs.
    pub client: Netns,
    /// Where the server runs.
    pub server: Netns,
    /// The client's address.
    pub client_addr: IpAddr,
    /// The server's address.
    pub server_addr: IpAddr,
    /// The client's IPv6 address; `None` where this kernel has no IPv6.
    pub client_addr6: Option<IpAddr>,
    /// The server's IPv6 address; `None` where this kernel has no IPv6.
    pub server_addr6: Option<IpAddr>,
    /// The client's end of the wire.
    pub client_dev: Link,
    /// The server's end of the wire.
    pub server_dev: Link,
}

impl VethLab {
    /// The name of the client's device, in its namespace.
    pub const CLIENT_DEVICE: &str = "haul-c";
    /// The name of the server's device, in its namespace.
    pub const SERVER_DEVICE: &str = "haul-s";

    /// Builds a lab, ready for traffic.
    pub fn build(options: VethOptions) -> Result<Self> {
        let client = Netns::create()?;
        let server = Netns::create()?;
        let client_addr6 = client.run(|| {
            link::create_veth(Self::CLIENT_DEVICE, Self::SERVER_DEVICE, &server, options.mtu)?;
            bring_up(Self::CLIENT_DEVICE, CLIENT, CLIENT6)
        })??;
        let (server_addr6, server_dev) = server.run(|| {
            let address = bring_up(Self::SERVER_DEVICE, SERVER, SERVER6)?;
            Ok::<_, crate::HostError>((address, running(Self::SERVER_DEVICE)?))
        })??;
        let client_dev = client.run(|| running(Self::CLIENT_DEVICE))??;
        let (client_addr, server_addr) = (CLIENT.into(), SERVER.into());
        Ok(Self {
            client,
            server,
            client_addr,
            server_addr,
            client_addr6,
            server_addr6,
            client_dev,
            server_dev,
        })
    }
}

/// Loopback and `device` up, with addresses; returns the IPv6 one where there is IPv6.
fn bring_up(device: &str, address: Ipv4Addr, address6: Ipv6Addr) -> Result<Option<IpAddr>> {
    link::set_up(link::link_by_name("lo")?.index, true)?;
    let index = link::link_by_name(device)?.index;
    link::add_address(index, address.into(), 24)?;
    link::set_up(index, true)?;
    match link::add_address(index, address6.into(), 64) {
        Ok(()) => Ok(Some(address6.into())),
        // Built without IPv6, or with it disabled.
        Err(error) if matches!(error.errno(), Some(libc::EOPNOTSUPP | libc::EACCES | libc::EAFNOSUPPORT)) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn running(device: &str) -> Result<Link> {
    link::wait_for_carrier(link::link_by_name(device)?.index, CARRIER_DEADLINE)
}
