//! `haul copy`: from arguments to a survey of copy routines, of the machine's limits, or of thresholds.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use haul_copy::Selection;
use haul_copy::selection::Alignment;
use haul_host::memory::PageKind;
use haul_host::signal::Stop;
use haul_host::thread;
use haul_lab::record::Start;
use haul_lab::runner::Measured;
use haul_lab::survey::{Bench as _, ThisHost};
use haul_lab::sweep::{self, Suffix};
use haul_lab::{LabError, plan, thresholds};
use haul_results::record::{Kind, Status};
use haul_workload::local::copy::{
    self, CacheState, Ceilings, CopySpec, CopySubject, Does, LimitsSubject, Mover,
};
use serde_json::{Value as Json, json};

use crate::cli::{Copy, Effort, Efforts, Format};
use crate::measure::{command, failure_of, print, stopped, write};
use crate::survey::{carry_out, each_once};

/// `haul copy`.
pub(crate) fn copy(args: &Copy) -> Result<ExitCode> {
    let (start, began) = (Start::now(), Instant::now());
    match measured(args) {
        Ok((measured, table)) => {
            let failed = measured.status != Status::Complete;
            let document = start.document(Kind::Copy, command(), measured);
            match table {
                // The table is what a file wants; what else there is to know is in its comments and in the JSON.
                Some(table) if args.output.format == Format::Text && !failed => {
                    print(&table).context("cannot write the table to standard output")?;
                    Ok(ExitCode::SUCCESS)
                }
                _ => write(&document, &args.output),
            }
        }
        Err(error) => {
            let mut document = start.failed(Kind::Copy, command(), began.elapsed(), failure_of(&error));
            if stopped(&error) {
                document.status = Status::Interrupted;
            }
            write(&document, &args.output)
        }
    }
}

fn measured(args: &Copy) -> Result<(Measured, Option<String>)> {
    // First, so that there is a document also where it is stopped while it makes itself ready.
    let stop = Stop::install_hurried()?;
    let allowed = thread::affinity_of_current()?;
    let cpu = args.sampling.pin.or(allowed.cpus().last().copied()).unwrap_or(0);
    ThisHost.pin(Some(cpu))?;
    let seed = args.sampling.seed.unwrap_or_else(plan::seed);
    let spec = if args.limits { CopySpec::default() } else { spec(args, seed)? };
    // What is asked for wrongly says so before anything is measured.
    if !args.limits {
        drop(CopySubject::counting(
            &spec,
            &allowed,
            Some(cpu),
            Ceilings::sizes_only(cpu),
            Err(String::new()),
        )?);
    }
    let survey = args.sampling.rules(&EFFORTS, seed, requested(args));
    if args.limits {
        let mut subject = LimitsSubject::new(cpu)?;
        thread::pin_current(&allowed)?;
        return Ok((carry_out(&survey, &mut subject, &stop, &args.output)?, None));
    }
    let ceilings = Ceilings::measure(cpu, &stop)?;
    let mut subject = CopySubject::new(&spec, &allowed, Some(cpu), ceilings)?;
    // The survey pins anew: the threads it starts before, which show how far it is, are not to share that CPU.
    thread::pin_current(&allowed)?;
    let mut measured = carry_out(&survey, &mut subject, &stop, &args.output)?;
    if !args.thresholds || measured.status != Status::Complete {
        return Ok((measured, None));
    }
    let crossings = thresholds::crossings(&measured.runs)?;
    let here =
        copy::this_cpu().context("this CPU has no name in /proc/cpuinfo that a selection could have")?;
    let table = thresholds::annotated(&thresholds::selection(&crossings, here)?, &crossings);
    measured.options.effective["selection"] = json!(table);
    Ok((measured, Some(table)))
}

/// Few rounds of short samples: there are many cells, and a copy of some nanoseconds is repeated a thousand times in one.
const EFFORTS: Efforts = Efforts {
    usual: Effort { rounds: 9, sample: Duration::from_millis(1), budget: Duration::from_secs(50) },
    quick: Effort { rounds: 6, sample: Duration::from_micros(300), budget: Duration::from_secs(7) },
    thorough: Effort { rounds: 25, sample: Duration::from_millis(5), budget: Duration::from_mins(20) },
};

/// What was asked for, as the record has it.
fn requested(args: &Copy) -> Json {
    json!({
        "routine": args.routine, "size": args.size, "src_offset": args.src_offset, "dst_offset": args.dst_offset,
        "distance": args.distance, "overlap": args.overlap, "cache": args.cache, "pages": args.pages,
        "then_read": args.then_read, "checksum": args.checksum, "threads": args.threads, "shuffle": args.shuffle,
        "selection": args.selection.as_ref().map(|path| path.display().to_string()), "limits": args.limits,
        "thresholds": args.thresholds,
    })
}

/// The values of an option with a list.
fn list(name: &str, given: Option<&str>, default: &str) -> Result<Vec<u64>, LabError> {
    sweep::parse(given.unwrap_or(default), Suffix::Binary).map_err(|error| match error {
        LabError::Sweep { text, why } => LabError::Sweep { text: format!("--{name} {text}"), why },
        other => other,
    })
}

fn spec(args: &Copy, seed: u64) -> Result<CopySpec> {
    let sizes = match (args.sampling.quick, args.thresholds) {
        (true, true) => "64..1M*4",
        (true, false) => "64..4M*16",
        (false, true) => "64..8M*2",
        (false, false) => "64..64M*4",
    };
    let (src, dst) = (
        list("src-offset", args.src_offset.as_deref(), "0,1")?,
        list("dst-offset", args.dst_offset.as_deref(), "0,1")?,
    );
    let mut offsets: Vec<(u64, u64)> =
        src.iter().flat_map(|&src| dst.iter().map(move |&dst| (src, dst))).collect();
    let distances = match &args.distance {
        Some(text) => {
            offsets = list("src-offset", args.src_offset.as_deref(), "0")?
                .into_iter()
                .map(|src| (src, 0))
                .collect();
            list("distance", Some(text), "")?.into_iter().map(Some).collect()
        }
        None => vec![None],
    };
    if args.overlap.is_some() {
        offsets = vec![(0, 0)];
    }
    if args.thresholds {
        let examples = Alignment::ALL.into_iter().map(Alignment::example);
        offsets = examples.map(|(src, dst)| (src as u64, dst as u64)).collect();
    }
    let caches = each_once("cache", args.cache.as_deref().unwrap_or("hot"), |text| {
        text.parse::<CacheState>().map_err(LabError::from)
    })?;
    let pages = args.pages.as_deref().map_or(Ok(vec![None]), |text| {
        each_once("pages", text, |kind| {
            kind.parse::<PageKind>().map(Some).map_err(|error| usage(error.to_string()))
        })
    })?;
    let threads = list("threads", args.threads.as_deref(), "1")?;
    let does = match (args.checksum, args.then_read) {
        (true, _) => vec![Does::Sum, Does::CopySum, Does::Fused],
        (false, true) => vec![Does::Copy, Does::CopyRead],
        (false, false) => vec![Does::Copy],
    };
    Ok(CopySpec {
        movers: movers(args)?,
        sizes: list("size", args.size.as_deref(), sizes)?,
        offsets,
        distances,
        overlap: args.overlap,
        caches,
        pages,
        does,
        threads: threads.into_iter().map(|threads| usize::try_from(threads).unwrap_or(usize::MAX)).collect(),
        shuffle: args.shuffle,
        seed,
    })
}

fn usage(why: String) -> LabError {
    LabError::Plan(why)
}

fn movers(args: &Copy) -> Result<Vec<Mover>> {
    let default =
        if args.thresholds || args.checksum || args.overlap.is_some() { "all" } else { "best,libc" };
    let names = args.routine.as_deref().unwrap_or(default);
    let mut movers: Vec<Mover> = Vec::new();
    for name in names.split(',').map(str::trim) {
        let found: Vec<Mover> = match (name, args.checksum) {
            ("all", true) => Mover::all_sums().collect(),
            (_, true) => vec![Mover::sum(name)?],
            // A table names routines, not what chooses among them; nor can it name what is not haul-copy's.
            ("all", false) if args.thresholds => Mover::all()
                .filter(|mover| matches!(mover, Mover::Routine(_)) && !mover.name().starts_with("auto"))
                .filter(|mover| !["bytes", "int32", "int32-all", "int32-aligned"].contains(&mover.name()))
                .collect(),
            ("all", false) => Mover::all().collect(),
            ("auto", false) => match &args.selection {
                Some(_) => vec![selected(args)?],
                None => vec![Mover::best()],
            },
            (_, false) => vec![name.parse()?],
        };
        for mover in found {
            if !movers.contains(&mover) {
                movers.push(mover);
            }
        }
    }
    if args.selection.is_some() && !movers.iter().any(|mover| matches!(mover, Mover::Selected(_))) {
        return Err(usage(
            "--selection is for --routine auto: name it, as in --routine auto,best".to_owned(),
        )
        .into());
    }
    Ok(movers)
}

/// The text of a table, as far as one can be long: a device may have no end.
fn table_in(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(haul_copy::selection::LONGEST as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

fn selected(args: &Copy) -> Result<Mover> {
    let Some(path) = &args.selection else { return Ok(Mover::best()) };
    let text = table_in(path).map_err(|error| {
        usage(format!(
            "cannot read the selection {}: {error}; haul copy --thresholds prints one",
            path.display()
        ))
    })?;
    let table = Selection::parse(&text).map_err(|error| {
        usage(format!(
            "cannot use the selection {}: {error}; haul copy --thresholds prints one",
            path.display()
        ))
    })?;
    copy::fits_here(&table)?;
    Ok(Mover::selected(table))
}
