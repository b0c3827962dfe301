//! A routine as a value: its name, what it needs, and the proof that it may run here.

use crate::arch::{self, portable};

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

/// What a routine promises where source and destination share bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overlap {
    /// Nothing: they have to be apart. It loads bytes again after it stored others, at once or where something faults, or
    /// works from both ends.
    Apart,
    /// A destination that begins at or before the source may share bytes with it, as in `memmove` downwards,
    /// also where something faults: what is stored is never loaded again.
    Forward,
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
    /// What it does and when it is good, in a line.
    pub(crate) summary: &'static str,
    /// CPU features by their names in `/proc/cpuinfo` (x86) or in the architecture's manual, apart by blanks.
    pub(crate) needs: &'static str,
    pub(crate) overlap: Overlap,
    pub(crate) available: fn() -> bool,
    pub(crate) run: Run,
}

/// What a routine, known or proved, says about itself. They are one if they have one name: a table has no name twice.
macro_rules! described {
    ($type:ident, $by_name:literal) => {
        impl $type {
            #[doc = concat!("What [`", $by_name, "`] takes.")]
            #[must_use]
            pub fn name(self) -> &'static str {
                self.0.name
            }

            /// The instruction set.
            #[must_use]
            pub fn isa(self) -> $crate::Isa {
                self.0.isa
            }

            /// What it does and when it is good, in a line.
            #[must_use]
            pub fn summary(self) -> &'static str {
                self.0.summary
            }

            /// The CPU features it needs beyond the instruction set's base, apart by blanks; empty for none.
            #[must_use]
            pub fn needs(self) -> &'static str {
                self.0.needs
            }
        }

        impl PartialEq for $type {
            fn eq(&self, other: &Self) -> bool {
                self.name() == other.name()
            }
        }

        impl Eq for $type {}

        impl core::fmt::Debug for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, concat!(stringify!($type), "({})"), self.name())
            }
        }
    };
}
pub(crate) use described;

described!(Known, "Routine::by_name");
described!(Routine, "Routine::by_name");

/// A routine of this instruction set, whether or not this CPU can run it.
#[derive(Clone, Copy)]
pub struct Known(&'static Entry);

/// Every routine there is for this instruction set: the portable ones first, those that choose by themselves last.
pub fn known() -> impl Iterator<Item = Known> {
    portable::ROUTINES.iter().chain(arch::machine::ROUTINES).map(Known)
}

impl Known {
    /// What it promises where source and destination share bytes.
    #[must_use]
    pub fn overlap(self) -> Overlap {
        self.0.overlap
    }

    /// The proof that it may run here, if this CPU (and the kernel, which keeps the registers) has what it needs.
    #[must_use]
    pub fn routine(self) -> Option<Routine> {
        (self.0.available)().then_some(Routine(self.0))
    }

    /// The same, on the caller's word: for programs without an operating system to ask.
    ///
    /// # Safety
    ///
    /// - This CPU, and every CPU the value is used on, has what [`Known::needs`] says, switched on and saved across
    ///   whatever switches contexts here.
    #[must_use]
    pub unsafe fn routine_unchecked(self) -> Routine {
        Routine(self.0)
    }
}

/// A copy routine that may run on this CPU: holding one is the proof.
#[derive(Clone, Copy)]
pub struct Routine(&'static Entry);

impl Routine {
    /// The routine of this name, if there is one for this instruction set and the CPU has what it needs.
    ///
    /// `"auto"` is [`Routine::best`], which has a longer name of its own.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        if name == "auto" {
            return Some(Self::best());
        }
        known().find(|known| known.name() == name)?.routine()
    }

    /// Every routine that may run here, in the order of [`known`].
    pub fn all() -> impl Iterator<Item = Self> {
        known().filter_map(Known::routine)
    }

    /// The routine that chooses for every copy by itself, for this CPU: what to take where nothing else is known.
    #[must_use]
    pub fn best() -> Self {
        Self(arch::machine::best())
    }

    /// The routine that [`Routine::best`] would work like for a copy of `len` bytes between these addresses.
    ///
    /// Nothing is read or written there. For a loop of many equal copies, and for those who want to name what runs.
    #[must_use]
    pub fn auto(len: usize, src: *const u8, dst: *const u8) -> Self {
        Self(arch::machine::select(len, src.addr(), dst.addr()))
    }

    /// What it promises where source and destination share bytes.
    #[must_use]
    pub fn overlap(self) -> Overlap {
        self.0.overlap
    }

    /// Where its code begins: for disassemblers, and to tell what a sample of the program counter belongs to.
    #[must_use]
    pub fn address(self) -> *const () {
        self.0.run as *const ()
    }

    /// Copies `len` bytes.
    ///
    /// The same code as [`Routine::try_copy`]; what is left is 0 where nothing can fault.
    ///
    /// # Safety
    ///
    /// - `src` is valid for reads and `dst` for writes of `len` bytes.
    /// - They do not overlap, or only as [`Routine::overlap`] allows.
    #[inline]
    pub unsafe fn copy(self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the value proves that the CPU has the instructions; the rest is the caller's.
        let left = unsafe { (self.0.run)(dst, src, len) };
        debug_assert_eq!(left, 0, "{}: memory that was said to be valid faulted", self.name());
    }

    /// Copies `src` to `dst`.
    ///
    /// # Panics
    ///
    /// If the lengths differ; and if memory of the slices faulted (a mapped file was cut short) and the fault was caught: use
    /// [`Routine::try_copy`] where that may be.
    #[inline]
    pub fn copy_slice(self, dst: &mut [u8], src: &[u8]) {
        assert!(dst.len() == src.len(), "a copy from {} bytes to {}", src.len(), dst.len());
        // SAFETY: both are slices of that length, and one of them is exclusive, so that they do not overlap.
        let left = unsafe { self.try_copy(dst.as_mut_ptr(), src.as_ptr(), src.len()) };
        assert!(left == 0, "the memory of a slice to copy faulted: copy what may fault with try_copy");
    }

    /// Copies `src` to `dst` again and again, `times` times, for those who measure it: the compiler knows neither addresses nor
    /// length, so that it can neither leave a copy out nor make a special one.
    ///
    /// # Panics
    ///
    /// As [`Routine::copy_slice`].
    pub fn repeat(self, dst: &mut [u8], src: &[u8], times: u64) {
        assert!(dst.len() == src.len(), "a copy from {} bytes to {}", src.len(), dst.len());
        let (to, from, len) = (dst.as_mut_ptr(), src.as_ptr(), src.len());
        let mut left = 0;
        for _ in 0..times {
            // SAFETY: both are slices of that length, and one of them is exclusive, so that they do not overlap.
            left |= unsafe { self.try_copy(opaque(to), opaque(from), opaque(len)) };
        }
        assert!(left == 0, "the memory of a slice to copy faulted: copy what may fault with try_copy");
    }

    /// Moves `len` bytes of `buffer` from `from` to `to`, again and again, `times` times, as [`Routine::repeat`]. False, and
    /// nothing is moved, where the two places share bytes in a way that [`Routine::overlap`] does not allow.
    ///
    /// # Panics
    ///
    /// If the places are not in the buffer, and as [`Routine::copy_slice`].
    #[must_use]
    pub fn repeat_within(self, buffer: &mut [u8], from: usize, to: usize, len: usize, times: u64) -> bool {
        let inside = |at: usize| buffer.len().checked_sub(at).is_some_and(|rest| len <= rest);
        assert!(inside(from) && inside(to), "{len} bytes from {from} to {to} of {}", buffer.len());
        let apart = from.abs_diff(to) >= len;
        if !apart && (self.overlap() == Overlap::Apart || to > from) {
            return false;
        }
        let start = buffer.as_mut_ptr();
        let (src, dst) = (start.wrapping_add(from).cast_const(), start.wrapping_add(to));
        let mut left = 0;
        for _ in 0..times {
            // SAFETY: both are in the buffer, which is exclusive, and overlap only as the routine allows.
            left |= unsafe { self.try_copy(opaque(dst), opaque(src), opaque(len)) };
        }
        assert!(left == 0, "the memory of a slice to copy faulted: copy what may fault with try_copy");
        true
    }

    /// Copies `len` bytes and returns how many at the end were *not* copied: 0, or what is left from the byte that
    /// faulted.
    ///
    /// Bytes of the destination from there on are as they were.
    ///
    /// # Safety
    ///
    /// - `dst..dst + len` and `src..src + len` do not overlap, or only as [`Routine::overlap`] allows, and no Rust
    ///   reference to them is violated by the copy.
    /// - What of them is not mapped faults; something must consult [`crate::fault::fixup`] then, or the process dies.
    #[inline]
    pub unsafe fn try_copy(self, dst: *mut u8, src: *const u8, len: usize) -> usize {
        // SAFETY: the value proves that the CPU has the instructions; the rest is the caller's.
        unsafe { (self.0.run)(dst, src, len) }
    }

    /// Fills `dst` from `src`, with zeros from the byte that faulted on, and returns how many those are.
    ///
    /// The form for memory that is going to be shown to somebody: nothing of what was there before is left.
    ///
    /// # Safety
    ///
    /// - `dst.len()` bytes at `src` do not overlap `dst`.
    /// - What of them is not mapped faults; something must consult [`crate::fault::fixup`] then, or the process dies.
    #[inline]
    pub unsafe fn try_copy_in(self, dst: &mut [u8], src: *const u8) -> usize {
        // SAFETY: `dst` is writable and exclusive; the rest is the caller's.
        let left = unsafe { self.try_copy(dst.as_mut_ptr(), src, dst.len()) };
        if left > 0 {
            let filled = dst.len() - left;
            dst[filled..].fill(0);
        }
        left
    }
}

/// The same value, and the compiler can't know. `black_box` would store and load it, which a copy of 256 bytes feels.
pub(crate) trait Opaque: Copy {
    #[must_use]
    fn opaque(self) -> Self;
}

macro_rules! opaque {
    ($($of:ty)+) => {$(
        impl Opaque for $of {
            #[inline]
            #[cfg_attr(miri, expect(unused_mut, reason = "there is no assembly"))]
            fn opaque(self) -> Self {
                let mut value = self;
                #[cfg(not(miri))]
                // SAFETY: no instruction at all.
                unsafe {
                    core::arch::asm!("/* {0} */", inout(reg) value, options(nostack, preserves_flags));
                }
                value
            }
        }
    )+};
}

opaque!(usize *const u8 *mut u8);

fn opaque<T: Opaque>(value: T) -> T {
    value.opaque()
}
