//! Tests of a database whose memory fails: a hash that a filter is made of changes, or the filter
//! changes before it is written (`siftdb_filter::testing`). The flush or compaction must fail, and
//! all writes must be there, now and after reopening. Other tests make threads meet at a moment
//! that only a lock taken from outside can hit.

use crate::base::error::Error;
use crate::base::sync::Ordering;
use crate::base::write_batch::WriteBatch;
use crate::db::alter;
use crate::db::database::Db;
use crate::db::open;
use crate::db::resume::resume;
use crate::env::api::Env;
use crate::env::mem::MemEnv;
use crate::env::testing::crash::CrashModel;
use crate::jobs::flush::{flush_pending, flush_switched, switch_all};
use crate::jobs::workers::{CompactionToken, run_job};
use crate::options::access::{ReadOptions, WriteOptions};
use crate::options::database::Options;
use crate::options::filter::Filter;
use crate::options::keyspace::KeyspaceOptions;
use crate::state::catalog::new_memtable;
use crate::state::write_queue::{Request, Switch};
use crate::table::filter::layout::FilterLayout;
use crate::tree::edit::{DeletedFile, VersionEdit};
use crate::tree::file_meta::FileMeta;
use crate::tree::new_tables::NewTables;
use crate::tree::version::Version;
use crate::write::commit;
use siftdb_filter::testing::faults;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{scope, yield_now};
use std::time::Duration;

const FAULTS: [&[u8]; 2] = [faults::CHANGES_HASH, faults::CLEARS_BITS];

fn open(env: &MemEnv, filter: &Filter, verify: bool) -> Db {
    let options = Options::new().filter(filter.clone()).verify_filters(verify);
    options.auto_compaction(false).env(Arc::new(env.clone())).open("/db").unwrap()
}

/// Every built-in encoding in every layout, with each fault.
fn filters_with_faults() -> Vec<(Filter, &'static [u8])> {
    faults::arm();
    let layouts = [
        FilterLayout::BlockBased { window_bytes: 2048 },
        FilterLayout::Full,
        FilterLayout::Partitioned { block_bytes: 256 },
    ];
    let encodings = [Filter::bloom, Filter::ribbon, Filter::legacy_bloom, Filter::leveldb_bloom]
        .map(|new| new(10.0));
    let filters = layouts.map(|layout| encodings.clone().map(|filter| filter.layout(layout)));
    let pairs = filters.iter().flatten().flat_map(|filter| FAULTS.map(|fault| (filter, fault)));
    pairs.map(|(filter, fault)| (filter.clone(), fault)).collect()
}

/// The key that triggers the fault, and others around it.
fn keys(fault: &[u8]) -> Vec<Vec<u8>> {
    let others = (0..150).flat_map(|i| [format!("a{i}"), format!("z{i}")]);
    others.map(String::into_bytes).chain([fault.to_vec()]).collect()
}

fn put(db: &Db, fault: &[u8], value: &str) {
    keys(fault).iter().for_each(|key| db.put(key, value).unwrap());
}

fn check(db: &Db, fault: &[u8], options: &ReadOptions, value: &str) {
    for key in keys(fault) {
        let found = db.get_with(&key, options).unwrap();
        assert_eq!(found.as_deref(), Some(value.as_bytes()), "{}", key.escape_ascii());
    }
    assert_eq!(db.stats().construction_bytes, 0);
}

pub(super) fn tables(env: &MemEnv) -> usize {
    let listed = env.list(Path::new("/db")).unwrap();
    listed.iter().filter(|entry| entry.name.ends_with(".sst")).count()
}

/// Checks that the database takes no writes and names memory as the cause.
fn takes_no_writes(db: &Db) {
    match db.put("k", "v") {
        Err(Error::ReadOnly { cause }) => {
            assert!(matches!(*cause, Error::MemoryCorruption { .. }), "{cause}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_damaged_filter_fails_the_flush() {
    for (filter, fault) in &filters_with_faults() {
        let env = MemEnv::new();
        let db = open(&env, filter, true);
        put(&db, fault, "value");
        assert!(db.flush().is_err(), "{filter:?}");
        takes_no_writes(&db);
        assert_eq!(tables(&env), 0, "{filter:?}: the table is removed");
        check(&db, fault, &ReadOptions::new(), "value");
        assert!(db.close().is_err(), "close must tell");
        drop(db);
        // The log has all writes, and they can be flushed without a filter.
        let db = open(&env, &Filter::none(), true);
        check(&db, fault, &ReadOptions::new(), "value");
        db.flush().unwrap();
        check(&db, fault, &ReadOptions::new(), "value");
    }
}

const WITHOUT_FILTERS: ReadOptions = ReadOptions::new().use_filters(false);

#[test]
fn unchecked_filter_damage_passes_the_flush() {
    for (filter, fault) in &filters_with_faults() {
        let env = MemEnv::new();
        let db = open(&env, filter, false);
        put(&db, fault, "value");
        db.flush().unwrap();
        check(&db, fault, &WITHOUT_FILTERS, "value");
        assert_eq!(tables(&env), 1);
    }
}

#[test]
fn a_damaged_filter_fails_the_compaction() {
    for (filter, fault) in &filters_with_faults() {
        let env = MemEnv::new();
        let db = open(&env, filter, false);
        for value in ["old", "new"] {
            put(&db, fault, value);
            db.flush().unwrap();
        }
        db.close().unwrap();
        drop(db);
        let db = open(&env, filter, true);
        assert!(db.compact_range(..).is_err(), "{filter:?}");
        takes_no_writes(&db);
        assert_eq!(tables(&env), 2, "{filter:?}: the inputs stay, the outputs go");
        check(&db, fault, &WITHOUT_FILTERS, "new");
        drop(db);
        let db = open(&env, filter, false);
        check(&db, fault, &WITHOUT_FILTERS, "new");
        db.compact_range(..).unwrap();
        check(&db, fault, &WITHOUT_FILTERS, "new");
    }
}

/// A flush worker that started late met the first write of a session, between the session's
/// manifest and the view that names its log. It wrote down that the first log needed was
/// number 0, and the database could not be opened again. Found by the crash test.
#[test]
fn a_flush_races_with_the_first_write() {
    let directory = Path::new("/db");
    let env = MemEnv::with_log();
    let options = Options::new().env(Arc::new(env.clone()));
    let db = options.clone().open(directory).unwrap();
    // The second manifest of a store. In the first one, log 0 would not be a step back.
    for value in ["1", "2"] {
        db.put("k", value).unwrap();
        db.flush().unwrap();
    }
    db.put("k", "3").unwrap();
    db.close().unwrap();
    drop(db);

    let engine = open::open(options.clone(), directory).unwrap();
    let manifests = || {
        let files = env.list_files();
        files.iter().filter(|path| path.to_string_lossy().contains("MANIFEST")).count()
    };
    scope(|scope| {
        let view_update = engine.catalog.default.view_update.lock();
        scope.spawn(|| {
            let mut batch = WriteBatch::new();
            batch.put("k", "4");
            commit::write(&engine, batch, &WriteOptions::new()).unwrap();
        });
        while manifests() < 2 {
            yield_now();
        }
        scope.spawn(|| flush_pending(&engine).unwrap());
        // Waits until the flush has written its table and waits for the lock of the versions.
        while tables(&env) < 3 || !engine.catalog.versions.is_locked() {
            yield_now();
        }
        drop(view_update);
    });
    drop(engine);
    let db = options.open(directory).unwrap();
    assert_eq!(db.get("k").unwrap().unwrap(), "4");
}

/// I5: the manifest must never name a table that a power cut may take.
#[test]
fn edits_with_tables_that_are_not_durable_are_refused() {
    let options = Options::new().auto_compaction(false).env(Arc::new(MemEnv::with_log()));
    let db = options.open("/db").unwrap();
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    let catalog = &db.engine().catalog;
    let mut versions = catalog.versions.lock();
    let (_, version) = versions.versions().next().unwrap();
    let number = catalog.numbers.take_file_number();
    let meta = FileMeta { number, ..(*version.level(0)[0].meta).clone() };
    let edit = VersionEdit { added: vec![(1, meta)], ..VersionEdit::default() };
    let error = versions.apply(edit, &mut NewTables::default(), 1).unwrap_err();
    assert!(matches!(error, Error::Defect { .. }) && versions.manifest.failed.is_none(), "{error}");
}

/// Such an edit could not be replayed, so the database would be refused.
#[test]
fn edits_that_reorder_versions_are_refused() {
    let directory = Path::new("/db");
    let options = Options::new().auto_compaction(false).env(Arc::new(MemEnv::with_log()));
    let db = options.clone().open(directory).unwrap();
    for value in ["1", "2", "3"] {
        db.put("k", value).unwrap();
        db.flush().unwrap();
    }
    let mut versions = db.engine().catalog.versions.lock();
    let (_, version) = versions.versions().next().unwrap();
    let [newest, middle, oldest] = version.level(0) else { panic!() };
    // A table with the oldest and the newest entry, while the table with the middle one stays.
    let around = FileMeta {
        number: db.engine().catalog.numbers.take_file_number(),
        smallest_sequence: oldest.meta.smallest_sequence,
        ..(*newest.meta).clone()
    };
    let deleted = |number| DeletedFile { keyspace: 0, level: 0, number };
    let both = vec![deleted(newest.meta.number), deleted(oldest.meta.number)];
    let below = VersionEdit { added: vec![(1, (*middle.meta).clone())], ..Default::default() };
    let edit = VersionEdit { deleted: both, added: vec![(0, around)], ..VersionEdit::default() };
    let error = versions.apply(edit, &mut NewTables::default(), 3).unwrap_err();
    assert!(error.to_string().contains("overlap in level 0"), "{error}");
    // Nothing of it was logged, so the next edit is accepted.
    let deleted = vec![deleted(below.added[0].1.number)];
    versions.apply(VersionEdit { deleted, ..below }, &mut NewTables::default(), 3).unwrap();
    drop(versions);
    db.close().unwrap();
    drop(db);
    assert_eq!(options.open(directory).unwrap().get("k").unwrap().unwrap(), "3");
}

/// Beside an old snapshot, no transaction asks for a compaction or for a look at hidden tables.
#[test]
fn only_the_oldest_snapshot_wakes_workers() {
    let db = Options::new().env(Arc::new(MemEnv::new())).open("/db").unwrap();
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    let oldest = db.snapshot();
    db.delete_range("a".."z").unwrap();
    let engine = db.engine();
    let quiet = (0..100).filter(|n| {
        // A worker has looked at the range delete, and the snapshot keeps the table.
        while !engine.catalog.snapshots.is_awaited.load(Ordering::Relaxed) {
            yield_now();
        }
        let generation = engine.jobs.work.generation();
        db.transact(|transaction| transaction.put(n.to_string(), "")).unwrap();
        engine.jobs.work.generation() == generation
    });
    // The end of a job may wake once or twice.
    assert!(quiet.count() > 90);
    let generation = engine.jobs.work.generation();
    drop(oldest);
    assert!(engine.jobs.work.generation() > generation);
}

/// The compaction of a caller may log edits, so `close` must not unlock the directory before it
/// ends.
#[test]
fn close_waits_for_the_compaction_of_a_caller() {
    let options = Options::new().env(Arc::new(MemEnv::new()));
    let db = options.open("/db").unwrap();
    // As if another thread's `compact_range` was still running.
    db.engine().jobs.schedule.lock().caller_compacts = true;
    let (ends, ended) = channel();
    scope(|scope| {
        let closer = db.clone();
        scope.spawn(move || ends.send(closer.close()).unwrap());
        // The close does not return. If it did not wait, it would return within microseconds.
        assert!(ended.recv_timeout(Duration::from_millis(200)).is_err(), "closed too early");
        assert!(db.engine().jobs.schedule.lock().stopping);
        db.engine().jobs.schedule.lock().caller_compacts = false;
        db.engine().jobs.done.notify_all();
        ended.recv_timeout(Duration::from_secs(20)).expect("never closed").unwrap();
    });
}

/// A snapshot keeps the tables of the dropped keyspace, and nothing compacts them any more.
#[test]
fn a_drop_ends_stalls_at_level_0() {
    let options = Options::new().level0_compaction_trigger(1).env(Arc::new(MemEnv::new()));
    let db = options.open("/db").unwrap();
    let doomed = db.keyspace("doomed").unwrap();
    let token = CompactionToken::wait(db.engine()).unwrap();
    for n in 0..db.engine().context.options.level0_stop() {
        doomed.put("k", [n as u8]).unwrap();
        doomed.flush().unwrap();
    }
    let before_drop = db.snapshot();
    doomed.put("k", "last").unwrap();
    let (ends, ended) = channel();
    scope(|scope| {
        scope.spawn(|| ends.send(doomed.flush()).unwrap());
        assert!(ended.recv_timeout(Duration::from_millis(100)).is_err(), "level 0 is full");
        db.drop_keyspace("doomed").unwrap();
        let flushed = ended.recv_timeout(Duration::from_secs(20));
        // Otherwise a failed test would wait forever.
        db.engine().jobs.schedule.lock().stopping |= flushed.is_err();
        db.engine().jobs.done.notify_all();
        let flushed = flushed.expect("never woken");
        assert!(matches!(flushed, Ok(()) | Err(Error::KeyspaceDropped { .. })), "{flushed:?}");
    });
    assert!(before_drop.in_keyspace(&doomed).get("k").unwrap().is_some());
    drop(token);
}

/// Under a steady load a worker always has a next job: what the one before replaced must be freed
/// between the two, and who waits for it woken. Here nothing else would do either.
#[test]
fn idle_workers_free_memtables_and_wake_waiters() {
    let options = Options::new().env(Arc::new(MemEnv::new()));
    let engine = open::open(options, Path::new("/db")).unwrap();
    let held = Arc::clone(&engine.catalog.default.view.load().active);
    let (waits, waiting) = channel();
    let (wakes, woken) = channel();
    scope(|scope| {
        let engine = &engine;
        scope.spawn(move || {
            let mut jobs = engine.jobs.schedule.lock();
            waits.send(()).unwrap();
            engine.jobs.done.wait(jobs.for_condvar());
            wakes.send(()).unwrap();
        });
        waiting.recv().unwrap();
        // Free only once the other thread waits.
        drop(engine.jobs.schedule.lock());
        let mut turn = 0;
        run_job(engine, &mut || {
            turn += 1;
            if turn == 1 {
                let unread = new_memtable(&engine.context.options);
                engine.catalog.retired.lock().extend([unread, Arc::clone(&held)]);
                return Ok(true);
            }
            assert_eq!(engine.catalog.retired.lock().len(), 1, "one is still read");
            woken.recv_timeout(Duration::from_secs(20)).expect("nobody was woken");
            Ok(false)
        });
        // Otherwise a failed test would wait forever.
        engine.jobs.done.notify_all();
    });
    engine.jobs.background_error.check().unwrap();
    drop(held);
}

/// A crash tore the third of seven writes, and records of later ones are still in the log.
#[test]
fn sequences_continue_above_everything_after_a_crash() {
    let directory = Path::new("/db");
    let env = MemEnv::with_log();
    let options = Options::new().env(Arc::new(env.clone()));
    let db = options.clone().open(directory).unwrap();
    for number in 0..7 {
        db.put([number], [number + 1; 3000]).unwrap();
    }
    let env = env.replay(env.log_len(), CrashModel::Kill, 0);
    let is_log = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "wal");
    let log = env.list_files().into_iter().find(is_log).unwrap();
    let mut bytes = env.read_file(&log).unwrap();
    let torn = bytes.windows(100).position(|window| window == [3; 100]).unwrap();
    let sector = torn.next_multiple_of(512);
    bytes[sector..sector + 512].fill(0);
    env.write_file(&log, &bytes);
    let engine = open::open(options.env(Arc::new(env)), directory).unwrap();
    let log = engine.writer.log.lock();
    assert_eq!((log.last_sequence, log.next_sequence), (2, 8));
}

#[test]
fn handles_print_as_one_line() {
    let db = open(&MemEnv::new(), &Filter::none(), true);
    db.put("key", "value").unwrap();
    assert_eq!(format!("{db:?}"), r#"Db { directory: "/db", .. }"#);
    let snapshot = format!("{:?}", db.snapshot());
    assert!(snapshot.len() < 200 && snapshot.contains("/db"), "{snapshot}");
    assert!(format!("{:?}", db.iter()).len() < 200);
}

#[test]
fn a_refused_batch_leaves_its_group_alone() {
    let env = MemEnv::new();
    let db = open(&env, &Filter::none(), true);
    db.put("k", "v").unwrap();
    let (kept, gone) = (db.keyspace("kept").unwrap(), db.keyspace("gone").unwrap());
    let batch = |key: &str, with_gone: bool| {
        let mut batch = WriteBatch::new();
        batch.put(key, "default").in_keyspace(&kept).put(key, "kept");
        if with_gone {
            batch.in_keyspace(&gone).put(key, "gone");
        }
        batch
    };
    let names = ["0", "1", "2", "3", "4"];
    for refused in 0_u8..32 {
        let is_refused = |place: usize| refused & 1 << place != 0;
        let group = names.iter().enumerate().map(|(at, key)| batch(key, is_refused(at)));
        let request = |batch| Request { sync: true, ..Request::of(batch) };
        if refused == 0 {
            db.drop_keyspace("gone").unwrap();
        }
        let answers = commit::commit_together(db.engine(), group.map(request).collect());
        for (place, (answer, key)) in answers.iter().zip(names).enumerate() {
            let there = db.get(key).unwrap().is_some();
            assert_eq!(kept.get(key).unwrap().is_some(), there, "half of a batch");
            match answer {
                Ok(_) => assert!(!is_refused(place) && there),
                Err(Error::KeyspaceDropped { .. }) => assert!(is_refused(place) && !there),
                Err(error) => panic!("{error}"),
            }
            db.delete(key).unwrap();
            kept.delete(key).unwrap();
        }
    }
    db.close().unwrap();
    drop((db, kept, gone));
    assert_eq!(open(&env, &Filter::none(), true).iter().count(), 1);
}

/// The edit would name a keyspace that the manifest does not have, and no opening would accept it.
#[test]
fn settings_of_a_dropped_keyspace_are_not_saved() {
    let options = Options::new().env(Arc::new(MemEnv::with_log()));
    let db = options.clone().open("/db").unwrap();
    db.keyspace("passing").unwrap().put("k", "v").unwrap();
    db.close().unwrap();
    drop(db);
    let db = options.clone().open("/db").unwrap();
    db.put("k", "v").unwrap();
    // As a thread that found it just before another one drops it.
    let found = db.engine().catalog.keyspaces.lock().named("passing").cloned().unwrap();
    db.drop_keyspace("passing").unwrap();
    let settings = KeyspaceOptions::new().block_bytes(512);
    let refused = alter::change(db.engine(), found, &settings).unwrap_err();
    assert!(matches!(refused, Error::KeyspaceDropped { .. }), "{refused}");
    db.put("k", "later").unwrap();
    db.close().unwrap();
    drop(db);
    assert_eq!(options.open("/db").unwrap().get("k").unwrap().unwrap(), "later");
}

/// A checkpoint lists the tables of the moment at which it switched the memtables.
#[test]
fn later_switches_stay_out_of_the_flush_of_a_checkpoint() {
    let env = MemEnv::new();
    let db = open(&env, &Filter::default(), false);
    let (engine, other) = (db.engine(), db.keyspace("other").unwrap());
    let keyspaces = [&*db, &other];
    let put = |value: &str| keyspaces.map(|keyspace| keyspace.put("k", value).unwrap());
    put("1");
    // The worker waits for this.
    let flushes = engine.jobs.flushes.lock();
    let switched = switch_all(engine).unwrap();
    // In another thread: the queue comes before `flushes` in the order of locks.
    scope(|scope| {
        scope.spawn(|| {
            put("2");
            commit::switch(engine, Switch::All).unwrap();
        });
    });
    let largest = || {
        let sequences =
            |version: &Version| version.tables().map(|handle| handle.meta.largest_sequence).max();
        let keyspaces = engine.catalog.all_keyspaces();
        keyspaces.iter().filter_map(|k| sequences(&k.view.load().version)).max()
    };
    let (sequence, listed) =
        flush_switched(engine, &switched, |sequence, _| (sequence, largest())).unwrap();
    assert_eq!((sequence, listed), (2, Some(2)));
    drop((switched, flushes));
    db.flush().unwrap();
    assert_eq!(largest(), Some(4));
}

/// A job fails, and before it records that, the caller of a failed write resumes.
#[test]
fn failures_before_a_resume_are_not_recorded_after_it() {
    let db = open(&MemEnv::new(), &Filter::default(), false);
    db.put("k", "1").unwrap();
    let engine = db.engine();
    let full =
        || Error::io("write_at", Path::new("/db/full"), std::io::ErrorKind::StorageFull.into());
    let (resumes, resumed) = channel();
    scope(|scope| {
        run_job(engine, &mut || {
            engine.set_background_error(full());
            let resumes = resumes.clone();
            scope.spawn(move || resumes.send(resume(engine)).unwrap());
            // A resume that does not wait for the job ends here.
            let early = resumed.recv_timeout(Duration::from_millis(300));
            assert!(early.is_err(), "resumed while a job ran");
            Err(full())
        });
    });
    drop(resumes);
    resumed.recv().unwrap().unwrap();
    db.put("k", "2").unwrap();
}
