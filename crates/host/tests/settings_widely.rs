//! Settings of every kind on real devices and on trees that stand in for what this machine lacks: that each takes, is seen
//! where somebody else changes it, and goes back; and that a death between any two steps leaves nothing behind.
//!
//! Each test has a veth pair of its own in an anonymous network namespace. They need root, and say so where they do not
//! have it. What is the whole host's is changed in trees of files only.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use haul_host::journal::{self, Outcome, Which};
use haul_host::link::{self, Link};
use haul_host::netns::Netns;
use haul_host::settings::{Consent, Roots, Setting, SettingError, Step, Tuner, catalogue, lookup};
use haul_host::{HostError, privilege};
use haul_stats::ByteCount;
use tempfile::TempDir;

/// Tells a child process its part.
const PART: &str = "HAUL_TEST_PART";

/// What comes along, and what is the whole host's, is accepted.
const ANYTHING: Consent = Consent { side_effects: true, global: true };

struct Bench {
    directory: TempDir,
    device: Link,
    roots: Roots,
}

impl Bench {
    fn tuner(&self) -> Tuner {
        Tuner::open_with(self.directory.path(), &self.device, self.roots.clone()).unwrap()
    }

    /// Everything that can be set, as it is.
    fn all(&self) -> BTreeMap<String, String> {
        let entries = catalogue(&self.device, &self.roots).unwrap();
        entries.into_iter().map(|entry| (entry.name, entry.value)).collect()
    }

    fn value(&self, name: &str) -> String {
        self.all().get(name).unwrap_or_else(|| panic!("{name} is not listed")).clone()
    }

    fn journals(&self) -> usize {
        let entries = fs::read_dir(self.directory.path()).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl")).count()
    }
}

fn on_a_bench(test: impl FnOnce(&Bench) + Send) {
    on_a_bench_with(Roots::default(), test);
}

fn on_a_bench_with(roots: Roots, test: impl FnOnce(&Bench) + Send) {
    assert!(privilege::effective_root(), "this test makes network devices: run it as root");
    let netns = Netns::create().unwrap();
    let work = || {
        link::create_veth("va", "vb", &netns, ByteCount(1500)).unwrap();
        for name in ["va", "vb"] {
            link::set_up(link::link_by_name(name).unwrap().index, true).unwrap();
        }
        let index = link::link_by_name("va").unwrap().index;
        let device = link::wait_for_carrier(index, std::time::Duration::from_secs(2)).unwrap();
        test(&Bench { directory: tempfile::tempdir().unwrap(), device, roots });
    };
    netns.run(work).unwrap();
}

fn settings(texts: &[&str]) -> Vec<Setting> {
    texts.iter().map(|text| text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))).collect()
}

fn refusal<T: std::fmt::Debug>(result: Result<T, HostError>) -> (SettingError, String) {
    match result {
        Err(HostError::Setting(error)) => {
            let text = error.to_string();
            (*error, text)
        }
        other => panic!("not an error about a setting: {other:?}"),
    }
}

/// What a veth can do, one of each kind, with the name it is listed by and the state it is listed with then.
const ON_A_VETH: &[(&str, &str, &str)] = &[
    ("nic.tx-nocache-copy=on", "nic.tx-nocache-copy", "on"),
    ("nic.mtu=1400", "nic.mtu", "1400"),
    ("nic.txqueuelen=500", "nic.txqueuelen", "500"),
    ("nic.napi.defer-hard-irqs=2", "nic.napi.defer-hard-irqs", "2"),
    ("nic.napi.gro-flush-timeout=20000", "nic.napi.gro-flush-timeout", "20000"),
    ("nic.rps=0", "nic.rps", "0"),
    ("qdisc=pfifo limit 50", "qdisc", "pfifo"),
    ("sysctl.net.ipv4.tcp_rmem=4096 65536 1048576", "sysctl.net.ipv4.tcp_rmem", "4096 65536 1048576"),
    ("sysctl.net/core/somaxconn=77", "sysctl.net.core.somaxconn", "77"),
];

#[test]
fn each_kind_takes_is_verified_and_goes_back() {
    on_a_bench(|bench| {
        let before = bench.all();
        for (text, name, state) in ON_A_VETH {
            let mut tuner = bench.tuner();
            let applied = tuner
                .apply(&settings(&[text]), Consent::default())
                .unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(applied.side_effects, [], "{text}");
            assert_eq!(applied.changed.len(), 1, "{text}: {:?}", applied.changed);
            assert_eq!(bench.value(name), *state, "{text}");
            assert_ne!(before[*name], *state, "{text} would change nothing");
            tuner.verify().unwrap_or_else(|error| panic!("{text}: {error}"));
            tuner.restore().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(bench.all(), before, "{text}");
        }
        assert_eq!(bench.journals(), 0);
    });
}

#[test]
fn all_kinds_together_are_one_change_in_the_order_they_need() {
    on_a_bench(|bench| {
        let before = bench.all();
        let texts: Vec<&str> = ON_A_VETH.iter().rev().map(|(text, ..)| *text).collect();
        let steps = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let mut tuner = bench.tuner();
        let told = std::sync::Arc::clone(&steps);
        tuner.tell_steps(move |step| told.lock().unwrap().push(step.clone()));
        tuner.apply(&settings(&texts), Consent::default()).unwrap();
        for (text, name, state) in ON_A_VETH {
            assert_eq!(bench.value(name), *state, "{text}");
        }
        let wrote: Vec<String> = steps
            .lock()
            .unwrap()
            .iter()
            .filter_map(|step| match step {
                Step::Wrote(items) => Some(items[0].to_string()),
                _ => None,
            })
            .collect();
        let place = |name: &str| {
            wrote
                .iter()
                .position(|wrote| wrote.starts_with(name))
                .unwrap_or_else(|| panic!("{name} in {wrote:?}"))
        };
        assert!(
            place("nic.mtu") < place("nic.tx-nocache-copy") && place("nic.tx-nocache-copy") < place("qdisc"),
            "{wrote:?}"
        );
        assert!(place("qdisc") < place("sysctl."), "{wrote:?}");
        // The next arm keeps some, changes one and drops the rest: what stays is not touched.
        steps.lock().unwrap().clear();
        tuner
            .apply(&settings(&["nic.mtu=1400", "nic.txqueuelen=400", texts[0]]), Consent::default())
            .unwrap();
        let wrote = format!("{:?}", steps.lock().unwrap());
        assert!(wrote.contains("TxQueueLen") && !wrote.contains("Mtu"), "{wrote}");
        let now = bench.all();
        assert_eq!((now["nic.mtu"].as_str(), now["nic.txqueuelen"].as_str()), ("1400", "400"));
        assert_eq!(now["nic.tx-nocache-copy"], before["nic.tx-nocache-copy"]);
        tuner.restore().unwrap();
        assert_eq!(bench.all(), before);
    });
}

#[test]
fn what_is_impossible_here_is_refused_with_what_would_be_possible_before_anything_is_touched() {
    on_a_bench(|bench| {
        let before = bench.all();
        for (text, expected) in [
            ("nic.mtu=60", "68 to "),
            ("nic.ring.rx=64", "no ring to set"),
            ("nic.pause.rx=on", "no pause to set"),
            ("nic.private.x=on", "no private flags"),
            ("irq.affinity=0", "no interrupt line"),
            ("boot.mitigations=off", "boots each way"),
            ("module.no_such_module.x=1", "no such module"),
            ("sysctl.net.ipv4.no_such_key=1", "has such a sysctl"),
            ("sys:/class/net/lo/mtu=1", "another device"),
            ("sys:/kernel/no/such=1", "No such file"),
        ] {
            let expected = if text.starts_with("boot.") { "boot each way" } else { expected };
            let (_, problem) =
                refusal(bench.tuner().apply(&settings(&["nic.tx-nocache-copy=on", text]), ANYTHING));
            assert!(problem.contains(expected), "{text}: {problem}");
        }
        assert_eq!(bench.all(), before);
        assert_eq!(bench.journals(), 0);
    });
}

/// H7: buffer maxima are the host's and shown to a namespace for reading, others are its own, others are absent.
#[test]
fn a_global_key_is_not_touched_from_a_namespace_without_consent() {
    on_a_bench(|bench| {
        for (key, of_namespace) in [
            ("net.ipv4.tcp_rmem", true),
            ("net.core.somaxconn", true),
            ("net.core.rmem_max", false),
            ("net.core.busy_poll", false),
            ("net.core.netdev_budget", false),
            ("vm.swappiness", false),
        ] {
            let file = format!("/proc/sys/{}", key.replace('.', "/"));
            // The same value: with consent too it would change nothing on this machine.
            let text = fs::read_to_string(&file).unwrap_or_else(|_| "0".to_owned());
            let value = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let wanted = settings(&[&format!("sysctl.{key}='{value}'")]);
            let done = bench.tuner().apply(&wanted, Consent::default());
            if of_namespace {
                done.unwrap_or_else(|error| panic!("{key}: {error}"));
            } else {
                let (error, problem) = refusal(done);
                assert!(matches!(error, SettingError::Global { .. }), "{key}: {problem}");
                assert!(problem.contains("--allow-global") && problem.contains(key), "{problem}");
            }
        }
    });
}

/// H6, and every kind besides features.
#[test]
fn a_change_behind_hauls_back_is_noticed_also_when_it_was_changed_back() {
    on_a_bench(|bench| {
        let index = bench.device.index;
        let mut tuner = bench.tuner();
        tuner.apply(&settings(&["sysctl.net.ipv4.tcp_rmem=4096 65536 1048576"]), Consent::default()).unwrap();
        fs::write("/proc/sys/net/ipv4/tcp_rmem", "4096 65536 2097152").unwrap();
        let (error, problem) = refusal(tuner.verify());
        assert!(matches!(error, SettingError::Foreign { .. }) && problem.contains("tcp_rmem"), "{problem}");
        fs::write("/proc/sys/net/ipv4/tcp_rmem", "4096 65536 1048576").unwrap();
        tuner.verify().unwrap();
        // Something else of the device, not set by haul.
        link::set_mtu(index, ByteCount(1300)).unwrap();
        let (error, problem) = refusal(tuner.verify());
        assert!(
            matches!(error, SettingError::Foreign { .. }) && problem.contains("nic.mtu 1500 -> 1300"),
            "{problem}"
        );
        link::set_mtu(index, ByteCount(1500)).unwrap();
        let (error, problem) = refusal(tuner.verify());
        assert!(matches!(error, SettingError::Meddled { .. }) && problem.contains("mtu"), "{problem}");
        tuner.verify().unwrap();
        // The peer goes down and up again: the carrier was away.
        let peer = link::link_by_name("vb").unwrap().index;
        link::set_up(peer, false).unwrap();
        link::set_up(peer, true).unwrap();
        link::wait_for_carrier(index, std::time::Duration::from_secs(2)).unwrap();
        let (error, problem) = refusal(tuner.verify());
        assert!(matches!(error, SettingError::Meddled { .. }) && problem.contains("carrier"), "{problem}");
        tuner.restore().unwrap();
    });
}

#[test]
fn commands_are_run_kept_and_undone_and_a_failure_stops_the_arm() {
    on_a_bench(|bench| {
        let file = bench.directory.path().join("on");
        let on = format!("exec:'echo made for $HAUL_DEVICE; touch {0}','rm {0}'", file.display());
        let (error, problem) = refusal(bench.tuner().apply(&settings(&[&on]), Consent::default()));
        assert!(matches!(error, SettingError::Global { .. }), "{problem}");
        let mut tuner = bench.tuner();
        let applied = tuner.apply(&settings(&[&on]), ANYTHING).unwrap();
        assert!(file.exists());
        assert_eq!(applied.said[0].output, "made for va");
        tuner.verify().unwrap();
        tuner.apply(&settings(&[&on]), ANYTHING).unwrap();
        tuner.apply(&[], ANYTHING).unwrap();
        assert!(!file.exists(), "an arm without it undoes it");
        let before = bench.all();
        let failing = format!("exec:'touch {0}; echo no such thing; exit 7','rm {0}'", file.display());
        let (error, problem) = refusal(tuner.apply(&settings(&["nic.mtu=1400", &failing]), ANYTHING));
        assert!(matches!(error, SettingError::Hook { .. }), "{problem}");
        assert!(problem.contains("exit status: 7") && problem.contains("no such thing"), "{problem}");
        assert!(!file.exists(), "half a change is undone too");
        assert_eq!(bench.all(), before);
        tuner.restore().unwrap();
        assert_eq!(bench.journals(), 0);
    });
}

#[test]
fn what_was_made_to_stay_stays_until_it_is_restored() {
    on_a_bench(|bench| {
        let before = bench.all();
        let mut tuner = bench.tuner();
        tuner.apply(&settings(&["nic.mtu=1400", "nic.tx-nocache-copy=on"]), Consent::default()).unwrap();
        assert!(tuner.keep().unwrap().is_some());
        assert_eq!(bench.value("nic.mtu"), "1400");
        assert_eq!(journal::recover(bench.directory.path(), Which::Dead).unwrap(), []);
        let open = journal::list(bench.directory.path()).unwrap();
        assert!(open[0].kept && !open[0].alive);
        assert_eq!(open[0].now().values().collect::<Vec<_>>(), ["1400", "on"]);
        // A measurement goes on from there, and back to there.
        let mut arm = bench.tuner();
        arm.apply(&settings(&["nic.mtu=1300"]), Consent::default()).unwrap();
        let kept = journal::recover(bench.directory.path(), Which::Kept).unwrap();
        assert!(
            matches!(&kept[..], [one] if matches!(&one.outcome, Outcome::Kept { problem, .. } if problem.contains("held by another session"))),
            "{kept:?}"
        );
        arm.restore().unwrap();
        assert_eq!(bench.value("nic.mtu"), "1400");
        // A second one on top, and both back at once, the last first.
        let mut tuner = bench.tuner();
        tuner.apply(&settings(&["nic.mtu=1280"]), Consent::default()).unwrap();
        tuner.keep().unwrap();
        let recovered = journal::recover(bench.directory.path(), Which::Kept).unwrap();
        assert_eq!(recovered.len(), 2, "{recovered:?}");
        assert_eq!(bench.all(), before);
        assert_eq!(bench.journals(), 0);
    });
}

/// A part of this program in a process of its own.
fn another(parts: &[&str]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_death_between_any_two_steps_leaves_nothing_behind", "--nocapture"]);
    command.env(PART, parts.join("\n")).env("RUST_BACKTRACE", "0").output().unwrap()
}

/// Everything a test may change in a namespace, a command included.
fn everything(file: &Path) -> Vec<String> {
    let hook = format!("exec:'touch {0}','rm -f {0}'", file.display());
    ON_A_VETH.iter().map(|(text, ..)| (*text).to_owned()).chain([hook]).collect()
}

/// Kills this process as soon as so many steps are done.
fn die_after(steps: usize) -> impl FnMut(&Step) + Send + Sync {
    let mut left = steps;
    move |_| {
        left = left.saturating_sub(1);
        if left == 0 {
            let own = std::process::id().to_string();
            let _ = Command::new("/bin/sh").args(["-c", &format!("kill -9 {own}")]).status();
        }
    }
}

fn play(part: &str) {
    let [mode, directory, steps] = &part.split('\n').collect::<Vec<_>>()[..] else {
        panic!("no part: {part}")
    };
    let (directory, steps) = (Path::new(directory), steps.parse().unwrap());
    let texts = everything(&directory.join("hook"));
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut tuner = Tuner::open(directory, &link::link_by_name("va").unwrap()).unwrap();
    match *mode {
        "apply" => {
            tuner.tell_steps(die_after(steps));
            tuner.apply(&settings(&texts), ANYTHING).unwrap();
            tuner.restore().unwrap();
        }
        "switch" => {
            tuner.apply(&settings(&texts[3..]), ANYTHING).unwrap();
            tuner.tell_steps(die_after(steps));
            tuner.apply(&settings(&texts[..6]), ANYTHING).unwrap();
            tuner.restore().unwrap();
        }
        "recover" => {
            drop(tuner);
            let recovered =
                journal::recover_step_by_step(directory, Which::Dead, &mut die_after(steps)).unwrap();
            assert!(
                recovered.iter().all(|one| matches!(one.outcome, Outcome::Restored { .. })),
                "{recovered:?}"
            );
        }
        mode => panic!("no part: {mode}"),
    }
}

/// H5: killed after each step of an apply, of a switch of arms, of the way back and of a recovery, the next start puts all back.
#[test]
fn a_death_between_any_two_steps_leaves_nothing_behind() {
    if let Ok(part) = std::env::var(PART) {
        return play(&part);
    }
    on_a_bench(|bench| {
        let before = bench.all();
        let directory = bench.directory.path().to_str().unwrap();
        let file = bench.directory.path().join("hook");
        let was_killed = |output: &Output, at: &str| {
            let killed = output.status.signal() == Some(9);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(killed || output.status.success(), "{at}: {:?} {said}", output.status);
            killed
        };
        let clean = |at: &str| {
            assert_eq!(bench.all(), before, "{at}");
            assert!(!file.exists(), "{at}: the command was not undone");
            assert_eq!(bench.journals(), 0, "{at}");
        };
        let mut deaths = 0;
        for mode in ["apply", "switch"] {
            for step in 1.. {
                let at = format!("{mode}, killed after step {step}");
                let killed = was_killed(&another(&[mode, directory, &step.to_string()]), &at);
                let recovered = journal::recover(bench.directory.path(), Which::Dead).unwrap();
                let bad = recovered.iter().find(|one| matches!(one.outcome, Outcome::Kept { .. }));
                assert!(bad.is_none(), "{at}: {bad:?}");
                clean(&at);
                if !killed {
                    break;
                }
                deaths += 1;
            }
        }
        // The recovery itself dies, after each of its steps; the next one goes on.
        for step in 1.. {
            let at = format!("recovery, killed after step {step}");
            assert!(was_killed(&another(&["apply", directory, "12"]), &at), "{at}: the first did not die");
            let killed = was_killed(&another(&["recover", directory, &step.to_string()]), &at);
            let recovered = journal::recover(bench.directory.path(), Which::Dead).unwrap();
            assert!(
                !recovered.iter().any(|one| matches!(one.outcome, Outcome::Kept { .. })),
                "{at}: {recovered:?}"
            );
            clean(&at);
            if !killed {
                break;
            }
            deaths += 1;
        }
        println!("{deaths} deaths");
        assert!(deaths > 40, "{deaths} deaths: the steps are told of no more");
    });
}

/// A tree of files in the place of `/proc` and `/sys`, with what this machine lacks.
fn fake() -> (TempDir, Roots) {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    };
    for cpu in 0..2 {
        write(&format!("sys/devices/system/cpu/cpufreq/policy{cpu}/scaling_governor"), "powersave");
        write(
            &format!("sys/devices/system/cpu/cpufreq/policy{cpu}/scaling_available_governors"),
            "performance powersave",
        );
        for (state, latency) in [(0, 0), (1, 2), (2, 133)] {
            write(&format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state{state}/disable"), "0");
            write(
                &format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state{state}/latency"),
                &latency.to_string(),
            );
        }
    }
    write("sys/devices/system/cpu/intel_pstate/no_turbo", "0");
    write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never");
    write("sys/module/tcp_cubic/parameters/hystart", "1");
    write("sys/kernel/mm/ksm/run", "0");
    write("proc/irq/44/smp_affinity_list", "0-1");
    write("proc/irq/45/smp_affinity_list", "0-1");
    write("proc/sys/net/core/rmem_max", "212992");
    write("proc/sys/net/core/rps_sock_flow_entries", "0");
    write("proc/cmdline", "ro mitigations=auto quiet");
    write("sys/class/net/va/threaded", "0");
    write("sys/class/net/va/napi_defer_hard_irqs", "0");
    write("sys/class/net/va/gro_flush_timeout", "0");
    for queue in 0..4 {
        write(&format!("sys/class/net/va/queues/rx-{queue}/rps_cpus"), "0");
        write(&format!("sys/class/net/va/queues/rx-{queue}/rps_flow_cnt"), "0");
        write(&format!("sys/class/net/va/queues/tx-{queue}/xps_cpus"), "0");
    }
    let roots = Roots { proc: root.path().join("proc"), sys: root.path().join("sys") };
    (root, roots)
}

/// Every file below a directory, and what is in it.
fn tree(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = fs::read_to_string(&path).unwrap();
                files.insert(path, text.trim().to_owned());
            }
        }
    }
    files
}

#[test]
fn what_this_machine_lacks_is_set_and_put_back_in_a_tree_of_files() {
    let (root, roots) = fake();
    on_a_bench_with(roots, |bench| {
        let index = bench.device.index.to_string();
        fs::write(bench.roots.sys.join("class/net/va/ifindex"), &index).unwrap();
        let before = tree(root.path());
        let read = |path: &str| fs::read_to_string(root.path().join(path)).unwrap().trim().to_owned();
        let cases: &[(&str, &[(&str, &str)])] = &[
            (
                "cpu.governor=performance",
                &[("sys/devices/system/cpu/cpufreq/policy1/scaling_governor", "performance")],
            ),
            (
                "cpu.idle-states=off",
                &[
                    ("sys/devices/system/cpu/cpu0/cpuidle/state0/disable", "0"),
                    ("sys/devices/system/cpu/cpu1/cpuidle/state1/disable", "1"),
                    ("sys/devices/system/cpu/cpu1/cpuidle/state2/disable", "1"),
                ],
            ),
            (
                "cpu.idle-states=10",
                &[
                    ("sys/devices/system/cpu/cpu1/cpuidle/state1/disable", "0"),
                    ("sys/devices/system/cpu/cpu1/cpuidle/state2/disable", "1"),
                ],
            ),
            ("cpu.turbo=off", &[("sys/devices/system/cpu/intel_pstate/no_turbo", "1")]),
            ("thp=never", &[("sys/kernel/mm/transparent_hugepage/enabled", "never")]),
            ("module.tcp_cubic.hystart=N", &[("sys/module/tcp_cubic/parameters/hystart", "0")]),
            ("sys:/kernel/mm/ksm/run=1", &[("sys/kernel/mm/ksm/run", "1")]),
            (
                "irq.affinity=1",
                &[("proc/irq/44/smp_affinity_list", "1"), ("proc/irq/45/smp_affinity_list", "1")],
            ),
            (
                "irq.45.affinity=0",
                &[("proc/irq/44/smp_affinity_list", "0-1"), ("proc/irq/45/smp_affinity_list", "0")],
            ),
            ("sysctl.net.core.rmem_max=4194304", &[("proc/sys/net/core/rmem_max", "4194304")]),
            (
                "nic.rps=0,1",
                &[
                    ("sys/class/net/va/queues/rx-0/rps_cpus", "3"),
                    ("sys/class/net/va/queues/rx-3/rps_cpus", "3"),
                ],
            ),
            ("nic.xps=33", &[("sys/class/net/va/queues/tx-2/xps_cpus", "2,00000000")]),
            (
                "nic.rfs=4096",
                &[
                    ("sys/class/net/va/queues/rx-1/rps_flow_cnt", "1024"),
                    ("proc/sys/net/core/rps_sock_flow_entries", "4096"),
                ],
            ),
            ("nic.napi.threaded=on", &[("sys/class/net/va/threaded", "1")]),
        ];
        for (text, files) in cases {
            let mut tuner = bench.tuner();
            tuner.apply(&settings(&[text]), ANYTHING).unwrap_or_else(|error| panic!("{text}: {error}"));
            for (path, expected) in *files {
                assert_eq!(read(path), *expected, "{text}: {path}");
            }
            tuner.verify().unwrap_or_else(|error| panic!("{text}: {error}"));
            tuner.restore().unwrap_or_else(|error| panic!("{text}: {error}"));
            // The kernel shows a choice with all its words; a file keeps what was written.
            let mut after = tree(root.path());
            let huge = after.get_mut(&root.path().join("sys/kernel/mm/transparent_hugepage/enabled"));
            if let Some(text) = huge.filter(|text| *text == "madvise") {
                *text = "always [madvise] never".to_owned();
            }
            fs::write(
                root.path().join("sys/kernel/mm/transparent_hugepage/enabled"),
                "always [madvise] never\n",
            )
            .unwrap();
            assert_eq!(after, before, "{text}");
        }
    });
}

#[test]
fn what_a_tree_of_files_cannot_have_is_refused_with_what_it_has() {
    let (root, roots) = fake();
    on_a_bench_with(roots, |bench| {
        fs::write(bench.roots.sys.join("class/net/va/ifindex"), bench.device.index.to_string()).unwrap();
        for (text, expected) in [
            ("cpu.governor=schedutil", "offers performance powersave"),
            ("boot.mitigations=off", "now mitigations=auto"),
            ("boot.isolcpus=1", "not given at the last one"),
            ("thp=madvise", ""),
            ("module.tcp_cubic.no_such=1", "no such parameter"),
            ("irq.46.affinity=0", "No such file"),
        ] {
            let done = bench.tuner().apply(&settings(&[text]), ANYTHING);
            if expected.is_empty() {
                done.unwrap();
            } else {
                let (_, problem) = refusal(done);
                assert!(problem.contains(expected), "{text}: {problem}");
            }
        }
        // A parameter that is read at load time only.
        let parameter = root.path().join("sys/module/tcp_cubic/parameters/hystart");
        let mut mode = fs::metadata(&parameter).unwrap().permissions();
        mode.set_readonly(true);
        fs::set_permissions(&parameter, mode).unwrap();
        let (_, problem) = refusal(bench.tuner().apply(&settings(&["module.tcp_cubic.hystart=0"]), ANYTHING));
        assert!(
            problem.contains("read when the module is loaded") && problem.contains("haul compare"),
            "{problem}"
        );
    });
}

/// The host's part of a dead lab's settings outlives the lab, and so must its way back.
#[test]
fn what_is_the_hosts_goes_back_also_when_the_namespace_has_died() {
    let (root, roots) = fake();
    let directory = tempfile::tempdir().unwrap();
    let before = tree(root.path());
    on_a_bench_with(roots, |bench| {
        fs::write(bench.roots.sys.join("class/net/va/ifindex"), bench.device.index.to_string()).unwrap();
        let mut tuner = Tuner::open_with(directory.path(), &bench.device, bench.roots.clone()).unwrap();
        tuner.apply(&settings(&["sysctl.net.core.rmem_max=4194304", "nic.mtu=1400"]), ANYTHING).unwrap();
        // As if it had been killed: the journal is left, and its lock is gone.
        tuner.keep().unwrap();
    });
    fs::remove_file(root.path().join("sys/class/net/va/ifindex")).unwrap();
    assert_ne!(tree(root.path()), before);
    let recovered = journal::recover(directory.path(), Which::Kept).unwrap();
    assert!(
        matches!(&recovered[..], [one] if matches!(&one.outcome, Outcome::Restored { changed, .. } if changed.len() == 1)),
        "{recovered:?}"
    );
    assert_eq!(tree(root.path()), before);
}

#[test]
fn a_setting_is_looked_up_by_name_family_or_path() {
    on_a_bench(|bench| {
        let found = |name: &str| lookup(name, &bench.device, &bench.roots);
        assert_eq!(found("nic.mtu").unwrap()[0].value, "1500");
        let tso = found("nic.tx-tcp-segmentation").unwrap();
        assert!(
            tso[0].drags.as_ref().is_some_and(|drags| drags.contains("needs tx-scatter-gather")),
            "{tso:?}"
        );
        let gather = found("nic.tx-scatter-gather").unwrap();
        assert!(
            gather[0].drags.as_ref().is_some_and(|drags| drags.contains("tx-tcp-segmentation")),
            "{gather:?}"
        );
        assert!(found("nic.napi").unwrap().len() >= 3);
        assert!(found("nic.rx-lro").unwrap()[0].fixed.is_some());
        assert_eq!(found("sysctl.net.ipv4.tcp_syncookies").unwrap().len(), 1);
        assert_eq!(found("sysctl.vm.swappiness").unwrap()[0].scope.to_string(), "host");
        assert!(found("nic.no-such").unwrap_err().to_string().contains("haul settings list"));
    });
}

/// In the lab both ends are one host, and commands are of either.
#[test]
fn two_ends_of_one_host_run_commands_and_share_what_is_the_hosts() {
    let (root, roots) = fake();
    on_a_bench_with(roots.clone(), |one| {
        let mut here = one.tuner();
        on_a_bench_with(roots.clone(), |other| {
            // Both stand-ins for sysfs have one device of that name: only what is the host's is set here.
            let directory = one.directory.path();
            let mut there = Tuner::open_with(directory, &other.device, roots.clone()).unwrap();
            let hook = |name: &str| {
                let file = root.path().join(name);
                format!("exec:'touch {0}','rm {0}'", file.display())
            };
            here.apply(&settings(&[&hook("a"), "thp=never"]), ANYTHING).unwrap();
            there.apply(&settings(&[&hook("b")]), ANYTHING).unwrap();
            assert!(root.path().join("a").exists() && root.path().join("b").exists());
            let (error, problem) = refusal(there.apply(&settings(&["sys:/kernel/mm/ksm/run=1"]), ANYTHING));
            assert!(matches!(error, SettingError::HeldHere { .. }), "{problem}");
            assert!(problem.contains("the whole host") && problem.contains("for one end only"), "{problem}");
            here.restore().unwrap();
            there.restore().unwrap();
            assert!(!root.path().join("a").exists() && !root.path().join("b").exists());
        });
    });
}

/// What was made to stay goes back the last change first, whatever the files are called.
#[test]
fn changes_made_to_stay_go_back_in_the_order_they_came() {
    on_a_bench(|bench| {
        let before = bench.all();
        for (mtu, name) in [("nic.mtu=1400", "9-0.jsonl"), ("nic.mtu=1300", "10-0.jsonl")] {
            let mut tuner = bench.tuner();
            tuner.apply(&settings(&[mtu]), Consent::default()).unwrap();
            fs::rename(tuner.keep().unwrap().unwrap(), bench.directory.path().join(name)).unwrap();
        }
        journal::recover(bench.directory.path(), Which::Kept).unwrap();
        assert_eq!(bench.all(), before);
    });
}

/// A device that was moved is found where it is, one that was renamed keeps its sysctls, and one that is another in every
/// respect is left alone with its journal.
#[test]
fn a_device_is_put_back_where_it_went_and_under_the_name_it_has() {
    let own = "sysctl.net/ipv4/conf/va/rp_filter=2";
    for part in ["moved", "renamed", "both changed"] {
        on_a_bench(|bench| {
            let mut tuner = bench.tuner();
            tuner.apply(&settings(&["nic.mtu=1400", "nic.txqueuelen=55", own]), Consent::default()).unwrap();
            tuner.keep().unwrap();
            let ip = |arguments: &str| {
                let done = Command::new("ip").args(arguments.split(' ')).status().unwrap();
                assert!(done.success(), "ip {arguments}");
            };
            let elsewhere = Netns::create().unwrap();
            let mut sleeping: Option<std::process::Child> = None;
            match part {
                "moved" => {
                    // Something must keep the other namespace to be seen: a process in it, or a name.
                    let away = elsewhere.run(|| Command::new("sleep").arg("20").spawn().unwrap()).unwrap();
                    ip(&format!("link set va netns {}", away.id()));
                    sleeping = Some(away);
                }
                "renamed" => {
                    ip("link set va down");
                    ip("link set va name vx");
                }
                _ => {
                    ip("link set va address 02:00:00:00:00:77");
                    ip("link set va down");
                    ip("link set va name vx");
                }
            }
            let recovered = journal::recover(bench.directory.path(), Which::Kept).unwrap();
            let place = if part == "moved" { elsewhere.clone() } else { Netns::current().unwrap() };
            let state = place.run(|| {
                let link = link::links()
                    .unwrap()
                    .into_iter()
                    .find(|link| link.name == "va" || link.name == "vx")
                    .unwrap();
                let filter = format!("/proc/sys/net/ipv4/conf/{}/rp_filter", link.name);
                (link.mtu, fs::read_to_string(filter).unwrap().trim() == "2")
            });
            let (mtu, filtered) = state.unwrap();
            if let Some(mut away) = sleeping.take() {
                away.kill().unwrap();
                away.wait().unwrap();
            }
            if part == "both changed" {
                assert!(matches!(recovered[0].outcome, Outcome::Kept { .. }), "{recovered:?}");
                assert_eq!((mtu, bench.journals()), (1400, 1), "{recovered:?}");
            } else {
                assert!(matches!(recovered[0].outcome, Outcome::Restored { .. }), "{part}: {recovered:?}");
                assert_eq!((mtu, bench.journals()), (1500, 0), "{part}: {recovered:?}");
                // What goes by a device's name in a namespace begins anew with the device in another one.
                assert!(!filtered, "{part}: {recovered:?}");
            }
        });
    }
}

/// Somebody changed what the arm had set; the arm that sets nothing brings it back all the same, and is no side effect.
#[test]
fn what_goes_back_goes_back_whatever_others_made_of_it() {
    on_a_bench(|bench| {
        let before = bench.all();
        let mut tuner = bench.tuner();
        tuner.apply(&settings(&["nic.txqueuelen=77", "nic.tx-nocache-copy=on"]), Consent::default()).unwrap();
        link::set_mtu(bench.device.index, ByteCount(1500)).unwrap();
        let ip = Command::new("ip").args(["link", "set", "va", "txqueuelen", "55"]).status().unwrap();
        assert!(ip.success());
        let (error, problem) = refusal(tuner.verify());
        assert!(matches!(error, SettingError::Foreign { .. }), "{problem}");
        tuner.apply(&[], Consent::default()).unwrap();
        assert_eq!(bench.all(), before);
        tuner.apply(&settings(&["nic.txqueuelen=77"]), Consent::default()).unwrap();
        tuner.restore().unwrap();
        assert_eq!(bench.all(), before);
    });
}

/// What a journal says is done, commands included: by nobody who did not write it, and not again where it ended who did it.
#[test]
fn a_journal_is_not_believed_whoever_wrote_it_and_a_command_that_kills_is_not_tried_for_ever() {
    use std::os::unix::fs::PermissionsExt as _;
    on_a_bench(|bench| {
        let file = bench.directory.path().join("ran");
        let hook = format!("exec:'true','touch {}'", file.display());
        let left = |hook: &str| {
            let mut tuner = bench.tuner();
            tuner.apply(&settings(&[hook]), ANYTHING).unwrap();
            tuner.keep().unwrap().unwrap()
        };
        let journal = left(&hook);
        let was = fs::metadata(&journal).unwrap().permissions();
        for mode in [0o666, 0o620] {
            fs::set_permissions(&journal, fs::Permissions::from_mode(mode)).unwrap();
            let recovered = journal::recover(bench.directory.path(), Which::Kept).unwrap();
            assert!(
                matches!(&recovered[0].outcome, Outcome::Kept { problem, .. } if problem.contains("others may write it")),
                "{recovered:?}"
            );
        }
        fs::set_permissions(&journal, was).unwrap();
        std::os::unix::fs::chown(&journal, Some(65534), None).unwrap();
        let recovered = journal::recover(bench.directory.path(), Which::Kept).unwrap();
        assert!(matches!(recovered[0].outcome, Outcome::Kept { .. }), "{recovered:?}");
        assert!(!file.exists(), "somebody else's command was run");
        std::os::unix::fs::chown(&journal, Some(0), None).unwrap();
        journal::recover(bench.directory.path(), Which::Kept).unwrap();
        assert!(file.exists());
        // One that was tried, by a haul that is gone, and that is not of a change made to stay.
        fs::remove_file(&file).unwrap();
        let journal = left(&hook);
        let text =
            fs::read_to_string(&journal).unwrap().replace("\"kept\"", "\"tried\"\n\"tried\"\n\"tried\"");
        fs::write(&journal, text).unwrap();
        let recovered = journal::recover(bench.directory.path(), Which::Dead).unwrap();
        assert!(
            matches!(&recovered[0].outcome, Outcome::Kept { problem, .. } if problem.contains("did not come back")),
            "{recovered:?}"
        );
        assert!(!file.exists());
        journal::recover(bench.directory.path(), Which::Kept).unwrap();
        assert!(file.exists() && bench.journals() == 0, "asked for, it is tried again");
    });
}
