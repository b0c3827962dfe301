//! Puts back what a dead haul left changed.
//!
//! The difficulty is to find the device again, and to touch no other one. A network namespace is found by the inode
//! number it shows in `/proc`, wherever something keeps it alive (this thread, a mount, a thread, an open file), and
//! confirmed by its cookie, since inode numbers are given out again. In it, the device is that with the same index and
//! hardware address. What is not certain is left alone and said.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{
    BTreeMap, Before, Desk, Device, Entry, Owner, Story, boot_id, journals_in, pid_namespace, remove,
};
use crate::error::{HostError, Result};
use crate::ethtool::Ethtool;
use crate::link::{self, Link};
use crate::netns::{Netns, NetnsId};

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
        /// The features that had to be changed back; none where the process died before its change.
        changed: Vec<String>,
        /// Features that are asked for as before and yet not in force as before, because something else changed since.
        unlike: Vec<String>,
    },
    /// There is nothing to put back. The journal is gone.
    Unneeded {
        /// Why.
        reason: String,
    },
    /// Not everything could be put back. The journal is kept.
    Kept {
        /// The features that are not as they were; empty where that could not be found out.
        features: Vec<String>,
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
                    if changed.is_empty() { "nothing had changed".to_owned() } else { changed.join(", ") };
                write!(f, "{what}: put back ({changed})")?;
                if unlike.is_empty() {
                    Ok(())
                } else {
                    write!(f, "; still not as before: {}", unlike.join(", "))
                }
            }
            Outcome::Unneeded { reason } => write!(f, "{what}: nothing to put back: {reason}"),
            Outcome::Kept { problem, .. } => {
                write!(f, "{what}: not put back: {problem} (journal {})", journal.display())
            }
        }
    }
}

/// Puts back what the journals of dead hauls in `directory` tell of; journals of running ones are left alone.
///
/// The error is about the directory as a whole; what one journal suffers is in its [`Recovery`].
pub fn recover(directory: &Path) -> Result<Vec<Recovery>> {
    if journals_in(directory)?.is_empty() {
        return Ok(Vec::new());
    }
    let _desk = Desk::take(directory)?;
    let mut recoveries = Vec::new();
    for journal in journals_in(directory)? {
        let (what, outcome) = match Entry::read(&journal) {
            Ok(None | Some(Entry { lock: None, .. })) => continue,
            Ok(Some(Entry { story, lock: Some(_lock) })) => conclude(&journal, &story),
            Err(error) => {
                let problem = error.to_string();
                ("a journal of another user".to_owned(), Outcome::Kept { features: Vec::new(), problem })
            }
        };
        recoveries.push(Recovery { journal, what, outcome });
    }
    Ok(recoveries)
}

/// Acts on one journal whose owner is dead, and removes it where all is well.
fn conclude(journal: &Path, story: &Story) -> (String, Outcome) {
    let what = match &story.owner {
        Some(owner) => format!("process {} on {}", owner.pid, owner.device.name),
        None => "an unknown haul".to_owned(),
    };
    let outcome = match (&story.owner, &story.damage) {
        (Some(owner), _) if boot_id().is_ok_and(|boot| boot != owner.boot_id) => {
            Outcome::Unneeded { reason: "the machine has booted since".to_owned() }
        }
        (_, Some(damage)) => {
            let problem = format!("{damage}; look at the file, set the device by hand, then remove the file");
            Outcome::Kept { features: story.holds.keys().cloned().collect(), problem }
        }
        (Some(owner), None) => settle(owner, &story.holds, None),
        (None, None) => Outcome::Unneeded { reason: "it ended before it could change anything".to_owned() },
    };
    match outcome {
        Outcome::Kept { .. } => (what, outcome),
        done => match remove(journal) {
            Ok(()) => (what, done),
            Err(error) => (what, Outcome::Kept { features: Vec::new(), problem: error.to_string() }),
        },
    }
}

/// Puts back the features in `holds`, changed during this boot. `place` is the device's network namespace where the caller has it.
pub(crate) fn settle(owner: &Owner, holds: &BTreeMap<String, Before>, place: Option<&Netns>) -> Outcome {
    let all = || holds.keys().cloned().collect::<Vec<_>>();
    if holds.is_empty() {
        return Outcome::Unneeded { reason: "nothing was changed, or all is back already".to_owned() };
    }
    let found = find_device(owner, place);
    let (place, link) = match found {
        Ok(Search::Found(place, link)) => (place, link),
        Ok(Search::Gone(reason)) => return Outcome::Unneeded { reason },
        Ok(Search::Unsure(problem)) => return Outcome::Kept { features: all(), problem },
        Err(error) => return Outcome::Kept { features: all(), problem: error.to_string() },
    };
    match place.run(|| put_back(&link, holds)).and_then(|done| done) {
        Ok(outcome) => outcome,
        Err(error) => Outcome::Kept { features: all(), problem: error.to_string() },
    }
}

/// Asks for what was asked for before, and reads back. The calling thread is in the device's network namespace.
fn put_back(link: &Link, holds: &BTreeMap<String, Before>) -> Result<Outcome> {
    let mut ethtool = Ethtool::open()?;
    let now = ethtool.features(link.index)?;
    let to_ask: Vec<(&str, bool)> = holds
        .iter()
        .filter(|(feature, before)| now.is_wanted(feature) != before.wanted)
        .map(|(feature, before)| (feature.as_str(), before.wanted))
        .collect();
    if !to_ask.is_empty() {
        ethtool.set_wanted(link.index, &link.name, &to_ask)?;
    }
    let after = ethtool.features(link.index)?;
    let differ = |differs: &dyn Fn(&str, &Before) -> bool| -> Vec<String> {
        holds
            .iter()
            .filter(|(feature, before)| differs(feature, before))
            .map(|(feature, _)| feature.clone())
            .collect()
    };
    let features = differ(&|feature, before| after.is_wanted(feature) != before.wanted);
    if !features.is_empty() {
        let problem = format!("the driver did not take back {}", features.join(", "));
        return Ok(Outcome::Kept { features, problem });
    }
    let changed = to_ask.into_iter().map(|(feature, _)| feature.to_owned()).collect();
    Ok(Outcome::Restored {
        changed,
        unlike: differ(&|feature, before| after.is_active(feature) != before.active),
    })
}

/// Where the device of a journal is.
enum Search {
    Found(Netns, Link),
    Gone(String),
    Unsure(String),
}

fn find_device(owner: &Owner, place: Option<&Netns>) -> Result<Search> {
    let device = &owner.device;
    let here = Netns::current()?;
    let place = match place {
        Some(place) => Some(place.clone()),
        None => find_namespace(owner.netns, &here)?,
    };
    if let Some(place) = &place {
        match place.run(|| link::link_by_index(device.index))? {
            Err(HostError::NotFound { .. }) => {}
            Err(error) => return Err(error),
            Ok(link) => match identify(device, &link) {
                Identity::Same => return Ok(Search::Found(place.clone(), link)),
                Identity::Unsure(problem) => return Ok(Search::Unsure(problem)),
                Identity::Other => {}
            },
        }
    }
    // A physical device outlives its network namespace, and lands in the first one with its features.
    if has_address(&device.mac) && place.as_ref().is_none_or(|place| place.id() != here.id()) {
        let moved =
            link::links()?.into_iter().find(|link| link.mac == device.mac && link.name == device.name);
        if let Some(link) = moved {
            return Ok(Search::Found(here, link));
        }
    }
    if place.is_none() && pid_namespace()? != owner.pid_namespace {
        let problem = "its network namespace is not visible from this container; run `haul settings restore` where it \
                       was started, or remove the file once that place is gone";
        return Ok(Search::Unsure(problem.to_owned()));
    }
    let gone = if place.is_some() { "device" } else { "network namespace" };
    Ok(Search::Gone(format!("its {gone} no longer exists")))
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
    } else if same_name {
        Identity::Unsure(format!(
            "{} had the address {} and now has {}: if it is the same device, set it by hand with ethtool -K; then \
             remove the file",
            found.name, recorded.mac, found.mac
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
            (("eth0", MAC), ("lan0", "02:00:00:00:00:02"), "other"),
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
