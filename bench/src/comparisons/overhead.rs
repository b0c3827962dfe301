//! What haul takes beside the measuring itself.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use haul_host::veth_lab::{VethLab, VethOptions};

use crate::bench::Bench;
use crate::figures::median;

/// What building a lab takes, and what a run takes beside its warm-up and window: the difference between one run and many
/// of the same command, so that the start of the process is not in it.
pub(super) fn run(bench: &Bench) -> Result<()> {
    const WINDOW: Duration = Duration::from_millis(100);
    let runs: u32 = if bench.hurried { 3 } else { 10 };
    let mut labs = Vec::new();
    for _ in 0..runs {
        let start = Instant::now();
        drop(VethLab::build(VethOptions::default())?);
        labs.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let time = |runs: u32| -> Result<Duration> {
        let mut command = Command::new(&bench.haul);
        let window = format!("{}ms", WINDOW.as_millis());
        command.args(["stream", "lab", "--cc", "reno", "--warmup", "0ms", "--time", &window, "--quiet"]);
        command.args(["--runs", &runs.to_string()]).stdout(Stdio::null());
        let start = Instant::now();
        ensure!(command.status().context("cannot start haul")?.success(), "haul stream lab failed");
        Ok(start.elapsed())
    };
    let one = time(1)?;
    let beside = (time(runs + 1)?.saturating_sub(one) / runs).saturating_sub(WINDOW);
    let lab = median(labs).context("no lab was built")?;
    println!("\nbuilding a lab: {lab:.1} ms, median of {runs}");
    println!("a run beside its window: {:.1} ms, mean of {runs}", beside.as_secs_f64() * 1e3);
    Ok(())
}
