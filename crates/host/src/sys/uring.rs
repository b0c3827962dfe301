//! One operation at a time through an `io_uring`, each waited for in the call that submits it.
//!
//! A ring is meant for many operations in flight; here it is one more way to have the kernel copy a block, measured beside the
//! others, so it holds one.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use io_uring::{IoUring, opcode, squeue, types};

use super::Block;

/// The place of a descriptor that has none, or whose own is meant (`io_uring_enter(2)`: offset −1).
const NO_PLACE: u64 = u64::MAX;

/// A ring with room for one operation.
pub(crate) struct Ring {
    ring: IoUring,
    /// An operation could not be submitted and is still queued: nothing more may be submitted, or it would be as well.
    stuck: bool,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("stuck", &self.stuck).finish_non_exhaustive()
    }
}

impl Ring {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { ring: IoUring::new(1)?, stuck: false })
    }

    /// Moves a block, from or to a place in the file or where the descriptor stands.
    #[inline]
    pub(crate) fn plain(
        &mut self,
        fd: BorrowedFd<'_>,
        at: Option<u64>,
        block: &mut Block<'_>,
    ) -> io::Result<usize> {
        let length = u32::try_from(block.len()).unwrap_or(u32::MAX);
        let (fd, at) = (types::Fd(fd.as_raw_fd()), at.unwrap_or(NO_PLACE));
        let entry = match block {
            Block::Into(bytes) => opcode::Read::new(fd, bytes.as_mut_ptr(), length).offset(at).build(),
            Block::From(bytes) => opcode::Write::new(fd, bytes.as_ptr(), length).offset(at).build(),
        };
        // SAFETY: the kernel writes at most `length` bytes into the block where it is borrowed mutably, and reads as many where not;
        // the borrow lasts until the operation is over.
        unsafe { self.one(&entry) }
    }

    /// Submits an operation and waits until it is over.
    ///
    /// # Safety
    ///
    /// - What the entry points to is valid until this returns.
    #[inline]
    unsafe fn one(&mut self, entry: &squeue::Entry) -> io::Result<usize> {
        if self.stuck {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        // SAFETY: the caller's: the kernel is done with the memory when the completion has come, and this function does not
        // return with the operation in flight.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.map_err(|_| io::Error::from(io::ErrorKind::ResourceBusy))?;
        loop {
            let entered = self.ring.submit_and_wait(1);
            if let Some(done) = self.ring.completion().next() {
                return usize::try_from(done.result())
                    .map_err(|_| io::Error::from_raw_os_error(-done.result()));
            }
            if let Err(error) = entered {
                // Not submitted, and never to be: closing the ring forgets it. What was submitted is waited for.
                if !self.ring.submission().is_empty() && error.raw_os_error() != Some(libc::EINTR) {
                    self.stuck = true;
                    return Err(error);
                }
            }
        }
    }
}
