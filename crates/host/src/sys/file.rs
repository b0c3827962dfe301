//! Files in memory, and the two system calls that move their pages without a copy in user memory.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use super::call::call;
use super::{bits, check, number};

/// An empty file in memory, without a name in any directory.
pub(crate) fn memory_file(name: &CStr) -> io::Result<File> {
    // SAFETY: `name` is a C string that outlives the call.
    let fd = check(unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) })?;
    // SAFETY: the call above has just made `fd`, and nothing else knows it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// `sendfile(2)`: `length` bytes of `file` from `at` on.
#[inline]
pub(crate) fn sendfile(
    to: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    mut at: libc::off_t,
    length: usize,
) -> io::Result<usize> {
    let arguments = [number(to), number(file), (&raw mut at).expose_provenance(), length, 0, 0];
    // SAFETY: the kernel reads and writes `at`, which outlives the call; no other memory of ours is involved.
    unsafe { call(libc::SYS_sendfile, arguments) }
}

/// `splice(2)` from a file, from `at` on, into a pipe.
#[inline]
pub(crate) fn splice_from(
    file: BorrowedFd<'_>,
    mut at: libc::loff_t,
    pipe: BorrowedFd<'_>,
    length: usize,
) -> io::Result<usize> {
    let flags = bits(libc::SPLICE_F_NONBLOCK.cast_signed());
    let arguments = [number(file), (&raw mut at).expose_provenance(), number(pipe), 0, length, flags];
    // SAFETY: the kernel reads and writes `at`, which outlives the call; a pipe takes no offset, hence the null.
    unsafe { call(libc::SYS_splice, arguments) }
}

/// `splice(2)` from a pipe into a socket, which waits as the socket's mode says.
#[inline]
pub(crate) fn splice_to(pipe: BorrowedFd<'_>, to: BorrowedFd<'_>, length: usize) -> io::Result<usize> {
    // SAFETY: neither a pipe nor a socket takes an offset, hence the nulls; no memory of ours is involved.
    unsafe { call(libc::SYS_splice, [number(pipe), 0, number(to), 0, length, 0]) }
}

/// Asks for a pipe that holds `length` bytes and returns what it holds now.
pub(crate) fn pipe_size(pipe: BorrowedFd<'_>, length: libc::c_int) -> io::Result<usize> {
    // SAFETY: F_SETPIPE_SZ takes a number and no pointer.
    let size = check(unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, length) })?;
    Ok(usize::try_from(size).unwrap_or(0))
}
