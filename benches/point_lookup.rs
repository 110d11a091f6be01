//! Point lookups by layout: absent and present keys of one settled level, one by one and as batches
//! of `multi_get`, from a cache larger than the data.
//!
//! `cargo bench -p siftdb-benches --bench point_lookup`; `SIFTDB_BENCH_KEYS` sets the number of
//! keys. An expression after `--` selects rows, for instance `-- full/miss`. `benches/peers` with
//! `--no-default-features` measures level 0, memtables, small caches, threads, writes and scans.

use criterion::{Criterion, criterion_group, criterion_main};
use siftdb::{Filter, Options};
use siftdb_benches::bench_keys;
use siftdb_cli::experiment::{Column, absent, present, random_numbers, settled};
use std::hint::black_box;
use std::time::Duration;

const BATCH: usize = 32;

fn lookups(criterion: &mut Criterion) {
    let keys = bench_keys();
    for column in Column::ALL.into_iter().filter(|column| column.asks_filters()) {
        let directory = tempfile::tempdir().expect("directory");
        let options = Options::new().snappy(false).block_cache_bytes(1 << 30);
        let options = options.filter(column.filter(Filter::bloom(10.0)));
        let db = settled(directory.path(), &options, keys).expect("load");
        // The rows begin with a full cache.
        (0..keys).for_each(|n| assert!(db.get(present(n)).expect("get").is_some()));
        let mut group = criterion.benchmark_group(column.name());
        type MakeKey = fn(u64) -> [u8; 16];
        for (kind, make) in [("miss", absent as MakeKey), ("hit", present as MakeKey)] {
            let mut made = random_numbers(keys).map(make);
            group.bench_function(kind, |bencher| {
                bencher.iter(|| {
                    let key = black_box(made.next());
                    assert_eq!(db.get(key.expect("a key")).expect("get").is_some(), kind == "hit");
                });
            });
            let mut batch = || black_box(made.by_ref().take(BATCH).collect::<Vec<_>>());
            group.bench_function(format!("{kind}, 32 by multi_get"), |bencher| {
                bencher.iter(|| db.multi_get(batch()).expect("multi_get"));
            });
            group.bench_function(format!("{kind}, 32 by get"), |bencher| {
                bencher.iter(|| {
                    let found = batch().into_iter().map(|key| db.get(key).expect("get"));
                    found.collect::<Vec<_>>()
                });
            });
        }
        group.finish();
    }
}

criterion_group! {
    name = point_lookup;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(1));
    targets = lookups
}
criterion_main!(point_lookup);
