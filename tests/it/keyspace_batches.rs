//! Batches that create and drop keyspaces: one step for every read, every crash, every follower.

use crate::support::model::Map;
use crate::support::reads::{Contents, all_keyspaces};
use crate::support::rng::seeds;
use crate::support::run::MODELS;
use crate::support::stores::{HOME, as_env, begun_logs, name, open, scan, small_options, until};
use siftdb::env::MemEnv;
use siftdb::env::testing::{Calls, CrashModel, EIO, ENOSPC, Fault, FaultEnv, FaultKind};
use siftdb::inspect::{self, DumpOptions};
use siftdb::{
    CompactionDecision, CompactionFilter, Db, Error, Filter, Keyspace, KeyspaceOptions, Result,
    Snapshot, WriteBatch, WriteOptions,
};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

fn key(number: usize) -> Vec<u8> {
    format!("key{number:03}").into_bytes()
}

/// Entries of a keyspace, some of them only in logs.
fn fill(db: &Db, name: &str, round: usize) -> Map {
    let keyspace = db.keyspace(name).unwrap();
    let entry = |n| (key(n), format!("{name} {round} {n}").into_bytes());
    let entries: Map = (0..60).map(entry).collect();
    for (n, (key, value)) in entries.iter().enumerate() {
        keyspace.put(key, value).unwrap();
        if n == 30 {
            keyspace.flush().unwrap();
        }
    }
    entries
}

/// A batch that moves the entries of keyspace `from` to a new one, and writes elsewhere too.
fn migration(db: &Db, from: &str, to: &str) -> Result<WriteBatch> {
    let old = db.keyspace(from)?;
    let mut batch = WriteBatch::new();
    batch.put("version", to).delete_range("old".."olf").put("oldest", to);
    let mut new = batch.create_keyspace(to, &KeyspaceOptions::new().filter(Filter::ribbon(12.0)));
    new.put("gone", "too early").delete("gone");
    for entry in old.iter() {
        let (key, value) = entry?;
        new.put(&key, [&value[..], b"!"].concat());
    }
    batch.in_keyspace(&db.keyspace("log")?).put(to, from);
    batch.drop_keyspace(from);
    Ok(batch)
}

/// What is there before the migration, and after it.
fn both_states(db: &Db) -> (Contents, Contents) {
    db.put("old", "1").unwrap();
    db.put("stays", "2").unwrap();
    db.keyspace("log").unwrap();
    let entries = fill(db, "v1", 1);
    let before = all_keyspaces(db, ["absent"], "before");
    let mut after = before.clone();
    after.remove("v1");
    let moved = |(key, value): (Vec<u8>, Vec<u8>)| (key, [&value[..], b"!"].concat());
    after.insert("v2".into(), entries.into_iter().map(moved).collect());
    after.get_mut("log").unwrap().insert(b"v2".to_vec(), b"v1".to_vec());
    let default = after.get_mut("default").unwrap();
    default.remove(&b"old"[..]);
    default.insert(b"version".to_vec(), b"v2".to_vec());
    default.insert(b"oldest".to_vec(), b"v2".to_vec());
    (before, after)
}

/// No log has the entries of such a batch. If the manifest loses its edit, a later log says so.
#[test]
fn a_lost_edit_of_a_batch_is_damage() {
    let env = MemEnv::with_log();
    let db = open(&env, &small_options().auto_compaction(false)).unwrap();
    db.put("stays", "1").unwrap();
    let mut batch = WriteBatch::new();
    batch.create_keyspace("v2", &KeyspaceOptions::new()).put("k", "2");
    db.write(batch).unwrap();
    db.put("later", "write").unwrap();
    db.sync().unwrap();
    let killed = env.replay(env.log_len(), CrashModel::Kill, 0);
    let mut manifests = killed.list_files();
    manifests.retain(|path| name(path).starts_with("MANIFEST"));
    let [manifest] = &manifests[..] else { panic!("{manifests:?}") };
    // Between two edits, so the manifest itself is in order.
    let bytes = killed.read_file(manifest).unwrap();
    killed.write_file(manifest, &bytes[..begin_of_edit(&killed, manifest, "\"v2\"")]);
    let refused = open(&killed, &small_options()).unwrap_err();
    assert!(refused.to_string().contains("of it were durable"), "{refused}");
}

/// Where the first edit begins that names `what`.
fn begin_of_edit(env: &MemEnv, manifest: &Path, what: &str) -> usize {
    let mut text = Vec::new();
    inspect::dump(&as_env(env), manifest, &DumpOptions::default(), &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let before = text.lines().take_while(|line| !line.contains(what));
    let edit = before.filter(|line| line.contains("  edit ")).last();
    edit.and_then(|line| line.split_whitespace().next()).unwrap().parse().unwrap()
}

#[test]
fn a_migration_is_there_after_reopening() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    let (_, after) = both_states(&db);
    let old = db.keyspace("v1").unwrap();
    db.write(migration(&db, "v1", "v2").unwrap()).unwrap();
    assert_eq!(all_keyspaces(&db, ["absent"], "at once"), after);
    assert!(matches!(old.get("a"), Err(Error::KeyspaceDropped { name }) if name == "v1"));
    let settings = db.keyspace("v2").unwrap().settings();
    assert_eq!(settings, KeyspaceOptions::new().filter(Filter::ribbon(12.0)));
    // Later writes are newer, and earlier ones older.
    db.keyspace("v2").unwrap().put(key(1), "later").unwrap();
    db.close().unwrap();
    drop((old, db));
    let db = open(&env, &small_options()).unwrap();
    assert_eq!(db.keyspace("v2").unwrap().get(key(1)).unwrap().unwrap(), "later");
    db.keyspace("v2").unwrap().put(key(1), "v1 1 1!").unwrap();
    assert_eq!(all_keyspaces(&db, ["absent"], "reopened"), after);
    for keyspace in db.keyspaces() {
        db.keyspace(&keyspace).unwrap().compact_range(..).unwrap();
    }
    assert_eq!(all_keyspaces(&db, ["absent"], "compacted"), after);
}

#[test]
fn every_crash_leaves_a_migration_whole_or_not_at_all() {
    for seed in seeds(3) {
        let env = MemEnv::with_log();
        let db = open(&env, &small_options()).unwrap();
        let (before, after) = both_states(&db);
        db.sync().unwrap();
        let begun = env.log_len();
        db.write(migration(&db, "v1", "v2").unwrap()).unwrap();
        let acknowledged = env.log_len();
        db.keyspace("v2").unwrap().put("later", "1").unwrap();
        let (mut found_before, mut found_after) = (0, 0);
        for call in begun..=env.log_len() {
            for model in MODELS {
                let place = format!("SIFTDB_SEED={seed}, call {call}, {model:?}");
                let left = env.replay(call, model, seed);
                let follower = small_options().env(as_env(&left)).open_follower(HOME);
                let moment = follower.unwrap_or_else(|error| panic!("{place}: {error}")).moment();
                let follows = without_later(&moment, &place);
                drop(moment);
                let db = open(&left, &small_options())
                    .unwrap_or_else(|error| panic!("{place}: {error}"));
                let found = without_later(&db, &place);
                assert_eq!(follows, found, "{place}: a follower");
                match found == after {
                    true => found_after += 1,
                    false => found_before += 1,
                }
                assert!(found == after || found == before && call < acknowledged, "{place}");
                // What is written now is newer than what may have been lost.
                for name in db.keyspaces() {
                    db.keyspace(&name).unwrap().put(key(1), "newest").unwrap();
                }
                db.close().unwrap();
                drop(db);
                let db = open(&left, &small_options()).unwrap();
                for name in db.keyspaces() {
                    let found = db.keyspace(&name).unwrap().get(key(1)).unwrap();
                    assert_eq!(found.unwrap(), "newest", "{place}");
                }
            }
        }
        assert!(found_before > 10 && found_after > 10, "{found_before} and {found_after}");
    }
}

fn without_later(db: &Db, place: &str) -> Contents {
    let mut found = all_keyspaces(db, ["absent"], place);
    if let Some(new) = found.get_mut("v2") {
        new.remove(&b"later"[..]);
    }
    found
}

/// Fails each call of a migration in a run of its own. Returns how many runs failed, how many of
/// them left the database as it was, and how many could resume.
fn fail_each(fault: Fault) -> [usize; 3] {
    let mut counts = [0; 3];
    for n in 0.. {
        let disk = MemEnv::new();
        let env = FaultEnv::new(as_env(&disk));
        let db = small_options().env(Arc::new(env.clone())).open(HOME).unwrap();
        let (before, after) = both_states(&db);
        let batch = migration(&db, "v1", "v2").unwrap();
        let place = format!("change {n}, {fault:?}");
        env.fail_at(env.calls_of(Calls::Changes) + n, fault.among(Calls::Changes));
        let answer = db.write(batch);
        if !env.has_fired() {
            answer.unwrap();
            break;
        }
        env.heal();
        let mut expected = if answer.is_ok() { after.clone() } else { before };
        assert_eq!(all_keyspaces(&db, ["absent"], &place), expected, "{place}: {answer:?}");
        let takes_writes = db.put("more", "1").is_ok();
        let resumes = !takes_writes && db.resume().is_ok();
        counts[0] += 1;
        counts[1] += usize::from(takes_writes);
        counts[2] += usize::from(resumes);
        if takes_writes || resumes {
            db.put("more", "1").unwrap();
            if answer.is_err() {
                db.write(migration(&db, "v1", "v2").unwrap()).unwrap();
            }
            expected = after.clone();
            expected.get_mut("default").unwrap().insert(b"more".to_vec(), b"1".to_vec());
            assert_eq!(all_keyspaces(&db, ["absent"], &place), expected, "{place}");
        }
        drop(db);
        let db = open(&disk, &small_options()).unwrap_or_else(|error| panic!("{place}: {error}"));
        let found = all_keyspaces(&db, ["absent"], &place);
        assert!(found == expected || found == after && answer.is_err(), "{place}");
    }
    counts
}

#[test]
fn failed_migrations_appear_whole_or_not_at_all() {
    let [failed, unchanged, _] = fail_each(Fault::once(FaultKind::Error(EIO)));
    assert!(failed > 15 && unchanged > 2, "{failed} failed, {unchanged} left it as it was");
    let [failed, _, resumed] = fail_each(Fault::from_then_on(FaultKind::Error(ENOSPC)));
    assert!(failed > 15 && resumed > 5, "{failed} failed, {resumed} resumed");
}

#[derive(Debug)]
struct KeepAll;

impl CompactionFilter for KeepAll {
    fn name(&self) -> &str {
        "keep all"
    }

    fn filter(&self, _: &[u8], _: &[u8]) -> CompactionDecision {
        CompactionDecision::Keep
    }
}

/// Fills a batch that is refused.
type Fill<'a> = &'a dyn Fn(&mut WriteBatch);

#[test]
fn refused_batches_change_nothing() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    let (before, _) = both_states(&db);
    let none = KeyspaceOptions::new();
    let v1 = db.keyspace("v1").unwrap();
    let filtered = none.clone().compaction_filter(Arc::new(KeepAll));
    let refused: [(&str, Fill<'_>); 10] = [
        ("there already", &|batch| _ = batch.create_keyspace("log", &none)),
        ("no keyspace \"v9\"", &|batch| _ = batch.drop_keyspace("v9")),
        ("cannot be dropped", &|batch| _ = batch.drop_keyspace("default")),
        ("creates and drops", &|batch| {
            batch.create_keyspace("v2", &none);
            batch.drop_keyspace("v2");
        }),
        ("creates and drops", &|batch| {
            batch.drop_keyspace("v1").create_keyspace("v1", &none);
        }),
        ("and drops it", &|batch| {
            batch.in_keyspace(&v1).put("a", "1");
            batch.drop_keyspace("v1");
        }),
        ("not a keyspace", &|batch| _ = batch.create_keyspace("", &none)),
        ("two settings", &|batch| {
            batch.create_keyspace("v2", &none).put("a", "1");
            batch.create_keyspace("v2", &none.clone().snappy(false));
        }),
        ("block_bytes", &|batch| _ = batch.create_keyspace("v2", &none.clone().block_bytes(1))),
        ("compaction filter", &|batch| _ = batch.create_keyspace("v2", &filtered)),
    ];
    for (why, fill) in refused {
        let mut batch = WriteBatch::new();
        batch.put("version", "v2");
        fill(&mut batch);
        let error = db.write(batch).expect_err(why);
        assert!(error.to_string().contains(why), "{why:?}: {error}");
        assert_eq!(all_keyspaces(&db, ["absent"], why), before, "{why}");
    }
    // A call with the same name and settings goes on with the same keyspace.
    let mut batch = WriteBatch::new();
    batch.create_keyspace("v2", &none).put("a", "1");
    batch.drop_keyspace("v1").drop_keyspace("v1").put("version", "v2");
    let mut more = WriteBatch::new();
    more.create_keyspace("v2", &none).put("b", "2");
    more.create_keyspace("empty", &none);
    batch.append(&more);
    assert_eq!((batch.len(), batch.iter().count(), batch.is_empty()), (3, 3, false));
    db.write(batch.clone()).unwrap();
    assert_eq!(db.keyspaces(), ["default", "log", "v2", "empty"]);
    assert_eq!(scan(&db.keyspace("v2").unwrap()).unwrap().len(), 2);
    assert!(db.write(batch).is_err());
    db.close().unwrap();
    let mut batch = WriteBatch::new();
    batch.drop_keyspace("v2");
    assert!(matches!(db.write(batch), Err(Error::Closed)));
}

#[test]
fn entries_of_created_keyspaces_expire() {
    let env = MemEnv::new();
    env.set_now(UNIX_EPOCH + Duration::from_secs(100));
    let db = open(&env, &small_options()).unwrap();
    let mut batch = WriteBatch::new();
    let minute = KeyspaceOptions::new().expire_after(Duration::from_secs(60));
    let hour = WriteOptions::new().expire_after(Duration::from_secs(3600));
    batch.create_keyspace("v2", &minute).put("minute", "1").put_with("hour", "2", &hour);
    batch.put("ever", "3").put_with("default's hour", "4", &hour);
    db.write(batch).unwrap();
    let v2 = db.keyspace("v2").unwrap();
    assert_eq!((v2.iter().count(), db.iter().count()), (2, 2));
    env.set_now(UNIX_EPOCH + Duration::from_secs(161));
    assert_eq!((v2.iter().count(), db.iter().count()), (1, 2));
    env.set_now(UNIX_EPOCH + Duration::from_secs(3701));
    assert_eq!((v2.iter().count(), db.iter().count()), (0, 1));
}

#[test]
fn transactions_conflict_with_migrations() {
    let db = open(&MemEnv::new(), &small_options()).unwrap();
    both_states(&db);
    let (log, v1) = (db.keyspace("log").unwrap(), db.keyspace("v1").unwrap());
    let begin = |read: &dyn Fn(&siftdb::Transaction)| {
        let tx = db.transaction();
        read(&tx);
        tx.put("written", "1").unwrap();
        tx
    };
    let refused = [
        begin(&|tx| assert!(tx.get("version").unwrap().is_none())),
        begin(&|tx| assert!(tx.range("v".."w").next().is_none())),
        begin(&|tx| assert!(tx.get("old").unwrap().is_some())),
        begin(&|tx| assert!(tx.in_keyspace(&log).get("v2").unwrap().is_none())),
        begin(&|tx| assert!(tx.in_keyspace(&v1).get(key(1)).unwrap().is_some())),
    ];
    let accepted = begin(&|tx| assert!(tx.get("stays").unwrap().is_some()));
    db.write(migration(&db, "v1", "v2").unwrap()).unwrap();
    db.put("besides", "1").unwrap();
    for (place, tx) in refused.into_iter().enumerate() {
        let answer = tx.commit();
        assert!(matches!(answer, Err(Error::Conflict { .. })), "{place}: {answer:?}");
    }
    accepted.commit().unwrap();
}

#[test]
fn batches_that_only_fill_new_keyspaces_keep_no_logs() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    db.put("a", "1").unwrap();
    db.flush().unwrap();
    for number in 0..200 {
        let mut batch = WriteBatch::new();
        batch.create_keyspace(&number.to_string(), &KeyspaceOptions::new()).put("a", "1");
        db.write(batch).unwrap();
    }
    // No memtable needs the two that each batch began.
    until("one log", || begun_logs(&env).len() == 1);
}

/// Rarely fails where it should, unless something waits between the two steps of the writer.
#[test]
fn the_list_of_keyspaces_is_not_behind_a_read() {
    let db = open(&MemEnv::new(), &small_options()).unwrap();
    db.keyspace("0").unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..100 {
                let mut batch = WriteBatch::new();
                batch.create_keyspace(&round.to_string(), &KeyspaceOptions::new());
                batch.drop_keyspace(&(round - 1).to_string()).put("version", round.to_string());
                db.write(batch).unwrap();
            }
            done.store(true, Ordering::SeqCst);
        });
        while !done.load(Ordering::SeqCst) {
            let number = |text: &str| text.parse::<usize>().ok();
            let version = db.get("version").unwrap();
            let version =
                version.map_or(0, |text| number(std::str::from_utf8(&text).unwrap()).unwrap());
            let names = db.keyspaces();
            let listed = names.iter().filter_map(|name| number(name)).max();
            assert!(listed >= Some(version), "{version} was read, then {names:?} was listed");
        }
    });
}

#[test]
fn snapshots_show_migrations_always_or_never() {
    let db = open(&MemEnv::new(), &small_options()).unwrap();
    let log = db.keyspace("log").unwrap();
    fill(&db, "0", 0);
    let handles: Mutex<Vec<Keyspace>> = Mutex::new(vec![db.keyspace("0").unwrap()]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..30 {
                let (from, to) = (round.to_string(), (round + 1).to_string());
                db.write(migration(&db, &from, &to).unwrap()).unwrap();
                handles.lock().unwrap().push(db.keyspace(&to).unwrap());
                log.put("beside", &to).unwrap();
            }
            done.store(true, Ordering::SeqCst);
        });
        let mut seen = 0;
        while !done.load(Ordering::SeqCst) {
            let names = db.keyspaces();
            let versions = names.iter().filter(|name| name.parse::<usize>().is_ok());
            assert_eq!(versions.count(), 1, "one list: {names:?}");
            let snapshot = db.snapshot();
            let version = snapshot.get("version").unwrap();
            let version = version
                .map_or(0, |text| std::str::from_utf8(&text).unwrap().parse::<usize>().unwrap());
            let logged = snapshot.in_keyspace(&log).iter().map(|entry| entry.unwrap().0);
            assert_eq!(logged.filter(|key| key != "beside").count(), version);
            for (number, handle) in handles.lock().unwrap().iter().enumerate() {
                let found = scan_of(&snapshot.in_keyspace(handle));
                match number.cmp(&version) {
                    std::cmp::Ordering::Less => {
                        assert!(matches!(found, Err(Error::KeyspaceDropped { .. })), "{number}");
                    }
                    std::cmp::Ordering::Equal => assert_eq!(found.unwrap(), 60, "{number}"),
                    std::cmp::Ordering::Greater => assert_eq!(found.unwrap(), 0, "{number}"),
                }
            }
            seen += 1;
        }
        assert!(seen > 0);
    });
}

fn scan_of(snapshot: &Snapshot) -> Result<usize> {
    snapshot.iter().try_fold(0, |count, entry| entry.map(|_| count + 1))
}

/// A batch that puts the number of the round and drops 500 keyspaces; with the last of these. So
/// many drops take some time, in which others can read.
fn many_drops(db: &Db, round: usize) -> (Keyspace, WriteBatch) {
    let (mut create, mut migrate) = (WriteBatch::new(), WriteBatch::new());
    let names: Vec<_> = (0..500).map(|n| format!("{round}-{n:03}")).collect();
    for name in &names {
        create.create_keyspace(name, &KeyspaceOptions::new()).put("k", "v");
        migrate.drop_keyspace(name);
    }
    migrate.put("round", round.to_string());
    db.write(create).unwrap();
    (db.keyspace(&names[499]).unwrap(), migrate)
}

/// Calls `is_gone` with the last keyspace and the value of `round` while the others are dropped,
/// until it is true.
fn beside_drops(is_gone: impl Fn(&Db, &Keyspace, &[u8]) -> bool) {
    let db = open(&MemEnv::new(), &small_options()).unwrap();
    for round in 0..5 {
        let (last, migrate) = many_drops(&db, round);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| db.write(migrate).unwrap());
            loop {
                let has_ended = writer.is_finished();
                if is_gone(&db, &last, round.to_string().as_bytes()) {
                    break;
                }
                assert!(!has_ended, "round {round}");
            }
        });
    }
}

#[test]
fn snapshots_beside_many_drops_show_all_or_none() {
    // Their drop would wait until the batch is done.
    let held = Mutex::new(Vec::new());
    beside_drops(|db, last, round| {
        let snapshot = db.snapshot();
        let of_last = snapshot.in_keyspace(last);
        let is_gone = snapshot.get("round").unwrap().as_deref() == Some(round);
        let found = of_last.get("k");
        held.lock().unwrap().extend([snapshot, of_last]);
        match (found, is_gone) {
            (Ok(Some(_)), false) | (Err(Error::KeyspaceDropped { .. }), true) => is_gone,
            (found, _) => panic!("dropped: {is_gone}, {found:?}"),
        }
    });
}

#[test]
fn reads_beside_many_drops_go_one_way() {
    beside_drops(|db, last, round| {
        let is_shown = || db.get("round").unwrap().as_deref() == Some(round);
        let was_shown = is_shown();
        match last.get("k") {
            Ok(Some(_)) => assert!(!was_shown, "dropped, and there"),
            Err(Error::KeyspaceDropped { .. }) => assert!(is_shown(), "dropped too early"),
            found => panic!("{found:?}"),
        }
        was_shown
    });
}
