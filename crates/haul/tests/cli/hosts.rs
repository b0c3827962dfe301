//! What a run says of its hosts beside its own numbers, and what `haul env` says of them alone.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use haul_results::record::Document;
use haul_stats::{Metric, Scope};
use serde_json::Value as Json;

use crate::process::{Ended, Home, Running, value, words};
use crate::site::{Named, Site, meddle, tool};

/// What the server's end watched, as the record has it.
fn watched(document: &Document, end: &str) -> Json {
    document.runs[0].activity[end]["window"].clone()
}

/// Writes into a file of the sysfs that shows the devices of this namespace.
fn tell(netns: &str, file: &str, text: &str) {
    let script = format!("echo {text} > /sys/class/net/{}/{file}", Named::SERVER_DEVICE);
    let output = tool("ip", "iproute2").args(["netns", "exec", netns, "sh", "-c", &script]).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}

/// CPU time, so far, of the kernel threads that poll the server's device.
fn napi_threads() -> Duration {
    let of_device = |comm: &str| comm.starts_with(&format!("napi/{}", Named::SERVER_DEVICE));
    let entries = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let threads = entries.filter(|path| fs::read_to_string(path.join("comm")).is_ok_and(|it| of_device(&it)));
    let ran = |path: PathBuf| {
        let text = fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|word| word.parse().ok()).map_or(Duration::ZERO, Duration::from_nanos)
    };
    threads.map(ran).sum()
}

/// F3: work that the kernel moves to a thread of its own, or to another CPU, is missed by the time of the workload's threads
/// and not by that of the host. Each figure says which of the two it is.
#[test]
fn work_that_leaves_the_workloads_threads_is_in_the_hosts_figures() {
    let named = Named::new();
    let homes = (Home::new(), Home::new());
    let listen = format!("{}:4285", Named::SERVER_ADDRESS);
    let mut server =
        named.server_netns.run(|| Running::start(homes.1.haul(&["serve", "--listen", &listen]))).unwrap();
    server.says("listening");
    let line =
        format!("stream {} -t 1s --warmup 100ms --cc reno --pin 0,0 --format json", Named::SERVER_ADDRESS);
    let measure =
        || named.client_netns.run(|| Running::start(homes.0.haul(&words(&line)))).unwrap().end().complete();
    let cpu = |document: &Document| {
        let run = &document.runs[0];
        let threads =
            value(run, Metric::ThreadCpu, Scope::Sender) + value(run, Metric::ThreadCpu, Scope::Receiver);
        (value(run, Metric::CpuBusy, Scope::SharedHost), threads)
    };

    // By threads that poll. veth has NAPI where GRO is on, and uses it for what comes from a device without TSO
    // (veth_skb_is_eligible_for_gro in drivers/net/veth.c).
    let tso = [
        "tx-tcp-segmentation",
        "tx-tcp6-segmentation",
        "tx-tcp-ecn-segmentation",
        "tx-tcp-mangleid-segmentation",
    ];
    let segmenting = |on| tso.iter().for_each(|it| meddle(&named.client_netns, Named::CLIENT_DEVICE, it, on));
    segmenting(false);
    meddle(&named.server_netns, Named::SERVER_DEVICE, "rx-gro", true);
    tell(&named.server, "threaded", "1");
    let before = napi_threads();
    let document = measure();
    let polled = napi_threads().saturating_sub(before).as_secs_f64();
    let (busy, threads) = cpu(&document);
    println!("threaded NAPI: {busy:.3} s of the host, {threads:.3} s of threads, {polled:.3} s of polling");
    // Warm-up and drain are a tenth of the run.
    assert!(polled > 0.05, "nothing was polled by a thread: {polled} s");
    assert!(
        busy >= threads + polled * 0.7,
        "{busy} s of the host, {threads} s of threads, {polled} s of polling"
    );
    for (scope, whose) in [(Scope::SharedHost, "system:"), (Scope::Sender, "threads:")] {
        let demand = document.runs[0]
            .readings
            .iter()
            .find(|it| it.metric == Metric::ServiceDemand && it.scope == scope);
        assert!(demand.is_some_and(|it| it.source.starts_with(whose)), "{demand:?}");
    }
    tell(&named.server, "threaded", "0");
    meddle(&named.server_netns, Named::SERVER_DEVICE, "rx-gro", false);
    segmenting(true);

    // By another CPU.
    assert_eq!(watched(&measure(), "server")["softnet"]["rps"], 0, "nobody steers packets on this host");
    tell(&named.server, "queues/rx-0/rps_cpus", "2");
    let document = measure();
    let steered = watched(&document, "server")["softnet"]["rps"].as_u64();
    let (busy, threads) = cpu(&document);
    println!("RPS: {busy:.3} s of the host, {threads:.3} s of threads, {steered:?} wakes of another CPU");
    assert!(steered > Some(100), "{steered:?}");
    assert!(busy > threads, "{busy} s of the host, {threads} s of threads");
}

#[test]
fn the_counters_of_a_lab_are_of_each_ends_namespace_and_those_of_the_kernel_are_told_once() {
    let site = Site::new();
    let document = site.run(&words("stream lab --cc reno -t 500ms --warmup 100ms --format json")).complete();
    let run = &document.runs[0];
    let scopes = |metric: Metric| -> Vec<Scope> {
        run.readings.iter().filter(|it| it.metric == metric).map(|it| it.scope).collect()
    };
    for metric in
        [Metric::Interrupts, Metric::SoftnetDropped, Metric::CpuBackground, Metric::ServiceDemandNet]
    {
        assert_eq!(scopes(metric), [Scope::SharedHost], "{metric}");
    }
    for metric in [Metric::DevicePacketsPerSecond, Metric::InterruptsNic, Metric::DeviceDrops] {
        assert_eq!(scopes(metric), [Scope::Sender, Scope::Receiver], "{metric}");
    }
    let (client, server) = (watched(&document, "client"), watched(&document, "server"));
    assert_ne!(client["place"], server["place"]);
    // What one end sends the other receives, each at its own device; acknowledgements go the other way.
    let sent = |end: &Json| end["net"]["link"]["tx_bytes"].as_u64().unwrap();
    assert!(sent(&client) > sent(&server) * 10, "{} and {}", sent(&client), sent(&server));
    let out = |end: &Json| end["protocols"]["Tcp.OutSegs"].as_u64().unwrap();
    assert!(out(&client) > out(&server), "{} and {}", out(&client), out(&server));
}

/// F2: whoever reads the server's log has both ends' figures.
#[test]
fn the_servers_log_has_both_ends_figures_or_says_that_the_client_told_none() {
    let site = Site::new();
    let mut server = site.serve(&[]);
    site.run(&["stream", &server.target(), "-t", "300ms", "--warmup", "100ms"]);
    server.says("; client ");
    let log = server.log();
    let line = log.lines().find(|line| line.contains("; client ")).unwrap();
    let (own, theirs) = line.split_once("; client ").unwrap();
    assert!(own.contains(": server ") && own.contains(" Gbit/s received over 0.3"), "{line}");
    assert!(theirs.contains(" Gbit/s sent over 0.3"), "{line}");
    assert!(own.contains(", CPU ") && theirs.contains(", CPU "), "{line}");
}

/// F2: what a server writes of a run has the figures its client has, of both ends.
#[test]
fn a_servers_document_has_every_figure_of_its_clients() {
    for format in ["json", "jsonl"] {
        let site = Site::new();
        let server = site.serve(&["--format", format]);
        let client = |workload: &[&str]| {
            let usual = [&server.target()[..], "-t", "300ms", "--warmup", "100ms", "--format", "json"];
            let ended = site.run(&[workload, &usual].concat());
            serde_json::from_str::<Json>(&ended.out).unwrap()
        };
        let documents = [
            client(&["stream", "--counters"]),
            client(&["rr"]),
            client(&["stream", "--udp", "--rate", "10M"]),
        ];
        server.signal("INT");
        let ended = server.end_within(Duration::from_secs(20));
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let runs: Vec<Json> = if format == "json" {
            let whole: Json =
                serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {}", ended.out));
            whole["runs"].as_array().unwrap().clone()
        } else {
            ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        assert_eq!(runs.len(), documents.len(), "{format}: {}", ended.out);
        for (served, document) in runs.iter().zip(&documents) {
            let (own, theirs) = (&served["run"], &document["runs"][0]);
            assert_eq!(own["status"], "complete");
            for part in ["readings", "effective", "activity", "intervals", "counts"] {
                assert_eq!(own[part], theirs[part], "{format}: {part}");
            }
            let readings = own["readings"].as_array().unwrap();
            let scopes: BTreeSet<&str> =
                readings.iter().filter_map(|it| it["value"].as_f64().and(it["scope"].as_str())).collect();
            assert!(scopes.len() >= 2, "{format}: figures of {scopes:?} alone");
        }
    }
}

fn env(home: &Home, arguments: &[&str]) -> Ended {
    Running::start(home.haul(&[&["env"], arguments].concat())).end()
}

#[test]
fn two_fingerprints_are_compared_as_diff_does() {
    let home = Home::new();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let own = env(&home, &["--format", "json"]);
    let mut changed: Json = serde_json::from_str(&own.out).unwrap();
    let facts = &mut changed["environment"]["client"];
    facts["nic.mtu"]["value"] = "77".into();
    facts["sysctl.net.core.invented"] = serde_json::json!({ "value": "5" });
    facts.as_object_mut().unwrap().remove("kernel.release");
    let one = file("one.json", &own.out);
    let two = file("two.json", &changed.to_string());
    // The last line of a file of events holds the document.
    let events = file(
        "events.jsonl",
        &format!("{{\"event\":\"x\"}}\n{{\"event\":\"document\",\"document\":{changed}}}\n"),
    );

    let same = env(&home, &["--diff", &one, &one]);
    assert_eq!((same.code, same.err.as_str()), (Some(0), ""), "{same:?}");
    assert!(same.out.contains("all the same"), "{}", same.out);
    for other in [&two, &events] {
        let differs = env(&home, &["--diff", &one, other]);
        assert_eq!((differs.code, differs.err.as_str()), (Some(1), ""), "{differs:?}");
        let shown = differs.out.split_whitespace().collect::<Vec<_>>().join(" ");
        for needle in [
            "1 changed, 1 only in A, 1 only in B",
            "changed nic.mtu A ",
            "B 77",
            "only in A kernel.release",
            "only in B sysctl.net.core.invented 5",
        ] {
            assert!(shown.contains(needle), "{needle}: {}", differs.out);
        }
    }
    let json = env(&home, &["--diff", &one, &two, "--format", "json"]);
    let found: Json = serde_json::from_str(&json.out).unwrap();
    assert_eq!((json.code, &found["same"], &found["kind"]), (Some(1), &false.into(), &"env_diff".into()));
    assert_eq!(found["client"]["changed"][0]["name"], "nic.mtu");
    assert_eq!(found["server"], Json::Null);

    let nothing = file("nothing.json", "{}");
    let missing = folder.path().join("missing.json").to_str().unwrap().to_owned();
    for (bad, needle) in [(&missing, "No such file"), (&nothing, "not a document of haul")] {
        let trouble = env(&home, &["--diff", &one, bad]);
        assert_eq!(trouble.code, Some(2), "{trouble:?}");
        assert!(trouble.err.contains(needle) && trouble.out.is_empty(), "{trouble:?}");
        let json = env(&home, &["--diff", bad, &one, "--format", "json"]);
        assert_eq!((json.code, json.document().failure.unwrap().exit), (Some(2), 2));
    }
    let usage = env(&home, &["lab", "--diff", &one, &two]);
    assert_eq!(usage.code, Some(2), "{usage:?}");
}
