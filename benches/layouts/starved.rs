//! Filters that come and go through a cache smaller than they are.
//!
//! Nothing is pinned, so the cache alone decides what stays. Each row first makes its lookups
//! once to fill the cache, and is counted over as many others.

use crate::database::{Database, Pattern, Plan, full, partitioned};
use siftdb::Filter;
use siftdb_cli::experiment::{Measurement, bytes};

const TABLES: u64 = 16;

/// The lookups of a row.
fn lookups(keys: u64) -> u64 {
    (keys / 10).clamp(500, 50_000)
}

pub fn print(keys: u64) {
    let databases = [full(10.0), partitioned(10.0)].map(|f| Plan::new(keys, TABLES, f).build());
    let filter_bytes = databases[0].facts.filter_bytes;
    let stored = databases.each_ref().map(|database| bytes(database.facts.filter_bytes));
    println!("filters: full {}, partitioned {}", stored[0], stored[1]);
    println!(
        "{:>8} {:>18} | {:>9} {:>14} {:>12} | {:>9} {:>14} {:>12}",
        "lookups",
        "cache / filters",
        "full: hit",
        "reads/lookup",
        "bytes/lookup",
        "part.: hit",
        "reads/lookup",
        "bytes/lookup",
    );
    for (name, pattern) in [("even", Pattern::Even), ("skewed", Pattern::Skewed)] {
        for (share, percent) in [(1, 12), (2, 25), (4, 50), (8, 100), (16, 200)] {
            print!("{name:>8} {percent:>16} %");
            for database in &databases {
                let counts = counted(database, filter_bytes * share / 8, pattern, false);
                print!(
                    " | {:>8.1}% {:>14.3} {:>12}",
                    100.0 * filter_hit_rate(&counts),
                    counts.per_lookup(counts.total.filter_blocks_read),
                    bytes(counts.per_lookup(counts.total.filter_bytes_read).round() as u64),
                );
            }
            println!();
        }
    }
}

/// The share of filter blocks that the cache had.
fn filter_hit_rate(counts: &Measurement) -> f64 {
    let cached = counts.total.filter_blocks_cached;
    cached as f64 / (cached + counts.total.filter_blocks_read).max(1) as f64
}

fn counted(database: &Database, cache_bytes: u64, pattern: Pattern, present: bool) -> Measurement {
    let open = database.open(cache_bytes, 0.0);
    let keys = database.keys.len() as u64;
    let count = lookups(keys);
    // One sequence of lookups is split: its first half fills the cache.
    let mut places = pattern.places(keys, 2 * count);
    let filling: Vec<usize> = places.by_ref().take(count as usize).collect();
    open.look_up(filling.into_iter(), present);
    open.look_up(places, present)
}

pub fn alternatives(keys: u64) {
    let plan = |filter: Filter, block_bytes| {
        Plan { block_bytes, ..Plan::new(keys, TABLES, filter) }.build()
    };
    let usual = plan(full(10.0), 4 << 10);
    let cache_bytes = (usual.facts.filter_bytes + usual.facts.index_bytes) / 2;
    drop(usual);
    println!("a cache of {}, half of the first row's filters and indexes", bytes(cache_bytes));
    println!(
        "{:<26} {:>8} {:>8} {:>7} | {:>12} {:>9} | {:>13} {:>9}",
        "", "filters", "indexes", "FPR", "absent: reads", "bytes", "present: reads", "bytes",
    );
    for (name, filter, block_bytes) in [
        ("full, 10 bits, 4 KB", full(10.0), 4 << 10),
        ("full, 5 bits, 4 KB", full(5.0), 4 << 10),
        ("full, 3 bits, 4 KB", full(3.0), 4 << 10),
        ("full, 10 bits, 32 KB", full(10.0), 32 << 10),
        ("full, 5 bits, 32 KB", full(5.0), 32 << 10),
        ("partitioned, 10 bits, 4 KB", partitioned(10.0), 4 << 10),
        ("partitioned, 10 bits, 32 KB", partitioned(10.0), 32 << 10),
        ("no filter, 4 KB", Filter::none(), 4 << 10),
    ] {
        let database = plan(filter, block_bytes);
        let absent = counted(&database, cache_bytes, Pattern::Even, false);
        let present = counted(&database, cache_bytes, Pattern::Even, true);
        let fpr = absent.total.observed_fpr().unwrap_or(1.0);
        print!(
            "{name:<26} {:>8} {:>8} {:>6.2}%",
            bytes(database.facts.filter_bytes),
            bytes(database.facts.index_bytes),
            100.0 * fpr,
        );
        for counts in [absent, present] {
            let size = bytes(counts.per_lookup(counts.bytes_read()).round() as u64);
            print!(" | {:>13.3} {size:>9}", counts.per_lookup(counts.blocks_read()));
        }
        println!();
    }
}
