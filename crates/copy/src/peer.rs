//! Copies that are not ours, to compare with.

use core::ffi::c_void;
use core::fmt;

use crate::routine::Opaque as _;

type Run = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;

struct Entry {
    name: &'static str,
    summary: &'static str,
    run: Run,
}

static PEERS: &[Entry] = &[Entry {
    name: "libc",
    summary: "memcpy of the C library, whichever variant it chose; a fault in it ends the process",
    run: libc::memcpy,
}];

/// Somebody else's copy routine.
///
/// It has no entry in the exception table, so it is no [`crate::Routine`] and there is no `try_copy` of it: a fault
/// in it is a fault of the process.
#[derive(Clone, Copy)]
pub struct Peer(&'static Entry);

impl Peer {
    /// All there are.
    pub fn all() -> impl Iterator<Item = Self> {
        PEERS.iter().map(Self)
    }

    /// The peer of this name; no routine has one of these names.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::all().find(|peer| peer.name() == name)
    }

    /// What [`Peer::by_name`] takes.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// What it is, in a line.
    #[must_use]
    pub fn summary(self) -> &'static str {
        self.0.summary
    }

    /// Copies `len` bytes.
    ///
    /// # Safety
    ///
    /// - `src` is valid for reads and `dst` for writes of `len` bytes.
    /// - They do not overlap.
    #[inline]
    pub unsafe fn copy(self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: the caller's.
        unsafe { (self.0.run)(dst.cast(), src.cast(), len) };
    }
}

impl Peer {
    /// Copies `src` to `dst` `times` times, as [`crate::Routine::repeat`].
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn repeat(self, dst: &mut [u8], src: &[u8], times: u64) {
        assert!(dst.len() == src.len(), "a copy from {} bytes to {}", src.len(), dst.len());
        let (to, from, len) = (dst.as_mut_ptr(), src.as_ptr(), src.len());
        for _ in 0..times {
            // SAFETY: both are slices of that length, and one of them is exclusive, so that they do not overlap.
            unsafe { self.copy(to.opaque(), from.opaque(), len.opaque()) };
        }
    }

    /// Where its code begins: the variant that the C library chose, in a library that chooses when it is loaded.
    #[must_use]
    pub fn address(self) -> *const () {
        self.0.run as *const ()
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({})", self.name())
    }
}
