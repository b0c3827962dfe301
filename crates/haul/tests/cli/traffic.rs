//! What the numbers are numbers of: on a wire of known rate, in either direction, with the kernel's own limits in force.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use haul_results::record::{Document, Run, Status};
use haul_stats::{DoubtId, Metric, Scope, Verdict};

use crate::peers::{Treat, relay};
use crate::process::{Home, Running, count, doubts, reading, value, words};
use crate::site::{Routed, Site, host_with, note};

const DIRECTIONS: [&str; 2] = ["send", "receive"];

/// One document of a stream to `target`.
fn stream(site: &Site, target: &str, more: &[&str]) -> Document {
    let all: Vec<&str> = ["stream", target, "--format", "json"].iter().chain(more).copied().collect();
    site.run(&all).complete()
}

#[test]
fn the_headline_never_exceeds_the_wire_although_the_senders_buffer_swallows_more() {
    let site = Site::new();
    site.shape("50mbit", "256kb");
    let server = site.serve(&[]);
    for direction in DIRECTIONS {
        let more = ["--sndbuf", "4M", "--rcvbuf", "4M", "-t", "2s", "--warmup", "500ms", "--cc", "reno"];
        let document = stream(&site, &server.target(), &[&more, &["--direction", direction][..]].concat());
        let run = &document.runs[0];
        let (received, handed) =
            (value(run, Metric::Throughput, Scope::Receiver), value(run, Metric::Throughput, Scope::Sender));
        note(&format!("{direction}: received {received:.0}, handed to the kernel {handed:.0} bit/s"));
        assert!(received <= 50e6 * 1.01, "{direction}: {received:.0} bit/s on a wire of 50 Mbit/s");
        assert!(received > 25e6, "{direction}: {received:.0} bit/s: the wire carries twice that");
        let source = &reading(run, Metric::Throughput, Scope::Sender).source;
        assert!(source.contains("handed to the sender's kernel"), "{source}");
        let first =
            document.runs[0].readings.iter().find(|reading| reading.metric == Metric::Throughput).unwrap();
        assert_eq!(first.scope, Scope::Receiver, "the headline is the receiver's");
        let window = value(run, Metric::Window, Scope::Receiver);
        let bytes = count(run, Metric::BytesWindow, Scope::Receiver);
        assert!((received - bytes as f64 * 8.0 / window).abs() < 1.0, "bytes over the receiver's own time");
    }
}

#[test]
fn a_warm_up_shifts_the_window_and_changes_no_total() {
    let site = Site::new();
    let server = site.serve(&[]);
    site.shape("200mbit", "256kb");
    for direction in DIRECTIONS {
        let more = ["-t", "1s", "--warmup", "1s", "--interval", "100ms", "--flows", "2", "--cc", "reno"];
        let document = stream(&site, &server.target(), &[&more, &["--direction", direction][..]].concat());
        let run = &document.runs[0];
        let (total, window) = (
            count(run, Metric::BytesTotal, Scope::Receiver),
            count(run, Metric::BytesWindow, Scope::Receiver),
        );
        assert_eq!(count(run, Metric::BytesTotal, Scope::Sender), total, "both ends counted every byte");
        assert_eq!(run.intervals.iter().filter_map(|slice| slice.bytes).sum::<u64>(), window, "{direction}");
        assert!(total > window + window / 2, "half of it was warm-up: {total} and {window}");
        assert!((9..=11).contains(&run.intervals.len()), "{:?}", run.intervals);
        assert!(run.intervals[0].start_s.abs() < 1e-9, "the first slice begins with the window");
        let mut end = 0.0;
        for slice in &run.intervals {
            assert!(
                (slice.start_s - end).abs() < 1e-6,
                "slices without gaps or overlaps: {:?}",
                run.intervals
            );
            end = slice.start_s + slice.seconds;
        }
        let length = value(run, Metric::Window, Scope::Receiver);
        assert!((end - length).abs() < 1e-6, "{end} s of slices in a window of {length} s");
        assert!(
            value(run, Metric::Throughput, Scope::Receiver) <= 202e6,
            "no bytes of the warm-up in the window"
        );
    }
}

#[test]
fn retransmits_come_from_the_sender_in_either_direction_and_their_slices_sum_to_their_total() {
    let routed = Routed::new("100mbit", "40kb");
    let (here, there) = (Home::new(), Home::new());
    let listen = format!("{}:4285", Routed::SERVER_ADDRESS);
    let mut server =
        routed.server.run(|| Running::start(there.haul(&["serve", "--listen", &listen]))).unwrap();
    server.says("listening");
    for direction in DIRECTIONS {
        let line = format!(
            "stream {listen} -t 1s --warmup 0s --interval 100ms --cc cubic --direction {direction} --format json"
        );
        let arguments = words(&line);
        let document = routed.client.run(|| Running::start(here.haul(&arguments))).unwrap().end().complete();
        let run = &document.runs[0];
        let again = count(run, Metric::Retransmits, Scope::Sender);
        note(&format!("{direction}: {again} segments sent again"));
        assert!((1..1_000_000).contains(&again), "{direction}: {again}");
        assert!(!run.readings.iter().any(|it| it.metric == Metric::Retransmits && it.scope != Scope::Sender));
        let slices: Option<u64> = run.intervals.iter().map(|slice| slice.retransmits).sum();
        let slices = slices.expect("every slice has its count");
        assert!(
            slices.abs_diff(again) <= again / 10 + 5,
            "{direction}: {slices} in slices, {again} in the window"
        );
    }
    let site = Site::new();
    let server = site.serve(&[]);
    for direction in DIRECTIONS {
        let cutting = relay(&site.lab.server, server.addr, |_| Treat::Cut(Duration::from_millis(300)));
        let target = cutting.target();
        let arguments =
            ["stream", &target, "-t", "2s", "--warmup", "50ms", "--format", "json", "--direction", direction];
        let ended = site.run(&arguments);
        let document = ended.document();
        assert_eq!((document.status, ended.code), (Status::Failed, Some(1)), "{:?}", document.failure);
        for run in &document.runs {
            let found = run.readings.iter().find(|it| it.metric == Metric::Retransmits);
            let sane =
                found.is_none_or(|it| it.value.is_none_or(|value| (0.0..1e6).contains(&value.as_f64())));
            assert!(sane, "a stream that dies leaves no sentinel: {found:?}");
        }
    }
}

#[test]
fn a_clamped_buffer_is_shown_as_asked_and_got_at_both_ends_in_either_direction() {
    let site = Site::new();
    let server = site.serve(&[]);
    for direction in DIRECTIONS {
        let line = format!("-t 300ms --warmup 50ms --sndbuf 64M --rcvbuf 64M --direction {direction}");
        let asked = words(&line);
        let document = stream(&site, &server.target(), &asked);
        let clamped = doubts(&document, DoubtId::BufferClamped);
        for end in ["client", "server"] {
            for sysctl in ["net.core.wmem_max", "net.core.rmem_max"] {
                let told = clamped
                    .iter()
                    .any(|text| text.starts_with(end) && text.contains("64M") && text.contains(sysctl));
                assert!(told, "{direction}, {end}, {sysctl}: {clamped:?}");
            }
            let socket = &document.runs[0].effective[end]["socket"];
            assert_eq!(
                (&socket["sndbuf_autotuned"], &socket["rcvbuf_autotuned"]),
                (&false.into(), &false.into())
            );
            for buffer in ["sndbuf", "rcvbuf"] {
                let got = socket[buffer].as_u64().unwrap();
                assert!((1..128 << 20).contains(&got), "{end} {buffer}: {got}");
            }
        }
        let free =
            stream(&site, &server.target(), &["-t", "300ms", "--warmup", "50ms", "--direction", direction]);
        assert!(doubts(&free, DoubtId::BufferClamped).is_empty());
        for end in ["client", "server"] {
            let socket = &free.runs[0].effective[end]["socket"];
            assert_eq!(
                (&socket["sndbuf_autotuned"], &socket["rcvbuf_autotuned"]),
                (&true.into(), &true.into())
            );
        }
    }
    let text = site.run(&["stream", &server.target(), "-t", "300ms", "--warmup", "50ms", "--sndbuf", "64M"]);
    assert!(text.out.contains("64M") && text.out.contains("buffer_clamped"), "{}", text.out);
    assert!(text.out.contains("autotuned"), "{}", text.out);
}

#[test]
fn flows_start_together_although_half_of_them_connect_half_a_second_later() {
    let site = Site::new();
    let server = site.serve(&[]);
    let late = relay(&site.lab.server, server.addr, |flow| match flow % 2 {
        0 => Treat::Pass,
        _ => Treat::Late(Duration::from_millis(500)),
    });
    for direction in DIRECTIONS {
        let more = ["--flows", "100", "-t", "1s", "--warmup", "500ms", "--direction", direction];
        let document = stream(&site, &late.target(), &more);
        let overlap = value(&document.runs[0], Metric::Overlap, Scope::Run);
        assert!((95.0..=100.0).contains(&overlap), "{direction}: {overlap} %");
    }
}

#[test]
fn rates_of_flows_that_did_not_overlap_are_not_added() {
    let site = Site::new();
    let server = site.serve(&[]);
    let held = relay(&site.lab.server, server.addr, |flow| match flow {
        0 => Treat::Pass,
        _ => Treat::Hold(Duration::from_millis(600)),
    });
    let target = held.target();
    let ended =
        site.run(&["stream", &target, "--flows", "2", "-t", "1s", "--warmup", "50ms", "--format", "json"]);
    let document = ended.document();
    let failure = document.failure.expect("the second flow came in the middle of the window");
    assert_eq!(failure.exit, 1);
    assert!(failure.text.contains("overlapped in only"), "{}", failure.text);
}

#[test]
fn two_addresses_of_one_host_are_labelled_software_loopback() {
    let addresses: [IpAddr; 2] = ["198.18.3.1".parse().unwrap(), "198.18.4.1".parse().unwrap()];
    let netns = host_with(&addresses);
    let (here, there) = (Home::new(), Home::new());
    let listen = format!("{}:4285", addresses[1]);
    let mut server = netns.run(|| Running::start(there.haul(&["serve", "--listen", &listen]))).unwrap();
    server.says("listening");
    let run = |format: &str| {
        let arguments = ["stream", &listen, "-t", "300ms", "--warmup", "50ms", "--format", format];
        netns.run(|| Running::start(here.haul(&arguments))).unwrap().end()
    };
    let document = run("json").complete();
    let told = doubts(&document, DoubtId::SoftwareLoopback);
    assert!(told.iter().any(|text| text.contains("lo")), "{:?}", document.warnings);
    assert!(run("text").out.contains("software_loopback"));

    let site = Site::new();
    let server = site.serve(&[]);
    let wired = stream(&site, &server.target(), &["-t", "300ms", "--warmup", "50ms"]);
    assert!(doubts(&wired, DoubtId::SoftwareLoopback).is_empty(), "a veth is a device");
}

#[test]
fn the_tools_own_ceiling_stands_beside_every_result_and_is_heeded() {
    let site = Site::new();
    let server = site.serve(&[]);
    for direction in DIRECTIONS {
        let more = ["--message", "64,1400,128K", "-t", "300ms", "--warmup", "50ms", "--direction", direction];
        let document = stream(&site, &server.target(), &more);
        assert_eq!(document.runs.len(), 3);
        for run in &document.runs {
            let ceiling = value(run, Metric::ToolCeiling, Scope::Sender);
            let handed = value(run, Metric::Throughput, Scope::Sender);
            assert!(ceiling > 0.0);
            let limited = run.warnings.iter().any(|doubt| doubt.id == DoubtId::ToolLimited);
            assert_eq!(limited, handed > 0.8 * ceiling, "{handed} of {ceiling} bit/s, {:?}", run.cell);
            for metric in [Metric::RwndLimited, Metric::SndbufLimited] {
                let found = reading(run, metric, Scope::Sender);
                assert!(found.value.is_some() || found.reason.is_some(), "{found:?}");
            }
        }
    }
}

#[test]
fn two_processes_on_one_kernel_are_a_shared_host_and_its_cost_is_never_doubled() {
    let site = Site::new();
    let server = site.serve(&[]);
    for direction in DIRECTIONS {
        let document =
            stream(&site, &server.target(), &["-t", "1s", "--warmup", "100ms", "--direction", direction]);
        let run = &document.runs[0];
        assert!(!doubts(&document, DoubtId::SharedHost).is_empty());
        let whole: Vec<Scope> =
            run.readings.iter().filter(|it| it.metric == Metric::CpuBusy).map(|it| it.scope).collect();
        assert_eq!(whole, [Scope::SharedHost], "the whole is shown once");
        let busy = value(run, Metric::CpuBusy, Scope::SharedHost);
        let cpus = std::thread::available_parallelism().unwrap().get() as f64;
        let window = value(run, Metric::Window, Scope::Receiver);
        assert!(busy <= window * cpus * 1.05, "{busy} s busy in {window} s on {cpus} CPUs");
        let threads =
            value(run, Metric::ThreadCpu, Scope::Sender) + value(run, Metric::ThreadCpu, Scope::Receiver);
        assert!(threads <= busy + 0.1, "{threads} s of the threads, {busy} s of the host");
        let demand = |scope| value(run, Metric::ServiceDemand, scope);
        assert!(demand(Scope::Sender) + demand(Scope::Receiver) <= demand(Scope::SharedHost) * 1.1 + 0.01);
        assert!(reading(run, Metric::ServiceDemand, Scope::Sender).source.starts_with("threads"));
    }
}

#[test]
fn placement_is_recorded_for_every_run_and_its_absence_doubted() {
    let site = Site::new();
    let server = site.serve(&[]);
    let pinned =
        stream(&site, &server.target(), &["-t", "300ms", "--warmup", "50ms", "--pin", "0,1", "--runs", "2"]);
    for run in &pinned.runs {
        assert_eq!(run.effective["client"]["affinity"], serde_json::json!(["0"]));
        assert_eq!(run.effective["server"]["affinity"], serde_json::json!(["1"]));
    }
    assert!(doubts(&pinned, DoubtId::Unpinned).is_empty());
    let free = stream(&site, &server.target(), &["-t", "300ms", "--warmup", "50ms"]);
    assert!(!doubts(&free, DoubtId::Unpinned).is_empty());
}

#[test]
fn many_flows_with_many_intervals_give_a_whole_result_in_either_direction() {
    let site = Site::new();
    let server = site.serve(&[]);
    for direction in DIRECTIONS {
        let line = format!("--flows 128 -t 3s --warmup 500ms --interval 10ms --direction {direction}");
        let more = words(&line);
        let document = stream(&site, &server.target(), &more);
        let run = &document.runs[0];
        // A loaded machine may let several slices pass at one look.
        assert!(run.intervals.len() > 30, "{}", run.intervals.len());
        let sum: u64 = run.intervals.iter().filter_map(|slice| slice.bytes).sum();
        assert_eq!(sum, count(run, Metric::BytesWindow, Scope::Receiver), "{direction}");
        assert_eq!(
            count(run, Metric::BytesTotal, Scope::Sender),
            count(run, Metric::BytesTotal, Scope::Receiver)
        );
    }
}

#[test]
fn too_few_pairs_cannot_decide_even_a_gap_of_half_and_say_how_many_could() {
    let site = Site::new();
    let server = site.serve(&[]);
    for pairs in ["2", "3", "4"] {
        let mut arguments =
            vec!["ab", "stream", "", "--arm", "big:opt.message=128K", "--arm", "small:opt.message=1K"];
        let target = server.target();
        arguments[2] = &target;
        arguments.extend([
            "--pairs", pairs, "-t", "300ms", "--warmup", "30ms", "--format", "json", "--cc", "reno",
        ]);
        let document = site.run(&arguments).complete();
        let asked: usize = pairs.parse().unwrap();
        assert_eq!(document.runs.len(), 2 * asked, "no run is added quietly");
        let rate = document
            .comparisons
            .iter()
            .find(|it| it.metric == Metric::Throughput && it.scope == Scope::Receiver)
            .expect("throughput is compared");
        assert_eq!((rate.base.n, rate.arm.n), (asked, asked));
        assert!(rate.change_pct.unwrap() < -33.0, "the gap is real: {rate:?}");
        assert_eq!((rate.verdict, rate.interval_pct), (Some(Verdict::Undecided), None));
        let reason = rate.reason.as_deref().unwrap();
        assert!(
            reason.contains(&format!("n = {pairs} cannot decide 6 comparisons"))
                && reason.contains("at least 8"),
            "{reason}"
        );
        assert!(document.comparisons.iter().all(|it| !matches!(it.verdict, Some(Verdict::Equivalent))));
        assert_eq!((rate.unit.as_ref(), document.comparisons[0].base.arm.as_str()), ("bit/s", "big"));
        arguments.truncate(arguments.len() - 4);
        if pairs == "2" {
            let ended = site.run(&arguments);
            // What is said before the first run is what the verdicts say.
            assert!(ended.err.contains("at least --pairs 8 can"), "{}", ended.err);
            let text = ended.out.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(text.contains("cannot") && text.contains("at least 8 pairs"), "{text}");
            assert!(!text.contains("no change") && !text.contains("equivalent ("), "{text}");
        }
    }
}

#[test]
fn failed_runs_are_kept_with_their_reason_counted_and_out_of_the_statistics() {
    let site = Site::new();
    let server = site.serve(&[]);
    // Runs by their number within the session: two of sixteen break off in mid-window, which opens 230 ms after they connect.
    let seen = std::sync::Arc::new(AtomicU32::new(0));
    let count_of = std::sync::Arc::clone(&seen);
    let breaking = relay(&site.lab.server, server.addr, move |_| {
        let number = count_of.fetch_add(1, Ordering::Relaxed);
        if matches!(number, 3 | 10) { Treat::Cut(Duration::from_millis(350)) } else { Treat::Pass }
    });
    let target = breaking.target();
    let ab = ["ab", "stream", &target, "--arm", "big:opt.message=128K", "--arm", "small:opt.message=1K"];
    let more = ["--pairs", "8", "-t", "300ms", "--warmup", "30ms", "--format", "json"];
    let ended = site.run(&[&ab[..], &more].concat());
    let document = ended.document();
    assert_eq!((document.status, ended.code), (Status::Complete, Some(0)), "{:?}", document.failure);
    assert_eq!(document.runs.len(), 16, "nothing is run again");
    let failed: Vec<&Run> = document.runs.iter().filter(|run| run.status == Status::Failed).collect();
    assert_eq!(failed.len(), 2, "{failed:?}");
    for run in &failed {
        let text = &run.failure.as_ref().unwrap().text;
        assert!(text.contains("broke off"), "{text}");
    }
    let mut pairs: BTreeMap<u32, usize> = BTreeMap::new();
    for run in document.runs.iter().filter(|run| run.status == Status::Complete) {
        *pairs.entry(run.block.unwrap()).or_default() += 1;
    }
    let whole = pairs.values().filter(|arms| **arms == 2).count();
    let rate = document.comparisons.iter().find(|it| it.metric == Metric::Throughput).unwrap();
    assert!(rate.base.n == whole && rate.arm.n == whole, "{whole} whole pairs: {rate:?}");
    assert_eq!(rate.base.failed + rate.arm.failed, 2, "{rate:?}");
    assert_eq!(rate.verdict, Some(Verdict::Undecided), "more than a tenth of an arm failed: {rate:?}");
    assert!(rate.reason.as_deref().is_some_and(|reason| reason.contains("failed")), "{rate:?}");
    assert!(!rate.doubts.iter().chain(&document.warnings).all(|doubt| doubt.id != DoubtId::FailedRuns));
}
