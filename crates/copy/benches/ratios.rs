//! Ratios of routines, from passes that alternate in one process, against the bounds this crate is held to.
//!
//! ```text
//! cargo bench -p haul-copy --bench ratios                   some minutes, on a quiet machine
//! cargo bench -p haul-copy --bench ratios -- --quick        every cell once: that it runs; nothing is judged
//! cargo bench -p haul-copy --bench ratios -- --passes 101   more of them; 41 without
//! cargo bench -p haul-copy --bench ratios -- held-out       only sections with this word in their titles
//! ```
//!
//! Every pass times each rival once, in an order that goes round, so that what disturbs a pass disturbs all of them.
//! A cell is the median over passes of the ratio within a pass. Both buffers are written first (pages nobody wrote
//! are all one page), and lie in huge pages where the system gives them; addresses and lengths are opaque to the
//! compiler. A cell that misses its bound is measured again, twice, before it is called missed: on a shared machine
//! one in a hundred is off by some percent. Streaming stores are timed with the fence that ends them.
//!
//! Beside a cell that is missed by `auto` stands what could be had there: every routine of the crate, and where the length
//! is 256 bytes the bare loads and stores, each in the same passes as the other side. What `auto` goes by was chosen on the
//! sizes and offsets of the first sections; those of the held-out one chose nothing.

use std::arch::asm;
use std::fmt::{self, Write as _};
use std::process::ExitCode;
use std::time::Instant;

use haul_copy::{Handler, Peer, Routine, Thread};

const LARGEST: usize = 64 << 20;

/// Bytes of source and destination past a page, and what is between the two modulo a page otherwise.
const OFFSETS: &[(usize, usize)] = &[(0, 0), (0, 1), (1, 0), (3, 5), (5, 3), (8, 8), (0, 8), (17, 40)];
const APART: &[usize] = &[0, 2112];

const SIZES: &[usize] = &[
    64,
    96,
    128,
    200,
    256,
    384,
    512,
    640,
    800,
    1024,
    1536,
    2048,
    3072,
    4096,
    6144,
    8192,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
    2 << 20,
    4 << 20,
    8 << 20,
    16 << 20,
    32 << 20,
    LARGEST,
];

/// Of these sizes none chose a threshold.
const HELD_OUT: &[usize] = &[
    72, 110, 144, 180, 230, 300, 450, 576, 700, 900, 1100, 1400, 1700, 2222, 2600, 3333, 3800, 5000, 5555,
    7000, 10_000, 14_000, 20_000, 45_000, 100_000, 300_000, 3_000_000, 5_000_000,
];

/// A sample is this long or longer, and one copy at least: far above the clock's resolution of some 20 ns.
const SAMPLE_NS: f64 = 20_000.0;

/// Memory from a huge page's boundary on, written.
struct Buffer(*mut u8);

impl Buffer {
    fn new() -> Self {
        const HUGE: usize = 2 << 20;
        let len = LARGEST + 2 * HUGE;
        let (flags, both) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a null hint lets the kernel choose an address that nothing else uses. It stays until the process
        // ends.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, both, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        let start = start.wrapping_byte_add(start.addr().wrapping_neg() % HUGE);
        // SAFETY: advice about a part of the mapping.
        unsafe { libc::madvise(start, len - HUGE, libc::MADV_HUGEPAGE) };
        for at in 0..len - HUGE {
            // SAFETY: in the mapping.
            unsafe { start.cast::<u8>().wrapping_add(at).write(u8::try_from(at % 251).unwrap()) };
        }
        Self(start.cast())
    }
}

#[derive(Clone, Copy)]
enum Rival<'a> {
    Plain(Routine),
    Tolerant(Routine, &'a Thread<'a>),
    Peer(Peer),
    /// Loads and stores of 256 bytes and nothing else.
    #[cfg(target_arch = "x86_64")]
    Bare,
}

/// The least that a copy of 256 bytes by AVX-512 can be: it looks at no length and at no alignment.
///
/// # Safety
///
/// The CPU has AVX-512, and there are 256 bytes at both ends.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "sysv64" fn bare(dst: *mut u8, src: *const u8) {
    std::arch::naked_asm!(
        "vmovdqu64 zmm16, [rsi]",
        "vmovdqu64 zmm17, [rsi + 64]",
        "vmovdqu64 zmm18, [rsi + 128]",
        "vmovdqu64 zmm19, [rsi + 192]",
        "vmovdqu64 [rdi], zmm16",
        "vmovdqu64 [rdi + 64], zmm17",
        "vmovdqu64 [rdi + 128], zmm18",
        "vmovdqu64 [rdi + 192], zmm19",
        "ret",
    )
}

/// The same, and the compiler can't know; `black_box` would store and load it, which a copy of 256 bytes feels.
macro_rules! opaque {
    ($value:expr) => {{
        let mut value = $value;
        // SAFETY: no instruction at all.
        unsafe { asm!("/* {0} */", inout(reg) value, options(nostack, preserves_flags)) };
        value
    }};
}

impl Rival<'_> {
    /// Nanoseconds for a copy, from four times `times`.
    fn time(self, cell: &Cell, memory: &(Buffer, Buffer), times: u32) -> f64 {
        let src = memory.0.0.wrapping_add(cell.from).cast_const();
        let dst = memory.1.0.wrapping_add(cell.to);
        // Four to a turn, so that it matters little where the compiler puts the loop.
        macro_rules! repeat {
            ($copy:expr) => {
                for _ in 0..times {
                    $copy(opaque!(dst), opaque!(src), opaque!(cell.len));
                    $copy(opaque!(dst), opaque!(src), opaque!(cell.len));
                    $copy(opaque!(dst), opaque!(src), opaque!(cell.len));
                    $copy(opaque!(dst), opaque!(src), opaque!(cell.len));
                }
            };
        }
        let begin = Instant::now();
        match self {
            // SAFETY: the buffers have the largest length and some more, and nobody refers to them.
            Self::Plain(routine) => repeat!(|dst, src, len| unsafe { routine.copy(dst, src, len) }),
            Self::Tolerant(routine, thread) => repeat!(|dst, src, len| {
                // SAFETY: as above.
                let left = unsafe { thread.try_copy(routine, dst, src, len) };
                opaque!(left);
            }),
            // SAFETY: as above.
            Self::Peer(peer) => repeat!(|dst, src, len| unsafe { peer.copy(dst, src, len) }),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above, for the 256 bytes that it is only asked for; and `Self::others` asked for the CPU.
            Self::Bare => repeat!(|dst, src, _len| unsafe { bare(dst, src) }),
        }
        begin.elapsed().as_secs_f64() * 1e9 / f64::from(4 * times)
    }

    /// All that could stand in for `auto` here, but those that choose like it.
    fn others(cell: &Cell) -> Vec<Self> {
        let name = Routine::name;
        let fixed = Routine::all().filter(|routine| !name(*routine).starts_with("auto"));
        // Streaming stores leave a copy in memory; nobody would choose them below that.
        let fixed = fixed.filter(|routine| cell.len >= 1 << 20 || !name(*routine).ends_with("-nt"));
        #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut, reason = "nothing is added"))]
        let mut others: Vec<_> = fixed.map(Self::Plain).collect();
        #[cfg(target_arch = "x86_64")]
        if cell.len == 256 && Routine::by_name("avx512").is_some() {
            others.push(Self::Bare);
        }
        others
    }

    fn name(self) -> &'static str {
        match self {
            Self::Plain(routine) | Self::Tolerant(routine, _) => routine.name(),
            Self::Peer(peer) => peer.name(),
            #[cfg(target_arch = "x86_64")]
            Self::Bare => "bare loads and stores",
        }
    }
}

#[derive(Clone, Copy)]
struct Cell {
    len: usize,
    from: usize,
    to: usize,
}

impl Cell {
    fn all(sizes: &[usize]) -> Vec<Self> {
        let mut cells = Vec::new();
        for &len in sizes {
            for &apart in APART {
                for &(from, to) in OFFSETS {
                    cells.push(Self { len, from, to: to + apart });
                }
            }
        }
        cells
    }

    /// None of these decided anything about `auto`.
    fn held_out() -> Vec<Self> {
        let offsets = [(5, 0), (0, 33), (17, 33), (40, 56), (61, 2), (0, 1031), (33, 3005), (52, 3124)];
        let cells = |&len: &usize| offsets.map(|(from, to)| Self { len, from, to });
        HELD_OUT.iter().flat_map(cells).collect()
    }

    /// The ends are in different places of a line.
    fn misaligned(&self) -> bool {
        self.from % 64 != self.to % 64
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = match self.len {
            len if len >= 1 << 20 => format!("{} MiB", len >> 20),
            len if len >= 1 << 10 && len % 512 == 0 => format!("{} KiB", len as f64 / 1024.0),
            len => format!("{len} B"),
        };
        write!(f, "{len} {},{}", self.from, self.to)
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Nanoseconds of each rival's copies, pass by pass, in an order that goes round.
fn alternate(cell: &Cell, memory: &(Buffer, Buffer), rivals: &[Rival<'_>], passes: usize) -> Vec<Vec<f64>> {
    let times = |rival: &Rival<'_>| {
        let single = rival.time(cell, memory, 1).min(rival.time(cell, memory, 1));
        (1..=2000).rev().find(|&times| f64::from(4 * times) * single < SAMPLE_NS).unwrap_or(1)
    };
    let times: Vec<u32> = rivals.iter().map(times).collect();
    // Who comes after streaming stores would fetch from memory what they put there.
    let warm = rivals.len() > 2 && cell.len <= 1 << 20;
    let mut took = vec![Vec::new(); rivals.len()];
    // A copy of 64 MiB says as much in a few passes as a short one in many.
    for pass in 0..if cell.len >= 4 << 20 { passes.div_ceil(5) } else { passes } {
        for turn in 0..rivals.len() {
            let one = (pass + turn) % rivals.len();
            if warm {
                rivals[one].time(cell, memory, 1);
            }
            took[one].push(rivals[one].time(cell, memory, times[one]));
        }
    }
    took
}

/// The median over the passes of how many times as fast as `other` it was.
fn ratio(one: &[f64], other: &[f64]) -> f64 {
    median(one.iter().zip(other).map(|(one, other)| other / one).collect())
}

/// The speed of `one` in GB/s, and how many times as fast as `other` it is.
fn compare(
    cell: &Cell,
    memory: &(Buffer, Buffer),
    one: Rival<'_>,
    other: Rival<'_>,
    passes: usize,
) -> (f64, f64) {
    let took = alternate(cell, memory, &[one, other], passes);
    (cell.len as f64 / median(took[0].clone()), ratio(&took[0], &took[1]))
}

/// What `one` is missing in a cell, or isn't: itself and the best three of all there are, against `other`.
fn ceiling(
    cell: &Cell,
    memory: &(Buffer, Buffer),
    one: Rival<'_>,
    other: Rival<'_>,
    passes: usize,
) -> String {
    let mut rivals = vec![other, one];
    rivals.extend(Rival::others(cell));
    let took = alternate(cell, memory, &rivals, passes);
    let mut ranked: Vec<_> = rivals
        .iter()
        .zip(&took)
        .skip(2)
        .map(|(rival, took_it)| (ratio(took_it, &took[0]), rival.name()))
        .collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
    let best: Vec<_> = ranked.iter().take(3).map(|(ratio, name)| format!("{name} {ratio:.2}")).collect();
    format!("{cell}: {:.2}; best routines here: {}", ratio(&took[1], &took[0]), best.join(", "))
}

/// One bound: what is compared, where, and how fast it has to be.
struct Bound<'a> {
    title: &'static str,
    one: Rival<'a>,
    other: Rival<'a>,
    cells: Vec<Cell>,
    least: f64,
    /// Every cell for itself, or the median of all.
    every: bool,
    /// Whether what is missed is measured against all routines there are.
    against_all: bool,
}

fn judge(bound: &Bound<'_>, memory: &(Buffer, Buffer), passes: usize, quick: bool) -> bool {
    println!("\n{}", bound.title);
    let (mut ratios, mut missed, mut line) = (Vec::new(), 0, String::new());
    let (mut before, mut ceilings) = (0, Vec::new());
    for cell in &bound.cells {
        let (speed, mut ratio) = compare(cell, memory, bound.one, bound.other, passes);
        if ratio < bound.least && bound.every && !quick {
            let again = || compare(cell, memory, bound.one, bound.other, passes).1;
            ratio = median(vec![ratio, again(), again()]);
        }
        if cell.len != before && !line.is_empty() {
            println!("{line}");
            line.clear();
        }
        before = cell.len;
        let mark = if ratio < bound.least { "!" } else { "" };
        missed += usize::from(ratio < bound.least);
        if bound.against_all && (if quick { ceilings.is_empty() } else { ratio < bound.least }) {
            ceilings.push(ceiling(cell, memory, bound.one, bound.other, passes));
        }
        if line.is_empty() {
            line = format!("  {cell} ({speed:.1} GB/s):");
        }
        write!(line, " {ratio:.2}{mark}").expect("a string takes all");
        ratios.push(ratio);
    }
    println!("{line}");
    for line in ceilings {
        println!("    {line}");
    }
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let (middle, count) = (median(ratios), bound.cells.len());
    let met = if bound.every { missed == 0 } else { middle >= bound.least };
    println!(
        "{} {}: wanted {:.2} {}; median {middle:.2}, least {least:.2}, {missed} of {count} cells below",
        if quick {
            "not judged"
        } else if met {
            "met"
        } else {
            "MISSED"
        },
        bound.title,
        bound.least,
        if bound.every { "in every cell" } else { "in the median" },
    );
    met || quick
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let after = arguments.iter().position(|argument| argument == "--passes").map(|at| at + 1);
    let passes = after.and_then(|at| arguments[at].parse().ok()).unwrap_or(41);
    let passes = if quick { 1 } else { passes };
    let words = arguments.iter().enumerate().skip(1);
    let sections: Vec<_> = words.filter(|(at, word)| !word.starts_with("--") && Some(*at) != after).collect();
    let handler = Handler::install().expect("a handler");
    let thread = handler.thread().expect("a thread that blocks nothing");
    let memory = (Buffer::new(), Buffer::new());
    let auto = Routine::best();
    let libc = Rival::Peer(Peer::by_name("libc").expect("the C library is a peer"));
    println!("auto is {}, other is memcpy of the C library where nothing else is said", auto.name());
    println!(
        "columns: source and destination past a page, in the order of {OFFSETS:?}, then the destination 2112 on"
    );

    let page: &[usize] = &[1024, 1536, 2048, 3072, 4096, 6144, 8192];
    let misaligned = || Cell::all(page).into_iter().filter(Cell::misaligned).collect::<Vec<_>>();
    let mut bounds = vec![
        Bound {
            title: "auto at every size and offset",
            one: Rival::Plain(auto),
            other: libc,
            cells: Cell::all(SIZES),
            least: 0.98,
            every: true,
            against_all: true,
        },
        Bound {
            title: "auto at held-out sizes and offsets, none of which chose a threshold",
            one: Rival::Plain(auto),
            other: libc,
            cells: Cell::held_out(),
            least: 0.98,
            every: true,
            against_all: true,
        },
        Bound {
            title: "auto at 256 B",
            one: Rival::Plain(auto),
            other: libc,
            cells: Cell::all(&[256]),
            least: 1.2,
            every: true,
            against_all: true,
        },
        Bound {
            title: "auto at 1 to 8 KiB, misaligned",
            one: Rival::Plain(auto),
            other: libc,
            cells: misaligned(),
            least: 1.15,
            every: false,
            against_all: true,
        },
        Bound {
            title: "auto at 64 MiB",
            one: Rival::Plain(auto),
            other: libc,
            cells: Cell::all(&[LARGEST]),
            least: 1.4,
            every: true,
            against_all: true,
        },
        Bound {
            title: "the form that survives faults, against the plain one",
            one: Rival::Tolerant(auto, &thread),
            other: Rival::Plain(auto),
            cells: Cell::all(&[64, 256, 1024, 8192, 65536, 1 << 20]),
            least: 0.98,
            every: true,
            against_all: false,
        },
    ];
    if let (Some(int64), Some(movsq)) = (Routine::by_name("int64"), Routine::by_name("rep-movsq")) {
        let mut cells = misaligned();
        cells.retain(|cell| cell.from % 8 != cell.to % 8);
        bounds.push(Bound {
            title: "the copy of 2002 in 64-bit registers, against rep movsq, ends that differ modulo 8",
            one: Rival::Plain(int64),
            other: Rival::Plain(movsq),
            cells,
            least: 1.3,
            every: true,
            against_all: false,
        });
    }
    let wanted = |bound: &Bound<'_>| {
        sections.is_empty() || sections.iter().any(|(_, word)| bound.title.contains(word.as_str()))
    };
    let mut met = true;
    for bound in bounds.iter().filter(|bound| wanted(bound)) {
        met &= judge(bound, &memory, passes, quick);
    }
    if met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
