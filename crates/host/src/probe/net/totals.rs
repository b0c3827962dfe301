//! What went through every device of this network namespace, in one read: `/proc/net/dev`.
//!
//! The counters are those of `IFLA_STATS64` (`dev_seq_printf_stats` in net/core/net-procfs.c), without a question for each device. For
//! whoever looks again and again; a measurement asks the device by its number ([`super::NetCounters`]).

use std::fs;

use crate::error::{HostError, Named as _, Result};

const FILE: &str = "/proc/thread-self/net/dev";

/// What a device has counted since it was made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceTotals {
    /// Its name.
    pub name: String,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
}

/// The counters of all devices now.
pub fn device_totals() -> Result<Vec<DeviceTotals>> {
    let text = fs::read_to_string(FILE).named("read", || FILE.to_owned())?;
    parse(&text).ok_or_else(|| HostError::Answer {
        operation: "read",
        object: FILE.to_owned(),
        what: "a device without sixteen numbers".to_owned(),
    })
}

/// Two lines of headings, then `name: ` and eight numbers each of what was received and sent.
fn parse(text: &str) -> Option<Vec<DeviceTotals>> {
    text.lines()
        .skip(2)
        .map(|line| {
            // A name may have a colon in it (an alias), a number has none.
            let (name, numbers) = line.rsplit_once(':')?;
            let numbers: Option<Vec<u64>> =
                numbers.split_ascii_whitespace().map(|number| number.parse().ok()).collect();
            let numbers = numbers?;
            let at = |index: usize| numbers.get(index).copied();
            Some(DeviceTotals {
                name: name.trim().to_owned(),
                rx_bytes: at(0)?,
                rx_packets: at(1)?,
                tx_bytes: at(8)?,
                tx_packets: at(9)?,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_by_their_columns_and_a_short_line_is_no_device() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes packets\n    lo: 1 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0\n\
                    eth0:1: 5 6 0 0 0 0 0 0 7 8 0 0 0 0 0 0\n";
        let found = parse(text).expect("two devices");
        let of = |name: &str, rx_bytes, rx_packets, tx_bytes, tx_packets| DeviceTotals {
            name: name.to_owned(),
            rx_bytes,
            rx_packets,
            tx_bytes,
            tx_packets,
        };
        assert_eq!(found, [of("lo", 1, 2, 3, 4), of("eth0:1", 5, 6, 7, 8)]);
        for broken in ["a\nb\nlo: 1 2 3\n", "a\nb\nlo\n", "a\nb\nlo: x 2 0 0 0 0 0 0 3 4\n"] {
            assert_eq!(parse(broken), None, "{broken:?}");
        }
        assert!(device_totals().expect("this host's").iter().any(|device| device.name == "lo"));
    }
}
