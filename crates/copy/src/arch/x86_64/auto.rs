//! The copies that choose by length and alignment.
//!
//! ```text
//! auto-avx512:  less than 64 bytes        two words, or vectors, that overlap
//!               to 128, 192, 256          2, 3, 4 vectors, from both ends: all loaded, then all stored
//!               to 512                    8, where the destination begins a line
//!               to PAIRS_UNTIL            a vector as it lies, pairs of vectors to aligned destinations, and the last pair
//!               to STRING_FROM            a vector as it lies, fours of vectors to aligned destinations, a pair, and the
//!                                         last pair; from LOOP_UNTIL on, rep movsb if the ends lie badly for that
//!               to NT_FROM                rep movsb from a line of the destination on
//!               from there                streaming stores, as avx512-nt
//! auto-avx2:    the same with half the width, and no rep movsb: not every CPU with AVX2 is fast at it
//! auto-sse2:    the same with a quarter of the width
//! ```
//!
//! Departures:
//!
//! 1. Short copies come first: there are two tests before the loads of what has 64 to 128 bytes, and one more for each
//!    step up.
//! 2. The last pair was loaded before the loop's first store, so that the end needs no test. A fault there, before
//!    anything was stored, copies byte by byte from the beginning: exact, and slow only then.
//! 3. Behind the fours comes a pair without a test whether one is left: if not, it is the pair before it once more. A
//!    branch there is right as often as lengths repeat. With one, and another for a single vector, copies of one length were
//!    0.03 to 0.15 of `memcpy` faster from 0.7 to 2 KiB, but of 1 to 1.6 KiB by turns at 0.81 instead of 1.11 of it. Also without
//!    a branch: four vectors at the end, 0.05 slower at one length, because each that crosses a line is stored twice; and
//!    the last pair once more, at 0.69 instead of 1.04 where it crosses a page, which costs 10 ns a store.
//! 4. Where the same bytes are stored twice, by vectors that overlap, both stores come from loads of the same source.

use core::arch::naked_asm;

use super::{detect, string, tail, vector};
use crate::fault::guarded;
use crate::routine::{Entry, Isa, Overlap, Run};

/// AVX-512: up to here pairs of vectors, from here on fours. Of `memcpy`, misaligned: at 576 and 640 bytes pairs are at 1.26,
/// fours at 1.07, whether or not lengths change; at 704 bytes both at 1.10, and where lengths change (640 to 768) pairs at
/// 0.91, fours at 1.08. Loops begin a line of code, because how it happens to lie makes as much of a difference.
const PAIRS_UNTIL: usize = 640;

/// AVX-512: up to here vectors however the ends lie: 1.0 to 1.45 times as fast as `rep movsb` of the C library from 2
/// to 3 KiB; from 4 KiB on it depends ([`wants_string`]).
const LOOP_UNTIL: usize = 3584;

/// AVX-512: from here on `rep movsb`, however the ends lie. At 24 KiB, where source and destination leave the first
/// cache, vectors were at 0.6 to 1.3 of it, at 12 and 16 KiB at 0.98 to 1.15, beyond at 0.9 to 1.1.
const STRING_FROM: usize = 16384;

/// How far behind the source, modulo a page, the destination has to be for vectors to be slower than `rep movsb`:
/// what is loaded looks to the CPU as if it had just been stored. Tried: 2 bytes (0.7 to 0.9), 2112 (1.0 to 1.3), few
/// others.
const BEHIND: usize = 512;

/// From here on the stores go past the caches. Source and destination then have four times what the second cache of
/// the CPU has that this was measured on (2 MiB). Streaming stores were at 1.1 to 1.9 of `rep movsb` from here to 64
/// MiB; at 1 MiB at 0.7 on a quiet machine and 1.4 on a busy one. So 2 MiB might do for the copy, but whoever reads
/// it next would find it in no cache.
const NT_FROM: usize = 4 << 20;

/// How near behind the end of the destination, modulo a page, the source may begin: when the same copy is made again,
/// its first loads look like the stores that ended the last one. Vectors were at 0.90 to 0.97 then, up to
/// [`AGAIN_UNTIL`].
const AGAIN: usize = 128;

/// From here on that was no longer seen: at 8 KiB vectors were at 1.1 of `rep movsb`, at 4 and 6 KiB at 0.9.
const AGAIN_UNTIL: usize = 7168;

/// AVX-512, from [`LOOP_UNTIL`] to [`STRING_FROM`]: whether `rep movsb` is the faster, going by where the ends lie.
///
/// It is where they agree in a line but don't begin one (vectors: 0.7 to 0.8), where the destination is a little
/// behind, and where it ends near the source's begin.
fn wants_string(len: usize, src: usize, dst: usize) -> bool {
    let ahead = src.wrapping_sub(dst);
    if ahead.is_multiple_of(64) {
        return !src.is_multiple_of(64);
    }
    ahead % 4096 < BEHIND || len < AGAIN_UNTIL && len.wrapping_sub(ahead) % 4096 < AGAIN
}

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

pub(crate) fn select(len: usize, src: usize, dst: usize) -> &'static Entry {
    if detect::avx512() {
        match len {
            0..=256 => &vector::AVX512,
            257..=512 if dst.is_multiple_of(64) => &vector::AVX512,
            _ if len >= NT_FROM => &vector::AVX512_NT,
            _ if len >= STRING_FROM || len >= LOOP_UNTIL && wants_string(len, src, dst) => {
                &string::REP_MOVSB_ALIGNED
            }
            _ => &vector::AVX512_ALIGNED,
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

/// Three, where four would store more than there is twice: 1.26 times as fast from 129 to 192 bytes, misaligned.
macro_rules! three {
    ($mov:literal, $ptr:literal, $a:literal, $b:literal, $c:literal, $end:literal) => {
        concat!(
            loads!($mov, $ptr; "rsi" => $a, "rsi + {w}" => $b, "rsi + rdx - {w}" => $c),
            stores!($mov, $ptr; $a => "rdi", $b => "rdi + {w}", $c => "rdi + rdx - {w}"),
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

/// More than eight vectors: one as it lies, fours to aligned destinations, a pair, the last pair from registers.
macro_rules! many {
    ($mov:literal, $ptr:literal, $a:literal, $b:literal, $c:literal, $d:literal, $e:literal, $f:literal, $end:literal) => {
        concat!(
            loads!($mov, $ptr; "rsi" => $a, "rsi + rdx - 2 * {w}" => $e, "rsi + rdx - {w}" => $f),
            stores!($mov, $ptr; $a => "rdi"),
            "lea rcx, [rdi + rdx]\n",
            "mov rax, rdi\n",
            "or rax, -{w}\n",
            "neg rax\n",
            "add rdi, rax\n",
            "add rsi, rax\n",
            "sub rdx, rax\n",
            ".p2align 6\n",
            "30:\n",
            loads!($mov, $ptr; "rsi" => $a, "rsi + {w}" => $b, "rsi + 2 * {w}" => $c, "rsi + 3 * {w}" => $d),
            stores!($mov, $ptr; $a => "rdi", $b => "rdi + {w}", $c => "rdi + 2 * {w}", $d => "rdi + 3 * {w}"),
            "add rsi, 4 * {w}\n",
            "add rdi, 4 * {w}\n",
            "sub rdx, 4 * {w}\n",
            "cmp rdx, 4 * {w}\n",
            "ja 30b\n",
            // The next pair, or the one before once more.
            "lea rax, [rdi - 2 * {w}]\n",
            "lea r8, [rsi - 2 * {w}]\n",
            "cmp rdx, 2 * {w}\n",
            "cmova r8, rsi\n",
            "cmova rax, rdi\n",
            loads!($mov, $ptr; "r8" => $a, "r8 + {w}" => $b),
            stores!($mov, $ptr; $a => "rax", $b => "rax + {w}", $e => "rcx - 2 * {w}", $f => "rcx - {w}"),
            $end, "\nxor eax, eax\nret\n",
        )
    };
}

/// As [`many`], by pairs, of which the last is the end's: fewer stores, where the loop turns a few times only.
macro_rules! pairs {
    ($mov:literal, $ptr:literal, $a:literal, $b:literal, $c:literal, $d:literal, $end:literal) => {
        concat!(
            loads!($mov, $ptr; "rsi" => $a, "rsi + rdx - 2 * {w}" => $c, "rsi + rdx - {w}" => $d),
            stores!($mov, $ptr; $a => "rdi"),
            "lea rcx, [rdi + rdx]\n",
            "mov rax, rdi\n",
            "or rax, -{w}\n",
            "neg rax\n",
            "add rdi, rax\n",
            "add rsi, rax\n",
            "sub rdx, rax\n",
            ".p2align 6\n",
            "20:\n",
            loads!($mov, $ptr; "rsi" => $a, "rsi + {w}" => $b),
            stores!($mov, $ptr; $a => "rdi", $b => "rdi + {w}"),
            "add rsi, 2 * {w}\n",
            "add rdi, 2 * {w}\n",
            "sub rdx, 2 * {w}\n",
            "cmp rdx, 2 * {w}\n",
            "ja 20b\n",
            stores!($mov, $ptr; $c => "rcx - 2 * {w}", $d => "rcx - {w}"),
            concat!($end, "\nxor eax, eax\nret\n"),
        )
    };
}

/// # Safety
///
/// As [`crate::Routine::try_copy`], on a CPU with AVX-512, which the entry's `available` asks.
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
        "cmp rdx, 3 * {w}",
        "jbe 31f",
        four!("vmovdqu64", "zmmword ptr", "zmm16", "zmm17", "zmm18", "zmm19", ""),
        ".p2align 4",
        "31:",
        three!("vmovdqu64", "zmmword ptr", "zmm16", "zmm17", "zmm18", ""),
        ".p2align 4",
        "4: cmp rdx, 8 * {w}",
        "ja 5f",
        "test dil, 63",
        "jnz 11f",
        eight!(
            "vmovdqu64", "zmmword ptr",
            "zmm16", "zmm17", "zmm18", "zmm19", "zmm20", "zmm21", "zmm22", "zmm23", ""
        ),
        ".p2align 4",
        "5: cmp rdx, {pairs_until}",
        "ja 6f",
        "11:",
        pairs!("vmovdqu64", "zmmword ptr", "zmm16", "zmm17", "zmm18", "zmm19", ""),
        ".p2align 4",
        "6: cmp rdx, {loop_until}",
        "jae 8f",
        "7:",
        many!("vmovdqu64", "zmmword ptr", "zmm16", "zmm17", "zmm18", "zmm19", "zmm20", "zmm21", ""),
        "8: cmp rdx, {string_from}",
        "jae 10f",
        // What `wants_string` says.
        "mov eax, esi",
        "sub eax, edi",
        "test al, 63",
        "jnz 9f",
        "test sil, 63",
        "jz 7b",
        "jmp 12f",
        "9: mov ecx, eax",
        "and ecx, 4095",
        "cmp ecx, {behind}",
        "jb 12f",
        "cmp rdx, {again_until}",
        "jae 7b",
        "mov ecx, edx",
        "sub ecx, eax",
        "and ecx, 4095",
        "cmp ecx, {again}",
        "jae 7b",
        "jmp 12f",
        "10: cmp rdx, {nt_from}",
        "jae {nt}",
        "12:",
        loads!("vmovdqu64", "zmmword ptr"; "rsi" => "zmm16"),
        stores!("vmovdqu64", "zmmword ptr"; "zmm16" => "rdi"),
        "mov rax, rdi",
        "or rax, -{w}",
        "neg rax",
        "add rdi, rax",
        "add rsi, rax",
        "sub rdx, rax",
        "mov rcx, rdx",
        "13: rep movsb",
        "14: mov rax, rcx",
        "ret",
        guarded!("12b", "13b", "{bytes}"),
        guarded!("13b", "14b", "14b"),
        guarded!("2b", "8b", "{bytes}"),
        w = const 64,
        pairs_until = const PAIRS_UNTIL,
        loop_until = const LOOP_UNTIL,
        string_from = const STRING_FROM,
        behind = const BEHIND,
        nt_from = const NT_FROM,
        again = const AGAIN,
        again_until = const AGAIN_UNTIL,
        small = sym tail::small,
        nt = sym vector::avx512_nt,
        bytes = sym tail::bytes,
    )
}

/// # Safety
///
/// As [`crate::Routine::try_copy`], on a CPU with AVX2, which the entry's `available` asks.
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
        many!("vmovdqu", "ymmword ptr", "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "vzeroupper"),
        "6:",
        guarded!("2b", "6b", "{bytes}"),
        w = const 32,
        nt_from = const NT_FROM,
        small = sym tail::small,
        nt = sym vector::avx2_nt,
        bytes = sym tail::vex,
    )
}

/// # Safety
///
/// As [`crate::Routine::try_copy`].
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
        many!("movups", "xmmword ptr", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", ""),
        "6:",
        guarded!("2b", "6b", "{bytes}"),
        w = const 16,
        nt_from = const NT_FROM,
        small = sym tail::small,
        nt = sym vector::sse2_nt,
        bytes = sym tail::bytes,
    )
}
