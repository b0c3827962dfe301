//! Files that are truncated while they are mapped: case I1.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::FromRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};

use haul_copy::{Error, Handler, MappedFile};

const MIB: u64 = 1 << 20;

fn content(len: u64) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(at % 251).unwrap() + 1).collect()
}

/// A file of one MiB on the disk's file system, in memory, and of huge pages.
fn disk() -> File {
    let mut file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.write_all(&content(MIB)).unwrap();
    file
}

fn in_memory(flags: libc::c_uint) -> File {
    // SAFETY: the name is a C string.
    let descriptor = unsafe { libc::memfd_create(c"haul-copy-test".as_ptr(), flags | libc::MFD_CLOEXEC) };
    assert!(descriptor >= 0, "memfd_create: {}", std::io::Error::last_os_error());
    // SAFETY: it was just opened, and is nobody else's.
    unsafe { File::from_raw_fd(descriptor) }
}

fn tmpfs() -> File {
    let mut file = in_memory(0);
    file.write_all(&content(MIB)).unwrap();
    file
}

/// A length as an index: these files are small.
fn size(len: u64) -> usize {
    usize::try_from(len).unwrap()
}

fn truncated_under_a_view(file: &File, view: &MappedFile, page: u64) {
    let all = content(MIB);
    assert_eq!(view.len() as u64, MIB);
    let mut into = vec![0; all.len()];
    assert_eq!(view.read_at(0, &mut into).unwrap(), all.len());
    assert!(into == all);
    // Page 2 of a file that has only its first one any more.
    file.set_len(page).unwrap();
    let mut two = vec![9; 100];
    let error = view.read_at(page, &mut two).unwrap_err();
    assert!(matches!(error, Error::Vanished { offset, read: 0 } if offset == page), "{error}");
    assert!(error.to_string().contains("truncated"), "{error}");
    assert!(two.iter().all(|&byte| byte == 0), "nothing of what was in the buffer is left");
    // A read that begins before: what is there was read.
    into.fill(9);
    let error = view.read_at(10, &mut into).unwrap_err();
    let kept = size(page) - 10;
    assert!(matches!(error, Error::Vanished { offset, read } if offset == page && read == kept), "{error}");
    assert!(into[..kept] == all[10..10 + kept] && into[kept..].iter().all(|&byte| byte == 0));
    // What is left can be read as before.
    assert_eq!(view.read_at(page - 5, &mut two[..5]).unwrap(), 5);
    // And it may come back.
    file.set_len(MIB).unwrap();
    assert_eq!(view.read_at(page, &mut two).unwrap(), 100);
}

#[test]
fn a_shared_mapping_of_a_file_on_disk() {
    let file = disk();
    truncated_under_a_view(&file, &MappedFile::shared(&file).unwrap(), 4096);
}

/// A cure that was proposed, and is none: a private mapping faults all the same.
#[test]
fn a_private_mapping_of_a_file_on_disk() {
    let file = disk();
    truncated_under_a_view(&file, &MappedFile::private(&file).unwrap(), 4096);
}

#[test]
fn mappings_of_a_file_in_memory() {
    let file = tmpfs();
    truncated_under_a_view(&file, &MappedFile::shared(&file).unwrap(), 4096);
    let file = tmpfs();
    truncated_under_a_view(&file, &MappedFile::private(&file).unwrap(), 4096);
}

/// Wants two huge pages: of those reserved, or reserved for the test by whoever may.
#[test]
fn a_mapping_of_huge_pages() {
    const RESERVED: &str = "/proc/sys/vm/nr_hugepages";
    let count = || -> u64 { std::fs::read_to_string(RESERVED).unwrap().trim().parse().unwrap() };
    let before = count();
    std::fs::write(RESERVED, (before + 2).to_string())
        .unwrap_or_else(|error| panic!("this test reserves two huge pages, as root: {RESERVED}: {error}"));
    let outcome = std::panic::catch_unwind(|| {
        assert!(count() >= before + 2, "the kernel has no two huge pages to spare: {RESERVED}");
        let file = in_memory(libc::MFD_HUGETLB | libc::MFD_HUGE_2MB);
        file.set_len(4 * MIB).unwrap();
        let view = MappedFile::shared(&file).unwrap();
        let mut into = vec![7; size(3 * MIB)];
        assert_eq!(view.read_at(MIB / 2, &mut into).unwrap(), into.len());
        file.set_len(2 * MIB).unwrap();
        let error = view.read_at(MIB / 2, &mut into).unwrap_err();
        let kept = size(2 * MIB - MIB / 2);
        assert!(
            matches!(error, Error::Vanished { offset, read } if offset == 2 * MIB && read == kept),
            "{error}"
        );
    });
    std::fs::write(RESERVED, before.to_string()).unwrap();
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

/// Tells another thread to stop, also where an assertion fails: the scope waits for it.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One thread truncates and restores, others read: every read is right or says where it ended.
#[test]
fn a_file_that_is_truncated_all_the_time() {
    let (file, all, done) = (tmpfs(), content(MIB), AtomicBool::new(false));
    let view = MappedFile::shared(&file).unwrap();
    let handler = Handler::install().unwrap();
    let (vanished, whole) = std::thread::scope(|scope| {
        let _stop = Stop(&done);
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                file.set_len(4096).unwrap();
                std::thread::yield_now();
                file.set_len(MIB).unwrap();
                std::thread::yield_now();
            }
        });
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let thread = handler.thread().unwrap();
                    let (mut into, mut vanished, mut whole) = (vec![0; size(MIB / 4)], 0, 0);
                    for turn in 0..4000_u64 {
                        let offset = turn * 977 % (MIB / 2);
                        let read = match view.read_on(&thread, offset, &mut into) {
                            Ok(read) => {
                                whole += 1;
                                read
                            }
                            Err(Error::Vanished { read, .. }) => {
                                vanished += 1;
                                read
                            }
                            Err(error) => panic!("{error}"),
                        };
                        // What was cut off reads as zeros when it is there again.
                        let from = &all[size(offset)..];
                        for (at, byte) in into[..read].iter().enumerate() {
                            assert!(*byte == from[at] || *byte == 0, "byte {at}");
                        }
                    }
                    (vanished, whole)
                })
            })
            .collect();
        let counts: Vec<(u32, u32)> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        counts.into_iter().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1))
    });
    println!("{vanished} reads ended early, {whole} did not");
    assert!(vanished > 0 && whole > 0, "{vanished} reads ended early, {whole} did not");
}

#[test]
fn the_ends_of_a_view() {
    let file = tmpfs();
    let view = MappedFile::shared(&file).unwrap();
    let mut into = [0; 10];
    assert_eq!(view.read_at(MIB - 4, &mut into).unwrap(), 4);
    assert_eq!(view.read_at(MIB, &mut into).unwrap(), 0);
    assert_eq!(view.read_at(5, &mut []).unwrap(), 0);
    for offset in [MIB + 1, u64::MAX] {
        let error = view.read_at(offset, &mut into).unwrap_err();
        assert!(matches!(error, Error::Bounds { len: MIB, .. }), "{error}");
    }
}

#[test]
fn an_empty_file_is_an_empty_view() {
    let file = in_memory(0);
    let view = MappedFile::shared(&file).unwrap();
    assert!(view.is_empty());
    assert_eq!(view.read_at(0, &mut [0; 4]).unwrap(), 0);
    assert!(matches!(view.read_at(1, &mut [0; 4]), Err(Error::Bounds { offset: 1, len: 0 })));
}

/// What can't be mapped says what was tried.
#[test]
fn what_is_no_regular_file_cannot_be_mapped() {
    for path in ["/", "/dev/zero"] {
        let error = MappedFile::shared(&File::open(path).unwrap()).unwrap_err();
        assert!(error.to_string().starts_with("cannot map what is no regular file: "), "{path}: {error}");
    }
}

/// The one that would otherwise die without a word.
#[test]
fn a_thread_that_blocks_the_signal_gets_an_error() {
    let file = tmpfs();
    let view = MappedFile::shared(&file).unwrap();
    // SAFETY: all bits zero is the empty set.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: it is initialised.
    unsafe { libc::sigaddset(&raw mut set, libc::SIGBUS) };
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    let error = view.read_at(0, &mut [0; 4]).unwrap_err();
    assert!(matches!(error, Error::Blocked { signal: "SIGBUS" }), "{error}");
}
