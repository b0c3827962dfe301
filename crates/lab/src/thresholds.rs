//! From which size on which routine: the selection that haul-copy loads, from a survey of routines over sizes.
//!
//! ```text
//! for each class of alignment, sizes ascending:
//!     the routine in force is that of the size before; at first `best`, which chooses by itself, where it takes part
//!     rivals:  median 1 % above the routine in force or more, and its samples above by the rank-sum test, corrected for all
//!              comparisons of the survey (Bonferroni)
//!     the rival with the highest median is in force from here on
//!     the C library takes part: where it is ahead so, no routine of the crate is better, and that is said
//! ```
//!
//! Noise makes the fastest of twenty equals change from size to size; since a change needs evidence, it makes no threshold. The
//! crossing lies somewhere between the size before, where the routine stood, and the threshold: a finer grid there tells more.
//! Bonferroni and not Holm, because what is compared next depends on what was decided before. A pure function of the samples.

use std::collections::BTreeMap;

use haul_copy::selection::{Alignment, Cpu, MOST, Threshold};
use haul_copy::{Routine, Selection};
use haul_results::record::{Run, Status};
use haul_stats::estimate::{MedianInterval, Summary, median_interval};
use haul_stats::rank_sum;
use haul_stats::reading::CellValue;
use haul_stats::{Metric, Scope};
use serde_json::{Value as Json, json};

use crate::error::LabError;

/// How sure the intervals are, and the whole of all decisions.
pub const CONFIDENCE: f64 = 0.95;

/// By how much a routine has to be faster: what is less is not worth a branch.
const MATTERS: f64 = 1.01;

/// What `haul copy` calls the routine that chooses by itself.
const BEST: &str = "best";

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
    pub rate: Option<MedianInterval>,
    /// The one it overtakes, and its rate at that size.
    pub before: Option<(String, Option<MedianInterval>)>,
}

/// Where somebody else's copy is faster than what the table names.
#[derive(Debug, Clone, PartialEq)]
pub struct Ahead {
    /// How source and destination lie.
    pub class: Alignment,
    /// Bytes of a copy.
    pub size: u64,
    /// Whose.
    pub peer: String,
    /// By how much its median is higher, in percent.
    pub by_pct: f64,
}

/// What the samples decide.
#[derive(Debug, Clone, PartialEq)]
pub struct Contest {
    /// By class and size.
    pub crossings: Vec<Crossing>,
    /// By class and size.
    pub ahead: Vec<Ahead>,
    /// What they stand on.
    pub quality: Quality,
}

/// How much of a table is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quality {
    /// Samples of a cell, where it has the fewest.
    pub samples: usize,
    /// Comparisons that the decisions are corrected for.
    pub family: usize,
    /// Pairs of class and size.
    pub places: usize,
    /// Where no other routine has a median that is higher by 1 %.
    pub fastest: usize,
    /// Where another one has, and the samples do not tell the two apart.
    pub undecided: usize,
    /// Where somebody else's copy is ahead of the routine named.
    pub behind: usize,
    /// Without samples of the routine named.
    pub missing: usize,
}

impl Quality {
    /// In a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let mut text = format!(
            "of {} places (alignment and size) the routine named is the fastest of the crate in {}",
            self.places, self.fastest
        );
        for (count, what) in [
            (self.undecided, "another may be, not told apart"),
            (self.missing, "it has no sample"),
            (self.behind, "the C library is faster than it"),
        ] {
            if count > 0 {
                text = format!("{text}, in {count} {what}");
            }
        }
        format!("{text}; {} samples of each, corrected for {} comparisons", self.samples, self.family)
    }

    /// For the record.
    #[must_use]
    pub fn as_json(&self) -> Json {
        json!({
            "samples": self.samples, "comparisons": self.family, "confidence": CONFIDENCE, "places": self.places,
            "fastest": self.fastest, "undecided": self.undecided, "behind_peer": self.behind, "missing": self.missing,
        })
    }
}

/// The fewest samples of a cell with which one of so many comparisons can be decided.
#[must_use]
pub fn rounds_for(family: usize) -> u32 {
    let level = (1.0 - CONFIDENCE) / family.max(1) as f64;
    (2..=100)
        .find(|&each| rank_sum::least(each) <= level)
        .and_then(|each| u32::try_from(each).ok())
        .unwrap_or(100)
}

/// How many comparisons a survey of so many routines, peers among them, over so many sizes makes.
#[must_use]
pub fn family(routines: usize, sizes: usize) -> usize {
    routines.saturating_sub(1) * sizes * Alignment::ALL.len()
}

/// Rates by class, size and routine.
type Rates = BTreeMap<(Alignment, u64), BTreeMap<String, Vec<f64>>>;

/// A routine of a place.
#[derive(Clone, Copy)]
struct Entrant<'a> {
    name: &'a str,
    samples: &'a [f64],
    median: f64,
}

impl Entrant<'_> {
    fn is_ahead_of(&self, other: &Self, level: f64) -> bool {
        self.median >= other.median * MATTERS && rank_sum::p_above(self.samples, other.samples) <= level
    }
}

/// The routine of haul-copy that a name stands for; `None` for a peer's.
fn routine_of(name: &str) -> Option<Routine> {
    if name == BEST { Some(Routine::best()) } else { Routine::by_name(name) }
}

/// What the samples decide: where routines overtake each other, and how sure that is.
///
/// # Errors
/// Where there are too few samples for any decision.
pub fn contest(runs: &[Run]) -> Result<Contest, LabError> {
    let rates = rates(runs);
    let all = || rates.values().flat_map(BTreeMap::values);
    let family: usize = rates.values().map(|routines| routines.len().saturating_sub(1)).sum();
    let samples = all().map(Vec::len).min().unwrap_or(0);
    let (most, needed) = (all().map(Vec::len).max().unwrap_or(0), rounds_for(family) as usize);
    if most < needed && family > 0 {
        return Err(LabError::Plan(format!(
            "{most} samples of each cell decide none of {family} comparisons, which takes {needed}: give --rounds {needed} or \
             more, --thorough, or fewer sizes or routines"
        )));
    }
    let level = (1.0 - CONFIDENCE) / family.max(1) as f64;
    let mut contest = Contest {
        crossings: Vec::new(),
        ahead: Vec::new(),
        quality: Quality { samples, family, ..Quality::default() },
    };
    for class in Alignment::ALL {
        contest.class(class, &rates, level)?;
    }
    Ok(contest)
}

impl Contest {
    fn class(&mut self, class: Alignment, rates: &Rates, level: f64) -> Result<(), LabError> {
        let mut current: Option<String> = None;
        let mut after = None;
        for ((_, size), routines) in rates.range((class, 0)..=(class, u64::MAX)) {
            let entrants: Vec<Entrant<'_>> = routines
                .iter()
                .filter_map(|(name, samples)| {
                    Some(Entrant { name, samples, median: Summary::of(samples)?.median })
                })
                .collect();
            let ours = || entrants.iter().filter(|entrant| routine_of(entrant.name).is_some());
            let highest = |of: &mut dyn Iterator<Item = &Entrant<'_>>| {
                of.max_by(|left, right| left.median.total_cmp(&right.median))
                    .map(|entrant| entrant.name.to_owned())
            };
            let named = |name: &str| entrants.iter().find(|entrant| entrant.name == name);
            self.quality.places += 1;
            if current.is_none() {
                let first = named(BEST).map(|_| BEST.to_owned()).or_else(|| highest(&mut ours()));
                let Some(first) = first else {
                    self.quality.missing += 1;
                    continue;
                };
                let rate = named(&first).and_then(|entrant| median_interval(entrant.samples, CONFIDENCE));
                let routine = first.clone();
                self.crossings.push(Crossing {
                    class,
                    after: None,
                    from: *size,
                    routine,
                    rate,
                    before: None,
                });
                current = Some(first);
            }
            let Some(force) = current.as_deref().and_then(named).copied() else {
                self.quality.missing += 1;
                continue;
            };
            let rival = highest(&mut ours().filter(|rival| rival.is_ahead_of(&force, level)));
            let force = match rival.as_deref().and_then(named).copied() {
                Some(rival) => {
                    let interval = |of: Entrant<'_>| median_interval(of.samples, CONFIDENCE);
                    let before = Some((force.name.to_owned(), interval(force)));
                    let crossing = Crossing {
                        class,
                        after,
                        from: *size,
                        routine: rival.name.to_owned(),
                        rate: interval(rival),
                        before,
                    };
                    // At the first size nothing was in force before: what is ahead there is where the class begins.
                    if after.is_none() {
                        self.crossings.pop();
                    }
                    self.crossings.push(crossing);
                    rival
                }
                None => force,
            };
            if ours().any(|other| other.median >= force.median * MATTERS) {
                self.quality.undecided += 1;
            } else {
                self.quality.fastest += 1;
            }
            let peers = entrants.iter().filter(|entrant| routine_of(entrant.name).is_none());
            for peer in peers.filter(|peer| peer.is_ahead_of(&force, level)) {
                let by_pct = (peer.median / force.median - 1.0) * 100.0;
                self.ahead.push(Ahead { class, size: *size, peer: peer.name.to_owned(), by_pct });
                self.quality.behind += 1;
            }
            current = Some(force.name.to_owned());
            after = Some(*size);
        }
        if current.is_none() {
            return Err(LabError::Plan(format!(
                "no size of the class '{}' has a sample of a routine of haul-copy: name one with --routine",
                class.name()
            )));
        }
        Ok(())
    }
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
            let routine = routine_of(&crossing.routine).ok_or_else(lacks)?;
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
pub fn annotated(table: &Selection, contest: &Contest) -> String {
    let gb = |of: &Option<MedianInterval>| {
        of.map_or_else(
            || "few samples".to_owned(),
            |of| format!("{:.1}..{:.1} GB/s", of.low / 1e9, of.high / 1e9),
        )
    };
    let mut lines: Vec<String> = table.to_string().lines().take(2).map(ToOwned::to_owned).collect();
    lines.push(format!("# {}", contest.quality.sentence()));
    lines.push(
        "# looking a routine up takes 1 to 4 ns a call: below 1 KiB one that is named may be the faster"
            .to_owned(),
    );
    lines.push("# class, from how many bytes on, routine; medians with their 95 % intervals".to_owned());
    for class in Alignment::ALL {
        let of_class = contest.crossings.iter().filter(|crossing| crossing.class == class);
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
        let ahead: Vec<String> = contest
            .ahead
            .iter()
            .filter(|ahead| ahead.class == class)
            .map(|ahead| format!("{} (+{:.0} %)", ahead.size, ahead.by_pct))
            .collect();
        if let Some(first) = contest.ahead.iter().find(|ahead| ahead.class == class) {
            lines.push(format!(
                "# no routine of haul-copy is better than {} at {}",
                first.peer,
                ahead.join(", ")
            ));
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
            (int("size_bytes"), int("src_offset_bytes"), int("dst_offset_bytes"), run.cell.get("routine"))
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
                ("size_bytes".to_owned(), CellValue::Int(size)),
                ("src_offset_bytes".to_owned(), CellValue::Int(src as u64)),
                ("dst_offset_bytes".to_owned(), CellValue::Int(dst as u64)),
            ]),
            profiled: false,
            status: Status::Complete,
            failure: None,
            at_s: 0.0,
            effective: Json::Null,
            activity: Json::Null,
            readings: vec![Reading::real(Metric::CopyRate, Scope::Run, rate, "test")],
            intervals: Vec::new(),
            counts: Vec::new(),
            profiles: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Eleven samples around a rate.
    fn samples(class: Alignment, size: u64, routine: &str, rate: f64, spread: f64) -> Vec<Run> {
        (0..11).map(|at| run(class, size, routine, rate * (1.0 + spread * f64::from(at - 5) / 5.0))).collect()
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
        let found = contest(&survey(256, 0.01)).unwrap();
        assert_eq!(found.crossings.len(), 2 * Alignment::ALL.len());
        let of_class: Vec<_> =
            found.crossings.iter().filter(|crossing| crossing.class == Alignment::Apart).collect();
        assert_eq!((of_class[0].routine.as_str(), of_class[0].from, of_class[0].after), ("bytes", 64, None));
        assert_eq!(
            (of_class[1].routine.as_str(), of_class[1].from, of_class[1].after),
            ("words", 256, Some(128))
        );
        let table = selection(&found.crossings, Cpu::new("x", [1, 2, 3]).unwrap()).unwrap();
        let names: Vec<_> =
            table.thresholds(Alignment::Same).iter().map(|of| (of.from, of.routine.name())).collect();
        assert_eq!(names, [(0, "bytes"), (256, "words")]);
        let text = annotated(&table, &found);
        assert_eq!(Selection::parse(&text).unwrap(), table, "{text}");
        assert!(
            text.contains("# overtakes between 128 and 256: words 2.0..2.0 GB/s, bytes 1.0..1.0 GB/s"),
            "{text}"
        );
        let quality = found.quality;
        assert_eq!((quality.samples, quality.family, quality.places, quality.fastest), (11, 20, 20, 20));
        assert!(
            text.contains("the fastest of the crate in 20; 11 samples of each, corrected for 20"),
            "{text}"
        );
    }

    #[test]
    fn what_samples_do_not_tell_apart_makes_no_threshold_and_is_counted() {
        let found = contest(&survey(256, 0.9)).unwrap();
        assert_eq!(found.crossings.len(), Alignment::ALL.len(), "{found:?}");
        assert!(found.crossings.iter().all(|crossing| crossing.before.is_none()));
        assert_eq!((found.quality.fastest, found.quality.undecided), (10, 10));
    }

    #[test]
    fn of_many_comparisons_each_needs_more_and_with_too_few_samples_none_is_made() {
        assert_eq!(family(20, 18), 1710);
        assert!(rounds_for(1) < rounds_for(100) && rounds_for(100) < rounds_for(1710));
        assert_eq!(rounds_for(1710), 9);
        // Two equals that a hundred others are compared with as well: six samples apart by chance decide nothing.
        let runs: Vec<Run> = survey(256, 0.01).into_iter().step_by(2).collect();
        let error = contest(&runs.into_iter().step_by(2).collect::<Vec<_>>()).unwrap_err().to_string();
        assert!(error.contains("20 comparisons") && error.contains("--rounds"), "{error}");
    }

    #[test]
    fn where_nothing_differs_hardly_a_table_claims_that_something_does() {
        let mut state = 11_u64;
        let mut draw = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            1.0 + 0.1 * (state >> 40) as f64 / (1_u64 << 24) as f64
        };
        let mut false_claims = 0;
        for _ in 0..40 {
            let mut runs = Vec::new();
            for class in Alignment::ALL {
                for size in [64, 128, 256, 512] {
                    for routine in ["best", "bytes", "words", "words-shift"] {
                        runs.extend((0..11).map(|_| run(class, size, routine, 1e9 * draw())));
                    }
                }
            }
            false_claims += usize::from(contest(&runs).unwrap().crossings.len() > Alignment::ALL.len());
        }
        assert!(false_claims <= 6, "{false_claims} of 40, where 5 % were promised at most");
    }

    #[test]
    fn the_c_library_takes_part_and_where_it_is_ahead_that_is_said() {
        let mut runs = survey(256, 0.01);
        for class in Alignment::ALL {
            for size in [64, 128, 256, 512] {
                runs.extend(samples(class, size, "libc", if size == 512 { 3e9 } else { 1.5e9 }, 0.01));
            }
        }
        let found = contest(&runs).unwrap();
        assert!(found.crossings.iter().all(|crossing| crossing.routine != "libc"));
        assert_eq!((found.ahead.len(), found.quality.behind, found.quality.fastest), (5, 5, 20));
        assert_eq!((found.ahead[0].size, found.ahead[0].peer.as_str()), (512, "libc"));
        let table = selection(&found.crossings, Cpu::new("x", [1, 2, 3]).unwrap()).unwrap();
        let text = annotated(&table, &found);
        assert!(text.contains("# no routine of haul-copy is better than libc at 512 (+50 %)"), "{text}");
        assert_eq!(Selection::parse(&text).unwrap(), table);
    }

    #[test]
    fn what_chooses_by_itself_is_in_force_until_something_is_ahead_of_it() {
        let mut runs = survey(256, 0.01);
        for class in Alignment::ALL {
            for size in [64, 128, 256, 512] {
                // As good as bytes, and at the end behind words.
                runs.extend(samples(class, size, "best", if size == 512 { 1.9e9 } else { 2e9 }, 0.01));
            }
        }
        let found = contest(&runs).unwrap();
        let table = selection(&found.crossings, Cpu::new("x", [1, 2, 3]).unwrap()).unwrap();
        let names: Vec<_> =
            table.thresholds(Alignment::Lines).iter().map(|of| (of.from, of.routine.name())).collect();
        assert_eq!(names, [(0, Routine::best().name()), (512, "words")]);
    }

    #[test]
    fn failed_samples_count_for_nothing_and_none_at_all_is_an_error() {
        let mut runs = survey(256, 0.01);
        for run in runs.iter_mut().filter(|run| run.cell["routine"] == CellValue::Text("words".to_owned())) {
            run.status = Status::Failed;
        }
        assert!(contest(&runs).unwrap().crossings.iter().all(|crossing| crossing.routine == "bytes"));
        assert!(contest(&[]).is_err());
        let peers: Vec<Run> =
            Alignment::ALL.into_iter().flat_map(|class| samples(class, 64, "libc", 1e9, 0.01)).collect();
        assert!(contest(&peers).unwrap_err().to_string().contains("--routine"));
    }

    #[test]
    fn a_table_names_routines_of_haul_copy_only() {
        let mut found = contest(&survey(256, 0.01)).unwrap().crossings;
        found[0].routine = "libc".to_owned();
        let error = selection(&found, Cpu::new("x", [1, 2, 3]).unwrap()).unwrap_err().to_string();
        assert!(error.contains("'libc'"), "{error}");
    }
}
