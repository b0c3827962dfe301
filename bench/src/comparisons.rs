//! What is compared: a list of names, and behind each the tables it runs.

mod crr;
mod inside;
mod modes;
mod overhead;
mod rr;
mod rr_many;
mod stream;
mod udp;

use anyhow::Result;

use crate::bench::Bench;
use crate::table::Table;

/// What a name on the command line stands for.
pub(crate) struct Comparison {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) body: Body,
}

/// How it is run.
#[derive(Clone, Copy)]
pub(crate) enum Body {
    /// Tables of rows, in rounds.
    Tables(fn() -> Vec<Table>),
    /// Something else, which prints its own.
    Other(fn(&Bench) -> Result<()>),
}

/// All of them, in the order they run.
pub(crate) const ALL: &[Comparison] = &[
    Comparison {
        name: "overhead",
        about: "what building a lab takes, and a run beside its window",
        body: Body::Other(overhead::run),
    },
    Comparison {
        name: "inside",
        about: "what looking costs: a stream and an exchange with events counted, with CPUs sampled, and with neither",
        body: Body::Tables(inside::tables),
    },
    Comparison {
        name: "stream",
        about: "one TCP stream, offloads on and off, pinned and not: haul, a bare loop, iperf3, iperf, nuttcp",
        body: Body::Tables(stream::tables),
    },
    Comparison {
        name: "modes",
        about: "every way of sending and receiving a stream: haul, a bare loop of the same calls, iperf3",
        body: Body::Tables(modes::tables),
    },
    Comparison {
        name: "udp",
        about: "datagrams one by one, in batches, cut up and joined by the kernel: haul, bare loops, iperf3",
        body: Body::Tables(udp::tables),
    },
    Comparison {
        name: "rr",
        about: "one byte there and back, TCP and UDP, on one CPU and two: haul, bare loops, qperf, sockperf",
        body: Body::Tables(rr::tables),
    },
    Comparison {
        name: "rr-many",
        about: "the same with 200 flows, placed and not, and the cost of 1 to 5000 flows: haul, bare loops",
        body: Body::Tables(rr_many::tables),
    },
    Comparison {
        name: "crr",
        about: "a connection for each byte there and back, closed in order or reset: haul, bare loops",
        body: Body::Tables(crr::tables),
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_ratio_names_rows_of_its_table_and_every_row_is_in_one() {
        for comparison in ALL {
            let Body::Tables(tables) = comparison.body else { continue };
            for table in tables() {
                let names: BTreeSet<&str> = table.rows.iter().map(|row| row.name.as_str()).collect();
                assert_eq!(names.len(), table.rows.len(), "{}: a name twice", table.title);
                let mut used = BTreeSet::new();
                for ratio in &table.ratios {
                    for name in ratio.to.iter().chain([&ratio.of]) {
                        assert!(names.contains(name.as_str()), "{}: no row '{name}'", table.title);
                        used.insert(name.as_str());
                    }
                }
                assert_eq!(names, used, "{}: rows nobody looks at", table.title);
            }
        }
    }
}
