//! A pipe or a pair of sockets with both ends in one thread, which fills it and drains it in turn.
//!
//! So one side of a transfer can be timed by itself: what is drained has arrived, and what is filled finds room. The price is
//! that it never holds more than fits ([`Channel::room`]).

use std::io::{self, PipeReader, PipeWriter};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use haul_stats::ByteCount;
use socket2::SockRef;

use crate::block;
use crate::clock;
use crate::error::{HostError, Named as _, Result};
use crate::signal::Stop;
use crate::sys;

/// What a channel is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelKind {
    /// A pipe.
    Pipe,
    /// A pair of Unix stream sockets.
    Unix,
    /// A TCP connection over 127.0.0.1.
    Tcp,
    /// A pair of UDP sockets over 127.0.0.1.
    Udp,
}

/// How much a channel is asked to hold: in the second-level cache of CPUs of the last ten years.
const WANTED: usize = 256 << 10;

/// How long bytes may be on their way over 127.0.0.1. They arrive in the call that sends them, unless the kernel puts it off to
/// a thread of its own, or a congestion control paces.
const ARRIVE: Duration = Duration::from_secs(2);

/// Both ends.
#[derive(Debug)]
pub struct Channel {
    ends: Ends,
    room: usize,
}

#[derive(Debug)]
enum Ends {
    Pipe(PipeReader, PipeWriter),
    Unix(UnixStream, UnixStream),
    Tcp(TcpStream, TcpStream),
    Udp(UdpSocket, UdpSocket),
}

/// How blocks are put into a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    /// By one call for all of them, but for datagrams.
    Together,
    /// By a call each, which copies.
    Each,
    /// By a call each, which lends the pages.
    Lent,
}

impl Channel {
    /// Makes one.
    pub fn new(kind: ChannelKind) -> Result<Self> {
        match kind {
            ChannelKind::Pipe => Self::pipe(),
            ChannelKind::Unix => Self::unix(),
            ChannelKind::Tcp => Self::tcp(),
            ChannelKind::Udp => Self::udp(),
        }
    }

    fn pipe() -> Result<Self> {
        let (reader, writer) = io::pipe().named("make", || "a pipe".to_owned())?;
        // Users may have less than root: what there is counts.
        let sizes = [WANTED, WANTED / 4].map(|size| i32::try_from(size).unwrap_or(i32::MAX));
        let got = sizes.into_iter().find_map(|size| sys::pipe_size(writer.as_fd(), size).ok());
        // A page for each of the 16 places of a pipe (pipe(7)).
        Ok(Self { ends: Ends::Pipe(reader, writer), room: got.unwrap_or(64 << 10) })
    }

    fn unix() -> Result<Self> {
        let (receiver, sender) = UnixStream::pair().named("make", || "a pair of Unix sockets".to_owned())?;
        let _ = SockRef::from(&sender).set_send_buffer_size(2 * WANTED);
        let granted = SockRef::from(&sender).send_buffer_size().unwrap_or(0);
        // A third of what the kernel counts at most is its own.
        Ok(Self { ends: Ends::Unix(receiver, sender), room: granted / 3 })
    }

    fn tcp() -> Result<Self> {
        let name = || "a TCP connection over 127.0.0.1".to_owned();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).named("make", name)?;
        // Before it connects: the window is chosen by it.
        let _ = SockRef::from(&listener).set_recv_buffer_size(2 * WANTED);
        let address = listener.local_addr().named("make", name)?;
        let sender = TcpStream::connect(address).named("make", name)?;
        let own = sender.local_addr().named("make", name)?;
        let receiver = loop {
            let (receiver, peer) = listener.accept().named("make", name)?;
            // Anyone on this host may connect to a port.
            if peer == own {
                break receiver;
            }
        };
        let _ = SockRef::from(&sender).set_send_buffer_size(2 * WANTED);
        // One that paces would be waited for; where there is none other, it is.
        let _ = SockRef::from(&sender).set_tcp_congestion(b"reno");
        sender.set_nodelay(true).named("set TCP_NODELAY on", name)?;
        let granted = SockRef::from(&receiver).recv_buffer_size().unwrap_or(0);
        // Half of the buffer is the window at first (tcp(7), tcp_adv_win_scale).
        Ok(Self { ends: Ends::Tcp(receiver, sender), room: granted / 4 })
    }

    fn udp() -> Result<Self> {
        let name = || "a pair of UDP sockets over 127.0.0.1".to_owned();
        let bound = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).named("make", name);
        let (receiver, sender) = (bound()?, bound()?);
        let ends: io::Result<[SocketAddr; 2]> =
            receiver.local_addr().and_then(|receiver| Ok([receiver, sender.local_addr()?]));
        let [at_receiver, at_sender] = ends.named("make", name)?;
        sender.connect(at_receiver).named("connect", name)?;
        receiver.connect(at_sender).named("connect", name)?;
        let _ = SockRef::from(&receiver).set_recv_buffer_size(2 * WANTED);
        let granted = SockRef::from(&receiver).recv_buffer_size().unwrap_or(0);
        // What is lost never comes: the wait for it has an end.
        receiver.set_read_timeout(Some(ARRIVE)).named("set a timeout of", name)?;
        // A datagram is counted with the memory that holds it: up to twice its size, and a page.
        Ok(Self { ends: Ends::Udp(receiver, sender), room: granted / 4 })
    }

    /// What it is made of.
    #[must_use]
    pub fn kind(&self) -> ChannelKind {
        match self.ends {
            Ends::Pipe(..) => ChannelKind::Pipe,
            Ends::Unix(..) => ChannelKind::Unix,
            Ends::Tcp(..) => ChannelKind::Tcp,
            Ends::Udp(..) => ChannelKind::Udp,
        }
    }

    /// How many bytes it holds, so that who fills it never waits.
    #[must_use]
    pub fn room(&self) -> ByteCount {
        ByteCount(self.room as u64)
    }

    /// How many blocks of that size it takes without a wait, given so; 0 where it does not take one. A pipe has places for pages,
    /// and those of a buffer that is not copied are its own, whatever they hold of it. A socket counts what each call adds with the
    /// memory that holds it, which is most of it for a few bytes.
    #[must_use]
    pub fn blocks(&self, block: usize, given: Given) -> usize {
        /// The packet's own structure, a header, and the rounding to what the allocator gives.
        const BESIDE: usize = 1024;
        let page = sys::page_size();
        match self.ends {
            Ends::Pipe(..) if given == Given::Lent => self.room / page / (block.div_ceil(page) + 1),
            // A write that does not fit the rest of the last page begins another.
            Ends::Pipe(..) if block < page => self.room / page * (page / block.max(1)),
            Ends::Pipe(..) => self.room / page / block.div_ceil(page),
            Ends::Unix(..) | Ends::Tcp(..) if given == Given::Together => self.room / block.max(1),
            Ends::Unix(..) | Ends::Tcp(..) | Ends::Udp(..) => self.room / (block + BESIDE),
        }
    }

    /// The end that is read from.
    #[must_use]
    pub fn receiver(&self) -> BorrowedFd<'_> {
        match &self.ends {
            Ends::Pipe(receiver, _) => receiver.as_fd(),
            Ends::Unix(receiver, _) => receiver.as_fd(),
            Ends::Tcp(receiver, _) => receiver.as_fd(),
            Ends::Udp(receiver, _) => receiver.as_fd(),
        }
    }

    /// The end that is written to.
    #[must_use]
    pub fn sender(&self) -> BorrowedFd<'_> {
        match &self.ends {
            Ends::Pipe(_, sender) => sender.as_fd(),
            Ends::Unix(_, sender) => sender.as_fd(),
            Ends::Tcp(_, sender) => sender.as_fd(),
            Ends::Udp(_, sender) => sender.as_fd(),
        }
    }

    /// Waits until so many bytes can be read without waiting. Of datagrams there is no such count: they are waited for when they
    /// are read.
    ///
    /// # Errors
    /// Where they do not come in time, and where `stop` is requested first.
    pub fn await_arrival(&self, bytes: usize, stop: &Stop) -> Result<()> {
        if self.kind() == ChannelKind::Udp {
            return Ok(());
        }
        let name = || format!("{} in a channel over {}", ByteCount(bytes as u64).about(), self.kind().name());
        let until = clock::now().after(ARRIVE);
        loop {
            if block::arrived(self.receiver()).named("count", name)? >= bytes {
                return Ok(());
            }
            if stop.requested().is_some() {
                return Err(HostError::Stopped { doing: "bytes were on their way through a channel" });
            }
            let now = clock::now();
            if now >= until {
                return Err(HostError::Deadline { operation: "wait for", object: name(), after: ARRIVE });
            }
            if let Ends::Tcp(receiver, _) = &self.ends {
                // The sender of many small segments waits for an acknowledgement, which is put off by up to 40 ms.
                let _ = SockRef::from(receiver).set_tcp_quickack(true);
            } else {
                clock::sleep_until(now.after(Duration::from_micros(100)));
            }
        }
    }
}

impl ChannelKind {
    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pipe => "pipe",
            Self::Unix => "unix",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Block;

    #[test]
    fn what_fits_is_taken_without_a_wait_and_comes_out_in_order() {
        let never = Stop::never().expect("stop");
        for kind in [ChannelKind::Pipe, ChannelKind::Unix, ChannelKind::Tcp] {
            let channel = Channel::new(kind).expect("a channel");
            assert!(channel.room().0 >= 32 << 10, "{kind:?} has {}", channel.room());
            crate::socket::set_nonblocking(channel.sender(), true).expect("nonblocking");
            for round in 0..50_u8 {
                let bytes = vec![round; channel.room().as_usize().expect("small")];
                let sent = block::plain(channel.sender(), None, &mut Block::From(&bytes)).expect("room");
                assert_eq!(sent, bytes.len(), "{kind:?}");
                channel.await_arrival(sent, &never).expect("they come");
                let mut found = vec![0; sent];
                let read = block::plain(channel.receiver(), None, &mut Block::Into(&mut found));
                assert_eq!(read.expect("read"), sent, "{kind:?}");
                assert!(found == bytes, "{kind:?}");
            }
        }
    }

    #[test]
    fn many_small_writes_to_a_socket_fit_as_well() {
        let never = Stop::never().expect("stop");
        for kind in [ChannelKind::Unix, ChannelKind::Tcp] {
            let channel = Channel::new(kind).expect("a channel");
            crate::socket::set_nonblocking(channel.sender(), true).expect("nonblocking");
            for size in [1, 7, 16, 64, 1000, 4096, 16_384] {
                let (count, bytes) = (channel.blocks(size, Given::Each), vec![7; size]);
                assert!(count > 0, "{kind:?}, {size}");
                for _ in 0..3 {
                    for number in 0..count {
                        let sent = block::plain(channel.sender(), None, &mut Block::From(&bytes));
                        assert_eq!(sent.ok(), Some(size), "{kind:?}, {size}: {number} of {count}");
                    }
                    channel.await_arrival(count * size, &never).expect("they come");
                    let mut found = vec![0; count * size];
                    let mut taken = 0;
                    while taken < found.len() {
                        let read =
                            block::plain(channel.receiver(), None, &mut Block::Into(&mut found[taken..]));
                        taken += read.expect("read");
                    }
                }
            }
        }
    }

    #[test]
    fn datagrams_that_fit_all_arrive() {
        let channel = Channel::new(ChannelKind::Udp).expect("a channel");
        for size in [1, 100, 8192, 40_000] {
            let count = channel.blocks(size, Given::Each);
            assert!(count > 0, "{size}");
            for round in 0..20_u8 {
                for _ in 0..count {
                    let bytes = vec![round; size];
                    let sent = block::plain(channel.sender(), None, &mut Block::From(&bytes));
                    assert_eq!(sent.expect("sent"), size);
                }
                for _ in 0..count {
                    let mut found = vec![0; size];
                    let read = block::plain(channel.receiver(), None, &mut Block::Into(&mut found));
                    assert_eq!(read.expect("it came"), size);
                    assert!(found.iter().all(|&byte| byte == round));
                }
            }
        }
    }

    #[test]
    fn a_pipe_takes_as_many_blocks_as_it_says_and_they_come_out() {
        let channel = Channel::new(ChannelKind::Pipe).expect("a channel");
        crate::socket::set_nonblocking(channel.sender(), true).expect("nonblocking");
        for size in [1, 7, 1000, 4095, 4096, 4097, 8192, 60_000] {
            for given in [Given::Each, Given::Lent] {
                let (count, bytes) = (channel.blocks(size, given), vec![7; size + 1]);
                // One byte past the allocator's alignment, so that pages are touched that hold little of it.
                let block = &bytes[1..];
                for number in 0..count {
                    let sent = if given == Given::Each {
                        block::plain(channel.sender(), None, &mut Block::From(block))
                    } else {
                        block::into_pipe(block::WriteEnd::of(channel.sender()).expect("it is"), block)
                    };
                    assert_eq!(sent.ok(), Some(size), "{size}, {given:?}: {number} of {count}");
                }
                let mut found = vec![0; size];
                for _ in 0..count {
                    let read = block::plain(channel.receiver(), None, &mut Block::Into(&mut found));
                    assert_eq!(read.expect("read"), size);
                }
                assert_eq!(channel.blocks(1 << 20, given), 0);
            }
        }
    }

    #[test]
    fn what_does_not_come_is_not_waited_for_without_end() {
        let channel = Channel::new(ChannelKind::Pipe).expect("a channel");
        let stop = Stop::never().expect("stop");
        let error = channel.await_arrival(1, &stop).expect_err("nobody wrote").to_string();
        assert!(error.contains("1 byte in a channel over pipe"), "{error}");
        stop.request(crate::signal::Signal::Term);
        let stopped = channel.await_arrival(1, &stop);
        assert!(matches!(stopped, Err(HostError::Stopped { .. })), "{stopped:?}");
    }
}
