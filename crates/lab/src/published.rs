//! Figures that others published, to stand beside today's.
//!
//! The cached reads of 2002: a file of 1 GiB, wholly in the page cache, read through by 8 KiB into a buffer whose address moved
//! by a byte, on Linux 2.5.41; then with a copy routine of integer registers (unrolled to 64 bytes, the source touched ahead) in
//! place of `rep movsl`, for unaligned buffers only and for all. Seconds for each read-through, as the author of the routine
//! published them in 2002. Where a column has no figure none was published.

use haul_results::record::{Document, Kind};
use haul_results::text::{Beside, BesideRow};

/// Bytes of the file of 2002.
const GIB: u64 = 1 << 30;

/// Its block.
const BLOCK: u64 = 8 << 10;

/// The columns of 2002.
const COLUMNS: [&str; 3] = ["2.5.41", "unaligned", "all"];

/// Offset, and seconds: by the kernel, with the routine for unaligned buffers, with the routine for all.
type Row = (u64, Option<f64>, Option<f64>, Option<f64>);

/// The table.
const CACHED_READ_2002: [Row; 33] = [
    (0, Some(4.373), Some(4.387), Some(6.063)),
    (1, Some(10.024), Some(6.410), None),
    (2, Some(10.002), Some(6.411), None),
    (3, Some(10.013), Some(6.408), None),
    (4, Some(10.105), Some(6.343), None),
    (5, Some(10.184), Some(6.394), None),
    (6, Some(10.179), Some(6.398), None),
    (7, Some(10.185), Some(6.408), None),
    (8, Some(9.725), Some(9.724), Some(6.347)),
    (9, Some(9.780), Some(6.436), None),
    (10, Some(9.779), Some(6.421), None),
    (11, Some(9.778), Some(6.433), None),
    (12, Some(9.723), Some(6.402), None),
    (13, Some(9.790), Some(6.382), None),
    (14, Some(9.790), Some(6.381), None),
    (15, Some(9.785), Some(6.380), None),
    (16, Some(9.727), Some(9.723), Some(6.277)),
    (17, Some(9.779), Some(6.360), None),
    (18, Some(9.783), Some(6.345), None),
    (19, Some(9.786), Some(6.341), None),
    (20, Some(9.772), Some(6.133), None),
    (21, Some(9.919), Some(6.327), None),
    (22, Some(9.920), Some(6.319), None),
    (23, Some(9.918), Some(6.319), None),
    (24, Some(9.846), Some(9.857), Some(6.372)),
    (25, Some(10.060), Some(6.443), None),
    (26, Some(10.049), Some(6.436), None),
    (27, Some(10.041), Some(6.432), None),
    (28, Some(9.931), Some(6.356), None),
    (29, Some(10.013), Some(6.432), None),
    (30, Some(10.020), Some(6.425), None),
    (31, Some(10.016), Some(6.444), None),
    (32, Some(4.442), Some(4.423), Some(6.380)),
];

/// Whether offsets of the table are compared: where a buffer is aligned, and where it is not.
fn swept(requested: &serde_json::Value) -> bool {
    let offsets = requested.get("offset_bytes").and_then(serde_json::Value::as_array);
    let offsets =
        || offsets.into_iter().flatten().filter_map(serde_json::Value::as_u64).filter(|at| *at <= 32);
    offsets().any(|at| at % 32 == 0) && offsets().any(|at| at % 32 != 0)
}

/// What was published of the same cells: of reads by 8 KiB of a cached file over the offsets of the buffer, and nothing else
/// swept.
#[must_use]
pub fn beside(document: &Document) -> Option<Beside> {
    let requested = &document.options.requested;
    let number = |name: &str| requested.get(name).and_then(serde_json::Value::as_u64);
    let is =
        |name: &str, wanted: &str| requested.get(name).and_then(serde_json::Value::as_str) == Some(wanted);
    let alike = document.kind == Kind::Read
        && number("block_bytes") == Some(BLOCK)
        && number("file_offset_bytes") == Some(0)
        && number("working_set_bytes").is_some()
        && is("direction", "read")
        && (is("source", "file") || is("source", "memfd"))
        && (is("with", "read") || is("with", "pread"))
        && swept(requested);
    let rows = CACHED_READ_2002.map(|(offset, kernel, unaligned, all)| BesideRow {
        level: offset,
        values: vec![kernel, unaligned, all],
    });
    alike.then(|| Beside {
        axis: "offset_bytes".to_owned(),
        title: "beside the cached reads of 2002: seconds to read 1 GiB".to_owned(),
        bytes: GIB,
        columns: COLUMNS.map(str::to_owned).to_vec(),
        note: "2002: Linux 2.5.41 with rep movsl; then with a routine of integer registers for unaligned buffers, and for all"
            .to_owned(),
        rows: rows.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_2002_is_whole_and_its_steps_are_those_published() {
        let offsets: Vec<u64> = CACHED_READ_2002.iter().map(|row| row.0).collect();
        assert_eq!(offsets, (0..=32).collect::<Vec<u64>>());
        let of = |offset: usize| CACHED_READ_2002[offset];
        assert_eq!(of(0), (0, Some(4.373), Some(4.387), Some(6.063)));
        assert_eq!(of(16), (16, Some(9.727), Some(9.723), Some(6.277)));
        assert_eq!(of(32), (32, Some(4.442), Some(4.423), Some(6.38)));
        for (offset, kernel, unaligned, all) in CACHED_READ_2002 {
            assert_eq!(all.is_some(), offset % 8 == 0, "{offset}");
            assert!(unaligned.is_some());
            // It was slow everywhere but at 32-byte boundaries, and the routine for unaligned ones stopped short of 8.
            assert_eq!(kernel.is_some_and(|seconds| seconds > 9.0), offset % 32 != 0, "{offset}");
        }
    }
}
