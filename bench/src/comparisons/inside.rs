//! What looking costs: the same load with events counted, with its CPUs sampled, and with neither.
//!
//! Both ends share a kernel here, which one end looks at as a whole, beside the threads of either: the dearest case. `perf record` of
//! the same load by the same event stands beside: on a virtual machine each sample is a timer's interrupt that leaves it, which
//! takes what it takes, whoever asks for it.

use crate::counter::Counts;
use crate::table::{Place, Row, Table};

/// Least share of the rate that is left with events counted.
const COUNTED: f64 = 0.99;

/// The same with every CPU sampled 997 times a second.
const SAMPLED: f64 = 0.97;

pub(super) fn tables() -> Vec<Table> {
    let stream =
        |place| table("TCP stream", "stream", "--payload {payload}", "throughput", Counts::Bytes, place);
    let rr = table(
        "TCP, one byte there and back",
        "rr",
        "--request 1 --response 1",
        "transactions",
        Counts::Transactions,
        Place::Across,
    );
    vec![stream(Place::Across), Table { again: true, ..stream(Place::Anywhere) }, Table { again: true, ..rr }]
}

fn table(
    what: &str,
    workload: &str,
    options: &str,
    metric: &'static str,
    counts: Counts,
    place: Place,
) -> Table {
    let row =
        |name: &str, more: &str| Row::haul(name, workload, &format!("{options} {more}"), metric).at(place);
    let plain = row("nothing", "");
    let perf = format!("perf record -q -a -g -e cpu-clock -F 997 -o /dev/null -- {}", plain.client);
    let perf = Row { name: "perf record -g".to_owned(), client: perf, ..plain.clone() };
    Table::new(format!("{what}, looked at and not, {}", place.text()), counts)
        .row(plain)
        .row(row("--counters", "--counters"))
        .row(row("--profile", "--profile=997 --profile-runs measured"))
        .row(perf)
        .ratio("--counters", &["nothing"], Some(COUNTED), None)
        .ratio("--profile", &["nothing"], Some(SAMPLED), None)
        .ratio("--profile", &["perf record -g"], Some(SAMPLED), None)
}
