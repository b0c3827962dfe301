//! The engine: worker threads, a start barrier, counters, and a stop that always comes.
//!
//! A workload is a [`Work`]: what one flow does each time its socket is ready. Everything else is here, once.
//! A worker with one flow blocks in its system call, which is the bare loop and nothing more; a worker with several
//! waits in epoll and gives each ready flow one step, so that no flow starves another. Counters are single-writer
//! and relaxed, one cache line each: the sampling thread reads them while the workers run, and nothing in the loop
//! waits for output or a lock, nor for a clock unless a rate or a latency was asked for.
//!
//! ```text
//! prepare ── workers make buffers, pin themselves ──▶ at the gate ── open(at) ──▶ sleep until at ──▶ step, step, …
//!     who leads (a sender, a requester) winds up at the flag and takes leave; who follows stops at that leave;
//!     a socket shut down under either (a frozen peer, a spent deadline) ends the call it is blocked in;
//!     then they wait to be dismissed, because the CPU time of a thread that is gone cannot be read.
//! ```

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use haul_host::clock;
use haul_host::socket::{self, Interest};
use haul_host::thread::{self, CpuList, Tid};
use haul_stats::MonoNanos;

use crate::error::{Result, WorkloadError};
use crate::pace::Bucket;

mod shift;

use shift::{Flow, Shift};

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moved {
    /// So much was completed, in the workload's own unit: bytes of a stream, transactions of an exchange.
    Units(u64),
    /// Nothing: the flow waits for an entry in its socket's error queue, not for room or data.
    Waits,
    /// The peer has taken leave.
    End,
}

/// Which flow a work is for, and which worker's it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) flow: u32,
    pub(crate) lane: usize,
    /// How that worker waits: as it was asked for, but in epoll where several flows share it.
    pub(crate) manner: Manner,
}

/// One flow's share of a workload. `fd` is the flow's socket throughout, unless the work has one of its own.
pub(crate) trait Work: Send + 'static {
    /// Whether it leads: waits for the common start, ends at the stop flag, and takes leave. Who follows is in its call
    /// before the start, and ends when its peer does.
    const LEADS: bool;

    /// What its threads are called, as `top -H` shows them.
    const NAME: &'static str;

    /// Whether its thread has a table of descriptors of its own. It then sees the flows' sockets, what the crew keeps, and
    /// what it opens itself, which must not leave the thread.
    const OWN_TABLE: bool = false;

    /// How often a call that its thread blocks in is ended, by [`thread::nudge`], so that it looks at the orders: for work
    /// that waits on sockets the engine does not have, and so cannot shut down. `None` for all others.
    const NUDGE: Option<Duration> = None;

    /// How long after the last step the leave is taken: datagrams still under way must not be overtaken by it.
    const LEAVE_AFTER: Duration = Duration::ZERO;

    /// Begins, at the start: what is in flight before anything has come back.
    fn begin(&mut self, _fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }

    /// Does one system call's worth of work.
    fn step(&mut self, fd: BorrowedFd<'_>) -> io::Result<Moved>;

    /// What it waits for before its next step, among other flows.
    fn interest(&self) -> Interest {
        if Self::LEADS { Interest::WRITE } else { Interest::READ }
    }

    /// When it wants a step although its socket is not ready.
    fn due(&self) -> Option<MonoNanos> {
        None
    }

    /// Whether it waits for that time and for nothing else: a worker that would block in a call sleeps until then.
    fn idle(&self) -> bool {
        false
    }

    /// Told at the stop flag, again and again, to one who leads: nothing new is to be begun. True once nothing that was
    /// begun is worth waiting for any more.
    fn wind_up(&mut self) -> bool {
        true
    }

    /// Whether the descriptor to wait on is another than before the last step: the next connection of a flow that
    /// makes many. The old one is closed, or need not be waited for.
    fn turned(&mut self) -> bool {
        false
    }

    /// The descriptor to wait on, where it is not the flow's own.
    fn own_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Takes in what the kernel says in the socket's error queue while the flow is held back; false where that was
    /// nothing, so that the event was the end of the connection.
    fn settle(&mut self, _fd: BorrowedFd<'_>) -> bool {
        false
    }

    /// Tells the peer that nothing more will come.
    fn leave(&mut self, fd: BorrowedFd<'_>) {
        // An error here is the same broken connection that the step has reported.
        let _ = socket::shutdown(fd, Shutdown::Write);
    }
}

/// How a worker waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// In the system call itself where it has one flow, in epoll where it has several.
    Block,
    /// In epoll also for one flow: it has to look after a clock as well, or must never block in a send.
    Epoll,
    /// Not at all: it asks again and again.
    Spin,
}

/// What an engine is made of.
pub(crate) struct Crew<'a> {
    /// The flows' sockets, by flow.
    pub(crate) sockets: Vec<Arc<OwnedFd>>,
    /// What else the workers use, of what they have not opened themselves.
    pub(crate) keep: Vec<Arc<OwnedFd>>,
    /// The CPUs of the workers, one each in turn.
    pub(crate) pin: Option<CpuList>,
    /// How many workers; as many as there are CPUs to run on where it is not said, and never more than flows.
    pub(crate) threads: Option<u32>,
    /// The worker of each flow, where it is not simply the next one in turn.
    pub(crate) lanes: Option<Vec<usize>>,
    /// Every flow's pace.
    pub(crate) bucket: Option<&'a Bucket>,
    pub(crate) manner: Manner,
}

/// A flow's counter, alone on its cache line (and the line the prefetcher pulls in with it).
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds what was completed. There is one writer, so a load and a store do, without a locked instruction.
    #[inline]
    pub(crate) fn add(&self, units: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + units, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How a flow ended.
#[derive(Debug)]
pub(crate) struct FlowEnd {
    pub(crate) index: usize,
    /// When the worker let go of it.
    pub(crate) at: MonoNanos,
    /// The error, where it was not the end of the stream or the stop flag.
    pub(crate) error: Option<io::Error>,
}

/// Where workers wait for the common start.
#[derive(Debug, Default)]
struct Gate {
    at: Mutex<Opening>,
    opened: Condvar,
}

/// Where workers wait for leave to go.
#[derive(Debug, Default)]
struct Dismissal {
    given: Mutex<bool>,
    told: Condvar,
}

impl Dismissal {
    fn give(&self) {
        *self.given.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.told.notify_all();
    }

    fn wait(&self) {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.told.wait_while(given, |given| !*given));
    }

    /// Whether it is given within so long.
    fn wait_for(&self, length: Duration) -> bool {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.told.wait_timeout_while(given, length, |given| !*given);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

#[derive(Debug, Default, Clone, Copy)]
enum Opening {
    #[default]
    Shut,
    At(MonoNanos),
    Never,
}

impl Gate {
    fn set(&self, opening: Opening) {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = opening;
        self.opened.notify_all();
    }

    /// Waits for the start; false where there will be none. All but the last stretch can be called off.
    fn pass(&self) -> bool {
        const LAST: Duration = Duration::from_millis(2);
        let mut opening = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let at = match *opening {
                Opening::Never => return false,
                Opening::Shut => {
                    opening = self.opened.wait(opening).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
                Opening::At(at) => at,
            };
            let rest = at.since(clock::now());
            if rest <= LAST {
                drop(opening);
                clock::sleep_until(at);
                return true;
            }
            let woken = self.opened.wait_timeout(opening, rest.saturating_sub(LAST));
            opening = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// What workers are told while they run.
#[derive(Debug, Default)]
struct Orders {
    /// To those who lead: it is time to end.
    stop: AtomicBool,
    /// To those who follow: nothing more will come. A socket that was shut down wakes its worker, but UDP's says no more of
    /// it to a call that does not wait than that nothing has come.
    gone: AtomicBool,
}

impl Orders {
    #[inline]
    fn stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    #[inline]
    fn gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }
}

/// A worker as the sampling thread sees it.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) tid: Tid,
    pub(crate) affinity: haul_host::Result<CpuList>,
}

/// The running workers of one end of one run. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Engine {
    sockets: Vec<Arc<OwnedFd>>,
    /// Let go of after the workers have: in a table of their own the last of them would close their copy only.
    kept: Vec<Arc<OwnedFd>>,
    ring: Arc<UnixStream>,
    counters: Vec<Arc<Counter>>,
    workers: Vec<(usize, Worker)>,
    threads: Vec<JoinHandle<()>>,
    gate: Arc<Gate>,
    dismissal: Arc<Dismissal>,
    nudging: Option<Nudging>,
    orders: Arc<Orders>,
    ends: mpsc::Receiver<FlowEnd>,
    bell: UnixStream,
    ended: Vec<FlowEnd>,
}

/// How long workers get to make their buffers: they are bounded in size, and pages are a microsecond each.
const READY_LIMIT: Duration = Duration::from_secs(5);

impl Engine {
    /// Starts the workers and waits until each stands at the gate, its buffers written. `work` makes a flow's share on
    /// the thread that will run it; every flow gets a bucket of its own, where there is one.
    pub(crate) fn prepare<W: Work>(
        crew: Crew<'_>,
        work: impl Fn(Place) -> Result<W> + Send + Sync + 'static,
    ) -> Result<Self> {
        let Crew { sockets, keep, pin, threads, lanes: by_flow, bucket, manner } = crew;
        let usual = match (threads, &pin) {
            (Some(threads), _) => threads as usize,
            (None, Some(cpus)) => cpus.cpus().len(),
            (None, None) => thread::affinity_of_current()?.cpus().len(),
        };
        let lanes = usual.clamp(1, sockets.len().max(1));
        let counters: Vec<Arc<Counter>> = sockets.iter().map(|_| Arc::default()).collect();
        let (ends_tx, ends) = mpsc::channel();
        let fault = |error| WorkloadError::os("create", "the workers' bell", error);
        let (bell, ring) = UnixStream::pair().map_err(fault)?;
        bell.set_nonblocking(true).map_err(fault)?;
        ring.set_nonblocking(true).map_err(fault)?;
        let mut engine = Self {
            sockets,
            kept: keep,
            ring: Arc::new(ring),
            counters,
            workers: Vec::new(),
            threads: Vec::new(),
            gate: Arc::default(),
            dismissal: Arc::default(),
            nudging: None,
            orders: Arc::default(),
            ends,
            bell,
            ended: Vec::new(),
        };
        let work = Arc::new(work);
        let (ready_tx, ready) = mpsc::channel();
        for lane in 0..lanes {
            let lane_of = |flow: usize| match &by_flow {
                Some(by_flow) => by_flow.get(flow).map_or(0, |&lane| lane % lanes),
                None => flow % lanes,
            };
            let mine: Vec<usize> = (0..engine.sockets.len()).filter(|&flow| lane_of(flow) == lane).collect();
            let manner = if manner == Manner::Block && mine.len() > 1 { Manner::Epoll } else { manner };
            let mut shares = Vec::with_capacity(mine.len());
            for index in mine {
                let socket = Arc::clone(&engine.sockets[index]);
                socket::set_nonblocking(socket.as_fd(), manner != Manner::Block)
                    .map_err(|error| WorkloadError::os("prepare", "a data socket", error))?;
                shares.push((index, socket, Arc::clone(&engine.counters[index])));
            }
            let dismissal = Arc::clone(&engine.dismissal);
            let (gate, orders, ends, ready) =
                (Arc::clone(&engine.gate), Arc::clone(&engine.orders), ends_tx.clone(), ready_tx.clone());
            let (bell, work, bucket) = (Arc::clone(&engine.ring), Arc::clone(&work), bucket.cloned());
            let cpu: Option<CpuList> = pin.as_ref().map(|pin| {
                let cpus = pin.cpus();
                cpus.iter().copied().skip(lane % cpus.len().max(1)).take(1).collect()
            });
            let own = shares.iter().map(|(_, socket, _)| socket);
            let keep: Vec<Arc<OwnedFd>> = own.chain(&engine.kept).cloned().collect();
            let thread = std::thread::Builder::new()
                .name(format!("haul-{}-{lane}", W::NAME))
                .spawn(move || {
                    let made = begin(cpu.as_ref(), W::NUDGE.is_some()).and_then(|()| {
                        if W::OWN_TABLE {
                            let keep = keep.iter().map(|kept| kept.as_fd());
                            thread::own_descriptors(keep.chain([bell.as_fd()]));
                        }
                        shares
                            .into_iter()
                            .map(|(index, socket, counter)| {
                                let flow = u32::try_from(index).unwrap_or(u32::MAX);
                                let (work, bucket) =
                                    (work(Place { flow, lane, manner })?, bucket.clone().map(Box::new));
                                Ok(Flow { index, socket, counter, work, bucket })
                            })
                            .collect::<Result<Vec<_>>>()
                    });
                    match made {
                        Ok(flows) => {
                            let _ =
                                ready.send(Ok((lane, thread::current_tid(), thread::affinity_of_current())));
                            Shift { flows, gate, orders, ends, bell, manner }.run();
                            dismissal.wait();
                        }
                        Err(error) => drop(ready.send(Err(error))),
                    }
                })
                .map_err(|error| WorkloadError::os("start", "a worker thread", error))?;
            engine.threads.push(thread);
        }
        drop(ready_tx);
        for _ in 0..lanes {
            let (lane, tid, affinity) = ready.recv_timeout(READY_LIMIT).map_err(|_| {
                WorkloadError::Slow { what: "worker threads to make their buffers", after: READY_LIMIT }
            })??;
            engine.workers.push((lane, Worker { tid, affinity }));
        }
        engine.workers.sort_by_key(|(lane, _)| *lane);
        if let Some(every) = W::NUDGE.filter(|_| manner == Manner::Block) {
            engine.nudging =
                Some(Nudging::start(every, engine.workers().map(|worker| worker.tid).collect())?);
        }
        Ok(engine)
    }

    /// Lets the workers go at `at`.
    pub(crate) fn open(&self, at: MonoNanos) {
        self.gate.set(Opening::At(at));
    }

    /// Asks those who lead to stop.
    pub(crate) fn stop(&self) {
        self.orders.stop.store(true, Ordering::Relaxed);
    }

    /// Ends every flow now, whatever it is blocked in.
    pub(crate) fn abort(&self) {
        self.stop();
        self.gate.set(Opening::Never);
        self.hang_up();
    }

    /// Ends those who follow and whose peers cannot tell them to: everything that was to come has come.
    pub(crate) fn hang_up(&self) {
        self.orders.gone.store(true, Ordering::Relaxed);
        for socket in &self.sockets {
            // A socket the peer has already reset cannot be shut down again, and need not be.
            let _ = socket::shutdown(socket.as_fd(), Shutdown::Both);
        }
    }

    /// What each flow has completed so far, in the workload's unit.
    pub(crate) fn units(&self, into: &mut Vec<u64>) {
        into.clear();
        into.extend(self.counters.iter().map(|counter| counter.get()));
    }

    pub(crate) fn sockets(&self) -> &[Arc<OwnedFd>] {
        &self.sockets
    }

    pub(crate) fn workers(&self) -> impl Iterator<Item = &Worker> {
        self.workers.iter().map(|(_, worker)| worker)
    }

    /// Readable when a flow has ended.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Whether every flow has ended.
    pub(crate) fn is_over(&mut self) -> bool {
        let mut sink = [0; 64];
        while matches!(io::Read::read(&mut &self.bell, &mut sink), Ok(n) if n > 0) {}
        self.ended.extend(self.ends.try_iter());
        self.ended.len() == self.sockets.len()
    }

    /// How the flows ended so far, in order of their end.
    pub(crate) fn ends(&self) -> &[FlowEnd] {
        &self.ended
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.abort();
        self.dismissal.give();
        for thread in self.threads.drain(..) {
            // A worker that panicked has been reported through its flows' missing ends.
            let _ = thread.join();
        }
        // They may have been blocked until now.
        drop(self.nudging.take());
    }
}

/// A thread that ends the workers' blocking calls now and then, until it is dropped. Whose number a worker's has become by
/// then is not asked: a thread that does not wait for nudges has them blocked or goes on as after any other signal.
#[derive(Debug)]
struct Nudging {
    enough: Arc<Dismissal>,
    thread: Option<JoinHandle<()>>,
}

impl Nudging {
    fn start(every: Duration, workers: Vec<Tid>) -> Result<Self> {
        let enough = Arc::<Dismissal>::default();
        let told = Arc::clone(&enough);
        let nudge = move || {
            while !told.wait_for(every) {
                for &worker in &workers {
                    thread::nudge(worker);
                }
            }
        };
        let started = std::thread::Builder::new().name("haul-nudge".to_owned()).spawn(nudge);
        let thread = started.map_err(|error| WorkloadError::os("start", "the thread that nudges", error))?;
        Ok(Self { enough, thread: Some(thread) })
    }
}

impl Drop for Nudging {
    fn drop(&mut self) {
        self.enough.give();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Places the calling worker, leaves it alone but for nudges, and has it woken on time.
fn begin(cpu: Option<&CpuList>, nudged: bool) -> Result<()> {
    if let Some(cpu) = cpu {
        thread::pin_current(cpu)?;
    }
    thread::leave_signals_to_others()?;
    if nudged {
        thread::accept_nudges()?;
    }
    // A pace or a schedule is slept through, and up to 50 µs later would be another one.
    Ok(thread::wake_exactly()?)
}
