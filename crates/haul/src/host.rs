//! What a host is: `haul env`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use haul_host::privilege;
use haul_host::signal::Stop;
use haul_lab::live::{self, LiveRig};
use haul_lab::record::Start;
use haul_lab::rig::Rig as _;
use haul_lab::topology::{Target, Topology};
use haul_results::difference::EnvironmentDiff;
use haul_results::record::{Document, Environment, Failure, Kind, SCHEMA, Stamp};
use haul_results::{json, text};

use crate::cli::{self, Format, Output};
use crate::key;
use crate::measure::{command, failure_of, layout, print, write};
use crate::state::State;

/// `haul env`: this host alone, both ends of the path to a target, or the difference of two records.
pub(crate) fn env(args: &cli::Env) -> Result<ExitCode> {
    if let Some([a, b]) = args.diff.as_deref() {
        return differ(a, b, &args.output);
    }
    let start = Start::now();
    let began = Instant::now();
    let command = command();
    let document = match environment(args) {
        Ok(environment) => start.facts(command, began.elapsed(), environment),
        Err(error) => start.failed(Kind::Env, command, began.elapsed(), failure_of(&error)),
    };
    write(&document, &args.output)
}

/// What differs between the hosts of two records; the exit code is that of diff(1).
fn differ(a: &Path, b: &Path, output: &Output) -> Result<ExitCode> {
    /// Something differs.
    const DIFFERENT: u8 = 1;
    /// A file could not be read.
    const TROUBLE: u8 = 2;
    let (start, began) = (Start::now(), Instant::now());
    let (one, other) = match recorded(a).and_then(|one| Ok((one, recorded(b)?))) {
        Ok(both) => both,
        Err(error) => {
            let failure = Failure { exit: TROUBLE, ..failure_of(&error) };
            return write(&start.failed(Kind::Env, command(), began.elapsed(), failure), output);
        }
    };
    let difference = EnvironmentDiff::of(&one.environment, &other.environment);
    let same = difference.is_same();
    let names = [a.to_string_lossy(), b.to_string_lossy()];
    let text = match output.format {
        Format::Text => text::difference([&names[0], &names[1]], &difference, layout()),
        Format::Json | Format::Jsonl => {
            let side = |file: &str, of: &Document| serde_json::json!({ "file": file, "id": of.id, "started": of.started });
            let found = serde_json::json!({
                "haul": Stamp { version: env!("CARGO_PKG_VERSION").to_owned(), schema: SCHEMA },
                "kind": "env_diff",
                "a": side(&names[0], &one),
                "b": side(&names[1], &other),
                "same": same,
                "client": difference.client,
                "server": difference.server,
            });
            let written = if output.format == Format::Json {
                serde_json::to_string_pretty(&found)
            } else {
                serde_json::to_string(&found)
            };
            written.context("cannot write the difference as JSON")? + "\n"
        }
    };
    finish(print(&text))?;
    Ok(ExitCode::from(if same { 0 } else { DIFFERENT }))
}

/// A record from a file, or from standard input.
fn recorded(file: &Path) -> Result<Document> {
    let text = if file == Path::new("-") {
        std::io::read_to_string(std::io::stdin()).context("cannot read standard input")?
    } else {
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?
    };
    let document = json::parse_any(&text).with_context(|| format!("cannot use {}", file.display()))?;
    if document.environment.client.is_none() && document.environment.server.is_none() {
        bail!("cannot compare {}: it does not say where it ran", file.display());
    }
    Ok(document)
}

fn environment(args: &cli::Env) -> Result<Environment> {
    let Some(target) = &args.target else {
        return Ok(Environment { client: Some(live::own_facts()?), server: None });
    };
    let target: Target = target.parse::<Target>()?;
    let trust = key::of_client_for(&target, &args.trust)?;
    let state = State::open()?;
    if target.needs_namespaces() && !privilege::effective_root() {
        privilege::enter_user_namespace().context("the lab needs two network namespaces")?;
    }
    let stop = Stop::install()?;
    let mut rig = LiveRig::connect(Topology::open(&target, &trust, state.journal())?, &stop)?;
    Ok(rig.fingerprint()?)
}

/// The exit of a command whose output is all it does: a closed pipe is a reader who has seen enough.
pub(crate) fn finish(written: std::io::Result<()>) -> Result<ExitCode> {
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}
