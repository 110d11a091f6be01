//! The same lookups with each filter layout: how many data blocks does an absent key cost?
//!
//! `cargo run --release --features cli -- demo` measures the same in more depth.

use siftdb::env::MemEnv;
use siftdb::{Filter, FilterLayout, Options};
use std::sync::Arc;

fn main() -> siftdb::Result<()> {
    // Four small databases in memory.
    let disk = Arc::new(MemEnv::without_log());
    let layouts = [
        ("no filter", Filter::none()),
        (
            "per 2 KiB of data",
            Filter::bloom(10.0).layout(FilterLayout::BlockBased { window_bytes: 2048 }),
        ),
        ("one for each table", Filter::bloom(10.0).layout(FilterLayout::Full)),
        (
            "partitions of 4 KiB",
            Filter::bloom(10.0).layout(FilterLayout::Partitioned { block_bytes: 4096 }),
        ),
    ];
    println!("{:<20} {:>12} {:>14} {:>10}", "filters", "data blocks", "index searches", "FPR");
    for (number, (name, filter)) in layouts.into_iter().enumerate() {
        // Four tables that all cover the whole range of keys.
        let options = Options::new().env(disk.clone()).filter(filter).auto_compaction(false);
        let db = options.open(format!("/db-{number}"))?;
        for table in 0..4 {
            for key in (table..20_000).step_by(4) {
                db.put(format!("key{key:06}"), "a value")?;
            }
            db.flush()?;
        }
        let lookups = 10_000;
        for key in 0..lookups {
            assert_eq!(db.get(format!("key{key:06}?"))?, None);
        }
        let total = db.stats().total();
        println!(
            "{name:<20} {:>12.3} {:>14.3} {:>10}",
            total.data_blocks() as f64 / f64::from(lookups),
            total.index_seeks as f64 / f64::from(lookups),
            total.observed_fpr().map_or("-".into(), |fpr| format!("{:.2} %", 100.0 * fpr)),
        );
        db.close()?;
    }
    println!("(each figure per lookup of a key that is not there)");
    Ok(())
}
