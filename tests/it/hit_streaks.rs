//! Lookups that hit again and again do without the filter of the last level; nothing else changes.

use crate::support::data::{absent_key, bytes, key};
use crate::support::filters::one_of_each_layout;
use crate::support::stores::as_env;
use crate::support::table_reads::ReadsEnv;
use siftdb::env::{Env, MemEnv};
use siftdb::{Db, ExplainTarget, Filter, FilterAnswer, LevelStats, Options};
use std::sync::Arc;

const KEYS: usize = 500;
/// Hits in a row before the filter is not asked.
const LONG: u64 = 4096;

/// One level of `KEYS` keys.
fn one_level(options: Options) -> Db {
    one_level_in(as_env(&MemEnv::new()), options)
}

fn one_level_in(env: Arc<dyn Env>, options: Options) -> Db {
    let db = options.auto_compaction(false).env(env).open("/db").unwrap();
    (0..KEYS).for_each(|number| db.put(key(number), bytes(number as u64, 40)).unwrap());
    db.compact_range(..).unwrap();
    db
}

fn hits(db: &Db, count: u64) {
    for number in (0..KEYS).cycle().take(count as usize) {
        assert_eq!(db.get(key(number)).unwrap().as_deref(), Some(&bytes(number as u64, 40)[..]));
    }
}

fn misses(db: &Db, count: u64) {
    // The last absent key sorts after the table.
    for number in (0..KEYS - 1).cycle().take(count as usize) {
        assert_eq!(db.get(absent_key(number)).unwrap(), None);
    }
}

/// What lookups counted in all levels while `run` ran.
fn counted(db: &Db, run: impl FnOnce(&Db)) -> LevelStats {
    let before = db.stats();
    run(db);
    db.stats().since(&before).total()
}

/// Reads every block into the cache, and ends the streak.
fn warm(db: &Db) {
    hits(db, KEYS as u64);
    misses(db, KEYS as u64);
}

#[test]
fn long_streaks_of_hits_ask_no_filter() {
    for filter in one_of_each_layout().into_iter().filter(|filter| filter.name != "none") {
        let name = &filter.name;
        let db = one_level(Options::new().filter(filter.filter));
        warm(&db);
        for _ in 0..2 {
            let asked = counted(&db, |db| hits(db, LONG));
            assert_eq!((asked.true_positives, asked.not_paying), (LONG, 0), "{name}");
            let unasked = counted(&db, |db| hits(db, 1000));
            assert_eq!((unasked.true_positives, unasked.not_paying), (0, 1000), "{name}");
            assert_eq!(unasked.filter_blocks_cached + unasked.filter_blocks_read, 0, "{name}");
            // The first absent key is searched for. From the second on, the filter answers.
            let first = counted(&db, |db| misses(db, 1));
            assert_eq!((first.not_paying, first.data_blocks()), (1, 1), "{name}");
            let others = counted(&db, |db| misses(db, 1000));
            assert_eq!(others.negatives + others.false_positives, 1000, "{name}");
            assert_eq!((others.not_paying, others.not_consulted), (0, 0), "{name}");
        }
    }
}

#[test]
fn absent_keys_end_the_streak() {
    for filter in one_of_each_layout() {
        let without_filter = filter.name == "none";
        let db = one_level(Options::new().filter(filter.filter));
        warm(&db);
        let total = counted(&db, |db| {
            hits(db, LONG - 1);
            misses(db, 100);
            hits(db, LONG);
        });
        assert_eq!(total.not_paying, 0, "{}", filter.name);
        // Without a filter there is nothing to leave out.
        let more = counted(&db, |db| hits(db, 10));
        let expected = if without_filter { (0, 10) } else { (10, 0) };
        assert_eq!((more.not_paying, more.not_consulted), expected, "{}", filter.name);
    }
}

#[test]
fn explain_asks_during_a_streak() {
    let db = one_level(Options::new());
    warm(&db);
    hits(&db, LONG + 1);
    let steps = db.explain(key(7)).unwrap().steps;
    let table = steps.iter().find(|step| matches!(step.target, ExplainTarget::Table { .. }));
    assert_eq!(table.unwrap().filter.answer, FilterAnswer::Maybe);
    assert_eq!(counted(&db, |db| hits(db, 1)).not_paying, 1, "the streak continues");
}

#[test]
fn streaks_end_where_blocks_are_read() {
    // A cache without room for a data block.
    let db = one_level(Options::new().block_cache_bytes(0));
    let total = counted(&db, |db| hits(db, 2 * LONG));
    assert!(total.data_blocks_read > LONG, "{total:?}");
    assert_eq!((total.true_positives, total.not_paying), (2 * LONG, 0));
}

#[test]
fn blocks_in_memory_continue_the_streak() {
    let env = Arc::new(ReadsEnv::in_memory(as_env(&MemEnv::new())));
    // A cache with room for the filter, the index, and some of the blocks.
    let db = one_level_in(env, Options::new().block_bytes(512).block_cache_bytes(12 << 10));
    // The second time each block that is not cached is used where it lies.
    (0..2).for_each(|_| warm(&db));
    let asked = counted(&db, |db| hits(db, LONG));
    assert_eq!((asked.true_positives, asked.not_paying), (LONG, 0));
    assert!(asked.data_blocks_read > LONG / 2, "few are cached");
    let later = counted(&db, |db| hits(db, 1000));
    assert_eq!((later.true_positives, later.not_paying), (0, 1000));
    let first = counted(&db, |db| misses(db, 1));
    assert_eq!((first.not_paying, first.data_blocks()), (1, 1));
    let others = counted(&db, |db| misses(db, 1000));
    assert_eq!(others.negatives + others.false_positives, 1000);
}

#[test]
fn other_levels_are_asked_during_a_streak() {
    let db = one_level(Options::new());
    // A table of level 0 whose range covers the same keys.
    db.put("a", "").unwrap();
    (0..KEYS).for_each(|number| db.put(absent_key(number), "upper").unwrap());
    db.flush().unwrap();
    hits(&db, KEYS as u64);
    db.get([&absent_key(1)[..], b"y"].concat()).unwrap();
    hits(&db, LONG);
    let before = db.stats();
    hits(&db, 1000);
    let levels = db.stats().since(&before).levels;
    let upper = &levels[0];
    assert_eq!(upper.negatives + upper.false_positives, 1000);
    assert_eq!(upper.not_paying, 0);
    assert_eq!(levels.iter().map(|level| level.not_paying).sum::<u64>(), 1000);
    // What is found above the last level says nothing of the last level.
    for number in 0..KEYS {
        assert_eq!(db.get(absent_key(number)).unwrap().as_deref(), Some(&b"upper"[..]));
    }
    assert_eq!(counted(&db, |db| hits(db, 1)).not_paying, 1);
}

#[test]
fn level_zero_alone_has_no_streak() {
    let db = Options::new().auto_compaction(false).env(as_env(&MemEnv::new())).open("/db").unwrap();
    (0..KEYS).for_each(|number| db.put(key(number), bytes(number as u64, 40)).unwrap());
    db.flush().unwrap();
    warm(&db);
    let total = counted(&db, |db| hits(db, 2 * LONG));
    assert_eq!((total.true_positives, total.not_paying), (2 * LONG, 0));
}

#[test]
fn reads_without_filters_leave_the_streak() {
    let db = one_level(Options::new().filter(Filter::bloom(10.0)));
    warm(&db);
    hits(&db, LONG);
    let without = siftdb::ReadOptions::new().use_filters(false);
    let total = counted(&db, |db| assert!(db.get_with(key(3), &without).unwrap().is_some()));
    assert_eq!((total.not_consulted, total.not_paying), (1, 0));
    assert_eq!(counted(&db, |db| hits(db, 1)).not_paying, 1);
}

#[test]
fn blocks_that_are_not_at_hand_are_not_read_for_a_guess() {
    let env = MemEnv::new();
    // A cache for a part of the blocks.
    let options = Options::new().auto_compaction(false).block_cache_bytes(256 << 10).snappy(false);
    let db = options.env(as_env(&env)).open("/db").unwrap();
    (0..20_000).for_each(|number| db.put(key(number), bytes(number as u64, 100)).unwrap());
    db.compact_range(..).unwrap();
    // Hits of a few blocks, again and again.
    hits_of(&db, LONG + 1000);
    assert!(counted(&db, |db| hits_of(db, 100)).not_paying > 0, "the streak is long");
    let far = counted(&db, |db| assert_eq!(db.get(absent_key(15_000)).unwrap(), None));
    assert_eq!((far.data_blocks(), far.not_paying, far.negatives), (0, 0, 1), "{far:?}");
}

/// Hits of the first 100 keys of values of 100 bytes.
fn hits_of(db: &Db, count: u64) {
    for number in (0..100).cycle().take(count as usize) {
        assert!(db.get(key(number)).unwrap().is_some());
    }
}

#[test]
fn tombstones_of_the_last_level_end_the_streak() {
    let env = MemEnv::new();
    let db = Options::new().auto_compaction(false).env(as_env(&env)).open("/db").unwrap();
    (0..KEYS).for_each(|number| db.put(key(number), bytes(number as u64, 40)).unwrap());
    // The snapshot keeps value and tombstone.
    let snapshot = db.snapshot();
    db.delete(key(7)).unwrap();
    db.compact_range(..).unwrap();
    assert_eq!(db.get(key(7)).unwrap(), None);
    let others = |db: &Db, count: u64| {
        for number in (8..KEYS).cycle().take(count as usize) {
            assert!(db.get(key(number)).unwrap().is_some());
        }
    };
    others(&db, LONG + KEYS as u64);
    assert_eq!(db.get(key(7)).unwrap(), None);
    assert_eq!(counted(&db, |db| others(db, 1)).not_paying, 0);
    assert!(snapshot.get(key(7)).unwrap().is_some());
}

/// A level of two tables, of which only the second has a filter.
#[test]
fn tables_without_filter_end_the_streak() {
    let env = MemEnv::new();
    let half = KEYS / 2;
    let open = |filter: Filter| {
        let options = Options::new().filter(filter).auto_compaction(false);
        options.env(as_env(&env)).open("/db").unwrap()
    };
    let entry = |number: usize| (key(number), bytes(number as u64, 40));
    let db = open(Filter::none());
    db.ingest((0..half).map(entry)).unwrap();
    db.close().unwrap();
    let db = open(Filter::bloom(10.0));
    db.ingest((half..KEYS).map(entry)).unwrap();
    let tables: Vec<_> = db.tables().iter().map(|one| (one.level, one.filter_bytes > 0)).collect();
    assert!(matches!(tables[..], [(a, false), (b, true)] if a == b), "{tables:?}");
    let get = |db: &Db, number: usize| assert!(db.get(key(number)).unwrap().is_some());
    let filtered = |db: &Db, count: u64| {
        (half..KEYS).cycle().take(count as usize).for_each(|number| get(db, number));
    };
    (0..KEYS).for_each(|number| get(&db, number));
    filtered(&db, LONG);
    assert_eq!(counted(&db, |db| filtered(db, 1)).not_paying, 1);
    // There is no filter to leave out, and the hit says nothing about those that there are.
    let bare = counted(&db, |db| get(db, 7));
    assert_eq!((bare.not_consulted, bare.not_paying), (1, 0), "{bare:?}");
    let asked = counted(&db, |db| filtered(db, LONG));
    assert_eq!((asked.true_positives, asked.not_paying), (LONG, 0), "{asked:?}");
    assert_eq!(counted(&db, |db| filtered(db, 1)).not_paying, 1);
}
