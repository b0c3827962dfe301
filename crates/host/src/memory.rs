//! Memory by the kind of its pages, and what kind it really got.
//!
//! A page decides how many misses of the TLB a walk takes, and where its lines fall in the caches. The kernel gives what it has:
//! `madvise` is advice, and a pool of huge pages may be empty. So what was asked for is read back from `/proc/self/smaps`, and
//! where it is not what was asked for, [`Pages::new`] is an error that says what there is to do. How much there is to take at all
//! is [`room()`]'s.

mod room;

use std::fmt;
use std::fs;
use std::str::FromStr;

use haul_stats::ByteCount;

use crate::error::{HostError, Named as _, Result};
use crate::sys::{HugeTable, Mapping};

pub use room::{Room, room};

/// A huge page of the second level, on x86-64 and with 4 KiB pages on aarch64 and riscv64.
const TWO_MEGABYTES: usize = 2 << 20;

/// A huge page of the third level.
const ONE_GIGABYTE: usize = 1 << 30;

/// What it is filled with.
const PATTERN: [u8; 4096] = [0xa5; 4096];

/// Share of the memory that must lie in pages of the kind asked for, in percent: the kernel may leave an end in small ones.
const ENOUGH: u64 = 90;

/// What to do where the pool of 1 GiB is empty.
const NO_GIGABYTES: &str = "none is free: set some aside with \
    echo 4 > /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages, or at boot with hugepagesz=1G hugepages=4";

/// What to do where there are no transparent pages of 2 MiB, and none in the pool.
const NO_MEGABYTES: &str = "the system gives no transparent ones (see /sys/kernel/mm/transparent_hugepage/enabled) and none is \
    free in the pool: echo 256 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// Pages of a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PageKind {
    /// The smallest there are (4 KiB on most machines).
    Small,
    /// 2 MiB: transparent where the system gives them, else from its pool.
    TwoMegabytes,
    /// 1 GiB, from the pool that the administrator set aside.
    OneGigabyte,
}

impl fmt::Display for PageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Small => "4k",
            Self::TwoMegabytes => "2m",
            Self::OneGigabyte => "1g",
        })
    }
}

impl FromStr for PageKind {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self> {
        [Self::Small, Self::TwoMegabytes, Self::OneGigabyte]
            .into_iter()
            .find(|kind| kind.to_string().eq_ignore_ascii_case(text))
            .ok_or_else(|| HostError::Invalid {
                text: text.to_owned(),
                wanted: "a kind of pages: 4k, 2m or 1g",
            })
    }
}

/// Memory that begins at a boundary of its pages, written, and so present.
#[derive(Debug)]
pub struct Pages {
    mapping: Mapping,
    skip: usize,
    length: usize,
    got: Backing,
}

/// What kind of pages memory has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backing {
    /// Bytes present.
    pub present: ByteCount,
    /// Of those, in pages of 2 MiB.
    pub two_megabytes: ByteCount,
    /// Of those, in pages of 1 GiB.
    pub one_gigabyte: ByteCount,
}

impl Backing {
    /// The kind that most of it has.
    #[must_use]
    pub fn kind(self) -> PageKind {
        if self.enough(self.one_gigabyte) {
            PageKind::OneGigabyte
        } else if self.enough(self.two_megabytes) {
            PageKind::TwoMegabytes
        } else {
            PageKind::Small
        }
    }

    fn enough(self, of: ByteCount) -> bool {
        self.present.0 > 0 && of.0 >= self.present.0 / 100 * ENOUGH
    }
}

impl fmt::Display for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |of: ByteCount| of.0 * 100 / self.present.0.max(1);
        match (share(self.one_gigabyte), share(self.two_megabytes)) {
            (0, 0) => f.write_str("4k"),
            (0, huge) => write!(f, "2m ({huge} %)"),
            (huge, _) => write!(f, "1g ({huge} %)"),
        }
    }
}

impl Pages {
    /// `length` bytes in pages of `kind`; in 2 MiB pages where the system gives them, and it does not matter, without a kind.
    ///
    /// # Errors
    /// Where there is not so much memory, or not of that kind: with what to do.
    pub fn new(length: ByteCount, kind: Option<PageKind>) -> Result<Self> {
        let kind_wanted = kind.unwrap_or(PageKind::TwoMegabytes);
        let object = || format!("{} of memory in {kind_wanted} pages", length.about());
        let too_large = || std::io::Error::from_raw_os_error(libc::ENOMEM);
        let bytes = length
            .as_usize()
            .filter(|&bytes| bytes <= usize::MAX >> 2)
            .ok_or_else(too_large)
            .named("map", object)?;
        let bytes = bytes.max(1);
        let pool = |page: usize, table, hint: &'static str| {
            Mapping::from_pool(bytes.next_multiple_of(page), table)
                .map_err(|error| HostError::os("map", object(), error).with_hint(hint))
        };
        match kind {
            Some(PageKind::Small) => {
                Self::filled(Mapping::small(bytes).named("map", object)?, bytes, 1, kind)
            }
            Some(PageKind::OneGigabyte) => {
                Self::filled(pool(ONE_GIGABYTE, HugeTable::OneGigabyte, NO_GIGABYTES)?, bytes, 1, kind)
            }
            Some(PageKind::TwoMegabytes) | None => {
                let mapping = Mapping::new(bytes.next_multiple_of(TWO_MEGABYTES) + TWO_MEGABYTES, true)
                    .named("map", object)?;
                let transparent = Self::filled(mapping, bytes, TWO_MEGABYTES, kind);
                if transparent.is_ok() || kind.is_none() {
                    return transparent;
                }
                Self::filled(pool(TWO_MEGABYTES, HugeTable::TwoMegabytes, NO_MEGABYTES)?, bytes, 1, kind)
            }
        }
    }

    /// Writes all of it, and reads back what it is.
    fn filled(mut mapping: Mapping, length: usize, align: usize, kind: Option<PageKind>) -> Result<Self> {
        let skip = mapping.bytes().as_ptr().addr().wrapping_neg() % align;
        // Writing brings in pages of our own; a read would map the one page of zeros.
        for block in mapping.bytes_mut()[skip..].chunks_mut(PATTERN.len()) {
            block.copy_from_slice(&PATTERN[..block.len()]);
        }
        let start = mapping.bytes()[skip..].as_ptr().addr();
        let got = backing(start, length)?;
        if let Some(kind) = kind.filter(|&kind| kind != got.kind()) {
            let einval = std::io::Error::from_raw_os_error(libc::ENOMEM);
            let object = format!("{} of memory in {kind} pages", ByteCount(length as u64).about());
            let error = HostError::os("get", object, einval);
            return Err(error.with_hint(format!("the kernel gave {got}")));
        }
        Ok(Self { mapping, skip, length, got })
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.mapping.bytes()[self.skip..][..self.length]
    }

    /// The bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.mapping.bytes_mut()[self.skip..][..self.length]
    }

    /// What kind of pages it has.
    #[must_use]
    pub fn got(&self) -> Backing {
        self.got
    }
}

/// What kind of pages `length` bytes from `start` have.
fn backing(start: usize, length: usize) -> Result<Backing> {
    const FILE: &str = "/proc/self/smaps";
    let text = fs::read_to_string(FILE).named("read", || FILE.to_owned())?;
    Ok(backing_in(&text, start, start + length))
}

/// `proc_pid_smaps(5)`: a line of addresses for each mapping, then lines of `Name: value kB`.
fn backing_in(smaps: &str, start: usize, end: usize) -> Backing {
    let mut found = Backing::default();
    let (mut inside, mut page) = (false, 0);
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(first) = words.next() else { continue };
        if let Some(name) = first.strip_suffix(':') {
            let value = words.next().and_then(|value| value.parse::<u64>().ok()).unwrap_or(0) << 10;
            match name {
                _ if !inside => {}
                "KernelPageSize" => page = value,
                "Rss" => found.present.0 += value,
                "AnonHugePages" => found.two_megabytes.0 += value,
                // Pages of a pool are in no Rss.
                "Private_Hugetlb" if page == ONE_GIGABYTE as u64 => {
                    found.present.0 += value;
                    found.one_gigabyte.0 += value;
                }
                "Private_Hugetlb" if page == TWO_MEGABYTES as u64 => {
                    found.present.0 += value;
                    found.two_megabytes.0 += value;
                }
                _ => {}
            }
        } else if let Some((low, high)) = first.split_once('-') {
            let address = |text| usize::from_str_radix(text, 16).unwrap_or(0);
            inside = address(low) < end && address(high) > start;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
7f0000000000-7f0000400000 rw-p 00000000 00:00 0 
Size:               4096 kB
KernelPageSize:        4 kB
Rss:                4096 kB
AnonHugePages:      2048 kB
Private_Hugetlb:       0 kB
7f0000400000-7f0040400000 rw-p 00000000 00:0f 1 /anon_hugepage (deleted)
KernelPageSize:  1048576 kB
Rss:                   0 kB
Private_Hugetlb: 1048576 kB
7f0040400000-7f0040600000 rw-p 00000000 00:0f 1 /anon_hugepage (deleted)
KernelPageSize:     2048 kB
Rss:                   0 kB
Private_Hugetlb:    2048 kB
";

    #[test]
    fn pages_are_read_back_by_their_kind() {
        let of = |start, end| backing_in(SMAPS, start, end);
        let half = of(0x7f00_0000_0000, 0x7f00_0040_0000);
        assert_eq!((half.kind(), half.to_string().as_str()), (PageKind::Small, "2m (50 %)"));
        assert_eq!(of(0x7f00_0040_0000, 0x7f00_4040_0000).kind(), PageKind::OneGigabyte);
        assert_eq!(of(0x7f00_4040_0000, 0x7f00_4040_0001).kind(), PageKind::TwoMegabytes);
        assert_eq!(of(0x1000, 0x2000), Backing::default());
    }

    #[test]
    fn small_pages_are_small_and_written() {
        let mut pages =
            Pages::new(ByteCount(5 << 20), Some(PageKind::Small)).expect("4 KiB pages are everywhere");
        assert_eq!(pages.got().kind(), PageKind::Small);
        assert!(pages.got().present.0 >= 5 << 20, "all of it is present: {:?}", pages.got());
        assert_eq!(pages.bytes().len(), 5 << 20);
        assert!(pages.bytes().iter().any(|&byte| byte != 0));
        pages.bytes_mut()[0] = 9;
        assert_eq!(pages.bytes()[0], 9);
    }

    #[test]
    fn what_the_kernel_does_not_give_is_an_error_with_a_remedy_and_no_other_pages() {
        for kind in [PageKind::TwoMegabytes, PageKind::OneGigabyte] {
            match Pages::new(ByteCount(4 << 20), Some(kind)) {
                Ok(pages) => assert_eq!(pages.got().kind(), kind),
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains(&format!("4 MiB of memory in {kind} pages")), "{text}");
                    assert!(text.contains("nr_hugepages"), "no remedy: {text}");
                }
            }
        }
        let any = Pages::new(ByteCount(4 << 20), None).expect("some pages");
        assert_eq!(any.bytes().as_ptr().addr() % TWO_MEGABYTES, 0);
        let error =
            Pages::new(ByteCount(1 << 60), Some(PageKind::Small)).expect_err("an exbibyte").to_string();
        assert!(error.contains("1048576 TiB of memory in 4k pages"), "{error}");
    }

    #[test]
    fn a_kind_reads_back_from_its_name() {
        for kind in [PageKind::Small, PageKind::TwoMegabytes, PageKind::OneGigabyte] {
            assert_eq!(kind.to_string().to_uppercase().parse::<PageKind>().unwrap(), kind);
        }
        assert!("2g".parse::<PageKind>().unwrap_err().to_string().contains("4k, 2m or 1g"));
    }
}
