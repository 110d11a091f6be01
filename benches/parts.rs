//! The parts of a lookup and of a write, each by itself: filter probe, index search, block check
//! and seek, cache by key and by slot, memtable, log. A regression that `point_lookup` or `write`
//! shows is placed here.
//!
//! `cargo bench -p siftdb-benches --bench parts`; `SIFTDB_BENCH_KEYS=1000000` for the size that the
//! budgets are stated for.

mod support;

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use support::key_count;

fn all_parts(criterion: &mut Criterion) {
    let directory = tempfile::tempdir().expect("directory");
    let mut group = criterion.benchmark_group("parts");
    for mut part in siftdb::parts::parts(key_count(), directory.path()).expect("parts") {
        group.bench_function(part.name, |bencher| bencher.iter(|| black_box((part.run)())));
    }
    group.finish();
}

criterion_group!(benches, all_parts);
criterion_main!(benches);
