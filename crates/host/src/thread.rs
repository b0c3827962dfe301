//! Threads as the kernel sees them: their number, their CPUs, their CPU time.
//!
//! CPU time of one thread comes from its scheduler clock, exact to the nanosecond. Its split into user and system is
//! the kernel's estimate, from `/proc`, in steps of 10 ms; see [`ThreadTime`].

use std::fmt;
use std::fs;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{HostError, Named as _, Result};
use crate::sys;

/// The kernel's number of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tid(i32);

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Tid {
    /// Of a sample, which has it without a sign.
    pub(crate) const fn of_sample(tid: u32) -> Self {
        Self(tid.cast_signed())
    }

    /// As system calls take it.
    pub(crate) const fn number(self) -> i32 {
        self.0
    }
}

impl FromStr for Tid {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// The calling thread.
#[must_use]
pub fn current_tid() -> Tid {
    Tid(sys::current_thread())
}

/// Gives the calling thread a table of descriptors of its own that holds standard input, output and error and `keep`, and
/// nothing else of the process.
///
/// Where threads share a table, the kernel takes and gives back a reference to the file in every call, two locked
/// instructions (`fdget` in fs/file.c): 4 % of a transaction of one byte.
///
/// A descriptor that is kept stays open until both tables let go of it: let the one who called last do that in a thread that
/// has the process's table. What this thread opens from now on is nobody else's.
///
/// False where the kernel does not do it (before Linux 5.9, or by a profile that forbids it): the table stays shared, and all is
/// as if this had not been called.
pub fn own_descriptors<'fd>(keep: impl IntoIterator<Item = BorrowedFd<'fd>>) -> bool {
    let standard = [0, 1, 2];
    let keep = keep.into_iter().map(|fd| fd.as_raw_fd().cast_unsigned());
    let mut keep: Vec<u32> = keep.chain(standard).collect();
    keep.sort_unstable();
    keep.dedup();
    let ends = keep.iter().skip(1).map(|&kept| kept - 1).chain([u32::MAX]);
    let between = keep.iter().map(|&kept| kept + 1).zip(ends);
    // The first of them separates the tables, and what closes one range closes any.
    between.filter(|(first, last)| first <= last).all(|(first, last)| sys::keep_without(first, last).is_ok())
}

/// CPU time one thread has used since it started.
///
/// Without `CONFIG_IRQ_TIME_ACCOUNTING` it includes the interrupts that happened to hit the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ThreadTime {
    /// All of it, exact.
    pub total: Duration,
    /// In user mode, in steps of 10 ms; sampled at each tick where the kernel accounts so.
    pub user: Duration,
    /// In the kernel, likewise.
    pub system: Duration,
}

impl ThreadTime {
    /// What was used between `earlier` and this reading.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            total: self.total.saturating_sub(earlier.total),
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }
}

/// CPU time of a living thread of this process.
pub fn cpu_time(thread: Tid) -> Result<ThreadTime> {
    let object = || format!("thread {thread}");
    let total = sys::clock_of_thread(thread.0).named("read the CPU time of", object)?;
    let path = format!("/proc/self/task/{thread}/stat");
    let text = fs::read_to_string(&path).named("read", || path.clone())?;
    let (user, system) = split_of(&text).ok_or_else(|| HostError::Answer {
        operation: "read",
        object: path.clone(),
        what: format!("no utime and stime in '{}'", text.trim()),
    })?;
    Ok(ThreadTime { total, user: user_hz(user), system: user_hz(system) })
}

/// All the CPU time of a living thread of this process, without its split: one system call.
pub fn cpu_clock(thread: Tid) -> Result<Duration> {
    sys::clock_of_thread(thread.0).named("read the CPU time of", || format!("thread {thread}"))
}

/// How often the calling thread lost its CPU to another while it wanted to go on. It never waited for anything then.
pub fn preemptions() -> Result<u64> {
    sys::preemptions().named("count the preemptions of", || "this thread".into())
}

/// utime and stime of a `stat` file (`proc_pid_stat(5)`). The name before them may contain anything, also `) R 1`.
fn split_of(stat: &str) -> Option<(u64, u64)> {
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().skip(11);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// A count of `USER_HZ` ticks: 100 a second on every architecture Rust supports on Linux, whatever the kernel's HZ.
pub(crate) fn user_hz(ticks: u64) -> Duration {
    Duration::from_millis(ticks.saturating_mul(10))
}

/// A set of CPUs, written as the kernel does: `0,2-3`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuList(Vec<u32>);

impl CpuList {
    /// The CPUs that are online.
    pub fn online() -> Result<Self> {
        const FILE: &str = "/sys/devices/system/cpu/online";
        fs::read_to_string(FILE).named("read", || FILE.into())?.trim().parse()
    }

    /// The CPUs, ascending.
    #[must_use]
    pub fn cpus(&self) -> &[u32] {
        &self.0
    }
}

impl FromIterator<u32> for CpuList {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let mut cpus: Vec<u32> = cpus.into_iter().collect();
        cpus.sort_unstable();
        cpus.dedup();
        Self(cpus)
    }
}

impl FromStr for CpuList {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self> {
        /// As many as the kernel can be built for; keeps `0-4000000000` from filling memory.
        const LIMIT: u32 = 8192;
        let part = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            (first <= last && last < LIMIT).then_some(first..=last)
        };
        let ranges: Option<Vec<_>> = text.split(',').map(part).collect();
        ranges.map(|ranges| ranges.into_iter().flatten().collect()).ok_or_else(|| HostError::Invalid {
            text: text.to_owned(),
            wanted: "a list of CPUs: write numbers and ranges as in 0,2-3",
        })
    }
}

impl TryFrom<String> for CpuList {
    type Error = HostError;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<CpuList> for String {
    fn from(list: CpuList) -> Self {
        list.to_string()
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.0.chunk_by(|left, right| left + 1 == *right).filter_map(|run| match run {
            [] => None,
            [only] => Some(only.to_string()),
            [first, .., last] => Some(format!("{first}-{last}")),
        });
        f.pad(&runs.collect::<Vec<_>>().join(","))
    }
}

/// Lets the calling thread run on `cpus` only.
pub fn pin_current(cpus: &CpuList) -> Result<()> {
    let operation = "pin this thread to";
    let pinned = sys::pin(cpus.0.iter().copied()).named(operation, || format!("CPU {cpus}"));
    // The kernel drops CPUs that are offline or outside the cpuset in silence as long as one is left: that is not what
    // was asked for.
    let (granted, error) = match pinned {
        Ok(()) => {
            let granted = affinity_of_current()?;
            if granted == *cpus {
                return Ok(());
            }
            let einval = std::io::Error::from_raw_os_error(libc::EINVAL);
            (Some(granted), HostError::os(operation, format!("CPU {cpus}"), einval))
        }
        Err(error) => (None, error),
    };
    let online = CpuList::online().map_or_else(|_| "unknown".to_owned(), |list| list.to_string());
    Err(error.with_hint(match granted {
        Some(granted) => format!("the kernel grants CPU {granted} of these; online are {online}"),
        None => format!("online are {online}, and a cpuset may allow fewer"),
    }))
}

/// The CPU the calling thread runs on at this moment; it may be another one a moment later, unless the thread is
/// pinned.
pub fn current_cpu() -> Result<u32> {
    sys::current_cpu().named("read the CPU of", || "this thread".into())
}

/// The NUMA node of a CPU; `None` where the kernel knows no nodes, or no such CPU.
#[must_use]
pub fn numa_node(cpu: u32) -> Option<u32> {
    let mut entries = fs::read_dir(format!("/sys/devices/system/cpu/cpu{cpu}")).ok()?;
    entries.find_map(|entry| node_of(entry.ok()?.file_name().to_str()?))
}

/// The node a link such as `node0` stands for.
fn node_of(name: &str) -> Option<u32> {
    name.strip_prefix("node")?.parse().ok()
}

/// How many NUMA nodes are online; `None` where the kernel knows no nodes.
#[must_use]
pub fn numa_nodes() -> Option<usize> {
    let list: CpuList = fs::read_to_string("/sys/devices/system/node/online").ok()?.trim().parse().ok()?;
    // The kernel writes nodes as it writes CPUs.
    Some(list.cpus().len())
}

/// Keeps signals away from the calling thread: whoever handles one may do so by a descriptor that this thread does not have, or
/// in the middle of what is measured. What its own instructions raise still reaches it.
pub fn leave_signals_to_others() -> Result<()> {
    sys::block_signals().named("block the signals of", || "this thread".into())
}

/// Lets [`nudge`] reach the calling thread: from now on a call it blocks in may end with
/// [`Interrupted`](std::io::ErrorKind::Interrupted).
///
/// It is what bounds the waits of a thread that makes a connection for every transaction: two options on each connection
/// (`SO_RCVTIMEO`, `SO_SNDTIMEO`), and the timer that the kernel then starts and stops in every wait, were 4 % of it. The
/// signal is `SIGRTMIN`, whose handler in this process is replaced.
pub fn accept_nudges() -> Result<()> {
    sys::accept_nudges().named("let nudges reach", || "this thread".into())
}

/// Ends the call that the thread blocks in; where it is in none, nothing happens, so that whoever waits for it has to go on
/// nudging. A thread that has ended is none to nudge.
pub fn nudge(thread: Tid) {
    // There is no other error for a signal that exists and a process that is this one.
    let _ = sys::nudge(thread.0);
}

/// Lets the timed waits of the calling thread end at their instant: the kernel otherwise adds up to 50 µs to each, to
/// end several at once.
pub fn wake_exactly() -> Result<()> {
    sys::set_timer_slack(1).named("set the timer slack of", || "this thread".into())
}

/// The CPUs the calling thread may run on.
pub fn affinity_of_current() -> Result<CpuList> {
    Ok(sys::affinity().named("read the CPUs of", || "this thread".into())?.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::clock;

    #[test]
    fn a_thread_with_its_own_descriptors_sees_what_it_keeps_and_disturbs_nobody() {
        let (left, mut right) = UnixStream::pair().expect("a pair");
        let (mut kept, mut told) = UnixStream::pair().expect("a pair");
        let number = left.as_raw_fd();
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                assert!(own_descriptors([kept.as_fd()]), "Linux 5.9");
                let open = fs::read_dir("/proc/thread-self/fd").expect("proc").count();
                kept.write_all(b"kept").expect("what is kept works");
                let gone = fs::read_link(format!("/proc/thread-self/fd/{number}"));
                (open, gone.is_err())
            });
            let (open, gone) = worker.join().expect("the worker");
            assert_eq!((open, gone), (5, true), "0, 1, 2, what is kept, and the directory that is read");
        });
        let mut heard = [0; 4];
        told.read_exact(&mut heard).expect("what was said");
        // No copy of the left end was left open in a table that is gone, nor was this one closed.
        drop(left);
        assert_eq!(right.read(&mut heard).expect("the end"), 0);
    }

    #[test]
    fn a_cpu_list_prints_as_the_kernel_does_and_round_trips() {
        for (text, cpus, printed) in [
            ("0", &[0][..], "0"),
            ("0,2-3", &[0, 2, 3], "0,2-3"),
            ("3,2,2,0", &[0, 2, 3], "0,2-3"),
            ("0-1", &[0, 1], "0-1"),
            (" 1 , 4 - 6 ", &[1, 4, 5, 6], "1,4-6"),
        ] {
            let list: CpuList = text.parse().expect(text);
            assert_eq!(list.cpus(), cpus, "{text}");
            assert_eq!(list.to_string(), printed);
            assert_eq!(list, printed.parse().expect(printed));
        }
        for text in ["", "a", "1-", "-1", "3-2", "0,,1", "0-4000000000", "8192", "1;2"] {
            let error = text.parse::<CpuList>().expect_err(text);
            assert!(error.to_string().contains("0,2-3"), "{error}");
        }
    }

    #[test]
    fn a_thread_is_pinned_where_asked_and_a_cpu_that_is_not_there_is_an_error() {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let first: CpuList =
                    [affinity_of_current().expect("affinity").cpus()[0]].into_iter().collect();
                pin_current(&first).expect("pin");
                assert_eq!(affinity_of_current().expect("affinity"), first);
                let absent: CpuList = "8191".parse().expect("list");
                let both: CpuList = first.cpus().iter().chain(absent.cpus()).copied().collect();
                for list in [absent, both] {
                    let error = pin_current(&list).expect_err("CPU 8191 is not there").to_string();
                    assert!(
                        error.contains(&format!("CPU {list}")) && error.contains("online are"),
                        "{error}"
                    );
                }
            });
        });
    }

    #[test]
    fn a_pinned_thread_runs_on_its_cpu_and_every_cpu_online_has_a_node_or_none_has() {
        let nodes: Vec<Option<u32>> = std::thread::scope(|scope| {
            let pinned = scope.spawn(|| {
                let cpus = affinity_of_current().expect("affinity");
                let of = |&cpu: &u32| {
                    pin_current(&[cpu].into_iter().collect()).expect("pin");
                    assert_eq!(current_cpu().expect("cpu"), cpu);
                    numa_node(cpu)
                };
                cpus.cpus().iter().map(of).collect()
            });
            pinned.join().expect("no panic")
        });
        match numa_nodes() {
            Some(count) => assert!(count >= 1 && nodes.iter().all(Option::is_some), "{count}: {nodes:?}"),
            None => assert!(nodes.iter().all(Option::is_none), "{nodes:?}"),
        }
        assert_eq!(numa_node(8191), None, "CPU 8191 is not there");
        assert_eq!(
            ["node0", "node12", "node", "nodes", "power"].map(node_of),
            [Some(0), Some(12), None, None, None]
        );
    }

    #[test]
    fn the_split_is_found_behind_a_name_with_brackets() {
        let stat = "7 (a) R 1 2 (b) S 1 2 3 4 5 6 7 8 9 10 77 88 0 0";
        assert_eq!(split_of(stat), Some((77, 88)));
        for broken in ["", "7 (a", "7 (a) S 1 2", "7 (a) S 1 2 3 4 5 6 7 8 9 10 x y"] {
            assert_eq!(split_of(broken), None, "{broken}");
        }
    }

    #[test]
    fn who_shares_a_cpu_is_preempted() {
        let last = *affinity_of_current().expect("affinity").cpus().last().expect("a CPU");
        let stop = std::sync::atomic::AtomicBool::new(false);
        let busy = || {
            pin_current(&std::iter::once(last).collect()).expect("pin");
            let until = clock::now().after(Duration::from_secs(20));
            let before = preemptions().expect("counted");
            while preemptions().expect("counted") < before + 3 && clock::now() < until {
                black_box(stop.load(std::sync::atomic::Ordering::Relaxed));
            }
            preemptions().expect("counted") - before
        };
        std::thread::scope(|scope| {
            let both = [scope.spawn(busy), scope.spawn(busy)];
            let counts = both.map(|thread| thread.join().expect("no panic"));
            assert!(counts.iter().any(|&count| count >= 3), "{counts:?}");
        });
    }

    #[test]
    fn cpu_time_grows_with_work_and_stands_still_in_sleep() {
        let tid = current_tid();
        let start = cpu_time(tid).expect("time");
        let mut turns = 0_u64;
        while cpu_time(tid).expect("time").since(start).total < Duration::from_millis(50) {
            turns = black_box(turns + 1);
        }
        let asleep = cpu_time(tid).expect("time");
        clock::sleep_until(clock::now().after(Duration::from_millis(50)));
        let slept = cpu_time(tid).expect("time").since(asleep).total;
        assert!(slept < Duration::from_millis(10), "a sleep of 50 ms used {slept:?} of CPU");
        let other = std::thread::scope(|scope| scope.spawn(|| cpu_time(tid).expect("time")).join())
            .expect("no panic");
        assert!(other.total >= asleep.total, "the time of a thread can be read from another one");
    }
}
