//! Reads and writes items, wherever their states are kept: by netlink, in files, or by a command.
//!
//! A state is text, spelt one way only, so that states compare as texts. Two of them are kept for each item: what is
//! *wanted* and what is in *force*. They differ for features alone, which the kernel holds back while something they need is
//! off; for anything else what is there is what is wanted.
//!
//! A queueing discipline's state is its kind, a tab, and the kernel's whole description of it in JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::error::{SettingError, word};
use super::files::{self, Roots, Sysfs};
use super::hook;
use super::item::{Item, Kind};
use crate::error::{HostError, Result};
use crate::ethtool::{self, Ethtool, Features, Group};
use crate::journal::Before;
use crate::link::{self, Link, LinkLimits};
use crate::netns::Netns;
use crate::{napi, qdisc};

/// One step of a change, as it has been done: for who shows progress, and for who tests what a death between two leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// What was there is on disk.
    Recorded,
    /// These were written, in one request.
    Wrote(Vec<Item>),
    /// The link has its carrier.
    Settled,
    /// Everything was read back.
    ReadBack,
    /// The journal says that what went back is back.
    Released,
    /// The journal is gone.
    Removed,
}

/// What is told of each step.
pub type OnStep<'a> = &'a mut dyn FnMut(&Step);

/// What a command of the user's wrote.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Said {
    /// The command.
    pub command: String,
    /// The end of its output, both streams.
    pub output: String,
}

/// A device as it is now.
#[derive(Debug, Clone)]
pub(crate) struct Now {
    pub(crate) features: Features,
    pub(crate) limits: Option<LinkLimits>,
    /// Maxima and read-only numbers too.
    pub(crate) numbers: BTreeMap<Group, BTreeMap<String, u64>>,
    pub(crate) items: BTreeMap<Item, Before>,
}

/// The ways to the states of a device, of its network namespace and of the host.
#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) netns: Netns,
    pub(crate) home: Netns,
    pub(crate) roots: Roots,
    ethtool: Ethtool,
    sysfs: Option<Sysfs>,
    /// Commands that were run to turn something on, and not yet those that turn it off.
    hooks: BTreeSet<Item>,
    /// What the device was called when its sysctls were named, and what it is called now.
    renamed: Option<(String, String)>,
    /// The queueing discipline as it was asked for, and what the kernel made of it.
    qdisc: Option<(String, String)>,
}

fn same(state: String) -> Before {
    Before { wanted: state.clone(), active: state }
}

/// A group of numbers the driver has no room for is absent, not an error.
fn optional<T: Default>(read: Result<T>) -> Result<T> {
    match read {
        Err(error) if matches!(error.errno(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) => Ok(T::default()),
        Err(HostError::Unavailable { .. }) => Ok(T::default()),
        read => read,
    }
}

impl Access {
    /// The ways from `netns`.
    pub(crate) fn open(netns: Netns, roots: Roots) -> Result<Self> {
        let ethtool = netns.run(Ethtool::open)??;
        Ok(Self {
            home: Netns::of_process()?,
            netns,
            roots,
            ethtool,
            sysfs: None,
            hooks: BTreeSet::new(),
            renamed: None,
            qdisc: None,
        })
    }

    /// Takes these commands for having been run, by somebody who is gone.
    pub(crate) fn take_over(&mut self, items: impl IntoIterator<Item = Item>) {
        self.hooks.extend(items.into_iter().filter(|item| matches!(item.0, Kind::Hook(..))));
    }

    /// Everything of the device that any setting changes, files aside.
    pub(crate) fn now(&mut self, link: &Link) -> Result<Now> {
        let index = link.index;
        let features = self.ethtool.features(index)?;
        let feature = |name: &String| {
            let (wanted, active) = (features.is_wanted(name), features.is_active(name));
            let before = Before { wanted: word(wanted).to_owned(), active: word(active).to_owned() };
            (Item::feature(name), before)
        };
        let mut items: BTreeMap<Item, Before> = features.names.iter().map(feature).collect();
        let mut numbers = BTreeMap::new();
        for group in Group::ALL {
            let found = optional(self.ethtool.numbers(group, index))?;
            let settable = ethtool::settable(group);
            let known = found.iter().filter(|(name, _)| settable.contains(&name.as_str()));
            items.extend(
                known.map(|(name, value)| (Item(Kind::Number(group, name.clone())), same(value.to_string()))),
            );
            numbers.insert(group, found);
        }
        let flags = optional(self.ethtool.private_flags(index))?;
        items.extend(
            flags.into_iter().map(|(name, on)| (Item(Kind::Private(name)), same(word(on).to_owned()))),
        );
        let (limits, root) = self.netns.run(|| (link::limits(index), qdisc::root(index)))?;
        let limits = limits?;
        items.insert(Item(Kind::Mtu), same(limits.mtu.to_string()));
        items.insert(Item(Kind::TxQueueLen), same(limits.tx_queue_len.to_string()));
        items.insert(Item(Kind::Qdisc), same(described(&root?)?));
        Ok(Now { features, limits: Some(limits), numbers, items })
    }

    /// The states of `wanted` that `now` does not have yet.
    pub(crate) fn complete<'a>(
        &mut self,
        link: Option<&Link>,
        items: impl IntoIterator<Item = &'a Item>,
        into: &mut BTreeMap<Item, Before>,
    ) -> Result<()> {
        for item in items {
            if !into.contains_key(item) {
                let state = self.state(link, item)?;
                into.insert(item.clone(), state);
            }
        }
        Ok(())
    }

    /// The state of an item that [`Access::now`] does not read.
    fn state(&mut self, link: Option<&Link>, item: &Item) -> Result<Before> {
        let state = match &item.0 {
            Kind::Device(path) => {
                let file = self.device_file(required(link, item)?, path)?;
                files::meaning(path, &files::read(&file)?)
            }
            Kind::Sysctl(path) => {
                let file = self.sysctl_file(path);
                files::meaning("/proc/sys/", &self.netns.run(|| files::read(&file))??)
            }
            Kind::Host(path) => {
                let file = self.roots.place(path);
                files::meaning(path, &self.home.run(|| files::read(&file))??)
            }
            Kind::Hook(..) => word(self.hooks.contains(item)).to_owned(),
            Kind::Napi(id, name) => {
                let index = required(link, item)?.index;
                let found = self.netns.run(|| napi::napis(index))??;
                let value = found.iter().find(|one| one.id == *id).and_then(|one| one.values.get(name));
                value.map(u64::to_string).ok_or_else(|| missing(item))?
            }
            // The device had it when it was asked for, and has it no more.
            _ => return Err(missing(item)),
        };
        Ok(same(state))
    }

    /// Whether an item's state, wanted or in force, is what was asked for.
    pub(crate) fn is(&self, item: &Item, state: &str, target: &str) -> bool {
        if !matches!(item.0, Kind::Qdisc) || target.contains('\t') {
            return state == target;
        }
        if let Some((asked, made)) = &self.qdisc
            && asked == target
            && made == state
        {
            return true;
        }
        // A kind alone asks for no more than that. One the kernel put there by itself will not do: it goes with the next reset.
        state.split('\t').next() == Some(target) && !state.contains("\"default\":true")
    }

    /// Writes the values, each request for as many as it can take, in the order of [`Item::place`] or, on the way back, in the
    /// opposite one. What the kernel itself says it did not do is returned; what it did without saying is for reading back.
    pub(crate) fn write(
        &mut self,
        link: Option<&Link>,
        values: &BTreeMap<Item, String>,
        back: bool,
        said: &mut Vec<Said>,
        on_step: OnStep<'_>,
    ) -> Result<BTreeSet<Item>> {
        let mut order: Vec<(&Item, &String)> = values.iter().collect();
        // What goes off goes before what comes on, of commands.
        order.sort_by_key(|(item, value)| (item.place(), matches!(item.0, Kind::Hook(..)) && *value == "on"));
        if back {
            order.reverse();
        }
        let mut refused = BTreeSet::new();
        let mut rest = &order[..];
        while let Some((first, _)) = rest.first() {
            let joint = |item: &Item| {
                item == *first || item.place() == first.place() && item.place() <= 7 && same_napi(item, first)
            };
            let together = rest.iter().take_while(|(item, _)| joint(item)).count();
            let (now, later) = rest.split_at(together);
            rest = later;
            refused.extend(self.request(link, now, said)?);
            on_step(&Step::Wrote(now.iter().map(|(item, _)| (*item).clone()).collect()));
        }
        Ok(refused)
    }

    /// One request for items of one kind.
    fn request(
        &mut self,
        link: Option<&Link>,
        values: &[(&Item, &String)],
        said: &mut Vec<Said>,
    ) -> Result<BTreeSet<Item>> {
        let mut refused = BTreeSet::new();
        let (first, value) = values[0];
        let numbers = |name_of: &dyn Fn(&Item) -> Option<String>| -> Result<BTreeMap<String, u64>> {
            let named = values.iter().filter_map(|(item, value)| Some((name_of(item)?, number(item, value))));
            named.map(|(name, number)| Ok((name, number?))).collect()
        };
        match &first.0 {
            Kind::Feature(_) => {
                let link = required(link, first)?;
                let bits: Vec<(&str, bool)> = values
                    .iter()
                    .filter_map(|(item, value)| Some((item.as_feature()?, *value == "on")))
                    .collect();
                let reply = self.ethtool.set_wanted(link.index, &link.name, &bits)?;
                refused.extend(reply.refused.keys().map(|name| Item::feature(name)));
            }
            Kind::Number(group, _) => {
                let link = required(link, first)?;
                let values = numbers(&|item| match &item.0 {
                    Kind::Number(_, name) => Some(name.clone()),
                    _ => None,
                })?;
                self.ethtool.set_numbers(*group, link.index, &link.name, &values)?;
            }
            Kind::Private(_) => {
                let link = required(link, first)?;
                let flags = values.iter().filter_map(|(item, value)| match &item.0 {
                    Kind::Private(name) => Some((name.clone(), *value == "on")),
                    _ => None,
                });
                let flags = flags.collect();
                self.ethtool.set_private_flags(link.index, &link.name, &flags)?;
            }
            Kind::Napi(id, _) => {
                let values = numbers(&|item| match &item.0 {
                    Kind::Napi(_, name) => Some(name.clone()),
                    _ => None,
                })?;
                self.netns.run(|| napi::set_napi(*id, &values))??;
            }
            Kind::Mtu => {
                let (index, mtu) = (required(link, first)?.index, small(first, value)?);
                self.netns.run(|| link::set_mtu(index, haul_stats::ByteCount(mtu.into())))??;
            }
            Kind::TxQueueLen => {
                let (index, packets) = (required(link, first)?.index, small(first, value)?);
                self.netns.run(|| link::set_tx_queue_len(index, packets))??;
            }
            Kind::Qdisc => self.replace_qdisc(required(link, first)?, value)?,
            Kind::Device(path) => {
                let file = self.device_file(required(link, first)?, path)?;
                files::write(&file, value)?;
            }
            Kind::Sysctl(path) => {
                let file = self.sysctl_file(path);
                self.netns.run(|| files::write(&file, value))??;
            }
            Kind::Host(path) => {
                let file = self.roots.place(path);
                self.home.run(|| files::write(&file, value))??;
            }
            Kind::Hook(on, off) => {
                let command = if *value == "on" { on } else { off };
                // Run half or whole, it has to be undone.
                self.hooks.insert(first.clone());
                let device = link.map_or("", |link| link.name.as_str());
                let output = hook::run(&self.netns, device, command)?;
                if value != "on" {
                    self.hooks.remove(first);
                }
                said.push(Said { command: command.clone(), output });
            }
        }
        Ok(refused)
    }

    fn replace_qdisc(&mut self, link: &Link, value: &str) -> Result<()> {
        let index = link.index;
        if let Some((_, whole)) = value.split_once('\t') {
            let root: qdisc::Root = serde_json::from_str(whole).map_err(|error| HostError::Answer {
                operation: "read what the journal says of the queueing discipline of",
                object: link.name.clone(),
                what: error.to_string(),
            })?;
            self.qdisc = None;
            return self.netns.run(|| qdisc::put_back(index, &root))?;
        }
        let wanted = qdisc::parse(value).map_err(|reason| SettingError::Impossible {
            setting: format!("qdisc={value}"),
            device: link.name.clone(),
            reason,
        })?;
        let made = self.netns.run(|| qdisc::replace(index, &wanted).and_then(|()| qdisc::root(index)))??;
        self.qdisc = Some((value.to_owned(), described(&made)?));
        Ok(())
    }

    /// A device's sysctls go by its name, which may have changed since.
    pub(crate) fn is_called_now(&mut self, then: &str, now: &str) {
        self.renamed = (then != now).then(|| (then.to_owned(), now.to_owned()));
    }

    fn sysctl_file(&self, path: &str) -> PathBuf {
        let part = |part: &str| match &self.renamed {
            Some((then, now)) if part == then => now.clone(),
            _ => part.to_owned(),
        };
        self.roots.proc.join("sys").join(path.split('/').map(part).collect::<PathBuf>())
    }

    /// A file of the device in sysfs.
    pub(crate) fn device_file(&mut self, link: &Link, path: &str) -> Result<PathBuf> {
        let sysfs = match &mut self.sysfs {
            Some(sysfs) => sysfs,
            none => none.insert(Sysfs::of(&self.netns, &self.roots)?),
        };
        Ok(sysfs.device(link)?.join(path))
    }

    /// Whether the device's network namespace is not the one haul was started in.
    pub(crate) fn is_private(&self) -> bool {
        self.netns.id() != self.home.id()
    }
}

fn same_napi(one: &Item, other: &Item) -> bool {
    match (&one.0, &other.0) {
        (Kind::Napi(one, _), Kind::Napi(other, _)) => one == other,
        _ => true,
    }
}

fn required<'a>(link: Option<&'a Link>, item: &Item) -> Result<&'a Link> {
    link.ok_or_else(|| missing(item))
}

fn missing(item: &Item) -> HostError {
    HostError::NotFound { what: item.to_string(), hint: None }
}

fn number(item: &Item, value: &str) -> Result<u64> {
    value.parse().map_err(|_| HostError::Answer {
        operation: "write",
        object: item.to_string(),
        what: format!("'{value}' is no number"),
    })
}

fn small(item: &Item, value: &str) -> Result<u32> {
    u32::try_from(number(item, value)?).map_err(|_| HostError::Answer {
        operation: "write",
        object: item.to_string(),
        what: format!("{value} is more than 32 bits hold"),
    })
}

/// A queueing discipline's state.
fn described(root: &qdisc::Root) -> Result<String> {
    let whole = serde_json::to_string(root).map_err(|error| HostError::Answer {
        operation: "describe",
        object: "a queueing discipline".to_owned(),
        what: error.to_string(),
    })?;
    Ok(format!("{}\t{whole}", root.kind))
}
