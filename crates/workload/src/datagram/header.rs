//! What a datagram says of itself: when it was sent, as which, and at what time.
//!
//! ```text
//! 0  2 bits   phase     00 warm-up, 01 window, 11 after the window; 10 is no payload (haul's hello begins with 0x89)
//!   62 bits   sequence  from 0, of one flow, through all phases
//! 8 64 bits   time      the sender's monotonic clock, ns; 0 where it was not read
//! ```
//!
//! Big endian. The phase is the sender's own window, so that what was sent in it can be told from the rest wherever the
//! receiver's window begins. A message of 8 to 15 bytes has no room for the time, one of fewer only for the phase; a
//! [`Form`] says which.

use haul_stats::MonoNanos;

/// A sequence number is below this.
pub(super) const SEQUENCES: u64 = 1 << 62;

/// Which part of the run a datagram was sent in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Before the sender's window.
    WarmUp,
    /// In it.
    Window,
    /// After it.
    After,
}

impl Phase {
    /// The phase of a place in an array by phase.
    pub(crate) const fn of(place: u8) -> Self {
        match place {
            0 => Self::WarmUp,
            1 => Self::Window,
            _ => Self::After,
        }
    }

    const fn bits(self) -> u64 {
        match self {
            Self::WarmUp => 0b00,
            Self::Window => 0b01,
            Self::After => 0b11,
        }
    }
}

/// How much of the header a message has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The phase alone: the datagrams of a phase can be counted, not told apart.
    Count,
    /// The sequence number as well.
    Sequence,
    /// All of it.
    Time,
}

/// A header that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) phase: Phase,
    pub(crate) sequence: Option<u64>,
    pub(crate) sent: Option<MonoNanos>,
}

impl Form {
    /// That of messages of so many bytes.
    pub(crate) const fn of(message: u64) -> Self {
        match message {
            0..8 => Self::Count,
            8..16 => Self::Sequence,
            _ => Self::Time,
        }
    }

    /// Writes the header of a message that has room for this form.
    #[inline]
    pub(crate) fn write(self, message: &mut [u8], phase: Phase, sequence: u64, now: MonoNanos) {
        let word = (phase.bits() << 62) | (sequence % SEQUENCES);
        match self {
            Self::Count => {
                if let Some(first) = message.first_mut() {
                    *first = word.to_be_bytes()[0];
                }
            }
            Self::Sequence => {
                if let Some(first) = message.first_chunk_mut() {
                    *first = word.to_be_bytes();
                }
            }
            Self::Time => {
                if let Some(first) = message.first_chunk_mut::<16>() {
                    *first = ((u128::from(word) << 64) | u128::from(now.0)).to_be_bytes();
                }
            }
        }
    }

    /// Reads it back; `None` for what is no payload, or too short for it.
    #[inline]
    pub(crate) fn read(self, message: &[u8]) -> Option<Header> {
        let phase = match message.first()? >> 6 {
            0b00 => Phase::WarmUp,
            0b01 => Phase::Window,
            0b11 => Phase::After,
            _ => return None,
        };
        let word = |at: usize| message.get(at..)?.first_chunk().map(|word| u64::from_be_bytes(*word));
        let (sequence, sent) = match self {
            Self::Count => (None, None),
            Self::Sequence => (Some(word(0)? % SEQUENCES), None),
            Self::Time => {
                let sent = word(8)?;
                (Some(word(0)? % SEQUENCES), (sent > 0).then_some(MonoNanos(sent)))
            }
        };
        Some(Header { phase, sequence, sent })
    }
}

#[cfg(test)]
mod tests {
    use haul_wire::{DataHello, FlowIndex, RunId, Token};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_header_reads_back_as_far_as_the_message_has_room_for_it(
            length in 1..64_usize, place in 0..3_u8, sequence in 0..SEQUENCES, now in any::<u64>(),
        ) {
            let (phase, now) = (Phase::of(place), MonoNanos(now));
            let form = Form::of(length as u64);
            let mut message = vec![0xa5; length];
            form.write(&mut message, phase, sequence, now);
            let read = Header {
                phase,
                sequence: (length >= 8).then_some(sequence),
                sent: (length >= 16 && now.0 > 0).then_some(now),
            };
            prop_assert_eq!(form.read(&message), Some(read));
        }

        #[test]
        fn no_bytes_break_the_reading(message in proptest::collection::vec(any::<u8>(), 0..40)) {
            for form in [Form::Count, Form::Sequence, Form::Time] {
                let sequence = form.read(&message).and_then(|header| header.sequence);
                prop_assert!(sequence.is_none_or(|sequence| sequence < SEQUENCES));
            }
        }
    }

    #[test]
    fn the_first_datagram_of_a_flow_is_never_taken_for_payload() {
        let hello =
            DataHello { token: Token::from_random([0xff; 16]), run: RunId(u32::MAX), flow: FlowIndex(0) };
        for length in 1..=hello.encode().len() {
            assert_eq!(Form::of(length as u64).read(&hello.encode()[..length]), None);
        }
    }
}
