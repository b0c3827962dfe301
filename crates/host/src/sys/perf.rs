//! `perf_event_open(2)`: the structure that asks for an event, the calls on its descriptor, and the ring its samples come by.
//!
//! Numbers and layouts: `include/uapi/linux/perf_event.h`. What to ask for is decided above; what the ring holds is decoded
//! above, from a plain copy.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{check, page_size};

/// `struct perf_event_attr` up to `PERF_ATTR_SIZE_VER5`, which has all that is used here, since Linux 4.8.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PerfAttributes {
    pub(crate) kind: u32,
    /// Filled in by [`perf_open`].
    pub(crate) size: u32,
    pub(crate) config: u64,
    /// A period, or with [`flag::FREQUENCY`] a rate in Hz.
    pub(crate) sample: u64,
    pub(crate) sample_type: u64,
    pub(crate) read_format: u64,
    pub(crate) flags: u64,
    pub(crate) wakeup: u32,
    pub(crate) breakpoint_kind: u32,
    pub(crate) config1: u64,
    pub(crate) config2: u64,
    pub(crate) branches: u64,
    pub(crate) user_registers: u64,
    pub(crate) user_stack: u32,
    pub(crate) clock: i32,
    pub(crate) interrupt_registers: u64,
    pub(crate) aux_watermark: u32,
    pub(crate) max_stack: u16,
    pub(crate) reserved: u16,
}

const VER5: u32 = 112;
const _: () = assert!(size_of::<PerfAttributes>() == VER5 as usize);

/// The bits of [`PerfAttributes::flags`].
pub(crate) mod flag {
    pub(crate) const DISABLED: u64 = 1;
    pub(crate) const EXCLUDE_USER: u64 = 1 << 4;
    pub(crate) const EXCLUDE_KERNEL: u64 = 1 << 5;
    pub(crate) const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
    /// Tells of new names of threads, as of a program that begins.
    pub(crate) const COMMAND: u64 = 1 << 9;
    pub(crate) const FREQUENCY: u64 = 1 << 10;
    /// `precise_ip` is two bits from here.
    pub(crate) const PRECISE_SHIFT: u32 = 15;
    pub(crate) const SAMPLE_ID_ALL: u64 = 1 << 18;
    pub(crate) const USE_CLOCK: u64 = 1 << 25;
}

/// Whose events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PerfOf {
    /// Of one thread, wherever it runs; 0 is the calling one.
    Thread(i32),
    /// Of everything on one CPU.
    Cpu(u32),
}

/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 8;

/// Opens an event, in the group of `leader` where there is one.
pub(crate) fn perf_open(
    attributes: &PerfAttributes,
    of: PerfOf,
    leader: Option<BorrowedFd<'_>>,
) -> io::Result<OwnedFd> {
    let attributes = PerfAttributes { size: VER5, ..*attributes };
    let (thread, cpu) = match of {
        PerfOf::Thread(tid) => (tid, -1),
        PerfOf::Cpu(cpu) => (-1, i32::try_from(cpu).unwrap_or(i32::MAX)),
    };
    let group = leader.map_or(-1, |fd| fd.as_raw_fd());
    // SAFETY: the kernel reads `size` bytes of `attributes`, which outlives the call.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const attributes, thread, cpu, group, CLOSE_ON_EXEC)
    };
    let fd = check(i32::try_from(fd).unwrap_or(-1))?;
    // SAFETY: the kernel has just made the descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Lets a leader and its group count, all from one moment.
pub(crate) fn perf_enable(fd: BorrowedFd<'_>) -> io::Result<()> {
    /// `PERF_EVENT_IOC_ENABLE`, `_IO('$', 0)`; the same number wherever `_IO` is of the generic form.
    const ENABLE: libc::c_ulong = 0x2400;
    /// `PERF_IOC_FLAG_GROUP`.
    const GROUP: libc::c_ulong = 1;
    // SAFETY: the request takes a number and no pointer.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), ENABLE, GROUP) }).map(drop)
}

/// Stops a leader and its group.
pub(crate) fn perf_disable(fd: BorrowedFd<'_>) -> io::Result<()> {
    /// `PERF_EVENT_IOC_DISABLE`, `_IO('$', 1)`.
    const DISABLE: libc::c_ulong = 0x2401;
    // SAFETY: the request takes a number and no pointer.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), DISABLE, 1 as libc::c_ulong) }).map(drop)
}

/// Reads the words of a group into `words`; how many there were.
pub(crate) fn perf_read(fd: BorrowedFd<'_>, words: &mut [u64]) -> io::Result<usize> {
    // SAFETY: the kernel writes at most size_of_val(words) bytes there, and any bytes are words.
    let got = unsafe { libc::read(fd.as_raw_fd(), words.as_mut_ptr().cast(), size_of_val(words)) };
    usize::try_from(got).map(|got| got / size_of::<u64>()).map_err(|_| io::Error::last_os_error())
}

/// The ring of one event: a page that says how far the kernel has written and we have read, and 2^n pages of records.
#[derive(Debug)]
pub(crate) struct PerfRing {
    start: NonNull<u8>,
    length: usize,
    page: usize,
}

// SAFETY: the ring has one owner, who alone moves the tail; the head is atomic.
unsafe impl Send for PerfRing {}

/// Offsets of `data_head` and `data_tail` in `struct perf_event_mmap_page`.
const HEAD: usize = 1024;
const TAIL: usize = 1032;

impl PerfRing {
    /// Maps a ring of `pages` pages, a power of two, for the samples of `fd`.
    pub(crate) fn map(fd: BorrowedFd<'_>, pages: usize) -> io::Result<Self> {
        let page = page_size();
        let length = pages.checked_add(1).and_then(|all| all.checked_mul(page));
        let length = length.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        let (none, protection) = (std::ptr::null_mut(), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a null hint lets the kernel choose an address that nothing else uses.
        let start = unsafe { libc::mmap(none, length, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Self { start, length, page })
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        let at = self.start.as_ptr().wrapping_add(offset).cast();
        // SAFETY: both words are within the first page, which is mapped while `self` lives, on multiples of 8 bytes, and the
        // kernel changes them as a whole.
        unsafe { AtomicU64::from_ptr(at) }
    }

    /// Appends all records there are to `into`, whole ones only, and gives their room back to the kernel.
    pub(crate) fn drain(&mut self, into: &mut Vec<u8>) {
        // The kernel writes records before it moves the head, and reads the tail before it writes over them.
        let head = self.word(HEAD).load(Ordering::Acquire);
        let tail = self.word(TAIL).load(Ordering::Relaxed);
        let size = self.length - self.page;
        let waiting = usize::try_from(head.wrapping_sub(tail)).unwrap_or(usize::MAX);
        // More than there is room for cannot be: the kernel drops what does not fit, and says so in a record.
        if waiting <= size {
            #[expect(clippy::cast_possible_truncation, reason = "the place in the ring is what is left over")]
            let from = tail as usize & (size - 1);
            let first = waiting.min(size - from);
            self.take(from, first, into);
            self.take(0, waiting - first, into);
        }
        self.word(TAIL).store(head, Ordering::Release);
    }

    /// `from + length` is at most the size of the ring.
    fn take(&self, from: usize, length: usize, into: &mut Vec<u8>) {
        debug_assert!(self.page + from + length <= self.length);
        let at = self.start.as_ptr().wrapping_add(self.page + from);
        // SAFETY: the range is within the mapping, which drain has seen to, and between tail and head, where the kernel
        // writes nothing until the tail has moved.
        into.extend_from_slice(unsafe { std::slice::from_raw_parts(at, length) });
    }
}

impl Drop for PerfRing {
    fn drop(&mut self) {
        // SAFETY: start and length are those of the mapping, and no slice of it outlives a call of `take`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}
