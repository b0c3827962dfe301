//! An arm: one variant of a comparison, written `NAME:spec[,spec…]`.
//!
//! A spec is a setting of a host (`nic.tso=on`, `server:nic.gro=off`) or an option of the workload (`opt.message=1K`).
//! `NAME:` alone is the arm that changes nothing: the hosts as they are found. A part without `=` belongs to the value
//! before it, so that `opt.pin=0,1` needs no quoting.

use std::fmt;
use std::str::FromStr;

use haul_host::settings::{Setting, split_list};
use haul_workload::RunSpec;

use crate::error::LabError;
use crate::option;

/// One variant of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Arm {
    /// Its name in the record and the tables.
    pub name: String,
    /// What it changes on the hosts.
    pub settings: Vec<Setting>,
    /// What it changes in the workload: option and value.
    pub options: Vec<(String, String)>,
}

impl Arm {
    /// The workload as this arm runs it, not yet checked as a whole.
    ///
    /// # Errors
    /// [`LabError::Option`] where an option cannot take its value.
    pub fn specify(&self, base: &RunSpec) -> Result<RunSpec, LabError> {
        let mut spec = base.clone();
        for (key, value) in &self.options {
            option::assign(&mut spec, key, value)?;
        }
        Ok(spec)
    }

    /// The objects it changes, by end: two specs with the same object contradict each other.
    fn objects(&self) -> Vec<String> {
        let settings = self.settings.iter().flat_map(|setting| {
            let target = setting.target();
            match target.strip_prefix("both:") {
                Some(object) => vec![format!("client:{object}"), format!("server:{object}")],
                None => vec![target],
            }
        });
        settings.chain(self.options.iter().map(|(key, _)| format!("opt.{key}"))).collect()
    }
}

impl FromStr for Arm {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Self, LabError> {
        let bad = |why: String| LabError::Arm { text: text.to_owned(), why };
        let Some((name, specs)) = text.split_once(':') else {
            return Err(bad(format!(
                "a ':' must follow the name; write '{text}:' for an arm that changes nothing"
            )));
        };
        if !is_name(name) {
            let wanted = "a name of letters, digits, '.', '_' and '-' must come first, as in off:nic.tso=off";
            return Err(bad(wanted.to_owned()));
        }
        // `server:nic.gro=off` would otherwise be an arm that changes the *client*.
        if matches!(name, "client" | "server" | "both") {
            return Err(bad(format!("'{name}' names an end, not an arm: write NAME:{text}")));
        }
        let mut arm = Self { name: name.to_owned(), settings: Vec::new(), options: Vec::new() };
        for spec in parts(specs).map_err(&bad)? {
            let option = spec.strip_prefix("opt.").map(|rest| rest.split_once('=').unwrap_or((rest, "")));
            match option {
                Some((key, value)) => {
                    option::try_alone(key, value).map_err(|error| bad(error.to_string()))?;
                    arm.options.push((key.to_owned(), value.to_owned()));
                }
                None => arm.settings.push(spec.parse().map_err(|error| bad(format!("{error}")))?),
            }
        }
        let mut objects = arm.objects();
        objects.sort();
        if let Some([twice, _]) = objects.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(bad(format!("it sets {twice} twice: name each object once")));
        }
        Ok(arm)
    }
}

impl fmt::Display for Arm {
    /// As it is written on the command line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.name)?;
        let settings = self.settings.iter().map(ToString::to_string);
        let options = self.options.iter().map(|(key, value)| format!("opt.{key}={value}"));
        f.write_str(&settings.chain(options).collect::<Vec<_>>().join(","))
    }
}

/// Whether a text can name an arm.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// Whether a part is a spec and not more of the value before it. A hook has no `=` but in its commands.
fn begins_a_spec(part: &str) -> bool {
    let object = part.split_once('\'').map_or(part, |(object, _)| object);
    let hook = ["exec:", "client:exec:", "server:exec:", "both:exec:"].contains(&object);
    hook || object.contains('=')
}

/// Cuts at the commas that separate specs; a part that begins none is more of the value before it.
fn parts(specs: &str) -> Result<Vec<String>, String> {
    let mut parts: Vec<String> = Vec::new();
    if specs.is_empty() {
        return Ok(parts);
    }
    for part in split_list(specs) {
        match parts.last_mut() {
            _ if begins_a_spec(part) => parts.push(part.to_owned()),
            Some(last) if !part.is_empty() => {
                last.push(',');
                last.push_str(part);
            }
            _ => return Err(format!("'{part}' is no change: write nic.FEATURE=on, or opt.NAME=VALUE")),
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_arm_reads_settings_and_options_and_writes_them_back() {
        for (text, settings, options) in [
            ("off:nic.tx-nocache-copy=off", 1, 0),
            ("plain:", 0, 0),
            ("a.b_c-1:server:nic.gro=off,nic.tso=on", 2, 0),
            ("small:opt.message=1K", 0, 1),
            ("mix:both:nic.tso=off,opt.pin=0,1,opt.cc=reno", 1, 2),
            (
                "rx:nic.rps=0,1,nic.coalesce.rx-usecs=8,server:sysctl.net.ipv4.tcp_rmem=4096 131072 6291456",
                3,
                0,
            ),
            ("hook:server:exec:'a=1, b','true',exec:'c','d',nic.tso=on", 3, 0),
        ] {
            let arm: Arm = text.parse().unwrap();
            assert_eq!((arm.settings.len(), arm.options.len()), (settings, options), "{text}");
            let again: Arm = arm.to_string().parse().unwrap();
            assert_eq!(again, arm, "{text} came back as {arm}");
        }
        let arm: Arm = "mix:opt.pin=0,1,opt.message=1K".parse().unwrap();
        let spec = arm.specify(&RunSpec::default()).unwrap();
        assert_eq!((spec.message.0, spec.pin), (1024, option::pin("0,1").unwrap()));
    }

    #[test]
    fn an_arm_that_cannot_be_read_names_the_text_and_the_remedy() {
        for (text, needle) in [
            ("off", "write 'off:'"),
            ("nic.tso=on", "a ':' must follow the name"),
            (":nic.tso=on", "a name of letters"),
            ("a b:nic.tso=on", "a name of letters"),
            ("server:nic.gro=off", "write NAME:server:nic.gro=off"),
            ("x:tso", "'tso' is no change"),
            ("x:,nic.tso=on", "is no change"),
            ("x:nic.tso=on,", "is no change"),
            ("x:opt.mesage=1K", "the options are message"),
            ("x:opt.message=huge", "not a size"),
            ("x:opt.time=5s", "--time"),
            ("x:nic.tso=maybe", "nic.tso"),
            ("x:nic.tso=on,nic.tso=off", "sets client:nic.tso twice"),
            ("x:nic.tso=on,both:nic.tso=on", "sets client:nic.tso twice"),
            ("x:opt.cc=reno,opt.cc=cubic", "sets opt.cc twice"),
        ] {
            let error = text.parse::<Arm>().unwrap_err();
            assert_eq!(error.exit(), 2, "{text}");
            let error = error.to_string();
            assert!(error.contains(needle) && error.contains(text), "{text}: {error}");
        }
        assert!("x:client:nic.tso=on,server:nic.tso=off".parse::<Arm>().is_ok(), "two hosts are two objects");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _ = text.parse::<Arm>();
        }

        #[test]
        fn what_was_read_reads_back(text in "[a-z]{1,4}:(nic\\.(tso|gro)=(on|off)|opt\\.(message=1K|cc=reno|pin=0,1))?") {
            let arm: Arm = text.parse().unwrap();
            prop_assert_eq!(arm.to_string().parse::<Arm>().unwrap(), arm);
        }
    }
}
