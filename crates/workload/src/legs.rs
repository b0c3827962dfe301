//! One end of a whole run: its legs, started together and looked after as one.
//!
//! The flows of a run are numbered through its legs, which is how a data connection says where it belongs; both ends
//! derive the numbering from the specification ([`RunSpec::legs`]).

use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use haul_stats::MonoNanos;

use crate::background::Background;
use crate::end::End;
use crate::error::Result;
use crate::report::{EndReport, HostId, IntervalReport};
use crate::spec::RunSpec;

/// The numbers of the connections of each leg.
pub(crate) fn numbering(legs: &[RunSpec]) -> Vec<Range<u32>> {
    let mut next = 0;
    let number = |leg: &RunSpec| {
        let first = next;
        next += leg.connections();
        first..next
    };
    legs.iter().map(number).collect()
}

/// What the workers of a leg are handed.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    /// A socket for each flow.
    pub(crate) sockets: Vec<Arc<OwnedFd>>,
    /// The other end of a flow that makes its own connections, by flow: where they go to in turn, or whose they must be.
    /// Nothing for others.
    pub(crate) peers: Vec<Vec<SocketAddr>>,
    /// Where such a flow's connections come in in turn, by flow.
    pub(crate) listeners: Vec<Vec<Arc<OwnedFd>>>,
}

impl<S: Into<OwnedFd>> FromIterator<S> for Flows {
    fn from_iter<I: IntoIterator<Item = S>>(sockets: I) -> Self {
        let sockets = sockets.into_iter().map(|socket| Arc::new(socket.into())).collect();
        Self { sockets, ..Self::default() }
    }
}

/// One end of a run.
#[derive(Debug)]
pub(crate) struct Legs {
    ends: Vec<End>,
    background: Box<Background>,
}

impl Legs {
    /// Starts the workers of every leg, each with its flows, and leaves them at the gate.
    pub(crate) fn prepare(legs: &[RunSpec], client: bool, flows: Vec<Flows>, host: &HostId) -> Result<Self> {
        let ends = legs.iter().zip(flows).enumerate();
        let ends =
            ends.map(|(number, (leg, flows))| End::prepare(leg, client, flows, host.clone(), number == 0));
        let background = Background::new(legs.iter().any(|leg| leg.spin));
        Ok(Self { ends: ends.collect::<Result<_>>()?, background: Box::new(background) })
    }

    /// Lets the flows go at `at`, after a look at what the host does without them.
    pub(crate) fn start(&mut self, at: MonoNanos) {
        self.background.begin(at);
        self.begin();
    }

    /// Tells the flows of their start, once it is near.
    fn begin(&mut self) {
        if let Some(at) = self.background.end() {
            self.ends.iter_mut().for_each(|end| end.start(at));
        }
    }

    /// When [`Legs::tick`] must be called next.
    pub(crate) fn wake_at(&self) -> Option<MonoNanos> {
        self.ends.iter().filter_map(End::wake_at).chain(self.background.wake_at()).min()
    }

    /// Each is readable when a flow of its leg has ended.
    pub(crate) fn bells(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.ends.iter().map(End::bell)
    }

    /// Does what is due; gives the intervals that ended, by leg, of those legs whose headline is counted at this end.
    pub(crate) fn tick(&mut self) -> Vec<(usize, IntervalReport)> {
        self.begin();
        let ticked = self.ends.iter_mut().enumerate().map(|(leg, end)| (leg, end.counts(), end.tick()));
        ticked.filter_map(|(leg, counts, interval)| interval.filter(|_| counts).map(|it| (leg, it))).collect()
    }

    /// Ends the run now, keeping what the windows hold so far.
    pub(crate) fn cut(&mut self) {
        self.background.cancel();
        for end in &mut self.ends {
            end.cut();
        }
    }

    /// The other end has said that it is done.
    pub(crate) fn peer_is_done(&mut self) {
        self.ends.iter_mut().for_each(End::peer_is_done);
    }

    /// Whether all flows have ended, or the time for that is up.
    pub(crate) fn is_over(&mut self) -> bool {
        // Each is asked: the question also takes in what has ended.
        self.ends.iter_mut().map(End::is_over).filter(|over| !over).count() == 0
    }

    /// Ends everything, in order or not, and tells what was seen, by leg.
    pub(crate) fn reports(self) -> Vec<EndReport> {
        let background = self.background.found();
        let report = |end: End| {
            let mut report = end.report();
            match &background {
                Ok(used) => report.activity.before = Some(used.clone()),
                Err(reason) => report.activity.before_reason = Some(reason.clone()),
            }
            report
        };
        self.ends.into_iter().map(report).collect()
    }
}
