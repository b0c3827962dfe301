//! The records of a ring, decoded from bytes: a pure function, which no content makes fail or read beyond its end.
//!
//! ```text
//! header   kind u32 │ misc u16 │ size u16                                size counts the header, a multiple of 8
//! SAMPLE   ip u64 │ pid u32 │ tid u32 │ time u64 │ cpu u32 │ 0 u32 │ period u64 │ [n u64 │ n × u64]
//! COMM     pid u32 │ tid u32 │ name, ended by a zero and filled up │ trailer
//! LOST     id u64 │ lost u64 │ trailer                                   trailer: pid u32 │ tid u32 │ time u64 │ cpu u32 │ 0 u32
//! THROTTLE time u64 │ id u64 │ stream u64 │ trailer
//! ```
//!
//! The fields of a sample are those that [`SAMPLE_TYPE`] asks for, in the order `perf_event_open(2)` gives them. What is of
//! another kind is passed over by its size; what says a size that cannot be ends the reading, and is told.

/// `PERF_SAMPLE_IP | TID | TIME | CPU | PERIOD`; with [`CALL_CHAIN`] also that.
pub const SAMPLE_TYPE: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 7 | 1 << 8;
/// `PERF_SAMPLE_CALLCHAIN`.
pub const CALL_CHAIN: u64 = 1 << 5;

const LOST: u32 = 2;
const COMM: u32 = 3;
const THROTTLE: u32 = 5;
const SAMPLE: u32 = 9;
const LOST_SAMPLES: u32 = 13;

/// A name of a thread is no longer (`TASK_COMM_LEN` without its end).
pub const MOST_NAME: usize = 15;

/// `PERF_RECORD_MISC_CPUMODE_MASK` and what it may be.
const MODE: u16 = 7;
const MODE_KERNEL: u16 = 1;
const MODE_USER: u16 = 2;

/// From here on an address in a call chain is a mark (`PERF_CONTEXT_MAX`): what follows is of another mode.
const CONTEXT_MAX: u64 = (-4095_i64).cast_unsigned();
const CONTEXT_KERNEL: u64 = (-128_i64).cast_unsigned();
const CONTEXT_USER: u64 = (-512_i64).cast_unsigned();

/// In which mode an address is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    /// The kernel's.
    Kernel,
    /// A process's.
    User,
    /// A hypervisor's or a guest's.
    Elsewhere,
}

/// One thing a ring says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record<'a> {
    /// Where a CPU was.
    Sample(Sample<'a>),
    /// So many samples found no room in the ring.
    Lost {
        /// How many.
        count: u64,
        /// When it was noticed, in ns of the event's clock.
        time: Option<u64>,
    },
    /// The kernel stopped sampling for the rest of a tick, because it took too much of the CPU.
    Throttled {
        /// When, in ns of the event's clock.
        time: u64,
    },
    /// A thread has a new name, as one that began a program.
    Named {
        /// Its process.
        pid: u32,
        /// The thread: the first of its process where both numbers are the same.
        tid: u32,
        /// The name, [`MOST_NAME`] bytes at most.
        name: &'a [u8],
    },
    /// Something this version does not know, or does not need.
    Unknown(u32),
    /// A record that ends before its fields do.
    Malformed(u32),
    /// So many bytes at the end are no record.
    Torn(usize),
}

/// Where a CPU was as it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample<'a> {
    /// Whose address `ip` is.
    pub space: Space,
    /// The instruction.
    pub ip: u64,
    /// The process; 0 is the idle task.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// When, in ns of the event's clock.
    pub time: u64,
    /// Where.
    pub cpu: u32,
    /// What the sample stands for, in the event's unit: nanoseconds or cycles.
    pub period: u64,
    /// Callers, innermost first, with the kernel's marks between modes; empty where none were asked for.
    pub chain: Chain<'a>,
}

/// A call chain as the kernel wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chain<'a>(&'a [u8]);

impl Chain<'_> {
    /// The words, marks included.
    pub fn words(self) -> impl Iterator<Item = u64> {
        self.0.chunks_exact(8).map(word)
    }

    /// The frames, innermost first, each with its mode.
    pub fn frames(self) -> impl Iterator<Item = (Space, u64)> {
        frames(self.words())
    }
}

/// The frames among the words of a chain.
pub(super) fn frames(words: impl Iterator<Item = u64>) -> impl Iterator<Item = (Space, u64)> {
    let mut space = Space::Elsewhere;
    words.filter_map(move |word| {
        if word < CONTEXT_MAX {
            return Some((space, word));
        }
        space = match word {
            CONTEXT_KERNEL => Space::Kernel,
            CONTEXT_USER => Space::User,
            _ => Space::Elsewhere,
        };
        None
    })
}

/// The records in `bytes`, which begin with a whole one. `chains`: whether samples were asked for with [`CALL_CHAIN`].
pub fn decode(bytes: &[u8], chains: bool) -> impl Iterator<Item = Record<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some((kind, misc, body)) = header(rest) else {
            let torn = rest.len();
            rest = &[];
            return Some(Record::Torn(torn));
        };
        rest = &rest[HEADER + body.len()..];
        Some(record(kind, misc, body, chains).unwrap_or(Record::Malformed(kind)))
    })
}

const HEADER: usize = 8;

fn header(bytes: &[u8]) -> Option<(u32, u16, &[u8])> {
    let first = word(bytes.get(..HEADER)?);
    // The fields are in the order of memory, so on a big-endian machine the kind is in the upper half.
    let [kind, rest] = halves(first);
    let [misc, size] = quarters(rest);
    let body = bytes.get(HEADER..usize::from(size))?;
    Some((kind, misc, body))
}

fn record(kind: u32, misc: u16, body: &[u8], chains: bool) -> Option<Record<'_>> {
    let mut left = body;
    let mut next = || {
        let (first, rest) = left.split_at_checked(8)?;
        left = rest;
        Some(word(first))
    };
    match kind {
        SAMPLE => {
            let ip = next()?;
            let [pid, tid] = halves(next()?);
            let time = next()?;
            let [cpu, _] = halves(next()?);
            let period = next()?;
            let chain = if chains {
                let count = usize::try_from(next()?).ok()?;
                Chain(left.get(..count.checked_mul(8)?)?)
            } else {
                Chain::default()
            };
            let space = match misc & MODE {
                MODE_KERNEL => Space::Kernel,
                MODE_USER => Space::User,
                _ => Space::Elsewhere,
            };
            Some(Record::Sample(Sample { space, ip, pid, tid, time, cpu, period, chain }))
        }
        LOST => {
            let (_id, count, _who) = (next()?, next()?, next());
            Some(Record::Lost { count, time: next() })
        }
        LOST_SAMPLES => {
            let (count, _who) = (next()?, next());
            Some(Record::Lost { count, time: next() })
        }
        COMM => {
            let [pid, tid] = halves(next()?);
            let name = left.get(..left.len().min(MOST_NAME + 1))?;
            let end = name.iter().position(|byte| *byte == 0)?;
            Some(Record::Named { pid, tid, name: &name[..end] })
        }
        THROTTLE => Some(Record::Throttled { time: next()? }),
        other => Some(Record::Unknown(other)),
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_ne_bytes)
}

/// The two numbers of four bytes in one of eight, in the order of memory.
fn halves(word: u64) -> [u32; 2] {
    let bytes = word.to_ne_bytes();
    let at = |from: usize| bytes[from..from + 4].try_into().map_or(0, u32::from_ne_bytes);
    [at(0), at(4)]
}

fn quarters(half: u32) -> [u16; 2] {
    let bytes = half.to_ne_bytes();
    let at = |from: usize| bytes[from..from + 2].try_into().map_or(0, u16::from_ne_bytes);
    [at(0), at(2)]
}

/// Records as the kernel writes them, for tests.
#[cfg(test)]
pub(super) mod written {
    /// A record of these words.
    pub(in super::super) fn record(kind: u32, misc: u16, words: &[u64]) -> Vec<u8> {
        let size = u16::try_from(super::HEADER + words.len() * 8).expect("short");
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(misc.to_ne_bytes());
        bytes.extend(size.to_ne_bytes());
        for word in words {
            bytes.extend(word.to_ne_bytes());
        }
        bytes
    }

    /// Two numbers of four bytes as one word, in the order of memory.
    pub(in super::super) fn pair(first: u32, second: u32) -> u64 {
        let mut bytes = first.to_ne_bytes().to_vec();
        bytes.extend(second.to_ne_bytes());
        super::word(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::written::{pair, record as bytes_of};
    use super::*;

    fn sample(misc: u16, ip: u64, time: u64, chain: &[u64]) -> Vec<u8> {
        let mut words = vec![ip, pair(12, 34), time, pair(1, 0), 1_003_009, chain.len() as u64];
        words.extend(chain);
        bytes_of(SAMPLE, misc, &words)
    }

    #[test]
    fn a_stream_of_records_is_read_in_order_and_unknown_ones_are_passed_over() {
        let mut bytes =
            sample(MODE_KERNEL | 1 << 14, 0xffff_ffff_8100_0000, 5, &[CONTEXT_KERNEL, 1, 2, CONTEXT_USER, 3]);
        bytes.extend(bytes_of(LOST, 0, &[7, 9, pair(12, 34), 6, 0]));
        bytes.extend(bytes_of(77, 0, &[1, 2, 3]));
        bytes.extend(bytes_of(THROTTLE, 0, &[8, 7, 7, pair(12, 34), 8, 0]));
        bytes.extend(bytes_of(LOST_SAMPLES, 0, &[4, pair(0, 0), 11, 0]));
        let name = u64::from_ne_bytes(*b"cc1\0\0\0\0\0");
        bytes.extend(bytes_of(COMM, 1 << 13, &[pair(12, 12), name, pair(12, 12), 8, 0]));
        bytes.extend(sample(MODE_USER, 0x40_0000, 9, &[]));
        let records: Vec<Record<'_>> = decode(&bytes, true).collect();
        let Record::Sample(first) = records[0] else { panic!("{records:?}") };
        assert_eq!(
            (first.space, first.pid, first.tid, first.cpu, first.period),
            (Space::Kernel, 12, 34, 1, 1_003_009)
        );
        let frames: Vec<_> = first.chain.frames().collect();
        assert_eq!(frames, [(Space::Kernel, 1), (Space::Kernel, 2), (Space::User, 3)]);
        assert_eq!(records[1], Record::Lost { count: 9, time: Some(6) });
        assert_eq!(records[2], Record::Unknown(77));
        assert_eq!(records[3], Record::Throttled { time: 8 });
        assert_eq!(records[4], Record::Lost { count: 4, time: Some(11) });
        assert_eq!(records[5], Record::Named { pid: 12, tid: 12, name: b"cc1" });
        let Record::Sample(last) = records[6] else { panic!("{records:?}") };
        assert_eq!((last.space, last.ip, last.chain.words().count()), (Space::User, 0x40_0000, 0));
        assert_eq!(records.len(), 7);
    }

    #[test]
    fn what_is_torn_or_lies_about_its_length_is_told_and_never_read_beyond() {
        let whole = sample(MODE_USER, 1, 2, &[3]);
        for (cut, torn) in [(4, 4), (8, 8), (whole.len() - 1, whole.len() - 1)] {
            assert_eq!(decode(&whole[..cut], true).collect::<Vec<_>>(), [Record::Torn(torn)]);
        }
        // A record that is smaller than its header would never end.
        assert_eq!(decode(&[0; 24], true).collect::<Vec<_>>(), [Record::Torn(24)]);
        // A name without an end.
        let endless = bytes_of(COMM, 0, &[pair(1, 1), u64::MAX, u64::MAX, 0]);
        assert_eq!(decode(&endless, true).collect::<Vec<_>>(), [Record::Malformed(COMM)]);
        // More callers than the record has.
        let mut words = vec![1, 2, 3, 4, 5, u64::MAX, 6];
        let long = bytes_of(SAMPLE, MODE_USER, &words);
        assert_eq!(decode(&long, true).collect::<Vec<_>>(), [Record::Malformed(SAMPLE)]);
        words.truncate(3);
        let mut short = bytes_of(SAMPLE, MODE_USER, &words);
        short.extend(bytes_of(THROTTLE, 0, &[8]));
        assert_eq!(
            decode(&short, true).collect::<Vec<_>>(),
            [Record::Malformed(SAMPLE), Record::Throttled { time: 8 }],
            "the next one is where its size says"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_their_end_once(bytes in proptest::collection::vec(any::<u8>(), 0..600), chains: bool) {
            let mut count = 0;
            for record in decode(&bytes, chains) {
                if let Record::Sample(sample) = record {
                    prop_assert!(sample.chain.words().count() * 8 <= bytes.len());
                }
                count += 1;
            }
            prop_assert!(count <= bytes.len() / HEADER + 1);
        }

        #[test]
        fn what_is_written_is_read_back(
            samples in proptest::collection::vec((any::<u64>(), any::<u64>(), proptest::collection::vec(any::<u64>(), 0..20)), 0..20),
            cut in 0..64_usize,
        ) {
            let mut bytes: Vec<u8> = Vec::new();
            for (ip, time, chain) in &samples {
                bytes.extend(sample(MODE_KERNEL, *ip, *time, chain));
            }
            let whole = bytes.len();
            bytes.truncate(whole - cut.min(whole));
            let read: Vec<(u64, u64, Vec<u64>)> = decode(&bytes, true)
                .filter_map(|record| match record {
                    Record::Sample(sample) => Some((sample.ip, sample.time, sample.chain.words().collect())),
                    _ => None,
                })
                .collect();
            prop_assert_eq!(&read[..], &samples[..read.len()]);
            if cut == 0 {
                prop_assert_eq!(read.len(), samples.len());
            }
        }
    }
}
