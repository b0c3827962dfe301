//! Numbers of what the hosts did beside: interrupts, queues, devices, and what was busy before the run.
//!
//! One function for all workloads. What is of a whole host is shown once where both ends run on one kernel, and what is of a
//! device once where both ends use the same one (a loopback device, not the two ends of a veth pair, which are devices of
//! their own in namespaces of their own).
//!
//! The background is what the host's CPUs did while the run was set up and waited. Taken off, it leaves what the run
//! cost; beside the plain figure, because nobody knows whether what others did went on alike.

use haul_host::probe::activity::ActivityUse;
use haul_host::probe::cgroup::{self, GroupUse};
use haul_host::probe::cpu::CpuUse;
use haul_stats::{Doubt, DoubtId, Metric, Reading, Scope};
use haul_wire::error::printable;
use serde_json::{Value as Json, json};

use super::Per;
use crate::report::{EndReport, RunOutcome};

/// Share of a host's CPUs from which what it does anyway is doubted.
const BACKGROUND_SHARE: f64 = 0.05;

/// Share of a quota from which it counts as used up: a group is held back within a period long before the mean shows it.
const QUOTA_SHARE: f64 = 0.9;

const INTERRUPTS: &str = "/proc/interrupts, difference over the window";
const SOFTIRQS: &str = "/proc/softirqs, difference over the window";
const SOFTNET: &str = "/proc/net/softnet_stat, difference over the window";
const DEVICE: &str = "IFLA_STATS64, difference over the window";
const QDISC: &str = "TCA_STATS2, difference over the window";

type Ends<'a> = [(&'a EndReport, Scope); 2];

/// Everything of the run, and what is to be doubted about it.
pub(super) fn of(ends: Ends<'_>, shared: bool, per: Per) -> (Vec<Reading>, Vec<Doubt>) {
    let (mut readings, mut doubts) = (Vec::new(), Vec::new());
    let hosts: &[(&EndReport, Scope)] = if shared { &[(ends[0].0, Scope::SharedHost)] } else { &ends };
    for &(end, scope) in hosts {
        host(&mut readings, end, scope, per);
        background_doubt(&mut doubts, end, scope);
    }
    let place = |end: &EndReport| end.activity.window.as_ref().and_then(|window| window.place);
    let one_device = shared && place(ends[0].0).is_some() && place(ends[0].0) == place(ends[1].0);
    let devices = if one_device { hosts } else { &ends };
    for &(end, scope) in devices {
        device(&mut readings, end, scope, per);
    }
    for (end, scope) in ends {
        own_group(&mut readings, end, scope);
        groups_doubt(&mut doubts, end, scope);
    }
    doubts.extend(drops_doubt(&readings));
    (readings, doubts)
}

/// The whole of it, by end, for the record.
#[must_use]
pub fn activity(outcomes: &[RunOutcome]) -> Json {
    let watched =
        |end: fn(&RunOutcome) -> &EndReport| outcomes.iter().map(end).find(|it| it.activity.window.is_some());
    match (watched(|it| &it.client), watched(|it| &it.server)) {
        (None, None) => Json::Null,
        (client, server) => json!({
            "client": client.map(|end| &end.activity),
            "server": server.map(|end| &end.activity),
        }),
    }
}

/// A count of the window, or the reason why there is none.
fn count(end: &EndReport, of: impl Fn(&ActivityUse) -> Option<u64>, name: &str) -> Result<u64, String> {
    let Some(window) = &end.activity.window else {
        let reason = end.activity.window_reason.clone();
        return Err(reason.unwrap_or_else(|| "not reported".to_owned()));
    };
    of(window).ok_or_else(|| window.reason(name))
}

/// A count and what it comes to for each second and each unit of work.
struct Counted<'a> {
    end: &'a EndReport,
    scope: Scope,
    source: &'static str,
    count: Result<u64, String>,
}

impl Counted<'_> {
    fn seconds(&self) -> f64 {
        self.end.activity.window.as_ref().map_or(0.0, |window| window.elapsed.as_secs_f64())
    }

    fn put(&self, readings: &mut Vec<Reading>, metric: Metric) {
        readings.push(match &self.count {
            Ok(count) => Reading::count(metric, self.scope, *count, self.source),
            Err(reason) => Reading::absent(metric, self.scope, self.source, reason.clone()),
        });
    }

    fn over(&self, readings: &mut Vec<Reading>, metric: Metric, by: f64, what: &str) {
        readings.push(match &self.count {
            Ok(count) => {
                Reading::real(metric, self.scope, *count as f64 / by, format!("{} / {what}", self.source))
            }
            Err(reason) => Reading::absent(metric, self.scope, self.source, reason.clone()),
        });
    }
}

/// What is of the whole host.
fn host(readings: &mut Vec<Reading>, end: &EndReport, scope: Scope, per: Per) {
    let counted = |source, of: &dyn Fn(&ActivityUse) -> Option<u64>, name: &str| Counted {
        end,
        scope,
        source,
        count: count(end, of, name),
    };
    let interrupts = counted(INTERRUPTS, &|it| Some(it.interrupts.as_ref()?.total), "interrupts");
    interrupts.put(readings, Metric::Interrupts);
    interrupts.over(readings, Metric::InterruptsPerSecond, interrupts.seconds(), "time between the readings");
    match per {
        Per::Kib(bytes) => {
            interrupts.over(readings, Metric::InterruptsPerGb, bytes as f64 / 1e9, "payload received");
        }
        Per::Transaction(done) => {
            interrupts.over(readings, Metric::InterruptsPerTransaction, done as f64, "transactions");
        }
    }
    for (metric, kind) in [(Metric::SoftirqsNetRx, "NET_RX"), (Metric::SoftirqsNetTx, "NET_TX")] {
        let name = format!("softirqs.{kind}");
        counted(SOFTIRQS, &|it| it.softirqs.as_ref()?.get(kind).copied(), &name).put(readings, metric);
    }
    counted(SOFTNET, &|it| it.softnet.as_ref()?.dropped, "softnet.dropped")
        .put(readings, Metric::SoftnetDropped);
    counted(SOFTNET, &|it| it.softnet.as_ref()?.squeezed, "softnet.squeezed")
        .put(readings, Metric::SoftnetSqueezed);
}

/// What is of the device the flows go through, as its end's network namespace counts it.
fn device(readings: &mut Vec<Reading>, end: &EndReport, scope: Scope, per: Per) {
    let counted = |source, count| Counted { end, scope, source, count };
    let nic = end.activity.window.as_ref().and_then(|window| window.interrupts.as_ref());
    let of_nic = match nic {
        Some(lines) => lines.nic.ok_or_else(|| lines.nic_by.clone()),
        None => count(end, |_| None, "interrupts"),
    };
    let interrupts = counted(INTERRUPTS, of_nic.clone());
    interrupts.put(readings, Metric::InterruptsNic);
    interrupts.over(
        readings,
        Metric::InterruptsNicPerSecond,
        interrupts.seconds(),
        "time between the readings",
    );
    if let Per::Kib(bytes) = per {
        interrupts.over(readings, Metric::InterruptsNicPerGb, bytes as f64 / 1e9, "payload received");
    }
    let packets = count(
        end,
        |it| Some(it.net.link.rx_packets?.saturating_add(it.net.link.tx_packets?)),
        "link.rx_packets",
    );
    let packets = counted(DEVICE, packets);
    match of_nic {
        Ok(0) => readings.push(Reading::absent(
            Metric::PacketsPerInterrupt,
            scope,
            DEVICE,
            "the device had no interrupt in the window",
        )),
        Ok(of_nic) => {
            packets.over(readings, Metric::PacketsPerInterrupt, of_nic as f64, "interrupts of the device");
        }
        Err(reason) => readings.push(Reading::absent(Metric::PacketsPerInterrupt, scope, DEVICE, reason)),
    }
    packets.over(readings, Metric::DevicePacketsPerSecond, packets.seconds(), "time between the readings");
    let drops = |it: &ActivityUse| {
        let link = it.net.link;
        Some(link.rx_dropped?.saturating_add(link.rx_missed_errors?).saturating_add(link.tx_dropped?))
    };
    counted(DEVICE, count(end, drops, "link.rx_dropped")).put(readings, Metric::DeviceDrops);
    let queue = |it: &ActivityUse| it.net.root_qdisc()?.drops;
    counted(QDISC, count(end, queue, "qdiscs")).put(readings, Metric::QdiscDrops);
}

/// The CPU time of a control group that is the process's own.
fn own_group(readings: &mut Vec<Reading>, end: &EndReport, scope: Scope) {
    let groups = end.activity.window.as_ref().and_then(|window| window.groups.as_ref());
    let own = groups.and_then(|groups| groups.iter().find(|group| group.own));
    if let Some(usage) = own.and_then(|group| group.usage) {
        let source = "cgroup cpu.stat usage_usec, difference over the window";
        readings.push(Reading::real(Metric::CgroupCpu, scope, usage.as_secs_f64(), source));
    }
}

/// What the CPUs were busy with before, as a share and per unit of work taken off.
pub(super) fn background(readings: &mut Vec<Reading>, end: &EndReport, scope: Scope, per: Per) {
    const SOURCE: &str = "busy time of all CPUs while the run waited to start";
    let before = match (&end.activity.before, &end.activity.before_reason) {
        (Some(before), _) => Ok(before),
        (None, reason) => Err(reason.clone().unwrap_or_else(|| "not reported".to_owned())),
    };
    readings.push(match &before {
        Ok(before) => {
            let source = format!("{SOURCE} ({:.0?}), {}", before.elapsed, before.source);
            Reading::real(Metric::CpuBackground, scope, share(before) * 100.0, source)
        }
        Err(reason) => Reading::absent(Metric::CpuBackground, scope, SOURCE, reason.clone()),
    });
    let (metric, by, what) = match per {
        Per::Kib(bytes) => (Metric::ServiceDemandNet, bytes as f64 / 1024.0, "payload received"),
        Per::Transaction(done) => (Metric::ServiceDemandNetTransaction, done as f64, "transactions"),
    };
    let source = format!("system: busy time of all CPUs, less the background / {what}");
    let used =
        end.cpu.as_ref().ok_or_else(|| end.cpu_reason.clone().unwrap_or_else(|| "not reported".to_owned()));
    readings.push(match (used, before) {
        (Ok(used), Ok(before)) => {
            let anyway = share(before) * used.elapsed.as_secs_f64() * f64::from(used.ncpu);
            let own = used.busy.as_secs_f64() - anyway;
            if own > 0.0 {
                Reading::real(metric, scope, own * 1e6 / by, source)
            } else {
                let reason = "the host was no busier in the window than before it".to_owned();
                Reading::absent(metric, scope, source, reason)
            }
        }
        (Err(reason), _) | (_, Err(reason)) => Reading::absent(metric, scope, source, reason),
    });
}

/// Busy share of all CPUs.
fn share(cpu: &CpuUse) -> f64 {
    let whole = cpu.elapsed.as_secs_f64() * f64::from(cpu.ncpu);
    if whole > 0.0 { cpu.busy.as_secs_f64() / whole } else { 0.0 }
}

fn background_doubt(doubts: &mut Vec<Doubt>, end: &EndReport, scope: Scope) {
    let Some(before) = end.activity.before.as_ref().filter(|before| share(before) > BACKGROUND_SHARE) else {
        return;
    };
    let whose =
        if scope == Scope::SharedHost { "this host".to_owned() } else { format!("the {scope}'s host") };
    let text = format!(
        "{:.0} % of the CPUs of {whose} were busy in the {:.0} ms before the flows started",
        share(before) * 100.0,
        before.elapsed.as_secs_f64() * 1e3
    );
    doubts.push(Doubt::new(DoubtId::BackgroundLoad, text));
}

/// Control groups that were held back, and one whose quota was used up.
fn groups_doubt(doubts: &mut Vec<Doubt>, end: &EndReport, scope: Scope) {
    let Some(window) = &end.activity.window else { return };
    let groups = window.groups.as_deref().unwrap_or_default();
    if let Some(worst) = cgroup::throttled(groups).first() {
        let periods =
            worst.throttled_periods.map_or_else(String::new, |count| format!(" in {count} periods"));
        let time =
            worst.throttled.map_or_else(String::new, |time| format!(", {:.2} s in all", time.as_secs_f64()));
        let text =
            format!("the {scope}'s control group {} was held back{periods}{time}", printable(&worst.name));
        doubts.push(Doubt::new(DoubtId::Throttled, text));
    }
    let of_threads = super::threads_total(end).unwrap_or_default();
    let used_up = |group: &&GroupUse| {
        let Some(quota) = group.quota else { return false };
        let used = group.usage.unwrap_or_default().max(of_threads).as_secs_f64();
        used > quota.cpus() * window.elapsed.as_secs_f64() * QUOTA_SHARE
    };
    if let Some((group, quota)) = groups.iter().find(used_up).and_then(|group| Some((group, group.quota?))) {
        let used = group.usage.unwrap_or_default().max(of_threads).as_secs_f64();
        let text = format!(
            "the {scope}'s control group {} may have {:.2} CPUs and used {:.2}",
            printable(&group.name),
            quota.cpus(),
            used / window.elapsed.as_secs_f64()
        );
        doubts.push(Doubt::new(DoubtId::CpuQuota, text));
    }
}

/// What was dropped, in which queue and at whose end.
fn drops_doubt(readings: &[Reading]) -> Option<Doubt> {
    let queues = [
        (Metric::SoftnetDropped, "by a full queue of received packets"),
        (Metric::DeviceDrops, "by the device"),
        (Metric::QdiscDrops, "by its queueing discipline"),
    ];
    let dropped = readings.iter().filter_map(|reading| {
        let (_, queue) = queues.iter().find(|(metric, _)| *metric == reading.metric)?;
        let count = reading.value.map(haul_stats::Value::as_f64).filter(|count| *count > 0.0)?;
        Some(format!("{count:.0} {queue} ({})", reading.scope))
    });
    let dropped: Vec<String> = dropped.collect();
    let text = || format!("packets were dropped inside a host: {}", dropped.join(", "));
    (!dropped.is_empty()).then(|| Doubt::new(DoubtId::PacketsDropped, text()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use haul_host::probe::activity::{InterruptUse, SoftnetUse};
    use haul_host::probe::cgroup::Quota;
    use haul_host::probe::cpu::IrqTime;
    use haul_stats::MonoNanos;

    use super::*;
    use crate::report::{Detail, HostActivity, HostId, Role};

    fn cpu(elapsed_ms: u64, busy_ms: u64) -> CpuUse {
        let [elapsed, busy] = [elapsed_ms, busy_ms].map(Duration::from_millis);
        let zero = Duration::ZERO;
        CpuUse {
            elapsed,
            ncpu: 2,
            busy,
            idle: (elapsed * 2).saturating_sub(busy),
            user: zero,
            nice: zero,
            system: zero,
            irq: zero,
            softirq: zero,
            steal: zero,
            source: "test".to_owned(),
            resolution: zero,
            split_is_ticks: true,
            irq_time: IrqTime::Unknown,
        }
    }

    /// A second of a host whose NIC had 1,000 interrupts for 23,000 packets.
    fn end(role: Role) -> EndReport {
        let mut window = ActivityUse {
            elapsed: Duration::from_secs(1),
            interrupts: Some(InterruptUse { total: 4000, nic: Some(1000), ..InterruptUse::default() }),
            softirqs: Some([("NET_RX".to_owned(), 77), ("NET_TX".to_owned(), 0)].into()),
            softnet: Some(SoftnetUse { dropped: Some(0), squeezed: Some(3), ..SoftnetUse::default() }),
            groups: Some(Vec::new()),
            ..ActivityUse::default()
        };
        (window.net.link.rx_packets, window.net.link.tx_packets) = (Some(3000), Some(20_000));
        let none = Some(0);
        let link = &mut window.net.link;
        (link.rx_dropped, link.rx_missed_errors, link.tx_dropped) = (none, none, none);
        EndReport {
            host: HostId { hostname: String::new(), boot_id: None, version: String::new() },
            role,
            window_start: MonoNanos(0),
            window_end: MonoNanos(1_000_000_000),
            flows: Vec::new(),
            intervals: Vec::new(),
            cpu: Some(cpu(1000, 500)),
            cpu_reason: None,
            activity: Box::new(HostActivity {
                before: Some(cpu(200, 40)),
                window: Some(window),
                ..HostActivity::default()
            }),
            threads: Vec::new(),
            drained: true,
            interrupted: false,
            shared_server: false,
            detail: Detail::Plain,
            ceiling: None,
            observed: None,
        }
    }

    fn readings(
        sender: &EndReport,
        receiver: &EndReport,
        shared: bool,
        per: Per,
    ) -> (Vec<Reading>, Vec<Doubt>) {
        of([(sender, Scope::Sender), (receiver, Scope::Receiver)], shared, per)
    }

    fn find(readings: &[Reading], metric: Metric, scope: Scope) -> &Reading {
        readings.iter().find(|it| (it.metric, it.scope) == (metric, scope)).expect("the reading")
    }

    #[test]
    fn interrupts_and_packets_are_told_by_second_by_gigabyte_and_by_each_other() {
        let (sender, receiver) = (end(Role::Sender), end(Role::Receiver));
        let (of_stream, doubts) = readings(&sender, &receiver, false, Per::Kib(2_000_000_000));
        for (metric, expected) in [
            (Metric::Interrupts, 4000.0),
            (Metric::InterruptsPerSecond, 4000.0),
            (Metric::InterruptsPerGb, 2000.0),
            (Metric::InterruptsNic, 1000.0),
            (Metric::InterruptsNicPerSecond, 1000.0),
            (Metric::InterruptsNicPerGb, 500.0),
            (Metric::PacketsPerInterrupt, 23.0),
            (Metric::DevicePacketsPerSecond, 23_000.0),
            (Metric::SoftirqsNetRx, 77.0),
            (Metric::SoftnetDropped, 0.0),
            (Metric::SoftnetSqueezed, 3.0),
            (Metric::DeviceDrops, 0.0),
        ] {
            for scope in [Scope::Sender, Scope::Receiver] {
                let value = find(&of_stream, metric, scope).value.expect("a value").as_f64();
                assert!((value - expected).abs() < 1e-9, "{metric} of {scope}: {value}");
            }
        }
        // 20 % of two CPUs were busy before.
        let ids: Vec<DoubtId> = doubts.iter().map(|doubt| doubt.id).collect();
        assert_eq!(ids, [DoubtId::BackgroundLoad, DoubtId::BackgroundLoad]);
        assert!(doubts[1].text.contains("10 % of the CPUs of the receiver's host"), "{}", doubts[1].text);
        let (of_exchange, _) = readings(&sender, &receiver, false, Per::Transaction(1000));
        let each = find(&of_exchange, Metric::InterruptsPerTransaction, Scope::Sender);
        assert_eq!(each.value.map(haul_stats::Value::as_f64), Some(4.0));
        assert!(!of_exchange.iter().any(|it| it.metric == Metric::InterruptsPerGb));
    }

    #[test]
    fn what_is_absent_has_its_reason_and_is_never_zero() {
        let mut sender = end(Role::Sender);
        let window = sender.activity.window.as_mut().expect("window");
        let lines = window.interrupts.as_mut().expect("interrupts");
        (lines.nic, lines.nic_by) = (None, "haul-c (veth) has no interrupt line of its own".to_owned());
        window.softnet = None;
        window.absent.insert("softnet".to_owned(), "CPUs went on or off in the window".to_owned());
        let mut receiver = end(Role::Receiver);
        receiver.activity.window = None;
        receiver.activity.window_reason = Some("the window never opened".to_owned());
        let (found, _) = readings(&sender, &receiver, false, Per::Kib(1));
        for (metric, scope, reason) in [
            (Metric::InterruptsNic, Scope::Sender, "no interrupt line of its own"),
            (Metric::PacketsPerInterrupt, Scope::Sender, "no interrupt line of its own"),
            (Metric::SoftnetDropped, Scope::Sender, "CPUs went on or off"),
            (Metric::Interrupts, Scope::Receiver, "never opened"),
            (Metric::DevicePacketsPerSecond, Scope::Receiver, "never opened"),
            (Metric::DeviceDrops, Scope::Receiver, "never opened"),
        ] {
            let reading = find(&found, metric, scope);
            let why = reading.reason.as_deref().unwrap_or_default();
            assert!(reading.value.is_none() && why.contains(reason), "{metric}: {reading:?}");
        }
        // A device that counts its interrupts and had none: nothing to divide by.
        let mut quiet = end(Role::Sender);
        quiet.activity.window.as_mut().and_then(|it| it.interrupts.as_mut()).expect("interrupts").nic =
            Some(0);
        let (found, _) = readings(&quiet, &receiver, false, Per::Kib(1));
        assert!(find(&found, Metric::PacketsPerInterrupt, Scope::Sender).reason.is_some());
        assert_eq!(find(&found, Metric::InterruptsNic, Scope::Sender).value, Some(haul_stats::Value::Int(0)));
    }

    #[test]
    fn the_background_is_taken_off_at_its_rate_and_a_window_no_busier_has_no_demand() {
        let of = |before: Option<CpuUse>| {
            let mut end = end(Role::Sender);
            end.activity.before = before;
            end.activity.before_reason = Some("woken late".to_owned());
            let mut found = Vec::new();
            background(&mut found, &end, Scope::Sender, Per::Kib(1024 * 1000));
            found
        };
        // Busy 0.5 s of 2, before it 10 % of two CPUs: 0.2 s. That leaves 300 ms for 1,000 KiB.
        let found = of(Some(cpu(200, 40)));
        let value = |metric| find(&found, metric, Scope::Sender).value.map(haul_stats::Value::as_f64);
        assert_eq!(value(Metric::CpuBackground), Some(10.0));
        assert!(value(Metric::ServiceDemandNet).is_some_and(|net| (net - 300.0).abs() < 1e-6), "{found:?}");
        let busier = of(Some(cpu(200, 400)));
        let net = find(&busier, Metric::ServiceDemandNet, Scope::Sender);
        assert!(
            net.value.is_none() && net.reason.as_ref().is_some_and(|why| why.contains("no busier")),
            "{net:?}"
        );
        for reading in of(None) {
            assert_eq!(reading.reason.as_deref(), Some("woken late"), "{reading:?}");
        }
    }

    #[test]
    fn drops_throttling_and_a_quota_that_is_used_up_are_doubted_by_name() {
        let mut sender = end(Role::Sender);
        let window = sender.activity.window.as_mut().expect("window");
        window.softnet = Some(SoftnetUse { dropped: Some(9), ..SoftnetUse::default() });
        window.net.link.tx_dropped = Some(4);
        window.groups = Some(vec![GroupUse {
            name: "/jobs/\u{1b}[31mred".to_owned(),
            quota: Some(Quota { quota_us: 50_000, period_us: 100_000 }),
            usage: Some(Duration::from_millis(480)),
            throttled_periods: Some(7),
            throttled: Some(Duration::from_millis(300)),
            ..GroupUse::default()
        }]);
        let receiver = end(Role::Receiver);
        let (_, doubts) = readings(&sender, &receiver, false, Per::Kib(1));
        let text = |id: DoubtId| doubts.iter().find(|doubt| doubt.id == id).expect("the doubt").text.clone();
        let dropped = text(DoubtId::PacketsDropped);
        assert!(dropped.contains("9 by a full queue of received packets (sender)"), "{dropped}");
        assert!(dropped.contains("4 by the device (sender)") && !dropped.contains("receiver"), "{dropped}");
        let held = text(DoubtId::Throttled);
        assert!(held.contains("in 7 periods, 0.30 s in all") && !held.contains('\u{1b}'), "{held}");
        let quota = text(DoubtId::CpuQuota);
        assert!(quota.contains("may have 0.50 CPUs and used 0.48"), "{quota}");
        // Of one kernel what is the host's is told once, at the scope of both.
        let (shared, _) = readings(&sender, &receiver, true, Per::Kib(1));
        let scopes = shared.iter().filter(|it| it.metric == Metric::SoftnetDropped).map(|it| it.scope);
        assert_eq!(scopes.collect::<Vec<_>>(), [Scope::SharedHost]);
        // Half a quota is no doubt.
        let idle = readings(&receiver, &receiver, false, Per::Kib(1)).1;
        assert!(!idle.iter().any(|it| matches!(it.id, DoubtId::CpuQuota | DoubtId::Throttled)), "{idle:?}");
    }
}
