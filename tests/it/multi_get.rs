//! `multi_get` answers and counts like single lookups, and reads a block that several keys need
//! once.

use crate::support::data::{absent_key, bytes, key, odd_keys, value};
use crate::support::filters::{all_filters, layouts, one_of_each_layout};
use crate::support::gate::{Gate, GateEnv, OpensOnDrop, Stops};
use crate::support::rng::{Rng, seeds};
use crate::support::stores::{
    HOME, as_env, copy_of, files, files_ending, is_honest, open, small_options,
};
use siftdb::env::MemEnv;
use siftdb::{
    Db, Error, Filter, FilterLayout, LevelStats, Options, ReadOptions, Result, Snapshot, Stats,
    Value, WriteBatch,
};
use std::sync::Arc;

/// What the counters gained while `look` ran.
fn counted<T>(db: &Db, look: impl FnOnce() -> T) -> (T, Stats) {
    let before = db.stats();
    let answer = look();
    (answer, db.stats().since(&before))
}

/// The counters of a level that a batch must raise as single lookups of its keys do.
fn per_key(level: &LevelStats) -> [u64; 7] {
    [
        level.negatives,
        level.true_positives,
        level.false_positives,
        level.unresolved,
        level.not_consulted,
        level.bytes_avoided,
        level.index_seeks,
    ]
}

fn one_by_one(
    keys: &[Vec<u8>],
    get: impl Fn(&Vec<u8>) -> Result<Option<Value>>,
) -> Vec<Option<Value>> {
    keys.iter().map(|key| get(key).unwrap()).collect()
}

/// Looks the keys up both ways, at a snapshot or now, and compares answers and counters.
fn compare(
    db: &Db,
    snapshot: Option<&Snapshot>,
    keys: &[Vec<u8>],
    options: &ReadOptions,
    case: &str,
) {
    let (single, expected) = counted(db, || match snapshot {
        Some(snapshot) => one_by_one(keys, |key| snapshot.get_with(key, options)),
        None => one_by_one(keys, |key| db.get_with(key, options)),
    });
    let (batch, seen) = counted(db, || match snapshot {
        Some(snapshot) => snapshot.multi_get_with(keys, options).unwrap(),
        None => db.multi_get_with(keys, options).unwrap(),
    });
    assert_eq!(batch.len(), keys.len(), "{case}");
    for (place, key) in keys.iter().enumerate() {
        assert_eq!(batch[place], single[place], "{case}: \"{}\"", key.escape_ascii());
    }
    let totals = |stats: &Stats| {
        let Stats { memtable_hits, memtable_negatives, memtable_false_positives, .. } = *stats;
        let memtables = [memtable_hits, memtable_negatives, memtable_false_positives];
        (stats.gets, stats.gets_found, memtables)
    };
    assert_eq!(totals(&seen), totals(&expected), "{case}");
    for (level, (seen, expected)) in seen.levels.iter().zip(&expected.levels).enumerate() {
        assert_eq!(per_key(seen), per_key(expected), "{case}: level {level}");
        assert!(seen.data_blocks() <= expected.data_blocks(), "{case}: level {level}");
    }
}

/// Tables at level 0 and below, tombstones and old versions in all of them, and a memtable. The
/// snapshot was taken on the way.
fn random_store(db: &Db, keys: &[Vec<u8>], rng: &mut Rng) -> Snapshot {
    let mut write = |share: usize, deletions: usize, number: u64| {
        for key in keys {
            if !rng.chance(share) {
                continue;
            }
            match rng.chance(deletions) {
                true => db.delete(key).unwrap(),
                false => db.put(key, value(number, rng)).unwrap(),
            }
        }
    };
    write(80, 0, 1);
    db.compact_range(..).unwrap();
    write(30, 30, 2);
    db.flush().unwrap();
    let snapshot = db.snapshot();
    write(30, 30, 3);
    db.flush().unwrap();
    write(10, 30, 4);
    snapshot
}

/// A snapshot does not see the newer versions, which make a "maybe" right.
#[test]
fn false_positives_of_memtables_are_counted() {
    let count = |filter: bool, uses_filters: bool| {
        let options = Options::new().memtable_filter(filter).write_buffer_bytes(64 << 10);
        let db = open(&MemEnv::new(), &options).unwrap();
        let snapshot = db.snapshot();
        let keys: Vec<_> = (0..500).map(|n| format!("key {n:05}").into_bytes()).collect();
        keys.iter().for_each(|key| db.put(key, "value").unwrap());
        let read = ReadOptions::new().use_filters(uses_filters);
        compare(&db, Some(&snapshot), &keys, &read, "all are newer");
        assert_eq!(db.stats().memtable_false_positives, 0);
        let absent: Vec<_> = (0..20_000).map(|n| format!("key {n:05}x").into_bytes()).collect();
        compare(&db, None, &absent, &read, "all are absent");
        let Stats { memtable_negatives, memtable_false_positives, .. } = db.stats();
        (memtable_negatives, memtable_false_positives)
    };
    let (negatives, false_positives) = count(true, true);
    assert_eq!(negatives + false_positives, 40_000);
    assert!((2..4_000).contains(&false_positives), "{false_positives}");
    assert_eq!([count(false, true), count(true, false)], [(0, 0); 2]);
}

#[test]
fn multi_get_agrees_with_single_gets() {
    for (number, filter) in all_filters().into_iter().enumerate() {
        for seed in seeds(2) {
            let mut rng = Rng::new(seed * 100 + number as u64);
            let pinned_share = if seed % 2 == 0 { 0.5 } else { 0.0 };
            let options = small_options()
                .write_buffer_bytes(4 << 20)
                .auto_compaction(false)
                .filter_pinned_share(pinned_share)
                .filter(filter.filter.clone());
            let db = open(&MemEnv::new(), &options).unwrap();
            let all = odd_keys(900, &mut rng);
            // Some keys are never written and sort between written ones.
            let snapshot = random_store(&db, &all[all.len() / 8..], &mut rng);
            for size in [0, 1, 2, 33, 700, 5000] {
                let wanted: Vec<_> = (0..size).map(|_| rng.pick(&all).clone()).collect();
                for use_filters in [true, false] {
                    let options = ReadOptions::new().use_filters(use_filters);
                    let case = format!("{}, seed {seed}, {size} keys, {options:?}", filter.name);
                    compare(&db, None, &wanted, &options, &case);
                    compare(&db, Some(&snapshot), &wanted, &options.fill_cache(false), &case);
                }
            }
        }
    }
}

/// A lookup finds the bits of its key once for all filters that have as many probes. A batch asks
/// each filter by itself, so both must come to the same verdicts, table by table.
#[test]
fn lookups_cross_overlapping_tables_of_many_filters() {
    let bloom = |bits| Filter::bloom(bits).layout(FilterLayout::Full);
    let mut filters: Vec<Filter> = [10.0, 10.0, 3.0, 30.0, 3.0].map(bloom).into();
    filters.extend([Filter::ribbon(10.0), Filter::leveldb_bloom(10.0), Filter::legacy_bloom(10.0)]);
    filters.extend([10.0, 60.0, 60.0].map(bloom));
    let options = small_options().write_buffer_bytes(4 << 20).auto_compaction(false);
    let (env, count) = (MemEnv::new(), 1_500);
    for (table, filter) in filters.iter().enumerate() {
        let db = open(&env, &options.clone().filter(filter.clone())).unwrap();
        for number in (table..count).step_by(filters.len()) {
            db.put(key(number), bytes(number as u64, 20)).unwrap();
            // A key that every table has. The newest version is the answer.
            db.put(key(number / 100 * 100), bytes(table as u64, 30)).unwrap();
        }
        db.flush().unwrap();
    }
    let db = open(&env, &options).unwrap();
    assert_eq!(db.stats().levels[0].tables, filters.len() as u64);
    for number in 0..count {
        let expected = match number % 100 {
            0 => bytes(filters.len() as u64 - 1, 30),
            _ => bytes(number as u64, 20),
        };
        assert_eq!(db.get(key(number)).unwrap().as_deref(), Some(&expected[..]), "key {number}");
    }
    let wanted: Vec<Vec<u8>> = (0..count).flat_map(|n| [key(n), absent_key(n)]).collect();
    compare(&db, None, &wanted, &ReadOptions::new(), "with filters");
    compare(&db, None, &wanted, &ReadOptions::new().use_filters(false), "without filters");
    for wanted in wanted.chunks(1) {
        compare(&db, None, wanted, &ReadOptions::new(), "one key");
    }
}

/// A lookup ends at a range delete before it asks older tables. So must a batch, although filters
/// alone would exclude the key.
#[test]
fn covered_absent_keys_count_as_in_gets() {
    for filter in one_of_each_layout() {
        let options = small_options().auto_compaction(false).filter(filter.filter.clone());
        let db = open(&MemEnv::new(), &options).unwrap();
        for number in 0..300 {
            db.put(key(number), bytes(number as u64, 40)).unwrap();
        }
        db.compact_range(..).unwrap();
        let wanted: Vec<_> = (0..300).flat_map(|n| [key(n), absent_key(n)]).collect();
        for (range, flush) in [(50..120, false), (100..200, true), (220..260, false)] {
            db.delete_range(key(range.start)..key(range.end)).unwrap();
            db.put(key(range.start + 5), "again").unwrap();
            if flush {
                db.flush().unwrap();
            }
            for use_filters in [true, false] {
                let options = ReadOptions::new().use_filters(use_filters);
                let case = format!("{}, {range:?}, {options:?}", filter.name);
                compare(&db, None, &wanted, &options, &case);
            }
        }
    }
}

/// The flush of the older memtable waits at the sync of its table.
#[test]
fn batches_ask_immutable_memtables_too() {
    for filter in one_of_each_layout() {
        let gate = Gate::default();
        let env = Arc::new(GateEnv::new(as_env(&MemEnv::new()), &gate));
        let options = small_options().immutable_memtables_max(4).filter(filter.filter.clone());
        let db = options.env(env).open(HOME).unwrap();
        let put = |numbers: std::ops::Range<usize>| {
            numbers.for_each(|number| db.put(key(number), bytes(number as u64, 40)).unwrap());
        };
        put(0..100);
        db.flush().unwrap();
        put(100..200);
        std::thread::scope(|scope| {
            let _opens = OpensOnDrop([&gate]);
            gate.shut(Stops::SyncsOf(".sst"));
            let flushing = scope.spawn(|| db.flush());
            gate.wait_for_a_call();
            put(200..300);
            let wanted: Vec<_> = (0..310).flat_map(|n| [key(n), absent_key(n)]).collect();
            compare(&db, None, &wanted, &ReadOptions::new(), &filter.name);
            let found = db.multi_get(&wanted).unwrap();
            assert_eq!(found.iter().flatten().count(), 300, "{}", filter.name);
            gate.open();
            flushing.join().unwrap().unwrap();
        });
    }
}

/// Each level has versions of keys that a deeper level has too.
#[test]
fn batches_cross_several_sorted_levels() {
    for filter in one_of_each_layout() {
        let env = MemEnv::new();
        let options = small_options().level_base_bytes(16 << 10).filter(filter.filter.clone());
        // With this nothing moves.
        let still = options.clone().auto_compaction(false).block_cache_bytes(4 << 20);
        let rng = &mut Rng::new(5);
        // Where a compaction leaves one sorted level, the next writes fill another.
        let db = loop {
            let db = open(&env, &options).unwrap();
            for _ in 0..9_000 {
                let number = rng.below(3_000);
                match rng.chance(20) {
                    true => db.delete(key(number)).unwrap(),
                    false => db.put(key(number), bytes(rng.next(), 60)).unwrap(),
                }
            }
            db.flush().unwrap();
            db.close().unwrap();
            drop(db);
            let db = open(&env, &still).unwrap();
            let levels = db.stats().levels;
            if levels.iter().skip(1).filter(|level| level.tables > 0).count() >= 2 {
                break db;
            }
        };
        let wanted: Vec<_> = (0..3_000).flat_map(|n| [key(n), absent_key(n)]).collect();
        compare(&db, None, &wanted, &ReadOptions::new(), &filter.name);
    }
}

/// A database of one table with the keys `0..count`.
fn one_table(options: &Options, count: usize) -> Db {
    let db = open(&MemEnv::new(), options).unwrap();
    for number in 0..count {
        db.put(key(number), bytes(number as u64, 40)).unwrap();
    }
    db.flush().unwrap();
    assert_eq!(db.stats().total().tables, 1);
    db
}

/// The idea of RocksDB's test of partitioned batches: neighbours share their partition.
#[test]
fn a_dense_batch_reads_its_partition_once() {
    let layout = FilterLayout::Partitioned { block_bytes: 256 };
    let db = one_table(&Options::new().filter(Filter::bloom(10.0).layout(layout)), 12_000);
    // A partition of 256 bytes holds 153 keys. A hundred keys are more than one window.
    let cases: [(&str, usize, usize, u64); 3] =
        [("dense", 1, 29, 1), ("dense, windows", 1, 100, 1), ("spread", 413, 29, 29)];
    for (name, step, count, partitions) in cases {
        let numbers = || (0..count).map(|i| i * step);
        for round in 0..2 {
            let (found, stats) = counted(&db, || db.multi_get(numbers().map(absent_key)).unwrap());
            assert!(found.iter().all(Option::is_none), "{name}");
            let total = stats.total();
            let fetched = total.filter_blocks_read + total.filter_blocks_cached;
            assert_eq!(fetched, partitions, "{name}, round {round}");
            assert_eq!(total.negatives + total.false_positives, count as u64, "{name}");
            assert!(total.false_positives <= 3, "{name}: {}", total.false_positives);
        }
        let (_, single) = counted(&db, || {
            numbers().for_each(|number| assert_eq!(db.get(absent_key(number)).unwrap(), None));
        });
        assert_eq!(single.total().filter_blocks_cached, count as u64, "{name}: one by one");
    }
}

#[test]
fn neighbouring_keys_share_one_read() {
    for filter in one_of_each_layout() {
        let options = Options::new()
            .filter(filter.filter.clone())
            .block_cache_bytes(0)
            .snappy(false)
            .block_bytes(4096);
        let db = one_table(&options, 2000);
        let name = &filter.name;
        // About 60 entries fill a block; no cache keeps anything from one fetch to the next.
        let neighbours = || (0..40).map(key);
        let (found, stats) = counted(&db, || db.multi_get(neighbours()).unwrap());
        assert!(found.iter().all(Option::is_some), "{name}");
        let total = stats.total();
        let filter_blocks = match name.rsplit(' ').next() {
            Some("none") => 0,
            Some("partitioned") => 2,
            _ => 1,
        };
        assert_eq!(total.filter_blocks_read, filter_blocks, "{name}");
        assert_eq!((total.index_blocks_read, total.data_blocks_read), (1, 1), "{name}");
        let (_, single) = counted(&db, || {
            neighbours().for_each(|key| assert!(db.get(key).unwrap().is_some()));
        });
        let single = single.total();
        assert_eq!(single.filter_blocks_read, 40 * filter_blocks, "{name}");
        assert_eq!((single.index_blocks_read, single.data_blocks_read), (40, 40), "{name}");
    }
}

/// With damage anywhere in the table, a batch fails if a single lookup fails. Otherwise its answers
/// are the same.
#[test]
fn damage_never_changes_a_batchs_answers() {
    for (layout_name, layout) in layouts() {
        let env = MemEnv::new();
        let options =
            small_options().filter(Filter::bloom(10.0).layout(layout)).auto_compaction(false);
        let db = open(&env, &options).unwrap();
        for number in 0..300 {
            db.put(key(number), bytes(number as u64, 40)).unwrap();
        }
        db.flush().unwrap();
        db.close().unwrap();
        drop(db);
        let table = files_ending(&env, ".sst").remove(0);
        let sound = files(&env);
        let wanted: Vec<_> = (0..300).flat_map(|n| [key(n), absent_key(n)]).collect();
        let (mut refused, mut slower) = (0, 0);
        for at in (0..sound[&table].len()).step_by(41) {
            let mut damaged = sound.clone();
            damaged.get_mut(&table).unwrap()[at] ^= 1 << (at % 8);
            let options = options.clone().filter_pinned_share(if at % 2 == 0 { 0.0 } else { 0.5 });
            let Ok(db) = open(&copy_of(&damaged), &options) else { continue };
            let case = format!("{layout_name}, byte {at}");
            let single: Result<Vec<_>> = wanted.iter().map(|key| db.get(key)).collect();
            match (db.multi_get(&wanted), single) {
                (Ok(batch), Ok(single)) => {
                    assert_eq!(batch, single, "{case}");
                    slower += u64::from(db.stats().filter_errors > 0);
                }
                (Err(error), Err(_)) => {
                    assert!(is_honest(&error) && error.is_corruption(), "{case}: {error}");
                    assert!(error.to_string().contains(".sst"), "{case}: {error}");
                    // A batch of the keys that a single lookup can read must succeed.
                    let sound = wanted.iter().filter(|key| db.get(key).is_ok());
                    assert!(db.multi_get(sound).is_ok(), "{case}");
                    refused += 1;
                }
                (batch, single) => panic!("{case}: {batch:?}, one by one {single:?}"),
            }
        }
        assert!(refused > 50 && slower > 0, "{layout_name}: {refused} refused, {slower} slower");
    }
}

#[test]
fn multi_get_reads_one_sequence() {
    let db = open(&MemEnv::new(), &small_options()).unwrap();
    let names: Vec<_> = (0..60).map(key).collect();
    let write = |number: u64| {
        let mut batch = WriteBatch::new();
        names.iter().for_each(|name| {
            batch.put(name, number.to_le_bytes());
        });
        db.write(batch).unwrap();
    };
    write(0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (1..3000).for_each(write));
        while !writer.is_finished() {
            let found = db.multi_get(&names).unwrap();
            assert!(found[0].is_some() && found.iter().all(|value| *value == found[0]));
        }
    });
    assert!(db.stats().flushes > 0, "the batches continued while memtables became tables");
}

#[test]
fn a_closed_database_refuses_multi_get() {
    let db = open(&MemEnv::new(), &small_options()).unwrap();
    db.put("k", "v").unwrap();
    let snapshot = db.snapshot();
    db.close().unwrap();
    assert!(matches!(db.multi_get(["k"]), Err(Error::Closed)));
    assert_eq!(snapshot.multi_get(["k"]).unwrap()[0].as_deref(), Some(&b"v"[..]));
    let late = db.snapshot();
    assert!(matches!(late.multi_get(["k"]), Err(Error::Closed)));
}
