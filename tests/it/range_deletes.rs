//! Range deletes against a sorted map: lookups and scans of every kind, in memtables and tables,
//! now and in snapshots between deletes.

use crate::support::cursors::{Sorted, entries_within, roam};
use crate::support::data::{key, odd_keys, value};
use crate::support::filters::{NamedFilter, prefix_filters};
use crate::support::model::{Change, Map, apply, batch_of};
use crate::support::rng::{Rng, seeds, setting};
use crate::support::stores::{HOME, as_env, open, small_options};
use siftdb::env::{CountingEnv, MemEnv};
use siftdb::{
    Db, Error, ExplainOutcome, FilterAnswer, Iter, Options, ReadOptions, Result, Snapshot,
    WriteBatch,
};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where a range begins and ends.
type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A database with range deletes in several memtable segments and tables, and what it holds.
struct World {
    db: Db,
    map: Map,
    snapshots: Vec<(Snapshot, Map)>,
    keys: Vec<Vec<u8>>,
}

fn bound(keys: &[Vec<u8>], rng: &mut Rng) -> Bound<Vec<u8>> {
    let key = rng.pick(keys).clone();
    match rng.below(8) {
        0 => Bound::Unbounded,
        1..4 => Bound::Included(key),
        _ => Bound::Excluded(key),
    }
}

/// A range, mostly a short one; some are empty, inverted or without an end.
fn range(keys: &[Vec<u8>], rng: &mut Rng) -> Bounds {
    if rng.chance(10) {
        return (bound(keys, rng), bound(keys, rng));
    }
    let start = rng.below(keys.len());
    let end = (start + rng.below(12)).min(keys.len() - 1);
    (Bound::Included(keys[start].clone()), Bound::Excluded(keys[end].clone()))
}

impl World {
    /// `steps` writes, with flushes and compactions among them.
    fn new(options: Options, steps: usize, rng: &mut Rng) -> Self {
        let db = options.env(as_env(&MemEnv::new())).open("/db").unwrap();
        let mut keys = odd_keys(150, rng);
        keys.sort_unstable();
        let mut world = World { db, map: Map::new(), snapshots: Vec::new(), keys };
        for step in 0..steps {
            world.step(step as u64, rng);
        }
        world
    }

    fn step(&mut self, step: u64, rng: &mut Rng) {
        match rng.below(200) {
            0..3 => self.bulk(step, rng),
            3..7 => self.db.flush().unwrap(),
            7 => self.db.compact_range(range(&self.keys, rng)).unwrap(),
            8..12 if self.snapshots.len() < 6 => {
                self.snapshots.push((self.db.snapshot(), self.map.clone()));
            }
            12 => drop(self.snapshots.pop()),
            _ => {
                let count = if rng.chance(20) { rng.below(20) } else { 1 };
                let changes: Vec<_> = (0..count).map(|_| self.change(step, rng)).collect();
                self.db.write(batch_of(&changes)).unwrap();
                apply(&mut self.map, &changes);
            }
        }
    }

    fn change(&self, step: u64, rng: &mut Rng) -> Change {
        let key = rng.pick(&self.keys).clone();
        match rng.below(10) {
            0 => Change::Delete(key),
            1 => Change::DeleteRange(range(&self.keys, rng)),
            _ => Change::Put(key, value(step, rng)),
        }
    }

    /// Entries enough that the next range delete begins a segment.
    fn bulk(&mut self, step: u64, rng: &mut Rng) {
        let first = rng.pick(&self.keys).clone();
        let key = |n: u64| [&first[..], format!("/{n:04}").as_bytes()].concat();
        let changes: Vec<_> = (0..1_000).map(|n| Change::Put(key(n), vec![step as u8])).collect();
        self.db.write(batch_of(&changes)).unwrap();
        apply(&mut self.map, &changes);
    }

    /// Reads ranges of one moment, as `of` makes iterators, in every way.
    fn check(
        &self,
        of: &dyn Fn(Bounds, &ReadOptions) -> Iter,
        map: &Map,
        rounds: usize,
        rng: &mut Rng,
        place: &str,
    ) {
        for round in 0..rounds {
            let bounds = match round {
                0 => (Bound::Unbounded, Bound::Unbounded),
                1 => (bound(&self.keys, rng), bound(&self.keys, rng)),
                _ => range(&self.keys, rng),
            };
            let options = ReadOptions::new().use_filters(rng.chance(50));
            let expected = entries_within(map, &bounds);
            let place = format!("{place}, {bounds:?}");
            let iter = || of(bounds.clone(), &options);
            assert_eq!(collected(iter()).unwrap(), expected, "{place}");
            let mut back = collected(iter().rev()).unwrap();
            back.reverse();
            assert_eq!(back, expected, "{place}, back");
            assert_eq!(from_both_ends(iter(), rng), expected, "{place}, from both ends");
            let keys: Vec<_> = iter().keys().map(|key| key.unwrap().into_vec()).collect();
            assert!(keys.iter().eq(expected.iter().map(|(key, _)| key)), "{place}, keys");
            roam(&mut iter().cursor(), &expected, &self.keys, 60, rng, &place).unwrap();
        }
    }

    fn check_all(&self, rng: &mut Rng, place: &str) {
        let db = &self.db;
        self.check(&|bounds, options| db.range_with(bounds, options), &self.map, 12, rng, place);
        for (number, (snapshot, map)) in self.snapshots.iter().enumerate() {
            let place = format!("{place}, snapshot {number}");
            let of = |bounds, options: &_| snapshot.range_with(bounds, options);
            self.check(&of, map, 4, rng, &place);
            let found = snapshot.multi_get(&self.keys).unwrap();
            check_values(&self.keys, found, map, &place);
        }
        for use_filters in [false, true] {
            let options = ReadOptions::new().use_filters(use_filters);
            let found = db.multi_get_with(&self.keys, &options).unwrap();
            check_values(&self.keys, found, &self.map, place);
            for key in &self.keys {
                let expected = self.map.get(key).map(|value| &value[..]);
                assert_eq!(db.get_with(key, &options).unwrap().as_deref(), expected, "{place}");
                let explained = db.explain_with(key, &options).unwrap();
                assert_eq!(explained.value.as_deref(), expected, "{place}: {explained}");
                assert!(expected.is_none() || db.may_contain(key).unwrap(), "{place}");
            }
        }
        for prefix in self.keys.iter().map(|key| &key[..key.len().min(2)]) {
            let found = collected(db.prefix(prefix)).unwrap();
            let expected = self.map.iter().filter(|(key, _)| key.starts_with(prefix));
            assert!(found.iter().map(|(key, value)| (key, value)).eq(expected), "{place}");
        }
        let first = db.first().unwrap().map(|(key, _)| key.into_vec());
        assert_eq!(first.as_ref(), self.map.keys().next(), "{place}");
        let last = db.last().unwrap().map(|(key, _)| key.into_vec());
        assert_eq!(last.as_ref(), self.map.keys().next_back(), "{place}");
    }
}

fn check_values(keys: &[Vec<u8>], found: Vec<Option<siftdb::Value>>, map: &Map, place: &str) {
    for (key, found) in keys.iter().zip(found) {
        let expected = map.get(key).map(|value| &value[..]);
        assert_eq!(found.as_deref(), expected, "{place}: {}", key.escape_ascii());
    }
}

fn collected(iter: impl Iterator<Item = Result<(siftdb::Key, siftdb::Value)>>) -> Result<Sorted> {
    iter.map(|entry| entry.map(|(key, value)| (key.into_vec(), value.into_vec()))).collect()
}

fn from_both_ends(mut iter: Iter, rng: &mut Rng) -> Sorted {
    let (mut front, mut back) = (Sorted::new(), Sorted::new());
    loop {
        let forward = rng.chance(50);
        let Some(entry) = (if forward { iter.next() } else { iter.next_back() }) else { break };
        let (key, value) = entry.unwrap();
        if forward { &mut front } else { &mut back }.push((key.into_vec(), value.into_vec()));
    }
    assert!(iter.next().is_none() && iter.next_back().is_none());
    front.extend(back.into_iter().rev());
    front
}

fn filters() -> Vec<NamedFilter> {
    prefix_filters()
}

#[test]
fn scans_pass_what_range_deletes_cover() {
    for seed in seeds(setting("SIFTDB_RANGE_DELETE_SEEDS", 4) as u64) {
        let rng = &mut Rng::new(seed);
        for filter in filters() {
            for options in [Options::new(), small_options()] {
                let world = World::new(options.filter(filter.filter.clone()), 400, rng);
                world.check_all(rng, &format!("filter {}, SIFTDB_SEED={seed}", filter.name));
            }
        }
    }
}

/// What a database holds, as text.
fn contents(db: &Db) -> String {
    let entries = collected(db.iter()).unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let entries = entries.into_iter().map(|(key, value)| text(key) + &text(value));
    entries.collect::<Vec<_>>().join(" ")
}

/// A database with a1 to e5, in memory.
fn letters(env: &MemEnv) -> Db {
    let db = Options::new().env(as_env(env)).open("/db").unwrap();
    for (key, value) in [("a", "1"), ("b", "2"), ("c", "3"), ("d", "4"), ("e", "5")] {
        db.put(key, value).unwrap();
    }
    db
}

#[test]
fn bounds_decide_which_keys_go() {
    use Bound::{Excluded, Included, Unbounded};
    let cases: [(Bound<&str>, Bound<&str>, &str); 11] = [
        (Included("b"), Excluded("d"), "a1 d4 e5"),
        (Included("b"), Included("d"), "a1 e5"),
        (Excluded("b"), Included("d"), "a1 b2 e5"),
        (Excluded("b"), Excluded("d"), "a1 b2 d4 e5"),
        (Unbounded, Excluded("c"), "c3 d4 e5"),
        (Excluded("c"), Unbounded, "a1 b2 c3"),
        (Unbounded, Unbounded, ""),
        (Included("b"), Included("b"), "a1 c3 d4 e5"),
        // Empty and inverted ranges delete nothing.
        (Included("b"), Excluded("b"), "a1 b2 c3 d4 e5"),
        (Excluded("b"), Excluded("b"), "a1 b2 c3 d4 e5"),
        (Included("d"), Included("b"), "a1 b2 c3 d4 e5"),
    ];
    for (start, end, left) in cases {
        for flushed in [false, true] {
            let env = MemEnv::new();
            let db = letters(&env);
            if flushed {
                db.flush().unwrap();
            }
            db.delete_range((start, end)).unwrap();
            assert_eq!(contents(&db), left, "{start:?} to {end:?}");
            db.compact_range(..).unwrap();
            assert_eq!(contents(&db), left, "{start:?} to {end:?}, compacted");
        }
    }
}

#[test]
fn prefixes_of_0xff_are_deleted_to_the_end() {
    let db = Options::new().env(as_env(&MemEnv::new())).open("/db").unwrap();
    let keys: [&[u8]; 5] = [b"\xfe", b"\xff", b"\xff\0", b"\xff\xff", b"\xff\xff\xff"];
    keys.iter().for_each(|key| db.put(key, "v").unwrap());
    db.delete_prefix(b"\xff\xff").unwrap();
    assert_eq!(db.iter().count(), 3);
    db.delete_prefix(b"\xff").unwrap();
    assert_eq!(db.iter().count(), 1);
    db.delete_prefix(b"").unwrap();
    assert_eq!(db.iter().count(), 0);
}

#[test]
fn entries_of_a_batch_act_in_order() {
    let db = letters(&MemEnv::new());
    let mut batch = WriteBatch::new();
    batch.put("b", "old").delete_range("b".."d").put("c", "new").delete_range("d"..="d");
    batch.put("e", "6").delete_prefix("e").put("f", "7");
    db.write(batch).unwrap();
    assert_eq!(contents(&db), "a1 cnew f7");
    assert_eq!(db.snapshot().get("b").unwrap(), None);
}

#[test]
fn snapshots_between_deletes_keep_their_entries() {
    let db = letters(&MemEnv::new());
    let all = db.snapshot();
    db.delete_range("a".."c").unwrap();
    let without_two = db.snapshot();
    db.put("b", "8").unwrap();
    db.delete_range("b"..).unwrap();
    for flushed in [false, true] {
        if flushed {
            db.flush().unwrap();
            db.compact_range(..).unwrap();
        }
        assert_eq!(contents(&db), "");
        assert_eq!(all.iter().count(), 5);
        assert_eq!(all.get("b").unwrap().as_deref(), Some(&b"2"[..]));
        assert_eq!(without_two.iter().count(), 3);
        assert_eq!(without_two.get("b").unwrap(), None);
    }
}

#[test]
fn logs_bring_range_deletes_back() {
    let env = MemEnv::new();
    let db = letters(&env);
    db.delete_range("b".."d").unwrap();
    db.put("c", "9").unwrap();
    drop(db);
    for read_only in [true, false] {
        let options = Options::new().env(as_env(&env));
        let db = if read_only { options.open_read_only("/db") } else { options.open("/db") };
        let db = db.unwrap();
        assert_eq!(contents(&db), "a1 c9 d4 e5");
        assert_eq!(db.get("b").unwrap(), None);
        let refused = read_only.then(|| db.delete_range("a".."b").unwrap_err());
        assert!(refused.is_none_or(|error| matches!(error, Error::OpenedReadOnly)));
    }
}

#[test]
fn dropped_keyspaces_refuse_range_deletes() {
    let db = letters(&MemEnv::new());
    let (kept, dropped) = (db.keyspace("kept").unwrap(), db.keyspace("dropped").unwrap());
    kept.put("a", "1").unwrap();
    let mut batch = WriteBatch::new();
    batch.in_keyspace(&kept).delete_range(..);
    batch.in_keyspace(&dropped).delete_range("a".."b");
    db.drop_keyspace("dropped").unwrap();
    assert!(matches!(db.write(batch).unwrap_err(), Error::KeyspaceDropped { .. }));
    assert!(matches!(dropped.delete_range(..).unwrap_err(), Error::KeyspaceDropped { .. }));
    assert!(matches!(dropped.delete_prefix("a").unwrap_err(), Error::KeyspaceDropped { .. }));
    // The refused batch deleted nothing, and a delete in one keyspace leaves the others.
    assert_eq!(kept.iter().count(), 1);
    kept.delete_range(..).unwrap();
    assert_eq!((kept.iter().count(), db.iter().count()), (0, 5));
}

#[test]
fn too_long_bounds_are_refused() {
    let db = letters(&MemEnv::new());
    let long = vec![b'a'; 65_536];
    for result in
        [db.delete_range(&long[..]..), db.delete_range(..&long[..]), db.delete_prefix(&long)]
    {
        assert!(matches!(result.unwrap_err(), Error::InvalidArgument { .. }));
    }
    db.delete_range(&long[1..]..=&long[1..]).unwrap();
    assert_eq!(db.iter().count(), 5);
}

#[test]
fn explain_names_the_range_delete() {
    let db = letters(&MemEnv::new());
    db.delete_range("b".."d").unwrap();
    let steps = db.explain("b").unwrap().steps;
    assert_eq!(steps[0].outcome, ExplainOutcome::RangeDeleted);
    // The filter has never seen this key.
    let skipped = db.explain("bb").unwrap();
    assert_eq!(skipped.steps[0].outcome, ExplainOutcome::RangeDeleted);
    assert_eq!(skipped.steps[0].filter.answer, FilterAnswer::No);
    assert!(skipped.to_string().contains("range delete"), "{skipped}");
    assert_eq!(db.explain("e").unwrap().steps[0].outcome, ExplainOutcome::Found);
}

/// A table with a range delete ended the lookup, and was said to have a tombstone or to be skipped.
#[test]
fn explain_names_the_range_delete_of_a_table() {
    let options = Options::new().auto_compaction(false).env(as_env(&MemEnv::new()));
    let db = options.open("/db").unwrap();
    ["b", "e"].iter().for_each(|key| db.put(key, key).unwrap());
    db.flush().unwrap();
    db.delete_range("b".."d").unwrap();
    db.put("c", "newer").unwrap();
    db.delete("e").unwrap();
    db.flush().unwrap();
    let last = |key: &str| db.explain(key).unwrap().steps.pop().unwrap();
    for key in ["b", "bb"] {
        assert_eq!(last(key).outcome, ExplainOutcome::RangeDeleted, "{key}");
        assert_eq!(last(key).filter.answer, FilterAnswer::No, "{key}");
    }
    assert_eq!(last("c").outcome, ExplainOutcome::Found);
    assert_eq!(last("e").outcome, ExplainOutcome::Deleted);
}

/// A log that is appended to and purged from the front, in one memtable and then in tables. Every
/// scan from the start passes few entries.
#[test]
fn purged_logs_are_read_from_the_start_quickly() {
    let db = Options::new().env(as_env(&MemEnv::new())).open("/db").unwrap();
    let key = |n: u32| format!("{n:08}").into_bytes();
    for round in 0..20 {
        let first = round * 1_500;
        let mut batch = WriteBatch::new();
        (first..first + 1_500).for_each(|n| _ = batch.put(key(n), "entry"));
        db.write(batch).unwrap();
        db.delete_range(..key(first + 1_400)).unwrap();
        if round % 7 == 6 {
            db.flush().unwrap();
        }
        assert_eq!(&*db.first().unwrap().unwrap().0, &key(first + 1_400)[..]);
        assert_eq!(&*db.last().unwrap().unwrap().0, &key(first + 1_499)[..]);
        assert_eq!(db.iter().count(), 100);
        assert_eq!(db.iter().rev().count(), 100);
    }
}

/// A read of an older snapshot makes lists of range deletes, which stay with the memtable.
#[test]
fn lists_for_old_snapshots_count_as_memory() {
    let options = Options::new().auto_compaction(false);
    let db = options.env(as_env(&MemEnv::new())).open("/db").unwrap();
    let keys: Vec<_> = (0..128u32).map(u32::to_le_bytes).collect();
    keys.iter().for_each(|key| db.delete_range(key..=key).unwrap());
    let snapshot = db.snapshot();
    db.delete_range(..).unwrap();
    let before = db.stats().memtable_bytes;
    assert_eq!(snapshot.get(keys[0]).unwrap(), None);
    let made = db.stats().memtable_bytes - before;
    assert!(made > 128 * 2 * 4, "{made}");
    assert_eq!(db.stats().memtable_bytes, db.keyspace("default").unwrap().stats().memtable_bytes);
    drop(snapshot);
    db.flush().unwrap();
}

/// A step reads what a seek passes. Deletes that touch each other make one run.
#[test]
fn scans_seek_past_runs_of_deleted_keys() {
    for one_by_one in [false, true] {
        let env = CountingEnv::new(Arc::new(MemEnv::new()));
        let options = Options::new().auto_compaction(false).env(Arc::new(env.clone()));
        let db = options.snappy(false).open(HOME).unwrap();
        (0..10_000).for_each(|n| db.put(key(n), [7; 400]).unwrap());
        db.flush().unwrap();
        if one_by_one {
            (10..9_990).for_each(|n| db.delete_range(key(n)..key(n + 1)).unwrap());
        } else {
            db.delete_range(key(10)..key(9_990)).unwrap();
        }
        let before = env.counts().read_bytes;
        assert_eq!(db.range(key(10)..).next().unwrap().unwrap().0, key(9_990));
        assert_eq!(db.range(..key(9_990)).next_back().unwrap().unwrap().0, key(9));
        let read = env.counts().read_bytes - before;
        assert!(read < 1 << 20, "{read} bytes of 4 MB");
        db.close().unwrap();
    }
}

const DELETES: usize = 512;

/// Twice as many keys as [`DELETES`], half of them deleted, with the deletes in `tables` tables.
fn with_deletes_in(tables: usize) -> Db {
    let db = open(&MemEnv::new(), &Options::new().auto_compaction(false)).unwrap();
    (0..2 * DELETES).for_each(|n| db.put(key(n), "1").unwrap());
    db.compact_range(..).unwrap();
    for table in 0..tables {
        // No two touch: the coverage changes at each key.
        let deleted = (0..DELETES).filter(|n| n * tables / DELETES == table);
        deleted.for_each(|n| db.delete_range(key(2 * n)..key(2 * n + 1)).unwrap());
        db.flush().unwrap();
    }
    assert_eq!(db.tables().iter().filter(|table| table.range_deletes > 0).count(), tables);
    db
}

// Searching each list for each key took 19 times as long, comparing with what is known 8.
#[test]
fn scans_search_lists_only_where_they_change() {
    let databases = [with_deletes_in(1), with_deletes_in(32)];
    let mut fastest = [Duration::MAX; 2];
    for _ in 0..100 {
        for (db, fastest) in databases.iter().zip(&mut fastest) {
            let started = Instant::now();
            assert_eq!(db.range(..).map(Result::unwrap).count(), DELETES);
            *fastest = started.elapsed().min(*fastest);
        }
    }
    let [one, many] = fastest;
    assert!(many < one * 13, "{many:?} in 32 tables, {one:?} in one");
}
