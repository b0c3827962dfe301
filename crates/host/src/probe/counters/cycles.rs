//! Cycles and instructions of the calling thread in user mode: what a survey of copy routines counts.
//!
//! [`CycleCounter::open`] says why where there are none (a virtual machine often has none, and `perf_event_paranoid` may forbid
//! them). Where other programs count too, the kernel takes turns; for a sample of microseconds a scaled count would be a guess,
//! so [`Cycles::since`] gives none. [`CountsCycles`] is the seam: whoever measures takes anything that counts.

use super::{Counters, Event, Of, Snapshot};
use crate::error::{HostError, Result};
use crate::thread;

/// What was counted up to a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cycles {
    /// CPU cycles in user mode.
    pub cycles: u64,
    /// Instructions completed in user mode.
    pub instructions: u64,
    /// For how long the counters were wanted, in nanoseconds.
    pub enabled: u64,
    /// For how long they ran.
    pub running: u64,
}

impl Cycles {
    /// Cycles and instructions since `earlier`; `None` where the counters did not run all the time.
    #[must_use]
    pub fn since(self, earlier: Self) -> Option<(u64, u64)> {
        let all = self.enabled.checked_sub(earlier.enabled)? == self.running.checked_sub(earlier.running)?;
        let (cycles, instructions) =
            (self.cycles.checked_sub(earlier.cycles)?, self.instructions.checked_sub(earlier.instructions)?);
        (all && cycles > 0).then_some((cycles, instructions))
    }
}

/// Something that counts for the thread that asks.
pub trait CountsCycles: Send {
    /// What was counted so far; `None` where it could not be read.
    fn read(&mut self) -> Option<Cycles>;
}

/// The counters of the thread that opened them.
#[derive(Debug)]
pub struct CycleCounter(Counters);

impl CycleCounter {
    /// Opens both for the calling thread.
    ///
    /// # Errors
    /// What the kernel says, with what it means and the remedy.
    pub fn open() -> Result<Self> {
        let events = vec![Event::parse("cycles:u")?, Event::parse("instructions:u")?];
        let counters = Counters::open(&[events], Of::Thread(thread::current_tid()));
        let now = counters.read();
        match now.since(&now).into_iter().find_map(|count| count.reason) {
            None => Ok(Self(counters)),
            Some(reason) => Err(HostError::Unavailable {
                operation: "open",
                object: "the counters of cycles and instructions".into(),
                reason,
            }),
        }
    }
}

impl CountsCycles for CycleCounter {
    fn read(&mut self) -> Option<Cycles> {
        of(&self.0.read())
    }
}

/// Several kinds of cores are several readings; a thread is on one of them at a time, and the sums are its own.
fn of(snapshot: &Snapshot) -> Option<Cycles> {
    let places = snapshot.words.first().filter(|places| !places.is_empty())?;
    places.iter().try_fold(Cycles::default(), |sum, words| {
        let &[enabled, running, cycles, instructions] = words.as_slice() else { return None };
        Some(Cycles {
            cycles: sum.cycles + cycles,
            instructions: sum.instructions + instructions,
            enabled: sum.enabled.max(enabled),
            running: sum.running + running,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_count_the_work_of_this_thread_or_say_why_there_are_none() {
        match CycleCounter::open() {
            Ok(mut counters) => {
                let before = counters.read().expect("read");
                let turns = (0..1_000_000_u64).fold(0, |sum, turn| std::hint::black_box(sum ^ turn));
                std::hint::black_box(turns);
                let after = counters.read().expect("read");
                if let Some((_, instructions)) = after.since(before) {
                    assert!(instructions > 1_000_000, "{instructions} instructions for a million turns");
                }
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.starts_with("cannot open the counters of cycles and instructions: "), "{text}");
                assert!(text.len() > 80, "no meaning: {text}");
            }
        }
    }

    #[test]
    fn a_count_that_did_not_run_all_the_time_is_none() {
        let at =
            |count, enabled, running| Cycles { cycles: count, instructions: 2 * count, enabled, running };
        assert_eq!(at(30, 200, 200).since(at(10, 100, 100)), Some((20, 40)));
        assert_eq!(at(30, 200, 150).since(at(10, 100, 100)), None, "others had the counter half of the time");
        assert_eq!(at(10, 200, 200).since(at(10, 100, 100)), None, "nothing was counted");
        assert_eq!(at(5, 200, 200).since(at(10, 100, 100)), None, "backwards");
    }
}
