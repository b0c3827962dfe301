//! The workload of datagrams one way: each says which it is, and the receiver knows what became of it.
//!
//! ```text
//! header    what a datagram says of itself: phase, sequence number, time
//! send      one, a batch or a train a call, stamped                    ledger: how many of each phase
//! receive   the same, split up again, every datagram taken note of     ledger: which came, in what order, how far apart
//! track     what became of the sequence numbers, in fixed memory
//! places    where the end's host drops datagrams
//! report    what both ends say, what was lost by it, and where
//! ```
//!
//! The unit of the engine's counters is a byte of payload; at the receiver that of a datagram that had not come before,
//! so that it is goodput, and a multiple of the message. Loss is the difference of two counts of datagrams *sent in the
//! window*, which the phase in the header tells: it waits for what is late, and no edge of a window on another clock can
//! make it negative.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use haul_host::socket::{SocketFacts, udp};
use haul_stats::latency::Histogram;
use haul_stats::{BitRate, ByteCount};

use crate::ceiling;
use crate::end::{Ends, Ledger, Workers};
use crate::engine::{Engine, Manner};
use crate::error::Result;
use crate::legs::Flows;
use crate::pace::Bucket;
use crate::report::{Detail, Role};
use crate::spec::{RunSpec, SpecError};

pub(crate) mod door;
mod header;
mod places;
mod receive;
pub(crate) mod report;
mod send;
mod track;

pub use report::{Both, Counted, DatagramReport, Drops, Lost, Phased, ReceivedReport, SentReport};
pub(crate) use report::{settle, take_back};

use header::Phase;
use places::Places;
use receive::{BatchReceiving, Receiving, Taking, TrainReceiving};
use send::{BatchSending, Course, Sending, Stage, Tally, TrainSending};
use track::{Count, Gaps, Seen};

/// The longest time's worth of a rate that one call hands over: what comes at once fills a queue at once.
const BURST: Duration = Duration::from_millis(1);

/// Datagrams a second of a flow that may each be timed: two looks at the clock are some 100 ns, 1 % of a CPU at this rate.
const TIMED_RATE: u128 = 100_000;

/// Of faster ones, and of those that go as fast as they can, one in so many is: 100 ns for each were 4 to 7 % of what it costs
/// to send and receive a small one.
const TIMED_EVERY: u64 = 16;

/// One datagram in so many is timed.
pub(crate) fn timed_every(spec: &RunSpec) -> u64 {
    let bits = u128::from(spec.message.0) * 8 * TIMED_RATE;
    if spec.rate.is_some_and(|rate| u128::from(rate.0) <= bits) { 1 } else { TIMED_EVERY }
}

/// Starts the workers of one end.
pub(crate) fn workers(end: Ends<'_>, flows: Flows) -> Result<Workers> {
    if end.role == Role::Sender { sender(end, flows) } else { receiver(end, flows) }
}

/// What this host counts of the way to the other end.
fn places(end: Ends<'_>, flows: &Flows) -> Places {
    let device = end.spec.bind_device.as_deref().filter(|_| end.client);
    let first = flows.sockets.first();
    let facts =
        first.and_then(|socket| SocketFacts::read(socket.as_fd(), &end.spec.sockets(end.client)).ok());
    Places::new(flows.sockets.clone(), device, facts.map(|facts| facts.peer.ip().to_canonical()))
}

fn sender(end: Ends<'_>, flows: Flows) -> Result<Workers> {
    let spec = end.spec;
    let RunSpec { message, flows: count, batch, segment, .. } = *spec;
    let per_call = match (segment, batch) {
        (true, _) => send::train(message, budget(spec)),
        (false, batch) => {
            budget(spec).map_or(batch, |budget| batch.min(u32::try_from(budget).unwrap_or(batch))) as usize
        }
    };
    fits(spec, &flows)?;
    let (places, timed) = (places(end, &flows), timed_every(spec));
    if segment && per_call > 1 {
        let size = u16::try_from(message.0).unwrap_or(u16::MAX);
        flows.sockets.iter().try_for_each(|socket| udp::set_segment(socket.as_fd(), size))?;
    }
    let stage = Arc::new(Stage::default());
    let tallies: Vec<Arc<Tally>> = flows.sockets.iter().map(|_| Arc::default()).collect();
    let bucket = spec.rate.map(|rate| Bucket::new(rate, count));
    let crew = end.crew(flows.sockets, bucket.as_ref(), Manner::Block)?;
    let course = {
        let (tallies, stage) = (tallies.clone(), Arc::clone(&stage));
        move |flow: u32| {
            let tally = tallies.get(flow as usize).map(Arc::clone).unwrap_or_default();
            Course::new(message, per_call, timed, Arc::clone(&stage), tally)
        }
    };
    let (engine, ceiling) = match (segment, batch) {
        (true, _) => (Engine::prepare(crew, move |place| TrainSending::new(course(place.flow)))?, None),
        (false, 2..) => (Engine::prepare(crew, move |place| BatchSending::new(course(place.flow)))?, None),
        (false, _) => {
            let engine = Engine::prepare(crew, move |place| Sending::new(course(place.flow)))?;
            (engine, own_rate(message).ok())
        }
    };
    Ok(Workers { engine, ledger: Box::new(SentLedger { stage, tallies, places }), ceiling })
}

/// Datagrams that the pace of a flow lets one call hand over.
fn budget(spec: &RunSpec) -> Option<u64> {
    let BitRate(rate) = spec.rate?;
    let bytes = u128::from(rate) * BURST.as_nanos() / (8 * 1_000_000_000 * u128::from(spec.flows));
    Some(u64::try_from(bytes / u128::from(spec.message.0)).unwrap_or(u64::MAX).max(1))
}

/// Whether the datagrams fit a packet, where they must: a segment does, and what may not be cut up.
fn fits(spec: &RunSpec, flows: &Flows) -> Result<()> {
    let whole = spec.segment || spec.dont_fragment == Some(true);
    let Some(socket) = flows.sockets.first().filter(|_| whole) else { return Ok(()) };
    let mtu = udp::path_mtu(socket.as_fd())?;
    let ipv6 = SocketFacts::read(socket.as_fd(), &spec.sockets(false))?.peer.ip().to_canonical().is_ipv6();
    let most = u64::from(udp::max_payload(mtu, ipv6));
    if spec.message.0 > most {
        return Err(SpecError::Unfit { message: spec.message.0, mtu, most }.into());
    }
    Ok(())
}

/// Bytes per second of the loop that sends one datagram a call, into a sink that takes them unseen.
fn own_rate(message: ByteCount) -> Result<f64> {
    ceiling::of(ceiling::Loop::Datagrams(message), || {
        let course = Course::new(message, 1, TIMED_EVERY, Arc::default(), Arc::default());
        let mut sending = Sending::new(course)?;
        Ok(move |sink: &mut File| sending.spend(sink))
    })
}

fn receiver(end: Ends<'_>, flows: Flows) -> Result<Workers> {
    let RunSpec { message, batch, gro, .. } = *end.spec;
    let (places, timed) = (places(end, &flows), timed_every(end.spec));
    if gro {
        flows.sockets.iter().try_for_each(|socket| udp::set_gro(socket.as_fd()))?;
    }
    let seen: Vec<Arc<Seen>> = flows.sockets.iter().map(|_| Arc::default()).collect();
    let gaps: Arc<Mutex<BTreeMap<usize, Arc<Gaps>>>> = Arc::default();
    let taking = {
        let (seen, gaps) = (seen.clone(), Arc::clone(&gaps));
        move |flow: u32, lane: usize| {
            let seen = seen.get(flow as usize).map(Arc::clone).unwrap_or_default();
            let of_lane =
                Arc::clone(gaps.lock().unwrap_or_else(PoisonError::into_inner).entry(lane).or_default());
            Taking::new(message, timed, seen, of_lane)
        }
    };
    let crew = end.crew(flows.sockets, None, Manner::Block)?;
    // What the kernel joins is a batch already.
    let engine = match (gro, batch) {
        (true, _) => Engine::prepare(crew, move |at| TrainReceiving::new(taking(at.flow, at.lane)))?,
        (false, 2..) => {
            Engine::prepare(crew, move |at| BatchReceiving::new(taking(at.flow, at.lane), batch))?
        }
        (false, _) => Engine::prepare(crew, move |at| Receiving::new(taking(at.flow, at.lane)))?,
    };
    Ok(Workers { engine, ledger: Box::new(ReceivedLedger { seen, gaps, places }), ceiling: None })
}

/// What a sender keeps.
#[derive(Debug)]
struct SentLedger {
    stage: Arc<Stage>,
    tallies: Vec<Arc<Tally>>,
    places: Places,
}

impl Ledger for SentLedger {
    fn open(&mut self) {
        self.stage.set(Phase::Window);
        self.places.open();
    }

    fn close(&mut self) {
        self.stage.set(Phase::After);
        self.places.close();
    }

    fn detail(&mut self) -> Detail {
        self.places.end();
        let packets = sum(&self.tallies, |tally| &tally.packets);
        // Read later, it may be ahead where a worker still runs.
        let refused = sum(&self.tallies, |tally| &tally.refused);
        let train = self.tallies.iter().map(|tally| tally.train.get()).max().unwrap_or(0);
        let (path_mtu, ipv6) = self.places.path();
        Detail::Datagrams(Box::new(DatagramReport::Sent(SentReport {
            packets,
            refused: refused.at_most(packets),
            train: u32::try_from(train).unwrap_or(u32::MAX),
            path_mtu,
            ipv6,
            queue: self.places.queue(),
        })))
    }
}

/// What a receiver keeps.
#[derive(Debug)]
struct ReceivedLedger {
    seen: Vec<Arc<Seen>>,
    gaps: Arc<Mutex<BTreeMap<usize, Arc<Gaps>>>>,
    places: Places,
}

impl ReceivedLedger {
    fn total(&self, of: impl Fn(&Seen) -> &Count) -> u64 {
        self.seen.iter().map(|seen| of(seen).get()).fold(0, u64::saturating_add)
    }

    fn gaps(&self) -> Histogram {
        let mut all = Histogram::default();
        for gaps in self.gaps.lock().unwrap_or_else(PoisonError::into_inner).values() {
            // Counts of one run are far from overflowing.
            let _ = gaps.read().and_then(|gaps| all.merge(&gaps));
        }
        all
    }

    /// The mean over the flows that have one.
    fn jitter(&self) -> Option<f64> {
        let of = |seen: &Arc<Seen>| (seen.transits.get() > 1).then(|| seen.jitter_16.get() as f64 / 16.0);
        let all: Vec<f64> = self.seen.iter().filter_map(of).collect();
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    }
}

impl Ledger for ReceivedLedger {
    fn open(&mut self) {
        self.places.open();
    }

    fn close(&mut self) {
        self.places.close();
    }

    fn missing(&self) -> Option<u64> {
        Some(self.total(|seen| &seen.missing))
    }

    fn detail(&mut self) -> Detail {
        self.places.end();
        Detail::Datagrams(Box::new(DatagramReport::Received(ReceivedReport {
            packets: sum(&self.seen, |seen| &seen.distinct),
            duplicates: self.total(|seen| &seen.duplicates),
            reordered: self.total(|seen| &seen.reordered),
            extent: self.seen.iter().map(|seen| seen.extent.get()).max().unwrap_or(0),
            late: self.total(|seen| &seen.late),
            foreign: self.total(|seen| &seen.foreign),
            receives: self.total(|seen| &seen.receives),
            joined: self.total(|seen| &seen.joined),
            jitter_ns: self.jitter(),
            gaps: self.gaps(),
            socket: self.places.sockets(),
            host: self.places.host(),
        })))
    }
}

/// The sum over the flows, by phase.
fn sum<T>(flows: &[Arc<T>], of: impl Fn(&T) -> &[Count; 3]) -> Phased {
    let each = |flow: &Arc<T>| of(flow).each_ref().map(Count::get).into();
    flows.iter().map(each).fold(Phased::default(), |sum, flow| sum + flow)
}
