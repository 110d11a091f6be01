//! Expiry: entries are gone from their time on, for every read, and what they hide stays hidden.

use crate::support::rng::{Rng, seeds, setting};
use crate::support::stores::{HOME, as_env, copy_of, files, files_ending, open, small_options};
use siftdb::env::{Env, EnvLayer, MemEnv};
use siftdb::{
    CompactRangeOptions, CompactionDecision, CompactionFilter, Db, Error, ExplainOutcome, Key,
    KeyspaceOptions, Options, Snapshot, Value, WriteBatch, WriteOptions,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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
fn expiring_entries_over_range_deletes_are_found() {
    for flushes in 0..4 {
        let env = disk(0);
        let db = open(&env, &quiet()).unwrap();
        db.put("key", "old").unwrap();
        db.delete_range("a".."z").unwrap();
        if flushes & 1 > 0 {
            db.flush().unwrap();
        }
        db.put_with("key", "new", &seconds(5)).unwrap();
        if flushes & 2 > 0 {
            db.flush().unwrap();
        }
        assert_eq!(read(&db, "key").as_deref(), Some("new"), "{flushes}");
        env.set_now(at(5));
        assert_eq!(read(&db, "key"), None, "{flushes}");
        db.put_with("key", "newer", &seconds(5)).unwrap();
        db.delete_range("a".."z").unwrap();
        assert_eq!(read(&db, "key"), None, "{flushes}");
    }
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
fn each_put_of_a_batch_has_its_expiry() {
    let env = disk(0);
    let db = open(&env, &quiet()).unwrap();
    let minute = KeyspaceOptions::new().expire_after(Duration::from_secs(60));
    let sessions = db.keyspace_with("sessions", &minute).unwrap();
    let never = WriteOptions::new().expire_after(Duration::MAX);
    let mut batch = WriteBatch::new();
    batch.put("stays", "1").put_with("short", "1", &seconds(10));
    batch.put_with("at", "1", &WriteOptions::new().expire_at(at(20)));
    let mut part = batch.in_keyspace(&sessions);
    part.put("minute", "1").put_with("kept", "1", &never).put_with("short", "1", &seconds(10));
    db.write(batch.clone()).unwrap();
    let there = || {
        let own = ["stays", "short", "at"].map(|key| read(&db, key).is_some());
        let other = ["minute", "kept", "short"].map(|key| sessions.get(key).unwrap().is_some());
        (own, other)
    };
    assert_eq!(there(), ([true; 3], [true; 3]));
    env.set_now(at(10));
    assert_eq!(there(), ([true, false, true], [true, true, false]));
    env.set_now(at(20));
    assert_eq!(there(), ([true, false, false], [true, true, false]));
    env.set_now(at(60));
    assert_eq!(there(), ([true, false, false], [false, true, false]));
    // The options of the write concern entries without a time of their own.
    db.write_with(batch, &seconds(5)).unwrap();
    env.set_now(at(65));
    assert_eq!(there(), ([false, true, false], [false, true, true]));
}

/// A lease in one call, and in a transaction with other writes.
#[test]
fn a_lease_has_one_holder_until_it_expires() {
    let env = disk(0);
    let db = open(&env, &quiet()).unwrap();
    let lease = seconds(30);
    assert!(db.put_if_absent_with("leader", "ada", &lease).unwrap());
    assert!(!db.put_if_absent_with("leader", "bob", &lease).unwrap());
    env.set_now(at(29));
    let ada = Some(&b"ada"[..]);
    assert!(db.compare_exchange_with("leader", ada, ada, &lease).unwrap().is_ok());
    env.set_now(at(58));
    assert!(!db.put_if_absent_with("leader", "bob", &lease).unwrap());
    env.set_now(at(59));
    let late = db.compare_exchange_with("leader", ada, ada, &lease).unwrap();
    assert_eq!(late.unwrap_err(), None);
    let takes = |name: &str| {
        db.transact(|tx| {
            if tx.contains_key("leader")? {
                return Ok(false);
            }
            tx.put("last leader", name)?;
            tx.put_with("leader", name, &lease)?;
            Ok(true)
        })
    };
    assert!(takes("bob").unwrap() && !takes("ada").unwrap());
    env.set_now(at(89));
    assert_eq!((read(&db, "leader"), read(&db, "last leader").unwrap()), (None, "bob".into()));
}

#[test]
fn transactions_see_when_their_puts_expire() {
    let env = disk(10);
    let db = open(&env, &quiet()).unwrap();
    db.put("key", "old").unwrap();
    let tx = db.transaction();
    tx.put_with("key", "new", &WriteOptions::new().expire_at(at(20))).unwrap();
    tx.put_with("other", "1", &seconds(5)).unwrap();
    let refused = tx.put_with("late", "1", &WriteOptions::new().expire_at(at(u64::MAX / 4)));
    assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
    drop(tx);
    let tx = db.transaction();
    tx.put_with("key", "new", &WriteOptions::new().expire_at(at(20))).unwrap();
    tx.put_with("other", "1", &seconds(5)).unwrap();
    assert_eq!(tx.get("key").unwrap().unwrap(), "new");
    env.set_now(at(20));
    assert_eq!(tx.get("key").unwrap(), None);
    let both = tx.multi_get(["key", "other"]).unwrap();
    assert!(both[0].is_none() && both[1].is_some());
    assert_eq!(tx.iter().keys().map(|key| key.unwrap()).collect::<Vec<_>>(), ["other"]);
    tx.commit().unwrap();
    env.set_now(at(24));
    assert_eq!((read(&db, "key"), read(&db, "other").unwrap()), (None, "1".into()));
    env.set_now(at(25));
    assert_eq!(read(&db, "other"), None);
}

/// Each look at this clock moves it on by a second.
#[derive(Debug)]
struct TickingEnv(MemEnv);

impl EnvLayer for TickingEnv {
    fn inner(&self) -> &dyn Env {
        &self.0
    }

    fn now(&self) -> SystemTime {
        let now = Env::now(&self.0);
        self.0.set_now(now + Duration::from_secs(1));
        now
    }
}

/// It once compared what the transaction wrote with one time, and the rest with a later one.
#[test]
fn a_batch_of_a_transaction_goes_by_one_time() {
    let env = disk(10);
    let db = quiet().env(Arc::new(TickingEnv(env.clone()))).open(HOME).unwrap();
    let soon = WriteOptions::new().expire_at(at(20));
    db.put_with("written", "1", &soon).unwrap();
    let tx = db.transaction();
    tx.put_with("own", "1", &soon).unwrap();
    for (now, is_there) in [(18, true), (19, true), (20, false)] {
        env.set_now(at(now));
        let both = tx.multi_get(["own", "written"]).unwrap();
        assert!(both.iter().all(|found| found.is_some() == is_there), "at {now}: {both:?}");
    }
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

/// All tables of the default keyspace, as level and entries.
fn tables(db: &Db) -> Vec<(usize, u64)> {
    db.tables().iter().map(|table| (table.level, table.entries)).collect()
}

fn rewrite(db: &Db) {
    db.compact_range_with(.., &CompactRangeOptions::new().force(true)).unwrap();
}

/// Waits until `done` holds; workers look for expired tables twice a second.
fn wait_until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn compactions_turn_expired_entries_into_tombstones() {
    let env = disk(0);
    let db = open(&env, &quiet()).unwrap();
    for key in ["a", "b", "c"] {
        db.put(key, "old").unwrap();
    }
    db.flush().unwrap();
    rewrite(&db);
    let before = db.snapshot();
    db.put_with("b", "new", &seconds(5)).unwrap();
    db.put_with("d", "new", &seconds(5)).unwrap();
    env.set_now(at(5));
    db.flush().unwrap();
    assert_eq!(tables(&db), [(0, 2), (1, 3)], "a flush writes entries as they are");
    rewrite(&db);
    // The tombstone of `b` hides what the snapshot sees; that of `d` hides nothing for anybody.
    assert_eq!((read(&db, "b"), read(&db, "d")), (None, None));
    assert_eq!(snapshot_read(&before, "b").unwrap(), b"old");
    assert_eq!(db.stats().entries_expired, 2);
    drop(before);
    rewrite(&db);
    assert_eq!((read(&db, "b"), tables(&db)), (None, vec![(1, 2)]));
    // The clock goes back, and nothing comes back.
    env.set_now(at(0));
    assert_eq!((read(&db, "b"), read(&db, "d")), (None, None));
    assert_eq!(read(&db, "a").as_deref(), Some("old"));
    assert!(db.verify(|_| {}).unwrap().is_sound());
}

#[test]
fn the_time_of_removals_never_goes_back() {
    for repaired in [false, true] {
        let env = disk(100);
        let db = open(&env, &quiet()).unwrap();
        db.put_with("first", "1", &seconds(0)).unwrap();
        db.put("stays", "1").unwrap();
        db.flush().unwrap();
        rewrite(&db);
        assert_eq!(db.stats().entries_expired, 1);
        db.close().unwrap();
        drop(db);
        // A day earlier: reads go by the clock, removals by the latest time of a removal.
        env.set_now(at(0));
        if repaired {
            quiet().env(as_env(&env)).repair(HOME).unwrap();
        }
        let db = open(&env, &quiet()).unwrap();
        db.put_with("second", "2", &seconds(50)).unwrap();
        db.put_with("third", "3", &seconds(101)).unwrap();
        db.flush().unwrap();
        assert_eq!(read(&db, "second").as_deref(), Some("2"));
        rewrite(&db);
        assert_eq!(read(&db, "second"), None, "{repaired}");
        assert_eq!(read(&db, "third").as_deref(), Some("3"));
    }
}

#[test]
fn expired_tables_go_unread() {
    let env = disk(0);
    let db = open(&env, &small_options()).unwrap();
    for n in 0..50 {
        db.put_with(format!("key {n}"), "value", &seconds(10)).unwrap();
    }
    db.flush().unwrap();
    wait_until("the table is there", || tables(&db).iter().map(|table| table.1).sum::<u64>() == 50);
    // Its data cannot be read.
    for path in files_ending(&env, ".sst") {
        let mut bytes = env.read_file(&path).unwrap();
        bytes[20..200].fill(0xff);
        env.write_file(&path, &bytes);
    }
    env.set_now(at(10));
    wait_until("the table goes", || tables(&db).is_empty());
    wait_until("its file goes", || files_ending(&env, ".sst").is_empty());
    assert_eq!(db.stats().entries_expired, 50);
    assert!(db.verify(|_| {}).unwrap().is_sound());
    db.put("more", "1").unwrap();
    db.close().unwrap();
}

#[test]
fn tables_that_expired_while_closed_go_after_opening() {
    let env = disk(0);
    let db = open(&env, &quiet()).unwrap();
    for n in 0..50 {
        db.put_with(format!("key {n}"), "value", &seconds(10)).unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
    drop(db);
    env.set_now(at(10));
    let files = env.list_files();
    let db = open(&env, &small_options()).unwrap();
    assert!(read(&db, "key 1").is_none());
    db.close().unwrap();
    // A session that writes nothing changes no file.
    assert_eq!(env.list_files(), files);
    let db = open(&env, &small_options()).unwrap();
    db.put("more", "1").unwrap();
    wait_until("the table goes", || tables(&db).is_empty());
    db.close().unwrap();
}

/// A table with entries that have expired and some that have not was moved down as it was.
#[test]
fn a_compaction_by_hand_removes_what_has_expired() {
    let env = disk(0);
    let db = open(&env, &quiet()).unwrap();
    db.put_with("short", "value", &seconds(10)).unwrap();
    db.put_with("long", "value", &seconds(20)).unwrap();
    db.flush().unwrap();
    env.set_now(at(10));
    db.compact_range(..).unwrap();
    assert_eq!(tables(&db), [(1, 1)]);
    assert_eq!(read(&db, "long").as_deref(), Some("value"));
    env.set_now(at(20));
    db.compact_range(..).unwrap();
    assert_eq!(tables(&db), []);
}

#[test]
fn expired_tables_over_older_versions_are_rewritten() {
    let env = disk(0);
    let db = open(&env, &quiet()).unwrap();
    for n in 0..50 {
        db.put(format!("key {n}"), "old").unwrap();
    }
    db.flush().unwrap();
    rewrite(&db);
    db.close().unwrap();
    drop(db);
    let db = open(&env, &small_options()).unwrap();
    for n in 0..50 {
        db.put_with(format!("key {n}"), "new", &seconds(10)).unwrap();
    }
    db.flush().unwrap();
    env.set_now(at(10));
    wait_until("all tables go", || tables(&db).is_empty());
    assert_eq!(read(&db, "key 7"), None);
}

#[test]
fn damaged_expiring_entries_never_uncover_older_ones() {
    let env = disk(0);
    let db = open(&env, &quiet()).unwrap();
    db.put("key", "old").unwrap();
    db.flush().unwrap();
    rewrite(&db);
    db.put_with("key", "new", &seconds(10)).unwrap();
    db.flush().unwrap();
    db.put_with("logged", "1", &seconds(10)).unwrap();
    db.close().unwrap();
    drop(db);
    let good = files(&env);
    let damaged = ["sst", "wal"].map(|end| files_ending(&env, end).pop().unwrap());
    for path in damaged {
        for place in 0..good[&path].len() {
            let env = copy_of(&good);
            let mut bytes = good[&path].clone();
            bytes[place] ^= 0x11;
            env.write_file(&path, &bytes);
            env.set_now(at(20));
            let Ok(db) = open(&env, &quiet()) else { continue };
            // Gone or an error, but never the old value, nor a value that has expired.
            for key in ["key", "logged"] {
                let found = db.get(key);
                assert!(!matches!(found, Ok(Some(_))), "{path:?} byte {place}: {found:?}");
                let scanned = db.iter().any(|item| item.is_ok_and(|(found, _)| found == *key));
                assert!(!scanned, "{path:?} byte {place}");
            }
        }
    }
}

/// Removes values that begin with `remove`, replaces those that begin with `change`.
#[derive(Debug)]
struct ByValue;

impl CompactionFilter for ByValue {
    fn name(&self) -> &str {
        "test.ByValue"
    }

    fn filter(&self, key: &[u8], value: &[u8]) -> CompactionDecision {
        match value {
            b"panic" => panic!("at key {}", key.escape_ascii()),
            b"nonsense" => CompactionDecision::Replace(vec![0; (1 << 30) + 1]),
            b"remove" => CompactionDecision::Remove,
            b"change" => CompactionDecision::Replace(key.repeat(2)),
            _ => CompactionDecision::Keep,
        }
    }
}

fn filtered() -> Options {
    quiet().compaction_filter(Arc::new(ByValue))
}

#[test]
fn compaction_filters_decide_about_newest_entries() {
    let env = disk(0);
    let db = open(&env, &filtered()).unwrap();
    for key in ["a", "b", "c"] {
        db.put(key, "old").unwrap();
    }
    db.flush().unwrap();
    rewrite(&db);
    db.put("a", "remove").unwrap();
    db.put_with("b", "change", &seconds(10)).unwrap();
    db.put("d", "remove").unwrap();
    db.put_with("e", "panic", &seconds(0)).unwrap();
    db.put("f", "panic").unwrap();
    db.delete("f").unwrap();
    db.flush().unwrap();
    assert_eq!(read(&db, "a").as_deref(), Some("remove"), "a flush asks no filter");
    rewrite(&db);
    assert_eq!((read(&db, "a"), read(&db, "d")), (None, None));
    assert_eq!(read(&db, "b").as_deref(), Some("bb"));
    assert_eq!(read(&db, "c").as_deref(), Some("old"));
    assert_eq!((db.stats().entries_filtered, tables(&db)), (3, vec![(1, 2)]));
    assert!(db.verify(|_| {}).unwrap().is_sound());
    env.set_now(at(10));
    assert_eq!(read(&db, "b"), None, "a replacement keeps its time");
}

#[test]
fn compaction_filters_leave_snapshots_alone() {
    let env = disk(0);
    let db = open(&env, &filtered()).unwrap();
    db.put("a", "remove").unwrap();
    let first = db.snapshot();
    db.put("a", "change").unwrap();
    db.put("b", "remove").unwrap();
    let second = db.snapshot();
    db.put("c", "change").unwrap();
    db.flush().unwrap();
    rewrite(&db);
    assert_eq!(snapshot_read(&first, "a").unwrap(), b"remove");
    assert_eq!(snapshot_read(&second, "a").unwrap(), b"change");
    assert_eq!(snapshot_read(&second, "b").unwrap(), b"remove");
    assert_eq!(read(&db, "c").as_deref(), Some("cc"), "no snapshot sees it");
    drop((first, second));
    rewrite(&db);
    assert_eq!(read(&db, "a").as_deref(), Some("aa"));
    assert_eq!(read(&db, "b"), None);
    // A removal in a keyspace with older versions below leaves a tombstone.
    db.put("c", "remove").unwrap();
    db.flush().unwrap();
    rewrite(&db);
    assert_eq!(read(&db, "c"), None);
}

#[test]
fn failing_compaction_filters_change_nothing() {
    for (value, what) in [("panic", "panicked: at key k"), ("nonsense", "1073741825 bytes")] {
        let env = disk(0);
        let db = open(&env, &filtered()).unwrap();
        db.put("k", value).unwrap();
        db.put("other", "remove").unwrap();
        db.flush().unwrap();
        let before = tables(&db);
        let all = CompactRangeOptions::new().force(true);
        let error = db.compact_range_with(.., &all).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("test.ByValue") && text.contains(what), "{text}");
        let Err(Error::ReadOnly { cause }) = db.put("more", "1") else { panic!("it takes writes") };
        assert!(matches!(*cause, Error::CompactionFilter { .. }), "{cause}");
        assert_eq!(read(&db, "k").as_deref(), Some(value));
        assert_eq!((read(&db, "other").as_deref(), tables(&db)), (Some("remove"), before));
        drop(db);
        let db = open(&env, &quiet()).unwrap();
        rewrite(&db);
        assert_eq!(read(&db, "k").as_deref(), Some(value), "without the filter");
    }
}

#[test]
fn another_compaction_filter_of_an_open_keyspace_is_refused() {
    let env = disk(0);
    let db = open(&env, &quiet()).unwrap();
    let with = |filter| KeyspaceOptions::new().compaction_filter(filter);
    let own: Arc<dyn CompactionFilter> = Arc::new(ByValue);
    let keyspace = db.keyspace_with("k", &with(Arc::clone(&own))).unwrap();
    db.keyspace_with("k", &with(own)).unwrap();
    let other = db.keyspace_with("k", &with(Arc::new(ByValue)));
    assert!(matches!(other, Err(Error::InvalidOptions { .. })), "{other:?}");
    keyspace.put("a", "remove").unwrap();
    drop((keyspace, db));
    // Not saved: a later opening names it again.
    let db = open(&env, &quiet()).unwrap();
    let keyspace = db.keyspace_with("k", &with(Arc::new(ByValue))).unwrap();
    keyspace.flush().unwrap();
    keyspace.compact_range_with(.., &CompactRangeOptions::new().force(true)).unwrap();
    assert_eq!(keyspace.get("a").unwrap(), None);
}

/// A version of a key: its value and when it expires; `None` for a deletion.
type Written = Option<(String, Option<u64>)>;

/// The versions of a key as they were written.
type Versions = BTreeMap<String, Vec<Written>>;

/// Checks every key. What the clock has passed is gone; what it passed at some time may be.
fn check(db: &Db, versions: &Versions, now: u64, latest: u64, what: &str) {
    for (key, versions) in versions {
        // After the clock went back, a worker may remove entries between two reads.
        let found = match now == latest {
            true => read(db, key),
            false => db.get(key).unwrap().map(|value| String::from_utf8(value.into_vec()).unwrap()),
        };
        agrees(found, versions.last(), now, latest, &format!("{what}, key {key}"));
    }
}

fn agrees(found: Option<String>, newest: Option<&Written>, now: u64, latest: u64, what: &str) {
    match newest.cloned().flatten() {
        Some((value, expires_at)) => {
            let expires_at = expires_at.unwrap_or(u64::MAX);
            let may_be_there = expires_at > now && found.as_ref() == Some(&value);
            let may_be_gone = expires_at <= latest && found.is_none();
            assert!(may_be_there || may_be_gone, "{what}: {found:?}, {value} to {expires_at}");
        }
        None => assert_eq!(found, None, "{what}"),
    }
}

/// A put with options: by itself, in a batch whose other options it does not heed, or in a
/// transaction, which reads it before the commit.
fn put_somehow(
    db: &Db,
    rng: &mut Rng,
    (key, value): (&str, &str),
    options: &WriteOptions,
    (has_own, expires_at): (bool, Option<u64>),
) {
    let others = match has_own && rng.chance(50) {
        true => seconds(rng.below(20) as u64),
        false => options.clone(),
    };
    match rng.below(4) {
        0 => {
            let mut batch = WriteBatch::new();
            batch.delete(key).put_with(key, "replaced", &seconds(3)).put_with(key, value, options);
            db.write_with(batch, &others).unwrap();
        }
        1 => {
            let (mut batch, mut end) = (WriteBatch::new(), WriteBatch::new());
            end.in_keyspace(db).put_with(key, value, options);
            batch.put(key, "replaced").append(&end);
            db.write_with(batch, &others).unwrap();
        }
        2 => {
            let transaction = db.transaction();
            let savepoint = transaction.savepoint();
            transaction.put_with(key, "taken back", &seconds(1)).unwrap();
            transaction.rollback_to(&savepoint).unwrap();
            transaction.put_with(key, value, options).unwrap();
            let own = transaction.get(key).unwrap();
            let scanned = transaction.prefix(key).next().map(|item| item.unwrap().1);
            assert_eq!(own.as_deref(), scanned.as_deref());
            assert_eq!(transaction.multi_get([key]).unwrap()[0].as_deref(), own.as_deref());
            // A duration begins with the commit, so only a time in the past is gone by then.
            assert!(own.map_or(expires_at.is_some(), |own| own == *value));
            transaction.commit_with(&others).unwrap();
        }
        _ => db.put_with(key, value, options).unwrap(),
    }
}

fn run(seed: u64, steps: usize) {
    let (env, mut rng) = (disk(0), Rng::new(seed));
    let (options, default) = match rng.below(3) {
        0 => (quiet(), None),
        1 => (small_options(), None),
        _ => (small_options().expire_after(Duration::from_secs(7)), Some(7)),
    };
    let mut db = open(&env, &options).unwrap();
    let (mut now, mut latest) = (0, 0);
    let mut versions = Versions::new();
    let mut snapshots: Vec<(Snapshot, Versions)> = Vec::new();
    for step in 0..steps {
        let what = format!("SIFTDB_SEED={seed} step {step} at {now}");
        let key = format!("key {:02}", rng.below(12));
        let value = format!("{step}").repeat(1 + rng.below(20));
        match rng.below(20) {
            0..8 => {
                let own = rng.chance(75);
                let (options, expires_at) = match rng.below(3) {
                    _ if !own => (WriteOptions::new(), default.map(|after| now + after)),
                    0 => (WriteOptions::new().expire_after(Duration::MAX), None),
                    1 => {
                        let after = rng.below(20) as u64;
                        (seconds(after), Some(now + after))
                    }
                    _ => {
                        let time = rng.below(60) as u64;
                        (WriteOptions::new().expire_at(at(time)), Some(time))
                    }
                };
                put_somehow(&db, &mut rng, (&key, &value), &options, (own, expires_at));
                versions.entry(key).or_default().push(Some((value, expires_at)));
            }
            8 if rng.chance(50) => {
                db.delete(&key).unwrap();
                versions.entry(key).or_default().push(None);
            }
            8 => {
                let end = format!("key {:02}", rng.below(13));
                db.delete_range(&key[..]..&end[..]).unwrap();
                if key < end {
                    let range = versions.range_mut(key..end);
                    range.for_each(|(_, versions)| versions.push(None));
                }
            }
            9..12 => now += rng.below(6) as u64,
            12 => now = now.saturating_sub(rng.below(10) as u64),
            13 => snapshots.push((db.snapshot(), versions.clone())),
            14 if !snapshots.is_empty() => drop(snapshots.swap_remove(rng.below(snapshots.len()))),
            15 | 16 => db.flush().unwrap(),
            17 => rewrite(&db),
            18 => db.compact_range(..).unwrap(),
            19 if snapshots.is_empty() => {
                drop(db);
                db = open(&env, &options).unwrap();
            }
            _ => check(&db, &versions, now, latest, &what),
        }
        latest = latest.max(now);
        env.set_now(at(now));
        if step % 16 == 0 {
            check(&db, &versions, now, latest, &what);
            for (snapshot, versions) in &snapshots {
                for (key, versions) in versions {
                    let found = snapshot_read(snapshot, key);
                    let found = found.map(|value| String::from_utf8(value).unwrap());
                    agrees(found, versions.last(), now, latest, &format!("{what}, snapshot {key}"));
                }
            }
        }
    }
    assert!(db.verify(|_| {}).unwrap().is_sound());
}

/// `SIFTDB_EXPIRY_SEEDS` sets the number of runs.
#[test]
fn expired_versions_hide_older_ones_whatever_the_clock_does() {
    for seed in seeds(setting("SIFTDB_EXPIRY_SEEDS", 12) as u64) {
        run(seed, 300);
    }
}
