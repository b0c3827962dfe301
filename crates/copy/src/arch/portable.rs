//! Copies in Rust, for every instruction set: byte loop, word loop, and aligned words merged by shifts.
//!
//! ```text
//! bytes:        while len > 0: *dst++ = *src++; len--
//!
//! words:        bytes until dst is aligned
//!               if src is aligned now: while len >= 8: *dst++ = *src++ as words
//!               bytes
//!
//! words-shift:  bytes until dst is aligned
//!               k = src mod 8; if k == 0, as words
//!               low = the aligned word that src is in
//!               while len >= 8: high = the next aligned word
//!                               *dst++ = low >> 8k | high << (64 - 8k); low = high
//!               bytes
//! ```
//!
//! Departures:
//!
//! 1. A load or store is an [`Access`], which says whether it faulted; after a word that did, the byte loop goes on
//!    from where all is copied, up to the byte that faults.
//! 2. The first and the last word that `words-shift` loads are *edges*: they hold bytes beside the source. An aligned
//!    word is in one page, and has at least one byte of the source in it, so that it faults only if that byte does.
//!    The abstract machine of Rust doesn't know of pages: [`Plain`], without assembly, loads of an edge only what
//!    belongs to the source.
//! 3. A word has as many bytes as `usize`.
//! 4. Arithmetic wraps, though nothing here can: a check would be a call, and a routine calls nothing.

#![expect(clippy::inline_always, reason = "a routine calls nothing, in builds without optimisation neither")]
#![expect(
    clippy::cast_ptr_alignment,
    reason = "words are loaded and stored where alignment was arranged for"
)]

use crate::arch::machine::Guarded;
use crate::routine::{Entry, Isa, Overlap, Run};

pub(crate) const WORD: usize = size_of::<usize>();

/// Loads and stores that say whether they faulted. `None` is a fault, after which nothing is stored or loaded.
///
/// # Safety
///
/// What is said to be stored was stored, and nothing else is written.
pub(crate) unsafe trait Access {
    /// # Safety
    ///
    /// `from` is in the source of a copy.
    unsafe fn load_byte(from: *const u8) -> Option<u8>;

    /// # Safety
    ///
    /// `to` is in the destination of a copy.
    unsafe fn store_byte(to: *mut u8, byte: u8) -> Option<()>;

    /// # Safety
    ///
    /// `from` is aligned, and all of it in the source of a copy.
    unsafe fn load_word(from: *const usize) -> Option<usize>;

    /// # Safety
    ///
    /// `to` is aligned, and all of it in the destination of a copy.
    unsafe fn store_word(to: *mut usize, word: usize) -> Option<()>;

    /// A word of which only the bytes `first..last` (at least one) are wanted; the others may be anything.
    ///
    /// # Safety
    ///
    /// `from` is aligned, and those bytes are in the source of a copy.
    unsafe fn load_edge(from: *const usize, first: usize, last: usize) -> Option<usize>;
}

/// Volatile accesses: the compiler makes no `memcpy` of a loop of them. A fault ends the process.
#[cfg_attr(
    not(miri),
    expect(dead_code, reason = "for Miri and for instruction sets without guarded accesses")
)]
pub(crate) struct Plain;

// SAFETY: each method does what its name says, by one volatile access or by one for each byte.
unsafe impl Access for Plain {
    /// # Safety
    ///
    /// `from` is in the source of a copy ([`Access::load_byte`]).
    #[inline(always)]
    unsafe fn load_byte(from: *const u8) -> Option<u8> {
        // SAFETY: the caller says that it is in the source.
        Some(unsafe { from.read_volatile() })
    }

    /// # Safety
    ///
    /// `to` is in the destination of a copy ([`Access::store_byte`]).
    #[inline(always)]
    unsafe fn store_byte(to: *mut u8, byte: u8) -> Option<()> {
        // SAFETY: the caller says that it is in the destination.
        unsafe { to.write_volatile(byte) };
        Some(())
    }

    /// # Safety
    ///
    /// `from` is aligned, and all of it in the source of a copy ([`Access::load_word`]).
    #[inline(always)]
    unsafe fn load_word(from: *const usize) -> Option<usize> {
        // SAFETY: the caller says that it is aligned and in the source.
        Some(unsafe { from.read_volatile() })
    }

    /// # Safety
    ///
    /// `to` is aligned, and all of it in the destination of a copy ([`Access::store_word`]).
    #[inline(always)]
    unsafe fn store_word(to: *mut usize, word: usize) -> Option<()> {
        // SAFETY: the caller says that it is aligned and in the destination.
        unsafe { to.write_volatile(word) };
        Some(())
    }

    /// # Safety
    ///
    /// `from` is aligned, and its bytes `first..last` are in the source of a copy ([`Access::load_edge`]).
    #[inline(always)]
    unsafe fn load_edge(from: *const usize, first: usize, last: usize) -> Option<usize> {
        let mut word = [0; WORD];
        for (index, byte) in word.iter_mut().enumerate().take(last).skip(first) {
            // SAFETY: the caller says that these bytes are in the source.
            *byte = unsafe { from.cast::<u8>().wrapping_add(index).read_volatile() };
        }
        Some(usize::from_ne_bytes(word))
    }
}

/// The bytes up to the next multiple of a word, or `len`.
#[inline(always)]
pub(crate) fn to_alignment(dst: *mut u8, len: usize) -> usize {
    (dst.addr().wrapping_neg() % WORD).min(len)
}

/// Bytes `shift..` of `low` and then bytes `..shift` of `high`, in the order of memory. `shift` is `1..WORD`.
#[inline(always)]
pub(crate) fn merge(low: usize, high: usize, shift: usize) -> usize {
    let (down, up) = (8 * shift, 8 * (WORD - shift));
    #[expect(clippy::cast_possible_truncation, reason = "less than the bits of a word")]
    let (down, up) = (down as u32, up as u32);
    if cfg!(target_endian = "little") {
        low.wrapping_shr(down) | high.wrapping_shl(up)
    } else {
        low.wrapping_shl(down) | high.wrapping_shr(up)
    }
}

/// # Safety
///
/// As [`crate::Routine::try_copy`].
#[inline(always)]
unsafe fn copy_bytes<A: Access>(dst: *mut u8, src: *const u8, len: usize) -> usize {
    for at in 0..len {
        // SAFETY: `at` is below `len`, so it is in the source.
        let Some(byte) = (unsafe { A::load_byte(src.wrapping_add(at)) }) else { return len.wrapping_sub(at) };
        // SAFETY: `at` is below `len`, so it is in the destination.
        let Some(()) = (unsafe { A::store_byte(dst.wrapping_add(at), byte) }) else {
            return len.wrapping_sub(at);
        };
    }
    0
}

/// Copies whole words, both ends aligned, and returns how many bytes those were.
///
/// # Safety
///
/// As [`crate::Routine::try_copy`]; `dst` and `src` are aligned.
#[inline(always)]
unsafe fn copy_words<A: Access>(dst: *mut u8, src: *const u8, len: usize) -> usize {
    let words = len / WORD;
    for at in 0..words {
        let (from, to) = (src.cast::<usize>().wrapping_add(at), dst.cast::<usize>().wrapping_add(at));
        // SAFETY: aligned by the caller's word; word `at` is below `len / WORD`, so all of it is in the source.
        let Some(word) = (unsafe { A::load_word(from) }) else { return at.wrapping_mul(WORD) };
        // SAFETY: as above, for the destination.
        let Some(()) = (unsafe { A::store_word(to, word) }) else { return at.wrapping_mul(WORD) };
    }
    words.wrapping_mul(WORD)
}

/// Copies whole words to an aligned destination, and returns how many bytes those were.
///
/// # Safety
///
/// As [`crate::Routine::try_copy`]; `dst` is aligned, `src` is not.
#[inline(always)]
unsafe fn merge_words<A: Access>(dst: *mut u8, src: *const u8, len: usize) -> usize {
    let (words, shift) = (len / WORD, src.addr() % WORD);
    if words == 0 {
        return 0;
    }
    let from = src.wrapping_sub(shift).cast::<usize>();
    // SAFETY: aligned; there is at least one word to copy, so the bytes from `shift` on are in the source.
    let Some(mut low) = (unsafe { A::load_edge(from, shift, WORD) }) else { return 0 };
    for at in 0..words {
        let next = from.wrapping_add(at.wrapping_add(1));
        let high = if at.wrapping_add(1) == words {
            // SAFETY: aligned; the last word copied ends after `shift` bytes of this one.
            unsafe { A::load_edge(next, 0, shift) }
        } else {
            // SAFETY: aligned; another word follows this one, so all of it is in the source.
            unsafe { A::load_word(next) }
        };
        let Some(high) = high else { return at.wrapping_mul(WORD) };
        // SAFETY: aligned by the caller's word; word `at` is below `len / WORD`.
        let stored = unsafe { A::store_word(dst.cast::<usize>().wrapping_add(at), merge(low, high, shift)) };
        let Some(()) = stored else { return at.wrapping_mul(WORD) };
        low = high;
    }
    words.wrapping_mul(WORD)
}

/// A function of type [`Run`] with a body that is generic over its accesses.
macro_rules! run {
    ($(#[$doc:meta])* $name:ident($dst:ident, $src:ident, $len:ident) $body:block) => {
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// As [`crate::Routine::try_copy`].
        #[cfg(target_arch = "x86_64")]
        unsafe extern "sysv64" fn $name<A: Access>($dst: *mut u8, $src: *const u8, $len: usize) -> usize $body

        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// As [`crate::Routine::try_copy`].
        #[cfg(not(target_arch = "x86_64"))]
        unsafe extern "C" fn $name<A: Access>($dst: *mut u8, $src: *const u8, $len: usize) -> usize $body
    };
}

run! {
    /// The byte loop.
    bytes(dst, src, len) {
        // SAFETY: the caller's.
        unsafe { copy_bytes::<A>(dst, src, len) }
    }
}

run! {
    /// The word loop, where both ends agree in alignment.
    words(dst, src, len) {
        if dst.addr() % WORD != src.addr() % WORD {
            // SAFETY: the caller's.
            return unsafe { copy_bytes::<A>(dst, src, len) };
        }
        let head = to_alignment(dst, len);
        // SAFETY: the caller's, for a part.
        let left = unsafe { copy_bytes::<A>(dst, src, head) };
        if left > 0 {
            return len.wrapping_sub(head).wrapping_add(left);
        }
        // SAFETY: `head` bytes on, both are aligned (or nothing is left).
        let bulk = unsafe { copy_words::<A>(dst.wrapping_add(head), src.wrapping_add(head), len.wrapping_sub(head)) };
        let done = head.wrapping_add(bulk);
        // SAFETY: the caller's, for the rest.
        unsafe { copy_bytes::<A>(dst.wrapping_add(done), src.wrapping_add(done), len.wrapping_sub(done)) }
    }
}

run! {
    /// Aligned words, merged by shifts where the source is misaligned to the destination.
    words_shift(dst, src, len) {
        let head = to_alignment(dst, len);
        // SAFETY: the caller's, for a part.
        let left = unsafe { copy_bytes::<A>(dst, src, head) };
        if left > 0 {
            return len.wrapping_sub(head).wrapping_add(left);
        }
        let (to, from) = (dst.wrapping_add(head), src.wrapping_add(head));
        let bulk = if from.addr() % WORD == 0 {
            // SAFETY: both are aligned (or nothing is left).
            unsafe { copy_words::<A>(to, from, len.wrapping_sub(head)) }
        } else {
            // SAFETY: `to` is aligned (or nothing is left), `from` is not.
            unsafe { merge_words::<A>(to, from, len.wrapping_sub(head)) }
        };
        let done = head.wrapping_add(bulk);
        // SAFETY: the caller's, for the rest.
        unsafe { copy_bytes::<A>(dst.wrapping_add(done), src.wrapping_add(done), len.wrapping_sub(done)) }
    }
}

/// Without what differs.
const fn entry(name: &'static str, summary: &'static str, run: Run) -> Entry {
    // Each loads what it stores next before it stores it, upwards, and loads nothing again.
    Entry { name, isa: Isa::Portable, summary, needs: "", overlap: Overlap::Forward, available: || true, run }
}

pub(crate) static ROUTINES: &[Entry] = &[
    entry("bytes", "byte by byte: slow everywhere, and the measure of the others", bytes::<Guarded>),
    entry("words", "aligned words where both ends agree in alignment, else bytes", words::<Guarded>),
    entry(
        "words-shift",
        "aligned words, merged by shifts where the ends disagree in alignment",
        words_shift::<Guarded>,
    ),
];

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
    &ROUTINES[2]
}
