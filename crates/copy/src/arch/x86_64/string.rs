//! Copies by the string instructions: `rep movsb`, `rep movsq` and a tail.
//!
//! ```text
//! rep-movsb:  rcx = len; rep movsb; return rcx
//! ```
//!
//! The instruction keeps its own progress in `rdi`, `rsi` and `rcx`, also when it faults (Intel SDM vol. 2, `REP`), so that
//! the fix-up of `rep movsb` is its ordinary end.

use core::arch::naked_asm;

use crate::fault::guarded;
use crate::routine::{Entry, Isa, Overlap};

pub(crate) const REP_MOVSB: Entry = Entry {
    name: "rep-movsb",
    isa: Isa::X86_64,
    summary: "one string instruction; fast where the CPU has FSRM or ERMS",
    needs: "",
    overlap: Overlap::Forward,
    available: || true,
    run: rep_movsb,
};

#[unsafe(naked)]
unsafe extern "sysv64" fn rep_movsb(dst: *mut u8, src: *const u8, len: usize) -> usize {
    naked_asm!(
        "mov rcx, rdx",
        "2: rep movsb",
        "3: mov rax, rcx",
        "ret",
        guarded!("2b", "3b", "3b"),
    )
}
