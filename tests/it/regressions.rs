//! Found defects, each with the smallest database that shows it and an account of what went wrong.
//! Each test is named after the rule that holds now, and is never deleted.

use crate::support::data::bytes;
use crate::support::run::MODELS;
use crate::support::stores::{as_env, files_ending, open, scan_back, small_options};
use siftdb::env::testing::CrashModel;
use siftdb::env::{Env, MemEnv};
use siftdb::{Options, WriteOptions};
use std::ops::RangeInclusive;
use std::path::Path;

/// The tables of a level were sorted by their smallest internal keys as plain bytes. An internal
/// key ends in a trailer, so "a" (then a trailer that begins with 1) was sorted after "a\0b". The
/// binary search over the level then missed present keys. Found by the model test.
#[test]
fn prefix_keys_order_tables_by_user_key() {
    let db = open(&MemEnv::with_log(), &small_options().snappy(false)).unwrap();
    let keys: [&[u8]; 5] = [b"", b"\0", b"a", b"a\0b", b"b"];
    // Each fills a table of its own.
    for (number, key) in keys.iter().enumerate() {
        db.put(key, bytes(number as u64, 20_000)).unwrap();
    }
    db.flush().unwrap();
    db.compact_range(..).unwrap();
    // Rewritten, since a table alone at level 0 is moved as it is.
    db.put("a", bytes(2, 20_000)).unwrap();
    db.compact_range(..).unwrap();
    assert!(db.stats().total().tables > 1);
    for (number, key) in keys.iter().enumerate() {
        let found = db.get(key).unwrap();
        assert_eq!(found, Some(bytes(number as u64, 20_000).as_slice().into()), "{key:?}");
    }
    let backwards: Vec<_> = scan_back(&db).unwrap().into_iter().map(|(key, _)| key).collect();
    assert!(backwards.iter().rev().eq(&keys));
}

/// An interrupted creation leaves its manifest. The next creation tried to create a manifest of the
/// same name and failed, and so did every later opening. Found by the crash test.
#[test]
fn an_unfinished_creation_is_repeated() {
    let env = MemEnv::with_log();
    env.write_file(Path::new("/db/MANIFEST-000001"), b"half a mani");
    env.write_file(Path::new("/db/000002.tmp"), b"siftdb 1 MANI");
    let db = open(&env, &small_options()).unwrap();
    db.put("k", "v").unwrap();
    db.close().unwrap();
}

/// A process made the directory and died before the directory's name was durable. The next one
/// found it there, acknowledged synced writes, and a power cut took the whole directory. Found by
/// the crash test.
#[test]
fn creation_syncs_an_existing_directory() {
    let env = MemEnv::with_log();
    env.create_dir(Path::new("/a")).unwrap();
    env.create_dir(Path::new("/a/db")).unwrap();
    let env = env.replay(env.log_len(), CrashModel::Kill, 0);
    let open = |env: &MemEnv| small_options().env(as_env(env)).open("/a/db").unwrap();
    let mut batch = siftdb::WriteBatch::new();
    batch.put("k", "v");
    open(&env).write_with(batch, &WriteOptions::new().sync(true)).unwrap();
    assert_eq!(open(&env.power_cut()).get("k").unwrap().unwrap(), "v");
}

/// After a clean close, opening writes nothing: what the log held waits in memtables, and the
/// session has no manifest before its first write. A flush without a write came too early for it
/// and made the database read-only. Found by the model.
#[test]
fn a_flush_may_directly_follow_opening() {
    let env = MemEnv::with_log();
    let db = open(&env, &small_options()).unwrap();
    db.put("k", "v").unwrap();
    db.close().unwrap();
    drop(db);
    let db = open(&env, &small_options()).unwrap();
    db.flush().unwrap();
    assert_eq!(db.stats().total().tables, 1);
    assert_eq!(db.get("k").unwrap().unwrap(), "v");
    db.put("k", "w").unwrap();
    db.close().unwrap();
}

/// Every writing session begins its own manifest. After clean closes the one before was not
/// removed, so manifests piled up, each a description of the whole tree. Now a session removes
/// obsolete files, except those that an iterator still reads.
#[test]
fn clean_sessions_leave_no_old_manifests() {
    let env = MemEnv::with_log();
    for session in 0..20 {
        let db = open(&env, &small_options()).unwrap();
        let before = db.iter();
        db.put(format!("k{session:02}"), "v").unwrap();
        db.compact_range(..).unwrap();
        assert_eq!(before.map(Result::unwrap).count(), session);
        db.close().unwrap();
    }
    let files = env.list_files();
    let count =
        |part: &str| files.iter().filter(|path| path.to_string_lossy().contains(part)).count();
    // The log that the last clean close ended, and the one of the session before it.
    assert!(count("MANIFEST") == 1 && count(".wal") <= 2, "{files:?}");
}

/// A clean close flushes nothing, and a session of one write was over before its flush began: each
/// left one more log, and every opening one more memtable. Found by reviewing.
#[test]
fn short_sessions_leave_no_old_logs() {
    let env = MemEnv::with_log();
    for session in 0..20 {
        let db = open(&env, &small_options()).unwrap();
        assert_eq!(db.iter().map(Result::unwrap).count(), session);
        db.put(format!("k{session:02}"), "v").unwrap();
        db.close().unwrap();
    }
    let logs = env.list_files().iter().filter(|path| is_log(path)).count();
    assert!(logs <= 4, "{logs} logs");
}

fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "wal")
}

/// The newest log was removed, as a copy of the directory may miss it: the store opened as if its
/// writes had never been. Found by reviewing, for the first session and for a later one.
#[test]
fn a_missing_newest_log_is_damage() {
    let sync = WriteOptions::new().sync(true);
    for sessions in 1..=3 {
        let env = MemEnv::with_log();
        for session in 0..sessions {
            let db = open(&env, &small_options()).unwrap();
            let mut batch = siftdb::WriteBatch::new();
            batch.put(format!("k{session}"), "v");
            db.write_with(batch, &sync).unwrap();
            db.close().unwrap();
        }
        let newest = env.list_files().into_iter().filter(|path| is_log(path)).max().unwrap();
        env.remove_file(&newest);
        let error = open(&env, &small_options()).unwrap_err();
        assert!(error.is_corruption(), "{sessions} sessions: {error}");
    }
}

/// A snapshot taken of a closed database read on although nothing kept its files. Found by
/// reviewing.
#[test]
fn snapshots_of_closed_databases_answer_closed() {
    let env = MemEnv::with_log();
    let db = open(&env, &small_options()).unwrap();
    db.put("k", "v").unwrap();
    let before = db.snapshot();
    db.close().unwrap();
    assert_eq!(before.get("k").unwrap().unwrap(), "v");
    let snapshot = db.snapshot();
    assert!(matches!(snapshot.get("k"), Err(siftdb::Error::Closed)));
    assert!(matches!(snapshot.iter().next(), Some(Err(siftdb::Error::Closed))));
}

/// A process died between the write and the sync of a flush's record in the manifest. The next one
/// read the record from the page cache and let its new log repeat the claim that all of the flush
/// was durable. Power failed, and only the claim survived. The next opening skipped that log, as
/// one of a session that never began. Then its own manifest was in force, and the opening after it
/// took the claim for proof of damage. Found by the crash test, with three crashes in a row.
#[test]
fn new_logs_drop_unproven_durability_claims() {
    let env = MemEnv::with_log();
    let db = open(&env, &small_options()).unwrap();
    db.put("a", "1").unwrap();
    db.flush().unwrap();
    db.put("b", "2").unwrap();
    db.flush().unwrap();
    drop(db);
    let log = env.log_text();
    // After each record of the manifest, which is file 1.
    let edits = (1..log.len()).filter(|call| log[call - 1].starts_with("Write { id: 1,"));
    let mut tried = 0;
    for call in edits {
        let killed = env.replay(call, CrashModel::Kill, 0);
        drop(open(&killed, &small_options()).unwrap());
        for seed in 0..40 {
            // The new log is made in three calls.
            let cut = killed.replay(3, CrashModel::Posix, seed);
            drop(open(&cut, &small_options()).unwrap());
            for second in 0..=cut.log_len() {
                let left = cut.replay(second, CrashModel::Posix, 0);
                let place = format!("{call}, {seed}, {second}");
                open(&left, &small_options()).unwrap_or_else(|error| panic!("{place}: {error}"));
                tried += 1;
            }
        }
    }
    assert!(tried > 1000, "{tried}");
}

/// Crashes at each of the calls `calls` of `disk`. Then opens the database at `path`, which has the
/// entry "a", writes the entry "c", closes it and opens it again.
fn write_after_each_crash(disk: &MemEnv, calls: RangeInclusive<usize>, path: &str) {
    for (call, model) in calls.flat_map(|call| MODELS.map(|model| (call, model))) {
        let left = disk.replay(call, model, call as u64);
        let place = format!("{model:?} after {call}");
        let open = || small_options().env(as_env(&left)).open(path);
        let db = open().unwrap_or_else(|error| panic!("{place}: {error}"));
        db.put("c", "1").unwrap();
        db.close().unwrap();
        drop(db);
        let db = open().unwrap_or_else(|error| panic!("{place}, after a session: {error}"));
        for key in ["a", "c"] {
            assert_eq!(db.get(key).unwrap().as_deref(), Some(&b"1"[..]), "{place}: {key}");
        }
    }
}

/// The update of a checkpoint begins a log of the next epoch before its manifest. When it died
/// between the two, the checkpoint opened as it was. The next session began a manifest with a
/// higher number than the log names, and the opening after that took the log for one of another
/// database. Found by crashes at each call of an update, followed by a session.
#[test]
fn an_interrupted_update_of_a_checkpoint_leaves_a_database() {
    let disk = MemEnv::with_log();
    let db = open(&disk, &small_options()).unwrap();
    db.put("a", "1").unwrap();
    db.checkpoint("/copy").unwrap();
    let before = disk.log_len();
    db.put("b", "2").unwrap();
    db.checkpoint("/copy").unwrap();
    let after = disk.log_len();
    drop(db);
    write_after_each_crash(&disk, before..=after, "/copy");
}

/// The same after a repair that was not necessary for opening, and died.
#[test]
fn an_interrupted_repair_leaves_a_database() {
    let disk = MemEnv::with_log();
    let options = || Options::new().env(as_env(&disk));
    let db = options().open("/db").unwrap();
    (0..2000).for_each(|n| db.put(format!("key {n:05}"), [b'v'; 40]).unwrap());
    db.flush().unwrap();
    db.put("a", "1").unwrap();
    db.close().unwrap();
    drop(db);
    let table = files_ending(&disk, ".sst").remove(0);
    let mut bytes = disk.read_file(&table).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle] ^= 1;
    disk.write_file(&table, &bytes);
    let before = disk.log_len();
    assert!(options().repair("/db").unwrap().changed);
    let after = disk.log_len();
    write_after_each_crash(&disk, before..=after, "/db");
}
