//! A driver's own counters, `ethtool -S`, by the two ioctls that netlink does not replace.
//!
//! The kernel takes no length from the caller: it writes as many entries as the driver has at that moment
//! (`ethtool_get_strings` and `ethtool_get_stats` in net/ethtool/ioctl.c), and that number can change between the question
//! how many there are and the answer. So the buffer ends in a page that nobody may touch: an answer longer than the
//! buffer fails with `EFAULT` there, and never reaches memory of ours.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::NonNull;
use std::slice;

use super::{check, page_size};

/// Length of a name, `ETH_GSTRING_LEN`.
const NAME: usize = 32;

/// Where the names begin in `struct ethtool_gstrings`: behind command, set and number.
const NAMES: usize = 12;

/// More than any driver has: one with thousands of queues reports some tens of thousands.
const MOST: usize = 1 << 16;

/// `ETH_SS_STATS`, the set of strings that names the counters.
const SET: u32 = 1;

/// Zeroed bytes with a page behind them that may be neither read nor written.
#[derive(Debug)]
struct Guarded {
    start: NonNull<u8>,
    /// Without the page.
    length: usize,
    whole: usize,
}

impl Guarded {
    fn new(length: usize) -> io::Result<Self> {
        let page = page_size();
        let length = length.max(1).next_multiple_of(page);
        let whole = length + page;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a null hint lets the kernel choose an address that nothing else uses.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), whole, libc::PROT_NONE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        let guarded = Self { start, length, whole };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the first `length` bytes are of the mapping just made, which nobody else knows.
        check(unsafe { libc::mprotect(start.as_ptr().cast(), length, access) })?;
        Ok(guarded)
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `length` bytes from `start` are mapped readable (in `new`) and initialised, because the kernel zeroes
        // them; only `bytes_mut` and `ask` write, and both borrow mutably.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, writable, and `&mut self` makes the slice the only access.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }

    /// Puts `question` at the start, asks, and leaves the answer in its place.
    fn ask(&mut self, socket: BorrowedFd<'_>, device: &str, question: &[u8]) -> io::Result<()> {
        let room = self.bytes_mut().get_mut(..question.len());
        room.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?.copy_from_slice(question);
        let mut request = libc::ifreq {
            ifr_name: [0; libc::IFNAMSIZ],
            ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: self.start.as_ptr().cast() },
        };
        if device.len() >= libc::IFNAMSIZ {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        // SAFETY: the kernel reads and writes upwards from `start`, which `&mut self` keeps others from; it cannot write
        // past `length`, where the page that nobody may touch begins (in `new`).
        check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) }).map(drop)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: start and length are those of the mapping, and no slice of it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.whole) };
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

fn not_supported() -> io::Error {
    io::Error::from_raw_os_error(libc::EOPNOTSUPP)
}

/// The names of the counters of the device `name`, in the driver's order.
pub(crate) fn counter_names(socket: BorrowedFd<'_>, name: &str) -> io::Result<Vec<String>> {
    const ETHTOOL_GSSET_INFO: u32 = 0x37;
    const ETHTOOL_GSTRINGS: u32 = 0x1b;
    // struct ethtool_sset_info: command, reserved, a mask of 64 bits, and a number for each bit that is set in it.
    let mut count = Guarded::new(20)?;
    let mask = (1_u64 << SET).to_ne_bytes();
    count.ask(socket, name, &[words(&[ETHTOOL_GSSET_INFO, 0]), mask.to_vec(), words(&[0])].concat())?;
    // A set the driver does not have is taken from the mask.
    let has = count.bytes().get(8..16) == Some(&mask[..]);
    let count = word(count.bytes(), 16).filter(|_| has).map_or(0, |count| count as usize);
    if count == 0 {
        return Err(not_supported());
    }
    if count > MOST {
        return Err(io::Error::from_raw_os_error(libc::E2BIG));
    }
    let mut strings = Guarded::new(NAMES + count * NAME)?;
    strings.ask(socket, name, &words(&[ETHTOOL_GSTRINGS, SET, u32::try_from(count).unwrap_or(0)]))?;
    let found = word(strings.bytes(), 8).map_or(0, |count| count as usize).min(count);
    let names = strings.bytes().get(NAMES..NAMES + found * NAME).unwrap_or_default();
    let text = |bytes: &[u8]| {
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).trim().to_owned()
    };
    Ok(names.chunks_exact(NAME).map(text).collect())
}

/// The values of the `count` counters of the device `name`; an error where it has another number of them by now.
pub(crate) fn counter_values(socket: BorrowedFd<'_>, name: &str, count: usize) -> io::Result<Vec<u64>> {
    const ETHTOOL_GSTATS: u32 = 0x1d;
    // struct ethtool_stats: command, number, and the values.
    const HEADER: usize = 8;
    let number = u32::try_from(count).ok().filter(|_| count <= MOST).ok_or_else(not_supported)?;
    let mut values = Guarded::new(HEADER + count * size_of::<u64>())?;
    values.ask(socket, name, &words(&[ETHTOOL_GSTATS, number]))?;
    if word(values.bytes(), 4) != Some(number) {
        return Err(io::Error::from_raw_os_error(libc::ESTALE));
    }
    let values = values.bytes().get(HEADER..HEADER + count * size_of::<u64>()).unwrap_or_default();
    Ok(values
        .chunks_exact(8)
        .filter_map(|word| word.first_chunk())
        .map(|word| u64::from_ne_bytes(*word))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;

    #[test]
    fn an_answer_longer_than_its_room_is_an_error_and_touches_nothing() {
        // What is read from here is longer than the buffer; the kernel stops at the page behind it.
        let zeros = std::fs::File::open("/dev/zero").expect("/dev/zero");
        let mut guarded = Guarded::new(100).expect("a buffer");
        assert_eq!(guarded.bytes().len(), page_size());
        guarded.bytes_mut().fill(7);
        let length = guarded.length;
        // SAFETY: the kernel cannot write past the page that nobody may touch, which is what is tested here.
        let read = unsafe { libc::read(zeros.as_raw_fd(), guarded.start.as_ptr().cast(), length + 64) };
        assert!(read == length.cast_signed() || read < 0, "{read}");
        assert!(guarded.bytes().len() == length);
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket");
        for name in ["lo", "no-such-device", "a-name-that-is-far-too-long"] {
            let refused = counter_names(socket.as_fd(), name);
            assert!(refused.is_err(), "{name}: {refused:?}");
        }
        assert!(counter_values(socket.as_fd(), "lo", MOST + 1).is_err());
    }
}
