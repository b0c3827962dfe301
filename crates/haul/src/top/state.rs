//! What is shown: the last interval, and the sums since the start.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use haul_host::probe::profile::Class;

use super::slice::{Slice, Symbol, Whose};

/// Symbols whose sums are kept; of a busy host some thousand are seen in an hour.
const MOST_SYMBOLS: usize = 8192;

/// Whose symbols are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    All,
    Only(Whose),
}

impl Shown {
    pub(crate) fn next(self) -> Self {
        match self {
            Self::All => Self::Only(Whose::Sender),
            Self::Only(Whose::Sender) => Self::Only(Whose::Receiver),
            Self::Only(Whose::Receiver) => Self::Only(Whose::Others),
            Self::Only(Whose::Others) => Self::All,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::All => "all threads",
            Self::Only(Whose::Sender) => "sending threads",
            Self::Only(Whose::Receiver) => "receiving threads",
            Self::Only(Whose::Others) => "other threads",
        }
    }

    fn has(self, whose: Whose) -> bool {
        self == Self::All || self == Self::Only(whose)
    }
}

type Key = (String, String, Class, Whose);

/// All that a frame depends on.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of its own, and any may go with any")]
pub(crate) struct State {
    pub(crate) began: Instant,
    pub(crate) interval: Duration,
    pub(crate) title: Option<String>,
    pub(crate) colour: bool,
    pub(crate) paused: bool,
    pub(crate) by_class: bool,
    pub(crate) whose: Shown,
    pub(crate) help: bool,
    pub(crate) ending: bool,
    pub(crate) last: Option<Slice>,
    /// ns of each symbol: in all, and in intervals in which units moved.
    sums: HashMap<Key, (f64, f64)>,
    /// CPU time that was not idle, and the units that moved, since the start.
    busy: f64,
    units: f64,
    /// CPU time that was not idle while units moved.
    busy_moving: f64,
    seconds: f64,
    own: Duration,
}

/// A line of the table: a symbol, or a class.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) class: Class,
    /// Shares of what was not idle, 0 to 1: in the last interval, and since the start.
    pub(crate) share: f64,
    pub(crate) mean_share: f64,
    /// ns per unit where units moved, ns per second else.
    pub(crate) cost: f64,
    pub(crate) mean_cost: f64,
}

impl State {
    pub(crate) fn new(interval: Duration, title: Option<String>, colour: bool) -> Self {
        Self {
            began: Instant::now(),
            interval,
            title,
            colour,
            paused: false,
            by_class: false,
            whose: Shown::All,
            help: false,
            ending: false,
            last: None,
            sums: HashMap::new(),
            busy: 0.0,
            units: 0.0,
            busy_moving: 0.0,
            seconds: 0.0,
            own: Duration::ZERO,
        }
    }

    /// Takes in an interval.
    pub(crate) fn take(&mut self, slice: Slice) {
        let busy = slice.cpu.busy.as_secs_f64() * 1e9;
        self.seconds += slice.cpu.elapsed.as_secs_f64();
        self.own += slice.own;
        let moving = slice.divisor.units();
        if let Some(units) = moving {
            self.units += units;
            self.busy_moving += busy;
        }
        if let Ok(symbols) = &slice.symbols {
            self.busy += busy;
            for symbol in symbols {
                let key = key(symbol);
                if self.sums.len() >= MOST_SYMBOLS && !self.sums.contains_key(&key) {
                    self.forget();
                }
                let (all, while_moving) = self.sums.entry(key).or_default();
                *all += symbol.nanos;
                if moving.is_some() {
                    *while_moving += symbol.nanos;
                }
            }
        }
        self.last = Some(slice);
    }

    /// Makes room: the cheaper half has no place on a screen.
    fn forget(&mut self) {
        let mut sums: Vec<f64> = self.sums.values().map(|(all, _)| *all).collect();
        let middle = sums.len() / 2;
        let (_, &mut least, _) = sums.select_nth_unstable_by(middle, f64::total_cmp);
        self.sums.retain(|_, (all, _)| *all > least);
    }

    /// Follows another in how it is shown, not in what.
    pub(crate) fn look_like(&mut self, other: &Self) {
        self.by_class = other.by_class;
        self.whose = other.whose;
        self.help = other.help;
        self.interval = other.interval;
        self.ending = other.ending;
        self.paused = other.paused;
    }

    /// Whether costs are per unit that moved, now and on the mean; per second elsewhere.
    pub(crate) fn per_unit(&self) -> Option<&'static str> {
        let divisor = &self.last.as_ref()?.divisor;
        divisor.units().map(|_| divisor.unit())
    }

    /// Service demand since the start, in µs per unit.
    pub(crate) fn mean_demand(&self) -> Option<f64> {
        (self.units > 0.0).then(|| self.busy_moving / 1e3 / self.units)
    }

    /// CPU time of haul top as a share of one CPU since the start.
    pub(crate) fn own_share(&self) -> f64 {
        if self.seconds > 0.0 { self.own.as_secs_f64() / self.seconds } else { 0.0 }
    }

    /// The table, the costliest of the last interval first.
    pub(crate) fn rows(&self, most: usize) -> Vec<Row> {
        let Some(last) = &self.last else { return Vec::new() };
        let mut lines: HashMap<(String, Class), (f64, f64, f64)> = HashMap::new();
        let name = |symbol: &str, module: &str, class: Class| {
            if self.by_class { class.name().to_owned() } else { format!("{symbol} {}", in_brackets(module)) }
        };
        for symbol in last.symbols.iter().flatten().filter(|symbol| self.whose.has(symbol.whose)) {
            let key = (name(&symbol.name, &symbol.module, symbol.class), symbol.class);
            lines.entry(key).or_default().0 += symbol.nanos;
        }
        for ((symbol, module, class, whose), (all, moving)) in &self.sums {
            if self.whose.has(*whose) {
                let line = lines.entry((name(symbol, module, *class), *class)).or_default();
                line.1 += all;
                line.2 += moving;
            }
        }
        let of = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let busy = last.cpu.busy.as_secs_f64() * 1e9;
        let per_unit = last.divisor.units();
        let units = per_unit.unwrap_or(last.cpu.elapsed.as_secs_f64());
        let row = |((name, class), (nanos, sum, moving)): ((String, Class), (f64, f64, f64))| Row {
            name,
            class,
            share: of(nanos, busy),
            mean_share: of(sum, self.busy),
            cost: of(nanos, units),
            mean_cost: if per_unit.is_some() { of(moving, self.units) } else { of(sum, self.seconds) },
        };
        let mut rows: Vec<Row> = lines.into_iter().map(row).collect();
        rows.sort_by(|a, b| {
            b.share
                .total_cmp(&a.share)
                .then(b.mean_share.total_cmp(&a.mean_share))
                .then_with(|| a.name.cmp(&b.name))
        });
        rows.truncate(most);
        rows
    }
}

fn key(symbol: &Symbol) -> Key {
    (symbol.name.clone(), symbol.module.clone(), symbol.class, symbol.whose)
}

fn in_brackets(module: &str) -> String {
    if module.starts_with('[') { module.to_owned() } else { format!("[{module}]") }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::top::slice::{Divisor, tests::slice};

    fn share(state: &State, name: &str) -> (f64, f64, f64, f64) {
        let rows = state.rows(100);
        let row = rows.iter().find(|row| row.name.starts_with(name)).expect("a row");
        (row.share, row.mean_share, row.cost, row.mean_cost)
    }

    #[test]
    fn a_symbol_goes_up_and_down_and_its_mean_is_of_all_intervals_that_moved() {
        let mut state = State::new(Duration::from_secs(1), None, false);
        // A second of two CPUs, one of them busy; the copy took 600 ms of it, and 1,000 KiB moved.
        state.take(slice(
            Divisor::Payload(1_024_000.0),
            &[("copy_one", Class::Copy, 6e8), ("spin", Class::User, 4e8)],
        ));
        assert_eq!(share(&state, "copy_one"), (0.6, 0.6, 6e5, 6e5));
        state.take(slice(Divisor::Payload(1_024_000.0), &[("spin", Class::User, 1e9)]));
        assert_eq!(share(&state, "copy_one"), (0.0, 0.3, 0.0, 3e5));
        // Nothing moved: by the second, and what it cost then is in no cost per KiB.
        state.take(slice(Divisor::None, &[("copy_one", Class::Copy, 1e9)]));
        assert_eq!(share(&state, "copy_one"), (1.0, 1.6 / 3.0, 1e9, 1.6e9 / 3.0));
        state.take(slice(Divisor::Payload(1_024_000.0), &[("copy_one", Class::Copy, 0.0)]));
        assert_eq!(share(&state, "copy_one"), (0.0, 0.4, 0.0, 2e5));
        assert_eq!(state.mean_demand(), Some(1e3));
    }

    #[test]
    fn the_sums_of_symbols_are_bounded_and_the_costly_ones_stay() {
        let mut state = State::new(Duration::from_secs(1), None, false);
        state.take(slice(Divisor::None, &[("costly", Class::Copy, 1e9)]));
        for number in 0..2 * MOST_SYMBOLS {
            state.take(slice(Divisor::None, &[(&format!("s{number}"), Class::User, number as f64)]));
        }
        assert!(state.sums.len() <= MOST_SYMBOLS);
        assert!(state.rows(MOST_SYMBOLS).iter().any(|row| row.name.starts_with("costly")));
    }
}
