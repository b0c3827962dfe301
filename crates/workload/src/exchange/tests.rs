//! Both sides of an exchange on real sockets, with what no loopback does in between: stalls, losses, strangers and liars.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use haul_host::clock;
use haul_host::socket::{self, Flags};
use haul_stats::latency::Quantile;
use haul_stats::{ByteCount, MonoNanos, PerSecond};
use haul_wire::{DataHello, FlowIndex, RunId, Token};

use super::book::{Book, BookLedger};
use super::{ExchangeReport, PortsReport, Sizes, datagram, tcp};
use crate::end::Ledger as _;
use crate::engine::{Crew, Engine, Manner, Moved, Place, Work};

const ONE: Place = Place { flow: 0, lane: 0, manner: Manner::Block };

fn sizes(request: usize, response: usize, in_flight: usize) -> Sizes {
    Sizes { request, response, in_flight }
}

fn crew(sockets: Vec<OwnedFd>, manner: Manner) -> Crew<'static> {
    let sockets = sockets.into_iter().map(Arc::new).collect();
    Crew { sockets, keep: Vec::new(), pin: None, threads: Some(1), lanes: None, bucket: None, manner }
}

/// Lets the workers ask for so long, with the window over all of it, and gives what was noted.
fn ask_for(engine: &mut Engine, book: &Arc<Book>, length: Duration) -> ExchangeReport {
    let mut ledger = BookLedger::new(Arc::clone(book));
    ledger.open();
    let start = clock::now();
    engine.open(start);
    clock::sleep_until(start.after(length));
    ledger.close();
    engine.stop();
    let limit = clock::now().after(Duration::from_secs(5));
    while !engine.is_over() {
        assert!(clock::now() < limit, "the requesters do not end");
        clock::sleep_until(clock::now().after(Duration::from_millis(1)));
    }
    assert!(engine.ends().iter().all(|end| end.error.is_none()), "{:?}", engine.ends());
    ledger.report()
}

fn units(engine: &Engine) -> u64 {
    let mut units = Vec::new();
    engine.units(&mut units);
    units.iter().sum()
}

/// A server of one-byte requests that stands still for `stall`, once, when `after` has passed.
fn stalling(mut stream: UnixStream, after: Duration, stall: Duration) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let until = clock::now().after(after);
        let (mut byte, mut stalled) = ([0], false);
        while io::Read::read(&mut stream, &mut byte).is_ok_and(|read| read == 1) {
            if !stalled && clock::now() >= until {
                stalled = true;
                clock::sleep_until(clock::now().after(stall));
            }
            if io::Write::write(&mut stream, &byte).is_err() {
                break;
            }
        }
    })
}

#[test]
fn a_stall_is_one_slow_transaction_of_a_closed_loop_and_every_delayed_one_of_an_open_loop() {
    let (window, stall) = (Duration::from_secs(1), Duration::from_millis(700));
    for pace in [None, Some(PerSecond(1_000))] {
        let (client, server) = UnixStream::pair().expect("pair");
        let server = stalling(server, Duration::from_millis(150), stall);
        let book = Book::new(1, pace);
        let pages = Arc::clone(&book);
        let mut engine = Engine::prepare(crew(vec![client.into()], Manner::Block), move |place| {
            tcp::Requesting::new(sizes(1, 1, 1), pages.page(place))
        })
        .expect("engine");
        let report = ask_for(&mut engine, &book, window);
        drop(engine);
        server.join().expect("server");
        let p50 = Duration::from_nanos(report.latency.percentile(Quantile::P50).expect("enough"));
        let longest = report.longest_stall.expect("a window");
        println!("{pace:?}: {} transactions, p50 {p50:?}, longest stall {longest:?}", report.latency.count());
        assert!(longest >= stall, "{longest:?}");
        let max = Duration::from_nanos(report.latency.max().expect("one"));
        assert!(max >= stall.mul_f64(0.99), "{max:?}");
        if pace.is_none() {
            assert!(p50 < Duration::from_millis(5), "one slow sample among many: {p50:?}");
        } else {
            // Due one each millisecond: 700 of them waited, on average for half of the stall.
            assert!(p50 > Duration::from_millis(100), "{p50:?}");
            let due = report.latency.count() + report.unanswered;
            // The worker may begin late, and the window close late.
            assert!((900..1_300).contains(&due), "{due} were due");
        }
    }
}

#[test]
fn what_is_still_missing_when_the_window_closes_counts_as_a_stall_and_as_unanswered() {
    for (pace, least) in [(None, 1), (Some(PerSecond(500)), 100)] {
        let (client, server) = UnixStream::pair().expect("pair");
        let server = stalling(server, Duration::from_millis(100), Duration::from_millis(600));
        let book = Book::new(1, pace);
        let pages = Arc::clone(&book);
        let mut engine = Engine::prepare(crew(vec![client.into()], Manner::Block), move |place| {
            tcp::Requesting::new(sizes(1, 1, 1), pages.page(place))
        })
        .expect("engine");
        let report = ask_for(&mut engine, &book, Duration::from_millis(500));
        drop(engine);
        server.join().expect("server");
        let longest = report.longest_stall.expect("a window");
        assert!((300..500).contains(&longest.as_millis()), "{longest:?}");
        assert!((least..=250).contains(&report.unanswered), "{}", report.unanswered);
    }
}

#[test]
fn only_the_window_counts_and_the_flows_of_all_workers_together() {
    let book = Book::new(3, None);
    let place = |flow, lane| Place { flow, lane, manner: Manner::Epoll };
    let mut pages = [place(0, 0), place(1, 1), place(2, 1)].map(|place| book.page(place));
    let now = clock::now();
    let at = |ms: u64| now.after(Duration::from_millis(ms));
    for page in &mut pages {
        page.begin(2);
        page.complete(MonoNanos(now.0 - 50), now);
    }
    let mut ledger = BookLedger::new(Arc::clone(&book));
    ledger.open();
    pages[0].resend();
    for (page, ms) in pages.iter_mut().zip([3, 5]) {
        page.complete(at(1), at(ms));
    }
    ledger.close();
    pages[2].complete(at(1), at(900));
    let report = ledger.report();
    assert_eq!((report.latency.count(), report.resends, report.begun), (2, 1, 6));
    assert_eq!(report.unanswered, 1);
    for (nanos, wanted) in [(report.latency.min(), 2e6), (report.latency.max(), 4e6)] {
        let nanos = nanos.expect("two") as f64;
        assert!((nanos / wanted - 1.0).abs() <= 0.001, "{nanos}, not {wanted}");
    }
    assert_eq!(report.check(), Ok(()));
}

#[test]
fn a_window_that_never_opened_has_no_times() {
    let book = Book::new(1, None);
    book.page(ONE).begin(7);
    let mut ledger = BookLedger::new(book);
    ledger.close();
    let report = ledger.report();
    assert!(report.latency.is_empty() && report.longest_stall.is_none());
    assert_eq!((report.begun, report.unanswered), (7, 0));
}

#[test]
fn a_request_is_written_in_one_send_with_all_that_are_begun_with_it() {
    // Each send is a message of its own here.
    for (in_flight, whole) in [(1, 20), (3, 60)] {
        let (client, server) = UnixDatagram::pair().expect("pair");
        for end in [&client, &server] {
            end.set_nonblocking(true).expect("nonblocking");
        }
        let mut asking =
            tcp::Requesting::new(sizes(20, 4, in_flight), Book::new(1, None).page(ONE)).expect("buffers");
        asking.begin(client.as_fd()).expect("begin");
        let mut buffer = [0; 100];
        assert_eq!(server.recv(&mut buffer).expect("a request"), whole);
        assert!(server.recv(&mut buffer).is_err(), "in one piece");
        let mut answering = tcp::Responding::new(sizes(20, 4, 3)).expect("buffers");
        socket::send(client.as_fd(), &[0; 60]).expect("send");
        assert_eq!(answering.step(server.as_fd()).expect("answer"), Moved::Units(3));
        assert_eq!(client.recv(&mut buffer).expect("responses"), 12, "and so are the responses");
    }
}

#[test]
fn a_peer_that_says_more_than_it_was_asked_or_leaves_early_is_a_fault() {
    for (answer, wanted) in [(&[0; 5][..], "more than was asked for"), (&[][..], "closed the connection")] {
        let (client, server) = UnixStream::pair().expect("pair");
        let one_a_second = Book::new(1, Some(PerSecond(1)));
        let mut asking = tcp::Requesting::new(sizes(1, 2, 4), one_a_second.page(ONE)).expect("buffers");
        asking.begin(client.as_fd()).expect("begin");
        assert_eq!(asking.step(client.as_fd()).expect("the first is due"), Moved::Units(0));
        assert_eq!(socket::recv(server.as_fd(), &mut [0; 9], Flags::NONE).expect("a request"), 1);
        if !answer.is_empty() {
            socket::send(server.as_fd(), answer).expect("send");
        }
        drop(server);
        let error = asking.step(client.as_fd()).expect_err(wanted).to_string();
        assert!(error.contains(wanted), "{error}");
    }
}

/// What is between two UDP sockets: drops, repeats and holds back what it is told to, by count, and in each direction.
struct Relay {
    client: UdpSocket,
    server: UdpSocket,
    ending: Arc<AtomicBool>,
    dropped: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

/// What becomes of a datagram.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Passes,
    Lost,
    Twice,
    Late,
}

impl Relay {
    fn new(fate: impl Fn(u64) -> Fate + Copy + Send + 'static) -> Self {
        let pair = || {
            let [a, b] = [0, 1].map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind"));
            a.connect(b.local_addr().expect("address")).expect("connect");
            b.connect(a.local_addr().expect("address")).expect("connect");
            (a, b)
        };
        let ((client, near), (server, far)) = (pair(), pair());
        let (ending, dropped) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let carry = |from: &UdpSocket, to: &UdpSocket| {
            let (from, to) = (from.try_clone().expect("clone"), to.try_clone().expect("clone"));
            from.set_read_timeout(Some(Duration::from_millis(5))).expect("timeout");
            let (ending, dropped) = (Arc::clone(&ending), Arc::clone(&dropped));
            std::thread::spawn(move || {
                let (mut buffer, mut count, mut late) = ([0; 2048], 0, Vec::new());
                while !ending.load(Ordering::Relaxed) {
                    if let Ok(length) = from.recv(&mut buffer) {
                        let datagram = &buffer[..length];
                        let fate = if length == 0 { Fate::Passes } else { fate(count) };
                        count += u64::from(length > 0);
                        match fate {
                            Fate::Passes => drop(to.send(datagram)),
                            Fate::Lost => drop(dropped.fetch_add(1, Ordering::Relaxed)),
                            Fate::Twice => drop((to.send(datagram), to.send(datagram))),
                            Fate::Late => {
                                late.push((clock::now().after(Duration::from_millis(60)), datagram.to_vec()));
                            }
                        }
                    }
                    late.retain(|(due, datagram)| {
                        let wait = clock::now() < *due;
                        if !wait {
                            drop(to.send(datagram));
                        }
                        wait
                    });
                }
            })
        };
        let threads = vec![carry(&near, &far), carry(&far, &near)];
        Self { client, server, ending, dropped, threads }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Asks over a path like that; the report, and how many each end counted.
fn over(
    relay: &Relay,
    sizes: Sizes,
    pace: Option<PerSecond>,
    timeout: Duration,
) -> (ExchangeReport, u64, u64) {
    let fd = |socket: &UdpSocket| OwnedFd::from(socket.try_clone().expect("clone"));
    let manner = if pace.is_some() { Manner::Epoll } else { Manner::Block };
    let answering = Engine::prepare(crew(vec![fd(&relay.server)], Manner::Block), move |place| {
        datagram::Responding::new(sizes, place)
    })
    .expect("responder");
    let book = Book::new(1, pace);
    let pages = Arc::clone(&book);
    let crew = crew(vec![fd(&relay.client)], manner);
    datagram::bound_waits(&crew.sockets, timeout).expect("timeouts");
    let mut asking = Engine::prepare(crew, move |place| {
        datagram::Requesting::new(sizes, timeout, pages.page(place), place.manner)
    })
    .expect("requester");
    let report = ask_for(&mut asking, &book, Duration::from_millis(600));
    (report, units(&asking), units(&answering))
}

#[test]
fn what_is_lost_is_asked_for_again_and_timed_from_its_beginning() {
    let timeout = Duration::from_millis(30);
    for (in_flight, pace) in [(1, None), (4, None), (1, Some(PerSecond(500))), (16, Some(PerSecond(500)))] {
        let relay = Relay::new(|count| if count % 20 == 7 { Fate::Lost } else { Fate::Passes });
        let (report, asked, answered) = over(&relay, sizes(8, 8, in_flight), pace, timeout);
        let lost = relay.dropped.load(Ordering::Relaxed);
        println!("{in_flight} {pace:?}: {asked} of {answered}, {lost} lost, {} again", report.resends);
        // On a busy machine a response may also be too late, and be asked for again in vain.
        assert!(asked > 30 && answered >= asked, "{asked} {answered}");
        assert!(report.resends > 2, "{} resends, {lost} lost", report.resends);
        let max = Duration::from_nanos(report.latency.max().expect("one"));
        assert!(max >= timeout.mul_f64(0.99), "a resend is not a new beginning: {max:?}");
        assert!(report.unanswered <= in_flight as u64 + 250, "{}", report.unanswered);
    }
}

#[test]
fn responses_that_come_twice_or_late_are_nobodys() {
    let timeout = Duration::from_millis(20);
    for (bytes, in_flight) in [(1, 1), (8, 1), (8, 8)] {
        let relay = Relay::new(|count| match count % 10 {
            3 => Fate::Twice,
            7 => Fate::Late,
            _ => Fate::Passes,
        });
        let (report, asked, answered) = over(&relay, sizes(bytes, bytes, in_flight), None, timeout);
        println!("{bytes} bytes, {in_flight}: {asked} of {answered}, {} again", report.resends);
        assert!(report.resends > 2);
        // Every request that came twice was answered twice, and counted once.
        assert!(asked > 20 && answered > asked, "{asked} {answered}");
        assert!(asked <= report.begun, "{asked} of {}", report.begun);
    }
}

#[test]
fn a_responder_answers_requests_of_its_peer_one_for_one_and_nothing_else() {
    let [client, server] = [0, 1].map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind"));
    client.connect(server.local_addr().expect("address")).expect("connect");
    server.connect(client.local_addr().expect("address")).expect("connect");
    for end in [&client, &server] {
        end.set_nonblocking(true).expect("nonblocking");
    }
    let place = Place { manner: Manner::Epoll, ..ONE };
    for (request, response) in [(40, 500), (40, 3), (41, 41), (1, 100)] {
        let mut answering = datagram::Responding::new(sizes(request, response, 1), place).expect("buffers");
        let mut says = |bytes: &[u8]| {
            client.send(bytes).expect("send");
            let moved = answering.step(server.as_fd()).expect("step");
            let mut buffer = [0; 1000];
            let mut answers = Vec::new();
            while let Ok(length) = socket::recv(client.as_fd(), &mut buffer, Flags::NONE) {
                answers.push(buffer[..length].to_vec());
            }
            (moved, answers)
        };
        let hello = DataHello { token: Token::from_random([9; 16]), run: RunId(1), flow: FlowIndex(0) };
        for stray in [&hello.encode()[..], &[1; 39], &[7; 600]] {
            if stray.len() != request || stray.starts_with(&hello.encode()) {
                assert_eq!(says(stray), (Moved::Units(0), Vec::new()), "{} bytes", stray.len());
            }
        }
        let mut asked = vec![0x55; request];
        asked[0] = 0;
        let (moved, answers) = says(&asked);
        assert_eq!((moved, answers.len()), (Moved::Units(1), 1));
        let number = 8.min(request).min(response);
        assert_eq!((answers[0].len(), &answers[0][..number]), (response, &asked[..number]));
        assert_eq!(says(&[]), (Moved::End, Vec::new()), "nothing at all is the leave");
    }
}

#[test]
fn several_flows_of_a_worker_end_at_a_leave_and_where_all_leaves_were_lost() {
    for leaves in [true, false] {
        let pairs: Vec<(UdpSocket, UdpSocket)> = (0..5)
            .map(|_| {
                let [a, b] = [0, 1].map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind"));
                a.connect(b.local_addr().expect("address")).expect("connect");
                b.connect(a.local_addr().expect("address")).expect("connect");
                (a, b)
            })
            .collect();
        let sockets = pairs.iter().map(|(_, b)| b.try_clone().expect("clone").into()).collect();
        let mut answering = Engine::prepare(crew(sockets, Manner::Block), |place| {
            datagram::Responding::new(sizes(1, 1, 1), place)
        })
        .expect("responder");
        for (a, _) in &pairs {
            a.send(&[1]).expect("send");
            a.recv(&mut [0]).expect("an answer");
        }
        if leaves {
            for (a, _) in &pairs {
                a.send(&[]).expect("leave");
            }
        } else {
            answering.hang_up();
        }
        let limit = clock::now().after(Duration::from_secs(2));
        while !answering.is_over() {
            assert!(clock::now() < limit, "the responders do not end: leaves {leaves}");
            clock::sleep_until(clock::now().after(Duration::from_millis(1)));
        }
        assert_eq!(units(&answering), 5);
    }
}

#[test]
fn sizes_ask_for_one_message_at_least_and_for_no_more_than_is_under_way() {
    assert_eq!(sizes(1, 1, 1).span(1), 1);
    assert_eq!(sizes(1, 1, 16).span(1), 16);
    assert_eq!(sizes(1, 1, 4096).span(100), 64 << 10);
    assert_eq!(sizes(1, 1, 8).span(1 << 20), 1 << 20);
    let spec = crate::RunSpec { request: ByteCount(3), response: ByteCount(5), ..crate::RunSpec::default() };
    let of = Sizes::of(&spec).expect("sizes");
    assert_eq!((of.request, of.response, of.in_flight), (3, 5, 1));
}

#[test]
fn a_report_that_cannot_be_true_is_refused() {
    let good = ExchangeReport { begun: 5, ..ExchangeReport::default() };
    assert_eq!(good.check(), Ok(()));
    let mut long = good.clone();
    long.latency.record_n(1, 6).expect("counts");
    let most = Some(u64::MAX);
    let ports = |ports| ExchangeReport { ports: Some(ports), ..good.clone() };
    for bad in [
        long,
        ExchangeReport { begun: u64::MAX, ..good.clone() },
        ExchangeReport { unanswered: u64::MAX, ..good.clone() },
        ExchangeReport { resends: u64::MAX, ..good.clone() },
        ports(PortsReport { held: u64::MAX, ..PortsReport::default() }),
        ExchangeReport { namespace_retransmits: most, ..good.clone() },
    ] {
        assert!(bad.check().is_err(), "{bad:?}");
    }
}
