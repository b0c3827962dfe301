//! Network namespaces, held by a file descriptor and never by a name.
//!
//! A [`Netns`] is anonymous: it has no entry under `/run/netns`, so when the last descriptor, thread and socket in it
//! are gone, the kernel removes it with its links, also after `kill -9`. There is nothing to clean up.
//!
//! A thread belongs to one namespace at a time, and a socket keeps that of the thread that opened it. [`Netns::run`]
//! therefore runs its closure on a thread of its own: the calling thread's namespace never changes, and a failure on
//! the way back cannot leave it in the wrong one.
//!
//! See `network_namespaces(7)`, setns(2).

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::panic;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use serde::{Deserialize, Serialize};

use crate::error::{HostError, Named as _, Result};
use crate::sys;

/// The namespace of the calling thread; `/proc/self` would be that of the main thread.
const CURRENT: &str = "/proc/thread-self/ns/net";

/// What tells one network namespace from another.
///
/// The kernel gives an inode number to the next namespace once its owner is gone; the cookie is never given twice
/// during one boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NetnsId {
    /// The inode number of `/proc/…/ns/net`.
    pub inode: u64,
    /// `SO_NETNS_COOKIE`; kernels before 5.14 have none.
    pub cookie: Option<u64>,
}

/// A network namespace, kept alive by this value.
#[derive(Debug, Clone)]
pub struct Netns {
    file: Arc<File>,
    id: NetnsId,
}

impl Netns {
    /// The namespace of the calling thread.
    pub fn current() -> Result<Self> {
        let file =
            File::open(CURRENT).named("open the network namespace of this thread at", || CURRENT.into())?;
        let inode = inode(&file)?;
        Ok(Self { file: Arc::new(file), id: NetnsId { inode, cookie: cookie_here()? } })
    }

    /// The namespace a file such as `/proc/PID/ns/net` or `/run/netns/NAME` refers to.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).named("open the network namespace", || path.display().to_string())?;
        let inode = inode(&file)?;
        let mut opened = Self { file: Arc::new(file), id: NetnsId { inode, cookie: None } };
        opened.id.cookie = opened.run(cookie_here)??;
        Ok(opened)
    }

    /// The namespace the process was started in: that of its main thread, which never leaves it. Who has since entered a user
    /// namespace can name it and not enter it; then it has no cookie.
    pub(crate) fn of_process() -> Result<Self> {
        const PROCESS: &str = "/proc/self/ns/net";
        let file = File::open(PROCESS).named("open the network namespace", || PROCESS.into())?;
        let inode = inode(&file)?;
        let current = Self::current()?;
        if current.id.inode == inode {
            return Ok(current);
        }
        let mut found = Self { file: Arc::new(file), id: NetnsId { inode, cookie: None } };
        if let Ok(cookie) = found.run(cookie_here) {
            found.id.cookie = cookie?;
        }
        Ok(found)
    }

    /// A new namespace with nothing in it but a loopback device, which is down.
    pub fn create() -> Result<Self> {
        on_own_thread("haul-netns", || {
            sys::leave(sys::NamespaceKind::Net).named("create", || "a network namespace".into()).map_err(
                |error| match error.errno() {
                    Some(libc::EPERM) => error.with_hint(
                        "it takes CAP_SYS_ADMIN: run as root, or let haul enter a user namespace first",
                    ),
                    Some(libc::ENOSPC) => error.with_hint("the sysctl user.max_net_namespaces is used up"),
                    _ => error,
                },
            )?;
            Self::current()
        })?
    }

    /// Which namespace this is.
    #[must_use]
    pub fn id(&self) -> NetnsId {
        self.id
    }

    /// Runs `work` on a thread in this namespace and returns what it returned; a panic in `work` goes on here.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        on_own_thread("haul-netns", || {
            self.enter()?;
            Ok(work())
        })?
    }

    /// Starts a thread that runs `work` in this namespace. It is already there when this returns.
    pub fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<T>> {
        // A new thread starts in the namespace of the thread that starts it.
        self.run(|| thread::Builder::new().name(name.to_owned()).spawn(work))?
            .named("start the thread", || name.to_owned())
    }

    /// Moves the calling thread into this namespace; does nothing where it is there already, since a process in a user
    /// namespace may not re-enter the host's network namespace even while it is in it.
    fn enter(&self) -> Result<()> {
        let present =
            File::open(CURRENT).named("open the network namespace of this thread at", || CURRENT.into())?;
        if inode(&present)? == self.id.inode {
            return Ok(());
        }
        sys::enter(self.file.as_fd(), sys::NamespaceKind::Net)
            .named("enter", || format!("network namespace {}", self.id.inode))
            .map_err(|error| {
                error.with_hint("it takes CAP_SYS_ADMIN in the user namespace that made it: run as root")
            })
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn inode(file: &File) -> Result<u64> {
    Ok(file.metadata().named("read the identity of", || "a network namespace".into())?.ino())
}

/// The cookie of the calling thread's namespace, where the kernel has one.
fn cookie_here() -> Result<Option<u64>> {
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::DGRAM, None)
        .named("open", || "a socket to identify the network namespace".into())?;
    match sys::netns_cookie(socket.as_fd()) {
        Ok(cookie) => Ok(Some(cookie)),
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(None),
        Err(error) => Err(HostError::os("read the cookie of", "a network namespace", error)),
    }
}

/// Runs `work` on a new thread and waits for it; a panic in `work` goes on in the caller.
fn on_own_thread<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> Result<T> {
    thread::scope(|scope| {
        let started = thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, work);
        let thread = started.named("start the thread", || name.to_owned())?;
        match thread.join() {
            Ok(value) => Ok(value),
            Err(panic) => panic::resume_unwind(panic),
        }
    })
}
