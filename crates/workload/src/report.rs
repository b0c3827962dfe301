//! What one end saw of a run: raw snapshots and counts, before any of it becomes a reading.
//!
//! Each end fills an [`EndReport`] from its own clock and its own kernel and the two meet at the client, where
//! [`crate::readings`] turns them into numbers. Counters are never reset: a window is the difference of two snapshots,
//! the intervals are differences of the snapshots between, so their sum is the window to the byte.

use std::time::Duration;

use haul_host::probe::activity::ActivityUse;
use haul_host::probe::cpu::CpuUse;
use haul_host::socket::{SocketFacts, TcpFacts};
use haul_host::thread::{CpuList, ThreadTime, Tid};
use haul_stats::MonoNanos;
use serde::{Deserialize, Serialize};

pub use crate::datagram::DatagramReport;
pub use crate::exchange::ExchangeReport;
use crate::observe::Observed;
use crate::spec::{RunSpec, Workload};

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
    /// What the flow completed over its whole life: bytes of a stream, transactions of an exchange.
    pub total: u64,
    /// What it completed in the window.
    pub window: u64,
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
    /// The kernel's number of it.
    #[serde(default)]
    pub tid: Option<Tid>,
    /// CPU time in the window; `None` with the reason beside it where it could not be read.
    pub cpu: Option<ThreadTime>,
    /// Why there is none.
    pub reason: Option<String>,
    /// The CPUs it was allowed to run on, read back.
    pub affinity: Option<CpuList>,
    /// The NUMA node that all of them belong to; `None` where they do not, or the kernel knows of none.
    pub node: Option<u32>,
}

/// One slice of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntervalReport {
    /// When it began.
    pub start: MonoNanos,
    /// When it ended.
    pub end: MonoNanos,
    /// What all flows completed in it: bytes, or transactions.
    pub units: u64,
    /// Segments sent again in it, at the sending end.
    pub retransmits: Option<u64>,
    /// Datagrams in it.
    #[serde(default)]
    pub packets: Option<u64>,
    /// Datagrams found missing in it, at the receiving end; `None` where there was nothing to tell by. What comes late is
    /// taken from what was missing before.
    #[serde(default)]
    pub lost: Option<u64>,
}

/// Send calls without a copy in the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ZerocopyReport {
    /// Those the kernel said it was done with.
    pub completed: u64,
    /// Of these, those it copied after all.
    pub copied: u64,
}

/// Bytes received in the window by a receiver that maps what it can.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MappedReport {
    /// Those whose pages were mapped.
    pub mapped: u64,
    /// Those that were copied.
    pub copied: u64,
}

/// What an end does with the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It sends.
    Sender,
    /// It receives.
    Receiver,
    /// It asks, and counts the answers.
    Requester,
    /// It answers.
    Responder,
}

impl Role {
    /// The part of an end.
    #[must_use]
    pub fn of(spec: &RunSpec, client: bool) -> Self {
        match (spec.workload, client == spec.client_leads()) {
            (Workload::Stream, true) => Self::Sender,
            (Workload::Stream, false) => Self::Receiver,
            (Workload::Rr | Workload::Crr, true) => Self::Requester,
            (Workload::Rr | Workload::Crr, false) => Self::Responder,
        }
    }

    /// Whether it leads: it begins, and says when it is over.
    #[must_use]
    pub fn leads(self) -> bool {
        matches!(self, Self::Sender | Self::Requester)
    }

    /// Whether its count is the one that counts: what has arrived, what has been answered.
    #[must_use]
    pub fn counts(self) -> bool {
        matches!(self, Self::Receiver | Self::Requester)
    }
}

/// What a workload has to say beside its counters.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Detail {
    /// Nothing.
    #[default]
    Plain,
    /// What became of the sends without a copy.
    Zerocopy(ZerocopyReport),
    /// What of the received bytes was mapped.
    Mapped(MappedReport),
    /// What became of datagrams.
    Datagrams(Box<DatagramReport>),
    /// How long transactions took.
    Exchange(Box<ExchangeReport>),
}

/// What an end's host did beside moving the payload.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HostActivity {
    /// All CPUs of the host before the flows started, with everything set up.
    pub before: Option<CpuUse>,
    /// Why that is not known.
    pub before_reason: Option<String>,
    /// Interrupts, queues, protocols and the NIC in the window.
    pub window: Option<ActivityUse>,
    /// Why that is not known.
    pub window_reason: Option<String>,
}

impl HostActivity {
    /// What cannot be true of it, seen from the other end.
    fn check(&self, longest: Duration) -> Result<(), String> {
        /// Deeper than any tree of control groups a system makes.
        const MOST_GROUPS: usize = 64;
        if self.before.as_ref().is_some_and(|cpu| cpu.elapsed > longest) {
            return Err("it looked at its host for longer than the run".to_owned());
        }
        if let Some(cpu) = &self.before {
            fits(cpu, longest)?;
        }
        let Some(window) = &self.window else { return Ok(()) };
        if window.elapsed > longest || window.took > longest {
            return Err("it watched its interrupts for longer than the run".to_owned());
        }
        if window.groups.as_ref().is_some_and(|groups| groups.len() > MOST_GROUPS) {
            return Err("it is in more control groups than can be".to_owned());
        }
        Ok(())
    }
}

/// Whether so much CPU time can have been used within `longest`.
fn fits(cpu: &CpuUse, longest: Duration) -> Result<(), String> {
    /// More than any kernel has.
    const MOST_CPUS: u32 = 1 << 16;
    let most = longest.saturating_mul(cpu.ncpu.max(1));
    let parts = [cpu.busy, cpu.user, cpu.nice, cpu.system, cpu.irq, cpu.softirq, cpu.steal, cpu.idle];
    if cpu.ncpu == 0 || cpu.ncpu > MOST_CPUS {
        return Err("it has no CPU, or too many".to_owned());
    }
    if parts.into_iter().any(|part| part > most) {
        return Err("its CPUs were busy longer than there was time".to_owned());
    }
    Ok(())
}

/// Everything one end has to say about a leg of a run.
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
    /// What else the host did; of a run of several legs only the first has it.
    #[serde(default)]
    pub activity: Box<HostActivity>,
    /// The worker threads over the window.
    pub threads: Vec<ThreadReport>,
    /// Whether everything in flight was read, or acknowledged, before the flows were closed.
    pub drained: bool,
    /// Whether the run was cut short by its user.
    pub interrupted: bool,
    /// Whether another session was measured by the same server meanwhile.
    pub shared_server: bool,
    /// What the workload has to say beside its counters.
    pub detail: Detail,
    /// Rate of the send loop into a null sink, in bytes per second, at the sending end.
    pub ceiling: Option<f64>,
    /// What was looked at beside the workers, where anything was.
    #[serde(default)]
    pub observed: Option<Box<Observed>>,
}

impl EndReport {
    /// Elapsed time of the window.
    #[must_use]
    pub fn window(&self) -> Duration {
        self.window_end.since(self.window_start)
    }

    /// The same without its profile, which is large and of no use to the other end's figures.
    pub(crate) fn without_profile(&self) -> Self {
        let mut report = self.clone();
        if let Some(observed) = report.observed.as_mut().filter(|observed| observed.profile.is_some()) {
            observed.profile = None;
            observed.reason = Some("a profile stays with the end that asked for it".to_owned());
        }
        report
    }

    /// Says what in a report from the other end cannot be true: it is that end's word, and sums, ratios and differences
    /// are made of it. What passes can be wrong, but it cannot overflow or contradict itself.
    pub fn check(&self, spec: &RunSpec, role: Role) -> Result<(), String> {
        /// More than any run can move: 2^53 bytes a flow are 83 days at 10 Tbit/s.
        const MOST_BYTES: u64 = 1 << 53;
        let longest = spec.lifetime().saturating_mul(2).saturating_add(Duration::from_mins(1));
        let holds = |fact: bool, what: &str| if fact { Ok(()) } else { Err(what.to_owned()) };
        holds(self.role == role, "it did the other end's part")?;
        holds(self.flows.len() == spec.flows as usize, "it has another number of flows")?;
        holds(self.window_end >= self.window_start, "its window ends before it starts")?;
        holds(self.window() <= longest, "its window is longer than the run")?;
        for flow in &self.flows {
            holds(flow.total <= MOST_BYTES, "a flow moved more than can be moved")?;
            holds(flow.window <= flow.total, "a flow moved more in the window than in all")?;
            holds(
                flow.window_retransmits.is_none_or(|count| count <= MOST_BYTES),
                "a flow sent too much again",
            )?;
        }
        let inside = |slice: &IntervalReport| {
            self.window_start <= slice.start && slice.start <= slice.end && slice.end <= self.window_end
        };
        holds(self.intervals.iter().all(inside), "an interval is not inside the window")?;
        let possible = |count: Option<u64>| count.is_none_or(|count| count <= MOST_BYTES);
        let datagrams = |slice: &IntervalReport| possible(slice.packets) && possible(slice.lost);
        holds(self.intervals.iter().all(datagrams), "an interval has more datagrams than can be")?;
        let sum = self.intervals.iter().try_fold(0_u64, |sum, slice| sum.checked_add(slice.units));
        holds(
            self.intervals.is_empty() || sum == Some(self.window_units()),
            "its intervals do not sum to its window",
        )?;
        holds(self.threads.len() <= self.flows.len(), "it has more threads than flows")?;
        let spent = self.threads.iter().filter_map(|thread| thread.cpu);
        // Read after the counters at either edge: on a machine that stalls between, they cover a little more.
        let most = self.window().saturating_add(Duration::from_secs(1));
        holds(spent.into_iter().all(|time| time.total <= most), "a thread used more time than there was")?;
        if let Some(cpu) = &self.cpu {
            fits(cpu, longest)?;
        }
        self.activity.check(longest)?;
        match &self.detail {
            Detail::Plain => {}
            Detail::Zerocopy(sends) => {
                holds(sends.copied <= sends.completed, "more sends were copied than completed")?;
            }
            Detail::Mapped(bytes) => holds(
                bytes.mapped <= MOST_BYTES && bytes.copied <= MOST_BYTES,
                "more was mapped than can be moved",
            )?,
            Detail::Datagrams(datagrams) => datagrams.check()?,
            Detail::Exchange(exchange) => exchange.check()?,
        }
        self.observed.as_ref().map_or(Ok(()), |observed| observed.check())?;
        holds(self.ceiling.is_none_or(f64::is_finite), "its ceiling is no number")
    }

    /// What all flows completed in the window.
    #[must_use]
    pub fn window_units(&self) -> u64 {
        self.flows.iter().map(|flow| flow.window).sum()
    }

    /// What all flows completed over their whole life.
    #[must_use]
    pub fn total_units(&self) -> u64 {
        self.flows.iter().map(|flow| flow.total).sum()
    }

    /// What became of the sends without a copy, at an end that made some.
    #[must_use]
    pub fn zerocopy(&self) -> Option<ZerocopyReport> {
        match self.detail {
            Detail::Zerocopy(sends) => Some(sends),
            _ => None,
        }
    }

    /// What became of datagrams, at an end that had some.
    #[must_use]
    pub fn datagrams(&self) -> Option<&DatagramReport> {
        match &self.detail {
            Detail::Datagrams(datagrams) => Some(datagrams),
            _ => None,
        }
    }
}

/// Both ends of one leg of a finished run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunOutcome {
    /// What the leg was asked to do, with what was found out before it (the message that fits the path).
    pub spec: RunSpec,
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
    /// The end that sent the payload, or asked.
    #[must_use]
    pub fn sender(&self) -> &EndReport {
        if self.client.role.leads() { &self.client } else { &self.server }
    }

    /// The end that received it, or answered.
    #[must_use]
    pub fn receiver(&self) -> &EndReport {
        if self.client.role.leads() { &self.server } else { &self.client }
    }

    /// The end whose count is the headline.
    #[must_use]
    pub fn counting(&self) -> &EndReport {
        if self.client.role.counts() { &self.client } else { &self.server }
    }

    /// Whether both ends run on one kernel.
    #[must_use]
    pub fn shared_host(&self) -> bool {
        self.client.host.boot_id.is_some() && self.client.host.boot_id == self.server.host.boot_id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::PortsReport;
    use crate::readings;
    use crate::spec::Transport;
    use haul_host::probe::activity::{InterruptUse, SoftnetUse};
    use haul_host::probe::cgroup::{GroupUse, Quota};
    use haul_host::probe::cpu::IrqTime;
    use haul_stats::PerSecond;
    use proptest::prelude::*;

    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![1 => Just(0), 1 => Just(1 << 53), 1 => any::<u64>(), 60 => 0..10_000_000_000_u64]
    }

    fn length() -> impl Strategy<Value = Duration> {
        number().prop_map(Duration::from_nanos)
    }

    prop_compose! {
        fn flow()(total in number(), share in 0..=64_u64, first in proptest::option::of(number()),
                  last in proptest::option::of(number()), again in proptest::option::of(number())) -> FlowReport {
            FlowReport {
                total,
                window: total / 64 * share,
                first: first.map(MonoNanos),
                last: last.map(MonoNanos),
                socket: None,
                tcp: None,
                window_retransmits: again,
                fault: None,
            }
        }
    }

    prop_compose! {
        fn activity()(
            elapsed in length(),
            counts in proptest::collection::vec(proptest::option::of(any::<u64>()), 12),
            quota in (any::<u64>(), any::<u64>()),
        ) -> ActivityUse {
            let mut activity = ActivityUse {
                elapsed,
                interrupts: counts[0].map(|total| InterruptUse { total, nic: counts[1], ..InterruptUse::default() }),
                softirqs: counts[2].map(|count| [("NET_RX".to_owned(), count)].into()),
                softnet: Some(SoftnetUse { dropped: counts[3], squeezed: counts[4], ..SoftnetUse::default() }),
                groups: Some(vec![GroupUse {
                    quota: counts[5].map(|_| Quota { quota_us: quota.0, period_us: quota.1 }),
                    usage: counts[6].map(Duration::from_nanos),
                    throttled_periods: counts[7],
                    own: true,
                    ..GroupUse::default()
                }]),
                ..ActivityUse::default()
            };
            (activity.net.link.rx_packets, activity.net.link.tx_packets) = (counts[8], counts[9]);
            (activity.net.link.rx_dropped, activity.net.link.tx_dropped) = (counts[10], counts[11]);
            activity
        }
    }

    prop_compose! {
        fn report(role: Role)(
            edges in (any::<u64>(), number()),
            flows in proptest::collection::vec(flow(), 2),
            cpu in proptest::collection::vec(length(), 8),
            ncpu in prop_oneof![1 => Just(0), 1 => any::<u32>(), 20 => Just(2)],
            threads in proptest::collection::vec(length(), 0..3),
            ceiling in proptest::option::of(0.0..1e300),
            drained in any::<bool>(),
            before in proptest::option::of((length(), length())),
            activity in activity(),
        ) -> EndReport {
            let [busy, user, nice, system, irq, softirq, steal, idle] = cpu[..] else { unreachable!("eight") };
            EndReport {
                host: HostId { hostname: String::new(), boot_id: None, version: String::new() },
                role,
                window_start: MonoNanos(edges.0),
                window_end: MonoNanos(edges.0.saturating_add(edges.1)),
                flows,
                intervals: Vec::new(),
                cpu: Some(CpuUse {
                    elapsed: Duration::ZERO, busy, user, nice, system, irq, softirq, steal, idle, ncpu,
                    source: String::new(), resolution: Duration::ZERO, split_is_ticks: true,
                    irq_time: IrqTime::Unknown,
                }),
                cpu_reason: None,
                activity: Box::new(HostActivity {
                    before: before.map(|(elapsed, busy)| CpuUse {
                        elapsed, busy, user, nice, system, irq, softirq, steal, idle, ncpu,
                        source: String::new(), resolution: Duration::ZERO, split_is_ticks: true,
                        irq_time: IrqTime::InThreads,
                    }),
                    window: Some(activity),
                    ..HostActivity::default()
                }),
                threads: threads
                    .into_iter()
                    .map(|total| ThreadReport {
                        tid: None,
                        cpu: Some(ThreadTime { total, user: total, system: total, waited: Some(total) }),
                        reason: None,
                        affinity: None,
                        node: None,
                    })
                    .collect(),
                drained,
                interrupted: false,
                shared_server: false,
                detail: Detail::Plain,
                ceiling,
                observed: None,
            }
        }
    }

    prop_compose! {
        fn exchange()(
            times in proptest::collection::vec((number(), 1..1_000_u64), 0..4),
            counts in proptest::collection::vec(number(), 3),
            stall in proptest::option::of(length()),
            ports in proptest::option::of((number(), number())),
            again in proptest::option::of(number()),
        ) -> ExchangeReport {
            let mut report = ExchangeReport { longest_stall: stall, ..ExchangeReport::default() };
            for (nanos, count) in times {
                report.latency.record_n(nanos, count).expect("few");
            }
            (report.begun, report.unanswered, report.resends) =
                (counts[0].saturating_add(report.latency.count()), counts[1], counts[2]);
            report.ports = ports.map(|(range, held)| PortsReport { range, held });
            report.namespace_retransmits = again;
            report
        }
    }

    proptest! {
        // A case that is refused is no case: too many of them fail the test.
        #![proptest_config(ProptestConfig { cases: 1_000, max_global_rejects: 20_000, ..ProptestConfig::default() })]

        /// Whatever a server says, a report that passes gives readings without an overflow or an infinite number.
        #[test]
        fn no_report_that_passes_breaks_the_readings(
            client in report(Role::Sender),
            server in report(Role::Receiver),
            offset in any::<i64>(),
        ) {
            let spec = RunSpec { flows: 2, ..RunSpec::default() };
            prop_assume!(client.check(&spec, Role::Sender).is_ok() && server.check(&spec, Role::Receiver).is_ok());
            let clock_offset = ClockOffset { server_minus_client_ns: offset, error: Duration::ZERO };
            let outcome = RunOutcome { spec: spec.clone(), client, server, clock_offset };
            let (readings, _) = readings::of(&spec, &outcome);
            prop_assert!(readings.iter().all(|r| r.value.is_none_or(|value| value.as_f64().is_finite())));
            let _ = readings::validity(&spec, &outcome);
        }

        /// The same of exchanges, over TCP, UDP and connections of their own, at a pace and without.
        #[test]
        fn no_exchange_that_passes_breaks_the_readings(
            client in report(Role::Requester),
            server in report(Role::Responder),
            exchange in exchange(),
            (workload, transport) in prop_oneof![
                Just((Workload::Rr, Transport::Tcp)),
                Just((Workload::Rr, Transport::Udp)),
                Just((Workload::Crr, Transport::Tcp)),
            ],
            pace in proptest::option::of(1..u64::MAX),
        ) {
            let spec = RunSpec { workload, transport, flows: 2, pace: pace.map(PerSecond), ..RunSpec::default() };
            let detail = |exchange: &ExchangeReport| Detail::Exchange(Box::new(exchange.clone()));
            let client = EndReport { detail: detail(&exchange), ..client };
            let server = EndReport { detail: detail(&exchange), ..server };
            let passes = |end: &EndReport, role| end.check(&spec, role).is_ok();
            prop_assume!(passes(&client, Role::Requester) && passes(&server, Role::Responder));
            let clock_offset = ClockOffset { server_minus_client_ns: 0, error: Duration::ZERO };
            let outcome = RunOutcome { spec: spec.clone(), client, server, clock_offset };
            let (readings, _) = readings::of(&spec, &outcome);
            prop_assert!(readings.iter().all(|r| r.value.is_none_or(|value| value.as_f64().is_finite())));
            let _ = (readings::validity(&spec, &outcome), readings::effective(&spec, &outcome));
            prop_assert!(!readings::partial(&outcome.client, "lost").is_empty());
        }
    }

    type Spoil = fn(&mut EndReport);

    #[test]
    fn a_report_that_contradicts_itself_is_refused_with_the_reason() {
        let flow = FlowReport {
            total: 10,
            window: 5,
            first: None,
            last: None,
            socket: None,
            tcp: None,
            window_retransmits: Some(0),
            fault: None,
        };
        let good = EndReport {
            host: HostId::own(),
            role: Role::Receiver,
            window_start: MonoNanos(0),
            window_end: MonoNanos(1_000_000_000),
            flows: vec![flow],
            intervals: Vec::new(),
            cpu: None,
            cpu_reason: None,
            activity: Box::default(),
            threads: Vec::new(),
            drained: true,
            interrupted: false,
            shared_server: false,
            detail: Detail::Plain,
            ceiling: None,
            observed: None,
        };
        let spec = RunSpec::default();
        assert_eq!(good.check(&spec, Role::Receiver), Ok(()));
        let spoils: [(&str, Spoil); 9] = [
            ("watched its interrupts", |r| {
                r.activity.window = Some(ActivityUse { elapsed: Duration::MAX, ..ActivityUse::default() });
            }),
            ("part", |r| r.role = Role::Sender),
            ("number of flows", |r| r.flows.clear()),
            ("before it starts", |r| r.window_start = MonoNanos(2_000_000_000)),
            ("longer than the run", |r| r.window_end = MonoNanos(u64::MAX)),
            ("more than can be moved", |r| r.flows[0].total = u64::MAX),
            ("in the window than in all", |r| r.flows[0].window = 11),
            ("copied than completed", |r| {
                r.detail = Detail::Zerocopy(ZerocopyReport { completed: 1, copied: 2 });
            }),
            ("ceiling", |r| r.ceiling = Some(f64::NAN)),
        ];
        for (what, spoil) in spoils {
            let mut bad = good.clone();
            spoil(&mut bad);
            let said = bad.check(&spec, Role::Receiver).expect_err(what);
            assert!(said.contains(what), "{said}");
        }
    }
}
