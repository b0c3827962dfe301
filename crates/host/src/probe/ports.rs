//! What limits the rate of new TCP connections from one host: local ports.
//!
//! A connection takes a port of `net.ipv4.ip_local_port_range`, which IPv6 uses too, and after it the end that closed
//! first keeps the pair of addresses for a minute in `TIME_WAIT`. So about `range / 60 s` connections a second to one
//! peer can be had for long; beyond that connect(2) searches ever longer for a free port and then fails with
//! `EADDRNOTAVAIL`. Hides the two files that say so. Both are those of the calling thread's network namespace.

use std::fs;
use std::ops::RangeInclusive;

use crate::error::{HostError, Named as _, Result};

/// The ports the kernel chooses from for a connection whose port nobody chose.
pub fn ephemeral_range() -> Result<RangeInclusive<u16>> {
    read("/proc/sys/net/ipv4/ip_local_port_range", range_of, "two ports")
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
    fn both_files_are_read_as_the_kernel_writes_them_and_nothing_else_is() {
        assert_eq!(range_of("32768\t60999\n"), Some(32_768..=60_999));
        assert_eq!(range_of("32768"), None);
        assert_eq!(range_of("1 70000"), None);
        let text = "sockets: used 12\nTCP: inuse 1 orphan 0 tw 71 alloc 1 mem 0\nUDP: inuse 0 mem 0\n";
        assert_eq!(time_wait_of(text), Some(71));
        assert_eq!(time_wait_of("TCP: inuse 1 tw"), None);
        assert_eq!(time_wait_of("UDP: tw 3"), None);
    }
}
