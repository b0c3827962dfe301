//! Namespaces, identities and limits of this process.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use super::call::call;
use super::{check, length_of};

/// The namespaces haul makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NamespaceKind {
    /// Network.
    Net,
    /// User.
    User,
    /// Mount.
    Mount,
}

impl NamespaceKind {
    fn flag(self) -> libc::c_int {
        match self {
            Self::Net => libc::CLONE_NEWNET,
            Self::User => libc::CLONE_NEWUSER,
            Self::Mount => libc::CLONE_NEWNS,
        }
    }
}

/// Moves the calling thread into a new namespace.
pub(crate) fn leave(kind: NamespaceKind) -> io::Result<()> {
    // SAFETY: unshare takes no pointers, and none of the flags unshares memory or file descriptors.
    check(unsafe { libc::unshare(kind.flag()) }).map(drop)
}

/// Moves the calling thread into the namespace `fd` refers to.
pub(crate) fn enter(fd: BorrowedFd<'_>, kind: NamespaceKind) -> io::Result<()> {
    // SAFETY: the descriptor is open for the length of the call, and the kernel checks its kind.
    check(unsafe { libc::setns(fd.as_raw_fd(), kind.flag()) }).map(drop)
}

/// The cookie of the network namespace `socket` was opened in; kernels before 5.14 have none.
pub(crate) fn netns_cookie(socket: BorrowedFd<'_>) -> io::Result<u64> {
    /// From include/uapi/asm-generic/socket.h.
    const SO_NETNS_COOKIE: libc::c_int = 71;
    let mut cookie = 0_u64;
    let mut length = length_of::<u64>();
    // SAFETY: the kernel writes at most `length` bytes into `cookie`, which has that many.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    check(answer).map(|_| cookie)
}

/// Has the kernel send `signal` to this process when the thread that started it ends.
pub(crate) fn signal_at_parents_end(signal: libc::c_int) -> io::Result<()> {
    let signal = libc::c_ulong::try_from(signal).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: PR_SET_PDEATHSIG takes a number and no pointer.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) }).map(drop)
}

/// Sends a signal to a process.
pub(crate) fn signal_process(pid: u32, signal: libc::c_int) -> io::Result<()> {
    let pid = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0).ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: kill takes numbers only; a positive one is a single process.
    check(unsafe { libc::kill(pid, signal) }).map(drop)
}

/// The effective user and group of this process.
pub(crate) fn effective_ids() -> (u32, u32) {
    // SAFETY: geteuid has no arguments and cannot fail.
    let user = unsafe { libc::geteuid() };
    // SAFETY: getegid has no arguments and cannot fail.
    let group = unsafe { libc::getegid() };
    (user, group)
}

/// How many files this process may have open, and how far it may raise that itself.
pub(crate) fn open_files() -> io::Result<(u64, u64)> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills in `limit`, which outlives the call.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    Ok((limit.rlim_cur, limit.rlim_max))
}

/// Sets both.
pub(crate) fn set_open_files(soft: u64, hard: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    // SAFETY: the kernel reads `limit`, which outlives the call.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }).map(drop)
}

/// Gives the calling thread a table of descriptors of its own (where it shares one), without those from `first` to `last`.
pub(crate) fn keep_without(first: u32, last: u32) -> io::Result<()> {
    let arguments = [first as usize, last as usize, libc::CLOSE_RANGE_UNSHARE as usize, 0, 0, 0];
    // SAFETY: the call takes numbers and no pointer. Descriptors vanish from this thread's table only, and with them
    // what it may do, not what it may touch.
    unsafe { call(libc::SYS_close_range, arguments) }.map(drop)
}

/// Ends every process of a group. The caller knows that the number is still the group's.
pub(crate) fn kill_group(group: libc::pid_t) -> io::Result<()> {
    // 0 would be our own group, and −1 is everybody.
    if group <= 1 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the call takes numbers and no pointer.
    check(unsafe { libc::kill(-group, libc::SIGKILL) }).map(drop)
}

/// Makes reading from `fd`, and from whatever shares its open file, return at once.
pub(crate) fn never_block(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor is open for the length of the call, which takes a number besides.
    let flags = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: as above.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) }).map(drop)
}
