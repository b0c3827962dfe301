//! `haul copy`: from arguments to a survey of copy routines, of the machine's limits, or of thresholds.

use std::io::{self, Read as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use haul_copy::Selection;
use haul_copy::selection::{Alignment, Cpu};
use haul_host::memory::PageKind;
use haul_host::regular;
use haul_host::signal::Stop;
use haul_host::thread;
use haul_lab::record::Start;
use haul_lab::runner::Measured;
use haul_lab::sweep::{self, Suffix};
use haul_lab::{LabError, plan, thresholds};
use haul_results::record::{Document, Kind, Status};
use haul_results::text;
use haul_stats::{ByteCount, DoubtId};
use haul_workload::local::copy::{self, CacheState, CopySpec, CopySubject, Does, LimitsSubject, Mover};
use serde_json::{Value as Json, json};

use crate::cli::{Copy, Effort, Efforts, Format};
use crate::measure::{command, failure_of, layout, print, stopped, write, write_as};
use crate::screen::say;
use crate::survey::{carry_out, each_once};

/// `haul copy`.
pub(crate) fn copy(args: &Copy) -> Result<ExitCode> {
    let (start, began) = (Start::now(), Instant::now());
    match measured(args) {
        Ok((measured, table)) => {
            let document = start.document(Kind::Copy, command(), measured);
            if args.thresholds && args.output.format == Format::Text {
                return table_alone(&document, table);
            }
            write_as(&document, &args.output, |document| {
                text::survey(document, None, args.rows.shape(), layout())
            })
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

/// A selection made by a survey, and how sure it is.
struct Table {
    text: String,
    quality: String,
}

/// What a file wants is a selection and nothing else: where there is none, standard output stays empty.
fn table_alone(document: &Document, table: Option<Table>) -> Result<ExitCode> {
    let Some(table) = table else {
        let exit = document.failure.as_ref().map_or(1, |failure| failure.exit);
        let why = document.failure.as_ref().map(|failure| failure.text.as_str());
        let stopped = document.warnings.iter().find(|doubt| doubt.id == DoubtId::Interrupted);
        let why = why.or(stopped.map(|doubt| doubt.text.as_str())).unwrap_or("it is not complete");
        say(&format!("haul: no selection: {why}"));
        return Ok(ExitCode::from(exit));
    };
    print(&table.text).context("cannot write the table to standard output")?;
    say(&format!("selection: {}", table.quality));
    for doubt in document.warnings.iter().filter(|doubt| doubt.id == DoubtId::Unmeasured) {
        say(&format!("{}: {}", doubt.id.name(), doubt.text));
    }
    Ok(ExitCode::SUCCESS)
}

fn measured(args: &Copy) -> Result<(Measured, Option<Table>)> {
    // First, so that there is a document also where it is stopped while it makes itself ready.
    let stop = Stop::install_hurried()?;
    let allowed = thread::affinity_of_current()?;
    let cpu = match args.sampling.pin {
        Some(cpu) if !allowed.cpus().contains(&cpu) => {
            return Err(usage(format!(
                "--pin {cpu} is not one of the CPUs that this process may use: give one of {allowed}"
            ))
            .into());
        }
        Some(cpu) => cpu,
        None => allowed.cpus().last().copied().unwrap_or(0),
    };
    let seed = args.sampling.seed.unwrap_or_else(plan::seed);
    if args.limits {
        let survey = args.sampling.rules(&EFFORTS, seed, json!({"limits": true}));
        return Ok((carry_out(&survey, &mut LimitsSubject::new(cpu), &stop, &args.output)?, None));
    }
    let spec = spec(args, seed)?;
    let family = thresholds::family(spec.movers.len(), spec.sizes.len());
    let here = if args.thresholds { Some(for_a_table(args, &spec, family)?) } else { None };
    let efforts = if args.thresholds { efforts_for(family) } else { EFFORTS };
    let survey = args.sampling.rules(&efforts, seed, requested(args, &spec));
    let mut subject = CopySubject::new(&spec, &allowed, cpu)?;
    let mut measured = carry_out(&survey, &mut subject, &stop, &args.output)?;
    let Some(here) = here.filter(|_| measured.status == Status::Complete) else {
        return Ok((measured, None));
    };
    let contest = thresholds::contest(&measured.runs)?;
    let table = thresholds::annotated(&thresholds::selection(&contest.crossings, here)?, &contest);
    measured.options.effective["selection"] = json!(table);
    measured.options.effective["thresholds"] = contest.quality.as_json();
    Ok((measured, Some(Table { text: table, quality: contest.quality.sentence() })))
}

/// What can be said against a table before anything is measured; else the CPU it is for.
fn for_a_table(args: &Copy, spec: &CopySpec, family: usize) -> Result<Cpu> {
    let ours = spec.movers.iter().filter(|mover| mover.is_routine()).count();
    if ours == 0 {
        return Err(usage(
            "--thresholds: a table names routines of haul-copy, and --routine names none of them; the C library only takes part"
                .to_owned(),
        )
        .into());
    }
    let needed = thresholds::rounds_for(family);
    if let Some(rounds) = args.sampling.rounds.filter(|rounds| *rounds < needed && family > 0) {
        return Err(usage(format!(
            "--rounds {rounds} decides none of {family} comparisons: give {needed} or more, or fewer sizes or routines"
        ))
        .into());
    }
    copy::this_cpu().context("this CPU has no name in /proc/cpuinfo that a selection could have")
}

/// Few rounds of short samples: there are many cells, and a copy of some nanoseconds is repeated a thousand times in one.
const EFFORTS: Efforts = Efforts {
    usual: Effort { rounds: 9, sample: Duration::from_millis(1), budget: Duration::from_secs(50) },
    quick: Effort { rounds: 6, sample: Duration::from_micros(300), budget: Duration::from_secs(7) },
    thorough: Effort { rounds: 25, sample: Duration::from_millis(5), budget: Duration::from_mins(20) },
};

/// The efforts where each comparison is one of so many: two rounds more than can decide at all, so that one sample may be a
/// stray, and the time for them.
fn efforts_for(family: usize) -> Efforts {
    let least = thresholds::rounds_for(family) + 2;
    let more = |of: Effort| Effort {
        rounds: of.rounds.max(least),
        budget: of.budget.max(Duration::from_mins(1)),
        ..of
    };
    Efforts { usual: more(EFFORTS.usual), quick: more(EFFORTS.quick), thorough: more(EFFORTS.thorough) }
}

/// What was asked for, each axis with its values in the order given: that is the order of rows and maps.
fn requested(args: &Copy, spec: &CopySpec) -> Json {
    fn each<T>(of: &[T], value: impl Fn(&T) -> u64) -> Vec<u64> {
        let mut values: Vec<u64> = Vec::new();
        for value in of.iter().map(value) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values
    }
    let names: Vec<&str> = spec.movers.iter().map(Mover::name).collect();
    let texts = |of: Vec<String>| json!(of);
    let pages =
        spec.pages.iter().map(|pages| pages.map_or_else(|| "any".to_owned(), |pages| pages.to_string()));
    let mut requested = json!({
        "routine": names, "size_bytes": spec.sizes,
        "src_offset_bytes": each(&spec.offsets, |of| of.0), "dst_offset_bytes": each(&spec.offsets, |of| of.1),
        "cache": texts(spec.caches.iter().map(ToString::to_string).collect()),
        "does": texts(spec.does.iter().map(ToString::to_string).collect()),
        "threads": spec.threads, "then_read": args.then_read, "checksum": args.checksum, "shuffle": args.shuffle,
        "selection": args.selection.as_ref().map(|path| path.display().to_string()), "limits": args.limits, "thresholds": args.thresholds, "overlap_bytes": spec.overlap,
    });
    let distances: Vec<u64> = spec.distances.iter().flatten().copied().collect();
    requested["distance_bytes"] = if distances.is_empty() { Json::Null } else { json!(distances) };
    requested["pages"] = if args.pages.is_some() { texts(pages.collect()) } else { Json::Null };
    if spec.distances.iter().any(Option::is_some) {
        // The distance says where the destination lies.
        requested["dst_offset_bytes"] = Json::Null;
    }
    requested
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
        (true, false) if args.overlap.is_some() => "4K..4M*16",
        (true, false) => "64..4M*16",
        (false, true) => "64..8M*2",
        // Where the ends share bytes a copy is longer than they are apart.
        (false, false) if args.overlap.is_some() => "4K..64M*4",
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
    let overlap = args.overlap.as_deref().map(overlap).transpose()?;
    if overlap.is_some() {
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
        overlap,
        caches,
        pages,
        does,
        threads: threads.into_iter().map(|threads| usize::try_from(threads).unwrap_or(usize::MAX)).collect(),
        shuffle: args.shuffle,
        seed,
    })
}

/// How far the ends are apart: `64`, `-4K`.
fn overlap(text: &str) -> Result<i64, LabError> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let bytes: ByteCount = digits.parse().map_err(|error| usage(format!("--overlap {text}: {error}")))?;
    let bytes =
        i64::try_from(bytes.0).map_err(|_| usage(format!("--overlap {text}: more than there is memory")))?;
    Ok(sign * bytes)
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
            // What chooses by itself is the one to beat, and the C library takes part.
            ("all", false) if args.thresholds => [Mover::best()]
                .into_iter()
                .chain(Mover::all().filter(|mover| !mover.name().starts_with("auto")))
                .filter(|mover| !["bytes", "int32", "int32-all", "int32-aligned"].contains(&mover.name()))
                .collect(),
            ("all", false) if args.overlap.is_some() => Mover::all_within().collect(),
            ("all", false) => Mover::all().collect(),
            ("auto", false) if args.selection.is_some() => vec![selected(args)?],
            ("auto", false) => {
                let text = "--routine auto is what a table says: give it with --selection FILE, or name 'best', which chooses \
                            by itself";
                return Err(usage(text.to_owned()).into());
            }
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

/// The text of a table: of a regular file, as far as one can be long. A pipe would be waited for, and a device may have no end.
fn table_in(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    regular::open(path)?.take(haul_copy::selection::LONGEST as u64 + 1).read_to_string(&mut text)?;
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
