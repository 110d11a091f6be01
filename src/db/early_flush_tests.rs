//! Tests of flushes before a memtable is full: of tombstones, and of what scans step over.

use crate::base::sync::Ordering;
use crate::db::garbage_tests::until;
use crate::env::mem::MemEnv;
use crate::jobs::workers::CompactionToken;
use crate::options::access::WriteOptions;
use crate::options::database::Options;
use crate::options::filter::Filter;
use crate::state::keyspace::{TOMBSTONES_MAX, TOMBSTONES_PASSED_MAX};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// No write follows the scan: the worker looks at the keyspaces whose scans passed tombstones.
#[test]
fn a_scan_past_tombstones_flushes_them() {
    let db = Options::new().env(Arc::new(MemEnv::new())).open("/db").unwrap();
    let tombstones = TOMBSTONES_PASSED_MAX as u64 + 100;
    (0..tombstones).for_each(|n| db.delete(format!("{n:05}")).unwrap());
    db.put("~", "v").unwrap();
    let view = || db.engine().catalog.default.view.load_full();
    assert!(!view().active.is_empty(), "too few of them for a flush without a scan");
    assert_eq!(db.first().unwrap().unwrap().0, "~");
    until("the tombstones are flushed", || {
        view().active.is_empty() && view().immutables.is_empty()
    });
    db.close().unwrap();
}

/// Only tombstones counted. So each scan stepped over all entries that range deletes cover, or that
/// have expired, until the memtable was full.
#[test]
fn a_scan_past_covered_or_expired_entries_flushes_them() {
    let soon = WriteOptions::new().expire_after(Duration::from_millis(1));
    for (covered, forwards) in [(true, true), (true, false), (false, true), (false, false)] {
        let env = MemEnv::new();
        env.set_now(UNIX_EPOCH);
        let db = Options::new().env(Arc::new(env.clone())).open("/db").unwrap();
        db.put("!", "v").unwrap();
        db.put("~", "v").unwrap();
        let write = |first: u64, count: usize| {
            for n in first..first + count as u64 {
                let key = format!("{n:05}");
                if covered {
                    db.put(&key, "v").unwrap();
                    // The next key is newer than this delete, so no seek may pass both.
                    db.delete_range(&*key..&*format!("{:05}", n + 1)).unwrap();
                } else {
                    db.put_with(&key, "v", &soon).unwrap();
                }
            }
        };
        let view = || db.engine().catalog.default.view.load_full();
        let scan = || match forwards {
            true => assert_eq!(db.range("0"..).next().unwrap().unwrap().0, "~"),
            false => assert_eq!(db.range(.."9").next_back().unwrap().unwrap().0, "!"),
        };
        write(0, TOMBSTONES_PASSED_MAX);
        env.set_now(UNIX_EPOCH + Duration::from_secs(60));
        scan();
        assert!(!view().active.wants_flush(), "few enough");
        env.set_now(UNIX_EPOCH);
        write(TOMBSTONES_PASSED_MAX as u64, 100);
        env.set_now(UNIX_EPOCH + Duration::from_secs(60));
        scan();
        until("it is flushed", || view().active.is_empty() && view().immutables.is_empty());
        scan();
        assert!(!view().active.wants_flush());
        db.close().unwrap();
    }
}

/// The note of such a scan stayed until the next flush for tombstones. Then the first 512 deletes
/// of a later memtable caused one, although no scan had passed them.
#[test]
fn tombstones_in_tables_ask_for_no_flush() {
    let options = Options::new().filter(Filter::none()).auto_compaction(false);
    let db = options.env(Arc::new(MemEnv::new())).open("/db").unwrap();
    let keys = || (0..2 * TOMBSTONES_PASSED_MAX).map(|n| (n as u64).to_le_bytes());
    // So that the flush of their tombstones keeps these.
    keys().for_each(|key| db.put(key, "v").unwrap());
    db.flush().unwrap();
    keys().for_each(|key| db.delete(key).unwrap());
    let passed = || {
        assert_eq!(db.first().unwrap(), None);
        db.engine().catalog.default.scans_pass_tombstones.load(Ordering::Relaxed)
    };
    assert!(passed(), "they are in the memtable");
    db.flush().unwrap();
    assert!(!db.engine().catalog.default.scans_pass_tombstones.load(Ordering::Relaxed));
    assert!(!passed());
    (0..100u32).for_each(|n| db.delete(n.to_le_bytes()).unwrap());
    assert!(!passed(), "too few are in the memtable");
}

/// No write followed to look at the tombstones again, so they stayed in memory.
#[test]
fn piled_tombstones_are_flushed_after_the_job_before() {
    let options = Options::new().env(Arc::new(MemEnv::new()));
    let db = options.open("/db").unwrap();
    let engine = db.engine();
    let pile = TOMBSTONES_MAX as u64;
    let delete =
        |first: u64| (first..first + pile).for_each(|n| db.delete(n.to_le_bytes()).unwrap());
    let view = || engine.catalog.default.view.load_full();
    let is_flushed = || view().active.is_empty() && view().immutables.is_empty();
    // The pile waits for a flush, which leaves no table: there is nothing to delete.
    // The first write of a session needs the lock.
    db.put("k", "v").unwrap();
    let versions = engine.catalog.versions.lock();
    // Another thread writes: this one may take no lock before `versions`.
    let delete_elsewhere = || std::thread::scope(|scope| scope.spawn(|| delete(0)).join()).unwrap();
    delete_elsewhere();
    until("the first pile waits for its flush", || !view().immutables.is_empty());
    delete_elsewhere();
    drop(versions);
    until("the second pile is flushed", is_flushed);
    // The pile waits for a compaction.
    (0..2 * pile).for_each(|n| db.put(n.to_le_bytes(), "v").unwrap());
    db.compact_range(..).unwrap();
    let token = CompactionToken::wait(engine).unwrap();
    delete(0);
    until("a table of tombstones", || view().version.level(0).len() == 1 && is_flushed());
    delete(pile);
    drop(token);
    until("the second half is flushed", is_flushed);
    db.close().unwrap();
}
