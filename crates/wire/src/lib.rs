//! Haul's control protocol without I/O: bytes in, bytes and events out, time as an argument.
//!
//! One TCP port of the server carries control and data connections; the first [`HELLO_LEN`] bytes of each say which it
//! is. [`Incoming`] reads those at the server and becomes a [`ServerSession`]; [`ClientSession`] is the other end. Both
//! are driven the same way, by whoever owns the socket:
//!
//! ```text
//! loop {
//!     write session.output() to the socket, then session.sent(bytes written)
//!     wait until the socket is readable (or writable, if output is left) or session.deadline() has come
//!     session.receive(now, bytes read)?      all that can be read, before the clock is looked at
//!     session.tick(now)?                     deadlines, heartbeats
//!     while let Some(event) = session.event() { … session.send(now, message)? … }
//! }
//! ```
//!
//! In memory, with a clock that stands still:
//!
//! ```
//! use haul_wire::{Arrival, ClientSession, Event, HELLO_LEN, Incoming, Key, Now, Trust};
//!
//! let now = Now(std::time::Duration::ZERO);
//! let key = Key::from_random([7; 32]); // from the system's generator in earnest
//! let mut client = ClientSession::new(now, Trust::Key(key.clone()));
//! let (taken, arrival) = Incoming::new(now, Trust::Key(key)).receive(now, client.output());
//! client.sent(taken);
//! let Arrival::Control(mut server) = arrival else { panic!("a client is a client") };
//! assert_eq!(taken, HELLO_LEN);
//! for _ in 0..2 {
//!     client.receive(now, server.output())?;
//!     server.sent(server.output().len());
//!     server.receive(now, client.output())?;
//!     client.sent(client.output().len());
//! }
//! assert_eq!(client.event(), Some(Event::Established));
//! assert_eq!(server.event(), Some(Event::Established));
//! # Ok::<(), haul_wire::WireError>(())
//! ```
//!
//! A session wants to be driven all the time: an end that looks away for eight seconds is taken for lost by the other. An
//! error ends the session. Write what is left of `output()` before closing: a refused peer is told why in it. Events
//! that came before the error are still there to be taken.
//!
//! The layers: [`hello`] (fixed first bytes, versions, strangers named), [`secure`] (the key and the sealed channel),
//! [`frame`] (lengths and chunks), [`message`] (what is said), [`ladder`] (when it may be said, and for how long one
//! waits), [`session`] (the five put together). The protocol itself is described in `docs/protocol.md`. Not here:
//! sockets, clocks, what a workload puts into a [`Body`], and any wire format but haul's own.
#![forbid(unsafe_code)]

pub mod error;
pub mod frame;
pub mod hello;
pub mod ladder;
pub mod message;
pub mod secure;
pub mod session;

pub use error::WireError;
pub use hello::{DataHello, Foreign, HELLO_LEN, Hello, Token, Versions};
pub use ladder::{Now, Phase, Side};
pub use message::{Body, FlowIndex, Message, Refusal, RunId};
pub use secure::{Key, Trust};
pub use session::{Arrival, ClientSession, Event, Incoming, ServerSession};

/// Property tests draw the same cases every time; a failure prints its case, which names it better than a seed.
#[cfg(test)]
fn seeded() -> proptest::test_runner::Config {
    proptest::test_runner::Config {
        rng_seed: proptest::test_runner::RngSeed::Fixed(0x6861_756c),
        failure_persistence: None,
        ..Default::default()
    }
}
