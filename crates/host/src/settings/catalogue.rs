//! What can be set on this host for one device: names, whose they are, states, the values they can have, what they need.
//!
//! Everything a device has is listed, and of the host what people turn when they tune this path. What has no end, sysctls,
//! parameters of modules, files of sysfs, is looked up by name.

use serde::Serialize;

use super::access::{Access, Now};
use super::files::{self, Roots, Whose};
use super::item::{Item, Kind, Scope, shown};
use super::rules;
use super::setting::sysctl_name;
use crate::error::{HostError, Result};
use crate::ethtool::{Group, settable};
use crate::link::Link;
use crate::netns::Netns;

/// One thing that can be set, or that cannot and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// As it is written in a setting.
    pub name: String,
    /// Whose it is.
    pub scope: Scope,
    /// Its state; empty where it has none, or where nobody may read it.
    pub value: String,
    /// The values it can have, in words.
    pub values: String,
    /// Why it cannot be changed; `None` where it can.
    pub fixed: Option<String>,
    /// What it needs, and what it brings along.
    pub drags: Option<String>,
}

/// The sysctls of the network people turn.
const SYSCTLS: &[&str] = &[
    "net/core/busy_poll",
    "net/core/busy_read",
    "net/core/default_qdisc",
    "net/core/dev_weight",
    "net/core/gro_normal_batch",
    "net/core/netdev_budget",
    "net/core/netdev_budget_usecs",
    "net/core/netdev_max_backlog",
    "net/core/optmem_max",
    "net/core/rmem_default",
    "net/core/rmem_max",
    "net/core/rps_sock_flow_entries",
    "net/core/somaxconn",
    "net/core/wmem_default",
    "net/core/wmem_max",
    "net/ipv4/ip_local_port_range",
    "net/ipv4/tcp_adv_win_scale",
    "net/ipv4/tcp_autocorking",
    "net/ipv4/tcp_congestion_control",
    "net/ipv4/tcp_ecn",
    "net/ipv4/tcp_limit_output_bytes",
    "net/ipv4/tcp_mem",
    "net/ipv4/tcp_min_tso_segs",
    "net/ipv4/tcp_moderate_rcvbuf",
    "net/ipv4/tcp_mtu_probing",
    "net/ipv4/tcp_notsent_lowat",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_sack",
    "net/ipv4/tcp_slow_start_after_idle",
    "net/ipv4/tcp_timestamps",
    "net/ipv4/tcp_tso_win_divisor",
    "net/ipv4/tcp_window_scaling",
    "net/ipv4/tcp_wmem",
    "net/ipv4/udp_mem",
    "net/ipv4/udp_rmem_min",
];

/// Everything listed for `device`, in the calling thread's network namespace.
pub fn catalogue(device: &Link, roots: &Roots) -> Result<Vec<Entry>> {
    let mut access = Access::open(Netns::current()?, roots.clone())?;
    let now = access.now(device)?;
    let mut entries = features(&now);
    numbers(&now, &mut entries);
    rest_of_device(device, &now, &mut access, &mut entries);
    entries.extend(SYSCTLS.iter().filter_map(|path| sysctl(path, &access)));
    host(device, &access, &mut entries);
    Ok(entries)
}

/// What goes by `name`: entries of the list, one or a family of them, or what has no list.
pub fn lookup(name: &str, device: &Link, roots: &Roots) -> Result<Vec<Entry>> {
    let family = format!("{}.", name.trim_end_matches('.'));
    let listed = catalogue(device, roots)?;
    let found: Vec<Entry> =
        listed.into_iter().filter(|entry| entry.name == name || entry.name.starts_with(&family)).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let access = Access::open(Netns::current()?, roots.clone())?;
    let of_path = |path: String| file(name, &path, &access);
    let found = if let Some(key) = name.strip_prefix("sysctl.") {
        sysctl(&key.replace('.', "/"), &access).or_else(|| sysctl(key, &access))
    } else if let Some((module, parameter)) =
        name.strip_prefix("module.").and_then(|rest| rest.split_once('.'))
    {
        of_path(format!("/sys/module/{module}/parameters/{parameter}"))
    } else if let Some(path) = name.strip_prefix("sys:") {
        of_path(format!("/sys{}", path.strip_prefix("/sys").unwrap_or(path)))
    } else if let Some(path) = name.strip_prefix("host:") {
        of_path(path.to_owned())
    } else {
        None
    };
    found.map(|entry| vec![entry]).ok_or_else(|| HostError::NotFound {
        what: format!("a setting called {name}"),
        hint: Some("haul settings list shows what there is".into()),
    })
}

fn features(now: &Now) -> Vec<Entry> {
    let entry = |name: &String| {
        let (on, wanted) = (now.features.is_active(name), now.features.is_wanted(name));
        let value = match (on, wanted) {
            (true, _) => "on",
            (false, true) => "off (on is wanted)",
            (false, false) => "off",
        };
        let fixed = (!now.features.is_changeable(name)).then(|| "fixed".to_owned());
        Entry {
            name: format!("nic.{name}"),
            scope: Scope::Device,
            value: value.to_owned(),
            values: "on, off".to_owned(),
            fixed,
            drags: rules::needs(name),
        }
    };
    now.features.names.iter().map(entry).collect()
}

fn numbers(now: &Now, entries: &mut Vec<Entry>) {
    for (group, numbers) in &now.numbers {
        for name in settable(*group) {
            let Some(value) = numbers.get(name) else { continue };
            let values = match (numbers.get(&format!("{name}-max")), group) {
                (Some(most), Group::Ring) => format!("1 to {most}"),
                (Some(most), _) => format!("0 to {most}"),
                (None, _) if name.starts_with("adaptive") || *group == Group::Pause => "on, off".to_owned(),
                (None, _) => "a number".to_owned(),
            };
            let drags = match group {
                Group::Channels => {
                    Some("makes queues anew: per-queue settings go back to the driver's".to_owned())
                }
                Group::Ring => Some("may reset the device, and its link with it".to_owned()),
                Group::Coalesce if !name.starts_with("adaptive") => {
                    Some("has no effect while adaptive moderation is on".to_owned())
                }
                Group::Coalesce | Group::Pause => None,
            };
            entries.push(Entry {
                name: format!("nic.{}.{name}", group.word()),
                scope: Scope::Device,
                value: value.to_string(),
                values,
                fixed: None,
                drags,
            });
        }
    }
}

fn rest_of_device(device: &Link, now: &Now, access: &mut Access, entries: &mut Vec<Entry>) {
    let mut add = |name: &str, value: &str, values: String, drags: Option<&str>, fixed: Option<String>| {
        let (name, value, drags) = (name.to_owned(), value.to_owned(), drags.map(str::to_owned));
        entries.push(Entry { name, scope: Scope::Device, value, values, fixed, drags });
    };
    for (item, state) in &now.items {
        match &item.0 {
            Kind::Private(_) => add(&item.to_string(), &state.active, "on, off".to_owned(), None, None),
            Kind::Mtu => {
                let limits = now.limits.as_ref();
                let low = limits.and_then(|limits| limits.mtu_min).unwrap_or(68);
                let high = limits.and_then(|limits| limits.mtu_max).filter(|most| *most > 0);
                let values =
                    high.map_or_else(|| format!("{low} and more"), |high| format!("{low} to {high}"));
                add("nic.mtu", &state.active, values, Some("the peer and every hop must take it"), None);
            }
            Kind::TxQueueLen => add("nic.txqueuelen", &state.active, "packets".to_owned(), None, None),
            Kind::Qdisc => {
                let values = "a kind [options]".to_owned();
                add("qdisc", shown(&state.active), values, Some("drops what is queued"), None);
            }
            _ => {}
        }
    }
    let mut read = |path: &str| {
        let file = access.device_file(device, path).map_err(|error| error.to_string())?;
        files::read(&file).map(|text| files::meaning(path, &text)).map_err(|error| match error.errno() {
            // The file is there, and answers so where there is one queue (`xps_queue_show` in net/core/net-sysfs.c).
            Some(libc::ENOENT) if path.ends_with("xps_cpus") => {
                "with one queue there is nothing to choose".to_owned()
            }
            _ => error.to_string(),
        })
    };
    for (name, path, values) in [
        ("nic.napi.threaded", "threaded", "on, off"),
        ("nic.napi.defer-hard-irqs", "napi_defer_hard_irqs", "interrupts, 0 for none"),
        ("nic.napi.gro-flush-timeout", "gro_flush_timeout", "nanoseconds, 0 for none"),
        ("nic.rps", "queues/rx-0/rps_cpus", "a list of CPUs, off"),
        ("nic.xps", "queues/tx-0/xps_cpus", "a list of CPUs, off"),
        ("nic.rfs", "queues/rx-0/rps_flow_cnt", "flows over all queues, 0 for none"),
    ] {
        let (value, fixed) = match read(path) {
            Ok(value) => (in_words(path, value), None),
            Err(reason) => (String::new(), Some(reason)),
        };
        let drags =
            (name == "nic.rfs").then_some("sets net.core.rps_sock_flow_entries, which is the whole host's");
        add(name, &value, values.to_owned(), drags, fixed);
    }
}

/// A mask of CPUs as their list: what a setting takes.
fn in_words(path: &str, value: String) -> String {
    if !path.ends_with("_cpus") {
        return value;
    }
    match super::cpus::Cpus::from_mask(&value).map(|cpus| cpus.list()) {
        Some(list) if list.is_empty() => "off".to_owned(),
        Some(list) => list,
        None => value,
    }
}

fn sysctl(path: &str, access: &Access) -> Option<Entry> {
    let whose = if access.roots.are_real() { files::whose(path) } else { Ok(Whose::Host) };
    let (place, scope) = match whose {
        Ok(Whose::Namespace) => (&access.netns, Scope::Namespace),
        Ok(Whose::Host) | Err(_) => (&access.home, Scope::Host),
    };
    let file = access.roots.proc.join("sys").join(path);
    let found = place.run(|| {
        let exists = file.exists();
        exists.then(|| (files::read(&file), files::is_writable(&file)))
    });
    let (value, writable) = found.ok()??;
    let fixed = match &value {
        Err(error) => Some(error.to_string()),
        Ok(_) if !writable => Some("can only be read".to_owned()),
        Ok(_) => None,
    };
    let value = value.map(|text| files::meaning("/proc/sys/", &text)).unwrap_or_default();
    let values = if path.ends_with("tcp_congestion_control") { "a congestion control" } else { "a text" };
    Some(Entry {
        name: format!("sysctl.{}", sysctl_name(path)),
        scope,
        value,
        values: values.to_owned(),
        fixed,
        drags: None,
    })
}

/// A file of the whole host's.
fn file(name: &str, path: &str, access: &Access) -> Option<Entry> {
    let place = access.roots.place(path);
    let item: Item = format!("host:{path}").parse().ok()?;
    if !place.is_file() {
        return None;
    }
    let (value, fixed) = match files::read(&place) {
        Ok(text) if files::is_writable(&place) => (text, None),
        Ok(text) => (text, Some("can only be read while the kernel runs".to_owned())),
        Err(error) => (String::new(), Some(error.to_string())),
    };
    let values = files::choices(&value).map_or_else(|| "a text".to_owned(), |choices| choices.join(", "));
    let value = files::meaning(path, &value);
    Some(Entry { name: name.to_owned(), scope: item.scope(), value, values, fixed, drags: None })
}

const CPU: &str = "/sys/devices/system/cpu";

fn host(device: &Link, access: &Access, entries: &mut Vec<Entry>) {
    let absent = |name: &str, values: &str, why: &str| Entry {
        name: name.to_owned(),
        scope: Scope::Host,
        value: String::new(),
        values: values.to_owned(),
        fixed: Some(why.to_owned()),
        drags: None,
    };
    let interrupts =
        if access.roots.are_real() { crate::probe::interrupt_numbers(device) } else { Vec::new() };
    let affinities = interrupts.iter().filter_map(|number| {
        file(&format!("irq.{number}.affinity"), &format!("/proc/irq/{number}/smp_affinity_list"), access)
    });
    let affinities: Vec<Entry> =
        affinities.map(|entry| Entry { values: "a list of CPUs".to_owned(), ..entry }).collect();
    if affinities.is_empty() {
        entries.push(absent("irq.affinity", "a list of CPUs", "the device has no interrupt line of its own"));
    }
    entries.extend(affinities);
    let virtual_machine = "not here: in a virtual machine the host of it decides";
    let first = |paths: &[&str], name: &str, values: &str| {
        let found = paths.iter().find_map(|path| file(name, &format!("{CPU}/{path}"), access));
        found.map_or_else(
            || absent(name, values, virtual_machine),
            |entry| Entry { values: values.to_owned(), ..entry },
        )
    };
    let governors =
        files::read(&access.roots.place(&format!("{CPU}/cpufreq/policy0/scaling_available_governors")));
    entries.push(first(
        &["cpufreq/policy0/scaling_governor"],
        "cpu.governor",
        governors.as_deref().unwrap_or("a governor"),
    ));
    let idle = first(
        &["cpu0/cpuidle/state1/disable"],
        "cpu.idle-states",
        "on, off, or the longest exit latency in µs",
    );
    let value = match idle.value.as_str() {
        "0" => "on".to_owned(),
        "1" => "off".to_owned(),
        other => other.to_owned(),
    };
    entries.push(Entry { value, ..idle });
    let turbo = first(&["intel_pstate/no_turbo", "cpufreq/boost"], "cpu.turbo", "on, off");
    let inverted = access.roots.place(&format!("{CPU}/intel_pstate/no_turbo")).exists();
    let value = match turbo.value.as_str() {
        "" => String::new(),
        value => super::error::word((value == "1") != inverted).to_owned(),
    };
    entries.push(Entry { value, ..turbo });
    entries.extend(file("thp", "/sys/kernel/mm/transparent_hugepage/enabled", access));
}
