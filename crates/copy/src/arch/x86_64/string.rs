//! Copies by the string instructions.
//!
//! ```text
//! rep-movsb:          rcx = len; rep movsb; return rcx
//! rep-movsq:          rcx = len / 8; rep movsq; rcx = len mod 8; rep movsb; return rcx
//! …-aligned:          64 (or 8) bytes as they lie, then the same from the next multiple of that in the destination
//! ```
//!
//! Departures:
//!
//! 1. The instructions keep their progress in `rdi`, `rsi` and `rcx`, also when they fault (Intel SDM vol. 2, `REP`),
//!    so the fix-up of `rep movsb` is its ordinary end. That of `rep movsq` puts words and rest together again, and
//!    goes on byte by byte in the word that faulted.
//! 2. The aligned forms copy plainly what is shorter than their first step.
//! 3. `rep movsd` is there as the tail of the routine of 2002 in 32-bit registers (see `integer`).

use core::arch::naked_asm;

use super::tail;
use crate::fault::guarded;
use crate::routine::{Entry, Isa, Overlap, Run};

const fn entry(name: &'static str, summary: &'static str, overlap: Overlap, run: Run) -> Entry {
    Entry { name, isa: Isa::X86_64, summary, needs: "", overlap, available: || true, run }
}

pub(super) const REP_MOVSB: Entry = entry(
    "rep-movsb",
    "one string instruction; fast where the CPU has ERMS (long copies) or FSRM (short ones too)",
    Overlap::Forward,
    rep_movsb,
);
pub(super) const REP_MOVSB_ALIGNED: Entry = entry(
    "rep-movsb-aligned",
    "the same from a line of the destination on: where misaligned stores are what costs",
    Overlap::Apart,
    rep_movsb_aligned,
);
pub(super) const REP_MOVSQ: Entry = entry(
    "rep-movsq",
    "string words and a tail: what was fast before ERMS, and slow where the ends disagree in alignment",
    Overlap::Forward,
    rep_movsq,
);
pub(super) const REP_MOVSQ_ALIGNED: Entry = entry(
    "rep-movsq-aligned",
    "the same from a word of the destination on",
    Overlap::Apart,
    rep_movsq_aligned,
);

/// # Safety
///
/// As [`crate::Routine::try_copy`].
#[unsafe(naked)]
unsafe extern "sysv64" fn rep_movsb(dst: *mut u8, src: *const u8, len: usize) -> usize {
    naked_asm!("mov rcx, rdx", "2: rep movsb", "3: mov rax, rcx", "ret", guarded!("2b", "3b", "3b"))
}

/// # Safety
///
/// As [`crate::Routine::try_copy`].
#[unsafe(naked)]
pub(super) unsafe extern "sysv64" fn rep_movsb_aligned(dst: *mut u8, src: *const u8, len: usize) -> usize {
    naked_asm!(
        "cmp rdx, 64",
        "jb 3f",
        "2: movups xmm0, xmmword ptr [rsi]",
        "movups xmm1, xmmword ptr [rsi + 16]",
        "movups xmm2, xmmword ptr [rsi + 32]",
        "movups xmm3, xmmword ptr [rsi + 48]",
        "movups xmmword ptr [rdi], xmm0",
        "movups xmmword ptr [rdi + 16], xmm1",
        "movups xmmword ptr [rdi + 32], xmm2",
        "movups xmmword ptr [rdi + 48], xmm3",
        "mov rax, rdi",
        "neg rax",
        "and eax, 63",
        "add rdi, rax",
        "add rsi, rax",
        "sub rdx, rax",
        "3: mov rcx, rdx",
        "4: rep movsb",
        "5: mov rax, rcx",
        "ret",
        guarded!("2b", "3b", "{bytes}"),
        guarded!("4b", "5b", "5b"),
        bytes = sym tail::bytes,
    )
}

/// # Safety
///
/// As [`crate::Routine::try_copy`].
#[unsafe(naked)]
pub(super) unsafe extern "sysv64" fn rep_movsq(dst: *mut u8, src: *const u8, len: usize) -> usize {
    naked_asm!(
        "mov rcx, rdx",
        "shr rcx, 3",
        "and edx, 7",
        "2: rep movsq",
        "3: mov ecx, edx",
        "jz 5f", // from the `and`
        "4: rep movsb",
        "5: mov rax, rcx",
        "ret",
        "6: lea rdx, [rdx + 8 * rcx]",
        "jmp {bytes}",
        guarded!("2b", "3b", "6b"),
        guarded!("4b", "5b", "5b"),
        bytes = sym tail::bytes,
    )
}

/// # Safety
///
/// As [`crate::Routine::try_copy`].
#[unsafe(naked)]
unsafe extern "sysv64" fn rep_movsq_aligned(dst: *mut u8, src: *const u8, len: usize) -> usize {
    naked_asm!(
        "cmp rdx, 8",
        "jb 3f",
        "2: mov rax, qword ptr [rsi]",
        "mov qword ptr [rdi], rax",
        "mov rax, rdi",
        "neg rax",
        "and eax, 7",
        "add rdi, rax",
        "add rsi, rax",
        "sub rdx, rax",
        "3: jmp {rest}",
        guarded!("2b", "3b", "{bytes}"),
        rest = sym rep_movsq,
        bytes = sym tail::bytes,
    )
}

/// As [`rep_movsq`], by 32-bit words.
///
/// # Safety
///
/// As [`crate::Routine::try_copy`].
#[unsafe(naked)]
pub(super) unsafe extern "sysv64" fn rep_movsd(dst: *mut u8, src: *const u8, len: usize) -> usize {
    naked_asm!(
        "mov rcx, rdx",
        "shr rcx, 2",
        "and edx, 3",
        "2: rep movsd",
        "3: mov ecx, edx",
        "jz 5f",
        "4: rep movsb",
        "5: mov rax, rcx",
        "ret",
        "6: lea rdx, [rdx + 4 * rcx]",
        "jmp {bytes}",
        guarded!("2b", "3b", "6b"),
        guarded!("4b", "5b", "5b"),
        bytes = sym tail::bytes,
    )
}
