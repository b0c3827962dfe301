//! Adding up samples, and giving them names afterwards.
//!
//! While the window is open equal samples are counted, by process, address and callers; that is all. Afterwards each distinct address
//! is looked up once ([`Names`], the seam to the host), symbols and stacks of one name are put together, and the longest lists
//! are cut, with what was cut counted.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::time::Duration;

use super::class::{self, Class};
use super::record::{self, Record, Sample, Space};
use super::{ClassCost, Context, Profile, SymbolCost, Unit};
use crate::probe::permission::Narrowed;
use crate::probe::symbols::Found;
use crate::probe::symbols::kernel::{KERNEL, KernelSymbols};
use crate::probe::symbols::user::{self, UserSymbols};
use crate::thread::Tid;

/// Distinct addresses and distinct stacks that are kept apart: of a busy host some thousand are seen.
const MOST_ADDRESSES: usize = 1 << 16;
const MOST_STACKS: usize = 1 << 14;

/// Names of processes that are kept: a build of a large project starts some thousand in a window.
const MOST_NAMED: usize = 1 << 14;

/// Threads that are told apart: more workers than that are one crowd.
const MOST_THREADS: usize = 256;

/// A sum of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Weight {
    samples: u64,
    amount: u64,
}

impl Weight {
    fn add(&mut self, other: Self) {
        self.samples += other.samples;
        self.amount = self.amount.saturating_add(other.amount);
    }
}

/// Where samples were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Leaf {
    pid: u32,
    tid: u32,
    space: Space,
    ip: u64,
}

/// The samples of a window so far.
#[derive(Debug)]
pub(super) struct Tally {
    own: u32,
    chains: bool,
    all: Weight,
    lost: u64,
    throttled: u64,
    malformed: u64,
    outside: u64,
    /// Without callers.
    leaves: HashMap<Leaf, Weight>,
    /// With the words of the call chain.
    stacks: HashMap<(Leaf, Box<[u64]>), Weight>,
    /// What found no room in either.
    homeless: Weight,
    /// Names of processes that began while it was sampled: they may have ended before they are looked up.
    named: HashMap<u32, String>,
}

/// What a profile says of itself before any sample.
#[derive(Debug, Clone)]
pub(super) struct Header {
    pub(super) event: String,
    pub(super) unit: Unit,
    pub(super) hz: u32,
    pub(super) cpus: u32,
    pub(super) window: Duration,
    pub(super) notes: Vec<String>,
    pub(super) narrowed: Option<Narrowed>,
}

impl Tally {
    pub(super) fn new(own: u32, chains: bool) -> Self {
        Self {
            own,
            chains,
            all: Weight::default(),
            lost: 0,
            throttled: 0,
            malformed: 0,
            outside: 0,
            leaves: HashMap::new(),
            stacks: HashMap::new(),
            homeless: Weight::default(),
            named: HashMap::new(),
        }
    }

    /// An empty one of the same kind.
    pub(super) fn anew(&self) -> Self {
        Self::new(self.own, self.chains)
    }

    pub(super) fn samples(&self) -> u64 {
        self.all.samples
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    pub(super) fn malformed(&self) -> u64 {
        self.malformed
    }

    pub(super) fn outside(&self) -> u64 {
        self.outside
    }

    /// Takes the records of a ring, of which those of the window count. Its end may be unknown yet (`u64::MAX`): what is taken before
    /// it is known has happened before it.
    pub(super) fn take(&mut self, bytes: &[u8], window: &Range<u64>) {
        for record in record::decode(bytes, self.chains) {
            match record {
                Record::Sample(sample) if window.contains(&sample.time) => self.sample(&sample),
                Record::Sample(_) => self.outside += 1,
                // The kernel tells of a loss with the next record that finds room, which may be after the window.
                Record::Lost { count, time } if time.is_none_or(|time| time >= window.start) => {
                    self.lost += count;
                }
                Record::Throttled { time } if window.contains(&time) => self.throttled += 1,
                // Of a thread beside the first it is no name of the process. The last one counts: a shell becomes its command.
                Record::Named { pid, tid, name } if pid == tid && !name.is_empty() => {
                    if self.named.len() < MOST_NAMED || self.named.contains_key(&pid) {
                        self.named.insert(pid, String::from_utf8_lossy(name).into_owned());
                    }
                }
                Record::Named { .. }
                | Record::Lost { .. }
                | Record::Throttled { .. }
                | Record::Unknown(_) => {}
                Record::Malformed(_) | Record::Torn(_) => self.malformed += 1,
            }
        }
    }

    fn sample(&mut self, sample: &Sample<'_>) {
        let one = Weight { samples: 1, amount: sample.period };
        self.all.add(one);
        let leaf = Leaf { pid: sample.pid, tid: sample.tid, space: sample.space, ip: sample.ip };
        if self.chains {
            let words: Box<[u64]> = sample.chain.words().collect();
            let key = (leaf, words);
            if let Some(known) = self.stacks.get_mut(&key) {
                return known.add(one);
            }
            if self.stacks.len() < MOST_STACKS {
                self.stacks.insert(key, one);
                return;
            }
        }
        if let Some(known) = self.leaves.get_mut(&leaf) {
            known.add(one);
        } else if self.leaves.len() < MOST_ADDRESSES {
            self.leaves.insert(leaf, one);
        } else {
            self.homeless.add(one);
        }
    }

    /// The profile, with names.
    pub(super) fn profile(self, header: Header, names: &mut Names) -> Profile {
        let looked_up = self.look_up(names);
        let mut sums = Sums { threads: self.busiest(), ..Sums::default() };
        for (leaf, weight) in &self.leaves {
            sums.leaf(leaf, *weight, Self::context(*leaf), &looked_up, self.own, &names.drivers);
        }
        for ((leaf, words), weight) in &self.stacks {
            let context = interrupted(*leaf, words, &looked_up).unwrap_or_else(|| Self::context(*leaf));
            if sums.leaf(leaf, *weight, context, &looked_up, self.own, &names.drivers) {
                let folded = folded(*leaf, words, &looked_up, names, &self.named);
                *sums.stacks.entry(folded).or_default() += weight.samples;
            }
        }
        let mut notes = header.notes;
        notes.extend(names.notes(&looked_up, self.chains));
        if self.homeless.samples > 0 {
            notes.push(format!(
                "{} samples were of more addresses than are kept apart",
                self.homeless.samples
            ));
        }
        let (symbols, other) = sums.symbols();
        let busy: u64 = sums.stacks.values().sum();
        let stacks = sums.stacks();
        let listed: u64 = stacks.iter().map(|(_, samples)| samples).sum();
        let without_stack: u64 =
            if self.chains { self.leaves.values().map(|weight| weight.samples).sum() } else { 0 };
        Profile {
            event: header.event,
            unit: header.unit,
            hz: header.hz,
            cpus: header.cpus,
            window: header.window,
            samples: self.all.samples,
            amount: self.all.amount,
            lost: self.lost,
            throttled: self.throttled,
            malformed: self.malformed,
            unresolved: sums.unresolved,
            idle: sums.idle,
            other: other + self.homeless.samples,
            symbols,
            classes: sums.classes(),
            other_stacks: busy - listed + without_stack,
            stacks,
            build_ids: names.build_ids(),
            host_reason: header.narrowed.as_ref().map(|it| it.host_reason.clone()),
            kernel_reason: header.narrowed.and_then(|it| it.kernel_reason),
            notes,
        }
    }

    /// The threads that are told apart: those with the most samples. The idle tasks of all CPUs are one.
    fn busiest(&self) -> BTreeSet<u32> {
        let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
        let stacks = self.stacks.iter().map(|((leaf, _), weight)| (leaf, weight));
        for (leaf, weight) in self.leaves.iter().chain(stacks).filter(|(leaf, _)| leaf.tid != 0) {
            *sums.entry(leaf.tid).or_default() += weight.samples;
        }
        let mut sums: Vec<(u32, u64)> = sums.into_iter().collect();
        sums.sort_by_key(|(tid, samples)| (std::cmp::Reverse(*samples), *tid));
        sums.into_iter().take(MOST_THREADS).map(|(tid, _)| tid).collect()
    }

    fn context(leaf: Leaf) -> Context {
        if leaf.space == Space::User { Context::User } else { Context::Kernel }
    }

    /// Every distinct address, once.
    fn look_up(&self, names: &mut Names) -> LookedUp {
        let mut kernel: BTreeSet<u64> = BTreeSet::new();
        let mut users: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
        let leaves = self.leaves.keys().chain(self.stacks.keys().map(|(leaf, _)| leaf));
        for leaf in leaves {
            match leaf.space {
                Space::Kernel => drop(kernel.insert(leaf.ip)),
                Space::User => drop(users.entry(leaf.pid).or_default().insert(leaf.ip)),
                Space::Elsewhere => {}
            }
        }
        for (leaf, words) in self.stacks.keys() {
            for (space, ip) in callers(*leaf, words) {
                match space {
                    Space::Kernel => drop(kernel.insert(ip)),
                    Space::User => drop(users.entry(leaf.pid).or_default().insert(ip)),
                    Space::Elsewhere => {}
                }
            }
        }
        let mut found = LookedUp::default();
        for ip in kernel {
            if let Some(name) = names.kernel(ip) {
                found.kernel.insert(ip, name);
            }
        }
        for (pid, ips) in users {
            let ips: Vec<u64> = ips.into_iter().collect();
            found.commands.insert(pid, names.command(pid, &self.named));
            for (ip, name) in ips.iter().zip(names.user(pid, &ips)) {
                if let Some(name) = name {
                    found.users.insert((pid, *ip), name);
                }
            }
        }
        found
    }
}

/// The callers of a sample, innermost first, without the place itself. A return address is behind the call, and the call may be the
/// last instruction of its function, so the address before it is taken.
fn callers(leaf: Leaf, words: &[u64]) -> impl Iterator<Item = (Space, u64)> {
    let mut first = true;
    let mut before = Space::Elsewhere;
    record::frames(words.iter().copied()).filter_map(move |(space, ip)| {
        let entered = std::mem::replace(&mut before, space) != space;
        if std::mem::take(&mut first) && space == leaf.space {
            return None;
        }
        // Where user mode entered the kernel the address is that of the program, not of a call.
        Some((space, if entered { ip } else { ip.wrapping_sub(1) }))
    })
}

/// What interrupted what, by the innermost entry among the place itself and its callers in the kernel.
fn interrupted(leaf: Leaf, words: &[u64], names: &LookedUp) -> Option<Context> {
    let own = (leaf.space, leaf.ip);
    std::iter::once(own)
        .chain(callers(leaf, words))
        .take_while(|(space, _)| *space == Space::Kernel)
        .find_map(|(_, ip)| class::interruption(names.kernel.get(&ip)?.symbol.as_deref()?))
}

fn folded(
    leaf: Leaf,
    words: &[u64],
    found: &LookedUp,
    names: &Names,
    begun: &HashMap<u32, String>,
) -> String {
    let mut frames: Vec<String> =
        callers(leaf, words).map(|(space, ip)| frame(leaf.pid, space, ip, found)).collect();
    frames.insert(0, frame(leaf.pid, leaf.space, leaf.ip, found));
    let command = found.commands.get(&leaf.pid).cloned().unwrap_or_else(|| names.command(leaf.pid, begun));
    frames.push(clean(&command));
    frames.reverse();
    frames.join(";")
}

fn frame(pid: u32, space: Space, ip: u64, found: &LookedUp) -> String {
    let name = found.name(pid, space, ip);
    let symbol =
        name.symbol.as_deref().map_or_else(|| format!("[{}]", name.module.trim_matches(['[', ']'])), clean);
    if space == Space::Kernel { format!("{symbol}_[k]") } else { symbol }
}

/// As a frame: what separates frames and lines is not in it.
fn clean(name: &str) -> String {
    shortened(name, LONGEST_FRAME).replace([';', '\n'], ":")
}

/// Names of templates and closures grow to thousands of characters, of which nobody reads the end.
const LONGEST_NAME: usize = 200;
const LONGEST_FRAME: usize = 100;

fn shortened(name: &str, most: usize) -> String {
    match name.char_indices().nth(most) {
        None => name.to_owned(),
        Some((end, _)) => format!("{}…", &name[..end]),
    }
}

/// Names by address.
#[derive(Debug, Default)]
struct LookedUp {
    kernel: HashMap<u64, Found>,
    users: HashMap<(u32, u64), Found>,
    commands: HashMap<u32, String>,
}

impl LookedUp {
    fn name(&self, pid: u32, space: Space, ip: u64) -> Found {
        let found = match space {
            Space::Kernel => self.kernel.get(&ip),
            Space::User => self.users.get(&(pid, ip)),
            Space::Elsewhere => None,
        };
        let module = || match space {
            Space::Kernel => KERNEL.to_owned(),
            Space::User => self.commands.get(&pid).map_or_else(|| "[unknown]".to_owned(), Clone::clone),
            Space::Elsewhere => "[hypervisor]".to_owned(),
        };
        found.cloned().unwrap_or_else(|| Found { symbol: None, module: module() })
    }
}

/// A process that has ended, in tests.
#[cfg(test)]
const GONE: u32 = 404;

/// Where names come from.
#[derive(Debug)]
pub(super) struct Names {
    kernel: Result<KernelSymbols, String>,
    /// The kernel's modules and where they are, as its names were read.
    modules: String,
    users: Users,
    drivers: BTreeSet<String>,
    gone: BTreeSet<u32>,
}

#[derive(Debug)]
enum Users {
    Host(Box<UserSymbols>),
    #[cfg(test)]
    Fixed(BTreeMap<u64, &'static str>),
}

impl Names {
    pub(super) fn host() -> Self {
        Self {
            modules: modules(),
            kernel: KernelSymbols::host(),
            users: Users::Host(Box::new(UserSymbols::new())),
            drivers: class::nic_modules(),
            gone: BTreeSet::new(),
        }
    }

    /// Forgets what may no longer hold: mappings of processes, and the kernel's names where its modules are others. Reading
    /// the list of modules takes some ten microseconds, reading the names a tenth of a second.
    pub(super) fn refresh(&mut self) {
        let modules = modules();
        if modules != self.modules {
            self.kernel = KernelSymbols::host();
            self.drivers = class::nic_modules();
            self.modules = modules;
        }
        self.gone.clear();
        match &mut self.users {
            Users::Host(users) => users.refresh(),
            #[cfg(test)]
            Users::Fixed(_) => {}
        }
    }

    fn kernel(&self, ip: u64) -> Option<Found> {
        self.kernel.as_ref().ok()?.find(ip)
    }

    fn user(&mut self, pid: u32, ips: &[u64]) -> Vec<Option<Found>> {
        match &mut self.users {
            Users::Host(users) => {
                if !users.knows(pid) {
                    self.gone.insert(pid);
                }
                users.find(pid, ips)
            }
            #[cfg(test)]
            Users::Fixed(names) => {
                let found = |name: &&str| Found { symbol: Some((*name).to_owned()), module: "prog".into() };
                ips.iter().map(|ip| names.get(ip).map(found)).collect()
            }
        }
    }

    /// The name of a process: as it is called now, or as it was called by the kernel as it began.
    fn command(&self, pid: u32, begun: &HashMap<u32, String>) -> String {
        let ended = || begun.get(&pid).cloned().unwrap_or_else(|| "[ended]".to_owned());
        match (&self.users, pid) {
            (_, 0) => "swapper".to_owned(),
            (Users::Host(_), pid) => user::command(pid).unwrap_or_else(ended),
            #[cfg(test)]
            (Users::Fixed(_), GONE) => ended(),
            #[cfg(test)]
            (Users::Fixed(_), pid) => format!("prog-{pid}"),
        }
    }

    fn build_ids(&self) -> BTreeMap<String, String> {
        match &self.users {
            Users::Host(users) => {
                let kernel = user::kernel_build_id().map(|id| (KERNEL.to_owned(), id));
                users.build_ids.iter().map(|(path, id)| (path.clone(), id.clone())).chain(kernel).collect()
            }
            #[cfg(test)]
            Users::Fixed(_) => BTreeMap::new(),
        }
    }

    fn notes(&self, found: &LookedUp, chains: bool) -> Vec<String> {
        let mut notes = Vec::new();
        if let Err(reason) = &self.kernel {
            notes.push(format!("the kernel's time is one line, and idle is part of it: {reason}"));
        }
        if !self.gone.is_empty() {
            notes.push(format!(
                "{} processes had ended, or may not be looked at: their addresses have no names",
                self.gone.len()
            ));
        }
        if chains && !found.users.is_empty() {
            notes.push(
                "callers in user mode are followed by frame pointers, which many programs are built without"
                    .to_owned(),
            );
        }
        notes
    }
}

/// The kernel's modules with their addresses, without how often each is used, which changes with every socket.
fn modules() -> String {
    let text = std::fs::read_to_string("/proc/modules").unwrap_or_default();
    let line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let name = words.next().unwrap_or_default().to_owned();
        format!("{name} {}\n", words.nth(4).unwrap_or_default())
    };
    text.lines().map(line).collect()
}

type SymbolKey = (String, String, Class, Context, bool, Option<u32>);

/// Samples by name.
#[derive(Debug, Default)]
struct Sums {
    threads: BTreeSet<u32>,
    symbols: BTreeMap<SymbolKey, Weight>,
    classes: BTreeMap<Class, Weight>,
    stacks: BTreeMap<String, u64>,
    unresolved: u64,
    idle: u64,
}

impl Sums {
    /// False for idle, which has no place among the others.
    fn leaf(
        &mut self,
        leaf: &Leaf,
        weight: Weight,
        context: Context,
        found: &LookedUp,
        own: u32,
        drivers: &BTreeSet<String>,
    ) -> bool {
        let name = found.name(leaf.pid, leaf.space, leaf.ip);
        let class = match (leaf.space, &name.symbol) {
            (Space::User, _) => Class::User,
            (Space::Kernel, Some(symbol)) => class::of_kernel(symbol, &name.module, drivers),
            _ => Class::Other,
        };
        // Only the idle task is idle: a driver of CPU sleep states may also be called by others. Interrupts of an idle CPU are work.
        if class == Class::Idle && leaf.pid == 0 && context == Context::Kernel {
            self.idle += weight.samples;
            return false;
        }
        if name.symbol.is_none() {
            self.unresolved += weight.samples;
        }
        self.classes.entry(class).or_default().add(weight);
        let symbol =
            name.symbol.map_or_else(|| "[unknown]".to_owned(), |symbol| shortened(&symbol, LONGEST_NAME));
        let thread = self.threads.get(&leaf.tid).copied();
        let key = (symbol, name.module, class, context, leaf.pid == own, thread);
        self.symbols.entry(key).or_default().add(weight);
        true
    }

    fn symbols(&mut self) -> (Vec<SymbolCost>, u64) {
        let mut all: Vec<(SymbolKey, Weight)> = std::mem::take(&mut self.symbols).into_iter().collect();
        all.sort_by_key(|(_, weight)| std::cmp::Reverse((weight.samples, weight.amount)));
        let rest = all.split_off(all.len().min(Profile::MOST_SYMBOLS));
        let cost =
            |((symbol, module, class, context, own, thread), weight): (SymbolKey, Weight)| SymbolCost {
                symbol,
                module,
                class,
                context,
                own,
                thread: thread.map(Tid::of_sample),
                samples: weight.samples,
                amount: weight.amount,
            };
        (all.into_iter().map(cost).collect(), rest.iter().map(|(_, weight)| weight.samples).sum())
    }

    fn classes(&self) -> Vec<ClassCost> {
        let mut all: Vec<ClassCost> = self
            .classes
            .iter()
            .map(|(&class, weight)| ClassCost { class, samples: weight.samples, amount: weight.amount })
            .collect();
        all.sort_by_key(|cost| std::cmp::Reverse((cost.samples, cost.amount)));
        all
    }

    fn stacks(&mut self) -> Vec<(String, u64)> {
        let mut all: Vec<(String, u64)> = std::mem::take(&mut self.stacks).into_iter().collect();
        all.sort_by_key(|(_, samples)| std::cmp::Reverse(*samples));
        all.truncate(Profile::MOST_STACKS);
        all
    }
}

#[cfg(test)]
mod tests;
