//! Every workload through the command line, between two hosts of this machine.

use std::time::{Duration, Instant};

use haul_results::record::{Document, Kind, Status};
use haul_stats::{DoubtId, Metric, Scope};
use serde_json::Value as Json;

use crate::process::{doubts, value, words};
use crate::site::{Site, note};

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
            assert_eq!(sum as f64, value(run, Metric::BytesWindow, scope), "{direction}");
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
            assert_eq!(value(run, Metric::BytesTotal, scope), f64::from(50 << 20), "{direction}");
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
    let short = site.run(&["stream", &target, "-t", "200ms", "--queue=1ms", "--format", "json"]);
    assert_eq!(short.code, Some(4), "{short:?}");
    holder.end().complete();
    waiting.end().complete();
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
    assert_eq!(ended.document().status, Status::Failed, "{ended:?}");
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
