//! How much memory this process can still take without pushing others, or itself, out: the least of what the machine and the
//! control groups above the process have left, and which of them that is.
//!
//! `MemAvailable` knows nothing of control groups, and a container that takes more than its group has left is killed. A group's
//! limit holds for all below it, so every one up to the root is asked: `memory.max` and `memory.high` less `memory.current`
//! (cgroup v2, Documentation/admin-guide/cgroup-v2.rst), `memory.limit_in_bytes` less `memory.usage_in_bytes` (v1). Clean pages of
//! files that nobody used lately count as used there and go when others want them, so they are left; `MemAvailable` does the same.

use std::fs;
use std::path::{Component, Path, PathBuf};

use haul_stats::ByteCount;

/// What is left, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    /// What can still be taken.
    pub left: ByteCount,
    /// What there is in all, taken or not.
    pub of: ByteCount,
    /// Whose limit it is, as `this machine` or the file of the control group that says it.
    pub limit: String,
}

/// The files of a control group, by version.
struct Files {
    /// Limits of which each is one by itself.
    limits: &'static [&'static str],
    used: &'static str,
    /// What of it goes when others want it, in `memory.stat`.
    idle: &'static str,
}

const V2: Files =
    Files { limits: &["memory.max", "memory.high"], used: "memory.current", idle: "inactive_file" };
const V1: Files =
    Files { limits: &["memory.limit_in_bytes"], used: "memory.usage_in_bytes", idle: "total_inactive_file" };

/// The least of all that limits this process; `None` where nothing says anything.
#[must_use]
pub fn room() -> Option<Room> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let (groups, mounts) = (read("/proc/self/cgroup"), read("/proc/self/mountinfo"));
    let machine = of_machine(&read("/proc/meminfo"));
    machine.into_iter().chain(of_groups(&groups, &mounts)).min_by_key(|room| room.left)
}

/// `MemAvailable` of `/proc/meminfo`: the kernel's estimate of what can be taken without swapping.
fn of_machine(meminfo: &str) -> Option<Room> {
    let value = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(ByteCount(kib.saturating_mul(1024)))
    };
    let left = value("MemAvailable:")?;
    Some(Room { left, of: value("MemTotal:").unwrap_or(left), limit: "this machine".to_owned() })
}

/// What each group above the process leaves (`cgroups(7)`, `/proc/PID/cgroup`).
fn of_groups(groups: &str, mounts: &str) -> Vec<Room> {
    let mut rooms = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (files, kind) = match controllers {
            "" => (&V2, "cgroup2"),
            some if some.split(',').any(|name| name == "memory") => (&V1, "cgroup"),
            _ => continue,
        };
        for (root, point) in mounts.lines().filter_map(|line| mount_of(line, kind)) {
            let Some(group) = below(Path::new(path), &root) else { continue };
            for ancestor in group.ancestors() {
                rooms.extend(of_group(&point.join(ancestor), files));
            }
        }
    }
    rooms
}

/// A line of `/proc/PID/mountinfo` (`proc_pid_mountinfo(5)`): root and mount point, where it is a hierarchy that has memory.
fn mount_of(line: &str, kind: &str) -> Option<(PathBuf, PathBuf)> {
    let (before, after) = line.split_once(" - ")?;
    let mut after = after.split(' ');
    let options = (after.next()? == kind).then(|| after.nth(1)).flatten()?;
    if kind == "cgroup" && !options.split(',').any(|option| option == "memory") {
        return None;
    }
    let mut fields = before.split(' ').skip(3);
    let path = |field: &str| PathBuf::from(field.replace("\\040", " "));
    Some((path(fields.next()?), path(fields.next()?)))
}

/// A group's path below the mounted root; the root itself where the group is outside of it, as in a container that sees only its
/// own.
fn below(group: &Path, root: &Path) -> Option<PathBuf> {
    let within = group.strip_prefix(root).unwrap_or(Path::new(""));
    let relative = within.strip_prefix("/").unwrap_or(within);
    relative.components().all(|part| matches!(part, Component::Normal(_))).then(|| relative.to_owned())
}

fn of_group(directory: &Path, files: &Files) -> Vec<Room> {
    let number = |name: &str| fs::read_to_string(directory.join(name)).ok()?.trim().parse::<u64>().ok();
    let stat = fs::read_to_string(directory.join("memory.stat")).unwrap_or_default();
    let idle = stat.lines().find_map(|line| line.strip_prefix(files.idle)?.trim().parse::<u64>().ok());
    let Some(used) = number(files.used) else { return Vec::new() };
    let used = used.saturating_sub(idle.unwrap_or(0));
    let of = |name: &&str| {
        // `max` is no number and no limit; v1 writes the largest number of pages there is.
        let of = number(name).filter(|&of| of < 1 << 62)?;
        let limit = directory.join(name).display().to_string();
        Some(Room { left: ByteCount(of.saturating_sub(used)), of: ByteCount(of), limit })
    };
    files.limits.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of groups: the files of each, and what they say.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a group")).expect("mkdir");
            fs::write(path, text).expect("write");
        }
        root
    }

    fn least(groups: &str, mounts: &str) -> Option<(u64, u64, String)> {
        let room = of_groups(groups, mounts).into_iter().min_by_key(|room| room.left)?;
        let name = Path::new(&room.limit).components().rev().take(2).collect::<Vec<_>>();
        let name = name.iter().rev().map(|part| part.as_os_str().to_string_lossy().into_owned());
        Some((room.left.0, room.of.0, name.collect::<Vec<_>>().join("/")))
    }

    #[test]
    fn the_tightest_group_above_the_process_decides_and_is_named() {
        let root = tree(&[
            ("box/memory.max", "1000\n"),
            ("box/memory.high", "max\n"),
            ("box/memory.current", "900\n"),
            ("box/memory.stat", "anon 500\ninactive_file 300\nactive_file 50\n"),
            ("box/job/memory.max", "max\n"),
            ("box/job/memory.high", "700\n"),
            ("box/job/memory.current", "100\n"),
            ("box/other/memory.max", "1\n"),
            ("box/other/memory.current", "1\n"),
        ]);
        let mounts = format!("30 24 0:26 / {} rw - cgroup2 cgroup2 rw,nsdelegate\n", root.path().display());
        assert_eq!(least("0::/box/job\n", &mounts), Some((400, 1000, "box/memory.max".to_owned())));
        fs::write(root.path().join("box/job/memory.current"), "650").expect("write");
        assert_eq!(least("0::/box/job\n", &mounts), Some((50, 700, "job/memory.high".to_owned())));
        assert_eq!(least("0::/\n", &mounts), None, "the root has no limit");
        assert_eq!(least("5:cpu:/box/job\n", &mounts), None, "no hierarchy with memory");
    }

    #[test]
    fn the_first_version_has_other_names_and_a_container_sees_its_own_group_as_the_root() {
        let root = tree(&[
            ("memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory.usage_in_bytes", "5000\n"),
            ("job/memory.limit_in_bytes", "4096\n"),
            ("job/memory.usage_in_bytes", "5000\n"),
            ("job/memory.stat", "inactive_file 1\ntotal_inactive_file 2000\n"),
        ]);
        let at = root.path().display().to_string();
        let mounts = |root: &str, point: &str| {
            format!(
                "9 8 0:3 / /x rw - cgroup cgroup rw,cpu\n31 24 0:27 {root} {point} rw shared:7 - cgroup cgroup rw,memory\n"
            )
        };
        let limit = Some((1096, 4096, "job/memory.limit_in_bytes".to_owned()));
        assert_eq!(least("4:cpu,memory:/job\n", &mounts("/", &at)), limit);
        // Bind-mounted: its own group is what is mounted, under a name that is not seen there.
        let own = mounts("/docker/job", &format!("{at}/job"));
        assert_eq!(least("4:memory:/docker/job\n", &own), limit);
        assert_eq!(
            least("4:memory:/../elsewhere\n", &own),
            limit,
            "another namespace: the root that is seen"
        );
    }

    #[test]
    fn the_machine_is_read_where_it_is_told() {
        let told = "MemTotal:  100 kB\nMemFree: 1 kB\nMemAvailable:   42 kB\n";
        let room =
            Room { left: ByteCount(42 << 10), of: ByteCount(100 << 10), limit: "this machine".to_owned() };
        assert_eq!(of_machine(told), Some(room));
        for broken in ["", "MemAvailable: x kB", "MemAvailable: 4"] {
            assert_eq!(of_machine(broken), None, "{broken}");
        }
        let here = super::room().expect("Linux tells");
        assert!(here.left.0 > 1 << 20 && here.left <= here.of, "{here:?}");
    }
}
