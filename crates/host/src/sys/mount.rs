//! A file system that is mounted nowhere.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::raw::c_int;

use super::call::call;

/// sysfs as the calling thread's network namespace has it, reached by this descriptor alone and gone with it. Linux 5.2.
///
/// Takes `CAP_SYS_ADMIN` over the calling thread's mount namespace (`may_mount` in `fs/namespace.c`).
pub(crate) fn sysfs_here() -> io::Result<OwnedFd> {
    /// From include/uapi/linux/mount.h.
    const FSOPEN_CLOEXEC: usize = 1;
    const FSCONFIG_CMD_CREATE: usize = 6;
    const FSMOUNT_CLOEXEC: usize = 1;
    const MOUNT_ATTR_NOSUID: usize = 2;
    const MOUNT_ATTR_NODEV: usize = 4;
    const MOUNT_ATTR_NOEXEC: usize = 8;
    let name = c"sysfs";
    // SAFETY: the name is a string with its end, and outlives the call.
    let context =
        owned(unsafe { call(libc::SYS_fsopen, [name.as_ptr() as usize, FSOPEN_CLOEXEC, 0, 0, 0, 0]) }?)?;
    let raw = usize::try_from(context.as_raw_fd()).map_err(io::Error::other)?;
    // SAFETY: the command takes neither a key nor a value.
    unsafe { call(libc::SYS_fsconfig, [raw, FSCONFIG_CMD_CREATE, 0, 0, 0, 0]) }?;
    let attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
    // SAFETY: the call takes numbers and no pointer.
    owned(unsafe { call(libc::SYS_fsmount, [raw, FSMOUNT_CLOEXEC, attributes, 0, 0, 0]) }?)
}

fn owned(answer: usize) -> io::Result<OwnedFd> {
    let raw = c_int::try_from(answer).map_err(io::Error::other)?;
    // SAFETY: the kernel has just given the number to this process, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}
