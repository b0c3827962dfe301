//! A server on loopback, short runs, and their readings.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use haul_host::signal::{Signal, Stop};
use haul_host::thread::{self, Tid};
use haul_stats::{Metric, Scope};
use haul_wire::{Key, Trust};
use haul_workload::server::{ServeEvent, ServeOptions, Server};
use haul_workload::session::{Dial, Session};
use haul_workload::{RunOutcome, RunSpec, readings};

/// Two CPUs carry one measurement at a time: side by side, these tests would measure each other.
pub(crate) static ALONE: Mutex<()> = Mutex::new(());

/// The right to measure: no other test does meanwhile.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A server on loopback for the length of a test.
pub(crate) struct Serving {
    served: Served,
    _alone: MutexGuard<'static, ()>,
}

impl Serving {
    pub(crate) fn new(max_sessions: u32) -> Self {
        let alone = alone();
        Self { served: Served::at((Ipv4Addr::LOCALHOST, 0).into(), max_sessions), _alone: alone }
    }
}

impl Deref for Serving {
    type Target = Served;

    fn deref(&self) -> &Served {
        &self.served
    }
}

/// A server, in the network namespace of the thread that started it.
pub(crate) struct Served {
    pub(crate) addr: SocketAddr,
    pub(crate) key: Key,
    pub(crate) stop: Stop,
    pub(crate) accepting: Tid,
    thread: Option<JoinHandle<()>>,
    pub(crate) events: Arc<Mutex<Vec<ServeEvent>>>,
}

impl Served {
    pub(crate) fn at(listen: SocketAddr, max_sessions: u32) -> Self {
        let key = Key::from_random([7; 32]);
        let options = ServeOptions {
            key: Some(key.clone()),
            allow_settings: None,
            max_sessions,
            journal: PathBuf::from("/nonexistent"),
        };
        let server = Server::bind(listen).expect("bind");
        let addr = server.local_addr().expect("address");
        let stop = Stop::never().expect("stop");
        let events: Arc<Mutex<Vec<ServeEvent>>> = Arc::default();
        let (seen, own) = (Arc::clone(&events), stop.clone());
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            tell.send(thread::current_tid()).expect("tid");
            server
                .run(options, &own, Arc::new(move |event| seen.lock().expect("events").push(event.clone())))
                .expect("serve");
        });
        let accepting = told.recv().expect("tid");
        Self { addr, key, stop, accepting, thread: Some(thread), events }
    }

    pub(crate) fn dial(&self) -> Dial {
        Dial { addr: self.addr, trust: Trust::Key(self.key.clone()), label: self.addr.to_string() }
    }

    pub(crate) fn session(&self) -> Session {
        Session::connect(&self.dial(), &Stop::never().expect("stop")).expect("connect")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.request(Signal::Term);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.expect("the server panicked");
            }
        }
    }
}

pub(crate) fn quick() -> RunSpec {
    RunSpec {
        warmup: Duration::from_millis(50),
        window: Duration::from_millis(200),
        cc: Some("reno".to_owned()),
        ..RunSpec::default()
    }
}

/// The only leg of a run.
pub(crate) fn first(outcomes: haul_workload::Result<Vec<RunOutcome>>) -> RunOutcome {
    let mut outcomes = outcomes.expect("run");
    assert_eq!(outcomes.len(), 1);
    outcomes.remove(0)
}

/// A run that must end in order, though its window may have stood still.
///
/// Seen once, by zerocopy on a machine with four times more to do than it has CPUs; why is not known. Not in fifty runs
/// since.
pub(crate) fn move_bytes(session: &mut Session, spec: &RunSpec) -> RunOutcome {
    let stop = Stop::never().expect("stop");
    let outcome = first(session.run(spec, &stop, &mut |_, _| {}));
    let faults: Vec<_> = [&outcome.client, &outcome.server]
        .into_iter()
        .flat_map(|end| end.flows.iter().filter_map(|flow| flow.fault.clone()))
        .collect();
    assert!(faults.is_empty(), "{faults:?}");
    outcome
}

/// A run that its user stops after half a second, and that must end soon after.
pub(crate) fn stopped(session: &mut Session, spec: &RunSpec) -> RunOutcome {
    let stop = Stop::never().expect("stop");
    let other = stop.clone();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        other.request(Signal::Int);
    });
    let start = Instant::now();
    let outcome = first(session.run(spec, &stop, &mut |_, _| {}));
    killer.join().expect("killer");
    assert!(start.elapsed() < Duration::from_secs(3), "took {:?}", start.elapsed());
    assert!(outcome.client.interrupted);
    outcome
}

/// A run that gives a number. What haul itself calls this machine's doing, a thread that was woken late or an end that
/// stalled, is tried again: what is tested here is not how busy the machine is.
pub(crate) fn run(session: &mut Session, spec: &RunSpec) -> RunOutcome {
    const TRIES: u32 = 4;
    let stop = Stop::never().expect("stop");
    for tried in 1.. {
        let outcome = first(session.run(spec, &stop, &mut |_, _| {}));
        match readings::validity(spec, &outcome) {
            Ok(()) => return outcome,
            Err(why) => {
                let busy = ["woken late", "an end stalled", "shorten --warmup"];
                assert!(tried < TRIES && busy.iter().any(|text| why.contains(text)), "not valid: {why}");
                println!("tried again: {why}");
            }
        }
    }
    unreachable!("the last try has returned or failed")
}

pub(crate) fn value(spec: &RunSpec, outcome: &RunOutcome, metric: Metric, scope: Scope) -> f64 {
    let (readings, _) = readings::of(spec, outcome);
    let reading =
        readings.iter().find(|r| r.metric == metric && r.scope == scope).expect("the reading is there");
    reading.value.unwrap_or_else(|| panic!("{metric} {scope}: {:?}", reading.reason)).as_f64()
}
