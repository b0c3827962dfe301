//! What was counted and what was sampled: tables of events, of what each class and symbol costs, and of what an arm changed.
//!
//! A class is one line ("copy 38 %"), because that is the question; its symbols follow, dearest first, as many as a page
//! holds. The interval stands beside the cost, not beside the share: the share moves when anything else does. Changes are
//! ordered by their size, and called cheaper or dearer only where they stand among all rows of their table.

use std::fmt::Write as _;

use haul_stats::compare::CostChange;
use haul_stats::{Scope, Verdict};

use super::number::{NONE, Number, Scale, grouped, percent, signed};
use super::table::{Align, Column, Table};
use super::wrap::{label, paragraph};
use super::{LONGEST_NAME, Layout, cell_name, plural};
use crate::profile::{ChangeRow, CostChanges, CostRow, Costs, Count, Profile, Whose};
use crate::record::{Document, Run};

/// The most symbols of a table; all are in the record.
const MOST_SYMBOLS: usize = 15;

/// Longest name of a symbol: what leaves room for its numbers on a page.
const LONGEST_SYMBOL: usize = 30;

/// The shortest a name is made so that the row it heads fits a page.
const SHORTEST_SYMBOL: usize = 14;

/// Share of the samples without a name from which it is said.
const UNRESOLVED_PCT: f64 = 1.0;

/// Behind a heading, where the kernel's part could not be had.
const USER_ONLY: &str = " in user mode only";

pub(super) fn show(out: &mut String, document: &Document, layout: Layout) {
    counts(out, document, layout);
    // Of a host that both ends share the symbols are told by end: a page of both together would say most of it twice.
    let by_end = document.costs.iter().any(|costs| costs.threads_only);
    let changes = document.cost_changes.iter().filter(|changes| changes.threads_only);
    for changes in changes.chain(document.cost_changes.iter().filter(|changes| !changes.threads_only)) {
        differences(out, changes, changes.threads_only || !by_end, layout);
    }
    let compared = !document.cost_changes.is_empty();
    // What the ends themselves did comes first: on a host there are also others.
    let ordered = document.costs.iter().filter(|costs| costs.threads_only);
    let ordered = ordered.chain(document.costs.iter().filter(|costs| !costs.threads_only));
    for costs in ordered {
        // What is compared stands in the tables of changes.
        if !(compared && costs.threads_only) {
            table(out, costs, !compared && (costs.threads_only || !by_end), layout);
        }
    }
    without(out, document, layout);
    overhead(out, document, layout);
}

fn whose(scope: Scope, threads_only: bool) -> &'static str {
    match (scope, threads_only) {
        (Scope::Sender, true) => "the sender's threads",
        (Scope::Receiver, true) => "the receiver's threads",
        (Scope::Client, true) => "the client's threads",
        (Scope::Server, true) => "the server's threads",
        (Scope::Sender, false) => "the sender's host",
        (Scope::Receiver, false) => "the receiver's host",
        (Scope::Client, false) => "the client's host",
        (Scope::Server, false) => "the server's host",
        (Scope::SharedHost | Scope::Run, _) => "the host of both ends",
    }
}

fn symbol(row: &CostRow) -> String {
    named(&row.name, row.module.as_deref())
}

/// A symbol, with its module where that is not the kernel itself.
fn named(name: &str, module: Option<&str>) -> String {
    shortened(name, module, LONGEST_SYMBOL)
}

fn shortened(name: &str, module: Option<&str>, most: usize) -> String {
    let module = module.filter(|module| *module != "[kernel]");
    let full = module.map_or_else(|| name.to_owned(), |module| format!("{name} [{module}]"));
    label(&full, most)
}

/// What one cell and arm costs, by class, and by symbol where that is wanted.
fn table(out: &mut String, costs: &Costs, by_symbol: bool, layout: Layout) {
    let mut heading = format!("what {} did", whose(costs.scope, costs.threads_only));
    if let Some(arm) = &costs.arm {
        let _ = write!(heading, " under {}", label(arm, LONGEST_NAME));
    }
    if costs.kernel_reason.is_some() {
        heading.push_str(USER_ONLY);
    }
    let at = cell_name(&costs.cell);
    if !at.is_empty() {
        let _ = write!(heading, " ({at})");
    }
    layout.heading(out, &heading);
    let symbols = if by_symbol { costs.symbols.as_slice() } else { &[] };
    let rows: Vec<&CostRow> = costs.classes.iter().chain([&costs.total]).collect();
    out.push_str(&rows_of("class", &rows, costs, layout));
    if !symbols.is_empty() {
        let (shown, hidden) = cut(symbols);
        out.push('\n');
        out.push_str(&rows_of("symbol", &shown, costs, layout));
        if hidden > 0 {
            let _ = writeln!(out, "  {hidden} more {} in the record", plural(hidden, "row"));
        }
    }
    if costs.threads_only && costs.host_reason.is_none() {
        return;
    }
    let mut text = format!(
        "from {} samples of {} in {} {}",
        grouped(costs.samples),
        costs.event,
        costs.runs,
        plural(costs.runs, "run"),
    );
    match (&costs.host_reason, &costs.kernel_reason) {
        (_, Some(reason)) => {
            let _ = write!(text, "; what the kernel did is not in it: {reason}");
        }
        (Some(reason), None) => {
            let _ = write!(text, "; only these threads were sampled, of all CPUs nothing is in it: {reason}");
        }
        (None, None) => {
            let idle = percent(costs.idle_pct);
            let _ = write!(text, "; an idle CPU ({idle} of the samples) costs nothing and is not in it");
        }
    }
    if costs.total.cost.interval.is_none() {
        text.push_str("; 6 profiled runs are the fewest that give an interval");
    }
    if costs.unresolved_pct >= UNRESOLVED_PCT {
        let _ = write!(text, "; {} have no name", percent(costs.unresolved_pct));
    }
    if costs.lost > 0 {
        let _ = write!(text, "; the kernel had no room for {} more", grouped(costs.lost));
    }
    paragraph(out, "  ", &text, 2, layout.columns());
}

/// The dearest rows and what is left of the tail, and how many are not shown.
fn cut<T>(rows: &[T]) -> (Vec<&T>, usize) {
    let (shown, hidden) = rows.split_at(rows.len().min(MOST_SYMBOLS));
    (shown.iter().collect(), hidden.len())
}

fn rows_of(what: &str, rows: &[&CostRow], costs: &Costs, layout: Layout) -> String {
    let number = |row: &&CostRow| Number { mean: row.cost.mean, stddev: None }.finite();
    let numbers: Vec<Option<Number>> = rows.iter().map(number).collect();
    let known: Vec<Number> = numbers.iter().copied().flatten().collect();
    let scale = Scale::of(&costs.unit, &known);
    let names = rows.iter().map(|row| symbol(row)).collect();
    let shares = rows.iter().map(|row| format!("{:.1}", row.share_pct)).collect();
    let intervals = rows.iter().map(|row| interval(row.cost.interval, |end| scale.show(end))).collect();
    let level = format!("{} interval", percent(costs.confidence * 100.0));
    let mut keys = vec![Column::text(&[what], Align::Left, names)];
    if rows.iter().any(|row| row.class.is_some()) {
        let classes = rows.iter().map(|row| row.class.clone().unwrap_or_default());
        keys.push(Column::text(&["class"], Align::Left, classes.collect()));
    }
    let values = vec![
        Column::text(&["share", "%"], Align::Right, shares),
        Column::numbers(&["cost"], &costs.unit, &numbers),
        Column::text(&[&level, &scale.unit], Align::Right, intervals),
    ];
    Table { keys, values, stacked: false }.render(layout.columns())
}

fn interval(ends: Option<[f64; 2]>, show: impl Fn(f64) -> String) -> String {
    ends.map_or_else(|| NONE.to_owned(), |[low, high]| format!("{} … {}", show(low), show(high)))
}

/// What an arm changed.
fn differences(out: &mut String, changes: &CostChanges, by_symbol: bool, layout: Layout) {
    let [arm, base] = [&changes.arm, &changes.base].map(|name| label(name, LONGEST_NAME));
    let mut heading =
        format!("{arm} against {base}: what {} did", whose(changes.scope, changes.threads_only));
    if changes.kernel_reason.is_some() {
        heading.push_str(USER_ONLY);
    }
    let at = cell_name(&changes.cell);
    if !at.is_empty() {
        let _ = write!(heading, " ({at})");
    }
    layout.heading(out, &heading);
    if let Some(reason) = &changes.reason {
        paragraph(out, "  ", &format!("no change of costs: {reason}"), 2, layout.columns());
        return;
    }
    let classes: Vec<&ChangeRow> = changes.classes.iter().chain(&changes.total).collect();
    out.push_str(&change_rows("class", &classes, changes, layout));
    let (symbols, hidden) = if by_symbol { cut(&changes.symbols) } else { (Vec::new(), 0) };
    if !symbols.is_empty() {
        out.push('\n');
        out.push_str(&change_rows("symbol", &symbols, changes, layout));
    }
    if hidden > 0 {
        let _ = writeln!(out, "  {hidden} more {} in the record", plural(hidden, "row"));
    }
    let alone = changes.classes.iter().chain(&changes.symbols).filter(|row| is_alone(&row.change)).count();
    let mut text = format!(
        "from {} {} of profiled runs; change: from the pairs, not from the means; cheaper and dearer: the interval holds no 0, and it stands among all rows of the table",
        changes.pairs,
        plural(changes.pairs, "pair"),
    );
    if let Some(reason) = &changes.kernel_reason {
        let _ = write!(text, "; what the kernel did is not in it: {reason}");
    }
    if alone > 0 {
        text.push_str(" (*: only when looked at alone)");
    }
    if changes.total.as_ref().is_some_and(|total| total.change.interval.is_none()) {
        text.push_str("; 6 pairs are the fewest that give an interval");
    }
    paragraph(out, "  ", &text, 2, layout.columns());
}

fn is_alone(change: &CostChange) -> bool {
    change.verdict != change.verdict_corrected
}

fn change_rows(what: &str, rows: &[&ChangeRow], changes: &CostChanges, layout: Layout) -> String {
    let numbers = |of: fn(&CostChange) -> f64| -> Vec<Option<Number>> {
        rows.iter().map(|row| Number { mean: of(&row.change), stddev: None }.finite()).collect()
    };
    let (bases, arms) = (numbers(|change| change.base), numbers(|change| change.arm));
    let all: Vec<Number> = bases.iter().chain(&arms).copied().flatten().collect();
    let scale = Scale::of(&changes.unit, &all);
    let places = scale.show(1.0).split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let signed_in = |value: f64| signed(value, places);
    let of = |text: &dyn Fn(&ChangeRow) -> String| rows.iter().map(|row| text(row)).collect::<Vec<_>>();
    let moved = of(&|row| signed_in(row.change.change));
    let intervals = of(&|row| interval(row.change.interval, signed_in));
    let words = of(&|row| word(&row.change));
    let level = format!("{} interval", percent(changes.confidence * 100.0));
    let heads = [(&changes.base, "base"), (&changes.arm, "arm")].map(|(name, role)| {
        let name = label(name, LONGEST_NAME);
        if name.chars().count() <= 8 { name } else { role.to_owned() }
    });
    let cells = |of: &[Option<Number>]| {
        of.iter().map(|it| it.as_ref().map_or_else(|| NONE.to_owned(), |it| scale.show(it.mean))).collect()
    };
    // `narrow`: the unit of the numbers in two lines, as "ns/" and "transaction".
    let table = |longest: usize, narrow: bool| {
        let names = of(&|row| shortened(&row.name, row.module.as_deref(), longest));
        let (first, second) = scale.unit.split_at(scale.unit.find('/').map_or(0, |at| at + 1));
        let numbers = |head: &str, of: &[Option<Number>]| {
            if narrow {
                Column::text(&[head, first, second], Align::Right, cells(of))
            } else {
                Column::numbers_beside(&[head], &changes.unit, of, &all)
            }
        };
        let moved_head = if narrow { vec!["change", first, second] } else { vec!["change", &scale.unit] };
        Table {
            keys: vec![Column::text(&[what], Align::Left, names)],
            values: vec![
                numbers(&heads[0], &bases),
                numbers(&heads[1], &arms),
                Column::text(&moved_head, Align::Right, moved.clone()),
                Column::text(&[&level], Align::Right, intervals.clone()),
                Column::text(&[""], Align::Left, words.clone()),
            ],
            stacked: false,
        }
    };
    // The verdict stands in the row it is of: a name gives way to it, as far as a name can be told from others.
    let lengths = [false, true]
        .into_iter()
        .flat_map(|narrow| (SHORTEST_SYMBOL..=LONGEST_SYMBOL).rev().map(move |longest| (longest, narrow)));
    let mut tables = lengths.map(|(longest, narrow)| table(longest, narrow));
    let fitting = tables.find(|table| table.fits_inline(layout.columns()));
    fitting.unwrap_or_else(|| table(LONGEST_SYMBOL, false)).render(layout.columns())
}

fn word(change: &CostChange) -> String {
    let word = match change.verdict {
        Verdict::Better => "cheaper",
        Verdict::Worse => "dearer",
        Verdict::Equivalent | Verdict::Undecided => return String::new(),
    };
    if is_alone(change) { format!("{word}*") } else { word.to_owned() }
}

/// Runs that were to be profiled and were not, by reason.
fn without(out: &mut String, document: &Document, layout: Layout) {
    let mut reasons: Vec<(&Profile, usize)> = Vec::new();
    let absent =
        document.runs.iter().flat_map(|run| &run.profiles).filter(|profile| profile.reason.is_some());
    for profile in absent {
        match reasons
            .iter_mut()
            .find(|(known, _)| known.reason == profile.reason && known.scope == profile.scope)
        {
            Some((_, count)) => *count += 1,
            None => reasons.push((profile, 1)),
        }
    }
    if reasons.is_empty() {
        return;
    }
    layout.heading(out, "not profiled");
    for (profile, count) in reasons {
        let text = format!(
            "{} in {count} {}: {}",
            whose(profile.scope, false),
            plural(count, "run"),
            profile.reason.as_deref().unwrap_or_default()
        );
        paragraph(out, "  ", &text, 4, layout.columns());
    }
}

/// What the profiled runs came to beside the others: the price of looking.
fn overhead(out: &mut String, document: &Document, layout: Layout) {
    use super::rows::{headline, rows, value};
    let measured = rows(&document.runs);
    let (metric, scope) = headline(&measured);
    let mean = |wanted: &dyn Fn(&Run) -> bool| {
        let runs = document.runs.iter().filter(|run| wanted(run));
        Number::of(&runs.filter_map(|run| value(run, metric, scope)).collect::<Vec<_>>())
    };
    let profiled =
        |run: &Run| run.profiled && run.status == crate::record::Status::Complete && !run.profiles.is_empty();
    let (Some(with), Some(without)) = (mean(&profiled), mean(&Run::counts)) else { return };
    let ratio = (with.mean / without.mean - 1.0) * 100.0;
    if document.costs.is_empty() || !ratio.is_finite() {
        return;
    }
    let text = format!(
        "The profiled runs had {} % {metric} against the measured ones, all of them together: what sampling takes, and chance.",
        signed(ratio, 1)
    );
    paragraph(out, "", &text, 0, layout.columns());
}

/// Events that were counted: a mean for each, of the runs that count.
fn counts(out: &mut String, document: &Document, layout: Layout) {
    let runs = || document.runs.iter().filter(|run| run.counts());
    let mut seen: Vec<&Count> = Vec::new();
    for count in runs().flat_map(|run| &run.counts) {
        if !seen.iter().any(|known| is_same(known, count)) {
            seen.push(count);
        }
    }
    if seen.is_empty() {
        return;
    }
    layout.heading(out, "counted in the window");
    let (known, absent): (Vec<&Count>, Vec<&Count>) = seen.into_iter().partition(|count| {
        runs().flat_map(|run| &run.counts).any(|other| is_same(count, other) && other.value.is_some())
    });
    let values = |count: &Count| {
        let same = runs().flat_map(|run| &run.counts).filter(|other| is_same(count, other));
        same.filter_map(|count| count.value).map(|value| value as f64).collect::<Vec<_>>()
    };
    let estimate = |count: &Count| {
        runs().flat_map(|run| &run.counts).any(|other| is_same(count, other) && other.estimate)
    };
    if !known.is_empty() {
        let names = known.iter().map(|count| label(&count.event, LONGEST_SYMBOL)).collect();
        let whose = known.iter().map(|count| counted_of(count)).collect();
        let means = known.iter().map(|count| {
            Number::of(&values(count)).map_or_else(|| NONE.to_owned(), |it| as_counted(count, it.mean))
        });
        let marks =
            known.iter().map(|count| if estimate(count) { "estimate".to_owned() } else { String::new() });
        let table = Table {
            keys: vec![
                Column::text(&["event"], Align::Left, names),
                Column::text(&["of"], Align::Left, whose),
            ],
            values: vec![
                Column::text(&["count"], Align::Right, means.collect()),
                Column::text(&[""], Align::Left, marks.collect()),
            ],
            stacked: false,
        };
        out.push_str(&table.render(layout.columns()));
        if known.iter().any(|count| estimate(count)) {
            let text = "estimate: it was on a counter for a part of the window, and is scaled up from that";
            paragraph(out, "  ", text, 2, layout.columns());
        }
    }
    // One reason often holds for many events.
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for count in absent {
        let (reason, name) = (count.reason.as_deref().unwrap_or("not counted"), count.event.clone());
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) if names.contains(&name) => {}
            Some((_, names)) => names.push(name),
            None => reasons.push((reason, vec![name])),
        }
    }
    for (reason, names) in reasons {
        paragraph(out, "  ", &format!("no {}: {reason}", names.join(", ")), 4, layout.columns());
    }
}

fn is_same(one: &Count, other: &Count) -> bool {
    one.event == other.event && one.scope == other.scope && one.whose == other.whose
}

fn counted_of(count: &Count) -> String {
    whose(count.scope, count.whose == Whose::Threads).to_owned()
}

/// A count with its digits; the clocks among the events count nanoseconds.
fn as_counted(count: &Count, mean: f64) -> String {
    if matches!(count.event.as_str(), "task-clock" | "cpu-clock") {
        return format!("{:.3} s", mean / 1e9);
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a mean of counts is not negative"
    )]
    let whole = mean.round() as u64;
    grouped(whole)
}
