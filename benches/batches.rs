//! What a batch of lookups saves over a loop of single ones: `multi_get` and `get` in turns, of
//! keys without order, in one settled level.
//!
//! - *Warm:* all blocks are in siftdb's cache; processor time. With enough keys the filters and
//!   blocks are not in the processor's caches, and a batch waits for several at the same time.
//! - *Cold:* 32 present keys whose blocks are not in the system's page cache; wall time. The
//!   indexes are in memory. Needs Linux and a directory on a disk; elsewhere a line says so.
//!
//! `cargo bench -p siftdb-benches --bench batches`; `SIFTDB_BENCH_KEYS=10000000` for the figures in
//! docs/results/recorded.md. Rounds of both sides alternate on one open database; the result is the
//! median ratio of the pairs, so a disturbance of the machine disturbs both sides.

use siftdb::{Db, Filter, Options, ReadOptions};
use siftdb_benches::{Paired, bench_keys, processor_time};
use siftdb_cli::experiment::{Column, absent, make_cold, mix, present, settled};
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

/// Keys of one cold batch.
const COLD_KEYS: u64 = 32;

/// How many keys a loop of single lookups finds, or batches of `size`.
fn find(db: &Db, keys: &[[u8; 16]], batch: Option<usize>, options: &ReadOptions) -> usize {
    let Some(size) = batch else {
        let found = |key: &&[u8; 16]| db.get_with(black_box(*key), options).expect("get").is_some();
        return keys.iter().filter(found).count();
    };
    let batches = keys.chunks(size).map(|keys| {
        let values = db.multi_get_with(black_box(keys), options).expect("multi_get");
        values.iter().flatten().count()
    });
    batches.sum()
}

fn warm(db: &Db, name: &str, keys: u64, rounds: u64, size: usize) {
    // Whole batches, and few lookups a round: rounds alternate often.
    let lookups = 4_000_usize.next_multiple_of(size);
    for kind in ["absent", "present"] {
        let make = |n| if kind == "present" { present(n) } else { absent(n) };
        let paired = Paired::measure(rounds, |round, side| {
            // Each side has keys that the other has not just brought into the caches.
            let numbers = ((2 * round + side as u64) * lookups as u64 + 1..).take(lookups);
            let keys: Vec<_> = numbers.map(|n| make(mix(n) % keys)).collect();
            let took = processor_time(|| {
                let found = find(db, &keys, (side == 1).then_some(size), &ReadOptions::new());
                assert_eq!(found, if kind == "present" { lookups } else { 0 });
            });
            took.as_nanos() as f64 / lookups as f64
        });
        let [single, batch] = paired.medians;
        println!(
            "{name:12} {kind:8} batches of {size:4}: {batch:6.0} ns a key, single {single:6.0} ns, \
             ratio {:.3}",
            paired.ratio
        );
    }
}

fn cold(db: &Db, name: &str, directory: &Path, keys: u64, rounds: u64) {
    if let Err(why) = make_cold(directory) {
        println!("{name:12} {why}");
        return;
    }
    // Every block is read anew.
    let options = ReadOptions::new().fill_cache(false);
    let paired = Paired::measure(rounds, |round, side| {
        let first = (2 * round + side as u64) * COLD_KEYS;
        let numbers = (first..first + COLD_KEYS).map(|n| mix(n ^ 1 << 50) % keys);
        let keys: Vec<_> = numbers.map(present).collect();
        // Pages that stay this time would make both sides faster.
        let _ = make_cold(directory);
        let started = Instant::now();
        let batch = (side == 1).then_some(COLD_KEYS as usize);
        assert_eq!(find(db, &keys, batch, &options), COLD_KEYS as usize);
        started.elapsed().as_nanos() as f64 / 1e3
    });
    let [single, batch] = paired.medians;
    println!(
        "{name:12} cold     batches of {COLD_KEYS:4}: {batch:6.0} us a batch, \
         single {single:6.0} us, ratio {:.3}",
        paired.ratio
    );
}

fn main() {
    let test = std::env::args().any(|argument| argument == "--test");
    let (keys, rounds) = if test { (5_000, 2) } else { (bench_keys(), 101) };
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let columns = [
        ("full", Column::Full),
        ("partitioned", Column::Partitioned),
        ("block-based", Column::BlockBased),
        ("none", Column::NoFilter),
    ];
    for (name, column) in columns {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let options = Options::new().snappy(false).block_cache_bytes(4 << 30);
        let options = options.filter(column.filter(Filter::bloom(10.0)));
        let directory = tempfile::tempdir().expect("directory");
        let db = settled(directory.path(), &options, keys).expect("build");
        db.close().expect("close");
        drop(db);
        let db = options.open(directory.path()).expect("open");
        // Indexes and filters; the data blocks stay out of siftdb's cache.
        let unfilled = ReadOptions::new().fill_cache(false);
        for n in (0..keys).step_by((keys as usize / 20_000).max(1)) {
            db.get_with(present(n), &unfilled).expect("get");
        }
        cold(&db, name, directory.path(), keys, rounds.min(25));
        for n in 0..keys.max(5_000) {
            db.get(present(mix(n) % keys)).expect("get");
            db.get(present(n % keys)).expect("get");
        }
        for size in [32, 1000] {
            warm(&db, name, keys, rounds, size);
        }
    }
}
