//! haul against the bare loop and its peers: one TCP stream in the lab, interleaved, printed as ratios.
//!
//! Every tool is judged by the same instruments and none by its own word: payload rate from the byte counter of the
//! server's interface, CPU from the busy time of the host, both over the same steady span in the middle of a run. One
//! round runs every tool once, in random order; ratios are taken within rounds, because this may be a shared machine
//! whose speed drifts, and their median is what counts.
#![forbid(unsafe_code)]

mod bare;
mod modes;

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, Subcommand};
use haul_host::probe::cpu::HostCpu;
use haul_host::thread::{self, CpuList};
use haul_host::veth_lab::{VethLab, VethOptions};
use haul_host::{clock, ethtool};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

/// haul's default message, which every tool is told to use.
const MESSAGE: usize = 128 << 10;
const PORT: u16 = 5301;

#[derive(Parser)]
#[command(
    about = "haul, a bare send/recv loop, iperf3, iperf and nuttcp, interleaved in the lab (needs root)"
)]
struct Args {
    /// Rounds per condition; the median of their ratios is printed
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Seconds of the steady span that is measured
    #[arg(long, default_value_t = 2.0)]
    span: f64,
    /// One short round of everything: shows that the benchmark works, not how fast haul is
    #[arg(long)]
    quick: bool,
    /// Every way of sending and receiving against a bare loop of the same system calls, in place of the peers
    #[arg(long)]
    modes: bool,
    /// What haul sends: 'repeat' to do exactly as the bare loop and the peers do
    #[arg(long, default_value = "stamped")]
    payload: String,
    /// The haul binary to measure; default: the one built beside this program
    #[arg(long)]
    haul: Option<PathBuf>,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Subcommand)]
enum Part {
    /// The yardstick's receiving process
    #[command(hide = true)]
    BareReceive {
        listen: SocketAddr,
        #[arg(long)]
        discard: bool,
    },
    /// The yardstick's sending process
    #[command(hide = true)]
    BareSend {
        to: SocketAddr,
        seconds: f64,
        #[arg(long, value_enum, default_value_t = bare::How::Write)]
        how: bare::How,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tool {
    Haul,
    Bare,
    Iperf3,
    Iperf,
    Nuttcp,
}

impl Tool {
    const ALL: [Self; 5] = [Self::Haul, Self::Bare, Self::Iperf3, Self::Iperf, Self::Nuttcp];

    fn name(self) -> &'static str {
        match self {
            Self::Haul => "haul",
            Self::Bare => "bare loop",
            Self::Iperf3 => "iperf3",
            Self::Iperf => "iperf",
            Self::Nuttcp => "nuttcp",
        }
    }

    /// The commands of its server and client ends.
    fn commands(self, bench: &Bench, server: IpAddr, seconds: f64) -> (Command, Command) {
        let own = |args: &[String]| {
            let mut command = Command::new(&bench.own);
            command.args(args);
            command
        };
        let with = |program: &str, args: &[&str]| {
            let mut command = Command::new(program);
            command.args(args);
            command
        };
        let (host, port) = (server.to_string(), PORT.to_string());
        let time = format!("{seconds}");
        let whole = format!("{:.0}", seconds.ceil());
        let length = MESSAGE.to_string();
        match self {
            Self::Haul => {
                let at = format!("{host}:{port}");
                let run = format!("{}ms", (seconds * 1e3).round());
                let binary = bench.haul.to_string_lossy();
                (
                    with(&binary, &["serve", "--listen", &at, "--open"]),
                    with(
                        &binary,
                        &[
                            "stream",
                            &at,
                            "--open",
                            "--payload",
                            &bench.payload,
                            "--warmup",
                            "0ms",
                            "--time",
                            &run,
                            "--format",
                            "json",
                        ],
                    ),
                )
            }
            Self::Bare => {
                let at = format!("{host}:{port}");
                (own(&["bare-receive".to_owned(), at.clone()]), own(&["bare-send".to_owned(), at, time]))
            }
            Self::Iperf3 => (
                with("iperf3", &["-s", "-1", "-p", &port]),
                with("iperf3", &["-c", &host, "-p", &port, "-t", &whole, "-l", &length]),
            ),
            Self::Iperf => (
                with("iperf", &["-s", "-p", &port, "-l", &length]),
                with("iperf", &["-c", &host, "-p", &port, "-t", &whole, "-l", &length]),
            ),
            Self::Nuttcp => (
                with("nuttcp", &["-1", "-P", &port]),
                with("nuttcp", &["-t", "-P", &port, "-T", &whole, "-l", &length, &host]),
            ),
        }
    }
}

/// One tool's figures in one round.
#[derive(Debug, Clone, Copy)]
struct Figure {
    gbit_per_s: f64,
    cpu_s_per_gb: f64,
}

struct Bench {
    own: PathBuf,
    haul: PathBuf,
    lab: VethLab,
    span: Duration,
    payload: String,
}

/// A process that does not outlive its handle.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Already gone is as good as killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    match args.part {
        Some(Part::BareReceive { listen, discard }) => bare::receive(listen, MESSAGE, discard),
        Some(Part::BareSend { to, seconds, how }) => {
            bare::send(to, MESSAGE, Duration::from_secs_f64(seconds), how)
        }
        None => run(&args),
    }
}

fn run(args: &Args) -> Result<()> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let haul = match &args.haul {
        Some(path) => path.clone(),
        None => own.with_file_name("haul"),
    };
    ensure!(haul.exists(), "{} is not built: cargo build --release -p haul", haul.display());
    let lab = VethLab::build(VethOptions::default()).context("cannot build the lab (are you root?)")?;
    let (span, rounds) = if args.quick { (0.3, 1) } else { (args.span, args.rounds) };
    let bench = Bench { own, haul, lab, span: Duration::from_secs_f64(span), payload: args.payload.clone() };
    if !args.modes {
        bench.overheads(if args.quick { 3 } else { 10 })?;
    }
    for netns in [&bench.lab.client, &bench.lab.server] {
        // The default here may be bbr, which paces a veth pair to a fifth of what it carries.
        netns
            .run(|| fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "reno"))?
            .context("cannot choose reno")?;
    }
    if args.modes {
        return [false, true].into_iter().try_for_each(|pinned| modes::run(&bench, rounds, pinned));
    }
    let mut order = Tool::ALL.to_vec();
    let mut random = SmallRng::seed_from_u64(1);
    for offloads in [true, false] {
        bench.set_offloads(offloads)?;
        for pinned in [false, true] {
            let mut figures: BTreeMap<Tool, Vec<Figure>> = BTreeMap::new();
            for round in 0..rounds {
                order.shuffle(&mut random);
                for &tool in &order {
                    let figure = bench.measure(tool, pinned).with_context(|| tool.name())?;
                    figures.entry(tool).or_default().push(figure);
                }
                eprintln!("round {} of {rounds} done", round + 1);
            }
            print(offloads, pinned, &figures);
        }
    }
    Ok(())
}

impl Bench {
    /// What building a lab takes, and what a run takes beside its warm-up and window: the difference between one run and
    /// many of the same command, so that the start of the process is not in it.
    fn overheads(&self, runs: u32) -> Result<()> {
        const WINDOW: Duration = Duration::from_millis(100);
        let mut labs = Vec::new();
        for _ in 0..runs {
            let start = Instant::now();
            drop(VethLab::build(VethOptions::default())?);
            labs.push(start.elapsed().as_secs_f64() * 1e3);
        }
        let time = |runs: u32| -> Result<Duration> {
            let mut command = Command::new(&self.haul);
            let window = format!("{}ms", WINDOW.as_millis());
            command.args(["stream", "lab", "--cc", "reno", "--warmup", "0ms", "--time", &window, "--quiet"]);
            command.args(["--runs", &runs.to_string()]).stdout(Stdio::null());
            let start = Instant::now();
            ensure!(command.status().context("cannot start haul")?.success(), "haul stream lab failed");
            Ok(start.elapsed())
        };
        let one = time(1)?;
        let beside = (time(runs + 1)?.saturating_sub(one) / runs).saturating_sub(WINDOW);
        println!("building a lab: {:.1} ms, median of {runs}", median(labs));
        println!("a run beside its window: {:.1} ms, mean of {runs}", beside.as_secs_f64() * 1e3);
        Ok(())
    }

    fn set_offloads(&self, on: bool) -> Result<()> {
        for (netns, device) in
            [(&self.lab.client, &self.lab.client_dev), (&self.lab.server, &self.lab.server_dev)]
        {
            netns
                .run(|| {
                    let wanted =
                        ["tx-tcp-segmentation", "tx-generic-segmentation", "rx-gro"].map(|name| (name, on));
                    ethtool::set_wanted(device.index, &device.name, &wanted)
                })?
                .context("cannot switch the offloads")?;
        }
        Ok(())
    }

    /// Runs a tool once and looks at it over the steady span.
    fn measure(&self, tool: Tool, pinned: bool) -> Result<Figure> {
        self.measure_commands(pinned, |seconds| tool.commands(self, self.lab.server_addr, seconds))
    }

    /// Runs the server and the client that `commands` makes for so many seconds, and looks at them over the steady span.
    fn measure_commands(
        &self,
        pinned: bool,
        commands: impl FnOnce(f64) -> (Command, Command),
    ) -> Result<Figure> {
        const SETTLE: Duration = Duration::from_millis(400);
        let seconds = (SETTLE + self.span + Duration::from_millis(300)).as_secs_f64();
        let (server, client) = commands(seconds);
        let cpu = |cpu: &str| pinned.then(|| cpu.parse::<CpuList>()).transpose();
        let _server = start(&self.lab.server, server, cpu("1")?)?;
        self.await_listener()?;
        let mut client = start(&self.lab.client, client, cpu("0")?)?;
        std::thread::sleep(SETTLE);
        let (bytes, busy, at) = (self.received()?, HostCpu::read()?, clock::now());
        std::thread::sleep(self.span);
        let (bytes, busy, elapsed) =
            (self.received()? - bytes, HostCpu::read()?.since(&busy).busy, clock::now().since(at));
        if let Some(status) = client.0.try_wait()? {
            bail!("ended within the measured span ({status})");
        }
        let status = client.0.wait()?;
        ensure!(status.success(), "failed ({status})");
        ensure!(bytes > 0, "moved nothing in the measured span");
        Ok(Figure {
            gbit_per_s: bytes as f64 * 8.0 / elapsed.as_secs_f64() / 1e9,
            cpu_s_per_gb: busy.as_secs_f64() / (bytes as f64 / 1e9),
        })
    }

    /// Waits until a server listens: how long that takes differs by tool and by what else the machine does.
    fn await_listener(&self) -> Result<()> {
        const LONGEST: Duration = Duration::from_secs(5);
        // Address and port in hexadecimal, and state 0A: listening (proc(5), net/tcp).
        let port = format!(":{PORT:04X} ");
        let until = clock::now().after(LONGEST);
        while clock::now() < until {
            let tables = self.lab.server.run(|| {
                ["tcp", "tcp6"].map(|table| {
                    fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default()
                })
            })?;
            let listens = |line: &str| line.contains(&port) && line.split_whitespace().nth(3) == Some("0A");
            if tables.iter().any(|table| table.lines().any(listens)) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("its server did not listen within {LONGEST:?}")
    }

    /// Bytes the server's interface has received.
    fn received(&self) -> Result<u64> {
        let table = self.lab.server.run(|| fs::read_to_string("/proc/thread-self/net/dev"))??;
        let name = format!("{}:", self.lab.server_dev.name);
        let line = table.lines().find_map(|line| line.trim_start().strip_prefix(&name));
        let bytes =
            line.and_then(|line| line.split_whitespace().next()).context("the interface has no counters")?;
        Ok(bytes.parse()?)
    }
}

/// Starts a command inside a namespace, on a CPU.
fn start(netns: &haul_host::netns::Netns, mut command: Command, cpu: Option<CpuList>) -> Result<Process> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    netns
        .run(move || -> Result<Process> {
            if let Some(cpu) = &cpu {
                thread::pin_current(cpu)?;
            }
            Ok(Process(command.spawn().with_context(|| format!("cannot start {name}"))?))
        })?
        .context("cannot start a tool in its namespace")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}

/// The ratios of one tool's figures to another's, round by round: their median, and the least and the most.
fn ratios(these: &[Figure], to: &[Figure], of: fn(&Figure) -> f64) -> String {
    let each: Vec<f64> = these.iter().zip(to).map(|(this, other)| of(this) / of(other)).collect();
    let (low, high) = each.iter().fold((f64::MAX, f64::MIN), |(low, high), &r| (low.min(r), high.max(r)));
    format!("{:.3} ({low:.2} … {high:.2})", median(each))
}

fn print(offloads: bool, pinned: bool, figures: &BTreeMap<Tool, Vec<Figure>>) {
    println!(
        "\none TCP stream, 128 KiB messages, reno, offloads {}, {}",
        if offloads { "on" } else { "off" },
        if pinned { "client on CPU 0 and server on CPU 1" } else { "not pinned" }
    );
    println!("{:<10} {:>9} {:>9}   haul/this, median of rounds (min … max)", "tool", "Gbit/s", "CPU s/GB");
    let haul = &figures[&Tool::Haul];
    for (tool, own) in figures {
        let rate = median(own.iter().map(|figure| figure.gbit_per_s).collect());
        let cost = median(own.iter().map(|figure| figure.cpu_s_per_gb).collect());
        print!("{:<10} {rate:>9.2} {cost:>9.3}", tool.name());
        if *tool == Tool::Haul {
            println!();
        } else {
            println!(
                "   throughput {}   CPU/GB {}",
                ratios(haul, own, |f| f.gbit_per_s),
                ratios(haul, own, |f| f.cpu_s_per_gb)
            );
        }
    }
}
