//! The loads and stores of the portable routines, each with its entry in the exception table.
//!
//! ```text
//!      mov f, 1
//!   2: ldr… / str…          faults ─▶ 4
//!   3: mov f, 0
//!   4:
//! ```

#![expect(clippy::inline_always, reason = "a routine calls nothing, in builds without optimisation neither")]

use core::arch::asm;

use crate::arch::portable::Access;
use crate::fault::guarded;

/// Assembly that flags a fault.
pub(crate) struct Guarded;

/// One instruction, guarded; evaluates to whether it faulted.
macro_rules! access {
    ($instruction:literal, $($operands:tt)*) => {{
        let faulted: u32;
        asm!(
            "mov {f:w}, #1",
            concat!("2: ", $instruction),
            "3: mov {f:w}, wzr",
            "4:",
            guarded!("2b", "3b", "4b"),
            f = out(reg) faulted,
            $($operands)*
            options(nostack)
        );
        faulted != 0
    }};
}

// SAFETY: each is one instruction, which stores all or nothing: an aligned word is in one page.
unsafe impl Access for Guarded {
    /// # Safety
    ///
    /// `from` is in the source of a copy ([`Access::load_byte`]).
    #[inline(always)]
    unsafe fn load_byte(from: *const u8) -> Option<u8> {
        let byte: u32;
        // SAFETY: the caller says that it is in the source; a fault is flagged.
        let faulted = unsafe { access!("ldrb {v:w}, [{p}]", v = out(reg) byte, p = in(reg) from,) };
        #[expect(clippy::cast_possible_truncation, reason = "ldrb makes it a byte")]
        (!faulted).then_some(byte as u8)
    }

    /// # Safety
    ///
    /// `to` is in the destination of a copy ([`Access::store_byte`]).
    #[inline(always)]
    unsafe fn store_byte(to: *mut u8, byte: u8) -> Option<()> {
        // SAFETY: the caller says that it is in the destination; a fault is flagged.
        let faulted = unsafe { access!("strb {v:w}, [{p}]", v = in(reg) u32::from(byte), p = in(reg) to,) };
        (!faulted).then_some(())
    }

    /// # Safety
    ///
    /// `from` is aligned, and all of it in the source of a copy ([`Access::load_word`]).
    #[inline(always)]
    unsafe fn load_word(from: *const usize) -> Option<usize> {
        let word: usize;
        // SAFETY: the caller says that it is in the source; a fault is flagged.
        let faulted = unsafe { access!("ldr {v}, [{p}]", v = out(reg) word, p = in(reg) from,) };
        (!faulted).then_some(word)
    }

    /// # Safety
    ///
    /// `to` is aligned, and all of it in the destination of a copy ([`Access::store_word`]).
    #[inline(always)]
    unsafe fn store_word(to: *mut usize, word: usize) -> Option<()> {
        // SAFETY: the caller says that it is in the destination; a fault is flagged.
        let faulted = unsafe { access!("str {v}, [{p}]", v = in(reg) word, p = in(reg) to,) };
        (!faulted).then_some(())
    }

    /// # Safety
    ///
    /// `from` is aligned, and a byte of it is in the source of a copy ([`Access::load_edge`]).
    #[inline(always)]
    unsafe fn load_edge(from: *const usize, _first: usize, _last: usize) -> Option<usize> {
        // SAFETY: an aligned word is in one page, and the caller says that a byte of it is in the source.
        unsafe { Self::load_word(from) }
    }
}
