//! Memory-copy and checksum routines by name, for three instruction sets, that survive faults.
//!
//! A [`Routine`] is a value that proves its instructions may run on this CPU. Every one of them, from the byte loop to
//! AVX-512, keeps one contract: [`Routine::try_copy`] returns the number of bytes *not* copied, exact to the byte, if a
//! load or a store faults on the way. See [`fault`] for how, and for what has to be there to catch the fault.
//!
//! `no_std`, no dependency; the feature `signal` adds the handler for Linux processes.
#![no_std]
#![cfg_attr(not(test), warn(clippy::std_instead_of_core))]

#[cfg(feature = "signal")]
extern crate std;

mod arch;
pub mod checksum;
#[cfg(feature = "signal")]
mod error;
pub mod fault;
#[cfg(feature = "signal")]
mod mapped;
#[cfg(feature = "signal")]
mod peer;
mod routine;
pub mod selection;
#[cfg(feature = "signal")]
mod signal;
pub mod touch;

#[cfg(feature = "signal")]
pub use error::Error;
#[cfg(feature = "signal")]
pub use mapped::MappedFile;
#[cfg(feature = "signal")]
pub use peer::Peer;
pub use routine::{Isa, Known, Overlap, Routine, known};
pub use selection::Selection;
#[cfg(feature = "signal")]
pub use signal::{Handler, Thread};

/// The example in `docs/copy.md` is compiled and run with the tests.
#[cfg(all(doctest, feature = "signal"))]
#[doc = include_str!("../../../docs/copy.md")]
struct Documentation;
