//! Opening read-only: the same answers, without a call that changes a file.
//!
//! In memory a [`FaultEnv`] lets every changing call fail and counts it. On the real disk the
//! contents of the directory are compared, and write permission is removed where that has an
//! effect.

use crate::support::data::{absent_key, key};
use crate::support::gate::{Gate, GateEnv, OpensOnDrop, Stops};
use crate::support::rng::{Rng, seeds};
use crate::support::stores::{
    HOME, as_env, begun_logs, copy_of, files, open, scan, scan_back, small_options,
};
use siftdb::env::testing::CrashModel;
use siftdb::env::testing::{Calls, EIO, Fault, FaultEnv, FaultKind};
use siftdb::env::{Env, LockMode, MemEnv};
use siftdb::{
    Db, Error, Event, EventListener, ExplainStep, ExplainTarget, FilterRebuild, Options, Recovery,
    WriteBatch,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Several levels, a log, tombstones; as a clean close leaves it, or as a kill does.
fn store(closed: bool) -> MemEnv {
    let env = MemEnv::with_log();
    let db = open(&env, &small_options()).unwrap();
    for number in 0..4_000 {
        db.put(key(number), format!("value {number}")).unwrap();
    }
    for number in (0..4_000).step_by(7) {
        db.delete(key(number)).unwrap();
    }
    db.flush().unwrap();
    db.compact_range(..).unwrap();
    db.put(key(3), "newer").unwrap();
    db.put("only in the log", "1").unwrap();
    if closed {
        db.close().unwrap();
        return env;
    }
    env.replay(env.log_len(), CrashModel::Kill, 0)
}

/// An Env over `env` in which every call that changes anything fails. LOCK is there.
fn frozen(env: &MemEnv) -> Arc<FaultEnv> {
    let frozen = Arc::new(FaultEnv::new(Arc::new(env.clone())));
    frozen.fail_at(0, Fault::from_then_on(FaultKind::Error(EIO)).among(Calls::Changes));
    frozen
}

fn changes(env: &FaultEnv) -> u64 {
    env.calls_of(Calls::Changes) - env.calls_of(Calls::Named("lock"))
}

#[test]
fn read_only_reads_everything_and_changes_nothing() {
    for closed in [true, false] {
        let env = store(closed);
        let expected = scan(&open(&copy_of(&files(&env)), &small_options()).unwrap()).unwrap();
        assert_eq!(expected.len(), 4_000 - 4_000usize.div_ceil(7) + 1);
        // Without LOCK, so that even taking it would be seen.
        env.remove_file(&Path::new(HOME).join("LOCK"));
        let (before, witness) = (files(&env), frozen(&env));
        let options = small_options().env(Arc::clone(&witness) as Arc<dyn Env>);
        let db = options.open_read_only(HOME).unwrap();
        assert_eq!(scan(&db).unwrap(), expected);
        assert_eq!(scan_back(&db).unwrap().len(), expected.len());
        let snapshot = db.snapshot();
        assert_eq!(snapshot.get(key(3)).unwrap().as_deref(), Some(&b"newer"[..]));
        let answers = db.multi_get([key(0), key(1), absent_key(5)]).unwrap();
        assert_eq!(answers.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, false]);
        assert!(db.explain(key(1)).unwrap().value.is_some());
        assert!(db.stats().gets >= 2 && db.filter_report().stats.gets >= 2);
        assert!(db.first().unwrap().is_some() && db.may_contain(key(1)).unwrap());
        let refused = [
            db.put("a", "b"),
            db.delete("a"),
            db.sync(),
            db.flush(),
            db.compact_range(..),
            db.rebuild_filters(FilterRebuild::All).map(drop),
        ];
        for refused in refused {
            assert!(matches!(refused, Err(Error::OpenedReadOnly)), "{refused:?}");
        }
        db.close().unwrap();
        assert!(matches!(db.get("a"), Err(Error::Closed)));
        drop((db, snapshot));
        assert_eq!((changes(&witness), witness.calls_of(Calls::Named("lock"))), (0, 0));
        assert!(files(&env) == before);
        assert!(!env.list_files().iter().any(|path| path.ends_with("LOCK")), "LOCK was created");
    }
}

#[test]
fn readers_share_the_lock_against_writers() {
    let env = store(true);
    let read = || small_options().env(as_env(&env)).open_read_only(HOME);
    let (one, two) = (read().unwrap(), read().unwrap());
    assert!(matches!(open(&env, &small_options()), Err(Error::Locked { .. })));
    one.close().unwrap();
    drop(one);
    assert!(matches!(open(&env, &small_options()), Err(Error::Locked { .. })));
    drop(two);
    let writer = open(&env, &small_options()).unwrap();
    assert!(matches!(read(), Err(Error::Locked { .. })));
    drop(writer);
    let lock = env.lock(&Path::new(HOME).join("LOCK"), LockMode::Shared).unwrap();
    read().unwrap();
    drop(lock);
}

#[test]
fn read_only_leaves_damaged_databases_untouched() {
    let env = MemEnv::with_log();
    let read = |env: &MemEnv| Options::new().env(as_env(env)).open_read_only(HOME);
    assert!(matches!(read(&env), Err(Error::Io { .. })));
    assert!(env.list(Path::new(HOME)).is_err(), "no directory was made");
    env.create_dir(Path::new(HOME)).unwrap();
    assert!(matches!(read(&env), Err(Error::Io { .. })));
    let env = store(true);
    for name in ["CURRENT", "STATS"] {
        let damaged = copy_of(&files(&env));
        damaged.remove_file(&Path::new(HOME).join(name));
        let before = files(&damaged);
        assert_eq!(read(&damaged).is_err(), name == "CURRENT");
        assert!(files(&damaged) == before);
    }
    let invalid = small_options().block_bytes(0).env(as_env(&env)).open_read_only(HOME);
    assert!(matches!(invalid, Err(Error::InvalidOptions { .. })));
}

#[test]
fn read_only_skips_a_torn_tail() {
    let env = store(false);
    let log = begun_logs(&env).pop().unwrap();
    let bytes = env.read_file(&log).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    env.write_file(&log, &bytes[..used]);
    let (before, witness) = (files(&env), frozen(&env));
    let options = small_options().env(Arc::clone(&witness) as Arc<dyn Env>);
    env.remove_file(&Path::new(HOME).join("LOCK"));
    for recovery in [Recovery::TolerateTornTail, Recovery::Salvage] {
        let db = options.clone().recovery(recovery).open_read_only(HOME).unwrap();
        assert_eq!(db.get("only in the log").unwrap(), None);
        assert_eq!(db.get(key(3)).unwrap().as_deref(), Some(&b"newer"[..]));
        let report = db.recovery_report();
        assert_eq!(report.dropped.len(), 1, "{report}");
        assert_eq!(report.dropped[0].path, log);
        assert!(report.set_aside.is_empty());
    }
    let refused = options.recovery(Recovery::Strict).open_read_only(HOME);
    assert!(refused.unwrap_err().is_corruption());
    assert_eq!(changes(&witness), 0);
    assert!(files(&env) == before);
}

#[test]
fn read_only_works_without_write_permission() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = Db::open(&path).unwrap();
    (0..500).for_each(|number| db.put(key(number), "value").unwrap());
    db.flush().unwrap();
    db.put("in the log", "1").unwrap();
    db.close().unwrap();
    drop(db);
    let contents = || {
        let mut all: Vec<_> = std::fs::read_dir(&path)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                let modified = entry.metadata().unwrap().modified().unwrap();
                (entry.path(), std::fs::read(entry.path()).unwrap(), modified)
            })
            .collect();
        all.sort();
        all
    };
    let allow = |directory: u32, file: u32| {
        let set = |path: &Path, mode: u32| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        set(&path, 0o700);
        contents().iter().for_each(|(path, _, _)| set(path, file));
        set(&path, directory);
    };
    let before = contents();
    allow(0o500, 0o400);
    {
        let (one, two) = (Db::open_read_only(&path).unwrap(), Db::open_read_only(&path).unwrap());
        assert_eq!(one.iter().count(), 501);
        assert_eq!(two.get("in the log").unwrap().as_deref(), Some(&b"1"[..]));
        assert!(matches!(Db::open(&path), Err(Error::Locked { .. } | Error::Io { .. })));
    }
    allow(0o700, 0o600);
    assert!(contents() == before);
}

#[test]
fn read_only_refuses_oversized_logs() {
    let env = store(false);
    let before = files(&env);
    let open = |bytes_max: u64| {
        let options = small_options().read_only_log_bytes_max(bytes_max);
        options.env(as_env(&env)).open_read_only(HOME)
    };
    let Err(Error::LogsTooLarge { bytes, bytes_max: 100, .. }) = open(100) else {
        panic!("more than 100 bytes are in the logs");
    };
    let Err(Error::LogsTooLarge { bytes: again, .. }) = open(bytes - 1) else {
        panic!("{bytes} bytes are needed");
    };
    assert_eq!(again, bytes);
    let db = open(bytes).unwrap();
    assert_eq!(db.get("only in the log").unwrap().as_deref(), Some(&b"1"[..]));
    assert!(files(&env) == before);
}

#[test]
fn one_value_larger_than_the_write_buffers_is_read() {
    let (env, options) = (MemEnv::new(), small_options());
    let large = vec![7; 10 * (64 << 10)];
    let db = open(&env, &options).unwrap();
    db.put("large", &large).unwrap();
    db.put("small", "1").unwrap();
    db.close().unwrap();
    let options = || options.clone().env(as_env(&env));
    assert_eq!(options().open_read_only(HOME).unwrap().get("large").unwrap().unwrap(), large);
    assert_eq!(options().open_follower(HOME).unwrap().get("large").unwrap().unwrap(), large);
    // A limit that is named is exact, and the error says which one suffices.
    let limited = |bytes: u64| options().read_only_log_bytes_max(bytes);
    let refused = limited(large.len() as u64).open_read_only(HOME);
    let Err(Error::LogsTooLarge { bytes, .. }) = refused else { panic!("{refused:?}") };
    assert!(limited(bytes - 1).open_read_only(HOME).is_err());
    assert!(limited(bytes - 1).open_follower(HOME).is_err());
    assert_eq!(limited(bytes).open_read_only(HOME).unwrap().iter().count(), 2);
    assert_eq!(limited(bytes).open_follower(HOME).unwrap().iter().count(), 2);
}

/// Counts the stalls for want of a flush that have begun.
#[derive(Default)]
struct Stalls(AtomicU64);

impl EventListener for Stalls {
    fn on_event(&self, event: &Event) {
        if matches!(event, Event::StallBegun { cause: "memtable", .. }) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// A writer fills its write buffers with records of every size until it must wait for flushes,
/// which are held up. Nothing more than that can be in its logs.
#[test]
fn logs_of_a_writer_with_the_same_options_are_never_too_large() {
    const BUFFER: usize = 64 << 10;
    for seed in seeds(12) {
        let mut rng = Rng::new(seed);
        let (disk, gate) = (MemEnv::new(), Gate::default());
        let options = small_options().immutable_memtables_max(1 + rng.below(4));
        let gated = GateEnv::new(as_env(&disk), &gate);
        let stalls = Arc::new(Stalls::default());
        let listened =
            options.clone().event_listener(Arc::clone(&stalls) as Arc<dyn EventListener>);
        let db = listened.env(Arc::new(gated)).open(HOME).unwrap();
        let keyspaces = ["default", "b", "c"].map(|name| db.keyspace(name).unwrap());
        let used = 1 + rng.below(3);
        let (small, large) = (rng.below(100), rng.below(30));
        let options = || options.clone().env(as_env(&disk));
        let follower = options().open_follower(HOME).unwrap();
        let mut refreshes = 0;
        for _ in 0..3 {
            gate.shut(Stops::SyncsOf(".sst"));
            let before = stalls.0.load(Ordering::SeqCst);
            let is_stalled = || stalls.0.load(Ordering::SeqCst) > before;
            std::thread::scope(|scope| {
                let _opens = OpensOnDrop([&gate]);
                let (db, keyspaces, is_stalled) = (&db, &keyspaces, &is_stalled);
                let mut rng = Rng::new(rng.next());
                let writer = scope.spawn(move || {
                    for _ in 0..10_000 {
                        if is_stalled() {
                            break;
                        }
                        let bytes = match rng.below(100) {
                            _ if rng.chance(small) => rng.below(200),
                            chance if chance < large => BUFFER * (1 + rng.below(8)),
                            _ => rng.below(BUFFER),
                        };
                        let mut batch = WriteBatch::new();
                        for _ in 0..1 + rng.below(3) {
                            let key = format!("{:08x}", rng.next() as u32);
                            let keyspace = &keyspaces[rng.below(used)];
                            batch.in_keyspace(keyspace).put(key, vec![7; bytes]);
                        }
                        db.write(batch).unwrap();
                    }
                });
                while !is_stalled() {
                    follower.refresh().unwrap();
                    refreshes += 1;
                }
                // A flush that was past the gate may end the stall for one more batch: then again.
                loop {
                    follower.refresh().unwrap();
                    let count = follower.iter().count();
                    let fresh = options().open_follower(HOME).unwrap().iter().count();
                    let killed = copy_of(&files(&disk));
                    let read = options().env(as_env(&killed)).open_read_only(HOME).unwrap();
                    follower.refresh().unwrap();
                    if follower.iter().count() == count {
                        assert_eq!((fresh, read.iter().count()), (count, count), "seed {seed}");
                        break;
                    }
                }
                gate.open();
                writer.join().unwrap();
            });
        }
        assert!(refreshes > 0);
    }
}

/// A memtable of many gigabytes could not number its entries.
#[test]
fn read_only_memtables_have_about_a_write_buffer() {
    let (env, buffer) = (MemEnv::new(), 64 << 10);
    let writer = Options::new().write_buffer_bytes(64 * buffer).immutable_memtables_max(16);
    for session in 0..3u8 {
        let db = open(&env, &writer).unwrap();
        (0..100).for_each(|number| db.put(key(number), vec![session; 1000]).unwrap());
        db.close().unwrap();
    }
    let reader = Options::new().write_buffer_bytes(buffer).read_only_log_bytes_max(1 << 20);
    let db = reader.env(as_env(&env)).open_read_only(HOME).unwrap();
    let steps = db.explain("absent").unwrap().steps;
    let of_memtable = |step: &&ExplainStep| matches!(step.target, ExplainTarget::Memtable(_));
    // One for each log, and the active one.
    assert_eq!(steps.iter().filter(of_memtable).count(), 4);
    assert!(scan(&db).unwrap().values().all(|value| *value == [2; 1000]));
}
