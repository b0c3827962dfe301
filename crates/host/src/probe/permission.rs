//! Who may use perf events here, and what forbids it.
//!
//! The kernel answers a refused `perf_event_open` with one of four error numbers, and several settings share each of them.
//! What is read beforehand ([`Facts`]) tells which one it was. haul changes none of them. Sources: `perf_event_open(2)`,
//! `Documentation/admin-guide/perf-security.rst`, `perf_allow_kernel` and its neighbours in `include/linux/perf_event.h`; the levels
//! 3 (Debian) and 4 (Ubuntu) are those distributions' patches.

use std::fmt;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Something of this host that keeps a probe from seeing all it could.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obstacle {
    /// What it is, with its value: `kernel.perf_event_paranoid = 2`.
    pub what: String,
    /// What it keeps from being seen.
    pub blocks: String,
    /// What a person could do. haul does not.
    pub remedy: String,
    /// Whether a profile of the host cannot be had at all because of it.
    pub fatal: bool,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.what, self.blocks, self.remedy)
    }
}

/// What a profile lacks where all CPUs may not be sampled, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Narrowed {
    /// Why it is of threads of this process only.
    pub(crate) host_reason: String,
    /// Why it is of user mode only; `None`: it has the kernel's part.
    pub(crate) kernel_reason: Option<String>,
}

/// What decides about perf events.
#[expect(clippy::struct_excessive_bools, reason = "facts of which none says anything of another")]
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Facts {
    /// `kernel.perf_event_paranoid`; `None`: the kernel has no perf events, or `/proc/sys` is not to be seen.
    pub(crate) paranoid: Option<i32>,
    /// `kernel.kptr_restrict`.
    pub(crate) pointers: Option<i32>,
    /// `kernel.nmi_watchdog`, which takes a counter of every CPU while it is on.
    pub(crate) watchdog: bool,
    /// The effective capabilities that count outside of a user namespace.
    capabilities: u64,
    /// Whether they would be more, were this the first user namespace.
    namespaced: bool,
    /// Whether a filter of system calls is in force, as in most containers.
    pub(crate) filtered: bool,
    /// Whether the CPU's counters are there.
    pub(crate) pmu: bool,
}

/// What is asked of the kernel.
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    /// A whole CPU and not a thread.
    pub(crate) host: bool,
    /// Kernel mode too.
    pub(crate) kernel: bool,
    pub(crate) tracepoint: bool,
    /// Of the PMU of the CPU's cores.
    pub(crate) cores: bool,
}

const CAP_SYS_ADMIN: u64 = 1 << 21;
const CAP_SYSLOG: u64 = 1 << 34;
const CAP_PERFMON: u64 = 1 << 38;

impl Facts {
    pub(crate) fn host() -> Self {
        Self::under(Path::new("/"), crate::privilege::in_initial_user_namespace())
    }

    /// From a tree like that of `/`.
    fn under(root: &Path, initial: bool) -> Self {
        let text = |name: &str| fs::read_to_string(root.join(name)).ok();
        let number = |name: &str| text(name)?.trim().parse::<i32>().ok();
        let status = text("proc/self/status").unwrap_or_default();
        let field = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
        };
        let held = field("CapEff").and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0);
        let devices = root.join("sys/bus/event_source/devices");
        let pmu = fs::read_dir(devices)
            .into_iter()
            .flatten()
            .flatten()
            .any(|device| device.file_name() == "cpu" || device.path().join("cpus").exists());
        Self {
            paranoid: number("proc/sys/kernel/perf_event_paranoid"),
            pointers: number("proc/sys/kernel/kptr_restrict"),
            watchdog: number("proc/sys/kernel/nmi_watchdog") == Some(1),
            capabilities: if initial { held } else { 0 },
            namespaced: !initial && held != 0,
            filtered: field("Seccomp") == Some("2"),
            pmu,
        }
    }

    /// `perfmon_capable()`.
    pub(crate) fn privileged(&self) -> bool {
        self.capabilities & (CAP_PERFMON | CAP_SYS_ADMIN) != 0
    }

    fn may_see_pointers(&self) -> bool {
        self.capabilities & CAP_SYSLOG != 0
    }

    /// The highest level of `perf_event_paranoid` at which somebody without the capability may have what is asked.
    fn highest(asked: Asked) -> i32 {
        match asked {
            Asked { tracepoint: true, .. } => -1,
            Asked { host: true, .. } => 0,
            Asked { kernel: true, .. } => 1,
            _ => 2,
        }
    }

    fn wanted(asked: Asked) -> String {
        let highest = Self::highest(asked);
        format!("needs {highest} or less, or CAP_PERFMON (CAP_SYS_ADMIN before Linux 5.8)")
    }

    fn what_for(asked: Asked) -> &'static str {
        match asked {
            Asked { tracepoint: true, .. } => "tracepoints",
            Asked { host: true, .. } => "events of whole CPUs",
            Asked { kernel: true, .. } => "events of the kernel",
            _ => "any event",
        }
    }

    /// Why the kernel answered `errno` to what was asked.
    pub(crate) fn reason(&self, errno: Option<i32>, asked: Asked) -> String {
        let namespace = if self.namespaced {
            " (this process is root of a user namespace only, which counts for nothing here)"
        } else {
            ""
        };
        match errno {
            Some(libc::EACCES) => match self.paranoid {
                Some(level) if level > Self::highest(asked) && !self.privileged() => format!(
                    "kernel.perf_event_paranoid = {level} forbids {} to this user: it {}{namespace}",
                    Self::what_for(asked),
                    Self::wanted(asked)
                ),
                _ => format!("the kernel forbids it to this user: it {}{namespace}", Self::wanted(asked)),
            },
            Some(libc::EPERM) if self.filtered => {
                "a seccomp filter, as of a container, forbids perf_event_open: run outside of it, or with a profile that \
                 allows it (CAP_PERFMON is what container runtimes look at)"
                    .into()
            }
            Some(libc::EPERM) => {
                "a security module or the kernel's lockdown forbids it (see /sys/kernel/security/lockdown)".into()
            }
            Some(libc::ENOSYS) if self.filtered => {
                "a seccomp filter, as of a container, forbids perf_event_open, or this kernel was built without perf events"
                    .into()
            }
            Some(libc::ENOSYS) => "this kernel was built without perf events".into(),
            Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) if asked.cores && !self.pmu => {
                "no hardware counters here: the kernel found no PMU of the CPU, as in most virtual machines".into()
            }
            Some(libc::ENOENT | libc::EOPNOTSUPP) => "this CPU, or its virtual machine, has no such counter".into(),
            Some(libc::ENODEV) => "the PMU has no such event, or the CPU went offline".into(),
            Some(libc::EINVAL) => {
                "the kernel does not take it so: more events than counters in one group, modes the PMU cannot tell apart, or an \
                 event of whole CPUs asked of a thread"
                    .into()
            }
            Some(libc::ESRCH) => "the thread has ended".into(),
            Some(libc::EMFILE | libc::ENFILE) => {
                "too many open files, an event of the host takes one for each CPU: raise ulimit -n".into()
            }
            Some(libc::EBUSY) => "somebody has the counter for themselves".into(),
            Some(errno) => std::io::Error::from_raw_os_error(errno).to_string(),
            None => "the kernel did not say why".into(),
        }
    }

    /// What is left of a profile of the host where the kernel answered `errno` to it: `None` where nothing is, as at the levels
    /// of distributions (3, 4), which forbid every event, or in a container that forbids the call.
    pub(crate) fn narrowed(&self, errno: Option<i32>) -> Option<Narrowed> {
        let asked = |host, kernel| Asked { host, kernel, tracepoint: false, cores: false };
        let allowed = |asked| self.paranoid.is_some_and(|level| level <= Self::highest(asked));
        let refused = errno == Some(libc::EACCES) && !self.privileged();
        (refused && allowed(asked(false, false))).then(|| Narrowed {
            host_reason: self.reason(errno, asked(true, true)),
            kernel_reason: (!allowed(asked(false, true))).then(|| self.reason(errno, asked(false, true))),
        })
    }

    /// What keeps a profile of the host from being had, or from being whole. `addresses`: whether `/proc/kallsyms` has any.
    pub(crate) fn obstacles(&self, opened: Result<(), Option<i32>>, addresses: bool) -> Vec<Obstacle> {
        let mut found = Vec::new();
        let asked = Asked { host: true, kernel: true, tracepoint: false, cores: false };
        if let Err(errno) = opened {
            let what = match (errno, self.paranoid) {
                (Some(libc::EACCES), Some(level)) => format!("kernel.perf_event_paranoid = {level}"),
                (Some(libc::EPERM | libc::ENOSYS), _) if self.filtered => "seccomp filter".into(),
                (Some(libc::ENOSYS), _) | (_, None) => "no perf events".into(),
                _ => "perf_event_open".into(),
            };
            let remedy = match errno {
                Some(libc::EACCES) => format!(
                    "be root, give haul CAP_PERFMON, or set kernel.perf_event_paranoid to {}",
                    Self::highest(asked)
                ),
                Some(libc::EPERM | libc::ENOSYS) if self.filtered => "run outside of the container".into(),
                _ => "there is no way around it that haul knows".into(),
            };
            found.push(Obstacle { what, blocks: self.reason(errno, asked), remedy, fatal: true });
        }
        if !addresses {
            let what = match self.pointers {
                Some(2) => "kernel.kptr_restrict = 2".into(),
                Some(level) if self.may_see_pointers() => format!("kernel.kptr_restrict = {level}"),
                Some(level) => format!("kernel.kptr_restrict = {level}, without CAP_SYSLOG"),
                None => "/proc/kallsyms".into(),
            };
            let remedy = match self.pointers {
                Some(2) => "set kernel.kptr_restrict to 1",
                Some(_) => "be root, or give haul CAP_SYSLOG",
                None => "mount /proc, or use a kernel with CONFIG_KALLSYMS",
            };
            let blocks =
                "the addresses of the kernel's symbols are hidden: all of its time is one line".into();
            found.push(Obstacle { what, blocks, remedy: remedy.into(), fatal: false });
        }
        if !self.pmu {
            found.push(Obstacle {
                what: "no PMU of the CPU".into(),
                blocks: "no cycles: samples are taken by a timer (cpu-clock), which does not see where interrupts are off".into(),
                remedy: "measure on a machine whose counters the kernel sees (in a virtual machine its host decides)".into(),
                fatal: false,
            });
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(paranoid: &str, pointers: &str, status: &str, pmu: bool, initial: bool) -> Facts {
        let root = tempfile::tempdir().expect("folder");
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
            fs::write(path, format!("{text}\n")).expect("write");
        };
        if !paranoid.is_empty() {
            write("proc/sys/kernel/perf_event_paranoid", paranoid);
        }
        write("proc/sys/kernel/kptr_restrict", pointers);
        write("proc/self/status", status);
        if pmu {
            write("sys/bus/event_source/devices/cpu/type", "4");
        }
        Facts::under(root.path(), initial)
    }

    const NOBODY: &str = "Name:\thaul\nCapEff:\t0000000000000000\nSeccomp:\t0";
    const PERFMON: &str = "Name:\thaul\nCapEff:\t0000004000000000\nSeccomp:\t0";
    const ROOT: &str = "Name:\thaul\nCapEff:\t000001ffffffffff\nSeccomp:\t0";
    const CONTAINER: &str = "Name:\thaul\nCapEff:\t00000000a80425fb\nSeccomp:\t2";

    const OF_HOST: Asked = Asked { host: true, kernel: true, tracepoint: false, cores: true };
    const OF_THREAD: Asked = Asked { host: false, kernel: true, tracepoint: false, cores: true };
    const OF_USER: Asked = Asked { host: false, kernel: false, tracepoint: false, cores: true };

    #[test]
    fn a_refusal_names_the_setting_and_what_it_would_have_to_be() {
        for (paranoid, status, initial, errno, asked, says) in [
            (
                "2",
                NOBODY,
                true,
                libc::EACCES,
                OF_HOST,
                "paranoid = 2 forbids events of whole CPUs to this user: it needs 0 or less",
            ),
            (
                "2",
                NOBODY,
                true,
                libc::EACCES,
                OF_THREAD,
                "paranoid = 2 forbids events of the kernel to this user: it needs 1 or less",
            ),
            (
                "3",
                NOBODY,
                true,
                libc::EACCES,
                OF_USER,
                "paranoid = 3 forbids any event to this user: it needs 2 or less",
            ),
            ("4", NOBODY, true, libc::EACCES, OF_USER, "paranoid = 4 forbids any event"),
            (
                "1",
                NOBODY,
                true,
                libc::EACCES,
                Asked { tracepoint: true, ..OF_THREAD },
                "forbids tracepoints to this user: it needs -1",
            ),
            ("4", ROOT, false, libc::EACCES, OF_HOST, "root of a user namespace only"),
            ("4", PERFMON, true, libc::EACCES, OF_HOST, "the kernel forbids it to this user"),
            ("2", CONTAINER, true, libc::EPERM, OF_THREAD, "a seccomp filter"),
            ("2", CONTAINER, true, libc::ENOSYS, OF_THREAD, "a seccomp filter"),
            ("2", ROOT, true, libc::EPERM, OF_THREAD, "lockdown"),
            ("", ROOT, true, libc::ENOSYS, OF_THREAD, "built without perf events"),
            ("2", ROOT, true, libc::ENOENT, OF_THREAD, "no hardware counters here"),
            ("2", ROOT, true, libc::EMFILE, OF_HOST, "ulimit -n"),
            ("2", ROOT, true, libc::ESRCH, OF_THREAD, "has ended"),
        ] {
            let reason = facts(paranoid, "0", status, false, initial).reason(Some(errno), asked);
            assert!(reason.contains(says), "paranoid {paranoid}, errno {errno}: {reason}");
        }
        let reason = facts("2", "0", ROOT, true, true).reason(Some(libc::ENOENT), OF_THREAD);
        assert!(
            reason.contains("has no such counter"),
            "where there is a PMU only the event is missing: {reason}"
        );
    }

    #[test]
    fn what_is_in_a_profiles_way_is_told_one_by_one_and_nothing_where_nothing_is() {
        assert_eq!(facts("4", "2", ROOT, true, true).obstacles(Ok(()), true), [], "root may");
        let of = |pointers, status, opened, addresses| {
            let found = facts("3", pointers, status, true, true).obstacles(opened, addresses);
            found.iter().map(|obstacle| (obstacle.what.clone(), obstacle.fatal)).collect::<Vec<_>>()
        };
        let named = |what: &str, fatal| (what.to_owned(), fatal);
        assert_eq!(
            of("1", NOBODY, Err(Some(libc::EACCES)), false),
            [
                named("kernel.perf_event_paranoid = 3", true),
                named("kernel.kptr_restrict = 1, without CAP_SYSLOG", false)
            ]
        );
        assert_eq!(
            of("2", ROOT, Ok(()), false),
            [named("kernel.kptr_restrict = 2", false)],
            "even root sees zeroes"
        );
        assert_eq!(of("0", CONTAINER, Err(Some(libc::EPERM)), true), [named("seccomp filter", true)]);
        let bare = facts("2", "0", ROOT, false, true).obstacles(Ok(()), true);
        assert!(bare.len() == 1 && bare[0].to_string().contains("by a timer (cpu-clock)"), "{bare:?}");
    }

    #[test]
    fn what_is_left_of_a_profile_follows_from_the_level() {
        let of = |level: &str, status, errno| facts(level, "0", status, true, true).narrowed(Some(errno));
        for level in ["1", "2"] {
            let left = of(level, NOBODY, libc::EACCES).expect("threads may be sampled");
            let whole =
                format!("paranoid = {level} forbids events of whole CPUs to this user: it needs 0 or less");
            assert!(left.host_reason.contains(&whole), "{left:?}");
            let kernel = left.kernel_reason.map(|reason| reason.contains("= 2 forbids events of the kernel"));
            assert_eq!(kernel, (level == "2").then_some(true), "level {level}");
        }
        for (level, status, errno) in [
            ("3", NOBODY, libc::EACCES),
            ("4", NOBODY, libc::EACCES),
            ("", NOBODY, libc::EACCES),
            // Not this setting forbids it, so a narrower request is no way around it.
            ("2", PERFMON, libc::EACCES),
            ("2", CONTAINER, libc::EPERM),
            ("2", NOBODY, libc::ENOSYS),
            ("2", NOBODY, libc::EMFILE),
        ] {
            assert_eq!(of(level, status, errno), None, "level {level}, errno {errno}");
        }
    }

    #[test]
    fn this_hosts_facts_are_read() {
        let facts = Facts::host();
        assert!(facts.paranoid.is_some(), "perf_event_paranoid: {facts:?}");
        assert_eq!(facts.privileged(), crate::privilege::effective_root() && !facts.namespaced, "{facts:?}");
    }
}
