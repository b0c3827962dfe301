//! What haul's own send loop could reach if the path cost nothing.
//!
//! The same step loop, on one thread, into a sink that takes every message at once without looking at it. A result above
//! four fifths of this says more about the tool than about the path, and is doubted. Measured once per kind of loop, for a
//! few milliseconds, before anything else runs.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use haul_host::clock;
use haul_stats::ByteCount;

use crate::error::{Result, WorkloadError};
use crate::spec::Payload;

/// Long enough for ten thousand calls of the slowest kind, short against the 50 ms a run may take to set up.
const LENGTH: Duration = Duration::from_millis(5);

/// What distinguishes one send loop from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Loop {
    /// A stream's messages: their size, offset and payload.
    Stream(ByteCount, ByteCount, Payload),
    /// Datagrams of a size, one a call.
    Datagrams(ByteCount),
}

/// Bytes per second of a send loop; `make` makes its step, which writes a message and says how long it was.
pub(crate) fn of<S>(which: Loop, make: impl FnOnce() -> Result<S>) -> Result<f64>
where
    S: FnMut(&mut File) -> io::Result<u64>,
{
    static KNOWN: OnceLock<Mutex<HashMap<Loop, f64>>> = OnceLock::new();
    let known = KNOWN.get_or_init(Mutex::default);
    if let Some(&rate) = known.lock().unwrap_or_else(PoisonError::into_inner).get(&which) {
        return Ok(rate);
    }
    let rate = measure(make()?)?;
    known.lock().unwrap_or_else(PoisonError::into_inner).insert(which, rate);
    Ok(rate)
}

fn measure(mut step: impl FnMut(&mut File) -> io::Result<u64>) -> Result<f64> {
    let fault = |error| WorkloadError::os("measure", "the send loop's own ceiling", error);
    let mut sink = File::options().write(true).open("/dev/null").map_err(fault)?;
    let mut bytes = 0;
    let start = clock::now();
    let until = start.after(LENGTH);
    loop {
        for _ in 0..16 {
            bytes += step(&mut sink).map_err(fault)?;
        }
        let now = clock::now();
        if now >= until {
            return Ok(bytes as f64 / now.since(start).as_secs_f64());
        }
    }
}
