//! The only crate of haul that touches this Linux host.
//!
//! What is here: sockets and their kernel facts ([`socket`]), clocks and threads ([`clock`], [`thread`]), whether something
//! imitates the CPU ([`emulation`]), memory by the kind of its pages ([`memory`]), caches and the CPU's model ([`processor`]),
//! the code of this program ([`program`]), regular files ([`regular`]), network
//! namespaces and links made through netlink ([`netns`], [`link`], [`veth_lab`]), what the host says about itself
//! ([`probe`]), the features of a NIC ([`ethtool`]), and the settings haul can change and puts back ([`settings`],
//! [`journal`]). Callers get safe functions with one error type,
//! [`HostError`], whose texts name the operation, the object and a remedy; `unsafe` stays in the private module `sys`.
//!
//! Nothing here runs an external program, and no wait is unbounded. Files that depend on the network namespace are
//! read through `/proc/thread-self`, because threads of one process live in different namespaces.
#![deny(unsafe_code)]

pub mod block;
pub mod cached;
pub mod channel;
pub mod clock;
pub mod emulation;
pub mod error;
pub mod ethtool;
pub mod journal;
pub mod link;
pub mod memory;
mod napi;
mod netlink;
pub mod netns;
pub mod privilege;
pub mod probe;
pub mod processor;
pub mod program;
mod qdisc;
pub mod regular;
pub mod settings;
pub mod signal;
pub mod socket;
#[expect(unsafe_code, reason = "the system calls that std, socket2 and the netlink crates do not wrap")]
mod sys;
pub mod thread;
pub mod veth_lab;
mod watch;

pub use error::{HostError, Result};
