//! A control connection, from the first byte to the last: what the owner of the socket drives.
//!
//! A [`Session`] is a hello reader, then a handshake, then a channel, with the ladder over them and an output buffer
//! under them. Both ends are the same type with a different [`Role`], because after the handshake they differ only in
//! what the ladder lets them say. The server does not know what a new connection is: [`Incoming`] finds out.

use std::collections::VecDeque;
use std::marker::PhantomData;

use crate::error::{WireError, printable};
use crate::frame::{self, Assembler, CHUNK, Deframer, FrameKind, MAX_MESSAGE, MAX_REQUEST};
use crate::hello::{DataHello, Foreign, HELLO_LEN, Heard, Hello, HelloReader, Mode, OURS};
use crate::ladder::{HANDSHAKE_DEADLINE, HEARTBEAT, Ladder, Now, Phase, SILENCE_DEADLINE, Side, Step};
use crate::message::{Message, Refusal, RunId};
use crate::secure::{Channel, Handshake, Trust};

/// What a session holds for a peer that reads slowly: two messages of the largest size. Beyond that it is not slow.
const MAX_BACKLOG: usize = 2 * MAX_MESSAGE + MAX_MESSAGE / 16;

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The channel is there: the client may send `open`.
    Established,
    /// The other end said this.
    Message(Message),
}

/// Which end a session is at.
pub trait Role {
    /// The end.
    const SIDE: Side;
}

/// The role of [`ClientSession`].
#[derive(Debug)]
pub enum Client {}

/// The role of [`ServerSession`].
#[derive(Debug)]
pub enum Server {}

impl Role for Client {
    const SIDE: Side = Side::Client;
}

impl Role for Server {
    const SIDE: Side = Side::Server;
}

/// The client's end of a control connection.
pub type ClientSession = Session<Client>;

/// The server's end of a control connection, made by [`Incoming`].
pub type ServerSession = Session<Server>;

/// One end of a control connection.
pub struct Session<R: Role> {
    ladder: Ladder,
    stage: Stage,
    deframer: Deframer,
    assembler: Assembler,
    output: Output,
    events: VecDeque<Event>,
    last_heard: Now,
    next_beat: Now,
    error: Option<WireError>,
    role: PhantomData<R>,
}

enum Stage {
    Greeting {
        reader: HelloReader,
        trust: Trust,
        hello: [u8; HELLO_LEN],
    },
    Securing(Handshake),
    Secured(Channel),
    /// A handshake failed.
    Broken,
}

impl ClientSession {
    /// A session on a connection that has just been made. Its hello is in the output.
    #[must_use]
    pub fn new(now: Now, trust: Trust) -> Self {
        let hello = Hello::Control(mode_of(&trust)).encode(OURS);
        let reader = HelloReader::new(Side::Server);
        let mut session =
            Self::at(now, Ladder::new(now, Side::Client), Stage::Greeting { reader, trust, hello });
        session.output.bytes.extend_from_slice(&hello);
        session
    }
}

impl ServerSession {
    /// Says no to the client in whatever way it can hear by now, and ends the session. Flush the output, then close.
    pub fn refuse(&mut self, now: Now, reason: Refusal, text: &str) -> Result<(), WireError> {
        let refused = Message::Refused { reason, text: text.to_owned() };
        if matches!(self.stage, Stage::Secured(_)) {
            return self.send(now, &refused);
        }
        self.ladder.enter(now, Phase::Ended);
        refuse_in_plain(&refused, &mut self.output)
    }
}

impl<R: Role> Session<R> {
    fn at(now: Now, ladder: Ladder, stage: Stage) -> Self {
        Self {
            ladder,
            stage,
            deframer: Deframer::default(),
            assembler: Assembler::default(),
            output: Output::default(),
            events: VecDeque::new(),
            last_heard: now,
            next_beat: now + HEARTBEAT,
            error: None,
            role: PhantomData,
        }
    }

    /// Takes bytes that came from the other end, however they were cut. Read all there is before calling
    /// [`Session::tick`], or an end that was itself stopped for a while takes its peer for silent.
    pub fn receive(&mut self, now: Now, bytes: &[u8]) -> Result<(), WireError> {
        self.alive()?;
        if bytes.is_empty() || self.ladder.phase() == Phase::Ended {
            return Ok(());
        }
        self.last_heard = now;
        let outcome = self.greet(now, bytes).and_then(|taken| {
            self.deframer.push(&bytes[taken..]);
            self.unframe(now)
        });
        outcome.map_err(|error| self.fail(error))
    }

    /// Notes that the other end closed its direction. That is an error unless the session had come to its end.
    pub fn receive_end(&mut self) -> Result<(), WireError> {
        self.alive()?;
        match (&self.stage, self.ladder.phase()) {
            // A client that said close has all it came for, whether or not the server's last word gets through; and a
            // server that heard close may still put its settings back and say closed.
            (_, Phase::Ended | Phase::Closing) => {
                if R::SIDE == Side::Client {
                    self.ladder.enter(self.last_heard, Phase::Ended);
                }
                Ok(())
            }
            (Stage::Greeting { reader, .. }, _) => {
                let found = reader.on_hangup();
                Err(self.fail(WireError::NotHaul { found }))
            }
            (_, phase) => Err(self.fail(WireError::PeerClosed { phase })),
        }
    }

    /// Says something. A message that has no place in the present phase is returned as an error and changes nothing.
    pub fn send(&mut self, now: Now, message: &Message) -> Result<(), WireError> {
        self.alive()?;
        let json = message.to_json()?;
        let limit = largest_from(R::SIDE);
        if json.len() > limit {
            return Err(oversize("a message", json.len(), limit));
        }
        if self.output.left().len() + json.len() > MAX_BACKLOG {
            return Err(oversize(
                "output that the other end does not read",
                self.output.left().len(),
                MAX_BACKLOG,
            ));
        }
        self.ladder.send(now, message)?;
        self.next_beat = now + HEARTBEAT;
        self.write(json.as_bytes()).map_err(|error| self.fail(error))
    }

    /// The bytes to be written to the socket.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        self.output.left()
    }

    /// Notes that the first `count` bytes of [`Session::output`] were written.
    pub fn sent(&mut self, count: usize) {
        self.output.sent(count);
    }

    /// The next thing that happened, oldest first.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`Session::tick`] has something to do at the latest.
    #[must_use]
    pub fn deadline(&self) -> Now {
        if self.is_over() {
            return Now::NEVER;
        }
        let phase = self.ladder.deadline();
        match self.stage {
            Stage::Secured(_) => phase.min(self.silence_deadline()).min(self.next_beat),
            _ => phase,
        }
    }

    /// Looks at the time: finds what has taken too long, and sends the heartbeat.
    pub fn tick(&mut self, now: Now) -> Result<(), WireError> {
        self.alive()?;
        if let Some(after) = self.ladder.allowance()
            && now >= self.ladder.deadline()
        {
            let phase = self.ladder.phase();
            let silence = match &self.stage {
                Stage::Greeting { reader, .. } => Some(WireError::NotHaul { found: reader.on_time_up() }),
                _ => None,
            };
            return Err(self.fail(silence.unwrap_or(WireError::Deadline { phase, after })));
        }
        if !matches!(self.stage, Stage::Secured(_)) || self.is_over() {
            return Ok(());
        }
        if now >= self.silence_deadline() {
            let after = self.last_heard.until(now);
            return Err(self.fail(WireError::PeerSilent { after }));
        }
        if now >= self.next_beat {
            self.next_beat = now + HEARTBEAT;
            // Output that is still waiting says the same once it gets through.
            if self.output.left().is_empty() {
                return self.send(now, &Message::Alive);
            }
        }
        Ok(())
    }

    /// Where the session stands.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.ladder.phase()
    }

    /// The run that is set up, under way or being collected.
    #[must_use]
    pub fn run(&self) -> Option<RunId> {
        self.ladder.run()
    }

    /// Whether nothing more will be said: the session was closed, refused or broken by an error.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.error.is_some() || self.ladder.phase() == Phase::Ended
    }

    fn let_in(&self) -> bool {
        !matches!(self.ladder.phase(), Phase::Greeting | Phase::Securing | Phase::Opening | Phase::Admitting)
    }

    /// A client that said close need not say more.
    fn silence_deadline(&self) -> Now {
        let taking_leave = R::SIDE == Side::Server && self.ladder.phase() == Phase::Closing;
        if taking_leave { Now::NEVER } else { self.last_heard + SILENCE_DEADLINE }
    }

    fn alive(&self) -> Result<(), WireError> {
        self.error.clone().map_or(Ok(()), Err)
    }

    fn fail(&mut self, error: WireError) -> WireError {
        self.error = Some(error.clone());
        error
    }

    /// Reads the server's hello at the client; returns how many bytes it took.
    fn greet(&mut self, now: Now, bytes: &[u8]) -> Result<usize, WireError> {
        let Stage::Greeting { reader, trust, hello: ours } = &mut self.stage else { return Ok(0) };
        let (taken, heard) = reader.read(bytes);
        let theirs = match heard {
            Heard::More => return Ok(taken),
            Heard::Foreign(found) => return Err(WireError::NotHaul { found }),
            Heard::Hello(theirs) => theirs,
        };
        let Hello::Control(mode) = Hello::decode(&theirs)? else {
            return Err(WireError::malformed(
                "the hello of a data connection in answer to a control connection's",
            ));
        };
        match (trust, mode) {
            (Trust::Key(key), Mode::Keyed) => {
                let mut handshake = Handshake::client(key, &[*ours, theirs].concat())?;
                frame::encode(FrameKind::Handshake, &handshake.write()?, &mut self.output.bytes)?;
                self.stage = Stage::Securing(handshake);
                self.ladder.enter(now, Phase::Securing);
            }
            (Trust::Open, Mode::Open) => self.establish(now, Channel::Plain),
            (Trust::Key(_), Mode::Open) => return Err(WireError::ServerIsOpen),
            (Trust::Open, Mode::Keyed) => return Err(WireError::ServerIsKeyed),
        }
        Ok(taken)
    }

    fn establish(&mut self, now: Now, channel: Channel) {
        self.stage = Stage::Secured(channel);
        self.ladder.enter(now, Phase::Opening);
        self.next_beat = now + HEARTBEAT;
        self.events.push_back(Event::Established);
    }

    fn unframe(&mut self, now: Now) -> Result<(), WireError> {
        while let Some((kind, body)) = self.deframer.take()? {
            let let_in = self.let_in();
            match (kind, &mut self.stage) {
                (FrameKind::Handshake, Stage::Securing(_)) => self.secure(now, &body)?,
                (FrameKind::Record, Stage::Secured(channel)) => {
                    let record = channel.open(body)?;
                    self.assemble(now, &record)?;
                }
                (FrameKind::Refusal, Stage::Securing(_) | Stage::Secured(Channel::Plain))
                    if R::SIDE == Side::Client && !let_in =>
                {
                    return Err(match read_message(&body)? {
                        Message::Refused { reason, text } => refused(reason, &text),
                        message => WireError::malformed(format!("a refusal that says '{}'", message.kind())),
                    });
                }
                (kind, _) => {
                    return Err(WireError::malformed(format!("a {kind:?} frame {}", self.ladder.phase())));
                }
            }
        }
        Ok(())
    }

    fn secure(&mut self, now: Now, message: &[u8]) -> Result<(), WireError> {
        let Stage::Securing(mut handshake) = std::mem::replace(&mut self.stage, Stage::Broken) else {
            return Ok(());
        };
        if let Err(error) = handshake.read(message) {
            if R::SIDE == Side::Server && error == WireError::WrongKey {
                let text = "the key is not the server's".to_owned();
                refuse_in_plain(&Message::Refused { reason: Refusal::WrongKey, text }, &mut self.output)?;
            }
            return Err(error);
        }
        if R::SIDE == Side::Server {
            frame::encode(FrameKind::Handshake, &handshake.write()?, &mut self.output.bytes)?;
        }
        self.establish(now, handshake.finish()?);
        Ok(())
    }

    fn assemble(&mut self, now: Now, record: &[u8]) -> Result<(), WireError> {
        // A client that was not let in yet gets no more memory than its first question needs.
        let let_in =
            R::SIDE == Side::Client || !matches!(self.ladder.phase(), Phase::Opening | Phase::Admitting);
        let Some(json) = self.assembler.push(record, if let_in { MAX_MESSAGE } else { CHUNK })? else {
            self.ladder.renew(now);
            return Ok(());
        };
        let message = read_message(&json)?;
        if self.ladder.receive(now, &message)? == Step::Absorb {
            return Ok(());
        }
        match message {
            // To be refused at the door ends the session; a refused call is an answer like others.
            Message::Refused { reason, text } if self.ladder.phase() == Phase::Ended => {
                Err(refused(reason, &text))
            }
            message => {
                self.events.push_back(Event::Message(message));
                Ok(())
            }
        }
    }

    fn write(&mut self, message: &[u8]) -> Result<(), WireError> {
        // The ladder lets nothing through before the channel is there.
        if let Stage::Secured(channel) = &mut self.stage {
            for record in frame::records(message) {
                frame::encode(FrameKind::Record, &channel.seal(record)?, &mut self.output.bytes)?;
            }
        }
        Ok(())
    }
}

/// What a new connection turned out to be.
pub enum Arrival {
    /// More bytes are needed.
    NeedMore,
    /// A client. The rest of the bytes, and the connection, are this session's.
    Control(Box<ServerSession>),
    /// A flow. The rest of the bytes is its payload.
    Data(DataHello),
    /// Something else: worth one line of log, then to be closed.
    Foreign(Foreign),
    /// A haul that cannot be served, and why. The output tells it the same: write it before closing.
    Refused(WireError),
}

/// A connection that the server has accepted and knows nothing about.
pub struct Incoming {
    since: Now,
    trust: Trust,
    reader: HelloReader,
    output: Output,
}

impl Incoming {
    /// A connection accepted just now by a server that trusts these clients.
    #[must_use]
    pub fn new(now: Now, trust: Trust) -> Self {
        Self { since: now, trust, reader: HelloReader::new(Side::Client), output: Output::default() }
    }

    /// Takes bytes; returns how many it took, none after the hello, and what the connection is. To be called again only
    /// after [`Arrival::NeedMore`].
    pub fn receive(&mut self, now: Now, bytes: &[u8]) -> (usize, Arrival) {
        let (taken, heard) = self.reader.read(bytes);
        let arrival = match heard {
            Heard::More => Arrival::NeedMore,
            Heard::Foreign(found) => Arrival::Foreign(found),
            Heard::Hello(hello) => self.admit(now, &hello).unwrap_or_else(Arrival::Refused),
        };
        (taken, arrival)
    }

    fn admit(&mut self, now: Now, theirs: &[u8; HELLO_LEN]) -> Result<Arrival, WireError> {
        let hello = Hello::decode(theirs);
        if let Ok(Hello::Data(data)) = hello {
            return Ok(Arrival::Data(data));
        }
        // The client learns from this hello what it did wrong, if it did.
        let ours = Hello::Control(mode_of(&self.trust)).encode(OURS);
        self.output.bytes.extend_from_slice(&ours);
        let Hello::Control(mode) = hello? else { return Ok(Arrival::NeedMore) };
        let mut ladder = Ladder::new(self.since, Side::Server);
        let session = match (&self.trust, mode) {
            (Trust::Key(key), Mode::Keyed) => {
                let handshake = Handshake::server(key, &[*theirs, ours].concat())?;
                ladder.enter(now, Phase::Securing);
                ServerSession::at(now, ladder, Stage::Securing(handshake))
            }
            (Trust::Open, Mode::Open) => {
                let mut session = ServerSession::at(now, ladder, Stage::Broken);
                session.establish(now, Channel::Plain);
                session
            }
            (Trust::Key(_), Mode::Open) => return Err(WireError::ServerIsKeyed),
            (Trust::Open, Mode::Keyed) => return Err(WireError::ServerIsOpen),
        };
        let output = std::mem::take(&mut self.output);
        Ok(Arrival::Control(Box::new(ServerSession { output, ..session })))
    }

    /// The bytes to be written to the socket before it is closed.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        self.output.left()
    }

    /// Names the peer that closed its direction before it had said what it is.
    #[must_use]
    pub fn receive_end(&self) -> WireError {
        WireError::NotHaul { found: self.reader.on_hangup() }
    }

    /// When the connection has to be known at the latest.
    #[must_use]
    pub fn deadline(&self) -> Now {
        self.since + HANDSHAKE_DEADLINE
    }

    /// Looks at the time: an error names the peer by what it said, and the connection is to be closed.
    pub fn tick(&self, now: Now) -> Result<(), WireError> {
        if now < self.deadline() {
            Ok(())
        } else {
            Err(WireError::NotHaul { found: self.reader.on_time_up() })
        }
    }
}

/// Bytes on their way to a socket that takes some at a time.
#[derive(Debug, Default)]
struct Output {
    bytes: Vec<u8>,
    sent: usize,
}

impl Output {
    fn left(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    fn sent(&mut self, count: usize) {
        self.sent = (self.sent + count).min(self.bytes.len());
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
        }
    }
}

fn largest_from(side: Side) -> usize {
    match side {
        Side::Client => MAX_REQUEST,
        Side::Server => MAX_MESSAGE,
    }
}

fn mode_of(trust: &Trust) -> Mode {
    match trust {
        Trust::Key(_) => Mode::Keyed,
        Trust::Open => Mode::Open,
    }
}

fn read_message(json: &[u8]) -> Result<Message, WireError> {
    let text = std::str::from_utf8(json).map_err(|_| WireError::malformed("a message that is not UTF-8"))?;
    Message::from_json(text)
}

fn refused(reason: Refusal, text: &str) -> WireError {
    match reason {
        Refusal::WrongKey => WireError::WrongKey,
        reason => WireError::Refused { reason, text: printable(text) },
    }
}

fn refuse_in_plain(message: &Message, output: &mut Output) -> Result<(), WireError> {
    frame::encode(FrameKind::Refusal, message.to_json()?.as_bytes(), &mut output.bytes)
}

fn oversize(what: &'static str, len: usize, limit: usize) -> WireError {
    WireError::Oversize { what, len: len as u64, limit: limit as u64 }
}

#[cfg(test)]
mod tests;
