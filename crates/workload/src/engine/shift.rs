//! What a worker thread does with its flows: one step after another, on time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use haul_host::clock;
use haul_host::socket::{self, Epoll, Interest};
use haul_stats::MonoNanos;

use super::{Counter, FlowEnd, Gate, Manner, Moved, Orders, Work};
use crate::pace::Bucket;

/// The longest a worker waits before it looks at the stop flag.
const STOP_LOOK: Duration = Duration::from_millis(20);

/// One flow in a worker's hands.
pub(super) struct Flow<W> {
    pub(super) index: usize,
    pub(super) socket: Arc<OwnedFd>,
    pub(super) counter: Arc<Counter>,
    pub(super) work: W,
    /// Its pace, where it has one. Apart, because most have none, and thousands of flows share the cache.
    pub(super) bucket: Option<Box<Bucket>>,
}

impl<W: Work> Flow<W> {
    /// One step: what it moved is counted, and charged to the pace.
    #[inline]
    fn step(&mut self) -> io::Result<Moved> {
        let moved = self.work.step(self.socket.as_fd())?;
        if let Moved::Units(units) = moved {
            self.counter.add(units);
            if let Some(bucket) = &mut self.bucket {
                bucket.spend(clock::now(), units);
            }
        }
        Ok(moved)
    }

    /// What epoll is to wait on.
    fn fd(&self) -> BorrowedFd<'_> {
        self.work.own_fd().unwrap_or_else(|| self.socket.as_fd())
    }

    /// When the flow may go on, where it may not yet.
    #[inline]
    fn held_until(&self) -> Option<MonoNanos> {
        let due = self.bucket.as_ref()?.due();
        (due > clock::now()).then_some(due)
    }

    /// When the work has something to do, where it has nothing until then.
    #[inline]
    fn idle_until(&self) -> Option<MonoNanos> {
        if !self.work.idle() {
            return None;
        }
        self.work.due().filter(|&due| due > clock::now())
    }
}

/// What a worker thread is handed.
pub(super) struct Shift<W> {
    pub(super) flows: Vec<Flow<W>>,
    pub(super) gate: Arc<Gate>,
    pub(super) orders: Arc<Orders>,
    pub(super) ends: mpsc::Sender<FlowEnd>,
    pub(super) bell: Arc<UnixStream>,
    pub(super) manner: Manner,
}

/// Where a worker reports the ends of its flows.
struct Report {
    ends: mpsc::Sender<FlowEnd>,
    bell: Arc<UnixStream>,
}

impl Report {
    fn ended(&self, index: usize, at: MonoNanos, result: io::Result<()>) {
        let _ = self.ends.send(FlowEnd { index, at, error: result.err() });
        // A full bell has rung already.
        let _ = (&*self.bell).write(&[1]);
    }
}

impl<W: Work> Shift<W> {
    /// From the start to the end of the last flow.
    pub(super) fn run(self) {
        let Self { mut flows, gate, orders, ends, bell, manner } = self;
        let report = Report { ends, bell };
        // Who follows does not wait for the start: whoever leads must find it in its call.
        if W::LEADS && !gate.pass() {
            // Called off before it began: its flows are over all the same.
            let at = clock::now();
            for flow in &flows {
                report.ended(flow.index, at, Ok(()));
            }
            return;
        }
        let now = clock::now();
        for bucket in flows.iter_mut().filter_map(|flow| flow.bucket.as_mut()) {
            bucket.start(now);
        }
        match flows.as_mut_slice() {
            [flow] if manner != Manner::Epoll => {
                let result = flow.work.begin(flow.socket.as_fd()).and_then(|()| alone(flow, &orders, manner));
                let at = clock::now();
                take_leave(std::slice::from_mut(flow));
                report.ended(flow.index, at, result);
            }
            _ => together(flows, &orders, manner, report),
        }
    }
}

/// Tells the peers of these flows that nothing more will come, once what is under way has had time to arrive.
fn take_leave<W: Work>(flows: &mut [Flow<W>]) {
    if !W::LEADS || flows.is_empty() {
        return;
    }
    if !W::LEAVE_AFTER.is_zero() {
        clock::sleep_until(clock::now().after(W::LEAVE_AFTER));
    }
    for flow in flows {
        flow.work.leave(flow.socket.as_fd());
    }
}

/// The bare loop: one flow, one blocking call after another. A call that gives up waiting (a spinning worker's, one with
/// a timeout) only looks whether it is time to end.
fn alone<W: Work>(flow: &mut Flow<W>, orders: &Orders, manner: Manner) -> io::Result<()> {
    loop {
        let over = if W::LEADS { orders.stop() && flow.work.wind_up() } else { orders.gone() };
        if over {
            return Ok(());
        }
        if let Some(until) = flow.held_until().or_else(|| flow.idle_until()) {
            if manner != Manner::Spin {
                clock::sleep_until(until.min(clock::now().after(STOP_LOOK)));
            }
            continue;
        }
        match flow.step() {
            Ok(Moved::Units(_)) => {}
            Ok(Moved::Waits) => drop(socket::await_notice(flow.socket.as_fd(), STOP_LOOK)?),
            Ok(Moved::End) => return Ok(()),
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Several flows behind one epoll, a step for each that is ready.
fn together<W: Work>(flows: Vec<Flow<W>>, orders: &Orders, manner: Manner, report: Report) {
    let epoll = match Epoll::new(flows.len()) {
        Ok(epoll) => epoll,
        Err(error) => {
            for flow in &flows {
                report.ended(flow.index, clock::now(), Err(io::Error::other(error.to_string())));
            }
            return;
        }
    };
    let mut lane = Lane {
        epoll,
        places: Vec::with_capacity(flows.len()),
        held: BinaryHeap::new(),
        open: 0,
        spins: manner == Manner::Spin,
        report,
    };
    for flow in flows {
        lane.add(flow);
    }
    lane.run(orders);
}

/// A flow and what epoll has been told to wait for.
struct Place<W> {
    flow: Flow<W>,
    interest: Interest,
    /// The earliest of its entries among those that are held.
    queued: Option<MonoNanos>,
}

/// The flows of one worker. A flow that may not go on yet, or that waits for a notice, is taken off the wait for
/// readiness, because a socket with room would end that wait at once; its errors are reported all the same.
struct Lane<W> {
    epoll: Epoll,
    places: Vec<Option<Place<W>>>,
    /// Which flow may go on, or wants to, when. An entry may be out of date: the flow itself knows.
    held: BinaryHeap<Reverse<(MonoNanos, usize)>>,
    open: usize,
    spins: bool,
    report: Report,
}

impl<W: Work> Lane<W> {
    fn add(&mut self, mut flow: Flow<W>) {
        let place = self.places.len();
        let begun = flow.work.begin(flow.socket.as_fd());
        let interest = flow.work.interest();
        let added = begun.and_then(|()| {
            let added = self.epoll.add(flow.fd(), place as u64, interest);
            added.map_err(|error| io::Error::other(error.to_string()))
        });
        match added {
            Ok(()) => {
                flow.work.turned();
                self.places.push(Some(Place { flow, interest, queued: None }));
                self.open += 1;
                self.queue(place);
            }
            Err(error) => {
                self.report.ended(flow.index, clock::now(), Err(error));
                self.places.push(None);
            }
        }
    }

    fn run(mut self, orders: &Orders) {
        let mut ready = Vec::with_capacity(self.places.len());
        while self.open > 0 {
            let over = if W::LEADS { orders.stop() && self.wind_up() } else { orders.gone() };
            if over {
                break;
            }
            let wait = self.let_go();
            ready.clear();
            match self.epoll.wait(if self.spins { Duration::ZERO } else { wait }) {
                Ok(events) => ready.extend(events.filter_map(|event| usize::try_from(event.token).ok())),
                Err(_) => break,
            }
            for &place in &ready {
                self.turn(place);
            }
        }
        let at = clock::now();
        let mut left: Vec<Flow<W>> = self.places.into_iter().flatten().map(|place| place.flow).collect();
        take_leave(&mut left);
        for flow in left {
            self.report.ended(flow.index, at, Ok(()));
        }
    }

    /// Tells every flow that it is to end; whether all are ready to.
    fn wind_up(&mut self) -> bool {
        let flows = self.places.iter_mut().flatten().map(|place| &mut place.flow);
        flows.map(|flow| flow.work.wind_up()).filter(|ready| !ready).count() == 0
    }

    /// Gives a step to each flow whose time has come, and says how long to wait for readiness until the next.
    fn let_go(&mut self) -> Duration {
        // Once for each: one that is due again at once must not keep the others from what has come for them.
        for _ in 0..self.held.len() {
            let Some(&Reverse((at, place))) = self.held.peek() else { break };
            if at > clock::now() {
                break;
            }
            self.held.pop();
            if let Some(Some(Place { flow, queued, .. })) = self.places.get_mut(place)
                && *queued == Some(at)
            {
                *queued = None;
                // An event may have moved it on meanwhile.
                match flow.held_until().or_else(|| flow.work.due()).filter(|&due| due > at) {
                    Some(_) => self.queue(place),
                    None => self.step(place),
                }
            }
        }
        let next = self.held.peek().map(|&Reverse((at, _))| at.since(clock::now()));
        next.map_or(STOP_LOOK, |rest| rest.min(STOP_LOOK))
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
            Ok(Moved::Units(_)) => match flow.held_until() {
                Some(_) => Interest::NONE,
                None => flow.work.interest(),
            },
            Ok(Moved::Waits) => Interest::NONE,
            Ok(Moved::End) => return self.end(place, Ok(())),
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
                flow.work.interest()
            }
            Err(error) => return self.end(place, Err(error)),
        };
        if flow.work.turned() {
            self.wait_on_another(place, next);
        } else {
            self.wait_for(place, next);
        }
        self.queue(place);
    }

    /// Notes when a flow may, or wants to, go on. One entry is enough for a flow: an earlier one leads to a step, and
    /// that asks again.
    fn queue(&mut self, place: usize) {
        let Some(Some(Place { flow, queued, .. })) = self.places.get_mut(place) else { return };
        let Some(at) = flow.held_until().or_else(|| flow.work.due()) else { return };
        if queued.is_none_or(|queued| at < queued) {
            *queued = Some(at);
            self.held.push(Reverse((at, place)));
        }
    }

    #[inline]
    fn wait_for(&mut self, place: usize, next: Interest) {
        let Some(Some(Place { flow, interest, .. })) = self.places.get_mut(place) else { return };
        if *interest == next {
            return;
        }
        *interest = next;
        let changed = self.epoll.modify(flow.fd(), place as u64, next);
        if let Err(error) = changed {
            self.end(place, Err(io::Error::other(error.to_string())));
        }
    }

    /// The flow goes on with a new descriptor. The kernel has dropped the old one with its closing; the flow's own socket
    /// stays, and an event of it leads to a step that finds nothing.
    fn wait_on_another(&mut self, place: usize, next: Interest) {
        let Some(Some(Place { flow, interest, .. })) = self.places.get_mut(place) else { return };
        *interest = next;
        if let Err(error) = self.epoll.add(flow.fd(), place as u64, next) {
            self.end(place, Err(io::Error::other(error.to_string())));
        }
    }

    fn end(&mut self, place: usize, result: io::Result<()>) {
        let Some(Place { flow, .. }) = self.places.get_mut(place).and_then(Option::take) else { return };
        // The descriptor outlives this worker in the engine, so it must leave the epoll by name.
        let _ = self.epoll.remove(flow.socket.as_fd());
        let at = clock::now();
        let mut flow = [flow];
        if W::LEAVE_AFTER.is_zero() {
            take_leave(&mut flow);
        }
        let [flow] = flow;
        self.report.ended(flow.index, at, result);
        self.open -= 1;
    }
}
