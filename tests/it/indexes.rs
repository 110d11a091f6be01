//! The data index of a table is read once, when a read needs it, and not when a database is opened.
//! A damaged or unreadable index is an error of each read that needs it, with file and offset. It
//! never gives a wrong answer, and other tables stay readable.

use crate::support::data::{absent_key, key, value};
use crate::support::filters::one_of_each_layout;
use crate::support::indexes::{IndexEnv, Indexes};
use crate::support::model::Map;
use crate::support::rng::Rng;
use crate::support::seal::Table;
use crate::support::stores::{HOME, name, scan, scan_back, small_options};
use siftdb::env::{Env, MemEnv};
use siftdb::inspect::{layout, live_tables, table_facts};
use siftdb::{Db, Error, Filter, FilterLayout, FilterRebuild, Options, ReadOptions, Result};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};

const KEYS: usize = 300;

/// A disk with indexes that can be damaged, and options for a store there.
fn disk() -> (MemEnv, IndexEnv) {
    let memory = MemEnv::new();
    let env = IndexEnv::new(Arc::new(memory.clone()));
    (memory, env)
}

fn open(env: &IndexEnv, options: &Options) -> Result<Db> {
    options.clone().env(Arc::new(env.clone())).open(HOME)
}

/// A closed store whose keys are in one settled level, and what it holds.
fn settled(env: &IndexEnv, options: &Options) -> Map {
    let db = open(env, options).unwrap();
    let mut rng = Rng::new(3);
    let map: Map = (0..KEYS).map(|n| (key(n), value(n as u64, &mut rng))).collect();
    for (key, value) in &map {
        db.put(key, value).unwrap();
    }
    db.compact_range(..).unwrap();
    db.close().unwrap();
    map
}

fn pinned(options: Options) -> Options {
    options.block_cache_bytes(16 << 20)
}

/// The tables that the manifest names; others may wait to be removed.
fn tables(env: &IndexEnv) -> Vec<PathBuf> {
    let shared: Arc<dyn Env> = Arc::new(env.clone());
    let live = live_tables(&shared, Path::new(HOME)).unwrap().unwrap();
    live.into_iter().map(|table| table.path).collect()
}

/// The offset of a table's index.
fn index_offset(file: &[u8]) -> u64 {
    let footer = &file[file.len() - 56..];
    u64::from_le_bytes(footer[16..24].try_into().unwrap())
}

/// The error is that of the index of a table on the disk.
fn must_blame_an_index<T: std::fmt::Debug>(
    read: Result<T>,
    memory: &MemEnv,
    indexes: Indexes,
    what: &str,
) {
    match read.expect_err(what) {
        Error::Corruption { path, offset, .. } if indexes == Indexes::Damaged => {
            let file = memory.read_file(&path).expect("a table");
            assert_eq!(offset, index_offset(&file), "{what}: {}", path.display());
        }
        Error::Io { path, .. } if indexes == Indexes::Unreadable => {
            assert!(memory.read_file(&path).is_some(), "{what}: {}", path.display());
        }
        error => panic!("{what}: {error}"),
    }
}

#[test]
fn a_damaged_index_fails_only_its_readers() {
    for filter in one_of_each_layout() {
        let options = small_options().filter(filter.filter.clone()).block_bytes(300);
        for (options, is_pinned) in
            [(pinned(options.clone()), true), (options.filter_pinned_share(0.0), false)]
        {
            let (memory, env) = disk();
            let map = settled(&env, &options);
            for indexes in [Indexes::Damaged, Indexes::Unreadable] {
                let name = format!("{}, pinned {is_pinned}, {indexes:?}", filter.name);
                env.set(indexes);
                let db = open(&env, &options).expect(&name);
                must_fail_where_indexes_are_needed(&db, &memory, indexes, &map, &name);
                env.set(Indexes::Sound);
                assert_eq!(scan(&db).expect(&name), map);
                for (key, value) in &map {
                    assert_eq!(db.get(key).expect(&name).as_deref(), Some(&value[..]));
                }
                db.close().unwrap();
            }
        }
    }
}

fn must_fail_where_indexes_are_needed(
    db: &Db,
    memory: &MemEnv,
    indexes: Indexes,
    map: &Map,
    name: &str,
) {
    let blame = |read: Result<()>, what: &str| {
        must_blame_an_index(read, memory, indexes, &format!("{name}: {what}"));
    };
    for round in 0..2 {
        for key in map.keys() {
            blame(db.get(key).map(drop), "get");
            blame(db.multi_get([&key[..], b"zzz"]).map(drop), "multi_get");
        }
        let mut denied = 0;
        for number in 0..KEYS {
            match db.get(absent_key(number)) {
                Ok(found) => {
                    assert_eq!(found, None);
                    denied += 1;
                }
                Err(error) => blame(Err(error), "absent"),
            }
        }
        // Block-based filters are asked after the index; keys between two tables need neither.
        let asks_first = name.starts_with("bloom full") || name.starts_with("bloom partitioned");
        let expected = if asks_first { 270..=KEYS } else { 0..=20 };
        assert!(expected.contains(&denied), "{name}, round {round}: {denied} denied");
        blame(scan(db).map(drop), "scan");
        blame(scan_back(db).map(drop), "scan_back");
        let middle = map.keys().nth(KEYS / 2).unwrap();
        for mut walk in [db.range(&middle[..]..), db.range(..=&middle[..])] {
            blame(walk.next().expect("an error").map(drop), "range");
            assert!(walk.next().is_none());
        }
        let mut walk = db.range(..=&middle[..]).rev();
        blame(walk.next().expect("an error").map(drop), "range, backwards");
    }
    let verified = db.verify(|_| ()).unwrap();
    assert!(!verified.is_sound() && verified.damage.len() as u64 == verified.tables);
}

#[test]
fn verify_and_repair_find_damaged_indexes() {
    let (memory, env) = disk();
    settled(&env, &small_options());
    let shared: Arc<dyn Env> = Arc::new(env.clone());
    let tables = tables(&env);
    env.set(Indexes::Damaged);
    for path in &tables {
        let looks = [table_facts(&shared, path).map(drop), layout(&shared, path, &mut Vec::new())];
        for look in looks {
            must_blame_an_index(look, &memory, Indexes::Damaged, "a look");
        }
    }
    // Block prefixes tell where blocks begin, so no entry is lost.
    let repaired = small_options().env(shared).repair(HOME).unwrap();
    assert_eq!((repaired.tables_kept, repaired.entries_lost), (0, 0), "{repaired}");
    assert!(repaired.saved_everything() && repaired.entries == KEYS as u64, "{repaired}");
}

/// A new table is read back, index included, before the manifest names it.
#[test]
fn tables_with_damaged_indexes_are_never_installed() {
    type Job = fn(&Db) -> Result<()>;
    let jobs: [(&str, Job); 3] = [
        ("flush", |db| db.flush()),
        ("compaction", |db| db.compact_range(..)),
        ("filters", |db| db.rebuild_filters(FilterRebuild::All).map(drop)),
    ];
    for (which, job) in jobs {
        for is_pinned in [true, false] {
            let options = small_options().auto_compaction(false);
            let options = if is_pinned { pinned(options) } else { options };
            let options = options.filter(Filter::bloom(10.0).layout(FilterLayout::Full));
            let (memory, env) = disk();
            let mut map = settled(&env, &options);
            let db = open(&env, &options).unwrap();
            map.insert(key(1), b"new".to_vec());
            db.put(key(1), "new").unwrap();
            if which != "flush" {
                db.flush().unwrap();
            }
            // In memory from here on.
            assert_eq!(scan(&db).unwrap(), map);
            let manifest = || {
                let mut paths = memory.list_files().into_iter();
                let path = paths.rfind(|path| name(path).starts_with("MANIFEST"));
                memory.read_file(&path.expect("a manifest")).expect("a manifest")
            };
            let before = manifest();
            env.set(Indexes::Damaged);
            let done = job(&db);
            assert!(done.is_err(), "{which}, pinned {is_pinned}");
            assert!(manifest() == before, "{which}");
            env.set(Indexes::Sound);
            assert_eq!(scan(&db).unwrap(), map, "{which}");
            let _ = db.close();
            drop(db);
            assert_eq!(scan(&open(&env, &options).unwrap()).unwrap(), map, "{which}");
        }
    }
}

#[test]
fn an_index_is_read_once() {
    let options = pinned(small_options()).write_buffer_bytes(1 << 20);
    let options = options.table_bytes(1 << 20).level_base_bytes(1 << 20);
    let options = options.filter(Filter::bloom(16.0).layout(FilterLayout::Full));
    // In one block: what is read of partitions is tested in `table/partitioned_index_tests.rs`.
    let options = options.index_partition_bytes(0);
    let (memory, env) = disk();
    let map = settled(&env, &options);
    let index_bytes = {
        let [path] = &tables(&env)[..] else { panic!("one table") };
        let file = memory.read_file(path).unwrap();
        assert!(Table::take_apart(&file).unwrap().data.len() > 20);
        file.len() as u64 - 56 - index_offset(&file)
    };
    env.set(Indexes::Slow);
    for _ in 0..5 {
        let written = env.reads();
        let db = open(&env, &options).unwrap();
        let before = db.stats();
        for number in 0..10 {
            assert_eq!(db.get(absent_key(number)).unwrap(), None);
        }
        assert_eq!(env.reads(), written, "opening, or a lookup that the filter ends");
        let barrier = Barrier::new(4);
        std::thread::scope(|scope| {
            for number in 0..4 {
                let (db, map, barrier) = (&db, &map, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    let (key, value) = map.iter().nth(number * 50).unwrap();
                    match number {
                        0 => assert_eq!(scan(db).unwrap(), *map),
                        _ => assert_eq!(db.get(key).unwrap().as_deref(), Some(&value[..])),
                    }
                });
            }
        });
        assert_eq!(env.reads(), written + 1);
        let counted = db.stats().since(&before).total();
        // Counted if a lookup was first; a scan's read is not.
        assert!(counted.index_blocks_read <= 1);
        assert_eq!(counted.index_bytes_read, counted.index_blocks_read * index_bytes);
        db.close().unwrap();
    }
    let db = open(&env, &options).unwrap();
    let (first, _) = map.first_key_value().unwrap();
    for (expected, read) in [(1, "index (read"), (0, "")] {
        let before = db.stats();
        let told = db.explain_with(first, &ReadOptions::new()).unwrap().to_string();
        assert!(told.contains(read), "{told}");
        assert_eq!(told.contains("index (read"), expected == 1, "{told}");
        assert_eq!(db.stats().since(&before).total().index_blocks_read, expected);
    }
}
