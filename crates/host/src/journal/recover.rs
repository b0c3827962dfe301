//! Puts back what a dead haul left changed.
//!
//! The difficulty is to find the device again, and to touch no other one. A network namespace is found by the inode
//! number it shows in `/proc`, wherever something keeps it alive (this thread, a mount, a thread, an open file), and
//! confirmed by its cookie, since inode numbers are given out again. In it, the device is that with the same index and
//! hardware address. What is not certain is left alone and said.

use std::cmp::Reverse;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{
    Alive, BTreeMap, Before, Desk, Device, Entry, Owner, Story, boot_id, journals_in, note_tried,
    pid_namespace, remove,
};
use crate::error::{HostError, Result};
use crate::link::{self, Link};
use crate::netns::{Netns, NetnsId};
use crate::settings::{Access, Item, OnStep, Scope, Step};

/// What became of one journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Recovery {
    /// The file.
    pub journal: PathBuf,
    /// Whose it was, and about what.
    pub what: String,
    /// What was done.
    pub outcome: Outcome,
}

/// What recovery did with a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Everything is wanted again that was wanted before. The journal is gone.
    Restored {
        /// What had to be changed back; nothing where the process died before its change.
        changed: Vec<Item>,
        /// What is asked for as before and yet not in force as before, because something else changed since.
        unlike: Vec<Item>,
    },
    /// There is nothing to put back. The journal is gone.
    Unneeded {
        /// Why.
        reason: String,
    },
    /// Not everything could be put back. The journal is kept.
    Kept {
        /// What is not as it was; empty where that could not be found out.
        items: Vec<Item>,
        /// What went wrong, and what to do.
        problem: String,
    },
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { journal, what, outcome } = self;
        match outcome {
            Outcome::Restored { changed, unlike } => {
                let changed =
                    if changed.is_empty() { "nothing had changed".to_owned() } else { joined(changed) };
                write!(f, "{what}: put back ({changed})")?;
                if unlike.is_empty() {
                    Ok(())
                } else {
                    write!(f, "; still not as before: {}", joined(unlike))
                }
            }
            Outcome::Unneeded { reason } => write!(f, "{what}: nothing to put back: {reason}"),
            Outcome::Kept { problem, .. } => {
                write!(f, "{what}: not put back: {problem} (journal {})", journal.display())
            }
        }
    }
}

/// Which journals are to be acted upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Those of hauls that died.
    Dead,
    /// Those, and those of changes that were made to stay.
    Kept,
}

/// Puts back what the journals of dead hauls in `directory` tell of; journals of running ones are left alone.
///
/// The error is about the directory as a whole; what one journal suffers is in its [`Recovery`].
pub fn recover(directory: &Path, which: Which) -> Result<Vec<Recovery>> {
    recover_step_by_step(directory, which, &mut |_| {})
}

/// As [`recover`], telling of each step as it has been done.
pub fn recover_step_by_step(directory: &Path, which: Which, on_step: OnStep<'_>) -> Result<Vec<Recovery>> {
    if journals_in(directory)?.is_empty() {
        return Ok(Vec::new());
    }
    let desk = Desk::take(directory)?;
    let mut recoveries = Vec::new();
    // The last change first: of two to one thing, the earlier one knows what was there before both. No lock is kept over this
    // look, because a journal whose lock is held is one of a haul that runs.
    let began = |path: &PathBuf| Some(Entry::read(path).ok()??.story.owner?.began);
    let mut journals = journals_in(directory)?;
    journals.sort_by_cached_key(|path| Reverse(began(path)));
    for journal in journals {
        let (what, outcome) = match Entry::read(&journal) {
            Ok(None | Some(Entry { lock: None, .. })) => continue,
            Ok(Some(Entry { story, lock: Some(_lock) })) => {
                if story.kept && which == Which::Dead && !of_another_boot(&story) {
                    continue;
                }
                match held_by_another(&desk, &story, &journal) {
                    Some(held) => held,
                    None => conclude(&journal, &story, which, on_step),
                }
            }
            Err(error) => {
                let problem = error.to_string();
                (
                    "a journal that is not to be trusted".to_owned(),
                    Outcome::Kept { items: Vec::new(), problem },
                )
            }
        };
        recoveries.push(Recovery { journal, what, outcome });
    }
    Ok(recoveries)
}

fn of_another_boot(story: &Story) -> bool {
    story.owner.as_ref().is_some_and(|owner| boot_id().is_ok_and(|boot| boot != owner.boot_id))
}

/// What was made to stay is not put back under the feet of a haul that measures with it.
fn held_by_another(desk: &Desk, story: &Story, journal: &Path) -> Option<(String, Outcome)> {
    let owner = story.owner.as_ref().filter(|_| story.kept && !of_another_boot(story))?;
    let host = story.holds.keys().any(Item::is_shared);
    let problem = desk.refuse_if_held(owner, Some(journal), host, Alive::Only).err()?.to_string();
    let what = format!("settings made to stay on {}", owner.device.name);
    Some((what, Outcome::Kept { items: story.holds.keys().cloned().collect(), problem }))
}

/// Acts on one journal whose owner is dead, and removes it where all is well.
fn conclude(journal: &Path, story: &Story, which: Which, on_step: OnStep<'_>) -> (String, Outcome) {
    let what = match &story.owner {
        Some(owner) if story.kept => format!("settings made to stay on {}", owner.device.name),
        Some(owner) => format!("process {} on {}", owner.pid, owner.device.name),
        None => "an unknown haul".to_owned(),
    };
    let outcome = match (&story.owner, &story.damage) {
        (Some(_), _) if of_another_boot(story) => {
            Outcome::Unneeded { reason: "the machine has booted since".to_owned() }
        }
        (_, Some(damage)) => {
            let problem = format!("{damage}; look at the file, set the device by hand, then remove the file");
            Outcome::Kept { items: story.holds.keys().cloned().collect(), problem }
        }
        (Some(owner), None) if story.holds.keys().any(Item::is_command) => {
            commanded(journal, owner, story, which, on_step)
        }
        (Some(owner), None) => settle(owner, &story.holds, None, on_step),
        (None, None) => Outcome::Unneeded { reason: "it ended before it could change anything".to_owned() },
    };
    match outcome {
        Outcome::Kept { .. } => (what, outcome),
        done => match remove(journal) {
            Ok(()) => {
                on_step(&Step::Removed);
                (what, done)
            }
            Err(error) => (what, Outcome::Kept { items: Vec::new(), problem: error.to_string() }),
        },
    }
}

/// How often commands are tried unasked: a kill from outside may come at any moment, and one try is none then.
const TRIES: u32 = 3;

/// As [`settle`], where a command of the user's is run. One that ended the process that ran it is not run again unasked.
fn commanded(journal: &Path, owner: &Owner, story: &Story, which: Which, on_step: OnStep<'_>) -> Outcome {
    let items = || story.holds.keys().cloned().collect();
    if story.tried >= TRIES && which == Which::Dead {
        let commands = story.holds.keys().filter(|item| item.is_command()).cloned().collect::<Vec<_>>();
        let problem = format!(
            "{} hauls that tried did not come back from its commands ({}): run `haul settings restore` to try again, \
             or put it back by hand and remove the file",
            story.tried,
            joined(&commands)
        );
        return Outcome::Kept { items: items(), problem };
    }
    match note_tried(journal) {
        Ok(()) => settle(owner, &story.holds, None, on_step),
        Err(error) => Outcome::Kept { items: items(), problem: error.to_string() },
    }
}

/// Puts back what is in `holds`, changed during this boot: what is the device's, what is its network namespace's, and what is
/// the host's, each as far as its place still exists. `place` is the ways to them, where the caller has them already.
pub(crate) fn settle(
    owner: &Owner,
    holds: &BTreeMap<Item, Before>,
    place: Option<&mut Access>,
    on_step: OnStep<'_>,
) -> Outcome {
    if holds.is_empty() {
        return Outcome::Unneeded { reason: "nothing was changed, or all is back already".to_owned() };
    }
    match try_settle(owner, holds, place, on_step) {
        Ok(outcome) => outcome,
        Err(error) => Outcome::Kept { items: holds.keys().cloned().collect(), problem: error.to_string() },
    }
}

fn try_settle(
    owner: &Owner,
    holds: &BTreeMap<Item, Before>,
    place: Option<&mut Access>,
    on_step: OnStep<'_>,
) -> Result<Outcome> {
    let found = find_device(owner, place.as_ref().map(|access| access.netns.clone()))?;
    let mut own = None;
    let access = if let Some(access) = place {
        access
    } else {
        let netns = match &found {
            Search::Found(netns, _) | Search::Bare(netns, _) | Search::Unsure(Some(netns), _) => {
                netns.clone()
            }
            Search::Nowhere(_) | Search::Unsure(None, _) => Netns::current()?,
        };
        let access = own.insert(Access::open(netns, owner.roots.clone())?);
        access.take_over(holds.keys().cloned());
        access
    };
    if holds.keys().any(|item| item.scope() == Scope::Host) && access.home.id() != owner.home {
        access.home = find_namespace(owner.home, &Netns::current()?)?.ok_or_else(|| HostError::NotFound {
            what: "the network namespace that haul was started in, where the whole host's settings are"
                .to_owned(),
            hint: None,
        })?;
    }
    if let Search::Found(_, link) = &found {
        access.is_called_now(&owner.device.name, &link.name);
    }
    let (link, widest_lost, reason) = match &found {
        Search::Found(_, link) => (Some(link), None, String::new()),
        Search::Bare(_, reason) => (None, Some(Scope::Device), reason.clone()),
        Search::Nowhere(reason) => (None, Some(Scope::Namespace), reason.clone()),
        Search::Unsure(Some(_), problem) => (None, Some(Scope::Device), problem.clone()),
        Search::Unsure(None, problem) => (None, Some(Scope::Namespace), problem.clone()),
    };
    let there = holds.iter().filter(|(item, _)| widest_lost.is_none_or(|lost| item.scope() > lost));
    let there: BTreeMap<Item, Before> = there.map(|(item, before)| (item.clone(), before.clone())).collect();
    let outcome = if there.is_empty() {
        Outcome::Unneeded { reason: reason.clone() }
    } else {
        put_back(access, link, &there, on_step)?
    };
    let unsure = matches!(found, Search::Unsure(..)) && there.len() < holds.len();
    Ok(match outcome {
        Outcome::Kept { .. } => outcome,
        _ if unsure => {
            let items = holds.keys().filter(|item| !there.contains_key(item)).cloned().collect();
            Outcome::Kept { items, problem: reason }
        }
        outcome => outcome,
    })
}

/// The states of `holds` now, as far as they can be read.
pub(super) fn present(owner: &Owner, holds: &BTreeMap<Item, Before>) -> BTreeMap<Item, String> {
    let read = || -> Result<BTreeMap<Item, Before>> {
        let (netns, link) = match find_device(owner, None)? {
            Search::Found(netns, link) => (netns, Some(link)),
            Search::Bare(netns, _) | Search::Unsure(Some(netns), _) => (netns, None),
            Search::Nowhere(_) | Search::Unsure(None, _) => (Netns::current()?, None),
        };
        let mut access = Access::open(netns, owner.roots.clone())?;
        access.take_over(holds.keys().cloned());
        let there = holds.iter().filter(|(item, _)| link.is_some() || item.scope() == Scope::Host);
        let there = there.map(|(item, before)| (item.clone(), before.clone())).collect();
        states(&mut access, link.as_ref(), &there, &mut Vec::new())
    };
    let states = read().unwrap_or_default();
    holds
        .keys()
        .filter_map(|item| {
            let state = &states.get(item)?.wanted;
            Some((item.clone(), state.split('\t').next().unwrap_or_default().to_owned()))
        })
        .collect()
}

/// Asks for what was asked for before, last things first, and reads back.
fn put_back(
    access: &mut Access,
    link: Option<&Link>,
    holds: &BTreeMap<Item, Before>,
    on_step: OnStep<'_>,
) -> Result<Outcome> {
    let mut gone = Vec::new();
    let now = states(access, link, holds, &mut gone)?;
    let to_ask: BTreeMap<Item, String> = holds
        .iter()
        .filter(|(item, before)| {
            now.get(item).is_some_and(|now| !access.is(item, &now.wanted, &before.wanted))
        })
        .map(|(item, before)| (item.clone(), before.wanted.clone()))
        .collect();
    let mut said = Vec::new();
    // What the kernel refuses shows when it is read.
    let mut problem = None;
    if let Err(error) = access.write(link, &to_ask, true, &mut said, on_step) {
        // One that cannot be put back must not keep the others from it.
        problem = Some(error.to_string());
        // A command took its time, or failed, and is not run twice.
        for (item, value) in to_ask.iter().rev().filter(|(item, _)| !item.is_command()) {
            let one = BTreeMap::from([(item.clone(), value.clone())]);
            if let Ok(state) =
                states(access, link, &BTreeMap::from([(item.clone(), holds[item].clone())]), &mut Vec::new())
                && state.get(item).is_some_and(|now| !access.is(item, &now.wanted, value))
                && let Err(error) = access.write(link, &one, true, &mut said, on_step)
            {
                problem = Some(error.to_string());
            }
        }
    }
    let after = states(access, link, holds, &mut gone)?;
    on_step(&Step::ReadBack);
    let differ = |of: &dyn Fn(&Before) -> &String| -> Vec<Item> {
        let differing = holds.iter().filter(|(item, before)| {
            after.get(item).is_some_and(|after| !access.is(item, of(after), of(before)))
        });
        differing.map(|(item, _)| item.clone()).collect()
    };
    let items = differ(&|state| &state.wanted);
    if !items.is_empty() {
        let problem = problem.unwrap_or_else(|| format!("the kernel did not take back {}", joined(&items)));
        return Ok(Outcome::Kept { items, problem });
    }
    Ok(Outcome::Restored { changed: to_ask.into_keys().collect(), unlike: differ(&|state| &state.active) })
}

/// The states of what is held; what has gone since, a queue or an interrupt with its files, has none to put back.
fn states(
    access: &mut Access,
    link: Option<&Link>,
    holds: &BTreeMap<Item, Before>,
    gone: &mut Vec<Item>,
) -> Result<BTreeMap<Item, Before>> {
    let mut states = match link {
        Some(link) if holds.keys().any(|item| item.scope() == Scope::Device) => access.now(link)?.items,
        _ => BTreeMap::new(),
    };
    for item in holds.keys() {
        match access.complete(link, [item], &mut states) {
            Err(error)
                if error.errno() == Some(libc::ENOENT) || matches!(error, HostError::NotFound { .. }) =>
            {
                gone.push(item.clone());
            }
            done => done?,
        }
    }
    Ok(states)
}

fn joined(items: &[Item]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Where the device of a journal is.
enum Search {
    /// The device, in this network namespace.
    Found(Netns, Link),
    /// The network namespace without it, and why.
    Bare(Netns, String),
    /// Neither is left, and why.
    Nowhere(String),
    /// Nobody can tell; what is wider than a device, or than a network namespace that is not to be seen, can be put back all
    /// the same.
    Unsure(Option<Netns>, String),
}

fn find_device(owner: &Owner, place: Option<Netns>) -> Result<Search> {
    let device = &owner.device;
    let here = Netns::current()?;
    let place = match place {
        Some(place) => Some(place),
        None => find_namespace(owner.netns, &here)?,
    };
    if let Some(place) = &place {
        match place.run(|| link::link_by_index(device.index))? {
            Err(HostError::NotFound { .. }) => {}
            Err(error) => return Err(error),
            Ok(link) => match identify(device, &link) {
                Identity::Same => return Ok(Search::Found(place.clone(), link)),
                Identity::Unsure(problem) => return Ok(Search::Unsure(Some(place.clone()), problem)),
                Identity::Other => {}
            },
        }
    }
    // A device may have been moved; a physical one outlives its network namespace, and lands in the first one with all its
    // features.
    if has_address(&device.mac) {
        let elsewhere = std::iter::once(here).chain(all_namespaces());
        for other in elsewhere.filter(|other| place.as_ref().is_none_or(|place| place.id() != other.id())) {
            let links = other.run(link::links).and_then(|links| links).unwrap_or_default();
            let moved = links.into_iter().find(|link| link.mac == device.mac && link.name == device.name);
            if let Some(link) = moved {
                return Ok(Search::Found(other, link));
            }
        }
    }
    match place {
        Some(place) => Ok(Search::Bare(place, "its device no longer exists".to_owned())),
        None if pid_namespace()? != owner.pid_namespace => {
            let problem = "its network namespace is not visible from this container; run `haul settings restore` where it \
                           was started, or remove the file once that place is gone";
            Ok(Search::Unsure(None, problem.to_owned()))
        }
        None => Ok(Search::Nowhere("its network namespace no longer exists".to_owned())),
    }
}

/// Whether a device found is the one recorded.
pub(crate) enum Identity {
    /// It is, though it may have another name by now.
    Same,
    /// It is not.
    Other,
    /// Nobody can tell; the text says what differs.
    Unsure(String),
}

/// Compares a device found under the recorded index.
pub(crate) fn identify(recorded: &Device, found: &Link) -> Identity {
    let same_name = recorded.name == found.name;
    if recorded.mac == found.mac && (same_name || has_address(&recorded.mac)) {
        Identity::Same
    } else if same_name || has_address(&recorded.mac) && has_address(&found.mac) {
        // The kernel gives an index to no second device of a namespace, unless it is asked to.
        let was = format!("{} with the address {}", recorded.name, recorded.mac);
        Identity::Unsure(format!(
            "it was {was}, and at its place is {} with {}: if that is the same device, put it back by hand; then remove \
             the file",
            found.name, found.mac
        ))
    } else {
        Identity::Other
    }
}

/// Whether a hardware address tells one device from another; loopback and tunnels have none, or all zeros.
fn has_address(mac: &str) -> bool {
    mac.chars().any(|c| c.is_ascii_hexdigit() && c != '0')
}

/// A living network namespace by its identity.
fn find_namespace(wanted: NetnsId, here: &Netns) -> Result<Option<Netns>> {
    let same = |id: NetnsId| {
        id.inode == wanted.inode
            && (id.cookie == wanted.cookie || id.cookie.is_none() || wanted.cookie.is_none())
    };
    if same(here.id()) {
        return Ok(Some(here.clone()));
    }
    let mut refused = None;
    for path in mounts().into_iter().chain(held_by_processes(wanted.inode)) {
        // A mount point may be hidden, a process may end: only a namespace with the right number is worth an error.
        if fs::metadata(&path).map(|found| found.ino()).ok() != Some(wanted.inode) {
            continue;
        }
        match Netns::open(&path) {
            Ok(found) if same(found.id()) => return Ok(Some(found)),
            // The number has been given to another one.
            Ok(_) => return Ok(None),
            Err(error) => refused = Some(error),
        }
    }
    refused.map_or(Ok(None), Err)
}

/// Every network namespace that can be seen from here, each once.
fn all_namespaces() -> Vec<Netns> {
    let threads =
        children("/proc".into()).filter(|path| names_a_number(path)).map(|process| process.join("ns/net"));
    let mut seen = std::collections::BTreeSet::new();
    let new = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| seen.insert(found.ino()));
    mounts().into_iter().chain(threads).filter(new).filter_map(|path| Netns::open(&path).ok()).collect()
}

/// Where network namespaces are mounted: `/run/netns/NAME`, and the like of container engines.
fn mounts() -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/thread-self/mountinfo").unwrap_or_default();
    table.lines().filter(|line| line.contains(" - nsfs ")).filter_map(mount_point).collect()
}

/// The mount point in a line of mountinfo(5), where a space and the like are written in octal.
fn mount_point(line: &str) -> Option<PathBuf> {
    let field = line.split(' ').nth(4)?;
    let plain = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    Some(plain.iter().fold(field.to_owned(), |text, (code, sign)| text.replace(code, sign)).into())
}

/// Threads in, and open files of, the network namespace with this number. Processes end while one looks.
fn held_by_processes(inode: u64) -> impl Iterator<Item = PathBuf> {
    let target = format!("net:[{inode}]");
    let is_it =
        move |path: &PathBuf| fs::read_link(path).is_ok_and(|link| link.as_os_str() == target.as_str());
    let processes = || children("/proc".into()).filter(|path| names_a_number(path));
    let threads =
        processes().flat_map(|process| children(process.join("task"))).map(|thread| thread.join("ns/net"));
    let files = processes().flat_map(|process| children(process.join("fd")));
    threads.chain(files).filter(is_it)
}

fn children(directory: PathBuf) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(directory).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()))
}

fn names_a_number(path: &Path) -> bool {
    path.file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_device_that_is_certainly_the_recorded_one_is_taken_for_it() {
        const MAC: &str = "02:00:00:00:00:01";
        const NONE: &str = "00:00:00:00:00:00";
        for (recorded, found, expected) in [
            (("eth0", MAC), ("eth0", MAC), "same"),
            (("eth0", MAC), ("lan0", MAC), "same"),
            (("eth0", MAC), ("lan0", "02:00:00:00:00:02"), "unsure"),
            (("eth0", MAC), ("tun0", ""), "other"),
            (("eth0", MAC), ("eth0", "02:00:00:00:00:02"), "unsure"),
            (("tun0", ""), ("tun0", ""), "same"),
            (("tun0", ""), ("tun1", ""), "other"),
            (("lo", NONE), ("sit0", NONE), "other"),
        ] {
            let device = Device { index: 2, name: recorded.0.to_owned(), mac: recorded.1.to_owned() };
            let (name, mac) = (found.0.to_owned(), found.1.to_owned());
            let link = Link { index: 2, name, mac, mtu: 1500, carrier_changes: None, running: true };
            let answer = match identify(&device, &link) {
                Identity::Same => "same",
                Identity::Other => "other",
                Identity::Unsure(_) => "unsure",
            };
            assert_eq!(answer, expected, "{recorded:?} and {found:?}");
        }
    }

    #[test]
    fn a_mount_point_is_the_fifth_field_with_its_escapes_undone() {
        let line = r"150 30 0:4 net:[4026532300] /run/netns/a\040b rw shared:5 - nsfs nsfs rw";
        assert_eq!(mount_point(line), Some(PathBuf::from("/run/netns/a b")));
        assert_eq!(mount_point("150 30 0:4"), None);
    }
}
