//! The options of a stream by name, as an arm (`opt.message=1K`) or a sweep sets them.
//!
//! One table serves arms, sweeps and the command line, so that `--pin 0,1` and `opt.pin=0,1` cannot come to mean
//! different things. What decides how long a run takes (`time`, `warmup`, `interval`) is not here on purpose: arms that
//! differ in it cannot be compared.

use haul_host::thread::CpuList;
use haul_stats::ByteCount;
use haul_workload::{Direction, Payload, Pin, StreamSpec};

use crate::error::LabError;

/// How one option takes its value; the error says what would have been right.
type Set = fn(&mut StreamSpec, &str) -> Result<(), String>;

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
    ("pin", "CLIENT[,SERVER], each a CPU list as 0, 0-3 or 0+2, or free", |spec, value| {
        pin(value).map(|pin| spec.pin = pin)
    }),
];

/// The names and what each takes, for help texts.
pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    OPTIONS.iter().map(|&(name, takes, _)| (name, takes))
}

/// Sets one option of `spec` by its name and checks that the result can be run.
///
/// # Errors
/// [`LabError::Option`] lists the names where `key` is none of them, and says what the option takes where `value` is not
/// that.
pub fn set(spec: &mut StreamSpec, key: &str, value: &str) -> Result<(), LabError> {
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
    let mut changed = spec.clone();
    set(&mut changed, value).map_err(bad)?;
    changed.check().map_err(|error| bad(error.to_string()))?;
    *spec = changed;
    Ok(())
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
    value.parse().map_err(|error: haul_stats::units::UnitError| error.to_string())
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
    use super::*;

    #[test]
    fn every_option_is_set_by_its_name() {
        let mut spec = StreamSpec::default();
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
        ] {
            let before = spec.clone();
            set(&mut spec, key, value).unwrap();
            assert_ne!(spec, before, "{key}={value} changed nothing");
        }
        assert_eq!(
            spec,
            StreamSpec {
                message: ByteCount(1024),
                flows: 4,
                sndbuf: Some(ByteCount(64 << 10)),
                rcvbuf: Some(ByteCount(32 << 10)),
                nodelay: true,
                cc: Some("reno".to_owned()),
                payload: Payload::Repeat,
                direction: Direction::Receive,
                pin: Pin { client: Some("0".parse().unwrap()), server: Some("1".parse().unwrap()) },
                ..StreamSpec::default()
            }
        );
        for (key, value) in
            [("sndbuf", "auto"), ("rcvbuf", "auto"), ("nodelay", "off"), ("cc", "default"), ("pin", "free")]
        {
            set(&mut spec, key, value).unwrap();
        }
        assert_eq!((spec.sndbuf, spec.rcvbuf, spec.cc, spec.pin), (None, None, None, Pin::default()));
    }

    #[test]
    fn a_value_that_cannot_be_run_is_refused_and_leaves_the_specification_alone() {
        for (key, value, needle) in [
            (
                "mesage",
                "1K",
                "the options are message, flows, sndbuf, rcvbuf, nodelay, cc, payload, direction, pin",
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
            ("pin", "0,1,2", "CLIENT[,SERVER]"),
            ("pin", "", "CLIENT[,SERVER]"),
            ("pin", "x", "CLIENT[,SERVER]"),
        ] {
            let mut spec = StreamSpec::default();
            let error = set(&mut spec, key, value).unwrap_err().to_string();
            assert!(error.contains(needle) && error.contains(key), "{key}={value}: {error}");
            assert_eq!(spec, StreamSpec::default(), "{key}={value}");
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
