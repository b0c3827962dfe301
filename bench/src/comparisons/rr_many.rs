//! One byte there and back, many flows: what placing the ends in pairs gives, and what the number of flows costs.

use std::time::Duration;

use crate::counter::Counts;
use crate::said::Says;
use crate::table::{Place, Row, Table};

pub(super) fn tables() -> Vec<Table> {
    vec![placed(), growth(Place::Same), growth(Place::Anywhere)]
}

fn haul(name: &str, flows: u32, options: &str) -> Row {
    let options = format!("--request 1 --response 1 --flows {flows} {options}");
    Row::haul(name, "rr", &options, "transactions")
}

fn bare(name: &str, flows: u32) -> Row {
    let flows = format!("--flows {flows}");
    Row::bare(name, ("bare-rr-serve", &flows), ("bare-rr-ask", &flows)).says(Says::Number)
}

fn placed() -> Table {
    const TITLE: &str = "TCP, one byte there and back, 200 flows";
    Table::new(TITLE, Counts::Transactions)
        .row(haul("haul", 200, "--threads 1"))
        .row(haul("haul, 2 threads", 200, "--threads 2"))
        .row(haul("haul --placement pair", 200, "--threads 2 --placement pair"))
        .row(bare("bare epoll loops", 200))
        .row(bare("bare epoll loops, a pair on each CPU", 100).at(Place::Pairs))
        .like("haul", "bare epoll loops")
        .like("haul --placement pair", "bare epoll loops, a pair on each CPU")
        .ratio("haul --placement pair", &["haul"], Some(1.5), None)
        .ratio("haul --placement pair", &["haul, 2 threads"], Some(1.5), None)
}

/// With both ends on one CPU what the flows add shows: across CPUs one flow pays for waking a CPU up, and hardly one of many
/// does, so that the cost falls whatever they add. Both are what users meet. On one CPU 5,000 flows of both ends no longer
/// fit the second-level cache, of the kernel's own memory alone: the bare loop's cost grows as haul's does.
fn growth(place: Place) -> Table {
    let flows = [1, 10, 100, 1000, 5000];
    let name = |who: &str, flows: u32| format!("{who}, {flows} flow{}", if flows == 1 { "" } else { "s" });
    let title = format!("TCP, one byte there and back, more and more flows, {}", place.text());
    let mut table = Table::new(title, Counts::Transactions);
    // Thousands of connections are made first, and what is said in making them counts as traffic.
    table.settle = Duration::from_secs(2);
    for flows in flows {
        table = table.row(haul(&name("haul", flows), flows, "--threads 1").at(place));
    }
    for flows in flows {
        table = table.row(bare(&name("bare", flows), flows).at(place));
    }
    let one = name("haul", 1);
    for flows in flows.into_iter().skip(1) {
        let most = (flows == 5000).then_some(1.5);
        table = table.ratio(&name("haul", flows), &[&one], None, most);
    }
    for flows in flows {
        table = table.like(&name("haul", flows), &name("bare", flows));
    }
    table
}
