//! What a run did, by the counters of the server's network namespace: the same instrument for every tool.
//!
//! - A stream: received bytes of the interface. Its headers are the same share for every tool.
//! - Datagrams: Udp `InDatagrams`, which counts what the application takes (`udp_recvmsg`), not what was dropped.
//! - TCP transactions: `TcpExt` `TCPOrigDataSent`, the segments with new data that the server sent: one for each response that
//!   fits one segment. Acknowledgements, delayed or not, are not in it.
//! - UDP transactions: `InDatagrams` again, one for each request.
//! - Connections: Tcp `PassiveOpens`, one for each handshake the server completed.
//!
//! A sender with `UDP_SEGMENT` gives the wire packets of up to 64 KiB. If the receiver has not asked for joined ones, the
//! kernel cuts them up before they reach its socket (`udp_queue_rcv_skb`), and each datagram counts. With `UDP_GRO` a
//! whole packet is one receive and counts once: there the bytes of the interface are taken, less the share of packets that
//! were dropped at the socket.
//!
//! What a tool says beside its traffic (haul's control connection, iperf3's) is a few segments a second: nothing here.

use std::fs;

use anyhow::{Context as _, Result};
use haul_host::veth_lab::VethLab;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counts {
    /// Bytes of a TCP stream.
    Bytes,
    /// Datagrams that reached the application.
    Datagrams,
    /// Bytes of datagrams that reached the application joined.
    JoinedDatagrams,
    /// Requests and responses over TCP.
    Transactions,
    /// Requests and responses over UDP.
    UdpTransactions,
    /// Connections, each with one request and one response.
    Connections,
}

/// Counters of the server's namespace at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counters {
    /// What [`Counts`] says.
    pub(crate) done: u64,
    /// Datagrams that reached the application, and those dropped for want of room in its socket.
    pub(crate) datagrams: (u64, u64),
}

impl Counts {
    /// The counters now.
    pub(crate) fn read(self, lab: &VethLab) -> Result<Counters> {
        let file = |name: &'static str| move || fs::read_to_string(format!("/proc/thread-self/net/{name}"));
        let read =
            |name| lab.server.run(file(name))?.with_context(|| format!("cannot read /proc/net/{name}"));
        let snmp = read("snmp")?;
        let udp = |name| named(&snmp, "Udp:", name);
        let datagrams = (udp("InDatagrams")?, udp("RcvbufErrors")?);
        let done = match self {
            Self::Bytes | Self::JoinedDatagrams => received(&read("dev")?, &lab.server_dev.name)?,
            Self::Datagrams | Self::UdpTransactions => datagrams.0,
            Self::Transactions => named(&read("netstat")?, "TcpExt:", "TCPOrigDataSent")?,
            Self::Connections => named(&snmp, "Tcp:", "PassiveOpens")?,
        };
        Ok(Counters { done, datagrams })
    }

    /// From how many on there is traffic, and not only what a tool says before it.
    pub(crate) fn traffic(self) -> u64 {
        match self {
            Self::Bytes | Self::JoinedDatagrams => 1 << 20,
            _ => 50,
        }
    }

    /// The name of a rate of it, and what to multiply one per second with.
    pub(crate) fn rate(self) -> (&'static str, f64) {
        match self {
            Self::Bytes | Self::JoinedDatagrams => ("Gbit/s", 8e-9),
            Self::Datagrams => ("k packets/s", 1e-3),
            Self::Transactions | Self::UdpTransactions => ("k trans/s", 1e-3),
            Self::Connections => ("k conn/s", 1e-3),
        }
    }

    /// The name of the CPU time for one of it, and what to multiply seconds with.
    pub(crate) fn cost(self) -> (&'static str, f64) {
        match self {
            Self::Bytes | Self::JoinedDatagrams => ("CPU s/GB", 1e9),
            Self::Datagrams => ("CPU us/packet", 1e6),
            Self::Transactions | Self::UdpTransactions => ("CPU us/trans", 1e6),
            Self::Connections => ("CPU us/conn", 1e6),
        }
    }

    /// Whether some may be lost, so that how many is part of the figure.
    pub(crate) fn may_be_lost(self) -> bool {
        matches!(self, Self::Datagrams | Self::JoinedDatagrams)
    }
}

/// Bytes an interface has received, by `/proc/net/dev`.
fn received(table: &str, device: &str) -> Result<u64> {
    let line = table.lines().find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'));
    let bytes = line.and_then(|line| line.split_whitespace().next());
    Ok(bytes.context("the interface has no counters")?.parse()?)
}

/// A counter of `/proc/net/snmp` or `netstat`: a line of names, then a line of values, both headed by the group.
fn named(table: &str, group: &str, name: &str) -> Result<u64> {
    let mut lines = table.lines().filter_map(|line| line.strip_prefix(group));
    let mut value = None;
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        let mut pairs = names.split_whitespace().zip(values.split_whitespace());
        value = value.or(pairs.find(|(own, _)| *own == name).map(|(_, value)| value));
    }
    Ok(value.with_context(|| format!("this kernel has no counter {group} {name}"))?.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SNMP: &str = "\
Tcp: RtoAlgorithm MaxConn PassiveOpens
Tcp: 1 -1 17
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors
Udp: 274973 0 0 3 12
UdpLite: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors
UdpLite: 9 9 9 9 9
";

    #[test]
    fn a_counter_is_found_by_its_group_and_name_and_missed_by_both() {
        assert_eq!(named(SNMP, "Udp:", "InDatagrams").expect("there"), 274_973);
        assert_eq!(named(SNMP, "Udp:", "RcvbufErrors").expect("there"), 12);
        assert_eq!(named(SNMP, "Tcp:", "PassiveOpens").expect("there"), 17);
        let error = named(SNMP, "TcpExt:", "TCPOrigDataSent").expect_err("not there");
        assert!(error.to_string().contains("TcpExt: TCPOrigDataSent"), "{error}");
        named(SNMP, "Tcp:", "InDatagrams").expect_err("of another group");
    }

    #[test]
    fn the_bytes_are_those_of_the_device_named_and_of_no_longer_name() {
        let table = "Inter-|   Receive\n face |bytes packets\n    lo: 1 2\nhaul-s2: 5 6\n haul-s: 77 8 0\n";
        assert_eq!(received(table, "haul-s").expect("there"), 77);
        received(table, "haul").expect_err("not there");
    }
}
