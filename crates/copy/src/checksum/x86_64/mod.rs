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

use super::routine::Entry;
use crate::arch::machine::detect;

pub(crate) static ROUTINES: &[Entry] = &[adc::ENTRY, sse2::ENTRY, avx2::ENTRY, avx512::ENTRY];
// Their places in the list.
const ADC: usize = 0;
const AVX2: usize = 2;
const AVX512: usize = 3;

/// From how many bytes a copy aligns its destination first.
const ALIGN_FROM: usize = 256;

/// From how many bytes a vector's set-up and its final sum over the lanes pay.
const COPY_AVX2_FROM: usize = 256;
const COPY_AVX512_FROM: usize = 1024;
const SUM_AVX2_FROM: usize = 256;
const SUM_AVX512_FROM: usize = 1024;

#[inline]
fn pick(len: usize, avx2_from: usize, avx512_from: usize) -> &'static Entry {
    if len >= avx512_from && detect::avx512() {
        &ROUTINES[AVX512]
    } else if len >= avx2_from && detect::avx2() {
        &ROUTINES[AVX2]
    } else {
        &ROUTINES[ADC]
    }
}

#[inline]
pub(crate) fn auto_sum(len: usize) -> &'static Entry {
    pick(len, SUM_AVX2_FROM, SUM_AVX512_FROM)
}

#[inline]
pub(crate) fn auto_copy(len: usize) -> &'static Entry {
    pick(len, COPY_AVX2_FROM, COPY_AVX512_FROM)
}
