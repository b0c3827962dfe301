//! A routine as a value: its name, what it needs, and the proof that it may run here.

use core::fmt;

/// The instruction set a routine is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Isa {
    /// Rust without assembly but for its loads and stores.
    Portable,
    /// x86-64.
    X86_64,
    /// `AArch64`.
    Aarch64,
    /// riscv64.
    Riscv64,
}

/// `(dst, src, len)` to the number of bytes not copied.
#[cfg(target_arch = "x86_64")]
pub(crate) type Run = unsafe extern "sysv64" fn(*mut u8, *const u8, usize) -> usize;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) type Run = unsafe extern "C" fn(*mut u8, *const u8, usize) -> usize;

/// A line of the table that an instruction set's module keeps.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) isa: Isa,
    pub(crate) summary: &'static str,
    pub(crate) available: fn() -> bool,
    pub(crate) run: Run,
}

/// A copy routine that may run on this CPU: holding one is the proof.
#[derive(Clone, Copy)]
pub struct Routine(&'static Entry);

impl Routine {
    /// The routine of this name, if there is one for this instruction set and the CPU has what it needs.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::all().find(|routine| routine.name() == name)
    }

    /// Every routine that may run here.
    pub fn all() -> impl Iterator<Item = Self> {
        crate::arch::x86_64::ROUTINES.iter().filter(|entry| (entry.available)()).map(Self)
    }

    /// What [`Routine::by_name`] takes.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// The instruction set.
    #[must_use]
    pub fn isa(self) -> Isa {
        self.0.isa
    }

    /// What it does and when it is good, in a line.
    #[must_use]
    pub fn summary(self) -> &'static str {
        self.0.summary
    }

    /// Copies `len` bytes and returns how many at the end were *not* copied: 0, or what is left from the byte that faulted.
    ///
    /// Bytes of the destination from there on are as they were.
    ///
    /// # Safety
    ///
    /// - `dst..dst + len` and `src..src + len` do not overlap, and no Rust reference to them is violated by the copy.
    /// - What of them is not mapped faults; something must consult [`crate::fault::fixup`] then, or the process dies.
    #[inline]
    pub unsafe fn try_copy(self, dst: *mut u8, src: *const u8, len: usize) -> usize {
        // SAFETY: the value proves that the CPU has the instructions; the rest is the caller's.
        unsafe { (self.0.run)(dst, src, len) }
    }
}

impl fmt::Debug for Routine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Routine({})", self.name())
    }
}
