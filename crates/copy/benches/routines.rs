//! Every routine and peer at some sizes and alignments, by criterion: for looking at one of them while working on it.
//!
//! `cargo bench -p haul-copy --bench routines -- avx512/4096`. Ratios that decide something come from `ratios`, which
//! alternates.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use haul_copy::{Peer, Routine};

const SIZES: &[usize] = &[64, 256, 1024, 4096, 8192, 65536, 1 << 20];
const OFFSETS: &[(usize, usize)] = &[(0, 0), (0, 1), (1, 0), (3, 5)];

fn copies(criterion: &mut Criterion) {
    // Written: pages nobody wrote are all one page. Aligned to a page and more by their size.
    let (source, mut target) = (vec![7_u8; (1 << 20) + 8192], vec![9_u8; (1 << 20) + 8192]);
    let to_page = |start: *const u8| start.addr().wrapping_neg() % 4096;
    for &len in SIZES {
        for &(from, to) in OFFSETS {
            let src = source.as_ptr().wrapping_add(to_page(source.as_ptr()) + from);
            let dst = target.as_mut_ptr();
            let dst = dst.wrapping_add(to_page(dst) + to);
            let case = format!("{len}/{from},{to}");
            let mut group = criterion.benchmark_group("copy");
            group.throughput(Throughput::Bytes(len as u64));
            for routine in Routine::all() {
                group.bench_function(BenchmarkId::new(routine.name(), &case), |bencher| {
                    // SAFETY: both buffers have the largest length, a page, and an offset.
                    bencher.iter(|| unsafe { routine.copy(black_box(dst), black_box(src), black_box(len)) });
                });
            }
            for peer in Peer::all() {
                group.bench_function(BenchmarkId::new(peer.name(), &case), |bencher| {
                    // SAFETY: as above.
                    bencher.iter(|| unsafe { peer.copy(black_box(dst), black_box(src), black_box(len)) });
                });
            }
            group.finish();
        }
    }
}

criterion_group!(benches, copies);
criterion_main!(benches);
