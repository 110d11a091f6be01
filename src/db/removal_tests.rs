//! Tests of when files of replaced tables are removed.

use crate::db::database::Db;
use crate::db::handle;
use crate::db::snapshot::Snapshot;
use crate::db::tests::tables;
use crate::env::mem::MemEnv;
use crate::jobs::deleted_tables::deleted_tables;
use crate::jobs::obsolete::remove_files;
use crate::jobs::workers;
use crate::options::database::Options;
use crate::options::filter::Filter;
use crate::read::iter::Iter;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{scope, yield_now};
use std::time::{Duration, Instant};

/// A database with two versions of a table, the older of which is only kept by an iterator.
fn table_kept_by_an_iterator(env: &MemEnv) -> (Db, Iter) {
    let options = Options::new().auto_compaction(false).env(Arc::new(env.clone()));
    let db = options.open("/db").unwrap();
    for value in ["1", "2"] {
        db.put("k", value).unwrap();
        db.flush().unwrap();
    }
    let kept = db.iter();
    db.compact_range(..).unwrap();
    assert_eq!(tables(env), 3);
    (db, kept)
}

/// A table is freed with its cached blocks, which a lookup must not wait for.
#[test]
fn the_last_reader_leaves_the_table_to_a_worker() {
    let options = Options::new().auto_compaction(false).env(Arc::new(MemEnv::new()));
    let db = options.open("/db").unwrap();
    db.put("k", "1").unwrap();
    db.flush().unwrap();
    let kept = db.iter();
    let table = Arc::downgrade(&db.engine().catalog.default.view.load().version.level(0)[0].table);
    db.put("k", "2").unwrap();
    db.compact_range(..).unwrap();
    // No worker removes a file meanwhile.
    let held_up = db.engine().catalog.versions.lock();
    drop(kept);
    let is_left = table.strong_count() == 1;
    drop(held_up);
    assert!(is_left, "the reader freed it");
    let deadline = Instant::now() + Duration::from_secs(20);
    while table.strong_count() > 0 {
        assert!(Instant::now() < deadline, "nobody frees it");
        yield_now();
    }
}

#[test]
fn the_last_reader_frees_replaced_files() {
    let env = MemEnv::new();
    let (db, kept) = table_kept_by_an_iterator(&env);
    let generation = db.engine().jobs.work.generation();
    drop(kept);
    // The wakeups of everything that may have woken the worker before.
    assert!(db.engine().jobs.work.generation() > generation);
    let deadline = Instant::now() + Duration::from_secs(20);
    while tables(&env) > 1 {
        assert!(Instant::now() < deadline, "{} tables", tables(&env));
        yield_now();
    }
    assert_eq!(db.get("k").unwrap().unwrap(), "2");
}

/// Between the end of the workers and the end of the session, only `close` removes files.
#[test]
fn close_removes_files_an_iterator_kept() {
    let env = MemEnv::new();
    let (db, kept) = table_kept_by_an_iterator(&env);
    workers::stop(db.engine(), &mut db.workers()).unwrap();
    drop(kept);
    assert_eq!(tables(&env), 3, "the drop itself does no I/O");
    handle::finish(db.engine()).unwrap();
    assert_eq!(tables(&env), 1);
}

/// An iterator that outlives the database leaves its tables to the next session.
#[test]
fn opening_removes_files_an_iterator_kept() {
    let env = MemEnv::new();
    let (db, kept) = table_kept_by_an_iterator(&env);
    db.close().unwrap();
    drop(db);
    drop(kept);
    assert_eq!(tables(&env), 3);
    let db = Options::new().env(Arc::new(env.clone())).open("/db").unwrap();
    db.put("k", "3").unwrap();
    db.close().unwrap();
    assert_eq!(tables(&env), 1);
}

/// A flush left the removal of a file to its worker, and a later change of the manifest failed
/// before that. The worker removed the file all the same.
#[test]
fn file_removal_waits_for_the_manifest() {
    let env = MemEnv::new();
    let (db, kept) = table_kept_by_an_iterator(&env);
    let engine = db.engine();
    let versions = engine.catalog.versions.lock();
    drop(kept);
    scope(|scope| {
        let (ends, ended) = channel();
        scope.spawn(move || {
            remove_files(engine);
            // Nobody waits for it once the lock is released.
            let _ = ends.send(());
        });
        // The worker takes the tables, or the thread: neither removes one now.
        let _ = ended.recv_timeout(Duration::from_millis(100));
        assert_eq!(tables(&env), 3);
        drop(versions);
    });
}

/// A database with that many tables in level 1, each with a range delete that a snapshot keeps.
fn tables_with_range_deletes(count: usize) -> (Db, Snapshot) {
    let options = Options::new().auto_compaction(false).snappy(false).table_bytes(16 << 10);
    let db = options.filter(Filter::none()).env(Arc::new(MemEnv::new())).open("/db").unwrap();
    let snapshot = db.snapshot();
    let value = vec![0; 17 << 10];
    for number in 0..count {
        db.put(format!("{number:05}"), &value).unwrap();
        db.delete_range(format!("{number:05}-1")..format!("{number:05}-2")).unwrap();
    }
    db.compact_range(..).unwrap();
    let view = db.engine().catalog.default.view.load_full();
    let with_deletes = view.version.tables().filter(|table| table.meta.range_deletes > 0);
    assert_eq!((view.version.level(1).len(), with_deletes.count()), (count, count));
    (db, snapshot)
}

/// The flush worker does it before each flush while range deletes are written.
#[test]
fn a_look_for_deleted_tables_takes_no_square_of_their_number() {
    let look_at = |count: usize| {
        let (db, _snapshot) = tables_with_range_deletes(count);
        let view = db.engine().catalog.default.view.load_full();
        let published = db.engine().catalog.published.visible();
        let look = || {
            let started = Instant::now();
            assert!(deleted_tables(&view, &[published]).is_empty());
            started.elapsed()
        };
        (0..9).map(|_| look()).min().unwrap()
    };
    let (few, many) = (look_at(50), look_at(800));
    // 16 times as many; the square of that is 256.
    assert!(many < 60 * few, "{few:?} and {many:?}");
}
