//! Failing calls on files. Each call of a workload fails in a run of its own: once or from then on,
//! before, after or half way through its work, or because the disk is full. Power may fail at any
//! later moment.
//!
//! A failed read is an error of that read. A failed write is not acknowledged, nor is any later one
//! until the database is reopened; the error stays the same, and reads continue without the failed
//! write. After reopening that write is there whole or not at all. Every acknowledged write is
//! there, or after a power cut every synced one. No file is written or synced after a failure on
//! it.
//!
//! `SIFTDB_READ_STRIDE` and `SIFTDB_CHANGE_STRIDE` set the distance between the reads and between
//! the changes that are tried; 1 tries every call. `.ci/run` tries every change.

use crate::support::history::Violation;
use crate::support::rng::{Rng, setting};
use crate::support::run::{MODELS, Run, change_stride, look_at};
use crate::support::stores::{as_env, is_honest, name, open, small_options};
use siftdb::env::MemEnv;
use siftdb::env::testing::CrashModel;
use siftdb::env::testing::{
    CHANGES, Calls, Change, EINTR, EIO, EMFILE, ENOSPC, Fault, FaultEnv, FaultKind, READS,
};
use siftdb::{Db, Error, FilterRebuild, Options};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The errors of a session.
struct Session<'r> {
    run: &'r Run,
    place: &'r str,
    errors: usize,
    /// The error that every later write answers.
    cause: Option<String>,
}

impl Session<'_> {
    /// Records the result of a call. Only errors that faults cause are allowed.
    fn note<T>(&mut self, result: siftdb::Result<T>) {
        let place = self.place;
        match result {
            Ok(_) => return,
            Err(Error::Io { .. }) => {}
            Err(Error::ReadOnly { cause }) => {
                let said = cause.to_string();
                let first = self.cause.get_or_insert_with(|| said.clone());
                assert_eq!(*first, said, "{place}: the reason changed");
                self.run.failed.store(true, Ordering::SeqCst);
            }
            Err(error) => panic!("{place}: {error}"),
        }
        self.errors += 1;
    }

    /// As `note`, for calls that a read-only database refuses.
    fn note_change<T>(&mut self, result: siftdb::Result<T>) {
        let failed = self.run.failed.load(Ordering::SeqCst);
        assert!(!failed || result.is_err(), "{}: it is read-only", self.place);
        self.note(result);
    }

    /// Writes from one thread and several, reads, flushes, a compaction, a close. Continues after
    /// failures.
    fn play(&mut self) {
        let run = self.run;
        let db = match run.open() {
            Ok(db) => db,
            Err(error) => {
                assert!(is_honest(&error), "{}: {error}", self.place);
                self.errors += 1;
                return;
            }
        };
        let mut rng = Rng::new(9);
        for step in 0..14 {
            let burst = run.burst(&db, 0, &[200, 4000], rng.next());
            self.note_change(burst);
            run.wait(&mut rng);
            match step {
                0 | 1 | 3 | 5 | 7 => self.note_change(run.alter_one(&db, &mut rng)),
                2 | 8 => self.note_change(run.durably(|| db.flush())),
                4 => self.note_change(run.crowd(&db, &[20, 3000], &mut rng)),
                6 => self.note_change(run.durably(|| db.compact_range(..))),
                9 => self.note_change(db.rebuild_filters(FilterRebuild::All)),
                12 => self.note_change(run.durably(|| db.sync())),
                _ => {}
            }
            self.check_reads(&db);
        }
        self.note_change(run.durably(|| db.close()));
    }

    /// A read gives what was acknowledged, or fails; never the remains of a failed write.
    fn check_reads(&mut self, db: &Db) {
        let history = self.run.history.lock().unwrap();
        match look_at(db, &history) {
            Ok(found) => assert_eq!(found.prefix, history.acknowledged(), "{}", self.place),
            // Only the message of an error; `get` checks the kinds.
            Err(Violation { kind: "read", .. }) => self.errors += 1,
            Err(violation) => panic!("{}: {violation:?}", self.place),
        }
        drop(history);
        let result = db.get("key03");
        self.note(result);
    }
}

/// A file is never written again after a failed write or sync of it.
fn check_poisoned(changes: &[Change], place: &str) {
    let touches =
        |change: &Change| ["write_at", "sync_data", "sync_all"].contains(&change.operation);
    for (at, failed) in changes.iter().enumerate() {
        if failed.fault.is_none_or(|fault| fault == FaultKind::Error(EINTR)) || !touches(failed) {
            continue;
        }
        let same = changes[at + 1..].iter().filter(|change| change.path == failed.path);
        // Another file may get the same name later.
        let later = same.take_while(|change| change.operation != "create_new");
        let again = later.into_iter().find(|change| touches(change));
        assert_eq!(again, None, "{place}, after {failed:?}");
    }
}

fn faulty_run(options: &Options) -> (FaultEnv, Run) {
    let disk = MemEnv::with_log();
    let env = FaultEnv::new(as_env(&disk));
    let run = Run { env: Arc::new(env.clone()), may_fail: true, ..Run::new(disk, options) };
    (env, run)
}

/// Runs a session with this fault, then checks the database, with and without a crash. True if the
/// fault occurred.
fn run_with(fault: Fault, n: u64, options: &Options, what: &str) -> bool {
    let place = format!("{what} at call {n}");
    let (env, run) = faulty_run(options);
    env.fail_at(n, fault);
    let mut session = Session { run: &run, place: &place, errors: 0, cause: None };
    session.play();
    let (fired, errors) = (env.has_fired(), session.errors);
    assert!(fired || errors == 0, "{place}: an error without a fault");
    check_poisoned(&env.changes(), &place);
    let mut rng = Rng::new(n);
    let calls = run.disk.log_len();
    let crashes = [
        (calls, CrashModel::Kill, 0),
        (calls, CrashModel::Posix, 0),
        (calls, *rng.pick(&MODELS), rng.next()),
        (rng.below(calls + 1), *rng.pick(&MODELS), rng.next()),
    ];
    for (call, model, seed) in crashes {
        let left = run.disk.replay(call, model, seed);
        let recovered = run.recover(left, call, model, &mut rng);
        let place = format!("{place}, then {model:?} {seed} after {call} of {calls}");
        recovered.map(drop).unwrap_or_else(|violation| panic!("{place}: {violation:?}"));
    }
    fired
}

/// Fails each call once, until a session passes without the fault. Returns the number of calls.
fn fail_each(fault: Fault, step: u64, what: &str) -> u64 {
    let (mut fired_last, mut fired, mut n) = (0, 0, 0);
    // Background work makes the number of calls vary a little: a gap is not the end.
    while n < fired_last + 4 * step + 8 {
        if run_with(fault, n, &small_options(), what) {
            fired_last = n;
            fired += 1;
        }
        n += step;
    }
    println!("{what}: {fired} calls failed");
    fired
}

/// Fails the changes that are tried. Returns about how many changes a session makes.
fn fail_each_change(fault: Fault, what: &str) -> u64 {
    let stride = change_stride() as u64;
    stride * fail_each(fault, stride, what)
}

#[test]
fn any_failing_call_loses_nothing() {
    let mut fired = BTreeMap::new();
    for name in READS.iter().chain(&CHANGES) {
        let is_read = READS.contains(name);
        let stride = if is_read { setting("SIFTDB_READ_STRIDE", 9) } else { change_stride() };
        for fault in [Fault::once, Fault::from_then_on] {
            let fault = fault(FaultKind::Error(EIO)).among(Calls::Named(name));
            *fired.entry(*name).or_insert(0) +=
                fail_each(fault, stride as u64, &format!("{fault:?}"));
        }
    }
    println!("{fired:?}");
    // The engine creates no links and only one directory.
    assert!(fired.iter().all(|(name, fired)| *fired > 0 || *name == "hard_link"), "{fired:?}");
}

#[test]
fn late_disk_errors_lose_nothing() {
    let fault = Fault::once(FaultKind::ErrorAfter(EIO)).among(Calls::Changes);
    assert!(fail_each_change(fault, "EIO afterwards") > 50);
}

#[test]
fn a_full_disk_loses_nothing() {
    let short = Fault::once(FaultKind::ShortWrite).among(Calls::Changes);
    assert!(fail_each_change(short, "short write") > 50);
    let short = Fault::from_then_on(FaultKind::ShortWrite).among(Calls::Changes);
    assert!(fail_each_change(short, "short writes") > 50);
    let full = Fault::from_then_on(FaultKind::Error(ENOSPC)).among(Calls::Changes);
    assert!(fail_each_change(full, "disk full") > 50);
}

#[test]
fn exhausted_descriptors_lose_nothing() {
    let fault = Fault::once(FaultKind::Error(EMFILE)).among(Calls::Named("open_random"));
    // Files are opened at moments that the background chooses: about a dozen calls.
    assert!(fail_each(fault, 1, "EMFILE") > 6);
}

#[test]
fn interrupted_calls_are_retried() {
    let (env, run) = faulty_run(&small_options());
    env.fail_at(0, Fault::from_then_on(FaultKind::Error(EINTR)));
    let mut session = Session { run: &run, place: "EINTR", errors: 0, cause: None };
    session.play();
    assert!(session.errors == 0 && env.has_fired());
}

/// The record of a failed write may be on the disk or not. Both the files it adds and the files it
/// removes are needed.
#[test]
fn a_failed_manifest_write_removes_no_file() {
    let is_manifest = |change: &&Change| {
        let name = name(&change.path);
        name.starts_with("MANIFEST") || (change.operation == "rename" && name == "CURRENT")
    };
    // Without background compactions one thread changes the manifest and removes files.
    let options = small_options().auto_compaction(false);
    let mut failures = 0;
    for kind in [FaultKind::Error(EIO), FaultKind::ErrorAfter(EIO), FaultKind::ShortWrite] {
        for n in 0..150 {
            let (env, run) = faulty_run(&options);
            env.fail_at(n, Fault::once(kind).among(Calls::Changes));
            let place = format!("{kind:?} at call {n}");
            Session { run: &run, place: &place, errors: 0, cause: None }.play();
            let changes = env.changes();
            let failed = changes.iter().position(|change| change.fault.is_some());
            let Some(at) = failed.filter(|at| is_manifest(&&changes[*at])) else { continue };
            // An opening that is refused removes the LOCK that it created, which holds no data.
            let is_loss =
                |change: &&Change| change.operation == "remove" && name(&change.path) != "LOCK";
            let removed: Vec<_> = changes[at..].iter().filter(is_loss).collect();
            assert!(removed.is_empty(), "{place}: {removed:?} after {:?}", changes[at]);
            failures += 1;
        }
    }
    assert!(failures > 30, "only {failures} failures of the manifest");
}

#[test]
fn a_failed_opening_can_be_repeated() {
    for n in 0..40 {
        let disk = MemEnv::with_log();
        let env = FaultEnv::new(as_env(&disk));
        env.fail_at(n, Fault::once(FaultKind::Error(EIO)));
        let opened = small_options().env(Arc::new(env.clone())).open("/db");
        let failed = opened.is_err();
        drop(opened);
        env.heal();
        let db = open(&disk, &small_options());
        let db = db.unwrap_or_else(|error| panic!("call {n} failed ({failed}): {error}"));
        db.put("k", "v").unwrap();
        db.close().unwrap();
    }
}
