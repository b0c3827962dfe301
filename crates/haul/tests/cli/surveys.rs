//! `haul read` from the outside: real files, pipes and sockets, one document, and what it refuses.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::Duration;

use haul_results::record::{Document, Kind, Status};
use haul_stats::estimate::{Summary, spearman};
use haul_stats::{Cell, CellValue, Metric, Scope};

use crate::process::{BOUND, Ended, Home, Running, value, wait_until};

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
        (&["--offset", "1,1"], 2, "'--offset 1,1': the value 1 is in it twice"),
        (&["--block", "8K,8192"], 2, "'--block 8K,8192': the value 8192 is in it twice"),
        (&["--working-set", "64K,65536"], 2, "twice"),
        (&["--with", "sendfile"], 2, "mmap-copy"),
        (&["--with", "read,read"], 2, "twice"),
        (&["--direction", "write", "--with", "write,read"], 2, "'read' is in it twice"),
        (&["--direction", "write", "--with", "mmap-copy"], 2, "only reads"),
        (&["--source", "file"], 2, "needs a FILE"),
        (&["--source", "tcp", "--file-offset", "1"], 2, "no --file-offset"),
        (&["--direction", "write", small], 2, "leave FILE and --source out"),
        (&["--direction", "write", "--source", "device"], 2, "leave FILE and --source out"),
        (&["--working-set", "1024T"], 2, "1024 TiB of memory are wanted"),
        (&["--source", "unix", "--working-set", "1T"], 2, "give at most 64G"),
        (&["--source", "device", small], 2, "use --source file"),
        (&["/proc/self/status"], 2, "use --source device"),
        (&["/proc"], 2, "name a file in it"),
        (&[small, "--block", "4K", "--file-offset", "3K"], 2, "--file-offset"),
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
fn the_first_interrupt_ends_a_pass_that_takes_minutes_and_leaves_a_document() {
    for arguments in [
        &["--source", "tcp", "--working-set", "64G"][..],
        &["--source", "device", "/dev/urandom", "--working-set", "64G", "--block", "1M"],
    ] {
        let home = Home::new();
        let all = [&["read", "--offset", "0", "--format", "json"], arguments].concat();
        let mut running = Running::start(home.haul(&all));
        running.says("rounds of this take");
        thread::sleep(Duration::from_millis(300));
        running.signal("TERM");
        // A pass takes half a minute here, and two are made before the first sample.
        let ended = running.end_within(Duration::from_secs(5));
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let document = ended.document();
        assert_eq!((document.status, document.failure), (Status::Interrupted, None), "{arguments:?}");
        assert!(document.runs.is_empty(), "an interrupted pass is no failed run: {:?}", document.runs);
    }
}

#[test]
fn a_second_interrupt_ends_what_does_not_hear_the_first() {
    let (unread, output) = std::io::pipe().expect("a pipe");
    let home = Home::new();
    let mut command = home.haul(&["read", "--rounds", "20000", "--offset", "0", "--format", "json"]);
    command.stdout(output).stderr(std::process::Stdio::piped());
    let running = Running::start_as_is(command);
    thread::sleep(Duration::from_secs(2));
    running.signal("INT");
    // A document of two thousand samples does not fit a pipe that nobody reads.
    thread::sleep(Duration::from_secs(1));
    running.signal("INT");
    let ended = running.end_within(Duration::from_secs(10));
    assert_eq!(ended.code, Some(130), "{ended:?}");
    drop(unread);
}

#[test]
fn a_file_that_is_truncated_under_a_mapping_ends_the_survey_and_not_the_process() {
    let places = [tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")), tempfile::tempdir_in("/dev/shm")];
    for directory in places {
        let path = directory.as_ref().expect("a directory").path().join("file");
        fs::write(&path, vec![1; 1 << 20]).expect("write");
        let name = path.to_str().expect("UTF-8");
        let home = Home::new();
        let arguments =
            ["read", name, "--with", "mmap-copy", "--offset", "0", "--rounds", "100000", "--format", "jsonl"];
        let running = Running::start(home.haul(&arguments));
        wait_until("samples", BOUND, || running.shown().matches("\"complete\"").count() > 3);
        fs::File::options().write(true).open(&path).expect("open").set_len(4096).expect("truncate");
        let ended = running.end_within(BOUND);
        assert!(ended.is_calm() && ended.code == Some(1), "{ended:?}");
        let told = format!("{name} was truncated while it was read: it had 1 MiB and has 4 KiB now");
        assert!(ended.err.contains(&told), "{}", ended.err);
        let last = ended.out.lines().last().expect("the document");
        assert!(last.contains("\"failed\"") && last.contains("\"complete\""), "what was measured is kept");
    }
}

#[test]
fn signals_that_are_no_wish_to_stop_do_not_end_a_survey() {
    let limited = Home::new().limited_haul("ulimit -f 10", &["read", "--quick", "--offset", "0"]);
    let ended = Running::start(limited).end_within(BOUND);
    assert!(ended.is_calm() && ended.code == Some(1), "SIGXFSZ would have killed it: {ended:?}");
    let said = ended.err.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("a file of 256 KiB in memory") && said.contains("ulimit -f"), "{said}");
    let home = Home::new();
    let mut running = Running::start(home.haul(&["read", "--rounds", "20000", "--offset", "0"]));
    thread::sleep(Duration::from_millis(500));
    // SIGRTMIN, whose name not every shell knows.
    running.signal("34");
    thread::sleep(Duration::from_millis(500));
    assert!(running.is_running(), "a stray SIGRTMIN ended it");
    running.signal("INT");
    assert_eq!(running.end_within(BOUND).code, Some(1));
}

#[test]
fn what_is_written_has_the_names_of_writing() {
    let document = quick(&["--direction", "write", "--with", "write,pwrite", "--offset", "0"]);
    assert_eq!(document.options.requested["with"], serde_json::json!(["write", "pwrite"]));
    for run in document.runs.iter().filter(|run| run.status == Status::Complete) {
        assert!(value(run, Metric::WriteTime, Scope::Run) > 0.0);
        assert!(run.readings.iter().all(|reading| reading.metric != Metric::ReadTime));
    }
    let ended = read(&["--direction", "write", "--offset", "0", "--quick"]);
    assert!(ended.out.contains("write-through") && ended.out.contains("with pwrite"), "{}", ended.out);
}

#[test]
fn a_pipe_that_nobody_writes_to_and_a_device_without_an_end_are_not_waited_for() {
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
    let pipe = directory.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    let pipe = pipe.to_str().expect("UTF-8");
    for (arguments, exit) in
        [(&["read", pipe][..], 2), (&["copy", "--routine", "auto", "--selection", "/dev/zero"], 2)]
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
