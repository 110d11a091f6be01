//! What a range filter saves scans, by the shape of the keys (`RangeKeys`).
//!
//! Each database has the keys in one settled level, or two fifths of them in four tables of level
//! 0, and values of 100 bytes. Scans read:
//!
//! - empty ranges at random places (`at_random`);
//! - empty ranges from the immediate successor of a stored key on (`after_a_key`);
//! - ranges of one stored key.
//!
//! `cargo bench -p siftdb-benches --bench ranges` takes a million keys of each shape;
//! `-- 10000000 integers` takes ten million of one.
//! Short rounds alternate between scans that ask filters and scans that do not, on the same files,
//! in processor time; the result is the median ratio of the pairs. "Cold" is a block cache that has
//! room for indexes and filters only: data blocks are read from the operating system's cache.

use siftdb::{Db, Filter, Options, ReadOptions};
use siftdb_benches::{Paired, processor_time};
use siftdb_cli::experiment::{
    KeySet, KeySource, RangeKeys, after_a_key, at_random, key_set, mix, of_a_key,
};
use std::hint::black_box;
use std::path::Path;

/// Bits per key of the range filters.
const BITS: f64 = 12.0;

/// Scans of a round.
const SCANS: u64 = 1_000;

fn database(directory: &Path, keys: &KeySet, bits: f64, level0: bool, cached: bool) -> Db {
    let options = Options::new().filter(Filter::bloom(10.0).ranges(bits)).auto_compaction(false);
    // Indexes and filters take less than 10 bytes a key.
    let cache_bytes = if cached { 4 << 30 } else { 24 * keys.len() as u64 + (1 << 20) };
    let db = options.block_cache_bytes(cache_bytes).open(directory).expect("open");
    for part in 0..5 {
        for (at, key) in keys.iter().enumerate() {
            // The settled part has six of ten keys, and each table of level 0 one.
            if (mix(at as u64) % 10).saturating_sub(5) == part {
                db.put(key, [b'v'; 100]).expect("put");
            }
        }
        db.flush().expect("flush");
        if part == 0 {
            db.compact_range(..).expect("compact");
        }
    }
    if !level0 {
        db.compact_range(..).expect("compact");
    }
    db
}

/// The kinds of scans.
const KINDS: [&str; 3] = ["empty", "after", "found"];

fn compare(db: &Db, name: &str, source: &mut KeySource, keys: &KeySet, rounds: u64) {
    let draws = [at_random, after_a_key, of_a_key];
    for (kind, draw) in KINDS.into_iter().zip(draws) {
        let mut entered = [0.0; 2];
        let paired = Paired::measure(rounds, |_, side| {
            let ranges: Vec<_> = (0..SCANS).map(|_| draw(source, keys)).collect();
            let options = ReadOptions::new().use_filters(side == 0);
            let before = db.stats();
            let took = processor_time(|| {
                for range in &ranges {
                    let range = range.start.as_slice()..range.end.as_slice();
                    let found = db.range_with(black_box(range), &options).keys().count();
                    assert_eq!(found, usize::from(kind == "found"));
                }
            });
            let did = db.stats().since(&before).total();
            entered[side] += did.scan_tables as f64;
            took.as_nanos() as f64 / SCANS as f64
        });
        let [asked, unasked] = paired.medians;
        println!(
            "{name:34} {kind}: {asked:6.0} ns, without filters {unasked:6.0} ns, ratio {:5.3}; \
             tables entered {:7.3} %",
            1.0 / paired.ratio,
            100.0 * entered[0] / entered[1],
        );
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let test = arguments.iter().any(|argument| argument == "--test");
    let count = arguments.iter().find_map(|argument| argument.parse().ok());
    let (count, rounds) = if test { (2_000, 2) } else { (count.unwrap_or(1_000_000), 101) };
    let is_wanted = |shape: &RangeKeys| arguments.iter().any(|word| word == shape.label());
    let all = !RangeKeys::ALL.iter().any(is_wanted);
    for shape in RangeKeys::ALL.into_iter().filter(|shape| all || is_wanted(shape)) {
        let mut source = KeySource::new(shape, count);
        let keys = key_set(&mut source, count);
        for level0 in [false, true] {
            let directory = tempfile::tempdir().expect("directory");
            for cached in [true, false] {
                let path = directory.path().join(if cached { "cached" } else { "cold" });
                let db = database(&path, &keys, BITS, level0, cached);
                let tree = if level0 { "level 0" } else { "settled" };
                let cache = if cached { "cached" } else { "cold" };
                let name = format!("{}, {tree}, {cache}", shape.label());
                for entry in db.iter().keys() {
                    entry.expect("entry");
                }
                compare(&db, &name, &mut source, &keys, rounds);
            }
        }
    }
}
