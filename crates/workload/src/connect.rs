//! Connections of one transaction each.

use std::net::{IpAddr, SocketAddr, TcpListener};

use haul_host::socket;

use crate::end::{Ends, Workers};
use crate::error::{Result, WorkloadError};
use crate::legs::Flows;
use crate::spec::RunSpec;

/// The server's listeners, one for each flow: a flow has one connection at a time. The kernel chooses their ports.
pub(crate) fn listeners(leg: &RunSpec, local: IpAddr) -> Result<Vec<TcpListener>> {
    let address = SocketAddr::new(local.to_canonical(), 0);
    (0..leg.flows).map(|_| Ok(socket::listen(address, &leg.sockets(false))?)).collect()
}

/// The client's side of the flows: where they connect to. Each has a socket that stands for it while it has no connection.
pub(crate) fn flows(_leg: &RunSpec, _server: IpAddr, _ports: &[u16]) -> Result<Flows> {
    Err(WorkloadError::Invalid("not yet".to_owned()))
}

/// Starts the workers of one end.
pub(crate) fn workers(_end: Ends<'_>, _flows: Flows) -> Result<Workers> {
    Err(WorkloadError::Invalid("not yet".to_owned()))
}
