//! haul measures what it costs to move bytes, and tells whether a change made it cheaper.
//!
//! This binary is the command line and nothing else: what it does is in the crates below it.
#![forbid(unsafe_code)]

mod cli;
mod copy;
mod host;
mod key;
mod measure;
mod pictures;
mod screen;
mod serve;
mod served;
mod settings;
mod state;
mod survey;
mod tape;
mod top;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser as _;
use haul_lab::record::Start;
use haul_results::record::{Failure, Kind};
use haul_results::text;
use haul_workload::Workload;

use cli::{Cli, Command, Format, Output};
use measure::{exit_of, layout, print};
use screen::{say, with_causes};

fn main() -> ExitCode {
    // Whoever cannot ignore them dies of them at worst, as before.
    let _ = haul_host::signal::outlive_strays();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    match top::end_with_watcher().and_then(|()| run(&cli.command)) {
        Ok(exit) => exit,
        Err(error) => {
            say(&format!("haul: {}", with_causes(&error)));
            ExitCode::from(exit_of(&error))
        }
    }
}

fn run(command: &Command) -> Result<ExitCode> {
    // Each flow takes a descriptor at each end, and the usual limit of 1,024 is there for select(2), which nothing here
    // calls. Where it cannot be raised, whoever runs short says so.
    let _ = haul_host::privilege::raise_open_files();
    if command.only_looks() {
        state::settle_aside();
    }
    match command {
        Command::Demo(args) => measure::demo(args),
        Command::Serve(args) => serve::serve(args),
        Command::Stream(args) => measure::stream(args),
        Command::Rr(args) => measure::exchange(Workload::Rr, args),
        Command::Crr(args) => measure::exchange(Workload::Crr, args),
        Command::Copy(args) => copy::copy(args),
        Command::Ab(args) => measure::ab(args),
        Command::Read(args) => survey::read(args),
        Command::Top(args) => top::top(args),
        Command::Env(args) => host::env(args),
        Command::Settings { action } => settings::command(action),
        Command::Explain { name } => {
            // A heading of two words need not be quoted.
            let name = Some(name.join(" ")).filter(|name| !name.is_empty());
            host::finish(print(&text::explain(name.as_deref(), layout())?))
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut cli::definition(), "haul", &mut script);
            host::finish(print(&String::from_utf8_lossy(&script)))
        }
        Command::Man { directory } => man(directory),
    }
}

fn man(directory: &Path) -> Result<ExitCode> {
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    clap_mangen::generate_to(cli::definition(), directory)
        .with_context(|| format!("cannot write the man pages into {}", directory.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Help and versions go to standard output; a mistake in the arguments to standard error, and, where JSON was asked
/// for, into a document as well: one document, whatever happens.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return host::finish(print(&error.render().to_string())).unwrap_or(ExitCode::FAILURE);
    }
    let arguments = measure::command();
    let asked = |format: &str| {
        arguments.iter().any(|argument| *argument == format!("--format={format}"))
            || arguments.windows(2).any(|pair| pair[0] == "--format" && pair[1] == format)
    };
    let format = if asked("jsonl") { Format::Jsonl } else { Format::Json };
    // What watches has no document of its own.
    let watches = arguments.get(1).is_some_and(|command| command == "top");
    let asked_json = !watches && (format == Format::Jsonl || asked("json"));
    let kind = match arguments.get(1).map(String::as_str) {
        Some("ab") => Kind::Ab,
        Some("demo") => Kind::Demo,
        Some("env") => Kind::Env,
        Some("rr") => Kind::Rr,
        Some("crr") => Kind::Crr,
        Some("read") => Kind::Read,
        Some("copy") => Kind::Copy,
        _ => Kind::Stream,
    };
    let text = error.render().to_string();
    if asked_json {
        let document = Start::now().failed(
            kind,
            arguments,
            Duration::ZERO,
            Failure { exit: 2, text: text.trim().to_owned() },
        );
        let output = Output { format, quiet: true };
        return measure::write(&document, &output).unwrap_or(ExitCode::from(2));
    }
    say(text.trim_end());
    ExitCode::from(2)
}
