//! Sums in the 64-byte registers of AVX-512, of bytes by `vpdpbusd` (AVX-512 VNNI).
//!
//! ```text
//! even[0…], odd[0…]: sums in 32-bit lanes of the bytes at even and at odd places; each vector of a block has its own pair
//! copy:  if len >= 1024 and dst is misaligned: as in avx512
//!        while left >= 256: two vectors; two vectors                 v: even[i] += the even bytes of v; odd[i] += the odd
//! sum:   while left >= 384: six vectors
//! both:  while left >= 64: a vector; one vector of which only `left` bytes are copied
//!        sum = the lanes of even + 256 * (the lanes of odd); if dst was odd: its bytes swapped
//! ```
//!
//! 1. Multiplying bytes by 1 or 0 and adding four of them to a 32-bit lane is one instruction, so that a vector costs two
//!    where 64-bit lanes cost three ([`super::avx512`]). Tried on paper and not better: `vpternlogq` as a carry-save adder takes
//!    two for each vector it takes away, and then there is one left to add; `vpdpwssd` takes one, but of signed words, and to
//!    count their signs takes another.
//! 2. `vpdpbusd` waits five cycles for its own last result. A copy needs more than a cycle for a vector all the same, so that four
//!    pairs do; a sum alone does not: 155 GB/s with six, 121 with four at 16 KiB. (Eight pairs would want registers below 16,
//!    and `vzeroupper`.)
//! 3. A copy stores every two vectors what it loaded. At 8 KiB: by one 117 GB/s aligned and 88 misaligned, by two 117 and 106, by
//!    four 101 to 114 and 105, by eight 85 and 73.
//! 4. All even bytes of [`PIECE`] add up to less than 2^32, and so do all odd ones: the lanes are added as they are.
//!
//! [`PIECE`]: crate::checksum::routine::PIECE

use core::arch::naked_asm;

use super::{avx512, tail};
use crate::arch::machine::detect;
use crate::checksum::routine::{Entry, Raw};
use crate::fault::guarded;
use crate::routine::Isa;

pub(super) const ENTRY: Entry = Entry {
    name: "avx512-vnni",
    isa: Isa::X86_64,
    summary: "64-byte registers, destination aligned, even and odd bytes by vpdpbusd; the best from 768 bytes on",
    needs: "avx512f avx512bw avx512vl avx512_vnni",
    available: detect::avx512_vnni,
    sum,
    copy,
};

/// Adds the bytes of a vector to a pair of sums. `zmm30` has 1 at even places, `zmm31` at odd ones.
macro_rules! add {
    ($vector:literal => $even:literal, $odd:literal) => {
        concat!("vpdpbusd ", $even, ", ", $vector, ", zmm30\nvpdpbusd ", $odd, ", ", $vector, ", zmm31\n")
    };
}

/// The factors, and sums of nothing.
macro_rules! begin {
    ($($pair:literal),+) => {
        concat!(
            "xor ecx, ecx\n",
            "mov eax, 0x00010001\nvpbroadcastd zmm30, eax\nvpslld zmm31, zmm30, 8\n",
            $("vpxord ", $pair, ", ", $pair, ", ", $pair, "\n",)+
        )
    };
}

/// `r8` = the sum of the pair `zmm20`, `zmm24`. Even and odd bytes change places by turns, so that both are added at once.
macro_rules! reduce {
    () => {
        concat!(
            "vpunpckldq zmm30, zmm20, zmm24\nvpunpckhdq zmm31, zmm20, zmm24\nvpaddd zmm30, zmm30, zmm31\n",
            "vextracti64x4 ymm31, zmm30, 1\nvpaddd ymm30, ymm30, ymm31\n",
            "vextracti32x4 xmm31, ymm30, 1\nvpaddd xmm30, xmm30, xmm31\n",
            "vpshufd xmm31, xmm30, 0x4e\nvpaddd xmm30, xmm30, xmm31\nvmovq rax, xmm30\n",
            "mov r8d, eax\nshr rax, 32\nshl rax, 8\nadd r8, rax\n",
        )
    };
}

/// `r8` = the sum of a copy's four pairs.
macro_rules! reduce_copy {
    () => {
        concat!(
            "vpaddd zmm20, zmm20, zmm22\nvpaddd zmm24, zmm24, zmm26\n",
            "vpaddd zmm21, zmm21, zmm23\nvpaddd zmm25, zmm25, zmm27\n",
            "vpaddd zmm20, zmm20, zmm21\nvpaddd zmm24, zmm24, zmm25\n",
            reduce!(),
        )
    };
}

/// `r8` = the sum of a sum's six pairs.
macro_rules! reduce_sum {
    () => {
        concat!(
            "vpaddd zmm20, zmm20, zmm22\nvpaddd zmm24, zmm24, zmm26\n",
            "vpaddd zmm21, zmm21, zmm23\nvpaddd zmm25, zmm25, zmm27\n",
            "vpaddd zmm18, zmm18, zmm19\nvpaddd zmm28, zmm28, zmm29\n",
            "vpaddd zmm20, zmm20, zmm21\nvpaddd zmm24, zmm24, zmm25\n",
            "vpaddd zmm20, zmm20, zmm18\nvpaddd zmm24, zmm24, zmm28\n",
            reduce!(),
        )
    };
}

/// A block of a copy, by halves; what may fault in each is between two labels.
macro_rules! block {
    ($first:literal, $first_end:literal, $second:literal, $second_end:literal) => {
        concat!(
            $first,
            ": vmovdqu64 zmm16, [rsi]\nvmovdqu64 zmm17, [rsi + 64]\n",
            "vmovdqu64 [rdi], zmm16\nvmovdqu64 [rdi + 64], zmm17\n",
            $first_end,
            ":\n",
            add!("zmm16" => "zmm20", "zmm24"),
            add!("zmm17" => "zmm21", "zmm25"),
            $second,
            ": vmovdqu64 zmm18, [rsi + 128]\nvmovdqu64 zmm19, [rsi + 192]\n",
            "vmovdqu64 [rdi + 128], zmm18\nvmovdqu64 [rdi + 192], zmm19\n",
            $second_end,
            ":\n",
            add!("zmm18" => "zmm22", "zmm26"),
            add!("zmm19" => "zmm23", "zmm27"),
            "add rsi, 256\nadd rdi, 256\n",
        )
    };
}

/// A vector of what is left of a copy, if there is one, by a pair that no neighbour waits for.
macro_rules! copy_one {
    ($from:literal, $to:literal, $even:literal, $odd:literal) => {
        concat!(
            "cmp rdx, 64\njb 6f\n",
            $from,
            ": vmovdqu64 zmm16, [rsi]\nvmovdqu64 [rdi], zmm16\n",
            $to,
            ":\n",
            add!("zmm16" => $even, $odd),
            "add rsi, 64\nadd rdi, 64\nsub rdx, 64\n",
        )
    };
}

/// The same of a sum alone.
macro_rules! sum_one {
    ($from:literal, $to:literal, $even:literal, $odd:literal) => {
        concat!(
            "cmp rsi, 64\njb 6f\n",
            $from,
            ": vmovdqu64 zmm16, [rdi]\n",
            $to,
            ":\n",
            add!("zmm16" => $even, $odd),
            "add rdi, 64\nsub rsi, 64\n",
        )
    };
}

/// # Safety
///
/// As [`crate::checksum::SumRoutine::try_copy`], on a CPU with AVX-512 VNNI, which the entry's `available` asks.
#[unsafe(naked)]
unsafe extern "sysv64" fn copy(dst: *mut u8, src: *const u8, len: usize) -> Raw {
    naked_asm!(
        begin!("xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27"),
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
        add!("zmm16" => "zmm23", "zmm27"),
        "add rsi, rax",
        "add rdi, rax",
        "sub rdx, rax",
        "4: sub rdx, 256",
        "jb 5f",
        "cmp rdx, {prefetch_from}",
        "jb 22f",
        ".p2align 5",
        block!("32", "33", "34", "35"),
        "prefetchw [rdi + {ahead}]",
        "prefetchw [rdi + {ahead} + 64]",
        "prefetchw [rdi + {ahead} + 128]",
        "prefetchw [rdi + {ahead} + 192]",
        "sub rdx, 256",
        "cmp rdx, {ahead}",
        "jae 32b",
        ".p2align 5",
        block!("22", "23", "24", "25"),
        "sub rdx, 256",
        "jae 22b",
        "5: add rdx, 256",
        copy_one!("40", "41", "zmm20", "zmm24"),
        copy_one!("42", "43", "zmm21", "zmm25"),
        copy_one!("44", "45", "zmm22", "zmm26"),
        "6: test rdx, rdx",
        "jz 7f",
        "xor eax, eax",
        "bts rax, rdx",
        "dec rax",
        "kmovq k1, rax",
        "26: vmovdqu8 zmm16 {{k1}} {{z}}, [rsi]",
        "vmovdqu8 [rdi] {{k1}}, zmm16",
        "27:",
        add!("zmm16" => "zmm23", "zmm27"),
        "7:",
        reduce_copy!(),
        "rol r8, cl",
        "xor eax, eax",
        "mov rdx, r8",
        "ret",
        "8: xor r8d, r8d", // nothing is copied yet
        "jmp {bytes}",
        "28: add rsi, 128", // the first half of the block is copied
        "add rdi, 128",
        "sub rdx, 128",
        "29: add rdx, 256",
        "9:",
        reduce_copy!(),
        "jmp {bytes}",
        guarded!("2b", "3b", "8b"),
        guarded!("32b", "33b", "29b"),
        guarded!("34b", "35b", "28b"),
        guarded!("22b", "23b", "29b"),
        guarded!("24b", "25b", "28b"),
        guarded!("40b", "41b", "9b"),
        guarded!("42b", "43b", "9b"),
        guarded!("44b", "45b", "9b"),
        guarded!("26b", "27b", "9b"),
        ahead = const avx512::PREFETCH_AHEAD,
        prefetch_from = const avx512::PREFETCH_FROM,
        align_from = const super::ALIGN_FROM,
        bytes = sym tail::copy_bytes,
    )
}

/// # Safety
///
/// As [`crate::checksum::SumRoutine::try_sum`], on a CPU with AVX-512 VNNI, which the entry's `available` asks.
#[unsafe(naked)]
unsafe extern "sysv64" fn sum(src: *const u8, len: usize) -> Raw {
    naked_asm!(
        begin!(
            "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27", "xmm28", "xmm29"
        ),
        "sub rsi, 384",
        "jb 5f",
        ".p2align 5",
        "22: vmovdqu64 zmm16, [rdi]",
        "vmovdqu64 zmm17, [rdi + 64]",
        "23:",
        add!("zmm16" => "zmm20", "zmm24"),
        add!("zmm17" => "zmm21", "zmm25"),
        "24: vmovdqu64 zmm16, [rdi + 128]",
        "vmovdqu64 zmm17, [rdi + 192]",
        "25:",
        add!("zmm16" => "zmm22", "zmm26"),
        add!("zmm17" => "zmm23", "zmm27"),
        "34: vmovdqu64 zmm16, [rdi + 256]",
        "vmovdqu64 zmm17, [rdi + 320]",
        "35:",
        add!("zmm16" => "zmm18", "zmm28"),
        add!("zmm17" => "zmm19", "zmm29"),
        "add rdi, 384",
        "sub rsi, 384",
        "jae 22b",
        "5: add rsi, 384",
        sum_one!("40", "41", "zmm20", "zmm24"),
        sum_one!("42", "43", "zmm21", "zmm25"),
        sum_one!("44", "45", "zmm22", "zmm26"),
        sum_one!("46", "47", "zmm23", "zmm27"),
        sum_one!("48", "49", "zmm18", "zmm28"),
        "6: test rsi, rsi",
        "jz 7f",
        "xor eax, eax",
        "bts rax, rsi",
        "dec rax",
        "kmovq k1, rax",
        "26: vmovdqu8 zmm16 {{k1}} {{z}}, [rdi]",
        "27:",
        add!("zmm16" => "zmm19", "zmm29"),
        "7:",
        reduce_sum!(),
        "xor eax, eax",
        "mov rdx, r8",
        "ret",
        "36: add rdi, 128", // four vectors of the block are added
        "sub rsi, 128",
        "28: add rdi, 128", // or two
        "sub rsi, 128",
        "29: add rsi, 384",
        "9:",
        reduce_sum!(),
        "jmp {bytes}",
        guarded!("22b", "23b", "29b"),
        guarded!("24b", "25b", "28b"),
        guarded!("34b", "35b", "36b"),
        guarded!("40b", "41b", "9b"),
        guarded!("42b", "43b", "9b"),
        guarded!("44b", "45b", "9b"),
        guarded!("46b", "47b", "9b"),
        guarded!("48b", "49b", "9b"),
        guarded!("26b", "27b", "9b"),
        bytes = sym tail::sum_bytes,
    )
}
