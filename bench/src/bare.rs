//! The yardsticks: a loop of system calls for each end, in a process of its own, and nothing else.
//!
//! What any tool that moves bytes with the same system calls has to pay. No counters but one, no clock in the loop but one
//! look at it per hundred steps, buffers and files written beforehand and never again. The calls are those of `haul-host`,
//! one system call each.

mod crr;
mod rr;
mod stream;
mod udp;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Subcommand;

/// The ends that can be started.
#[derive(Subcommand)]
pub(crate) enum Part {
    /// Takes the bytes of a stream
    #[command(name = "bare-receive", hide = true)]
    Receive {
        listen: SocketAddr,
        #[arg(long, value_enum, default_value_t = stream::Taking::Read)]
        how: stream::Taking,
    },
    /// Sends a stream
    #[command(name = "bare-send", hide = true)]
    Send {
        to: SocketAddr,
        seconds: f64,
        #[arg(long, value_enum, default_value_t = stream::How::Write)]
        how: stream::How,
    },
    /// Takes datagrams
    #[command(name = "bare-udp-receive", hide = true)]
    UdpReceive {
        listen: SocketAddr,
        #[arg(long)]
        message: u16,
        #[arg(long, value_enum, default_value_t = udp::Taking::Single)]
        how: udp::Taking,
    },
    /// Sends datagrams
    #[command(name = "bare-udp-send", hide = true)]
    UdpSend {
        to: SocketAddr,
        seconds: f64,
        #[arg(long)]
        message: u16,
        #[arg(long, value_enum, default_value_t = udp::Giving::Single)]
        how: udp::Giving,
    },
    /// Answers a byte with a byte
    #[command(name = "bare-rr-serve", hide = true)]
    RrServe {
        listen: SocketAddr,
        #[command(flatten)]
        how: rr::How,
    },
    /// Sends a byte and waits for one
    #[command(name = "bare-rr-ask", hide = true)]
    RrAsk {
        to: SocketAddr,
        seconds: f64,
        #[command(flatten)]
        how: rr::How,
    },
    /// Answers a byte on each connection
    #[command(name = "bare-crr-serve", hide = true)]
    CrrServe { listen: SocketAddr },
    /// Makes a connection for each byte
    #[command(name = "bare-crr-ask", hide = true)]
    CrrAsk {
        to: SocketAddr,
        seconds: f64,
        /// Close with a reset
        #[arg(long)]
        reset: bool,
    },
}

/// Runs one end.
pub(crate) fn run(part: Part) -> Result<()> {
    /// Longer than any span that can be asked for; who is still there then has lost the one who would have ended it.
    const LONGEST: Duration = Duration::from_mins(15);
    std::thread::spawn(|| {
        std::thread::sleep(LONGEST);
        std::process::exit(1);
    });
    let length = Duration::from_secs_f64;
    match part {
        Part::Receive { listen, how } => stream::receive(listen, how),
        Part::Send { to, seconds, how } => stream::send(to, length(seconds), how),
        Part::UdpReceive { listen, message, how } => udp::receive(listen, message, how),
        Part::UdpSend { to, seconds, message, how } => udp::send(to, length(seconds), message, how),
        Part::RrServe { listen, how } => rr::serve(listen, &how),
        Part::RrAsk { to, seconds, how } => rr::ask(to, length(seconds), &how),
        Part::CrrServe { listen } => crr::serve(listen),
        Part::CrrAsk { to, seconds, reset } => crr::ask(to, length(seconds), reset),
    }
}

/// Calls `step` for as long as asked, and returns how often per second.
fn repeat(length: Duration, mut step: impl FnMut() -> Result<()>) -> Result<f64> {
    const BETWEEN_LOOKS: u64 = 100;
    let start = Instant::now();
    let mut steps = 0_u64;
    while start.elapsed() < length {
        for _ in 0..BETWEEN_LOOKS {
            step()?;
        }
        steps += BETWEEN_LOOKS;
    }
    Ok(steps as f64 / start.elapsed().as_secs_f64())
}
