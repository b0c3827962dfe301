//! What haul's own send loop could reach if the path cost nothing.
//!
//! The same [`Sending`] step loop, on one thread, into a sink that takes every message at once without looking at it.
//! A result above four fifths of this says more about the tool than about the path, and is doubted. Measured once per
//! message size, offset and payload, for a few milliseconds, before anything else runs.

use std::collections::HashMap;
use std::fs::File;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use haul_host::clock;
use haul_stats::ByteCount;

use crate::error::{Result, WorkloadError};
use crate::spec::Payload;
use crate::stream::{Quota, Sending};

/// Long enough for ten thousand calls of the slowest kind, short against the 50 ms a run may take to set up.
const LENGTH: Duration = Duration::from_millis(5);

/// What was measured so far, by message, offset and payload.
type Known = HashMap<(ByteCount, ByteCount, Payload), f64>;

/// Bytes per second of the send loop with this message and payload.
pub(crate) fn of(message: ByteCount, offset: ByteCount, payload: Payload) -> Result<f64> {
    static KNOWN: OnceLock<Mutex<Known>> = OnceLock::new();
    let known = KNOWN.get_or_init(Mutex::default);
    if let Some(&rate) = known.lock().unwrap_or_else(PoisonError::into_inner).get(&(message, offset, payload))
    {
        return Ok(rate);
    }
    let rate = measure(message, offset, payload)?;
    known.lock().unwrap_or_else(PoisonError::into_inner).insert((message, offset, payload), rate);
    Ok(rate)
}

fn measure(message: ByteCount, offset: ByteCount, payload: Payload) -> Result<f64> {
    let fault = |error| WorkloadError::os("measure", "the send loop's own ceiling", error);
    let mut sink = File::options().write(true).open("/dev/null").map_err(fault)?;
    let mut sending = Sending::new(message, offset, payload, 0, Quota::NONE)?;
    let mut bytes = 0;
    let start = clock::now();
    let until = start.after(LENGTH);
    loop {
        for _ in 0..16 {
            bytes += sending.spend(&mut sink).map_err(fault)?;
        }
        let now = clock::now();
        if now >= until {
            return Ok(bytes as f64 / now.since(start).as_secs_f64());
        }
    }
}
