//! What interrupts, soft interrupts, queues, protocols and the NIC did in a window, beside the CPU time it took.
//!
//! ```text
//! wire ─▶ NIC ─▶ interrupt ─▶ NET_RX ─▶ softnet ─▶ IP ─▶ TCP, UDP ─▶ socket
//!         device counters,  /proc/interrupts  /proc/softirqs  softnet_stat  snmp, netstat
//!         ethtool -S
//! ```
//!
//! A [`Watch`] finds out once what belongs to a device and what reading it costs; [`Watch::read`] is then one
//! [`Activity`], and two of them make an [`ActivityUse`]. Everything is a difference: nothing is reset, what went
//! backwards is absent with the reason, and what a host does not have is absent and never 0.
//!
//! Interrupts, soft interrupts and softnet are of the whole host. Device and protocol counters are of the network
//! namespace of the thread that reads, like those of [`net`](super::net), and count for every program there.
//!
//! Reading is bounded: what took longer than [`LONGEST`] when it was tried is left out, because it would disturb what
//! it is to explain. `/proc/interrupts` grows with CPUs times lines, and some drivers ask their firmware for `ethtool -S`.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd as _;
use std::time::Duration;

use haul_stats::MonoNanos;
use serde::{Deserialize, Serialize};

use super::cgroup::{GroupTimes, GroupUse, Groups};
use super::net::NetCounters;
use crate::clock;
use crate::link::Link;
use crate::netns::{Netns, NetnsId};
use crate::sys;

mod interrupts;
mod softnet;

pub(crate) use interrupts::numbers_of as interrupt_numbers;
pub use interrupts::{InterruptUse, LineUse};
pub use softnet::SoftnetUse;

use interrupts::{Owner, Table};
use softnet::Softnet;

/// The longest that one of the sources may take: a thousandth of the shortest window that gives a number.
pub const LONGEST: Duration = Duration::from_millis(2);

/// Counters of a protocol or a driver that a window tells; there are some hundred of the former.
const MOST_COUNTERS: usize = 1024;

const INTERRUPTS: &str = "/proc/interrupts";
const SOFTIRQS: &str = "/proc/softirqs";
const SOFTNET: &str = "/proc/thread-self/net/softnet_stat";
const PROTOCOLS: [&str; 2] = ["/proc/thread-self/net/snmp", "/proc/thread-self/net/netstat"];

/// Values among the protocols' counters that are no counts.
const NO_COUNTS: [&str; 7] = [
    "Ip.Forwarding",
    "Ip.DefaultTTL",
    "Tcp.RtoAlgorithm",
    "Tcp.RtoMin",
    "Tcp.RtoMax",
    "Tcp.MaxConn",
    "Tcp.CurrEstab",
];

/// What was read, or why it was not.
type Known<T> = Result<T, String>;

/// What a thread watches of one device, its network namespace and its host.
#[derive(Debug, Clone)]
pub struct Watch {
    device: Link,
    place: Option<Place>,
    owner: Owner,
    /// Why `/proc/interrupts` is not read, where it is not.
    interrupts: Known<()>,
    /// The names of the driver's counters.
    names: Known<Vec<String>>,
    groups: Known<Groups>,
}

/// All counters at one instant.
#[derive(Debug, Clone)]
pub struct Activity {
    at: MonoNanos,
    interrupts: Known<Table>,
    softirqs: Known<Table>,
    softnet: Known<Softnet>,
    net: NetCounters,
    protocols: Known<BTreeMap<String, u64>>,
    driver: Known<Vec<u64>>,
    groups: GroupTimes,
    /// How long reading took.
    took: Duration,
}

/// Which device of which network namespace: two ends that name the same one share its counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Place {
    /// The network namespace.
    pub netns: NetnsId,
    /// The device's number in it.
    pub device: u32,
}

/// What was counted between two snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ActivityUse {
    /// From the first snapshot to the second.
    pub elapsed: Duration,
    /// The device, and the namespace it is in.
    pub place: Option<Place>,
    /// Interrupts of the host.
    pub interrupts: Option<InterruptUse>,
    /// Soft interrupts of the host, by kind as the kernel names it (`NET_RX`).
    pub softirqs: Option<BTreeMap<String, u64>>,
    /// Queues of received packets of the host.
    pub softnet: Option<SoftnetUse>,
    /// The device, its queueing disciplines, IP and UDP.
    pub net: NetCounters,
    /// Every other counter of the protocols that moved, as `Tcp.OutSegs` and `TcpExt.TCPPureAcks`.
    pub protocols: Option<BTreeMap<String, u64>>,
    /// The driver's own counters that moved, by the driver's names for them (`ethtool -S`).
    pub driver: Option<BTreeMap<String, u64>>,
    /// The control groups of the process, the nearest first.
    pub groups: Option<Vec<GroupUse>>,
    /// How long the first of the two snapshots took: that much of one CPU in the window is the probe's own.
    pub took: Duration,
    /// Why something is absent, by its name (`interrupts`, `softnet.flow_limited`, `driver`).
    pub absent: BTreeMap<String, String>,
}

impl ActivityUse {
    /// Why this is absent: the reason of it or of the group it is in.
    #[must_use]
    pub fn reason(&self, name: &str) -> String {
        let group = name.split('.').next().unwrap_or(name);
        let found = self.absent.get(name).or_else(|| self.absent.get(group));
        let of_net = || self.net.absent.get(name).or_else(|| self.net.absent.get(group));
        found.or_else(of_net).cloned().unwrap_or_else(|| "not counted at this end".to_owned())
    }
}

impl Watch {
    /// Finds out what belongs to `device`, in the network namespace of the calling thread, and what reading it costs.
    #[must_use]
    pub fn new(device: &Link) -> Self {
        let place = Netns::current().ok().map(|netns| Place { netns: netns.id(), device: device.index });
        let names = socket()
            .and_then(|socket| sys::counter_names(socket.as_fd(), &device.name))
            .map_err(|error| format!("{} reports no counters of its driver: {error}", device.name));
        let mut watch = Self {
            owner: Owner::of(device),
            device: device.clone(),
            place,
            interrupts: Ok(()),
            names,
            groups: Groups::of_this_process(),
        };
        watch.interrupts = affordable(INTERRUPTS, || drop(read_interrupts()));
        if let Err(reason) = affordable("the driver's counters", || drop(watch.read_driver())) {
            watch.names = Err(reason);
        }
        watch
    }

    /// All of it now.
    #[must_use]
    pub fn read(&self) -> Activity {
        let at = clock::now();
        let mut activity = Activity {
            at,
            interrupts: self.interrupts.clone().and_then(|()| read_interrupts()),
            softirqs: parsed(SOFTIRQS, Table::parse),
            softnet: parsed(SOFTNET, Softnet::parse),
            net: NetCounters::read(&self.device),
            protocols: read_protocols(),
            driver: self.read_driver(),
            groups: self.groups.as_ref().map(Groups::read).unwrap_or_default(),
            took: Duration::ZERO,
        };
        activity.took = clock::now().since(at);
        activity
    }

    /// What was counted from `then` to `now`, two readings of this watch.
    #[must_use]
    pub fn between(&self, then: &Activity, now: &Activity) -> ActivityUse {
        let mut absent = BTreeMap::new();
        let both = |name: &str, reason: &String, absent: &mut BTreeMap<String, String>| {
            absent.insert(name.to_owned(), reason.clone());
        };
        macro_rules! differ {
            ($name:ident, |$then:ident, $now:ident, $absent:ident| $differ:expr) => {
                match (&then.$name, &now.$name) {
                    (Ok($then), Ok($now)) => {
                        let $absent = &mut absent;
                        let used: Known<_> = $differ;
                        used.map_err(|reason| both(stringify!($name), &reason, &mut absent)).ok()
                    }
                    (Err(reason), _) | (_, Err(reason)) => {
                        both(stringify!($name), reason, &mut absent);
                        None
                    }
                }
            };
        }
        let interrupts = differ!(interrupts, |then, now, _absent| now.since(then, &self.owner));
        let softirqs = differ!(softirqs, |then, now, absent| now.sums_since(then, "softirqs", absent));
        let softnet = differ!(softnet, |then, now, absent| now.since(then, absent));
        let protocols = differ!(protocols, |then, now, absent| Ok(moved(then, now, "protocols", absent)));
        let driver = differ!(driver, |then, now, absent| {
            let names = self.names.as_deref().unwrap_or_default();
            let name = |values: &[u64]| by_name(names, values);
            Ok(moved(&name(then), &name(now), "driver", absent))
        });
        let groups = self
            .groups
            .as_ref()
            .map(|groups| groups.between(&then.groups, &now.groups))
            .map_err(|reason| both("groups", reason, &mut absent))
            .ok();
        ActivityUse {
            elapsed: now.at.since(then.at),
            place: self.place,
            interrupts,
            softirqs,
            softnet,
            net: now.net.since(&then.net),
            protocols,
            driver,
            groups,
            took: then.took,
            absent,
        }
    }

    fn read_driver(&self) -> Known<Vec<u64>> {
        let names = self.names.as_ref().map_err(Clone::clone)?;
        socket()
            .and_then(|socket| sys::counter_values(socket.as_fd(), &self.device.name, names.len()))
            .map_err(|error| {
                format!("cannot read the counters of the driver of {}: {error}", self.device.name)
            })
    }
}

/// A socket to ask a device by, in the network namespace of the calling thread.
fn socket() -> std::io::Result<UdpSocket> {
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
}

/// Tries whether a source can be read within [`LONGEST`]; the second try counts where somebody else had the CPU in the first.
fn affordable(what: &str, mut read: impl FnMut()) -> Known<()> {
    let mut time = || {
        let start = clock::now();
        read();
        clock::now().since(start)
    };
    let took = time();
    let took = if took > LONGEST { took.min(time()) } else { took };
    if took <= LONGEST {
        return Ok(());
    }
    Err(format!(
        "reading {what} takes {took:.1?} on this host, which would disturb the window: at most {LONGEST:?}"
    ))
}

fn text_of(path: &str) -> Known<String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))
}

fn parsed<T>(path: &str, parse: impl Fn(&str) -> Option<T>) -> Known<T> {
    parse(&text_of(path)?).ok_or_else(|| format!("{path} has a form this version of haul does not know"))
}

fn read_interrupts() -> Known<Table> {
    parsed(INTERRUPTS, Table::parse)
}

fn read_protocols() -> Known<BTreeMap<String, u64>> {
    let mut all = BTreeMap::new();
    for path in PROTOCOLS {
        all.extend(named_counters(&text_of(path)?));
    }
    Ok(all)
}

/// The counters of `/proc/net/snmp` and `/proc/net/netstat`: a line of names and a line of values for each protocol, both
/// with its name before them. What is no count is left out.
fn named_counters(text: &str) -> BTreeMap<String, u64> {
    let mut counters = BTreeMap::new();
    let mut lines = text.lines();
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        let (Some((protocol, names)), Some((same, values))) = (names.split_once(':'), values.split_once(':'))
        else {
            continue;
        };
        if protocol != same {
            continue;
        }
        let pairs = names.split_ascii_whitespace().zip(values.split_ascii_whitespace());
        let counts =
            pairs.filter_map(|(name, value)| Some((format!("{protocol}.{name}"), value.parse().ok()?)));
        counters.extend(counts.filter(|(name, _)| !NO_COUNTS.contains(&name.as_str())));
    }
    counters
}

/// Values by their names; a driver that uses one for several, as some do for each queue, means their sum.
fn by_name(names: &[String], values: &[u64]) -> BTreeMap<String, u64> {
    let mut all: BTreeMap<String, u64> = BTreeMap::new();
    for (name, value) in names.iter().zip(values) {
        let sum = all.entry(name.clone()).or_default();
        *sum = sum.saturating_add(*value);
    }
    all
}

/// The counters that moved, by how much. One that went backwards is left out with its reason.
fn moved(
    then: &BTreeMap<String, u64>,
    now: &BTreeMap<String, u64>,
    group: &str,
    absent: &mut BTreeMap<String, String>,
) -> BTreeMap<String, u64> {
    let each = now.iter().filter_map(|(name, now)| {
        let then = then.get(name)?;
        let counted = now.checked_sub(*then);
        if counted.is_none() && absent.len() < MOST_COUNTERS {
            absent.insert(format!("{group}.{name}"), format!("it went backwards, from {then} to {now}"));
        }
        Some((name.clone(), counted?)).filter(|(_, counted)| *counted > 0)
    });
    each.take(MOST_COUNTERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_the_names_above_them_and_only_what_moved_is_told() {
        let text = "\
Ip: Forwarding DefaultTTL InReceives
Ip: 2 64 10
Tcp: RtoMin MaxConn CurrEstab InSegs OutSegs RetransSegs
Tcp: 200 -1 9 99 50 12
Lonely: a b
TcpExt: TCPPureAcks TCPHPHits
TcpExt: 7 8
";
        // What is no pair is passed over with its neighbour, and never read as something else.
        let whole = named_counters(&text.replace("Lonely: a b\n", ""));
        let names: Vec<&str> = whole.keys().map(String::as_str).collect();
        let expected = [
            "Ip.InReceives",
            "Tcp.InSegs",
            "Tcp.OutSegs",
            "Tcp.RetransSegs",
            "TcpExt.TCPHPHits",
            "TcpExt.TCPPureAcks",
        ];
        assert_eq!(names, expected);
        assert!(named_counters(text).keys().all(|name| expected.contains(&name.as_str())));
        let mut later = whole.clone();
        later.insert("Tcp.InSegs".to_owned(), 109);
        later.insert("Tcp.OutSegs".to_owned(), 3);
        later.insert("New.Counter".to_owned(), 5);
        let mut absent = BTreeMap::new();
        let used = moved(&whole, &later, "protocols", &mut absent);
        assert_eq!(used, BTreeMap::from([("Tcp.InSegs".to_owned(), 10)]));
        assert!(absent["protocols.Tcp.OutSegs"].contains("backwards, from 50 to 3"), "{absent:?}");
        let doubled = by_name(&["a".to_owned(), "b".to_owned(), "a".to_owned()], &[1, u64::MAX, 2]);
        assert_eq!((doubled["a"], doubled["b"]), (3, u64::MAX));
    }

    #[test]
    fn a_source_that_takes_too_long_is_left_out_and_a_single_slow_reading_is_forgiven() {
        let mut slow = true;
        let once = affordable("it", || {
            if std::mem::take(&mut slow) {
                std::thread::sleep(LONGEST * 2);
            }
        });
        assert_eq!(once, Ok(()));
        let always = affordable("it", || std::thread::sleep(LONGEST * 2)).expect_err("too slow");
        assert!(always.contains("would disturb the window"), "{always}");
    }
}
