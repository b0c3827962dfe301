//! Numbers without I/O: what a reading is, and what a set of readings lets one conclude.
//!
//! Three ideas live here. A [`Reading`] is a number that cannot be mistaken: its metric fixes the unit and the better
//! direction, its scope says whose it is, its source says how it was obtained, and an absent value carries the reason.
//! A [`Comparison`] turns paired runs of two arms into an estimate, an interval and one of four
//! verdicts by the rules in `docs/method.md`. Within a run, a [`Histogram`] holds how long each of many things took.
//! Nothing here reads a clock, a file or a socket, so every rule is tested by simulation.
#![forbid(unsafe_code)]

pub mod compare;
pub mod doubt;
pub mod estimate;
pub mod latency;
pub mod rank_sum;
pub mod reading;
pub mod schedule;
pub mod units;

pub use compare::{Comparison, Decide, Verdict};
pub use doubt::{Doubt, DoubtId};
pub use latency::{Histogram, Quantile};
pub use reading::{Better, Cell, CellValue, Metric, Reading, Scope, Value};
pub use units::{BitRate, ByteCount, MonoNanos, PerSecond};
