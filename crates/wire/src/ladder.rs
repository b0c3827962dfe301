//! Who may say what when, and how long each waits for the other.
//!
//! ```text
//!  client                                     server          phase while waiting        at most
//!    | hello ───────────────────────────────────> |           greeting                    1.5 s
//!    | <─────────────────────────────────── hello |                                         (2 s with securing)
//!    | handshake ───────────────────────────────> |           securing  (keyed only)      2 s
//!    | <─────────────────────────────── handshake |
//!    | open ────────────────────────────────────> |           opening, admitting          5 s each
//!    | <────────────────────── opened or refused  |           idle                       60 s, at the server
//!    |                                            |
//!    | settings, restore_settings ──────────────> |           configuring                15 s
//!    | <──────────────────────── settings_applied |           idle
//!    | fingerprint ─────────────────────────────> |           fingerprinting             15 s
//!    | <────────────────────────── fingerprint_is |           idle
//!    |                                            |
//!    | prepare run, flows, lifetime ────────────> |           preparing                   5 s
//!    | <───────────────────────────────  prepared |           gathering                  10 s
//!    | = = = = data connections, hello each = = > |
//!    | <────────────────────────────────── ready  |           poised                      5 s
//!    | start ───────────────────────────────────> |           starting                    5 s
//!    | <──────────────────────────────── started  |           running        lifetime + 10 s
//!    | <─────────────────────────── interval …    |
//!    | (stop) ──────────────────────────────────> |
//!    | collect ─────────────────────────────────> |           collecting                 10 s
//!    | <───────────────────────────────── report  |           idle
//!    | (outcome) ───────────────────────────────> |           idle
//!    |                                            |
//!    | close ───────────────────────────────────> |           closing                    15 s
//!    | <───────────────────────────────── closed  |           ended
//! ```
//!
//! Both ends hold the same ladder and move on it with each message sent or received. Where messages cross, the two stand
//! on different rungs for the time of flight; three rules cover that. A message about a run that is over here is
//! dropped. `stop` before `start` ends the run at once, afterwards `collect` follows. And whoever said `close` listens for
//! `closed` only. At any time after `opened`: `ping` and its `pong`, `failed` (which ends the run it names, or the call
//! under way), unknown kinds; at any time after the handshake: `alive`, `close`, `closed`.
//!
//! The deadlines count from the entry into a phase. The phase at the server is the server's own duty or the client's,
//! depending on whose turn it is: a server that does not answer in time ends the session as a silent client does.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

use crate::error::WireError;
use crate::message::{Message, RunId};

/// The wait for the server's hello: below the two seconds in which a foreign peer has to be named, above the three
/// round trips and one retransmission (1 s, RFC 6298) that a lossy path may take.
pub const GREETING_DEADLINE: Duration = Duration::from_millis(1_500);
/// From the connection to the sealed channel, at both ends: a silent or foreign connection costs the server this long.
pub const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(2);
/// For the first question and for its answer, which may need the server's journal to be read.
pub const OPENING_DEADLINE: Duration = Duration::from_secs(5);
/// How long the server keeps a place for a client that asks nothing. A client that means to stay sends a ping.
pub const IDLE_DEADLINE: Duration = Duration::from_mins(1);
/// For settings and fingerprints, and for putting settings back: a changed ring can take the carrier down for seconds.
pub const CONFIGURE_DEADLINE: Duration = Duration::from_secs(15);
/// For sockets and buffers to be made.
pub const PREPARE_DEADLINE: Duration = Duration::from_secs(5);
/// For all data connections to arrive: a lost SYN costs 1 s, two cost 3 s, three cost 7 s.
pub const READY_DEADLINE: Duration = Duration::from_secs(10);
/// For the start to be given and to be heard.
pub const START_DEADLINE: Duration = Duration::from_secs(5);
/// What a run may take beyond its lifetime, for buffers to drain at the end.
pub const RUN_GRACE: Duration = Duration::from_secs(10);
/// For the report; it begins anew with each full record of a large one.
pub const COLLECT_DEADLINE: Duration = Duration::from_secs(10);
/// An end that has said nothing for this long says that it is alive.
pub const HEARTBEAT: Duration = Duration::from_millis(500);
/// Silence after which the other end is lost: sixteen heartbeats. An end that stalls for five seconds, as a machine does that is
/// migrated or a process that is stopped to see what a stall does, is measured and not given up.
pub const SILENCE_DEADLINE: Duration = Duration::from_secs(8);

/// A point in time, as the time passed since an origin that the caller chooses and keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now(pub Duration);

impl Now {
    /// Later than everything.
    pub const NEVER: Self = Self(Duration::MAX);

    /// The time from here to `later`; zero if that is past.
    #[must_use]
    pub fn until(self, later: Self) -> Duration {
        later.0.saturating_sub(self.0)
    }
}

impl Add<Duration> for Now {
    type Output = Self;

    fn add(self, length: Duration) -> Self {
        Self(self.0.saturating_add(length))
    }
}

/// One of the two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The end that connects and drives the test.
    Client,
    /// The end that runs `haul serve`.
    Server,
}

/// Where on the ladder an end stands. As text it completes a sentence: "no progress while …".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Waiting for the other end's hello.
    Greeting,
    /// In the Noise handshake.
    Securing,
    /// The channel is there; `open` is due.
    Opening,
    /// `opened` or `refused` is due.
    Admitting,
    /// Between calls.
    Idle,
    /// `settings_applied` is due.
    Configuring,
    /// `fingerprint_is` is due.
    Fingerprinting,
    /// `prepared` is due.
    Preparing,
    /// The data connections and then `ready` are due.
    Gathering,
    /// `start` is due.
    Poised,
    /// `started` is due.
    Starting,
    /// The flows run.
    Running,
    /// `report` is due.
    Collecting,
    /// `closed` is due.
    Closing,
    /// Nothing more is said.
    Ended,
}

impl Phase {
    /// Whether a run is set up, under way or being collected.
    #[must_use]
    pub fn in_run(self) -> bool {
        use Phase::{Collecting, Gathering, Poised, Preparing, Running, Starting};
        matches!(self, Preparing | Gathering | Poised | Starting | Running | Collecting)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Greeting => "while waiting for its hello",
            Self::Securing => "during the handshake",
            Self::Opening => "before the session was opened",
            Self::Admitting => "while the session was being opened",
            Self::Idle => "between runs",
            Self::Configuring => "while the server's settings were being changed",
            Self::Fingerprinting => "while the server's fingerprint was being taken",
            Self::Preparing => "while the run was being prepared",
            Self::Gathering => "while the data connections were being made",
            Self::Poised => "between ready and start",
            Self::Starting => "while the run was being started",
            Self::Running => "during the run",
            Self::Collecting => "while the report was due",
            Self::Closing => "while the session was being closed",
            Self::Ended => "after the end of the session",
        })
    }
}

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The caller gets to see it.
    Deliver,
    /// It has done its work by arriving, or came too late to matter.
    Absorb,
}

/// One end's place on the ladder.
#[derive(Debug)]
pub(crate) struct Ladder {
    side: Side,
    phase: Phase,
    since: Now,
    run: Option<RunId>,
    run_over: bool,
    lifetime: Duration,
}

impl Ladder {
    pub(crate) fn new(now: Now, side: Side) -> Self {
        Self { side, phase: Phase::Greeting, since: now, run: None, run_over: true, lifetime: Duration::ZERO }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// The run that is not over yet.
    pub(crate) fn run(&self) -> Option<RunId> {
        self.run.filter(|_| !self.run_over)
    }

    /// Moves to a phase that no message stands for.
    pub(crate) fn enter(&mut self, now: Now, phase: Phase) {
        // The handshake deadline spans greeting and securing: it bounds what a stranger costs.
        if phase != Phase::Securing {
            self.since = now;
        }
        self.phase = phase;
    }

    /// Begins the wait for the report anew: a full record of it has come.
    pub(crate) fn renew(&mut self, now: Now) {
        if self.phase == Phase::Collecting {
            self.since = now;
        }
    }

    /// How long the present phase may take.
    pub(crate) fn allowance(&self) -> Option<Duration> {
        match self.phase {
            Phase::Greeting if self.side == Side::Client => Some(GREETING_DEADLINE),
            Phase::Greeting | Phase::Securing => Some(HANDSHAKE_DEADLINE),
            Phase::Opening | Phase::Admitting => Some(OPENING_DEADLINE),
            // A client between calls waits for nobody but its own caller.
            Phase::Idle => (self.side == Side::Server).then_some(IDLE_DEADLINE),
            Phase::Configuring | Phase::Fingerprinting | Phase::Closing => Some(CONFIGURE_DEADLINE),
            Phase::Preparing => Some(PREPARE_DEADLINE),
            Phase::Gathering => Some(READY_DEADLINE),
            Phase::Poised | Phase::Starting => Some(START_DEADLINE),
            Phase::Running => Some(self.lifetime.saturating_add(RUN_GRACE)),
            Phase::Collecting => Some(COLLECT_DEADLINE),
            Phase::Ended => None,
        }
    }

    pub(crate) fn deadline(&self) -> Now {
        self.allowance().map_or(Now::NEVER, |allowance| self.since + allowance)
    }

    /// Takes a message that this end is about to send.
    pub(crate) fn send(&mut self, now: Now, message: &Message) -> Result<(), WireError> {
        // Having said close, an end has nothing to add; the server's answer is the exception.
        if self.phase == Phase::Closing && !matches!(message, Message::Closed { .. } | Message::Alive) {
            return Err(self.out_of_order(message));
        }
        self.take(now, self.side, message)
    }

    /// Takes a message from the other end.
    pub(crate) fn receive(&mut self, now: Now, message: &Message) -> Result<Step, WireError> {
        if self.phase == Phase::Ended || self.crossed(message) {
            return Ok(Step::Absorb);
        }
        let from = match self.side {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        };
        self.take(now, from, message)?;
        Ok(if matches!(message, Message::Alive) { Step::Absorb } else { Step::Deliver })
    }

    /// Whether the message was sent before the other end could know what has happened here.
    fn crossed(&self, message: &Message) -> bool {
        if self.phase == Phase::Closing && self.side == Side::Client {
            return message.may_come_from(Side::Server) && !matches!(message, Message::Closed { .. });
        }
        match (message, message.run(), self.run) {
            (Message::Prepare { .. }, _, _) | (_, None, _) | (_, _, None) => false,
            (_, Some(run), Some(ours)) => run < ours || (run == ours && self.run_over),
        }
    }

    fn take(&mut self, now: Now, from: Side, message: &Message) -> Result<(), WireError> {
        let next = self.next(from, message).ok_or_else(|| self.out_of_order(message))?;
        if let Message::Prepare { run, lifetime_ms, .. } = message
            && next == Phase::Preparing
        {
            self.run = Some(*run);
            self.run_over = false;
            self.lifetime = Duration::from_millis(*lifetime_ms);
        }
        self.run_over |= !next.in_run();
        if next != self.phase || (next == Phase::Idle && !matches!(message, Message::Alive)) {
            self.enter(now, next);
        }
        Ok(())
    }

    /// The phase after this message; `None` where it has no place.
    fn next(&self, from: Side, message: &Message) -> Option<Phase> {
        use Phase::{
            Admitting, Closing, Collecting, Configuring, Ended, Fingerprinting, Gathering, Greeting, Idle,
            Opening, Poised, Preparing, Running, Securing, Starting,
        };

        let phase = self.phase;
        if !message.may_come_from(from) || matches!(phase, Greeting | Securing | Ended) {
            return None;
        }
        let this_run = message.run().is_some() && message.run() == self.run();
        let let_in = !matches!(phase, Opening | Admitting | Closing);
        match message {
            Message::Alive => Some(phase),
            Message::Close if phase != Closing => Some(Closing),
            Message::Closed { .. } => Some(Ended),
            Message::Ping { .. } | Message::Pong { .. } | Message::Unknown { .. } => let_in.then_some(phase),
            Message::Failed { run: None, .. } => match phase {
                Configuring | Fingerprinting => Some(Idle),
                _ => let_in.then_some(phase),
            },
            Message::Failed { run: Some(_), .. } => this_run.then_some(Idle),
            Message::Refused { .. } => match phase {
                Opening | Admitting => Some(Ended),
                Configuring | Fingerprinting | Preparing => Some(Idle),
                _ => None,
            },
            Message::Prepare { run, .. } => (phase == Idle && Some(*run) > self.run).then_some(Preparing),
            Message::Stop { .. } if this_run => match phase {
                Preparing | Gathering | Poised => Some(Idle),
                Starting | Running => Some(phase),
                _ => None,
            },
            _ => match (phase, message) {
                (Opening, Message::Open { .. }) => Some(Admitting),
                (Admitting, Message::Opened { .. })
                | (Configuring, Message::SettingsApplied { .. })
                | (Fingerprinting, Message::FingerprintIs { .. })
                | (Idle, Message::Outcome { .. }) => Some(Idle),
                (Idle, Message::Settings { .. } | Message::VerifySettings | Message::RestoreSettings) => {
                    Some(Configuring)
                }
                (Idle, Message::Fingerprint { .. }) => Some(Fingerprinting),
                (Preparing, Message::Prepared { .. }) if this_run => Some(Gathering),
                (Gathering, Message::Ready { .. }) if this_run => Some(Poised),
                (Poised, Message::Start { .. }) if this_run => Some(Starting),
                (Starting, Message::Started { .. }) if this_run => Some(Running),
                (Running | Collecting, Message::Interval { .. }) if this_run => Some(phase),
                (Running, Message::Collect { .. }) if this_run => Some(Collecting),
                (Collecting, Message::Report { .. }) if this_run => Some(Idle),
                _ => None,
            },
        }
    }

    fn out_of_order(&self, message: &Message) -> WireError {
        WireError::OutOfOrder { got: message.kind().to_owned(), phase: self.phase }
    }
}
