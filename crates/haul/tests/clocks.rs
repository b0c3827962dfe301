//! Lengths of time are monotonic: a stepped wall clock can change no number.

use std::fs;
use std::path::{Path, PathBuf};

/// Who may read the wall clock, and what for.
const MAY: &[(&str, &str)] = &[
    ("crates/lab/src/record.rs", "the start stamp of a record"),
    ("crates/haul/src/serve.rs", "the time in front of a line of the server's log"),
    ("crates/haul/src/served.rs", "when a run ended, in the server's output"),
];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn nobody_but_a_start_stamp_and_a_log_reads_the_wall_clock() {
    let root =
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).canonicalize().expect("the workspace");
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join("crates")).expect("the crates") {
        sources(&entry.expect("a crate").path().join("src"), &mut files);
    }
    assert!(files.len() > 50, "the sources were not found");
    for file in files {
        let text = fs::read_to_string(&file).expect("a source file");
        let name = file.strip_prefix(&root).expect("below the root").to_string_lossy().into_owned();
        let reads =
            ["SystemTime", "CLOCK_REALTIME", "clock_gettime(0"].iter().any(|clock| text.contains(clock));
        assert!(!reads || MAY.iter().any(|(may, _)| *may == name), "{name} reads the wall clock");
    }
}
