//! Where every routine goes on after a fault: byte by byte, until a byte faults.
//!
//! ```text
//! in: rdi dst, rsi src, rdx len, all as of the last point up to which everything is copied
//! while rdx > 0: *rdi++ = *rsi++; rdx--          a fault ends it
//! return rdx
//! ```

use core::arch::naked_asm;

use crate::fault::guarded;

/// The byte loop.
///
/// # Safety
///
/// As [`crate::Routine::try_copy`].
#[unsafe(naked)]
pub(super) unsafe extern "sysv64" fn bytes(dst: *mut u8, src: *const u8, len: usize) -> usize {
    naked_asm!(
        "test rdx, rdx",
        "jz 3f",
        "2: movzx eax, byte ptr [rsi]",
        "mov byte ptr [rdi], al",
        "inc rsi",
        "inc rdi",
        "dec rdx",
        "jnz 2b",
        "3: mov rax, rdx",
        "ret",
        guarded!("2b", "3b", "3b"),
    )
}

/// The same after AVX: the upper halves are cleared, or SSE code of the caller would pay for them.
///
/// # Safety
///
/// As [`crate::Routine::try_copy`].
#[unsafe(naked)]
pub(super) unsafe extern "sysv64" fn vex(dst: *mut u8, src: *const u8, len: usize) -> usize {
    naked_asm!("vzeroupper", "jmp {bytes}", bytes = sym bytes)
}

/// The same after streaming stores: what went past the caches is ordered before what follows.
///
/// # Safety
///
/// As [`crate::Routine::try_copy`].
#[unsafe(naked)]
pub(super) unsafe extern "sysv64" fn fence(dst: *mut u8, src: *const u8, len: usize) -> usize {
    naked_asm!("sfence", "jmp {bytes}", bytes = sym bytes)
}

/// After streaming stores by AVX.
///
/// # Safety
///
/// As [`crate::Routine::try_copy`].
#[unsafe(naked)]
pub(super) unsafe extern "sysv64" fn vex_fence(dst: *mut u8, src: *const u8, len: usize) -> usize {
    naked_asm!("sfence", "vzeroupper", "jmp {bytes}", bytes = sym bytes)
}

/// What is too short for a vector: less than 64 bytes, loaded from both ends and then stored; the halves may overlap.
///
/// # Safety
///
/// As [`crate::Routine::try_copy`].
#[unsafe(naked)]
pub(super) unsafe extern "sysv64" fn small(dst: *mut u8, src: *const u8, len: usize) -> usize {
    naked_asm!(
        "2: cmp edx, 16",
        "jae 6f",
        "cmp edx, 8",
        "jae 5f",
        "cmp edx, 4",
        "jae 4f",
        "cmp edx, 1",
        "jb 7f",
        "je 3f",
        "movzx eax, word ptr [rsi]",
        "movzx ecx, word ptr [rsi + rdx - 2]",
        "mov word ptr [rdi], ax",
        "mov word ptr [rdi + rdx - 2], cx",
        "xor eax, eax",
        "ret",
        "3: movzx eax, byte ptr [rsi]",
        "mov byte ptr [rdi], al",
        "7: xor eax, eax",
        "ret",
        "4: mov eax, dword ptr [rsi]",
        "mov ecx, dword ptr [rsi + rdx - 4]",
        "mov dword ptr [rdi], eax",
        "mov dword ptr [rdi + rdx - 4], ecx",
        "xor eax, eax",
        "ret",
        "5: mov rax, qword ptr [rsi]",
        "mov rcx, qword ptr [rsi + rdx - 8]",
        "mov qword ptr [rdi], rax",
        "mov qword ptr [rdi + rdx - 8], rcx",
        "xor eax, eax",
        "ret",
        "6: cmp edx, 32",
        "ja 9f",
        "movups xmm0, xmmword ptr [rsi]",
        "movups xmm1, xmmword ptr [rsi + rdx - 16]",
        "movups xmmword ptr [rdi], xmm0",
        "movups xmmword ptr [rdi + rdx - 16], xmm1",
        "xor eax, eax",
        "ret",
        "9: movups xmm0, xmmword ptr [rsi]",
        "movups xmm1, xmmword ptr [rsi + 16]",
        "movups xmm2, xmmword ptr [rsi + rdx - 32]",
        "movups xmm3, xmmword ptr [rsi + rdx - 16]",
        "movups xmmword ptr [rdi], xmm0",
        "movups xmmword ptr [rdi + 16], xmm1",
        "movups xmmword ptr [rdi + rdx - 32], xmm2",
        "movups xmmword ptr [rdi + rdx - 16], xmm3",
        "xor eax, eax",
        "8: ret",
        guarded!("2b", "8b", "{bytes}"),
        bytes = sym bytes,
    )
}
