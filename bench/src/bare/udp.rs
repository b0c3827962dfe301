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

/// Datagrams in one call, and what the kernel cuts up at once on every version that can (`UDP_MAX_SEGMENTS`).
const BATCH: usize = 64;

/// The most that one send may hand over.
const MOST: usize = 65_507;

/// Takes what comes until this process is killed.
pub(super) fn receive(listen: SocketAddr, how: Taking) -> Result<()> {
    let socket = udp::bind(listen, &Requested::default())?;
    let fd = socket.as_fd();
    let mut buffer = PageBuffer::new(ByteCount(1 << 16))?;
    match how {
        Taking::Single => loop {
            socket::recv(fd, buffer.at_mut(0), Flags::NONE)?;
        },
        Taking::Batch => {
            let mut batch = RecvBatch::new(BATCH, 2048)?;
            loop {
                batch.recv(fd, Flags::WAITFORONE)?;
            }
        }
        Taking::Joined => {
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
        Giving::Single | Giving::Segment => {
            let mut bytes = size;
            if how == Giving::Segment {
                udp::set_segment(fd, message)?;
                bytes = size * (MOST / size).clamp(1, BATCH);
            }
            let buffer = PageBuffer::new(ByteCount(bytes as u64))?;
            repeat(length, || Ok(socket::send(fd, buffer.at(0)).map(drop)?))
        }
        Giving::Batch => {
            let mut batch = SendBatch::new(BATCH, size)?;
            repeat(length, || Ok(batch.send(fd, 0..BATCH, Flags::NONE).map(drop)?))
        }
    };
    sent.map(drop)
}
