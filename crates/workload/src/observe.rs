//! What an end looks at beside its workers: events counted on its host and in its threads, and its CPUs sampled.
//!
//! ```text
//! prepare   counters and profiler opened, before the start: opening hundreds of events takes milliseconds
//! open      counters read │ samples count from here
//! close     counters read │ and no longer
//! report    differences, and the samples by symbol: names are looked up only now
//! ```
//!
//! What cannot be had is a reason in the report and never an error of the run: its numbers stand without it. Both edges are
//! read after the CPU figures, in the same order, so that what the reading costs is in neither or in both.

use std::time::Duration;

use haul_host::probe::counters::{Count, Counters, Event, Of, Snapshot};
use haul_host::probe::profile::{Profile, ProfileOptions, Profiler};
use haul_host::thread::Tid;
use serde::{Deserialize, Serialize};

use crate::spec::{Hosts, MAX_EVENT_NAME, MAX_EVENTS, Observe, RunSpec};

/// The longest text that is taken from the other end: names of symbols in C++ and Rust are longer than one thinks.
const MOST_TEXT: usize = 1_024;

/// The most symbols and stacks of a profile that are taken from the other end.
const MOST_SYMBOLS: usize = 4_096;

/// What an end saw beside its workers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Observed {
    /// Events of all CPUs of the host.
    pub host: Vec<Count>,
    /// Events of the worker threads, added up.
    pub threads: Vec<Count>,
    /// Samples of all CPUs of the host, or where this user may not have them of the worker threads
    /// ([`Profile::host_reason`] and [`Profile::kernel_reason`] then say what forbids it).
    pub profile: Option<Profile>,
    /// Why there is no profile where one was asked for.
    pub reason: Option<String>,
}

impl Observed {
    /// Says what of it cannot be true, or is more than was asked for.
    pub(crate) fn check(&self) -> Result<(), String> {
        let holds = |fact: bool, what: &str| if fact { Ok(()) } else { Err(what.to_owned()) };
        let short = |text: &str| text.len() <= MOST_TEXT;
        for counts in [&self.host, &self.threads] {
            holds(counts.len() <= MAX_EVENTS, "it counted more events than it was asked to")?;
            let named = |count: &Count| {
                count.event.len() <= MAX_EVENT_NAME && count.reason.as_deref().is_none_or(short)
            };
            holds(counts.iter().all(named), "the text of an event is too long")?;
            // Added up and divided: 2^53 events are a month of all the cycles of a CPU.
            let possible = |count: &Count| count.value.is_none_or(|value| value <= 1 << 60);
            holds(counts.iter().all(possible), "there were more events than there can be")?;
        }
        if let Some(profile) = &self.profile {
            let few = profile.symbols.len() <= MOST_SYMBOLS && profile.stacks.len() <= MOST_SYMBOLS;
            holds(few, "its profile has more symbols than are sent")?;
            let named = profile.symbols.iter().all(|it| short(&it.symbol) && short(&it.module));
            holds(named && profile.notes.iter().all(|note| short(note)), "a symbol's name is too long")?;
            let most = |amount: u64| amount <= 1 << 60;
            let possible = most(profile.amount) && profile.symbols.iter().all(|it| most(it.amount));
            holds(possible, "a symbol cost more than there can be")?;
            let reasons = [&profile.host_reason, &profile.kernel_reason];
            holds(reasons.into_iter().flatten().all(|it| short(it)), "a reason is too long")?;
            holds(profile.build_ids.len() <= MOST_SYMBOLS, "its profile names more files than are sent")?;
        }
        holds(self.reason.as_deref().is_none_or(short), "a reason is too long")
    }
}

/// What is being looked at, from before the start to the report.
#[derive(Debug)]
pub(crate) struct Inside {
    /// Names that are no event here, with the reason.
    unknown: Vec<Count>,
    host: Option<Looking>,
    threads: Vec<Looking>,
    profiler: Option<Result<Profiler, String>>,
}

/// Counters, and how they stood at the edges.
#[derive(Debug)]
struct Looking {
    counters: Counters,
    open: Option<Snapshot>,
    close: Option<Snapshot>,
}

impl Looking {
    fn new(groups: &[Vec<Event>], of: Of) -> Self {
        Self { counters: Counters::open(groups, of), open: None, close: None }
    }

    fn counts(self) -> Vec<Count> {
        // Before the window there is nothing to tell; a window that never closed has no end to take it to.
        self.open.zip(self.close).map(|(open, close)| close.since(&open)).unwrap_or_default()
    }
}

impl Inside {
    /// Opens what was asked for; `None` where nothing was.
    pub(crate) fn prepare(spec: &RunSpec, client: bool, workers: impl Iterator<Item = Tid>) -> Option<Self> {
        let observe = &spec.observe;
        if observe.events.is_empty() && observe.profile_hz.is_none() {
            return None;
        }
        let (mut groups, mut unknown) = (Vec::new(), Vec::new());
        for (number, names) in (0_u32..).zip(&observe.events) {
            let mut group = Vec::new();
            for name in names {
                match Event::parse(name) {
                    Ok(event) => group.push(event),
                    Err(error) => unknown.push(unknown_here(name, number, error.to_string())),
                }
            }
            groups.push(group);
        }
        let whole = observe.hosts.includes(client);
        let counted = groups.iter().any(|group| !group.is_empty());
        let workers: Vec<Tid> = workers.collect();
        let options = observe.profile_hz.map(|hz| ProfileOptions { hz, ..ProfileOptions::default() });
        Some(Self {
            unknown,
            host: (whole && counted).then(|| Looking::new(&groups, Of::Host)),
            threads: if counted {
                workers.iter().map(|&worker| Looking::new(&groups, Of::Thread(worker))).collect()
            } else {
                Vec::new()
            },
            profiler: options.and_then(|options| profiler(&options, observe, whole, &workers)),
        })
    }

    fn each(&mut self) -> impl Iterator<Item = &mut Looking> {
        self.host.iter_mut().chain(&mut self.threads)
    }

    /// The window opens.
    pub(crate) fn open(&mut self) {
        if let Some(Ok(profiler)) = &self.profiler {
            profiler.mark_open();
        }
        for looking in self.each() {
            looking.open = Some(looking.counters.read());
        }
    }

    /// The window closes.
    pub(crate) fn close(&mut self) {
        if let Some(Ok(profiler)) = &self.profiler {
            profiler.mark_close();
        }
        for looking in self.each() {
            looking.close = Some(looking.counters.read());
        }
    }

    /// What was seen.
    pub(crate) fn report(self) -> Observed {
        let Self { unknown, host, threads, profiler } = self;
        let finish = |profiler: Profiler| profiler.finish().map_err(|error| error.to_string());
        let finished = profiler.map(|profiler| profiler.and_then(finish));
        let (profile, reason) = match finished {
            Some(Ok(profile)) => (Some(profile), None),
            Some(Err(reason)) => (None, Some(reason)),
            None => (None, None),
        };
        let with_unknown = |counts: Vec<Count>| counts.into_iter().chain(unknown.iter().cloned()).collect();
        Observed {
            host: host.map(|host| with_unknown(host.counts())).unwrap_or_default(),
            threads: with_unknown(sum(threads.into_iter().map(Looking::counts))),
            profile,
            reason,
        }
    }
}

/// The profiler of an end. Where all CPUs may not be sampled, each end of a shared host samples its own threads.
fn profiler(
    options: &ProfileOptions,
    observe: &Observe,
    whole: bool,
    workers: &[Tid],
) -> Option<Result<Profiler, String>> {
    let started = match (&observe.refused, whole) {
        (Some(reason), true) => return Some(Err(reason.clone())),
        (None, true) => Profiler::start_or_threads(options, workers).map(Some),
        (None, false) if observe.hosts == Hosts::Client => {
            Profiler::start_threads_where_forbidden(options, workers)
        }
        (_, false) => return None,
    };
    started.map_err(|error| error.to_string()).transpose()
}

/// An event whose name says nothing to this host.
fn unknown_here(name: &str, group: u32, reason: String) -> Count {
    let none = Duration::ZERO;
    Count {
        event: name.to_owned(),
        group,
        value: None,
        enabled: none,
        running: none,
        estimate: false,
        reason: Some(reason),
    }
}

/// The same events of several threads as one: a sum where each has a number, else the reason of the first that has none.
fn sum(threads: impl Iterator<Item = Vec<Count>>) -> Vec<Count> {
    let mut all: Vec<Count> = Vec::new();
    for (index, counts) in threads.enumerate() {
        if index == 0 {
            all = counts;
            continue;
        }
        for (total, count) in all.iter_mut().zip(counts) {
            total.value = total.value.zip(count.value).and_then(|(one, other)| one.checked_add(other));
            total.enabled += count.enabled;
            total.running += count.running;
            total.estimate |= count.estimate;
            total.reason = total.reason.take().or(count.reason);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(value: Option<u64>, running_ms: u64) -> Count {
        Count {
            event: "cycles".to_owned(),
            group: 0,
            value,
            enabled: Duration::from_millis(10),
            running: Duration::from_millis(running_ms),
            estimate: running_ms < 10,
            reason: value.is_none().then(|| "it was never on a counter".to_owned()),
        }
    }

    #[test]
    fn threads_add_up_and_one_without_a_number_leaves_none() {
        let whole = sum([vec![count(Some(5), 10)], vec![count(Some(7), 5)]].into_iter());
        assert_eq!((whole[0].value, whole[0].estimate), (Some(12), true));
        assert_eq!(
            (whole[0].enabled, whole[0].running),
            (Duration::from_millis(20), Duration::from_millis(15))
        );
        let part = sum([vec![count(Some(5), 10)], vec![count(None, 0)]].into_iter());
        assert_eq!(part[0].value, None);
        assert!(part[0].reason.as_deref().is_some_and(|reason| reason.contains("never")));
    }

    #[test]
    fn a_report_that_was_not_asked_for_is_refused() {
        let mut many = Observed { host: vec![count(Some(1), 10); MAX_EVENTS], ..Observed::default() };
        assert_eq!(many.check(), Ok(()));
        many.host.push(count(Some(1), 10));
        assert!(many.check().is_err());
        let huge = Observed { threads: vec![count(Some(u64::MAX), 10)], ..Observed::default() };
        assert!(huge.check().is_err_and(|what| what.contains("more events")));
        let long = Observed { reason: Some("x".repeat(MOST_TEXT + 1)), ..Observed::default() };
        assert!(long.check().is_err());
    }
}
