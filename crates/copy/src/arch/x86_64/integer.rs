//! The copy of 2002: integer registers, 64 bytes at a step, with the source touched ahead; a string move for the rest.
//!
//! It was written for the user copies of a kernel, where `rep movsl` took several times as long when an address was
//! misaligned (`__copy_user_intel`, Linux 2.5; `arch/x86/lib/usercopy_32.c` still has it).
//!
//! ```text
//! int32, int64:          if len < 64, or dst and src are both multiples of 8: string move
//!                        else as int…-all
//! int32-all, int64-all:  while len >= 64: touch src[32]; if len >= 72: touch src[64]
//!                                         64 bytes by register pairs (32 bits) or fours (64 bits): load, store
//!                        string move of what is left
//! int…-aligned:          the first 8 bytes as they lie, then as int…-all from the next multiple of 8 in dst
//! int64-nt:              as int64-aligned, with movnti, which goes past the caches, and a fence (the kernel's copy
//!                        without cache: what the NIC feature tx-nocache-copy switches on)
//! ```
//!
//! Departures:
//!
//! 1. A touch is a load, so it has to be of the source: the second is left out in the last step, where it might be
//!    beyond. (2002 asked for 68 bytes, enough for its 32-bit load.)
//! 2. `rdi`, `rsi` and `rdx` move once a step, after its last store: a fault within a step goes on byte by byte from
//!    its begin. 2002 had a fix-up for each of 37 instructions, to say how many bytes of the step were done, and
//!    repeated none.

use core::arch::naked_asm;

use super::{string, tail};
use crate::fault::guarded;
use crate::routine::{Entry, Isa, Overlap, Run};

const fn entry(name: &'static str, summary: &'static str, overlap: Overlap, run: Run) -> Entry {
    Entry { name, isa: Isa::X86_64, summary, needs: "", overlap, available: || true, run }
}

pub(super) const INT32: Entry = entry(
    "int32",
    "the copy of 2002 as it was: 32-bit registers where an address is misaligned, else a string move",
    Overlap::Apart,
    int32,
);
pub(super) const INT32_ALL: Entry =
    entry("int32-all", "the same for all alignments from 64 bytes on", Overlap::Apart, int32_all);
pub(super) const INT32_ALIGNED: Entry =
    entry("int32-aligned", "the same from a word of the destination on", Overlap::Apart, int32_aligned);
pub(super) const INT64: Entry = entry(
    "int64",
    "the copy of 2002 in 64-bit registers where an address is misaligned, else a string move",
    Overlap::Apart,
    int64,
);
pub(super) const INT64_ALL: Entry =
    entry("int64-all", "the same for all alignments from 64 bytes on", Overlap::Apart, int64_all);
pub(super) const INT64_ALIGNED: Entry =
    entry("int64-aligned", "the same from a word of the destination on", Overlap::Apart, int64_aligned);
pub(super) const INT64_NT: Entry = entry(
    "int64-nt",
    "past the caches by 64-bit registers, as Linux does it; for what nobody reads soon, and is larger than the caches",
    Overlap::Apart,
    int64_nt,
);

/// "jz string move if both are multiples of 8".
macro_rules! rule {
    ($all:path, $string:path) => {
        naked_asm!(
            "cmp rdx, 64",
            "jb {string}",
            "mov eax, edi",
            "or eax, esi",
            "test al, 7",
            "jz {string}",
            "jmp {all}",
            all = sym $all,
            string = sym $string,
        )
    };
}

/// "the first 8 bytes, then from the next multiple of 8 on".
macro_rules! aligned {
    ($all:path, $string:path) => {
        naked_asm!(
            "cmp rdx, 64",
            "jb {string}",
            "2: mov rax, qword ptr [rsi]",
            "mov qword ptr [rdi], rax",
            "mov rax, rdi",
            "neg rax",
            "and eax, 7",
            "add rdi, rax",
            "add rsi, rax",
            "sub rdx, rax",
            "3: jmp {all}",
            guarded!("2b", "3b", "{bytes}"),
            all = sym $all,
            string = sym $string,
            bytes = sym tail::bytes,
        )
    };
}

/// # Safety
///
/// As [`crate::Routine::try_copy`].
#[unsafe(naked)]
unsafe extern "sysv64" fn int32(dst: *mut u8, src: *const u8, len: usize) -> usize {
    rule!(int32_all, string::rep_movsd)
}

/// # Safety
///
/// As [`crate::Routine::try_copy`].
#[unsafe(naked)]
unsafe extern "sysv64" fn int32_aligned(dst: *mut u8, src: *const u8, len: usize) -> usize {
    aligned!(int32_all, string::rep_movsd)
}

/// # Safety
///
/// As [`crate::Routine::try_copy`].
#[unsafe(naked)]
unsafe extern "sysv64" fn int32_all(dst: *mut u8, src: *const u8, len: usize) -> usize {
    /// Two words from `$a` on.
    macro_rules! pair {
        ($a:literal, $b:literal) => {
            concat!(
                concat!("mov eax, dword ptr [rsi + ", $a, "]\n"),
                concat!("mov ecx, dword ptr [rsi + ", $b, "]\n"),
                concat!("mov dword ptr [rdi + ", $a, "], eax\n"),
                concat!("mov dword ptr [rdi + ", $b, "], ecx\n"),
            )
        };
    }
    naked_asm!(
        "cmp rdx, 64",
        "jb 5f",
        ".p2align 4",
        "2: mov eax, dword ptr [rsi + 32]",
        "cmp rdx, 72",
        "jb 3f",
        "mov eax, dword ptr [rsi + 64]",
        "3:",
        pair!(0, 4),
        pair!(8, 12),
        pair!(16, 20),
        pair!(24, 28),
        pair!(32, 36),
        pair!(40, 44),
        pair!(48, 52),
        pair!(56, 60),
        "4: add rsi, 64",
        "add rdi, 64",
        "sub rdx, 64",
        "cmp rdx, 64",
        "jae 2b",
        "5: test rdx, rdx",
        "jnz {string}",
        "xor eax, eax",
        "ret",
        guarded!("2b", "4b", "{bytes}"),
        string = sym string::rep_movsd,
        bytes = sym tail::bytes,
    )
}

/// # Safety
///
/// As [`crate::Routine::try_copy`].
#[unsafe(naked)]
unsafe extern "sysv64" fn int64(dst: *mut u8, src: *const u8, len: usize) -> usize {
    rule!(int64_all, string::rep_movsq)
}

/// # Safety
///
/// As [`crate::Routine::try_copy`].
#[unsafe(naked)]
unsafe extern "sysv64" fn int64_aligned(dst: *mut u8, src: *const u8, len: usize) -> usize {
    aligned!(int64_all, string::rep_movsq)
}

/// 64 bytes, fours of words, stored by `$store`.
macro_rules! step {
    ($store:literal) => {
        concat!(
            loads!("mov", "qword ptr"; "rsi" => "rax", "rsi + 8" => "rcx", "rsi + 16" => "r8", "rsi + 24" => "r9"),
            stores!($store, "qword ptr"; "rax" => "rdi", "rcx" => "rdi + 8", "r8" => "rdi + 16", "r9" => "rdi + 24"),
            loads!("mov", "qword ptr"; "rsi + 32" => "rax", "rsi + 40" => "rcx", "rsi + 48" => "r8", "rsi + 56" => "r9"),
            stores!($store, "qword ptr"; "rax" => "rdi + 32", "rcx" => "rdi + 40", "r8" => "rdi + 48", "r9" => "rdi + 56"),
        )
    };
}

/// # Safety
///
/// As [`crate::Routine::try_copy`].
#[unsafe(naked)]
unsafe extern "sysv64" fn int64_all(dst: *mut u8, src: *const u8, len: usize) -> usize {
    naked_asm!(
        "cmp rdx, 64",
        "jb 5f",
        ".p2align 4",
        "2: mov rax, qword ptr [rsi + 32]",
        "cmp rdx, 72",
        "jb 3f",
        "mov rax, qword ptr [rsi + 64]",
        "3:",
        step!("mov"),
        "4: add rsi, 64",
        "add rdi, 64",
        "sub rdx, 64",
        "cmp rdx, 64",
        "jae 2b",
        "5: test rdx, rdx",
        "jnz {string}",
        "xor eax, eax",
        "ret",
        guarded!("2b", "4b", "{bytes}"),
        string = sym string::rep_movsq,
        bytes = sym tail::bytes,
    )
}

/// # Safety
///
/// As [`crate::Routine::try_copy`].
#[unsafe(naked)]
unsafe extern "sysv64" fn int64_nt(dst: *mut u8, src: *const u8, len: usize) -> usize {
    naked_asm!(
        "cmp rdx, 72",
        "jb {string}",
        "2: mov rax, qword ptr [rsi]",
        "mov qword ptr [rdi], rax",
        "mov rax, rdi",
        "neg rax",
        "and eax, 7",
        "add rdi, rax",
        "add rsi, rax",
        "sub rdx, rax",
        ".p2align 4",
        "3:",
        step!("movnti"),
        "add rsi, 64",
        "add rdi, 64",
        "sub rdx, 64",
        "cmp rdx, 64",
        "jae 3b",
        "4: sfence",
        "test rdx, rdx",
        "jnz {string}",
        "xor eax, eax",
        "ret",
        guarded!("2b", "4b", "{fence}"),
        string = sym string::rep_movsq,
        fence = sym tail::fence,
    )
}
