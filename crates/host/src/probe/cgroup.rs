//! Control groups: how much CPU time this process may have, on which CPUs, and how often it was held back.
//!
//! A process is in one group of each hierarchy, and what a group above it may not have, it cannot have either: all groups
//! on the way to the root count. Version 2 has one hierarchy, version 1 one for each controller; on many hosts both are
//! mounted. The files are those of Documentation/admin-guide/cgroup-v2.rst (`cpu.max`, `cpu.stat`,
//! `cpuset.cpus.effective`) and of the scheduler's `sched-bwc.rst` (`cpu.cfs_quota_us`).
//!
//! Inside a container the groups above the container's own cannot be seen: what is told then is what can be.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Where the hierarchy of version 2 is mounted, alone or beside those of version 1.
const UNIFIED: [&str; 2] = ["sys/fs/cgroup", "sys/fs/cgroup/unified"];
/// Where that of the cpu controller of version 1 is.
const CPU: [&str; 2] = ["sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"];
/// Where its accounting is.
const CPUACCT: [&str; 2] = ["sys/fs/cgroup/cpuacct", "sys/fs/cgroup/cpu,cpuacct"];
/// Where that of the cpuset controller of version 1 is.
const CPUSET: [&str; 1] = ["sys/fs/cgroup/cpuset"];

/// Groups deeper than any tree that a system makes.
const MOST: usize = 32;

/// CPU time in each period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// CPU time, in µs.
    pub quota_us: u64,
    /// The period, in µs.
    pub period_us: u64,
}

impl Quota {
    /// How many CPUs it comes to.
    #[must_use]
    pub fn cpus(self) -> f64 {
        self.quota_us as f64 / self.period_us.max(1) as f64
    }
}

/// One control group of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Group {
    /// Its path in its hierarchy.
    name: String,
    folder: PathBuf,
    /// Where its accounting is, in version 1.
    accounting: Option<PathBuf>,
    quota: Option<Quota>,
    /// Whether nothing else is in it.
    own: bool,
}

/// The control groups of this process that have the cpu controller, the nearest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Groups(Vec<Group>);

/// The counters of one group: `None` where it has no such.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Counters {
    usage: Option<Duration>,
    periods: Option<u64>,
    throttled_periods: Option<u64>,
    throttled: Option<Duration>,
}

/// The counters of all groups at one instant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupTimes(Vec<Counters>);

/// What one group did in a window.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupUse {
    /// Its path in its hierarchy.
    pub name: String,
    /// What it may have; `None` for no limit.
    pub quota: Option<Quota>,
    /// CPU time of everything in it; `None` where it is not counted, or went backwards.
    pub usage: Option<Duration>,
    /// Periods in which something in it wanted to run.
    pub periods: Option<u64>,
    /// Periods in which it was held back.
    pub throttled_periods: Option<u64>,
    /// For how long, all its CPUs together.
    pub throttled: Option<Duration>,
    /// Whether nothing but this process was in it.
    pub own: bool,
}

impl Groups {
    /// The groups of this process.
    ///
    /// # Errors
    /// The reason why there are none that can be read.
    pub fn of_this_process() -> Result<Self, String> {
        Self::below(Path::new("/"), std::process::id())
    }

    fn below(root: &Path, process: u32) -> Result<Self, String> {
        let mut groups = Vec::new();
        for (controllers, path) in memberships(root)? {
            let (mounts, accounts): (&[&str], &[&str]) = match controllers.as_str() {
                "" => (&UNIFIED, &[]),
                list if list.split(',').any(|name| name == "cpu") => (&CPU, &CPUACCT),
                _ => continue,
            };
            for (depth, group) in ancestors(&path).into_iter().enumerate() {
                let found = mounts.iter().map(|mount| root.join(mount).join(group));
                let Some(folder) = found.into_iter().find(|folder| folder.join("cpu.stat").is_file()) else {
                    continue;
                };
                let accounting =
                    accounts.iter().map(|mount| root.join(mount).join(group)).find(|it| it.is_dir());
                groups.push(Group {
                    name: format!("/{}", group.display()),
                    quota: limit_in(&folder).and_then(Limit::quota),
                    own: depth == 0 && is_own(&folder, process),
                    folder,
                    accounting,
                });
            }
        }
        groups.truncate(MOST);
        if groups.is_empty() {
            return Err("no control group of this process has the cpu controller".to_owned());
        }
        Ok(Self(groups))
    }

    /// The tightest quota of all groups; `None` where none has one.
    #[must_use]
    pub fn quota(&self) -> Option<Quota> {
        self.0.iter().filter_map(|group| group.quota).min_by(|a, b| a.cpus().total_cmp(&b.cpus()))
    }

    /// The counters now.
    #[must_use]
    pub fn read(&self) -> GroupTimes {
        let counters = |group: &Group| {
            let stat = fs::read_to_string(group.folder.join("cpu.stat")).unwrap_or_default();
            let mut counters = Counters::parse(&stat);
            let account = || fs::read_to_string(group.accounting.as_ref()?.join("cpuacct.usage")).ok();
            counters.usage =
                counters.usage.or_else(|| account()?.trim().parse().ok().map(Duration::from_nanos));
            counters
        };
        GroupTimes(self.0.iter().map(counters).collect())
    }

    /// What each group did between two readings of them.
    #[must_use]
    pub fn between(&self, then: &GroupTimes, now: &GroupTimes) -> Vec<GroupUse> {
        let each = self.0.iter().zip(then.0.iter().zip(&now.0));
        let used = each.map(|(group, (then, now))| {
            let time = |of: fn(&Counters) -> Option<Duration>| of(now)?.checked_sub(of(then)?);
            let count = |of: fn(&Counters) -> Option<u64>| of(now)?.checked_sub(of(then)?);
            GroupUse {
                name: group.name.clone(),
                quota: group.quota,
                usage: time(|it| it.usage),
                periods: count(|it| it.periods),
                throttled_periods: count(|it| it.throttled_periods),
                throttled: time(|it| it.throttled),
                own: group.own,
            }
        });
        used.collect()
    }
}

impl Counters {
    fn parse(stat: &str) -> Self {
        let find = |name: &str| {
            stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
        };
        let micros = |name: &str| find(name).map(Duration::from_micros);
        Self {
            usage: micros("usage_usec"),
            periods: find("nr_periods"),
            throttled_periods: find("nr_throttled"),
            throttled: micros("throttled_usec").or_else(|| find("throttled_time").map(Duration::from_nanos)),
        }
    }
}

/// The CPUs the nearest control group with a cpuset allows, as the kernel writes a list of CPUs.
///
/// # Errors
/// The reason why that is not known.
pub fn allowed_cpus() -> Result<String, String> {
    allowed_below(Path::new("/"))
}

fn allowed_below(root: &Path) -> Result<String, String> {
    for (controllers, path) in memberships(root)? {
        let (mounts, files): (&[&str], &[&str]) = match controllers.as_str() {
            "" => (&UNIFIED, &["cpuset.cpus.effective"]),
            list if list.split(',').any(|name| name == "cpuset") => {
                (&CPUSET, &["cpuset.effective_cpus", "cpuset.cpus"])
            }
            _ => continue,
        };
        for group in ancestors(&path) {
            let folders = mounts.iter().map(|mount| root.join(mount).join(group));
            let texts = folders.flat_map(|folder| files.iter().map(move |file| folder.join(file)));
            let mut known = texts.filter_map(|file| fs::read_to_string(file).ok());
            if let Some(text) = known.find(|text| !text.trim().is_empty()) {
                return Ok(text.trim().to_owned());
            }
        }
    }
    Err("no control group of this process has the cpuset controller".to_owned())
}

/// The hierarchies this process is in: their controllers (no text is version 2), and its group there.
fn memberships(root: &Path) -> Result<Vec<(String, PathBuf)>, String> {
    const FILE: &str = "proc/self/cgroup";
    let text = fs::read_to_string(root.join(FILE)).map_err(|error| format!("/{FILE}: {error}"))?;
    Ok(parse_memberships(&text))
}

fn parse_memberships(text: &str) -> Vec<(String, PathBuf)> {
    let line = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        // A group outside the namespace of control groups is shown as a way up, which leads nowhere from here.
        let path = if path.split('/').any(|part| part == "..") { "" } else { path.trim_start_matches('/') };
        Some((controllers.to_owned(), PathBuf::from(path)))
    };
    text.lines().filter_map(line).collect()
}

/// The group and those above it, down to the root of its hierarchy.
fn ancestors(path: &Path) -> Vec<&Path> {
    path.ancestors().take(MOST).collect()
}

/// What one control group allows.
enum Limit {
    None,
    Of(Quota),
}

impl Limit {
    fn quota(self) -> Option<Quota> {
        match self {
            Self::None => None,
            Self::Of(quota) => Some(quota),
        }
    }
}

/// `None` where the group has no such file.
fn limit_in(folder: &Path) -> Option<Limit> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let (quota, period) = match read("cpu.max") {
        Some(text) => {
            text.trim().split_once(' ').map(|(quota, period)| (quota.to_owned(), period.to_owned()))?
        }
        None => (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?),
    };
    // No limit is "max" in version 2 and −1 in version 1: neither is a count.
    Some(match (quota.trim().parse(), period.trim().parse()) {
        (Ok(quota_us), Ok(period_us)) if period_us > 0 => Limit::Of(Quota { quota_us, period_us }),
        _ => Limit::None,
    })
}

/// Whether the group holds this process and nothing else, below it neither.
fn is_own(folder: &Path, process: u32) -> bool {
    let only =
        fs::read_to_string(folder.join("cgroup.procs")).is_ok_and(|text| text.trim() == process.to_string());
    let below =
        || fs::read_dir(folder).map(|mut entries| entries.any(|it| it.is_ok_and(|it| it.path().is_dir())));
    only && below().is_ok_and(|any| !any)
}

/// What to say of the tightest quota and why there is none, for the fingerprint.
pub(super) fn quota_in_words() -> Result<String, String> {
    words_below(Path::new("/"))
}

fn words_below(root: &Path) -> Result<String, String> {
    let groups = Groups::below(root, std::process::id())?;
    let known = groups.0.iter().any(|group| limit_in(&group.folder).is_some());
    match groups.quota() {
        Some(quota) => Ok(format!("{} us of CPU time each {} us", quota.quota_us, quota.period_us)),
        None if known => Ok("none".to_owned()),
        None => Err("no control group of this process has the cpu controller".to_owned()),
    }
}

/// The groups that were held back, for how long; the longest first.
#[must_use]
pub fn throttled(groups: &[GroupUse]) -> Vec<&GroupUse> {
    let held = |group: &&GroupUse| {
        group.throttled_periods.is_some_and(|count| count > 0)
            || group.throttled.is_some_and(|time| !time.is_zero())
    };
    let by_name: BTreeMap<&str, &GroupUse> =
        groups.iter().filter(held).map(|group| (group.name.as_str(), group)).collect();
    let mut held: Vec<&GroupUse> = by_name.into_values().collect();
    held.sort_by_key(|group| std::cmp::Reverse(group.throttled));
    held
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a temporary directory");
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("mkdir");
            fs::write(path, text).expect("write");
        }
        root
    }

    const V2: (&str, &str) = ("proc/self/cgroup", "0::/a/b\n");
    const V1: (&str, &str) = ("proc/self/cgroup", "4:memory:/m\n2:cpuset:/c\n1:cpu,cpuacct:/a\n0::/\n");

    #[test]
    fn the_tightest_quota_on_the_way_to_the_root_counts() {
        let stat = "usage_usec 5\nnr_throttled 0\nthrottled_usec 0\n";
        for (name, files, expected) in [
            (
                "none",
                &[V2, ("sys/fs/cgroup/a/b/cpu.stat", stat), ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n")][..],
                Some("none"),
            ),
            (
                "an outer group is tighter",
                &[
                    V2,
                    ("sys/fs/cgroup/a/b/cpu.stat", stat),
                    ("sys/fs/cgroup/a/cpu.stat", stat),
                    ("sys/fs/cgroup/a/b/cpu.max", "200000 100000\n"),
                    ("sys/fs/cgroup/a/cpu.max", "50000 100000\n"),
                    ("sys/fs/cgroup/cpu.max", "max 100000\n"),
                ],
                Some("50000 us of CPU time each 100000 us"),
            ),
            (
                "version 1",
                &[
                    V1,
                    ("sys/fs/cgroup/cpu/a/cpu.stat", stat),
                    ("sys/fs/cgroup/cpu/cpu.stat", stat),
                    ("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "25000\n"),
                    ("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "50000\n"),
                    ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
                    ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
                ],
                Some("25000 us of CPU time each 50000 us"),
            ),
            ("no cpu controller", &[V2, ("sys/fs/cgroup/a/cpu.stat", stat)], None),
            ("no files of a group", &[V2], None),
            ("no control groups", &[], None),
        ] {
            let root = tree(files);
            let words = words_below(root.path());
            assert_eq!(words.as_deref().ok(), expected, "{name}");
            assert!(words.is_ok() || !words.expect_err("a reason").is_empty(), "{name}");
        }
    }

    #[test]
    fn the_cpus_of_the_nearest_cpuset_are_told() {
        let v2 = tree(&[V2, ("sys/fs/cgroup/a/cpuset.cpus.effective", "0-3,8\n")]);
        assert_eq!(allowed_below(v2.path()).as_deref(), Ok("0-3,8"));
        let v1 = tree(&[V1, ("sys/fs/cgroup/cpuset/c/cpuset.cpus", "1\n")]);
        assert_eq!(allowed_below(v1.path()).as_deref(), Ok("1"));
        let none = tree(&[V2]);
        assert!(allowed_below(none.path()).expect_err("a reason").contains("cpuset"));
    }

    /// A kernel that holds a group back, by the files it writes.
    #[test]
    fn a_group_that_was_held_back_is_named_and_one_that_was_not_is_not() {
        let process = std::process::id().to_string();
        let root = tree(&[
            V2,
            (
                "sys/fs/cgroup/a/b/cpu.stat",
                "usage_usec 1000\nnr_periods 5\nnr_throttled 1\nthrottled_usec 40\n",
            ),
            ("sys/fs/cgroup/a/b/cgroup.procs", &process),
            (
                "sys/fs/cgroup/a/cpu.stat",
                "usage_usec 9000\nnr_periods 5\nnr_throttled 2\nthrottled_usec 70\n",
            ),
            ("sys/fs/cgroup/a/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/cpu.stat", "usage_usec 90000\n"),
        ]);
        let groups = Groups::below(root.path(), std::process::id()).expect("groups");
        assert_eq!(groups.quota().map(Quota::cpus), Some(1.5));
        let then = groups.read();
        assert!(throttled(&groups.between(&then, &groups.read())).is_empty());
        let write = |path: &str, text: &str| fs::write(root.path().join(path), text).expect("write");
        write(
            "sys/fs/cgroup/a/cpu.stat",
            "usage_usec 9500\nnr_periods 9\nnr_throttled 5\nthrottled_usec 2070\n",
        );
        // Made anew in between: neither more nor less.
        write("sys/fs/cgroup/a/b/cpu.stat", "usage_usec 7\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n");
        let used = groups.between(&then, &groups.read());
        assert_eq!(used.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["/a/b", "/a", "/"]);
        assert_eq!(used.iter().map(|it| it.own).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!((used[0].usage, used[0].throttled, used[0].periods), (None, None, None));
        let held = throttled(&used);
        assert_eq!(held.len(), 1);
        assert_eq!((held[0].throttled_periods, held[0].throttled), (Some(3), Some(Duration::from_millis(2))));
        assert_eq!((held[0].usage, held[0].periods), (Some(Duration::from_micros(500)), Some(4)));
        assert_eq!(used[2].throttled_periods, None, "the root is never held back and counts nothing");
        let json = serde_json::to_string(&used).expect("JSON");
        assert_eq!(serde_json::from_str::<Vec<GroupUse>>(&json).expect("back"), used);
    }

    #[test]
    fn version_1_counts_in_nanoseconds_and_its_usage_stands_elsewhere() {
        let root = tree(&[
            V1,
            ("sys/fs/cgroup/cpu/a/cpu.stat", "nr_periods 5\nnr_throttled 1\nthrottled_time 40\n"),
            ("sys/fs/cgroup/cpuacct/a/cpuacct.usage", "1234\n"),
        ]);
        let groups = Groups::below(root.path(), 1).expect("groups");
        let read = groups.read().0;
        assert_eq!(read[0].usage, Some(Duration::from_nanos(1234)));
        assert_eq!(read[0].throttled, Some(Duration::from_nanos(40)));
        let ways_up = parse_memberships("0::/../../x\nnonsense\n1:cpu:/a:b\n");
        let expected = [(String::new(), PathBuf::new()), ("cpu".to_owned(), PathBuf::from("a:b"))];
        assert_eq!(ways_up, expected);
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_a_parser_panic(text in "(nr_periods|usage_usec|throttled_time|0::|1:cpu:|/|\\.\\.|[0-9]{1,25}|\\PC| |\n){0,40}") {
            let _ = (Counters::parse(&text), parse_memberships(&text));
        }
    }
}
