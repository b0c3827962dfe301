//! A stream: one send loop, one receive loop.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use haul_host::socket::{self, Flags, MappedReceive, PageBuffer, Pipe, SourceFile};
use haul_stats::ByteCount;

use super::repeat;

/// haul's default message, which every tool is told to use.
const MESSAGE: usize = 128 << 10;

/// As long as the one haul sends from: what comes from memory there comes from memory here.
const FILE: u64 = 64 << 20;

/// How the sender hands bytes over.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Write,
    Sendfile,
    Splice,
    Zerocopy,
}

/// How the receiver takes them.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taking {
    Read,
    Discard,
    Zerocopy,
}

/// Accepts one connection and reads it to its end.
pub(super) fn receive(listen: SocketAddr, how: Taking) -> Result<()> {
    let listener = TcpListener::bind(listen).context("cannot bind the bare receiver")?;
    let (stream, _) = listener.accept().context("cannot accept")?;
    let fd = stream.as_fd();
    let mut buffer = PageBuffer::new(ByteCount(MESSAGE as u64))?;
    let flags = match how {
        Taking::Read => Flags::NONE,
        Taking::Discard => Flags::DISCARD,
        Taking::Zerocopy => return map(fd, &mut buffer),
    };
    while socket::recv(fd, buffer.at_mut(0), flags)? > 0 {}
    Ok(())
}

/// Maps what can be mapped, and receives the rest.
fn map(fd: BorrowedFd<'_>, buffer: &mut PageBuffer) -> Result<()> {
    /// Nobody who sends is silent for so long.
    const SILENCE: Duration = Duration::from_secs(5);
    let mut receive = MappedReceive::new(fd, ByteCount(MESSAGE as u64))?;
    loop {
        match receive.step(fd, buffer.at_mut(0)) {
            Ok(took) if took.end => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                ensure!(socket::await_readable(fd, SILENCE)?, "the sender fell silent");
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sends messages for as long as asked.
pub(super) fn send(to: SocketAddr, length: Duration, how: How) -> Result<()> {
    let stream = TcpStream::connect(to).context("cannot reach the bare receiver")?;
    let to = stream.as_fd();
    let sent = match how {
        How::Write => {
            let mut buffer = PageBuffer::new(ByteCount(MESSAGE as u64))?;
            buffer.at_mut(0).fill(1);
            repeat(length, || {
                let sent = socket::send(to, buffer.at(0))?;
                ensure!(sent == MESSAGE, "a blocking send took {sent} bytes");
                Ok(())
            })
        }
        How::Sendfile => {
            let file = SourceFile::in_memory(ByteCount(FILE), |bytes| bytes.fill(1))?;
            let mut at = 0;
            repeat(length, || {
                at = if at + MESSAGE as u64 > FILE { 0 } else { at };
                at += socket::sendfile(to, &file, at, MESSAGE)? as u64;
                Ok(())
            })
        }
        How::Splice => {
            let file = SourceFile::in_memory(ByteCount(FILE), |bytes| bytes.fill(1))?;
            let pipe = Pipe::new(MESSAGE)?;
            let mut at = 0;
            repeat(length, || {
                at = if at + MESSAGE as u64 > FILE { 0 } else { at };
                let mut held = pipe.fill(&file, at, MESSAGE)?;
                at += held as u64;
                while held > 0 {
                    held -= pipe.drain(to, held)?;
                }
                Ok(())
            })
        }
        How::Zerocopy => zerocopy(&stream, length),
    };
    sent.map(drop)
}

/// One buffer that is never written again needs no ring, only a bound on what is outstanding: haul's own.
fn zerocopy(stream: &TcpStream, length: Duration) -> Result<f64> {
    const MOST: u64 = 64;
    const LOOK_EVERY: u64 = 4;
    socket::enable_zerocopy(stream.as_fd())?;
    let to = stream.as_fd();
    let mut buffer = PageBuffer::new(ByteCount(MESSAGE as u64))?;
    buffer.at_mut(0).fill(1);
    let (mut sends, mut completed) = (0_u64, 0_u64);
    repeat(length, || {
        while sends - completed >= MOST || (sends > completed && sends.is_multiple_of(LOOK_EVERY)) {
            let mut any = false;
            while completed < sends
                && let Some(done) = socket::completion(to)?
            {
                any = true;
                completed += u64::from(done.calls());
            }
            if any || sends - completed < MOST {
                break;
            }
            socket::await_notice(to, Duration::from_secs(5))?;
        }
        socket::send_zerocopy(to, buffer.at(0))?;
        sends += 1;
        Ok(())
    })
}
