//! Synchronous netlink: one request, all its answers, a bounded wait.
//!
//! Hides sequence numbers, multi-part answers, interrupted dumps and the kernel's extended acknowledgement, whose text
//! ("device is in use") is worth more to the user than the errno beside it. It is generic over the payload, so that
//! rtnetlink ([`crate::link`]) and generic netlink (ethtool) share it.
//!
//! Protocol: RFC 3549, and `Documentation/userspace-api/netlink/intro.rst` for `NLMSGERR_ATTR_MSG`.
//! It does not listen for notifications.

use std::io;
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkBuffer, NetlinkDeserializable,
    NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use netlink_sys::{Socket, SocketAddr};

use crate::error::{HostError, Named as _, Result};

/// The kernel answers within the request's system call; the bound only keeps a broken kernel module from hanging us.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);

/// A dump that the kernel marks as interrupted by a change is asked again, this often at most.
const DUMP_ATTEMPTS: usize = 8;

/// From `include/uapi/linux/netlink.h`: the acknowledgement carries attributes.
const NLM_F_ACK_TLVS: u16 = 0x200;
/// From `include/uapi/linux/netlink.h`: the acknowledgement does not repeat the request's payload.
const NLM_F_CAPPED: u16 = 0x100;
/// From `include/uapi/linux/netlink.h`: the attribute with the error's text.
const NLMSGERR_ATTR_MSG: u16 = 1;

/// A netlink socket in the network namespace of the thread that opened it.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: Socket,
    sequence: u32,
}

impl Connection {
    /// Opens a socket for `protocol`, one of [`netlink_sys::protocols`].
    pub(crate) fn open(protocol: isize) -> Result<Self> {
        let object = || format!("protocol {protocol}");
        let mut socket = Socket::new(protocol).named("open a netlink socket for", object)?;
        socket.bind_auto().named("bind a netlink socket for", object)?;
        socket.connect(&SocketAddr::new(0, 0)).named("connect a netlink socket for", object)?;
        socket.set_ext_ack(true).named("ask for error texts on a netlink socket for", object)?;
        // The answer to an error otherwise repeats our request, which may be larger than the answer itself.
        socket.set_cap_ack(true).named("ask for short errors on a netlink socket for", object)?;
        socket2::SockRef::from(&socket)
            .set_read_timeout(Some(ANSWER_DEADLINE))
            .named("bound the wait of a netlink socket for", object)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Sends `payload` with `flags` (besides `NLM_F_REQUEST | NLM_F_ACK`) and returns the messages that answer it.
    ///
    /// `operation` and `object` are for the error text; see [`HostError::Os`].
    pub(crate) fn request<T>(
        &mut self,
        operation: &'static str,
        object: &str,
        payload: T,
        flags: u16,
    ) -> Result<Vec<T>>
    where
        T: NetlinkSerializable + NetlinkDeserializable,
    {
        self.send(operation, object, payload, NLM_F_ACK | flags)?;
        self.collect(operation, object).map(|(answers, _)| answers)
    }

    /// Sends `payload` as a dump and returns everything the kernel lists, from a list no change interrupted.
    pub(crate) fn dump<T>(&mut self, operation: &'static str, object: &str, payload: &T) -> Result<Vec<T>>
    where
        T: NetlinkSerializable + NetlinkDeserializable + Clone,
    {
        for _ in 0..DUMP_ATTEMPTS {
            self.send(operation, object, payload.clone(), NLM_F_DUMP)?;
            let (answers, interrupted) = self.collect(operation, object)?;
            if !interrupted {
                return Ok(answers);
            }
        }
        let what = format!("the list changed during each of {DUMP_ATTEMPTS} readings");
        Err(HostError::Answer { operation, object: object.to_owned(), what })
    }

    fn send<T>(&mut self, operation: &'static str, object: &str, payload: T, flags: u16) -> Result<()>
    where
        T: NetlinkSerializable,
    {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(payload));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map(drop).named(operation, || object.to_owned())
    }

    /// Receives until the request with the current sequence number is done; tells whether a dump was interrupted.
    fn collect<T>(&mut self, operation: &'static str, object: &str) -> Result<(Vec<T>, bool)>
    where
        T: NetlinkDeserializable,
    {
        let not_understood = |what: String| HostError::Answer { operation, object: object.to_owned(), what };
        let mut answers = Vec::new();
        let mut interrupted = false;
        loop {
            let datagram = match self.socket.recv_from_full() {
                Ok((datagram, _)) => datagram,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let object = object.to_owned();
                    return Err(HostError::Deadline { operation, object, after: ANSWER_DEADLINE });
                }
                Err(error) => return Err(HostError::os(operation, object, error)),
            };
            let mut rest = datagram.as_slice();
            while !rest.is_empty() {
                let length = NetlinkBuffer::new_checked(rest)
                    .map_err(|error| not_understood(error.to_string()))?
                    .length() as usize;
                let (bytes, after) = rest.split_at(length.min(rest.len()));
                // Messages are padded to 4 bytes; the last one of a datagram may lack its padding.
                rest = &after[(length.next_multiple_of(4) - length).min(after.len())..];
                let (header, _) = NetlinkMessage::<Raw>::deserialize(bytes)
                    .map_err(|error| not_understood(error.to_string()))?
                    .into_parts();
                if header.sequence_number != self.sequence {
                    // The rest of an earlier request that failed half-way.
                    continue;
                }
                interrupted |= header.flags & NLM_F_DUMP_INTR != 0;
                let message = NetlinkMessage::<T>::deserialize(bytes)
                    .map_err(|error| not_understood(error.to_string()))?;
                match message.payload {
                    NetlinkPayload::InnerMessage(answer) => answers.push(answer),
                    NetlinkPayload::Done(done) if done.code == 0 => return Ok((answers, interrupted)),
                    NetlinkPayload::Done(done) => {
                        let source = io::Error::from_raw_os_error(done.code.abs());
                        return Err(HostError::os(operation, object, source));
                    }
                    NetlinkPayload::Error(error) if error.code.is_none() => {
                        return Ok((answers, interrupted));
                    }
                    NetlinkPayload::Error(error) => {
                        let refused = HostError::os(operation, object, error.to_io());
                        let text = error_text(header.flags, &error.header);
                        return Err(match text {
                            Some(text) => refused.with_hint(format!("the kernel says: {text}")),
                            None => refused,
                        });
                    }
                    NetlinkPayload::Overrun(_) => {
                        return Err(not_understood("it overran the buffer".to_owned()));
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Any payload, unread: lets the header be seen before the body is parsed.
struct Raw;

impl NetlinkDeserializable for Raw {
    type Error = std::convert::Infallible;

    fn deserialize(_: &NetlinkHeader, _: &[u8]) -> std::result::Result<Self, Self::Error> {
        Ok(Self)
    }
}

/// The text in an extended acknowledgement; `request` is what follows the error code: our header (and payload, unless
/// capped), then attributes.
fn error_text(flags: u16, request: &[u8]) -> Option<String> {
    const HEADER: usize = 16;
    if flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    let repeated = if flags & NLM_F_CAPPED != 0 {
        HEADER
    } else {
        u32::from_ne_bytes(request.get(..4)?.try_into().ok()?) as usize
    };
    let mut rest = request.get(repeated.next_multiple_of(4)..)?;
    loop {
        let length = usize::from(u16::from_ne_bytes(rest.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(rest.get(2..4)?.try_into().ok()?);
        let value = rest.get(4..length)?;
        if kind == NLMSGERR_ATTR_MSG {
            return Some(String::from_utf8_lossy(value).trim_end_matches('\0').to_owned());
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_an_extended_acknowledgement_is_found_after_the_repeated_header() {
        let mut capped = vec![0; 16];
        // An attribute that is not the text (NLMSGERR_ATTR_OFFS), then the text.
        capped.extend([8, 0, 2, 0, 1, 2, 3, 4]);
        capped.extend([9, 0, 1, 0]);
        capped.extend(b"busy\0\0\0\0");
        assert_eq!(error_text(NLM_F_ACK_TLVS | NLM_F_CAPPED, &capped).as_deref(), Some("busy"));

        let mut whole = vec![0; 24];
        whole[..4].copy_from_slice(&24_u32.to_ne_bytes());
        whole.extend([9, 0, 1, 0]);
        whole.extend(b"busy\0\0\0\0");
        assert_eq!(error_text(NLM_F_ACK_TLVS, &whole).as_deref(), Some("busy"));
    }

    #[test]
    fn an_acknowledgement_without_or_with_broken_attributes_has_no_text() {
        assert_eq!(error_text(0, &[0; 64]), None);
        for length in 0..32 {
            assert_eq!(error_text(NLM_F_ACK_TLVS | NLM_F_CAPPED, &vec![0; length]), None, "{length} bytes");
            assert_eq!(error_text(NLM_F_ACK_TLVS, &vec![0xff; length]), None, "{length} bytes of 0xff");
        }
    }
}
