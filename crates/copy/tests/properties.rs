//! Any length, any offsets, any place of a fault, any routine: the same as a loop over bytes.

use haul_copy::{Handler, Routine};
use proptest::prelude::*;

const PAGE: usize = 4096;
const SPAN: usize = 6 * PAGE;

/// Memory whose last page faults.
struct Memory(*mut u8);

impl Memory {
    fn new() -> Self {
        let (flags, both) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a null hint lets the kernel choose an address that nothing else uses.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), SPAN + PAGE, both, flags, -1, 0) }.cast::<u8>();
        // SAFETY: the last page of the mapping just made.
        assert_eq!(unsafe { libc::mprotect(start.wrapping_add(SPAN).cast(), PAGE, libc::PROT_NONE) }, 0);
        Self(start)
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped, zeroed by the kernel, and borrowed for as long as the slice.
        unsafe { std::slice::from_raw_parts_mut(self.0, SPAN) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's.
        unsafe { libc::munmap(self.0.cast(), SPAN + PAGE) };
    }
}

/// The oracle. `None` is a byte that faults.
fn copy(dst: &mut [Option<u8>], src: &[Option<u8>]) -> usize {
    for at in 0..dst.len() {
        let (Some(from), Some(to)) = (src[at], dst[at].as_mut()) else { return dst.len() - at };
        *to = from;
    }
    0
}

fn with_hole(bytes: &[u8], from: usize, len: usize) -> Vec<Option<u8>> {
    (from..from + len).map(|at| bytes.get(at).copied()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn every_routine_is_the_oracle(
        // Short ones are the more interesting, long ones the more rare.
        len in prop_oneof![0..130_usize, 0..1500_usize, 0..=SPAN],
        from in prop_oneof![0..64_usize, SPAN - 1500..=SPAN, 0..=SPAN],
        to in prop_oneof![0..64_usize, SPAN - 1500..=SPAN, 0..=SPAN],
        which in any::<prop::sample::Index>(),
        seed in any::<u64>(),
    ) {
        let handler = Handler::install().unwrap();
        let thread = handler.thread().unwrap();
        let (mut source, mut target) = (Memory::new(), Memory::new());
        let mut state = seed | 1;
        for byte in source.bytes().iter_mut().chain(target.bytes()) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (state >> 56) as u8;
        }
        // No further than into the page that faults.
        let len = len.min(SPAN + PAGE - from).min(SPAN + PAGE - to);
        let mut wanted = with_hole(target.bytes(), to, len);
        let left = copy(&mut wanted, &with_hole(source.bytes(), from, len));
        let (before, after) = (target.bytes()[..to].to_vec(), target.bytes().get(to + len..).map(<[u8]>::to_vec));
        let routines: Vec<Routine> = Routine::all().collect();
        let routine = *which.get(&routines);
        // SAFETY: both ends are in mappings of the test's; the token says that what faults is caught.
        let got = unsafe { thread.try_copy(routine, target.0.wrapping_add(to), source.0.wrapping_add(from), len) };
        prop_assert_eq!(got, left, "{}", routine.name());
        prop_assert!(with_hole(target.bytes(), to, len) == wanted, "{}: wrong bytes", routine.name());
        prop_assert!(target.bytes()[..to] == before[..], "{}: stored before", routine.name());
        prop_assert!(target.bytes().get(to + len..).map(<[u8]>::to_vec) == after, "{}: stored behind", routine.name());
    }
}
