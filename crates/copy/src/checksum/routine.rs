//! Checksum routines as values.
//!
//! What an instruction set's module (`machine`) has: `ROUTINES: &[Entry]`, and `auto_sum(len)`, `auto_copy(len)`, which name
//! one of those that may run.

use super::{Sum, machine, portable};
use crate::routine::{Isa, described};

/// What a routine hands back, in two registers (`rax:rdx`, `x0:x1`, `a0:a1`).
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Raw {
    /// The bytes not copied, or not summed: 0, or what is left from the byte that faulted.
    pub(crate) left: usize,
    /// Of the bytes before those: congruent modulo 2^16 − 1 to the sum of the 16-bit words that start at the first byte, as
    /// this CPU loads them (a last odd byte is the half at the lower address). 0 only if all bytes are zero.
    pub(crate) words: u64,
}

/// `(src, len)`; `len` is at most [`PIECE`].
#[cfg(target_arch = "x86_64")]
pub(crate) type SumRun = unsafe extern "sysv64" fn(*const u8, usize) -> Raw;
/// `(dst, src, len)`; `len` is at most [`PIECE`].
#[cfg(target_arch = "x86_64")]
pub(crate) type CopyRun = unsafe extern "sysv64" fn(*mut u8, *const u8, usize) -> Raw;
/// `(src, len)`; `len` is at most [`PIECE`].
#[cfg(not(target_arch = "x86_64"))]
pub(crate) type SumRun = unsafe extern "C" fn(*const u8, usize) -> Raw;
/// `(dst, src, len)`; `len` is at most [`PIECE`].
#[cfg(not(target_arch = "x86_64"))]
pub(crate) type CopyRun = unsafe extern "C" fn(*mut u8, *const u8, usize) -> Raw;

/// The most bytes of one call, so that no lane of an accumulator overflows; longer ones are cut. Even, so that every piece
/// starts at an even offset. The narrowest are the 32-bit lanes of sums of bytes (AVX-512 VNNI), which are added up as they are:
/// the 2^24 even bytes of 32 MiB, and one more where a destination begins at an odd address, are at most 255 × (2^24 + 1) < 2^32.
pub(crate) const PIECE: usize = 32 << 20;

/// A line of the table that an instruction set's module keeps.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) isa: Isa,
    pub(crate) summary: &'static str,
    /// CPU features by their names in `/proc/cpuinfo` (x86) or in the architecture's manual, apart by blanks.
    pub(crate) needs: &'static str,
    pub(crate) available: fn() -> bool,
    pub(crate) sum: SumRun,
    pub(crate) copy: CopyRun,
}

described!(KnownSum, "SumRoutine::by_name");
described!(SumRoutine, "SumRoutine::by_name");

/// A way of summing, alone and while copying, that may run on this CPU: holding one is the proof.
#[derive(Clone, Copy)]
pub struct SumRoutine(&'static Entry);

/// A checksum routine of this instruction set, whether or not this CPU can run it.
#[derive(Clone, Copy)]
pub struct KnownSum(&'static Entry);

/// Every checksum routine there is for this instruction set, the portable one first.
pub fn known() -> impl Iterator<Item = KnownSum> {
    portable::ROUTINES.iter().chain(machine::ROUTINES).map(KnownSum)
}

impl KnownSum {
    /// The proof that it may run here, if this CPU (and the kernel, which keeps the registers) has what it needs.
    #[must_use]
    pub fn routine(self) -> Option<SumRoutine> {
        (self.0.available)().then_some(SumRoutine(self.0))
    }

    /// The same, on the caller's word: for programs without an operating system to ask.
    ///
    /// # Safety
    ///
    /// As for [`crate::Known::routine_unchecked`].
    #[must_use]
    pub unsafe fn routine_unchecked(self) -> SumRoutine {
        SumRoutine(self.0)
    }
}

/// How far a copy or a sum came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "bytes may be left"]
pub struct Summed {
    /// The sum of exactly the bytes that were copied (or read).
    pub sum: Sum,
    /// How many bytes at the end were not: 0, or what is left from the byte that faulted.
    pub left: usize,
}

impl SumRoutine {
    /// The routine of this name, if there is one for this instruction set and the CPU has what it needs.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        known().find(|known| known.name() == name)?.routine()
    }

    /// Every routine that may run here, in the order of [`known`].
    pub fn all() -> impl Iterator<Item = Self> {
        known().filter_map(KnownSum::routine)
    }

    /// The fastest here for a sum of `len` bytes.
    #[inline]
    #[must_use]
    pub fn auto_sum(len: usize) -> Self {
        Self(machine::auto_sum(len))
    }

    /// The fastest here for a copy with sum of `len` bytes.
    #[inline]
    #[must_use]
    pub fn auto_copy(len: usize) -> Self {
        Self(machine::auto_copy(len))
    }

    /// Where its copy begins: for disassemblers, and to tell what a sample of the program counter belongs to.
    #[must_use]
    pub fn copy_address(self) -> *const () {
        self.0.copy as *const ()
    }

    /// Where its sum without a copy begins.
    #[must_use]
    pub fn sum_address(self) -> *const () {
        self.0.sum as *const ()
    }

    /// The sum of `bytes`.
    ///
    /// # Panics
    ///
    /// If the memory of the slice faulted (a mapped file was cut short) and the fault was caught: use
    /// [`SumRoutine::try_sum`] where that may be.
    #[inline]
    #[must_use]
    pub fn sum(self, bytes: &[u8]) -> Sum {
        // SAFETY: the slice is readable.
        let done = unsafe { self.try_sum(bytes.as_ptr(), bytes.len()) };
        assert!(done.left == 0, "the memory of a slice to sum faulted: read what may fault with try_sum");
        done.sum
    }

    /// Copies `src` to `dst` and returns the sum of it.
    ///
    /// # Panics
    ///
    /// If the lengths differ; and if memory faulted, as [`SumRoutine::sum`] does.
    #[inline]
    pub fn copy(self, dst: &mut [u8], src: &[u8]) -> Sum {
        assert!(dst.len() == src.len(), "a copy with sum from {} bytes to {}", src.len(), dst.len());
        // SAFETY: both are slices of that length, and one of them is exclusive, so that they do not overlap.
        let done = unsafe { self.try_copy(dst.as_mut_ptr(), src.as_ptr(), src.len()) };
        assert!(done.left == 0, "the memory of a slice to copy faulted: copy what may fault with try_copy");
        done.sum
    }

    /// The sum of the bytes from `src` up to `len`, or up to the first that cannot be read.
    ///
    /// # Safety
    ///
    /// - Nobody holds a mutable reference to what is read.
    /// - What is not mapped faults; something must consult [`crate::fault::fixup`] then, or the process dies.
    #[inline]
    pub unsafe fn try_sum(self, src: *const u8, len: usize) -> Summed {
        in_pieces(len, |at, piece| {
            // SAFETY: the value proves that the CPU has the instructions, `at` is below `len`; the rest is the caller's.
            unsafe { (self.0.sum)(src.wrapping_add(at), piece) }
        })
    }

    /// Copies `len` bytes, or up to the first that cannot be read or written, and sums what it copied.
    ///
    /// Bytes of the destination behind those are as they were. Filling them with zeros does not change the sum.
    ///
    /// # Safety
    ///
    /// As for [`crate::Routine::try_copy`].
    #[inline]
    pub unsafe fn try_copy(self, dst: *mut u8, src: *const u8, len: usize) -> Summed {
        in_pieces(len, |at, piece| {
            // SAFETY: as in `try_sum`.
            unsafe { (self.0.copy)(dst.wrapping_add(at), src.wrapping_add(at), piece) }
        })
    }
}

/// One call, or several where the length is beyond what the accumulators hold.
#[inline]
fn in_pieces(len: usize, run: impl Fn(usize, usize) -> Raw) -> Summed {
    if len <= PIECE {
        let Raw { left, words } = run(0, len);
        return Summed { sum: Sum::new(words, len - left), left };
    }
    let (mut sum, mut at) = (Sum::EMPTY, 0);
    while at < len {
        let piece = PIECE.min(len - at);
        let Raw { left, words } = run(at, piece);
        sum = sum.combine(Sum::new(words, piece - left));
        at += piece - left;
        if left > 0 {
            break;
        }
    }
    Summed { sum, left: len - at }
}
