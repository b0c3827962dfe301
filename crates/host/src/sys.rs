//! The system calls that std, socket2 and the netlink crates do not wrap, each as a safe function.
//!
//! All of the crate's `unsafe` is here. A function takes borrowed file descriptors and slices, so the caller cannot
//! break a rule the kernel relies on, and returns the plain [`io::Error`]; the modules above add operation and object.
//! No policy lives here.

mod batch;
mod block;
mod cached;
mod call;
mod control;
mod file;
mod mapped;
mod memory;
mod mount;
mod net;
mod nic;
mod notice;
mod ns;
mod perf;
mod sched;
mod uring;

pub(crate) use batch::{Arrived, Batch, receive_message};
pub use block::{Block, WriteEnd};
pub(crate) use block::{arrived, from_pipe, halves, into_pipe, plain, splice};
#[cfg(test)]
pub(crate) use cached::forget;
pub(crate) use cached::{cached_pages, file_system, resident_pages};
pub(crate) use file::{memory_file, pipe_size, sendfile, splice_from, splice_to};
pub(crate) use mapped::{Taken, Window, page_size};
pub(crate) use memory::{HugeTable, Mapping};
pub(crate) use mount::sysfs_here;
pub(crate) use net::{
    EpollEvent, buffer_locks, driver_info, epoll_change, epoll_create, epoll_wait, int_option, memory_info,
    recv, send, set_option, set_option_bytes, tcp_info,
};
pub(crate) use nic::{counter_names, counter_values};
pub(crate) use notice::{next_error, wait_for};
pub(crate) use ns::{
    NamespaceKind, effective_ids, enter, keep_without, kill_group, leave, netns_cookie, never_block,
    open_files, set_open_files, signal_at_parents_end, signal_process,
};
pub(crate) use perf::{
    PerfAttributes, PerfOf, PerfRing, flag as perf_flag, perf_disable, perf_enable, perf_open, perf_read,
};
pub(crate) use sched::{
    accept_nudges, affinity, block_signals, clock_of_thread, current_cpu, current_thread,
    ignore_nudges_and_limits, monotonic, nudge, pin, preemptions, set_timer_slack, sleep_until,
};

pub(crate) use uring::Ring;

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// The value of a call that answers −1 on failure.
fn check(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// A descriptor as an argument of a call.
#[inline]
fn number(fd: BorrowedFd<'_>) -> usize {
    fd.as_raw_fd().cast_unsigned() as usize
}

/// Flags as an argument of a call.
#[inline]
fn bits(flags: libc::c_int) -> usize {
    flags.cast_unsigned() as usize
}

/// The size of `T` for the kernel.
#[expect(clippy::cast_possible_truncation, reason = "the structures passed here are a few hundred bytes")]
fn length_of<T>() -> libc::socklen_t {
    size_of::<T>() as libc::socklen_t
}
