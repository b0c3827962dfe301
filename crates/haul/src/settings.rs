//! `haul settings`: what can be set on this host, by hand.
//!
//! The same model as an arm's settings, one change at a time: `set` goes through the journal and leaves it there, so that
//! whatever was there before can be put back, by `restore`, for as long as the machine runs.

use std::fmt::Write as _;
use std::net::ToSocketAddrs as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use haul_host::journal::{self, Outcome};
use haul_host::link::{self, Link};
use haul_host::privilege;
use haul_host::settings::{Consent, Entry, Roots, Setting, Tuner, catalogue, lookup};
use haul_host::veth_lab::{VethLab, VethOptions};
use haul_results::text::columns;
use serde_json::json;

use crate::cli::{Format, Output, Settings};
use crate::host::finish;
use crate::measure::{layout, print};
use crate::screen::say;
use crate::state::State;

/// Does what the command line asks for.
pub(crate) fn command(action: &Settings) -> Result<ExitCode> {
    match action {
        Settings::List { target, changeable, output } => {
            let (device, mut entries) =
                look(target.as_deref(), |device| catalogue(device, &Roots::default()))?;
            entries.retain(|entry| !changeable || entry.fixed.is_none());
            show(&device, &entries, false, output)
        }
        Settings::Show { name, via, output } => {
            let find = |device: &Link| lookup(name, device, &Roots::default());
            let (device, entries) = look(via.as_deref(), find)?;
            show(&device, &entries, true, output)
        }
        Settings::Set { settings, via, allow_side_effects, allow_global, output } => {
            let consent = Consent { side_effects: *allow_side_effects, global: *allow_global };
            set(settings, &device(via.as_deref())?, consent, output)
        }
        Settings::Restore { output } => restore(output),
        Settings::Diff { output } => diff(output),
    }
}

/// Looks at the device that is meant, in a lab made for it where that is meant.
fn look(
    text: Option<&str>,
    find: impl FnOnce(&Link) -> haul_host::Result<Vec<Entry>> + Send,
) -> Result<(Link, Vec<Entry>)> {
    if text == Some("lab") {
        if !privilege::effective_root() {
            privilege::enter_user_namespace().context("the lab needs two network namespaces")?;
        }
        let lab = VethLab::build(VethOptions::default())?;
        let entries = lab.client.run(|| find(&lab.client_dev))??;
        return Ok((lab.client_dev, entries));
    }
    let device = device(text)?;
    let entries = find(&device)?;
    Ok((device, entries))
}

/// The device that is meant: by name, or by what is reached through it.
fn device(text: Option<&str>) -> Result<Link> {
    let Some(text) = text else { return Ok(haul_lab::live::own_device()?) };
    let text = if text == "loopback" { "lo" } else { text };
    let by_name = match link::link_by_name(text) {
        Ok(device) => return Ok(device),
        Err(error) => error,
    };
    let reached =
        text.parse().ok().or_else(|| (text, 0).to_socket_addrs().ok()?.next().map(|found| found.ip()));
    match reached {
        Some(address) => Ok(link::link_by_index(link::route_to(address)?.oif)?),
        None => Err(by_name).context(format!("'{text}' is neither a device nor a host")),
    }
}

fn json_of(output: &Output, value: &serde_json::Value) -> Option<Result<ExitCode>> {
    (output.format != Format::Text).then(|| finish(print(&format!("{value:#}\n"))))
}

fn show(device: &Link, entries: &[Entry], whole: bool, output: &Output) -> Result<ExitCode> {
    let value = json!({"device": device.name, "settings": entries});
    if let Some(done) = json_of(output, &value) {
        return done;
    }
    if whole {
        let mut text = String::new();
        for entry in entries {
            let _ = writeln!(text, "{} = {}", entry.name, or_none(&entry.value));
            let _ = writeln!(text, "  whose    {}", whose(entry, device));
            let _ = writeln!(text, "  values   {}", entry.values);
            if let Some(drags) = &entry.drags {
                let _ = writeln!(text, "  beside   {drags}");
            }
            let _ = match &entry.fixed {
                Some(reason) => writeln!(text, "  fixed    {reason}"),
                None => writeln!(
                    text,
                    "  undone   as it was, at the end of a run, on any signal, or by 'haul settings restore'"
                ),
            };
        }
        return finish(print(&text));
    }
    let row = |entry: &Entry| {
        let can = entry.fixed.as_ref().unwrap_or(&entry.values).clone();
        [entry.name.clone(), or_none(&entry.value).to_owned(), entry.scope.to_string(), can]
    };
    let rows: Vec<[String; 4]> = entries.iter().map(row).collect();
    let list = columns(["setting", "state", "whose", "can be"], &rows, layout());
    finish(print(&format!("{} and its host\n{list}", device.name)))
}

fn or_none(value: &str) -> &str {
    if value.is_empty() { "-" } else { value }
}

fn whose(entry: &Entry, device: &Link) -> String {
    match entry.scope {
        haul_host::settings::Scope::Device => format!("the device {}", device.name),
        haul_host::settings::Scope::Namespace => "this network namespace".to_owned(),
        haul_host::settings::Scope::Host => "the whole host".to_owned(),
    }
}

fn set(texts: &[String], device: &Link, consent: Consent, output: &Output) -> Result<ExitCode> {
    let settings = match texts.iter().map(|text| text.parse::<Setting>()).collect::<Result<Vec<_>, _>>() {
        Ok(settings) => settings,
        // What no device could take is a slip in the command line.
        Err(error) => {
            say(&format!("haul: {error}"));
            return Ok(ExitCode::from(2));
        }
    };
    if let Some(elsewhere) = settings.iter().find(|setting| setting.end != haul_host::settings::End::Client) {
        anyhow::bail!("{elsewhere}: 'haul settings set' changes the host it runs on; leave the end out");
    }
    let state = State::open()?;
    let mut tuner = Tuner::open(state.journal(), device)?;
    let applied = tuner.apply(&settings, consent)?;
    let unchanged = tuner.holds().is_empty();
    // Without a change there is nothing to undo, and no journal to leave.
    let journal = if unchanged { tuner.restore().map(|()| None)? } else { tuner.keep()? };
    let value = json!({"device": device.name, "applied": applied, "journal": journal});
    if let Some(done) = json_of(output, &value) {
        return done;
    }
    let mut text = String::new();
    for change in &applied.changed {
        let _ = writeln!(text, "{change}");
    }
    for change in &applied.side_effects {
        let _ = writeln!(text, "{change} (came along)");
    }
    for said in &applied.said {
        let _ = writeln!(text, "'{}': {}", said.command, said.output);
    }
    let _ = match &journal {
        Some(path) => writeln!(text, "undo with: haul settings restore   ({})", path.display()),
        None => writeln!(text, "nothing to change: {} is so already", device.name),
    };
    finish(print(&text))
}

fn restore(output: &Output) -> Result<ExitCode> {
    let recoveries = State::open()?.settle_all()?;
    let kept = recoveries.iter().any(|recovery| matches!(recovery.outcome, Outcome::Kept { .. }));
    let code = ExitCode::from(u8::from(kept));
    if output.format != Format::Text {
        print(&format!("{:#}\n", json!({"recovered": recoveries})))?;
        return Ok(code);
    }
    let mut text = String::new();
    for recovery in &recoveries {
        let _ = writeln!(text, "{recovery}");
    }
    if recoveries.is_empty() {
        text.push_str("haul has changed nothing on this host that is not put back\n");
    }
    print(&text)?;
    if kept {
        say("haul: not everything could be put back (above)");
    }
    Ok(code)
}

fn diff(output: &Output) -> Result<ExitCode> {
    let open = journal::list(State::open()?.journal())?;
    // A haul that has changed nothing yet has a journal too.
    let changed = open.iter().filter(|journal| !journal.items.is_empty() || journal.problem.is_some());
    let held: Vec<_> = changed.map(|journal| (journal, journal.now())).collect();
    let all = held.iter().map(|(journal, now)| json!({"journal": journal, "now": now})).collect::<Vec<_>>();
    if let Some(done) = json_of(output, &json!({"changed": all})) {
        return done;
    }
    let (mut rows, mut text) = (Vec::new(), String::new());
    for (journal, now) in &held {
        let by = match (journal.kept, journal.alive) {
            (true, _) => "haul settings set".to_owned(),
            (false, true) => format!("{}, which runs", journal.command.as_deref().unwrap_or("a haul")),
            (false, false) => format!("{}, which died", journal.command.as_deref().unwrap_or("a haul")),
        };
        let place = journal.device.as_ref().map_or("", |device| device.name.as_str());
        for (item, before) in &journal.items {
            let is = now.get(item).map_or("gone", String::as_str);
            let before = before.wanted.split('\t').next().unwrap_or_default();
            rows.push([format!("{place} {item}"), before.to_owned(), is.to_owned(), by.clone()]);
        }
        if let Some(problem) = &journal.problem {
            let _ = writeln!(text, "{}: {problem}", journal.journal.display());
        }
    }
    if rows.is_empty() && text.is_empty() {
        text.push_str("haul has changed nothing on this host that is not put back\n");
    } else if !rows.is_empty() {
        text.insert_str(0, &columns(["setting", "as it was", "as it is", "by"], &rows, layout()));
    }
    finish(print(&text))
}
