//! Smaller parts of the interface: reads written once for all, the list of tables, joined batches,
//! the removal of a database.

use crate::support::stores::{HOME, open, small_options};
use siftdb::env::testing::{Calls, EIO, Fault, FaultEnv, FaultKind};
use siftdb::env::{Env, MemEnv};
use siftdb::{Db, Error, Options, ReadOptions, Readable, Write, WriteBatch, WriteOptions};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

/// Everything that the trait reads, as text.
fn all_reads(of: &impl Readable) -> String {
    let entries = |iter: siftdb::Iter| -> Vec<_> {
        iter.map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap())
            .collect()
    };
    let some = |found: Option<(siftdb::Key, siftdb::Value)>| found.map(|(key, _)| key.to_vec());
    let options = ReadOptions::new().use_filters(false);
    format!(
        "{:?}",
        (
            of.get("b").unwrap().map(|value| value.to_vec()),
            of.get_with("a1", &options).unwrap().is_some(),
            of.multi_get(["a1", "c"]).unwrap().iter().map(Option::is_some).collect::<Vec<_>>(),
            (of.contains_key("a2").unwrap(), of.contains_key("x").unwrap()),
            (entries(of.range("a".."b")), entries(of.prefix("a")), entries(of.range(..))),
            (some(of.first().unwrap()), some(of.last().unwrap())),
        )
    )
}

#[test]
fn one_function_reads_databases_keyspaces_and_snapshots() {
    let db = open(&MemEnv::new(), &small_options()).unwrap();
    let other = db.keyspace("other").unwrap();
    for (key, value) in [("a1", "1"), ("a2", "2"), ("b", "3")] {
        db.put_with(key, value, &WriteOptions::new().sync(true)).unwrap();
        other.put(key, value).unwrap();
    }
    let expected = all_reads(&db);
    let snapshot = db.snapshot();
    other.delete_with("b", &WriteOptions::new()).unwrap();
    db.put("a1", "later").unwrap();
    assert_eq!(all_reads(&snapshot), expected);
    assert_eq!(all_reads(&snapshot.in_keyspace(&other)), expected);
    assert_ne!(all_reads(&other), expected);
    assert!(expected.contains("[97, 49]"), "{expected}");
    assert!(snapshot.contains_key("b").unwrap() && !snapshot.contains_key("x").unwrap());
    assert_eq!(snapshot.first().unwrap().unwrap().1, "1");
    assert_eq!(snapshot.last().unwrap().unwrap().1, "3");
    assert_eq!(snapshot.explain("a1").unwrap().value.unwrap(), "1");
}

#[test]
fn tables_are_listed_by_keyspace() {
    let db = open(&MemEnv::new(), &small_options()).unwrap();
    let other = db.keyspace("other").unwrap();
    assert!(db.tables().is_empty());
    for number in 0..300u32 {
        db.put(siftdb::keys::encode(&number), [1; 100]).unwrap();
        other.put(siftdb::keys::encode(&number), [2; 10]).unwrap();
    }
    db.flush().unwrap();
    db.compact_range(..).unwrap();
    for (keyspace, tables) in [("default", db.tables()), ("other", other.tables())] {
        assert!(tables.iter().all(|table| table.keyspace == keyspace && table.filter_bytes > 0));
        assert_eq!(tables.iter().map(|table| table.entries).sum::<u64>(), 300);
        let first = tables.iter().map(|table| &table.first_key).min().unwrap();
        let encoded = |number: u32| siftdb::keys::encode(&number).to_vec();
        assert_eq!(*first, encoded(0));
        let ends = |end: u32| tables.iter().any(|t| t.end == Bound::Included(encoded(end)));
        assert!(ends(299));
    }
    let bytes = |tables: Vec<siftdb::TableInfo>| tables.iter().map(|t| t.bytes).sum::<u64>();
    assert_eq!(bytes(db.tables()) + bytes(other.tables()), db.stats().total().bytes);
}

#[test]
fn joined_batches_write_all_entries() {
    let db = open(&MemEnv::new(), &small_options()).unwrap();
    let other = db.keyspace("other").unwrap();
    let (mut first, mut second) = (WriteBatch::new(), WriteBatch::new());
    first.put("a", "1");
    second.put("a", "2").delete("b");
    second.in_keyspace(&other).put("c", "3");
    first.append(&second);
    let put = |key, value| Write::Put { key, value };
    let joined: Vec<Write> = first.iter().collect();
    let expected = [put(b"a", b"1"), put(b"a", b"2"), Write::Delete { key: b"b" }, put(b"c", b"3")];
    assert_eq!(joined, expected);
    db.write(first).unwrap();
    assert_eq!(db.get("a").unwrap().unwrap(), "2");
    assert_eq!(other.get("c").unwrap().unwrap(), "3");
    assert_eq!(db.get("c").unwrap(), None);
    let mut refused = WriteBatch::new();
    refused.put(vec![0; 1 << 16], "");
    let mut joined = WriteBatch::new();
    joined.append(&refused);
    assert!(matches!(db.write(joined), Err(Error::InvalidArgument { .. })));
}

#[test]
fn destroy_removes_a_closed_database_and_nothing_else() {
    let env = MemEnv::new();
    let options = || small_options().env(Arc::new(env.clone()));
    options().destroy(HOME).unwrap();
    let db = open(&env, &small_options()).unwrap();
    db.keyspace("other").unwrap().put("k", "v").unwrap();
    db.flush().unwrap();
    db.put("in the log", "v").unwrap();
    assert!(matches!(options().destroy(HOME), Err(Error::Locked { .. })));
    db.close().unwrap();
    drop(db);
    let foreign = Path::new(HOME).join("notes.txt");
    env.write_file(&foreign, b"mine");
    options().destroy(HOME).unwrap();
    let left: Vec<_> = env.list(Path::new(HOME)).unwrap().into_iter().map(|e| e.name).collect();
    assert_eq!(left, ["notes.txt"]);
    options().destroy(HOME).unwrap();
    let db = open(&env, &small_options()).unwrap();
    assert_eq!((db.keyspaces(), db.iter().count()), (vec!["default".into()], 0));
    assert_eq!(db.path(), Path::new(HOME));
    let _: &Db = &db;
}

/// Once, a repeated removal found no file, and nothing made durable that the first one had removed
/// them all: after a power cut the database was back.
#[test]
fn a_repeated_removal_survives_a_power_cut() {
    let disk = MemEnv::new();
    let db = open(&disk, &small_options()).unwrap();
    db.put("k", "v").unwrap();
    db.close().unwrap();
    drop(db);
    let env = FaultEnv::new(Arc::new(disk.clone()));
    env.fail_at(0, Fault::once(FaultKind::Error(EIO)).among(Calls::Named("sync_dir")));
    let destroy = || Options::new().env(Arc::new(env.clone())).destroy(HOME);
    assert!(destroy().is_err() && env.has_fired());
    env.heal();
    destroy().unwrap();
    assert_eq!(disk.power_cut().list_files(), disk.list_files());
}

/// Against the truth: off by at most a block at each end of each table that the range cuts.
#[test]
fn estimates_of_ranges_are_near_the_truth() {
    let options = small_options().snappy(false);
    let db = open(&MemEnv::new(), &options).unwrap();
    for number in 0..4_000u32 {
        db.put(siftdb::keys::encode(&number), [1; 50]).unwrap();
    }
    let key = |number: u32| siftdb::keys::encode(&number);
    let exact = db.estimate_range(key(3_990)..).unwrap().entries;
    assert!((10..=40).contains(&exact), "{exact}");
    db.flush().unwrap();
    db.compact_range(..).unwrap();
    let all = db.estimate_range(..).unwrap();
    let tables = db.tables();
    assert_eq!(all.entries, 4_000);
    assert_eq!(all.bytes, tables.iter().map(|table| table.bytes).sum::<u64>());
    // Some 70 entries of 58 bytes are in a block of 4 KiB, and a range cuts two tables.
    for (start, end) in [(0, 100), (500, 3_000), (1_234, 1_235), (3_900, 9_999), (7, 7)] {
        let truth = db.range(key(start)..key(end)).count() as f64;
        let estimate = db.estimate_range(key(start)..key(end)).unwrap().entries as f64;
        assert!((estimate - truth).abs() <= 150.0, "{start} to {end}: {estimate}, not {truth}");
    }
    assert_eq!(db.estimate_range(key(9)..key(9)).unwrap().entries, 0);
    let other = db.keyspace("other").unwrap();
    assert_eq!(other.estimate_range(..).unwrap().entries, 0);
    db.drop_keyspace("other").unwrap();
    assert!(matches!(other.estimate_range(..), Err(Error::KeyspaceDropped { .. })));
}
