//! The ends of all routines of x86-64: words and then bytes, and bytes alone after a fault.
//!
//! ```text
//! words:  while left >= 8: *dst++ = w = *src++; sum += w           the rest is even up to the last byte
//!         4, 2 and 1 likewise; return sum rotated by cl, left = 0
//!         a fault: on to bytes
//! bytes:  while left > 0: *dst++ = b = *src++; sum += b            a fault: leave the loop
//!                         sum = sum rotated right by 8; cl += 8    the next byte belongs one place higher
//!         return sum rotated left by cl, left
//! ```
//!
//! 1. One's complement addition of 64 bits is `add` and `adc 0`; a rotation by 8 bits is the step to the next byte's place,
//!    so that no byte has to know whether its offset is odd. `rol` takes `cl` modulo 64, where eight bytes come round.
//! 2. The sum of a piece is added after its store, so that it is never of bytes that were not copied.

use core::arch::naked_asm;

use crate::checksum::routine::Raw;
use crate::fault::guarded;

/// `r8 += rax`, one's complement.
macro_rules! add_rax {
    () => {
        "add r8, rax\nadc r8, 0\n"
    };
}

/// Words, then what is left of a word. Not a function: `rdi`, `rsi`, `rdx`, `r8` and `cl` are as the module says.
///
/// # Safety
/// It is jumped to from routines of this module alone, with the registers as the module says.
#[unsafe(naked)]
pub(super) unsafe extern "sysv64" fn copy_words() -> Raw {
    naked_asm!(
        "sub rdx, 8",
        "jb 3f",
        "2: mov rax, [rsi]",
        "mov [rdi], rax",
        "22:",
        add_rax!(),
        "add rsi, 8",
        "add rdi, 8",
        "sub rdx, 8",
        "jae 2b",
        "3: test dl, 4", // left − 8 has the same low bits
        "jz 4f",
        "23: mov eax, [rsi]",
        "mov [rdi], eax",
        "24:",
        add_rax!(),
        "add rsi, 4",
        "add rdi, 4",
        "sub rdx, 4",
        "4: test dl, 2",
        "jz 5f",
        "25: movzx eax, word ptr [rsi]",
        "mov [rdi], ax",
        "26:",
        add_rax!(),
        "add rsi, 2",
        "add rdi, 2",
        "sub rdx, 2",
        "5: test dl, 1",
        "jz 6f",
        "27: movzx eax, byte ptr [rsi]",
        "mov [rdi], al",
        "28:",
        add_rax!(),
        "6: rol r8, cl",
        "xor eax, eax",
        "mov rdx, r8",
        "ret",
        "7: add rdx, 8",
        "jmp {bytes}",
        guarded!("2b", "22b", "7b"),
        guarded!("23b", "24b", "7b"),
        guarded!("25b", "26b", "7b"),
        guarded!("27b", "28b", "7b"),
        bytes = sym copy_bytes,
    )
}

/// Bytes until one faults. Not a function: `rdi`, `rsi`, `rdx`, `r8` and `cl` are as the module says.
///
/// # Safety
/// It is jumped to from routines of this module alone, with the registers as the module says.
#[unsafe(naked)]
pub(super) unsafe extern "sysv64" fn copy_bytes() -> Raw {
    naked_asm!(
        "test rdx, rdx",
        "jz 4f",
        "2: movzx eax, byte ptr [rsi]",
        "mov [rdi], al",
        "3:",
        add_rax!(),
        "ror r8, 8",
        "add cl, 8",
        "inc rsi",
        "inc rdi",
        "dec rdx",
        "jnz 2b",
        "4: rol r8, cl",
        "mov rax, rdx",
        "mov rdx, r8",
        "ret",
        guarded!("2b", "3b", "4b"),
    )
}

/// Words, then what is left of a word. Not a function: `rdi`, `rsi`, `r8` and `cl` are as the module says.
///
/// # Safety
/// It is jumped to from routines of this module alone, with the registers as the module says.
#[unsafe(naked)]
pub(super) unsafe extern "sysv64" fn sum_words() -> Raw {
    naked_asm!(
        "sub rsi, 8",
        "jb 3f",
        "2: mov rax, [rdi]",
        "22:",
        add_rax!(),
        "add rdi, 8",
        "sub rsi, 8",
        "jae 2b",
        "3: test sil, 4", // left − 8 has the same low bits
        "jz 4f",
        "23: mov eax, [rdi]",
        "24:",
        add_rax!(),
        "add rdi, 4",
        "sub rsi, 4",
        "4: test sil, 2",
        "jz 5f",
        "25: movzx eax, word ptr [rdi]",
        "26:",
        add_rax!(),
        "add rdi, 2",
        "sub rsi, 2",
        "5: test sil, 1",
        "jz 6f",
        "27: movzx eax, byte ptr [rdi]",
        "28:",
        add_rax!(),
        "6: rol r8, cl",
        "xor eax, eax",
        "mov rdx, r8",
        "ret",
        "7: add rsi, 8",
        "jmp {bytes}",
        guarded!("2b", "22b", "7b"),
        guarded!("23b", "24b", "7b"),
        guarded!("25b", "26b", "7b"),
        guarded!("27b", "28b", "7b"),
        bytes = sym sum_bytes,
    )
}

/// Bytes until one faults. Not a function: `rdi`, `rsi`, `r8` and `cl` are as the module says.
///
/// # Safety
/// It is jumped to from routines of this module alone, with the registers as the module says.
#[unsafe(naked)]
pub(super) unsafe extern "sysv64" fn sum_bytes() -> Raw {
    naked_asm!(
        "test rsi, rsi",
        "jz 4f",
        "2: movzx eax, byte ptr [rdi]",
        "3:",
        add_rax!(),
        "ror r8, 8",
        "add cl, 8",
        "inc rdi",
        "dec rsi",
        "jnz 2b",
        "4: rol r8, cl",
        "mov rax, rsi",
        "mov rdx, r8",
        "ret",
        guarded!("2b", "3b", "4b"),
    )
}
