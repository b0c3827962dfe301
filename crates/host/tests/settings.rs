//! Settings on real devices: every way a change can go wrong, and every way a haul can end while it holds one.
//!
//! Each test has a veth pair of its own in an anonymous network namespace, so no test touches the host or another
//! test. They need root, and say so where they do not have it.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use haul_host::ethtool::{self, Features};
use haul_host::journal::{self, Outcome, Which};
use haul_host::link::{self, Link};
use haul_host::netns::Netns;
use haul_host::settings::{Consent, Item, Setting, SettingError, Tuner};
use haul_host::{HostError, privilege};
use haul_stats::ByteCount;
use tempfile::TempDir;

/// Tells a child process its part.
const PART: &str = "HAUL_TEST_PART";

const NOCACHE: &str = "nic.tx-nocache-copy=on";

/// What comes along is accepted.
const ACCEPT: Consent = Consent { side_effects: true, global: false };

/// A device to change, and a directory for journals.
struct Bench {
    directory: TempDir,
    device: Link,
    netns: Netns,
}

impl Bench {
    fn journals(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.directory.path()).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl")).collect()
    }

    fn the_journal(&self) -> PathBuf {
        let journals = self.journals();
        assert_eq!(journals.len(), 1, "{journals:?}");
        journals[0].clone()
    }

    fn tuner(&self) -> Tuner {
        Tuner::open(self.directory.path(), &self.device).unwrap()
    }

    fn tuner_at(&self, directory: &Path) -> Tuner {
        Tuner::open(directory, &self.device).unwrap()
    }

    fn features(&self) -> Features {
        ethtool::features(self.device.index).unwrap()
    }

    /// A change behind haul's back.
    fn set(&self, bits: &[(&str, bool)]) {
        ethtool::set_wanted(self.device.index, &self.device.name, bits).unwrap();
    }

    /// Starts another haul that holds `settings`, in this network namespace.
    fn child(&self, mode: &str, settings: &[&str]) -> Holder {
        Holder::start(another_haul(&this_program(), self.directory.path(), mode, settings))
    }

    fn recover(&self) -> Vec<Outcome> {
        let recoveries = journal::recover(self.directory.path(), Which::Dead).unwrap();
        recoveries.into_iter().map(|recovery| recovery.outcome).collect()
    }
}

/// Another haul.
struct Holder(Child);

impl Holder {
    fn start(mut command: Command) -> Self {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.unwrap();
        let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        let held = lines.any(|line| line.unwrap() == "held");
        let mut holder = Self(child);
        assert!(held, "the other haul ended: {}", holder.failure());
        holder
    }

    /// `kill -9`.
    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Lets it end by itself.
    fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }

    fn failure(&mut self) -> String {
        let mut text = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        self.0.wait().unwrap();
        text
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Another haul is this program once more, running the one test that plays a part where it is given one.
fn another_haul(program: &Path, directory: &Path, mode: &str, settings: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(["--exact", "another_haul_holds_its_settings_until_it_ends", "--nocapture"]);
    command.env(PART, [&[directory.to_str().unwrap(), mode], settings].concat().join("\n"));
    command
}

fn this_program() -> PathBuf {
    std::env::current_exe().unwrap()
}

/// A process of its own changes a device, and puts it back when it ends. Given a part, this is that process: it first puts
/// back what an earlier haul left. `hold` then applies the settings to `va`, says so and waits for its
/// standard input to end; `churn` says so and then applies, switches and restores until it is killed.
#[test]
fn another_haul_holds_its_settings_until_it_ends() {
    match std::env::var(PART) {
        Ok(part) => play(&part),
        Err(_) => on_a_bench(|bench| {
            let before = bench.features();
            let other = bench.child("hold", &[NOCACHE]);
            assert_ne!(bench.features(), before);
            other.end();
            assert_eq!(bench.features(), before);
            assert!(bench.journals().is_empty());
        }),
    }
}

fn play(part: &str) {
    let [directory, mode, texts @ ..] = &part.split('\n').collect::<Vec<_>>()[..] else {
        panic!("no part: {part}")
    };
    let (directory, settings) = (Path::new(directory), settings(texts));
    journal::recover(directory, Which::Dead).unwrap();
    let mut tuner = Tuner::open(directory, &link::link_by_name("va").unwrap()).unwrap();
    let said = || writeln!(std::io::stdout(), "\nheld").and_then(|()| std::io::stdout().flush()).unwrap();
    if *mode == "churn" {
        said();
        loop {
            tuner.apply(&settings, ACCEPT).unwrap();
            tuner.apply(&settings[1..], ACCEPT).unwrap();
            tuner.restore().unwrap();
        }
    }
    if let Err(error) = tuner.apply(&settings, ACCEPT) {
        panic!("{error}\n{error:?}");
    }
    said();
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    tuner.restore().unwrap();
}

/// So many features that their line in the journal crosses the limit of [`with_full_disk`] half-way.
const MANY: [&str; 6] = [NOCACHE, "nic.tx=off", "nic.tso=off", "nic.sg=off", "nic.gso=off", "nic.gro=on"];

/// The same command with the shell's limit on file sizes, in blocks of 512 bytes. It stops a write half-way, as a full
/// disk does, with an error, or else by a signal that kills.
fn with_full_disk(command: &Command, blocks: u32, survive: bool) -> Command {
    let trap = if survive { "trap '' XFSZ; " } else { "" };
    let mut limited = Command::new("/bin/sh");
    limited.arg("-c").arg(format!("{trap}ulimit -c 0; ulimit -f {blocks}; exec \"$@\"")).arg("sh");
    limited.arg(command.get_program()).args(command.get_args());
    limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    limited
}

/// Runs `test` beside a veth device in a network namespace of its own.
fn on_a_bench(test: impl FnOnce(&Bench) + Send) {
    assert!(privilege::effective_root(), "this test makes network devices: run it as root");
    let netns = Netns::create().unwrap();
    netns.run(|| test(&make_bench(&netns))).unwrap();
}

fn make_bench(netns: &Netns) -> Bench {
    link::create_veth("va", "vb", netns, ByteCount(1500)).unwrap();
    let device = link::link_by_name("va").unwrap();
    for name in ["va", "vb"] {
        link::set_up(link::link_by_name(name).unwrap().index, true).unwrap();
    }
    Bench { directory: tempfile::tempdir().unwrap(), device, netns: netns.clone() }
}

fn settings(texts: &[&str]) -> Vec<Setting> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// The error about a setting, and its text.
fn refusal<T: std::fmt::Debug>(result: Result<T, HostError>) -> (SettingError, String) {
    match result {
        Err(HostError::Setting(error)) => {
            let text = error.to_string();
            (*error, text)
        }
        other => panic!("not an error about a setting: {other:?}"),
    }
}

fn item(text: &str) -> Item {
    text.parse().unwrap()
}

fn restored(features: &[&str]) -> Outcome {
    let changed = features.iter().map(|name| item(&format!("nic.{name}"))).collect();
    Outcome::Restored { changed, unlike: Vec::new() }
}

#[test]
fn a_setting_takes_is_verified_and_goes_back_and_its_journal_goes_too() {
    on_a_bench(|bench| {
        let before = bench.features();
        let mut tuner = bench.tuner();
        let plan = tuner.plan(&settings(&[NOCACHE, "nic.gso=on"])).unwrap();
        assert_eq!(plan.changes[0].to_string(), "nic.tx-nocache-copy off -> on");
        assert_eq!(plan.already, [item("nic.tx-generic-segmentation")]);
        assert_eq!((plan.refusals.len(), plan.side_effects.len(), plan.changes.len()), (0, 0, 1));
        assert_eq!(bench.features(), before, "a plan touches nothing");
        assert!(bench.journals().is_empty(), "a plan writes nothing");

        let applied = tuner.apply(&settings(&[NOCACHE]), Consent::default()).unwrap();
        assert_eq!(applied.changed, plan.changes);
        assert!(bench.features().is_active("tx-nocache-copy"));
        assert!(fs::read_to_string(bench.the_journal()).unwrap().contains("tx-nocache-copy"));
        tuner.verify().unwrap();
        tuner.restore().unwrap();
        assert_eq!(bench.features(), before);
        assert!(bench.journals().is_empty());
        tuner.restore().unwrap();
    });
}

#[test]
fn a_setting_that_drags_others_is_refused_by_their_names_unless_accepted() {
    on_a_bench(|bench| {
        let before = bench.features();
        let mut tuner = bench.tuner();
        let plan = tuner.plan(&settings(&["nic.tx=off"])).unwrap();
        let (error, text) = refusal(tuner.apply(&settings(&["nic.tx=off"]), Consent::default()));
        let SettingError::SideEffects { changes, .. } = error else { panic!("{text}") };
        assert!(
            text.contains("tx-tcp-segmentation on -> off") && text.contains("--allow-side-effects"),
            "{text}"
        );
        assert_eq!(plan.side_effects, changes, "the plan foresees on veth what happens");
        assert_eq!(bench.features(), before, "undone");
        assert!(bench.journals().is_empty(), "nothing is held");

        let applied = tuner.apply(&settings(&["nic.tx=off"]), ACCEPT).unwrap();
        assert_eq!(applied.side_effects, changes);
        // What the first arm dragged along and the second brings back is no side effect of the second.
        let back = tuner.apply(&settings(&["nic.tx=on"]), Consent::default()).unwrap();
        assert_eq!(back.side_effects, []);
        tuner.restore().unwrap();
        assert_eq!(bench.features(), before);

        // Named, they are no side effects.
        let named: Vec<String> = changes
            .iter()
            .map(|change| format!("{}=off", change.item))
            .chain(["nic.tx=off".into()])
            .collect();
        let named: Vec<&str> = named.iter().map(String::as_str).collect();
        assert_eq!(tuner.apply(&settings(&named), Consent::default()).unwrap().side_effects, []);
        drop(tuner);
        assert_eq!(bench.features(), before);
    });
}

#[test]
fn a_setting_that_does_not_take_is_refused_with_the_reason() {
    on_a_bench(|bench| {
        for wanted in [true, false] {
            bench.set(&[("tx-scatter-gather", false), ("tx-tcp-segmentation", wanted)]);
            let before = bench.features();
            assert!(!before.is_active("tx-tcp-segmentation"));
            let mut tuner = bench.tuner();
            let plan = tuner.plan(&settings(&["nic.tx-tcp-segmentation=on"])).unwrap();
            let (error, text) =
                refusal(tuner.apply(&settings(&["nic.tx-tcp-segmentation=on"]), Consent::default()));
            let SettingError::NotTaken { refused, .. } = error else { panic!("{text}") };
            assert!(text.contains("it needs tx-scatter-gather, which is off"), "{text}");
            assert_eq!(plan.refusals, refused);
            assert_eq!(bench.features(), before, "undone, with wanted {wanted}");
            assert!(bench.journals().is_empty());
            bench.set(&[("tx-scatter-gather", true), ("tx-tcp-segmentation", true)]);
        }
        // With what it needs it is taken.
        bench.set(&[("tx-scatter-gather", false), ("tx-tcp-segmentation", false)]);
        let mut tuner = bench.tuner();
        tuner.apply(&settings(&["nic.sg=on", "nic.tso=on"]), ACCEPT).unwrap();
        assert!(bench.features().is_active("tx-tcp-segmentation"));
    });
}

#[test]
fn what_cannot_be_changed_here_is_said_before_anything_is_touched() {
    on_a_bench(|bench| {
        let mut tuner = bench.tuner();
        for (text, expected) in [
            ("nic.lro=on", "rx-lro fixed off"),
            ("nic.tx-lockless=off", "has no feature of that name"),
            ("nic.netns-local=on", "has no feature of that name"),
            ("nic.vlan-challenged=on", "fixed off"),
            ("nic.tx-nocache-cpy=on", "did you mean 'tx-nocache-copy'"),
        ] {
            let (_, problem) = refusal(tuner.plan(&settings(&[text])));
            assert!(problem.contains(expected) || problem.contains("fixed"), "{text}: {problem}");
            let (_, again) = refusal(tuner.apply(&settings(&[text]), ACCEPT));
            assert_eq!(problem, again);
        }
        let (error, text) =
            refusal(tuner.apply(&settings(&["nic.tso=off", "nic.tx-tcp6-segmentation=on"]), ACCEPT));
        assert!(matches!(error, SettingError::Conflict { .. }), "{text}");
        assert!(bench.journals().is_empty());
        // As asked already.
        assert_eq!(tuner.plan(&settings(&["nic.lro=off"])).unwrap().changes, []);
    });
}

#[test]
fn settings_no_longer_listed_go_back_when_the_arm_changes() {
    on_a_bench(|bench| {
        let before = bench.features();
        let mut tuner = bench.tuner();
        tuner.apply(&settings(&[NOCACHE, "nic.gro=on"]), Consent::default()).unwrap();
        let applied = tuner.apply(&settings(&["nic.gro=on", "nic.tso=off"]), ACCEPT).unwrap();
        let features = bench.features();
        assert!(!features.is_active("tx-nocache-copy") && features.is_active("rx-gro"));
        assert!(!features.is_active("tx-tcp-segmentation"));
        let changed: BTreeMap<_, _> =
            applied.changed.iter().map(|change| (change.item.to_string(), change.after.as_str())).collect();
        assert_eq!(changed.get("nic.tx-nocache-copy"), Some(&"off"));
        assert_eq!(changed.get("nic.rx-gro"), None, "it was on already");
        tuner.verify().unwrap();
        // A failed arm leaves the arm before it in place.
        refusal(tuner.apply(&settings(&["nic.tx=off"]), Consent::default()));
        assert_eq!(bench.features(), features);
        tuner.verify().unwrap();
        tuner.apply(&[], Consent::default()).unwrap();
        assert_eq!(bench.features(), before);
        // What went back is no longer haul's.
        bench.set(&[("tx-nocache-copy", true)]);
        tuner.restore().unwrap();
        assert!(bench.features().is_active("tx-nocache-copy"));
        bench.set(&[("tx-nocache-copy", false)]);
        assert_eq!(bench.features(), before);
        assert!(bench.journals().is_empty());
    });
}

#[test]
fn what_was_wanted_and_not_in_force_is_wanted_again() {
    on_a_bench(|bench| {
        bench.set(&[("tx-scatter-gather", false)]);
        let before = bench.features();
        assert!(before.is_wanted("tx-tcp-segmentation") && !before.is_active("tx-tcp-segmentation"));
        let mut tuner = bench.tuner();
        tuner.apply(&settings(&["nic.tx-tcp-segmentation=off"]), Consent::default()).unwrap();
        assert!(!bench.features().is_wanted("tx-tcp-segmentation"));
        tuner.restore().unwrap();
        assert_eq!(bench.features(), before);
        bench.set(&[("tx-scatter-gather", true)]);
        assert!(bench.features().is_active("tx-tcp-segmentation"));
    });
}

#[test]
fn a_change_by_somebody_else_is_noticed_named_and_survived() {
    on_a_bench(|bench| {
        let before = bench.features();
        let mut tuner = bench.tuner();
        tuner.verify().unwrap();
        tuner.apply(&settings(&[NOCACHE]), Consent::default()).unwrap();
        // On a held feature.
        bench.set(&[("tx-nocache-copy", false)]);
        let (_, text) = refusal(tuner.verify());
        assert!(text.contains("somebody else") && text.contains("tx-nocache-copy on -> off"), "{text}");
        // Another arm goes on from there.
        tuner.apply(&settings(&[NOCACHE]), Consent::default()).unwrap();
        tuner.verify().unwrap();
        // On a feature haul does not hold: neither a side effect of the next arm, nor haul's to put back.
        bench.set(&[("rx-gro", true)]);
        assert!(matches!(refusal(tuner.verify()).0, SettingError::Foreign { .. }));
        assert_eq!(tuner.apply(&settings(&[NOCACHE]), Consent::default()).unwrap().side_effects, []);
        // Asked for and not in force is noticed too.
        bench.set(&[("tx-scatter-gather", false)]);
        tuner.apply(&settings(&[NOCACHE]), ACCEPT).unwrap();
        bench.set(&[("tx-generic-segmentation", false)]);
        assert!(refusal(tuner.verify()).1.contains("tx-generic-segmentation"));
        bench.set(&[("tx-scatter-gather", true), ("tx-generic-segmentation", true)]);
        tuner.restore().unwrap();
        let after = bench.features();
        assert!(after.is_active("rx-gro"), "somebody else's change stays");
        bench.set(&[("rx-gro", false)]);
        assert_eq!(bench.features(), before);
    });
}

#[test]
fn a_feature_that_is_back_and_yet_not_in_force_is_said() {
    on_a_bench(|bench| {
        let mut tuner = bench.tuner();
        tuner.apply(&settings(&["nic.gso=off"]), ACCEPT).unwrap();
        bench.set(&[("tx-scatter-gather", false)]);
        let (_, text) = refusal(tuner.restore());
        assert!(text.contains("tx-generic-segmentation is not in force"), "{text}");
        assert!(bench.features().is_wanted("tx-generic-segmentation"));
        assert!(bench.journals().is_empty(), "nothing is left to do");
    });
}

#[test]
fn two_hauls_at_once_are_kept_apart_by_a_lock_that_names_its_holder() {
    on_a_bench(|bench| {
        let holder = bench.child("hold", &[NOCACHE, "nic.gso=on"]);
        let features = bench.features();
        let mut tuner = bench.tuner();
        // What it changed, what it relies on, and what it has nothing to do with: the other's measurement suffers all the same.
        for text in ["nic.tx-nocache-copy=off", NOCACHE, "nic.gso=off", "nic.rx-gro-list=on", "nic.mtu=1400"]
        {
            let (error, problem) = refusal(tuner.apply(&settings(&[text]), ACCEPT));
            let SettingError::Held { pid, command, items, .. } = error else { panic!("{problem}") };
            assert_eq!(pid, holder.0.id(), "{problem}");
            assert!(command.starts_with("settings-"), "it was started as {command}");
            assert!(items.contains(&item("nic.tx-nocache-copy")), "{problem}");
        }
        assert_eq!(bench.features(), features);
        assert_eq!(bench.recover(), [], "journals of the living are left alone");
        let open = journal::list(bench.directory.path()).unwrap();
        assert_eq!(open.iter().map(|open| open.alive).collect::<Vec<_>>(), [true]);
        holder.end();
        assert!(!bench.features().is_active("tx-nocache-copy"));
        tuner.apply(&settings(&["nic.rx-gro-list=on"]), Consent::default()).unwrap();
        // A second one of this process is no better.
        let mut second = bench.tuner();
        let (error, problem) = refusal(second.apply(&settings(&[NOCACHE]), Consent::default()));
        assert!(matches!(error, SettingError::HeldHere { .. }), "{problem}");
        tuner.restore().unwrap();
        second.apply(&settings(&[NOCACHE]), Consent::default()).unwrap();
        // Another network namespace is another place.
        on_a_bench(|other| {
            other.tuner_at(bench.directory.path()).apply(&settings(&[NOCACHE]), Consent::default()).unwrap();
        });
    });
}

#[test]
fn a_haul_killed_while_it_holds_a_change_is_put_back_by_the_next() {
    on_a_bench(|bench| {
        bench.set(&[("tx-scatter-gather-fraglist", false)]);
        let before = bench.features();
        let holder = bench.child("hold", &[NOCACHE, "nic.tx=off", "nic.sg=off"]);
        assert_ne!(bench.features(), before);
        holder.kill();
        assert!(bench.features().is_active("tx-nocache-copy"), "nobody has put it back yet");

        let mut tuner = bench.tuner();
        let (error, text) = refusal(tuner.apply(&settings(&["nic.gro=on"]), Consent::default()));
        assert!(
            matches!(error, SettingError::Unrestored { .. }) && text.contains("haul settings restore"),
            "{text}"
        );

        let expected = ["tx-checksum-ip-generic", "tx-checksum-sctp", "tx-nocache-copy", "tx-scatter-gather"];
        let recoveries = journal::recover(bench.directory.path(), Which::Dead).unwrap();
        assert_eq!(
            recoveries.iter().map(|recovery| recovery.outcome.clone()).collect::<Vec<_>>(),
            [restored(&expected)]
        );
        assert!(
            recoveries[0].to_string().contains("on va: put back (nic.tx-checksum-ip-generic"),
            "{}",
            recoveries[0]
        );
        assert_eq!(bench.features(), before);
        assert!(bench.journals().is_empty());
        assert_eq!(bench.recover(), []);
        tuner.apply(&settings(&["nic.gro=on"]), Consent::default()).unwrap();
    });
}

/// A small generator (splitmix64), so that a failure can be repeated from the seed it prints.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[test]
fn a_haul_killed_at_any_moment_is_put_back() {
    const SEED: u64 = 4285;
    const KILLS: usize = 120;
    on_a_bench(|bench| {
        let before = bench.features();
        let mut state = SEED;
        let (mut found_changed, mut found_journal) = (0, 0);
        for kill in 0..KILLS {
            // Nothing is put back between two kills but by the next haul itself.
            let mut command = another_haul(
                &this_program(),
                bench.directory.path(),
                "churn",
                &[NOCACHE, "nic.tx=off", "nic.gro=on"],
            );
            let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let ready = lines.by_ref().map(Result::unwrap).find(|line| line == "held");
            assert!(ready.is_some(), "seed {SEED}, kill {kill}: the next haul did not start");
            std::thread::sleep(Duration::from_micros(random(&mut state) % 20_000));
            child.kill().unwrap();
            let _ = child.wait().unwrap();
            found_changed += usize::from(bench.features() != before);
            found_journal += usize::from(!bench.journals().is_empty());
        }
        println!(
            "seed {SEED}: {KILLS} kills, {found_changed} left features changed, {found_journal} left a journal"
        );
        assert!(found_changed > KILLS / 10, "the kills came at moments that prove nothing");
        for outcome in bench.recover() {
            assert!(!matches!(outcome, Outcome::Kept { .. }), "{outcome:?}");
        }
        assert_eq!(bench.features(), before, "seed {SEED}");
        assert!(bench.journals().is_empty());
    });
}

#[test]
fn a_journal_of_a_change_that_was_not_made_changes_nothing() {
    on_a_bench(|bench| {
        let before = bench.features();
        bench.child("hold", &[NOCACHE]).kill();
        // As if it had been killed between the journal and the change.
        bench.set(&[("tx-nocache-copy", false)]);
        assert_eq!(bench.recover(), [restored(&[])]);
        assert_eq!(bench.features(), before);
    });
}

#[test]
fn a_torn_journal_is_used_as_far_as_it_goes_and_a_damaged_one_is_kept() {
    on_a_bench(|bench| {
        let before = bench.features();
        bench.child("hold", &[NOCACHE]).kill();
        let path = bench.the_journal();
        let whole = fs::read_to_string(&path).unwrap();
        let append = |text: &str| {
            OpenOptions::new().append(true).open(&path).unwrap().write_all(text.as_bytes()).unwrap();
        };
        append("{\"hold\":{\"items\":{\"nic.rx-g");
        assert_eq!(bench.recover(), [restored(&["tx-nocache-copy"])]);
        assert_eq!(bench.features(), before);

        bench.set(&[("tx-nocache-copy", true)]);
        fs::write(&path, whole.replacen("tx-nocache-copy\":{\"wan", "\0\0\0", 1)).unwrap();
        let outcomes = bench.recover();
        assert!(
            matches!(&outcomes[..], [Outcome::Kept { problem, .. }] if problem.contains("line 2 is damaged")),
            "{outcomes:?}"
        );
        let (error, text) = refusal(bench.tuner().apply(&settings(&["nic.gro=on"]), Consent::default()));
        assert!(matches!(error, SettingError::Journal { .. }), "{text}");
        assert!(path.exists());

        // Nothing but half an owner: it died before it could change anything.
        fs::write(&path, &whole[..40]).unwrap();
        assert!(matches!(&bench.recover()[..], [Outcome::Unneeded { .. }]));
        assert!(bench.journals().is_empty());
    });
}

#[test]
fn a_journal_of_another_boot_or_another_device_touches_nothing() {
    on_a_bench(|bench| {
        bench.child("hold", &[NOCACHE]).kill();
        let path = bench.the_journal();
        let whole = fs::read_to_string(&path).unwrap();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let mac = &bench.device.mac;
        let left = bench.features();
        for (from, to, expected) in [
            (boot.trim().to_owned(), "another-boot".to_owned(), "the machine has booted since"),
            ("\"index\":".to_owned(), "\"index\":9".to_owned(), "device no longer exists"),
        ] {
            assert!(whole.contains(&from), "{from} in {whole}");
            fs::write(&path, whole.replace(&from, &to)).unwrap();
            let outcomes = bench.recover();
            assert!(
                matches!(&outcomes[..], [Outcome::Unneeded { reason }] if reason.contains(expected)),
                "{outcomes:?}"
            );
            assert!(bench.journals().is_empty());
            assert_eq!(bench.features(), left, "{expected}: nothing was touched");
        }
        // The same place with another address, and with another name too: nobody can tell.
        for (from, to) in [
            (mac.clone(), "02:00:00:00:00:01"),
            (format!("va\",\"mac\":\"{mac}"), "vc\",\"mac\":\"02:00:00:00:00:01"),
        ] {
            fs::write(&path, whole.replace(&from, to)).unwrap();
            let outcomes = bench.recover();
            assert!(
                matches!(&outcomes[..], [Outcome::Kept { problem, .. }] if problem.contains(mac)),
                "{outcomes:?}"
            );
            assert_eq!(bench.features(), left);
        }
        // And the true one still works.
        fs::write(&path, whole).unwrap();
        assert_eq!(bench.recover(), [restored(&["tx-nocache-copy"])]);
    });
}

#[test]
fn a_device_in_a_namespace_without_a_name_is_found_from_outside_and_a_dead_one_is_let_go() {
    assert!(privilege::effective_root(), "this test makes network devices: run it as root");
    let netns = Netns::create().unwrap();
    let bench = netns.run(|| make_bench(&netns)).unwrap();
    netns.run(|| bench.child("hold", &[NOCACHE]).kill()).unwrap();
    assert!(netns.run(|| bench.features()).unwrap().is_active("tx-nocache-copy"));
    // Only the descriptors of this process keep it alive.
    assert_eq!(bench.recover(), [restored(&["tx-nocache-copy"])]);
    assert!(!netns.run(|| bench.features()).unwrap().is_active("tx-nocache-copy"));

    netns.run(|| bench.child("hold", &[NOCACHE]).kill()).unwrap();
    let Bench { directory, netns: last, .. } = bench;
    drop((netns, last));
    let recoveries = journal::recover(directory.path(), Which::Dead).unwrap();
    let [recovery] = &recoveries[..] else { panic!("{recoveries:?}") };
    assert!(
        recovery.to_string().contains("nothing to put back: its network namespace no longer exists"),
        "{recovery}"
    );
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "only the lock is left");
}

#[test]
fn a_device_that_outlived_its_namespace_is_known_by_its_name_and_address() {
    // What happens to a physical device when its namespace ends; a veth would end with it. So the journal is made to
    // name a namespace that no longer exists: the same number with another cookie.
    on_a_bench(|bench| {
        let before = bench.features();
        let mac = &bench.device.mac;
        let cookie = bench.netns.id().cookie.unwrap();
        for (address, expected) in [("02:00:00:00:00:01", false), (mac.as_str(), true)] {
            bench.child("hold", &[NOCACHE]).kill();
            let path = bench.the_journal();
            let text = fs::read_to_string(&path).unwrap();
            let text = text.replace(&format!("\"cookie\":{cookie}"), &format!("\"cookie\":{}", cookie + 1));
            fs::write(&path, text.replace(mac, address)).unwrap();
            let outcomes = bench.recover();
            assert_eq!(matches!(outcomes[..], [Outcome::Restored { .. }]), expected, "{outcomes:?}");
            assert_eq!(bench.features() == before, expected);
            bench.set(&[("tx-nocache-copy", false)]);
        }
    });
}

#[test]
fn a_device_that_goes_away_while_held_is_no_error_and_one_that_was_replaced_is_left_alone() {
    on_a_bench(|bench| {
        let mut tuner = bench.tuner();
        tuner.apply(&settings(&[NOCACHE]), Consent::default()).unwrap();
        link::delete(bench.device.index).unwrap();
        let (_, text) = refusal(tuner.verify());
        assert!(text.contains("va is gone: no device has the index"), "{text}");
        link::create_veth("va", "vb", &bench.netns, ByteCount(1500)).unwrap();
        let new = link::link_by_name("va").unwrap();
        let features = ethtool::features(new.index).unwrap();
        tuner.restore().unwrap();
        assert!(bench.journals().is_empty());
        assert_eq!(ethtool::features(new.index).unwrap(), features);
    });
}

#[test]
fn a_journal_that_cannot_be_written_stops_the_change_before_it_is_made() {
    on_a_bench(|bench| {
        let before = bench.features();
        // A file where the directory should be.
        let file = bench.directory.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Tuner::open(&file, &bench.device)
            .unwrap()
            .apply(&settings(&[NOCACHE]), Consent::default())
            .unwrap_err();
        assert!(
            error.to_string().contains("journal's directory") && error.to_string().contains("HAUL_STATE_DIR"),
            "{error}"
        );
        assert_eq!(bench.features(), before);

        // At once, and within the second line.
        for blocks in [0, 1] {
            let mut command = with_full_disk(
                &another_haul(&this_program(), bench.directory.path(), "hold", &MANY),
                blocks,
                true,
            );
            let output = command.stdin(Stdio::null()).output().unwrap();
            assert!(!output.status.success(), "{blocks} blocks");
            let text = String::from_utf8(output.stderr).unwrap();
            assert!(text.contains("write the journal") && text.contains("File too large"), "{text}");
            assert!(text.contains("nothing was changed"), "{text}");
            assert_eq!(bench.features(), before, "{blocks} blocks");
            assert!(bench.journals().is_empty(), "{blocks} blocks");
        }
    });
}

#[test]
fn a_haul_killed_as_it_writes_its_journal_has_changed_nothing() {
    on_a_bench(|bench| {
        let before = bench.features();
        let part = another_haul(&this_program(), bench.directory.path(), "hold", &MANY);
        let status = with_full_disk(&part, 1, false).output().unwrap().status;
        assert_eq!(status.signal(), Some(libc::SIGXFSZ), "{status}");
        let torn = fs::read_to_string(bench.the_journal()).unwrap();
        assert!(torn.contains("{\"hold\":") && !torn.ends_with('\n'), "{torn}");
        assert_eq!(bench.features(), before);
        assert!(matches!(&bench.recover()[..], [Outcome::Unneeded { .. }]));
        assert_eq!(bench.features(), before);
        assert!(bench.journals().is_empty());
    });
}

#[test]
fn a_user_without_the_right_is_told_so_and_leaves_nothing_behind() {
    on_a_bench(|bench| {
        let before = bench.features();
        // The build directory may be closed to other users.
        let program = bench.directory.path().join("tests");
        fs::copy(this_program(), &program).unwrap();
        let journals = bench.directory.path().join("journal");
        fs::create_dir(&journals).unwrap();
        for path in [bench.directory.path(), &journals] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        }
        let mut command = another_haul(&program, &journals, "hold", &[NOCACHE]);
        command.uid(65534).gid(65534);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains("NotPermitted") && !output.status.success(), "{text}");
        assert_eq!(bench.features(), before);
        let left: Vec<_> = fs::read_dir(&journals).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["lock"], "no journal");
    });
}

#[test]
fn a_tuner_that_is_dropped_or_unwound_in_another_namespace_puts_back_too() {
    on_a_bench(|bench| {
        let before = bench.features();
        let mut tuner = bench.tuner();
        tuner.apply(&settings(&[NOCACHE]), Consent::default()).unwrap();
        let outcome = Netns::create().unwrap().spawn("elsewhere", move || {
            let _held = tuner;
            panic!("as an experiment may, printed by the test that wants it");
        });
        assert!(outcome.unwrap().join().is_err());
        assert_eq!(bench.features(), before);
        assert!(bench.journals().is_empty());
    });
}

#[test]
fn a_change_and_its_way_back_take_milliseconds() {
    on_a_bench(|bench| {
        let mut tuner = bench.tuner();
        let start = Instant::now();
        tuner.apply(&settings(&[NOCACHE]), Consent::default()).unwrap();
        tuner.restore().unwrap();
        let took = start.elapsed();
        println!("{took:?}");
        assert!(took < Duration::from_secs(1), "{took:?}: between two runs there is no more time than that");
    });
}

#[test]
fn rings_channels_and_coalescing_are_flat_numbers_or_the_kernels_refusal() {
    on_a_bench(|bench| {
        let channels = ethtool::channels(bench.device.index).unwrap();
        assert!(channels["rx"] >= 1 && channels["tx-max"] >= channels["tx"], "{channels:?}");
        for answer in [ethtool::rings(bench.device.index), ethtool::coalesce(bench.device.index)] {
            let error = answer.expect_err("veth has neither");
            assert!(error.to_string().contains("not supported"), "{error}");
        }
        let gone = ethtool::features(9999).unwrap_err().to_string();
        assert!(gone.contains("read the features of the network device with index 9999"), "{gone}");
    });
}
