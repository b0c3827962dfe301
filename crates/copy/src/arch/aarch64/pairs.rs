//! Copies by scalar loads and stores: bytes, and register pairs, general and SIMD.
//!
//! ```text
//! ldrb    while len > 0: *dst++ = *src++
//!
//! ldp     if len < PAIRS_MIN: ldrb
//!         1, 2, 4, 8 bytes until dst is a multiple of 16
//!         while left ≥ 64: four pairs of 64-bit registers
//!         32, 16, 8, 4, 2, 1 bytes, as the bits of what is left say
//!
//! ldp-q   if len < QUADS_MIN: ldp
//!         1, 2, 4, 8, 16 bytes until dst is a multiple of 32
//!         while left ≥ 128: four pairs of 128-bit registers
//!         64, 32, 16, 8, 4, 2, 1 bytes
//! ```
//!
//! No routine here merges words by shifts, as riscv64's do: a load or store of normal memory may have any
//! address (Arm ARM, B2.8; `SCTLR_ELx.A` is 0 under every system that runs ordinary programs), and a
//! misaligned one that stays within 64 bytes costs nothing on cores since the Cortex-A57. Merging would add
//! three instructions a word to save nothing.
//!
//! Departures:
//!
//! 1. `ldrb` counts a negative index up to zero: four instructions a byte, and what is left is the index
//!    negated.
//! 2. `x6` is the end of the source; the fix-up of the pair routines makes `x6 − x1` the length and goes to
//!    `ldrb`.
//! 3. Loads and stores have no write-back: a store that faults must find both addresses at the same place.
//! 4. The destination is aligned so far that no store crosses a page. One that did and faulted could leave
//!    anything in the page that can be written (Arm ARM, D1.13: such bytes are UNKNOWN); all before the fault
//!    is written again byte by byte, but what lies after it would not be. So too the tail: its stores go down
//!    in size from an aligned address.
//! 5. All loads of a block come before its stores, so that a load that faults leaves the block's destination
//!    as it was.

use core::arch::naked_asm;

use crate::fault::guarded;

/// The longest head.
///
/// Executed instructions, mean over all alignments: 36 against `ldrb`'s 71 at 16 bytes. Less would let the
/// head run past the end. Tried: 32, which took 131 at 31 bytes.
pub(super) const PAIRS_MIN: usize = 15;

/// From here on the wider pairs execute no more than `ldp`; the longest head has 31 bytes.
///
/// Executed instructions, mean over all alignments: 46 for both at 64 bytes, 47 against 48 at 80, 64 against
/// 82 at 256. Tried: 31, two instructions more up to 63 bytes; 159, where the wide loop is sure to be
/// entered: ten more at 150.
pub(super) const QUADS_MIN: usize = 64;

/// Byte by byte: also what the fix-ups of the others go on with.
///
/// # Safety
///
/// As [`crate::Routine::try_copy`].
#[unsafe(naked)]
pub(super) unsafe extern "C" fn ldrb(dst: *mut u8, src: *const u8, len: usize) -> usize {
    naked_asm!(
        "cbz  x2, 4f",
        "add  x1, x1, x2",
        "add  x0, x0, x2",
        "neg  x2, x2",
        "2: ldrb w3, [x1, x2]",
        "strb w3, [x0, x2]",
        "3: adds x2, x2, #1",
        "b.ne 2b",
        "4: neg  x0, x2",
        "ret",
        guarded!("2b", "3b", "4b"),
    )
}

/// If bit `$bit` of `x7` is set, copies a register of that many bytes.
macro_rules! step {
    ($bit:literal, $bytes:literal, $load:literal, $store:literal, $register:literal) => {
        concat!(
            "tbz x7, #",
            $bit,
            ", 50f\n",
            $load,
            " ",
            $register,
            ", [x1]\n",
            $store,
            " ",
            $register,
            ", [x0]\n",
            "add x1, x1, #",
            $bytes,
            "\n",
            "add x0, x0, #",
            $bytes,
            "\n",
            "50:\n",
        )
    };
}

/// 8, 4, 2, 1 bytes, as the low bits of `x7` say.
macro_rules! tail {
    () => {
        concat!(
            step!("3", "8", "ldr", "str", "x3"),
            step!("2", "4", "ldr", "str", "w3"),
            step!("1", "2", "ldrh", "strh", "w3"),
            step!("0", "1", "ldrb", "strb", "w3"),
        )
    };
}

/// 1, 2, 4, 8 bytes, as the low bits of `x7` say.
macro_rules! head {
    () => {
        concat!(
            step!("0", "1", "ldrb", "strb", "w3"),
            step!("1", "2", "ldrh", "strh", "w3"),
            step!("2", "4", "ldr", "str", "w3"),
            step!("3", "8", "ldr", "str", "x3"),
        )
    };
}

/// Pairs of general registers.
///
/// # Safety
///
/// As [`crate::Routine::try_copy`].
#[unsafe(naked)]
pub(super) unsafe extern "C" fn ldp(dst: *mut u8, src: *const u8, len: usize) -> usize {
    naked_asm!(
        "cmp  x2, #{min}",
        "b.lo 9f",
        "add  x6, x1, x2",
        "neg  x7, x0",
        "2:",
        head!(),
        "
            sub  x7, x6, x1
            lsr  x2, x7, #6
            cbz  x2, 4f
        3:  ldp  x8, x9, [x1]
            ldp  x10, x11, [x1, #16]
            ldp  x12, x13, [x1, #32]
            ldp  x14, x15, [x1, #48]
            stp  x8, x9, [x0]
            stp  x10, x11, [x0, #16]
            stp  x12, x13, [x0, #32]
            stp  x14, x15, [x0, #48]
            add  x1, x1, #64
            add  x0, x0, #64
            subs x2, x2, #1
            b.ne 3b
        4:  tbz  x7, #5, 5f
            ldp  x8, x9, [x1]
            ldp  x10, x11, [x1, #16]
            stp  x8, x9, [x0]
            stp  x10, x11, [x0, #16]
            add  x1, x1, #32
            add  x0, x0, #32
        5:  tbz  x7, #4, 6f
            ldp  x8, x9, [x1]
            stp  x8, x9, [x0]
            add  x1, x1, #16
            add  x0, x0, #16
        6:
        ",
        tail!(),
        "7: mov  x0, xzr",
        "ret",
        "8: sub  x2, x6, x1",
        "9: b    {ldrb}",
        guarded!("2b", "7b", "8b"),
        min = const PAIRS_MIN,
        ldrb = sym ldrb,
    )
}

/// Pairs of SIMD registers.
///
/// # Safety
///
/// As [`crate::Routine::try_copy`], on a CPU with NEON, for which it was compiled.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn ldp_q(dst: *mut u8, src: *const u8, len: usize) -> usize {
    naked_asm!(
        "cmp  x2, #{min}",
        "b.lo 9f",
        "add  x6, x1, x2",
        "neg  x7, x0",
        "2:",
        head!(),
        step!("4", "16", "ldr", "str", "q0"),
        "
            sub  x7, x6, x1
            lsr  x2, x7, #7
            cbz  x2, 4f
        3:  ldp  q0, q1, [x1]
            ldp  q2, q3, [x1, #32]
            ldp  q4, q5, [x1, #64]
            ldp  q6, q7, [x1, #96]
            stp  q0, q1, [x0]
            stp  q2, q3, [x0, #32]
            stp  q4, q5, [x0, #64]
            stp  q6, q7, [x0, #96]
            add  x1, x1, #128
            add  x0, x0, #128
            subs x2, x2, #1
            b.ne 3b
        4:  tbz  x7, #6, 5f
            ldp  q0, q1, [x1]
            ldp  q2, q3, [x1, #32]
            stp  q0, q1, [x0]
            stp  q2, q3, [x0, #32]
            add  x1, x1, #64
            add  x0, x0, #64
        5:  tbz  x7, #5, 6f
            ldp  q0, q1, [x1]
            stp  q0, q1, [x0]
            add  x1, x1, #32
            add  x0, x0, #32
        6:
        ",
        step!("4", "16", "ldr", "str", "q0"),
        tail!(),
        "7: mov  x0, xzr",
        "ret",
        "8: sub  x2, x6, x1",
        "b    {ldrb}",
        "9: b    {ldp}",
        guarded!("2b", "7b", "8b"),
        min = const QUADS_MIN,
        ldrb = sym ldrb,
        ldp = sym ldp,
    )
}
