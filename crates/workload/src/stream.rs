//! The stream workload: one send, or one receive, each time a flow's socket is ready.
//!
//! What a sender sends is decided by [`Source`]. The default stamps a running count into every 16 KiB of one buffer
//! before each message: no 32 KiB of payload ever repeat, and the source stays in the cache, as it does for a program
//! that has just made its data. Walking 64 MiB of random data instead ([`Payload::Fresh`]) measures the memory system
//! with the path: on a 2 MiB-L2 Xeon that costs half of the loopback throughput.
//!
//! How it is sent decides the type: [`Sending`] copies from a buffer, [`FileSending`] hands over pages of a file,
//! [`ZerocopySending`] those of a ring of buffers.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, OnceLock};

use haul_host::socket::{self, Flags, PageBuffer};
use haul_stats::ByteCount;
use rand::{RngExt, SeedableRng, rngs::SmallRng};

use crate::ceiling;
use crate::end::{Ends, Ledger, NoLedger, Workers};
use crate::engine::{Engine, Manner, Moved, Work};
use crate::error::{Result, WorkloadError};
use crate::legs::Flows;
use crate::mode::{RecvWith, SendWith};
use crate::pace::Bucket;
use crate::report::{Detail, Role, ZerocopyReport};
use crate::spec::{Payload, RunSpec, SpecError};

mod file;
mod mapped;
mod zerocopy;

pub(crate) use file::FileSending;
pub(crate) use file::source;
use mapped::{MappedLedger, MappedReceiving, Share};
pub(crate) use zerocopy::{Tally, ZerocopySending};

/// A stamp for every so many bytes: no 32 KiB of payload are ever the same. A stamp for every full Ethernet frame (1,408
/// bytes) cost 4 to 7 % of the throughput of a veth pair against the bare loop, on a quiet machine: the copy reads lines
/// that have just been written.
const STAMP_EVERY: usize = 16 << 10;

/// The span within which [`Payload::Fresh`] does not repeat.
const FRESH_SPAN: usize = 64 << 20;

/// More than any offset past a page boundary.
const PAGE: usize = 4096;

/// The seed of the payload: it is noise, but the same noise in every run.
const PAYLOAD_SEED: u64 = 0x6861_756c;

/// What became of the sends without a copy.
#[derive(Debug)]
struct ZerocopyLedger {
    tallies: Vec<Arc<Tally>>,
    opening: Option<ZerocopyReport>,
    closing: Option<ZerocopyReport>,
}

impl ZerocopyLedger {
    fn read(&self) -> ZerocopyReport {
        self.tallies.iter().fold(ZerocopyReport::default(), |sum, tally| {
            let (completed, copied) = tally.get();
            ZerocopyReport { completed: sum.completed + completed, copied: sum.copied + copied }
        })
    }
}

impl Ledger for ZerocopyLedger {
    fn open(&mut self) {
        self.opening = Some(self.read());
    }

    fn close(&mut self) {
        self.closing = Some(self.read());
    }

    /// The difference of the two edges. A flow's two counters are not read at one instant, hence the last bound.
    fn detail(&mut self) -> Detail {
        let (Some(then), Some(now)) = (self.opening, self.closing) else { return Detail::Plain };
        let completed = now.completed.saturating_sub(then.completed);
        let copied = now.copied.saturating_sub(then.copied).min(completed);
        Detail::Zerocopy(ZerocopyReport { completed, copied })
    }
}

/// Starts the workers of one end of a TCP stream, each with the work that its role and mode are.
pub(crate) fn workers(end: Ends<'_>, flows: Flows) -> Result<Workers> {
    let sockets = flows.sockets;
    let RunSpec { message, payload, flows, send_with, recv_with, send_offset, recv_offset, .. } = *end.spec;
    let plain = |engine, ceiling| Workers { engine, ledger: Box::new(NoLedger), ceiling };
    if end.role == Role::Receiver {
        if recv_with == RecvWith::Zerocopy {
            // Its call never waits.
            let crew = end.crew(sockets.clone(), None, Manner::Epoll)?;
            let shares: Vec<Arc<Share>> = sockets.iter().map(|_| Arc::default()).collect();
            let own = shares.clone();
            let engine = Engine::prepare(crew, move |place| {
                let flow = place.flow as usize;
                let share = own.get(flow).map(Arc::clone).unwrap_or_default();
                let socket = sockets.get(flow).ok_or(SpecError::Flows(place.flow))?;
                MappedReceiving::new(socket.as_fd(), message, share)
            })?;
            return Ok(Workers { engine, ledger: Box::new(MappedLedger::new(shares)), ceiling: None });
        }
        let crew = end.crew(sockets, None, Manner::Block)?;
        let engine = Engine::prepare(crew, move |_| Receiving::new(message, recv_offset, recv_with))?;
        return Ok(plain(engine, None));
    }
    let bucket = end.spec.rate.map(|rate| Bucket::new(rate, flows));
    let bytes = end.spec.bytes;
    let quota = move |flow| Quota::of(bytes, flows, flow);
    let crew = end.crew(sockets, bucket.as_ref(), Manner::Block)?;
    match send_with {
        SendWith::Write => {
            let ceiling = own_rate(message, send_offset, payload).ok();
            let engine = Engine::prepare(crew, move |place| {
                Sending::new(message, send_offset, payload, place.flow, quota(place.flow))
            })?;
            Ok(plain(engine, ceiling))
        }
        SendWith::Sendfile | SendWith::Splice => {
            let named = end.spec.send_file.as_deref();
            if named.is_some() && !end.client {
                return Err(WorkloadError::Invalid("a server sends no file by a client's word".to_owned()));
            }
            let source = source(named, payload, message)?;
            let engine = Engine::prepare(crew, move |place| {
                FileSending::new(Arc::clone(&source), message, send_with, place.flow, quota(place.flow))
            })?;
            Ok(plain(engine, None))
        }
        SendWith::Zerocopy => {
            crew.sockets.iter().try_for_each(|socket| socket::enable_zerocopy(socket.as_fd()))?;
            let tallies: Vec<Arc<Tally>> = crew.sockets.iter().map(|_| Arc::default()).collect();
            let own = tallies.clone();
            let engine = Engine::prepare(crew, move |place| {
                let tally = own.get(place.flow as usize).map(Arc::clone).unwrap_or_default();
                let quota = quota(place.flow);
                ZerocopySending::new(message, send_offset, payload, (place.flow, flows), (tally, quota))
            })?;
            let ledger = ZerocopyLedger { tallies, opening: None, closing: None };
            Ok(Workers { engine, ledger: Box::new(ledger), ceiling: None })
        }
    }
}

/// Bytes per second of the loop that sends from a buffer, into a sink that takes them unseen.
fn own_rate(message: ByteCount, offset: ByteCount, payload: Payload) -> Result<f64> {
    ceiling::of(ceiling::Loop::Stream(message, offset, payload), || {
        let mut sending = Sending::new(message, offset, payload, 0, Quota::NONE)?;
        Ok(move |sink: &mut File| sending.spend(sink))
    })
}

/// The length of a message in memory.
fn length(message: ByteCount) -> Result<usize> {
    message.as_usize().ok_or_else(|| SpecError::Message(message.0).into())
}

/// Fills `bytes` with incompressible noise.
pub(crate) fn fill(bytes: &mut [u8]) {
    SmallRng::seed_from_u64(PAYLOAD_SEED).fill(bytes);
}

/// Writes a running count into every [`STAMP_EVERY`] bytes.
#[inline]
fn stamp(bytes: &mut [u8], count: &mut u64) {
    for block in bytes.chunks_mut(STAMP_EVERY) {
        if let Some(stamp) = block.first_chunk_mut::<8>() {
            *stamp = count.to_ne_bytes();
        }
        *count = count.wrapping_add(1);
    }
}

/// The 64 MiB (and a page for an offset) that every [`Payload::Fresh`] flow of this process walks, made once: filling it takes tens of
/// milliseconds, which no run's set-up should pay twice.
fn fresh_span() -> Result<Arc<PageBuffer>> {
    static SPAN: OnceLock<Arc<PageBuffer>> = OnceLock::new();
    if let Some(span) = SPAN.get() {
        return Ok(Arc::clone(span));
    }
    let mut span = PageBuffer::new(ByteCount((FRESH_SPAN + PAGE) as u64))?;
    fill(span.at_mut(0));
    Ok(Arc::clone(SPAN.get_or_init(|| Arc::new(span))))
}

enum Source {
    Own { buffer: PageBuffer, offset: usize, stamp: Option<u64> },
    Span { span: Arc<PageBuffer>, offset: usize, at: usize },
}

impl Source {
    /// The next message: the part of it from `sent` on. A message that the kernel took in parts is not made anew.
    #[inline]
    fn rest(&mut self, message: usize, sent: usize) -> &[u8] {
        match self {
            Self::Own { buffer, offset, stamp: count } => {
                let bytes = &mut buffer.at_mut(*offset)[..message];
                if let Some(count) = count.as_mut().filter(|_| sent == 0) {
                    stamp(bytes, count);
                }
                &bytes[sent..]
            }
            Self::Span { span, offset, at } => {
                if sent == 0 {
                    *at += message;
                    if *at + message > FRESH_SPAN {
                        *at = 0;
                    }
                }
                &span.at(*offset + *at)[sent..message]
            }
        }
    }
}

/// How much of what a flow is to send is left; without a limit, more than any flow can send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quota(u64);

impl Quota {
    pub(crate) const NONE: Self = Self(u64::MAX);

    /// What flow `index` sends of `bytes` of `flows` together: the first of them take what does not divide.
    pub(crate) fn of(bytes: Option<ByteCount>, flows: u32, index: u32) -> Self {
        bytes.map_or(Self::NONE, |ByteCount(bytes)| {
            let flows = u64::from(flows.max(1));
            Self(bytes / flows + u64::from(u64::from(index) < bytes % flows))
        })
    }

    /// How much of `length` may still be sent.
    #[inline]
    fn cap(self, length: usize) -> usize {
        usize::try_from(self.0).map_or(length, |left| length.min(left))
    }

    #[inline]
    fn spend(&mut self, sent: usize) {
        self.0 -= sent as u64;
    }

    #[inline]
    fn is_spent(self) -> bool {
        self.0 == 0
    }
}

/// The sending side of one flow.
pub(crate) struct Sending {
    source: Source,
    message: usize,
    sent: usize,
    quota: Quota,
}

impl Sending {
    /// Makes the buffers of flow `index`, so that the first send finds them written; a message begins `offset` bytes past
    /// a page.
    pub(crate) fn new(
        message: ByteCount,
        offset: ByteCount,
        payload: Payload,
        index: u32,
        quota: Quota,
    ) -> Result<Self> {
        let (message, offset) = (length(message)?, length(offset)?);
        let source = match payload {
            Payload::Fresh if message <= FRESH_SPAN => Source::Span { span: fresh_span()?, offset, at: 0 },
            Payload::Fresh | Payload::Stamped | Payload::Repeat => {
                let mut buffer = PageBuffer::new(ByteCount((message + offset) as u64))?;
                fill(buffer.at_mut(0));
                // Flows differ in the upper half of the count: no two of them send the same packet either.
                let stamp = (payload != Payload::Repeat).then_some(u64::from(index) << 40);
                Source::Own { buffer, offset, stamp }
            }
        };
        Ok(Self { source, message, sent: 0, quota })
    }

    /// Makes one message and writes it to `sink` instead of a socket.
    pub(crate) fn spend(&mut self, sink: &mut impl io::Write) -> io::Result<u64> {
        sink.write(self.source.rest(self.message, 0)).map(|written| written as u64)
    }
}

impl Work for Sending {
    const LEADS: bool = true;
    const NAME: &'static str = "send";

    #[inline]
    fn step(&mut self, fd: BorrowedFd<'_>) -> io::Result<Moved> {
        if self.quota.is_spent() {
            return Ok(Moved::End);
        }
        let quota = self.quota;
        let rest = self.source.rest(self.message, self.sent);
        let sent = socket::send(fd, &rest[..quota.cap(rest.len())])?;
        self.quota.spend(sent);
        self.sent += sent;
        if self.sent >= self.message {
            self.sent = 0;
        }
        Ok(Moved::Units(sent as u64))
    }
}

/// The receiving side of one flow.
pub(crate) struct Receiving {
    buffer: PageBuffer,
    offset: usize,
    flags: Flags,
}

impl Receiving {
    /// Makes the buffer; its first byte is `offset` bytes past a page.
    pub(crate) fn new(message: ByteCount, offset: ByteCount, with: RecvWith) -> Result<Self> {
        let (message, offset) = (length(message)?, length(offset)?);
        let flags = match with {
            RecvWith::Read | RecvWith::Zerocopy => Flags::NONE,
            // The buffer only says how much may be dropped at a time.
            RecvWith::Discard => Flags::DISCARD,
        };
        Ok(Self { buffer: PageBuffer::new(ByteCount((message + offset) as u64))?, offset, flags })
    }
}

impl Work for Receiving {
    const LEADS: bool = false;
    const NAME: &'static str = "recv";

    #[inline]
    fn step(&mut self, fd: BorrowedFd<'_>) -> io::Result<Moved> {
        match socket::recv(fd, self.buffer.at_mut(self.offset), self.flags)? {
            0 => Ok(Moved::End),
            received => Ok(Moved::Units(received as u64)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn messages(payload: Payload, index: u32, message: usize, count: usize) -> Vec<Vec<u8>> {
        let mut sending = Sending::new(ByteCount(message as u64), ByteCount(0), payload, index, Quota::NONE)
            .expect("buffers");
        (0..count).map(|_| sending.source.rest(message, 0).to_vec()).collect()
    }

    #[test]
    fn no_32_kib_of_a_stamped_payload_repeat_within_or_across_flows() {
        const BLOCK: usize = 32 << 10;
        let mut seen = HashSet::new();
        for index in 0..2 {
            for message in messages(Payload::Stamped, index, 128 << 10, 64) {
                for block in message.chunks_exact(BLOCK) {
                    assert!(seen.insert(block.to_vec()), "a block repeated");
                }
            }
        }
    }

    #[test]
    fn a_fresh_payload_does_not_repeat_within_its_span() {
        let message = 1 << 20;
        let mut seen = HashSet::new();
        for message in messages(Payload::Fresh, 0, message, FRESH_SPAN / message) {
            assert!(seen.insert(message[..64].to_vec()), "a message repeated");
        }
    }

    #[test]
    fn a_message_taken_in_parts_is_sent_as_one() {
        let mut sending =
            Sending::new(ByteCount(4096), ByteCount(0), Payload::Stamped, 0, Quota::NONE).expect("buffers");
        let whole = sending.source.rest(4096, 0).to_vec();
        assert_eq!(sending.source.rest(4096, 1000), &whole[1000..]);
        assert_ne!(sending.source.rest(4096, 0), &whole[..]);
    }

    #[test]
    fn the_quotas_of_the_flows_sum_to_the_amount_and_differ_by_a_byte_at_most() {
        for (bytes, flows) in [(10, 3), (1, 5), (1 << 40, 7), (12, 4)] {
            let each: Vec<u64> =
                (0..flows).map(|flow| Quota::of(Some(ByteCount(bytes)), flows, flow).0).collect();
            assert_eq!(each.iter().sum::<u64>(), bytes);
            assert!(each[0] - each[each.len() - 1] <= 1, "{each:?}");
        }
    }

    #[test]
    fn messages_shorter_than_a_stamp_are_still_sent() {
        for size in [1, 7, 8, 9] {
            assert!(messages(Payload::Stamped, 0, size, 3).iter().all(|message| message.len() == size));
        }
    }

    #[test]
    fn an_offset_is_where_every_message_begins_and_every_receive_lands() {
        for (payload, message) in
            [(Payload::Stamped, 1000), (Payload::Repeat, 5000), (Payload::Fresh, 16 << 20)]
        {
            for offset in [0, 1, 63, 4095] {
                let mut sending =
                    Sending::new(ByteCount(message), ByteCount(offset), payload, 0, Quota::NONE)
                        .expect("buffers");
                for _ in 0..5 {
                    let bytes = sending.source.rest(sending.message, 0);
                    assert_eq!(bytes.len() as u64, message);
                    assert_eq!((bytes.as_ptr().addr() % PAGE) as u64, offset, "{payload:?}");
                }
            }
        }
        let mut receiving = Receiving::new(ByteCount(1000), ByteCount(17), RecvWith::Read).expect("a buffer");
        let bytes = receiving.buffer.at_mut(receiving.offset);
        assert_eq!((bytes.len(), bytes.as_ptr().addr() % PAGE), (1000, 17));
    }
}
