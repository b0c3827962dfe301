//! Sums in the integer registers, by add-with-carry.
//!
//! ```text
//! while left >= 64: t = the words of the block, one's complement; sum += t
//! the rest by words and bytes
//! ```
//!
//! 1. A block is a chain of its own that begins with an `add`: it does not wait for the carry of the one before, so that two
//!    blocks' chains overlap, and a block that faults leaves the sum as it was. In blocks of 32 bytes a copy was at 5 bytes a
//!    cycle, in blocks of 64, with the loop aligned, at twice that.
//! 2. The carry out of the chain goes into `sum` with the block: `adc sum, t; adc sum, 0` cannot carry twice.

use core::arch::naked_asm;

use super::tail;
use crate::checksum::routine::{Entry, Raw};
use crate::fault::guarded;
use crate::routine::Isa;

pub(super) const ENTRY: Entry = Entry {
    name: "adc64",
    isa: Isa::X86_64,
    summary: "64-bit integer registers, add with carry; the best below 100 bytes without AVX-512",
    needs: "",
    available: || true,
    sum,
    copy,
};

/// # Safety
///
/// As [`crate::checksum::SumRoutine::try_copy`].
#[unsafe(naked)]
unsafe extern "sysv64" fn copy(dst: *mut u8, src: *const u8, len: usize) -> Raw {
    naked_asm!(
        "xor r8d, r8d",
        "sub rdx, 64",
        "jb 5f",
        "push rbx",
        "push rbp",
        "push r12",
        ".p2align 5",
        "2: mov rax, [rsi]",
        "mov rcx, [rsi + 8]",
        "mov r9, [rsi + 16]",
        "mov r10, [rsi + 24]",
        "mov r11, [rsi + 32]",
        "mov rbx, [rsi + 40]",
        "mov rbp, [rsi + 48]",
        "mov r12, [rsi + 56]",
        "mov [rdi], rax",
        "mov [rdi + 8], rcx",
        "mov [rdi + 16], r9",
        "mov [rdi + 24], r10",
        "mov [rdi + 32], r11",
        "mov [rdi + 40], rbx",
        "mov [rdi + 48], rbp",
        "mov [rdi + 56], r12",
        "3: add rax, rcx",
        "adc rax, r9",
        "adc rax, r10",
        "adc rax, r11",
        "adc rax, rbx",
        "adc rax, rbp",
        "adc rax, r12",
        "adc r8, rax",
        "adc r8, 0",
        "add rsi, 64",
        "add rdi, 64",
        "sub rdx, 64",
        "jae 2b",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "5: add rdx, 64",
        "xor ecx, ecx",
        "jmp {words}",
        "6: pop r12",
        "pop rbp",
        "pop rbx",
        "add rdx, 64",
        "xor ecx, ecx",
        "jmp {bytes}",
        guarded!("2b", "3b", "6b"),
        words = sym tail::copy_words,
        bytes = sym tail::copy_bytes,
    )
}

/// # Safety
///
/// As [`crate::checksum::SumRoutine::try_sum`].
#[unsafe(naked)]
unsafe extern "sysv64" fn sum(src: *const u8, len: usize) -> Raw {
    naked_asm!(
        "xor r8d, r8d",
        "xor ecx, ecx",
        "sub rsi, 64",
        "jb 5f",
        ".p2align 5",
        "2: mov rax, [rdi]",
        "add rax, [rdi + 8]",
        "adc rax, [rdi + 16]",
        "adc rax, [rdi + 24]",
        "adc rax, [rdi + 32]",
        "adc rax, [rdi + 40]",
        "adc rax, [rdi + 48]",
        "adc rax, [rdi + 56]",
        "3: adc r8, rax",
        "adc r8, 0",
        "add rdi, 64",
        "sub rsi, 64",
        "jae 2b",
        "5: add rsi, 64",
        "jmp {words}",
        "6: add rsi, 64",
        "jmp {bytes}",
        guarded!("2b", "3b", "6b"),
        words = sym tail::sum_words,
        bytes = sym tail::sum_bytes,
    )
}
