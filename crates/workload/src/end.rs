//! One end of one run: the workers, the recorder, and the snapshots at the edges of the window.
//!
//! An [`End`] has no loop of its own. Whoever holds it, client or server, waits for whichever comes first of the
//! control connection, the workers' bell and [`End::wake_at`], and calls [`End::tick`]: one thread per end watches the
//! clock, the peer and the counters, and the workers share nothing with it but their counters and a flag.
//!
//! At each edge the counters are read first, with the clock beside them, and the CPU figures directly after, in the
//! same order at both edges, so that what the reading itself costs falls outside or cancels.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use haul_host::clock;
use haul_host::probe::cpu::HostCpu;
use haul_host::socket::{self, Requested, SocketFacts, TcpFacts};
use haul_host::thread::{self, CpuList, ThreadTime};
use haul_stats::MonoNanos;

use crate::engine::{Crew, Engine, Manner};
use crate::error::Result;
use crate::legs::Flows;
use crate::observe::Watch;
use crate::pace::Bucket;
use crate::recorder::{Beside, Recorder};
use crate::report::{Detail, EndReport, FlowReport, HostId, IntervalReport, Role, ThreadReport};
use crate::spec::{Placement, RunSpec, Transport, Workload};
use crate::{connect, datagram, exchange, stream};

/// How long data still in flight at the end may take to arrive. Four megabytes at 50 Mbit/s take 0.7 s.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

/// How long a sender goes on after its own window: the receiver's closes later by the error of the clocks and by however
/// late its thread is woken, and a window must not end in silence.
fn overrun(window: Duration) -> Duration {
    (window / 100).clamp(Duration::from_millis(5), Duration::from_millis(50))
}

/// Share of the window by which a sender may end early before it counts as a fault of the flow.
const EARLY_END: f64 = 0.05;

/// How long nothing may arrive before those who follow and cannot be told to end are taken to have all there is.
const QUIET: Duration = Duration::from_millis(250);

/// The same once the other end has said that it is done: what is still on its way is microseconds, or a slow path, behind.
const QUIET_AFTER_LEAVE: Duration = Duration::from_millis(50);

/// CPU figures at an edge of the window.
#[derive(Debug)]
struct Edge {
    host: haul_host::Result<HostCpu>,
    threads: Vec<haul_host::Result<ThreadTime>>,
    retransmits: Vec<Option<u64>>,
}

/// What a workload keeps beside the engine's counters, read by the thread that watches the clock. Each mark is a snapshot
/// the ledger takes for itself.
pub(crate) trait Ledger: Send + fmt::Debug {
    /// The window opens.
    fn open(&mut self) {}

    /// The window closes, and with it the last interval.
    fn close(&mut self) {}

    /// Datagrams of the window known to be missing so far.
    fn missing(&self) -> Option<u64> {
        None
    }

    /// The flows are over: what is to be said.
    fn detail(&mut self) -> Detail {
        Detail::Plain
    }
}

/// The ledger of a workload whose counters say it all.
#[derive(Debug)]
pub(crate) struct NoLedger;

impl Ledger for NoLedger {}

/// The workers of one end of a leg, and what they keep.
pub(crate) struct Workers {
    pub(crate) engine: Engine,
    pub(crate) ledger: Box<dyn Ledger>,
    /// Rate of the loop itself, bytes per second, where it was measured.
    pub(crate) ceiling: Option<f64>,
}

/// Since when nothing has arrived.
#[derive(Debug)]
struct Quiet {
    since: MonoNanos,
    units: u64,
    longest: Duration,
}

/// One end of one run.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "two say what kind of run it is, two how it went")]
pub(crate) struct End {
    host: HostId,
    requested: Requested,
    role: Role,
    window: Duration,
    warmup: Duration,
    interval: Option<Duration>,
    /// Bytes of a datagram, where those are what is moved.
    datagram: Option<u64>,
    engine: Engine,
    recorder: Option<Recorder>,
    opening: Option<Edge>,
    closing: Option<Edge>,
    ledger: Box<dyn Ledger>,
    tcp: Vec<Option<TcpFacts>>,
    sockets: Vec<Option<SocketFacts>>,
    units: Vec<u64>,
    /// Whether the run is over when so much has been moved, and not at a time.
    by_amount: bool,
    /// Whether an end of the peer's cannot be seen in the socket itself.
    needs_quiet: bool,
    quiet: Option<Quiet>,
    stop_at: Option<MonoNanos>,
    drain_until: Option<MonoNanos>,
    drained: bool,
    interrupted: bool,
    ceiling: Option<f64>,
    /// What is looked at beside the workers, where anything is.
    watch: Option<Watch>,
}

impl End {
    /// Starts this end's workers, and leaves them at the gate.
    pub(crate) fn prepare(spec: &RunSpec, client: bool, flows: Flows, host: HostId) -> Result<Self> {
        let role = Role::of(spec, client);
        let end = Ends { spec, client, role };
        let Workers { engine, ledger, ceiling } = match (spec.workload, spec.transport) {
            (Workload::Stream, Transport::Tcp) => stream::workers(end, flows)?,
            (Workload::Stream, Transport::Udp) => datagram::workers(end, flows)?,
            (Workload::Rr, _) => exchange::workers(end, flows)?,
            (Workload::Crr, _) => connect::workers(end, flows)?,
        };
        let flows = engine.sockets().len();
        let watch = Watch::prepare(spec, client, engine.workers().map(|worker| worker.tid));
        Ok(Self {
            host,
            requested: spec.sockets(client),
            role,
            window: spec.window,
            warmup: spec.warmup,
            interval: spec.interval,
            datagram: (spec.workload == Workload::Stream && spec.transport == Transport::Udp)
                .then_some(spec.message.0),
            engine,
            recorder: None,
            opening: None,
            closing: None,
            ledger,
            tcp: vec![None; flows],
            sockets: vec![None; flows],
            units: Vec::with_capacity(flows),
            by_amount: spec.bytes.is_some(),
            needs_quiet: !role.leads()
                && (spec.transport == Transport::Udp || spec.workload == Workload::Crr),
            quiet: None,
            stop_at: None,
            drain_until: None,
            drained: false,
            interrupted: false,
            ceiling,
            watch,
        })
    }

    /// Whether the headline is counted at this end.
    pub(crate) fn counts(&self) -> bool {
        self.role.counts()
    }

    /// Lets the flows go at `at`.
    pub(crate) fn start(&mut self, at: MonoNanos) {
        let flows = self.engine.sockets().len();
        if self.by_amount {
            // The window opens with the first byte, which none of our threads may be awake in time to see.
            self.ledger.open();
            self.opening = Some(self.edge(self.retransmits()));
            self.watch.iter_mut().for_each(Watch::open);
            self.recorder = Some(Recorder::from_the_start(at, self.window, self.interval, flows));
        } else {
            let recorder = Recorder::new(at, self.warmup, self.window, self.interval, flows, self.datagram);
            self.recorder = Some(recorder);
        }
        self.engine.open(at);
    }

    /// When [`End::tick`] must be called next.
    pub(crate) fn wake_at(&self) -> Option<MonoNanos> {
        let next = self.recorder.as_ref().and_then(Recorder::next).or(self.stop_at);
        let look = || self.quiet.as_ref().map(|_| clock::now().after(QUIET_AFTER_LEAVE));
        next.or_else(look).or(self.drain_until)
    }

    /// The other end has said that it is done: nothing more will be asked, or sent.
    pub(crate) fn peer_is_done(&mut self) {
        if self.needs_quiet {
            let units = self.count();
            self.quiet = Some(Quiet { since: clock::now(), units, longest: QUIET_AFTER_LEAVE });
        }
    }

    fn count(&mut self) -> u64 {
        self.engine.units(&mut self.units);
        self.units.iter().sum()
    }

    /// Readable when a flow has ended.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.engine.bell()
    }

    /// Does what is due; gives the interval that ended, if one did.
    pub(crate) fn tick(&mut self) -> Option<IntervalReport> {
        self.look(false)
    }

    /// Ends the run now, keeping what the window holds so far.
    pub(crate) fn cut(&mut self) -> Option<IntervalReport> {
        self.interrupted = true;
        let interval = self.look(true);
        self.stop_at = self.stop_at.map(|_| clock::now());
        if self.recorder.is_none() {
            self.engine.abort();
        }
        interval
    }

    fn look(&mut self, cut: bool) -> Option<IntervalReport> {
        let now = clock::now();
        let ended =
            self.engine.is_over().then(|| self.engine.ends().iter().map(|end| end.at).max()).flatten();
        let mut interval = None;
        if let Some(recorder) =
            self.recorder.as_mut().filter(|recorder| cut || recorder.next().is_some_and(|due| due <= now))
        {
            self.engine.units(&mut self.units);
            // TCP_INFO takes the socket's lock: with intervals it is read at each look, otherwise at the edges only.
            // An edge takes what its look has read, or the intervals would not add up to the window.
            let again = self.interval.is_some().then(|| retransmits_of(self.role, &self.engine));
            let sum = again.as_ref().filter(|again| !again.is_empty());
            let retransmits = sum.and_then(|again| again.iter().copied().sum());
            let beside = Beside { retransmits, missing: self.interval.and_then(|_| self.ledger.missing()) };
            // Woken so late that the flows had ended meanwhile: what follows their end is not part of the window.
            let over = |ended: &MonoNanos| self.by_amount || *ended >= recorder.closes();
            let at = ended.filter(|ended| over(ended) && *ended < now).unwrap_or(now);
            let seen = if cut {
                recorder.cut(at, &self.units, beside)
            } else {
                recorder.look(at, &self.units, beside)
            };
            interval = seen.interval;
            if seen.opened {
                self.ledger.open();
                self.opening = Some(self.edge(again.clone().unwrap_or_else(|| self.retransmits())));
                self.watch.iter_mut().for_each(Watch::open);
            }
            if seen.closed {
                self.ledger.close();
                self.closing = Some(self.edge(again.unwrap_or_else(|| self.retransmits())));
                self.watch.iter_mut().for_each(Watch::close);
                self.note_sockets();
                self.stop_at = Some(now.after(if cut { Duration::ZERO } else { overrun(self.window) }));
                self.drain_until = Some(now.after(DRAIN_LIMIT));
                if self.needs_quiet {
                    let units = self.units.iter().sum();
                    self.quiet = Some(Quiet { since: now, units, longest: QUIET });
                }
            }
        }
        self.listen_for_quiet(now);
        if self.stop_at.is_some_and(|at| at <= now) {
            self.engine.stop();
            self.stop_at = None;
        }
        if self.drain_until.is_some_and(|at| at <= now) {
            self.engine.abort();
            self.drain_until = None;
        }
        interval
    }

    /// Ends those who follow where the peer's leave may have been lost, or cannot be seen.
    fn listen_for_quiet(&mut self, now: MonoNanos) {
        if self.quiet.is_none() || self.stop_at.is_some() {
            return;
        }
        let units = self.count();
        let Some(quiet) = &mut self.quiet else { return };
        if quiet.units != units {
            (quiet.units, quiet.since) = (units, now);
        } else if now.since(quiet.since) >= quiet.longest {
            self.engine.hang_up();
            self.quiet = None;
        }
    }

    fn edge(&self, retransmits: Vec<Option<u64>>) -> Edge {
        let threads = self.engine.workers().map(|worker| thread::cpu_time(worker.tid)).collect();
        Edge { host: HostCpu::read(), threads, retransmits }
    }

    fn retransmits(&self) -> Vec<Option<u64>> {
        retransmits_of(self.role, &self.engine)
    }

    fn note_sockets(&mut self) {
        for (index, socket) in self.engine.sockets().iter().enumerate() {
            self.sockets[index] = SocketFacts::read(socket.as_fd(), &self.requested).ok();
            self.tcp[index] = TcpFacts::read(socket.as_fd()).ok();
        }
    }

    /// Whether the flows have ended, or the time for that is up.
    pub(crate) fn is_over(&mut self) -> bool {
        if self.engine.is_over() {
            self.drained = self.drain_until.is_some() || self.by_amount;
            // Every flow broke off before the window closed: there is nothing left to wait for.
            if self.recorder.as_ref().is_some_and(|recorder| !recorder.is_closed()) {
                self.look(true);
            }
            return true;
        }
        false
    }

    /// Ends everything, in order or not, and tells what was seen.
    pub(crate) fn report(mut self) -> EndReport {
        if self.recorder.as_ref().is_some_and(|recorder| !recorder.is_closed()) {
            self.interrupted = true;
            self.look(true);
        }
        let over = self.engine.is_over();
        if !over {
            self.engine.abort();
        }
        self.engine.units(&mut self.units);
        let start = MonoNanos::default();
        let recorder = self.recorder.take().unwrap_or_else(|| {
            Recorder::new(start, Duration::ZERO, Duration::ZERO, None, self.units.len(), None)
        });
        let (window_start, window_end) = recorder.window();
        let mut flows: Vec<FlowReport> = recorder
            .flows()
            .iter()
            .enumerate()
            .map(|(index, marks)| FlowReport {
                total: self.units[index],
                window: marks.window_units(),
                first: marks.first,
                last: (self.units[index] > 0).then_some(window_end),
                socket: self.sockets[index].clone(),
                tcp: self.tcp[index].clone(),
                window_retransmits: self.retransmits_of(index),
                fault: None,
            })
            .collect();
        for end in self.engine.ends() {
            let flow = &mut flows[end.index];
            // A window that nothing cut but the end of its flows was to be longer.
            let closes = if self.interrupted { recorder.closes() } else { recorder.planned() };
            flow.fault = self.fault(end.at, end.error.as_ref(), closes);
            flow.last = flow.last.map(|last| last.min(end.at));
        }
        let (cpu, cpu_reason) = match (self.opening.as_ref(), self.closing.as_ref()) {
            (Some(Edge { host: Ok(then), .. }), Some(Edge { host: Ok(now), .. })) => {
                (Some(now.since(then)), None)
            }
            (Some(Edge { host: Err(error), .. }), _) | (_, Some(Edge { host: Err(error), .. })) => {
                (None, Some(error.to_string()))
            }
            _ => (None, Some("the window never opened".to_owned())),
        };
        let (threads, detail) = (self.threads(), self.ledger.detail());
        let observed = self.watch.take().map(Watch::report).map(Box::new);
        EndReport {
            host: self.host.clone(),
            role: self.role,
            window_start,
            window_end,
            flows,
            intervals: recorder.into_intervals(),
            cpu,
            cpu_reason,
            threads,
            drained: self.drained,
            interrupted: self.interrupted,
            shared_server: false,
            detail,
            ceiling: self.ceiling,
            observed,
        }
    }

    fn retransmits_of(&self, flow: usize) -> Option<u64> {
        let at = |edge: &Option<Edge>| edge.as_ref()?.retransmits.get(flow).copied().flatten();
        at(&self.closing)?.checked_sub(at(&self.opening)?)
    }

    fn threads(&self) -> Vec<ThreadReport> {
        let at = |edge: &Option<Edge>, index: usize| match edge.as_ref().map(|edge| &edge.threads[index]) {
            Some(Ok(time)) => Ok(*time),
            Some(Err(error)) => Err(error.to_string()),
            None => Err("the window never opened".to_owned()),
        };
        self.engine
            .workers()
            .enumerate()
            .map(|(index, worker)| {
                let used = at(&self.opening, index)
                    .and_then(|then| at(&self.closing, index).map(|now: ThreadTime| now.since(then)));
                let affinity = worker.affinity.as_ref().ok().cloned();
                let node = affinity.as_ref().and_then(node_of);
                let tid = Some(worker.tid);
                match used {
                    Ok(cpu) => ThreadReport { tid, cpu: Some(cpu), reason: None, affinity, node },
                    Err(reason) => ThreadReport { tid, cpu: None, reason: Some(reason), affinity, node },
                }
            })
            .collect()
    }

    /// What the end of a flow means: nothing where it came in order.
    fn fault(&self, at: MonoNanos, error: Option<&io::Error>, closes: MonoNanos) -> Option<String> {
        if self.interrupted || (self.by_amount && error.is_none()) {
            return None;
        }
        if let Some(error) = error {
            // Once the window is closed a reset takes nothing from the numbers; that data were left is `drained`.
            return (at < closes).then(|| error.to_string());
        }
        let early = closes.since(at);
        let who = if self.role == Role::Responder { "client" } else { "sender" };
        (early > self.window.mul_f64(EARLY_END))
            .then(|| format!("the {who} closed it {:.2} s before the end of the window", early.as_secs_f64()))
    }
}

/// One end of a leg, as its workers are made for it.
#[derive(Clone, Copy)]
pub(crate) struct Ends<'a> {
    pub(crate) spec: &'a RunSpec,
    pub(crate) client: bool,
    pub(crate) role: Role,
}

impl Ends<'_> {
    /// What the engine needs to know of it, for workers that wait in this manner.
    pub(crate) fn crew(
        self,
        sockets: Vec<Arc<OwnedFd>>,
        bucket: Option<&Bucket>,
        manner: Manner,
    ) -> Result<Crew<'_>> {
        let manner = if self.spec.spin { Manner::Spin } else { manner };
        let (pin, threads) = (self.spec.pin_of(self.client).cloned(), self.spec.threads);
        let crew = Crew { sockets, keep: Vec::new(), pin, threads, lanes: None, bucket, manner };
        if self.spec.placement == Placement::Pair { by_arrival(crew) } else { Ok(crew) }
    }
}

/// A worker on each CPU, and each flow with the one on whose CPU its packets arrive: what receive-side scaling has spread
/// is not carried to another cache. A flow whose CPU is not known, or not ours to use, takes the next in turn.
fn by_arrival(crew: Crew<'_>) -> Result<Crew<'_>> {
    let cpus = thread::affinity_of_current()?;
    let lanes = crew.sockets.iter().enumerate().map(|(flow, socket)| {
        let cpu = socket::incoming_cpu(socket.as_fd()).ok();
        cpu.and_then(|cpu| cpus.cpus().iter().position(|&ours| ours == cpu)).unwrap_or(flow)
    });
    let lanes = Some(lanes.collect());
    Ok(Crew { lanes, threads: u32::try_from(cpus.cpus().len()).ok(), pin: Some(cpus), ..crew })
}

/// The NUMA node that all of these CPUs belong to.
fn node_of(cpus: &CpuList) -> Option<u32> {
    let mut nodes = cpus.cpus().iter().map(|&cpu| thread::numa_node(cpu));
    let first = nodes.next()??;
    nodes.all(|node| node == Some(first)).then_some(first)
}

/// Segments sent again by each flow so far; nothing where this end sends none.
fn retransmits_of(role: Role, engine: &Engine) -> Vec<Option<u64>> {
    if role == Role::Receiver {
        return Vec::new();
    }
    engine
        .sockets()
        .iter()
        .map(|socket| TcpFacts::read(socket.as_fd()).ok().and_then(|tcp| tcp.retransmits_total))
        .collect()
}
