//! What a measured number is: its metric, unit, scope, source, and a reason where there is none.
//!
//! A metric fixes its unit and its better direction once, in one table ([`Metric::facts`]), so that no two places can
//! disagree. A missing number is never a sentinel: [`Reading::value`] is `None` and [`Reading::reason`] says why.
//! The table is also what `haul explain` prints.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Which way of a metric is an improvement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// More is better, as for throughput.
    Higher,
    /// Less is better, as for service demand.
    Lower,
    /// Neither: the number describes the run, and no verdict is given on it.
    Neither,
}

/// What every metric carries besides its values.
#[derive(Debug, Clone, Copy)]
pub struct MetricFacts {
    /// The name in JSON and in `haul explain`.
    pub name: &'static str,
    /// The unit, always this one.
    pub unit: &'static str,
    /// The better direction.
    pub better: Better,
    /// One paragraph for `haul explain`.
    pub meaning: &'static str,
}

macro_rules! metrics {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $unit:literal, $better:ident, $meaning:expr;)+) => {
        /// A quantity haul measures.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Metric { $($(#[$doc])* #[serde(rename = $name)] $variant,)+ }

        impl Metric {
            /// Every metric, in the order reports show them.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Name, unit, direction and meaning.
            #[must_use]
            pub fn facts(self) -> MetricFacts {
                match self {
                    $(Self::$variant => MetricFacts { name: $name, unit: $unit, better: Better::$better, meaning: $meaning },)+
                }
            }
        }
    };
}

impl Metric {
    /// Whether it explains a change rather than being one: what interrupts, queues and devices did beside the work. Such
    /// comparisons are a family of their own, so that they ask for no more pairs, and have no doubts and no sentence.
    #[must_use]
    pub fn is_beside(self) -> bool {
        matches!(
            self,
            Self::InterruptsPerGb
                | Self::InterruptsPerTransaction
                | Self::InterruptsNicPerGb
                | Self::PacketsPerInterrupt
                | Self::SoftnetDropped
                | Self::SoftnetSqueezed
                | Self::DevicePacketsPerSecond
                | Self::DeviceDrops
                | Self::QdiscDrops
        )
    }
}

/// What every latency has in common: each must be understood where it stands alone.
macro_rules! latency {
    ($which:literal) => {
        concat!(
            $which,
            " A transaction takes from its send call to the last byte of its response. That is service time: a closed loop \
             sends nothing while it waits, so a stall counts once, whatever it held up (see longest_stall). With --rate a \
             transaction takes from the time it was due, and what a stall delayed counts with its wait. Counted with an \
             error of at most 0.1 %."
        )
    };
}

/// What every figure of the latency probe has in common.
macro_rules! probe {
    ($which:literal) => {
        concat!(
            $which,
            " The probe is a small request at a time, on a connection of its own beside the flows: what another \
             program's request would see. Counted with an error of at most 0.1 %."
        )
    };
}

metrics! {
    /// Payload rate at the receiver.
    Throughput = "throughput", "bit/s", Higher,
        "Payload the receiver took from its sockets in the window, divided by the receiver's own elapsed time. At scope \
         sender it is what the sender handed to its kernel, which may still sit in a socket buffer: never the headline.";
    /// Transaction rate.
    Transactions = "transactions", "1/s", Higher,
        "Transactions completed in the window, divided by its length: a request and its whole response, and with crr also \
         the opening and closing of the connection it has to itself.";
    /// Shortest transaction.
    LatencyMin = "latency_min", "us", Lower, latency!("The shortest transaction that was completed in the window.");
    /// Mean of the transactions.
    LatencyMean = "latency_mean", "us", Lower,
        latency!("The mean of the transactions completed in the window; a few long ones move it far.");
    /// Median transaction.
    LatencyP50 = "latency_p50", "us", Lower,
        latency!("What half of the transactions completed in the window did not exceed; from 20 of them on.");
    /// One in 10 is longer.
    LatencyP90 = "latency_p90", "us", Lower,
        latency!("What 90 % of the transactions completed in the window did not exceed; from 100 of them on.");
    /// One in 20 is longer.
    LatencyP95 = "latency_p95", "us", Lower,
        latency!("What 95 % of the transactions completed in the window did not exceed; from 200 of them on.");
    /// One in 100 is longer.
    LatencyP99 = "latency_p99", "us", Lower,
        latency!("What 99 % of the transactions completed in the window did not exceed; from 1,000 of them on.");
    /// One in 1,000 is longer.
    LatencyP99_9 = "latency_p99_9", "us", Lower,
        latency!("What 99.9 % of the transactions completed in the window did not exceed; from 10,000 of them on.");
    /// One in 10,000 is longer.
    LatencyP99_99 = "latency_p99_99", "us", Lower,
        latency!("What 99.99 % of the transactions completed in the window did not exceed; from 100,000 of them on.");
    /// Longest transaction.
    LatencyMax = "latency_max", "us", Lower, latency!("The longest transaction that was completed in the window.");
    /// Longest time without a transaction.
    LongestStall = "longest_stall", "us", Lower,
        "The longest time for which a flow completed no transaction; the one still open at the end of the window counts. \
         The percentiles of a closed loop have a stall as a single transaction, however many it kept from being sent.";
    /// Requests without a response.
    Unanswered = "unanswered", "transactions", Lower,
        "Requests sent or due in the window and not answered when it closed. They are in no latency.";
    /// Requests sent again.
    Resends = "resends", "datagrams", Lower,
        "Requests of UDP that were sent again in the window after a timeout, because they or their responses were lost.";
    /// Datagram rate at the receiver.
    PacketRate = "packet_rate", "1/s", Higher,
        "Datagrams the receiver took from its sockets in the window, each counted once however often it came, divided by \
         the receiver's own elapsed time.";
    /// Share of the datagrams that never came.
    Loss = "loss", "%", Lower,
        "Share of the datagrams sent in the window that never came: lost as a share of lost and packets_received together. \
         It comes from the receiver, by sequence number, and lies between 0 and 100 %.";
    /// Datagrams that never came.
    Lost = "lost", "packets", Lower,
        "Datagrams sent in the window that the receiver did not see, by sequence number: lost_sender, lost_path and \
         lost_receiver together.";
    /// Lost before they left the sender.
    LostSender = "lost_sender", "packets", Lower,
        "Those of lost that the sender's own host dropped: in its socket, its queueing discipline or its device.";
    /// Lost between the hosts.
    LostPath = "lost_path", "packets", Lower, "Those of lost that neither end's host counts among what it dropped.";
    /// Lost after they arrived.
    LostReceiver = "lost_receiver", "packets", Lower,
        "Those of lost that reached the receiver's host and were dropped there: by a full socket buffer, or before it.";
    /// Datagrams that came again.
    Duplicates = "duplicates", "packets", Lower, "Datagrams that came in the window and had come before.";
    /// Datagrams that were overtaken.
    Reordered = "reordered", "packets", Lower,
        "Datagrams of the window that came after one with a higher sequence number (RFC 4737, section 3).";
    /// How far a datagram was overtaken.
    ReorderExtent = "reorder_extent", "packets", Lower,
        "How far a reordered datagram came behind, at most: the highest sequence number seen before it, less its own.";
    /// Variation of the transit time.
    Jitter = "jitter", "us", Lower,
        "Interarrival jitter of RFC 3550, section 6.4.1, at the end of the window: the difference in transit time of \
         successive datagrams, smoothed by 1/16. The offset of the two clocks cancels, and the first datagram only seeds it.";
    /// Median time between arrivals.
    GapP50 = "gap_p50", "us", Lower,
        "What half of the times between successive arrivals on a flow did not exceed, with an error of at most 0.1 %.";
    /// One in 100 is longer.
    GapP99 = "gap_p99", "us", Lower,
        "What 99 % of the times between successive arrivals on a flow did not exceed, with an error of at most 0.1 %; from \
         1,000 of them on.";
    /// Longest time between arrivals.
    GapMax = "gap_max", "us", Lower,
        "The longest time between successive arrivals on a flow, with an error of at most 0.1 %.";
    /// Median of the probe before the load.
    ProbeIdleP50 = "probe_idle_p50", "us", Lower,
        probe!("What half of the probe's round trips took at most while the flows were idle. It can be the longer one: on an idle path CPUs and interrupts have gone to sleep between requests, and under load they have not.");
    /// One in 100 is longer.
    ProbeIdleP99 = "probe_idle_p99", "us", Lower,
        probe!("What 99 % of the probe's round trips took at most while the flows were idle; from 1,000 of them on.");
    /// Median of the probe under load.
    ProbeLoadedP50 = "probe_loaded_p50", "us", Lower,
        probe!("What half of the probe's round trips took at most while the flows ran.");
    /// One in 100 is longer.
    ProbeLoadedP99 = "probe_loaded_p99", "us", Lower,
        probe!("What 99 % of the probe's round trips took at most while the flows ran; from 1,000 of them on.");
    /// System-wide busy time of one host.
    CpuBusy = "cpu_busy", "s", Lower,
        "CPU time of all CPUs of the host in the window that was not idle. At scope shared_host both ends run on one \
         kernel and the figure covers both.";
    /// Busy share of one host's CPUs.
    CpuUtilization = "cpu_utilization", "%", Lower,
        "cpu_busy as a share of all the CPUs of the host: 100 % is every CPU busy for the whole window.";
    /// User share of the busy time.
    CpuUser = "cpu_user", "s", Neither, "CPU time in user mode, all CPUs of the host, in the window.";
    /// Kernel share of the busy time.
    CpuSystem = "cpu_system", "s", Neither, "CPU time in the kernel on behalf of tasks, all CPUs of the host, in the window.";
    /// Hard interrupt share of the busy time.
    CpuIrq = "cpu_irq", "s", Neither, "CPU time in hard interrupts, all CPUs of the host, in the window.";
    /// Soft interrupt share of the busy time.
    CpuSoftirq = "cpu_softirq", "s", Neither, "CPU time in soft interrupts, all CPUs of the host, in the window.";
    /// Time the hypervisor took.
    CpuSteal = "cpu_steal", "s", Neither, "Time the hypervisor ran something else while this host's CPUs wanted to run.";
    /// CPU time of the workload's own threads.
    ThreadCpu = "thread_cpu", "s", Lower,
        "CPU time of the workload's own threads at this end in the window. Without irq time accounting it includes \
         interrupts that hit those threads, and misses work done for them elsewhere.";
    /// CPU time per KiB moved.
    ServiceDemand = "service_demand", "us/KiB", Lower,
        "CPU time per KiB of received payload. At scope sender, receiver with source 'system' it is all CPUs of that host; \
         on a shared host the ends are told apart by thread time (source 'threads') and scope shared_host has the whole.";
    /// CPU time per transaction.
    ServiceDemandTransaction = "service_demand_transaction", "us/transaction", Lower,
        "CPU time per transaction completed in the window. Whose time, and from which source, is as with service_demand, \
         the client and the server being the ends.";
    /// CPU time per KiB moved, without what the host did anyway.
    ServiceDemandNet = "service_demand_net", "us/KiB", Lower,
        "service_demand with the background taken off: what the CPUs of the host were busy with before the flows started \
         (cpu_background), as if it had gone on at that rate through the window. Beside service_demand, never in its place.";
    /// CPU time per transaction, without what the host did anyway.
    ServiceDemandNetTransaction = "service_demand_net_transaction", "us/transaction", Lower,
        "service_demand_transaction with the background taken off, as service_demand_net has it.";
    /// What the host was busy with before the flows started.
    CpuBackground = "cpu_background", "%", Neither,
        "Share of all the CPUs of the host that was busy in the fifth of a second before the flows started, when everything was \
         set up and waited: other programs, and what a system does by itself.";
    /// CPU time of a control group that is the process's own.
    CgroupCpu = "cgroup_cpu", "s", Neither,
        "CPU time in the window of the control group this end runs in, where nothing else runs in it: of all threads of the \
         process, those that move nothing as well.";
    /// Time the workload's threads waited for a CPU.
    ThreadWait = "thread_wait", "s", Lower,
        "Time in the window for which the workload's own threads at this end were ready to run and waited for a CPU, all \
         threads together.";
    /// Interrupts of the host.
    Interrupts = "interrupts", "interrupts", Lower,
        "Interrupts of all CPUs of the host in the window, from /proc/interrupts: of devices, of timers, and those that CPUs \
         send each other. At scope shared_host both ends run on one kernel and the figure covers both.";
    /// Interrupts of the host in a second.
    InterruptsPerSecond = "interrupts_per_second", "1/s", Lower, "interrupts, divided by the time between the two readings.";
    /// Interrupts of the host for each gigabyte moved.
    InterruptsPerGb = "interrupts_per_gb", "1/GB", Lower, "interrupts for each 10^9 bytes of payload received in the window.";
    /// Interrupts of the host for each transaction.
    InterruptsPerTransaction = "interrupts_per_transaction", "1/transaction", Lower,
        "interrupts for each transaction completed in the window.";
    /// Interrupts of the NIC.
    InterruptsNic = "interrupts_nic", "interrupts", Lower,
        "Interrupts in the window of the device the flows go through, all its queues and CPUs together. Absent where the device \
         has no line in /proc/interrupts, as veth and loopback have none.";
    /// Interrupts of the NIC in a second.
    InterruptsNicPerSecond = "interrupts_nic_per_second", "1/s", Lower,
        "interrupts_nic, divided by the time between the two readings.";
    /// Interrupts of the NIC for each gigabyte moved.
    InterruptsNicPerGb = "interrupts_nic_per_gb", "1/GB", Lower,
        "interrupts_nic for each 10^9 bytes of payload received in the window.";
    /// Packets the NIC moved for each interrupt.
    PacketsPerInterrupt = "packets_per_interrupt", "packets/interrupt", Neither,
        "Packets the device received and sent in the window, by its own count, for each of its interrupts: more where \
         interrupts are suppressed or NAPI polls.";
    /// Runs of the receiving soft interrupt.
    SoftirqsNetRx = "softirqs_net_rx", "softirqs", Lower,
        "How often the soft interrupt NET_RX ran in the window, on all CPUs of the host. Threaded NAPI does its work in \
         threads instead.";
    /// Runs of the sending soft interrupt.
    SoftirqsNetTx = "softirqs_net_tx", "softirqs", Lower,
        "How often the soft interrupt NET_TX ran in the window, on all CPUs of the host.";
    /// Packets dropped before a protocol saw them.
    SoftnetDropped = "softnet_dropped", "packets", Lower,
        "Packets that found a CPU's queue of received packets full (net.core.netdev_max_backlog) in the window, of all devices \
         and network namespaces of the host.";
    /// How often a CPU left packets lying.
    SoftnetSqueezed = "softnet_squeezed", "times", Lower,
        "How often in the window NET_RX stopped with packets left, because its budget (net.core.netdev_budget) or its time was \
         up, on all CPUs of the host.";
    /// Packets of the device in a second.
    DevicePacketsPerSecond = "device_packets_per_second", "1/s", Neither,
        "Packets the device received and sent, by its own count, divided by the time between the two readings. What TSO or \
         GRO keeps together counts once where the device sees it so.";
    /// Packets the device dropped.
    DeviceDrops = "device_drops", "packets", Lower,
        "Packets the device dropped in the window, received and to be sent: rx_dropped, rx_missed_errors and tx_dropped. \
         Packets of a protocol that nobody here speaks are among the first.";
    /// Packets a queueing discipline dropped.
    QdiscDrops = "qdisc_drops", "packets", Lower,
        "Packets the queueing disciplines of the device dropped in the window.";
    /// Segments sent again.
    Retransmits = "retransmits", "segments", Lower, "TCP segments the sender's flows sent again in the window.";
    /// Bytes over all of the run.
    BytesTotal = "bytes_total", "B", Neither,
        "Payload over the whole life of the flows, warm-up and drain included: both ends must agree.";
    /// Bytes in the window.
    BytesWindow = "bytes_window", "B", Neither, "Payload in the measured window.";
    /// Transactions in the window.
    TransactionsWindow = "transactions_window", "transactions", Neither,
        "Transactions completed in the measured window, all flows together: the samples behind every latency.";
    /// Datagrams handed over.
    PacketsSent = "packets_sent", "packets", Neither,
        "Datagrams the sender handed to its kernel in the window, each by itself where one call took many.";
    /// Datagrams taken.
    PacketsReceived = "packets_received", "packets", Neither,
        "Datagrams that were sent in the window and arrived, each counted once however often it came: sent is this and lost.";
    /// Length of the window.
    Window = "window", "s", Neither, "Elapsed monotonic time between the two snapshots that make the window.";
    /// Share of the window in which all flows were active.
    Overlap = "overlap", "%", Higher, "Share of the receiver's window that is also the sender's, with every flow under way.";
    /// Smoothed round trip time.
    Rtt = "rtt", "us", Neither, "The kernel's smoothed round trip time at the end of the window, mean over the flows.";
    /// Congestion window.
    Cwnd = "cwnd", "segments", Neither, "The sender's congestion window at the end of the window, in segments of the connection's own size, mean over the flows.";
    /// Share of the busy time limited by the peer's window.
    RwndLimited = "rwnd_limited", "%", Neither, "Share of the flow's busy time in which the receiver's window held the sender back (TCP_INFO, over the flow's life, mean over the flows).";
    /// Share of the busy time limited by the send buffer.
    SndbufLimited = "sndbuf_limited", "%", Neither, "Share of the flow's busy time in which the send buffer held the sender back (TCP_INFO, over the flow's life, mean over the flows).";
    /// The rate a run was held to.
    RequestedRate = "requested_rate", "bit/s", Neither,
        "The rate asked for with --rate, all flows together: what throughput is to be read against.";
    /// The rate transactions were due at.
    RequestedTransactions = "requested_transactions", "1/s", Neither,
        "The rate at which transactions were due, asked for with --rate, all flows together: what transactions is to be \
         read against.";
    /// Share of sends that were to be without a copy and were copied after all.
    ZerocopyCopied = "zerocopy_copied", "%", Lower,
        "With --send-with zerocopy: share of the send calls completed in the window whose bytes the kernel copied after \
         all (SO_EE_CODE_ZEROCOPY_COPIED), as it does for every packet that stays on one host. Where it is 100 %, nothing \
         was saved and the notices were paid for.";
    /// Share of received bytes whose pages were mapped.
    ReceiveMapped = "receive_mapped", "%", Higher,
        "With --recv-with zerocopy: share of the bytes received in the window whose pages were mapped and not copied. Only \
         payload that fills whole pages can be: an MTU of 4148 and a NIC that splits headers, or a sender on the same host.";
    /// Time of one walk through what is read.
    ReadTime = "read_time", "s", Lower,
        "Time of one read-through: every byte of the working set once, block by block. Of a sample of many passes it is the \
         mean.";
    /// Time of one walk through what is written.
    WriteTime = "write_time", "s", Lower,
        "Time of one write-through: every byte of the working set written once, block by block. Of a sample of many passes it is \
         the mean.";
    /// Bytes copied in a second.
    CopyRate = "copy_rate", "B/s", Higher,
        "Bytes copied, each counted once, divided by the time from the first to the last of them; where the copy stores past \
         the caches, until the stores are done. Shown in GB/s, which are 10^9 bytes a second.";
    /// Time of one call.
    CopyTime = "copy_time", "ns/call", Lower,
        "Time of one call: of a copy routine, or of the system call that moves a block. The mean of the calls of a sample.";
    /// CPU time for each KiB copied.
    CopyCpu = "copy_cpu", "ns/KiB", Lower,
        "CPU time of the measuring thread for each KiB copied, in user mode and in the kernel, and that of the threads which the \
         kernel adds for io_uring. Without irq time accounting it includes interrupts that hit the thread. Sources that are filled \
         between two timed parts (pipes, sockets) have the reading of the clocks in it too, some tens of nanoseconds a fill.";
    /// CPU cycles for each byte copied.
    CyclesPerByte = "cycles_per_byte", "cycles/B", Lower,
        "CPU cycles for each byte copied, or received: of the measuring thread in a survey, else of all CPUs of the host (on a \
         shared host of the threads of an end). From the CPU's own counter: independent of the clock rate.";
    /// Instructions for each byte copied.
    InstructionsPerByte = "instructions_per_byte", "instructions/B", Neither,
        "Instructions completed for each byte copied, or received, from the CPU's own counter; whose they are is as with \
         cycles_per_byte.";
    /// CPU cycles for each transaction.
    CyclesPerTransaction = "cycles_per_transaction", "cycles/transaction", Lower,
        "CPU cycles for each transaction completed in the window; whose they are is as with cycles_per_byte.";
    /// Instructions for each transaction.
    InstructionsPerTransaction = "instructions_per_transaction", "instructions/transaction", Neither,
        "Instructions for each transaction completed in the window; whose they are is as with cycles_per_byte.";
    /// Instructions for each cycle.
    InstructionsPerCycle = "instructions_per_cycle", "instructions/cycle", Neither,
        "Instructions completed for each cycle, of events that were on the counters together. A stalled path has few; a path \
         with fewer of both is still the cheaper one.";
    /// Context switches.
    ContextSwitches = "context_switches", "switches", Lower,
        "Context switches in the window, of all CPUs of the host, or of an end's threads on a shared host.";
    /// Moves from CPU to CPU.
    CpuMigrations = "cpu_migrations", "migrations", Lower,
        "How often the scheduler moved a thread to another CPU in the window; whose is as with context_switches.";
    /// Page faults.
    PageFaults = "page_faults", "faults", Lower,
        "Page faults in the window, those served from memory included; whose is as with context_switches.";
    /// Rate as a share of what the machine can do.
    CeilingShare = "ceiling_share", "%", Neither,
        "copy_rate as a share of the ceiling: the median rate of the fastest copy in the same place (cache level or DRAM) by as \
         many threads, sampled once in every round of the survey. Where the median of a cell there is above it the ceiling is \
         raised to that, so that no cell is above 100 %; a single sample may be. Copies that are read or summed as well, and ends \
         that share bytes, have no ceiling.";
    /// Where the destination of a copy lies.
    CopyDistance = "copy_distance", "B", Neither,
        "Address of the destination less that of the source, modulo a page of 4 KiB. Drawn anew for each sample unless --distance \
         says it, because some CPUs are slow where the two share it.";
    /// What the tool itself could reach.
    ToolCeiling = "tool_ceiling", "bit/s", Neither,
        "Rate of haul's own send loop with this message size into a null sink: results above 80 % of it are limited by the tool.";
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.facts().name)
    }
}

/// Whose number a reading is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// The end that sent in this direction.
    Sender,
    /// The end that received in this direction.
    Receiver,
    /// The end that drove the test.
    Client,
    /// The end that ran the server.
    Server,
    /// Both ends, which run on one kernel.
    SharedHost,
    /// The run as a whole.
    Run,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
            Self::Client => "client",
            Self::Server => "server",
            Self::SharedHost => "shared host",
            Self::Run => "run",
        })
    }
}

/// The point of a sweep a number belongs to, by axis: `{"message_bytes": 131072, "send_with": "write"}`.
pub type Cell = BTreeMap<String, CellValue>;

/// Where a run stands on one axis of a sweep.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CellValue {
    /// A size, an offset or a count.
    Int(u64),
    /// A choice by name.
    Text(String),
}

impl fmt::Display for CellValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => value.fmt(f),
            Self::Text(text) => f.pad(text),
        }
    }
}

/// A number: counts stay exact integers, everything else is finite.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// An exact count.
    Int(u64),
    /// A measured quantity; constructors keep it finite.
    Real(f64),
}

impl Value {
    /// The number as a float, for ratios.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Int(count) => count as f64,
            Self::Real(value) => value,
        }
    }
}

/// One number of one run, or the reason why there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "ReadingForm", from = "ReadingForm")]
pub struct Reading {
    /// What was measured.
    pub metric: Metric,
    /// Whose it is.
    pub scope: Scope,
    /// The number; `None` where it could not be had.
    pub value: Option<Value>,
    /// How it was obtained: the kernel interface, and its resolution where that matters.
    pub source: Cow<'static, str>,
    /// Why there is no value.
    pub reason: Option<String>,
}

/// A reading as JSON has it: with the unit written out, for those who read the document alone.
#[derive(Serialize, Deserialize)]
struct ReadingForm {
    metric: Metric,
    scope: Scope,
    unit: Cow<'static, str>,
    value: Option<Value>,
    source: Cow<'static, str>,
    reason: Option<String>,
}

impl From<Reading> for ReadingForm {
    fn from(reading: Reading) -> Self {
        let unit = Cow::Borrowed(reading.unit());
        let Reading { metric, scope, value, source, reason } = reading;
        Self { metric, scope, unit, value, source, reason }
    }
}

impl From<ReadingForm> for Reading {
    /// The unit is the metric's own, whatever the document says.
    fn from(form: ReadingForm) -> Self {
        let ReadingForm { metric, scope, value, source, reason, unit: _ } = form;
        Self { metric, scope, value, source, reason }
    }
}

impl Reading {
    /// A count that was read.
    #[must_use]
    pub fn count(metric: Metric, scope: Scope, value: u64, source: impl Into<Cow<'static, str>>) -> Self {
        Self { metric, scope, value: Some(Value::Int(value)), source: source.into(), reason: None }
    }

    /// A quantity that was computed. A value that is not finite becomes an absent one: a division by an empty window
    /// must not print as a number.
    #[must_use]
    pub fn real(metric: Metric, scope: Scope, value: f64, source: impl Into<Cow<'static, str>>) -> Self {
        if value.is_finite() {
            Self { metric, scope, value: Some(Value::Real(value)), source: source.into(), reason: None }
        } else {
            Self::absent(metric, scope, source, "not a finite number: the window was empty")
        }
    }

    /// A number that could not be had, and why.
    #[must_use]
    pub fn absent(
        metric: Metric,
        scope: Scope,
        source: impl Into<Cow<'static, str>>,
        reason: impl Into<String>,
    ) -> Self {
        Self { metric, scope, value: None, source: source.into(), reason: Some(reason.into()) }
    }

    /// The unit of the value.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        self.metric.facts().unit
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    #[test]
    fn every_metric_has_one_name_in_text_and_json() {
        let names: BTreeSet<_> = Metric::ALL.iter().map(|metric| metric.facts().name).collect();
        assert_eq!(names.len(), Metric::ALL.len());
        for metric in Metric::ALL {
            assert_eq!(serde_json::to_value(metric).unwrap(), json!(metric.to_string()));
            assert_eq!(serde_json::from_value::<Metric>(json!(metric.facts().name)).unwrap(), *metric);
        }
    }

    #[test]
    fn a_count_stays_exact_and_a_quantity_stays_a_float() {
        let count = Reading::count(Metric::BytesTotal, Scope::Run, u64::MAX, "tcp_info");
        let written = serde_json::to_value(&count).unwrap();
        let expected = json!({
            "metric": "bytes_total", "scope": "run", "unit": "B", "value": u64::MAX, "source": "tcp_info", "reason": null
        });
        assert_eq!(written, expected);
        assert_eq!(serde_json::from_value::<Reading>(written).unwrap(), count);

        let whole = Reading::real(Metric::Throughput, Scope::Receiver, 3e9, "socket");
        let text = serde_json::to_string(&whole).unwrap();
        assert_eq!(serde_json::from_str::<Reading>(&text).unwrap().value, Some(Value::Real(3e9)), "{text}");
    }

    #[test]
    fn a_division_by_an_empty_window_is_no_number() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let reading = Reading::real(Metric::Throughput, Scope::Receiver, value, "socket");
            assert_eq!(reading.value, None);
            assert!(reading.reason.is_some());
        }
    }

    #[test]
    fn the_unit_is_the_metrics_own_whatever_a_document_says() {
        let document = json!({
            "metric": "throughput", "scope": "sender", "unit": "MB/s", "value": 1.5, "source": "socket", "reason": null
        });
        assert_eq!(serde_json::from_value::<Reading>(document).unwrap().unit(), "bit/s");
    }

    #[test]
    fn a_cell_keeps_numbers_and_names_apart() {
        let cell: Cell =
            serde_json::from_value(json!({"message_bytes": 131_072, "send_with": "write"})).unwrap();
        assert_eq!(cell["message_bytes"], CellValue::Int(131_072));
        assert_eq!(cell["send_with"].to_string(), "write");
    }
}
