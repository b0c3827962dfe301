//! The text of a setting: `[client:|server:|both:]OBJECT=VALUE`.
//!
//! Hides how an object is spelt and which values it can have at all; what a device or a host makes of it is
//! [`super::expand`]'s. A value that has commas of its own, as a list of CPUs has, needs no quotes; one with `=`, or with
//! blanks at its ends, stands in single ones, where `\'` and `\\` are the characters themselves. A hook has two values:
//! `exec:'on command','off command'`.
//!
//! Names: ethtool(8), sysctl(8) with either separator, `Documentation/networking/scaling.rst` (rps, xps, rfs),
//! `Documentation/networking/napi.rst`, `Documentation/admin-guide/pm/`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::error::{SettingError, did_you_mean, suggestion};
use crate::ethtool::{self, Group};

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

/// How far a setting reaches, which decides who may ask for it from afar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// The path of packets and the CPUs that work on it.
    Path,
    /// Anything: a command, a module, a file, a sysctl that is not the network's. Who may set these may run programs as
    /// root (`kernel.core_pattern`).
    Anything,
}

/// What is set.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Object {
    /// `nic.FEATURE`, or one of ethtool's group names.
    Feature(String),
    /// `nic.coalesce.rx-usecs` and the like.
    Number(Group, String),
    /// `nic.private.FLAG`.
    Private(String),
    /// `nic.mtu`, bytes.
    Mtu,
    /// `nic.txqueuelen`, packets.
    TxQueueLen,
    /// `nic.napi.NAME`.
    Napi(Napi),
    /// `nic.rps=CPUS`: which CPUs take packets from every receive queue.
    Rps,
    /// `nic.xps=CPUS`: which CPUs use every transmit queue.
    Xps,
    /// `nic.rfs=ENTRIES`: flows remembered, over all receive queues.
    Rfs,
    /// `qdisc=KIND [NAME VALUE]…`.
    Qdisc,
    /// `sysctl.KEY`, as a path below `/proc/sys`.
    Sysctl(String),
    /// `irq.affinity=CPUS`: of every interrupt of the device; `irq.N.affinity`: of one.
    Affinity(Option<u32>),
    /// `cpu.governor`.
    Governor,
    /// `cpu.idle-states=on|off|LATENCY`.
    IdleStates,
    /// `cpu.turbo=on|off`.
    Turbo,
    /// `thp=always|madvise|never`.
    Thp,
    /// `module.NAME.PARAMETER`.
    Module(String, String),
    /// `sys:/PATH`, below `/sys`, or `/proc/…` whole.
    Sys(String),
    /// `boot.PARAMETER`: only the boot loader can.
    Boot(String),
    /// `exec:'on','off'`; the value is the first command, this the second.
    Exec(String),
}

/// What of NAPI can be set for a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Napi {
    Threaded,
    DeferHardIrqs,
    GroFlushTimeout,
    IrqSuspendTimeout,
}

impl Napi {
    const ALL: [(&str, Self); 4] = [
        ("threaded", Self::Threaded),
        ("defer-hard-irqs", Self::DeferHardIrqs),
        ("gro-flush-timeout", Self::GroFlushTimeout),
        ("irq-suspend-timeout", Self::IrqSuspendTimeout),
    ];

    pub(super) fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, napi)| *napi == self).map_or("", |(word, _)| word)
    }
}

/// An object, the state it shall have, and where.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Setting {
    /// Where.
    pub end: End,
    pub(super) object: Object,
    pub(super) value: String,
}

impl Setting {
    /// How far it reaches.
    #[must_use]
    pub fn reach(&self) -> Reach {
        match &self.object {
            Object::Sysctl(path) if !path.starts_with("net/") => Reach::Anything,
            Object::Module(..) | Object::Sys(_) | Object::Exec(_) | Object::Thp => Reach::Anything,
            _ => Reach::Path,
        }
    }

    /// The same for another end.
    #[must_use]
    pub fn at(self, end: End) -> Self {
        Self { end, ..self }
    }

    /// What is set and where, without the state: `client:nic.tso`. Two settings with the same one contradict each other.
    #[must_use]
    pub fn target(&self) -> String {
        let end = match self.end {
            End::Client => "client",
            End::Server => "server",
            End::Both => "both",
        };
        format!("{end}:{}", self.object)
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Feature(name) => write!(f, "nic.{name}"),
            Self::Number(group, name) => write!(f, "nic.{}.{name}", group.word()),
            Self::Private(name) => write!(f, "nic.private.{name}"),
            Self::Mtu => f.write_str("nic.mtu"),
            Self::TxQueueLen => f.write_str("nic.txqueuelen"),
            Self::Napi(napi) => write!(f, "nic.napi.{}", napi.word()),
            Self::Rps => f.write_str("nic.rps"),
            Self::Xps => f.write_str("nic.xps"),
            Self::Rfs => f.write_str("nic.rfs"),
            Self::Qdisc => f.write_str("qdisc"),
            Self::Sysctl(path) => write!(f, "sysctl.{}", sysctl_name(path)),
            Self::Affinity(None) => f.write_str("irq.affinity"),
            Self::Affinity(Some(number)) => write!(f, "irq.{number}.affinity"),
            Self::Governor => f.write_str("cpu.governor"),
            Self::IdleStates => f.write_str("cpu.idle-states"),
            Self::Turbo => f.write_str("cpu.turbo"),
            Self::Thp => f.write_str("thp"),
            Self::Module(module, parameter) => write!(f, "module.{module}.{parameter}"),
            Self::Sys(path) => write!(f, "sys:{path}"),
            Self::Boot(parameter) => write!(f, "boot.{parameter}"),
            Self::Exec(off) => write!(f, "exec:…,{}", quoted(off)),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.end {
            End::Client => "",
            End::Server => "server:",
            End::Both => "both:",
        })?;
        let value = &self.value;
        match &self.object {
            Object::Exec(off) => write!(f, "exec:{},{}", quoted(value), quoted(off)),
            object if plain(value) => write!(f, "{object}={value}"),
            object => write!(f, "{object}={}", quoted(value)),
        }
    }
}

/// Whether a value means itself without quotes, also in a list of settings.
fn plain(value: &str) -> bool {
    !value.is_empty()
        && value.trim() == value
        && !value.contains(['=', '\'', '\\'])
        && !value.starts_with(',')
        && !value.ends_with(',')
        && !value.contains(",,")
        && !value.contains(",exec:")
}

/// `'text'`, with `\'` and `\\` inside.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// The text in the quotes `text` begins with, and what follows them.
pub(super) fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut inside = String::new();
    let mut characters = text.strip_prefix('\'')?.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '\\' => inside.push(characters.next()?.1),
            '\'' => return Some((inside, &text[at + 2..])),
            c => inside.push(c),
        }
    }
    None
}

/// Cuts a list of settings at the commas outside quotes.
#[must_use]
pub fn split_list(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '\'' => quoted = !quoted,
            ',' if !quoted => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// The key of a path below `/proc/sys`. Where a part has a dot in it, as `eth0.5` has, the slashes stay (sysctl(8)).
pub(super) fn sysctl_name(path: &str) -> String {
    if path.contains('.') { path.to_owned() } else { path.replace('/', ".") }
}

impl FromStr for Setting {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let wrong = |problem: String| SettingError::Syntax { text: text.to_owned(), problem };
        let (end, rest) = match text.split_once(':') {
            Some(("client", rest)) => (End::Client, rest),
            Some(("server", rest)) => (End::Server, rest),
            Some(("both", rest)) => (End::Both, rest),
            Some((end, _)) if is_end_like(end) => {
                let near = suggestion(end, ["client", "server", "both", "exec", "sys"].into_iter());
                return Err(wrong(format!("there is no end '{end}'{}", did_you_mean(near.as_deref()))));
            }
            _ => (End::Client, text),
        };
        if let Some(commands) = rest.strip_prefix("exec:") {
            let (on, off) = hooks(commands).map_err(wrong)?;
            return Ok(Self { end, object: Object::Exec(off), value: on });
        }
        let Some((object, value)) = rest.split_once('=') else {
            return Err(wrong("it lacks '=' and the state it shall have".to_owned()));
        };
        let object = object_of(object).map_err(wrong)?;
        let value = match value.starts_with('\'').then(|| unquoted(value)) {
            None => value.to_owned(),
            Some(Some((value, ""))) => value,
            Some(_) => return Err(wrong("the quotes around its value do not close at its end".to_owned())),
        };
        let value = canonical(&object, &value).map_err(wrong)?;
        Ok(Self { end, object, value })
    }
}

/// Whether what stands before the first colon was meant as an end.
fn is_end_like(text: &str) -> bool {
    !matches!(text, "exec" | "sys") && !text.contains(['=', '.', '/', '\''])
}

fn hooks(text: &str) -> Result<(String, String), String> {
    let form = || "a hook is exec:'on command','off command'".to_owned();
    let (on, rest) = unquoted(text).ok_or_else(form)?;
    let (off, rest) = rest.strip_prefix(',').and_then(unquoted).ok_or_else(form)?;
    if !rest.is_empty() || on.trim().is_empty() || off.trim().is_empty() {
        return Err(format!("{}; write 'true' for a command that does nothing", form()));
    }
    Ok((on, off))
}

/// The first words of every object.
const FAMILIES: [&str; 9] = ["nic", "qdisc", "sysctl", "irq", "cpu", "thp", "module", "sys", "boot"];

fn object_of(text: &str) -> Result<Object, String> {
    let (family, name) = text.split_once('.').unwrap_or((text, ""));
    let fits = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    match (family, name) {
        ("qdisc", "") => Ok(Object::Qdisc),
        ("thp", "") => Ok(Object::Thp),
        ("nic", _) => nic(name),
        ("sysctl", _) => Ok(Object::Sysctl(sysctl_path(name)?)),
        ("irq", "affinity") => Ok(Object::Affinity(None)),
        ("irq", _) => name
            .strip_suffix(".affinity")
            .and_then(|number| number.parse().ok())
            .map(|number| Object::Affinity(Some(number)))
            .ok_or_else(|| "interrupts have irq.affinity, or irq.NUMBER.affinity".to_owned()),
        ("cpu", "governor") => Ok(Object::Governor),
        ("cpu", "idle-states") => Ok(Object::IdleStates),
        ("cpu", "turbo") => Ok(Object::Turbo),
        ("cpu", _) => Err("CPUs have cpu.governor, cpu.idle-states and cpu.turbo".to_owned()),
        ("module", _) => match name.split_once('.') {
            Some((module, parameter)) if fits(module) && fits(parameter) => {
                Ok(Object::Module(module.replace('-', "_"), parameter.to_owned()))
            }
            _ => Err("a parameter of a module is module.NAME.PARAMETER".to_owned()),
        },
        ("boot", _) if !name.is_empty() => Ok(Object::Boot(name.to_owned())),
        _ => {
            if let Some(path) = text.strip_prefix("sys:") {
                return Ok(Object::Sys(sys_path(path)?));
            }
            let near = suggestion(family, FAMILIES.into_iter());
            Err(format!(
                "haul sets nic.…, qdisc, sysctl.…, irq.affinity, cpu.…, thp, module.…, sys:/… and exec:…, not \
                 '{text}'{}",
                did_you_mean(near.as_deref())
            ))
        }
    }
}

fn nic(name: &str) -> Result<Object, String> {
    // A device, not this parser, knows its features and flags; these characters are those of every name the kernel has.
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    match name.split_once('.') {
        None => match name {
            "mtu" => Ok(Object::Mtu),
            "txqueuelen" => Ok(Object::TxQueueLen),
            "rps" => Ok(Object::Rps),
            "xps" => Ok(Object::Xps),
            "rfs" => Ok(Object::Rfs),
            _ if name.is_empty() || !name.chars().all(fits) => {
                Err(format!("'{name}' cannot be the name of a feature"))
            }
            _ => Ok(Object::Feature(name.to_owned())),
        },
        Some(("private", flag)) if !flag.is_empty() && !flag.contains(char::is_control) => {
            Ok(Object::Private(flag.to_owned()))
        }
        Some(("napi", knob)) => {
            let found = Napi::ALL.into_iter().find(|(word, _)| *word == knob);
            let all = || Napi::ALL.map(|(word, _)| word).join(", ");
            found
                .map(|(_, napi)| Object::Napi(napi))
                .ok_or_else(|| format!("NAPI has {}, not '{knob}'", all()))
        }
        Some((family, number)) => {
            let Some(group) = Group::ALL.into_iter().find(|group| group.word() == family) else {
                let words = Group::ALL.into_iter().map(Group::word).chain(["napi", "private"]);
                let near = suggestion(family, words);
                return Err(format!("a NIC has no group '{family}'{}", did_you_mean(near.as_deref())));
            };
            let names = ethtool::settable(group);
            if names.contains(&number) {
                return Ok(Object::Number(group, number.to_owned()));
            }
            let near = suggestion(number, names.iter().copied());
            Err(format!(
                "{family} has no '{number}'{}: it has {}",
                did_you_mean(near.as_deref()),
                names.join(", ")
            ))
        }
    }
}

fn sysctl_path(key: &str) -> Result<String, String> {
    // As sysctl(8): whichever separator comes first is the separator.
    let path = match key.find(['.', '/']) {
        Some(at) if key.as_bytes()[at] == b'.' => key
            .chars()
            .map(|c| {
                if c == '.' {
                    '/'
                } else if c == '/' {
                    '.'
                } else {
                    c
                }
            })
            .collect(),
        _ => key.to_owned(),
    };
    let fits = |part: &str| {
        !part.is_empty() && part != ".." && part != "." && part.chars().all(|c| c.is_ascii_graphic())
    };
    if path.split('/').count() > 1 && path.split('/').all(fits) {
        Ok(path)
    } else {
        Err(format!("'{key}' cannot be the key of a sysctl, such as net.ipv4.tcp_rmem"))
    }
}

fn sys_path(path: &str) -> Result<String, String> {
    let below =
        path.strip_prefix("/sys/").or_else(|| path.strip_prefix('/').filter(|p| !p.starts_with("proc/")));
    let whole = match below {
        Some(below) => format!("/{below}"),
        None => path.to_owned(),
    };
    let clean = whole.starts_with('/')
        && whole.len() > 1
        && whole[1..].split('/').all(|part| !part.is_empty() && part != "." && part != "..")
        && !whole.contains(char::is_control);
    // Whose it is depends on who opens it, and who puts it back is another one.
    let own = whole.strip_prefix("/proc/").is_some_and(|below| {
        let first = below.split('/').next().unwrap_or_default();
        matches!(first, "self" | "thread-self") || first.bytes().all(|byte| byte.is_ascii_digit())
    });
    (clean && !own)
        .then_some(whole)
        .ok_or_else(|| format!("'{path}' cannot be a file of /sys, such as sys:/kernel/mm/ksm/run"))
}

/// The one spelling of a value, or why an object cannot have it anywhere.
fn canonical(object: &Object, value: &str) -> Result<String, String> {
    let one_of = |words: &[&str], what: &str| {
        if words.contains(&value) {
            Ok(value.to_owned())
        } else {
            Err(format!("{what} is {}, not '{value}'", words.join(" or ")))
        }
    };
    let number = |what: &str| {
        let number = value.parse::<u64>().map_err(|_| format!("{what} is a number, not '{value}'"))?;
        Ok(number.to_string())
    };
    match object {
        Object::Feature(name) => {
            one_of(&["on", "off"], &format!("'{name}' would be a feature of the NIC, and a feature"))
        }
        Object::Private(_) => one_of(&["on", "off"], "a private flag"),
        Object::Turbo => one_of(&["on", "off"], "turbo"),
        Object::Thp => one_of(&["always", "madvise", "never"], "thp"),
        Object::Number(_, name) => match value {
            "on" => Ok("1".to_owned()),
            "off" => Ok("0".to_owned()),
            _ => number(name),
        },
        Object::Napi(Napi::Threaded) => match value {
            "on" | "1" => Ok("1".to_owned()),
            "off" | "0" => Ok("0".to_owned()),
            _ => Err(format!("threaded NAPI is on or off, not '{value}'")),
        },
        Object::Napi(napi) => number(napi.word()),
        Object::Mtu => number("an MTU"),
        Object::TxQueueLen => number("a queue length"),
        Object::Rfs => number("a number of flows"),
        Object::Rps | Object::Xps | Object::Affinity(_) => match value {
            "off" if !matches!(object, Object::Affinity(_)) => Ok(value.to_owned()),
            _ => super::cpus::Cpus::parse(value).map(|cpus| cpus.list()),
        },
        Object::IdleStates if matches!(value, "on" | "off") => Ok(value.to_owned()),
        Object::IdleStates => number("the idle states' longest exit latency in microseconds, or on or off,"),
        Object::Qdisc => crate::qdisc::parse(value).map(|_| one_blank(value)),
        Object::Governor if value.is_empty() || value.contains(char::is_whitespace) => {
            Err(format!("'{value}' cannot be a governor"))
        }
        // An empty sysctl is one that was emptied (net.ipv4.ip_local_reserved_ports).
        Object::Sysctl(_) | Object::Sys(_) | Object::Module(..) if value.contains(['\n', '\0']) => {
            Err("its value has more than one line".to_owned())
        }
        Object::Sysctl(_) => Ok(one_blank(value)),
        _ => Ok(value.trim().to_owned()),
    }
}

/// The words of `text` with one blank between them.
pub(super) fn one_blank(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_setting_reads_and_prints_the_same() {
        for (text, printed) in [
            ("nic.tso=off", "nic.tso=off"),
            ("client:nic.tx-nocache-copy=on", "nic.tx-nocache-copy=on"),
            ("server:nic.rx-gro=on", "server:nic.rx-gro=on"),
            ("both:nic.tx-udp_tnl-segmentation=off", "both:nic.tx-udp_tnl-segmentation=off"),
            ("nic.coalesce.adaptive-rx=off", "nic.coalesce.adaptive-rx=0"),
            ("nic.coalesce.rx-usecs=08", "nic.coalesce.rx-usecs=8"),
            ("nic.ring.rx=4096", "nic.ring.rx=4096"),
            ("nic.channels.combined=2", "nic.channels.combined=2"),
            ("nic.pause.rx=on", "nic.pause.rx=1"),
            ("nic.mtu=9000", "nic.mtu=9000"),
            ("nic.napi.threaded=on", "nic.napi.threaded=1"),
            ("nic.rps=0-2,5", "nic.rps=0-2,5"),
            ("nic.xps=off", "nic.xps=off"),
            ("nic.private.legacy rx=off", "nic.private.legacy rx=off"),
            ("qdisc=fq_codel  limit 100", "qdisc=fq_codel limit 100"),
            ("sysctl.net.ipv4.tcp_rmem=4096 131072 6291456", "sysctl.net.ipv4.tcp_rmem=4096 131072 6291456"),
            ("sysctl.net/ipv4/conf/eth0.5/rp_filter=0", "sysctl.net/ipv4/conf/eth0.5/rp_filter=0"),
            ("sysctl.net.ipv4.conf.eth0/5.rp_filter=0", "sysctl.net/ipv4/conf/eth0.5/rp_filter=0"),
            ("sysctl.kernel.x='a=b'", "sysctl.kernel.x='a=b'"),
            ("irq.affinity=0,1", "irq.affinity=0-1"),
            ("irq.44.affinity=1", "irq.44.affinity=1"),
            ("cpu.governor=performance", "cpu.governor=performance"),
            ("cpu.idle-states=20", "cpu.idle-states=20"),
            ("thp=never", "thp=never"),
            ("module.tcp-cubic.hystart=0", "module.tcp_cubic.hystart=0"),
            ("sys:/kernel/mm/ksm/run=1", "sys:/kernel/mm/ksm/run=1"),
            ("sys:/sys/kernel/mm/ksm/run=1", "sys:/kernel/mm/ksm/run=1"),
            ("boot.mitigations=off", "boot.mitigations=off"),
            ("server:exec:'a \\'b\\', c','true'", "server:exec:'a \\'b\\', c','true'"),
        ] {
            let setting: Setting = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(setting.to_string(), printed);
            assert_eq!(printed.parse::<Setting>().unwrap(), setting);
            let json = serde_json::to_string(&setting).unwrap();
            assert_eq!(serde_json::from_str::<Setting>(&json).unwrap(), setting);
        }
    }

    #[test]
    fn a_text_that_is_no_setting_is_answered_with_what_is_wrong_and_the_form() {
        for (text, expected) in [
            ("nic.tso", "lacks '='"),
            ("nic.tso=1", "on or off, not '1'"),
            ("tso=on", "haul sets nic."),
            ("sysctlx.net.core=1", "did you mean 'sysctl'?"),
            ("nic.=on", "cannot be the name"),
            ("nic.a b=on", "cannot be the name"),
            ("nic.coalesce.rx-usec=3", "did you mean 'rx-usecs'?"),
            ("nic.coalese.rx-usecs=3", "did you mean 'coalesce'?"),
            ("nic.ring.rx=many", "is a number"),
            ("nic.napi.deferral=1", "NAPI has threaded"),
            ("nic.rps=x", "CPUs"),
            ("irq.affinity=off", "CPUs"),
            ("sysctl.x=1", "cannot be the key"),
            ("sysctl.net/../../etc/passwd=1", "cannot be the key"),
            ("sys:/../etc/passwd=1", "cannot be a file of /sys"),
            ("sys:kernel=1", "cannot be a file of /sys"),
            ("sys:/proc/self/root/etc/passwd=1", "cannot be a file of /sys"),
            ("sys:/proc/1/oom_score_adj=1", "cannot be a file of /sys"),
            ("cpu.governer=x", "cpu.governor"),
            ("thp=on", "always or madvise or never"),
            ("module.tcp_cubic=1", "module.NAME.PARAMETER"),
            ("qdisc=frob", "frob"),
            ("exec:'a'", "exec:'on command','off command'"),
            ("exec:'a','b'c", "exec:'on command','off command'"),
            ("exec:'','b'", "does nothing"),
            ("sysctl.net.ipv4.x='a", "do not close"),
            ("sever:nic.tso=on", "did you mean 'server'?"),
            ("", "lacks '='"),
            (":=", "there is no end ''"),
        ] {
            let error = text.parse::<Setting>().unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("nic.tso=off"), "{text}: {error}");
        }
    }

    #[test]
    fn what_may_run_programs_reaches_further_than_the_path() {
        for (text, reach) in [
            ("nic.tso=on", Reach::Path),
            ("qdisc=fq_codel", Reach::Path),
            ("sysctl.net.core.rmem_max=1", Reach::Path),
            ("irq.affinity=0", Reach::Path),
            ("sysctl.kernel.core_pattern=x", Reach::Anything),
            ("module.a.b=1", Reach::Anything),
            ("sys:/kernel/uevent_helper=x", Reach::Anything),
            ("thp=never", Reach::Anything),
            ("exec:'a','b'", Reach::Anything),
        ] {
            assert_eq!(text.parse::<Setting>().unwrap().reach(), reach, "{text}");
        }
    }

    #[test]
    fn an_end_includes_itself_and_both_includes_each() {
        assert!(End::Both.includes(End::Client) && End::Both.includes(End::Server));
        assert!(End::Client.includes(End::Client) && !End::Client.includes(End::Server));
    }

    #[test]
    fn a_list_is_cut_outside_quotes_only() {
        for (text, parts) in [
            ("a,b", vec!["a", "b"]),
            ("", vec![""]),
            ("exec:'x,\\'y,','z',n=1", vec!["exec:'x,\\'y,'", "'z'", "n=1"]),
        ] {
            assert_eq!(split_list(text), parts);
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,60}") {
            let _ = text.parse::<Setting>();
            let _ = split_list(&text);
        }

        #[test]
        fn what_reads_reads_back(text in "(server:)?(sysctl\\.net\\.a|sys:/a/b|module\\.a\\.b)=(\\PC{0,20}|'\\PC{0,10}')") {
            if let Ok(setting) = text.parse::<Setting>() {
                prop_assert_eq!(setting.to_string().parse::<Setting>().unwrap(), setting);
            }
        }

        #[test]
        fn any_two_commands_are_read_back(on in "\\PC{1,20}", off in "\\PC{1,20}") {
            let text = format!("exec:{},{}", quoted(&on), quoted(&off));
            if let Ok(setting) = text.parse::<Setting>() {
                prop_assert_eq!(&setting.value, &on);
                prop_assert_eq!(setting.to_string(), text);
            }
        }
    }
}
