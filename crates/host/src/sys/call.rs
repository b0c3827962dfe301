//! The system calls of the measured path, as the one instruction they are.
//!
//! In a process of several threads glibc wraps `send`, `recv` and every other call that may block in two atomic exchanges,
//! which make it a point where `pthread_cancel` may end the thread. Nothing here cancels threads, and a bare loop in a
//! process of one thread does not pay for it: of the samples of 200 flows' transactions 2.5 % were in those exchanges.
//!
//! Conventions: syscall(2), "Architecture calling conventions". A negative answer is an error number.

use std::io;

/// The call `number` with up to six arguments. What it returns, or its error.
///
/// # Safety
///
/// - Each argument is what the call documents: a pointer among them is valid for what the kernel reads or writes there.
/// - The call neither changes this process's memory map under anybody's feet nor ends the thread.
#[inline]
pub(super) unsafe fn call(number: libc::c_long, arguments: [usize; 6]) -> io::Result<usize> {
    // SAFETY: the caller's, to the letter.
    let answer = unsafe { instruction(number, &arguments) };
    // No answer of a call used here has its highest bit set.
    usize::try_from(answer)
        .map_err(|_| io::Error::from_raw_os_error(i32::try_from(-answer).unwrap_or(libc::EIO)))
}

#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn instruction(number: libc::c_long, of: &[usize; 6]) -> libc::c_long {
    let answer: libc::c_long;
    // SAFETY: the kernel keeps every register but these three and the flags; what it does with the arguments is the
    // caller's to know.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => answer,
            in("rdi") of[0], in("rsi") of[1], in("rdx") of[2], in("r10") of[3], in("r8") of[4], in("r9") of[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

#[cfg(target_arch = "aarch64")]
#[inline]
unsafe fn instruction(number: libc::c_long, of: &[usize; 6]) -> libc::c_long {
    let answer: libc::c_long;
    // SAFETY: the kernel keeps every register but x0; what it does with the arguments is the caller's to know.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number, inlateout("x0") of[0] => answer,
            in("x1") of[1], in("x2") of[2], in("x3") of[3], in("x4") of[4], in("x5") of[5],
            options(nostack),
        );
    }
    answer
}

#[cfg(target_arch = "riscv64")]
#[inline]
unsafe fn instruction(number: libc::c_long, of: &[usize; 6]) -> libc::c_long {
    let answer: libc::c_long;
    // SAFETY: the kernel keeps every register but a0; what it does with the arguments is the caller's to know.
    unsafe {
        std::arch::asm!(
            "ecall",
            in("a7") number, inlateout("a0") of[0] => answer,
            in("a1") of[1], in("a2") of[2], in("a3") of[3], in("a4") of[4], in("a5") of[5],
            options(nostack),
        );
    }
    answer
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
unsafe fn instruction(number: libc::c_long, of: &[usize; 6]) -> libc::c_long {
    // SAFETY: the caller's, to the letter. `syscall` is no cancellation point.
    let answer = unsafe { libc::syscall(number, of[0], of[1], of[2], of[3], of[4], of[5]) };
    if answer < 0 {
        -libc::c_long::from(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    } else {
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_number_is_an_error_and_everything_else_an_answer() {
        // SAFETY: getpid takes no argument and touches no memory.
        let own = unsafe { call(libc::SYS_getpid, [0; 6]) };
        assert_eq!(own.unwrap(), std::process::id() as usize);
        // SAFETY: no descriptor has the number −1, so the kernel gets no further than that.
        let error = unsafe { call(libc::SYS_close, [usize::MAX, 0, 0, 0, 0, 0]) };
        assert_eq!(error.unwrap_err().raw_os_error(), Some(libc::EBADF));
    }
}
