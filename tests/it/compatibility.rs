//! Tables of every filter, read under the options of every other; and the reads of a lookup in each
//! layout without a cache.
//!
//! A table names its own filter, so options decide the filter of new tables and never how old ones
//! are asked. Right answers do not prove that, because a filter that is never asked gives them too.
//! The counters prove it.

use crate::support::data::{absent_key, bytes, key};
use crate::support::filters::{Marks, NamedFilter, all_filters};
use crate::support::stores::{as_env, copy_of, files, open};
use siftdb::env::CountingEnv;
use siftdb::env::MemEnv;
use siftdb::{Db, LevelStats, Options};
use std::sync::Arc;

const KEYS: usize = 400;

fn put(db: &Db, numbers: impl Iterator<Item = usize>) {
    for number in numbers {
        db.put(key(number), bytes(number as u64, 40)).unwrap();
    }
    db.flush().unwrap();
}

fn options(filter: &NamedFilter) -> Options {
    let options =
        Options::new().filter(filter.filter.clone()).register_filter_policy(Arc::new(Marks));
    options.auto_compaction(false).block_bytes(512).write_buffer_bytes(64 << 10)
}

/// Looks up present and absent keys; returns what was counted at level 0.
fn look_up(db: &Db, numbers: impl Iterator<Item = usize>, place: &str) -> LevelStats {
    let before = db.stats();
    for number in numbers {
        let expected = bytes(number as u64, 40);
        let found = db.get(key(number)).unwrap();
        assert_eq!(found.as_deref(), Some(&expected[..]), "{place}: key {number}");
        assert_eq!(db.get(absent_key(number)).unwrap(), None, "{place}: absent key {number}");
    }
    let stats = db.stats().since(&before);
    assert_eq!(stats.filter_errors, 0, "{place}");
    stats.total()
}

#[test]
fn every_filter_is_read_under_other_options() {
    let filters = all_filters();
    for written in &filters {
        let env = MemEnv::new();
        let db = open(&env, &options(written)).unwrap();
        put(&db, 0..KEYS);
        db.close().unwrap();
        drop(db);
        let image = files(&env);
        for read in &filters {
            let place = format!("{}, opened with {}", written.name, read.name);
            let env = copy_of(&image);
            let db = open(&env, &options(read)).unwrap();
            // Not the last key: no table is asked about keys after it.
            let asked = KEYS / 8 - 1;
            let total = look_up(&db, (0..asked).map(|i| i * 8), &place);
            check_asked(&total, asked as u64, written, &place);

            // A second table with the new filter, over the same keys as the old one.
            put(&db, (4..KEYS).step_by(8));
            let total = look_up(&db, (0..asked).map(|i| 4 + i * 8), &place);
            let filtered = [written, read].map(|one| one.fpr_max.is_some());
            let asked = asked as u64;
            // The new table has the present keys. Absent keys are looked for in both tables.
            let not_consulted = asked
                * match filtered {
                    [true, true] => 0,
                    [false, true] => 1,
                    [true, false] => 2,
                    [false, false] => 3,
                };
            assert_eq!(total.not_consulted, not_consulted, "{place}, two tables");
            let positives = if filtered[1] { asked } else { 0 };
            assert_eq!(total.true_positives, positives, "{place}, two tables");
        }
    }
}

/// `asked` present and `asked` absent keys in one table: the filter was asked for all of them, and
/// denied nearly all absent ones.
fn check_asked(total: &LevelStats, asked: u64, written: &NamedFilter, place: &str) {
    if written.fpr_max.is_none() {
        assert_eq!(total.not_consulted, 2 * asked, "{place}");
        return;
    }
    assert_eq!((total.true_positives, total.not_consulted), (asked, 0), "{place}");
    assert_eq!(total.negatives + total.false_positives, asked, "{place}");
    assert!(total.false_positives <= 4, "{place}: {} let through", total.false_positives);
    assert_eq!(total.data_blocks(), asked + total.false_positives, "{place}");
}

/// Nothing is pinned or cached. A lookup of a present key reads every block on its way; a lookup of
/// an absent key stops at the filter. The file system counts the reads. LevelDB and RocksDB allow
/// themselves 2 % more for present keys and 3 % for absent ones.
#[test]
fn lookups_read_the_blocks_of_their_layout() {
    let count = 10_000u64;
    for filter in all_filters() {
        let counting = CountingEnv::new(as_env(&MemEnv::new()));
        let options = Options::new()
            .filter(filter.filter.clone())
            .block_cache_bytes(0)
            .filter_pinned_share(0.0)
            .block_bytes(512)
            .auto_compaction(false)
            .env(Arc::new(counting.clone()));
        let db = options.open("/db").unwrap();
        put(&db, 0..count as usize);
        let name = filter.name.as_str();
        // Filter blocks, the index, the data block; for an absent key the reads before the "no".
        let (present_each, absent_each) = match name {
            "none" => (2, 2),
            _ if name.ends_with("block-based") => (3, 2),
            _ if name.ends_with("full") => (3, 1),
            _ => (4, 2),
        };
        // A sample, since each lookup reads whole filters and indexes; the last key is left out.
        let sample = || (0..count as usize - 1).step_by(20);
        let lookups = sample().count() as u64;
        let mut reads = [0; 2];
        for (reads, make) in reads.iter_mut().zip([key as fn(usize) -> Vec<u8>, absent_key]) {
            let before = counting.counts().read_calls;
            for number in sample() {
                db.get(make(number)).unwrap();
            }
            *reads = counting.counts().read_calls - before;
        }
        let total = db.stats().total();
        let positives = total.true_positives + total.false_positives;
        let [present, absent] = reads;
        assert_eq!(present, present_each * lookups, "{name}: present keys");
        assert!(absent >= absent_each * lookups, "{name}: {absent} reads for absent keys");
        let most = absent_each * lookups + lookups * if name == "none" { 0 } else { 6 } / 100;
        assert!(absent <= most, "{name}: {absent} reads of {lookups} absent keys");
        // The filter was asked in each lookup, and each answer has one of these counters.
        if filter.fpr_max.is_some() {
            assert_eq!(total.negatives + positives, 2 * lookups, "{name}");
            assert_eq!((total.true_positives, total.unresolved), (lookups, 0), "{name}");
        }
    }
}

/// Hits never count as avoided, and nearly all misses do.
#[test]
fn present_keys_are_found_in_every_combination() {
    let count = 10_000;
    for filter in all_filters().into_iter().skip(1) {
        let db = open(&MemEnv::new(), &Options::new().filter(filter.filter)).unwrap();
        put(&db, 0..count);
        let counted = |make: fn(usize) -> Vec<u8>| {
            let before = db.stats();
            (0..count - 1).for_each(|number| drop(db.get(make(number)).unwrap()));
            db.stats().since(&before).total()
        };
        let (hits, misses) = (counted(key), counted(absent_key));
        let asked = count as u64 - 1;
        let name = &filter.name;
        assert_eq!((hits.negatives, hits.true_positives), (0, asked), "{name}");
        assert_eq!((hits.false_positives, hits.data_blocks_avoided()), (0, 0), "{name}");
        assert_eq!(misses.negatives + misses.false_positives, asked, "{name}");
        let useful = if name.starts_with("marks") { 97 } else { 98 };
        assert!(misses.negatives * 100 >= asked * useful, "{name}: {}", misses.negatives);
    }
}
