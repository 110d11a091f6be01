//! Keyspaces: their creation, drops, names and settings, the logs that they keep, and what bad
//! input and a full disk do to them.

use crate::support::model::Map;
use crate::support::reads::{Contents, all_keyspaces, keyspace_reads};
use crate::support::stores::{
    HOME, as_env, begun_logs, files, files_ending, open, small_options, until,
};
use siftdb::env::MemEnv;
use siftdb::env::testing::{CrashModel, ENOSPC, Fault, FaultEnv, FaultKind};
use siftdb::filter::FilterPolicy;
use siftdb::{Db, Error, Filter, Keyspace, KeyspaceOptions, Options, WriteBatch, WriteOptions};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

const BUFFER: usize = 64 << 10;

/// A log that the worker removes in the meantime has no bytes.
fn wal_bytes(env: &MemEnv) -> usize {
    begun_logs(env).iter().map(|path| env.read_file(path).map_or(0, |file| file.len())).sum()
}

fn entries(keyspace: &Keyspace) -> Map {
    let pairs = keyspace.iter().map(|entry| entry.unwrap());
    pairs.map(|(key, value)| (key.into_vec(), value.into_vec())).collect()
}

/// All keyspaces by name, with their contents by every kind of read.
fn contents(db: &Db) -> Contents {
    all_keyspaces(db, ["absent"], "the database")
}

/// The settings that the keyspace `a` has, as the refusal of others says them.
fn named(db: &Db) -> String {
    db.keyspace("a").unwrap();
    let others = KeyspaceOptions::new().block_bytes(77);
    let refused = db.keyspace_with("a", &others).map(drop).unwrap_err().to_string();
    refused.split_once("open in this process with ").unwrap().1.to_string()
}

/// Writes `bytes` bytes in values of a kilobyte.
fn fill(keyspace: &Keyspace, name: &str, bytes: usize) {
    for number in 0..bytes.div_ceil(1000) {
        keyspace.put(format!("{name}{number:05}"), [b'v'; 1000]).unwrap();
    }
}

#[test]
fn refused_settings_say_that_a_keyspace_has_none() {
    let db = open(&MemEnv::new(), &small_options()).unwrap();
    assert_eq!(named(&db), "no named settings");
}

#[test]
fn a_rare_writer_keeps_four_buffers_of_logs() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    let rare = db.keyspace("rare").unwrap();
    rare.put("k", "v").unwrap();
    let first = begun_logs(&env).pop().unwrap();
    let mut longest = 0;
    for round in 0..15 {
        fill(&db, &format!("{round}-"), BUFFER);
        longest = longest.max(wal_bytes(&env));
    }
    // Beyond four buffers the memtable is flushed in the background, while one more is written.
    assert!(longest > 3 * BUFFER, "the logs were never kept: {longest} bytes");
    assert!(longest < 12 * BUFFER, "{longest} bytes of logs");
    while begun_logs(&env).contains(&first) {
        std::thread::yield_now();
    }
    assert_eq!(rare.get("k").unwrap().unwrap(), "v");
}

/// A flush or a load begins a log, however little the one before has. Those next to an idle
/// keyspace stayed, and each opening read them.
#[test]
fn an_idle_keyspace_keeps_few_logs() {
    let begin_log: [fn(&Keyspace, u32); 2] = [
        |busy, n| {
            busy.put(format!("{n:05}"), "v").unwrap();
            busy.flush().unwrap();
        },
        |busy, n| _ = busy.ingest([(format!("{n:05}"), "v")]).unwrap(),
    ];
    for begin_log in begin_log {
        let env = MemEnv::new();
        let db = open(&env, &small_options()).unwrap();
        let (idle, busy) = (db.keyspace("idle").unwrap(), db.keyspace("busy").unwrap());
        idle.put("k", "v").unwrap();
        (0..200).for_each(|n| begin_log(&busy, n));
        until("few logs", || begun_logs(&env).len() < 100);
        assert_eq!(idle.get("k").unwrap().unwrap(), "v");
        assert_eq!(busy.iter().count(), 200);
    }
}

/// What a dropped keyspace wrote no longer counts as a memtable, but its log does.
#[test]
fn dropped_keyspaces_keep_no_logs() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    db.put("k", "v").unwrap();
    for _ in 0..100 {
        let short = db.keyspace("short-lived").unwrap();
        fill(&short, "k", BUFFER / 2);
        db.drop_keyspace("short-lived").unwrap();
    }
    // 50 write buffers went through the logs.
    let switches = db.stats().log_switches;
    assert!(switches >= 40, "{switches} logs ended");
    // The worker removes logs after the flush that a caller waits for.
    while wal_bytes(&env) >= 2 * BUFFER {
        db.flush().unwrap();
    }
}

#[test]
fn the_largest_memtable_is_flushed() {
    let env = MemEnv::new();
    let db = open(&env, &small_options().auto_compaction(false)).unwrap();
    let (small, large) = (db.keyspace("small").unwrap(), db.keyspace("large").unwrap());
    fill(&small, "k", BUFFER / 10);
    fill(&large, "k", BUFFER / 2);
    assert!(files_ending(&env, ".sst").is_empty(), "nothing exceeds the buffer yet");
    fill(&large, "l", BUFFER);
    fill(&large, "m", BUFFER);
    let tables =
        |keyspace: &Keyspace| keyspace.stats().levels.iter().map(|l| l.tables).sum::<u64>();
    while tables(&large) == 0 {
        std::thread::yield_now();
    }
    assert_eq!((tables(&small), tables(&db)), (0, 0));
}

#[test]
fn numbers_are_never_used_twice() {
    let env = MemEnv::new();
    let mut expected = Map::new();
    let mut old = Vec::new();
    for round in 0..6_u8 {
        let db = open(&env, &small_options()).unwrap();
        let again = db.keyspace("again").unwrap();
        assert_eq!(entries(&again), expected, "round {round}");
        db.drop_keyspace("again").unwrap();
        let again = db.keyspace("again").unwrap();
        assert!(entries(&again).is_empty());
        // The log holds entries of every number that was ever given.
        again.put([round], "v").unwrap();
        expected = Map::from([(vec![round], b"v".to_vec())]);
        old.push(again);
        if round % 2 == 0 {
            db.close().unwrap();
        } else {
            old.clear();
        }
    }
}

/// A new database whose disk can be made to fail.
fn on_failing_disk() -> (MemEnv, FaultEnv, Db) {
    let disk = MemEnv::with_log();
    let env = FaultEnv::new(as_env(&disk));
    let db = small_options().env(Arc::new(env.clone())).open(HOME).unwrap();
    (disk, env, db)
}

#[test]
fn a_full_disk_undoes_or_completes_a_creation() {
    for n in 0.. {
        let (disk, env, db) = on_failing_disk();
        db.put("k", "v").unwrap();
        let kept = db.keyspace("kept").unwrap();
        kept.put("k", "kept").unwrap();
        env.fail_at(env.calls() + n, Fault::from_then_on(FaultKind::Error(ENOSPC)));
        let created = db.keyspace("new").map(drop);
        if !env.has_fired() {
            assert!(created.is_ok() && n > 1, "{n} calls");
            break;
        }
        let place = format!("call {n}");
        assert!(matches!(created, Err(Error::Io { .. })), "{place}: {created:?}");
        assert!(matches!(db.keyspace("new"), Err(Error::ReadOnly { .. })), "{place}");
        assert_eq!(db.keyspaces(), ["default", "kept"], "{place}");
        assert_eq!(kept.get("k").unwrap().unwrap(), "kept", "{place}");
        let crashed = disk.replay(disk.log_len(), CrashModel::Kill, 0);
        env.heal();
        match db.resume() {
            Ok(()) => {
                let new = db.keyspace("new").unwrap();
                assert!(entries(&new).is_empty(), "{place}");
                kept.put("k2", "later").unwrap();
                new.put("k", "new").unwrap();
                db.sync().unwrap();
                let after = open(&disk.power_cut(), &small_options()).unwrap();
                let names: Vec<_> =
                    contents(&after).into_iter().map(|(n, e)| (n, e.len())).collect();
                let expected = [("default", 1), ("kept", 2), ("new", 1)];
                assert_eq!(names, expected.map(|(n, e)| (n.to_string(), e)), "{place}");
            }
            // A failed sync needs a new opening.
            Err(Error::ReadOnly { .. }) => {}
            Err(error) => panic!("{place}: {error}"),
        }
        // Without `resume`, the creation is there whole or not at all.
        let db = open(&crashed, &small_options()).unwrap();
        let mut names = db.keyspaces();
        names.retain(|name| name != "new");
        assert_eq!(names, ["default", "kept"], "{place}");
        assert!(entries(&db.keyspace("new").unwrap()).is_empty(), "{place}");
        assert_eq!(db.keyspace("kept").unwrap().get("k").unwrap().unwrap(), "kept", "{place}");
        contents(&db);
    }
}

#[test]
fn a_full_disk_undoes_or_completes_a_drop() {
    for n in 0.. {
        let (disk, env, db) = on_failing_disk();
        let doomed = db.keyspace("doomed").unwrap();
        fill(&doomed, "k", 5000);
        db.flush().unwrap();
        fill(&doomed, "l", 5000);
        let expected = entries(&doomed);
        env.fail_at(env.calls() + n, Fault::from_then_on(FaultKind::Error(ENOSPC)));
        let dropped = db.drop_keyspace("doomed");
        if !env.has_fired() {
            assert!(dropped.is_ok() && n > 1, "{n} calls");
            break;
        }
        let place = format!("call {n}");
        if dropped.is_ok() {
            // What failed came after the drop: the removal of its files.
            continue;
        }
        assert!(matches!(dropped, Err(Error::Io { .. })), "{place}: {dropped:?}");
        assert_eq!(entries(&doomed), expected, "{place}");
        let crashed = disk.replay(disk.log_len(), CrashModel::Kill, 0);
        env.heal();
        match db.resume() {
            Ok(()) => {
                assert_eq!(entries(&doomed), expected, "{place}");
                let after = disk.power_cut();
                let after = open(&after, &small_options()).unwrap();
                assert_eq!(entries(&after.keyspace("doomed").unwrap()), expected, "{place}");
                db.drop_keyspace("doomed").unwrap();
                assert_eq!(db.keyspaces(), ["default"]);
            }
            Err(Error::ReadOnly { .. }) => {}
            Err(error) => panic!("{place}: {error}"),
        }
        let db = open(&crashed, &small_options()).unwrap();
        if db.keyspaces().len() == 2 {
            assert_eq!(entries(&db.keyspace("doomed").unwrap()), expected, "{place}");
        }
        contents(&db);
    }
}

/// A creation fails on a full disk and `resume` follows: the number of the failed creation is lost,
/// whatever the disk says of it.
#[test]
fn a_failed_creation_never_shares_its_number() {
    for n in 0..12 {
        let (disk, env, db) = on_failing_disk();
        db.put("k", "v").unwrap();
        env.fail_at(env.calls() + n, Fault::from_then_on(FaultKind::ErrorAfter(ENOSPC)));
        let failed = db.keyspace("first").is_err();
        env.heal();
        if !failed || db.resume().is_err() {
            continue;
        }
        let second = db.keyspace("second").unwrap();
        second.put_with("k", "second", &WriteOptions::new().sync(true)).unwrap();
        for seed in 0..4 {
            let after = disk.replay(disk.log_len(), CrashModel::Posix, seed);
            let after = open(&after, &small_options()).unwrap();
            assert_eq!(after.keyspace("second").unwrap().get("k").unwrap().unwrap(), "second");
            assert!(entries(&after.keyspace("first").unwrap()).is_empty(), "call {n}");
        }
    }
}

#[test]
fn names_are_checked_before_anything_is_written() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    let before = files(&env);
    for bad in
        ["", &"n".repeat(256), &"é".repeat(128), "a\0b", "tab\t", "line\n", "\u{7f}", "\u{85}"]
    {
        let error = db.keyspace(bad).map(drop).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{bad:?}: {error}");
        assert!(db.drop_keyspace(bad).is_err(), "{bad:?}");
    }
    assert_eq!(files(&env), before, "a refused name changed a file");
    for good in [&"n".repeat(255)[..], &"é".repeat(127), " ", "a/b", "..", "DEFAULT", "键"] {
        db.keyspace(good).unwrap().put("k", good).unwrap();
    }
    db.close().unwrap();
    let db = open(&env, &small_options()).unwrap();
    assert_eq!(db.keyspaces().len(), 8);
    for name in &db.keyspaces()[1..] {
        assert_eq!(db.keyspace(name).unwrap().get("k").unwrap().unwrap(), *name.as_bytes());
    }
}

#[test]
fn default_cannot_be_dropped() {
    let db = open(&MemEnv::new(), &small_options()).unwrap();
    assert!(matches!(db.drop_keyspace("default"), Err(Error::InvalidArgument { .. })));
    assert!(matches!(db.drop_keyspace("unknown"), Err(Error::KeyspaceNotFound { .. })));
    db.put("k", "v").unwrap();
    assert_eq!(db.keyspace("default").unwrap().get("k").unwrap().unwrap(), "v");
}

#[test]
fn handles_of_a_dropped_keyspace_say_so() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    let gone = db.keyspace("gone").unwrap();
    fill(&gone, "k", 3000);
    db.flush().unwrap();
    gone.put("l", "in a memtable").unwrap();
    let expected = entries(&gone);
    let (snapshot, elsewhere) = (gone.snapshot(), db.snapshot());
    let (mut forwards, mut backwards) = (gone.iter(), gone.iter().rev());
    forwards.next().unwrap().unwrap();
    backwards.next().unwrap().unwrap();
    db.drop_keyspace("gone").unwrap();
    let is_dropped = |error: Error| match error {
        Error::KeyspaceDropped { name } => assert_eq!(name, "gone"),
        other => panic!("{other}"),
    };
    is_dropped(gone.get("l").map(drop).unwrap_err());
    is_dropped(gone.multi_get(["l"]).map(drop).unwrap_err());
    is_dropped(gone.put("l", "v").unwrap_err());
    is_dropped(gone.delete("l").unwrap_err());
    is_dropped(gone.may_contain("l").map(drop).unwrap_err());
    is_dropped(gone.explain("l").map(drop).unwrap_err());
    is_dropped(gone.compact_range(..).unwrap_err());
    is_dropped(gone.iter().next().unwrap().map(drop).unwrap_err());
    is_dropped(gone.snapshot().get("l").map(drop).unwrap_err());
    // A new one of the same name has nothing to do with it.
    let again = db.keyspace("gone").unwrap();
    again.put("l", "again").unwrap();
    db.flush().unwrap();
    is_dropped(gone.get("l").map(drop).unwrap_err());
    is_dropped(gone.put("m", "v").unwrap_err());
    assert_eq!(again.get("m").unwrap(), None, "the number was used twice");
    assert_eq!(db.keyspaces(), ["default", "gone"]);
    // What was there before reads on.
    assert_eq!(forwards.count(), expected.len() - 1);
    assert_eq!(backwards.count(), expected.len() - 1);
    for snapshot in [&snapshot, &elsewhere.in_keyspace(&gone)] {
        assert_eq!(snapshot.iter().count(), expected.len());
        assert_eq!(snapshot.get("l").unwrap().unwrap(), "in a memtable");
    }
    assert_eq!(snapshot.in_keyspace(&again).iter().count(), 0, "it came later");
    drop((snapshot, elsewhere));
    db.close().unwrap();
}

#[test]
fn files_go_with_the_last_reader() {
    let env = MemEnv::new();
    let db = open(&env, &small_options().auto_compaction(false)).unwrap();
    let gone = db.keyspace("gone").unwrap();
    fill(&gone, "k", 30_000);
    db.flush().unwrap();
    let tables = files_ending(&env, ".sst");
    let (snapshot, iter) = (gone.snapshot(), gone.iter());
    db.drop_keyspace("gone").unwrap();
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    let left = || tables.iter().filter(|path| env.read_file(path).is_some()).count();
    assert_eq!((left(), snapshot.iter().count()), (tables.len(), 30));
    drop(snapshot);
    assert_eq!((left(), iter.count()), (tables.len(), 30));
    while left() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_batch_over_keyspaces_is_one_step() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    let (a, b) = (db.keyspace("a").unwrap(), db.keyspace("b").unwrap());
    let before = db.snapshot();
    let mut batch = WriteBatch::new();
    batch.put("k", "default");
    batch.in_keyspace(&a).put("k", "a").delete("j").put("j", "a");
    batch.in_keyspace(&b).put("k", "b").put("j", "b").delete("j");
    db.write(batch).unwrap();
    let expected = |names: [(&str, &[(&str, &str)]); 3]| -> Contents {
        let map = |pairs: &[(&str, &str)]| -> Map {
            pairs.iter().map(|(k, v)| (k.as_bytes().to_vec(), v.as_bytes().to_vec())).collect()
        };
        names.map(|(name, pairs)| (name.to_string(), map(pairs))).into()
    };
    let expected = expected([
        ("default", &[("k", "default")]),
        ("a", &[("j", "a"), ("k", "a")]),
        ("b", &[("k", "b")]),
    ]);
    assert_eq!(contents(&db), expected);
    assert_eq!(before.iter().chain(before.in_keyspace(&a).iter()).count(), 0);
    db.close().unwrap();
    drop((a, b, before));
    assert_eq!(contents(&open(&env, &small_options()).unwrap()), expected);
}

#[test]
fn a_batch_for_a_dropped_keyspace_writes_nothing() {
    let db = open(&MemEnv::new(), &small_options()).unwrap();
    let gone = db.keyspace("gone").unwrap();
    let mut batch = WriteBatch::new();
    batch.put("k", "v").in_keyspace(&gone).put("k", "v");
    db.drop_keyspace("gone").unwrap();
    assert!(matches!(db.write(batch), Err(Error::KeyspaceDropped { .. })));
    assert_eq!(db.get("k").unwrap(), None);
    db.put("k", "writes are taken").unwrap();
}

#[test]
fn a_keyspace_of_another_database_is_refused() {
    let (env, other_env) = (MemEnv::new(), MemEnv::new());
    let db = open(&env, &small_options()).unwrap();
    let other = open(&other_env, &small_options()).unwrap();
    let (own, foreign) = (db.keyspace("a").unwrap(), other.keyspace("a").unwrap());
    let mut batch = WriteBatch::new();
    batch.in_keyspace(&foreign).put("k", "v");
    assert!(matches!(db.write(batch), Err(Error::InvalidArgument { .. })));
    let mut batch = WriteBatch::new();
    batch.in_keyspace(&own).put("k", "v");
    batch.in_keyspace(&foreign).put("k", "v");
    assert!(matches!(db.write(batch.clone()), Err(Error::InvalidArgument { .. })));
    assert!(matches!(other.write(batch), Err(Error::InvalidArgument { .. })));
    // Also the one that every database has.
    let mut batch = WriteBatch::new();
    batch.in_keyspace(&other).put("k", "v");
    assert!(matches!(db.write(batch), Err(Error::InvalidArgument { .. })));
    assert!(db.snapshot().in_keyspace(&foreign).get("k").is_err());
    assert!(entries(&own).is_empty() && entries(&foreign).is_empty() && entries(&db).is_empty());
}

#[test]
fn a_keyspace_keeps_the_database_open() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    let a = db.keyspace("a").unwrap();
    drop(db);
    a.put("k", "v").unwrap();
    assert!(matches!(open(&env, &small_options()), Err(Error::Locked { .. })));
    drop(a);
    let db = open(&env, &small_options()).unwrap();
    let a = db.keyspace("a").unwrap();
    assert_eq!(a.get("k").unwrap().unwrap(), "v");
    // A close ends all handles.
    db.close().unwrap();
    for closed in [a.get("k").map(drop), a.put("k", "v"), a.compact_range(..)] {
        assert!(matches!(closed, Err(Error::Closed)), "{closed:?}");
    }
    assert!(matches!(db.keyspace("a"), Err(Error::Closed)));
    assert!(matches!(db.keyspace("b"), Err(Error::Closed)));
    assert!(matches!(db.drop_keyspace("a"), Err(Error::Closed)));
    open(&env, &small_options()).unwrap();
}

#[test]
fn read_only_openings_create_nothing() {
    let env = MemEnv::new();
    let options = KeyspaceOptions::new().block_bytes(1024);
    let db = open(&env, &small_options()).unwrap();
    db.keyspace_with("a", &options).unwrap().put("k", "v").unwrap();
    db.close().unwrap();
    drop(db);
    let before = files(&env);
    let db = small_options().env(as_env(&env)).open_read_only(HOME).unwrap();
    assert!(matches!(db.keyspace("b"), Err(Error::KeyspaceNotFound { .. })));
    assert!(matches!(db.drop_keyspace("a"), Err(Error::OpenedReadOnly)));
    assert_eq!(db.keyspace("a").unwrap().get("k").unwrap().unwrap(), "v");
    let other = KeyspaceOptions::new().block_bytes(2048);
    let refused = db.keyspace_with("a", &other).map(drop);
    assert!(matches!(refused, Err(Error::InvalidOptions { .. })), "{refused:?}");
    drop(db);
    // Named settings are used and not saved.
    let db = small_options().env(as_env(&env)).open_read_only(HOME).unwrap();
    let a = db.keyspace_with("a", &other).unwrap();
    assert_eq!(a.get("k").unwrap().unwrap(), "v");
    drop((a, db));
    assert_eq!(files(&env), before);
    let db = open(&env, &small_options()).unwrap();
    let saved = named(&db);
    assert!(saved.contains("block_bytes=1024"), "{saved}");
}

#[test]
fn settings_are_saved_and_replaced() {
    let env = MemEnv::new();
    let (first, second) =
        (KeyspaceOptions::new().block_bytes(1024), KeyspaceOptions::new().snappy(false));
    let db = open(&env, &small_options()).unwrap();
    db.keyspace_with("a", &first).unwrap();
    // The same settings, or none, are no change.
    db.keyspace_with("a", &first).unwrap();
    db.keyspace("a").unwrap();
    let refused = db.keyspace_with("a", &second).map(drop);
    assert!(matches!(refused, Err(Error::InvalidOptions { .. })), "{refused:?}");
    drop(db);
    let db = open(&env, &small_options()).unwrap();
    assert_eq!(named(&db), "block_bytes=1024");
    drop(db);
    // Named before any write of the session: in use now, and saved with the first write.
    let db = open(&env, &small_options()).unwrap();
    let before = files(&env);
    db.keyspace_with("a", &second).unwrap();
    assert_eq!(files(&env), before, "an opening without a write changed a file");
    assert_eq!(named(&db), "block_bytes=1024, compression=none");
    drop(db);
    let db = open(&env, &small_options()).unwrap();
    assert_eq!(named(&db), "block_bytes=1024", "nothing was written");
    drop(db);
    let db = open(&env, &small_options()).unwrap();
    db.keyspace_with("a", &second).unwrap();
    db.put_with("k", "v", &WriteOptions::new().sync(true)).unwrap();
    let crashed = env.power_cut();
    drop(db);
    for env in [env, crashed] {
        assert_eq!(
            named(&open(&env, &small_options()).unwrap()),
            "block_bytes=1024, compression=none"
        );
    }
}

#[test]
fn settings_that_cannot_be_create_nothing() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    let before = files(&env);
    let bad = [
        KeyspaceOptions::new().block_bytes(1),
        KeyspaceOptions::new().filter(Filter::bloom(-1.0)),
        KeyspaceOptions::new().filter_at_level(7, Filter::none()),
    ];
    for options in bad {
        let refused = db.keyspace_with("a", &options).map(drop);
        assert!(matches!(refused, Err(Error::InvalidOptions { .. })), "{options}: {refused:?}");
    }
    assert_eq!((files(&env), db.keyspaces()), (before, vec!["default".to_string()]));
}

#[test]
fn an_unregistered_policy_is_named() {
    use crate::support::filters::Marks;
    let env = MemEnv::new();
    let policy = KeyspaceOptions::new().filter(Filter::custom(Arc::new(Marks)));
    let registered = || small_options().register_filter_policy(Arc::new(Marks));
    let db = open(&env, &registered()).unwrap();
    let a = db.keyspace_with("a", &policy).unwrap();
    fill(&a, "k", 5000);
    db.flush().unwrap();
    db.close().unwrap();
    drop((a, db));
    let before = files(&env);
    let error = open(&env, &small_options()).map(drop).unwrap_err();
    assert!(matches!(error, Error::InvalidOptions { .. }), "{error}");
    assert!(error.to_string().contains(Marks.name()), "{error}");
    assert_eq!(files(&env), before);
    let db = open(&env, &small_options().allow_unregistered_filters(true)).unwrap();
    let a = db.keyspace("a").unwrap();
    assert_eq!(keyspace_reads(&a, ["absent"], "a").len(), 5);
    // The policy stays saved, also after writes without it.
    a.put("new", "v").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    drop((a, db));
    let db = open(&env, &registered()).unwrap();
    let named = named(&db);
    assert!(named.contains(Marks.name()), "{named}");
}

/// Every opening sees the keyspaces in the order of their creation, also after drops.
#[test]
fn keyspaces_are_listed_by_creation() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    for name in ["z", "m", "a"] {
        db.keyspace(name).unwrap();
    }
    db.drop_keyspace("m").unwrap();
    db.keyspace("m").unwrap();
    assert_eq!(db.keyspaces(), ["default", "z", "a", "m"]);
    drop(db);
    assert_eq!(open(&env, &small_options()).unwrap().keyspaces(), ["default", "z", "a", "m"]);
}

/// A write of one keyspace that is in a table survives a power cut. Without the older, unsynced
/// write of another keyspace that would be a hole.
#[test]
fn a_flush_syncs_older_writes_of_others() {
    let env = MemEnv::with_log();
    let db = open(&env, &small_options().auto_compaction(false)).unwrap();
    let (old, new) = (db.keyspace("old").unwrap(), db.keyspace("new").unwrap());
    old.put("k", "older").unwrap();
    fill(&new, "k", 3 * BUFFER);
    while new.stats().levels.iter().map(|level| level.tables).sum::<u64>() == 0 {
        std::thread::yield_now();
    }
    let after = open(&env.power_cut(), &small_options()).unwrap();
    let found: BTreeSet<_> =
        contents(&after).into_iter().filter(|(_, e)| !e.is_empty()).map(|(n, _)| n).collect();
    assert_eq!(found, ["new", "old"].map(String::from).into());
}

#[test]
fn many_keyspaces_open_again() {
    let env = MemEnv::new();
    let db = open(&env, &small_options().manifest_bytes(1 << 20)).unwrap();
    for number in 0..300 {
        db.keyspace(&format!("ks{number}")).unwrap().put("k", number.to_string()).unwrap();
    }
    db.close().unwrap();
    drop(db);
    let db = open(&env, &small_options()).unwrap();
    assert_eq!(db.keyspaces().len(), 301);
    for number in 0..300 {
        let keyspace = db.keyspace(&format!("ks{number}")).unwrap();
        assert_eq!(keyspace.get("k").unwrap().unwrap(), *number.to_string().as_bytes());
    }
    assert!(db.verify(|_| {}).unwrap().is_sound());
}

/// A flush writes all keyspaces in one edit, while no other job can log one.
#[test]
fn a_flush_takes_no_square_of_the_number_of_keyspaces() {
    let flush_of = |count: usize| {
        let options = Options::new().auto_compaction(false);
        let db = open(&MemEnv::new(), &options).unwrap();
        let mut batch = WriteBatch::new();
        let names: Vec<_> = (0..count).map(|number| number.to_string()).collect();
        for name in &names {
            batch.create_keyspace(name, &KeyspaceOptions::new());
        }
        db.write(batch).unwrap();
        names.iter().for_each(|name| db.keyspace(name).unwrap().put("k", "v").unwrap());
        let started = Instant::now();
        db.flush().unwrap();
        started.elapsed()
    };
    let few = (0..3).map(|_| flush_of(500)).min().unwrap();
    let many = (0..2).map(|_| flush_of(8000)).min().unwrap();
    // 16 times as many; the square of that is 256.
    assert!(many < 40 * few, "{few:?} and {many:?}");
}

#[test]
fn a_dropped_keyspace_cannot_be_flushed() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    let dropped = db.keyspace("dropped").unwrap();
    dropped.put("k", "v").unwrap();
    db.drop_keyspace("dropped").unwrap();
    assert!(matches!(dropped.flush(), Err(Error::KeyspaceDropped { .. })));
    db.close().unwrap();
    assert!(matches!(dropped.flush(), Err(Error::Closed)));
}

/// Its handle was dropped, and it refused all keyspaces.
#[test]
fn a_snapshot_of_a_dropped_keyspace_reads_others() {
    let db = open(&MemEnv::new(), &small_options()).unwrap();
    let gone = db.keyspace("gone").unwrap();
    gone.put("k", "gone").unwrap();
    db.drop_keyspace("gone").unwrap();
    db.put("k", "v").unwrap();
    let is_dropped = |result: siftdb::Result<Option<siftdb::Value>>| {
        assert!(matches!(result, Err(Error::KeyspaceDropped { .. })), "{result:?}");
    };
    let snapshot = gone.snapshot();
    is_dropped(snapshot.get("k"));
    let here = snapshot.in_keyspace(&db);
    assert_eq!(here.get("k").unwrap().unwrap(), "v");
    assert_eq!(here.iter().count(), 1);
    is_dropped(here.in_keyspace(&gone).get("k"));
    assert_eq!(here.in_keyspace(&gone).in_keyspace(&db).get("k").unwrap().unwrap(), "v");
    let transaction = gone.transaction();
    is_dropped(transaction.get("k"));
    assert!(transaction.put("k", "w").is_err());
    transaction.in_keyspace(&db).put("k", "w").unwrap();
    transaction.commit().unwrap();
    assert_eq!(db.get("k").unwrap().unwrap(), "w");
    db.close().unwrap();
    assert!(matches!(snapshot.in_keyspace(&db).get("k"), Ok(Some(_))));
    assert!(matches!(gone.snapshot().in_keyspace(&db).get("k"), Err(Error::Closed)));
}

/// They wait for an old snapshot, and each release of another one looked at all of them.
#[test]
fn dropped_keyspaces_do_not_slow_snapshots() {
    let time_of = |keyspaces: u32| {
        let db = open(&MemEnv::new(), &small_options()).unwrap();
        let (mut create, mut remove) = (WriteBatch::new(), WriteBatch::new());
        for n in 0..keyspaces {
            _ = create.create_keyspace(&n.to_string(), &KeyspaceOptions::new());
            remove.drop_keyspace(&n.to_string());
        }
        db.write(create).unwrap();
        let old = db.snapshot();
        db.write(remove).unwrap();
        let release = |_| {
            let started = Instant::now();
            (0..500).for_each(|_| drop(db.snapshot()));
            started.elapsed()
        };
        let fastest = (0..20).map(release).min().unwrap();
        drop(old);
        fastest
    };
    let (few, many) = (time_of(1), time_of(30_000));
    assert!(many < 4 * few, "{few:?} and {many:?}");
}
