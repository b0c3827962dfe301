//! Peers that are not what they should be: a relay that disturbs data connections, and services that are not haul.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use haul_host::netns::Netns;

use crate::process::BOUND;

/// What a relay does to one data connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Treat {
    /// Passes it on.
    Pass,
    /// Passes it on this much later.
    Late(Duration),
    /// Passes its hello on, and the payload this much later.
    Hold(Duration),
    /// Passes it on and breaks it off after this long.
    Cut(Duration),
}

/// Something that listens until it is dropped.
pub(crate) struct Listening {
    pub(crate) addr: SocketAddr,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listening {
    /// Listens on `address` in `netns` and gives each connection to `serve`, on a thread of its own.
    fn start(
        netns: &Netns,
        address: IpAddr,
        serve: impl Fn(TcpStream, &AtomicBool) + Send + Sync + 'static,
    ) -> Self {
        let listener = netns.run(|| TcpListener::bind((address, 0)).unwrap()).unwrap();
        listener.set_nonblocking(true).unwrap();
        let addr = listener.local_addr().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let (ended, serve) = (Arc::clone(&over), Arc::new(serve));
        let thread = thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let Ok((stream, _)) = listener.accept() else {
                    thread::sleep(Duration::from_millis(1));
                    continue;
                };
                stream.set_nonblocking(false).unwrap();
                let (serve, ended) = (Arc::clone(&serve), Arc::clone(&ended));
                thread::spawn(move || serve(stream, &ended));
            }
        });
        Self { addr, over, thread: Some(thread) }
    }

    pub(crate) fn target(&self) -> String {
        self.addr.to_string()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Stands in front of `server` in its namespace and treats each data connection as `treat` says of its flow.
pub(crate) fn relay(
    netns: &Netns,
    server: SocketAddr,
    treat: impl Fn(u32) -> Treat + Send + Sync + 'static,
) -> Listening {
    let place = netns.clone();
    Listening::start(netns, server.ip(), move |near, _| {
        // What breaks off here is what the test is about, and shows at the two ends.
        let _ = pass_on(&place, server, near, &treat);
    })
}

fn pass_on(
    netns: &Netns,
    server: SocketAddr,
    mut near: TcpStream,
    treat: &impl Fn(u32) -> Treat,
) -> io::Result<()> {
    let mut hello = [0; 40];
    near.read_exact(&mut hello)?;
    // Where `docs/protocol.md` has them.
    let (data, flow) = (hello[12] == 2, u32::from_be_bytes([hello[36], hello[37], hello[38], hello[39]]));
    let treat = if data { treat(flow) } else { Treat::Pass };
    if let Treat::Late(by) = treat {
        thread::sleep(by);
    }
    let mut far = netns.run(|| TcpStream::connect(server)).map_err(io::Error::other)??;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    far.write_all(&hello)?;
    if let Treat::Hold(by) = treat {
        thread::sleep(by);
    }
    let (mut back_from, mut back_to) = (far.try_clone()?, near.try_clone()?);
    let back = thread::spawn(move || {
        let _ = io::copy(&mut back_from, &mut back_to);
        let _ = back_to.shutdown(Shutdown::Write);
    });
    if let Treat::Cut(after) = treat {
        let (near, far) = (near.try_clone()?, far.try_clone()?);
        thread::spawn(move || {
            thread::sleep(after);
            let _ = near.shutdown(Shutdown::Both);
            let _ = far.shutdown(Shutdown::Both);
        });
    }
    let _ = io::copy(&mut near, &mut far);
    let _ = far.shutdown(Shutdown::Write);
    let _ = back.join();
    Ok(())
}

/// A service that is not this haul.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stranger {
    /// Accepts and says nothing, as netserver and iperf2 do.
    Silent,
    /// Closes at once.
    Closes,
    /// Says this once it has heard something.
    Answers(&'static [u8]),
    /// Says this at once.
    Greets(&'static [u8]),
}

/// A haul of a far future: the same magic, version 9, which understands nothing older.
pub(crate) const FUTURE_HELLO: [u8; 40] = {
    let mut hello = [0; 40];
    let head = [0x89, 0x68, 0x61, 0x75, 0x6c, 0x0d, 0x0a, 0x1a, 0, 9, 0, 9, 1, 1];
    let mut at = 0;
    while at < head.len() {
        hello[at] = head[at];
        at += 1;
    }
    hello
};

/// Listens as a stranger does.
pub(crate) fn stranger(netns: &Netns, address: IpAddr, kind: Stranger) -> Listening {
    Listening::start(netns, address, move |mut stream, over| {
        let _ = stream.set_read_timeout(Some(Duration::from_millis(50)));
        if kind == Stranger::Closes {
            return;
        }
        if let Stranger::Greets(words) = kind {
            let _ = stream.write_all(words);
        }
        let mut buffer = [0; 256];
        let begun = std::time::Instant::now();
        while !over.load(Ordering::Relaxed) && begun.elapsed() < BOUND {
            match stream.read(&mut buffer) {
                Ok(0) => return,
                Ok(_) => {
                    if let Stranger::Answers(words) = kind {
                        let _ = stream.write_all(words);
                    }
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                }
                Err(_) => return,
            }
        }
    })
}
