//! One client's session at the server.
//!
//! A thread that waits for its client, its flows and its clock, all in one place, and owns everything the client was
//! given: dropping [`Session`] frees the slot, ends the flows and puts the settings back, whatever ended it.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use haul_host::clock;
use haul_host::link;
use haul_host::probe::environment::Fingerprint;
use haul_host::settings::{self, Consent, Setting, Tuner};
use haul_stats::MonoNanos;
use haul_wire::session::Server;
use haul_wire::{Body, Message, Refusal, RunId, ServerSession, Token};
use rand::TryRng;

use super::{Holder, Knock, Seen, ServeEvent, ServedRun, Shared, seconds_since};
use crate::control::Conversation;
use crate::error::{Result, WorkloadError};
use crate::legs::{Legs, numbering};
use crate::protocol::{Headline, Interval, Outcome, Prepare, Prepared, Reports, Welcome};
use crate::report::{HostId, Role, RunOutcome};
use crate::spec::{RunSpec, Transport, Workload};
use crate::{connect, datagram};

/// The furthest a client may set the start ahead: it needs some round trips of the slowest path, and no more.
const LATEST_START: Duration = Duration::from_secs(5);

/// Starts the thread of a session. Without a thread the client is turned away.
pub(super) fn start(
    shared: &Arc<Shared>,
    stream: TcpStream,
    session: Box<ServerSession>,
    from: SocketAddr,
) -> Option<JoinHandle<()>> {
    let own = Arc::clone(shared);
    let started = std::thread::Builder::new().name("haul-session".to_owned()).spawn(move || {
        let shared = own;
        let talk = match Conversation::<Server>::prepare(&stream) {
            Ok(epoll) => Conversation::over(stream, epoll, *session, format!("client {from}")),
            Err(error) => return shared.turn_away(from, error.to_string()),
        };
        serve(&shared, talk, from);
    });
    match started {
        Ok(thread) => Some(thread),
        Err(error) => {
            shared.turn_away(from, format!("cannot start a thread: {error}"));
            None
        }
    }
}

/// From the first message to the last.
fn serve(shared: &Shared, mut talk: Conversation<Server>, from: SocketAddr) {
    let admitted = admit(shared, &mut talk, from);
    let mut session = match admitted {
        Ok(Some(session)) => session,
        Ok(None) => return talk.finish(),
        Err(error) => {
            shared.turn_away(from, error.to_string());
            // Whoever can still be told is told; a client that broke the order is past that.
            let text = match shared.stop.requested() {
                Some(signal) => format!("it was stopped by {signal}"),
                None => format!("it cannot serve you now: {error}"),
            };
            let _ = talk.send(&Message::Refused { reason: Refusal::Limit, text });
            return talk.finish();
        }
    };
    let ended = session.converse(&mut talk);
    let reason = match &ended {
        Ok(()) => None,
        Err(error) => Some(error.to_string()),
    };
    session.let_go();
    if ended.is_ok() {
        talk.finish();
    }
    shared.tell(&ServeEvent::Closed { client: session.who.clone(), reason });
}

/// Gives the client a slot, or tells it who holds them.
fn admit<'a>(
    shared: &'a Shared,
    talk: &mut Conversation<Server>,
    from: SocketAddr,
) -> Result<Option<Session<'a>>> {
    let (host, user) = match talk.answer(Some(&shared.stop))? {
        Message::Open { host, user, .. } => {
            (haul_wire::error::printable(&host), haul_wire::error::printable(&user))
        }
        _ => return Ok(None),
    };
    let name = if user.is_empty() { host } else { format!("{user}@{host}") };
    let who = if name.is_empty() { from.to_string() } else { format!("{name} ({from})") };
    let limit = shared.options.max_sessions;
    let mut holders = shared.holders();
    if holders.len() >= limit as usize {
        let oldest = holders.iter().min_by_key(|holder| holder.since);
        let (holder, since_s) =
            oldest.map_or((String::new(), 0), |it| (it.who.clone(), seconds_since(it.since)));
        drop(holders);
        let held =
            if limit == 1 { "its only session".to_owned() } else { format!("one of its {limit} sessions") };
        let held = format!("{holder} holds {held} since {since_s} s");
        let text = format!("it is busy: {held}; try again later, or raise --sessions there");
        talk.send(&Message::Refused { reason: Refusal::Busy { holder, since_s, limit }, text })?;
        if shared.line().refused(&name, from, clock::now()) {
            shared.note(Some(ServeEvent::Full { client: who, reason: held }));
        }
        return Ok(None);
    }
    let token = fresh_token()?;
    let fault = |error| WorkloadError::os("create", "a session's bell", error);
    let (bell, ring) = UnixStream::pair().map_err(fault)?;
    bell.set_nonblocking(true).map_err(fault)?;
    ring.set_nonblocking(true).map_err(fault)?;
    let (door, arrivals) = mpsc::channel();
    let since = clock::now();
    holders.push(Holder { token, who: who.clone(), since, running: false, shared: false, door, bell: ring });
    drop(holders);
    let host = HostId::own();
    let session = Session {
        shared,
        who,
        token,
        host,
        arrivals,
        bell,
        tuner: None,
        state: State::Idle,
        spec: None,
        over: None,
    };
    let welcome =
        Welcome { host: session.host.clone(), settings_allowed: shared.options.allow_settings.is_some() };
    talk.send(&Message::Opened {
        server_version: session.host.version.clone(),
        token,
        boot_id: session.host.boot_id.clone(),
        body: body(&welcome)?,
    })?;
    talk.watch(session.bell.as_fd())?;
    talk.watch(shared.stop.as_fd())?;
    let waited = shared.line().admitted(&name, from, since);
    shared.tell(&ServeEvent::Opened { client: session.who.clone(), waited });
    Ok(Some(session))
}

/// Sixteen bytes from the kernel: who cannot see the control connection cannot guess them.
fn fresh_token() -> Result<Token> {
    let mut bytes = [0; 16];
    rand::rngs::SysRng.try_fill_bytes(&mut bytes).map_err(|error| {
        WorkloadError::os("read", "random bytes for a session's token", std::io::Error::other(error))
    })?;
    Ok(Token::from_random(bytes))
}

/// What the session is doing.
enum State {
    Idle,
    /// Waiting for the flows of a run.
    Gathering {
        run: RunId,
        legs: Vec<RunSpec>,
        flows: Vec<Option<OwnedFd>>,
        /// The listeners of the legs that make their connections as they go, by leg.
        listeners: Vec<Vec<TcpListener>>,
        missing: usize,
    },
    /// A run with all its flows.
    Run {
        run: RunId,
        legs: Legs,
        collect: bool,
    },
}

/// How a flow came to be here.
enum Arrived {
    Connection(TcpStream),
    Datagram(SocketAddr),
}

struct Session<'a> {
    shared: &'a Shared,
    who: String,
    token: Token,
    host: HostId,
    arrivals: mpsc::Receiver<Knock>,
    bell: UnixStream,
    tuner: Option<Tuner>,
    state: State,
    /// What the run under way, or the last one, was asked to do.
    spec: Option<RunSpec>,
    /// What this end saw of the run that is over, until the client has said what it saw.
    over: Option<Over>,
}

/// A run that is over, as this end saw it.
struct Over {
    spec: RunSpec,
    reports: Reports,
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl Session<'_> {
    /// Ends the run, puts the settings back and frees the slot. Again does nothing.
    fn let_go(&mut self) {
        self.state = State::Idle;
        self.tell_of_run(None);
        if let Some(mut tuner) = self.tuner.take()
            && let Err(error) = tuner.restore()
        {
            let what = format!("NOT put back: {error}; run 'haul settings restore' on this host");
            self.shared.tell(&ServeEvent::Settings { client: self.who.clone(), what });
        }
        self.shared.holders().retain(|holder| holder.token != self.token);
    }

    /// Logs the run that is over, with what the client saw of it.
    fn tell_of_run(&mut self, client: Option<Outcome>) {
        let Some(Over { spec, reports }) = self.over.take() else { return };
        let own = reports.first().map(|report| Headline::of(report).to_string()).unwrap_or_default();
        let theirs =
            client.as_ref().map_or_else(|| "it did not say".to_owned(), |client| client.headline.to_string());
        let what = format!("server {own}; client {theirs}");
        let run = Box::new(ServedRun { seen: seen(&spec, reports, client), spec });
        self.shared.tell(&ServeEvent::RunEnded { client: self.who.clone(), what, run });
    }

    fn converse(&mut self, talk: &mut Conversation<Server>) -> Result<()> {
        loop {
            let wake = match &self.state {
                State::Run { legs, .. } => legs.wake_at(),
                _ => None,
            };
            talk.pump(wake)?;
            if let Some(signal) = self.shared.stop.requested() {
                let reason = format!("the server was stopped by {signal}");
                talk.send(&Message::Closed { reason: Some(reason.clone()) })?;
                talk.finish();
                return Err(WorkloadError::Invalid(reason));
            }
            while let Some(message) = talk.next() {
                if !self.act(talk, message)? {
                    return Ok(());
                }
            }
            self.gather(talk)?;
            self.run(talk)?;
        }
    }

    /// Does what a message asks for; false when it was the last.
    fn act(&mut self, talk: &mut Conversation<Server>, message: Message) -> Result<bool> {
        let call = message.kind().to_owned();
        if let Message::Outcome { body } = &message {
            self.tell_of_run(body.read().ok());
            return Ok(true);
        }
        if !matches!(message, Message::Alive | Message::Ping { .. }) {
            self.tell_of_run(None);
        }
        let answer = match message {
            Message::Ping { id } => Message::Pong { id, server_ns: clock::now().0 },
            Message::Fingerprint { .. } => {
                match Self::device(talk).map(|device| Fingerprint::collect(&device)) {
                    Ok(found) => Message::FingerprintIs { body: body(&found)? },
                    Err(error) => failed("read its fingerprint", None, &error),
                }
            }
            Message::Settings { apply, allow_side_effects, allow_global } => {
                let consent = Consent { side_effects: allow_side_effects, global: allow_global };
                match self.apply(talk, &apply, consent) {
                    Ok(applied) => Message::SettingsApplied { body: body(&applied)? },
                    Err(error) => failed("change its settings", None, &error),
                }
            }
            Message::VerifySettings => match self.tuner.as_mut().map_or(Ok(()), Tuner::verify) {
                Ok(()) => Message::SettingsApplied { body: Body::none() },
                Err(error) => failed("find its settings still in force", None, &error.into()),
            },
            Message::RestoreSettings => match self.tuner.as_mut().map_or(Ok(()), Tuner::restore) {
                Ok(()) => Message::SettingsApplied { body: Body::none() },
                Err(error) => failed("put its settings back", None, &error.into()),
            },
            Message::Prepare { run, flows, body: asked, .. } => {
                match self.prepare(talk, run, flows, &asked) {
                    Ok(prepared) => Message::Prepared { run, body: body(&prepared)? },
                    Err(error) => failed("prepare the run", Some(run), &error),
                }
            }
            Message::Start { run, at_ns } => match &mut self.state {
                State::Run { .. } if MonoNanos(at_ns).since(clock::now()) > LATEST_START => {
                    let error =
                        WorkloadError::Invalid(format!("it is to start more than {LATEST_START:?} from now"));
                    failed("start the run", Some(run), &error)
                }
                State::Run { legs, .. } => {
                    legs.start(MonoNanos(at_ns));
                    self.mark_running(true);
                    Message::Started { run }
                }
                _ => failed(
                    "start the run",
                    Some(run),
                    &WorkloadError::Invalid("its flows are not there".to_owned()),
                ),
            },
            Message::Stop { .. } => {
                match &mut self.state {
                    State::Run { legs, .. } => legs.cut(),
                    State::Gathering { .. } => self.state = State::Idle,
                    State::Idle => {}
                }
                return Ok(true);
            }
            Message::Collect { run } => match &mut self.state {
                State::Run { legs, collect, .. } => {
                    *collect = true;
                    legs.peer_is_done();
                    return Ok(true);
                }
                _ => failed(
                    "report on the run",
                    Some(run),
                    &WorkloadError::Invalid("there is none".to_owned()),
                ),
            },
            Message::Close => {
                let restored = self.tuner.as_mut().map_or(Ok(()), Tuner::restore);
                let reason = restored.err().map(|error| format!("settings NOT put back: {error}"));
                talk.send(&Message::Closed { reason })?;
                return Ok(false);
            }
            Message::Alive | Message::Unknown { .. } => return Ok(true),
            // The ladder lets nothing else through from a client.
            _ => return Err(WorkloadError::Invalid(format!("message '{call}' at a server"))),
        };
        talk.send(&answer)?;
        Ok(true)
    }

    fn device(talk: &Conversation<Server>) -> Result<link::Link> {
        let local = talk
            .socket()
            .local_addr()
            .map_err(|error| WorkloadError::os("read", "the address of the control connection", error))?;
        Ok(link::link_by_addr(local.ip().to_canonical())?)
    }

    fn apply(
        &mut self,
        talk: &Conversation<Server>,
        wanted: &[String],
        consent: Consent,
    ) -> Result<settings::Applied> {
        let wanted = wanted
            .iter()
            .map(|text| text.parse::<Setting>().map_err(haul_host::HostError::from))
            .collect::<haul_host::Result<Vec<_>>>()?;
        let allowed = self.shared.options.allow_settings;
        if let Some(setting) = wanted.iter().find(|setting| Some(setting.reach()) > allowed) {
            let what = setting.to_string();
            let reason = match allowed {
                None => "this server does not let clients change settings: start it with --allow-settings"
                    .to_owned(),
                Some(_) => format!(
                    "this server lets clients change settings of the network path only, and {what} could run programs as \
                     root: start it with --allow-settings=anything"
                ),
            };
            self.shared
                .tell(&ServeEvent::Settings { client: self.who.clone(), what: format!("REFUSED {what}") });
            return Err(WorkloadError::NotAllowed(reason));
        }
        if self.tuner.is_none() {
            self.tuner = Some(Tuner::open(&self.shared.options.journal, &Self::device(talk)?)?);
        }
        let Some(tuner) = self.tuner.as_mut() else { unreachable!("made above") };
        let applied = tuner.apply(&wanted, consent)?;
        if !wanted.is_empty() {
            let what = wanted.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            self.shared.tell(&ServeEvent::Settings { client: self.who.clone(), what });
        }
        Ok(applied)
    }

    fn prepare(
        &mut self,
        talk: &Conversation<Server>,
        run: RunId,
        flows: u32,
        asked: &Body,
    ) -> Result<Prepared> {
        let Prepare { mut spec } =
            asked.read().map_err(|source| WorkloadError::Control { peer: self.who.clone(), source })?;
        spec.check()?;
        // The names of what runs on a host are not for everybody.
        if self.shared.options.key.is_none() && spec.observe.profile_hz.is_some() {
            spec.observe.refused =
                Some("it lets anyone in (--open), and profiles for nobody: start it with a key".to_owned());
        }
        let legs = spec.legs();
        let missing: u32 = legs.iter().map(RunSpec::connections).sum();
        if flows != missing {
            return Err(WorkloadError::Invalid(format!("{flows} flows announced, {missing} specified")));
        }
        let local = talk
            .socket()
            .local_addr()
            .map_err(|error| WorkloadError::os("read", "the address of the control connection", error))?;
        let listeners: Vec<Vec<TcpListener>> = legs
            .iter()
            .map(|leg| match leg.workload {
                Workload::Crr => connect::listeners(leg, local.ip()),
                Workload::Stream | Workload::Rr => Ok(Vec::new()),
            })
            .collect::<Result<_>>()?;
        let port = |listener: &TcpListener| listener.local_addr().map(|address| address.port());
        let ports = listeners
            .iter()
            .map(|leg| leg.iter().map(port).collect())
            .collect::<std::io::Result<Vec<Vec<u16>>>>()
            .map_err(|error| WorkloadError::os("read", "the port of a listener", error))?;
        self.shared.tell(&ServeEvent::Run { client: self.who.clone(), what: spec.to_string() });
        self.spec = Some(spec);
        let missing = missing as usize;
        let flows = (0..missing).map(|_| None).collect();
        self.state = State::Gathering { run, legs, flows, listeners, missing };
        Ok(Prepared { ports })
    }

    /// Takes the data connections that have come, and makes the run's end once all are there.
    fn gather(&mut self, talk: &mut Conversation<Server>) -> Result<()> {
        let mut sink = [0; 64];
        while matches!((&self.bell).read(&mut sink), Ok(read) if read > 0) {}
        for knock in self.arrivals.try_iter() {
            let (hello, from) = match knock {
                Knock::Flow(hello, stream) => (hello, Arrived::Connection(stream)),
                Knock::Datagram(hello, from) => (hello, Arrived::Datagram(from)),
                Knock::NoMore(reason) => {
                    // Better told now than found out by waiting; what has come makes room for others.
                    if let State::Gathering { run, .. } = self.state {
                        self.state = State::Idle;
                        let call = "take the flows of the run".to_owned();
                        talk.send(&Message::Failed { call, run: Some(run), reason })?;
                    }
                    continue;
                }
            };
            let State::Gathering { run, legs, flows, missing, .. } = &mut self.state else { continue };
            // A flow of another run, or one too many, is closed: it is lost or a lie.
            let number = hello.flow.0;
            let leg = numbering(legs).iter().position(|numbers| numbers.contains(&number));
            let (Some(leg), Some(place)) =
                (leg.filter(|_| hello.run == *run), flows.get_mut(number as usize))
            else {
                continue;
            };
            let leg = &legs[leg];
            let made = match from {
                Arrived::Connection(stream) if leg.transport == Transport::Tcp && place.is_none() => {
                    leg.sockets(false).apply_to(&stream).map(|()| Some(OwnedFd::from(stream)))
                }
                Arrived::Datagram(from) if leg.transport == Transport::Udp && place.is_none() => {
                    datagram::door::open(talk.socket(), from, leg)
                }
                _ => continue,
            };
            match made {
                Ok(None) => {}
                Ok(Some(socket)) => {
                    *place = Some(socket);
                    *missing -= 1;
                }
                Err(error) => {
                    let run = *run;
                    self.state = State::Idle;
                    talk.send(&failed("prepare the run", Some(run), &error.into()))?;
                }
            }
        }
        if !matches!(self.state, State::Gathering { missing: 0, .. }) {
            return Ok(());
        }
        let State::Gathering { run, legs, flows, listeners, .. } =
            std::mem::replace(&mut self.state, State::Idle)
        else {
            return Ok(());
        };
        let mut flows = flows.into_iter().flatten();
        let client = talk.socket().peer_addr().map_err(|error| {
            WorkloadError::os("read", "the client's address of the control connection", error)
        })?;
        let by_leg = legs.iter().zip(listeners).map(|(leg, listeners)| match leg.workload {
            Workload::Crr => connect::served(leg, listeners, client),
            Workload::Stream | Workload::Rr => flows.by_ref().take(leg.connections() as usize).collect(),
        });
        match Legs::prepare(&legs, false, by_leg.collect(), &self.host) {
            Ok(legs) => {
                legs.bells().try_for_each(|bell| talk.watch(bell))?;
                self.state = State::Run { run, legs, collect: false };
                talk.send(&Message::Ready { run })
            }
            Err(error) => talk.send(&failed("prepare the run", Some(run), &error)),
        }
    }

    /// Looks after a run: intervals as they end, the report once it is over and asked for.
    fn run(&mut self, talk: &mut Conversation<Server>) -> Result<()> {
        let State::Run { run, legs, collect } = &mut self.state else { return Ok(()) };
        let run = *run;
        for (leg, interval) in legs.tick() {
            if !*collect {
                talk.send(&Message::Interval { run, body: body(&Interval { leg, interval })? })?;
            }
        }
        if !(legs.is_over() && *collect) {
            return Ok(());
        }
        legs.bells().for_each(|bell| talk.unwatch(bell));
        let State::Run { legs, .. } = std::mem::replace(&mut self.state, State::Idle) else { return Ok(()) };
        let mut reports: Reports = legs.reports();
        let shared = self.mark_running(false);
        for report in &mut reports {
            report.shared_server = shared;
        }
        self.over = self.spec.take().map(|spec| Over { spec, reports: reports.clone() });
        talk.send(&Message::Report { run, body: body(&reports)? })
    }

    /// Notes that a run of this session begins or ends; tells whether another session ran at the same time.
    fn mark_running(&self, running: bool) -> bool {
        let mut holders = self.shared.holders();
        let others = holders.iter().any(|holder| holder.token != self.token && holder.running);
        let mut shared = false;
        for holder in holders.iter_mut() {
            if holder.token == self.token {
                shared = (holder.shared && !running) || others;
                holder.shared = others && running;
                holder.running = running;
            } else if running && holder.running {
                holder.shared = true;
            }
        }
        shared
    }
}

/// A run with both ends, where the client told its half and nothing in it is impossible.
fn seen(spec: &RunSpec, own: Reports, client: Option<Outcome>) -> Seen {
    let legs = spec.legs();
    let Some(Outcome { reports: theirs, clock_offset: Some(clock_offset), .. }) = client else {
        return Seen::Own { reports: own, reason: "the client did not say what it saw".to_owned() };
    };
    if (theirs.len(), own.len()) != (legs.len(), legs.len()) {
        return Seen::Own { reports: own, reason: "the client told of another run".to_owned() };
    }
    let checked =
        legs.iter().zip(&theirs).try_for_each(|(leg, report)| report.check(leg, Role::of(leg, true)));
    if let Err(what) = checked {
        return Seen::Own { reports: own, reason: format!("what the client said cannot be true: {what}") };
    }
    let both = theirs.into_iter().zip(own).zip(legs);
    let outcome = |((client, server), spec)| {
        let mut outcome = RunOutcome { spec, client, server, clock_offset };
        datagram::settle(&mut outcome);
        outcome
    };
    Seen::Both(both.map(outcome).collect())
}

fn body<T: serde::Serialize>(value: &T) -> Result<Body> {
    Body::of(value).map_err(|source| WorkloadError::Control { peer: "server".to_owned(), source })
}

fn failed(call: &str, run: Option<RunId>, error: &WorkloadError) -> Message {
    Message::Failed { call: call.to_owned(), run, reason: error.to_string() }
}
