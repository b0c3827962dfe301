//! The bytes of ethtool's generic netlink messages: a header that names the device, then nested attributes.
//!
//! Hides attribute numbers and the two spellings of a bit set: a *list* names the bits that are on, a *mask* names the
//! bits it speaks of and flags those that are on. haul never asks for compact bit sets, so bits always come with their
//! names and no table of feature numbers, which differ between kernels, is needed.
//!
//! Numbers: `include/uapi/linux/ethtool_netlink.h`; meaning: `Documentation/networking/ethtool-netlink.rst`.
//! It sends nothing: see the parent module.

use netlink_packet_core::{DecodeError, Emitable, NLA_F_NESTED, Nla, NlasIterator, ParseableParametrized};
use netlink_packet_generic::{GenlFamily, GenlHeader};

/// `ETHTOOL_GENL_VERSION`.
const VERSION: u8 = 1;

/// `ETHTOOL_MSG_*` from user space to the kernel.
pub(super) mod request {
    pub(in super::super) const FEATURES_GET: u8 = 11;
    pub(in super::super) const FEATURES_SET: u8 = 12;
    pub(in super::super) const PRIVFLAGS_GET: u8 = 13;
    pub(in super::super) const PRIVFLAGS_SET: u8 = 14;
    pub(in super::super) const RINGS_GET: u8 = 15;
    pub(in super::super) const RINGS_SET: u8 = 16;
    pub(in super::super) const CHANNELS_GET: u8 = 17;
    pub(in super::super) const CHANNELS_SET: u8 = 18;
    pub(in super::super) const COALESCE_GET: u8 = 19;
    pub(in super::super) const COALESCE_SET: u8 = 20;
    pub(in super::super) const PAUSE_GET: u8 = 21;
    pub(in super::super) const PAUSE_SET: u8 = 22;
}

/// `ETHTOOL_A_PRIVFLAGS_FLAGS`.
pub(super) const PRIVATE_FLAGS: u16 = 2;

/// `ETHTOOL_A_FEATURES_*`; the header is number 1 in every message.
pub(super) mod features {
    pub(in super::super) const HW: u16 = 2;
    pub(in super::super) const WANTED: u16 = 3;
    pub(in super::super) const ACTIVE: u16 = 4;
    pub(in super::super) const NOCHANGE: u16 = 5;
}

const HEADER: u16 = 1;
const HEADER_DEV_INDEX: u16 = 1;
const HEADER_DEV_NAME: u16 = 2;

const BITSET_NOMASK: u16 = 1;
const BITSET_BITS: u16 = 3;
const BITSET_VALUE: u16 = 4;
const BITSET_BITS_BIT: u16 = 1;
const BITSET_BIT_NAME: u16 = 2;
const BITSET_BIT_VALUE: u16 = 3;

/// A number as wide as the kernel's policy for its attribute says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    Byte(u8),
    Word(u32),
}

/// One message of the family, its attributes as they came or as they will be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) command: u8,
    pub(super) attributes: Vec<Attribute>,
}

impl Message {
    /// A request about one device. With a `name` the kernel refuses if the index has another name by now.
    pub(super) fn about(command: u8, index: u32, name: Option<&str>) -> Self {
        let mut header = vec![Attribute::number(HEADER_DEV_INDEX, index)];
        header.extend(name.map(|name| Attribute::text(HEADER_DEV_NAME, name)));
        Self { command, attributes: vec![Attribute::nest(HEADER, &header)] }
    }

    /// The same message with one more bit set, in the form that leaves unnamed bits alone.
    pub(super) fn with_bits(mut self, kind: u16, bits: &[(&str, bool)]) -> Self {
        let bits: Vec<Attribute> = bits
            .iter()
            .map(|(name, on)| {
                let mut bit = vec![Attribute::text(BITSET_BIT_NAME, name)];
                bit.extend(on.then(|| Attribute::flag(BITSET_BIT_VALUE)));
                Attribute::nest(BITSET_BITS_BIT, &bit)
            })
            .collect();
        self.attributes.push(Attribute::nest(kind, &[Attribute::nest(BITSET_BITS, &bits)]));
        self
    }

    /// The same message with one more number, a byte or four wide as the attribute is.
    pub(super) fn with_number(mut self, kind: u16, value: Width) -> Self {
        let value = match value {
            Width::Byte(value) => vec![value],
            Width::Word(value) => value.to_ne_bytes().to_vec(),
        };
        self.attributes.push(Attribute { kind, nested: false, value });
        self
    }

    /// The bit set of that kind: every bit it speaks of, in the kernel's order, and whether it is on.
    pub(super) fn bits(&self, kind: u16) -> Result<Vec<(String, bool)>, DecodeError> {
        let Some(set) = self.find(kind) else { return Ok(Vec::new()) };
        let parts = set.children()?;
        if parts.iter().any(|part| part.kind() == BITSET_VALUE) {
            return Err(DecodeError::from("a compact bit set, which was not asked for"));
        }
        let is_list = parts.iter().any(|part| part.kind() == BITSET_NOMASK);
        let mut bits = Vec::new();
        for list in parts.iter().filter(|part| part.kind() == BITSET_BITS) {
            for bit in list.children()? {
                let fields = bit.children()?;
                let name = fields
                    .iter()
                    .find(|field| field.kind() == BITSET_BIT_NAME)
                    .ok_or_else(|| DecodeError::from("a bit without a name"))?
                    .as_text()?;
                let on = is_list || fields.iter().any(|field| field.kind() == BITSET_BIT_VALUE);
                // The kernel's table of names has holes where a feature was retired.
                if !name.is_empty() {
                    bits.push((name, on));
                }
            }
        }
        Ok(bits)
    }

    /// The value of a plain number, 8 or 32 bits wide.
    pub(super) fn number(&self, kind: u16) -> Option<u64> {
        self.find(kind).and_then(Attribute::as_number)
    }

    fn find(&self, kind: u16) -> Option<&Attribute> {
        self.attributes.iter().find(|attribute| attribute.kind() == kind)
    }
}

impl GenlFamily for Message {
    fn family_name() -> &'static str {
        "ethtool"
    }

    fn command(&self) -> u8 {
        self.command
    }

    fn version(&self) -> u8 {
        VERSION
    }
}

impl Emitable for Message {
    fn buffer_len(&self) -> usize {
        self.attributes.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.attributes.as_slice().emit(buffer);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for Message {
    fn parse_with_param(buffer: &[u8], header: GenlHeader) -> Result<Self, DecodeError> {
        Ok(Self { command: header.cmd, attributes: Attribute::parse_all(buffer)? })
    }
}

/// One attribute with its value still in bytes: what they mean depends on where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Attribute {
    kind: u16,
    nested: bool,
    value: Vec<u8>,
}

impl Attribute {
    fn flag(kind: u16) -> Self {
        Self { kind, nested: false, value: Vec::new() }
    }

    fn number(kind: u16, value: u32) -> Self {
        Self { kind, nested: false, value: value.to_ne_bytes().to_vec() }
    }

    fn text(kind: u16, text: &str) -> Self {
        Self { kind, nested: false, value: [text.as_bytes(), &[0]].concat() }
    }

    fn nest(kind: u16, parts: &[Self]) -> Self {
        let mut value = vec![0; parts.buffer_len()];
        parts.emit(&mut value);
        Self { kind, nested: true, value }
    }

    fn parse_all(buffer: &[u8]) -> Result<Vec<Self>, DecodeError> {
        NlasIterator::new(buffer)
            .map(|part| {
                let part = part?;
                Ok(Self { kind: part.kind(), nested: part.nested_flag(), value: part.value().to_vec() })
            })
            .collect()
    }

    fn kind(&self) -> u16 {
        self.kind
    }

    fn children(&self) -> Result<Vec<Self>, DecodeError> {
        Self::parse_all(&self.value)
    }

    fn as_text(&self) -> Result<String, DecodeError> {
        let bytes = self.value.strip_suffix(&[0]).unwrap_or(&self.value);
        Ok(String::from_utf8(bytes.to_vec())?)
    }

    fn as_number(&self) -> Option<u64> {
        match *self.value.as_slice() {
            [byte] => Some(u64::from(byte)),
            [a, b, c, d] => Some(u64::from(u32::from_ne_bytes([a, b, c, d]))),
            _ => None,
        }
    }
}

impl Nla for Attribute {
    fn value_len(&self) -> usize {
        self.value.len()
    }

    fn kind(&self) -> u16 {
        self.kind | if self.nested { NLA_F_NESTED } else { 0 }
    }

    fn emit_value(&self, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.value);
    }
}

// The literal bytes below are those of a little-endian machine: netlink speaks the host's order.
#[cfg(all(test, target_endian = "little"))]
mod tests {
    use netlink_packet_core::{NetlinkHeader, NetlinkMessage, NetlinkPayload};
    use netlink_packet_generic::GenlMessage;

    use super::*;

    /// The family's number is given out by the kernel at boot; any will do here.
    const FAMILY: u16 = 21;

    fn bytes_of(message: Message) -> Vec<u8> {
        let mut message = GenlMessage::from_payload(message);
        message.set_resolved_family_id(FAMILY);
        let mut header = NetlinkHeader::default();
        header.flags = 5;
        header.sequence_number = 2;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes
    }

    fn parse(body: &[u8]) -> Result<Message, DecodeError> {
        let header = GenlHeader { cmd: request::FEATURES_GET, version: VERSION };
        Message::parse_with_param(body, header)
    }

    #[test]
    fn asking_for_the_features_of_a_device_has_these_bytes() {
        #[rustfmt::skip]
        let expected = [
            // nlmsghdr: length 32, type 21, flags REQUEST|ACK, sequence 2, port 0
            32, 0, 0, 0,  21, 0,  5, 0,  2, 0, 0, 0,  0, 0, 0, 0,
            // genlmsghdr: FEATURES_GET, version 1
            11, 1, 0, 0,
            // HEADER { DEV_INDEX 7 }
            12, 0, 1, 0x80,  8, 0, 1, 0,  7, 0, 0, 0,
        ];
        assert_eq!(bytes_of(Message::about(request::FEATURES_GET, 7, None)), expected);
    }

    #[test]
    fn a_change_names_the_device_twice_and_every_bit_it_speaks_of() {
        let message = Message::about(request::FEATURES_SET, 7, Some("eth0"))
            .with_bits(features::WANTED, &[("tx-nocache-copy", true), ("rx-gro", false)]);
        #[rustfmt::skip]
        let expected = [
            96, 0, 0, 0,  21, 0,  5, 0,  2, 0, 0, 0,  0, 0, 0, 0,
            12, 1, 0, 0,
            // HEADER { DEV_INDEX 7, DEV_NAME "eth0" }
            24, 0, 1, 0x80,
                8, 0, 1, 0,  7, 0, 0, 0,
                9, 0, 2, 0,  b'e', b't', b'h', b'0', 0, 0, 0, 0,
            // WANTED { BITS {
            52, 0, 3, 0x80,  48, 0, 3, 0x80,
                // BIT { NAME "tx-nocache-copy", VALUE }
                28, 0, 1, 0x80,
                    20, 0, 2, 0,
                    b't', b'x', b'-', b'n', b'o', b'c', b'a', b'c', b'h', b'e', b'-', b'c', b'o', b'p', b'y', 0,
                    4, 0, 3, 0,
                // BIT { NAME "rx-gro" }
                16, 0, 1, 0x80,
                    11, 0, 2, 0,  b'r', b'x', b'-', b'g', b'r', b'o', 0, 0,
        ];
        assert_eq!(bytes_of(message), expected);
    }

    #[test]
    fn numbers_go_in_the_width_of_their_attribute() {
        let message = Message::about(request::COALESCE_SET, 7, None)
            .with_number(2, Width::Word(8))
            .with_number(11, Width::Byte(1));
        #[rustfmt::skip]
        let expected = [
            48, 0, 0, 0,  21, 0,  5, 0,  2, 0, 0, 0,  0, 0, 0, 0,
            // COALESCE_SET, version 1; HEADER { DEV_INDEX 7 }
            20, 1, 0, 0,
            12, 0, 1, 0x80,  8, 0, 1, 0,  7, 0, 0, 0,
            // RX_USECS 8, USE_ADAPTIVE_RX 1
            8, 0, 2, 0,  8, 0, 0, 0,
            5, 0, 11, 0,  1, 0, 0, 0,
        ];
        assert_eq!(bytes_of(message), expected);
    }

    #[test]
    fn a_list_names_what_is_on_and_a_mask_tells_on_from_off() {
        #[rustfmt::skip]
        let body = [
            // HEADER { DEV_INDEX 2, DEV_NAME "va" }
            20, 0, 1, 0x80,  8, 0, 1, 0,  2, 0, 0, 0,  7, 0, 2, 0,  b'v', b'a', 0, 0,
            // HW { SIZE 64, BITS { BIT { INDEX 0, NAME "x", VALUE }, BIT { INDEX 1, NAME "y" }, BIT { NAME "" } } }
            68, 0, 2, 0x80,  8, 0, 2, 0,  64, 0, 0, 0,
                56, 0, 3, 0x80,
                    24, 0, 1, 0x80,  8, 0, 1, 0,  0, 0, 0, 0,  6, 0, 2, 0,  b'x', 0, 0, 0,  4, 0, 3, 0,
                    20, 0, 1, 0x80,  8, 0, 1, 0,  1, 0, 0, 0,  6, 0, 2, 0,  b'y', 0, 0, 0,
                    // A hole in the kernel's table of names ends the nest; no padding of ours follows.
                    8, 0, 1, 0x80,  4, 0, 2, 0,
            // ACTIVE { NOMASK, SIZE 64, BITS { BIT { INDEX 1, NAME "y" } } }
            40, 0, 4, 0x80,  4, 0, 1, 0,  8, 0, 2, 0,  64, 0, 0, 0,
                24, 0, 3, 0x80,
                    20, 0, 1, 0x80,  8, 0, 1, 0,  1, 0, 0, 0,  6, 0, 2, 0,  b'y', 0, 0, 0,
        ];
        let message = parse(&body).unwrap();
        assert_eq!(message.bits(features::HW).unwrap(), [("x".to_owned(), true), ("y".to_owned(), false)]);
        assert_eq!(message.bits(features::ACTIVE).unwrap(), [("y".to_owned(), true)]);
        assert_eq!(message.bits(features::WANTED).unwrap(), [], "an absent set speaks of nothing");
    }

    #[test]
    fn plain_numbers_of_one_and_four_bytes_are_read() {
        let message = parse(&[8, 0, 5, 0, 0, 1, 0, 0, 5, 0, 9, 0, 7, 0, 0, 0]).unwrap();
        assert_eq!(message.number(5), Some(256));
        assert_eq!(message.number(9), Some(7));
        assert_eq!(message.number(6), None);
    }

    #[test]
    fn an_answer_in_another_form_is_refused_and_never_panics() {
        let cases: [(&str, &[u8]); 4] = [
            ("a bit without a name", &[16, 0, 4, 0x80, 12, 0, 3, 0x80, 8, 0, 1, 0x80, 4, 0, 3, 0]),
            ("a compact bit set", &[12, 0, 4, 0x80, 8, 0, 4, 0, 1, 0, 0, 0]),
            (
                "a name that is not UTF-8",
                &[20, 0, 4, 0x80, 16, 0, 3, 0x80, 12, 0, 1, 0x80, 6, 0, 2, 0, 0xff, 0xfe, 0, 0],
            ),
            ("a nest that ends in its own head", &[8, 0, 4, 0x80, 2, 0, 0, 0]),
        ];
        for (what, body) in cases {
            assert!(parse(body).unwrap().bits(features::ACTIVE).is_err(), "{what}");
        }
        for (what, body) in
            [("too short a head", vec![1, 0]), ("longer than the buffer", vec![9, 0, 1, 0, 0, 0, 0, 0])]
        {
            assert!(parse(&body).is_err(), "{what}");
        }
        // Every prefix of a good answer, and every byte of it damaged.
        let good = Message::about(request::FEATURES_GET, 1, Some("eth0"))
            .with_bits(features::ACTIVE, &[("x", true)]);
        let mut bytes = vec![0; good.buffer_len()];
        good.emit(&mut bytes);
        for end in 0..bytes.len() {
            let _ = parse(&bytes[..end]).map(|message| message.bits(features::ACTIVE));
        }
        for at in 0..bytes.len() {
            for value in [0, 1, 3, 0x7f, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                let _ = parse(&damaged).map(|message| message.bits(features::ACTIVE));
            }
        }
    }
}
