//! The rig that touches hosts: this one through `haul-host`, the other through a session with its server.
//!
//! Everything the client does runs where the topology puts the client. A session that was lost, or whose state is in
//! doubt after a failure, is dropped and made anew at the next call; its server has put its settings back by then or will
//! do so when it notices, and the runner applies an arm's settings before every run anyway.

use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::Duration;

use haul_host::clock;
use haul_host::link::{self, Link};
use haul_host::probe::environment::Fingerprint;
use haul_host::settings::{self, Consent, End, Setting, Tuner};
use haul_host::signal::Stop;
use haul_results::record::{Environment, Fact, Facts, Interval};
use haul_stats::{Doubt, DoubtId, MonoNanos};
use haul_wire::error::printable;
use haul_wire::{Refusal, Trust, WireError};
use haul_workload::readings;
use haul_workload::report::{EndReport, IntervalReport, RunOutcome};
use haul_workload::session::Session;
use haul_workload::{RunSpec, Workload, WorkloadError};
use serde_json::json;

use crate::error::LabError;
use crate::observed;
use crate::rig::{Applied, Ending, Rig, Taken};
use crate::topology::{Target, Topology};

/// How long a link that went down for a change is left alone once it is up: switches and neighbours need to learn it
/// again, and a warm-up is too short for that.
const SETTLE: Duration = Duration::from_secs(1);

/// Two real ends.
#[expect(clippy::struct_excessive_bools, reason = "four facts that have nothing to do with each other")]
pub struct LiveRig {
    // In this order they are dropped: the device is put back and the session closed while the place still exists.
    tuner: Option<Tuner>,
    session: Option<Session>,
    /// Whether there has been a session: a server that is away for a moment is waited for then.
    redials: bool,
    /// Whether this session's server holds settings of ours.
    server_set: bool,
    device: Option<Link>,
    /// Whether the route to the server never leaves this kernel by a device.
    local_route: bool,
    /// Whether some arm sets something here: an arm that does not is measured with nobody else's settings all the same.
    reserved: bool,
    /// How long it waits in line: for a busy server, and for another haul that holds settings of this host.
    patience: Duration,
    /// What the user ends waits with.
    stop: Stop,
    topology: Topology,
}

/// Often enough to be next in line, seldom enough to be no load.
const ASK_EVERY: Duration = Duration::from_millis(500);

impl LiveRig {
    /// Connects to the server of a topology.
    ///
    /// # Errors
    /// Where no address of it answers, or it does not let this client in.
    pub fn connect(topology: Topology, stop: &Stop) -> Result<Self, LabError> {
        Self::connect_in_line(topology, stop, Duration::ZERO, &mut |_| {})
    }

    /// The same, waiting in line for up to `longest` where the server is busy, or another haul has settings of this host. Why it waits is told once.
    ///
    /// # Errors
    /// As [`LiveRig::connect`]; after `longest`, that it is busy.
    pub fn connect_in_line(
        topology: Topology,
        stop: &Stop,
        longest: Duration,
        waiting: &mut dyn FnMut(&str),
    ) -> Result<Self, LabError> {
        let mut rig = Self {
            tuner: None,
            session: None,
            redials: false,
            server_set: false,
            device: None,
            local_route: false,
            reserved: false,
            patience: longest,
            stop: stop.clone(),
            topology,
        };
        let began = clock::now();
        let until = began.after(longest);
        let mut told = false;
        loop {
            match rig.session() {
                Ok(_) => {
                    rig.redials = true;
                    if told {
                        waiting(&format!("let in after {} in line", seconds(clock::now().since(began))));
                    }
                    return Ok(rig);
                }
                Err(error) if error.is_busy() && clock::now() < until => {
                    if !told {
                        let (who, longest) = (held_by(&error), seconds(longest));
                        waiting(&format!(
                            "waiting in line for {longest} at most: {} is busy{who}",
                            rig.topology.target()
                        ));
                        told = true;
                    }
                }
                Err(error) => return Err(error),
            }
            rig.pause(ASK_EVERY, "waiting in line for the server")?;
        }
    }

    /// Waits, unless the user wants no more.
    fn pause(&self, length: Duration, why: &'static str) -> Result<(), LabError> {
        const LOOK: Duration = Duration::from_millis(20);
        let until = clock::now().after(length);
        while clock::now() < until {
            if self.stop.requested().is_some() {
                return Err(WorkloadError::Interrupted(why).into());
            }
            clock::sleep_until(until.min(clock::now().after(LOOK)));
        }
        Ok(())
    }

    /// The place it runs in.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The present session, or a new one: each address of the target in turn.
    fn session(&mut self) -> Result<&mut Session, LabError> {
        if self.session.is_none() {
            let (session, device, local) = if self.redials { self.redial()? } else { self.dial()? };
            self.server_set = false;
            self.device = Some(device);
            self.local_route = local;
            self.session = Some(session);
        }
        self.session.as_mut().ok_or_else(vanished)
    }

    /// Dials again and again for as long as a server takes to be restarted: the first refusal says nothing about the next
    /// run, and three of them in a row would end an experiment of hours.
    fn redial(&self) -> Result<(Session, Link, bool), LabError> {
        const LONGEST: Duration = Duration::from_secs(5);
        const PAUSE: Duration = Duration::from_millis(250);
        let until = clock::now().after(LONGEST);
        loop {
            match self.dial() {
                Err(LabError::Workload(WorkloadError::Unreachable { .. })) if clock::now() < until => {
                    self.pause(PAUSE, "dialling the server again")?;
                }
                dialled => return dialled,
            }
        }
    }

    fn dial(&self) -> Result<(Session, Link, bool), LabError> {
        let mut last = None;
        for dial in self.topology.dials() {
            let tried = self.topology.as_client(|| -> Result<_, LabError> {
                let session = Session::connect(dial, &self.stop)?;
                let route = link::route_to(dial.addr.ip())?;
                Ok((session, link::link_by_index(route.oif)?, route.local))
            })?;
            match tried {
                Ok(made) => return Ok(made),
                Err(error) => last = Some(self.with_the_servers_reason(error)),
            }
        }
        Err(last.unwrap_or_else(|| LabError::Setup {
            what: format!("a session with {}", self.topology.target()),
            why: "the target has no address".to_owned(),
        }))
    }

    /// A server of this process that let the connection go without a word has said why to its owner: to us.
    fn with_the_servers_reason(&self, error: LabError) -> LabError {
        let wordless =
            matches!(&error, LabError::Workload(WorkloadError::Control { .. } | WorkloadError::Lost { .. }));
        match wordless.then(|| self.topology.turned_away()).flatten() {
            Some(why) => {
                LabError::Setup { what: "a session with the server of this process".to_owned(), why }
            }
            None => error,
        }
    }

    /// Runs `work` with the session, where the client lives. A failure that leaves the session's state in doubt ends it.
    fn with_session<T: Send>(
        &mut self,
        work: impl FnOnce(&mut Session) -> Result<T, WorkloadError> + Send,
    ) -> Result<T, LabError> {
        self.session()?;
        let session = self.session.as_mut().ok_or_else(vanished)?;
        let result = self.topology.as_client(|| work(session))?;
        let in_step = session.in_step();
        if !in_step {
            self.session = None;
        }
        Ok(result?)
    }

    fn apply_here(
        &mut self,
        settings: &[Setting],
        consent: Consent,
    ) -> Result<Option<settings::Applied>, LabError> {
        if settings.is_empty() && self.tuner.is_none() && !self.reserved {
            return Ok(None);
        }
        self.session()?;
        let device = self.device.as_ref().ok_or_else(vanished)?;
        let (tuner, journal, topology) = (&mut self.tuner, self.topology.journal(), &self.topology);
        let (until, stop) = (clock::now().after(self.patience), &self.stop);
        let apply = || {
            topology.as_client(|| -> haul_host::Result<settings::Applied> {
                let tuner = match tuner {
                    Some(tuner) => tuner,
                    None => tuner.insert(Tuner::open(journal, device)?),
                };
                loop {
                    match tuner.apply(settings, consent) {
                        Err(error)
                            if error.is_held() && clock::now() < until && stop.requested().is_none() =>
                        {
                            clock::sleep_until(clock::now().after(ASK_EVERY));
                        }
                        applied => return applied,
                    }
                }
            })
        };
        // A NIC that resets for a change takes seconds, and a session that is silent for so long is lost.
        let session = self.session.as_mut();
        let applied = thread::scope(|scope| {
            let applying = scope.spawn(apply);
            if let Some(session) = session {
                session.keep_while(|| !applying.is_finished());
            }
            applying.join()
        });
        match applied {
            Ok(applied) => Ok(Some(applied??)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    fn apply_there(
        &mut self,
        settings: &[Setting],
        consent: Consent,
    ) -> Result<Option<settings::Applied>, LabError> {
        self.session()?;
        if settings.is_empty() && !self.server_set {
            return Ok(None);
        }
        let texts: Vec<String> = settings.iter().map(ToString::to_string).collect();
        self.server_set = true;
        let applied = self.with_session(|session| session.apply(&texts, consent))?;
        Ok(Some(applied))
    }
}

impl Rig for LiveRig {
    fn now(&self) -> MonoNanos {
        clock::now()
    }

    fn apply(&mut self, settings: &[Setting], consent: Consent) -> Result<Applied, LabError> {
        let of = |end: End| -> Vec<Setting> {
            let wanted = settings.iter().filter(|setting| setting.end.includes(end));
            wanted.map(|setting| setting.clone().at(end)).collect()
        };
        let (here, there) = (of(End::Client), of(End::Server));
        if *self.topology.target() == Target::Loopback && !there.is_empty() {
            return Err(LabError::Plan(
                "on loopback both ends share one device, and the client's settings are the server's: write them without \
                 'server:' or 'both:'"
                    .to_owned(),
            ));
        }
        let (mut told, mut bounced) = (Applied::default(), false);
        for (end, applied) in
            [("client", self.apply_here(&here, consent)?), ("server", self.apply_there(&there, consent)?)]
        {
            let Some(applied) = applied else { continue };
            told.side_effects
                .extend(applied.side_effects.into_iter().map(|change| format!("{end} {change}")));
            told.said.extend(applied.said.into_iter().map(|said| {
                let output = if said.output.is_empty() { "done" } else { &said.output };
                format!("{end} '{}': {output}", said.command)
            }));
            let change = |change: settings::Change| {
                let (before, after) = change.shown();
                (format!("{end} {}", change.item), format!("{before} -> {after}"))
            };
            told.in_force.extend(applied.in_force.into_iter().map(change));
            bounced |= applied.link_bounced;
        }
        if bounced {
            clock::sleep_until(clock::now().after(SETTLE));
        }
        Ok(told)
    }

    fn reserve(&mut self, settings: &[Setting]) {
        self.reserved = settings.iter().any(|setting| setting.end.includes(End::Client));
    }

    fn verify(&mut self) -> Result<(), LabError> {
        if let Some(tuner) = &mut self.tuner {
            self.topology.as_client(|| tuner.verify())??;
        }
        if self.server_set {
            self.with_session(Session::verify)?;
        }
        Ok(())
    }

    fn fingerprint(&mut self) -> Result<Environment, LabError> {
        self.session()?;
        let device = self.device.as_ref().ok_or_else(vanished)?;
        let client = self.topology.as_client(|| Fingerprint::collect(device))?;
        let server = self.with_session(Session::fingerprint)?;
        Ok(Environment { client: Some(facts(&client)), server: Some(facts(&server)) })
    }

    fn run(
        &mut self,
        spec: &RunSpec,
        stop: &Stop,
        on_interval: &mut (dyn FnMut(&Interval) + Send),
    ) -> Result<Taken, LabError> {
        // What the probe sees without the load is measured first, in a run of its own.
        let idle = match spec.probe {
            Some(_) => self.with_session(|session| session.run(&spec.idle(), stop, &mut |_, _| {}))?,
            None => Vec::new(),
        };
        let mut first = None;
        let mut pass_on = |leg: usize, report: &IntervalReport| {
            let start = *first.get_or_insert(report.start);
            if let Some(leg) = spec.legs().get(leg) {
                on_interval(&interval(leg, report, start, report.retransmits));
            }
        };
        match self.with_session(|session| session.run(spec, stop, &mut pass_on)) {
            Ok(outcomes) => Ok(taken(spec, &outcomes, &idle, stop.requested().is_some())),
            Err(LabError::Workload(WorkloadError::Lost { peer, phase, reason, partial })) => {
                match partial.first() {
                    Some(own) => Ok(half(spec, own, format!("lost the {peer} while {phase}: {reason}"))),
                    None => Err(WorkloadError::Lost { peer, phase, reason, partial }.into()),
                }
            }
            Err(error) => Err(error),
        }
    }

    fn restore(&mut self) -> Result<(), LabError> {
        let mut wrong = Vec::new();
        if let Some(tuner) = &mut self.tuner {
            match self.topology.as_client(|| tuner.restore()) {
                Ok(Ok(())) => self.tuner = None,
                Ok(Err(error)) => wrong.push(format!("client: {error}")),
                Err(error) => wrong.push(format!("client: {error}")),
            }
        }
        // Without a session there is nothing to ask: a server whose client is gone puts everything back by itself.
        if self.server_set && self.session.is_some() {
            match self.with_session(Session::restore) {
                Ok(()) => self.server_set = false,
                Err(error) => wrong.push(format!("server: {error}")),
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(LabError::Restore(wrong.join("; "))) }
    }

    fn doubts(&self) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        if self.local_route {
            let device = self.device.as_ref().map_or("lo", |device| device.name.as_str());
            let text =
                format!("the kernel delivers to {} itself, by way of {device}", self.topology.target());
            doubts.push(Doubt::new(DoubtId::SoftwareLoopback, text));
        }
        if self.topology.dials().iter().any(|dial| matches!(dial.trust, Trust::Open)) {
            doubts.push(Doubt::new(
                DoubtId::OpenServer,
                "control messages were neither encrypted nor authenticated",
            ));
        }
        doubts
    }
}

/// Who holds a busy server, as far as it says so. Its own words tell whoever does not wait what to do instead.
fn held_by(error: &LabError) -> String {
    match error {
        LabError::Workload(WorkloadError::Control {
            source: WireError::Refused { reason: Refusal::Busy { holder, since_s, limit }, .. },
            ..
        }) if !holder.is_empty() => {
            let held = if *limit == 1 {
                "its only session".to_owned()
            } else {
                format!("one of its {limit} sessions")
            };
            format!(", {} holds {held} since {since_s} s", printable(holder))
        }
        _ => String::new(),
    }
}

/// A length of time in line: `7 s`, `10 min`.
fn seconds(length: Duration) -> String {
    let seconds = length.as_millis().div_ceil(1000);
    if seconds >= 120 && seconds.is_multiple_of(60) {
        format!("{} min", seconds / 60)
    } else {
        format!("{seconds} s")
    }
}

/// What is there once a session is, and is gone with it.
fn vanished() -> LabError {
    LabError::Setup { what: "a session".to_owned(), why: "it was lost as it was made".to_owned() }
}

/// The facts of this host, seen from the device that leads out of it: that of the default route, or loopback.
///
/// # Errors
/// Where the kernel does not tell its devices.
pub fn own_facts() -> Result<Facts, LabError> {
    Ok(facts(&Fingerprint::collect(&own_device()?)))
}

/// The device through which this host reaches what is elsewhere; the loopback where it reaches nothing.
///
/// # Errors
/// Where the kernel does not tell its devices.
pub fn own_device() -> Result<Link, LabError> {
    // No packet is sent: the address (RFC 5737, for documentation) only asks for the route everything else takes.
    const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    Ok(match link::route_to(ELSEWHERE) {
        Ok(route) => link::link_by_index(route.oif)?,
        Err(_) => link::link_by_name("lo")?,
    })
}

fn facts(fingerprint: &Fingerprint) -> Facts {
    let fact = |fact: &haul_host::probe::environment::Fact| Fact {
        value: fact.value.clone(),
        reason: fact.reason.clone(),
    };
    fingerprint.iter().map(|(key, found)| (key.to_owned(), fact(found))).collect()
}

fn interval(
    leg: &RunSpec,
    report: &IntervalReport,
    window_start: MonoNanos,
    retransmits: Option<u64>,
) -> Interval {
    let seconds = report.end.since(report.start).as_secs_f64();
    let rate = if seconds > 0.0 { report.units as f64 / seconds } else { 0.0 };
    let stream = leg.workload == Workload::Stream;
    Interval {
        direction: stream.then(|| leg.direction.name().to_owned()),
        start_s: report.start.since(window_start).as_secs_f64(),
        seconds,
        bytes: stream.then_some(report.units),
        bits_per_second: stream.then_some(rate * 8.0),
        transactions: (!stream).then_some(report.units),
        transactions_per_second: (!stream).then_some(rate),
        retransmits,
        packets: report.packets,
        lost: report.lost,
    }
}

/// The slices of the window at the end that counts, with what was sent again in the same slice beside them.
fn intervals(outcome: &RunOutcome) -> Vec<Interval> {
    let (sender, counting) = (outcome.sender(), outcome.counting());
    let alike = sender.intervals.len() == counting.intervals.len();
    let again = |index: usize| if alike { sender.intervals[index].retransmits } else { None };
    let slices = counting.intervals.iter().enumerate();
    let leg = &outcome.spec;
    slices.map(|(index, report)| interval(leg, report, counting.window_start, again(index))).collect()
}

/// What both ends' reports come to. `stopped`: this process was asked to end.
pub(crate) fn taken(spec: &RunSpec, outcomes: &[RunOutcome], idle: &[RunOutcome], stopped: bool) -> Taken {
    let cut = outcomes.iter().any(|leg| leg.client.interrupted || leg.server.interrupted);
    let ending = if cut && stopped {
        Ending::Interrupted
    } else if cut {
        Ending::Invalid("the server ended the run before its time: was it stopped?".to_owned())
    } else {
        let checked = outcomes.iter().chain(idle).try_for_each(|leg| readings::validity(&leg.spec, leg));
        checked.map_or_else(Ending::Invalid, |()| Ending::Complete)
    };
    let (mut readings, mut doubts) = readings::whole(spec, outcomes, idle.first());
    let looked = observed::looked(spec, outcomes);
    readings.extend(looked.readings);
    doubts.extend(looked.doubts);
    let slices = outcomes.iter().filter(|leg| leg.spec.interval.is_some());
    Taken {
        ending,
        readings,
        doubts,
        effective: readings::in_force(outcomes),
        activity: readings::activity(outcomes),
        intervals: slices.flat_map(intervals).collect(),
        counts: looked.counts,
        profiles: looked.profiles,
    }
}

/// What this end alone has to say about a run whose other end went away.
pub(crate) fn half(spec: &RunSpec, own: &EndReport, text: String) -> Taken {
    let leg = spec.legs().into_iter().next().unwrap_or_else(|| spec.clone());
    let slices =
        own.intervals.iter().map(|report| interval(&leg, report, own.window_start, report.retransmits));
    let intervals = slices.collect();
    Taken {
        readings: readings::partial(own, &text),
        ending: Ending::Lost(text),
        doubts: Vec::new(),
        effective: json!(null),
        activity: json!(null),
        intervals,
        counts: Vec::new(),
        profiles: Vec::new(),
    }
}
