//! The document of a finished experiment: what was measured, with the name and the start that only a wall clock gives.
//!
//! The wall clock is read here, once, and nowhere else in haul: everything that is a length of time is monotonic.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use haul_results::figures;
use haul_results::record::{Document, Environment, Failure, Kind, Options, SCHEMA, Stamp, Status};

use crate::plan;
use crate::runner::Measured;

/// Seconds from the epoch to the first year that RFC 3339 cannot write.
const YEAR_10000: u64 = 253_402_300_800;

/// When a measurement began, and the name made from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    started: String,
    id: String,
}

impl Start {
    /// Now. Take it before the first run: the name sorts by it.
    #[must_use]
    pub fn now() -> Self {
        Self::at(SystemTime::now(), plan::seed())
    }

    fn at(time: SystemTime, random: u64) -> Self {
        // humantime fails before 1970 and after 9999; a clock that wrong gives the epoch, not a crash.
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = if since.as_secs() < YEAR_10000 { since } else { Duration::ZERO };
        let started = humantime::format_rfc3339_seconds(UNIX_EPOCH + since).to_string();
        let compact: String = started.chars().filter(char::is_ascii_alphanumeric).collect();
        // Two measurements begun in the same second are told apart by the random part.
        Self { id: format!("{compact}-{:08x}", random & 0xffff_ffff), started }
    }

    /// The document of what was measured.
    #[must_use]
    pub fn document(self, kind: Kind, command: Vec<String>, measured: Measured) -> Document {
        let mut document = Document {
            haul: stamp(),
            id: self.id,
            kind,
            status: measured.status,
            failure: measured.failure,
            started: self.started,
            elapsed_s: measured.elapsed.as_secs_f64(),
            command,
            options: measured.options,
            environment: measured.environment,
            runs: measured.runs,
            cells: Vec::new(),
            comparisons: measured.comparisons,
            costs: measured.costs,
            cost_changes: measured.cost_changes,
            warnings: measured.warnings,
        };
        if matches!(kind, Kind::Read | Kind::Copy) {
            document.cells = figures::cells(&document);
        }
        document
    }

    /// The document of `haul env`: facts and no runs.
    #[must_use]
    pub fn facts(self, command: Vec<String>, elapsed: Duration, environment: Environment) -> Document {
        let measured = Measured {
            status: Status::Complete,
            failure: None,
            elapsed,
            options: Options::default(),
            environment,
            runs: Vec::new(),
            comparisons: Vec::new(),
            costs: Vec::new(),
            cost_changes: Vec::new(),
            warnings: Vec::new(),
        };
        self.document(Kind::Env, command, measured)
    }

    /// The document of a measurement that ended before its first run: as valid as any other, with the reason in it.
    #[must_use]
    pub fn failed(self, kind: Kind, command: Vec<String>, elapsed: Duration, failure: Failure) -> Document {
        let measured = Measured {
            status: Status::Failed,
            failure: Some(failure),
            elapsed,
            options: Options::default(),
            environment: Environment::default(),
            runs: Vec::new(),
            comparisons: Vec::new(),
            costs: Vec::new(),
            cost_changes: Vec::new(),
            warnings: Vec::new(),
        };
        self.document(kind, command, measured)
    }
}

/// The version that writes, and the schema of what it writes.
#[must_use]
pub fn stamp() -> Stamp {
    Stamp { version: env!("CARGO_PKG_VERSION").to_owned(), schema: SCHEMA }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_sort_by_their_start() {
        let at = |seconds, random| Start::at(UNIX_EPOCH + Duration::from_secs(seconds), random);
        let first = at(1_764_496_629, 0xabc);
        assert_eq!(
            (first.started.as_str(), first.id.as_str()),
            ("2025-11-30T09:57:09Z", "20251130T095709Z-00000abc")
        );
        assert!(at(1_764_496_630, 0).id > first.id);
        assert_ne!(at(1_764_496_629, 1).id, first.id);
    }

    #[test]
    fn a_clock_beyond_reason_still_gives_a_document() {
        for time in [UNIX_EPOCH - Duration::from_secs(1), UNIX_EPOCH + Duration::from_secs(1 << 40)] {
            assert_eq!(Start::at(time, 0).started, "1970-01-01T00:00:00Z");
        }
    }

    #[test]
    fn a_measurement_without_a_run_ends_in_a_document_with_its_reason() {
        let failure = Failure { exit: 2, text: "nothing to compare".to_owned() };
        let document = Start::now().failed(Kind::Ab, vec!["haul".to_owned()], Duration::ZERO, failure);
        assert_eq!(document.status, Status::Failed);
        assert_eq!(document.failure.map(|failure| failure.exit), Some(2));
    }
}
