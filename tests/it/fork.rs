//! Inherited handles in a forked child: they never write, wait or read a file, and never touch the
//! parent's files and lock.
//!
//! It has `unsafe`, because the standard library cannot fork.
#![allow(unsafe_code)]

use crate::support::alone::alone;
use crate::support::data::{bytes, key};
use crate::support::stores::{scan, small_options};
use siftdb::env::{DiskEnv, Env, LockMode};
use siftdb::{Db, Error, Event, FilterRebuild, LockHolder, ReadOptions, TableWriter};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::DirEntry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Seconds until a child that hangs is killed.
const CHILD_SECONDS: u32 = 20;

/// Runs `body` in a child of this process, which must end well.
fn in_child(body: impl FnOnce()) {
    // SAFETY: the child has only this thread. It runs `body` and leaves by `_exit`. Locks that
    // other threads held stay locked in it. It takes siftdb's, which is the test, and the
    // allocator's, which glibc and musl make usable in a child.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    if child == 0 {
        // SAFETY: sets a timer of this process.
        unsafe { libc::alarm(CHILD_SECONDS) };
        let failed = catch_unwind(AssertUnwindSafe(body)).is_err();
        // SAFETY: ends the process; nothing of the parent's is run.
        unsafe { libc::_exit(i32::from(failed)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child from above and writes to a variable of this frame.
    let ended = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!((ended, status), (child, 0), "14: it hung; 256: it panicked");
}

fn is_forked<T: std::fmt::Debug>(what: &str, result: siftdb::Result<T>) {
    let parent = std::os::unix::process::parent_id();
    match result {
        Err(Error::Forked { process }) => assert_eq!(process, parent, "{what}"),
        other => panic!("{what}: {other:?}"),
    }
}

/// Every call that must be refused.
fn all_refused(db: &Db) {
    is_forked("put", db.put("k", "v"));
    is_forked("delete", db.delete("k"));
    is_forked("sync", db.sync());
    is_forked("sync_ticket", db.sync_ticket().wait());
    is_forked("flush", db.flush());
    is_forked("compact_range", db.compact_range(..));
    is_forked("rebuild_filters", db.rebuild_filters(FilterRebuild::All));
    is_forked("verify", db.verify(|_| {}));
    is_forked("check_filters", db.check_filters());
    is_forked("snapshot", db.snapshot().get("k"));
    is_forked("scan of a snapshot", db.snapshot().iter().next().unwrap());
    is_forked("resume", db.resume());
    is_forked("get of a transaction", db.transaction().get("k"));
    is_forked("put of a transaction", db.transaction().put("k", "v"));
    is_forked("scan of a transaction", db.transaction().iter().next().unwrap());
    is_forked("commit", db.transaction().commit());
    is_forked("transact", db.transact(|tx| tx.put("k", "v")));
    is_forked("update", db.update("k", |_| Some("v")));
    is_forked("close", db.close());
}

/// The files of a directory, by name.
type Files = BTreeMap<String, Vec<u8>>;

fn contents(directory: &Path) -> Files {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let read = |entry: &DirEntry| std::fs::read(entry.path()).unwrap();
    entries.map(|entry| (entry.file_name().into_string().unwrap(), read(&entry))).collect()
}

/// Fails with the names of the files that differ: whole files would fill pages.
fn assert_unchanged(directory: &Path, before: &Files) {
    let now = contents(directory);
    let names: BTreeSet<_> = now.keys().chain(before.keys()).collect();
    let changed: Vec<_> =
        names.into_iter().filter(|name| now.get(*name) != before.get(*name)).collect();
    assert!(changed.is_empty(), "the child changed {changed:?}");
}

/// Waits until the worker has removed all files that the database does not need.
fn wait_for_removals(db: &Db, directory: &Path) {
    let tables: u64 = db.stats().levels.iter().map(|level| level.tables).sum();
    // The log that the last close ended, and the present one.
    let needed = [(".sst", tables), (".wal", 2), (".tmp", 0), ("MANIFEST", 1)];
    let is_clear = || {
        let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        let names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        let count = |part: &str| names.iter().filter(|name| name.contains(part)).count();
        needed.iter().all(|(part, needed)| count(part) as u64 == *needed)
    };
    while !is_clear() {
        std::thread::yield_now();
    }
}

#[test]
fn forked_children_are_refused() {
    alone("fork::forked_children_are_refused", "", || {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let db = small_options().block_cache_bytes(0).open(&path).unwrap();
        for n in 0..500 {
            db.put(key(n), bytes(n as u64, 100)).unwrap();
        }
        db.compact_range(..).unwrap();
        // The close ends the jobs of the parent, and no write below begins another one.
        db.close().unwrap();
        drop(db);
        let options = small_options().block_cache_bytes(0).auto_compaction(false);
        let db = options.open(&path).unwrap();
        db.put("in memory", "v").unwrap();
        wait_for_removals(&db, &path);
        let transaction = db.transaction();
        transaction.put("uncommitted", "v").unwrap();
        let mut handles = Some((db.clone(), db.iter(), db.snapshot(), transaction));
        // An iterator that has begun may return what it has already read.
        if let Some((_, iter, _, _)) = &mut handles {
            iter.next().unwrap().unwrap();
        }
        let before = contents(&path);
        in_child(|| {
            all_refused(&db);
            assert_eq!(db.get("in memory").unwrap().unwrap(), "v");
            assert_eq!(db.get("absent").unwrap(), None);
            is_forked("get", db.get(key(7)));
            is_forked("multi_get", db.multi_get([key(7)]));
            assert_eq!(db.range("in".."io").next().unwrap().unwrap().1, "v");
            is_forked("iter", db.iter().next().unwrap());
            is_forked("prefix", db.prefix("k").next_back().unwrap());
            is_forked("first", db.first());
            is_forked("explain", db.explain(key(7)));
            assert_eq!(db.stats().gets, 0);
            assert!(db.recovery_report().is_complete());
            let locked = Db::open(&path).unwrap_err();
            let holder = LockHolder::OtherProcess;
            assert!(matches!(locked, Error::Locked { holder: found, .. } if found == holder));
            let (db, iter, snapshot, transaction) = handles.take().unwrap();
            let rest: Vec<_> = iter.collect();
            is_forked("the rest of a walk", rest.into_iter().last().unwrap());
            is_forked("a snapshot from before", snapshot.get(key(7)));
            is_forked("moved", transaction.in_keyspace(&db).put("k", "v"));
            is_forked("own write", transaction.get("uncommitted"));
            is_forked("commit of a transaction from before", transaction.commit());
            drop((snapshot, db));
        });
        assert_unchanged(&path, &before);
        let lock = DiskEnv::new().lock(&path.join("LOCK"), LockMode::Exclusive);
        assert_eq!(lock.unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "still the parent's");
        // The last handle, and nothing else.
        let mut last = Some(db);
        drop(handles);
        in_child(|| drop(last.take()));
        assert_unchanged(&path, &before);
        let db = last.unwrap();
        db.put("k", "v").unwrap();
        db.close().unwrap();
        in_child(|| drop(db));
        let db = small_options().open(&path).unwrap();
        assert_eq!(scan(&db).unwrap().len(), 502);
    });
}

#[test]
fn forked_read_only_handles_are_refused() {
    alone("fork::forked_read_only_handles_are_refused", "", || {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let db = small_options().open(&path).unwrap();
        db.put("k", "v").unwrap();
        db.flush().unwrap();
        db.close().unwrap();
        let mut db = Some(Db::open_read_only(&path).unwrap());
        in_child(|| {
            let db = db.take().unwrap();
            is_forked("iter", db.iter().next().unwrap());
            is_forked("close", db.close());
        });
        assert!(matches!(Db::open(&path), Err(Error::Locked { .. })), "the parent reads");
        assert_eq!(db.unwrap().get("k").unwrap().unwrap(), "v");
    });
}

/// The thread that calls it is the parent's.
#[test]
fn forked_children_call_no_listener() {
    alone("fork::forked_children_call_no_listener", "", || {
        let directory = tempfile::tempdir().unwrap();
        let calls = Arc::new(AtomicU64::new(0));
        let counts = Arc::clone(&calls);
        let listener = move |_: &Event| {
            counts.fetch_add(1, Ordering::Relaxed);
        };
        let options = small_options().event_listener(Arc::new(listener));
        let mut held = Some(options.open(directory.path().join("db")).unwrap());
        for round in 0..20 {
            let db = held.as_ref().unwrap();
            db.put(key(round), "v").unwrap();
            // Its events are delivered during the fork.
            db.flush().unwrap();
            in_child(|| {
                let (db, before) = (held.take().unwrap(), calls.load(Ordering::Relaxed));
                all_refused(&db);
                drop(db);
                assert_eq!(calls.load(Ordering::Relaxed), before);
            });
        }
        held.unwrap().close().unwrap();
        assert!(calls.load(Ordering::Relaxed) >= 20 * 4);
    });
}

/// Lets the other threads end when this one does, also if it fails.
struct EndsThreads<'a>(&'a AtomicBool);

impl Drop for EndsThreads<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The child has none of the threads that write the tables of a load.
#[test]
fn forked_loads_are_refused_and_dropped() {
    alone("fork::forked_loads_are_refused_and_dropped", "", || {
        for entries in [10, 150, 400, 1000] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("db");
            let db = small_options().open(&path).unwrap();
            db.put("in memory", "v").unwrap();
            let mut load = Some(db.table_writer().unwrap());
            let put = |load: &mut TableWriter, n| load.put(key(n), bytes(n as u64, 100));
            for n in 0..entries {
                put(load.as_mut().unwrap(), n).unwrap();
            }
            in_child(|| {
                let mut load = load.take().unwrap();
                // A load asks for its process every few entries.
                let refused = (entries..entries + 1000).find_map(|n| put(&mut load, n).err());
                is_forked("put of a load", Err::<(), _>(refused.unwrap()));
                is_forked("finish of a load", load.finish());
            });
            in_child(|| is_forked("finish of a load", load.take().unwrap().finish()));
            in_child(|| drop(load.take()));
            let report = load.take().unwrap().finish().unwrap();
            assert_eq!(report.entries, entries as u64);
            assert_eq!(scan(&db).unwrap().len(), entries + 1);
            assert!(db.verify(|_| {}).unwrap().is_sound());
        }
    });
}

/// The child ends, whatever other threads are doing and whichever locks they hold.
#[test]
fn forked_children_of_busy_parents_never_hang() {
    const FORKS: usize = 60;
    alone("fork::forked_children_of_busy_parents_never_hang", "", || {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let mut held = Some(small_options().max_open_files(2).open(&path).unwrap());
        let stop = AtomicBool::new(false);
        let written = AtomicU64::new(0);
        let clones: Vec<Db> = (0..5).map(|_| held.as_ref().unwrap().clone()).collect();
        std::thread::scope(|scope| {
            for (thread, db) in clones.iter().enumerate() {
                let (stop, written) = (&stop, &written);
                scope.spawn(move || {
                    for n in (0..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                        match thread {
                            0 => db.put(key(n % 900), bytes(n as u64, 100)).unwrap(),
                            1 => drop(db.get(key(n * 7 % 900)).unwrap()),
                            2 => drop(db.range(key(n % 900)..).nth(20)),
                            3 => drop(db.transact(|tx| tx.put(key(900 + n % 9), "v"))),
                            _ => drop((db.snapshot(), db.multi_get([key(n % 900)]), db.stats())),
                        }
                        written.fetch_add(u64::from(thread == 0), Ordering::Relaxed);
                    }
                });
            }
            let _end = EndsThreads(&stop);
            for fork in 1..=FORKS {
                while written.load(Ordering::Relaxed) < fork as u64 * 50 {
                    std::thread::yield_now();
                }
                let mut ticket = held.as_ref().map(Db::sync_ticket);
                in_child(|| {
                    let db = held.take().unwrap();
                    all_refused(&db);
                    // The parent has the thread that would resolve it.
                    match ticket.take().unwrap().wait() {
                        Ok(()) | Err(Error::Forked { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                    for n in 0..900 {
                        match db.get_with(key(n), &ReadOptions::new().fill_cache(n % 2 == 0)) {
                            Ok(_) | Err(Error::Forked { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                    match db.iter().chain(db.iter().rev()).find_map(Result::err) {
                        None | Some(Error::Forked { .. }) => {}
                        Some(error) => panic!("{error}"),
                    }
                    drop((db.stats(), db.filter_report(), db.recovery_report()));
                });
                ticket.unwrap().wait().unwrap();
            }
        });
        drop(clones);
        held.unwrap().close().unwrap();
        assert!(small_options().open(&path).unwrap().verify(|_| {}).unwrap().is_sound());
    });
}
