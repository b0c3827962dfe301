//! What a worker thread does with its flows: one step after another, on time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use haul_host::clock;
use haul_host::socket::{self, Epoll, Interest};
use haul_stats::MonoNanos;

use super::{Counter, FlowEnd, Gate, Moved, Ready, Work};
use crate::pace::Bucket;

/// The longest a worker waits before it looks at the stop flag.
const STOP_LOOK: Duration = Duration::from_millis(20);

/// One flow in a worker's hands.
pub(super) struct Flow<W> {
    pub(super) index: usize,
    pub(super) socket: Arc<TcpStream>,
    pub(super) counter: Arc<Counter>,
    pub(super) work: W,
    /// Its pace, where it has one.
    pub(super) bucket: Option<Bucket>,
}

impl<W: Work> Flow<W> {
    /// One step: what it moved is counted, and charged to the pace.
    #[inline]
    fn step(&mut self) -> io::Result<Moved> {
        let moved = self.work.step(self.socket.as_fd())?;
        if let Moved::Bytes(bytes) = moved {
            self.counter.add(bytes);
            if let Some(bucket) = &mut self.bucket {
                bucket.spend(clock::now(), bytes);
            }
        }
        Ok(moved)
    }

    /// When the flow may go on, where it may not yet.
    #[inline]
    fn held_until(&self) -> Option<MonoNanos> {
        let due = self.bucket.as_ref()?.due();
        (due > clock::now()).then_some(due)
    }
}

/// What a worker thread is handed.
pub(super) struct Shift<W> {
    pub(super) flows: Vec<Flow<W>>,
    pub(super) gate: Arc<Gate>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) ends: mpsc::Sender<FlowEnd>,
    pub(super) bell: UnixStream,
}

impl<W: Work> Shift<W> {
    /// From the start to the end of the last flow.
    pub(super) fn run(self) {
        let Self { mut flows, gate, stop, ends, bell } = self;
        // Receivers do not wait for the start: whoever sends must find them in their call.
        if W::READY == Ready::Writable && !gate.pass() {
            return;
        }
        let now = clock::now();
        for bucket in flows.iter_mut().filter_map(|flow| flow.bucket.as_mut()) {
            bucket.start(now);
        }
        let finish = |index: usize, socket: &TcpStream, result: io::Result<()>| {
            if W::READY == Ready::Writable {
                // An error here is the same broken connection that the step has reported.
                let _ = socket.shutdown(Shutdown::Write);
            }
            let _ = ends.send(FlowEnd { index, at: clock::now(), error: result.err() });
            // A full bell has rung already.
            let _ = (&bell).write(&[1]);
        };
        if let [flow] = flows.as_mut_slice() {
            let result = alone(flow, &stop);
            finish(flow.index, &flow.socket, result);
        } else {
            together(flows, &stop, finish);
        }
    }
}

/// The bare loop: one flow, one blocking call after another.
fn alone<W: Work>(flow: &mut Flow<W>, stop: &AtomicBool) -> io::Result<()> {
    loop {
        if W::READY == Ready::Writable && stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        if let Some(until) = flow.held_until() {
            clock::sleep_until(until.min(clock::now().after(STOP_LOOK)));
            continue;
        }
        match flow.step() {
            Ok(Moved::Bytes(_)) => {}
            Ok(Moved::Waits) => drop(socket::await_notice(flow.socket.as_fd(), STOP_LOOK)?),
            Ok(Moved::End) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Several flows behind one epoll, a step for each that is ready.
fn together<W: Work>(
    flows: Vec<Flow<W>>,
    stop: &AtomicBool,
    finish: impl Fn(usize, &TcpStream, io::Result<()>),
) {
    let epoll = match Epoll::new(flows.len()) {
        Ok(epoll) => epoll,
        Err(error) => {
            for flow in &flows {
                finish(flow.index, &flow.socket, Err(io::Error::other(error.to_string())));
            }
            return;
        }
    };
    let mut lane = Lane {
        epoll,
        ready: match W::READY {
            Ready::Readable => Interest::READ,
            Ready::Writable => Interest::WRITE,
        },
        places: Vec::with_capacity(flows.len()),
        held: BinaryHeap::new(),
        open: 0,
        finish,
    };
    for flow in flows {
        lane.add(flow);
    }
    lane.run(stop);
}

/// A flow and what epoll has been told to wait for.
struct Place<W> {
    flow: Flow<W>,
    interest: Interest,
}

/// The flows of one worker. A flow that may not go on yet, or that waits for a notice, is taken off the wait for
/// readiness, because a socket with room would end that wait at once; its errors are reported all the same.
struct Lane<W, F> {
    epoll: Epoll,
    ready: Interest,
    places: Vec<Option<Place<W>>>,
    /// Which flow may go on when. An entry may be out of date: the flow itself knows.
    held: BinaryHeap<Reverse<(MonoNanos, usize)>>,
    open: usize,
    finish: F,
}

impl<W: Work, F: Fn(usize, &TcpStream, io::Result<()>)> Lane<W, F> {
    fn add(&mut self, flow: Flow<W>) {
        let place = self.places.len();
        match self.epoll.add(flow.socket.as_fd(), place as u64, self.ready) {
            Ok(()) => {
                self.places.push(Some(Place { flow, interest: self.ready }));
                self.open += 1;
            }
            Err(error) => {
                (self.finish)(flow.index, &flow.socket, Err(io::Error::other(error.to_string())));
                self.places.push(None);
            }
        }
    }

    fn run(mut self, stop: &AtomicBool) {
        let mut ready = Vec::with_capacity(self.places.len());
        while self.open > 0 {
            if W::READY == Ready::Writable && stop.load(Ordering::Relaxed) {
                break;
            }
            let wait = self.let_go();
            ready.clear();
            match self.epoll.wait(wait) {
                Ok(events) => ready.extend(events.filter_map(|event| usize::try_from(event.token).ok())),
                Err(_) => break,
            }
            for &place in &ready {
                self.turn(place);
            }
        }
        for place in self.places.into_iter().flatten() {
            (self.finish)(place.flow.index, &place.flow.socket, Ok(()));
        }
    }

    /// Gives a step to each flow whose time has come, and says how long to wait for readiness until the next.
    fn let_go(&mut self) -> Duration {
        /// epoll counts in milliseconds: the last stretch is slept through exactly.
        const FINE: Duration = Duration::from_millis(1);
        while let Some(&Reverse((at, place))) = self.held.peek() {
            let rest = at.since(clock::now());
            if rest > FINE {
                return rest.saturating_sub(FINE).min(STOP_LOOK);
            }
            if !rest.is_zero() {
                clock::sleep_until(at);
            }
            self.held.pop();
            self.step(place);
            if !rest.is_zero() {
                // The others have waited for this one.
                return Duration::ZERO;
            }
        }
        STOP_LOOK
    }

    /// What an event of a flow leads to.
    fn turn(&mut self, place: usize) {
        if let Some(Some(Place { flow, .. })) = self.places.get_mut(place)
            && flow.held_until().is_some()
            && flow.work.settle(flow.socket.as_fd())
        {
            return;
        }
        self.step(place);
    }

    /// One step of a flow, and what to wait for after it.
    fn step(&mut self, place: usize) {
        let Some(Some(Place { flow, .. })) = self.places.get_mut(place) else { return };
        let next = match flow.step() {
            Ok(Moved::Bytes(_)) => match flow.held_until() {
                Some(until) => {
                    self.held.push(Reverse((until, place)));
                    Interest::NONE
                }
                None => self.ready,
            },
            Ok(Moved::Waits) => Interest::NONE,
            Ok(Moved::End) => return self.end(place, Ok(())),
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
                self.ready
            }
            Err(error) => return self.end(place, Err(error)),
        };
        self.wait_for(place, next);
    }

    #[inline]
    fn wait_for(&mut self, place: usize, next: Interest) {
        let Some(Some(Place { flow, interest })) = self.places.get_mut(place) else { return };
        if *interest == next {
            return;
        }
        *interest = next;
        let changed = self.epoll.modify(flow.socket.as_fd(), place as u64, next);
        if let Err(error) = changed {
            self.end(place, Err(io::Error::other(error.to_string())));
        }
    }

    fn end(&mut self, place: usize, result: io::Result<()>) {
        let Some(Place { flow, .. }) = self.places.get_mut(place).and_then(Option::take) else { return };
        // The descriptor outlives this worker in the engine, so it must leave the epoll by name.
        let _ = self.epoll.remove(flow.socket.as_fd());
        (self.finish)(flow.index, &flow.socket, result);
        self.open -= 1;
    }
}
