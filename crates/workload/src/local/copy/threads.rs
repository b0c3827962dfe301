//! Copies of several threads at once, each timed while all others copy.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use haul_host::thread;
use haul_stats::ByteCount;

use super::Point;
use super::arena::{Arena, Timed};
use crate::error::{Result, WorkloadError};
use crate::local::{Sample, thread_cpu};

/// All threads copy from before the first begins to count until after the last has done with it, each pinned to a CPU of its own:
/// so each counts while all others load the machine. The sample is the sum of their rates over what their windows have in common.
pub(super) fn together(
    arenas: &mut [Arena],
    cpus: &[u32],
    point: &Point,
    extent: usize,
    shift: usize,
    stamp: u64,
    passes: u64,
) -> Result<(Sample, f64)> {
    let (start, running, done) = (Barrier::new(point.threads), AtomicUsize::new(0), AtomicUsize::new(0));
    let outcomes: Vec<Result<(Timed, Option<Duration>)>> = std::thread::scope(|scope| {
        let workers: Vec<_> = arenas
            .iter_mut()
            .zip(cpus)
            .take(point.threads)
            .map(|(arena, &cpu)| {
                let (start, running, done) = (&start, &running, &done);
                scope.spawn(move || {
                    let pinned = thread::pin_current(&std::iter::once(cpu).collect());
                    let warm = arena.run(point, extent, shift, stamp, 1);
                    start.wait();
                    running.fetch_add(1, Ordering::Relaxed);
                    while running.load(Ordering::Relaxed) < point.threads {
                        arena.load(point, extent, shift);
                    }
                    let before = thread_cpu(thread::current_tid());
                    let timed = arena.run(point, extent, shift, stamp ^ 1, passes);
                    let used = thread_cpu(thread::current_tid())
                        .zip(before)
                        .map(|(after, before)| after.saturating_sub(before));
                    done.fetch_add(1, Ordering::Relaxed);
                    while done.load(Ordering::Relaxed) < point.threads && timed.is_ok() {
                        arena.load(point, extent, shift);
                    }
                    pinned?;
                    warm?;
                    Ok((timed?, used))
                })
            })
            .collect();
        let ended = |outcome: std::thread::Result<_>| {
            outcome.unwrap_or_else(|_| Err(WorkloadError::Invalid("a copying thread panicked".to_owned())))
        };
        workers.into_iter().map(|worker| ended(worker.join())).collect()
    });
    let all = outcomes.into_iter().collect::<Result<Vec<_>>>()?;
    let begin = all.iter().map(|(timed, _)| timed.begin).max().unwrap_or_default();
    let end = all.iter().map(|(timed, _)| timed.end).min().unwrap_or_default();
    let longest = all.iter().map(|(timed, _)| timed.end.since(timed.begin)).max().unwrap_or_default();
    let window = end.since(begin);
    let common = window.as_secs_f64() / longest.as_secs_f64().max(1e-9);
    let rate: f64 =
        all.iter().map(|(timed, _)| timed.bytes as f64 / timed.elapsed.as_secs_f64().max(1e-9)).sum();
    // Of one thread on the average: the time of a call is a thread's.
    let each_second: f64 =
        all.iter().map(|(timed, _)| passes as f64 / timed.elapsed.as_secs_f64().max(1e-9)).sum::<f64>()
            / all.len() as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count of bytes, or calls, of a moment"
    )]
    let over = |rate: f64| (rate * longest.as_secs_f64()).round() as u64;
    // Of the thread that was without its CPU for longest: whoever surveys voids a sample by that.
    let lost: Option<Vec<Duration>> = all
        .iter()
        .map(|(timed, used)| used.map(|used| timed.end.since(timed.begin).saturating_sub(used)))
        .collect();
    let lost = lost.and_then(|lost| lost.into_iter().max());
    let sample = Sample {
        passes,
        thread_cpu: lost.map(|lost| longest.saturating_sub(lost)),
        elapsed: longest,
        bytes: ByteCount(over(rate)),
        calls: over(each_second).max(1),
        ..Sample::default()
    };
    Ok((sample, common))
}
