//! Copies by vector registers: SSE2, AVX2 and AVX-512, each plain, with an aligned destination, and streaming.
//!
//! ```text
//! W = 16, 32 or 64 bytes
//! sse2, avx2, avx512:   if len < W: two words that overlap
//!                       while len >= 4 W: load 4 vectors, store 4 vectors
//!                       while len > W: a vector
//!                       the vector that ends where the copy ends
//! …-aligned:            a vector as it lies, then the same from the next multiple of W in the destination
//! …-nt:                 as …-aligned; the stores of four vectors go past the caches, and a fence follows them
//! ```
//!
//! Departures:
//!
//! 1. The last vector overlaps what was stored before it, so that no byte loop is needed. Source and destination have
//!    to be apart.
//! 2. AVX-512 takes `zmm16`…`zmm31`, which have no half that SSE code could wait for: no `vzeroupper`.
//! 3. Streaming stores have to be aligned, so there is no `…-nt` that isn't. What is shorter than four vectors is
//!    stored plainly.

use core::arch::naked_asm;

use super::{detect, tail};
use crate::fault::guarded;
use crate::routine::{Entry, Isa, Overlap, Run};

const fn entry(
    name: &'static str,
    summary: &'static str,
    needs: &'static str,
    available: fn() -> bool,
    run: Run,
) -> Entry {
    Entry { name, isa: Isa::X86_64, summary, needs, overlap: Overlap::Apart, available, run }
}

fn always() -> bool {
    true
}

pub(super) const AVX512_NEEDS: &str = "avx512f avx512bw avx512vl";

pub(super) const SSE2: Entry = entry("sse2", "16-byte vectors as they lie", "", always, sse2);
pub(super) const SSE2_ALIGNED: Entry =
    entry("sse2-aligned", "16-byte vectors, aligned in the destination", "", always, sse2_aligned);
pub(super) const SSE2_NT: Entry = entry(
    "sse2-nt",
    "16-byte vectors past the caches; for what nobody reads soon, and is larger than the caches",
    "",
    always,
    sse2_nt,
);
pub(super) const AVX2: Entry = entry("avx2", "32-byte vectors as they lie", "avx2", detect::avx2, avx2);
pub(super) const AVX2_ALIGNED: Entry =
    entry("avx2-aligned", "32-byte vectors, aligned in the destination", "avx2", detect::avx2, avx2_aligned);
pub(super) const AVX2_NT: Entry = entry(
    "avx2-nt",
    "32-byte vectors past the caches; for what nobody reads soon, and is larger than the caches",
    "avx2",
    detect::avx2,
    avx2_nt,
);
pub(super) const AVX512: Entry = entry(
    "avx512",
    "64-byte vectors as they lie: best where the ends are aligned",
    AVX512_NEEDS,
    detect::avx512,
    avx512,
);
pub(super) const AVX512_ALIGNED: Entry = entry(
    "avx512-aligned",
    "64-byte vectors, aligned in the destination: best for misaligned copies in the first cache",
    AVX512_NEEDS,
    detect::avx512,
    avx512_aligned,
);
pub(super) const AVX512_NT: Entry = entry(
    "avx512-nt",
    "64-byte vectors past the caches; for what nobody reads soon, and is larger than the caches",
    AVX512_NEEDS,
    detect::avx512,
    avx512_nt,
);

/// A vector to the front, and on to the next multiple of its width behind the begin of the destination.
macro_rules! to_alignment {
    ($mov:literal, $ptr:literal, $a:literal) => {
        concat!(
            loads!($mov, $ptr; "rsi" => $a),
            stores!($mov, $ptr; $a => "rdi"),
            "mov rax, rdi\n",
            "or rax, -{w}\n",
            "neg rax\n",
            "add rdi, rax\n",
            "add rsi, rax\n",
            "sub rdx, rax\n",
        )
    };
}

/// The loop over four vectors, stored by `$store`; leaves less than that.
macro_rules! fours {
    ($mov:literal, $store:literal, $ptr:literal, $a:literal, $b:literal, $c:literal, $d:literal) => {
        concat!(
            "cmp rdx, 4 * {w}\n",
            "jb 4f\n",
            ".p2align 5\n",
            "3:\n",
            loads!($mov, $ptr; "rsi" => $a, "rsi + {w}" => $b, "rsi + 2 * {w}" => $c, "rsi + 3 * {w}" => $d),
            stores!($store, $ptr; $a => "rdi", $b => "rdi + {w}", $c => "rdi + 2 * {w}", $d => "rdi + 3 * {w}"),
            "add rsi, 4 * {w}\n",
            "add rdi, 4 * {w}\n",
            "sub rdx, 4 * {w}\n",
            "cmp rdx, 4 * {w}\n",
            "jae 3b\n",
            "4:\n",
        )
    };
}

/// Less than four vectors, of which the last ends where the copy ends; one was copied before it, or all of it is left.
macro_rules! rest {
    ($mov:literal, $ptr:literal, $a:literal, $end:literal) => {
        concat!(
            "5: cmp rdx, {w}\n",
            "jbe 6f\n",
            loads!($mov, $ptr; "rsi" => $a),
            stores!($mov, $ptr; $a => "rdi"),
            "add rsi, {w}\n",
            "add rdi, {w}\n",
            "sub rdx, {w}\n",
            "jmp 5b\n",
            "6: test rdx, rdx\n",
            "jz 8f\n",
            loads!($mov, $ptr; "rsi + rdx - {w}" => $a),
            stores!($mov, $ptr; $a => "rdi + rdx - {w}"),
            concat!("8: ", $end, "\n"),
            "xor eax, eax\n",
            "7: ret\n",
        )
    };
}

macro_rules! routines {
    ($plain:ident, $aligned:ident, $nt:ident, $w:literal, $mov:literal, $stream:literal, $ptr:literal,
     $a:literal, $b:literal, $c:literal, $d:literal, $end:literal, $bytes:path, $fence:path) => {
        /// # Safety
        ///
        /// As [`crate::Routine::try_copy`], on a CPU with these registers, which the entry's `available` asks.
        #[unsafe(naked)]
        pub(super) unsafe extern "sysv64" fn $plain(dst: *mut u8, src: *const u8, len: usize) -> usize {
            naked_asm!(
                "cmp rdx, {w}",
                "jb {small}",
                "2:",
                fours!($mov, $mov, $ptr, $a, $b, $c, $d),
                rest!($mov, $ptr, $a, $end),
                guarded!("2b", "7b", "{bytes}"),
                w = const $w,
                small = sym tail::small,
                bytes = sym $bytes,
            )
        }

        /// # Safety
        ///
        /// As [`crate::Routine::try_copy`], on a CPU with these registers, which the entry's `available` asks.
        #[unsafe(naked)]
        pub(super) unsafe extern "sysv64" fn $aligned(dst: *mut u8, src: *const u8, len: usize) -> usize {
            naked_asm!(
                "cmp rdx, {w}",
                "jb {small}",
                "2:",
                to_alignment!($mov, $ptr, $a),
                fours!($mov, $mov, $ptr, $a, $b, $c, $d),
                rest!($mov, $ptr, $a, $end),
                guarded!("2b", "7b", "{bytes}"),
                w = const $w,
                small = sym tail::small,
                bytes = sym $bytes,
            )
        }

        /// # Safety
        ///
        /// As [`crate::Routine::try_copy`], on a CPU with these registers, which the entry's `available` asks.
        #[unsafe(naked)]
        pub(super) unsafe extern "sysv64" fn $nt(dst: *mut u8, src: *const u8, len: usize) -> usize {
            naked_asm!(
                "cmp rdx, {w}",
                "jb {small}",
                "2:",
                to_alignment!($mov, $ptr, $a),
                fours!($mov, $stream, $ptr, $a, $b, $c, $d),
                "sfence",
                rest!($mov, $ptr, $a, $end),
                guarded!("2b", "7b", "{fence}"),
                w = const $w,
                small = sym tail::small,
                fence = sym $fence,
            )
        }
    };
}

routines!(
    sse2,
    sse2_aligned,
    sse2_nt,
    16,
    "movups",
    "movntps",
    "xmmword ptr",
    "xmm0",
    "xmm1",
    "xmm2",
    "xmm3",
    "",
    tail::bytes,
    tail::fence
);
routines!(
    avx2,
    avx2_aligned,
    avx2_nt,
    32,
    "vmovdqu",
    "vmovntdq",
    "ymmword ptr",
    "ymm0",
    "ymm1",
    "ymm2",
    "ymm3",
    "vzeroupper",
    tail::vex,
    tail::vex_fence
);
routines!(
    avx512,
    avx512_aligned,
    avx512_nt,
    64,
    "vmovdqu64",
    "vmovntdq",
    "zmmword ptr",
    "zmm16",
    "zmm17",
    "zmm18",
    "zmm19",
    "",
    tail::bytes,
    tail::fence
);
