//! The options of what is looked at beside the runs: events and profiles.
#![expect(clippy::doc_markdown, reason = "the doc comments are the help text, where backticks would show")]

use std::path::PathBuf;

use clap::Args;
use haul_host::probe::counters::Event;
use haul_lab::LabError;
use haul_lab::plan::{Profiled, Profiling};

/// Samples a second and CPU: a prime, so that nothing periodic is always hit or always missed.
const HZ: &str = "997";

/// What is looked at beside the runs.
#[derive(Args, Debug)]
#[command(next_help_heading = "Looking inside")]
pub(crate) struct Inside {
    /// Count the events that tell most: cycles, instructions, stalls, branches, caches, context switches, migrations and page
    /// faults, of all CPUs and of the worker threads, at both ends
    #[arg(long)]
    counters: bool,
    /// Count these events, as cycles,instructions or r01c2 or sched:sched_switch: those of one --event are on the counters
    /// together, which ratios need; again for another group
    #[arg(long = "event", value_name = "EVENT[,EVENT…]")]
    events: Vec<String>,
    /// Sample what the CPUs of both ends do, so many times a second, and show what each symbol costs: in runs of their own, after
    /// the measured ones, because sampling takes time
    #[arg(long, value_name = "HZ", num_args = 0..=1, require_equals = true, default_missing_value = HZ, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    profile: Option<u32>,
    /// Profile so many runs of every cell and arm, or 'measured' to sample the measured runs themselves; 6 is the fewest that give
    /// an interval
    #[arg(long, value_name = "COUNT|measured", default_value = "6", value_parser = which, requires = "profile")]
    profile_runs: Profiled,
    /// Draw the call chains as a flame graph (SVG) into this file; of several arms, cells or hosts each has a file of its own, named
    /// after it, and each arm one more with what differs from the base
    #[arg(long, value_name = "FILE.svg", requires = "profile", help_heading = "Output")]
    pub(crate) flame_graph: Option<PathBuf>,
    /// Write the call chains as folded stacks, a line each, for other programs
    #[arg(long, value_name = "FILE", requires = "profile", help_heading = "Output")]
    pub(crate) folded: Option<PathBuf>,
}

fn which(text: &str) -> Result<Profiled, String> {
    match text {
        "measured" => Ok(Profiled::Measured),
        count => match count.parse() {
            Ok(count @ 1..) => Ok(Profiled::More(count)),
            _ => Err("give a number of runs, or 'measured'".to_owned()),
        },
    }
}

impl Inside {
    /// The events to count, in groups.
    pub(crate) fn events(&self) -> Result<Vec<Vec<String>>, LabError> {
        let names = |group: &String| group.split(',').map(str::to_owned).collect::<Vec<_>>();
        let mut groups: Vec<Vec<String>> = self.events.iter().map(names).collect();
        for name in groups.iter().flatten() {
            Event::parse(name).map_err(|error| LabError::Option {
                key: "event".to_owned(),
                // The reason has it too, and nobody reads the end of a longer one.
                value: name.chars().take(64).collect(),
                why: error.to_string(),
            })?;
        }
        if self.counters {
            let usual = Event::default_set();
            groups.extend(
                usual.iter().map(|group| group.iter().map(|event| event.name().to_owned()).collect()),
            );
        }
        Ok(groups)
    }

    /// How runs are profiled, where they are.
    pub(crate) fn profiling(&self) -> Option<Profiling> {
        self.profile.map(|hz| Profiling { hz, of: self.profile_runs })
    }
}
