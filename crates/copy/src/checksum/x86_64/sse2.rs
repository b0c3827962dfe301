//! Sums in the 16-byte registers that every x86-64 has.
//!
//! ```text
//! while left >= 64: for each vector v of the block: total += v; high += v >> 32      in 64-bit lanes
//! sum = the lanes of (total - (high << 32)) + high
//! the rest by words and bytes
//! ```
//!
//! 1. A 64-bit lane must not overflow, so what is summed are 32-bit halves. The low ones need no mask: `total` wraps, but
//!    `total - (high << 32)` modulo 2^64 is their sum, which is below 2^64. That is three operations a vector, not four (and
//!    none of them a shuffle).
//! 2. The loads of a block come before its stores, and the sums after them: whatever faults, they are of what was copied.

use core::arch::naked_asm;

use super::tail;
use crate::checksum::routine::{Entry, Raw};
use crate::fault::guarded;
use crate::routine::Isa;

pub(super) const ENTRY: Entry = Entry {
    name: "sse2",
    isa: Isa::X86_64,
    summary: "16-byte registers, 32-bit halves in 64-bit lanes",
    needs: "",
    available: || true,
    sum,
    copy,
};

/// Adds `xmm0`…`xmm3` to the accumulators: `xmm4` and `xmm6` total, `xmm5` and `xmm7` high.
macro_rules! accumulate {
    () => {
        concat!(
            "paddq xmm4, xmm0\npsrlq xmm0, 32\npaddq xmm5, xmm0\n",
            "paddq xmm6, xmm1\npsrlq xmm1, 32\npaddq xmm7, xmm1\n",
            "paddq xmm4, xmm2\npsrlq xmm2, 32\npaddq xmm5, xmm2\n",
            "paddq xmm6, xmm3\npsrlq xmm3, 32\npaddq xmm7, xmm3\n",
        )
    };
}

/// `r8` = the sum of the accumulators.
macro_rules! reduce {
    () => {
        concat!(
            "paddq xmm4, xmm6\npaddq xmm5, xmm7\n",
            "movdqa xmm0, xmm5\npsllq xmm0, 32\npsubq xmm4, xmm0\npaddq xmm4, xmm5\n",
            "pshufd xmm0, xmm4, 0x4e\npaddq xmm4, xmm0\nmovq r8, xmm4\n",
        )
    };
}

/// # Safety
///
/// As [`crate::checksum::SumRoutine::try_copy`].
#[unsafe(naked)]
unsafe extern "sysv64" fn copy(dst: *mut u8, src: *const u8, len: usize) -> Raw {
    naked_asm!(
        "xor r8d, r8d",
        "xor ecx, ecx",
        "cmp rdx, 64",
        "jb {words}",
        "pxor xmm4, xmm4",
        "pxor xmm5, xmm5",
        "pxor xmm6, xmm6",
        "pxor xmm7, xmm7",
        "sub rdx, 64",
        ".p2align 5",
        "2: movdqu xmm0, [rsi]",
        "movdqu xmm1, [rsi + 16]",
        "movdqu xmm2, [rsi + 32]",
        "movdqu xmm3, [rsi + 48]",
        "movdqu [rdi], xmm0",
        "movdqu [rdi + 16], xmm1",
        "movdqu [rdi + 32], xmm2",
        "movdqu [rdi + 48], xmm3",
        "3:",
        accumulate!(),
        "add rsi, 64",
        "add rdi, 64",
        "sub rdx, 64",
        "jae 2b",
        reduce!(),
        "add rdx, 64",
        "jmp {words}",
        "6:",
        reduce!(),
        "add rdx, 64",
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
        "cmp rsi, 64",
        "jb {words}",
        "pxor xmm4, xmm4",
        "pxor xmm5, xmm5",
        "pxor xmm6, xmm6",
        "pxor xmm7, xmm7",
        "sub rsi, 64",
        ".p2align 5",
        "2: movdqu xmm0, [rdi]",
        "movdqu xmm1, [rdi + 16]",
        "movdqu xmm2, [rdi + 32]",
        "movdqu xmm3, [rdi + 48]",
        "3:",
        accumulate!(),
        "add rdi, 64",
        "sub rsi, 64",
        "jae 2b",
        reduce!(),
        "add rsi, 64",
        "jmp {words}",
        "6:",
        reduce!(),
        "add rsi, 64",
        "jmp {bytes}",
        guarded!("2b", "3b", "6b"),
        words = sym tail::sum_words,
        bytes = sym tail::sum_bytes,
    )
}
