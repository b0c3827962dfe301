//! Whether something imitates this CPU: user-mode emulation, where a program of another instruction set runs on this kernel.
//!
//! Such a program is told that everything is as it should be: `uname`, `/proc/cpuinfo` and `/proc/self/exe` are imitated too (QEMU,
//! `linux-user/syscall.c`). The kernel's own `/proc/sys/kernel/arch` (since 6.1) is not, nor is the link of `/proc/thread-self/exe`
//! to the program that really runs. A whole machine that is emulated cannot be told from within so.

use std::fs;
use std::path::{Path, PathBuf};

/// What imitates this CPU, in words; `None` where nothing is seen to.
#[must_use]
pub fn emulator() -> Option<String> {
    let kernel = fs::read_to_string("/proc/sys/kernel/arch").ok();
    let runs = fs::read_link("/proc/thread-self/exe").ok();
    seen(std::env::consts::ARCH, kernel.as_deref().map(str::trim), runs.as_deref())
}

/// The same from what the program was built for, what the kernel is of, and which program runs.
fn seen(built: &str, kernel: Option<&str>, runs: Option<&Path>) -> Option<String> {
    let says = |by: &str| {
        format!("this is a program for {built} under emulation ({by}): its times are the emulator's")
    };
    if let Some(kernel) = kernel.filter(|kernel| !runs_natively(built, kernel)) {
        return Some(says(&format!("the kernel is of {kernel}")));
    }
    let runs = runs.and_then(Path::file_name).map(PathBuf::from)?;
    let name = runs.to_string_lossy().into_owned();
    name.strip_prefix("qemu-").filter(|of| !of.starts_with("system")).map(|_| says(&name))
}

/// Whether a kernel's own CPU executes what was built so; the kernel's names are those of `uname -m`.
fn runs_natively(built: &str, kernel: &str) -> bool {
    match built {
        "x86" => kernel == "x86_64" || kernel.ends_with("86"),
        "arm" => kernel == "aarch64" || kernel.starts_with("arm"),
        "riscv32" | "riscv64" => kernel.starts_with("riscv"),
        "powerpc64" => kernel.starts_with("ppc64"),
        "loongarch64" => kernel.starts_with("loongarch"),
        _ => built == kernel,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_another_instruction_set_is_told_from_one_of_the_kernels_own() {
        for (built, kernel, runs, emulated) in [
            ("x86_64", Some("x86_64"), "/usr/bin/haul", false),
            ("x86", Some("x86_64"), "/usr/bin/haul", false),
            ("x86", Some("i686"), "/usr/bin/haul", false),
            ("arm", Some("aarch64"), "/usr/bin/haul", false),
            ("riscv64", Some("riscv64"), "/usr/bin/haul", false),
            ("riscv64", Some("x86_64"), "/usr/bin/qemu-riscv64", true),
            ("aarch64", Some("x86_64"), "/usr/bin/haul", true),
            ("x86_64", Some("aarch64"), "/usr/bin/haul", true),
            // A kernel that does not say: the program that runs does.
            ("riscv64", None, "/usr/bin/qemu-riscv64-static", true),
            ("riscv64", None, "/usr/bin/haul", false),
            ("x86_64", Some("x86_64"), "/usr/bin/qemu-x86_64", true),
            ("x86_64", None, "/opt/qemu-system-tests/haul", false),
        ] {
            let seen = seen(built, kernel, Some(Path::new(runs)));
            assert_eq!(seen.is_some(), emulated, "{built} on {kernel:?} by {runs}: {seen:?}");
            assert!(seen.is_none_or(|text| text.contains(built) && text.contains("the emulator's")));
        }
        assert_eq!(seen("x86_64", None, None), None);
    }

    #[test]
    fn this_test_is_of_the_kernels_own_instruction_set_or_says_so() {
        let kernel = fs::read_to_string("/proc/sys/kernel/arch").unwrap_or_default();
        if runs_natively(std::env::consts::ARCH, kernel.trim()) {
            assert_eq!(emulator(), None);
        } else if !kernel.is_empty() {
            assert!(emulator().is_some());
        }
    }
}
