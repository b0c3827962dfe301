//! `haul copy` as a program: one document whatever is asked for, bad input by name, a table that reads back.

use serde_json::Value as Json;

use crate::process::Home;

fn copy(arguments: &[&str]) -> (i32, Json, String) {
    let home = Home::without_key();
    let mut all = vec!["copy", "--format", "json", "--quiet", "--quick", "--rounds", "6"];
    all.extend(arguments);
    let output = home.haul(&all).output().expect("haul runs");
    let document = serde_json::from_slice(&output.stdout).expect("one document, whatever happens");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().expect("an exit code"), document, said)
}

fn complete(document: &Json) -> Vec<&Json> {
    let runs = document["runs"].as_array().expect("runs");
    runs.iter().filter(|run| run["status"] == "complete").collect()
}

#[test]
fn a_survey_of_copies_has_a_sample_of_every_cell_in_every_round_and_says_what_ran() {
    let (exit, document, said) =
        copy(&["--routine", "best,libc", "--size", "64,4K", "--src-offset", "0", "--dst-offset", "0,1"]);
    assert_eq!(exit, 0, "{said}");
    assert_eq!((&document["kind"], &document["status"]), (&"copy".into(), &"complete".into()));
    let runs = complete(&document);
    assert_eq!(runs.len(), 2 * 2 * 2 * 6, "{said}");
    for run in runs {
        let has = |metric: &str| {
            run["readings"].as_array().is_some_and(|all| all.iter().any(|one| one["metric"] == metric))
        };
        for metric in ["copy_rate", "copy_time", "copy_distance", "ceiling_share"] {
            assert!(has(metric), "{metric}: {run}");
        }
    }
    let effective = &document["options"]["effective"];
    assert!(effective["routines"][0]["symbol"].is_string(), "{effective}");
    assert!(effective["cpu_model"]["flags"].is_string(), "{effective}");
    assert!(
        effective["ceilings"][0]["read_bytes_per_second"].as_f64().is_some_and(|rate| rate > 1e8),
        "{effective}"
    );
    assert!(effective["pages"]["any"].is_string(), "{effective}");
}

#[test]
fn what_is_asked_for_wrongly_is_a_usage_error_that_names_the_option() {
    for (arguments, says) in [
        (&["--src-offset", "64"][..], "--src-offset 64"),
        (&["--distance", "4096"], "--distance 4096"),
        (&["--threads", "9999"], "--threads 9999"),
        (&["--size", "0"], "--size 0"),
        (&["--size", "8..4"], "runs backwards"),
        (&["--routine", "nosuch"], "there is no routine 'nosuch'"),
        (&["--cache", "l9"], "--cache 'l9'"),
        (&["--pages", "3k"], "4k, 2m or 1g"),
        (&["--overlap", "64", "--size", "4K"], "--overlap -64"),
        (&["--selection", "/nonexistent", "--routine", "auto"], "/nonexistent"),
        (&["--selection", "/dev/null"], "--routine auto"),
        (&["--selection", "/dev/null", "--routine", "auto"], "haul-copy selection 1"),
        (&["--pin", "8191"], "--pin 8191"),
        (&["--checksum", "--routine", "best"], "give all, or of"),
        (&["--limits", "--size", "4K"], "--size"),
        (&["--distance", "0", "--dst-offset", "1"], "--dst-offset"),
    ] {
        let (exit, document, said) = copy(arguments);
        assert_eq!(exit, 2, "{arguments:?}: {said}");
        assert_eq!(
            (&document["kind"], &document["status"]),
            (&"copy".into(), &"failed".into()),
            "{arguments:?}"
        );
        let text = document["failure"]["text"].as_str().expect("a reason");
        assert!(text.contains(says), "{arguments:?}: {text}");
    }
}

#[test]
fn a_cell_that_cannot_be_had_is_a_failed_run_with_its_reason_and_the_others_go_on() {
    let (exit, document, _) = copy(&[
        "--routine",
        "bytes",
        "--size",
        "64,1G",
        "--cache",
        "l2",
        "--src-offset",
        "0",
        "--dst-offset",
        "0",
    ]);
    let runs = document["runs"].as_array().expect("runs");
    let failed: Vec<&Json> = runs.iter().filter(|run| run["status"] == "failed").collect();
    assert!(!failed.is_empty() && failed.iter().all(|run| run["cell"]["size"] == 1 << 30), "{failed:?}");
    assert_eq!(exit == 0, !complete(&document).is_empty(), "where no cell gave a number, it failed");
}

#[test]
fn the_table_of_thresholds_is_one_that_haul_copy_loads() {
    let home = Home::without_key();
    let arguments =
        ["copy", "--thresholds", "--quick", "--quiet", "--routine", "words,words-shift", "--size", "64,4K"];
    let output = home.haul(&arguments).output().expect("haul runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let table = haul_copy::Selection::parse(&text).unwrap_or_else(|error| panic!("{error}:\n{text}"));
    assert_eq!(table.thresholds(haul_copy::selection::Alignment::Apart)[0].from, 0);
    let file = home.path().join("table");
    std::fs::write(&file, &text).expect("written");
    let path = file.to_str().expect("a path");
    let (exit, document, said) = copy(&["--routine", "auto,best", "--selection", path, "--size", "100"]);
    assert_eq!(exit, 0, "{said}");
    assert_eq!(document["options"]["effective"]["routines"][0]["name"], "selection");
    let elsewhere = text.replacen("cpu ", "cpu x", 1);
    std::fs::write(&file, elsewhere).expect("written");
    let (exit, document, _) = copy(&["--routine", "auto", "--selection", path]);
    assert_eq!(
        (exit, document["failure"]["text"].as_str().is_some_and(|text| text.contains("was made on the CPU"))),
        (2, true)
    );
}

#[test]
fn pages_are_of_the_kind_asked_for_or_there_is_no_number() {
    for kind in ["4k", "2m", "1g"] {
        let (exit, document, _) = copy(&["--routine", "best", "--size", "64K", "--pages", kind]);
        let got = document["options"]["effective"]["pages"][kind].as_str().unwrap_or_default().to_owned();
        match exit {
            0 => assert!(got.starts_with(kind), "{kind}: {got}"),
            _ => assert!(
                document["failure"]["text"].as_str().is_some_and(|text| text.contains("nr_hugepages")),
                "{kind}"
            ),
        }
    }
}
