//! A mapped file whose reads return an error, where a slice of it would end the process.

use core::ffi::c_void;
use core::ptr::null_mut;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;

use crate::error::Error;
use crate::routine::Routine;
use crate::signal::{self, Handler, Thread};

/// A read-only view of a file's pages.
///
/// Other processes may write to the file and truncate it at any time, which is why there is no slice of it: a slice's
/// bytes must not change, and reading one that is gone is a SIGBUS. (A private mapping changes nothing of that.)
/// Reads copy, by the best routine for this CPU, and what is gone is [`Error::Vanished`].
///
/// A page is the unit: what was truncated off the *last* page that is left reads as zeros, without an error.
#[derive(Debug)]
pub struct MappedFile {
    start: *mut c_void,
    /// Bytes of the file.
    len: usize,
    /// Bytes mapped: whole pages of the file system's.
    mapped: usize,
    routine: Routine,
    #[expect(dead_code, reason = "installed for as long as there is something that may vanish")]
    handler: Handler,
}

// SAFETY: nothing is written through the mapping, and nothing refers to it; the routines read it as memory that may
// change.
unsafe impl Send for MappedFile {}
// SAFETY: as above.
unsafe impl Sync for MappedFile {}

impl MappedFile {
    /// Maps all of the file as it is now, shared with everybody else who has it open.
    pub fn shared(file: &File) -> Result<Self, Error> {
        Self::map(file, libc::MAP_SHARED)
    }

    /// Maps all of the file as it is now, privately. It makes no difference to reads, nor to what happens to them.
    pub fn private(file: &File) -> Result<Self, Error> {
        Self::map(file, libc::MAP_PRIVATE)
    }

    fn map(file: &File, flags: i32) -> Result<Self, Error> {
        let handler = Handler::install()?;
        let os = |operation| move |source| Error::Os { operation, source };
        let metadata = file.metadata().map_err(os("ask for the length of the file"))?;
        if !metadata.is_file() {
            // Its length is not that of a file: a device would be an empty view.
            return Err(Error::Os {
                operation: "map what is no regular file",
                source: std::io::ErrorKind::InvalidInput.into(),
            });
        }
        let too_long =
            || Error::Os { operation: "map the file", source: std::io::ErrorKind::FileTooLarge.into() };
        let len = usize::try_from(metadata.len()).map_err(|_| too_long())?;
        let mut view = Self { start: null_mut(), len, mapped: 0, routine: Routine::best(), handler };
        if len == 0 {
            return Ok(view);
        }
        // A page of a hugetlb file is its block; munmap wants whole ones.
        let block = usize::try_from(metadata.blksize()).unwrap_or(1).max(1);
        let mapped = len.checked_next_multiple_of(block).ok_or_else(too_long)?;
        // SAFETY: a null hint lets the kernel choose an address that nothing else uses.
        let start = unsafe { libc::mmap(null_mut(), mapped, libc::PROT_READ, flags, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(Error::last_os("map the file"));
        }
        (view.start, view.mapped) = (start, mapped);
        Ok(view)
    }

    /// How many bytes the file had when it was mapped.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it had none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reads into `into` from `offset` on, and returns how many bytes: fewer than asked for at the end of the file
    /// only.
    ///
    /// First makes sure that a fault on this thread would be caught, which costs some system calls:
    /// [`MappedFile::read_on`] has it proved once.
    ///
    /// # Errors
    ///
    /// [`Error::Vanished`] where the file has been truncated: what could be read has been, and the rest of `into` is
    /// zeros. [`Error::Bounds`] beyond the end; [`Error::Blocked`] and [`Error::Replaced`] where a fault would end
    /// the process.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, Error> {
        signal::check()?;
        self.read(offset, into)
    }

    /// [`MappedFile::read_at`] on a thread of which it is known that faults are caught.
    ///
    /// # Errors
    ///
    /// As for `read_at`, without the last two.
    pub fn read_on(&self, _thread: &Thread<'_>, offset: u64, into: &mut [u8]) -> Result<usize, Error> {
        self.read(offset, into)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, Error> {
        let bounds = Error::Bounds { offset, len: self.len as u64 };
        let Ok(begin) = usize::try_from(offset) else { return Err(bounds) };
        let Some(there) = self.len.checked_sub(begin) else { return Err(bounds) };
        let wanted = into.len().min(there);
        let from = self.start.cast::<u8>().wrapping_add(begin);
        // SAFETY: `begin..begin + wanted` is in the mapping, which is nobody's Rust object; that faults are caught
        // was checked, or proved by the token.
        let left = unsafe { self.routine.try_copy_in(&mut into[..wanted], from) };
        if left == 0 {
            return Ok(wanted);
        }
        into[wanted..].fill(0);
        let read = wanted - left;
        Err(Error::Vanished { offset: offset + read as u64, read })
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        if self.mapped > 0 {
            // SAFETY: the mapping is this value's, and nothing refers to it.
            unsafe { libc::munmap(self.start, self.mapped) };
        }
    }
}
