//! A file whose pages are in the page cache: what a cached read copies from.
//!
//! Reading such a file is one copy from the kernel's memory to the user's (`copy_page_to_iter`, `lib/iov_iter.c`) and the way
//! there, which is why it was the classic test of a kernel's copy routines. Whether the pages are there is asked of the kernel
//! and not assumed: of a file that was just read, some may be gone again.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use haul_stats::ByteCount;

use crate::error::{HostError, Named as _, Result};
use crate::signal::Stop;
use crate::sys::{self, Block};

/// The file.
#[derive(Debug)]
pub struct CachedFile {
    file: File,
    length: ByteCount,
    name: String,
    /// Whether nobody else has it.
    own: bool,
}

/// How much of a range of a file is in the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cached {
    /// Pages that are there.
    pub pages: u64,
    /// Pages of the range.
    pub of: u64,
    /// The call that was asked.
    pub source: &'static str,
}

impl Cached {
    /// Whether all of it is.
    #[must_use]
    pub fn is_whole(self) -> bool {
        self.pages >= self.of
    }
}

impl CachedFile {
    /// A regular file that is there, to be read.
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let file = opened(path, &name)?;
        let no = |wanted| Err(HostError::Invalid { text: name.clone(), wanted });
        match Kind::of(&file).named("look at", || name.clone())? {
            Kind::Stored(0) => no("a file with bytes in it: give a longer one"),
            Kind::Stored(length) => Ok(Self { length: ByteCount(length), name, file, own: false }),
            Kind::Made => {
                no("a file with cached pages, because the kernel makes its bytes when they are read: \
                 use --source device")
            }
            Kind::Character => no("a regular file but a character device: use --source device"),
            Kind::Other(wanted) => no(wanted),
        }
    }

    /// A file in memory of so many bytes, no eight of which are like the next. Nobody else has it, so it may be written to.
    ///
    /// # Errors
    /// Where the memory cannot be had, and where `stop` is requested first.
    pub fn memory(length: ByteCount, stop: &Stop) -> Result<Self> {
        /// Few calls, and no second copy of the whole file.
        const PIECE: usize = 1 << 20;
        let object = || format!("a file of {} in memory", length.about());
        let file = sys::memory_file(c"haul-cached").named("make", object)?;
        let mut piece = vec![0; PIECE];
        let mut at = 0_u64;
        while at < length.0 {
            go_on(stop, "a file in memory was filled")?;
            for (index, word) in (at / 8..).zip(piece.chunks_exact_mut(8)) {
                word.copy_from_slice(&word_at(index));
            }
            let left = usize::try_from(length.0 - at).unwrap_or(PIECE).min(PIECE);
            let place = usize::try_from(at).unwrap_or(usize::MAX);
            let mut block = Block::From(&piece[..left]);
            at += sys::plain(file.as_fd(), Some(place), &mut block).named("fill", object)? as u64;
        }
        Ok(Self { file, length, name: "haul's own file in memory".to_owned(), own: true })
    }

    /// How long it is now, where that is less than when it was opened.
    #[must_use]
    pub fn shortened(&self) -> Option<ByteCount> {
        let now = self.file.metadata().ok()?.len();
        (now < self.length.0).then_some(ByteCount(now))
    }

    /// How long it was when it was opened.
    #[must_use]
    pub fn length(&self) -> ByteCount {
        self.length
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is this process's own, and may be written to.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.own
    }

    /// The file itself.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Reads a range once, so that it is in the page cache.
    ///
    /// # Errors
    /// Where it cannot be read, and where `stop` is requested first.
    pub fn warm(&self, range: Range<u64>, stop: &Stop) -> Result<()> {
        let mut piece = vec![0_u8; 1 << 20];
        let mut at = range.start;
        while at < range.end {
            go_on(stop, "a file was read into the page cache")?;
            let place = usize::try_from(at).unwrap_or(usize::MAX);
            let mut block = Block::Into(&mut piece);
            match sys::plain(self.as_fd(), Some(place), &mut block).named("read", || self.name.clone())? {
                0 => break,
                read => at += read as u64,
            }
        }
        Ok(())
    }

    /// How much of a range is in the page cache: by `cachestat(2)`, before Linux 6.5 by `mincore(2)`.
    pub fn cached(&self, range: Range<u64>) -> Result<Cached> {
        let page = sys::page_size() as u64;
        let start = range.start / page * page;
        let length = range.end.saturating_sub(start);
        let of = length.div_ceil(page);
        if of == 0 {
            return Ok(Cached { pages: 0, of, source: "cachestat" });
        }
        let (asked, source) = match sys::cached_pages(&self.file, start, length) {
            // Also where a filter of system calls does not know it.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                (sys::resident_pages(&self.file, start, length), "mincore")
            }
            asked => (asked, "cachestat"),
        };
        let pages = asked.named("ask for the cached pages of", || self.name.clone())?;
        Ok(Cached { pages, of, source })
    }
}

impl AsFd for CachedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The word of so many of a file in memory: a counter, spread over its bits.
fn word_at(index: u64) -> [u8; 8] {
    index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_ne_bytes()
}

/// Opens what is read without being a file with pages: a character device, or a file of procfs, sysfs and their like, whose
/// bytes the kernel makes when they are read.
pub fn open_device(path: &Path) -> Result<File> {
    let name = path.display().to_string();
    let file = opened(path, &name)?;
    let wanted = match Kind::of(&file).named("look at", || name.clone())? {
        Kind::Character | Kind::Made => return Ok(file),
        Kind::Stored(0) => {
            "a character device or a file of procfs or sysfs but an empty file: give one with bytes in it"
        }
        Kind::Stored(_) => {
            "a character device or a file of procfs or sysfs but a file with pages: use --source file"
        }
        Kind::Other(wanted) => wanted,
    };
    Err(HostError::Invalid { text: name, wanted })
}

/// Opened without a wait: a FIFO has nobody who writes to it, and a device may have nothing to give.
fn opened(path: &Path, name: &str) -> Result<File> {
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path);
    opened.map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::NotFound => Some("give the name of a file that is there, or none for one in memory"),
            io::ErrorKind::PermissionDenied => Some("give one that this user may read, or none for one in memory"),
            _ if error.raw_os_error() == Some(libc::ENXIO) => {
                Some("a socket, or a device that is not there, is not read by name: --source unix makes a pair of its own")
            }
            _ => None,
        };
        let error = HostError::os("open", name, error);
        if let Some(hint) = hint { error.with_hint(hint) } else { error }
    })
}

/// What a name stands for, as far as it matters to a cached read. Each kind is one that exactly one source reads, or none does:
/// what one refuses another takes, or nobody recommends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A regular file of so many bytes, with pages.
    Stored(u64),
    /// A regular file whose bytes the kernel makes when they are read.
    Made,
    Character,
    /// Read by no source, and what to do instead.
    Other(&'static str),
}

impl Kind {
    fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let kind = metadata.file_type();
        Ok(if kind.is_file() {
            // Of these a length is no promise: procfs says 0, sysfs a page.
            if MADE.contains(&sys::file_system(file)?) { Self::Made } else { Self::Stored(metadata.len()) }
        } else if kind.is_char_device() {
            Self::Character
        } else if kind.is_dir() {
            Self::Other("a file but a directory: name a file in it")
        } else if kind.is_fifo() {
            Self::Other("a file but a FIFO, which others write to: --source pipe makes a pipe of its own")
        } else if kind.is_block_device() {
            Self::Other("a file but a block device, which haul does not read: name a file on it")
        } else {
            Self::Other("a file that can be read: name a regular one")
        })
    }
}

/// File systems whose files have no pages (include/uapi/linux/magic.h): proc, sysfs, debugfs, tracefs, securityfs, configfs,
/// cgroup, cgroup2, bpf, pstore, efivarfs.
const MADE: [u32; 11] = [
    0x9fa0,
    0x6265_6572,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0x6265_6570,
    0x0027_e0eb,
    0x6367_7270,
    0xcafe_4a11,
    0x6165_676c,
    0xde5e_81e4,
];

/// Whether to go on.
fn go_on(stop: &Stop, doing: &'static str) -> Result<()> {
    match stop.requested() {
        Some(_) => Err(HostError::Stopped { doing }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_memory_is_cached_and_no_two_words_of_it_are_alike() {
        let file = CachedFile::memory(ByteCount(1_300_000), &Stop::never().expect("stop")).expect("memory");
        assert!(file.is_own() && file.length() == ByteCount(1_300_000));
        let cached = file.cached(0..1_300_000).expect("asked");
        assert!(
            cached.is_whole() && cached.of == 1_300_000_u64.div_ceil(sys::page_size() as u64),
            "{cached:?}"
        );
        let mut bytes = vec![0; 1_300_000];
        let read = sys::plain(file.as_fd(), Some(0), &mut Block::Into(&mut bytes));
        assert_eq!(read.expect("pread"), bytes.len());
        let words: std::collections::BTreeSet<&[u8]> = bytes.chunks_exact(8).collect();
        assert_eq!(words.len(), 1_300_000 / 8);
    }

    #[test]
    fn both_calls_count_the_same_pages_of_a_range() {
        let page = sys::page_size();
        // A file with holes: the page cache of a file in memory holds what was written.
        let file = sys::memory_file(c"holes").expect("memory");
        file.set_len(8 * page as u64).expect("length");
        for at in [1, 2, 6] {
            sys::plain(file.as_fd(), Some(at * page), &mut Block::From(&[1])).expect("pwrite");
        }
        let file =
            CachedFile { file, length: ByteCount(8 * page as u64), name: "holes".to_owned(), own: true };
        let bytes = |pages: u64| pages * page as u64;
        for (range, pages, of) in [(0..8, 3, 8), (1..3, 2, 2), (3..6, 0, 3), (6..8, 1, 2)] {
            let counted = file.cached(bytes(range.start)..bytes(range.end)).expect("asked");
            assert_eq!((counted.pages, counted.of), (pages, of), "{range:?}");
            let length = usize::try_from(bytes(range.end - range.start)).expect("small");
            let by_mincore = sys::resident_pages(&file.file, bytes(range.start), length).expect("mincore");
            assert_eq!(by_mincore, pages, "{range:?}");
            assert_eq!(counted.is_whole(), pages == of);
        }
        // From the middle of a page to the middle of another: both pages count.
        assert_eq!(file.cached(bytes(1) + 7..bytes(2) + 7).expect("asked").pages, 2);
    }

    #[test]
    fn what_was_dropped_is_not_cached_and_is_after_it_was_read() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
        let path = directory.path().join("cold");
        std::fs::write(&path, vec![7; 300_000]).expect("write");
        let file = CachedFile::open(&path).expect("open");
        file.file().sync_all().expect("sync");
        sys::forget(&file.file).expect("fadvise");
        let cold = file.cached(0..300_000).expect("asked");
        assert!(!cold.is_whole(), "{cold:?}: this test wants a disk file system, not tmpfs");
        file.warm(0..300_000, &Stop::never().expect("stop")).expect("warm");
        assert!(file.cached(0..300_000).expect("asked").is_whole());
        assert!(!file.is_own());
    }

    #[test]
    fn every_kind_of_file_is_read_by_one_source_or_told_what_to_do_instead() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("full"), [7; 100]).expect("write");
        std::fs::write(at("empty"), []).expect("write");
        let made = std::process::Command::new("mkfifo").arg(at("fifo")).status().expect("mkfifo");
        assert!(made.success());
        let _bound = std::os::unix::net::UnixListener::bind(at("socket")).expect("bind");
        let block = std::fs::read_dir("/dev").expect("dev").filter_map(|entry| Some(entry.ok()?.path()));
        let block =
            block.into_iter().find(|path| path.metadata().is_ok_and(|it| it.file_type().is_block_device()));
        // As a file, as a device: where one says no, the other says yes or neither is recommended.
        let mut cases = vec![
            (at("full"), None, Some("use --source file")),
            (at("empty"), Some("give a longer one"), Some("give one with bytes in it")),
            (at("fifo"), Some("--source pipe makes"), Some("--source pipe makes")),
            (at("socket"), Some("--source unix makes"), Some("--source unix makes")),
            (directory.path().to_owned(), Some("name a file in it"), Some("name a file in it")),
            ("/proc/self/status".into(), Some("use --source device"), None),
            ("/sys/devices/system/cpu/online".into(), Some("use --source device"), None),
            ("/dev/zero".into(), Some("use --source device"), None),
            ("/nowhere/file".into(), Some("that is there"), Some("that is there")),
        ];
        // Containers have none, and not every user may open one.
        if let Some(block) = block.filter(|path| File::open(path).is_ok()) {
            cases.push((block, Some("name a file on it"), Some("name a file on it")));
        }
        for (path, as_file, as_device) in cases {
            let results = [CachedFile::open(&path).map(drop), open_device(&path).map(drop)];
            let texts = results.map(|result| result.err().map(|error| error.to_string()));
            for (text, wanted) in texts.iter().zip([as_file, as_device]) {
                let right = match (text, wanted) {
                    (Some(text), Some(wanted)) => {
                        text.contains(wanted) && text.contains(&path.display().to_string())
                    }
                    (None, None) => true,
                    _ => false,
                };
                assert!(right, "{}: {text:?}, and wanted is {wanted:?}", path.display());
            }
            let sends = |text: &Option<String>, to: &str| text.as_ref().is_some_and(|text| text.contains(to));
            assert!(!(sends(&texts[0], "--source device") && texts[1].is_some()), "{texts:?}");
            assert!(!(sends(&texts[1], "--source file") && texts[0].is_some()), "{texts:?}");
        }
    }

    #[test]
    fn a_file_that_got_shorter_says_how_long_it_is_now() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
        let path = directory.path().join("file");
        std::fs::write(&path, [7; 1000]).expect("write");
        let file = CachedFile::open(&path).expect("open");
        assert_eq!(file.shortened(), None);
        let other = OpenOptions::new().write(true).open(&path).expect("open");
        other.set_len(2000).expect("longer");
        assert_eq!(file.shortened(), None);
        other.set_len(10).expect("shorter");
        assert_eq!(file.shortened(), Some(ByteCount(10)));
    }

    #[test]
    fn what_takes_long_ends_at_the_request_to_stop() {
        let stop = Stop::never().expect("stop");
        let file = CachedFile::memory(ByteCount(4096), &stop).expect("memory");
        stop.request(crate::signal::Signal::Int);
        for stopped in [CachedFile::memory(ByteCount(1 << 50), &stop).map(drop), file.warm(0..4096, &stop)] {
            assert!(matches!(stopped, Err(HostError::Stopped { .. })), "{stopped:?}");
        }
    }
}
