//! Datagrams on real loopback traffic and through a lab: what is sent either comes or is lost, and it is said where.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::time::Duration;

use haul_host::signal::Stop;
use haul_host::veth_lab::{VethLab, VethOptions};
use haul_stats::{BitRate, ByteCount, Doubt, DoubtId, Metric, Scope, Value};
use haul_workload::datagram::Both;
use haul_workload::session::Session;
use haul_workload::{Direction, RunOutcome, RunSpec, Transport, readings};

use crate::serving::{Served, Serving, alone, first, move_bytes, quick, run, value};

/// How datagrams are handed over and taken: trains, joins, and how many in a call.
const WAYS: [(bool, bool, u32); 6] = [
    (false, false, 1),
    (false, false, 16),
    (true, false, 1),
    (true, true, 1),
    (false, true, 1),
    (false, true, 16),
];

fn udp() -> RunSpec {
    RunSpec {
        transport: Transport::Udp,
        message: ByteCount(1400),
        cc: None,
        warmup: Duration::from_millis(60),
        window: Duration::from_millis(150),
        ..quick()
    }
}

/// A count of the run, from its readings.
fn count(spec: &RunSpec, outcome: &RunOutcome, metric: Metric, scope: Scope) -> u64 {
    let (readings, _) = readings::of(spec, outcome);
    let found = readings.iter().find(|reading| reading.metric == metric && reading.scope == scope);
    match found.unwrap_or_else(|| panic!("no {metric}")).value {
        Some(Value::Int(count)) => count,
        ref other => {
            panic!("{metric} is {other:?}: {:?}", found.and_then(|reading| reading.reason.as_deref()))
        }
    }
}

fn doubt(spec: &RunSpec, outcome: &RunOutcome, id: DoubtId) -> Option<Doubt> {
    readings::of(spec, outcome).1.into_iter().find(|doubt| doubt.id == id)
}

/// What must hold of every run of datagrams, whatever became of them.
fn adds_up(name: &str, spec: &RunSpec, outcome: &RunOutcome) {
    let both = Both::of(outcome).expect("both halves");
    assert!(!both.is_contradiction(spec.message.0), "{name}: {both:?}");
    let (window, run) = (both.window(), both.run());
    assert_eq!(run.total + both.received.packets.total(), both.sent.packets.total(), "{name}: the run");
    assert_eq!(window.total + both.received.packets.window, both.sent.packets.window, "{name}: the window");
    let message = spec.message.0;
    assert_eq!(outcome.sender().total_units(), both.sent.packets.total() * message, "{name}: sent");
    assert_eq!(outcome.receiver().total_units(), both.received.packets.total() * message, "{name}: received");

    let of = |metric| count(spec, outcome, metric, Scope::Receiver);
    let sent = count(spec, outcome, Metric::PacketsSent, Scope::Sender);
    assert_eq!(sent, of(Metric::PacketsReceived) + of(Metric::Lost), "{name}");
    let parts = [Metric::LostSender, Metric::LostPath, Metric::LostReceiver].map(of);
    assert_eq!(parts.iter().sum::<u64>(), of(Metric::Lost), "{name}: {parts:?}");
    let intervals = &outcome.receiver().intervals;
    if spec.interval.is_some() {
        let packets: u64 = intervals.iter().filter_map(|slice| slice.packets).sum();
        assert_eq!(packets * message, outcome.receiver().window_units(), "{name}: intervals");
        assert_eq!(intervals.iter().filter_map(|slice| slice.lost).sum::<u64>(), of(Metric::Lost), "{name}");
    }
    let effective = readings::effective(spec, outcome);
    assert_eq!(effective["datagrams"]["message_sent_bytes"], message, "{name}: asked is sent");
}

fn lost(outcome: &RunOutcome) -> haul_workload::datagram::Lost {
    Both::of(outcome).expect("both halves").run()
}

/// A rate that sends some 50 datagrams of each flow in the window.
fn modest(spec: &RunSpec) -> BitRate {
    let bits = spec.message.0 * 8 * u64::from(spec.flows) * 50;
    BitRate(bits * 1_000 / u64::try_from(spec.window.as_millis()).expect("short"))
}

#[test]
fn what_is_sent_comes_or_is_lost_in_every_shape() {
    let alone = alone();
    let four = Served::at((Ipv4Addr::LOCALHOST, 0).into(), 1);
    let six = Served::at((Ipv6Addr::LOCALHOST, 0).into(), 1);
    let mut sessions = [four.session(), six.session()];
    let mut shape = 0;
    for direction in [Direction::Send, Direction::Receive] {
        for message in [1, 7, 8, 16, 64, 1400, 65_507] {
            for (segment, gro, batch) in WAYS {
                shape += 1;
                let message = ByteCount(message);
                let flows = [1, 5, 64][shape % 3];
                // A segment of 65,507 bytes fits loopback's packets in IPv4 only.
                let version = if segment && message.0 == 65_507 { 0 } else { shape / 2 % 2 };
                let mut spec = RunSpec { direction, message, flows, segment, gro, batch, ..udp() };
                spec.interval = (shape % 5 == 0).then_some(Duration::from_millis(30));
                spec.rate = (shape / 3 % 2 == 0).then(|| modest(&spec));
                let name = format!(
                    "{direction:?} {flows} × {message} segment {segment} gro {gro} batch {batch} IPv{} at {:?}",
                    [4, 6][version],
                    spec.rate
                );
                let outcome = move_bytes(&mut sessions[version], &spec);
                adds_up(&name, &spec, &outcome);
                let both = Both::of(&outcome).expect("both");
                let run = both.run();
                println!("{name}: {} sent, {run:?}", both.sent.packets.total());
                assert!(both.received.packets.total() > 0, "{name}");
                if both.joined_each() == 1 {
                    assert_eq!(run.path, 0, "{name}: nothing is lost between two sockets of one host");
                }
                assert_eq!((both.received.duplicates, both.received.late), (0, 0), "{name}");
                // Hellos sent again until the server was ready, which a busy machine takes a while for.
                assert!(both.received.foreign <= u64::from(flows) * 20, "{name}: {}", both.received.foreign);
                if flows == 1 && batch == 1 && !segment {
                    assert_eq!(both.received.reordered, 0, "{name}");
                }
                let held = spec.rate.is_none() || both.sent.packets.total() <= 1_000_000;
                assert!(held, "{name}: the rate was not held");
            }
        }
    }
    drop((sessions, four, six, alone));
}

#[test]
fn what_a_message_has_no_room_for_is_absent_with_the_reason() {
    let server = Serving::new(1);
    let mut session = server.session();
    for (message, ordered, timed) in
        [(7, false, false), (8, true, false), (15, true, false), (16, true, true)]
    {
        let spec = RunSpec { message: ByteCount(message), rate: Some(BitRate(2_000_000)), ..udp() };
        let outcome = run(&mut session, &spec);
        let (readings, _) = readings::of(&spec, &outcome);
        for (metric, there) in [
            (Metric::Duplicates, ordered),
            (Metric::Reordered, ordered),
            (Metric::ReorderExtent, ordered),
            (Metric::Jitter, timed),
            (Metric::Loss, true),
            (Metric::GapP50, true),
        ] {
            let reading = readings.iter().find(|reading| reading.metric == metric).expect("a reading");
            assert_eq!(reading.value.is_some(), there, "{metric} of {message} bytes: {:?}", reading.reason);
            assert_eq!(reading.reason.is_none(), there, "{metric} of {message} bytes");
        }
    }
}

#[test]
fn a_paced_flow_loses_nothing_at_its_start_and_its_intervals_sum_to_its_window() {
    let server = Serving::new(1);
    let mut session = server.session();
    for direction in [Direction::Send, Direction::Receive] {
        for (flows, message) in [(1, 1400), (5, 1400), (1, 200)] {
            let spec = RunSpec {
                direction,
                flows,
                message: ByteCount(message),
                rate: Some(BitRate(100_000_000)),
                // This machine may not let a receiver run for longer than the default buffer lasts.
                rcvbuf: Some(ByteCount(4 << 20)),
                warmup: Duration::ZERO,
                window: Duration::from_millis(600),
                interval: Some(Duration::from_millis(100)),
                ..udp()
            };
            let name = format!("{direction:?} {flows} × {message}");
            let outcome = run(&mut session, &spec);
            adds_up(&name, &spec, &outcome);
            let first = outcome.receiver().intervals[0];
            let share = value(&spec, &outcome, Metric::Throughput, Scope::Receiver) / 1e8;
            println!("{name}: {share:.3} of the rate, {:?}, first {first:?}", lost(&outcome));
            assert_eq!(first.lost, Some(0), "{name}: receivers run before the first datagram");
            assert!((0.5..1.02).contains(&share), "{name}: {share}");
            // What was sent before the receiver's window opened is not lost either.
            assert_eq!(Both::of(&outcome).expect("both").lost().warmup, 0, "{name}");
        }
    }
}

#[test]
fn a_small_receive_buffer_loses_in_the_receiver_and_nowhere_else() {
    let server = Serving::new(1);
    let mut session = server.session();
    for direction in [Direction::Send, Direction::Receive] {
        for (segment, gro) in [(false, false), (true, false), (true, true)] {
            let spec = RunSpec {
                direction,
                segment,
                gro,
                rcvbuf: Some(ByteCount(16 << 10)),
                interval: Some(Duration::from_millis(50)),
                window: Duration::from_millis(300),
                ..udp()
            };
            let name = format!("{direction:?} segment {segment} gro {gro}");
            let outcome = move_bytes(&mut session, &spec);
            adds_up(&name, &spec, &outcome);
            let (all, loss) = (lost(&outcome), value(&spec, &outcome, Metric::Loss, Scope::Receiver));
            println!("{name}: {all:?}, {loss:.1} %");
            assert!((0.0..=100.0).contains(&loss), "{loss}");
            if all.total > 0 {
                assert!(all.receiver as f64 > all.total as f64 * 0.99, "{name}: {all:?}");
                assert_eq!(all.sender, 0, "{name}: {all:?}");
            }
            if !gro {
                assert!(loss > 1.0, "{name}: 16 KiB hold a few datagrams: {loss} %");
                assert_eq!(count(&spec, &outcome, Metric::LostPath, Scope::Receiver), 0, "{name}");
                let doubt = doubt(&spec, &outcome, DoubtId::UdpLoss).expect("a doubt");
                assert!(doubt.text.contains("0 on the path"), "{}", doubt.text);
            }
        }
    }
}

/// Two hosts and a wire of this MTU, a server at one end of it; gives what `client` makes of a session from the other.
fn through_a_lab<T: Send>(
    mtu: u64,
    ipv6: bool,
    client: impl FnOnce(&VethLab, &mut Session) -> T + Send,
) -> T {
    let alone = alone();
    let lab = VethLab::build(VethOptions { mtu: ByteCount(mtu) }).expect("a lab takes root");
    let address: IpAddr = if ipv6 { lab.server_addr6.expect("IPv6") } else { lab.server_addr };
    let made = lab.server.run(|| Served::at((address, 0).into(), 1)).expect("server");
    let result = lab.client.run(|| {
        let mut session = Session::connect(&made.dial(), &Stop::never().expect("stop")).expect("connect");
        client(&lab, &mut session)
    });
    drop((made, alone));
    result.expect("client")
}

fn tc(arguments: &str) {
    let done = Command::new("tc").args(arguments.split_whitespace()).output();
    let done = done.expect("tc of iproute2 shapes this test's link: install iproute2");
    assert!(done.status.success(), "tc {arguments}: {}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn a_short_queue_at_the_sender_loses_there_and_nowhere_else() {
    for batch in [1, 16] {
        through_a_lab(1500, false, |_, session| {
            tc("qdisc add dev haul-c root tbf rate 50mbit burst 16kb limit 20kb");
            let spec = RunSpec {
                // A pace above the queue's: what it does not carry it drops.
                rate: Some(BitRate(100_000_000)),
                batch,
                window: Duration::from_millis(400),
                interval: Some(Duration::from_millis(100)),
                ..udp()
            };
            let outcome = run(session, &spec);
            adds_up("tbf", &spec, &outcome);
            let all = lost(&outcome);
            let bits = value(&spec, &outcome, Metric::Throughput, Scope::Receiver);
            println!("batch {batch}: {all:?}, {bits:.0} bit/s");
            assert!(all.total > 100, "half of it does not fit: {all:?}");
            assert_eq!((all.path, all.receiver), (0, 0), "{all:?}");
            assert!(bits < 50e6 * 1.1, "goodput is what came: {bits}");
            let sent = value(&spec, &outcome, Metric::Throughput, Scope::Sender);
            assert!(sent > bits, "the sender's own figure is another: {sent}");
            let doubt = doubt(&spec, &outcome, DoubtId::UdpLoss).expect("a doubt");
            assert!(doubt.text.contains(" 0 on the path, 0 in the receiver's host"), "{}", doubt.text);
        });
    }
}

#[test]
fn a_queue_of_the_servers_is_the_senders_where_the_server_sends() {
    // The server's device queues what the server sends: seen from a client that receives, it is the sender's; so the
    // way back is shaped and what the client sends is not touched.
    through_a_lab(1500, false, |lab, session| {
        lab.server.run(|| tc("qdisc add dev haul-s root tbf rate 50mbit burst 16kb limit 20kb")).expect("tc");
        let base = RunSpec { rate: Some(BitRate(100_000_000)), ..udp() };
        let receive = RunSpec { direction: Direction::Receive, ..base.clone() };
        let outcome = run(session, &receive);
        adds_up("receive", &receive, &outcome);
        let all = lost(&outcome);
        assert!(all.total > 50 && all.sender == all.total, "{all:?}");
        let outcome = run(session, &base);
        adds_up("send", &base, &outcome);
        let all = lost(&outcome);
        assert_eq!((all.sender, all.path), (0, 0), "{all:?}");
    });
}

#[test]
fn the_message_that_fits_comes_from_the_paths_mtu() {
    for (mtu, ipv6, fits) in
        [(1280, false, 1252), (9000, false, 8972), (1280, true, 1232), (9000, true, 8952)]
    {
        through_a_lab(mtu, ipv6, |_, session| {
            let rate = Some(BitRate(20_000_000));
            for direction in [Direction::Send, Direction::Receive] {
                let spec = RunSpec { direction, fit_message: true, rate, ..udp() };
                let stop = Stop::never().expect("stop");
                let outcome = first(session.run(&spec, &stop, &mut |_, _| {}));
                let settled = RunSpec { message: ByteCount(fits), fit_message: false, ..spec };
                adds_up("fit", &settled, &outcome);
                let effective = readings::effective(&settled, &outcome);
                assert_eq!(effective["datagrams"]["path_mtu"], mtu);
                assert_eq!(effective["datagrams"]["fragments_each"], 1);
                assert!(doubt(&settled, &outcome, DoubtId::Fragmented).is_none());

                let larger = RunSpec { message: ByteCount(fits + 1), ..settled.clone() };
                let outcome = move_bytes(session, &larger);
                adds_up("larger", &larger, &outcome);
                let doubt = doubt(&larger, &outcome, DoubtId::Fragmented).expect("a doubt");
                assert!(doubt.text.contains("2 fragments"), "{}", doubt.text);

                for refused in [
                    RunSpec { dont_fragment: Some(true), ..larger.clone() },
                    RunSpec { segment: true, rate: None, ..larger },
                ] {
                    let error =
                        session.run(&refused, &stop, &mut |_, _| {}).expect_err("refused").to_string();
                    assert!(error.contains(&format!("a --message of {fits} or less")), "{error}");
                }
                let whole = RunSpec { dont_fragment: Some(true), ..settled };
                adds_up("whole", &whole, &move_bytes(session, &whole));
            }
        });
    }
}

#[test]
fn the_fragments_of_a_large_datagram_are_counted_as_the_kernel_cuts_them() {
    for (mtu, ipv6, message) in
        [(1500, false, 65_507), (1500, true, 1453), (9000, false, 20_000), (1280, true, 60_000)]
    {
        through_a_lab(mtu, ipv6, |lab, session| {
            let counters = || {
                let read = haul_host::probe::NetCounters::read(&lab.client_dev);
                if ipv6 { read.ip6.frag_creates } else { read.ip4.frag_creates }
            };
            let before = counters().expect("FragCreates");
            let spec = RunSpec { message: ByteCount(message), rate: Some(BitRate(300_000_000)), ..udp() };
            let outcome = move_bytes(session, &spec);
            let sent = Both::of(&outcome).expect("both").sent.packets.total();
            let made = counters().expect("FragCreates") - before;
            let effective = readings::effective(&spec, &outcome);
            let each = effective["datagrams"]["fragments_each"].as_u64().expect("fragments");
            println!("{mtu} IPv6 {ipv6} {message}: {made} fragments of {sent}, {each} each");
            assert_eq!(made, sent * each);
        });
    }
}

#[test]
fn trains_that_reach_the_receiver_whole_are_said_to_be_nominal() {
    let server = Serving::new(1);
    let mut session = server.session();
    for (segment, gro, nominal) in [(true, true, true), (true, false, false), (false, true, false)] {
        let spec = RunSpec { segment, gro, rcvbuf: Some(ByteCount(4 << 20)), ..udp() };
        let outcome = move_bytes(&mut session, &spec);
        adds_up("trains", &spec, &outcome);
        let doubt = doubt(&spec, &outcome, DoubtId::GroNominal);
        assert_eq!(doubt.is_some(), nominal, "segment {segment} gro {gro}: {doubt:?}");
        let effective = readings::effective(&spec, &outcome);
        assert_eq!(effective["datagrams"]["per_call"], if segment { 46 } else { 1 });
    }
}

#[test]
fn a_rate_bounds_what_one_call_hands_over() {
    let server = Serving::new(1);
    let mut session = server.session();
    for (segment, batch) in [(true, 1), (false, 64)] {
        for (rate, most) in
            [(BitRate(10_000_000), 1), (BitRate(100_000_000), 8), (BitRate(1_000_000_000_000), 64)]
        {
            let spec = RunSpec { segment, batch, rate: Some(rate), ..udp() };
            let outcome = move_bytes(&mut session, &spec);
            let each = Both::of(&outcome).expect("both").sent.train;
            assert_eq!(each, if segment { most.min(46) } else { most }, "{rate}");
        }
    }
}

#[test]
fn both_directions_at_once_and_a_cut_keep_their_sums() {
    let server = Serving::new(1);
    let mut session = server.session();
    let spec = RunSpec { direction: Direction::Both, rate: Some(BitRate(50_000_000)), ..udp() };
    let stop = Stop::never().expect("stop");
    let outcomes = session.run(&spec, &stop, &mut |_, _| {}).expect("run");
    assert_eq!(outcomes.len(), 2);
    for (leg, outcome) in spec.legs().iter().zip(&outcomes) {
        adds_up("both", leg, outcome);
    }

    let spec = RunSpec { window: Duration::from_secs(30), rate: Some(BitRate(50_000_000)), ..udp() };
    let other = stop.clone();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(400));
        other.request(haul_host::signal::Signal::Int);
    });
    let outcome = first(session.run(&spec, &stop, &mut |_, _| {}));
    killer.join().expect("killer");
    assert!(outcome.client.interrupted);
    adds_up("cut", &spec, &outcome);
    assert!(outcome.receiver().window_units() > 0);
}

#[test]
fn a_receiver_that_gets_nothing_says_that_the_path_is_filtered() {
    let spec = udp();
    let server = Serving::new(1);
    let mut session = server.session();
    let mut outcome = run(&mut session, &spec);
    for flow in &mut outcome.server.flows {
        (flow.window, flow.total) = (0, 0);
    }
    let reason = readings::validity(&spec, &outcome).expect_err("nothing came");
    assert!(reason.contains("is the data path filtered"), "{reason}");
}
