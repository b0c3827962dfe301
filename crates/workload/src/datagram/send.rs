//! The sending side of one flow: one system call a step, of one datagram, a batch of them or a train.
//!
//! What one call hands over has one phase and one time, which every so many datagrams carry. A datagram that the kernel would not take for want of room in
//! the device's queue was sent and is lost; one that finds the socket's own buffer full was not, and waits.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use haul_host::clock;
use haul_host::socket::udp::{self, SendBatch};
use haul_host::socket::{self, Flags, PageBuffer};
use haul_stats::{ByteCount, MonoNanos};
use rand::{RngExt, SeedableRng, rngs::SmallRng};

use super::header::{Form, Phase};
use super::track::Count;
use crate::engine::{Moved, Work};
use crate::error::Result;

/// The most payload of one train: it is one packet of IP until it is cut up.
const TRAIN: u64 = 65_507;

/// `UDP_MAX_SEGMENTS` of include/linux/udp.h, and what it was before Linux 6.9.
const SEGMENTS: u64 = 128;
const OLD_SEGMENTS: usize = 64;

/// How long a path may hold back the last datagram before an end overtakes it.
const LEAVE_AFTER: Duration = Duration::from_millis(10);

/// Empty datagrams that say the end: each may be lost.
const FAREWELLS: u32 = 3;

/// How often a host may say that nobody listens before it is believed: a notice may be of an earlier flow.
const REFUSALS: u32 = 8;

/// The seed of the payload behind the header: noise, but the same in every run.
const PAYLOAD_SEED: u64 = 0x6861_756c;

/// Which phase the end is in; its watching thread says so, and the workers look before each call.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Stage(AtomicU8);

impl Stage {
    pub(super) fn set(&self, phase: Phase) {
        self.0.store(phase as u8, Ordering::Relaxed);
    }

    #[inline]
    fn get(&self) -> Phase {
        Phase::of(self.0.load(Ordering::Relaxed))
    }
}

/// What a sender counted of one flow, alone on its cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Tally {
    /// Datagrams handed over, by phase.
    pub(super) packets: [Count; 3],
    /// Of these, those that were refused.
    pub(super) refused: [Count; 3],
    /// The most in one call.
    pub(super) train: Count,
}

/// How often the other host said that nobody listens.
#[derive(Debug, Default)]
pub(super) struct Patience(u32);

impl Patience {
    /// Lets a few such notices pass; any other error is one.
    pub(super) fn try_with(&mut self, error: io::Error) -> io::Result<()> {
        if error.kind() != io::ErrorKind::ConnectionRefused || self.0 >= REFUSALS {
            return Err(error);
        }
        self.0 += 1;
        Ok(())
    }
}

/// What all ways of sending have in common.
pub(super) struct Course {
    message: usize,
    form: Form,
    /// The most datagrams in one call.
    per_call: usize,
    /// One datagram in so many carries the time.
    timed: u64,
    stage: Arc<Stage>,
    tally: Arc<Tally>,
    next: u64,
    patience: Patience,
}

impl Course {
    pub(super) fn new(
        message: ByteCount,
        per_call: usize,
        timed: u64,
        stage: Arc<Stage>,
        tally: Arc<Tally>,
    ) -> Self {
        tally.train.set(per_call as u64);
        Self {
            message: usize::try_from(message.0).unwrap_or(usize::MAX),
            form: Form::of(message.0),
            per_call,
            timed,
            stage,
            tally,
            next: 0,
            patience: Patience::default(),
        }
    }

    /// The phase of what is sent now, and the time, where one of so many datagrams carries it.
    #[inline]
    fn moment(&self, count: usize) -> (Phase, MonoNanos) {
        let until_next = self.next.wrapping_neg() % self.timed;
        let carried = self.form == Form::Time && until_next < count as u64;
        (self.stage.get(), if carried { clock::now() } else { MonoNanos::default() })
    }

    /// Writes the header of a datagram of this moment.
    #[inline]
    fn head(&self, message: &mut [u8], sequence: u64, (phase, now): (Phase, MonoNanos)) {
        let now = if sequence.is_multiple_of(self.timed) { now } else { MonoNanos::default() };
        self.form.write(message, phase, sequence, now);
    }

    /// So many were handed over.
    #[inline]
    fn sent(&mut self, phase: Phase, count: usize) -> Moved {
        let packets = count as u64;
        self.next += packets;
        self.tally.packets[phase as usize].add(packets);
        Moved::Units(packets * self.message as u64)
    }

    /// What an error of a call for so many leads to.
    #[cold]
    fn failed(&mut self, phase: Phase, count: usize, error: io::Error) -> io::Result<Moved> {
        if socket::lacks_room(&error) || error.kind() == io::ErrorKind::OutOfMemory {
            self.tally.refused[phase as usize].add(count as u64);
            return Ok(self.sent(phase, count));
        }
        if udp::too_large(&error) {
            let text = format!(
                "datagrams of {} bytes do not fit the path's MTU, and may not be cut up: give a smaller --message",
                self.message
            );
            return Err(io::Error::new(error.kind(), text));
        }
        self.patience.try_with(error).map(|()| Moved::Units(0))
    }
}

/// The datagrams one call hands over, at most: as many as fit a train. `budget` is what the pace allows a call.
pub(super) fn train(message: ByteCount, budget: Option<u64>) -> usize {
    let most = (TRAIN / message.0.max(1)).clamp(1, SEGMENTS);
    usize::try_from(most.min(budget.unwrap_or(u64::MAX))).unwrap_or(1)
}

fn noise(bytes: &mut [u8]) {
    SmallRng::seed_from_u64(PAYLOAD_SEED).fill(bytes);
}

/// Says the end.
fn farewell(fd: BorrowedFd<'_>) {
    for _ in 0..FAREWELLS {
        // Whoever is gone needs none, and for one that is lost there is the silence after it.
        let _ = socket::send_flags(fd, &[], Flags::DONTWAIT);
    }
}

/// One datagram a call.
pub(super) struct Sending {
    course: Course,
    buffer: PageBuffer,
}

impl Sending {
    pub(super) fn new(course: Course) -> Result<Self> {
        let mut buffer = PageBuffer::new(ByteCount(course.message as u64))?;
        noise(buffer.at_mut(0));
        Ok(Self { course, buffer })
    }

    /// Makes the next datagram.
    #[inline]
    fn make(&mut self) -> (Phase, &[u8]) {
        let moment = self.course.moment(1);
        let bytes = &mut self.buffer.at_mut(0)[..self.course.message];
        self.course.head(bytes, self.course.next, moment);
        (moment.0, bytes)
    }

    /// Makes one and writes it to `sink` instead of a socket.
    pub(super) fn spend(&mut self, sink: &mut impl io::Write) -> io::Result<u64> {
        let (phase, bytes) = self.make();
        let written = sink.write(bytes)? as u64;
        self.course.sent(phase, 1);
        Ok(written)
    }
}

impl Work for Sending {
    const LEADS: bool = true;
    const NAME: &'static str = "send";
    const OWN_TABLE: bool = true;
    const LEAVE_AFTER: Duration = LEAVE_AFTER;

    #[inline]
    fn step(&mut self, fd: BorrowedFd<'_>) -> io::Result<Moved> {
        let (phase, bytes) = self.make();
        match socket::send(fd, bytes) {
            Ok(_) => Ok(self.course.sent(phase, 1)),
            Err(error) => self.course.failed(phase, 1, error),
        }
    }

    fn leave(&mut self, fd: BorrowedFd<'_>) {
        farewell(fd);
    }
}

/// Many datagrams a call.
pub(super) struct BatchSending {
    course: Course,
    batch: SendBatch,
}

impl BatchSending {
    pub(super) fn new(course: Course) -> Result<Self> {
        let mut batch = SendBatch::new(course.per_call, course.message)?;
        (0..course.per_call).for_each(|index| noise(batch.message_mut(index)));
        Ok(Self { course, batch })
    }
}

impl Work for BatchSending {
    const LEADS: bool = true;
    const NAME: &'static str = "send";
    const OWN_TABLE: bool = true;
    const LEAVE_AFTER: Duration = LEAVE_AFTER;

    #[inline]
    fn step(&mut self, fd: BorrowedFd<'_>) -> io::Result<Moved> {
        let count = self.course.per_call;
        let moment @ (phase, _) = self.course.moment(count);
        for index in 0..count {
            self.course.head(self.batch.message_mut(index), self.course.next + index as u64, moment);
        }
        match self.batch.send(fd, 0..count, Flags::NONE) {
            Ok(sent) => Ok(self.course.sent(phase, sent)),
            // Only the first can fail the call: the others wait for the next.
            Err(error) => self.course.failed(phase, 1, error),
        }
    }

    fn leave(&mut self, fd: BorrowedFd<'_>) {
        farewell(fd);
    }
}

/// A train of datagrams a call, which the kernel or the device cuts up.
pub(super) struct TrainSending {
    course: Course,
    buffer: PageBuffer,
}

impl TrainSending {
    pub(super) fn new(course: Course) -> Result<Self> {
        let mut buffer = PageBuffer::new(ByteCount((course.per_call * course.message) as u64))?;
        noise(buffer.at_mut(0));
        Ok(Self { course, buffer })
    }
}

impl Work for TrainSending {
    const LEADS: bool = true;
    const NAME: &'static str = "send";
    const OWN_TABLE: bool = true;
    const LEAVE_AFTER: Duration = LEAVE_AFTER;

    #[inline]
    fn step(&mut self, fd: BorrowedFd<'_>) -> io::Result<Moved> {
        let count = self.course.per_call;
        let moment @ (phase, _) = self.course.moment(count);
        let bytes = &mut self.buffer.at_mut(0)[..count * self.course.message];
        for (segment, sequence) in bytes.chunks_exact_mut(self.course.message).zip(self.course.next..) {
            self.course.head(segment, sequence, moment);
        }
        match socket::send(fd, bytes) {
            Ok(_) => Ok(self.course.sent(phase, count)),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput && count > OLD_SEGMENTS => {
                self.course.per_call = OLD_SEGMENTS;
                self.course.tally.train.set(OLD_SEGMENTS as u64);
                Ok(Moved::Units(0))
            }
            Err(error) => self.course.failed(phase, count, error),
        }
    }

    fn leave(&mut self, fd: BorrowedFd<'_>) {
        farewell(fd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_datagram_in_so_many_carries_the_time_however_many_a_call_hands_over() {
        for (timed, per_call) in [(1, 1), (1, 46), (16, 1), (16, 5), (16, 16), (16, 46)] {
            let mut course =
                Course::new(ByteCount(100), per_call, timed, Arc::default(), Arc::<Tally>::default());
            for _ in 0..200 {
                let moment = course.moment(per_call);
                for sequence in (course.next..).take(per_call) {
                    let mut message = [0; 100];
                    course.head(&mut message, sequence, moment);
                    let header = course.form.read(&message).expect("payload");
                    assert_eq!(header.sequence, Some(sequence));
                    assert_eq!(header.sent.is_some(), sequence.is_multiple_of(timed), "{timed} {per_call}");
                }
                course.sent(moment.0, per_call);
            }
        }
    }

    #[test]
    fn a_train_is_what_one_packet_holds_and_a_pace_makes_it_shorter() {
        for (message, budget, datagrams) in [
            (1400, None, 46),
            (1, None, 128),
            (65_507, None, 1),
            (1400, Some(8), 8),
            (1400, Some(1), 1),
            (1400, Some(u64::MAX), 46),
        ] {
            assert_eq!(train(ByteCount(message), budget), datagrams, "{message} {budget:?}");
        }
    }

    #[test]
    fn a_few_notices_that_nobody_listens_are_let_pass_and_no_other_error_is() {
        let mut patience = Patience::default();
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        for _ in 0..REFUSALS {
            patience.try_with(refused()).expect("patience");
        }
        assert_eq!(
            patience.try_with(refused()).expect_err("enough").kind(),
            io::ErrorKind::ConnectionRefused
        );
        let full = Patience::default().try_with(io::ErrorKind::WouldBlock.into());
        assert_eq!(full.expect_err("the engine waits").kind(), io::ErrorKind::WouldBlock);
    }
}
