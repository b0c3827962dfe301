//! The record laid out for people.
//!
//! Pure functions from a record to text in a given number of columns. What comes first is what a reader asks first:
//! what was run and how it ended, the numbers, what they say, what was in force, what was left out and why, and what
//! is to be doubted. Everything shown is in the record; nothing is computed here that could contradict it, except
//! means and standard deviations of the runs of a cell.
//!
//! Plain text is the default and is what a mail needs. Colour is the caller's decision, who knows whether the output
//! is a terminal. Text that came from another host is shown with its control characters escaped.

mod beside;
mod cells;
mod columns;
mod compare;
mod demo;
mod difference;
mod explain;
mod force;
mod live;
mod moved;
mod number;
mod profile;
mod rows;
mod single;
mod survey;
mod table;
mod wrap;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use haul_stats::{BitRate, ByteCount, CellValue, Doubt, DoubtId, PerSecond};

pub use columns::columns;
pub use compare::sentence;
pub use demo::{Demonstration, demonstration};
pub use difference::difference;
pub use explain::{explain, facts};
pub use live::Slices;
pub use survey::{Beside, BesideRow, Shape, survey};

use crate::record::{Cell, Document, Kind, Run, Status};
use wrap::{bound, clean, label, paragraph};

/// Longest name of an arm or a choice shown whole.
const LONGEST_NAME: usize = 40;

/// Runs that share one reason are listed by number up to so many.
const LISTED_RUNS: usize = 8;

/// Columns of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Width(pub u16);

impl Width {
    /// What a mail and the smallest terminal have.
    pub const PAGE: Self = Self(80);

    /// The columns, but never fewer than prose can be read in.
    fn columns(self) -> usize {
        usize::from(self.0).max(40)
    }
}

/// Whether words are coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Style {
    /// Not at all.
    #[default]
    Plain,
    /// Headings and verdicts, by ANSI escapes.
    Colour,
}

/// How a text is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Columns of the page.
    pub width: Width,
    /// Whether words are coloured.
    pub style: Style,
}

impl From<Width> for Layout {
    /// Plain text in that width.
    fn from(width: Width) -> Self {
        Self { width, style: Style::Plain }
    }
}

/// What a colour stands for.
#[derive(Debug, Clone, Copy)]
enum Tone {
    Heading,
    Good,
    Bad,
    Unsure,
}

impl Layout {
    fn columns(self) -> usize {
        self.width.columns()
    }

    fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Heading => "1",
            Tone::Good => "32",
            Tone::Bad => "31",
            Tone::Unsure => "33",
        };
        match self.style {
            Style::Plain => text.to_owned(),
            Style::Colour => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
        }
    }

    fn heading(self, out: &mut String, text: &str) {
        let _ = writeln!(out, "\n{}", self.paint(Tone::Heading, text));
    }
}

/// The whole document as text.
#[must_use]
pub fn document(document: &Document, layout: impl Into<Layout>) -> String {
    document_shaped(document, Shape::default(), layout.into())
}

fn document_shaped(document: &Document, shape: Shape, layout: Layout) -> String {
    let mut out = String::new();
    headline(&mut out, document, layout);
    match document.kind {
        Kind::Stream | Kind::Rr | Kind::Crr => cells::show(&mut out, document, layout),
        Kind::Ab | Kind::Demo => compare::show(&mut out, document, layout),
        Kind::Env => explain::environment(&mut out, &document.environment, layout),
        Kind::Read | Kind::Copy => survey::show(&mut out, document, shape, layout),
    }
    if !matches!(document.kind, Kind::Env | Kind::Read | Kind::Copy) {
        profile::show(&mut out, document, layout);
        force::show(&mut out, document, layout);
    }
    left_out(&mut out, document, layout);
    doubts(&mut out, document, layout);
    out
}

/// The command, how it ended and how much of it counts.
fn headline(out: &mut String, document: &Document, layout: Layout) {
    let words: Vec<String> = document.command.iter().map(|word| quoted(word)).collect();
    let command =
        if words.is_empty() { format!("haul {}", kind_name(document.kind)) } else { words.join(" ") };
    paragraph(out, "$ ", &command, 4, layout.columns());
    let mut line = String::new();
    if document.kind != Kind::Env {
        let _ = write!(line, "{} in {}, ", tally(&document.runs), elapsed(document.elapsed_s));
    }
    if matches!(document.kind, Kind::Read | Kind::Copy)
        && let (cells, without @ 1..) = survey::count(document)
    {
        let _ = write!(line, "{without} of {cells} cells without a number, ");
    }
    let stamps = [("started", &document.started), ("id", &document.id), ("haul", &document.haul.version)];
    let stamps = stamps.map(|(name, value)| bound(&format!("{name} {value}")));
    line.push_str(&stamps.join(", "));
    let (word, tone) = match document.status {
        Status::Complete => ("complete", Tone::Good),
        Status::Interrupted => ("interrupted", Tone::Unsure),
        Status::Failed => ("failed", Tone::Bad),
        Status::Void => ("void", Tone::Bad),
    };
    let mut shown = String::new();
    paragraph(&mut shown, &format!("{word}: "), &line, 2, layout.columns());
    out.push_str(&shown.replacen(word, &layout.paint(tone, word), 1));
    if let Some(failure) = &document.failure {
        paragraph(out, "  ", &failure.text, 2, layout.columns());
    }
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Stream => "stream",
        Kind::Rr => "rr",
        Kind::Crr => "crr",
        Kind::Ab => "ab",
        Kind::Demo => "demo",
        Kind::Env => "env",
        Kind::Read => "read",
        Kind::Copy => "copy",
    }
}

/// "20 runs", or "20 runs (17 complete, 2 failed, 1 void)".
fn tally(runs: &[Run]) -> String {
    let count = |status| runs.iter().filter(|run| run.status == status).count();
    let total = match runs.len() {
        0 => return "no run".to_owned(),
        1 => "1 run".to_owned(),
        n => format!("{n} runs"),
    };
    let complete = count(Status::Complete);
    let profiled = runs.iter().filter(|run| run.profiled).count();
    if complete == runs.len() && profiled == 0 {
        return total;
    }
    let mut parts = Vec::new();
    if complete < runs.len() {
        parts.push(format!("{complete} complete"));
    }
    if profiled > 0 {
        parts.push(format!("{profiled} of them for profiles alone"));
    }
    for (status, word) in
        [(Status::Failed, "failed"), (Status::Void, "void"), (Status::Interrupted, "cut short")]
    {
        match count(status) {
            0 => {}
            n => parts.push(format!("{n} {word}")),
        }
    }
    format!("{total} ({})", parts.join(", "))
}

fn elapsed(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "an unknown time".to_owned();
    }
    if seconds < 100.0 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round();
    let (minutes, rest) = ((whole / 60.0).floor(), whole % 60.0);
    if minutes < 60.0 {
        return format!("{minutes:.0} min {rest:.0} s");
    }
    format!("{:.0} h {:.0} min", (minutes / 60.0).floor(), minutes % 60.0)
}

/// A word of the command line, such that a shell reads it back as one.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_=+:,./@%[]".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// How the record ends the name of an axis that has a unit.
const UNITS: [&str; 4] = ["_bytes", "_bits_per_s", "_per_s", "_us"];

/// An axis of a sweep as people call it: `message_bytes` is the message.
fn axis_name(axis: &str) -> String {
    label(in_words(axis), LONGEST_NAME).replace('_', " ")
}

/// The axis without its unit.
fn in_words(axis: &str) -> &str {
    UNITS.iter().find_map(|unit| axis.strip_suffix(unit)).unwrap_or(axis)
}

/// A point on an axis: sizes as 64K, rates as 1Gbit/s or 1K/s, everything else as it is.
fn axis_value(axis: &str, value: &CellValue) -> String {
    let unit = UNITS.iter().find(|unit| axis.ends_with(**unit)).copied();
    match (value, unit) {
        (CellValue::Text(text), _) => label(text, LONGEST_NAME),
        (CellValue::Int(bytes), Some("_bytes")) => ByteCount(*bytes).to_string(),
        (CellValue::Int(bits), Some("_bits_per_s")) => format!("{}bit/s", BitRate(*bits)),
        (CellValue::Int(count), Some("_per_s")) => PerSecond(*count).to_string(),
        (CellValue::Int(micros), Some("_us")) => format!("{micros}µs"),
        (CellValue::Int(count), _) => count.to_string(),
    }
}

/// "message 64K, flows 4"; nothing for a measurement without axes.
#[must_use]
pub fn cell_name(cell: &Cell) -> String {
    let axes = in_column_order(cell.keys()).into_iter().filter_map(|axis| Some((axis, cell.get(axis)?)));
    let named: Vec<String> = axes
        .map(|(axis, value)| bound(&format!("{} {}", axis_name(axis), axis_value(axis, value))))
        .collect();
    named.join(", ")
}

/// The axes of a sweep in the order of their columns: those every run has come first.
fn in_column_order<'a>(axes: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    const FIRST: [&str; 4] = ["message_bytes", "request_bytes", "response_bytes", "flows"];
    let mut axes: Vec<&str> = axes.map(String::as_str).collect();
    let place = |axis: &str| FIRST.iter().position(|known| *known == axis).unwrap_or(FIRST.len());
    axes.sort_unstable_by_key(|axis| (place(axis), *axis));
    axes.dedup();
    axes
}

/// The runs that are not in the statistics, by reason.
fn left_out(out: &mut String, document: &Document, layout: Layout) {
    let mut reasons: Vec<(Status, &str, Vec<&Run>)> = Vec::new();
    for run in document.runs.iter().filter(|run| run.status != Status::Complete) {
        let text = run.failure.as_ref().map_or("", |failure| failure.text.as_str());
        match reasons.iter_mut().find(|(status, reason, _)| *status == run.status && alike(reason, text)) {
            Some((_, _, runs)) => runs.push(run),
            None => reasons.push((run.status, text, vec![run])),
        }
    }
    if reasons.is_empty() {
        return;
    }
    layout.heading(out, "runs not complete");
    for (status, reason, runs) in reasons {
        let numbers: Vec<String> = runs.iter().map(|run| run_name(run)).collect();
        let (listed, more) = numbers.split_at(numbers.len().min(LISTED_RUNS));
        let mut text = format!("{} {}", plural(runs.len(), "run"), listed.join(", "));
        if !more.is_empty() {
            let _ = write!(text, " and {} more", more.len());
        }
        text.push_str(match status {
            Status::Failed => " failed",
            Status::Void if runs.len() == 1 => " is void",
            Status::Void => " are void",
            Status::Interrupted | Status::Complete if runs.len() == 1 => " was cut short",
            Status::Interrupted | Status::Complete => " were cut short",
        });
        // The headline has told the reason of the whole.
        if !reason.is_empty() && document.failure.as_ref().is_none_or(|failure| failure.text != reason) {
            let _ = write!(text, ": {reason}");
            let why = |run: &Run| run.failure.as_ref().map(|failure| failure.text.clone());
            if runs.iter().any(|run| why(run).as_deref() != Some(reason)) {
                text.push_str(" (the first; the others alike)");
            }
        }
        paragraph(out, "  ", &text, 4, layout.columns());
    }
}

/// Whether two reasons differ in their figures alone, as those of samples that other programs disturbed do.
fn alike(one: &str, other: &str) -> bool {
    let words = |text: &'_ str| -> Vec<String> {
        let figure = |word: &&str| {
            !word.starts_with(|c: char| c.is_ascii_digit()) && !["ns", "µs", "ms", "s"].contains(word)
        };
        text.split_whitespace().filter(figure).map(str::to_owned).collect()
    };
    one == other || words(one) == words(other)
}

/// "7 (on)", counted from 1 as the progress line does.
fn run_name(run: &Run) -> String {
    let number = u64::from(run.index) + 1;
    match &run.arm {
        Some(arm) => bound(&format!("{number} ({})", label(arm, LONGEST_NAME))),
        None => number.to_string(),
    }
}

/// Every doubt once, on a line where it fits, with how often it was met and the option that answers it. What else there is
/// to do is told by [`explain()`]: a page of advice below the numbers hides which of them are in doubt.
fn doubts(out: &mut String, document: &Document, layout: Layout) {
    /// What was seen first, in how many different forms, and in which runs.
    #[derive(Default)]
    struct Seen<'a> {
        texts: Vec<&'a Doubt>,
        runs: usize,
    }
    let mut seen: BTreeMap<DoubtId, Seen> = BTreeMap::new();
    let mut order: Vec<DoubtId> = Vec::new();
    let whole = document.warnings.iter().chain(document.comparisons.iter().flat_map(|c| &c.doubts));
    let mut note = |doubt, in_run: bool| {
        let doubt: &Doubt = doubt;
        if !order.contains(&doubt.id) {
            order.push(doubt.id);
        }
        let entry = seen.entry(doubt.id).or_default();
        entry.runs += usize::from(in_run);
        if !entry.texts.iter().any(|known| known.text == doubt.text) {
            entry.texts.push(doubt);
        }
    };
    // Failed runs are listed above, each with its reason.
    whole.filter(|doubt| doubt.id != DoubtId::FailedRuns).for_each(|doubt| note(doubt, false));
    // The document has already gathered what its runs doubt; a run tells for itself only what is not there.
    let gathered = |id: DoubtId| document.warnings.iter().any(|doubt| doubt.id == id);
    for run in &document.runs {
        let mut told: Vec<DoubtId> = Vec::new();
        for doubt in run.warnings.iter().filter(|doubt| !gathered(doubt.id)) {
            note(doubt, !told.contains(&doubt.id));
            told.push(doubt.id);
        }
    }
    if order.is_empty() {
        return;
    }
    layout.heading(out, "doubts");
    for id in order {
        let Some(Seen { texts, runs }) = seen.get(&id) else { continue };
        let lead = format!("  {}: ", id.name());
        let remedy = id.remedy().map_or_else(String::new, |remedy| format!("-> {remedy}"));
        let room = layout.columns().saturating_sub(lead.len() + remedy.len() + 1);
        let (mut listed, mut text) = (0, String::new());
        for doubt in texts {
            let with = if listed == 0 { doubt.text.clone() } else { format!("{text}; {}", doubt.text) };
            if listed > 0 && with.chars().count() > room {
                break;
            }
            (listed, text) = (listed + 1, with);
        }
        if listed < texts.len() {
            let _ = write!(text, " (and {} more such)", texts.len() - listed);
        } else if *runs > 1 {
            let _ = write!(text, " (in {runs} runs)");
        }
        if !remedy.is_empty() {
            let _ = write!(text, " {}", bound(&remedy));
        }
        paragraph(out, &lead, &text, 4, layout.columns());
    }
    let text = "'haul explain NAME' says what to do about each.";
    paragraph(out, "  ", text, 2, layout.columns());
}

/// The word for so many.
fn plural(count: usize, one: &str) -> String {
    if count == 1 { one.to_owned() } else { format!("{one}s") }
}

/// `a`, `a and b`, `a, b and c`.
fn enumerate(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [head @ .., last] => format!("{} and {last}", head.join(", ")),
    }
}

/// A text from another host, on one line.
fn foreign(text: &str) -> String {
    clean(text).trim().to_owned()
}
