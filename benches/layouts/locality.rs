//! The cost of partitions where they do not help: one more read if the top-level index is not in
//! memory, and many small reads instead of one full filter.

use crate::database::{Database, Pattern, Plan, full, partitioned};
use siftdb_cli::experiment::{Measurement, bytes};

/// One table; only what a row names stays in memory between lookups.
pub fn top_level(keys: u64) {
    println!("{:<44} {:>12} {:>12} {:>12}", "", "filter reads", "bytes", "index reads");
    let (whole, parts) =
        (Plan::new(keys, 1, full(10.0)).build(), Plan::new(keys, 1, partitioned(10.0)).build());
    // A reservation for twice the top level's bytes, and room for nothing else.
    let top_only = 2 * parts.top_level_bytes + 64;
    for (name, database, cache_bytes, pinned_share) in [
        ("full, nothing in memory", &whole, 0, 0.0),
        ("full, pinned", &whole, 1 << 40, 1.0),
        ("partitioned, nothing in memory", &parts, 0, 0.0),
        ("partitioned, top level pinned, nothing else", &parts, top_only, 1.0),
        ("partitioned, top level pinned, a cache", &parts, 1 << 40, 1.0),
    ] {
        let open = database.open(cache_bytes, pinned_share);
        let count = (keys / 10).min(2_000);
        open.draw(Pattern::Even, 20 * count * u64::from(cache_bytes > top_only), false);
        let counts = open.draw(Pattern::Even, count, false);
        println!(
            "{name:<44} {:>12.3} {:>12} {:>12.3}",
            counts.per_lookup(counts.total.filter_blocks_read),
            bytes(counts.per_lookup(counts.total.filter_bytes_read).round() as u64),
            counts.per_lookup(counts.total.index_blocks_read),
        );
    }
}

/// A few keys of one table, looked up again and again: drawn from all, or neighbours.
pub fn hot_keys(keys: u64) {
    println!(
        "{:<26} {:>9} | {:>18} {:>9} | {:>18}",
        "", "hot keys", "first: filter reads", "bytes", "again: cache look-ups",
    );
    for (name, filter, pinned_share) in [
        ("full, pinned", full(10.0), 0.5),
        ("full, cached", full(10.0), 0.0),
        ("partitioned, cached", partitioned(10.0), 0.0),
    ] {
        let database = Plan::new(keys, 1, filter).build();
        for (order, step) in [("drawn", keys / 1_000), ("neighbours", 1)] {
            for hot in [10, 100, 1_000] {
                let places = move || (0..hot).map(move |i| (i * step.max(1)) as usize);
                let (first, again) = twice(&database, pinned_share, places);
                println!(
                    "{name:<20} {order:>10} {hot:>5} | {:>18} {:>9} | {:>18.1}",
                    first.total.filter_blocks_read,
                    bytes(first.total.filter_bytes_read),
                    again.per_lookup(again.total.filter_blocks_cached),
                );
            }
        }
    }
}

/// The same keys from a cold cache that is large enough, and once more.
fn twice<I: Iterator<Item = usize>>(
    database: &Database,
    pinned_share: f64,
    places: impl Fn() -> I,
) -> (Measurement, Measurement) {
    let open = database.open(1 << 30, pinned_share);
    (open.look_up(places(), true), open.look_up(places(), true))
}
