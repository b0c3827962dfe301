//! Network devices, addresses and routes, through rtnetlink.
//!
//! All functions work in the network namespace of the calling thread, see [`crate::netns::Netns::run`]. They are the
//! few operations a lab and the fingerprint need, each one request and its acknowledgement; the messages themselves
//! are those of the netlink-packet-route crate. The kernel's side is `net/core/rtnetlink.c`.
//!
//! Not here: features and rings of a device, which are ethtool's.

use std::net::IpAddr;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::Duration;

use haul_stats::ByteCount;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressScope,
};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::error::{HostError, Result};
use crate::netlink::Connection;
use crate::netns::Netns;

/// A network device as it was when asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The kernel's number of the device, unique in its network namespace.
    pub index: u32,
    /// The name.
    pub name: String,
    /// The hardware address in hex; empty where the device has none.
    pub mac: String,
    /// The largest packet.
    pub mtu: u32,
    /// How often the carrier came or went; `None` where the kernel does not count.
    pub carrier_changes: Option<u32>,
    /// Whether the device is up and has a carrier.
    pub running: bool,
}

/// How the kernel would send to an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The device packets leave through.
    pub oif: u32,
    /// Whether the address is one of this network namespace, so that no NIC sees the packets.
    pub local: bool,
    /// The source address they carry.
    pub source: Option<IpAddr>,
}

fn connection() -> Result<Connection> {
    Connection::open(NETLINK_ROUTE)
}

/// The device with this name.
pub fn link_by_name(name: &str) -> Result<Link> {
    let mut query = LinkMessage::default();
    query.attributes.push(LinkAttribute::IfName(name.to_owned()));
    read_link(query, &format!("device {name}"))
}

/// The device with this index.
pub fn link_by_index(index: u32) -> Result<Link> {
    let mut query = LinkMessage::default();
    query.header.index = index;
    read_link(query, &format!("device number {index}"))
}

/// The device that has this address.
pub fn link_by_addr(address: IpAddr) -> Result<Link> {
    let query = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    let listed = connection()?.dump("list the addresses of", "this network namespace", &query)?;
    let index = listed.iter().find_map(|message| match message {
        RouteNetlinkMessage::NewAddress(found) if carries(found, address) => Some(found.header.index),
        _ => None,
    });
    link_by_index(index.ok_or_else(|| HostError::NotFound {
        what: format!("a network device with the address {address}"),
        hint: None,
    })?)
}

/// Every device of the namespace, by index.
pub fn links() -> Result<Vec<Link>> {
    let query = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let listed = connection()?.dump("list the devices of", "this network namespace", &query)?;
    let mut links: Vec<Link> = listed
        .iter()
        .filter_map(|message| match message {
            RouteNetlinkMessage::NewLink(found) => Some(describe(found)),
            _ => None,
        })
        .collect();
    links.sort_by_key(|link| link.index);
    Ok(links)
}

/// The devices of this namespace that `index` stands on, nearest first: what a vlan or macvlan is made of, the ports of a bridge,
/// the members of a bond, and what is below those. None for a NIC, and for a veth, whose other end is no part of it.
///
/// # Errors
/// Where the kernel does not list its devices.
pub fn below(index: u32) -> Result<Vec<Link>> {
    let query = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let listed = connection()?.dump("list the devices of", "this network namespace", &query)?;
    let all: Vec<Standing> = listed
        .iter()
        .filter_map(|message| match message {
            RouteNetlinkMessage::NewLink(found) => Some(Standing::of(found)),
            _ => None,
        })
        .collect();
    Ok(parts_of(&all, index))
}

fn parts_of(all: &[Standing], index: u32) -> Vec<Link> {
    let mut found: Vec<Link> = Vec::new();
    let mut next = vec![index];
    while let Some(upper) = next.pop() {
        let lower = all.iter().find(|it| it.link.index == upper).and_then(|it| it.lower);
        let parts = all.iter().filter(|it| it.controller == Some(upper) || lower == Some(it.link.index));
        for part in parts {
            // A loop of devices cannot be made, but what is listed while it changes can look like one.
            if part.link.index != index && found.iter().all(|known| known.index != part.link.index) {
                found.push(part.link.clone());
                next.push(part.link.index);
            }
        }
    }
    found
}

/// A device, and what it stands on or is a part of, in the same namespace.
struct Standing {
    link: Link,
    lower: Option<u32>,
    controller: Option<u32>,
}

impl Standing {
    fn of(message: &LinkMessage) -> Self {
        let mut standing = Self { link: describe(message), lower: None, controller: None };
        let mut elsewhere = false;
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::Link(index) if *index != message.header.index => standing.lower = Some(*index),
                LinkAttribute::Controller(index) if *index != 0 => standing.controller = Some(*index),
                // The number is one of another namespace, or that of a veth's other end.
                LinkAttribute::LinkNetNsId(_) => elsewhere = true,
                LinkAttribute::LinkInfo(infos) => {
                    elsewhere |= infos.iter().any(|info| matches!(info, LinkInfo::Kind(InfoKind::Veth)));
                }
                _ => {}
            }
        }
        if elsewhere {
            standing.lower = None;
        }
        standing
    }
}

/// How packets to `destination` would leave.
pub fn route_to(destination: IpAddr) -> Result<Route> {
    let mut query = RouteMessage::default();
    (query.header.address_family, query.header.destination_prefix_length) = family(destination);
    query.attributes.push(RouteAttribute::Destination(RouteAddress::from(destination)));
    let object = destination.to_string();
    let operation = "find the route to";
    let answers = connection()?
        .request(operation, &object, RouteNetlinkMessage::GetRoute(query), 0)
        .map_err(|error| match error.errno() {
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => {
                error.with_hint("no device of this network namespace leads there: check that the link is up")
            }
            _ => error,
        })?;
    let found = answers.into_iter().find_map(|message| match message {
        RouteNetlinkMessage::NewRoute(route) => Some(route),
        _ => None,
    });
    let unusable =
        |what: &str| HostError::Answer { operation, object: object.clone(), what: what.to_owned() };
    let found = found.ok_or_else(|| unusable("no route in it"))?;
    let mut route = Route { oif: 0, local: found.header.kind == RouteType::Local, source: None };
    for attribute in found.attributes {
        match attribute {
            RouteAttribute::Oif(index) => route.oif = index,
            RouteAttribute::PrefSource(RouteAddress::Inet(source)) => route.source = Some(source.into()),
            RouteAttribute::PrefSource(RouteAddress::Inet6(source)) => route.source = Some(source.into()),
            _ => {}
        }
    }
    if route.oif == 0 { Err(unusable("the route names no device")) } else { Ok(route) }
}

/// Makes a veth pair: `name` in this namespace, `peer_name` in `peer_namespace`. Both are down.
pub fn create_veth(name: &str, peer_name: &str, peer_namespace: &Netns, mtu: ByteCount) -> Result<()> {
    let mtu = mtu_word(name, mtu)?;
    let mut peer = LinkMessage::default();
    peer.attributes.push(LinkAttribute::IfName(peer_name.to_owned()));
    peer.attributes.push(LinkAttribute::Mtu(mtu));
    peer.attributes.push(LinkAttribute::NetNsFd(peer_namespace.as_fd().as_raw_fd()));
    let mut pair = LinkMessage::default();
    pair.attributes.push(LinkAttribute::IfName(name.to_owned()));
    pair.attributes.push(LinkAttribute::Mtu(mtu));
    pair.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
    ]));
    let object = format!("veth pair {name}, {peer_name}");
    change("make the", &object, RouteNetlinkMessage::NewLink(pair), NLM_F_CREATE | NLM_F_EXCL).map_err(
        |error| match error.errno() {
            Some(libc::EOPNOTSUPP) => {
                error.with_hint("this kernel has no veth driver: load it with 'modprobe veth'")
            }
            _ => error,
        },
    )
}

/// Removes a device made by haul; the other end of a veth pair goes with it.
pub fn delete(index: u32) -> Result<()> {
    let mut message = LinkMessage::default();
    message.header.index = index;
    change("remove", &format!("device number {index}"), RouteNetlinkMessage::DelLink(message), 0)
}

/// Sets the largest packet of a device.
pub fn set_mtu(index: u32, mtu: ByteCount) -> Result<()> {
    let object = format!("device number {index}");
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes.push(LinkAttribute::Mtu(mtu_word(&object, mtu)?));
    change("set the MTU of", &object, RouteNetlinkMessage::SetLink(message), 0)
}

/// What a device is set to, and how far it can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinkLimits {
    /// Largest packet, bytes.
    pub(crate) mtu: u32,
    /// Its least and greatest; `None` where the kernel does not say, 0 for no limit.
    pub(crate) mtu_min: Option<u32>,
    pub(crate) mtu_max: Option<u32>,
    /// Packets its queueing discipline may hold by default.
    pub(crate) tx_queue_len: u32,
}

/// The limits of a device.
pub(crate) fn limits(index: u32) -> Result<LinkLimits> {
    let mut query = LinkMessage::default();
    query.header.index = index;
    let object = format!("device number {index}");
    let answers = connection()?.request("read", &object, RouteNetlinkMessage::GetLink(query), 0)?;
    let found = answers.into_iter().find_map(|message| match message {
        RouteNetlinkMessage::NewLink(found) => Some(found),
        _ => None,
    });
    let no_device = || HostError::Answer { operation: "read", object, what: "no device in it".to_owned() };
    let mut limits = LinkLimits { mtu: 0, mtu_min: None, mtu_max: None, tx_queue_len: 0 };
    for attribute in found.ok_or_else(no_device)?.attributes {
        match attribute {
            LinkAttribute::Mtu(mtu) => limits.mtu = mtu,
            LinkAttribute::MinMtu(mtu) => limits.mtu_min = Some(mtu),
            LinkAttribute::MaxMtu(mtu) => limits.mtu_max = Some(mtu),
            LinkAttribute::TxQueueLen(packets) => limits.tx_queue_len = packets,
            _ => {}
        }
    }
    Ok(limits)
}

/// Sets how many packets a queueing discipline made later may hold.
pub(crate) fn set_tx_queue_len(index: u32, packets: u32) -> Result<()> {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes.push(LinkAttribute::TxQueueLen(packets));
    let object = format!("device number {index}");
    change("set the queue length of", &object, RouteNetlinkMessage::SetLink(message), 0)
}

/// Sets a device up or down.
pub fn set_up(index: u32, up: bool) -> Result<()> {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
    message.header.change_mask = LinkFlags::Up;
    let operation = if up { "set up" } else { "set down" };
    change(operation, &format!("device number {index}"), RouteNetlinkMessage::SetLink(message), 0)
}

/// Gives a device an address, which is usable at once: IPv6 duplicate detection, which takes a second, is left out.
pub fn add_address(index: u32, address: IpAddr, prefix_length: u8) -> Result<()> {
    let mut message = AddressMessage::default();
    message.header.family = family(address).0;
    message.header.prefix_len = prefix_length;
    message.header.scope = AddressScope::Universe;
    message.header.index = index;
    message.attributes.push(AddressAttribute::Local(address));
    message.attributes.push(AddressAttribute::Address(address));
    if address.is_ipv6() {
        message.header.flags = AddressHeaderFlags::Nodad;
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
    }
    let object = format!("device number {index} the address {address}/{prefix_length}");
    change("give", &object, RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL)
}

/// Waits until a device is up and has a carrier, for `bound` at most.
pub fn wait_for_carrier(index: u32, bound: Duration) -> Result<Link> {
    /// A fraction of what a veth needs, and nothing beside the seconds a real link takes.
    const STEP: Duration = Duration::from_millis(1);
    let start = clock::now();
    loop {
        let link = link_by_index(index)?;
        if link.running {
            return Ok(link);
        }
        if clock::now().since(start) >= bound {
            let object = format!("device {}", link.name);
            return Err(HostError::Deadline { operation: "wait for the carrier of", object, after: bound });
        }
        clock::sleep_until(clock::now().after(STEP));
    }
}

fn change(operation: &'static str, object: &str, message: RouteNetlinkMessage, flags: u16) -> Result<()> {
    connection()?.request(operation, object, message, flags).map(drop).map_err(|error| match error.errno() {
        Some(libc::EPERM) => error.with_hint("it takes CAP_NET_ADMIN in this network namespace: run as root"),
        _ => error,
    })
}

fn read_link(query: LinkMessage, what: &str) -> Result<Link> {
    let answers =
        connection()?.request("read", what, RouteNetlinkMessage::GetLink(query), 0).map_err(|error| {
            match error.errno() {
                Some(libc::ENODEV) => {
                    HostError::NotFound { what: what.to_owned(), hint: Some(device_names().into()) }
                }
                _ => error,
            }
        })?;
    let found = answers.iter().find_map(|message| match message {
        RouteNetlinkMessage::NewLink(found) => Some(describe(found)),
        _ => None,
    });
    found.ok_or_else(|| HostError::Answer {
        operation: "read",
        object: what.to_owned(),
        what: "no device in it".to_owned(),
    })
}

/// What the user could have meant.
pub(crate) fn device_names() -> String {
    let names: Vec<String> = links().unwrap_or_default().into_iter().map(|link| link.name).collect();
    format!("this network namespace has {}", names.join(", "))
}

fn describe(message: &LinkMessage) -> Link {
    let flags = message.header.flags;
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        mac: String::new(),
        mtu: 0,
        carrier_changes: None,
        running: flags.contains(LinkFlags::Up | LinkFlags::Running | LinkFlags::LowerUp),
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::CarrierChanges(count) => link.carrier_changes = Some(*count),
            LinkAttribute::Address(bytes) => {
                link.mac = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":");
            }
            _ => {}
        }
    }
    link
}

/// On a point-to-point device `Address` is the other end's, so `Local` goes first where there is one.
fn carries(message: &AddressMessage, wanted: IpAddr) -> bool {
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    let address = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Address(address) => Some(*address),
        _ => None,
    });
    local.or(address) == Some(wanted)
}

/// The address family and the length in bits of a whole address.
fn family(address: IpAddr) -> (AddressFamily, u8) {
    match address {
        IpAddr::V4(_) => (AddressFamily::Inet, 32),
        IpAddr::V6(_) => (AddressFamily::Inet6, 128),
    }
}

fn mtu_word(device: &str, mtu: ByteCount) -> Result<u32> {
    u32::try_from(mtu.0).map_err(|_| {
        HostError::os(
            "set the MTU of",
            format!("{device} to {mtu}"),
            std::io::Error::from_raw_os_error(libc::EINVAL),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(index: u32, name: &str, attributes: Vec<LinkAttribute>) -> Standing {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes = attributes;
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        Standing::of(&message)
    }

    #[test]
    fn a_device_is_followed_to_what_it_stands_on_whatever_the_order_of_the_list() {
        let kind = |kind| LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)]);
        let all = [
            device(9, "vlan", vec![LinkAttribute::Link(5), kind(InfoKind::Vlan)]),
            device(5, "bond", vec![kind(InfoKind::Bond)]),
            device(2, "eth0", vec![LinkAttribute::Controller(5)]),
            device(3, "eth1", vec![LinkAttribute::Controller(5)]),
            device(4, "veth", vec![LinkAttribute::Link(2), kind(InfoKind::Veth)]),
            device(6, "macvlan", vec![LinkAttribute::Link(2), LinkAttribute::LinkNetNsId(0)]),
            // As it can look while it is changed.
            device(7, "loop", vec![LinkAttribute::Link(8)]),
            device(8, "back", vec![LinkAttribute::Link(7), LinkAttribute::Controller(8)]),
            device(1, "lo", vec![LinkAttribute::Link(1)]),
        ];
        let names = |index| {
            let mut names: Vec<String> = parts_of(&all, index).into_iter().map(|link| link.name).collect();
            names.sort();
            names
        };
        assert_eq!(names(9), ["bond", "eth0", "eth1"]);
        assert_eq!(names(5), ["eth0", "eth1"]);
        assert_eq!(names(7), ["back"]);
        for alone in [1, 2, 4, 6, 77] {
            assert_eq!(names(alone), [""; 0], "number {alone}");
        }
    }
}
