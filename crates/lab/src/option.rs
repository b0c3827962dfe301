//! The options of a workload by name, as an arm (`opt.message=1K`) or a sweep sets them.
//!
//! One table serves arms, sweeps and the command line, so that `--pin 0,1` and `opt.pin=0,1` cannot come to mean
//! different things. What decides how long a run takes (`time`, `warmup`, `interval`) is not here on purpose: arms that
//! differ in it cannot be compared.

use haul_host::thread::CpuList;
use haul_stats::ByteCount;
use haul_stats::units::{self, UnitError};
use haul_workload::mode::NoSuchMode;
use haul_workload::spec::DEFAULT_MESSAGE;
use haul_workload::{Direction, Payload, Pin, Placement, RunSpec, Transport, Workload};

use crate::error::LabError;

/// How one option takes its value; the error says what would have been right.
type Set = fn(&mut RunSpec, &str) -> Result<(), String>;

/// The workloads an option means something to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Any,
    Stream,
    Exchange,
}

impl Of {
    fn includes(self, workload: Workload) -> bool {
        match self {
            Self::Any => true,
            Self::Stream => workload == Workload::Stream,
            Self::Exchange => workload != Workload::Stream,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Any => "any workload",
            Self::Stream => "a stream",
            Self::Exchange => "rr and crr",
        }
    }
}

/// Every option an arm can set: its name, what it takes, and how.
const OPTIONS: &[(&str, &str, Of, Set)] = &[
    ("message", "a size, as 128K, or auto", Of::Stream, |spec, value| {
        match automatic(value)? {
            Some(size) => (spec.message, spec.fit_message) = (size, false),
            // A datagram is to fit the path, a stream's message has no such measure.
            None if spec.transport == Transport::Udp => spec.fit_message = true,
            None => spec.message = DEFAULT_MESSAGE,
        }
        Ok(())
    }),
    ("request", "a size, as 1 or 14K", Of::Exchange, |spec, value| {
        size(value).map(|size| spec.request = size)
    }),
    ("response", "a size, as 1 or 14K", Of::Exchange, |spec, value| {
        size(value).map(|size| spec.response = size)
    }),
    ("in-flight", "a count, as 1 or 16", Of::Exchange, |spec, value| {
        count(value, "requests").map(|count| spec.in_flight = count)
    }),
    ("flows", "a count, as 4", Of::Any, |spec, value| count(value, "flows").map(|count| spec.flows = count)),
    ("threads", "a count, or auto for one per CPU", Of::Any, |spec, value| {
        spec.threads = if value == "auto" { None } else { Some(count(value, "threads")?) };
        Ok(())
    }),
    ("sndbuf", "a size, or auto for the kernel's autotuning", Of::Any, |spec, value| {
        automatic(value).map(|size| spec.sndbuf = size)
    }),
    ("rcvbuf", "a size, or auto for the kernel's autotuning", Of::Any, |spec, value| {
        automatic(value).map(|size| spec.rcvbuf = size)
    }),
    ("nodelay", "on or off", Of::Any, |spec, value| {
        if spec.transport == Transport::Udp {
            return Err("UDP sends every datagram at once: leave it out".to_owned());
        }
        switch(value).map(|on| spec.nodelay = on)
    }),
    ("cc", "a congestion control's name, or default for the host's", Of::Any, |spec, value| {
        spec.cc = (value != "default").then(|| value.to_owned());
        Ok(())
    }),
    ("payload", "stamped, fresh or repeat", Of::Stream, |spec, value| {
        spec.payload = match value {
            "stamped" => Payload::Stamped,
            "fresh" => Payload::Fresh,
            "repeat" => Payload::Repeat,
            _ => return Err("give stamped, fresh or repeat".to_owned()),
        };
        Ok(())
    }),
    ("direction", "send, receive or both", Of::Stream, |spec, value| {
        spec.direction = match value {
            "send" => Direction::Send,
            "receive" => Direction::Receive,
            "both" => Direction::Both,
            _ => return Err("give send, receive or both, as seen from the client".to_owned()),
        };
        Ok(())
    }),
    ("send-with", "write, sendfile, splice or zerocopy", Of::Stream, |spec, value| {
        value.parse().map(|with| spec.send_with = with).map_err(|error: NoSuchMode| error.to_string())
    }),
    ("send-file", "a file of the client's, or memory", Of::Stream, |spec, value| {
        spec.send_file = (value != "memory").then(|| value.into());
        Ok(())
    }),
    ("recv-with", "read, discard or zerocopy", Of::Stream, |spec, value| {
        value.parse().map(|with| spec.recv_with = with).map_err(|error: NoSuchMode| error.to_string())
    }),
    ("send-offset", "bytes past a page, 0 to 4095", Of::Stream, |spec, value| {
        size(value).map(|offset| spec.send_offset = offset)
    }),
    ("recv-offset", "bytes past a page, 0 to 4095", Of::Stream, |spec, value| {
        size(value).map(|offset| spec.recv_offset = offset)
    }),
    ("segment", "on or off", Of::Stream, |spec, value| switch(value).map(|on| spec.segment = on)),
    ("gro", "on or off", Of::Stream, |spec, value| switch(value).map(|on| spec.gro = on)),
    ("batch", "a count, as 64", Of::Stream, |spec, value| {
        count(value, "datagrams").map(|count| spec.batch = count)
    }),
    ("dont-fragment", "on, off, or default for the host's", Of::Stream, |spec, value| {
        spec.dont_fragment = if value == "default" { None } else { Some(switch(value)?) };
        Ok(())
    }),
    (
        "rate",
        "of a stream bits per second, as 10M or 1G; of rr and crr transactions per second, as 1000/s; or max",
        Of::Any,
        |spec, value| {
            (spec.rate, spec.pace) = (None, None);
            if value == "max" {
                return Ok(());
            }
            match spec.workload {
                Workload::Stream => {
                    spec.rate = Some(value.parse().map_err(|error: UnitError| error.to_string())?);
                }
                Workload::Rr | Workload::Crr => {
                    spec.pace = Some(value.parse().map_err(|error: UnitError| error.to_string())?);
                }
            }
            Ok(())
        },
    ),
    ("timeout", "a time, as 200ms", Of::Exchange, |spec, value| {
        let timeout = units::parse_duration(value).map_err(|error| error.to_string())?;
        spec.timeout = timeout;
        Ok(())
    }),
    ("spin", "on or off", Of::Exchange, |spec, value| switch(value).map(|on| spec.spin = on)),
    ("busy-poll", "a time in whole microseconds, as 50us, or off", Of::Any, |spec, value| {
        spec.busy_poll_us = if value == "off" { None } else { Some(micros(value)?) };
        Ok(())
    }),
    ("close", "fin or reset", Of::Exchange, |spec, value| {
        spec.reset = match value {
            "fin" => false,
            "reset" => true,
            _ => return Err("give fin or reset".to_owned()),
        };
        Ok(())
    }),
    ("mss", "a segment's size in bytes, or auto for what the path allows", Of::Any, |spec, value| {
        let bytes = automatic(value)?;
        // What does not fit is out of bounds, and refused as such.
        spec.mss = bytes.map(|bytes| u32::try_from(bytes.0).unwrap_or(u32::MAX));
        Ok(())
    }),
    ("tos", "type of service, 0 to 252, or default", Of::Any, |spec, value| {
        spec.tos = if value == "default" { None } else { Some(tos(value)?) };
        Ok(())
    }),
    ("dscp", "0 to 63, a class as EF, AF41 or CS1, or default", Of::Any, |spec, value| {
        spec.tos = if value == "default" { None } else { Some(dscp(value)? << 2) };
        Ok(())
    }),
    ("bind-device", "a device of the client, or any", Of::Any, |spec, value| {
        spec.bind_device = (value != "any").then(|| value.to_owned());
        Ok(())
    }),
    ("mark", "a firewall mark, as 7 or 0x7, or none", Of::Any, |spec, value| {
        spec.mark = if value == "none" { None } else { Some(mark(value)?) };
        Ok(())
    }),
    ("placement", "free or pair", Of::Any, |spec, value| {
        spec.placement = match value {
            "free" => Placement::Free,
            "pair" => Placement::Pair,
            _ => return Err("give free or pair".to_owned()),
        };
        Ok(())
    }),
    ("pin", "CLIENT[,SERVER], each a CPU list as 0, 0-3 or 0+2, or free", Of::Any, |spec, value| {
        pin(value).map(|pin| spec.pin = pin)
    }),
];

/// The names and what each takes, for help texts.
pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    OPTIONS.iter().map(|&(name, takes, ..)| (name, takes))
}

/// Sets one option of `spec` by its name. Whether the whole can be run is for [`RunSpec::check`] to say, once every
/// option is set: a rate may want a message that is named after it.
///
/// # Errors
/// [`LabError::Option`] lists the names where `key` is none of them, says what the option takes where `value` is not
/// that, and what it belongs to where that is another workload.
pub fn assign(spec: &mut RunSpec, key: &str, value: &str) -> Result<(), LabError> {
    let bad = |why: String| LabError::Option { key: key.to_owned(), value: value.to_owned(), why };
    let Some((_, _, of, set)) = OPTIONS.iter().find(|(name, ..)| *name == key) else {
        let known = names().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
        return Err(bad(match key {
            "time" | "warmup" | "interval" | "bytes" => {
                format!("arms must run equally long to be compared; set it for all of them with --{key}")
            }
            _ => format!("there is no such option; the options are {known}"),
        }));
    };
    if !of.includes(spec.workload) {
        return Err(bad(format!("it is an option of {}: leave it out", of.name())));
    }
    set(spec, value).map_err(bad)
}

/// Sets one option of a default specification: says whether the value can be run by any workload with any others.
///
/// # Errors
/// As [`assign`], and where no other option could make it right.
pub fn try_alone(key: &str, value: &str) -> Result<(), LabError> {
    let mut first = None;
    for workload in [Workload::Stream, Workload::Rr] {
        let mut spec = RunSpec { workload, ..RunSpec::default() };
        let tried = assign(&mut spec, key, value).and_then(|()| match spec.check() {
            Err(error) if !error.depends_on_others() => {
                Err(LabError::Option { key: key.to_owned(), value: value.to_owned(), why: error.to_string() })
            }
            _ => Ok(()),
        });
        match tried {
            Ok(()) => return Ok(()),
            Err(error) => {
                // The workload it belongs to has the better reason.
                let belongs = OPTIONS.iter().any(|(name, _, of, _)| *name == key && of.includes(workload));
                if first.is_none() || (belongs && first.as_ref().is_some_and(|(known, _)| !known)) {
                    first = Some((belongs, error));
                }
            }
        }
    }
    first.map_or(Ok(()), |(_, error)| Err(error))
}

/// Reads a differentiated services code point: its number, or the name of its class (RFC 2474, 2597, 3246, 8622).
///
/// # Errors
/// The text says what would have been right.
pub fn dscp(text: &str) -> Result<u8, String> {
    let bad = || format!("'{text}' is no code point: give 0 to 63, or a class as EF, CS1 or AF41");
    let upper = text.to_ascii_uppercase();
    let digit = |at: usize, from: u8, to: u8| {
        let digit = upper.as_bytes().get(at)?.checked_sub(b'0')?;
        (from..=to).contains(&digit).then_some(digit)
    };
    match (upper.as_str(), upper.get(..2), upper.len()) {
        ("EF", ..) => Ok(46),
        ("LE", ..) => Ok(1),
        (_, Some("CS"), 3) => digit(2, 0, 7).map(|class| class << 3).ok_or_else(bad),
        (_, Some("AF"), 4) => {
            let (class, drop) = digit(2, 1, 4).zip(digit(3, 1, 3)).ok_or_else(bad)?;
            Ok((class << 3) + (drop << 1))
        }
        _ if text.bytes().all(|b| b.is_ascii_digit()) => {
            text.parse().ok().filter(|point| *point < 64).ok_or_else(bad)
        }
        _ => Err(bad()),
    }
}

/// Reads a firewall mark, decimal or hexadecimal.
fn mark(text: &str) -> Result<u32, String> {
    let read = match text.strip_prefix("0x") {
        Some(hex) if hex.bytes().all(|b| b.is_ascii_hexdigit()) => u32::from_str_radix(hex, 16).ok(),
        None if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    };
    read.ok_or_else(|| format!("'{text}' is no firewall mark: give 0 to 4294967295, as 7 or 0x7"))
}

fn micros(text: &str) -> Result<u32, String> {
    let time = units::parse_duration(text).map_err(|error| error.to_string())?;
    let whole =
        time.subsec_nanos().is_multiple_of(1_000).then(|| u32::try_from(time.as_micros()).ok()).flatten();
    whole
        .filter(|micros| *micros > 0)
        .ok_or_else(|| format!("'{text}': give whole microseconds, as 50us, or off"))
}

fn count(value: &str, what: &str) -> Result<u32, String> {
    value.parse().map_err(|_| format!("give a whole number of {what}, as 4"))
}

/// Reads a type of service, decimal or hexadecimal: the whole octet, DSCP in its upper six bits.
///
/// # Errors
/// The text says what would have been right.
pub fn tos(text: &str) -> Result<u8, String> {
    let digits = |text: &str, radix| {
        // from_str_radix takes a sign.
        text.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u8::from_str_radix(text, radix).ok())?
    };
    let read = text.strip_prefix("0x").map_or_else(|| digits(text, 10), |hex| digits(hex, 16));
    read.ok_or_else(|| {
        format!("'{text}' is no type of service: give 0 to 252, as 184 or 0xb8 (DSCP times 4)")
    })
}

/// Reads a placement: `CLIENT[,SERVER]`, each a CPU list whose parts are joined by `+` because the comma is taken;
/// `free` leaves an end to the scheduler.
///
/// # Errors
/// The text says what would have been right.
pub fn pin(text: &str) -> Result<Pin, String> {
    const WANTED: &str = "give CLIENT[,SERVER], each one CPU (0), a range (0-3), several (0+2), or free";
    let one = |part: &str| -> Result<Option<CpuList>, String> {
        match part.trim() {
            "" => Err(WANTED.to_owned()),
            "free" => Ok(None),
            part => part.replace('+', ",").parse().map(Some).map_err(|error| format!("{error}: {WANTED}")),
        }
    };
    match text.split_once(',') {
        None => Ok(Pin { client: one(text)?, server: None }),
        Some((_, server)) if server.contains(',') => Err(WANTED.to_owned()),
        Some((client, server)) => Ok(Pin { client: one(client)?, server: one(server)? }),
    }
}

fn size(value: &str) -> Result<ByteCount, String> {
    value.parse().map_err(|error: UnitError| error.to_string())
}

fn automatic(value: &str) -> Result<Option<ByteCount>, String> {
    if value == "auto" { Ok(None) } else { size(value).map(Some) }
}

fn switch(value: &str) -> Result<bool, String> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("give on or off".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use haul_stats::BitRate;
    use haul_workload::{RecvWith, SendWith};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_type_of_service_reads_back_in_either_notation_and_no_text_panics(octet: u8, text in "[0-9a-fx+-]{0,6}") {
            prop_assert_eq!(tos(&octet.to_string()), Ok(octet));
            prop_assert_eq!(tos(&format!("{octet:#04x}")), Ok(octet));
            let _ = tos(&text);
        }
    }

    #[test]
    fn every_option_is_set_by_its_name() {
        let mut spec = RunSpec::default();
        for (key, value) in [
            ("message", "1K"),
            ("flows", "4"),
            ("sndbuf", "64K"),
            ("rcvbuf", "32K"),
            ("nodelay", "on"),
            ("cc", "reno"),
            ("payload", "repeat"),
            ("direction", "receive"),
            ("pin", "0,1"),
            ("send-with", "zerocopy"),
            ("recv-with", "read"),
            ("send-offset", "3"),
            ("recv-offset", "17"),
            ("rate", "2.5G"),
            ("mss", "1000"),
            ("tos", "0xb8"),
        ] {
            let before = spec.clone();
            assign(&mut spec, key, value).unwrap();
            assert!(spec != before || value == "read", "{key}={value} changed nothing");
        }
        assert_eq!(
            spec,
            RunSpec {
                message: ByteCount(1024),
                flows: 4,
                sndbuf: Some(ByteCount(64 << 10)),
                rcvbuf: Some(ByteCount(32 << 10)),
                nodelay: true,
                cc: Some("reno".to_owned()),
                payload: Payload::Repeat,
                direction: Direction::Receive,
                pin: Pin { client: Some("0".parse().unwrap()), server: Some("1".parse().unwrap()) },
                send_with: SendWith::Zerocopy,
                send_offset: ByteCount(3),
                recv_offset: ByteCount(17),
                rate: Some(BitRate(2_500_000_000)),
                mss: Some(1000),
                tos: Some(184),
                ..RunSpec::default()
            }
        );
        for (key, value) in [
            ("sndbuf", "auto"),
            ("rcvbuf", "auto"),
            ("nodelay", "off"),
            ("cc", "default"),
            ("pin", "free"),
            ("rate", "max"),
            ("mss", "auto"),
            ("tos", "default"),
            ("recv-offset", "0"),
            ("recv-with", "discard"),
        ] {
            assign(&mut spec, key, value).unwrap();
        }
        assert_eq!((spec.sndbuf, spec.rcvbuf, spec.cc, spec.pin), (None, None, None, Pin::default()));
        assert_eq!((spec.rate, spec.mss, spec.tos, spec.recv_with), (None, None, None, RecvWith::Discard));
    }

    #[test]
    fn a_value_that_cannot_be_run_with_any_others_is_refused() {
        for (key, value, needle) in [
            ("mesage", "1K", "the options are message, request, response, in-flight, flows, threads, sndbuf"),
            ("time", "10s", "--time"),
            ("message", "0", "a message of 0 bytes"),
            ("message", "big", "not a size"),
            ("flows", "0", "0 flows"),
            ("flows", "-1", "whole number"),
            ("nodelay", "yes", "on or off"),
            ("payload", "zeros", "stamped"),
            ("direction", "up", "send, receive or both"),
            ("cc", "a b", "no congestion control"),
            ("send-with", "mmap", "write, sendfile, splice, zerocopy"),
            ("recv-with", "mmap", "read, discard, zerocopy"),
            ("request", "0", "a request of 0 bytes"),
            ("in-flight", "0", "1 to 4096"),
            ("threads", "0", "1 to 1024"),
            ("batch", "0", "1 to 1024"),
            ("timeout", "11s", "1ms to 10s"),
            ("busy-poll", "0.5us", "whole microseconds"),
            ("close", "rst", "fin or reset"),
            ("dscp", "64", "0 to 63"),
            ("dscp", "AF44", "AF41"),
            ("mark", "x", "0x7"),
            ("bind-device", "a/b", "device"),
            ("placement", "near", "free or pair"),
            ("send-offset", "4096", "0 to 4095"),
            ("recv-offset", "-1", "not a size"),
            ("rate", "fast", "10M"),
            ("rate", "0", "leave --rate out"),
            ("mss", "99999999999", "88 to 32767"),
            ("tos", "256", "0 to 252"),
            ("tos", "+8", "0 to 252"),
            ("tos", "0x", "0 to 252"),
            ("tos", "0xff", "ECN"),
            ("pin", "0,1,2", "CLIENT[,SERVER]"),
            ("pin", "", "CLIENT[,SERVER]"),
            ("pin", "x", "CLIENT[,SERVER]"),
        ] {
            let error = try_alone(key, value).unwrap_err().to_string();
            assert!(error.contains(needle) && error.contains(key), "{key}={value}: {error}");
        }
    }

    #[test]
    fn a_value_that_others_can_make_right_is_taken() {
        for (key, value) in [
            ("rate", "1K"),
            ("rate", "100/s"),
            ("send-offset", "1"),
            ("recv-with", "discard"),
            ("segment", "on"),
            ("request", "1M"),
            ("placement", "pair"),
            ("dscp", "ef"),
            ("mark", "0xff"),
        ] {
            try_alone(key, value).unwrap();
        }
    }

    #[test]
    fn an_option_of_another_workload_is_refused_by_name() {
        for (workload, key, value, needle) in [
            (Workload::Rr, "message", "1K", "an option of a stream"),
            (Workload::Stream, "request", "1", "an option of rr and crr"),
            (Workload::Rr, "rate", "1.5", "100/s"),
            (Workload::Stream, "rate", "100/s", "10M"),
        ] {
            let mut spec = RunSpec { workload, ..RunSpec::default() };
            let error = assign(&mut spec, key, value).unwrap_err().to_string();
            assert!(error.contains(needle), "{key}={value}: {error}");
        }
    }

    #[test]
    fn a_code_point_is_a_number_or_a_class() {
        for (text, point) in
            [("0", 0), ("63", 63), ("EF", 46), ("cs6", 48), ("AF41", 34), ("af13", 14), ("LE", 1)]
        {
            assert_eq!(dscp(text), Ok(point), "{text}");
        }
        for text in ["", "64", "-1", "+1", "AF", "AF50", "CS8", "CS", "é"] {
            assert!(dscp(text).unwrap_err().contains("0 to 63"), "{text}");
        }
    }

    #[test]
    fn a_placement_names_cpus_of_either_end() {
        for (text, client, server) in [
            ("0", Some("0"), None),
            ("0,1", Some("0"), Some("1")),
            ("free,1", None, Some("1")),
            ("0+2,4-7", Some("0,2"), Some("4-7")),
        ] {
            let list = |text: Option<&str>| text.map(|text| text.parse::<CpuList>().unwrap());
            assert_eq!(pin(text).unwrap(), Pin { client: list(client), server: list(server) }, "{text}");
        }
    }
}
