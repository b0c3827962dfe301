//! What can go wrong with the host, said so that the user can act.
//!
//! Every variant names the operation and the object it was applied to; where the user can do something about it, the
//! hint says what. The operation is a phrase that completes "cannot …".

use std::borrow::Cow;
use std::fmt;
use std::io;

use crate::settings::SettingError;

/// The result of anything that touches the host.
pub type Result<T> = std::result::Result<T, HostError>;

/// A failure on this host.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The operating system refused.
    #[error("cannot {operation} {object}: {source}{}", Remedy(.hint.as_deref()))]
    Os {
        /// What was tried, as it completes "cannot …".
        operation: &'static str,
        /// To what.
        object: String,
        /// The system's answer.
        source: io::Error,
        /// What the user can do, or what the kernel added to its answer.
        hint: Option<Cow<'static, str>>,
    },
    /// The kernel's answer has a form this version of haul does not know.
    #[error("cannot {operation} {object}: the kernel's answer was not understood: {what}")]
    Answer {
        /// What was tried.
        operation: &'static str,
        /// On what.
        object: String,
        /// What was wrong with the answer.
        what: String,
    },
    /// Nothing on this host matches.
    #[error("{what} not found on this host{}", Remedy(.hint.as_deref()))]
    NotFound {
        /// What was looked for.
        what: String,
        /// What the user can do.
        hint: Option<Cow<'static, str>>,
    },
    /// A wait reached its bound.
    #[error("cannot {operation} {object}: not done after {} ms", .after.as_millis())]
    Deadline {
        /// What was waited for.
        operation: &'static str,
        /// On what.
        object: String,
        /// The bound.
        after: std::time::Duration,
    },
    /// This host does not have it, or does not allow it; the reason names what stands in the way.
    #[error("cannot {operation} {object}: {reason}")]
    Unavailable {
        /// What was tried.
        operation: &'static str,
        /// On what.
        object: String,
        /// What stands in the way, with what could be done.
        reason: String,
    },
    /// The user asked to stop before it was done.
    #[error("interrupted while {doing}")]
    Stopped {
        /// What was done then, as it completes "while …".
        doing: &'static str,
    },
    /// A setting could not be met.
    #[error(transparent)]
    Setting(Box<SettingError>),
    /// A text the user gave is not what it should be.
    #[error("'{text}' is not {wanted}")]
    Invalid {
        /// What was given.
        text: String,
        /// What it should have been, with an example.
        wanted: &'static str,
    },
}

impl From<SettingError> for HostError {
    fn from(error: SettingError) -> Self {
        Self::Setting(Box::new(error))
    }
}

impl HostError {
    /// The system's refusal of `operation` on `object`.
    #[must_use]
    pub fn os(operation: &'static str, object: impl Into<String>, source: io::Error) -> Self {
        let hint = match source.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => Some("raise the limit on open files: ulimit -n".into()),
            Some(libc::EFBIG) => Some(FILE_SIZE.into()),
            Some(libc::ENOMEM) => Some(MEMORY.into()),
            _ => None,
        };
        Self::Os { operation, object: object.into(), source, hint }
    }

    /// The same error with a remedy, where the variant has room for one.
    #[must_use]
    pub fn with_hint(mut self, text: impl Into<Cow<'static, str>>) -> Self {
        if let Self::Os { hint, .. } | Self::NotFound { hint, .. } = &mut self {
            *hint = Some(text.into());
        }
        self
    }

    /// Whether another haul has the settings: it will be otherwise once that one ends.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self, Self::Setting(error) if matches!(**error, SettingError::Held { .. }))
    }

    /// The operating system's error number, where there is one.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Os { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}

/// What to do where a file may not become so large: `RLIMIT_FSIZE` holds for files in memory as well.
const FILE_SIZE: &str =
    "the limit on the size of files forbids it (ulimit -f shows it): raise it, or ask for less";

/// What to do where there is no memory, whoever says so: the machine, or a limit on this process.
const MEMORY: &str = "ask for less, free memory, or raise the limit on it (ulimit -v shows one)";

/// `; remedy`, or nothing.
struct Remedy<'a>(Option<&'a str>);

impl fmt::Display for Remedy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |text| write!(f, "; {text}"))
    }
}

/// Names operation and object of an [`io::Result`].
pub(crate) trait Named<T> {
    /// The same result, its error saying what was tried on what.
    fn named(self, operation: &'static str, object: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Named<T> for io::Result<T> {
    fn named(self, operation: &'static str, object: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| HostError::os(operation, object(), source))
    }
}
