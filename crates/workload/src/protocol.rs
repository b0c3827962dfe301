//! The bodies that client and server put into haul-wire's messages.
//!
//! haul-wire carries them unread: what they hold is the workloads' own business, and a new workload changes nothing
//! there. The server checks every one before it acts on it.

use serde::{Deserialize, Serialize};

use crate::report::{EndReport, HostId, IntervalReport};
use crate::spec::RunSpec;

/// Body of `opened`: who the server is and what it lets a client do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Welcome {
    pub(crate) host: HostId,
    pub(crate) settings_allowed: bool,
}

/// Body of `prepare`: what is to be run. The legs follow from it, at both ends alike ([`RunSpec::legs`]).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Prepare {
    pub(crate) spec: RunSpec,
}

/// Body of `prepared`: where the flows that are made during the run go, by leg and flow.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Prepared {
    /// Ports of the listeners of a `crr` leg, as many for each flow, flow by flow; empty for other legs.
    pub(crate) ports: Vec<Vec<u16>>,
}

/// Body of `interval`.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Interval {
    pub(crate) leg: usize,
    pub(crate) interval: IntervalReport,
}

/// Body of `report`: the server's half of each leg.
pub(crate) type Reports = Vec<EndReport>;
