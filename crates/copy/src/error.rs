//! What can go wrong where an operating system is involved.

use core::fmt;
use std::io;

/// Why a handler isn't there, a thread isn't safe, or a file could not be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    Os {
        /// What was tried, as it completes "cannot …".
        operation: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// This thread blocks the signal: a fault would end the process without asking any handler.
    Blocked {
        /// The signal's name.
        signal: &'static str,
    },
    /// Somebody put another handler over ours, and it may or may not pass on what it doesn't know.
    Replaced {
        /// The signal's name.
        signal: &'static str,
    },
    /// Handlers were put over ours, and ours over those, more often than there is room for.
    Buried {
        /// The signal's name.
        signal: &'static str,
    },
    /// A read begins beyond the end of the mapping.
    Bounds {
        /// Where it was to begin.
        offset: u64,
        /// How long the mapping is.
        len: u64,
    },
    /// What was mapped is gone: the file was truncated, or its storage failed.
    Vanished {
        /// The first byte that could not be read.
        offset: u64,
        /// How many were read before it.
        read: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Os { operation, source } => write!(f, "cannot {operation}: {source}"),
            Self::Blocked { signal } => write!(
                f,
                "cannot copy what may fault: this thread blocks {signal}; unblock it (pthread_sigmask) and try again"
            ),
            Self::Replaced { signal } => write!(
                f,
                "cannot copy what may fault: the handler of {signal} was replaced after Handler::install; \
                 install again (the new handler will be called for what is not a copy's)"
            ),
            Self::Buried { signal } => write!(
                f,
                "cannot install a handler of {signal}: it was replaced too often; install once and keep the handle"
            ),
            Self::Bounds { offset, len } => {
                write!(
                    f,
                    "cannot read at byte {offset}: the mapping has {len}; ask for less, or map the file again"
                )
            }
            Self::Vanished { offset, read } => write!(
                f,
                "cannot read byte {offset} of the mapping, after {read} that were read: the file was truncated, or its \
                 storage failed; map it again"
            ),
        }
    }
}

impl core::error::Error for Error {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Os { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl Error {
    /// The system's last refusal of `operation`.
    pub(crate) fn last_os(operation: &'static str) -> Self {
        Self::Os { operation, source: io::Error::last_os_error() }
    }
}
