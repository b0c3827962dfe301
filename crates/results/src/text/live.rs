//! The slices of a window as they pass, a line each.
//!
//! A line names its unit, which is chosen as in the table of the same slices: by the fastest of them, of those so far.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use haul_stats::{Metric, Scope};

use super::cells::whose;
use super::number::{Number, Scale};
use crate::record::Interval;

/// Turns slices into lines.
#[derive(Debug, Default)]
pub struct Slices {
    two_ways: bool,
    fastest: f64,
    /// Slices of the present run that were told, by direction.
    told: BTreeMap<Option<String>, usize>,
}

impl Slices {
    /// Of runs in which the payload may go both ways at once: each line then says which way is meant.
    #[must_use]
    pub fn new(two_ways: bool) -> Self {
        Self { two_ways, ..Self::default() }
    }

    /// The lines of a finished run that were not told while it ran: its last slice ends with the window, and what of it is
    /// known then comes with the reports.
    pub fn rest(&mut self, slices: &[Interval]) -> Vec<String> {
        let mut told = std::mem::take(&mut self.told);
        let untold = slices.iter().filter(|slice| match told.get_mut(&slice.direction) {
            Some(count) if *count > 0 => {
                *count -= 1;
                false
            }
            _ => true,
        });
        let lines = untold.filter_map(|slice| self.line(slice)).collect();
        self.told.clear();
        lines
    }

    /// The line of a slice; `None` where it has no rate.
    pub fn line(&mut self, slice: &Interval) -> Option<String> {
        *self.told.entry(slice.direction.clone()).or_default() += 1;
        let (rate, unit) = match (slice.bits_per_second, slice.transactions_per_second) {
            (Some(bits), _) => (bits, "bit/s"),
            (None, Some(count)) => (count, "1/s"),
            (None, None) => return None,
        };
        let rate = Number { mean: rate, stddev: None }.finite()?;
        self.fastest = self.fastest.max(rate.mean);
        let fastest = Number { mean: self.fastest, stddev: None };
        // The decimals are those of the fastest too, so that the numbers stand below each other.
        let scale = Scale::of(unit, &[fastest]);
        let until = slice.start_s + slice.seconds;
        let mut line = format!("{until:>8.2} s  {:>9} {}", scale.show(rate.mean), scale.unit);
        if unit == "1/s" {
            line.push_str(" of transactions");
        }
        if let Some(count) = slice.retransmits {
            let _ = write!(line, "  {count} sent again");
        }
        if let Some(count) = slice.lost {
            let _ = write!(line, "  {count} lost");
        }
        let way = slice.direction.as_deref().filter(|_| self.two_ways).map(|way| match way {
            "receive" => whose(Metric::Throughput, Scope::Client),
            _ => whose(Metric::Throughput, Scope::Server),
        });
        if let Some(way) = way {
            let _ = write!(line, "  {way}");
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(start_s: f64, bits: Option<f64>, transactions: Option<f64>) -> Interval {
        Interval {
            direction: bits.map(|_| "send".to_owned()),
            start_s,
            seconds: 0.5,
            bytes: None,
            bits_per_second: bits,
            transactions: None,
            transactions_per_second: transactions,
            retransmits: None,
            packets: None,
            lost: None,
        }
    }

    #[test]
    fn a_line_names_the_unit_that_suits_the_link() {
        let lines = |rates: &[f64]| -> Vec<String> {
            let mut slices = Slices::new(false);
            rates.iter().filter_map(|&rate| slices.line(&slice(0.5, Some(rate), None))).collect()
        };
        assert_eq!(lines(&[9.4e6, 9.51e6]), ["    1.00 s      9.400 Mbit/s", "    1.00 s      9.510 Mbit/s"]);
        assert_eq!(
            lines(&[2.5e9, 9.4e8]),
            ["    1.00 s      2.500 Gbit/s", "    1.00 s      0.940 Gbit/s"],
            "the unit does not go back"
        );
        assert_eq!(lines(&[0.0]), ["    1.00 s          0 bit/s"]);
        assert_eq!(lines(&[f64::NAN]), [""; 0]);
    }

    #[test]
    fn each_slice_of_a_run_is_told_once_the_last_when_it_has_ended() {
        let at = |start, direction: &str| Interval {
            direction: Some(direction.to_owned()),
            ..slice(start, Some(1e9), None)
        };
        let mut slices = Slices::new(true);
        for run in 0..2 {
            assert!(slices.line(&at(0.0, "send")).is_some() && slices.line(&at(0.0, "receive")).is_some());
            assert!(slices.line(&at(0.5, "send")).is_some());
            let all = [at(0.0, "send"), at(0.5, "send"), at(0.0, "receive"), at(0.5, "receive")];
            let rest = slices.rest(&all);
            assert!(matches!(rest.as_slice(), [line] if line.ends_with("to client")), "run {run}: {rest:?}");
        }
    }

    #[test]
    fn transactions_and_ways_are_named() {
        let mut slices = Slices::new(true);
        let both = Interval { retransmits: Some(3), ..slice(0.0, Some(1e9), None) };
        assert_eq!(
            slices.line(&both).as_deref(),
            Some("    0.50 s      1.000 Gbit/s  3 sent again  to server")
        );
        let back = Interval { direction: Some("receive".to_owned()), ..both };
        assert!(slices.line(&back).unwrap().ends_with("to client"));
        let lossy = Interval { lost: Some(12), ..slice(0.0, Some(1e9), None) };
        assert_eq!(Slices::new(false).line(&lossy).as_deref(), Some("    0.50 s      1.000 Gbit/s  12 lost"));
        let rate = Slices::new(false).line(&slice(0.0, None, Some(81_234.5)));
        assert_eq!(rate.as_deref(), Some("    0.50 s      81.23 k/s of transactions"));
    }
}
