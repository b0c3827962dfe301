//! The calls that move a block between a descriptor and a user's buffer, each a copy by the kernel.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use super::call::call;
use super::{check, number};

/// `read(2)`.
#[inline]
pub(crate) fn read(fd: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
    let arguments = [number(fd), into.as_mut_ptr().expose_provenance(), into.len(), 0, 0, 0];
    // SAFETY: the kernel writes at most into.len() bytes into `into`.
    unsafe { call(libc::SYS_read, arguments) }
}

/// `write(2)`.
#[inline]
pub(crate) fn write(fd: BorrowedFd<'_>, from: &[u8]) -> io::Result<usize> {
    let arguments = [number(fd), from.as_ptr().expose_provenance(), from.len(), 0, 0, 0];
    // SAFETY: the kernel reads at most from.len() bytes of `from`.
    unsafe { call(libc::SYS_write, arguments) }
}

/// `pread(2)`. The place is one register on the 64-bit machines haul is for.
#[inline]
pub(crate) fn read_at(fd: BorrowedFd<'_>, at: usize, into: &mut [u8]) -> io::Result<usize> {
    let arguments = [number(fd), into.as_mut_ptr().expose_provenance(), into.len(), at, 0, 0];
    // SAFETY: the kernel writes at most into.len() bytes into `into`.
    unsafe { call(libc::SYS_pread64, arguments) }
}

/// `pwrite(2)`.
#[inline]
pub(crate) fn write_at(fd: BorrowedFd<'_>, at: usize, from: &[u8]) -> io::Result<usize> {
    let arguments = [number(fd), from.as_ptr().expose_provenance(), from.len(), at, 0, 0];
    // SAFETY: the kernel reads at most from.len() bytes of `from`.
    unsafe { call(libc::SYS_pwrite64, arguments) }
}

/// The two halves of a buffer that is written to.
#[inline]
fn halves_mut(into: &mut [u8]) -> [libc::iovec; 2] {
    let (first, second) = into.split_at_mut(into.len() / 2);
    [first, second].map(|half| libc::iovec { iov_base: half.as_mut_ptr().cast(), iov_len: half.len() })
}

/// The two halves of a buffer that is read from.
#[inline]
fn halves(from: &[u8]) -> [libc::iovec; 2] {
    let (first, second) = from.split_at(from.len() / 2);
    [first, second].map(|half| libc::iovec { iov_base: half.as_ptr().cast_mut().cast(), iov_len: half.len() })
}

/// `readv(2)` into the two halves of the buffer.
#[inline]
pub(crate) fn read_halves(fd: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
    let vectors = halves_mut(into);
    let arguments = [number(fd), vectors.as_ptr().expose_provenance(), vectors.len(), 0, 0, 0];
    // SAFETY: the kernel reads the vectors, which outlive the call, and writes at most their lengths into the halves.
    unsafe { call(libc::SYS_readv, arguments) }
}

/// `writev(2)` from the two halves of the buffer.
#[inline]
pub(crate) fn write_halves(fd: BorrowedFd<'_>, from: &[u8]) -> io::Result<usize> {
    let vectors = halves(from);
    let arguments = [number(fd), vectors.as_ptr().expose_provenance(), vectors.len(), 0, 0, 0];
    // SAFETY: the kernel reads the vectors, which outlive the call, and at most their lengths of the halves.
    unsafe { call(libc::SYS_writev, arguments) }
}

/// `preadv(2)` into the two halves of the buffer. The high half of the place is ignored on 64-bit machines.
#[inline]
pub(crate) fn read_halves_at(fd: BorrowedFd<'_>, at: usize, into: &mut [u8]) -> io::Result<usize> {
    let vectors = halves_mut(into);
    let arguments = [number(fd), vectors.as_ptr().expose_provenance(), vectors.len(), at, 0, 0];
    // SAFETY: the kernel reads the vectors, which outlive the call, and writes at most their lengths into the halves.
    unsafe { call(libc::SYS_preadv, arguments) }
}

/// `pwritev(2)` from the two halves of the buffer.
#[inline]
pub(crate) fn write_halves_at(fd: BorrowedFd<'_>, at: usize, from: &[u8]) -> io::Result<usize> {
    let vectors = halves(from);
    let arguments = [number(fd), vectors.as_ptr().expose_provenance(), vectors.len(), at, 0, 0];
    // SAFETY: the kernel reads the vectors, which outlive the call, and at most their lengths of the halves.
    unsafe { call(libc::SYS_pwritev, arguments) }
}

/// `vmsplice(2)` out of a pipe: its pages are copied into the buffer (`vmsplice_to_user`, fs/splice.c).
#[inline]
pub(crate) fn from_pipe(pipe: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
    let vector = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let arguments = [number(pipe), (&raw const vector).expose_provenance(), 1, 0, 0, 0];
    // SAFETY: the kernel reads the vector, which outlives the call, and writes at most its length into `into`.
    unsafe { call(libc::SYS_vmsplice, arguments) }
}

/// `vmsplice(2)` into a pipe: the buffer's pages are in it from then on, uncopied. The kernel holds them itself, so they may be
/// unmapped; who writes to them meanwhile changes what comes out.
#[inline]
pub(crate) fn into_pipe(pipe: BorrowedFd<'_>, from: &[u8]) -> io::Result<usize> {
    let vector = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
    let arguments = [number(pipe), (&raw const vector).expose_provenance(), 1, 0, 0, 0];
    // SAFETY: the kernel reads the vector, which outlives the call, and never writes to pages it got so.
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
