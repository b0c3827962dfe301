//! Sums as values: the examples of RFC 1071, and its properties.

use haul_copy::checksum::Sum;
use proptest::prelude::*;

use crate::{noise, oracle, routines};

/// RFC 1071 §3: the same eight bytes as words in either order, and as 32-bit words.
const RFC: [u8; 8] = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];

#[test]
fn the_example_of_rfc_1071_sums_as_printed_there() {
    assert_eq!(oracle(&RFC), 0xddf2);
    for routine in routines() {
        assert_eq!(routine.sum(&RFC).fold(), 0xddf2, "{routine:?}");
        assert_eq!(routine.sum(&RFC).checksum(), 0x220d, "{routine:?}");
        let swapped: Vec<u8> = RFC.chunks(2).flat_map(|word| [word[1], word[0]]).collect();
        assert_eq!(routine.sum(&swapped).fold(), 0xf2dd, "{routine:?}");
    }
}

/// RFC 1071 §3, "breaking the sum into two groups": 0x00 0x01 0xf2 and 0x03 … 0xf7, the second swapped.
#[test]
fn the_groups_of_rfc_1071_combine_at_an_odd_byte() {
    let (first, second) = RFC.split_at(3);
    assert_eq!(Sum::of(first).fold(), 0xf201);
    assert_eq!(Sum::of(second).fold(), 0xf0eb, "as if it began at an even byte");
    assert_eq!(Sum::of(first).combine(Sum::of(second)).fold(), 0xddf2);
    assert_eq!(Sum::of(second).combine(Sum::of(first)).fold(), 0xf2dd, "the other order is other data");
}

/// A header from a capture: IPv4, TTL 64, UDP, 192.168.0.1 to 192.168.0.199, checksum 0xb861.
#[test]
fn a_header_verifies_with_its_checksum_in_it() {
    let mut header = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01, 0xc0,
        0xa8, 0x00, 0xc7,
    ];
    for routine in routines() {
        assert!(routine.sum(&header).verifies(), "{routine:?}");
    }
    header[10..12].fill(0);
    assert_eq!(Sum::of(&header).checksum().to_be_bytes(), [0xb8, 0x61]);
    header[0] = 0x46;
    assert!(!Sum::of(&header).verifies());
}

#[test]
fn nothing_sums_to_zero_and_so_do_zeros_but_nothing_else_does() {
    assert_eq!(Sum::EMPTY.fold(), 0);
    assert_eq!(Sum::EMPTY.checksum(), 0xffff);
    assert_eq!(Sum::default(), Sum::EMPTY);
    for routine in routines() {
        assert_eq!(routine.sum(&[]), Sum::EMPTY, "{routine:?}");
        assert_eq!(routine.copy(&mut [], &[]), Sum::EMPTY, "{routine:?}");
        for len in [1, 2, 8, 63, 64, 1000] {
            assert_eq!(routine.sum(&vec![0; len]).fold(), 0, "{routine:?} {len}");
            assert_eq!(routine.sum(&vec![0xff; 2 * len]).fold(), 0xffff, "{routine:?} {len}");
        }
    }
    assert_eq!(Sum::of(&[0xff, 0xfe, 0x00, 0x01]).fold(), 0xffff, "a multiple of 0xffff is -0");
}

#[test]
fn an_odd_length_is_known_and_told() {
    assert!(Sum::of(&[1]).is_odd());
    assert!(!Sum::of(&[1, 2]).is_odd());
    assert!(!Sum::of(&[1]).combine(Sum::of(&[2])).is_odd());
    assert_ne!(Sum::of(&[1]), Sum::of(&[1, 0]), "the same word, but the next byte goes elsewhere");
    assert_eq!(format!("{:?} {:?}", Sum::of(&[1]), Sum::of(&[1, 2])), "Sum(0x0100, odd) Sum(0x0102)");
}

#[test]
fn what_fills_the_accumulators_most_does_not_overflow_them() {
    let len = if cfg!(miri) { 3_000 } else { 3_000_000 };
    let bytes = vec![0xff; len];
    for routine in routines() {
        assert_eq!(routine.sum(&bytes).fold(), 0xffff, "{routine:?}");
        assert_eq!(routine.sum(&bytes[..len - 1]).fold(), oracle(&bytes[..len - 1]), "{routine:?}");
    }
}

/// Longer than what one call may sum (32 MiB), with all lanes as full as they get, from an odd address and to one.
#[test]
#[cfg(not(miri))]
fn what_is_summed_in_pieces_is_summed_whole() {
    let bytes = vec![0xff; (64 << 20) + 4];
    let mut copied = vec![0; bytes.len()];
    for routine in routines() {
        for (to, len) in [(1, 64 << 20), (1, (64 << 20) + 3), (0, (32 << 20) - 1), (1, 32 << 20)] {
            // All words are 0xffff, which is zero; the last odd byte is 0xff00.
            let expected = if len % 2 == 1 { 0xff00 } else { 0xffff };
            assert_eq!(routine.sum(&bytes[to..to + len]).fold(), expected, "{routine:?}, {len} bytes");
            let sum = routine.copy(&mut copied[to..to + len], &bytes[..len]);
            assert_eq!((sum.fold(), sum.is_odd()), (expected, len % 2 == 1), "{routine:?}, {len} bytes");
            assert!(copied[to..to + len] == bytes[..len], "{routine:?}, {len} bytes: other bytes");
            copied.fill(0);
        }
    }
}

/// What Miri gets through in seconds.
const LONGEST: usize = if cfg!(miri) { 60 } else { 3000 };

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 512 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn parts_combine_to_the_whole_however_they_are_cut(
        bytes in proptest::collection::vec(any::<u8>(), 0..LONGEST),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        for routine in routines() {
            let parts = cuts.windows(2).map(|cut| routine.sum(&bytes[cut[0]..cut[1]]));
            let whole = parts.fold(Sum::EMPTY, Sum::combine);
            prop_assert_eq!(whole.fold(), oracle(&bytes), "{:?}", routine);
            prop_assert_eq!(whole, routine.sum(&bytes));
        }
    }

    #[test]
    fn combining_is_associative_and_the_empty_sum_is_neutral(a: Vec<u8>, b: Vec<u8>, c: Vec<u8>) {
        let [a, b, c] = [a, b, c].map(|part| Sum::of(&part));
        prop_assert_eq!(a.combine(b).combine(c), a.combine(b.combine(c)));
        prop_assert_eq!(Sum::EMPTY.combine(a), a);
        prop_assert_eq!(a.combine(Sum::EMPTY), a);
    }

    #[test]
    fn a_copy_is_a_copy_and_sums_what_it_copied(
        bytes in proptest::collection::vec(any::<u8>(), 0..LONGEST),
        from in 0_usize..64,
        to in 0_usize..64,
    ) {
        for routine in routines() {
            let mut source = noise(from);
            source.extend(&bytes);
            let mut destination = vec![0x5a; to + bytes.len()];
            let sum = routine.copy(&mut destination[to..], &source[from..]);
            prop_assert_eq!(&destination[to..], &bytes[..]);
            prop_assert!(destination[..to].iter().all(|byte| *byte == 0x5a));
            prop_assert_eq!(sum.fold(), oracle(&bytes), "{:?}", routine);
        }
    }
}
