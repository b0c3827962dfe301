//! The text of a setting, of an item in a journal, and of a list of settings: what reads reads back as the same, and nothing panics.
#![no_main]

use haul_host::settings::{Item, Setting, split_list};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(setting) = text.parse::<Setting>() {
        let printed = setting.to_string();
        assert_eq!(printed.parse::<Setting>().ok(), Some(setting), "{printed}");
        // What one setting prints is one part of a list, but for the commas of its value.
        assert!(!split_list(&printed).is_empty());
    }
    if let Ok(item) = text.parse::<Item>() {
        let printed = item.to_string();
        assert_eq!(printed.parse::<Item>().ok(), Some(item), "{printed}");
    }
    let parts = split_list(text);
    assert_eq!(parts.join(","), text);
});
