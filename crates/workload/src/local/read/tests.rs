//! Reads and writes of every kind, of real files, pipes and sockets.

use std::fs;
use std::path::{Path, PathBuf};

use haul_stats::Metric;

use super::*;

/// A file of the user's, on whatever file system the sources are.
fn file(bytes: usize) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
    let path = directory.path().join("file");
    let content: Vec<u8> = (0..=250).flat_map(|byte| [byte; 7]).cycle().take(bytes).collect();
    fs::write(&path, content).expect("write");
    (directory, path)
}

fn options() -> ReadOptions {
    ReadOptions { offset: vec![0, 1, 63], working_set: vec![64 << 10], ..ReadOptions::default() }
}

fn of(path: &Path) -> ReadOptions {
    ReadOptions { source: SourceKind::File, file: Some(path.to_owned()), ..options() }
}

fn never() -> Stop {
    Stop::never().expect("a stop")
}

fn subject(options: &ReadOptions) -> Result<ReadSubject> {
    ReadSubject::new(options, &never())
}

fn refused(options: &ReadOptions) -> (String, u8) {
    let error = subject(options).expect_err("refused");
    (error.to_string(), error.exit())
}

/// Samples and verifies every cell, and returns how many there were.
fn whole(options: &ReadOptions) -> usize {
    let mut subject = subject(options).unwrap_or_else(|error| panic!("{options:?}: {error}"));
    for cell in 0..subject.cells().len() {
        let point = subject.points[cell];
        subject.prepare(cell).unwrap_or_else(|error| panic!("{point:?}: {error}"));
        let sample = subject.sample(cell, 3).unwrap_or_else(|error| panic!("{point:?}: {error}"));
        assert_eq!(sample.bytes.0, 3 * point.walked(), "{point:?}");
        assert!(sample.calls >= 3 * point.walked() / point.block.0, "{point:?}: {sample:?}");
        assert!(!sample.elapsed.is_zero() && sample.thread_cpu.is_some());
        subject.verify(cell).unwrap_or_else(|error| panic!("{point:?}: {error}"));
        let readings = subject.readings(cell, &sample);
        let wanted = if options.way == Way::Read { Metric::ReadTime } else { Metric::WriteTime };
        let time = readings.iter().find(|reading| reading.metric == wanted).expect("a time");
        let seconds = time.value.expect("a value").as_f64();
        assert!((seconds * 3.0 - sample.elapsed.as_secs_f64()).abs() < 1e-9, "a third of three passes");
    }
    subject.cells().len()
}

#[test]
fn every_call_moves_the_working_set_of_a_file_and_no_byte_beside_the_buffer() {
    let (_directory, path) = file(70_000);
    for base in [options(), of(&path)] {
        let all = ReadOptions {
            with: ReadWith::ALL.to_vec(),
            block: vec![8 << 10, 1000],
            file_offset: vec![0, 3],
            ..base
        };
        assert_eq!(whole(&all), 3 * 2 * 2 * 6);
    }
    let bytes = ReadOptions { block: vec![1], working_set: vec![4096], offset: vec![5], ..options() };
    assert_eq!(whole(&bytes), 1);
    let large =
        ReadOptions { block: vec![200_000], working_set: vec![400_000], offset: vec![17], ..options() };
    assert_eq!(
        whole(&ReadOptions { with: vec![ReadWith::Pread, ReadWith::Splice, ReadWith::IoUring], ..large }),
        3
    );
}

#[test]
fn every_call_writes_to_a_file_of_hauls_own() {
    let with = ReadWith::ALL.into_iter().filter(|with| *with != ReadWith::MmapCopy).collect();
    let written = ReadOptions { way: Way::Write, with, block: vec![8 << 10, 1000], ..options() };
    assert_eq!(whole(&written), 3 * 2 * 5);
    let large =
        ReadOptions { block: vec![200_000], working_set: vec![400_000], offset: vec![17], ..options() };
    assert_eq!(whole(&ReadOptions { way: Way::Write, with: vec![ReadWith::Splice], ..large }), 1);
}

#[test]
fn pipes_and_sockets_are_read_and_written_by_every_call_that_can() {
    for kind in [ChannelKind::Pipe, ChannelKind::Unix, ChannelKind::Tcp, ChannelKind::Udp] {
        for way in [Way::Read, Way::Write] {
            let mut with = vec![ReadWith::Read, ReadWith::Readv, ReadWith::IoUring];
            with.extend((kind == ChannelKind::Pipe).then_some(ReadWith::Splice));
            let cells = with.len();
            // More than fits at once, so that it is filled and drained in turn.
            let asked = ReadOptions {
                source: SourceKind::Channel(kind),
                working_set: vec![1 << 20],
                block: vec![8 << 10, 1000],
                with,
                way,
                ..options()
            };
            assert_eq!(whole(&asked), cells * 2 * 3, "{kind:?} {way}");
        }
    }
}

#[test]
fn a_device_is_read_as_long_as_it_gives_and_again_from_its_start() {
    let device = |path: &str| ReadOptions {
        source: SourceKind::Device,
        file: Some(path.into()),
        with: vec![ReadWith::Read, ReadWith::Readv, ReadWith::IoUring],
        ..options()
    };
    assert_eq!(whole(&device("/dev/zero")), 9);
    let mut status =
        subject(&ReadOptions { with: vec![ReadWith::Read], ..device("/proc/self/status") }).expect("procfs");
    status.prepare(0).expect("ready");
    let sample = status.sample(0, 1).expect("a sample");
    assert!(sample.bytes.0 >= 64 << 10 && sample.calls > 8, "it ends often: {sample:?}");
    let mut empty = subject(&device("/dev/null")).expect("it opens");
    let error = empty.sample(0, 1).expect_err("there is nothing").to_string();
    assert!(
        error.contains("cannot read from /dev/null") && error.contains("it is empty: name one that gives"),
        "{error}"
    );
}

#[test]
fn what_cannot_be_is_refused_with_the_object_and_the_remedy() {
    let (_directory, path) = file(5_000);
    let name = path.display().to_string();
    let own = options();
    let channel = |kind| ReadOptions { source: SourceKind::Channel(kind), ..options() };
    for (asked, parts) in [
        (
            ReadOptions { working_set: Vec::new(), ..of(&path) },
            [name.as_str(), "4.9 KiB, less than a block of 8K"],
        ),
        (ReadOptions { block: vec![4096], ..of(&path) }, [name.as_str(), "smaller --block, --working-set"]),
        (
            ReadOptions { block: vec![4096], working_set: vec![4096], file_offset: vec![1000], ..of(&path) },
            ["4K are to be walked from byte 1000", "--file-offset"],
        ),
        (ReadOptions { block: vec![0], ..own.clone() }, ["a block of 0", "1 byte to 1G"]),
        (ReadOptions { offset: vec![1 << 40], ..own.clone() }, ["an offset of 1T", "at most 1G"]),
        (
            ReadOptions { block: vec![128 << 10], ..own.clone() },
            ["64K is less than a block of 128K", "raise --working-set"],
        ),
        (
            ReadOptions { file_offset: vec![u64::MAX], ..own.clone() },
            ["beyond the end of any file", "smaller"],
        ),
        (
            ReadOptions { working_set: vec![1 << 50], ..own.clone() },
            ["1024 TiB of memory are wanted", " leaves "],
        ),
        (
            ReadOptions { offset: (0..5000).collect(), block: vec![1, 2, 3], ..own.clone() },
            ["15000 combinations", "fewer values"],
        ),
        (
            ReadOptions { way: Way::Write, with: vec![ReadWith::MmapCopy], ..own.clone() },
            ["mmap-copy only reads", "--direction read"],
        ),
        (
            ReadOptions { block: vec![1], with: vec![ReadWith::Readv], ..own.clone() },
            ["no two halves", "another --with"],
        ),
        (ReadOptions { way: Way::Write, ..of(&path) }, ["a file of yours", "leave FILE and --source out"]),
        (
            ReadOptions { way: Way::Write, source: SourceKind::Device, ..options() },
            ["a file of yours", "leave FILE and --source out"],
        ),
        (
            ReadOptions { way: Way::Write, with: vec![ReadWith::Pread], ..channel(ChannelKind::Unix) },
            ["--with pwrite takes a place", "give write or writev"],
        ),
        (
            ReadOptions { working_set: vec![65 << 30], ..channel(ChannelKind::Tcp) },
            ["65G out of --source tcp, which has no end", "at most 64G"],
        ),
        (ReadOptions { file: None, ..of(&path) }, ["--source file needs a FILE", "name one"]),
        (
            ReadOptions { file: Some(path.clone()), ..own.clone() },
            ["a FILE is given", "leave one of the two out"],
        ),
        (
            ReadOptions { file_offset: vec![1], ..channel(ChannelKind::Pipe) },
            ["--source pipe has no --file-offset", "read a file"],
        ),
        (
            ReadOptions { with: vec![ReadWith::Pread], ..channel(ChannelKind::Unix) },
            ["--source unix has none", "read or readv"],
        ),
        (
            ReadOptions { with: vec![ReadWith::Splice], ..channel(ChannelKind::Tcp) },
            ["not with --source tcp", "read or readv"],
        ),
        (
            ReadOptions { block: vec![65_508], working_set: vec![1 << 20], ..channel(ChannelKind::Udp) },
            ["a datagram of 65508", "65507 or less"],
        ),
        (
            ReadOptions { block: vec![1 << 30], working_set: vec![1 << 30], ..channel(ChannelKind::Pipe) },
            ["does not fit a pipe", "smaller --block"],
        ),
    ] {
        let (error, exit) = refused(&asked);
        assert!(parts.iter().all(|part| error.contains(part)), "{parts:?} are not in: {error}");
        assert_eq!(exit, 2, "{error}");
    }
    let (error, exit) = refused(&of(Path::new("/nowhere/file")));
    assert!(error.contains("cannot open /nowhere/file"), "{error}");
    assert_eq!(exit, 1);
    let (error, _) = refused(&ReadOptions { with: vec![ReadWith::MmapCopy], ..of(Path::new("/dev/zero")) });
    assert!(error.contains("/dev/zero") && error.contains("--source device"), "{error}");
}

#[test]
fn what_a_refusal_of_any_file_by_any_source_recommends_is_not_refused() {
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
    let at = |name: &str| directory.path().join(name);
    fs::write(at("full"), vec![7; 300_000]).expect("write");
    fs::write(at("small"), [7; 100]).expect("write");
    fs::write(at("empty"), []).expect("write");
    let made = std::process::Command::new("mkfifo").arg(at("fifo")).status().expect("mkfifo");
    assert!(made.success());
    let _bound = std::os::unix::net::UnixListener::bind(at("socket")).expect("bind");
    let known =
        ["/dev/zero", "/proc/self/status", "/proc/self", "/sys/devices/system/cpu/online", "/nowhere/file"];
    let mut files: Vec<Option<PathBuf>> = known.into_iter().map(|path| Some(path.into())).collect();
    files.extend(["full", "small", "empty", "fifo", "socket", "gone"].map(|name| Some(at(name))));
    files.extend([Some(directory.path().to_owned()), None]);
    let channels = [ChannelKind::Pipe, ChannelKind::Unix, ChannelKind::Tcp, ChannelKind::Udp];
    let mut sources = vec![SourceKind::File, SourceKind::Memory, SourceKind::Device];
    sources.extend(channels.map(SourceKind::Channel));
    let base = ReadOptions { offset: vec![0], working_set: vec![8192], ..ReadOptions::default() };
    for file in &files {
        for &source in &sources {
            for way in [Way::Read, Way::Write] {
                let asked = ReadOptions { file: file.clone(), source, way, ..base.clone() };
                let Err(error) = subject(&asked) else { continue };
                let text = error.to_string();
                assert!(text.contains(": ") || text.contains("; "), "no remedy: {text}");
                let names = file.as_ref().is_none_or(|file| text.contains(&file.display().to_string()));
                assert!(
                    names || text.contains("--source") || text.contains("--direction"),
                    "no object: {text}"
                );
                let mut followed = Vec::new();
                for (advice, source, file) in [
                    ("use --source device", SourceKind::Device, file.clone()),
                    ("use --source file", SourceKind::File, file.clone()),
                    ("leave FILE and --source out", SourceKind::Memory, None),
                    ("--source pipe makes", SourceKind::Channel(ChannelKind::Pipe), None),
                    ("--source unix makes", SourceKind::Channel(ChannelKind::Unix), None),
                    ("name one, or leave --source out", SourceKind::Memory, None),
                ] {
                    if text.contains(advice) {
                        let done = subject(&ReadOptions { source, file, way, ..base.clone() });
                        // A file may be too small as well, which has a remedy of its own; but nobody is sent back.
                        let next = done.err().map(|error| error.to_string()).unwrap_or_default();
                        let back = ["--source", "FILE", "cannot"].iter().any(|back| next.contains(back));
                        assert!(!back, "{text}\n  leads to: {next}");
                        followed.push(advice);
                    }
                }
                let others =
                    ["leave one of the two out", "name a file in it", "give a longer", "give a larger file"];
                let other =
                    others.iter().chain(&["that is there", "bytes in it"]).any(|other| text.contains(other));
                assert!(other || !followed.is_empty(), "advice that nobody followed: {text}");
            }
        }
    }
}

#[test]
fn of_a_small_file_all_is_walked_where_nothing_is_said() {
    let (_directory, path) = file(40_000);
    let settled = ReadOptions { working_set: Vec::new(), ..of(&path) }.settled().expect("settled");
    assert_eq!(settled.working_set, [32 << 10], "whole blocks");
    let from = ReadOptions { working_set: Vec::new(), file_offset: vec![0, 9_000], ..of(&path) };
    assert_eq!(from.settled().expect("settled").working_set, [24 << 10]);
    let own = ReadOptions { working_set: Vec::new(), block: vec![1 << 20], ..options() };
    assert_eq!(own.settled().expect("settled").working_set, [1 << 20], "a block at least");
}

#[test]
fn what_is_not_in_the_page_cache_is_read_first_or_refused() {
    let (_directory, path) = file(256 << 10);
    let drop_pages = || {
        let file = File::open(&path).expect("open");
        file.sync_all().expect("sync");
        // What `dd oflag=nocache` does; a page that somebody maps stays.
        let status = std::process::Command::new("dd")
            .args(["if=/dev/null", "count=0", "oflag=nocache", "conv=notrunc,fdatasync"])
            .arg(format!("of={}", path.display()))
            .output()
            .expect("dd");
        assert!(status.status.success(), "{status:?}");
    };
    drop_pages();
    let mut strict = subject(&ReadOptions { warm: false, ..of(&path) }).expect("a subject");
    let error = strict.prepare(0).expect_err("it is cold");
    let text = error.to_string();
    assert!(
        text.contains(&path.display().to_string())
            && text.contains("--no-warm")
            && text.contains(" of 16 pages"),
        "{text}"
    );
    assert_eq!(error.exit(), 1);
    let mut warming = subject(&of(&path)).expect("a subject");
    warming.prepare(0).expect("it is warmed");
    assert_eq!(warming.effective()["source"]["warmed"], 1);
    strict.prepare(0).expect("now it is hot");
    assert_eq!(strict.effective()["source"]["warmed"], 0);
}

/// Files on a disk, and in memory with a name.
fn places() -> [(tempfile::TempDir, PathBuf); 2] {
    let shared = tempfile::tempdir_in("/dev/shm").expect("a tmpfs");
    let path = shared.path().join("file");
    fs::write(&path, vec![7; 64 << 10]).expect("write");
    [file(64 << 10), (shared, path)]
}

fn cut(path: &Path, length: u64) {
    fs::OpenOptions::new().write(true).open(path).expect("open").set_len(length).expect("set the length");
}

#[test]
fn a_file_that_is_truncated_between_samples_is_said_to_be_shorter_and_nothing_else_is_blamed() {
    for with in ReadWith::ALL {
        for (_directory, path) in places() {
            let mut subject = subject(&ReadOptions { with: vec![with], ..of(&path) }).expect("a subject");
            subject.prepare(0).expect("ready");
            cut(&path, 4096);
            let errors = [
                subject.sample(0, 1).expect_err("most of it is gone"),
                subject.prepare(0).expect_err("nor can it be read first"),
                subject.verify(0).expect_err("nor looked at"),
            ];
            for error in errors.map(|error| error.to_string()) {
                let told = format!(
                    "{} was truncated while it was read: it had 64 KiB and has 4 KiB",
                    path.display()
                );
                assert!(error.contains(&told), "{with:?}: {error}");
            }
        }
    }
}

#[test]
fn a_file_that_is_truncated_in_the_middle_of_a_pass_is_an_error_and_no_death() {
    for with in [ReadWith::MmapCopy, ReadWith::Pread, ReadWith::Splice] {
        for (_directory, path) in places() {
            let mut subject = subject(&ReadOptions { with: vec![with], ..of(&path) }).expect("a subject");
            subject.prepare(0).expect("ready");
            let error = std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(50));
                    cut(&path, 5000);
                });
                // As many passes as it takes: the file goes under one of them.
                subject.sample(0, u64::MAX / (64 << 10)).expect_err("it went away").to_string()
            });
            assert!(error.contains("it had 64 KiB and has 4.9 KiB now"), "{with:?}: {error}");
        }
    }
}

#[test]
fn a_request_to_stop_ends_any_pass_of_any_source() {
    let (_directory, path) = file(1 << 20);
    let endless = |source| ReadOptions {
        source,
        offset: vec![0],
        working_set: vec![16 << 30],
        block: vec![1 << 20],
        ..ReadOptions::default()
    };
    let kinds = [ChannelKind::Pipe, ChannelKind::Unix, ChannelKind::Tcp];
    let mut cases: Vec<ReadOptions> = kinds
        .into_iter()
        .map(|kind| ReadOptions { block: vec![4096], ..endless(SourceKind::Channel(kind)) })
        .collect();
    cases.push(ReadOptions { file: Some("/dev/zero".into()), ..endless(SourceKind::Device) });
    let one =
        |with| ReadOptions { offset: vec![0], working_set: vec![1 << 20], with: vec![with], ..of(&path) };
    cases.extend(ReadWith::ALL.map(one));
    for options in cases {
        let stop = never();
        let mut subject = ReadSubject::new(&options, &stop).expect("a subject");
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(30));
                stop.request(haul_host::signal::Signal::Int);
            });
            // A pass of minutes, or passes without end.
            subject.sample(0, 1 << 40).expect_err("stopped")
        });
        assert!(error.is_interrupt(), "{options:?}: {error}");
        assert!(subject.prepare(0).is_err_and(|error| error.is_interrupt()) || options.file.is_none());
        let made =
            ReadSubject::new(&ReadOptions { working_set: vec![8192], block: vec![8192], ..options }, &stop);
        assert!(made.is_err_and(|error| error.is_interrupt()), "nor is one made");
    }
}

#[test]
fn a_file_with_holes_that_no_memory_holds_is_refused_before_it_is_read() {
    let (_directory, path) = file(0);
    cut(&path, 1 << 43);
    let (error, exit) = refused(&ReadOptions { working_set: vec![1 << 42], ..of(&path) });
    assert!(error.contains("4 TiB of") && error.contains("cannot be in memory at once"), "{error}");
    assert_eq!(exit, 2);
}

#[test]
fn what_a_survey_takes_at_least_grows_with_what_is_walked() {
    let takes = |working_set, rounds| {
        let options = ReadOptions {
            source: SourceKind::Device,
            file: Some("/dev/zero".into()),
            working_set: vec![working_set],
            offset: vec![0, 1],
            ..ReadOptions::default()
        };
        subject(&options).expect("a subject").takes_at_least(rounds).as_secs()
    };
    // Two cells of 64 GiB, six rounds and four walks more, at 20 GB/s.
    assert_eq!((takes(64 << 30, 6), takes(64 << 30, 16)), (68, 137));
    assert_eq!(takes(1 << 20, 6), 0);
}

#[test]
fn copies_of_the_kernels_own_threads_are_in_the_cpu_time_and_are_a_doubt() {
    let cpu = |with, way| {
        let options =
            ReadOptions { offset: vec![0], working_set: vec![4 << 20], with: vec![with], way, ..options() };
        let mut subject = subject(&options).expect("a subject");
        subject.prepare(0).expect("ready");
        let sample = subject.sample(0, 50).expect("a sample");
        let readings = subject.readings(0, &sample);
        let found = readings.iter().find(|reading| reading.metric == Metric::CopyCpu).expect("CPU time");
        let by_workers = sample.worker_cpu > sample.elapsed.mul_f64(WORKERS_SHARE);
        assert_eq!(subject.doubts().len(), usize::from(by_workers), "{with:?}");
        assert_eq!(found.source.contains("io_uring"), !sample.worker_cpu.is_zero());
        found.value.expect("a value").as_f64()
    };
    for way in [Way::Read, Way::Write] {
        let (plain, ring) = (cpu(ReadWith::Pread, way), cpu(ReadWith::IoUring, way));
        // The same copies, whoever makes them: without its workers a ring had a tenth of it on Linux 6.18.
        assert!(ring > plain / 2.0, "{way}: {ring} and {plain} ns/KiB");
    }
}

#[test]
fn a_call_has_the_name_of_its_direction() {
    let named = ReadWith::named;
    assert_eq!(named("pwrite", Way::Write), Ok(ReadWith::Pread));
    assert_eq!(named("pread", Way::Write), Ok(ReadWith::Pread), "its counterpart");
    let error = named("sendfile", Way::Write).expect_err("none");
    assert!(error.contains("write, pwrite, writev"), "{error}");
    let with = vec![ReadWith::Read, ReadWith::Pread];
    let options = ReadOptions { way: Way::Write, with, ..options() }.settled().expect("settled");
    assert_eq!(options.requested()["with"], json!(["write", "pwrite"]));
    let subject = subject(&options).expect("a subject");
    assert_eq!(subject.cells()[5]["with"].to_string(), "pwrite");
}

#[test]
fn an_axis_is_in_the_cell_where_it_has_several_values() {
    let asked = ReadOptions { with: vec![ReadWith::Read, ReadWith::Pread], ..options() };
    let subject = subject(&asked).expect("a subject");
    let last = serde_json::to_value(&subject.cells()[5]).expect("json");
    assert_eq!(last, json!({"offset_bytes": 63, "with": "pread"}));
    let requested = asked.settled().expect("settled").requested();
    assert_eq!(requested["offset_bytes"], json!([0, 1, 63]));
    assert_eq!((&requested["block_bytes"], &requested["source"]), (&json!(8192), &json!("memfd")));
}
