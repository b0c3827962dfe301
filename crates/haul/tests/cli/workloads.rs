//! Every workload through the command line, between two hosts of this machine.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, Instant};

use haul_results::record::{Document, Kind, Status};
use haul_stats::{DoubtId, Metric, Scope, Value};
use serde_json::Value as Json;

use crate::process::{Home, Running, count, doubts, value, words};
use crate::site::{Routed, Site, iproute, note};

#[test]
fn a_stream_both_ways_tells_the_ways_apart_and_counts_the_cost_once() {
    let site = Site::new();
    for target in ["lab", "lab:ipv6"] {
        let line = format!(
            "stream {target} --cc reno --direction both -t 600ms --warmup 300ms --format json --interval 200ms"
        );
        let document = site.run(&words(&line)).complete();
        let run = &document.runs[0];
        let (up, down) =
            (value(run, Metric::Throughput, Scope::Server), value(run, Metric::Throughput, Scope::Client));
        let total = value(run, Metric::Throughput, Scope::Run);
        assert!(up > 1e6 && down > 1e6 && (total - up - down).abs() < 1.0, "{up} + {down} = {total}");
        let busy: Vec<_> = run.readings.iter().filter(|it| it.metric == Metric::CpuBusy).collect();
        assert_eq!(busy.len(), 1, "one kernel, one figure: {busy:?}");
        for (direction, scope) in [("send", Scope::Server), ("receive", Scope::Client)] {
            let slices = run.intervals.iter().filter(|slice| slice.direction.as_deref() == Some(direction));
            let sum: u64 = slices.filter_map(|slice| slice.bytes).sum();
            assert_eq!(sum, count(run, Metric::BytesWindow, scope), "{direction}");
        }
    }
}

#[test]
fn a_run_by_amount_is_over_when_it_has_moved_it_and_fails_where_the_time_is_too_short() {
    let site = Site::new();
    for direction in ["send", "receive", "both"] {
        let line =
            format!("stream lab --cc reno --bytes 50M --flows 3 --direction {direction} --format json");
        let ended = site.run(&words(&line));
        let run = &ended.complete().runs[0];
        let scopes: &[Scope] = match direction {
            "both" => &[Scope::Client, Scope::Server],
            _ => &[Scope::Receiver],
        };
        for &scope in scopes {
            assert_eq!(count(run, Metric::BytesTotal, scope), 50 << 20, "{direction}");
        }
        assert!(ended.took < Duration::from_secs(20), "{direction}: {:?}", ended.took);
    }
    let ended = site.run(&words("stream lab --bytes 1T --time 300ms --format json"));
    let document = ended.document();
    assert_eq!(document.runs[0].status, Status::Failed);
    let text = document.runs[0].failure.as_ref().map_or("", |failure| failure.text.as_str());
    assert!(text.contains("of 1099511627776 bytes") && text.contains("--time"), "{text}");
}

#[test]
fn a_file_to_send_may_have_any_name_and_is_looked_at_before_anything_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(OsStr::from_bytes(b"a\xffb"));
    fs::write(&path, vec![7; 300_000]).unwrap();
    let home = Home::new();
    let mut command =
        home.haul(&words("stream loopback -t 300ms -m 64K --send-with sendfile --format json --send-file"));
    command.arg(&path);
    let document = Running::start(command).end().complete();
    let named = document.runs[0].effective["send_file"].as_str().unwrap_or_default();
    assert!(named.ends_with("a\u{fffd}b"), "{named}");
    assert_eq!(document.options.requested["send_file"], named);
    // None of these reaches the other end, of which there is none.
    for (line, needle) in [
        ("--send-file /nowhere/x", "--send-file: cannot open /nowhere/x"),
        ("--send-file /proc", "--send-file: '/proc' is not a regular file"),
        ("--send-file /proc/self/status", "has 0 bytes, and a message 128 KiB"),
    ] {
        let line = format!("stream 127.0.0.1:1 --send-with splice {line}");
        let ended = Running::start(home.haul(&words(&line))).end();
        assert!(ended.is_calm() && ended.code == Some(2) && ended.err.contains(needle), "{line}: {ended:?}");
    }
    let line = "ab stream 127.0.0.1:1 --send-with splice --arm a:opt.send-file=memory --arm b:opt.send-file=/nowhere/x";
    let ended = Running::start(home.haul(&words(line))).end();
    assert!(ended.code == Some(2) && ended.err.contains("arm 'b': --send-file: cannot open"), "{ended:?}");
    let ended =
        Running::start(home.haul(&words("ab rr 127.0.0.1:1 --send-file x --arm a: --arm b:opt.spin=on")))
            .end();
    assert!(ended.code == Some(2) && ended.err.contains("an option of a stream"), "{ended:?}");
}

#[test]
fn times_without_a_unit_are_seconds_as_in_other_tools() {
    let site = Site::new();
    let line = "stream lab --cc reno -t 1 --warmup 0.1 --interval 0.5";
    let document = site.run(&words(&format!("{line} --format json"))).complete();
    let requested = &document.options.requested;
    assert_eq!((&requested["time_s"], &requested["warmup_s"]), (&1.0.into(), &0.1.into()), "{requested}");
    assert_eq!(document.runs[0].intervals.len(), 2);
    let help = site.run(&["stream", "--help"]).out;
    assert!(help.contains("in seconds or with a unit, as 500ms"), "{help}");
}

#[test]
fn slices_are_told_as_they_pass_in_a_unit_that_suits_the_rate_and_not_at_all_where_quiet() {
    let site = Site::new();
    let line = "stream lab --cc reno -t 600ms --warmup 100ms --interval 200ms --message 8K --rate 20M";
    let told = site.run(&words(line));
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(told.err.contains(" Mbit/s") && !told.err.contains("Gbit/s"), "{}", told.err);
    let table = told.out.split_once("\nintervals\n").expect("a table of them").1;
    let rows = table.lines().skip(3).take_while(|line| !line.is_empty()).count();
    assert_eq!(told.err.lines().count(), rows, "each of them, the last too: {} {}", told.err, told.out);
    let quiet = site.run(&words(&format!("{line} -q")));
    assert_eq!((quiet.code, quiet.err.as_str()), (Some(0), ""), "{quiet:?}");
    assert!(quiet.out.contains("intervals"), "the result has them all the same: {}", quiet.out);
}

#[test]
fn events_come_as_lines_while_it_runs_and_the_document_comes_last() {
    let site = Site::new();
    let line = "stream lab --cc reno -t 1s --warmup 100ms --interval 100ms --runs 2 --format jsonl";
    let running = site.client(&words(line));
    let began = Instant::now();
    let mut seen_early = 0;
    while seen_early == 0 && began.elapsed() < Duration::from_secs(5) {
        seen_early = running.shown().lines().filter(|line| line.contains("\"interval\"")).count();
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(seen_early > 0 && began.elapsed() < Duration::from_millis(1_500), "not while it runs");
    let ended = running.end();
    let events: Vec<Json> =
        ended.out.lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect();
    let names: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    let count = |name: &str| names.iter().filter(|it| **it == name).count();
    assert!(count("interval") >= 18 && count("begins") == 2 && count("ended") == 2, "{names:?}");
    assert_eq!((names[0], names[names.len() - 1]), ("checking", "document"));
    let document: Document = serde_json::from_value(events[events.len() - 1]["document"].clone()).unwrap();
    assert_eq!((document.runs.len(), document.status), (2, Status::Complete));
    let wrong = site.run(&words("stream lab --flows 0 --format jsonl"));
    let last: Json = serde_json::from_str(wrong.out.lines().last().unwrap()).unwrap();
    assert_eq!((wrong.code, last["document"]["failure"]["exit"].as_u64()), (Some(2), Some(2)));
}

#[test]
fn a_reader_of_events_who_stops_holds_up_no_run() {
    let site = Site::new();
    // The pipe is never read: 64 KiB and the queue are all there is room for.
    let line = "stream lab --cc reno -t 2s --warmup 50ms --interval 10ms --format jsonl";
    let mut command = site.here.haul(&words(line));
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.stdin(std::process::Stdio::null()).spawn().unwrap();
    let out = child.stdout.take().unwrap();
    std::thread::sleep(Duration::from_secs(4));
    let text = std::io::read_to_string(out).unwrap();
    child.wait().unwrap();
    let last: Json = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let document: Document = serde_json::from_value(last["document"].clone()).unwrap();
    assert_eq!(document.status, Status::Complete);
    assert!(document.elapsed_s < 3.5, "{}", document.elapsed_s);
    assert!(document.runs[0].intervals.len() > 150, "{}", document.runs[0].intervals.len());
}

#[test]
fn a_client_in_line_is_served_when_its_turn_comes_and_not_before_it_has_said_what_it_waits_for() {
    let site = Site::new();
    let server = site.serve(&["--sessions", "1"]);
    let target = server.target();
    let holder = site.client(&["stream", &target, "-t", "2s", "--warmup", "50ms", "--format", "json"]);
    std::thread::sleep(Duration::from_millis(600));
    let refused = site.run(&["stream", &target, "-t", "200ms", "--format", "json"]);
    let failure = refused.document().failure.expect("busy");
    assert!(failure.exit == 4 && failure.text.contains("busy"), "{}", failure.text);
    let mut waiting = site.client(&["stream", &target, "-t", "200ms", "--queue=30s", "--format", "json"]);
    waiting.says("waiting in line");
    std::thread::sleep(Duration::from_millis(1_200));
    let said = waiting.said();
    assert!(said.contains("for 30 s at most") && said.contains("holds its only session"), "{said}");
    assert!(!said.contains("try again"), "it does so itself: {said}");
    let short = site.run(&["stream", &target, "-t", "200ms", "--queue=1ms", "--format", "json"]);
    assert_eq!(short.code, Some(4), "{short:?}");
    holder.end().complete();
    let waited = waiting.end();
    waited.complete();
    assert!(waited.err.contains("let in after"), "{}", waited.err);
    // All who asked come from one user of one host: one line that they wait, and one that the first of them is let in.
    let log = server.log();
    let told = |what: &str| log.lines().filter(|line| line.contains(what)).count();
    assert_eq!((told("this server is busy"), told("in line"), told("turned away")), (1, 1, 0), "{log}");
}

#[test]
fn ends_whose_interfaces_have_different_mtus_are_doubted() {
    let site = Site::new();
    let server = site.serve(&[]);
    let target = server.target();
    let run =
        || site.run(&["stream", &target, "-t", "200ms", "--warmup", "50ms", "--format", "json"]).complete();
    assert!(run().warnings.iter().all(|doubt| doubt.id != DoubtId::MtuMismatch));
    let device = haul_host::veth_lab::VethLab::SERVER_DEVICE;
    site.lab.server.run(|| iproute("ip", &format!("link set {device} mtu 1400"))).unwrap();
    let found = doubts(&run(), DoubtId::MtuMismatch);
    let [text] = found.as_slice() else { panic!("{found:?}") };
    assert!(text.contains("1500 at the client (haul-c)") && text.contains("1400 at the server"), "{text}");
}

#[test]
fn an_address_of_ipv4_is_shown_as_one_wherever_it_is_shown() {
    let site = Site::new();
    let server = site.serve_as(site.there.haul(&["serve", "--listen", "[::]:0"]));
    let target = format!("{}:{}", site.lab.server_addr, server.addr.port());
    for line in
        ["stream -t 300ms --warmup 50ms", "stream --udp --rate 10M -t 300ms --warmup 50ms", "crr -t 300ms"]
    {
        let mut arguments = words(line);
        arguments.insert(1, &target);
        let text = site.run(&arguments);
        arguments.extend(["--format", "json"]);
        let json = site.run(&arguments);
        let document = json.complete();
        for shown in [&text.out, &text.err, &json.out, &json.err] {
            assert!(!shown.contains("::ffff:"), "{line}: {shown}");
        }
        if line.starts_with("stream -t") {
            let socket = &document.runs[0].effective["server"]["socket"];
            assert!(socket["peer"].as_str().is_some_and(|peer| peer.starts_with("198.18.")), "{socket}");
        }
    }
    assert!(server.log().contains("(198.18.") && !server.log().contains("::ffff:"), "{}", server.log());
}

#[test]
fn a_client_in_line_goes_when_it_is_told_to() {
    let site = Site::new();
    let server = site.serve(&["--sessions", "1"]);
    let target = server.target();
    let _holder = site.client(&["stream", &target, "-t", "30s", "--format", "json"]);
    std::thread::sleep(Duration::from_millis(500));
    let mut waiting = site.client(&["stream", &target, "--queue", "--format", "json"]);
    waiting.says("waiting in line");
    waiting.signal("INT");
    let ended = waiting.end_within(Duration::from_secs(3));
    assert_eq!(ended.document().status, Status::Interrupted, "{ended:?}");
}

#[test]
fn what_marks_and_binds_a_packet_is_in_force_and_a_device_that_is_not_there_is_named() {
    let site = Site::new();
    let server = site.serve(&[]);
    let target = server.target();
    let device = haul_host::veth_lab::VethLab::CLIENT_DEVICE;
    let base = ["stream", &target, "-t", "200ms", "--warmup", "50ms", "--format", "json"];
    let with = |more: &[&'static str]| [&base[..], more].concat();
    let document = site.run(&with(&["--dscp", "AF41", "--mark", "7", "--bind-device", device])).complete();
    let socket = &document.runs[0].effective["client"]["socket"];
    assert_eq!(socket["tos"], 34 << 2, "{socket}");
    let wrong = site.run(&with(&["--bind-device", "nosuch0"])).document();
    let text = wrong.failure.map(|failure| failure.text).unwrap_or_default();
    assert!(text.contains("nosuch0"), "{text}");
}

#[test]
fn options_of_another_workload_are_refused_before_anything_is_made() {
    let site = Site::new();
    for (line, needle) in [
        ("ab rr lab --arm a: --arm b:opt.message=1K", "an option of a stream"),
        ("ab stream lab --arm a: --arm b:opt.request=1K", "an option of rr and crr"),
        ("ab rr lab --bytes 1G --arm a: --arm b:opt.request=2", "an option of a stream"),
        ("stream lab --segment", "add --udp"),
        ("stream lab --udp --cc reno", "leave --cc"),
        ("crr lab --udp", "rr --udp"),
        ("rr lab --udp --in-flight 4", "--in-flight 1"),
        ("stream lab --probe 100", "rr:RATE"),
        ("stream lab --bytes 1G --warmup 1s", "leave --warmup out"),
        ("rr lab --rate 1.5", "per second"),
        ("stream lab --placement pair --pin 0", "leave --pin out"),
    ] {
        let ended = site.run(&words(line));
        assert_eq!(ended.code, Some(2), "{line}: {ended:?}");
        assert!(ended.err.contains(needle), "{line}: '{needle}' is missing from {}", ended.err);
    }
}

/// What a document says of its first run, for whoever reads the log.
fn headline(document: &Document) -> String {
    let run = &document.runs[0];
    let (metric, scope) = match document.kind {
        Kind::Rr | Kind::Crr => (Metric::Transactions, Scope::Client),
        _ => (Metric::Throughput, Scope::Receiver),
    };
    format!("{:.0} {}", value(run, metric, scope), metric.facts().unit)
}

/// What an exchange is asked for, by how it is to go.
const EXCHANGES: [&str; 8] = [
    "rr TARGET",
    "rr TARGET --flows 16",
    "rr TARGET --request 1400 --response 14K --flows 3 --in-flight 4",
    "rr TARGET --udp",
    "rr TARGET --udp --flows 16 --request 100 --response 100 --in-flight 4",
    "rr TARGET --rate 2000/s --flows 4",
    "crr TARGET",
    "crr TARGET --flows 8 --close reset",
];

#[test]
fn every_exchange_runs_over_either_ip_and_its_latencies_and_counts_agree() {
    let site = Site::new();
    for target in ["lab", "lab:ipv6"] {
        for exchange in EXCHANGES {
            let line = format!("{exchange} -t 500ms --warmup 200ms --format json").replace("TARGET", target);
            let document = site.run(&words(&line)).complete();
            let run = &document.runs[0];
            note(&format!("{line}: {}", headline(&document)));
            let count = value(run, Metric::TransactionsWindow, Scope::Client);
            let (rate, window) =
                (value(run, Metric::Transactions, Scope::Client), value(run, Metric::Window, Scope::Client));
            assert!(
                count > 20.0 && (rate * window - count).abs() < 1e-6 * count,
                "{line}: {rate} × {window}"
            );
            let of = |metric| value(run, metric, Scope::Client);
            let (least, median, most) =
                (of(Metric::LatencyMin), of(Metric::LatencyP50), of(Metric::LatencyMax));
            assert!(0.0 < least && least <= median && median <= most, "{line}: {least} {median} {most}");
            let throughput = run.readings.iter().find(|it| it.metric == Metric::Throughput);
            assert_eq!(throughput, None, "{line}: an exchange has no throughput");
        }
    }
}

#[test]
fn a_stream_shows_no_latency_and_a_short_exchange_no_percentile_it_cannot_have() {
    let site = Site::new();
    let stream = site.run(&words("stream lab --cc reno -t 300ms --warmup 50ms --format json")).complete();
    let latency = stream.runs[0].readings.iter().find(|it| it.metric.facts().name.starts_with("latency"));
    assert_eq!(latency, None);
    // 71 transactions, of which the 99th percentile would be the greatest.
    let line = "rr lab --rate 71/s -t 1s --warmup 100ms --format json";
    let run = &site.run(&words(line)).complete().runs[0];
    assert!(value(run, Metric::LatencyP50, Scope::Client) > 0.0);
    for metric in [Metric::LatencyP99, Metric::LatencyP99_9, Metric::LatencyP99_99] {
        let reading = run.readings.iter().find(|it| it.metric == metric).expect("it is accounted for");
        let reason = reading.reason.as_deref().unwrap_or("");
        assert!(reading.value.is_none() && reason.contains("n too small"), "{reading:?}");
    }
}

#[test]
fn small_messages_in_two_parts_do_not_wait_for_a_delayed_acknowledgement() {
    let site = Site::new();
    let line = "rr lab --request 10 --response 10 -t 500ms --warmup 100ms --format json";
    let run = &site.run(&words(line)).complete().runs[0];
    let median = value(run, Metric::LatencyP50, Scope::Client);
    assert!(median < 1_000.0, "{median} µs: are messages sent in parts, or held back by Nagle?");
    assert_eq!(run.effective["client"]["socket"]["nodelay"], true);
    assert_eq!(run.effective["server"]["socket"]["nodelay"], true);
}

#[test]
fn a_stall_of_the_server_is_in_the_latencies_of_all_that_were_due_meanwhile() {
    let site = Site::new();
    let server = site.serve(&[]);
    for more in [&[][..], &["--udp", "--timeout", "10s"][..]] {
        let target = server.target();
        let mut arguments = vec!["rr", &target, "--rate", "1000/s", "-t", "6s", "--warmup", "200ms"];
        arguments.extend(["--in-flight", "1", "--format", "json"]);
        arguments.extend(more);
        let running = site.client(&arguments);
        std::thread::sleep(Duration::from_millis(1_300));
        server.signal("STOP");
        std::thread::sleep(Duration::from_secs(4));
        server.signal("CONT");
        let document = running.end().complete();
        assert!(!doubts(&document, DoubtId::Stalled).is_empty(), "{more:?}");
        let run = &document.runs[0];
        let of = |metric| value(run, metric, Scope::Client);
        note(&format!("p50 {} µs, stall {} µs", of(Metric::LatencyP50), of(Metric::LongestStall)));
        // Two thirds of the window's requests were due in the stall, and waited for half of it in the mean.
        assert!(of(Metric::LatencyP50) > 500_000.0, "{more:?}: {} µs", of(Metric::LatencyP50));
        assert!(of(Metric::LatencyMax) > 3_500_000.0, "{more:?}");
        assert!(of(Metric::LongestStall) > 3_500_000.0, "{more:?}");
        assert!((of(Metric::TransactionsWindow) - 6_000.0).abs() < 600.0, "{more:?}");
    }
}

#[test]
fn a_closed_loop_tells_its_stall_and_is_called_service_time() {
    let site = Site::new();
    let server = site.serve(&[]);
    let target = server.target();
    let running = site.client(&["rr", &target, "-t", "3s", "--warmup", "200ms", "--format", "json"]);
    std::thread::sleep(Duration::from_millis(1_200));
    server.signal("STOP");
    std::thread::sleep(Duration::from_secs(1));
    server.signal("CONT");
    let document = running.end().complete();
    let run = &document.runs[0];
    assert!(value(run, Metric::LongestStall, Scope::Client) > 800_000.0);
    assert!(value(run, Metric::LatencyP50, Scope::Client) < 100_000.0, "one slow sample among thousands");
    assert!(!doubts(&document, DoubtId::Stalled).is_empty(), "{:?}", run.warnings);
}

#[test]
fn latency_beside_a_load_is_told_with_the_latency_without_it() {
    let site = Site::new();
    for line in [
        "stream lab --cc reno -t 2s --warmup 200ms --probe rr:500/s --format json",
        "stream lab:ipv6 --udp --rate 100M -t 2s --warmup 200ms --probe rr:500/s --format json",
        "stream lab --cc reno --direction both -t 2s --warmup 200ms --probe rr:500/s --format json",
    ] {
        let run = &site.run(&words(line)).complete().runs[0];
        let of = |metric| value(run, metric, Scope::Run);
        let (idle, loaded) = (of(Metric::ProbeIdleP50), of(Metric::ProbeLoadedP50));
        note(&format!("{line}: {idle} → {loaded} µs"));
        assert!(idle > 1.0 && loaded > 1.0, "{line}");
        let count = run.readings.iter().filter(|it| it.metric == Metric::Transactions).count();
        assert_eq!(count, 0, "the probe's own rate is nobody's headline");
    }
}

#[test]
fn datagrams_add_up_in_every_mode_and_are_lost_where_they_were_lost() {
    let site = Site::new();
    for target in ["lab", "lab:ipv6", "lab:mtu=1280", "loopback"] {
        for mode in [
            "",
            " --batch 32",
            " --segment",
            " --gro",
            " --segment --gro",
            " --rate 100M",
            " --direction receive",
        ] {
            let line = format!("stream {target} --udp{mode} -t 400ms --warmup 200ms --format json");
            let document = site.run(&words(&line)).complete();
            let run = &document.runs[0];
            let sent = count(run, Metric::PacketsSent, Scope::Sender);
            let received = count(run, Metric::PacketsReceived, Scope::Receiver);
            let gone = count(run, Metric::Lost, Scope::Receiver);
            let parts: u64 = [Metric::LostSender, Metric::LostPath, Metric::LostReceiver]
                .map(|part| run.readings.iter().find(|it| it.metric == part).and_then(|it| it.value))
                .into_iter()
                .map(|part| match part {
                    Some(Value::Int(count)) => count,
                    _ => 0,
                })
                .sum();
            note(&format!("{line}: {sent} sent, {received} received, {gone} lost"));
            assert!(received > 0, "{line}");
            assert_eq!(sent, received + gone, "{line}");
            assert_eq!(parts, gone, "{line}: the parts of the loss are not all of it");
            let share = value(run, Metric::Loss, Scope::Receiver);
            assert!((0.0..=100.0).contains(&share), "{line}: {share} %");
        }
    }
}

#[test]
fn what_a_router_or_a_full_socket_drops_is_told_apart() {
    let routed = Routed::new("50mbit", "20kb");
    let (here, there) = (Home::new(), Home::new());
    let listen = format!("{}:4285", Routed::SERVER_ADDRESS);
    let mut server =
        routed.server.run(|| Running::start(there.haul(&["serve", "--listen", &listen]))).unwrap();
    server.says("listening");
    for direction in ["send", "receive"] {
        let line = format!(
            "stream {listen} --udp --rate 100M -t 1s --warmup 200ms --interval 250ms --direction {direction} --format json"
        );
        let document =
            routed.client.run(|| Running::start(here.haul(&words(&line)))).unwrap().end().complete();
        let run = &document.runs[0];
        let (gone, on_the_path) =
            (count(run, Metric::Lost, Scope::Receiver), count(run, Metric::LostPath, Scope::Receiver));
        note(&format!("{direction}: {gone} lost, {on_the_path} of them on the path"));
        assert!(gone > 100 && on_the_path * 10 > gone * 9, "{direction}: {on_the_path} of {gone}");
        let slices: u64 = run.intervals.iter().filter_map(|slice| slice.lost).sum();
        assert!(
            run.intervals.len() >= 4 && slices == gone,
            "{direction}: {slices} in the intervals, {gone} in all"
        );
    }
    // Connections that are gone are asked for as well: such a response does not fit the router's queue. What is dropped
    // comes again after 200 ms or a few times that, and a flow counts from its first response on.
    let line = format!("crr {listen} --response 256K -t 2s --warmup 2s --format json");
    let document = routed.client.run(|| Running::start(here.haul(&words(&line)))).unwrap().end().complete();
    let run = &document.runs[0];
    let again = [Scope::Client, Scope::Server].map(|scope| count(run, Metric::Retransmits, scope));
    note(&format!("crr: sent again by the client and by the server: {again:?}"));
    assert!(again[1] > 0, "the server's responses were dropped on the way");
    let line = format!("stream {listen} -t 1s --warmup 1s --interval 250ms --format json");
    let document = routed.client.run(|| Running::start(here.haul(&words(&line)))).unwrap().end().complete();
    let run = &document.runs[0];
    let slices: Option<u64> = run.intervals.iter().map(|slice| slice.retransmits).sum();
    note(&format!("a stream: sent again in its intervals: {slices:?}"));
    assert_eq!(
        slices,
        Some(count(run, Metric::Retransmits, Scope::Sender)),
        "intervals add up to the window"
    );
    let line = "stream lab --udp --rcvbuf 16K -t 1s --warmup 200ms --format json";
    let document = Site::new().run(&words(line)).complete();
    let run = &document.runs[0];
    let (gone, in_the_socket) =
        (count(run, Metric::Lost, Scope::Receiver), count(run, Metric::LostReceiver, Scope::Receiver));
    assert!(gone > 100 && in_the_socket == gone, "{in_the_socket} of {gone}");
}
