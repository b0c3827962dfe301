//! Compiled by `ci.sh nostd` against the crate without features: a second panic handler, which the compiler refuses
//! if anything brings the standard library's.
#![no_std]

use haul_copy::Routine;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// A kernel's copy, and what its page-fault handler would ask.
///
/// # Safety
///
/// As for [`Routine::try_copy`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn copy_user(dst: *mut u8, src: *const u8, len: usize, pc: usize) -> usize {
    if haul_copy::fault::fixup(pc).is_some() {
        return len;
    }
    // SAFETY: the caller's, to the letter.
    unsafe { Routine::best().try_copy(dst, src, len) }
}
