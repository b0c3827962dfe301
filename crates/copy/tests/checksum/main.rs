//! The checksum routines: one suite over all that run here, against an oracle short enough to trust by eye.
//!
//! `the_suite_ran_every_routine` prints the names and compares them with what this machine should have.

#[cfg(not(miri))]
mod faults;
mod sums;
mod sweep;

use haul_copy::checksum::{SumRoutine, known};

/// The sum as RFC 1071 §4.1 computes it: big-endian words, the last odd byte padded with zero, carries folded at the end.
pub(crate) fn oracle(bytes: &[u8]) -> u16 {
    let mut sum = 0_u64;
    for pair in bytes.chunks(2) {
        sum += u64::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).expect("folded")
}

/// Bytes without a pattern (the top bytes of Weyl's sequence, multiplied), the same everywhere.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    (1..=len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (i << 17)).to_be_bytes()[1]).collect()
}

pub(crate) fn routines() -> Vec<SumRoutine> {
    SumRoutine::all().collect()
}

/// What the machine says it has, by another way than the crate's.
fn expected() -> Vec<&'static str> {
    #[cfg_attr(miri, expect(unused_mut, reason = "the assembly is not for Miri"))]
    let mut names = vec!["words-shift"];
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        names.extend(["adc64", "sse2"]);
        if is_x86_feature_detected!("avx2") {
            names.push("avx2");
        }
        if is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vl") {
            names.push("avx512");
            if is_x86_feature_detected!("avx512vnni") {
                names.push("avx512-vnni");
            }
        }
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    names.extend(["adcs", "neon"]);
    #[cfg(all(target_arch = "riscv64", not(miri)))]
    names.push("ld-shift");
    names
}

#[test]
fn the_suite_ran_every_routine() {
    let ran: Vec<_> = routines().iter().map(|routine| routine.name()).collect();
    println!("checksum routines that ran: {}", ran.join(" "));
    for known in known().filter(|known| known.routine().is_none()) {
        println!("checksum routine that did not: {} (needs {})", known.name(), known.needs());
    }
    assert_eq!(ran, expected());
    for name in ran {
        assert_eq!(SumRoutine::by_name(name).expect("all of them have a name").name(), name);
    }
    assert!(SumRoutine::by_name("none of them").is_none());
}
