//! Checkpoints: databases of their own at one moment, whatever happens to the first one, and to the
//! machine in between.

use crate::support::filters::all_filters;
use crate::support::gate::{Gate, GateEnv, OpensOnDrop, Stops};
use crate::support::rng::{Rng, seeds, setting};
use crate::support::stores::{HOME, as_env, copy_of, files, small_options, until};
use siftdb::env::testing::{Calls, CrashModel, EIO, Fault, FaultEnv, FaultKind};
use siftdb::env::{Env, EnvLayer, MemEnv};
use siftdb::{Db, Error, Keyspace, Options, Result};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const BACKUP: &str = "/backup";

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// The contents by keyspace.
type Contents = BTreeMap<String, Map>;

fn open_at(env: &Arc<dyn Env>, path: &str) -> Result<Db> {
    small_options().create_if_missing(false).env(Arc::clone(env)).open(path)
}

fn contents_of(keyspace: &Keyspace) -> Map {
    let forward: Map = keyspace
        .iter()
        .map(|entry| entry.unwrap())
        .map(|(key, value)| (key.to_vec(), value.to_vec()))
        .collect();
    let back: Map = keyspace
        .iter()
        .rev()
        .map(|entry| entry.unwrap())
        .map(|(key, value)| (key.to_vec(), value.to_vec()))
        .collect();
    assert_eq!(forward, back);
    let keys: Vec<_> = forward.keys().collect();
    let values = keyspace.multi_get(&keys).unwrap();
    for ((key, value), found) in forward.iter().zip(values) {
        assert_eq!(found.as_deref(), Some(&value[..]));
        assert_eq!(keyspace.get(key).unwrap().as_deref(), Some(&value[..]));
    }
    forward
}

/// What a sound database holds, by every kind of read.
fn contents(db: &Db) -> Contents {
    assert!(db.verify(|_| {}).unwrap().is_sound());
    let names = db.keyspaces();
    names
        .into_iter()
        .map(|name| (name.clone(), contents_of(&db.keyspace(&name).unwrap())))
        .collect()
}

/// Ends a writer, also if an assertion of another thread fails.
struct StopsOnDrop<'a>(&'a AtomicBool);

impl Drop for StopsOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A few writes of every kind to two keyspaces, one of which passes.
fn write_some(db: &Db, rng: &mut Rng) {
    let other = db.keyspace("other").unwrap();
    for _ in 0..rng.below(60) {
        let mut batch = siftdb::WriteBatch::new();
        for _ in 0..1 + rng.below(4) {
            let key = rng.below(200).to_string();
            let value = vec![rng.below(256) as u8; rng.below(300)];
            match rng.below(10) {
                0 => _ = batch.delete(&key),
                1 => _ = batch.in_keyspace(&other).delete_range(key.as_str().."5"),
                2..6 => _ = batch.in_keyspace(&other).put(&key, &value),
                _ => _ = batch.put(&key, &value),
            }
        }
        db.write(batch).unwrap();
    }
    match rng.below(8) {
        0 => db.flush().unwrap(),
        1 => db.compact_range(..).unwrap(),
        2 => db.delete_range("3".."6").unwrap(),
        3 => db.keyspace("passing").unwrap().put("k", "v").unwrap(),
        4 => _ = db.drop_keyspace("passing"),
        _ => {}
    }
}

#[test]
fn checkpoints_hold_what_was_there() {
    for seed in seeds(12) {
        let mut rng = Rng::new(seed);
        let env = as_env(&MemEnv::new());
        let filters = all_filters();
        let options = small_options().filter(rng.pick(&filters).filter.clone());
        let db = options.env(Arc::clone(&env)).open(HOME).unwrap();
        let mut kept: Vec<(String, Contents)> = Vec::new();
        for n in 0..8 {
            write_some(&db, &mut rng);
            // A new one, or one that is brought up to date.
            let place = match rng.below(2) {
                0 if !kept.is_empty() => kept.remove(rng.below(kept.len())).0,
                _ => format!("/backup-{n}"),
            };
            let report = db.checkpoint(&place).unwrap();
            assert!(report.tables_new <= report.tables && report.bytes_new <= report.bytes);
            kept.push((place, contents(&db)));
        }
        write_some(&db, &mut rng);
        db.compact_range(..).unwrap();
        db.close().unwrap();
        for (place, expected) in &kept {
            let db = open_at(&env, place).unwrap();
            assert_eq!(&contents(&db), expected, "seed {seed}, {place}");
            // A database like any other.
            write_some(&db, &mut rng);
            let after = contents(&db);
            drop(db);
            assert_eq!(contents(&open_at(&env, place).unwrap()), after);
        }
    }
}

#[test]
fn checkpoints_beside_writers_are_one_moment() {
    let directory = tempfile::tempdir().unwrap();
    let (home, backup) = (directory.path().join("db"), directory.path().join("backup"));
    let db = small_options().open(&home).unwrap();
    let other = db.keyspace("other").unwrap();
    let (stop, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    let number = |keyspace: &Keyspace| {
        let value = keyspace.get("n").unwrap();
        value.map_or(0, |value| u64::from_le_bytes(value[..8].try_into().unwrap()))
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1u64.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                // The same in both keyspaces, by one batch.
                let mut batch = siftdb::WriteBatch::new();
                let value = [&n.to_le_bytes()[..], &[7; 300]].concat();
                batch.put("n", &value).put(n.to_le_bytes(), &value);
                batch.in_keyspace(&other).put("n", &value);
                db.write(batch).unwrap();
                acknowledged.store(n, Ordering::SeqCst);
            }
        });
        let _stop = StopsOnDrop(&stop);
        let mut last = 0;
        for _ in 0..12 {
            while acknowledged.load(Ordering::SeqCst) < last + 100 {
                std::thread::yield_now();
            }
            let before = acknowledged.load(Ordering::SeqCst);
            db.checkpoint(&backup).unwrap();
            let after = acknowledged.load(Ordering::SeqCst) + 1;
            // Read-only, so that it stays a checkpoint that may be brought up to date.
            let copy = Options::new().open_read_only(&backup).unwrap();
            let found = number(&copy);
            assert_eq!(found, number(&copy.keyspace("other").unwrap()));
            assert!((before..=after).contains(&found), "{before}, {found}, {after}");
            assert_eq!(copy.iter().count() as u64, found + 1);
            last = found;
        }
    });
}

/// Each batch replaces all keys by a range delete and new values.
#[test]
fn replaced_generations_are_whole_in_checkpoints() {
    let env = as_env(&MemEnv::new());
    let db = small_options().env(Arc::clone(&env)).open(HOME).unwrap();
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for generation in 1u64.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let mut batch = siftdb::WriteBatch::new();
                batch.delete_prefix("k");
                for n in 0..20 {
                    let value = [&generation.to_le_bytes()[..], &[7; 200]].concat();
                    batch.put(format!("k{n}"), value);
                }
                db.write(batch).unwrap();
                written.store(generation, Ordering::SeqCst);
                if generation.is_multiple_of(7) {
                    db.flush().unwrap();
                }
            }
        });
        let _stop = StopsOnDrop(&stop);
        for round in 0..setting("SIFTDB_CHECKPOINTS", 30) as u64 {
            while written.load(Ordering::SeqCst) <= round * 3 {
                std::thread::yield_now();
            }
            db.checkpoint(BACKUP).unwrap();
            let copy = small_options().env(Arc::clone(&env)).open_read_only(BACKUP).unwrap();
            let values: Vec<_> = copy.iter().map(|entry| entry.unwrap().1).collect();
            assert_eq!(values.len(), 20, "round {round}");
            assert!(values.iter().all(|value| *value == values[0]), "round {round}");
        }
    });
}

const NAMES: [&str; 4] = ["before", "first", "hidden", "last"];

/// A database in memory whose flush worker is held in the removal of a hidden table.
struct Held {
    db: Db,
    /// These keyspaces, each with two entries in tables. All in `before` were deleted, and all in
    /// `first`, whose tables are being removed.
    keyspaces: [Keyspace; 4],
    /// Holds the worker.
    manifests: Gate,
    /// Can hold the flush of a checkpoint.
    tables: Gate,
}

fn none_is_left(keyspace: &Keyspace) -> bool {
    keyspace.tables().iter().all(|table| table.entries == 0)
}

impl Held {
    fn new(disk: &MemEnv) -> Self {
        let (manifests, tables) = (Gate::default(), Gate::default());
        let inner: Arc<dyn Env> = Arc::new(GateEnv::new(as_env(disk), &manifests));
        let db = small_options().env(Arc::new(GateEnv::new(inner, &tables))).open(HOME).unwrap();
        let keyspaces = NAMES.map(|name| {
            let keyspace = db.keyspace(name).unwrap();
            keyspace.put("k", name).unwrap();
            keyspace.put("z", name).unwrap();
            keyspace.compact_range(..).unwrap();
            keyspace
        });
        assert!(!keyspaces.iter().any(none_is_left));
        // The worker has done what it was asked for before, so nothing else can hold it.
        keyspaces[0].delete_range(..).unwrap();
        until("idle", || none_is_left(&keyspaces[0]));
        manifests.shut(Stops::SyncsOf("MANIFEST"));
        keyspaces[1].delete_range(..).unwrap();
        manifests.wait_for_a_call();
        Held { db, keyspaces, manifests, tables }
    }
}

/// A range delete that comes during the flush of a checkpoint hides tables that its moment needs.
#[test]
fn later_range_deletes_leave_the_moment_whole() {
    let disk = MemEnv::new();
    let Held { db, keyspaces, manifests, tables } = Held::new(&disk);
    let [_, _, hidden, last] = &keyspaces;
    last.delete_range(..).unwrap();
    tables.shut(Stops::SyncsOf(".sst"));
    std::thread::scope(|scope| {
        let _open = OpensOnDrop([&manifests, &tables]);
        let made = scope.spawn(|| db.checkpoint(BACKUP));
        tables.wait_for_a_call();
        hidden.delete_range(..).unwrap();
        manifests.open();
        // The worker goes through keyspaces in the order of their creation. The tables of `last`
        // are hidden at the moment, too. So once they are gone, those of `hidden` are spared.
        until("removed", || none_is_left(last));
        tables.open();
        made.join().unwrap().unwrap();
    });
    let found = contents(&open_at(&as_env(&disk), BACKUP).unwrap());
    assert_eq!(NAMES.map(|name| found[name].len()), [0, 0, 2, 0]);
    // Nothing is kept longer than the checkpoint needs it.
    until("removed", || none_is_left(hidden));
}

/// The worker does not wait for the flush here, so the end of the workers is not enough.
#[test]
fn closes_wait_for_the_flush_of_checkpoints() {
    let disk = MemEnv::new();
    let Held { db, manifests, tables, .. } = Held::new(&disk);
    tables.shut(Stops::SyncsOf(".sst"));
    std::thread::scope(|scope| {
        let _open = OpensOnDrop([&manifests, &tables]);
        let made = scope.spawn(|| db.checkpoint(BACKUP));
        tables.wait_for_a_call();
        let closed = scope.spawn(|| db.close());
        until("closed", || matches!(db.put("k", "v"), Err(Error::Closed)));
        manifests.open();
        // More than a close takes that does not wait.
        for _ in 0..10_000 {
            std::thread::yield_now();
        }
        let waits = !closed.is_finished();
        tables.open();
        assert!(waits);
        closed.join().unwrap().unwrap();
        assert!(matches!(made.join().unwrap(), Ok(_) | Err(Error::Closed)));
    });
    drop(db);
    let db = open_at(&as_env(&disk), HOME).unwrap();
    assert!(db.recovery_report().is_complete() && db.verify(|_| {}).unwrap().is_sound());
}

/// A drop takes no sequence, so a moment before it cannot show it.
#[test]
fn checkpoints_with_a_drop_have_what_came_before_it() {
    let disk = MemEnv::new();
    let tables = Gate::default();
    let env = Arc::new(GateEnv::new(as_env(&disk), &tables));
    let db = small_options().env(env).open(HOME).unwrap();
    db.keyspace("dropped").unwrap().put("k", "v").unwrap();
    tables.shut(Stops::SyncsOf(".sst"));
    std::thread::scope(|scope| {
        let _open = OpensOnDrop([&tables]);
        let made = scope.spawn(|| db.checkpoint(BACKUP));
        tables.wait_for_a_call();
        db.put("before", "the drop").unwrap();
        db.drop_keyspace("dropped").unwrap();
        tables.open();
        made.join().unwrap().unwrap();
    });
    assert_eq!(contents(&open_at(&as_env(&disk), BACKUP).unwrap()), contents(&db));
}

/// A `close` during the flush of a checkpoint syncs the logs and succeeds.
#[test]
fn a_close_beside_checkpoints_ends_the_session() {
    for round in 0..20u64 {
        let env = as_env(&MemEnv::new());
        let db = small_options().env(Arc::clone(&env)).open(HOME).unwrap();
        let (begun, acknowledged) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let beside = scope.spawn(|| {
                loop {
                    db.put("k", acknowledged.load(Ordering::SeqCst).to_string())
                        .unwrap_or_default();
                    begun.fetch_add(1, Ordering::SeqCst);
                    match db.checkpoint(BACKUP) {
                        Ok(_) => _ = acknowledged.fetch_add(1, Ordering::SeqCst),
                        Err(Error::Closed) => return,
                        Err(error) => panic!("{error}"),
                    }
                }
            });
            while begun.load(Ordering::SeqCst) < 1 + round % 4 && !beside.is_finished() {
                std::thread::yield_now();
            }
            db.close().unwrap();
        });
        drop(db);
        let db = open_at(&env, HOME).unwrap();
        assert!(db.recovery_report().is_complete() && db.verify(|_| {}).unwrap().is_sound());
    }
}

#[test]
fn failed_first_checkpoints_leave_the_directory_free() {
    let disk = MemEnv::new();
    let env = Arc::new(FaultEnv::new(as_env(&disk)));
    let shared: Arc<dyn Env> = env.clone();
    let db = small_options().env(shared).open(HOME).unwrap();
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    let full = Fault::once(FaultKind::Error(28)).among(Calls::Named("hard_link"));
    env.fail_at(env.calls_of(Calls::Named("hard_link")), full);
    assert!(db.checkpoint(BACKUP).unwrap_err().is_out_of_space());
    db.checkpoint(BACKUP).unwrap();
    assert_eq!(contents(&open_at(&as_env(&disk), BACKUP).unwrap()), contents(&db));
}

/// The first call creates the directory and cannot sync its name. Once, the second call found the
/// directory and did not sync its name either, and a power cut took the whole checkpoint.
#[test]
fn checkpoints_sync_an_existing_directory() {
    let disk = MemEnv::new();
    let faults = FaultEnv::new(as_env(&disk));
    let db = small_options().env(Arc::new(faults.clone())).open(HOME).unwrap();
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    let path = "/backups/first";
    for call in 0..2 {
        let fault = Fault::once(FaultKind::Error(EIO)).among(Calls::Named("sync_dir"));
        faults.fail_at(faults.calls_of(Calls::Named("sync_dir")) + call, fault);
        assert!(db.checkpoint(path).is_err() && faults.has_fired());
        faults.heal();
    }
    db.checkpoint(path).unwrap();
    let copy = open_at(&as_env(&disk.power_cut()), path).unwrap();
    assert_eq!(copy.get("k").unwrap().unwrap(), "v");
}

#[test]
fn updates_link_only_new_tables() {
    let env = as_env(&MemEnv::new());
    let db = small_options().auto_compaction(false).env(Arc::clone(&env)).open(HOME).unwrap();
    for round in 0..5 {
        db.put("k", round.to_string()).unwrap();
        let report = db.checkpoint(BACKUP).unwrap();
        assert_eq!((report.tables, report.tables_new), (round + 1, 1));
    }
    let report = db.checkpoint(BACKUP).unwrap();
    assert_eq!((report.tables, report.tables_new, report.bytes_new), (5, 0, 0));
    db.compact_range(..).unwrap();
    let report = db.checkpoint(BACKUP).unwrap();
    assert_eq!((report.tables, report.tables_new), (1, 1));
    let tables = env.list(Path::new(BACKUP)).unwrap();
    assert_eq!(tables.iter().filter(|entry| entry.name.ends_with(".sst")).count(), 1);
}

#[test]
fn checkpoints_of_chosen_keyspaces_have_no_others() {
    let mem = MemEnv::new();
    let env = as_env(&mem);
    let db = small_options().env(Arc::clone(&env)).open(HOME).unwrap();
    let all = ["a", "b", "c"].map(|name| {
        db.put(name, "default").unwrap();
        let keyspace = db.keyspace(name).unwrap();
        keyspace.put(name, "v").unwrap();
        keyspace
    });
    let missing = db.checkpoint_with(BACKUP, &["a", "missing"]).unwrap_err();
    assert!(matches!(missing, Error::KeyspaceNotFound { name } if name == "missing"));
    assert!(!mem.list_files().iter().any(|path| path.starts_with(BACKUP)));
    let choices: [Option<&[&str]>; 6] =
        [Some(&["a"]), Some(&["b", "a"]), Some(&["default"]), Some(&[]), None, Some(&["c"])];
    for (round, choice) in choices.into_iter().enumerate() {
        all[round % 3].put("round", round.to_string()).unwrap();
        let report = match choice {
            None => db.checkpoint(BACKUP),
            Some(names) => db.checkpoint_with(BACKUP, names),
        };
        let mut expected = contents(&db);
        if let Some(names) = choice {
            expected.retain(|name, _| name == "default" || names.contains(&&**name));
            if !names.contains(&"default") {
                expected.insert("default".into(), Map::new());
            }
        }
        let copy = small_options().env(Arc::clone(&env)).open_read_only(BACKUP).unwrap();
        assert_eq!(contents(&copy), expected, "{choice:?}");
        // What is not chosen leaves no file.
        let tables = mem.list_files().into_iter().filter(|path| path.starts_with(BACKUP));
        let tables = tables.filter(|path| path.extension().is_some_and(|end| end == "sst"));
        assert_eq!(tables.count() as u64, report.unwrap().tables, "{choice:?}");
    }
    // A database like any other, in which a keyspace of that name is a new one.
    let copy = open_at(&env, BACKUP).unwrap();
    assert_eq!(copy.keyspace("a").unwrap().iter().count(), 0);
    copy.keyspace("a").unwrap().put("k", "v").unwrap();
    let expected = contents(&copy);
    drop(copy);
    assert_eq!(contents(&open_at(&env, BACKUP).unwrap()), expected);
}

/// Each file of a checkpoint, removed or cut: opening it or `verify` names the file.
#[test]
fn verify_names_what_a_checkpoint_misses() {
    let mem = MemEnv::new();
    let db = small_options().auto_compaction(false).env(as_env(&mem)).open(HOME).unwrap();
    let other = db.keyspace("other").unwrap();
    for n in 0..3 {
        db.put(n.to_string(), vec![n; 3000]).unwrap();
        other.put(n.to_string(), vec![n; 3000]).unwrap();
        db.flush().unwrap();
    }
    db.checkpoint(BACKUP).unwrap();
    let mut files = files(&mem);
    files.retain(|path, _| path.starts_with(BACKUP));
    let kinds =
        |end: &str| files.keys().filter(|path| path.to_string_lossy().contains(end)).count();
    assert_eq!([".sst", ".wal", "MANIFEST", "CURRENT"].map(kinds), [6, 1, 1, 1]);
    for (path, bytes) in &files {
        let all = bytes.len();
        for kept in [None, Some(0), Some(all / 2), Some(all - 1)] {
            let damaged = copy_of(&files);
            match kept {
                None => damaged.remove_file(path),
                Some(kept) => damaged.write_file(path, &bytes[..kept]),
            }
            let opened = small_options().env(as_env(&damaged)).open_read_only(BACKUP);
            let found = match opened.map(|copy| copy.verify(|_| {}).unwrap()) {
                Ok(report) => report.damage,
                Err(error) => vec![error],
            };
            let names_it = |error: &Error| match error {
                Error::Corruption { path: named, .. } | Error::Missing { path: named, .. } => {
                    named == path
                }
                _ => false,
            };
            assert!(found.iter().any(names_it), "{path:?}, {kept:?} of {all}: {found:?}");
        }
    }
}

#[test]
fn idle_databases_and_checkpoints_stay_as_they_are() {
    let mem = MemEnv::new();
    let env = as_env(&mem);
    let of = |place: &str| {
        let mut files = files(&mem);
        files.retain(|path, _| path.starts_with(place));
        files
    };
    let db = small_options().env(Arc::clone(&env)).open(HOME).unwrap();
    db.put("k", "v").unwrap();
    // Entries in the log only: a reader cannot flush them.
    drop(db);
    let reader = small_options().env(Arc::clone(&env)).open_read_only(HOME).unwrap();
    assert!(matches!(reader.checkpoint(BACKUP), Err(Error::OpenedReadOnly)));
    assert!(of(BACKUP).is_empty());
    drop(reader);
    let db = open_at(&env, HOME).unwrap();
    db.flush().unwrap();
    let expected = contents(&db);
    db.close().unwrap();
    let before = of(HOME);
    // Several openings take the same file numbers, since none of them writes.
    for round in 0..3 {
        let db = open_at(&env, HOME).unwrap();
        db.checkpoint(BACKUP).unwrap();
        drop(db);
        assert_eq!(of(HOME), before, "round {round}");
    }
    let before = of(BACKUP);
    let reader = small_options().env(Arc::clone(&env)).open_read_only(BACKUP).unwrap();
    reader.checkpoint("/restored").unwrap();
    drop(reader);
    assert_eq!(of(BACKUP), before);
    assert_eq!(contents(&open_at(&env, "/restored").unwrap()), expected);
    // It may still be brought up to date.
    let db = open_at(&env, HOME).unwrap();
    db.put("k", "later").unwrap();
    db.checkpoint(BACKUP).unwrap();
    assert_eq!(contents(&open_at(&env, BACKUP).unwrap()), contents(&db));
}

#[test]
fn other_directories_are_refused_and_stay() {
    let mem = MemEnv::new();
    let env = as_env(&mem);
    let db = small_options().env(Arc::clone(&env)).open(HOME).unwrap();
    db.put("k", "v").unwrap();
    let refused = |path: &str| {
        let files = files(&mem);
        let error = db.checkpoint(path).unwrap_err();
        let (mut after, mut before) = (self::files(&mem), files);
        // Only what a refused call may create or what this database writes next to it.
        after.retain(|path, _| !path.starts_with(HOME) && !path.ends_with("LOCK"));
        before.retain(|path, _| !path.starts_with(HOME) && !path.ends_with("LOCK"));
        assert_eq!(after, before, "{path}");
        error
    };
    assert!(matches!(refused(HOME), Error::Locked { .. }));
    // Another database.
    let other = small_options().env(Arc::clone(&env)).open("/other").unwrap();
    other.put("k", "other").unwrap();
    assert!(matches!(refused("/other"), Error::Locked { .. }));
    other.close().unwrap();
    assert!(matches!(refused("/other"), Error::InvalidArgument { .. }));
    // A checkpoint of another database.
    let other = open_at(&env, "/other").unwrap();
    other.checkpoint(BACKUP).unwrap();
    assert!(matches!(refused(BACKUP), Error::InvalidArgument { .. }));
    // A checkpoint that was written to.
    db.checkpoint("/mine").unwrap();
    let mine = open_at(&env, "/mine").unwrap();
    assert!(matches!(refused("/mine"), Error::Locked { .. }));
    mine.put("k", "mine").unwrap();
    mine.close().unwrap();
    assert!(matches!(refused("/mine"), Error::InvalidArgument { .. }));
    assert_eq!(open_at(&env, "/mine").unwrap().get("k").unwrap().unwrap(), "mine");
    // A database that lost its CURRENT.
    mem.remove_file(&Path::new("/mine").join("CURRENT"));
    assert!(matches!(refused("/mine"), Error::InvalidArgument { .. }));
    db.close().unwrap();
    assert!(matches!(db.checkpoint("/late"), Err(Error::Closed)));
}

/// A file system between whose directories files cannot have two names.
#[derive(Debug)]
struct Apart(MemEnv);

impl EnvLayer for Apart {
    fn inner(&self) -> &dyn Env {
        &self.0
    }

    fn hard_link(&self, _: &Path, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::CrossesDevices.into())
    }
}

#[test]
fn tables_are_copied_where_links_do_not_go() {
    let env: Arc<dyn Env> = Arc::new(Apart(MemEnv::new()));
    let db = small_options().env(Arc::clone(&env)).open(HOME).unwrap();
    let mut rng = Rng::new(7);
    write_some(&db, &mut rng);
    db.put("k", vec![7; 100_000]).unwrap();
    db.checkpoint(BACKUP).unwrap();
    let expected = contents(&db);
    db.put("k", "later").unwrap();
    assert_eq!(contents(&open_at(&env, BACKUP).unwrap()), expected);
}

/// A database with some writes, then a checkpoint, writes, and the same checkpoint again. Answers
/// the contents at both, and after how many calls on files each began and had ended.
fn two_checkpoints(disk: &MemEnv, seed: u64) -> [(usize, Contents, usize); 2] {
    let mut rng = Rng::new(seed);
    let db = small_options().env(as_env(disk)).open(HOME).unwrap();
    write_some(&db, &mut rng);
    let found = [(); 2].map(|()| {
        write_some(&db, &mut rng);
        db.put("always", rng.next().to_string()).unwrap();
        let begun = disk.log_len();
        db.checkpoint(BACKUP).unwrap();
        (begun, contents(&db), disk.log_len())
    });
    db.close().unwrap();
    found
}

fn is_nothing(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

fn is_unfinished(error: &Error) -> bool {
    matches!(error, Error::Unfinished { directory } if directory == Path::new(BACKUP))
}

/// What a directory holds in which a checkpoint was to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Remains {
    Nothing,
    Unfinished,
    Checkpoint,
}

impl Remains {
    /// Those that `result` shows, which is the answer of a call on them.
    fn of<T>(result: &Result<T>, says: &str) -> Self {
        match result {
            Ok(_) => Remains::Checkpoint,
            Err(error) if is_unfinished(error) => Remains::Unfinished,
            Err(error) => {
                assert!(is_nothing(error), "{says}: {error}");
                Remains::Nothing
            }
        }
    }

    /// What every call but `destroy` says to those in `env`: all the same.
    fn answered_by_all(env: &Arc<dyn Env>, says: &str) -> Self {
        let options = || small_options().create_if_missing(false).env(Arc::clone(env));
        let opened = Self::of(&open_at(env, BACKUP), says);
        let read = options().open_read_only(BACKUP);
        assert_eq!(Self::of(&read, says), opened, "{says}");
        drop(read);
        assert_eq!(Self::of(&options().open_follower(BACKUP), says), opened, "{says}");
        let repaired = options().repair(BACKUP);
        assert_eq!(Self::of(&repaired, says), opened, "{says}");
        assert!(repaired.is_ok_and(|report| !report.changed) == (opened == Remains::Checkpoint));
        if opened == Remains::Unfinished {
            let error = small_options().env(Arc::clone(env)).open(BACKUP).unwrap_err();
            assert!(is_unfinished(&error) && !error.is_corruption(), "{says}: {error}");
        }
        opened
    }
}

/// The files of siftdb in [`BACKUP`] but LOCK.
fn backup_files(env: &MemEnv) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> = files(env).into_keys().collect();
    files.retain(|path| path.starts_with(BACKUP));
    files
}

#[test]
fn crashes_of_new_checkpoints_leave_nothing_a_marker_or_all() {
    for seed in seeds(2) {
        let disk = MemEnv::with_log();
        let [(begun, first, ended), _] = two_checkpoints(&disk, seed);
        let mut found = BTreeMap::<Remains, u32>::new();
        let mut walk = disk.walk_log();
        for call in begun..=ended {
            walk.advance_to(call);
            for model in [CrashModel::Kill, CrashModel::Journal, CrashModel::Posix] {
                let says = format!("seed {seed}, call {call}, {model:?}");
                let crashed = walk.crash(model, seed + call as u64);
                let env = as_env(&crashed);
                let remains = Remains::answered_by_all(&env, &says);
                *found.entry(remains).or_default() += 1;
                let here = open_at(&env, BACKUP).map(|db| contents(&db));
                assert!(here.is_err() || here.unwrap() == first, "{says}");
                // It is made again in place of what is there, unless that is whole.
                let home = open_at(&env, HOME).unwrap();
                home.checkpoint(BACKUP).unwrap_or_else(|error| panic!("{says}: {error}"));
                let made = contents(&open_at(&env, BACKUP).unwrap());
                assert!(made == contents(&home), "{says}");
                // Or it is removed.
                let crashed = walk.crash(model, seed + call as u64);
                small_options().env(as_env(&crashed)).destroy(BACKUP).unwrap();
                assert_eq!(backup_files(&crashed), <[&Path; 0]>::default(), "{says}");
            }
        }
        assert!(found.len() == 3, "{found:?}");
    }
}

#[test]
fn removed_or_repeated_remains_may_be_interrupted_too() {
    let disk = MemEnv::with_log();
    let [(begun, ..), (.., ended)] = two_checkpoints(&disk, 1);
    let is_marked = |env: &MemEnv| {
        let current = env.read_file(&Path::new(BACKUP).join("CURRENT"));
        current.is_some_and(|line| line.starts_with(b"siftdb 2 UNFINISHED "))
    };
    let mut walk = disk.walk_log();
    let mut marked = (begun..=ended).filter_map(|call| {
        walk.advance_to(call);
        Some(walk.crash(CrashModel::Kill, 0)).filter(is_marked)
    });
    // The one with the most files.
    let unfinished = files(&marked.by_ref().max_by_key(|env| backup_files(env).len()).unwrap());
    let unlocked = copy_of(&unfinished);
    let refused = small_options().env(as_env(&unlocked)).repair(BACKUP);
    assert!(is_unfinished(&refused.unwrap_err()));
    assert!(unlocked.list_files() == unfinished.keys().cloned().collect::<Vec<_>>());
    for destroys in [false, true] {
        let disk = MemEnv::with_log();
        for (path, bytes) in &unfinished {
            disk.write_file(path, bytes);
        }
        let begun = disk.log_len();
        if destroys {
            small_options().env(as_env(&disk)).destroy(BACKUP).unwrap();
        } else {
            open_at(&as_env(&disk), HOME).unwrap().checkpoint(BACKUP).unwrap();
        }
        let mut found = BTreeMap::<Remains, u32>::new();
        let mut walk = disk.walk_log();
        for call in begun..=disk.log_len() {
            walk.advance_to(call);
            // Only the last has names that survive in any combination.
            for (model, seeds) in
                [(CrashModel::Kill, 1), (CrashModel::Journal, 2), (CrashModel::Posix, 12)]
            {
                for seed in 0..seeds {
                    let says = format!("destroys {destroys}, call {call}, {model:?}, seed {seed}");
                    let env = as_env(&walk.crash(model, seed));
                    *found.entry(Remains::answered_by_all(&env, &says)).or_default() += 1;
                    if seed == 0 {
                        open_at(&env, HOME).unwrap().checkpoint(BACKUP).unwrap();
                        drop(open_at(&env, BACKUP).unwrap());
                    }
                }
            }
        }
        assert_eq!(found.len(), if destroys { 2 } else { 3 }, "{found:?}");
    }
}

#[test]
fn crashes_leave_the_old_checkpoint_or_the_new() {
    for seed in seeds(3) {
        let disk = MemEnv::with_log();
        let checkpoints = two_checkpoints(&disk, seed);
        let [(begun, first, ended), (begun_again, second, ended_again)] = &checkpoints;
        let mut states = [0; 3];
        let mut walk = disk.walk_log();
        for call in *begun..=disk.log_len() {
            walk.advance_to(call);
            for model in [CrashModel::Kill, CrashModel::Journal, CrashModel::Posix] {
                let env = as_env(&walk.crash(model, seed + call as u64));
                let found = open_at(&env, BACKUP).map(|db| contents(&db));
                let which = match &found {
                    Err(error) => {
                        assert!(is_nothing(error) || is_unfinished(error), "{error}");
                        0
                    }
                    Ok(found) if found == first => 1,
                    Ok(found) => {
                        assert_eq!(found, second, "seed {seed}, call {call}, {model:?}");
                        2
                    }
                };
                states[which] += 1;
                let expected = match call {
                    _ if call >= *ended_again => 2..=2,
                    _ if call >= *begun_again => 1..=2,
                    _ if call >= *ended => 1..=1,
                    _ => 0..=1,
                };
                assert!(
                    expected.contains(&which),
                    "seed {seed}, call {call}, {model:?}: {found:?}"
                );
                // The first one is sound, too.
                let home = open_at(&env, HOME).unwrap();
                assert!(home.verify(|_| {}).unwrap().is_sound());
            }
        }
        assert!(states.iter().all(|count| *count > 0), "{states:?}");
    }
}

#[test]
fn any_failing_call_leaves_the_checkpoint_before() {
    for kind in [FaultKind::Error(28), FaultKind::Error(5)] {
        for n in 0.. {
            let disk = MemEnv::new();
            let env = Arc::new(FaultEnv::new(as_env(&disk)));
            let shared: Arc<dyn Env> = env.clone();
            let db = small_options().auto_compaction(false).env(shared).open(HOME).unwrap();
            db.put("k", "1").unwrap();
            db.checkpoint(BACKUP).unwrap();
            let first = contents(&db);
            db.put("k", "2").unwrap();
            let second = contents(&db);
            env.fail_at(env.calls() + n, Fault::once(kind));
            let result = db.checkpoint(BACKUP);
            let fired = env.has_fired();
            env.heal();
            let found = open_at(&as_env(&disk), BACKUP).map(|copy| contents(&copy)).unwrap();
            match &result {
                Ok(_) => assert_eq!(found, second, "call {n}"),
                Err(_) => assert!(found == first || found == second, "call {n}"),
            }
            assert_eq!(contents(&db), second);
            // Once more, unless the failure was one of this database's own files.
            match db.checkpoint(BACKUP) {
                Ok(_) => {
                    let found = open_at(&as_env(&disk), BACKUP).map(|copy| contents(&copy));
                    assert_eq!(found.unwrap(), second, "call {n}");
                }
                Err(error) => assert!(matches!(error, Error::ReadOnly { .. }), "{n}: {error}"),
            }
            if !fired {
                assert!(result.is_ok() && n > 20, "{n} calls");
                break;
            }
        }
    }
}

/// What a program tells its user to look at.
#[test]
fn a_failed_removal_names_its_file() {
    let mut unfinished = 0;
    for n in 0..60 {
        let memory = MemEnv::new();
        let fault = FaultEnv::new(as_env(&memory));
        let env: Arc<dyn Env> = Arc::new(fault.clone());
        let db = small_options().env(Arc::clone(&env)).open(HOME).unwrap();
        db.put("k", "v").unwrap();
        let (changes, removals) = (Calls::Changes, Calls::Named("remove"));
        let full = Fault::from_then_on(FaultKind::Error(EIO)).among(changes);
        fault.fail_at(fault.calls_of(changes) + n, full);
        let made = db.checkpoint(BACKUP);
        fault.heal();
        if made.is_ok() {
            break;
        }
        if !matches!(open_at(&env, BACKUP), Err(Error::Unfinished { .. })) {
            continue;
        }
        unfinished += 1;
        for removal in 0.. {
            let failing = Fault::once(FaultKind::Error(EIO)).among(removals);
            fault.fail_at(fault.calls_of(removals) + removal, failing);
            match small_options().env(Arc::clone(&env)).destroy(BACKUP) {
                Ok(()) => break,
                Err(Error::Io { path, .. }) => {
                    assert!(memory.list_files().contains(&path), "{n} {removal}: {path:?}");
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
    assert!(unfinished > 3, "{unfinished}");
}
