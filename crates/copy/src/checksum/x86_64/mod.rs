//! Checksum routines of x86-64.
//!
//! Registers, the same in all of them: `rdi` destination, `rsi` source, `rdx` what is left (a sum alone: `rdi` source, `rsi`
//! what is left), `r8` the sum so far, `cl` by how many bits it has to be rotated at the end. Each ends in one of the shared
//! tails of [`tail`]: after the last block, or after a fault with `r8` the sum of exactly what the other registers say.

mod adc;
mod avx2;
mod avx512;
mod sse2;
mod tail;
mod vnni;

use super::routine::Entry;
use crate::arch::machine::detect;

pub(crate) static ROUTINES: &[Entry] = &[adc::ENTRY, sse2::ENTRY, avx2::ENTRY, avx512::ENTRY, vnni::ENTRY];
// Their places in the list.
const ADC: usize = 0;
const AVX2: usize = 2;
const AVX512: usize = 3;
const VNNI: usize = 4;

/// From how many bytes a copy aligns its destination first. For misaligned ends, the time with aligning by that without: 1.24 at
/// 512 bytes, 1.02 at 1000, 0.94 at 1500, 0.80 at 4096.
const ALIGN_FROM: usize = 1024;

// From how many bytes a vector's set-up and its final sum over the lanes pay. Measured on Sapphire Rapids, back to back; there
// AVX-512 starts without a pause and hardly lowers the clock. ns of adc64, AVX2, AVX-512 for a sum: 16 bytes 8.2, 7.8, 6.9;
// 64: 7.8, 9.0, 7.2; 128: 11.0, 11.0, 10.5; 256: 11.7, 10.7, 7.7; for a copy: 16 bytes 8.5, 8.7, 8.8; 32: 10.6, 10.0, 8.6;
// 96: 13.9, 13.2, 10.2; 128: 13.1, 11.6, 9.6. SSE2 is nowhere better than both of its neighbours.
const COPY: Steps = Steps { avx2: 96, avx512: 32, vnni: 640 };
const SUM: Steps = Steps { avx2: 128, avx512: 16, vnni: 768 };

/// From how many bytes each is the fastest.
struct Steps {
    avx2: usize,
    avx512: usize,
    vnni: usize,
}

/// The routine for this length, by what the CPU has.
#[inline]
fn pick(len: usize, from: &Steps) -> &'static Entry {
    if len >= from.vnni && detect::avx512_vnni() {
        &ROUTINES[VNNI]
    } else if len >= from.avx512 && detect::avx512() {
        &ROUTINES[AVX512]
    } else if len >= from.avx2 && detect::avx2() {
        &ROUTINES[AVX2]
    } else {
        &ROUTINES[ADC]
    }
}

#[inline]
pub(crate) fn auto_sum(len: usize) -> &'static Entry {
    pick(len, &SUM)
}

#[inline]
pub(crate) fn auto_copy(len: usize) -> &'static Entry {
    pick(len, &COPY)
}
