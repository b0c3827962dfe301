//! Who else changes a device while haul measures: what the kernel tells of it, as it happens.
//!
//! A change that was taken back before the settings are read again leaves no trace in them, and its effect in the
//! measurement. So a socket listens for what the kernel announces: changes of the link and of its queueing discipline
//! (rtnetlink), and of what ethtool sets (its group "monitor"). A carrier that went and came is counted by the device, which
//! is surer than an announcement that may be delayed for a second (`net/core/link_watch.c`).
//!
//! Numbers: `include/uapi/linux/{rtnetlink,ethtool_netlink}.h`. What is not understood is no change of this device.

use std::io;

use netlink_packet_core::NlasIterator;
use netlink_packet_generic::GenlMessage;
use netlink_packet_generic::ctrl::nlas::{GenlCtrlAttrs, McastGrpAttrs};
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_sys::{Socket, SocketAddr, protocols};

use crate::error::{HostError, Named as _, Result};
use crate::link::{self, Link, LinkLimits};
use crate::netlink::Connection;

const RTNLGRP_LINK: u32 = 1;
const RTNLGRP_TC: u32 = 4;

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;

/// `ETHTOOL_MSG_*_NTF` from the kernel.
const NOTIFICATIONS: [(u8, &str); 9] = [
    (3, "link settings"),
    (5, "link modes"),
    (10, "wake-on-LAN"),
    (13, "features"),
    (15, "private flags"),
    (17, "rings"),
    (19, "channels"),
    (21, "coalescing"),
    (23, "flow control"),
];

/// Something that was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    /// In words.
    pub(crate) text: String,
}

/// Ears for one device, in the network namespace of the thread that opened them.
#[derive(Debug)]
pub(crate) struct Watch {
    index: u32,
    route: Socket,
    /// Without one on kernels before 5.6.
    ethtool: Option<(Socket, u16)>,
    last: Seen,
    netns: crate::netns::Netns,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    link: Link,
    limits: LinkLimits,
}

fn change(text: impl Into<String>) -> Change {
    Change { text: text.into() }
}

fn listener(protocol: isize, groups: &[u32]) -> Result<Socket> {
    let object = || "changes of a network device".to_owned();
    let mut socket = Socket::new(protocol).named("listen for", object)?;
    socket.bind(&SocketAddr::new(0, 0)).named("listen for", object)?;
    for group in groups {
        socket.add_membership(*group).named("listen for", object)?;
    }
    socket.set_non_blocking(true).named("listen for", object)?;
    Ok(socket)
}

/// The number of ethtool's family and of its group of announcements.
fn monitor() -> Option<(u16, u32)> {
    let mut connection = Connection::open(protocols::NETLINK_GENERIC).ok()?;
    let ask = GenlMessage::from_payload(GenlCtrl {
        cmd: GenlCtrlCmd::GetFamily,
        nlas: vec![GenlCtrlAttrs::FamilyName("ethtool".to_owned())],
    });
    let answers = connection.request("find the netlink family", "ethtool", ask, 0).ok()?;
    let (mut family, mut found) = (None, None);
    for attribute in answers.iter().flat_map(|answer| &answer.payload.nlas) {
        match attribute {
            GenlCtrlAttrs::FamilyId(id) => family = Some(*id),
            GenlCtrlAttrs::McastGroups(groups) => {
                for group in groups {
                    let monitor =
                        |part: &McastGrpAttrs| matches!(part, McastGrpAttrs::Name(name) if name == "monitor");
                    if group.iter().any(monitor) {
                        found = group.iter().find_map(|part| match part {
                            McastGrpAttrs::Id(id) => Some(*id),
                            McastGrpAttrs::Name(_) => None,
                        });
                    }
                }
            }
            _ => {}
        }
    }
    Some((family?, found?))
}

impl Watch {
    /// Listens from now on.
    pub(crate) fn open(index: u32) -> Result<Self> {
        let route = listener(protocols::NETLINK_ROUTE, &[RTNLGRP_LINK, RTNLGRP_TC])?;
        let ethtool = match monitor() {
            Some((family, group)) => Some((listener(protocols::NETLINK_GENERIC, &[group])?, family)),
            None => None,
        };
        let netns = crate::netns::Netns::current()?;
        Ok(Self { index, route, ethtool, last: seen(index)?, netns })
    }

    /// What was changed since it was opened or asked last, each thing once.
    pub(crate) fn take(&mut self) -> Result<Vec<Change>> {
        let mut changes = Vec::new();
        let index = self.index;
        let limits = &mut self.last.limits;
        drain(&mut self.route, &mut changes, |kind, body| of_route(index, limits, kind, body))?;
        if let Some((socket, family)) = &mut self.ethtool {
            let family = *family;
            drain(
                socket,
                &mut changes,
                |kind, body| if kind == family { of_ethtool(index, body) } else { None },
            )?;
        }
        match self.netns.run(|| seen(index))? {
            Ok(now) => {
                changes.extend(self.last.changes_to(&now));
                self.last = now;
            }
            Err(error)
                if matches!(error, HostError::NotFound { .. }) || error.errno() == Some(libc::ENODEV) =>
            {
                changes.push(change("the device is gone"));
            }
            Err(error) => return Err(error),
        }
        let mut once: Vec<Change> = Vec::new();
        for change in changes {
            if !once.contains(&change) {
                once.push(change);
            }
        }
        Ok(once)
    }
}

fn seen(index: u32) -> Result<Seen> {
    Ok(Seen { link: link::link_by_index(index)?, limits: link::limits(index)? })
}

impl Seen {
    fn changes_to(&self, now: &Self) -> Vec<Change> {
        let mut changes = Vec::new();
        if self.link.name != now.link.name {
            changes.push(change(format!("it was called {} and is {}", self.link.name, now.link.name)));
        }
        if self.link.mac != now.link.mac {
            changes.push(change(format!("its address was {} and is {}", self.link.mac, now.link.mac)));
        }
        changes.extend(self.limits.changes_to(&now.limits));
        match (self.link.running, now.link.running) {
            (true, false) => changes.push(change("the carrier was lost")),
            (false, true) => changes.push(change("the carrier came")),
            _ if self.link.carrier_changes != now.link.carrier_changes => {
                changes.push(change("the carrier was lost and came back"));
            }
            _ => {}
        }
        changes
    }
}

impl LinkLimits {
    fn changes_to(&self, now: &Self) -> Vec<Change> {
        let mut changes = Vec::new();
        if self.mtu != now.mtu {
            changes.push(change(format!("mtu {} -> {}", self.mtu, now.mtu)));
        }
        if self.tx_queue_len != now.tx_queue_len {
            changes.push(change(format!("queue length {} -> {}", self.tx_queue_len, now.tx_queue_len)));
        }
        changes
    }
}

/// Reads what has come. `meant` tells a message's meaning, by its type and what follows its header.
fn drain(
    socket: &mut Socket,
    changes: &mut Vec<Change>,
    mut meant: impl FnMut(u16, &[u8]) -> Option<Change>,
) -> Result<()> {
    /// More is somebody's storm, and told as such.
    const MOST: usize = 10_000;
    for _ in 0..MOST {
        match socket.recv_from_full() {
            Ok((datagram, _)) => {
                changes.extend(messages(&datagram).filter_map(|(kind, body)| meant(kind, body)));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                changes.push(change("more changes than could be read"));
            }
            Err(error) => return Err(HostError::os("listen for", "changes of a network device", error)),
        }
    }
    changes.push(change("more changes than could be read"));
    Ok(())
}

/// The messages of a datagram: type, and what follows the header.
fn messages(datagram: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    const HEAD: usize = 16;
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let length = usize::try_from(word(rest, 0)?).ok()?;
        let kind = u16::from_ne_bytes(rest.get(4..6)?.try_into().ok()?);
        let body = rest.get(HEAD..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, body))
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// `struct ifinfomsg` and `struct tcmsg` both have the device's index in their second word. A link is announced for many
/// reasons; what has changed is found by comparing with `last`, which moves along.
fn of_route(index: u32, last: &mut LinkLimits, kind: u16, body: &[u8]) -> Option<Change> {
    /// `sizeof(struct ifinfomsg)`.
    const HEAD: usize = 16;
    const IFLA_MTU: u16 = 4;
    const IFLA_TXQLEN: u16 = 13;
    if word(body, 4)? != index {
        return None;
    }
    match kind {
        RTM_NEWLINK => {
            let attributes = body.get(HEAD..)?;
            let mtu = find(attributes, IFLA_MTU).and_then(|value| word(&value, 0)).unwrap_or(last.mtu);
            let queue =
                find(attributes, IFLA_TXQLEN).and_then(|value| word(&value, 0)).unwrap_or(last.tx_queue_len);
            let now = LinkLimits { mtu, tx_queue_len: queue, ..last.clone() };
            let before = std::mem::replace(last, now);
            before.changes_to(last).into_iter().next()
        }
        RTM_DELLINK => Some(change("the device is gone")),
        RTM_NEWQDISC | RTM_DELQDISC => Some(change("a queueing discipline was changed")),
        _ => None,
    }
}

/// The value of the first attribute of that kind.
fn find(bytes: &[u8], kind: u16) -> Option<Vec<u8>> {
    let parts = NlasIterator::new(bytes).map_while(std::result::Result::ok);
    parts.filter(|part| part.kind() == kind).map(|part| part.value().to_vec()).next()
}

/// After the generic header the first attribute names the device.
fn of_ethtool(index: u32, body: &[u8]) -> Option<Change> {
    const HEADER: u16 = 1;
    const DEV_INDEX: u16 = 1;
    const GENERIC: usize = 4;
    let command = *body.first()?;
    let (_, what) = NOTIFICATIONS.into_iter().find(|(number, _)| *number == command)?;
    let header = find(body.get(GENERIC..)?, HEADER)?;
    let device = find(&header, DEV_INDEX)?;
    (word(&device, 0)? == index).then(|| change(format!("its {what} were changed")))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use haul_stats::ByteCount;
    use proptest::prelude::*;

    use super::*;
    use crate::netns::Netns;
    use crate::{ethtool, qdisc};

    #[test]
    fn what_others_change_is_seen_and_nothing_where_nobody_does() {
        assert!(crate::privilege::effective_root(), "this test makes network devices: run it as root");
        let netns = Netns::create().unwrap();
        let work = || {
            link::create_veth("va", "vb", &netns, ByteCount(1500)).unwrap();
            let of = |name: &str| link::link_by_name(name).unwrap().index;
            link::set_up(of("va"), true).unwrap();
            link::set_up(of("vb"), true).unwrap();
            let (va, vb) = (of("va"), of("vb"));
            let carrier = || drop(link::wait_for_carrier(va, Duration::from_secs(2)).unwrap());
            carrier();
            let mut watch = Watch::open(va).unwrap();
            let mut seen =
                || watch.take().unwrap().into_iter().map(|change| change.text).collect::<Vec<_>>().join("; ");
            assert_eq!(seen(), "");
            link::set_mtu(va, ByteCount(1400)).unwrap();
            assert_eq!(seen(), "mtu 1500 -> 1400");
            assert_eq!(seen(), "", "once");
            link::set_mtu(va, ByteCount(1300)).unwrap();
            link::set_mtu(va, ByteCount(1400)).unwrap();
            assert_eq!(seen(), "mtu 1400 -> 1300; mtu 1300 -> 1400", "though it was changed back");
            link::set_tx_queue_len(va, 77).unwrap();
            assert_eq!(seen(), "queue length 1000 -> 77");
            ethtool::set_wanted(va, "va", &[("tx-nocache-copy", true)]).unwrap();
            ethtool::set_wanted(va, "va", &[("tx-nocache-copy", false)]).unwrap();
            assert_eq!(seen(), "its features were changed", "though they were changed back");
            qdisc::replace(va, &qdisc::parse("pfifo limit 10").unwrap()).unwrap();
            assert_eq!(seen(), "a queueing discipline was changed");
            link::set_up(vb, false).unwrap();
            assert_eq!(seen(), "the carrier was lost");
            link::set_up(vb, true).unwrap();
            carrier();
            assert_eq!(seen(), "the carrier came");
            link::set_up(vb, false).unwrap();
            link::set_up(vb, true).unwrap();
            carrier();
            assert_eq!(seen(), "the carrier was lost and came back");
            // Of another device.
            link::set_mtu(vb, ByteCount(1300)).unwrap();
            ethtool::set_wanted(vb, "vb", &[("tx-nocache-copy", true)]).unwrap();
            assert_eq!(seen(), "");
            link::delete(va).unwrap();
            assert_eq!(seen(), "the device is gone");
        };
        netns.run(work).unwrap();
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120), length in 0_u8..120) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = length;
            }
            let mut last = LinkLimits { mtu: 1500, mtu_min: None, mtu_max: None, tx_queue_len: 1000 };
            for (kind, body) in messages(&bytes).take(100) {
                let _ = (of_route(1, &mut last, kind, body), of_ethtool(1, body));
            }
            let _ = of_ethtool(1, &bytes);
        }
    }
}
