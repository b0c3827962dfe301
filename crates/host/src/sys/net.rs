//! Sockets, epoll and the one ioctl that netlink does not replace.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::call::call;
use super::{bits, check, number};

/// `send(2)`.
#[inline]
pub(crate) fn send(fd: BorrowedFd<'_>, bytes: &[u8], flags: libc::c_int) -> io::Result<usize> {
    let arguments = [number(fd), bytes.as_ptr().expose_provenance(), bytes.len(), bits(flags), 0, 0];
    // SAFETY: the kernel reads at most bytes.len() bytes from `bytes`; without an address it reads no other.
    unsafe { call(libc::SYS_sendto, arguments) }
}

/// `recv(2)`.
#[inline]
pub(crate) fn recv(fd: BorrowedFd<'_>, buffer: &mut [u8], flags: libc::c_int) -> io::Result<usize> {
    let arguments = [number(fd), buffer.as_mut_ptr().expose_provenance(), buffer.len(), bits(flags), 0, 0];
    // SAFETY: the kernel writes at most buffer.len() bytes into `buffer`, and only initialised ones; no address is asked for.
    unsafe { call(libc::SYS_recvfrom, arguments) }
}

/// Sets a socket option that is one int.
pub(crate) fn set_option(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    set_option_bytes(fd, level, name, &value.to_ne_bytes())
}

/// Sets a socket option.
#[inline]
pub(crate) fn set_option_bytes(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &[u8],
) -> io::Result<()> {
    let length = libc::socklen_t::try_from(value.len()).unwrap_or(libc::socklen_t::MAX);
    let from = value.as_ptr().cast();
    // SAFETY: the kernel reads value.len() bytes from `value`; setting an option writes to no memory of ours.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, from, length) }).map(drop)
}

/// Reads a socket option that is one int.
pub(crate) fn int_option(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
) -> io::Result<libc::c_int> {
    let mut word = [0; 4];
    option(fd, level, name, &mut word)?;
    Ok(libc::c_int::from_ne_bytes(word))
}

/// Reads a socket option into `value` and returns how many bytes of it the kernel knows.
fn option(fd: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int, value: &mut [u8]) -> io::Result<usize> {
    let mut length = libc::socklen_t::try_from(value.len()).unwrap_or(libc::socklen_t::MAX);
    // SAFETY: the kernel writes at most `length` ≤ value.len() bytes into `value`, and the new length into `length`.
    check(unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &raw mut length)
    })?;
    Ok((length as usize).min(value.len()))
}

/// Fills `buffer` with the kernel's `struct tcp_info` and returns its length there.
pub(crate) fn tcp_info(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    option(fd, libc::IPPROTO_TCP, libc::TCP_INFO, buffer)
}

/// The words of `SO_MEMINFO` this kernel has, by their number in `enum` `SK_MEMINFO_*` of
/// `include/uapi/linux/sock_diag.h`.
pub(crate) fn memory_info(fd: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    // More than the nine of today.
    let mut bytes = [0; 64];
    let length = option(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut bytes)?;
    let words = bytes[..length].chunks_exact(4);
    Ok(words.filter_map(|word| word.first_chunk().map(|word| u32::from_ne_bytes(*word))).collect())
}

/// Whether the send and the receive buffer were fixed by the application; kernels before 5.14 do not tell.
pub(crate) fn buffer_locks(fd: BorrowedFd<'_>) -> io::Result<(bool, bool)> {
    /// From include/uapi/asm-generic/socket.h; the bits are in include/uapi/linux/socket.h.
    const SO_BUF_LOCK: libc::c_int = 72;
    let mut word = [0; 4];
    option(fd, libc::SOL_SOCKET, SO_BUF_LOCK, &mut word)?;
    let bits = u32::from_ne_bytes(word);
    Ok((bits & 1 != 0, bits & 2 != 0))
}

/// What `epoll_wait(2)` fills in.
pub(crate) type EpollEvent = libc::epoll_event;

/// A new epoll instance.
pub(crate) fn epoll_create() -> io::Result<OwnedFd> {
    // SAFETY: epoll_create1 takes no pointers.
    let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    // SAFETY: the call above has just made `fd`, and nothing else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `epoll_ctl(2)` with one of the `EPOLL_CTL_*` operations.
pub(crate) fn epoll_change(
    epoll: BorrowedFd<'_>,
    operation: libc::c_int,
    fd: BorrowedFd<'_>,
    events: u32,
    token: u64,
) -> io::Result<()> {
    let mut event = EpollEvent { events, u64: token };
    // SAFETY: both descriptors are open for the length of the call, and `event` outlives it.
    check(unsafe { libc::epoll_ctl(epoll.as_raw_fd(), operation, fd.as_raw_fd(), &raw mut event) }).map(drop)
}

/// `epoll_pwait2(2)`, or `epoll_wait(2)` with whole milliseconds, rounded up, on kernels before 5.11: fills a prefix of
/// `events` and returns its length.
pub(crate) fn epoll_wait(
    epoll: BorrowedFd<'_>,
    events: &mut [EpollEvent],
    timeout: Duration,
) -> io::Result<usize> {
    static COARSE: AtomicBool = AtomicBool::new(false);
    let capacity = libc::c_int::try_from(events.len()).unwrap_or(libc::c_int::MAX);
    if !COARSE.load(Ordering::Relaxed) {
        let length = libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::from(timeout.subsec_nanos()),
        };
        let no_mask = std::ptr::null::<libc::sigset_t>();
        // SAFETY: the kernel writes at most `capacity` ≤ events.len() events into `events` and reads `length`, which
        // outlives the call; without a mask it does not look at the mask's size.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                epoll.as_raw_fd(),
                events.as_mut_ptr(),
                capacity,
                &raw const length,
                no_mask,
                0_usize,
            )
        };
        match usize::try_from(count).map_err(|_| io::Error::last_os_error()) {
            // A profile that was written before the call refuses it as one it does not know.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                COARSE.store(true, Ordering::Relaxed);
            }
            answer => return answer,
        }
    }
    let timeout_ms =
        libc::c_int::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(libc::c_int::MAX);
    // SAFETY: the kernel writes at most `capacity` ≤ events.len() events into `events`.
    let count =
        check(unsafe { libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr(), capacity, timeout_ms) })?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// `struct ethtool_drvinfo` of include/uapi/linux/ethtool.h.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    version: [u8; 32],
    firmware: [u8; 32],
    bus: [u8; 32],
    erom_version: [u8; 32],
    reserved: [u8; 12],
    counts: [u32; 5],
}

/// Driver, driver version, firmware version and bus address of the device `name`, by ioctl: ethtool netlink has no
/// counterpart of `ETHTOOL_GDRVINFO`.
pub(crate) fn driver_info(socket: BorrowedFd<'_>, name: &str) -> io::Result<[String; 4]> {
    const ETHTOOL_GDRVINFO: u32 = 3;
    let mut info = DriverInfo {
        command: ETHTOOL_GDRVINFO,
        driver: [0; 32],
        version: [0; 32],
        firmware: [0; 32],
        bus: [0; 32],
        erom_version: [0; 32],
        reserved: [0; 12],
        counts: [0; 5],
    };
    let mut request = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: (&raw mut info).cast() },
    };
    if name.len() >= libc::IFNAMSIZ {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    // SAFETY: `request` points at `info`, which has the size and layout that ETHTOOL_GDRVINFO fills, and both outlive
    // the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) })?;
    let text = |bytes: [u8; 32]| {
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    };
    Ok([text(info.driver), text(info.version), text(info.firmware), text(info.bus)])
}

const _: () = assert!(size_of::<DriverInfo>() == 196, "struct ethtool_drvinfo is 196 bytes");
const _: () = assert!(size_of::<EpollEvent>() >= 12, "an event holds its bits and a 64-bit token");
