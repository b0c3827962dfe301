//! The commands that survey this host: from arguments to one document, as the measuring commands do it.
//!
//! ```text
//! arguments ─▶ options ─▶ subject ─▶ survey ─▶ document ─▶ text or JSON
//! ```
//!
//! Nothing of the host is changed by them, so there is no journal and nothing to restore.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use haul_host::signal::Stop;
use haul_lab::LabError;
use haul_lab::plan::seed;
use haul_lab::published;
use haul_lab::record::Start;
use haul_lab::runner::{Event, Measured};
use haul_lab::survey::{self, Survey, ThisHost};
use haul_results::record::{Document, Kind, Status};
use haul_results::text;
use haul_workload::local::Subject;
use haul_workload::local::read::ReadSubject;

use crate::cli::{self, Effort, Efforts, Format, Output};
use crate::measure::{command, failure_of, layout, stopped, write_as};
use crate::screen::{Screen, brief, say};
use crate::tape::Tape;

/// How often the screen is told: samples are too short to be told one by one.
const TOLD_EVERY: Duration = Duration::from_millis(100);

/// Many rounds: a misaligned buffer costs some percent, and a cell takes a millisecond.
const EFFORTS: Efforts = Efforts {
    usual: Effort { rounds: 31, sample: survey::SAMPLE, budget: Duration::from_secs(18) },
    quick: Effort { rounds: 9, sample: survey::SAMPLE, budget: Duration::from_secs(5) },
    thorough: Effort { rounds: 201, sample: survey::SAMPLE, budget: Duration::from_mins(5) },
};

/// `haul read`.
pub(crate) fn read(args: &cli::Read) -> Result<ExitCode> {
    let (start, began) = (Start::now(), Instant::now());
    let document = match carry_out_read(args) {
        Ok(measured) => start.document(Kind::Read, command(), measured),
        Err(error) => {
            let mut document = start.failed(Kind::Read, command(), began.elapsed(), failure_of(&error));
            if stopped(&error) {
                document.status = Status::Interrupted;
            }
            document
        }
    };
    write_as(&document, &args.output, |document| shown(document, args.rows.shape()))
}

fn shown(document: &Document, shape: text::Shape) -> String {
    let beside = published::beside(document);
    text::survey(document, beside.as_ref(), shape, layout())
}

fn carry_out_read(args: &cli::Read) -> Result<Measured> {
    // First, so that there is a document also where it is stopped while it makes itself ready.
    let stop = Stop::install_hurried()?;
    let options = args.options()?.settled()?;
    let mut subject = ReadSubject::new(&options, &stop)?;
    let seed = args.sampling.seed.unwrap_or_else(seed);
    let survey = args.sampling.rules(&EFFORTS, seed, options.requested());
    let fewest = survey.rounds.min(survey::FEWEST_ROUNDS);
    let least = subject.takes_at_least(fewest);
    if least > survey.budget && !args.output.quiet {
        say(&format!(
            "haul: {fewest} rounds of this take {} or more, and {} were to be enough: ^C ends them, and a smaller --working-set or \
             fewer values make them short",
            brief(least),
            brief(survey.budget)
        ));
    }
    carry_out(&survey, &mut subject, &stop, &args.output)
}

/// The values of a list of names, each of which may be there once.
pub(crate) fn each_once<T: PartialEq>(
    option: &str,
    text: &str,
    mut parse: impl FnMut(&str) -> Result<T, LabError>,
) -> Result<Vec<T>, LabError> {
    let mut values: Vec<T> = Vec::new();
    for name in text.split(',').map(str::trim) {
        let value = parse(name)?;
        if values.contains(&value) {
            return Err(LabError::Option {
                key: option.to_owned(),
                value: text.to_owned(),
                why: format!("'{name}' is in it twice: name each once"),
            });
        }
        values.push(value);
    }
    Ok(values)
}

/// Surveys a subject, and shows how far it is.
pub(crate) fn carry_out(
    survey: &Survey,
    subject: &mut dyn Subject,
    stop: &Stop,
    output: &Output,
) -> Result<Measured> {
    // Started before the thread is pinned, so that neither of the two is pinned with it.
    let showing = Screen::start(!output.quiet).context("cannot start the thread that shows progress")?;
    let mut tape = match output.format {
        Format::Jsonl => Some(Tape::start().context("cannot start the thread that writes events")?),
        Format::Text | Format::Json => None,
    };
    let screen = showing.screen();
    let mut told: Option<Instant> = None;
    let mut watch = |event: &Event<'_>| {
        if let Some(tape) = &mut tape {
            tape.event(event);
        }
        if told.is_some_and(|told| told.elapsed() < TOLD_EVERY) {
            return;
        }
        match event {
            Event::Preparing { what, left } => screen.progress(0, 0, (*what).to_owned(), Some(*left)),
            Event::Calibrating { number, of, cell, left } => {
                let text = format!("trying cell {number} of {of}: {}", text::cell_name(cell));
                screen.progress(0, 0, text, Some(*left));
            }
            Event::Begins { block, cell, left, .. } => {
                let text = format!("round {} of {}: {}", block + 1, survey.rounds, text::cell_name(cell));
                screen.progress(0, 0, text, Some(*left));
            }
            _ => return,
        }
        told = Some(Instant::now());
    };
    Ok(survey::run(survey, subject, &mut ThisHost, stop, &mut watch))
}
