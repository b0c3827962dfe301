//! Connections of one transaction each, on loopback and in a lab whose ports can be counted.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use haul_host::privilege;
use haul_host::probe::ports;
use haul_host::signal::{Signal, Stop};
use haul_host::veth_lab::{VethLab, VethOptions};
use haul_stats::{ByteCount, DoubtId, Metric, PerSecond, Scope};
use haul_workload::session::Session;
use haul_workload::{RunOutcome, RunSpec, Workload, readings};

use crate::serving::{Served, Serving, alone, first, move_bytes, quick, run, stopped, value};

fn crr() -> RunSpec {
    let warmup = Duration::from_millis(200);
    RunSpec { workload: Workload::Crr, nodelay: true, warmup, ..quick() }
}

/// Both ends have counted the same, flow by flow.
fn adds_up(name: &str, outcome: &RunOutcome) {
    let (client, server) = (&outcome.client, &outcome.server);
    println!("{name}: {} transactions", client.total_units());
    assert!(client.total_units() > 0, "{name}");
    for (a, b) in client.flows.iter().zip(&server.flows) {
        assert_eq!(a.total, b.total, "{name}");
    }
    assert!(client.drained && server.drained, "{name}");
}

#[test]
fn both_ends_count_the_same_connections_in_every_shape() {
    let _alone = alone();
    for address in [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), (Ipv6Addr::LOCALHOST, 0).into()] {
        let server = Served::at(address, 1);
        let mut session = server.session();
        for (flows, threads, request, response) in [
            (1, None, 1, 1),
            (2, Some(2), 1400, 1),
            (3, Some(1), 1, 14_000),
            (8, Some(2), 100_000, 1 << 20),
            (1, None, 1 << 20, 1 << 20),
            (100, Some(2), 1, 1),
        ] {
            for reset in [false, true] {
                let (request, response) = (ByteCount(request), ByteCount(response));
                let spec = RunSpec { flows, threads, request, response, reset, ..crr() };
                let name = format!("{address} {flows} flows, {request}/{response}, reset: {reset}");
                adds_up(&name, &move_bytes(&mut session, &spec));
            }
        }
        session.close().expect("close");
    }
}

#[test]
fn spinning_threads_and_a_pace_make_connections_too() {
    let server = Serving::new(1);
    let mut session = server.session();
    for (flows, spin, pace) in [
        (1, true, None),
        (3, true, None),
        (1, false, Some(PerSecond(300))),
        (5, false, Some(PerSecond(300))),
        (1, true, Some(PerSecond(300))),
    ] {
        let (warmup, window) = (Duration::from_millis(500), Duration::from_millis(600));
        let spec = RunSpec { flows, spin, pace, warmup, window, ..crr() };
        let outcome = move_bytes(&mut session, &spec);
        adds_up(&format!("{flows} flows, spin: {spin}, {pace:?}"), &outcome);
        let quiet = !readings::of(&spec, &outcome).1.iter().any(|doubt| doubt.id == DoubtId::OtherLoad);
        if let Some(pace) = pace.filter(|_| quiet && !spin) {
            let got = value(&spec, &outcome, Metric::Transactions, Scope::Client);
            assert!((got / pace.0 as f64 - 1.0).abs() < 0.15, "{got}");
        }
    }
}

#[test]
fn what_connections_used_is_told_although_they_are_gone() {
    let server = Serving::new(1);
    let mut session = server.session();
    let spec = RunSpec { rcvbuf: Some(ByteCount(32 << 10)), ..crr() };
    let outcome = run(&mut session, &spec);
    let effective = readings::effective(&spec, &outcome);
    for end in ["client", "server"] {
        assert_eq!(effective[end]["socket"]["nodelay"], true, "{effective}");
        assert_eq!(effective[end]["socket"]["cc"], "reno");
        assert_eq!(effective[end]["socket"]["rcvbuf"], 64 << 10);
    }
    assert_eq!(effective["exchange"]["closed_by"], "fin");
    let (all, _) = readings::of(&spec, &outcome);
    let again = all.iter().find(|reading| reading.metric == Metric::Retransmits).expect("named");
    assert!(again.source.contains("network namespace") && again.value.is_some(), "{again:?}");
    assert!(!all.iter().any(|reading| reading.metric == Metric::Rtt), "no connection is there to ask");
    let p50 = value(&spec, &outcome, Metric::LatencyP50, Scope::Client);
    assert!(p50 > 0.0 && p50 < 10_000.0, "{p50} µs");
}

#[test]
fn a_stop_ends_connections_that_come_and_go() {
    let server = Serving::new(1);
    let mut session = server.session();
    for flows in [1, 4] {
        let spec = RunSpec { flows, window: Duration::from_secs(30), ..crr() };
        let outcome = stopped(&mut session, &spec);
        adds_up("stopped", &outcome);
    }
}

#[test]
fn a_server_that_is_gone_ends_the_flows() {
    let server = Serving::new(1);
    let mut session = server.session();
    let stop = server.stop.clone();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        stop.request(Signal::Term);
    });
    let spec = RunSpec { window: Duration::from_secs(30), ..crr() };
    let start = Instant::now();
    let never = Stop::never().expect("stop");
    session.run(&spec, &never, &mut |_, _| {}).expect_err("the server is gone");
    killer.join().expect("killer");
    assert!(start.elapsed() < Duration::from_secs(4), "took {:?}", start.elapsed());
}

/// A lab, and a server in it; the closure runs in the client's namespace, which has so many ports to connect from.
fn in_a_lab(ports: std::ops::RangeInclusive<u16>, client: impl FnOnce(&VethLab, &mut Session) + Send) {
    let _alone = alone();
    assert!(privilege::effective_root(), "this test makes network namespaces: run it as root");
    let lab = VethLab::build(VethOptions::default()).expect("a lab");
    let listen = SocketAddr::from((lab.server_addr, 0));
    let server = lab.server.run(|| Served::at(listen, 1)).expect("run");
    lab.client
        .run(|| {
            let range = format!("{} {}", ports.start(), ports.end());
            std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", range).expect("narrow the range");
            let mut session = server.session();
            client(&lab, &mut session);
            session.close().expect("close");
        })
        .expect("run");
}

#[test]
fn a_run_that_finds_no_port_is_invalid_and_says_why_and_what_to_do() {
    in_a_lab(41_000..=41_049, |_, session| {
        let stop = Stop::never().expect("stop");
        for flows in [1, 3] {
            let spec = RunSpec { flows, window: Duration::from_secs(20), ..crr() };
            let start = Instant::now();
            let outcome = first(session.run(&spec, &stop, &mut |_, _| {}));
            let reason = readings::validity(&spec, &outcome).expect_err("50 ports cannot do");
            println!("{} connections: {reason}", outcome.client.total_units());
            for wanted in ["no local port of 41000-41049", "ip_local_port_range", "reset"] {
                assert!(reason.contains(wanted), "{reason}");
            }
            if flows == 1 {
                assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
            }
        }
    });
}

#[test]
fn a_run_that_is_near_the_end_of_its_ports_is_doubted() {
    in_a_lab(41_000..=41_299, |_, session| {
        // A port of the server's for each flow, and 180 of 300 ports of the client's used with it.
        let base = crr();
        let lifetime = base.warmup + Duration::from_millis(800);
        let pace = Some(PerSecond(64 * 180 * 1_000 / u64::try_from(lifetime.as_millis()).expect("short")));
        let spec = RunSpec { flows: 64, pace, window: Duration::from_millis(800), ..base };
        let outcome = run(session, &spec);
        let (_, doubts) = readings::of(&spec, &outcome);
        let doubt = doubts.iter().find(|doubt| doubt.id == DoubtId::PortExhaustion).expect("a doubt");
        println!("{}", doubt.text);
        assert!(doubt.text.contains("of the 300 local ports"), "{}", doubt.text);
        let seldom = RunSpec { pace: Some(PerSecond(1_000)), ..spec };
        let (_, doubts) = readings::of(&seldom, &run(session, &seldom));
        assert!(!doubts.iter().any(|doubt| doubt.id == DoubtId::PortExhaustion), "{doubts:?}");
    });
}

#[test]
fn closing_by_a_reset_leaves_no_time_wait_and_closing_in_order_leaves_it_at_the_client() {
    in_a_lab(32_768..=60_999, |lab, session| {
        let spec = RunSpec { flows: 2, reset: true, ..crr() };
        adds_up("reset", &move_bytes(session, &spec));
        assert_eq!(ports::time_wait_count().expect("count"), 0);
        let spec = RunSpec { flows: 2, ..crr() };
        let outcome = move_bytes(session, &spec);
        adds_up("in order", &outcome);
        let left = ports::time_wait_count().expect("count");
        assert!(left > 0 && left <= outcome.client.total_units(), "{left}");
        let server = lab.server.run(ports::time_wait_count).expect("run").expect("count");
        assert_eq!(server, 0, "the client closes first");
    });
}
