//! riscv64.
//!
//! Every routine here is a naked function of the standard convention: `a0` destination, `a1` source, `a2`
//! length, and what was not copied in `a0`. Where an instruction may fault, what the fix-up needs to find the
//! last point up to which all is copied is in registers; it ends in [`scalar::lb`]. Blocks are loaded before
//! they are stored, and stores ascend.

mod access;
mod detect;
mod scalar;
mod vector;

use crate::routine::{Entry, Isa, Overlap, Run};

pub(crate) use access::Guarded;

/// Without what differs.
const fn entry(name: &'static str, summary: &'static str, run: Run) -> Entry {
    Entry { name, isa: Isa::Riscv64, summary, needs: "", overlap: Overlap::Apart, available: || true, run }
}

const LB: Entry = Entry {
    overlap: Overlap::Forward,
    ..entry("lb", "byte by byte in five instructions: the measure of the others", scalar::lb)
};
const LD: Entry =
    entry("ld", "aligned words, eight at a time, where both ends agree modulo 8, else bytes", scalar::ld);
const LD_SHIFT: Entry = entry(
    "ld-shift",
    "aligned words, merged by shifts where the ends disagree: for every core without fast misaligned loads",
    scalar::ld_shift,
);
const LD_UNALIGNED: Entry = Entry {
    needs: "zicclsm",
    // Its last word is loaded and stored a second time.
    overlap: Overlap::Apart,
    available: detect::misaligned_loads,
    ..entry(
        "ld-unaligned",
        "words from wherever the source is, to an aligned destination; good where misaligned loads are fast",
        scalar::ld_unaligned,
    )
};
const RVV: Entry = Entry {
    needs: "v",
    available: detect::vectors,
    ..entry("rvv", "the vector extension, eight registers at a time", vector::rvv)
};

pub(crate) static ROUTINES: &[Entry] = &[LB, LD, LD_SHIFT, LD_UNALIGNED, RVV];

// Their places in the table.
const AT_LB: usize = 0;
const AT_LD: usize = 1;
const AT_SHIFT: usize = 2;
const AT_UNALIGNED: usize = 3;
const AT_RVV: usize = 4;

/// Each of these chooses by itself between bytes and words; which is best is a matter of the CPU alone.
///
/// By executed instructions, all there is to go by under emulation: at 8 KiB with a misaligned source, `rvv` at VLEN =
/// 256 has 230, `ld-unaligned` 2480, `ld-shift` 5959, `lb` 40965.
pub(crate) fn best() -> &'static Entry {
    if detect::vectors() {
        &ROUTINES[AT_RVV]
    } else if detect::fast_misaligned_loads() {
        &ROUTINES[AT_UNALIGNED]
    } else {
        &ROUTINES[AT_SHIFT]
    }
}

pub(crate) fn select(len: usize, src: usize, dst: usize) -> &'static Entry {
    let best = best();
    let alike = (src ^ dst).is_multiple_of(8);
    match best.name {
        "ld-shift" if alike && len >= scalar::WORDS_MIN => &ROUTINES[AT_LD],
        "ld-shift" if alike || len < scalar::SHIFT_MIN => &ROUTINES[AT_LB],
        "ld-unaligned" if len < scalar::UNALIGNED_MIN => &ROUTINES[AT_LB],
        _ => best,
    }
}
