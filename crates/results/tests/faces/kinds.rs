//! Text of the workloads beside a TCP stream one way: exchanges, datagrams, streams both ways, a probe beside the load.

use haul_results::record::{Cell, Document, Interval, Kind, Run, Status};
use haul_results::text;
use haul_stats::compare::correct;
use haul_stats::{Doubt, DoubtId, Metric, Reading, Scope};
use serde_json::{Value as Json, json};

use crate::sample::{
    asked_of_a_stream, asked_of_an_exchange, both_ways, cell, comparison, datagrams, document, effective,
    exchange, failed, probe, run, scatter, two_hosts,
};
use crate::text::shown;

fn one_byte() -> Cell {
    cell(&[("request_bytes", 1), ("response_bytes", 1), ("flows", 1)])
}

fn rr(command: &str, runs: Vec<Run>) -> Document {
    let mut document = document(Kind::Rr, command, runs);
    document.options.requested = asked_of_an_exchange("rr");
    for run in &mut document.runs {
        for end in ["client", "server"] {
            run.effective[end]["socket"]["nodelay"] = true.into();
        }
    }
    document
}

fn stream(command: &str, transport: &str, runs: Vec<Run>) -> Document {
    let mut document = document(Kind::Stream, command, runs);
    document.options.requested = asked_of_a_stream(transport);
    document
}

#[test]
fn one_exchange_between_two_hosts() {
    let readings = exchange(812_345, false);
    insta::assert_snapshot!(shown(&rr("haul rr 10.0.0.2", vec![run(0, one_byte(), readings)]), 80));
}

#[test]
fn one_exchange_on_a_shared_host_too_short_for_its_tail() {
    let mut document =
        rr("haul rr lab -t 100ms --interval 50ms", vec![run(0, one_byte(), exchange(3120, true))]);
    document.runs[0].intervals = [(0.0, 1560), (0.05, 1560)]
        .map(|(start_s, count)| Interval {
            direction: None,
            start_s,
            seconds: 0.05,
            bytes: None,
            bits_per_second: None,
            transactions: Some(count),
            transactions_per_second: Some(count as f64 * 20.0),
            retransmits: Some(0),
            packets: None,
            lost: None,
        })
        .into();
    document.runs[0].warnings =
        vec![Doubt::new(DoubtId::FewSamples, "3120 transactions: p99.9 and p99.99 were left out")];
    insta::assert_snapshot!(shown(&document, 80));
}

#[test]
fn an_exchange_at_a_rate_is_timed_from_when_it_was_due() {
    let mut readings = exchange(100_000, false);
    readings.push(Reading::count(Metric::RequestedTransactions, Scope::Client, 10_000, "--rate"));
    let mut document = rr("haul crr 10.0.0.2 --rate 10K/s", vec![run(0, one_byte(), readings)]);
    document.kind = Kind::Crr;
    document.options.requested = asked_of_an_exchange("crr");
    document.options.requested["rate_per_s"] = 10_000.into();
    document.options.requested["close"] = "reset".into();
    document.options.requested["spin"] = true.into();
    insta::assert_snapshot!(shown(&document, 80));
}

/// Five runs of each of three depths; the first is short of transactions.
fn depths() -> Document {
    let noise = scatter(15, 0.02);
    let runs = (0u32..15).zip(noise).map(|(index, noise)| {
        let (depth, n) = [(1, 9_000.0), (16, 81_000.0), (64, 130_000.0)][index as usize % 3];
        let mut at = cell(&[("request_bytes", 1400), ("response_bytes", 14 << 10), ("flows", 200)]);
        at.extend(cell(&[("in_flight", depth)]));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a sample's counts are small"
        )]
        run(index, at, exchange((n * noise) as u64, true))
    });
    let mut document = rr(
        "haul rr lab --request 1400 --response 14K --flows 200 --in-flight 1,16,64 --runs 5",
        runs.collect(),
    );
    document.options.requested["in_flight"] = json!([1, 16, 64]);
    document
}

#[test]
fn a_sweep_of_exchanges_keeps_what_belongs_together_on_one_page() {
    insta::assert_snapshot!(shown(&depths(), 80));
}

#[test]
fn a_sweep_of_exchanges_on_a_wide_page() {
    insta::assert_snapshot!(shown(&depths(), 160));
}

#[test]
fn exchanges_in_two_groups_get_no_mean_without_a_flag() {
    let counts = [261_000, 530_000, 263_000, 529_000, 531_000, 262_000, 532_000, 261_500];
    let runs = (0u32..).zip(counts).map(|(index, n)| run(index, one_byte(), exchange(n, true)));
    let text = shown(&rr("haul rr lab --runs 8", runs.collect()), 80);
    assert!(text.contains("! two groups of runs, 4 near 26.18 and 4 near 53.05 k/s"), "{text}");
    assert!(text.contains("transactions of each run, k/s: 26.10 53.00"), "{text}");
}

#[test]
fn an_exchange_whose_server_was_lost_shows_what_it_has() {
    let lost = "the server was lost: nothing was heard for 5 s";
    let readings = vec![
        Reading::real(Metric::Transactions, Scope::Client, 81_234.5, "the client's own count"),
        Reading::absent(Metric::LatencyP50, Scope::Client, "clock of the client", lost),
        Reading::absent(Metric::LatencyP99, Scope::Client, "clock of the client", lost),
    ];
    let lost = failed(run(0, one_byte(), readings), Status::Interrupted, 4, lost);
    let text = shown(&rr("haul rr 10.0.0.2", vec![lost]), 80);
    assert!(text.contains("– latency p50 and latency p99: the server was lost"), "{text}");
    assert!(!text.contains("service time"), "no latency needs no explanation\n{text}");
}

fn udp(command: &str, runs: Vec<Run>) -> Document {
    let mut document = stream(command, "udp", runs);
    document.options.requested["message_bytes"] = "auto".into();
    for run in &mut document.runs {
        run.effective["message_bytes"] = 1472.into();
        for end in ["client", "server"] {
            let size = if end == "client" { 212_992 } else { 425_984 };
            run.effective[end]["socket"] = json!({
                "sndbuf": size, "rcvbuf": size, "sndbuf_autotuned": false, "rcvbuf_autotuned": false, "mss": 0,
                "cc": "", "nodelay": false, "tos": 0,
            });
        }
    }
    document
}

#[test]
fn one_stream_of_datagrams_tells_where_they_were_lost() {
    let mut document = udp(
        "haul stream 10.0.0.2 --udp --batch 64 --segment --dont-fragment on",
        vec![run(0, cell(&[("flows", 1)]), datagrams(9.41, 0.000_55))],
    );
    for (option, value) in [("batch", json!(64)), ("segment", json!(true)), ("dont_fragment", json!(true))] {
        document.options.requested[option] = value.clone();
        document.runs[0].effective[option] = if option == "segment" { json!(false) } else { value };
    }
    document.runs[0].warnings = vec![Doubt::new(DoubtId::UdpLoss, "4397 of 7994859 datagrams were lost")];
    insta::assert_snapshot!(shown(&document, 80));
}

#[test]
fn what_is_not_known_of_lost_datagrams_has_its_reason_and_nothing_lost_has_no_place() {
    let mut readings = datagrams(9.41, 0.01);
    for reading in &mut readings {
        if reading.metric == Metric::LostSender {
            let reason = "the queueing discipline does not count for one socket";
            *reading = Reading::absent(reading.metric, reading.scope, "", reason);
        }
    }
    let text = shown(&udp("haul stream 10.0.0.2 --udp", vec![run(0, cell(&[("flows", 1)]), readings)]), 80);
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = "lost: – in the sender's host (the queueing discipline does not count for one socket)";
    assert!(flat.contains(said), "{text}");
    let none = run(0, cell(&[("flows", 1)]), datagrams(9.41, 0.0));
    let text = shown(&udp("haul stream 10.0.0.2 --udp", vec![none]), 80);
    assert!(text.contains("0 lost (0 %)") && !text.contains("lost: "), "{text}");
}

#[test]
fn a_sweep_of_datagrams_fits_the_page() {
    let runs = (0u32..9).zip(scatter(9, 0.02)).map(|(index, noise)| {
        let (rate, gbit, loss) =
            [(1_000_000_000, 1.0, 0.0), (5_000_000_000, 4.99, 0.0004), (9_500_000_000, 9.41, 0.013)]
                [index as usize % 3];
        run(index, cell(&[("flows", 4), ("rate_bits_per_s", rate)]), datagrams(gbit * noise, loss * noise))
    });
    let document = udp("haul stream 10.0.0.2 --udp --rate 1G,5G,9500M --runs 3", runs.collect());
    insta::assert_snapshot!(shown(&document, 80));
}

/// In force in each of the legs of a run.
fn in_legs(count: usize) -> Json {
    json!({"legs": vec![effective(); count]})
}

#[test]
fn a_stream_both_ways_tells_the_ways_apart() {
    let at = cell(&[("message_bytes", 131_072), ("flows", 1)]);
    let mut document = stream(
        "haul stream 10.0.0.2 --direction both --interval 5s",
        "tcp",
        vec![run(0, at, both_ways(41.2, 38.7, false))],
    );
    document.options.requested["direction"] = "both".into();
    document.runs[0].effective = in_legs(2);
    document.runs[0].intervals = [("send", 41.1), ("send", 41.3), ("receive", 38.6), ("receive", 38.8)]
        .iter()
        .zip([0.0, 5.0, 0.000_04, 5.000_04])
        .map(|(&(direction, gbit), start_s)| Interval {
            direction: Some(direction.to_owned()),
            start_s,
            seconds: 5.0,
            bytes: Some(0),
            bits_per_second: Some(gbit * 1e9),
            transactions: None,
            transactions_per_second: None,
            retransmits: Some(1),
            packets: None,
            lost: None,
        })
        .collect();
    insta::assert_snapshot!(shown(&document, 80));
}

#[test]
fn streams_both_ways_on_a_shared_host_are_known_by_their_sum() {
    let at = cell(&[("message_bytes", 131_072), ("flows", 1)]);
    let runs = (0u32..3).map(|index| {
        let mut run = run(index, at.clone(), both_ways(21.0 + f64::from(index), 20.0, true));
        run.effective = in_legs(2);
        run
    });
    let mut document = stream("haul stream lab --direction both --runs 3", "tcp", runs.collect());
    document.options.requested["direction"] = "both".into();
    let text = shown(&document, 80);
    assert!(text.contains("each run, Gbit/s: 41.00 42.00 43.00"), "{text}");
    assert!(text.contains("both ways") && text.contains("2 threads pinned to CPU 0"), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn datagrams_both_ways_have_a_line_for_each_way() {
    let mut readings = both_ways(4.1, 3.9, false);
    readings.retain(|reading| reading.metric != Metric::Retransmits);
    for (scope, loss, lost) in [(Scope::Server, 0.5, 17_412), (Scope::Client, 0.0, 0)] {
        let source = "sequence numbers, at the receiver";
        readings.extend([
            Reading::real(Metric::PacketRate, scope, 348_000.0, source),
            Reading::real(Metric::Loss, scope, loss, source),
            Reading::count(Metric::Lost, scope, lost, source),
            Reading::real(Metric::Jitter, scope, 1.31, source),
        ]);
    }
    let mut document =
        udp("haul stream 10.0.0.2 --udp --direction both", vec![run(0, cell(&[("flows", 1)]), readings)]);
    let leg = document.runs[0].effective.clone();
    document.runs[0].effective = json!({"legs": [leg.clone(), leg]});
    document.options.requested["direction"] = "both".into();
    insta::assert_snapshot!(shown(&document, 80));
}

#[test]
fn a_probe_shows_what_the_load_does_to_latency() {
    let mut readings = two_hosts(9.41);
    readings.extend(probe(21.34, 184.2));
    let at = cell(&[("message_bytes", 131_072), ("flows", 1)]);
    let mut document = stream("haul stream 10.0.0.2 --probe 100/s", "tcp", vec![run(0, at, readings)]);
    document.options.requested["probe_per_s"] = 100.into();
    document.runs[0].effective = in_legs(2);
    // The probe's own sockets are nobody's concern.
    document.runs[0].effective["legs"][1]["client"]["socket"]["sndbuf"] = 16_384.into();
    insta::assert_snapshot!(shown(&document, 80));
}

#[test]
fn probes_of_a_sweep_stand_below_each_other() {
    let runs = (0u32..6).zip(scatter(6, 0.03)).map(|(index, noise)| {
        let (flows, loaded) = [(1, 184.2), (16, 2310.0)][index as usize % 2];
        let mut readings = two_hosts(9.41 * noise);
        readings.extend(probe(21.34 * noise, loaded * noise * noise));
        run(index, cell(&[("message_bytes", 131_072), ("flows", flows)]), readings)
    });
    let document = stream("haul stream 10.0.0.2 --flows 1,16 --probe 100/s --runs 3", "tcp", runs.collect());
    let text = shown(&document, 80);
    let (_, probes) = text.split_once("\nlatency beside the load").expect("a section of its own");
    insta::assert_snapshot!(probes.split_once("\nin force").expect("what was in force").0);
}

/// A comparison of exchanges, its headline first.
fn compared() -> Document {
    let at = [("request_bytes", 1), ("response_bytes", 1), ("flows", 1)];
    let mut comparisons = vec![
        comparison(Metric::Transactions, Scope::Client, &at, 81_234.5, 0.951, 10, 0.01, 0),
        comparison(Metric::LatencyP50, Scope::Client, &at, 11.45, 1.052, 10, 0.01, 0),
        comparison(Metric::LatencyP99, Scope::Client, &at, 19.9, 1.004, 10, 0.02, 0),
        comparison(Metric::ServiceDemandTransaction, Scope::Client, &at, 11.08, 1.001, 10, 0.002, 0),
        comparison(Metric::ServiceDemandTransaction, Scope::Server, &at, 12.31, 0.97, 10, 0.01, 0),
        comparison(Metric::CpuUtilization, Scope::Client, &at, 22.31, 1.0, 10, 0.001, 0),
    ];
    correct(&mut comparisons);
    let runs = (0..20).map(|index| {
        let mut run = run(index, one_byte(), exchange(812_345, false));
        run.arm = Some(if index % 2 == 0 { "off" } else { "on" }.to_owned());
        run.block = Some(index / 2);
        run.effective["spin"] = (index % 2 == 1).into();
        run
    });
    let mut document = rr("haul ab rr 10.0.0.2 --arm off: --arm on:opt.spin=on --pairs 10", runs.collect());
    document.kind = Kind::Ab;
    document.options.requested["arms"] = json!(["off:", "on:opt.spin=on"]);
    document.comparisons = comparisons;
    document
}

#[test]
fn a_comparison_of_exchanges() {
    let text = shown(&compared(), 80);
    assert!(text.contains("threads spin") || text.contains("spin off / on"), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn a_comparison_of_exchanges_that_came_to_nothing_shows_its_runs() {
    let mut document = compared();
    document.comparisons.clear();
    document.runs.truncate(3);
    let text = shown(&document, 80);
    assert!(text.contains("transactions") && text.contains("request "), "{text}");
    // What was asked for all arms is not what an arm with a value of its own did.
    document.options.requested["arms"] = json!(["off:", "on:opt.request=14K"]);
    for run in &mut document.runs {
        run.cell.remove("request_bytes");
    }
    assert!(!shown(&document, 80).contains("request "), "{text}");
}

#[test]
fn a_sentence_for_each_compared_number() {
    let cases = [
        (Metric::Throughput, Scope::Run, 79.9e9),
        (Metric::Throughput, Scope::Server, 41.2e9),
        (Metric::Throughput, Scope::Client, 38.7e9),
        (Metric::PacketRate, Scope::Receiver, 812_345.0),
        (Metric::Loss, Scope::Receiver, 1.3),
        (Metric::Transactions, Scope::Client, 81_234.5),
        (Metric::LatencyP50, Scope::Client, 11.4),
        (Metric::LatencyP99, Scope::Client, 19.9),
        (Metric::ServiceDemand, Scope::Client, 0.15),
        (Metric::ServiceDemandTransaction, Scope::Client, 11.1),
        (Metric::ServiceDemandTransaction, Scope::SharedHost, 14.8),
        (Metric::CpuUtilization, Scope::Server, 24.0),
        (Metric::ProbeLoadedP50, Scope::Run, 184.0),
        (Metric::ProbeLoadedP99, Scope::Run, 571.0),
    ];
    let sentence =
        |(metric, scope, base)| text::sentence(&comparison(metric, scope, &[], base, 1.1, 10, 0.002, 0));
    insta::assert_snapshot!(cases.map(sentence).join("\n"));
}

#[test]
fn every_compared_number_has_a_row() {
    let at = [("message_bytes", 131_072), ("flows", 1)];
    let mut document = document(Kind::Ab, "haul ab stream lab --direction both --probe 100/s", Vec::new());
    document.comparisons = [
        (Metric::Throughput, Scope::Run, 79.9e9),
        (Metric::Throughput, Scope::Server, 41.2e9),
        (Metric::Throughput, Scope::Client, 38.7e9),
        (Metric::PacketRate, Scope::Receiver, 812_345.0),
        (Metric::Loss, Scope::Receiver, 1.3),
        (Metric::ServiceDemandTransaction, Scope::SharedHost, 14.8),
        (Metric::ProbeLoadedP50, Scope::Run, 184.0),
        (Metric::ProbeLoadedP99, Scope::Run, 5711.0),
    ]
    .map(|(metric, scope, base)| comparison(metric, scope, &at, base, 1.1, 10, 0.002, 0))
    .into();
    correct(&mut document.comparisons);
    let text = shown(&document, 80);
    insta::assert_snapshot!(text.split_once("\nverdicts").expect("verdicts").0);
}

#[test]
fn options_are_told_where_they_are_not_the_default_or_not_as_asked() {
    let line = |document: &Document| {
        let text = text::document(document, text::Width(240));
        let line = text.lines().find(|line| line.starts_with("  rr ") || line.starts_with("  stream "));
        line.unwrap_or_default().trim_start().to_owned()
    };
    let mut exchange = rr("haul rr 10.0.0.2", vec![run(0, one_byte(), exchange(812_345, false))]);
    assert_eq!(line(&exchange), "", "defaults are not worth a line");
    for (option, value) in [
        ("in_flight", json!(16)),
        ("timeout_s", json!(0.5)),
        ("placement", json!("pair")),
        ("busy_poll_us", json!(50)),
        ("bind_device", json!("eth1")),
        ("mark", json!(7)),
        ("tos", json!(184)),
        ("threads", json!(8)),
    ] {
        exchange.options.requested[option] = value;
    }
    exchange.runs[0].effective["client"]["socket"]["tos"] = 0.into();
    assert_eq!(
        line(&exchange),
        "rr      16 requests of a flow under way; sent again after 500 ms; flows placed in pairs; busy poll 50 µs; \
         bound to eth1; mark 7; tos 184 asked, 0"
    );
    assert!(shown(&exchange, 240).contains("8 asked, 1 thread pinned to CPU 0"));
    // What is swept stands in the table.
    exchange.runs[0].cell.extend(cell(&[("in_flight", 16)]));
    assert!(!line(&exchange).contains("under way"));

    let mut udp = udp("haul stream 10.0.0.2 --udp", vec![run(0, cell(&[]), datagrams(9.41, 0.0))]);
    assert_eq!(line(&udp), "stream  over UDP");
    let text = shown(&udp, 240);
    assert!(!text.contains("cc ") && !text.contains("mss") && !text.contains("nodelay"), "{text}");
    // Not asked for, so the host's own choice is no news; what an arm sets is not asked of the others.
    udp.runs[0].effective["client"]["socket"]["dont_fragment"] = true.into();
    udp.options.requested["arms"] = json!(["one:", "many:opt.batch=64"]);
    udp.options.requested["batch"] = 1.into();
    udp.runs[0].effective["batch"] = 1.into();
    assert_eq!(line(&udp), "stream  over UDP");
    let mut other = udp.runs[0].clone();
    (other.index, other.effective["batch"]) = (1, 64.into());
    udp.runs.push(other);
    assert_eq!(line(&udp), "stream  over UDP; 1 / 64 datagrams in a call");
}
