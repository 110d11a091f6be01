//! Cursors seek, step and turn as in a sorted list; scans of keys alone find the keys of all
//! entries. Neither copies values. Errors stay until the next seek.

use crate::support::cursors::{check_sticky, entries_within, roam};
use crate::support::data::{bytes, key, odd_keys, value};
use crate::support::filters::prefix_filters;
use crate::support::model::Map;
use crate::support::rng::{Rng, seeds};
use crate::support::stores::{as_env, files_ending, open, small_options};
use siftdb::env::MemEnv;
use siftdb::env::testing::{Calls, EIO, Fault, FaultEnv, FaultKind};
use siftdb::{Cursor, Db, Error, Iter, Key, Keys, Options, ReadOptions, Result, Snapshot};
use std::ops::Bound;
use std::time::Instant;

/// A database with entries and tombstones in the memtable, level 0 and deeper, and a snapshot of
/// an earlier moment, in half of the cases after the last flush. Before and after it two keys
/// are written hundreds of times.
struct World {
    db: Db,
    map: Map,
    snapshot: (Snapshot, Map),
    keys: Vec<Vec<u8>>,
}

fn world(options: Options, rng: &mut Rng) -> World {
    let db = options.env(as_env(&MemEnv::new())).open("/db").unwrap();
    let keys = odd_keys(120, rng);
    let mut map = Map::new();
    let mut snapshot = None;
    let snapshot_step = if rng.chance(50) { 550 } else { 800 };
    for step in 0..900u64 {
        let key = rng.pick(&keys).clone();
        if step.abs_diff(snapshot_step) < 4 {
            let hot = keys[rng.below(2)].clone();
            let versions = 1 + rng.below(300);
            (0..versions).for_each(|n| db.put(&hot, n.to_string()).unwrap());
            map.insert(hot, (versions - 1).to_string().into_bytes());
        }
        if rng.chance(35) {
            db.delete(&key).unwrap();
            map.remove(&key);
        } else {
            let value = value(step, rng);
            db.put(&key, &value).unwrap();
            map.insert(key, value);
        }
        match step {
            300 => db.compact_range(..).unwrap(),
            450 | 600 | 750 => db.flush().unwrap(),
            _ if step == snapshot_step => snapshot = Some((db.snapshot(), map.clone())),
            _ => {}
        }
    }
    World { db, map, snapshot: snapshot.unwrap(), keys }
}

fn bound(keys: &[Vec<u8>], rng: &mut Rng) -> Bound<Vec<u8>> {
    let key = rng.pick(keys).clone();
    match rng.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(key),
        _ => Bound::Excluded(key),
    }
}

#[test]
fn cursors_move_as_in_a_sorted_map() {
    for seed in seeds(4) {
        let rng = &mut Rng::new(seed);
        for filter in prefix_filters() {
            let options = small_options().filter(filter.filter.clone());
            let World { db, map, snapshot: (snapshot, then), keys } = world(options, rng);
            for round in 0..12 {
                let place = format!("filter {}, seed {seed}, round {round}", filter.name);
                let read = ReadOptions::new().use_filters(rng.chance(50));
                let bounds = match round {
                    0 => (Bound::Unbounded, Bound::Unbounded),
                    _ => (bound(&keys, rng), bound(&keys, rng)),
                };
                let (iter, map) = match rng.chance(60) {
                    true => (db.range_with(bounds.clone(), &read), &map),
                    false => (snapshot.range_with(bounds.clone(), &read), &then),
                };
                let entries = entries_within(map, &bounds);
                roam(&mut iter.cursor(), &entries, &keys, 300, rng, &place).unwrap();
            }
            let mut prefix = rng.pick(&keys).clone();
            prefix.truncate(2);
            let mut entries = entries_within(&map, &(Bound::Unbounded, Bound::Unbounded));
            entries.retain(|(key, _)| key.starts_with(&prefix));
            let place = format!("filter {}, seed {seed}, prefix", filter.name);
            roam(&mut db.prefix(&prefix).cursor(), &entries, &keys, 200, rng, &place).unwrap();
        }
    }
}

/// A database of one compacted run of entries, closed and opened again on an `Env` that can fail.
fn settled(options: &Options, entries: usize, value_bytes: usize) -> (MemEnv, FaultEnv, Db) {
    let env = MemEnv::new();
    let db = open(&env, options).unwrap();
    (0..entries).for_each(|n| db.put(key(n), bytes(n as u64, value_bytes)).unwrap());
    db.compact_range(..).unwrap();
    db.close().unwrap();
    let faults = FaultEnv::new(as_env(&env));
    let db = options.clone().env(std::sync::Arc::new(faults.clone())).open("/db").unwrap();
    (env, faults, db)
}

#[test]
fn failed_reads_stay_until_a_seek() {
    let (_env, faults, db) = settled(&small_options().block_cache_bytes(0), 400, 40);
    for backwards in [false, true] {
        for steps in [0, 1, 57, 200] {
            let mut cursor = db.cursor();
            let go = |cursor: &mut Cursor| match backwards {
                false => cursor.next(),
                true => cursor.prev(),
            };
            if backwards {
                assert!(!cursor.seek("z").unwrap());
            }
            (0..steps).for_each(|_| assert!(go(&mut cursor).unwrap()));
            faults.fail_at(
                faults.calls_of(Calls::Reads),
                Fault::once(FaultKind::Error(EIO)).among(Calls::Reads),
            );
            let error = loop {
                match go(&mut cursor) {
                    Ok(more) => assert!(more, "the end without an error"),
                    Err(error) => break error,
                }
            };
            assert!(faults.has_fired() && matches!(error, Error::Io { .. }), "{error}");
            faults.heal();
            check_sticky(&mut cursor, &error.to_string(), "a failed read");
            assert!(cursor.seek(key(200)).unwrap());
            assert_eq!(cursor.key(), Some(&key(200)[..]));
        }
    }
}

#[test]
fn damage_ends_cursors_at_the_same_entry() {
    let (env, _, db) = settled(&small_options(), 200, 40);
    db.close().unwrap();
    drop(db);
    let mut map = Map::new();
    (0..200).for_each(|n| drop(map.insert(key(n), bytes(n as u64, 40))));
    let entries = entries_within(&map, &(Bound::Unbounded, Bound::Unbounded));
    let table = files_ending(&env, ".sst").remove(0);
    let mut damaged = env.read_file(&table).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    env.write_file(&table, &damaged);
    let db = open(&env, &small_options()).unwrap();
    let first_error = |mut next: Box<dyn FnMut() -> Result<bool>>| {
        (0..).find(|_| next().map_err(|error| assert!(error.is_corruption())).is_err()).unwrap()
    };
    let (mut forward, mut back) = (db.cursor(), db.cursor());
    back.seek("z").unwrap();
    let before = first_error(Box::new(move || forward.next()));
    let after = first_error(Box::new(move || back.prev()));
    assert!(before > 10 && after > 10 && before + after < 200, "{before} {after}");
    assert_eq!(db.iter().take_while(Result::is_ok).count(), before);
    // Whatever the moves, all that is seen is right, and the rest is an error.
    let keys: Vec<_> = (0..200).map(key).collect();
    let mut failed = 0;
    for seed in seeds(30) {
        let rng = &mut Rng::new(seed);
        failed += usize::from(
            roam(&mut db.cursor(), &entries, &keys, 200, rng, &format!("seed {seed}")).is_err(),
        );
    }
    assert!(failed > 0, "no cursor met the damage");
}

#[test]
fn closed_databases_refuse_new_cursors() {
    let (_env, _, db) = settled(&small_options(), 100, 40);
    let mut older = db.cursor();
    assert!(older.seek(key(50)).unwrap());
    db.close().unwrap();
    // One from before reads on, also what it has not read yet.
    assert!(older.prev().unwrap());
    assert_eq!(older.key(), Some(&key(49)[..]));
    assert!(older.seek(key(99)).unwrap() && !older.next().unwrap());
    for mut refused in [db.cursor(), db.range("b".."a").cursor(), db.snapshot().cursor()] {
        assert!(matches!(refused.seek("zz"), Err(Error::Closed)));
        for _ in 0..2 {
            assert!(matches!(refused.next(), Err(Error::Closed)));
            assert!(matches!(refused.prev(), Err(Error::Closed)));
            assert!(matches!(refused.seek_to_last(), Err(Error::Closed)));
            assert_eq!(refused.entry(), None);
        }
    }
}

#[test]
fn cursors_see_the_moment_they_were_made() {
    let db = small_options().env(as_env(&MemEnv::new())).open("/db").unwrap();
    (0..50).for_each(|n| db.put(key(n), "old").unwrap());
    let (mut cursor, snapshot) = (db.cursor(), db.snapshot());
    assert!(cursor.seek(key(10)).unwrap());
    (0..50).for_each(|n| db.put(key(n), "new").unwrap());
    db.delete(key(20)).unwrap();
    db.compact_range(..).unwrap();
    for mut cursor in [cursor, snapshot.cursor()] {
        let mut seen = 0;
        cursor.seek_to_first().unwrap();
        while let Some((_, value)) = cursor.entry() {
            assert_eq!(value, b"old");
            seen += 1;
            cursor.next().unwrap();
        }
        assert_eq!(seen, 50);
    }
}

/// Entries of the memtable are lent from it, entries of a table from its cached block.
#[test]
fn cursors_lend_values_without_a_copy() {
    let db = small_options().block_bytes(4096).block_cache_bytes(1 << 20);
    let db = db.env(as_env(&MemEnv::new())).open("/db").unwrap();
    for flushed in [false, true] {
        (0..40).for_each(|n| db.put(key(n), bytes(n as u64, 400)).unwrap());
        if flushed {
            db.compact_range(..).unwrap();
        }
        let address = |n: usize| db.get(key(n)).unwrap().unwrap().as_ptr();
        let mut cursor = db.cursor();
        for n in (0..40).chain((0..39).rev()) {
            let forward = cursor.key().is_none_or(|current| current < &key(n)[..]);
            assert!(if forward { cursor.next() } else { cursor.prev() }.unwrap());
            assert_eq!(cursor.value().unwrap().as_ptr(), address(n), "{n}, flushed: {flushed}");
        }
    }
}

fn all_keys(keys: Keys) -> Vec<Key> {
    keys.collect::<Result<_>>().unwrap()
}

#[test]
fn scans_of_keys_find_all_keys() {
    for seed in seeds(3) {
        let rng = &mut Rng::new(seed);
        let World { db, map, snapshot: (snapshot, then), keys } = world(small_options(), rng);
        for _ in 0..30 {
            let bounds = (bound(&keys, rng), bound(&keys, rng));
            let wanted = |map| entries_within(map, &bounds).into_iter().map(|(key, _)| key);
            assert!(all_keys(db.range(bounds.clone()).keys()).into_iter().eq(wanted(&map)));
            assert!(all_keys(snapshot.range(bounds.clone()).keys()).into_iter().eq(wanted(&then)));
            let mut both = db.range(bounds.clone()).keys();
            let mut wanted = wanted(&map);
            while wanted.len() > 0 {
                let (found, wanted) = match rng.chance(50) {
                    true => (both.next(), wanted.next()),
                    false => (both.next_back(), wanted.next_back()),
                };
                assert_eq!(found.transpose().unwrap().map(Key::into_vec), wanted);
            }
            assert!(both.next().is_none() && both.next_back().is_none());
        }
    }
}

/// Scans stepped over each version that a memtable has of a key: over a million of a counter.
#[test]
fn scans_pass_all_versions_of_a_key_at_once() {
    const VERSIONS: usize = 100_000;
    let db = Options::new().env(as_env(&MemEnv::new())).open("/db").unwrap();
    let many = db.keyspace("many").unwrap();
    (0..VERSIONS).for_each(|n| many.put(key(n), n.to_string()).unwrap());
    let start = Instant::now();
    assert_eq!(many.iter().count(), VERSIONS);
    let once = start.elapsed();

    ["a", "z"].iter().for_each(|key| db.put(key, "old").unwrap());
    let before = db.snapshot();
    (0..VERSIONS / 2).for_each(|n| db.put("counter", n.to_string()).unwrap());
    let between = db.snapshot();
    (VERSIONS / 2..VERSIONS).for_each(|n| db.put("counter", n.to_string()).unwrap());
    let own = db.transaction();
    (0..1_000).for_each(|n| own.put("counter", format!("own {n}")).unwrap());
    let found = |iter: Iter, is_back: bool| {
        let mut values: Vec<_> = match is_back {
            true => iter.rev().map(|entry| entry.unwrap().1).collect(),
            false => iter.map(|entry| entry.unwrap().1).collect(),
        };
        assert!(values.remove(0) == "old" && values.pop().unwrap() == "old");
        values.pop().map(|value| String::from_utf8(value.into_vec()).unwrap())
    };
    let start = Instant::now();
    for is_back in (0..100).map(|round| round % 2 == 0) {
        assert_eq!(found(db.iter(), is_back), Some((VERSIONS - 1).to_string()));
        assert_eq!(found(between.iter(), is_back), Some((VERSIONS / 2 - 1).to_string()));
        assert_eq!(found(before.iter(), is_back), None);
        assert_eq!(found(own.iter(), is_back), Some("own 999".to_string()));
    }
    // 400 scans took 400 times as long.
    assert!(start.elapsed() < 30 * once, "{:?}, {once:?}", start.elapsed());
}

/// A value of more than 30 bytes holds its block in memory, and a key does not.
#[test]
fn scans_of_keys_hold_no_block() {
    let (_env, _, db) = settled(&small_options().block_cache_bytes(16 << 10), 400, 300);
    // A third request admits a block to the full cache, in place of an older one.
    let held = || {
        let numbers = (0..400).chain((0..400).rev()).flat_map(|n| [n; 3]);
        numbers.for_each(|n| assert!(db.contains_key(key(n)).unwrap()));
        db.stats().evicted_bytes_in_use
    };
    let entries: Vec<_> = db.iter().collect::<Result<_>>().unwrap();
    let bytes = held();
    assert!(bytes > 4_000, "{bytes} bytes of blocks");
    drop(entries);
    for keys in [all_keys(db.iter().keys()), db.iter().keys().rev().map(Result::unwrap).collect()] {
        assert_eq!((keys.len(), held()), (400, 0));
    }
}

#[test]
fn one_cursor_counts_as_one_scan() {
    let (_env, _, db) = settled(&small_options(), 50, 40);
    let before = db.stats().scans;
    let mut cursor = db.cursor();
    for n in [3, 30, 7] {
        assert!(cursor.seek(key(n)).unwrap() && cursor.prev().unwrap() && cursor.next().unwrap());
    }
    assert_eq!(db.stats().scans, before + 1);
}

/// In both directions, by iterators and cursors, once each; a range without a key is no scan.
#[test]
fn scans_that_find_nothing_are_counted() {
    let (_env, _, db) = settled(&small_options(), 50, 40);
    let counted = || (db.stats().scans, db.stats().scans_empty);
    let absent = [&key(3)[..], b"."].concat()..key(4);
    let at = counted();
    let mut iter = db.range(absent.clone());
    assert!(iter.next().is_none() && iter.next_back().is_none());
    assert_eq!(counted(), (at.0 + 1, at.1 + 1));
    assert!(db.range(absent.clone()).next_back().is_none());
    assert_eq!(counted(), (at.0 + 2, at.1 + 2));
    let mut one = db.range(key(3)..key(4));
    assert!(one.next().is_some() && one.next_back().is_none() && one.next().is_none());
    let mut one = db.range(key(3)..key(4));
    assert!(one.next_back().is_some() && one.next().is_none() && one.next_back().is_none());
    assert_eq!(counted(), (at.0 + 4, at.1 + 2));
    let mut cursor = db.cursor();
    assert!(!cursor.seek_range(absent).unwrap() && cursor.seek_range(key(3)..key(4)).unwrap());
    assert!(!cursor.next().unwrap() && !cursor.seek_range(key(4)..key(4)).unwrap());
    assert_eq!(counted(), (at.0 + 6, at.1 + 3));
}
