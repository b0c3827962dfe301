//! What was seen in an interval, and who sees it.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use haul_host::probe::net::{DeviceTotals, device_totals};
use haul_host::probe::profile::{Class, Profile, ProfileOptions, Profiler};
use haul_host::probe::{CpuUse, HostCpu};
use haul_host::thread::Tid;
use haul_stats::Metric;
use serde_json::{Value as Json, json};

use super::child::Workload;

/// Whose a thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Whose {
    /// Sends, asks or connects.
    Sender,
    /// Receives, answers or accepts.
    Receiver,
    Others,
}

impl Whose {
    fn name(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
            Self::Others => "others",
        }
    }
}

/// What the CPU time is divided by.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Divisor {
    /// Nothing moved, or nothing is known of it.
    None,
    /// Bytes of a workload's payload.
    Payload(f64),
    /// Transactions of a workload.
    Transactions(f64),
    /// Bytes through a device.
    Device(String, f64),
}

impl Divisor {
    /// KiB, or transactions.
    pub(crate) fn units(&self) -> Option<f64> {
        let units = match self {
            Self::None => return None,
            Self::Payload(bytes) | Self::Device(_, bytes) => bytes / 1024.0,
            Self::Transactions(count) => *count,
        };
        (units > 0.0).then_some(units)
    }

    /// The unit's name.
    pub(crate) fn unit(&self) -> &'static str {
        if matches!(self, Self::Transactions(_)) { "transaction" } else { "KiB" }
    }
}

/// A device in an interval, per second.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) rx_bytes: f64,
    pub(crate) tx_bytes: f64,
    pub(crate) rx_packets: f64,
    pub(crate) tx_packets: f64,
}

impl Device {
    /// Bytes a second that count: on lo each is sent and received.
    fn counted(&self) -> f64 {
        if self.name == "lo" { self.rx_bytes } else { self.rx_bytes + self.tx_bytes }
    }
}

/// A symbol in an interval.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Symbol {
    pub(crate) name: String,
    pub(crate) module: String,
    pub(crate) class: Class,
    pub(crate) whose: Whose,
    /// CPU time in it, in ns: its share of the samples that were not idle, of the time that was not.
    pub(crate) nanos: f64,
}

/// An interval.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Slice {
    pub(crate) cpu: CpuUse,
    /// The busiest first.
    pub(crate) devices: Vec<Device>,
    /// Payload and transactions a second, where a workload runs and has told.
    pub(crate) rates: Option<(Option<f64>, Option<f64>)>,
    pub(crate) phase: String,
    pub(crate) divisor: Divisor,
    /// The costliest first, or why there are none.
    pub(crate) symbols: Result<Vec<Symbol>, String>,
    pub(crate) samples: u64,
    pub(crate) lost: u64,
    /// What was sampled by.
    pub(crate) event: String,
    /// CPU time of haul top itself.
    pub(crate) own: Duration,
}

impl Slice {
    /// CPU time that was not idle per KiB or transaction, in µs.
    pub(crate) fn demand(&self) -> Option<f64> {
        Some(self.cpu.busy.as_secs_f64() * 1e6 / self.divisor.units()?)
    }

    /// As a line for programs: metrics by their names and units in documents.
    pub(crate) fn json(&self, at: Duration) -> Json {
        const LISTED: usize = 100;
        let seconds = self.cpu.elapsed.as_secs_f64();
        let mut readings = Vec::new();
        let mut reading = |metric: Metric, value: Option<f64>| {
            readings.push(json!({"metric": metric, "unit": metric.facts().unit, "value": value}));
        };
        if let Some((bytes, transactions)) = self.rates {
            if let Some(bytes) = bytes {
                reading(Metric::Throughput, Some(bytes * 8.0));
            }
            if let Some(transactions) = transactions {
                reading(Metric::Transactions, Some(transactions));
            }
        }
        reading(Metric::CpuBusy, Some(self.cpu.busy.as_secs_f64()));
        reading(Metric::CpuSoftirq, Some(self.cpu.softirq.as_secs_f64()));
        reading(Metric::CpuSteal, Some(self.cpu.steal.as_secs_f64()));
        let transactions = matches!(self.divisor, Divisor::Transactions(_));
        let demand = if transactions { Metric::ServiceDemandTransaction } else { Metric::ServiceDemand };
        reading(demand, self.demand());
        let devices: Vec<Json> = self
            .devices
            .iter()
            .map(|device| {
                json!({
                    "device": device.name, "rx_bits_per_second": device.rx_bytes * 8.0,
                    "tx_bits_per_second": device.tx_bytes * 8.0,
                    "rx_packets_per_second": device.rx_packets, "tx_packets_per_second": device.tx_packets,
                })
            })
            .collect();
        let busy: f64 = self.cpu.busy.as_secs_f64() * 1e9;
        let symbol = |symbol: &Symbol| {
            json!({
                "symbol": symbol.name, "module": symbol.module, "class": symbol.class,
                "threads": symbol.whose.name(), "share": symbol.nanos / busy.max(1.0),
                "ns_per_second": symbol.nanos / seconds,
                "ns_per_unit": self.divisor.units().map(|units| symbol.nanos / units),
            })
        };
        let (symbols, absent) = match &self.symbols {
            Ok(symbols) => (symbols.iter().take(LISTED).map(symbol).collect(), None),
            Err(reason) => (Vec::new(), Some(reason)),
        };
        json!({
            "event": "top", "at_s": at.as_secs_f64(), "seconds": seconds, "readings": readings,
            "cpus": self.cpu.ncpu, "cpu_source": self.cpu.source, "devices": devices,
            "divisor": match &self.divisor {
                Divisor::None => Json::Null,
                Divisor::Payload(bytes) => json!({"of": "payload", "bytes": bytes}),
                Divisor::Transactions(count) => json!({"of": "transactions", "transactions": count}),
                Divisor::Device(name, bytes) => json!({"of": name, "bytes": bytes}),
            },
            "sampled_by": self.event, "samples": self.samples, "lost": self.lost, "symbols": symbols,
            "symbols_absent": absent, "own_cpu_s": self.own.as_secs_f64(),
        })
    }
}

/// Looks at this host.
pub(crate) struct Watcher {
    began: Instant,
    cpu: Option<HostCpu>,
    devices: Option<(Instant, Vec<DeviceTotals>)>,
    profiler: Result<Profiler, String>,
    device: Option<String>,
    own: Duration,
}

impl Watcher {
    /// Begins. Where sampling is not allowed, that is what the symbols will say.
    pub(crate) fn start(hz: u32, device: Option<String>) -> Self {
        let options = ProfileOptions { hz, call_chains: false, ..ProfileOptions::default() };
        let profiler = Profiler::start(&options).map_err(|error| error.to_string());
        if let Ok(profiler) = &profiler {
            profiler.mark_open();
        }
        Self {
            began: Instant::now(),
            cpu: HostCpu::read().ok(),
            devices: device_totals().ok().map(|devices| (Instant::now(), devices)),
            profiler,
            device,
            own: own_time(),
        }
    }

    /// What happened since the last time.
    pub(crate) fn look(&mut self, mut workload: Option<&mut Workload>) -> Slice {
        let profile = match &mut self.profiler {
            Ok(profiler) => profiler.take().map_err(|error| error.to_string()),
            Err(reason) => Err(reason.clone()),
        };
        let now = HostCpu::read().ok();
        let cpu = match (&now, &self.cpu) {
            (Some(now), Some(then)) => now.since(then),
            _ => nothing(self.began.elapsed()),
        };
        self.cpu = now;
        let devices = self.rates();
        let rates = workload.as_mut().and_then(|workload| workload.rates());
        let seconds = cpu.elapsed.as_secs_f64();
        let divisor = match (&workload, rates) {
            // Transactions first: what an exchange moves is not what it is for.
            (Some(_), Some((_, Some(transactions)))) => Divisor::Transactions(transactions * seconds),
            (Some(_), Some((Some(bytes), None))) => Divisor::Payload(bytes * seconds),
            (Some(_), _) => Divisor::None,
            (None, _) => devices.first().map_or(Divisor::None, |first| {
                Divisor::Device(first.name.clone(), first.counted() * seconds)
            }),
        };
        let ends = workload.as_ref().map(|workload| threads_of(workload.pid())).unwrap_or_default();
        let (samples, lost) = profile.as_ref().map_or((0, 0), |profile| (profile.samples, profile.lost));
        let event = profile.as_ref().map(|profile| profile.event.clone()).unwrap_or_default();
        let symbols = profile.and_then(|profile| symbols(&profile, &cpu, &ends));
        let own = own_time();
        let spent = own.saturating_sub(self.own);
        self.own = own;
        let phase = workload.map(|workload| workload.phase().to_owned()).unwrap_or_default();
        Slice { cpu, devices, rates, phase, divisor, symbols, samples, lost, event, own: spent }
    }

    fn rates(&mut self) -> Vec<Device> {
        let now = device_totals().ok().map(|devices| (Instant::now(), devices));
        let mut devices = Vec::new();
        if let (Some((at, totals)), Some((then, before))) = (&now, &self.devices) {
            let seconds = at.duration_since(*then).as_secs_f64().max(1e-9);
            for device in totals {
                // One that is new has no interval yet; one that was made anew went backwards, and has none either.
                let Some(earlier) = before.iter().find(|earlier| earlier.name == device.name) else {
                    continue;
                };
                let per_second = |part: fn(&DeviceTotals) -> u64| {
                    part(device).saturating_sub(part(earlier)) as f64 / seconds
                };
                devices.push(Device {
                    name: device.name.clone(),
                    rx_bytes: per_second(|it| it.rx_bytes),
                    tx_bytes: per_second(|it| it.tx_bytes),
                    rx_packets: per_second(|it| it.rx_packets),
                    tx_packets: per_second(|it| it.tx_packets),
                });
            }
        }
        self.devices = now;
        if let Some(asked) = &self.device {
            devices.retain(|device| device.name == *asked);
        }
        devices.sort_by(|a, b| b.counted().total_cmp(&a.counted()));
        devices
    }
}

/// The symbols of a window that was not idle throughout.
fn symbols(profile: &Profile, cpu: &CpuUse, ends: &BTreeMap<Tid, Whose>) -> Result<Vec<Symbol>, String> {
    if profile.samples == 0 {
        return Err("no sample in this interval".to_owned());
    }
    let busy: u64 = profile.classes.iter().map(|class| class.amount).sum();
    let scale = cpu.busy.as_secs_f64() * 1e9 / (busy.max(1)) as f64;
    let symbol = |cost: &haul_host::probe::profile::SymbolCost| Symbol {
        name: cost.symbol.clone(),
        module: cost.module.clone(),
        class: cost.class,
        whose: cost.thread.and_then(|tid| ends.get(&tid).copied()).unwrap_or(Whose::Others),
        nanos: cost.amount as f64 * scale,
    };
    Ok(profile.symbols.iter().map(symbol).collect())
}

/// The workers of a workload, by the names haul gives them: in the lab those of both ends are in one process.
fn threads_of(pid: u32) -> BTreeMap<Tid, Whose> {
    let mut threads: BTreeMap<Tid, Whose> = BTreeMap::new();
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return threads };
    for task in tasks.flatten() {
        let Some(tid) = task.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        threads.insert(tid, whose(name.trim()));
    }
    threads
}

/// Whose a thread of that name is: workers are named by what they do.
fn whose(name: &str) -> Whose {
    let is = |works: &[&str]| {
        name.strip_prefix("haul-").is_some_and(|name| works.iter().any(|work| name.starts_with(work)))
    };
    match () {
        () if is(&["send-", "ask-", "connect-"]) => Whose::Sender,
        () if is(&["recv-", "answer-", "accept-"]) => Whose::Receiver,
        () => Whose::Others,
    }
}

/// CPU time of this process: of the threads that are there, which lasts as long as it does.
fn own_time() -> Duration {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return Duration::ZERO };
    let of = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_ascii_whitespace().next()?.parse().ok().map(Duration::from_nanos)
    };
    tasks.flatten().filter_map(of).sum()
}

/// An interval in which the CPUs could not be read.
fn nothing(elapsed: Duration) -> CpuUse {
    CpuUse {
        elapsed,
        ncpu: 0,
        busy: Duration::ZERO,
        idle: Duration::ZERO,
        user: Duration::ZERO,
        nice: Duration::ZERO,
        system: Duration::ZERO,
        irq: Duration::ZERO,
        softirq: Duration::ZERO,
        steal: Duration::ZERO,
        source: "/proc/stat could not be read".to_owned(),
        resolution: Duration::ZERO,
        split_is_ticks: true,
        irq_time: haul_host::probe::cpu::IrqTime::Unknown,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A second in which one of two CPUs was busy.
    pub(crate) fn slice(divisor: Divisor, symbols: &[(&str, Class, f64)]) -> Slice {
        let mut cpu = nothing(Duration::from_secs(1));
        cpu.ncpu = 2;
        cpu.busy = Duration::from_secs(1);
        cpu.softirq = Duration::from_millis(100);
        let symbol = |(name, class, nanos): &(&str, Class, f64)| Symbol {
            name: (*name).to_owned(),
            module: "[kernel]".to_owned(),
            class: *class,
            whose: Whose::Sender,
            nanos: *nanos,
        };
        let eth0 = Device {
            name: "eth0".to_owned(),
            rx_bytes: 1.25e9,
            tx_bytes: 2.5e6,
            rx_packets: 823_000.0,
            tx_packets: 41_000.0,
        };
        let rates = match divisor {
            Divisor::Payload(bytes) => Some((Some(bytes), None)),
            Divisor::Transactions(count) => Some((None, Some(count))),
            Divisor::None | Divisor::Device(..) => None,
        };
        Slice {
            cpu,
            devices: vec![eth0],
            rates,
            phase: "run 1 of 1".to_owned(),
            divisor,
            symbols: Ok(symbols.iter().map(symbol).collect()),
            samples: 194,
            lost: 0,
            event: "cpu-clock".to_owned(),
            own: Duration::from_millis(8),
        }
    }

    #[test]
    fn workers_are_told_apart_by_their_names_and_the_rest_is_others() {
        for (name, wanted) in [
            ("haul-send-0", Whose::Sender),
            ("haul-ask-12", Whose::Sender),
            ("haul-connect-0", Whose::Sender),
            ("haul-recv-0", Whose::Receiver),
            ("haul-answer-1", Whose::Receiver),
            ("haul-accept-0", Whose::Receiver),
            ("haul-session", Whose::Others),
            ("haul-tape", Whose::Others),
            ("sender", Whose::Others),
        ] {
            assert_eq!(whose(name), wanted, "{name}");
        }
    }

    #[test]
    fn bytes_of_lo_count_once_and_those_of_others_in_both_directions() {
        let device =
            |name: &str| Device { name: name.into(), rx_bytes: 5.0, tx_bytes: 5.0, ..Device::default() };
        assert_eq!((device("lo").counted(), device("veth0").counted()), (5.0, 10.0));
    }

    #[test]
    fn a_line_of_json_names_metrics_as_documents_do() {
        let line = slice(Divisor::Payload(1_024_000.0), &[("copy_one", Class::Copy, 6e8)])
            .json(Duration::from_secs(2));
        let reading = |name: &str| {
            let readings = line["readings"].as_array().expect("readings");
            let found =
                readings.iter().find(|it| it["metric"] == name).unwrap_or_else(|| panic!("no {name}"));
            (found["value"].as_f64().expect("a value"), found["unit"].as_str().expect("a unit").to_owned())
        };
        assert_eq!(reading("throughput"), (8_192_000.0, "bit/s".to_owned()));
        assert_eq!(reading("service_demand"), (1000.0, "us/KiB".to_owned()));
        assert_eq!(reading("cpu_busy"), (1.0, "s".to_owned()));
        let symbol = &line["symbols"][0];
        assert_eq!((symbol["share"].as_f64(), symbol["ns_per_unit"].as_f64()), (Some(0.6), Some(6e5)));
    }
}
