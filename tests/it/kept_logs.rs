//! Logs kept for followers: which ones stay, and that no opening, repair or backup reads them as
//! writes that are in no table.

use crate::support::data::key;
use crate::support::stores::{
    HOME, as_env, begun_logs, copy_of, files, files_ending, open, scan, small_options, until,
};
use siftdb::env::testing::{Calls, ENOSPC, Fault, FaultEnv, FaultKind};
use siftdb::env::{Env, MemEnv};
use siftdb::{Db, Options, Recovery};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A log of these options has about 66 KB.
const KEEP: u64 = 300_000;

fn keeping() -> Options {
    small_options().keep_log_bytes(KEEP)
}

fn log_bytes(env: &MemEnv) -> Vec<(PathBuf, u64)> {
    let bytes = |path: PathBuf| (path.clone(), env.metadata(&path).unwrap().bytes);
    begun_logs(env).into_iter().map(bytes).collect()
}

/// Writes and flushes; the last round deletes what others wrote.
fn fill(db: &Db, rounds: std::ops::Range<usize>) {
    for round in rounds {
        for number in 0..200 {
            match (number + round).is_multiple_of(7) {
                true => db.delete(key(number)).unwrap(),
                false => db.put(key(number), vec![round as u8; 300]).unwrap(),
            }
        }
        db.flush().unwrap();
    }
}

/// A database with kept logs and a log of its last writes.
fn store() -> MemEnv {
    let env = MemEnv::new();
    let db = open(&env, &keeping()).unwrap();
    fill(&db, 0..9);
    db.put("last", "write").unwrap();
    db.close().unwrap();
    env
}

#[test]
fn the_newest_logs_stay_up_to_the_limit() {
    let env = store();
    let logs = log_bytes(&env);
    let (_, kept) = logs.split_last().unwrap();
    let bytes: u64 = kept.iter().map(|(_, bytes)| bytes).sum();
    let longest = kept.iter().map(|(_, bytes)| *bytes).max().unwrap();
    assert!(bytes <= KEEP && bytes + longest > KEEP, "{logs:?}");
    // Reopening keeps them, and counts them.
    let db = open(&env, &keeping()).unwrap();
    assert_eq!(log_bytes(&env), logs);
    db.put("another", "write").unwrap();
    assert_eq!(log_bytes(&env)[..logs.len()], logs);
    fill(&db, 9..12);
    let after = log_bytes(&env);
    assert!(after.iter().map(|(_, bytes)| bytes).sum::<u64>() <= KEEP + 2 * longest, "{after:?}");
    assert!(!after.contains(&logs[0]));
    db.close().unwrap();
    // Without the option they go.
    let db = open(&env, &small_options()).unwrap();
    db.put("third", "write").unwrap();
    db.flush().unwrap();
    // A worker removes them. What stays has no writes.
    while log_bytes(&env).iter().map(|(_, bytes)| bytes).sum::<u64>() > 1000 {
        std::thread::yield_now();
    }
}

#[test]
fn kept_logs_change_no_answer() {
    let env = store();
    let files = files(&env);
    let db = open(&env, &keeping()).unwrap();
    let expected = scan(&db).unwrap();
    assert!(db.verify(|_| {}).unwrap().is_sound());
    db.checkpoint("/copy").unwrap();
    db.close().unwrap();
    let is_same = |env: &MemEnv, options: Options, what: &str| {
        let db = options.env(as_env(env)).open(HOME).unwrap();
        assert_eq!(scan(&db).unwrap(), expected, "{what}");
        assert!(db.recovery_report().is_complete(), "{what}");
        assert!(db.verify(|_| {}).unwrap().is_sound(), "{what}");
    };
    is_same(&copy_of(&files), small_options(), "without the option");
    for recovery in [Recovery::Strict, Recovery::Salvage] {
        is_same(&copy_of(&files), keeping().recovery(recovery), "another recovery");
    }
    let read_only = keeping().env(as_env(&copy_of(&files))).open_read_only(HOME).unwrap();
    assert_eq!(scan(&read_only).unwrap(), expected);
    let backup = keeping().env(as_env(&env)).open("/copy").unwrap();
    assert_eq!(scan(&backup).unwrap(), expected);
    // Repairs, with the manifest and without.
    let repaired = copy_of(&files);
    let report = keeping().env(as_env(&repaired)).repair(HOME).unwrap();
    assert!(report.lost.is_empty() && report.missing.is_empty(), "{report}");
    is_same(&repaired, keeping(), "repaired");
    let lost = copy_of(&files);
    lost.remove_file(&Path::new(HOME).join("CURRENT"));
    files_ending(&lost, "")
        .iter()
        .filter(|path| is_manifest(path))
        .for_each(|p| lost.remove_file(p));
    let report = keeping().env(as_env(&lost)).repair(HOME).unwrap();
    assert!(report.lost.is_empty() && report.missing.is_empty(), "{report}");
    is_same(&lost, keeping(), "repaired without a manifest");
    // Damage in a kept log is damage of nothing.
    let damaged = copy_of(&files);
    for path in begun_logs(&damaged).iter().rev().skip(1) {
        damaged.write_file(path, b"nothing that a log begins with");
    }
    is_same(&damaged, keeping(), "damaged");
    let gone = copy_of(&files);
    begun_logs(&gone).iter().rev().skip(1).for_each(|path| gone.remove_file(path));
    is_same(&gone, keeping(), "removed");
    // A removal takes kept logs too, but no file with contents that siftdb does not write.
    for path in begun_logs(&damaged).iter().rev().skip(1) {
        damaged.write_file(path, b"siftdbWL and damage");
    }
    keeping().env(as_env(&damaged)).destroy(HOME).unwrap();
    assert!(begun_logs(&damaged).is_empty());
}

fn is_manifest(path: &Path) -> bool {
    path.file_name().unwrap().to_string_lossy().starts_with("MANIFEST")
}

#[test]
fn a_full_disk_leaves_the_kept_logs() {
    let memory = store();
    let fault = FaultEnv::new(Arc::new(memory.clone()));
    let env: Arc<dyn Env> = Arc::new(fault.clone());
    let db = keeping().env(env).open(HOME).unwrap();
    fill(&db, 9..11);
    // A worker removes the oldest ones.
    until("within the limit", || {
        let logs = log_bytes(&memory);
        logs.split_last()
            .is_some_and(|(_, kept)| kept.iter().map(|(_, bytes)| bytes).sum::<u64>() <= KEEP)
    });
    let calls = Calls::Named("write_at");
    let full = Fault::from_then_on(FaultKind::Error(ENOSPC)).among(calls);
    fault.fail_at(fault.calls_of(calls), full);
    db.put("refused", "write").unwrap_err();
    fault.heal();
    let before = log_bytes(&memory);
    db.resume().unwrap();
    db.put("accepted", "write").unwrap();
    let after = log_bytes(&memory);
    assert!(after.len() >= before.len(), "{before:?} {after:?}");
    let expected = scan(&db).unwrap();
    assert!(!expected.contains_key(&b"refused"[..]));
    db.close().unwrap();
    let db = open(&memory, &keeping()).unwrap();
    assert_eq!(scan(&db).unwrap(), expected);
}

#[test]
fn a_session_that_begins_by_a_resume_keeps_the_logs() {
    // The first log, the manifest and the file that becomes CURRENT.
    for place in 0..3 {
        let memory = store();
        let fault = FaultEnv::new(Arc::new(memory.clone()));
        let options = small_options().keep_log_bytes(1 << 30);
        let db = options.env(Arc::new(fault.clone())).open(HOME).unwrap();
        let before = begun_logs(&memory);
        let calls = Calls::Named("create_new");
        let full = Fault::once(FaultKind::Error(ENOSPC)).among(calls);
        fault.fail_at(fault.calls_of(calls) + place, full);
        db.put("refused", "write").unwrap_err();
        fault.heal();
        db.resume().unwrap();
        db.put("accepted", "write").unwrap();
        db.close().unwrap();
        let after = begun_logs(&memory);
        assert!(before.iter().all(|log| after.contains(log)), "{place}: {before:?} {after:?}");
    }
}
