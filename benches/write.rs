//! Writes: single puts, batches, sorted loads, durable puts, and how writers share a sync.
//!
//! `cargo bench -p siftdb-benches --bench write`. Each row is the time of one entry (of one put for
//! the durable rows), background flushes and compactions running along.

mod support;

use criterion::{Criterion, criterion_group, criterion_main};
use siftdb::{WriteBatch, WriteOptions};
use std::time::{Duration, Instant};
use support::{options, present, random_indexes, value};

fn puts(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("write");
    let directory = tempfile::tempdir().expect("directory");
    let db = options().open(directory.path()).expect("open");
    let mut next = 0;
    group.bench_function("put", |bencher| {
        bencher.iter(|| {
            next += 1;
            db.put(present(next), value(next)).expect("put");
        });
    });
    let mut indexes = random_indexes(1_000_000);
    group.bench_function("batch of 100, overwriting", |bencher| {
        bencher.iter_custom(|iterations| {
            let started = Instant::now();
            let mut batch = WriteBatch::new();
            for _ in 0..iterations {
                let index = indexes.next().unwrap_or(0);
                batch.put(present(index), value(index));
                if batch.len() == 100 {
                    db.write(std::mem::take(&mut batch)).expect("write");
                }
            }
            db.write(batch).expect("write");
            started.elapsed()
        });
    });
    group.bench_function("sorted batches of 1000, flushed", |bencher| {
        bencher.iter_custom(|iterations| {
            let directory = tempfile::tempdir().expect("directory");
            let db = options().open(directory.path()).expect("open");
            let started = Instant::now();
            let mut batch = WriteBatch::new();
            for n in 0..iterations {
                batch.put(format!("{n:016}"), value(n));
                if batch.len() == 1000 {
                    db.write(std::mem::take(&mut batch)).expect("write");
                }
            }
            db.write(batch).expect("write");
            db.flush().expect("flush");
            started.elapsed()
        });
    });
    group.finish();
}

fn durable_puts(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("durable put");
    let directory = tempfile::tempdir().expect("directory");
    let db = options().open(directory.path()).expect("open");
    let sync = WriteOptions::new().sync(true);
    for writers in [1, 2, 4, 8] {
        group.bench_function(format!("{writers} writers"), |bencher| {
            bencher.iter_custom(|iterations| {
                let started = Instant::now();
                std::thread::scope(|scope| {
                    for writer in 0..writers {
                        let (db, sync) = (&db, &sync);
                        scope.spawn(move || {
                            for n in 0..iterations.div_ceil(writers) {
                                let mut batch = WriteBatch::new();
                                batch.put(present(writer << 40 | n), value(n));
                                db.write_with(batch, sync).expect("write");
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

criterion_group! {
    name = write;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = puts, durable_puts
}
criterion_main!(write);
