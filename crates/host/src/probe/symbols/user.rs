//! The symbols of processes, by the files they have mapped.
//!
//! `/proc/PID/maps` says which file an address is in, and where. The file itself is opened through `/proc/PID/map_files`, which is the very file
//! that is mapped, whatever became of its name; where that is not allowed, through `/proc/PID/root`, which is the process's own
//! view (a container's). Its symbols are read by `blazesym` from ELF's tables, demangled; debugging information is not read. A process
//! that has ended leaves addresses only.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{Elf, Process, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};

use super::Found;

/// Reads symbols, and remembers what files it has read.
#[derive(Debug)]
pub(crate) struct UserSymbols {
    symbolizer: Symbolizer,
    /// Of each process its mappings of code; `None` for one that cannot be looked at.
    processes: BTreeMap<u32, Option<Vec<Mapping>>>,
    /// The build ids of the files that were read, by their paths as the process has them.
    pub(crate) build_ids: BTreeMap<String, String>,
    /// Where each file can be opened, by device and inode.
    files: BTreeMap<(String, u64), Option<PathBuf>>,
    /// How many were looked for since it began.
    read: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    device: String,
    inode: u64,
    path: String,
}

/// The build ids of no more files are kept.
const BUILD_IDS: usize = 256;

const VDSO: &str = "[vdso]";

impl UserSymbols {
    pub(crate) fn new() -> Self {
        Self {
            symbolizer: Symbolizer::new(),
            processes: BTreeMap::new(),
            build_ids: BTreeMap::new(),
            files: BTreeMap::new(),
            read: 0,
        }
    }

    /// Forgets the mappings of processes, which change, and files that can no longer be opened where they were found; begins anew
    /// where so many files were read that their symbols take memory nobody asked for.
    pub(crate) fn refresh(&mut self) {
        /// A busy host has some ten programs and their libraries.
        const MOST_FILES: usize = 512;
        if self.read > MOST_FILES {
            *self = Self::new();
            return;
        }
        self.processes.clear();
        self.files.retain(|_, path| path.as_ref().is_some_and(|path| path.exists()));
    }

    /// Whether a process could still be looked at.
    pub(crate) fn knows(&mut self, pid: u32) -> bool {
        self.mappings(pid).is_some()
    }

    /// The symbols of addresses of a process, in their order.
    pub(crate) fn find(&mut self, pid: u32, addresses: &[u64]) -> Vec<Option<Found>> {
        let Some(mappings) = self.mappings(pid).map(<[Mapping]>::to_vec) else {
            return vec![None; addresses.len()];
        };
        let mut found = vec![None; addresses.len()];
        // By mapping, so that a file is asked once for all that is in it.
        let mut wanted: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (at, &address) in addresses.iter().enumerate() {
            if let Some(mapping) =
                mappings.iter().position(|mapping| (mapping.start..mapping.end).contains(&address))
            {
                wanted.entry(mapping).or_default().push(at);
            }
        }
        for (mapping, places) in wanted {
            let mapping = &mappings[mapping];
            let offsets: Vec<u64> =
                places.iter().map(|&at| addresses[at] - mapping.start + mapping.offset).collect();
            let names = self.names(pid, mapping, &offsets);
            for (at, symbol) in places.into_iter().zip(names) {
                found[at] = Some(Found { symbol, module: module_of(&mapping.path) });
            }
        }
        found
    }

    fn mappings(&mut self, pid: u32) -> Option<&[Mapping]> {
        let read = || fs::read_to_string(format!("/proc/{pid}/maps")).ok().map(|text| parse(&text));
        self.processes.entry(pid).or_insert_with(read).as_deref()
    }

    /// Symbols at offsets of a mapped file.
    fn names(&mut self, pid: u32, mapping: &Mapping, offsets: &[u64]) -> Vec<Option<String>> {
        let none = || vec![None; offsets.len()];
        let symbols = if mapping.path == VDSO {
            // The same for every process, so this one's own is read.
            let own = fs::read_to_string("/proc/self/maps").ok().map(|text| parse(&text)).unwrap_or_default();
            let Some(own) = own.into_iter().find(|own| own.path == VDSO) else { return none() };
            let addresses: Vec<u64> =
                offsets.iter().map(|offset| own.start + offset - mapping.offset).collect();
            let mut process = Process::new(blazesym::Pid::Slf);
            process.map_files = false;
            process.perf_map = false;
            self.symbolizer.symbolize(&Source::Process(process), Input::AbsAddr(&addresses))
        } else {
            let Some(path) = self.file(pid, mapping) else { return none() };
            self.symbolizer.symbolize(&Source::Elf(Elf::new(path)), Input::FileOffset(offsets))
        };
        let Ok(symbols) = symbols else { return none() };
        let name = |symbol: &Symbolized<'_>| symbol.as_sym().map(|symbol| symbol.name.to_string());
        let mut names: Vec<Option<String>> = symbols.iter().map(name).collect();
        names.resize(offsets.len(), None);
        names
    }

    /// Where the file behind a mapping can be opened.
    fn file(&mut self, pid: u32, mapping: &Mapping) -> Option<PathBuf> {
        let key = (mapping.device.clone(), mapping.inode);
        if let Some(known) = self.files.get(&key) {
            return known.clone();
        }
        let mapped = PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end));
        let named = Path::new(&format!("/proc/{pid}/root")).join(mapping.path.trim_start_matches('/'));
        let open = (mapping.inode != 0)
            .then(|| {
                [mapped, named].into_iter().find(|path| File::open(path).is_ok_and(|file| is_file(&file)))
            })
            .flatten();
        if let Some(path) = &open
            && self.build_ids.len() < BUILD_IDS
            && let Some(id) = File::open(path).ok().and_then(|file| build_id_in(&file))
        {
            self.build_ids.insert(mapping.path.clone(), id);
        }
        self.read += 1;
        self.files.insert(key, open.clone());
        open
    }
}

fn is_file(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The build id of an ELF file of 64 bits, by its segments of notes. `blazesym` has a function for it that takes any note of that
/// number, also a probe of systemtap's (0.2.7).
fn build_id_in(file: &File) -> Option<String> {
    const SEGMENT_OF_NOTES: u32 = 4;
    /// Notes are some hundred bytes, or with probes some ten thousand.
    const MOST: usize = 1 << 20;
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0).ok()?;
    header.starts_with(b"\x7fELF\x02").then_some(())?;
    let long = |bytes: &[u8], at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let short = |at: usize| Some(u64::from(u16::from_ne_bytes(header.get(at..at + 2)?.try_into().ok()?)));
    let (table, size, count) = (long(&header, 32)?, short(54)?, short(56)?);
    (0..count).find_map(|index| {
        let mut segment = [0; 56];
        file.read_exact_at(&mut segment, table.checked_add(index * size)?).ok()?;
        let kind = u32::from_ne_bytes(segment[..4].try_into().ok()?);
        (kind == SEGMENT_OF_NOTES).then_some(())?;
        let mut notes = vec![0; usize::try_from(long(&segment, 32)?).ok()?.min(MOST)];
        file.read_exact_at(&mut notes, long(&segment, 8)?).ok()?;
        build_id_of(&notes)
    })
}

/// The build id of the running kernel: the note of that kind in `/sys/kernel/notes`.
pub(crate) fn kernel_build_id() -> Option<String> {
    build_id_of(&fs::read("/sys/kernel/notes").ok()?)
}

/// `NT_GNU_BUILD_ID` among ELF notes: name size, description size, kind, each 4 bytes, then both, padded to 4.
fn build_id_of(mut notes: &[u8]) -> Option<String> {
    loop {
        let number = |at: usize| Some(u32::from_ne_bytes(notes.get(at..at + 4)?.try_into().ok()?));
        let (name, description) = (usize::try_from(number(0)?).ok()?, usize::try_from(number(4)?).ok()?);
        let kind = number(8)?;
        let start = 12_usize.checked_add(name.checked_next_multiple_of(4)?)?;
        let end = start.checked_add(description)?;
        if kind == 3 && notes.get(12..12 + name)? == b"GNU\0" {
            return notes.get(start..end).map(hex);
        }
        notes = notes.get(start.checked_add(description.checked_next_multiple_of(4)?)?..)?;
    }
}

/// What a mapping is called in a profile.
fn module_of(path: &str) -> String {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    match path {
        "" | "//anon" => "[anonymous]".to_owned(),
        path => path.rsplit('/').next().unwrap_or(path).to_owned(),
    }
}

/// The mappings of code: `start-end perms offset device inode path`, `proc_pid_maps(5)`.
fn parse(maps: &str) -> Vec<Mapping> {
    maps.lines().filter_map(mapping).collect()
}

fn mapping(line: &str) -> Option<Mapping> {
    let mut rest = line;
    let mut next = || {
        let trimmed = rest.trim_start_matches(' ');
        let (field, after) = trimmed.split_once(' ').unwrap_or((trimmed, ""));
        rest = after;
        field
    };
    let (range, modes, offset, device, inode) = (next(), next(), next(), next(), next());
    let (start, end) = range.split_once('-')?;
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
    modes.contains('x').then_some(())?;
    Some(Mapping {
        start: hexadecimal(start)?,
        end: hexadecimal(end)?,
        offset: hexadecimal(offset)?,
        device: device.to_owned(),
        inode: inode.parse().ok()?,
        path: rest.trim_start_matches(' ').to_owned(),
    })
}

/// The name of a process, or of a thread of the kernel.
pub(crate) fn command(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end_matches('\n').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn a_function_of_this_test() -> u64 {
        std::hint::black_box(7)
    }

    #[test]
    fn a_function_of_this_program_is_found_by_its_address_with_the_build_id_of_its_file() {
        let mut symbols = UserSymbols::new();
        let address = a_function_of_this_test as fn() -> u64 as usize as u64;
        let found = symbols.find(std::process::id(), &[address + 1, 8]);
        let first = found[0].clone().expect("mapped");
        assert!(
            first.symbol.as_deref().is_some_and(|name| name.contains("a_function_of_this_test")),
            "{first:?}"
        );
        assert!(first.module.starts_with("haul_host-"), "{first:?}");
        assert_eq!(found[1], None, "nothing is mapped there");
        let id = symbols.build_ids.values().next().map_or(0, String::len);
        assert!(symbols.build_ids.len() == 1 && (id == 40 || id == 32), "{:?}", symbols.build_ids);
    }

    #[test]
    fn a_function_of_the_kernels_own_page_has_a_name() {
        let maps = fs::read_to_string("/proc/self/maps").expect("maps");
        let vdso =
            parse(&maps).into_iter().find(|mapping| mapping.path == VDSO).expect("every process has one");
        let addresses: Vec<u64> = (vdso.start..vdso.end).step_by(16).collect();
        let found = UserSymbols::new().find(std::process::id(), &addresses);
        let named = |found: &Option<Found>| {
            found
                .as_ref()
                .and_then(|found| found.symbol.as_deref())
                .is_some_and(|name| name.contains("clock_gettime"))
        };
        assert!(found.iter().any(named), "{found:?}");
        assert!(found.iter().flatten().all(|found| found.module == VDSO));
    }

    #[test]
    fn a_process_that_has_ended_has_addresses_only() {
        let mut child = std::process::Command::new("true").spawn().expect("true");
        let pid = child.id();
        child.wait().expect("wait");
        let mut symbols = UserSymbols::new();
        assert!(!symbols.knows(pid));
        assert_eq!(symbols.find(pid, &[0x40_0000]), [None]);
    }

    #[test]
    fn mappings_of_code_are_read_and_named() {
        let text = "55e0c0a00000-55e0c0a10000 r--p 00000000 fe:00 1234                       /usr/bin/a b\n\
            55e0c0a10000-55e0c0a20000 r-xp 00010000 fe:00 1234                       /usr/bin/a b (deleted)\n\
            7f0000000000-7f0000001000 r-xp 00000000 00:00 0 \n\
            7ffd1b1f0000-7ffd1b1f2000 r-xp 00000000 00:00 0                          [vdso]\n\
            nonsense\n";
        let mappings = parse(text);
        let short: Vec<_> =
            mappings.iter().map(|map| (map.start, map.offset, module_of(&map.path))).collect();
        assert_eq!(
            short,
            [
                (0x55e0_c0a1_0000, 0x1_0000, "a b".to_owned()),
                (0x7f00_0000_0000, 0, "[anonymous]".to_owned()),
                (0x7ffd_1b1f_0000, 0, "[vdso]".to_owned()),
            ]
        );
    }

    #[test]
    fn the_build_id_is_found_among_other_notes_and_broken_ones_have_none() {
        let note = |kind: u32, name: &[u8], description: &[u8]| {
            let mut bytes = Vec::new();
            for number in
                [u32::try_from(name.len()).unwrap(), u32::try_from(description.len()).unwrap(), kind]
            {
                bytes.extend(number.to_ne_bytes());
            }
            for part in [name, description] {
                bytes.extend(part);
                bytes.resize(bytes.len().next_multiple_of(4), 0);
            }
            bytes
        };
        let mut notes = note(6, b"Xen\0", b"linux");
        // Systemtap's probes have the same number.
        notes.extend(note(3, b"stapsdt\0", b"probe"));
        notes.extend(note(3, b"GNU\0", &[0xab, 1, 2, 3]));
        assert_eq!(build_id_of(&notes).as_deref(), Some("ab010203"));
        for length in 0..notes.len() {
            assert_eq!(build_id_of(&notes[..length]), None, "{length}");
        }
        assert_eq!(build_id_of(&[0xff; 64]), None);
    }
}
