//! Transactions on bad input, on failing disks, and on a database that is closed, read-only or
//! forked in the meantime: the right error, nothing written, and nothing held.

use crate::support::data::bytes;
use crate::support::stores::{HOME, as_env, files_ending, open, small_options};
use siftdb::env::MemEnv;
use siftdb::env::testing::{Calls, EIO, Fault, FaultEnv, FaultKind};
use siftdb::{Db, Error, Filter, Options, Result, Transaction, WriteOptions};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

fn new(options: &Options) -> (MemEnv, Db) {
    let env = MemEnv::with_log();
    let db = open(&env, options).unwrap();
    (env, db)
}

/// Nothing is held any more, and writes are taken.
fn assert_free(db: &Db) {
    let stats = db.stats();
    assert_eq!((stats.snapshots, stats.oldest_snapshot_millis), (0, None));
    db.put("afterwards", "v").unwrap();
    db.transact(|tx| {
        tx.get("afterwards")?;
        tx.delete("afterwards")
    })
    .unwrap();
}

fn is_too_large<T: std::fmt::Debug>(result: Result<T>) {
    assert!(matches!(result, Err(Error::TransactionTooLarge { bytes_max: 4096 })), "{result:?}");
}

fn is_invalid<T: std::fmt::Debug>(result: Result<T>) {
    assert!(matches!(result, Err(Error::InvalidArgument { .. })), "{result:?}");
}

fn is_conflict(result: Result<()>, expected: &[u8]) {
    match result {
        Err(Error::Conflict { key, .. }) => assert_eq!(key, expected),
        other => panic!("{other:?}"),
    }
}

fn is_dropped<T: std::fmt::Debug>(result: Result<T>) {
    assert!(matches!(result, Err(Error::KeyspaceDropped { .. })), "{result:?}");
}

#[test]
fn transactions_over_their_memory_are_refused() {
    let (_, db) = new(&small_options().transaction_bytes_max(4096));
    for n in 0..200 {
        db.put(format!("{n:03}"), "v").unwrap();
    }
    let before = db.stats().entries;
    let fill = |what: &str, act: &dyn Fn(&Transaction, usize) -> Result<()>| {
        let tx = db.transaction();
        tx.put("fits", "v").unwrap();
        let refused = (0..1000).find_map(|n| act(&tx, n).err());
        is_too_large(refused.map_or(Ok(()), Err));
        is_too_large(tx.commit());
        assert_eq!(db.stats().entries, before, "{what}");
    };
    fill("writes", &|tx, n| tx.put(format!("new {n}"), [7; 100]));
    fill("deletes", &|tx, n| tx.delete(format!("{n:0100}")));
    fill("range deletes", &|tx, n| tx.delete_prefix(format!("{n:0100}")));
    fill("keys", &|tx, n| tx.get(format!("{n:03}")).map(drop));
    fill("touched keys", &|tx, n| tx.set_read_for_update(format!("{n:03}")));
    fill("many keys", &|tx, n| tx.multi_get([format!("{n:03}")]).map(drop));
    fill("savepoints", &|tx, _| {
        tx.savepoint();
        tx.get("000").map(drop)
    });
    fill("ranges", &|tx, n| {
        // They share no key, so they are not joined.
        tx.range(format!("{n:03}")..format!("{n:03}+")).try_for_each(|entry| entry.map(drop))
    });
    // A cursor has a range for each seek. It once took any number.
    let tx = db.transaction();
    tx.put("fits", "v").unwrap();
    let mut cursor = tx.cursor();
    let refused = (0..1000).find_map(|n| cursor.seek(format!("{:03}", 2 * n % 200)).err());
    is_too_large(refused.map_or(Ok(()), Err));
    drop(cursor);
    is_too_large(tx.commit());
    assert_eq!(db.stats().entries, before, "seeks");
    // One range takes little, however long it is.
    let tx = db.transaction();
    assert_eq!(tx.iter().count(), 200);
    tx.put("fits", "v").unwrap();
    tx.commit().unwrap();
    assert_free(&db);
}

#[test]
fn a_rollback_makes_a_transaction_fit_again() {
    let (_, db) = new(&small_options().transaction_bytes_max(4096));
    let tx = db.transaction();
    tx.put("a", "1").unwrap();
    let savepoint = tx.savepoint();
    for _ in 0..3 {
        is_too_large(tx.put("b", [0; 5000]));
        is_too_large(tx.get("c"));
        tx.rollback_to(&savepoint).unwrap();
        is_invalid(tx.put([0; 65_536], "v"));
        is_invalid(tx.delete("b"));
        tx.rollback_to(&savepoint).unwrap();
        tx.put("b", "2").unwrap();
    }
    tx.commit().unwrap();
    assert_eq!(db.get("a").unwrap().unwrap(), "1");
    assert_eq!(db.get("b").unwrap().unwrap(), "2");
    assert_free(&db);
}

#[test]
fn small_bounds_leave_room_for_reads_of_own_writes() {
    let (_, db) = new(&small_options().transaction_bytes_max(1 << 10));
    let tx = db.transaction();
    tx.put("a", "1").unwrap();
    assert_eq!(tx.get("a").unwrap().unwrap(), "1");
    assert_eq!(tx.iter().count(), 1);
    tx.put("b", "2").unwrap();
    tx.commit().unwrap();
    assert_eq!(db.iter().count(), 2);
}

#[test]
fn bad_entries_refuse_the_whole_transaction() {
    let (_, db) = new(&small_options());
    // Not of zeros: the successor of a key of the greatest length may bound a range.
    let (long, ok) = (vec![1; 65_536], [0; 65_535]);
    type Bad<'a> = &'a dyn Fn(&Transaction) -> Result<()>;
    let bad: [Bad<'_>; 4] = [
        &|tx| tx.put(&long, "v"),
        &|tx| tx.delete(&long),
        &|tx| tx.delete_range(&long[..]..),
        &|tx| tx.delete_range(..&long[..]),
    ];
    for bad in bad {
        let tx = db.transaction();
        tx.put("a", "1").unwrap();
        is_invalid(bad(&tx));
        is_invalid(tx.put("b", "1"));
        is_invalid(tx.commit());
        // Also if nothing else was written.
        let tx = db.transaction();
        is_invalid(bad(&tx));
        is_invalid(tx.commit());
    }
    assert_eq!(db.iter().count(), 0);
    db.transact(|tx| {
        assert_eq!(tx.get(ok)?, None);
        tx.put(ok, "v")
    })
    .unwrap();
    assert_eq!(db.transaction().get(&long).unwrap(), None);
    assert_free(&db);
}

#[test]
fn keyspaces_of_other_databases_are_refused() {
    let ((_, db), (_, other)) = (new(&small_options()), new(&small_options()));
    other.put("k", "v").unwrap();
    let tx = db.transaction();
    let foreign = tx.in_keyspace(&other);
    is_invalid(foreign.get("k"));
    is_invalid(foreign.multi_get(["k"]));
    is_invalid(foreign.iter().next().unwrap());
    is_invalid(foreign.first());
    is_invalid(foreign.put("k", "w"));
    is_invalid(foreign.delete("k"));
    is_invalid(foreign.delete_range(..));
    is_invalid(foreign.set_read_for_update("k"));
    drop(foreign);
    other.put("k", "w").unwrap();
    // What was refused is neither read nor written.
    tx.put("k", "mine").unwrap();
    tx.commit().unwrap();
    assert_eq!(db.iter().count(), 1);
    assert_free(&db);
}

#[test]
fn dropped_keyspaces_conflict_where_they_were_read() {
    let (_, db) = new(&small_options());
    type Act = fn(&siftdb::KeyspaceTransaction<'_>) -> Result<()>;
    let read: Act = |part| part.get("k").map(drop);
    let scan: Act = |part| part.iter().try_for_each(|entry| entry.map(drop));
    let write: Act = |part| part.put("k", "new");
    for (acts, reads) in [
        (vec![read], true),
        (vec![scan], true),
        (vec![write], false),
        (vec![read, write], true),
        (vec![write, scan], true),
    ] {
        let gone = db.keyspace("gone").unwrap();
        gone.put("k", "v").unwrap();
        let tx = db.transaction();
        for act in acts {
            act(&tx.in_keyspace(&gone)).unwrap();
        }
        tx.put("elsewhere", "v").unwrap();
        db.drop_keyspace("gone").unwrap();
        // It still sees what was there. Its own write is no read.
        assert!(tx.in_keyspace(&gone).get("k").unwrap().is_some());
        match (tx.commit(), reads) {
            (Err(Error::Conflict { keyspace, .. }), true) => assert_eq!(keyspace, "gone"),
            (Err(Error::KeyspaceDropped { .. }), false) => {}
            (other, _) => panic!("{other:?}"),
        }
        assert_eq!(db.get("elsewhere").unwrap(), None);
        // Dropped before it began.
        let tx = db.transaction();
        is_dropped(tx.in_keyspace(&gone).get("k"));
        is_dropped(tx.in_keyspace(&gone).put("k", "v"));
    }
    assert_free(&db);
}

#[test]
fn closed_databases_refuse_commits_and_still_read() {
    let (env, db) = new(&small_options());
    for n in 0..500 {
        db.put(format!("{n:04}"), bytes(n, 100)).unwrap();
    }
    let (tx, reader) = (db.transaction(), db.transaction());
    tx.put("new", "v").unwrap();
    let mut iter = tx.iter();
    iter.next().unwrap().unwrap();
    db.close().unwrap();
    drop(db);
    assert_eq!(tx.get("0007").unwrap().unwrap(), bytes(7, 100));
    assert_eq!(tx.get("new").unwrap().unwrap(), "v");
    assert_eq!(iter.by_ref().count(), 500, "with its own write");
    let refused = tx.commit_with(&WriteOptions::new().sync(true));
    assert!(matches!(refused, Err(Error::Closed)), "{refused:?}");
    // It wrote nothing: all that it read was so at its begin.
    assert!(reader.get("0007").unwrap().is_some());
    reader.commit().unwrap();
    assert!(
        matches!(open(&env, &small_options()), Err(Error::Locked { .. })),
        "the iterator reads"
    );
    drop(iter);
    let db = open(&env, &small_options()).unwrap();
    assert_eq!(db.get("new").unwrap(), None);
    assert_free(&db);
}

#[test]
fn read_only_openings_take_transactions_that_read() {
    let (env, db) = new(&small_options());
    db.put("k", "v").unwrap();
    db.close().unwrap();
    drop(db);
    let db = small_options().env(as_env(&env)).open_read_only(HOME).unwrap();
    let value = db.transact(|tx| tx.get("k")).unwrap();
    assert_eq!(value.unwrap(), "v");
    let refused = db.transact(|tx| tx.put("k", "w"));
    assert!(matches!(refused, Err(Error::OpenedReadOnly)), "{refused:?}");
    let refused = db.update("k", |_| Some("w"));
    assert!(matches!(refused, Err(Error::OpenedReadOnly)), "{refused:?}");
    let synced = db.transact_with(&WriteOptions::new().sync(true), |tx| tx.get("k"));
    assert!(matches!(synced, Err(Error::OpenedReadOnly)), "{synced:?}");
}

fn faulty(options: &Options) -> (FaultEnv, Db) {
    let env = FaultEnv::new(as_env(&MemEnv::new()));
    let db = options.clone().env(Arc::new(env.clone())).open(HOME).unwrap();
    (env, db)
}

#[test]
fn background_errors_refuse_only_transactions_that_write() {
    let (env, db) = faulty(&small_options());
    db.put("k", "v").unwrap();
    let (tx, reader) = (db.transaction(), db.transaction());
    tx.get("k").unwrap();
    tx.put("new", "v").unwrap();
    let writes = Calls::Named("write_at");
    env.fail_at(env.calls_of(writes), Fault::once(FaultKind::Error(EIO)).among(writes));
    db.put("k", "w").unwrap_err();
    let refused = tx.commit();
    assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{refused:?}");
    assert_eq!(reader.get("k").unwrap().unwrap(), "v");
    reader.commit().unwrap();
    assert_eq!(db.transact(|tx| tx.get("k")).unwrap().unwrap(), "v");
    assert_eq!(db.stats().snapshots, 0);
}

#[test]
fn panics_in_transact_roll_back() {
    let (_, db) = new(&small_options());
    let other = db.keyspace("other").unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        db.transact(|tx| -> Result<()> {
            tx.put("k", "v")?;
            tx.in_keyspace(&other).put("k", "v")?;
            let _scan = tx.iter().next();
            panic!("on purpose");
        })
    }));
    assert!(panicked.is_err());
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        db.update("k", |_| -> Option<&str> { panic!("on purpose") })
    }));
    assert!(panicked.is_err());
    // An error of the closure rolls back as well, and is its answer.
    let answer: Result<()> = db.transact(|tx| {
        tx.put("k", "v")?;
        Err(Error::Closed)
    });
    assert!(matches!(answer, Err(Error::Closed)), "{answer:?}");
    assert_eq!(db.iter().count() + other.iter().count(), 0);
    assert_free(&db);
}

/// Without filters and cache: the check of "k1" must read the new table.
fn options_that_read() -> Options {
    small_options().filter(Filter::none()).block_cache_bytes(0).auto_compaction(false)
}

/// A transaction whose check must read the table that was flushed after it began. It read no key
/// of that table.
fn transaction_before_a_flush(db: &Db) -> Transaction {
    let tx = db.transaction();
    assert_eq!(tx.get("k1").unwrap(), None);
    tx.put("new", "v").unwrap();
    for n in [0, 2] {
        db.put(format!("k{n}"), "v").unwrap();
    }
    db.flush().unwrap();
    tx
}

#[test]
fn read_errors_in_the_check_write_nothing() {
    let (env, db) = faulty(&options_that_read());
    db.put("k0", "v").unwrap();
    // One that reads a table without an error.
    transaction_before_a_flush(&db).commit().unwrap();
    db.delete("new").unwrap();
    let tx = transaction_before_a_flush(&db);
    let before = db.stats();
    env.fail_at(0, Fault::from_then_on(FaultKind::Error(EIO)).among(Calls::Named("read_exact_at")));
    let refused = tx.commit();
    assert!(matches!(refused, Err(Error::Io { .. })), "{refused:?}");
    assert!(env.has_fired());
    env.heal();
    let after = db.stats();
    let [before, after] =
        [before, after].map(|s| (s.wal_bytes, s.entries, s.transaction_conflicts));
    assert_eq!(after, before);
    assert_eq!(db.get("new").unwrap(), None);
    assert_free(&db);
}

#[test]
fn damaged_tables_in_the_check_write_nothing() {
    // Other tables that are read push the damaged one out of the open files.
    let (env, db) = new(&options_that_read().max_open_files(1));
    for n in 0..4 {
        db.put(format!("z{n}"), "v").unwrap();
        db.flush().unwrap();
    }
    let read_others = || (0..4).for_each(|n| assert!(db.contains_key(format!("z{n}")).unwrap()));
    let old = files_ending(&env, ".sst");
    let tx = transaction_before_a_flush(&db);
    let table = files_ending(&env, ".sst").into_iter().find(|path| !old.contains(path)).unwrap();
    let good = env.read_file(&table).unwrap();
    let mut bad = good.clone();
    // The data block follows the header.
    let at = bad.windows(2).position(|bytes| bytes == b"k0").unwrap();
    bad[at] ^= 1;
    env.write_file(&table, &bad);
    read_others();
    let entries = db.stats().entries;
    let refused = tx.commit();
    assert!(matches!(&refused, Err(error) if error.is_corruption()), "{refused:?}");
    env.write_file(&table, &good);
    read_others();
    assert_eq!((db.stats().entries, db.get("new").unwrap()), (entries, None));
    assert_free(&db);
}

#[test]
fn iterators_that_outlive_a_commit_read_on() {
    let (_, db) = new(&small_options());
    for n in 0..300 {
        db.put(format!("{n:04}"), bytes(n, 100)).unwrap();
    }
    let tx = db.transaction();
    tx.put("0000+", "own").unwrap();
    let (mut ahead, mut back) = (tx.iter(), tx.iter().rev());
    assert_eq!(ahead.next().unwrap().unwrap().0, "0000");
    assert_eq!(back.next().unwrap().unwrap().0, "0299");
    tx.commit().unwrap();
    db.delete_range(..).unwrap();
    db.compact_range(..).unwrap();
    assert_eq!(ahead.next().unwrap().unwrap().1, "own");
    assert_eq!((ahead.count(), back.count()), (299, 300));
    // One that is alive counts as if it had crossed everything.
    db.put("0150", "v").unwrap();
    let tx = db.transaction();
    tx.put("new", "v").unwrap();
    let mut iter = tx.iter();
    iter.next().unwrap().unwrap();
    db.put("0200", "v").unwrap();
    is_conflict(tx.commit(), b"0200");
    assert_eq!(iter.count(), 1, "its own write");
    assert_free(&db);
}

#[test]
fn stats_show_what_long_transactions_hold() {
    let (_, db) = new(&small_options().auto_compaction(false));
    let write = |round: u64| {
        for n in 0..200 {
            db.put(format!("{n:04}"), bytes(n + 1000 * round, 100)).unwrap();
        }
        db.compact_range(..).unwrap();
    };
    write(0);
    let held = || {
        let stats = db.stats();
        (stats.snapshots, stats.obsolete_tables_in_use, stats.obsolete_bytes_in_use)
    };
    assert_eq!((held(), db.stats().oldest_snapshot_millis), ((0, 0, 0), None));
    let old_bytes = db.stats().total().bytes;
    let tx = db.transaction();
    let mut iter = tx.iter();
    iter.next().unwrap().unwrap();
    let first_age = db.stats().oldest_snapshot_millis.unwrap();
    while db.stats().oldest_snapshot_millis.unwrap() <= first_age + 1 {
        std::thread::yield_now();
    }
    write(1);
    // A younger snapshot changes nothing about the oldest.
    let young = db.snapshot();
    assert!(db.stats().oldest_snapshot_millis.unwrap() > first_age);
    drop(young);
    let (snapshots, tables, held_bytes) = held();
    assert!(snapshots == 1 && tables > 0, "{}", db.stats());
    assert_eq!(held_bytes, old_bytes);
    assert_eq!(db.stats().total().entries, 400, "old versions are kept");
    let text = db.stats().to_string();
    assert!(text.contains("snapshots 1, oldest "), "{text}");
    assert!(text.contains(&format!("replaced tables in use {tables} (")), "{text}");
    // The transaction keeps versions, its iterator files.
    drop(iter);
    assert_eq!(held(), (1, 0, 0));
    assert_eq!(tx.get("0007").unwrap().unwrap(), bytes(7, 100));
    tx.put("more", "v").unwrap();
    assert!(matches!(tx.commit(), Err(Error::Conflict { .. })));
    assert_eq!((held(), db.stats().oldest_snapshot_millis), ((0, 0, 0), None));
    db.compact_range(..).unwrap();
    assert_eq!(db.stats().total().entries, 200);
}

#[test]
fn stats_count_commits_and_conflicts() {
    let (env, db) = new(&small_options());
    let counted = |db: &Db| {
        let stats = db.stats();
        (stats.transactions_committed, stats.transaction_conflicts)
    };
    db.transact(|tx| tx.put("k", "v")).unwrap();
    db.transact(|tx| tx.get("k")).unwrap();
    let tx = db.transaction();
    tx.get("k").unwrap();
    tx.put("k", "w").unwrap();
    db.put("k", "u").unwrap();
    is_conflict(tx.commit(), b"k");
    drop(db.transaction());
    is_invalid(db.transact(|tx| tx.put([0; 65_536], "v")));
    assert_eq!(counted(&db), (2, 1));
    assert!(db.stats().to_string().contains("transactions 2 committed, 1 conflict;"));
    db.close().unwrap();
    drop(db);
    let db = open(&env, &small_options()).unwrap();
    assert_eq!(counted(&db), (2, 1), "kept by STATS");
    db.put_if_absent("k", "v").unwrap();
    assert_eq!(counted(&db).1, 1);
}
