//! The routines of each instruction set, and the portable ones that all of them have.

#[cfg(target_arch = "x86_64")]
pub(crate) mod x86_64;
