//! One thing that has a state: what a setting comes to on a host, what the journal holds, what is compared afterwards.
//!
//! A setting may be many items (`nic.tso` is three features, `irq.affinity` a file for each interrupt). An item is spelt
//! so that another process, later, finds the same thing again with no more than the device and its network namespace:
//!
//! ```text
//!   nic.tx-tcp-segmentation  nic.coalesce.rx-usecs  nic.private.NAME  nic.mtu  nic.txqueuelen  nic.napi.ID.NAME  qdisc
//!   nic/queues/rx-0/rps_cpus            a file of the device in sysfs
//!   sysctl.net.ipv4.tcp_rmem            of the device's network namespace
//!   host:sysctl.net.core.rmem_max       of the whole host, in its first network namespace
//!   host:/sys/kernel/mm/…  host:/proc/irq/…
//!   exec:'on','off'
//! ```

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::setting::{quoted, sysctl_name, unquoted};
use crate::ethtool::Group;

/// One thing with a state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Item(pub(crate) Kind);

/// What it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Number(Group, String),
    Private(String),
    Mtu,
    Feature(String),
    /// Of the NAPI instance with that number.
    Napi(u32, String),
    TxQueueLen,
    Qdisc,
    /// A file below the device's directory in sysfs.
    Device(String),
    /// A path below `/proc/sys`, of the device's network namespace.
    Sysctl(String),
    /// An absolute path below `/proc` or `/sys`, the same for the whole host.
    Host(String),
    /// The commands that turn it on and off.
    Hook(String, String),
}

/// Whose state an item is, from the narrowest to the widest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// One device's.
    Device,
    /// A network namespace's.
    Namespace,
    /// The whole host's.
    Host,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Device => "device",
            Self::Namespace => "namespace",
            Self::Host => "host",
        })
    }
}

impl Item {
    pub(crate) fn feature(name: &str) -> Self {
        Self(Kind::Feature(name.to_owned()))
    }

    /// Whose state it is.
    #[must_use]
    pub fn scope(&self) -> Scope {
        match &self.0 {
            Kind::Sysctl(_) => Scope::Namespace,
            Kind::Host(_) | Kind::Hook(..) => Scope::Host,
            _ => Scope::Device,
        }
    }

    /// Whether it is a command of the user's.
    pub(crate) fn is_command(&self) -> bool {
        matches!(self.0, Kind::Hook(..))
    }

    /// Whether it is one thing for the whole host, which two cannot set at once. A command's effect is nobody's to know.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.0, Kind::Host(_))
    }

    /// The feature's name, where it is one.
    pub(crate) fn as_feature(&self) -> Option<&str> {
        match &self.0 {
            Kind::Feature(name) => Some(name),
            _ => None,
        }
    }

    /// Its place in the order of a change; everything of one place that shares a request is asked for at once.
    ///
    /// What makes queues comes before what is set on them, what resets the device before what a reset may undo, and a
    /// command of the user's last. Going back is the other way round.
    pub(crate) fn place(&self) -> u8 {
        match &self.0 {
            Kind::Number(Group::Channels, _) => 0,
            Kind::Number(Group::Ring, _) => 1,
            Kind::Private(_) => 2,
            Kind::Mtu => 3,
            Kind::Feature(_) => 4,
            Kind::Number(Group::Coalesce, _) => 5,
            Kind::Number(Group::Pause, _) => 6,
            Kind::Napi(..) => 7,
            Kind::TxQueueLen => 8,
            Kind::Qdisc => 9,
            Kind::Device(_) => 10,
            Kind::Sysctl(_) => 11,
            Kind::Host(_) => 12,
            Kind::Hook(..) => 13,
        }
    }

    /// Whether a change of it may reset the device and take its link down.
    pub(crate) fn resets(&self) -> bool {
        self.place() <= 6
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Number(group, name) => write!(f, "nic.{}.{name}", group.word()),
            Kind::Private(name) => write!(f, "nic.private.{name}"),
            Kind::Mtu => f.write_str("nic.mtu"),
            Kind::Feature(name) => write!(f, "nic.{name}"),
            Kind::Napi(id, name) => write!(f, "nic.napi.{id}.{name}"),
            Kind::TxQueueLen => f.write_str("nic.txqueuelen"),
            Kind::Qdisc => f.write_str("qdisc"),
            Kind::Device(path) => write!(f, "nic/{path}"),
            Kind::Sysctl(path) => write!(f, "sysctl.{}", sysctl_name(path)),
            Kind::Host(path) => match path.strip_prefix("/proc/sys/") {
                Some(key) => write!(f, "host:sysctl.{}", sysctl_name(key)),
                None => write!(f, "host:{path}"),
            },
            Kind::Hook(on, off) => write!(f, "exec:{},{}", quoted(on), quoted(off)),
        }
    }
}

impl FromStr for Item {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        kind_of(text).map(Self).ok_or_else(|| format!("'{text}' is nothing this haul can put back"))
    }
}

/// A path that stays below where it begins.
fn stays(path: &str) -> bool {
    !path.is_empty() && path.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
}

fn sysctl_of(key: &str) -> Option<String> {
    let path = if key.contains('/') { key.to_owned() } else { key.replace('.', "/") };
    stays(&path).then_some(path)
}

fn kind_of(text: &str) -> Option<Kind> {
    if let Some(path) = text.strip_prefix("nic/") {
        return stays(path).then(|| Kind::Device(path.to_owned()));
    }
    if let Some(key) = text.strip_prefix("sysctl.") {
        return sysctl_of(key).map(Kind::Sysctl);
    }
    if let Some(key) = text.strip_prefix("host:sysctl.") {
        return sysctl_of(key).map(|path| Kind::Host(format!("/proc/sys/{path}")));
    }
    if let Some(path) = text.strip_prefix("host:/") {
        let known = path.starts_with("proc/") || path.starts_with("sys/");
        return (known && stays(path)).then(|| Kind::Host(format!("/{path}")));
    }
    if let Some(commands) = text.strip_prefix("exec:") {
        let (on, rest) = unquoted(commands)?;
        let (off, rest) = unquoted(rest.strip_prefix(',')?)?;
        return rest.is_empty().then_some(Kind::Hook(on, off));
    }
    match text {
        "qdisc" => return Some(Kind::Qdisc),
        "nic.mtu" => return Some(Kind::Mtu),
        "nic.txqueuelen" => return Some(Kind::TxQueueLen),
        _ => {}
    }
    let name = text.strip_prefix("nic.")?;
    match name.split_once('.') {
        None => (!name.is_empty()).then(|| Kind::Feature(name.to_owned())),
        Some(("private", flag)) => Some(Kind::Private(flag.to_owned())),
        Some(("napi", rest)) => {
            let (id, name) = rest.split_once('.')?;
            Some(Kind::Napi(id.parse().ok()?, name.to_owned()))
        }
        Some((word, name)) => {
            let group = Group::ALL.into_iter().find(|group| group.word() == word)?;
            Some(Kind::Number(group, name.to_owned()))
        }
    }
}

impl TryFrom<String> for Item {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Item> for String {
    fn from(item: Item) -> Self {
        item.to_string()
    }
}

/// A change of one item's state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Change {
    /// What changed.
    pub item: Item,
    /// The state before.
    pub before: String,
    /// The state after.
    pub after: String,
}

impl Change {
    /// The states before and after, as a person reads them.
    #[must_use]
    pub fn shown(&self) -> (&str, &str) {
        (shown(&self.before), shown(&self.after))
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, after) = self.shown();
        write!(f, "{} {before} -> {after}", self.item)
    }
}

/// A state as a person reads it: an empty one is seen, and the bytes of a queueing discipline are not.
pub(super) fn shown(state: &str) -> &str {
    match state.split_once('\t') {
        Some((words, _)) => words,
        None if state.is_empty() => "(empty)",
        None => state,
    }
}

/// One item that is not what it was asked to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What.
    pub item: Item,
    /// The state it was asked to have.
    pub requested: String,
    /// What stands in the way.
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not {}: {}", self.item, shown(&self.requested), self.reason)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_item_reads_as_it_is_written() {
        for text in [
            "nic.tx-tcp-segmentation",
            "nic.coalesce.rx-usecs",
            "nic.private.legacy-rx",
            "nic.mtu",
            "nic.txqueuelen",
            "nic.napi.8193.irq-suspend-timeout",
            "qdisc",
            "nic/queues/rx-0/rps_cpus",
            "sysctl.net.ipv4.tcp_rmem",
            "sysctl.net/ipv4/conf/eth0.5/rp_filter",
            "host:sysctl.net.core.rmem_max",
            "host:/sys/kernel/mm/ksm/run",
            "exec:'a \\'b\\'','true'",
        ] {
            assert_eq!(text.parse::<Item>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "nic.",
            "nic/../x",
            "sysctl.net/../x",
            "host:/etc/passwd",
            "host:/sys/../etc",
            "exec:'a'",
            "nic.frob.x",
        ] {
            assert!(text.parse::<Item>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_and_what_reads_reads_back(text in "(nic\\.|nic/|sysctl\\.|host:/sys/|exec:')?\\PC{0,30}") {
            if let Ok(item) = text.parse::<Item>() {
                prop_assert_eq!(item.to_string().parse::<Item>().unwrap(), item);
            }
        }
    }
}
