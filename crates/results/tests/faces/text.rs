//! Text: every shape a document can take, as people see it.

use haul_results::difference::EnvironmentDiff;
use haul_results::record::{Document, Environment, Fact, Facts, Failure, Kind, Run, Status};
use haul_results::text::{self, Layout, Style, Width};
use haul_stats::compare::correct;
use haul_stats::{CellValue, Decide, Doubt, DoubtId, Metric, Reading, Scope, Verdict};
use proptest::prelude::*;
use serde_json::json;

use crate::any::{self, Numbers};
use crate::sample::{
    cell, comparison, document, failed, four_verdicts, intervals, run, scatter, shared_host, two_hosts,
};

/// The text of a document, with no line beyond the width.
pub(crate) fn shown(document: &Document, width: u16) -> String {
    let text = text::document(document, Width(width));
    for line in text.lines() {
        assert!(line.chars().count() <= usize::from(width), "wider than {width}: {line}");
        assert_eq!(line.trim_end(), line, "a line ends in blanks");
    }
    text
}

fn sweep() -> Document {
    let at = |size| cell(&[("message_bytes", size), ("flows", 4)]);
    let cells = [(4096, 9.12), (65_536, 33.2), (131_072, 53.2)];
    let noise = scatter(15, 0.02);
    let runs = (0u32..15).zip(noise).map(|(index, noise)| {
        let (size, gbit) = cells[index as usize % 3];
        run(index, at(size), two_hosts(gbit * noise))
    });
    document(Kind::Stream, "haul stream 10.0.0.2 --message 4K,64K,128K --flows 4 --runs 5", runs.collect())
}

#[test]
fn one_run_between_two_hosts() {
    let at = cell(&[("message_bytes", 131_072), ("flows", 1)]);
    let mut document = document(
        Kind::Stream,
        "haul stream 10.0.0.2 --time 3s --interval 1s",
        vec![run(0, at, two_hosts(53.2))],
    );
    document.runs[0].intervals = intervals(&[53.1, 53.3, 53.25]);
    insta::assert_snapshot!(shown(&document, 80));
}

#[test]
fn one_run_on_a_shared_host_with_buffers_asked_for() {
    let mut document =
        document(Kind::Stream, "haul stream lab --sndbuf 64K", vec![run(0, cell(&[]), shared_host(53.2))]);
    document.options.requested =
        json!({"message": 131_072, "flows": 1, "sndbuf_bytes": 65_536, "rcvbuf_bytes": "auto"});
    for (end, size) in [("client", 131_072), ("server", 87_040)] {
        document.runs[0].effective[end]["socket"]["sndbuf"] = size.into();
        document.runs[0].effective[end]["socket"]["sndbuf_autotuned"] = (end == "server").into();
    }
    document.runs[0].effective["client"]["affinity"] = json!(["0-1"]);
    document.runs[0].warnings = vec![
        Doubt::new(DoubtId::SharedHost, "client and server run on the same kernel"),
        Doubt::new(DoubtId::Unpinned, "worker threads of the client may move between CPUs"),
    ];
    insta::assert_snapshot!(shown(&document, 80));
}

#[test]
fn the_copies_that_were_to_be_saved_are_told_below_the_table() {
    let at = || cell(&[("message_bytes", 131_072), ("flows", 1)]);
    let runs = [(53.2, 100.0, 12.5), (51.8, 98.2, 87.0)].into_iter().zip(0..).map(
        |((gbit, copied, mapped), index)| {
            let mut readings = two_hosts(gbit);
            readings.push(Reading::real(Metric::ZerocopyCopied, Scope::Sender, copied, "notices"));
            readings.push(Reading::real(
                Metric::ReceiveMapped,
                Scope::Receiver,
                mapped,
                "TCP_ZEROCOPY_RECEIVE",
            ));
            run(index, at(), readings)
        },
    );
    let command = "haul stream HOST --send-with zerocopy --recv-with zerocopy --runs 2";
    let shown = shown(&document(Kind::Stream, command, runs.collect()), 80);
    for line in [
        "each run: moved 64.75 to 66.50 GB in 10.00 s; 3 segments sent again, 0.04511 to 0.04633 per GB; RTT of the \
         sender 36.80 to 38.20 µs",
        "98.2 to 100.0 % of the sends were copied after all; 12.50 to 87.00 % of the bytes received were mapped",
    ] {
        let plain = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(plain.contains(line), "{line}\n{shown}");
    }
}

#[test]
fn doubts_stand_last_a_line_each_with_their_count() {
    let mut document = sweep();
    for (index, run) in document.runs.iter_mut().enumerate() {
        let text = format!("{:.2} s of CPU time were stolen in a window of 10 s", 0.5 + index as f64);
        run.warnings.push(Doubt::new(DoubtId::Steal, text));
        run.warnings.push(Doubt::new(DoubtId::Unpinned, "worker threads of the client may move"));
    }
    let shown = shown(&document, 80);
    let (_, doubts) = shown.split_once("\ndoubts\n").expect("doubts");
    assert_eq!(
        doubts,
        "  steal: 0.50 s of CPU time were stolen in a window of 10 s (and 14 more such)\n  \
         unpinned: worker threads of the client may move (in 15 runs) -> --pin\n  \
         'haul explain NAME' says what to do about each.\n"
    );
}

#[test]
fn the_columns_of_tables_are_explained_by_the_metrics_in_them() {
    for (name, metrics) in [
        ("p50", &["latency_p50 ("][..]),
        ("p99.9", &["latency_p99_9 ("]),
        ("P99_9", &["latency_p99_9 ("]),
        ("demand", &["service_demand (", "service_demand_transaction ("]),
        ("CPU", &["cpu_utilization ("]),
        ("retrans", &["retransmits ("]),
        ("idle p50", &["probe_idle_p50 ("]),
        ("max", &["latency_max ("]),
        ("both", &["the one kernel of a shared host"]),
    ] {
        let shown = text::explain(Some(name), Width::PAGE).expect(name);
        assert!(metrics.iter().all(|metric| shown.contains(metric)), "{name}: {shown}");
    }
    // What heads a column must not be a riddle: every word of the tables' headings is known.
    let words =
        ["throughput", "packets", "loss", "transactions", "latency", "CPU", "demand", "retrans", "runs"];
    for word in words.into_iter().chain(["arm", "sender", "receiver", "client", "server", "both", "change"]) {
        assert!(text::explain(Some(word), Width::PAGE).is_ok(), "{word}");
    }
}

#[test]
fn a_sweep_fits_the_page() {
    insta::assert_snapshot!(shown(&sweep(), 80));
}

#[test]
fn a_sweep_is_shown_in_the_order_of_its_axes_not_of_its_runs() {
    let order = [(4, 1 << 10), (1, 128 << 10), (4, 128 << 10), (1, 1 << 10), (1, 16 << 10)];
    let runs = order.iter().zip(0..).map(|(&(flows, message), index)| {
        run(index, cell(&[("flows", flows), ("message_bytes", message)]), two_hosts(10.0))
    });
    let shown = shown(&document(Kind::Stream, "haul stream HOST", runs.collect()), 80);
    let rows: Vec<Vec<&str>> = shown
        .lines()
        .map(|line| line.split_whitespace().take(2).collect::<Vec<_>>())
        .filter(|row| row.first().is_some_and(|first| ["1K", "16K", "128K"].contains(first)))
        .collect();
    assert_eq!(rows, [["1K", "1"], ["1K", "4"], ["16K", "1"], ["128K", "1"], ["128K", "4"]], "{shown}");
}

#[test]
fn a_sweep_on_a_wide_page() {
    insta::assert_snapshot!(shown(&sweep(), 140));
}

#[test]
fn a_sweep_over_many_axes_is_folded_not_cut() {
    let mut document = sweep();
    for run in &mut document.runs {
        run.cell.insert("sndbuf_bytes".to_owned(), CellValue::Int(65_536));
        run.cell.insert("cc".to_owned(), CellValue::Text("cubic".to_owned()));
        run.cell.insert("nodelay".to_owned(), CellValue::Text("true".to_owned()));
    }
    insta::assert_snapshot!(shown(&document, 80));
}

#[test]
fn failed_and_void_runs_and_missing_numbers_are_told() {
    let mut document = sweep();
    let lost = "server (10.0.0.2): the session was lost: nothing was heard for 5 s; is 'haul serve' still running there?";
    for index in [1, 4] {
        document.runs[index] = failed(document.runs[index].clone(), Status::Failed, 4, lost);
    }
    let changed = "changed during the run: server cpu.governor: performance → powersave";
    document.runs[5] = failed(document.runs[5].clone(), Status::Void, 1, changed);
    let reason = "/proc/stat cannot be read: permission denied";
    for run in &mut document.runs {
        for reading in &mut run.readings {
            if reading.scope == Scope::Receiver && reading.metric != Metric::Throughput {
                *reading = Reading::absent(reading.metric, reading.scope, reading.source.clone(), reason);
            }
        }
    }
    document.warnings = vec![Doubt::new(DoubtId::FailedRuns, "2 of 15 runs failed, 1 is void")];
    insta::assert_snapshot!(shown(&document, 80));
}

#[test]
fn two_groups_of_runs_get_no_mean_without_a_flag() {
    let rates = [26.1, 53.0, 26.3, 52.9, 53.1, 26.2, 53.2, 26.15];
    let runs = (0u32..).zip(rates).map(|(index, gbit)| run(index, cell(&[("flows", 1)]), shared_host(gbit)));
    let mut document = document(Kind::Stream, "haul stream lab --runs 8", runs.collect());
    document.warnings =
        vec![Doubt::new(DoubtId::TwoModes, "throughput: 4 runs near 26.2, 4 near 53.0 Gbit/s")];
    let text = shown(&document, 80);
    assert!(text.contains("! two groups of runs"), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn an_interrupted_stream_shows_what_had_run() {
    let at = cell(&[("message_bytes", 131_072), ("flows", 1)]);
    let mut document = document(
        Kind::Stream,
        "haul stream 10.0.0.2 --time 1h",
        vec![failed(run(0, at, two_hosts(53.2)), Status::Interrupted, 0, "")],
    );
    document.status = Status::Interrupted;
    document.elapsed_s = 754.2;
    document.warnings =
        vec![Doubt::new(DoubtId::Interrupted, "stopped by its user after 0 complete runs of 1")];
    insta::assert_snapshot!(shown(&document, 80));
}

#[test]
fn a_lost_peer_leaves_the_own_half_labelled_as_such() {
    let half = vec![
        Reading::real(Metric::Throughput, Scope::Sender, 53.2e9, "bytes handed to the sender's kernel"),
        Reading::absent(Metric::Throughput, Scope::Receiver, "the other end's report", "the server was lost"),
    ];
    let run = failed(run(0, cell(&[("flows", 1)]), half), Status::Interrupted, 4, "the server was lost");
    let text = shown(&document(Kind::Stream, "haul stream 10.0.0.2", vec![run]), 80);
    insta::assert_snapshot!(text);
}

#[test]
fn a_failed_document_says_why_and_shows_no_number() {
    let mut document = document(Kind::Stream, "haul stream 10.0.0.2 --cc 'bbr 2'", Vec::new());
    document.status = Status::Failed;
    document.command = vec!["haul".into(), "stream".into(), "10.0.0.2".into(), "--cc".into(), "bbr 2".into()];
    document.environment = Environment::default();
    document.elapsed_s = 0.3;
    let text = "client: connect to TCP 10.0.0.2:4285 failed: connection refused (errno 111); is 'haul serve' running there?";
    document.failure = Some(Failure { exit: 4, text: text.to_owned() });
    insta::assert_snapshot!(shown(&document, 80));
}

#[test]
fn a_comparison_with_every_verdict() {
    let document = four_verdicts();
    let verdicts: Vec<_> = document.comparisons.iter().filter_map(|c| c.verdict_corrected).collect();
    for verdict in [Verdict::Better, Verdict::Worse, Verdict::Equivalent, Verdict::Undecided] {
        assert!(verdicts.contains(&verdict), "the sample has no {verdict:?}");
    }
    insta::assert_snapshot!(shown(&document, 80));
}

#[test]
fn a_comparison_on_a_wide_page() {
    insta::assert_snapshot!(shown(&four_verdicts(), 140));
}

fn ab(command: &str, arms: &[&str], pairs: u32) -> Document {
    let mut runs: Vec<Run> = Vec::new();
    for block in 0..pairs {
        for arm in arms {
            let index = u32::try_from(runs.len()).expect("few runs");
            let mut run = run(index, cell(&[("message_bytes", 131_072), ("flows", 1)]), shared_host(53.2));
            (run.arm, run.block) = (Some((*arm).to_owned()), Some(block));
            runs.push(run);
        }
    }
    document(Kind::Ab, command, runs)
}

#[test]
fn too_few_pairs_are_said_with_the_number_that_could_decide() {
    let mut document = ab("haul ab stream lab --arm off: --arm on:nic.gro=on --pairs 4", &["off", "on"], 4);
    let at = [("message_bytes", 131_072), ("flows", 1)];
    document.comparisons = vec![
        comparison(Metric::Throughput, Scope::Receiver, &at, 53.2e9, 0.9, 4, 0.01, 0),
        comparison(Metric::Retransmits, Scope::Sender, &at, 0.0, 1.0, 4, 0.0, 0),
    ];
    correct(&mut document.comparisons);
    insta::assert_snapshot!(shown(&document, 80));
}

#[test]
fn voided_pairs_long_names_and_a_null_arm() {
    let arms = ["tx-nocache-copy-off", "tx-nocache-copy-on", "null"];
    let mut document = ab("haul ab stream lab --null --pairs 8", &arms, 8);
    let changed = "changed during the run: client nic.feature.rx-gro: on → off";
    for index in [3, 4, 5, 9, 10, 11] {
        document.runs[index] = failed(document.runs[index].clone(), Status::Void, 1, changed);
    }
    let at = [("message_bytes", 131_072), ("flows", 1)];
    for (arm, ratio) in [(arms[1], 0.78), (arms[2], 1.002)] {
        for (metric, scope, base) in
            [(Metric::Throughput, Scope::Receiver, 53.2e9), (Metric::ServiceDemand, Scope::SharedHost, 0.33)]
        {
            let mut one = comparison(metric, scope, &at, base, ratio, 6, 0.002, 0);
            (one.base.arm, one.arm.arm) = (arms[0].to_owned(), arm.to_owned());
            document.comparisons.push(one);
        }
    }
    document.comparisons[0]
        .doubts
        .push(Doubt::new(DoubtId::TwoModes, "throughput of null: 3 runs near 50, 3 near 53"));
    correct(&mut document.comparisons);
    document.warnings = vec![Doubt::new(DoubtId::EnvironmentChanged, changed)];
    insta::assert_snapshot!(shown(&document, 80));
}

fn ab_sweep(cells: &[u64]) -> Document {
    let mut document =
        ab("haul ab stream lab --message 1K..128K*2 --arm off: --arm on:nic.gro=on", &["off", "on"], 9);
    for (step, &size) in cells.iter().enumerate() {
        let at = [("message_bytes", size), ("flows", 1)];
        let ratio = [0.7, 0.97, 1.0, 1.013, 1.2][step % 5];
        let gbit = 53.2e9 * (size as f64 / 131_072.0).sqrt();
        document.comparisons.push(comparison(
            Metric::Throughput,
            Scope::Receiver,
            &at,
            gbit,
            ratio,
            9,
            0.004,
            0,
        ));
        document.comparisons.push(comparison(
            Metric::ServiceDemand,
            Scope::Sender,
            &at,
            8e9 / gbit,
            1.0 / ratio,
            9,
            0.01,
            0,
        ));
    }
    correct(&mut document.comparisons);
    document
}

#[test]
fn a_compared_sweep_has_a_table_for_each_metric() {
    insta::assert_snapshot!(shown(&ab_sweep(&[4096, 16_384, 65_536, 131_072]), 80));
}

#[test]
fn a_long_compared_sweep_is_summed_up() {
    let document = ab_sweep(&[1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072]);
    insta::assert_snapshot!(shown(&document, 100));
}

#[test]
fn a_comparison_cut_short_before_its_first_pair_shows_its_runs() {
    let mut document = ab("haul ab stream lab --arm off: --arm on:nic.gro=on", &["off", "on"], 1);
    document.status = Status::Interrupted;
    document.runs[1] = failed(document.runs[1].clone(), Status::Interrupted, 0, "");
    insta::assert_snapshot!(shown(&document, 80));
}

#[test]
fn two_fingerprints_show_what_they_share_once() {
    let mut document = document(Kind::Env, "haul env 10.0.0.2", Vec::new());
    insta::assert_snapshot!("both_ends", shown(&document, 80));
    document.environment.server = None;
    insta::assert_snapshot!("one_end", shown(&document, 80));
}

#[test]
fn a_sentence_for_each_verdict() {
    let make = |metric, scope, base, ratio, pairs, share| {
        comparison(metric, scope, &[], base, ratio, pairs, share, 0)
    };
    let mut family: Vec<_> =
        (0..40).map(|_| make(Metric::Throughput, Scope::Receiver, 1e9, 1.02, 8, 0.002)).collect();
    correct(&mut family);
    let mut cases = vec![
        make(Metric::Throughput, Scope::Receiver, 53.2e9, 0.76, 10, 0.01),
        make(Metric::ServiceDemand, Scope::Sender, 0.15, 0.9, 10, 0.01),
        make(Metric::CpuUtilization, Scope::SharedHost, 97.0, 1.0, 10, 0.002),
        make(Metric::Throughput, Scope::Receiver, 53.2e9, 1.01, 10, 0.02),
        make(Metric::Retransmits, Scope::Sender, 0.0, 1.0, 10, 0.0),
        make(Metric::Rtt, Scope::Sender, 80.0, 1.5, 10, 0.01),
        family.remove(0),
    ];
    let from_zero: Vec<(f64, f64)> =
        scatter(8, 0.3).iter().map(|noise| (0.0, (12.0 * noise).round())).collect();
    let pairs = haul_stats::compare::Pairs {
        metric: Metric::Retransmits,
        scope: Scope::Sender,
        cell: &haul_stats::Cell::new(),
        base: "off",
        arm: "on",
        values: &from_zero,
        base_failed: 0,
        arm_failed: 0,
    };
    cases.push(Decide::default().compare(&pairs));
    let sentences: Vec<String> = cases.iter().map(text::sentence).collect();
    insta::assert_snapshot!(sentences.join("\n"));
}

#[test]
fn explanations() {
    insta::assert_snapshot!("all_names", text::explain(None, Width::PAGE).expect("an overview"));
    for name in ["service_demand", "Service-Demand", "unpinned", "shared host"] {
        insta::assert_snapshot!(format!("explain_{}", name.to_lowercase().replace([' ', '-'], "_")), {
            text::explain(Some(name), Width::PAGE).expect("a known name")
        });
    }
    for (name, says) in [
        (
            "throughputs",
            "'throughputs' is neither a metric nor a doubt, did you mean 'throughput'?; 'haul explain' lists them",
        ),
        ("42", "'42' is neither a metric nor a doubt; 'haul explain' lists them"),
    ] {
        assert_eq!(text::explain(Some(name), Width::PAGE).expect_err(name).to_string(), says);
    }
}

#[test]
fn a_number_and_the_doubt_about_it_are_explained_together() {
    for name in ["unanswered", "overlap", "zerocopy_copied"] {
        let text = text::explain(Some(name), Width::PAGE).expect("a known name");
        assert!(text.starts_with(&format!("{name} (")), "{text}");
        assert!(text.contains(&format!("\n\n{name} (a doubt about a result)\n")), "{text}");
    }
    insta::assert_snapshot!(text::explain(Some("unanswered"), Width::PAGE).expect("a known name"));
}

#[test]
fn colour_changes_no_character_of_the_text() {
    let colour = Layout { width: Width::PAGE, style: Style::Colour };
    for document in [four_verdicts(), sweep(), ab_sweep(&[4096, 65_536])] {
        let coloured = text::document(&document, colour);
        assert!(coloured.contains("\u{1b}[1m"), "no heading is bold");
        let mut plain = String::new();
        let mut rest = coloured.as_str();
        while let Some((before, escape)) = rest.split_once("\u{1b}[") {
            plain.push_str(before);
            rest = escape.split_once('m').expect("a colour").1;
        }
        plain.push_str(rest);
        assert_eq!(plain, text::document(&document, Width::PAGE));
    }
    let coloured = text::document(&four_verdicts(), colour);
    for painted in ["\u{1b}[31mworse\u{1b}[0m", "\u{1b}[32mbetter\u{1b}[0m", "\u{1b}[33mundecided\u{1b}[0m"] {
        assert!(coloured.contains(painted), "{painted:?} is missing");
    }
}

#[test]
fn a_hostile_peer_cannot_reach_the_terminal() {
    let mut document = document(Kind::Stream, "haul stream 10.0.0.2", Vec::new());
    let text = "\u{1b}]0;owned\u{7}\u{1b}[2J\r\n gone \u{202e}drow";
    document.failure = Some(Failure { exit: 4, text: text.to_owned() });
    let shown = text::document(&document, Width::PAGE);
    assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
    assert!(shown.contains("\\u{1b}]0;owned") && shown.contains("\\u{202e}drow"), "{shown}");
}

proptest! {
    #![proptest_config(any::config())]

    #[test]
    fn no_document_makes_the_text_panic(document in any::document(Numbers::Any), width in any::<u16>(), colour: bool) {
        let style = if colour { Style::Colour } else { Style::Plain };
        let text = text::document(&document, Layout { width: Width(width), style });
        prop_assert!(text.ends_with('\n'));
        if !colour {
            prop_assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{:?}", text);
        }
        for comparison in &document.comparisons {
            prop_assert!(text::sentence(comparison).ends_with('.'));
        }
        for facts in document.environment.client.iter().chain(&document.environment.server) {
            let _ = text::facts(facts, Width(width));
        }
    }
}

#[test]
fn ways_of_sending_receiving_and_pacing_that_are_not_the_default_are_shown_as_in_force() {
    let runs = vec![run(0, cell(&[]), two_hosts(0.9987))];
    let mut document = document(Kind::Stream, "haul stream 10.0.0.2 --rate 1G", runs);
    assert!(!shown(&document, 140).contains("  stream "), "defaults are not worth a line");
    let run = &mut document.runs[0].effective;
    run["send_with"] = json!("sendfile");
    run["recv_with"] = json!("discard");
    run["send_offset_bytes"] = json!(0);
    run["recv_offset_bytes"] = json!(17);
    run["rate"] = json!({"requested": 1_000_000_000, "achieved": 998_700_000.0});
    document.options.requested["mss_bytes"] = json!(1000);
    let text = shown(&document, 240);
    for part in [
        "sent with sendfile; received with discard (nothing is copied to user memory); receive offset 17",
        "rate 1.000 asked, 0.999 Gbit/s sent",
        "mss 1000 asked, 1448",
    ] {
        assert!(text.contains(part), "'{part}' is missing from\n{text}");
    }
    assert!(!text.contains("send offset"));
}

#[test]
fn the_demonstration_says_what_its_mark_means_and_its_commands_fit_the_page() {
    let mut document = four_verdicts();
    document.kind = Kind::Demo;
    let command = "haul ab stream lab --cc reno --pin 0,1 --time 1s --warmup 200ms --arm off:nic.tso=off --arm on:nic.tso=on \
                   --allow-side-effects";
    let story =
        text::Demonstration { doing: "Turning it on", null: "off again", next: &[(command, "the question")] };
    let shown = |document: &_| text::demonstration(document, &story, Width::PAGE);
    let sure = shown(&document);
    assert!(!sure.contains("two groups"), "{sure}");
    for comparison in &mut document.comparisons {
        comparison.doubts.push(Doubt::new(DoubtId::TwoModes, "for the test"));
    }
    let unsure = shown(&document);
    assert!(
        unsure.contains("worse !") && unsure.contains("! The runs of an arm fall into two groups"),
        "{unsure}"
    );
    let longest = unsure.lines().map(|line| line.chars().count()).max();
    assert!(longest <= Some(80), "{unsure}");
}

#[test]
fn what_the_hosts_did_beside_a_single_run_takes_a_line_each_and_what_was_dropped_is_told() {
    let mut run = run(0, cell(&[]), two_hosts(9.4));
    for (scope, nic) in [(Scope::Sender, Some(41_000)), (Scope::Receiver, None)] {
        run.readings.push(Reading::count(Metric::Interrupts, scope, 52_310, "interrupts"));
        run.readings.push(Reading::real(Metric::InterruptsPerSecond, scope, 5231.0, "interrupts"));
        run.readings.push(Reading::real(Metric::InterruptsPerGb, scope, 4.45, "interrupts"));
        run.readings.push(match nic {
            Some(count) => Reading::count(Metric::InterruptsNic, scope, count, "interrupts"),
            None => Reading::absent(Metric::InterruptsNic, scope, "interrupts", "it has none"),
        });
        run.readings.push(Reading::count(Metric::DeviceDrops, scope, 0, "device"));
        run.readings.push(Reading::real(Metric::DevicePacketsPerSecond, scope, 812_345.6, "device"));
    }
    run.readings.push(Reading::real(Metric::PacketsPerInterrupt, Scope::Sender, 23.4, "device"));
    run.readings.push(Reading::count(Metric::SoftnetDropped, Scope::Receiver, 1234, "softnet"));
    run.readings.push(Reading::real(Metric::CpuBackground, Scope::Receiver, 12.0, "before"));
    run.readings.push(Reading::real(Metric::ServiceDemandNet, Scope::Receiver, 0.26, "net"));
    insta::assert_snapshot!(shown(&document(Kind::Stream, "haul stream 10.0.0.2", vec![run]), 80));
}

#[test]
fn the_difference_of_two_fingerprints_is_in_groups_and_harms_no_terminal() {
    let fact = |value: &str| Fact { value: Some(value.to_owned()), reason: None };
    let absent = Fact { value: None, reason: Some("permission denied".to_owned()) };
    let of = |facts: &[(&str, Fact)]| -> Facts {
        facts.iter().map(|(name, fact)| ((*name).to_owned(), fact.clone())).collect()
    };
    let a = of(&[
        ("cpu.microcode", fact("0x1")),
        ("kernel.command_line", fact("quiet")),
        ("nic.mtu", fact("1500")),
        ("sysctl.net.core.rmem_max", fact("212992")),
    ]);
    let b = of(&[
        ("cpu.microcode", absent),
        ("kernel.command_line", fact("quiet \u{1b}[31mmitigations=off")),
        ("nic.mtu", fact("9000")),
        ("sysctl.net.core.rmem_max", fact("212992")),
        ("sysctl.net.core.wmem_max", fact("212992")),
    ]);
    let one = Environment { client: Some(a.clone()), server: Some(a.clone()) };
    let two = Environment { client: Some(b), server: Some(a) };
    let found = EnvironmentDiff::of(&one, &two);
    insta::assert_snapshot!(text::difference(["monday.json", "tuesday\u{202e}.json"], &found, Width::PAGE));
}

#[test]
fn what_explains_a_change_has_a_row_and_no_sentence() {
    let mut document = four_verdicts();
    let at = [("message_bytes", 131_072), ("flows", 1)];
    let of = |metric, base, ratio| comparison(metric, Scope::SharedHost, &at, base, ratio, 10, 0.01, 0);
    document.comparisons.extend([
        of(Metric::InterruptsPerGb, 1523.0, 2.0),
        of(Metric::PacketsPerInterrupt, 41.5, 0.5),
        of(Metric::SoftnetDropped, 0.0, 1.0),
        of(Metric::SoftnetSqueezed, 12.0, 1.5),
        of(Metric::DevicePacketsPerSecond, 9e5, 1.0),
    ]);
    let text = shown(&document, 80);
    insta::assert_snapshot!(text);
    let (table, sentences) = text.split_once("\nverdicts\n").expect("verdicts");
    assert!(table.contains("both, 1/GB") && !sentences.contains("interrupt"), "{text}");
    assert!(!text.contains("softnet dropped") && !text.contains("device packets"), "{text}");
}

/// Walks what the renderers head their columns with, so that no new one can be a riddle.
#[test]
fn every_heading_of_a_table_is_explained() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/text");
    let mut words = std::collections::BTreeSet::new();
    for entry in std::fs::read_dir(folder).expect("the renderers").flatten() {
        let source = std::fs::read_to_string(entry.path()).expect("a source");
        for start in ["Column::text(&[", "Column::numbers(&[", "rows_of(", "change_rows("] {
            for (at, _) in source.match_indices(start) {
                let rest = &source[at + start.len()..];
                let heading = rest.split([']', ',']).next().unwrap_or_default();
                words.extend(heading.split('"').skip(1).step_by(2).map(str::to_owned));
            }
        }
    }
    assert!(words.len() > 8 && words.contains("event") && words.contains("symbol"), "{words:?}");
    // What stands below the tables and in them, beside the names of classes and routines.
    let printed = [
        "level",
        "routine",
        "today",
        "unaligned",
        "all",
        "part",
        "ceiling",
        "user",
        "other",
        "others",
        "limits",
        "thresholds",
        "user mode only",
        "verdict",
        "estimate",
    ];
    let all = words.iter().map(String::as_str).filter(|word| word.chars().any(char::is_alphabetic));
    for word in all.chain(printed) {
        assert!(
            text::explain(Some(word), Width::PAGE).is_ok(),
            "'{word}' heads a column and is not explained"
        );
    }
}
