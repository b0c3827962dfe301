//! The engine: worker threads, a start barrier, counters, and a stop that always comes.
//!
//! A workload is a [`Work`]: what one flow does each time its socket is ready. Everything else is here, once.
//! A worker with one flow blocks in its system call, which is the bare loop and nothing more; a worker with several
//! waits in epoll and gives each ready flow one step, so that no flow starves another. Counters are single-writer
//! and relaxed, one cache line each: the sampling thread reads them while the workers run, and nothing in the loop
//! waits for output or a lock, nor for a clock unless a rate was asked for.
//!
//! ```text
//! prepare ── workers make buffers, pin themselves ──▶ at the gate ── open(at) ──▶ sleep until at ──▶ step, step, …
//!     senders stop at the flag and half-close; receivers stop at the end of the stream;
//!     a socket shut down under either (a frozen peer, a spent deadline) ends the call it is blocked in;
//!     then they wait to be dismissed, because the CPU time of a thread that is gone cannot be read.
//! ```

use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use haul_host::clock;
use haul_host::thread::{self, CpuList, Tid};
use haul_stats::MonoNanos;

use crate::error::{Result, WorkloadError};
use crate::pace::Bucket;

mod shift;

use shift::{Flow, Shift};

/// What a flow waits for before its next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    Readable,
    Writable,
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moved {
    /// So many bytes were completed.
    Bytes(u64),
    /// Nothing: the flow waits for an entry in its socket's error queue, not for room or data.
    Waits,
    /// The peer has closed its side.
    End,
}

/// One flow's share of a workload.
pub(crate) trait Work: Send + 'static {
    /// What the flow waits for. Who waits to write is a sender: it ends at the stop flag, by half-closing.
    const READY: Ready;

    /// Does one system call's worth of work.
    fn step(&mut self, fd: BorrowedFd<'_>) -> io::Result<Moved>;

    /// Takes in what the kernel says in the socket's error queue while the flow is held back; false where that was
    /// nothing, so that the event was the end of the connection.
    fn settle(&mut self, _fd: BorrowedFd<'_>) -> bool {
        false
    }
}

/// A flow's counter, alone on its cache line (and the line the prefetcher pulls in with it).
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds what was completed. There is one writer, so a load and a store do, without a locked instruction.
    #[inline]
    fn add(&self, bytes: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
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

/// A worker as the sampling thread sees it.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) tid: Tid,
    pub(crate) affinity: haul_host::Result<CpuList>,
}

/// The running workers of one end of one run. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Engine {
    sockets: Vec<Arc<TcpStream>>,
    counters: Vec<Arc<Counter>>,
    workers: Vec<(usize, Worker)>,
    threads: Vec<JoinHandle<()>>,
    gate: Arc<Gate>,
    dismissal: Arc<Dismissal>,
    stop: Arc<AtomicBool>,
    ends: mpsc::Receiver<FlowEnd>,
    bell: UnixStream,
    ended: Vec<FlowEnd>,
}

/// How long workers get to make their buffers: they are bounded in size, and pages are a microsecond each.
const READY_LIMIT: Duration = Duration::from_secs(5);

impl Engine {
    /// Starts the workers and waits until each stands at the gate, its buffers written. `work` makes a flow's share on
    /// the thread that will run it; every flow gets a `bucket` of its own, where there is one.
    pub(crate) fn prepare<W: Work>(
        sockets: Vec<TcpStream>,
        pin: Option<&CpuList>,
        bucket: Option<&Bucket>,
        work: impl Fn(u32) -> Result<W> + Send + Sync + 'static,
    ) -> Result<Self> {
        let lanes = sockets.len().min(match pin {
            Some(cpus) => cpus.cpus().len(),
            None => thread::affinity_of_current()?.cpus().len(),
        });
        let sockets: Vec<Arc<TcpStream>> = sockets.into_iter().map(Arc::new).collect();
        let counters: Vec<Arc<Counter>> = sockets.iter().map(|_| Arc::default()).collect();
        let (gate, stop) = (Arc::new(Gate::default()), Arc::new(AtomicBool::new(false)));
        let (ends_tx, ends) = mpsc::channel();
        let (bell, ring) =
            UnixStream::pair().map_err(|error| WorkloadError::os("create", "the workers' bell", error))?;
        bell.set_nonblocking(true)
            .map_err(|error| WorkloadError::os("prepare", "the workers' bell", error))?;
        ring.set_nonblocking(true)
            .map_err(|error| WorkloadError::os("prepare", "the workers' bell", error))?;
        let mut engine = Self {
            sockets,
            counters,
            workers: Vec::new(),
            threads: Vec::new(),
            gate,
            dismissal: Arc::default(),
            stop,
            ends,
            bell,
            ended: Vec::new(),
        };
        let work = Arc::new(work);
        let (ready_tx, ready) = mpsc::channel();
        for lane in 0..lanes {
            let mine: Vec<usize> = (lane..engine.sockets.len()).step_by(lanes).collect();
            for &index in &mine {
                // One flow blocks in its call; several share an epoll and must not.
                engine.sockets[index]
                    .set_nonblocking(mine.len() > 1)
                    .map_err(|error| WorkloadError::os("prepare", "a data socket", error))?;
            }
            let shares: Vec<_> = mine
                .iter()
                .map(|&index| {
                    (index, Arc::clone(&engine.sockets[index]), Arc::clone(&engine.counters[index]))
                })
                .collect();
            let dismissal = Arc::clone(&engine.dismissal);
            let (gate, stop, ends, ready) =
                (Arc::clone(&engine.gate), Arc::clone(&engine.stop), ends_tx.clone(), ready_tx.clone());
            let bell =
                ring.try_clone().map_err(|error| WorkloadError::os("create", "the workers' bell", error))?;
            let (work, bucket) = (Arc::clone(&work), bucket.cloned());
            let cpu: Option<CpuList> = pin.map(|pin| pin.cpus().iter().copied().skip(lane).take(1).collect());
            let thread = std::thread::Builder::new()
                .name(format!("haul-{}-{lane}", if W::READY == Ready::Writable { "send" } else { "recv" }))
                .spawn(move || {
                    let made = begin(cpu.as_ref()).and_then(|()| {
                        shares
                            .into_iter()
                            .map(|(index, socket, counter)| {
                                let flow = u32::try_from(index).unwrap_or(u32::MAX);
                                let bucket = bucket.clone();
                                Ok(Flow { index, socket, counter, work: work(flow)?, bucket })
                            })
                            .collect::<Result<Vec<_>>>()
                    });
                    match made {
                        Ok(flows) => {
                            let _ =
                                ready.send(Ok((lane, thread::current_tid(), thread::affinity_of_current())));
                            Shift { flows, gate, stop, ends, bell }.run();
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
        Ok(engine)
    }

    /// Lets the workers go at `at`.
    pub(crate) fn open(&self, at: MonoNanos) {
        self.gate.set(Opening::At(at));
    }

    /// Asks senders to stop.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Ends every flow now, whatever it is blocked in.
    pub(crate) fn abort(&self) {
        self.stop();
        self.gate.set(Opening::Never);
        for socket in &self.sockets {
            // A socket the peer has already reset cannot be shut down again, and need not be.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Cumulative bytes of each flow.
    pub(crate) fn bytes(&self, into: &mut Vec<u64>) {
        into.clear();
        into.extend(self.counters.iter().map(|counter| counter.get()));
    }

    pub(crate) fn sockets(&self) -> &[Arc<TcpStream>] {
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
    }
}

/// Places the calling worker.
fn begin(cpu: Option<&CpuList>) -> Result<()> {
    if let Some(cpu) = cpu {
        thread::pin_current(cpu)?;
    }
    Ok(())
}
