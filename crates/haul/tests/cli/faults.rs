//! Peers that vanish, stall, stop or are somebody else, and users who stop: each ends soon, by name, with what there is.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use haul_results::record::{Document, Status};
use haul_stats::{Metric, Scope};

use crate::peers::{FUTURE_HELLO, Stranger, Treat, relay, stranger};
use crate::process::{BOUND, Ended, Running, signal, value, wait_until, words};
use crate::site::{Named, Server, Site, note, tool};

const DIRECTIONS: [&str; 2] = ["send", "receive"];

/// A server gives a silent client up after 8 s.
const FREED_WITHIN: Duration = Duration::from_secs(9);

#[test]
fn a_client_that_is_stopped_for_ever_holds_its_place_for_nine_seconds_at_most_and_is_named_meanwhile() {
    for direction in DIRECTIONS {
        let site = Site::new();
        let before = site.server_features();
        let mut server = site.serve(&["--sessions", "1", "--allow-settings"]);
        let target = server.target();
        let mut frozen = site.client(&words(&format!(
            "ab stream {target} --arm a:server:nic.tx-nocache-copy=on --arm \
                b:server:nic.tx-nocache-copy=on,opt.message=64K --pairs 6 -t 30s --warmup 100ms \
                --direction {direction}"
        )));
        server.says("TCP stream");
        thread::sleep(Duration::from_millis(300));
        assert!(frozen.is_running());
        assert_ne!(site.server_features(), before, "both arms have a setting of the server in force");
        frozen.signal("STOP");
        let stopped = Instant::now();

        let refused = site.run(&["stream", &target, "-t", "300ms", "--format", "json"]);
        let failure = refused.document().failure.expect("the only place is taken");
        assert_eq!(failure.exit, 4);
        for needle in ["busy", "ada@", "198.18.0.1", "holds its only session since", "--sessions"] {
            assert!(failure.text.contains(needle), "'{needle}' is missing from: {}", failure.text);
        }

        server.says("ended: ");
        let freed = stopped.elapsed();
        note(&format!("{direction}: free after {freed:?}"));
        assert!(freed < FREED_WITHIN + Duration::from_secs(1), "{direction}: {freed:?}");
        assert!(server.log().contains("nothing heard from the other end"), "{}", server.log());
        assert_eq!(site.server_features(), before, "what the client had changed is back");
        assert!(site.there.journals().is_empty());
        site.run(&["stream", &target, "-t", "300ms", "--warmup", "50ms", "--format", "json"]).complete();
    }
}

#[test]
fn a_path_that_goes_down_is_a_lost_peer_at_both_ends_within_seconds() {
    let site = Site::new();
    let mut server = site.serve(&["--sessions", "1"]);
    let running =
        site.client(&["stream", &server.target(), "-t", "60s", "--warmup", "100ms", "--format", "json"]);
    server.says("TCP stream");
    thread::sleep(Duration::from_millis(400));
    let device = site.lab.client_dev.index;
    site.lab.client.run(|| haul_host::link::set_up(device, false).unwrap()).unwrap();
    let cut = Instant::now();
    let ended = running.end_within(Duration::from_secs(20));
    assert!(cut.elapsed() < Duration::from_secs(13), "{:?}", cut.elapsed());
    let document = ended.document();
    let failure = document.failure.expect("the path is down");
    assert!(failure.exit == 4 && failure.text.contains("lost the server 198.18.0.2"), "{}", failure.text);
    let own = value(&document.runs[0], Metric::BytesTotal, Scope::Sender);
    assert!(own > 0.0, "what this end had seen is kept");
    server.says("ended: ");
}

#[test]
fn strangers_at_the_door_keep_nobody_out_and_are_named_once_each() {
    let site = Site::new();
    let mut server = site.serve(&[]);
    let connect = || site.lab.client.run(|| TcpStream::connect(server.addr).unwrap()).unwrap();
    let silent = connect();
    let words: [(&[u8], &str); 6] = [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
        (b"k3ol5ybqm4q6cn3kvqdbfxtyevoczdgpdjmt\0", "iperf3 client"),
        (&[0xa5; 37], "a5 a5 a5"),
        (&FUTURE_HELLO, "install the same release"),
    ];
    for (hello, _) in words {
        let mut stream = connect();
        stream.write_all(hello).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut rest = Vec::new();
        let begun = Instant::now();
        // It ends in order or by a reset.
        let _ = stream.read_to_end(&mut rest);
        assert!(begun.elapsed() < Duration::from_secs(4), "{hello:02x?}: {:?}", begun.elapsed());
        assert!(
            rest.is_empty() || rest.starts_with(&FUTURE_HELLO[..8]),
            "a stranger is told nothing: {rest:02x?}"
        );
    }
    let begun = Instant::now();
    site.run(&["stream", &server.target(), "-t", "300ms", "--warmup", "50ms", "--format", "json"]).complete();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    drop(silent);
    server.says("done");
    for (_, name) in words {
        let told =
            server.log().lines().filter(|line| line.contains("turned away") && line.contains(name)).count();
        assert_eq!(told, 1, "{name}: {}", server.log());
    }
    assert!(!server.log().contains("panicked"));
}

#[test]
fn whatever_answers_in_place_of_haul_is_named_within_two_seconds() {
    let site = Site::new();
    let address = site.lab.server_addr;
    let mut iperf3 = tool("iperf3", "iperf3");
    iperf3.args(["-s", "-p", "5299", "-B", &address.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
    let _iperf3 = site.lab.server.run(|| Running::start_as_is(iperf3)).unwrap();
    wait_until("the iperf3 server", BOUND, || {
        site.lab.client.run(|| TcpStream::connect((address, 5299)).is_ok()).unwrap()
    });
    // The look at the port was an iperf3 client that left: the server needs an instant to be rid of it.
    thread::sleep(Duration::from_millis(300));
    let at = |kind| stranger(&site.lab.server, address, kind);
    let strangers = [
        (at(Stranger::Silent), "silence"),
        (at(Stranger::Closes), "closed before a word was said"),
        (at(Stranger::Answers(b"HTTP/1.0 400 Bad request\r\n\r\n")), "HTTP"),
        (at(Stranger::Answers(b"\x15\x03\x01\x00\x02\x02\x46")), "TLS"),
        (at(Stranger::Greets(b"SSH-2.0-OpenSSH_9.6\r\n")), "SSH"),
        (at(Stranger::Greets(b"220 mail.example ESMTP\r\n")), "the text '220 mail.example ESMTP'"),
        (at(Stranger::Answers(&[0xa5; 37])), "a5 a5 a5"),
        (at(Stranger::Answers(&FUTURE_HELLO)), "install the same release at both ends"),
    ];
    let mut targets: Vec<(String, &str)> =
        strangers.iter().map(|(listening, found)| (listening.target(), *found)).collect();
    targets.push((format!("{address}:5299"), "iperf3 server"));
    for (target, found) in targets {
        let begun = Instant::now();
        let ended = site.run(&["stream", &target, "--format", "json"]);
        let took = begun.elapsed();
        let failure = ended.document().failure.expect("no haul answers there");
        assert_eq!(failure.exit, 4, "{}", failure.text);
        assert!(failure.text.contains(found), "'{found}' is missing from: {}", failure.text);
        // 1.5 s is the longest a client listens to a stranger; the rest is this machine.
        assert!(took < Duration::from_secs(4), "{found}: {took:?}");
        assert!(ended.document().elapsed_s < 2.5, "{found}: {} s", ended.document().elapsed_s);
    }
}

/// Stops one end and then the other for 100 to 300 ms around the end of each of many short runs.
fn torment(direction: &str) {
    const RUNS: usize = 50;
    let site = Site::new();
    let mut server = site.serve(&[]);
    let client = site.client(&words(&format!(
        "stream {} --runs {RUNS} -t 300ms --warmup 350ms --interval 100ms --direction {direction}",
        server.target()
    )));
    let (near, far) = (client.pid(), server.pid());
    let begun = |server: &Server| server.log().matches("TCP stream").count();
    let mut random = 0x9e37_79b9_u64;
    let (mut number, mut stops) = (0, 0);
    while number < RUNS {
        wait_until("the next run", BOUND, || begun(&server) > number);
        number = begun(&server);
        let shown = client.said().matches("bit/s").count();
        // Two thirds of the window have passed, or one where this machine is slow to show it: there is a result to lose.
        // What of a stop reaches into the next run falls into its warm-up.
        wait_until("intervals of this run, or the next one", BOUND, || {
            client.said().matches("bit/s").count() >= shown + 2 || begun(&server) > number || number == RUNS
        });
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let part = random >> 33;
        thread::sleep(Duration::from_millis(part % 120));
        if begun(&server) == number && number < RUNS {
            let victim = if number % 2 == 0 { near } else { far };
            signal(victim, "STOP");
            thread::sleep(Duration::from_millis(100 + part % 200));
            signal(victim, "CONT");
            stops += 1;
        }
    }
    let ended = client.end();
    assert!(ended.is_calm() && ended.code == Some(0), "{direction}: {}", ended.out);
    assert!(ended.out.contains(&format!("complete: {RUNS} runs")), "{direction}: {}", ended.out);
    assert!(!ended.out.contains("drain_timed_out"), "{direction}: {}", ended.out);
    assert!(stops > RUNS / 2, "only {stops} of {RUNS} runs were disturbed");
    server.says("done");
}

#[test]
fn short_runs_to_the_server_all_give_results_while_an_end_is_stopped_around_the_deadline() {
    torment("send");
}

#[test]
fn short_runs_from_the_server_all_give_results_while_an_end_is_stopped_around_the_deadline() {
    torment("receive");
}

/// The document of an interrupted run, or its text checked for the same.
fn interrupted(ended: &Ended, format: &str) -> Option<Document> {
    assert!(ended.is_calm(), "{ended:?}");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    if format == "text" {
        assert!(ended.out.contains("interrupted"), "{}", ended.out);
        return None;
    }
    let document = ended.document();
    assert_eq!(document.status, Status::Interrupted, "{:?}", document.failure);
    Some(document)
}

#[test]
fn a_client_interrupted_in_its_window_reports_what_it_has_with_the_real_time() {
    for (signal, format) in
        [("INT", "json"), ("TERM", "json"), ("INT", "text"), ("TERM", "text"), ("HUP", "json")]
    {
        let site = Site::new();
        let mut server = site.serve(&[]);
        let target = server.target();
        let running = site.client(&["stream", &target, "-t", "60s", "--warmup", "100ms", "--format", format]);
        server.says("TCP stream");
        thread::sleep(Duration::from_millis(700));
        running.signal(signal);
        let sent = Instant::now();
        let ended = running.end_within(Duration::from_secs(20));
        assert!(sent.elapsed() < Duration::from_secs(8), "{signal}, {format}: {:?}", sent.elapsed());
        if let Some(document) = interrupted(&ended, format) {
            let run = &document.runs[0];
            assert_eq!((document.runs.len(), run.status), (1, Status::Interrupted));
            let window = value(run, Metric::Window, Scope::Receiver);
            assert!(window > 0.1 && window < ended.took.as_secs_f64(), "{window} s of {:?}", ended.took);
            assert!(value(run, Metric::Throughput, Scope::Receiver) > 0.0);
        }
        server.says("done");
        site.run(&["stream", &target, "-t", "300ms", "--warmup", "50ms", "--format", "json"]).complete();
    }
}

#[test]
fn a_client_interrupted_in_its_warm_up_says_so_and_shows_no_number() {
    for (signal, format) in [("INT", "json"), ("TERM", "text")] {
        let site = Site::new();
        let mut server = site.serve(&[]);
        let running = site.client(&["stream", &server.target(), "--warmup", "60s", "--format", format]);
        server.says("TCP stream");
        thread::sleep(Duration::from_millis(300));
        running.signal(signal);
        let sent = Instant::now();
        let ended = running.end_within(Duration::from_secs(20));
        assert!(sent.elapsed() < Duration::from_secs(8), "{signal}, {format}: {:?}", sent.elapsed());
        if let Some(document) = interrupted(&ended, format) {
            for run in &document.runs {
                let rate = run.readings.iter().find(|reading| reading.metric == Metric::Throughput);
                assert!(rate.is_none_or(|rate| rate.value.is_none()), "no window, no rate: {rate:?}");
            }
        }
        server.says("done");
    }
}

#[test]
fn a_client_interrupted_while_its_flows_are_being_connected_ends_at_once() {
    for (signal, format) in [("INT", "json"), ("TERM", "text")] {
        let site = Site::new();
        let mut server = site.serve(&[]);
        let never = relay(&site.lab.server, server.addr, |_| Treat::Late(Duration::from_mins(10)));
        let running = site.client(&["stream", &never.target(), "--format", format]);
        server.says("TCP stream");
        thread::sleep(Duration::from_millis(300));
        running.signal(signal);
        let sent = Instant::now();
        let ended = running.end_within(Duration::from_secs(30));
        assert!(sent.elapsed() < Duration::from_secs(4), "{signal}, {format}: {:?}", sent.elapsed());
        interrupted(&ended, format);
        server.says("done");
    }
}

#[test]
fn an_interrupt_between_and_in_the_runs_of_a_comparison_keeps_the_runs_made_and_puts_the_arm_back() {
    for (signal, target) in [("INT", "lab"), ("TERM", "")] {
        let site = Site::new();
        let server = site.serve(&["--allow-settings"]);
        let before = (site.client_features(), site.server_features());
        let address = server.target();
        let target = if target.is_empty() { &address } else { target };
        let mut running = site.client(&words(&format!(
            "ab stream {target} --arm off: --arm on:both:nic.tx-nocache-copy=on --pairs 500 -t \
                100ms --warmup 20ms --format json"
        )));
        thread::sleep(Duration::from_millis(2500));
        assert!(running.is_running(), "{}", running.said());
        running.signal(signal);
        let document = interrupted(&running.end_within(Duration::from_secs(20)), "json").unwrap();
        assert!(document.runs.iter().filter(|run| run.status == Status::Complete).count() >= 2);
        assert!(site.here.journals().is_empty() && site.there.journals().is_empty());
        assert_eq!((site.client_features(), site.server_features()), before, "{target}");
    }
}

#[test]
fn a_server_that_is_stopped_tells_its_client_which_keeps_its_half() {
    for (signal, format) in [("INT", "json"), ("TERM", "text"), ("TERM", "json")] {
        let site = Site::new();
        let mut server = site.serve(&[]);
        let running =
            site.client(&["stream", &server.target(), "-t", "60s", "--warmup", "100ms", "--format", format]);
        server.says("TCP stream");
        thread::sleep(Duration::from_millis(600));
        server.signal(signal);
        let sent = Instant::now();
        let ended = running.end_within(Duration::from_secs(20));
        assert!(sent.elapsed() < Duration::from_secs(8), "{:?}", sent.elapsed());
        assert!(ended.is_calm() && ended.code == Some(4), "{ended:?}");
        let why = format!("the server was stopped by SIG{signal}");
        if format == "json" {
            let document = ended.document();
            let failure = document.failure.unwrap();
            assert!(failure.text.contains(&why), "{}", failure.text);
            let run = &document.runs[0];
            assert!(value(run, Metric::BytesWindow, Scope::Sender) > 0.0, "partial numbers of this end");
            let lost =
                run.readings.iter().find(|it| it.metric == Metric::Throughput && it.scope == Scope::Receiver);
            assert!(lost.is_some_and(|it| it.value.is_none() && it.reason.is_some()), "{lost:?}");
        } else {
            let plain = ended.out.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(plain.contains(&why), "{}", ended.out);
        }
        let over = server.end_within(Duration::from_secs(10));
        assert!(over.is_calm() && over.code == Some(0), "{over:?}");
        assert!(over.err.contains(&format!("stopped by SIG{signal}")), "{}", over.err);
    }
}

#[test]
fn a_server_that_is_killed_is_a_lost_peer_and_one_that_hangs_too() {
    for (signal, needle) in
        [("KILL", "closed the connection"), ("STOP", "nothing heard from the other end for 8")]
    {
        let site = Site::new();
        let mut server = site.serve(&[]);
        let running =
            site.client(&["stream", &server.target(), "-t", "60s", "--warmup", "100ms", "--format", "json"]);
        server.says("TCP stream");
        thread::sleep(Duration::from_millis(500));
        server.signal(signal);
        let sent = Instant::now();
        let ended = running.end_within(Duration::from_secs(30));
        assert!(sent.elapsed() < Duration::from_secs(13), "{signal}: {:?}", sent.elapsed());
        let document = ended.document();
        let failure = document.failure.unwrap();
        assert_eq!(failure.exit, 4, "{}", failure.text);
        let text = failure.text;
        assert!(text.contains(needle) || (signal == "KILL" && text.contains("reset")), "{signal}: {text}");
        assert!(text.contains("lost the server 198.18.0.2"), "{text}");
        assert!(value(&document.runs[0], Metric::BytesTotal, Scope::Sender) > 0.0);
    }
}

#[test]
fn the_fingerprint_of_both_ends_is_of_the_devices_on_the_path_between_them() {
    let named = Named::new();
    let homes = (crate::process::Home::new(), crate::process::Home::new());
    let listen = format!("{}:4285", Named::SERVER_ADDRESS);
    let mut server =
        named.server_netns.run(|| Running::start(homes.1.haul(&["serve", "--listen", &listen]))).unwrap();
    server.says("listening");
    let arguments = ["env", Named::SERVER_ADDRESS, "--format", "json"];
    let document =
        named.client_netns.run(|| Running::start(homes.0.haul(&arguments))).unwrap().end().complete();
    let device = |facts: Option<haul_results::record::Facts>| facts.unwrap()["nic.name"].value.clone();
    assert_eq!(device(document.environment.client).as_deref(), Some(Named::CLIENT_DEVICE));
    assert_eq!(device(document.environment.server).as_deref(), Some(Named::SERVER_DEVICE));
}

#[test]
fn a_server_that_is_restarted_costs_a_run_and_not_the_experiment() {
    let site = Site::new();
    let server = site.serve(&[]);
    let (target, addr) = (server.target(), server.addr.to_string());
    let mut arguments = vec!["ab", "stream", &target, "-t", "200ms", "--warmup", "20ms", "--pairs", "10"];
    arguments.extend(["--arm", "a:", "--arm", "b:opt.message=1K", "--format", "json"]);
    let running = site.client(&arguments);
    thread::sleep(Duration::from_millis(1_500));
    server.signal("KILL");
    thread::sleep(Duration::from_millis(1_500));
    let _again = site.serve_as(site.there.haul(&["serve", "--listen", &addr]));
    let document = running.end().complete();
    let failed = document.runs.iter().filter(|run| run.status == Status::Failed).count();
    assert!(
        document.runs.len() == 20 && (1..=2).contains(&failed),
        "{failed} of {} failed",
        document.runs.len()
    );
}
