//! What limits the rate of new TCP connections from one host: local ports.
//!
//! A connection takes a port of `net.ipv4.ip_local_port_range`, which IPv6 uses too, and after it the end that closed
//! first keeps the pair of addresses for a minute in `TIME_WAIT`. So about `range / 60 s` connections a second to one
//! peer can be had for long; beyond that connect(2) searches ever longer for a free port and then fails with
//! `EADDRNOTAVAIL`. Hides the two files that say so. Both are those of the calling thread's network namespace.

use std::fs;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::error::{HostError, Named as _, Result};

/// The ports the kernel chooses from for a connection whose port nobody chose.
pub fn ephemeral_range() -> Result<RangeInclusive<u16>> {
    read("/proc/sys/net/ipv4/ip_local_port_range", range_of, "two ports")
}

/// How long a connection to `peer` that this end closed first keeps its port from the next one to there:
/// `TCP_TIMEWAIT_LEN` of include/net/tcp.h, or a second where `net.ipv4.tcp_tw_reuse` lets time stamps tell the two apart
/// (`tcp_twsk_unique` of `net/ipv4/tcp_ipv4.c`).
pub fn held_for(peer: IpAddr) -> Result<Duration> {
    let reuse = read("/proc/sys/net/ipv4/tcp_tw_reuse", |text| text.trim().parse().ok(), "a number")?;
    Ok(hold(reuse, peer))
}

fn hold(reuse: u8, peer: IpAddr) -> Duration {
    match reuse {
        1 => Duration::from_secs(1),
        // The default since Linux 4.19: where no packet of old can arrive.
        2 if peer.to_canonical().is_loopback() => Duration::from_secs(1),
        _ => Duration::from_mins(1),
    }
}

/// How many connections of this network namespace, IPv4 and IPv6, are in `TIME_WAIT`.
pub fn time_wait_count() -> Result<u64> {
    read("/proc/thread-self/net/sockstat", time_wait_of, "the word tw in a line TCP:")
}

fn read<T>(path: &str, parse: impl Fn(&str) -> Option<T>, wanted: &str) -> Result<T> {
    let text = fs::read_to_string(path).named("read", || path.to_owned())?;
    parse(&text).ok_or_else(|| HostError::Answer {
        operation: "read",
        object: path.to_owned(),
        what: format!("no {wanted} in '{}'", text.trim()),
    })
}

fn range_of(text: &str) -> Option<RangeInclusive<u16>> {
    let mut words = text.split_ascii_whitespace().map(str::parse);
    let (first, last) = (words.next()?.ok()?, words.next()?.ok()?);
    Some(first..=last)
}

fn time_wait_of(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("TCP:"))?;
    line.split_ascii_whitespace().skip_while(|word| *word != "tw").nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_read_as_the_kernel_writes_them_and_nothing_else_is() {
        assert_eq!(range_of("32768\t60999\n"), Some(32_768..=60_999));
        assert_eq!(range_of("32768"), None);
        assert_eq!(range_of("1 70000"), None);
        let text = "sockets: used 12\nTCP: inuse 1 orphan 0 tw 71 alloc 1 mem 0\nUDP: inuse 0 mem 0\n";
        assert_eq!(time_wait_of(text), Some(71));
        let (loopback, other) = (IpAddr::from([127, 0, 0, 2]), IpAddr::from([10, 0, 0, 2]));
        let (second, minute) = (Duration::from_secs(1), Duration::from_mins(1));
        for (reuse, peer, held) in [
            (0, loopback, minute),
            (1, loopback, second),
            (1, other, second),
            (2, loopback, second),
            (2, other, minute),
        ] {
            assert_eq!(hold(reuse, peer), held, "{reuse} {peer}");
        }
        assert_eq!(time_wait_of("TCP: inuse 1 tw"), None);
        assert_eq!(time_wait_of("UDP: tw 3"), None);
    }
}
