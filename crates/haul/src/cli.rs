//! The command line: the one definition behind parsing, help, completions and man pages.
//!
//! Help says when to use an option, not only what it is. Values with a grammar of their own (sweeps, arms, targets) stay
//! text here and are read by haul-lab, so that a plan file and the command line cannot disagree about them.
#![expect(clippy::doc_markdown, reason = "the doc comments are the help text, where backticks would show")]
#![cfg_attr(doc, expect(rustdoc::broken_intra_doc_links, reason = "brackets in help text are no links"))]

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use haul_lab::survey::Survey;
use haul_stats::units;
use serde_json::{Value as Json, json};

mod copy;
mod inside;
mod read;
mod top;
mod workload;

pub(crate) use copy::Copy;
pub(crate) use inside::Inside;
pub(crate) use read::Read;
pub(crate) use top::{Top, TopFormat};
pub(crate) use workload::{CommonOptions, ExchangeOptions, StreamOptions};

const EXAMPLES: &str = "\
Examples:
  haul demo                                    the whole idea, on this machine, in under a minute
  haul stream lab --cc reno                    one TCP stream between two private namespaces
  haul stream HOST --flows 1,4,16 --runs 5     a sweep against a host that runs 'haul serve'
  haul rr HOST --flows 200 --request 1400      transactions per second and their latency
  haul stream HOST --probe rr:1000/s           what the load does to the latency of others
  haul ab stream HOST --arm off:nic.tso=off --arm on:nic.tso=on --pairs 10
  haul read                                    what an unaligned buffer costs when a cached file is read";

/// Measures what it costs to move bytes, and tells whether a change made it cheaper.
#[derive(Parser, Debug)]
#[command(name = "haul", version, about, after_help = EXAMPLES, max_term_width = 100)]
#[command(propagate_version = true, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Show the whole idea in under a minute, on this machine, with nothing set up
    Demo(Demo),
    /// Be the other end: let clients with the key measure against this host
    Serve(Serve),
    /// Measure streams, TCP or UDP: throughput, loss, and the CPU it costs at both ends
    Stream(Box<Stream>),
    /// Measure requests and responses: transactions per second, their latency, and what each costs
    Rr(Box<Exchange>),
    /// Measure connections: connect, request, response and close, again and again
    Crr(Box<Exchange>),
    /// Measure copy and checksum routines: sizes, alignments, cache states, and what this machine can do
    Copy(Box<Copy>),
    /// Compare arms: does a setting, or an option, make it better or worse?
    Ab(Box<Ab>),
    /// Measure how fast what is in memory is read: a cached file, a pipe, a socket, over sizes and alignments
    Read(Box<Read>),
    /// Watch where the CPUs are while bytes move: throughput, service demand and the costliest symbols, refreshed
    Top(Top),
    /// Show the fingerprint: what of this host, and of the other end, decides results
    Env(Env),
    /// What can be set on this host: list, show, set, restore, diff
    Settings {
        #[command(subcommand)]
        action: Settings,
    },
    /// Explain a metric or a warning as it stands in tables and JSON
    Explain {
        /// Its name, as in a heading or in JSON; without one, all are listed
        name: Vec<String>,
    },
    /// Write shell completions to standard output
    Completions {
        /// For which shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages, one file per command
    Man {
        /// Into which directory
        directory: PathBuf,
    },
}

impl Command {
    /// Whether it only looks. What begins something of its own, or puts things back, sees to what a killed haul left by
    /// itself, because it must not go on where that fails; scripts that generate files are to print nothing else.
    pub(crate) fn only_looks(&self) -> bool {
        match self {
            Self::Env(_) | Self::Top(_) | Self::Explain { .. } => true,
            Self::Settings { action } => !matches!(action, Settings::Restore { .. }),
            Self::Demo(_)
            | Self::Serve(_)
            | Self::Stream(_)
            | Self::Rr(_)
            | Self::Crr(_)
            | Self::Ab(_)
            | Self::Copy(_)
            | Self::Read(_)
            | Self::Completions { .. }
            | Self::Man { .. } => false,
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct Demo {
    #[command(flatten)]
    pub(crate) output: Output,
    /// Order of the runs: give the seed of an earlier record to repeat its order
    #[arg(long, help_heading = "Deciding")]
    pub(crate) seed: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// Address and port to listen on; the default is every address, IPv4 and IPv6
    #[arg(long, value_name = "ADDR[:PORT]", default_value_t = default_listen(), value_parser = listen)]
    pub(crate) listen: SocketAddr,
    /// Let anyone in, without a key: only on a network where nobody else is
    #[arg(long, conflicts_with_all = ["key", "key_file"])]
    pub(crate) open: bool,
    /// Let clients change settings of this host for their arms; everything is put back when they leave. 'path': of the NIC, its
    /// queueing discipline, its interrupts and CPUs, and sysctls of the network; 'anything' besides: other sysctls, modules,
    /// files of sysfs and commands, with which a client can run programs as root here
    #[arg(long, value_enum, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "path")]
    pub(crate) allow_settings: Option<AllowSettings>,
    /// Clients served at once. More than one at a time disturb each other: results that overlapped say so
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) sessions: u32,
    /// Also write each finished run to standard output, with the figures of both ends that its client has. For a server that is
    /// left to serve take 'jsonl', whose every line stands for itself; 'json' is one document, whole only once the server
    /// has ended (by ^C, too), for a server that is started for a few runs
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: ServeFormat,
    #[command(flatten)]
    pub(crate) key: KeyOptions,
}

/// What clients may set.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AllowSettings {
    /// The path of packets
    Path,
    /// Anything, programs included
    Anything,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ServeFormat {
    /// The log alone, on standard error
    #[default]
    Text,
    /// One document of all runs, whole when the server ends
    Json,
    /// A line for each run as it ends
    Jsonl,
}

fn default_listen() -> SocketAddr {
    SocketAddr::from((Ipv6Addr::UNSPECIFIED, haul_workload::server::DEFAULT_PORT))
}

/// An address with a port, or without one for the usual port.
fn listen(text: &str) -> Result<SocketAddr, String> {
    let usual = |address: IpAddr| SocketAddr::new(address, haul_workload::server::DEFAULT_PORT);
    text.parse().or_else(|_| text.trim_matches(['[', ']']).parse().map(usual)).map_err(|_| {
        "give an address of this host, as 192.0.2.1, 192.0.2.1:4285, :: or [::1]:4285".to_owned()
    })
}

/// How the two ends know each other.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Trust")]
pub(crate) struct KeyOptions {
    /// The key that 'haul serve' printed at its first start (others can see it in the process list: prefer HAUL_KEY or a
    /// file)
    #[arg(long, env = "HAUL_KEY", hide_env_values = true, conflicts_with = "key_file")]
    pub(crate) key: Option<String>,
    /// A file with the key [default: $XDG_CONFIG_HOME/haul/key]
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(after_help = TARGETS)]
pub(crate) struct Stream {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) runs: Runs,
    #[command(flatten)]
    pub(crate) own: StreamOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
    #[command(flatten)]
    pub(crate) inside: Inside,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args, Debug)]
#[command(after_help = TARGETS)]
pub(crate) struct Exchange {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) runs: Runs,
    #[command(flatten)]
    pub(crate) own: ExchangeOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
    #[command(flatten)]
    pub(crate) inside: Inside,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// How often.
#[derive(Args, Debug)]
pub(crate) struct Runs {
    /// Repeat every cell this often, each with new connections: a spread takes at least 3
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000), help_heading = "Deciding")]
    pub(crate) runs: u32,
}

/// How a survey samples its cells.
#[derive(Args, Debug)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct Sampling {
    /// Samples of every cell, one in each round, however long they take; 6 is the fewest that give an interval at 95 %
    /// [default: as many of 31 (read) or 9 (copy) as the time is enough for]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) rounds: Option<u32>,
    /// A first look, in some seconds
    #[arg(long, conflicts_with = "thorough")]
    pub(crate) quick: bool,
    /// For small differences, in minutes
    #[arg(long)]
    pub(crate) thorough: bool,
    /// Order of the samples: give the seed of an earlier record to repeat its order
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// The CPU to measure on [default: the last one allowed]
    #[arg(long, value_name = "CPU")]
    pub(crate) pin: Option<u32>,
}

/// How much sampling is enough: the rounds of a survey, how long a sample is to take, and the time after which no round is begun.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) rounds: u32,
    pub(crate) sample: Duration,
    pub(crate) budget: Duration,
}

/// The efforts of a command: in general, with --quick, with --thorough.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Efforts {
    pub(crate) usual: Effort,
    pub(crate) quick: Effort,
    pub(crate) thorough: Effort,
}

impl Sampling {
    /// What is asked for, where a command has these efforts.
    pub(crate) fn effort(&self, of: &Efforts) -> Effort {
        let effort = match (self.quick, self.thorough) {
            (true, _) => of.quick,
            (_, true) => of.thorough,
            (false, false) => of.usual,
        };
        // As many as asked for, however long they take.
        self.rounds.map_or(effort, |rounds| Effort { rounds, budget: Duration::from_hours(24), ..effort })
    }

    /// The rules of a survey that was asked for so.
    pub(crate) fn rules(&self, of: &Efforts, seed: u64, mut requested: Json) -> Survey {
        let Effort { rounds, sample, budget } = self.effort(of);
        if let Some(fields) = requested.as_object_mut() {
            fields.insert("rounds".to_owned(), json!(rounds));
            fields.insert("quick".to_owned(), json!(self.quick));
            fields.insert("thorough".to_owned(), json!(self.thorough));
            fields.insert("seed".to_owned(), json!(seed));
            fields.insert("pin".to_owned(), json!(self.pin));
        }
        Survey { rounds, sample, budget, seed, pin: self.pin, requested }
    }
}

/// How the text of a survey is laid out.
#[derive(Args, Debug)]
pub(crate) struct Rows {
    /// In text, a row for each cell with interval, change, time and CPU time, where two axes or more are otherwise maps of medians:
    /// to see how sure a number is, or to go on with awk
    #[arg(long, help_heading = "Output")]
    long: bool,
}

impl Rows {
    pub(crate) fn shape(&self) -> haul_results::text::Shape {
        if self.long { haul_results::text::Shape::Rows } else { haul_results::text::Shape::Maps }
    }
}

const TARGETS: &str = "\
Targets:
  HOST[:PORT]   a host that runs 'haul serve' (port 4285)
  lab           two private network namespaces joined by a veth pair, made and removed by haul itself; needs no root
  loopback      a server inside this process, over 127.0.0.1

The times of a run are in seconds, or take a unit: 500ms, 10s, 2m, 1h. Sizes take K, M, G (KiB, MiB, GiB), rates K, M, G
(10^3, 10^6, 10^9 bit/s). Options marked [list] take a list (1,4,16) or a range (1..8, 0..64+8, 512..64K*2) as well: that makes
a sweep.";

/// Where the other end is.
#[derive(Args, Debug)]
pub(crate) struct Place {
    /// Where the other end is: HOST[:PORT], [v6]:PORT, loopback, lab or lab:mtu=9000
    pub(crate) target: String,
    #[command(flatten)]
    pub(crate) trust: ClientTrust,
    /// Where the server is busy, or another haul holds settings of this host, wait in line instead of giving up: for so long, in
    /// seconds or with a unit; 10m where no time is given
    #[arg(long, value_name = "TIME", value_parser = units::parse_seconds, num_args = 0..=1, require_equals = true, default_missing_value = "10m")]
    pub(crate) queue: Option<Duration>,
}

/// How the client trusts the server.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct ClientTrust {
    #[command(flatten)]
    pub(crate) key: KeyOptions,
    /// Talk to a server that was started with --open, without encryption; a key that is set is left out
    #[arg(long, help_heading = "Trust", conflicts_with = "key_file")]
    pub(crate) open: bool,
}

#[derive(Args, Debug)]
#[command(after_help = TARGETS)]
pub(crate) struct Ab {
    /// What is run in every arm
    #[arg(value_enum)]
    pub(crate) workload_kind: WorkloadKind,
    #[command(flatten)]
    pub(crate) place: Place,
    /// An arm: its name and what it changes. Settings of the client's host (nic.tso=off, nic.coalesce.rx-usecs=8,
    /// sysctl.net.ipv4.tcp_rmem=…, qdisc=fq_codel, exec:'on','off'), of the server's (server:nic.gro=off), of both
    /// (both:nic.tso=off), and workload options (opt.message=1K). 'plain:' changes nothing. The first arm is the base;
    /// 'haul settings list' shows what can be set
    #[arg(long = "arm", value_name = "NAME:SPEC[,SPEC…]", required = true, help_heading = "Deciding")]
    pub(crate) arms: Vec<String>,
    /// Runs of every arm; 8 is the fewest that can decide between two arms at 95 %, sweeps and more arms ask for more
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000), help_heading = "Deciding")]
    pub(crate) pairs: u32,
    /// Also run the first arm against itself: the noise floor, and a check on the verdicts
    #[arg(long, help_heading = "Deciding")]
    pub(crate) null: bool,
    /// The smallest change that matters: less is 'equivalent', not 'better' or 'worse'
    #[arg(long, value_parser = units::parse_percent, default_value = "1%", value_name = "PERCENT", help_heading = "Deciding")]
    pub(crate) min_effect: f64,
    /// How sure a verdict must be
    #[arg(long, value_parser = units::parse_percent, default_value = "95%", value_name = "PERCENT", help_heading = "Deciding")]
    pub(crate) confidence: f64,
    /// No verdict where the runs of an arm spread more than this (standard deviation over mean)
    #[arg(long, value_parser = units::parse_percent, default_value = "30%", value_name = "PERCENT", help_heading = "Deciding")]
    pub(crate) max_spread: f64,
    /// Accept that a setting changes others with it (tx checksums off takes TSO with it); they are named in the record
    #[arg(long, help_heading = "Deciding")]
    pub(crate) allow_side_effects: bool,
    /// Let an arm in the lab change what is the whole machine's (net.core.rmem_max, governors, modules, commands); it is put back
    #[arg(long, help_heading = "Deciding")]
    pub(crate) allow_global: bool,
    /// Order of the runs: give the seed of an earlier record to repeat its order
    #[arg(long, help_heading = "Deciding")]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) stream: StreamOptions,
    #[command(flatten)]
    pub(crate) exchange: ExchangeOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
    #[command(flatten)]
    pub(crate) inside: Inside,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkloadKind {
    /// Streams, TCP or --udp
    Stream,
    /// Requests and responses
    Rr,
    /// Connections of one transaction each
    Crr,
}

const ENV: &str = "\
What is shown decides results while nobody looks: kernel, boot, command
line, CPU, microcode, mitigations, governor and clock source; the NIC's
driver, firmware, features, coalescing, rings, queues, MTU and where its
interrupts go; sysctls, control groups and huge pages. A fact that cannot
be read is there with the reason. Nothing is changed, and no other program
is run.

Examples:
  haul env                                 this host, by its default route
  haul env HOST                            both ends of the path to HOST
  haul env --format json > before.json     keep it
  haul env --diff before.json after.json   what changed in between
  haul env --diff mon.json tue.json        why two measurements differ: any
                                           document of haul will do

Exit codes of --diff, as of diff(1): 0 nothing differs, 1 something does,
2 a file could not be read.";

#[derive(Args, Debug)]
#[command(after_help = ENV)]
pub(crate) struct Env {
    /// The other end, to show it too: HOST[:PORT], [v6]:PORT, loopback or lab
    pub(crate) target: Option<String>,
    /// Compare two files instead: any JSON documents of haul, of 'haul env' or of a measurement; '-' is standard input
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["target", "open", "key", "key_file"])]
    pub(crate) diff: Option<Vec<PathBuf>>,
    #[command(flatten)]
    pub(crate) trust: ClientTrust,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Settings {
    /// What can be set on this host: names, states, whose they are, and which can be changed
    List {
        /// The device, or an address or host that is reached through it, loopback or lab; default: where the default route leads
        target: Option<String>,
        /// Only those that can be changed
        #[arg(long)]
        changeable: bool,
        #[command(flatten)]
        output: Output,
    },
    /// One setting, or a family of them: its state, the values it can have, what it needs and brings along
    Show {
        /// As in nic.tso, nic.coalesce, sysctl.net.ipv4.tcp_rmem, module.tcp_cubic.hystart, sys:/kernel/mm/ksm/run
        name: String,
        /// The device, or an address or host that is reached through it
        #[arg(long, value_name = "TARGET")]
        via: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Change settings of this host and leave them so; what was there is written down for 'haul settings restore'
    Set {
        /// As in nic.tso=off, nic.coalesce.rx-usecs=8, sysctl.net.ipv4.tcp_rmem='4096 131072 6291456', qdisc=fq_codel
        #[arg(required = true, value_name = "NAME=VALUE")]
        settings: Vec<String>,
        /// The device, or an address or host that is reached through it
        #[arg(long, value_name = "TARGET")]
        via: Option<String>,
        /// Accept that a setting changes others with it; they are named, and put back too
        #[arg(long)]
        allow_side_effects: bool,
        /// In a network namespace of its own, accept that a setting is the whole host's
        #[arg(long)]
        allow_global: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Put back what killed hauls left changed on this host, and what 'haul settings set' changed
    Restore {
        #[command(flatten)]
        output: Output,
    },
    /// What haul has changed on this host and not put back: as it was, as it is, and by whom
    Diff {
        #[command(flatten)]
        output: Output,
    },
}

/// What comes out.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Output")]
pub(crate) struct Output {
    /// 'json' gives one document whatever happens, complete, interrupted or failed; 'jsonl' tells what happens meanwhile
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// No progress and no lines of intervals on standard error: only what goes wrong, and whatever has to be known first
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Format {
    /// Tables for people
    #[default]
    Text,
    /// One document for programs
    Json,
    /// A line for each event as it happens (run, interval, end of a run), and the document in the last line
    Jsonl,
}

/// The definition itself, for completions and man pages.
pub(crate) fn definition() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_that_are_asked_for_are_all_made_and_the_rest_is_the_effort_of_the_command() {
        let effort = |rounds, secs| Effort {
            rounds,
            sample: Duration::from_micros(u64::from(rounds)),
            budget: Duration::from_secs(secs),
        };
        let efforts = Efforts { usual: effort(31, 18), quick: effort(9, 5), thorough: effort(201, 300) };
        let day = 24 * 3600;
        for (rounds, quick, thorough, wanted) in [
            (None, false, false, (31, 31, 18)),
            (None, true, false, (9, 9, 5)),
            (None, false, true, (201, 201, 300)),
            (Some(7), false, false, (7, 31, day)),
            (Some(7), true, false, (7, 9, day)),
            (Some(7), false, true, (7, 201, day)),
        ] {
            let sampling = Sampling { rounds, quick, thorough, seed: None, pin: Some(1) };
            let survey = sampling.rules(&efforts, 5, json!({"block_bytes": 1}));
            let got = (survey.rounds, survey.sample.as_micros(), survey.budget.as_secs());
            assert_eq!(got, wanted, "{sampling:?}");
            assert_eq!((survey.seed, survey.pin), (5, Some(1)));
            let asked = json!({"block_bytes": 1, "rounds": wanted.0, "quick": quick, "thorough": thorough, "seed": 5, "pin": 1});
            assert_eq!(survey.requested, asked);
        }
    }
}
