//! Anonymous memory straight from the kernel.

use std::io;
use std::ptr::NonNull;
use std::slice;

/// Which pool of huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HugeTable {
    TwoMegabytes,
    OneGigabyte,
}

/// A private anonymous mapping: page-aligned, readable, writable, zeroed, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping is plain memory with one owner; `&self` gives shared and `&mut self` exclusive access only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `length` bytes (at least one) and asks for huge pages where `huge`.
    pub(crate) fn new(length: usize, huge: bool) -> io::Result<Self> {
        let mapping = Self::map(length, 0)?;
        if huge {
            // A kernel built without huge pages refuses it, and the mapping is as good with small ones.
            let _ = mapping.advise(libc::MADV_HUGEPAGE);
        }
        Ok(mapping)
    }

    /// Maps `length` bytes of small pages, whatever the system does for others.
    pub(crate) fn small(length: usize) -> io::Result<Self> {
        let mapping = Self::map(length, 0)?;
        // A kernel without huge pages refuses it, and has none to give.
        let _ = mapping.advise(libc::MADV_NOHUGEPAGE);
        Ok(mapping)
    }

    /// Maps `length` bytes, a multiple of the page, from the pool of huge pages that the administrator set aside.
    pub(crate) fn from_pool(length: usize, table: HugeTable) -> io::Result<Self> {
        let size = match table {
            HugeTable::TwoMegabytes => libc::MAP_HUGE_2MB,
            HugeTable::OneGigabyte => libc::MAP_HUGE_1GB,
        };
        Self::map(length, libc::MAP_HUGETLB | size)
    }

    fn advise(&self, advice: libc::c_int) -> io::Result<()> {
        // SAFETY: start and length are those of the mapping, and the advice changes no byte of it.
        super::check(unsafe { libc::madvise(self.start.as_ptr().cast(), self.length, advice) }).map(drop)
    }

    fn map(length: usize, more: libc::c_int) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | more;
        // SAFETY: a null hint lets the kernel choose an address that nothing else uses.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Self { start, length })
    }

    /// Where it begins; it stays there when the value moves.
    pub(super) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `length` bytes from `start` are mapped, and initialised because the kernel zeroes them; `&self`
        // keeps out writers for the lifetime of the slice.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }

    /// The bytes, to write.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes the slice the only access.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: start and length are those of the mapping, and no slice of it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}
