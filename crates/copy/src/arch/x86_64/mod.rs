//! x86-64.
//!
//! Every routine here is a naked function of the System V convention: `rdi` destination, `rsi` source, `rdx` length, and what
//! was not copied in `rax`. Where an instruction may fault, the three are as of the last point up to which everything is
//! copied, and the fix-up is one of the ends in [`tail`]. Blocks are loaded before they are stored, and stores ascend.

mod access;
pub(crate) mod detect;
mod string;
mod tail;

use crate::routine::Entry;

pub(crate) use access::Guarded;

pub(crate) static ROUTINES: &[Entry] = &[string::REP_MOVSB];

pub(crate) fn best() -> &'static Entry {
    &ROUTINES[0]
}

pub(crate) fn select(_len: usize, _src: usize, _dst: usize) -> &'static Entry {
    best()
}
