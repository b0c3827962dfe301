//! A NIC's features, rings, interrupt coalescing and channels, through ethtool's netlink family.
//!
//! The kernel keeps three facts per feature: whether the driver lets it change (*hw*), what somebody asked for
//! (*wanted*), and what is in force (*active*). `active = fix(wanted, hw)`: a request the kernel cannot meet is
//! remembered and answered with success, and takes effect later, when what it needs comes back. Hence "exit code 0" of
//! a change proves nothing, and a feature is put back only when its *wanted* bit is.
//!
//! Feature names are the kernel's own (`tx-tcp-segmentation`), as `ethtool -k` shows them; the old group names are the
//! business of [`crate::settings`], and so is everything that keeps a change from outliving its purpose:
//! [`set_wanted`] writes no journal.
//!
//! Sources: `net/ethtool/features.c`, `Documentation/networking/netdev-features.rst`. Rings, coalescing and channels
//! are only read here.

mod message;

use std::collections::{BTreeMap, BTreeSet};

use netlink_packet_generic::GenlMessage;
use netlink_packet_generic::ctrl::nlas::GenlCtrlAttrs;
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use serde::{Deserialize, Serialize};

use self::message::{Message, features as kind, request};
use crate::error::{HostError, Result};
use crate::netlink::Connection;

/// What a device can do, was asked to do and does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features {
    /// Every feature this kernel knows, in its order.
    pub names: Vec<String>,
    /// Features the driver allows to be changed, unless they are also in `nochange`.
    pub hw: BTreeSet<String>,
    /// Features asked for.
    pub wanted: BTreeSet<String>,
    /// Features in force.
    pub active: BTreeSet<String>,
    /// Features no driver may change.
    pub nochange: BTreeSet<String>,
}

impl Features {
    /// Whether this kernel has a feature of that name.
    #[must_use]
    pub fn knows(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// Whether the feature may be changed on this device.
    #[must_use]
    pub fn is_changeable(&self, name: &str) -> bool {
        self.hw.contains(name) && !self.nochange.contains(name)
    }

    /// Whether somebody asked for the feature. A feature that cannot be changed counts as asked for when it is active.
    #[must_use]
    pub fn is_wanted(&self, name: &str) -> bool {
        if self.is_changeable(name) { self.wanted.contains(name) } else { self.active.contains(name) }
    }

    /// Whether the feature is in force.
    #[must_use]
    pub fn is_active(&self, name: &str) -> bool {
        self.active.contains(name)
    }

    /// The state of every feature in the words of `ethtool -k`: `on`, `off [fixed]`, `off [requested on]`.
    #[must_use]
    pub fn describe(&self) -> BTreeMap<String, String> {
        let word = |on: bool| if on { "on" } else { "off" };
        let state = |name: &String| {
            let active = self.is_active(name);
            if !self.is_changeable(name) {
                format!("{} [fixed]", word(active))
            } else if self.is_wanted(name) == active {
                word(active).to_owned()
            } else {
                format!("{} [requested {}]", word(active), word(!active))
            }
        };
        self.names.iter().map(|name| (name.clone(), state(name))).collect()
    }
}

/// What the kernel answered to a request for features.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetReply {
    /// Features that are not as they were just requested to be, with the requested state.
    pub refused: BTreeMap<String, bool>,
    /// Features whose active state the request changed, with the state they have now.
    pub changed: BTreeMap<String, bool>,
}

/// The ethtool family in one network namespace: that of the thread that opened it, whatever thread uses it later.
#[derive(Debug)]
pub(crate) struct Ethtool {
    connection: Connection,
    family: u16,
}

impl Ethtool {
    /// Opens the family in the calling thread's network namespace.
    pub(crate) fn open() -> Result<Self> {
        let mut connection = Connection::open(netlink_sys::protocols::NETLINK_GENERIC)?;
        let operation = "find the netlink family";
        let ask = GenlMessage::from_payload(GenlCtrl {
            cmd: GenlCtrlCmd::GetFamily,
            nlas: vec![GenlCtrlAttrs::FamilyName("ethtool".to_owned())],
        });
        let answers = connection
            .request(operation, "ethtool", ask, 0)
            .map_err(|error| error.with_hint("this kernel lacks CONFIG_ETHTOOL_NETLINK (Linux 5.6)"))?;
        let family =
            answers.iter().flat_map(|answer| &answer.payload.nlas).find_map(|attribute| match attribute {
                GenlCtrlAttrs::FamilyId(id) => Some(*id),
                _ => None,
            });
        let what = || HostError::Answer {
            operation,
            object: "ethtool".to_owned(),
            what: "no number in it".to_owned(),
        };
        Ok(Self { connection, family: family.ok_or_else(what)? })
    }

    /// The features of a device.
    pub(crate) fn features(&mut self, index: u32) -> Result<Features> {
        let operation = "read the features of";
        let answer = self.ask(operation, index, Message::about(request::FEATURES_GET, index, None))?;
        let bits =
            |of: u16| answer.bits(of).map_err(|error| not_understood(operation, index, error.to_string()));
        let on = |of: u16| -> Result<BTreeSet<String>> {
            Ok(bits(of)?.into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect())
        };
        Ok(Features {
            names: bits(kind::HW)?.into_iter().map(|(name, _)| name).collect(),
            hw: on(kind::HW)?,
            wanted: on(kind::WANTED)?,
            active: on(kind::ACTIVE)?,
            nochange: on(kind::NOCHANGE)?,
        })
    }

    /// Asks for features by name; the kernel refuses where the device at `index` is no longer called `name`.
    pub(crate) fn set_wanted(&mut self, index: u32, name: &str, bits: &[(&str, bool)]) -> Result<SetReply> {
        let operation = "change the features of";
        let ask = Message::about(request::FEATURES_SET, index, Some(name)).with_bits(kind::WANTED, bits);
        let answer = self.ask(operation, index, ask)?;
        let bits = |of: u16| -> Result<BTreeMap<String, bool>> {
            let bits =
                answer.bits(of).map_err(|error| not_understood(operation, index, error.to_string()))?;
            Ok(bits.into_iter().collect())
        };
        Ok(SetReply { refused: bits(kind::WANTED)?, changed: bits(kind::ACTIVE)? })
    }

    /// The plain numbers in the answer to `command`; a device that has no such thing answers "not supported".
    fn numbers(
        &mut self,
        operation: &'static str,
        index: u32,
        command: u8,
        names: Names,
    ) -> Result<BTreeMap<String, u64>> {
        let answer = self.ask(operation, index, Message::about(command, index, None))?;
        let number = |(kind, name): &(u16, &str)| Some(((*name).to_owned(), answer.number(*kind)?));
        Ok(names.iter().filter_map(number).collect())
    }

    /// Sends one request and returns the family's one answer.
    fn ask(&mut self, operation: &'static str, index: u32, message: Message) -> Result<Message> {
        let mut message = GenlMessage::from_payload(message);
        message.set_resolved_family_id(self.family);
        let answers = self.connection.request(operation, &object(index), message, 0)?;
        let first = answers.into_iter().next();
        first
            .map(|answer| answer.payload)
            .ok_or_else(|| not_understood(operation, index, "it is empty".to_owned()))
    }
}

/// The features of a device in the calling thread's network namespace.
pub fn features(index: u32) -> Result<Features> {
    Ethtool::open()?.features(index)
}

/// Asks for features of a device in the calling thread's network namespace, **without a journal**: nothing puts them
/// back. For a namespace that dies with the process; on a host's own NIC use [`crate::settings::Tuner`].
///
/// The answer must be read: the kernel reports success also for what it did not do.
pub fn set_wanted(index: u32, name: &str, bits: &[(&str, bool)]) -> Result<SetReply> {
    Ethtool::open()?.set_wanted(index, name, bits)
}

/// Ring sizes (descriptors; buffer and completion sizes in bytes) and their maxima.
pub fn rings(index: u32) -> Result<BTreeMap<String, u64>> {
    Ethtool::open()?.numbers("read the ring sizes of", index, request::RINGS_GET, RINGS)
}

/// Interrupt coalescing: times in microseconds, counts in frames, switches as 0 and 1.
pub fn coalesce(index: u32) -> Result<BTreeMap<String, u64>> {
    Ethtool::open()?.numbers("read the interrupt coalescing of", index, request::COALESCE_GET, COALESCE)
}

/// Channels (queues with their interrupt) and their maxima.
pub fn channels(index: u32) -> Result<BTreeMap<String, u64>> {
    Ethtool::open()?.numbers("read the channels of", index, request::CHANNELS_GET, CHANNELS)
}

fn object(index: u32) -> String {
    format!("the network device with index {index}")
}

fn not_understood(operation: &'static str, index: u32, what: String) -> HostError {
    HostError::Answer { operation, object: object(index), what }
}

/// Attribute numbers and the names haul gives them in the record.
type Names = &'static [(u16, &'static str)];

/// `ETHTOOL_A_RINGS_*`.
const RINGS: Names = &[
    (2, "rx-max"),
    (3, "rx-mini-max"),
    (4, "rx-jumbo-max"),
    (5, "tx-max"),
    (6, "rx"),
    (7, "rx-mini"),
    (8, "rx-jumbo"),
    (9, "tx"),
    (10, "rx-buf-len"),
    (11, "tcp-data-split"),
    (12, "cqe-size"),
    (13, "tx-push"),
    (14, "rx-push"),
    (15, "tx-push-buf-len"),
    (16, "tx-push-buf-len-max"),
    (17, "hds-thresh"),
    (18, "hds-thresh-max"),
];

/// `ETHTOOL_A_CHANNELS_*`.
const CHANNELS: Names = &[
    (2, "rx-max"),
    (3, "tx-max"),
    (4, "other-max"),
    (5, "combined-max"),
    (6, "rx"),
    (7, "tx"),
    (8, "other"),
    (9, "combined"),
];

/// `ETHTOOL_A_COALESCE_*`.
const COALESCE: Names = &[
    (2, "rx-usecs"),
    (3, "rx-frames"),
    (4, "rx-usecs-irq"),
    (5, "rx-frames-irq"),
    (6, "tx-usecs"),
    (7, "tx-frames"),
    (8, "tx-usecs-irq"),
    (9, "tx-frames-irq"),
    (10, "stats-block-usecs"),
    (11, "adaptive-rx"),
    (12, "adaptive-tx"),
    (13, "pkt-rate-low"),
    (14, "rx-usecs-low"),
    (15, "rx-frames-low"),
    (16, "tx-usecs-low"),
    (17, "tx-frames-low"),
    (18, "pkt-rate-high"),
    (19, "rx-usecs-high"),
    (20, "rx-frames-high"),
    (21, "tx-usecs-high"),
    (22, "tx-frames-high"),
    (23, "sample-interval"),
    (24, "cqe-mode-tx"),
    (25, "cqe-mode-rx"),
    (26, "tx-aggr-max-bytes"),
    (27, "tx-aggr-max-frames"),
    (28, "tx-aggr-time-usecs"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_four_states_of_a_feature_are_told_apart() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let features = Features {
            names: ["on", "off", "fixed", "never", "pending"].map(str::to_owned).to_vec(),
            hw: set(&["on", "off", "pending", "never"]),
            wanted: set(&["on", "pending"]),
            active: set(&["on", "fixed"]),
            nochange: set(&["never"]),
        };
        let expected = [
            ("fixed", "on [fixed]"),
            ("never", "off [fixed]"),
            ("off", "off"),
            ("on", "on"),
            ("pending", "off [requested on]"),
        ];
        let described = features.describe();
        let described: Vec<_> =
            described.iter().map(|(name, state)| (name.as_str(), state.as_str())).collect();
        assert_eq!(described, expected);
    }
}
