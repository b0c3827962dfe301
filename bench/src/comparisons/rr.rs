//! One byte there and back, one flow: what a wake-up costs, and what it costs to do without.

use crate::counter::Counts;
use crate::said::Says;
use crate::table::{Place, Row, Table};

pub(super) fn tables() -> Vec<Table> {
    [false, true].into_iter().flat_map(|udp| [same(udp), across(udp)]).collect()
}

fn new(udp: bool, place: Place) -> Table {
    let (protocol, counts) =
        if udp { ("UDP", Counts::UdpTransactions) } else { ("TCP", Counts::Transactions) };
    Table::new(format!("{protocol}, one byte there and back, one flow, {}", place.text()), counts)
}

fn haul(name: &str, udp: bool, options: &str, place: Place) -> Row {
    let udp = if udp { "--udp" } else { "" };
    let options = format!("{udp} --request 1 --response 1 --flows 1 {options}");
    Row::haul(name, "rr", &options, "transactions").at(place)
}

fn bare(name: &str, udp: bool, option: &str, place: Place) -> Row {
    let options = format!("{} {option}", if udp { "--udp" } else { "" });
    Row::bare(name, ("bare-rr-serve", &options), ("bare-rr-ask", &options)).at(place).says(Says::Number)
}

/// On one CPU the wake-up is a switch of tasks, and the peers can be compared with.
fn same(udp: bool) -> Table {
    let place = Place::Same;
    let (test, tcp) = if udp { ("udp_lat", "") } else { ("tcp_lat", "--tcp") };
    let qperf = format!("qperf -lp {{port}} -ip {{next}} -t {{whole}} -m 1 -uu {{host}} {test}");
    // Messages of 14 bytes are the smallest it has.
    let sockperf = format!("sockperf ping-pong -i {{host}} -p {{port}} {tcp} -m 14 -t {{whole}}");
    let serve = format!("sockperf server -i {{host}} -p {{port}} {tcp}");
    new(udp, place)
        .row(haul("haul", udp, "", place))
        .row(bare("bare blocking loop", udp, "", place))
        .row(Row::new("qperf", "qperf -lp {port}", qperf).at(place).says(Says::Qperf))
        .row(Row::new("sockperf", &serve, sockperf).at(place).says(Says::Sockperf))
        .like("haul", "bare blocking loop")
        .ratio("haul", &["qperf", "sockperf"], Some(1.1), None)
}

/// Across CPUs the wake-up is an interrupt to a CPU that sleeps, or nothing where it spins.
fn across(udp: bool) -> Table {
    let place = Place::Across;
    new(udp, place)
        .row(haul("haul", udp, "", place))
        .row(haul("haul --spin", udp, "--spin", place))
        .row(bare("bare blocking loop", udp, "", place))
        .row(bare("bare spinning loop", udp, "--spin", place))
        .like("haul", "bare blocking loop")
        .like("haul --spin", "bare spinning loop")
        .ratio("haul --spin", &["haul"], Some(10.0), None)
}
