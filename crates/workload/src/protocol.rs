//! The bodies that client and server put into haul-wire's messages.
//!
//! haul-wire carries them unread: what they hold is the workloads' own business, and a new workload changes nothing
//! there. The server checks every one before it acts on it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::report::{ClockOffset, EndReport, HostId, IntervalReport, Role};
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

/// Body of `outcome`: what the client saw of a run, once it is over. A client of an earlier version tells the headline alone.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Outcome {
    #[serde(flatten)]
    pub(crate) headline: Headline,
    /// The client's half of each leg, without its profile.
    #[serde(default)]
    pub(crate) reports: Reports,
    #[serde(default)]
    pub(crate) clock_offset: Option<ClockOffset>,
}

/// What a server's log has of either end: the headline of the first leg.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Headline {
    pub(crate) role: Role,
    /// Bytes, or transactions, in the window.
    pub(crate) units: u64,
    pub(crate) window_s: f64,
    /// Busy share of all CPUs of its host, in percent; with why there is none.
    pub(crate) cpu: Option<f64>,
    pub(crate) cpu_reason: Option<String>,
}

impl Headline {
    pub(crate) fn of(report: &EndReport) -> Self {
        let share = |cpu: &haul_host::probe::CpuUse| {
            cpu.busy.as_secs_f64() / (cpu.elapsed.as_secs_f64() * f64::from(cpu.ncpu)) * 100.0
        };
        Self {
            role: report.role,
            units: report.window_units(),
            window_s: report.window().as_secs_f64(),
            cpu: report.cpu.as_ref().map(share).filter(|share| share.is_finite()),
            cpu_reason: report.cpu_reason.clone(),
        }
    }
}

impl fmt::Display for Headline {
    /// "53.214 Gbit/s received over 10.00 s, CPU 61 %".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// A reason from the other end is no more than a line of the log.
        const LONGEST: usize = 200;
        let rate = if self.window_s > 0.0 { self.units as f64 / self.window_s } else { 0.0 };
        let seconds = self.window_s;
        match self.role {
            Role::Sender => write!(f, "{:.3} Gbit/s sent over {seconds:.2} s", rate * 8e-9)?,
            Role::Receiver => write!(f, "{:.3} Gbit/s received over {seconds:.2} s", rate * 8e-9)?,
            Role::Requester | Role::Responder => write!(f, "{rate:.0} transactions/s over {seconds:.2} s")?,
        }
        match (self.cpu, &self.cpu_reason) {
            (Some(share), _) => write!(f, ", CPU {share:.0} %"),
            (None, Some(reason)) => {
                let reason: String = reason.chars().take(LONGEST).collect();
                write!(f, ", CPU unknown ({reason})")
            }
            (None, None) => f.write_str(", CPU unknown"),
        }
    }
}
