//! What this CPU has. Its identification registers are the kernel's to read: it is compiled in, or Linux says
//! (feature `signal`) in `AT_HWCAP2` (kernel document `arch/arm64/elf_hwcaps.rst`).

use core::sync::atomic::{AtomicU32, Ordering};

const KNOWN: u32 = 1 << 31;
const MOPS: u32 = 1 << 0;

/// Asked once.
static FEATURES: AtomicU32 = AtomicU32::new(0);

fn features() -> u32 {
    // Relaxed: the value is all there is to it, and whoever finds none computes the same.
    let features = FEATURES.load(Ordering::Relaxed);
    if features != 0 {
        return features;
    }
    let features = if cfg!(target_feature = "mops") { MOPS } else { 0 } | ask() | KNOWN;
    FEATURES.store(features, Ordering::Relaxed);
    features
}

/// The memory-copy instructions, which the kernel must have switched on and help across kinds of cores (Linux
/// ≥ 6.5).
pub(super) fn mops() -> bool {
    features() & MOPS != 0
}

/// SIMD registers: all of Armv8-A, but code for kernels is compiled without.
pub(super) const fn neon() -> bool {
    cfg!(target_feature = "neon")
}

#[cfg(not(all(target_os = "linux", feature = "signal")))]
const fn ask() -> u32 {
    0
}

#[cfg(all(target_os = "linux", feature = "signal"))]
fn ask() -> u32 {
    const HWCAP2_MOPS: u64 = 1 << 43;
    // SAFETY: reads the vector the process was started with.
    if unsafe { libc::getauxval(libc::AT_HWCAP2) } & HWCAP2_MOPS != 0 { MOPS } else { 0 }
}
