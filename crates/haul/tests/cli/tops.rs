//! `haul top`: what it shows goes up and down, agrees with the workload it runs, and leaves nothing behind.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use haul_results::json;
use haul_stats::{Metric, Scope};
use serde_json::Value as Json;

use crate::process::{BOUND, HAUL, Home, Running, signal, value, wait_until};

const NOBODY: u32 = 65_534;

const STREAM: [&str; 6] = ["stream", "lab", "--cc", "reno", "--warmup", "300ms"];

/// A home that every test keeps until its processes are over.
fn top(home: &Home, arguments: &[&str]) -> Running {
    Running::start(home.haul(&[&["top"], arguments].concat()))
}

fn lines(out: &str) -> Vec<Json> {
    out.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn metric(line: &Json, name: &str) -> Option<f64> {
    let readings = line["readings"].as_array()?;
    readings.iter().find(|reading| reading["metric"] == name)?["value"].as_f64()
}

/// Processes whose parent is, or was started by, this one.
fn children(pid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_ascii_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

fn is_there(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn a_stream_that_is_watched_moves_what_its_own_document_says() {
    let home = Home::without_key();
    let arguments = [&["--format", "jsonl", "--"], &STREAM[..], &["-t", "6s"]].concat();
    let ended = top(&home, &arguments).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let all = lines(&ended.out);
    let seen: Vec<f64> = all.iter().filter_map(|line| metric(line, "throughput")).collect();
    assert!(seen.len() >= 3, "{seen:?}");
    let last = all.last().unwrap();
    assert_eq!(last["event"], "document", "{last}");
    let document = json::parse(&last["document"].to_string()).unwrap();
    let whole = value(&document.runs[0], Metric::Throughput, Scope::Receiver);
    // Against the document's own slices: what is seen is those, each once, and the last of them may be missing.
    let slices: Vec<f64> =
        document.runs[0].intervals.iter().filter_map(|interval| interval.bits_per_second).collect();
    let mean = seen.iter().sum::<f64>() / seen.len() as f64;
    let own = slices.iter().take(seen.len()).sum::<f64>() / seen.len().min(slices.len()) as f64;
    assert!((mean / own - 1.0).abs() < 0.05, "{mean} seen, {own} of {slices:?}, {whole} in all");
    assert!((mean / whole - 1.0).abs() < 0.25, "{mean} seen, {whole} in all, {slices:?}");
    let busy = all.iter().filter(|line| line["divisor"]["of"] == "payload").collect::<Vec<_>>();
    let copies =
        |line: &&Json| line["symbols"].as_array().unwrap().iter().any(|symbol| symbol["class"] == "copy");
    assert!(busy.iter().any(copies), "a stream copies: {busy:?}");
    assert!(busy.iter().all(|line| metric(line, "service_demand").is_some_and(|demand| demand > 0.0)));
}

#[test]
fn a_symbol_that_spins_comes_and_goes() {
    let home = Home::without_key();
    let mut top = top(&home, &["--format", "jsonl", "--interval", "1s", "--count", "60"]);
    let mut spinner = Command::new("/bin/sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    // What a shell spins in is the shell's: its share of the host is one CPU, less what others take.
    let user = |line: &Json| -> f64 {
        let symbols = line["symbols"].as_array().unwrap();
        let of = symbols.iter().filter(|symbol| {
            let module = symbol["module"].as_str().unwrap();
            module.ends_with("sh") && symbol["class"] == "user"
        });
        of.map(|symbol| symbol["ns_per_second"].as_f64().unwrap()).sum()
    };
    let last = |top: &Running| lines(&top.shown()).last().map_or(0.0, user);
    wait_until("the spinner to be seen", BOUND, || last(&top) > 0.2e9);
    spinner.kill().unwrap();
    spinner.wait().unwrap();
    wait_until("it to be gone", BOUND, || last(&top) < 0.02e9);
    assert!(top.is_running());
    top.signal("INT");
    assert_eq!(top.end().code, Some(0));
}

#[test]
fn however_it_ends_its_child_ends_too() {
    let home = Home::without_key();
    for name in ["INT", "TERM", "HUP", "KILL"] {
        let arguments = [&["--plain", "--"], &STREAM[..], &["-t", "50s"]].concat();
        let top = top(&home, &arguments);
        wait_until("payload to move", BOUND, || top.shown().contains("bit/s of payload"));
        let found = children(top.pid());
        let [child] = found[..] else { panic!("{found:?}") };
        // A process of namespaces holds them: with it they are gone.
        assert!(is_there(child));
        top.signal(name);
        let ended = top.end_within(Duration::from_secs(20));
        wait_until("the child to go", Duration::from_secs(20), || !is_there(child));
        if name == "KILL" {
            continue;
        }
        assert!(ended.is_calm() && ended.code == Some(1), "{name}: {ended:?}");
        assert!(ended.out.contains("interrupted"), "{name}: the partial document: {ended:?}");
    }
}

#[test]
fn a_lab_in_a_user_namespace_goes_with_a_killed_top_too() {
    // The change of rights makes the kernel forget what was asked for at the start.
    let home = Home::without_key();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let mut command = home.haul(&[&["top", "--plain", "--"], &STREAM[..], &["-t", "50s"]].concat());
    command.uid(NOBODY).gid(NOBODY);
    let top = Running::start(command);
    wait_until("payload to move", BOUND, || top.shown().contains("bit/s of payload"));
    let child = children(top.pid())[0];
    top.signal("KILL");
    top.end();
    wait_until("the child to go", Duration::from_secs(20), || !is_there(child));
}

#[test]
fn a_child_that_dies_is_an_error_with_its_reason() {
    let home = Home::without_key();
    let arguments = [&["--plain", "--"], &STREAM[..], &["-t", "50s"]].concat();
    let top = top(&home, &arguments);
    wait_until("payload to move", BOUND, || top.shown().contains("bit/s of payload"));
    signal(children(top.pid())[0], "KILL");
    let ended = top.end();
    assert!(ended.code == Some(1) && ended.err.contains("died of signal 9"), "{ended:?}");
}

#[test]
fn what_cannot_be_watched_is_said_and_nothing_is_started() {
    let home = Home::without_key();
    for (arguments, needle) in [
        (&["--", "serve"][..], "no workload that can be watched"),
        (&["--", "stream", "lab", "--format", "json"], "leave out --format"),
        (&["--device", "nosuch0"], "nosuch0"),
        (&["--interval", "1ms"], "--interval"),
        (&["--plain", "--", "stream", "lab", "--no-such-option"], "no-such-option"),
    ] {
        let ended = top(&home, arguments).end();
        assert!(ended.code != Some(0) && ended.err.contains(needle), "{arguments:?}: {ended:?}");
        assert!(ended.is_calm(), "{ended:?}");
    }
}

#[test]
fn without_permission_the_rest_is_shown_and_one_line_says_what_forbids_the_symbols() {
    let paranoid: i32 =
        fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap().trim().parse().unwrap();
    assert!(paranoid > 0, "this test wants kernel.perf_event_paranoid above 0");
    let home = Home::without_key();
    let mut command = home.haul(&["top", "--plain", "--count", "2", "--interval", "300ms"]);
    command.uid(NOBODY);
    let ended = Running::start(command).end();
    assert!(ended.code == Some(0) && ended.out.contains("CPU     busy"), "{ended:?}");
    assert!(ended.out.contains("no symbols: ") && ended.out.contains("perf_event_paranoid"), "{ended:?}");
}

/// Under a terminal that `script` makes; what `keys` prints is typed.
fn on_a_terminal(home: &Home, keys: &str, work: &str) -> Running {
    let pid = home.path().join("pid").display().to_string();
    // stty tells how the terminal is before and after.
    let line = format!(
        "stty rows 24 cols 80; before=$(stty -g); sh -c 'echo $$ >{pid}; exec {HAUL} top {work}'; \
         echo code $?; [ \"$before\" = \"$(stty -g)\" ] && echo same"
    );
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &format!("({keys}) | script -q -e -c \"$LINE\" /dev/null")]);
    command.env("LINE", line).env("PIDFILE", pid).env("TERM", "xterm").env("HOME", home.path());
    command.env("HAUL_STATE_DIR", home.path().join("state")).env_remove("NO_COLOR");
    Running::start(command)
}

const ENTERED: &str = "\u{1b}[?1049h";
const LEFT: &str = "\u{1b}[?1049l";

#[test]
fn the_terminal_is_given_back_at_a_key_or_a_signal_and_the_result_comes_after_it() {
    let home = Home::without_key();
    let stream = format!("-- {} -t 50s", STREAM.join(" "));
    let kill = |name: &str| format!("sleep 4; kill -{name} $(cat $PIDFILE); sleep 4");
    for (keys, work) in [
        (kill("TERM"), ""),
        (kill("INT"), stream.as_str()),
        ("sleep 4; printf c; sleep 1; printf 't? +'; sleep 1; printf q; sleep 4".to_owned(), ""),
        ("sleep 4; printf q; sleep 4".to_owned(), stream.as_str()),
        ("sleep 4; printf '\\003'; sleep 4".to_owned(), stream.as_str()),
    ] {
        let ended = on_a_terminal(&home, &keys, work).end();
        let (entered, left) = (ended.out.find(ENTERED), ended.out.rfind(LEFT));
        assert!(entered.is_some() && left > entered, "{keys} {work}: {ended:?}");
        let after = &ended.out[left.unwrap()..];
        assert!(after.contains("same"), "{keys} {work}: {after:?}");
        if work.is_empty() {
            assert!(after.contains("code 0"), "{keys}: {after:?}");
        } else {
            assert!(after.contains("interrupted") && after.contains("code 1"), "{keys}: {after:?}");
        }
    }
}
