//! From which size on which routine: the selection that haul-copy loads, from a survey of routines over sizes.
//!
//! ```text
//! for each class of alignment, sizes ascending:
//!     the routine is that of the size before; at the first size the one with the highest median
//!     the challenger is the one with the highest median at this size
//!     whole interval of the challenger above the whole interval of the routine?  a threshold, here
//! ```
//!
//! Noise makes the fastest of twenty equals change from size to size; since a change needs intervals that are apart, it does not
//! make a threshold. The crossing lies somewhere between the size before, where the routine stood, and the threshold: a finer
//! grid there tells more. A pure function of the samples.

use std::collections::BTreeMap;

use haul_copy::selection::{Alignment, Cpu, MOST, Threshold};
use haul_copy::{Routine, Selection};
use haul_results::record::{Run, Status};
use haul_stats::estimate::{MedianInterval, Summary, median_interval};
use haul_stats::reading::CellValue;
use haul_stats::{Metric, Scope};

use crate::error::LabError;

/// How sure the intervals are.
pub const CONFIDENCE: f64 = 0.95;

/// Where one routine overtakes another.
#[derive(Debug, Clone, PartialEq)]
pub struct Crossing {
    /// How source and destination lie.
    pub class: Alignment,
    /// The largest size at which the one before was not beaten; the first size of a class has none.
    pub after: Option<u64>,
    /// The smallest size at which it was.
    pub from: u64,
    /// The faster from there on, by name.
    pub routine: String,
    /// Its rate there, in bytes per second.
    pub rate: MedianInterval,
    /// The one it overtakes, and its rate at that size.
    pub before: Option<(String, MedianInterval)>,
}

/// Rates by class, size and routine.
type Rates = BTreeMap<(Alignment, u64), BTreeMap<String, Vec<f64>>>;

/// Where routines overtake each other, by class and size.
///
/// # Errors
/// Where a class has too few samples for an interval.
pub fn crossings(runs: &[Run]) -> Result<Vec<Crossing>, LabError> {
    let rates = rates(runs);
    let mut found = Vec::new();
    for class in Alignment::ALL {
        let mut current: Option<String> = None;
        let mut after = None;
        for ((_, size), routines) in rates.range((class, 0)..=(class, u64::MAX)) {
            let known: BTreeMap<&str, (f64, MedianInterval)> = routines
                .iter()
                .filter_map(|(name, rates)| {
                    let median = Summary::of(rates)?.median;
                    Some((name.as_str(), (median, median_interval(rates, CONFIDENCE)?)))
                })
                .collect();
            let Some((&best, &(_, rate))) = known.iter().max_by(|left, right| left.1.0.total_cmp(&right.1.0))
            else {
                continue;
            };
            let before = current.as_deref().and_then(|name| Some((name.to_owned(), known.get(name)?.1)));
            let overtakes = match (&current, &before) {
                (None, _) => true,
                (Some(name), Some((_, interval))) => name != best && rate.is_apart_from(interval),
                (Some(_), None) => false,
            };
            if overtakes {
                found.push(Crossing { class, after, from: *size, routine: best.to_owned(), rate, before });
                current = Some(best.to_owned());
            }
            after = Some(*size);
        }
        if current.is_none() {
            return Err(LabError::Plan(format!(
                "no size of the class '{}' has enough samples for an interval at {} %: give more --rounds",
                class.name(),
                CONFIDENCE * 100.0
            )));
        }
    }
    Ok(found)
}

/// The table of these crossings. A class with more of them than a table holds keeps the first.
///
/// # Errors
/// Where a routine is none of this CPU's.
pub fn selection(crossings: &[Crossing], cpu: Cpu) -> Result<Selection, LabError> {
    let mut table = Selection::new(cpu, Routine::best());
    for class in Alignment::ALL {
        let mut thresholds = Vec::new();
        for crossing in crossings.iter().filter(|crossing| crossing.class == class).take(MOST) {
            let lacks = || {
                LabError::Plan(format!(
                    "a table cannot name '{}': it is no routine of haul-copy",
                    crossing.routine
                ))
            };
            let routine = Routine::by_name(&crossing.routine).ok_or_else(lacks)?;
            // What is shorter than the shortest that was measured goes by that.
            let from =
                if thresholds.is_empty() { 0 } else { usize::try_from(crossing.from).unwrap_or(usize::MAX) };
            thresholds.push(Threshold { from, routine });
        }
        let ill = || LabError::Plan(format!("the class '{}' has no thresholds that ascend", class.name()));
        table.set(class, &thresholds).ok_or_else(ill)?;
    }
    Ok(table)
}

/// The table as text, each threshold with the evidence for it in a comment.
#[must_use]
pub fn annotated(table: &Selection, crossings: &[Crossing]) -> String {
    let gb = |of: &MedianInterval| format!("{:.1}..{:.1} GB/s", of.low / 1e9, of.high / 1e9);
    let mut lines: Vec<String> = table.to_string().lines().take(2).map(ToOwned::to_owned).collect();
    lines.push("# class, from how many bytes on, routine; medians with their 95 % intervals".to_owned());
    for class in Alignment::ALL {
        let of_class = crossings.iter().filter(|crossing| crossing.class == class);
        for (crossing, threshold) in of_class.zip(table.thresholds(class)) {
            lines.push(match (&crossing.before, crossing.after) {
                (Some((name, before)), Some(after)) => format!(
                    "# overtakes between {after} and {}: {} {}, {name} {}",
                    crossing.from,
                    crossing.routine,
                    gb(&crossing.rate),
                    gb(before)
                ),
                _ => format!("# at {}: {} {}", crossing.from, crossing.routine, gb(&crossing.rate)),
            });
            lines.push(format!("{} {} {}", class.name(), threshold.from, threshold.routine.name()));
        }
    }
    lines.join("\n") + "\n"
}

fn rates(runs: &[Run]) -> Rates {
    let mut rates = Rates::new();
    for run in runs.iter().filter(|run| run.status == Status::Complete) {
        let int = |name: &str| match run.cell.get(name) {
            Some(CellValue::Int(value)) => usize::try_from(*value).ok(),
            _ => None,
        };
        let (Some(size), Some(src), Some(dst), Some(CellValue::Text(routine))) =
            (int("size"), int("src_offset"), int("dst_offset"), run.cell.get("routine"))
        else {
            continue;
        };
        let rate = run
            .readings
            .iter()
            .find(|reading| reading.metric == Metric::CopyRate && reading.scope == Scope::Run);
        if let Some(rate) = rate.and_then(|reading| reading.value) {
            let place = rates.entry((Alignment::of(src, dst), size as u64)).or_default();
            place.entry(routine.clone()).or_default().push(rate.as_f64());
        }
    }
    rates
}

#[cfg(test)]
mod tests {
    use haul_results::record::Run;
    use haul_stats::{Cell, Reading};
    use serde_json::Value as Json;

    use super::*;

    fn run(class: Alignment, size: u64, routine: &str, rate: f64) -> Run {
        let (src, dst) = class.example();
        Run {
            index: 0,
            arm: None,
            block: None,
            cell: Cell::from([
                ("routine".to_owned(), CellValue::Text(routine.to_owned())),
                ("size".to_owned(), CellValue::Int(size)),
                ("src_offset".to_owned(), CellValue::Int(src as u64)),
                ("dst_offset".to_owned(), CellValue::Int(dst as u64)),
            ]),
            status: Status::Complete,
            failure: None,
            at_s: 0.0,
            effective: Json::Null,
            activity: Json::Null,
            readings: vec![Reading::real(Metric::CopyRate, Scope::Run, rate, "test")],
            intervals: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Nine samples around a rate.
    fn samples(class: Alignment, size: u64, routine: &str, rate: f64, spread: f64) -> Vec<Run> {
        (0..9).map(|at| run(class, size, routine, rate * (1.0 + spread * f64::from(at - 4) / 4.0))).collect()
    }

    /// Two routines in every class: `bytes` ahead at first, `words` from `at` on.
    fn survey(at: u64, spread: f64) -> Vec<Run> {
        let sizes = [64, 128, 256, 512];
        Alignment::ALL
            .into_iter()
            .flat_map(|class| sizes.map(|size| (class, size)))
            .flat_map(|(class, size)| {
                let (bytes, words) = if size < at { (2e9, 1e9) } else { (1e9, 2e9) };
                [samples(class, size, "bytes", bytes, spread), samples(class, size, "words", words, spread)]
                    .concat()
            })
            .collect()
    }

    #[test]
    fn a_routine_that_overtakes_makes_a_threshold_at_the_first_size_where_it_does() {
        let found = crossings(&survey(256, 0.01)).unwrap();
        assert_eq!(found.len(), 2 * Alignment::ALL.len());
        let of_class: Vec<_> = found.iter().filter(|crossing| crossing.class == Alignment::Apart).collect();
        assert_eq!((of_class[0].routine.as_str(), of_class[0].from, of_class[0].after), ("bytes", 64, None));
        assert_eq!(
            (of_class[1].routine.as_str(), of_class[1].from, of_class[1].after),
            ("words", 256, Some(128))
        );
        let table = selection(&found, Cpu::new("x", [1, 2, 3]).unwrap()).unwrap();
        let names: Vec<_> =
            table.thresholds(Alignment::Same).iter().map(|of| (of.from, of.routine.name())).collect();
        assert_eq!(names, [(0, "bytes"), (256, "words")]);
        let text = annotated(&table, &found);
        assert_eq!(Selection::parse(&text).unwrap(), table, "{text}");
        assert!(
            text.contains("# overtakes between 128 and 256: words 2.0..2.0 GB/s, bytes 1.0..1.0 GB/s"),
            "{text}"
        );
    }

    #[test]
    fn intervals_that_overlap_make_no_threshold() {
        let found = crossings(&survey(256, 0.9)).unwrap();
        assert_eq!(found.len(), Alignment::ALL.len(), "{found:?}");
        assert!(found.iter().all(|crossing| crossing.before.is_none()));
    }

    #[test]
    fn failed_samples_count_for_nothing_and_too_few_decide_nothing() {
        let mut runs = survey(256, 0.01);
        for run in runs.iter_mut().filter(|run| run.cell["routine"] == CellValue::Text("words".to_owned())) {
            run.status = Status::Failed;
        }
        assert!(crossings(&runs).unwrap().iter().all(|crossing| crossing.routine == "bytes"));
        let few: Vec<Run> = Alignment::ALL.into_iter().map(|class| run(class, 64, "bytes", 1e9)).collect();
        assert!(crossings(&few).unwrap_err().to_string().contains("--rounds"));
        assert!(crossings(&[]).is_err());
    }

    #[test]
    fn a_table_names_routines_of_haul_copy_only() {
        let mut found = crossings(&survey(256, 0.01)).unwrap();
        found[0].routine = "libc".to_owned();
        let error = selection(&found, Cpu::new("x", [1, 2, 3]).unwrap()).unwrap_err().to_string();
        assert!(error.contains("'libc'"), "{error}");
    }
}
