//! Checksum routines of riscv64: words in the integer registers.
//!
//! ```text
//! sum:   w = the aligned word that src is in, without the bytes before src; sum += w
//!        while left ≥ 64: sum += eight aligned words
//!        while left ≥ 8: sum += an aligned word
//!        sum += the last aligned word, without the bytes behind the end
//!        if src was odd: sum = its bytes swapped
//!
//! copy:  as ld-shift in arch::riscv64::scalar: bytes until dst is aligned, aligned words (merged by shifts where the source
//!        disagrees), bytes; each is added where it stands in its aligned word of the destination, after it was stored
//!        if dst was odd: sum = its bytes swapped
//! ```
//!
//! Departures:
//!
//! 1. One's complement addition without a carry flag is `add s, s, w; sltu c, s, w; add s, s, c`: three
//!    instructions a word. It cannot carry twice. (32-bit halves with `lwu; add` are as many.)
//! 2. `sum` has no byte loop, also where it faults. An aligned word faults as a whole, and what it holds of
//!    the source starts at the first byte that can't be read; a block that faults is gone through again word
//!    by word to find that.
//! 3. A shift uses the low six bits of its count: `8 · address` places a byte.
//! 4. The head of `copy` needs no carries, its bytes stand in different places of one word.

#![expect(clippy::too_many_lines, reason = "a copy in its four forms shares registers, ends and sum")]

use core::arch::naked_asm;

use super::routine::{Entry, Raw};
use crate::fault::guarded;
use crate::routine::Isa;

pub(crate) static ROUTINES: &[Entry] = &[Entry {
    name: "ld-shift",
    isa: Isa::Riscv64,
    summary: "aligned words, merged by shifts where the ends disagree in alignment",
    needs: "",
    available: || true,
    sum,
    copy,
}];

#[inline]
pub(crate) fn auto_sum(_len: usize) -> &'static Entry {
    &ROUTINES[0]
}

#[inline]
pub(crate) fn auto_copy(_len: usize) -> &'static Entry {
    &ROUTINES[0]
}

/// The longest head and a word, as in [`crate::arch`]'s `ld-shift`.
const COPY_WORDS_MIN: usize = 15;

/// `t4 += $word`, one's complement, by way of `$carry`.
macro_rules! add {
    ($word:literal, $carry:literal) => {
        concat!("add t4, t4, ", $word, "\nsltu ", $carry, ", t4, ", $word, "\nadd t4, t4, ", $carry, "\n")
    };
}

/// Returns `$left` and `t4`, the latter with its bytes swapped if `t0` is odd.
macro_rules! finish {
    ($left:literal) => {
        concat!(
            "mv   a0, ",
            $left,
            "
            andi t0, t0, 1
            mv   a1, t4
            beqz t0, 99f
            slli a1, t4, 8
            srli t4, t4, 56
            or   a1, a1, t4
            99: ret
            "
        )
    };
}

/// `a0` the next aligned word, `a1` what was asked for, `t6` the end, `t4` the sum, `t0` where the source
/// began.
///
/// # Safety
///
/// As [`crate::checksum::SumRoutine::try_sum`].
#[unsafe(naked)]
unsafe extern "C" fn sum(src: *const u8, len: usize) -> Raw {
    naked_asm!(
        "
            li   t4, 0
            mv   t0, a0
            beqz a1, 9f
            add  t6, a0, a1
            andi a0, a0, -8
            slli t1, t0, 3
        2:  ld   t2, 0(a0)
        3:  srl  t2, t2, t1
            sll  t2, t2, t1         # without what is before the source
            addi a0, a0, 8
            sub  t5, t6, a0
            bltz t5, 8f             # it ends in this word
            mv   t4, t2
            andi t5, t5, -64
            add  t5, t5, a0
            beq  a0, t5, 5f
        4:  ld   a2, 0(a0)
            ld   a3, 8(a0)
            ld   a4, 16(a0)
            ld   a5, 24(a0)
            ld   a6, 32(a0)
            ld   a7, 40(a0)
            ld   t2, 48(a0)
            ld   t3, 56(a0)
        41:
        ",
        add!("a2", "t1"),
        add!("a3", "t1"),
        add!("a4", "t1"),
        add!("a5", "t1"),
        add!("a6", "t1"),
        add!("a7", "t1"),
        add!("t2", "t1"),
        add!("t3", "t1"),
        "
            addi a0, a0, 64
            bne  a0, t5, 4b
        5:  andi t5, t6, -8
            beq  a0, t5, 7f
        6:  ld   t2, 0(a0)
        61:
        ",
        add!("t2", "t1"),
        "
            addi a0, a0, 8
            bne  a0, t5, 6b
        7:  beq  a0, t6, 9f
        71: ld   t2, 0(a0)          # 1 to 7 of its bytes
        72: addi a0, a0, 8
        8:  sub  t1, a0, t6         # the bytes behind the end
            slli t1, t1, 3
            sll  t2, t2, t1
            srl  t2, t2, t1
        ",
        add!("t2", "t1"),
        "9:",
        finish!("zero"),
        "10: mv  t2, a1             # the first word faulted: all is left",
        "j    12f",
        "11: sub t2, t6, a0",
        "12:",
        finish!("t2"),
        guarded!("2b", "3b", "10b"),
        guarded!("4b", "41b", "5b"),
        guarded!("6b", "61b", "11b"),
        guarded!("71b", "72b", "11b"),
    )
}

/// `a0` destination, `a1` source, `t6` its end, `t4` the sum, `t0` where the destination began.
///
/// # Safety
///
/// As [`crate::checksum::SumRoutine::try_copy`].
#[unsafe(naked)]
unsafe extern "C" fn copy(dst: *mut u8, src: *const u8, len: usize) -> Raw {
    naked_asm!(
        "
            li   t4, 0
            mv   t0, a0
            add  t6, a1, a2
            li   t1, {min}
            bltu a2, t1, 8f
            addi t5, a0, 7
            andi t5, t5, -8
            beq  a0, t5, 3f
        2:  lbu  t1, 0(a1)
            sb   t1, 0(a0)
        21: slli t2, a0, 3
            sll  t1, t1, t2
            add  t4, t4, t1
            addi a1, a1, 1
            addi a0, a0, 1
            bne  a0, t5, 2b
        3:  andi t2, a1, 7
            bnez t2, 5f

            sub  t1, t6, a1         # words to words
            andi t5, t1, -64
            add  t5, t5, a0
            beq  a0, t5, 4f
        31: ld   a2, 0(a1)
            ld   a3, 8(a1)
            ld   a4, 16(a1)
            ld   a5, 24(a1)
            ld   a6, 32(a1)
            ld   a7, 40(a1)
            ld   t2, 48(a1)
            ld   t3, 56(a1)
            sd   a2, 0(a0)
            sd   a3, 8(a0)
            sd   a4, 16(a0)
            sd   a5, 24(a0)
            sd   a6, 32(a0)
            sd   a7, 40(a0)
            sd   t2, 48(a0)
            sd   t3, 56(a0)
        32:
        ",
        add!("a2", "t1"),
        add!("a3", "t1"),
        add!("a4", "t1"),
        add!("a5", "t1"),
        add!("a6", "t1"),
        add!("a7", "t1"),
        add!("t2", "t1"),
        add!("t3", "t1"),
        "
            addi a1, a1, 64
            addi a0, a0, 64
            bne  a0, t5, 31b
        4:  sub  t1, t6, a1
            andi t5, t1, -8
            add  t5, t5, a0
            beq  a0, t5, 8f
        41: ld   a2, 0(a1)
            sd   a2, 0(a0)
        42:
        ",
        add!("a2", "t1"),
        "
            addi a1, a1, 8
            addi a0, a0, 8
            bne  a0, t5, 41b
            j    8f

        5:  sub  t1, t6, a1         # merged words
            andi t5, t1, -32
            add  t5, t5, a0
            sub  a1, a1, t2         # an aligned word: the source is t2 / 8 bytes on
            slli t2, t2, 3
            neg  t3, t2             # a shift by 64 − t2
        50: ld   a2, 0(a1)
            beq  a0, t5, 6f
        51: srl  t1, a2, t2
            ld   a3, 8(a1)
            ld   a4, 16(a1)
            ld   a5, 24(a1)
            ld   a2, 32(a1)
            sll  a6, a3, t3
            srl  a3, a3, t2
            sll  a7, a4, t3
            or   t1, t1, a6
            or   a3, a3, a7
            srl  a4, a4, t2
            sll  a6, a5, t3
            srl  a5, a5, t2
            sll  a7, a2, t3
            or   a4, a4, a6
            or   a5, a5, a7
            sd   t1, 0(a0)
            sd   a3, 8(a0)
            sd   a4, 16(a0)
            sd   a5, 24(a0)
        ",
        add!("t1", "a6"),
        add!("a3", "a6"),
        add!("a4", "a6"),
        add!("a5", "a6"),
        "
            addi a1, a1, 32
            addi a0, a0, 32
            bne  a0, t5, 51b
        6:  srli t1, t2, 3
            add  t1, t1, a1
            sub  t1, t6, t1
            andi t5, t1, 24
            add  t5, t5, a0
            beq  a0, t5, 7f
        61: srl  t1, a2, t2
            ld   a2, 8(a1)
            sll  a3, a2, t3
            or   t1, t1, a3
            sd   t1, 0(a0)
        ",
        add!("t1", "a6"),
        "
            addi a1, a1, 8
            addi a0, a0, 8
            bne  a0, t5, 61b
        7:  srli t2, t2, 3
            add  a1, a1, t2

        8:  beq  a1, t6, 9f
        81: lbu  t1, 0(a1)
            sb   t1, 0(a0)
        82: slli t2, a0, 3
            sll  t1, t1, t2
        ",
        add!("t1", "t2"),
        "
            addi a1, a1, 1
            addi a0, a0, 1
            bne  a1, t6, 81b
        9:  sub  t1, t6, a1
        ",
        finish!("t1"),
        guarded!("2b", "21b", "9b"),
        guarded!("31b", "32b", "8b"),
        guarded!("41b", "42b", "8b"),
        guarded!("50b", "7b", "7b"),
        guarded!("81b", "82b", "9b"),
        min = const COPY_WORDS_MIN,
    )
}
