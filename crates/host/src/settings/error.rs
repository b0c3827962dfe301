//! Why a setting could not be met, said so that the user can act.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::item::{Change, Item, Refusal};

/// Why a setting could not be met. Where a change had been begun, it is undone again, or the error is
/// [`SettingError::NotRestored`].
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// The text is no setting.
    #[error(
        "'{text}' is not a setting: {problem}; write [client:|server:|both:]OBJECT=VALUE, as in nic.tso=off"
    )]
    Syntax {
        /// The text.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The device has no such feature.
    #[error("{setting}: {device} has no feature of that name{}; {}", did_you_mean(.near.as_deref()), can_change(.changeable))]
    Unknown {
        /// The setting.
        setting: String,
        /// The device.
        device: String,
        /// The most similar name, where one is similar.
        near: Option<String>,
        /// The features this device can change.
        changeable: Vec<String>,
    },
    /// Two settings ask for different states of one thing.
    #[error("{first} and {second} contradict each other: both decide {item}; leave one out")]
    Conflict {
        /// The earlier one.
        first: String,
        /// The later one.
        second: String,
        /// What both decide.
        item: Item,
    },
    /// The device or the host does not have it, or cannot have that state.
    #[error("{setting} is not possible on {device}: {reason}")]
    Impossible {
        /// The setting.
        setting: String,
        /// The device, or "this host".
        device: String,
        /// Why, and what would be possible.
        reason: String,
    },
    /// It is the whole host's, and the test is in a network namespace of its own.
    #[error("{} {} the whole host's and not this network namespace's; accept with --allow-global, and it is put back afterwards", list(.items), if .items.len() == 1 { "is" } else { "are" })]
    Global {
        /// What.
        items: Vec<Item>,
    },
    /// A command failed, or took too long.
    #[error("the command '{command}' failed: {how}{}", said(.output))]
    Hook {
        /// The command.
        command: String,
        /// How it ended.
        how: String,
        /// The end of what it wrote.
        output: String,
    },
    /// The feature cannot be changed here.
    #[error("{setting} is not possible on {device}: {} fixed {}; use another device, or leave the setting out", list(.features), word(!.on))]
    Fixed {
        /// The setting.
        setting: String,
        /// The device.
        device: String,
        /// The features in question.
        features: Vec<String>,
        /// The state asked for.
        on: bool,
    },
    /// The kernel took the request and did not do it.
    #[error("{device} did not take it: {}; everything is as it was before", list(.refused))]
    NotTaken {
        /// The device.
        device: String,
        /// What was not done, with reasons.
        refused: Vec<Refusal>,
    },
    /// More changed than anybody named.
    #[error("on {device} this also changes {}; everything is as it was before; name those too, or accept with --allow-side-effects", list(.changes))]
    SideEffects {
        /// The device.
        device: String,
        /// The changes not asked for.
        changes: Vec<Change>,
    },
    /// Somebody else changed the device while haul held it.
    #[error("somebody else changed {device} during the measurement: {}; stop what manages this device, and repeat", list(.changes))]
    Foreign {
        /// The device.
        device: String,
        /// What differs from the state haul left.
        changes: Vec<Change>,
    },
    /// Somebody else changed the device and changed it back while haul held it.
    #[error("somebody else worked on {device} during the measurement: {}; stop what manages this device, and repeat", list(.what))]
    Meddled {
        /// The device.
        device: String,
        /// What was seen, in the order it came.
        what: Vec<String>,
    },
    /// The kernel does not let this user.
    #[error(
        "not allowed to change {what} of {device}: {source}; run as root, or measure in the lab (TARGET lab), which needs no privilege"
    )]
    NotPermitted {
        /// What.
        what: String,
        /// The device.
        device: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Another haul that is running holds settings here.
    #[error("settings of {place} are held by another haul, process {pid} ({command}), which has {}; wait until it ends (--queue), or stop it", holding(.items))]
    Held {
        /// What both are about: a device, or the whole host.
        place: String,
        /// What the other has changed or relies on.
        items: Vec<Item>,
        /// The other's process.
        pid: u32,
        /// What the other was started as.
        command: String,
    },
    /// Another session of this process holds settings here.
    #[error("settings of {place} are held by another session of this haul, which has {}; a server's other client must end first, and in the lab, where both ends are one host, what is the whole host's is set for one end only", holding(.items))]
    HeldHere {
        /// What both are about.
        place: String,
        /// What the other has changed or relies on.
        items: Vec<Item>,
    },
    /// A haul ended without putting this device back.
    #[error("an earlier haul (process {pid}) ended without putting {device} back; run `haul settings restore` first (journal {})", .journal.display())]
    Unrestored {
        /// The device.
        device: String,
        /// The process that ended.
        pid: u32,
        /// Its journal.
        journal: PathBuf,
    },
    /// The device did not come back after the change.
    #[error("{device} has no carrier {} s after it was changed; everything is as it was before; check the cable and the peer", .after.as_secs())]
    LinkLost {
        /// The device.
        device: String,
        /// How long haul waited.
        after: Duration,
    },
    /// What is there now is not the device that was opened.
    #[error("{device} is gone: {found}")]
    DeviceGone {
        /// The device.
        device: String,
        /// What is there instead.
        found: String,
    },
    /// The old state could not be brought back. The journal is kept.
    #[error("{device} could not be put back: {problem}; {} should be as told in {}; try `haul settings restore`", list(.items), .journal.display())]
    NotRestored {
        /// The device.
        device: String,
        /// The features that are not as they were.
        items: Vec<Item>,
        /// What went wrong.
        problem: String,
        /// The journal that tells what was there.
        journal: PathBuf,
    },
    /// It is asked for as before haul's change, and yet not in force as before.
    #[error("{device} is asked for what it was asked for before, but {} {} not in force as before: something else changed in the meantime; look at `haul settings list {device}`", list(.items), if .items.len() == 1 { "is" } else { "are" })]
    Unlike {
        /// The device.
        device: String,
        /// What differs.
        items: Vec<Item>,
    },
    /// A journal cannot be understood.
    #[error("the journal {} cannot be used: {problem}", .path.display())]
    Journal {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        problem: String,
    },
}

/// The most similar of `names`, where one is similar enough to be a slip of the keyboard.
pub(super) fn suggestion<'a>(text: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    /// The threshold clap uses for its own suggestions.
    const SIMILAR: f64 = 0.8;
    names
        .map(|name| (strsim::jaro_winkler(text, name), name))
        .filter(|(likeness, _)| *likeness > SIMILAR)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, name)| name.to_owned())
}

pub(super) fn did_you_mean(near: Option<&str>) -> String {
    near.map_or_else(String::new, |near| format!(" (did you mean '{near}'?)"))
}

fn can_change(changeable: &[String]) -> String {
    if changeable.is_empty() {
        "none of its features can be changed".to_owned()
    } else {
        format!("it can change {}", list(changeable))
    }
}

pub(super) fn list<T: fmt::Display>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

pub(super) fn word(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// `: output`, or nothing.
fn said(output: &str) -> String {
    if output.is_empty() { String::new() } else { format!("; it wrote: {output}") }
}

/// A few of what another haul has.
fn holding(items: &[Item]) -> String {
    const SHOWN: usize = 4;
    match items.len() {
        0 => "changed nothing yet".to_owned(),
        count if count > SHOWN => format!("{} and {} more", list(&items[..SHOWN]), count - SHOWN),
        _ => list(items),
    }
}
