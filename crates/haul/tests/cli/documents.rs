//! What comes out: one document and one exit code whatever happens, in text and JSON, into any kind of output.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use haul_results::record::{Kind, Status};
use haul_stats::{Metric, Scope};

use crate::peers::{FUTURE_HELLO, Stranger, Treat, relay, stranger};
use crate::process::{BOUND, HAUL, Home, Running, value, wait_until};
use crate::site::{Site, needs_root};

/// Nobody: an ordinary user that every system has.
const NOBODY: u32 = 65534;

/// Runs one command line in text and in JSON, and checks that both end alike: the same exit code, no panic, the reason in
/// both, one strict document in the one.
fn fails_alike(site: &Site, arguments: &[&str], exit: u8, needles: &[&str]) {
    let json: Vec<&str> = arguments.iter().chain(&["--format", "json"]).copied().collect();
    // One haul at a time has settings of a host; what sets none is run at the same time, because some of it waits for seconds.
    let (text, json) = if arguments.first() == Some(&"ab") {
        (site.run(arguments), site.run(&json))
    } else {
        let (text, json) = (site.client(arguments), site.client(&json));
        (text.end(), json.end())
    };
    assert!(text.is_calm() && json.is_calm(), "{arguments:?}: {text:?} {json:?}");
    assert_eq!(
        (text.code, json.code),
        (Some(exit.into()), Some(exit.into())),
        "{arguments:?}: {text:?} {json:?}"
    );
    let document = json.document();
    let failure = document.failure.unwrap_or_else(|| panic!("{arguments:?}: no reason in the document"));
    assert_eq!((document.status, failure.exit), (Status::Failed, exit), "{arguments:?}: {}", failure.text);
    // Text is folded to the page.
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for needle in needles {
        for shown in [plain(&failure.text), plain(&(text.out.clone() + &text.err)), plain(&json.err)] {
            assert!(shown.contains(needle), "{arguments:?}: '{needle}' is missing from: {shown}");
        }
    }
}

#[test]
fn what_was_asked_for_wrongly_exits_with_2_in_every_format_and_says_what_to_write() {
    let site = Site::new();
    let stream = |more: &[&'static str]| [&["stream", "lab", "-t", "300ms"], more].concat();
    let ab = |more: &[&'static str]| [&["ab", "stream", "lab", "-t", "300ms"], more].concat();
    for (arguments, needle) in [
        (vec!["stream"], "TARGET"),
        (stream(&["--frobnicate"]), "--frobnicate"),
        (vec!["stream", "lab", "-t", "10x"], "write seconds as 10"),
        (stream(&["--busy-poll", "50"]), "write the unit"),
        (stream(&["--message", "12Q"]), "'12Q' is not a size"),
        (stream(&["--message", "0"]), "a message of 0 bytes"),
        (stream(&["--sndbuf", "64KB"]), "'64KB' is not a size"),
        (stream(&["--flows", "0"]), "0 flows"),
        (stream(&["--flows", "1,1"]), "twice"),
        (stream(&["--flows", "4..1"]), "runs backwards"),
        (stream(&["--runs", "0"]), "--runs"),
        (stream(&["--interval", "1s"]), "an interval of 1s"),
        (stream(&["--cc", "no such"]), "congestion control"),
        (stream(&["--pin", "x"]), "pin"),
        (stream(&["--key", "sesame"]), "not a key"),
        (vec!["stream", "a b"], "HOST[:PORT]"),
        (vec!["stream", "host:0"], "1 to 65535"),
        (vec!["stream", "lab:mtu=1"], "1280 to 65535"),
        (ab(&["--arm", "only:"]), "'only' is the only arm"),
        (ab(&["--arm", "a:", "--arm", "b:"]), "change nothing against each other"),
        (ab(&["--arm", "a:", "--arm", "a:nic.tso=off"]), "two arms are named 'a'"),
        (ab(&["--arm", "a:", "--arm", "b:opt.time=5s"]), "--time"),
        (ab(&["--arm", "a:", "--arm", "b:opt.mesage=1K"]), "the options are message"),
        (ab(&["--arm", "a:", "--arm", "b:nic.tso=on", "--confidence", "100%"]), "decides nothing"),
        (ab(&["--arm", "a:", "--arm", "b:nic.tso=on", "--min-effect", "1"]), "percentage"),
        (ab(&["--arm", "a:", "--arm", "b:nic.tsoo=on"]), "did you mean"),
    ] {
        fails_alike(&site, &arguments, 2, &[needle]);
    }
}

#[test]
fn a_peer_that_is_not_to_be_had_exits_with_4_in_every_format_and_is_named() {
    let site = Site::new();
    let (keyed, open) = (site.serve(&[]), site.serve(&["--open"]));
    let address = site.lab.server_addr;
    let at = |kind| stranger(&site.lab.server, address, kind);
    let (silent, closes) = (at(Stranger::Silent), at(Stranger::Closes));
    let http = at(Stranger::Answers(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
    let future = at(Stranger::Answers(&FUTURE_HELLO));
    let free = format!("{address}:1");
    let wrong = "0000-0000-0000-0000-0000-0000-0000-0000-0000-0000-0000-0000-0000";
    for (target, more, needles) in [
        (free, vec![], ["cannot reach the server at 198.18.0.2:1", "haul serve"]),
        ("no-such-host.invalid".to_owned(), vec![], ["no-such-host.invalid", "name service"]),
        (keyed.target(), vec!["--open"], ["server 198.18.0.2", "the client has none"]),
        (keyed.target(), vec!["--key", wrong], ["server 198.18.0.2", "different keys"]),
        (open.target(), vec![], ["server 198.18.0.2", "leave the key out"]),
        (silent.target(), vec![], ["server 198.18.0.2", "found silence"]),
        (closes.target(), vec![], ["server 198.18.0.2", "closed before a word was said"]),
        (http.target(), vec![], ["server 198.18.0.2", "found HTTP"]),
        (future.target(), vec![], ["server 198.18.0.2", "install the same release"]),
    ] {
        for command in [&["stream"][..], &["env"], &["ab", "stream"]] {
            let mut arguments = [command, &[target.as_str()], &more].concat();
            match command {
                ["env"] => {}
                ["stream"] => arguments.extend(["-t", "300ms"]),
                _ => arguments.extend(["-t", "300ms", "--arm", "a:", "--arm", "b:opt.message=1K"]),
            }
            fails_alike(&site, &arguments, 4, &needles);
        }
    }
}

#[test]
fn what_the_hosts_cannot_do_exits_with_1_in_every_format_and_names_end_object_and_remedy() {
    let site = Site::new();
    let server = site.serve(&["--open"]);
    let target = server.target();
    let stream =
        |more: &[&'static str]| [&["stream", target.as_str(), "--open", "-t", "300ms"], more].concat();
    let ab = |arm: &'static str| {
        vec!["ab", "stream", target.as_str(), "--open", "-t", "300ms", "--arm", "a:", "--arm", arm]
    };
    for (arguments, needles) in [
        (stream(&["--cc", "nosuchcc"]), vec!["nosuchcc", "congestion"]),
        (stream(&["--pin", "77"]), vec!["77"]),
        (ab("b:server:nic.gro=on"), vec!["arm 'b'", "server 198.18.0.2", "--allow-settings"]),
        (ab("b:nic.lro=on"), vec!["arm 'b'", "client", "rx-lro fixed off"]),
        (ab("b:nic.vlan-challenged=on"), vec!["arm 'b'", "client", "fixed off"]),
        (ab("b:nic.tx=off"), vec!["arm 'b'", "client", "tx-tcp-segmentation", "--allow-side-effects"]),
        (ab("b:nic.sg=off,nic.tso=on"), vec!["arm 'b'", "did not take it", "it needs tx-scatter-gather"]),
    ] {
        fails_alike(&site, &arguments, 1, &needles);
    }
    assert!(site.here.journals().is_empty() && site.there.journals().is_empty());
}

#[test]
fn a_run_of_which_no_byte_arrives_is_invalid_and_not_0_bit_per_second() {
    let site = Site::new();
    let server = site.serve(&[]);
    for direction in ["send", "receive"] {
        // As a firewall does that lets the handshake through: hellos pass, payload does not.
        let filter = relay(&site.lab.server, server.addr, |_| Treat::Hold(Duration::from_secs(30)));
        let target = filter.target();
        let mut arguments = vec!["stream", &target, "-t", "300ms", "--warmup", "50ms"];
        arguments.extend(["--direction", direction]);
        fails_alike(
            &site,
            &arguments,
            1,
            &["the measurement is invalid", "not one byte reached the receiver"],
        );
    }
}

#[test]
fn a_low_limit_on_open_files_is_named_with_its_remedy() {
    let site = Site::new();
    let server = site.serve(&[]);
    // Where it is met depends on how many there are, and in a lab on which of the two ends is quicker.
    let far = [12, 16, 32].map(|limit| (limit, server.target()));
    for (limit, target) in far.into_iter().chain((8..=32).map(|limit| (limit, "lab".to_owned()))) {
        let arguments = ["stream", &target, "--flows", "64", "-t", "300ms", "--format", "json"];
        let limited = site.here.limited_haul(&format!("ulimit -n {limit}"), &arguments);
        let ended = site.on_client(limited).end();
        assert!(ended.is_calm(), "{ended:?}");
        let failure = ended.document().failure.expect("64 flows do not fit into so few descriptors");
        assert!(failure.exit == 1 && failure.text.contains("ulimit -n"), "{limit}: {}", failure.text);
    }

    let listen = format!("{}:0", site.lab.server_addr);
    let mut tight = site.serve_as(site.there.limited_haul("ulimit -n 32", &["serve", "--listen", &listen]));
    let started = Instant::now();
    let arguments = ["stream", &tight.target(), "--flows", "64", "-t", "300ms", "--format", "json"];
    let failure = site.run(&arguments).document().failure.expect("64 flows do not fit into 32 descriptors");
    assert!(started.elapsed() < Duration::from_secs(8), "told, not waited for: {:?}", started.elapsed());
    for needle in ["the server 198.18.0.2", "Too many open files", "ulimit -n"] {
        assert!(failure.text.contains(needle), "'{needle}' is missing from: {}", failure.text);
    }
    tight.says("ulimit -n");
    // It has room again for those who ask for less.
    site.run(&["stream", &tight.target(), "-t", "300ms", "--warmup", "50ms", "--format", "json"]).complete();
}

#[test]
fn a_reader_who_leaves_is_no_reason_for_a_word() {
    let site = Site::new();
    let server = site.serve(&[]);
    let target = server.target();
    for stderr_too in [false, true] {
        for arguments in [
            vec!["stream", &target, "-t", "300ms", "--warmup", "20ms"],
            vec!["stream", &target, "-t", "300ms", "--warmup", "20ms", "--format", "json"],
            vec!["stream", &target, "-t", "300ms", "--interval", "20ms"],
            vec![
                "ab",
                "stream",
                &target,
                "--pairs",
                "2",
                "-t",
                "50ms",
                "--warmup",
                "20ms",
                "--arm",
                "a:",
                "--arm",
                "b:nic.tx-nocache-copy=on",
            ],
            vec!["stream", "nowhere.invalid"],
            vec!["explain"],
            vec!["completions", "bash"],
            vec!["settings", "list", "lo"],
            vec!["env"],
            vec!["--help"],
        ] {
            let ends_well = !arguments.contains(&"nowhere.invalid");
            let mut command = site.here.haul(&arguments);
            command.stdout(closed_pipe()).stderr(if stderr_too { closed_pipe() } else { Stdio::piped() });
            let ended = site.lab.client.run(|| Running::start_as_is(command)).unwrap().end();
            let what = format!("{arguments:?}, standard error closed: {stderr_too}: {ended:?}");
            assert!(ended.is_calm(), "{what}");
            assert_eq!(ended.code, Some(if ends_well { 0 } else { 4 }), "{what}");
            assert!(!ended.err.contains("Broken pipe") && !ended.err.contains("os error"), "{what}");
        }
    }
    assert!(site.here.journals().is_empty());
    assert!(
        !site.client_features().is_active("tx-nocache-copy"),
        "put back before the first byte was written"
    );
}

/// The write end of a pipe that nobody reads any more.
fn closed_pipe() -> Stdio {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn a_full_disk_behind_standard_output_is_an_error() {
    let site = Site::new();
    for format in ["text", "json"] {
        let mut command =
            site.here.haul(&["stream", "lab", "-t", "300ms", "--warmup", "20ms", "--format", format]);
        command.stdout(File::options().write(true).open("/dev/full").unwrap()).stderr(Stdio::piped());
        let ended = Running::start_as_is(command).end();
        assert!(ended.is_calm() && ended.code == Some(1), "{ended:?}");
        assert!(ended.err.contains("standard output"), "{}", ended.err);
    }
}

/// A pipe that is full, with nobody reading: what a stopped pager is. Default pipes hold 64 KiB.
fn full_pipe() -> (io::PipeReader, Stdio) {
    let (reader, writer) = io::pipe().unwrap();
    let (mut filling, done) = (writer.try_clone().unwrap(), std::sync::mpsc::channel());
    thread::spawn(move || {
        // Where the pipe holds less, the rest waits for the reader, which is as good.
        let mut filler = vec![b'.'; 64 << 10];
        filler[(64 << 10) - 1] = b'\n';
        let _ = filling.write_all(&filler);
        let _ = done.0.send(());
    });
    let _ = done.1.recv_timeout(Duration::from_secs(1));
    (reader, writer.into())
}

#[test]
fn a_stopped_reader_of_standard_error_holds_nothing_up() {
    let site = Site::new();
    let mut server = site.serve(&["--allow-settings"]);
    let target = server.target();
    for (arguments, exit) in [
        (vec!["stream", &target, "-t", "1s", "--interval", "10ms"], 0),
        (
            vec![
                "ab",
                "stream",
                &target,
                "--pairs",
                "1",
                "-t",
                "300ms",
                "--interval",
                "10ms",
                "--arm",
                "a:",
                "--arm",
                "b:server:nic.gro=on",
            ],
            0,
        ),
        (vec!["stream", "198.18.0.2:1", "--format", "json"], 4),
        (vec!["stream", "nowhere", "--frobnicate", "--format", "json"], 2),
        (vec!["settings", "list", "no-such-device"], 1),
    ] {
        let (reader, stderr) = full_pipe();
        let mut command = site.here.haul(&arguments);
        command.stdout(Stdio::piped()).stderr(stderr);
        let running = site.lab.client.run(|| Running::start_as_is(command)).unwrap();
        let ended = running.end_within(Duration::from_secs(20));
        assert_eq!(ended.code, Some(exit), "{arguments:?}: {ended:?}");
        if exit == 0 {
            assert!(ended.out.contains("complete"), "{arguments:?}: {}", ended.out);
        }
        drop(reader);
    }
    server.says("done");
    assert!(!site.server_features().is_active("rx-gro"));
}

#[test]
fn a_server_whose_log_nobody_reads_serves_and_ends() {
    let site = Site::new();
    let free = site.lab.server.run(|| std::net::TcpListener::bind("198.18.0.2:0").unwrap()).unwrap();
    let listen = free.local_addr().unwrap().to_string();
    drop(free);
    let (reader, stderr) = full_pipe();
    let mut command = site.there.haul(&["serve", "--listen", &listen]);
    command.stdout(Stdio::null()).stderr(stderr);
    let server = site.lab.server.run(|| Running::start_as_is(command)).unwrap();
    wait_until("the server", BOUND, || {
        site.lab.client.run(|| std::net::TcpStream::connect(&listen).is_ok()).unwrap()
    });
    let document = site
        .run(&["stream", &listen, "--runs", "3", "-t", "300ms", "--warmup", "50ms", "--format", "json"])
        .complete();
    assert_eq!(document.runs.len(), 3);
    server.signal("TERM");
    let ended = server.end_within(Duration::from_secs(10));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    drop(reader);
}

#[test]
fn lines_that_could_not_be_shown_are_counted_once_there_is_room() {
    let site = Site::new();
    let (mut reader, stderr) = full_pipe();
    // More intervals than the queue holds lines.
    let mut command =
        site.here.haul(&["stream", "loopback", "-t", "12s", "--warmup", "0s", "--interval", "10ms"]);
    command.stdout(Stdio::piped()).stderr(stderr);
    let running = Running::start_as_is(command);
    thread::sleep(Duration::from_millis(11_200));
    let reading = thread::spawn(move || {
        let mut said = String::new();
        reader.read_to_string(&mut said).map(|_| said)
    });
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let said = reading.join().unwrap().unwrap();
    assert!(said.contains("lines were dropped"), "{} bytes, and no word of it", said.len());
}

#[test]
fn the_lab_works_for_an_ordinary_user_with_an_empty_path_and_every_missing_fact_has_its_reason() {
    needs_root();
    let home = Home::without_key();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o777)).unwrap();
    // The build directory may be closed to other users, so the child runs from a copy.
    let program = home.path().join("haul");
    fs::copy(HAUL, &program).unwrap();
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args(arguments).uid(NOBODY).gid(NOBODY);
        home.equip(&mut command);
        Running::start(command).end().complete()
    };
    let run =
        as_nobody(&["stream", "lab", "-t", "300ms", "--warmup", "50ms", "--cc", "reno", "--format", "json"]);
    assert!(value(&run.runs[0], Metric::Throughput, Scope::Receiver) > 0.0);
    for document in
        [run, as_nobody(&["env", "--format", "json"]), as_nobody(&["env", "lab", "--format", "json"])]
    {
        let ends = [document.environment.client, document.environment.server];
        assert!(ends[0].is_some() && (ends[1].is_some() || document.kind == Kind::Env));
        for (name, fact) in ends.into_iter().flatten().flatten() {
            let told =
                fact.value.is_some() != fact.reason.as_deref().is_some_and(|reason| !reason.is_empty());
            assert!(told, "{name} has neither value nor reason, or both: {fact:?}");
        }
    }
}

#[test]
fn a_key_file_that_others_can_read_is_refused_and_one_is_made_at_the_first_start_of_a_server() {
    let site = Site { there: Home::without_key(), ..Site::new() };
    let mut first = site.serve(&[]);
    first.says("made a key");
    let file = site.there.path().join("config/haul/key");
    let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let key = fs::read_to_string(&file).unwrap();
    assert!(first.log().contains(key.trim()), "the key is printed once, when it is made");
    let arguments = ["stream", &first.target(), "--key", key.trim(), "-t", "300ms", "--format", "json"];
    site.run(&arguments).complete();
    let mut second = site.serve(&[]);
    second.says("clients need the key in");
    assert!(!second.log().contains(key.trim()), "and never again");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let ended = Running::start(site.there.haul(&["serve", "--listen", "127.0.0.1:0"])).end();
    assert!(ended.code == Some(2) && ended.err.contains("chmod 600"), "{ended:?}");
}

#[test]
fn every_spread_in_the_text_is_labelled_as_what_it_is() {
    let home = Home::without_key();
    let arguments = ["stream", "loopback", "--runs", "3", "-t", "300ms", "--warmup", "50ms"];
    let ended = Running::start(home.haul(&arguments)).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let plain = ended.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(plain.contains('±'), plain.contains("standard deviation"), "{}", ended.out);
    assert!(plain.contains('±'), "three runs have a spread: {}", ended.out);
}
