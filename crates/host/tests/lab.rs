//! The veth lab, its links and namespaces, as root. Every test here fails where it cannot run.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use haul_host::link;
use haul_host::netns::Netns;
use haul_host::privilege;
use haul_host::socket::{self, Requested, TcpFacts};
use haul_host::veth_lab::{VethLab, VethOptions};
use haul_stats::ByteCount;

const BOUND: Duration = Duration::from_secs(5);

fn lab() -> VethLab {
    assert!(
        privilege::effective_root(),
        "this test makes network namespaces: run it as root (or see lab_processes)"
    );
    VethLab::build(VethOptions::default()).expect("a lab")
}

/// Sends "ping" from the client to the server's `address` and "pong" back.
fn exchange(lab: &VethLab, address: IpAddr) -> (TcpStream, TcpStream) {
    let plain = Requested::default();
    let listener =
        lab.server.run(|| socket::listen((address, 0).into(), &plain)).expect("run").expect("listen");
    let target = listener.local_addr().expect("address");
    let mut client =
        lab.client.run(|| socket::connect(target, &plain, BOUND)).expect("run").expect("connect");
    let (mut server, _) = listener.accept().expect("accept");
    for end in [&client, &server] {
        end.set_read_timeout(Some(BOUND)).expect("bound");
    }
    let mut word = [0; 4];
    client.write_all(b"ping").expect("write");
    server.read_exact(&mut word).expect("read");
    assert_eq!(&word, b"ping");
    server.write_all(b"pong").expect("write");
    client.read_exact(&mut word).expect("read");
    assert_eq!(&word, b"pong");
    (client, server)
}

#[test]
fn a_lab_carries_ipv4_and_ipv6_and_is_built_in_a_tenth_of_a_second() {
    let times: Vec<Duration> = (0..5)
        .map(|_| {
            let start = Instant::now();
            let lab = lab();
            let built = start.elapsed();
            exchange(&lab, lab.server_addr);
            exchange(&lab, lab.server_addr6.expect("this kernel has IPv6"));
            built
        })
        .collect();
    let best = times.iter().min().expect("five labs");
    println!("labs built in {times:?}");
    assert!(*best < Duration::from_millis(100), "the fastest of five labs took {best:?}");
}

#[test]
fn two_labs_at_once_do_not_meet() {
    let (first, second) = (lab(), lab());
    let plain = Requested::default();
    let listener = first
        .server
        .run(|| socket::listen((first.server_addr, 0).into(), &plain))
        .expect("run")
        .expect("listen");
    let target = listener.local_addr().expect("address");
    let refused =
        second.client.run(|| socket::connect(target, &plain, BOUND)).expect("run").expect_err("no listener");
    assert_eq!(refused.errno(), Some(libc::ECONNREFUSED), "{refused}");
    exchange(&first, first.server_addr);
    exchange(&second, second.server_addr);
    let ids = [&first.client, &first.server, &second.client, &second.server].map(Netns::id);
    for (at, id) in ids.iter().enumerate() {
        assert!(!ids[..at].contains(id), "{ids:?}");
    }
}

#[test]
fn a_dropped_lab_leaves_nothing() {
    let host = Netns::current().expect("host").id();
    let names = || link::links().expect("links").into_iter().map(|link| link.name).collect::<Vec<_>>();
    let before = names();
    // A wire from the lab to a namespace that stays: it falls with the lab's namespace, which shows that the kernel has
    // removed that one.
    let watch = Netns::create().expect("watch");
    let lab = lab();
    lab.server
        .run(|| link::create_veth("haul-w", "haul-w", &watch, ByteCount(1500)))
        .expect("run")
        .expect("wire");
    exchange(&lab, lab.server_addr);
    assert_eq!(names(), before, "a lab must not show on the host");
    drop(lab);
    let start = Instant::now();
    while watch.run(|| link::link_by_name("haul-w")).expect("run").is_ok() {
        assert!(start.elapsed() < BOUND, "the lab's namespace is still there {BOUND:?} after the drop");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(names(), before);
    assert_eq!(Netns::current().expect("host").id(), host, "the test's own thread must not have moved");
}

#[test]
fn the_mtu_asked_for_is_that_of_both_ends() {
    for mtu in [ByteCount(1500), ByteCount(9000), ByteCount(65535)] {
        assert!(privilege::effective_root(), "run as root");
        let lab = VethLab::build(VethOptions { mtu }).expect("lab");
        assert_eq!([u64::from(lab.client_dev.mtu), u64::from(lab.server_dev.mtu)], [mtu.0; 2]);
    }
    for mtu in [ByteCount(17), ByteCount(1 << 40)] {
        VethLab::build(VethOptions { mtu }).expect_err("not an MTU");
    }
}

#[test]
fn a_device_is_found_by_name_index_and_address_and_a_route_tells_whether_it_is_local() {
    let lab = lab();
    lab.client
        .run(|| {
            let by_name = link::link_by_name("haul-c").expect("by name");
            assert_eq!(by_name, lab.client_dev);
            assert!(by_name.running && by_name.mac.len() == 17, "{by_name:?}");
            assert_eq!(link::link_by_index(by_name.index).expect("by index"), by_name);
            for address in [Some(lab.client_addr), lab.client_addr6].into_iter().flatten() {
                assert_eq!(link::link_by_addr(address).expect("by address"), by_name);
            }
            assert_eq!(
                link::links().expect("links").iter().map(|link| link.name.as_str()).collect::<Vec<_>>(),
                ["lo", "haul-c"]
            );

            for (to, from) in [(lab.server_addr, lab.client_addr)]
                .into_iter()
                .chain(lab.server_addr6.into_iter().zip(lab.client_addr6))
            {
                let out = link::route_to(to).expect("route");
                assert_eq!((out.oif, out.local, out.source), (by_name.index, false, Some(from)));
                let own = link::route_to(from).expect("route");
                assert!(own.local, "an own address is software loopback: {own:?}");
            }
            assert!(link::route_to(Ipv4Addr::LOCALHOST.into()).expect("route").local);

            let nowhere =
                link::route_to(Ipv4Addr::new(192, 0, 2, 1).into()).expect_err("no route").to_string();
            assert!(nowhere.contains("cannot find the route to 192.0.2.1"), "{nowhere}");
            let missing = link::link_by_name("haul-x").expect_err("no device").to_string();
            assert_eq!(
                missing,
                "device haul-x not found on this host; this network namespace has lo, haul-c"
            );
            let foreign = link::link_by_addr(lab.server_addr).expect_err("the other end's").to_string();
            assert!(foreign.contains("198.18.0.2"), "{foreign}");
        })
        .expect("run");
}

#[test]
fn carrier_changes_and_the_end_of_a_wait_for_it_are_seen() {
    let lab = lab();
    let before = lab.client_dev.carrier_changes.expect("counted");
    let set = |up| lab.server.run(|| link::set_up(lab.server_dev.index, up)).expect("run").expect("set");
    set(false);
    lab.client
        .run(|| {
            let error = link::wait_for_carrier(lab.client_dev.index, Duration::from_millis(50))
                .expect_err("no carrier");
            assert!(
                error.to_string().contains("wait for the carrier of device haul-c: not done after 50 ms"),
                "{error}"
            );
        })
        .expect("run");
    set(true);
    let after = lab
        .client
        .run(|| link::wait_for_carrier(lab.client_dev.index, BOUND))
        .expect("run")
        .expect("carrier");
    assert!(after.carrier_changes.expect("counted") >= before + 2, "{after:?}");
}

#[test]
fn deleting_one_end_of_a_wire_takes_the_other() {
    let lab = lab();
    lab.client.run(|| link::set_mtu(lab.client_dev.index, ByteCount(1400))).expect("run").expect("MTU");
    lab.client.run(|| link::delete(lab.client_dev.index)).expect("run").expect("delete");
    let left = lab.server.run(link::links).expect("run").expect("links");
    assert_eq!(left.iter().map(|link| link.name.as_str()).collect::<Vec<_>>(), ["lo"]);
}

#[test]
fn the_sender_counts_what_it_sent_again() {
    let lab = lab();
    let (mut client, server) = exchange(&lab, lab.server_addr6.expect("this kernel has IPv6"));
    let retransmits = |end: &TcpStream| TcpFacts::read(end.as_fd()).expect("facts").retransmits_total;
    assert_eq!(retransmits(&client), Some(0));
    // The loss must be at the other end: what this end's own device drops, TCP does not count as sent.
    let deaf = || std::fs::write("/proc/sys/net/ipv6/conf/haul-s/disable_ipv6", "1");
    lab.server.run(deaf).expect("run").expect("disable");
    client.write_all(&[0; 1000]).expect("write");
    let start = Instant::now();
    while retransmits(&client) == Some(0) {
        assert!(start.elapsed() < BOUND, "nothing was sent again within {BOUND:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(retransmits(&server), Some(0), "the receiver sent nothing twice");
    assert_eq!(TcpFacts::read(server.as_fd()).expect("facts").bytes_received, Some(4));
}

#[test]
fn a_connection_that_nobody_answers_ends_at_its_bound() {
    let lab = lab();
    lab.server.run(|| link::set_up(lab.server_dev.index, false)).expect("run").expect("down");
    let target: SocketAddr = (lab.server_addr, 9).into();
    let start = Instant::now();
    let connect = || socket::connect(target, &Requested::default(), Duration::from_millis(200));
    let error = lab.client.run(connect).expect("run").expect_err("nobody there");
    assert!(start.elapsed() < Duration::from_secs(2), "took {:?}", start.elapsed());
    assert!(error.to_string().contains("cannot connect to TCP 198.18.0.2:9"), "{error}");
}

#[test]
fn a_thread_started_in_a_namespace_is_there_and_its_starter_is_not() {
    let lab = lab();
    let here = Netns::current().expect("current");
    assert_eq!(here.id(), Netns::open(Path::new("/proc/thread-self/ns/net")).expect("open").id());
    assert!(here.id().cookie.is_some(), "Linux has cookies since 5.14: {:?}", here.id());

    let inside = lab.server.spawn("inside", || {
        (Netns::current().map(|ns| ns.id()), std::thread::current().name().map(str::to_owned))
    });
    let (id, name) = inside.expect("spawn").join().expect("no panic");
    assert_eq!((id.expect("id"), name.as_deref()), (lab.server.id(), Some("inside")));
    assert_eq!(Netns::current().expect("current").id(), here.id());
    assert_eq!(here.run(|| 7).expect("entering where one is already"), 7);

    let panicked = std::panic::catch_unwind(|| lab.client.run(|| panic!("inside")));
    assert_eq!(panicked.expect_err("the panic goes on").downcast_ref::<&str>(), Some(&"inside"));
    let missing = Netns::open(Path::new("/nonexistent/ns")).expect_err("not there").to_string();
    assert!(missing.contains("cannot open the network namespace /nonexistent/ns"), "{missing}");
}
