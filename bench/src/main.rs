//! haul against bare loops of the same system calls and against its peers, interleaved in the lab, printed as ratios.
//!
//! Every tool is judged by the same instruments and none by its own word: what was done by counters of the server's
//! network namespace (`counter`), CPU from the busy time of the host, both over the same steady span in the middle of a run
//! (`bench`). What a tool says of itself is printed beside it, as a share of what was counted. One round runs every row of
//! a table once, in random order; ratios are taken within rounds, and their median is what counts (`rounds`, `figures`).
//!
//! What is run is data: `comparisons` has the tables, `table` the words they are written in. `bare` has the loops.
#![forbid(unsafe_code)]

mod bare;
mod bench;
mod comparisons;
mod counter;
mod figures;
mod process;
mod report;
mod rounds;
mod said;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use clap::builder::PossibleValuesParser;
use haul_host::probe::cpu::HostCpu;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;

use bench::{Bench, Times};
use comparisons::{ALL, Body, Comparison};
use report::Sum;

#[derive(Parser)]
#[command(
    about = "haul, bare loops of the same system calls and its peers, interleaved in the lab (needs root)",
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
struct Args {
    /// What to compare; without a name, everything. --list says what there is
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(ALL.iter().map(|one| one.name)))]
    names: Vec<String>,
    /// Rounds of each table; the median of their ratios is printed
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Seconds of the steady span that is measured
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    span: f64,
    /// One short round of everything: shows that the benchmark works, not how fast haul is
    #[arg(long, conflicts_with_all = ["rounds", "span"])]
    quick: bool,
    /// Print the comparisons, their tables and the command lines of their rows, and run nothing
    #[arg(long)]
    list: bool,
    /// What haul sends in 'stream': 'repeat' to do exactly as the bare loop and the peers do
    #[arg(long, default_value = "stamped")]
    payload: String,
    /// Only the rows whose names contain this, and the ratios between them; may be given again for more rows
    #[arg(long = "row", value_name = "TEXT")]
    rows: Vec<String>,
    /// The haul binary to measure; default: the one built beside this program
    #[arg(long)]
    haul: Option<PathBuf>,
    #[command(subcommand)]
    part: Option<bare::Part>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let span = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.1..=600.0).contains(&span) { Ok(span) } else { Err("0.1 to 600 seconds".to_owned()) }
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    if let Some(part) = args.part {
        return bare::run(part).map(|()| ExitCode::SUCCESS);
    }
    let chosen = |one: &&Comparison| args.names.is_empty() || args.names.iter().any(|name| name == one.name);
    let chosen: Vec<&Comparison> = ALL.iter().filter(chosen).collect();
    if args.list {
        chosen.into_iter().for_each(list);
        return Ok(ExitCode::SUCCESS);
    }
    run(&args, &chosen)
}

fn list(comparison: &Comparison) {
    println!("{}: {}", comparison.name, comparison.about);
    let Body::Tables(tables) = comparison.body else { return };
    for table in tables() {
        println!("  {}", table.title);
        for row in table.rows {
            println!(
                "    {}: {}\n      {}\n      {}",
                row.name,
                row.place.text(),
                row.server.trim_end(),
                row.client.trim_end()
            );
        }
    }
}

/// Runs what was chosen. The exit code is 1 where a row did not run; bounds missed are printed, and theirs to judge who
/// know what else the machine did.
fn run(args: &Args, chosen: &[&Comparison]) -> Result<ExitCode> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let haul = args.haul.clone().unwrap_or_else(|| own.with_file_name("haul"));
    ensure!(haul.exists(), "{} is not built: cargo build --release -p haul", haul.display());
    let ms = Duration::from_millis;
    let (times, rounds) = if args.quick {
        (Times { settle: ms(60), span: ms(150), tail: ms(60) }, 1)
    } else {
        let span = Duration::from_secs_f64(args.span);
        (Times { settle: ms(400), span, tail: ms(300) }, usize::from(args.rounds))
    };
    // Where not even a lab can be built, no row has to say so.
    bench::build_lab(true)?;
    let bench = Bench {
        own,
        haul,
        payload: args.payload.clone(),
        file: bench::MessageFile::new()?,
        times,
        hurried: args.quick,
    };
    if !args.quick {
        println!("CPUs busy with other things before the first run: {:.1} %", others()?);
    }
    let mut random = SmallRng::seed_from_u64(1);
    let mut sum = Sum::default();
    for comparison in chosen {
        let outcome = match comparison.body {
            Body::Other(run) => run(&bench),
            Body::Tables(tables) => {
                let tables = tables().into_iter().filter(|table| !(args.quick && table.again));
                for table in tables.map(|table| table.only(&args.rows)).filter(|table| !table.rows.is_empty())
                {
                    let results = rounds::run(&bench, &table, rounds, &mut random);
                    sum.table(&table, &results, !args.quick);
                }
                Ok(())
            }
        };
        if let Err(error) = outcome {
            sum.broken(comparison.name, &error);
        }
    }
    if !args.quick {
        println!("\nCPUs busy with other things after the last run: {:.1} %", others()?);
    }
    Ok(if sum.end() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The share of the CPUs that is busy while nothing is measured. CPU time is counted for the whole host: what others use is
/// in every figure, and a few per cent of it are in every ratio.
fn others() -> Result<f64> {
    const LOOK: Duration = Duration::from_secs(1);
    let before = HostCpu::read()?;
    std::thread::sleep(LOOK);
    let used = HostCpu::read()?.since(&before);
    let all = used.elapsed.as_secs_f64() * f64::from(used.ncpu);
    Ok(1e2 * used.busy.as_secs_f64() / all)
}
