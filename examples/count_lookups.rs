//! Lookups, scans or puts of one kind in one filter layout, in a function of their own, for a
//! profiler that counts instructions and cache lines. `.ci/count_lines` runs it and prints a table:
//!
//! ```console
//! $ .ci/count_lines full hit          # one row; without arguments, every row
//! ```
//!
//! By hand, `count_lookups make DIRECTORY LAYOUT [TABLES [KEYSPACES]]` makes a database:
//! `SIFTDB_COUNT_KEYS` keys (a million) of 16 bytes with values of 100, in one settled level, or in
//! that many tables of level 0. The second number makes that many further keyspaces of one entry.
//! Layouts: `none`, `block-based`, `full`, `partitioned`, and `ranges`: full, and a range filter.
//!
//! `count_lookups DIRECTORY KIND` then warms the cache and calls `counted_…` for each operation.
//! Kinds: `miss`, `hit`, `cold` (a hit whose block is in no cache of siftdb), `first` (one hit, the
//! first call after opening; `.ci/cold_get` traces it), `scan10`, `scan100`, `scan` (all entries),
//! `cursor10`, `cursor100`, `cursor` (the same by a cursor), `gap` and `gap-off` (a range without
//! keys, with filters and without), `near` and `near-off` (a range of one key), `put` (new keys),
//! `get-put` and `transact` (both of one key, as two calls and as a transaction). It prints how many operations
//! were counted; a full scan counts by the entry. Without arguments every kind runs on a thousand keys.

use siftdb::{Db, Filter, FilterLayout, Keyspace, Options, ReadOptions};
use std::hint::black_box;
use std::path::Path;

const OPERATIONS: u64 = 20_000;

type Error = Box<dyn std::error::Error>;
type Key = [u8; 16];

fn key(n: u64, absent: bool) -> Key {
    let digits = format!("{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut key: Key = digits.as_bytes().try_into().unwrap_or_default();
    if absent {
        key[15] = b'~';
    }
    key
}

/// Lookups that are counted, of keys that the processor has at hand.
#[inline(never)]
fn counted_lookups(db: &Keyspace, keys: &[Key], options: &ReadOptions) -> u64 {
    let mut found = 0;
    for key in keys {
        found += u64::from(matches!(db.get_with(black_box(key), options), Ok(Some(_))));
    }
    found
}

/// Scans that are counted: `entries` entries from each key on, of which the last byte is read.
#[inline(never)]
fn counted_scans(db: &Keyspace, keys: &[Key], entries: usize) -> u64 {
    let mut found = 0;
    for key in keys {
        for entry in db.range(&black_box(key)[..]..).take(entries).flatten() {
            found += u64::from(entry.1.last() == Some(&b'v'));
        }
    }
    found
}

/// Short ranges that are counted, from each key up to the key with one byte more.
#[inline(never)]
fn counted_ranges(db: &Keyspace, keys: &[Key], options: &ReadOptions) -> u64 {
    let mut found = 0;
    for key in keys {
        let mut end = [0xff; 17];
        end[..16].copy_from_slice(key);
        let range = black_box(&key[..])..black_box(&end[..]);
        found += db.range_with(range, options).count() as u64;
    }
    found
}

/// The same by a cursor, which lends its entries.
#[inline(never)]
fn counted_cursors(db: &Keyspace, keys: &[Key], entries: usize) -> Result<u64, siftdb::Error> {
    let mut found = 0;
    for key in keys {
        let mut cursor = db.cursor();
        cursor.seek(black_box(key))?;
        for step in 1..=entries {
            let Some((_, value)) = cursor.entry() else { break };
            found += u64::from(value.last() == Some(&b'v'));
            if step < entries {
                cursor.next()?;
            }
        }
    }
    Ok(found)
}

/// Puts that are counted.
#[inline(never)]
fn counted_puts(db: &Keyspace, keys: &[Key]) -> u64 {
    let mut done = 0;
    for key in keys {
        done += u64::from(db.put(black_box(key), [b'v'; 100]).is_ok());
    }
    done
}

/// A get and a put of each key that are counted, in a transaction or as two calls.
#[inline(never)]
fn counted_updates(db: &Keyspace, keys: &[Key], transact: bool) -> Result<u64, siftdb::Error> {
    let mut found = 0;
    for key in keys {
        let key = black_box(key);
        found += u64::from(match transact {
            true => db.transact(|tx| {
                let found = tx.get(key)?.is_some();
                tx.put(key, [b'v'; 100]).map(|()| found)
            })?,
            false => {
                let found = db.get(key)?.is_some();
                db.put(key, [b'v'; 100]).map(|()| found)?
            }
        });
    }
    Ok(found)
}

fn filter(layout: &str) -> Result<Filter, Error> {
    let bloom = Filter::bloom(10.0);
    Ok(match layout {
        "none" => Filter::none(),
        "block-based" => bloom.layout(FilterLayout::BlockBased { window_bytes: 2048 }),
        "full" => bloom.layout(FilterLayout::Full),
        "ranges" => bloom.layout(FilterLayout::Full).ranges(12.0),
        "partitioned" => bloom.layout(FilterLayout::Partitioned { block_bytes: 4096 }),
        other => return Err(format!("unknown layout {other}").into()),
    })
}

fn open() -> Options {
    Options::new().auto_compaction(false).snappy(false).block_cache_bytes(1 << 30)
}

fn make(directory: &Path, numbers: &[u64], layout: &str, keys: u64) -> Result<(), Error> {
    let level0 = numbers.first().copied().unwrap_or(0);
    let keyspaces = numbers.get(1).copied().unwrap_or(0);
    let db = open().filter(filter(layout)?).open(directory)?;
    (0..keyspaces).try_for_each(|n| db.keyspace(&n.to_string())?.put("key", "value"))?;
    for n in 0..keys {
        db.put(key(n, false), [b'v'; 100])?;
        if level0 > 0 && (n + 1) % keys.div_ceil(level0) == 0 {
            db.flush()?;
        }
    }
    if level0 == 0 {
        db.compact_range(..)?
    } else {
        db.flush()?
    };
    Ok(db.close()?)
}

/// Brings filters and indexes into the cache, and the data unless `cold`.
fn warm(db: &Db, keys: u64, cold: bool) -> Result<(), Error> {
    let options = ReadOptions::new().fill_cache(!cold);
    for n in 0..keys.min(20_000) {
        db.get_with(key(n * 7919 % keys, cold), &options)?;
    }
    if !cold {
        // The second time every block is found in its slot.
        for _ in 0..2 {
            db.iter().try_for_each(|entry| entry.map(drop))?;
        }
        // Empty ranges read the partitions of a range filter.
        for n in 2 * keys..2 * keys + 20_000 {
            let key = key(n, true);
            db.range(key..=key).try_for_each(|entry| entry.map(drop))?;
        }
    }
    Ok(())
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let keys: u64 = match std::env::var("SIFTDB_COUNT_KEYS") {
        Ok(keys) => keys.parse()?,
        Err(_) => 1_000_000,
    };
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["make", directory, layout, ref numbers @ ..] => {
            let numbers: Result<Vec<u64>, _> = numbers.iter().map(|n| n.parse()).collect();
            make(Path::new(directory), &numbers?, layout, keys)
        }
        [directory, kind] => count(Path::new(directory), kind, keys),
        [] => {
            let directory = std::env::temp_dir().join(format!("siftdb-{}", std::process::id()));
            let mut done = make(&directory, &[], "full", 1_000);
            let kinds = "miss hit cold first scan10 scan100 scan cursor10 cursor100 cursor gap \
                         gap-off near near-off put get-put transact";
            for kind in kinds.split(' ') {
                print!("{kind}: ");
                done = done.and_then(|()| count(&directory, kind, 1_000));
            }
            std::fs::remove_dir_all(&directory)?;
            done
        }
        _ => Err("usage: count_lookups [make DIRECTORY LAYOUT | DIRECTORY KIND]".into()),
    }
}

/// Makes the operations of `kind`, between the calls that a profiler counts.
fn count(directory: &Path, kind: &str, keys: u64) -> Result<(), Error> {
    let db = open().open(directory)?;
    if kind == "first" {
        let found = counted_lookups(&db, &[key(1, false)], &ReadOptions::new());
        println!("found {found} of 1");
        return Ok(());
    }
    let (absent, cold) = (kind == "miss", kind == "cold");
    let is_gap = kind.starts_with("gap");
    if kind == "put" {
        // The memtable is larger than the processor's caches from here on.
        (2 * keys..2 * keys + 100_000).try_for_each(|n| db.put(key(n, false), [b'v'; 100]))?;
    } else {
        warm(&db, keys, cold)?;
    }
    let options = ReadOptions::new().fill_cache(!cold);
    let mut operations = 0;
    let operations_wanted = match kind {
        "scan" | "cursor" => 1,
        "scan100" | "cursor100" => OPERATIONS / 20,
        _ => OPERATIONS,
    };
    // A chunk of keys stays in the processor's first cache, so they cost no misses.
    let mut chunk = Vec::new();
    for i in 0..operations_wanted {
        // New keys of a put, and those of a gap, are in no order.
        let new = kind == "put" || is_gap;
        let n = if new { keys + i } else { (i + 30_000) * 7919 % keys };
        chunk.push(key(n, absent));
        if chunk.len() < 500 && i + 1 < operations_wanted {
            continue;
        }
        operations += match kind {
            "scan" => counted_scans(&db, &[Key::default()], usize::MAX),
            "scan10" | "scan100" => {
                counted_scans(&db, &chunk, kind[4..].parse()?);
                chunk.len() as u64
            }
            "cursor" => counted_cursors(&db, &[Key::default()], usize::MAX)?,
            "cursor10" | "cursor100" => {
                counted_cursors(&db, &chunk, kind[6..].parse()?)?;
                chunk.len() as u64
            }
            "put" => counted_puts(&db, &chunk),
            "get-put" | "transact" => counted_updates(&db, &chunk, kind == "transact")?,
            "hit" | "miss" | "cold" | "gap" | "gap-off" | "near" | "near-off" => {
                let found = match kind {
                    "hit" | "miss" | "cold" => counted_lookups(&db, &chunk, &options),
                    _ => {
                        let use_filters = !kind.ends_with("-off");
                        counted_ranges(&db, &chunk, &ReadOptions::new().use_filters(use_filters))
                    }
                };
                let wanted = if absent || is_gap { 0 } else { chunk.len() as u64 };
                if found != wanted {
                    return Err(format!("found {found} of {wanted}").into());
                }
                chunk.len() as u64
            }
            other => return Err(format!("unknown kind {other}").into()),
        };
        chunk.clear();
    }
    println!("counted {operations}");
    Ok(())
}
