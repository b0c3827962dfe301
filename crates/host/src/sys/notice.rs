//! A socket's error queue, where the kernel tells what became of bytes sent with `MSG_ZEROCOPY`.
//!
//! Kernel: `Documentation/networking/msg_zerocopy.rst`; include/uapi/linux/errqueue.h.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::time::Duration;

use super::call::call;
use super::{bits, check, control, number};

/// Room for a control message: `struct cmsghdr`, `struct sock_extended_err` and an IPv6 address are 16 + 16 + 28 bytes.
#[repr(C, align(8))]
struct Control([u8; 128]);

/// `struct sock_extended_err` as far as a completion fills it in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExtendedError {
    pub(crate) errno: u32,
    pub(crate) origin: u8,
    pub(crate) code: u8,
    pub(crate) info: u32,
    pub(crate) data: u32,
}

/// The next entry of the error queue; `WouldBlock` where there is none.
pub(crate) fn next_error(fd: BorrowedFd<'_>) -> io::Result<Option<ExtendedError>> {
    let mut control = Control([0; 128]);
    // SAFETY: zero is a value of every field of msghdr: null pointers, no lengths, no flags.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_control = (&raw mut control.0).cast();
    message.msg_controllen = size_of::<Control>() as _;
    let arguments = [number(fd), (&raw mut message).expose_provenance(), bits(libc::MSG_ERRQUEUE), 0, 0, 0];
    // SAFETY: the kernel writes at most msg_controllen bytes into `control`, which outlives the call, and no payload,
    // because there is no buffer for it.
    unsafe { call(libc::SYS_recvmsg, arguments) }?;
    let filled = control.0.get(..message.msg_controllen as usize).unwrap_or(&control.0);
    Ok(extended_error(filled))
}

/// The error among the control messages.
fn extended_error(control: &[u8]) -> Option<ExtendedError> {
    let kinds = [(libc::SOL_IP, libc::IP_RECVERR), (libc::SOL_IPV6, libc::IPV6_RECVERR)];
    let message =
        control::messages(control).find(|message| kinds.contains(&(message.level, message.kind)))?;
    let word = |at: usize| Some(u32::from_ne_bytes(*message.data.get(at..)?.first_chunk::<4>()?));
    let byte = |at: usize| message.data.get(at).copied();
    Some(ExtendedError { errno: word(0)?, origin: byte(4)?, code: byte(6)?, info: word(8)?, data: word(12)? })
}

/// Waits until one of `events` comes, an error or the end, which poll(2) reports unasked; false where `timeout`,
/// rounded up to milliseconds, passed first.
pub(crate) fn wait_for(fd: BorrowedFd<'_>, events: libc::c_short, timeout: Duration) -> io::Result<bool> {
    let timeout_ms =
        libc::c_int::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(libc::c_int::MAX);
    let mut one = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    // SAFETY: `one` is a single pollfd, as the count says, and outlives the call.
    let ready = check(unsafe { libc::poll(&raw mut one, 1, timeout_ms) })?;
    Ok(ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_is_read_from_its_place_in_the_control_message() {
        let mut control = 32_usize.to_ne_bytes().to_vec();
        control.resize(16, 0);
        control[8..12].copy_from_slice(&libc::SOL_IP.to_ne_bytes());
        control[12..16].copy_from_slice(&libc::IP_RECVERR.to_ne_bytes());
        control.extend([0, 0, 0, 0, 5, 0, 1, 0]);
        control.extend(7_u32.to_ne_bytes());
        control.extend(9_u32.to_ne_bytes());
        let expected = ExtendedError { errno: 0, origin: 5, code: 1, info: 7, data: 9 };
        assert_eq!(extended_error(&control), Some(expected));
        for cut in 0..control.len() {
            assert_eq!(extended_error(&control[..cut]), None, "cut at {cut}");
        }
        control[12] = 99;
        assert_eq!(extended_error(&control), None, "a control message of another kind");
    }
}
