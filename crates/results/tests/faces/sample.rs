//! Documents as the runner leaves them, small enough to read.

use std::collections::BTreeMap;

use haul_results::record::{
    Cell, Document, Environment, Fact, Facts, Failure, Interval, Kind, Options, Run, SCHEMA, Stamp, Status,
};
use haul_stats::compare::{Pairs, correct};
use haul_stats::{CellValue, Comparison, Decide, Doubt, DoubtId, Metric, Reading, Scope};
use serde_json::{Value as Json, json};

pub(crate) fn words(command: &str) -> Vec<String> {
    command.split(' ').map(str::to_owned).collect()
}

pub(crate) fn document(kind: Kind, command: &str, runs: Vec<Run>) -> Document {
    Document {
        haul: Stamp { version: "0.1.0".to_owned(), schema: SCHEMA },
        id: "20260412-093011-7f3a".to_owned(),
        kind,
        status: Status::Complete,
        failure: None,
        started: "2026-04-12T09:30:11Z".to_owned(),
        elapsed_s: 12.4 * runs.len() as f64,
        command: words(command),
        options: Options {
            requested: json!({"message_bytes": 131_072, "flows": 1, "sndbuf_bytes": "auto", "rcvbuf_bytes": "auto"}),
            effective: Json::Null,
        },
        environment: Environment { client: Some(facts("ada")), server: Some(facts("bob")) },
        runs,
        cells: Vec::new(),
        comparisons: Vec::new(),
        costs: Vec::new(),
        cost_changes: Vec::new(),
        warnings: Vec::new(),
    }
}

pub(crate) fn facts(host: &str) -> Facts {
    let known = [
        ("cpu.governor", "performance"),
        ("cpu.model", "AMD EPYC 7763 64-Core Processor"),
        (
            "kernel.command_line",
            "BOOT_IMAGE=/boot/vmlinuz-6.18.5 root=/dev/vda1 ro quiet mitigations=auto isolcpus=2-5 nohz_full=2-5",
        ),
        ("kernel.release", "6.18.5"),
        ("nic.driver", "mlx5_core"),
        ("nic.feature.rx-gro", "on"),
        ("nic.feature.tx-nocache-copy", "off"),
        ("nic.feature.tx-tcp-segmentation", "on"),
        ("nic.mtu", "9000"),
    ];
    let mut facts: Facts = known
        .map(|(name, value)| (name.to_owned(), Fact { value: Some(value.to_owned()), reason: None }))
        .into();
    facts.insert("kernel.boot_id".to_owned(), Fact { value: Some(format!("{host}-4f1c")), reason: None });
    let reason = Some("/sys/devices/system/cpu/intel_pstate is not there".to_owned());
    facts.insert("cpu.turbo".to_owned(), Fact { value: None, reason });
    facts
}

pub(crate) fn cell(levels: &[(&str, u64)]) -> Cell {
    levels.iter().map(|(axis, value)| ((*axis).to_owned(), CellValue::Int(*value))).collect()
}

pub(crate) fn effective() -> Json {
    let end = |host: &str, sndbuf: u64, rcvbuf: u64| {
        json!({
            "host": {"hostname": host, "boot_id": null, "version": "0.1.0"},
            "socket": {
                "sndbuf": sndbuf, "rcvbuf": rcvbuf, "sndbuf_autotuned": true, "rcvbuf_autotuned": true,
                "mss": 1448, "cc": "cubic", "nodelay": false, "local": "10.0.0.1:40000", "peer": "10.0.0.2:4285",
            },
            "flows_alike": true, "threads": 1, "affinity": ["0"],
        })
    };
    json!({"client": end("ada", 2_626_560, 131_072), "server": end("bob", 87_040, 6_291_456)})
}

pub(crate) fn run(index: u32, cell: Cell, readings: Vec<Reading>) -> Run {
    Run {
        index,
        arm: None,
        block: None,
        cell,
        profiled: false,
        status: Status::Complete,
        failure: None,
        at_s: 12.4 * f64::from(index),
        effective: effective(),
        readings,
        intervals: Vec::new(),
        counts: Vec::new(),
        profiles: Vec::new(),
        warnings: Vec::new(),
    }
}

pub(crate) fn failed(mut run: Run, status: Status, exit: u8, text: &str) -> Run {
    run.status = status;
    run.failure = (exit > 0).then(|| Failure { exit, text: text.to_owned() });
    if status == Status::Failed {
        run.readings.clear();
    }
    run
}

/// The readings of a run of two hosts at so many Gbit/s.
pub(crate) fn two_hosts(gbit: f64) -> Vec<Reading> {
    let stat = "/proc/stat idle time, resolution 10ms";
    let system = "system: busy time of all CPUs / payload received";
    vec![
        Reading::real(
            Metric::Throughput,
            Scope::Receiver,
            gbit * 1e9,
            "receiver's bytes / receiver's elapsed time",
        ),
        Reading::real(
            Metric::Throughput,
            Scope::Sender,
            gbit * 1.001e9,
            "bytes handed to the sender's kernel",
        ),
        Reading::real(Metric::CpuUtilization, Scope::Sender, 40.0 + gbit / 7.0, stat),
        Reading::real(Metric::ServiceDemand, Scope::Sender, 8.1 / gbit, system),
        Reading::real(Metric::CpuUtilization, Scope::Receiver, 51.0 + gbit / 9.0, stat),
        Reading::real(Metric::ServiceDemand, Scope::Receiver, 9.2 / gbit, system),
        Reading::count(Metric::Retransmits, Scope::Sender, 3, "TCP_INFO"),
        Reading::real(Metric::BytesWindow, Scope::Receiver, gbit * 1.25e9, "sum over the flows"),
        Reading::real(Metric::Window, Scope::Receiver, 10.0021, "CLOCK_MONOTONIC"),
        Reading::real(Metric::Rtt, Scope::Sender, 90.0 - gbit, "TCP_INFO"),
    ]
}

/// The same on one kernel.
pub(crate) fn shared_host(gbit: f64) -> Vec<Reading> {
    let threads = "threads: per-thread CPU clock / payload received";
    vec![
        Reading::real(
            Metric::Throughput,
            Scope::Receiver,
            gbit * 1e9,
            "receiver's bytes / receiver's elapsed time",
        ),
        Reading::real(
            Metric::CpuUtilization,
            Scope::SharedHost,
            98.7,
            "/proc/timer_list idle time, resolution 1ns",
        ),
        Reading::real(
            Metric::ServiceDemand,
            Scope::SharedHost,
            17.3 / gbit,
            "system: busy time of all CPUs / payload received",
        ),
        Reading::real(Metric::ServiceDemand, Scope::Sender, 8.1 / gbit, threads),
        Reading::real(Metric::ServiceDemand, Scope::Receiver, 9.2 / gbit, threads),
        Reading::count(Metric::Retransmits, Scope::Sender, 0, "TCP_INFO"),
    ]
}

pub(crate) fn intervals(gbit: &[f64]) -> Vec<Interval> {
    let slice = |(second, rate): (u32, &f64)| Interval {
        direction: Some("send".to_owned()),
        start_s: f64::from(second),
        seconds: 1.0,
        bytes: Some(0),
        bits_per_second: Some(rate * 1e9),
        transactions: None,
        transactions_per_second: None,
        retransmits: Some(u64::from(second % 2)),
        packets: None,
        lost: None,
    };
    (0u32..).zip(gbit).map(slice).collect()
}

/// A fixed scatter around 1, the same for every caller.
pub(crate) fn scatter(n: usize, share: f64) -> Vec<f64> {
    (0..n).map(|i| 1.0 + share * (((i * 7919 + 13) % 101) as f64 / 50.0 - 1.0)).collect()
}

/// What `arm` did to a metric over so many pairs.
#[expect(clippy::too_many_arguments, reason = "a table's row reads best on one line")]
pub(crate) fn comparison(
    metric: Metric,
    scope: Scope,
    cell: &[(&str, u64)],
    base: f64,
    ratio: f64,
    pairs: usize,
    share: f64,
    failed: usize,
) -> Comparison {
    let cell: BTreeMap<_, _> =
        cell.iter().map(|(axis, value)| ((*axis).to_owned(), CellValue::Int(*value))).collect();
    let (one, other) = (scatter(pairs, share), scatter(pairs + 3, share));
    let values: Vec<(f64, f64)> =
        one.iter().zip(&other[3..]).map(|(b, a)| (base * b, base * ratio * a)).collect();
    let pairs = Pairs {
        metric,
        scope,
        cell: &cell,
        base: "off",
        arm: "on",
        values: &values,
        base_failed: 0,
        arm_failed: failed,
    };
    Decide::default().compare(&pairs)
}

/// A comparison of two arms on one cell, with all four verdicts in it.
pub(crate) fn four_verdicts() -> Document {
    let at = [("message_bytes", 131_072), ("flows", 1)];
    let mut comparisons = vec![
        comparison(Metric::Throughput, Scope::Receiver, &at, 53.2e9, 0.754, 10, 0.01, 1),
        comparison(Metric::ServiceDemand, Scope::Sender, &at, 0.1523, 1.32, 10, 0.02, 1),
        comparison(Metric::ServiceDemand, Scope::Receiver, &at, 0.1730, 0.93, 10, 0.02, 1),
        comparison(Metric::ServiceDemand, Scope::SharedHost, &at, 0.3300, 1.001, 10, 0.002, 1),
        comparison(Metric::CpuUtilization, Scope::SharedHost, &at, 97.1, 1.011, 10, 0.02, 1),
        comparison(Metric::Retransmits, Scope::Sender, &at, 0.0, 1.0, 10, 0.0, 1),
    ];
    correct(&mut comparisons);
    let runs = (0..22).map(|index| {
        let mut run = run(index, cell(&at), shared_host(if index % 2 == 0 { 53.2 } else { 40.1 }));
        run.arm = Some(if index % 2 == 0 { "off" } else { "on" }.to_owned());
        run.block = Some(index / 2);
        run
    });
    let mut runs: Vec<Run> = runs.collect();
    runs[7] = failed(
        runs[7].clone(),
        Status::Failed,
        4,
        "server (bob): the session was lost: nothing was heard for 5 s; is 'haul serve' still running there?",
    );
    let mut document = document(
        Kind::Ab,
        "haul ab stream lab --arm off:nic.tx-nocache-copy=off --arm on:nic.tx-nocache-copy=on --pairs 11",
        runs,
    );
    document.comparisons = comparisons;
    document.warnings = vec![
        Doubt::new(DoubtId::SharedHost, "client and server run on the same kernel"),
        Doubt::new(DoubtId::FailedRuns, "1 of 22 runs failed"),
    ];
    document
}

/// What an exchange was asked for, as the plan writes it.
pub(crate) fn asked_of_an_exchange(workload: &str) -> Json {
    json!({
        "workload": workload, "transport": "tcp", "flows": 1, "threads": "auto", "request_bytes": 1, "response_bytes": 1,
        "in_flight": 1, "rate_per_s": "max", "spin": false, "sndbuf_bytes": "auto", "rcvbuf_bytes": "auto",
        "nodelay": true, "cc": null, "mss_bytes": "auto", "tos": null, "busy_poll_us": null, "bind_device": null,
        "mark": null, "placement": "free", "pin_client": "0", "pin_server": "0",
    })
}

/// What a stream was asked for, as the plan writes it.
pub(crate) fn asked_of_a_stream(transport: &str) -> Json {
    let mut asked = json!({
        "workload": "stream", "transport": transport, "flows": 1, "threads": "auto", "direction": "send",
        "message_bytes": 131_072, "payload": "stamped", "bytes": null, "rate_bits_per_s": "max", "probe_per_s": null,
        "sndbuf_bytes": "auto", "rcvbuf_bytes": "auto", "tos": null, "busy_poll_us": null, "bind_device": null,
        "mark": null, "placement": "free", "pin_client": null, "pin_server": null,
    });
    let own = if transport == "udp" {
        json!({"segment": false, "gro": false, "batch": 1, "dont_fragment": null})
    } else {
        json!({
            "send_with": "write", "recv_with": "read", "send_offset_bytes": 0, "recv_offset_bytes": 0, "nodelay": false,
            "cc": null, "mss_bytes": "auto",
        })
    };
    for (key, value) in own.as_object().into_iter().flatten() {
        asked[key] = value.clone();
    }
    asked
}

/// The latencies of so many transactions around a median in µs, with the percentiles they are too few for left out.
pub(crate) fn latencies(n: u64, median: f64) -> Vec<Reading> {
    let source = "clock of the client, before the send call to the last byte of the response";
    let shape = [
        (Metric::LatencyMin, 0.76, 1),
        (Metric::LatencyMean, 1.08, 1),
        (Metric::LatencyP50, 1.0, 20),
        (Metric::LatencyP90, 1.13, 100),
        (Metric::LatencyP95, 1.21, 200),
        (Metric::LatencyP99, 1.74, 1_000),
        (Metric::LatencyP99_9, 4.71, 10_000),
        (Metric::LatencyP99_99, 14.2, 100_000),
        (Metric::LatencyMax, 96.3, 1),
    ];
    let reading = |(metric, factor, needed)| {
        if n >= needed {
            Reading::real(metric, Scope::Client, median * factor, source)
        } else {
            Reading::absent(metric, Scope::Client, source, format!("n too small: {n} of {needed} needed"))
        }
    };
    shape.map(reading).into()
}

/// The readings of a run of so many transactions in 10 s.
pub(crate) fn exchange(n: u64, shared: bool) -> Vec<Reading> {
    let rate = n as f64 / 10.0;
    let source = "transactions of the client / client's elapsed time";
    let system = "system: busy time of all CPUs / transactions";
    let stat = "/proc/stat idle time, resolution 10ms";
    let mut readings = vec![Reading::real(Metric::Transactions, Scope::Client, rate, source)];
    readings.extend(latencies(n, 1e6 / rate * 0.93));
    if shared {
        let threads = "threads: per-thread CPU clock / transactions";
        readings.extend([
            Reading::real(Metric::CpuUtilization, Scope::SharedHost, 61.3, stat),
            Reading::real(Metric::ServiceDemandTransaction, Scope::SharedHost, 1.2e6 / rate, system),
            Reading::real(Metric::ServiceDemandTransaction, Scope::Client, 0.5e6 / rate, threads),
            Reading::real(Metric::ServiceDemandTransaction, Scope::Server, 0.6e6 / rate, threads),
        ]);
    } else {
        readings.extend([
            Reading::real(Metric::CpuUtilization, Scope::Client, 22.31, stat),
            Reading::real(Metric::ServiceDemandTransaction, Scope::Client, 0.9e6 / rate, system),
            Reading::real(Metric::CpuUtilization, Scope::Server, 24.02, stat),
            Reading::real(Metric::ServiceDemandTransaction, Scope::Server, 1.0e6 / rate, system),
        ]);
    }
    readings.extend([
        Reading::count(Metric::Retransmits, Scope::Client, 0, "TCP_INFO, difference over the window"),
        Reading::count(Metric::Unanswered, Scope::Client, 1, "the client's count"),
        Reading::count(Metric::TransactionsWindow, Scope::Client, n, "sum over the flows"),
        Reading::real(Metric::LongestStall, Scope::Client, 1204.0, "clock of the client"),
    ]);
    readings
}

/// The readings of a stream of datagrams at so many Gbit/s, of which a share was lost.
pub(crate) fn datagrams(gbit: f64, loss: f64) -> Vec<Reading> {
    let stat = "/proc/stat idle time, resolution 10ms";
    let system = "system: busy time of all CPUs / payload received";
    let sequence = "sequence numbers, at the receiver";
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a sample's counts are small"
    )]
    let count = |value: f64| value.round() as u64;
    let received = gbit * 1e9 / 8.0 / 1472.0 * 10.0;
    let sent = received / (1.0 - loss);
    let missing = count(sent - received);
    let number = |metric, value| Reading::count(metric, Scope::Receiver, value, sequence);
    let time = |metric, value| Reading::real(metric, Scope::Receiver, value, "kernel receive time stamps");
    vec![
        Reading::real(
            Metric::Throughput,
            Scope::Receiver,
            gbit * 1e9,
            "receiver's bytes / receiver's elapsed time",
        ),
        Reading::real(
            Metric::Throughput,
            Scope::Sender,
            gbit * 1e9 / (1.0 - loss),
            "bytes handed to the kernel",
        ),
        Reading::real(Metric::PacketRate, Scope::Receiver, received / 10.0, sequence),
        Reading::real(Metric::Loss, Scope::Receiver, loss * 100.0, sequence),
        number(Metric::Lost, missing),
        Reading::count(Metric::LostSender, Scope::Sender, missing / 9, "SO_TXQ drops and the device's"),
        number(Metric::LostPath, missing - missing / 9 - missing / 3),
        Reading::count(Metric::LostReceiver, Scope::Receiver, missing / 3, "SO_RXQ_OVFL"),
        number(Metric::Duplicates, 0),
        number(Metric::Reordered, 17),
        number(Metric::ReorderExtent, 5),
        time(Metric::Jitter, 1.204),
        time(Metric::GapP50, 3.12),
        time(Metric::GapP99, 8.21),
        time(Metric::GapMax, 1204.0),
        Reading::count(Metric::PacketsSent, Scope::Sender, count(sent), "sum over the flows"),
        Reading::count(Metric::PacketsReceived, Scope::Receiver, count(received), sequence),
        Reading::real(Metric::CpuUtilization, Scope::Sender, 48.12, stat),
        Reading::real(Metric::ServiceDemand, Scope::Sender, 12.3 / gbit, system),
        Reading::real(Metric::CpuUtilization, Scope::Receiver, 51.77, stat),
        Reading::real(Metric::ServiceDemand, Scope::Receiver, 14.1 / gbit, system),
    ]
}

/// The readings of a stream each way.
pub(crate) fn both_ways(out: f64, back: f64, shared: bool) -> Vec<Reading> {
    let taken = "receiver's bytes / receiver's elapsed time";
    let stat = "/proc/stat idle time, resolution 10ms";
    let system = "system: busy time of all CPUs / payload received";
    let threads = "threads: per-thread CPU clock / payload received";
    let mut readings = vec![
        Reading::real(Metric::Throughput, Scope::Run, (out + back) * 1e9, "sum of both directions"),
        Reading::real(Metric::Throughput, Scope::Server, out * 1e9, taken),
        Reading::count(Metric::Retransmits, Scope::Client, 3, "TCP_INFO, difference over the window"),
        Reading::real(Metric::Throughput, Scope::Client, back * 1e9, taken),
        Reading::count(Metric::Retransmits, Scope::Server, 0, "TCP_INFO, difference over the window"),
    ];
    if shared {
        readings.extend([
            Reading::real(Metric::CpuUtilization, Scope::SharedHost, 99.1, stat),
            Reading::real(Metric::ServiceDemand, Scope::SharedHost, 0.331, system),
            Reading::real(Metric::ServiceDemand, Scope::Client, 0.152, threads),
            Reading::real(Metric::ServiceDemand, Scope::Server, 0.171, threads),
        ]);
    } else {
        readings.extend([
            Reading::real(Metric::CpuUtilization, Scope::Client, 58.23, stat),
            Reading::real(Metric::ServiceDemand, Scope::Client, 0.1523, system),
            Reading::real(Metric::CpuUtilization, Scope::Server, 61.4, stat),
            Reading::real(Metric::ServiceDemand, Scope::Server, 0.1732, system),
        ]);
    }
    readings
}

/// The readings of a probe beside a stream.
pub(crate) fn probe(idle: f64, loaded: f64) -> Vec<Reading> {
    let few = "n too small: 300 of 1000 needed";
    vec![
        Reading::real(Metric::ProbeIdleP50, Scope::Run, idle, "clock of the client"),
        Reading::absent(Metric::ProbeIdleP99, Scope::Run, "clock of the client", few),
        Reading::real(Metric::ProbeLoadedP50, Scope::Run, loaded, "clock of the client"),
        Reading::real(Metric::ProbeLoadedP99, Scope::Run, loaded * 3.1, "clock of the client"),
    ]
}
