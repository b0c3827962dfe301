//! What is printed: the rows of a table with their medians, its ratios, and at the end what was missed.

use crate::figures::{Figure, Rounds, Spread, median};
use crate::rounds::Results;
use crate::table::{Ratio, Table};

/// What the whole comes to.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    /// Bounds that were held.
    met: usize,
    /// Bounds that were not, in words.
    missed: Vec<String>,
    /// Rows that did not run, or not always, in words.
    failed: Vec<String>,
}

impl Sum {
    /// Prints a table and remembers what it comes to. Rounds too short to judge are printed without a judgement.
    pub(crate) fn table(&mut self, table: &Table, results: &Results, judged: bool) {
        rows(table, results);
        for ratio in &table.ratios {
            self.ratio(table, ratio, results, judged);
        }
        for (name, why) in &results.failures {
            println!("not run: {name}: {why}");
            let text = format!("{name} ({})", table.title);
            if !self.failed.contains(&text) {
                self.failed.push(text);
            }
        }
    }

    /// Remembers that a comparison did not come to its end.
    pub(crate) fn broken(&mut self, name: &str, why: &anyhow::Error) {
        println!("\nnot run: {name}: {why:#}");
        self.failed.push(format!("{name}: {why:#}"));
    }

    fn ratio(&mut self, table: &Table, ratio: &Ratio, results: &Results, judged: bool) {
        let to = ratio.to.join(", ");
        let best = if ratio.to.len() > 1 { "best of " } else { "" };
        let name = format!("{} / {best}{to}", ratio.of);
        let Some(outcome) = ratio.over(|name| results.figures.get(name)) else {
            println!("{name:<WIDE$}   no round has them all");
            return;
        };
        let (rate, cost) = (table.counts.rate().0, table.counts.cost().0);
        let held = |what: &str, spread: Spread, sign: &str, bound: Option<f64>, ok: fn(f64, f64) -> bool| {
            let text = format!("{:.3} ({:.2} … {:.2})", spread.median, spread.least, spread.most);
            let Some(bound) = bound else { return (text, None) };
            if !judged {
                return (format!("{text} {sign} {bound}"), None);
            }
            let met = ok(spread.median, bound);
            let verdict = if met { "met" } else { "MISSED" };
            let missed = format!("{name}: {what} {text}, wanted {sign} {bound} ({})", table.title);
            (format!("{text} {sign} {bound} {verdict}"), Some((met, missed)))
        };
        let (rate, rate_held) = held(rate, outcome.rate, "≥", ratio.rate, |ratio, bound| ratio >= bound);
        let (cost, cost_held) = held(cost, outcome.cost, "≤", ratio.cost, |ratio, bound| ratio <= bound);
        println!("{name:<WIDE$}   {rate:<34}   {cost}");
        for (met, missed) in [rate_held, cost_held].into_iter().flatten() {
            if met {
                self.met += 1;
            } else {
                self.missed.push(missed);
            }
        }
    }

    /// Prints the end, and says whether everything ran.
    pub(crate) fn end(self) -> bool {
        let judged = self.met + self.missed.len();
        if judged > 0 {
            println!("\n{} of {judged} bounds met", self.met);
            self.missed.iter().for_each(|missed| println!("missed: {missed}"));
        }
        if !self.failed.is_empty() {
            println!();
            self.failed.iter().for_each(|failed| println!("not run: {failed}"));
        }
        self.failed.is_empty()
    }
}

/// As wide as the longest usual pair of names.
const WIDE: usize = 62;

/// The medians of each row.
fn rows(table: &Table, results: &Results) {
    let ((rate, per_second), (cost, for_one)) = (table.counts.rate(), table.counts.cost());
    let may_be_lost = table.counts.may_be_lost();
    println!("\n{}", table.title);
    line("", rate, cost, "own word", if may_be_lost { "lost %" } else { "" });
    for row in &table.rows {
        let middle = |of: fn(&Figure) -> Option<f64>| {
            let rounds: Option<&Rounds> = results.figures.get(&row.name);
            median(rounds.into_iter().flatten().flatten().filter_map(of).collect())
        };
        let cell = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let rate = middle(|figure| Some(figure.rate)).map(|rate| rate * per_second);
        let cost = middle(|figure| Some(figure.cost)).map(|cost| cost * for_one);
        let lost = middle(|figure| Some(figure.lost)).filter(|_| may_be_lost).map(|lost| lost * 1e2);
        let lost = if may_be_lost { cell(lost, 1) } else { String::new() };
        line(&row.name, &cell(rate, 2), &cell(cost, 3), &cell(middle(|figure| figure.word), 2), &lost);
    }
    println!("{:<WIDE$}   median of rounds (min … max): {rate:<20}   {cost}", "");
}

fn line(name: &str, rate: &str, cost: &str, word: &str, lost: &str) {
    let line = format!("{name:<WIDE$} {rate:>11} {cost:>13} {word:>9} {lost:>7}");
    println!("{}", line.trim_end());
}
