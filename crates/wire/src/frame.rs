//! Frames: where one piece of the byte stream ends and the next begins.
//!
//! ```text
//!  0 length   4   big endian: of what follows, 1 to 65,535
//!  4 kind     1   1 handshake, 2 record, 3 refusal in plain
//!  5 body         record, once opened: 0 (the message ends here) or 1 (more follows), then a piece of the message
//! ```
//!
//! A length is checked when its four bytes are there, before anything is allocated, and memory grows with the bytes that
//! came, never by the peer's word. A message larger than a record goes in several; all but the last are full, so there
//! is one way to cut a message and the number of records is bounded by its size.

use crate::error::WireError;
use crate::secure::TAG_LEN;

/// The largest value of a frame's length: a Noise message has at most 65,535 bytes (its specification, section 3).
pub const MAX_FRAME: usize = 65_535;

/// The largest message of a server, in bytes of JSON: the report of 1,000 flows and 600 intervals, 110 bytes for each,
/// fits.
pub const MAX_MESSAGE: usize = 64 << 20;

/// The largest message of a client, whose part is to ask: a list of settings or a specification.
pub const MAX_REQUEST: usize = 1 << 20;

/// What a record holds of a message, besides its flag: what is left of a frame after kind, flag and tag.
pub const CHUNK: usize = MAX_FRAME - 1 - 1 - TAG_LEN;

const HEADER_LEN: usize = 4;

/// What a frame's body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// A message of the Noise handshake.
    Handshake,
    /// A record, sealed in keyed mode.
    Record,
    /// A `refused` message in plain, from a server that shares no secret with the client.
    Refusal,
}

/// Appends a frame. The caller keeps to [`MAX_FRAME`].
pub(crate) fn encode(kind: FrameKind, body: &[u8], output: &mut Vec<u8>) -> Result<(), WireError> {
    let len = check_len(body.len() as u64 + 1)?;
    output.reserve(HEADER_LEN + len);
    output.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
    output.push(match kind {
        FrameKind::Handshake => 1,
        FrameKind::Record => 2,
        FrameKind::Refusal => 3,
    });
    output.extend_from_slice(body);
    Ok(())
}

fn check_len(len: u64) -> Result<usize, WireError> {
    match usize::try_from(len) {
        Ok(0) => Err(WireError::malformed("an empty frame")),
        Ok(len) if len <= MAX_FRAME => Ok(len),
        _ => Err(WireError::Oversize { what: "a frame", len, limit: MAX_FRAME as u64 }),
    }
}

/// Cuts a byte stream into frames.
#[derive(Debug, Default)]
pub struct Deframer {
    bytes: Vec<u8>,
    taken: usize,
}

impl Deframer {
    /// Adds bytes as they came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the next frame, if all of it is there. After an error the stream has no frames any more.
    pub fn take(&mut self) -> Result<Option<(FrameKind, Vec<u8>)>, WireError> {
        let rest = &self.bytes[self.taken..];
        let Some((header, rest)) = rest.split_first_chunk::<HEADER_LEN>() else { return Ok(None) };
        let len = check_len(u64::from(u32::from_be_bytes(*header)))?;
        let kind = match rest.first() {
            None => return Ok(None),
            Some(1) => FrameKind::Handshake,
            Some(2) => FrameKind::Record,
            Some(3) => FrameKind::Refusal,
            Some(other) => return Err(WireError::malformed(format!("a frame of kind {other}"))),
        };
        let Some(frame) = rest.get(1..len) else { return Ok(None) };
        let body = frame.to_vec();
        self.taken += HEADER_LEN + len;
        Ok(Some((kind, body)))
    }
}

/// The records of a message.
pub(crate) fn records(message: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let last = message.len().div_ceil(CHUNK).saturating_sub(1);
    message.chunks(CHUNK).enumerate().map(move |(index, chunk)| {
        let mut record = Vec::with_capacity(1 + chunk.len());
        record.push(u8::from(index < last));
        record.extend_from_slice(chunk);
        record
    })
}

/// Puts messages together from records.
#[derive(Debug, Default)]
pub struct Assembler {
    message: Vec<u8>,
}

impl Assembler {
    /// Adds a record; returns the message that it completes. No message grows beyond `limit`.
    pub fn push(&mut self, record: &[u8], limit: usize) -> Result<Option<Vec<u8>>, WireError> {
        let Some((flag, chunk)) = record.split_first() else {
            return Err(WireError::malformed("a record without its flag"));
        };
        let len = self.message.len() + chunk.len();
        if len > limit {
            return Err(WireError::Oversize { what: "a message", len: len as u64, limit: limit as u64 });
        }
        match flag {
            0 => {
                self.message.extend_from_slice(chunk);
                Ok(Some(std::mem::take(&mut self.message)))
            }
            1 if chunk.len() == CHUNK => {
                self.message.extend_from_slice(chunk);
                Ok(None)
            }
            1 => Err(WireError::malformed(format!(
                "a record of {} bytes where a full one is due",
                chunk.len()
            ))),
            flag => Err(WireError::malformed(format!("a record with flag {flag}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames(stream: &[u8], cut: usize) -> (Vec<(FrameKind, Vec<u8>)>, Option<WireError>) {
        let (mut deframer, mut found) = (Deframer::default(), Vec::new());
        for piece in stream.chunks(cut) {
            deframer.push(piece);
            loop {
                match deframer.take() {
                    Ok(Some(frame)) => found.push(frame),
                    Ok(None) => break,
                    Err(error) => return (found, Some(error)),
                }
            }
        }
        (found, None)
    }

    #[test]
    fn frames_are_written_and_read_as_documented() {
        for (kind, body, bytes) in [
            (FrameKind::Handshake, &b"hs"[..], &b"\0\0\0\x03\x01hs"[..]),
            (FrameKind::Record, b"\0{}", b"\0\0\0\x04\x02\0{}"),
            (FrameKind::Refusal, b"", b"\0\0\0\x01\x03"),
        ] {
            let mut written = Vec::new();
            encode(kind, body, &mut written).unwrap();
            assert_eq!(written, bytes);
            assert_eq!(frames(bytes, 1), (vec![(kind, body.to_vec())], None));
        }
    }

    #[test]
    fn hostile_lengths_are_refused_with_four_bytes_in_hand() {
        for (header, len) in
            [([0xff; 4], u64::from(u32::MAX)), ([0, 1, 0, 0], 65_536), ([0x80, 0, 0, 0], 1 << 31)]
        {
            let mut deframer = Deframer::default();
            deframer.push(&header);
            assert_eq!(deframer.take(), Err(WireError::Oversize { what: "a frame", len, limit: 65_535 }));
            assert!(deframer.bytes.capacity() < 64, "{} bytes were reserved", deframer.bytes.capacity());
        }
        assert!(matches!(frames(&[0; 4], 4), (_, Some(WireError::Malformed { .. }))));
        assert!(matches!(frames(b"\0\0\0\x02\x04", 5), (_, Some(WireError::Malformed { .. }))));
    }

    #[test]
    fn messages_of_every_size_about_the_cuts_come_back() {
        for len in [1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 1, MAX_MESSAGE] {
            let message: Vec<u8> = (0..=250).cycle().take(len).collect();
            let (mut assembler, mut count) = (Assembler::default(), 0);
            let mut whole = None;
            for record in records(&message) {
                assert!(whole.is_none() && 1 + record.len() + TAG_LEN <= MAX_FRAME);
                count += 1;
                whole = assembler.push(&record, MAX_MESSAGE).unwrap();
            }
            assert_eq!(count, len.div_ceil(CHUNK), "records of {len} bytes");
            assert!(
                whole.as_ref() == Some(&message),
                "{len} bytes came back as {:?}",
                whole.map(|w| w.len())
            );
        }
    }

    #[test]
    fn a_message_grows_to_its_limit_and_no_further() {
        let mut full = vec![1; CHUNK + 1];
        full[0] = 1;
        let mut assembler = Assembler::default();
        let taken = (0..2_000).take_while(|_| assembler.push(&full, MAX_MESSAGE).is_ok()).count();
        assert_eq!(taken, MAX_MESSAGE / CHUNK);
        assert!(assembler.message.len() <= MAX_MESSAGE);
    }

    #[test]
    fn there_is_one_way_to_cut_a_message() {
        for record in [&b""[..], b"\x01short", b"\x02flag"] {
            let error = Assembler::default().push(record, MAX_MESSAGE).unwrap_err();
            assert!(matches!(error, WireError::Malformed { .. }), "{error}");
        }
    }

    proptest! {
        #![proptest_config(crate::seeded())]

        #[test]
        fn frames_do_not_depend_on_how_the_stream_is_cut(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..5),
            noise in prop::collection::vec(any::<u8>(), 0..20),
            cut in 1_usize..40,
        ) {
            let mut stream = Vec::new();
            for body in &bodies {
                encode(FrameKind::Record, body, &mut stream).unwrap();
            }
            stream.extend(noise);
            let whole = frames(&stream, stream.len().max(1));
            prop_assert!(whole.0.len() >= bodies.len());
            prop_assert_eq!(whole, frames(&stream, cut));
        }

        #[test]
        fn no_records_make_the_assembler_panic(
            records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..20),
        ) {
            let mut assembler = Assembler::default();
            for record in records {
                let _ = assembler.push(&record, 100);
            }
        }
    }
}
