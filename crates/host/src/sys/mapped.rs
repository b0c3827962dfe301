//! A window in this process's memory that the kernel puts pages of a TCP stream into.
//!
//! Kernel: `tcp_mmap` and `tcp_zerocopy_receive` in net/ipv4/tcp.c. An address of the window is readable from the call
//! that put a page there until the page is taken out, and faults (SIGBUS) otherwise; so the window itself knows how
//! much of it is filled, and gives out no more.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::AtomicU64;

use super::{check, length_of};

/// `struct tcp_zerocopy_receive` of include/uapi/linux/tcp.h.
#[repr(C)]
#[derive(Default)]
struct Request {
    address: u64,
    length: u32,
    skip_hint: u32,
    in_queue: u32,
    error: i32,
    copy_address: u64,
    copy_length: i32,
    flags: u32,
    control: u64,
    control_length: u64,
    message_flags: u32,
    reserved: u32,
}

const _: () = assert!(size_of::<Request>() == 64, "struct tcp_zerocopy_receive is 64 bytes");

/// What one call did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Taken {
    /// Bytes of the stream that are in the window now.
    pub(crate) mapped: usize,
    /// Bytes after those that are in the buffer.
    pub(crate) copied: usize,
    /// Bytes after those that have arrived and cannot be put into the window.
    pub(crate) unmappable: usize,
    /// The socket's error, which is reported once: an errno, or 0.
    pub(crate) error: i32,
}

/// The window.
#[derive(Debug)]
pub(crate) struct Window {
    start: NonNull<u8>,
    length: usize,
    /// How much of it holds pages.
    filled: usize,
}

// SAFETY: the window has one owner; `&self` gives atomic loads only, and pages come and go under `&mut self`.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

/// The size of a page.
pub(crate) fn page_size() -> usize {
    // SAFETY: sysconf takes no pointers.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

impl Window {
    /// A window of `length` bytes, a multiple of the page size, for streams like that of the TCP socket `fd`.
    pub(crate) fn new(fd: BorrowedFd<'_>, length: usize) -> io::Result<Self> {
        let none = std::ptr::null_mut();
        // SAFETY: a null hint lets the kernel choose an address that nothing else uses.
        let start = unsafe { libc::mmap(none, length, libc::PROT_READ, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Self { start, length, filled: 0 })
    }

    /// `TCP_ZEROCOPY_RECEIVE`: takes what the window held out of it, puts the next whole pages of the stream in, and
    /// copies up to `copy.len()` bytes after them that are not whole pages into `copy`. Never waits.
    #[inline]
    pub(crate) fn receive(&mut self, fd: BorrowedFd<'_>, copy: &mut [u8]) -> io::Result<Taken> {
        let mut request = Request {
            address: self.start.as_ptr().expose_provenance() as u64,
            length: u32::try_from(self.length).unwrap_or(u32::MAX),
            copy_address: copy.as_mut_ptr().expose_provenance() as u64,
            copy_length: i32::try_from(copy.len()).unwrap_or(i32::MAX),
            ..Request::default()
        };
        let mut length = length_of::<Request>();
        let to = (&raw mut request).cast();
        let (level, name) = (libc::IPPROTO_TCP, libc::TCP_ZEROCOPY_RECEIVE);
        // SAFETY: the kernel changes the pages of the window, which `&mut self` lets nobody look at, writes at most
        // `copy_length` ≤ copy.len() bytes into `copy`, and at most `length` bytes into `request`.
        let done = check(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, to, &raw mut length) });
        let known = |end: usize| length as usize >= end;
        let mapped = if done.is_ok() { (request.length as usize).min(self.length) } else { 0 };
        self.keep(mapped);
        done?;
        // A kernel before 5.11 has a shorter structure, and leaves the rest as it was given.
        let copies = known(offset_of!(Request, flags));
        let errors = known(offset_of!(Request, copy_address));
        Ok(Taken {
            mapped,
            copied: if copies { usize::try_from(request.copy_length).unwrap_or(0) } else { 0 },
            unmappable: request.skip_hint as usize,
            error: if errors { request.error.saturating_abs() } else { 0 },
        })
    }

    /// Takes out what an earlier call put behind the first `mapped` bytes. The kernel takes out no more than it is
    /// about to replace.
    #[inline]
    fn keep(&mut self, mapped: usize) {
        let held = std::mem::replace(&mut self.filled, mapped);
        if held > mapped {
            let from = self.start.as_ptr().wrapping_add(mapped).cast();
            // SAFETY: the range is within the window; taking pages out of it is what the owner may do.
            unsafe { libc::madvise(from, held - mapped, libc::MADV_DONTNEED) };
        }
    }

    /// What the last call put in. Atomic, because a sender on this host may still write to the very same page.
    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the first `filled` bytes are readable until the next call, which takes `&mut self`; they are whole
        // pages, so the words are aligned and within them, and 64-bit atomic loads from read-only memory are plain
        // loads.
        unsafe { slice::from_raw_parts(self.start.as_ptr().cast(), self.filled / size_of::<AtomicU64>()) }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: start and length are those of the mapping, and no slice of it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}
