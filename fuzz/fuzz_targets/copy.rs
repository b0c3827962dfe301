//! All copy routines, on the same memory: each copies what a loop over bytes does, reports the same, and stores
//! nowhere else.
//!
//! The input says length, offsets, and where either end's memory ends.
#![no_main]

use std::ptr::null_mut;
use std::sync::OnceLock;

use haul_copy::{Handler, Routine};
use libfuzzer_sys::fuzz_target;

const PAGE: usize = 4096;
const SPAN: usize = 4 * PAGE;
const BACKGROUND: u8 = 0xee;

/// Memory whose last page faults.
struct Memory(usize);

impl Memory {
    fn new() -> Self {
        let (flags, both) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a null hint lets the kernel choose an address that nothing else uses.
        let start = unsafe { libc::mmap(null_mut(), SPAN + PAGE, both, flags, -1, 0) }.cast::<u8>();
        // SAFETY: the last page of the mapping just made.
        assert_eq!(unsafe { libc::mprotect(start.add(SPAN).cast(), PAGE, libc::PROT_NONE) }, 0);
        Self(start.expose_provenance())
    }

    fn start(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.0)
    }

    #[expect(
        clippy::mut_from_ref,
        reason = "a fuzzer has one thread, and drops the slice before the next call"
    )]
    fn bytes(&self) -> &mut [u8] {
        // SAFETY: mapped and initialised by the kernel.
        unsafe { std::slice::from_raw_parts_mut(self.start(), SPAN) }
    }
}

fuzz_target!(|input: (u16, u16, u16, u64)| {
    static MEMORY: OnceLock<(Handler, Memory, Memory)> = OnceLock::new();
    let (handler, source, target) =
        MEMORY.get_or_init(|| (Handler::install().unwrap(), Memory::new(), Memory::new()));
    let thread = handler.thread().unwrap();
    let (len, from, to, seed) = input;
    let (from, to) = (usize::from(from) % (SPAN + 1), usize::from(to) % (SPAN + 1));
    let len = usize::from(len).min(SPAN + PAGE - from.max(to));
    let mut state = seed | 1;
    for byte in source.bytes().iter_mut() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *byte = (state >> 56) as u8;
    }
    let copied = len.min(SPAN - from).min(SPAN - to);
    for routine in Routine::all() {
        target.bytes().fill(BACKGROUND);
        // SAFETY: both ends are in the mappings, and faults are caught.
        let left = unsafe { thread.try_copy(routine, target.start().add(to), source.start().add(from), len) };
        assert_eq!(left, len - copied, "{}", routine.name());
        let (bytes, name) = (target.bytes(), routine.name());
        assert!(bytes[to..to + copied] == source.bytes()[from..from + copied], "{name}: wrong bytes");
        let outside = bytes[..to].iter().chain(&bytes[to + copied..]);
        assert!(outside.copied().all(|byte| byte == BACKGROUND), "{name}: stored outside");
    }
});
