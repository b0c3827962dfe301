//! Cycles and instructions of the calling thread, from the CPU's own counters.
//!
//! [`Counters::open`] says why where there are none (a virtual machine often has none, and `perf_event_paranoid` may forbid
//! them). Where other programs count too, the kernel takes turns; a count that was not running all the time would be a guess,
//! so [`Counts::since`] gives none. [`Count`] is the seam: whoever measures takes anything that counts.

use std::os::fd::OwnedFd;

use crate::error::{HostError, Result};
use crate::sys;

/// What was counted up to a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// CPU cycles in user mode.
    pub cycles: u64,
    /// Instructions completed in user mode.
    pub instructions: u64,
    /// For how long the counters were wanted, in nanoseconds.
    pub enabled: u64,
    /// For how long they ran.
    pub running: u64,
}

impl Counts {
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
pub trait Count: Send {
    /// What was counted so far; `None` where it could not be read.
    fn read(&mut self) -> Option<Counts>;
}

/// The counters of the thread that opened them.
#[derive(Debug)]
pub struct Counters {
    cycles: OwnedFd,
    /// Read with its leader; it counts while it is open.
    _instructions: OwnedFd,
}

impl Counters {
    /// Opens both for the calling thread.
    ///
    /// # Errors
    /// What the kernel says, with what it means and the remedy.
    pub fn open() -> Result<Self> {
        /// `PERF_COUNT_HW_CPU_CYCLES`.
        const CYCLES: u64 = 0;
        /// `PERF_COUNT_HW_INSTRUCTIONS`.
        const INSTRUCTIONS: u64 = 1;
        let refused =
            |error| explain(HostError::os("open", "the counters of cycles and instructions", error));
        let cycles = sys::counter(CYCLES, None).map_err(refused)?;
        let instructions = sys::counter(INSTRUCTIONS, Some(&cycles)).map_err(refused)?;
        Ok(Self { cycles, _instructions: instructions })
    }
}

fn explain(error: HostError) -> HostError {
    let hint = match error.errno() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
            "this CPU, or the virtual machine, gives the kernel no such counter"
        }
        Some(libc::EACCES | libc::EPERM) => "be root, or set kernel.perf_event_paranoid to 2 or less",
        Some(libc::ENOSYS) => "this kernel was built without perf events",
        _ => return error,
    };
    error.with_hint(hint)
}

impl Count for Counters {
    fn read(&mut self) -> Option<Counts> {
        let (enabled, running, [cycles, instructions]) = sys::read_group::<2>(&self.cycles).ok()?;
        Some(Counts { cycles, instructions, enabled, running })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_count_the_work_of_this_thread_or_say_why_there_are_none() {
        match Counters::open() {
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
                assert!(text.contains("; "), "no remedy, or meaning: {text}");
            }
        }
    }

    #[test]
    fn a_count_that_did_not_run_all_the_time_is_none() {
        let at =
            |count, enabled, running| Counts { cycles: count, instructions: 2 * count, enabled, running };
        assert_eq!(at(30, 200, 200).since(at(10, 100, 100)), Some((20, 40)));
        assert_eq!(at(30, 200, 150).since(at(10, 100, 100)), None, "others had the counter half of the time");
        assert_eq!(at(10, 200, 200).since(at(10, 100, 100)), None, "nothing was counted");
        assert_eq!(at(5, 200, 200).since(at(10, 100, 100)), None, "backwards");
    }
}
