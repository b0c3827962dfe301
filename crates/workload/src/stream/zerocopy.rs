//! Sending without a copy: a ring of buffers, each written again only when the kernel has said that it is free.
//!
//! ```text
//! free ── take, stamp ──▶ current ── send, send, … ──▶ outstanding ── a notice for every send of it ──▶ free
//! ```
//!
//! The buffer freed last is used next: where notices come at once, as on one host, two or three of them stay in the
//! cache, and only a long path walks the whole ring. With no buffer free the flow waits for a notice; what is outstanding
//! is bounded by the ring.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use haul_host::socket::{self, PageBuffer};
use haul_stats::ByteCount;

use super::{PAGE, Quota, fill, length, stamp};
use crate::engine::{Moved, Work};
use crate::error::Result;
use crate::spec::Payload;

/// The rings of all flows of an end together: what 10 Gbit/s have under way in 50 ms.
const RINGS: usize = 64 << 20;

/// The most one flow takes of it: the kernel's own limit on a send buffer (`tcp_wmem`) is 4 MiB by default.
const RING: usize = 8 << 20;

/// The most buffers of a ring, for small messages: their notices are bounded by `net.core.optmem_max` as well.
const MOST_BUFFERS: usize = 256;

/// Sends between two looks at the error queue. Notices of adjacent sends are merged there, so looking seldom is cheap,
/// and looking too seldom walks more of the ring than the cache holds.
const LOOK_EVERY: u32 = 4;

/// What became of a flow's sends: one writer, read while it runs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Tally {
    completed: AtomicU64,
    copied: AtomicU64,
}

impl Tally {
    fn add(&self, calls: u32, copied: bool) {
        let add = |to: &AtomicU64| to.store(to.load(Ordering::Relaxed) + u64::from(calls), Ordering::Relaxed);
        if copied {
            add(&self.copied);
        }
        add(&self.completed);
    }

    /// Send calls completed, and how many of them the kernel copied.
    pub(crate) fn get(&self) -> (u64, u64) {
        let completed = self.completed.load(Ordering::Relaxed);
        // Read later, it may be ahead by one notice.
        (completed, self.copied.load(Ordering::Relaxed).min(completed))
    }
}

/// Which buffer each send without a notice was from, and how much each buffer still owes.
#[derive(Debug, Default)]
struct Outstanding {
    /// The kernel's number of the first entry of `sends`.
    first: u32,
    sends: VecDeque<Option<usize>>,
    owed: Vec<u32>,
    free: Vec<usize>,
}

impl Outstanding {
    fn new(buffers: usize) -> Self {
        Self { owed: vec![0; buffers], free: (0..buffers).rev().collect(), ..Self::default() }
    }

    /// Takes a free buffer. It counts as owed until [`Outstanding::done`].
    fn take(&mut self) -> Option<usize> {
        let buffer = self.free.pop()?;
        self.owed[buffer] = 1;
        Some(buffer)
    }

    /// A send of `buffer` was taken by the kernel.
    fn sent(&mut self, buffer: usize) {
        self.owed[buffer] += 1;
        self.sends.push_back(Some(buffer));
    }

    /// The whole of `buffer` has been sent.
    fn done(&mut self, buffer: usize) {
        self.owed[buffer] -= 1;
        if self.owed[buffer] == 0 {
            self.free.push(buffer);
        }
    }

    /// A notice for the sends numbered `first` to `last`. Numbers that are not outstanding are nobody's.
    fn completed(&mut self, first: u32, last: u32) {
        let held = u32::try_from(self.sends.len()).unwrap_or(u32::MAX);
        // Relative to the oldest outstanding send, which makes the wrap at 2^32 disappear.
        let (from, to) = (first.wrapping_sub(self.first), last.wrapping_sub(self.first));
        for place in from..=to.min(held.saturating_sub(1)) {
            if let Some(buffer) = self.sends.get_mut(place as usize).and_then(Option::take) {
                self.done(buffer);
            }
        }
        while let Some(None) = self.sends.front() {
            self.sends.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }
}

/// The sending side of one flow that sends without a copy.
pub(crate) struct ZerocopySending {
    ring: PageBuffer,
    stride: usize,
    offset: usize,
    message: usize,
    /// The buffer being sent, and how much of it has gone.
    current: Option<(usize, usize)>,
    outstanding: Outstanding,
    stamp: Option<u64>,
    since_look: u32,
    tally: Arc<Tally>,
    quota: Quota,
}

impl ZerocopySending {
    /// Makes the ring of flow `index` of `flows`; each buffer begins `offset` bytes past a page.
    pub(crate) fn new(
        message: ByteCount,
        offset: ByteCount,
        payload: Payload,
        (index, flows): (u32, u32),
        (tally, quota): (Arc<Tally>, Quota),
    ) -> Result<Self> {
        let (message, offset) = (length(message)?, length(offset)?);
        let stride = (message + offset).next_multiple_of(PAGE);
        let share = (RINGS / flows.max(1) as usize).min(RING);
        let buffers = (share / stride).clamp(2, MOST_BUFFERS);
        let mut ring = PageBuffer::new(ByteCount((buffers * stride) as u64))?;
        fill(ring.at_mut(0));
        Ok(Self {
            ring,
            stride,
            offset,
            message,
            current: None,
            outstanding: Outstanding::new(buffers),
            stamp: (payload != Payload::Repeat).then_some(u64::from(index) << 40),
            since_look: 0,
            tally,
            quota,
        })
    }

    fn start_of(&self, buffer: usize) -> usize {
        buffer * self.stride + self.offset
    }

    /// Reads the notices there are; false where there were none.
    fn look(&mut self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        self.since_look = 0;
        let mut any = false;
        while let Some(done) = socket::completion(fd)? {
            any = true;
            self.tally.add(done.calls(), done.copied);
            self.outstanding.completed(done.first, done.last);
            if self.outstanding.sends.is_empty() {
                break;
            }
        }
        Ok(any)
    }

    /// The buffer to send from and how much of it has gone, a new one stamped; `None` where none is free.
    #[inline]
    fn next(&mut self) -> Option<(usize, usize)> {
        if self.current.is_none() {
            let buffer = self.outstanding.take()?;
            let begin = self.start_of(buffer);
            if let Some(count) = self.stamp.as_mut() {
                stamp(&mut self.ring.at_mut(begin)[..self.message], count);
            }
            self.current = Some((buffer, 0));
        }
        self.current
    }
}

impl Work for ZerocopySending {
    const LEADS: bool = true;
    const NAME: &'static str = "send";

    #[inline]
    fn step(&mut self, fd: BorrowedFd<'_>) -> io::Result<Moved> {
        if self.quota.is_spent() {
            return Ok(Moved::End);
        }
        if self.since_look >= LOOK_EVERY || (self.current.is_none() && self.outstanding.free.is_empty()) {
            self.look(fd)?;
        }
        let Some((buffer, gone)) = self.next() else { return Ok(Moved::Waits) };
        let end = gone + self.quota.cap(self.message - gone);
        let bytes = &self.ring.at(self.start_of(buffer))[gone..end];
        match socket::send_zerocopy(fd, bytes) {
            Ok(sent) => {
                self.since_look += 1;
                self.quota.spend(sent);
                self.outstanding.sent(buffer);
                if gone + sent >= self.message {
                    self.outstanding.done(buffer);
                    self.current = None;
                } else {
                    self.current = Some((buffer, gone + sent));
                }
                Ok(Moved::Units(sent as u64))
            }
            Err(error) if socket::lacks_room(&error) => {
                if self.look(fd)? {
                    Ok(Moved::Units(0))
                } else if self.outstanding.sends.is_empty() {
                    let text = "no memory may be locked to send it from: raise 'ulimit -l', or use --send-with write";
                    Err(io::Error::new(io::ErrorKind::OutOfMemory, text))
                } else {
                    Ok(Moved::Waits)
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // Notices left in the queue would wake the wait for room at once, again and again.
                self.look(fd)?;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    fn settle(&mut self, fd: BorrowedFd<'_>) -> bool {
        self.look(fd).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Read as _;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::os::fd::AsFd as _;

    #[test]
    fn a_buffer_is_free_again_when_all_of_its_sends_are_completed_and_not_before() {
        let mut ring = Outstanding::new(2);
        let a = ring.take().expect("free");
        ring.sent(a);
        ring.sent(a);
        ring.completed(0, 1);
        assert_eq!(ring.free.len(), 1, "its end has not been sent");
        ring.sent(a);
        ring.done(a);
        let b = ring.take().expect("free");
        ring.sent(b);
        ring.done(b);
        assert_eq!(ring.take(), None, "both are on the wire");
        ring.completed(3, 3);
        assert_eq!(ring.take(), Some(b), "a later send may complete first");
        ring.completed(2, 2);
        assert_eq!(ring.take(), Some(a));
        ring.completed(0, u32::MAX);
        assert!(ring.free.is_empty(), "nobody's numbers free nothing");
    }

    proptest! {
        #[test]
        fn whatever_the_order_of_notices_each_buffer_is_freed_once(
            start in prop_oneof![Just(0), Just(u32::MAX - 3), any::<u32>()],
            steps in proptest::collection::vec((0..3_u8, 0..8_u32, 0..4_u32), 1..200),
        ) {
            let mut ring = Outstanding::new(4);
            ring.first = start;
            let mut next = start;
            let mut current = None;
            for (what, at, more) in steps {
                match what {
                    0 => current = current.or_else(|| ring.take()),
                    1 => if let Some(buffer) = current {
                        ring.sent(buffer);
                        next = next.wrapping_add(1);
                        if more == 0 {
                            ring.done(buffer);
                            current = None;
                        }
                    },
                    _ => {
                        let from = ring.first.wrapping_add(at);
                        ring.completed(from, from.wrapping_add(more));
                    }
                }
                let mut free = ring.free.clone();
                free.sort_unstable();
                free.dedup();
                prop_assert_eq!(free.len(), ring.free.len(), "a buffer was freed twice");
                prop_assert!(current.is_none_or(|buffer| !free.contains(&buffer)));
                let held = u32::try_from(ring.sends.len()).expect("a few");
                prop_assert_eq!(ring.first.wrapping_add(held), next);
            }
            ring.completed(ring.first, next.wrapping_sub(1));
            prop_assert_eq!(ring.free.len() + usize::from(current.is_some()), 4);
        }
    }

    #[test]
    fn what_is_sent_without_a_copy_arrives_as_it_was_stamped_and_is_tallied() {
        let (message, offset) = (ByteCount(20_000), ByteCount(3));
        let tally = Arc::<Tally>::default();
        let mut sending = ZerocopySending::new(
            message,
            offset,
            Payload::Stamped,
            (0, 1),
            (Arc::clone(&tally), Quota::NONE),
        )
        .expect("ring");
        assert_eq!(sending.ring.at(sending.start_of(1)).as_ptr().addr() % PAGE, 3);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listen");
        let client = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        socket::enable_zerocopy(client.as_fd()).expect("SO_ZEROCOPY");
        let (mut server, _) = listener.accept().expect("accept");
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            server.read_to_end(&mut all).expect("read");
            all
        });
        let mut total = 0;
        while total < 100 * message.0 {
            match sending.step(client.as_fd()).expect("step") {
                Moved::Units(bytes) => total += bytes,
                Moved::Waits => drop(socket::await_notice(client.as_fd(), std::time::Duration::from_secs(5))),
                Moved::End => panic!("a sender does not end by itself"),
            }
        }
        while !sending.outstanding.sends.is_empty() {
            let limit = std::time::Duration::from_secs(5);
            assert!(socket::await_notice(client.as_fd(), limit).expect("poll"), "a notice is missing");
            sending.look(client.as_fd()).expect("look");
        }
        drop(client);
        let got = reader.join().expect("reader");
        assert_eq!(got.len() as u64, total);
        let mut expected = 0_u64;
        for message in got.chunks_exact(20_000) {
            for block in message.chunks(super::super::STAMP_EVERY) {
                let stamp = block.first_chunk().map(|stamp| u64::from_ne_bytes(*stamp));
                assert_eq!(stamp, Some(expected), "a buffer was written again while it was on the wire");
                expected += 1;
            }
        }
        let (completed, copied) = tally.get();
        assert!(completed >= 100 && copied == completed, "{copied} of {completed}");
        let owed = usize::from(sending.current.is_some());
        assert_eq!(
            sending.outstanding.free.len() + owed,
            sending.outstanding.owed.len(),
            "all are free again"
        );
    }
}
