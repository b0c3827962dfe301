//! What can go wrong with a run, by whose fault it is, and the exit code that belongs to it.
//!
//! The texts name the end, the operation and the object; where the user can act, the remedy. Losing the peer carries
//! what this end had measured until then: a half result is stored as what it is, not thrown away.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use haul_host::HostError;
use haul_wire::WireError;

use crate::report::EndReport;
use crate::spec::SpecError;

/// The result of anything this crate does.
pub type Result<T> = std::result::Result<T, WorkloadError>;

/// A run, or a session, that could not be.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// The operating system refused something at this end.
    #[error("cannot {operation} {object}: {source}{}", descriptor_hint(.source))]
    Os {
        /// What was tried, as it completes "cannot …".
        operation: &'static str,
        /// To what.
        object: String,
        /// The system's answer.
        source: io::Error,
    },
    /// Something about this host.
    #[error(transparent)]
    Host(#[from] HostError),
    /// What was asked for cannot be run.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// Nobody answers there.
    #[error("cannot reach the server at {target}: {source}{}", reach_hint(.source))]
    Unreachable {
        /// The address.
        target: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
    /// The control conversation failed: a foreign service, a wrong key, a refusal, a breach of protocol.
    #[error("{peer}: {source}")]
    Control {
        /// The other end.
        peer: String,
        /// What it was.
        source: WireError,
    },
    /// The other end went away in mid-run.
    #[error("lost the {peer} while {phase}: {reason}")]
    Lost {
        /// The other end.
        peer: String,
        /// What was going on.
        phase: &'static str,
        /// How it showed.
        reason: String,
        /// What this end had seen of the run, by leg.
        partial: Vec<EndReport>,
    },
    /// The other end could not do its part.
    #[error("the {peer} could not {call}: {reason}")]
    Peer {
        /// The other end.
        peer: String,
        /// What it was asked to do.
        call: String,
        /// Why it could not.
        reason: String,
    },
    /// Something at this end did not happen in time.
    #[error("waited {after:?} for {what}, in vain: is this machine overloaded?")]
    Slow {
        /// What was waited for.
        what: &'static str,
        /// The bound.
        after: Duration,
    },
    /// The server does not do that for clients.
    #[error("{0}")]
    NotAllowed(String),
    /// The run ended in order, but gives no number.
    #[error("the measurement is invalid: {0}")]
    Invalid(String),
    /// The user stopped it before there was anything to report.
    #[error("interrupted while {0}")]
    Interrupted(&'static str),
}

/// Whether this process, or the system, can open no more files: EMFILE, ENFILE (errno(3)).
pub(crate) fn out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(24 | 23))
}

/// Whether a file may not become so long: EFBIG (errno(3)).
fn beyond_file_limit(error: &io::Error) -> bool {
    error.raw_os_error() == Some(27)
}

fn descriptor_hint(error: &io::Error) -> &'static str {
    if out_of_descriptors(error) {
        " (raise the limit on open files: ulimit -n)"
    } else if beyond_file_limit(error) {
        " (raise the limit on the size of files: ulimit -f)"
    } else {
        ""
    }
}

fn reach_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => " (start 'haul serve' there, or name its port: HOST:PORT)",
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            " (no answer: is the host up, and does a firewall let the port through?)"
        }
        _ => descriptor_hint(error),
    }
}

impl WorkloadError {
    pub(crate) fn os(operation: &'static str, object: impl Into<String>, source: io::Error) -> Self {
        Self::Os { operation, object: object.into(), source }
    }

    /// The exit code: 1 the measurement failed or is invalid, 2 it was asked for wrongly, 4 it is the peer.
    #[must_use]
    pub fn exit(&self) -> u8 {
        match self {
            // A name that stands for something else than what is wanted, as a directory for a file.
            Self::Spec(_) | Self::Host(HostError::Invalid { .. }) => 2,
            // It is this end that cannot open the connection.
            Self::Unreachable { source, .. } if out_of_descriptors(source) => 1,
            Self::Unreachable { .. } | Self::Control { .. } | Self::Lost { .. } => 4,
            Self::Os { .. }
            | Self::Host(_)
            | Self::Peer { .. }
            | Self::Slow { .. }
            | Self::Invalid(_)
            | Self::NotAllowed(_)
            | Self::Interrupted(_) => 1,
        }
    }

    /// Whether the server has no place free now.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(
            self,
            Self::Control { source: WireError::Refused { reason: haul_wire::Refusal::Busy { .. }, .. }, .. }
        )
    }

    /// Whether the user stopped it.
    #[must_use]
    pub fn is_interrupt(&self) -> bool {
        matches!(self, Self::Interrupted(_) | Self::Host(HostError::Stopped { .. }))
    }
}
