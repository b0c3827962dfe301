//! What can be measured on this host alone: no session, no other end, one thread.
//!
//! A [`Subject`] has cells (the points of a sweep) and can be asked for a [`Sample`] of any of them at any time, so that
//! whoever surveys it may go through the cells in any order, again and again. One object holds them all because they share
//! what is expensive or what must not differ: the source, the buffers, the caches they are in.
//!
//! ```text
//! set_up ─▶ each round:  round ─▶ each cell:  prepare(cell) ─▶ sample(cell, passes) ─▶ readings(cell, sample)
//!        ─▶ settle ─▶ concluding(cell, readings)                         verify(cell): now and then, never timed
//! ```
//!
//! It does not know how many samples are taken, in which order, or what becomes of them.

pub mod copy;
pub mod read;

use std::time::Duration;

use haul_host::signal::Stop;
use haul_host::thread::{self, Tid};
use haul_stats::{ByteCount, Cell, Doubt, Metric, Reading, Scope};
use serde_json::Value as Json;

use crate::error::Result;

/// What one sample took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sample {
    /// Passes made: each is the cell's work once.
    pub passes: u64,
    /// From the first byte to the last, on the monotonic clock.
    pub elapsed: Duration,
    /// CPU time of the thread meanwhile; `None` where the kernel has no clock of the thread.
    pub thread_cpu: Option<Duration>,
    /// CPU time of threads of the kernel's that did a part of it for the thread, which is in no clock of the thread's.
    pub worker_cpu: Duration,
    /// Bytes moved, each once.
    pub bytes: ByteCount,
    /// Calls made: of the system, or of a routine.
    pub calls: u64,
    /// CPU cycles of the thread; `None` where there is no counter.
    pub cycles: Option<u64>,
    /// Instructions the thread completed; `None` where there is no counter.
    pub instructions: Option<u64>,
}

/// What a survey measures.
///
/// All calls come from one thread. A cell that cannot be measured says so in [`Subject::prepare`]; the others go on.
pub trait Subject {
    /// The cells, one for each point of the sweep; they never change.
    fn cells(&self) -> &[Cell];

    /// Makes the cell ready: buffers written, caches as asked for, the source where it is to be. Not timed.
    ///
    /// # Errors
    /// Why this cell cannot be measured now, with the remedy.
    fn prepare(&mut self, cell: usize) -> Result<()>;

    /// Finds out what is to be known before the first cell is tried, in some seconds at most. `tell` hears what is being done.
    ///
    /// # Errors
    /// Why nothing can be measured, with the remedy; also where its user stopped it.
    fn set_up(&mut self, _stop: &Stop, _tell: &mut dyn FnMut(&str)) -> Result<()> {
        Ok(())
    }

    /// How long that takes, as far as it is known before.
    fn set_up_takes(&self) -> Duration {
        Duration::ZERO
    }

    /// A round begins, from 0 on: what is to be measured beside the cells is measured here.
    ///
    /// # Errors
    /// Why nothing can be measured any more.
    fn round(&mut self, _round: u32) -> Result<()> {
        Ok(())
    }

    /// The rounds are over, and these are the medians of the cells' rates in bytes per second, by cell.
    fn settle(&mut self, _medians: &[Option<f64>]) {}

    /// What follows for a sample from all of them; asked for at the end, with the sample's own numbers.
    fn concluding(&self, _cell: usize, _readings: &[Reading]) -> Vec<Reading> {
        Vec::new()
    }

    /// `passes` passes, timed from the first byte to the last.
    ///
    /// # Errors
    /// What went wrong on the way: such a sample is no number.
    fn sample(&mut self, cell: usize, passes: u64) -> Result<Sample>;

    /// Looks whether what was moved is what should have been: asked for after the calibration of a cell and at the end.
    ///
    /// # Errors
    /// What differs.
    fn verify(&mut self, _cell: usize) -> Result<()> {
        Ok(())
    }

    /// The numbers of a sample.
    fn readings(&self, cell: usize, sample: &Sample) -> Vec<Reading>;

    /// What was in force: pages got, variants of routines, what was warmed, why a counter is missing.
    fn effective(&self) -> Json;

    /// Doubts about the whole.
    fn doubts(&self) -> Vec<Doubt> {
        Vec::new()
    }
}

/// CPU time of the calling thread so far; `None` where it cannot be had.
#[must_use]
pub fn thread_cpu(thread: Tid) -> Option<Duration> {
    thread::cpu_clock(thread).ok()
}

/// The numbers every sample has: rate, time per call, CPU time, and the counters where there are some.
#[must_use]
pub fn rates(sample: &Sample) -> Vec<Reading> {
    const CLOCK: &str = "CLOCK_MONOTONIC around the sample";
    let (bytes, nanos) = (sample.bytes.0 as f64, sample.elapsed.as_nanos() as f64);
    let real = |metric, value, source| Reading::real(metric, Scope::Run, value, source);
    let mut readings = vec![
        real(Metric::CopyRate, bytes * 1e9 / nanos, CLOCK),
        real(Metric::CopyTime, nanos / sample.calls as f64, CLOCK),
    ];
    if let Some(cpu) = sample.thread_cpu {
        let value = (cpu + sample.worker_cpu).as_nanos() as f64 / (bytes / 1024.0);
        let source = if sample.worker_cpu.is_zero() {
            "CPU clock of the thread"
        } else {
            "CPU clocks of the thread and of the kernel's threads for io_uring"
        };
        readings.push(real(Metric::CopyCpu, value, source));
    }
    let counted =
        [(Metric::CyclesPerByte, sample.cycles), (Metric::InstructionsPerByte, sample.instructions)];
    for (metric, count) in counted {
        if let Some(count) = count {
            readings.push(real(metric, count as f64 / bytes, "perf_event_open, this thread"));
        }
    }
    readings
}

#[cfg(test)]
mod tests {
    use haul_stats::Value;

    use super::*;

    #[test]
    fn a_sample_is_a_rate_a_time_per_call_and_what_its_thread_used() {
        let sample = Sample {
            passes: 2,
            elapsed: Duration::from_micros(10),
            thread_cpu: Some(Duration::from_micros(8)),
            bytes: ByteCount(1 << 16),
            calls: 8,
            ..Sample::default()
        };
        let value = |sample: &Sample, metric: Metric| {
            let readings = rates(sample);
            readings
                .iter()
                .find(|reading| reading.metric == metric)
                .map(|reading| reading.value.map(Value::as_f64))
        };
        assert_eq!(value(&sample, Metric::CopyRate), Some(Some(6.5536e9)));
        assert_eq!(value(&sample, Metric::CopyTime), Some(Some(1250.0)));
        assert_eq!(value(&sample, Metric::CopyCpu), Some(Some(125.0)));
        let helped = Sample { worker_cpu: Duration::from_micros(8), ..sample };
        assert_eq!(value(&helped, Metric::CopyCpu), Some(Some(250.0)), "who helps is counted");
        assert_eq!(value(&sample, Metric::CyclesPerByte), None, "no counter, no reading");
        let counted = Sample { cycles: Some(1 << 15), instructions: Some(1 << 14), ..sample };
        assert_eq!(value(&counted, Metric::CyclesPerByte), Some(Some(0.5)));
        assert_eq!(value(&counted, Metric::InstructionsPerByte), Some(Some(0.25)));
        assert_eq!(value(&Sample::default(), Metric::CopyRate), Some(None), "nothing moved is no rate");
    }
}
