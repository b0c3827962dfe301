//! x86-64.
//!
//! Every routine here is a naked function of the System V convention: `rdi` destination, `rsi` source, `rdx` length,
//! and what was not copied in `rax`. Where an instruction may fault, the three are as of the last point up to which
//! everything is copied, and the fix-up is one of the ends in [`tail`]. Blocks are loaded before they are stored, and
//! stores ascend.

#[macro_use]
mod moves;

mod access;
mod auto;
pub(crate) mod detect;
mod integer;
mod string;
mod tail;
mod vector;

use crate::routine::Entry;

pub(crate) use access::Guarded;

pub(crate) use auto::{best, select};

pub(crate) static ROUTINES: &[Entry] = &[
    string::REP_MOVSB,
    string::REP_MOVSB_ALIGNED,
    string::REP_MOVSQ,
    string::REP_MOVSQ_ALIGNED,
    integer::INT32,
    integer::INT32_ALL,
    integer::INT32_ALIGNED,
    integer::INT64,
    integer::INT64_ALL,
    integer::INT64_ALIGNED,
    integer::INT64_NT,
    vector::SSE2,
    vector::SSE2_ALIGNED,
    vector::SSE2_NT,
    vector::AVX2,
    vector::AVX2_ALIGNED,
    vector::AVX2_NT,
    vector::AVX512,
    vector::AVX512_ALIGNED,
    vector::AVX512_NT,
    auto::AUTO_SSE2,
    auto::AUTO_AVX2,
    auto::AUTO_AVX512,
];
