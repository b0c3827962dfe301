//! How many instructions each routine of a foreign instruction set executes, exactly, against the recorded
//! tables.
//!
//! Emulated time says nothing about a CPU, but the emulator can count, and a count repeats to the
//! instruction. So a routine that got a longer loop, a lost fast path or a tail taken once too often shows
//! here, whoever's machine it runs on.
//!
//! `scripts/cross.sh` runs this under QEMU with the plugin `scripts/insns.c`, which counts what is executed
//! between two marker instructions and appends the figure to the file that `HAUL_COPY_COUNTS` names. The
//! count is of the call, the routine and its return, and of nothing the compiler made. `scripts/cross.sh
//! --record` writes new tables.
#![cfg(any(target_arch = "riscv64", target_arch = "aarch64"))]

use core::arch::asm;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead as _, BufReader};

use haul_copy::{Isa, Routine, checksum, known};

const LENGTHS: [usize; 14] = [0, 1, 7, 15, 16, 24, 31, 32, 64, 100, 160, 256, 1024, 8192];
/// Source and destination, in bytes past a multiple of 64.
const OFFSETS: [(usize, usize); 6] = [(0, 0), (1, 0), (0, 1), (3, 5), (4, 0), (7, 7)];
/// The same where there is no destination.
const SOURCES: [(usize, usize); 3] = [(0, 0), (1, 0), (4, 0)];

#[cfg(target_arch = "riscv64")]
const RECORDED: (&str, &str) = ("riscv64", include_str!("counts/riscv64.txt"));
#[cfg(target_arch = "aarch64")]
const RECORDED: (&str, &str) = ("aarch64", include_str!("counts/aarch64.txt"));

/// What is not counted, and why; the tables say it too. QEMU 7.2 knows no MOPS, and the later ones that distributions build
/// static take no plugins. Nor is there a loop to guard: each of the three is one instruction in the count, whatever the length.
#[cfg(target_arch = "aarch64")]
const NOT_COUNTED: &[(&str, &str)] =
    &[("mops", "six instructions at any length, of which three copy; no emulator both has them and counts")];
#[cfg(target_arch = "riscv64")]
const NOT_COUNTED: &[(&str, &str)] = &[];

/// What is counted.
#[derive(Clone, Copy)]
struct Subject {
    kind: &'static str,
    name: &'static str,
    code: *const (),
}

impl Subject {
    fn copy(routine: Routine) -> Self {
        Self { kind: "copy", name: routine.name(), code: routine.address() }
    }

    fn offsets(self) -> &'static [(usize, usize)] {
        if self.kind == "sum" { &SOURCES } else { &OFFSETS }
    }

    /// All in assembly that there are, which have to run here but for [`NOT_COUNTED`].
    fn all() -> Vec<Self> {
        let copies = known().filter(|known| known.isa() != Isa::Portable && !not_counted(known.name()));
        let copies = copies.map(|known| {
            Self::copy(known.routine().unwrap_or_else(|| panic!("{known:?} does not run here")))
        });
        let sums = checksum::known().filter(|known| known.isa() != Isa::Portable);
        let sums = sums.map(|known| known.routine().unwrap_or_else(|| panic!("{known:?} does not run here")));
        let sums = sums.flat_map(|sum| {
            let (both, alone) = (sum.copy_address(), sum.sum_address());
            [
                Self { kind: "copy+sum", name: sum.name(), code: both },
                Self { kind: "sum", name: sum.name(), code: alone },
            ]
        });
        copies.chain(sums).collect()
    }
}

fn not_counted(name: &str) -> bool {
    NOT_COUNTED.iter().any(|(this, _)| *this == name)
}

struct Counter {
    counts: BufReader<File>,
    source: Vec<u8>,
    destination: Vec<u8>,
}

impl Counter {
    fn new() -> Self {
        let path = std::env::var_os("HAUL_COPY_COUNTS").expect(
            "HAUL_COPY_COUNTS names no file: this runs under the counting plugin, see scripts/cross.sh",
        );
        let counts = BufReader::new(File::open(path).expect("the plugin made its file"));
        Self { counts, source: vec![1; 8192 + 256], destination: vec![0; 8192 + 256] }
    }

    /// The instructions of one pass over `len` bytes between these offsets past a multiple of 64.
    fn count(&mut self, subject: Subject, len: usize, from: usize, to: usize) -> u64 {
        let start = self.source.as_ptr().align_offset(64) + from;
        let source = self.source[start..start + len].as_ptr().expose_provenance();
        let start = self.destination.as_ptr().align_offset(64) + to;
        let destination = self.destination[start..start + len].as_mut_ptr().expose_provenance();
        let arguments = if subject.kind == "sum" { [source, len, 0] } else { [destination, source, len] };
        // SAFETY: both slices have `len` bytes; a routine that was to be had may run here.
        let left = unsafe { marked(subject.code, arguments) };
        assert_eq!(left, 0);
        let mut line = String::new();
        self.counts.read_line(&mut line).expect("the plugin's file can be read");
        line.trim().parse().expect("the plugin wrote the count of this span")
    }
}

/// Calls a routine between the two markers.
///
/// # Safety
///
/// `code` is a routine of this crate, and the arguments are what it may be called with.
unsafe fn marked(code: *const (), [first, second, third]: [usize; 3]) -> usize {
    let left;
    #[cfg(target_arch = "riscv64")]
    // SAFETY: a call by the standard convention, with what the caller says is right.
    unsafe {
        asm!(
            "slti x0, x0, 0x7a0",
            "jalr ra, 0({code})",
            "slti x0, x0, 0x7a1",
            code = in(reg) code,
            inlateout("a0") first => left,
            in("a1") second,
            in("a2") third,
            clobber_abi("C"),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a call by the standard convention, with what the caller says is right.
    unsafe {
        asm!(
            "hint #0x68",
            "blr {code}",
            "hint #0x69",
            code = in(reg) code,
            inlateout("x0") first => left,
            in("x1") second,
            in("x2") third,
            clobber_abi("C"),
        );
    }
    left
}

fn table(counter: &mut Counter) -> String {
    let mut table = format!(
        "# Instructions executed by a call, measured by tests/counts.rs (scripts/cross.sh --record writes this).\n\
         # src, dst: bytes past a multiple of 64. The columns are lengths. RVV at VLEN = 256.\n\
         {:<10}{:<14}{:>4}{:>4} ",
        "", "routine", "src", "dst"
    );
    for len in LENGTHS {
        write!(table, "{len:>7}").unwrap();
    }
    table.push('\n');
    for (name, reason) in NOT_COUNTED {
        writeln!(table, "# not counted: {name} ({reason})").unwrap();
    }
    for subject in Subject::all() {
        for &(from, to) in subject.offsets() {
            write!(table, "{:<10}{:<14}{from:>4}{to:>4} ", subject.kind, subject.name).unwrap();
            for len in LENGTHS {
                write!(table, "{:>7}", counter.count(subject, len, from, to)).unwrap();
            }
            table.push('\n');
        }
    }
    table
}

#[test]
#[ignore = "needs the counting emulator: scripts/cross.sh"]
fn counts_are_as_recorded() {
    let mut counter = Counter::new();
    let table = table(&mut counter);
    assert_eq!(table, self::table(&mut counter), "a count that does not repeat");
    if let Some(folder) = std::env::var_os("HAUL_COPY_COUNTS_RECORD") {
        let path = std::path::Path::new(&folder).join(RECORDED.0).with_extension("txt");
        std::fs::write(&path, &table).expect("the folder of the tables can be written");
        return;
    }
    let (mut changed, mut lines, mut recorded) = (String::new(), table.lines(), RECORDED.1.lines());
    loop {
        let (new, old) = (lines.next(), recorded.next());
        if new.is_none() && old.is_none() {
            break;
        }
        if new != old {
            writeln!(changed, "- {}\n+ {}", old.unwrap_or_default(), new.unwrap_or_default()).unwrap();
        }
    }
    assert!(
        changed.is_empty(),
        "executed instructions have changed (- recorded, + now); if that is meant, record them with \
         scripts/cross.sh --record and say so in the changelog:\n{changed}"
    );
}

/// What the 2021 design is for, and the bound that the project set it.
#[cfg(target_arch = "riscv64")]
#[test]
#[ignore = "needs the counting emulator: scripts/cross.sh"]
fn merging_executes_at_most_a_fifth_of_the_byte_loop() {
    let [merge, bytes] = ["ld-shift", "lb"].map(|name| Subject::copy(Routine::by_name(name).unwrap()));
    let mut counter = Counter::new();
    let mut worst: f64 = 0.0;
    for from in 0..8 {
        for to in (0..8).filter(|to| *to != from) {
            let [merged, plain] = [merge, bytes].map(|subject| counter.count(subject, 8192, from, to));
            assert!(5 * merged <= plain, "source {from}, destination {to}: {merged} against {plain}");
            #[expect(clippy::cast_precision_loss, reason = "tens of thousands")]
            let ratio = merged as f64 / plain as f64;
            worst = worst.max(ratio);
        }
    }
    println!("ld-shift / lb, 8 KiB, misaligned source: at most {worst:.4} of the instructions");
}
