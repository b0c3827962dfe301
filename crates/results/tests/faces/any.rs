//! Documents nobody would write: every field may hold anything its type allows.

use haul_results::record::{
    CellFigure, Document, Environment, Fact, Facts, Failure, Interval, Kind, Options, Run, Stamp, Status,
};
use haul_stats::compare::ArmSummary;
use haul_stats::{CellValue, Comparison, Doubt, DoubtId, Metric, Reading, Scope, Value, Verdict};
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::Value as Json;

/// The same cases in every run.
pub(crate) fn config() -> ProptestConfig {
    ProptestConfig {
        rng_seed: RngSeed::Fixed(20_260_412),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Whether numbers may be infinite or none at all.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Numbers {
    Finite,
    Any,
}

fn number(numbers: Numbers) -> BoxedStrategy<f64> {
    use proptest::num::f64::{ANY, NORMAL, SUBNORMAL, ZERO};
    let usual = prop_oneof![-1e3..1e3, 1e8..1e12, Just(0.0)];
    match numbers {
        Numbers::Finite => prop_oneof![4 => usual, 1 => NORMAL | ZERO | SUBNORMAL].boxed(),
        Numbers::Any => prop_oneof![3 => usual, 1 => ANY].boxed(),
    }
}

fn text() -> BoxedStrategy<String> {
    prop_oneof![4 => "[a-z0-9 _.:-]{0,12}", 1 => any::<String>(), 1 => "[a-z]{60,90}", 1 => "\\PC{0,20}"]
        .boxed()
}

fn axis() -> BoxedStrategy<String> {
    let known = [
        "message_bytes",
        "request_bytes",
        "response_bytes",
        "flows",
        "rate_bits_per_s",
        "rate_per_s",
        "in_flight",
        "busy_poll_us",
    ];
    prop_oneof![2 => proptest::sample::select(known.to_vec()).prop_map(str::to_owned), 1 => "[a-z_]{1,14}"]
        .boxed()
}

fn json() -> BoxedStrategy<Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<u64>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        number(Numbers::Finite).prop_map(Json::from),
        text().prop_map(Json::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Json::from),
            vec((axis(), inner), 0..4).prop_map(|pairs| Json::Object(pairs.into_iter().collect())),
        ]
    })
    .boxed()
}

fn level() -> impl Strategy<Value = CellValue> {
    prop_oneof![any::<u64>().prop_map(CellValue::Int), text().prop_map(CellValue::Text)]
}

/// Options as the record names them, with the values they take and others.
fn options() -> BoxedStrategy<Json> {
    let named = |name: &'static str, usual: Vec<Json>| {
        let value = prop_oneof![3 => proptest::sample::select(usual), 1 => json()];
        value.prop_map(move |value| (name.to_owned(), value))
    };
    let words = |words: &[&str]| words.iter().map(|word| Json::from(*word)).collect::<Vec<_>>();
    let option = prop_oneof![
        named("workload", words(&["stream", "rr", "crr"])),
        named("transport", words(&["tcp", "udp"])),
        named("direction", words(&["send", "receive", "both"])),
        named("placement", words(&["free", "pair"])),
        named("close", words(&["fin", "reset"])),
        named("spin", vec![true.into(), false.into()]),
        named("segment", vec![true.into(), false.into()]),
        named("dont_fragment", vec![true.into(), false.into(), Json::Null]),
        named("batch", vec![1.into(), 64.into()]),
        named("in_flight", vec![1.into(), 16.into()]),
        named("threads", vec!["auto".into(), 4.into()]),
        named("probe_per_s", vec![100.into(), Json::Null]),
        named("rate_per_s", vec!["max".into(), 1000.into()]),
        named("timeout_s", vec![0.2.into(), 0.5.into()]),
        named("busy_poll_us", vec![50.into(), Json::Null]),
        named("bind_device", words(&["eth0", "\u{1b}[2J"])),
        named("tos", vec![184.into(), 0.into()]),
        named("arms", vec![serde_json::json!(["a:opt.batch=64", 3, "b:"])]),
    ];
    vec(option, 0..8).prop_map(|options| Json::Object(options.into_iter().collect())).boxed()
}

/// What a run has in force: often of the shape the text looks into, with anything in it.
fn effective() -> BoxedStrategy<Json> {
    let end = (json(), json(), json(), json(), any::<u64>()).prop_map(|(host, cc, threads, affinity, size)| {
        serde_json::json!({
            "host": {"hostname": host}, "threads": threads, "affinity": [affinity, "0-1"], "flows_alike": false,
            "socket": {"cc": cc, "mss": 1448, "sndbuf": size, "sndbuf_autotuned": true, "rcvbuf": size / 2},
        })
    });
    let leg = (end.clone(), end, options()).prop_map(|(client, server, mut leg)| {
        (leg["client"], leg["server"]) = (client, server);
        leg
    });
    prop_oneof![
        json(),
        leg.clone(),
        vec(leg, 0..3).prop_map(|legs| serde_json::json!({"legs": legs})),
        json().prop_map(|legs| serde_json::json!({"legs": legs})),
    ]
    .boxed()
}

fn doubt() -> BoxedStrategy<Doubt> {
    (proptest::sample::select(DoubtId::ALL), text(), text())
        .prop_map(|(id, text, advice)| Doubt { id, text, advice })
        .boxed()
}

fn metric() -> BoxedStrategy<Metric> {
    proptest::sample::select(Metric::ALL).boxed()
}

fn scope() -> BoxedStrategy<Scope> {
    proptest::sample::select(vec![
        Scope::Sender,
        Scope::Receiver,
        Scope::Client,
        Scope::Server,
        Scope::SharedHost,
        Scope::Run,
    ])
    .boxed()
}

fn reading(numbers: Numbers) -> BoxedStrategy<Reading> {
    let value = prop_oneof![any::<u64>().prop_map(Value::Int), number(numbers).prop_map(Value::Real)];
    (metric(), scope(), of(value), text(), of(text()))
        .prop_map(|(metric, scope, value, source, reason)| Reading {
            metric,
            scope,
            value,
            source: source.into(),
            reason,
        })
        .boxed()
}

fn status() -> BoxedStrategy<Status> {
    proptest::sample::select(vec![
        Status::Complete,
        Status::Complete,
        Status::Interrupted,
        Status::Failed,
        Status::Void,
    ])
    .boxed()
}

fn failure() -> BoxedStrategy<Option<Failure>> {
    of((any::<u8>(), text()).prop_map(|(exit, text)| Failure { exit, text })).boxed()
}

fn run(numbers: Numbers) -> BoxedStrategy<Run> {
    let rates = (of(number(numbers)), of(number(numbers)));
    let counts = (of(any::<u64>()), of(any::<u64>()), of(any::<u64>()));
    let direction = of(prop_oneof![Just("send".to_owned()), Just("receive".to_owned()), text()]);
    let interval = (direction, number(numbers), number(numbers), counts, rates).prop_map(
        |(direction, start_s, seconds, (bytes, transactions, retransmits), rates)| Interval {
            direction,
            start_s,
            seconds,
            bytes,
            bits_per_second: rates.0,
            transactions,
            transactions_per_second: rates.1,
            retransmits,
            packets: transactions,
            lost: retransmits,
        },
    );
    let levels = btree_map(axis(), level(), 0..3);
    let place = (any::<u32>(), of(text()), of(any::<u32>()), levels, number(numbers));
    let content = (effective(), vec(reading(numbers), 0..40), vec(interval, 0..3), vec(doubt(), 0..2));
    (place, status(), failure(), content)
        .prop_map(
            |(
                (index, arm, block, cell, at_s),
                status,
                failure,
                (effective, readings, intervals, warnings),
            )| {
                Run {
                    index,
                    arm,
                    block,
                    cell,
                    profiled: false,
                    status,
                    failure,
                    at_s,
                    effective,
                    readings,
                    intervals,
                    counts: Vec::new(),
                    profiles: Vec::new(),
                    warnings,
                }
            },
        )
        .boxed()
}

fn comparison(numbers: Numbers) -> BoxedStrategy<Comparison> {
    let side = || {
        (text(), of(number(numbers)), of(number(numbers)), 0usize..9, 0usize..3)
            .prop_map(|(arm, mean, stddev, n, failed)| ArmSummary { arm, mean, stddev, n, failed })
    };
    let verdict = || {
        of(proptest::sample::select(vec![
            Verdict::Better,
            Verdict::Worse,
            Verdict::Equivalent,
            Verdict::Undecided,
        ]))
    };
    let what = (metric(), scope(), btree_map(axis(), level(), 0..3), side(), side());
    let found = (
        of(number(numbers)),
        of([number(numbers), number(numbers)]),
        number(Numbers::Finite),
        number(Numbers::Finite),
        of(number(numbers)),
    );
    (what, found, verdict(), verdict(), of(text()), vec(doubt(), 0..2))
        .prop_map(|(what, found, verdict, verdict_corrected, reason, doubts)| {
            let (metric, scope, cell, base, arm) = what;
            let (change_pct, interval_pct, confidence, min_effect_pct, p_value) = found;
            Comparison {
                metric,
                scope,
                unit: metric.facts().unit.into(),
                cell,
                base,
                arm,
                change_pct,
                interval_pct,
                confidence,
                min_effect_pct,
                p_value,
                verdict,
                verdict_corrected,
                reason,
                doubts,
            }
        })
        .boxed()
}

fn facts() -> BoxedStrategy<Option<Facts>> {
    let fact = (of(text()), of(text())).prop_map(|(value, reason)| Fact { value, reason });
    of(btree_map(text(), fact, 0..4)).boxed()
}

fn figure(numbers: Numbers) -> BoxedStrategy<CellFigure> {
    let real = move || of(number(numbers));
    let ends = of((number(numbers), number(numbers)).prop_map(|(low, high)| [low, high]));
    let head = (run(numbers), metric(), scope(), text(), any::<u64>());
    let tail = ((real(), real(), real()), ends, (real(), real()), of(any::<bool>()), of(text()), of(text()));
    (head, tail)
        .prop_map(|((run, metric, scope, unit, n), (reals, interval, more, apart, source, reason))| {
            let (cell, (median, min, max), (confidence, change_pct)) = (run.cell, reals, more);
            CellFigure {
                cell,
                metric,
                scope,
                unit,
                n,
                median,
                interval,
                confidence,
                min,
                max,
                change_pct,
                apart,
                source,
                reason,
            }
        })
        .boxed()
}

/// Any document at all of this schema.
pub(crate) fn document(numbers: Numbers) -> BoxedStrategy<Document> {
    let kind = proptest::sample::select(vec![
        Kind::Stream,
        Kind::Rr,
        Kind::Crr,
        Kind::Ab,
        Kind::Demo,
        Kind::Env,
        Kind::Read,
        Kind::Copy,
    ]);
    let head = (text(), text(), kind, status(), failure(), text(), number(numbers), vec(text(), 0..4));
    let options = (prop_oneof![json(), options()], effective())
        .prop_map(|(requested, effective)| Options { requested, effective });
    let environment = (facts(), facts()).prop_map(|(client, server)| Environment { client, server });
    let body = (
        vec(run(numbers), 0..6),
        vec(figure(numbers), 0..6),
        any::<bool>(),
        vec(comparison(numbers), 0..5),
        vec(doubt(), 0..3),
    );
    (head, options, environment, body)
        .prop_map(|(head, options, environment, (runs, cells, own, comparisons, warnings))| {
            let (version, id, kind, status, failure, started, elapsed_s, command) = head;
            let mut document = Document {
                haul: Stamp { version, schema: haul_results::record::SCHEMA },
                id,
                kind,
                status,
                failure,
                started,
                elapsed_s,
                command,
                options,
                environment,
                runs,
                cells,
                comparisons,
                costs: Vec::new(),
                cost_changes: Vec::new(),
                warnings,
            };
            // Half of them have what their runs come to, the others whatever there may be.
            if own {
                document.cells = haul_results::figures::cells(&document);
            }
            document
        })
        .boxed()
}
