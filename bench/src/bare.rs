//! The yardstick: one send loop, one receive loop, and nothing else.
//!
//! What any tool that moves bytes with these two system calls has to pay. No counters, no clock in the loop but one
//! look at it per thousand sends, buffers written beforehand. std's `write` and `read` on a TCP stream are send(2) and
//! recv(2).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Accepts one connection and reads it to its end.
pub(crate) fn receive(listen: SocketAddr, message: usize) -> Result<()> {
    let listener = TcpListener::bind(listen).context("cannot bind the bare receiver")?;
    let (mut stream, _) = listener.accept().context("cannot accept")?;
    let mut buffer = vec![1; message];
    while stream.read(&mut buffer)? > 0 {}
    Ok(())
}

/// Sends messages for as long as asked.
pub(crate) fn send(to: SocketAddr, message: usize, length: Duration) -> Result<()> {
    let mut stream = TcpStream::connect(to).context("cannot reach the bare receiver")?;
    let buffer = vec![1; message];
    let start = Instant::now();
    while start.elapsed() < length {
        for _ in 0..1000 {
            stream.write_all(&buffer)?;
        }
    }
    Ok(())
}
