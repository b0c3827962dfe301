//! What one end saw of a run: raw snapshots and counts, before any of it becomes a reading.
//!
//! Each end fills an [`EndReport`] from its own clock and its own kernel and the two meet at the client, where
//! [`crate::readings`] turns them into numbers. Counters are never reset: a window is the difference of two snapshots,
//! the intervals are differences of the snapshots between, so their sum is the window to the byte.

use std::time::Duration;

use haul_host::probe::cpu::CpuUse;
use haul_host::socket::{SocketFacts, TcpFacts};
use haul_host::thread::{CpuList, ThreadTime};
use haul_stats::MonoNanos;
use serde::{Deserialize, Serialize};

/// Which kernel an end runs on: two ends with the same boot id share CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostId {
    /// Name of the host.
    pub hostname: String,
    /// The kernel's boot id; `None` where it cannot be read.
    pub boot_id: Option<String>,
    /// Version of haul at this end.
    pub version: String,
}

impl HostId {
    /// This end.
    #[must_use]
    pub fn own() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        Self {
            hostname: read("/proc/sys/kernel/hostname").unwrap_or_default(),
            boot_id: read("/proc/sys/kernel/random/boot_id"),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// One flow as one end saw it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowReport {
    /// Payload over the flow's whole life.
    pub total_bytes: u64,
    /// Payload in the window.
    pub window_bytes: u64,
    /// From when in the window the flow was moving, to 2 % of the window; `None` where it never did.
    pub first: Option<MonoNanos>,
    /// Until when in the window it was there to move.
    pub last: Option<MonoNanos>,
    /// What the socket really used.
    pub socket: Option<SocketFacts>,
    /// The kernel's TCP counters as the window closed.
    pub tcp: Option<TcpFacts>,
    /// Segments sent again in the window; `None` where the kernel does not count them.
    pub window_retransmits: Option<u64>,
    /// Why the flow ended before its time.
    pub fault: Option<String>,
}

/// A worker thread's cost in the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadReport {
    /// CPU time in the window; `None` with the reason beside it where it could not be read.
    pub cpu: Option<ThreadTime>,
    /// Why there is none.
    pub reason: Option<String>,
    /// The CPUs it was allowed to run on, read back.
    pub affinity: Option<CpuList>,
}

/// One slice of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntervalReport {
    /// When it began.
    pub start: MonoNanos,
    /// When it ended.
    pub end: MonoNanos,
    /// Payload of all flows in it.
    pub bytes: u64,
    /// Segments sent again in it, at the sending end.
    pub retransmits: Option<u64>,
}

/// What an end does with the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It sends.
    Sender,
    /// It receives.
    Receiver,
}

/// Everything one end has to say about a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndReport {
    /// Which kernel it ran on.
    pub host: HostId,
    /// What it did.
    pub role: Role,
    /// When the window opened, on this end's monotonic clock.
    pub window_start: MonoNanos,
    /// When it closed.
    pub window_end: MonoNanos,
    /// One entry for each flow, in order of their index.
    pub flows: Vec<FlowReport>,
    /// The slices of the window, where asked for.
    pub intervals: Vec<IntervalReport>,
    /// All CPUs of the host over the window.
    pub cpu: Option<CpuUse>,
    /// Why there is none.
    pub cpu_reason: Option<String>,
    /// The worker threads over the window.
    pub threads: Vec<ThreadReport>,
    /// Whether everything in flight was read, or acknowledged, before the flows were closed.
    pub drained: bool,
    /// Whether the run was cut short by its user.
    pub interrupted: bool,
    /// Whether another session was measured by the same server meanwhile.
    pub shared_server: bool,
    /// Rate of the send loop into a null sink, in bytes per second, at the sending end.
    pub ceiling: Option<f64>,
}

impl EndReport {
    /// Elapsed time of the window.
    #[must_use]
    pub fn window(&self) -> Duration {
        self.window_end.since(self.window_start)
    }

    /// Payload of all flows in the window.
    #[must_use]
    pub fn window_bytes(&self) -> u64 {
        self.flows.iter().map(|flow| flow.window_bytes).sum()
    }

    /// Payload of all flows over their whole life.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.flows.iter().map(|flow| flow.total_bytes).sum()
    }
}

/// Both ends of one finished run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunOutcome {
    /// The end that drove the run.
    pub client: EndReport,
    /// The other.
    pub server: EndReport,
    /// Clock of the server minus clock of the client, in nanoseconds, and the bound of its error.
    pub clock_offset: ClockOffset,
}

/// How the clocks of the two ends relate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffset {
    /// Server minus client, nanoseconds.
    pub server_minus_client_ns: i64,
    /// Half the shortest round trip the estimate came from: the error is not larger.
    pub error: Duration,
}

impl RunOutcome {
    /// The end that sent the payload.
    #[must_use]
    pub fn sender(&self) -> &EndReport {
        if self.client.role == Role::Sender { &self.client } else { &self.server }
    }

    /// The end that received it.
    #[must_use]
    pub fn receiver(&self) -> &EndReport {
        if self.client.role == Role::Sender { &self.server } else { &self.client }
    }

    /// Whether both ends run on one kernel.
    #[must_use]
    pub fn shared_host(&self) -> bool {
        self.client.host.boot_id.is_some() && self.client.host.boot_id == self.server.host.boot_id
    }
}
