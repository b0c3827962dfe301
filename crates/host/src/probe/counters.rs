//! What the kernel and the CPU count: cycles, instructions, cache misses, context switches, page faults, of the whole host or of
//! one thread.
//!
//! Events are opened in groups. A group is on the CPU's counters as a whole or not at all, so a ratio of two events is honest
//! within a group, and only there. Where there are more events than counters, groups take turns; then the kernel says for how long
//! each was wanted and for how long it ran, and a count is scaled by *that window's* two times and called an estimate. No event
//! stands in for another: what could not be opened is absent with the reason ([`Count::reason`]).
//!
//! ```text
//! open:    groups × (CPUs of the host, or the thread) ─▶ descriptors, all counting from one moment per group
//! read:    one system call per group and CPU ─▶ Snapshot      (never reset)
//! since:   two snapshots ─▶ counts of the window              (pure)
//! ```
//!
//! Of the host, each CPU is scaled by its own times before they are summed. Of a thread on a machine with several kinds of cores
//! there is one event for each kind, each of which runs while the thread is on such a core: counts and running times add up.
//! Kernel: `perf_event_read_group` and `perf_event_update_time` in kernel/events/core.c.

mod cycles;
mod event;

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(super) use self::event::Cores;
use self::event::{HARDWARE, Modes, Places, Resolved, WithoutKernel};
use super::permission::{Asked, Facts};
use crate::sys::{self, PerfAttributes, PerfOf, perf_flag};
use crate::thread::{CpuList, Tid};

pub use self::cycles::{CountsCycles, CycleCounter, Cycles};
pub use self::event::Event;

/// Whose events are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// Of all that runs on this host, from each CPU that is online as they are opened.
    Host,
    /// Of one thread of this process, on whatever CPU it is.
    Thread(Tid),
}

/// Events that count from now until this is dropped.
#[derive(Debug)]
pub struct Counters {
    layout: Arc<Layout>,
    /// As in the layout: of each group its places, and of each place the events there, leader first.
    open: Vec<Vec<Vec<OwnedFd>>>,
}

/// What the numbers of a snapshot are.
#[derive(Debug, PartialEq, Eq)]
struct Layout {
    of: Of,
    /// Another user of the CPU's counters, where there is one.
    watchdog: bool,
    groups: Vec<GroupLayout>,
}

#[derive(Debug, PartialEq, Eq, Default)]
struct GroupLayout {
    members: Vec<Member>,
    places: Vec<PlaceLayout>,
}

#[derive(Debug, PartialEq, Eq)]
struct Member {
    event: String,
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Counting,
    /// With something to be said about what.
    Partly(String),
    Absent(String),
}

#[derive(Debug, PartialEq, Eq)]
struct PlaceLayout {
    place: Place,
    /// Which of the group's members are here, in the order they are read.
    members: Vec<usize>,
}

/// Where a group is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Cpu(u32),
    Thread,
    /// The thread while it is on cores of one kind, by the number of their PMU.
    Cores(u32),
}

/// What was counted up to a moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    layout: Arc<Layout>,
    /// Of each group's places: enabled, running (ns) and the counts; empty where it could not be read.
    words: Vec<Vec<Vec<u64>>>,
}

/// What was counted of one event in a window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// The event as it was counted: with `:u` where only user mode was allowed.
    pub event: String,
    /// Which group it is in: ratios are of one group.
    pub group: u32,
    /// How many; nanoseconds of the clocks. `None` with a reason.
    pub value: Option<u64>,
    /// For how long it was to count: of the host the sum over CPUs, of a thread while that ran.
    pub enabled: Duration,
    /// For how long it did.
    pub running: Duration,
    /// Whether the value was scaled up from a part of the window.
    pub estimate: bool,
    /// Why there is no value, or what to know about it.
    pub reason: Option<String>,
}

impl Count {
    /// The part of the time in which it counted, 0 to 1; 1 where it was never wanted.
    #[must_use]
    pub fn active(&self) -> f64 {
        if self.enabled.is_zero() { 1.0 } else { self.running.as_secs_f64() / self.enabled.as_secs_f64() }
    }
}

impl Counters {
    /// Opens the groups. It never fails as a whole: what cannot be had is absent, and its [`Count`] says why.
    #[must_use]
    pub fn open(groups: &[Vec<Event>], of: Of) -> Self {
        Opening { facts: Facts::host(), places: Places::host(), of, cores: Vec::new(), cpus: Ok(Vec::new()) }
            .open(groups)
    }

    /// What was counted so far. One system call for each group and CPU.
    #[must_use]
    pub fn read(&self) -> Snapshot {
        let read = |place: &Vec<OwnedFd>| {
            let mut words = vec![0; 3 + place.len()];
            let got = place.first().map(|leader| sys::perf_read(leader.as_fd(), &mut words));
            match got {
                Some(Ok(got)) if got == words.len() && words[0] == place.len() as u64 => words.split_off(1),
                _ => Vec::new(),
            }
        };
        let words = self.open.iter().map(|places| places.iter().map(read).collect()).collect();
        Snapshot { layout: Arc::clone(&self.layout), words }
    }

    /// Whether anything is counted at all.
    #[must_use]
    pub fn any(&self) -> bool {
        self.open.iter().any(|places| !places.is_empty())
    }
}

/// The kinds of cores of this host, where there are several.
pub(super) fn kinds_of_cores() -> Vec<Cores> {
    Places::host().cores()
}

struct Opening {
    facts: Facts,
    places: Places,
    of: Of,
    cores: Vec<Cores>,
    cpus: Result<Vec<u32>, String>,
}

/// Events of a place as they are opened.
type Opened = Vec<(Place, OwnedFd)>;

impl Opening {
    fn open(mut self, groups: &[Vec<Event>]) -> Counters {
        self.cores = self.places.cores();
        if self.of == Of::Host {
            self.cpus = CpuList::online().map(|list| list.cpus().to_vec()).map_err(|error| error.to_string());
        }
        let (layouts, open) = groups.iter().map(|group| self.group(group)).unzip();
        let layout = Layout { of: self.of, watchdog: self.facts.watchdog, groups: layouts };
        let counters = Counters { layout: Arc::new(layout), open };
        for leader in counters.open.iter().flatten().filter_map(|place| place.first()) {
            // It does not fail for a descriptor that has just been opened; if it did, it would never run, which is told.
            let _ = sys::perf_enable(leader.as_fd());
        }
        counters
    }

    fn group(&self, events: &[Event]) -> (GroupLayout, Vec<Vec<OwnedFd>>) {
        let mut layout = GroupLayout::default();
        let mut open: Vec<Vec<OwnedFd>> = Vec::new();
        for (index, event) in events.iter().enumerate() {
            let member = match self.event(event, &layout.places, &open) {
                Ok((member, opened)) => {
                    for (place, fd) in opened {
                        if let Some(at) = layout.places.iter().position(|known| known.place == place) {
                            layout.places[at].members.push(index);
                            open[at].push(fd);
                        } else {
                            layout.places.push(PlaceLayout { place, members: vec![index] });
                            open.push(vec![fd]);
                        }
                    }
                    member
                }
                Err(reason) => Member { event: event.name().to_owned(), state: State::Absent(reason) },
            };
            layout.members.push(member);
        }
        (layout, open)
    }

    /// Opens one event in all its places, or in none.
    fn event(
        &self,
        event: &Event,
        places: &[PlaceLayout],
        open: &[Vec<OwnedFd>],
    ) -> Result<(Member, Opened), String> {
        let resolved = event.resolve(&self.places).map_err(|error| error.to_string())?;
        let member = |event: &Event, state| Member { event: event.name().to_owned(), state };
        let refused = match self.everywhere(event, &resolved, places, open) {
            Ok(opened) => return Ok((member(event, State::Counting), opened)),
            Err(refused) => refused,
        };
        let (why, errno) = &refused;
        // An ordinary user may count its own user mode where the kernel's is forbidden. It is another event, by name too.
        let second = *errno == Some(libc::EACCES) && event.modes() == Modes::Any && self.of != Of::Host;
        match event.without_kernel() {
            WithoutKernel::Same if second => {
                let opened = self.everywhere(&event.of_user(), &resolved, places, open);
                opened.map(|opened| (member(event, State::Counting), opened)).map_err(|(why, _)| why)
            }
            WithoutKernel::UserPart if second => {
                let user = event.of_user();
                let opened = self.everywhere(&user, &resolved, places, open).map_err(|(why, _)| why)?;
                Ok((member(&user, State::Partly(format!("of user mode only: {why}"))), opened))
            }
            _ => Err(refused.0),
        }
    }

    fn everywhere(
        &self,
        event: &Event,
        resolved: &Resolved,
        places: &[PlaceLayout],
        open: &[Vec<OwnedFd>],
    ) -> Result<Opened, (String, Option<i32>)> {
        let mut opened = Opened::new();
        for (place, attributes) in self.attributes(event, resolved).map_err(|why| (why, None))? {
            let at = places.iter().position(|known| known.place == place);
            let leader = at.and_then(|at| open[at].first()).map(OwnedFd::as_fd);
            let attributes = PerfAttributes {
                flags: attributes.flags | if leader.is_none() { perf_flag::DISABLED } else { 0 },
                ..attributes
            };
            let of = match (place, self.of) {
                (Place::Cpu(cpu), _) => PerfOf::Cpu(cpu),
                (_, Of::Thread(tid)) => PerfOf::Thread(tid.number()),
                (_, Of::Host) => PerfOf::Thread(0),
            };
            let fd = sys::perf_open(&attributes, of, leader).map_err(|error| {
                let errno = error.raw_os_error();
                let asked = Asked {
                    host: self.of == Of::Host,
                    kernel: event.modes().counts_kernel(),
                    tracepoint: event.is_tracepoint(),
                    cores: event.of_cores(),
                };
                (self.facts.reason(errno, asked), errno)
            })?;
            opened.push((place, fd));
        }
        Ok(opened)
    }

    /// Where an event is to be opened, and as what.
    fn attributes(&self, event: &Event, resolved: &Resolved) -> Result<Vec<(Place, PerfAttributes)>, String> {
        /// `PERF_TYPE_RAW`.
        const RAW: u32 = 4;
        let [config, config1, config2] = resolved.config;
        let flags = match event.modes() {
            Modes::Any => 0,
            Modes::User => perf_flag::EXCLUDE_KERNEL | perf_flag::EXCLUDE_HYPERVISOR,
            Modes::Kernel => perf_flag::EXCLUDE_USER | perf_flag::EXCLUDE_HYPERVISOR,
            Modes::Both => perf_flag::EXCLUDE_HYPERVISOR,
        };
        let base = PerfAttributes {
            kind: resolved.kind,
            config,
            config1,
            config2,
            read_format: FORMAT,
            flags,
            ..PerfAttributes::default()
        };
        let several = event.of_cores() && !self.cores.is_empty();
        if several && resolved.kind == RAW {
            return Err("this machine has several kinds of cores, and a raw code means something else on each: name the PMU, \
                        as cpu_core/event=0x3c/"
                .into());
        }
        // The kernel's way to say which kind is meant, since Linux 5.13: the upper half of the configuration.
        let on = |cores: &Cores| PerfAttributes { config: config | u64::from(cores.kind) << 32, ..base };
        match self.of {
            Of::Host => {
                let online = self.cpus.as_ref().map_err(Clone::clone)?.iter();
                let wanted =
                    online.filter(|cpu| resolved.cpus.as_ref().is_none_or(|mask| mask.cpus().contains(cpu)));
                Ok(wanted
                    .map(|&cpu| {
                        let cores =
                            self.cores.iter().find(|cores| several && cores.cpus.cpus().contains(&cpu));
                        (Place::Cpu(cpu), cores.map_or(base, on))
                    })
                    .collect())
            }
            Of::Thread(_) if several => {
                Ok(self.cores.iter().map(|cores| (Place::Cores(cores.kind), on(cores))).collect())
            }
            // A PMU of one kind of cores, by its name, goes with that kind.
            Of::Thread(_)
                if self.cores.iter().any(|cores| cores.kind == resolved.kind && cores.kind != HARDWARE) =>
            {
                Ok(vec![(Place::Cores(resolved.kind), base)])
            }
            Of::Thread(_) => Ok(vec![(Place::Thread, base)]),
        }
    }
}

/// `PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING | PERF_FORMAT_GROUP`.
const FORMAT: u64 = 1 | 2 | 8;

impl Snapshot {
    /// What was counted between `earlier`, a snapshot of the same counters, and this one: an entry for every event that was
    /// asked for, in that order.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Vec<Count> {
        let mut counts = Vec::new();
        for (number, group) in self.layout.groups.iter().enumerate() {
            for (index, member) in group.members.iter().enumerate() {
                let parts = if Arc::ptr_eq(&earlier.layout, &self.layout) || earlier.layout == self.layout {
                    parts(group, index, &earlier.words[number], &self.words[number])
                } else {
                    Err("the snapshots are of different counters".into())
                };
                let group = u32::try_from(number).unwrap_or(u32::MAX);
                counts.push(count(member, group, parts, self.layout.of, self.layout.watchdog));
            }
        }
        counts
    }
}

/// One event in one place, in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    place: Place,
    enabled: u64,
    running: u64,
    value: u64,
}

fn parts(
    group: &GroupLayout,
    member: usize,
    earlier: &[Vec<u64>],
    later: &[Vec<u64>],
) -> Result<Vec<Part>, String> {
    let mut found = Vec::new();
    for (layout, (then, now)) in group.places.iter().zip(earlier.iter().zip(later)) {
        let Some(at) = layout.members.iter().position(|&here| here == member) else { continue };
        let difference = |word: usize| Some(now.get(word)?.saturating_sub(*then.get(word)?));
        let part = (|| {
            let (enabled, running) = (difference(0)?, difference(1)?);
            Some(Part { place: layout.place, enabled, running, value: difference(2 + at)? })
        })();
        found.push(part.ok_or_else(|| match layout.place {
            Place::Cpu(cpu) => format!("the counter of CPU {cpu} could not be read"),
            _ => "the counter could not be read".into(),
        })?);
    }
    Ok(found)
}

/// Below this part of the time an estimate is called a rough one: what ran in the other half may be quite different.
const ROUGH: f64 = 0.5;

fn count(member: &Member, group: u32, parts: Result<Vec<Part>, String>, of: Of, watchdog: bool) -> Count {
    let absent = |reason: String, enabled, running| Count {
        event: member.event.clone(),
        group,
        value: None,
        enabled: Duration::from_nanos(enabled),
        running: Duration::from_nanos(running),
        estimate: false,
        reason: Some(reason),
    };
    if let State::Absent(reason) = &member.state {
        return absent(reason.clone(), 0, 0);
    }
    let parts = match parts {
        Ok(parts) if parts.is_empty() => return absent("it counts on no CPU that is online".into(), 0, 0),
        Ok(parts) => parts,
        Err(reason) => return absent(reason, 0, 0),
    };
    let sum = |of: fn(&Part) -> u64| parts.iter().map(of).fold(0, u64::saturating_add);
    let running = sum(|part| part.running);
    let (enabled, value) = match of {
        Of::Host => {
            let never = parts.iter().find(|part| part.enabled > 0 && part.running == 0);
            let scaled = parts.iter().map(|part| scale(part.value, part.enabled, part.running));
            (
                sum(|part| part.enabled),
                never.map_or_else(|| Ok(scaled.fold(0, u64::saturating_add)), |part| Err(part.place)),
            )
        }
        Of::Thread(_) => {
            let enabled = parts.iter().map(|part| part.enabled).max().unwrap_or(0);
            let value = scale(sum(|part| part.value), enabled, running);
            (enabled, if enabled > 0 && running == 0 { Err(Place::Thread) } else { Ok(value) })
        }
    };
    let others = if watchdog { " (kernel.nmi_watchdog = 1 holds one of them)" } else { "" };
    let value = match value {
        Ok(value) => value,
        Err(place) => {
            let on = if let Place::Cpu(cpu) = place { format!(" on CPU {cpu}") } else { String::new() };
            let reason = format!("it never got a counter{on}: others had them all the time{others}");
            return absent(reason, enabled, running);
        }
    };
    let estimate = running < enabled;
    let active = if enabled == 0 { 1.0 } else { running as f64 / enabled as f64 };
    let mut said: Vec<String> = Vec::new();
    if let State::Partly(what) = &member.state {
        said.push(what.clone());
    }
    if estimate {
        let rough = if active < ROUGH { "a rough estimate" } else { "an estimate" };
        said.push(format!(
            "{rough}: it counted {:.1} % of the time, in turns with others{others}",
            active * 100.0
        ));
    }
    Count {
        event: member.event.clone(),
        group,
        value: Some(value),
        enabled: Duration::from_nanos(enabled),
        running: Duration::from_nanos(running),
        estimate,
        reason: (!said.is_empty()).then(|| said.join("; ")),
    }
}

/// A count of `running` as it would be of `enabled`.
fn scale(value: u64, enabled: u64, running: u64) -> u64 {
    if running == 0 || running >= enabled {
        return value;
    }
    let scaled = u128::from(value) * u128::from(enabled) / u128::from(running);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
