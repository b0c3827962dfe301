//! The queueing discipline at the root of a device: what it is, another one in its place, and the first one back.
//!
//! The kernel describes a discipline in attributes that only the discipline itself understands, and takes the same ones when
//! it is made. So what was there is kept as the bytes it was described in, and goes back as such, with its handle. A
//! discipline nobody asked for has the handle 0, and comes back by itself once the one in its place is removed.
//!
//! What has classes, filters or children of somebody's is not replaced: they would be gone.
//!
//! Numbers: `include/uapi/linux/{rtnetlink,pkt_sched}.h`; meaning: tc(8) and the pages of each discipline. A *tick* of the
//! scheduler is 64 ns (`PSCHED_SHIFT` in `include/net/pkt_sched.h`).

use std::fmt::Write as _;

use netlink_packet_core::{
    DecodeError, Emitable as _, NLM_F_CREATE, NLM_F_REPLACE, NetlinkDeserializable, NetlinkHeader,
    NetlinkSerializable, Nla, NlasIterator,
};
use serde::{Deserialize, Serialize};

use crate::error::{HostError, Result};
use crate::netlink::Connection;

const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_GETQDISC: u16 = 38;
const RTM_NEWTFILTER: u16 = 44;
const RTM_GETTFILTER: u16 = 46;

const TC_H_ROOT: u32 = 0xffff_ffff;
/// Where `ingress` and `clsact` hang, which are beside the root and not below it.
const TC_H_INGRESS: u32 = 0xffff_fff1;

const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;

/// Disciplines whose classes are their point.
const CLASSFUL: [&str; 10] = ["htb", "hfsc", "drr", "qfq", "cbq", "atm", "ets", "prio", "mqprio", "taprio"];

/// What is at the root of a device, and enough to make it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Root {
    /// Its name.
    pub(crate) kind: String,
    pub(crate) handle: u32,
    /// How it described itself, in hexadecimal digits.
    pub(crate) options: String,
    /// Whether the kernel put it there by itself.
    pub(crate) default: bool,
    /// What somebody hung below it.
    pub(crate) children: Vec<String>,
}

/// A discipline as a user asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    kind: &'static str,
    options: Option<Vec<u8>>,
}

/// A message about disciplines: its type, `struct tcmsg`, and attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Message {
    kind: u16,
    index: u32,
    handle: u32,
    parent: u32,
    attributes: Vec<Attribute>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Attribute {
    kind: u16,
    value: Vec<u8>,
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

/// `sizeof(struct tcmsg)`.
const HEAD: usize = 20;

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        self.kind
    }

    fn buffer_len(&self) -> usize {
        HEAD + self.attributes.as_slice().buffer_len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer[..HEAD].fill(0);
        for (at, value) in [(4, self.index), (8, self.handle), (12, self.parent)] {
            buffer[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        self.attributes.as_slice().emit(&mut buffer[HEAD..]);
    }
}

impl NetlinkDeserializable for Message {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> std::result::Result<Self, DecodeError> {
        let word = |at: usize| -> std::result::Result<u32, DecodeError> {
            let bytes = payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            Ok(u32::from_ne_bytes(bytes.ok_or_else(|| DecodeError::from("too short for a tcmsg"))?))
        };
        let (index, handle, parent) = (word(4)?, word(8)?, word(12)?);
        word(HEAD - 4)?;
        let attributes = NlasIterator::new(&payload[HEAD..])
            .map(|part| {
                let part = part?;
                Ok(Attribute { kind: part.kind(), value: part.value().to_vec() })
            })
            .collect::<std::result::Result<_, DecodeError>>()?;
        Ok(Self { kind: header.message_type, index, handle, parent, attributes })
    }
}

impl Message {
    fn about(kind: u16, index: u32, parent: u32) -> Self {
        Self { kind, index, handle: 0, parent, attributes: Vec::new() }
    }

    fn find(&self, kind: u16) -> Option<&[u8]> {
        self.attributes.iter().find(|attribute| attribute.kind == kind).map(|found| found.value.as_slice())
    }

    fn name(&self) -> String {
        let name = self.find(TCA_KIND).unwrap_or_default();
        String::from_utf8_lossy(name).trim_end_matches('\0').to_owned()
    }
}

fn connection() -> Result<Connection> {
    Connection::open(netlink_sys::protocols::NETLINK_ROUTE)
}

fn object(index: u32) -> String {
    format!("device number {index}")
}

/// What is at the root of a device in the calling thread's network namespace.
pub(crate) fn root(index: u32) -> Result<Root> {
    let operation = "read the queueing disciplines of";
    let mut connection = connection()?;
    // The kernel lists those of every device.
    let all = connection.dump(operation, &object(index), &Message::about(RTM_GETQDISC, index, 0))?;
    let own: Vec<&Message> =
        all.iter().filter(|message| message.kind == RTM_NEWQDISC && message.index == index).collect();
    let Some(root) = own.iter().find(|message| message.parent == TC_H_ROOT) else {
        let kind = "noqueue".to_owned();
        return Ok(Root { kind, handle: 0, options: String::new(), default: true, children: Vec::new() });
    };
    let below = own.iter().filter(|message| {
        message.parent != TC_H_ROOT && message.parent != TC_H_INGRESS && message.handle != 0
    });
    let mut children: Vec<String> = below.map(|message| message.name()).collect();
    if root.handle != 0 {
        let ask = Message { handle: 0, ..Message::about(RTM_GETTFILTER, index, root.handle) };
        let filters = connection.dump("read the filters of", &object(index), &ask)?;
        let named = filters.iter().filter(|message| message.kind == RTM_NEWTFILTER);
        children.extend(named.map(|message| format!("a filter ({})", message.name())));
    }
    Ok(Root {
        kind: root.name(),
        handle: root.handle,
        options: hex(root.find(TCA_OPTIONS).unwrap_or_default()),
        default: root.handle == 0,
        children,
    })
}

/// Why a root cannot be replaced and put back as it was; `None` where it can.
pub(crate) fn keeps(root: &Root) -> Option<String> {
    if !root.default && CLASSFUL.contains(&root.kind.as_str()) {
        return Some(format!("its {} has classes, which would be gone with it", root.kind));
    }
    let mut children = root.children.clone();
    children.dedup();
    (!children.is_empty()).then(|| {
        format!("below its {} there is {}, which would be gone with it", root.kind, children.join(", "))
    })
}

/// Puts a discipline in the place of the one at the root.
pub(crate) fn replace(index: u32, wanted: &Wanted) -> Result<()> {
    let mut message = Message::about(RTM_NEWQDISC, index, TC_H_ROOT);
    message.attributes.push(named(wanted.kind));
    message.attributes.extend(wanted.options.clone().map(|value| Attribute { kind: TCA_OPTIONS, value }));
    make(index, wanted.kind, message)
}

/// Puts back what was there.
pub(crate) fn put_back(index: u32, then: &Root) -> Result<()> {
    if !then.default {
        let mut message = Message::about(RTM_NEWQDISC, index, TC_H_ROOT);
        message.handle = then.handle;
        message.attributes.push(named(&then.kind));
        let options = unhex(&then.options).filter(|options| !options.is_empty());
        message.attributes.extend(options.map(|value| Attribute { kind: TCA_OPTIONS, value }));
        return make(index, &then.kind, message);
    }
    let message = Message::about(RTM_DELQDISC, index, TC_H_ROOT);
    match connection()?.request("remove the queueing discipline of", &object(index), message, 0) {
        // There is none but the kernel's own already.
        Err(error) if matches!(error.errno(), Some(libc::ENOENT | libc::EINVAL)) => Ok(()),
        done => done.map(drop),
    }
}

fn make(index: u32, kind: &str, message: Message) -> Result<()> {
    let made = connection()?.request(
        "set the queueing discipline of",
        &object(index),
        message,
        NLM_F_CREATE | NLM_F_REPLACE,
    );
    made.map(drop).map_err(|error| match error.errno() {
        Some(libc::ENOENT) => HostError::Unavailable {
            operation: "set the queueing discipline",
            object: format!("'{kind}'"),
            reason: format!(
                "this kernel has none of that kind: it takes CONFIG_NET_SCH_{}",
                kind.to_uppercase()
            ),
        },
        _ => error,
    })
}

fn named(kind: &str) -> Attribute {
    Attribute { kind: TCA_KIND, value: [kind.as_bytes(), &[0]].concat() }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pair = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(pair).collect()
}

/// How a value is written, and as what number it goes.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// A plain number.
    Count,
    /// Bytes: `64`, `64K`, `1M`.
    Bytes,
    /// A time, in microseconds: `5ms`.
    Micros,
    /// Bits a second, `100M`, as bytes a second.
    Rate,
    /// No value: the word means this number.
    Is(u32),
}

/// Options of the disciplines that take them as attributes.
type Options = &'static [(&'static str, u16, Form)];

const FQ_CODEL: Options = &[
    ("target", 1, Form::Micros),
    ("limit", 2, Form::Count),
    ("interval", 3, Form::Micros),
    ("ecn", 4, Form::Is(1)),
    ("noecn", 4, Form::Is(0)),
    ("flows", 5, Form::Count),
    ("quantum", 6, Form::Bytes),
    ("ce_threshold", 7, Form::Micros),
    ("drop_batch", 8, Form::Count),
    ("memory_limit", 9, Form::Bytes),
];

const CODEL: Options = &[
    ("target", 1, Form::Micros),
    ("limit", 2, Form::Count),
    ("interval", 3, Form::Micros),
    ("ecn", 4, Form::Is(1)),
    ("noecn", 4, Form::Is(0)),
    ("ce_threshold", 5, Form::Micros),
];

const FQ: Options = &[
    ("limit", 1, Form::Count),
    ("flow_limit", 2, Form::Count),
    ("quantum", 3, Form::Bytes),
    ("initial_quantum", 4, Form::Bytes),
    ("pacing", 5, Form::Is(1)),
    ("nopacing", 5, Form::Is(0)),
    ("maxrate", 7, Form::Rate),
];

/// Those that take a structure: the names only.
const FIFO: &[&str] = &["limit"];
const TBF: &[&str] = &["rate", "burst", "limit", "latency"];
const SFQ: &[&str] = &["quantum", "perturb", "limit"];
const NETEM: &[&str] = &["delay", "jitter", "limit", "loss"];

const KINDS: [&str; 12] = [
    "pfifo",
    "bfifo",
    "pfifo_head_drop",
    "pfifo_fast",
    "noqueue",
    "mq",
    "fq_codel",
    "codel",
    "fq",
    "sfq",
    "tbf",
    "netem",
];

/// Reads `KIND [NAME VALUE]…`.
pub(crate) fn parse(spec: &str) -> std::result::Result<Wanted, String> {
    let mut words = spec.split_whitespace();
    let asked = words.next().unwrap_or_default();
    let Some(kind) = KINDS.into_iter().find(|kind| *kind == asked) else {
        return Err(format!("haul sets the queueing disciplines {}, not '{asked}'", KINDS.join(", ")));
    };
    let words: Vec<&str> = words.collect();
    let options = match kind {
        "fq_codel" => attributes(kind, FQ_CODEL, &words)?,
        "codel" => attributes(kind, CODEL, &words)?,
        "fq" => attributes(kind, FQ, &words)?,
        "pfifo" | "pfifo_head_drop" => {
            let values = values(kind, FIFO, &words)?;
            values[0]
                .map(|limit| number(limit, Form::Count))
                .transpose()?
                .map(|limit| limit.to_ne_bytes().to_vec())
        }
        "bfifo" => {
            let values = values(kind, FIFO, &words)?;
            values[0]
                .map(|limit| number(limit, Form::Bytes))
                .transpose()?
                .map(|limit| limit.to_ne_bytes().to_vec())
        }
        "sfq" => sfq(&words)?,
        "tbf" => Some(tbf(&words)?),
        "netem" => Some(netem(&words)?),
        _ => {
            values(kind, &[], &words)?;
            None
        }
    };
    Ok(Wanted { kind, options })
}

fn unknown(kind: &str, word: &str, names: &[&str]) -> String {
    if names.is_empty() {
        format!("{kind} takes no options, so no '{word}'")
    } else {
        format!("{kind} takes {}, not '{word}'", names.join(", "))
    }
}

fn attributes(kind: &str, options: Options, words: &[&str]) -> std::result::Result<Option<Vec<u8>>, String> {
    let mut found: Vec<Attribute> = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some((_, number_of, form)) = options.iter().find(|(name, ..)| name == word) else {
            return Err(unknown(kind, word, &options.iter().map(|(name, ..)| *name).collect::<Vec<_>>()));
        };
        let value = match form {
            Form::Is(value) => *value,
            form => number(words.next().ok_or_else(|| format!("'{word}' lacks its value"))?, *form)?,
        };
        found.push(Attribute { kind: *number_of, value: value.to_ne_bytes().to_vec() });
    }
    Ok((!found.is_empty()).then(|| nest(&found)))
}

fn nest(attributes: &[Attribute]) -> Vec<u8> {
    let mut bytes = vec![0; attributes.buffer_len()];
    attributes.emit(&mut bytes);
    bytes
}

/// The values of `names`, in their order.
fn values<'a>(
    kind: &str,
    names: &[&str],
    words: &[&'a str],
) -> std::result::Result<Vec<Option<&'a str>>, String> {
    let mut found = vec![None; names.len()];
    for pair in words.chunks(2) {
        let Some(place) = names.iter().position(|name| *name == pair[0]) else {
            return Err(unknown(kind, pair[0], names));
        };
        found[place] = Some(*pair.get(1).ok_or_else(|| format!("'{}' lacks its value", pair[0]))?);
    }
    Ok(found)
}

/// A value as the number that goes on the wire.
fn number(text: &str, form: Form) -> std::result::Result<u32, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (value, unit) = text.split_at(digits);
    let value: f64 = value.parse().map_err(|_| format!("'{text}' is no number"))?;
    let factor = match (form, unit) {
        (Form::Count, "") | (Form::Bytes, "" | "b" | "B") | (Form::Micros, "us") => 1.0,
        (Form::Bytes, "K" | "k" | "KiB" | "kb") => 1024.0,
        (Form::Bytes, "M" | "m" | "MiB" | "mb") => 1_048_576.0,
        (Form::Micros, "ms") => 1e3,
        (Form::Micros, "s") => 1e6,
        (Form::Rate, "") => 0.125,
        (Form::Rate, "K" | "k" | "kbit") => 125.0,
        (Form::Rate, "M" | "m" | "mbit") => 125e3,
        (Form::Rate, "G" | "g" | "gbit") => 125e6,
        _ => {
            let wanted = match form {
                Form::Bytes => "a size, such as 64K",
                Form::Micros => "a time with its unit, such as 5ms",
                Form::Rate => "a rate, such as 100M",
                Form::Count | Form::Is(_) => "a number",
            };
            return Err(format!("'{text}' is not {wanted}"));
        }
    };
    let whole = (value * factor).round();
    if whole > f64::from(u32::MAX) {
        return Err(format!("'{text}' is more than 32 bits hold"));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "in the range of u32, as just seen"
    )]
    Ok(whole as u32)
}

/// Microseconds as the scheduler's ticks.
fn ticks(micros: u32) -> u32 {
    u32::try_from((u64::from(micros) * 1000) >> 6).unwrap_or(u32::MAX)
}

/// `struct tc_sfq_qopt`.
fn sfq(words: &[&str]) -> std::result::Result<Option<Vec<u8>>, String> {
    if words.is_empty() {
        return Ok(None);
    }
    let values = values("sfq", SFQ, words)?;
    let value = |at: usize, form| values[at].map_or(Ok(0), |text| number(text, form));
    let perturb = value(1, Form::Count)?;
    let fields = [value(0, Form::Bytes)?, perturb, value(2, Form::Count)?, 0, 0];
    Ok(Some(fields.iter().flat_map(|field| field.to_ne_bytes()).collect()))
}

/// `struct tc_tbf_qopt` in `TCA_TBF_PARMS`, and the burst in bytes, which spares the table of times the kernel had once.
fn tbf(words: &[&str]) -> std::result::Result<Vec<u8>, String> {
    const PARMS: u16 = 1;
    const BURST: u16 = 6;
    /// `TC_LINKLAYER_ETHERNET`: the times are computed and not looked up.
    const ETHERNET: u8 = 1;
    let values = values("tbf", TBF, words)?;
    let (Some(rate), Some(burst)) = (values[0], values[1]) else {
        return Err("tbf needs its rate and burst, as in tbf rate 100M burst 32K latency 50ms".to_owned());
    };
    let (rate, burst) = (number(rate, Form::Rate)?, number(burst, Form::Bytes)?);
    if rate == 0 || burst == 0 {
        return Err("a rate and a burst of tbf are more than nothing".to_owned());
    }
    let limit = match (values[2], values[3]) {
        (Some(limit), None) => number(limit, Form::Bytes)?,
        (None, latency) => {
            let wait = u64::from(number(latency.unwrap_or("50ms"), Form::Micros)?);
            let queued = u64::from(rate) * wait / 1_000_000 + u64::from(burst);
            u32::try_from(queued)
                .map_err(|_| "such a latency at such a rate is more than 32 bits hold".to_owned())?
        }
        (Some(_), Some(_)) => {
            return Err("tbf has a limit or a latency: each follows from the other".to_owned());
        }
    };
    // struct tc_ratespec: cell_log, linklayer, overhead (2), cell_align (2), mpu (2), rate.
    let mut parms = vec![0, ETHERNET, 0, 0, 0, 0, 0, 0];
    parms.extend(rate.to_ne_bytes());
    // No peak rate.
    parms.extend([0; 12]);
    parms.extend(limit.to_ne_bytes());
    // `buffer` and `mtu`, of which the burst stands in for the first.
    parms.extend([0; 8]);
    Ok(nest(&[
        Attribute { kind: PARMS, value: parms },
        Attribute { kind: BURST, value: burst.to_ne_bytes().to_vec() },
    ]))
}

/// `struct tc_netem_qopt`.
fn netem(words: &[&str]) -> std::result::Result<Vec<u8>, String> {
    const LIMIT: u32 = 1000;
    let values = values("netem", NETEM, words)?;
    let micros = |at: usize| values[at].map_or(Ok(0), |text| number(text, Form::Micros));
    let loss = values[3].map_or(Ok(0.0), |text| {
        let share =
            text.trim_end_matches('%').parse::<f64>().ok().filter(|share| (0.0..=100.0).contains(share));
        share.ok_or_else(|| format!("'{text}' is not a share, such as 1%"))
    })?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of the range of u32"
    )]
    let loss = (loss / 100.0 * f64::from(u32::MAX)) as u32;
    let limit = values[2].map_or(Ok(LIMIT), |text| number(text, Form::Count))?;
    let fields = [ticks(micros(0)?), limit, loss, 0, 0, ticks(micros(1)?)];
    Ok(fields.iter().flat_map(|field| field.to_ne_bytes()).collect())
}

// The literal bytes below are those of a little-endian machine: netlink speaks the host's order.
#[cfg(all(test, target_endian = "little"))]
mod tests {
    use haul_stats::ByteCount;
    use proptest::prelude::*;

    use super::*;
    use crate::link;
    use crate::netns::Netns;

    fn bytes_of(message: &Message) -> Vec<u8> {
        let mut bytes = vec![0xaa; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes
    }

    fn read(kind: u16, bytes: &[u8]) -> std::result::Result<Message, DecodeError> {
        let mut header = NetlinkHeader::default();
        header.message_type = kind;
        Message::deserialize(&header, bytes)
    }

    #[test]
    fn a_discipline_has_these_bytes_both_ways() {
        let mut message = Message::about(RTM_NEWQDISC, 7, TC_H_ROOT);
        message.handle = 0x0001_0000;
        message.attributes.push(named("pfifo"));
        message.attributes.push(Attribute { kind: TCA_OPTIONS, value: vec![50, 0, 0, 0] });
        #[rustfmt::skip]
        let expected = [
            0, 0, 0, 0,  7, 0, 0, 0,  0, 0, 1, 0,  0xff, 0xff, 0xff, 0xff,  0, 0, 0, 0,
            10, 0, 1, 0,  b'p', b'f', b'i', b'f', b'o', 0, 0, 0,
            8, 0, 2, 0,  50, 0, 0, 0,
        ];
        assert_eq!(bytes_of(&message), expected);
        let back = read(RTM_NEWQDISC, &expected).unwrap();
        assert_eq!(back, message);
        assert_eq!(back.name(), "pfifo");
        for end in 0..expected.len() {
            let _ = read(RTM_NEWQDISC, &expected[..end]);
        }
        for at in 0..expected.len() {
            for value in [0, 1, 3, 0x7f, 0x80, 0xff] {
                let mut damaged = expected;
                damaged[at] = value;
                let _ = read(RTM_NEWQDISC, &damaged).map(|message| message.name());
            }
        }
    }

    #[test]
    fn options_go_as_the_kernel_takes_them() {
        let options = |spec: &str| parse(spec).unwrap().options;
        assert_eq!(options("fq_codel"), None);
        #[rustfmt::skip]
        assert_eq!(options("fq_codel target 5ms noecn quantum 1K").unwrap(), [
            8, 0, 1, 0,  0x88, 0x13, 0, 0,
            8, 0, 4, 0,  0, 0, 0, 0,
            8, 0, 6, 0,  0, 4, 0, 0,
        ]);
        assert_eq!(options("pfifo limit 50").unwrap(), [50, 0, 0, 0]);
        assert_eq!(options("bfifo limit 64K").unwrap(), [0, 0, 1, 0]);
        assert_eq!(
            options("fq maxrate 1G nopacing").unwrap(),
            [8, 0, 7, 0, 0x40, 0x59, 0x73, 7, 8, 0, 5, 0, 0, 0, 0, 0]
        );
        #[rustfmt::skip]
        assert_eq!(options("tbf rate 8M burst 32K limit 64K").unwrap(), [
            40, 0, 1, 0,
                0, 1, 0, 0, 0, 0, 0, 0,  0x40, 0x42, 0x0f, 0,
                0, 0, 0, 0, 0, 0, 0, 0,  0, 0, 0, 0,
                0, 0, 1, 0,  0, 0, 0, 0,  0, 0, 0, 0,
            8, 0, 6, 0,  0, 0x80, 0, 0,
        ]);
        assert_eq!(
            options("netem delay 1ms loss 50%").unwrap()[..12],
            [9, 61, 0, 0, 0xe8, 3, 0, 0, 0xff, 0xff, 0xff, 0x7f]
        );
    }

    #[test]
    fn what_is_no_discipline_is_answered_with_those_there_are() {
        for (spec, expected) in [
            ("", "pfifo, bfifo"),
            ("frob", "not 'frob'"),
            ("fq_codel limt 3", "target, limit"),
            ("fq_codel limit", "lacks its value"),
            ("fq_codel target 5", "a time with its unit"),
            ("pfifo limit 1K", "a number"),
            ("noqueue limit 1", "takes no options"),
            ("tbf rate 1M", "rate and burst"),
            ("tbf rate 1M burst 1K limit 1K latency 1ms", "each follows"),
            ("netem loss 200%", "a share"),
            ("bfifo limit 9999M", "32 bits"),
        ] {
            let error = parse(spec).unwrap_err();
            assert!(error.contains(expected), "{spec}: {error}");
        }
    }

    #[test]
    fn what_others_hung_there_is_not_torn_off() {
        let root = |kind: &str, handle: u32, children: &[&str]| Root {
            kind: kind.to_owned(),
            handle,
            options: String::new(),
            default: handle == 0,
            children: children.iter().map(|child| (*child).to_owned()).collect(),
        };
        assert_eq!(keeps(&root("fq_codel", 0x10000, &[])), None);
        assert_eq!(keeps(&root("mq", 0, &[])), None);
        assert!(keeps(&root("htb", 0x10000, &[])).is_some_and(|why| why.contains("classes")));
        assert!(keeps(&root("mq", 0x10000, &["fq", "fq"])).is_some_and(|why| why.contains("there is fq,")));
    }

    #[test]
    fn disciplines_are_replaced_and_come_back_as_they_were() {
        assert!(crate::privilege::effective_root(), "this test makes network devices: run it as root");
        let netns = Netns::create().unwrap();
        let work = || {
            link::create_veth("va", "vb", &netns, ByteCount(1500)).unwrap();
            for name in ["va", "vb"] {
                link::set_up(link::link_by_name(name).unwrap().index, true).unwrap();
            }
            let index = link::link_by_name("va").unwrap().index;
            let first = root(index).unwrap();
            assert!(first.default && first.kind == "noqueue", "{first:?}");
            let (mut held, mut ran) = (first.clone(), Vec::new());
            // Each one back to the one before it, whatever it was made of.
            for spec in [
                "pfifo limit 50",
                "tbf rate 80M burst 64K latency 20ms",
                "fq_codel limit 77 noecn",
                "sfq perturb 10",
                "noqueue",
                "bfifo limit 64K",
            ] {
                match replace(index, &parse(spec).unwrap()) {
                    Err(error) if error.to_string().contains("CONFIG_NET_SCH_") => {
                        println!("not in this kernel: {spec}");
                        assert_eq!(root(index).unwrap(), held, "{spec}: refused, and yet changed");
                        continue;
                    }
                    made => made.unwrap_or_else(|error| panic!("{spec}: {error}")),
                }
                let now = root(index).unwrap();
                assert!(!now.default && spec.starts_with(&now.kind), "{spec}: {now:?}");
                assert_ne!(now, held);
                put_back(index, &held).unwrap_or_else(|error| panic!("{spec}: {error}"));
                assert_eq!(root(index).unwrap(), held, "after {spec}");
                replace(index, &parse(spec).unwrap()).unwrap();
                held = root(index).unwrap();
                ran.push(held.kind.clone());
            }
            assert!(ran.len() >= 4 && ran.contains(&"tbf".to_owned()), "only {ran:?} could be tried");
            put_back(index, &first).unwrap();
            assert_eq!(root(index).unwrap(), first);
            put_back(index, &first).unwrap();
            if let Err(error) = replace(index, &parse("netem delay 1ms").unwrap()) {
                assert!(error.to_string().contains("CONFIG_NET_SCH_NETEM"), "{error}");
            }
        };
        netns.run(work).unwrap();
    }

    proptest! {
        #[test]
        fn no_text_and_no_bytes_panic(text in "(tbf|fq_codel|netem|sfq|pfifo)? ?\\PC{0,40}", bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse(&text);
            let _ = unhex(&text);
            let _ = read(RTM_NEWQDISC, &bytes).map(|message| message.name());
        }
    }
}
