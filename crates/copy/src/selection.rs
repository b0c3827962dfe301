//! Which routine to take, by measurement: a table for one CPU, read from text.
//!
//! ```text
//! haul-copy selection 1
//! cpu GenuineIntel 6 207 8
//! # class, from how many bytes on, routine
//! lines 0 avx512
//! lines 4096 rep-movsb
//! …
//! ```
//!
//! `haul copy --thresholds` writes such a table and [`Selection::parse`] reads it: without an allocator, in bounded memory,
//! whatever the text is. A table that was read can only name routines that may run here, so that it needs no second check.
//! Choosing is a look into three small tables, without a branch that depends on the addresses: the class by the trailing zeros of
//! their distance, where to begin by the number of bits of the length, and on from there while the next threshold is reached,
//! which thresholds that are powers of two never take twice.
//!
//! It does not ask what CPU this is (`core` cannot, on most of them): [`Selection::cpu`] says what the table was made on, and
//! the caller, who knows its own, compares.

use core::fmt;

use crate::routine::Routine;

/// The first line: what it is, and the version of the form.
const HEAD: &str = "haul-copy selection 1";

/// The most thresholds of one class: a table of more says little but the noise it was made in.
pub const MOST: usize = 16;

/// The longest text that is looked at. The largest table is some 3 KiB.
pub const LONGEST: usize = 16 << 10;

/// The longest name of a vendor.
const VENDOR: usize = 16;

/// A line of a cache, in bytes. What lies across two costs most on today's CPUs.
const LINE: usize = 64;

/// A word, in bytes: what the alignment of older CPUs counts in.
const WORD: usize = 8;

/// How source and destination lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Alignment {
    /// Both begin a line of 64 bytes.
    Lines,
    /// They agree modulo 64, and begin no line.
    Same,
    /// They agree modulo 8, not modulo 64.
    Words,
    /// The destination begins a line; they do not agree modulo 8.
    DstLine,
    /// None of these.
    Apart,
}

impl Alignment {
    /// All, in the order of a table.
    pub const ALL: [Self; 5] = [Self::Lines, Self::Same, Self::Words, Self::DstLine, Self::Apart];

    /// How two addresses lie.
    #[inline]
    #[must_use]
    pub fn of(src: usize, dst: usize) -> Self {
        BY_ZEROS[zeros(src, dst)][usize::from(dst.is_multiple_of(LINE))]
    }

    /// The name in a table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lines => "lines",
            Self::Same => "same",
            Self::Words => "words",
            Self::DstLine => "dst-line",
            Self::Apart => "apart",
        }
    }

    /// Bytes past a line, of source and destination, that stand for the class where it is measured.
    #[must_use]
    pub fn example(self) -> (usize, usize) {
        match self {
            Self::Lines => (0, 0),
            Self::Same => (8, 8),
            Self::Words => (0, 8),
            Self::DstLine => (1, 0),
            Self::Apart => (3, 5),
        }
    }

    fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }
}

/// Trailing zeros of the distance of two addresses, those of a line at most.
#[inline]
fn zeros(src: usize, dst: usize) -> usize {
    (dst.wrapping_sub(src) | LINE).trailing_zeros() as usize
}

/// The class by these zeros, and by whether the destination begins a line.
const BY_ZEROS: [[Alignment; 2]; LINE.trailing_zeros() as usize + 1] = {
    let mut by = [[Alignment::Apart, Alignment::DstLine]; LINE.trailing_zeros() as usize + 1];
    let mut zeros = WORD.trailing_zeros() as usize;
    while zeros < LINE.trailing_zeros() as usize {
        by[zeros] = [Alignment::Words; 2];
        zeros += 1;
    }
    by[zeros] = [Alignment::Same, Alignment::Lines];
    by
};

/// What CPU a table was made on: x86 vendor, family, model and stepping; Arm implementer, part, variant and revision; RISC-V
/// vendor, architecture and implementation numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Cpu {
    vendor: [u8; VENDOR],
    numbers: [u64; 3],
}

impl Cpu {
    /// `None` where the vendor is empty, longer than 16 bytes, or anything but printable ASCII without blanks.
    #[must_use]
    pub fn new(vendor: &str, numbers: [u64; 3]) -> Option<Self> {
        let fits = !vendor.is_empty()
            && vendor.len() <= VENDOR
            && vendor.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then(|| {
            let mut kept = [0; VENDOR];
            for (to, from) in kept.iter_mut().zip(vendor.bytes()) {
                *to = from;
            }
            Self { vendor: kept, numbers }
        })
    }

    /// The vendor.
    #[must_use]
    pub fn vendor(&self) -> &str {
        let end = self.vendor.iter().position(|&byte| byte == 0).unwrap_or(VENDOR);
        // All of it is ASCII: `new` saw to that.
        core::str::from_utf8(&self.vendor[..end]).unwrap_or("")
    }

    /// Family, model and stepping, or what stands for them.
    #[must_use]
    pub fn numbers(&self) -> [u64; 3] {
        self.numbers
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [family, model, stepping] = self.numbers;
        write!(f, "{} {family} {model} {stepping}", self.vendor())
    }
}

impl fmt::Debug for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cpu({self})")
    }
}

/// From how many bytes on a routine is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// The shortest copy it is taken for.
    pub from: usize,
    /// The routine.
    pub routine: Routine,
}

/// The thresholds of one class, ascending; the first is at 0 and the unused rest repeats the last.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Class {
    thresholds: [Threshold; MOST],
    used: usize,
    /// The last threshold that every length of so many bits reaches.
    begin: [u8; usize::BITS as usize + 1],
}

impl Class {
    fn of(routine: Routine) -> Self {
        Self {
            thresholds: [Threshold { from: 0, routine }; MOST],
            used: 1,
            begin: [0; usize::BITS as usize + 1],
        }
    }

    fn used(&self) -> &[Threshold] {
        &self.thresholds[..self.used.min(MOST)]
    }

    /// To be called after every change of the thresholds.
    fn index(&mut self) {
        for bits in 0..self.begin.len() {
            let least = if bits == 0 { 0 } else { 1_usize << (bits - 1) };
            let reached = self.used().iter().filter(|threshold| threshold.from <= least).count();
            // At most MOST, which is small.
            self.begin[bits] = u8::try_from(reached.saturating_sub(1)).unwrap_or(0);
        }
    }

    #[inline]
    fn choose(&self, len: usize) -> Routine {
        let bits = (usize::BITS - len.leading_zeros()) as usize;
        let mut at = usize::from(self.begin[bits]);
        while let Some(next) = self.thresholds.get(at + 1)
            && at + 1 < self.used
            && next.from <= len
        {
            at += 1;
        }
        // Below MOST, which the compiler cannot know.
        self.thresholds[at % MOST].routine
    }
}

/// Why a text is no table, and in which line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectionError {
    /// From 1.
    pub line: usize,
    /// What is wrong there.
    pub what: Wrong,
}

/// What is wrong with a line, or a list, of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wrong {
    /// The text is longer than [`LONGEST`].
    TooLong,
    /// The first line is not that of a table of this version.
    Head,
    /// The second line is not the CPU's.
    Cpu,
    /// Not a class, a number and a name.
    Form,
    /// The class is none of [`Alignment::ALL`].
    Class,
    /// The number of bytes cannot be read.
    Number,
    /// No routine of that name runs on this CPU.
    Routine,
    /// A class does not begin with 0, or does not ascend.
    Order,
    /// More than [`MOST`] thresholds in a class.
    TooMany,
    /// A class has no threshold.
    Missing(Alignment),
}

impl fmt::Display for SelectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        match self.what {
            Wrong::TooLong => write!(f, "a selection has at most {LONGEST} bytes"),
            Wrong::Head => write!(f, "it does not begin with '{HEAD}'"),
            Wrong::Cpu => f.write_str("the line of the CPU is not 'cpu VENDOR NUMBER NUMBER NUMBER'"),
            Wrong::Form => f.write_str("a threshold is written 'CLASS BYTES ROUTINE'"),
            Wrong::Class => f.write_str("there is no such class: lines, same, words, dst-line or apart"),
            Wrong::Number => {
                f.write_str("the number of bytes cannot be read: decimal digits, without a suffix")
            }
            Wrong::Routine => f.write_str("no routine of that name runs on this CPU"),
            Wrong::Order => f.write_str("the thresholds of a class begin with 0 and ascend"),
            Wrong::TooMany => write!(f, "a class has at most {MOST} thresholds"),
            Wrong::Missing(class) => write!(f, "the class '{}' has no threshold", class.name()),
        }
    }
}

impl core::error::Error for SelectionError {}

/// A table: for each class of alignment, from how many bytes on which routine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Selection {
    cpu: Cpu,
    classes: [Class; Alignment::ALL.len()],
}

impl Selection {
    /// A table that takes one routine for everything; [`Selection::set`] refines it.
    #[must_use]
    pub fn new(cpu: Cpu, routine: Routine) -> Self {
        Self { cpu, classes: [Class::of(routine); Alignment::ALL.len()] }
    }

    /// Replaces the thresholds of a class. `None`, and nothing is changed, unless they begin with 0, ascend, and are at most
    /// [`MOST`].
    #[must_use]
    pub fn set(&mut self, class: Alignment, thresholds: &[Threshold]) -> Option<()> {
        let (&first, &last) = (thresholds.first()?, thresholds.last()?);
        let ascend = thresholds.windows(2).all(|pair| pair[0].from < pair[1].from);
        if first.from != 0 || !ascend || thresholds.len() > MOST {
            return None;
        }
        let kept = &mut self.classes[class as usize];
        kept.thresholds = [last; MOST];
        kept.thresholds[..thresholds.len()].copy_from_slice(thresholds);
        kept.used = thresholds.len();
        kept.index();
        Some(())
    }

    /// Reads a table. Blank lines, and lines that begin with `#`, are left out after the first two.
    ///
    /// # Errors
    ///
    /// The line and what is wrong with it; also where it names a routine that this CPU cannot run.
    pub fn parse(text: &str) -> Result<Self, SelectionError> {
        let wrong = |line, what| SelectionError { line, what };
        if text.len() > LONGEST {
            return Err(wrong(1, Wrong::TooLong));
        }
        let mut lines = (1..).zip(text.lines().map(str::trim));
        if lines.next().is_none_or(|(_, head)| head != HEAD) {
            return Err(wrong(1, Wrong::Head));
        }
        let cpu = lines.next().and_then(|(_, line)| cpu(line)).ok_or(wrong(2, Wrong::Cpu))?;
        let mut table = Self::new(cpu, Routine::best());
        for class in &mut table.classes {
            class.used = 0;
        }
        let mut last = 2;
        for (number, line) in lines {
            last = number;
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            table.add(line).map_err(|what| wrong(number, what))?;
        }
        table.classes.iter_mut().for_each(Class::index);
        let missing = Alignment::ALL.into_iter().find(|&class| table.classes[class as usize].used == 0);
        missing.map_or(Ok(table), |class| Err(wrong(last, Wrong::Missing(class))))
    }

    fn add(&mut self, line: &str) -> Result<(), Wrong> {
        let mut parts = line.split_ascii_whitespace();
        let (Some(class), Some(from), Some(name), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Wrong::Form);
        };
        let class = &mut self.classes[Alignment::by_name(class).ok_or(Wrong::Class)? as usize];
        let from = number(from).ok_or(Wrong::Number)?;
        let routine = Routine::by_name(name).ok_or(Wrong::Routine)?;
        let before = class.used().last().map(|threshold| threshold.from);
        if before.map_or(from != 0, |before| from <= before) {
            return Err(Wrong::Order);
        }
        let at = class.used;
        let rest = class.thresholds.get_mut(at..).filter(|rest| !rest.is_empty()).ok_or(Wrong::TooMany)?;
        rest.fill(Threshold { from, routine });
        class.used = at + 1;
        Ok(())
    }

    /// What it was made on.
    #[must_use]
    pub fn cpu(&self) -> Cpu {
        self.cpu
    }

    /// The thresholds of a class, ascending, the first at 0.
    #[must_use]
    pub fn thresholds(&self, class: Alignment) -> &[Threshold] {
        self.classes[class as usize].used()
    }

    /// The routine for a copy of `len` bytes between these addresses. Nothing is read or written there.
    #[inline]
    #[must_use]
    pub fn select(&self, len: usize, src: *const u8, dst: *const u8) -> Routine {
        self.classes[Alignment::of(src.addr(), dst.addr()) as usize].choose(len)
    }

    /// Copies `src` to `dst` by the routine the table has for them.
    ///
    /// # Panics
    ///
    /// If the lengths differ, and as [`Routine::copy_slice`].
    #[inline]
    pub fn copy_slice(&self, dst: &mut [u8], src: &[u8]) {
        self.select(src.len(), src.as_ptr(), dst.as_ptr()).copy_slice(dst, src);
    }
}

fn cpu(line: &str) -> Option<Cpu> {
    let mut parts = line.split_ascii_whitespace();
    let (name, vendor) = (parts.next()?, parts.next()?);
    let mut numbers = [0; 3];
    for to in &mut numbers {
        *to = parts.next()?.parse().ok()?;
    }
    (name == "cpu" && parts.next().is_none()).then(|| Cpu::new(vendor, numbers))?
}

/// Decimal digits and nothing else: `parse` takes a sign.
fn number(text: &str) -> Option<usize> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl fmt::Display for Selection {
    /// The text that [`Selection::parse`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}")?;
        writeln!(f, "cpu {}", self.cpu)?;
        for class in Alignment::ALL {
            for Threshold { from, routine } in self.thresholds(class) {
                writeln!(f, "{} {from} {}", class.name(), routine.name())?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Selection({})", self.cpu)
    }
}
