//! Any text as a table of thresholds: refused or read, never a panic; what was read prints and reads back, and chooses.
#![no_main]

use haul_copy::Selection;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    // As it is, and as the lines behind a good head: few inputs get that far by themselves.
    for text in [text.to_string(), format!("haul-copy selection 1\ncpu x 1 2 3\n{text}")] {
        let Ok(table) = Selection::parse(&text) else { continue };
        assert_eq!(Selection::parse(&table.to_string()), Ok(table));
        let (mut dst, src) = ([0; 100], [7; 100]);
        table.copy_slice(&mut dst, &src);
        assert_eq!(dst, src);
    }
});
