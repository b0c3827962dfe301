//! A byte there and a byte back: blocking, spinning, or epoll over many flows in one thread.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use haul_host::privilege;
use haul_host::socket::{self, Epoll, Flags, Interest, Requested};

use super::repeat;

/// How an end waits, and for what.
#[derive(Args, Debug)]
pub(crate) struct How {
    /// UDP in place of TCP
    #[arg(long)]
    udp: bool,
    /// Ask again and again in place of sleeping
    #[arg(long, conflicts_with = "flows")]
    spin: bool,
    /// Connections in one epoll set; without it, one connection and no epoll
    #[arg(long, conflicts_with = "udp")]
    flows: Option<usize>,
}

/// The longest wait for an answer: none is on its way for so long, and a datagram can be lost.
const ANSWER: Duration = Duration::from_secs(5);

/// Answers one client, until it ends or this process is killed.
pub(super) fn serve(listen: SocketAddr, how: &How) -> Result<()> {
    if how.udp {
        let socket = UdpSocket::bind(listen).context("cannot bind the bare server")?;
        // The first datagram tells who asks; from then on the socket is that client's, as haul's is.
        let (_, client) = socket.recv_from(&mut [0])?;
        socket.connect(client)?;
        socket::send(socket.as_fd(), &[1])?;
        return answer(socket.as_fd(), how.spin);
    }
    let listener = socket::listen(listen, &Requested { nodelay: true, ..Requested::default() })?;
    match how.flows {
        Some(flows) => answer_many(&listener, flows),
        None => answer(listener.accept()?.0.as_fd(), how.spin),
    }
}

/// Asks for as long as told, and prints how often per second it was answered.
pub(super) fn ask(to: SocketAddr, length: Duration, how: &How) -> Result<()> {
    let rate = if how.udp {
        let socket = UdpSocket::bind((if to.is_ipv4() { "0.0.0.0" } else { "::" }, 0))?;
        socket.connect(to)?;
        socket.set_read_timeout(Some(ANSWER))?;
        ask_one(socket.as_fd(), length, how.spin)
    } else if let Some(flows) = how.flows {
        ask_many(to, flows, length)
    } else {
        ask_one(connect(to)?.as_fd(), length, how.spin)
    }?;
    println!("{rate:.1}");
    Ok(())
}

fn connect(to: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(to).context("cannot reach the bare server")?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER))?;
    Ok(stream)
}

/// Takes a byte, sleeping or spinning until it is there; 0 is the peer's end.
#[inline]
fn take(fd: BorrowedFd<'_>, spin: bool) -> io::Result<usize> {
    /// At 100 ns for each of them far more than [`ANSWER`].
    const TRIES: u32 = 200_000_000;
    if !spin {
        return socket::recv(fd, &mut [0], Flags::NONE);
    }
    for _ in 0..TRIES {
        match socket::recv(fd, &mut [0], Flags::DONTWAIT) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return other,
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

fn answer(fd: BorrowedFd<'_>, spin: bool) -> Result<()> {
    while take(fd, spin)? > 0 {
        socket::send(fd, &[1])?;
    }
    Ok(())
}

fn ask_one(fd: BorrowedFd<'_>, length: Duration, spin: bool) -> Result<f64> {
    repeat(length, || {
        socket::send(fd, &[1])?;
        ensure!(take(fd, spin).context("no answer")? == 1, "the server ended");
        Ok(())
    })
}

/// As many events as one wait reports: what haul's own loop uses would do as well, this is not what it spends.
const EVENTS: usize = 256;

fn answer_many(listener: &TcpListener, flows: usize) -> Result<()> {
    privilege::raise_open_files()?;
    let mut streams: Vec<Option<TcpStream>> = Vec::new();
    for _ in 0..flows {
        streams.push(Some(listener.accept().context("cannot accept")?.0));
    }
    let mut epoll = watch(streams.iter().flatten())?;
    let mut open = flows;
    while open > 0 {
        for event in epoll.wait(ANSWER)? {
            let Some(place) = usize::try_from(event.token).ok().and_then(|at| streams.get_mut(at)) else {
                bail!("an event of nobody")
            };
            let Some(stream) = place else { continue };
            // A client that stops in the middle may reset.
            if matches!(socket::recv(stream.as_fd(), &mut [0], Flags::NONE), Ok(1)) {
                socket::send(stream.as_fd(), &[1])?;
            } else {
                *place = None;
                open -= 1;
            }
        }
    }
    Ok(())
}

fn ask_many(to: SocketAddr, flows: usize, length: Duration) -> Result<f64> {
    privilege::raise_open_files()?;
    let streams = (0..flows).map(|_| connect(to)).collect::<Result<Vec<_>>>()?;
    let mut epoll = watch(&streams)?;
    let start = Instant::now();
    for stream in &streams {
        socket::send(stream.as_fd(), &[1])?;
    }
    let mut answers = 0_u64;
    while start.elapsed() < length {
        let before = answers;
        for event in epoll.wait(ANSWER)? {
            let stream = usize::try_from(event.token).ok().and_then(|at| streams.get(at));
            let stream = stream.context("an event of nobody")?;
            ensure!(socket::recv(stream.as_fd(), &mut [0], Flags::NONE)? == 1, "the server ended");
            socket::send(stream.as_fd(), &[1])?;
            answers += 1;
        }
        ensure!(answers > before, "no answer");
    }
    Ok(answers as f64 / start.elapsed().as_secs_f64())
}

fn watch<'a>(streams: impl IntoIterator<Item = &'a TcpStream>) -> Result<Epoll> {
    let epoll = Epoll::new(EVENTS)?;
    for (token, stream) in (0..).zip(streams) {
        epoll.add(stream.as_fd(), token, Interest::READ)?;
    }
    Ok(epoll)
}
