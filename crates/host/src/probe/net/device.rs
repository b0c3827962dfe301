//! What a device and its queueing disciplines counted, through rtnetlink.
//!
//! A qdisc's message is read here and not by the netlink-packet-route crate, because that one reads the options of
//! every kind too, and an option it does not expect would cost the counters of all. Of a classful qdisc the root counts
//! what its children drop (`qdisc_tree_reduce_backlog` in `net/sched/sch_api.c`), so the drops of several must not be
//! added.
//!
//! Messages: include/uapi/linux/rtnetlink.h, `pkt_sched.h`, `gen_stats.h`.

use netlink_packet_core::{
    DecodeError, NetlinkDeserializable, NetlinkHeader, NetlinkSerializable, NlasIterator,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use serde::{Deserialize, Serialize};

use super::{Reasons, between};
use crate::error::{HostError, Result};
use crate::netlink::Connection;

/// A queueing discipline and what it counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qdisc {
    /// What it is, such as `fq_codel`.
    pub kind: String,
    /// Its number, major in the upper 16 bits; 0 for one that nobody configured.
    pub handle: u32,
    /// What it hangs from: the number of a class, or [`Qdisc::ROOT`].
    pub parent: u32,
    /// Bytes that passed.
    pub bytes: Option<u64>,
    /// Packets that passed.
    pub packets: Option<u64>,
    /// Packets dropped, those of the qdiscs below included.
    pub drops: Option<u64>,
    /// How often it held packets back.
    pub overlimits: Option<u64>,
    /// Bytes that wait in it now.
    pub backlog_bytes: Option<u64>,
    /// Packets that wait in it now.
    pub backlog_packets: Option<u64>,
}

impl Qdisc {
    /// The parent of the qdisc that packets leave through (`TC_H_ROOT`).
    pub const ROOT: u32 = u32::MAX;

    /// Whether packets leave through it.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.parent == Self::ROOT
    }

    /// What each counted since `then`; what waits is left as it is now.
    pub(super) fn all_since(now: &[Self], then: &[Self], reasons: &mut Reasons) -> Vec<Self> {
        now.iter().map(|qdisc| qdisc.since(then, reasons)).collect()
    }

    fn since(&self, then: &[Self], reasons: &mut Reasons) -> Self {
        let name = format!("qdiscs.{}@{:x}", self.kind, self.parent);
        let same = |other: &&Self| {
            (&self.kind, self.handle, self.parent) == (&other.kind, other.handle, other.parent)
        };
        let earlier = then.iter().find(same);
        if earlier.is_none() {
            reasons.insert(name.clone(), "it was not there at the start".to_owned());
        }
        let passed = |of: fn(&Self) -> Option<u64>, reasons: &mut Reasons| {
            between(earlier.and_then(of), of(self), || name.clone(), reasons)
        };
        let bytes = passed(|qdisc| qdisc.bytes, reasons);
        let packets = passed(|qdisc| qdisc.packets, reasons);
        // These have 32 bits and may begin again, unless the whole qdisc did, which shows in the longer counter.
        let wrapping = |of: fn(&Self) -> Option<u64>| {
            let mask = u64::from(u32::MAX);
            let (now, then) = (of(self)?, of(earlier?)?);
            bytes.map(|_| now.wrapping_sub(then) & mask)
        };
        Self {
            bytes,
            packets,
            drops: wrapping(|qdisc| qdisc.drops),
            overlimits: wrapping(|qdisc| qdisc.overlimits),
            ..self.clone()
        }
    }
}

/// The counters of a device, by name.
pub(super) fn statistics(index: u32) -> Result<impl Fn(&str) -> Option<u64>> {
    let (operation, object) = ("read the counters of", format!("device number {index}"));
    let mut query = LinkMessage::default();
    query.header.index = index;
    let query = RouteNetlinkMessage::GetLink(query);
    let answers = Connection::open(NETLINK_ROUTE)?.request(operation, &object, query, 0)?;
    let found = answers.into_iter().find_map(|message| match message {
        RouteNetlinkMessage::NewLink(found) => {
            found.attributes.into_iter().find_map(|attribute| match attribute {
                LinkAttribute::Stats64(found) => Some(found),
                _ => None,
            })
        }
        _ => None,
    });
    let what = || "no IFLA_STATS64 in it".to_owned();
    let found = found.ok_or_else(|| HostError::Answer { operation, object, what: what() })?;
    Ok(move |name: &str| match name {
        "rx_packets" => Some(found.rx_packets),
        "tx_packets" => Some(found.tx_packets),
        "rx_bytes" => Some(found.rx_bytes),
        "tx_bytes" => Some(found.tx_bytes),
        "rx_dropped" => Some(found.rx_dropped),
        "tx_dropped" => Some(found.tx_dropped),
        "rx_errors" => Some(found.rx_errors),
        "tx_errors" => Some(found.tx_errors),
        "rx_missed_errors" => Some(found.rx_missed_errors),
        _ => None,
    })
}

/// The qdiscs of a device, the root one first.
pub(super) fn qdiscs(index: u32) -> Result<Vec<Qdisc>> {
    let listed = Connection::open(NETLINK_ROUTE)?.dump(
        "list the queueing disciplines of",
        &format!("device number {index}"),
        &QdiscMessage::Query,
    )?;
    // The kernel lists those of all devices.
    let of_device = |message| match message {
        QdiscMessage::Answer { device, qdisc } if device == index => Some(qdisc),
        _ => None,
    };
    let mut found: Vec<Qdisc> = listed.into_iter().filter_map(of_device).collect();
    found.sort_by_key(|qdisc| !qdisc.is_root());
    Ok(found)
}

/// `RTM_GETQDISC` and its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum QdiscMessage {
    Query,
    Answer { device: u32, qdisc: Qdisc },
}

/// `struct tcmsg`: family and padding, device, handle, parent, info.
const HEADER: usize = 20;

impl NetlinkSerializable for QdiscMessage {
    fn message_type(&self) -> u16 {
        libc::RTM_GETQDISC
    }

    fn buffer_len(&self) -> usize {
        HEADER
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer.fill(0);
    }
}

impl NetlinkDeserializable for QdiscMessage {
    type Error = DecodeError;

    fn deserialize(_: &NetlinkHeader, payload: &[u8]) -> std::result::Result<Self, DecodeError> {
        const TCA_KIND: u16 = 1;
        const TCA_STATS2: u16 = 7;
        const TCA_STATS_BASIC: u16 = 1;
        const TCA_STATS_QUEUE: u16 = 3;
        /// Packets in 64 bits, where those of `TCA_STATS_BASIC` have wrapped.
        const TCA_STATS_PKT64: u16 = 8;
        let short = || DecodeError::from("a message shorter than struct tcmsg");
        let field = |at: usize| word(payload, at).ok_or_else(short);
        let mut qdisc = Qdisc {
            kind: String::new(),
            handle: field(8)?,
            parent: field(12)?,
            bytes: None,
            packets: None,
            drops: None,
            overlimits: None,
            backlog_bytes: None,
            backlog_packets: None,
        };
        for attribute in NlasIterator::new(payload.get(HEADER..).ok_or_else(short)?) {
            let attribute = attribute?;
            match attribute.kind() {
                TCA_KIND => {
                    let name = String::from_utf8_lossy(attribute.value());
                    name.trim_end_matches('\0').clone_into(&mut qdisc.kind);
                }
                TCA_STATS2 => {
                    for part in NlasIterator::new(attribute.value()) {
                        let part = part?;
                        let narrow = |at: usize| word(part.value(), at).map(u64::from);
                        match part.kind() {
                            TCA_STATS_BASIC => {
                                qdisc.bytes = long(part.value());
                                qdisc.packets = qdisc.packets.or(narrow(8));
                            }
                            TCA_STATS_PKT64 => qdisc.packets = long(part.value()),
                            TCA_STATS_QUEUE => {
                                qdisc.backlog_packets = narrow(0);
                                qdisc.backlog_bytes = narrow(4);
                                qdisc.drops = narrow(8);
                                qdisc.overlimits = narrow(16);
                            }
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(Self::Answer { device: field(4)?, qdisc })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

fn long(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|long| u64::from_ne_bytes(*long))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(value.len() + 4).expect("short").to_ne_bytes();
        let mut bytes = [length, kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn message(stats: &[Vec<u8>]) -> Vec<u8> {
        // Family, device 7, handle 8001:, root, info; the name, an option nobody knows, the counters.
        let mut bytes = words(&[0, 7, 0x8001_0000, u32::MAX, 2]);
        bytes.extend(attribute(1, b"tbf\0"));
        bytes.extend(attribute(2, &[0xff; 7]));
        bytes.extend(attribute(7, &stats.concat()));
        bytes
    }

    fn read(payload: &[u8]) -> std::result::Result<Qdisc, DecodeError> {
        match QdiscMessage::deserialize(&NetlinkHeader::default(), payload)? {
            QdiscMessage::Answer { device: 7, qdisc } => Ok(qdisc),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_qdiscs_counters_are_read_whatever_its_options_are() {
        let basic = attribute(1, &[&6_000_000_000_u64.to_ne_bytes()[..], &words(&[5, 0])].concat());
        let queue = attribute(3, &words(&[1, 1514, 10_757, 0, 20_000]));
        let qdisc = read(&message(&[basic.clone(), queue.clone()])).expect("whole");
        let expected = Qdisc {
            kind: "tbf".to_owned(),
            handle: 0x8001_0000,
            parent: Qdisc::ROOT,
            bytes: Some(6_000_000_000),
            packets: Some(5),
            drops: Some(10_757),
            overlimits: Some(20_000),
            backlog_bytes: Some(1514),
            backlog_packets: Some(1),
        };
        assert_eq!(qdisc, expected);
        assert!(qdisc.is_root());
        let wide = attribute(8, &((1_u64 << 32) + 5).to_ne_bytes());
        for order in [[wide.clone(), basic.clone()], [basic.clone(), wide]] {
            assert_eq!(read(&message(&order)).expect("wide").packets, Some((1 << 32) + 5));
        }
        let bare = read(&message(&[])).expect("no counters");
        assert_eq!((bare.drops, bare.bytes), (None, None));
        let whole = message(&[basic, queue]);
        for cut in 0..whole.len() {
            // An error or fewer counters, and never a panic.
            if let Ok(qdisc) = read(&whole[..cut]) {
                assert!(qdisc.drops.is_none(), "cut at {cut}: {qdisc:?}");
            }
        }
    }

    #[test]
    fn a_window_of_a_qdisc_that_was_replaced_is_absent_and_a_wrapped_counter_is_not() {
        let basic = attribute(1, &[&1000_u64.to_ne_bytes()[..], &words(&[5, 0])].concat());
        let queue = attribute(3, &words(&[1, 1514, u32::MAX, 0, 7]));
        let then = read(&message(&[basic, queue])).expect("qdisc");
        let mut now = then.clone();
        now.bytes = Some(4000);
        now.drops = Some(2);
        let mut reasons = Reasons::new();
        let window = now.since(std::slice::from_ref(&then), &mut reasons);
        assert_eq!((window.bytes, window.packets, window.drops), (Some(3000), Some(0), Some(3)));
        assert_eq!(window.backlog_bytes, Some(1514), "what waits is not a count");
        assert!(reasons.is_empty(), "{reasons:?}");

        now.bytes = Some(10);
        let window = now.since(std::slice::from_ref(&then), &mut reasons);
        assert_eq!((window.bytes, window.drops), (None, None));
        assert!(reasons["qdiscs.tbf@ffffffff"].contains("backwards"), "{reasons:?}");
        now.handle = 0;
        let window = now.since(&[then], &mut reasons);
        assert_eq!((window.bytes, window.packets, window.overlimits), (None, None, None));
        assert!(reasons["qdiscs.tbf@ffffffff"].contains("not there at the start"), "{reasons:?}");
    }
}
