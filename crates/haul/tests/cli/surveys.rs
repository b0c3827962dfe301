//! `haul read` from the outside: real files, pipes and sockets, one document, and what it refuses.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::Duration;

use haul_results::record::{Document, Kind, Status};
use haul_stats::estimate::{Summary, spearman};
use haul_stats::{Cell, CellValue, Metric, Scope};

use crate::process::{Ended, Home, Running, value};

/// Runs `haul read` with these arguments.
fn read(arguments: &[&str]) -> Ended {
    let home = Home::new();
    Running::start(home.haul(&[&["read"], arguments].concat())).end()
}

/// A survey of few samples, as its document.
fn quick(arguments: &[&str]) -> Document {
    let ended = read(&[arguments, &["--quick", "--format", "json"]].concat());
    let document = ended.complete();
    assert_eq!(document.kind, Kind::Read);
    document
}

#[test]
fn every_offset_of_the_table_of_2002_has_a_row_with_the_published_figures() {
    let ended = read(&["--offset", "0..32", "--quick"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let (_, beside) = ended.out.split_once("beside the cached reads of 2002").expect("the published figures");
    for (offset, figures) in [
        ("0", ["4.373", "4.387", "6.063"]),
        ("16", ["9.727", "9.723", "6.277"]),
        ("32", ["4.442", "4.423", "6.380"]),
    ] {
        let row = beside.lines().find(|line| line.split_whitespace().next() == Some(offset)).expect("a row");
        assert!(figures.iter().all(|figure| row.contains(figure)), "{row}");
    }
    let rows = beside
        .lines()
        .filter(|line| line.split_whitespace().next().is_some_and(|first| first.parse::<u8>().is_ok()));
    assert_eq!(rows.count(), 33, "{beside}");
}

#[test]
fn every_sample_is_a_run_with_its_numbers_and_the_order_follows_from_the_seed() {
    let document = quick(&["--offset", "0,1,64", "--seed", "11", "--pin", "0"]);
    // Beside other programs some samples are void, and taken again.
    let complete = document.runs.iter().filter(|run| run.status == Status::Complete);
    assert!((3..=3 * 9).contains(&complete.clone().count()));
    for run in complete {
        let rate = value(run, Metric::CopyRate, Scope::Run);
        assert!((1e6..1e12).contains(&rate), "{rate} B/s");
        let time = value(run, Metric::ReadTime, Scope::Run);
        assert!((time * rate / 262_144.0 - 1.0).abs() < 1e-6, "a read-through is the working set");
        assert!(value(run, Metric::CopyCpu, Scope::Run) > 0.0);
    }
    let effective = &document.options.effective;
    assert_eq!((&effective["sampling"]["cpu"], &effective["sampling"]["rounds"]), (&0.into(), &9.into()));
    assert_eq!(effective["source"]["own"], true);
    let order = |document: &Document| {
        let mut order: Vec<_> = document.runs.iter().map(|run| (run.block, run.cell.clone())).collect();
        order.dedup();
        order
    };
    assert_eq!(order(&document), order(&quick(&["--offset", "0,1,64", "--seed", "11"])));
}

#[test]
fn a_survey_that_is_repeated_puts_the_cells_that_differ_into_the_same_order() {
    let medians = || -> BTreeMap<Cell, f64> {
        let document = quick(&["--block", "512..64K*2", "--offset", "0,1", "--working-set", "64K,1M"]);
        let mut rates: BTreeMap<Cell, Vec<f64>> = BTreeMap::new();
        for run in document.runs.iter().filter(|run| run.status == Status::Complete) {
            rates.entry(run.cell.clone()).or_default().push(value(run, Metric::CopyRate, Scope::Run));
        }
        rates.into_iter().filter_map(|(cell, rates)| Some((cell, Summary::of(&rates)?.median))).collect()
    };
    let (first, second) = (medians(), medians());
    let mut known: Vec<(f64, f64)> =
        first.iter().filter_map(|(cell, rate)| Some((*rate, *second.get(cell)?))).collect();
    known.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Of cells that are alike the order is chance: each that is kept is 5 % above the one before.
    let mut apart: Vec<(f64, f64)> = Vec::new();
    for pair in known {
        if apart.last().is_none_or(|last| pair.0 > last.0 * 1.05) {
            apart.push(pair);
        }
    }
    let (first, second): (Vec<f64>, Vec<f64>) = apart.into_iter().unzip();
    assert!(first.len() >= 6, "the blocks make a difference: {first:?}");
    let rho = spearman(&first, &second).expect("an order");
    assert!(rho >= 0.8, "{rho}: {first:?} {second:?}");
}

#[test]
fn every_source_and_call_gives_numbers_both_ways() {
    for arguments in [
        &["--with", "read,pread,readv,mmap-copy,io_uring,splice"][..],
        &["--direction", "write", "--with", "read,pread,readv,io_uring,splice"],
        &["--source", "pipe", "--with", "read,splice"],
        &["--source", "unix"],
        &["--source", "tcp", "--with", "read,io_uring"],
        &["--source", "udp", "--block", "1400"],
        &["--source", "udp", "--direction", "write"],
        &["--source", "device", "/dev/zero"],
        &["--source", "device", "/proc/self/status"],
    ] {
        let document = quick(&[&["--offset", "0,1"], arguments].concat());
        assert!(
            document.runs.iter().all(|run| run.status != Status::Failed),
            "{arguments:?}: {:?}",
            document.warnings
        );
    }
}

#[test]
fn what_cannot_be_read_so_is_refused_alike_in_text_and_json() {
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
    let small = directory.path().join("small");
    fs::write(&small, vec![1; 5000]).expect("write");
    let small = small.to_str().expect("UTF-8");
    for (arguments, exit, needle) in [
        (&[small][..], 2, "less than a block of 8K"),
        (&["--block", "0"], 2, "a block of 0"),
        (&["--block", "512K"], 0, ""),
        (&["--block", "512K", "--working-set", "256K"], 2, "raise --working-set"),
        (&["--offset", "2G"], 2, "at most 1G"),
        (&["--offset", "1,1"], 2, "twice"),
        (&["--with", "sendfile"], 2, "mmap-copy"),
        (&["--with", "read,read"], 2, "twice"),
        (&["--source", "file"], 2, "needs a FILE"),
        (&["--source", "tcp", "--file-offset", "1"], 2, "no --file-offset"),
        (&["--direction", "write", small], 2, "leave FILE out"),
        (&["--working-set", "1024T"], 2, "smaller --working-set"),
        (&["--pin", "8191"], 2, "--pin 8191"),
        (&["/nowhere/file"], 1, "cannot open /nowhere/file"),
        (&["--quick", "--thorough"], 2, "--thorough"),
    ] {
        let quick = if arguments.contains(&"--quick") { &[][..] } else { &["--quick", "--offset=0"] };
        let quick: Vec<&str> = quick
            .iter()
            .copied()
            .filter(|word| *word != "--offset=0" || !arguments.contains(&"--offset"))
            .collect();
        let all = [arguments, &quick].concat();
        let (text, json) = (read(&all), read(&[&all[..], &["--format", "json"]].concat()));
        assert!(text.is_calm() && json.is_calm(), "{arguments:?}: {text:?} {json:?}");
        assert_eq!((text.code, json.code), (Some(exit), Some(exit)), "{arguments:?}: {text:?} {json:?}");
        assert!(
            (text.out + &text.err).split_whitespace().collect::<Vec<_>>().join(" ").contains(needle),
            "{arguments:?}: {}",
            text.err
        );
        let document = json.document();
        assert_eq!(
            document.failure.is_some_and(|failure| failure.text.contains(needle)),
            exit != 0,
            "{arguments:?}"
        );
    }
}

#[test]
fn an_interrupt_between_samples_leaves_what_was_measured() {
    for format in ["text", "json"] {
        let home = Home::new();
        let running = Running::start(home.haul(&["read", "--rounds", "5000", "--format", format]));
        thread::sleep(Duration::from_millis(1500));
        running.signal("INT");
        let ended = running.end_within(Duration::from_secs(10));
        assert!(ended.is_calm() && ended.code == Some(1), "{ended:?}");
        if format == "text" {
            assert!(ended.out.contains("interrupted"), "{}", ended.out);
        } else {
            let document = ended.document();
            assert_eq!((document.status, document.failure), (Status::Interrupted, None));
            assert!(document.runs.iter().any(|run| run.status == Status::Complete));
        }
    }
}

#[test]
fn a_second_interrupt_ends_what_is_in_the_middle_of_something_long() {
    let home = Home::new();
    let long = [
        "read",
        "--source",
        "device",
        "/dev/zero",
        "--working-set",
        "100T",
        "--block",
        "1M",
        "--offset",
        "0",
    ];
    let running = Running::start(home.haul(&long));
    thread::sleep(Duration::from_millis(500));
    running.signal("INT");
    thread::sleep(Duration::from_millis(500));
    running.signal("INT");
    let ended = running.end_within(Duration::from_secs(5));
    assert_eq!(ended.code, Some(130), "{ended:?}");
}

#[test]
fn a_pipe_that_nobody_writes_to_and_a_device_without_an_end_are_not_waited_for() {
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
    let pipe = directory.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    let pipe = pipe.to_str().expect("UTF-8");
    for (arguments, exit) in
        [(&["read", pipe][..], 1), (&["copy", "--routine", "auto", "--selection", "/dev/zero"], 2)]
    {
        let ended = Running::start(Home::new().haul(arguments)).end_within(Duration::from_secs(10));
        assert!(ended.is_calm() && ended.code == Some(exit), "{arguments:?}: {ended:?}");
    }
}

#[test]
fn a_file_of_the_users_is_read_and_never_written() {
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
    let path = directory.path().join("file");
    let content: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
    fs::write(&path, &content).expect("write");
    let name = path.to_str().expect("UTF-8");
    let document = quick(&[name, "--file-offset", "0,1", "--offset", "0"]);
    assert_eq!(document.options.effective["source"]["name"], name);
    let cells: std::collections::BTreeSet<CellValue> =
        document.runs.iter().map(|run| run.cell["file_offset_bytes"].clone()).collect();
    assert_eq!(cells, [0, 1].map(CellValue::Int).into());
    assert!(fs::read(&path).expect("read") == content);
}
