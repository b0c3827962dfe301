//! Checksum routines of AArch64.

use super::portable;
use super::routine::Entry;

pub(crate) static ROUTINES: &[Entry] = &[];

#[inline]
pub(crate) fn auto_sum(_len: usize) -> &'static Entry {
    portable::shift_merge()
}

#[inline]
pub(crate) fn auto_copy(_len: usize) -> &'static Entry {
    portable::shift_merge()
}
