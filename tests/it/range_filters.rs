//! Range filters change which tables a scan reads, and never its answer.

use crate::support::data::{bytes, odd_keys};
use crate::support::ranges::{KeyRange, any_range};
use crate::support::rng::{Rng, seeds, setting};
use crate::support::stores::{as_env, files_ending, open, small_options};
use siftdb::env::{CountingEnv, MemEnv};
use siftdb::{
    Db, Explain, ExplainOutcome, ExplainStep, ExplainTarget, Filter, Iter, LevelStats, Options,
    Prefix, ReadOptions, Snapshot,
};
use std::ops::Bound;
use std::sync::Arc;

const WITHOUT_FILTERS: ReadOptions = ReadOptions::new().use_filters(false);

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn entries(iter: impl Iterator<Item = <Iter as Iterator>::Item>) -> Entries {
    let owned = |entry: <Iter as Iterator>::Item| {
        let (key, value) = entry.unwrap();
        (key.into_vec(), value.into_vec())
    };
    iter.map(owned).collect()
}

/// The number in eight bytes that are ordered as numbers are.
fn ascending(number: u64) -> [u8; 8] {
    number.swap_bytes().to_le_bytes()
}

/// Keys of a kind: of few letters, numbers in eight bytes, numbers as text, dense numbers.
fn some_keys(kind: usize, rng: &mut Rng) -> Vec<Vec<u8>> {
    let numbers =
        |rng: &mut Rng, below: usize| (0..300).map(|_| rng.below(below) as u64).collect::<Vec<_>>();
    let mut keys: Vec<Vec<u8>> = match kind {
        0 => odd_keys(90, rng),
        1 => {
            let spread = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            numbers(rng, 1 << 30).into_iter().map(|n| ascending(spread(n)).to_vec()).collect()
        }
        2 => {
            let text = |n: u64| format!("user:{n:06}:name").into_bytes();
            numbers(rng, 1_000_000).into_iter().map(text).collect()
        }
        _ => numbers(rng, 1_000).into_iter().map(|n| ascending(n).to_vec()).collect(),
    };
    keys.sort();
    keys.dedup();
    keys
}

/// Fills tables of level 0 and deeper, and a memtable, with puts, overwrites and deletes. Snapshots
/// keep several versions of some keys, which fill whole blocks. Returns a snapshot taken half-way,
/// and those snapshots.
fn fill(db: &Db, keys: &[Vec<u8>], rng: &mut Rng) -> (Snapshot, Vec<Snapshot>) {
    let mut snapshots = Vec::new();
    let mut middle = db.snapshot();
    for round in 0..4 {
        for _ in 0..120 {
            let key = rng.pick(keys);
            match rng.below(10) {
                0 => db.delete(key).unwrap(),
                1 => {
                    for _ in 0..6 {
                        db.put(key, bytes(rng.next(), 90)).unwrap();
                        snapshots.push(db.snapshot());
                    }
                }
                2 if rng.chance(10) => {
                    let range = any_range(rng, keys);
                    db.delete_range(range).unwrap();
                }
                _ => db.put(key, bytes(rng.next(), 20)).unwrap(),
            }
        }
        match round {
            0 => db.compact_range(..).unwrap(),
            1 => middle = db.snapshot(),
            _ => {}
        }
        if round < 3 {
            db.flush().unwrap();
        }
    }
    (middle, snapshots)
}

/// A short range that often lies between two keys, or any range.
fn probing_range(keys: &[Vec<u8>], rng: &mut Rng) -> KeyRange {
    if rng.chance(30) {
        return any_range(rng, keys);
    }
    let mut start = rng.pick(keys).clone();
    if let Some(last) = start.last_mut() {
        *last = last.wrapping_add(rng.below(4) as u8);
    }
    if rng.chance(30) {
        start.push(0);
    }
    let mut end = start.clone();
    end.push(rng.below(256) as u8);
    (Bound::Included(start), Bound::Excluded(end))
}

#[test]
fn range_filters_never_change_answers() {
    for seed in seeds(setting("SIFTDB_RANGE_FILTER_SEEDS", 8) as u64) {
        for kind in 0..4 {
            let mut rng = Rng::new(seed * 4 + kind as u64);
            let prefix = *rng.pick(&[None, Some(3)]);
            let mut filter = Filter::bloom(10.0).ranges(*rng.pick(&[4.0, 7.5, 12.0, 20.0]));
            if let Some(bytes) = prefix {
                filter = filter.prefix(Prefix::fixed(bytes));
            }
            let options = small_options().filter(filter).auto_compaction(false);
            let db = open(&MemEnv::new(), &options).unwrap();
            let keys = some_keys(kind, &mut rng);
            let (middle, held) = fill(&db, &keys, &mut rng);
            let place = format!("kind {kind}, SIFTDB_SEED={seed}");
            let mut cursor = db.cursor();
            for _ in 0..400 {
                let range = probing_range(&keys, &mut rng);
                let expected = entries(db.range_with(range.clone(), &WITHOUT_FILTERS));
                assert_eq!(entries(db.range(range.clone())), expected, "{place}: {range:?}");
                let mut back = entries(db.range(range.clone()).rev());
                back.reverse();
                assert_eq!(back, expected, "{place}: {range:?}, reverse");
                let past = entries(middle.range_with(range.clone(), &WITHOUT_FILTERS));
                assert_eq!(entries(middle.range(range.clone())), past, "{place}: {range:?}, past");
                let found = cursor.seek_range(range.clone()).unwrap();
                assert_eq!(cursor.key(), expected.first().map(|(key, _)| &key[..]), "{place}");
                assert_eq!(found, !expected.is_empty());
            }
            assert!(db.verify(|_| {}).unwrap().is_sound(), "{place}");
            drop(held);
        }
    }
}

/// Without deletes, so that a scan stops where its merge begins.
#[test]
fn explain_names_the_tables_that_a_scan_enters() {
    for seed in seeds(40) {
        let mut rng = Rng::new(seed);
        let filter = Filter::bloom(10.0).ranges(12.0);
        let options = small_options().filter(filter).auto_compaction(false);
        let db = open(&MemEnv::new(), &options).unwrap();
        let keys = some_keys(seed as usize % 4, &mut rng);
        for part in 0..4 {
            (0..90).for_each(|_| db.put(rng.pick(&keys), bytes(rng.next(), 300)).unwrap());
            match part {
                0 | 1 => db.compact_range(..).unwrap(),
                _ => db.flush().unwrap(),
            }
        }
        // Few enough that no streak of vain questions ends the asking.
        for round in 0..16 {
            let options = ReadOptions::new().use_filters(round % 2 == 0);
            let range = probing_range(&keys, &mut rng);
            let before = db.stats();
            let first = db.range_with(range.clone(), &options).next().transpose().unwrap();
            let scan = db.stats().since(&before).total();
            let before = db.stats();
            let explain = db.explain_range_with(range.clone(), &options).unwrap();
            let own = db.stats().since(&before).total();
            let place = format!("{range:?}, SIFTDB_SEED={seed}:\n{explain}");
            let tables = |outcome: ExplainOutcome| {
                let tables =
                    |step: &&ExplainStep| matches!(step.target, ExplainTarget::Table { .. });
                let steps = explain.steps.iter().filter(tables);
                steps.filter(|step| step.outcome == outcome).count() as u64
            };
            let found = tables(ExplainOutcome::Found);
            let in_vain = tables(ExplainOutcome::Absent) + tables(ExplainOutcome::FalsePositive);
            assert_eq!(found + in_vain, scan.scan_tables, "{place}");
            assert_eq!(tables(ExplainOutcome::Skipped), scan.scan_negatives, "{place}");
            assert_eq!(first.is_some(), found > 0, "{place}");
            let counted = |stats: &LevelStats| {
                (stats.scan_negatives, stats.scan_true_positives, stats.scan_false_positives)
            };
            assert_eq!(counted(&own), counted(&scan), "{place}");
        }
    }
}

#[test]
fn a_table_without_keys_has_no_range_filter() {
    let options = Options::new().filter(Filter::bloom(10.0).ranges(12.0)).auto_compaction(false);
    let db = open(&MemEnv::new(), &options).unwrap();
    db.put("b", "old").unwrap();
    db.flush().unwrap();
    db.delete_range("a".."c").unwrap();
    db.flush().unwrap();
    assert_eq!((db.range("a".."z").count(), db.range("b".."bb").rev().count()), (0, 0));
    assert!(db.verify(|_| {}).unwrap().is_sound());
    let report = db.check_filters().unwrap();
    assert!(report.tables.iter().all(|table| table.damage.is_none()), "{report:?}");
}

/// Spread numbers in one settled level and two tables of level 0.
fn spread_numbers(filter: Filter) -> Db {
    let options = Options::new().filter(filter).auto_compaction(false);
    let db = open(&MemEnv::new(), &options).unwrap();
    for part in 0..3 {
        for number in (part..3_000u64).step_by(3) {
            db.put(key(number, 0), [b'v'; 40]).unwrap();
        }
        db.flush().unwrap();
        if part == 0 {
            db.compact_range(..).unwrap();
        }
    }
    db
}

/// A key after that of `number`, by `part` thousandths of the way to the next one.
fn key(number: u64, part: u64) -> [u8; 8] {
    ascending((number * 1_000 + part) << 40)
}

#[test]
fn empty_ranges_read_no_block() {
    for (filter, most) in [(Filter::bloom(10.0), 30_000), (Filter::bloom(10.0).ranges(12.0), 500)] {
        let db = spread_numbers(filter);
        let before = db.stats();
        for number in 1..2_998 {
            let range = &key(number, 200)[..]..&key(number, 800)[..];
            assert_eq!(db.range(range).count(), 0);
        }
        let did = db.stats().since(&before).total();
        let blocks = did.scan_data_blocks_read + did.scan_data_blocks_cached;
        assert!(blocks <= most, "{blocks} data blocks");
        assert_eq!(most == 500, did.scan_negatives > 8_000, "{did:?}");
    }
}

/// The list of recent writes no longer reaches back to the snapshot, so the commit checks tables.
#[test]
fn commits_ask_for_the_ranges_that_they_read() {
    for (filter, excludes) in
        [(Filter::bloom(10.0), false), (Filter::bloom(10.0).ranges(12.0), true)]
    {
        let counting = CountingEnv::new(as_env(&MemEnv::new()));
        let options = Options::new().filter(filter).auto_compaction(false);
        let options = options.write_buffer_bytes(64 << 10).env(Arc::new(counting.clone()));
        let db = options.open("/db").unwrap();
        let gap = || (key(1_000, 200).to_vec(), key(1_000, 800).to_vec());
        let uncached = ReadOptions::new().fill_cache(false);
        let count = |db: &Db| db.range_with(&gap().0[..]..&gap().1[..], &uncached).count();
        for (newer, expected) in [(None, true), (Some(500), false)] {
            let tx = db.transaction();
            let range = &gap().0[..]..&gap().1[..];
            assert_eq!(tx.range_with(range, &uncached).count(), 0);
            tx.put("out", "1").unwrap();
            for number in 0..2_000 {
                db.put(key(number, 0), [b'v'; 40]).unwrap();
            }
            newer.into_iter().for_each(|part| db.put(key(1_000, part), "new").unwrap());
            db.flush().unwrap();
            // Reads the indexes and filters.
            assert_eq!(count(&db), usize::from(newer.is_some()));
            let before = counting.counts().read_calls;
            assert_eq!(tx.commit().is_ok(), expected);
            let reads = counting.counts().read_calls - before;
            assert_eq!(reads == 0, excludes && newer.is_none(), "{reads} reads");
        }
    }
}

#[test]
fn scans_stop_asking_where_nothing_is_excluded() {
    let db = spread_numbers(Filter::bloom(10.0).ranges(12.0));
    db.compact_range(..).unwrap();
    let positives = |from: u64, count: u64| {
        let before = db.stats();
        for number in from..from + count {
            assert_eq!(db.range(&key(number, 0)[..]..&key(number, 500)[..]).count(), 1);
        }
        db.stats().since(&before).total().scan_true_positives
    };
    assert_eq!(positives(0, 64), 64);
    assert_eq!(positives(64, 640), 10, "one scan in 64 asks");
    // Each "no" takes one from the streak, since the blocks are in the cache.
    for number in 0..128 {
        assert_eq!(db.range(&key(number, 200)[..]..&key(number, 800)[..]).count(), 0);
    }
    assert_eq!(positives(800, 10), 10);
}

/// One scan in four is of an empty range: worth asking for a block that has to be read, and not for
/// one in the cache. Of two scans in three it is worth asking in any case.
#[test]
fn filters_that_spare_few_cached_blocks_are_not_asked() {
    let db = spread_numbers(Filter::bloom(10.0).ranges(12.0));
    db.compact_range(..).unwrap();
    let questions = |is_empty: fn(u64) -> bool, options: &ReadOptions| {
        let before = db.stats();
        for number in 1..2_900 {
            let part = if is_empty(number) { 200 } else { 0 };
            let range = &key(number, part)[..]..&key(number, part + 300)[..];
            let found = usize::from(!is_empty(number));
            assert_eq!(db.range_with(range, options).count(), found);
        }
        let did = db.stats().since(&before).total();
        did.scan_negatives + did.scan_true_positives + did.scan_false_positives
    };
    let uncached = ReadOptions::new().fill_cache(false);
    assert_eq!(questions(|number| number % 4 == 0, &uncached), 2_899);
    assert_eq!(db.iter().count(), 3_000, "fills the cache");
    let asked = questions(|number| number % 4 == 0, &ReadOptions::new());
    assert!((128..400).contains(&asked), "{asked} questions");
    let asked = questions(|number| number % 3 != 0, &ReadOptions::new());
    assert!(asked > 2_800, "{asked} questions");
}

/// Flips bits of each block that is not data. Where the database opens and verifies, nothing is
/// lost; a range filter that is damaged is named, and changes no answer.
#[test]
fn damaged_range_filters_change_no_answer() {
    let env = MemEnv::new();
    let options = Options::new().filter(Filter::bloom(10.0).ranges(8.0)).auto_compaction(false);
    let db = open(&env, &options).unwrap();
    for number in 0..4_000u64 {
        db.put(key(number, 0), [b'v'; 10]).unwrap();
    }
    db.flush().unwrap();
    let expected = entries(db.iter());
    db.close().unwrap();
    let tables = files_ending(&env, ".sst");
    let [table] = &tables[..] else { panic!("{tables:?}") };
    let sound = env.read_file(table).unwrap();
    let mut named = 0;
    // The filters are in the last quarter of this table.
    for at in (sound.len() * 3 / 4..sound.len()).step_by(97) {
        let mut broken = sound.clone();
        broken[at] ^= 0x10;
        env.write_file(table, &broken);
        let Ok(db) = open(&env, &options) else { continue };
        for number in 0..200u64 {
            let found = db.range(&key(20 * number, 0)[..]..&key(20 * number, 1)[..]).count();
            assert_eq!(found, 1, "byte {at}, number {number}");
        }
        let report = db.verify(|_| {}).unwrap();
        if report.damage.iter().any(|damage| damage.to_string().contains("filter")) {
            named += 1;
            assert_eq!(entries(db.iter()), expected, "byte {at}: {report:?}");
        }
        db.close().unwrap();
    }
    assert!(named > 10, "{named} flips were in filters");
    env.write_file(table, &sound);
    let db = open(&env, &options).unwrap();
    assert_eq!(entries(db.iter()), expected);
}

/// Inside, each range ends before a key. A user sees the end that was given.
#[test]
fn explanations_name_the_end_that_was_given() {
    let db = open(&MemEnv::new(), &small_options()).unwrap();
    let end = |explain: Explain| explain.end.unwrap();
    assert_eq!(end(db.explain_range("a"..).unwrap()), Bound::Unbounded);
    assert_eq!(end(db.explain_range("a".."b").unwrap()), Bound::Excluded(b"b".to_vec()));
    assert_eq!(end(db.explain_range("a"..="b").unwrap()), Bound::Included(b"b".to_vec()));
}
