//! A connection for each byte there and back: opened, asked on, answered on, closed, the client first.

use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use haul_host::socket::{self, ConnectPlan, Flags, Opening, Requested};

use super::repeat;

/// Answers one connection after the other until this process is killed.
pub(super) fn serve(listen: SocketAddr) -> Result<()> {
    let listener = socket::listen(listen, &Requested::default())?;
    loop {
        let (stream, _) = socket::accept(listener.as_fd(), false).context("cannot accept")?;
        let fd = stream.as_fd();
        // Whatever comes after the answer is the client's end, in order or by reset.
        while matches!(socket::recv(fd, &mut [0], Flags::NONE), Ok(1)) {
            socket::send(fd, &[1])?;
        }
    }
}

/// Opens connections for as long as told, and prints how many per second.
pub(super) fn ask(to: SocketAddr, length: Duration, reset: bool) -> Result<()> {
    let opening = Opening { reset_on_close: reset, ..Opening::default() };
    // As everybody who asks and waits sets it, haul too.
    let requested = Requested { nodelay: true, ..Requested::default() };
    let plan = ConnectPlan::new(to, None, &requested, opening)?;
    let rate = repeat(length, || {
        let stream = plan.open().context("cannot reach the bare server")?;
        socket::send(stream.as_fd(), &[1])?;
        ensure!(socket::recv(stream.as_fd(), &mut [0], Flags::NONE)? == 1, "the server ended");
        Ok(())
    })?;
    println!("{rate:.1}");
    Ok(())
}
