//! Hardware counters of the calling thread: `perf_event_open(2)`, by its own structure, of which only the fields of its first
//! version are used.

use std::io::{self, Read as _};
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd};

use super::check;

/// `struct perf_event_attr` up to `PERF_ATTR_SIZE_VER0` (`include/uapi/linux/perf_event.h`).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint_kind: u32,
    breakpoint: u64,
}

const VER0: u32 = 64;
const _: () = assert!(size_of::<Attributes>() == VER0 as usize);

/// `PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING | PERF_FORMAT_GROUP`.
const FORMAT: u64 = 1 | 2 | 8;
/// `exclude_kernel | exclude_hv`, which are bits 5 and 6: what an ordinary user may count.
const USER_ONLY: u64 = 1 << 5 | 1 << 6;

/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 8;

/// A counter of the calling thread on whatever CPU it runs, of `PERF_TYPE_HARDWARE`, in the group of `leader`.
pub(crate) fn counter(config: u64, leader: Option<&OwnedFd>) -> io::Result<OwnedFd> {
    let attributes =
        Attributes { size: VER0, config, read_format: FORMAT, flags: USER_ONLY, ..Attributes::default() };
    let group = leader.map_or(-1, AsRawFd::as_raw_fd);
    // SAFETY: the kernel reads `size` bytes of `attributes`, which outlives the call.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const attributes, 0, -1, group, CLOSE_ON_EXEC)
    };
    let fd = check(i32::try_from(fd).unwrap_or(-1))?;
    // SAFETY: the kernel has just made the descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What a group of `N` counters says: time enabled, time running, and the counts.
pub(crate) fn read_group<const N: usize>(leader: &OwnedFd) -> io::Result<(u64, u64, [u64; N])> {
    let mut bytes = [0; 64];
    let mut file = std::fs::File::from(leader.try_clone()?);
    let got = file.read(&mut bytes)?;
    let mut words =
        bytes[..got].chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
    let mut next = || words.next().ok_or(io::ErrorKind::UnexpectedEof);
    let (count, enabled, running) = (next()?, next()?, next()?);
    if count != N as u64 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut counts = [0; N];
    for to in &mut counts {
        *to = next()?;
    }
    Ok((enabled, running, counts))
}
