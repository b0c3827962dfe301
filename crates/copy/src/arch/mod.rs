//! The routines of each instruction set, and the portable ones that all of them have.
//!
//! `machine` is the module of the instruction set this is compiled for. Each has the same four things:
//!
//! - `ROUTINES: &[Entry]`, complete, those that choose by themselves last;
//! - `best() -> &'static Entry`, the one of those for this CPU;
//! - `select(len, src, dst) -> &'static Entry`, what that one would work like;
//! - `Guarded`, the [`portable::Access`] whose loads and stores have entries in the exception table.
//!
//! Assembly is for ELF, whose linkers name the bounds of a section; under Miri and elsewhere there is `any`, without
//! it.

pub(crate) mod portable;

#[cfg(all(target_arch = "x86_64", any(target_os = "linux", target_os = "none"), not(miri)))]
#[path = "x86_64/mod.rs"]
pub(crate) mod machine;

#[cfg(all(target_arch = "aarch64", any(target_os = "linux", target_os = "none"), not(miri)))]
#[path = "aarch64/mod.rs"]
pub(crate) mod machine;

#[cfg(all(target_arch = "riscv64", any(target_os = "linux", target_os = "none"), not(miri)))]
#[path = "riscv64/mod.rs"]
pub(crate) mod machine;

#[cfg(not(all(
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"),
    any(target_os = "linux", target_os = "none"),
    not(miri)
)))]
#[path = "any.rs"]
pub(crate) mod machine;
