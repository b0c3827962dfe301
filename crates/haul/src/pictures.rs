//! Files made of a document's profiles: flame graphs and folded stacks.
//!
//! One table of costs makes one file, of the name that was given. Where there are several (arms, cells, hosts), each name gets what
//! tells them apart, and each arm one more picture, of how it differs from the base. That a file can be made is found out before
//! anything is measured.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use haul_lab::LabError;
use haul_results::flame;
use haul_results::profile::Costs;
use haul_results::record::{Document, Status};
use haul_results::text;

use crate::cli::Inside;

/// Says what cannot become a file, before the first run.
pub(crate) fn check(inside: &Inside) -> Result<()> {
    let options = [("flame-graph", &inside.flame_graph), ("folded", &inside.folded)];
    for (key, path) in options.into_iter().filter_map(|(key, path)| Some((key, path.as_ref()?))) {
        let bad = |why: &str| LabError::Option {
            key: key.to_owned(),
            value: path.display().to_string(),
            why: why.to_owned(),
        };
        // A pipe would be waited for, and what is a terminal or a device is not for pictures.
        if fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
            bail!(bad("it is not a regular file: give the name of one"));
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if path.file_name().is_none() || path.is_dir() {
            bail!(bad("it is a directory: give the name of a file"));
        }
        if parent.is_some_and(|parent| !parent.is_dir()) {
            bail!(bad("there is no such directory: make it first"));
        }
    }
    if inside.flame_graph.is_some() && inside.flame_graph == inside.folded {
        bail!(LabError::Option {
            key: "folded".to_owned(),
            value: inside.folded.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
            why: "it is the file of --flame-graph too: give each its own".to_owned(),
        });
    }
    Ok(())
}

/// Writes what was asked for; the names of the files written.
pub(crate) fn write(document: &Document, inside: &Inside) -> Result<Vec<PathBuf>> {
    let tables: Vec<&Costs> = document.costs.iter().filter(|costs| !costs.stacks.is_empty()).collect();
    let wanted = inside.flame_graph.is_some() || inside.folded.is_some();
    if wanted && tables.is_empty() && document.status == Status::Complete {
        let mut absent =
            document.runs.iter().flat_map(|run| &run.profiles).filter_map(|it| it.reason.as_deref());
        bail!(
            "nothing was profiled, so there is no file to write: {}",
            absent.next().unwrap_or("no run was complete")
        );
    }
    let alone = tables.len() == 1;
    let swept = tables.iter().any(|costs| costs.cell != tables[0].cell);
    let mut written = Vec::new();
    for costs in &tables {
        let title = title(costs);
        if let Some(path) = &inside.flame_graph {
            let path = if alone { path.clone() } else { beside(path, &file_part(costs, swept)) };
            put(&path, &flame::graph(costs, &title)?, &mut written)?;
            let base = document.cost_changes.iter().find(|changes| {
                changes.cell == costs.cell
                    && Some(&changes.arm) == costs.arm.as_ref()
                    && changes.scope == costs.scope
            });
            let base = base.and_then(|changes| {
                let same = |other: &&&Costs| {
                    other.arm.as_ref() == Some(&changes.base)
                        && other.cell == costs.cell
                        && other.scope == costs.scope
                };
                tables.iter().find(same)
            });
            if let Some(base) = base {
                let name = base.arm.clone().unwrap_or_default();
                let path = beside(&path, &format!("against-{}", plain(&name)));
                put(
                    &path,
                    &flame::difference(base, costs, &format!("{title} against {name}"))?,
                    &mut written,
                )?;
            }
        }
        if let Some(path) = &inside.folded {
            let path = if alone { path.clone() } else { beside(path, &file_part(costs, swept)) };
            put(&path, &flame::folded(&costs.stacks), &mut written)?;
        }
    }
    Ok(written)
}

fn put(path: &Path, text: &str, written: &mut Vec<PathBuf>) -> Result<()> {
    if let Err(error) = fs::write(path, text) {
        // Half a picture is taken for a whole one: on a full disk the file would be there, and end anywhere.
        let left = match fs::remove_file(path) {
            Ok(()) => String::new(),
            Err(gone) if gone.kind() == ErrorKind::NotFound => String::new(),
            Err(left) => {
                format!(", and what was written of it could not be removed ({left}): it is not whole")
            }
        };
        return Err(error).with_context(|| format!("cannot write {}{left}", path.display()));
    }
    written.push(path.to_owned());
    Ok(())
}

fn title(costs: &Costs) -> String {
    let arm = costs.arm.as_ref().map(|arm| format!("{arm}, "));
    let cell = text::cell_name(&costs.cell);
    let part = match (&costs.host_reason, &costs.kernel_reason) {
        (_, Some(_)) => ", its threads in user mode only",
        (Some(_), None) => ", its threads only",
        (None, None) => "",
    };
    format!("{}{}{part}: {cell}", arm.unwrap_or_default(), costs.scope)
}

/// What tells a table from the others, as a part of a file's name.
fn file_part(costs: &Costs, swept: bool) -> String {
    let arm = costs.arm.clone();
    let cell = costs.cell.iter().filter(|_| swept).map(|(axis, level)| format!("{axis}{level}"));
    let parts: Vec<String> = arm.into_iter().chain(cell).chain([costs.scope.to_string()]).collect();
    plain(&parts.join("-"))
}

fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect()
}

/// `dir/name.svg` and `part` make `dir/name-part.svg`.
fn beside(path: &Path, part: &str) -> PathBuf {
    let mut name = OsString::from(path.file_stem().unwrap_or_default());
    name.push("-");
    name.push(part);
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_tells_files_apart_stays_in_its_directory() {
        for (path, part, expected) in [
            ("a/out.svg", "on-sender", "a/out-on-sender.svg"),
            ("out", "x", "out-x"),
            ("a.b/c.d.svg", &plain("../../etc:1"), "a.b/c.d-.._.._etc_1.svg"),
        ] {
            assert_eq!(beside(Path::new(path), part), PathBuf::from(expected));
        }
    }
}
