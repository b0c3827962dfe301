//! Settings of the hosts: an arm is what it says or stops, and everything goes back whatever ends a haul.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::thread;
use std::time::Duration;

use haul_host::link;
use haul_host::netns::Netns;
use haul_host::veth_lab::VethLab;
use haul_results::record::{Document, Status};
use haul_stats::{DoubtId, Metric};

use crate::process::{BOUND, Ended, Home, Running, doubts, wait_until, words};
use crate::site::{Named, Site, features, iproute, meddle, needs_root};

const NOCACHE: &str = "tx-nocache-copy";

/// Compares `arms` from the client of `site` with short runs.
fn compare(site: &Site, target: &str, arms: &[&str], more: &[&str]) -> Ended {
    let mut arguments = vec!["ab", "stream", target, "-t", "300ms", "--warmup", "20ms", "--format", "json"];
    arguments.extend(arms.iter().flat_map(|arm| ["--arm", arm]));
    arguments.extend(more);
    site.run(&arguments)
}

fn failure(document: &Document) -> String {
    document.failure.as_ref().map(|failure| failure.text.clone()).unwrap_or_default()
}

#[test]
fn an_arm_that_drags_other_features_along_stops_by_their_names_at_either_end_and_is_told_where_accepted() {
    let site = Site::new();
    let server = site.serve(&["--allow-settings"]);
    let before = (site.client_features(), site.server_features());
    for arm in ["off:nic.tx=off", "off:server:nic.tx=off"] {
        let document = compare(&site, &server.target(), &["on:", arm], &["--pairs", "1"]).document();
        assert_eq!((document.status, document.runs.len()), (Status::Failed, 0), "{arm}");
        let text = failure(&document);
        for needle in ["arm 'off'", "tx-tcp-segmentation", "tx-tcp6-segmentation", "--allow-side-effects"] {
            assert!(text.contains(needle), "{arm}: '{needle}' is missing from: {text}");
        }
        let end = if arm.contains("server:") { "server" } else { "client" };
        assert!(text.contains(end), "{arm}: {text}");
        assert_eq!((site.client_features(), site.server_features()), before, "{arm}");

        let accepted = ["--pairs", "1", "--allow-side-effects"];
        let document = compare(&site, &server.target(), &["on:", arm], &accepted).complete();
        let told = doubts(&document, DoubtId::SideEffects);
        assert!(told.iter().any(|text| text.contains(end) && text.contains("segmentation")), "{told:?}");
        assert_eq!(document.runs.len(), 2);
        assert_eq!((site.client_features(), site.server_features()), before, "{arm}: all of it goes back");
    }
}

#[test]
fn an_arm_that_does_not_take_is_fixed_or_changes_nothing_stops_before_the_first_run() {
    let site = Site::new();
    let server = site.serve(&["--allow-settings"]);
    let before = (site.client_features(), site.server_features());
    for (arm, exit, needles) in [
        ("b:nic.sg=off,nic.tso=on", 1, ["arm 'b'", "tx-scatter-gather"]),
        ("b:nic.lro=on", 1, ["arm 'b'", "rx-lro fixed off"]),
        ("b:nic.vlan-challenged=on", 1, ["arm 'b'", "vlan-challenged fixed off"]),
        ("b:server:nic.lro=on", 1, ["arm 'b'", "rx-lro fixed off"]),
        ("b:server:nic.sg=off,server:nic.tso=on", 1, ["arm 'b'", "tx-scatter-gather"]),
        ("b:nic.tx-nocache-coyp=on", 2, ["arm 'b'", "did you mean 'tx-nocache-copy'"]),
        ("b:server:nic.tx-nocache-coyp=on", 1, ["arm 'b'", "did you mean 'tx-nocache-copy'"]),
        ("b:nic.tso=on", 2, ["'a'", "change nothing against each other"]),
        ("b:nic.tso=on,nic.tx-tcp-segmentation=off", 2, ["arm 'b'", "contradict"]),
    ] {
        let ended = compare(&site, &server.target(), &["a:", arm], &["--pairs", "6"]);
        let document = ended.document();
        assert_eq!((ended.code, document.runs.len()), (Some(exit), 0), "{arm}: {}", failure(&document));
        for needle in needles {
            assert!(
                failure(&document).contains(needle),
                "{arm}: '{needle}' is missing from: {}",
                failure(&document)
            );
        }
        assert_eq!((site.client_features(), site.server_features()), before, "{arm}");
    }
    // Asked for and not in force: one arm would have had two features off where only one was named.
    meddle(&site.lab.client, VethLab::CLIENT_DEVICE, "tx-scatter-gather", false);
    let document =
        compare(&site, &server.target(), &["a:nic.tso=off", "b:nic.tso=on"], &["--pairs", "6"]).document();
    assert_eq!(document.runs.len(), 0);
    assert!(failure(&document).contains("tx-scatter-gather, which is off"), "{}", failure(&document));
    assert!(site.here.journals().is_empty() && site.there.journals().is_empty());
}

#[test]
fn a_server_that_was_not_told_to_allow_settings_has_none_changed() {
    let site = Site::new();
    let server = site.serve(&[]);
    let before = site.server_features();
    let ended = compare(&site, &server.target(), &["a:", "b:server:nic.gro=on"], &["--pairs", "1"]);
    assert_eq!(ended.code, Some(1));
    assert!(failure(&ended.document()).contains("--allow-settings"), "{}", failure(&ended.document()));
    assert_eq!(site.server_features(), before);
}

/// Two hosts whose namespaces outlive every haul, with a server that lets settings be changed.
struct Pair {
    named: Named,
    here: Home,
    there: Home,
}

impl Pair {
    fn new() -> Self {
        Self { named: Named::new(), here: Home::new(), there: Home::new() }
    }

    fn serve(&self) -> Running {
        let listen = format!("{}:4285", Named::SERVER_ADDRESS);
        let command = self.there.haul(&["serve", "--listen", &listen, "--allow-settings"]);
        let mut server = self.named.server_netns.run(|| Running::start(command)).unwrap();
        server.says("listening");
        server
    }

    fn client(&self, arguments: &[&str]) -> Running {
        self.named.client_netns.run(|| Running::start(self.here.haul(arguments))).unwrap()
    }

    /// Starts a comparison whose arms both have the feature on at both ends, and returns in the middle of one.
    fn in_mid_arm(&self) -> Running {
        let running = self.client(&words(&format!(
            "ab stream {} --arm on:both:nic.tx-nocache-copy=on --arm \
                too:both:nic.tx-nocache-copy=on,opt.message=64K -t 400ms --warmup 100ms --pairs 200 \
                --format json",
            Named::SERVER_ADDRESS
        )));
        wait_until("both ends to be changed", BOUND, || self.is_on() == (true, true));
        running
    }

    fn is_on(&self) -> (bool, bool) {
        let Named { client_netns, server_netns, .. } = &self.named;
        (
            features(client_netns, Named::CLIENT_DEVICE).is_active(NOCACHE),
            features(server_netns, Named::SERVER_DEVICE).is_active(NOCACHE),
        )
    }
}

#[test]
fn a_client_killed_in_mid_arm_is_put_back_by_the_next_haul_wherever_it_runs_and_the_server_does_so_itself() {
    // Any command that is about to begin something; `settings restore` does nothing else.
    for next in [
        &["settings", "restore"][..],
        &["stream", "loopback", "-t", "300ms", "--warmup", "20ms"],
        &["env", "loopback"],
        &["ab", "stream", "lab", "-t", "50ms", "--pairs", "1", "--arm", "a:", "--arm", "b:nic.tso=off"],
    ] {
        let pair = Pair::new();
        let mut server = pair.serve();
        let running = pair.in_mid_arm();
        running.signal("KILL");
        assert_eq!(running.end().signal, Some(9));
        server.says("ended: ");
        wait_until("the server to put its end back", BOUND, || !pair.is_on().1);
        assert!(pair.there.journals().is_empty());
        assert!(pair.is_on().0, "nobody has put the client's end back yet");
        assert_eq!(pair.here.journals().len(), 1);
        // In the namespace of this test, which is neither of the two.
        let ended = Running::start(pair.here.haul(next)).end();
        assert_eq!(ended.code, Some(0), "{next:?}: {ended:?}");
        assert!((ended.out + &ended.err).contains("put back (nic.tx-nocache-copy)"), "{next:?}");
        assert_eq!((pair.is_on(), pair.here.journals().len()), ((false, false), 0), "{next:?}");
    }
}

#[test]
fn a_server_killed_in_mid_arm_is_put_back_by_its_next_start_and_the_client_puts_back_its_own() {
    for next in ["serve", "restore"] {
        let pair = Pair::new();
        let server = pair.serve();
        let running = pair.in_mid_arm();
        server.signal("KILL");
        assert_eq!(server.end().signal, Some(9));
        let ended = running.end_within(Duration::from_secs(30));
        assert_eq!(ended.code, Some(4), "{ended:?}");
        assert!(ended.document().failure.is_some());
        assert_eq!(pair.is_on(), (false, true), "the client's end is back, the server's cannot be yet");
        assert!(pair.here.journals().is_empty());
        assert_eq!(pair.there.journals().len(), 1);
        if next == "serve" {
            let server = pair.serve();
            assert!(server.said().contains("put back (nic.tx-nocache-copy)"), "{}", server.said());
        } else {
            let ended = Running::start(pair.there.haul(&["settings", "restore"])).end();
            assert!(
                ended.code == Some(0) && ended.out.contains("put back (nic.tx-nocache-copy)"),
                "{ended:?}"
            );
        }
        assert_eq!((pair.is_on(), pair.there.journals().len()), ((false, false), 0));
    }
}

#[test]
fn both_ends_put_back_when_both_are_terminated_in_mid_arm() {
    for (at_client, at_server) in [("TERM", "TERM"), ("INT", "INT"), ("HUP", "TERM")] {
        let pair = Pair::new();
        let server = pair.serve();
        let running = pair.in_mid_arm();
        server.signal(at_server);
        running.signal(at_client);
        let (client, server) =
            (running.end_within(Duration::from_secs(20)), server.end_within(Duration::from_secs(20)));
        assert!(client.is_calm() && server.is_calm(), "{client:?} {server:?}");
        client.document();
        assert_eq!(pair.is_on(), (false, false));
        assert!(pair.here.journals().is_empty() && pair.there.journals().is_empty());
    }
}

#[test]
fn a_restore_without_anything_to_restore_says_so_and_a_running_haul_is_left_alone() {
    let pair = Pair::new();
    let restore = |home: &Home| Running::start(home.haul(&["settings", "restore"])).end();
    let ended = restore(&pair.here);
    assert!(
        ended.code == Some(0)
            && ended.out.contains("haul has changed nothing on this host that is not put back"),
        "{ended:?}"
    );
    let _server = pair.serve();
    let running = pair.in_mid_arm();
    let ended = restore(&pair.here);
    assert!(
        ended.code == Some(0)
            && ended.out.contains("haul has changed nothing on this host that is not put back"),
        "{ended:?}"
    );
    running.signal("INT");
    let document = running.end().document();
    assert!(document.runs.iter().all(|run| run.status != Status::Void), "{:?}", document.runs);
    assert_eq!(pair.is_on(), (false, false));
}

#[test]
fn what_somebody_else_changes_in_mid_run_voids_its_pair_and_is_named() {
    let site = Site::new();
    let mut server = site.serve(&[]);
    let target = server.target();
    let running = site.client(&words(&format!(
        "ab stream {target} --arm big:opt.message=128K --arm small:opt.message=16K --pairs 3 -t 1s \
            --warmup 100ms --format json"
    )));
    server.says("TCP stream");
    thread::sleep(Duration::from_millis(500));
    meddle(&site.lab.client, VethLab::CLIENT_DEVICE, "tx-tcp-segmentation", false);
    // A run later, a sysctl of the other end.
    wait_until("the third run", BOUND, || server.log().matches("TCP stream").count() >= 3);
    thread::sleep(Duration::from_millis(500));
    let now = |text: &str| fs::write("/proc/sys/net/ipv4/tcp_congestion_control", text).unwrap();
    let old = site
        .lab
        .server
        .run(|| fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap())
        .unwrap();
    let other = if old.trim() == "reno" { "cubic" } else { "reno" };
    site.lab.server.run(|| now(other)).unwrap();
    let document = running.end().document();
    let void: Vec<_> = document.runs.iter().filter(|run| run.status == Status::Void).collect();
    let texts: Vec<&str> = void.iter().map(|run| run.failure.as_ref().unwrap().text.as_str()).collect();
    assert!(
        texts.iter().any(|text| text.contains("client") && text.contains("tx-tcp-segmentation")),
        "{texts:?}"
    );
    assert!(
        texts.iter().any(|text| text.contains("server") && text.contains("tcp_congestion_control")),
        "{texts:?}"
    );
    assert!(!doubts(&document, DoubtId::EnvironmentChanged).is_empty());
    let rate = document.comparisons.iter().find(|it| it.metric == Metric::Throughput).unwrap();
    assert!(rate.base.n <= 2, "a void pair is not in the statistics: {rate:?}");
}

#[test]
fn what_somebody_else_changes_of_the_arms_own_feature_voids_the_run() {
    let site = Site::new();
    let mut server = site.serve(&[]);
    let target = server.target();
    let running = site.client(&words(&format!(
        "ab stream {target} --arm on:nic.tx-nocache-copy=on --arm off:nic.tx-nocache-copy=off \
            --pairs 1 -t 2s --warmup 100ms --format json --seed 1"
    )));
    server.says("TCP stream");
    thread::sleep(Duration::from_millis(500));
    let was = site.client_features().is_active(NOCACHE);
    meddle(&site.lab.client, VethLab::CLIENT_DEVICE, NOCACHE, !was);
    let document = running.end().document();
    let void = document.runs.iter().find(|run| run.status == Status::Void).expect("a void run");
    assert!(void.failure.as_ref().unwrap().text.contains(NOCACHE), "{:?}", void.failure);
    assert!(site.here.journals().is_empty());
}

#[test]
fn a_link_that_goes_down_and_up_in_mid_run_voids_it() {
    let site = Site::new();
    let mut server = site.serve(&[]);
    let target = server.target();
    let running = site.client(&["stream", &target, "-t", "2s", "--warmup", "100ms", "--format", "json"]);
    server.says("TCP stream");
    thread::sleep(Duration::from_millis(500));
    let device = site.lab.client_dev.index;
    for up in [false, true] {
        site.lab.client.run(|| link::set_up(device, up).unwrap()).unwrap();
    }
    let document = running.end().document();
    assert_eq!(document.status, Status::Failed, "{:?}", document.runs[0].status);
    let text = failure(&document);
    assert!(text.contains("carrier_changes") || text.contains("lost"), "{text}");
}

/// The network namespaces a process has threads in or descriptors of.
fn namespaces(pid: u32) -> BTreeSet<u64> {
    let own = fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
    let children =
        |path: String| fs::read_dir(path).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let threads = children(format!("/proc/{pid}/task")).map(|thread| thread.join("ns/net"));
    let links =
        threads.chain(children(format!("/proc/{pid}/fd"))).filter_map(|path| fs::read_link(path).ok());
    let numbers =
        links.filter_map(|link| link.to_str()?.strip_prefix("net:[")?.strip_suffix(']')?.parse::<u64>().ok());
    numbers.filter(|inode| *inode != own).collect()
}

/// Whether any process of this machine still has something of a namespace.
fn is_held(inode: u64) -> bool {
    let entries =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    entries.into_iter().any(|pid: u32| namespaces(pid).contains(&inode))
}

#[test]
fn nothing_is_left_behind_however_a_haul_in_the_lab_ends() {
    needs_root();
    for ending in ["exit", "INT", "TERM", "KILL"] {
        // In a namespace of its own, where links would show.
        let place = Netns::create().unwrap();
        let links = || place.run(|| link::links().unwrap()).unwrap();
        let before = links();
        let home = Home::new();
        let pairs = if ending == "exit" { "2" } else { "200" };
        let line = format!(
            "ab stream lab --arm on:both:nic.tx-nocache-copy=on --arm off: --pairs {pairs} -t 300ms --warmup 50ms --format json"
        );
        let arguments = words(&line);
        let mut running = place.run(|| Running::start(home.haul(&arguments))).unwrap();
        let mut seen = BTreeSet::new();
        wait_until("the lab, with a journal of its settings", BOUND, || {
            // A lab of its own, not the place it was started in.
            seen.extend(namespaces(running.pid()).into_iter().filter(|inode| *inode != place.id().inode));
            seen.len() >= 2 && !home.journals().is_empty() || !running.is_running()
        });
        assert!(seen.len() >= 2, "{seen:?}");
        if ending != "exit" {
            running.signal(ending);
        }
        let ended = running.end_within(BOUND);
        match ending {
            "exit" => drop(ended.complete()),
            "KILL" => assert_eq!(ended.signal, Some(9)),
            _ => assert_eq!(ended.document().status, Status::Interrupted),
        }
        for inode in seen {
            // Another test's new namespace may get the number of one that is gone: not one of ours, and not for long.
            wait_until("the lab's namespaces to go", BOUND, || !is_held(inode));
        }
        assert_eq!(links(), before, "{ending}");
        assert!(!std::path::Path::new("/run/netns").join("haul").exists());
        if ending == "KILL" {
            // The devices are gone with their namespaces, so that there is nothing to put back but the file.
            let ended = Running::start(home.haul(&["settings", "restore"])).end();
            assert!(ended.code == Some(0) && ended.out.contains("nothing to put back"), "{ended:?}");
        }
        assert!(home.journals().is_empty(), "{ending}: {:?}", home.journals());
    }
}

#[test]
fn two_labs_at_once_change_the_same_feature_and_do_not_meet() {
    needs_root();
    let home = Home::new();
    let arguments = words(
        "ab stream lab --arm on:nic.tx-nocache-copy=on --arm off:nic.tx-nocache-copy=off --pairs 3 -t 300ms --warmup 50ms --format json",
    );
    let both: Vec<Running> = (0..2).map(|_| Running::start(home.haul(&arguments))).collect();
    for running in both {
        let document = running.end().complete();
        assert_eq!(document.runs.len(), 6);
        assert!(document.runs.iter().all(|run| run.status == Status::Complete));
    }
    assert!(home.journals().is_empty());
}

#[test]
fn a_device_held_by_one_haul_is_refused_to_another_by_its_process_number() {
    let pair = Pair::new();
    let _server = pair.serve();
    let running = pair.in_mid_arm();
    let second = pair.client(&words(&format!(
        "ab stream {} --arm on:nic.tx-nocache-copy=on --arm off: --pairs 1 -t 300ms --format json",
        Named::SERVER_ADDRESS
    )));
    let document = second.end().document();
    let text = failure(&document);
    assert!(document.status == Status::Failed && document.runs.is_empty(), "{text}");
    assert!(text.contains("held by another haul") && text.contains(&running.pid().to_string()), "{text}");
    assert_eq!(pair.is_on(), (true, true), "the first one's arm is still in force");
    running.signal("INT");
    running.end();
    assert_eq!(pair.is_on(), (false, false));
}

#[test]
fn the_list_of_settings_tells_fixed_from_changeable_and_names_the_devices_there_are() {
    let site = Site::new();
    let ended = site.run(&["settings", "list", VethLab::CLIENT_DEVICE]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let line = |name: &str| {
        let found = ended.out.lines().find(|line| line.split_whitespace().next() == Some(name));
        found.unwrap_or_else(|| panic!("no {name} in {}", ended.out)).to_owned()
    };
    assert!(line("nic.tx-tcp-segmentation").ends_with("on, off"));
    for fixed in ["nic.rx-lro", "nic.vlan-challenged"] {
        assert!(line(fixed).ends_with("fixed"), "{}", line(fixed));
    }
    assert!(line("nic.mtu").contains(" 1500 "), "{}", line("nic.mtu"));
    assert!(line("sysctl.net.core.rmem_max").contains(" host "), "{}", line("sysctl.net.core.rmem_max"));
    assert!(line("sysctl.net.ipv4.tcp_rmem").contains(" namespace "), "{}", line("sysctl.net.ipv4.tcp_rmem"));
    let changeable = site.run(&["settings", "list", "198.18.0.2", "--changeable"]);
    assert!(changeable.out.starts_with(VethLab::CLIENT_DEVICE) && !changeable.out.contains("fixed"));
    let lab = site.run(&["settings", "list", "lab", "--format", "json"]);
    let lab: serde_json::Value = serde_json::from_str(&lab.out).unwrap();
    assert_eq!(lab["device"], VethLab::CLIENT_DEVICE);
    let missing = site.run(&["settings", "list", "no-such"]);
    assert_eq!(missing.code, Some(1));
    assert!(
        missing.err.contains("no-such") && missing.err.contains(VethLab::CLIENT_DEVICE),
        "{}",
        missing.err
    );
}

#[test]
fn a_setting_that_is_set_stays_is_shown_as_changed_and_is_put_back_by_restore() {
    let site = Site::new();
    let via = ["--via", VethLab::CLIENT_DEVICE];
    let haul = |arguments: &[&str]| site.run(arguments);
    let show = |name: &str| haul(&[&["settings", "show", name], &via[..]].concat()).out;
    assert!(show("nic.mtu").starts_with("nic.mtu = 1500"), "{}", show("nic.mtu"));
    let set = haul(
        &[&["settings", "set", "nic.mtu=1400", "sysctl.net.ipv4.tcp_rmem=4096 65536 1048576"], &via[..]]
            .concat(),
    );
    assert_eq!(set.code, Some(0), "{set:?}");
    assert!(
        set.out.contains("nic.mtu 1500 -> 1400") && set.out.contains("undo with: haul settings restore"),
        "{}",
        set.out
    );
    assert!(show("nic.mtu").starts_with("nic.mtu = 1400"));
    // It is nobody's fault: another command neither undoes it nor refuses.
    let run = haul(&["stream", "loopback", "-t", "100ms", "--warmup", "20ms"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(show("nic.mtu").starts_with("nic.mtu = 1400"));
    let diff = haul(&["settings", "diff"]);
    let line = diff.out.lines().find(|line| line.contains("nic.mtu")).unwrap_or_default().to_owned();
    assert!(line.contains("1500") && line.contains("1400") && line.contains("haul settings set"), "{diff:?}");
    let again = haul(&[&["settings", "set", "nic.mtu=1400"], &via[..]].concat());
    assert!(again.out.contains("nothing to change"), "{again:?}");
    let json = haul(&["settings", "diff", "--format", "json"]).out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["changed"][0]["now"]["nic.mtu"], "1400", "{json}");
    let restored = haul(&["settings", "restore"]);
    assert!(restored.code == Some(0) && restored.out.contains("nic.mtu"), "{restored:?}");
    assert!(show("nic.mtu").starts_with("nic.mtu = 1500"));
    assert!(show("sysctl.net.ipv4.tcp_rmem").contains("131072"));
    assert!(haul(&["settings", "diff"]).out.contains("changed nothing"));
    for (arguments, expected) in [
        (&["settings", "set", "server:nic.mtu=1400"][..], "leave the end out"),
        (&["settings", "set", "nic.mtu=1"], "68 to"),
        (&["settings", "set", "nic.mtuu=1400"], "on or off"),
        (&["settings", "show", "nic.frob"], "haul settings list"),
    ] {
        let ended = haul(&[arguments, &via[..]].concat());
        assert!(ended.code != Some(0) && ended.err.contains(expected), "{arguments:?}: {ended:?}");
    }
}

/// A client is let change the path of packets; what can run programs as root takes a word of its own.
#[test]
fn a_server_that_allows_settings_runs_no_commands_unless_told_so() {
    let site = Site::new();
    for (allow, runs) in
        [("--allow-settings", false), ("--allow-settings=path", false), ("--allow-settings=anything", true)]
    {
        let server = site.serve(&[allow]);
        let target = server.target();
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("made");
        let hook = format!("on:server:exec:'touch {0}','rm -f {0}'", file.display());
        let arms = ["--arm", "off:", "--arm", &hook, "--allow-global"];
        let ended = site.run(
            &[
                &["ab", "rr", &target, "-t", "30ms", "--warmup", "10ms", "--pairs", "1", "--format", "json"],
                &arms[..],
            ]
            .concat(),
        );
        let document = ended.document();
        if runs {
            assert_eq!(document.runs.len(), 2, "{document:?}");
            assert!(ended.code == Some(0) || ended.code == Some(1), "{ended:?}");
            assert!(document.runs.iter().all(|run| run.status == Status::Complete), "{:?}", document.runs);
        } else {
            let problem = failure(&document);
            assert!(
                problem.contains("--allow-settings=anything") && problem.contains("as root"),
                "{problem}"
            );
        }
        assert!(!file.exists(), "{allow}");
    }
}

/// A tap device has interrupt coalescing and a veth channels, of what this machine can make.
#[test]
fn coalescing_and_channels_are_set_on_devices_that_have_them() {
    let site = Site::new();
    let tap = || {
        iproute("ip", "tuntap add dev tap0 mode tap");
        iproute("ip", "link set tap0 up");
    };
    site.lab.client.run(tap).unwrap();
    for (device, setting, name, before, after) in [
        ("tap0", "nic.coalesce.rx-frames=4", "nic.coalesce.rx-frames", "0", "4"),
        (VethLab::CLIENT_DEVICE, "nic.channels.tx=1", "nic.channels.tx", "", "1"),
    ] {
        let via = ["--via", device];
        let state = || {
            let shown = site.run(&[&["settings", "show", name], &via[..]].concat());
            let (_, value) =
                shown.out.lines().next().and_then(|line| line.split_once(" = ")).unwrap_or_default();
            value.to_owned()
        };
        let found = state();
        assert!(before.is_empty() || found == before, "{name} is {found}");
        if found == after {
            println!("{device} has one {name} only: nothing to change");
            continue;
        }
        let set = site.run(&[&["settings", "set", setting], &via[..]].concat());
        assert_eq!(set.code, Some(0), "{set:?}");
        assert_eq!(state(), after, "{set:?}");
        assert_eq!(site.run(&["settings", "restore"]).code, Some(0));
        assert_eq!(state(), found);
    }
    for (setting, expected) in [
        ("nic.coalesce.rx-usecs=8", "its driver has, of coalesce, rx-frames"),
        ("nic.ring.rx=512", "no ring to set"),
    ] {
        let refused = site.run(&["settings", "set", setting, "--via", "tap0"]);
        assert!(refused.code == Some(1) && refused.err.contains(expected), "{refused:?}");
    }
}
