//! Requests and responses over UDP: each a datagram, and any of them may be lost, late, or come twice.
//!
//! ```text
//! request    number, in the first min(8, request, response) bytes, big endian │ whatever
//! response   the same number                                                  │ whatever
//! leave      nothing at all, three times
//! ```
//!
//! A flow that may have n requests under way has n places. The number of a request is that of its place the first time, and n
//! more each time the place is taken again, so that a response names its place, and one that is late, or comes twice,
//! names a number that is over. What is not answered within the timeout is sent again under its number and goes on being
//! timed from its beginning.
//!
//! The responder answers requests of the right size from the peer its socket is connected to, one datagram for one, and
//! keeps nothing. It knows a hello that was sent again, behind the flow's making (see [`crate::datagram::door`]), by the
//! magic it begins with: a number that long begins with a zero.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use haul_host::clock;
use haul_host::socket::{self, Flags, Interest};
use haul_stats::MonoNanos;
use haul_wire::{HELLO_LEN, Hello};

use super::book::Page;
use super::schedule::Schedule;
use super::{Sizes, make_buffers, with_buffers};
use crate::engine::{Manner, Moved, Place, Work};
use crate::error::Result;

/// The longest a receive blocks, so that the stop flag is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// How long a requester that is to end waits for what is under way: as long as for any response, but not for ever.
const PATIENCE: Duration = Duration::from_millis(500);

/// Empty datagrams that say it is over: one may be lost, and all three at once is what the responder's own end by quiet is for.
const LEAVES: usize = 3;

/// The longest number: 8 bytes.
const NUMBER: usize = 8;

const NEVER: MonoNanos = MonoNanos(u64::MAX);

/// Has a blocked receive come back in time to send again.
pub(super) fn bound_waits(sockets: &[Arc<OwnedFd>], timeout: Duration) -> Result<()> {
    sockets
        .iter()
        .try_for_each(|socket| Ok(socket::set_timeouts(&socket.as_fd(), Some(timeout.min(LOOK)), None)?))
}

/// The length of the number in these messages.
fn number_length(sizes: Sizes) -> usize {
    NUMBER.min(sizes.request).min(sizes.response)
}

/// One request that may be under way.
#[derive(Debug, Clone, Copy)]
struct Slot {
    number: u64,
    start: MonoNanos,
    /// When to send it again; `None` while it waits to be sent.
    again: Option<MonoNanos>,
    under_way: bool,
}

/// The side that asks.
pub(crate) struct Requesting {
    sizes: Sizes,
    timeout: Duration,
    page: Page,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Slots whose request the kernel has yet to take.
    unsent: VecDeque<usize>,
    /// The times of an open loop.
    next: Option<Schedule>,
    /// No request is to be sent again before. It may be the time of one that has been answered since: whoever comes then
    /// looks for the next.
    look: MonoNanos,
    blocks: bool,
    ending: bool,
    patience: Option<MonoNanos>,
}

impl Requesting {
    pub(crate) fn new(sizes: Sizes, timeout: Duration, page: Page, manner: Manner) -> Result<Self> {
        // One byte more tells a response that is too long.
        make_buffers(sizes.response + 1, sizes.request)?;
        let slot = |place| Slot { number: place, start: MonoNanos(0), again: None, under_way: false };
        Ok(Self {
            sizes,
            timeout,
            page,
            slots: (0..sizes.in_flight as u64).map(slot).collect(),
            free: (0..sizes.in_flight).rev().collect(),
            unsent: VecDeque::with_capacity(sizes.in_flight),
            next: None,
            look: NEVER,
            blocks: manner == Manner::Block,
            ending: false,
            patience: None,
        })
    }

    fn under_way(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Begins as many more as are allowed, or due.
    #[inline]
    fn begin_more(&mut self, now: MonoNanos) {
        while !self.ending && !self.free.is_empty() {
            let start = match &mut self.next {
                None => now,
                Some(next) if next.next() <= now => {
                    let due = next.next();
                    next.advance();
                    due
                }
                Some(_) => return,
            };
            let Some(place) = self.free.pop() else { return };
            let slot = &mut self.slots[place];
            (slot.start, slot.again, slot.under_way) = (start, None, true);
            self.unsent.push_back(place);
            self.page.begin(1);
        }
    }

    /// Sends what has yet to be sent, as far as there is room.
    #[inline]
    fn flush(&mut self, fd: BorrowedFd<'_>, now: MonoNanos) -> io::Result<()> {
        let length = number_length(self.sizes);
        while let Some(&place) = self.unsent.front() {
            let slot = &mut self.slots[place];
            let sent = with_buffers(|_, outbox| {
                let request = &mut outbox[..self.sizes.request];
                request[..length].copy_from_slice(&slot.number.to_be_bytes()[NUMBER - length..]);
                socket::send(fd, request)
            });
            match sent {
                Ok(_) => {
                    let again = now.after(self.timeout);
                    slot.again = Some(again);
                    self.look = self.look.min(again);
                    self.unsent.pop_front();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Queues what has waited for its response too long, and finds out when to look again.
    fn send_again(&mut self, now: MonoNanos) {
        let mut look = NEVER;
        for (place, slot) in self.slots.iter_mut().enumerate() {
            match slot.again.filter(|_| slot.under_way) {
                Some(again) if again <= now => {
                    slot.again = None;
                    self.unsent.push_back(place);
                    self.page.resend();
                }
                Some(again) => look = look.min(again),
                None => {}
            }
        }
        self.look = look;
    }

    /// The slot whose request this is the response to.
    #[inline]
    fn answered(&self, response: &[u8]) -> Option<usize> {
        let length = number_length(self.sizes);
        if response.len() != self.sizes.response {
            return None;
        }
        let mut bytes = [0; NUMBER];
        bytes[NUMBER - length..].copy_from_slice(&response[..length]);
        let number = u64::from_be_bytes(bytes);
        // Several are told apart by whole numbers only, which the specification sees to.
        let place =
            number.checked_rem(self.slots.len() as u64).and_then(|place| usize::try_from(place).ok())?;
        let slot = &self.slots[place];
        let known = slot.number.to_be_bytes()[NUMBER - length..] == bytes[NUMBER - length..];
        (known && slot.under_way && slot.again.is_some()).then_some(place)
    }

    #[inline]
    fn complete(&mut self, place: usize, now: MonoNanos) {
        let step = self.slots.len() as u64;
        let slot = &mut self.slots[place];
        self.page.complete(slot.start, now);
        slot.number += step;
        slot.under_way = false;
        self.free.push(place);
    }
}

impl Work for Requesting {
    const LEADS: bool = true;
    const NAME: &'static str = "ask";
    const OWN_TABLE: bool = true;

    fn begin(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.next = self.page.schedule();
        if self.next.is_some() {
            return Ok(());
        }
        let now = clock::now();
        self.begin_more(now);
        self.flush(fd, now)
    }

    #[inline]
    fn step(&mut self, fd: BorrowedFd<'_>) -> io::Result<Moved> {
        let expecting = self.under_way();
        if self.next.is_some() || !self.unsent.is_empty() {
            let now = clock::now();
            self.begin_more(now);
            self.flush(fd, now)?;
        }
        // Blocked in a call it gets one; from epoll it takes what has come for all that are under way.
        let most = if self.blocks { expecting.min(1) } else { expecting };
        let mut complete = 0;
        for _ in 0..most {
            let answered = with_buffers(|inbox, _| {
                let room = self.sizes.response + 1;
                let received = socket::recv(fd, &mut inbox[..room], Flags::NONE)?;
                Ok(self.answered(&inbox[..received]))
            });
            let now = match answered {
                Ok(answered) => {
                    let now = clock::now();
                    if let Some(place) = answered {
                        self.complete(place, now);
                        complete += 1;
                    }
                    now
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let now = clock::now();
                    if now >= self.look {
                        self.send_again(now);
                        self.flush(fd, now)?;
                    }
                    break;
                }
                Err(error) => return Err(error),
            };
            if now >= self.look {
                self.send_again(now);
            }
            self.begin_more(now);
            self.flush(fd, now)?;
        }
        Ok(Moved::Units(complete))
    }

    fn interest(&self) -> Interest {
        if self.unsent.is_empty() { Interest::READ } else { Interest::READ | Interest::WRITE }
    }

    #[inline]
    fn due(&self) -> Option<MonoNanos> {
        let next = self.next.as_ref().filter(|_| !self.ending && !self.free.is_empty());
        let again = (self.under_way() > 0).then_some(self.look);
        next.map(Schedule::next).into_iter().chain(again).min()
    }

    #[inline]
    fn idle(&self) -> bool {
        self.under_way() == 0
    }

    fn wind_up(&mut self) -> bool {
        self.ending = true;
        if self.under_way() == 0 {
            return true;
        }
        let now = clock::now();
        now >= *self.patience.get_or_insert(now.after(self.timeout.min(PATIENCE)))
    }

    fn leave(&mut self, fd: BorrowedFd<'_>) {
        for _ in 0..LEAVES {
            // Nobody may be there any more, and there may be no room: see [`LEAVES`].
            let _ = socket::send(fd, &[]);
        }
    }
}

/// The side that answers.
pub(crate) struct Responding {
    sizes: Sizes,
    blocks: bool,
}

impl Responding {
    pub(crate) fn new(sizes: Sizes, place: Place) -> Result<Self> {
        make_buffers(sizes.request.max(HELLO_LEN) + 1, sizes.response)?;
        Ok(Self { sizes, blocks: place.manner == Manner::Block })
    }

    /// Takes one datagram and answers it; `None` where it was a leave.
    #[inline]
    fn answer(&self, fd: BorrowedFd<'_>) -> io::Result<Option<u64>> {
        let Sizes { request, response, .. } = self.sizes;
        let length = number_length(self.sizes);
        with_buffers(|inbox, outbox| {
            let received = socket::recv(fd, &mut inbox[..=request], Flags::NONE)?;
            if received == 0 {
                return Ok(None);
            }
            let hello = inbox.first_chunk::<HELLO_LEN>().filter(|_| received == HELLO_LEN);
            if received != request || hello.is_some_and(|hello| Hello::decode(hello).is_ok()) {
                return Ok(Some(0));
            }
            outbox[..length].copy_from_slice(&inbox[..length]);
            match socket::send(fd, &outbox[..response]) {
                Ok(_) => Ok(Some(1)),
                // It is lost here instead of further on: the requester will ask again.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Some(0)),
                Err(error) => Err(error),
            }
        })
    }
}

impl Work for Responding {
    const LEADS: bool = false;
    const NAME: &'static str = "answer";
    const OWN_TABLE: bool = true;

    #[inline]
    fn step(&mut self, fd: BorrowedFd<'_>) -> io::Result<Moved> {
        let most = if self.blocks { 1 } else { self.sizes.in_flight };
        let mut answered = 0;
        for _ in 0..most {
            match self.answer(fd) {
                Ok(Some(count)) => answered += count,
                Ok(None) => return Ok(Moved::End),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && answered > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(Moved::Units(answered))
    }
}
