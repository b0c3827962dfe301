//! The request to stop: from a signal, or from the program itself.
//!
//! A [`Stop`] is a flag and a descriptor. Loops look at the flag between calls, [`Stop::requested`]; whoever waits adds
//! the descriptor to its poll set: it becomes readable with the first request and stays so, for any number of waiters.
//! System calls are restarted after a signal (`SA_RESTART`), so a blocked call does not return because of one.
//!
//! SIGPIPE needs nothing: Rust programs ignore it and get the error from the call. Two others end a process that has not spoken of
//! them, and are no wish to stop: [`outlive_strays`].

use std::fmt;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::error::{Named as _, Result};
use crate::sys;

/// A signal that asks haul to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Signal {
    /// SIGHUP: the terminal is gone.
    Hup,
    /// SIGINT: ^C.
    Int,
    /// SIGQUIT: ^\.
    Quit,
    /// SIGTERM: `kill`, or the system going down.
    Term,
}

impl Signal {
    /// All that [`Stop::install`] handles.
    pub const ALL: [Self; 4] = [Self::Hup, Self::Int, Self::Quit, Self::Term];

    /// The number, for `128 + number` and the like.
    #[must_use]
    pub fn number(self) -> i32 {
        match self {
            Self::Hup => SIGHUP,
            Self::Int => SIGINT,
            Self::Quit => SIGQUIT,
            Self::Term => SIGTERM,
        }
    }

    /// The number as the flag stores it; no signal has number 0.
    fn mark(self) -> usize {
        self.number().unsigned_abs() as usize
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Hup => "SIGHUP",
            Self::Int => "SIGINT",
            Self::Quit => "SIGQUIT",
            Self::Term => "SIGTERM",
        })
    }
}

/// Lets the process outlive two signals: SIGXFSZ, with which the kernel answers a write beyond `ulimit -f` (the call then fails
/// with `EFBIG`, which can be told), and SIGRTMIN, by which threads of haul end each other's waits
/// ([`crate::thread::accept_nudges`]) and which anybody may send before one of them handles it. For the start of a program.
pub fn outlive_strays() -> Result<()> {
    sys::ignore_nudges_and_limits().named("ignore", || "SIGXFSZ and SIGRTMIN".to_owned())
}

/// Sends a signal to a process that this one started and has not waited for yet, so that the number is still its own.
///
/// # Errors
/// The kernel's refusal.
pub fn send(child: u32, signal: Signal) -> Result<()> {
    sys::signal_process(child, signal.number()).named("send", || format!("{signal} to process {child}"))
}

/// Whether to stop, and why. Clones share the state.
#[derive(Debug, Clone)]
pub struct Stop(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// 0, or the number of the signal.
    flag: Arc<AtomicUsize>,
    wake: UnixStream,
    waker: UnixStream,
}

impl Stop {
    /// Handles SIGINT, SIGTERM, SIGHUP and SIGQUIT from now on, for the rest of the process's life: call it once.
    pub fn install() -> Result<Self> {
        let stop = Self::never()?;
        let Shared { flag, waker, .. } = &*stop.0;
        for signal in Signal::ALL {
            let object = || signal.to_string();
            // In this order: whoever is woken must find the flag set.
            signal_hook::flag::register_usize(signal.number(), Arc::clone(flag), signal.mark())
                .named("handle the signal", object)?;
            let waker = waker.try_clone().named("share the descriptor that wakes for", object)?;
            signal_hook::low_level::pipe::register(signal.number(), waker)
                .named("wake at the signal", object)?;
        }
        Ok(stop)
    }

    /// As [`install`](Self::install), and a second of the signals ends the process at once, with 128 and its number: for what
    /// changes nothing on this host, and may be in the middle of something long when the first one comes.
    pub fn install_hurried() -> Result<Self> {
        let asked = Arc::<AtomicBool>::default();
        for signal in Signal::ALL {
            let object = || signal.to_string();
            let (number, asked) = (signal.number(), Arc::clone(&asked));
            // In this order: the first must not find what it sets itself.
            signal_hook::flag::register_conditional_shutdown(number, 128 + number, Arc::clone(&asked))
                .named("handle the signal", object)?;
            signal_hook::flag::register(number, asked).named("handle the signal", object)?;
        }
        Self::install()
    }

    /// A stop that no signal requests.
    pub fn never() -> Result<Self> {
        let pair = || {
            let (wake, waker) = UnixStream::pair()?;
            wake.set_nonblocking(true)?;
            waker.set_nonblocking(true)?;
            io::Result::Ok((wake, waker))
        };
        let (wake, waker) = pair().named("make", || "the socket pair that wakes waiting threads".into())?;
        Ok(Self(Arc::new(Shared { flag: Arc::default(), wake, waker })))
    }

    /// The last signal that asked to stop.
    #[must_use]
    #[inline]
    pub fn requested(&self) -> Option<Signal> {
        let mark = self.0.flag.load(Ordering::Relaxed);
        if mark == 0 { None } else { Signal::ALL.into_iter().find(|signal| signal.mark() == mark) }
    }

    /// Asks to stop as the signal would.
    pub fn request(&self, signal: Signal) {
        self.0.flag.store(signal.mark(), Ordering::Relaxed);
        // A full pair has woken everybody already.
        let _ = (&self.0.waker).write(&[1]);
    }
}

impl AsFd for Stop {
    /// Readable from the first request on; nobody reads it empty.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.wake.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::socket::{Epoll, Interest};

    fn readable(stop: &Stop) -> bool {
        let mut epoll = Epoll::new(1).expect("epoll");
        epoll.add(stop.as_fd(), 7, Interest::READ).expect("add");
        let woken = epoll
            .wait(Duration::from_millis(200))
            .expect("wait")
            .map(|event| event.token)
            .collect::<Vec<_>>();
        woken == [7]
    }

    #[test]
    fn a_request_sets_the_flag_and_wakes_every_waiter() {
        let stop = Stop::never().expect("stop");
        let other = stop.clone();
        assert_eq!(other.requested(), None);
        assert!(!readable(&stop));
        stop.request(Signal::Term);
        assert_eq!(other.requested(), Some(Signal::Term));
        assert!(readable(&stop) && readable(&other), "the first waiter must not use up the wake-up");
    }

    #[test]
    fn each_of_the_four_signals_is_caught_and_named() {
        let stop = Stop::install().expect("install");
        for signal in Signal::ALL {
            signal_hook::low_level::raise(signal.number()).expect("raise");
            assert_eq!(stop.requested(), Some(signal), "{signal}");
        }
        assert!(readable(&stop));
    }
}
