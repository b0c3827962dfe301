//! Datagrams as fast as they go: how many reach the receiving application, and what each costs.

use crate::counter::Counts;
use crate::table::{Place, Row, Table};

pub(super) fn tables() -> Vec<Table> {
    let mut tables = Vec::new();
    for place in [Place::Anywhere, Place::Across] {
        for size in [1400, 64] {
            tables.push(Table { again: place != Place::Anywhere, ..table(size, place) });
        }
    }
    tables.push(joined(1400));
    tables
}

fn table(size: u32, place: Place) -> Table {
    let title = format!("UDP, datagrams of {size} bytes, {}", place.text());
    let haul = |name: &str, options: &str| {
        let options = format!("--udp --message {size} {options}");
        Row::haul(name, "stream", &options, "packet_rate").at(place)
    };
    let bare = |name: &str, receive: &str, send: &str| {
        let [receive, send] = [receive, send].map(|how| format!("--message {size} {how}"));
        Row::bare(name, ("bare-udp-receive", &receive), ("bare-udp-send", &send)).at(place)
    };
    let iperf3 = format!("iperf3 -c {{host}} -p {{port}} -u -b 0 -t {{whole}} -l {size}");
    Table::new(title, Counts::Datagrams)
        .row(haul("haul", ""))
        .row(haul("haul --batch 64", "--batch 64"))
        .row(haul("haul --segment", "--segment"))
        .row(bare("bare send, recv", "", ""))
        .row(bare("bare sendmmsg, recvmmsg", "--how batch", "--how batch"))
        .row(bare("bare UDP_SEGMENT, recv", "", "--how segment"))
        .row(bare("bare UDP_SEGMENT, recvmmsg", "--how batch", "--how segment"))
        .row(Row::new("iperf3 -u", "iperf3 -s -1 -p {port}", iperf3).at(place))
        .like("haul", "bare send, recv")
        .like("haul --batch 64", "bare sendmmsg, recvmmsg")
        .like("haul --segment", "bare UDP_SEGMENT, recv")
        // What haul would gain by receiving trains in batches.
        .ratio("haul --segment", &["bare UDP_SEGMENT, recvmmsg"], None, None)
        .ratio("haul", &["iperf3 -u"], Some(1.05), None)
        .ratio("haul --segment", &["iperf3 -u"], Some(3.0), None)
}

/// The kernel cuts nothing up between two ends that have both asked for joined datagrams, so no packets are counted.
fn joined(size: u32) -> Table {
    let title =
        format!("UDP, datagrams of {size} bytes that stay joined all the way, {}", Place::Anywhere.text());
    let options = format!("--udp --message {size} --segment --gro");
    let [receive, send] = ["joined", "segment"].map(|how| format!("--message {size} --how {how}"));
    Table::new(title, Counts::JoinedDatagrams)
        .row(Row::haul("haul --segment --gro", "stream", &options, "throughput"))
        .row(Row::bare("bare UDP_SEGMENT, UDP_GRO", ("bare-udp-receive", &receive), ("bare-udp-send", &send)))
        .like("haul --segment --gro", "bare UDP_SEGMENT, UDP_GRO")
}
