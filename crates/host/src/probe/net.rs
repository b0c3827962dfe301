//! Where packets were lost, as far as this host counts them: one snapshot of everything on a packet's way.
//!
//! ```text
//! socket ─▶ UDP ─▶ IP ─▶ qdisc ─▶ device ═══ device ─▶ softnet ─▶ IP ─▶ UDP ─▶ socket
//!   SndbufErrors   FragFails  drops   tx_dropped   rx_dropped  dropped  ReasmFails  RcvbufErrors
//! ```
//!
//! The protocol counters are those of the calling thread's network namespace (`/proc/thread-self/net/snmp`, `snmp6`;
//! net/ipv4/proc.c, net/ipv6/proc.c), device and qdiscs those of one device (rtnetlink), softnet is of the whole host
//! (net/core/net-procfs.c). They count for every program there, so a socket's own drops are told by
//! [`udp::drops`](crate::socket::udp::drops). Nothing is reset: a window is the difference of two snapshots.
//!
//! What cannot be read is `None`, and [`NetCounters::absent`] says why, by the name of the field or of the group it is
//! in.

use std::collections::BTreeMap;
use std::fs;

use serde::{Deserialize, Serialize};

use crate::error::{HostError, Named as _};
use crate::link::Link;

mod device;
mod totals;

pub use device::Qdisc;
pub use totals::{DeviceTotals, device_totals};

const SNMP: &str = "/proc/thread-self/net/snmp";
const SNMP6: &str = "/proc/thread-self/net/snmp6";
const SOFTNET: &str = "/proc/thread-self/net/softnet_stat";

/// Why counters are missing, by name.
type Reasons = BTreeMap<String, String>;

/// The counters of one namespace and device: totals, or what [`NetCounters::since`] made of two of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NetCounters {
    /// The device.
    pub device: String,
    /// UDP in IPv4 packets, whatever the family of the socket.
    pub udp4: UdpCounters,
    /// UDP in IPv6 packets.
    pub udp6: UdpCounters,
    /// IPv4.
    pub ip4: IpCounters,
    /// IPv6.
    pub ip6: IpCounters,
    /// The device's own counters.
    pub link: LinkCounters,
    /// The device's queueing disciplines, the root one first; `None` where they could not be read.
    pub qdiscs: Option<Vec<Qdisc>>,
    /// Packets that found the queue between a device and the protocols full (`net.core.netdev_max_backlog`): of all
    /// devices and namespaces of the host.
    pub softnet_dropped: Option<u64>,
    /// Why a field is `None`, by its name (`udp6.in_datagrams`) or that of its group (`udp6`).
    pub absent: BTreeMap<String, String>,
}

macro_rules! counters {
    ($(#[$about:meta])* $group:ident { $($(#[$doc:meta])* $name:ident = $key:literal,)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $group {
            $($(#[$doc])* pub $name: Option<u64>,)+
        }

        impl $group {
            /// Takes each counter by the kernel's name for it.
            fn take(group: &str, source: &str, reasons: &mut Reasons, find: impl Fn(&str) -> Option<u64>) -> Self {
                Self {
                    $($name: find($key).or_else(|| {
                        let reason = format!("this kernel has no {} in {source}", $key);
                        reasons.insert(format!("{group}.{}", stringify!($name)), reason);
                        None
                    }),)+
                }
            }

            fn since(self, earlier: Self, group: &str, reasons: &mut Reasons) -> Self {
                Self {
                    $($name: between(earlier.$name, self.$name, || format!("{group}.{}", stringify!($name)), reasons),)+
                }
            }
        }
    };
}

counters! {
    /// What UDP counted (RFC 4113, and Linux's own).
    UdpCounters {
        /// Datagrams handed to sockets.
        in_datagrams = "InDatagrams",
        /// Datagrams nobody waited for.
        no_ports = "NoPorts",
        /// Datagrams that could not be handed over, those of `rcvbuf_errors` and `in_csum_errors` included.
        in_errors = "InErrors",
        /// Datagrams sent.
        out_datagrams = "OutDatagrams",
        /// Datagrams that found their socket's receive buffer full.
        rcvbuf_errors = "RcvbufErrors",
        /// Sends that failed for want of memory or of room in the device's queue.
        sndbuf_errors = "SndbufErrors",
        /// Datagrams with a wrong checksum.
        in_csum_errors = "InCsumErrors",
    }
}

counters! {
    /// What IP counted (RFC 4293).
    IpCounters {
        /// Packets received.
        in_receives = "InReceives",
        /// Packets with a broken header.
        in_hdr_errors = "InHdrErrors",
        /// Packets to an address that is not this host's.
        in_addr_errors = "InAddrErrors",
        /// Whole packets dropped on the way in, for want of memory or by a rule.
        in_discards = "InDiscards",
        /// Packets handed to a protocol.
        in_delivers = "InDelivers",
        /// Packets the protocols of this host asked to send.
        out_requests = "OutRequests",
        /// Whole packets dropped on the way out.
        out_discards = "OutDiscards",
        /// Packets with no route.
        out_no_routes = "OutNoRoutes",
        /// Fragments received.
        reasm_reqds = "ReasmReqds",
        /// Packets put together from fragments.
        reasm_oks = "ReasmOKs",
        /// Packets given up for want of a fragment or of memory.
        reasm_fails = "ReasmFails",
        /// Packets cut into fragments.
        frag_oks = "FragOKs",
        /// Packets that were too large and must not be cut.
        frag_fails = "FragFails",
        /// Fragments made.
        frag_creates = "FragCreates",
    }
}

counters! {
    /// What the device counted (`IFLA_STATS64`, Documentation/networking/statistics.rst).
    LinkCounters {
        /// Packets received.
        rx_packets = "rx_packets",
        /// Packets sent.
        tx_packets = "tx_packets",
        /// Bytes received.
        rx_bytes = "rx_bytes",
        /// Bytes sent.
        tx_bytes = "tx_bytes",
        /// Received and dropped, for want of room or of a protocol that takes them.
        rx_dropped = "rx_dropped",
        /// Dropped instead of sent.
        tx_dropped = "tx_dropped",
        /// Received and broken.
        rx_errors = "rx_errors",
        /// Not sent for an error.
        tx_errors = "tx_errors",
        /// Dropped by the NIC because the host was too slow to take them.
        rx_missed_errors = "rx_missed_errors",
    }
}

impl NetCounters {
    /// The counters now, of the calling thread's network namespace and of `device` in it.
    #[must_use]
    pub fn read(device: &Link) -> Self {
        let mut reasons = Reasons::new();
        let text =
            |path: &str| fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"));
        let mut counters = Self { device: device.name.clone(), ..Self::default() };
        if let Some(text) = noted(&["udp4", "ip4"], text(SNMP), &mut reasons) {
            counters.take_v4(&text, &mut reasons);
        }
        if let Some(text) = noted(&["udp6", "ip6"], text(SNMP6), &mut reasons) {
            counters.take_v6(&text, &mut reasons);
        }
        let softnet = text(SOFTNET).and_then(|text| {
            softnet_dropped(&text)
                .ok_or_else(|| format!("no second column of hexadecimal numbers in {SOFTNET}"))
        });
        counters.softnet_dropped = noted(&["softnet_dropped"], softnet, &mut reasons);
        let found = device::statistics(device.index).map_err(|error| error.to_string());
        if let Some(find) = noted(&["link"], found, &mut reasons) {
            counters.link = LinkCounters::take("link", "IFLA_STATS64", &mut reasons, find);
        }
        let qdiscs = device::qdiscs(device.index).map_err(|error| error.to_string());
        counters.qdiscs = noted(&["qdiscs"], qdiscs, &mut reasons);
        counters.absent = reasons;
        counters
    }

    fn take_v4(&mut self, text: &str, reasons: &mut Reasons) {
        self.udp4 = UdpCounters::take("udp4", SNMP, reasons, |key| snmp(text, "Udp:", key));
        self.ip4 = IpCounters::take("ip4", SNMP, reasons, |key| snmp(text, "Ip:", key));
    }

    fn take_v6(&mut self, text: &str, reasons: &mut Reasons) {
        self.udp6 = UdpCounters::take("udp6", SNMP6, reasons, |key| snmp6(text, "Udp6", key));
        self.ip6 = IpCounters::take("ip6", SNMP6, reasons, |key| snmp6(text, "Ip6", key));
    }

    /// What was counted from `earlier` to this snapshot, of the same device and namespace. A counter that went
    /// backwards, as that of a device made anew, is absent with that reason.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut reasons = self.absent.clone();
        reasons.extend(earlier.absent.clone());
        let qdiscs = match (&self.qdiscs, &earlier.qdiscs) {
            (Some(now), Some(then)) => Some(Qdisc::all_since(now, then, &mut reasons)),
            _ => None,
        };
        let softnet = || "softnet_dropped".to_owned();
        Self {
            device: self.device.clone(),
            udp4: self.udp4.since(earlier.udp4, "udp4", &mut reasons),
            udp6: self.udp6.since(earlier.udp6, "udp6", &mut reasons),
            ip4: self.ip4.since(earlier.ip4, "ip4", &mut reasons),
            ip6: self.ip6.since(earlier.ip6, "ip6", &mut reasons),
            link: self.link.since(earlier.link, "link", &mut reasons),
            qdiscs,
            softnet_dropped: between(earlier.softnet_dropped, self.softnet_dropped, softnet, &mut reasons),
            absent: reasons,
        }
    }

    /// The qdisc that packets leave through, whose drops include those of the ones below it.
    #[must_use]
    pub fn root_qdisc(&self) -> Option<&Qdisc> {
        self.qdiscs.as_ref()?.iter().find(|qdisc| qdisc.is_root())
    }
}

/// The difference of two readings; why there is none goes to `reasons`, under its name.
fn between(
    then: Option<u64>,
    now: Option<u64>,
    name: impl Fn() -> String,
    reasons: &mut Reasons,
) -> Option<u64> {
    let (then, now) = (then?, now?);
    let counted = now.checked_sub(then);
    if counted.is_none() {
        reasons.insert(name(), format!("it went backwards, from {then} to {now}: it was reset in between"));
    }
    counted
}

/// What was read, or a note under each of `names` of why it was not.
fn noted<T>(names: &[&str], read: Result<T, String>, reasons: &mut Reasons) -> Option<T> {
    read.map_err(|reason| reasons.extend(names.iter().map(|name| ((*name).to_owned(), reason.clone())))).ok()
}

/// How many segments the TCP of the calling thread's network namespace has sent again, SYNs included, over IPv4 and IPv6:
/// of connections that are gone nothing else can say.
pub fn tcp_retransmits() -> crate::Result<u64> {
    let text = fs::read_to_string(SNMP).named("read", || SNMP.to_owned())?;
    snmp(&text, "Tcp:", "RetransSegs").ok_or_else(|| HostError::Answer {
        operation: "read",
        object: SNMP.to_owned(),
        what: "no RetransSegs in a line Tcp:".to_owned(),
    })
}

/// A counter of `/proc/net/snmp`: a line of names and a line of values for each protocol, both with its name before
/// them.
fn snmp(text: &str, protocol: &str, key: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut pairs = names.split_ascii_whitespace().zip(values.split_ascii_whitespace());
    pairs.find(|(name, _)| *name == key)?.1.parse().ok()
}

/// A counter of `/proc/net/snmp6`: a name and a value to a line.
fn snmp6(text: &str, protocol: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let value = line.strip_prefix(protocol)?.strip_prefix(key)?;
        value.starts_with(|next: char| next.is_ascii_whitespace()).then(|| value.trim().parse().ok())?
    })
}

/// The second column of `/proc/net/softnet_stat`, a line for each CPU, in hexadecimal.
fn softnet_dropped(text: &str) -> Option<u64> {
    let dropped = |line: &str| u64::from_str_radix(line.split_ascii_whitespace().nth(1)?, 16).ok();
    let of_cpus: Option<Vec<u64>> = text.lines().map(dropped).collect();
    of_cpus.filter(|cpus| !cpus.is_empty()).map(|cpus| cpus.into_iter().fold(0, u64::saturating_add))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Ip: Forwarding InReceives InDiscards
Ip: 2 10 1
Tcp: RtoAlgorithm MaxConn InSegs RetransSegs InErrs
Tcp: 1 -1 99 12 0
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti
Udp: 171 1 2 173 3 4 5 0
UdpLite: InDatagrams NoPorts
UdpLite: 9 9
";

    #[test]
    fn a_protocols_counters_are_found_by_name_and_one_that_is_not_there_says_so() {
        let mut counters = NetCounters::default();
        let mut reasons = Reasons::new();
        counters.take_v4(TEXT, &mut reasons);
        assert_eq!(
            counters.udp4,
            UdpCounters {
                in_datagrams: Some(171),
                no_ports: Some(1),
                in_errors: Some(2),
                out_datagrams: Some(173),
                rcvbuf_errors: Some(3),
                sndbuf_errors: Some(4),
                in_csum_errors: Some(5),
            }
        );
        assert_eq!((counters.ip4.in_receives, counters.ip4.frag_fails), (Some(10), None));
        assert_eq!(snmp(TEXT, "Tcp:", "RetransSegs"), Some(12));
        assert!(reasons["ip4.frag_fails"].contains("no FragFails in /proc/"), "{reasons:?}");
        assert!(!reasons.keys().any(|key| key.starts_with("udp4")), "{reasons:?}");

        let six = "Ip6InReceives\t755649\nIp6InReceivesMore 1\nUdp6InDatagrams   3\nUdpLite6InDatagrams 7\n";
        counters.take_v6(six, &mut reasons);
        assert_eq!((counters.ip6.in_receives, counters.udp6.in_datagrams), (Some(755_649), Some(3)));
        assert_eq!(counters.udp6.no_ports, None);
        assert!(reasons["udp6.no_ports"].contains("snmp6"), "{reasons:?}");
        for broken in ["", "Udp:", "Udp: InDatagrams\n", "Udp: InDatagrams\nUdp: -1\n"] {
            assert_eq!(snmp(broken, "Udp:", "InDatagrams"), None, "{broken:?}");
        }
    }

    #[test]
    fn softnet_drops_are_summed_over_the_cpus() {
        let text = "2262e660 000054b5 00000048\n13fcc88f 0000000a 00000031\n";
        assert_eq!(softnet_dropped(text), Some(0x54b5 + 10));
        for broken in ["", "2262e660\n", "2262e660 x\n"] {
            assert_eq!(softnet_dropped(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn a_window_is_the_difference_and_what_is_missing_at_either_end_stays_missing_with_its_reason() {
        let reason = |name: &str| Reasons::from([(name.to_owned(), "not there".to_owned())]);
        let mut then = NetCounters { softnet_dropped: Some(5), ..NetCounters::default() };
        then.udp4.in_datagrams = Some(10);
        then.udp4.no_ports = Some(7);
        then.absent = reason("udp6");
        let mut now = NetCounters { softnet_dropped: Some(8), absent: reason("qdiscs"), ..then.clone() };
        now.udp4.in_datagrams = Some(25);
        now.udp4.no_ports = Some(3);
        now.udp6.in_datagrams = Some(1);
        let window = now.since(&then);
        assert_eq!((window.udp4.in_datagrams, window.softnet_dropped), (Some(15), Some(3)));
        assert_eq!(
            (window.udp4.no_ports, window.udp6.in_datagrams, window.qdiscs.as_ref()),
            (None, None, None)
        );
        let keys: Vec<&str> = window.absent.keys().map(String::as_str).collect();
        assert_eq!(keys, ["qdiscs", "udp4.no_ports", "udp6"]);
        assert!(window.absent["udp4.no_ports"].contains("backwards, from 7 to 3"), "{window:?}");
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_a_parser_panic(text in "(Udp: |Udp6|InDatagrams |[0-9a-f]{1,21} |\\PC|\t|\n){0,60}") {
            let _ = (snmp(&text, "Udp:", "InDatagrams"), snmp6(&text, "Udp6", "InDatagrams"), softnet_dropped(&text));
        }
    }
}
