//! Every length × every offset of source and destination, with something to notice on either side.

use haul_copy::checksum::{Sum, SumRoutine};

use crate::{noise, oracle, routines};

/// Beyond the blocks, thresholds and tails of every routine; also what is around a thousand, in larger steps.
const LONGEST: usize = if cfg!(miri) { 34 } else { 512 };
/// All of a cache line's; under Miri some, odd and even.
const OFFSETS: usize = 64;
/// Bytes on either side that a copy leaves alone.
const MARGIN: usize = 64;
const CANARY: u8 = 0xa5;

struct Sweep {
    source: Vec<u8>,
    /// Aligned to 64 at its index 0, as far as offsets are about that.
    destination: Vec<u8>,
    base: [usize; 2],
    /// The sum of the first bytes of the data, for every length.
    sums: Vec<u16>,
    data: Vec<u8>,
}

impl Sweep {
    fn new(data: Vec<u8>) -> Self {
        let room = data.len() + 2 * MARGIN + 2 * OFFSETS;
        let (source, destination) = (vec![0; room], vec![CANARY; room]);
        let base =
            [&source, &destination].map(|buffer| buffer.as_ptr().addr().wrapping_neg() % OFFSETS + MARGIN);
        let sums = (0..=data.len()).map(|len| oracle(&data[..len])).collect();
        Self { source, destination, base, sums, data }
    }

    fn one(&mut self, routine: SumRoutine, len: usize, from: usize, to: usize) {
        let what = || format!("{routine:?}, {len} bytes from offset {from} to {to}");
        let (from, to) = (self.base[0] + from, self.base[1] + to);
        let source = &self.source[from..from + len];
        let sum = routine.copy(&mut self.destination[to..to + len], source);
        assert_eq!((sum.fold(), sum.is_odd()), (self.sums[len], len % 2 == 1), "{}", what());
        assert!(self.destination[to..to + len] == self.data[..len], "{}: other bytes", what());
        let margins = [&self.destination[to - MARGIN..to], &self.destination[to + len..to + len + MARGIN]];
        assert!(margins.iter().all(|margin| **margin == [CANARY; MARGIN]), "{}: wrote beside", what());
        self.destination[to..to + len].fill(CANARY);
    }

    fn run(&mut self, lengths: &[usize]) {
        let offsets: Vec<_> = (0..OFFSETS).step_by(if cfg!(miri) { 9 } else { 1 }).collect();
        self.run_at(lengths, &offsets);
    }

    fn run_at(&mut self, lengths: &[usize], offsets: &[usize]) {
        for &from in offsets {
            let start = self.base[0] + from;
            // What is beside the source must not be in the sum.
            self.source.fill(0xff);
            self.source[start..start + self.data.len()].copy_from_slice(&self.data);
            for routine in routines() {
                for &len in lengths {
                    let sum = routine.sum(&self.source[start..start + len]);
                    assert_eq!(sum, Sum::of(&self.data[..len]), "{routine:?}, {len} bytes at offset {from}");
                    assert_eq!(sum.fold(), self.sums[len], "{routine:?}, {len} bytes at offset {from}");
                    for &to in offsets {
                        self.one(routine, len, from, to);
                    }
                }
            }
        }
    }
}

#[test]
fn short_lengths_at_all_offsets() {
    let lengths: Vec<_> = (0..=LONGEST).collect();
    Sweep::new(noise(LONGEST)).run(&lengths);
}

#[test]
#[cfg(not(miri))]
fn lengths_around_blocks_and_thresholds() {
    let around = |len: usize| (len - 2..=len + 2).chain([len + 63, len + 65, len + 127]);
    let lengths: Vec<_> = [768, 1024, 1280, 1536, 2048, 4096].into_iter().flat_map(around).collect();
    Sweep::new(noise(4096 + 130)).run(&lengths);
}

/// Where lines are fetched ahead, and the loop that ends that.
#[test]
#[cfg(not(miri))]
fn long_copies() {
    let data = noise(70_000);
    let mut sweep = Sweep::new(data);
    let lengths: Vec<_> =
        (32_700..35_200).step_by(61).chain([32_767, 32_768, 32_769, 65_536, 69_999]).collect();
    sweep.run_at(&lengths, &[0, 1, 3, 8, 62, 63]);
}

#[test]
fn data_that_carry_out_of_every_word() {
    let lengths: Vec<_> = (0..=LONGEST).step_by(if cfg!(miri) { 13 } else { 7 }).collect();
    Sweep::new(vec![0xff; LONGEST]).run(&lengths);
}
