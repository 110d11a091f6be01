//! What a put without sync waits for: for its record in the log, and for room in memory. Not for a
//! log or table that is made or opened, an edit that is installed, or a directory that is synced.

use crate::events::Shut;
use crate::support::data::bytes;
use crate::support::gate::{Gate, GateEnv, OpensOnDrop, Stops};
use crate::support::stores::{HOME, as_env, name, open, small_options, until};
use siftdb::env::{Env, EnvLayer, MemEnv};
use siftdb::{CompactRangeOptions, CompactionFilter, Db, Error, Keyspace, Options};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const BUFFER_BYTES: usize = 64 << 10;

fn key(number: usize) -> String {
    format!("key{number:05}")
}

/// Runs `work` on a thread of its own, so that the test fails if it waits for the gate.
#[track_caller]
fn ends(what: &str, work: impl FnOnce() + Send + 'static) {
    let thread = thread::spawn(work);
    until(what, || thread.is_finished());
    thread.join().unwrap();
}

/// Fills the write buffer of `db`, so that its memtables are switched.
fn fill(db: &Db, keyspaces: &[Keyspace]) {
    let before = db.stats().log_switches;
    let mut number = 0;
    while db.stats().log_switches == before {
        let keyspace = &keyspaces[usize::from(number % 20 == 0) % keyspaces.len()];
        keyspace.put(key(number), bytes(number as u64, 200)).unwrap();
        number += 1;
    }
}

/// Puts return while a worker is in a call that `stops` names.
fn puts_pass(stops: Stops, options: &Options, keyspaces: &[&str]) {
    let (disk, gate) = (MemEnv::new(), Gate::default());
    let env = GateEnv::new(as_env(&disk), &gate);
    let db = options.clone().write_buffer_bytes(BUFFER_BYTES).env(Arc::new(env)).open(HOME);
    let db = db.unwrap();
    let of = |name: &&str| db.keyspace(name).unwrap();
    let mut all: Vec<Keyspace> = keyspaces.iter().map(of).collect();
    all.insert(0, db.keyspace("default").unwrap());
    // Without it the first switch would make the log itself, before the gate is shut.
    fill(&db, &all);
    until("at rest", || db.stats().levels.iter().map(|level| level.tables).sum::<u64>() > 0);
    let _opens = OpensOnDrop([&gate]);
    gate.shut(stops);
    ends("filled while a worker waits", {
        let (db, all) = (db.clone(), all.clone());
        move || fill(&db, &all)
    });
    gate.wait_for_a_call();
    ends("put while a worker waits", move || {
        // Less than a buffer.
        for number in 0..100 {
            all[number % all.len()].put(key(number), "later").unwrap();
        }
    });
    gate.open();
    db.flush().unwrap();
    assert!(db.verify(|_| ()).unwrap().is_sound());
    assert_eq!(db.get(key(0)).unwrap().as_deref(), Some(&b"later"[..]));
}

#[test]
fn puts_do_not_wait_for_workers() {
    let options = small_options();
    for stops in [
        Stops::SyncsOf(".sst"),
        Stops::Opens(".sst"),
        Stops::DirectorySyncs,
        Stops::SyncsOf("MANIFEST"),
        Stops::SyncedOf("MANIFEST"),
    ] {
        puts_pass(stops, &options, &[]);
    }
}

/// A flush of one keyspace makes the older writes of others durable first.
#[test]
fn puts_do_not_wait_for_syncs_of_logs_by_flushes() {
    for stops in [Stops::SyncsOf(".wal"), Stops::SyncedOf(".wal")] {
        puts_pass(stops, &small_options(), &["other"]);
    }
}

/// Puts `count` values of 10,000 bytes; the nanoseconds that they were slowed down for.
fn slowed_nanos(db: &Db, count: usize) -> u64 {
    let before = db.stats().slowdown_nanos;
    (0..count).for_each(|n| db.put(key(n), bytes(n as u64, 10_000)).unwrap());
    db.stats().slowdown_nanos - before
}

#[test]
fn writes_slow_down_the_more_level_0_grows() {
    let filter = Arc::new(Shut::default());
    let options = small_options().write_buffer_bytes(4 << 20).level0_compaction_trigger(4);
    let options = options.compaction_filter(Arc::clone(&filter) as Arc<dyn CompactionFilter>);
    let db = open(&MemEnv::new(), &options).unwrap();
    // No compaction ends, so level 0 grows.
    filter.shut();
    let mut slowed = Vec::new();
    for tables in 1..35 {
        db.put(key(0), "value").unwrap();
        db.flush().unwrap();
        if [18, 23, 28, 34].contains(&tables) {
            slowed.push(slowed_nanos(&db, 50));
        }
    }
    // Before anything can fail: a close waits for what is held up.
    filter.open();
    assert_eq!(slowed[0], 0, "{slowed:?}");
    assert!(slowed.windows(2).all(|pair| pair[0] < pair[1]), "{slowed:?}");
    // What they owe is waited for: 3 ms, of which the last may stay owed.
    assert!(slowed[1] > 1_000_000, "{slowed:?}");
    let stats = db.stats();
    assert_eq!((stats.level0_stalls, stats.memtable_stalls), (0, 0), "{stats}");
}

/// Nothing here fails because a machine is busy.
#[test]
fn a_pace_holds_compactions_back_unless_writes_would_wait() {
    const LIMIT: u64 = 1 << 20;
    let options = small_options().write_buffer_bytes(4 << 20).compaction_bytes_per_second(LIMIT);
    let db = open(&MemEnv::new(), &options).unwrap();
    (0..200).for_each(|n| db.put(key(n), bytes(n as u64, 10_000)).unwrap());
    db.flush().unwrap();
    let begun = Instant::now();
    db.compact_range(..).unwrap();
    let written = db.stats().compaction_bytes_written;
    assert!(written > 1_500_000, "{written}");
    let least = Duration::from_secs_f64((written as f64 / LIMIT as f64) * 0.8);
    assert!(begun.elapsed() >= least, "{written} bytes in {:?}", begun.elapsed());
    // 50 MB would take 50 s.
    let begun = Instant::now();
    for round in 0..25 {
        // Each table has keys between those of all others, so that a merge writes all of them.
        let keys = (0..200).map(|n| 25 * n + round);
        keys.for_each(|n| db.put(key(n), bytes(n as u64, 10_000)).unwrap());
        db.flush().unwrap();
    }
    let level0 = || db.stats().levels[0].tables;
    until("in time again", || level0() < 10);
    let (more, micros) =
        (db.stats().compaction_bytes_written - written, begun.elapsed().as_micros());
    // Twice the limit.
    assert!(u128::from(more) > 2 * micros, "{more} bytes in {micros} us");
    db.close().unwrap();
}

/// One keyspace is compacted at the pace, and the compaction of another has to wait for that. The
/// other one is written to.
#[test]
fn a_pace_does_not_hold_up_writes_to_other_keyspaces() {
    const LIMIT: u64 = 1 << 20;
    let options = small_options().write_buffer_bytes(64 << 20).compaction_threads(1);
    let db = open(&MemEnv::new(), &options.compaction_bytes_per_second(LIMIT)).unwrap();
    let large = db.keyspace("large").unwrap();
    (0..4000).for_each(|n| large.put(key(n), bytes(n as u64, 10_000)).unwrap());
    large.flush().unwrap();
    let begun = Instant::now();
    let force = CompactRangeOptions::new().force(true);
    let compacted = thread::spawn(move || large.compact_range_with(.., &force).unwrap());
    while !compacted.is_finished() {
        db.put("k", "v").unwrap();
        db.flush().unwrap();
    }
    compacted.join().unwrap();
    // Half of the time that the pace takes.
    let most = Duration::from_secs(4000 * 10_000 / LIMIT / 2);
    assert!(begun.elapsed() < most, "{:?}", begun.elapsed());
}

/// A worker that is about to flush a memtable for its tombstones waits for the log, and a drop of
/// the keyspace comes first. The memtable went with the keyspace: it is not counted out twice.
#[test]
fn a_drop_before_a_tombstone_flush_leaves_the_write_buffer_whole() {
    let (disk, gate) = (MemEnv::new(), Gate::default());
    let env = GateEnv::new(as_env(&disk), &gate);
    // Only tombstones fill a memtable.
    let options = small_options().write_buffer_bytes(1 << 20);
    let db = options.env(Arc::new(env)).open(HOME).unwrap();
    let passing = db.keyspace("passing").unwrap();
    (0..1500).for_each(|number| passing.delete(key(number)).unwrap());
    passing.put("z", "last").unwrap();
    // It keeps the memtable after the drop.
    let snapshot = passing.snapshot();
    let _opens = OpensOnDrop([&gate]);
    gate.shut(Stops::SyncsOf(".wal"));
    thread::scope(|scope| {
        scope.spawn(|| db.sync().unwrap());
        gate.wait_for_a_call();
        scope.spawn(|| db.drop_keyspace("passing").unwrap());
        // Nothing tells that a thread waits for the log. First the drop does, then the worker.
        thread::sleep(Duration::from_millis(100));
        assert_eq!(passing.first().unwrap().unwrap().0, "z");
        thread::sleep(Duration::from_millis(100));
        gate.open();
    });
    let before = db.stats().log_switches;
    for number in 0..100 {
        db.put(key(number), "v").unwrap();
    }
    assert!(db.stats().log_switches <= before + 1, "a switch for each put");
    assert_eq!(snapshot.first().unwrap().unwrap().0, "z");
}

/// An Env that panics once it is armed when a table is removed.
#[derive(Debug)]
struct PanickingEnv {
    disk: MemEnv,
    is_armed: AtomicBool,
}

impl EnvLayer for PanickingEnv {
    fn inner(&self) -> &dyn Env {
        &self.disk
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let panics = name(path).ends_with(".sst") && self.is_armed.load(Ordering::SeqCst);
        assert!(!panics, "as asked");
        self.disk.remove(path)
    }
}

/// Nobody flushes any more. Without an error writers would wait for that for ever.
#[test]
fn writes_are_refused_after_a_worker_panicked() {
    let env = Arc::new(PanickingEnv { disk: MemEnv::new(), is_armed: AtomicBool::new(false) });
    let as_env: Arc<dyn Env> = env.clone();
    let db = small_options().auto_compaction(false).env(as_env).open(HOME).unwrap();
    for value in ["1", "2"] {
        db.put("k", value).unwrap();
        db.flush().unwrap();
    }
    let kept = db.iter();
    db.compact_range(..).unwrap();
    env.is_armed.store(true, Ordering::SeqCst);
    // A worker removes the tables that only the iterator kept.
    drop(kept);
    let writes = db.clone();
    ends("written or refused", move || {
        let refused =
            (0..10_000).find_map(|number| writes.put(key(number), bytes(number as u64, 200)).err());
        let refused = refused.unwrap().to_string();
        assert!(refused.contains("panicked: as asked"), "{refused}");
    });
    assert_eq!(db.get("k").unwrap().as_deref(), Some(&b"2"[..]));
    assert!(matches!(db.close(), Err(Error::ReadOnly { .. })));
}
