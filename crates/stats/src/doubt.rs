//! Doubts about a result: a closed set, each with advice.
//!
//! A doubt is stored in the record, not only shown: who reads the JSON a year later must see that the run was
//! two-moded. The set is closed so that every consumer can match on [`DoubtId`] and no text has to be parsed.

use serde::{Deserialize, Serialize};

macro_rules! doubts {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $advice:literal;)+) => {
        /// The kinds of doubt.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum DoubtId { $($(#[$doc])* #[serde(rename = $name)] $variant,)+ }

        impl DoubtId {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The name in JSON.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// What the user can do about it.
            #[must_use]
            pub fn advice(self) -> &'static str {
                match self { $(Self::$variant => $advice,)+ }
            }
        }
    };
}

doubts! {
    /// Worker threads were free to move between CPUs.
    Unpinned = "unpinned", "placement decides more than most changes do: fix it with --pin CLIENT,SERVER";
    /// The congestion control in use paces.
    PacingCc = "pacing_cc", "bbr paces veth and loopback to a fraction of what they carry: compare with --cc reno or cubic";
    /// Both ends on one kernel.
    SharedHost = "shared_host", "both ends share CPUs and caches: service demand by end is thread time, the whole is shown once";
    /// The traffic never left this kernel.
    SoftwareLoopback = "software_loopback", "the route to the target is local, no NIC was measured: use an address of another host";
    /// A requested buffer was clamped.
    BufferClamped = "buffer_clamped", "raise net.core.rmem_max / wmem_max (TCP buffers set by hand), or leave the size to the kernel";
    /// The interfaces of the two ends differ in what they send in one piece.
    MtuMismatch = "mtu_mismatch", "the smaller MTU limits the segments, and where nobody on the way says so large packets are lost: give both ends the same";
    /// Flows were not all active throughout.
    Overlap = "overlap", "lengthen --time: on a busy machine an end may be woken late for the edges of a short window";
    /// Others kept the host busy.
    OtherLoad = "other_load", "other programs ran on this host: its CPU figures and its throughput are not this test's alone; repeat when it is quiet";
    /// The send loop itself limits.
    ToolLimited = "tool_limited", "the tool, not the path, sets this number: use larger messages or more flows";
    /// The sum of threads saturates.
    CpuBound = "cpu_bound", "a worker thread used its CPU fully: more flows or another placement may move more";
    /// The rate asked for was not reached.
    RateMissed = "rate_missed", "the path, the receiver or the CPU carried less than was asked for: this is a run at its limit, not at its rate";
    /// Percentiles that would be one of a few samples.
    FewSamples = "few_samples", "percentiles with fewer than ten samples beyond them were left out: lengthen --time, or use more flows";
    /// One wait took much of the window.
    Stalled = "stalled", "one stall took much of the window: read longest_stall; a closed loop counts it as a single transaction, and --rate charges it to all it delayed";
    /// Requests were left without a response.
    Unanswered = "unanswered", "requests without a response are in no latency, so the true ones are longer: use a lower --rate, or find what was lost";
    /// No local port was free for a new connection.
    PortExhaustion = "port_exhaustion", "closed connections hold their ports for a minute, so this is the rate at which ports become free: widen net.ipv4.ip_local_port_range, or shorten --time";
    /// Somebody else connected to the server's ports.
    Strangers = "strangers", "each connection of somebody else's took the place of one of the client's for a moment: find who connects to the server's ports (a scanner, a health check), or measure where nobody else is";
    /// Threads polled in place of sleeping.
    Spinning = "spinning", "threads that spin use their CPU fully with or without work: take the latency from this run, and CPU time and service demand from one that does not spin";
    /// The latency probe had to share CPUs with the load.
    ProbeShared = "probe_shared", "the probe waited for the CPUs of the load, not only for the path's queues: give the flows fewer CPUs with --pin, or measure between two hosts";
    /// Datagrams were lost.
    UdpLoss = "udp_loss", "lost_sender, lost_path and lost_receiver say where: lower --rate until nothing is lost, or enlarge --rcvbuf where the receiver dropped";
    /// Datagrams did not fit a packet.
    Fragmented = "fragmented", "the loss of one fragment loses its datagram, and reassembly costs the receiver CPU time: use a --message within the path's MTU";
    /// A batch of datagrams was never cut into packets.
    GroNominal = "gro_nominal", "on one kernel a batch sent with UDP_SEGMENT reaches a UDP_GRO receiver whole, so the packet rate is nominal: measure between two hosts, or without one of the two";
    /// The kernel copied what was to be sent without a copy.
    ZerocopyCopied = "zerocopy_copied", "the copy was not saved: loopback and veth always copy, and so does a NIC without scatter-gather; between two hosts it can go away";
    /// A receiver that was to map its bytes had them copied.
    ReceiveCopied = "receive_copied", "only payload that fills whole pages is mapped: an MTU of 4148 (4 KiB and the headers) and a NIC that splits headers; else --recv-with read is cheaper";
    /// The receiver dropped the payload in its kernel.
    Discarded = "discarded", "the receiving side was spared its copy: use it to load the sender or the path, and --recv-with read for what a program pays";
    /// What `io_uring` was asked for was done by threads of the kernel's.
    IoWorkers = "io_workers", "the kernel hands to threads of its own what it cannot do without a wait, as with files in memory: for a copy by the calling thread use --with pread, or read a FILE of a disk";
    /// Runs fall into two groups.
    TwoModes = "two_modes", "no single mean describes these runs: pin both ends with --pin and look at the runs";
    /// Spread too wide for a verdict.
    Spread = "spread", "runs of one arm differ too much: pin, lengthen --time, or quieten the machine";
    /// Later runs differ from earlier ones, both arms taken together.
    Drift = "drift", "the machine changed during the experiment: pairs cancel it in the verdict, not in the means";
    /// Successive pairs resemble each other.
    Dependence = "dependence", "the interval counts pairs as independent and may be too narrow: lengthen --time, or repeat at another hour";
    /// Something changed between fingerprints that nobody asked for.
    EnvironmentChanged = "environment_changed", "somebody else changed this host during the run: the pair is void";
    /// A setting changed others with it.
    SideEffects = "side_effects", "the arm differs in more than was asked for: name every setting, or read the result so";
    /// Pairs or runs that failed.
    FailedRuns = "failed_runs", "failed runs are kept out of the statistics: see their reasons in the record";
    /// Cells of a survey that no sample gave a number of.
    Unmeasured = "unmeasured", "the other cells have their numbers: 'cells' in the record has the reason of each that has none";
    /// The program ran under an emulator.
    Emulated = "emulated", "an emulator's time is its own: run on a CPU of the program's instruction set";
    /// Another session was measured by the same server at the same time.
    ServerShared = "server_shared", "another client used this server during the window: measure alone";
    /// The channel was not encrypted.
    OpenServer = "open_server", "this server lets anyone in (--open): use a key outside a closed network";
    /// The remaining data were not read in time after the end.
    DrainTimedOut = "drain_timed_out", "the path still held data at the end: totals of the two ends differ, the window does not";
    /// The hypervisor took CPU time.
    Steal = "steal", "another guest took CPU time in the window: repeat when the machine is quiet";
    /// A profile that was asked for could not be taken.
    NotProfiled = "not_profiled", "the reason names what forbids or prevents it; haul changes none of that: the runs' other numbers stand";
    /// The comparison was cut short.
    Interrupted = "interrupted", "numbers cover what had run until then";
    /// The two clocks could not be related closely enough.
    ClockOffset = "clock_offset", "the two windows may be shifted against each other: use a longer --time";
}

impl DoubtId {
    /// The advice in a few words, where an option of the command line is most of it.
    #[must_use]
    pub fn remedy(self) -> Option<&'static str> {
        Some(match self {
            Self::Unpinned | Self::ProbeShared | Self::TwoModes => "--pin",
            Self::PacingCc => "--cc reno",
            Self::Overlap | Self::ClockOffset | Self::FewSamples | Self::Dependence => "longer --time",
            Self::ToolLimited => "larger --message, more --flows",
            Self::CpuBound => "more --flows",
            Self::Stalled => "--rate",
            Self::Unanswered | Self::UdpLoss => "lower --rate",
            Self::Fragmented => "smaller --message",
            Self::Discarded | Self::ReceiveCopied => "--recv-with read",
            Self::Spread => "--pin, longer --time",
            _ => return None,
        })
    }
}

/// One doubt about a run or a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    /// The kind.
    pub id: DoubtId,
    /// What was seen, with the numbers.
    pub text: String,
    /// What the user can do about it.
    pub advice: String,
}

impl Doubt {
    /// A doubt with the kind's advice.
    #[must_use]
    pub fn new(id: DoubtId, text: impl Into<String>) -> Self {
        Self { id, text: text.into(), advice: id.advice().to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kind_has_its_own_name_and_an_advice() {
        let names: BTreeSet<_> = DoubtId::ALL.iter().map(|id| id.name()).collect();
        assert_eq!(names.len(), DoubtId::ALL.len());
        for id in DoubtId::ALL {
            assert_eq!(serde_json::to_value(id).unwrap(), id.name());
            assert_eq!(Doubt::new(*id, "seen").advice, id.advice());
            assert!(!id.advice().is_empty());
        }
    }
}
