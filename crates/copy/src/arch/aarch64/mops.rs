//! The memory-copy instructions (`FEAT_MOPS`, Armv8.8): the core copies, as it likes best.
//!
//! ```text
//! mops    cpyfp; cpyfm; cpyfe; return 0
//! ```
//!
//! Each instruction keeps its progress in its three registers, also when it faults, but in one of two forms
//! that the core may choose from (Arm ARM, C6.2, `CPYFP`):
//!
//! - option A: `x0` and `x1` are the *ends*, `x2` is minus the number of bytes left;
//! - option B: `x0` and `x1` are where it got to, `x2` is the number of bytes left.
//!
//! The carry flag tells which. The fix-up goes by the sign of `x2` instead: a length has no top bit (the
//! instructions take a longer one for 2⁶³ − 1), and the sign is right also where the first of the three
//! faults before the flags are set, as QEMU's does. Once the registers are in form B, the byte loop finds the
//! byte that faults: a core may report less than it wrote.
//!
//! What a core may have written beyond the byte that faults is not in these registers; that no store goes
//! beyond it holds for QEMU, and for a core that stores in ascending order.

use core::arch::naked_asm;

use super::pairs::ldrb;
use crate::fault::guarded;

/// The three instructions of a forward copy.
///
/// # Safety
///
/// As [`crate::Routine::try_copy`], on a CPU with MOPS, which the entry's `available` asks.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn mops(dst: *mut u8, src: *const u8, len: usize) -> usize {
    naked_asm!(
        "
            .arch_extension mops
        2:  cpyfp [x0]!, [x1]!, x2!
            cpyfm [x0]!, [x1]!, x2!
            cpyfe [x0]!, [x1]!, x2!
            .arch_extension nomops
        3:  mov  x0, xzr
            ret
        4:  tbz  x2, #63, 5f
            add  x0, x0, x2
            add  x1, x1, x2
            neg  x2, x2
        5:  b    {ldrb}
        ",
        guarded!("2b", "3b", "4b"),
        ldrb = sym ldrb,
    )
}
