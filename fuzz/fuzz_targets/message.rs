//! Messages: what reads is written and reads the same again.
#![no_main]

use haul_wire::Message;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(message) = Message::from_json(text) {
        let again = message.to_json().expect("what was read can be written");
        assert_eq!(Message::from_json(&again), Ok(message));
    }
});
