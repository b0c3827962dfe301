//! The options of `haul copy`.

use std::path::PathBuf;

use clap::Args;

use super::{Output, Rows, Sampling};

const EXAMPLES: &str = "\
Examples:
  haul copy                                              best and the C library over sizes and alignments
  haul copy --routine all --size 4K                      every routine of this CPU at one size
  haul copy --size 64..64M*4 --cache hot,cold,flushed    what caches hide
  haul copy --distance 0..4032+64 --size 8K              where in a page the ends lie
  haul copy --checksum --size 1K..64K*2                  sum, copy then sum, both in one pass
  haul copy --limits                                     what this machine can do
  haul copy --thresholds > cpu.selection                 from which size on which routine
  haul copy --routine auto,best --selection cpu.selection

Sizes take K, M, G (KiB, MiB, GiB). Options marked [list] take a list (1,4,16) or a range (0..63, 0..4032+64, 64..64M*4)
as well.";

/// `haul copy`.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
#[command(after_help = EXAMPLES)]
pub(crate) struct Copy {
    /// Which routines [list]: names, 'best' (which chooses by itself), 'libc' (the C library's memcpy), 'all', or 'auto' with
    /// --selection; with --overlap also 'memmove'; with --checksum names of checksum routines, or 'all' [default: best,libc]
    #[arg(long, value_name = "NAMES")]
    pub(crate) routine: Option<String>,
    /// Bytes of a copy [list] [default: 64..64M*4]
    #[arg(long, value_name = "BYTES")]
    pub(crate) size: Option<String>,
    /// Bytes of the source past a cache line, 0 to 63: to see what an unaligned source costs [list] [default: 0,1]
    #[arg(long, value_name = "BYTES")]
    pub(crate) src_offset: Option<String>,
    /// Bytes of the destination past a cache line, 0 to 63 [list] [default: 0,1]
    #[arg(long, value_name = "BYTES", conflicts_with = "distance")]
    pub(crate) dst_offset: Option<String>,
    /// Destination less source, modulo a page of 4 KiB [list]; without it, another for every sample, because some CPUs are slow
    /// where the two agree
    #[arg(long, value_name = "BYTES")]
    pub(crate) distance: Option<String>,
    /// Source and destination in one buffer, the destination so many bytes above the source (below with -), less than --size.
    /// 'memmove' of the C library takes part; routines that promise nothing then are left out, by name
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, conflicts_with_all = ["distance", "dst_offset"])]
    pub(crate) overlap: Option<String>,
    /// Where the bytes are before a copy: hot, l2, llc, cold (touched twice the last cache ago), flushed [list] [default: hot]
    #[arg(long, value_name = "STATES")]
    pub(crate) cache: Option<String>,
    /// Pages of the buffers: 4k, 2m, 1g; what cannot be had is an error [list] [default: 2m where the system gives them]
    #[arg(long, value_name = "KINDS")]
    pub(crate) pages: Option<String>,
    /// Also with all of the copy read afterwards: what stores past the caches cost whoever reads next
    #[arg(long, conflicts_with_all = ["checksum", "overlap"])]
    pub(crate) then_read: bool,
    /// Internet checksums in place of copies: sum, copy then sum, and both in one pass
    #[arg(long)]
    pub(crate) checksum: bool,
    /// Threads at once, each with buffers and a CPU of its own [list] [default: 1]
    #[arg(long, value_name = "COUNT")]
    pub(crate) threads: Option<String>,
    /// Lengths up to --size, another for each copy: what a program with many lengths sees, whose branches are not foreseen
    #[arg(long)]
    pub(crate) shuffle: bool,
    /// A table that 'haul copy --thresholds' printed, for --routine auto
    #[arg(long, value_name = "FILE")]
    pub(crate) selection: Option<PathBuf>,
    /// Measure what this machine can do: reading, writing, copying in each cache and in memory
    #[arg(long, conflicts_with_all = ["thresholds", "routine", "size", "src_offset", "dst_offset", "distance", "overlap", "cache",
        "pages", "then_read", "checksum", "threads", "shuffle", "selection"])]
    pub(crate) limits: bool,
    /// Find from which size on which routine is the fastest, for each alignment, and print the table that haul-copy loads: the
    /// table and nothing else, or nothing. The C library takes part, and where it is ahead the table says so
    #[arg(long, conflicts_with_all = ["src_offset", "dst_offset", "distance", "overlap", "cache", "then_read", "checksum",
        "threads", "shuffle", "selection"])]
    pub(crate) thresholds: bool,
    #[command(flatten)]
    pub(crate) sampling: Sampling,
    #[command(flatten)]
    pub(crate) rows: Rows,
    #[command(flatten)]
    pub(crate) output: Output,
}
