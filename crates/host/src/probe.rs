//! What this host says about itself: the CPU time it spent ([`cpu`]), where packets were lost ([`net`]), what interrupts,
//! queues and the NIC did ([`activity`]), what its control groups allow ([`cgroup`]), the ports TCP has left ([`ports`]), what it
//! is set to ([`environment`]), what the kernel and the CPU count ([`counters`]), and where the CPUs were ([`profile`]).
//!
//! A probe states its source and its resolution with the number, because another kernel or another user gets another
//! source. What cannot be read is absent with a reason, never zero. No external program is run.

pub mod activity;
pub mod cgroup;
pub mod counters;
pub mod cpu;
pub mod environment;
pub mod net;
mod permission;
pub mod ports;
pub mod profile;
mod symbols;

pub(crate) use activity::interrupt_numbers;
pub use activity::{Activity, ActivityUse};
pub use cpu::{CpuUse, HostCpu};
pub use environment::{Change, Fact, Fingerprint};
pub use net::NetCounters;
pub use permission::Obstacle;
