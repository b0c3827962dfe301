//! Requests and responses on real loopback traffic: both ends must count the same, and every number must be what it says.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use haul_host::signal::{Signal, Stop};
use haul_stats::{ByteCount, DoubtId, Metric, PerSecond, Scope};
use haul_workload::report::Detail;
use haul_workload::session::Session;
use haul_workload::{Probe, RunOutcome, RunSpec, Transport, Workload, WorkloadError, readings};

use crate::serving::{Served, Serving, alone, move_bytes, quick, run, stopped, value};

fn rr(transport: Transport) -> RunSpec {
    RunSpec {
        workload: Workload::Rr,
        transport,
        nodelay: true,
        cc: (transport == Transport::Tcp).then(|| "reno".to_owned()),
        // Long enough for every flow to have had its turn on two busy CPUs.
        warmup: Duration::from_millis(200),
        ..quick()
    }
}

fn doubts(spec: &RunSpec, outcome: &RunOutcome, id: DoubtId) -> bool {
    readings::of(spec, outcome).1.iter().any(|doubt| doubt.id == id)
}

/// What must hold of every run, whatever its shape.
fn adds_up(name: &str, spec: &RunSpec, outcome: &RunOutcome) {
    let (client, server) = (&outcome.client, &outcome.server);
    println!("{name}: {} transactions, {} answered", client.total_units(), server.total_units());
    assert!(client.total_units() > 0 && client.drained && server.drained, "{name}");
    assert_eq!((client.flows.len(), server.flows.len()), (spec.flows as usize, spec.flows as usize));
    for (a, b) in client.flows.iter().zip(&server.flows) {
        let agreed = if spec.transport == Transport::Tcp { a.total == b.total } else { a.total <= b.total };
        assert!(agreed, "{name}: {} and {}", a.total, b.total);
    }
    let Detail::Exchange(exchange) = &client.detail else { panic!("{name}: no times") };
    let under_way = u64::from(spec.flows) * u64::from(spec.in_flight);
    assert!(exchange.begun >= client.total_units(), "{name}");
    assert!(exchange.begun <= client.total_units() + under_way, "{name}: what was begun was waited for");
    let quiet = !doubts(spec, outcome, DoubtId::OtherLoad);
    if quiet && spec.pace.is_none() && spec.transport == Transport::Tcp {
        // So many are under way all the time: together they take as many windows. With other load, who reads the counters
        // may be held up between two of them.
        let mean = exchange.latency.mean().expect("one") * 1e-9;
        let together = mean * exchange.latency.count() as f64 / client.window().as_secs_f64();
        let share = together / under_way as f64;
        assert!((0.6..1.6).contains(&share), "{name}: {share:.3} of the time was spent waiting");
    }
}

#[test]
fn both_ends_count_the_same_transactions_in_every_shape() {
    const M: u64 = 1 << 20;
    let _alone = alone();
    let mut ran = 0;
    for address in [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), (Ipv6Addr::LOCALHOST, 0).into()] {
        let server = Served::at(address, 1);
        let mut session = server.session();
        for transport in [Transport::Tcp, Transport::Udp] {
            for (flows, threads, in_flight, request, response) in [
                (1, None, 1, 1, 1),
                (1, None, 16, 8, 8),
                (7, Some(2), 1, 1400, 1),
                (7, Some(2), 16, 100, 1000),
                (3, Some(3), 1, 14_000, 14_000),
                (2, None, 1, 1, 60_000),
                (1, None, 1, M, M),
                (1, None, 8, M, M),
                (4, Some(1), 8, M, M),
                (3, Some(1), 4, M, 1),
            ] {
                let (request, response) = (ByteCount(request), ByteCount(response));
                let spec = RunSpec { flows, threads, in_flight, request, response, ..rr(transport) };
                if transport == Transport::Udp && request.0.max(response.0) > 65_507 {
                    spec.check().expect_err("more than a datagram holds");
                    continue;
                }
                if spec.check().is_err() {
                    assert!(transport == Transport::Udp && in_flight > 1 && request.0.min(response.0) < 8);
                    continue;
                }
                let name =
                    format!("{address} {transport:?} {flows} flows × {in_flight}, {request}/{response}");
                adds_up(&name, &spec, &move_bytes(&mut session, &spec));
                ran += 1;
            }
        }
        session.close().expect("close");
    }
    assert_eq!(ran, 2 * (10 + 6), "a shape was left out");
}

#[test]
fn a_thousand_flows_share_a_few_threads() {
    let server = Serving::new(1);
    let mut session = server.session();
    for transport in [Transport::Tcp, Transport::Udp] {
        let spec = RunSpec {
            flows: 1_000,
            threads: Some(2),
            warmup: Duration::from_millis(700),
            window: Duration::from_millis(500),
            ..rr(transport)
        };
        let outcome = move_bytes(&mut session, &spec);
        adds_up(&format!("{transport:?}"), &spec, &outcome);
        assert_eq!((outcome.client.threads.len(), outcome.server.threads.len()), (2, 2));
    }
}

#[test]
fn a_small_exchange_takes_less_than_a_millisecond_and_both_ends_send_at_once() {
    let server = Serving::new(1);
    let mut session = server.session();
    let spec = RunSpec { request: ByteCount(10), response: ByteCount(10), ..rr(Transport::Tcp) };
    let outcome = run(&mut session, &spec);
    let p50 = value(&spec, &outcome, Metric::LatencyP50, Scope::Client);
    println!("p50 {p50} µs");
    assert!(p50 < 1_000.0, "{p50} µs: somebody waits for an acknowledgement");
    for end in [&outcome.client, &outcome.server] {
        assert_eq!(end.flows[0].socket.as_ref().and_then(|socket| socket.nodelay), Some(true));
    }
}

#[test]
fn a_pace_is_held_whatever_the_number_of_flows_and_its_threads_sleep() {
    let server = Serving::new(1);
    let mut session = server.session();
    for (transport, flows, in_flight, pace) in [
        (Transport::Tcp, 1, 1, 1_000),
        (Transport::Tcp, 1, 64, 1_000),
        (Transport::Tcp, 10, 1, 997),
        (Transport::Tcp, 40, 4, 2_000),
        (Transport::Udp, 1, 1, 1_000),
        (Transport::Udp, 10, 8, 997),
    ] {
        let spec = RunSpec {
            flows,
            in_flight,
            pace: Some(PerSecond(pace)),
            request: ByteCount(16),
            response: ByteCount(16),
            window: Duration::from_secs(1),
            ..rr(transport)
        };
        let outcome = move_bytes(&mut session, &spec);
        adds_up("paced", &spec, &outcome);
        let got = value(&spec, &outcome, Metric::Transactions, Scope::Client);
        let p50 = value(&spec, &outcome, Metric::LatencyP50, Scope::Client);
        println!("{transport:?} {flows} × {in_flight}: {got:.1} of {pace}/s, p50 {p50:.1} µs");
        // Within a tenth of a percent on a quiet machine, and to the transaction by the schedule, which has tests without a
        // clock; other load delays some across an edge of the window.
        if !doubts(&spec, &outcome, DoubtId::OtherLoad) {
            assert!((got / pace as f64 - 1.0).abs() < 0.02, "{got}");
            assert!(p50 < 5_000.0, "{p50} µs");
        }
        let asked = value(&spec, &outcome, Metric::RequestedTransactions, Scope::Client);
        assert!((asked - pace as f64).abs() < 0.5);
        let used = outcome.client.threads.iter().filter_map(|thread| thread.cpu).map(|cpu| cpu.total);
        let used: Duration = used.sum();
        assert!(used < Duration::from_millis(700), "a paced requester sleeps, it does not spin: {used:?}");
        let effective = readings::effective(&spec, &outcome);
        assert_eq!(effective["exchange"]["pace"]["requested"], pace);
        let from = effective["exchange"]["latency_from"].as_str().expect("text");
        assert!(from.contains("intended send time"), "{from}");
    }
}

#[test]
fn a_pace_that_cannot_be_held_is_doubted_and_so_is_what_was_not_answered() {
    let server = Serving::new(1);
    let mut session = server.session();
    let spec = RunSpec { pace: Some(PerSecond(50_000_000)), ..rr(Transport::Tcp) };
    let outcome = run(&mut session, &spec);
    assert!(doubts(&spec, &outcome, DoubtId::RateMissed));
    assert!(doubts(&spec, &outcome, DoubtId::Unanswered));
    let p50 = value(&spec, &outcome, Metric::LatencyP50, Scope::Client);
    assert!(p50 > 50_000.0, "what waits for its turn waits since it was due: {p50} µs");
    let slow = RunSpec { pace: Some(PerSecond(200)), ..rr(Transport::Tcp) };
    let outcome = run(&mut session, &slow);
    assert!(!doubts(&slow, &outcome, DoubtId::Unanswered));
}

#[test]
fn flows_that_are_seldom_due_are_under_way_all_the_same() {
    let server = Serving::new(1);
    let mut session = server.session();
    let spec = RunSpec { flows: 50, pace: Some(PerSecond(60)), ..rr(Transport::Tcp) };
    let outcome = run(&mut session, &spec);
    let overlap = value(&spec, &outcome, Metric::Overlap, Scope::Run);
    assert!(overlap > 90.0, "{overlap}");
}

#[test]
fn spinning_threads_ask_and_answer_and_are_doubted() {
    let server = Serving::new(1);
    let mut session = server.session();
    for (transport, flows, in_flight, pace) in [
        (Transport::Tcp, 1, 1, None),
        (Transport::Tcp, 1, 8, None),
        (Transport::Tcp, 4, 1, None),
        (Transport::Tcp, 1, 4, Some(PerSecond(500))),
        (Transport::Udp, 1, 1, None),
        (Transport::Udp, 3, 1, None),
    ] {
        let (request, response) = (ByteCount(8), ByteCount(8));
        let warmup = Duration::from_millis(500);
        let base = rr(transport);
        let spec = RunSpec { flows, in_flight, pace, request, response, spin: true, warmup, ..base };
        let outcome = move_bytes(&mut session, &spec);
        adds_up(&format!("{transport:?} {flows} × {in_flight} spinning"), &spec, &outcome);
        assert!(doubts(&spec, &outcome, DoubtId::Spinning));
        assert!(!doubts(&spec, &outcome, DoubtId::CpuBound), "it is said once, and by its name");
    }
}

#[test]
fn an_exchange_has_the_readings_of_one_and_no_others() {
    let server = Serving::new(1);
    let mut session = server.session();
    let spec = RunSpec { window: Duration::from_millis(400), ..rr(Transport::Tcp) };
    let outcome = run(&mut session, &spec);
    let (all, _) = readings::of(&spec, &outcome);
    let found = |metric, scope| all.iter().any(|reading| reading.metric == metric && reading.scope == scope);
    for metric in [
        Metric::Transactions,
        Metric::TransactionsWindow,
        Metric::LatencyMin,
        Metric::LatencyMean,
        Metric::LatencyP50,
        Metric::LatencyP99_99,
        Metric::LatencyMax,
        Metric::LongestStall,
        Metric::Retransmits,
        Metric::Rtt,
        Metric::ThreadCpu,
        Metric::ServiceDemandTransaction,
    ] {
        assert!(found(metric, Scope::Client), "{metric}");
    }
    assert!(found(Metric::ServiceDemandTransaction, Scope::SharedHost));
    // What a closed loop has under way at the end is nobody's loss.
    let strange =
        [Metric::Throughput, Metric::ServiceDemand, Metric::BytesWindow, Metric::Resends, Metric::Unanswered];
    assert!(!all.iter().any(|reading| strange.contains(&reading.metric)), "{all:?}");
    assert!(!all.iter().any(|reading| matches!(reading.scope, Scope::Sender | Scope::Receiver)));
    let order =
        [Metric::LatencyMin, Metric::LatencyP50, Metric::LatencyP90, Metric::LatencyP99, Metric::LatencyMax];
    let order = order.map(|metric| value(&spec, &outcome, metric, Scope::Client));
    assert!(order.is_sorted() && order[0] > 0.0, "{order:?}");
    let interval =
        readings::effective(&spec, &outcome)["exchange"]["latency_intervals_95_us"]["latency_p50"].clone();
    let (low, high) = (interval[0].as_f64().expect("low"), interval[1].as_f64().expect("high"));
    let p50 = value(&spec, &outcome, Metric::LatencyP50, Scope::Client);
    assert!((low..=high).contains(&p50), "{low} to {high} of {p50}");
    let count = value(&spec, &outcome, Metric::TransactionsWindow, Scope::Client);
    let rate = value(&spec, &outcome, Metric::Transactions, Scope::Client);
    assert!((count / outcome.client.window().as_secs_f64() - rate).abs() < 1.0);

    let udp = rr(Transport::Udp);
    let outcome = run(&mut session, &udp);
    let (all, _) = readings::of(&udp, &outcome);
    assert!(all.iter().any(|reading| reading.metric == Metric::Resends));
    assert!(!all.iter().any(|reading| reading.metric == Metric::Unanswered), "a request is always under way");
    assert!(!all.iter().any(|reading| reading.metric == Metric::Retransmits), "UDP has none");
}

#[test]
fn percentiles_of_too_few_transactions_are_absent_with_the_reason() {
    let server = Serving::new(1);
    let mut session = server.session();
    let spec =
        RunSpec { pace: Some(PerSecond(150)), window: Duration::from_millis(300), ..rr(Transport::Tcp) };
    let outcome = run(&mut session, &spec);
    let (all, _) = readings::of(&spec, &outcome);
    let p99 = all.iter().find(|reading| reading.metric == Metric::LatencyP99).expect("named");
    let reason = p99.reason.as_deref().expect("a reason");
    assert!(p99.value.is_none() && reason.contains("n too small") && reason.contains("1000"), "{reason}");
    assert!(doubts(&spec, &outcome, DoubtId::FewSamples));
    assert!(value(&spec, &outcome, Metric::LatencyP50, Scope::Client) > 0.0, "of that there are enough");
}

#[test]
fn a_stop_in_the_window_keeps_what_was_measured_and_both_ends_still_agree() {
    let server = Serving::new(1);
    let mut session = server.session();
    for transport in [Transport::Tcp, Transport::Udp] {
        for (flows, in_flight) in [(1, 1), (5, 16)] {
            let (request, response) = (ByteCount(64), ByteCount(64));
            let window = Duration::from_secs(30);
            let spec = RunSpec { flows, in_flight, request, response, window, ..rr(transport) };
            let outcome = stopped(&mut session, &spec);
            assert!(outcome.client.interrupted && outcome.server.interrupted);
            adds_up("stopped", &spec, &outcome);
        }
    }
    run(&mut session, &rr(Transport::Tcp));
}

#[test]
fn a_server_lost_in_mid_run_leaves_the_clients_own_figures() {
    let server = Serving::new(1);
    let mut session = server.session();
    let stop = server.stop.clone();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(600));
        stop.request(Signal::Term);
    });
    let spec = RunSpec { window: Duration::from_secs(30), ..rr(Transport::Tcp) };
    let start = Instant::now();
    let never = Stop::never().expect("stop");
    let error = session.run(&spec, &never, &mut |_, _| {}).expect_err("the server is gone");
    killer.join().expect("killer");
    assert!(start.elapsed() < Duration::from_secs(4));
    let WorkloadError::Lost { partial, .. } = error else { panic!("{error}") };
    let left = readings::partial(&partial[0], "the server was stopped");
    for metric in [Metric::Transactions, Metric::TransactionsWindow, Metric::LatencyP50, Metric::Window] {
        let reading = left.iter().find(|reading| reading.metric == metric && reading.scope == Scope::Client);
        assert!(reading.is_some_and(|reading| reading.value.is_some()), "{metric}: {left:?}");
    }
}

#[test]
fn intervals_count_transactions_and_sum_to_the_window() {
    let server = Serving::new(1);
    let mut session = server.session();
    let spec = RunSpec { flows: 3, interval: Some(Duration::from_millis(40)), ..rr(Transport::Tcp) };
    let outcome = run(&mut session, &spec);
    let intervals = &outcome.client.intervals;
    assert!(intervals.len() >= 2);
    assert_eq!(intervals.iter().map(|slice| slice.units).sum::<u64>(), outcome.client.window_units());
}

#[test]
fn a_probe_beside_a_stream_tells_its_latency() {
    let server = Serving::new(1);
    let mut session = server.session();
    let window = Duration::from_millis(600);
    let spec = RunSpec { probe: Some(Probe { rate: PerSecond(200) }), window, ..quick() };
    let legs = load(&mut session, &spec);
    let (all, _) = readings::whole(&spec, &legs, None);
    let p50 = all.iter().find(|reading| reading.metric == Metric::ProbeLoadedP50).expect("named");
    assert!(p50.value.is_some_and(|value| value.as_f64() > 0.0), "{:?}", p50.reason);
    assert_eq!(
        all.iter().filter(|reading| reading.metric == Metric::Throughput).count(),
        2,
        "sent, received"
    );
}

fn load(session: &mut Session, spec: &RunSpec) -> Vec<RunOutcome> {
    let stop = Stop::never().expect("stop");
    session.run(spec, &stop, &mut |_, _| {}).expect("run")
}
