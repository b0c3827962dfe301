//! The loads and stores of the portable routines, each with its entry in the exception table.
//!
//! ```text
//!      xor f, f
//!   2: mov …              faults ─▶ 4: mov f, 1; jmp 3b      (out of line)
//!   3:
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
            "xor {f:e}, {f:e}",
            concat!("2: ", $instruction),
            "3:",
            ".pushsection .text.haul_copy_fix,\"ax\",@progbits",
            "4: mov {f:e}, 1",
            "jmp 3b",
            ".popsection",
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
        let faulted = unsafe { access!("movzx {v:e}, byte ptr [{p}]", v = out(reg) byte, p = in(reg) from,) };
        #[expect(clippy::cast_possible_truncation, reason = "movzx makes it a byte")]
        (!faulted).then_some(byte as u8)
    }

    /// # Safety
    ///
    /// `to` is in the destination of a copy ([`Access::store_byte`]).
    #[inline(always)]
    unsafe fn store_byte(to: *mut u8, byte: u8) -> Option<()> {
        // SAFETY: the caller says that it is in the destination; a fault is flagged.
        let faulted = unsafe { access!("mov byte ptr [{p}], {v}", v = in(reg_byte) byte, p = in(reg) to,) };
        (!faulted).then_some(())
    }

    /// # Safety
    ///
    /// `from` is aligned, and all of it in the source of a copy ([`Access::load_word`]).
    #[inline(always)]
    unsafe fn load_word(from: *const usize) -> Option<usize> {
        let word: usize;
        // SAFETY: the caller says that it is in the source; a fault is flagged.
        let faulted = unsafe { access!("mov {v}, qword ptr [{p}]", v = out(reg) word, p = in(reg) from,) };
        (!faulted).then_some(word)
    }

    /// # Safety
    ///
    /// `to` is aligned, and all of it in the destination of a copy ([`Access::store_word`]).
    #[inline(always)]
    unsafe fn store_word(to: *mut usize, word: usize) -> Option<()> {
        // SAFETY: the caller says that it is in the destination; a fault is flagged.
        let faulted = unsafe { access!("mov qword ptr [{p}], {v}", v = in(reg) word, p = in(reg) to,) };
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
