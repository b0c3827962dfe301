//! The record of a measurement: schema 1.
//!
//! One [`Document`] holds what was asked for and what was in force, where it ran, every run with its readings or the
//! reason it failed, the comparisons, and the doubts. Failed and voided runs stay in it: they are kept out of the
//! statistics, never out of sight. Fields are only ever added within a schema number.

use std::collections::BTreeMap;

use haul_stats::{Comparison, Doubt, Metric, Reading, Scope};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value as Json;

use crate::profile::{CostChanges, Costs, Count, Profile};

/// The schema this build writes.
pub const SCHEMA: u32 = 1;

pub use haul_stats::Cell;

/// Which haul wrote the document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Its version.
    pub version: String,
    /// The schema of the document.
    pub schema: u32,
}

/// What kind of measurement it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A stream, or a sweep of streams.
    Stream,
    /// Requests and responses.
    Rr,
    /// Connections of one transaction each.
    Crr,
    /// A comparison of arms.
    Ab,
    /// The demonstration, itself a comparison.
    Demo,
    /// A fingerprint alone.
    Env,
    /// A survey of reads of a cached file, a pipe or a socket.
    Read,
    /// A survey of copy routines.
    Copy,
}

/// How a document or a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As asked.
    Complete,
    /// Cut short by its user: the numbers cover what had run.
    Interrupted,
    /// It went wrong; the reason stands beside it.
    Failed,
    /// It ran, but something else changed meanwhile: kept out of the statistics.
    Void,
}

/// Why a document or a run failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The exit code that belongs to it: 1 failed or invalid, 2 usage, 3 gate, 4 the peer.
    pub exit: u8,
    /// Which end, object and operation, and the remedy.
    pub text: String,
}

/// Options as asked for and as in force.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Options {
    /// As asked for.
    pub requested: Json,
    /// As in force, by end.
    pub effective: Json,
}

/// A fingerprint: facts by name, each with its value or the reason why there is none.
pub type Facts = BTreeMap<String, Fact>;

/// One fact about a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// Its value.
    pub value: Option<String>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
}

/// Where it ran.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Environment {
    /// The end that drove it.
    pub client: Option<Facts>,
    /// The other end.
    pub server: Option<Facts>,
}

/// A slice of a run's window, at the end that counts: the receiver, or the requester.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Which way the payload went, of a stream: `send` is from the client.
    #[serde(default)]
    pub direction: Option<String>,
    /// Seconds from the window's start to this slice's.
    #[serde(deserialize_with = "null_as_nan")]
    pub start_s: f64,
    /// Its length in seconds.
    #[serde(deserialize_with = "null_as_nan")]
    pub seconds: f64,
    /// Payload in it, of a stream.
    pub bytes: Option<u64>,
    /// Payload per second, in bits.
    pub bits_per_second: Option<f64>,
    /// Transactions completed in it, of an exchange.
    #[serde(default)]
    pub transactions: Option<u64>,
    /// Transactions per second.
    #[serde(default)]
    pub transactions_per_second: Option<f64>,
    /// Segments sent again in it; `None` where not known.
    pub retransmits: Option<u64>,
    /// Datagrams received in it.
    #[serde(default)]
    pub packets: Option<u64>,
    /// Datagrams found missing in it. What comes late is taken from what was missing before; `None` in a slice that nothing
    /// arrived in, because nothing tells then.
    #[serde(default)]
    pub lost: Option<u64>,
}

/// One execution with new connections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Position in time, from 0.
    pub index: u32,
    /// The arm, in a comparison.
    pub arm: Option<String>,
    /// The block, in a comparison: one run of every arm, adjacent in time. In a survey the round: one sample of every cell.
    pub block: Option<u32>,
    /// The cell of a sweep.
    pub cell: Cell,
    /// Whether it was made for its profile alone: sampling costs time, so its numbers are in no statistics.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub profiled: bool,
    /// How it ended.
    pub status: Status,
    /// Why it failed or is void.
    pub failure: Option<Failure>,
    /// Seconds from the start of the whole measurement to this run's.
    #[serde(deserialize_with = "null_as_nan")]
    pub at_s: f64,
    /// Options in force at both ends.
    pub effective: Json,
    /// The numbers.
    pub readings: Vec<Reading>,
    /// Slices of the window, where asked for.
    pub intervals: Vec<Interval>,
    /// Events that were counted in the window, where asked for.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub counts: Vec<Count>,
    /// What the CPUs were seen doing, by host, where asked for.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub profiles: Vec<Profile>,
    /// Doubts about this run.
    pub warnings: Vec<Doubt>,
}

impl Run {
    /// Whether its readings are a sample of the cell: it is complete, and was not slowed down to be profiled.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.status == Status::Complete && !self.profiled
    }
}

/// What the samples of a cell of a survey come to, by one metric; made by [`crate::figures::cells`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellFigure {
    /// The cell.
    pub cell: Cell,
    /// What was measured.
    pub metric: Metric,
    /// Whose it is.
    pub scope: Scope,
    /// The unit of the metric.
    pub unit: String,
    /// Samples that count and have a value.
    pub n: u64,
    /// Their median; `None` without any.
    pub median: Option<f64>,
    /// Where the median of all such samples lies; `None` where there are too few.
    pub interval: Option<[f64; 2]>,
    /// How sure that is.
    pub confidence: Option<f64>,
    /// The smallest.
    pub min: Option<f64>,
    /// The largest.
    pub max: Option<f64>,
    /// The median against that of the base, in percent; `None` for a base.
    pub change_pct: Option<f64>,
    /// Whether the two intervals are apart, so that the change is one; `None` without two intervals.
    pub apart: Option<bool>,
    /// How the values were obtained.
    pub source: Option<String>,
    /// Why there is no number, or no interval.
    pub reason: Option<String>,
}

/// A whole measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// Which haul wrote it.
    pub haul: Stamp,
    /// Name of this measurement: unique, sortable by start time.
    pub id: String,
    /// What kind it was.
    pub kind: Kind,
    /// How it ended.
    pub status: Status,
    /// Why it failed.
    pub failure: Option<Failure>,
    /// Wall-clock start, RFC 3339: the one wall-clock reading in the record.
    pub started: String,
    /// Elapsed seconds, monotonic.
    #[serde(deserialize_with = "null_as_nan")]
    pub elapsed_s: f64,
    /// The command line.
    pub command: Vec<String>,
    /// Options as asked for and as in force.
    pub options: Options,
    /// Where it ran.
    pub environment: Environment,
    /// Every run, failed and voided ones included.
    pub runs: Vec<Run>,
    /// What the runs of a survey come to, cell by cell in the order asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<CellFigure>,
    /// The comparisons, in an `ab`.
    pub comparisons: Vec<Comparison>,
    /// What each symbol costs, where runs were profiled.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub costs: Vec<Costs>,
    /// How the arms differ in it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub cost_changes: Vec<CostChanges>,
    /// Doubts about the whole.
    pub warnings: Vec<Doubt>,
}

/// A number that had no finite value was written as `null`: what else it says must stay readable.
fn null_as_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}
