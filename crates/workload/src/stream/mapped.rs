//! Receiving without a copy: pages of the stream are mapped, and only what is no whole page is copied.
//!
//! What is mapped is not read, as what is copied is not: a receiver that looks at its bytes pays for that with either.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use haul_host::socket::{MappedReceive, PageBuffer};
use haul_stats::ByteCount;

use crate::end::Ledger;
use crate::engine::{Moved, Work};
use crate::error::Result;
use crate::report::{Detail, MappedReport};

/// The least that is mapped at a time: a call for a page or two costs more than their copy.
const LEAST_SPAN: ByteCount = ByteCount(128 << 10);

/// What became of a flow's bytes: one writer, read while it runs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Share {
    mapped: AtomicU64,
    copied: AtomicU64,
}

impl Share {
    fn add(&self, mapped: usize, copied: usize) {
        for (to, more) in [(&self.mapped, mapped), (&self.copied, copied)] {
            to.store(to.load(Ordering::Relaxed) + more as u64, Ordering::Relaxed);
        }
    }
}

/// How much was mapped, by all flows.
#[derive(Debug)]
pub(crate) struct MappedLedger {
    shares: Vec<Arc<Share>>,
    opening: Option<MappedReport>,
    closing: Option<MappedReport>,
}

impl MappedLedger {
    pub(crate) fn new(shares: Vec<Arc<Share>>) -> Self {
        Self { shares, opening: None, closing: None }
    }

    fn read(&self) -> MappedReport {
        self.shares.iter().fold(MappedReport::default(), |sum, share| MappedReport {
            mapped: sum.mapped + share.mapped.load(Ordering::Relaxed),
            copied: sum.copied + share.copied.load(Ordering::Relaxed),
        })
    }
}

impl Ledger for MappedLedger {
    fn open(&mut self) {
        self.opening = Some(self.read());
    }

    fn close(&mut self) {
        self.closing = Some(self.read());
    }

    fn detail(&mut self) -> Detail {
        let (Some(then), Some(now)) = (self.opening, self.closing) else { return Detail::Plain };
        Detail::Mapped(MappedReport { mapped: now.mapped - then.mapped, copied: now.copied - then.copied })
    }
}

/// The receiving side of one flow that maps what it can.
pub(crate) struct MappedReceiving {
    receive: MappedReceive,
    buffer: PageBuffer,
    share: Arc<Share>,
}

impl MappedReceiving {
    /// Makes the mapping and the buffer for what cannot be mapped.
    pub(crate) fn new(socket: BorrowedFd<'_>, message: ByteCount, share: Arc<Share>) -> Result<Self> {
        let span = message.max(LEAST_SPAN);
        Ok(Self { receive: MappedReceive::new(socket, span)?, buffer: PageBuffer::new(span)?, share })
    }
}

impl Work for MappedReceiving {
    const LEADS: bool = false;
    const NAME: &'static str = "recv";

    #[inline]
    fn step(&mut self, fd: BorrowedFd<'_>) -> io::Result<Moved> {
        let took = self.receive.step(fd, self.buffer.at_mut(0))?;
        if took.end {
            return Ok(Moved::End);
        }
        self.share.add(took.mapped, took.copied);
        Ok(Moved::Units((took.mapped + took.copied) as u64))
    }
}
