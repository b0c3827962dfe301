//! What this CPU has, by `cpuid` and `xgetbv`: the same in a kernel, without an operating system, and in a process.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count};
use core::sync::atomic::{AtomicU32, Ordering};

/// The answers are in; bit 31 is never a feature.
const KNOWN: u32 = 1 << 31;
const AVX2: u32 = 1 << 0;
const AVX512: u32 = 1 << 1;
const AVX512_VNNI: u32 = 1 << 2;

/// `cpuid` is a trap into the hypervisor of a virtual machine, some 20 µs, so it is asked once.
static FEATURES: AtomicU32 = AtomicU32::new(0);

fn features() -> u32 {
    // Relaxed: the value is all there is to it, and whoever finds none computes the same.
    let features = FEATURES.load(Ordering::Relaxed);
    if features != 0 {
        return features;
    }
    let features = ask() | KNOWN;
    FEATURES.store(features, Ordering::Relaxed);
    features
}

/// AVX2 and 256-bit registers that are saved on a context switch.
pub(crate) fn avx2() -> bool {
    features() & AVX2 != 0
}

/// AVX-512 F, VL and BW, and 512-bit registers that are saved on a context switch.
pub(crate) fn avx512() -> bool {
    features() & AVX512 != 0
}

/// Dot products of bytes in those registers.
pub(crate) fn avx512_vnni() -> bool {
    features() & AVX512_VNNI != 0
}

/// Intel SDM vol. 2, `CPUID`; vol. 1, 14.3 and 15.2 (what the system has to have switched on).
fn ask() -> u32 {
    const OSXSAVE: u32 = 1 << 27;
    const YMM: u64 = 0x6;
    const ZMM: u64 = 0xe6;
    let bit = |register: u32, bit: u32| register >> bit & 1 != 0;

    if __cpuid(0).eax < 7 {
        return 0;
    }
    let state = if __cpuid(1).ecx & OSXSAVE != 0 { xcr0() } else { 0 };
    let leaf = __cpuid_count(7, 0);
    let mut found = 0;
    if state & YMM == YMM && bit(leaf.ebx, 5) {
        found |= AVX2;
    }
    if state & ZMM == ZMM && bit(leaf.ebx, 16) && bit(leaf.ebx, 30) && bit(leaf.ebx, 31) {
        found |= AVX512;
        if bit(leaf.ecx, 11) {
            found |= AVX512_VNNI;
        }
    }
    found
}

/// Which register states the system saves. Only to be asked where `cpuid` says OSXSAVE.
fn xcr0() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: OSXSAVE was checked by the one caller, so the instruction is there; it changes nothing.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}
