//! The first bytes of every connection, and who else may have sent them.
//!
//! A hello is always [`HELLO_LEN`] bytes, whatever the version, so that a data connection's payload starts at a known
//! place and two releases can always tell each other what they speak:
//!
//! ```text
//!  0 magic     8   89 'h' 'a' 'u' 'l' 0d 0a 1a      (the idea of PNG's: no text, and mangled by what mangles bytes)
//!  8 version   2   big endian, as every number
//! 10 oldest    2   the oldest version the sender understands
//! 12 kind      1   1 control, 2 data
//! 13 mode      1   control: 1 keyed, 2 open; data: 0
//! 14 reserved  2   0; not looked at
//! 16 token    16   data: the session's; control: 0; not looked at
//! 32 run       4   data: the run; control: 0
//! 36 flow      4   data: the flow; control: 0
//! ```
//!
//! It is at least 37 bytes long for a reason: an iperf3 server reads a cookie of that size and answers at once, which
//! names it; a shorter hello would leave both ends waiting for the other.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{WireError, printable};
use crate::ladder::Side;
use crate::message::{FlowIndex, RunId};

/// The size of a hello.
pub const HELLO_LEN: usize = 40;

const MAGIC: [u8; 8] = *b"\x89haul\r\n\x1a";

/// The version of the protocol that this release speaks, and the oldest it understands.
pub const OURS: Versions = Versions { spoken: 1, oldest: 1 };

/// How many bytes of an unknown binary peer are kept for the error text.
const SAMPLE: usize = 16;

/// The versions of the protocol that one end speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    /// The newest.
    pub spoken: u16,
    /// The oldest.
    pub oldest: u16,
}

impl Versions {
    fn meets(self, other: Self) -> bool {
        self.spoken >= other.oldest && other.spoken >= self.oldest
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.spoken == self.oldest {
            write!(f, "protocol version {}", self.spoken)
        } else {
            write!(f, "protocol versions {} to {}", self.oldest, self.spoken)
        }
    }
}

/// What ties data connections to a session: 16 random bytes, chosen by the server.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token([u8; 16]);

impl Token {
    /// The token made of these bytes; whoever can guess them can pose as a flow of the session.
    #[must_use]
    pub fn from_random(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Serialize for Token {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{:032x}", u128::from_be_bytes(self.0)))
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits_only = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        match u128::from_str_radix(&text, 16) {
            Ok(number) if digits_only => Ok(Self(number.to_be_bytes())),
            _ => Err(serde::de::Error::custom("a token is 32 hexadecimal digits")),
        }
    }
}

/// The hello of a data connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataHello {
    /// The session it belongs to.
    pub token: Token,
    /// The run it belongs to.
    pub run: RunId,
    /// Which of the run's flows it is.
    pub flow: FlowIndex,
}

impl DataHello {
    /// The bytes to send first on a data connection; the payload follows at once.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_LEN] {
        Hello::Data(*self).encode(OURS)
    }
}

/// Whether a control connection is sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// By a key that both ends hold.
    Keyed,
    /// Not at all.
    Open,
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hello {
    /// A session.
    Control(Mode),
    /// One flow of a run.
    Data(DataHello),
}

impl Hello {
    /// The hello as sent by an end that speaks these versions.
    #[must_use]
    pub fn encode(&self, versions: Versions) -> [u8; HELLO_LEN] {
        let mut bytes = [0; HELLO_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&versions.spoken.to_be_bytes());
        bytes[10..12].copy_from_slice(&versions.oldest.to_be_bytes());
        match self {
            Self::Control(mode) => {
                bytes[12] = 1;
                bytes[13] = match mode {
                    Mode::Keyed => 1,
                    Mode::Open => 2,
                };
            }
            Self::Data(data) => {
                bytes[12] = 2;
                bytes[16..32].copy_from_slice(&data.token.0);
                bytes[32..36].copy_from_slice(&data.run.0.to_be_bytes());
                bytes[36..].copy_from_slice(&data.flow.0.to_be_bytes());
            }
        }
        bytes
    }

    /// The hello in these bytes. The versions are looked at first: what follows them may have changed its meaning.
    pub fn decode(bytes: &[u8; HELLO_LEN]) -> Result<Self, WireError> {
        let (magic, rest) = bytes.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(WireError::NotHaul { found: Foreign::settle(Side::Client, bytes) });
        }
        let theirs = Versions {
            spoken: u16::from_be_bytes([rest[0], rest[1]]),
            oldest: u16::from_be_bytes([rest[2], rest[3]]),
        };
        if !OURS.meets(theirs) {
            return Err(WireError::Version { ours: OURS, theirs });
        }
        match (bytes[12], bytes[13]) {
            (1, 1) => Ok(Self::Control(Mode::Keyed)),
            (1, 2) => Ok(Self::Control(Mode::Open)),
            (2, _) => {
                let word =
                    |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
                let mut token = [0; 16];
                token.copy_from_slice(&bytes[16..32]);
                Ok(Self::Data(DataHello {
                    token: Token(token),
                    run: RunId(word(32)),
                    flow: FlowIndex(word(36)),
                }))
            }
            (kind, mode) => Err(WireError::malformed(format!("a hello of kind {kind} and mode {mode}"))),
        }
    }
}

/// What was found where a hello should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Foreign {
    /// Nothing, until the time was up.
    Silence,
    /// Nothing, and then the connection was closed.
    Hangup,
    /// The beginning of a hello and no more.
    CutShort {
        /// How many bytes came.
        bytes: usize,
    },
    /// HTTP, either end.
    Http,
    /// A TLS record.
    Tls,
    /// An SSH banner.
    Ssh,
    /// The answer of an iperf3 server to the 37 bytes it takes for a cookie.
    Iperf3Server,
    /// The answer of an iperf3 server that has a client.
    Iperf3Busy,
    /// The cookie of an iperf3 client.
    Iperf3Client,
    /// A netperf control message.
    Netperf,
    /// A line of text.
    Text(String),
    /// Other bytes, the first 16 at most.
    Bytes(Vec<u8>),
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silence => f.write_str(
                "silence (a netserver, an iperf2 or a stopped process accepts a connection and says nothing)",
            ),
            Self::Hangup => f.write_str(
                "a connection that was closed before a word was said (as by a haul server that has no descriptors left, or \
                 was just stopped: its log says why)",
            ),
            Self::CutShort { bytes } => write!(f, "a haul hello that broke off after {bytes} bytes"),
            Self::Http => f.write_str("HTTP"),
            Self::Tls => f.write_str("TLS"),
            Self::Ssh => f.write_str("SSH"),
            Self::Iperf3Server => f.write_str("an iperf3 server (`haul iperf3 -c` speaks to those)"),
            Self::Iperf3Busy => f.write_str("an iperf3 server that is busy with another client"),
            Self::Iperf3Client => f.write_str("an iperf3 client (`haul iperf3 -s` serves those)"),
            Self::Netperf => f.write_str("a netperf client (`haul netserver` serves those)"),
            Self::Text(line) => write!(f, "the text '{line}'"),
            Self::Bytes(bytes) => {
                f.write_str("the bytes")?;
                bytes.iter().try_for_each(|byte| write!(f, " {byte:02x}"))
            }
        }
    }
}

/// What strangers say first, by the end they are at. iperf3 and netperf are recognised by shape, not by prefix.
const PREFIXES: &[(Side, &[u8], Foreign)] = &[
    (Side::Client, b"GET ", Foreign::Http),
    (Side::Client, b"HEAD ", Foreign::Http),
    (Side::Client, b"POST ", Foreign::Http),
    (Side::Client, b"PUT ", Foreign::Http),
    (Side::Client, b"OPTIONS ", Foreign::Http),
    (Side::Client, b"CONNECT ", Foreign::Http),
    (Side::Client, b"PRI * HTTP/2", Foreign::Http),
    (Side::Client, &[0x16, 3], Foreign::Tls),
    (Side::Client, b"SSH-", Foreign::Ssh),
    (Side::Server, b"HTTP/", Foreign::Http),
    (Side::Server, &[0x15, 3], Foreign::Tls),
    (Side::Server, &[0x16, 3], Foreign::Tls),
    (Side::Server, b"SSH-", Foreign::Ssh),
    // iperf3's state bytes PARAM_EXCHANGE and ACCESS_DENIED.
    (Side::Server, &[9], Foreign::Iperf3Server),
    (Side::Server, &[0xff], Foreign::Iperf3Busy),
];

impl Foreign {
    /// Names the peer at `end` by its first bytes; `None` while more of them could tell more. The answer for a beginning
    /// does not depend on how it was cut into reads, if asked again after each byte.
    #[must_use]
    pub fn identify(end: Side, bytes: &[u8]) -> Option<Self> {
        let mut undecided = false;
        for (_, prefix, found) in PREFIXES.iter().filter(|(side, _, _)| *side == end) {
            if bytes.starts_with(prefix) {
                return Some(found.clone());
            }
            undecided |= prefix.starts_with(bytes);
        }
        if end == Side::Client {
            match (is_iperf3_cookie(bytes), is_netperf_type(bytes)) {
                (Shape::Whole, _) => return Some(Self::Iperf3Client),
                (_, Shape::Whole) => return Some(Self::Netperf),
                (cookie, netperf) => undecided |= cookie == Shape::Begun || netperf == Shape::Begun,
            }
        }
        let enough = if is_text(bytes) {
            bytes.contains(&b'\n') || bytes.len() >= HELLO_LEN
        } else {
            bytes.len() >= SAMPLE
        };
        (enough && !undecided).then(|| Self::sample(bytes))
    }

    /// Names the peer at `end` by all that it said before the time was up.
    #[must_use]
    pub fn settle(end: Side, bytes: &[u8]) -> Self {
        if bytes.is_empty() {
            Self::Silence
        } else if bytes.starts_with(&MAGIC) || MAGIC.starts_with(bytes) {
            Self::CutShort { bytes: bytes.len() }
        } else {
            Self::identify(end, bytes).unwrap_or_else(|| Self::sample(bytes))
        }
    }

    fn sample(bytes: &[u8]) -> Self {
        if is_text(bytes) {
            let line = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
            Self::Text(printable(String::from_utf8_lossy(line).trim_end()))
        } else {
            Self::Bytes(bytes[..bytes.len().min(SAMPLE)].to_vec())
        }
    }
}

fn is_text(bytes: &[u8]) -> bool {
    bytes.iter().any(u8::is_ascii_graphic)
        && bytes.iter().all(|b| matches!(b, b' '..=b'~' | b'\t' | b'\r' | b'\n'))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Whole,
    Begun,
    Other,
}

/// 36 characters of base32 and a NUL, as iperf3 sends it from 3.2 on.
fn is_iperf3_cookie(bytes: &[u8]) -> Shape {
    let letters = bytes.iter().take_while(|b| matches!(b, b'a'..=b'z' | b'2'..=b'7')).count();
    match letters {
        36 if bytes.get(36) == Some(&0) => Shape::Whole,
        0..=36 if letters == bytes.len() => Shape::Begun,
        _ => Shape::Other,
    }
}

/// The first word of a netperf control message: the request types of netperf 2.6 and later.
fn is_netperf_type(bytes: &[u8]) -> Shape {
    let Some(first) = bytes.first_chunk::<4>() else {
        let begun = matches!(bytes, [] | [0] | [0, 0] | [0, 0, 0..=2]);
        return if begun { Shape::Begun } else { Shape::Other };
    };
    match u32::from_be_bytes(*first) {
        1..=36 | 94..=99 | 300..=302 | 600 => Shape::Whole,
        _ => Shape::Other,
    }
}

/// Collects a hello from however the bytes arrive.
#[derive(Debug)]
pub(crate) struct HelloReader {
    end: Side,
    bytes: Vec<u8>,
}

pub(crate) enum Heard {
    More,
    Hello([u8; HELLO_LEN]),
    Foreign(Foreign),
}

impl HelloReader {
    /// A reader of what the peer at `end` says.
    pub(crate) fn new(end: Side) -> Self {
        Self { end, bytes: Vec::with_capacity(HELLO_LEN) }
    }

    /// Takes bytes, and none after the hello; tells how many.
    pub(crate) fn read(&mut self, input: &[u8]) -> (usize, Heard) {
        for (index, byte) in input.iter().enumerate() {
            if self.bytes.len() == HELLO_LEN {
                return (index, Heard::More);
            }
            self.bytes.push(*byte);
            let begun = self.bytes.len().min(MAGIC.len());
            if self.bytes[..begun] != MAGIC[..begun] {
                if let Some(found) = Foreign::identify(self.end, &self.bytes) {
                    return (index + 1, Heard::Foreign(found));
                }
            } else if let Ok(hello) = <[u8; HELLO_LEN]>::try_from(self.bytes.as_slice()) {
                return (index + 1, Heard::Hello(hello));
            }
        }
        (input.len(), Heard::More)
    }

    pub(crate) fn on_time_up(&self) -> Foreign {
        Foreign::settle(self.end, &self.bytes)
    }

    pub(crate) fn on_hangup(&self) -> Foreign {
        if self.bytes.is_empty() { Foreign::Hangup } else { self.on_time_up() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hellos_are_written_and_read_as_documented() {
        let mut control = *b"\x89haul\r\n\x1a\0\x01\0\x01\x01\x01\0\0................\0\0\0\0\0\0\0\0";
        control[16..32].fill(0);
        let data = *b"\x89haul\r\n\x1a\0\x01\0\x01\x02\0\0\0SIXTEEN.RANDOM.B\0\0\x01\x02\0\0\x03\xe7";
        let mut open = control;
        open[13] = 2;
        let flow = DataHello {
            token: Token::from_random(*b"SIXTEEN.RANDOM.B"),
            run: RunId(0x102),
            flow: FlowIndex(999),
        };
        for (hello, bytes) in [
            (Hello::Control(Mode::Keyed), control),
            (Hello::Control(Mode::Open), open),
            (Hello::Data(flow), data),
        ] {
            assert_eq!(hello.encode(OURS), bytes);
            assert_eq!(Hello::decode(&bytes), Ok(hello));
        }
        assert_eq!(flow.encode(), data);
    }

    #[test]
    fn versions_meet_where_their_ranges_overlap() {
        let one = |spoken, oldest| Versions { spoken, oldest };
        for (a, b, meet) in [
            (one(1, 1), one(1, 1), true),
            (one(1, 1), one(4, 1), true),
            (one(3, 2), one(5, 3), true),
            (one(1, 1), one(3, 2), false),
            (one(1, 1), one(0, 0), false),
        ] {
            assert_eq!(a.meets(b), meet, "{a} and {b}");
            assert_eq!(b.meets(a), meet, "{b} and {a}");
        }
    }

    #[test]
    fn a_version_that_does_not_meet_ours_is_named_before_anything_else_is_read() {
        let mut bytes = Hello::Control(Mode::Open).encode(Versions { spoken: 9, oldest: 7 });
        bytes[12] = 77;
        let error = Hello::decode(&bytes).unwrap_err();
        assert_eq!(
            error.to_string(),
            "this haul speaks protocol version 1, the other end protocol versions 7 to 9: install the same release at both ends"
        );
    }

    #[test]
    fn strangers_are_named() {
        use Side::{Client, Server};
        let text = |line: &str| Foreign::Text(line.into());
        let cookie = b"abcdefghijklmnopqrstuvwxyz234567abcd\0";
        let random: Vec<u8> = (0..37_u8).map(|i| i.wrapping_mul(97).wrapping_add(200)).collect();
        let mut netperf = vec![0; 656];
        netperf[3] = 97;
        let table: Vec<(Side, &[u8], Foreign)> = vec![
            (Client, b"", Foreign::Silence),
            (Client, b"\x89haul", Foreign::CutShort { bytes: 5 }),
            (Client, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", Foreign::Http),
            (Client, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Foreign::Http),
            (Client, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", Foreign::Tls),
            (Client, b"SSH-2.0-OpenSSH_9.2\r\n", Foreign::Ssh),
            (Client, cookie, Foreign::Iperf3Client),
            (Client, &netperf, Foreign::Netperf),
            (Client, b"hello there\r\nmore", text("hello there")),
            (Client, b"half a line", text("half a line")),
            (Client, &random, Foreign::Bytes(random[..16].to_vec())),
            (Client, b"\x09", Foreign::Bytes(vec![9])),
            (Server, b"\x09", Foreign::Iperf3Server),
            (Server, b"\xff", Foreign::Iperf3Busy),
            (Server, b"HTTP/1.1 400 Bad Request\r\n", Foreign::Http),
            (Server, b"\x15\x03\x01\x00\x02\x02\x46", Foreign::Tls),
            (Server, b"220 mail.example ESMTP\r\n", text("220 mail.example ESMTP")),
        ];
        for (end, bytes, expected) in table {
            let mut reader = HelloReader::new(end);
            let found = match reader.read(bytes) {
                (_, Heard::Foreign(found)) => found,
                (_, Heard::More) => reader.on_time_up(),
                (_, Heard::Hello(_)) => panic!("took {bytes:02x?} for a hello"),
            };
            assert_eq!(found, expected, "{bytes:02x?}");
        }
    }

    #[test]
    fn a_stranger_cannot_fill_the_log_or_steer_the_terminal() {
        let shown = Foreign::settle(Side::Client, b"\x1b[2J\x1b[31mowned, and a good deal more than that")
            .to_string();
        assert!(shown.chars().all(|c| !c.is_control()) && shown.len() < 80, "{shown}");
    }

    proptest! {
        #![proptest_config(crate::seeded())]

        #[test]
        fn what_is_heard_does_not_depend_on_how_it_is_cut(
            start in prop::sample::select(vec![&b""[..], b"\x89haul\r\n\x1a", b"GE", b"\0\0", b"abc234"]),
            rest in prop::collection::vec(any::<u8>(), 0..80),
            cut in 1_usize..9,
            end in prop::sample::select(vec![Side::Client, Side::Server]),
        ) {
            let bytes = [start, &rest].concat();
            let hear = |pieces: &mut dyn Iterator<Item = &[u8]>| {
                let mut reader = HelloReader::new(end);
                let mut all = 0;
                for piece in pieces {
                    let (taken, heard) = reader.read(piece);
                    all += taken;
                    match heard {
                        Heard::More => {}
                        Heard::Hello(hello) => return (all, Ok(hello)),
                        Heard::Foreign(found) => return (all, Err(found)),
                    }
                }
                (all, Err(reader.on_time_up()))
            };
            let whole = hear(&mut [&bytes[..]].into_iter());
            let pieces = hear(&mut bytes.chunks(cut));
            prop_assert_eq!(&whole, &pieces);
            if let Ok(hello) = whole.1 {
                prop_assert_eq!(whole.0, HELLO_LEN);
                let _ = Hello::decode(&hello);
            }
        }

        #[test]
        fn every_data_hello_comes_back(token: [u8; 16], run: u32, flow: u32) {
            let hello = DataHello { token: Token::from_random(token), run: RunId(run), flow: FlowIndex(flow) };
            prop_assert_eq!(Hello::decode(&hello.encode()), Ok(Hello::Data(hello)));
        }
    }
}
