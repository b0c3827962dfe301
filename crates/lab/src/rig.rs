//! What the runner drives: a pair of hosts that can be set, described, loaded with a run, and put back.
//!
//! A trait, so that everything the runner promises (order, restoring, voiding, giving up) is tested without a socket and
//! without a clock; [`crate::live::LiveRig`] is the one that touches hosts. A rig answers in the record's own words, so
//! the runner knows nothing of sessions or of how a reading is made.

use std::collections::BTreeMap;

use haul_host::settings::{Consent, Setting};
use haul_host::signal::Stop;
use haul_results::profile::{Count, Profile};
use haul_results::record::{Environment, Interval};
use haul_stats::{Doubt, MonoNanos, Reading};
use haul_workload::RunSpec;
use serde_json::Value as Json;

use crate::error::LabError;

/// What applying an arm's settings did besides what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Applied {
    /// Objects that changed with it, each as `client nic.tx-tcp-segmentation on -> off`.
    pub side_effects: Vec<String>,
    /// What is not as it was found, each as `client nic.tx-tcp-segmentation`: from what to what.
    pub in_force: BTreeMap<String, String>,
    /// What the user's commands wrote, each as `client 'command': output`.
    pub said: Vec<String>,
}

/// How a run ended that left numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// As asked.
    Complete,
    /// Its user stopped it: the numbers cover what had run.
    Interrupted,
    /// In order, but it gives no number to compare.
    Invalid(String),
    /// The other end went away: the numbers are this end's alone.
    Lost(String),
}

/// What one run left.
#[derive(Debug, Clone, PartialEq)]
pub struct Taken {
    /// How it ended.
    pub ending: Ending,
    /// The numbers.
    pub readings: Vec<Reading>,
    /// Doubts about them.
    pub doubts: Vec<Doubt>,
    /// Options in force, by end.
    pub effective: Json,
    /// What the hosts did beside, by end.
    pub activity: Json,
    /// Slices of the window, where asked for.
    pub intervals: Vec<Interval>,
    /// Events counted in the window, where asked for.
    pub counts: Vec<Count>,
    /// Profiles of the window, where asked for.
    pub profiles: Vec<Profile>,
}

/// Two ends to measure between.
///
/// Every call is bounded in time. A call that fails leaves the rig usable: after a lost peer the next call reconnects.
pub trait Rig {
    /// Monotonic time at the client.
    fn now(&self) -> MonoNanos;

    /// Puts both hosts into the state that has exactly these settings; what an earlier call set and this one does not
    /// list goes back to what it was.
    fn apply(&mut self, settings: &[Setting], consent: Consent) -> Result<Applied, LabError>;

    /// Takes the place in which these settings will be made, before any of them is: who has it must let go first.
    fn reserve(&mut self, _settings: &[Setting]) {}

    /// Reads back what [`Rig::apply`] set, and fails where it is no longer so.
    fn verify(&mut self) -> Result<(), LabError>;

    /// Describes both hosts as they are now.
    fn fingerprint(&mut self) -> Result<Environment, LabError>;

    /// Makes one run with new connections.
    fn run(
        &mut self,
        spec: &RunSpec,
        stop: &Stop,
        on_interval: &mut (dyn FnMut(&Interval) + Send),
    ) -> Result<Taken, LabError>;

    /// Puts back everything that was set, on both hosts. Called again it does nothing.
    fn restore(&mut self) -> Result<(), LabError>;

    /// What is to be doubted about every run on this rig.
    fn doubts(&self) -> Vec<Doubt> {
        Vec::new()
    }
}

/// Puts a rig back on every way out of an experiment, a panic included.
pub(crate) struct Restoring<'a> {
    rig: &'a mut dyn Rig,
    done: bool,
}

impl<'a> Restoring<'a> {
    pub(crate) fn new(rig: &'a mut dyn Rig) -> Self {
        Self { rig, done: false }
    }

    pub(crate) fn rig(&mut self) -> &mut dyn Rig {
        self.rig
    }

    /// Puts it back and says how that went.
    pub(crate) fn finish(mut self) -> Result<(), LabError> {
        self.done = true;
        self.rig.restore()
    }
}

impl Drop for Restoring<'_> {
    fn drop(&mut self) {
        if !self.done {
            // Only a panic leads here: nobody is left to tell, and the journal keeps what could not be restored.
            let _ = self.rig.restore();
        }
    }
}
