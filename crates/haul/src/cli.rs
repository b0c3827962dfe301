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
use haul_stats::{BitRate, units};

const EXAMPLES: &str = "\
Examples:
  haul demo                                    the whole idea, on this machine, in under a minute
  haul stream lab --cc reno                    one TCP stream between two private namespaces
  haul stream HOST --flows 1,4,16 --runs 5     a sweep against a host that runs 'haul serve'
  haul ab stream HOST --arm off:nic.tso=off --arm on:nic.tso=on --pairs 10";

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
    /// Measure TCP streams: throughput, and the CPU it costs at both ends
    Stream(Stream),
    /// Compare arms: does a setting, or an option, make it better or worse?
    Ab(Ab),
    /// Show the fingerprint: what of this host, and of the other end, decides results
    Env(Env),
    /// List the settings haul can change, or put back what a killed haul left changed
    Settings {
        #[command(subcommand)]
        action: Settings,
    },
    /// Explain a metric or a warning as it stands in tables and JSON
    Explain {
        /// Its name; without one, all are listed
        name: Option<String>,
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
            Self::Env(_) | Self::Explain { .. } => true,
            Self::Settings { action } => matches!(action, Settings::List { .. }),
            Self::Demo(_)
            | Self::Serve(_)
            | Self::Stream(_)
            | Self::Ab(_)
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
    /// Let clients change this host's NIC settings for their arms; everything is put back when they leave
    #[arg(long)]
    pub(crate) allow_settings: bool,
    /// Clients served at once. More than one at a time disturb each other: results that overlapped say so
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) sessions: u32,
    #[command(flatten)]
    pub(crate) key: KeyOptions,
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
    /// Repeat every cell this often, each with new connections: a spread takes at least 3
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000), help_heading = "Deciding")]
    pub(crate) runs: u32,
    #[command(flatten)]
    pub(crate) workload: Workload,
    #[command(flatten)]
    pub(crate) output: Output,
}

const TARGETS: &str = "\
Targets:
  HOST[:PORT]   a host that runs 'haul serve' (port 4285)
  lab           two private network namespaces joined by a veth pair, made and removed by haul itself; needs no root
  loopback      a server inside this process, over 127.0.0.1

Sizes take K, M, G (KiB, MiB, GiB), rates K, M, G (10^3, 10^6, 10^9 bit/s). Options marked [list] take a list (1,4,16) or
a range (1..8, 512..65536*2) as well: that makes a sweep.";

/// Where the other end is.
#[derive(Args, Debug)]
pub(crate) struct Place {
    /// Where the other end is: HOST[:PORT], [v6]:PORT, loopback, lab or lab:mtu=9000
    pub(crate) target: String,
    #[command(flatten)]
    pub(crate) trust: ClientTrust,
}

/// How the client trusts the server.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct ClientTrust {
    #[command(flatten)]
    pub(crate) key: KeyOptions,
    /// Talk to a server that was started with --open, without encryption or a key
    #[arg(long, help_heading = "Trust", conflicts_with_all = ["key", "key_file"])]
    pub(crate) open: bool,
}

/// What a stream does.
#[derive(Args, Debug)]
#[command(next_help_heading = "Workload")]
pub(crate) struct Workload {
    /// Length of the measured window: CPU figures of most kernels have 10 ms steps, so seconds, not milliseconds
    #[arg(long, short = 't', value_parser = units::parse_duration, default_value = "10s")]
    pub(crate) time: Duration,
    /// Time before the window that does not count: raise it where slow start or a long path takes longer
    #[arg(long, value_parser = units::parse_duration, default_value = "1s")]
    pub(crate) warmup: Duration,
    /// Also report each slice of the window: to see whether a rate is steady (not for statistics)
    #[arg(long, value_parser = units::parse_duration)]
    pub(crate) interval: Option<Duration>,
    /// Data connections at the same time [list]
    #[arg(long, default_value = "1")]
    pub(crate) flows: String,
    /// Bytes per send call: below 64K a stream measures calls, above it bytes [list]
    #[arg(long, short = 'm', default_value = "128K")]
    pub(crate) message: String,
    /// Send buffer: set it to compare with others' fixed buffers; unset, the kernel tunes it [list]
    #[arg(long)]
    pub(crate) sndbuf: Option<String>,
    /// Receive buffer, likewise [list]
    #[arg(long)]
    pub(crate) rcvbuf: Option<String>,
    /// Set TCP_NODELAY: matters for messages smaller than a segment
    #[arg(long)]
    pub(crate) nodelay: bool,
    /// Congestion control of the data sockets: bbr paces, which hides what a veth or loopback can do; reno does not
    #[arg(long, value_name = "NAME")]
    pub(crate) cc: Option<String>,
    /// Which way the payload goes, seen from the client
    #[arg(long, value_enum, default_value_t = Way::Send)]
    pub(crate) direction: Way,
    /// Where the bytes come from: 'fresh' to read the source from memory, 'repeat' to do as other tools do
    #[arg(long, value_enum, default_value_t = Content::Stamped)]
    pub(crate) payload: Content,
    /// How the sender hands bytes over: to compare what a copy costs with what avoiding it costs
    #[arg(long, value_enum, default_value_t = Giving::Write, value_name = "HOW")]
    pub(crate) send_with: Giving,
    /// How the receiver takes bytes: 'discard' to load the sender or the path without the receiver's copy
    #[arg(long, value_enum, default_value_t = Taking::Read, value_name = "HOW")]
    pub(crate) recv_with: Taking,
    /// Bytes past a page at which each message begins, 0 to 4095: to see what an unaligned source costs, 0..64 [list]
    #[arg(long, value_name = "BYTES")]
    pub(crate) send_offset: Option<String>,
    /// Bytes past a page at which the receive buffer begins: likewise for the destination [list]
    #[arg(long, value_name = "BYTES")]
    pub(crate) recv_offset: Option<String>,
    /// Bits per second of all flows together, as 10M or 1G: to compare the cost of two arms at the same load, and not at
    /// whatever each can reach
    #[arg(long, value_name = "BITS")]
    pub(crate) rate: Option<BitRate>,
    /// Largest TCP segment, 88 to 32767: to see what more packets cost without another MTU [list]
    #[arg(long, value_name = "BYTES")]
    pub(crate) mss: Option<String>,
    /// Type of service of the packets, as 0xb8 (DSCP 46 times 4): where the path or a queue treats classes differently
    #[arg(long, value_name = "OCTET", value_parser = haul_lab::option::tos)]
    pub(crate) tos: Option<u8>,
    /// CPUs of the worker threads, as CLIENT[,SERVER], each one CPU, a range 0-3 or a set 0+2: unpinned runs have two modes
    #[arg(long, value_name = "CLIENT[,SERVER]")]
    pub(crate) pin: Option<String>,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Giving {
    /// send: the kernel copies from a buffer, as most programs do
    Write,
    /// sendfile from a file of 64 MiB in memory, as a server of static files does: no copy (--payload repeat: one message)
    Sendfile,
    /// splice from the same file through a pipe, as a proxy does: no copy
    Splice,
    /// send with MSG_ZEROCOPY: no copy on a NIC that can; on one host the kernel copies after all, and haul says so
    Zerocopy,
}

impl From<Giving> for haul_workload::SendWith {
    fn from(giving: Giving) -> Self {
        match giving {
            Giving::Write => Self::Write,
            Giving::Sendfile => Self::Sendfile,
            Giving::Splice => Self::Splice,
            Giving::Zerocopy => Self::Zerocopy,
        }
    }
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taking {
    /// recv: the kernel copies to a buffer, as programs do
    Read,
    /// recv with MSG_TRUNC: nothing is copied to user memory
    Discard,
}

impl From<Taking> for haul_workload::RecvWith {
    fn from(taking: Taking) -> Self {
        match taking {
            Taking::Read => Self::Read,
            Taking::Discard => Self::Discard,
        }
    }
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the client to the server
    Send,
    /// From the server to the client
    Receive,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// One buffer, a fresh count written into every 16 KiB before each send: no 32 KiB repeat
    Stamped,
    /// 64 MiB of random bytes, walked
    Fresh,
    /// The same buffer each time
    Repeat,
}

#[derive(Args, Debug)]
#[command(after_help = TARGETS)]
pub(crate) struct Ab {
    /// What is run in every arm
    #[arg(value_enum)]
    pub(crate) workload_kind: WorkloadKind,
    #[command(flatten)]
    pub(crate) place: Place,
    /// An arm: its name and what it changes. Settings of the client's NIC (nic.tso=off), of the server's
    /// (server:nic.gro=off), of both (both:nic.tso=off), and workload options (opt.message=1K). 'plain:' changes nothing.
    /// The first arm is the base
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
    /// Order of the runs: give the seed of an earlier record to repeat its order
    #[arg(long, help_heading = "Deciding")]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) workload: Workload,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkloadKind {
    /// TCP streams
    Stream,
}

#[derive(Args, Debug)]
pub(crate) struct Env {
    /// The other end, to show it too
    pub(crate) target: Option<String>,
    #[command(flatten)]
    pub(crate) trust: ClientTrust,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Settings {
    /// List the NIC features of a device: which are on, and which can be changed
    List {
        /// The device, or an address or host to reach through it
        #[arg(default_value = "lo")]
        device: String,
        /// Only those that can be changed
        #[arg(long)]
        changeable: bool,
    },
    /// Put back what a killed haul left changed on this host
    Restore,
}

/// What comes out.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Output")]
pub(crate) struct Output {
    /// 'json' gives one document whatever happens: complete, interrupted or failed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// No progress on standard error
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
}

/// The definition itself, for completions and man pages.
pub(crate) fn definition() -> clap::Command {
    Cli::command()
}
