//! The write-ahead journal: what was there before haul changed it, on disk before the change is made.
//!
//! One file per [`crate::settings::Tuner`], named `PID-N.jsonl`. Its owner holds a lock on it (flock(2)), which the
//! kernel drops however the owner ends; so an unlocked journal means a dead owner, with no guess about process numbers.
//!
//! ```text
//!   owner   who, which boot, which network namespace, which device
//!   hold    items about to be changed, as they were; items only relied on            ← fsync, then the change
//!   release items that are back                                                      ← after reading them back
//!   (file removed)                                                                    ← all is back
//! ```
//!
//! A crash between any two of these steps leaves a journal whose restoration is right: putting back what was never
//! changed does nothing. Nothing that is set here outlives the boot, so after a power cut there is nothing to put back,
//! and the file says by its boot id that it is of another one. The fsync is there because a full disk may show only then,
//! and must show before the change.
//!
//! What is held is held for a whole network namespace, not for a device: two hauls that tune two devices of one host
//! disturb each other's measurement all the same. Of settings of the whole host one haul at a time has any.
//!
//! Creating, claiming and recovering happen under one lock per directory. A journal in another directory is not seen:
//! two hauls that shall respect each other must share [`directory`].

mod recover;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use recover::{Identity, identify, settle};
pub use recover::{Outcome, Recovery, Which, recover, recover_step_by_step};

use crate::clock;
use crate::error::{HostError, Named as _, Result};
use crate::link::Link;
use crate::netns::NetnsId;
use crate::privilege;
use crate::settings::{Item, Roots, SettingError};

/// The version of the file format this code writes, and the newest it reads.
const FORMAT: u32 = 2;

/// How long another haul may take for a change, a NIC that resets included, before we give up waiting for it.
const DIRECTORY_WAIT: Duration = Duration::from_secs(15);

/// The longest journal that is read, in bytes: of hours of arms that switch hundreds of items.
const LONGEST: u64 = 64 << 20;

/// What to do where a file cannot be locked.
const NO_LOCKS: &str = "its file system may have no locks: set HAUL_STATE_DIR to a local directory";

/// Where journals are kept: `$HAUL_STATE_DIR/journal`, else `/var/lib/haul/journal` for root, else
/// `$XDG_STATE_HOME/haul/journal` or `~/.local/state/haul/journal`.
///
/// Root of a user namespace counts as an ordinary user: `/var/lib` is not its own.
pub fn directory() -> Result<PathBuf> {
    let real_root = privilege::effective_root() && privilege::in_initial_user_namespace();
    choose_directory(|name| env::var_os(name).map(PathBuf::from), real_root)
}

fn choose_directory(variable: impl Fn(&str) -> Option<PathBuf>, real_root: bool) -> Result<PathBuf> {
    // The XDG base directory specification: a relative path is to be ignored.
    let absolute = |name: &str| variable(name).filter(|path| path.is_absolute());
    let chosen = absolute("HAUL_STATE_DIR")
        .or_else(|| real_root.then(|| PathBuf::from("/var/lib/haul")))
        .or_else(|| absolute("XDG_STATE_HOME").map(|state| state.join("haul")))
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state/haul")));
    chosen.map(|state| state.join("journal")).ok_or_else(|| HostError::NotFound {
        what: "a directory for haul's journal".to_owned(),
        hint: Some("set HAUL_STATE_DIR to an absolute path".into()),
    })
}

/// A network device as the journal knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// The kernel's number of it in its network namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its hardware address; empty where it has none.
    pub mac: String,
}

impl From<&Link> for Device {
    fn from(link: &Link) -> Self {
        Self { index: link.index, name: link.name.clone(), mac: link.mac.clone() }
    }
}

/// The state of an item before the first change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// What was asked for. This is put back.
    pub wanted: String,
    /// What was in force. This is compared afterwards.
    pub active: String,
}

/// Who wrote a journal, about what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    format: u32,
    pid: u32,
    boot_id: String,
    /// Other process-number namespaces may hide the processes that keep a network namespace alive.
    pid_namespace: u64,
    netns: NetnsId,
    /// Where what is the whole host's is set.
    home: NetnsId,
    pub(crate) device: Device,
    /// What the process was started as.
    command: String,
    /// When, in nanoseconds of this boot's monotonic clock: of two journals about one thing the earlier knows what was there.
    began: u64,
    /// Where proc and sysfs are, where a test has its own.
    #[serde(default, skip_serializing_if = "Roots::are_real")]
    roots: Roots,
}

impl Owner {
    /// This process, about `device` in the network namespace `netns`.
    pub(crate) fn this_process(netns: NetnsId, home: NetnsId, device: Device, roots: Roots) -> Result<Self> {
        let (pid, boot_id, pid_namespace) = (process::id(), boot_id()?, pid_namespace()?);
        let command = command_of(env::args());
        let began = clock::now().0;
        Ok(Self { format: FORMAT, pid, boot_id, pid_namespace, netns, home, device, command, began, roots })
    }

    fn same_place(&self, other: &Self) -> bool {
        self.boot_id == other.boot_id && self.netns == other.netns
    }
}

/// What a process was started as, up to its first option: what follows may be a secret.
fn command_of(arguments: impl Iterator<Item = String>) -> String {
    const MOST: usize = 80;
    let mut words = arguments.take_while(|word| !word.starts_with('-'));
    let program = words.next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default().to_owned();
    let text = std::iter::once(program).chain(words).collect::<Vec<_>>().join(" ");
    text.chars().filter(|c| !c.is_control()).take(MOST).collect()
}

/// One line of a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Record {
    Owner(Owner),
    Hold {
        /// About to be changed; put back at the end.
        items: BTreeMap<Item, Before>,
        /// Relied on as they are: nobody else may change them, and they are not put back. Replaces the earlier list.
        claims: BTreeSet<Item>,
    },
    Release {
        items: BTreeSet<Item>,
    },
    /// A recovery is about to run commands of the user's. Those found here did not come back from them.
    Tried,
    /// The changes shall outlive the process that made them: the file stands for how to undo them.
    Kept,
    /// Why a restoration failed, for whoever reads the file.
    Trouble {
        problem: String,
    },
}

/// What the lines of a journal add up to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Story {
    /// `None` where the file ends within its first line: nothing can have been changed then.
    owner: Option<Owner>,
    holds: BTreeMap<Item, Before>,
    claims: BTreeSet<Item>,
    kept: bool,
    tried: u32,
    trouble: Option<String>,
    /// What is wrong with a line that is not the last; nothing after it was read.
    damage: Option<String>,
}

impl Story {
    /// Reads the lines of a journal. A last line without its newline was never acted upon and does not count.
    fn read(bytes: &[u8]) -> Self {
        let mut story = Self::default();
        let complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(&[][..], |end| &bytes[..end]);
        if !complete.is_empty() {
            story.damage = story.follow(complete).err();
        }
        story
    }

    fn follow(&mut self, lines: &[u8]) -> std::result::Result<(), String> {
        for (number, line) in (1..).zip(lines.split(|byte| *byte == b'\n')) {
            if let (1, Some(format)) = (number, format_of(line))
                && format != FORMAT
            {
                let which = if format > FORMAT { "a newer" } else { "the older" };
                return Err(format!(
                    "it has format {format}, and this haul reads {FORMAT}: use {which} haul"
                ));
            }
            let record =
                serde_json::from_slice(line).map_err(|error| format!("line {number} is damaged: {error}"))?;
            match (record, &self.owner) {
                (Record::Owner(owner), None) => self.owner = Some(owner),
                (Record::Owner(_), Some(_)) => return Err(format!("line {number} names a second owner")),
                (_, None) => return Err(format!("line {number} comes before the owner")),
                (Record::Hold { items, claims }, Some(_)) => {
                    for (item, before) in items {
                        self.holds.entry(item).or_insert(before);
                    }
                    self.claims = claims;
                }
                (Record::Release { items }, Some(_)) => {
                    self.holds.retain(|item, _| !items.contains(item));
                }
                (Record::Kept, Some(_)) => self.kept = true,
                (Record::Tried, Some(_)) => self.tried = self.tried.saturating_add(1),
                (Record::Trouble { problem }, Some(_)) => self.trouble = Some(problem),
            }
        }
        Ok(())
    }
}

/// The format version in an owner line, also of a format this code cannot read.
fn format_of(line: &[u8]) -> Option<u32> {
    let value: serde_json::Value = serde_json::from_slice(line).ok()?;
    value.get("owner")?.get("format")?.as_u64().and_then(|format| u32::try_from(format).ok())
}

/// One journal found in the directory, for `haul settings list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Open {
    /// The file.
    pub journal: PathBuf,
    /// Whether the haul that wrote it still runs.
    pub alive: bool,
    /// Whether the changes were made to stay (`haul settings set`).
    pub kept: bool,
    /// Its process number.
    pub pid: Option<u32>,
    /// The device it is about.
    pub device: Option<Device>,
    /// What the process was started as.
    pub command: Option<String>,
    /// What it changed, as it was before.
    pub items: BTreeMap<Item, Before>,
    /// Why the last restoration failed, or why the file cannot be read.
    pub problem: Option<String>,
    #[serde(skip)]
    owner: Option<Owner>,
}

impl Open {
    /// What it changed, as it is now; without what is gone, and without what cannot be read from here.
    #[must_use]
    pub fn now(&self) -> BTreeMap<Item, String> {
        self.owner.as_ref().map(|owner| recover::present(owner, &self.items)).unwrap_or_default()
    }
}

/// The journals in a directory, those of running hauls included; empty where the directory does not exist.
pub fn list(directory: &Path) -> Result<Vec<Open>> {
    if journals_in(directory)?.is_empty() {
        return Ok(Vec::new());
    }
    let _desk = Desk::take(directory)?;
    let mut found = Vec::new();
    for path in journals_in(directory)? {
        let Some(Entry { lock, story }) = Entry::read(&path)? else { continue };
        found.push(Open {
            journal: path,
            alive: lock.is_none(),
            kept: story.kept,
            pid: story.owner.as_ref().map(|owner| owner.pid),
            command: story.owner.as_ref().map(|owner| owner.command.clone()),
            device: story.owner.as_ref().map(|owner| owner.device.clone()),
            owner: story.owner,
            items: story.holds,
            problem: story.damage.or(story.trouble),
        });
    }
    Ok(found)
}

/// A journal file as another process sees it.
struct Entry {
    /// `None` while its owner lives.
    lock: Option<File>,
    story: Story,
}

impl Entry {
    /// Reads a journal and finds out whether its owner lives; `None` where its owner has just removed it.
    ///
    /// Finding out takes the lock for a moment, so two that did it at once would take each other for the owner: the
    /// caller has the [`Desk`].
    fn read(path: &Path) -> Result<Option<Self>> {
        let object = || path.display().to_string();
        // Neither a link nor a pipe that somebody put there, on which an open would wait for ever.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let mut file = match File::options().read(true).custom_flags(flags).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.named("open the journal", object)?,
        };
        let found = file.metadata().named("look at the journal", object)?;
        if !found.is_file() {
            return Ok(None);
        }
        // What a journal says is done, commands included: it must be this user's, and nobody else's to write.
        if found.uid() != privilege::effective_user() || found.mode() & 0o022 != 0 {
            let reason =
                "it is another user's, or others may write it: look at it, then remove it".to_owned();
            return Err(HostError::Unavailable { operation: "trust the journal", object: object(), reason });
        }
        if found.len() > LONGEST {
            let reason = format!(
                "it has {} bytes, and no haul writes so many: look at it, then remove it",
                found.len()
            );
            return Err(HostError::Unavailable { operation: "read the journal", object: object(), reason });
        }
        let alive = match file.try_lock() {
            Ok(()) => false,
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Error(error)) => {
                return Err(HostError::os("lock the journal", object(), error));
            }
        };
        if file.metadata().named("look at the journal", object)?.nlink() == 0 {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).named("read the journal", object)?;
        Ok(Some(Self { lock: (!alive).then_some(file), story: Story::read(&bytes) }))
    }
}

fn journals_in(directory: &Path) -> Result<Vec<PathBuf>> {
    let object = || directory.display().to_string();
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.named("list the journals in", object)?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.named("list the journals in", object)?.path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Whose journals stand in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alive {
    /// Those of running hauls.
    Only,
    /// Those of dead ones too, which nobody has put back yet.
    OrDead,
}

/// The directory of journals while this process alone may create, claim and recover in it.
#[derive(Debug)]
pub(crate) struct Desk {
    directory: PathBuf,
    /// Dropping it lets the next one in.
    _lock: File,
}

impl Desk {
    /// Makes the directory where it is missing, and waits for its lock.
    pub(crate) fn take(directory: &Path) -> Result<Self> {
        let object = || directory.display().to_string();
        let hint = "the journal must be written before a setting is changed: set HAUL_STATE_DIR to a writable directory";
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.named("make the journal's directory", object).map_err(|error| error.with_hint(hint))?;
        let path = directory.join("lock");
        // Neither a link nor a pipe that somebody put there, on which an open would wait for ever.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
        let opened = options.open(&path);
        let lock =
            opened.named("open", || path.display().to_string()).map_err(|error| error.with_hint(hint))?;
        lock_within(
            &lock,
            DIRECTORY_WAIT,
            "wait for another haul to finish its change, by the lock in",
            object,
        )?;
        Ok(Self { directory: directory.to_owned(), _lock: lock })
    }

    /// Refuses where another journal stands in the way of a change where `owner` is, or, with `host`, anywhere on this one.
    pub(crate) fn refuse_if_held(
        &self,
        owner: &Owner,
        own: Option<&Path>,
        host: bool,
        alive: Alive,
    ) -> Result<()> {
        for path in journals_in(&self.directory)? {
            if own.is_some_and(|own| own == path) {
                continue;
            }
            let Some(Entry { lock, story }) = Entry::read(&path)? else { continue };
            let device = owner.device.name.clone();
            let holds_host = story.holds.keys().any(Item::is_shared);
            let (same_place, same_host) = story.owner.as_ref().map_or((true, true), |other| {
                (owner.same_place(other), host && holds_host && owner.boot_id == other.boot_id)
            });
            if !same_place && !same_host {
                continue;
            }
            if let Some(damage) = story.damage {
                let problem =
                    format!("{damage}; it may tell of changes to {device}: look at it, then remove it");
                return Err(SettingError::Journal { path, problem }.into());
            }
            let Some(other) = story.owner else { continue };
            if lock.is_some() {
                if alive == Alive::Only || story.kept || story.holds.is_empty() {
                    continue;
                }
                return Err(SettingError::Unrestored { device, pid: other.pid, journal: path }.into());
            }
            let items: Vec<Item> = story.holds.into_keys().chain(story.claims).collect();
            // Who has a journal here is about to change something, if it has not yet.
            let place = if same_place { other.device.name } else { "the whole host".to_owned() };
            if other.pid == owner.pid && other.pid_namespace == owner.pid_namespace {
                return Err(SettingError::HeldHere { place, items }.into());
            }
            return Err(SettingError::Held { place, items, pid: other.pid, command: other.command }.into());
        }
        Ok(())
    }

    /// Starts a journal of this process.
    pub(crate) fn create(&self, owner: &Owner) -> Result<Journal> {
        let mut number = 0_u32;
        let (path, file) = loop {
            let path = self.directory.join(format!("{}-{number}.jsonl", owner.pid));
            match OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => break (path, file),
                // Another tuner of this process, or a dead process that had our number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => {
                    return Err(HostError::os("create the journal", path.display().to_string(), error));
                }
            }
        };
        let mut journal = Journal { path, file, length: 0, holds: BTreeMap::new() };
        let started = journal.start(&self.directory, owner);
        if started.is_err() {
            // The error that matters is the first one, and an empty journal tells of no change.
            let _ = fs::remove_file(&journal.path);
        }
        started.map(|()| journal)
    }
}

/// This process's journal about one device.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    /// Up to here every line is complete.
    length: u64,
    holds: BTreeMap<Item, Before>,
}

impl Journal {
    fn start(&mut self, directory: &Path, owner: &Owner) -> Result<()> {
        // Nobody else knows the file yet, so there is nothing to wait for.
        self.file
            .try_lock()
            .map_err(io::Error::from)
            .named("lock the journal", || self.path.display().to_string())
            .map_err(|error| error.with_hint(NO_LOCKS))?;
        self.append(&Record::Owner(owner.clone()))?;
        sync_directory(directory)
    }

    /// Where the journal is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What was changed and not yet put back.
    pub(crate) fn holds(&self) -> &BTreeMap<Item, Before> {
        &self.holds
    }

    /// Records `items` as they are before they are changed, and `claims`; on disk when this returns.
    pub(crate) fn hold(&mut self, items: BTreeMap<Item, Before>, claims: BTreeSet<Item>) -> Result<()> {
        self.append(&Record::Hold { items: items.clone(), claims })?;
        for (item, before) in items {
            self.holds.entry(item).or_insert(before);
        }
        Ok(())
    }

    /// Records that `items` are back.
    pub(crate) fn release(&mut self, items: &BTreeSet<Item>) -> Result<()> {
        self.append(&Record::Release { items: items.clone() })?;
        self.holds.retain(|item, _| !items.contains(item));
        Ok(())
    }

    /// Leaves the changes in force, and the file to tell how to undo them.
    pub(crate) fn keep(mut self) -> Result<()> {
        self.append(&Record::Kept)
    }

    /// Records why a restoration failed.
    pub(crate) fn trouble(&mut self, problem: String) -> Result<()> {
        self.append(&Record::Trouble { problem })
    }

    /// Removes the journal: everything is back.
    pub(crate) fn remove(self) -> Result<()> {
        remove(&self.path)
    }

    fn append(&mut self, record: &Record) -> Result<()> {
        let object = || self.path.display().to_string();
        let mut line = serde_json::to_vec(record)
            .map_err(|error| HostError::os("put into words for the journal", object(), error.into()))?;
        line.push(b'\n');
        let mut write = || {
            if self.file.metadata()?.nlink() == 0 {
                return Err(io::Error::new(io::ErrorKind::NotFound, "somebody removed it"));
            }
            // What an earlier failed append left would make this line unreadable.
            self.file.set_len(self.length)?;
            self.file.write_all(&line)?;
            self.file.sync_all()
        };
        if let Err(error) = write() {
            let _ = self.file.set_len(self.length);
            let hint = "nothing was changed; make room, or set HAUL_STATE_DIR to another directory";
            return Err(HostError::os("write the journal", object(), error).with_hint(hint));
        }
        self.length += line.len() as u64;
        Ok(())
    }
}

/// Writes down, in the journal of a dead process, that commands are about to be run for it.
fn note_tried(path: &Path) -> Result<()> {
    let object = || path.display().to_string();
    let mut line = serde_json::to_vec(&Record::Tried)
        .map_err(|error| HostError::os("put into words for the journal", object(), error.into()))?;
    line.push(b'\n');
    let noted =
        OpenOptions::new().append(true).custom_flags(libc::O_NOFOLLOW).open(path).and_then(|mut file| {
            // Half a line of the dead one's would make this one unreadable.
            let mut bytes = Vec::new();
            File::open(path)?.read_to_end(&mut bytes)?;
            let complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            file.set_len(complete as u64)?;
            file.write_all(&line)?;
            file.sync_all()
        });
    noted.named("write the journal", object)
}

/// Waits for the lock of `file`; `operation` and `object` are for the error text.
fn lock_within(
    file: &File,
    bound: Duration,
    operation: &'static str,
    object: impl Fn() -> String,
) -> Result<()> {
    let start = clock::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => {
                return Err(HostError::os(operation, object(), error).with_hint(NO_LOCKS));
            }
            Err(TryLockError::WouldBlock) if clock::now().since(start) >= bound => {
                return Err(HostError::Deadline { operation, object: object(), after: bound });
            }
            Err(TryLockError::WouldBlock) => clock::sleep_until(clock::now().after(Duration::from_millis(5))),
        }
    }
}

fn remove(path: &Path) -> Result<()> {
    let object = || path.display().to_string();
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        removed => removed.named("remove the journal", object)?,
    }
    path.parent().map_or(Ok(()), sync_directory)
}

fn sync_directory(directory: &Path) -> Result<()> {
    let object = || directory.display().to_string();
    File::open(directory).and_then(|opened| opened.sync_all()).named("write to disk the directory", object)
}

fn boot_id() -> Result<String> {
    const PATH: &str = "/proc/sys/kernel/random/boot_id";
    let text = fs::read_to_string(PATH).named("read", || PATH.to_owned())?;
    Ok(text.trim().to_owned())
}

fn pid_namespace() -> Result<u64> {
    const PATH: &str = "/proc/self/ns/pid";
    Ok(fs::metadata(PATH).named("look at", || PATH.to_owned())?.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: &str = r#"{"owner":{"format":2,"pid":7,"boot_id":"b","pid_namespace":3,"netns":{"inode":4,"cookie":5},"home":{"inode":1,"cookie":1},"device":{"index":2,"name":"eth0","mac":"02:00:00:00:00:01"},"command":"haul ab","began":9}}"#;
    const HOLD: &str = r#"{"hold":{"items":{"nic.tx-nocache-copy":{"wanted":"off","active":"off"}},"claims":["nic.rx-gro"]}}"#;

    fn state(word: &str) -> Before {
        Before { wanted: word.to_owned(), active: word.to_owned() }
    }

    fn owner() -> Owner {
        Owner {
            format: 2,
            pid: 7,
            boot_id: "b".to_owned(),
            pid_namespace: 3,
            netns: NetnsId { inode: 4, cookie: Some(5) },
            home: NetnsId { inode: 1, cookie: Some(1) },
            command: "haul ab".to_owned(),
            began: 9,
            roots: Roots::default(),
            device: Device { index: 2, name: "eth0".to_owned(), mac: "02:00:00:00:00:01".to_owned() },
        }
    }

    fn item(text: &str) -> Item {
        text.parse().unwrap()
    }

    fn holds<const N: usize>(items: [(&str, Before); N]) -> BTreeMap<Item, Before> {
        items.map(|(text, before)| (item(text), before)).into()
    }

    fn names<const N: usize>(items: [&str; N]) -> BTreeSet<Item> {
        items.map(item).into()
    }

    #[test]
    fn a_command_is_told_up_to_its_first_option() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (line, told) in [
            ("/usr/bin/haul ab stream lab --key secret", "haul ab stream lab"),
            ("haul", "haul"),
            ("haul --key secret serve", "haul"),
        ] {
            assert_eq!(command_of(words(line).into_iter()), told);
        }
    }

    #[test]
    fn the_lines_of_a_journal_are_these_and_are_on_disk_before_each_call_returns() {
        let directory = tempfile::tempdir().unwrap();
        let desk = Desk::take(directory.path()).unwrap();
        let mut journal = desk.create(&owner()).unwrap();
        let path = directory.path().join("7-0.jsonl");
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{OWNER}\n"));
        journal.hold(holds([("nic.tx-nocache-copy", state("off"))]), names(["nic.rx-gro"])).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{OWNER}\n{HOLD}\n"));
        journal.release(&names(["nic.tx-nocache-copy"])).unwrap();
        journal.trouble("no".to_owned()).unwrap();
        let rest =
            "{\"release\":{\"items\":[\"nic.tx-nocache-copy\"]}}\n{\"trouble\":{\"problem\":\"no\"}}\n";
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{OWNER}\n{HOLD}\n{rest}"));
        assert_eq!(journal.holds(), &BTreeMap::new());
        journal.remove().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_journal_cut_at_any_byte_tells_what_its_complete_lines_tell() {
        let text = format!("{OWNER}\n{HOLD}\n");
        for end in 0..=text.len() {
            let story = Story::read(&text.as_bytes()[..end]);
            assert_eq!(story.damage, None, "cut at {end}");
            assert_eq!(story.owner.is_some(), end > OWNER.len(), "cut at {end}");
            assert_eq!(story.holds.is_empty(), end < text.len(), "cut at {end}");
        }
        // A power cut can leave zeros where the last block was to be written.
        let torn = [text.as_bytes(), &[0; 100]].concat();
        assert_eq!(Story::read(&torn).holds, holds([("nic.tx-nocache-copy", state("off"))]));
    }

    #[test]
    fn the_first_hold_of_a_feature_is_the_one_that_counts_until_it_is_released() {
        let again = r#"{"hold":{"items":{"nic.tx-nocache-copy":{"wanted":"on","active":"on"}},"claims":[]}}"#;
        let release = r#"{"release":{"items":["nic.tx-nocache-copy"]}}"#;
        for (lines, expected) in [
            (vec![HOLD, again], Some(state("off"))),
            (vec![HOLD, release], None),
            (vec![HOLD, release, again], Some(state("on"))),
        ] {
            let text = [vec![OWNER], lines, vec![""]].concat().join("\n");
            let story = Story::read(text.as_bytes());
            assert_eq!(story.holds.get(&item("nic.tx-nocache-copy")).cloned(), expected, "{text}");
            assert_eq!(
                story.claims.contains(&item("nic.rx-gro")),
                !text.contains(again),
                "the last list of claims counts"
            );
        }
    }

    #[test]
    fn a_journal_that_is_damaged_before_its_end_or_too_new_is_not_guessed_at() {
        let newer = OWNER.replace("\"format\":2", "\"format\":3,\"more\":{}");
        let older = OWNER.replace("\"format\":2", "\"format\":1");
        for (text, expected) in [
            (format!("{OWNER}\nrubbish\n{HOLD}\n"), "line 2 is damaged"),
            (format!("{HOLD}\n"), "line 1 comes before the owner"),
            (format!("{OWNER}\n{OWNER}\n"), "line 2 names a second owner"),
            (format!("{newer}\n"), "use a newer haul"),
            (format!("{older}\n"), "use the older haul"),
            ("\n".to_owned() + HOLD + "\n", "line 1 is damaged"),
        ] {
            let problem = Story::read(text.as_bytes()).damage.unwrap();
            assert!(problem.contains(expected), "{problem}");
        }
    }

    #[test]
    fn what_a_failed_write_left_is_cut_off_before_the_next_line() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Desk::take(directory.path()).unwrap().create(&owner()).unwrap();
        // Half a line, as a full disk leaves it when not even truncation works at that moment.
        OpenOptions::new().append(true).open(journal.path()).unwrap().write_all(b"{\"hold\":{").unwrap();
        journal.hold(holds([("nic.tx-nocache-copy", state("off"))]), names(["nic.rx-gro"])).unwrap();
        assert_eq!(fs::read_to_string(journal.path()).unwrap(), format!("{OWNER}\n{HOLD}\n"));
    }

    #[test]
    fn a_journal_somebody_removed_takes_no_more_holds() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Desk::take(directory.path()).unwrap().create(&owner()).unwrap();
        fs::remove_file(journal.path()).unwrap();
        let error = journal.hold(holds([("nic.rx-gro", state("on"))]), names([])).unwrap_err().to_string();
        assert!(error.contains("somebody removed it"), "{error}");
        assert_eq!(journal.holds(), &BTreeMap::new());
    }

    #[test]
    fn a_process_with_the_number_of_a_dead_one_takes_another_file() {
        let directory = tempfile::tempdir().unwrap();
        let desk = Desk::take(directory.path()).unwrap();
        let dead = desk.create(&owner()).unwrap().path().to_owned();
        let living = desk.create(&owner()).unwrap();
        assert_ne!(dead, living.path());
        drop(desk);
        let alive: Vec<bool> = list(directory.path()).unwrap().into_iter().map(|open| open.alive).collect();
        assert_eq!(alive, [false, true], "a journal that was dropped, not removed, and one that is held");
    }

    #[test]
    fn the_directory_follows_the_variables_in_this_order() {
        let all = [("HAUL_STATE_DIR", "/h"), ("XDG_STATE_HOME", "/x"), ("HOME", "/home/u")];
        for (skip, real_root, expected) in [
            (0, true, "/h/journal"),
            (1, true, "/var/lib/haul/journal"),
            (1, false, "/x/haul/journal"),
            (2, false, "/home/u/.local/state/haul/journal"),
        ] {
            let set = &all[skip..];
            let variable =
                |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
            assert_eq!(choose_directory(variable, real_root).unwrap(), Path::new(expected));
        }
        let relative = |name: &str| (name == "XDG_STATE_HOME").then(|| PathBuf::from("state"));
        let error = choose_directory(relative, false).unwrap_err().to_string();
        assert!(error.contains("HAUL_STATE_DIR"), "{error}");
    }
}
