//! `AArch64`.
//!
//! Every routine here is a naked function of the standard convention: `x0` destination, `x1` source, `x2`
//! length, and what was not copied in `x0`. Where an instruction may fault, what the fix-up needs to find the
//! last point up to which all is copied is in registers; it ends in [`pairs::ldrb`]. Blocks are loaded before
//! they are stored, and stores ascend.

mod access;
mod detect;
mod mops;
mod pairs;

use crate::routine::{Entry, Isa, Overlap, Run};

pub(crate) use access::Guarded;

/// Without what differs.
const fn entry(name: &'static str, summary: &'static str, run: Run) -> Entry {
    Entry { name, isa: Isa::Aarch64, summary, needs: "", overlap: Overlap::Apart, available: || true, run }
}

const LDRB: Entry = Entry {
    overlap: Overlap::Forward,
    ..entry("ldrb", "byte by byte in four instructions: the measure of the others", pairs::ldrb)
};
const LDP: Entry =
    entry("ldp", "pairs of general registers, 64 bytes a round, to an aligned destination", pairs::ldp);
#[cfg(target_feature = "neon")]
const LDP_Q: Entry =
    entry("ldp-q", "pairs of SIMD registers, 128 bytes a round, to an aligned destination", pairs::ldp_q);
const MOPS: Entry = Entry {
    needs: "mops",
    available: detect::mops,
    ..entry("mops", "the three memory-copy instructions of Armv8.8: the core knows best", mops::mops)
};

pub(crate) static ROUTINES: &[Entry] = &[LDRB, LDP, LDP_Q, MOPS];

// Their places in the table.
const AT_LDRB: usize = 0;
const AT_LDP: usize = 1;
const AT_LDP_Q: usize = 2;
const AT_MOPS: usize = 3;

/// Each of these chooses by itself between bytes, pairs and wider pairs; which is best is a matter of the CPU
/// alone.
pub(crate) fn best() -> &'static Entry {
    if detect::mops() {
        &ROUTINES[AT_MOPS]
    } else if detect::neon() {
        &ROUTINES[AT_LDP_Q]
    } else {
        &ROUTINES[AT_LDP]
    }
}

pub(crate) fn select(len: usize, _src: usize, _dst: usize) -> &'static Entry {
    let best = best();
    match best.name {
        "ldp" | "ldp-q" if len < pairs::PAIRS_MIN => &ROUTINES[AT_LDRB],
        "ldp-q" if len < pairs::QUADS_MIN => &ROUTINES[AT_LDP],
        _ => best,
    }
}
