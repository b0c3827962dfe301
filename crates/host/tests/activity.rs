//! What interrupts, queues and devices did: each goes up by a known number, and down again where nothing happens.

mod common;

use std::fs;
use std::hint::black_box;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use common::{BOUND, drain, drops, lab, tc};
use haul_host::clock;
use haul_host::link;
use haul_host::probe::ActivityUse;
use haul_host::probe::activity::{LineUse, Watch};
use haul_host::probe::cgroup::{self, Groups};
use haul_host::socket::{self, Requested, udp};
use haul_host::veth_lab::VethLab;

/// A known number of packets.
const SENT: u64 = 500;

/// What a device sends and receives by itself meanwhile: neighbour discovery.
const OWN: u64 = 20;

/// What both ends of a lab did while `work` ran.
fn both(lab: &VethLab, work: impl FnOnce()) -> [ActivityUse; 2] {
    let ends = [(&lab.client, &lab.client_dev), (&lab.server, &lab.server_dev)];
    let watches = ends.map(|(netns, device)| netns.run(|| Watch::new(device)).expect("run"));
    let read = |index: usize| ends[index].0.run(|| watches[index].read()).expect("run");
    let then = [read(0), read(1)];
    work();
    [watches[0].between(&then[0], &read(0)), watches[1].between(&then[1], &read(1))]
}

fn send_packets(lab: &VethLab) {
    let server = lab.server.run(|| udp::bind((lab.server_addr, 0).into(), &Requested::default()));
    let server = server.expect("run").expect("bind");
    let target = server.local_addr().expect("address");
    let client =
        lab.client.run(|| udp::connected((lab.client_addr, 0).into(), target, &Requested::default()));
    let client = client.expect("run").expect("client");
    let (start, mut got) = (Instant::now(), 0);
    for _ in 0..SENT {
        socket::send(client.as_fd(), &[7; 100]).expect("send");
        got += drain(&server);
    }
    while got < SENT && start.elapsed() < BOUND {
        got += drain(&server);
    }
    assert_eq!((got, drops(&server)), (SENT, 0));
}

#[test]
fn a_known_number_of_packets_is_counted_at_both_ends_and_none_where_none_was_sent() {
    let lab = lab(1500);
    let idle = both(&lab, || {});
    let busy = both(&lab, || send_packets(&lab));
    for (which, [client, server], sent) in [("idle", &idle, 0), ("busy", &busy, SENT)] {
        let tx = client.net.link.tx_packets.expect("tx_packets");
        let rx = server.net.link.rx_packets.expect("rx_packets");
        assert!((sent..=sent + OWN).contains(&tx), "{which}: {tx} sent");
        assert!((sent..=sent + OWN).contains(&rx), "{which}: {rx} received");
        let protocol = |used: &ActivityUse, name: &str| {
            used.protocols.as_ref().expect("protocols").get(name).copied().unwrap_or(0)
        };
        assert_eq!(protocol(client, "Udp.OutDatagrams"), sent, "{which}");
        assert_eq!(protocol(server, "Udp.InDatagrams"), sent, "{which}");
        assert_eq!(
            (client.net.link.tx_dropped, client.net.root_qdisc().and_then(|it| it.drops)),
            (Some(0), Some(0))
        );
    }
    let [client, server] = busy;
    // Each packet went through a CPU's queue, and the soft interrupt that empties it.
    assert!(server.softnet.expect("softnet").processed >= Some(SENT), "{:?}", server.softnet);
    assert!(server.softirqs.as_ref().is_some_and(|kinds| kinds["NET_RX"] > 0), "{:?}", server.softirqs);
    assert_ne!(client.place, server.place, "two devices in two namespaces");
    assert!(client.place.is_some());
    let json = serde_json::to_string(&server).expect("JSON");
    assert_eq!(serde_json::from_str::<ActivityUse>(&json).expect("back"), server);
}

#[test]
fn a_device_without_interrupts_has_none_and_not_zero_and_drops_say_in_which_queue() {
    let lab = lab(1500);
    tc(&lab, "qdisc add dev haul-c root tbf rate 10mbit burst 5kb limit 8kb");
    let [client, server] = both(&lab, || {
        let target = (lab.server_addr, 9).into();
        let socket =
            lab.client.run(|| udp::connected((lab.client_addr, 0).into(), target, &Requested::default()));
        let socket = socket.expect("run").expect("client");
        for _ in 0..SENT {
            // An ICMP message makes every second one fail.
            let _ = socket::send(socket.as_fd(), &[7; 1000]);
        }
    });
    for used in [&client, &server] {
        let interrupts = used.interrupts.as_ref().expect("interrupts");
        assert_eq!(interrupts.nic, None);
        assert!(
            interrupts.nic_by.contains("(veth) has no interrupt line of its own"),
            "{}",
            interrupts.nic_by
        );
        assert!(interrupts.nic_lines.is_empty() && interrupts.total > 0, "{interrupts:?}");
        // veth counts for its driver, and nothing of it went backwards.
        assert!(used.driver.is_some(), "{:?}", used.absent);
    }
    assert!(
        client.net.root_qdisc().and_then(|qdisc| qdisc.drops) > Some(SENT / 4),
        "{:?}",
        client.net.qdiscs
    );
    assert_eq!(server.net.root_qdisc().and_then(|qdisc| qdisc.drops), Some(0));

    let lo = link::link_by_name("lo").expect("lo");
    let watch = Watch::new(&lo);
    let then = watch.read();
    let used = watch.between(&then, &watch.read());
    assert!(
        used.driver.is_none() && used.reason("driver").contains("lo reports no counters"),
        "{:?}",
        used.absent
    );
    assert_eq!(used.interrupts.and_then(|interrupts| interrupts.nic), None);
}

/// Where this host has a NIC with interrupts of its own; what the lines look like is tested with texts.
#[test]
fn the_lines_of_a_nic_of_this_host_are_its_own_and_sum_to_its_count() {
    let mut found = 0;
    for device in link::links().expect("links") {
        let watch = Watch::new(&device);
        let then = watch.read();
        let used = watch.between(&then, &watch.read()).interrupts.expect("interrupts");
        let sum: u64 = used.nic_lines.iter().map(|line| line.count).sum();
        assert_eq!(used.nic.unwrap_or(0), sum, "{used:?}");
        assert_eq!(used.nic.is_some(), !used.nic_lines.is_empty(), "{used:?}");
        for line in &used.nic_lines {
            found += 1;
            println!("{}: {} {} queue {:?} ({})", device.name, line.line, line.text, line.queue, used.nic_by);
        }
    }
    println!("{found} lines of NICs");
}

#[test]
fn a_device_that_is_gone_is_absent_with_its_reason_and_the_host_is_still_counted() {
    let lab = lab(1500);
    let [_, server] = both(&lab, || {
        lab.server.run(|| link::delete(lab.server_dev.index)).expect("run").expect("delete");
    });
    assert_eq!((server.net.link.rx_packets, server.driver.as_ref()), (None, None));
    assert!(server.reason("link.rx_packets").contains("cannot read the counters"), "{:?}", server.net.absent);
    assert!(
        server.reason("driver").contains("cannot read the counters of the driver"),
        "{:?}",
        server.absent
    );
    assert!(server.interrupts.is_some() && server.softnet.is_some(), "{:?}", server.absent);
}

/// Interrupts of the CPUs' timers: `LOC` on x86, `arch_timer` or `riscv-timer` elsewhere.
fn timers(used: &ActivityUse) -> u64 {
    let of_timers = |line: &&LineUse| line.text.to_lowercase().contains("timer");
    let interrupts = used.interrupts.as_ref().expect("interrupts");
    interrupts.lines.iter().filter(of_timers).map(|line| line.count).sum()
}

#[test]
fn a_known_number_of_timer_interrupts_is_counted_and_a_quiet_window_has_fewer() {
    const WAKES: u64 = 2000;
    const EACH: Duration = Duration::from_micros(250);
    let watch = Watch::new(&link::link_by_name("lo").expect("lo"));
    let window = |work: &dyn Fn()| {
        let then = watch.read();
        work();
        watch.between(&then, &watch.read())
    };
    let busy = window(&|| {
        for _ in 0..WAKES {
            clock::sleep_until(clock::now().after(EACH));
        }
    });
    let counted = timers(&busy);
    // A wake that was already due when it was asked for takes no interrupt; everything else here only adds.
    assert!(counted >= WAKES * 9 / 10, "{counted} timer interrupts for {WAKES} wakes: {:?}", busy.interrupts);
    let length = busy.elapsed;
    let quiet = (0..100).map(|_| timers(&window(&|| clock::sleep_until(clock::now().after(length)))));
    let fewer = quiet.into_iter().find(|fewer| fewer + WAKES / 2 < counted);
    println!("{counted} with {WAKES} wakes in {length:?}, {fewer:?} without");
    assert!(
        fewer.is_some(),
        "for a hundred windows this machine had as many timer interrupts as with {WAKES} wakes"
    );
}

#[test]
fn a_reading_is_cheap() {
    let lab = lab(1500);
    let best = lab.client.run(|| {
        let watch = Watch::new(&lab.client_dev);
        let times = (0..20).map(|_| {
            let start = Instant::now();
            black_box(watch.read());
            start.elapsed()
        });
        times.min().expect("twenty")
    });
    let best = best.expect("run");
    println!("{best:?}");
    assert!(best < Duration::from_millis(2), "{best:?}");
}

/// A control group of this test's own, removed with it.
struct Group(PathBuf);

impl Group {
    /// A group that may have a tenth of a CPU; `None` where this machine lets nobody make one.
    fn limited() -> Option<Self> {
        let name = format!("haul-test-{}", std::process::id());
        let version_1 = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"];
        let version_2 = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
        let made = |root: &&str| {
            let folder = Path::new(root).join(&name);
            fs::create_dir(&folder).ok()?;
            let group = Self(folder);
            let limit = [("cpu.max", "10000 100000"), ("cpu.cfs_quota_us", "10000")];
            let limited = limit.iter().any(|(file, text)| {
                group.0.join(file).exists() && fs::write(group.0.join(file), text).is_ok()
            });
            limited.then_some(group)
        };
        version_1
            .iter()
            .chain(&version_2)
            .filter(|root| Path::new(root).join("cgroup.procs").exists())
            .find_map(made)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Set for the process that puts itself into the group.
const CHILD: &str = "HAUL_TEST_GROUP";

#[test]
fn a_control_group_that_is_held_back_is_told_with_its_name_and_one_that_is_idle_is_not() {
    if let Some(folder) = std::env::var_os(CHILD) {
        fs::write(Path::new(&folder).join("cgroup.procs"), std::process::id().to_string()).expect("enter");
        let groups = Groups::of_this_process().expect("groups");
        let window = |work: &dyn Fn()| {
            let then = groups.read();
            work();
            groups.between(&then, &groups.read())
        };
        // Of what this process did before it sleeps nothing is left to be held back for.
        std::thread::sleep(Duration::from_millis(300));
        let idle = window(&|| std::thread::sleep(Duration::from_millis(300)));
        assert!(cgroup::throttled(&idle).is_empty(), "{idle:?}");
        let busy = window(&|| {
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(600) {
                black_box(start);
            }
        });
        let held = cgroup::throttled(&busy);
        let worst = held.first().expect("it was held back");
        assert!(worst.name.contains("haul-test-"), "{held:?}");
        assert!(worst.throttled_periods >= Some(3), "{held:?}");
        assert!(worst.throttled >= Some(Duration::from_millis(200)), "{held:?}");
        assert_eq!(worst.quota.map(|quota| quota.quota_us), Some(10_000));
        assert!(worst.own && worst.usage < Some(Duration::from_millis(300)), "{held:?}");
        return;
    }
    let Some(group) = Group::limited() else {
        println!(
            "this machine lets nobody make a control group: the unit tests have a tree of files in its place"
        );
        return;
    };
    let name = "a_control_group_that_is_held_back_is_told_with_its_name_and_one_that_is_idle_is_not";
    let mut child = Command::new(std::env::current_exe().expect("this test"));
    let output = child.args(["--exact", name]).env(CHILD, &group.0).output().expect("start it again");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
