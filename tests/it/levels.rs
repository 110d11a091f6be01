//! Filters by level: bits from one memory budget, no filter on the last level, pinning and its
//! memory. Only requested compactions run, so all figures are exact.

use crate::support::data::{absent_key, bytes, key};
use crate::support::stores::{HOME, as_env, open, small_options};
use siftdb::env::CountingEnv;
use siftdb::env::MemEnv;
use siftdb::{Db, Filter, FilterFacts, FilterLayout, FilterPinning, FilterSource, Options, Stats};
use std::sync::Arc;

fn put(db: &Db, numbers: impl Iterator<Item = usize>) {
    for number in numbers {
        db.put(key(number), bytes(number as u64, 40)).unwrap();
    }
}

/// What the counters gained by a lookup of each absent key below `count`.
fn get_absent(db: &Db, count: usize) -> Stats {
    let before = db.stats();
    for number in 0..count {
        assert_eq!(db.get(absent_key(number)).unwrap(), None);
    }
    db.stats().since(&before)
}

fn filter_bytes(db: &Db) -> u64 {
    db.stats().levels.iter().map(|level| level.filter_bytes).sum()
}

fn by_hand() -> Options {
    Options::new().auto_compaction(false)
}

/// 20,000 keys at level 1 and three tables of 1000 of them each at level 0.
fn two_levels(options: &Options) -> Db {
    two_levels_on(&MemEnv::new(), options)
}

fn two_levels_on(env: &MemEnv, options: &Options) -> Db {
    let db = open(env, options).unwrap();
    put(&db, 0..20_000);
    db.flush().unwrap();
    put(&db, 0..1);
    db.compact_range(..).unwrap();
    for table in 0..3 {
        // Over the whole range, so that every lookup asks all of them.
        put(&db, (0..1000).map(|i| (20 * i + table) * 19_999 / 19_982));
        db.flush().unwrap();
    }
    db
}

#[test]
fn a_divided_budget_beats_even_bits() {
    let budget = 23_000 * 10 / 8;
    let divided = two_levels(&by_hand().filter(Filter::monkey(budget)));
    let memory = filter_bytes(&divided);
    assert!((budget * 8 / 10..=budget).contains(&memory), "{memory} bytes for {budget}");
    let bits = memory as f64 * 8.0 / 23_000.0;
    let even = two_levels(&by_hand().filter(Filter::bloom(bits)));
    let difference = memory.abs_diff(filter_bytes(&even));
    assert!(difference < memory / 50, "{difference} of {memory} bytes");
    let let_through = |db: &Db| get_absent(db, 19_980).total().false_positives;
    let (divided_total, even_total) = (let_through(&divided), let_through(&even));
    assert!(divided_total * 10 < even_total * 7, "{divided_total}, evenly {even_total}");
    for number in 0..20_000 {
        let (one, other) = (divided.get(key(number)).unwrap(), even.get(key(number)).unwrap());
        assert!(one.is_some() && one == other, "key {number}");
    }
}

#[test]
fn oversized_filters_are_rewritten_by_moves() {
    let moves = |filter: Filter| {
        // Tables of about 40 KB: not small enough to be merged.
        let options = by_hand().table_bytes(40 << 10).filter(filter);
        let db = open(&MemEnv::new(), &options).unwrap();
        for table in 0..3 {
            put(&db, 1000 * table..1000 * (table + 1));
            db.flush().unwrap();
        }
        let flushed = filter_bytes(&db);
        let after_each = [0, 1, 2].map(|table| {
            db.compact_range(key(1000 * table)..key(1000 * (table + 1))).unwrap();
            (db.stats().trivial_moves, db.stats().compactions)
        });
        assert_eq!(get_absent(&db, 1000).levels[1].not_consulted, 0);
        (after_each, flushed, filter_bytes(&db))
    };
    // The first flush gets 10 bits a key. Each later one gets the even bits of its moment.
    let (after_each, flushed, at_last) = moves(Filter::monkey(2000));
    assert!((2800..=3050).contains(&flushed), "{flushed} bytes when all were flushed");
    assert_eq!(after_each, [(0, 1), (0, 2), (1, 2)], "moves and rewrites");
    assert!((1550..=2060).contains(&at_last), "{at_last} bytes in the end");
    let (after_each, ..) = moves(Filter::bloom(20.0));
    assert_eq!(after_each, [(1, 0), (2, 0), (3, 0)], "moves and rewrites without a budget");
}

#[test]
fn an_unfiltered_last_level_asks_no_filter() {
    let db = two_levels(&by_hand().filter_last_level(false));
    let levels = db.stats().levels;
    assert!(levels[0].filter_bytes > 3 * 1000 && levels[1].filter_bytes == 0);
    let before = db.stats();
    for number in 0..20_000 {
        assert!(db.get(key(number)).unwrap().is_some());
    }
    let hits = db.stats().since(&before);
    let absent = get_absent(&db, 19_980);
    for stats in [&hits, &absent] {
        let (upper, last) = (&stats.levels[0], &stats.levels[1]);
        assert_eq!(upper.not_consulted, 0);
        assert_eq!(last.negatives + last.true_positives + last.false_positives, 0);
        assert_eq!(last.filter_blocks_read + last.filter_blocks_cached, 0);
    }
    assert_eq!(hits.levels[1].not_consulted, 20_000 - hits.levels[0].true_positives);
    assert_eq!(absent.levels[1].not_consulted, 19_980);
    assert!(absent.levels[0].negatives > 3 * 19_000);
}

/// The encoding and the bits of each table's filter, by level.
fn filters_of(db: &Db) -> [Vec<(String, f64)>; 3] {
    let report = db.filter_report();
    [0, 1, 2].map(|level| {
        let filter = |table: &FilterFacts| {
            assert!(!table.differs, "level {level}: not the wanted filter");
            (table.encoding.clone(), table.asked_bits_per_key.unwrap_or_default())
        };
        report.level(level).map(filter).collect()
    })
}

#[test]
fn the_last_level_has_a_filter_of_its_own() {
    let (bloom, ribbon) = (("fast-local-bloom".into(), 12.0), ("ribbon".into(), 8.0));
    let options = by_hand().filter(Filter::bloom(12.0)).filter_at_last_level(Filter::ribbon(8.0));
    let env = MemEnv::new();
    let db = two_levels_on(&env, &options);
    let expected = [vec![bloom; 3], vec![ribbon], vec![]];
    assert_eq!(filters_of(&db), expected);
    let total = get_absent(&db, 19_980).total();
    assert_eq!(total.not_consulted, 0);
    db.close().unwrap();
    // It is saved with the keyspace.
    let db = open(&env, &by_hand()).unwrap();
    put(&db, 0..1);
    db.compact_range(..).unwrap();
    assert_eq!(filters_of(&db), [vec![], expected[1].clone(), vec![]]);
}

/// RocksDB's `bloom_before_level = 0`.
#[test]
fn bloom_for_flushes_and_ribbon_for_compactions() {
    let filters = [
        by_hand().filter(Filter::bloom_then_ribbon(10.0, 1)),
        by_hand().filter(Filter::ribbon(10.0)).filter_at_level(0, Filter::bloom(10.0)),
    ];
    for options in filters {
        let [flushed, compacted, _] = filters_of(&two_levels(&options));
        assert_eq!(flushed, vec![("fast-local-bloom".into(), 10.0); 3]);
        assert_eq!(compacted, [("ribbon".into(), 10.0)]);
    }
}

/// Each table records whether it has a filter, so the option may be switched.
#[test]
fn last_level_filters_can_be_switched() {
    let env = MemEnv::new();
    let mut expected = std::collections::BTreeMap::new();
    for (round, last_level) in [true, false, true, false, false].into_iter().enumerate() {
        let db = open(&env, &small_options().filter_last_level(last_level)).unwrap();
        for number in (round..3000).step_by(round + 2) {
            let value = bytes((number * 10 + round) as u64, 30);
            db.put(key(number), &value).unwrap();
            expected.insert(number, value);
        }
        db.compact_range(..key(1500)).unwrap();
        for number in 0..3000 {
            let found = db.get(key(number)).unwrap();
            assert_eq!(found.as_deref(), expected.get(&number).map(Vec::as_slice), "{number}");
            assert_eq!(db.get(absent_key(number)).unwrap(), None);
        }
        assert_eq!(db.stats().filter_errors, 0);
        db.close().unwrap();
    }
}

#[test]
fn pinned_filters_are_asked_without_a_block() {
    let partitioned = || Filter::bloom(10.0).layout(FilterLayout::Partitioned { block_bytes: 256 });
    let env = MemEnv::new();
    two_levels_on(&env, &by_hand().filter(partitioned())).close().unwrap();
    let mut reads_at_open = Vec::new();
    // Blocks of filters that a lookup touches: index and partition, a partition, none.
    for (pinning, blocks) in
        [(FilterPinning::None, 2), (FilterPinning::TopLevel, 1), (FilterPinning::All, 0)]
    {
        let counting = CountingEnv::new(as_env(&env));
        let options = by_hand().filter(partitioned().pinning(pinning));
        let db = options.env(Arc::new(counting.clone())).open(HOME).unwrap();
        reads_at_open.push(counting.counts().read_calls);
        let absent = get_absent(&db, 19_980);
        for level in &absent.levels[..2] {
            let asked = level.negatives + level.false_positives;
            let touched = level.filter_blocks_cached + level.filter_blocks_read;
            assert_eq!((touched, level.not_consulted), (blocks * asked, 0), "{pinning:?}");
        }
        let pinned = db.stats().pinned_bytes;
        assert_eq!(pinned > filter_bytes(&db), pinning == FilterPinning::All, "{pinned}");
        let explained = db.explain(absent_key(7)).unwrap();
        let said = explained.steps.iter().filter_map(|step| step.filter.source);
        let is_pinned = |source| source == FilterSource::Pinned;
        assert!(said.into_iter().all(|source| is_pinned(source) == (blocks == 0)), "{explained}");
        for number in 0..20_000 {
            assert!(db.get(key(number)).unwrap().is_some());
        }
    }
    // Each of the four tables takes one more read for the top-level index, and then one more for
    // all partitions.
    let [none, top_level, all] = reads_at_open[..] else { panic!("three openings") };
    assert_eq!((top_level - none, all - top_level), (4, 4));
}

#[test]
fn each_level_may_be_pinned_separately() {
    let partitioned = || Filter::bloom(10.0).layout(FilterLayout::Partitioned { block_bytes: 256 });
    let upper = partitioned().pinning(FilterPinning::All);
    let lower = partitioned().pinning(FilterPinning::None);
    let db = two_levels(&by_hand().filter(lower).filter_at_level(0, upper));
    let absent = get_absent(&db, 19_980);
    let blocks = [0, 1].map(|level| {
        absent.levels[level].filter_blocks_cached + absent.levels[level].filter_blocks_read
    });
    assert_eq!(blocks, [0, 2 * 19_980]);
}

/// Room for the filters of level 0 or for that of level 1, not for both.
#[test]
fn the_last_level_is_unpinned_first() {
    let env = MemEnv::new();
    let full = Filter::bloom(10.0).layout(FilterLayout::Full);
    two_levels_on(&env, &by_hand().filter(full.clone())).close().unwrap();
    let options = by_hand().filter(full).block_cache_bytes(108 << 10).filter_pinned_share(0.25);
    let db = open(&env, &options).unwrap();
    let (filters, pinned) = (filter_bytes(&db), db.stats().pinned_bytes);
    assert!(filters > 27 << 10 && pinned <= 27 << 10, "{filters} bytes, {pinned} pinned");
    let absent = get_absent(&db, 19_980);
    let blocks = [0, 1].map(|level| {
        absent.levels[level].filter_blocks_cached + absent.levels[level].filter_blocks_read
    });
    assert_eq!(blocks, [0, 19_980]);
}

/// Tables of level 0 that share all keys, some, or none. The report expects the number of probes
/// that lookups then make.
#[test]
fn reports_expect_the_probes_of_lookups() {
    for (step, questions) in [(0, Some(3.0)), (500, None), (1000, Some(1.0))] {
        let db = open(&MemEnv::new(), &by_hand().block_bytes(256)).unwrap();
        for table in 0..3 {
            put(&db, (0..1000).map(|i| table * step + i));
            db.flush().unwrap();
        }
        let asked: f64 = db.filter_report().level(0).map(|table| table.lookup_share).sum();
        let expected = questions.unwrap_or(asked);
        assert!((asked - expected).abs() < 0.01, "{step}: {asked}");
        // As many lookups near each table's keys as it has keys.
        let before = db.stats();
        for table in 0..3 {
            (0..1000).for_each(|i| assert_eq!(db.get(absent_key(table * step + i)).unwrap(), None));
        }
        let top = db.stats().since(&before).levels[0].clone();
        let counted = (top.negatives + top.false_positives) as f64 / 3_000.0;
        assert!((asked - counted).abs() < 0.02, "{step}: {asked} expected, {counted} counted");
        db.close().unwrap();
    }
}
