//! Many messages in one system call: sendmmsg(2) and recvmmsg(2), and recvmsg(2) for one with its control message.
//!
//! A header points at its vector, the vector at its message's place in one mapping, and all of that stays where it is
//! when the batch moves: the tables are held through raw pointers, so that no reference claims them for its own.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use super::call::call;
use super::{Mapping, bits, control, number};

/// Room for the control messages of one datagram: the segment size takes 24 bytes, a time stamp 32.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Plain values at an address that does not change.
struct Table<T>(NonNull<[T]>);

impl<T: Copy> Table<T> {
    fn new(values: Vec<T>) -> Self {
        Self(NonNull::from(Box::leak(values.into_boxed_slice())))
    }

    /// The address of one of them.
    fn at(&self, index: usize) -> *mut T {
        assert!(index < self.0.len(), "a table has no such place");
        self.0.cast::<T>().as_ptr().wrapping_add(index)
    }

    #[inline]
    fn values(&self) -> &[T] {
        // SAFETY: the values were leaked from a box in `new` and are freed in `drop` only; `&self` keeps out writers.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    fn values_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `values`, and `&mut self` makes the slice the only access.
        unsafe { self.0.as_mut() }
    }
}

impl<T> Drop for Table<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from a box in `new`, and nothing else frees it.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// What arrived in one place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrived<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) truncated: bool,
    pub(crate) segment: Option<u16>,
}

/// Messages of up to `size` bytes, each at a place of its own.
pub(crate) struct Batch {
    headers: Table<libc::mmsghdr>,
    controls: Table<Control>,
    /// Only the headers' pointers lead here.
    _vectors: Table<libc::iovec>,
    payload: Mapping,
    size: usize,
    stride: usize,
    /// How many messages the last receive filled.
    filled: usize,
    /// How many headers do not give their control buffer's whole length.
    short: usize,
}

// SAFETY: the tables and the mapping have this batch as their one owner, and the pointers in them lead to one another
// only; `&self` gives shared and `&mut self` exclusive access.
unsafe impl Send for Batch {}
// SAFETY: as above.
unsafe impl Sync for Batch {}

impl Batch {
    /// `count` messages of `size` bytes, `stride` apart in `payload`, which must hold them.
    pub(crate) fn new(payload: Mapping, count: usize, size: usize, stride: usize) -> io::Result<Self> {
        let fits = count.checked_mul(stride).is_some_and(|length| length <= payload.bytes().len());
        if !fits || size > stride || count == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let place = |index: usize| payload.start().wrapping_add(index * stride).cast();
        let vectors = Table::new(
            (0..count).map(|index| libc::iovec { iov_base: place(index), iov_len: size }).collect(),
        );
        let controls = Table::new(vec![Control([0; 64]); count]);
        let headers = (0..count).map(|index| {
            // SAFETY: zero is a value of every field of mmsghdr: null pointers, no lengths, no flags.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_iov = vectors.at(index);
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = controls.at(index).cast();
            header
        });
        let headers = Table::new(headers.collect());
        Ok(Self { headers, controls, _vectors: vectors, payload, size, stride, filled: 0, short: count })
    }

    /// How many messages it has room for.
    pub(crate) fn count(&self) -> usize {
        self.headers.values().len()
    }

    /// A message; empty where there is none of that number.
    #[inline]
    pub(crate) fn message_mut(&mut self, index: usize) -> &mut [u8] {
        if index >= self.count() {
            return &mut [];
        }
        let start = index * self.stride;
        self.payload.bytes_mut().get_mut(start..start + self.size).unwrap_or_default()
    }

    /// `sendmmsg(2)`: sends the messages of `range` and returns how many of them the kernel took.
    #[inline]
    pub(crate) fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        range: Range<usize>,
        flags: libc::c_int,
    ) -> io::Result<usize> {
        let headers = self.headers.values_mut().get_mut(range).ok_or(io::ErrorKind::InvalidInput)?;
        let at = headers.as_mut_ptr().expose_provenance();
        // SAFETY: so many headers are there, each with one vector to `size` bytes of the mapping (see `new`), which the
        // kernel reads; it writes to the headers only. A control length of 0 lets it see no control message.
        unsafe { call(libc::SYS_sendmmsg, [number(fd), at, headers.len(), bits(flags), 0, 0]) }
    }

    /// `recvmmsg(2)`: fills a prefix of the messages and returns its length.
    #[inline]
    pub(crate) fn receive(&mut self, fd: BorrowedFd<'_>, flags: libc::c_int) -> io::Result<usize> {
        let short = std::mem::take(&mut self.short);
        self.filled = 0;
        let headers = self.headers.values_mut();
        // The kernel shortens the room to what it used; it leaves the other lengths and the pointers as they are.
        for header in headers.iter_mut().take(short) {
            header.msg_hdr.msg_controllen = size_of::<Control>() as _;
        }
        let at = headers.as_mut_ptr().expose_provenance();
        // SAFETY: so many headers are there, each with one vector to `size` bytes of the mapping and one control buffer
        // of the length just given (see `new`); `&mut self` keeps out every other access to them. There is no timeout.
        self.filled =
            unsafe { call(libc::SYS_recvmmsg, [number(fd), at, headers.len(), bits(flags), 0, 0]) }?;
        self.short = self.filled;
        Ok(self.filled)
    }

    /// What the last receive filled.
    #[inline]
    pub(crate) fn arrived(&self) -> impl Iterator<Item = Arrived<'_>> {
        let places = self.payload.bytes().chunks_exact(self.stride);
        let headers = self.headers.values().iter().zip(self.controls.values()).take(self.filled);
        places.zip(headers).map(|(place, (header, control))| {
            let length = (header.msg_len as usize).min(self.size);
            let control = control.0.get(..header.msg_hdr.msg_controllen).unwrap_or_default();
            Arrived {
                bytes: place.get(..length).unwrap_or_default(),
                truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
                segment: control::udp_segment(control),
            }
        })
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { size, stride, filled, .. } = self;
        write!(f, "{} messages of {size} bytes, {stride} apart, {filled} filled", self.count())
    }
}

/// `recvmsg(2)`: one message and the segment size the kernel tells beside it.
#[inline]
pub(crate) fn receive_message<'a>(
    fd: BorrowedFd<'_>,
    buffer: &'a mut [u8],
    flags: libc::c_int,
) -> io::Result<Arrived<'a>> {
    let mut control = Control([0; 64]);
    let mut vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: zero is a value of every field of msghdr: null pointers, no lengths, no flags.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control.0).cast();
    message.msg_controllen = size_of::<Control>() as _;
    let arguments = [number(fd), (&raw mut message).expose_provenance(), bits(flags), 0, 0, 0];
    // SAFETY: the kernel writes at most buffer.len() bytes into `buffer` and msg_controllen bytes into `control`; all
    // that `message` points at outlives the call.
    let length = unsafe { call(libc::SYS_recvmsg, arguments) }?;
    let filled = control.0.get(..message.msg_controllen as usize).unwrap_or_default();
    Ok(Arrived {
        // With MSG_TRUNC in `flags` the length is that of the whole datagram.
        bytes: buffer.get(..length).unwrap_or(buffer),
        truncated: message.msg_flags & libc::MSG_TRUNC != 0,
        segment: control::udp_segment(filled),
    })
}
