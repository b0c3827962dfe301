//! An instruction set without routines of its own, and Miri: the portable routines with plain volatile accesses.

use crate::arch::portable;
use crate::routine::Entry;

pub(crate) use crate::arch::portable::Plain as Guarded;

pub(crate) static ROUTINES: &[Entry] = &[];

pub(crate) fn best() -> &'static Entry {
    portable::shift_merge()
}

pub(crate) fn select(_len: usize, _src: usize, _dst: usize) -> &'static Entry {
    best()
}
