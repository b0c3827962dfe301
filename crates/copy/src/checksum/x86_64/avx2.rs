//! Sums in the 32-byte registers of AVX2.
//!
//! As [`super::sse2`], in blocks of 128 bytes, then of 32. The upper halves of the registers are cleared before the tail
//! (`vzeroupper`), so that SSE code behind it pays no penalty.

use core::arch::naked_asm;

use super::tail;
use crate::arch::machine::detect;
use crate::checksum::routine::{Entry, Raw};
use crate::fault::guarded;
use crate::routine::Isa;

pub(super) const ENTRY: Entry = Entry {
    name: "avx2",
    isa: Isa::X86_64,
    summary: "32-byte registers, 32-bit halves in 64-bit lanes",
    needs: "avx2",
    available: detect::avx2,
    sum,
    copy,
};

/// Adds `ymm0` to the accumulators, by `ymm8`: `ymm4` total, `ymm5` high.
macro_rules! accumulate_one {
    () => {
        "vpaddq ymm4, ymm4, ymm0\nvpsrlq ymm8, ymm0, 32\nvpaddq ymm5, ymm5, ymm8\n"
    };
}

/// Adds `ymm0`…`ymm3` to the accumulators: `ymm4` and `ymm6` total, `ymm5` and `ymm7` high.
macro_rules! accumulate {
    () => {
        concat!(
            "vpaddq ymm4, ymm4, ymm0\nvpsrlq ymm0, ymm0, 32\nvpaddq ymm5, ymm5, ymm0\n",
            "vpaddq ymm6, ymm6, ymm1\nvpsrlq ymm1, ymm1, 32\nvpaddq ymm7, ymm7, ymm1\n",
            "vpaddq ymm4, ymm4, ymm2\nvpsrlq ymm2, ymm2, 32\nvpaddq ymm5, ymm5, ymm2\n",
            "vpaddq ymm6, ymm6, ymm3\nvpsrlq ymm3, ymm3, 32\nvpaddq ymm7, ymm7, ymm3\n",
        )
    };
}

/// `r8` = the sum of the accumulators.
macro_rules! reduce {
    () => {
        concat!(
            "vpaddq ymm4, ymm4, ymm6\nvpaddq ymm5, ymm5, ymm7\n",
            "vpsllq ymm0, ymm5, 32\nvpsubq ymm4, ymm4, ymm0\nvpaddq ymm4, ymm4, ymm5\n",
            "vextracti128 xmm0, ymm4, 1\nvpaddq xmm4, xmm4, xmm0\n",
            "vpshufd xmm0, xmm4, 0x4e\nvpaddq xmm4, xmm4, xmm0\nvmovq r8, xmm4\nvzeroupper\n",
        )
    };
}

/// # Safety
///
/// As [`crate::checksum::SumRoutine::try_copy`], on a CPU with AVX2, which the entry's `available` asks.
#[unsafe(naked)]
unsafe extern "sysv64" fn copy(dst: *mut u8, src: *const u8, len: usize) -> Raw {
    naked_asm!(
        "xor r8d, r8d",
        "xor ecx, ecx",
        "cmp rdx, 32",
        "jb {words}",
        "vpxor xmm4, xmm4, xmm4",
        "vpxor xmm5, xmm5, xmm5",
        "vpxor xmm6, xmm6, xmm6",
        "vpxor xmm7, xmm7, xmm7",
        "sub rdx, 128",
        "jb 5f",
        ".p2align 5",
        "2: vmovdqu ymm0, [rsi]",
        "vmovdqu ymm1, [rsi + 32]",
        "vmovdqu ymm2, [rsi + 64]",
        "vmovdqu ymm3, [rsi + 96]",
        "vmovdqu [rdi], ymm0",
        "vmovdqu [rdi + 32], ymm1",
        "vmovdqu [rdi + 64], ymm2",
        "vmovdqu [rdi + 96], ymm3",
        "3:",
        accumulate!(),
        "add rsi, 128",
        "add rdi, 128",
        "sub rdx, 128",
        "jae 2b",
        "5: add rdx, 96",
        "jl 7f",
        "22: vmovdqu ymm0, [rsi]",
        "vmovdqu [rdi], ymm0",
        "23:",
        accumulate_one!(),
        "add rsi, 32",
        "add rdi, 32",
        "sub rdx, 32",
        "jge 22b",
        "7:",
        reduce!(),
        "add rdx, 32",
        "jmp {words}",
        "6: add rdx, 96",
        "8:",
        reduce!(),
        "add rdx, 32",
        "jmp {bytes}",
        guarded!("2b", "3b", "6b"),
        guarded!("22b", "23b", "8b"),
        words = sym tail::copy_words,
        bytes = sym tail::copy_bytes,
    )
}

/// # Safety
///
/// As [`crate::checksum::SumRoutine::try_sum`], on a CPU with AVX2, which the entry's `available` asks.
#[unsafe(naked)]
unsafe extern "sysv64" fn sum(src: *const u8, len: usize) -> Raw {
    naked_asm!(
        "xor r8d, r8d",
        "xor ecx, ecx",
        "cmp rsi, 32",
        "jb {words}",
        "vpxor xmm4, xmm4, xmm4",
        "vpxor xmm5, xmm5, xmm5",
        "vpxor xmm6, xmm6, xmm6",
        "vpxor xmm7, xmm7, xmm7",
        "sub rsi, 128",
        "jb 5f",
        ".p2align 5",
        "2: vmovdqu ymm0, [rdi]",
        "vmovdqu ymm1, [rdi + 32]",
        "vmovdqu ymm2, [rdi + 64]",
        "vmovdqu ymm3, [rdi + 96]",
        "3:",
        accumulate!(),
        "add rdi, 128",
        "sub rsi, 128",
        "jae 2b",
        "5: add rsi, 96",
        "jl 7f",
        "22: vmovdqu ymm0, [rdi]",
        "23:",
        accumulate_one!(),
        "add rdi, 32",
        "sub rsi, 32",
        "jge 22b",
        "7:",
        reduce!(),
        "add rsi, 32",
        "jmp {words}",
        "6: add rsi, 96",
        "8:",
        reduce!(),
        "add rsi, 32",
        "jmp {bytes}",
        guarded!("2b", "3b", "6b"),
        guarded!("22b", "23b", "8b"),
        words = sym tail::sum_words,
        bytes = sym tail::sum_bytes,
    )
}
