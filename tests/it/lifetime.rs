//! How long a database is locked, by which process, and what the error says: closing while others
//! read, open handles, a removed `LOCK`, two creators of one directory.

use crate::support::data::{bytes, key};
use crate::support::gate::{Gate, GateEnv, Stops};
use crate::support::stores::{HOME, as_env, begun_logs, open, scan, small_options, until};
use siftdb::env::testing::{Calls, FaultEnv};
use siftdb::env::{DiskEnv, Env, MemEnv};
use siftdb::{Db, Error, FilterRebuild, LockHolder, Options, ReadOptions, WriteOptions};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use tempfile::tempdir;

/// The error of an opening; `None` if it succeeds.
fn holder(env: &MemEnv) -> Option<LockHolder> {
    match open(env, &small_options()) {
        Ok(db) => {
            db.close().unwrap();
            None
        }
        Err(Error::Locked { holder, .. }) => Some(holder),
        Err(error) => panic!("{error}"),
    }
}

fn filled(env: &MemEnv, options: &Options) -> Db {
    let db = open(env, options).unwrap();
    for n in 0..100 {
        db.put(key(n), bytes(n as u64, 100)).unwrap();
    }
    db.flush().unwrap();
    db
}

/// One reader after another is inside a read when `close` returns.
#[test]
fn an_unfinished_read_keeps_the_lock() {
    type Read = fn(&Db) -> usize;
    const PAST: ReadOptions = ReadOptions::new().fill_cache(false);
    let reads: [(&str, Read); 4] = [
        ("get", |db| db.get_with(key(50), &PAST).unwrap().iter().count()),
        ("multi_get", |db| {
            let found = db.multi_get_with([key(50), key(10)], &PAST).unwrap();
            found.iter().flatten().count()
        }),
        ("scan", |db| db.range_with(key(10).., &PAST).map(Result::unwrap).count()),
        ("explain", |db| db.explain_with(key(50), &PAST).unwrap().value.iter().count()),
    ];
    for (name, read) in reads {
        let (env, gate) = (MemEnv::new(), Gate::default());
        drop(filled(&env, &small_options()));
        let behind = GateEnv::new(as_env(&env), &gate);
        let db = small_options().env(Arc::new(behind)).open(HOME).unwrap();
        gate.shut(Stops::Reads);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| read(&db));
            gate.wait_for_a_call();
            db.close().unwrap();
            assert_eq!(holder(&env), Some(LockHolder::Reader), "{name}");
            assert!(matches!(db.get("k"), Err(Error::Closed)));
            gate.open();
            assert!(reader.join().unwrap() > 0, "{name}");
        });
        assert_eq!(holder(&env), None, "{name}");
    }
}

#[test]
fn an_unfinished_verify_keeps_the_lock() {
    let env = MemEnv::new();
    let db = filled(&env, &small_options());
    let mut closed = false;
    let ended = db.verify(|_| {
        if !std::mem::replace(&mut closed, true) {
            db.close().unwrap();
            assert_eq!(holder(&env), Some(LockHolder::Reader));
        }
    });
    assert!(matches!(ended, Err(Error::Closed)));
    assert_eq!(holder(&env), None);
}

#[test]
fn closed_handles_release_the_lock() {
    let env = MemEnv::new();
    let db = filled(&env, &small_options());
    let clone = db.clone();
    assert_eq!(holder(&env), Some(LockHolder::Handle));
    let (snapshot, mut iter) = (db.snapshot(), clone.iter());
    let from_snapshot = snapshot.iter();
    db.close().unwrap();
    assert_eq!(holder(&env), Some(LockHolder::Reader), "snapshot and iterators");
    assert_eq!(snapshot.get(key(7)).unwrap().unwrap(), bytes(7, 100)[..]);
    assert_eq!(snapshot.multi_get([key(7)]).unwrap().len(), 1);
    drop(snapshot);
    assert_eq!(from_snapshot.count(), 100);
    assert_eq!(holder(&env), Some(LockHolder::Reader), "an iterator");
    assert_eq!(iter.next().unwrap().unwrap().0, key(0));
    drop(iter);
    assert_eq!(holder(&env), None);
    let next = open(&env, &small_options()).unwrap();
    assert_eq!(holder(&env), Some(LockHolder::Handle));
    for refused in [
        clone.get("k").map(drop),
        clone.multi_get(["k"]).map(drop),
        clone.may_contain("k").map(drop),
        clone.explain("k").map(drop),
        clone.iter().next().unwrap().map(drop),
        clone.range(key(2)..key(1)).next().unwrap().map(drop),
        clone.snapshot().get("k").map(drop),
        clone.snapshot().iter().next().unwrap().map(drop),
        clone.verify(|_| {}).map(drop),
        clone.put("k", "v"),
    ] {
        assert!(matches!(refused, Err(Error::Closed)), "{refused:?}");
    }
    assert_eq!(clone.stats().total().entries, 100, "statistics stay");
    next.put("k", "v").unwrap();
    next.close().unwrap();
}

#[test]
fn a_lock_error_names_its_process() {
    let directory = tempdir().unwrap();
    let db = Db::open(directory.path()).unwrap();
    let said = |path: &Path| Db::open(path).unwrap_err().to_string();
    assert!(said(directory.path()).contains("through another handle"));
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(directory.path(), &link).unwrap();
    assert!(said(&link).contains("through another handle"), "by another name, too");
    let iter = db.iter();
    drop(db);
    assert!(said(directory.path()).contains("iterator, snapshot or call"));
    drop(iter);
    // `flock` by another program than siftdb: the holder is unknown.
    let foreign = std::fs::File::open(directory.path().join("LOCK")).unwrap();
    foreign.try_lock().unwrap();
    assert!(said(directory.path()).contains("another process"));
    drop(foreign);
    Db::open(directory.path()).unwrap();
}

fn remove_lock(env: &MemEnv) {
    env.remove(&Path::new(HOME).join("LOCK")).unwrap();
}

/// The next log, the next change of the manifest, each sync and closing find that `LOCK` is gone.
#[test]
fn a_removed_lock_stops_its_writer() {
    type Step = fn(&Db) -> siftdb::Result<()>;
    let steps: [(&str, Step); 7] = [
        ("synced put", |db| db.put_with("more", "m", &WriteOptions::new().sync(true))),
        ("sync", |db| db.put("more", "m").and_then(|()| db.sync())),
        ("ticket", |db| db.put("more", "m").and_then(|()| db.sync_ticket().wait())),
        ("switch", |db| (0..).try_for_each(|n| db.put(key(n % 100), bytes(9, 300)))),
        ("flush", |db| db.put("more", "m").and_then(|()| db.flush())),
        ("compaction", |db| db.rebuild_filters(FilterRebuild::All).map(drop)),
        ("close", |db| db.close()),
    ];
    for (name, step) in steps {
        let env = MemEnv::new();
        let db = filled(&env, &small_options());
        let two = open(&env, &small_options());
        assert!(matches!(two, Err(Error::Locked { .. })), "{name}");
        remove_lock(&env);
        let two = open(&env, &small_options()).expect("nothing locks it out");
        two.put("two", "2").unwrap();
        two.flush().unwrap();
        let error = step(&db).unwrap_err();
        let cause = match &error {
            Error::ReadOnly { cause } => cause,
            other => other,
        };
        assert!(matches!(cause, Error::LockLost { .. }), "{name}: {error}");
        if name != "close" {
            let Err(Error::ReadOnly { cause }) = db.put("k", "v") else { panic!("{name}") };
            assert!(matches!(*cause, Error::LockLost { .. }), "{name}");
            assert!(db.get(key(1)).unwrap().is_some(), "{name}");
            assert!(matches!(db.close(), Err(Error::ReadOnly { .. })), "{name}");
        }
        drop(db);
        two.put("two", "3").unwrap();
        two.close().unwrap();
        drop(two);
        // All tables and logs of the other database are there: without one of them it would not
        // open.
        let db = open(&env, &small_options()).unwrap();
        assert_eq!(db.get("two").unwrap().unwrap(), "3", "{name}");
        assert_eq!(scan(&db).unwrap().len(), 101, "{name}");
    }
}

/// Without a sync, a new log or a change of the manifest.
#[test]
fn unsynced_writes_alone_notice_a_removed_lock() {
    let env = MemEnv::new();
    let counted = FaultEnv::new(as_env(&env));
    let db = Options::new().env(Arc::new(counted.clone())).open(HOME).unwrap();
    let compared = || counted.calls_of(Calls::Named("metadata"));
    db.put("first", "1").unwrap();
    let before = compared();
    until("compared twice", || {
        db.put("k", "v").unwrap();
        compared() >= before + 2
    });
    remove_lock(&env);
    let two = open(&env, &Options::new()).expect("nothing locks it out");
    two.put("two", "2").unwrap();
    until("noticed", || db.put("k", "v").is_err());
    let Err(Error::ReadOnly { cause }) = db.put("k", "v") else { panic!("it takes writes") };
    assert!(matches!(*cause, Error::LockLost { .. }), "{cause}");
    assert!(db.stats().wal_bytes < 32 << 20, "no log was switched");
    assert!(matches!(db.close(), Err(Error::ReadOnly { .. })));
    two.close().unwrap();
}

/// On a disk: of the first opener, nothing is acknowledged as durable once another one could open.
#[test]
fn openers_never_both_acknowledge_synced_writes() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("db");
    let synced = WriteOptions::new().sync(true);
    let one = Db::open(&path).unwrap();
    one.put_with("one", "1", &synced).unwrap();
    std::fs::remove_file(path.join("LOCK")).unwrap();
    let two = Db::open(&path).unwrap();
    for n in 0..100 {
        two.put_with(format!("two {n}"), "2", &synced).unwrap();
        assert!(one.put_with(format!("one {n}"), "1", &synced).is_err(), "{n}");
    }
    assert!(matches!(one.put("k", "v"), Err(Error::ReadOnly { .. })));
    drop(one);
    two.close().unwrap();
    drop(two);
    let db = Db::open(&path).unwrap();
    assert_eq!(db.iter().count(), 101);
}

/// A session that has not written yet does not begin to write under a foreign lock.
#[test]
fn a_replaced_lock_stops_the_first_write() {
    let env = MemEnv::new();
    drop(filled(&env, &small_options()));
    let db = open(&env, &small_options()).unwrap();
    remove_lock(&env);
    env.write_file(&Path::new(HOME).join("LOCK"), b"");
    assert!(matches!(db.put("k", "v"), Err(Error::LockLost { .. })));
    assert_eq!(begun_logs(&env).len(), 1, "no log was begun");
}

/// If `LOCK` cannot be read, nothing is written.
#[test]
fn an_unreadable_lock_is_not_trusted() {
    use siftdb::env::testing::{EIO, Fault, FaultKind};
    let env = MemEnv::new();
    drop(filled(&env, &small_options()));
    let faulty = FaultEnv::new(as_env(&env));
    let db = small_options().env(Arc::new(faulty.clone())).open(HOME).unwrap();
    let calls = Calls::Named("metadata");
    faulty.fail_at(faulty.calls_of(calls), Fault::once(FaultKind::Error(EIO)).among(calls));
    let error = db.put("k", "v").unwrap_err();
    assert!(matches!(error, Error::Io { op: "read", .. }), "{error}");
    assert!(matches!(db.put("k", "v"), Err(Error::ReadOnly { .. })));
}

/// All of them find no `LOCK`; one creates it, and one gets the lock.
#[test]
fn one_of_many_creators_wins() {
    const OPENERS: usize = 8;
    let directory = tempdir().unwrap();
    for round in 0..60 {
        let path = directory.path().join(round.to_string());
        DiskEnv::new().create_dir(&path).unwrap();
        let (together, opened) = (Barrier::new(OPENERS), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..OPENERS {
                scope.spawn(|| {
                    together.wait();
                    let result = Db::open(&path);
                    match &result {
                        Ok(db) => {
                            opened.fetch_add(1, Ordering::SeqCst);
                            db.put("k", "v").unwrap();
                        }
                        Err(Error::Locked { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                    // The lock is held until all have tried.
                    together.wait();
                    drop(result);
                });
            }
        });
        assert_eq!(opened.into_inner(), 1, "round {round}");
        assert_eq!(Db::open(&path).unwrap().get("k").unwrap().unwrap(), "v");
    }
}

/// The first sync is held up until 99 other writers are in line.
#[test]
fn a_hundred_writers_share_one_group() {
    const WRITERS: usize = 100;
    let synced = WriteOptions::new().sync(true);
    let (env, gate) = (MemEnv::new(), Gate::default());
    let behind = GateEnv::new(as_env(&env), &gate);
    let db = Options::new().env(Arc::new(behind)).open(HOME).unwrap();
    let put = |n: usize| {
        let mut batch = siftdb::WriteBatch::new();
        batch.put(key(n), bytes(n as u64, 8)).delete(format!("absent {n}"));
        db.write_with(batch, &synced).unwrap();
    };
    put(0);
    // It is not visible how far a thread is on its way into the queue, so the test retries.
    let shared_by_all = (0..100).any(|_| {
        let before = db.stats();
        gate.shut(Stops::Syncs);
        let begun = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| put(0));
            gate.wait_for_a_call();
            for n in 1..WRITERS {
                let (begun, put) = (&begun, &put);
                scope.spawn(move || {
                    begun.fetch_add(1, Ordering::SeqCst);
                    put(n);
                });
            }
            while begun.load(Ordering::SeqCst) < WRITERS - 1 {
                std::thread::yield_now();
            }
            gate.open();
        });
        let after = db.stats();
        assert_eq!(after.batches - before.batches, WRITERS as u64);
        assert_eq!(after.entries - before.entries, 2 * WRITERS as u64);
        let groups = after.write_groups - before.write_groups;
        assert_eq!(after.wal_syncs - before.wal_syncs, groups, "one sync a group");
        groups == 2
    });
    assert!(shared_by_all, "never more than some in one group");
    for n in 0..WRITERS {
        assert_eq!(db.get(key(n)).unwrap().unwrap(), bytes(n as u64, 8)[..]);
    }
    assert_eq!(db.iter().count(), WRITERS);
}
