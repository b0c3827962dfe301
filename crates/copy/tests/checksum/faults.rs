//! Memory that ends: a page that may not be touched before and behind, and faults at every offset.

use std::cell::Cell;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use haul_copy::checksum::{Sum, SumRoutine};

use crate::{noise, oracle, routines};

const PAGE: usize = 4096;
const CANARY: u8 = 0xa5;
/// Offsets of the side that does not end.
const OFFSETS: usize = 64;

thread_local! {
    /// Faults of this thread that were fixed up: one too many would not show in what was copied.
    static FAULTS: Cell<u64> = const { Cell::new(0) };
}

/// Pages that may be used, between two that may not.
struct Region {
    start: *mut u8,
    len: usize,
}

impl Region {
    fn new(pages: usize) -> Self {
        let len = pages * PAGE;
        // SAFETY: a new mapping, wherever there is room.
        let whole = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len + 2 * PAGE,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        assert_ne!(whole, libc::MAP_FAILED);
        let start = whole.cast::<u8>().wrapping_add(PAGE);
        // SAFETY: inside of the mapping just made, all pages but the first and the last.
        let done = unsafe { libc::mprotect(start.cast(), len, libc::PROT_READ | libc::PROT_WRITE) };
        assert_eq!(done, 0);
        Self { start, len }
    }

    #[expect(clippy::mut_from_ref, reason = "each test holds one slice of a region at a time")]
    fn bytes(&self) -> &mut [u8] {
        // SAFETY: mapped, and alive as long as the region is.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }

    fn end(&self) -> *mut u8 {
        self.start.wrapping_add(self.len)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: what `new` mapped.
        unsafe { libc::munmap(self.start.wrapping_sub(PAGE).cast(), self.len + 2 * PAGE) };
    }
}

/// Goes on at the fix-up of the instruction that faulted, or dies by the same signal.
extern "C" fn handler(signal: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let context = context.cast::<libc::ucontext_t>();
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel hands a handler with SA_SIGINFO its context.
    let pc = unsafe { (&raw mut (*context).uc_mcontext.gregs[libc::REG_RIP as usize]).cast::<usize>() };
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    let pc = unsafe { (&raw mut (*context).uc_mcontext.pc).cast::<usize>() };
    #[cfg(target_arch = "riscv64")]
    // SAFETY: as above; the first of the general registers is the counter.
    let pc = unsafe { (&raw mut (*context).uc_mcontext.__gregs[0]).cast::<usize>() };
    // SAFETY: it points into the context.
    if let Some(to) = haul_copy::fault::fixup(unsafe { pc.read() }) {
        FAULTS.set(FAULTS.get() + 1);
        // SAFETY: as above; the fix-up is made for this state of the registers.
        unsafe { pc.write(to) };
    } else {
        // SAFETY: async-signal-safe; the instruction faults again and ends the process.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

fn catch_faults() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: all zero is a valid sigaction: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the handler is async-signal-safe and of the kind that the flags say.
        let done = unsafe { libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut()) };
        assert_eq!(done, 0);
    });
}

/// Data, and the sum of its first bytes for every length.
struct Data {
    bytes: Vec<u8>,
    sums: Vec<u16>,
}

impl Data {
    fn new(len: usize) -> Self {
        let bytes = noise(len);
        let sums = (0..=len).map(|len| oracle(&bytes[..len])).collect();
        Self { bytes, sums }
    }

    /// Copies `len` bytes of which only `readable` can be read and `writable` be written.
    fn check(&self, routine: SumRoutine, dst: *mut u8, src: *const u8, len: usize, whole: usize) {
        // SAFETY: the tests pass pointers into their regions, apart from each other; faults are caught.
        let done = unsafe { routine.try_copy(dst, src, len) };
        let what = || format!("{routine:?}, {len} bytes of which {whole} are there, {src:p} to {dst:p}");
        assert_eq!(done.left, len - whole, "{}", what());
        assert_eq!((done.sum.fold(), done.sum.is_odd()), (self.sums[whole], whole % 2 == 1), "{}", what());
        // SAFETY: that many bytes are in the destination's region.
        let copied = unsafe { std::slice::from_raw_parts(dst, whole) };
        assert!(copied == &self.bytes[..whole], "{}: other bytes", what());
    }

    fn check_sum(&self, routine: SumRoutine, src: *const u8, len: usize, whole: usize) {
        // SAFETY: as above.
        let done = unsafe { routine.try_sum(src, len) };
        assert_eq!(done.left, len - whole, "{routine:?}, {len} bytes of which {whole} are there");
        assert_eq!(
            (done.sum.fold(), done.sum.is_odd()),
            (self.sums[whole], whole % 2 == 1),
            "{routine:?}, {len} bytes of which {whole} are there"
        );
    }
}

fn lengths() -> impl Iterator<Item = usize> {
    (0..=512).chain((513..2300).step_by(41)).chain([1023, 1024, 1025, 2047, 2048, 2049, 4000])
}

/// One side lies against the page before or behind it, the other has every offset. Nothing may fault.
#[test]
fn nothing_beside_the_ranges_is_touched() {
    catch_faults();
    let data = Data::new(PAGE);
    let (source, destination) = (Region::new(1), Region::new(2));
    for routine in routines() {
        for len in lengths() {
            for source_at in [0, PAGE - len] {
                source.bytes().fill(0xff);
                source.bytes()[source_at..source_at + len].copy_from_slice(&data.bytes[..len]);
                let src = source.start.wrapping_add(source_at);
                data.check_sum(routine, src, len, len);
                for offset in 0..OFFSETS {
                    data.check(routine, destination.start.wrapping_add(PAGE / 2 + offset), src, len, len);
                }
            }
            for destination_at in [0, 2 * PAGE - len] {
                let dst = destination.start.wrapping_add(destination_at);
                for offset in 0..OFFSETS.min(PAGE - len) {
                    source.bytes()[offset..offset + len].copy_from_slice(&data.bytes[..len]);
                    data.check(routine, dst, source.start.wrapping_add(offset), len, len);
                }
            }
        }
        assert_eq!(FAULTS.get(), 0, "{routine:?}");
    }
}

/// How many bytes there are of how many wanted: every number up to where all blocks and tails were met.
fn ends() -> impl Iterator<Item = (usize, usize)> {
    let every = (0..600).flat_map(|whole| [(whole, whole + 1), (whole, whole + 100), (whole, 1500)]);
    every.chain((600..1500).step_by(37).flat_map(|whole| [(whole, whole + 1), (whole, 2100)]))
}

#[test]
fn a_source_that_ends_anywhere_leaves_an_exact_prefix_and_its_sum() {
    catch_faults();
    let data = Data::new(2200);
    let (source, destination) = (Region::new(1), Region::new(1));
    for (whole, len) in ends() {
        let src = source.end().wrapping_sub(whole);
        source.bytes()[PAGE - whole..].copy_from_slice(&data.bytes[..whole]);
        for routine in routines() {
            data.check_sum(routine, src, len, whole);
            for offset in (0..OFFSETS).step_by(if len - whole == 1 { 1 } else { 5 }) {
                destination.bytes().fill(CANARY);
                data.check(routine, destination.start.wrapping_add(offset), src, len, whole);
                let beside = &destination.bytes()[offset + whole..];
                assert!(
                    beside.iter().all(|byte| *byte == CANARY),
                    "{routine:?} wrote beyond {whole} of {len}"
                );
            }
        }
    }
    assert!(FAULTS.get() > 0);
}

#[test]
fn a_destination_that_ends_anywhere_has_an_exact_prefix_and_its_sum() {
    catch_faults();
    let data = Data::new(2200);
    let (source, destination) = (Region::new(1), Region::new(1));
    for (whole, len) in ends() {
        let dst = destination.end().wrapping_sub(whole);
        for offset in (0..OFFSETS).step_by(if len - whole == 1 { 1 } else { 5 }) {
            source.bytes()[offset..offset + len].copy_from_slice(&data.bytes[..len]);
            for routine in routines() {
                destination.bytes()[PAGE - whole..].fill(CANARY);
                data.check(routine, dst, source.start.wrapping_add(offset), len, whole);
            }
        }
    }
}

/// Where lines are fetched ahead, and the loop that ends that.
#[test]
fn long_copies_leave_exact_prefixes_too() {
    catch_faults();
    let data = Data::new(16 * PAGE);
    let (source, destination) = (Region::new(16), Region::new(16));
    for whole in (33_000..50_000).step_by(509).chain([32_768, 33_024, 65_536]) {
        for len in [whole + 1, whole + 300, whole + 5_000] {
            for offset in [0, 1, 8, 63].into_iter().filter(|offset| offset + len <= source.len) {
                let (src, dst) = (source.end().wrapping_sub(whole), destination.start.wrapping_add(offset));
                source.bytes()[source.len - whole..].copy_from_slice(&data.bytes[..whole]);
                for routine in routines() {
                    data.check_sum(routine, src, len, whole);
                    destination.bytes().fill(CANARY);
                    data.check(routine, dst, src, len, whole);
                    let beside = &destination.bytes()[offset + whole..];
                    assert!(beside.iter().all(|byte| *byte == CANARY), "{routine:?} beyond {whole} of {len}");
                }
                let (src, dst) = (source.start.wrapping_add(offset), destination.end().wrapping_sub(whole));
                source.bytes()[offset..offset + len].copy_from_slice(&data.bytes[..len]);
                for routine in routines() {
                    data.check(routine, dst, src, len, whole);
                }
            }
        }
    }
}

#[test]
fn whichever_side_ends_first_counts() {
    catch_faults();
    let data = Data::new(2200);
    let (source, destination) = (Region::new(1), Region::new(1));
    for readable in (0..700).step_by(13) {
        for writable in (0..700).step_by(17) {
            let (src, dst) = (source.end().wrapping_sub(readable), destination.end().wrapping_sub(writable));
            source.bytes()[PAGE - readable..].copy_from_slice(&data.bytes[..readable]);
            for routine in routines() {
                data.check(routine, dst, src, 2000, readable.min(writable));
            }
        }
    }
}

/// The kernel's contract for a null pointer and for nothing.
#[test]
fn nothing_is_copied_from_nowhere() {
    catch_faults();
    let mut bytes = [CANARY; 8];
    for routine in routines() {
        // SAFETY: the fault is caught.
        let done = unsafe { routine.try_copy(bytes.as_mut_ptr(), std::ptr::null(), 8) };
        assert_eq!((done.left, done.sum), (8, Sum::EMPTY), "{routine:?}");
        assert_eq!(bytes, [CANARY; 8]);
        // SAFETY: nothing is touched.
        let done = unsafe { routine.try_copy(std::ptr::null_mut(), std::ptr::null(), 0) };
        assert_eq!((done.left, done.sum), (0, Sum::EMPTY), "{routine:?}");
        // SAFETY: nothing is touched.
        let done = unsafe { routine.try_sum(std::ptr::null(), 0) };
        assert_eq!((done.left, done.sum), (0, Sum::EMPTY), "{routine:?}");
    }
}

/// Longer than one call of a routine may be: cut into pieces, with the fault in the second.
#[test]
fn a_sum_longer_than_a_piece_is_put_together() {
    const PIECE: usize = 32 << 20;
    catch_faults();
    let pages = PIECE / PAGE + 2;
    let region = Region::new(pages);
    // SAFETY: the region's own pages; only advice. One zero page stands for those that are never written.
    unsafe { libc::madvise(region.start.cast(), region.len, libc::MADV_HUGEPAGE) };
    let bytes = region.bytes();
    let places = [5, PIECE - 1, PIECE, PIECE + 1, PIECE + PAGE];
    for (place, byte) in places.into_iter().zip(1_u8..) {
        bytes[place] = byte * 0x21;
    }
    // 0x21 and 0x42 at odd offsets, 0x63 at an even one, 0x84 at an odd one, 0xa5 at an even one.
    let sum = oracle(&[0x63, 0x21, 0xa5, 0x42, 0, 0x84]);
    // SAFETY: 100 bytes behind the region are asked for, too; the fault is caught.
    let done = unsafe { SumRoutine::auto_sum(region.len).try_sum(region.start, region.len + 100) };
    assert_eq!((done.left, done.sum.fold()), (100, sum));
}

/// Tells another thread to stop, also where an assertion fails: the scope waits for it.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The sum is of what arrived, whatever somebody else does to the source.
#[test]
fn the_sum_is_of_what_was_stored() {
    const LEN: usize = 1500;
    let source: Vec<AtomicU8> = (0..LEN + 3).map(|_| AtomicU8::new(0)).collect();
    let stop = AtomicBool::new(false);
    let changed = std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| {
            for round in 0_usize.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                for (at, byte) in source.iter().enumerate() {
                    byte.store((round * 7 + at).to_le_bytes()[0], Ordering::Relaxed);
                }
            }
        });
        let mut changed = 0;
        let mut destination = [0; LEN];
        let mut last = 0;
        for routine in routines() {
            for turn in 0..20_000 {
                let src = source[turn % 3..].as_ptr().cast();
                // SAFETY: both have that many bytes; the routines load each byte of the source once, by assembly.
                let done = unsafe { routine.try_copy(destination.as_mut_ptr(), src, LEN) };
                assert_eq!(done.sum.fold(), oracle(&destination), "{routine:?}");
                changed += usize::from(done.sum.fold() != last);
                last = done.sum.fold();
            }
        }
        changed
    });
    assert!(changed > 10, "the source never changed");
}
