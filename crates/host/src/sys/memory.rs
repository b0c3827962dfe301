//! Anonymous memory straight from the kernel.

use std::io;
use std::ptr::NonNull;
use std::slice;

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
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a null hint lets the kernel choose an address that nothing else uses.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        let mapping = Self { start, length };
        if huge {
            // Advice: a kernel built without huge pages refuses it, and the mapping is as good with small ones.
            // SAFETY: start and length are those of the mapping just made.
            unsafe { libc::madvise(start.as_ptr().cast(), length, libc::MADV_HUGEPAGE) };
        }
        Ok(mapping)
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
