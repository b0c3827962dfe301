//! Clocks, threads and their CPUs.

use std::io;
use std::time::Duration;

use super::check;

#[inline]
fn read_clock(clock: libc::clockid_t) -> io::Result<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec that outlives the call.
    check(unsafe { libc::clock_gettime(clock, &raw mut time) })?;
    // The kernel's clocks are never negative and keep the nanoseconds below one second.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Ok(Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0)))
}

/// `CLOCK_MONOTONIC`. It cannot fail: the clock exists on every Linux.
#[inline]
pub(crate) fn monotonic() -> Duration {
    read_clock(libc::CLOCK_MONOTONIC).unwrap_or_default()
}

/// CPU time of one thread of this process.
pub(crate) fn clock_of_thread(tid: i32) -> io::Result<Duration> {
    // The kernel's own coding of a thread's scheduler clock, as pthread_getcpuclockid(3) makes it:
    // MAKE_THREAD_CPUCLOCK in include/linux/posix-timers_types.h, CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED.
    read_clock((!tid << 3) | 4 | 2)
}

/// How often the calling thread lost its CPU to another while it wanted to go on: `ru_nivcsw` of `getrusage(2)`.
pub(crate) fn preemptions() -> io::Result<u64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes one rusage, which outlives the call.
    check(unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) })?;
    // SAFETY: zeroes are a valid rusage, and the kernel has written a better one.
    let usage = unsafe { usage.assume_init() };
    Ok(u64::try_from(usage.ru_nivcsw).unwrap_or(0))
}

/// Sleeps until `instant` of `CLOCK_MONOTONIC`; an interrupted sleep goes on.
pub(crate) fn sleep_until(instant: Duration) {
    let wake = libc::timespec {
        tv_sec: libc::time_t::try_from(instant.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(instant.subsec_nanos()),
    };
    loop {
        let none = std::ptr::null_mut();
        // SAFETY: `wake` is a valid timespec, and with TIMER_ABSTIME the kernel writes no remainder.
        let error = unsafe {
            libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &raw const wake, none)
        };
        if error != libc::EINTR {
            return;
        }
    }
}

/// How far beyond their time the kernel may delay the timers of the calling thread, in nanoseconds: `PR_SET_TIMERSLACK`,
/// which takes zero for the default of 50 µs.
pub(crate) fn set_timer_slack(nanos: libc::c_ulong) -> io::Result<()> {
    // SAFETY: PR_SET_TIMERSLACK takes a number and no pointer.
    check(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, nanos) }).map(drop)
}

/// The kernel's number of the calling thread.
pub(crate) fn current_thread() -> i32 {
    // SAFETY: gettid has no arguments and cannot fail.
    unsafe { libc::gettid() }
}

/// The CPU the calling thread runs on at this moment.
#[inline]
pub(crate) fn current_cpu() -> io::Result<u32> {
    // SAFETY: sched_getcpu takes no arguments.
    let cpu = check(unsafe { libc::sched_getcpu() })?;
    Ok(cpu.unsigned_abs())
}

/// Bits of a CPU set as long as the largest the kernel can be built for (`CONFIG_NR_CPUS` ≤ 8192).
const CPU_WORDS: usize = 8192 / 64;

/// Lets the calling thread run on `cpus` only.
pub(crate) fn pin(cpus: impl Iterator<Item = u32>) -> io::Result<()> {
    let mut words = [0_u64; CPU_WORDS];
    for cpu in cpus {
        let word =
            words.get_mut(cpu as usize / 64).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        *word |= 1 << (cpu % 64);
    }
    // SAFETY: the kernel reads size_of_val(&words) bytes, all of them in `words`.
    check(unsafe { libc::sched_setaffinity(0, size_of_val(&words), words.as_ptr().cast()) }).map(drop)
}

/// Keeps signals away from the calling thread, but those that its own instructions raise.
pub(crate) fn block_signals() -> io::Result<()> {
    const OWN: [libc::c_int; 7] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGSYS, libc::SIGTRAP, libc::SIGABRT];
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: the call makes a set of the memory it is given.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    // SAFETY: it has just been made.
    let mut set = unsafe { set.assume_init() };
    for signal in OWN {
        // SAFETY: `set` is a set, and every one of these is a signal.
        unsafe { libc::sigdelset(&raw mut set, signal) };
    }
    // SAFETY: the call reads `set`, which outlives it, and writes no other.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// The signal that ends a call early: the first of those that a program may use as it likes, of which the C library has kept
/// its own back.
fn nudge_signal() -> libc::c_int {
    libc::SIGRTMIN()
}

/// Ignores, until something else is made of them, the signal of [`nudge`] and the one that a file grown over a limit sends: both
/// end a process that says nothing of them.
pub(crate) fn ignore_nudges_and_limits() -> io::Result<()> {
    for signal in [nudge_signal(), libc::SIGXFSZ] {
        // SAFETY: all zeroes is a sigaction: no flags, an empty mask, no restorer.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = libc::SIG_IGN;
        // SAFETY: `action` is whole and outlives the call, and has no handler.
        check(unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) })?;
    }
    Ok(())
}

/// Lets [`nudge`] reach the calling thread: the signal is handled, by doing nothing, and no call it ends is begun again.
pub(crate) fn accept_nudges() -> io::Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: all zeroes is a sigaction: no flags (and so no SA_RESTART), an empty mask, no restorer.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: `action` is whole and outlives the call; its handler does nothing, which is safe in any signal.
    check(unsafe { libc::sigaction(nudge_signal(), &raw const action, std::ptr::null_mut()) })?;
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: the call makes a set of the memory it is given.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: it has just been made.
    let mut set = unsafe { set.assume_init() };
    // SAFETY: `set` is a set, and the signal is one.
    unsafe { libc::sigaddset(&raw mut set, nudge_signal()) };
    // SAFETY: the call reads `set`, which outlives it, and writes no other.
    match unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Ends the blocking call of a thread of this process, where it is in one, with `EINTR`.
pub(crate) fn nudge(tid: i32) -> io::Result<()> {
    let process = std::process::id();
    // SAFETY: tgkill takes numbers only. A thread of this process that is not the one meant has the signal blocked, or handles
    // it by doing nothing.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, process, tid, nudge_signal()) };
    if sent == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The CPUs the calling thread may run on.
pub(crate) fn affinity() -> io::Result<Vec<u32>> {
    let mut words = [0_u64; CPU_WORDS];
    // SAFETY: the kernel writes at most size_of_val(&words) bytes, all of them in `words`.
    check(unsafe { libc::sched_getaffinity(0, size_of_val(&words), words.as_mut_ptr().cast()) })?;
    let bits = (0_u32..).zip(words.iter().flat_map(|word| (0..64).map(move |bit| word >> bit & 1 == 1)));
    Ok(bits.filter_map(|(cpu, set)| set.then_some(cpu)).collect())
}
