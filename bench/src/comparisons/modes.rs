//! Every way of sending and receiving, against a bare loop of the same system calls, and iperf3 in its two.

use crate::counter::Counts;
use crate::table::{Place, Row, Table};

/// How bytes are sent and received.
const MODES: [(&str, &str); 9] = [
    ("write", "read"),
    ("write", "discard"),
    ("sendfile", "read"),
    ("sendfile", "discard"),
    ("splice", "read"),
    ("splice", "discard"),
    ("zerocopy", "read"),
    ("write", "zerocopy"),
    ("zerocopy", "zerocopy"),
];

pub(super) fn tables() -> Vec<Table> {
    let pinned = Table { again: true, ..table(Place::Across) };
    vec![table(Place::Anywhere), pinned]
}

fn table(place: Place) -> Table {
    let title = format!("one TCP stream by each mode, 128 KiB messages, reno, offloads on, {}", place.text());
    let mut table = Table::new(title, Counts::Bytes);
    for (send, receive) in MODES {
        let mode = format!("{send} → {receive}");
        let (haul, bare) = (format!("haul {mode}"), format!("bare {mode}"));
        let options = format!("--send-with {send} --recv-with {receive}");
        let (send, receive) = (format!("--how {send}"), format!("--how {receive}"));
        table = table
            .row(Row::haul(&haul, "stream", &options, "throughput").at(place))
            .row(Row::bare(&bare, ("bare-receive", &receive), ("bare-send", &send)).at(place))
            .like(&haul, &bare);
    }
    let client = "iperf3 -c {host} -p {port} -t {whole} -l 131072";
    let iperf3 =
        |name, option: &str| Row::new(name, "iperf3 -s -1 -p {port}", format!("{client} {option}")).at(place);
    // iperf3 sends from a file of one buffer in /tmp, which stays in the nearest cache: to be compared, haul does the same.
    // From one in memory it is about a sixth slower where /tmp has larger pages in its cache, as ext4 has since Linux 6.16.
    let repeated = "--send-with sendfile --recv-with read --send-file {file}";
    table
        .row(iperf3("iperf3", ""))
        .row(iperf3("iperf3 -Z", "-Z"))
        .row(Row::haul("haul sendfile, repeated", "stream", repeated, "throughput").at(place))
        .ratio("haul write → discard", &["iperf3"], Some(1.6), Some(0.45))
        .ratio("haul sendfile, repeated", &["iperf3 -Z"], Some(1.0), None)
}
