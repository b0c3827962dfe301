//! Events by name, as `perf` writes them, and what the kernel wants to be asked for them.
//!
//! An [`Event`] is its text. What is the same on every host (the kernel's own events, raw codes) is checked when it is
//! parsed; the numbers of a PMU and of a tracepoint are this boot's of this host, so they are looked up where the event is
//! opened, which may be the other end. Sources: `include/uapi/linux/perf_event.h`, `tools/perf/Documentation/perf-list.txt`,
//! `Documentation/ABI/testing/sysfs-bus-event_source-devices-*`.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{HostError, Named as _, Result};
use crate::thread::CpuList;

/// Something the kernel counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Event {
    text: String,
    what: What,
    modes: Modes,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum What {
    /// One that every kernel knows by the same numbers.
    Known(u32, u64),
    /// The PMU of the CPU, by its maker's code.
    Raw(u64),
    Pmu {
        pmu: String,
        terms: String,
    },
    Tracepoint {
        system: String,
        name: String,
    },
}

/// In which modes an event counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Modes {
    /// Nobody said: all of them.
    Any,
    User,
    Kernel,
    Both,
}

/// `PERF_TYPE_*`.
pub(super) const HARDWARE: u32 = 0;
const SOFTWARE: u32 = 1;
const TRACEPOINT: u32 = 2;
const CACHE: u32 = 3;
const RAW: u32 = 4;

/// `PERF_COUNT_SW_*` that the kernel counts while it is in kernel mode, so that a count of user mode only is 0 whatever happened.
const KERNEL_ONLY: [u64; 3] = [3, 4, 11];
/// `PERF_COUNT_SW_CPU_CLOCK` and `PERF_COUNT_SW_TASK_CLOCK`: time, which is of no mode.
const CLOCKS: [u64; 2] = [0, 1];

/// Names of `PERF_TYPE_HARDWARE` and `PERF_TYPE_SOFTWARE`, as `perf list` has them, the usual one first.
const NAMES: [(&str, u32, u64); 26] = [
    ("cycles", HARDWARE, 0),
    ("cpu-cycles", HARDWARE, 0),
    ("instructions", HARDWARE, 1),
    ("cache-references", HARDWARE, 2),
    ("cache-misses", HARDWARE, 3),
    ("branches", HARDWARE, 4),
    ("branch-instructions", HARDWARE, 4),
    ("branch-misses", HARDWARE, 5),
    ("bus-cycles", HARDWARE, 6),
    ("stalled-cycles-frontend", HARDWARE, 7),
    ("idle-cycles-frontend", HARDWARE, 7),
    ("stalled-cycles-backend", HARDWARE, 8),
    ("idle-cycles-backend", HARDWARE, 8),
    ("ref-cycles", HARDWARE, 9),
    ("cpu-clock", SOFTWARE, 0),
    ("task-clock", SOFTWARE, 1),
    ("page-faults", SOFTWARE, 2),
    ("faults", SOFTWARE, 2),
    ("context-switches", SOFTWARE, 3),
    ("cs", SOFTWARE, 3),
    ("cpu-migrations", SOFTWARE, 4),
    ("migrations", SOFTWARE, 4),
    ("minor-faults", SOFTWARE, 5),
    ("major-faults", SOFTWARE, 6),
    ("alignment-faults", SOFTWARE, 7),
    ("cgroup-switches", SOFTWARE, 11),
];

/// `PERF_COUNT_HW_CACHE_*`, by their place.
const CACHES: [&str; 7] = ["L1-dcache", "L1-icache", "LLC", "dTLB", "iTLB", "branch", "node"];
/// What is done to a cache: `PERF_COUNT_HW_CACHE_OP_*` × 2 + `_RESULT_*`.
const CACHE_OPERATIONS: [&str; 6] =
    ["loads", "load-misses", "stores", "store-misses", "prefetches", "prefetch-misses"];

impl Event {
    /// The event of this name: `cycles`, `LLC-load-misses`, `task-clock`; a raw code `r01c2`; `PMU/TERM=VALUE,…/` or
    /// `PMU/NAME/` as under `/sys/bus/event_source/devices`; a tracepoint `sched:sched_switch`. With `:u`, `:k` or `:uk` it
    /// counts in user mode, in the kernel or in both only. Of a PMU and of a tracepoint only the form is checked: see
    /// [`Event::check`].
    ///
    /// # Errors
    /// [`HostError::Invalid`] for what has no such form, [`HostError::NotFound`] for a name nobody knows.
    pub fn parse(text: &str) -> Result<Self> {
        let invalid = |wanted| HostError::Invalid { text: shortened(text), wanted };
        let (body, modes) = split_modes(text);
        let what = if let Some((pmu, rest)) = body.split_once('/') {
            const WANTED: &str =
                "an event of a PMU, as cpu/event=0x3c,umask=0x00/ (then :u, :k or :uk after the last /)";
            let terms = rest.strip_suffix('/').ok_or_else(|| invalid(WANTED))?;
            if !is_name(pmu) || terms.is_empty() || terms.split(',').any(|term| !is_term(term)) {
                return Err(invalid(WANTED));
            }
            What::Pmu { pmu: pmu.to_owned(), terms: terms.to_owned() }
        } else if let Some((system, name)) = body.split_once(':') {
            if known(system).is_some() || raw(system).is_some() {
                return Err(invalid("an event with modes: after ':' comes u, k or uk"));
            }
            if !is_name(system) || !is_name(name) {
                return Err(invalid("a tracepoint, as sched:sched_switch"));
            }
            What::Tracepoint { system: system.to_owned(), name: name.to_owned() }
        } else if let Some((kind, config)) = known(body) {
            What::Known(kind, config)
        } else if let Some(code) = raw(body) {
            What::Raw(code)
        } else {
            return Err(unknown(body));
        };
        if let What::Known(SOFTWARE, config) = what
            && modes == Modes::User
            && KERNEL_ONLY.contains(&config)
        {
            return Err(invalid(
                "an event of user mode: the kernel counts it in kernel mode, so with :u it is always 0",
            ));
        }
        Ok(Self { text: text.to_owned(), what, modes })
    }

    /// As it was given.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.text
    }

    /// Whether this host knows the event: its PMU, its terms, its tracepoint. Whether it may be counted is for the kernel
    /// to say.
    ///
    /// # Errors
    /// What is not there.
    pub fn check(&self) -> Result<()> {
        self.resolve(&Places::host()).map(drop)
    }

    /// What haul counts unless told otherwise. Ratios are honest within a group only, so cycles are in two of them.
    #[must_use]
    pub fn default_set() -> Vec<Vec<Self>> {
        const SET: [&[&str]; 4] = [
            &["cycles", "instructions", "stalled-cycles-frontend", "stalled-cycles-backend"],
            &["cycles", "branches", "branch-misses"],
            &["cache-references", "cache-misses", "LLC-loads", "LLC-load-misses"],
            &["task-clock", "context-switches", "cpu-migrations", "page-faults"],
        ];
        SET.iter().map(|group| group.iter().filter_map(|name| Self::parse(name).ok()).collect()).collect()
    }

    pub(super) fn modes(&self) -> Modes {
        self.modes
    }

    /// The same event, of user mode only.
    pub(super) fn of_user(&self) -> Self {
        Self { text: format!("{}:u", self.text), modes: Modes::User, ..self.clone() }
    }

    /// What a count of user mode only would be.
    pub(super) fn without_kernel(&self) -> WithoutKernel {
        match self.what {
            What::Known(SOFTWARE, config) if CLOCKS.contains(&config) => WithoutKernel::Same,
            What::Known(SOFTWARE, config) if KERNEL_ONLY.contains(&config) => WithoutKernel::Nothing,
            What::Tracepoint { .. } => WithoutKernel::Nothing,
            _ => WithoutKernel::UserPart,
        }
    }

    /// Whether the PMU of the CPU's cores counts it.
    pub(super) fn of_cores(&self) -> bool {
        matches!(self.what, What::Known(HARDWARE | CACHE, _) | What::Raw(_))
    }

    pub(super) fn is_tracepoint(&self) -> bool {
        matches!(self.what, What::Tracepoint { .. })
    }

    /// What to ask this host's kernel for.
    pub(super) fn resolve(&self, places: &Places) -> Result<Resolved> {
        match &self.what {
            What::Known(kind, config) => Ok(Resolved { kind: *kind, config: [*config, 0, 0], cpus: None }),
            What::Raw(code) => Ok(Resolved { kind: RAW, config: [*code, 0, 0], cpus: None }),
            What::Pmu { pmu, terms } => places.pmu(pmu, terms),
            What::Tracepoint { system, name } => places.tracepoint(system, name),
        }
    }
}

/// What is left of an event where the kernel's part may not be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WithoutKernel {
    /// All of it.
    Same,
    UserPart,
    /// It happens in the kernel.
    Nothing,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for Event {
    type Error = HostError;

    fn try_from(text: String) -> Result<Self> {
        Self::parse(&text)
    }
}

impl From<Event> for String {
    fn from(event: Event) -> Self {
        event.text
    }
}

fn split_modes(text: &str) -> (&str, Modes) {
    const MODES: [(&str, Modes); 4] =
        [("u", Modes::User), ("k", Modes::Kernel), ("uk", Modes::Both), ("ku", Modes::Both)];
    let split = text
        .rsplit_once(':')
        .and_then(|(body, last)| Some((body, MODES.into_iter().find(|mode| mode.0 == last)?.1)));
    split.unwrap_or((text, Modes::Any))
}

fn known(name: &str) -> Option<(u32, u64)> {
    if let Some((_, kind, config)) = NAMES.into_iter().find(|known| known.0 == name) {
        return Some((kind, config));
    }
    let (place, rest) =
        CACHES.iter().enumerate().find_map(|(place, cache)| Some((place, name.strip_prefix(cache)?)))?;
    let operation =
        CACHE_OPERATIONS.iter().position(|operation| rest.strip_prefix('-') == Some(*operation))?;
    Some((CACHE, place as u64 | (operation as u64 / 2) << 8 | (operation as u64 % 2) << 16))
}

fn raw(text: &str) -> Option<u64> {
    let digits = text.strip_prefix('r')?;
    let all = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    all.then(|| u64::from_str_radix(digits, 16).ok())?
}

/// One name of a path, and so no way out of its folder.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('.')
        && text.len() <= 128
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
}

fn is_term(term: &str) -> bool {
    let (name, value) = term.split_once('=').unwrap_or((term, "0"));
    is_name(name) && number(value).is_some()
}

fn number(text: &str) -> Option<u64> {
    text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |hex| u64::from_str_radix(hex, 16).ok())
}

/// A name as a message has it: nobody reads the end of a longer one.
fn shortened(name: &str) -> String {
    const LONGEST: usize = 64;
    match name.char_indices().nth(LONGEST) {
        None => name.to_owned(),
        Some((end, _)) => format!("{}…", &name[..end]),
    }
}

fn unknown(name: &str) -> HostError {
    let caches = CACHES
        .iter()
        .flat_map(|cache| CACHE_OPERATIONS.iter().map(move |operation| format!("{cache}-{operation}")));
    let names = NAMES.iter().map(|known| known.0.to_owned()).chain(caches);
    let near = names
        .map(|known| (strsim::osa_distance(&known, name), known))
        .min()
        .filter(|(distance, known)| *distance <= 3 && *distance < known.len().min(name.len()));
    let hint = near.map_or_else(
        || {
            "events are cycles, task-clock, LLC-loads, …; r01c2; PMU/TERM=VALUE/; sched:sched_switch"
                .to_owned()
        },
        |(_, known)| format!("did you mean '{known}'?"),
    );
    HostError::NotFound { what: format!("the event '{}'", shortened(name)), hint: Some(hint.into()) }
}

/// What `perf_event_open` is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resolved {
    pub(super) kind: u32,
    pub(super) config: [u64; 3],
    /// The CPUs where the PMU is to be asked, if not every one is.
    pub(super) cpus: Option<CpuList>,
}

/// The cores of one kind, where there are several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::probe) struct Cores {
    pub(in crate::probe) kind: u32,
    pub(in crate::probe) cpus: CpuList,
}

/// Where PMUs and tracepoints are described.
#[derive(Debug, Clone)]
pub(super) struct Places {
    devices: PathBuf,
    tracing: Vec<PathBuf>,
}

impl Places {
    pub(super) fn host() -> Self {
        Self {
            devices: "/sys/bus/event_source/devices".into(),
            tracing: vec!["/sys/kernel/tracing".into(), "/sys/kernel/debug/tracing".into()],
        }
    }

    /// The kinds of cores, if there are more than one: of each its PMU, and the CPUs that are such. A CPU with one kind (nearly
    /// every one) has none here.
    pub(super) fn cores(&self) -> Vec<Cores> {
        let entries = fs::read_dir(&self.devices).into_iter().flatten().flatten();
        let mut kinds: Vec<Cores> = entries
            .filter_map(|entry| {
                let line = |name: &str| fs::read_to_string(entry.path().join(name)).ok();
                Some(Cores {
                    cpus: line("cpus")?.trim().parse().ok()?,
                    kind: line("type")?.trim().parse().ok()?,
                })
            })
            .collect();
        kinds.sort_by_key(|cores| cores.kind);
        if kinds.len() > 1 { kinds } else { Vec::new() }
    }

    fn pmu(&self, pmu: &str, terms: &str) -> Result<Resolved> {
        let folder = self.devices.join(pmu);
        if !folder.is_dir() {
            let have: Vec<String> = fs::read_dir(&self.devices)
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect();
            let hint = format!("its PMUs are: {}", have.join(", "));
            return Err(HostError::NotFound { what: format!("the PMU '{pmu}'"), hint: Some(hint.into()) });
        }
        let path = folder.join("type");
        let kind = read(&path)?;
        let kind = kind.parse().map_err(|_| HostError::Answer {
            operation: "read",
            object: path.display().to_string(),
            what: format!("'{kind}' is no number of a PMU"),
        })?;
        let mut config = [0; 3];
        for term in terms.split(',') {
            apply(&folder, term, &mut config, true)?;
        }
        let cpus = ["cpumask", "cpus"].iter().find_map(|name| read(&folder.join(name)).ok()?.parse().ok());
        Ok(Resolved { kind, config, cpus })
    }

    fn tracepoint(&self, system: &str, name: &str) -> Result<Resolved> {
        let mut answer = None;
        for folder in &self.tracing {
            let path = folder.join("events").join(system).join(name).join("id");
            match read(&path) {
                Ok(id) => {
                    let id = id.parse().map_err(|_| HostError::Answer {
                        operation: "read",
                        object: path.display().to_string(),
                        what: format!("'{id}' is no number of a tracepoint"),
                    })?;
                    return Ok(Resolved { kind: TRACEPOINT, config: [id, 0, 0], cpus: None });
                }
                Err(error) => answer = answer.or(Some(error)),
            }
        }
        let hint = match answer.as_ref().and_then(HostError::errno) {
            Some(libc::EACCES | libc::EPERM) => "only root may read tracefs here",
            _ if !self.tracing.iter().any(|folder| folder.join("events").is_dir()) => {
                "tracefs is not mounted at /sys/kernel/tracing, or this kernel has none"
            }
            _ => "this kernel has no such tracepoint, or its module is not loaded",
        };
        Err(HostError::NotFound {
            what: format!("the tracepoint '{system}:{name}'"),
            hint: Some(hint.into()),
        })
    }
}

fn read(path: &Path) -> Result<String> {
    let text = fs::read_to_string(path).named("read", || path.display().to_string())?;
    Ok(text.trim().to_owned())
}

/// Puts a term into the words of the configuration. A name that the PMU lists as an event stands for terms of its own.
fn apply(folder: &Path, term: &str, config: &mut [u64; 3], aliases: bool) -> Result<()> {
    let (name, value) = term.split_once('=').map_or((term, None), |(name, value)| (name, Some(value)));
    if let (true, None, Ok(stands_for)) = (aliases, value, read(&folder.join("events").join(name))) {
        return stands_for.split(',').try_for_each(|term| apply(folder, term, config, false));
    }
    let value = number(value.unwrap_or("1")).ok_or_else(|| HostError::Invalid {
        text: term.to_owned(),
        wanted: "a term with a number, as event=0x3c",
    })?;
    if let Some(word) = word_of(name) {
        config[word] = value;
        return Ok(());
    }
    let path = folder.join("format").join(name);
    let format = read(&path).map_err(|_| HostError::NotFound {
        what: format!("the term or event '{name}' of {}", folder.display()),
        hint: Some("its folders 'format' and 'events' list what there is".into()),
    })?;
    let (word, ranges) = parse_format(&format).ok_or_else(|| HostError::Answer {
        operation: "read",
        object: path.display().to_string(),
        what: format!("'{format}' is no place in the configuration"),
    })?;
    let width: u32 = ranges.iter().map(|(first, last)| last - first + 1).sum();
    if width < 64 && value >> width != 0 {
        return Err(HostError::Invalid {
            text: term.to_owned(),
            wanted: "a value that fits the bits this PMU has for it (see its folder 'format')",
        });
    }
    let mut left = value;
    for (first, last) in ranges {
        let bits = last - first + 1;
        let mask = u64::MAX >> (64 - bits);
        config[word] = config[word] & !(mask << first) | (left & mask) << first;
        left = left.checked_shr(bits).unwrap_or(0);
    }
    Ok(())
}

fn word_of(name: &str) -> Option<usize> {
    ["config", "config1", "config2"].iter().position(|word| *word == name)
}

/// `config:0-7,32-35`, least significant bits first.
fn parse_format(text: &str) -> Option<(usize, Vec<(u32, u32)>)> {
    let (word, ranges) = text.split_once(':')?;
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last && last < 64).then_some((first, last))
    };
    Some((word_of(word)?, ranges.split(',').map(range).collect::<Option<_>>()?))
}

impl Modes {
    pub(super) fn counts_kernel(self) -> bool {
        self != Self::User
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known_as(text: &str) -> (u32, u64) {
        match Event::parse(text).expect(text).what {
            What::Known(kind, config) => (kind, config),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn names_are_those_of_perf() {
        for (text, kind, config) in [
            ("cycles", 0, 0),
            ("instructions:u", 0, 1),
            ("stalled-cycles-frontend", 0, 7),
            ("task-clock", 1, 1),
            ("cs", 1, 3),
            ("L1-dcache-loads", 3, 0),
            ("LLC-loads", 3, 2),
            ("LLC-load-misses", 3, 0x1_0002),
            ("dTLB-store-misses", 3, 0x1_0103),
            ("node-prefetches", 3, 0x0206),
        ] {
            assert_eq!(known_as(text), (kind, config), "{text}");
        }
        assert_eq!(Event::parse("r01c2").expect("raw").what, What::Raw(0x1c2));
        assert_eq!(Event::parse("cycles:uk").expect("both").modes, Modes::Both);
        let tracepoint = Event::parse("sched:sched_switch:k").expect("a tracepoint");
        assert!(tracepoint.is_tracepoint() && tracepoint.modes == Modes::Kernel);
        assert!(Event::default_set().iter().map(Vec::len).eq([4, 3, 4, 4]), "none of the set is misspelt");
    }

    #[test]
    fn what_is_no_event_is_told_with_what_would_be_one() {
        for (text, says) in [
            ("cylces", "did you mean 'cycles'?"),
            ("LLC-load-mises", "did you mean 'LLC-load-misses'?"),
            ("nonsense", "events are cycles"),
            ("", "events are cycles"),
            ("cycles:x", "u, k or uk"),
            ("rxyz", "not found"),
            ("cpu/event=0x3c", "cpu/event=0x3c,umask=0x00/"),
            ("../../etc/event=1/", "is not an event of a PMU"),
            ("cpu/event=lots/", "is not an event of a PMU"),
            ("sched:.x", "is not a tracepoint"),
            ("context-switches:u", "always 0"),
        ] {
            let error = Event::parse(text).expect_err(text).to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn an_event_travels_as_its_text_and_is_looked_up_where_it_is_opened() {
        let event = Event::parse("cpu_of_the_other_end/event=0x3c/").expect("a form");
        let json = serde_json::to_string(&event).expect("json");
        assert_eq!(json, "\"cpu_of_the_other_end/event=0x3c/\"");
        assert_eq!(serde_json::from_str::<Event>(&json).expect("back"), event);
        let error = event.check().expect_err("no such PMU here").to_string();
        assert!(
            error.contains("the PMU 'cpu_of_the_other_end' not found on this host; its PMUs are: "),
            "{error}"
        );
        assert!(serde_json::from_str::<Event>("\"cylces\"").is_err());
    }

    fn tree() -> (tempfile::TempDir, Places) {
        let folder = tempfile::tempdir().expect("folder");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
            fs::write(path, text).expect("write");
        };
        write("pmus/cpu/type", "4\n");
        write("pmus/cpu/format/event", "config:0-7,32-35\n");
        write("pmus/cpu/format/umask", "config:8-15\n");
        write("pmus/cpu/format/inv", "config:23\n");
        write("pmus/cpu/format/ldlat", "config1:0-15\n");
        write("pmus/cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n");
        write("pmus/uncore/type", "17\n");
        write("pmus/uncore/cpumask", "0,8\n");
        write("pmus/uncore/format/event", "config:0-63\n");
        write("tracing/events/net/netif_rx/id", "1234\n");
        let places = Places {
            devices: folder.path().join("pmus"),
            tracing: vec![folder.path().join("gone"), folder.path().join("tracing")],
        };
        (folder, places)
    }

    #[test]
    fn terms_go_where_the_pmu_says_and_an_alias_stands_for_its_terms() {
        let (_folder, places) = tree();
        let config = |text: &str| Event::parse(text).expect(text).resolve(&places).expect(text).config;
        assert_eq!(config("cpu/event=0x3c,umask=0x01/"), [0x013c, 0, 0]);
        assert_eq!(
            config("cpu/event=0x1c2/"),
            [0x01_0000_00c2, 0, 0],
            "the event's upper bits have a place of their own"
        );
        assert_eq!(config("cpu/event=1,inv/"), [1 << 23 | 1, 0, 0]);
        assert_eq!(config("cpu/mem-loads/"), [0x01cd, 3, 0]);
        assert_eq!(config("cpu/config=0x5,config1=6,config2=7/u".trim_end_matches('u')), [5, 6, 7]);
        let uncore = Event::parse("uncore/event=18446744073709551615/").expect("form").resolve(&places);
        let uncore = uncore.expect("all the bits");
        assert_eq!((uncore.kind, uncore.config[0]), (17, u64::MAX));
        assert_eq!(uncore.cpus.expect("a mask").cpus(), [0, 8]);
        let point = Event::parse("net:netif_rx").expect("form").resolve(&places).expect("a tracepoint");
        assert_eq!((point.kind, point.config[0]), (TRACEPOINT, 1234));
    }

    #[test]
    fn what_this_host_lacks_is_named() {
        let (folder, places) = tree();
        for (text, says) in [
            ("gpu/event=1/", "the PMU 'gpu' not found on this host; its PMUs are: "),
            ("cpu/evnt=1/", "the term or event 'evnt' of"),
            ("cpu/umask=0x100/", "fits the bits"),
            ("net:nothing", "no such tracepoint"),
        ] {
            let error = Event::parse(text).expect(text).resolve(&places).expect_err(text).to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
        let bare = Places { tracing: vec![folder.path().join("gone")], ..places };
        let error = Event::parse("net:netif_rx").expect("form").resolve(&bare).expect_err("none").to_string();
        assert!(error.contains("tracefs is not mounted"), "{error}");
    }

    #[test]
    fn cores_of_several_kinds_are_told_apart_and_those_of_one_kind_are_not() {
        let (folder, places) = tree();
        assert_eq!(places.cores(), []);
        for (name, kind, cpus) in [("cpu_core", "4", "0-3"), ("cpu_atom", "10", "4-7")] {
            let path = folder.path().join("pmus").join(name);
            fs::create_dir_all(&path).expect("folder");
            fs::write(path.join("type"), kind).expect("write");
            fs::write(path.join("cpus"), cpus).expect("write");
            let kinds = places.cores();
            assert_eq!(kinds.len(), if name == "cpu_atom" { 2 } else { 0 });
        }
        assert_eq!(places.cores()[1].cpus.cpus(), [4, 5, 6, 7]);
    }
}
