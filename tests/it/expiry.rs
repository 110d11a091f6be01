//! Expiry: entries are gone from their time on, for every read, and what they hide stays hidden.

use crate::support::stores::{HOME, as_env, open, small_options};
use siftdb::env::MemEnv;
use siftdb::{
    Db, Error, ExplainOutcome, Key, KeyspaceOptions, Options, Snapshot, Value, WriteBatch,
    WriteOptions,
};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time that is `seconds` after the start of a test.
fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
}

fn disk(seconds: u64) -> MemEnv {
    let env = MemEnv::new();
    env.set_now(at(seconds));
    env
}

/// What lives for that many seconds.
fn seconds(seconds: u64) -> WriteOptions {
    WriteOptions::new().expire_after(Duration::from_secs(seconds))
}

/// No worker changes anything.
fn quiet() -> Options {
    small_options().auto_compaction(false)
}

/// The value of `key` by every kind of read, which must agree.
fn read(db: &Db, key: &str) -> Option<String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let got = db.get(key).unwrap().map(|value| text(&value));
    let batch = db.multi_get([key, "absent", key]).unwrap();
    for answer in [&batch[0], &batch[2]] {
        assert_eq!(answer.as_deref().map(text), got, "multi_get");
    }
    assert_eq!(db.contains_key(key).unwrap(), got.is_some(), "contains_key");
    let explained = db.explain(key).unwrap();
    assert_eq!(explained.value.as_deref().map(text), got, "explain");
    let expired = explained.steps.iter().any(|step| step.outcome == ExplainOutcome::Expired);
    let found = explained.steps.iter().any(|step| step.outcome == ExplainOutcome::Found);
    assert!(found == got.is_some() && !(found && expired), "{explained}");
    let snapshot = db.snapshot();
    assert_eq!(snapshot.get(key).unwrap().map(|value| text(&value)), got, "snapshot");
    let entry = |(key, value): (Key, Value)| (text(&key), text(&value));
    let forward: Vec<_> = db.iter().map(|item| entry(item.unwrap())).collect();
    let scanned = forward.iter().find(|(found, _)| found == key).map(|(_, value)| value.clone());
    assert_eq!(scanned, got, "scan");
    let backward = db.iter().rev().map(|item| entry(item.unwrap()));
    assert!(backward.eq(forward.iter().rev().cloned()), "reverse scan");
    let names = forward.iter().map(|(key, _)| key.clone());
    assert!(db.iter().keys().map(|key| text(&key.unwrap())).eq(names), "keys");
    let (mut cursor, mut met) = (db.cursor(), Vec::new());
    while cursor.next().unwrap() {
        let (key, value) = cursor.entry().unwrap();
        met.push((text(key), text(value)));
    }
    assert_eq!(met, forward, "cursor");
    while cursor.prev().unwrap() {
        let (key, value) = cursor.entry().unwrap();
        assert_eq!(met.pop(), Some((text(key), text(value))), "cursor back");
    }
    assert_eq!(cursor.seek(key).unwrap() && cursor.key() == Some(key.as_bytes()), got.is_some());
    got
}

fn snapshot_read(snapshot: &Snapshot, key: &str) -> Option<Vec<u8>> {
    snapshot.get(key).unwrap().map(|value| value.into_vec())
}

#[test]
fn entries_are_gone_at_their_time() {
    for flush in [false, true] {
        let env = disk(0);
        let db = open(&env, &quiet()).unwrap();
        db.put("stays", "for ever").unwrap();
        db.put_with("short", "1", &seconds(10)).unwrap();
        db.put_with("long", "v".repeat(300), &seconds(20)).unwrap();
        db.put_with("at", "", &WriteOptions::new().expire_at(at(15))).unwrap();
        if flush {
            db.flush().unwrap();
        }
        for (time, gone) in [(0, 0), (9, 0), (10, 1), (14, 1), (15, 2), (20, 3), (12, 1)] {
            env.set_now(at(time));
            let there = |key: &str| read(&db, key).is_some();
            let keys = ["short", "at", "long"];
            assert_eq!(keys.map(there), [gone < 1, gone < 2, gone < 3], "{flush} at {time}");
            assert!(there("stays"));
        }
        assert_eq!(read(&db, "long").unwrap(), "v".repeat(300));
    }
}

#[test]
fn expired_entries_hide_older_versions() {
    for flushes in 0..4 {
        let env = disk(0);
        let db = open(&env, &quiet()).unwrap();
        db.put("key", "old").unwrap();
        if flushes & 1 > 0 {
            db.flush().unwrap();
        }
        let before = db.snapshot();
        db.put_with("key", "new", &seconds(5)).unwrap();
        if flushes & 2 > 0 {
            db.flush().unwrap();
        }
        assert_eq!(read(&db, "key").as_deref(), Some("new"));
        env.set_now(at(5));
        assert_eq!(read(&db, "key"), None, "{flushes}");
        assert!(!db.may_contain("key").unwrap() || flushes & 2 > 0);
        // What was there before the expiring write stays, for those who look there.
        assert_eq!(snapshot_read(&before, "key").unwrap(), b"old");
    }
}

#[test]
fn a_scan_goes_by_one_time() {
    let env = disk(0);
    let db = open(&env, &quiet()).unwrap();
    for key in ["a", "b", "c", "d"] {
        db.put_with(key, key.repeat(40), &seconds(5)).unwrap();
    }
    let mut iter = db.iter();
    let mut cursor = db.cursor();
    assert!(cursor.next().unwrap());
    assert_eq!(iter.next().unwrap().unwrap().0, "a");
    env.set_now(at(5));
    assert_eq!(iter.next_back().unwrap().unwrap().1, *"d".repeat(40));
    assert_eq!(iter.map(|item| item.unwrap().0).collect::<Vec<_>>(), ["b", "c"]);
    assert!(cursor.seek_to_last().unwrap() && cursor.prev().unwrap());
    assert_eq!(cursor.key(), Some(&b"c"[..]));
    assert_eq!(db.iter().count(), 0);
}

#[test]
fn snapshots_lose_entries_by_expiry_alone() {
    let env = disk(0);
    let db = open(&env, &quiet()).unwrap();
    db.put_with("key", "value", &seconds(5)).unwrap();
    let snapshot = db.snapshot();
    db.put_with("key", "later", &seconds(50)).unwrap();
    assert_eq!(snapshot_read(&snapshot, "key").unwrap(), b"value");
    env.set_now(at(5));
    assert_eq!(snapshot_read(&snapshot, "key"), None);
    assert_eq!(read(&db, "key").as_deref(), Some("later"));
}

#[test]
fn puts_expire_as_their_keyspace_says() {
    let env = disk(0);
    let db = open(&env, &quiet()).unwrap();
    let minute = KeyspaceOptions::new().expire_after(Duration::from_secs(60));
    let sessions = db.keyspace_with("sessions", &minute).unwrap();
    let mut batch = WriteBatch::new();
    batch.put("user", "stays").in_keyspace(&sessions).put("session", "goes").delete("other");
    db.write(batch.clone()).unwrap();
    sessions.put_with("kept", "1", &WriteOptions::new().expire_after(Duration::MAX)).unwrap();
    sessions.put_with("short", "1", &seconds(1)).unwrap();
    env.set_now(at(59));
    assert_eq!(sessions.get("session").unwrap().unwrap(), "goes");
    assert_eq!(sessions.get("short").unwrap(), None);
    env.set_now(at(60));
    assert_eq!(sessions.get("session").unwrap(), None);
    assert_eq!(sessions.get("kept").unwrap().unwrap(), "1");
    assert_eq!(db.get("user").unwrap().unwrap(), "stays");
    // Options of the call go before the setting, in every keyspace of the batch.
    db.write_with(batch, &seconds(1)).unwrap();
    env.set_now(at(61));
    assert_eq!((db.get("user").unwrap(), sessions.get("session").unwrap()), (None, None));
}

#[test]
fn settings_concern_later_writes_only() {
    let env = disk(0);
    let after = |seconds| KeyspaceOptions::new().expire_after(Duration::from_secs(seconds));
    let times = [10, 100, u64::MAX / 2_000];
    for (n, time) in times.into_iter().enumerate() {
        let db = open(&env, &quiet().default_keyspace(&after(time))).unwrap();
        db.put(format!("{n}"), "value").unwrap();
        db.close().unwrap();
    }
    // Saved with the keyspace.
    let db = open(&env, &quiet()).unwrap();
    db.put("3", "value").unwrap();
    for (seconds, there) in [(9, 4), (10, 3), (99, 3), (100, 2), (1_000_000, 2)] {
        env.set_now(at(seconds));
        let keys = ["0", "1", "2", "3"];
        let found = keys.iter().filter(|key| read(&db, key).is_some()).count();
        assert_eq!(found, there, "at {seconds}");
    }
}

#[test]
fn impossible_times_are_refused_or_never_come() {
    let env = disk(0);
    let db = open(&env, &quiet()).unwrap();
    db.put("key", "old").unwrap();
    let beyond = UNIX_EPOCH + Duration::from_millis(u64::MAX) + Duration::from_millis(1);
    let refused = db.put_with("key", "new", &WriteOptions::new().expire_at(beyond));
    assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
    assert_eq!(read(&db, "key").as_deref(), Some("old"));
    let never = db.keyspace_with("zero", &KeyspaceOptions::new().expire_after(Duration::ZERO));
    assert!(matches!(never, Err(Error::InvalidOptions { .. })), "{never:?}");

    db.put_with("late", "1", &WriteOptions::new().expire_after(Duration::MAX)).unwrap();
    let last = beyond - Duration::from_millis(1);
    db.put_with("last", "1", &WriteOptions::new().expire_at(last)).unwrap();
    env.set_now(last - Duration::from_millis(1));
    assert!(read(&db, "late").is_some() && read(&db, "last").is_some());
    env.set_now(beyond);
    assert!(read(&db, "late").is_some() && read(&db, "last").is_none());

    // Zero and the past: written, and at once expired.
    let past = WriteOptions::new().expire_at(UNIX_EPOCH - Duration::from_secs(9));
    for options in [seconds(0), past] {
        db.put("key", "old").unwrap();
        db.put_with("key", "new", &options).unwrap();
        assert_eq!(read(&db, "key"), None);
    }
}

#[test]
fn reopening_keeps_the_times_of_entries() {
    for closed in [false, true] {
        let env = disk(0);
        let db = open(&env, &quiet()).unwrap();
        db.put("key", "old").unwrap();
        db.put_with("key", "new", &seconds(10)).unwrap();
        db.put_with("tabled", "1", &seconds(10)).unwrap();
        db.flush().unwrap();
        db.put_with("logged", "1", &seconds(10).sync(true)).unwrap();
        if closed {
            db.close().unwrap();
        }
        drop(db);
        // A recovery that computed times again would add ten seconds to this one.
        env.set_now(at(9));
        let db = open(&env, &quiet()).unwrap();
        assert!(["key", "tabled", "logged"].map(|key| read(&db, key).is_some()) == [true; 3]);
        env.set_now(at(10));
        assert!(["key", "tabled", "logged"].map(|key| read(&db, key).is_none()) == [true; 3]);
    }
}

#[test]
fn repair_keeps_the_times_of_entries() {
    let env = disk(0);
    let db = open(&env, &quiet()).unwrap();
    db.put("key", "old").unwrap();
    db.flush().unwrap();
    db.put_with("key", "new", &seconds(10)).unwrap();
    db.flush().unwrap();
    db.put_with("logged", "1", &seconds(10).sync(true)).unwrap();
    drop(db);
    let manifests = env.list_files().into_iter().filter(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("MANIFEST"))
    });
    manifests.for_each(|path| env.remove_file(&path));
    env.set_now(at(9));
    quiet().env(as_env(&env)).repair(HOME).unwrap();
    let db = open(&env, &quiet()).unwrap();
    assert_eq!(read(&db, "key").as_deref(), Some("new"));
    assert_eq!(read(&db, "logged").as_deref(), Some("1"));
    assert!(db.verify(|_| {}).unwrap().is_sound());
    env.set_now(at(10));
    assert_eq!((read(&db, "key"), read(&db, "logged")), (None, None));
}
