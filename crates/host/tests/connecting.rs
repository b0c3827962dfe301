//! Opening, accepting and closing many TCP connections, and what they leave behind.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use haul_host::privilege;
use haul_host::probe::ports;
use haul_host::socket::{self, ConnectPlan, Flags, Opening, Requested, SocketFacts};
use haul_host::thread;
use haul_host::veth_lab::{VethLab, VethOptions};
use haul_stats::ByteCount;

const BOUND: Duration = Duration::from_secs(5);

fn lab() -> VethLab {
    assert!(privilege::effective_root(), "this test makes network namespaces: run it as root");
    VethLab::build(VethOptions::default()).expect("a lab")
}

/// The server's and the client's address, by IPv4 and by IPv6.
fn addresses(lab: &VethLab) -> [(IpAddr, IpAddr); 2] {
    let six = |address: Option<IpAddr>| address.expect("this kernel has IPv6");
    [(lab.server_addr, lab.client_addr), (six(lab.server_addr6), six(lab.client_addr6))]
}

fn listen(lab: &VethLab, address: IpAddr) -> (TcpListener, SocketAddr) {
    let listening = lab.server.run(|| socket::listen((address, 0).into(), &Requested::default()));
    let listener = listening.expect("run").expect("listen");
    let target = listener.local_addr().expect("address");
    (listener, target)
}

fn narrow(first: u16, last: u16) {
    std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", format!("{first} {last}")).expect("sysctl");
    assert_eq!(ports::ephemeral_range().expect("range"), first..=last);
}

/// Whether closing the other end arrived as an end of the stream, or as a reset.
fn end_of(stream: &TcpStream) -> io::Result<usize> {
    socket::set_timeouts(stream, Some(BOUND), None).expect("bound");
    socket::recv(stream.as_fd(), &mut [0; 16], Flags::NONE)
}

#[test]
fn a_plan_opens_as_many_connections_as_asked_each_with_what_was_requested() {
    let lab = lab();
    for (server, client) in addresses(&lab) {
        let (listener, target) = listen(&lab, server);
        let requested = Requested {
            nodelay: true,
            cc: Some("reno".to_owned()),
            rcvbuf: Some(ByteCount(64 << 10)),
            ..Requested::default()
        };
        for local in [None, Some(SocketAddr::from((client, 0)))] {
            let plan = lab.client.run(|| ConnectPlan::new(target, local, &requested, Opening::default()));
            let plan = plan.expect("run").expect("plan");
            for round in 0..20_u8 {
                let stream = lab.client.run(|| plan.open()).expect("run").expect("open");
                let (accepted, peer) = socket::accept(listener.as_fd(), round % 2 == 1).expect("accept");
                assert_eq!(peer, stream.local_addr().expect("address"));
                assert_eq!(peer.ip(), client);
                let nothing = socket::recv(accepted.as_fd(), &mut [0], Flags::NONE.and(Flags::DONTWAIT));
                assert_eq!(nothing.expect_err("nothing sent").kind(), io::ErrorKind::WouldBlock);
                if round % 2 == 1 {
                    let nothing = socket::recv(accepted.as_fd(), &mut [0], Flags::NONE);
                    assert_eq!(nothing.expect_err("nonblocking").kind(), io::ErrorKind::WouldBlock);
                }
                assert_eq!(socket::send(stream.as_fd(), &[round]).expect("send"), 1);
                let mut byte = [0];
                assert!(socket::await_readable(accepted.as_fd(), BOUND).expect("poll"));
                socket::recv(accepted.as_fd(), &mut byte, Flags::PEEK).expect("peek");
                assert_eq!(byte, [round]);
                byte = [0];
                socket::recv(accepted.as_fd(), &mut byte, Flags::NONE).expect("what was looked at is there");
                assert_eq!(byte, [round]);
                let facts = SocketFacts::read(stream.as_fd(), &requested).expect("facts");
                assert_eq!((facts.nodelay, facts.cc.as_deref()), (Some(true), Some("reno")));
                assert_eq!(facts.rcvbuf, ByteCount(128 << 10));
            }
        }
    }
}

#[test]
fn no_free_port_is_the_kernels_own_error_and_time_wait_is_what_holds_them() {
    let lab = lab();
    for (server, client) in addresses(&lab) {
        let (listener, target) = listen(&lab, server);
        let (other_listener, other) = listen(&lab, server);
        lab.client
            .run(|| {
                narrow(40_000, 40_003);
                let before = ports::time_wait_count().expect("time wait");
                let plan =
                    |to, opening| ConnectPlan::new(to, None, &Requested::default(), opening).expect("plan");
                let closing = plan(target, Opening::default());
                for round in 0..4 {
                    let stream = closing.open().unwrap_or_else(|error| panic!("{round}: {error}"));
                    let (accepted, peer) = socket::accept(listener.as_fd(), false).expect("accept");
                    assert!((40_000..=40_003).contains(&peer.port()));
                    // Who closes first waits.
                    drop(stream);
                    assert_eq!(end_of(&accepted).expect("an orderly end"), 0);
                }
                let start = Instant::now();
                while ports::time_wait_count().expect("time wait") < before + 4 {
                    assert!(start.elapsed() < BOUND, "four connections were closed here first");
                    std::thread::sleep(Duration::from_millis(1));
                }
                let error = closing.open().expect_err("all four ports wait");
                assert_eq!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL), "{error}");
                let named = socket::connect(target, &Requested::default(), BOUND).expect_err("no port");
                assert!(named.to_string().contains("ip_local_port_range"), "{named}");

                // To another peer, which is another port of the server too, the same ports are free. The address of
                // this end may be given: the port is then still chosen for the peer.
                let from = ConnectPlan::new(
                    other,
                    Some((client, 0).into()),
                    &Requested::default(),
                    Opening::default(),
                );
                let from = from.expect("plan");
                let held: Vec<TcpStream> = (0..4).map(|_| from.open().expect("free for this peer")).collect();
                assert_eq!(from.open().expect_err("in use").raw_os_error(), Some(libc::EADDRNOTAVAIL));
                drop((held, other_listener));
            })
            .expect("run");
    }
}

#[test]
fn a_connection_closed_by_reset_leaves_nothing_behind_and_the_peer_sees_it() {
    let lab = lab();
    for (server, _) in addresses(&lab) {
        let (listener, target) = listen(&lab, server);
        lab.client
            .run(|| {
                narrow(41_000, 41_001);
                let opening = Opening { reset_on_close: true, ..Opening::default() };
                let plan = ConnectPlan::new(target, None, &Requested::default(), opening).expect("plan");
                for round in 0..50 {
                    // The port is free again once the reset has been sent, which is before close(2) returns.
                    let stream = plan.open().unwrap_or_else(|error| panic!("{round}: {error}"));
                    let (accepted, _) = socket::accept(listener.as_fd(), false).expect("accept");
                    drop(stream);
                    let error = end_of(&accepted).expect_err("a reset");
                    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
                }
                assert_eq!(ports::time_wait_count().expect("time wait"), 0);
                // The other end can do it too, for all its connections at once.
                socket::reset_on_close(&listener).expect("SO_LINGER");
                let stream = plan.open().expect("open");
                drop(socket::accept(listener.as_fd(), false).expect("accept"));
                assert_eq!(end_of(&stream).expect_err("a reset").kind(), io::ErrorKind::ConnectionReset);
            })
            .expect("run");
    }
}

#[test]
fn a_plan_for_a_port_of_its_own_opens_it_again_and_again() {
    let lab = lab();
    for (server, client) in addresses(&lab) {
        let (listener, target) = listen(&lab, server);
        let local = SocketAddr::from((client, 42_042));
        lab.client
            .run(|| {
                let opening = Opening { reset_on_close: true, ..Opening::default() };
                let plan =
                    ConnectPlan::new(target, Some(local), &Requested::default(), opening).expect("plan");
                for _ in 0..3 {
                    let stream = plan.open().expect("open");
                    assert_eq!(socket::accept(listener.as_fd(), false).expect("accept").1, local);
                    let error = plan.open().expect_err("the pair of addresses is in use");
                    assert_eq!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL), "{error}");
                    drop(stream);
                }
            })
            .expect("run");
    }
}

#[test]
fn a_connect_nobody_answers_is_left_under_way_after_a_nudge_or_at_once() {
    let lab = lab();
    lab.server.run(|| haul_host::link::set_up(lab.server_dev.index, false)).expect("run").expect("down");
    let target = SocketAddr::from((lab.server_addr, 9));
    lab.client
        .run(|| {
            thread::accept_nudges().expect("nudges");
            let (me, over) = (thread::current_tid(), AtomicBool::new(false));
            let plan =
                ConnectPlan::new(target, None, &Requested::default(), Opening::default()).expect("plan");
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        std::thread::sleep(Duration::from_millis(50));
                        thread::nudge(me);
                    }
                });
                let start = Instant::now();
                let under_way = plan.open().expect("under way");
                let error = socket::send(under_way.as_fd(), b"x").expect_err("nobody there");
                over.store(true, Ordering::Relaxed);
                assert_eq!(error.kind(), io::ErrorKind::Interrupted, "{error}");
                assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
            });

            let opening = Opening { nonblocking: true, ..Opening::default() };
            let plan = ConnectPlan::new(target, None, &Requested::default(), opening).expect("plan");
            let start = Instant::now();
            let under_way = plan.open().expect("under way");
            assert!(start.elapsed() < Duration::from_millis(100), "{:?}", start.elapsed());
            assert!(under_way.peer_addr().is_err(), "nobody has answered");
        })
        .expect("run");
    let refused = {
        let gone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
        gone.local_addr().expect("address")
    };
    let plan = ConnectPlan::new(refused, None, &Requested::default(), Opening::default()).expect("plan");
    assert_eq!(plan.open().expect_err("nothing listens").kind(), io::ErrorKind::ConnectionRefused);
}

#[test]
fn what_a_plan_cannot_set_is_refused_when_it_is_made_with_its_remedy() {
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let cc = Requested { cc: Some("nosuch".to_owned()), ..Requested::default() };
    let error = ConnectPlan::new(to, None, &cc, Opening::default()).expect_err("unknown").to_string();
    assert!(error.contains("congestion control to nosuch") && error.contains("this kernel has"), "{error}");
    let from = SocketAddr::from((Ipv4Addr::new(198, 18, 77, 1), 0));
    let error = ConnectPlan::new(to, Some(from), &Requested::default(), Opening::default());
    let error = error.expect_err("not ours").to_string();
    assert!(
        error.contains("cannot connect from TCP 198.18.77.1:0") && error.contains("not one of this host"),
        "{error}"
    );
}

#[test]
fn a_bounded_wait_ends_with_would_block_and_one_of_no_length_is_not_endless() {
    let listener = socket::listen((Ipv4Addr::LOCALHOST, 0).into(), &Requested::default()).expect("listen");
    let target = listener.local_addr().expect("address");
    let piece = vec![0; 64 << 10];
    for bound in [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(20)] {
        let client = socket::connect(target, &Requested::default(), BOUND).expect("connect");
        let (server, _) = socket::accept(listener.as_fd(), false).expect("accept");
        let start = Instant::now();
        socket::set_timeouts(&server, Some(bound), None).expect("bound");
        let error = socket::recv(server.as_fd(), &mut [0], Flags::NONE).expect_err("nothing comes");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(start.elapsed() >= bound && start.elapsed() < BOUND, "{bound:?}: {:?}", start.elapsed());

        socket::set_timeouts(&client, None, Some(bound)).expect("bound");
        let full = (0..10_000).find_map(|_| socket::send(client.as_fd(), &piece).err());
        assert_eq!(full.expect("full").kind(), io::ErrorKind::WouldBlock);
    }
    let client = socket::connect(target, &Requested::default(), BOUND).expect("connect");
    let error = socket::accept(client.as_fd(), false).expect_err("it does not listen");
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}
