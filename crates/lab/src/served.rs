//! A run as its server can tell of it: the same numbers that the client makes, by the same functions, of the same reports.
//!
//! A client says what it saw once a run is over. Then either end has both halves, and what a server writes differs from the client's
//! record in nothing but what only the client knows: arms, cells, and what it asked in other runs. Where the client said nothing,
//! the other end's readings are absent with the reason.

use haul_results::record::{Failure, Run, Status};
use haul_stats::Cell;
use haul_workload::server::{Seen, ServedRun};
use serde_json::Value as Json;

use crate::live;
use crate::rig::Ending;

/// The record of a run that was served.
#[must_use]
pub fn run(served: &ServedRun) -> Run {
    let spec = &served.spec;
    let taken = match &served.seen {
        Seen::Both(outcomes) => live::taken(spec, outcomes, &[], false),
        Seen::Own { reports, reason } => match reports.first() {
            Some(own) => live::half(spec, own, reason.clone()),
            None => return empty(reason),
        },
    };
    let (status, failure) = match taken.ending {
        Ending::Complete => (Status::Complete, None),
        Ending::Interrupted => (Status::Interrupted, None),
        Ending::Invalid(text) => {
            let text = format!("the measurement is invalid: {text}");
            (Status::Failed, Some(Failure { exit: 1, text }))
        }
        Ending::Lost(text) => (Status::Failed, Some(Failure { exit: 4, text })),
    };
    Run {
        profiled: spec.observe.profile_hz.is_some(),
        status,
        failure,
        effective: taken.effective,
        activity: taken.activity,
        readings: taken.readings,
        intervals: taken.intervals,
        counts: taken.counts,
        profiles: taken.profiles,
        warnings: taken.doubts,
        ..empty("")
    }
}

fn empty(reason: &str) -> Run {
    Run {
        index: 0,
        arm: None,
        block: None,
        cell: Cell::new(),
        profiled: false,
        status: Status::Failed,
        failure: Some(Failure { exit: 4, text: reason.to_owned() }),
        at_s: 0.0,
        effective: Json::Null,
        activity: Json::Null,
        readings: Vec::new(),
        intervals: Vec::new(),
        counts: Vec::new(),
        profiles: Vec::new(),
        warnings: Vec::new(),
    }
}
