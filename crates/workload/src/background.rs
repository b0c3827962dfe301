//! What a host's CPUs do while a run is set up and waits: the background that the window's CPU time contains as well.
//!
//! Between the word to start and the start itself nothing of the run moves, at either end. That is the one time to look. The flows
//! are told of their start when it is near, so that the look ends before they begin; an end that is woken later than
//! that has no background, because the other end has begun.

use std::time::Duration;

use haul_host::clock;
use haul_host::probe::cpu::{CpuUse, HostCpu};
use haul_stats::MonoNanos;

/// How long the background is looked at before a run starts: twenty steps of `/proc/stat`, where there is nothing better.
pub(crate) const BACKGROUND: Duration = Duration::from_millis(200);

/// How long before the start the flows are told of it: a wake-up and a gate.
pub(crate) const LEAD: Duration = Duration::from_millis(2);

/// Share of the look that may lie behind the start, where the other end has begun.
const MOST_LATE: f64 = 0.02;

/// Less than this says nothing.
const LEAST: Duration = Duration::from_millis(50);

/// The look at a host before one run.
#[derive(Debug, Default)]
pub(crate) struct Background {
    /// Why a look would not be at the others.
    hidden: Option<&'static str>,
    /// When the run starts, until its flows have been told, and the host's CPUs as that was set.
    waiting: Option<(MonoNanos, haul_host::Result<HostCpu>)>,
    found: Option<Result<CpuUse, String>>,
}

impl Background {
    /// Of a run whose threads poll from the moment they are made (`spin`) nothing can be told: they are busy while it waits.
    pub(crate) fn new(spin: bool) -> Self {
        let hidden = spin
            .then_some("threads that spin are busy while the run waits, so what others do cannot be told");
        Self { hidden, ..Self::default() }
    }

    /// The run starts at `at`, and waits until then.
    pub(crate) fn begin(&mut self, at: MonoNanos) {
        self.waiting = Some((at, HostCpu::read()));
    }

    /// When [`Background::end`] must be called next.
    pub(crate) fn wake_at(&self) -> Option<MonoNanos> {
        let lead = u64::try_from(LEAD.as_nanos()).unwrap_or(u64::MAX);
        self.waiting.as_ref().map(|(at, _)| MonoNanos(at.0.saturating_sub(lead)))
    }

    /// Ends the look where the start is near, and gives the start, which the flows are to be told.
    pub(crate) fn end(&mut self) -> Option<MonoNanos> {
        let near = |waiting: &mut (MonoNanos, _)| clock::now().after(LEAD) >= waiting.0;
        let (at, then) = self.waiting.take_if(near)?;
        let used = then.and_then(|then| Ok(HostCpu::read()?.since(&then))).map_err(|error| error.to_string());
        let told = |used| self.hidden.map_or(Ok(used), |why| Err(why.to_owned()));
        self.found = Some(used.and_then(told).and_then(|used| sound(used, clock::now().since(at))));
        Some(at)
    }

    /// The run is off.
    pub(crate) fn cancel(&mut self) {
        self.waiting = None;
    }

    /// What was seen, or why nothing was.
    pub(crate) fn found(self) -> Result<CpuUse, String> {
        self.found.unwrap_or_else(|| Err("the run never started".to_owned()))
    }
}

/// The look, where it says something.
fn sound(used: CpuUse, late: Duration) -> Result<CpuUse, String> {
    if used.elapsed < LEAST {
        return Err(format!("the start was set only {:.0?} ahead: too short to tell", used.elapsed));
    }
    if late > used.elapsed.mul_f64(MOST_LATE) {
        let text = format!(
            "this end was woken {late:.0?} late for the start: the flows were in the look at its host"
        );
        return Err(text);
    }
    Ok(used)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_look_ends_before_the_start_and_says_nothing_where_it_was_short_late_or_called_off() {
        let mut background = Background::default();
        let at = clock::now().after(Duration::from_millis(120));
        background.begin(at);
        assert_eq!(background.end(), None, "it is not near");
        let wake = background.wake_at().expect("it is to be woken");
        assert!(wake < at && at.since(wake) == LEAD);
        clock::sleep_until(wake);
        assert_eq!(background.end(), Some(at));
        assert_eq!((background.end(), background.wake_at()), (None, None), "once");
        let used = HostCpu::read().and_then(|then| Ok(HostCpu::read()?.since(&then))).expect("CPU");
        // Where this machine has woken us late, the reason stands in its place.
        match background.found() {
            Ok(used) => assert!(used.elapsed >= Duration::from_millis(100), "{used:?}"),
            Err(why) => assert!(why.contains("late for the start"), "{why}"),
        }
        let of = |elapsed_ms: u64| CpuUse { elapsed: Duration::from_millis(elapsed_ms), ..used.clone() };
        let ms = Duration::from_millis;
        assert!(sound(of(200), Duration::ZERO).is_ok() && sound(of(200), ms(4)).is_ok());
        assert!(sound(of(200), ms(5)).expect_err("late").contains("5ms late"));
        assert!(sound(of(49), Duration::ZERO).expect_err("short").contains("too short"));
        let mut off = Background::default();
        off.begin(clock::now());
        off.cancel();
        assert_eq!(off.end(), None);
        assert!(off.found().expect_err("off").contains("never started"));
        let mut hidden = Background::new(true);
        hidden.begin(clock::now());
        assert!(hidden.end().is_some());
        assert!(hidden.found().expect_err("hidden").contains("spin"));
    }
}
