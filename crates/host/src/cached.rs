//! A file whose pages are in the page cache: what a cached read copies from.
//!
//! Reading such a file is one copy from the kernel's memory to the user's (`copy_page_to_iter`, `lib/iov_iter.c`) and the way
//! there, which is why it was the classic test of a kernel's copy routines. Whether the pages are there is asked of the kernel
//! and not assumed: of a file that was just read, some may be gone again.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use haul_stats::ByteCount;

use crate::error::{HostError, Named as _, Result};
use crate::sys;

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
        // A FIFO would wait here for somebody to write to it.
        let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        let file = opened.named("open", || name.clone())?;
        let metadata = file.metadata().named("look at", || name.clone())?;
        if !metadata.is_file() {
            return Err(HostError::Invalid {
                text: name,
                wanted: "a regular file, and only the pages of one are cached: use --source device for a character device",
            });
        }
        Ok(Self { length: ByteCount(metadata.len()), name, file, own: false })
    }

    /// A file in memory of so many bytes, no eight of which are like the next. Nobody else has it, so it may be written to.
    pub fn memory(length: ByteCount) -> Result<Self> {
        /// Few calls, and no second copy of the whole file.
        const PIECE: usize = 1 << 20;
        let object = || format!("a file of {length} in memory");
        let file = sys::memory_file(c"haul-cached").named("make", object)?;
        let mut piece = vec![0; PIECE];
        let mut at = 0_u64;
        while at < length.0 {
            for (index, word) in (at / 8..).zip(piece.chunks_exact_mut(8)) {
                word.copy_from_slice(&word_at(index));
            }
            let left = usize::try_from(length.0 - at).unwrap_or(PIECE).min(PIECE);
            let place = usize::try_from(at).unwrap_or(usize::MAX);
            at += sys::write_at(file.as_fd(), place, &piece[..left]).named("fill", object)? as u64;
        }
        Ok(Self { file, length, name: "haul's own file in memory".to_owned(), own: true })
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
    pub fn warm(&self, range: Range<u64>) -> Result<()> {
        let mut piece = vec![0_u8; 1 << 20];
        let mut at = range.start;
        while at < range.end {
            let place = usize::try_from(at).unwrap_or(usize::MAX);
            match sys::read_at(self.as_fd(), place, &mut piece).named("read", || self.name.clone())? {
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

/// Opens what is read without being a file with pages: a character device, or a file of procfs or sysfs, whose length is 0.
pub fn open_device(path: &Path) -> Result<File> {
    let name = || path.display().to_string();
    // Nothing here waits for a keyboard: a device that has nothing to give says so.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path);
    let file = opened.named("open", name)?;
    let metadata = file.metadata().named("look at", name)?;
    if metadata.file_type().is_char_device() || (metadata.is_file() && metadata.len() == 0) {
        return Ok(file);
    }
    let wanted = "a character device or a file of procfs: use --source file for a file with a length";
    Err(HostError::Invalid { text: name(), wanted })
}

/// Memory that can be taken without pushing others out, by the kernel's estimate (`MemAvailable`); `None` where there is none.
#[must_use]
pub fn memory_available() -> Option<ByteCount> {
    available(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn available(meminfo: &str) -> Option<ByteCount> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(ByteCount(kib.saturating_mul(1024)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_memory_is_cached_and_no_two_words_of_it_are_alike() {
        let file = CachedFile::memory(ByteCount(1_300_000)).expect("memory");
        assert!(file.is_own() && file.length() == ByteCount(1_300_000));
        let cached = file.cached(0..1_300_000).expect("asked");
        assert!(
            cached.is_whole() && cached.of == 1_300_000_u64.div_ceil(sys::page_size() as u64),
            "{cached:?}"
        );
        let mut bytes = vec![0; 1_300_000];
        assert_eq!(sys::read_at(file.as_fd(), 0, &mut bytes).expect("pread"), bytes.len());
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
            sys::write_at(file.as_fd(), at * page, &[1]).expect("pwrite");
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
        file.warm(0..300_000).expect("warm");
        assert!(file.cached(0..300_000).expect("asked").is_whole());
        assert!(!file.is_own());
    }

    #[test]
    fn what_cannot_be_read_so_is_refused_by_name() {
        for (path, wanted) in
            [("/proc/self", "regular file"), ("/dev/zero", "--source device"), ("/nowhere/file", "open")]
        {
            let error = CachedFile::open(Path::new(path)).expect_err("refused").to_string();
            assert!(error.contains(path) && error.contains(wanted), "{error}");
        }
        for (path, wanted) in
            [(env!("CARGO_MANIFEST_DIR"), "character device"), ("/proc/nonexistent", "open")]
        {
            let error = open_device(Path::new(path)).expect_err("refused").to_string();
            assert!(error.contains(path) && error.contains(wanted), "{error}");
        }
        open_device(Path::new("/dev/zero")).expect("a device");
        open_device(Path::new("/proc/self/maps")).expect("a file of procfs");
    }

    #[test]
    fn available_memory_is_read_where_it_is_told() {
        let told = "MemTotal:  100 kB\nMemFree: 1 kB\nMemAvailable:   42 kB\n";
        assert_eq!(available(told), Some(ByteCount(42 << 10)));
        for broken in ["", "MemAvailable: x kB", "MemAvailable: 4"] {
            assert_eq!(available(broken), None, "{broken}");
        }
        assert!(memory_available().is_some_and(|bytes| bytes.0 > 1 << 20));
    }
}
