//! Concurrent transactions, with writers and with the jobs that move what transactions check.
//!
//! Each scenario answers what came out. Whether that is right is asked of the values: increments
//! add up, a rule between two keys holds.

use crate::base::error::{Error, Result};
use crate::base::levels::LEVELS;
use crate::base::sync::{Arc, AtomicUsize, Mutex, Ordering, thread};
use crate::base::write_batch::WriteBatch;
use crate::db::database::Db;
use crate::db::open;
use crate::db::transaction::Transaction;
use crate::env::mem::MemEnv;
use crate::interleavings::run::check;
use crate::jobs::compact::run::{Cursors, compact_once};
use crate::jobs::flush::flush_pending;
use crate::options::database::Options;
use crate::state::engine::Engine;
use crate::state::write_queue::Switch;
use crate::write::commit;
use std::path::Path;

/// A database without workers: the scenario runs their jobs.
fn open() -> (Db, Arc<Engine>) {
    let options = Options::new()
        .env(Arc::new(MemEnv::new()))
        .write_buffer_bytes(64 << 10)
        .immutable_memtables_max(16)
        .max_open_files(1)
        .level0_compaction_trigger(1);
    let engine = open::open(options, Path::new("/db")).unwrap();
    (Db::with(Arc::clone(&engine), Vec::new()), engine)
}

fn flush(engine: &Engine) {
    commit::switch(engine, Switch::All).unwrap();
    flush_pending(engine).unwrap();
}

fn compact(engine: &Engine) {
    compact_once(engine, &engine.catalog.default, &Cursors::default(), LEVELS).unwrap();
}

/// More writes than the list of recent ones holds, in one batch.
fn outrun_the_list(db: &Db) {
    let mut batch = WriteBatch::new();
    for n in 0..100u8 {
        batch.put([b'z', n], "");
        batch.delete([b'z', n]);
    }
    db.write(batch).unwrap();
}

fn number(db: &Db, key: &str) -> u8 {
    db.get(key).unwrap().map_or(0, |value| value[0])
}

/// Adds one in one attempt: true if it was committed.
fn increment(db: &Db, key: &str, scans: bool) -> bool {
    let tx = db.transaction();
    let old = match scans {
        true => tx.prefix(key).next().map(|entry| entry.unwrap().1),
        false => tx.get(key).unwrap(),
    };
    tx.put(key, [old.map_or(0, |value| value[0]) + 1]).unwrap();
    is_committed(tx.commit())
}

fn is_committed(result: Result<()>) -> bool {
    match result {
        Ok(()) => true,
        Err(Error::Conflict { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

pub fn no_increment_is_lost() {
    for scans in [false, true] {
        check("increments", 3000, 3, move || {
            let (db, _) = open();
            let committed = thread::scope(|scope| {
                let threads: Vec<_> = (0..3)
                    .map(|thread| {
                        let db = &db;
                        scope.spawn(move || increment(db, "n", scans && thread > 0))
                    })
                    .collect();
                threads.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
            });
            let count = committed.iter().filter(|one| **one).count();
            assert_eq!(usize::from(number(&db, "n")), count);
            assert!(count > 0, "one of them always gets on");
            committed
        });
    }
}

/// While a memtable is switched, flushed and compacted.
pub fn no_increment_is_lost_beside_jobs() {
    for scans in [false, true] {
        check("increments during jobs", 1500, 3, move || {
            let (db, engine) = open();
            db.put("n", [0]).unwrap();
            flush(&engine);
            compact(&engine);
            let runs = AtomicUsize::new(0);
            let committed = thread::scope(|scope| {
                let one = scope.spawn(|| increment(&db, "n", scans));
                let other = scope.spawn(|| {
                    let committed = db.transact(|tx| {
                        runs.fetch_add(1, Ordering::SeqCst);
                        let old = tx.get("n")?.unwrap()[0];
                        tx.put("n", [old + 1])
                    });
                    committed.unwrap();
                });
                scope.spawn(|| {
                    flush(&engine);
                    compact(&engine);
                });
                other.join().unwrap();
                one.join().unwrap()
            });
            assert_eq!(number(&db, "n"), 1 + u8::from(committed));
            (committed, runs.into_inner())
        });
    }
}

/// Two that are on call may not leave both.
pub fn write_skew_never_passes() {
    for scans in [false, true] {
        check("write skew", 3000, 3, move || {
            let (db, _) = open();
            let leaves = |own: &'static str, other: &'static str| {
                let tx = db.transaction();
                let is_alone = match scans {
                    true => tx.range("a".."c").all(|entry| *entry.unwrap().0 == *own.as_bytes()),
                    false => tx.get(other).unwrap().is_none(),
                };
                if !is_alone {
                    tx.delete(own).unwrap();
                }
                is_committed(tx.commit())
            };
            let mut both = WriteBatch::new();
            both.put("a", "on call").put("b", "on call");
            db.write(both).unwrap();
            let committed = thread::scope(|scope| {
                let one = scope.spawn(|| leaves("a", "b"));
                let other = scope.spawn(|| leaves("b", "a"));
                [one.join().unwrap(), other.join().unwrap()]
            });
            assert_eq!(db.range("a".."c").count(), 1, "one is on call");
            committed
        });
    }
}

/// Moves one from x to y if there is one.
fn moves(tx: &Transaction) -> Result<()> {
    let (x, y) = (tx.get("x")?, tx.get("y")?);
    let (x, y) = (x.map_or(0, |value| value[0]), y.map_or(0, |value| value[0]));
    assert_eq!(x + y, 9, "torn");
    tx.put("x", [x - 1])?;
    tx.put("y", [y + 1])
}

/// A batch writer gives both keys new values, and memtables are switched and flushed.
pub fn transactions_beside_batches_keep_a_sum() {
    check("a sum during batches", 2000, 3, || {
        let (db, engine) = open();
        let both = |x: u8| {
            let mut batch = WriteBatch::new();
            batch.put("x", [x]).put("y", [9 - x]);
            db.write(batch).unwrap();
        };
        both(5);
        let runs = AtomicUsize::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                let run = |tx: &Transaction| {
                    runs.fetch_add(1, Ordering::SeqCst);
                    moves(tx)
                };
                db.transact(run).unwrap();
            });
            scope.spawn(|| {
                both(7);
                both(3);
            });
            scope.spawn(|| flush(&engine));
        });
        let (x, y) = (number(&db, "x"), number(&db, "y"));
        assert_eq!(x + y, 9);
        (x, runs.into_inner())
    });
}

/// No transaction is alive when the leader looks, so it does not note its group. One begins before
/// the group is published.
pub fn groups_in_flight_at_the_begin_are_found() {
    for scans in [false, true] {
        check("begin during a group", 3000, 3, move || {
            let (db, _) = open();
            thread::scope(|scope| {
                let noted = scope.spawn(|| increment(&db, "other", false));
                let writes = scope.spawn(|| {
                    db.update("n", |old| Some([old.map_or(0, |old| old[0]) + 1])).unwrap();
                });
                let committed = [increment(&db, "n", scans), increment(&db, "n", scans)];
                writes.join().unwrap();
                assert!(noted.join().unwrap());
                let count = committed.iter().filter(|one| **one).count();
                assert_eq!(usize::from(number(&db, "n")), 1 + count);
                committed
            })
        });
    }
}

/// Others write so much that the list never goes back to the transaction's check: it is sent back,
/// and leads alone in the end.
pub fn transactions_sent_back_end() {
    for scans in [false, true] {
        check("sent back", 300, 2, move || {
            let (db, _) = open();
            db.put("n", [0]).unwrap();
            let committed = thread::scope(|scope| {
                let one = scope.spawn(|| increment(&db, "n", scans));
                scope.spawn(|| (0..4).for_each(|_| outrun_the_list(&db)));
                let other = scope.spawn(|| increment(&db, "n", scans));
                [one.join().unwrap(), other.join().unwrap()]
            });
            let count = committed.iter().filter(|one| **one).count();
            assert_eq!(usize::from(number(&db, "n")), count);
            committed
        });
    }
}

/// A transaction that was answered is there after the close, whole; any other one is not.
pub fn a_close_beside_transactions_leaves_whole_ones() {
    check("closing during transactions", 1500, 3, || {
        let env = MemEnv::new();
        let options = Options::new().env(Arc::new(env.clone())).write_buffer_bytes(64 << 10);
        let db = options.clone().open("/db").unwrap();
        db.put("x", [9]).unwrap();
        let moved = Mutex::new(0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| match db.transact(moves) {
                    Ok(()) => *moved.lock() += 1,
                    Err(Error::Closed) => {}
                    Err(error) => panic!("{error}"),
                });
            }
            scope.spawn(|| db.close().unwrap());
        });
        drop(db);
        let db = options.open("/db").unwrap();
        let moved = *moved.lock();
        assert_eq!((number(&db, "x"), number(&db, "y")), (9 - moved, moved));
        db.close().unwrap();
        moved
    });
}
