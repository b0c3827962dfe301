//! The kernel's word on what of a file is in the page cache, and on what file system it is.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};

use super::call::call;
use super::number;

/// `cachestat(2)`, Linux 6.5; the same number on every architecture (scripts/syscall.tbl).
const SYS_CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range` of include/uapi/linux/mman.h.
#[repr(C)]
struct Range {
    offset: u64,
    length: u64,
}

/// `struct cachestat` of the same file.
#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// How many pages of `length` bytes from `offset` on are in the page cache.
pub(crate) fn cached_pages(file: &File, offset: u64, length: u64) -> io::Result<u64> {
    let range = Range { offset, length };
    let mut found = Cachestat::default();
    let arguments = [
        number(file.as_fd()),
        (&raw const range).expose_provenance(),
        (&raw mut found).expose_provenance(),
        0,
        0,
        0,
    ];
    // SAFETY: the kernel reads `range` and writes `found`; both have the layout of its header and outlive the call.
    unsafe { call(SYS_CACHESTAT, arguments) }?;
    Ok(found.cached)
}

/// The same by `mincore(2)` of a mapping, for kernels without `cachestat`; `offset` is that of a page.
pub(crate) fn resident_pages(file: &File, offset: u64, length: usize) -> io::Result<u64> {
    let pages = length.div_ceil(super::page_size());
    if pages == 0 {
        return Ok(0);
    }
    let offset = libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    let none = std::ptr::null_mut();
    let (protection, file) = (libc::PROT_READ, file.as_raw_fd());
    // SAFETY: a null hint lets the kernel choose an address that nothing else uses.
    let start = unsafe { libc::mmap(none, length, protection, libc::MAP_SHARED, file, offset) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let mut vector = vec![0_u8; pages];
    // SAFETY: the mapping is `length` long, and the vector has a byte for each of its pages.
    let answer = unsafe { libc::mincore(start, length, vector.as_mut_ptr()) };
    let error = io::Error::last_os_error();
    // SAFETY: the mapping made above, of which nothing is left.
    unsafe { libc::munmap(start, length) };
    if answer != 0 {
        return Err(error);
    }
    Ok(vector.iter().filter(|page| *page & 1 == 1).count() as u64)
}

/// The number of the file system that a file is on (`statfs(2)`).
pub(crate) fn file_system(file: &File) -> io::Result<u32> {
    let mut found = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the kernel writes one statfs, which outlives the call.
    super::check(unsafe { libc::fstatfs(file.as_raw_fd(), found.as_mut_ptr()) })?;
    // SAFETY: zeroes are a valid statfs, and the kernel has written a better one.
    let kind = unsafe { found.assume_init() }.f_type;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "of the word only 32 bits are used"
    )]
    Ok(kind as u32)
}

/// Lets the kernel drop the clean pages of a file from the page cache: `posix_fadvise(2)`.
#[cfg(test)]
pub(crate) fn forget(file: &File) -> io::Result<()> {
    // SAFETY: the call takes numbers only.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}
