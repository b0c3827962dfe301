//! CPU time of all CPUs of the host.
//!
//! Busy is what is not idle: `elapsed × CPUs − idle`. The kernel samples user, system and interrupt time at each tick,
//! 100 to 1000 times a second, but under `NO_HZ` it measures *idle* by the clock; so the difference is far better than
//! the sum of the sampled parts, and it includes the interrupts that hit an idle CPU, which on the receiving end are
//! most of the work. Idle is read from two files:
//!
//! - `/proc/stat` shows the sum over all CPUs in steps of 10 ms (`show_stat` in `fs/proc/stat.c`). Everybody may read it.
//! - `/proc/timer_list` shows the same counters in nanoseconds, to root of the host only (`print_cpu` in
//!   `kernel/time/timer_list.c`). An idle period still going on is missing there; it is added where the CPU's tick is
//!   stopped, and where it is not, the period is shorter than a tick and `/proc/stat` bounds the error. Its length
//!   grows with the CPUs, so it is left alone beyond 64.
//!
//! `/proc/timer_list` is debugging output and not an interface, so each reading of it must agree with `/proc/stat`, or
//! the latter is used. Steal is part of busy, since the CPU was not idle, and is shown beside it.
//!
//! `/proc/schedstat` has nanoseconds for everybody, and is no third source: it counts what tasks ran, so it misses the
//! interrupts that hit an idle CPU, and a task that does not leave its CPU in the window is not in it at all
//! (`sched_info_depart` in kernel/sched/stats.h).
//!
//! Whether interrupts are in the time of the threads they hit depends on `CONFIG_IRQ_TIME_ACCOUNTING` and on a clock
//! that the kernel trusts. The column `irq` shows what the kernel really does: at ticks alone it stays 0, because the tick
//! is itself an interrupt and none nests in it.
//!
//! These are counters since boot of the whole host, also inside a container. They are never reset: a window is the
//! difference of two snapshots.

use std::fs;
use std::sync::OnceLock;
use std::time::Duration;

use haul_stats::MonoNanos;
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::error::{HostError, Named as _, Result};
use crate::thread::user_hz;

/// `/proc/timer_list` takes about 3 KiB and 30 µs per CPU: up to here a snapshot stays within 2 ms.
const TIMER_LIST_CPUS: u32 = 64;

/// The step of `/proc/stat`: `USER_HZ` is 100.
const STAT_STEP: Duration = Duration::from_millis(10);

/// The longest tick a kernel can be built with (HZ = 100).
const LONGEST_TICK: Duration = Duration::from_millis(10);

/// The CPU counters of the host at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostCpu {
    at: MonoNanos,
    stat: Stat,
    /// Idle time of all CPUs by the clock, and the instant it is exact for; `None` where it cannot be had.
    exact: Option<(MonoNanos, Duration)>,
}

/// Whether the time of an interrupt is in that of the thread it hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IrqTime {
    /// The kernel times interrupts apart: threads are not charged for them.
    Apart,
    /// It does not: a thread pays for the interrupts that hit it.
    InThreads,
    /// Not known.
    #[default]
    Unknown,
}

/// What all CPUs of the host did between two snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuUse {
    /// Length of the window.
    pub elapsed: Duration,
    /// Number of CPUs.
    pub ncpu: u32,
    /// Not idle.
    pub busy: Duration,
    /// Idle, waiting for a disk included.
    pub idle: Duration,
    /// In user mode.
    pub user: Duration,
    /// In user mode, at low priority.
    pub nice: Duration,
    /// In the kernel for a task.
    pub system: Duration,
    /// In hard interrupts.
    pub irq: Duration,
    /// In soft interrupts.
    pub softirq: Duration,
    /// Taken by the hypervisor.
    pub steal: Duration,
    /// Where `busy` and `idle` come from.
    pub source: String,
    /// The step of `busy` and `idle`.
    pub resolution: Duration,
    /// Whether everything else is sampled at ticks.
    pub split_is_ticks: bool,
    /// Whether interrupts are in the time of threads.
    #[serde(default)]
    pub irq_time: IrqTime,
}

impl HostCpu {
    /// The counters now.
    pub fn read() -> Result<Self> {
        let text = read("/proc/stat")?;
        let at = clock::now();
        let stat = Stat::parse(&text).ok_or_else(|| HostError::Answer {
            operation: "read",
            object: "/proc/stat".into(),
            what: "no line 'cpu' with ten numbers".into(),
        })?;
        let exact = if stat.ncpu <= TIMER_LIST_CPUS { exact_idle(at, &stat) } else { None };
        Ok(Self { at, stat, exact })
    }

    /// What happened from `earlier` to this snapshot.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> CpuUse {
        let ticks = |part: fn(&Stat) -> Duration| part(&self.stat).saturating_sub(part(&earlier.stat));
        let (elapsed, idle, source, resolution) = match (self.exact, earlier.exact) {
            (Some((at, idle)), Some((earlier_at, earlier_idle))) => {
                let idle = idle.saturating_sub(earlier_idle);
                (at.since(earlier_at), idle, "/proc/timer_list idle_sleeptime", Duration::from_nanos(1))
            }
            _ => (self.at.since(earlier.at), ticks(Stat::all_idle), "/proc/stat idle", STAT_STEP),
        };
        CpuUse {
            elapsed,
            ncpu: self.stat.ncpu,
            busy: (elapsed * self.stat.ncpu).saturating_sub(idle),
            idle,
            user: ticks(|stat| stat.user),
            nice: ticks(|stat| stat.nice),
            system: ticks(|stat| stat.system),
            irq: ticks(|stat| stat.irq),
            softirq: ticks(|stat| stat.softirq),
            steal: ticks(|stat| stat.steal),
            source: source.to_owned(),
            resolution,
            split_is_ticks: split_is_ticks(),
            irq_time: self.stat.irq_time(kernel_config()),
        }
    }
}

/// The line `cpu` of `/proc/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Stat {
    ncpu: u32,
    /// Interrupts since boot; `None` where the line is missing.
    interrupts: Option<u64>,
    user: Duration,
    nice: Duration,
    system: Duration,
    idle: Duration,
    iowait: Duration,
    irq: Duration,
    softirq: Duration,
    steal: Duration,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        let (mut total, mut interrupts) = (None, None);
        let mut ncpu = 0;
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("cpu") => {
                    let numbers: Option<Vec<u64>> = words.take(8).map(|word| word.parse().ok()).collect();
                    total = numbers;
                }
                Some(word) if word.starts_with("cpu") => ncpu += 1,
                Some("intr") => {
                    interrupts = words.next().and_then(|word| word.parse().ok());
                    break;
                }
                _ => break,
            }
        }
        let ticks: [u64; 8] = total?.try_into().ok()?;
        let [user, nice, system, idle, iowait, irq, softirq, steal] = ticks.map(user_hz);
        let stat = Self { ncpu, interrupts, user, nice, system, idle, iowait, irq, softirq, steal };
        (ncpu > 0).then_some(stat)
    }

    fn all_idle(&self) -> Duration {
        self.idle + self.iowait
    }

    /// By what the counters since boot show, else by the kernel's configuration.
    fn irq_time(&self, config: &str) -> IrqTime {
        /// So many take a hundred milliseconds at least, which would show in steps of ten.
        const MANY: u64 = 1_000_000;
        if !self.irq.is_zero() {
            return IrqTime::Apart;
        }
        match self.interrupts {
            Some(count) if count >= MANY => IrqTime::InThreads,
            _ if config.lines().any(|line| line == "# CONFIG_IRQ_TIME_ACCOUNTING is not set") => {
                IrqTime::InThreads
            }
            _ => IrqTime::Unknown,
        }
    }
}

/// What `/proc/timer_list` says about idle time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct TimerList {
    at: MonoNanos,
    cpus: Vec<CpuTimers>,
}

/// One CPU's counters, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct CpuTimers {
    tick_stopped: bool,
    idle_entry: u64,
    idle_sleep: Option<u64>,
    iowait_sleep: u64,
}

impl TimerList {
    fn parse(text: &str) -> Option<Self> {
        let mut at = None;
        let mut cpus: Vec<CpuTimers> = Vec::new();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace().filter(|word| *word != ":");
            let name = words.next().unwrap_or_default().trim_end_matches(':');
            let number = |mut words: std::iter::Filter<_, _>| -> Option<u64> {
                let word: Option<&str> = Iterator::next(&mut words);
                word?.parse().ok()
            };
            match (name, cpus.last_mut()) {
                ("now", _) => {
                    words.next();
                    at = number(words);
                }
                ("cpu", _) => cpus.push(CpuTimers::default()),
                (".tick_stopped", Some(cpu)) => cpu.tick_stopped = number(words)? != 0,
                (".idle_entrytime", Some(cpu)) => cpu.idle_entry = number(words)?,
                (".idle_sleeptime", Some(cpu)) => cpu.idle_sleep = number(words),
                (".iowait_sleeptime", Some(cpu)) => cpu.iowait_sleep = number(words)?,
                _ => {}
            }
        }
        let complete = !cpus.is_empty() && cpus.iter().all(|cpu| cpu.idle_sleep.is_some());
        complete.then_some(Self { at: MonoNanos(at?), cpus })
    }

    /// Idle time of all CPUs up to `at`.
    fn idle(&self) -> Duration {
        let of = |cpu: &CpuTimers| {
            // Inside an idle period whose tick is stopped, the time since its start is not counted yet.
            let running = if cpu.tick_stopped { self.at.0.saturating_sub(cpu.idle_entry) } else { 0 };
            cpu.idle_sleep.unwrap_or(0).saturating_add(cpu.iowait_sleep).saturating_add(running)
        };
        Duration::from_nanos(self.cpus.iter().map(of).fold(0, u64::saturating_add))
    }
}

/// Idle time by `/proc/timer_list`, provided it agrees with the `/proc/stat` read at `stat_at`.
fn exact_idle(stat_at: MonoNanos, stat: &Stat) -> Option<(MonoNanos, Duration)> {
    // The file is root's, and absent in kernels without it: both are ordinary.
    let text = fs::read_to_string("/proc/timer_list").ok()?;
    let timers = TimerList::parse(&text)?;
    reconcile(stat_at, stat, &timers)
}

/// The better of the two readings, `None` where they contradict each other.
fn reconcile(stat_at: MonoNanos, stat: &Stat, timers: &TimerList) -> Option<(MonoNanos, Duration)> {
    let cpus = stat.ncpu;
    if usize::try_from(cpus).ok()? != timers.cpus.len() {
        return None;
    }
    let (coarse, fine) = (stat.all_idle(), timers.idle());
    // Idle and iowait are each rounded down, and time has passed between the two files.
    let most = coarse + 2 * STAT_STEP + timers.at.since(stat_at) * cpus;
    let least = coarse.saturating_sub(LONGEST_TICK * cpus);
    // Both are too small, never too large: see the module head.
    (least <= fine && fine <= most).then(|| (timers.at, fine.max(coarse)))
}

/// The kernel's configuration, where it lies beside the kernel; no text elsewhere.
fn kernel_config() -> &'static str {
    static CONFIG: OnceLock<String> = OnceLock::new();
    CONFIG.get_or_init(|| {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let release = text("/proc/sys/kernel/osrelease");
        text(&format!("/boot/config-{}", release.trim()))
    })
}

/// Whether this kernel samples the split of CPU time at ticks, as nearly all do. Where its configuration cannot be read,
/// the answer is yes.
fn split_is_ticks() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let command_line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
        accounting_is_by_ticks(kernel_config(), &command_line)
    })
}

/// Full accounting is native on s390 and powerpc, and elsewhere active only on CPUs under `nohz_full`.
fn accounting_is_by_ticks(config: &str, command_line: &str) -> bool {
    let has = |option: &str| config.lines().any(|line| line.strip_suffix("=y") == Some(option));
    let native = has("CONFIG_VIRT_CPU_ACCOUNTING_NATIVE");
    let generic = has("CONFIG_VIRT_CPU_ACCOUNTING_GEN")
        && command_line.split_ascii_whitespace().any(|word| word.starts_with("nohz_full="));
    !(native || generic)
}

fn read(path: &'static str) -> Result<String> {
    fs::read_to_string(path).named("read", || path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "\
cpu  31391 7 4592 132403 401 3 234 228 0 0
cpu0 11024 0 1989 71336 82 0 64 119 0 0
cpu1 20366 0 2602 61066 319 0 169 108 0 0
intr 387802 0 0
ctxt 599884
";

    /// Of a Linux 6.18 with two CPUs; cpu0 is idle with its tick stopped since 848.9 s.
    const TIMER_LIST: &str = "\
Timer List Version: v0.10
HRTIMER_MAX_CLOCK_BASES: 8
now at 849936106651 nsecs

cpu: 0
 clock 0:
  .index:      0
active timers:
 #0: <00000000c2347ab2>, tick_nohz_handler, S:01
 # expires at 848940000000-848940000000 nsecs [in 3893349 to 3893349 nsecs]
  .nohz           : 1
  .tick_stopped   : 1
  .idle_jiffies   : 4295104448
  .idle_entrytime : 848936106651 nsecs
  .idle_waketime  : 848839165330 nsecs
  .idle_sleeptime : 712360742518 nsecs
  .iowait_sleeptime: 825550093 nsecs
cpu: 1
  .nohz           : 1
  .tick_stopped   : 0
  .idle_entrytime : 848934424067 nsecs
  .idle_sleeptime : 610668444111 nsecs
  .iowait_sleeptime: 3191358772 nsecs

Tick Device: mode:     1
Broadcast device
";

    #[test]
    fn the_line_of_all_cpus_is_read_in_user_hz_and_the_cpus_are_counted() {
        let stat = Stat::parse(STAT).expect("stat");
        assert_eq!(stat.ncpu, 2);
        assert_eq!(stat.user, Duration::from_millis(313_910));
        assert_eq!(stat.nice, Duration::from_millis(70));
        assert_eq!(stat.all_idle(), Duration::from_millis(1_328_040));
        assert_eq!(stat.irq, Duration::from_millis(30));
        assert_eq!(stat.softirq, Duration::from_millis(2340));
        assert_eq!(stat.steal, Duration::from_millis(2280));
        for broken in
            ["", "cpu  1 2 3\ncpu0 1 2 3\n", "cpu  1 2 3 4 5 6 7 8\n", "cpu  a b c d e f g h\ncpu0 1\n"]
        {
            assert_eq!(Stat::parse(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn an_idle_period_still_going_on_is_added_where_the_tick_is_stopped() {
        let timers = TimerList::parse(TIMER_LIST).expect("timer list");
        assert_eq!(timers.at, MonoNanos(849_936_106_651));
        assert_eq!(timers.cpus.len(), 2);
        let counted = 712_360_742_518 + 825_550_093 + 610_668_444_111 + 3_191_358_772;
        assert_eq!(timers.idle(), Duration::from_nanos(counted + 1_000_000_000));
        for missing in ["now at", ".idle_sleeptime"] {
            let text: String = TIMER_LIST
                .lines()
                .filter(|line| !line.contains(missing))
                .flat_map(|line| [line, "\n"])
                .collect();
            assert_eq!(TimerList::parse(&text), None, "without '{missing}'");
        }
    }

    #[test]
    fn the_exact_counters_are_used_only_while_they_agree_with_the_public_ones() {
        let stat = Stat { ncpu: 2, idle: Duration::from_secs(100), ..Stat::default() };
        let timers = |idle: Duration, cpus: usize| {
            let each = u64::try_from(idle.as_nanos()).expect("fits") / cpus as u64;
            let cpu = CpuTimers { idle_sleep: Some(each), ..CpuTimers::default() };
            TimerList { at: MonoNanos(1_000_000), cpus: vec![cpu; cpus] }
        };
        let ms = Duration::from_millis;
        for (name, idle, cpus, expected) in [
            ("equal", ms(100_000), 2, Some(ms(100_000))),
            ("ahead within the rounding", ms(100_008), 2, Some(ms(100_008))),
            ("behind by a period still going on", ms(99_990), 2, Some(ms(100_000))),
            ("behind by more than two ticks", ms(99_900), 2, None),
            ("far ahead", ms(100_100), 2, None),
            ("of another number of CPUs", ms(100_000), 4, None),
        ] {
            let outcome = reconcile(MonoNanos(0), &stat, &timers(idle, cpus));
            assert_eq!(outcome.map(|(_, idle)| idle), expected, "{name}");
        }
    }

    #[test]
    fn busy_is_elapsed_time_of_all_cpus_less_idle_by_the_better_source_both_snapshots_have() {
        let snapshot = |at_ms: u64, idle_ms: u64, exact: Option<u64>| HostCpu {
            at: MonoNanos(at_ms * 1_000_000),
            stat: Stat {
                ncpu: 2,
                idle: Duration::from_millis(idle_ms),
                user: Duration::from_millis(idle_ms / 2),
                ..Stat::default()
            },
            exact: exact.map(|ns| (MonoNanos(at_ms * 1_000_000 + 500), Duration::from_nanos(ns))),
        };
        let first = snapshot(1000, 500, Some(500_123_456));
        let coarse = snapshot(3000, 2500, None).since(&first);
        assert_eq!((coarse.busy, coarse.idle), (Duration::from_secs(2), Duration::from_secs(2)));
        assert_eq!((coarse.source.as_str(), coarse.resolution), ("/proc/stat idle", STAT_STEP));
        assert_eq!(coarse.user, Duration::from_secs(1));
        let exact = snapshot(3000, 2500, Some(2_501_123_456)).since(&first);
        assert_eq!((exact.busy, exact.idle), (Duration::from_millis(1999), Duration::from_millis(2001)));
        assert!(exact.source.starts_with("/proc/timer_list"));
        // Counters that step back, as after a snapshot of the whole machine, must not wrap.
        let backwards = first.since(&snapshot(3000, 2500, None));
        assert_eq!((backwards.elapsed, backwards.busy, backwards.idle), Default::default());
    }

    #[test]
    fn whether_threads_pay_for_interrupts_is_told_by_what_the_kernel_counted() {
        let config = "# CONFIG_IRQ_TIME_ACCOUNTING is not set\n";
        for (name, irq, interrupts, config, expected) in [
            ("timed apart", 10, Some(5_000_000), config, IrqTime::Apart),
            ("many, and no time in them", 0, Some(5_000_000), "", IrqTime::InThreads),
            ("just booted", 0, Some(10), "CONFIG_IRQ_TIME_ACCOUNTING=y\n", IrqTime::Unknown),
            ("just booted, built without", 0, Some(10), config, IrqTime::InThreads),
            ("nothing known", 0, None, "", IrqTime::Unknown),
        ] {
            let stat = Stat { irq: Duration::from_millis(irq), interrupts, ..Stat::default() };
            assert_eq!(stat.irq_time(config), expected, "{name}");
        }
        assert_eq!(Stat::parse(STAT).and_then(|stat| stat.interrupts), Some(387_802));
    }

    #[test]
    fn the_split_is_by_ticks_unless_the_kernel_accounts_at_each_switch() {
        for (config, command_line, by_ticks) in [
            ("", "", true),
            ("CONFIG_TICK_CPU_ACCOUNTING=y\n", "nohz_full=1", true),
            ("CONFIG_VIRT_CPU_ACCOUNTING_GEN=y\n", "quiet", true),
            ("CONFIG_VIRT_CPU_ACCOUNTING_GEN=y\n", "quiet nohz_full=1-3", false),
            ("CONFIG_VIRT_CPU_ACCOUNTING_NATIVE=y\n", "", false),
            ("# CONFIG_VIRT_CPU_ACCOUNTING_NATIVE is not set\n", "", true),
        ] {
            assert_eq!(accounting_is_by_ticks(config, command_line), by_ticks, "{config} {command_line}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_a_parser_panic(
            text in "(cpu[0-9]? |intr |now at |cpu: |[.]idle_sleeptime : |[.]tick_stopped : |[0-9]{1,21} |\\PC|\n){0,60}",
        ) {
            let stat = Stat::parse(&text).unwrap_or_default();
            let timers = TimerList::parse(&text).unwrap_or_default();
            let _ = (reconcile(MonoNanos(0), &stat, &timers), stat.irq_time(&text), accounting_is_by_ticks(&text, &text));
        }
    }
}
