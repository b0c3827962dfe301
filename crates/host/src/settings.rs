//! Everything haul can change on a host, with one model: a name, whose it is, the values it can have, the one it has, what it
//! drags along, and how it is put back.
//!
//! ```text
//!   text ──parse──► Setting ──expand (this device, this host)──► items, each with the state it shall have ──► Tuner
//!   `nic.tso=off`    an end, an object, a value     nic.tx-tcp-segmentation=off, nic.tx-tcp6-segmentation=off, …
//! ```
//!
//! [`Tuner`] applies a list of settings to one host and puts back what was there; [`crate::journal`] does so when the
//! process no longer can. The promise both keep: whatever ends the process, everything returns to what was *wanted*
//! before, and no setting is reported as in force that is not.
//!
//! What is the whole host's is changed from a network namespace of a test's own with consent only. One feature reaches beyond
//! its device: `rx-lro=off` on a bond or bridge is passed on to the devices below, which are not put back
//! (`netdev_sync_lower_features` in `net/core/dev.c`).

mod access;
mod catalogue;
mod cpus;
mod error;
mod expand;
mod files;
mod hook;
mod item;
mod rules;
mod setting;
mod tuner;

pub(crate) use access::Access;
pub use access::{OnStep, Said, Step};
pub use catalogue::{Entry, catalogue, lookup};
pub use error::SettingError;
pub use files::Roots;
pub use item::{Change, Item, Refusal, Scope};
pub use setting::{End, Reach, Setting, split_list};
pub use tuner::{Applied, Consent, Plan, Tuner};
