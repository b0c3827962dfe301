//! What copies: a routine of haul-copy, the C library, a table of thresholds, or a checksum routine; and what code that is.

use std::fmt;
use std::str::FromStr;

use haul_copy::checksum::SumRoutine;
use haul_copy::{Overlap, Peer, Routine, Selection, touch};
use haul_host::program;
use serde_json::{Value as Json, json};

use crate::error::WorkloadError;
use crate::spec::SpecError;

/// What is done with the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Does {
    /// Copies them.
    Copy,
    /// Copies them, then reads all of the copy.
    CopyRead,
    /// Sums them, without a copy.
    Sum,
    /// Copies them by the best routine, then sums the copy.
    CopySum,
    /// Copies and sums them in one pass.
    Fused,
}

impl fmt::Display for Does {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Copy => "copy",
            Self::CopyRead => "copy+read",
            Self::Sum => "sum",
            Self::CopySum => "copy+sum",
            Self::Fused => "fused",
        })
    }
}

/// What the C library's memmove is called.
const MEMMOVE: &str = "memmove";

/// What copies.
#[derive(Debug, Clone, Copy)]
pub enum Mover {
    /// A routine of haul-copy.
    Routine(Routine),
    /// The same, asked for by a name that stands for it: `best`, `auto`.
    Asked(&'static str, Routine),
    /// The C library's memmove, for ends that share bytes.
    Memmove,
    /// Somebody else's.
    Peer(Peer),
    /// Whatever a table says; it lives as long as the process.
    Selected(&'static Selection),
    /// A checksum routine.
    Sum(SumRoutine),
}

impl Mover {
    /// The routine that chooses by itself.
    #[must_use]
    pub fn best() -> Self {
        Self::Asked("best", Routine::best())
    }

    /// All that copy, here.
    pub fn all() -> impl Iterator<Item = Self> {
        Routine::all().map(Self::Routine).chain(Peer::all().map(Self::Peer))
    }

    /// All that may copy where the ends share bytes, here.
    pub fn all_within() -> impl Iterator<Item = Self> {
        Self::all().chain([Self::Memmove])
    }

    /// All that sum, here.
    pub fn all_sums() -> impl Iterator<Item = Self> {
        SumRoutine::all().map(Self::Sum)
    }

    /// Whatever the table says, under the name `auto`. The table is kept until the process ends: one is read in a run.
    #[must_use]
    pub fn selected(selection: Selection) -> Self {
        Self::Selected(Box::leak(Box::new(selection)))
    }

    /// The checksum routine of this name.
    ///
    /// # Errors
    /// Where there is none here, with those there are.
    pub fn sum(name: &str) -> Result<Self, WorkloadError> {
        SumRoutine::by_name(name).map(Self::Sum).ok_or_else(|| unknown(name, "all", Self::all_sums()))
    }

    /// The name it was asked for by.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Asked(name, _) => name,
            Self::Selected(_) => "auto",
            other => other.runs(),
        }
    }

    /// The name of what runs.
    #[must_use]
    pub fn runs(&self) -> &'static str {
        match self {
            Self::Routine(routine) | Self::Asked(_, routine) => routine.name(),
            Self::Peer(peer) => peer.name(),
            Self::Memmove => MEMMOVE,
            Self::Selected(_) => "selection",
            Self::Sum(sum) => sum.name(),
        }
    }

    /// Whether a table can name it.
    #[must_use]
    pub fn is_routine(&self) -> bool {
        matches!(self, Self::Routine(_) | Self::Asked(..))
    }

    /// What it can do.
    #[must_use]
    pub fn can(&self, does: Does) -> bool {
        matches!(self, Self::Sum(_)) == matches!(does, Does::Sum | Does::CopySum | Does::Fused)
    }

    /// Whether it promises to move `size` bytes up by `by` bytes.
    pub(super) fn moves(&self, by: i64, size: usize) -> bool {
        let apart = by.unsigned_abs() >= size as u64;
        match self {
            Self::Routine(routine) | Self::Asked(_, routine) => {
                apart || by <= 0 && routine.overlap() == Overlap::Forward
            }
            Self::Memmove => true,
            Self::Peer(_) | Self::Selected(_) | Self::Sum(_) => false,
        }
    }

    /// Moves within a buffer again and again; false where it does not promise that.
    pub(super) fn repeat_within(
        &self,
        buffer: &mut [u8],
        from: usize,
        to: usize,
        len: usize,
        times: u64,
    ) -> bool {
        match self {
            Self::Routine(routine) | Self::Asked(_, routine) => {
                routine.repeat_within(buffer, from, to, len, times)
            }
            Self::Memmove => {
                for _ in 0..times {
                    // The compiler knows none of them, so that it is a call and not a loop of its own.
                    let (from, to, len) = std::hint::black_box((from, to, len));
                    std::hint::black_box(&mut *buffer).copy_within(from..from + len, to);
                }
                true
            }
            Self::Peer(_) | Self::Selected(_) | Self::Sum(_) => false,
        }
    }

    /// Copies again and again.
    pub(super) fn repeat(&self, does: Does, dst: &mut [u8], src: &[u8], times: u64) {
        match (self, does) {
            (Self::Routine(routine) | Self::Asked(_, routine), Does::Copy) => routine.repeat(dst, src, times),
            (Self::Peer(peer), Does::Copy) => peer.repeat(dst, src, times),
            // The table is asked anew for each copy: that is a part of what it costs.
            _ => (0..times).for_each(|_| self.once(does, dst, src)),
        }
    }

    /// Does it once.
    #[inline]
    pub(super) fn once(&self, does: Does, dst: &mut [u8], src: &[u8]) {
        let (dst, src) = (std::hint::black_box(dst), std::hint::black_box(src));
        match (self, does) {
            (Self::Sum(sum), Does::Sum) => {
                std::hint::black_box(sum.sum(src));
            }
            (Self::Sum(sum), Does::CopySum) => {
                Routine::best().copy_slice(dst, src);
                std::hint::black_box(sum.sum(dst));
            }
            (Self::Sum(sum), _) => {
                std::hint::black_box(sum.copy(dst, src));
            }
            (Self::Routine(routine) | Self::Asked(_, routine), _) => routine.repeat(dst, src, 1),
            (Self::Memmove, _) => dst.copy_from_slice(src),
            (Self::Peer(peer), _) => peer.repeat(dst, src, 1),
            (Self::Selected(selection), _) => selection.copy_slice(dst, src),
        }
        if does == Does::CopyRead {
            touch::read(dst);
        }
    }

    /// What code it is: what ran, not what was asked for.
    pub(super) fn identity(&self) -> Json {
        /// What a hash covers, said where it stands.
        const HASHED: &str =
            "FNV-1a of the bytes of the symbol in the file; a jump out of it counts with its distance";
        let (kind, address, summary) = match self {
            Self::Routine(routine) | Self::Asked(_, routine) => {
                (routine.isa_name(), routine.address(), routine.summary())
            }
            Self::Memmove => {
                return json!({
                    "asked": self.name(), "name": self.runs(), "kind": "peer",
                    "summary": "memmove of the C library, by way of slice::copy_within",
                });
            }
            Self::Peer(peer) => ("peer", peer.address(), peer.summary()),
            Self::Sum(sum) => ("checksum", sum.copy_address(), sum.summary()),
            Self::Selected(selection) => {
                return json!({
                    "asked": self.name(), "name": self.runs(), "kind": "selection", "table": selection.to_string(),
                });
            }
        };
        let code = program::code_at(address.addr());
        let symbol = code.as_ref().and_then(|code| code.symbol.as_ref());
        json!({
            "asked": self.name(),
            "name": self.runs(),
            "kind": kind,
            "summary": summary,
            "crate": concat!("haul ", env!("CARGO_PKG_VERSION")),
            "file": code.as_ref().map(|code| format!("{} at {:#x}", code.file, code.offset)),
            "symbol": symbol.map(|symbol| symbol.name.clone()),
            "code_bytes": symbol.map(|symbol| symbol.bytes),
            "code_hash": symbol.map(|symbol| format!("{:016x}", symbol.hash)),
            "hashed": if symbol.is_some() { HASHED } else { "nothing: the file has no table of symbols" },
        })
    }
}

impl PartialEq for Mover {
    fn eq(&self, other: &Self) -> bool {
        matches!(self, Self::Sum(_)) == matches!(other, Self::Sum(_)) && self.runs() == other.runs()
    }
}

/// The name of an instruction set.
trait IsaName {
    fn isa_name(&self) -> &'static str;
}

impl IsaName for Routine {
    fn isa_name(&self) -> &'static str {
        match self.isa() {
            haul_copy::Isa::X86_64 => "x86_64",
            haul_copy::Isa::Aarch64 => "aarch64",
            haul_copy::Isa::Riscv64 => "riscv64",
            _ => "portable",
        }
    }
}

/// There is none of that name; `others` are the names that stand for more than themselves.
fn unknown(name: &str, others: &str, there: impl Iterator<Item = Mover>) -> WorkloadError {
    let there: Vec<&str> = there.map(|mover| mover.name()).collect();
    let lacks = haul_copy::known().find(|known| known.name() == name && known.routine().is_none());
    let what = lacks.map_or_else(
        || format!("there is no routine '{name}'"),
        |known| format!("this CPU cannot run the routine '{name}' (it needs {})", known.needs()),
    );
    WorkloadError::Spec(SpecError::Local(format!("{what}: give {others}, or of {}", there.join(", "))))
}

impl FromStr for Mover {
    type Err = WorkloadError;

    fn from_str(name: &str) -> Result<Self, WorkloadError> {
        match name {
            "best" => return Ok(Self::best()),
            "auto" => return Ok(Self::Asked("auto", Routine::best())),
            MEMMOVE => return Ok(Self::Memmove),
            _ => {}
        }
        let routine = Routine::by_name(name).map(Self::Routine);
        routine
            .or_else(|| Peer::by_name(name).map(Self::Peer))
            .ok_or_else(|| unknown(name, "best, all", Self::all()))
    }
}
