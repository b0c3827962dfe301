//! The vector extension (RVV 1.0): as many bytes as eight registers hold, a length the core chooses.
//!
//! ```text
//! rvv   if len == 0: return 0
//!       *dst = *src
//!       while len > 0: n = vsetvl(len); v0..v7 = src[..n]; dst[..n] = v0..v7; dst += n; src += n; len -= n
//! ```
//!
//! Departures:
//!
//! 1. The first byte is copied alone, and then again with its vector. A vector store that faults may have
//!    written elements *after* the one it reports (RVV 1.0, "Precise vector traps": whatever a restart would
//!    put right). A store over two pages, of which the first faults, could so write the second. It cannot
//!    begin in a page that faults: the first one is proved by that byte, and a later one begins either where
//!    the store before it ended, or at the start of a page, from where it does not reach the next (eight
//!    registers hold a page at most up to VLEN = 4096).
//! 2. `vstart` tells how many elements a faulting load or store got done. It is not used: the registers are
//!    at the head of the round, from where the byte loop finds the same place. It must be zero again for the
//!    code that follows.

use core::arch::naked_asm;

use super::scalar::lb;
use crate::fault::guarded;

/// Vectors of bytes, eight registers at a time.
///
/// # Safety
///
/// As [`crate::Routine::try_copy`], on a CPU with the vector extension, which the entry's `available` asks.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn rvv(dst: *mut u8, src: *const u8, len: usize) -> usize {
    naked_asm!(
        "
            .option push
            .option arch, +v
            beqz a2, 3f
        2:  lb   t0, 0(a1)
            sb   t0, 0(a0)
        21: vsetvli t0, a2, e8, m8, ta, ma
            vle8.v v0, (a1)
            vse8.v v0, (a0)
            sub  a2, a2, t0
            add  a1, a1, t0
            add  a0, a0, t0
            bnez a2, 21b
        3:  li   a0, 0
            ret
        4:  csrwi vstart, 0
            tail {lb}
            .option pop
        ",
        guarded!("2b", "3b", "4b"),
        lb = sym lb,
    )
}
