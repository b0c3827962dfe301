//! The client's end of a session: connect once, then run after run with fresh data connections.
//!
//! The control connection stays for the whole of an experiment, so that a run costs four short messages beside its
//! warm-up and window. Both ends start a run at one instant: the client estimates the server's clock from the fastest
//! of a few round trips, and sends the start as a time on the server's clock, far enough ahead to arrive before it.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use haul_host::clock;
use haul_host::probe::environment::Fingerprint;
use haul_host::settings::{Applied, Consent};
use haul_host::signal::Stop;
use haul_host::{socket, thread};
use haul_stats::MonoNanos;
use haul_wire::session::Client;
use haul_wire::{Body, ClientSession, DataHello, FlowIndex, Message, RunId, Token, Trust};

use crate::background::{BACKGROUND, LEAD};
use crate::control::{Conversation, wire_now};
use crate::error::{Result, WorkloadError};
use crate::legs::{Flows, Legs, numbering};
use crate::protocol::{Headline, Interval, Outcome, Prepare, Prepared, Reports, Welcome};
use crate::report::{ClockOffset, EndReport, HostId, IntervalReport, Role, RunOutcome};
use crate::spec::{Hosts, Pin, Placement, RunSpec, Transport, Workload};
use crate::{connect, datagram};

/// How long a connection may take to be made, control and data alike: three retransmissions of a lost SYN.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// How long the end of a session waits for the server to put settings back: a change of a feature takes milliseconds,
/// and a NIC that resets for it a second or two.
const RESTORE_WAIT: Duration = Duration::from_secs(3);

/// Round trips the clock estimate is taken from; the fastest counts.
const PINGS: u64 = 5;

/// Least time between sending the start and the start itself: what the hosts do without the run is looked at meanwhile, and
/// then the flows are told, a wake-up and a gate ahead.
const START_MARGIN: Duration = BACKGROUND.saturating_add(LEAD);

/// Where the server is and how it is known.
#[derive(Debug, Clone)]
pub struct Dial {
    /// Its address.
    pub addr: SocketAddr,
    /// The key, or that there is none.
    pub trust: Trust,
    /// What to call it in texts: the target as the user wrote it.
    pub label: String,
}

/// An open session with a server.
pub struct Session {
    talk: Conversation<Client>,
    dial: Dial,
    token: Token,
    host: HostId,
    own: HostId,
    settings_allowed: bool,
    stop: Stop,
    in_step: bool,
    /// Whether the server's host may hold settings of this session.
    applied: bool,
    offset: ClockOffset,
    next_run: u32,
}

impl Session {
    /// Connects, proves and checks the key, and learns who the server is.
    pub fn connect(dial: &Dial, stop: &Stop) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&dial.addr, CONNECT_LIMIT).map_err(|source| {
            match stop.requested() {
                Some(_) => WorkloadError::Interrupted("connecting to the server"),
                None => WorkloadError::Unreachable { target: dial.addr, source },
            }
        })?;
        let session = ClientSession::new(wire_now(), dial.trust.clone());
        let mut talk = Conversation::new(stream, session, format!("server {}", dial.label))?;
        talk.establish(stop)?;
        let own = HostId::own();
        talk.send(&Message::Open {
            client_version: own.version.clone(),
            host: own.hostname.clone(),
            user: std::env::var("USER").unwrap_or_default(),
        })?;
        let (token, welcome) = match talk.answer(Some(stop))? {
            Message::Opened { token, body, .. } => (token, read::<Welcome>(&talk, &body)?),
            other => return Err(unexpected(&talk, &other)),
        };
        let offset = estimate_offset(&mut talk, stop)?;
        Ok(Self {
            talk,
            dial: dial.clone(),
            token,
            host: welcome.host,
            own,
            settings_allowed: welcome.settings_allowed,
            stop: stop.clone(),
            in_step: true,
            applied: false,
            offset,
            next_run: 0,
        })
    }

    /// Who the server is.
    #[must_use]
    pub fn host(&self) -> &HostId {
        &self.host
    }

    /// Whether the server changes its host's settings for this client.
    #[must_use]
    pub fn settings_allowed(&self) -> bool {
        self.settings_allowed
    }

    /// This end of the control connection: its address tells the interface that leads to the server.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        self.talk
            .socket()
            .local_addr()
            .map_err(|error| WorkloadError::os("read", "the address of the control connection", error))
    }

    /// The server's end of the control connection.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.dial.addr
    }

    /// Whether both ends agree on what comes next. After most errors they may not: the session is to be dropped then.
    #[must_use]
    pub fn in_step(&self) -> bool {
        self.in_step
    }

    /// The server's fingerprint, taken now.
    pub fn fingerprint(&mut self) -> Result<Fingerprint> {
        match self.ask(&Message::Fingerprint { peer: None })? {
            Message::FingerprintIs { body } => read(&self.talk, &body),
            other => Err(unexpected(&self.talk, &other)),
        }
    }

    /// Puts these settings into force at the server's host and no others: what an earlier call changed and this one
    /// does not name goes back to what it was.
    pub fn apply(&mut self, settings: &[String], consent: Consent) -> Result<Applied> {
        self.applied |= !settings.is_empty();
        let Consent { side_effects: allow_side_effects, global: allow_global } = consent;
        match self.ask(&Message::Settings { apply: settings.to_vec(), allow_side_effects, allow_global })? {
            Message::SettingsApplied { body } => read(&self.talk, &body),
            other => Err(unexpected(&self.talk, &other)),
        }
    }

    /// Fails where what was set at the server's host is in force no more, or was not all the time.
    pub fn verify(&mut self) -> Result<()> {
        match self.ask(&Message::VerifySettings)? {
            Message::SettingsApplied { .. } => Ok(()),
            other => Err(unexpected(&self.talk, &other)),
        }
    }

    /// Puts everything back at the server's host.
    pub fn restore(&mut self) -> Result<()> {
        match self.insist(&Message::RestoreSettings)? {
            Message::SettingsApplied { .. } => Ok(()),
            other => Err(unexpected(&self.talk, &other)),
        }
    }

    /// Runs what `spec` says, all its legs together, and gives what both ends saw of each. Intervals are passed on, with
    /// the number of their leg, as the end that counts reports them; a stop request ends the run early, and what it had
    /// measured until then is returned as interrupted.
    pub fn run(
        &mut self,
        spec: &RunSpec,
        stop: &Stop,
        on_interval: &mut dyn FnMut(usize, &IntervalReport),
    ) -> Result<Vec<RunOutcome>> {
        spec.check()?;
        let spec = self.settled(spec)?;
        let legs = spec.legs();
        let run = RunId(self.next_run);
        self.next_run += 1;
        let answer = self.ask(&Message::Prepare {
            run,
            flows: legs.iter().map(RunSpec::connections).sum(),
            lifetime_ms: u64::try_from(spec.lifetime().as_millis()).unwrap_or(u64::MAX),
            body: body(&Prepare { spec: spec.clone() })?,
        })?;
        let Message::Prepared { body: prepared, .. } = answer else {
            return Err(unexpected(&self.talk, &answer));
        };
        let ports = read::<Prepared>(&self.talk, &prepared)?.ports;
        let flows = match self.connect_flows(&legs, &ports, run) {
            Ok(flows) => flows,
            Err(error) => {
                // The server waits for flows that will not come: end the run, keep the session for the next.
                self.talk.send(&Message::Stop { run })?;
                return Err(error);
            }
        };
        self.talk.watch(stop.as_fd())?;
        let ready = self.await_ready(run, stop, &legs, &flows);
        self.talk.unwatch(stop.as_fd());
        if let Err(error) = ready {
            self.in_step &= matches!(
                error,
                WorkloadError::Peer { .. } | WorkloadError::Interrupted(_) | WorkloadError::Invalid(_)
            );
            return Err(error);
        }
        let mut own = match Legs::prepare(&legs, true, flows, &self.own) {
            Ok(own) => own,
            Err(error) => {
                self.talk.send(&Message::Stop { run })?;
                return Err(error);
            }
        };
        let driven = self.drive(&legs, run, &mut own, stop, on_interval);
        // The server has said what it could not do, or knows that the run is off: both ends know where they stand.
        let known = matches!(driven, Ok(_) | Err(WorkloadError::Peer { .. } | WorkloadError::Interrupted(_)));
        self.in_step &= known;
        let clock_offset = self.offset;
        match driven {
            Ok(theirs) => {
                let ours = own.reports();
                if let Some(first) = ours.first() {
                    let headline = Headline::of(first);
                    let reports = ours.iter().map(EndReport::without_profile).collect();
                    let said = Outcome { headline, reports, clock_offset: Some(clock_offset) };
                    // For its log alone: a server that is gone meanwhile is found out by whoever asks it next.
                    let _ = self.talk.send(&Message::Outcome { body: body(&said)? });
                }
                let both = ours.into_iter().zip(theirs).zip(legs);
                let outcome = |((client, server), spec)| {
                    let mut outcome = RunOutcome { spec, client, server, clock_offset };
                    datagram::settle(&mut outcome);
                    outcome
                };
                Ok(both.map(outcome).collect())
            }
            Err(WorkloadError::Lost { peer, reason, .. }) => Err(WorkloadError::Lost {
                peer,
                phase: "the run was under way",
                reason,
                partial: own.reports(),
            }),
            Err(error) => Err(error),
        }
    }

    /// The specification with what only this end can find out before the run.
    fn settled(&self, spec: &RunSpec) -> Result<RunSpec> {
        let mut spec = spec.clone();
        if spec.fit_message {
            spec.message = datagram::door::fitting(self.dial.addr)?;
            spec.fit_message = false;
            spec.check()?;
        }
        // On one kernel a flow's two threads pair up by themselves once both ends have a thread on each CPU: flows are
        // dealt out alike. Between hosts each end goes by where packets arrive.
        let shared = self.own.boot_id.is_some() && self.own.boot_id == self.host.boot_id;
        if shared {
            spec.observe.hosts = Hosts::Client;
        }
        if spec.placement == Placement::Pair && shared {
            let cpus = thread::affinity_of_current()?;
            spec.threads = u32::try_from(cpus.cpus().len()).ok();
            spec.pin = Pin { client: Some(cpus.clone()), server: Some(cpus) };
            spec.placement = Placement::Free;
        }
        Ok(spec)
    }

    /// Keeps the session alive while something else takes its time: a server that hears nothing for eight seconds takes its
    /// client for lost. What fails here shows in the next call.
    pub fn keep_while(&mut self, mut busy: impl FnMut() -> bool) {
        const LOOK: Duration = Duration::from_millis(1);
        while busy() {
            if self.talk.pump(Some(clock::now().after(LOOK))).is_err() {
                self.in_step = false;
                return;
            }
        }
    }

    /// Ends the session in order, and waits for the server to say that everything is as it was. Dropping the session takes
    /// leave as well, without the wait.
    pub fn close(mut self) -> Result<()> {
        match self.insist(&Message::Close)? {
            Message::Closed { reason: None } => Ok(()),
            other => Err(unexpected(&self.talk, &other)),
        }
    }

    /// The flows of every leg. Those of UDP have not said yet which they are.
    fn connect_flows(&self, legs: &[RunSpec], ports: &[Vec<u16>], run: RunId) -> Result<Vec<Flows>> {
        let local = self.local_addr()?.ip();
        let mut all = Vec::with_capacity(legs.len());
        for ((index, leg), numbers) in legs.iter().enumerate().zip(numbering(legs)) {
            let requested = leg.sockets(true);
            let flows: Result<Flows> = match (leg.workload, leg.transport) {
                (Workload::Crr, _) => {
                    let ports = ports.get(index).map_or(&[][..], Vec::as_slice);
                    connect::flows(leg, self.dial.addr.ip(), ports)
                }
                (_, Transport::Udp) => {
                    numbers.map(|_| datagram::door::socket(local, self.dial.addr, &requested)).collect()
                }
                (_, Transport::Tcp) => numbers
                    .map(|flow| {
                        let mut stream = socket::connect(self.dial.addr, &requested, CONNECT_LIMIT)?;
                        stream.write_all(&self.hello(run, flow).encode()).map_err(|error| {
                            WorkloadError::os("open", format!("data connection {flow}"), error)
                        })?;
                        Ok(stream)
                    })
                    .collect(),
            };
            all.push(flows?);
        }
        Ok(all)
    }

    fn hello(&self, run: RunId, flow: u32) -> DataHello {
        DataHello { token: self.token, run, flow: FlowIndex(flow) }
    }

    /// The UDP flows of a run, by number: each has to say which it is.
    fn knockers(legs: &[RunSpec], flows: &[Flows]) -> Vec<(u32, Arc<OwnedFd>)> {
        let legs = legs.iter().zip(flows).zip(numbering(legs));
        let udp = legs.filter(|((leg, _), _)| leg.transport == Transport::Udp);
        udp.flat_map(|((_, flows), numbers)| numbers.zip(flows.sockets.iter().cloned())).collect()
    }

    /// Has the next few flows say which they are; when to have the next do so. A socket that has no room now is tried again
    /// in its turn.
    fn knock(
        &self,
        run: RunId,
        flows: &[(u32, Arc<OwnedFd>)],
        turn: &mut usize,
    ) -> Result<Option<MonoNanos>> {
        let few = flows.iter().skip(*turn).take(datagram::door::AT_ONCE);
        for (number, socket) in few {
            *turn += 1;
            datagram::door::knock(socket, &self.hello(run, *number))
                .map_err(|error| WorkloadError::os("send", "the first datagram of a flow", error))?;
        }
        let round = *turn == flows.len();
        if round {
            *turn = 0;
        }
        let pause = if round { datagram::door::AGAIN } else { datagram::door::BETWEEN };
        Ok((!flows.is_empty()).then(|| clock::now().after(pause)))
    }

    /// From all flows connected to the server's reports.
    fn drive(
        &mut self,
        specs: &[RunSpec],
        run: RunId,
        legs: &mut Legs,
        stop: &Stop,
        on_interval: &mut dyn FnMut(usize, &IntervalReport),
    ) -> Result<Reports> {
        self.talk.watch(stop.as_fd())?;
        let at = clock::now().after(START_MARGIN.max(self.offset.error * 4));
        legs.start(at);
        self.talk.send(&Message::Start {
            run,
            at_ns: at.0.saturating_add_signed(self.offset.server_minus_client_ns),
        })?;
        legs.bells().try_for_each(|bell| self.talk.watch(bell))?;
        let (mut stopped, mut started, mut over) = (false, false, false);
        // Before the server has said that it heard the start, it may not be asked for its half.
        while !(over && started) {
            self.talk.pump(legs.wake_at())?;
            if stop.requested().is_some() && !stopped {
                stopped = true;
                // The request stays readable: watching on would spin.
                self.talk.unwatch(stop.as_fd());
                self.talk.send(&Message::Stop { run })?;
                legs.cut();
            }
            for (leg, interval) in legs.tick() {
                on_interval(leg, &interval);
            }
            while let Some(message) = self.talk.next() {
                match message {
                    Message::Started { .. } => started = true,
                    Message::Interval { body, .. } => self.pass_on(&body, on_interval)?,
                    other => return Err(unexpected(&self.talk, &other)),
                }
            }
            over = legs.is_over();
        }
        legs.bells().for_each(|bell| self.talk.unwatch(bell));
        if !stopped {
            self.talk.unwatch(stop.as_fd());
        }
        self.talk.send(&Message::Collect { run })?;
        loop {
            match self.talk.answer(None)? {
                Message::Interval { body, .. } => self.pass_on(&body, on_interval)?,
                Message::Report { body, .. } => {
                    let reports: Reports = read(&self.talk, &body)?;
                    return checked(specs, &reports).map(|()| reports).map_err(|what| WorkloadError::Peer {
                        peer: self.talk.peer().to_owned(),
                        call: "give a report that can be true".to_owned(),
                        reason: what,
                    });
                }
                other => return Err(unexpected(&self.talk, &other)),
            }
        }
    }

    fn pass_on(&self, body: &Body, to: &mut dyn FnMut(usize, &IntervalReport)) -> Result<()> {
        let Interval { leg, interval } = read(&self.talk, body)?;
        to(leg, &interval);
        Ok(())
    }

    /// Waits until the server has all the flows.
    fn await_ready(&mut self, run: RunId, stop: &Stop, legs: &[RunSpec], flows: &[Flows]) -> Result<()> {
        /// How long the first datagrams may take, all of them lost again and again: half of what the server waits.
        const HEARD_WITHIN: Duration = Duration::from_secs(5);
        let (flows, mut turn) = (Self::knockers(legs, flows), 0);
        let mut again = self.knock(run, &flows, &mut turn)?;
        let until = clock::now().after(HEARD_WITHIN);
        loop {
            match self.talk.next() {
                Some(Message::Ready { .. }) => return Ok(()),
                Some(other) => return Err(unexpected(&self.talk, &other)),
                None if stop.requested().is_some() => {
                    self.talk.send(&Message::Stop { run })?;
                    return Err(WorkloadError::Interrupted("the flows were being connected"));
                }
                None => self.talk.pump(again)?,
            }
            if again.is_some() && clock::now() >= until {
                self.talk.send(&Message::Stop { run })?;
                return Err(WorkloadError::Invalid(format!(
                    "the server has not had the first datagram of every one of {} flows within {HEARD_WITHIN:?}: is UDP to \
                     its port {} filtered on the way? (control and data use the same port)",
                    flows.len(),
                    self.dial.addr.port()
                )));
            }
            if again.is_some_and(|again| clock::now() >= again) {
                again = self.knock(run, &flows, &mut turn)?;
            }
        }
    }

    /// A question and its answer, which the user need not wait for.
    fn ask(&mut self, message: &Message) -> Result<Message> {
        let stop = self.stop.clone();
        self.exchange(message, Some(&stop))
    }

    /// A question whose answer is waited for also after ^C: it is about putting things back.
    fn insist(&mut self, message: &Message) -> Result<Message> {
        self.exchange(message, None)
    }

    fn exchange(&mut self, message: &Message, stop: Option<&Stop>) -> Result<Message> {
        let answer = self.talk.send(message).and_then(|()| self.talk.answer(stop));
        self.in_step &= answer.is_ok();
        answer
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // After an error, or a close, the ladder has no place for it.
        if self.talk.send(&Message::Close).is_ok() {
            self.talk.finish();
        }
        if self.applied {
            // The server closes its side once everything is as it was: whoever looks at its host next finds it so.
            self.talk.await_end(RESTORE_WAIT);
        }
    }
}

/// Whether the server's half of each leg is there and can be true.
fn checked(legs: &[RunSpec], reports: &Reports) -> std::result::Result<(), String> {
    if reports.len() != legs.len() {
        return Err(format!("it reports on {} legs of {}", reports.len(), legs.len()));
    }
    legs.iter().zip(reports).try_for_each(|(leg, report)| report.check(leg, Role::of(leg, false)))
}

fn body<T: serde::Serialize>(value: &T) -> Result<Body> {
    Body::of(value).map_err(|source| WorkloadError::Control { peer: "client".to_owned(), source })
}

fn read<T: serde::de::DeserializeOwned>(talk: &Conversation<Client>, body: &Body) -> Result<T> {
    body.read().map_err(|source| WorkloadError::Control { peer: talk.peer().to_owned(), source })
}

/// The error that an answer of another kind stands for.
fn unexpected(talk: &Conversation<Client>, message: &Message) -> WorkloadError {
    let peer = talk.peer().to_owned();
    match message {
        Message::Failed { call, reason, .. } => {
            WorkloadError::Peer { peer, call: call.clone(), reason: reason.clone() }
        }
        Message::Closed { reason } => WorkloadError::Lost {
            peer,
            phase: "in the session",
            reason: reason.clone().unwrap_or_else(|| "it closed the session".to_owned()),
            partial: Vec::new(),
        },
        other => WorkloadError::Peer {
            peer,
            call: "answer in order".to_owned(),
            reason: format!("it said '{}'", other.kind()),
        },
    }
}

/// Cristian's method: the offset from the round trip with the least room for error (Distributed Computing 3, 1989).
fn estimate_offset(talk: &mut Conversation<Client>, stop: &Stop) -> Result<ClockOffset> {
    let mut best: Option<ClockOffset> = None;
    for id in 0..PINGS {
        let sent = clock::now();
        talk.send(&Message::Ping { id })?;
        let server_ns = match talk.answer(Some(stop))? {
            Message::Pong { server_ns, .. } => server_ns,
            other => return Err(unexpected(talk, &other)),
        };
        let trip = clock::now().since(sent);
        let middle = sent.after(trip / 2);
        let error = trip / 2;
        if best.is_none_or(|best| error < best.error) {
            best =
                Some(ClockOffset { server_minus_client_ns: difference(MonoNanos(server_ns), middle), error });
        }
    }
    best.ok_or(WorkloadError::Slow { what: "the server's clock", after: Duration::ZERO })
}

/// `a − b`, clamped to what a boot can be away from another: 292 years.
fn difference(a: MonoNanos, b: MonoNanos) -> i64 {
    i64::try_from(i128::from(a.0) - i128::from(b.0)).unwrap_or(if a > b { i64::MAX } else { i64::MIN })
}
