//! An open database with its workers: each thread that waits is woken.
//!
//! The main thread waits for the threads of its scope and does nothing else: the scheduler's
//! `scope` wakes it when the last of them ends, whatever it waits for then.

use crate::base::error::{Error, Result};
use crate::base::sync::{Arc, thread};
use crate::base::value::Value;
use crate::base::write_batch::WriteBatch;
use crate::db::database::Db;
use crate::env::api::{Env, LockMode};
use crate::env::mem::MemEnv;
use crate::interleavings::run::check;
use crate::options::database::Options;
use std::path::Path;

fn options(env: &MemEnv) -> Options {
    Options::new()
        .env(Arc::new(env.clone()))
        .write_buffer_bytes(64 << 10)
        .immutable_memtables_max(1)
        .level0_compaction_trigger(1)
        .compaction_threads(2)
}

fn open(env: &MemEnv) -> Db {
    options(env).open("/db").unwrap()
}

fn found(db: &Db) -> Vec<Vec<u8>> {
    db.iter().map(|entry| entry.unwrap().0.to_vec()).collect()
}

/// Two memtables may not wait at once, so the writers wait for the flusher.
pub fn waiting_writers_and_flush_callers_are_woken() {
    check("stalls and flushes", 1500, 2, || {
        let env = MemEnv::new();
        let db = open(&env);
        thread::scope(|scope| {
            for name in ["a", "b"] {
                let db = &db;
                scope.spawn(move || {
                    for n in 0..2 {
                        db.put(format!("{name}{n}"), "v").unwrap();
                        db.flush().unwrap();
                    }
                });
            }
            scope.spawn(|| db.compact_range(..).unwrap());
        });
        assert_eq!(found(&db), [b"a0", b"a1", b"b0", b"b1"]);
        db.close().unwrap();
        db.stats().total().tables
    });
}

pub fn a_concurrent_close_keeps_acknowledged_writes() {
    check("closing", 1500, 4, || {
        let env = MemEnv::new();
        let db = open(&env);
        let acknowledged = thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut acknowledged = Vec::new();
                for n in 0..3u8 {
                    match db.put([n], "v") {
                        Ok(()) => acknowledged.push(vec![n]),
                        Err(Error::Closed) => break,
                        Err(error) => panic!("{error}"),
                    }
                    if n == 0 {
                        let _ = db.flush();
                    }
                }
                acknowledged
            });
            scope.spawn(|| match db.compact_range(..) {
                Ok(()) | Err(Error::Closed) => {}
                Err(error) => panic!("{error}"),
            });
            scope.spawn(|| {
                let (iter, snapshot) = (db.iter(), db.snapshot());
                db.close().unwrap();
                // Snapshots and iterators from before the close read on.
                let there = iter.map(|entry| entry.unwrap().0.to_vec()).any(|key| key == [0]);
                assert!(!there || snapshot.get([0]).unwrap().is_some());
            });
            writer.join().unwrap()
        });
        drop(db);
        assert_eq!(found(&open(&env)), acknowledged);
        acknowledged
    });
}

/// While something reads, nobody can lock the directory, even if its start and the close overlap.
pub fn concurrent_reads_fail_or_keep_the_lock() {
    check("reads during a close", 1500, 3, || {
        let env = MemEnv::new();
        let db = open(&env);
        db.put("a", "v").unwrap();
        let is_locked = || env.lock(Path::new("/db/LOCK"), LockMode::Exclusive).is_err();
        let answered = thread::scope(|scope| {
            let iterates = scope.spawn(|| {
                let mut iter = db.iter();
                let answered = match iter.next() {
                    Some(Ok(_)) => true,
                    Some(Err(Error::Closed)) => false,
                    other => panic!("{other:?}"),
                };
                assert!(!answered || is_locked(), "an iterator lives");
                answered
            });
            let looks = scope.spawn(|| {
                let snapshot = db.snapshot();
                let answered = match snapshot.get("a") {
                    Ok(found) => found.is_some(),
                    Err(Error::Closed) => false,
                    Err(error) => panic!("{error}"),
                };
                assert!(!answered || is_locked(), "a snapshot lives");
                answered
            });
            scope.spawn(|| db.close().unwrap());
            [iterates.join().unwrap(), looks.join().unwrap()]
        });
        assert!(!is_locked(), "closed, and nothing reads");
        answered
    });
}

/// A batch across two keyspaces is written whole or, after the drop of one, refused whole. The drop
/// wakes writers that wait for room.
pub fn a_drop_beside_writers_leaves_whole_batches() {
    check("dropping a keyspace", 1500, 4, || {
        let env = MemEnv::new();
        let db = open(&env);
        let doomed = db.keyspace("doomed").unwrap();
        let mut expected = thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut acknowledged = Vec::new();
                for n in 0..3u8 {
                    let mut batch = WriteBatch::new();
                    batch.put([n], "v").in_keyspace(&doomed).put([n], "v");
                    match db.write(batch) {
                        Ok(()) => acknowledged.push(vec![n]),
                        Err(Error::KeyspaceDropped { .. }) => break,
                        Err(error) => panic!("{error}"),
                    }
                    if n == 0 {
                        db.flush().unwrap();
                    }
                }
                acknowledged
            });
            scope.spawn(|| db.put("other", "v").unwrap());
            scope.spawn(|| {
                let snapshot = db.snapshot();
                db.drop_keyspace("doomed").unwrap();
                // The snapshot is from before the drop, and still reads the keyspace.
                let in_doomed = snapshot.in_keyspace(&doomed);
                for n in 0..3u8 {
                    let there = in_doomed.get([n]).unwrap().is_some();
                    assert_eq!(there, snapshot.get([n]).unwrap().is_some(), "torn");
                }
            });
            writer.join().unwrap()
        });
        let acknowledged = expected.len();
        expected.push(b"other".to_vec());
        assert_eq!(found(&db), expected);
        db.close().unwrap();
        drop((db, doomed));
        let db = open(&env);
        assert_eq!((db.keyspaces(), found(&db)), (vec!["default".into()], expected));
        acknowledged
    });
}

/// A load is whole in each snapshot, newer than what came before, and does not go again.
pub fn loads_appear_in_one_step() {
    check("bulk loads", 1500, 4, || {
        let env = MemEnv::new();
        let db = open(&env);
        let number = |found: Result<Option<Value>>| found.unwrap().map_or(0, |value| value[0]);
        let seen = thread::scope(|scope| {
            scope.spawn(|| {
                for n in [2, 4] {
                    db.put("a", [n - 1]).unwrap();
                    let report = db.ingest([("a", [n]), ("b", [n])]).unwrap();
                    assert_eq!((report.entries, number(db.get("b"))), (2, n));
                }
            });
            scope.spawn(|| db.put("c", "v").unwrap());
            let reader = scope.spawn(|| {
                let mut last = 0;
                (0..3)
                    .map(|_| {
                        let snapshot = db.snapshot();
                        let (a, b) = (number(snapshot.get("a")), number(snapshot.get("b")));
                        assert_eq!(a / 2 * 2, b, "torn");
                        assert_eq!((number(snapshot.get("b")), number(snapshot.get("a"))), (b, a));
                        let now = number(db.get("a"));
                        assert!(last <= a && a <= now, "{a} after {last}, {now} after that");
                        last = now;
                        a
                    })
                    .collect::<Vec<_>>()
            });
            reader.join().unwrap()
        });
        assert_eq!(found(&db), [b"a", b"b", b"c"]);
        db.close().unwrap();
        seen
    });
}
