//! The probes on the real host.

use std::fs;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use haul_host::clock;
use haul_host::link;
use haul_host::probe::environment::boot_id;
use haul_host::probe::{Change, CpuUse, Fingerprint, HostCpu};
use haul_host::thread::{CpuList, pin_current};
use haul_host::veth_lab::{VethLab, VethOptions};
use haul_host::{ethtool, privilege};
use haul_stats::ByteCount;

fn window(length: Duration) -> CpuUse {
    let before = HostCpu::read().expect("before");
    clock::sleep_until(clock::now().after(length));
    HostCpu::read().expect("after").since(&before)
}

#[test]
fn busy_goes_up_to_all_cpus_while_they_spin_and_down_after_it() {
    const WINDOW: Duration = Duration::from_millis(200);
    let stop = AtomicBool::new(false);
    let spinning = thread::scope(|scope| {
        let (report, started) = mpsc::channel();
        let cpus = CpuList::online().expect("online");
        for &cpu in cpus.cpus() {
            let (stop, report) = (&stop, report.clone());
            scope.spawn(move || {
                // A panic here would leave the others spinning, so the outcome goes to the test.
                report.send(pin_current(&[cpu].into_iter().collect())).expect("the test waits for it");
                let mut turns = 0_u64;
                // Bounded, so that a failure of the test's own thread ends.
                let start = Instant::now();
                while !stop.load(Ordering::Relaxed) && start.elapsed() < Duration::from_secs(10) {
                    turns = black_box(turns + 1);
                }
            });
        }
        let outcomes: Vec<_> = started.iter().take(cpus.cpus().len()).collect();
        let used = window(WINDOW);
        stop.store(true, Ordering::Relaxed);
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        used
    });
    let whole = spinning.elapsed * spinning.ncpu;
    assert!(spinning.busy >= whole.mul_f64(0.95), "all CPUs were spinning, yet {spinning:?}");
    // Other work on this machine only adds; one less busy window shows that the counter comes down.
    let less = |used: &CpuUse| used.idle > spinning.idle + used.resolution.max(Duration::from_millis(1));
    let quiet = (0..300).map(|_| window(WINDOW)).find(less);
    println!("spinning {spinning:?}\nafterwards {quiet:?}");
    assert!(quiet.is_some(), "for a minute this machine was as busy as with all its CPUs spinning");
}

#[test]
fn busy_and_idle_make_up_the_window_and_both_sources_agree() {
    let whole = |used: &CpuUse| used.elapsed * used.ncpu;
    for _ in 0..5 {
        let used = window(Duration::from_millis(100));
        assert_eq!(
            used.busy.saturating_add(used.idle).max(whole(&used)),
            used.idle.max(whole(&used)),
            "{used:?}"
        );
        assert!(used.elapsed >= Duration::from_millis(100), "{used:?}");
        assert!(used.idle <= whole(&used) + used.ncpu * Duration::from_millis(10), "{used:?}");
    }
    if privilege::in_initial_user_namespace()
        && privilege::effective_root()
        && fs::exists("/proc/timer_list").is_ok_and(|found| found)
    {
        let sources: Vec<String> = (0..10).map(|_| window(Duration::from_millis(20)).source).collect();
        println!("{sources:?}");
        let exact = sources.iter().filter(|source| source.starts_with("/proc/timer_list")).count();
        assert!(exact >= 8, "the exact source was refused in {} of 10 windows", 10 - exact);
    }
}

#[test]
fn a_snapshot_is_cheap() {
    let best = (0..20)
        .map(|_| {
            let start = Instant::now();
            HostCpu::read().expect("read");
            start.elapsed()
        })
        .min()
        .expect("twenty");
    println!("{best:?}");
    assert!(best < Duration::from_millis(2), "{best:?}");
}

fn lab() -> VethLab {
    assert!(privilege::effective_root(), "this test makes network namespaces: run it as root");
    VethLab::build(VethOptions::default()).expect("a lab")
}

#[test]
fn the_fingerprint_has_every_fact_or_a_reason_is_stable_and_takes_under_ten_milliseconds() {
    let lab = lab();
    let collect = || lab.client.run(|| Fingerprint::collect(&lab.client_dev)).expect("run");
    let first = collect();
    for (key, fact) in first.iter() {
        assert_ne!(fact.value.is_some(), fact.reason.is_some(), "{key}: {fact:?}");
    }
    // Global, and hidden in any network namespace but the first.
    assert!(first.value("sysctl.net.core.netdev_budget").is_some());
    for key in [
        "kernel.release",
        "kernel.boot_id",
        "cpu.model",
        "cpu.clocksource",
        "nic.mtu",
        "sysctl.net.ipv4.tcp_rmem",
    ] {
        assert!(first.value(key).is_some_and(|value| !value.is_empty()), "{key}");
    }
    assert_eq!(first.value("nic.driver"), Some("veth"));
    assert_eq!(first.value("nic.feature.tx-tcp-segmentation"), Some("on"));
    assert_eq!(first.value("kernel.boot_id"), Some(boot_id().expect("boot id").as_str()));
    for (key, reason) in first.missing() {
        println!("{key}: {reason}");
        assert!(!reason.is_empty());
    }
    let times: Vec<Duration> = (0..10)
        .map(|_| {
            let start = Instant::now();
            let again = collect();
            let taken = start.elapsed();
            assert_eq!(first.diff(&again), [], "nothing changed");
            taken
        })
        .collect();
    println!("{times:?}");
    assert!(*times.iter().min().expect("ten") < Duration::from_millis(10), "{times:?}");
}

#[test]
fn the_fingerprint_shows_each_change_on_the_path_and_only_that() {
    /// What it is, how it is made, and the key with its values before and after.
    type Case<'a> = (&'a str, &'a (dyn Fn() + Sync), (&'a str, &'a str, &'a str));
    let lab = lab();
    let device = &lab.client_dev;
    let collect = || lab.client.run(|| Fingerprint::collect(device)).expect("run");
    let inside = |work: &(dyn Fn() + Sync)| lab.client.run(work).expect("run");
    let mut last = collect();
    let cases: [Case; 3] = [
        (
            "MTU",
            &|| inside(&|| link::set_mtu(device.index, ByteCount(1400)).expect("MTU")),
            ("nic.mtu", "1500", "1400"),
        ),
        (
            "a sysctl of the namespace",
            &|| inside(&|| fs::write("/proc/sys/net/ipv4/tcp_autocorking", "0").expect("sysctl")),
            ("sysctl.net.ipv4.tcp_autocorking", "1", "0"),
        ),
        (
            "a feature",
            &|| {
                inside(&|| {
                    ethtool::set_wanted(device.index, &device.name, &[("tx-nocache-copy", true)])
                        .expect("set");
                });
            },
            ("nic.feature.tx-nocache-copy", "off", "on"),
        ),
    ];
    for (name, work, (key, before, after)) in cases {
        work();
        let next = collect();
        let expected =
            Change { key: key.to_owned(), before: Some(before.to_owned()), after: Some(after.to_owned()) };
        assert_eq!(last.diff(&next), [expected], "{name}");
        last = next;
    }
    lab.server.run(|| link::set_up(lab.server_dev.index, false)).expect("run").expect("down");
    let bounced: Vec<String> = last.diff(&collect()).into_iter().map(|change| change.key).collect();
    assert_eq!(bounced, ["nic.carrier_changes"]);
}

#[test]
fn a_fingerprint_for_a_device_that_is_gone_says_so() {
    let lab = lab();
    let facts = lab.client.run(|| {
        link::delete(lab.client_dev.index).expect("delete");
        Fingerprint::collect(&lab.client_dev)
    });
    let facts = facts.expect("run");
    let missing: Vec<&str> = facts.missing().map(|(key, _)| key).collect();
    for key in ["nic.mtu", "nic.driver", "nic.feature"] {
        assert!(missing.contains(&key), "{key} in {missing:?}");
    }
}
