//! The one error type of the crate.
//!
//! Text that came from the peer is made [`printable`] before it is stored: it ends up on a terminal.

use std::time::Duration;

use crate::hello::{Foreign, Versions};
use crate::ladder::Phase;
use crate::message::Refusal;

/// What went wrong between the two ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The other end does not speak haul's protocol.
    #[error("the other end is not haul: found {found}")]
    NotHaul {
        /// What was found in place of a hello.
        found: Foreign,
    },
    /// Both ends are haul, and no version of the protocol is understood by both.
    #[error("this haul speaks {ours}, the other end {theirs}: install the same release at both ends")]
    Version {
        /// This end's versions.
        ours: Versions,
        /// The other end's versions.
        theirs: Versions,
    },
    /// The keys of the two ends differ, or the handshake was altered on the way.
    #[error(
        "the two ends hold different keys: give the client the key that `haul serve` printed at its first start"
    )]
    WrongKey,
    /// The client has a key, the server was started open.
    #[error(
        "the server runs open and the client was given a key: leave the key out, or start the server without --open"
    )]
    ServerIsOpen,
    /// The client has no key, the server asks for one.
    #[error(
        "the server asks for a key and the client has none: give it the key that `haul serve` printed at its first start"
    )]
    ServerIsKeyed,
    /// The server understood and said no.
    #[error("the server refused: {text}")]
    Refused {
        /// Why, for programs.
        reason: Refusal,
        /// Why, for people.
        text: String,
    },
    /// The other end (or the caller, where it was this end's turn) took longer than a phase allows.
    #[error("no progress {phase} for {after:?}: the other end is stuck, overloaded or out of reach")]
    Deadline {
        /// The phase that ran out.
        phase: Phase,
        /// How long it was allowed to take.
        after: Duration,
    },
    /// Not even a heartbeat came.
    #[error("nothing heard from the other end for {after:?}: it is stopped, or the path to it is down")]
    PeerSilent {
        /// The length of the silence.
        after: Duration,
    },
    /// The connection was closed in the middle of something.
    #[error("the other end closed the connection {phase}: its own output should say why")]
    PeerClosed {
        /// The phase it broke off.
        phase: Phase,
    },
    /// A length beyond the protocol's bounds.
    #[error("{what} of {len} bytes: the limit is {limit}")]
    Oversize {
        /// What has this length.
        what: &'static str,
        /// The length asked for.
        len: u64,
        /// The largest one allowed.
        limit: u64,
    },
    /// Bytes that are not what they should be.
    #[error("not understood: {what}")]
    Malformed {
        /// What was expected or found.
        what: String,
    },
    /// A message that does not belong to the phase.
    #[error("message '{got}' is out of order {phase}")]
    OutOfOrder {
        /// The kind of the message.
        got: String,
        /// The phase in which it came.
        phase: Phase,
    },
    /// The text of a key is not one. The text itself is secret and not repeated.
    #[error("this is not a key: {why}")]
    BadKey {
        /// What is wrong with it.
        why: &'static str,
    },
    /// The cipher library failed for a reason other than the key.
    #[error("cannot {operation}: {reason}")]
    Cipher {
        /// What was being done.
        operation: &'static str,
        /// The library's own words.
        reason: String,
    },
}

impl WireError {
    pub(crate) fn malformed(what: impl AsRef<str>) -> Self {
        Self::Malformed { what: printable(what.as_ref()) }
    }
}

/// The text without control characters (escape sequences of a hostile peer among them), at most 300 characters long.
#[must_use]
pub fn printable(text: &str) -> String {
    const LONGEST: usize = 300;
    let mut kept: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST).collect();
    if text.chars().nth(LONGEST).is_some() {
        kept.push('…');
    }
    kept
}
