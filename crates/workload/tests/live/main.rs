//! Real traffic between two ends of this crate: over loopback, and between the namespaces of a lab.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use haul_host::settings::Consent;
use haul_host::signal::{Signal, Stop};
use haul_host::thread;
use haul_stats::{ByteCount, Metric, Scope};
use haul_wire::{Key, Trust};
use haul_workload::server::{ServeEvent, ServeOptions, Server};
use haul_workload::session::{Dial, Session};
use haul_workload::{Direction, Payload, RunSpec, SendWith, Transport, Workload, WorkloadError, readings};

mod accounting;
mod connect;
mod datagrams;
mod exchange;
mod modes;
mod serving;

use serving::{ALONE, Serving, first, quick, run, value};

#[test]
fn both_ends_count_the_same_bytes_in_every_shape() {
    let server = Serving::new(1);
    let mut session = server.session();
    for direction in [Direction::Send, Direction::Receive] {
        for (flows, message, payload) in [
            (1, 128 << 10, Payload::Stamped),
            (1, 1, Payload::Repeat),
            (2, 64 << 10, Payload::Fresh),
            (5, 100, Payload::Stamped),
            (64, 16 << 10, Payload::Stamped),
        ] {
            // Long enough to warm up for every flow to have had its turn on two busy CPUs.
            let warmup = Duration::from_millis(300);
            let spec = RunSpec { direction, flows, message: ByteCount(message), payload, warmup, ..quick() };
            let outcome = run(&mut session, &spec);
            let (sent, received) = (outcome.sender().total_units(), outcome.receiver().total_units());
            println!("{direction:?} {flows} × {message} {payload:?}: {sent} bytes");
            assert!(received > 0);
            assert_eq!(sent, received, "{direction:?} {flows} × {message} {payload:?}");
            assert_eq!(outcome.client.flows.len(), flows as usize);
            assert!(outcome.sender().drained && outcome.receiver().drained);
            for (a, b) in outcome.client.flows.iter().zip(&outcome.server.flows) {
                assert_eq!(a.total, b.total, "flow by flow");
                assert_eq!(
                    a.socket.as_ref().map(|s| s.local.port()),
                    b.socket.as_ref().map(|s| s.peer.port()),
                    "flows are numbered alike at both ends"
                );
            }
        }
    }
    session.close().expect("close");
}

#[test]
fn a_run_leaves_no_descriptor_behind() {
    let server = Serving::new(1);
    let mut session = server.session();
    let open = || std::fs::read_dir("/proc/self/fd").expect("proc").count();
    let flows = 4;
    let small = RunSpec { flows, request: ByteCount(1), response: ByteCount(1), nodelay: true, ..quick() };
    let (transport, rr, crr) = (Transport::Udp, Workload::Rr, Workload::Crr);
    for spec in [
        RunSpec { flows, ..quick() },
        RunSpec { flows, send_with: SendWith::Splice, ..quick() },
        RunSpec { transport, cc: None, message: ByteCount(1000), ..quick() },
        RunSpec { workload: rr, ..small.clone() },
        RunSpec { workload: rr, transport, cc: None, nodelay: false, ..small.clone() },
        RunSpec { workload: crr, ..small.clone() },
    ] {
        // The first of a kind may keep something: a file that is sent again, a listening port.
        run(&mut session, &spec);
        let before = open();
        for _ in 0..3 {
            run(&mut session, &spec);
        }
        let after = open();
        println!(
            "{:?} over {:?}: {before} descriptors, {after} after three more runs",
            spec.workload, spec.transport
        );
        assert_eq!(before, after);
    }
    session.close().expect("close");
}

#[test]
fn the_accepting_thread_sleeps_while_flows_run() {
    let server = Serving::new(1);
    let mut session = server.session();
    let spec = RunSpec { flows: 2, ..quick() };
    run(&mut session, &spec);
    let before = thread::cpu_time(server.accepting).expect("cpu time").total;
    run(&mut session, &spec);
    let used = thread::cpu_time(server.accepting).expect("cpu time").total.saturating_sub(before);
    // Two data connections to accept and hand over; woken by each segment it would take a good part of a CPU.
    println!("the accepting thread used {used:?}");
    assert!(used < Duration::from_millis(5), "{used:?}");
}

#[test]
fn intervals_come_from_the_receiver_and_sum_to_its_window() {
    let server = Serving::new(1);
    let mut session = server.session();
    for direction in [Direction::Send, Direction::Receive] {
        let spec = RunSpec { direction, interval: Some(Duration::from_millis(40)), ..quick() };
        let mut shown = Vec::new();
        let stop = Stop::never().expect("stop");
        let outcome = first(session.run(&spec, &stop, &mut |_, interval| shown.push(*interval)));
        assert_eq!(
            shown,
            outcome.receiver().intervals,
            "what was shown while it ran is what is in the report"
        );
        assert!(shown.len() >= 2, "{shown:?}");
        assert_eq!(shown.iter().map(|i| i.units).sum::<u64>(), outcome.receiver().window_units());
        let sent: u64 = outcome.sender().intervals.iter().map(|i| i.units).sum();
        assert_eq!(sent, outcome.sender().window_units());
        assert!(
            outcome.sender().intervals.iter().all(|i| i.retransmits.is_some()),
            "the sender counts retransmits"
        );
    }
}

#[test]
fn effective_options_are_read_back_at_both_ends() {
    let server = Serving::new(1);
    let mut session = server.session();
    let spec = RunSpec {
        sndbuf: Some(ByteCount(64 << 20)),
        rcvbuf: Some(ByteCount(32 << 10)),
        nodelay: true,
        ..quick()
    };
    let outcome = run(&mut session, &spec);
    for end in [&outcome.client, &outcome.server] {
        let socket = end.flows[0].socket.as_ref().expect("facts");
        assert_eq!((socket.cc.as_deref(), socket.nodelay), (Some("reno"), Some(true)));
        assert!(!socket.sndbuf_autotuned && !socket.rcvbuf_autotuned);
        assert!(socket.sndbuf < ByteCount(128 << 20), "64 MiB were granted: raise what the test asks for");
        assert_eq!(socket.rcvbuf, ByteCount(64 << 10), "the kernel doubles what it is given");
    }
    let (_, doubts) = readings::of(&spec, &outcome);
    let clamped: Vec<_> = doubts.iter().filter(|d| d.id == haul_stats::DoubtId::BufferClamped).collect();
    assert_eq!(clamped.len(), 2, "one for each end: {doubts:?}");
    let free = run(&mut session, &quick());
    assert!(free.client.flows[0].socket.as_ref().expect("facts").sndbuf_autotuned);
}

#[test]
fn cost_on_a_shared_host_is_told_apart_by_thread_and_never_doubled() {
    let server = Serving::new(1);
    let mut session = server.session();
    let spec = RunSpec { window: Duration::from_millis(500), ..quick() };
    let outcome = run(&mut session, &spec);
    assert!(outcome.shared_host());
    let busy = value(&spec, &outcome, Metric::CpuBusy, Scope::SharedHost);
    let (sender, receiver) = (
        value(&spec, &outcome, Metric::ThreadCpu, Scope::Sender),
        value(&spec, &outcome, Metric::ThreadCpu, Scope::Receiver),
    );
    println!("host {busy:.3} s, sender {sender:.3} s, receiver {receiver:.3} s");
    assert!(sender > 0.01 && receiver > 0.01, "both ends cost something");
    let cpus = f64::from(outcome.client.cpu.as_ref().expect("cpu").ncpu);
    assert!(busy <= 0.52 * cpus, "more CPU time than there is");
    assert!(sender + receiver < busy + 0.1, "the threads cannot have used more than the host");
    let (readings, _) = readings::of(&spec, &outcome);
    let system: Vec<_> = readings.iter().filter(|r| r.metric == Metric::CpuBusy).map(|r| r.scope).collect();
    assert_eq!(system, [Scope::SharedHost], "the whole host is shown once");
}

#[test]
fn a_stop_in_the_window_keeps_what_was_measured_with_its_real_length() {
    let server = Serving::new(1);
    let mut session = server.session();
    let spec = RunSpec { window: Duration::from_secs(30), ..quick() };
    let stop = Stop::never().expect("stop");
    let other = stop.clone();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(400));
        other.request(Signal::Int);
    });
    let start = Instant::now();
    let outcome = first(session.run(&spec, &stop, &mut |_, _| {}));
    killer.join().expect("killer");
    assert!(start.elapsed() < Duration::from_secs(3), "took {:?}", start.elapsed());
    assert!(outcome.client.interrupted && outcome.server.interrupted);
    let window = outcome.receiver().window();
    assert!(window > Duration::from_millis(100) && window < Duration::from_secs(2), "{window:?}");
    assert!(outcome.receiver().window_units() > 0);
    assert_eq!(outcome.sender().total_units(), outcome.receiver().total_units());
    // The session is as good as new.
    run(&mut session, &quick());
}

#[test]
fn a_client_beyond_the_limit_is_told_who_holds_the_server() {
    let server = Serving::new(1);
    let first = server.session();
    let refused = Session::connect(&server.dial(), &Stop::never().expect("stop")).err().expect("refused");
    assert_eq!(refused.exit(), 4);
    let text = refused.to_string();
    assert!(text.contains("busy") && text.contains("since"), "{text}");
    first.close().expect("close");
    std::thread::sleep(Duration::from_millis(50));
    server.session().close().expect("the slot is free again");
}

#[test]
fn a_wrong_key_is_named_and_lets_nobody_in() {
    let server = Serving::new(1);
    let dial = Dial { trust: Trust::Key(Key::from_random([8; 32])), ..server.dial() };
    let refused = Session::connect(&dial, &Stop::never().expect("stop")).err().expect("refused");
    assert_eq!(refused.exit(), 4);
    assert!(refused.to_string().contains("key"), "{refused}");
    let open = Session::connect(&Dial { trust: Trust::Open, ..server.dial() }, &Stop::never().expect("stop"))
        .err()
        .expect("refused");
    assert!(open.to_string().contains("key"), "{open}");
    assert!(!server.events.lock().expect("events").iter().any(|e| matches!(e, ServeEvent::Opened { .. })));
}

#[test]
fn a_server_stopped_in_mid_run_is_a_lost_peer_with_what_was_seen() {
    let server = Serving::new(1);
    let mut session = server.session();
    let stop = Stop::never().expect("stop");
    let killer = {
        let stop = server.stop.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(400));
            stop.request(Signal::Term);
        })
    };
    let spec = RunSpec { window: Duration::from_secs(30), ..quick() };
    let start = Instant::now();
    let error = session.run(&spec, &stop, &mut |_, _| {}).expect_err("the server is gone");
    killer.join().expect("killer");
    assert!(start.elapsed() < Duration::from_secs(3));
    assert_eq!(error.exit(), 4);
    let WorkloadError::Lost { partial, reason, .. } = error else { panic!("{error}") };
    assert!(partial[0].window_units() > 0);
    assert!(reason.contains("stopped by SIGTERM"), "{reason}");
}

#[test]
fn silent_and_foreign_connections_do_not_hold_up_a_client() {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    let server = Serving::new(1);
    let silent: Vec<TcpStream> =
        (0..100).map(|_| TcpStream::connect(server.addr).expect("connect")).collect();
    for hello in [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".as_slice(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        &[0x5a; 37],
    ] {
        let mut foreign = TcpStream::connect(server.addr).expect("connect");
        foreign.write_all(hello).expect("write");
        foreign.set_read_timeout(Some(Duration::from_secs(5))).expect("timeout");
        let mut rest = Vec::new();
        // Turned away: the connection ends, in order or by a reset.
        let _ = foreign.read_to_end(&mut rest);
        assert!(rest.len() < 200, "a stranger is told next to nothing");
    }
    let start = Instant::now();
    let mut session = server.session();
    assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
    run(&mut session, &quick());
    drop(silent);
    let events = server.events.lock().expect("events");
    let turned: Vec<_> = events.iter().filter(|e| matches!(e, ServeEvent::TurnedAway { .. })).collect();
    for name in ["HTTP", "TLS", "SSH"] {
        assert!(turned.iter().any(|e| format!("{e:?}").contains(name)), "{name} is not named in {turned:?}");
    }
}

#[test]
fn the_settings_of_a_server_that_does_not_allow_it_are_not_touched() {
    let server = Serving::new(1);
    let mut session = server.session();
    assert!(!session.settings_allowed());
    let error = session.apply(&["server:nic.gro=off".to_owned()], Consent::default()).expect_err("refused");
    assert!(error.to_string().contains("--allow-settings"), "{error}");
    run(&mut session, &quick());
}

#[test]
fn two_sessions_that_overlap_say_so() {
    let server = Serving::new(2);
    let (mut a, mut b) = (server.session(), server.session());
    let spec = RunSpec { window: Duration::from_millis(600), ..quick() };
    let long = spec.clone();
    let other = std::thread::spawn(move || run(&mut b, &long));
    let outcome = run(&mut a, &spec);
    let second = other.join().expect("second");
    assert!(outcome.server.shared_server && second.server.shared_server);
    assert!(!run(&mut a, &quick()).server.shared_server);
}

#[test]
fn ipv6_carries_a_stream() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let key = Key::from_random([7; 32]);
    let options = ServeOptions {
        key: Some(key.clone()),
        allow_settings: None,
        max_sessions: 1,
        journal: PathBuf::from("/nonexistent"),
    };
    let server = Server::bind("[::1]:0".parse().expect("address")).expect("bind to ::1");
    let addr = server.local_addr().expect("address");
    assert!(matches!(addr.ip(), IpAddr::V6(_)));
    let stop = Stop::never().expect("stop");
    let own = stop.clone();
    let thread = std::thread::spawn(move || server.run(options, &own, Arc::new(|_| {})).expect("serve"));
    let dial = Dial { addr, trust: Trust::Key(key), label: "::1".to_owned() };
    let mut session = Session::connect(&dial, &Stop::never().expect("stop")).expect("connect");
    run(&mut session, &quick());
    session.close().expect("close");
    stop.request(Signal::Term);
    thread.join().expect("server");
}
