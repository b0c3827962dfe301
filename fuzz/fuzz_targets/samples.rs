//! The records of a ring of samples: read to their end, whatever they are, and the same up to where they are cut.
#![no_main]

use haul_host::probe::profile::record::{Record, decode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&first, bytes)) = input.split_first() else { return };
    let chains = first & 1 == 1;
    let whole: Vec<Record<'_>> = decode(bytes, chains).collect();
    assert!(whole.len() <= bytes.len() / 8 + 1);
    let chained: usize = whole
        .iter()
        .map(|record| if let Record::Sample(sample) = record { sample.chain.frames().count() } else { 0 })
        .sum();
    assert!(chained * 8 <= bytes.len());
    // A reader that comes too early sees a shorter ring: what it sees is the same.
    let cut = bytes.len() * usize::from(first >> 1) / 128;
    let early: Vec<Record<'_>> = decode(&bytes[..cut], chains).collect();
    for (early, whole) in early.iter().zip(&whole) {
        assert!(early == whole || matches!(early, Record::Torn(_)));
    }
});
