//! What haul can change on a host: the text of a setting, and why one could not be met.
//!
//! A setting reads `[client:|server:|both:]nic.FEATURE=on|off`. FEATURE is the kernel's name of a feature or one of
//! ethtool's old group names (`tso`, `tx`, `sg`, …), which stand for every feature of the group the device can change:
//! the device, not the text, decides what a group is, so a [`Setting`] keeps the name it was given.
//!
//! [`Tuner`] applies a list of settings to one device and puts back what was there; [`crate::journal`] does so when the
//! process no longer can. The promise both keep: whatever ends the process, features return to what was *wanted*
//! before, and no setting is reported as in force that is not.
//!
//! Only features are changed so far. One reaches beyond its device: `rx-lro=off` on a bond or bridge is passed on to the
//! devices below, which are not put back (`netdev_sync_lower_features` in `net/core/dev.c`).
//!
//! Group names: `off_flag_def` in ethtool's `ethtool.c`.

mod rules;
mod tuner;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use tuner::{Applied, Plan, Tuner};

use crate::ethtool::Features;

/// The end of the path a setting is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// The end that drives the test. A setting that names no end is for this one.
    #[default]
    Client,
    /// The end that runs `haul serve`.
    Server,
    /// Both, each on its own device.
    Both,
}

impl End {
    /// Whether a setting for this end is also one for `end`.
    #[must_use]
    pub fn includes(self, end: Self) -> bool {
        self == Self::Both || self == end
    }
}

/// A feature and the state it shall have.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Setting {
    /// Where.
    pub end: End,
    /// The feature's or group's name, in the user's spelling.
    pub feature: String,
    /// The state it shall have.
    pub on: bool,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = match self.end {
            End::Client => "",
            End::Server => "server:",
            End::Both => "both:",
        };
        write!(f, "{end}nic.{}={}", self.feature, word(self.on))
    }
}

impl FromStr for Setting {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let wrong = |problem: String| SettingError::Syntax { text: text.to_owned(), problem };
        let (end, rest) = match text.split_once(':') {
            None => (End::Client, text),
            Some(("client", rest)) => (End::Client, rest),
            Some(("server", rest)) => (End::Server, rest),
            Some(("both", rest)) => (End::Both, rest),
            Some((end, _)) => {
                let near = suggestion(end, ["client", "server", "both"].into_iter());
                return Err(wrong(format!("there is no end '{end}'{}", did_you_mean(near.as_deref()))));
            }
        };
        let Some((object, value)) = rest.split_once('=') else {
            return Err(wrong("it lacks '=on' or '=off'".to_owned()));
        };
        let Some(feature) = object.strip_prefix("nic.") else {
            return Err(wrong("haul changes NIC features, whose names begin with 'nic.'".to_owned()));
        };
        // A device, not this parser, knows its features; these characters are those of every name the kernel has.
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if feature.is_empty() || !feature.chars().all(fits) {
            return Err(wrong(format!("'{feature}' cannot be the name of a feature")));
        }
        let on = match value {
            "on" => true,
            "off" => false,
            _ => return Err(wrong(format!("a feature is 'on' or 'off', not '{value}'"))),
        };
        Ok(Self { end, feature: feature.to_owned(), on })
    }
}

impl TryFrom<String> for Setting {
    type Error = SettingError;

    fn try_from(text: String) -> Result<Self, SettingError> {
        text.parse()
    }
}

impl From<Setting> for String {
    fn from(setting: Setting) -> Self {
        setting.to_string()
    }
}

/// One feature's change of state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FeatureChange {
    /// The kernel's name of the feature.
    pub feature: String,
    /// The state before.
    pub before: bool,
    /// The state after.
    pub after: bool,
}

impl fmt::Display for FeatureChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} -> {}", self.feature, word(self.before), word(self.after))
    }
}

/// One feature that is not what it was asked to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The kernel's name of the feature.
    pub feature: String,
    /// The state it was asked to have.
    pub requested: bool,
    /// What stands in the way.
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not {}: {}", self.feature, word(self.requested), self.reason)
    }
}

/// Why a setting could not be met. Where a change had been begun, it is undone again, or the error is
/// [`SettingError::NotRestored`].
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// The text is no setting.
    #[error(
        "'{text}' is not a setting: {problem}; write [client:|server:|both:]nic.FEATURE=on|off, as in nic.tso=off"
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
    /// Two settings ask for opposite states of one feature.
    #[error("{first} and {second} contradict each other: both decide {feature}; leave one out")]
    Conflict {
        /// The earlier one.
        first: String,
        /// The later one.
        second: String,
        /// The feature both decide.
        feature: String,
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
    /// Features changed that nobody named.
    #[error("on {device} this also changes {}; everything is as it was before; name those features too, or accept with --allow-side-effects", list(.changes))]
    SideEffects {
        /// The device.
        device: String,
        /// The changes not asked for.
        changes: Vec<FeatureChange>,
    },
    /// Somebody else changed the device while haul held it.
    #[error("somebody else changed {device} during the measurement: {}; stop what manages this device, and repeat", list(.changes))]
    Foreign {
        /// The device.
        device: String,
        /// What differs from the state haul left.
        changes: Vec<FeatureChange>,
    },
    /// The kernel does not let this user.
    #[error(
        "not allowed to change features of {device}: {source}; run as root, or measure in the lab (TARGET lab), which needs no privilege"
    )]
    NotPermitted {
        /// The device.
        device: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Another haul that is running holds a feature.
    #[error("{} of {device} {} held by another haul, process {pid}; wait until it ends, or stop it", list(.features), if .features.len() == 1 { "is" } else { "are" })]
    Held {
        /// The device.
        device: String,
        /// The features both want.
        features: Vec<String>,
        /// The other's process.
        pid: u32,
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
    #[error("{device} has no carrier {} s after its features were changed; everything is as it was before; check the cable and the peer", .after.as_secs())]
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
    #[error("{device} could not be put back: {problem}; {} should be as told in {}; try `haul settings restore`", list(.features), .journal.display())]
    NotRestored {
        /// The device.
        device: String,
        /// The features that are not as they were.
        features: Vec<String>,
        /// What went wrong.
        problem: String,
        /// The journal that tells what was there.
        journal: PathBuf,
    },
    /// Features are asked for as before haul's change, and yet not in force as before.
    #[error("{device} is asked for what it was asked for before, but {} {} not in force as before: something else changed in the meantime; look at `ethtool -k {device}`", list(.features), if .features.len() == 1 { "is" } else { "are" })]
    Unlike {
        /// The device.
        device: String,
        /// The features that differ.
        features: Vec<String>,
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

/// The features of one device a setting decides.
///
/// A group set `on` needs one feature that can be on; set `off`, none may stay on. A feature that cannot be changed but
/// is as asked is met and needs nothing.
fn resolve(setting: &Setting, device: &str, features: &Features) -> Result<Vec<String>, SettingError> {
    let text = setting.to_string();
    let group = GROUPS.iter().find(|(names, _)| names.contains(&setting.feature.as_str()));
    let members: Vec<&String> = match group {
        _ if features.knows(&setting.feature) => vec![&setting.feature],
        Some((_, pattern)) => features.names.iter().filter(|name| matches(pattern, name)).collect(),
        None => Vec::new(),
    };
    if members.is_empty() {
        let groups = GROUPS.iter().flat_map(|(names, _)| names.iter().copied());
        let near = suggestion(&setting.feature, features.names.iter().map(String::as_str).chain(groups));
        let changeable = features.names.iter().filter(|name| features.is_changeable(name)).cloned().collect();
        return Err(SettingError::Unknown { setting: text, device: device.to_owned(), near, changeable });
    }
    let one_can_be_met =
        members.iter().any(|name| features.is_changeable(name) || features.is_active(name) == setting.on);
    let changeable = |name: &&String| features.is_changeable(name);
    let (can, fixed): (Vec<&String>, Vec<&String>) = members.into_iter().partition(changeable);
    let contrary = fixed.into_iter().filter(|name| features.is_active(name) != setting.on);
    let contrary: Vec<String> = contrary.cloned().collect();
    let enough = setting.on && one_can_be_met;
    if !enough && !contrary.is_empty() {
        let device = device.to_owned();
        return Err(SettingError::Fixed { setting: text, device, features: contrary, on: setting.on });
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

/// The most similar of `names`, where one is similar enough to be a slip of the keyboard.
fn suggestion<'a>(text: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    /// The threshold clap uses for its own suggestions.
    const SIMILAR: f64 = 0.8;
    names
        .map(|name| (strsim::jaro_winkler(text, name), name))
        .filter(|(likeness, _)| *likeness > SIMILAR)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, name)| name.to_owned())
}

fn did_you_mean(near: Option<&str>) -> String {
    near.map_or_else(String::new, |near| format!(" (did you mean '{near}'?)"))
}

fn can_change(changeable: &[String]) -> String {
    if changeable.is_empty() {
        "none of its features can be changed".to_owned()
    } else {
        format!("it can change {}", list(changeable))
    }
}

fn list<T: fmt::Display>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn word(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_reads_and_prints_the_same() {
        for (text, end, feature, on, printed) in [
            ("nic.tso=off", End::Client, "tso", false, "nic.tso=off"),
            ("client:nic.tx-nocache-copy=on", End::Client, "tx-nocache-copy", true, "nic.tx-nocache-copy=on"),
            ("server:nic.rx-gro=on", End::Server, "rx-gro", true, "server:nic.rx-gro=on"),
            (
                "both:nic.tx-udp_tnl-segmentation=off",
                End::Both,
                "tx-udp_tnl-segmentation",
                false,
                "both:nic.tx-udp_tnl-segmentation=off",
            ),
        ] {
            let setting: Setting = text.parse().unwrap();
            assert_eq!(setting, Setting { end, feature: feature.to_owned(), on });
            assert_eq!(setting.to_string(), printed);
            assert_eq!(printed.parse::<Setting>().unwrap(), setting);
            let json = serde_json::to_string(&setting).unwrap();
            assert_eq!(json, format!("\"{printed}\""));
            assert_eq!(serde_json::from_str::<Setting>(&json).unwrap(), setting);
        }
    }

    #[test]
    fn a_text_that_is_no_setting_is_answered_with_what_is_wrong_and_the_form() {
        for (text, expected) in [
            ("nic.tso", "lacks '=on' or '=off'"),
            ("nic.tso=1", "'on' or 'off', not '1'"),
            ("tso=on", "begin with 'nic.'"),
            ("sysctl.x=1", "begin with 'nic.'"),
            ("nic.=on", "cannot be the name"),
            ("nic.a b=on", "cannot be the name"),
            ("sever:nic.tso=on", "did you mean 'server'?"),
            ("", "lacks '=on' or '=off'"),
            (":=", "there is no end ''"),
        ] {
            let error = text.parse::<Setting>().unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("nic.tso=off"), "{text}: {error}");
        }
    }

    #[test]
    fn an_end_includes_itself_and_both_includes_each() {
        assert!(End::Both.includes(End::Client) && End::Both.includes(End::Server));
        assert!(End::Client.includes(End::Client) && !End::Client.includes(End::Server));
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
            let found = resolve(&text.parse().unwrap(), "eth0", &device()).unwrap();
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
            let error = resolve(&text.parse().unwrap(), "eth0", &device()).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
