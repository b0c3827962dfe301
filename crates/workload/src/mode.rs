//! How bytes get from the sending program into its kernel, and from the receiving kernel out again.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How the sender hands bytes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SendWith {
    /// send(2): the kernel copies them from the program's buffer.
    #[default]
    Write,
    /// sendfile(2) from a file in memory: the file's pages are handed over.
    Sendfile,
    /// splice(2) from the same file into a pipe, and from the pipe into the socket.
    Splice,
    /// send(2) with `MSG_ZEROCOPY`: the buffer's pages are handed over, and a notice says when they are free again.
    Zerocopy,
}

/// How the receiver takes bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecvWith {
    /// recv(2): the kernel copies them into the program's buffer.
    #[default]
    Read,
    /// recv(2) with `MSG_TRUNC`: the kernel drops them, and nothing is copied to user memory.
    Discard,
    /// `TCP_ZEROCOPY_RECEIVE`: whole pages of the stream are mapped, and only the rest is copied.
    Zerocopy,
}

impl SendWith {
    /// Every way.
    pub const ALL: [Self; 4] = [Self::Write, Self::Sendfile, Self::Splice, Self::Zerocopy];

    /// Its name on the command line and in the record.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Sendfile => "sendfile",
            Self::Splice => "splice",
            Self::Zerocopy => "zerocopy",
        }
    }

    /// Whether it sends pages of a file and has no buffer of its own.
    #[must_use]
    pub fn is_from_file(self) -> bool {
        matches!(self, Self::Sendfile | Self::Splice)
    }
}

impl RecvWith {
    /// Every way.
    pub const ALL: [Self; 3] = [Self::Read, Self::Discard, Self::Zerocopy];

    /// Its name on the command line and in the record.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Discard => "discard",
            Self::Zerocopy => "zerocopy",
        }
    }
}

impl fmt::Display for SendWith {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for RecvWith {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is none of the ways.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("give {0}")]
pub struct NoSuchMode(String);

fn find<T: Copy>(all: &[T], name: impl Fn(T) -> &'static str, text: &str) -> Result<T, NoSuchMode> {
    let found = all.iter().copied().find(|&mode| name(mode) == text);
    found.ok_or_else(|| NoSuchMode(all.iter().map(|&mode| name(mode)).collect::<Vec<_>>().join(", ")))
}

impl FromStr for SendWith {
    type Err = NoSuchMode;

    fn from_str(text: &str) -> Result<Self, NoSuchMode> {
        find(&Self::ALL, Self::name, text)
    }
}

impl FromStr for RecvWith {
    type Err = NoSuchMode;

    fn from_str(text: &str) -> Result<Self, NoSuchMode> {
        find(&Self::ALL, Self::name, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_reads_back_from_its_name_which_is_also_its_name_in_the_record() {
        for mode in SendWith::ALL {
            assert_eq!(mode.name().parse(), Ok(mode));
            assert_eq!(serde_json::to_value(mode).unwrap(), mode.name());
        }
        for mode in RecvWith::ALL {
            assert_eq!(mode.name().parse(), Ok(mode));
            assert_eq!(serde_json::to_value(mode).unwrap(), mode.name());
        }
        let error = "mmap".parse::<SendWith>().unwrap_err();
        assert_eq!(error.to_string(), "give write, sendfile, splice, zerocopy");
    }
}
