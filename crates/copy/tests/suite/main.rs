//! One suite over all routines that this CPU has.
//!
//! What is exhaustive: every length 0…512 with every source and every destination offset 0…63, against a hole below
//! and a hole above; and for every length 0…512 a fault at every byte of the source, and of the destination. In the
//! latter the other end's offset goes through 0…63 (it is fixed by length and place, so that every value meets every
//! place modulo 64); and around thresholds, offsets go through all of one end and the other end's follow.
//!
//! Every part prints `ran PART ROUTINE`; `ci.sh` compares these lines with what the machine should have.
//! `HAUL_COPY_STRIDE=n` takes every nth length and offset only, for emulators; it is printed too.

mod memory;

use haul_copy::{Overlap, Routine};
use memory::{BACKGROUND, MARGIN, Memory, catch, faults, is_background};

/// Every length up to here.
const LENGTHS: usize = 512;

/// Offsets of either end.
const OFFSETS: usize = 64;

/// Where some routine goes another way, of this or another instruction set, or a page ends.
const THRESHOLDS: &[usize] = &[1024, 2048, 2112, 3072, 4096, 8192, 65536];

/// Which is the one that faults, or touches a hole.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Source,
    Destination,
}

fn stride() -> usize {
    let stride = std::env::var("HAUL_COPY_STRIDE").map_or(1, |text| text.parse().expect("a number"));
    println!("stride {stride}");
    stride
}

/// Runs a part for every routine, and says so.
fn each(part: &str, mut body: impl FnMut(Routine)) {
    catch();
    let mut ran = 0;
    for routine in Routine::all() {
        body(routine);
        println!("ran {part} {}", routine.name());
        ran += 1;
    }
    assert!(ran >= 3, "the portable routines are everywhere");
}

/// A copy of `len` bytes of which all but `left` are there: checks what it did, and puts the background back.
#[track_caller]
fn check(
    routine: Routine,
    (source, src): (&Memory, *const u8),
    (memory, dst): (&Memory, *mut u8),
    len: usize,
    left: usize,
) {
    let before = faults();
    // SAFETY: both ends are in mappings of the test's; the counting handler is installed.
    let got = unsafe { routine.try_copy(dst, src, len) };
    let what = || {
        let (from, to) = (src.addr() % 4096, dst.addr() % 4096);
        format!("{}: {len} bytes from …{from:#x} to …{to:#x}", routine.name())
    };
    assert_eq!(got, left, "{}: bytes not copied", what());
    if left == 0 {
        assert_eq!(faults(), before, "{}: it touched what is not of the copy", what());
    }
    let done = len - left;
    assert!(memory.slice(dst, done) == source.slice(src, done), "{}: wrong bytes", what());
    let below = memory.slice(dst.wrapping_sub(MARGIN), MARGIN);
    let above = memory.slice(dst.wrapping_add(done), left + MARGIN);
    assert!(is_background(below) && is_background(above), "{}: stored outside", what());
    memory.clear(dst, done);
}

/// Every length and offset, against a hole at either side of either end.
fn lengths_and_offsets(part: &str, above: bool) {
    let stride = stride();
    let (source, target) = (Memory::source(4096), Memory::new(4096));
    each(part, |routine| {
        for len in (0..=LENGTHS).step_by(stride) {
            for from in (0..OFFSETS).step_by(stride) {
                let src = if above {
                    source.high().wrapping_sub(from + len)
                } else {
                    source.low().wrapping_add(from)
                };
                for to in (0..OFFSETS).step_by(stride) {
                    let dst = if above {
                        target.high().wrapping_sub(to + len)
                    } else {
                        target.low().wrapping_add(to)
                    };
                    check(routine, (&source, src), (&target, dst), len, 0);
                }
            }
        }
    });
}

#[test]
fn every_length_and_offset_above_a_hole() {
    lengths_and_offsets("above-a-hole", false);
}

#[test]
fn every_length_and_offset_below_a_hole() {
    lengths_and_offsets("below-a-hole", true);
}

#[test]
fn lengths_around_thresholds() {
    let stride = stride();
    let most = THRESHOLDS.iter().max().unwrap() + 256;
    let (source, target) = (Memory::source(most), Memory::new(most));
    each("thresholds", |routine| {
        for &threshold in THRESHOLDS {
            // Where it is far, a page's worth of offsets takes long and tells nothing new.
            let offsets = if threshold > 8192 { 7 * stride } else { stride };
            for len in (threshold - 66..=threshold + 66).step_by(3) {
                for to in (0..OFFSETS).step_by(offsets) {
                    for from in [to, (5 * to + 3) % OFFSETS, (3 * len + to) % OFFSETS] {
                        let src = source.high().wrapping_sub(from + len);
                        check(routine, (&source, src), (&target, target.low().wrapping_add(to)), len, 0);
                        let src = source.low().wrapping_add(from);
                        check(
                            routine,
                            (&source, src),
                            (&target, target.high().wrapping_sub(to + len)),
                            len,
                            0,
                        );
                    }
                }
            }
        }
    });
}

/// Copies that are much larger than the caches: where stores go past them.
#[test]
fn lengths_beyond_the_caches() {
    const LARGE: usize = 18 << 20;
    let (source, target) = (Memory::source(LARGE), Memory::new(LARGE));
    each("large", |routine| {
        for (len, from, to) in
            [((4 << 20) - 1, 1, 0), ((4 << 20) + 77, 3, 5), (16 << 20, 0, 63), ((16 << 20) + 1, 33, 33)]
        {
            let src = source.high().wrapping_sub(from + len);
            check(routine, (&source, src), (&target, target.low().wrapping_add(to)), len, 0);
            // And a fault far in, at a place that is no multiple of anything.
            let there = len - 12_347;
            let dst = target.high().wrapping_sub(there);
            check(routine, (&source, source.low()), (&target, dst), len, len - there);
        }
    });
}

/// The copy of `len` bytes whose byte `at` is the first in a hole.
fn faulting(routine: Routine, (source, target): (&Memory, &Memory), end: End, len: usize, at: usize) {
    let other = (7 * len + 13 * at + at / 64) % OFFSETS;
    let (src, dst) = match end {
        End::Source => (source.high().wrapping_sub(at), target.low().wrapping_add(other)),
        End::Destination => (source.low().wrapping_add(other), target.high().wrapping_sub(at)),
    };
    check(routine, (source, src), (target, dst), len, len - at);
}

fn every_place(part: &str, end: End) {
    let stride = stride();
    let (source, target) = (Memory::source(8192), Memory::new(8192));
    each(part, |routine| {
        for len in (1..=LENGTHS).step_by(stride) {
            for at in 0..len {
                faulting(routine, (&source, &target), end, len, at);
            }
        }
        // Every place of a copy of a page and a little.
        for at in (0..4096 + 64).step_by(stride) {
            faulting(routine, (&source, &target), end, 4096 + 64, at);
        }
    });
}

#[test]
fn a_fault_at_every_byte_of_the_source() {
    every_place("source-faults", End::Source);
}

#[test]
fn a_fault_at_every_byte_of_the_destination() {
    every_place("destination-faults", End::Destination);
}

/// With memory behind the hole: what is there must not be stored, nor loaded in its place.
#[test]
fn a_hole_in_the_middle() {
    let (source, target) = (Memory::source(8192), Memory::new(8192));
    each("hole-in-the-middle", |routine| {
        for at in (0..200).chain([511, 512, 513, 2047, 4000]) {
            for more in [1, 64, 700] {
                let len = at + 4096 + more;
                let dst = target.high().wrapping_sub(at);
                check(routine, (&source, source.low()), (&target, dst), len, len - at);
                // SAFETY: two pages above the hole are mapped and initialised.
                let beyond = unsafe { std::slice::from_raw_parts(target.beyond(), 2048) };
                assert!(is_background(beyond), "{}: stored behind a hole", routine.name());
                let src = source.high().wrapping_sub(at);
                check(routine, (&source, src), (&target, target.low().wrapping_add(at % 64)), len, len - at);
            }
        }
    });
}

/// From inside a hole into memory, and from memory into a hole: nothing is copied.
#[test]
fn a_fault_at_the_first_byte() {
    let (source, target) = (Memory::source(4096), Memory::new(4096));
    each("first-byte", |routine| {
        for within in 1..=130 {
            for len in [1, 2, 7, 8, 63, 64, 65, 128, 300, 513, 1500] {
                let before = source.low().wrapping_sub(within);
                check(routine, (&source, before), (&target, target.low()), len, len);
                let before = target.low().wrapping_sub(within);
                check(routine, (&source, source.low()), (&target, before), len, len);
            }
        }
    });
}

/// Both ends fault: the nearer one counts.
#[test]
fn a_fault_at_both_ends() {
    let (source, target) = (Memory::source(4096), Memory::new(4096));
    each("both-ends", |routine| {
        for len in [1, 5, 16, 63, 64, 129, 257, 600, 1100] {
            for from in (0..len).step_by(7) {
                for to in (0..len).step_by(5) {
                    let (src, dst) = (source.high().wrapping_sub(from), target.high().wrapping_sub(to));
                    check(routine, (&source, src), (&target, dst), len, len - from.min(to));
                }
            }
        }
    });
}

/// Nothing is copied and nothing is touched, wherever the addresses are.
#[test]
fn no_bytes() {
    let (source, target) = (Memory::source(4096), Memory::new(4096));
    each("no-bytes", |routine| {
        for offset in 0..OFFSETS {
            for (src, dst) in [
                (source.low(), target.high().wrapping_add(offset)),
                (source.high().wrapping_add(offset), target.low()),
                (source.high().wrapping_add(offset), target.high().wrapping_add(offset)),
            ] {
                check(routine, (&source, src), (&target, dst), 0, 0);
            }
        }
        let before = faults();
        // SAFETY: no bytes, and a routine that touches any faults.
        assert_eq!(unsafe { routine.try_copy(std::ptr::null_mut(), std::ptr::null(), 0) }, 0);
        assert_eq!(faults(), before);
    });
}

/// What could not be filled is zero.
#[test]
fn the_zeroing_form() {
    let (source, target) = (Memory::source(4096), Memory::new(4096));
    each("zeroing", |routine| {
        for len in [0, 1, 15, 64, 100, 513, 3000] {
            for at in (0..=len).step_by(11) {
                let src = source.high().wrapping_sub(at);
                // SAFETY: in the data, which nobody else uses.
                let into = unsafe { std::slice::from_raw_parts_mut(target.low().wrapping_add(3), len) };
                // SAFETY: the source faults, which the counting handler fixes.
                assert_eq!(unsafe { routine.try_copy_in(into, src) }, len - at, "{}", routine.name());
                assert!(into[..at] == *source.slice(src, at), "{}: wrong bytes", routine.name());
                assert!(into[at..].iter().all(|&byte| byte == 0), "{}: not zeroed", routine.name());
                assert!(is_background(target.slice(target.low().wrapping_add(3 + len), MARGIN)));
                into.fill(BACKGROUND);
            }
        }
    });
}

/// Where it is promised, bytes may be shared with a source that begins at or after the destination.
#[test]
fn overlap_where_it_is_promised() {
    catch();
    let memory = Memory::new(8192);
    let mut promised = 0;
    each("overlap", |routine| {
        if routine.overlap() != Overlap::Forward {
            return;
        }
        promised += 1;
        for distance in (0..=70).chain([127, 128, 129, 300]) {
            for len in (0..=260).chain([511, 512, 513, 2000]) {
                for offset in [0, 1, 7, 32] {
                    let dst = memory.low().wrapping_add(offset);
                    let bytes: Vec<u8> = (0..distance + len).map(memory::source_byte).collect();
                    // SAFETY: within the data.
                    unsafe { dst.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
                    // SAFETY: mapped, and promised.
                    let left = unsafe { routine.try_copy(dst, dst.wrapping_add(distance), len) };
                    assert_eq!(left, 0);
                    let (moved, rest) = memory.slice(dst, distance + len).split_at(len);
                    let what = format!("{}: {len} bytes down by {distance}", routine.name());
                    assert!(moved == &bytes[distance..], "{what}");
                    assert!(rest == &bytes[len..], "{what}: stored beyond");
                }
                // Where the source runs into a hole, what was stored before must not have been taken for source.
                for missing in [1, 20, 44] {
                    let Some(there) = len.checked_sub(missing) else { continue };
                    let src = memory.high().wrapping_sub(there);
                    let dst = src.wrapping_sub(distance);
                    let bytes: Vec<u8> = (0..distance + there).map(memory::source_byte).collect();
                    // SAFETY: up to the end of the data.
                    unsafe { dst.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
                    // SAFETY: promised, and the fault is caught.
                    let left = unsafe { routine.try_copy(dst, src, len) };
                    let what =
                        format!("{}: {len} bytes down by {distance}, {missing} in a hole", routine.name());
                    assert_eq!(left, missing, "{what}");
                    assert!(memory.slice(dst, there) == &bytes[distance..], "{what}");
                }
            }
        }
    });
    assert!(promised >= 3, "the portable ones do");
}

/// What `auto` says it would work like, and what it is.
#[test]
fn the_choice_is_one_of_the_routines() {
    catch();
    let names: Vec<&str> = Routine::all().map(Routine::name).collect();
    for shift in 0..30 {
        for len in [(1_usize << shift) - 1, 1 << shift, (1 << shift) + 1] {
            for (src, dst) in [(0x1000, 0x200_000), (0x1001, 0x200_000), (0x1003, 0x200_028)] {
                let choice =
                    Routine::auto(len, std::ptr::without_provenance(src), std::ptr::without_provenance(dst));
                assert!(names.contains(&choice.name()), "{}", choice.name());
            }
        }
    }
    assert_eq!(Routine::by_name("auto"), Some(Routine::best()));
    assert!(names.contains(&Routine::best().name()));
    assert!(Routine::by_name("no such routine").is_none());
    let known: Vec<&str> = haul_copy::known().map(haul_copy::Known::name).collect();
    for (place, name) in known.iter().enumerate() {
        assert!(!known[..place].contains(name), "{name} is there twice");
        assert_eq!(Routine::by_name(name).map(Routine::name), names.contains(name).then_some(*name));
    }
}
