//! The advice on memory is right: lookups read what it says, under a simulated page cache.

use crate::support::page_cache::PageCacheEnv;
use crate::support::rng::Rng;
use crate::support::settled::{KEYS, fill};
use crate::support::stores::{HOME, as_env};
use siftdb::env::MemEnv;
use siftdb::{Db, Filter, FilterLayout, Options};
use siftdb_cli::memory_advice::{MemoryAdvice, PagesRead, advice};
use std::ops::Range;
use std::sync::Arc;

const LOOKUPS: usize = 30_000;
/// Bytes of an entry.
const ENTRY_BYTES: u64 = 16 + 100;

/// Even numbers are present, odd ones are not.
fn key(number: usize) -> String {
    format!("{:016}", 2 * number)
}

/// A settled level under two tables of level 0, with these options and values.
fn filled(options: &Options, random_bytes: usize) -> MemEnv {
    let disk = MemEnv::new();
    fill(&disk, options, |number| key(number).into_bytes(), random_bytes);
    disk
}

/// Pages that lookups read of a database with a block cache and a page cache of these bytes, and what the
/// advice says about that.
fn measured_and_advised(disk: &MemEnv, memory: u64, cache: u64) -> (PagesRead, MemoryAdvice) {
    let env = PageCacheEnv::new(as_env(disk), memory - cache);
    let options = Options::new().auto_compaction(false).block_cache_bytes(cache);
    let db: Db = options.env(Arc::new(env.clone())).open(HOME).unwrap();
    let keyspace = db.keyspace("default").unwrap();
    let advised = advice(&keyspace.tables(), &db.filter_report(), memory, cache);
    let mut rng = Rng::new(3);
    let mut pages = |lookups: usize, lookup: &dyn Fn(&mut Rng)| {
        (0..lookups).for_each(|_| lookup(&mut rng));
        env.take();
        (0..lookups).for_each(|_| lookup(&mut rng));
        env.take().pages as f64 / lookups as f64
    };
    let present = pages(LOOKUPS, &|rng| assert!(db.get(key(rng.below(KEYS))).unwrap().is_some()));
    // More of them, since only false positives fill the caches.
    let absent = pages(4 * LOOKUPS, &|rng| {
        let absent = format!("{}{:x}", key(rng.below(KEYS)), rng.next());
        assert_eq!(db.get(absent).unwrap(), None);
    });
    (PagesRead { absent, present }, advised)
}

/// What an advice may be off by: 15 %.
const EXACT: Range<f64> = 0.85..1.15;

fn assert_right(what: &str, advised: PagesRead, measured: PagesRead) {
    for (advised, measured) in
        [(advised.absent, measured.absent), (advised.present, measured.present)]
    {
        let ratio = advised / measured;
        assert!(EXACT.contains(&ratio), "{what}: {advised} advised, {measured} measured");
    }
}

#[test]
fn lookups_read_what_the_advice_says() {
    let base = Options::new().table_bytes(1 << 20);
    let unfiltered = base.clone().filter_last_level(false);
    let large_blocks = base.clone().block_bytes(16 << 10);
    // The part of the data that is memory, and the part of the memory that is the block cache.
    for (what, options, random_bytes, part, cache_part) in [
        ("a fifth", &base, 100, 5, 8),
        ("a twentieth", &base, 100, 20, 8),
        ("compressed blocks", &base, 40, 10, 8),
        ("large blocks", &large_blocks, 100, 5, 4),
        ("no filter at the last level", &unfiltered, 100, 5, 2),
    ] {
        let memory = KEYS as u64 * ENTRY_BYTES / part;
        let disk = filled(options, random_bytes);
        let (measured, advised) = measured_and_advised(&disk, memory, memory / cache_part);
        assert_right(what, advised.pages, measured);
        let data = &advised.parts[2];
        assert!(data.name == "data" && data.in_memory < 0.5, "{advised:?}");
    }
}

/// What a change says is what the advice says after it, and lookups read that.
#[test]
fn a_change_saves_what_the_advice_says() {
    let disk = filled(&Options::new().table_bytes(1 << 20), 40);
    let memory = KEYS as u64 * ENTRY_BYTES / 5;
    let (before, advised) = measured_and_advised(&disk, memory, memory / 2);
    let [change] = &advised.changes[..] else { panic!("{advised:?}") };
    let cache = change.setting.strip_prefix("Options::block_cache_bytes(");
    let cache: u64 = cache.unwrap().strip_suffix(")").unwrap().parse().unwrap();
    let (measured, after) = measured_and_advised(&disk, memory, cache);
    assert_eq!(after.pages, change.pages);
    assert_right(&change.setting, after.pages, measured);
    assert!(measured.present < 0.95 * before.present, "{before:?} {measured:?}");
}

/// One table whose filter and index are read whole.
#[test]
fn what_is_read_whole_and_does_not_fit_is_advised_partitions() {
    let full = || Filter::bloom(10.0).layout(FilterLayout::Full);
    let options = Options::new().index_partition_bytes(0);
    let options = (0..7).fold(options, |options, level| options.filter_at_level(level, full()));
    let disk = filled(&options, 100);
    let memory = KEYS as u64 * ENTRY_BYTES / 40;
    let db = options.block_cache_bytes(memory / 2).env(as_env(&disk)).open(HOME).unwrap();
    let tables = db.keyspace("default").unwrap().tables();
    let advised = advice(&tables, &db.filter_report(), memory, memory / 2);
    let settings: Vec<_> = advised.changes.iter().map(|change| &change.setting[..14]).collect();
    assert!(settings.contains(&"Filter::layout"), "{advised:?}");
    assert!(settings.contains(&"Options::index"), "{advised:?}");
}
