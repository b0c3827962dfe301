//! `/proc/interrupts`: how often each line interrupted each CPU, and which lines are a NIC's.
//!
//! The file is made by every architecture in its own way (`show_interrupts` in kernel/irq/proc.c and
//! `arch_show_interrupts`), so nothing is assumed but what all share: a first line with the CPUs online, which may have
//! gaps; then lines of a label with a colon, a count for each of those CPUs, and a text. Labels are a number for a
//! device's line and a word for what has none (`LOC`, `IPI0`). A line with one count on a host with several CPUs counts
//! mistakes (`ERR`, `MIS`) and is no interrupt.
//!
//! A line belongs to a NIC where the kernel says so, by the device's `msi_irqs` in sysfs, else by the name of the device, or
//! of its place on the bus, among the actions of the line. What the queue of a line is stands in the name its driver gave it
//! and nowhere else; a name that says nothing has no queue. `/proc/softirqs` has the same shape and is read here too.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsFd as _;

use serde::{Deserialize, Serialize};

use crate::link::{self, Link};
use crate::sys;

/// Lines beside the NIC's that a window tells one by one; the others are in the total.
const MOST_LINES: usize = 48;

/// Lines of a NIC that a window tells: some have one for each of hundreds of queues.
const MOST_NIC_LINES: usize = 512;

/// Longest text of a line that is kept.
const LONGEST: usize = 80;

/// Queues beyond this are numbers of something else.
const MOST_QUEUES: u32 = 4096;

/// One line at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    label: String,
    text: String,
    /// By CPU, in the order of the first line.
    counts: Vec<u64>,
}

/// The file at one instant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Table {
    cpus: Vec<u32>,
    lines: Vec<Line>,
}

/// What one line did in a window.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LineUse {
    /// Its number, or the kernel's word for what has none.
    pub line: String,
    /// What it is, as the kernel describes it: chip, kind and actions.
    pub text: String,
    /// Its interrupts on all CPUs.
    pub count: u64,
    /// The CPUs that had one.
    pub cpus: u32,
    /// The CPU that had most of them.
    pub busiest_cpu: u32,
    /// How many that CPU had.
    pub busiest: u64,
    /// The NIC's queue, as its driver names it: `rx 0`, `tx 3`, `7`. Only of the NIC's lines.
    pub queue: Option<String>,
}

/// What all lines did in a window.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct InterruptUse {
    /// Interrupts of all lines on all CPUs: devices, timers, and what CPUs send each other.
    pub total: u64,
    /// Those of numbered lines, which are devices.
    pub devices: u64,
    /// Interrupts of the NIC; `None` where it has no line, or none that can be told.
    pub nic: Option<u64>,
    /// How the NIC's lines were found, or why there are none.
    pub nic_by: String,
    /// The NIC's lines, whether they moved or not.
    pub nic_lines: Vec<LineUse>,
    /// Other lines that moved, the one that moved most first.
    pub lines: Vec<LineUse>,
    /// Lines that went backwards and are left out: hot-unplugged, or reset.
    pub backwards: Vec<String>,
    /// How many lines moved beyond those told.
    pub untold: u32,
}

/// Which lines are a NIC's.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Owner {
    /// By number.
    numbers: BTreeSet<String>,
    /// How they were found.
    by: String,
    /// Names that tell a line where there is no number.
    names: Vec<String>,
    /// What the device is, for the reason why it has none.
    what: String,
}

impl Owner {
    /// The lines of a device and of those it stands on: a vlan, a bond or a bridge has none of its own. In the network
    /// namespace of the calling thread.
    pub(super) fn of(device: &Link) -> Self {
        let below = link::below(device.index).unwrap_or_default();
        let mut all = Self::default();
        for link in std::iter::once(device).chain(&below) {
            let info = super::socket().and_then(|socket| sys::driver_info(socket.as_fd(), &link.name));
            let [driver, _, _, bus] = info.unwrap_or_default();
            all.join(Self::find(&link.name, &driver, &bus));
        }
        all
    }

    fn join(&mut self, other: Self) {
        self.numbers.extend(other.numbers);
        self.names.extend(other.names);
        for (text, more, between) in [(&mut self.by, other.by, ", "), (&mut self.what, other.what, " on ")] {
            if !text.is_empty() && !more.is_empty() {
                text.push_str(between);
            }
            text.push_str(&more);
        }
    }

    /// The lines of the device `name` at `bus`, the address its driver reports; no text where it reports none.
    pub(super) fn find(name: &str, driver: &str, bus: &str) -> Self {
        let what = if driver.is_empty() { name.to_owned() } else { format!("{name} ({driver})") };
        // A bus address comes from a driver: it must not lead out of the folder.
        if bus.is_empty() || bus.contains('/') || bus.starts_with('.') {
            return Self { names: vec![name.to_owned()], what, ..Self::default() };
        }
        let folder = format!("/sys/bus/pci/devices/{bus}");
        let numbers: BTreeSet<String> = fs::read_dir(format!("{folder}/msi_irqs"))
            .map(|entries| {
                entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
            })
            .unwrap_or_default();
        if !numbers.is_empty() {
            return Self { numbers, by: format!("{folder}/msi_irqs"), what, ..Self::default() };
        }
        Self { names: vec![name.to_owned(), bus.to_owned()], what, ..Self::default() }
    }

    fn owns(&self, line: &Line) -> bool {
        self.numbers.contains(&line.label) || self.names.iter().any(|name| line.is_named(name))
    }

    /// How its lines were found, or why there are none.
    fn how(&self, found: bool) -> String {
        match (found, self.by.is_empty()) {
            (true, false) => self.by.clone(),
            (true, true) => "the name of the line in /proc/interrupts".to_owned(),
            (false, _) => format!("{} has no interrupt line of its own", self.what),
        }
    }
}

/// The numbers of the interrupt lines of a device in the network namespace of the calling thread, as `/proc/irq` has them;
/// empty where the kernel names none.
pub(crate) fn numbers_of(device: &Link) -> Vec<u32> {
    let owner = Owner::of(device);
    let Some(table) = fs::read_to_string("/proc/interrupts").ok().and_then(|text| Table::parse(&text)) else {
        return Vec::new();
    };
    let own = table.lines.iter().filter(|line| line.is_device() && owner.owns(line));
    own.filter_map(|line| line.label.parse().ok()).collect()
}

impl Line {
    fn is_device(&self) -> bool {
        !self.label.is_empty() && self.label.bytes().all(|byte| byte.is_ascii_digit())
    }

    /// What answers the line, in the words of the drivers.
    fn actions(&self) -> &str {
        let is_kind = |word: &str| {
            let word = word.to_ascii_lowercase();
            ["edge", "level", "fasteoi"].iter().any(|kind| {
                word.strip_suffix(kind).is_some_and(|rest| rest.is_empty() || rest.ends_with('-'))
            })
        };
        let mut rest = self.text.as_str();
        let mut after = None;
        while let Some((word, more)) = rest.trim_start().split_once(char::is_whitespace) {
            if is_kind(word) {
                after = Some(more.trim());
            }
            rest = more;
        }
        after.unwrap_or_else(|| self.text.rsplit(char::is_whitespace).next().unwrap_or_default())
    }

    /// Whether one of its actions has this name as a word of its own: `eth1` is not in `eth10-rx-0`.
    fn is_named(&self, name: &str) -> bool {
        let part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'_';
        let actions = self.actions();
        self.is_device()
            && !name.is_empty()
            && actions.match_indices(name).any(|(at, found)| {
                let before = actions.as_bytes().get(..at).and_then(<[u8]>::last);
                let behind = actions.as_bytes().get(at + found.len());
                !before.copied().is_some_and(part) && !behind.copied().is_some_and(part)
            })
    }

    /// What each CPU counted since `earlier`, `None` where one of them went backwards. A line that was not there began at 0.
    fn spread(&self, earlier: Option<&Self>) -> Option<Vec<u64>> {
        let Some(earlier) = earlier else { return Some(self.counts.clone()) };
        let pairs = self.counts.iter().zip(&earlier.counts);
        pairs.map(|(now, then)| wrapping(*then, *now)).collect()
    }

    fn used(&self, spread: &[u64], cpus: &[u32], queue: bool) -> LineUse {
        let busiest = spread.iter().enumerate().max_by_key(|(_, count)| **count);
        LineUse {
            line: self.label.clone(),
            text: self.text.chars().take(LONGEST).collect(),
            count: spread.iter().fold(0, |sum, count| sum.saturating_add(*count)),
            cpus: u32::try_from(spread.iter().filter(|count| **count > 0).count()).unwrap_or(u32::MAX),
            busiest_cpu: busiest.and_then(|(place, _)| cpus.get(place)).copied().unwrap_or_default(),
            busiest: busiest.map_or(0, |(_, count)| *count),
            queue: if queue { queue_of(self.actions()) } else { None },
        }
    }
}

impl Table {
    /// Reads the file's text; `None` where it is not one.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let cpus: Option<Vec<u32>> = lines
            .next()?
            .split_ascii_whitespace()
            .map(|word| word.strip_prefix("CPU").and_then(|number| number.parse().ok()))
            .collect();
        let cpus = cpus.filter(|cpus| !cpus.is_empty())?;
        let parse = |line: &str| {
            let (label, rest) = line.split_once(':')?;
            let mut rest = rest;
            let mut counts = Vec::with_capacity(cpus.len());
            while counts.len() < cpus.len() {
                rest = rest.trim_start();
                let (word, more) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
                let Ok(count) = word.parse() else { break };
                counts.push(count);
                rest = more;
            }
            // What is not counted for each CPU is a count of mistakes.
            (counts.len() == cpus.len() && !(cpus.len() == 1 && is_mistake(label))).then(|| Line {
                label: label.trim().to_owned(),
                text: rest.split_ascii_whitespace().collect::<Vec<_>>().join(" "),
                counts,
            })
        };
        let lines = lines.filter_map(parse).collect();
        Some(Self { cpus, lines })
    }

    /// Why the counts of two tables cannot be told apart by CPU: one that comes back online brings its old counts along.
    fn comparable(&self, earlier: &Self) -> Result<(), String> {
        if self.cpus == earlier.cpus {
            return Ok(());
        }
        let (then, now) = (earlier.cpus.len(), self.cpus.len());
        Err(format!(
            "CPUs went on or off in the window: {then} were online at its start and {now} at its end"
        ))
    }

    pub(super) fn since(&self, earlier: &Self, owner: &Owner) -> Result<InterruptUse, String> {
        self.comparable(earlier)?;
        let mut before: BTreeMap<&str, &Line> =
            earlier.lines.iter().map(|line| (line.label.as_str(), line)).collect();
        let mut used = InterruptUse::default();
        let (mut others, mut found, mut nic, mut whole) = (Vec::new(), false, 0_u64, true);
        for line in &self.lines {
            let mine = owner.owns(line);
            found |= mine;
            let then = before.remove(line.label.as_str());
            let Some(spread) = line.spread(then) else {
                used.backwards.push(line.label.clone());
                whole &= !mine;
                continue;
            };
            let did = line.used(&spread, &self.cpus, mine);
            used.total = used.total.saturating_add(did.count);
            if line.is_device() {
                used.devices = used.devices.saturating_add(did.count);
            }
            if mine {
                nic = nic.saturating_add(did.count);
                used.nic_lines.push(did);
            } else if did.count > 0 {
                others.push(did);
            }
        }
        // A line that is gone took its count with it.
        for line in before.into_values() {
            whole &= !owner.owns(line);
            used.backwards.push(line.label.clone());
        }
        used.backwards.truncate(MOST_LINES);
        used.nic = (found && whole).then_some(nic);
        used.nic_by = if whole {
            owner.how(found)
        } else {
            "a line of it went away or backwards in the window".to_owned()
        };
        others.sort_by_key(|did| std::cmp::Reverse(did.count));
        let untold =
            others.len().saturating_sub(MOST_LINES) + used.nic_lines.len().saturating_sub(MOST_NIC_LINES);
        used.untold = u32::try_from(untold).unwrap_or(u32::MAX);
        others.truncate(MOST_LINES);
        used.nic_lines.truncate(MOST_NIC_LINES);
        used.lines = others;
        Ok(used)
    }

    /// What was counted in each line on all CPUs; one that went backwards is left out, with its reason under `name`.
    pub(super) fn sums_since(
        &self,
        earlier: &Self,
        name: &str,
        absent: &mut BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, u64>, String> {
        self.comparable(earlier)?;
        let each = self.lines.iter().filter_map(|line| {
            let then = earlier.lines.iter().find(|then| then.label == line.label);
            let Some(spread) = line.spread(then) else {
                absent.insert(format!("{name}.{}", line.label), "it went backwards".to_owned());
                return None;
            };
            Some((line.label.clone(), spread.into_iter().fold(0, u64::saturating_add)))
        });
        Ok(each.collect())
    }
}

/// The difference of two readings of a counter the kernel keeps in 32 bits; `None` where it went backwards otherwise than by
/// beginning again. Half its range is more than a window can count, so a reset never looks like one.
pub(super) fn wrapping(then: u64, now: u64) -> Option<u64> {
    const RANGE: u64 = 1 << 32;
    if now >= then {
        return Some(now - then);
    }
    let counted = now.checked_add(RANGE)?.checked_sub(then)?;
    (then < RANGE && counted < RANGE / 2).then_some(counted)
}

/// On a host with one CPU a count of mistakes looks like every other line.
fn is_mistake(label: &str) -> bool {
    matches!(label.trim().to_ascii_uppercase().as_str(), "ERR" | "MIS")
}

/// The queue in the name of an action: the last number in it, with the direction where that is said.
fn queue_of(actions: &str) -> Option<String> {
    let action = actions.split(", ").next()?;
    // mlx5_comp3@pci:0000:01:00.0: what stands behind the sign is the device.
    let action = action.split('@').next()?;
    let lower = action.to_ascii_lowercase();
    let digits = action.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (name, number) = lower.split_at(lower.len().checked_sub(digits)?);
    let has = |word: &str| name.split(|c: char| !c.is_ascii_alphabetic()).any(|part| part == word);
    // "eth0" ends in a number as well: a queue's number comes behind a separator, or behind a word for queues.
    let separated = name.ends_with(['-', '.', '_', ':']);
    let word = ["queue", "comp", "txrx", "rx", "tx", "input", "output", "q"];
    let worded = word.iter().any(|word| name.ends_with(word));
    let direction = match (has("rx") || has("input"), has("tx") || has("output")) {
        (true, false) => Some("rx"),
        (false, true) => Some("tx"),
        _ => None,
    };
    let number = number.parse::<u32>().ok().filter(|number| *number < MOST_QUEUES && (separated || worded));
    match (direction, number) {
        (Some(direction), Some(number)) => Some(format!("{direction} {number}")),
        (Some(direction), None) => Some(direction.to_owned()),
        (None, number) => number.map(|number| number.to_string()),
    }
}

#[cfg(test)]
mod tests;
