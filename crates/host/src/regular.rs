//! Regular files of the user's: opened at once, or refused.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Opens a regular file to read. A FIFO is not waited for, and what is no regular file is refused: a device may have no end.
///
/// # Errors
/// As opening it, and [`io::ErrorKind::InvalidInput`] where it is something else.
pub fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_regular_file_is_refused_and_not_waited_for() {
        for path in ["/dev/null", "/dev/zero", "/proc/self", "/"] {
            let error = open(Path::new(path)).expect_err(path);
            assert_eq!(
                (error.kind(), error.to_string().as_str()),
                (io::ErrorKind::InvalidInput, "it is not a regular file")
            );
        }
        assert_eq!(open(Path::new("/nowhere")).map(|_| ()).unwrap_err().kind(), io::ErrorKind::NotFound);
        let file = tempfile::NamedTempFile::new().unwrap();
        open(file.path()).unwrap();
    }
}
