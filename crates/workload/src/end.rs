//! One end of one run: the workers, the recorder, and the snapshots at the edges of the window.
//!
//! An [`End`] has no loop of its own. Whoever holds it, client or server, waits for whichever comes first of the
//! control connection, the workers' bell and [`End::wake_at`], and calls [`End::tick`]: one thread per end watches the
//! clock, the peer and the counters, and the workers share nothing with it but their counters and a flag.
//!
//! At each edge the counters are read first, with the clock beside them, and the CPU figures directly after, in the
//! same order at both edges, so that what the reading itself costs falls outside or cancels.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use haul_host::clock;
use haul_host::probe::cpu::HostCpu;
use haul_host::socket::{self, Requested, SocketFacts, TcpFacts};
use haul_host::thread::{self, ThreadTime};
use haul_stats::MonoNanos;

use crate::ceiling;
use crate::engine::Engine;
use crate::error::Result;
use crate::mode::SendWith;
use crate::pace::Bucket;
use crate::recorder::Recorder;
use crate::report::{EndReport, FlowReport, HostId, IntervalReport, Role, ThreadReport, ZerocopyReport};
use crate::spec::{Direction, StreamSpec};
use crate::stream::{FileSending, Receiving, Sending, Tally, ZerocopySending};

/// How long data still in flight at the end may take to arrive. Four megabytes at 50 Mbit/s take 0.7 s.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

/// How long a sender goes on after its own window: the receiver's closes later by the error of the clocks and by however
/// late its thread is woken, and a window must not end in silence.
fn overrun(window: Duration) -> Duration {
    (window / 100).clamp(Duration::from_millis(5), Duration::from_millis(50))
}

/// Share of the window by which a sender may end early before it counts as a fault of the flow.
const EARLY_END: f64 = 0.05;

/// CPU figures at an edge of the window.
#[derive(Debug)]
struct Edge {
    host: haul_host::Result<HostCpu>,
    threads: Vec<haul_host::Result<ThreadTime>>,
    retransmits: Vec<Option<u64>>,
    zerocopy: ZerocopyReport,
}

/// One end of one run.
#[derive(Debug)]
pub(crate) struct End {
    host: HostId,
    requested: Requested,
    role: Role,
    window: Duration,
    warmup: Duration,
    interval: Option<Duration>,
    engine: Engine,
    recorder: Option<Recorder>,
    opening: Option<Edge>,
    closing: Option<Edge>,
    /// One for each flow that sends without a copy.
    tallies: Vec<Arc<Tally>>,
    tcp: Vec<Option<TcpFacts>>,
    sockets: Vec<Option<SocketFacts>>,
    bytes: Vec<u64>,
    stop_at: Option<MonoNanos>,
    drain_until: Option<MonoNanos>,
    drained: bool,
    interrupted: bool,
    ceiling: Option<f64>,
}

impl End {
    /// Starts this end's workers on connected sockets, one per flow, and leaves them at the gate.
    pub(crate) fn prepare(
        spec: &StreamSpec,
        client: bool,
        sockets: Vec<TcpStream>,
        host: HostId,
    ) -> Result<Self> {
        let role = if client == (spec.direction == Direction::Send) { Role::Sender } else { Role::Receiver };
        let copies = role == Role::Sender && spec.send_with == SendWith::Write;
        let ceiling =
            if copies { ceiling::of(spec.message, spec.send_offset, spec.payload).ok() } else { None };
        let tallies: Vec<Arc<Tally>> = if role == Role::Sender && spec.send_with == SendWith::Zerocopy {
            sockets.iter().map(|_| Arc::default()).collect()
        } else {
            Vec::new()
        };
        let engine = workers(spec, client, role, sockets, tallies.clone())?;
        let flows = engine.sockets().len();
        Ok(Self {
            host,
            requested: spec.sockets(),
            role,
            window: spec.window,
            warmup: spec.warmup,
            interval: spec.interval,
            engine,
            recorder: None,
            opening: None,
            closing: None,
            tallies,
            tcp: vec![None; flows],
            sockets: vec![None; flows],
            bytes: Vec::with_capacity(flows),
            stop_at: None,
            drain_until: None,
            drained: false,
            interrupted: false,
            ceiling,
        })
    }

    /// Lets the flows go at `at`.
    pub(crate) fn start(&mut self, at: MonoNanos) {
        self.engine.open(at);
        let flows = self.engine.sockets().len();
        self.recorder = Some(Recorder::new(at, self.warmup, self.window, self.interval, flows));
    }

    /// When [`End::tick`] must be called next.
    pub(crate) fn wake_at(&self) -> Option<MonoNanos> {
        self.recorder.as_ref().and_then(Recorder::next).or(self.stop_at).or(self.drain_until)
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
            self.engine.bytes(&mut self.bytes);
            // TCP_INFO takes the socket's lock: with intervals it is read at each look, otherwise at the edges only.
            let retransmits = (self.role == Role::Sender && self.interval.is_some())
                .then(|| retransmits(&self.engine).into_iter().sum::<Option<u64>>())
                .flatten();
            // Woken so late that the flows had ended meanwhile: what follows their end is not part of the window.
            let at = ended.filter(|&ended| ended >= recorder.closes() && ended < now).unwrap_or(now);
            let seen = if cut {
                recorder.cut(at, &self.bytes, retransmits)
            } else {
                recorder.look(at, &self.bytes, retransmits)
            };
            interval = seen.interval;
            if seen.opened {
                self.opening = Some(self.edge());
            }
            if seen.closed {
                self.closing = Some(self.edge());
                self.note_sockets();
                self.stop_at = Some(now.after(if cut { Duration::ZERO } else { overrun(self.window) }));
                self.drain_until = Some(now.after(DRAIN_LIMIT));
            }
        }
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

    fn edge(&self) -> Edge {
        Edge {
            host: HostCpu::read(),
            threads: self.engine.workers().map(|worker| thread::cpu_time(worker.tid)).collect(),
            retransmits: if self.role == Role::Sender { retransmits(&self.engine) } else { Vec::new() },
            zerocopy: self.tallies.iter().fold(ZerocopyReport::default(), |sum, tally| {
                let (completed, copied) = tally.get();
                ZerocopyReport { completed: sum.completed + completed, copied: sum.copied + copied }
            }),
        }
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
            self.drained = self.drain_until.is_some();
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
        self.engine.bytes(&mut self.bytes);
        let start = MonoNanos::default();
        let recorder = self
            .recorder
            .take()
            .unwrap_or_else(|| Recorder::new(start, Duration::ZERO, Duration::ZERO, None, self.bytes.len()));
        let (window_start, window_end) = recorder.window();
        let mut flows: Vec<FlowReport> = recorder
            .flows()
            .iter()
            .enumerate()
            .map(|(index, marks)| FlowReport {
                total_bytes: self.bytes[index],
                window_bytes: marks.window_bytes(),
                first: marks.first,
                last: (self.bytes[index] > 0).then_some(window_end),
                socket: self.sockets[index].clone(),
                tcp: self.tcp[index].clone(),
                window_retransmits: self.retransmits_of(index),
                fault: None,
            })
            .collect();
        for end in self.engine.ends() {
            let flow = &mut flows[end.index];
            flow.fault = self.fault(end.at, end.error.as_ref(), recorder.closes());
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
        let (threads, zerocopy) = (self.threads(), self.zerocopy());
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
            zerocopy,
            ceiling: self.ceiling,
        }
    }

    /// The difference of the two edges. A flow's two counters are not read at one instant, hence the last bound.
    fn zerocopy(&self) -> Option<ZerocopyReport> {
        let (then, now) = (self.opening.as_ref()?.zerocopy, self.closing.as_ref()?.zerocopy);
        let completed = now.completed.saturating_sub(then.completed);
        let copied = now.copied.saturating_sub(then.copied).min(completed);
        (!self.tallies.is_empty()).then_some(ZerocopyReport { completed, copied })
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
                match used {
                    Ok(cpu) => ThreadReport { cpu: Some(cpu), reason: None, affinity },
                    Err(reason) => ThreadReport { cpu: None, reason: Some(reason), affinity },
                }
            })
            .collect()
    }

    /// What the end of a flow means: nothing where it came in order.
    fn fault(&self, at: MonoNanos, error: Option<&io::Error>, closes: MonoNanos) -> Option<String> {
        if self.interrupted {
            return None;
        }
        if let Some(error) = error {
            // Once the window is closed a reset takes nothing from the numbers; that data were left is `drained`.
            return (at < closes).then(|| error.to_string());
        }
        let early = closes.since(at);
        (early > self.window.mul_f64(EARLY_END)).then(|| {
            format!("the sender closed it {:.2} s before the end of the window", early.as_secs_f64())
        })
    }
}

/// Starts the workers of one end, each with the work that its role and mode are.
fn workers(
    spec: &StreamSpec,
    client: bool,
    role: Role,
    sockets: Vec<TcpStream>,
    tallies: Vec<Arc<Tally>>,
) -> Result<Engine> {
    let pin = spec.pin_of(client);
    let StreamSpec { message, payload, flows, send_with, recv_with, send_offset, recv_offset, .. } = *spec;
    if role == Role::Receiver {
        return Engine::prepare(sockets, pin, None, move |_| Receiving::new(message, recv_offset, recv_with));
    }
    let bucket = spec.rate.map(|rate| Bucket::new(rate, flows));
    let bucket = bucket.as_ref();
    match send_with {
        SendWith::Write => Engine::prepare(sockets, pin, bucket, move |flow| {
            Sending::new(message, send_offset, payload, flow)
        }),
        SendWith::Sendfile | SendWith::Splice => Engine::prepare(sockets, pin, bucket, move |flow| {
            FileSending::new(message, payload, send_with, flow)
        }),
        SendWith::Zerocopy => {
            sockets.iter().try_for_each(socket::enable_zerocopy)?;
            Engine::prepare(sockets, pin, bucket, move |flow| {
                let tally = tallies.get(flow as usize).map(Arc::clone).unwrap_or_default();
                ZerocopySending::new(message, send_offset, payload, (flow, flows), tally)
            })
        }
    }
}

fn retransmits(engine: &Engine) -> Vec<Option<u64>> {
    engine
        .sockets()
        .iter()
        .map(|socket| TcpFacts::read(socket.as_fd()).ok().and_then(|tcp| tcp.retransmits_total))
        .collect()
}
