//! What the benchmarks share: the keys, the databases, the settings.
//!
//! Keys are the 16 hex digits of a mixed 64-bit index, values 100 bytes. Present keys have even
//! indexes, absent ones odd, so that absent keys fall between present ones. `SIFTDB_BENCH_KEYS`
//! sets the number of keys (default 200,000; the budgets are stated at 1,000,000).
#![allow(dead_code)]

use siftdb::{Db, Filter, FilterLayout, Options, WriteBatch};
use std::path::Path;

/// Number of keys.
pub fn key_count() -> u64 {
    std::env::var("SIFTDB_BENCH_KEYS").ok().and_then(|n| n.parse().ok()).unwrap_or(200_000)
}

/// A reversible mixer: distinct indexes give distinct keys.
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The 16-byte key of an index.
pub fn key(index: u64) -> [u8; 16] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mixed = mix(index);
    std::array::from_fn(|place| DIGITS[(mixed >> (60 - 4 * place) & 15) as usize])
}

/// The key of the `n`-th present entry.
pub fn present(n: u64) -> [u8; 16] {
    key(2 * n)
}

/// A key that falls between present ones.
pub fn absent(n: u64) -> [u8; 16] {
    key(2 * n + 1)
}

/// 100 bytes, half of them compressible.
pub fn value(n: u64) -> Vec<u8> {
    let mut bytes = vec![b'v'; 100];
    for (place, chunk) in bytes[..48].chunks_mut(8).enumerate() {
        chunk.copy_from_slice(&mix(n ^ (place as u64) << 56).to_le_bytes());
    }
    bytes
}

/// The layouts that the benchmarks compare, with names for the report.
pub fn layouts() -> [(&'static str, Filter); 4] {
    let bloom = || Filter::bloom(10.0);
    [
        ("none", Filter::none()),
        ("block-based", bloom().layout(FilterLayout::BlockBased { window_bytes: 2048 })),
        ("full", bloom().layout(FilterLayout::Full)),
        ("partitioned", bloom().layout(FilterLayout::Partitioned { block_bytes: 4096 })),
    ]
}

/// The settings of performance comparisons: raw blocks, a cache larger than the data.
pub fn options() -> Options {
    Options::new().snappy(false).block_cache_bytes(1 << 30)
}

/// Loads all keys in random order, in batches of 100.
pub fn load(db: &Db, keys: u64) {
    let mut batch = WriteBatch::new();
    for n in 0..keys {
        batch.put(present(n), value(n));
        if batch.len() == 100 {
            db.write(std::mem::take(&mut batch)).expect("load");
        }
    }
    db.write(batch).expect("load");
}

/// A database of all keys, flushed and compacted to one level.
pub fn settled(directory: &Path, options: Options, keys: u64) -> Db {
    let db = options.open(directory).expect("open");
    load(&db, keys);
    db.compact_range(..).expect("compact");
    db
}

/// A database whose keys lie in `tables` overlapping tables of level 0.
pub fn level0(directory: &Path, options: Options, keys: u64, tables: u64) -> Db {
    let db = options.auto_compaction(false).open(directory).expect("open");
    for table in 0..tables {
        let mut batch = WriteBatch::new();
        for n in (table..keys).step_by(tables as usize) {
            batch.put(present(n), value(n));
            if batch.len() == 100 {
                db.write(std::mem::take(&mut batch)).expect("load");
            }
        }
        db.write(batch).expect("load");
        db.flush().expect("flush");
    }
    db
}

/// Indexes in an order without pattern, for ever.
pub fn random_indexes(keys: u64) -> impl Iterator<Item = u64> {
    (1..).map(move |step: u64| mix(step.wrapping_mul(0x9e37_79b9_7f4a_7c15)) % keys)
}
