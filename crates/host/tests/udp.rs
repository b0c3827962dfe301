//! UDP sockets in a lab: what is sent arrives, whole or counted as lost, one by one, in batches and joined.

mod common;

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use common::{BOUND, drain, drops, lab, tc};
use haul_host::link;
use haul_host::socket::udp::{self, RecvBatch, SendBatch};
use haul_host::socket::{self, Flags, Requested, SocketFacts};
use haul_host::veth_lab::VethLab;
use haul_stats::ByteCount;

/// The two ends of a flow, bounded in their waits.
struct Pair {
    client: UdpSocket,
    server: UdpSocket,
}

impl Pair {
    /// From the client of `lab` to its server, by IPv4 or IPv6.
    fn new(lab: &VethLab, ipv6: bool, requested: &Requested) -> Self {
        let six = |address: Option<IpAddr>| address.expect("this kernel has IPv6");
        let (from, to) = if ipv6 {
            (six(lab.client_addr6), six(lab.server_addr6))
        } else {
            (lab.client_addr, lab.server_addr)
        };
        let server = lab.server.run(|| udp::bind((to, 0).into(), requested)).expect("run").expect("bind");
        let to = server.local_addr().expect("address");
        let client =
            lab.client.run(|| udp::connected((from, 0).into(), to, requested)).expect("run").expect("client");
        server.connect(client.local_addr().expect("address")).expect("connect");
        for end in [&client, &server] {
            socket::set_timeouts(end, Some(BOUND), Some(BOUND)).expect("bounds");
        }
        Self { client, server }
    }

    fn send(&self, bytes: &[u8]) {
        assert_eq!(socket::send(self.client.as_fd(), bytes).expect("send"), bytes.len());
    }
}

/// Bytes that tell where they belong.
fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at * 31 + seed * 7) % 251).expect("below 251")).collect()
}

#[test]
fn no_two_sockets_whose_ports_the_kernel_chose_have_the_same() {
    let server = udp::bind((Ipv4Addr::LOCALHOST, 0).into(), &Requested::default()).expect("bind");
    let to = server.local_addr().expect("address");
    let sockets: Vec<UdpSocket> = (0..500)
        .map(|_| {
            udp::connected((Ipv4Addr::LOCALHOST, 0).into(), to, &Requested::default()).expect("connected")
        })
        .collect();
    let ports: HashSet<u16> = sockets.iter().map(|it| it.local_addr().expect("address").port()).collect();
    assert_eq!(ports.len(), sockets.len());
}

#[test]
fn a_full_receive_buffer_is_counted_to_the_datagram() {
    let lab = lab(1500);
    let requested = Requested { rcvbuf: Some(ByteCount(16 << 10)), ..Requested::default() };
    for ipv6 in [false, true] {
        let pair = Pair::new(&lab, ipv6, &requested);
        assert_eq!(drops(&pair.server), 0);
        for sent in [500, 1300] {
            let before = drops(&pair.server);
            (0..sent).for_each(|_| pair.send(&[7; 1000]));
            // The last one is handed over before its send returns, or by a soft interrupt soon after.
            let start = Instant::now();
            let (mut received, mut lost) = (0, 0);
            while received + lost < sent && start.elapsed() < BOUND {
                received += drain(&pair.server);
                lost = drops(&pair.server) - before;
            }
            assert_eq!(received + lost, sent, "{received} received, {lost} lost, IPv6 {ipv6}");
            assert!(lost > sent / 2, "{lost} lost of {sent}: 16 KiB hold but a few");
        }
        assert_eq!(drops(&pair.client), 0, "the sender's socket has dropped nothing");
    }
}

#[test]
fn the_path_mtu_is_that_of_the_wire_and_a_payload_that_fills_it_goes_unfragmented() {
    for mtu in [1280, 1500, 9000] {
        let lab = lab(mtu);
        for ipv6 in [false, true] {
            let whole = Requested { dont_fragment: Some(true), ..Requested::default() };
            let pair = Pair::new(&lab, ipv6, &whole);
            let path = udp::path_mtu(pair.client.as_fd()).expect("path MTU");
            assert_eq!(u64::from(path), mtu, "IPv6 {ipv6}");
            let facts = SocketFacts::read(pair.client.as_fd(), &whole).expect("facts");
            assert_eq!(facts.path_mtu, Some(path));

            let payload = usize::from(udp::max_payload(path, ipv6));
            let fits = pattern(payload, 1);
            pair.send(&fits);
            let mut buffer = [0; 10_000];
            let got = socket::recv(pair.server.as_fd(), &mut buffer, Flags::NONE).expect("receive");
            assert!(buffer[..got] == fits, "{got} of {payload} bytes at {mtu}");

            let large = pattern(payload + 1, 2);
            let refused = socket::send(pair.client.as_fd(), &large).expect_err("more than one packet");
            assert!(udp::too_large(&refused), "{refused}");

            let cut = Requested { dont_fragment: Some(false), ..Requested::default() };
            let pair = Pair::new(&lab, ipv6, &cut);
            pair.send(&large);
            let got = socket::recv(pair.server.as_fd(), &mut buffer, Flags::NONE).expect("receive");
            assert!(buffer[..got] == large, "put together again");
        }
    }
    let unconnected = udp::bind((Ipv4Addr::LOCALHOST, 0).into(), &Requested::default()).expect("bind");
    let error = udp::path_mtu(unconnected.as_fd()).expect_err("no path").to_string();
    assert!(error.contains("only a connected socket has a path"), "{error}");
}

#[test]
fn one_send_is_cut_into_datagrams_and_one_receive_joins_them_with_every_byte_in_place() {
    const SIZE: u16 = 1200;
    let size = usize::from(SIZE);
    let lab = lab(1500);
    for ipv6 in [false, true] {
        for joined in [false, true] {
            let pair = Pair::new(&lab, ipv6, &Requested::default());
            udp::set_segment(pair.client.as_fd(), SIZE).expect("UDP_SEGMENT");
            if joined {
                udp::set_gro(pair.server.as_fd()).expect("UDP_GRO");
            }
            // Nine whole ones and a shorter one.
            let sent = pattern(9 * size + 500, 3);
            pair.send(&sent);
            let (mut all, mut datagrams, mut receives) = (Vec::<u8>::new(), Vec::new(), 0);
            let mut buffer = vec![0; 64 << 10];
            while all.len() < sent.len() {
                let got = udp::recv_segments(pair.server.as_fd(), &mut buffer, Flags::NONE).expect("receive");
                assert!(!got.truncated);
                assert_eq!(got.segment.is_some(), got.bytes.len() > size, "{:?}", got.segment);
                datagrams.extend(got.datagrams().map(<[u8]>::len));
                all.extend(got.bytes);
                receives += 1;
            }
            assert!(all == sent);
            let expected = [&[size; 9][..], &[500]].concat();
            assert_eq!(datagrams, expected, "IPv6 {ipv6}, joined {joined}");
            assert_eq!(receives, if joined { 1 } else { 10 }, "IPv6 {ipv6}");

            udp::set_segment(pair.client.as_fd(), 0).expect("off");
            pair.send(&sent[..size]);
            let got = udp::recv_segments(pair.server.as_fd(), &mut buffer, Flags::NONE).expect("receive");
            assert_eq!((got.bytes.len(), got.segment), (size, None));
        }
    }
    let tcp = socket::listen((Ipv4Addr::LOCALHOST, 0).into(), &Requested::default()).expect("listen");
    let error = udp::set_gro(tcp.as_fd()).expect_err("not UDP").to_string();
    assert!(error.contains("cannot set UDP_GRO") && error.contains("a UDP socket"), "{error}");
}

#[test]
fn a_batch_arrives_message_by_message_each_at_its_own_length() {
    let lab = lab(1500);
    for ipv6 in [false, true] {
        let pair = Pair::new(&lab, ipv6, &Requested::default());
        let mut sends = SendBatch::new(40, 1000).expect("batch");
        let receives = RecvBatch::new(16, 1000).expect("batch");
        assert_eq!((sends.count(), receives.count()), (40, 16));
        for index in 0..sends.count() {
            let message = sends.message_mut(index);
            assert_eq!(message.as_ptr().addr() % 64, 0, "a message begins at a cache line");
            message.copy_from_slice(&pattern(1000, index));
        }
        assert!(sends.message_mut(40).is_empty());
        // Moved, with all their pointers.
        let (mut sends, mut receives) = (Box::new(sends), vec![receives].swap_remove(0));
        let fd = pair.server.as_fd();
        let error = receives.recv(fd, Flags::DONTWAIT).expect_err("nothing there");
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
        assert_eq!(receives.messages().count(), 0);

        assert_eq!(sends.send(pair.client.as_fd(), 0..30, Flags::NONE).expect("send"), 30);
        assert_eq!(sends.send(pair.client.as_fd(), 30..40, Flags::NONE).expect("send"), 10);
        let mut seen = Vec::new();
        while seen.len() < 40 {
            let count = receives.recv(fd, Flags::WAITFORONE).expect("receive");
            assert_eq!(receives.messages().count(), count);
            for message in receives.messages() {
                assert!(!message.truncated && message.segment.is_none());
                seen.push(message.bytes.to_vec());
            }
        }
        assert!(seen.iter().enumerate().all(|(index, bytes)| *bytes == pattern(1000, index)));

        // Shorter, longer and empty ones; what an earlier call left does not show.
        for (length, expected, truncated) in [(3, 3, false), (1400, 1000, true), (0, 0, false)] {
            pair.send(&pattern(length, 5));
            assert_eq!(receives.recv(fd, Flags::WAITFORONE).expect("receive"), 1);
            let message = receives.messages().next().expect("one");
            assert_eq!((message.bytes.len(), message.truncated), (expected, truncated));
            assert!(message.bytes == &pattern(length, 5)[..expected]);
            assert_eq!(message.datagrams().count(), 1, "an empty datagram is one too");
        }
        // The length of the whole, where it is asked for, does not lead past the buffer.
        pair.send(&[1; 1400]);
        receives.recv(fd, Flags::DISCARD.and(Flags::WAITFORONE)).expect("receive");
        let message = receives.messages().next().expect("one");
        assert_eq!((message.bytes.len(), message.truncated), (1000, true));
        let mut short = [0; 10];
        pair.send(&[1; 1400]);
        let got = udp::recv_segments(fd, &mut short, Flags::DISCARD).expect("receive");
        assert_eq!((got.bytes.len(), got.truncated), (10, true));
    }
}

#[test]
fn a_batch_of_joined_datagrams_tells_the_size_of_each() {
    let lab = lab(1500);
    let pair = Pair::new(&lab, true, &Requested::default());
    udp::set_segment(pair.client.as_fd(), 100).expect("UDP_SEGMENT");
    udp::set_gro(pair.server.as_fd()).expect("UDP_GRO");
    let mut sends = SendBatch::new(3, 1000).expect("batch");
    let mut receives = RecvBatch::new(8, 64 << 10).expect("batch");
    for index in 0..3 {
        sends.message_mut(index).copy_from_slice(&pattern(1000, index));
    }
    for _ in 0..3 {
        // One that stays alone has no control message: the room for the next one's must be whole again.
        pair.send(&[1; 50]);
        receives.recv(pair.server.as_fd(), Flags::WAITFORONE).expect("receive");
        let alone: Vec<_> =
            receives.messages().map(|message| (message.bytes.len(), message.segment)).collect();
        assert_eq!(alone, [(50, None)]);
        assert_eq!(sends.send(pair.client.as_fd(), 0..3, Flags::NONE).expect("send"), 3);
        let mut seen = Vec::new();
        while seen.len() < 30 {
            receives.recv(pair.server.as_fd(), Flags::WAITFORONE).expect("receive");
            for message in receives.messages() {
                assert_eq!(message.segment, Some(100));
                seen.extend(message.datagrams().map(<[u8]>::to_vec));
            }
        }
        let expected: Vec<Vec<u8>> = (0..3)
            .flat_map(|index| pattern(1000, index).chunks(100).map(<[u8]>::to_vec).collect::<Vec<_>>())
            .collect();
        assert!(seen == expected);
    }
}

#[test]
fn a_batch_that_the_kernel_takes_in_part_says_how_far_it_came_and_the_next_call_why() {
    let lab = lab(1500);
    let requested =
        Requested { dont_fragment: Some(true), sndbuf: Some(ByteCount(0)), ..Requested::default() };
    let pair = Pair::new(&lab, false, &requested);
    let fd = pair.client.as_fd();
    let mut large = SendBatch::new(2, 1473).expect("batch");
    let error = large.send(fd, 0..2, Flags::NONE).expect_err("more than the MTU");
    assert!(udp::too_large(&error), "{error}");
    let error = large.send(fd, 1..3, Flags::NONE).expect_err("there is no third message");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    assert_eq!(large.send(fd, 1..1, Flags::NONE).expect("none"), 0);

    // Packets wait in the device's queue, which holds more than the send buffer may.
    tc(&lab, "qdisc add dev haul-c root tbf rate 8kbit burst 2kb limit 1mb");
    let mut batch = SendBatch::new(64, 1000).expect("batch");
    let taken = batch.send(fd, 0..64, Flags::DONTWAIT).expect("some fit");
    assert!((1..64).contains(&taken), "{taken} of 64 fitted into the least send buffer");
    let error = batch.send(fd, taken..64, Flags::DONTWAIT).expect_err("full");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    let error = socket::send_flags(fd, &[0; 1000], Flags::DONTWAIT).expect_err("full");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn a_shut_down_socket_ends_a_receive_that_waits_in_each_of_its_forms() {
    let lab = lab(1500);
    for ipv6 in [false, true] {
        let forms: [fn(BorrowedFd<'_>) -> Vec<usize>; 4] = [
            |fd| vec![socket::recv(fd, &mut [0; 100], Flags::NONE).expect("the end")],
            |fd| vec![udp::recv_segments(fd, &mut [0; 100], Flags::NONE).expect("the end").bytes.len()],
            |fd| lengths(fd, Flags::WAITFORONE),
            |fd| lengths(fd, Flags::NONE),
        ];
        for (form, ended) in forms.into_iter().zip([&[0][..], &[0], &[0], &[0; 4]]) {
            let pair = Pair::new(&lab, ipv6, &Requested::default());
            socket::set_timeouts(&pair.server, None, None).expect("no bound");
            let got = std::thread::scope(|scope| {
                let waiting = scope.spawn(|| form(pair.server.as_fd()));
                std::thread::sleep(Duration::from_millis(50));
                assert!(!waiting.is_finished(), "it must wait");
                shut_down(&pair.server);
                let start = Instant::now();
                while !waiting.is_finished() {
                    if start.elapsed() > BOUND {
                        // Lets the thread go before the test fails.
                        pair.send(&[1]);
                        panic!("shutdown(2) woke nobody within {BOUND:?}");
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                waiting.join().expect("no panic")
            });
            assert_eq!(got, ended);
            let error = socket::recv(pair.server.as_fd(), &mut [0; 100], Flags::DONTWAIT);
            let error = error.expect_err("who does not wait is not told");
            assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
            assert!(socket::await_readable(pair.server.as_fd(), Duration::ZERO).expect("poll"));
        }
    }
}

/// What a batch receives, message by message.
fn lengths(fd: BorrowedFd<'_>, flags: Flags) -> Vec<usize> {
    let mut batch = RecvBatch::new(4, 100).expect("batch");
    batch.recv(fd, flags).expect("the end");
    batch.messages().map(|message| message.bytes.len()).collect()
}

fn shut_down(socket: &UdpSocket) {
    socket2::SockRef::from(socket).shutdown(std::net::Shutdown::Both).expect("shutdown");
}

#[test]
fn a_connected_socket_shares_the_port_of_the_listening_one_and_gets_its_peers_datagrams() {
    let lab = lab(1500);
    let plain = Requested::default();
    for (wildcard, to) in [
        (IpAddr::from(Ipv4Addr::UNSPECIFIED), lab.server_addr),
        (Ipv6Addr::UNSPECIFIED.into(), lab.server_addr6.expect("this kernel has IPv6")),
        // An IPv6 wildcard takes IPv4 too.
        (Ipv6Addr::UNSPECIFIED.into(), lab.server_addr),
    ] {
        let open = || udp::bind((wildcard, 0).into(), &plain);
        let listening = lab.server.run(open).expect("run").expect("bind");
        socket::set_timeouts(&listening, Some(BOUND), None).expect("bound");
        let port = listening.local_addr().expect("address").port();
        let from = || udp::connected((wildcard, 0).into(), (to, port).into(), &plain).expect("client");
        let clients = lab.client.run(|| [from(), from()]).expect("run");
        let mut buffer = [0; 100];
        for (index, client) in (0_u8..).zip(&clients) {
            socket::set_timeouts(client, Some(BOUND), None).expect("bound");
            socket::send(client.as_fd(), &[index]).expect("send");
            let (length, peer) = listening.recv_from(&mut buffer).expect("the first of a client");
            assert_eq!((length, buffer[0]), (1, index));
            let local: SocketAddr = (wildcard, port).into();
            let own = lab.server.run(|| udp::connected(local, peer, &plain)).expect("run").expect("share");
            socket::set_timeouts(&own, Some(BOUND), None).expect("bound");
            for round in 0..3 {
                socket::send(client.as_fd(), &[round; 5]).expect("send");
                assert_eq!(socket::recv(own.as_fd(), &mut buffer, Flags::NONE).expect("receive"), 5);
                socket::send(own.as_fd(), &[round; 7]).expect("answer");
                assert_eq!(socket::recv(client.as_fd(), &mut buffer, Flags::NONE).expect("receive"), 7);
            }
            let facts = SocketFacts::read(own.as_fd(), &plain).expect("facts");
            assert_eq!((facts.mss, facts.cc, facts.nodelay), (None, None, None));
            assert!(!facts.rcvbuf_autotuned && !facts.sndbuf_autotuned);
            assert_eq!(facts.peer, SocketAddr::new(peer.ip().to_canonical(), peer.port()));
        }
        listening.set_nonblocking(true).expect("nonblocking");
        listening.recv_from(&mut buffer).expect_err("the rest went to the sockets of the clients");
    }
}

#[test]
fn what_was_asked_of_a_socket_is_set_and_a_refusal_says_what_to_do() {
    let lab = lab(1500);
    lab.client
        .run(|| {
            let asked = Requested {
                sndbuf: Some(ByteCount(64 << 10)),
                rcvbuf: Some(ByteCount(32 << 10)),
                tos: Some(0x20),
                bind_device: Some("haul-c".to_owned()),
                mark: Some(0xdead_beef),
                busy_poll_us: Some(50),
                dont_fragment: Some(true),
                // TCP's own, which a UDP socket must not be asked for.
                nodelay: true,
                cc: Some("nosuch".to_owned()),
                mss: Some(1),
                user_timeout: Some(BOUND),
            };
            for to in [lab.server_addr, lab.server_addr6.expect("this kernel has IPv6")] {
                let any = if to.is_ipv6() {
                    IpAddr::from(Ipv6Addr::UNSPECIFIED)
                } else {
                    Ipv4Addr::UNSPECIFIED.into()
                };
                let socket = udp::connected((any, 0).into(), (to, 9).into(), &asked).expect("connected");
                let options = socket2::SockRef::from(&socket);
                assert_eq!(options.mark().expect("mark"), 0xdead_beef);
                assert_eq!(options.busy_poll().expect("busy poll"), 50);
                assert_eq!(options.device().expect("device").as_deref(), Some(&b"haul-c"[..]));
                let facts = SocketFacts::read(socket.as_fd(), &asked).expect("facts");
                assert_eq!((facts.sndbuf, facts.rcvbuf), (ByteCount(128 << 10), ByteCount(64 << 10)));
                assert_eq!((facts.tos, facts.clamped(&asked)), (Some(0x20), vec![]));
                // TCP takes what both have, and not what is UDP's.
                let tcp = Requested { cc: None, mss: None, ..asked.clone() };
                let listener = socket::listen((any, 0).into(), &tcp).expect("listen");
                assert_eq!(socket2::SockRef::from(&listener).mark().expect("mark"), 0xdead_beef);
            }

            let on = |name: &str| Requested { bind_device: Some(name.to_owned()), ..Requested::default() };
            let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
            // Of the last one the kernel takes 15 bytes, and those are the name of a device.
            let named = "haul-15-letters";
            link::create_veth(named, "haul-y", &lab.server, ByteCount(1500)).expect("a device");
            udp::bind(any, &on(named)).expect("a name as long as can be");
            for name in ["haul-x", "", "haul-15-letters-and-more"] {
                let error = udp::bind(any, &on(name)).expect_err("no such device").to_string();
                assert!(error.contains(&format!("bind a socket to the device {name}")), "{error}");
                assert!(error.contains("has lo, haul-c"), "{error}");
            }
            let foreign = udp::bind((lab.server_addr, 0).into(), &Requested::default())
                .expect_err("not ours")
                .to_string();
            assert!(
                foreign.contains("cannot bind a socket to UDP 198.18.0.2:0")
                    && foreign.contains("not one of this host"),
                "{foreign}"
            );
            let mixed = udp::connected(any, (Ipv6Addr::LOCALHOST, 9).into(), &Requested::default());
            let mixed = mixed.expect_err("two families").to_string();
            assert!(mixed.contains("use addresses of one family"), "{mixed}");
        })
        .expect("run");
}

#[test]
fn a_port_that_somebody_does_not_share_is_refused() {
    let taken = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
    let address = taken.local_addr().expect("address");
    let error = udp::bind(address, &Requested::default()).expect_err("taken").to_string();
    assert!(
        error.contains(&format!("UDP {address}")) && error.contains("another process listens"),
        "{error}"
    );
}

#[test]
fn more_room_than_there_is_is_an_error_that_says_how_much() {
    let error = RecvBatch::new(1 << 20, 1 << 40).expect_err("an exbibyte").to_string();
    assert!(error.contains("of page-aligned memory"), "{error}");
    SendBatch::new(usize::MAX, usize::MAX).expect_err("more than an address can say");
    let mut least = SendBatch::new(0, 0).expect("one empty message");
    assert_eq!((least.count(), least.message_mut(0).len()), (1, 0));
}

#[test]
fn a_port_the_kernel_chooses_is_nobody_elses_and_can_be_shared_all_the_same() {
    let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let server = udp::bind(local(0), &Requested::default()).expect("bind");
    let target = server.local_addr().expect("address");
    // Chosen at random among 28,000 ports, 500 would meet some four times.
    let clients: Vec<UdpSocket> =
        (0..500).map(|_| udp::connected(local(0), target, &Requested::default()).expect("client")).collect();
    let ports = clients.iter().map(|client| client.local_addr().expect("address").port());
    assert_eq!(ports.collect::<HashSet<_>>().len(), clients.len());
    let own = clients[0].local_addr().expect("address");
    udp::connected(target, own, &Requested::default()).expect("the server's port is shared with its flows");
}
