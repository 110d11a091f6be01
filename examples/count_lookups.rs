//! Lookups of one kind in one filter layout, in a function of their own, for a profiler that counts
//! instructions:
//!
//! ```console
//! $ cargo build --release --example count_lookups
//! $ valgrind --tool=callgrind --callgrind-out-file=/dev/null \
//!     --toggle-collect='*count_lookups::lookups*' target/release/examples/count_lookups full hit
//! ```
//!
//! prints the instructions of 10,000 lookups as "Collected". Layouts: `none`, `block-based`, `full`
//! (the default), `partitioned`. Kinds: `hit` (the default), `miss`, `cold` (a hit whose block is
//! in no cache of siftdb), `first` (one hit, the first call after opening; `.ci/cold_get` traces
//! it). A number after the kind puts the keys into that many tables of level 0, instead of one
//! settled table (0). A second number makes that many further keyspaces of one entry each.

use siftdb::{Filter, FilterLayout, Keyspace, Options, ReadOptions};
use std::hint::black_box;

const KEYS: u64 = 100_000;
const LOOKUPS: u64 = 10_000;

fn key(n: u64, absent: bool) -> String {
    let key = format!("{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    if absent { format!("{}~", &key[..15]) } else { key }
}

/// The counted function. It takes no closure, because a profiler would count that as a second call.
#[inline(never)]
fn lookups(db: &Keyspace, keys: &[String], options: &ReadOptions) -> usize {
    let mut found = 0;
    for key in keys {
        found += usize::from(matches!(db.get_with(black_box(key), options), Ok(Some(_))));
    }
    found
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let layout = arguments.next().unwrap_or("full".into());
    let kind = arguments.next().unwrap_or("hit".into());
    let bloom = Filter::bloom(10.0);
    let filter = match &layout[..] {
        "none" => Filter::none(),
        "block-based" => bloom.layout(FilterLayout::BlockBased { window_bytes: 2048 }),
        "full" => bloom.layout(FilterLayout::Full),
        "partitioned" => bloom.layout(FilterLayout::Partitioned { block_bytes: 4096 }),
        other => return Err(format!("unknown layout {other}").into()),
    };
    let level0 = arguments.next().map_or(Ok(0), |tables| tables.parse::<u64>())?;
    let keyspaces = arguments.next().map_or(Ok(0), |number| number.parse::<u64>())?;
    let (absent, cold, first) = (kind == "miss", kind == "cold", kind == "first");
    // A trace needs one lookup of a small database.
    let (key_count, lookup_count) = if first { (1_000, 1) } else { (KEYS, LOOKUPS) };
    let directory = tempfile::tempdir()?;
    let open = Options::new().filter(filter).auto_compaction(false);
    let mut db = open.clone().open(directory.path())?;
    (0..keyspaces).try_for_each(|n| db.keyspace(&n.to_string())?.put("key", "value"))?;
    for n in 0..key_count {
        db.put(key(n, false), [b'v'; 100])?;
        if level0 > 0 && (n + 1) % key_count.div_ceil(level0) == 0 {
            db.flush()?;
        }
    }
    if level0 == 0 {
        db.compact_range(..)?
    } else {
        db.flush()?
    };
    let options = ReadOptions::new().fill_cache(!cold);
    let keys: Vec<String> = (0..lookup_count).map(|i| key(i * 7919 % key_count, absent)).collect();
    if first {
        db.close()?;
        db = open.open(directory.path())?;
    } else {
        // Filters and partitions are in the cache from here on, and the data of hits.
        for n in (0..KEYS).chain(0..KEYS) {
            db.get_with(key(n, absent || cold), &options)?;
        }
    }
    let found = lookups(&db, &keys, &options);
    println!("{layout} {kind}: found {found} of {lookup_count}");
    Ok(())
}
