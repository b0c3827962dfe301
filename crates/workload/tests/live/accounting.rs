//! Whose CPU time, interrupts and packets a run is charged with: those of its window, at either end.

use std::time::Duration;

use haul_host::signal::{Signal, Stop};
use haul_stats::{BitRate, ByteCount, DoubtId, Metric, Scope};
use haul_workload::{Direction, EndReport, RunOutcome, RunSpec, Transport, Workload, readings};

use crate::serving::{Serving, quick, run, value};

const WINDOW: Duration = Duration::from_millis(500);

fn light() -> RunSpec {
    RunSpec { rate: Some(BitRate(50_000_000)), window: WINDOW, ..quick() }
}

fn of_threads(end: &EndReport) -> Duration {
    end.threads.iter().map(|thread| thread.cpu.expect("thread time").total).sum()
}

/// F1: a server that has worked before is charged with the window and nothing else.
#[test]
fn a_servers_figures_are_of_the_window_and_not_since_its_start() {
    let figures = |outcome: &RunOutcome| {
        let server = &outcome.server;
        let cpu = server.cpu.as_ref().expect("CPU");
        let activity = server.activity.window.as_ref().expect("activity");
        println!(
            "{:?} of threads, {:?} of the host, {:?} watched",
            of_threads(server),
            cpu.elapsed,
            activity.elapsed
        );
        // An end that is woken late sees a longer window, and says so.
        let longest = server.window() + Duration::from_millis(100);
        assert!(cpu.elapsed <= longest && activity.elapsed <= longest, "{cpu:?}");
        assert!(of_threads(server) < WINDOW / 4, "{:?} for 50 Mbit/s", of_threads(server));
    };
    let aged = Serving::new(1);
    let mut session = aged.session();
    let before = run(&mut session, &RunSpec { window: Duration::from_secs(2), ..quick() });
    let worked = of_threads(&before.server);
    assert!(worked > WINDOW / 2, "since its start it has used {worked:?} at least");
    figures(&run(&mut session, &light()));
    session.close().expect("close");
    drop(aged);

    let fresh = Serving::new(1);
    let mut session = fresh.session();
    figures(&run(&mut session, &light()));
    session.close().expect("close");
}

#[test]
fn what_the_host_did_is_told_once_for_one_kernel_and_one_device_and_by_direction_for_none() {
    let server = Serving::new(1);
    let mut session = server.session();
    let spec = RunSpec { window: WINDOW, ..quick() };
    let outcome = run(&mut session, &spec);
    let (all, _) = readings::of(&spec, &outcome);
    let scopes = |metric: Metric| -> Vec<Scope> {
        all.iter().filter(|it| it.metric == metric).map(|it| it.scope).collect()
    };
    // Both ends use the loopback device of one namespace.
    for metric in [
        Metric::Interrupts,
        Metric::InterruptsPerGb,
        Metric::InterruptsNic,
        Metric::SoftirqsNetRx,
        Metric::SoftnetDropped,
        Metric::DevicePacketsPerSecond,
        Metric::CpuBackground,
        Metric::ServiceDemandNet,
    ] {
        assert_eq!(scopes(metric), [Scope::SharedHost], "{metric}");
    }
    assert_eq!(scopes(Metric::ThreadWait), [Scope::Sender, Scope::Receiver]);
    // Two CPUs tick a hundred times a second at the least while they are busy.
    assert!(value(&spec, &outcome, Metric::Interrupts, Scope::SharedHost) > 10.0);
    // What is sent is received by the same device, each packet with no more than 64 KiB.
    let packets = value(&spec, &outcome, Metric::DevicePacketsPerSecond, Scope::SharedHost) * 0.5;
    let least = outcome.receiver().window_units() as f64 / 65_536.0;
    assert!(packets > least * 0.8, "{packets} packets for at least {least}");
    let nic = all.iter().find(|it| it.metric == Metric::InterruptsNic).expect("interrupts_nic");
    assert!(
        nic.value.is_none()
            && nic.reason.as_ref().is_some_and(|why| why.contains("lo has no interrupt line")),
        "{nic:?}"
    );
    session.close().expect("close");
}

#[test]
fn every_workload_is_watched_at_both_ends_and_one_leg_tells_it() {
    let server = Serving::new(1);
    let mut session = server.session();
    let small =
        RunSpec { request: ByteCount(1), response: ByteCount(1), nodelay: true, window: WINDOW, ..quick() };
    let (udp, rr) = (Transport::Udp, Workload::Rr);
    for spec in [
        RunSpec { window: WINDOW, ..quick() },
        RunSpec { transport: udp, cc: None, message: ByteCount(1000), window: WINDOW, ..quick() },
        RunSpec { workload: rr, ..small.clone() },
        RunSpec { workload: rr, transport: udp, cc: None, nodelay: false, ..small.clone() },
        RunSpec { workload: Workload::Crr, ..small.clone() },
        RunSpec { direction: Direction::Both, window: WINDOW, ..quick() },
    ] {
        let stop = Stop::never().expect("stop");
        let outcomes = session.run(&spec, &stop, &mut |_, _| {}).expect("run");
        for (leg, outcome) in outcomes.iter().enumerate() {
            for end in [&outcome.client, &outcome.server] {
                let (seen, why) = (end.activity.window.as_ref(), &end.activity.window_reason);
                assert_eq!(seen.is_some(), leg == 0, "{:?} {:?}: {why:?}", spec.workload, spec.transport);
                let Some(seen) = seen else { continue };
                assert_eq!(seen.net.device, "lo", "{:?}", spec.workload);
                assert!(seen.net.link.rx_packets > Some(0), "{seen:?}");
                assert!(seen.interrupts.as_ref().is_some_and(|it| it.total > 0), "{:?}", seen.absent);
            }
        }
        let (all, _) = readings::whole(&spec, &outcomes, None);
        let told = all.iter().filter(|it| it.metric == Metric::Interrupts && it.value.is_some());
        assert_eq!(told.count(), 1, "{:?} {:?}", spec.workload, spec.direction);
    }
    session.close().expect("close");
}

#[test]
fn the_background_is_looked_at_before_the_flows_start_and_is_doubted_where_it_is_much() {
    let server = Serving::new(1);
    let mut session = server.session();
    let spec = RunSpec { window: WINDOW, ..quick() };
    let stop = std::sync::atomic::AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        // Somebody else: bounded, so that a failure of the test's own thread ends.
        scope.spawn(|| {
            let start = std::time::Instant::now();
            while !stop.load(std::sync::atomic::Ordering::Relaxed)
                && start.elapsed() < Duration::from_secs(20)
            {
                std::hint::black_box(start);
            }
        });
        // An end that is woken late for the start says so in place of a figure.
        let told = (0..10).map(|_| run(&mut session, &spec)).find(|it| it.client.activity.before.is_some());
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        told
    });
    let outcome = seen.expect("ten times this end was woken late");
    let before = outcome.client.activity.before.as_ref().expect("background");
    assert!(before.elapsed >= Duration::from_millis(150), "{before:?}");
    // One CPU was spinning, and this run's own threads waited: of two CPUs that is half.
    assert!(before.busy >= before.elapsed.mul_f64(0.8), "{before:?}");
    let (all, doubts) = readings::of(&spec, &outcome);
    let doubt = doubts.iter().find(|doubt| doubt.id == DoubtId::BackgroundLoad).expect("a doubt");
    assert!(doubt.text.contains("before the flows started"), "{}", doubt.text);
    let of = |metric: Metric| {
        all.iter().find(|it| it.metric == metric && it.scope == Scope::SharedHost).expect("reading")
    };
    let (plain, net) = (of(Metric::ServiceDemand), of(Metric::ServiceDemandNet));
    let less = |net: haul_stats::Value| net.as_f64() < plain.value.expect("demand").as_f64();
    assert!(net.value.map_or_else(|| net.reason.is_some(), less), "{plain:?} {net:?}");
    assert!(net.source.contains("less the background"), "{net:?}");
    session.close().expect("close");
}

#[test]
fn a_stop_while_the_run_waits_to_start_ends_it_at_once_at_both_ends() {
    let server = Serving::new(1);
    let mut session = server.session();
    let stop = Stop::never().expect("stop");
    let other = stop.clone();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        other.request(Signal::Int);
    });
    let start = std::time::Instant::now();
    let outcome = session.run(&RunSpec { window: Duration::from_secs(20), ..quick() }, &stop, &mut |_, _| {});
    killer.join().expect("killer");
    assert!(start.elapsed() < Duration::from_secs(5), "took {:?}", start.elapsed());
    // On a machine that was slow to connect the stop came before the flows were there.
    if let Ok(outcomes) = outcome {
        for end in [&outcomes[0].client, &outcomes[0].server] {
            assert!(end.interrupted && end.window() < Duration::from_secs(3), "{end:?}");
        }
    }
    // The session goes on, or is known to be out of step: a run after it is as any other.
    assert!(session.in_step());
    run(&mut session, &quick());
    session.close().expect("close");
}
