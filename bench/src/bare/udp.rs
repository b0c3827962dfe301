//! Datagrams: one by one, many in a call, or cut up and joined by the kernel.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use haul_host::socket::udp::{self, RecvBatch, SendBatch};
use haul_host::socket::{self, Flags, PageBuffer, Requested};
use haul_stats::ByteCount;

use super::repeat;

/// How datagrams are taken.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taking {
    /// recv
    Single,
    /// recvmmsg
    Batch,
    /// recvmsg of those the kernel has joined
    Joined,
}

/// How datagrams are handed over.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Giving {
    /// send
    Single,
    /// sendmmsg
    Batch,
    /// send of many that the kernel cuts up
    Segment,
}

/// Datagrams in one call.
const BATCH: usize = 64;

/// The most that the kernel cuts up at once, `UDP_MAX_SEGMENTS` of include/linux/udp.h, and what it was before Linux 6.9.
const SEGMENTS: usize = 128;
const OLD_SEGMENTS: usize = 64;

/// The most that one send may hand over.
const MOST: usize = 65_507;

/// Takes what comes until this process is killed.
pub(super) fn receive(listen: SocketAddr, message: u16, how: Taking) -> Result<()> {
    let socket = udp::bind(listen, &Requested::default())?;
    let (fd, size) = (socket.as_fd(), u64::from(message));
    match how {
        Taking::Single => {
            let mut buffer = PageBuffer::new(ByteCount(size))?;
            loop {
                socket::recv(fd, buffer.at_mut(0), Flags::NONE)?;
            }
        }
        Taking::Batch => {
            let mut batch = RecvBatch::new(BATCH, message.into())?;
            loop {
                batch.recv(fd, Flags::WAITFORONE)?;
            }
        }
        Taking::Joined => {
            let mut buffer = PageBuffer::new(ByteCount(1 << 16))?;
            udp::set_gro(fd)?;
            loop {
                udp::recv_segments(fd, buffer.at_mut(0), Flags::NONE)?;
            }
        }
    }
}

/// Sends for as long as told.
pub(super) fn send(to: SocketAddr, length: Duration, message: u16, how: Giving) -> Result<()> {
    let socket = UdpSocket::bind((if to.is_ipv4() { "0.0.0.0" } else { "::" }, 0))?;
    socket.connect(to).context("cannot address the bare receiver")?;
    let (fd, size) = (socket.as_fd(), usize::from(message));
    let sent = match how {
        Giving::Single => {
            let buffer = PageBuffer::new(ByteCount(size as u64))?;
            repeat(length, || Ok(socket::send(fd, buffer.at(0)).map(drop)?))
        }
        Giving::Segment => {
            udp::set_segment(fd, message)?;
            let train =
                |most: usize| PageBuffer::new(ByteCount((size * (MOST / size).clamp(1, most)) as u64));
            let mut buffer = train(SEGMENTS)?;
            if socket::send(fd, buffer.at(0)).is_err() {
                buffer = train(OLD_SEGMENTS)?;
            }
            repeat(length, || Ok(socket::send(fd, buffer.at(0)).map(drop)?))
        }
        Giving::Batch => {
            let mut batch = SendBatch::new(BATCH, size)?;
            repeat(length, || Ok(batch.send(fd, 0..BATCH, Flags::NONE).map(drop)?))
        }
    };
    sent.map(drop)
}
