//! Receiving a stream by mapping its pages: every byte once, in its place, whatever can be mapped and whatever cannot.

use std::io;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use haul_host::privilege;
use haul_host::socket::{self, Flags, MappedReceive, Requested, SourceFile};
use haul_host::veth_lab::{VethLab, VethOptions};
use haul_stats::ByteCount;

const BOUND: Duration = Duration::from_secs(5);

/// A page of 4 KiB, the headers of IPv4 and TCP, and TCP's time stamps.
const PAGE_MTU: u64 = 4096 + 20 + 20 + 12;

fn lab(mtu: u64) -> VethLab {
    assert!(privilege::effective_root(), "this test makes network namespaces: run it as root");
    VethLab::build(VethOptions { mtu: ByteCount(mtu) }).expect("a lab")
}

fn pair(lab: &VethLab, address: IpAddr) -> (TcpStream, TcpStream) {
    let requested = Requested { cc: Some("reno".to_owned()), ..Requested::default() };
    let listener =
        lab.server.run(|| socket::listen((address, 0).into(), &requested)).expect("run").expect("listen");
    let target = listener.local_addr().expect("address");
    let client =
        lab.client.run(|| socket::connect(target, &requested, BOUND)).expect("run").expect("connect");
    let (server, _) = socket::accept(listener.as_fd(), false).expect("accept");
    (client, server)
}

/// The byte at a place of the stream; no two places a page, or a few, apart have the same run of them.
fn byte(at: usize) -> u8 {
    u8::try_from((at + (at >> 12)) % 251).expect("below 251")
}

/// What a receiver saw.
#[derive(Debug, Default)]
struct Seen {
    bytes: usize,
    mapped: usize,
    steps: usize,
}

/// Receives to the end and checks every byte.
fn receive(stream: &TcpStream, span: u64, buffer: usize) -> Seen {
    let mut receiver = MappedReceive::new(stream.as_fd(), ByteCount(span)).expect("map");
    let mut buffer = vec![0; buffer];
    let mut seen = Seen::default();
    loop {
        let step = match receiver.step(stream.as_fd(), &mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                assert!(socket::await_readable(stream.as_fd(), BOUND).expect("poll"), "nothing came");
                continue;
            }
            step => step.expect("step"),
        };
        assert_eq!(receiver.words().len() * 8, step.mapped, "what was mapped before is let go");
        if step.end {
            assert_eq!((step.mapped, step.copied), (0, 0));
            return seen;
        }
        assert!(step.mapped + step.copied > 0, "a step that is not the end takes something");
        let words = receiver.words().iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
        for got in words.chain(buffer[..step.copied].iter().copied()) {
            assert_eq!(got, byte(seen.bytes), "at {}", seen.bytes);
            seen.bytes += 1;
        }
        seen.mapped += step.mapped;
        seen.steps += 1;
    }
}

/// How a stream is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum With {
    Write,
    Sendfile,
    Zerocopy,
}

/// Sends `length` bytes, up to `piece` at a time.
fn send(stream: &TcpStream, length: usize, piece: usize, with: With) {
    let bytes: Vec<u8> = (0..length).map(byte).collect();
    let mut rest = bytes.as_slice();
    let file = SourceFile::in_memory(ByteCount(length as u64), |part| {
        let (now, later) = rest.split_at(part.len());
        part.copy_from_slice(now);
        rest = later;
    });
    let file = file.expect("file");
    if with == With::Zerocopy {
        socket::enable_zerocopy(stream).expect("SO_ZEROCOPY");
    }
    let mut sent = 0;
    while sent < length {
        let rest = &bytes[sent..length.min(sent + piece)];
        sent += match with {
            With::Write => socket::send(stream.as_fd(), rest),
            With::Sendfile => socket::sendfile(stream.as_fd(), &file, sent as u64, rest.len()),
            With::Zerocopy => socket::send_zerocopy(stream.as_fd(), rest),
        }
        .expect("send");
    }
    stream.shutdown(Shutdown::Write).expect("half-close");
    // Until the peer has all of it, the bytes must stay as they are.
    socket::set_timeouts(stream, Some(BOUND), None).expect("bound");
    assert_eq!(socket::recv(stream.as_fd(), &mut [0], Flags::NONE).expect("the peer's end"), 0);
}

/// One stream from client to server.
struct Run {
    address: IpAddr,
    length: usize,
    piece: usize,
    with: With,
    span: u64,
    buffer: usize,
}

impl Run {
    fn go(&self, lab: &VethLab) -> Seen {
        let (client, server) = pair(lab, self.address);
        std::thread::scope(|scope| {
            scope.spawn(|| send(&client, self.length, self.piece, self.with));
            let seen = receive(&server, self.span, self.buffer);
            assert_eq!(seen.bytes, self.length);
            drop(server);
            seen
        })
    }
}

#[test]
fn every_byte_of_a_stream_of_pages_is_seen_once_and_most_are_mapped() {
    const LENGTH: usize = 8_000_000;
    let six = VethLab::build(VethOptions { mtu: ByteCount(PAGE_MTU + 20) });
    let (four, six) = (lab(PAGE_MTU), six.expect("a lab"));
    for (lab, address) in [(&four, four.server_addr), (&six, six.server_addr6.expect("this kernel has IPv6"))]
    {
        for with in [With::Write, With::Sendfile, With::Zerocopy] {
            let (piece, span, buffer) = (128 << 10, 1 << 20, 64 << 10);
            let seen = Run { address, length: LENGTH, piece, with, span, buffer }.go(lab);
            println!("{with:?} to {address}: {} % of {seen:?}", seen.mapped * 100 / LENGTH);
            // What the kernel copies on the way of a packet that stays on this host is then in pages of its own.
            assert!(with != With::Zerocopy || seen.mapped * 2 > LENGTH, "{seen:?}");
        }
    }
}

#[test]
fn a_stream_of_any_length_arrives_whole_through_any_window_and_buffer() {
    for mtu in [1500, PAGE_MTU] {
        let lab = lab(mtu);
        for with in [With::Write, With::Sendfile, With::Zerocopy] {
            for length in [0, 1, 4095, 4096, 4097, 3 * 4096, 100_001] {
                for (span, buffer) in
                    [(1, 1), (4096, 4095), (8192, 4096), (1 << 20, 5000), (1 << 20, 1 << 20)]
                {
                    let address = lab.server_addr;
                    let piece = if length % 2 == 0 { length.max(1) } else { 33_333 };
                    let seen = Run { address, length, piece, with, span, buffer }.go(&lab);
                    let most = usize::try_from(span.next_multiple_of(4096)).expect("small") + buffer;
                    assert!(seen.steps * most >= length, "{seen:?}");
                }
            }
        }
    }
}

/// How much memory the mappings of sockets hold, in bytes; `None` where there is no such mapping.
fn held() -> Option<usize> {
    let smaps = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
    let mut lines = smaps.lines().skip_while(|line| !line.contains("socket:["));
    lines.next()?;
    let resident = lines.find_map(|line| line.strip_prefix("Rss:")).expect("a size");
    Some(resident.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") << 10)
}

/// The part of the test below; it must be alone in its process, whose mappings it looks at.
fn hold_and_let_go() {
    let lab = lab(PAGE_MTU);
    let (client, server) = pair(&lab, lab.server_addr);
    socket::enable_zerocopy(&client).expect("SO_ZEROCOPY");
    assert_eq!(held(), None);
    let mut receiver = MappedReceive::new(server.as_fd(), ByteCount(1 << 20)).expect("map");
    assert_eq!(held(), Some(0));
    let mut buffer = [0; 4096];
    let bytes = vec![7; 20 * 4096];
    for pages in [16, 3, 20, 1] {
        let sent = socket::send_zerocopy(client.as_fd(), &bytes[..pages * 4096]).expect("send");
        assert_eq!(sent, pages * 4096);
        // All of it has arrived when the peer has acknowledged it.
        while socket::completion(client.as_fd()).expect("notices").is_none() {
            assert!(socket::await_notice(client.as_fd(), BOUND).expect("poll"), "no notice came");
        }
        let mut taken = 0;
        while taken < sent {
            let step = receiver.step(server.as_fd(), &mut buffer).expect("step");
            assert_eq!(held(), Some(step.mapped), "{pages} pages");
            taken += step.mapped + step.copied;
        }
    }
    assert!(held() > Some(0), "the last step's pages");
    let error = receiver.step(server.as_fd(), &mut buffer).expect_err("nothing more");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    assert_eq!(held(), Some(0));
    assert!(receiver.words().is_empty());
    drop(receiver);
    assert_eq!(held(), None);
}

#[test]
fn a_step_holds_the_pages_it_mapped_and_no_others() {
    const PART: &str = "HAUL_TEST_ALONE";
    if std::env::var_os(PART).is_some() {
        return hold_and_let_go();
    }
    let name = "a_step_holds_the_pages_it_mapped_and_no_others";
    let mut command = std::process::Command::new(std::env::current_exe().expect("this program"));
    let output = command.args(["--exact", name, "--nocapture"]).env(PART, "1").output().expect("run");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn a_reset_is_an_error_after_the_bytes_before_it_and_ones_own_shutdown_is_the_end() {
    let lab = lab(PAGE_MTU);
    let mut buffer = [0; 8192];
    let (client, server) = pair(&lab, lab.server_addr);
    let mut receiver = MappedReceive::new(server.as_fd(), ByteCount(1 << 20)).expect("map");
    let error = receiver.step(server.as_fd(), &mut buffer).expect_err("nothing there");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    let error = receiver.step(server.as_fd(), &mut []).expect_err("no room");
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    server.shutdown(Shutdown::Read).expect("shutdown");
    assert!(receiver.step(server.as_fd(), &mut buffer).expect("the end").end);
    drop(client);

    let (client, server) = pair(&lab, lab.server_addr);
    socket::send(client.as_fd(), &[5; 1000]).expect("send");
    assert!(socket::await_readable(server.as_fd(), BOUND).expect("poll"));
    socket::reset_on_close(&client).expect("SO_LINGER");
    drop(client);
    let step = receiver.step(server.as_fd(), &mut buffer).expect("what came before the reset");
    assert_eq!((step.mapped, step.copied), (0, 1000));
    let error = receiver.step(server.as_fd(), &mut buffer).expect_err("the reset");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[test]
fn what_cannot_be_mapped_is_an_error_that_names_the_size() {
    let udp = socket::udp::bind((std::net::Ipv4Addr::LOCALHOST, 0).into(), &Requested::default());
    let udp = udp.expect("bind");
    let error = MappedReceive::new(udp.as_fd(), ByteCount(1 << 20)).expect_err("not TCP").to_string();
    assert!(error.contains("cannot map 1M of a TCP stream") && error.contains("--recv-with read"), "{error}");
    let listener = socket::listen((std::net::Ipv4Addr::LOCALHOST, 0).into(), &Requested::default());
    let listener = listener.expect("listen");
    for span in [1 << 32, u64::MAX] {
        MappedReceive::new(listener.as_fd(), ByteCount(span)).expect_err("more than the kernel counts");
    }
    let mut receiver = MappedReceive::new(listener.as_fd(), ByteCount(1)).expect("a window");
    let error = receiver.step(listener.as_fd(), &mut [0; 10]).expect_err("it is not connected");
    assert_eq!(error.kind(), io::ErrorKind::NotConnected);
}
