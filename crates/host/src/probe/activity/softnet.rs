//! `/proc/net/softnet_stat`: what each CPU took from its queue of received packets.
//!
//! One line for each CPU online, columns of hexadecimal numbers without names (`softnet_seq_show` in
//! net/core/net-procfs.c). They are told by position, and kernels have only ever added some at the end: ten since 2.6.35,
//! the eleventh since 3.11, since 5.10 thirteen of which the last is the CPU's number. What a kernel does not have is
//! absent. Each number has 32 bits and begins again. It counts for all devices and namespaces of the host.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::interrupts::wrapping;

/// What was counted, on all CPUs; `None` where this kernel does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SoftnetUse {
    /// Packets taken from the queues of all CPUs, and those that NAPI took.
    pub processed: Option<u64>,
    /// Packets that found a queue full (`net.core.netdev_max_backlog`).
    pub dropped: Option<u64>,
    /// How often a CPU stopped with packets left, because its budget or its time was up (`net.core.netdev_budget`).
    pub squeezed: Option<u64>,
    /// How often a CPU was woken by another to take packets (RPS).
    pub rps: Option<u64>,
    /// Packets dropped because their flow had more than its share of a full queue.
    pub flow_limited: Option<u64>,
    /// CPUs that took a packet.
    pub cpus: u32,
    /// Packets taken by the CPU that took most.
    pub busiest: u64,
}

/// The file at one instant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Softnet {
    lines: Vec<Vec<u32>>,
}

const PROCESSED: usize = 0;
const DROPPED: usize = 1;
const SQUEEZED: usize = 2;
const RPS: usize = 9;
const FLOW_LIMIT: usize = 10;
const CPU: usize = 12;

impl Softnet {
    /// Reads the file's text; `None` where it is not one.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let line = |line: &str| {
            let words = line.split_ascii_whitespace();
            words.map(|word| u32::from_str_radix(word, 16).ok()).collect::<Option<Vec<u32>>>()
        };
        let lines: Vec<Vec<u32>> = text.lines().map(line).collect::<Option<_>>()?;
        let whole = lines.first().is_some_and(|line| line.len() > SQUEEZED)
            && lines.windows(2).all(|pair| pair[0].len() == pair[1].len());
        whole.then_some(Self { lines })
    }

    fn cpus(&self) -> Vec<Option<u32>> {
        self.lines.iter().map(|line| line.get(CPU).copied()).collect()
    }

    pub(super) fn since(
        &self,
        earlier: &Self,
        absent: &mut BTreeMap<String, String>,
    ) -> Result<SoftnetUse, String> {
        if self.cpus() != earlier.cpus() {
            return Err("CPUs went on or off in the window".to_owned());
        }
        let column = |column: usize| -> Option<Option<Vec<u64>>> {
            let pairs = self.lines.iter().zip(&earlier.lines);
            let each = pairs.map(|(now, then)| Some((*then.get(column)?, *now.get(column)?)));
            let each: Vec<(u32, u32)> = each.collect::<Option<_>>()?;
            Some(each.into_iter().map(|(then, now)| wrapping(then.into(), now.into())).collect())
        };
        let mut sum = |name: &str, number: usize| match column(number) {
            None => {
                let reason = format!("this kernel has no column {} in softnet_stat", number + 1);
                absent.insert(format!("softnet.{name}"), reason);
                None
            }
            Some(None) => {
                absent.insert(format!("softnet.{name}"), "it went backwards".to_owned());
                None
            }
            Some(Some(each)) => Some(each.into_iter().fold(0, u64::saturating_add)),
        };
        let [processed, dropped, squeezed, rps, flow_limited] = [
            sum("processed", PROCESSED),
            sum("dropped", DROPPED),
            sum("squeezed", SQUEEZED),
            sum("rps", RPS),
            sum("flow_limited", FLOW_LIMIT),
        ];
        let taken = column(PROCESSED).flatten().unwrap_or_default();
        Ok(SoftnetUse {
            processed,
            dropped,
            squeezed,
            rps,
            flow_limited,
            cpus: u32::try_from(taken.iter().filter(|count| **count > 0).count()).unwrap_or(u32::MAX),
            busiest: taken.into_iter().max().unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a Linux 6.18 with two CPUs.
    const NEW: &str = "\
79a6bd20 0000a447 000000aa 00000000 00000000 00000000 00000000 00000000 00000000 00000003 00000000 00000000 00000000 00000000 00000000
4cc766a4 0000e168 00000086 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000002 00000000 00000001 00000000 00000000
";

    fn window(then: &str, now: &str) -> (Result<SoftnetUse, String>, BTreeMap<String, String>) {
        let parse = |text| Softnet::parse(text).expect("softnet_stat");
        let mut absent = BTreeMap::new();
        (parse(now).since(&parse(then), &mut absent), absent)
    }

    #[test]
    fn columns_are_told_by_position_and_one_this_kernel_lacks_is_absent() {
        let later = NEW.replace("79a6bd20 0000a447", "79a6be20 0000a450").replace("00000086", "00000087");
        let (used, absent) = window(NEW, &later);
        let expected = SoftnetUse {
            processed: Some(0x100),
            dropped: Some(9),
            squeezed: Some(1),
            rps: Some(0),
            flow_limited: Some(0),
            cpus: 1,
            busiest: 0x100,
        };
        assert_eq!((used, absent.len()), (Ok(expected), 0));
        // Of Linux 2.6.35 to 3.10: no flow limit, no number of the CPU.
        let old =
            "00000010 00000000 00000001 00000000 00000000 00000000 00000000 00000000 00000000 00000005\n";
        let (used, absent) = window(old, &old.replace("00000005", "00000009"));
        let used = used.expect("used");
        assert_eq!((used.rps, used.flow_limited, used.processed), (Some(4), None, Some(0)));
        assert!(absent["softnet.flow_limited"].contains("no column 11"), "{absent:?}");
    }

    #[test]
    fn a_number_that_begins_again_is_counted_on_and_one_that_was_reset_is_absent() {
        let then = "fffffff0 00000100 00000000\n";
        let (used, absent) = window(then, "00000010 00000000 00000000\n");
        let used = used.expect("used");
        assert_eq!((used.processed, used.dropped, used.squeezed), (Some(0x20), None, Some(0)));
        assert!(absent["softnet.dropped"].contains("backwards"), "{absent:?}");
    }

    #[test]
    fn what_came_online_or_went_makes_the_window_absent_and_broken_texts_are_none() {
        let one: String = NEW.lines().take(1).collect();
        assert!(window(NEW, &one).0.expect_err("one CPU").contains("CPUs went on or off"));
        let other = NEW.replace("00000001 00000000 00000000\n", "00000007 00000000 00000000\n");
        assert!(window(NEW, &other).0.is_err());
        for broken in ["", "x y z\n", "1 2\n", "1 2 3\n1 2\n", "123456789 0 0\n"] {
            assert_eq!(Softnet::parse(broken), None, "{broken:?}");
        }
    }
}
