//! Checksum routines of `AArch64`: words in the general registers by add-with-carry, and the halves of words in
//! SIMD lanes.
//!
//! ```text
//! sum:   while left ≥ 64 (neon: 128): sum += the words of the block, wherever the source is
//!        32, 16, 8, 4, 2, 1 bytes, as the bits of what is left say; sum += them
//!
//! copy:  as ldp and ldp-q in arch::aarch64::pairs: 1, 2, 4, 8 bytes (neon: 16 too) until dst is aligned, blocks, and steps
//!        down to a byte; each is added where it stands in its aligned word of the destination, after it was stored
//!        if dst was odd: sum = its bytes swapped
//! ```
//!
//! Departures:
//!
//! 1. `adcs` chains the words of a block; the last carry is added before the loop counts on, which has flags
//!    of its own.
//! 2. `uadalp` adds two neighbouring 32-bit halves to a 64-bit lane: one instruction for 16 bytes. A lane has
//!    room for 2³¹ of them, far beyond a piece. Four accumulators, as a dependent one has to wait four cycles
//!    on most cores.
//! 3. A shift uses the low six bits of its count: `8 · address` places a byte. `sum` has no addresses to
//!    align to: its steps come from the start at even distances, and what is added last is the only odd one.
//! 4. After a fault a byte loop goes on, placing each byte by its address (`copy`) or its distance from the
//!    start (`sum`).
//!
//! Written for little-endian memory, as `place` in the portable module's terms.

use core::arch::naked_asm;

use super::routine::{Entry, Raw};
use crate::fault::guarded;
use crate::routine::Isa;

/// Without what differs.
const ADCS: Entry = Entry {
    name: "adcs",
    isa: Isa::Aarch64,
    summary: "64-bit general registers, add with carry, 64 bytes a round",
    needs: "",
    available: || true,
    sum: adcs_sum,
    copy: adcs_copy,
};

#[cfg(target_feature = "neon")]
const NEON: Entry = Entry {
    name: "neon",
    summary: "16-byte registers, 32-bit halves added in pairs to 64-bit lanes, 128 bytes a round",
    sum: neon_sum,
    copy: neon_copy,
    ..ADCS
};

pub(crate) static ROUTINES: &[Entry] = &[
    ADCS,
    #[cfg(target_feature = "neon")]
    NEON,
];

/// The longest head. Below, a byte loop.
const COPY_PAIRS_MIN: usize = 15;
/// The longest head and a round.
#[cfg(target_feature = "neon")]
const COPY_QUADS_MIN: usize = 31 + 128;
/// From here on `neon` executes less than `adcs`, its final sum over the lanes included.
///
/// Aligned copies: 65 instructions against 80 at 160 bytes, 79 against 111 at 256, 1319 against 2715 at 8 KiB; sums
/// alone: 51 against 59, 62 against 83, 992 against 2067. Below, `neon`'s copy is that of `adcs`.
const NEON_FROM: usize = 160;

#[inline]
fn pick(len: usize) -> &'static Entry {
    if len >= NEON_FROM && cfg!(target_feature = "neon") {
        &ROUTINES[ROUTINES.len() - 1]
    } else {
        &ROUTINES[0]
    }
}

#[inline]
pub(crate) fn auto_sum(len: usize) -> &'static Entry {
    pick(len)
}

#[inline]
pub(crate) fn auto_copy(len: usize) -> &'static Entry {
    pick(len)
}

/// `x4 += x3`, one's complement.
macro_rules! add {
    () => {
        "adds x4, x4, x3\nadc x4, x4, xzr\n"
    };
}

/// `x4 +=` the block of eight words in `x8`…`x15`.
macro_rules! add_block {
    () => {
        "
        adds x4, x4, x8
        adcs x4, x4, x9
        adcs x4, x4, x10
        adcs x4, x4, x11
        adcs x4, x4, x12
        adcs x4, x4, x13
        adcs x4, x4, x14
        adcs x4, x4, x15
        adc  x4, x4, xzr
        "
    };
}

/// The 16 bytes in `$v` into the lanes of `$total`.
macro_rules! lanes {
    ($total:literal, $v:literal) => {
        concat!("uadalp v", $total, ".2d, v", $v, ".4s\n")
    };
}

macro_rules! clear_lanes {
    () => {
        "movi v16.2d, #0\nmovi v17.2d, #0\nmovi v18.2d, #0\nmovi v19.2d, #0\n"
    };
}

/// `x4 +=` all lanes.
macro_rules! reduce {
    () => {
        concat!(
            "
            add  v16.2d, v16.2d, v17.2d
            add  v18.2d, v18.2d, v19.2d
            add  v16.2d, v16.2d, v18.2d
            addp d16, v16.2d
            fmov x3, d16
            ",
            add!(),
        )
    };
}

/// If bit `$bit` of `x7` is set, copies that many bytes in a register and adds them in their place.
macro_rules! copy_step {
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
            "lsl x2, x0, #3\n",
            "lsl x3, x3, x2\n",
            add!(),
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

/// 1, 2, 4, 8 bytes, as the low bits of `x7` say.
macro_rules! copy_head {
    () => {
        concat!(
            copy_step!("0", "1", "ldrb", "strb", "w3"),
            copy_step!("1", "2", "ldrh", "strh", "w3"),
            copy_step!("2", "4", "ldr", "str", "w3"),
            copy_step!("3", "8", "ldr", "str", "x3"),
        )
    };
}

/// 8, 4, 2, 1 bytes, as the low bits of `x7` say.
macro_rules! copy_tail {
    () => {
        concat!(
            copy_step!("3", "8", "ldr", "str", "x3"),
            copy_step!("2", "4", "ldr", "str", "w3"),
            copy_step!("1", "2", "ldrh", "strh", "w3"),
            copy_step!("0", "1", "ldrb", "strb", "w3"),
        )
    };
}

/// If bit `$bit` of `x7` is set, adds that many bytes.
macro_rules! sum_step {
    ($bit:literal, $bytes:literal, $load:literal, $register:literal) => {
        concat!(
            "tbz x7, #",
            $bit,
            ", 50f\n",
            $load,
            " ",
            $register,
            ", [x0]\n",
            add!(),
            "add x0, x0, #",
            $bytes,
            "\n",
            "50:\n",
        )
    };
}

/// 8, 4, 2, 1 bytes, as the low bits of `x7` say.
macro_rules! sum_tail {
    () => {
        concat!(
            sum_step!("3", "8", "ldr", "x3"),
            sum_step!("2", "4", "ldr", "w3"),
            sum_step!("1", "2", "ldrh", "w3"),
            sum_step!("0", "1", "ldrb", "w3"),
        )
    };
}

/// Bytes until one faults, and the end of every copy. Not a function: `x0` destination, `x1` source, `x6` its
/// end, `x4` the sum, `x5` where the destination began.
///
/// # Safety
///
/// Nobody calls it: routines of this module jump here, with the registers that the head of it names.
#[unsafe(naked)]
unsafe extern "C" fn copy_bytes() -> Raw {
    naked_asm!(
        "
            cmp  x1, x6
            b.eq 4f
        2:  ldrb w3, [x1]
            strb w3, [x0]
        3:  lsl  x2, x0, #3
            lsl  x3, x3, x2
        ",
        add!(),
        "
            add  x1, x1, #1
            add  x0, x0, #1
            cmp  x1, x6
            b.ne 2b
        4:  sub  x0, x6, x1
            mov  x1, x4
            tbz  x5, #0, 5f
            ror  x1, x4, #56
        5:  ret
        ",
        guarded!("2b", "3b", "4b"),
    )
}

/// Bytes until one faults, and the end of every sum. Not a function: `x0` source, `x6` its end, `x4` the sum,
/// `x5` where the source began.
///
/// # Safety
///
/// Nobody calls it: routines of this module jump here, with the registers that the head of it names.
#[unsafe(naked)]
unsafe extern "C" fn sum_bytes() -> Raw {
    naked_asm!(
        "
            cmp  x0, x6
            b.eq 4f
        2:  ldrb w3, [x0]
        3:  sub  x2, x0, x5
            lsl  x2, x2, #3
            lsl  x3, x3, x2
        ",
        add!(),
        "
            add  x0, x0, #1
            cmp  x0, x6
            b.ne 2b
        4:  sub  x0, x6, x0
            mov  x1, x4
            ret
        ",
        guarded!("2b", "3b", "4b"),
    )
}

/// # Safety
///
/// As [`crate::checksum::SumRoutine::try_copy`].
#[unsafe(naked)]
unsafe extern "C" fn adcs_copy(dst: *mut u8, src: *const u8, len: usize) -> Raw {
    naked_asm!(
        "
            mov  x4, xzr
            mov  x5, x0
            add  x6, x1, x2
            cmp  x2, #{min}
            b.lo 9f
            neg  x7, x0
        2:
        ",
        copy_head!(),
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
        ",
        add_block!(),
        "
            add  x1, x1, #64
            add  x0, x0, #64
            subs x2, x2, #1
            b.ne 3b
        4:  tbz  x7, #5, 5f
            ldp  x8, x9, [x1]
            ldp  x10, x11, [x1, #16]
            stp  x8, x9, [x0]
            stp  x10, x11, [x0, #16]
            adds x4, x4, x8
            adcs x4, x4, x9
            adcs x4, x4, x10
            adcs x4, x4, x11
            adc  x4, x4, xzr
            add  x1, x1, #32
            add  x0, x0, #32
        5:  tbz  x7, #4, 6f
            ldp  x8, x9, [x1]
            stp  x8, x9, [x0]
            adds x4, x4, x8
            adcs x4, x4, x9
            adc  x4, x4, xzr
            add  x1, x1, #16
            add  x0, x0, #16
        6:
        ",
        copy_tail!(),
        "9: b   {bytes}",
        guarded!("2b", "9b", "9b"),
        min = const COPY_PAIRS_MIN,
        bytes = sym copy_bytes,
    )
}

/// # Safety
///
/// As [`crate::checksum::SumRoutine::try_sum`].
#[unsafe(naked)]
unsafe extern "C" fn adcs_sum(src: *const u8, len: usize) -> Raw {
    naked_asm!(
        "
            mov  x4, xzr
            mov  x5, x0
            add  x6, x0, x1
            mov  x7, x1
            lsr  x2, x7, #6
            cbz  x2, 4f
        3:  ldp  x8, x9, [x0]
            ldp  x10, x11, [x0, #16]
            ldp  x12, x13, [x0, #32]
            ldp  x14, x15, [x0, #48]
        ",
        add_block!(),
        "
            add  x0, x0, #64
            subs x2, x2, #1
            b.ne 3b
        4:  tbz  x7, #5, 5f
            ldp  x8, x9, [x0]
            ldp  x10, x11, [x0, #16]
            adds x4, x4, x8
            adcs x4, x4, x9
            adcs x4, x4, x10
            adcs x4, x4, x11
            adc  x4, x4, xzr
            add  x0, x0, #32
        5:  tbz  x7, #4, 6f
            ldp  x8, x9, [x0]
            adds x4, x4, x8
            adcs x4, x4, x9
            adc  x4, x4, xzr
            add  x0, x0, #16
        6:
        ",
        sum_tail!(),
        "9: b   {bytes}",
        guarded!("3b", "9b", "9b"),
        bytes = sym sum_bytes,
    )
}

/// # Safety
///
/// As [`crate::checksum::SumRoutine::try_copy`], on a CPU with NEON, for which it was compiled.
#[cfg(target_feature = "neon")]
#[unsafe(naked)]
unsafe extern "C" fn neon_copy(dst: *mut u8, src: *const u8, len: usize) -> Raw {
    naked_asm!(
        "
            cmp  x2, #{min}
            b.lo 9f
            mov  x4, xzr
            mov  x5, x0
            add  x6, x1, x2
            neg  x7, x0
        ",
        clear_lanes!(),
        "2:",
        copy_head!(),
        "
            tbz  x7, #4, 21f
            ldr  q0, [x1]
            str  q0, [x0]
        ",
        lanes!("16", "0"),
        "
            add  x1, x1, #16
            add  x0, x0, #16
        21: sub  x7, x6, x1
            lsr  x2, x7, #7
        3:  ldp  q0, q1, [x1]
            ldp  q2, q3, [x1, #32]
            ldp  q4, q5, [x1, #64]
            ldp  q6, q7, [x1, #96]
            stp  q0, q1, [x0]
            stp  q2, q3, [x0, #32]
            stp  q4, q5, [x0, #64]
            stp  q6, q7, [x0, #96]
        ",
        lanes!("16", "0"),
        lanes!("17", "1"),
        lanes!("18", "2"),
        lanes!("19", "3"),
        lanes!("16", "4"),
        lanes!("17", "5"),
        lanes!("18", "6"),
        lanes!("19", "7"),
        "
            add  x1, x1, #128
            add  x0, x0, #128
            subs x2, x2, #1
            b.ne 3b
        4:  tbz  x7, #6, 5f
            ldp  q0, q1, [x1]
            ldp  q2, q3, [x1, #32]
            stp  q0, q1, [x0]
            stp  q2, q3, [x0, #32]
        ",
        lanes!("16", "0"),
        lanes!("17", "1"),
        lanes!("18", "2"),
        lanes!("19", "3"),
        "
            add  x1, x1, #64
            add  x0, x0, #64
        5:  tbz  x7, #5, 6f
            ldp  q0, q1, [x1]
            stp  q0, q1, [x0]
        ",
        lanes!("16", "0"),
        lanes!("17", "1"),
        "
            add  x1, x1, #32
            add  x0, x0, #32
        6:  tbz  x7, #4, 7f
            ldr  q0, [x1]
            str  q0, [x0]
        ",
        lanes!("16", "0"),
        "
            add  x1, x1, #16
            add  x0, x0, #16
        7:
        ",
        copy_tail!(),
        "8:",
        reduce!(),
        "b   {bytes}",
        "9: b {short}",
        guarded!("2b", "8b", "8b"),
        min = const COPY_QUADS_MIN,
        short = sym adcs_copy,
        bytes = sym copy_bytes,
    )
}

/// # Safety
///
/// As [`crate::checksum::SumRoutine::try_sum`], on a CPU with NEON, for which it was compiled.
#[cfg(target_feature = "neon")]
#[unsafe(naked)]
unsafe extern "C" fn neon_sum(src: *const u8, len: usize) -> Raw {
    naked_asm!(
        "
            cmp  x1, #128
            b.lo 9f
            mov  x4, xzr
            mov  x5, x0
            add  x6, x0, x1
            mov  x7, x1
        ",
        clear_lanes!(),
        "
            lsr  x2, x7, #7
        3:  ldp  q0, q1, [x0]
            ldp  q2, q3, [x0, #32]
            ldp  q4, q5, [x0, #64]
            ldp  q6, q7, [x0, #96]
        ",
        lanes!("16", "0"),
        lanes!("17", "1"),
        lanes!("18", "2"),
        lanes!("19", "3"),
        lanes!("16", "4"),
        lanes!("17", "5"),
        lanes!("18", "6"),
        lanes!("19", "7"),
        "
            add  x0, x0, #128
            subs x2, x2, #1
            b.ne 3b
            tbz  x7, #6, 5f
            ldp  q0, q1, [x0]
            ldp  q2, q3, [x0, #32]
        ",
        lanes!("16", "0"),
        lanes!("17", "1"),
        lanes!("18", "2"),
        lanes!("19", "3"),
        "
            add  x0, x0, #64
        5:  tbz  x7, #5, 6f
            ldp  q0, q1, [x0]
        ",
        lanes!("16", "0"),
        lanes!("17", "1"),
        "
            add  x0, x0, #32
        6:  tbz  x7, #4, 7f
            ldr  q0, [x0]
        ",
        lanes!("16", "0"),
        "
            add  x0, x0, #16
        7:
        ",
        sum_tail!(),
        "8:",
        reduce!(),
        "b   {bytes}",
        "9: b {short}",
        guarded!("3b", "8b", "8b"),
        short = sym adcs_sum,
        bytes = sym sum_bytes,
    )
}
