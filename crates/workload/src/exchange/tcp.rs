//! Requests and responses over TCP: counted bytes, in order.
//!
//! What is sent is a run of equal messages, so that a send need not know where in one it begins, and what is received is
//! only counted. A request that is begun is written whole, in one send, with whatever others are begun at the same time.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use haul_host::clock;
use haul_host::socket::{self, Flags, Interest};
use haul_stats::MonoNanos;

use super::book::Page;
use super::schedule::Schedule;
use super::{Sizes, make_buffers, with_buffers};
use crate::engine::{Moved, Work};
use crate::error::Result;

/// When the transactions under way began. What few flows need is kept apart: with thousands of them, how many cache lines
/// of a flow are touched is what a transaction costs.
#[derive(Debug)]
enum Starts {
    /// The only one, when the one before was complete.
    One(MonoNanos),
    /// Each when another was complete.
    Closed(VecDeque<MonoNanos>),
    /// When they were due.
    Open(Box<Due>),
}

/// An open loop's schedule, seen twice.
#[derive(Debug)]
struct Due {
    next: Schedule,
    /// That of the oldest transaction that is not complete.
    oldest: Schedule,
}

/// Sends what is left of a run of messages, as far as the kernel takes it now, and says how much it took. Waiting for room is
/// no error; a nudge is one where nothing had been taken.
#[inline]
pub(crate) fn send_run(fd: BorrowedFd<'_>, run: &[u8], bytes: usize) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes {
        match socket::send(fd, &run[..run.len().min(bytes - sent)]) {
            Ok(taken) => sent += taken,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted && sent > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}

/// How many bytes to receive at most, and how. Of one message under way the whole rest is waited for in one call.
#[inline]
fn reception(sizes: Sizes, message: usize, got: usize) -> (usize, Flags) {
    if sizes.in_flight == 1 { (message - got, Flags::WAITALL) } else { (sizes.span(message), Flags::NONE) }
}

/// The side that asks.
pub(crate) struct Requesting {
    sizes: Sizes,
    page: Page,
    starts: Starts,
    under_way: usize,
    /// Bytes of requests begun that the kernel has not taken.
    unsent: usize,
    /// Bytes of the response that has come in part.
    got: usize,
    ending: bool,
}

impl Requesting {
    pub(crate) fn new(sizes: Sizes, page: Page) -> Result<Self> {
        make_buffers(sizes.span(sizes.response), sizes.span(sizes.request))?;
        Ok(Self {
            sizes,
            page,
            starts: Starts::One(MonoNanos(0)),
            under_way: 0,
            unsent: 0,
            got: 0,
            ending: false,
        })
    }

    /// Begins as many more as are allowed, or due.
    #[inline]
    fn begin_more(&mut self, now: MonoNanos) {
        let room = if self.ending { 0 } else { self.sizes.in_flight - self.under_way };
        let mut count = 0;
        match &mut self.starts {
            Starts::One(start) => {
                count = room;
                *start = now;
            }
            Starts::Closed(starts) => {
                count = room;
                starts.extend(std::iter::repeat_n(now, room));
            }
            Starts::Open(due) => {
                while count < room && due.next.next() <= now {
                    due.next.advance();
                    count += 1;
                }
            }
        }
        if count > 0 {
            self.under_way += count;
            self.unsent += count * self.sizes.request;
            self.page.begin(count as u64);
        }
    }

    #[inline]
    fn flush(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        if self.unsent > 0 {
            let span = self.sizes.span(self.sizes.request);
            self.unsent -= with_buffers(|_, outbox| send_run(fd, &outbox[..span], self.unsent))?;
        }
        Ok(())
    }

    /// Receives once; how many responses that completed.
    #[inline]
    fn receive(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let (most, flags) = reception(self.sizes, self.sizes.response, self.got);
        let received = with_buffers(|inbox, _| socket::recv(fd, &mut inbox[..most], flags))?;
        if received == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
        }
        self.got += received;
        let complete = self.got / self.sizes.response;
        self.got -= complete * self.sizes.response;
        if complete > self.under_way || (self.got > 0 && complete == self.under_way) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the server sent more than was asked for",
            ));
        }
        Ok(complete)
    }

    #[inline]
    fn complete(&mut self, count: usize, now: MonoNanos) {
        for _ in 0..count {
            let start = match &mut self.starts {
                Starts::One(start) => *start,
                Starts::Closed(starts) => starts.pop_front().unwrap_or(now),
                Starts::Open(due) => {
                    let start = due.oldest.next();
                    due.oldest.advance();
                    start
                }
            };
            self.page.complete(start, now);
        }
        self.under_way -= count;
    }
}

impl Work for Requesting {
    const LEADS: bool = true;
    const NAME: &'static str = "ask";
    const OWN_TABLE: bool = true;

    fn begin(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        if let Some(schedule) = self.page.schedule() {
            self.starts = Starts::Open(Box::new(Due { next: schedule.clone(), oldest: schedule }));
            return Ok(());
        }
        if self.sizes.in_flight > 1 {
            self.starts = Starts::Closed(VecDeque::with_capacity(self.sizes.in_flight));
        }
        self.begin_more(clock::now());
        self.flush(fd)
    }

    #[inline]
    fn step(&mut self, fd: BorrowedFd<'_>) -> io::Result<Moved> {
        let expecting = self.under_way > 0;
        if matches!(self.starts, Starts::Open(_)) {
            self.begin_more(clock::now());
        }
        let unsent = self.unsent;
        self.flush(fd)?;
        if !expecting {
            return Ok(Moved::Units(0));
        }
        match self.receive(fd) {
            Ok(0) => Ok(Moved::Units(0)),
            Ok(complete) => {
                let now = clock::now();
                self.complete(complete, now);
                self.begin_more(now);
                self.flush(fd)?;
                Ok(Moved::Units(complete as u64))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.unsent < unsent => {
                Ok(Moved::Units(0))
            }
            Err(error) => Err(error),
        }
    }

    fn interest(&self) -> Interest {
        if self.unsent > 0 { Interest::READ | Interest::WRITE } else { Interest::READ }
    }

    #[inline]
    fn due(&self) -> Option<MonoNanos> {
        match &self.starts {
            Starts::Open(due) if !self.ending && self.under_way < self.sizes.in_flight => {
                Some(due.next.next())
            }
            _ => None,
        }
    }

    #[inline]
    fn idle(&self) -> bool {
        self.under_way == 0
    }

    fn wind_up(&mut self) -> bool {
        self.ending = true;
        self.under_way == 0
    }
}

/// The side that answers.
pub(crate) struct Responding {
    sizes: Sizes,
    /// Bytes of the request that has come in part.
    got: usize,
    /// Bytes of responses that the kernel has not taken.
    owed: usize,
}

impl Responding {
    pub(crate) fn new(sizes: Sizes) -> Result<Self> {
        make_buffers(sizes.span(sizes.request), sizes.span(sizes.response))?;
        Ok(Self { sizes, got: 0, owed: 0 })
    }
}

impl Work for Responding {
    const LEADS: bool = false;
    const NAME: &'static str = "answer";
    const OWN_TABLE: bool = true;

    #[inline]
    fn step(&mut self, fd: BorrowedFd<'_>) -> io::Result<Moved> {
        let Sizes { request, response, .. } = self.sizes;
        if self.owed == 0 {
            let (most, flags) = reception(self.sizes, request, self.got);
            let received = with_buffers(|inbox, _| socket::recv(fd, &mut inbox[..most], flags))?;
            if received == 0 {
                return Ok(Moved::End);
            }
            self.got += received;
            self.owed = self.got / request * response;
            self.got %= request;
        }
        let owed = self.owed;
        if owed > 0 {
            let span = self.sizes.span(response);
            self.owed -= with_buffers(|_, outbox| send_run(fd, &outbox[..span], owed))?;
        }
        Ok(Moved::Units((owed.div_ceil(response) - self.owed.div_ceil(response)) as u64))
    }

    fn interest(&self) -> Interest {
        if self.owed > 0 { Interest::WRITE } else { Interest::READ }
    }
}
