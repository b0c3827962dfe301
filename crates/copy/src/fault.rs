//! The exception table: which instructions may fault, and where to go on when they do.
//!
//! ```text
//!  a routine                     haul_copy_ex            whoever sees the fault (a signal handler, a kernel)
//!  2: rep movsb        ──▶  { from 2, to 3, fix 4 }  ◀──  fixup(pc) = Some(4) → set pc = 4, return
//!  3: …
//!  4: mov rax, rcx; ret     bytes not copied
//! ```
//!
//! Each entry is three 32-bit distances from the word that holds them, as the Linux kernel does it
//! (`Documentation/arch/x86/exception-tables.rst`): no relocation at load time, and a range rather than one
//! instruction, so that an unrolled loop is one entry. Entries are emitted beside the instructions they are about,
//! with [`guarded!`], into a section whose bounds the linker names; nothing has to be registered, and nothing can be
//! forgotten.
//!
//! What every routine promises where it may fault: its destination, source and length registers are at the last point
//! up to which all is copied, and the fix-up goes on from there byte by byte, until a byte faults.

/// An entry of the exception table: `from..to` may fault; go on at `fix`. Takes labels of the surrounding assembly,
/// or a symbol operand such as `"{tail}"`.
#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"),
    any(target_os = "linux", target_os = "none"),
    not(miri)
))]
macro_rules! guarded {
    ($from:literal, $to:literal, $fix:literal) => {
        concat!(
            ".pushsection haul_copy_ex,\"aR\",@progbits\n",
            ".balign 4\n",
            ".long ",
            $from,
            " - .\n",
            ".long ",
            $to,
            " - .\n",
            ".long ",
            $fix,
            " - .\n",
            ".popsection"
        )
    };
}
#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"),
    any(target_os = "linux", target_os = "none"),
    not(miri)
))]
pub(crate) use guarded;

/// Where to go on after a fault at the instruction `pc`, if it is one of a routine's. Async-signal-safe.
///
/// Always `None` under Miri and where there is no assembly (see the module `arch`): a fault there ends the process.
#[must_use]
pub fn fixup(pc: usize) -> Option<usize> {
    table::fixup(pc)
}

#[cfg(not(all(
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"),
    any(target_os = "linux", target_os = "none"),
    not(miri)
)))]
mod table {
    pub(super) fn fixup(_pc: usize) -> Option<usize> {
        None
    }
}

#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"),
    any(target_os = "linux", target_os = "none"),
    not(miri)
))]
mod table {
    #[repr(C)]
    struct Entry {
        from: i32,
        to: i32,
        fix: i32,
    }

    // Names that the linker makes for a section whose name is a C identifier (System V gABI, "__start_" and "__stop_").
    unsafe extern "C" {
        #[link_name = "__start_haul_copy_ex"]
        static START: Entry;
        #[link_name = "__stop_haul_copy_ex"]
        static STOP: Entry;
    }

    fn entries() -> &'static [Entry] {
        let start = &raw const START;
        let count = (&raw const STOP as usize - start as usize) / size_of::<Entry>();
        // SAFETY: the linker put the section's entries, and nothing else, between the two symbols; it is read-only.
        unsafe { core::slice::from_raw_parts(start, count) }
    }

    fn target(word: &i32) -> usize {
        core::ptr::from_ref(word).addr().wrapping_add_signed(*word as isize)
    }

    pub(super) fn fixup(pc: usize) -> Option<usize> {
        entries()
            .iter()
            .find(|entry| (target(&entry.from)..target(&entry.to)).contains(&pc))
            .map(|entry| target(&entry.fix))
    }
}
