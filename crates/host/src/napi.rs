//! NAPI instances and what is set for each, through the generic netlink family "netdev".
//!
//! What is set for all of a device is in sysfs too; the time interrupts stay suspended while an application polls
//! (`irq-suspend-timeout`) is here alone. Sources: `Documentation/netlink/specs/netdev.yaml`,
//! `include/uapi/linux/netdev.h`, `Documentation/networking/napi.rst`. Linux 6.8 reads, 6.13 sets.

use std::collections::BTreeMap;

use netlink_packet_core::{DecodeError, Emitable, Nla, NlasIterator, ParseableParametrized};
use netlink_packet_generic::ctrl::nlas::GenlCtrlAttrs;
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};

use crate::error::{HostError, Result};
use crate::netlink::Connection;

/// `NETDEV_CMD_*`.
const NAPI_GET: u8 = 11;
const NAPI_SET: u8 = 14;

/// `NETDEV_A_NAPI_*`.
const IFINDEX: u16 = 1;
const ID: u16 = 2;
const VALUES: [(&str, u16); 4] =
    [("defer-hard-irqs", 5), ("gro-flush-timeout", 6), ("irq-suspend-timeout", 7), ("threaded", 8)];

/// One instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Napi {
    /// The kernel's number of it, in the device's network namespace.
    pub(crate) id: u32,
    /// Times in nanoseconds, switches as 0 and 1.
    pub(crate) values: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Message {
    command: u8,
    attributes: Vec<Attribute>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Attribute {
    kind: u16,
    value: Vec<u8>,
}

impl Attribute {
    fn word(kind: u16, value: u32) -> Self {
        Self { kind, value: value.to_ne_bytes().to_vec() }
    }

    /// The kernel's `uint` takes four bytes where they are enough, and eight where not.
    fn number(&self) -> Option<u64> {
        let bytes = self.value.as_slice();
        let narrow = || Some(u32::from_ne_bytes(bytes.try_into().ok()?).into());
        narrow().or_else(|| Some(u64::from_ne_bytes(bytes.try_into().ok()?)))
    }
}

impl Nla for Attribute {
    fn value_len(&self) -> usize {
        self.value.len()
    }

    fn kind(&self) -> u16 {
        self.kind
    }

    fn emit_value(&self, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.value);
    }
}

impl GenlFamily for Message {
    fn family_name() -> &'static str {
        "netdev"
    }

    fn command(&self) -> u8 {
        self.command
    }

    fn version(&self) -> u8 {
        1
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
    fn parse_with_param(buffer: &[u8], header: GenlHeader) -> std::result::Result<Self, DecodeError> {
        let attribute = |part: std::result::Result<netlink_packet_core::NlaBuffer<&[u8]>, DecodeError>| {
            let part = part?;
            Ok(Attribute { kind: part.kind(), value: part.value().to_vec() })
        };
        let attributes =
            NlasIterator::new(buffer).map(attribute).collect::<std::result::Result<_, DecodeError>>()?;
        Ok(Self { command: header.cmd, attributes })
    }
}

impl Message {
    fn number(&self, kind: u16) -> Option<u64> {
        self.attributes.iter().find(|attribute| attribute.kind == kind)?.number()
    }

    fn instance(&self) -> Option<Napi> {
        let id = u32::try_from(self.number(ID)?).ok()?;
        let value = |(name, kind): (&str, u16)| Some((name.to_owned(), self.number(kind)?));
        Some(Napi { id, values: VALUES.into_iter().filter_map(value).collect() })
    }
}

/// A connection, and the family's number.
fn open() -> Result<(Connection, u16)> {
    let (operation, object) = ("find the netlink family", "netdev");
    let mut connection = Connection::open(netlink_sys::protocols::NETLINK_GENERIC)?;
    let ask = GenlMessage::from_payload(GenlCtrl {
        cmd: GenlCtrlCmd::GetFamily,
        nlas: vec![GenlCtrlAttrs::FamilyName(object.to_owned())],
    });
    let answers = connection.request(operation, object, ask, 0).map_err(|error| match error.errno() {
        Some(libc::ENOENT) => HostError::Unavailable {
            operation,
            object: object.to_owned(),
            reason: "this kernel has none: it takes Linux 6.8".to_owned(),
        },
        _ => error,
    })?;
    let id = answers.iter().flat_map(|answer| &answer.payload.nlas).find_map(|attribute| match attribute {
        GenlCtrlAttrs::FamilyId(id) => Some(*id),
        _ => None,
    });
    let no_number =
        || HostError::Answer { operation, object: object.to_owned(), what: "no number in it".to_owned() };
    Ok((connection, id.ok_or_else(no_number)?))
}

fn addressed(message: Message, family: u16) -> GenlMessage<Message> {
    let mut message = GenlMessage::from_payload(message);
    message.set_resolved_family_id(family);
    message
}

/// The instances of a device in the calling thread's network namespace; none while it is down, and of a veth only while GRO
/// is on.
pub(crate) fn napis(index: u32) -> Result<Vec<Napi>> {
    let (mut connection, family) = open()?;
    let ask =
        addressed(Message { command: NAPI_GET, attributes: vec![Attribute::word(IFINDEX, index)] }, family);
    let object = format!("device number {index}");
    let answers = connection.dump("list the NAPI instances of", &object, &ask)?;
    Ok(answers.iter().filter_map(|answer| answer.payload.instance()).collect())
}

/// Sets values of one instance.
pub(crate) fn set_napi(id: u32, values: &BTreeMap<String, u64>) -> Result<()> {
    let (operation, object) = ("set up", format!("the NAPI instance {id}"));
    let mut attributes = vec![Attribute::word(ID, id)];
    for (name, value) in values {
        let Some((_, kind)) = VALUES.into_iter().find(|(known, _)| known == name) else {
            return Err(HostError::Unavailable { operation, object, reason: format!("it has no {name}") });
        };
        attributes.push(match u32::try_from(*value) {
            Ok(value) => Attribute::word(kind, value),
            Err(_) => Attribute { kind, value: value.to_ne_bytes().to_vec() },
        });
    }
    let (mut connection, family) = open()?;
    let ask = addressed(Message { command: NAPI_SET, attributes }, family);
    connection.request(operation, &object, ask, 0).map(drop).map_err(|error| match error.errno() {
        Some(libc::EOPNOTSUPP) => error.with_hint("it takes Linux 6.13"),
        _ => error,
    })
}

// The literal bytes below are those of a little-endian machine: netlink speaks the host's order.
#[cfg(all(test, target_endian = "little"))]
mod tests {
    use haul_stats::ByteCount;

    use super::*;
    use crate::netns::Netns;
    use crate::{ethtool, link};

    fn read(bytes: &[u8]) -> std::result::Result<Message, DecodeError> {
        Message::parse_with_param(bytes, GenlHeader { cmd: NAPI_GET, version: 1 })
    }

    #[test]
    fn an_instance_is_read_in_either_width_and_nothing_panics() {
        #[rustfmt::skip]
        let answer = [
            8, 0, 1, 0,  2, 0, 0, 0,
            8, 0, 2, 0,  1, 0x20, 0, 0,
            8, 0, 5, 0,  3, 0, 0, 0,
            12, 0, 7, 0,  0, 0xf2, 5, 0x2a, 1, 0, 0, 0,
            8, 0, 8, 0,  1, 0, 0, 0,
        ];
        let napi = read(&answer).unwrap().instance().unwrap();
        assert_eq!(napi.id, 8193);
        let expected = [("defer-hard-irqs", 3), ("irq-suspend-timeout", 5_000_000_000), ("threaded", 1)];
        assert_eq!(napi.values, expected.map(|(name, value)| (name.to_owned(), value)).into());
        for end in 0..answer.len() {
            let _ = read(&answer[..end]).map(|message| message.instance());
        }
        for at in 0..answer.len() {
            for value in [0, 1, 3, 0x7f, 0x80, 0xff] {
                let mut damaged = answer;
                damaged[at] = value;
                let _ = read(&damaged).map(|message| message.instance());
            }
        }
    }

    #[test]
    fn a_wish_has_these_bytes() {
        let message = Message {
            command: NAPI_SET,
            attributes: vec![Attribute::word(ID, 8193), Attribute::word(7, 20_000)],
        };
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        assert_eq!(bytes, [8, 0, 2, 0, 1, 0x20, 0, 0, 8, 0, 7, 0, 0x20, 0x4e, 0, 0]);
    }

    #[test]
    fn the_instances_of_a_veth_come_with_gro_and_are_set_one_by_one() {
        assert!(crate::privilege::effective_root(), "this test makes network devices: run it as root");
        let netns = Netns::create().unwrap();
        let work = || {
            link::create_veth("va", "vb", &netns, ByteCount(1500)).unwrap();
            for name in ["va", "vb"] {
                link::set_up(link::link_by_name(name).unwrap().index, true).unwrap();
            }
            let index = link::link_by_name("va").unwrap().index;
            assert_eq!(napis(index).unwrap(), []);
            ethtool::set_wanted(index, "va", &[("rx-gro", true)]).unwrap();
            let instances = napis(index).unwrap();
            assert!(!instances.is_empty(), "GRO is on, and nobody polls");
            let id = instances[0].id;
            set_napi(id, &BTreeMap::from([("irq-suspend-timeout".to_owned(), 20_000)])).unwrap();
            let now = napis(index).unwrap();
            assert_eq!(now.iter().find(|one| one.id == id).unwrap().values["irq-suspend-timeout"], 20_000);
            let error = set_napi(1, &BTreeMap::from([("irq-suspend-timeout".to_owned(), 1)])).unwrap_err();
            assert!(error.to_string().contains("NAPI instance 1"), "{error}");
        };
        netns.run(work).unwrap();
    }
}
