//! Sums, and copies with sums, in Rust, for every instruction set.
//!
//! ```text
//! every byte counts where it stands in its aligned word:
//!
//! sum:   bytes until src is aligned; while len >= 8: sum += *src++ as words; bytes
//! copy:  bytes until dst is aligned
//!        if src is aligned now: while len >= 8: sum += *dst++ = *src++ as words
//!        else as words-shift: *dst++ = two aligned words of the source merged by shifts; sum += it
//!        bytes
//! end:   if the first byte was at an odd address: sum = its bytes swapped
//! ```
//!
//! Departures: those of [`crate::arch::portable`], whose loads and stores, that say whether they faulted, these are too.
//! What is added is what was stored, after it was.

#![expect(clippy::cast_ptr_alignment, reason = "to aligned words only where the pointer is aligned")]

use core::ops::Range;

use super::routine::{Entry, Raw};
use super::{add, swap};
use crate::arch::machine::Guarded;
use crate::arch::portable::{Access, WORD, merge, to_alignment};
use crate::routine::Isa;

/// A byte where it stands in its aligned word.
#[inline]
fn place(byte: u8, address: usize) -> u64 {
    let at = address % WORD;
    u64::from(byte) << (8 * if cfg!(target_endian = "little") { at } else { WORD - 1 - at })
}

/// The result of a pass that began at `start`.
#[inline]
fn finish(start: usize, left: usize, sum: u64) -> Raw {
    Raw { left, words: if start % 2 == 1 { swap(sum) } else { sum } }
}

/// Copies those bytes of `src` and returns how far that went.
///
/// # Safety
///
/// As [`crate::Routine::try_copy`], up to the end of the range.
#[inline]
unsafe fn copy_bytes<A: Access>(dst: *mut u8, src: *const u8, range: Range<usize>, sum: &mut u64) -> usize {
    let end = range.end;
    for at in range {
        let to = dst.wrapping_add(at);
        // SAFETY: `at` is in the range, so it is in the source.
        let Some(byte) = (unsafe { A::load_byte(src.wrapping_add(at)) }) else { return at };
        // SAFETY: `at` is in the range, so it is in the destination.
        let Some(()) = (unsafe { A::store_byte(to, byte) }) else { return at };
        *sum = add(*sum, place(byte, to.addr()));
    }
    end
}

/// Copies whole words, both ends aligned there, and returns how far that went.
///
/// # Safety
///
/// As [`crate::Routine::try_copy`], up to `len`; both are aligned at `at`.
#[inline]
unsafe fn copy_words<A: Access>(
    dst: *mut u8,
    src: *const u8,
    mut at: usize,
    len: usize,
    sum: &mut u64,
) -> usize {
    while len - at >= WORD {
        // SAFETY: a whole word is left, and it is aligned.
        let Some(word) = (unsafe { A::load_word(src.wrapping_add(at).cast()) }) else { return at };
        // SAFETY: likewise.
        let Some(()) = (unsafe { A::store_word(dst.wrapping_add(at).cast(), word) }) else { return at };
        *sum = add(*sum, word as u64);
        at += WORD;
    }
    at
}

/// Copies whole words to an aligned destination, and returns how far that went.
///
/// # Safety
///
/// As [`crate::Routine::try_copy`], up to `len`; `dst` is aligned at `at`, `src` is not.
#[inline]
unsafe fn merge_words<A: Access>(
    dst: *mut u8,
    src: *const u8,
    mut at: usize,
    len: usize,
    sum: &mut u64,
) -> usize {
    let start = src.wrapping_add(at);
    let shift = start.addr() % WORD;
    if len - at < WORD {
        return at;
    }
    let mut from = start.wrapping_sub(shift).cast::<usize>();
    // SAFETY: aligned; there is at least one word to copy, so the bytes from `shift` on are in the source.
    let Some(mut low) = (unsafe { A::load_edge(from, shift, WORD) }) else { return at };
    while len - at >= WORD {
        from = from.wrapping_add(1);
        let high = if len - at < 2 * WORD {
            // SAFETY: aligned; the last word copied ends after `shift` bytes of this one.
            unsafe { A::load_edge(from, 0, shift) }
        } else {
            // SAFETY: aligned; another word follows this one, so all of it is in the source.
            unsafe { A::load_word(from) }
        };
        let Some(high) = high else { return at };
        let word = merge(low, high, shift);
        // SAFETY: a whole word is left, and it is aligned.
        let Some(()) = (unsafe { A::store_word(dst.wrapping_add(at).cast(), word) }) else { return at };
        *sum = add(*sum, word as u64);
        low = high;
        at += WORD;
    }
    at
}

/// # Safety
///
/// As [`crate::Routine::try_copy`].
#[inline]
unsafe fn copy<A: Access>(dst: *mut u8, src: *const u8, len: usize) -> Raw {
    let mut sum = 0;
    let head = to_alignment(dst, len);
    // SAFETY: the caller's, for a part.
    let mut at = unsafe { copy_bytes::<A>(dst, src, 0..head, &mut sum) };
    if at == head {
        at = if src.wrapping_add(at).addr() % WORD == 0 {
            // SAFETY: the caller's; both are aligned here, or nothing is left.
            unsafe { copy_words::<A>(dst, src, at, len, &mut sum) }
        } else {
            // SAFETY: the caller's; the destination is aligned here, or nothing is left, and the source is not.
            unsafe { merge_words::<A>(dst, src, at, len, &mut sum) }
        };
        // SAFETY: the caller's, for the rest.
        at = unsafe { copy_bytes::<A>(dst, src, at..len, &mut sum) };
    }
    finish(dst.addr(), len - at, sum)
}

/// Adds those bytes of `src` and returns how far that went.
///
/// # Safety
///
/// As [`super::SumRoutine::try_sum`], up to the end of the range.
#[inline]
unsafe fn sum_bytes<A: Access>(src: *const u8, range: Range<usize>, sum: &mut u64) -> usize {
    let end = range.end;
    for at in range {
        let from = src.wrapping_add(at);
        // SAFETY: `at` is in the range, so it is in the source.
        let Some(byte) = (unsafe { A::load_byte(from) }) else { return at };
        *sum = add(*sum, place(byte, from.addr()));
    }
    end
}

/// # Safety
///
/// As [`super::SumRoutine::try_sum`].
#[inline]
unsafe fn sum<A: Access>(src: *const u8, len: usize) -> Raw {
    let mut sum = 0;
    let head = to_alignment(src.cast_mut(), len);
    // SAFETY: the caller's, for a part.
    let mut at = unsafe { sum_bytes::<A>(src, 0..head, &mut sum) };
    if at == head {
        while len - at >= WORD {
            // SAFETY: a whole word is left, and it is aligned.
            let Some(word) = (unsafe { A::load_word(src.wrapping_add(at).cast()) }) else { break };
            sum = add(sum, word as u64);
            at += WORD;
        }
        // SAFETY: the caller's, for the rest.
        at = unsafe { sum_bytes::<A>(src, at..len, &mut sum) };
    }
    finish(src.addr(), len - at, sum)
}

/// The convention of [`super::routine::CopyRun`] and [`super::routine::SumRun`].
macro_rules! routine {
    ($abi:literal) => {
        /// # Safety
        ///
        /// As [`crate::Routine::try_copy`].
        unsafe extern $abi fn words_shift_copy(dst: *mut u8, src: *const u8, len: usize) -> Raw {
            // SAFETY: the caller's.
            unsafe { copy::<Guarded>(dst, src, len) }
        }

        /// # Safety
        ///
        /// As [`super::SumRoutine::try_sum`].
        unsafe extern $abi fn words_shift_sum(src: *const u8, len: usize) -> Raw {
            // SAFETY: the caller's.
            unsafe { sum::<Guarded>(src, len) }
        }
    };
}
#[cfg(target_arch = "x86_64")]
routine!("sysv64");
#[cfg(not(target_arch = "x86_64"))]
routine!("C");

pub(crate) static ROUTINES: &[Entry] = &[Entry {
    name: "words-shift",
    isa: Isa::Portable,
    summary: "aligned words in Rust, merged by shifts where the ends disagree in alignment",
    needs: "",
    available: || true,
    sum: words_shift_sum,
    copy: words_shift_copy,
}];

/// The best of these, for machines without routines of their own.
#[cfg_attr(
    all(
        any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"),
        any(target_os = "linux", target_os = "none"),
        not(miri)
    ),
    expect(dead_code, reason = "an instruction set with routines of its own has a better one")
)]
pub(crate) fn shift_merge() -> &'static Entry {
    &ROUTINES[0]
}
