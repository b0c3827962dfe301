//! The measuring commands: from arguments to one document, whatever happens on the way.
//!
//! ```text
//! arguments ─▶ target, plan ─▶ topology ─▶ rig ─▶ runner ─▶ document ─▶ text or JSON
//!                  └── any failure ──────────────────────────▲
//! ```
//!
//! The rig and the topology are gone, and with them every setting, session and namespace, before the document is
//! written: output that blocks or fails cannot keep a host changed.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use haul_host::privilege;
use haul_host::settings::Consent;
use haul_host::signal::Stop;
use haul_lab::live::LiveRig;
use haul_lab::record::Start;
use haul_lab::runner::{self, Event, Measured};
use haul_lab::topology::{Target, Topology};
use haul_lab::verdicts::pairs_to_decide;
use haul_lab::{Arm, Axis, LabError, Plan, Rules, demo, option};
use haul_results::record::{Document, Failure, Kind, Status};
use haul_results::text::{self, Demonstration, Layout, Slices, Style, Width};
use haul_results::{ResultsError, json};
use haul_stats::Decide;
use haul_stats::units::UnitError;
use haul_wire::Trust;
use haul_workload::{Probe, RunSpec, Transport, Workload};

use crate::cli::{self, CommonOptions, ExchangeOptions, Format, Inside, Output, StreamOptions};
use crate::screen::{Screen, Showing, say, with_causes};
use crate::state::State;
use crate::tape::Tape;
use crate::{key, pictures};

/// What `haul demo` asks, and where it leads.
const DEMONSTRATION: Demonstration<'static> = Demonstration {
    doing: "Turning tx-nocache-copy on",
    null: haul_lab::plan::NULL_ARM,
    next: &[
        (
            "haul demo --format json",
            "the same with every run, both ends' CPU, the options in force and all doubts",
        ),
        (
            "haul ab stream lab --cc reno --pin 0,1 --time 1s --warmup 200ms --arm off:nic.tso=off --arm on:nic.tso=on \
             --allow-side-effects",
            "the question of your choice: what 'haul settings list' shows, or workload options as in opt.message=1K",
        ),
        ("haul stream lab --cc reno --message 1K..256K*2", "one stream over the sizes of its messages"),
        ("haul serve, and on another host: HAUL_KEY=KEY haul stream THIS-HOST", "a real network"),
    ],
};

/// The command line as a record can keep it: without the key, and as text whatever its bytes.
pub(crate) fn command() -> Vec<String> {
    let mut secret = false;
    std::env::args_os()
        .map(|argument| {
            let argument = argument.to_string_lossy().into_owned();
            let hide = std::mem::replace(&mut secret, argument == "--key");
            match argument.split_once('=') {
                _ if hide => "…".to_owned(),
                Some(("--key", _)) => "--key=…".to_owned(),
                _ => argument,
            }
        })
        .collect()
}

/// What is to be measured, once the arguments are understood.
struct Order {
    target: Target,
    plan: Plan,
    trust: Trust,
    /// How long to wait in line at a busy server.
    queue: Option<Duration>,
}

/// `haul stream`.
pub(crate) fn stream(args: &cli::Stream) -> Result<ExitCode> {
    measure(Kind::Stream, &args.output, Some(&args.inside), || {
        let (spec, axes) = workload(Workload::Stream, &args.own, &ExchangeOptions::default(), &args.common)?;
        ordered(&args.place, repeated(spec, &axes, &args.runs, &args.inside)?)
    })
}

/// `haul rr` and `haul crr`.
pub(crate) fn exchange(kind: Workload, args: &cli::Exchange) -> Result<ExitCode> {
    measure(
        if kind == Workload::Crr { Kind::Crr } else { Kind::Rr },
        &args.output,
        Some(&args.inside),
        || {
            let (spec, axes) = workload(kind, &StreamOptions::default(), &args.own, &args.common)?;
            ordered(&args.place, repeated(spec, &axes, &args.runs, &args.inside)?)
        },
    )
}

fn repeated(mut spec: RunSpec, axes: &[Axis], runs: &cli::Runs, inside: &Inside) -> Result<Plan, LabError> {
    spec.observe.events = inside.events()?;
    Plan::repeat(&spec, axes, Rules { repeats: runs.runs, profile: inside.profiling(), ..Rules::default() })
}

/// `haul ab`.
pub(crate) fn ab(args: &cli::Ab) -> Result<ExitCode> {
    let kind = match args.workload_kind {
        cli::WorkloadKind::Stream => Workload::Stream,
        cli::WorkloadKind::Rr => Workload::Rr,
        cli::WorkloadKind::Crr => Workload::Crr,
    };
    measure(Kind::Ab, &args.output, Some(&args.inside), || {
        let (mut spec, axes) = workload(kind, &args.stream, &args.exchange, &args.common)?;
        spec.observe.events = args.inside.events()?;
        let arms = args.arms.iter().map(|text| text.parse::<Arm>()).collect::<Result<Vec<_>, _>>()?;
        let defaults = Rules::default();
        let decide = Decide {
            min_effect: args.min_effect,
            confidence: confidence(args.confidence)?,
            max_spread: args.max_spread,
            ..Decide::default()
        };
        let rules = Rules {
            repeats: args.pairs,
            null: args.null,
            seed: args.seed.unwrap_or(defaults.seed),
            decide,
            consent: Consent { side_effects: args.allow_side_effects, global: args.allow_global },
            profile: args.inside.profiling(),
        };
        let plan = Plan::compare(&spec, &axes, arms, rules)?;
        ordered(&args.place, plan)
    })
}

/// `haul demo`.
pub(crate) fn demo(args: &cli::Demo) -> Result<ExitCode> {
    measure(Kind::Demo, &args.output, None, || {
        let seed = args.seed.unwrap_or(Rules::default().seed);
        let (target, plan) = (demo::TARGET.parse::<Target>()?, demo::plan(seed)?);
        Ok(Order { target, plan, trust: Trust::Open, queue: None })
    })
}

fn ordered(place: &cli::Place, plan: Plan) -> Result<Order> {
    plan.check_files()?;
    let target = place.target.parse::<Target>()?;
    let trust = key::of_client_for(&target, &place.trust)?;
    Ok(Order { target, plan, trust, queue: place.queue })
}

fn confidence(level: f64) -> Result<f64, LabError> {
    if (0.5..1.0).contains(&level) {
        Ok(level)
    } else {
        Err(LabError::Plan(format!(
            "a confidence of {} % decides nothing: give 50 % to below 100 %",
            level * 100.0
        )))
    }
}

/// The options that take a list.
const SWEPT: [&str; 13] = [
    "flows",
    "threads",
    "message",
    "request",
    "response",
    "in-flight",
    "sndbuf",
    "rcvbuf",
    "send-offset",
    "recv-offset",
    "mss",
    "batch",
    "rate",
];

/// The workload's specification, and the axes of its sweep: an option with one value is no axis.
fn workload(
    kind: Workload,
    stream: &StreamOptions,
    exchange: &ExchangeOptions,
    common: &CommonOptions,
) -> Result<(RunSpec, Vec<Axis>), LabError> {
    /// The longest a run by amount may take, where it is not said.
    const BY_AMOUNT: Duration = Duration::from_hours(1);
    let mut spec = RunSpec {
        workload: kind,
        transport: if common.udp { Transport::Udp } else { Transport::Tcp },
        nodelay: kind != Workload::Stream,
        fit_message: common.udp && kind == Workload::Stream,
        interval: common.interval,
        ..RunSpec::default()
    };
    for (name, value) in stream.given_besides() {
        let Some(value) = value else { continue };
        let bad = |why: String| LabError::Option { key: name.to_owned(), value: value.to_owned(), why };
        if kind != Workload::Stream {
            return Err(bad("it is an option of a stream: leave it out".to_owned()));
        }
        if name == "bytes" {
            spec.bytes = Some(value.parse().map_err(|error: UnitError| bad(error.to_string()))?);
            // What warms up would have to be moved twice, or not be counted.
            (spec.warmup, spec.window) = (Duration::ZERO, BY_AMOUNT);
        } else {
            let rate = value.strip_prefix("rr:").and_then(|rate| rate.parse().ok());
            let rate = rate.ok_or_else(|| bad("give rr:RATE, as rr:100/s".to_owned()))?;
            spec.probe = Some(Probe { rate });
        }
    }
    spec.window = common.time.unwrap_or(spec.window);
    spec.warmup = common.warmup.unwrap_or(spec.warmup);
    // Before the options that are set by name, or the first of them would be blamed for another.
    spec.check().map_err(haul_workload::WorkloadError::from)?;
    // By itself, because names of files need not be text.
    if let Some(path) = &stream.send_file {
        if kind != Workload::Stream {
            let (key, value) = ("send-file".to_owned(), path.display().to_string());
            let why = "it is an option of a stream: leave it out".to_owned();
            return Err(LabError::Option { key, value, why });
        }
        spec.send_file = Some(path.clone()).filter(|path| path.as_os_str() != "memory");
    }
    let mut axes = Vec::new();
    for (name, value) in stream.given().into_iter().chain(exchange.given()).chain(common.given()) {
        let Some(value) = value else { continue };
        let lists = SWEPT.contains(&name) && value.contains([',', '.']) && !is_one(name, value);
        if lists {
            let swept = Axis::parse(name, value)?;
            if let [only] = swept.values.as_slice() {
                option::assign(&mut spec, name, &only.to_string())?;
            } else {
                // Whether the workload has the option is found out here, not in the first cell.
                let first = swept.values.first().map(ToString::to_string).unwrap_or_default();
                option::assign(&mut spec.clone(), name, &first)?;
                axes.push(swept);
            }
        } else {
            option::assign(&mut spec, name, value)?;
        }
    }
    // What goes together is checked by the plan, for every cell and arm.
    Ok((spec, axes))
}

/// Whether a text with a dot is one value: a rate may have a fraction.
fn is_one(name: &str, value: &str) -> bool {
    name == "rate" && !value.contains(',') && !value.contains("..")
}

/// Runs what `order` makes of the arguments, and writes the document it ends in.
fn measure(
    kind: Kind,
    output: &Output,
    inside: Option<&Inside>,
    order: impl FnOnce() -> Result<Order>,
) -> Result<ExitCode> {
    let (start, began) = (Start::now(), Instant::now());
    let command = command();
    let possible = inside.map_or(Ok(()), pictures::check);
    let document = match possible.and_then(|()| order()).and_then(|order| carry_out(order, kind, output)) {
        Ok(measured) => start.document(kind, command, measured),
        Err(error) => {
            let mut document = start.failed(kind, command, began.elapsed(), failure_of(&error));
            if stopped(&error) {
                document.status = Status::Interrupted;
            }
            document
        }
    };
    let exit = write(&document, output)?;
    // After the document: a picture that cannot be drawn must not cost the numbers.
    for path in inside.map_or_else(|| Ok(Vec::new()), |inside| pictures::write(&document, inside))? {
        say(&format!("haul: wrote {}", path.display()));
    }
    Ok(exit)
}

fn carry_out(order: Order, kind: Kind, output: &Output) -> Result<Measured> {
    let Order { target, plan, trust, queue } = order;
    // Before the first thread: the kernel lets only a single one change its user namespace.
    let state = State::open()?;
    if target.needs_namespaces() && !privilege::effective_root() {
        privilege::enter_user_namespace().context("the lab needs two network namespaces")?;
        // The kernel has forgotten it with the change of rights.
        crate::top::end_with_watcher()?;
    }
    let stop = Stop::install()?;
    let showing = Screen::start(!output.quiet).context("cannot start the thread that shows progress")?;
    state.recover(&showing.screen())?;
    let (comparisons, needed) = pairs_to_decide(&plan);
    if !plan.arms().is_empty() && (plan.rules().repeats as usize) < needed {
        showing.screen().line(format!(
            "haul: {} pairs cannot decide {comparisons} comparisons at {} %: at least --pairs {needed} can",
            plan.rules().repeats,
            plan.rules().decide.confidence * 100.0
        ));
    }
    let topology = Topology::open(&target, &trust, state.journal())?;
    let screen = showing.screen();
    let mut waiting = |text: &str| screen.line(format!("haul: {text}"));
    let mut rig = LiveRig::connect_in_line(topology, &stop, queue.unwrap_or_default(), &mut waiting)?;
    let told = output.format == Format::Text && !output.quiet;
    let two_ways = plan.cells().iter().any(|cell| cell.spec.direction == haul_workload::Direction::Both);
    let mut watch = watcher(&showing, kind, told.then(|| Slices::new(two_ways)), plan.cells().len() > 1);
    let mut tape = match output.format {
        Format::Jsonl => Some(Tape::start().context("cannot start the thread that writes events")?),
        Format::Text | Format::Json => None,
    };
    let mut both = |event: &Event<'_>| {
        watch(event);
        if let Some(tape) = &mut tape {
            tape.event(event);
        }
    };
    Ok(runner::run(&plan, &mut rig, &stop, &mut both))
}

/// Shows what happens while a plan runs.
fn watcher(
    showing: &Showing,
    kind: Kind,
    mut slices: Option<Slices>,
    swept: bool,
) -> impl FnMut(&Event<'_>) + Send + use<> {
    let screen = showing.screen();
    if kind == Kind::Demo {
        screen.line(
            "Does the NIC feature tx-nocache-copy make a TCP stream cheaper or dearer? Two network namespaces on this \
             machine,\njoined by a veth pair; every arm runs again and again, in random order, and the first arm also \
             against itself.\nCongestion control is reno: bbr, the default of some hosts, would pace the stream and hide \
             the copies.\n",
        );
    }
    move |event| match event {
        Event::Said { arm, text } => screen.line(format!("haul: arm {arm}: {text}")),
        Event::Checking { arm } => {
            let text = arm.map_or("trying the path".to_owned(), |arm| format!("trying arm {arm}"));
            screen.progress(0, 0, text, None);
        }
        Event::Begins { number, of, arm, cell, left, .. } => {
            let levels = swept.then(|| text::cell_name(cell));
            let text = arm.map(ToOwned::to_owned).into_iter().chain(levels).collect::<Vec<_>>().join(", ");
            screen.progress(*number as u64 - 1, *of as u64, text, Some(*left));
        }
        Event::Interval(interval) => {
            if let Some(line) = slices.as_mut().and_then(|slices| slices.line(interval)) {
                screen.line(line);
            }
        }
        Event::Ended(run) => {
            let lines = slices.as_mut().map(|slices| slices.rest(&run.intervals)).unwrap_or_default();
            for line in lines {
                screen.line(line);
            }
        }
        // Of surveys, which are watched by their own.
        Event::Preparing { .. } | Event::Calibrating { .. } | Event::Restoring => {}
    }
}

/// Whether its user stopped it before there was a run: that is no failure, whatever it was doing.
pub(crate) fn stopped(error: &anyhow::Error) -> bool {
    error.downcast_ref::<LabError>().is_some_and(LabError::is_interrupt)
        || error
            .downcast_ref::<haul_workload::WorkloadError>()
            .is_some_and(haul_workload::WorkloadError::is_interrupt)
}

/// How an error stands in a document.
pub(crate) fn failure_of(error: &anyhow::Error) -> Failure {
    Failure { exit: exit_of(error), text: with_causes(error) }
}

/// The exit code that belongs to an error: what the library says of its own, 1 for everything else.
pub(crate) fn exit_of(error: &anyhow::Error) -> u8 {
    let lab = error.downcast_ref::<LabError>().map(LabError::exit);
    lab.or_else(|| {
        error.downcast_ref::<haul_workload::WorkloadError>().map(haul_workload::WorkloadError::exit)
    })
    .or_else(|| error.downcast_ref::<haul_wire::WireError>().map(|_| 2))
    .or_else(|| error.downcast_ref::<key::NoKey>().map(|_| 2))
    .or_else(|| error.downcast_ref::<ResultsError>().map(ResultsError::exit))
    .unwrap_or(1)
}

/// Writes the document in the format asked for and gives its exit code, the same in every format.
pub(crate) fn write(document: &Document, output: &Output) -> Result<ExitCode> {
    write_as(document, output, |document| match document.kind {
        Kind::Demo if !document.runs.is_empty() => text::demonstration(document, &DEMONSTRATION, layout()),
        _ => text::document(document, layout()),
    })
}

/// [`write()`] with words of its own.
pub(crate) fn write_as(
    document: &Document,
    output: &Output,
    words: impl FnOnce(&Document) -> String,
) -> Result<ExitCode> {
    let exit = match (document.status, &document.failure) {
        (Status::Complete, _) => 0,
        (_, Some(failure)) => failure.exit,
        (Status::Interrupted | Status::Failed | Status::Void, None) => 1,
    };
    let stdout = io::stdout().lock();
    let written = match output.format {
        Format::Json => json::write(document, stdout),
        Format::Jsonl => json::write_line(document, stdout),
        // What failed before there was anything to show is an error and nothing else.
        Format::Text if document.runs.is_empty() && document.failure.is_some() => Ok(()),
        Format::Text => print(&words(document)).map_err(ResultsError::Write),
    };
    match written {
        Ok(()) => {}
        // Who closed the pipe has seen enough.
        Err(error) if error.is_closed_pipe() => {}
        Err(error) => return Err(error).context("cannot write the result to standard output"),
    }
    if let Some(failure) = &document.failure {
        say(&format!("haul: {}", failure.text));
    }
    Ok(ExitCode::from(exit))
}

/// Prints to standard output without the panic of `println!` on a closed pipe.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// As wide as the terminal, 80 columns elsewhere; colour on a terminal unless `NO_COLOR` is set.
pub(crate) fn layout() -> Layout {
    if !io::stdout().is_terminal() {
        return Width::PAGE.into();
    }
    let (_, columns) = console::Term::stdout().size();
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    Layout { width: Width(columns), style: if colour { Style::Colour } else { Style::Plain } }
}
