//! `haul serve`: the other end, and its log on standard error.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context as _, Result};
use haul_host::settings::Reach;
use haul_host::signal::Stop;
use haul_wire::error::printable;
use haul_workload::server::{ServeEvent, ServeOptions, Server};

use crate::cli::{self, AllowSettings};
use crate::key::{self, Origin};
use crate::screen::{Screen, brief, say};
use crate::served::Runs;
use crate::state::State;

pub(crate) fn serve(args: &cli::Serve) -> Result<ExitCode> {
    let state = State::open()?;
    let stop = Stop::install()?;
    let showing = Screen::start(false).context("cannot start the thread that writes the log")?;
    let screen = showing.screen();
    state.recover(&screen)?;
    let server = Server::bind(args.listen)?;
    // Made once there is a server that can be reached with it: the first start that prints it is one that serves.
    let key = if args.open { None } else { Some(key::of_server(&args.key)?) };
    let options = ServeOptions {
        key: key.as_ref().map(|key| key.key.clone()),
        allow_settings: args.allow_settings.map(|what| match what {
            AllowSettings::Path => Reach::Path,
            AllowSettings::Anything => Reach::Anything,
        }),
        max_sessions: args.sessions,
        journal: state.journal().to_owned(),
    };
    let address = server.local_addr()?;
    let address = SocketAddr::new(address.ip().to_canonical(), address.port());
    screen.line(format!("haul: listening on {address}"));
    match key {
        None => screen.line(
            "haul: OPEN: anyone who reaches this port can make this host send and receive at full speed, and nothing is \
             encrypted",
        ),
        Some(key) => screen.line(match key.origin {
            Origin::Made(path) => format!(
                "haul: made a key, kept in {}; clients need it: HAUL_KEY={} haul stream HOST",
                path.display(),
                key.key.reveal()
            ),
            Origin::Read(path) => format!("haul: clients need the key in {}", path.display()),
            Origin::Given => "haul: clients need the key that was given".to_owned(),
        }),
    }
    match args.allow_settings {
        None => {}
        Some(AllowSettings::Path) => {
            screen.line("haul: clients may change settings of this host's network path while they are connected");
        }
        Some(AllowSettings::Anything) => screen.line(
            "haul: clients may change ANYTHING on this host and run commands as the user who started this, while they are \
             connected",
        ),
    }
    let runs = Runs::start(args.format).context("cannot start the thread that writes the runs")?;
    let inlet = runs.as_ref().map(Runs::inlet);
    let log = screen.clone();
    let observe = move |event: &ServeEvent| {
        if let Some(inlet) = &inlet {
            inlet.event(event);
        }
        log.line(line(event));
    };
    let end = server.run(options, &stop, Arc::new(observe));
    // What has ended is written before anything is said of why the server did.
    let written = runs.map_or(Ok(()), Runs::finish);
    end?;
    drop(showing);
    if let Some(signal) = stop.requested() {
        say(&format!("haul: stopped by {signal}"));
    }
    if let Err(problem) = written {
        say(&format!("haul: {problem}"));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// One line of the log.
fn line(event: &ServeEvent) -> String {
    let time = humantime::format_rfc3339_seconds(SystemTime::now());
    let text = match event {
        ServeEvent::Opened { client, waited: None } => format!("{client}: connected"),
        ServeEvent::Opened { client, waited: Some(waited) } => {
            format!("{client}: connected, after {} in line", brief(*waited))
        }
        ServeEvent::Full { client, reason } => {
            format!("{client}: this server is busy: {reason} (told once, however often it asks)")
        }
        ServeEvent::Run { client, what } | ServeEvent::RunEnded { client, what, .. } => {
            format!("{client}: {what}")
        }
        ServeEvent::Closed { client, reason: None } => format!("{client}: done"),
        ServeEvent::Closed { client, reason: Some(reason) } => format!("{client}: ended: {reason}"),
        ServeEvent::TurnedAway { from, reason } => format!("{from}: turned away: {reason}"),
        ServeEvent::Hushed { count } => format!("{count} more connections were turned away within a second"),
        ServeEvent::Settings { client, what } => format!("{client}: settings {what}"),
    };
    format!("{time} {}", printable(&text))
}
