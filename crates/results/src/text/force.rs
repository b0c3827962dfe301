//! What was in force: the values the kernel used, beside those asked for.
//!
//! Read from each counted run's `effective` (by leg and end: the host, the first flow's socket, the threads' placement)
//! and from the fingerprint. A value that differed between runs is shown with all that it was, or from the least to the
//! most for sizes, since an autotuned buffer ends every run at another size. The fingerprint of a comparison is that of
//! its base arm, and the heading says so.
//!
//! How the work was done is shown where it was not done as by default, or not as asked for ([`OPTIONS`]): what is swept
//! stands in the table already. A probe's sockets are not the load's, so its leg counts for nothing but its threads.

use std::fmt::Write as _;

use haul_stats::{ByteCount, Metric, Scope};
use serde_json::Value as Json;

use super::number::{Number, Scale};
use super::rows::{is_exchange, legs, set_by_an_arm, value};
use super::wrap::{bound, clean, label, paragraph};
use super::{LONGEST_NAME, Layout, enumerate, kind_name};
use crate::record::{Document, Facts, Kind, Run, Status};

/// Different values of one option shown before only their number is.
const MOST_VALUES: usize = 4;

/// Columns of the name of an end, with the gap behind it.
const END: usize = 8;

/// Features that decide how much work a packet is, as the kernel names them (`ethtool -k` short forms first).
const OFFLOADS: [(&str, &str); 6] = [
    ("tso", "tx-tcp-segmentation"),
    ("gso", "tx-generic-segmentation"),
    ("gro", "rx-gro"),
    ("lro", "rx-lro"),
    ("sg", "tx-scatter-gather"),
    ("tx-nocache-copy", "tx-nocache-copy"),
];

/// What the arms' settings came to on the hosts: a group of features is as many as the device makes of it.
fn arms(out: &mut String, document: &Document, layout: Layout) {
    let Some(effective) = document.options.effective.as_object().filter(|_| document.kind == Kind::Ab) else {
        return;
    };
    let of = |effective: &Json| -> Vec<String> {
        let settings = effective.get("settings").and_then(Json::as_object);
        let each = settings.into_iter().flatten();
        each.filter_map(|(item, change)| Some(bound(&format!("{item} {}", change.as_str()?)))).collect()
    };
    let arms: Vec<(&String, Vec<String>)> =
        effective.iter().map(|(arm, effective)| (arm, of(effective))).collect();
    if arms.iter().all(|(_, changes)| changes.is_empty()) {
        return;
    }
    layout.heading(out, "what the arms change on the hosts");
    for (arm, changes) in arms {
        let text = if changes.is_empty() { "nothing".to_owned() } else { changes.join(", ") };
        let lead = format!("  {:<END$}", format!("{} ", label(arm, LONGEST_NAME)));
        paragraph(out, &lead, &clean(&text), 4, layout.columns());
    }
}

/// How an option's value is worded.
#[derive(Debug, Clone, Copy)]
enum Word {
    /// Between these.
    Text(&'static str, &'static str),
    /// One value by words of its own; several behind this.
    Values(&'static str, &'static [(&'static str, &'static str)]),
    /// Seconds, told in milliseconds, after this.
    Millis(&'static str),
}

/// The options of the work: their names in the record, the default (none where the host has one of its own), and how they
/// are worded.
const OPTIONS: [(&str, &str, Word); 22] = [
    ("transport", "tcp", Word::Values("over", &[("udp", "over UDP")])),
    ("direction", "send", Word::Values("", &[("receive", "sent by the server"), ("both", "both ways")])),
    ("send_with", "write", Word::Text("sent with ", "")),
    ("send_file", "memory", Word::Text("from the file ", "")),
    (
        "recv_with",
        "read",
        Word::Values(
            "received with",
            &[("discard", "received with discard (nothing is copied to user memory)")],
        ),
    ),
    ("send_offset_bytes", "0", Word::Text("send offset ", "")),
    ("recv_offset_bytes", "0", Word::Text("receive offset ", "")),
    ("payload", "stamped", Word::Text("payload ", "")),
    ("segment", "off", Word::Values("UDP_SEGMENT", &[("on", "sent in trains (UDP_SEGMENT)")])),
    ("gro", "off", Word::Values("UDP_GRO", &[("on", "received in trains (UDP_GRO)")])),
    ("batch", "1", Word::Text("", " datagrams in a call")),
    (
        "dont_fragment",
        "",
        Word::Values("dont-fragment", &[("on", "fragments forbidden"), ("off", "fragments allowed")]),
    ),
    ("in_flight", "1", Word::Text("", " requests of a flow under way")),
    ("timeout_s", "0.2", Word::Millis("sent again after")),
    ("close", "fin", Word::Text("closed by ", "")),
    ("spin", "off", Word::Values("spin", &[("on", "threads spin")])),
    ("probe_per_s", "", Word::Text("", " probes a second")),
    ("placement", "free", Word::Values("placement", &[("pair", "flows placed in pairs")])),
    ("busy_poll_us", "", Word::Text("busy poll ", " µs")),
    ("bind_device", "", Word::Text("bound to ", "")),
    ("mark", "", Word::Text("mark ", "")),
    ("tos", "", Word::Text("tos ", "")),
];

pub(super) fn show(out: &mut String, document: &Document, layout: Layout) {
    arms(out, document, layout);
    let complete: Vec<&Run> = document.runs.iter().filter(|run| run.status == Status::Complete).collect();
    let runs = if complete.is_empty() { document.runs.iter().collect() } else { complete };
    let client = groups(document, &runs, "client", document.environment.client.as_ref());
    let server = groups(document, &runs, "server", document.environment.server.as_ref());
    let shared = |group: &String| !group.is_empty() && client.contains(group) && server.contains(group);
    let own = |groups: &[String]| {
        groups.iter().filter(|group| !group.is_empty() && !shared(group)).cloned().collect()
    };
    let both: Vec<String> = client.iter().filter(|group| shared(group)).cloned().collect();
    let lines: [(&str, Vec<String>); 4] = [
        (workload(document), modes(document, &runs)),
        ("both", both),
        ("client", own(&client)),
        ("server", own(&server)),
    ];
    if lines.iter().all(|(_, groups)| groups.is_empty()) {
        return;
    }
    let heading = match document.comparisons.first() {
        Some(first) => format!("in force (hosts and NICs: under {})", label(&first.base.arm, LONGEST_NAME)),
        None => "in force".to_owned(),
    };
    layout.heading(out, &heading);
    for (end, groups) in lines.iter().filter(|(_, groups)| !groups.is_empty()) {
        paragraph(out, &format!("  {end:<END$}"), &groups.join("; "), 2 + END, layout.columns());
    }
}

/// Everything known of one end, by what it is about; what is the same at both ends is shown once.
fn groups(document: &Document, runs: &[&Run], end: &str, facts: Option<&Facts>) -> Vec<String> {
    let known = |name: &str| facts?.get(name)?.value.as_deref().map(|value| label(value, LONGEST_NAME));
    let loads = loads(document, runs);
    let text = |path: &str| text(loads.iter().filter_map(|leg| leg.get(end)?.pointer(path)));
    let mut nic = vec![
        known("nic.driver").map(|driver| format!("NIC driver {driver}")),
        known("nic.mtu").map(|mtu| format!("mtu {mtu}")),
    ];
    nic.extend(
        OFFLOADS
            .iter()
            .map(|(short, feature)| Some(format!("{short} {}", known(&format!("nic.feature.{feature}"))?))),
    );
    let mixed = loads.iter().any(|leg| {
        leg.get(end).and_then(|end| end.get("flows_alike")).is_some_and(|alike| *alike == Json::Bool(false))
    });
    // A datagram socket has none of these, whatever stands in their places.
    let udp = document.options.requested.get("transport").and_then(Json::as_str) == Some("udp");
    let tcp = vec![
        text("/socket/cc").map(|cc| format!("cc {cc}")),
        text("/socket/mss").map(|mss| match asked(document, "mss_bytes") {
            Some(asked) => format!("mss {asked} asked, {mss}"),
            None => format!("mss {mss}"),
        }),
        text("/socket/nodelay").map(|nodelay| format!("nodelay {nodelay}")),
    ];
    let groups = [
        vec![text("/host/hostname")],
        vec![
            known("kernel.release").map(|release| format!("Linux {release}")),
            known("cpu.model"),
            known("cpu.governor").map(|governor| format!("governor {governor}")),
        ],
        if udp { Vec::new() } else { tcp },
        vec![
            buffer(document, &loads, end, "sndbuf"),
            buffer(document, &loads, end, "rcvbuf"),
            mixed.then(|| "of the first flow, others differ".to_owned()),
        ],
        vec![threads(document, runs, end)],
        nic,
    ];
    let joined = |parts: Vec<Option<String>>| {
        parts.into_iter().flatten().map(|part| bound(&part)).collect::<Vec<_>>().join(", ")
    };
    groups.map(joined).into()
}

/// A number that was asked for.
fn asked(document: &Document, option: &str) -> Option<u64> {
    document.options.requested.get(option).and_then(Json::as_u64)
}

/// The work by its name on the command line.
fn workload(document: &Document) -> &'static str {
    match document.options.requested.get("workload").and_then(Json::as_str) {
        Some("rr") => "rr",
        Some("crr") => "crr",
        _ if matches!(document.kind, Kind::Rr | Kind::Crr) => kind_name(document.kind),
        _ => "stream",
    }
}

/// The legs of the load: all but the last of a run with a probe, which is the probe's.
fn loads<'a>(document: &Document, runs: &[&'a Run]) -> Vec<&'a Json> {
    let probed = document.options.requested.get("probe_per_s").is_some_and(Json::is_number);
    let mut loads = Vec::new();
    for run in runs {
        let mut legs = legs(&run.effective);
        if probed && legs.len() > 1 {
            legs.pop();
        }
        loads.extend(legs);
    }
    loads
}

/// How the work was done, where that is not how it is done by default, or not as asked for.
fn modes(document: &Document, runs: &[&Run]) -> Vec<String> {
    let loads = loads(document, runs);
    let requested = &document.options.requested;
    let swept = |key: &str| runs.iter().any(|run| run.cell.contains_key(key));
    let option = |&(key, default, word): &(&str, &str, Word)| {
        let plain = |value: &str| value == default || (default.is_empty() && value == "0");
        let asked = values(requested.get(key).filter(|_| !set_by_an_arm(requested, key)));
        let asked = asked.first().filter(|asked| !plain(asked));
        let in_force = values(loads.iter().flat_map(|leg| places(leg, key)));
        match (asked, in_force.as_slice()) {
            (Some(asked), [_, ..]) if in_force != [asked.as_str()] => {
                Some(format!("{} asked, {}", worded(word, &[asked]), joined(&in_force)?))
            }
            (Some(asked), _) => Some(worded(word, &[asked])),
            // Whether fragments are allowed is the host's to say where nobody else does.
            (None, [_]) if key == "dont_fragment" => None,
            (None, done) if !done.iter().all(|value| plain(value)) => Some(worded(word, done)),
            _ => None,
        }
    };
    let rate = match () {
        () if swept("rate_per_s") || swept("rate_bits_per_s") => None,
        () if is_exchange(document) => pace(runs),
        () => rate(&loads),
    };
    let mut modes: Vec<String> = OPTIONS.iter().filter(|(key, ..)| !swept(key)).filter_map(option).collect();
    modes.extend(rate);
    modes.iter().map(|part| bound(part)).collect()
}

/// Where a leg may tell an option of its own: by itself, or by the sockets or the settings of its ends.
fn places<'a>(leg: &'a Json, key: &str) -> Vec<&'a Json> {
    // The legs of a run both ways go one way each.
    if key == "direction" {
        return Vec::new();
    }
    let ends = ["client", "server"].map(|end| leg.get(end));
    let sockets = ends.map(|end| end?.get("socket"));
    let places = [Some(leg)].into_iter().chain(sockets).chain(ends).flatten();
    places.filter_map(|place| place.get(key)).collect()
}

fn worded(word: Word, values: &[impl AsRef<str>]) -> String {
    let all = joined(values).unwrap_or_default();
    match word {
        Word::Text(before, after) => format!("{before}{all}{after}"),
        Word::Values(name, words) => {
            let known = words.iter().find(|(known, _)| *known == all);
            known.map_or_else(
                || format!("{name} {all}").trim_start().to_owned(),
                |(_, words)| (*words).to_owned(),
            )
        }
        Word::Millis(before) => match all.parse::<f64>() {
            Ok(seconds) => format!("{before} {} ms", (seconds * 1e6).round() / 1e3),
            Err(_) => format!("{before} {all} s"),
        },
    }
}

/// The rate a stream was held to, and what its sender made of it.
fn rate(loads: &[&Json]) -> Option<String> {
    let numbers = |path| loads.iter().filter_map(move |leg| leg.pointer(path)?.as_f64()).collect::<Vec<_>>();
    held("bit/s", &numbers("/rate/requested"), &numbers("/rate/achieved"), "sent")
}

/// The rate transactions were due at, and what became of it.
fn pace(runs: &[&Run]) -> Option<String> {
    let of = |metric: Metric| -> Vec<f64> {
        let scopes = [Scope::Client, Scope::Run];
        runs.iter().filter_map(|run| scopes.iter().find_map(|scope| value(run, metric, *scope))).collect()
    };
    held("1/s", &of(Metric::RequestedTransactions), &of(Metric::Transactions), "completed")
}

/// "rate 1.000 asked, 0.999 Gbit/s sent".
fn held(unit: &str, requested: &[f64], achieved: &[f64], done: &str) -> Option<String> {
    match (requested, Number::of(achieved)) {
        ([first, rest @ ..], Some(achieved)) if rest.iter().all(|other| other.total_cmp(first).is_eq()) => {
            let asked = Number { mean: *first, stddev: None };
            let scale = Scale::of(unit, &[asked, Number { stddev: None, ..achieved }]);
            let [asked, achieved] = [asked, achieved].map(|number| scale.show(number.mean));
            Some(format!("rate {asked} asked, {achieved} {} {done}", scale.unit))
        }
        ([], _) => None,
        _ => Some("rates of several values".to_owned()),
    }
}

/// The different values of an option, in the order met.
fn values<'a>(found: impl IntoIterator<Item = &'a Json>) -> Vec<String> {
    let mut values: Vec<String> = Vec::new();
    for value in found {
        let value = match value {
            Json::Null | Json::Array(_) | Json::Object(_) => continue,
            Json::Bool(value) => if *value { "on" } else { "off" }.to_owned(),
            Json::String(text) => label(text, LONGEST_NAME),
            Json::Number(number) => number.to_string(),
        };
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values
}

fn joined(values: &[impl AsRef<str>]) -> Option<String> {
    match values.len() {
        0 => None,
        1..=MOST_VALUES => Some(values.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(" / ")),
        n => Some(format!("of {n} values")),
    }
}

fn text<'a>(found: impl IntoIterator<Item = &'a Json>) -> Option<String> {
    joined(&values(found))
}

/// "sndbuf 64K asked, 128K", "rcvbuf 128K to 6M autotuned".
fn buffer(document: &Document, loads: &[&Json], end: &str, name: &str) -> Option<String> {
    let sockets: Vec<&Json> = loads
        .iter()
        .filter_map(|leg| leg.get(end)?.get("socket"))
        .filter(|socket| socket.is_object())
        .collect();
    let sizes: Vec<u64> = sockets.iter().filter_map(|socket| socket.get(name)?.as_u64()).collect();
    let (least, most) = (*sizes.iter().min()?, *sizes.iter().max()?);
    let mut text = name.to_owned();
    let requested = &document.options.requested;
    let asked = requested.get(format!("{name}_bytes")).or_else(|| requested.get(name)).and_then(Json::as_u64);
    if let Some(asked) = asked {
        let _ = write!(text, " {} asked,", ByteCount(asked));
    }
    let _ = write!(text, " {}", ByteCount(least));
    if most > least {
        let _ = write!(text, " to {}", ByteCount(most));
    }
    let autotuned = format!("{name}_autotuned");
    if sockets.iter().any(|socket| socket.get(&autotuned) == Some(&Json::Bool(true))) {
        text.push_str(" autotuned");
    } else if asked.is_some() {
        text.push_str(" as the kernel counts it");
    }
    Some(text)
}

/// "1 thread on CPU 0", "4 threads on CPUs 0-1", "8 asked, 4 threads".
fn threads(document: &Document, runs: &[&Run], end: &str) -> Option<String> {
    let by_run: Vec<Vec<&Json>> = runs
        .iter()
        .map(|run| legs(&run.effective).into_iter().filter_map(|leg| leg.get(end)).collect())
        .collect();
    let ends = || by_run.iter().flatten();
    let threads = |end: &&Json| end.get("threads")?.as_u64();
    // All legs run at once, each with threads of its own.
    let count =
        by_run.iter().filter_map(|ends| ends.iter().filter_map(threads).reduce(u64::saturating_add)).max()?;
    let asked =
        asked(document, "threads").filter(|asked| ends().filter_map(threads).any(|count| count != *asked));
    let mut cpus: Vec<String> = Vec::new();
    for list in ends().filter_map(|end| end.get("affinity")?.as_array()).flatten().filter_map(Json::as_str) {
        let list = label(list, LONGEST_NAME);
        if !cpus.contains(&list) {
            cpus.push(list);
        }
    }
    let mut text = asked.map_or_else(String::new, |asked| format!("{asked} asked, "));
    let _ = write!(text, "{count} {}", if count == 1 { "thread" } else { "threads" });
    let single = |list: &String| list.bytes().all(|b| b.is_ascii_digit());
    match cpus.as_slice() {
        [] => {}
        [one] if single(one) => {
            let _ = write!(text, " pinned to CPU {one}");
        }
        many if many.len() > MOST_VALUES => {
            let _ = write!(text, " on {} sets of CPUs", many.len());
        }
        many => {
            let _ = write!(text, " on CPUs {}", enumerate(many));
        }
    }
    Some(text)
}
