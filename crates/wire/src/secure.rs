//! The key that both ends hold, and the channel it seals.
//!
//! Noise with a pre-shared key, pattern `NNpsk0` (<https://noiseprotocol.org/noise.html>, revision 34, section 9): the
//! key is mixed in before the first message, so the server's first check of an authentication tag tells whether the
//! client holds it, and ephemeral keys give each session its own secrets. Both hellos go in as the prologue: whoever
//! alters a version or a mode on the way breaks the handshake. No certificates, no identities: who has the key is let in.
//!
//! Only the control connection is sealed. Payload is what is measured, and travels as it is.

use std::fmt;
use std::str::FromStr;

use snow::{Builder, HandshakeState, TransportState};

use crate::error::WireError;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";

/// What sealing adds to a text: a Poly1305 tag.
pub(crate) const TAG_LEN: usize = 16;

/// Crockford's alphabet: no letter that is taken for a digit or another letter.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// 256 bits and a check of 4, in digits of 5.
const DIGITS: usize = 52;

/// The secret that lets a client in: 32 random bytes.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl Key {
    /// The key made of these bytes, which have to come from a generator fit for secrets.
    #[must_use]
    pub fn from_random(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The key as text, 13 groups of four letters and digits with a check at the end; [`FromStr`] reads it back.
    #[must_use]
    pub fn reveal(&self) -> String {
        let mut text = String::with_capacity(DIGITS + DIGITS / 4);
        let (mut bits, mut held) = (0_u32, 0);
        let last = self.check() << 4;
        for byte in self.0.iter().copied().chain([last]) {
            bits = bits << 8 | u32::from(byte);
            held += 8;
            while held >= 5 && text.len() < DIGITS + DIGITS / 4 - 1 {
                held -= 5;
                if text.len() % 5 == 4 {
                    text.push('-');
                }
                text.push(char::from(ALPHABET[(bits >> held & 31) as usize]));
            }
            bits &= (1 << held) - 1;
        }
        text
    }

    /// A checksum of 4 bits (CRC-4, x⁴ + x + 1), so that a slip of the pen is not reported as a wrong key.
    fn check(&self) -> u8 {
        let mut crc = 0_u8;
        for byte in self.0 {
            for bit in (0..8).rev() {
                let out = crc >> 3 ^ byte >> bit & 1;
                crc = crc << 1 & 0xf ^ if out == 1 { 0b0011 } else { 0 };
            }
        }
        crc
    }
}

impl FromStr for Key {
    type Err = WireError;

    /// Reads what [`Key::reveal`] wrote, in either case, with or without hyphens and blanks, `o` for `0` and `i` or `l`
    /// for `1`.
    fn from_str(text: &str) -> Result<Self, WireError> {
        let mut key = [0_u8; 33];
        let (mut bits, mut held, mut digits, mut filled) = (0_u32, 0, 0, 0);
        for c in text.chars().filter(|c| *c != '-' && !c.is_whitespace()) {
            let digit = match c.to_ascii_lowercase() {
                'o' => 0,
                'i' | 'l' => 1,
                c => ALPHABET
                    .iter()
                    .zip(0..)
                    .find_map(|(letter, value)| (char::from(*letter) == c).then_some(value))
                    .ok_or(WireError::BadKey { why: "it holds a character that keys do not use" })?,
            };
            digits += 1;
            if digits > DIGITS {
                return Err(WireError::BadKey { why: "it is longer than 52 letters and digits" });
            }
            bits = bits << 5 | digit;
            held += 5;
            if held >= 8 {
                held -= 8;
                key[filled] = (bits >> held & 0xff) as u8;
                filled += 1;
                bits &= (1 << held) - 1;
            }
        }
        if digits < DIGITS {
            return Err(WireError::BadKey { why: "it is shorter than 52 letters and digits" });
        }
        let mut bytes = [0; 32];
        bytes.copy_from_slice(&key[..32]);
        let key = Self(bytes);
        if u32::from(key.check()) == bits {
            Ok(key)
        } else {
            Err(WireError::BadKey { why: "its check does not match: a letter is wrong" })
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// Whom an end trusts.
#[derive(Debug, Clone)]
pub enum Trust {
    /// Who holds the key.
    Key(Key),
    /// Everybody.
    Open,
}

/// A handshake under way: two messages, the client's first.
pub(crate) struct Handshake(Box<HandshakeState>);

impl Handshake {
    pub(crate) fn client(key: &Key, prologue: &[u8]) -> Result<Self, WireError> {
        let builder = builder(key, prologue)?;
        builder
            .build_initiator()
            .map(|state| Self(Box::new(state)))
            .map_err(|e| cipher("begin the handshake", &e))
    }

    pub(crate) fn server(key: &Key, prologue: &[u8]) -> Result<Self, WireError> {
        let builder = builder(key, prologue)?;
        builder
            .build_responder()
            .map(|state| Self(Box::new(state)))
            .map_err(|e| cipher("begin the handshake", &e))
    }

    /// This end's message.
    pub(crate) fn write(&mut self) -> Result<Vec<u8>, WireError> {
        // An ephemeral key and a tag are 48 bytes.
        let mut message = [0; 64];
        let len = self.0.write_message(&[], &mut message).map_err(|e| cipher("write the handshake", &e))?;
        Ok(message[..len].to_vec())
    }

    /// The other end's message.
    pub(crate) fn read(&mut self, message: &[u8]) -> Result<(), WireError> {
        let mut payload = vec![0; message.len()];
        match self.0.read_message(message, &mut payload) {
            Ok(_) => Ok(()),
            Err(snow::Error::Decrypt | snow::Error::Dh) => Err(WireError::WrongKey),
            Err(_) => Err(WireError::malformed(format!("a handshake message of {} bytes", message.len()))),
        }
    }

    pub(crate) fn finish(self) -> Result<Channel, WireError> {
        let state = self.0.into_transport_mode().map_err(|e| cipher("finish the handshake", &e))?;
        Ok(Channel::Sealed(Box::new(state)))
    }
}

fn builder<'a>(key: &'a Key, prologue: &'a [u8]) -> Result<Builder<'a>, WireError> {
    let name = PATTERN.parse().map_err(|e| cipher("name the handshake", &e))?;
    Builder::new(name)
        .psk(0, &key.0)
        .and_then(|builder| builder.prologue(prologue))
        .map_err(|e| cipher("set up the handshake", &e))
}

fn cipher(operation: &'static str, error: &snow::Error) -> WireError {
    WireError::Cipher { operation, reason: error.to_string() }
}

/// Turns records into what goes on the wire, and back.
pub(crate) enum Channel {
    Plain,
    Sealed(Box<TransportState>),
}

impl Channel {
    pub(crate) fn seal(&mut self, record: Vec<u8>) -> Result<Vec<u8>, WireError> {
        match self {
            Self::Plain => Ok(record),
            Self::Sealed(state) => {
                let mut sealed = vec![0; record.len() + TAG_LEN];
                let len =
                    state.write_message(&record, &mut sealed).map_err(|e| cipher("seal a message", &e))?;
                sealed.truncate(len);
                Ok(sealed)
            }
        }
    }

    pub(crate) fn open(&mut self, sealed: Vec<u8>) -> Result<Vec<u8>, WireError> {
        match self {
            Self::Plain => Ok(sealed),
            Self::Sealed(state) => {
                let mut record = vec![0; sealed.len()];
                let len = state
                    .read_message(&sealed, &mut record)
                    .map_err(|_| WireError::malformed("a sealed message that was altered on the way"))?;
                record.truncate(len);
                Ok(record)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shaken(client: &Key, server: &Key, prologues: [&[u8]; 2]) -> Result<(Channel, Channel), WireError> {
        let mut ours = Handshake::client(client, prologues[0])?;
        let mut theirs = Handshake::server(server, prologues[1])?;
        theirs.read(&ours.write()?)?;
        ours.read(&theirs.write()?)?;
        Ok((ours.finish()?, theirs.finish()?))
    }

    #[test]
    fn a_key_is_written_in_groups_and_read_as_people_type_it() {
        let key = Key::from_random(std::array::from_fn(|i| u8::try_from(i).unwrap() * 8 + 1));
        let text = key.reveal();
        assert_eq!(text, "044h-2691-54rk-jga9-a5cp-2tbh-f60r-k4cs-m6mv-3ee1-s78x-krf9-y7wk");
        for typed in [
            text.clone(),
            text.to_uppercase(),
            text.replace('-', ""),
            format!(" {} ", text.replace('0', "o").replace('1', "l")),
        ] {
            assert_eq!(typed.parse::<Key>().unwrap().0, key.0, "{typed}");
        }
    }

    #[test]
    fn a_text_that_is_no_key_is_refused_without_repeating_it() {
        let text = Key::from_random([7; 32]).reveal();
        for (typed, why) in [
            (String::new(), "shorter"),
            (text[..text.len() - 1].to_owned(), "shorter"),
            (format!("{text}0"), "longer"),
            (text.replacen(|c: char| c.is_ascii_digit(), "u", 1), "character"),
            (text.replacen(|c: char| c.is_ascii_digit(), "é", 1), "character"),
        ] {
            let error = typed.parse::<Key>().unwrap_err().to_string();
            assert!(error.contains(why) && (typed.is_empty() || !error.contains(&typed)), "{error}");
        }
    }

    #[test]
    fn most_slips_of_the_pen_are_noticed() {
        let text = Key::from_random(std::array::from_fn(|i| u8::try_from(i * i % 251).unwrap())).reveal();
        let (mut slips, mut noticed) = (0, 0);
        for at in (0..text.len()).filter(|at| text.as_bytes()[*at] != b'-') {
            for letter in ALPHABET.iter().filter(|letter| **letter != text.as_bytes()[at]) {
                let mut typed = text.clone().into_bytes();
                typed[at] = *letter;
                slips += 1;
                noticed += usize::from(String::from_utf8(typed).unwrap().parse::<Key>().is_err());
            }
        }
        assert!(noticed * 16 >= slips * 15, "{noticed} of {slips}");
    }

    #[test]
    fn debug_output_does_not_hold_the_key() {
        let trust = Trust::Key(Key::from_random([0x5a; 32]));
        assert_eq!(format!("{trust:?}"), "Key(Key(…))");
    }

    #[test]
    fn the_same_key_gives_a_channel_in_which_each_record_has_its_turn() {
        let key = Key::from_random([1; 32]);
        let (mut client, mut server) = shaken(&key, &key, [b"hellos"; 2]).unwrap();
        let first = client.seal(b"first".to_vec()).unwrap();
        let second = client.seal(b"second".to_vec()).unwrap();
        assert!(!second.windows(6).any(|window| window == b"second"));
        assert!(server.open(second.clone()).is_err(), "a record was accepted out of turn");
        assert_eq!(server.open(first.clone()).unwrap(), b"first");
        assert!(server.open(first).is_err(), "a record was accepted twice");
        assert_eq!(server.open(second).unwrap(), b"second");
    }

    #[test]
    fn another_key_or_an_altered_hello_breaks_the_handshake() {
        let key = Key::from_random([1; 32]);
        let other = Key::from_random([2; 32]);
        for (server, prologue) in [(&other, b"hellos"), (&key, b"hallos")] {
            assert_eq!(shaken(&key, server, [b"hellos", prologue]).err(), Some(WireError::WrongKey));
        }
    }

    proptest! {
        #![proptest_config(crate::seeded())]

        #[test]
        fn every_key_comes_back(bytes: [u8; 32]) {
            prop_assert_eq!(Key::from_random(bytes).reveal().parse::<Key>().unwrap().0, bytes);
        }

        #[test]
        fn no_text_makes_the_key_reader_panic(text in "[0-9a-zA-Z\\- é]{0,80}") {
            let _ = text.parse::<Key>();
        }

        #[test]
        fn no_bytes_make_the_handshake_panic(message in prop::collection::vec(any::<u8>(), 0..120)) {
            let key = Key::from_random([1; 32]);
            prop_assert!(Handshake::server(&key, b"").unwrap().read(&message).is_err());
        }
    }
}
