//! What was counted and sampled beside a run, as the record has it, and what the profiles of many runs come to.
//!
//! A share of samples misleads: one symbol's share grows because another's fell. So the number that counts is the *cost*: CPU
//! time (or cycles) in a symbol for each KiB that arrived, or each transaction, with the share beside it. It adds up: the
//! costs of all symbols are the CPU time of the path, and those of a class ("copy") are one line.
//!
//! [`Profile`] is one run's, [`Costs`] what the profiled runs of one cell and arm come to, [`CostChanges`] the difference of
//! two arms, pair by pair. Everything here is data; `haul-lab` computes it, `text` shows it.

use haul_stats::compare::{Cost, CostChange};
use haul_stats::{Cell, Scope};
use serde::{Deserialize, Serialize};

/// Whose events were counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Whose {
    /// All CPUs of the host.
    Host,
    /// The workload's own threads.
    Threads,
}

/// One event counted in the window of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Count {
    /// At which end.
    pub scope: Scope,
    /// Whose events.
    pub whose: Whose,
    /// The event, by the name it was asked for.
    pub event: String,
    /// Events with one number were on the counters together: only their ratios are of the same time.
    pub group: u32,
    /// How many; `None` with a reason.
    pub value: Option<u64>,
    /// Whether it was scaled up from the time it was on a counter.
    pub estimate: bool,
    /// Share of the window for which it was on a counter.
    pub active_pct: Option<f64>,
    /// Why there is none.
    pub reason: Option<String>,
}

/// Samples of one symbol in one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Symbol {
    /// Its name, or where it lies where it has none.
    pub symbol: String,
    /// What it belongs to: `[kernel]`, a module, a program or a library.
    pub module: String,
    /// What kind of work it is: copy, checksum, tcp …
    pub class: String,
    /// The end whose worker thread it ran in; `None` for everything else.
    pub thread: Option<Scope>,
    /// Samples.
    pub samples: u64,
    /// What they stand for, in the profile's unit of work: nanoseconds, or cycles.
    pub amount: f64,
}

/// What the CPUs of one host were seen doing in the window of one run, or the threads of one end where no more was allowed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Which host: of an end, or of both. The end, where only its threads were sampled.
    pub scope: Scope,
    /// Whether everything on the host was sampled, or only the worker threads of the end.
    #[serde(default = "of_host")]
    pub whose: Whose,
    /// Why only the threads.
    #[serde(default)]
    pub host_reason: Option<String>,
    /// What was sampled in the kernel, in the unit of the amounts; `None` where that was not allowed.
    #[serde(default)]
    pub kernel_amount: Option<f64>,
    /// Why there is none.
    #[serde(default)]
    pub kernel_reason: Option<String>,
    /// What made the samples: never another event than the one named.
    pub event: String,
    /// What a sample's amount is in: `ns` or `cycles`.
    pub unit: String,
    /// Samples a second and CPU.
    pub hz: u32,
    /// Samples in the window, idle ones included.
    pub samples: u64,
    /// Samples of idle CPUs, which cost nothing.
    pub idle: u64,
    /// Samples the kernel had no room for.
    pub lost: u64,
    /// How often the kernel held the sampling back.
    pub throttled: u64,
    /// Samples whose symbol is not known.
    pub unresolved: u64,
    /// Work done in the window: KiB received, or transactions.
    pub work: f64,
    /// What the work is counted in: `KiB` or `transaction`.
    pub per: String,
    /// The symbols, dearest first.
    pub symbols: Vec<Symbol>,
    /// Why there are none, where the profile could not be taken.
    pub reason: Option<String>,
    /// What else is to be known of it.
    pub notes: Vec<String>,
    /// Call chains from the outermost frame in, `a;b;c`, and what was sampled in each. A document keeps those of all runs of a
    /// cell and arm together ([`Costs::stacks`]).
    #[serde(skip)]
    pub stacks: Vec<Stack>,
}

fn of_host() -> Whose {
    Whose::Host
}

/// What was sampled in one call chain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stack {
    /// The frames from the outermost in, separated by `;`.
    pub frames: String,
    /// Samples.
    pub samples: u64,
}

/// One line of a table of costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CostRow {
    /// The symbol, or the class.
    pub name: String,
    /// What a symbol belongs to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub module: Option<String>,
    /// The class of a symbol.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub class: Option<String>,
    /// Share of all that was not idle.
    pub share_pct: f64,
    /// Cost for each unit of work.
    #[serde(flatten)]
    pub cost: Cost,
}

/// What the profiled runs of one cell and arm come to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// The cell.
    pub cell: Cell,
    /// The arm, in a comparison.
    pub arm: Option<String>,
    /// Whose: the threads of an end, or everything on a host.
    pub scope: Scope,
    /// Whether only the worker threads of that end are in it: where both ends share one kernel, or no more was allowed.
    pub threads_only: bool,
    /// The unit of every cost: `ns/KiB`, `cycles/KiB`, `ns/transaction` …
    pub unit: String,
    /// What made the samples.
    pub event: String,
    /// Profiled runs.
    pub runs: usize,
    /// Samples in all of them, without idle ones.
    pub samples: u64,
    /// Share of the samples that hit an idle CPU.
    pub idle_pct: f64,
    /// Share of the others whose symbol is not known.
    pub unresolved_pct: f64,
    /// Samples the kernel had no room for.
    pub lost: u64,
    /// Why not everything on the host was sampled, but the worker threads alone.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host_reason: Option<String>,
    /// Why they were sampled in user mode only: what the kernel did is in no row.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kernel_reason: Option<String>,
    /// The confidence of the intervals.
    pub confidence: f64,
    /// Everything that was not idle.
    pub total: CostRow,
    /// By class, dearest first.
    pub classes: Vec<CostRow>,
    /// By symbol, dearest first; what is left of a long tail is one row.
    pub symbols: Vec<CostRow>,
    /// The call chains of all these runs, of a whole host, or of the threads where no more was allowed: the most frequent ones, and what is left as one.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub stacks: Vec<Stack>,
}

/// One line of a table of differences.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChangeRow {
    /// The symbol, or the class.
    pub name: String,
    /// What a symbol belongs to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub module: Option<String>,
    /// The class of a symbol.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub class: Option<String>,
    /// What became of its cost.
    #[serde(flatten)]
    pub change: CostChange,
}

/// What an arm changed in the cost of each symbol.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CostChanges {
    /// The cell.
    pub cell: Cell,
    /// The base.
    pub base: String,
    /// The arm compared with it.
    pub arm: String,
    /// Whose.
    pub scope: Scope,
    /// Whether only the worker threads of that end are in it.
    pub threads_only: bool,
    /// Why they were sampled in user mode only: what the kernel did is in no row.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kernel_reason: Option<String>,
    /// The unit of every cost.
    pub unit: String,
    /// Pairs of profiled runs.
    pub pairs: usize,
    /// The confidence of the intervals and verdicts.
    pub confidence: f64,
    /// Everything that was not idle.
    pub total: Option<ChangeRow>,
    /// By class, the largest change first.
    pub classes: Vec<ChangeRow>,
    /// By symbol, the largest change first.
    pub symbols: Vec<ChangeRow>,
    /// Why there are no rows: the runs sampled different events, or none were profiled in pairs.
    pub reason: Option<String>,
}
