//! What can go wrong between a command line and a finished experiment, and the exit code of each.

use haul_host::HostError;
use haul_host::settings::SettingError;
use haul_workload::WorkloadError;

/// Why an experiment could not be planned, set up or run.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The values of a swept option cannot be read.
    #[error("cannot read the values '{text}': {why}")]
    Sweep {
        /// The text as given.
        text: String,
        /// What is wrong with it, and the remedy.
        why: String,
    },
    /// A target cannot be read.
    #[error("cannot read the target '{text}': {why}")]
    Target {
        /// The text as given.
        text: String,
        /// What is wrong with it, and the remedy.
        why: String,
    },
    /// An arm cannot be read.
    #[error("cannot read the arm '{text}': {why}")]
    Arm {
        /// The text as given.
        text: String,
        /// What is wrong with it, and the remedy.
        why: String,
    },
    /// An option of a workload cannot take a value.
    #[error("cannot set the option '{key}' to '{value}': {why}")]
    Option {
        /// The option.
        key: String,
        /// The value as given.
        value: String,
        /// What is wrong with it, and the remedy.
        why: String,
    },
    /// The parts of a plan do not fit together.
    #[error("{0}")]
    Plan(String),
    /// Two arms put both hosts and the workload into the same state.
    #[error(
        "the arms '{first}' and '{second}' change nothing against each other: both leave the hosts and the options in the \
         same state here; give one of them a setting that differs from what is in force (haul env shows it)"
    )]
    ArmsAlike {
        /// One arm.
        first: String,
        /// The other.
        second: String,
    },
    /// An arm cannot be put in force.
    #[error("arm '{arm}': {source}")]
    InArm {
        /// The arm.
        arm: String,
        /// Why not.
        source: Box<LabError>,
    },
    /// A host name has no address.
    #[error("cannot resolve the target '{host}': {source}; give an address, or check the name service")]
    Resolve {
        /// The name.
        host: String,
        /// What the resolver said.
        source: std::io::Error,
    },
    /// Making a topology needs a privilege.
    #[error("cannot set up {what}: {why}")]
    Setup {
        /// The object.
        what: String,
        /// What is missing, and the remedy.
        why: String,
    },
    /// This host refused an operation.
    #[error("client: {0}")]
    Host(#[from] HostError),
    /// The session, the peer or a run failed.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// Settings could not be put back.
    #[error("settings could not be put back: {0}; run 'haul settings restore' on that host")]
    Restore(String),
    /// None of the cells of a survey can be measured.
    #[error("{text}")]
    NoCell {
        /// Why the last one could not.
        text: String,
        /// The exit code of that.
        exit: u8,
    },
    /// Runs failed in a way that another try does not mend.
    #[error("gave up after {count} failed run{} in a row: {last}", if *.count == 1 { "" } else { "s" })]
    GaveUp {
        /// How many in a row.
        count: u32,
        /// Why the last one failed.
        last: String,
        /// The exit code of the last failure.
        exit: u8,
    },
}

impl LabError {
    /// The exit code that belongs to it: 1 the measurement failed, 2 usage, 4 the peer.
    #[must_use]
    pub fn exit(&self) -> u8 {
        match self {
            Self::Sweep { .. }
            | Self::Target { .. }
            | Self::Arm { .. }
            | Self::Option { .. }
            | Self::Plan(_)
            | Self::ArmsAlike { .. } => 2,
            Self::Resolve { .. } => 4,
            // What no device could take is a slip in the command line; everything else depends on the host.
            Self::Host(HostError::Setting(error)) => match **error {
                SettingError::Syntax { .. }
                | SettingError::Unknown { .. }
                | SettingError::Conflict { .. } => 2,
                _ => 1,
            },
            Self::Setup { .. } | Self::Host(_) | Self::Restore(_) => 1,
            Self::InArm { source, .. } => source.exit(),
            Self::Workload(error) => error.exit(),
            Self::GaveUp { exit, .. } | Self::NoCell { exit, .. } => *exit,
        }
    }

    /// Whether the server has no place free now.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Workload(error) if error.is_busy())
    }

    /// Whether it is no failure, but the user's wish to stop.
    #[must_use]
    pub fn is_interrupt(&self) -> bool {
        match self {
            Self::Workload(error) => error.is_interrupt(),
            Self::InArm { source, .. } => source.is_interrupt(),
            _ => false,
        }
    }
}
