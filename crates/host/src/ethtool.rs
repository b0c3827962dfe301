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
//! Sources: `net/ethtool/features.c`, `Documentation/networking/netdev-features.rst`; widths of numbers: the policies in
//! `net/ethtool/{coalesce,rings,channels,pause}.c`.

mod message;

use std::collections::{BTreeMap, BTreeSet};

use netlink_packet_generic::GenlMessage;
use netlink_packet_generic::ctrl::nlas::GenlCtrlAttrs;
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use serde::{Deserialize, Serialize};

use self::message::{Message, Width, features as kind, request};
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

    /// What the device has of a group, with the maxima; a device that has no such thing answers "not supported".
    pub(crate) fn numbers(&mut self, group: Group, index: u32) -> Result<BTreeMap<String, u64>> {
        let Table { read, get, names, .. } = group.table();
        let answer = self.ask(read, index, Message::about(*get, index, None))?;
        let number = |number: &Number| Some((number.name.to_owned(), answer.number(number.kind)?));
        Ok(names.iter().filter_map(number).collect())
    }

    /// Asks for numbers of a group by name, all in one request: moderation that adapts is turned off in the same breath as
    /// the number it would override is set. The kernel refuses where the device at `index` is no longer called `name`.
    pub(crate) fn set_numbers(
        &mut self,
        group: Group,
        index: u32,
        name: &str,
        values: &BTreeMap<String, u64>,
    ) -> Result<()> {
        let Table { write, set, names, .. } = group.table();
        let mut message = Message::about(*set, index, Some(name));
        for (wanted, &value) in values {
            let found = names.iter().find(|number| number.name == wanted && number.settable);
            let width = found.and_then(|number| {
                let width = if number.wide {
                    u32::try_from(value).map(Width::Word)
                } else {
                    u8::try_from(value).map(Width::Byte)
                };
                Some((number.kind, width.ok()?))
            });
            let Some((kind, width)) = width else {
                let reason = format!("{} has no {wanted} that could be {value}", group.word());
                return Err(HostError::Unavailable { operation: write, object: name.to_owned(), reason });
            };
            message = message.with_number(kind, width);
        }
        self.tell(write, index, message)
    }

    /// The flags a driver has invented for itself.
    pub(crate) fn private_flags(&mut self, index: u32) -> Result<BTreeMap<String, bool>> {
        let operation = "read the private flags of";
        let answer = self.ask(operation, index, Message::about(request::PRIVFLAGS_GET, index, None))?;
        let bits = answer
            .bits(message::PRIVATE_FLAGS)
            .map_err(|error| not_understood(operation, index, error.to_string()))?;
        Ok(bits.into_iter().collect())
    }

    /// Asks for private flags by name.
    pub(crate) fn set_private_flags(
        &mut self,
        index: u32,
        name: &str,
        flags: &BTreeMap<String, bool>,
    ) -> Result<()> {
        let bits: Vec<(&str, bool)> = flags.iter().map(|(flag, on)| (flag.as_str(), *on)).collect();
        let ask = Message::about(request::PRIVFLAGS_SET, index, Some(name))
            .with_bits(message::PRIVATE_FLAGS, &bits);
        self.tell("change the private flags of", index, ask)
    }

    /// Sends one request that is answered by yes or no.
    fn tell(&mut self, operation: &'static str, index: u32, message: Message) -> Result<()> {
        let mut message = GenlMessage::from_payload(message);
        message.set_resolved_family_id(self.family);
        self.connection.request(operation, &object(index), message, 0).map(drop)
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
    Ethtool::open()?.numbers(Group::Ring, index)
}

/// Interrupt coalescing: times in microseconds, counts in frames, switches as 0 and 1.
pub fn coalesce(index: u32) -> Result<BTreeMap<String, u64>> {
    Ethtool::open()?.numbers(Group::Coalesce, index)
}

/// Channels (queues with their interrupt) and their maxima.
pub fn channels(index: u32) -> Result<BTreeMap<String, u64>> {
    Ethtool::open()?.numbers(Group::Channels, index)
}

fn object(index: u32) -> String {
    format!("the network device with index {index}")
}

fn not_understood(operation: &'static str, index: u32, what: String) -> HostError {
    HostError::Answer { operation, object: object(index), what }
}

/// A family of numbers that are read in one message and set in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Group {
    /// When the device interrupts.
    Coalesce,
    /// Sizes of its rings of descriptors.
    Ring,
    /// Its queues and their interrupts.
    Channels,
    /// Flow control of the link.
    Pause,
}

/// How a group is spoken of.
struct Table {
    read: &'static str,
    write: &'static str,
    get: u8,
    set: u8,
    names: &'static [Number],
}

/// One number: its attribute, the name haul gives it, its width, and whether it can be set.
struct Number {
    kind: u16,
    name: &'static str,
    wide: bool,
    settable: bool,
}

const fn word(kind: u16, name: &'static str) -> Number {
    Number { kind, name, wide: true, settable: true }
}

const fn byte(kind: u16, name: &'static str) -> Number {
    Number { kind, name, wide: false, settable: true }
}

const fn fixed(kind: u16, name: &'static str) -> Number {
    Number { kind, name, wide: true, settable: false }
}

impl Group {
    pub(crate) const ALL: [Self; 4] = [Self::Coalesce, Self::Ring, Self::Channels, Self::Pause];

    /// Its part in the name of a setting.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Coalesce => "coalesce",
            Self::Ring => "ring",
            Self::Channels => "channels",
            Self::Pause => "pause",
        }
    }

    fn table(self) -> &'static Table {
        match self {
            Self::Coalesce => &COALESCE,
            Self::Ring => &RINGS,
            Self::Channels => &CHANNELS,
            Self::Pause => &PAUSE,
        }
    }
}

/// The numbers of a group that can be set on some device.
pub(crate) fn settable(group: Group) -> Vec<&'static str> {
    group.table().names.iter().filter(|number| number.settable).map(|number| number.name).collect()
}

/// `ETHTOOL_A_RINGS_*`.
const RINGS: Table = Table {
    read: "read the ring sizes of",
    write: "change the ring sizes of",
    get: request::RINGS_GET,
    set: request::RINGS_SET,
    names: &[
        fixed(2, "rx-max"),
        fixed(3, "rx-mini-max"),
        fixed(4, "rx-jumbo-max"),
        fixed(5, "tx-max"),
        word(6, "rx"),
        word(7, "rx-mini"),
        word(8, "rx-jumbo"),
        word(9, "tx"),
        word(10, "rx-buf-len"),
        byte(11, "tcp-data-split"),
        word(12, "cqe-size"),
        byte(13, "tx-push"),
        byte(14, "rx-push"),
        word(15, "tx-push-buf-len"),
        fixed(16, "tx-push-buf-len-max"),
        word(17, "hds-thresh"),
        fixed(18, "hds-thresh-max"),
    ],
};

/// `ETHTOOL_A_CHANNELS_*`.
const CHANNELS: Table = Table {
    read: "read the channels of",
    write: "change the channels of",
    get: request::CHANNELS_GET,
    set: request::CHANNELS_SET,
    names: &[
        fixed(2, "rx-max"),
        fixed(3, "tx-max"),
        fixed(4, "other-max"),
        fixed(5, "combined-max"),
        word(6, "rx"),
        word(7, "tx"),
        word(8, "other"),
        word(9, "combined"),
    ],
};

/// `ETHTOOL_A_COALESCE_*`.
const COALESCE: Table = Table {
    read: "read the interrupt coalescing of",
    write: "change the interrupt coalescing of",
    get: request::COALESCE_GET,
    set: request::COALESCE_SET,
    names: &[
        word(2, "rx-usecs"),
        word(3, "rx-frames"),
        word(4, "rx-usecs-irq"),
        word(5, "rx-frames-irq"),
        word(6, "tx-usecs"),
        word(7, "tx-frames"),
        word(8, "tx-usecs-irq"),
        word(9, "tx-frames-irq"),
        word(10, "stats-block-usecs"),
        byte(11, "adaptive-rx"),
        byte(12, "adaptive-tx"),
        word(13, "pkt-rate-low"),
        word(14, "rx-usecs-low"),
        word(15, "rx-frames-low"),
        word(16, "tx-usecs-low"),
        word(17, "tx-frames-low"),
        word(18, "pkt-rate-high"),
        word(19, "rx-usecs-high"),
        word(20, "rx-frames-high"),
        word(21, "tx-usecs-high"),
        word(22, "tx-frames-high"),
        word(23, "sample-interval"),
        byte(24, "cqe-mode-tx"),
        byte(25, "cqe-mode-rx"),
        word(26, "tx-aggr-max-bytes"),
        word(27, "tx-aggr-max-frames"),
        word(28, "tx-aggr-time-usecs"),
    ],
};

/// `ETHTOOL_A_PAUSE_*`.
const PAUSE: Table = Table {
    read: "read the flow control of",
    write: "change the flow control of",
    get: request::PAUSE_GET,
    set: request::PAUSE_SET,
    names: &[byte(2, "autoneg"), byte(3, "rx"), byte(4, "tx")],
};

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
