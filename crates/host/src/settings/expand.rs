//! What a setting comes to on one device of one host: the items it decides, and the state each shall have.
//!
//! The device and the host decide, not the text: a group of features is what the device can change of it, an affinity is a
//! file for each interrupt the device has. What cannot be had here is refused before anything is touched, with what could be.
//!
//! Group names: `off_flag_def` in ethtool's `ethtool.c`. CPUs: `Documentation/admin-guide/pm/{cpufreq,cpuidle}.rst`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::access::{Access, Now};
use super::cpus::Cpus;
use super::error::{SettingError, suggestion};
use super::files::{self, Whose};
use super::item::{Item, Kind};
use super::setting::{Napi, Object, Setting};
use crate::error::Result;
use crate::ethtool::{Features, Group};
use crate::link::Link;
use crate::probe::interrupt_numbers;
use crate::{napi, qdisc};

/// Items and the state each shall have.
pub(super) type Wanted = Vec<(Item, String)>;

/// What `setting` decides on `link`, which is as `now` says.
pub(super) fn expand(setting: &Setting, link: &Link, now: &Now, access: &mut Access) -> Result<Wanted> {
    let value = &setting.value;
    let no = |reason: String| impossible(setting, &link.name, reason);
    let one = |kind: Kind| Ok(vec![(Item(kind), value.clone())]);
    match &setting.object {
        Object::Feature(name) => {
            let on = value == "on";
            let features = resolve(setting, name, on, &link.name, &now.features)?;
            Ok(features.iter().map(|name| (Item::feature(name), value.clone())).collect())
        }
        Object::Number(group, name) => {
            check_number(*group, name, value, now).map_err(no)?;
            one(Kind::Number(*group, name.clone()))
        }
        Object::Private(name) => private_flag(setting, link, now, name),
        Object::Mtu => match check_mtu(value, now) {
            Ok(()) => one(Kind::Mtu),
            Err(reason) => Err(no(reason).into()),
        },
        Object::TxQueueLen => one(Kind::TxQueueLen),
        Object::Qdisc => {
            let root = now.items.get(&Item(Kind::Qdisc)).and_then(|state| state.active.split_once('\t'));
            let root: Option<qdisc::Root> = root.and_then(|(_, whole)| serde_json::from_str(whole).ok());
            match root.as_ref().and_then(qdisc::keeps) {
                Some(reason) => Err(no(reason).into()),
                None => one(Kind::Qdisc),
            }
        }
        Object::Napi(Napi::IrqSuspendTimeout) => {
            let index = link.index;
            let instances = access.netns.run(|| napi::napis(index))??;
            if instances.is_empty() {
                return Err(
                    no("it has no NAPI instance now: a veth has some while GRO is on".to_owned()).into()
                );
            }
            let name = Napi::IrqSuspendTimeout.word();
            Ok(instances
                .iter()
                .map(|one| (Item(Kind::Napi(one.id, name.to_owned())), value.clone()))
                .collect())
        }
        Object::Napi(knob) => {
            let file = match knob {
                Napi::Threaded => "threaded",
                Napi::DeferHardIrqs => "napi_defer_hard_irqs",
                _ => "gro_flush_timeout",
            };
            device_files(setting, link, access, vec![file.to_owned()], value)
        }
        Object::Rps => {
            let files = queues(link, access, "rx-", "rps_cpus")?;
            device_files(setting, link, access, files, &mask(value))
        }
        Object::Xps => {
            let files = queues(link, access, "tx-", "xps_cpus")?;
            device_files(setting, link, access, files, &mask(value))
        }
        Object::Rfs => rfs(setting, link, access),
        Object::Sysctl(path) => sysctl(setting, link, access, path),
        Object::Affinity(number) => affinity(setting, link, access, *number),
        Object::Governor => governor(setting, access),
        Object::IdleStates => idle_states(setting, access),
        Object::Turbo => turbo(setting, access),
        Object::Thp => host_file(setting, access, "/sys/kernel/mm/transparent_hugepage/enabled", value),
        Object::Module(module, parameter) => module_parameter(setting, access, module, parameter),
        Object::Sys(path) => sys(setting, link, access, path),
        Object::Boot(parameter) => Err(of_the_boot(setting, access, parameter).into()),
        Object::Exec(off) => Ok(vec![(Item(Kind::Hook(value.clone(), off.clone())), "on".to_owned())]),
    }
}

fn private_flag(setting: &Setting, link: &Link, now: &Now, name: &str) -> Result<Wanted> {
    let item = Item(Kind::Private(name.to_owned()));
    if now.items.contains_key(&item) {
        return Ok(vec![(item, setting.value.clone())]);
    }
    let names = now.items.keys().filter_map(|item| match &item.0 {
        Kind::Private(name) => Some(name.as_str()),
        _ => None,
    });
    let names: Vec<&str> = names.collect();
    let reason = if names.is_empty() {
        "its driver has no private flags".to_owned()
    } else {
        format!("its driver has the private flags {}", names.join(", "))
    };
    Err(impossible(setting, &link.name, reason).into())
}

fn check_mtu(value: &str, now: &Now) -> std::result::Result<(), String> {
    /// The least IPv4 allows (RFC 791).
    const LEAST: u32 = 68;
    let asked: u64 = value.parse().unwrap_or(u64::MAX);
    let (low, high) = now.limits.as_ref().map_or((None, None), |limits| (limits.mtu_min, limits.mtu_max));
    let (low, high) = (low.unwrap_or(LEAST), high.filter(|most| *most > 0).unwrap_or(u32::MAX));
    let fits = (u64::from(low)..=u64::from(high)).contains(&asked);
    if fits { Ok(()) } else { Err(format!("its MTU can be {low} to {high} bytes")) }
}

fn module_parameter(setting: &Setting, access: &Access, module: &str, parameter: &str) -> Result<Wanted> {
    let value = &setting.value;
    let path = format!("/sys/module/{module}/parameters/{parameter}");
    let file = access.roots.place(&path);
    if !file.exists() {
        let loaded = file.parent().is_some_and(Path::exists);
        let why = if loaded {
            "the module has no such parameter"
        } else {
            "no such module is loaded, or it has no parameters"
        };
        return Err(here(setting, why.to_owned()).into());
    }
    if files::is_writable(&file) {
        return host_file(setting, access, &path, value);
    }
    let now = files::read(&file).unwrap_or_else(|_| "unknown".to_owned());
    let reason = format!(
        "it is read when the module is loaded, and is {now} now: load the module with it, or give \
         {module}.{parameter}={value} to the boot loader, and compare with --save and 'haul compare'"
    );
    Err(here(setting, reason).into())
}

fn of_the_boot(setting: &Setting, access: &Access, parameter: &str) -> SettingError {
    let given = files::read(&access.roots.place("/proc/cmdline")).unwrap_or_default();
    let now = given.split_whitespace().find(|word| word.split('=').next() == Some(parameter));
    let now = now.map_or_else(|| "not given at the last one".to_owned(), |word| format!("now {word}"));
    let how = "boot each way, measure with --save, and use 'haul compare'";
    here(setting, format!("the kernel reads it at boot only ({now}): {how}"))
}

fn impossible(setting: &Setting, device: &str, reason: String) -> SettingError {
    SettingError::Impossible { setting: setting.to_string(), device: device.to_owned(), reason }
}

fn here(setting: &Setting, reason: String) -> SettingError {
    impossible(setting, "this host", reason)
}

/// The mask of a list of CPUs.
fn mask(value: &str) -> String {
    Cpus::parse(value).unwrap_or_default().mask()
}

fn check_number(group: Group, name: &str, value: &str, now: &Now) -> std::result::Result<(), String> {
    let empty = BTreeMap::new();
    let has = now.numbers.get(&group).unwrap_or(&empty);
    if !has.contains_key(name) {
        let settable: Vec<&str> = has
            .keys()
            .map(String::as_str)
            .filter(|name| crate::ethtool::settable(group).contains(name))
            .collect();
        return Err(if settable.is_empty() {
            format!("its driver has no {} to set", group.word())
        } else {
            format!("its driver has, of {}, {}", group.word(), settable.join(", "))
        });
    }
    let asked: u64 = value.parse().map_err(|_| format!("'{value}' is no number"))?;
    match has.get(&format!("{name}-max")) {
        Some(&most) if asked > most => Err(format!("it has {most} at most")),
        // Of rings and channels none is no way to work; a device that has none of one kind has a maximum of 0.
        _ if asked == 0 && group == Group::Ring => Err("a ring has one descriptor at least".to_owned()),
        _ => Ok(()),
    }
}

/// Files of the device, all with one value; refused where one is missing or cannot be put back.
fn device_files(
    setting: &Setting,
    link: &Link,
    access: &mut Access,
    files: Vec<String>,
    value: &str,
) -> Result<Wanted> {
    let mut wanted = Vec::new();
    for path in files {
        let file = access.device_file(link, &path)?;
        if !file.exists() {
            return Err(impossible(setting, &link.name, format!("it has no {path} in sysfs")).into());
        }
        // A queue can have a file that it does not answer: xps_cpus where there is one queue.
        if let Err(error) = files::read(&file) {
            return Err(impossible(setting, &link.name, error.to_string()).into());
        }
        let value = files::meaning(&path, value);
        wanted.push((Item(Kind::Device(path)), value));
    }
    Ok(wanted)
}

/// `queues/KIND-N/FILE` of every queue of a kind.
fn queues(link: &Link, access: &mut Access, kind: &str, file: &str) -> Result<Vec<String>> {
    let folder = access.device_file(link, "queues")?;
    let mut numbers: Vec<u32> =
        names_in(&folder).iter().filter_map(|name| name.strip_prefix(kind)?.parse().ok()).collect();
    numbers.sort_unstable();
    Ok(numbers.iter().map(|number| format!("queues/{kind}{number}/{file}")).collect())
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Flows to remember, shared out to the queues, and the table of the host they are looked up in. The kernel wants powers of two.
fn rfs(setting: &Setting, link: &Link, access: &mut Access) -> Result<Wanted> {
    let files = queues(link, access, "rx-", "rps_flow_cnt")?;
    let flows: u64 = setting.value.parse().unwrap_or(0);
    let each = match flows.checked_div(files.len() as u64) {
        Some(each) if flows > 0 => each.max(1).next_power_of_two(),
        _ => 0,
    };
    let mut wanted = device_files(setting, link, access, files, &each.to_string())?;
    let all = if flows == 0 { 0 } else { flows.next_power_of_two() };
    wanted.extend(host_file(setting, access, "/proc/sys/net/core/rps_sock_flow_entries", &all.to_string())?);
    Ok(wanted)
}

/// A file of the host, after making sure that it can be put back.
fn host_file(setting: &Setting, access: &Access, path: &str, value: &str) -> Result<Wanted> {
    let file = access.roots.place(path);
    let value = files::meaning(path, value);
    let problem = access.home.run(|| {
        let found = match fs::metadata(&file) {
            Err(error) => {
                let sysctl = path.strip_prefix("/proc/sys/").and_then(|key| files::absent(key, &error));
                return Some(sysctl.unwrap_or_else(|| format!("{path}: {error}")));
            }
            Ok(found) => found,
        };
        if !found.is_file() {
            return Some(format!("{path} is no file"));
        }
        // A link can lead out of both.
        let real = fs::canonicalize(&file).unwrap_or_default();
        let inside = |root: &Path| fs::canonicalize(root).is_ok_and(|root| real.starts_with(root));
        if !inside(&access.roots.sys) && !inside(&access.roots.proc) {
            return Some(format!("{path} leads to {}, which is no file of the kernel's", real.display()));
        }
        if !files::is_readable(&file) {
            return Some(format!("{path} cannot be read, and what is not known cannot be put back"));
        }
        if !files::is_writable(&file) {
            return Some(format!("{path} can only be read"));
        }
        match files::read(&file) {
            Err(error) => Some(error.to_string()),
            Ok(text) if text.len() >= files::MOST_KEPT => {
                Some(format!("{path} has more text than can be kept"))
            }
            Ok(text) => files::choices(&text)
                .filter(|choices| path.starts_with("/sys/") && !choices.contains(&value))
                .map(|choices| format!("{path} can be {}", choices.join(", "))),
        }
    })?;
    match problem {
        Some(reason) => Err(here(setting, reason).into()),
        None => Ok(vec![(Item(Kind::Host(path.to_owned())), value)]),
    }
}

fn sysctl(setting: &Setting, link: &Link, access: &Access, path: &str) -> Result<Wanted> {
    let whole = || host_file(setting, access, &format!("/proc/sys/{path}"), &setting.value);
    if !access.roots.are_real() {
        return whole();
    }
    // Who may make no network namespace to ask may set no global key either: the kernel will say so.
    match files::whose(path) {
        Ok(Whose::Namespace) => {}
        Ok(Whose::Host) | Err(_) => return whole(),
    }
    let file = Path::new("/proc/sys").join(path);
    let found = access.netns.run(|| {
        files::read(&file).map_err(|error| match error.errno().map(std::io::Error::from_raw_os_error) {
            Some(os) => files::absent(path, &os).unwrap_or_else(|| error.to_string()),
            None => error.to_string(),
        })
    })?;
    match found {
        Err(reason) => Err(impossible(setting, &link.name, reason).into()),
        Ok(_) => Ok(vec![(Item(Kind::Sysctl(path.to_owned())), setting.value.clone())]),
    }
}

fn affinity(setting: &Setting, link: &Link, access: &Access, number: Option<u32>) -> Result<Wanted> {
    let numbers = match number {
        Some(number) => vec![number],
        None if access.roots.are_real() => interrupt_numbers(link),
        None => {
            names_in(&access.roots.proc.join("irq")).iter().filter_map(|name| name.parse().ok()).collect()
        }
    };
    if numbers.is_empty() {
        let reason = "it has no interrupt line of its own, as far as the kernel says".to_owned();
        return Err(impossible(setting, &link.name, reason).into());
    }
    let file = |number: &u32| {
        host_file(setting, access, &format!("/proc/irq/{number}/smp_affinity_list"), &setting.value)
    };
    Ok(numbers.iter().map(file).collect::<Result<Vec<_>>>()?.concat())
}

fn governor(setting: &Setting, access: &Access) -> Result<Wanted> {
    const POLICIES: &str = "/sys/devices/system/cpu/cpufreq";
    let mut wanted = Vec::new();
    for policy in names_in(&access.roots.place(POLICIES)).iter().filter(|name| name.starts_with("policy")) {
        let offered =
            files::read(&access.roots.place(&format!("{POLICIES}/{policy}/scaling_available_governors")));
        if let Ok(offered) = offered
            && !offered.split_whitespace().any(|governor| governor == setting.value)
        {
            return Err(here(setting, format!("{policy} offers {offered}")).into());
        }
        let path = format!("{POLICIES}/{policy}/scaling_governor");
        wanted.extend(host_file(setting, access, &path, &setting.value)?);
    }
    some(setting, wanted, "it does not set its CPUs' frequency: in a virtual machine the host of it does")
}

fn idle_states(setting: &Setting, access: &Access) -> Result<Wanted> {
    const CPUS: &str = "/sys/devices/system/cpu";
    let mut wanted = Vec::new();
    for cpu in names_in(&access.roots.place(CPUS)) {
        let folder = format!("{CPUS}/{cpu}/cpuidle");
        for state in names_in(&access.roots.place(&folder)).iter().filter(|name| name.starts_with("state")) {
            let read = |file: &str| files::read(&access.roots.place(&format!("{folder}/{state}/{file}")));
            let off = match setting.value.as_str() {
                "on" => false,
                // The first one is to poll: without any a CPU could not wait at all.
                "off" => state != "state0",
                most => {
                    let latency = read("latency").ok().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
                    latency > most.parse().unwrap_or(u64::MAX)
                }
            };
            let path = format!("{folder}/{state}/disable");
            wanted.extend(host_file(setting, access, &path, if off { "1" } else { "0" })?);
        }
    }
    some(
        setting,
        wanted,
        "its CPUs have no idle states to choose from: in a virtual machine the host of it has",
    )
}

fn turbo(setting: &Setting, access: &Access) -> Result<Wanted> {
    const INTEL: &str = "/sys/devices/system/cpu/intel_pstate/no_turbo";
    const BOOST: &str = "/sys/devices/system/cpu/cpufreq/boost";
    let on = setting.value == "on";
    for (path, value) in [(INTEL, if on { "0" } else { "1" }), (BOOST, if on { "1" } else { "0" })] {
        if access.roots.place(path).exists() {
            return host_file(setting, access, path, value);
        }
    }
    some(setting, Vec::new(), "it has no switch for turbo: in a virtual machine the host of it has")
}

fn some(setting: &Setting, wanted: Wanted, without: &str) -> Result<Wanted> {
    if wanted.is_empty() { Err(here(setting, without.to_owned()).into()) } else { Ok(wanted) }
}

fn sys(setting: &Setting, link: &Link, access: &mut Access, path: &str) -> Result<Wanted> {
    if let Some(key) = path.strip_prefix("/proc/sys/") {
        return sysctl(setting, link, access, key);
    }
    let own = format!("/class/net/{}/", link.name);
    if let Some(below) = path.strip_prefix(&own) {
        return device_files(setting, link, access, vec![below.to_owned()], &setting.value);
    }
    if path.starts_with("/class/net/") || path.starts_with("/devices/virtual/net/") {
        let reason = format!("that is another device than {}, through which the traffic goes", link.name);
        return Err(impossible(setting, &link.name, reason).into());
    }
    let whole = if path.starts_with("/proc/") { path.to_owned() } else { format!("/sys{path}") };
    host_file(setting, access, &whole, &setting.value)
}

/// The features of one device a setting decides.
///
/// A group set `on` needs one feature that can be on; set `off`, none may stay on. A feature that cannot be changed but
/// is as asked is met and needs nothing.
fn resolve(
    setting: &Setting,
    feature: &str,
    on: bool,
    device: &str,
    features: &Features,
) -> std::result::Result<Vec<String>, SettingError> {
    let text = setting.to_string();
    let group = GROUPS.iter().find(|(names, _)| names.contains(&feature));
    let members: Vec<&String> = match group {
        _ if features.knows(feature) => features.names.iter().filter(|name| *name == feature).collect(),
        Some((_, pattern)) => features.names.iter().filter(|name| matches(pattern, name)).collect(),
        None => Vec::new(),
    };
    if members.is_empty() {
        let groups = GROUPS.iter().flat_map(|(names, _)| names.iter().copied());
        let near = suggestion(feature, features.names.iter().map(String::as_str).chain(groups));
        let changeable = features.names.iter().filter(|name| features.is_changeable(name)).cloned().collect();
        return Err(SettingError::Unknown { setting: text, device: device.to_owned(), near, changeable });
    }
    let one_can_be_met =
        members.iter().any(|name| features.is_changeable(name) || features.is_active(name) == on);
    let changeable = |name: &&String| features.is_changeable(name);
    let (can, fixed): (Vec<&String>, Vec<&String>) = members.into_iter().partition(changeable);
    let contrary = fixed.into_iter().filter(|name| features.is_active(name) != on);
    let contrary: Vec<String> = contrary.cloned().collect();
    let enough = on && one_can_be_met;
    if !enough && !contrary.is_empty() {
        let device = device.to_owned();
        return Err(SettingError::Fixed { setting: text, device, features: contrary, on });
    }
    Ok(can.into_iter().cloned().collect())
}

/// ethtool's old names and the features they stand for; `*` stands for any text.
const GROUPS: &[(&[&str], &str)] = &[
    (&["rx", "rx-checksumming"], "rx-checksum"),
    (&["tx", "tx-checksumming"], "tx-checksum-*"),
    (&["sg", "scatter-gather"], "tx-scatter-gather*"),
    (&["tso", "tcp-segmentation-offload"], "tx-tcp*-segmentation"),
    (&["ufo", "udp-fragmentation-offload"], "tx-udp-fragmentation"),
    (&["gso", "generic-segmentation-offload"], "tx-generic-segmentation"),
    (&["gro", "generic-receive-offload"], "rx-gro"),
    (&["lro", "large-receive-offload"], "rx-lro"),
    (&["rxvlan", "rx-vlan-offload"], "rx-vlan-hw-parse"),
    (&["txvlan", "tx-vlan-offload"], "tx-vlan-hw-insert"),
    (&["ntuple", "ntuple-filters"], "rx-ntuple-filter"),
    (&["rxhash", "receive-hashing"], "rx-hashing"),
];

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => {
            name.len() >= head.len() + tail.len() && name.starts_with(head) && name.ends_with(tail)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(text: &str) -> std::result::Result<Vec<String>, SettingError> {
        let setting: Setting = text.parse().unwrap();
        let Object::Feature(name) = &setting.object else { panic!("{text} is no feature") };
        resolve(&setting, name, setting.value == "on", "eth0", &device())
    }

    /// rx-gro and two of tso can change; tx-checksum-ipv4 is fixed off and rx-lro fixed on.
    fn device() -> Features {
        let names = ["rx-gro", "tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-tcp-ecn-segmentation"];
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Features {
            names: names
                .iter()
                .chain(&["tx-checksum-ipv4", "rx-lro"])
                .map(|name| (*name).to_owned())
                .collect(),
            hw: set(&["rx-gro", "tx-tcp-segmentation", "tx-tcp6-segmentation", "rx-lro"]),
            wanted: set(&["rx-gro"]),
            active: set(&["rx-gro", "rx-lro"]),
            nochange: set(&["rx-lro"]),
        }
    }

    #[test]
    fn a_group_stands_for_what_the_device_can_change_of_it() {
        let tso: &[&str] = &["tx-tcp-segmentation", "tx-tcp6-segmentation"];
        for (text, expected) in [
            ("nic.tso=on", tso),
            ("nic.tso=off", tso),
            ("nic.tcp-segmentation-offload=on", tso),
            ("nic.tx-tcp6-segmentation=on", &["tx-tcp6-segmentation"]),
            ("nic.gro=off", &["rx-gro"]),
            // Fixed, and as asked.
            ("nic.tx=off", &[]),
            ("nic.lro=on", &[]),
        ] {
            let found = resolved(text).unwrap();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn what_a_device_cannot_do_is_refused_by_name() {
        for (text, expected) in [
            ("nic.tx=on", "nic.tx=on is not possible on eth0: tx-checksum-ipv4 fixed off"),
            ("nic.lro=off", "nic.lro=off is not possible on eth0: rx-lro fixed on"),
            ("nic.tx-tcp-ecn-segmentation=on", "tx-tcp-ecn-segmentation fixed off"),
            ("nic.tx-tcp-segmentatoin=on", "(did you mean 'tx-tcp-segmentation'?)"),
            ("nic.frobnicate=on", "it can change rx-gro, tx-tcp-segmentation, tx-tcp6-segmentation"),
            ("nic.rxhash=on", "has no feature of that name"),
        ] {
            let error = resolved(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
