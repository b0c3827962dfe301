//! The first bytes of a connection: a hello that decodes is written back the same, and a stranger always has a name.
#![no_main]

use haul_wire::hello::{Hello, OURS};
use haul_wire::{Foreign, HELLO_LEN, Side};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for end in [Side::Client, Side::Server] {
        let settled = Foreign::settle(end, bytes);
        assert!(!settled.to_string().is_empty());
    }
    if let Some(hello) = bytes.first_chunk::<HELLO_LEN>()
        && let Ok(hello) = Hello::decode(hello)
    {
        assert_eq!(Hello::decode(&hello.encode(OURS)), Ok(hello));
    }
});
