//! One TCP stream, against the bare loop and the peers, all with haul's default message.

use crate::counter::Counts;
use crate::table::{Place, Row, Table};

const PEERS: [&str; 3] = ["iperf3", "iperf", "nuttcp"];

pub(super) fn tables() -> Vec<Table> {
    let conditions = [true, false].map(|offloads| [Place::Anywhere, Place::Across].map(|at| (offloads, at)));
    let tables = conditions.into_iter().flatten().map(|(offloads, place)| table(offloads, place));
    tables.enumerate().map(|(at, table)| Table { again: at > 0, ..table }).collect()
}

fn table(offloads: bool, place: Place) -> Table {
    let on = if offloads { "on" } else { "off" };
    let title = format!("one TCP stream, 128 KiB messages, reno, offloads {on}, {}", place.text());
    let table = Table::new(title, Counts::Bytes)
        .row(Row::haul("haul", "stream", "--payload {payload}", "throughput").at(place))
        .row(Row::bare("bare loop", ("bare-receive", ""), ("bare-send", "")).at(place))
        .row(
            Row::new("iperf3", "iperf3 -s -1 -p {port}", "iperf3 -c {host} -p {port} -t {whole} -l 131072")
                .at(place),
        )
        .row(
            Row::new(
                "iperf",
                "iperf -s -p {port} -l 131072",
                "iperf -c {host} -p {port} -t {whole} -l 131072",
            )
            .at(place),
        )
        .row(
            Row::new(
                "nuttcp",
                "nuttcp -1 --nofork -P {port}",
                "nuttcp -t -P {port} -T {whole} -l 131072 {host}",
            )
            .at(place),
        )
        .like("haul", "bare loop");
    let table = PEERS.into_iter().fold(table, |table, peer| table.ratio("haul", &[peer], None, None));
    Table { offloads, ..table }
}
