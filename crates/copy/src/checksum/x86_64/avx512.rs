//! Sums in the 64-byte registers of AVX-512.
//!
//! ```text
//! if len >= 256 and dst is misaligned: go back to where dst is aligned; one vector of which only what belongs is copied
//! while left >= 256, then 64: for each vector v of the block: total += v; high += v >> 32      as in sse2
//! one vector of which only `left` bytes are copied
//! sum = the lanes of (total - (high << 32)) + high; if dst was odd: its bytes swapped
//! ```
//!
//! 1. The first and the last vector are masked: bytes that don't belong are neither loaded nor stored (a masked load does
//!    not fault for them, SDM vol. 1 §15.6), and count as zeros.
//! 2. Stores that straddle cache lines cost a third of the speed, so that long copies align the destination. Behind the
//!    first, masked vector every byte then counts where it stands in its aligned word, and at the end the sum is rotated by
//!    a byte if the destination began at an odd address.
//! 3. A long copy asks for the lines it is going to store (`prefetchw`), which the CPU fetches late by itself; never for one
//!    beyond the end, which may be somebody else's.
//! 4. Only registers 16 to 31 are used: they don't make the upper halves of the lower ones dirty, so that no `vzeroupper` is
//!    needed.

#![expect(clippy::too_many_lines, reason = "one instruction a line")]

use core::arch::naked_asm;

use super::tail;
use crate::arch::machine::detect;
use crate::checksum::routine::{Entry, Raw};
use crate::fault::guarded;
use crate::routine::Isa;

pub(super) const ENTRY: Entry = Entry {
    name: "avx512",
    isa: Isa::X86_64,
    summary: "64-byte registers, destination aligned, 32-bit halves in 64-bit lanes",
    needs: "avx512f avx512bw avx512vl",
    available: detect::avx512,
    sum,
    copy,
};

/// From how many bytes what is stored is fetched ahead: where both ends together leave the first-level cache (48 KiB here).
/// Below, the hints only cost (7 % at 8 KiB).
pub(super) const PREFETCH_FROM: usize = 32 << 10;

/// How far ahead. Against the plain copy, 64 KiB / 256 KiB / 1 MiB: without 0.93 / 0.88 / 0.80 of its speed, 1 KiB ahead 0.94
/// / 0.92 / 0.90, 2 KiB 0.94 / 0.94 / 0.93, 4 KiB 0.87 / 0.92 / 0.80; fetching the source ahead too is never better.
pub(super) const PREFETCH_AHEAD: usize = 2 << 10;

/// Adds `zmm16` to the accumulators: `zmm20` total, `zmm21` high.
macro_rules! accumulate_one {
    () => {
        "vpaddq zmm20, zmm20, zmm16\nvpsrlq zmm16, zmm16, 32\nvpaddq zmm21, zmm21, zmm16\n"
    };
}

/// Adds `zmm16`…`zmm19` to the accumulators: `zmm20` total, `zmm21` high.
macro_rules! accumulate {
    () => {
        concat!(
            "vpaddq zmm20, zmm20, zmm16\nvpsrlq zmm16, zmm16, 32\nvpaddq zmm21, zmm21, zmm16\n",
            "vpaddq zmm20, zmm20, zmm17\nvpsrlq zmm17, zmm17, 32\nvpaddq zmm21, zmm21, zmm17\n",
            "vpaddq zmm20, zmm20, zmm18\nvpsrlq zmm18, zmm18, 32\nvpaddq zmm21, zmm21, zmm18\n",
            "vpaddq zmm20, zmm20, zmm19\nvpsrlq zmm19, zmm19, 32\nvpaddq zmm21, zmm21, zmm19\n",
        )
    };
}

/// `r8` = the sum of the accumulators.
macro_rules! reduce {
    () => {
        concat!(
            "vpsllq zmm16, zmm21, 32\nvpsubq zmm20, zmm20, zmm16\nvpaddq zmm20, zmm20, zmm21\n",
            "vextracti64x4 ymm16, zmm20, 1\nvpaddq ymm20, ymm20, ymm16\n",
            "vextracti32x4 xmm16, ymm20, 1\nvpaddq xmm20, xmm20, xmm16\n",
            "vpshufd xmm16, xmm20, 0x4e\nvpaddq xmm20, xmm20, xmm16\nvmovq r8, xmm20\n",
        )
    };
}

/// # Safety
///
/// As [`crate::checksum::SumRoutine::try_copy`], on a CPU with AVX-512, which the entry's `available` asks.
#[unsafe(naked)]
unsafe extern "sysv64" fn copy(dst: *mut u8, src: *const u8, len: usize) -> Raw {
    naked_asm!(
        "xor ecx, ecx",
        "vpxord zmm20, zmm20, zmm20",
        "vpxord zmm21, zmm21, zmm21",
        "cmp rdx, {align_from}",
        "jb 4f",
        "mov eax, edi",
        "neg eax",
        "and eax, 63",
        "jz 4f",
        "xor r10d, r10d",
        "bts r10, rax",
        "dec r10",
        "kmovq k1, r10",
        "2: vmovdqu8 zmm16 {{k1}} {{z}}, [rsi]",
        "vmovdqu8 [rdi] {{k1}}, zmm16",
        "3: lea ecx, [8 * rax]",
        "and ecx, 8",
        "vpbroadcastq zmm17, rcx",
        "vprolvq zmm16, zmm16, zmm17",
        accumulate_one!(),
        "add rsi, rax",
        "add rdi, rax",
        "sub rdx, rax",
        "4: sub rdx, 256",
        "jb 5f",
        "cmp rdx, {prefetch_from}",
        "jb 22f",
        ".p2align 5",
        "32: vmovdqu64 zmm16, [rsi]",
        "vmovdqu64 zmm17, [rsi + 64]",
        "vmovdqu64 zmm18, [rsi + 128]",
        "vmovdqu64 zmm19, [rsi + 192]",
        "vmovdqu64 [rdi], zmm16",
        "vmovdqu64 [rdi + 64], zmm17",
        "vmovdqu64 [rdi + 128], zmm18",
        "vmovdqu64 [rdi + 192], zmm19",
        "33:",
        accumulate!(),
        "add rsi, 256",
        "add rdi, 256",
        "prefetchw [rdi + {ahead}]",
        "prefetchw [rdi + {ahead} + 64]",
        "prefetchw [rdi + {ahead} + 128]",
        "prefetchw [rdi + {ahead} + 192]",
        "sub rdx, 256",
        "cmp rdx, {ahead}",
        "jae 32b",
        "jmp 22f",
        ".p2align 5",
        "22: vmovdqu64 zmm16, [rsi]",
        "vmovdqu64 zmm17, [rsi + 64]",
        "vmovdqu64 zmm18, [rsi + 128]",
        "vmovdqu64 zmm19, [rsi + 192]",
        "vmovdqu64 [rdi], zmm16",
        "vmovdqu64 [rdi + 64], zmm17",
        "vmovdqu64 [rdi + 128], zmm18",
        "vmovdqu64 [rdi + 192], zmm19",
        "23:",
        accumulate!(),
        "add rsi, 256",
        "add rdi, 256",
        "sub rdx, 256",
        "jae 22b",
        "5: add rdx, 192",
        "jl 6f",
        "24: vmovdqu64 zmm16, [rsi]",
        "vmovdqu64 [rdi], zmm16",
        "25:",
        accumulate_one!(),
        "add rsi, 64",
        "add rdi, 64",
        "sub rdx, 64",
        "jge 24b",
        "6: add rdx, 64",
        "jz 7f",
        "xor eax, eax",
        "bts rax, rdx",
        "dec rax",
        "kmovq k1, rax",
        "26: vmovdqu8 zmm16 {{k1}} {{z}}, [rsi]",
        "vmovdqu8 [rdi] {{k1}}, zmm16",
        "27:",
        accumulate_one!(),
        "7:",
        reduce!(),
        "rol r8, cl",
        "xor eax, eax",
        "mov rdx, r8",
        "ret",
        "8: xor r8d, r8d", // nothing is copied yet
        "jmp {bytes}",
        "28: add rdx, 192",
        "29: add rdx, 64",
        "9:",
        reduce!(),
        "jmp {bytes}",
        guarded!("2b", "3b", "8b"),
        guarded!("32b", "33b", "28b"),
        guarded!("22b", "23b", "28b"),
        guarded!("24b", "25b", "29b"),
        guarded!("26b", "27b", "9b"),
        ahead = const PREFETCH_AHEAD,
        prefetch_from = const PREFETCH_FROM,
        align_from = const super::ALIGN_FROM,
        bytes = sym tail::copy_bytes,
    )
}

/// # Safety
///
/// As [`crate::checksum::SumRoutine::try_sum`], on a CPU with AVX-512, which the entry's `available` asks.
#[unsafe(naked)]
unsafe extern "sysv64" fn sum(src: *const u8, len: usize) -> Raw {
    naked_asm!(
        "xor ecx, ecx",
        "vpxord zmm20, zmm20, zmm20",
        "vpxord zmm21, zmm21, zmm21",
        "sub rsi, 256",
        "jb 5f",
        ".p2align 5",
        "22: vmovdqu64 zmm16, [rdi]",
        "vmovdqu64 zmm17, [rdi + 64]",
        "vmovdqu64 zmm18, [rdi + 128]",
        "vmovdqu64 zmm19, [rdi + 192]",
        "23:",
        accumulate!(),
        "add rdi, 256",
        "sub rsi, 256",
        "jae 22b",
        "5: add rsi, 192",
        "jl 6f",
        "24: vmovdqu64 zmm16, [rdi]",
        "25:",
        accumulate_one!(),
        "add rdi, 64",
        "sub rsi, 64",
        "jge 24b",
        "6: add rsi, 64",
        "jz 7f",
        "xor eax, eax",
        "bts rax, rsi",
        "dec rax",
        "kmovq k1, rax",
        "26: vmovdqu8 zmm16 {{k1}} {{z}}, [rdi]",
        "27:",
        accumulate_one!(),
        "7:",
        reduce!(),
        "xor eax, eax",
        "mov rdx, r8",
        "ret",
        "28: add rsi, 192",
        "29: add rsi, 64",
        "9:",
        reduce!(),
        "jmp {bytes}",
        guarded!("22b", "23b", "28b"),
        guarded!("24b", "25b", "29b"),
        guarded!("26b", "27b", "9b"),
        bytes = sym tail::sum_bytes,
    )
}
