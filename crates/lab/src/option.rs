//! The options of a stream by name, as an arm (`opt.message=1K`) or a sweep sets them.
//!
//! One table serves arms, sweeps and the command line, so that `--pin 0,1` and `opt.pin=0,1` cannot come to mean
//! different things. What decides how long a run takes (`time`, `warmup`, `interval`) is not here on purpose: arms that
//! differ in it cannot be compared.

use haul_host::thread::CpuList;
use haul_stats::ByteCount;
use haul_stats::units::UnitError;
use haul_workload::mode::NoSuchMode;
use haul_workload::{Direction, Payload, Pin, RunSpec};

use crate::error::LabError;

/// How one option takes its value; the error says what would have been right.
type Set = fn(&mut RunSpec, &str) -> Result<(), String>;

/// Every option an arm can set: its name, what it takes, and how.
const OPTIONS: &[(&str, &str, Set)] = &[
    ("message", "a size, as 128K", |spec, value| size(value).map(|size| spec.message = size)),
    ("flows", "a count, as 4", |spec, value| {
        let flows = value.parse().map_err(|_| "give a whole number of flows, as 4".to_owned())?;
        spec.flows = flows;
        Ok(())
    }),
    ("sndbuf", "a size, or auto for the kernel's autotuning", |spec, value| {
        automatic(value).map(|size| spec.sndbuf = size)
    }),
    ("rcvbuf", "a size, or auto for the kernel's autotuning", |spec, value| {
        automatic(value).map(|size| spec.rcvbuf = size)
    }),
    ("nodelay", "on or off", |spec, value| switch(value).map(|on| spec.nodelay = on)),
    ("cc", "a congestion control's name, or default for the host's", |spec, value| {
        spec.cc = (value != "default").then(|| value.to_owned());
        Ok(())
    }),
    ("payload", "stamped, fresh or repeat", |spec, value| {
        spec.payload = match value {
            "stamped" => Payload::Stamped,
            "fresh" => Payload::Fresh,
            "repeat" => Payload::Repeat,
            _ => return Err("give stamped, fresh or repeat".to_owned()),
        };
        Ok(())
    }),
    ("direction", "send or receive", |spec, value| {
        spec.direction = match value {
            "send" => Direction::Send,
            "receive" => Direction::Receive,
            _ => return Err("give send or receive, as seen from the client".to_owned()),
        };
        Ok(())
    }),
    ("send-with", "write, sendfile, splice or zerocopy", |spec, value| {
        value.parse().map(|with| spec.send_with = with).map_err(|error: NoSuchMode| error.to_string())
    }),
    ("recv-with", "read or discard", |spec, value| {
        value.parse().map(|with| spec.recv_with = with).map_err(|error: NoSuchMode| error.to_string())
    }),
    ("send-offset", "bytes past a page, 0 to 4095", |spec, value| {
        size(value).map(|offset| spec.send_offset = offset)
    }),
    ("recv-offset", "bytes past a page, 0 to 4095", |spec, value| {
        size(value).map(|offset| spec.recv_offset = offset)
    }),
    ("rate", "bits per second, as 10M or 1G, or max for as fast as it goes", |spec, value| {
        spec.rate = match value {
            "max" => None,
            value => Some(value.parse().map_err(|error: UnitError| error.to_string())?),
        };
        Ok(())
    }),
    ("mss", "a segment's size in bytes, or auto for what the path allows", |spec, value| {
        let bytes = automatic(value)?;
        // What does not fit is out of bounds, and refused as such.
        spec.mss = bytes.map(|bytes| u32::try_from(bytes.0).unwrap_or(u32::MAX));
        Ok(())
    }),
    ("tos", "type of service, 0 to 252, or default", |spec, value| {
        spec.tos = if value == "default" { None } else { Some(tos(value)?) };
        Ok(())
    }),
    ("pin", "CLIENT[,SERVER], each a CPU list as 0, 0-3 or 0+2, or free", |spec, value| {
        pin(value).map(|pin| spec.pin = pin)
    }),
];

/// The names and what each takes, for help texts.
pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    OPTIONS.iter().map(|&(name, takes, _)| (name, takes))
}

/// Sets one option of `spec` by its name. Whether the whole can be run is for [`RunSpec::check`] to say, once every
/// option is set: a rate may want a message that is named after it.
///
/// # Errors
/// [`LabError::Option`] lists the names where `key` is none of them, and says what the option takes where `value` is not
/// that.
pub fn assign(spec: &mut RunSpec, key: &str, value: &str) -> Result<(), LabError> {
    let bad = |why: String| LabError::Option { key: key.to_owned(), value: value.to_owned(), why };
    let Some((_, _, set)) = OPTIONS.iter().find(|(name, ..)| *name == key) else {
        let known = names().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
        return Err(bad(match key {
            "time" | "warmup" | "interval" | "bytes" => {
                format!("arms must run equally long to be compared; set it for all of them with --{key}")
            }
            _ => format!("there is no such option; the options are {known}"),
        }));
    };
    set(spec, value).map_err(bad)
}

/// Sets one option of a default specification: says whether the value can be run with any others.
///
/// # Errors
/// As [`assign`], and where no other option could make it right.
pub fn try_alone(key: &str, value: &str) -> Result<(), LabError> {
    let mut spec = RunSpec::default();
    assign(&mut spec, key, value)?;
    match spec.check() {
        Err(error) if !error.depends_on_others() => {
            Err(LabError::Option { key: key.to_owned(), value: value.to_owned(), why: error.to_string() })
        }
        _ => Ok(()),
    }
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
            (
                "mesage",
                "1K",
                "the options are message, flows, sndbuf, rcvbuf, nodelay, cc, payload, direction, send-with, recv-with, \
                 send-offset, recv-offset, rate, mss, tos, pin",
            ),
            ("time", "10s", "--time"),
            ("message", "0", "a message of 0 bytes"),
            ("message", "big", "not a size"),
            ("flows", "0", "0 flows"),
            ("flows", "-1", "whole number"),
            ("nodelay", "yes", "on or off"),
            ("payload", "zeros", "stamped"),
            ("direction", "both", "send or receive"),
            ("cc", "a b", "no congestion control"),
            ("send-with", "mmap", "write, sendfile, splice, zerocopy"),
            ("recv-with", "zerocopy", "read, discard"),
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
        for (key, value) in [("rate", "1K"), ("send-offset", "1"), ("recv-with", "discard")] {
            try_alone(key, value).unwrap();
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
