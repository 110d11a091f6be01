//! Every encoding in every layout: space, false positives, and what lookups read.
//!
//! *Warm*: filters and indexes are in memory, data is not. *Starved*: a cache of half the bytes of
//! the full FastLocalBloom filters, nothing pinned, and as many lookups before as are counted.

use crate::database::{Database, Pattern, Plan};
use siftdb::{Filter, ReadOptions};
use siftdb_cli::experiment::{Column, Measurement, bytes};

const TABLES: u64 = 16;
const KEYS_MAX: u64 = 1_000_000;

pub fn print(keys: u64) {
    let keys = keys.min(KEYS_MAX);
    let starved_bytes = keys * 10 / 8 / 2;
    println!("{keys} keys; the starved cache has {}", bytes(starved_bytes));
    println!(
        "{:<30} {:>6} {:>8} | {:>16} {:>8} | {:>18} {:>8}",
        "bytes read per lookup",
        "bits",
        "FPR",
        "warm: absent",
        "present",
        "starved: absent",
        "present",
    );
    for (layout_name, column) in [
        ("block-based", Column::BlockBased),
        ("full", Column::Full),
        ("partitioned", Column::Partitioned),
    ] {
        for (encoding, filter) in [
            ("LevelDB Bloom", Filter::leveldb_bloom(10.0)),
            ("legacy Bloom", Filter::legacy_bloom(10.0)),
            ("FastLocalBloom", Filter::bloom(10.0)),
            ("Ribbon", Filter::ribbon(10.0)),
        ] {
            let database = Plan::new(keys, TABLES, column.filter(filter)).build();
            let [absent, present] = warm(&database);
            let [starved_absent, starved_present] = starved(&database, starved_bytes);
            let size =
                |counts: &Measurement| bytes(counts.per_lookup(counts.bytes_read()).round() as u64);
            println!(
                "{:<30} {:>6.2} {:>7.3}% | {:>16} {:>8} | {:>18} {:>8}",
                format!("{encoding}, {layout_name}"),
                database.bits_per_key(),
                100.0 * absent.total.observed_fpr().unwrap_or(1.0),
                size(&absent),
                size(&present),
                size(&starved_absent),
                size(&starved_present),
            );
        }
    }
}

/// Lookups of absent and of present keys that find filters and indexes in memory.
fn warm(database: &Database) -> [Measurement; 2] {
    let keys = database.keys.len() as u64;
    // Partitions are not pinned: the cache keeps them.
    let cache_bytes = database.pinned_bytes() + 3 * database.facts.filter_bytes + (1 << 20);
    [false, true].map(|present| {
        let mut open = database.open(cache_bytes, 0.9);
        // Every 100th key: all partitions are asked.
        open.look_up((0..keys as usize).step_by(100), false);
        open.read = ReadOptions::new().fill_cache(false);
        open.draw(Pattern::Even, keys.min(100_000), present)
    })
}

fn starved(database: &Database, cache_bytes: u64) -> [Measurement; 2] {
    let count = (database.keys.len() as u64 / 10).min(10_000);
    [false, true].map(|present| {
        let open = database.open(cache_bytes, 0.0);
        open.draw(Pattern::Even, count, present);
        open.draw(Pattern::Even, count, present)
    })
}
