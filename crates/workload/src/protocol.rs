//! The bodies that client and server put into haul-wire's messages.
//!
//! haul-wire carries them unread: what they hold is the workloads' own business, and a new workload changes nothing
//! there. The server checks every one before it acts on it.

use serde::{Deserialize, Serialize};

use crate::report::HostId;
use crate::spec::StreamSpec;

/// Body of `opened`: who the server is and what it lets a client do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Welcome {
    pub(crate) host: HostId,
    pub(crate) settings_allowed: bool,
}

/// Body of `prepare`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "workload", rename_all = "lowercase")]
pub(crate) enum Prepare {
    Stream(StreamSpec),
}
