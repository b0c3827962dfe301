//! What was in force: the values the kernel used, beside those asked for.
//!
//! Read from each counted run's `effective` (by end: the host, the first flow's socket, the threads' placement) and
//! from the fingerprint. A value that differed between runs is shown with all that it was, or from the least to the
//! most for sizes, since an autotuned buffer ends every run at another size. The fingerprint of a comparison is that of
//! its base arm, and the heading says so.

use std::fmt::Write as _;

use haul_stats::ByteCount;
use serde_json::Value as Json;

use super::number::{Number, Scale};
use super::wrap::{bound, label, paragraph};
use super::{LONGEST_NAME, Layout, enumerate};
use crate::record::{Document, Facts, Run, Status};

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

pub(super) fn show(out: &mut String, document: &Document, layout: Layout) {
    let complete: Vec<&Run> = document.runs.iter().filter(|run| run.status == Status::Complete).collect();
    let runs = if complete.is_empty() { document.runs.iter().collect() } else { complete };
    let client = groups(document, &runs, "client", document.environment.client.as_ref());
    let server = groups(document, &runs, "server", document.environment.server.as_ref());
    let shared = |group: &String| !group.is_empty() && client.contains(group) && server.contains(group);
    let own = |groups: &[String]| {
        groups.iter().filter(|group| !group.is_empty() && !shared(group)).cloned().collect()
    };
    let both: Vec<String> = client.iter().filter(|group| shared(group)).cloned().collect();
    let lines: [(&str, Vec<String>); 4] =
        [("stream", modes(&runs)), ("both", both), ("client", own(&client)), ("server", own(&server))];
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
    let at = |path: &'static str| move |run: &Run| run.effective.get(end)?.pointer(path).cloned();
    let mut nic = vec![
        known("nic.driver").map(|driver| format!("NIC driver {driver}")),
        known("nic.mtu").map(|mtu| format!("mtu {mtu}")),
    ];
    nic.extend(
        OFFLOADS
            .iter()
            .map(|(short, feature)| Some(format!("{short} {}", known(&format!("nic.feature.{feature}"))?))),
    );
    let mixed = runs.iter().any(|run| at("/flows_alike")(run) == Some(Json::Bool(false)));
    let groups = [
        vec![text(runs, at("/host/hostname"))],
        vec![
            known("kernel.release").map(|release| format!("Linux {release}")),
            known("cpu.model"),
            known("cpu.governor").map(|governor| format!("governor {governor}")),
        ],
        vec![
            text(runs, at("/socket/cc")).map(|cc| format!("cc {cc}")),
            text(runs, at("/socket/mss")).map(|mss| match asked(document, "mss_bytes") {
                Some(asked) => format!("mss {asked} asked, {mss}"),
                None => format!("mss {mss}"),
            }),
            text(runs, at("/socket/tos")).filter(|tos| tos != "0").map(|tos| format!("tos {tos}")),
            text(runs, at("/socket/nodelay")).map(|nodelay| format!("nodelay {nodelay}")),
        ],
        vec![
            buffer(document, runs, end, "sndbuf"),
            buffer(document, runs, end, "rcvbuf"),
            mixed.then(|| "of the first flow, others differ".to_owned()),
        ],
        vec![threads(runs, end)],
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

/// How bytes were sent, received and paced, where that is not how they are by default.
fn modes(runs: &[&Run]) -> Vec<String> {
    let at = |path: &'static str| text(runs, move |run: &Run| run.effective.pointer(path).cloned());
    let unless = |path, default: &str| at(path).filter(|value| value != default);
    let numbers = |path| runs.iter().filter_map(move |run| run.effective.pointer(path)?.as_f64());
    let rates =
        (numbers("/rate/requested").collect::<Vec<_>>(), numbers("/rate/achieved").collect::<Vec<_>>());
    let rate = match (rates.0.as_slice(), Number::of(&rates.1)) {
        ([first, rest @ ..], Some(achieved)) if rest.iter().all(|other| other.total_cmp(first).is_eq()) => {
            let asked = Number { mean: *first, stddev: None };
            let scale = Scale::of("bit/s", &[asked, Number { stddev: None, ..achieved }]);
            let [asked, achieved] = [asked, achieved].map(|number| scale.show(number.mean));
            Some(format!("rate {asked} asked, {achieved} {} sent", scale.unit))
        }
        ([], _) => None,
        _ => Some("rates of several values".to_owned()),
    };
    let modes = [
        unless("/send_with", "write").map(|how| format!("sent with {how}")),
        unless("/recv_with", "read").map(|how| {
            let note = if how == "discard" { " (nothing is copied to user memory)" } else { "" };
            format!("received with {how}{note}")
        }),
        unless("/send_offset_bytes", "0").map(|bytes| format!("send offset {bytes}")),
        unless("/recv_offset_bytes", "0").map(|bytes| format!("receive offset {bytes}")),
        rate,
    ];
    modes.into_iter().flatten().map(|part| bound(&part)).collect()
}

/// The different values of an option, in the order met.
fn text(runs: &[&Run], pick: impl Fn(&Run) -> Option<Json>) -> Option<String> {
    let mut values: Vec<String> = Vec::new();
    for value in runs.iter().filter_map(|run| pick(run)) {
        let value = match value {
            Json::Null | Json::Array(_) | Json::Object(_) => continue,
            Json::Bool(value) => if value { "on" } else { "off" }.to_owned(),
            Json::String(text) => label(&text, LONGEST_NAME),
            Json::Number(number) => number.to_string(),
        };
        if !values.contains(&value) {
            values.push(value);
        }
    }
    match values.len() {
        0 => None,
        1..=MOST_VALUES => Some(values.join(" / ")),
        n => Some(format!("of {n} values")),
    }
}

/// "sndbuf 64K asked, 128K", "rcvbuf 128K to 6M autotuned".
fn buffer(document: &Document, runs: &[&Run], end: &str, name: &str) -> Option<String> {
    let sockets: Vec<&Json> = runs
        .iter()
        .filter_map(|run| run.effective.get(end)?.get("socket"))
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

/// "1 thread on CPU 0", "4 threads on CPUs 0-1".
fn threads(runs: &[&Run], end: &str) -> Option<String> {
    let ends = || runs.iter().filter_map(|run| run.effective.get(end));
    let count = ends().filter_map(|end| end.get("threads")?.as_u64()).max()?;
    let mut cpus: Vec<String> = Vec::new();
    for list in ends().filter_map(|end| end.get("affinity")?.as_array()).flatten().filter_map(Json::as_str) {
        let list = label(list, LONGEST_NAME);
        if !cpus.contains(&list) {
            cpus.push(list);
        }
    }
    let mut text = format!("{count} {}", if count == 1 { "thread" } else { "threads" });
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
