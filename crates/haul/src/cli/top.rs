//! `haul top`: its arguments.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueEnum};
use haul_stats::units;

const ABOUT: &str = "\
Use it to see what a running load spends its CPU time on, before you ask anything in particular: any program's load, or, behind
'--', a workload of haul's. It measures nothing that is to be compared: for that there are 'haul stream --profile' and 'haul ab'.

Service demand is the CPU time of all CPUs of this host, interrupts and other programs included, per KiB. Of a workload the KiB are
those of its payload (or its transactions); of a host those through one device, received and sent, the busiest or --device. On lo
every byte is sent and received, and counts once. Of a veth pair one end is taken, so a byte counts once as well.

Keys: q quit, space pause, c classes or symbols, t threads (all, sending, receiving, others), + and - interval, ? help.

Examples:
  haul top                                       this host
  haul top --device eth0 --interval 2s           one device
  haul top -- stream lab --cc reno --time 60s    a workload, its result at the end
  haul top --plain --count 3                     three blocks of text
  haul top --format jsonl                        for programs";

#[derive(Args, Debug)]
#[command(after_help = ABOUT)]
pub(crate) struct Top {
    /// The device whose bytes the CPU time is divided by [default: the busiest]
    #[arg(long, value_name = "NAME", conflicts_with = "workload")]
    pub(crate) device: Option<String>,
    /// Look again after so long: 250ms to 60s
    #[arg(long, value_name = "TIME", value_parser = units::parse_seconds, default_value = "1s")]
    pub(crate) interval: Duration,
    /// End after so many intervals; a workload is ended as by ^C
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Samples a second and CPU: more shows rare symbols sooner, and costs more
    #[arg(long, default_value_t = 97, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) hz: u32,
    /// A block of text each interval instead of a screen, as where standard output is no terminal
    #[arg(long)]
    pub(crate) plain: bool,
    /// 'jsonl' gives an object a line for each interval
    #[arg(long, value_enum, default_value_t = TopFormat::Text)]
    pub(crate) format: TopFormat,
    /// A workload to run and to watch: stream, rr, crr or ab, with its arguments
    #[arg(last = true, value_name = "WORKLOAD")]
    pub(crate) workload: Vec<OsString>,
}

/// What comes out.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TopFormat {
    /// For people
    Text,
    /// For programs
    Jsonl,
}
