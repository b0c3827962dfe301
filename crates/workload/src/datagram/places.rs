//! The places of one end where datagrams are dropped, read at the start, at both edges of the window and at the end.
//!
//! A socket's own drops are exact. Everything else counts for whoever uses the device or the host: it bounds what may
//! have been lost there and proves nothing (see [`super::report`]). Device and queueing disciplines are those of the route
//! to the other end, in the network namespace of the thread that reads, which is the one that made the sockets.

use std::net::IpAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use haul_host::HostError;
use haul_host::link::{self, Link};
use haul_host::probe::net::NetCounters;
use haul_host::socket::udp;

use super::report::{Counted, Drops};

/// A value, or why there is none.
type Known<T> = Result<T, String>;

/// What the counters said at one time.
#[derive(Debug, Clone)]
struct Mark {
    sockets: Known<Vec<u32>>,
    net: Known<NetCounters>,
}

/// The counters of one end through a run.
#[derive(Debug)]
pub(super) struct Places {
    sockets: Vec<Arc<OwnedFd>>,
    device: Known<Link>,
    peer: Option<IpAddr>,
    start: Mark,
    window: Option<(Mark, Mark)>,
    end: Mark,
}

impl Places {
    /// Reads them as they are before the first datagram.
    pub(super) fn new(sockets: Vec<Arc<OwnedFd>>, device: Option<&str>, peer: Option<IpAddr>) -> Self {
        let device = match (device, peer) {
            (Some(name), _) => link::link_by_name(name),
            (None, Some(peer)) => link::route_to(peer).and_then(|route| link::link_by_index(route.oif)),
            (None, None) => {
                Err(HostError::NotFound { what: "the other end's address".to_owned(), hint: None })
            }
        };
        let device = device.map_err(|error| error.to_string());
        let start = read(&sockets, &device);
        Self { sockets, device, peer, end: start.clone(), start, window: None }
    }

    /// The MTU of the path, as far as it is known by now, and whether it is one of IPv6.
    pub(super) fn path(&self) -> (Option<u32>, bool) {
        let mtu = self.sockets.first().and_then(|socket| udp::path_mtu(socket.as_fd()).ok());
        (mtu, self.peer.is_some_and(|peer| peer.is_ipv6()))
    }

    pub(super) fn open(&mut self) {
        let now = read(&self.sockets, &self.device);
        self.window = Some((now.clone(), now));
    }

    pub(super) fn close(&mut self) {
        if let Some((_, close)) = &mut self.window {
            *close = read(&self.sockets, &self.device);
        }
    }

    /// The flows are over.
    pub(super) fn end(&mut self) {
        self.end = read(&self.sockets, &self.device);
    }

    /// What the queues of a sender dropped.
    pub(super) fn queue(&self) -> Counted {
        self.counted(|then, now| {
            let counters = between(then, now)?;
            let known = |name: &str, value: Option<u64>| value.ok_or_else(|| why(&counters, name));
            let qdisc = counters.root_qdisc().and_then(|qdisc| qdisc.drops);
            Ok(known("qdiscs", qdisc)?.saturating_add(known("link", counters.link.tx_dropped)?))
        })
    }

    /// What the receiver's host dropped before it reached a socket.
    pub(super) fn host(&self) -> Counted {
        self.counted(|then, now| {
            let counters = between(then, now)?;
            let known = |name: &str, value: Option<u64>| value.ok_or_else(|| why(&counters, name));
            let parts = [
                known("softnet_dropped", counters.softnet_dropped)?,
                known("link", counters.link.rx_dropped)?,
                known("link", counters.link.rx_missed_errors)?,
            ];
            Ok(parts.into_iter().fold(0, u64::saturating_add))
        })
    }

    /// What the sockets themselves dropped.
    pub(super) fn sockets(&self) -> Counted {
        self.counted(|then, now| {
            let (then, now) = (then.sockets.as_ref(), now.sockets.as_ref());
            let (then, now) = (then.map_err(Clone::clone)?, now.map_err(Clone::clone)?);
            Ok(then.iter().zip(now).map(|(then, now)| u64::from(now.wrapping_sub(*then))).sum())
        })
    }

    fn counted(&self, of: impl Fn(&Mark, &Mark) -> Result<u64, String>) -> Counted {
        let window = self.window.as_ref().map_or(Ok(0), |(open, close)| of(open, close));
        match (window, of(&self.start, &self.end)) {
            (Ok(window), Ok(run)) => Counted::Drops(Drops { window: window.min(run), run }),
            (Err(reason), _) | (_, Err(reason)) => Counted::Unknown(reason),
        }
    }
}

fn read(sockets: &[Arc<OwnedFd>], device: &Known<Link>) -> Mark {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the kernel counts in 32 bits, and differences are modulo that"
    )]
    let drops = |socket: &Arc<OwnedFd>| udp::drops(socket.as_fd()).map(|drops| drops as u32);
    Mark {
        sockets: sockets.iter().map(drops).collect::<Result<_, _>>().map_err(|error| error.to_string()),
        net: device.as_ref().map(NetCounters::read).map_err(Clone::clone),
    }
}

fn between(then: &Mark, now: &Mark) -> Known<NetCounters> {
    Ok(now.net.as_ref().map_err(Clone::clone)?.since(then.net.as_ref().map_err(Clone::clone)?))
}

/// Why the kernel's counter of this name, or one of its group, is not there.
fn why(counters: &NetCounters, name: &str) -> String {
    let reason = counters.absent.iter().find(|(key, _)| key.starts_with(name));
    reason.map_or_else(|| format!("{name} was not counted"), |(_, reason)| reason.clone())
}
