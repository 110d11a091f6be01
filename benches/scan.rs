//! Scans: 100 entries from a random key, a full scan in both directions, and opening a database.
//!
//! `cargo bench -p siftdb-benches --bench scan`. The rows of a full scan are the time of one entry.

mod support;

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::{Duration, Instant};
use support::{key_count, options, present, random_indexes, settled};

fn scans(criterion: &mut Criterion) {
    let keys = key_count();
    let directory = tempfile::tempdir().expect("directory");
    let db = settled(directory.path(), options(), keys);
    let mut group = criterion.benchmark_group("scan");
    let mut indexes = random_indexes(keys);
    group.bench_function("100 entries", |bencher| {
        bencher.iter(|| {
            let start = present(indexes.next().unwrap_or(0));
            black_box(
                db.range(start..)
                    .take(100)
                    .map(|entry| entry.expect("entry").1.len())
                    .sum::<usize>(),
            )
        });
    });
    for reverse in [false, true] {
        let name = if reverse { "full, reverse, per entry" } else { "full, per entry" };
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|iterations| {
                let started = Instant::now();
                let mut left = iterations as usize;
                while left > 0 {
                    let taken = left.min(keys as usize);
                    let count = if reverse {
                        db.iter().rev().take(taken).filter(Result::is_ok).count()
                    } else {
                        db.iter().take(taken).filter(Result::is_ok).count()
                    };
                    assert_eq!(count, taken);
                    left -= taken;
                }
                started.elapsed()
            });
        });
    }
    group.finish();
    drop(db);
    let mut group = criterion.benchmark_group("reopen");
    group.bench_function("settled, closed cleanly", |bencher| {
        bencher.iter(|| options().open(directory.path()).expect("open").close().expect("close"));
    });
    group.finish();
}

criterion_group! {
    name = scan;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = scans
}
criterion_main!(scan);
