//! Memory with holes, and a handler that counts the faults it fixes.

use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::Once;

use libc::{c_int, c_void};

/// Where nothing was stored. No byte of [`source_byte`] has this value.
pub(crate) const BACKGROUND: u8 = 0xee;

/// Bytes beside a destination that have to stay as they were.
pub(crate) const MARGIN: usize = 64;

/// Pages as mapped, a hole of one page at either end, and two pages and another hole above:
///
/// ```text
/// hole │ data … │ hole │ two pages │ hole
///      low     high
/// ```
pub(crate) struct Memory {
    start: *mut u8,
    data: usize,
}

fn page() -> usize {
    // SAFETY: it only reads the process's own table.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap()
}

impl Memory {
    pub(crate) fn new(at_least: usize) -> Self {
        let data = at_least.next_multiple_of(page());
        let len = data + 5 * page();
        // SAFETY: a null hint lets the kernel choose an address that nothing else uses.
        let start = unsafe {
            libc::mmap(null_mut(), len, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        assert_ne!(start, libc::MAP_FAILED);
        let memory = Self { start: start.cast(), data };
        for (from, len) in [(memory.low(), data), (memory.beyond(), 2 * page())] {
            // SAFETY: a part of the mapping just made.
            let opened = unsafe { libc::mprotect(from.cast(), len, libc::PROT_READ | libc::PROT_WRITE) };
            assert_eq!(opened, 0);
            // SAFETY: the same part, writable now.
            unsafe { from.write_bytes(BACKGROUND, len) };
        }
        memory
    }

    /// A source: every byte of it is [`source_byte`] of its place.
    pub(crate) fn source(at_least: usize) -> Self {
        let memory = Self::new(at_least);
        for (from, len) in [(memory.low(), memory.data), (memory.beyond(), 2 * page())] {
            for at in 0..len {
                // SAFETY: within the part.
                unsafe { from.wrapping_add(at).write(source_byte(at)) };
            }
        }
        memory
    }

    /// The first byte of the data: before it is a hole.
    pub(crate) fn low(&self) -> *mut u8 {
        self.start.wrapping_add(page())
    }

    /// The first byte of the hole above the data.
    pub(crate) fn high(&self) -> *mut u8 {
        self.low().wrapping_add(self.data)
    }

    /// The first byte above that hole.
    pub(crate) fn beyond(&self) -> *mut u8 {
        self.high().wrapping_add(page())
    }

    /// The data, without what would be in a hole.
    pub(crate) fn slice(&self, from: *const u8, len: usize) -> &[u8] {
        let end = from.wrapping_add(len);
        let from = from.max(self.low()).min(self.high());
        let end = end.max(self.low().cast_const()).min(self.high());
        // SAFETY: clamped to the data, which is mapped and initialised; tests have one thread to each memory.
        unsafe { std::slice::from_raw_parts(from, end.addr().saturating_sub(from.addr())) }
    }

    /// Puts the background back.
    pub(crate) fn clear(&self, from: *mut u8, len: usize) {
        let end = from.wrapping_add(len).max(self.low()).min(self.high());
        let from = from.max(self.low()).min(self.high());
        // SAFETY: clamped to the data.
        unsafe { from.write_bytes(BACKGROUND, end.addr().saturating_sub(from.addr())) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's.
        unsafe { libc::munmap(self.start.cast(), self.data + 5 * page()) };
    }
}

/// Differs from its neighbours, doesn't repeat within a few pages, and is never [`BACKGROUND`].
pub(crate) fn source_byte(at: usize) -> u8 {
    let mixed = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    let byte = mixed as u8;
    if byte == BACKGROUND { 0x11 } else { byte }
}

pub(crate) fn is_background(bytes: &[u8]) -> bool {
    const CLEAR: [u8; 512] = [BACKGROUND; 512];
    bytes.chunks(CLEAR.len()).all(|chunk| *chunk == CLEAR[..chunk.len()])
}

thread_local! {
    static FAULTS: Cell<u64> = const { Cell::new(0) };
}

/// Faults of this thread's copies so far. Fixed ones would hide a load or store outside of a copy, so they are counted.
pub(crate) fn faults() -> u64 {
    FAULTS.get()
}

/// Installs the counting handler, once.
pub(crate) fn catch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: all bits zero is the default action with an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            // SAFETY: `on_fault` is a handler with three arguments.
            assert_eq!(unsafe { libc::sigaction(signal, &raw const action, null_mut()) }, 0);
        }
    });
}

extern "C" fn on_fault(signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    let context = context.cast::<libc::ucontext_t>();
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel gave the context.
    let counter = unsafe { &raw mut (*context).uc_mcontext.gregs[libc::REG_RIP as usize] };
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the kernel gave the context.
    let counter = unsafe { &raw mut (*context).uc_mcontext.pc };
    #[cfg(target_arch = "riscv64")]
    // SAFETY: the kernel gave the context.
    let counter = unsafe { &raw mut (*context).uc_mcontext.__gregs[0] };
    let counter = counter.cast::<usize>();
    // SAFETY: it points into the kernel's frame.
    if let Some(fix) = haul_copy::fault::fixup(unsafe { counter.read() }) {
        FAULTS.set(FAULTS.get() + 1);
        // SAFETY: as above.
        unsafe { counter.write(fix) };
    } else {
        // Back at the instruction, the default action ends the process.
        // SAFETY: all bits zero is the default action.
        let action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: it is initialised.
        unsafe { libc::sigaction(signal, &raw const action, null_mut()) };
    }
}
