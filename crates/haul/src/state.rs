//! What an earlier haul may have left behind on this host, and where it would be written down.
//!
//! Every command first puts back what a killed haul left changed. Where that fails, nothing new is begun: a second change on top of a half-undone one could not be undone by anybody.

use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Result, bail};
use haul_host::journal::{self, Outcome, Recovery, Which};
use haul_host::privilege;

use crate::screen::{Screen, say, with_causes};

/// The place of the journals, found before the process changes its user namespace.
pub(crate) struct State {
    journal: PathBuf,
}

impl State {
    pub(crate) fn open() -> Result<Self> {
        let chosen = journal::directory();
        // Who started haul as somebody else (su, cron, a container) may have no home of his own; he can change no setting
        // of a host that outlives haul either, and what is to be written down here concerns the lab alone.
        if !privilege::effective_root()
            && !chosen.as_ref().is_ok_and(|journal| fs::create_dir_all(journal).is_ok())
            && let Some(journal) = makeshift()
        {
            return Ok(Self { journal });
        }
        Ok(Self { journal: chosen? })
    }

    pub(crate) fn journal(&self) -> &Path {
        &self.journal
    }

    /// Puts back what killed hauls left.
    pub(crate) fn settle(&self) -> Result<Vec<Recovery>> {
        Ok(journal::recover(&self.journal, Which::Dead)?)
    }

    /// Puts back that, and what was made to stay.
    pub(crate) fn settle_all(&self) -> Result<Vec<Recovery>> {
        Ok(journal::recover(&self.journal, Which::Kept)?)
    }

    /// As [`State::settle`], for a command that is about to begin something of its own.
    pub(crate) fn recover(&self, screen: &Screen) -> Result<()> {
        let mut kept = 0;
        for recovery in self.settle()? {
            screen.line(notice(&recovery));
            kept += u32::from(matches!(recovery.outcome, Outcome::Kept { .. }));
        }
        if kept > 0 {
            bail!(
                "settings that an earlier haul changed could not be put back (above): mend that, or put them back by hand \
                 and delete the journal it names"
            );
        }
        Ok(())
    }
}

/// A directory for temporary files that is this user's and nobody else's.
fn makeshift() -> Option<PathBuf> {
    let own = fs::metadata("/proc/self").ok()?.uid();
    let path = std::env::temp_dir().join(format!("haul-{own}"));
    match fs::DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return None,
        _ => {}
    }
    let found = fs::symlink_metadata(&path).ok()?;
    (found.is_dir() && found.uid() == own && found.mode() & 0o777 == 0o700).then(|| path.join("journal"))
}

/// Puts back what killed hauls left, beside a command that goes on whatever comes of it.
pub(crate) fn settle_aside() {
    match State::open().and_then(|state| state.settle()) {
        Ok(recoveries) => recoveries.iter().for_each(|recovery| say(&notice(recovery))),
        Err(error) => say(&format!("haul: {}", with_causes(&error))),
    }
}

fn notice(recovery: &Recovery) -> String {
    format!("haul: left by an earlier haul: {recovery}")
}
