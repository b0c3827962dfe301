//! No crate depends upward or sideways: every edge inside the workspace goes to a strictly lower level.

use std::collections::BTreeMap;
use std::process::Command;

/// The levels of `docs/architecture.md`. A crate that is not listed fails the test, so a new one is placed by thought.
const LEVELS: &[(&str, u32)] = &[
    ("haul-copy", 0),
    ("haul-stats", 0),
    ("haul-wire", 0),
    ("haul-host", 1),
    ("haul-results", 1),
    ("haul-workload", 2),
    ("haul-lab", 3),
    ("haul", 4),
    ("haul-bench", 5),
];

#[test]
fn every_edge_points_to_a_strictly_lower_level() {
    let levels: BTreeMap<&str, u32> = LEVELS.iter().copied().collect();
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .expect("cargo metadata");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    assert_eq!(packages.len(), LEVELS.len(), "the workspace and the list of levels differ");
    for package in packages {
        let name = package["name"].as_str().expect("name");
        let level = levels.get(name).unwrap_or_else(|| panic!("{name} has no level"));
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let on = dependency["name"].as_str().expect("name");
            if on == name && dependency["kind"] == "dev" {
                // A crate whose tests want a feature of its own.
                continue;
            }
            if let Some(lower) = levels.get(on) {
                assert!(lower < level, "{name} (level {level}) depends on {on} (level {lower})");
                println!("{name} ({level}) -> {on} ({lower})");
            }
        }
    }
}
