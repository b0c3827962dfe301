//! What this process may do: how an ordinary user gets a lab, by a user namespace, and how many files it may have open.
//!
//! In a new user namespace the process is root over the namespaces it makes there, and nothing outside. The host's
//! network stays visible but cannot be changed.
//!
//! See `user_namespaces(7)`. Nothing here gains a right on the host itself.

use std::fs;
use std::io;

use crate::error::{HostError, Named as _, Result};
use crate::netns::Netns;
use crate::sys;

/// Whether this process acts as root, of the host or of its user namespace.
#[must_use]
pub fn effective_root() -> bool {
    sys::effective_ids().0 == 0
}

/// Has this process asked to stop, as by SIGTERM, when the thread that started it ends, however it ends. The kernel forgets this where
/// rights change, as [`enter_user_namespace`] does: ask again after it.
///
/// # Errors
/// The parent is no longer process `parent`: it ended before this was called, and nothing will come.
pub fn end_with_parent(parent: u32) -> Result<()> {
    sys::signal_at_parents_end(libc::SIGTERM).named("ask for a signal at", || "the parent's end".into())?;
    if std::os::unix::process::parent_id() == parent {
        return Ok(());
    }
    Err(HostError::NotFound { what: format!("process {parent}, which started this one"), hint: None })
}

/// Whether this process is in the first user namespace, so that its root is the host's.
#[must_use]
pub fn in_initial_user_namespace() -> bool {
    /// `PROC_USER_INIT_INO` of the kernel's `include/linux/proc_ns.h`.
    const INITIAL: &str = "user:[4026531837]";
    fs::read_link("/proc/self/ns/user").is_ok_and(|target| target.as_os_str() == INITIAL)
}

/// Makes this process root of a new user namespace, so that it can build a lab without being root on the host.
///
/// The kernel lets only a process with one thread do this: call it first thing in `main`. Network namespaces made
/// afterwards belong to the new user namespace; that one can be made is checked here, because some distributions let
/// the user namespace be made and then deny what it is for.
pub fn enter_user_namespace() -> Result<()> {
    let (user, group) = sys::effective_ids();
    sys::leave(sys::NamespaceKind::User).named("create", || "a user namespace".into()).map_err(|error| {
        let hint = match error.errno() {
            Some(libc::EINVAL) => Some("this must happen before the process starts its first thread"),
            _ => refusal(),
        };
        error.with_hint(hint.unwrap_or("user namespaces are forbidden here: run as root"))
    })?;
    // An ordinary user may map only itself, and may write the group map only after giving up setgroups(2).
    for (file, text) in [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("0 {user} 1")),
        ("/proc/self/gid_map", format!("0 {group} 1")),
    ] {
        fs::write(file, &text).named("write", || format!("'{text}' to {file}")).map_err(explain)?;
    }
    Netns::create().map(drop).map_err(explain)
}

fn explain(error: HostError) -> HostError {
    match (error.errno(), refusal()) {
        (Some(libc::EPERM | libc::EACCES), Some(hint)) => error.with_hint(hint),
        _ => error,
    }
}

/// Which sysctl of this host forbids user namespaces to ordinary users.
fn refusal() -> Option<&'static str> {
    refusal_among(|sysctl| fs::read_to_string(format!("/proc/sys/{sysctl}")))
}

fn refusal_among(read: impl Fn(&str) -> io::Result<String>) -> Option<&'static str> {
    const RULES: [(&str, &str, &str); 3] = [
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "the sysctl kernel.apparmor_restrict_unprivileged_userns forbids it to ordinary users: run as root, or set it to 0",
        ),
        (
            "kernel/unprivileged_userns_clone",
            "0",
            "the sysctl kernel.unprivileged_userns_clone forbids it to ordinary users: run as root, or set it to 1",
        ),
        (
            "user/max_user_namespaces",
            "0",
            "the sysctl user.max_user_namespaces allows none: run as root, or raise it",
        ),
    ];
    RULES.into_iter().find_map(|(sysctl, forbidding, hint)| {
        read(sysctl).is_ok_and(|value| value.trim() == forbidding).then_some(hint)
    })
}

/// The user whose rights this process has, in its user namespace.
#[must_use]
pub(crate) fn effective_user() -> u32 {
    sys::effective_ids().0
}

/// Raises the number of files this process may have open to the most it may ask for itself; returns what it was and
/// what it is now. The soft limit is 1024 nearly everywhere, for the sake of programs that use select(2); haul does
/// not, and a thousand flows take more.
pub fn raise_open_files() -> Result<(u64, u64)> {
    let object = || "the limit on open files".to_owned();
    let (soft, hard) = sys::open_files().named("read", object)?;
    if soft < hard {
        sys::set_open_files(hard, hard).named("raise", object)?;
    }
    Ok((soft, hard.max(soft)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_on_open_files_is_raised_to_the_hard_one() {
        let (_, hard) = sys::open_files().expect("limits");
        // One less is enough for whatever the other tests have open.
        sys::set_open_files(hard - 1, hard).expect("lower");
        assert_eq!(raise_open_files().expect("raise"), (hard - 1, hard));
        assert_eq!(sys::open_files().expect("limits"), (hard, hard));
        assert_eq!(raise_open_files().expect("again"), (hard, hard));
    }

    #[test]
    fn a_refusal_names_the_sysctl_that_forbids() {
        let host = |key: &'static str, value: &'static str| {
            move |asked: &str| {
                if asked == key { Ok(format!("{value}\n")) } else { Err(io::ErrorKind::NotFound.into()) }
            }
        };
        for (key, forbidding, allowing) in [
            ("kernel/apparmor_restrict_unprivileged_userns", "1", "0"),
            ("kernel/unprivileged_userns_clone", "0", "1"),
            ("user/max_user_namespaces", "0", "96365"),
        ] {
            let hint = refusal_among(host(key, forbidding)).expect(key);
            assert!(hint.contains(&key.replace('/', ".")), "{hint}");
            assert_eq!(refusal_among(host(key, allowing)), None, "{key} = {allowing}");
        }
    }

    #[test]
    fn a_process_with_threads_is_told_so() {
        // The test harness itself has several threads; a second one is started in case it has not.
        let error = std::thread::scope(|scope| scope.spawn(enter_user_namespace).join().expect("no panic"))
            .expect_err("threads exist");
        assert!(error.to_string().contains("before the process starts its first thread"), "{error}");
    }
}
