//! TCP sockets on loopback: what was asked, what the kernel gave, what an error says.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use haul_host::socket::{self, Epoll, Flags, Interest, Pipe, Requested, SocketFacts, SourceFile, TcpFacts};
use haul_stats::ByteCount;

const BOUND: Duration = Duration::from_secs(5);

fn any_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn pair(requested: &Requested) -> (TcpStream, TcpStream) {
    let listener = socket::listen(any_port(), requested).expect("listen");
    let client = socket::connect(listener.local_addr().expect("address"), requested, BOUND).expect("connect");
    let (server, _) = listener.accept().expect("accept");
    (client, server)
}

fn sysctl(name: &str) -> u64 {
    std::fs::read_to_string(format!("/proc/sys/net/core/{name}")).expect(name).trim().parse().expect(name)
}

#[test]
fn a_clamped_buffer_is_reported_on_both_ends_with_asked_and_got() {
    let asked = ByteCount(1 << 30);
    let requested = Requested { sndbuf: Some(asked), rcvbuf: Some(asked), ..Requested::default() };
    let (client, server) = pair(&requested);
    for end in [&client, &server] {
        let facts = SocketFacts::read(end.as_fd(), &requested).expect("facts");
        assert!(!facts.sndbuf_autotuned && !facts.rcvbuf_autotuned, "{facts:?}");
        let clamps = facts.clamped(&requested);
        let got: Vec<_> =
            clamps.iter().map(|clamp| (clamp.buffer.as_str(), clamp.asked, clamp.got)).collect();
        let expected = [
            ("sndbuf", asked, ByteCount(sysctl("wmem_max"))),
            ("rcvbuf", asked, ByteCount(sysctl("rmem_max"))),
        ];
        assert_eq!(got, expected);
        assert_eq!(clamps[0].sysctl, "net.core.wmem_max");
    }
}

#[test]
fn a_buffer_that_fits_is_fixed_and_one_left_alone_is_autotuned() {
    let fits = ByteCount(64 << 10);
    let requested = Requested { sndbuf: Some(fits), ..Requested::default() };
    let (client, server) = pair(&requested);
    for end in [&client, &server] {
        let facts = SocketFacts::read(end.as_fd(), &requested).expect("facts");
        assert_eq!(facts.sndbuf, ByteCount(2 * fits.0), "the kernel reserves twice what was asked");
        assert!(!facts.sndbuf_autotuned && facts.rcvbuf_autotuned, "{facts:?}");
        assert_eq!(facts.clamped(&requested), []);
    }
    // More than an int holds must not arrive as a negative, that is a tiny, buffer.
    let (client, _) = pair(&Requested { rcvbuf: Some(ByteCount(u64::MAX)), ..Requested::default() });
    let facts = SocketFacts::read(client.as_fd(), &Requested::default()).expect("facts");
    assert_eq!(facts.rcvbuf, ByteCount(2 * sysctl("rmem_max")));
}

#[test]
fn effective_options_are_read_back() {
    let requested = Requested {
        nodelay: true,
        cc: Some("reno".to_owned()),
        user_timeout: Some(Duration::from_secs(7)),
        ..Requested::default()
    };
    let (client, server) = pair(&requested);
    let facts = SocketFacts::read(client.as_fd(), &requested).expect("facts");
    assert_eq!((facts.nodelay, facts.cc.as_deref()), (Some(true), Some("reno")));
    assert!(facts.mss.expect("TCP has one") >= 1000, "{facts:?}");
    assert_eq!(facts.path_mtu, None);
    assert_eq!(
        (facts.local, facts.peer),
        (client.local_addr().expect("local"), client.peer_addr().expect("peer"))
    );
    assert_eq!(
        SocketFacts::read(server.as_fd(), &requested).expect("facts").cc.as_deref(),
        Some("reno"),
        "inherited by accept"
    );
    socket::set_user_timeout(&server, Duration::from_secs(3)).expect("user timeout");
    let plain = pair(&Requested::default()).0;
    assert_eq!(SocketFacts::read(plain.as_fd(), &Requested::default()).expect("facts").nodelay, Some(false));
}

#[test]
fn an_error_names_operation_object_and_remedy() {
    let taken = socket::listen(any_port(), &Requested::default()).expect("listen");
    let address = taken.local_addr().expect("address");
    let cc = |name: &str| Requested { cc: Some(name.to_owned()), ..Requested::default() };
    let refused = {
        let gone = TcpListener::bind(any_port()).expect("bind");
        gone.local_addr().expect("address")
    };
    let cases: [(&str, haul_host::HostError, &[&str]); 4] = [
        (
            "port taken",
            socket::listen(address, &Requested::default()).expect_err("taken"),
            &["cannot listen on TCP 127.0.0.1:", "another process listens there"],
        ),
        (
            "address of another host",
            socket::listen((Ipv4Addr::new(198, 18, 77, 1), 0).into(), &Requested::default())
                .expect_err("not ours"),
            &["cannot listen on TCP 198.18.77.1:0", "not one of this host"],
        ),
        (
            "nothing listens",
            socket::connect(refused, &Requested::default(), BOUND).expect_err("refused"),
            &["cannot connect to TCP 127.0.0.1:", "start 'haul serve'"],
        ),
        (
            "unknown congestion control",
            socket::listen(any_port(), &cc("nosuch")).expect_err("unknown"),
            &["cannot set the congestion control to nosuch", "this kernel has", "reno"],
        ),
    ];
    for (name, error, parts) in cases {
        let text = error.to_string();
        for part in parts {
            assert!(text.contains(part), "{name}: '{text}' lacks '{part}'");
        }
    }
}

#[test]
fn an_ipv6_wildcard_takes_ipv4_too() {
    let listener = socket::listen((Ipv6Addr::UNSPECIFIED, 0).into(), &Requested::default()).expect("listen");
    let port = listener.local_addr().expect("address").port();
    socket::connect((Ipv4Addr::LOCALHOST, port).into(), &Requested::default(), BOUND)
        .expect("connect by IPv4");
}

#[test]
fn bytes_sent_are_received_discarded_or_waited_for_as_the_flags_say() {
    let (client, server) = pair(&Requested { nodelay: true, ..Requested::default() });
    let mut buffer = [7_u8; 8];
    let error = socket::recv(server.as_fd(), &mut buffer, Flags::DONTWAIT).expect_err("nothing there");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);

    assert_eq!(socket::send(client.as_fd(), b"abcdefgh").expect("send"), 8);
    assert_eq!(socket::recv(server.as_fd(), &mut buffer, Flags::NONE.and(Flags::WAITALL)).expect("recv"), 8);
    assert_eq!(&buffer, b"abcdefgh");

    assert_eq!(socket::send(client.as_fd(), b"ABCDEFGH").expect("send"), 8);
    assert_eq!(socket::recv(server.as_fd(), &mut buffer, Flags::DISCARD).expect("discard"), 8);
    assert_eq!(&buffer, b"abcdefgh", "discarded bytes must not be copied");

    let facts = TcpFacts::read(server.as_fd()).expect("facts");
    assert_eq!(facts.bytes_received, Some(16));
    assert_eq!(facts.retransmits_total, Some(0));

    drop(client);
    assert_eq!(socket::recv(server.as_fd(), &mut buffer, Flags::NONE).expect("the end"), 0);
    // The first send may still be taken; the peer's reset makes one of the next fail, and no SIGPIPE kills us.
    let failed = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        socket::send(server.as_fd(), b"x").is_err()
    });
    assert!(failed, "a closed peer must show as an error");
}

#[test]
fn epoll_reports_readiness_by_token_and_its_wait_is_bounded() {
    let (client, server) = pair(&Requested::default());
    let mut epoll = Epoll::new(4).expect("epoll");
    epoll.add(server.as_fd(), 42, Interest::READ).expect("add");
    let start = Instant::now();
    assert_eq!(epoll.wait(Duration::from_millis(30)).expect("wait").count(), 0);
    assert!(start.elapsed() >= Duration::from_millis(30) && start.elapsed() < BOUND);

    socket::send(client.as_fd(), b"x").expect("send");
    let events: Vec<_> = epoll.wait(BOUND).expect("wait").collect();
    assert_eq!(
        events.iter().map(|event| (event.token, event.readable, event.writable)).collect::<Vec<_>>(),
        [(42, true, false)]
    );

    epoll.modify(server.as_fd(), 43, Interest::READ | Interest::WRITE).expect("modify");
    let event = epoll.wait(BOUND).expect("wait").next().expect("an event");
    assert!(event.token == 43 && event.readable && event.writable && !event.closed, "{event:?}");

    epoll.remove(server.as_fd()).expect("remove");
    assert_eq!(epoll.wait(Duration::ZERO).expect("wait").count(), 0);
    let error = epoll.remove(server.as_fd()).expect_err("it is not there any more");
    assert!(error.to_string().starts_with("cannot remove from epoll"), "{error}");
}

#[test]
fn bytes_sent_without_a_copy_are_completed_by_number_and_arrive_as_they_were() {
    let (client, server) = pair(&Requested::default());
    socket::enable_zerocopy(client.as_fd()).expect("SO_ZEROCOPY");
    assert_eq!(socket::completion(client.as_fd()).expect("an empty queue"), None);
    let mut buffer = [0; 4096];
    for number in 0..3_u32 {
        let bytes = [u8::try_from(number).expect("small"); 4096];
        assert_eq!(socket::send_zerocopy(client.as_fd(), &bytes).expect("send"), bytes.len());
        let got = socket::recv(server.as_fd(), &mut buffer, Flags::WAITALL).expect("recv");
        assert_eq!((got, buffer), (bytes.len(), bytes));
        assert!(socket::await_notice(client.as_fd(), BOUND).expect("poll"), "no notice came");
        let done = socket::completion(client.as_fd()).expect("read").expect("a notice");
        assert_eq!((done.first, done.last, done.calls()), (number, number, 1));
        assert!(done.copied, "the kernel copies what stays on the host");
    }
    assert!(!socket::await_notice(client.as_fd(), Duration::from_millis(1)).expect("poll"));
}

#[test]
fn a_files_pages_arrive_whole_by_sendfile_and_through_a_pipe() {
    let bytes: Vec<u8> = (0..300_000_u32).map(|i| (i % 251) as u8).collect();
    let mut rest = bytes.as_slice();
    let file = SourceFile::in_memory(ByteCount(300_000), |piece| {
        let (now, later) = rest.split_at(piece.len());
        piece.copy_from_slice(now);
        rest = later;
    })
    .expect("memory file");
    assert_eq!((file.len(), file.is_empty()), (300_000, false));
    let pipe = Pipe::new(100_000).expect("pipe");
    assert!(pipe.size() >= 100_000, "{}", pipe.size());
    for through_pipe in [false, true] {
        let (client, server) = pair(&Requested::default());
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            std::io::Read::read_to_end(&mut &server, &mut all).expect("read");
            all
        });
        // From an odd place, so that pages are begun in the middle.
        let mut at = 1_000;
        while at < bytes.len() {
            at += if through_pipe {
                let mut held = pipe.fill(&file, at as u64, 100_000).expect("fill");
                let filled = held;
                while held > 0 {
                    held -= pipe.drain(client.as_fd(), held).expect("drain");
                }
                filled
            } else {
                socket::sendfile(client.as_fd(), &file, at as u64, 100_000).expect("sendfile")
            };
        }
        drop(client);
        assert!(reader.join().expect("reader") == bytes[1_000..], "through a pipe: {through_pipe}");
    }
}
