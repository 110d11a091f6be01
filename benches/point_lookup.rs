//! Point lookups with filters on and off: absent and present keys, each layout, a large and a small
//! cache, one settled level, many tables at level 0, a full memtable, batches, two threads.
//!
//! `cargo bench -p siftdb-benches --bench point_lookup`; `SIFTDB_BENCH_KEYS` sets the number of
//! keys. An expression after `--` selects rows, for instance `-- settled/full`. `benches/peers`
//! measures writes and scans.

use criterion::{
    BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime,
};
use siftdb::experiment::{
    Column, absent, bench_keys, level0, load, numbered_entries, present, random_numbers, settled,
};
use siftdb::{Db, Filter, Options, ReadOptions};
use std::hint::black_box;
use std::time::{Duration, Instant};

fn lookups(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, db: &Db, keys: u64) {
    for (filters, read) in
        [("on", ReadOptions::new()), ("off", ReadOptions::new().use_filters(false))]
    {
        let mut indexes = random_numbers(keys);
        group.bench_function(format!("{name}/miss/filter {filters}"), |bencher| {
            bencher.iter(|| {
                let key = absent(indexes.next().unwrap_or(0));
                assert!(db.get_with(black_box(key), &read).expect("get").is_none());
            });
        });
        group.bench_function(format!("{name}/hit/filter {filters}"), |bencher| {
            bencher.iter(|| {
                let key = present(indexes.next().unwrap_or(0));
                assert!(db.get_with(black_box(key), &read).expect("get").is_some());
            });
        });
    }
}

/// Batches of 32 keys as one `multi_get` and as a loop of `get`; the rows are of a whole batch.
fn batches(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, db: &Db, keys: u64) {
    const BATCH: usize = 32;
    type MakeKey = fn(u64) -> [u8; 16];
    for (kind, make) in [("miss", absent as MakeKey), ("hit", present as MakeKey)] {
        let mut indexes = random_numbers(keys);
        let mut batch = || indexes.by_ref().take(BATCH).map(make).collect::<Vec<_>>();
        group.bench_function(format!("{name}/{kind}/32 by multi_get"), |bencher| {
            bencher.iter(|| db.multi_get(black_box(batch())).expect("multi_get"));
        });
        group.bench_function(format!("{name}/{kind}/32 one by one"), |bencher| {
            bencher.iter(|| {
                let keys = black_box(batch());
                keys.iter().map(|key| db.get(key).expect("get")).collect::<Vec<_>>()
            });
        });
    }
}

/// Touches everything once, so that the rows begin with a full cache.
fn warm(db: &Db, keys: u64) {
    for n in 0..keys {
        assert!(db.get(present(n)).expect("get").is_some());
    }
}

fn settled_level(criterion: &mut Criterion) {
    let keys = bench_keys();
    let mut group = criterion.benchmark_group("settled");
    for (name, filter) in layouts() {
        let directory = tempfile::tempdir().expect("directory");
        let db = settled(directory.path(), &options().filter(filter), keys).expect("load");
        warm(&db, keys);
        lookups(&mut group, name, &db, keys);
        batches(&mut group, name, &db, keys);
    }
    group.finish();
}

fn small_cache(criterion: &mut Criterion) {
    let keys = bench_keys();
    let mut group = criterion.benchmark_group("cache 8 MiB");
    for (name, filter) in layouts() {
        let directory = tempfile::tempdir().expect("directory");
        let built = settled(directory.path(), &options().filter(filter.clone()), keys);
        built.and_then(|db| db.close()).expect("load");
        let small = options().filter(filter).block_cache_bytes(8 << 20);
        let db = small.open(directory.path()).expect("open");
        warm(&db, keys.min(50_000));
        lookups(&mut group, name, &db, keys);
    }
    group.finish();
}

fn many_level0_tables(criterion: &mut Criterion) {
    let keys = bench_keys();
    let mut group = criterion.benchmark_group("10 tables at level 0");
    for (name, filter) in layouts() {
        let directory = tempfile::tempdir().expect("directory");
        let db = level0(directory.path(), &options().filter(filter), keys, 10).expect("load");
        warm(&db, keys);
        lookups(&mut group, name, &db, keys);
    }
    group.finish();
}

fn full_memtable(criterion: &mut Criterion) {
    let keys = bench_keys();
    let fresh = 100_000.min(keys);
    let mut group = criterion.benchmark_group("100k entries in the memtable");
    for memtable_filter in [true, false] {
        let directory = tempfile::tempdir().expect("directory");
        let options = options().memtable_filter(memtable_filter);
        let db = settled(directory.path(), &options, keys).expect("load");
        load(&db, numbered_entries(0..fresh)).expect("load");
        warm(&db, keys);
        let name = if memtable_filter { "memtable filter" } else { "no memtable filter" };
        lookups(&mut group, name, &db, fresh);
    }
    group.finish();
}

/// Two threads at once; the row is the wall time of one lookup among both.
fn two_threads(criterion: &mut Criterion) {
    let keys = bench_keys();
    let directory = tempfile::tempdir().expect("directory");
    let full = options().filter(Column::Full.filter(Filter::bloom(10.0)));
    let db = settled(directory.path(), &full, keys).expect("load");
    warm(&db, keys);
    let mut group = criterion.benchmark_group("two threads");
    for (name, hit) in [("miss", false), ("hit", true)] {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|iterations| {
                let started = Instant::now();
                std::thread::scope(|scope| {
                    for thread in 0..2 {
                        let db = &db;
                        scope.spawn(move || {
                            let indexes = random_numbers(keys).skip(thread * 1000);
                            for index in indexes.take(iterations.div_ceil(2) as usize) {
                                let key = if hit { present(index) } else { absent(index) };
                                assert_eq!(db.get(key).expect("get").is_some(), hit);
                            }
                        });
                    }
                });
                started.elapsed()
            });
        });
    }
    group.finish();
}

/// Raw blocks and a cache larger than the data.
fn options() -> Options {
    Options::new().snappy(false).block_cache_bytes(1 << 30)
}

fn layouts() -> [(&'static str, Filter); 4] {
    Column::DATABASES.map(|column| (column.name(), column.filter(Filter::bloom(10.0))))
}

criterion_group! {
    name = point_lookup;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(1));
    targets = settled_level, small_cache, many_level0_tables, full_memtable, two_threads
}
criterion_main!(point_lookup);
