//! haul's traffic: moves bytes between two ends and counts what it took.
//!
//! A run is described by a [`RunSpec`], driven by a [`session::Session`] at the client against a [`server::Server`]
//! at the other end, and ends in a [`RunOutcome`]: what each end saw, which [`readings`] turns into numbers. The two
//! ends share one engine (threads, barrier, counters) and differ in who decides. There is no async runtime: worker
//! threads block in the very system call that is measured, and one thread per end watches the clock.
#![forbid(unsafe_code)]

mod ceiling;
mod connect;
mod control;
pub mod datagram;
mod end;
mod engine;
pub mod error;
pub mod exchange;
mod legs;
pub mod local;
pub mod mode;
pub mod observe;
mod pace;
mod protocol;
pub mod readings;
mod recorder;
pub mod report;
pub mod server;
pub mod session;
pub mod spec;
mod stream;

pub use error::{Result, WorkloadError};
pub use mode::{RecvWith, SendWith};
pub use report::{EndReport, RunOutcome};
pub use spec::{Direction, Hosts, Observe, Payload, Pin, Placement, Probe, RunSpec, Transport, Workload};
