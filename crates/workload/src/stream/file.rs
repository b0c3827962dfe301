//! Sending pages of a file: sendfile, and splice through a pipe.
//!
//! The file is the user's, or one in memory, and is walked message by message. It cannot be stamped as a buffer is: its pages
//! are what the receiver reads, on one kernel the very same ones, and nothing tells when it has. So what does not repeat is the
//! file, and its length is a choice between two errors: a short one repeats, a long one comes from memory.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use haul_host::socket::{self, Pipe, SourceFile};
use haul_stats::ByteCount;
use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};

use super::{FRESH_SPAN, PAYLOAD_SEED, Quota, length};
use crate::engine::{Moved, Work};
use crate::error::Result;
use crate::mode::SendWith;
use crate::spec::{Payload, SpecError};

/// How far apart flows begin in the file, so that no two of them send the same at the same time: whole pages.
const APART: u64 = 5 << 20;

/// What the flows of this end send: the file that was named, or one in memory.
pub(crate) fn source(named: Option<&Path>, payload: Payload, message: ByteCount) -> Result<Arc<SourceFile>> {
    let Some(path) = named else { return file_of(payload, message) };
    let file = SourceFile::open(path)?;
    if file.len() < message.0 {
        return Err(SpecError::Local(format!(
            "{} has {}, and a message {}: send a longer file, or lower --message",
            path.display(),
            ByteCount(file.len()).about(),
            message.about(),
        ))
        .into());
    }
    Ok(Arc::new(file))
}

/// The file in memory that flows with this payload send: made once and kept until the last flow of it ends, because filling it
/// takes tens of milliseconds.
fn file_of(payload: Payload, message: ByteCount) -> Result<Arc<SourceFile>> {
    static LATEST: Mutex<Weak<SourceFile>> = Mutex::new(Weak::new());
    let span = match payload {
        Payload::Repeat => message,
        Payload::Stamped | Payload::Fresh => ByteCount(FRESH_SPAN as u64),
    };
    let mut latest = LATEST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(file) = latest.upgrade().filter(|file| file.len() == span.0) {
        return Ok(file);
    }
    let mut noise = SmallRng::seed_from_u64(PAYLOAD_SEED);
    let file = Arc::new(SourceFile::in_memory(span, |piece| noise.fill(piece))?);
    *latest = Arc::downgrade(&file);
    Ok(file)
}

/// The sending side of one flow that sends a file.
pub(crate) struct FileSending {
    file: Arc<SourceFile>,
    /// Where the present message begins, and how much of it has gone.
    at: u64,
    sent: usize,
    message: usize,
    through: Option<Through>,
    quota: Quota,
}

/// A pipe with what is left in it of the present message.
struct Through {
    pipe: Pipe,
    held: usize,
}

impl FileSending {
    /// Flow `index` of those that send `file`, with a pipe where `with` is splice.
    pub(crate) fn new(
        file: Arc<SourceFile>,
        message: ByteCount,
        with: SendWith,
        index: u32,
        quota: Quota,
    ) -> Result<Self> {
        let size = length(message)?;
        let through = match with {
            SendWith::Splice => Some(Through { pipe: Pipe::new(size)?, held: 0 }),
            SendWith::Write | SendWith::Sendfile | SendWith::Zerocopy => None,
        };
        let mut sending = Self { file, at: 0, sent: 0, message: size, through, quota };
        sending.go_to((u64::from(index) * APART) % sending.file.len());
        Ok(sending)
    }

    /// Begins the next message at `at`, or at the start of the file where it does not fit.
    fn go_to(&mut self, at: u64) {
        self.sent = 0;
        self.at = if at + self.message as u64 > self.file.len() { 0 } else { at };
    }
}

impl Work for FileSending {
    const LEADS: bool = true;
    const NAME: &'static str = "send";

    #[inline]
    fn step(&mut self, fd: BorrowedFd<'_>) -> io::Result<Moved> {
        if self.quota.is_spent() {
            return Ok(Moved::End);
        }
        let (from, rest) = (self.at + self.sent as u64, self.quota.cap(self.message - self.sent));
        let sent = match &mut self.through {
            None => socket::sendfile(fd, &self.file, from, rest)?,
            Some(Through { pipe, held }) => {
                if *held == 0 {
                    *held = pipe.fill(&self.file, from, rest.min(pipe.size()))?;
                }
                let sent = pipe.drain(fd, *held)?;
                *held -= sent;
                sent
            }
        };
        if sent == 0 {
            let text = "the kernel took no page of the file: was it cut short meanwhile?";
            return Err(io::Error::new(io::ErrorKind::WriteZero, text));
        }
        self.quota.spend(sent);
        self.sent += sent;
        if self.sent >= self.message {
            self.go_to(self.at + self.message as u64);
        }
        Ok(Moved::Units(sent as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::os::fd::AsFd as _;

    fn of_memory(message: u64, payload: Payload, with: SendWith, index: u32) -> Result<FileSending> {
        let message = ByteCount(message);
        FileSending::new(source(None, payload, message)?, message, with, index, Quota::NONE)
    }

    #[test]
    fn a_file_that_is_too_short_or_none_is_refused_with_its_name_and_the_remedy() {
        let path = std::env::temp_dir().join(format!("haul-send-file-{}", std::process::id()));
        std::fs::write(&path, [7; 1000]).expect("write");
        let of = |path: &Path, message| {
            source(Some(path), Payload::default(), ByteCount(message))
                .map(|file| file.len())
                .map_err(|error| error.to_string())
        };
        assert_eq!(of(&path, 1000), Ok(1000));
        let short = of(&path, 1001).expect_err("too short");
        assert!(short.contains(&path.display().to_string()) && short.contains("lower --message"), "{short}");
        std::fs::remove_file(&path).expect("remove");
        assert!(of(&path, 1).expect_err("gone").contains("cannot open"));
        assert!(of(Path::new("/proc/self"), 1).expect_err("a directory").contains("regular file"));
    }

    #[test]
    fn messages_walk_the_file_and_begin_anew_where_the_next_does_not_fit() {
        let message = 48 << 20;
        let mut sending = of_memory(message, Payload::Stamped, SendWith::Sendfile, 1).expect("file");
        assert_eq!(sending.at, APART);
        sending.go_to(sending.at + message);
        assert_eq!(sending.at, 0, "the second message does not fit behind the first");
        let one = of_memory(4096, Payload::Repeat, SendWith::Sendfile, 3).expect("file");
        assert_eq!((one.file.len(), one.at), (4096, 0));
    }

    #[test]
    fn both_ways_send_the_bytes_of_the_file_in_its_order() {
        let message = 100_000;
        let whole = {
            let mut noise = SmallRng::seed_from_u64(PAYLOAD_SEED);
            let mut bytes = vec![0; 1 << 20];
            noise.fill(bytes.as_mut_slice());
            bytes
        };
        for with in [SendWith::Sendfile, SendWith::Splice] {
            let mut sending = of_memory(message, Payload::Stamped, with, 0).expect("file");
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listen");
            let client = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
            let (mut server, _) = listener.accept().expect("accept");
            let reader = std::thread::spawn(move || {
                let mut all = Vec::new();
                server.read_to_end(&mut all).expect("read");
                all
            });
            let mut total = 0;
            while total < 5 * message {
                let Moved::Units(bytes) = sending.step(client.as_fd()).expect("step") else {
                    panic!("a blocking socket takes bytes")
                };
                total += bytes;
            }
            drop(client);
            let got = reader.join().expect("reader");
            assert_eq!(got.len() as u64, total, "{with}");
            assert!(got == whole[..got.len()], "{with}: other bytes arrived");
        }
    }
}
