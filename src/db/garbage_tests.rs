//! Tests of when compactions free space and level 0, and of what they rewrite for it.

use crate::base::sync::{AtomicBool, Ordering};
use crate::db::database::Db;
use crate::db::keyspace::Keyspace;
use crate::env::mem::MemEnv;
use crate::options::access::CompactRangeOptions;
use crate::options::compaction_filter::{CompactionDecision, CompactionFilter};
use crate::options::database::Options;
use crate::options::keyspace::KeyspaceOptions;
use std::sync::Arc;
use std::thread::{scope, sleep, yield_now};
use std::time::{Duration, Instant};

fn open(options: Options) -> Db {
    options.env(Arc::new(MemEnv::new())).open("/db").unwrap()
}

pub(super) fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "not {what}");
        yield_now();
    }
}

/// Waits until the workers have looked at everything.
fn rest(db: &Db) {
    until("at rest", || {
        let jobs = db.engine().jobs.schedule.lock();
        jobs.running == 0
            && !jobs.flush_wanted
            && jobs.compactions_wanted.is_empty()
            && jobs.deleted_tables.is_empty()
    });
}

fn entries(db: &Db) -> u64 {
    db.tables().iter().map(|table| table.entries).sum()
}

#[test]
fn garbage_goes_with_the_snapshot_that_kept_it() {
    let db = open(Options::new());
    for number in 0..1000 {
        db.put(format!("{number:04}"), "value").unwrap();
    }
    db.compact_range(..).unwrap();
    let old = db.snapshot();
    for number in 0..1000 {
        db.delete(format!("{number:04}")).unwrap();
    }
    db.flush().unwrap();
    // It sees the deletes.
    let new = db.snapshot();
    rest(&db);
    assert_eq!(entries(&db), 2000);
    drop(old);
    until("freed", || entries(&db) == 0);
    drop(new);
}

/// The range delete has live entries next to it, so its table is no garbage by itself.
#[test]
fn range_deletes_go_after_the_tables_that_they_hide() {
    let db = open(Options::new().table_bytes(16 << 10).level_base_bytes(16 << 10));
    let load = (0..3000).map(|number| (format!("a{number:04}"), number.to_string()));
    assert_eq!(db.ingest(load).unwrap().level, 2);
    let snapshot = db.snapshot();
    db.delete_range("a".."b").unwrap();
    for number in 0..10 {
        db.put(format!("b{number}"), "value").unwrap();
    }
    db.compact_range("b"..).unwrap();
    // Its log is synced before a table goes. So the lock below holds that up until a compaction was
    // looked for.
    db.delete_range("x".."y").unwrap();
    rest(&db);
    let held_up = db.engine().writer.log.lock();
    drop(snapshot);
    until("looked at", || {
        let jobs = db.engine().jobs.schedule.lock();
        jobs.compactions_wanted.is_empty() && !jobs.is_compacting()
    });
    drop(held_up);
    until("rewritten", || db.tables().iter().all(|table| table.range_deletes == 0));
    assert_eq!(entries(&db), 10);
}

/// It once rewrote every table below one of them.
#[test]
fn scattered_deletes_rewrite_no_whole_level() {
    let db = open(Options::new().table_bytes(16 << 10).level_base_bytes(64 << 10));
    let key = |number: usize| format!("{number:06}");
    let load = db.ingest((0..200_000).map(|number| (key(number), ""))).unwrap();
    assert!(load.level > 1 && load.tables > 20, "{load:?}");
    for first in 0..4 {
        for number in (first..200_000).step_by(2000) {
            db.delete(key(number)).unwrap();
        }
        db.flush().unwrap();
    }
    rest(&db);
    let stats = db.stats();
    assert!(stats.compactions > 0 && stats.levels[0].tables < 4);
    assert!(stats.compaction_bytes_written < load.bytes / 8, "{stats}");
}

/// It takes its time, and notes that it was asked.
#[derive(Debug, Default)]
struct Slow(AtomicBool);

impl CompactionFilter for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn filter(&self, _: &[u8], _: &[u8]) -> CompactionDecision {
        self.0.store(true, Ordering::Relaxed);
        sleep(Duration::from_millis(1));
        CompactionDecision::Keep
    }
}

/// No worker compacts next to `compact_range`, so writers once waited for its end.
#[test]
fn writers_need_not_wait_for_a_long_compact_range() {
    let options = Options::new().table_bytes(16 << 10).level_base_bytes(16 << 10);
    let db = open(options.level0_compaction_trigger(1));
    let slow = Arc::new(Slow::default());
    let options = KeyspaceOptions::new().compaction_filter(slow.clone());
    let big = db.keyspace_with("big", &options).unwrap();
    let value = [b'v'; 8 << 10];
    big.ingest((0..3000).map(|number| (format!("{number:04}"), value))).unwrap();
    let loaded = big.tables().iter().map(|table| table.number).max().unwrap();
    let ended = AtomicBool::new(false);
    scope(|scope| {
        scope.spawn(|| {
            big.compact_range_with(.., &CompactRangeOptions::new().force(true)).unwrap();
            ended.store(true, Ordering::Relaxed);
        });
        until("begun", || db.engine().jobs.schedule.lock().caller_compacts);
        slow.0.store(false, Ordering::Relaxed);
        until("past level 0", || slow.0.load(Ordering::Relaxed));
        let in_level0 =
            |keyspace: &Keyspace| keyspace.tables().iter().filter(|table| table.level == 0).count();
        for keyspace in [&db, &big, &db, &big] {
            for _ in 0..2 {
                keyspace.put("0000", "v").unwrap();
                keyspace.flush().unwrap();
            }
            until("compacted", || in_level0(keyspace) == 0);
        }
        assert!(!ended.load(Ordering::Relaxed), "writers waited");
    });
    assert!(big.tables().iter().all(|table| table.number > loaded));
}
