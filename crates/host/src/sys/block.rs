//! The calls that move a block between a descriptor and a user's buffer, each a copy by the kernel.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use super::call::call;
use super::{check, number};

/// A block in a user's buffer, and which way it goes.
#[derive(Debug)]
pub enum Block<'a> {
    /// The kernel writes into it: `copy_to_user`.
    Into(&'a mut [u8]),
    /// The kernel reads from it: `copy_from_user`.
    From(&'a [u8]),
}

impl Block<'_> {
    /// How long it is.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Into(bytes) => bytes.len(),
            Self::From(bytes) => bytes.len(),
        }
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The part from `start` up to `end`; nothing where it is not within.
    #[must_use]
    #[inline]
    pub fn part(&mut self, start: usize, end: usize) -> Block<'_> {
        match self {
            Self::Into(bytes) => Block::Into(bytes.get_mut(start..end).unwrap_or_default()),
            Self::From(bytes) => Block::From(bytes.get(start..end).unwrap_or_default()),
        }
    }

    /// Where it is, for the kernel, which writes there only where it is [`Into`](Self::Into).
    #[inline]
    fn address(&mut self) -> *mut libc::c_void {
        match self {
            Self::Into(bytes) => bytes.as_mut_ptr().cast(),
            Self::From(bytes) => bytes.as_ptr().cast_mut().cast(),
        }
    }

    /// One number or another, by the way it goes.
    #[inline]
    fn which(&self, into: libc::c_long, from: libc::c_long) -> libc::c_long {
        match self {
            Self::Into(_) => into,
            Self::From(_) => from,
        }
    }
}

/// `read(2)` or `write(2)`, at a place `pread(2)` or `pwrite(2)`. The place is one register on the 64-bit machines haul is for.
#[inline]
pub(crate) fn plain(fd: BorrowedFd<'_>, at: Option<usize>, block: &mut Block<'_>) -> io::Result<usize> {
    let name = match at {
        None => block.which(libc::SYS_read, libc::SYS_write),
        Some(_) => block.which(libc::SYS_pread64, libc::SYS_pwrite64),
    };
    let arguments =
        [number(fd), block.address().expose_provenance(), block.len(), at.unwrap_or_default(), 0, 0];
    // SAFETY: of the block's memory the kernel writes at most its length where it is borrowed mutably, and reads as much where not:
    // `which` chose the call by the same variant. Calls without a place ignore the fourth argument.
    unsafe { call(name, arguments) }
}

/// `readv(2)` or `writev(2)` of the two halves of a block, at a place `preadv(2)` or `pwritev(2)`. The high half of the place is
/// ignored on 64-bit machines.
#[inline]
pub(crate) fn halves(fd: BorrowedFd<'_>, at: Option<usize>, block: &mut Block<'_>) -> io::Result<usize> {
    let name = match at {
        None => block.which(libc::SYS_readv, libc::SYS_writev),
        Some(_) => block.which(libc::SYS_preadv, libc::SYS_pwritev),
    };
    let (length, start) = (block.len(), block.address());
    let middle = length / 2;
    let vectors = [
        libc::iovec { iov_base: start, iov_len: middle },
        libc::iovec { iov_base: start.wrapping_byte_add(middle), iov_len: length - middle },
    ];
    let arguments =
        [number(fd), vectors.as_ptr().expose_provenance(), vectors.len(), at.unwrap_or_default(), 0, 0];
    // SAFETY: the kernel reads the vectors, which outlive the call; together they are the block, of which it writes where it is
    // borrowed mutably, and reads where not, as in `plain`.
    unsafe { call(name, arguments) }
}

/// `vmsplice(2)` out of a pipe: its pages are copied into the buffer (`vmsplice_to_user`, fs/splice.c).
#[inline]
pub(crate) fn from_pipe(pipe: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
    let vector = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let arguments = [number(pipe), (&raw const vector).expose_provenance(), 1, 0, 0, 0];
    // SAFETY: the kernel reads the vector, which outlives the call, and writes at most its length into `into`.
    unsafe { call(libc::SYS_vmsplice, arguments) }
}

/// The end of a pipe that is written to: `vmsplice(2)` takes its direction from the descriptor, and would write to what it is given
/// to read if it got the other one.
#[derive(Debug, Clone, Copy)]
pub struct WriteEnd<'fd>(BorrowedFd<'fd>);

impl<'fd> WriteEnd<'fd> {
    /// Looks whether the descriptor is one for writing; what it was opened for never changes.
    pub fn of(pipe: BorrowedFd<'fd>) -> io::Result<Self> {
        // SAFETY: F_GETFL takes no argument.
        let flags = check(unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_GETFL) })?;
        if flags & libc::O_ACCMODE == libc::O_RDONLY {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        Ok(Self(pipe))
    }
}

/// `vmsplice(2)` into a pipe: the buffer's pages are in it from then on, uncopied. The kernel holds them itself, so they may be
/// unmapped; who writes to them meanwhile changes what comes out.
#[inline]
pub(crate) fn into_pipe(pipe: WriteEnd<'_>, from: &[u8]) -> io::Result<usize> {
    let vector = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
    let arguments = [number(pipe.0), (&raw const vector).expose_provenance(), 1, 0, 0, 0];
    // SAFETY: the kernel reads the vector, which outlives the call, and never writes to pages it got through an end for writing,
    // which `WriteEnd::of` saw.
    unsafe { call(libc::SYS_vmsplice, arguments) }
}

/// `splice(2)` of up to `length` bytes; each of the two may have a place, and one of them is a pipe.
#[inline]
pub(crate) fn splice(
    from: (BorrowedFd<'_>, Option<libc::loff_t>),
    to: (BorrowedFd<'_>, Option<libc::loff_t>),
    length: usize,
) -> io::Result<usize> {
    let place = |at: &mut Option<libc::loff_t>| {
        at.as_mut().map_or(0, |at| std::ptr::from_mut(at).expose_provenance())
    };
    let (mut here, mut there) = (from.1, to.1);
    let arguments = [number(from.0), place(&mut here), number(to.0), place(&mut there), length, 0];
    // SAFETY: the kernel reads and writes the two places, which outlive the call; no other memory of ours is involved.
    unsafe { call(libc::SYS_splice, arguments) }
}

/// How many bytes can be read from a pipe or a stream socket now: `FIONREAD` (`tcp(7)`, `unix(7)`, `pipe(7)`).
pub(crate) fn arrived(fd: BorrowedFd<'_>) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: FIONREAD writes one int, which outlives the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONREAD, &raw mut count) })?;
    Ok(usize::try_from(count).unwrap_or(0))
}
