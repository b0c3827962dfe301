//! The key: made at the server's first start, kept in a file that only its owner can read.
//!
//! A key given on the command line or in the environment wins over one in a file. A file that others can read is
//! refused, as ssh does: a key that everybody has keeps nobody out.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use haul_lab::topology::Target;
use haul_wire::{Key, Trust};
use rand::TryRng as _;

use crate::cli::{ClientTrust, KeyOptions};

/// A file that was named, or found, and has no key to give: a slip of whoever runs haul, exit code 2.
#[derive(Debug)]
pub(crate) struct NoKey(String);

impl fmt::Display for NoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoKey {}

/// The key a server uses, and where it came from.
pub(crate) struct ServerKey {
    pub(crate) key: Key,
    pub(crate) origin: Origin,
}

pub(crate) enum Origin {
    Given,
    Read(PathBuf),
    Made(PathBuf),
}

/// `$XDG_CONFIG_HOME/haul/key`, or `~/.config/haul/key`.
fn default_file() -> Result<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CONFIG_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".config")))
        .map(|config| config.join("haul").join("key"))
        .context("neither XDG_CONFIG_HOME nor HOME is set: name the key's file with --key-file")
}

fn given(options: &KeyOptions) -> Result<Option<Key>> {
    options.key.as_deref().map(|text| text.parse().context("--key (or HAUL_KEY)")).transpose()
}

fn read(path: &Path) -> Result<Option<Key>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let text = format!(
                "cannot open the key file {}: {error}: run as its owner, or name another with --key-file",
                path.display()
            );
            return Err(NoKey(text).into());
        }
    };
    let mode =
        file.metadata().with_context(|| format!("cannot inspect {}", path.display()))?.permissions().mode();
    if mode & 0o077 != 0 {
        let text = format!(
            "the key file {} can be read by others (mode {:o}): chmod 600 {0}",
            path.display(),
            mode & 0o777
        );
        return Err(NoKey(text).into());
    }
    let text =
        io::read_to_string(file).with_context(|| format!("cannot read the key file {}", path.display()))?;
    let key = text.trim().parse().with_context(|| format!("the key file {}", path.display()))?;
    Ok(Some(key))
}

/// The server's key: given, read, or made now.
pub(crate) fn of_server(options: &KeyOptions) -> Result<ServerKey> {
    if let Some(key) = given(options)? {
        return Ok(ServerKey { key, origin: Origin::Given });
    }
    let path = options.key_file.clone().map_or_else(default_file, Ok)?;
    if let Some(key) = read(&path)? {
        return Ok(ServerKey { key, origin: Origin::Read(path) });
    }
    let mut bytes = [0; 32];
    rand::rngs::SysRng.try_fill_bytes(&mut bytes).context("cannot read random bytes for a key")?;
    let key = Key::from_random(bytes);
    write(&path, &key).with_context(|| format!("cannot write the key file {}", path.display()))?;
    Ok(ServerKey { key, origin: Origin::Made(path) })
}

/// Creates the file with its final mode: it is never readable by others, not even for an instant.
fn write(path: &Path, key: &Key) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{}", key.reveal())?;
    file.sync_all()
}

/// How a client trusts the server of a target: one of this process has a key of its own, and no file is asked for it.
pub(crate) fn of_client_for(target: &Target, options: &ClientTrust) -> Result<Trust> {
    match target {
        Target::Remote { .. } => of_client(options),
        Target::Loopback | Target::Lab { .. } => {
            // A key that was given and is none is a slip, whether it is needed or not.
            given(&options.key)?;
            Ok(Trust::Open)
        }
    }
}

/// How a client trusts a server: by a key, or, where it says so or has none, openly.
fn of_client(options: &ClientTrust) -> Result<Trust> {
    if options.open {
        return Ok(Trust::Open);
    }
    if let Some(key) = given(&options.key)? {
        return Ok(Trust::Key(key));
    }
    if let Some(path) = &options.key.key_file {
        return match read(path)? {
            Some(key) => Ok(Trust::Key(key)),
            None => Err(NoKey(format!(
                "the key file {} does not exist: write the key into it that 'haul serve' printed at its first start, and \
                 chmod 600 it",
                path.display()
            ))
            .into()),
        };
    }
    Ok(match default_file().and_then(|path| read(&path))? {
        Some(key) => Trust::Key(key),
        None => Trust::Open,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(file: &Path) -> KeyOptions {
        KeyOptions { key: None, key_file: Some(file.to_owned()) }
    }

    #[test]
    fn a_key_is_made_once_and_read_afterwards() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("deep/key");
        let made = of_server(&options(&file)).expect("made");
        assert!(matches!(made.origin, Origin::Made(_)));
        assert_eq!(fs::metadata(&file).expect("metadata").permissions().mode() & 0o777, 0o600);
        let read = of_server(&options(&file)).expect("read");
        assert!(matches!(read.origin, Origin::Read(_)));
        assert_eq!(made.key.reveal(), read.key.reveal());
    }

    #[test]
    fn a_key_that_others_can_read_is_refused_with_the_remedy() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("key");
        of_server(&options(&file)).expect("made");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("chmod");
        let error = of_server(&options(&file)).map(|_| ()).expect_err("refused").to_string();
        assert!(error.contains("chmod 600"), "{error}");
    }

    #[test]
    fn a_missing_key_file_is_an_error_for_a_client_that_names_it() {
        let trust = ClientTrust { key: options(Path::new("/nonexistent/key")), open: false };
        let error = of_client(&trust).expect_err("refused");
        assert!(
            error.to_string().contains("does not exist") && error.to_string().contains("haul serve"),
            "{error}"
        );
        assert_eq!(crate::measure::exit_of(&error), 2);
    }

    #[test]
    fn a_key_that_is_none_is_refused_without_repeating_it() {
        let trust =
            ClientTrust { key: KeyOptions { key: Some("s3cret".to_owned()), key_file: None }, open: false };
        let error = format!("{:#}", of_client(&trust).expect_err("refused"));
        assert!(error.contains("--key") && !error.contains("s3cret"), "{error}");
    }
}
