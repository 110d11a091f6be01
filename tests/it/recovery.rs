//! The three modes of recovery: what each opens, refuses, and reports as dropped.

use crate::support::data::bytes;
use crate::support::model::Map;
use crate::support::stores::{
    HOME, as_env, begun_logs, copy_of, files, files_ending, open, scan, scan_back, until,
};
use siftdb::env::testing::CrashModel;
use siftdb::env::testing::{Calls, ENOSPC, Fault, FaultEnv, FaultKind};
use siftdb::env::{CountingEnv, MemEnv};
use siftdb::inspect::{self, DumpOptions};
use siftdb::{Db, Error, Options, Recovery, WriteBatch, WriteOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const BATCHES: u64 = 12;
/// Up to here everything was synced.
const SYNCED: u64 = 9;

fn options() -> Options {
    Options::new().auto_compaction(false)
}

fn with(env: &MemEnv, recovery: Recovery) -> siftdb::Result<Db> {
    open(env, &options().recovery(recovery))
}

/// Batches of two entries each, all in one log, as the death of the process leaves them; and where
/// the record of each batch ends.
fn killed() -> (MemEnv, PathBuf, Vec<usize>) {
    let env = MemEnv::with_log();
    let db = open(&env, &options()).unwrap();
    let mut ends = Vec::new();
    let log = || begun_logs(&env).pop().unwrap();
    for number in 1..=BATCHES {
        let mut batch = WriteBatch::new();
        batch.put(format!("key{number:02}"), "1").put("latest", number.to_string());
        let sync = number <= SYNCED && number.is_multiple_of(3);
        db.write_with(batch, &WriteOptions::new().sync(sync)).unwrap();
        let bytes = env.read_file(&log()).unwrap();
        ends.push(bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1);
    }
    let log = log();
    (env.replay(env.log_len(), CrashModel::Kill, 0), log, ends)
}

/// The batches that are there.
fn batches(db: &Db) -> Vec<u64> {
    let there = |number: &u64| db.get(format!("key{number:02}")).unwrap().is_some();
    (1..=BATCHES).filter(there).collect()
}

#[test]
fn strict_refuses_what_the_default_drops() {
    let (env, log, ends) = killed();
    let bytes = env.read_file(&log).unwrap();
    let image = files(&env);
    let (mut dropped, mut whole) = (0, 0);
    for cut in ends[SYNCED as usize - 1]..=*ends.last().unwrap() {
        let damaged = || {
            let env = copy_of(&image);
            env.write_file(&log, &bytes[..cut]);
            env
        };
        let report = with(&damaged(), Recovery::TolerateTornTail).unwrap().recovery_report();
        let strict = with(&damaged(), Recovery::Strict);
        assert_eq!(report.is_complete(), strict.is_ok(), "cut at {cut}: {report}");
        match strict {
            Ok(db) => {
                whole += 1;
                assert!(db.recovery_report().is_complete());
            }
            Err(error) => {
                dropped += 1;
                assert_eq!((&report.dropped[0].path, report.dropped.len()), (&log, 1));
                let Error::Corruption { path, offset, .. } = error else { panic!("{error}") };
                assert_eq!((path, offset), (log.clone(), report.dropped[0].offset));
            }
        }
    }
    assert!(whole == (BATCHES - SYNCED + 1) as usize && dropped > 20, "{whole}, {dropped}");
    // A refused opening changes nothing.
    let torn = copy_of(&image);
    torn.write_file(&log, &bytes[..*ends.last().unwrap() - 1]);
    let before = files(&torn);
    assert!(with(&torn, Recovery::Strict).is_err());
    assert!(files(&torn) == before);
}

#[test]
fn strict_refuses_a_torn_manifest() {
    let (env, ..) = killed();
    // Recovery after the kill flushed, so nothing depends on the last edits of this manifest after
    // the session. Appended junk is a torn record.
    open(&env, &options()).unwrap().close().unwrap();
    let mut manifests = files_ending(&env, "").into_iter();
    let manifest = manifests.rfind(|path| path.to_string_lossy().contains("MANIFEST")).unwrap();
    let bytes = env.read_file(&manifest).unwrap();
    env.write_file(&manifest, &[&bytes[..], &[1, 2, 3, 4, 200, 0, 1, 0]].concat());
    let image = files(&env);
    let error = with(&copy_of(&image), Recovery::Strict).unwrap_err();
    assert!(matches!(&error, Error::Corruption { path, .. } if *path == manifest), "{error}");
    let db = with(&copy_of(&image), Recovery::TolerateTornTail).unwrap();
    assert_eq!(db.recovery_report().dropped[0].path, manifest);
    assert_eq!(batches(&db).len() as u64, BATCHES);
}

#[test]
fn salvage_reads_past_damage() {
    let (env, log, ends) = killed();
    let bytes = env.read_file(&log).unwrap();
    let image = files(&env);
    for broken in 1..SYNCED {
        let env = copy_of(&image);
        let mut damaged = bytes.clone();
        damaged[ends[broken as usize - 1] - 4] ^= 0x40;
        env.write_file(&log, &damaged);
        for recovery in [Recovery::TolerateTornTail, Recovery::Strict] {
            assert!(with(&env, recovery).unwrap_err().is_corruption());
        }
        let db = with(&env, Recovery::Salvage).unwrap();
        let expected: Vec<u64> = (1..=BATCHES).filter(|number| *number != broken).collect();
        assert_eq!(batches(&db), expected);
        assert_eq!(db.get("latest").unwrap().as_deref(), Some(BATCHES.to_string().as_bytes()));
        let report = db.recovery_report();
        let lost = 2 * broken - 1..=2 * broken;
        assert_eq!((report.missing.clone(), report.last_sequence), (vec![lost], 2 * BATCHES));
        assert_eq!(report.dropped.len(), 1, "{report}");
        let place = Path::new(HOME).join("lost").join(log.file_name().unwrap());
        assert_eq!(report.set_aside, std::slice::from_ref(&place));
        assert_eq!(env.read_file(&place).unwrap(), damaged, "the log is kept as it was");
        db.put("after", "1").unwrap();
        assert!(db.explain("after").unwrap().sequence > 2 * BATCHES);
        db.close().unwrap();
        let again = with(&env, Recovery::Strict).unwrap();
        assert_eq!(batches(&again), expected);
        assert!(again.recovery_report().is_complete());
    }
}

#[test]
fn salvage_opens_without_a_missing_log() {
    let (env, log, _) = killed();
    env.remove_file(&log);
    assert!(with(&env, Recovery::TolerateTornTail).unwrap_err().is_corruption());
    let db = with(&env, Recovery::Salvage).unwrap();
    assert_eq!(batches(&db), Vec::<u64>::new());
    let report = db.recovery_report();
    assert!(report.dropped.iter().any(|part| part.path == log), "{report}");
    assert!(!report.is_complete());
}

/// A store that was closed cleanly, its newest log, and where each record of that ends.
fn closed() -> (MemEnv, PathBuf, Vec<usize>) {
    let env = MemEnv::with_log();
    let db = open(&env, &options()).unwrap();
    db.put("first", "1").unwrap();
    db.flush().unwrap();
    let log = begun_logs(&env).pop().unwrap();
    let written = |env: &MemEnv| {
        let bytes = env.read_file(&log).unwrap();
        bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1
    };
    let mut ends = vec![written(&env)];
    for number in 1..=BATCHES {
        db.put(format!("key{number:02}"), "1").unwrap();
        ends.push(written(&env));
    }
    db.close().unwrap();
    assert_eq!(begun_logs(&env), std::slice::from_ref(&log));
    (env, log, ends)
}

/// Modes that require a whole history refuse the damaged log. Salvage opens, and reports what is
/// missing.
fn check_refused(env: &MemEnv, log: &Path, what: &str) {
    for recovery in [Recovery::default(), Recovery::Strict] {
        let image = files(env);
        let error = with(env, recovery).expect_err(what);
        let (Error::Corruption { path, .. } | Error::Missing { path, .. }) = &error else {
            panic!("{what}: {error}")
        };
        assert_eq!(path, log, "{what}: {error}");
        assert!(files(env) == image, "{what}: a refused opening changed files");
    }
    let read_only = options().env(as_env(env)).open_read_only(HOME);
    assert!(read_only.is_err_and(|error| error.is_corruption()), "{what}");
    let db = with(env, Recovery::Salvage).unwrap();
    let report = db.recovery_report();
    assert!(report.dropped.iter().any(|part| part.path == log), "{what}: {report}");
    assert!(db.get("first").unwrap().is_some());
}

#[test]
fn a_clean_close_detects_shortened_logs() {
    let (env, log, ends) = closed();
    let bytes = env.read_file(&log).unwrap();
    let image = files(&env);
    let damaged = |contents: Option<&[u8]>, what: &str| {
        let env = copy_of(&image);
        match contents {
            Some(contents) => env.write_file(&log, contents),
            None => env.remove_file(&log),
        }
        check_refused(&env, &log, what);
    };
    let last = *ends.last().unwrap();
    for end in [&[0, 10, 20], &ends[..ends.len() - 1]].concat() {
        damaged(Some(&bytes[..end]), &format!("cut at {end}"));
        let zeroed = [&bytes[..end], &vec![0; bytes.len() - end]].concat();
        damaged(Some(&zeroed), &format!("zeros from {end}"));
    }
    damaged(None, "removed");
    // Another store's log of the same number, with fewer records.
    let (other, same, _) = closed();
    assert_eq!(same, log);
    let db = open(&other, &options()).unwrap();
    db.put("more", "1").unwrap();
    db.close().unwrap();
    drop(db);
    let others = begun_logs(&other).pop().unwrap();
    damaged(Some(&other.read_file(&others).unwrap()), "a later log of another store");
    // What was allocated ahead holds nothing.
    let env = copy_of(&image);
    env.write_file(&log, &bytes[..last]);
    let db = with(&env, Recovery::Strict).unwrap();
    assert_eq!(batches(&db).len() as u64, BATCHES);
    assert!(db.recovery_report().is_complete());
}

#[test]
fn reading_sessions_keep_the_clean_close() {
    let (env, log, ends) = closed();
    let mark = |env: &MemEnv| {
        let stays = |path: &PathBuf| !path.ends_with("STATS") && !path.ends_with("LOCK");
        files(env).into_iter().filter(|(path, _)| stays(path)).collect::<Vec<_>>()
    };
    let before = mark(&env);
    for _ in 0..3 {
        let db = open(&env, &options()).unwrap();
        assert_eq!(batches(&db).len() as u64, BATCHES);
        db.close().unwrap();
        drop(db);
        drop(options().env(as_env(&env)).open_read_only(HOME).unwrap());
        assert!(mark(&env) == before, "it wrote something");
    }
    let bytes = env.read_file(&log).unwrap();
    let env = copy_of(&files(&env));
    env.write_file(&log, &bytes[..ends[ends.len() - 2]]);
    check_refused(&env, &log, "cut");
}

#[test]
fn a_writing_session_clears_the_mark() {
    let (env, log, _) = closed();
    let db = open(&env, &options()).unwrap();
    db.put("unsynced", "1").unwrap();
    let killed = env.replay(env.log_len(), CrashModel::Kill, 0);
    let newest = begun_logs(&killed).pop().unwrap();
    assert_ne!(newest, log);
    // A crash may tear it: nothing in it was ever durable.
    let bytes = killed.read_file(&newest).unwrap();
    killed.write_file(&newest, &bytes[..bytes.len() - 1]);
    let image = files(&killed);
    let db = with(&copy_of(&image), Recovery::default()).unwrap();
    assert_eq!((batches(&db).len() as u64, db.get("unsynced").unwrap()), (BATCHES, None));
    // But its name was durable before the first write.
    killed.remove_file(&newest);
    let error = with(&killed, Recovery::default()).unwrap_err();
    assert!(matches!(&error, Error::Missing { path, .. } if *path == newest), "{error}");
}

/// A killed database whose logs hold far more than the write buffer of the next session.
fn with_large_logs() -> (MemEnv, Map) {
    let env = MemEnv::with_log();
    let large = options().write_buffer_bytes(1 << 20);
    let db = open(&env, &large).unwrap();
    let mut model = Map::new();
    db.put("deleted", "1").unwrap();
    db.flush().unwrap();
    for number in 0..2_500u64 {
        let key = format!("key{:04}", number * 7 % 900).into_bytes();
        match number % 5 {
            0 => {
                db.delete(&key).unwrap();
                model.remove(&key);
            }
            _ => {
                let value = bytes(number, 90);
                db.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
    }
    db.delete("deleted").unwrap();
    db.sync().unwrap();
    (env.replay(env.log_len(), CrashModel::Kill, 0), model)
}

/// Opens with a write buffer that the logs exceed several times.
fn small_buffer() -> Options {
    options().write_buffer_bytes(64 << 10)
}

#[test]
fn recovery_flushes_one_write_buffer_at_once() {
    let (env, model) = with_large_logs();
    let start = copy_of(&files(&env));
    let before = start.log_len();
    let db = open(&start, &small_buffer()).unwrap();
    assert!(scan(&db).unwrap() == model && scan_back(&db).unwrap().len() == model.len());
    assert_eq!(db.get("deleted").unwrap(), None);
    assert!(db.stats().flushes >= 5, "{} flushes", db.stats().flushes);
    assert!(db.verify(|_| {}).unwrap().is_sound());
    db.close().unwrap();
    drop(db);
    let calls = start.log_len();
    for call in (before..=calls).step_by(2) {
        for (seed, model_of_crash) in
            [CrashModel::Kill, CrashModel::Journal, CrashModel::Posix].into_iter().enumerate()
        {
            let crashed = start.replay(call, model_of_crash, (call + seed) as u64);
            let place = format!("{model_of_crash:?} after call {call}");
            let db = open(&crashed, &small_buffer()).unwrap_or_else(|e| panic!("{place}: {e}"));
            assert!(scan(&db).unwrap() == model, "{place}");
            assert_eq!(db.get("deleted").unwrap(), None, "{place}");
        }
    }
}

#[test]
fn recovery_reads_logs_in_pieces() {
    let env = MemEnv::with_log();
    let large = options().write_buffer_bytes(16 << 20);
    let db = open(&env, &large).unwrap();
    for number in 0..40u64 {
        db.put(format!("key{number:02}"), bytes(number, 100_000)).unwrap();
    }
    let killed = files(&env.replay(env.log_len(), CrashModel::Kill, 0));
    for read_only in [false, true] {
        let counting = CountingEnv::new(as_env(&copy_of(&killed)));
        let options = large.clone().env(Arc::new(counting.clone()));
        let opened = if read_only { options.open_read_only(HOME) } else { options.open(HOME) };
        assert_eq!(opened.unwrap().iter().count(), 40);
        assert_eq!(counting.counts().read_bytes_max, 1 << 20);
    }
}

#[test]
fn large_logs_are_flushed_after_clean_close() {
    let (env, model) = with_large_logs();
    let large = options().write_buffer_bytes(1 << 20);
    // The first opening flushes; what is written then stays in the log.
    let db = open(&env, &large).unwrap();
    for (key, value) in &model {
        db.put(key, value).unwrap();
    }
    db.close().unwrap();
    drop(db);
    let db = open(&env, &small_buffer()).unwrap();
    assert!(db.stats().flushes > 2 && scan(&db).unwrap() == model);
    db.close().unwrap();
}

/// A disk that takes no more bytes: what an opening has made is gone when it is refused.
#[test]
fn refused_openings_leave_no_file() {
    let (env, model) = with_large_logs();
    let image = files(&env);
    let mut refused = 0;
    for call in ["write_at", "create_new", "sync_all", "sync_data"] {
        for kind in [FaultKind::Error(ENOSPC), FaultKind::ShortWrite] {
            for n in 0..40 {
                let disk = copy_of(&image);
                let faulty = FaultEnv::new(as_env(&disk));
                let fault = Fault::from_then_on(kind).among(Calls::Named(call));
                faulty.fail_at(n, fault);
                let opened = small_buffer().env(Arc::new(faulty.clone())).open(HOME);
                if opened.is_ok() {
                    break;
                }
                drop(opened);
                refused += 1;
                assert!(files(&disk) == image, "{call} {n}, {kind:?}: files changed");
            }
        }
    }
    assert!(refused > 50, "{refused} refused openings");
    let disk = copy_of(&image);
    let faulty = FaultEnv::new(as_env(&disk));
    let full = Fault::from_then_on(FaultKind::Error(ENOSPC)).among(Calls::Named("write_at"));
    faulty.fail_at(0, full);
    for _ in 0..300 {
        assert!(small_buffer().env(Arc::new(faulty.clone())).open(HOME).is_err());
    }
    assert!(files(&disk) == image);
    faulty.heal();
    let db = small_buffer().env(Arc::new(faulty)).open(HOME).unwrap();
    assert!(scan(&db).unwrap() == model);
}

/// The same under `Salvage`, whose openings put damaged logs into `lost` first.
#[test]
fn refused_salvages_leave_no_file() {
    let (env, log, ends) = killed();
    let mut damaged = env.read_file(&log).unwrap();
    damaged[ends[2] - 4] ^= 0x40;
    env.write_file(&log, &damaged);
    let image = files(&env);
    let faulty = FaultEnv::new(as_env(&env));
    let full = Fault::from_then_on(FaultKind::Error(ENOSPC)).among(Calls::Named("write_at"));
    for n in 0..12 {
        faulty.fail_at(faulty.calls_of(Calls::Named("write_at")) + n, full);
        let salvage = options().recovery(Recovery::Salvage).env(Arc::new(faulty.clone()));
        if salvage.open(HOME).is_ok() {
            assert!(n > 3, "nothing failed");
            return;
        }
        assert!(files(&env) == image, "call {n}");
        faulty.heal();
    }
    panic!("every opening failed");
}

#[test]
fn large_recovered_memtables_are_flushed() {
    let env = MemEnv::with_log();
    let buffer = small_buffer();
    let open = || open(&env, &buffer).unwrap();
    let db = open();
    for number in 0..30u64 {
        db.put(format!("key{number:02}"), bytes(number, 1000)).unwrap();
    }
    db.close().unwrap();
    drop(db);
    let db = open();
    let deadline = Instant::now() + Duration::from_secs(30);
    while db.stats().total().tables == 0 {
        assert!(Instant::now() < deadline, "a program that reads replays its logs for ever");
        std::thread::yield_now();
    }
    assert_eq!(scan(&db).unwrap().len(), 30);
    db.close().unwrap();
    drop(db);
    let before = env.log_len();
    let db = open();
    assert_eq!((scan(&db).unwrap().len(), db.stats().total().tables), (30, 1));
    assert_eq!(env.log_len(), before, "the next opening writes nothing");
}

/// Programs that only read, and close before the worker can flush: one of them replays the logs.
#[test]
fn early_closes_replay_large_logs_once() {
    let env = MemEnv::new();
    let buffer = small_buffer();
    let db = open(&env, &buffer).unwrap();
    for number in 0..50u64 {
        db.put(format!("key{number:02}"), bytes(number, 1000)).unwrap();
    }
    db.close().unwrap();
    drop(db);
    let opening_reads = || {
        let counting = CountingEnv::new(as_env(&env));
        let db = buffer.clone().env(Arc::new(counting.clone())).open(HOME).unwrap();
        let read_bytes = counting.counts().read_bytes;
        db.close().unwrap();
        read_bytes
    };
    let first = opening_reads();
    assert!(first > 50_000, "{first} bytes: the logs are not replayed");
    for opening in 1..10 {
        let read_bytes = opening_reads();
        assert!(read_bytes < 16 << 10, "opening {opening} read {read_bytes} bytes");
    }
    assert_eq!(scan(&open(&env, &buffer).unwrap()).unwrap().len(), 50);
}

#[test]
fn salvage_equals_the_default_without_damage() {
    let (env, log, ends) = killed();
    let bytes = env.read_file(&log).unwrap();
    let last = ends.len() - 1;
    for cut in [ends[last], ends[last] - 1, ends[last - 2] + 3] {
        let env = copy_of(&files(&env));
        env.write_file(&log, &bytes[..cut]);
        let expected = scan(&with(&copy_of(&files(&env)), Recovery::default()).unwrap()).unwrap();
        let db = with(&env, Recovery::Salvage).unwrap();
        assert_eq!(scan(&db).unwrap(), expected);
        let report = db.recovery_report();
        assert_eq!(report.set_aside.len(), usize::from(cut != ends[last]), "{report}");
        assert!(report.missing.is_empty());
    }
}

/// The time that is `seconds` after the start of a test.
fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
}

/// What a log with range deletes and expiring entries brings back, cut after each record and within
/// each: now, and when the entries have expired.
#[test]
fn recoveries_keep_range_deletes_and_expiry() {
    let both = |env: &MemEnv, db: &Db| {
        let [now, later] = [at(0), at(60)].map(|time| {
            env.set_now(time);
            scan(db).unwrap()
        });
        env.set_now(at(0));
        (now, later)
    };
    let env = MemEnv::with_log();
    env.set_now(at(0));
    let db = open(&env, &options()).unwrap();
    let log = begun_logs(&env).pop();
    let mut states = vec![(0, both(&env, &db))];
    for number in 0..12u64 {
        let key = |number: u64| format!("key{:02}", number % 7);
        match number % 3 {
            0 => db.put(key(number), "stays").unwrap(),
            1 => {
                let minute = WriteOptions::new().expire_after(Duration::from_secs(60));
                db.put_with(key(number), "expires", &minute).unwrap();
            }
            _ => db.delete_range(key(number - 1)..key(number + 1)).unwrap(),
        }
        // The first write makes the log.
        let log = begun_logs(&env).pop().unwrap();
        let bytes = env.read_file(&log).unwrap();
        let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        states.push((end, both(&env, &db)));
    }
    let log = log.or_else(|| begun_logs(&env).pop()).unwrap();
    let image = files(&env.replay(env.log_len(), CrashModel::Kill, 0));
    let bytes = image[&log].clone();
    let all = [Recovery::TolerateTornTail, Recovery::Strict, Recovery::Salvage];
    for pair in states.windows(2) {
        let [(_, before), (end, after)] = pair else { panic!() };
        for (cut, expected, modes) in
            [(*end, after, &all[..]), (*end - 3, before, &[all[0], all[2]])]
        {
            for &recovery in modes {
                let env = copy_of(&image);
                env.set_now(at(0));
                env.write_file(&log, &bytes[..cut]);
                let db = with(&env, recovery).unwrap();
                assert_eq!(both(&env, &db), *expected, "{recovery:?}, {cut} bytes");
                db.put("later", "1").unwrap();
                db.delete("later").unwrap();
                db.flush().unwrap();
                db.close().unwrap();
                let db = with(&env, Recovery::Strict).unwrap();
                assert_eq!(both(&env, &db), *expected, "{recovery:?}, {cut} bytes, flushed");
            }
        }
    }
    assert!(states.iter().any(|(_, (now, later))| now.len() > later.len()), "some expire");
}

#[test]
fn salvage_refuses_an_old_manifest() {
    let env = MemEnv::with_log();
    let db = open(&env, &options()).unwrap();
    db.put("a", "1").unwrap();
    let manifest = |env: &MemEnv| {
        let mut all = files_ending(env, "").into_iter();
        all.rfind(|path| path.to_string_lossy().contains("MANIFEST")).unwrap()
    };
    let short = env.read_file(&manifest(&env)).unwrap();
    db.flush().unwrap();
    db.put("b", "2").unwrap();
    db.close().unwrap();
    drop(db);
    // Cut between two records, the manifest looks whole. It does not name the table with "a".
    env.write_file(&manifest(&env), &short);
    let before = files(&env);
    for recovery in [Recovery::default(), Recovery::Strict, Recovery::Salvage] {
        let error = with(&env, recovery).unwrap_err();
        assert!(error.is_corruption(), "{error}");
        assert!(files(&env) == before);
    }
}

/// Once it opened as an empty database, and the tables would have been removed as obsolete.
#[test]
fn a_cut_manifest_without_logs_is_refused() {
    let env = MemEnv::with_log();
    let db = open(&env, &options()).unwrap();
    db.put("a", "1").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    drop(db);
    for log in begun_logs(&env) {
        env.remove_file(&log);
    }
    let is_manifest = |path: &PathBuf| path.to_string_lossy().contains("MANIFEST");
    let manifest = files_ending(&env, "").into_iter().rfind(is_manifest).unwrap();
    let whole = env.read_file(&manifest).unwrap();
    for cut in 0..=whole.len() {
        env.write_file(&manifest, &whole[..cut]);
        let before = files(&env);
        for recovery in [Recovery::default(), Recovery::Strict] {
            assert!(with(&env, recovery).is_err(), "cut to {cut} of {} bytes", whole.len());
        }
        let looked = options().env(as_env(&env)).open_read_only(HOME);
        assert!(looked.is_err(), "cut to {cut} of {} bytes", whole.len());
        assert!(files(&env) == before);
    }
}

#[test]
fn a_crashed_salvage_loses_nothing() {
    let (env, log, ends) = killed();
    let mut damaged = env.read_file(&log).unwrap();
    damaged[ends[4] - 4] ^= 0x40;
    let start = MemEnv::with_log();
    for (path, bytes) in files(&env) {
        start.write_file(&path, &bytes);
    }
    start.write_file(&log, &damaged);
    let before = start.log_len();
    let expected = {
        let db = with(&start, Recovery::Salvage).unwrap();
        let found = batches(&db);
        db.close().unwrap();
        found
    };
    for call in before..=start.log_len() {
        for (model, seed) in
            [(CrashModel::Kill, 0), (CrashModel::Journal, 1), (CrashModel::Posix, 0)]
        {
            let crashed = start.replay(call, model, seed);
            let kept = crashed.list_files().into_iter().any(|path| {
                path.file_name() == log.file_name()
                    && crashed.read_file(&path).as_ref() == Some(&damaged)
            });
            assert!(kept, "{call} {model:?}: the damaged log is nowhere");
            let options = options().recovery(Recovery::Salvage).env(as_env(&crashed));
            let db = options.open(HOME).unwrap_or_else(|e| panic!("{call} {model:?}: {e}"));
            assert_eq!(batches(&db), expected, "{call} {model:?}");
        }
    }
}

/// A log that was made ahead of need and never begun: no reader of logs takes it for a loss.
#[test]
fn a_log_made_ahead_is_no_loss() {
    let env = MemEnv::new();
    let small = options().write_buffer_bytes(64 << 10);
    let db = open(&env, &small).unwrap();
    for number in 0..180u64 {
        db.put(format!("key{number:04}"), bytes(number, 200)).unwrap();
    }
    until("made ahead", || files_ending(&env, ".wal").len() == 2);
    let expected = scan(&db).unwrap();
    let killed = files(&env);
    let damage_of = |db: &Db| db.verify(|_| ()).unwrap().damage;
    assert!(damage_of(&db).is_empty());
    for recovery in [Recovery::Strict, Recovery::TolerateTornTail, Recovery::Salvage] {
        let copy = copy_of(&killed);
        let only_read = small.clone().recovery(recovery).env(as_env(&copy)).open_read_only(HOME);
        let only_read = only_read.unwrap();
        assert!(only_read.recovery_report().is_complete());
        assert_eq!(scan(&only_read).unwrap(), expected);
        drop(only_read);
        let follower = small.clone().env(as_env(&copy)).open_follower(HOME).unwrap();
        assert_eq!(scan(&follower.keyspace("default").unwrap()).unwrap(), expected);
        drop(follower);
        let db = open(&copy, &small.clone().recovery(recovery)).unwrap();
        assert!(db.recovery_report().is_complete(), "{recovery:?}");
        assert_eq!(scan(&db).unwrap(), expected);
        assert!(damage_of(&db).is_empty());
        db.close().unwrap();
        assert_eq!(files_ending(&copy, ".wal").len(), 1, "it is removed");
    }
    let copy = copy_of(&killed);
    let (newest, mut text) = (files_ending(&copy, ".wal").pop().unwrap(), Vec::new());
    inspect::dump(&as_env(&copy), &newest, &DumpOptions::default(), &mut text).unwrap();
    assert!(String::from_utf8(text).unwrap().contains("0 B, no header: the file is empty"));
    let report = small.clone().env(as_env(&copy)).repair(HOME).unwrap();
    assert!(report.dropped.is_empty() && report.missing.is_empty(), "{report}");
    assert_eq!(scan(&open(&copy, &small).unwrap()).unwrap(), expected);
}
