//! Sets of CPUs, in the two ways the kernel writes them: a list (`0-3,8`) and a mask of hexadecimal words
//! (`00000001,0000000f`, the lowest last; `Documentation/core-api/printk-formats.rst`, "bitmap").

use std::collections::BTreeSet;

/// The most CPUs a Linux can be built for (`NR_CPUS` on x86-64).
const MOST: u32 = 8192;

/// CPUs by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Cpus(BTreeSet<u32>);

impl Cpus {
    /// Reads a list, as a person or the kernel writes it. An empty one is no error of the kernel's, and one of a person's.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no list of CPUs, such as 0-3,8");
        let number = |text: &str| text.parse::<u32>().ok().filter(|number| *number < MOST).ok_or_else(wrong);
        let mut cpus = BTreeSet::new();
        for part in text.split(',') {
            match part.split_once('-') {
                None => drop(cpus.insert(number(part)?)),
                Some((first, last)) => {
                    let (first, last) = (number(first)?, number(last)?);
                    if first > last {
                        return Err(wrong());
                    }
                    cpus.extend(first..=last);
                }
            }
        }
        Ok(Self(cpus))
    }

    /// Reads a mask.
    pub(super) fn from_mask(text: &str) -> Option<Self> {
        let mut cpus = BTreeSet::new();
        for (word, digits) in (0_u32..).zip(text.trim().split(',').rev()) {
            let mut bits = u32::from_str_radix(digits, 16).ok()?;
            while bits != 0 {
                cpus.insert(word.checked_mul(32)?.checked_add(bits.trailing_zeros())?);
                bits &= bits - 1;
            }
        }
        Some(Self(cpus))
    }

    /// The list: runs joined by a dash.
    pub(super) fn list(&self) -> String {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for &cpu in &self.0 {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => runs.push((cpu, cpu)),
            }
        }
        let run = |&(first, last): &(u32, u32)| {
            if first == last { first.to_string() } else { format!("{first}-{last}") }
        };
        runs.iter().map(run).collect::<Vec<_>>().join(",")
    }

    /// The mask, without leading zeros.
    pub(super) fn mask(&self) -> String {
        let Some(most) = self.0.last() else { return "0".to_owned() };
        let word = |word: u32| -> u32 {
            self.0.range(word * 32..(word + 1) * 32).map(|cpu| 1_u32 << (cpu % 32)).sum()
        };
        let top = most / 32;
        let rest = (0..top).rev().map(|lower| format!(",{:08x}", word(lower)));
        format!("{:x}{}", word(top), rest.collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_masks_say_the_same() {
        for (list, mask, plain) in [
            ("0", "1", "0"),
            ("0-3,8", "10f", "0-3,8"),
            ("3,1,2", "e", "1-3"),
            ("33", "2,00000000", "33"),
            ("31-32", "1,80000000", "31-32"),
        ] {
            let cpus = Cpus::parse(list).unwrap();
            assert_eq!((cpus.mask().as_str(), cpus.list().as_str()), (mask, plain));
            assert_eq!(Cpus::from_mask(mask), Some(cpus));
        }
        assert_eq!(Cpus::from_mask("00000000,00000003\n").unwrap().list(), "0-1");
        assert_eq!(Cpus::from_mask("0").unwrap().mask(), "0");
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["", "x", "1-", "3-1", "0,,1", "9999999", "-1"] {
            assert!(Cpus::parse(text).is_err(), "{text}");
        }
        assert_eq!(Cpus::from_mask("xyz"), None);
        assert_eq!(Cpus::from_mask(""), None);
    }
}
