//! Compactions whose results are refused ([`Error::Defect`]): nothing is lost, so writes go on, and
//! nobody waits for such a compaction. A manifest that cannot be written still ends all writes.

use crate::base::error::{Error, Result};
use crate::base::events::event::{Event, EventListener};
use crate::base::filename::FileName;
use crate::base::levels::LEVELS;
use crate::base::sync::Mutex;
use crate::db::database::Db;
use crate::env::api::Env;
use crate::env::mem::MemEnv;
use crate::env::testing::fault::{Calls, EIO, ENOSPC, Fault, FaultEnv, FaultKind};
use crate::jobs::compact::filter_budget::next_rewrite;
use crate::jobs::compact::manual::FilterRebuild;
use crate::jobs::compact::run::{Cursors, compact_once};
use crate::jobs::flush::flush_pending;
use crate::jobs::obsolete::remove_files;
use crate::jobs::workers::{CompactionToken, compact_most_urgent};
use crate::options::access::{CompactRangeOptions, WriteOptions};
use crate::options::database::Options;
use crate::options::filter::Filter;
use crate::options::keyspace::KeyspaceOptions;
use crate::state::debt::debt;
use crate::state::read_view::ReadView;
use crate::state::session;
use crate::tree::file_meta::FileMeta;
use crate::tree::handle::TableHandle;
use crate::tree::version::Version;
use siftdb_filter::policy::FilterPolicy;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::thread::{scope, yield_now};
use std::time::{Duration, Instant};

fn open(env: Arc<dyn Env>) -> Db {
    Options::new().level0_compaction_trigger(1).env(env).open("/db").unwrap()
}

/// The tables in the directory.
fn tables(env: &MemEnv) -> usize {
    let names = env.list(Path::new("/db")).unwrap();
    names.iter().filter(|entry| entry.name.ends_with(".sst")).count()
}

/// Waits until no compaction runs or is asked for.
fn wait_until_compacted(db: &Db) {
    let jobs = || db.engine().jobs.schedule.lock();
    let deadline = Instant::now() + Duration::from_secs(20);
    while { jobs() }.running > 0
        || !{ jobs() }.compactions_wanted.is_empty()
        || jobs().is_compacting()
    {
        assert!(Instant::now() < deadline, "the same compaction is tried again and again");
        yield_now();
    }
}

#[test]
fn a_refused_compaction_is_tried_once_and_leaves_the_database_writable() {
    let env = MemEnv::new();
    let db = open(Arc::new(env.clone()));
    let tries = || db.engine().catalog.versions.lock().refused_edits.unwrap();
    db.engine().catalog.versions.lock().refused_edits = Some(0);
    let keys: Vec<_> = (0..40u8).map(|key| [key]).collect();
    // More tables than level 0 may have: no writer waits for a compaction that is refused.
    for round in 1..=12u8 {
        keys.iter().for_each(|key| db.put(key, [round]).unwrap());
        db.flush().unwrap();
        wait_until_compacted(&db);
        assert_eq!(tries(), u64::from(round));
        db.engine().jobs.schedule_compactions([db.engine().catalog.default.id]);
        wait_until_compacted(&db);
        assert_eq!(tries(), u64::from(round), "tried again with the same tables");
        assert!(keys.iter().all(|key| db.get(key).unwrap().as_deref() == Some(&[round][..])));
        assert!(!db.engine().jobs.background_error.is_set());
        assert_eq!(db.stats().compactions_refused, tries());
    }
    let refused = db.compact_range(..).unwrap_err();
    assert!(matches!(refused, Error::Defect { .. }), "{refused}");
    let level0 = || db.engine().catalog.default.view.load().version.level(0).len();
    assert_eq!(level0(), 12);
    // A worker may be removing the refused ones.
    while tables(&env) > 12 {
        yield_now();
    }
    assert_eq!(tables(&env), 12);
    // Once the cause is gone, the next change of its tables is compacted.
    db.engine().catalog.versions.lock().refused_edits = None;
    db.put("new", "table").unwrap();
    db.flush().unwrap();
    wait_until_compacted(&db);
    assert_eq!(level0(), 0);
    assert!(db.engine().catalog.default.refused.lock().is_empty());
    assert!(keys.iter().all(|key| db.get(key).unwrap().as_deref() == Some(&[12][..])));
}

#[test]
fn a_refused_compaction_counts_only_as_refused() {
    let options = Options::new().auto_compaction(false).env(Arc::new(MemEnv::new()));
    let db = options.open("/db").unwrap();
    let gone = WriteOptions::new().expire_after(Duration::ZERO);
    for round in ["1", "2"] {
        db.put("k", round).unwrap();
        db.put_with(round, round, &gone).unwrap();
        db.flush().unwrap();
    }
    let counted = || {
        let stats = db.stats();
        let entries = (stats.compaction_entries_dropped, stats.entries_expired);
        let written: u64 = stats.levels[1..].iter().map(|level| level.bytes_written).sum();
        assert_eq!(written, stats.compaction_bytes_written);
        (stats.compactions, stats.compactions_refused, entries, written > 0)
    };
    db.engine().catalog.versions.lock().refused_edits = Some(0);
    let refused = db.compact_range(..).unwrap_err();
    assert!(matches!(refused, Error::Defect { .. }), "{refused}");
    assert_eq!(counted(), (0, 1, (0, 0), false));
    db.engine().catalog.versions.lock().refused_edits = None;
    db.compact_range(..).unwrap();
    assert_eq!(counted(), (1, 1, (3, 2), true));
}

/// The failures of compactions that a listener was told.
#[derive(Default)]
struct Failures(Mutex<Vec<Error>>);

impl EventListener for Failures {
    fn on_event(&self, event: &Event) {
        if let Event::CompactionEnded { error: Some(error), .. } = event {
            self.0.lock().push(error.clone());
        }
    }
}

/// A job whose own keys go back is refused before an edit is tried. In a release build it was only
/// an error for the range deletes, which made the database read-only.
#[test]
fn a_compaction_whose_keys_go_back_is_refused() {
    let (env, failures) = (MemEnv::new(), Arc::new(Failures::default()));
    let options = Options::new().auto_compaction(false).env(Arc::new(env.clone()));
    let listener: Arc<dyn EventListener> = failures.clone();
    let db = options.event_listener(listener).open("/db").unwrap();
    for key in ["a", "b"] {
        db.put(key, key).unwrap();
        db.flush().unwrap();
    }
    let keyspace = &db.engine().catalog.default;
    let sound = Arc::clone(&keyspace.view.load().version);
    // The tables in the wrong order: each claims the keys of the other one.
    let [one, other] = sound.level(0) else { panic!() };
    let claiming = |own: &TableHandle, keys: &FileMeta| {
        let (start, end) = (keys.start.clone(), keys.end.clone());
        let meta = Arc::new(FileMeta { start, end, ..(*own.meta).clone() });
        TableHandle::new(meta, Arc::clone(&own.table), &Arc::default())
    };
    let mut levels = <[Vec<Arc<TableHandle>>; _]>::default();
    levels[1] = vec![claiming(one, &other.meta), claiming(other, &one.meta)];
    let wrong = Arc::new(Version::new(levels));
    let show = |version: &Arc<Version>| {
        keyspace.update_view(|view| ReadView { version: Arc::clone(version), ..view.clone() });
    };
    show(&wrong);
    let refused = db.compact_range(..).unwrap_err();
    assert!(matches!(&refused, Error::Defect { what } if what.contains("order")), "{refused}");
    assert_eq!(tables(&env), 2, "the output is gone, the inputs stay");
    assert_eq!(db.stats().compactions_refused, 1);
    show(&sound);
    assert!(!db.engine().jobs.background_error.is_set());
    db.put("c", "c").unwrap();
    db.compact_range(..).unwrap();
    assert!(["a", "b", "c"].iter().all(|key| db.get(key).unwrap().unwrap() == *key));
    db.close().unwrap();
    let told = failures.0.lock();
    assert!(matches!(&told[..], [Error::Defect { .. }]), "{told:?}");
}

#[test]
fn a_refused_rebuild_of_filters_leaves_the_tables() {
    let env = MemEnv::new();
    let options = Options::new().auto_compaction(false).env(Arc::new(env.clone()));
    let db = options.open("/db").unwrap();
    for round in [1, 2] {
        db.put("k", [round]).unwrap();
        db.flush().unwrap();
    }
    db.engine().catalog.versions.lock().refused_edits = Some(0);
    let refused = db.rebuild_filters(FilterRebuild::All).unwrap_err();
    assert!(matches!(refused, Error::Defect { .. }), "{refused}");
    assert_eq!(db.stats().compactions_refused, 1);
    assert_eq!(
        (tables(&env), db.engine().catalog.default.view.load().version.level(0).len()),
        (2, 2)
    );
    db.put("k", [3]).unwrap();
    db.engine().catalog.versions.lock().refused_edits = None;
    assert_eq!(db.rebuild_filters(FilterRebuild::All).unwrap(), 2);
    assert_eq!(&db.get("k").unwrap().unwrap()[..], [3]);
}

/// Unlike an edit that is refused: the record may be on the disk or not.
#[test]
fn a_compaction_that_cannot_write_the_manifest_ends_all_writes() {
    let mut failed = Vec::new();
    for call in 0.. {
        let env = FaultEnv::new(Arc::new(MemEnv::new()));
        let options = Options::new().auto_compaction(false).env(Arc::new(env.clone()));
        let db = options.open("/db").unwrap();
        for value in ["1", "2"] {
            db.put("k", value).unwrap();
            db.flush().unwrap();
        }
        // A worker that still removes files would be counted, too.
        wait_until_compacted(&db);
        while !db.engine().catalog.obsolete.is_empty() {
            yield_now();
        }
        let fault = Fault::once(FaultKind::Error(EIO)).among(Calls::Changes);
        env.fail_at(env.calls_of(Calls::Changes) + call, fault);
        let force = CompactRangeOptions::new().force(true);
        let compacted = db.compact_range_with(.., &force);
        if !env.has_fired() {
            break;
        }
        let change = env.changes()[call as usize].clone();
        if !change.path.to_string_lossy().contains("MANIFEST") {
            continue;
        }
        failed.push(change.operation);
        assert!(compacted.is_err());
        assert!(matches!(db.put("k", "3"), Err(Error::ReadOnly { .. })), "{change:?}");
        assert_eq!(db.stats().compactions_refused, 0);
        assert_eq!(db.get("k").unwrap().unwrap(), "2");
    }
    assert!(failed.contains(&"write_at") && failed.contains(&"sync_data"), "{failed:?}");
}

/// A worker that is about to choose tables when a load fails to begin its log must leave the load's
/// tables alone: nothing else says that their sequence was durable.
#[test]
fn no_compaction_begins_after_a_failure() {
    let db = open(Arc::new(MemEnv::new()));
    let engine = db.engine();
    let token = CompactionToken::wait(engine).unwrap();
    db.put("k", "1").unwrap();
    db.flush().unwrap();
    let tables = || db.tables().iter().map(|table| (table.number, table.level)).collect::<Vec<_>>();
    let before = tables();
    let full = std::io::Error::from_raw_os_error(ENOSPC);
    engine.set_background_error(Error::io("write_at", Path::new("/db/000009.wal"), full));
    let keyspace = engine.catalog.default.clone();
    assert!(!compact_once(engine, &keyspace, &Cursors::default(), LEVELS).unwrap());
    assert_eq!(tables(), before);
    drop(token);
}

/// Where compactions begin is remembered by keyspace, and most are dropped after a compaction.
#[test]
fn dropped_keyspaces_leave_no_cursors() {
    let db = open(Arc::new(MemEnv::new()));
    let engine = db.engine();
    let token = CompactionToken::wait(engine).unwrap();
    let cursors = Cursors::default();
    for (name, others) in [("a", 0), ("b", 1), ("c", 1)] {
        assert_eq!(cursors.lock().len(), others);
        let keyspace = db.keyspace(name).unwrap();
        keyspace.put("k", "1").unwrap();
        keyspace.flush().unwrap();
        engine.jobs.schedule_compactions([keyspace.number()]);
        compact_most_urgent(engine, &cursors, None).unwrap();
        db.drop_keyspace(name).unwrap();
    }
    drop(token);
}

/// Level 0 is full when `write` begins, and its compaction is refused while it waits.
fn waits_for_a_refused_compaction(write: impl FnOnce(&Db) -> Result<()> + Send) {
    let db = open(Arc::new(MemEnv::new()));
    let engine = db.engine();
    let token = CompactionToken::wait(engine).unwrap();
    for n in 0..engine.context.options.level0_stop() {
        db.put("k", [n as u8]).unwrap();
        db.flush().unwrap();
    }
    let mut slowed = false;
    let (ends, ended) = channel();
    scope(|scope| {
        let db = &db;
        scope.spawn(move || ends.send(write(db)).unwrap());
        let early = ended.recv_timeout(Duration::from_millis(200));
        assert!(early.is_err(), "level 0 is full: {early:?}");
        slowed = debt(engine, &engine.catalog.default) > 0.0;
        engine.catalog.versions.lock().refused_edits = Some(0);
        drop(token);
        let woken = ended.recv_timeout(Duration::from_secs(20));
        // Otherwise a failed test would wait forever.
        engine.jobs.schedule.lock().stopping |= woken.is_err();
        engine.jobs.done.notify_all();
        woken.expect("never woken").unwrap();
    });
    assert!(db.stats().compactions_refused > 0);
    assert!(!engine.jobs.background_error.is_set());
    // Nor do later writes wait for it.
    assert!(slowed && debt(engine, &engine.catalog.default) == 0.0);
}

#[test]
fn a_refused_compaction_wakes_the_writers_that_wait_for_it() {
    waits_for_a_refused_compaction(|db| {
        db.put("k", "last")?;
        db.flush()
    });
}

#[test]
fn a_refused_compaction_wakes_the_loads_that_wait_for_it() {
    waits_for_a_refused_compaction(|db| db.ingest([("k", "loaded")]).map(|_| ()));
}

#[test]
fn a_refused_rewrite_of_a_filter_leaves_its_turn_to_other_tables() {
    let env = MemEnv::new();
    let with_filter = |filter: Filter| {
        let options = Options::new().auto_compaction(false).table_bytes(16 << 10).filter(filter);
        options.env(Arc::new(env.clone())).open("/db").unwrap()
    };
    let db = with_filter(Filter::none());
    (0..5000u32).for_each(|key| {
        db.put(key.to_le_bytes(), [key.wrapping_mul(0x9E37_79B1).to_le_bytes(); 8].concat())
            .unwrap()
    });
    db.compact_range(..).unwrap();
    db.close().unwrap();
    // Every table lacks the filter that the budget allots.
    let db = with_filter(Filter::monkey(1 << 20));
    let keyspace = &db.engine().catalog.default;
    let version = Arc::clone(&keyspace.view.load().version);
    keyspace.filter_workload.lock().written_bytes = 1 << 30;
    let mut rewritten = Vec::new();
    while let Some((task, _)) = next_rewrite(keyspace, &version, &[], true) {
        let number = task.inputs[0].number;
        assert!(!rewritten.contains(&number), "refused before");
        rewritten.push(number);
        keyspace.refused.lock().push(vec![number]);
    }
    assert_eq!(rewritten.len(), version.level(1).len());
    assert!(rewritten.len() > 2);
}

/// A database with a flushed entry "a" and an entry "b" in memory, after a bulk load that was
/// refused in its last step for want of space. There is space again.
fn with_refused_load() -> (MemEnv, Db) {
    let disk = MemEnv::new();
    let env = FaultEnv::new(Arc::new(disk.clone()));
    let db = Options::new().env(Arc::new(env.clone())).open("/db").unwrap();
    db.put("a", "1").unwrap();
    db.flush().unwrap();
    db.put("b", "2").unwrap();
    // The worker creates no other file after these.
    while disk.metadata(Path::new("/db/STATS")).is_err() {
        yield_now();
    }
    // The table of the load can be created, and the next log cannot.
    let create = Calls::Named("create_new");
    let full = Fault::once(FaultKind::Error(ENOSPC)).among(create);
    env.fail_at(env.calls_of(create) + 1, full);
    assert!(db.ingest([("x", "refused")]).is_err() && env.has_fired());
    env.heal();
    assert_eq!(tables(&disk), 2);
    (disk, db)
}

/// A flush that waited for a bulk load, which was refused in its last step, made a view of all
/// tables that the manifest names.
#[test]
fn a_flush_after_a_refused_load_does_not_show_it() {
    let (_, db) = with_refused_load();
    let engine = db.engine();
    let default = [Arc::clone(&engine.catalog.default)];
    session::switch_memtables(engine, &mut engine.writer.log.lock(), &default).unwrap();
    assert!(!flush_pending(engine).unwrap());
    assert_eq!(db.tables().len(), 1);
    db.resume().unwrap();
    assert_eq!(db.iter().count(), 2);
}

/// After a failure no file is removed. A worker forgot the files that it had not removed, and they
/// stayed until the next session.
#[test]
fn obsolete_files_wait_for_a_resume() {
    let (disk, db) = with_refused_load();
    let engine = db.engine();
    // A table of a compaction, say, that was merged and not installed.
    let unnamed = FileName::Table(engine.catalog.numbers.take_file_number());
    let path = unnamed.path(Path::new("/db"));
    disk.create_new(&path).unwrap();
    engine.catalog.obsolete.add([unnamed]);
    remove_files(engine);
    assert!(disk.metadata(&path).is_ok());
    db.resume().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while disk.metadata(&path).is_ok() {
        assert!(Instant::now() < deadline, "it was forgotten");
        yield_now();
    }
}

/// Counts how often it is asked for its name.
#[derive(Debug, Default)]
struct AskedPolicy(AtomicUsize);

impl FilterPolicy for AskedPolicy {
    fn name(&self) -> &str {
        self.0.fetch_add(1, SeqCst);
        "test.asked"
    }

    fn create_filter(&self, _: &[&[u8]], _: &mut Vec<u8>) {}

    fn key_may_match(&self, _: &[u8], _: &[u8]) -> bool {
        true
    }
}

/// A close of a failed database does not wait for the lock of the log, which a change of settings
/// may wait for. It must not write to the manifest afterwards: the directory is free by then.
#[test]
fn settings_are_not_saved_once_the_directory_is_free() {
    let env = MemEnv::new();
    let open = || Options::new().env(Arc::new(env.clone())).open("/db").unwrap();
    let db = open();
    db.keyspace("a").unwrap();
    db.close().unwrap();
    let db = open();
    db.put_with("k", "v", &WriteOptions::new().sync(true)).unwrap();
    let (is_held, held) = channel();
    let (release, released) = channel();
    let asked = Arc::new(AskedPolicy::default());
    let options = KeyspaceOptions::new().filter(Filter::custom(asked.clone()));
    scope(|scope| {
        let log = &db.engine().writer.log;
        scope.spawn(move || {
            let log = log.lock();
            is_held.send(()).unwrap();
            let _ = released.recv();
            drop(log);
        });
        held.recv().unwrap();
        let before = asked.0.load(SeqCst);
        let saved = scope.spawn(|| db.keyspace_with("a", &options).map(drop));
        // It compares settings after it has found the database open, and before it takes the lock.
        while asked.0.load(SeqCst) == before {
            yield_now();
        }
        let cause = std::io::Error::from_raw_os_error(EIO);
        db.engine().set_background_error(Error::io("write_at", "/db", cause));
        let closed = db.close();
        let manifest = || {
            let files = env.list_files().into_iter();
            let manifests = files.filter(|path| path.to_string_lossy().contains("MANIFEST"));
            manifests.map(|path| (env.read_file(&path), path)).collect::<Vec<_>>()
        };
        let before = manifest();
        release.send(()).unwrap();
        assert!(saved.join().unwrap().is_err());
        assert!(manifest() == before, "written after the close");
        assert!(closed.is_err());
    });
}
