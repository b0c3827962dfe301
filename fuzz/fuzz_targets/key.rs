//! Keys as people type them: what reads is written and reads the same again.
#![no_main]

use haul_wire::Key;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(key) = text.parse::<Key>() {
        let revealed = key.reveal();
        assert_eq!(revealed.parse::<Key>().expect("what was written reads").reveal(), revealed);
    }
});
