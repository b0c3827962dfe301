//! Copies by scalar loads and stores: bytes, aligned words, aligned words merged by shifts, unaligned words.
//!
//! RISC-V lets a misaligned load or store trap, and where it does not it may be ten times slower than bytes:
//! a copy must not do one unless it knows better. What is left when the two addresses differ modulo 8 is the
//! byte loop, or *merging*: load the aligned words that hold the source, and shift two neighbours together
//! for each aligned word of the destination. That is the design of Linux's `__asm_copy_to_user` since 2021
//! (`arch/riscv/lib/uaccess.S`).
//!
//! ```text
//! lb            while len > 0: *dst++ = *src++
//!
//! ld            if len < WORDS_MIN or (dst ^ src) & 7 != 0: lb
//!               bytes until dst is aligned
//!               while left ≥ 64: load eight words, store eight words
//!               while left ≥ 8: one word
//!               lb for the rest
//!
//! ld-shift      if (dst ^ src) & 7 == 0: ld
//!               if len < SHIFT_MIN: lb
//!               bytes until dst is aligned
//!               off = src & 7; base = src - off; w = base[0]
//!               while left ≥ 32: load base[1..=4]; store (w >> 8·off | base[1] << 64 − 8·off), …; w = base[4]
//!               while left ≥ 8: the same with one word
//!               lb for the rest
//!
//! ld-unaligned  if len < UNALIGNED_MIN: lb
//!               1, 2, 4 bytes until dst is aligned
//!               the loops of ld, whatever src is
//!               the last 8 bytes once more, if any of them is left
//! ```
//!
//! Departures from that, and from the kernel's form of it:
//!
//! 1. `t6` is the end of the source, and no loop counts: what is left is `t6 − a1`. The fix-up of every range
//!    makes that `a2` and goes to `lb`, which copies up to the byte that faults.
//! 2. `ld-shift` moves only `base` (in `a1`); its fix-up adds `off` again. The kernel moves both.
//! 3. The kernel merges a word per round: 8 instructions for 8 bytes, a fifth of the byte loop's 40. Four
//!    words a round cost 23 for 32 bytes. Eight do not fit in the registers that a leaf function may use.
//! 4. No load leaves the pages of the source. A block of `n` destination words wants the `n + 1` aligned
//!    words that hold its source, and each of them holds at least one byte of it; an aligned word never
//!    crosses a page.
//! 5. Stores are aligned, so that one either happens or faults as a whole: had one of them two pages, a core
//!    might write the second before it faults on the first, and the destination beyond the exact prefix would
//!    not be untouched. The one exception is the last store of `ld-unaligned`, whose first byte was stored
//!    before.
//! 6. The tail is `lb`'s loop and not a ladder of 4, 2, 1: the source of `ld-shift` is misaligned for those.
//! 7. The kernel copies less than 72 bytes byte by byte, a size that network headers do not reach. The
//!    thresholds here are where the counts of executed instructions cross; see them.

use core::arch::naked_asm;

use crate::fault::guarded;

/// The least that leaves a word after the longest head: 7 bytes and 8.
///
/// Executed instructions, mean over the alignments that agree: 64 against `lb`'s 80 at 15 bytes, 70 against
/// 125 at 24. Less than 15 would let the head run past the end.
pub(super) const WORDS_MIN: usize = 15;

/// The same 15. The kernel has 72.
///
/// Executed instructions, mean over the alignments that disagree: 73 against `lb`'s 80 at 15 bytes, 82
/// against 125 at 24, 112 against 325 at 64; at the worst alignment 73, 86, 117. Tried: 24, which took `lb`'s
/// 120 at 23 bytes.
pub(super) const SHIFT_MIN: usize = 15;

/// What the last step copies: a copy has to have that many bytes before its end.
///
/// Executed instructions, mean over all alignments: 30 against `lb`'s 45 at 8 bytes. Tried: 16, which took 84
/// at 15 bytes.
pub(super) const UNALIGNED_MIN: usize = 8;

/// Byte by byte: also the tail of all others, and what their fix-ups go on with.
///
/// # Safety
///
/// As [`crate::Routine::try_copy`].
#[unsafe(naked)]
pub(super) unsafe extern "C" fn lb(dst: *mut u8, src: *const u8, len: usize) -> usize {
    naked_asm!(
        "add  t6, a1, a2",
        "beqz a2, 4f",
        "2: lb   t0, 0(a1)",
        "sb   t0, 0(a0)",
        "3: addi a1, a1, 1",
        "addi a0, a0, 1",
        "bne  a1, t6, 2b",
        "4: sub  a0, t6, a1",
        "ret",
        guarded!("2b", "3b", "4b"),
    )
}

/// Bytes until `a0` is a multiple of 8. Wants `t6`; leaves `a0` and `a1` moved. Fewer than 8 bytes: the
/// caller has more.
macro_rules! align_by_bytes {
    () => {
        "
            addi t0, a0, 7
            andi t0, t0, -8
            beq  a0, t0, 22f
        21: lb   t1, 0(a1)
            sb   t1, 0(a0)
            addi a1, a1, 1
            addi a0, a0, 1
            bne  a0, t0, 21b
        22:
        "
    };
}

/// Whole words from `a1` to the aligned `a0`, up to eight at a time, while there are 8 bytes before `t6`.
macro_rules! words {
    () => {
        "
            sub  t0, t6, a1
            andi t1, t0, -64
            add  t1, t1, a0
            beq  a0, t1, 32f
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
            addi a1, a1, 64
            addi a0, a0, 64
            bne  a0, t1, 31b
        32: andi t1, t0, 56
            add  t1, t1, a0
            beq  a0, t1, 34f
        33: ld   a2, 0(a1)
            sd   a2, 0(a0)
            addi a1, a1, 8
            addi a0, a0, 8
            bne  a0, t1, 33b
        34:
        "
    };
}

/// Aligned words where both addresses are alike modulo 8, else bytes.
///
/// # Safety
///
/// As [`crate::Routine::try_copy`].
#[unsafe(naked)]
pub(super) unsafe extern "C" fn ld(dst: *mut u8, src: *const u8, len: usize) -> usize {
    naked_asm!(
        "li   t0, {min}",
        "bltu a2, t0, 9f",
        "xor  t0, a0, a1",
        "andi t0, t0, 7",
        "bnez t0, 9f",
        "add  t6, a1, a2",
        "2:",
        align_by_bytes!(),
        words!(),
        "8: sub  a2, t6, a1",
        "9: tail {lb}",
        guarded!("2b", "8b", "8b"),
        min = const WORDS_MIN,
        lb = sym lb,
    )
}

/// Aligned words on both sides: neighbours merged by shifts where the addresses differ modulo 8.
///
/// # Safety
///
/// As [`crate::Routine::try_copy`].
#[unsafe(naked)]
pub(super) unsafe extern "C" fn ld_shift(dst: *mut u8, src: *const u8, len: usize) -> usize {
    naked_asm!(
        "xor  t0, a0, a1",
        "andi t0, t0, 7",
        "beqz t0, 7f",
        "li   t0, {min}",
        "bltu a2, t0, 9f",
        "add  t6, a1, a2",
        "2:",
        align_by_bytes!(),
        "
        3:  sub  t0, t6, a1
            andi t4, a1, 7
            sub  a1, a1, t4
            slli t2, t4, 3
            neg  t3, t2             # a shift by 64 − t2: only the low six bits count
            andi t5, t0, -32
            add  t5, t5, a0
            ld   a2, 0(a1)
            beq  a0, t5, 42f
        41: srl  t1, a2, t2
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
            addi a1, a1, 32
            addi a0, a0, 32
            bne  a0, t5, 41b
        42: andi t5, t0, 24
            add  t5, t5, a0
            beq  a0, t5, 4f
        43: srl  t1, a2, t2
            ld   a2, 8(a1)
            sll  a3, a2, t3
            or   t1, t1, a3
            sd   t1, 0(a0)
            addi a1, a1, 8
            addi a0, a0, 8
            bne  a0, t5, 43b
        4:  add  a1, a1, t4
        8:  sub  a2, t6, a1
        9:  tail {lb}
        7:  tail {ld}
        ",
        guarded!("2b", "3b", "8b"),
        guarded!("3b", "4b", "4b"),
        min = const SHIFT_MIN,
        lb = sym lb,
        ld = sym ld,
    )
}

/// Words from wherever the source is, for cores that load those as fast as aligned ones.
///
/// # Safety
///
/// As [`crate::Routine::try_copy`], on a CPU with misaligned loads, which the entry's `available` asks.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn ld_unaligned(dst: *mut u8, src: *const u8, len: usize) -> usize {
    naked_asm!(
        "
            li   t0, {min}
            bltu a2, t0, 9f
            add  t6, a1, a2
        2:  andi t0, a0, 1
            beqz t0, 3f
            lb   t1, 0(a1)
            sb   t1, 0(a0)
            addi a1, a1, 1
            addi a0, a0, 1
        3:  andi t0, a0, 2
            beqz t0, 4f
            lh   t1, 0(a1)
            sh   t1, 0(a0)
            addi a1, a1, 2
            addi a0, a0, 2
        4:  andi t0, a0, 4
            beqz t0, 5f
            lw   t1, 0(a1)
            sw   t1, 0(a0)
            addi a1, a1, 4
            addi a0, a0, 4
        5:
        ",
        words!(),
        "
            sub  t0, t6, a1         # 0 to 7 bytes are left
            beqz t0, 7f
            add  t0, a0, t0
            ld   t1, -8(t6)
            sd   t1, -8(t0)
        7:  li   a0, 0
            ret
        8:  sub  a2, t6, a1
        9:  tail {lb}
        ",
        guarded!("2b", "7b", "8b"),
        min = const UNALIGNED_MIN,
        lb = sym lb,
    )
}
