//! What this CPU has. There is no instruction to ask: it is compiled in, or Linux says (feature `signal`).
//!
//! | | compiled in | Linux ≥ 6.4 | older, and QEMU before 8.2 |
//! | --- | --- | --- | --- |
//! | vectors | target feature `v` | `riscv_hwprobe`: `IMA_EXT_0` bit 2 | `AT_HWCAP` bit 21 |
//! | misaligned loads | `unaligned-scalar-mem` | all Linux: the kernel promises them to programs | the same |
//! | fast ones | the same | `MISALIGNED_SCALAR_PERF`, else `CPUPERF_0` | not assumed |
//!
//! Kernel documents: `arch/riscv/hwprobe.rst`, `uabi.rst` ("Misaligned accesses"), `vector.rst`. On cores of
//! before the vector extension was ratified, vendors' kernels set its bit in `AT_HWCAP` too; those that know
//! `riscv_hwprobe` do not, which is why it is asked first.

use core::sync::atomic::{AtomicU32, Ordering};

const KNOWN: u32 = 1 << 31;
const VECTORS: u32 = 1 << 0;
const MISALIGNED: u32 = 1 << 1;
const FAST_MISALIGNED: u32 = 1 << 2;

/// Asked once: three system calls.
static FEATURES: AtomicU32 = AtomicU32::new(0);

fn features() -> u32 {
    // Relaxed: the value is all there is to it, and whoever finds none computes the same.
    let features = FEATURES.load(Ordering::Relaxed);
    if features != 0 {
        return features;
    }
    let features = compiled_in() | ask() | KNOWN;
    FEATURES.store(features, Ordering::Relaxed);
    features
}

/// RVV 1.0, and registers that are saved on a context switch.
pub(super) fn vectors() -> bool {
    features() & VECTORS != 0
}

/// A misaligned load of a word does not kill; it may be very slow.
pub(super) fn misaligned_loads() -> bool {
    features() & MISALIGNED != 0
}

/// A misaligned load of a word is faster than its bytes one by one.
pub(super) fn fast_misaligned_loads() -> bool {
    features() & FAST_MISALIGNED != 0
}

const fn compiled_in() -> u32 {
    let vectors = if cfg!(target_feature = "v") { VECTORS } else { 0 };
    let misaligned =
        if cfg!(target_feature = "unaligned-scalar-mem") { MISALIGNED | FAST_MISALIGNED } else { 0 };
    vectors | misaligned
}

#[cfg(not(all(target_os = "linux", feature = "signal")))]
const fn ask() -> u32 {
    0
}

#[cfg(all(target_os = "linux", feature = "signal"))]
fn ask() -> u32 {
    // A call that an older kernel hasn't got says so there; whoever only asked what there is would not expect
    // that. SAFETY: it is this thread's own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: always readable.
    let kept = unsafe { errno.read() };
    let features = linux::vectors() | linux::misaligned();
    // SAFETY: always writable.
    unsafe { errno.write(kept) };
    features
}

#[cfg(all(target_os = "linux", feature = "signal"))]
mod linux {
    use super::{FAST_MISALIGNED, MISALIGNED, VECTORS};

    /// `struct riscv_hwprobe`.
    #[repr(C)]
    struct Pair {
        key: i64,
        value: u64,
    }

    /// The value of `key` on all CPUs, if the kernel knows the call and the key.
    fn hwprobe(key: i64) -> Option<u64> {
        // Not in `libc` for every C library.
        const SYS_RISCV_HWPROBE: libc::c_long = 258;
        let mut pair = Pair { key, value: 0 };
        // SAFETY: one pair, which lives across the call; no CPU set; no flags.
        let answer =
            unsafe { libc::syscall(SYS_RISCV_HWPROBE, &raw mut pair, 1_usize, 0_usize, 0_usize, 0_u32) };
        // An unknown key comes back as −1.
        (answer == 0 && pair.key == key).then_some(pair.value)
    }

    pub(super) fn vectors() -> u32 {
        const IMA_EXT_0: i64 = 4;
        const IMA_V: u64 = 1 << 2;
        const HWCAP_V: u64 = 1 << (b'V' - b'A');
        // SAFETY: reads the vector the process was started with.
        let hwcap = || unsafe { libc::getauxval(libc::AT_HWCAP) };
        let has = hwprobe(IMA_EXT_0).map_or_else(|| hwcap() & HWCAP_V != 0, |found| found & IMA_V != 0);
        if has && !switched_off() { VECTORS } else { 0 }
    }

    /// The unit is there, but this thread may not use it (`prctl`, or the sysctl
    /// `abi.riscv_v_default_allow`).
    fn switched_off() -> bool {
        const PR_RISCV_V_GET_CONTROL: libc::c_int = 70;
        const CURRENT: libc::c_int = 3;
        const OFF: libc::c_int = 1;
        // SAFETY: takes no argument; a kernel without it, which says −1, has no such switch.
        let state = unsafe { libc::prctl(PR_RISCV_V_GET_CONTROL) };
        state >= 0 && state & CURRENT == OFF
    }

    pub(super) fn misaligned() -> u32 {
        const CPUPERF_0: i64 = 5;
        const MISALIGNED_SCALAR_PERF: i64 = 9;
        const MASK: u64 = 7;
        const FAST: u64 = 3;
        let speed = hwprobe(MISALIGNED_SCALAR_PERF).or_else(|| hwprobe(CPUPERF_0));
        if speed.is_some_and(|speed| speed & MASK == FAST) {
            MISALIGNED | FAST_MISALIGNED
        } else {
            MISALIGNED
        }
    }
}
