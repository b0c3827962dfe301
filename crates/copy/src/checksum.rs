//! The Internet checksum (RFC 1071): sums as values, and routines that sum, or copy and sum in one pass.
//!
//! ```text
//! sum      = w0 + w1 + …            16-bit words, one's complement: a carry out of the top comes back in at the bottom
//! checksum = !sum                   what a header carries; the sum over data *and* its checksum is 0xffff
//! ```
//!
//! Three properties of RFC 1071 §2 carry this module.
//!
//! 1. *Parts may be summed alone* and combined in any order ([`Sum::combine`]). A part that starts at an odd offset has its
//!    bytes in the other halves of the words, which is its sum with the two bytes swapped: a [`Sum`] knows whether its
//!    length is odd, so that nobody has to remember.
//! 2. *Any wider word does*: 2^16 − 1 divides 2^32 − 1 and 2^64 − 1, so that sums of 64-bit words, or of 32-bit halves in
//!    the lanes of a vector, fold to the same 16 bits. Swapping the bytes is multiplying by 2^8, a rotation.
//! 3. *Byte order does not matter* until the end: the sum of words read in the wrong order is the sum, read in the wrong
//!    order. The routines add words as the CPU loads them; [`Sum::fold`] turns the result once.
//!
//! A sum is +0 (0x0000) only if every byte is zero, and otherwise −0 (0xffff) where it is a multiple of 0xffff; all
//! routines keep to that, so that they agree in all 16 bits and not only modulo 0xffff.
//!
//! [`SumRoutine`] is the counterpart of [`crate::Routine`]: a value that proves its instructions may run here, with the same
//! contract where memory faults. Its fused copy is what network stacks call *csum and copy*: the data pass through the
//! registers once. The sum is always of the bytes that were *stored*, also if someone else writes to the source meanwhile.

mod portable;
mod routine;

#[cfg(all(target_arch = "x86_64", any(target_os = "linux", target_os = "none"), not(miri)))]
#[path = "checksum/x86_64/mod.rs"]
mod machine;

#[cfg(all(target_arch = "aarch64", any(target_os = "linux", target_os = "none"), not(miri)))]
#[path = "checksum/aarch64.rs"]
mod machine;

#[cfg(all(target_arch = "riscv64", any(target_os = "linux", target_os = "none"), not(miri)))]
#[path = "checksum/riscv64.rs"]
mod machine;

#[cfg(not(all(
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"),
    any(target_os = "linux", target_os = "none"),
    not(miri)
)))]
#[path = "checksum/any.rs"]
mod machine;

use core::fmt;

pub use routine::{KnownSum, SumRoutine, Summed, known};

/// The one's-complement sum of some bytes, and whether their number is odd.
///
/// Two sums are equal if they fold to the same 16 bits and their lengths have the same parity.
///
/// ```
/// use haul_copy::checksum::Sum;
///
/// // The example of RFC 1071 §3.
/// let data = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
/// assert_eq!(Sum::of(&data).fold(), 0xddf2);
/// // In parts, cut at an odd place.
/// let (head, tail) = data.split_at(3);
/// assert_eq!(Sum::of(head).combine(Sum::of(tail)), Sum::of(&data));
/// // With its checksum behind it, the packet verifies.
/// let packet = [&data[..], &Sum::of(&data).checksum().to_be_bytes()].concat();
/// assert!(Sum::of(&packet).verifies());
/// ```
#[derive(Clone, Copy, Default)]
pub struct Sum {
    /// Congruent modulo 2^16 − 1 to the sum of the words as this CPU loads them; 0 only if all bytes are.
    words: u64,
    odd: bool,
}

impl Sum {
    /// The sum of no bytes.
    pub const EMPTY: Self = Self { words: 0, odd: false };

    /// The sum of `bytes`, by the routine that [`SumRoutine::auto_sum`] names.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        SumRoutine::auto_sum(bytes.len()).sum(bytes)
    }

    /// What a routine returned for `len` bytes.
    pub(crate) const fn new(words: u64, len: usize) -> Self {
        Self { words, odd: len % 2 == 1 }
    }

    /// The sum of these bytes followed by those of `next`, which starts at an odd offset if the length of these is odd.
    #[must_use]
    pub const fn combine(self, next: Self) -> Self {
        let moved = if self.odd { swap(next.words) } else { next.words };
        Self { words: add(self.words, moved), odd: self.odd != next.odd }
    }

    /// Whether the number of bytes is odd: what is combined next has its bytes swapped.
    #[must_use]
    pub const fn is_odd(self) -> bool {
        self.odd
    }

    /// The 16-bit sum as the number it is in network byte order: `fold().to_be_bytes()` are its bytes in a packet.
    ///
    /// A last odd byte counts as the high half of a word whose low half is zero (RFC 1071 §4.1).
    #[must_use]
    pub const fn fold(self) -> u16 {
        let sum = (self.words >> 32) + (self.words & 0xffff_ffff);
        let sum = (sum >> 32) + (sum & 0xffff_ffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        let [.., high, low] = sum.to_be_bytes();
        u16::from_be(u16::from_be_bytes([high, low]))
    }

    /// What a header carries: the complement of [`Sum::fold`], in the same byte order.
    ///
    /// UDP sends 0xffff where this is 0, as its 0 means that there is no checksum (RFC 768).
    #[must_use]
    pub const fn checksum(self) -> u16 {
        !self.fold()
    }

    /// Whether data that contain their own checksum are intact as far as it can tell.
    #[must_use]
    pub const fn verifies(self) -> bool {
        self.fold() == 0xffff
    }
}

impl PartialEq for Sum {
    fn eq(&self, other: &Self) -> bool {
        (self.fold(), self.odd) == (other.fold(), other.odd)
    }
}

impl Eq for Sum {}

impl fmt::Debug for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sum({:#06x}{})", self.fold(), if self.odd { ", odd" } else { "" })
    }
}

/// One's-complement addition. It cannot carry twice: a sum that wrapped is at most 2^64 − 2.
#[inline]
pub(crate) const fn add(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    sum + carry as u64
}

/// A sum of the same bytes one place further: each moves to the other half of its word.
#[inline]
pub(crate) const fn swap(words: u64) -> u64 {
    words.rotate_left(8)
}
