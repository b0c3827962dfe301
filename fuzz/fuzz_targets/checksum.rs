//! Every checksum routine against the others and against the sum by the book, whatever the data, their length, the offsets
//! of both ends and where the data are cut (the first six bytes say).
#![no_main]

use haul_copy::checksum::{Sum, SumRoutine};
use libfuzzer_sys::fuzz_target;

/// RFC 1071 §4.1.
fn oracle(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u64::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)])));
    let mut sum = words.sum::<u64>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).expect("folded")
}

fuzz_target!(|input: &[u8]| {
    let Some((&[from, to, cut_low, cut_high, repeat_low, repeat_high], data)) = input.split_first_chunk() else {
        return;
    };
    // Long data of a short input: what is beyond the thresholds is reached without a long corpus.
    let repeat = usize::from(u16::from_le_bytes([repeat_low, repeat_high]) % 2048);
    let data: Vec<u8> = data.iter().copied().cycle().take(if data.is_empty() { 0 } else { data.len() + repeat }).collect();
    let (from, to) = (usize::from(from % 64), usize::from(to % 64));
    let cut = usize::from(u16::from_le_bytes([cut_low, cut_high])) % (data.len() + 1);
    let expected = oracle(&data);

    let mut source = vec![0xff; from];
    source.extend(&data);
    for routine in SumRoutine::all() {
        let mut destination = vec![0x5a; to + data.len() + 64];
        let sum = routine.copy(&mut destination[to..to + data.len()], &source[from..]);
        assert_eq!(sum.fold(), expected, "{routine:?}: copy");
        assert_eq!(destination[to..to + data.len()], data, "{routine:?}: other bytes");
        assert!(destination[..to].iter().chain(&destination[to + data.len()..]).all(|byte| *byte == 0x5a));

        assert_eq!(routine.sum(&source[from..]).fold(), expected, "{routine:?}: sum");
        let (head, tail) = data.split_at(cut);
        assert_eq!(routine.sum(head).combine(routine.sum(tail)), sum, "{routine:?}: cut at {cut}");
    }
    assert_eq!(Sum::of(&data).fold(), expected);
});
