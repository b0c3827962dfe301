//! Settings that are files: sysctls, the device's and the host's part of sysfs, interrupts' affinity.
//!
//! Which file a path means depends on who opens it. `/proc/sys/net` is that of the opening thread's network namespace, and
//! the devices in `/sys` are those of the namespace it was mounted in, which for a lab is the wrong one. So everything of a
//! device is read through a sysfs of its own namespace that is mounted nowhere (`fsmount(2)`).
//!
//! A sysctl of the network is *per namespace* where a fresh namespace has it writable, *global* where the first one alone
//! has, and the kernel shows some global ones to the others for reading (`net/core/sysctl_net_core.c`). A table of keys
//! would be wrong with the next kernel; asking a fresh namespace is not.
//!
//! Texts are compared as the kernel means them: `[always] madvise` is `always`, a mask has no leading zeros, `Y` of a module
//! is `1`.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::cpus::Cpus;
use super::setting::one_blank;
use crate::error::{HostError, Named as _, Result};
use crate::link::Link;
use crate::netns::Netns;
use crate::sys;

/// The most of a file that is read: a page, as much as sysfs gives, and more than any sysctl.
const MOST: u64 = 64 << 10;

/// The longest text that is whole: what is longer could not be put back.
pub(super) const MOST_KEPT: usize = 60 << 10;

/// Where proc and sysfs are. A test puts trees of its own there, with what its machine lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roots {
    /// Instead of `/proc`.
    pub proc: PathBuf,
    /// Instead of `/sys`.
    pub sys: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { proc: "/proc".into(), sys: "/sys".into() }
    }
}

impl Roots {
    /// Whether they are the host's own.
    #[must_use]
    pub fn are_real(&self) -> bool {
        *self == Self::default()
    }

    /// Where an absolute path below `/proc` or `/sys` is.
    pub(super) fn place(&self, path: &str) -> PathBuf {
        match (path.strip_prefix("/proc/"), path.strip_prefix("/sys/")) {
            (Some(below), _) => self.proc.join(below),
            (_, Some(below)) => self.sys.join(below),
            _ => PathBuf::from(path),
        }
    }
}

/// The devices' part of a sysfs that belongs to one network namespace.
#[derive(Debug)]
pub(super) enum Sysfs {
    /// A mount that only this descriptor reaches.
    Own(OwnedFd),
    /// A tree at a path.
    At(PathBuf),
}

impl Sysfs {
    /// That of `netns`.
    pub(super) fn of(netns: &Netns, roots: &Roots) -> Result<Self> {
        if !roots.are_real() {
            return Ok(Self::At(roots.sys.clone()));
        }
        let made = netns.run(|| {
            sys::sysfs_here().or_else(|error| {
                // In a user namespace the mounts are still the host's, until this thread has some of its own.
                if error.raw_os_error() == Some(libc::EPERM) {
                    sys::leave(sys::NamespaceKind::Mount)?;
                    sys::sysfs_here()
                } else {
                    Err(error)
                }
            })
        })?;
        match made {
            Ok(mount) => Ok(Self::Own(mount)),
            // What haul was started in is, save for odd containers, what its /sys shows.
            Err(_) if Netns::of_process()?.id() == netns.id() => Ok(Self::At("/sys".into())),
            Err(error) => {
                let object = "sysfs of another network namespace".to_owned();
                Err(HostError::os("mount", object, error)
                    .with_hint("it takes Linux 5.2, and root or a user namespace of one's own"))
            }
        }
    }

    /// The directory of a device; the kernel removes it, and never reuses it, with the device.
    pub(super) fn device(&self, link: &Link) -> Result<PathBuf> {
        let root = match self {
            Self::Own(mount) => PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd())),
            Self::At(root) => root.clone(),
        };
        let directory = root.join("class/net").join(&link.name);
        let index = read(&directory.join("ifindex"))?;
        if index == link.index.to_string() {
            Ok(directory)
        } else {
            Err(HostError::NotFound {
                what: format!("{} with the index {} in sysfs", link.name, link.index),
                hint: None,
            })
        }
    }
}

/// A path as a person knows it: a sysfs that is mounted nowhere is one all the same.
fn shown(path: &Path) -> String {
    let text = path.display().to_string();
    match text.strip_prefix("/proc/self/fd/").and_then(|rest| rest.split_once('/')) {
        Some((_, below)) => format!("/sys/{below}"),
        None => text,
    }
}

/// What a file says, without its end of line.
pub(super) fn read(path: &Path) -> Result<String> {
    let object = || shown(path);
    let mut bytes = Vec::new();
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    file.and_then(|file| file.take(MOST).read_to_end(&mut bytes)).named("read", object)?;
    Ok(String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\0', ' ']).to_owned())
}

/// Writes a value in one call, as sysctl and sysfs want it.
pub(super) fn write(path: &Path, value: &str) -> Result<()> {
    let object = || shown(path);
    let file = OpenOptions::new().write(true).truncate(true).custom_flags(libc::O_NONBLOCK).open(path);
    file.and_then(|mut file| file.write_all(format!("{value}\n").as_bytes())).named("write", object)
}

/// Whether the file's mode lets anybody write it. Root may write any other file too, and gets an error of the file system's.
pub(super) fn is_writable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o222 != 0)
}

/// Whether it may be read: what may not cannot be put back.
pub(super) fn is_readable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o444 != 0)
}

/// What a file's text means. `path` says how to read it.
pub(super) fn meaning(path: &str, text: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or_default();
    let text = one_blank(text);
    if matches!(name, "rps_cpus" | "xps_cpus" | "smp_affinity") {
        return Cpus::from_mask(&text).map_or(text, |cpus| cpus.mask());
    }
    if name == "smp_affinity_list" {
        return Cpus::parse(&text).map_or(text, |cpus| cpus.list());
    }
    if path.contains("/parameters/") {
        match text.as_str() {
            "Y" | "y" => return "1".to_owned(),
            "N" | "n" => return "0".to_owned(),
            _ => {}
        }
    }
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    match chosen {
        Some((chosen, _)) if path.starts_with("/sys/") => chosen.to_owned(),
        _ => text,
    }
}

/// The words a file offers, where it is a choice: `always [madvise] never`.
pub(super) fn choices(text: &str) -> Option<Vec<String>> {
    text.contains('[')
        .then(|| text.split_whitespace().map(|word| word.trim_matches(['[', ']']).to_owned()).collect())
}

/// Whose a sysctl is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// Every network namespace has its own.
    Namespace,
    /// There is one, and the first network namespace alone can set it.
    Host,
}

/// Whose the sysctl at `path`, below `/proc/sys`, is. A namespace is made for the question, and gone with it.
pub(super) fn whose(path: &str) -> Result<Whose> {
    if !path.starts_with("net/") {
        return Ok(Whose::Host);
    }
    // The name of a device is part of some keys, and a fresh namespace has none but lo.
    let general = general(path);
    let file = PathBuf::from("/proc/sys").join(general);
    let fresh = Netns::create()?.run(|| is_writable(&file))?;
    Ok(if fresh { Whose::Namespace } else { Whose::Host })
}

/// The same key of the loopback device, where it is one device's: `net/ipv4/conf/eth0/…`.
fn general(path: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    if let ["net", _, "conf" | "neigh", device, ..] = &mut parts[..]
        && !matches!(*device, "all" | "default")
    {
        *device = "lo";
    }
    parts.join("/")
}

/// Why a file of a sysctl cannot be had: absent in this network namespace, or at all.
pub(super) fn absent(path: &str, error: &io::Error) -> Option<String> {
    let elsewhere =
        || Netns::of_process().and_then(|home| home.run(|| Path::new("/proc/sys").join(path).exists()));
    (error.kind() == io::ErrorKind::NotFound).then(|| {
        if elsewhere().unwrap_or(false) {
            "only the host's first network namespace has it".to_owned()
        } else {
            "neither this network namespace nor the one haul was started in has such a sysctl: its module may not be loaded, \
             or the host's first namespace alone has it"
                .to_owned()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_mean_the_same_whatever_the_kernel_adds() {
        for (path, text, meant) in [
            ("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n", "madvise"),
            ("/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456", "4096 131072 6291456"),
            ("queues/rx-0/rps_cpus", "00000000,00000003", "3"),
            ("/proc/irq/4/smp_affinity_list", "0,1", "0-1"),
            ("/sys/module/tcp_cubic/parameters/hystart", "Y", "1"),
            ("/sys/kernel/x", "Y", "Y"),
            ("/proc/sys/kernel/x", "a [b] c", "a [b] c"),
        ] {
            assert_eq!(meaning(path, text), meant, "{path}");
        }
        assert_eq!(choices("always [madvise] never").unwrap(), ["always", "madvise", "never"]);
        assert_eq!(choices("3"), None);
    }

    #[test]
    fn keys_of_devices_are_asked_of_the_loopback() {
        assert_eq!(general("net/ipv4/conf/eth0/rp_filter"), "net/ipv4/conf/lo/rp_filter");
        assert_eq!(
            general("net/ipv6/neigh/default/retrans_time_ms"),
            "net/ipv6/neigh/default/retrans_time_ms"
        );
        assert_eq!(general("net/core/rmem_max"), "net/core/rmem_max");
    }

    #[test]
    fn sysctls_are_classed_as_this_kernel_has_them() {
        assert!(crate::privilege::effective_root(), "this test makes network namespaces: run it as root");
        for (key, expected) in [
            ("net/ipv4/tcp_rmem", Whose::Namespace),
            ("net/core/somaxconn", Whose::Namespace),
            ("net/core/rmem_max", Whose::Host),
            ("net/core/netdev_budget", Whose::Host),
            ("vm/swappiness", Whose::Host),
            ("net/ipv4/conf/lo/rp_filter", Whose::Namespace),
        ] {
            assert_eq!(whose(key).unwrap(), expected, "{key}");
        }
    }
}
