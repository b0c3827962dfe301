//! The fingerprint: everything about this host that can change a result while nobody looks.
//!
//! Each fact is a text under a dotted name; a fact that cannot be had is there with the reason. Two fingerprints are
//! compared by value, so nothing that moves by itself (a counter, a temperature) may be in it, except the carrier count:
//! a link that bounced spoils a run.
//!
//! Read by file, netlink and one ioctl, in the network namespace of the calling thread. `/sys/class/net` is not used: it
//! shows the namespace of whoever mounted it. A NIC's interrupts are found through its bus address instead.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Named as _, Result};
use crate::ethtool;
use crate::link::{self, Link};
use crate::netns::Netns;
use crate::probe::cgroup;
use crate::processor;
use crate::sys;
use crate::thread;

/// One fact, or the reason why it could not be had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// What was read.
    pub value: Option<String>,
    /// Why nothing was.
    pub reason: Option<String>,
}

impl Fact {
    fn known(value: impl Into<String>) -> Self {
        Self { value: Some(value.into()), reason: None }
    }

    fn absent(reason: impl Into<String>) -> Self {
        Self { value: None, reason: Some(reason.into()) }
    }
}

impl From<std::result::Result<String, String>> for Fact {
    fn from(known: std::result::Result<String, String>) -> Self {
        known.map_or_else(Self::absent, Self::known)
    }
}

/// A fact that differs between two fingerprints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Its name.
    pub key: String,
    /// What it was; `None` where it was not known.
    pub before: Option<String>,
    /// What it is; `None` where it is not known.
    pub after: Option<String>,
}

/// What this host is and is set to, by name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(BTreeMap<String, Fact>);

/// Facts that are one line of one file each.
const FILES: [(&str, &str); 9] = [
    ("kernel.release", "/proc/sys/kernel/osrelease"),
    ("kernel.version", "/proc/sys/kernel/version"),
    ("kernel.boot_id", BOOT_ID),
    ("kernel.command_line", "/proc/cmdline"),
    ("cpu.online", "/sys/devices/system/cpu/online"),
    ("cpu.smt", "/sys/devices/system/cpu/smt/control"),
    ("cpu.clocksource", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    ("memory.thp", "/sys/kernel/mm/transparent_hugepage/enabled"),
    ("memory.thp_defrag", "/sys/kernel/mm/transparent_hugepage/defrag"),
];

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The sysctls a byte meets on its way; see [`Fingerprint::sysctls`] for which namespace they belong to.
const SYSCTLS: [&str; 42] = [
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.default_qdisc",
    "net.core.dev_weight",
    "net.core.gro_normal_batch",
    "net.core.high_order_alloc_disable",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.netdev_max_backlog",
    "net.core.optmem_max",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.rps_sock_flow_entries",
    "net.core.somaxconn",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_allowed_congestion_control",
    "net.ipv4.tcp_autocorking",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_limit_output_bytes",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_min_tso_segs",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_pacing_ca_ratio",
    "net.ipv4.tcp_pacing_ss_ratio",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_shrink_window",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_tso_rtt_log",
    "net.ipv4.tcp_tso_win_divisor",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
    "net.ipv4.udp_mem",
    "net.ipv4.udp_rmem_min",
];

/// This boot of this kernel: two ends that read the same id share one host.
pub fn boot_id() -> Result<String> {
    Ok(fs::read_to_string(BOOT_ID).named("read", || BOOT_ID.into())?.trim().to_owned())
}

impl Fingerprint {
    /// Reads everything, with the facts of the device `route` leaves through.
    #[must_use]
    pub fn collect(route: &Link) -> Self {
        let mut facts = Self::default();
        for (key, path) in FILES {
            facts.set(key, line_of(path));
        }
        facts.sysctls();
        facts.processor();
        facts.set("cgroup.cpu_max", Fact::from(cgroup::quota_in_words()));
        facts.set("cgroup.cpus", Fact::from(cgroup::allowed_cpus()));
        facts.set(
            "process.affinity",
            thread::affinity_of_current()
                .map_or_else(|error| Fact::absent(error.to_string()), |list| Fact::known(list.to_string())),
        );
        facts.device(route);
        facts.below(route);
        facts
    }

    /// The facts, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Fact)> {
        self.0.iter().map(|(key, fact)| (key.as_str(), fact))
    }

    /// One fact's value; `None` where it is not known.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.value.as_deref()
    }

    /// What could not be read, and why.
    pub fn missing(&self) -> impl Iterator<Item = (&str, &str)> {
        self.iter().filter_map(|(key, fact)| Some((key, fact.reason.as_deref()?)))
    }

    /// What differs in `later`, by name.
    #[must_use]
    pub fn diff(&self, later: &Self) -> Vec<Change> {
        let new = later.0.keys().filter(|key| !self.0.contains_key(*key));
        let mut changes: Vec<Change> = self
            .0
            .keys()
            .chain(new)
            .map(|key| Change {
                key: key.clone(),
                before: self.value(key).map(str::to_owned),
                after: later.value(key).map(str::to_owned),
            })
            .filter(|change| change.before != change.after)
            .collect();
        changes.sort_by(|left, right| left.key.cmp(&right.key));
        changes
    }

    fn set(&mut self, key: impl Into<String>, fact: Fact) {
        self.0.insert(key.into(), fact);
    }

    /// The kernel shows the values of the reading thread's network namespace, and those that hold for all namespaces in
    /// the first one only. So what is not here is looked for in the namespace of the process's main thread.
    fn sysctls(&mut self) {
        let read = |name: &'static str| (name, line_of(format!("/proc/sys/{}", name.replace('.', "/"))));
        let (here, elsewhere): (Vec<_>, Vec<_>) =
            SYSCTLS.into_iter().map(read).partition(|(_, fact)| fact.value.is_some());
        let names: Vec<&str> = elsewhere.iter().map(|(name, _)| *name).collect();
        let main =
            || Netns::open(Path::new("/proc/self/ns/net"))?.run(|| names.into_iter().map(read).collect());
        let found: Result<Vec<_>> = if elsewhere.is_empty() { Ok(Vec::new()) } else { main() };
        // Without the right to enter it, the reasons found here stand.
        for (name, fact) in here.into_iter().chain(found.unwrap_or(elsewhere)) {
            self.set(format!("sysctl.{name}"), fact);
        }
    }

    fn processor(&mut self) {
        const VULNERABILITIES: &str = "/sys/devices/system/cpu/vulnerabilities";
        let described = processor::first_described();
        for (key, names) in [
            ("cpu.model", &["model name", "uarch", "Processor", "cpu"][..]),
            ("cpu.microcode", &["microcode"][..]),
        ] {
            let found = match &described {
                Ok(lines) => names.iter().find_map(|name| lines.get(*name)).map_or_else(
                    || Fact::absent(format!("/proc/cpuinfo has no '{}' on this architecture", names[0])),
                    Fact::known,
                ),
                Err(error) => Fact::absent(format!("/proc/cpuinfo: {error}")),
            };
            self.set(key, found);
        }
        self.set("cpu.governor", of_all_cpus("scaling_governor"));
        self.set("cpu.frequency_driver", of_all_cpus("scaling_driver"));
        self.set("cpu.turbo", turbo());
        match fs::read_dir(VULNERABILITIES) {
            Ok(entries) => {
                for entry in entries.flatten() {
                    let name = entry.file_name();
                    self.set(format!("cpu.mitigation.{}", name.to_string_lossy()), line_of(entry.path()));
                }
            }
            Err(error) => self.set("cpu.mitigation", Fact::absent(format!("{VULNERABILITIES}: {error}"))),
        }
    }

    fn device(&mut self, route: &Link) {
        self.set("nic.name", Fact::known(&route.name));
        match link::link_by_index(route.index) {
            Ok(link) => {
                self.set("nic.mtu", Fact::known(link.mtu.to_string()));
                self.set(
                    "nic.carrier_changes",
                    link.carrier_changes.map_or_else(
                        || Fact::absent("the kernel does not count them"),
                        |n| Fact::known(n.to_string()),
                    ),
                );
            }
            Err(error) => {
                self.set("nic.mtu", Fact::absent(error.to_string()));
                self.set("nic.carrier_changes", Fact::absent(error.to_string()));
            }
        }
        self.ethtool(route.index);
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0));
        let driver = socket.and_then(|socket| sys::driver_info(socket.as_fd(), &route.name));
        let names = ["nic.driver", "nic.driver_version", "nic.firmware", "nic.bus"];
        match driver {
            Ok(texts) => {
                self.interrupts(&texts[3]);
                for (key, text) in names.into_iter().zip(texts) {
                    let none = || Fact::absent("the driver reports none");
                    self.set(key, if text.is_empty() { none() } else { Fact::known(text) });
                }
            }
            Err(error) => {
                for key in names {
                    self.set(key, Fact::absent(format!("ETHTOOL_GDRVINFO: {error}")));
                }
                self.interrupts("");
            }
        }
    }

    /// The devices that the route's stands on: an offload on one of them still merges or cuts packets. `path` has all of them.
    fn below(&mut self, route: &Link) {
        let below = match link::below(route.index) {
            Ok(below) => below,
            Err(error) => return self.set("path", Fact::absent(error.to_string())),
        };
        let names: Vec<&str> = std::iter::once(route).chain(&below).map(|link| link.name.as_str()).collect();
        self.set("path", Fact::known(names.join(", ")));
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0));
        for link in &below {
            let key = |what: &str| format!("path.{}.{what}", link.name);
            self.set(key("mtu"), Fact::known(link.mtu.to_string()));
            let driver = socket.as_ref().map_err(ToString::to_string).and_then(|socket| {
                sys::driver_info(socket.as_fd(), &link.name).map_err(|error| error.to_string())
            });
            self.set(
                key("driver"),
                driver.map_or_else(
                    |error| Fact::absent(format!("ETHTOOL_GDRVINFO: {error}")),
                    |[driver, ..]| Fact::known(driver),
                ),
            );
            match ethtool::features(link.index) {
                Ok(features) => {
                    for (name, state) in features.describe() {
                        self.set(key(&format!("feature.{name}")), Fact::known(state));
                    }
                }
                Err(error) => self.set(key("feature"), Fact::absent(error.to_string())),
            }
        }
    }

    /// Offloads, rings, coalescing and channels, from ethtool netlink.
    fn ethtool(&mut self, index: u32) {
        match ethtool::features(index) {
            Ok(features) => {
                for (name, state) in features.describe() {
                    self.set(format!("nic.feature.{name}"), Fact::known(state));
                }
            }
            Err(error) => self.set("nic.feature", Fact::absent(error.to_string())),
        }
        for (key, numbers) in [
            ("nic.ring", ethtool::rings(index)),
            ("nic.coalesce", ethtool::coalesce(index)),
            ("nic.channel", ethtool::channels(index)),
        ] {
            match numbers {
                Ok(numbers) => {
                    for (name, number) in numbers {
                        self.set(format!("{key}.{name}"), Fact::known(number.to_string()));
                    }
                }
                Err(error) => self.set(key, Fact::absent(error.to_string())),
            }
        }
    }

    /// Where the interrupts of the device on this PCI address may go, and do.
    fn interrupts(&mut self, bus: &str) {
        const KEY: &str = "nic.irq_affinity";
        let folder = format!("/sys/bus/pci/devices/{bus}/msi_irqs");
        let entries = match fs::read_dir(&folder) {
            Ok(entries) if !bus.is_empty() => entries,
            _ => return self.set(KEY, Fact::absent("the device has no message interrupts of its own")),
        };
        for entry in entries.flatten() {
            let number = entry.file_name().to_string_lossy().into_owned();
            let file = |name: &str| line_of(format!("/proc/irq/{number}/{name}"));
            let fact = match (file("smp_affinity_list"), file("effective_affinity_list").value) {
                (Fact { value: Some(allowed), .. }, Some(effective)) => {
                    Fact::known(format!("{allowed} (effective {effective})"))
                }
                (allowed, _) => allowed,
            };
            self.set(format!("{KEY}.{number}"), fact);
        }
    }
}

/// The text of a file without its line end.
fn line_of(path: impl AsRef<Path>) -> Fact {
    let path = path.as_ref();
    match fs::read_to_string(path) {
        Ok(text) => Fact::known(text.trim()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Fact::absent(format!("this kernel, or this network namespace, has no {}", path.display()))
        }
        Err(error) => Fact::absent(format!("{}: {error}", path.display())),
    }
}

/// The value of a cpufreq file: one text where all CPUs agree, else one per group of CPUs.
fn of_all_cpus(file: &str) -> Fact {
    let Ok(online) = thread::CpuList::online() else {
        return Fact::absent("the list of CPUs could not be read");
    };
    let mut groups: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for &cpu in online.cpus() {
        if let Ok(text) = fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/{file}")) {
            groups.entry(text.trim().to_owned()).or_default().push(cpu);
        }
    }
    match groups.len() {
        0 => Fact::absent("this host has no CPU frequency scaling that Linux can see"),
        1 => Fact::known(groups.into_keys().collect::<String>()),
        _ => {
            let list = |cpus: Vec<u32>| cpus.into_iter().collect::<thread::CpuList>();
            let each = groups.into_iter().map(|(text, cpus)| format!("{text} on {}", list(cpus)));
            Fact::known(each.collect::<Vec<_>>().join(", "))
        }
    }
}

fn turbo() -> Fact {
    const SWITCHES: [(&str, &str); 2] = [
        ("/sys/devices/system/cpu/intel_pstate/no_turbo", "0"),
        ("/sys/devices/system/cpu/cpufreq/boost", "1"),
    ];
    let found = SWITCHES.into_iter().find_map(|(path, on)| Some((fs::read_to_string(path).ok()?, on)));
    found.map_or_else(
        || Fact::absent("this host has no turbo switch that Linux can see"),
        |(text, on)| Fact::known(if text.trim() == on { "on" } else { "off" }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_what_came_what_went_and_what_changed() {
        let of = |facts: &[(&str, Fact)]| {
            Fingerprint(facts.iter().map(|(key, fact)| ((*key).to_owned(), fact.clone())).collect())
        };
        let before = of(&[
            ("b", Fact::known("1")),
            ("c", Fact::known("same")),
            ("d", Fact::known("gone")),
            ("e", Fact::absent("one reason")),
        ]);
        let after = of(&[
            ("a", Fact::known("new")),
            ("b", Fact::known("2")),
            ("c", Fact::known("same")),
            ("d", Fact::absent("permission denied")),
            ("e", Fact::absent("another reason")),
        ]);
        let change = |key: &str, before: Option<&str>, after: Option<&str>| Change {
            key: key.to_owned(),
            before: before.map(str::to_owned),
            after: after.map(str::to_owned),
        };
        let expected = [
            change("a", None, Some("new")),
            change("b", Some("1"), Some("2")),
            change("d", Some("gone"), None),
        ];
        assert_eq!(before.diff(&after), expected);
        assert_eq!(before.diff(&before), []);
        assert_eq!(before.missing().collect::<Vec<_>>(), [("e", "one reason")]);
    }

    #[test]
    fn a_fingerprint_in_json_is_a_map_of_facts() {
        let mut facts = Fingerprint::default();
        facts.set("cpu.model", Fact::known("x"));
        facts.set("nic.firmware", Fact::absent("the driver reports none"));
        let json = serde_json::to_string(&facts).expect("to JSON");
        let expected = r#"{"cpu.model":{"value":"x","reason":null},"nic.firmware":{"value":null,"reason":"the driver reports none"}}"#;
        assert_eq!(json, expected);
        assert_eq!(serde_json::from_str::<Fingerprint>(&json).expect("from JSON"), facts);
    }
}
