//! The side that accepts and answers.

use std::io;
use std::net::{IpAddr, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use haul_host::socket::{self, Flags, Interest};

use super::{LOOK, Seen, TURN, turn};
use crate::engine::{Manner, Moved, Place, Work};
use crate::error::{Result, WorkloadError};
use crate::exchange::{Sizes, make_buffers, send_run, with_buffers};

/// A connection at the server.
struct Taken {
    stream: TcpStream,
    /// Bytes of the request that have come.
    got: usize,
    /// Bytes of the response that the kernel has not taken.
    owed: usize,
}

/// Whether a call has ended for want of anything to do: at once where it does not wait, by a nudge where it does.
fn nobody_came(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// One flow of the side that answers.
pub(super) struct Answering {
    sizes: Sizes,
    client: IpAddr,
    listeners: Vec<Arc<OwnedFd>>,
    /// Which of them the next connection comes to.
    at: usize,
    /// How many of them epoll knows; the first it knows as the flow's own.
    known: usize,
    accepted: u64,
    seen: Seen,
    taken: Option<Taken>,
    waits: bool,
    turned: bool,
}

impl Answering {
    pub(super) fn new(
        sizes: Sizes,
        client: IpAddr,
        listeners: Vec<Arc<OwnedFd>>,
        place: Place,
        seen: Seen,
    ) -> Result<Self> {
        make_buffers(sizes.request, sizes.response)?;
        let (client, waits) = (client.to_canonical(), place.manner == Manner::Block);
        if !waits {
            let set = |listener: &Arc<OwnedFd>| socket::set_nonblocking(listener.as_fd(), true);
            let set = listeners.iter().try_for_each(set);
            set.map_err(|error| WorkloadError::os("prepare", "a listener", error))?;
        }
        let (at, known, accepted) = (0, 1, 0);
        Ok(Self { sizes, client, listeners, at, known, accepted, seen, taken: None, waits, turned: false })
    }

    /// Takes the next connection; `None` where the listener was shut down. Only the client's own address is let in, and
    /// it takes the place of a connection that has no more to say, or has not said anything.
    #[inline]
    fn accept(&mut self) -> io::Result<Option<()>> {
        let Some(listener) = self.listeners.get(self.at) else { return Ok(None) };
        let (stream, from) = match socket::accept(listener.as_fd(), !self.waits) {
            Ok(accepted) => accepted,
            // What accept4(2) says of a listener that was shut down.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => return Ok(Some(())),
            Err(error) => {
                if nobody_came(&error) && self.taken.is_none() {
                    self.catch_up()?;
                }
                return Err(error);
            }
        };
        let busy =
            self.taken.as_ref().is_some_and(|it| it.owed > 0 || (1..self.sizes.request).contains(&it.got));
        let silent = self.taken.as_ref().is_some_and(|it| it.got == 0);
        let admitted = from.ip().to_canonical() == self.client && !busy;
        if !admitted || silent {
            self.seen.strangers.fetch_add(1, Ordering::Relaxed);
        }
        if admitted {
            self.taken = Some(Taken { stream, got: 0, owed: 0 });
            self.turned = !self.waits;
            self.accepted += 1;
        }
        Ok(Some(()))
    }

    /// Goes on to the listener whose turn it is.
    #[inline]
    fn take_turns(&mut self) {
        self.at = turn(self.accepted, self.listeners.len());
        if !self.waits && self.at >= self.known {
            // From its first turn on, epoll knows it too.
            self.known = self.at + 1;
            self.turned = true;
        }
    }

    /// Nobody came: a stranger on the client's host may have been counted, and the client be one behind.
    fn catch_up(&mut self) -> io::Result<()> {
        let reach = if self.waits { self.listeners.len() } else { self.known };
        for (at, listener) in self.listeners.iter().enumerate().take(reach) {
            if at != self.at && socket::await_readable(listener.as_fd(), Duration::ZERO)? {
                (self.at, self.accepted) = (at, at as u64 * TURN);
                break;
            }
        }
        Ok(())
    }

    /// One receive, and the response where that was the last of the request.
    #[inline]
    fn answer(&mut self) -> io::Result<u64> {
        let Sizes { request, response, .. } = self.sizes;
        let Some(taken) = &mut self.taken else { return Ok(0) };
        if taken.owed == 0 {
            // Once it is answered, one byte more than there may be is room enough for the end.
            let rest = if taken.got < request { request - taken.got } else { 1 };
            let received = with_buffers(|inbox, _| {
                socket::recv(taken.stream.as_fd(), &mut inbox[..rest], Flags::WAITALL)
            });
            match received {
                Ok(received) if received > 0 && taken.got < request => taken.got += received,
                Err(error) if nobody_came(&error) => return Err(error),
                // The client has closed it, in order or by a reset, or says more than it was to.
                Ok(_) | Err(_) => {
                    self.taken = None;
                    self.take_turns();
                    return Ok(0);
                }
            }
            if taken.got < request {
                return Ok(0);
            }
            taken.owed = response;
        }
        let sent = with_buffers(|_, outbox| send_run(taken.stream.as_fd(), &outbox[..response], taken.owed));
        match sent {
            Ok(0) => return Err(io::ErrorKind::WouldBlock.into()),
            Ok(sent) => taken.owed -= sent,
            Err(error) if nobody_came(&error) => return Err(error),
            // Whoever asked has gone: its own end knows why.
            Err(_) => {
                self.taken = None;
                self.take_turns();
            }
        }
        let Some(Taken { stream, owed: 0, .. }) = &self.taken else { return Ok(0) };
        self.seen.look(stream);
        Ok(1)
    }
}

impl Work for Answering {
    const LEADS: bool = false;
    const NAME: &'static str = "accept";
    const OWN_TABLE: bool = true;
    const NUDGE: Option<Duration> = Some(LOOK);

    #[inline]
    fn step(&mut self, _fd: BorrowedFd<'_>) -> io::Result<Moved> {
        if self.taken.is_none() {
            if self.accept()?.is_none() {
                return Ok(Moved::End);
            }
            if !self.waits {
                return Ok(Moved::Units(0));
            }
        }
        match self.answer() {
            // In epoll it may have been a listener that was ready; blocked, it is time to look at them.
            Err(error) if nobody_came(&error) => {
                let ready =
                    |listener: &Arc<OwnedFd>| socket::await_readable(listener.as_fd(), Duration::ZERO);
                if self.waits && !self.listeners.get(self.at).map_or(Ok(true), ready)? {
                    return Err(error);
                }
                match self.accept()? {
                    Some(()) => Ok(Moved::Units(0)),
                    None => Ok(Moved::End),
                }
            }
            answered => answered.map(Moved::Units),
        }
    }

    fn interest(&self) -> Interest {
        if self.taken.as_ref().is_some_and(|taken| taken.owed > 0) { Interest::WRITE } else { Interest::READ }
    }

    fn turned(&mut self) -> bool {
        std::mem::take(&mut self.turned)
    }

    fn own_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.taken {
            Some(taken) => Some(taken.stream.as_fd()),
            None => self.listeners.get(self.at).map(|listener| listener.as_fd()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::*;
    use haul_host::clock;
    use haul_host::socket::{ConnectPlan, Opening, set_timeouts};
    use std::net::Ipv4Addr;

    const ONE: usize = 1;
    const HOME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn leg(flows: u32) -> RunSpec {
        RunSpec { workload: crate::Workload::Crr, flows, ..RunSpec::default() }
    }

    fn seen() -> Seen {
        Seen { facts: Arc::default(), requested: Requested::default(), strangers: Arc::default() }
    }

    /// A responder of one flow with its listeners, and where they are.
    fn answering(manner: Manner) -> (Answering, Vec<SocketAddr>) {
        let listeners = listeners(&leg(1), HOME).expect("listen");
        let at = listeners.iter().map(|it| it.local_addr().expect("address")).collect();
        for listener in &listeners {
            set_timeouts(listener, Some(LOOK), Some(LOOK)).expect("timeouts");
        }
        let flows = served(&leg(1), listeners, (HOME, 1).into());
        let own = flows.listeners.into_iter().next().expect("a flow's");
        let sizes = Sizes { request: ONE, response: ONE, in_flight: 1 };
        let place = Place { flow: 0, lane: 0, manner };
        (Answering::new(sizes, HOME, own, place, seen()).expect("buffers"), at)
    }

    /// Steps until something has been answered, or nothing came for a while.
    fn serve(answering: &mut Answering, stand_in: BorrowedFd<'_>) -> u64 {
        let until = clock::now().after(Duration::from_millis(500));
        while clock::now() < until {
            match answering.step(stand_in) {
                Ok(Moved::Units(units)) if units > 0 => return units,
                Ok(Moved::End) => break,
                Ok(_) | Err(_) => {}
            }
        }
        0
    }

    fn ask(stream: &TcpStream) {
        socket::send(stream.as_fd(), &[7]).expect("ask");
    }

    #[test]
    fn ports_are_shared_out_among_the_flows_and_each_has_one_at_least() {
        for (flows, each) in [(1, 64), (3, 21), (64, 1), (100, 1)] {
            let leg = leg(flows);
            let listeners = listeners(&leg, HOME).expect("listen");
            assert_eq!(listeners.len(), flows as usize * each);
            let ports: Vec<u16> =
                listeners.iter().map(|it| it.local_addr().expect("address").port()).collect();
            let client = super::super::flows(&leg, HOME, &ports).expect("flows");
            let server = served(&leg, listeners, (HOME, 9).into());
            assert_eq!((client.sockets.len(), server.sockets.len()), (flows as usize, flows as usize));
            assert!(client.peers.iter().all(|own| own.len() == each));
            assert!(server.listeners.iter().all(|own| own.len() == each));
            super::super::flows(&leg, HOME, &[]).expect_err("a server without a port");
        }
        flows(&leg(2), HOME, &[1, 2, 3]).expect_err("ports that cannot be shared out");
    }

    #[test]
    fn both_ends_know_whose_turn_it_is() {
        assert_eq!((turn(0, 3), turn(TURN - 1, 3), turn(TURN, 3), turn(3 * TURN, 3)), (0, 0, 1, 0));
        assert_eq!((turn(u64::MAX, 1), turn(5, 0)), (0, 0));
    }

    #[test]
    fn only_the_clients_address_is_served_and_a_silent_connection_gives_way() {
        for manner in [Manner::Block, Manner::Epoll] {
            let (mut answering, at) = answering(manner);
            let stand_in = UnixDatagram::unbound().expect("socket");
            let other = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), 0));
            let plan = ConnectPlan::new(at[0], Some(other), &Requested::default(), Opening::default());
            let stranger = plan.expect("plan").open().expect("connect");
            ask(&stranger);
            stranger.set_read_timeout(Some(Duration::from_secs(2))).expect("timeout");
            assert_eq!(serve(&mut answering, stand_in.as_fd()), 0, "{manner:?}");
            let mut byte = [0];
            let heard = socket::recv(stranger.as_fd(), &mut byte, Flags::NONE);
            assert!(matches!(heard, Ok(0) | Err(_)), "closed without a word: {heard:?}");
            let silent = TcpStream::connect(at[0]).expect("connect");
            let client = TcpStream::connect(at[0]).expect("connect");
            ask(&client);
            assert_eq!(serve(&mut answering, stand_in.as_fd()), 1, "{manner:?}");
            assert_eq!(socket::recv(client.as_fd(), &mut byte, Flags::NONE).expect("a response"), 1);
            assert_eq!(answering.seen.strangers.load(Ordering::Relaxed), 2, "{manner:?}: both were counted");
            drop(silent);
        }
    }

    #[test]
    fn a_client_that_has_counted_otherwise_is_found_where_it_is() {
        let (mut answering, at) = answering(Manner::Block);
        let stand_in = UnixDatagram::unbound().expect("socket");
        for listener in [0, 5, 6, 2] {
            let client = TcpStream::connect(at[listener]).expect("connect");
            ask(&client);
            assert_eq!(serve(&mut answering, stand_in.as_fd()), 1, "listener {listener}");
        }
    }

    #[test]
    fn a_listener_that_was_shut_down_is_the_end_also_under_a_client_that_does_not_read() {
        for manner in [Manner::Block, Manner::Epoll] {
            let (mut answering, at) = answering(manner);
            let stand_in = UnixDatagram::unbound().expect("socket");
            let client = TcpStream::connect(at[0]).expect("connect");
            while answering.taken.is_none() {
                let _ = answering.step(stand_in.as_fd());
            }
            socket::shutdown(answering.listeners[0].as_fd(), std::net::Shutdown::Both).expect("shut down");
            assert_eq!(answering.step(stand_in.as_fd()).expect("step"), Moved::End, "{manner:?}");
            drop(client);
        }
    }

    #[test]
    fn a_connection_that_is_refused_or_closed_unanswered_is_a_fault_with_its_address() {
        let sizes = Sizes { request: ONE, response: ONE, in_flight: 1 };
        for manner in [Manner::Block, Manner::Epoll] {
            let place = Place { flow: 0, lane: 0, manner };
            let new = |peer| {
                let page = Book::new(1, None).page(place);
                Connecting::new(sizes, &[peer], false, place, page, seen()).expect("plan")
            };
            let stand_in = UnixDatagram::unbound().expect("socket");
            let step = |flow: &mut Connecting| {
                flow.begin(stand_in.as_fd()).expect("begin");
                let until = clock::now().after(Duration::from_secs(2));
                loop {
                    assert!(clock::now() < until, "no fault");
                    match flow.step(stand_in.as_fd()) {
                        Err(error) if error.kind() != io::ErrorKind::WouldBlock => return error.to_string(),
                        _ => {}
                    }
                }
            };
            let listener = TcpListener::bind((HOME, 0)).expect("bind");
            let peer = listener.local_addr().expect("address");
            let mut flow = new(peer);
            let closing = std::thread::spawn(move || {
                let (stream, _) = listener.accept().expect("accept");
                socket::recv(stream.as_fd(), &mut [0], Flags::NONE).expect("a request");
            });
            assert!(step(&mut flow).contains("before it had answered"));
            closing.join().expect("no panic");
            let text = step(&mut new(peer));
            assert!(
                text.contains(&format!("cannot connect to {peer}")) && text.contains("refused"),
                "{text}"
            );
        }
    }
}
