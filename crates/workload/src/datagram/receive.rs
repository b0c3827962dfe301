//! The receiving side of one flow: one system call a step, and every datagram it gives taken note of.
//!
//! The clock is read for a datagram that carries a time and for the next, and once a call at most: the datagrams of one
//! call came together, as far as can be told. An empty datagram is the
//! sender's end, and so is a socket that was shut down, which looks the same.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use haul_host::clock;
use haul_host::socket::udp::{self, RecvBatch};
use haul_host::socket::{self, Flags, PageBuffer};
use haul_stats::{ByteCount, MonoNanos};
use haul_wire::HELLO_LEN;

use super::header::{Form, Phase};
use super::send::Patience;
use super::track::{Gaps, Seen, Tracker};
use crate::engine::{Moved, Work};
use crate::error::Result;

/// Room for what the kernel joins: 64 KiB, as a packet has at most.
const JOINED: u64 = 64 << 10;

/// Takes note of datagrams, however they are received.
pub(super) struct Taking {
    message: usize,
    form: Form,
    tracker: Tracker,
    gaps: Arc<Gaps>,
    /// One arrival in so many is timed, where none carries a time.
    timed: u64,
    arrivals: u64,
    /// When the last datagram came, where that was timed.
    last: Option<MonoNanos>,
    patience: Patience,
}

impl Taking {
    pub(super) fn new(message: ByteCount, timed: u64, seen: Arc<Seen>, gaps: Arc<Gaps>) -> Self {
        Self {
            message: usize::try_from(message.0).unwrap_or(usize::MAX),
            form: Form::of(message.0),
            tracker: Tracker::new(seen),
            gaps,
            timed,
            arrivals: 0,
            last: None,
            patience: Patience::default(),
        }
    }

    /// Room for a datagram, and for one byte more: so one that is too long shows.
    fn room(&self) -> usize {
        self.message.max(HELLO_LEN) + 1
    }

    /// Takes the datagrams that came in one call; the payload that is new.
    #[inline]
    fn take<'a>(&mut self, datagrams: impl Iterator<Item = &'a [u8]>) -> Moved {
        let (mut now, mut units) = (None, 0);
        for datagram in datagrams {
            let header = self.form.read(datagram).filter(|_| datagram.len() == self.message);
            let Some(header) = header else {
                self.tracker.seen.foreign.add(1);
                continue;
            };
            self.arrivals += 1;
            let timed = match self.form {
                Form::Time => header.sent.is_some(),
                Form::Count | Form::Sequence => self.arrivals.is_multiple_of(self.timed),
            };
            let mut at = MonoNanos::default();
            if timed || self.last.is_some() {
                at = *now.get_or_insert_with(clock::now);
                if let Some(last) = self.last.take().filter(|_| header.phase == Phase::Window) {
                    self.gaps.add(at.0.saturating_sub(last.0), 1);
                }
                self.last = timed.then_some(at);
            }
            if self.tracker.take(header, at) {
                units += self.message as u64;
            }
        }
        Moved::Units(units)
    }

    #[cold]
    fn failed(&mut self, error: io::Error) -> io::Result<Moved> {
        self.patience.try_with(error).map(|()| Moved::Units(0))
    }
}

/// One datagram a call.
pub(super) struct Receiving {
    taking: Taking,
    buffer: PageBuffer,
}

impl Receiving {
    pub(super) fn new(taking: Taking) -> Result<Self> {
        let buffer = PageBuffer::new(ByteCount(taking.room() as u64))?;
        Ok(Self { taking, buffer })
    }
}

impl Work for Receiving {
    const LEADS: bool = false;
    const NAME: &'static str = "recv";
    const OWN_TABLE: bool = true;

    #[inline]
    fn step(&mut self, fd: BorrowedFd<'_>) -> io::Result<Moved> {
        let buffer = self.buffer.at_mut(0);
        match socket::recv(fd, buffer, Flags::NONE) {
            Ok(0) => Ok(Moved::End),
            Ok(length) => Ok(self.taking.take(std::iter::once(&buffer[..length]))),
            Err(error) => self.taking.failed(error),
        }
    }
}

/// Many datagrams a call.
pub(super) struct BatchReceiving {
    taking: Taking,
    batch: RecvBatch,
    /// The end came behind datagrams that had to be counted first.
    ended: bool,
}

impl BatchReceiving {
    pub(super) fn new(taking: Taking, batch: u32) -> Result<Self> {
        let batch = RecvBatch::new(batch as usize, taking.room())?;
        Ok(Self { taking, batch, ended: false })
    }
}

impl Work for BatchReceiving {
    const LEADS: bool = false;
    const NAME: &'static str = "recv";
    const OWN_TABLE: bool = true;

    #[inline]
    fn step(&mut self, fd: BorrowedFd<'_>) -> io::Result<Moved> {
        if self.ended {
            return Ok(Moved::End);
        }
        if let Err(error) = self.batch.recv(fd, Flags::WAITFORONE) {
            return self.taking.failed(error);
        }
        let mut came = 0;
        let datagrams = self.batch.messages().map(|message| message.bytes);
        let whole = datagrams.take_while(|bytes| {
            self.ended = bytes.is_empty();
            came += usize::from(!self.ended);
            !self.ended
        });
        let moved = self.taking.take(whole);
        Ok(if came == 0 { Moved::End } else { moved })
    }

    /// At once, where the end is known already.
    fn due(&self) -> Option<MonoNanos> {
        self.ended.then(MonoNanos::default)
    }
}

/// Several datagrams a call, where the kernel has joined them.
pub(super) struct TrainReceiving {
    taking: Taking,
    buffer: PageBuffer,
}

impl TrainReceiving {
    pub(super) fn new(taking: Taking) -> Result<Self> {
        Ok(Self { taking, buffer: PageBuffer::new(ByteCount(JOINED))? })
    }
}

impl Work for TrainReceiving {
    const LEADS: bool = false;
    const NAME: &'static str = "recv";
    const OWN_TABLE: bool = true;

    #[inline]
    fn step(&mut self, fd: BorrowedFd<'_>) -> io::Result<Moved> {
        let received = match udp::recv_segments(fd, self.buffer.at_mut(0), Flags::NONE) {
            Ok(received) if received.bytes.is_empty() => return Ok(Moved::End),
            Ok(received) => received,
            Err(error) => return self.taking.failed(error),
        };
        let mut count = 0;
        let moved = self.taking.take(received.datagrams().inspect(|_| count += 1));
        let seen = &self.taking.tracker.seen;
        seen.receives.add(1);
        seen.joined.add(count);
        Ok(moved)
    }
}
