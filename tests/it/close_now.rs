//! `close_now`: the directory is free when it returns, whatever still holds the database.

use crate::resume::unnamed_tables;
use crate::support::data::bytes;
use crate::support::gate::{Gate, GateEnv, OpensOnDrop, Stops};
use crate::support::reads::all_reads;
use crate::support::stores::{HOME, as_env, open, scan, small_options, until};
use siftdb::env::testing::{EIO, Fault, FaultEnv, FaultKind};
use siftdb::env::{Env, LockMode, MemEnv};
use siftdb::{Db, Error, Filter, FilterRebuild, Key, Options, Result, Value};
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn key(number: usize) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

/// Entries in several levels, and a few in a memtable. Files are opened again for most reads.
fn filled(env: &Arc<dyn Env>) -> Db {
    let options = small_options().max_open_files(1).block_cache_bytes(0).auto_compaction(false);
    let db = options.env(Arc::clone(env)).open(HOME).unwrap();
    for round in 0..4u64 {
        for number in (round as usize..200).step_by(round as usize + 1) {
            db.put(key(number), bytes(round, 400)).unwrap();
        }
        db.flush().unwrap();
        if round == 1 {
            db.compact_range(..).unwrap();
        }
    }
    db.put(key(7), bytes(9, 400)).unwrap();
    db
}

#[track_caller]
fn closed<T: Debug>(answer: Result<T>) {
    assert!(matches!(answer, Err(Error::Closed)), "{answer:?}");
}

#[track_caller]
fn ended<T: Debug>(mut steps: impl Iterator<Item = Result<T>>) {
    closed(steps.next().expect("one error"));
    assert!(steps.next().is_none(), "nothing follows an error");
}

/// Another database in the directory, in which every file is another one.
fn successor(disk: &MemEnv) -> Db {
    let db = open(disk, &small_options()).expect("the directory is free");
    db.compact_range(..).unwrap();
    (0..200).for_each(|number| db.put(key(number), "of the successor").unwrap());
    db.flush().unwrap();
    db.compact_range(..).unwrap();
    until("removed", || unnamed_tables(&db, disk).is_empty());
    db
}

#[test]
fn living_readers_do_not_keep_the_directory() {
    let disk = MemEnv::with_log();
    let db = filled(&as_env(&disk));
    let dropped = db.keyspace("dropped").unwrap();
    (0..100).for_each(|number| dropped.put(key(number), bytes(1, 400)).unwrap());
    dropped.flush().unwrap();
    let expected = scan(&db).unwrap();
    let (mut iter, mut back, mut unstarted) = (db.iter(), db.iter().rev(), db.iter().keys());
    let (first, last) = (iter.next().unwrap().unwrap(), back.next().unwrap().unwrap());
    let (mut cursor, mut back_cursor) = (db.cursor(), db.cursor());
    assert!(cursor.seek(key(50)).unwrap() && back_cursor.seek_to_last().unwrap());
    assert!(back_cursor.prev().unwrap());
    let mut of_dropped = dropped.iter();
    of_dropped.next().unwrap().unwrap();
    let snapshot = db.snapshot();
    let mut of_snapshot = snapshot.iter();
    of_snapshot.next().unwrap().unwrap();
    let mut later = dropped.snapshot();
    db.drop_keyspace("dropped").unwrap();
    assert!(later.get(key(1)).unwrap().is_some());
    let tx = db.transaction();
    tx.put("own", "1").unwrap();
    assert!(tx.get(key(3)).unwrap().is_some());
    let mut load = db.keyspace("loaded").unwrap().table_writer().unwrap();
    (0..300).for_each(|number| load.put(key(number), bytes(2, 400)).unwrap());
    let values: Vec<Value> = (0..200).map(|n| db.get(key(n)).unwrap().unwrap()).collect();

    db.close_now().unwrap();
    let calls = disk.log_len();
    drop(disk.lock(&Path::new(HOME).join("LOCK"), LockMode::Exclusive).expect("unlocked"));
    let next = successor(&disk);
    let after = disk.log_len();
    assert!(after > calls);

    for _ in 0..2 {
        closed(cursor.next());
        closed(cursor.prev());
        closed(cursor.seek(key(60)));
        closed(cursor.seek_to_first());
        closed(cursor.seek_range(key(10)..key(20)));
        closed(cursor.seek_prefix("none"));
        closed(back_cursor.prev());
        closed(back_cursor.next());
        closed(back_cursor.seek_for_prev(key(60)));
        assert!(cursor.entry().is_none() && back_cursor.entry().is_none());
    }
    ended(&mut iter);
    ended(&mut back);
    ended(&mut unstarted);
    ended(&mut of_dropped);
    ended(&mut of_snapshot);
    ended(snapshot.range(key(3)..));
    ended(tx.iter());
    for snapshot in [&snapshot, &later] {
        closed(snapshot.get(key(7)));
        closed(snapshot.multi_get([key(7)]));
        closed(snapshot.explain(key(7)));
        closed(snapshot.first());
    }
    later = snapshot.in_keyspace(&db);
    closed(later.get(key(7)));
    closed(tx.get("own"));
    closed(tx.put("own", "2"));
    closed(tx.commit());
    closed(load.put("later", "1"));
    closed(load.finish());
    for refused in [db.get("k").map(drop), db.put("k", "v"), db.flush(), db.compact_range(..)] {
        closed(refused);
    }
    closed(db.verify(|_| {}));
    closed(db.check_filters());
    closed(db.estimate_range(..));
    closed(db.checkpoint("/copy"));
    closed(db.multi_get([key(7)]));
    ended(db.iter());
    db.close_now().expect("a second one does nothing");
    db.close().expect("nor does a close");
    drop((
        iter,
        back,
        unstarted,
        cursor,
        back_cursor,
        of_dropped,
        snapshot,
        of_snapshot,
        later,
        db,
    ));
    assert_eq!(disk.log_text()[after..], [""; 0], "of the closed database");

    let entry = |(key, value): &(Key, Value)| (key.to_vec(), value.to_vec());
    let (low, high) = (expected.first_key_value().unwrap(), expected.last_key_value().unwrap());
    assert_eq!(entry(&first), (low.0.clone(), low.1.clone()));
    assert_eq!(entry(&last), (high.0.clone(), high.1.clone()));
    assert!(values.iter().zip(expected.values()).all(|(value, own)| value[..] == own[..]));
    let found = all_reads(&next, ["absent"], "the successor");
    assert_eq!(found.len(), 200);
    assert!(found.values().all(|value| value == b"of the successor"));
}

/// Everything that writes files, in threads that do not know of the end.
#[test]
fn no_file_changes_after_close_now() {
    for round in 0..6 {
        let env = MemEnv::with_log();
        let db = open(&env, &small_options()).unwrap();
        let loaded = db.keyspace("loaded").unwrap();
        let fill = |number| (0..300).try_for_each(|n| db.put(key(n), bytes(number, 300)));
        fill(0).unwrap();
        let begun: [AtomicU64; 5] = Default::default();
        std::thread::scope(|scope| {
            let (begun, db, loaded) = (&begun, &db, &loaded);
            let works: [Box<dyn Fn(u64) -> Result<()> + Send + Sync>; 5] = [
                Box::new(fill),
                Box::new(|_| db.rebuild_filters(FilterRebuild::All).map(drop)),
                Box::new(|number| {
                    let mut load = loaded.table_writer()?;
                    (0..2000).try_for_each(|n| load.put(key(n), bytes(number, 300)))?;
                    // Every second one is dropped.
                    if number % 2 == 0 { load.finish().map(drop) } else { Ok(()) }
                }),
                Box::new(|number| {
                    let entries = (0..2000).rev().map(|n| (key(n), bytes(number, 300)));
                    loaded.ingest_unsorted(entries).map(drop)
                }),
                Box::new(|number| db.checkpoint(format!("/copy{number}")).map(drop)),
            ];
            let works = Arc::new(works);
            let workers: Vec<_> = (0..works.len())
                .map(|place| {
                    let works = Arc::clone(&works);
                    scope.spawn(move || {
                        let ended = (1..).find_map(|number| {
                            begun[place].fetch_add(1, Ordering::SeqCst);
                            works[place](number).err()
                        });
                        assert!(matches!(ended, Some(Error::Closed)), "{place}: {ended:?}");
                    })
                })
                .collect();
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let ended = (0..).find_map(|number| {
                            let key = key(number % 300);
                            let found = db.get(key).and_then(|found| {
                                assert!(found.is_some());
                                db.iter().try_for_each(|entry| entry.map(drop))
                            });
                            found.err()
                        });
                        assert!(matches!(ended, Some(Error::Closed)), "{ended:?}");
                    })
                })
                .collect();
            let has_begun = |count: u64| begun.iter().all(|n| n.load(Ordering::SeqCst) > count);
            until("under way", || has_begun(round % 3));
            db.close_now().unwrap();
            let path = Path::new(HOME).join("LOCK");
            let _lock = env.lock(&path, LockMode::Exclusive).expect("the directory is free");
            let calls = env.log_len();
            workers.into_iter().chain(readers).for_each(|thread| thread.join().unwrap());
            assert_eq!(env.log_text()[calls..], [""; 0], "round {round}");
        });
        drop((loaded, db));
        // What was acknowledged is there, and what a load has left goes.
        let db = open(&env, &small_options()).unwrap();
        assert_eq!(db.iter().count(), 300);
        let loads = db.keyspace("loaded").unwrap().iter().count();
        assert!(loads == 0 || loads == 2000, "{loads} of a load");
        // A copy that was being made is whole, or is not there.
        for number in 1..=begun[4].load(Ordering::SeqCst) {
            let copy = small_options().create_if_missing(false).env(as_env(&env));
            match copy.open(format!("/copy{number}")) {
                Ok(copy) => assert_eq!(copy.iter().count(), 300),
                Err(error) => assert!(!error.is_corruption(), "{error}"),
            }
        }
    }
}

/// A lookup waits in the newest table, and then has to open an older one, whose name may be that of
/// another file by now.
#[test]
fn reads_under_way_open_no_file_after_close_now() {
    let (disk, gate) = (MemEnv::new(), Gate::default());
    let env: Arc<dyn Env> = Arc::new(GateEnv::new(as_env(&disk), &gate));
    let options = Options::new()
        .filter(Filter::none())
        .auto_compaction(false)
        .block_cache_bytes(0)
        .max_open_files(1);
    let db = options.env(env).open(HOME).unwrap();
    for (first, last) in [("a", "k"), ("b", "z")] {
        db.put(first, "old").unwrap();
        db.put(last, "old").unwrap();
        db.flush().unwrap();
    }
    let _opens = OpensOnDrop([&gate]);
    std::thread::scope(|scope| {
        gate.shut(Stops::Reads);
        let get = scope.spawn(|| db.get("k"));
        let mut iter = db.iter();
        let step = scope.spawn(move || iter.next());
        gate.wait_for_a_call();
        // They hold the files that they read, and are not waited for.
        db.close_now().unwrap();
        let next = successor(&disk);
        gate.open();
        closed(get.join().unwrap());
        match step.join().unwrap() {
            Some(Ok((key, value))) => assert_eq!((&key[..], &value[..]), (&b"a"[..], &b"old"[..])),
            answer => closed(answer.expect("an entry")),
        }
        next.close().unwrap();
    });
}

#[test]
fn close_now_waits_for_a_checkpoint() {
    let (disk, gate) = (MemEnv::new(), Gate::default());
    let db = open(&disk, &small_options()).unwrap();
    (0..100).for_each(|number| db.put(key(number), "1").unwrap());
    db.flush().unwrap();
    db.close().unwrap();
    drop(db);
    // Its close changes no file, so only the checkpoint stops at the gate.
    let env: Arc<dyn Env> = Arc::new(GateEnv::new(as_env(&disk), &gate));
    let db = small_options().env(env).open_read_only(HOME).unwrap();
    let snapshot = db.snapshot();
    let _opens = OpensOnDrop([&gate]);
    std::thread::scope(|scope| {
        gate.shut(Stops::SyncsOf("MANIFEST"));
        let copy = scope.spawn(|| db.checkpoint("/copy"));
        gate.wait_for_a_call();
        let close = scope.spawn(|| db.close_now());
        until("ended", || matches!(snapshot.get("k"), Err(Error::Closed)));
        (0..1000).for_each(|_| std::thread::yield_now());
        assert!(!close.is_finished(), "a checkpoint is being made");
        gate.open();
        copy.join().unwrap().expect("a checkpoint that had all of its moment");
        close.join().unwrap().unwrap();
    });
    let copy = small_options().env(as_env(&disk)).open_read_only("/copy").unwrap();
    assert_eq!(copy.iter().count(), 100);
    assert!(copy.verify(|_| {}).unwrap().is_sound());
}

#[test]
fn a_failed_close_frees_the_directory() {
    let disk = MemEnv::new();
    let env = FaultEnv::new(as_env(&disk));
    let db = small_options().env(Arc::new(env.clone())).open(HOME).unwrap();
    db.put("k", "v").unwrap();
    let iter = db.iter();
    env.fail_at(env.calls(), Fault::from_then_on(FaultKind::Error(EIO)));
    assert!(matches!(db.close_now(), Err(Error::Io { .. })));
    env.heal();
    let next = open(&disk, &small_options()).expect("the directory is free");
    assert!(matches!(db.close_now(), Err(Error::ReadOnly { .. })), "each call tells");
    ended(iter);
    assert_eq!(next.get("k").unwrap().unwrap(), "v");
}

#[test]
fn readers_of_closed_and_read_only_databases_end() {
    let disk = MemEnv::new();
    let db = filled(&as_env(&disk));
    let (snapshot, mut iter) = (db.snapshot(), db.iter());
    db.close().unwrap();
    assert!(snapshot.get(key(7)).unwrap().is_some() && iter.next().unwrap().is_ok());
    assert!(matches!(open(&disk, &small_options()), Err(Error::Locked { .. })));
    db.close_now().unwrap();
    ended(iter);
    closed(snapshot.get(key(7)));
    let reader = small_options().env(as_env(&disk)).open_read_only(HOME).unwrap();
    let iter = reader.iter();
    reader.close_now().unwrap();
    let writer = open(&disk, &small_options()).expect("no reader is left");
    ended(iter);
    writer.close_now().unwrap();
}
