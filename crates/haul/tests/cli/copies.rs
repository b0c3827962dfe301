//! `haul copy` as a program: one document whatever is asked for, bad input by name, a table that reads back.

use std::time::Duration;

use serde_json::Value as Json;

use crate::process::{Home, Running};

fn copy(arguments: &[&str]) -> (i32, Json, String) {
    let home = Home::without_key();
    let mut all = vec!["copy", "--format", "json", "--quiet", "--quick", "--rounds", "6"];
    all.extend(arguments);
    let output = home.haul(&all).output().expect("haul runs");
    let document = serde_json::from_slice(&output.stdout).expect("one document, whatever happens");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().expect("an exit code"), document, said)
}

/// The figures of one metric, in the order of the document.
fn figures<'a>(document: &'a Json, metric: &str) -> Vec<&'a Json> {
    let cells = document["cells"].as_array().expect("figures");
    cells.iter().filter(|figure| figure["metric"] == metric).collect()
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
    let shares = figures(&document, "ceiling_share");
    assert_eq!(shares.len(), 8, "{shares:?}");
    for share in shares {
        assert!(
            share["median"].as_f64().is_some_and(|share| share > 0.0 && share <= 100.0 + 1e-9),
            "{share}"
        );
    }
    let rates = figures(&document, "copy_rate");
    assert_eq!(
        rates.iter().map(|rate| rate["cell"]["routine"].clone()).collect::<Vec<_>>(),
        ["best", "best", "libc", "libc", "best", "best", "libc", "libc"].map(Json::from),
    );
    for rate in rates {
        let number = |of: &Json| of.as_f64().expect("a number");
        let [low, high] = [0, 1].map(|end| number(&rate["interval"][end]));
        assert!(number(&rate["min"]) <= low && low <= number(&rate["median"]), "{rate}");
        assert!(number(&rate["median"]) <= high && high <= number(&rate["max"]), "{rate}");
        assert_eq!((&rate["n"], &rate["unit"], &rate["reason"]), (&6.into(), &"B/s".into(), &Json::Null));
        let base = rate["cell"]["routine"] == "best";
        assert_eq!((rate["change_pct"].is_null(), rate["apart"].is_null()), (base, base), "{rate}");
    }
    let effective = &document["options"]["effective"];
    assert!(effective["routines"][0]["symbol"].is_string(), "{effective}");
    assert!(effective["cpu_model"]["flags"].is_string(), "{effective}");
    assert!(
        effective["limits"][0]["read_bytes_per_second"].as_f64().is_some_and(|rate| rate > 1e8),
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
        (&["--overlap", "64", "--size", "4K", "--routine", "libc"], "--overlap -64"),
        (&["--overlap", "4K", "--size", "4K"], "--overlap 4096"),
        (&["--overlap", "-9999999999999999999999"], "--overlap -999"),
        (&["--overlap", "-64T", "--size", "4K"], "--overlap -"),
        (&["--overlap", "near"], "--overlap near"),
        (&["--routine", "memmove"], "give --overlap"),
        (&["--cache", "hot,hot"], "'hot' is in it twice"),
        (&["--pages", "4k,2m,4k"], "'4k' is in it twice"),
        (&["--thresholds", "--routine", "libc"], "names routines of haul-copy"),
        (&["--thresholds", "--routine", "bytes,words,libc"], "--rounds 6 decides none"),
        (&["--selection", "/nonexistent", "--routine", "auto"], "/nonexistent"),
        (&["--selection", "/dev/null"], "--routine auto"),
        (&["--routine", "auto"], "--selection FILE"),
        (&["--selection", "/dev/null", "--routine", "auto"], "not a regular file"),
        (&["--selection", "/proc/self/status", "--routine", "auto"], "haul-copy selection 1"),
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
    assert!(
        !failed.is_empty() && failed.iter().all(|run| run["cell"]["size_bytes"] == 1 << 30),
        "{failed:?}"
    );
    let measured = !complete(&document).is_empty();
    assert_eq!(exit == 0, measured, "where no cell gave a number, it failed");
    let without: Vec<&Json> =
        figures(&document, "copy_rate").into_iter().filter(|figure| figure["median"].is_null()).collect();
    assert!(without.iter().any(|figure| figure["reason"].as_str().is_some_and(|why| why.contains("'l2'"))));
    if measured {
        // The record says which, and the text at its head and at its end.
        let warnings = document["warnings"].as_array().expect("warnings");
        let named = warnings.iter().find(|warning| warning["id"] == "unmeasured").expect("a warning");
        assert!(
            named["text"]
                .as_str()
                .is_some_and(|text| text.contains("1 of 2 cells") && text.contains("size 1G"))
        );
        let home = Home::without_key();
        let arguments =
            "copy --quick --quiet --routine bytes --size 64,1G --cache l2 --src-offset 0 --dst-offset 0";
        let output = home.haul(&arguments.split(' ').collect::<Vec<_>>()).output().expect("haul runs");
        let text = String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            text.contains("1 of 2 cells without a number") && text.contains("unmeasured: 1 of 2 cells"),
            "{text}"
        );
    }
}

#[test]
fn the_table_of_thresholds_is_one_that_haul_copy_loads() {
    let home = Home::without_key();
    let arguments =
        ["copy", "--thresholds", "--quick", "--quiet", "--routine", "words,bytes,libc", "--size", "64,4K"];
    let output = home.haul(&arguments).output().expect("haul runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("of 10 places") && said.contains("corrected for 20 comparisons"), "{said}");
    let text = String::from_utf8(output.stdout).expect("text");
    let table = haul_copy::Selection::parse(&text).unwrap_or_else(|error| panic!("{error}:\n{text}"));
    assert_eq!(table.thresholds(haul_copy::selection::Alignment::Apart)[0].from, 0);
    assert!(text.contains("# no routine of haul-copy is better than libc at"), "{text}");
    let file = home.path().join("table");
    std::fs::write(&file, &text).expect("written");
    let path = file.to_str().expect("a path");
    let (exit, document, said) = copy(&["--routine", "auto,best", "--selection", path, "--size", "100"]);
    assert_eq!(exit, 0, "{said}");
    let routines = &document["options"]["effective"]["routines"];
    assert_eq!((&routines[0]["asked"], &routines[0]["name"]), (&"auto".into(), &"selection".into()));
    assert!(
        complete(&document)
            .iter()
            .all(|run| ["auto", "best"].iter().any(|name| run["cell"]["routine"] == *name))
    );
    let elsewhere = text.replacen("cpu ", "cpu x", 1);
    std::fs::write(&file, elsewhere).expect("written");
    let (exit, document, _) = copy(&["--routine", "auto", "--selection", path]);
    assert_eq!(
        (exit, document["failure"]["text"].as_str().is_some_and(|text| text.contains("was made on the CPU"))),
        (2, true)
    );
}

#[test]
fn where_there_is_no_selection_standard_output_is_empty_and_the_exit_code_says_so() {
    let home = Home::without_key();
    let running = Running::start(home.haul(&["copy", "--thresholds", "--quiet", "--thorough"]));
    std::thread::sleep(Duration::from_millis(1500));
    running.signal("INT");
    let ended = running.end_within(Duration::from_secs(20));
    assert!(ended.is_calm() && ended.code == Some(1) && ended.out.is_empty(), "{ended:?}");
    assert!(ended.err.contains("no selection") && ended.err.contains("stopped by its user"), "{ended:?}");
    let refused = home.haul(&["copy", "--thresholds", "--routine", "libc"]).output().expect("haul runs");
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(2), 0));
}

#[test]
fn a_selection_that_is_a_pipe_is_not_waited_for() {
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
    let pipe = directory.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    let arguments = ["copy", "--routine", "auto", "--selection", pipe.to_str().expect("UTF-8")];
    let ended = Running::start(Home::new().haul(&arguments)).end_within(Duration::from_secs(10));
    assert!(
        ended.is_calm() && ended.code == Some(2) && ended.err.contains("not a regular file"),
        "{ended:?}"
    );
}

#[test]
fn the_whole_surface_of_offsets_is_measured_at_one_size_with_the_cpu_and_the_routine() {
    let home = Home::without_key();
    let arguments = "copy --format json --quiet --quick --rounds 1 --routine best --size 512 --src-offset 0..63 --dst-offset 0..63";
    let output = home.haul(&arguments.split(' ').collect::<Vec<_>>()).output().expect("haul runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Json = serde_json::from_slice(&output.stdout).expect("a document");
    let rates = figures(&document, "copy_rate");
    assert_eq!(rates.len(), 64 * 64);
    let places: std::collections::BTreeSet<(u64, u64)> = rates
        .iter()
        .filter(|rate| rate["median"].as_f64().is_some_and(|rate| rate > 0.0))
        .filter_map(|rate| {
            Some((rate["cell"]["src_offset_bytes"].as_u64()?, rate["cell"]["dst_offset_bytes"].as_u64()?))
        })
        .collect();
    // Beside other programs a sample may be void as often as it is taken: such a place has the reason in its figure.
    assert!(places.len() > 64 * 60, "{} pairs of offsets have a rate", places.len());
    assert!(rates.iter().all(|rate| rate["reason"].is_string()));
    assert!(
        rates[0]["reason"].as_str().is_some_and(|why| why.starts_with("1 sample: too few for an interval"))
    );
    let effective = &document["options"]["effective"];
    assert!(
        effective["cpu_model"]["flags"].as_str().is_some_and(|flags| !flags.is_empty()),
        "{}",
        effective["cpu_model"]
    );
    assert_eq!(effective["routines"][0]["asked"], "best");
    assert!(effective["routines"][0]["code_hash"].is_string());
}

#[test]
fn the_text_has_the_order_the_sizes_and_the_names_of_the_command_line_and_says_what_was_not_swept() {
    let home = Home::without_key();
    let text = |arguments: &str| {
        let all: Vec<&str> =
            "copy --quick --quiet --rounds 6".split(' ').chain(arguments.split(' ')).collect();
        let output = home.haul(&all).output().expect("haul runs");
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let all = text(
        "--src-offset 0 --dst-offset 0 --routine libc,best --size 64K,4K --cache hot,flushed --pages 4k",
    );
    let (_, map) = all.split_once("\n\n").expect("a head");
    let words = map.split_whitespace().collect::<Vec<_>>().join(" ");
    let place = |needle: &str| map.find(needle).unwrap_or_else(|| panic!("{needle}: {map}"));
    assert!(place("cache hot") < place("cache flushed"), "{map}");
    assert!(place("64K") < place("4K ") && words.contains("libc best"), "{map}");
    let beside = ["% of the copy ceiling of L1", "beyond the copy ceiling of L1 as it was measured"];
    assert!(words.contains("pages 4k") && beside.iter().any(|said| words.contains(said)), "{map}");
    assert!(words.contains(&format!("best is {}", haul_copy::Routine::best().name())), "{map}");
    assert!(words.contains("compared with libc"), "{map}");
    let long = text("--src-offset 0 --dst-offset 0 --routine libc,best --size 64K,4K --long");
    assert!(
        long.contains("interval") && long.lines().filter(|line| line.contains("..")).count() >= 4,
        "{long}"
    );
    let overlap = text("--routine memmove --size 4K --overlap 1K");
    assert!(overlap.contains("overlap 1K") && overlap.contains("memmove"), "{overlap}");
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
