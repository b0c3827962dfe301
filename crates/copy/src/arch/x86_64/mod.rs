//! x86-64.
mod string;

use crate::routine::Entry;

pub(crate) static ROUTINES: &[Entry] = &[string::REP_MOVSB];
