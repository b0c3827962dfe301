//! The copies that choose by length and alignment.
//!
//! ```text
//! auto-avx512:  less than 64 bytes        two words that overlap
//!               to 128, 256, 512          2, 4, 8 vectors, from both ends: all loaded, then all stored
//!               to LOOP_UNTIL             a vector as it lies, fours of vectors to aligned destinations, and
//!                                         the last four, which were loaded first
//!               to NT_FROM                rep movsb from a line of the destination on
//!               from there                streaming stores, as avx512-nt
//! auto-avx2:    the same with half the width, and no rep movsb: not every CPU with AVX2 is fast at it
//! auto-sse2:    the same with a quarter of the width
//! ```
//!
//! Departures:
//!
//! 1. Each is entered at its vectors: no test comes before the first load but the one for what is shorter than 64
//!    bytes.
//! 2. What the loop leaves, up to four vectors, was loaded before the loop's first store, so that the end needs no
//!    test. A fault there, before anything was stored, copies byte by byte from the beginning: exact, and slow only
//!    then.
//! 3. Where the same bytes are stored twice, by vectors that overlap, both stores come from loads of the same source.

use core::arch::naked_asm;

use super::{detect, string, tail, vector};
use crate::fault::guarded;
use crate::routine::{Entry, Isa, Overlap, Run};

/// Up to here vectors, from here on `rep movsb`, for AVX-512.
const LOOP_UNTIL: usize = 65536;

/// From here on the stores go past the caches.
const NT_FROM: usize = 4 << 20;

const fn entry(
    name: &'static str,
    summary: &'static str,
    needs: &'static str,
    available: fn() -> bool,
    run: Run,
) -> Entry {
    Entry { name, isa: Isa::X86_64, summary, needs, overlap: Overlap::Apart, available, run }
}

pub(super) const AUTO_SSE2: Entry = entry(
    "auto-sse2",
    "chooses by length and alignment, from what every x86-64 CPU has",
    "",
    || true,
    auto_sse2,
);
pub(super) const AUTO_AVX2: Entry = entry(
    "auto-avx2",
    "chooses by length and alignment, for CPUs with AVX2",
    "avx2",
    detect::avx2,
    auto_avx2,
);
pub(super) const AUTO_AVX512: Entry = entry(
    "auto-avx512",
    "chooses by length and alignment, for CPUs with AVX-512",
    vector::AVX512_NEEDS,
    detect::avx512,
    auto_avx512,
);

pub(crate) fn best() -> &'static Entry {
    if detect::avx512() {
        &AUTO_AVX512
    } else if detect::avx2() {
        &AUTO_AVX2
    } else {
        &AUTO_SSE2
    }
}

pub(crate) fn select(len: usize, _src: usize, _dst: usize) -> &'static Entry {
    if detect::avx512() {
        match len {
            0..=512 => &vector::AVX512,
            _ if len < LOOP_UNTIL => &vector::AVX512_ALIGNED,
            _ if len < NT_FROM => &string::REP_MOVSB_ALIGNED,
            _ => &vector::AVX512_NT,
        }
    } else if detect::avx2() {
        match len {
            0..=256 => &vector::AVX2,
            _ if len < NT_FROM => &vector::AVX2_ALIGNED,
            _ => &vector::AVX2_NT,
        }
    } else {
        match len {
            0..=128 => &vector::SSE2,
            _ if len < NT_FROM => &vector::SSE2_ALIGNED,
            _ => &vector::SSE2_NT,
        }
    }
}

/// All of it in registers, half from either end: two vectors, four, or eight.
macro_rules! two {
    ($mov:literal, $ptr:literal, $a:literal, $b:literal, $end:literal) => {
        concat!(
            loads!($mov, $ptr; "rsi" => $a, "rsi + rdx - {w}" => $b),
            stores!($mov, $ptr; $a => "rdi", $b => "rdi + rdx - {w}"),
            $end, "\nxor eax, eax\nret\n",
        )
    };
}

macro_rules! four {
    ($mov:literal, $ptr:literal, $a:literal, $b:literal, $c:literal, $d:literal, $end:literal) => {
        concat!(
            loads!($mov, $ptr; "rsi" => $a, "rsi + {w}" => $b,
                "rsi + rdx - 2 * {w}" => $c, "rsi + rdx - {w}" => $d),
            stores!($mov, $ptr; $a => "rdi", $b => "rdi + {w}",
                $c => "rdi + rdx - 2 * {w}", $d => "rdi + rdx - {w}"),
            $end, "\nxor eax, eax\nret\n",
        )
    };
}

macro_rules! eight {
    ($mov:literal, $ptr:literal, $a:literal, $b:literal, $c:literal, $d:literal,
     $e:literal, $f:literal, $g:literal, $h:literal, $end:literal) => {
        concat!(
            loads!($mov, $ptr; "rsi" => $a, "rsi + {w}" => $b, "rsi + 2 * {w}" => $c, "rsi + 3 * {w}" => $d,
                "rsi + rdx - 4 * {w}" => $e, "rsi + rdx - 3 * {w}" => $f,
                "rsi + rdx - 2 * {w}" => $g, "rsi + rdx - {w}" => $h),
            stores!($mov, $ptr; $a => "rdi", $b => "rdi + {w}", $c => "rdi + 2 * {w}", $d => "rdi + 3 * {w}",
                $e => "rdi + rdx - 4 * {w}", $f => "rdi + rdx - 3 * {w}",
                $g => "rdi + rdx - 2 * {w}", $h => "rdi + rdx - {w}"),
            $end, "\nxor eax, eax\nret\n",
        )
    };
}

/// More than eight vectors: one as it lies, fours to aligned destinations, the last four from registers.
macro_rules! many {
    ($mov:literal, $ptr:literal, $a:literal, $b:literal, $c:literal, $d:literal,
     $e:literal, $f:literal, $g:literal, $h:literal, $end:literal) => {
        concat!(
            loads!($mov, $ptr; "rsi" => $a, "rsi + rdx - 4 * {w}" => $e, "rsi + rdx - 3 * {w}" => $f,
                "rsi + rdx - 2 * {w}" => $g, "rsi + rdx - {w}" => $h),
            stores!($mov, $ptr; $a => "rdi"),
            "lea rcx, [rdi + rdx]\n",
            "mov rax, rdi\n",
            "neg rax\n",
            "and eax, {w} - 1\n",
            "add rdi, rax\n",
            "add rsi, rax\n",
            "sub rdx, rax\n",
            ".p2align 5\n",
            "30:\n",
            loads!($mov, $ptr; "rsi" => $a, "rsi + {w}" => $b, "rsi + 2 * {w}" => $c, "rsi + 3 * {w}" => $d),
            stores!($mov, $ptr; $a => "rdi", $b => "rdi + {w}", $c => "rdi + 2 * {w}", $d => "rdi + 3 * {w}"),
            "add rsi, 4 * {w}\n",
            "add rdi, 4 * {w}\n",
            "sub rdx, 4 * {w}\n",
            "cmp rdx, 4 * {w}\n",
            "ja 30b\n",
            stores!($mov, $ptr; $e => "rcx - 4 * {w}", $f => "rcx - 3 * {w}", $g => "rcx - 2 * {w}", $h => "rcx - {w}"),
            $end, "\nxor eax, eax\nret\n",
        )
    };
}

#[unsafe(naked)]
unsafe extern "sysv64" fn auto_avx512(dst: *mut u8, src: *const u8, len: usize) -> usize {
    naked_asm!(
        "cmp rdx, 64",
        "jb {small}",
        "2: cmp rdx, 2 * {w}",
        "ja 3f",
        two!("vmovdqu64", "zmmword ptr", "zmm16", "zmm17", ""),
        ".p2align 4",
        "3: cmp rdx, 4 * {w}",
        "ja 4f",
        four!("vmovdqu64", "zmmword ptr", "zmm16", "zmm17", "zmm18", "zmm19", ""),
        ".p2align 4",
        "4: cmp rdx, 8 * {w}",
        "ja 5f",
        eight!("vmovdqu64", "zmmword ptr", "zmm16", "zmm17", "zmm18", "zmm19", "zmm20", "zmm21", "zmm22", "zmm23", ""),
        ".p2align 4",
        "5: cmp rdx, {loop_until}",
        "jae 6f",
        many!("vmovdqu64", "zmmword ptr", "zmm16", "zmm17", "zmm18", "zmm19", "zmm20", "zmm21", "zmm22", "zmm23", ""),
        "6: cmp rdx, {nt_from}",
        "jae {nt}",
        "jmp {string}",
        guarded!("2b", "6b", "{bytes}"),
        w = const 64,
        loop_until = const LOOP_UNTIL,
        nt_from = const NT_FROM,
        small = sym tail::small,
        string = sym string::rep_movsb_aligned,
        nt = sym vector::avx512_nt,
        bytes = sym tail::bytes,
    )
}

#[unsafe(naked)]
unsafe extern "sysv64" fn auto_avx2(dst: *mut u8, src: *const u8, len: usize) -> usize {
    naked_asm!(
        "cmp rdx, 64",
        "jb {small}",
        "2: cmp rdx, 4 * {w}",
        "ja 4f",
        four!("vmovdqu", "ymmword ptr", "ymm0", "ymm1", "ymm2", "ymm3", "vzeroupper"),
        ".p2align 4",
        "4: cmp rdx, 8 * {w}",
        "ja 5f",
        eight!("vmovdqu", "ymmword ptr", "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "vzeroupper"),
        ".p2align 4",
        "5: cmp rdx, {nt_from}",
        "jae {nt}",
        many!("vmovdqu", "ymmword ptr", "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "vzeroupper"),
        "6:",
        guarded!("2b", "6b", "{bytes}"),
        w = const 32,
        nt_from = const NT_FROM,
        small = sym tail::small,
        nt = sym vector::avx2_nt,
        bytes = sym tail::vex,
    )
}

#[unsafe(naked)]
unsafe extern "sysv64" fn auto_sse2(dst: *mut u8, src: *const u8, len: usize) -> usize {
    naked_asm!(
        "cmp rdx, 64",
        "jb {small}",
        "2: cmp rdx, 8 * {w}",
        "ja 5f",
        eight!("movups", "xmmword ptr", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", ""),
        ".p2align 4",
        "5: cmp rdx, {nt_from}",
        "jae {nt}",
        many!("movups", "xmmword ptr", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", ""),
        "6:",
        guarded!("2b", "6b", "{bytes}"),
        w = const 16,
        nt_from = const NT_FROM,
        small = sym tail::small,
        nt = sym vector::sse2_nt,
        bytes = sym tail::bytes,
    )
}
