//! Tables that range deletes hide whole: they are removed unread and at once, and never before the
//! range delete is durable.
//!
//! `SIFTDB_PURGE_ROUNDS` and `SIFTDB_PURGE_ENTRIES` set how often a log is appended to and purged,
//! and how many entries each round appends.

use crate::support::data::{bytes, key};
use crate::support::gate::{Gate, GateEnv, Stops};
use crate::support::rng::setting;
use crate::support::stores::{HOME, as_env, files_ending, open, small_options, until};
use siftdb::env::MemEnv;
use siftdb::env::testing::CrashModel;
use siftdb::{CompactRangeOptions, Db, Options, Readable, WriteBatch, keys};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::tempdir;

/// Writes the keys with these numbers and moves them to the bottom.
fn fill(db: &Db, numbers: std::ops::Range<usize>) {
    for number in numbers {
        db.put(key(number), bytes(number as u64, 100)).unwrap();
    }
    db.compact_range(..).unwrap();
}

fn tables(env: &MemEnv) -> usize {
    files_ending(env, ".sst").len()
}

/// How many of the keys with these numbers are there.
fn present(db: &impl Readable, numbers: std::ops::Range<usize>) -> usize {
    numbers.filter(|number| db.contains_key(key(*number)).unwrap()).count()
}

#[test]
fn hidden_tables_are_removed_unread() {
    let disk = MemEnv::new();
    let gate = Gate::default();
    let env = Arc::new(GateEnv::new(as_env(&disk), &gate));
    let db = small_options().block_cache_bytes(0).env(env).open(HOME).unwrap();
    fill(&db, 0..3000);
    assert!(tables(&disk) > 12);
    // Without an entry, reading a table would wait for ever.
    gate.shut(Stops::Reads);
    db.delete_range(key(100)..key(2900)).unwrap();
    until("removed", || tables(&disk) <= 4);
    gate.open();
    assert_eq!(present(&db, 0..3000), 200);
    db.close().unwrap();
    assert_eq!(present(&open(&disk, &small_options()).unwrap(), 0..3000), 200);
}

#[test]
fn adjacent_range_deletes_hide_tables_together() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    fill(&db, 0..3000);
    for first in (0..3000).step_by(30) {
        if first == 1500 {
            db.flush().unwrap();
        }
        db.delete_range(key(first)..key(first + 30)).unwrap();
    }
    until("removed", || db.tables().iter().all(|table| table.entries == 0));
    assert_eq!(present(&db, 0..3000), 0);
}

#[test]
fn snapshots_keep_hidden_tables_until_released() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    fill(&db, 0..2000);
    let before = tables(&env);
    let snapshot = db.snapshot();
    db.delete_range(..).unwrap();
    // One that sees the delete is in nobody's way.
    let later = db.snapshot();
    fill(&db, 2000..2100);
    assert_eq!(present(&snapshot, 0..2000), 2000);
    drop(snapshot);
    until("removed", || tables(&env) < before / 2);
    assert_eq!((present(&later, 0..2100), present(&db, 0..2100)), (0, 100));
}

#[test]
fn flushed_tables_under_newer_deletes_are_removed() {
    let disk = MemEnv::new();
    let gate = Gate::default();
    let env = Arc::new(GateEnv::new(as_env(&disk), &gate));
    let options = small_options().immutable_memtables_max(4).level0_compaction_trigger(16);
    let db = options.env(env).open(HOME).unwrap();
    db.put("first", "").unwrap();
    // A flush reads its tables back before it installs them.
    gate.shut(Stops::Reads);
    for number in 0..600 {
        db.put(key(number), bytes(number as u64, 100)).unwrap();
    }
    gate.wait_for_a_call();
    assert!(tables(&disk) > 0);
    db.delete_range(..).unwrap();
    gate.open();
    // The delete itself is not flushed, and no compaction is due.
    until("removed", || tables(&disk) == 0);
}

#[test]
fn tables_of_a_running_compaction_stay() {
    let disk = MemEnv::new();
    let gate = Gate::default();
    let env = Arc::new(GateEnv::new(as_env(&disk), &gate));
    let db = small_options().block_cache_bytes(0).env(env).open(HOME).unwrap();
    fill(&db, 0..3000);
    let before = tables(&disk);
    gate.shut(Stops::Reads);
    std::thread::scope(|scope| {
        let compaction = scope.spawn(|| {
            let force = CompactRangeOptions::new().force(true);
            db.compact_range_with(key(0)..key(300), &force)
        });
        gate.wait_for_a_call();
        // It reads some of the tables that are deleted now.
        db.delete_range(..).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while tables(&disk) >= before / 2 && Instant::now() < deadline {
            std::thread::yield_now();
        }
        let left = tables(&disk);
        gate.open();
        compaction.join().unwrap().unwrap();
        assert!(left < before / 2, "{left} of {before} tables are left");
    });
    until("removed", || db.tables().iter().all(|table| table.entries == 0));
    db.put(key(7), "1").unwrap();
    assert_eq!(present(&db, 0..3000), 1);
    db.close().unwrap();
    assert_eq!(present(&open(&disk, &small_options()).unwrap(), 0..3000), 1);
}

/// Nothing is synced by the writer: after each crash the deleted entries are all there, or the
/// delete is.
#[test]
fn no_crash_takes_data_without_its_delete() {
    const KEYS: usize = 900;
    let env = MemEnv::with_log();
    let options = small_options();
    let db = open(&env, &options).unwrap();
    fill(&db, 0..KEYS);
    let first_call = env.log_len();
    let mut batch = WriteBatch::new();
    batch.put("before", "1").delete_range(key(20)..key(KEYS - 20)).put("after", "2");
    db.write(batch).unwrap();
    until("removed", || tables(&env) <= 3);
    db.put("later", "3").unwrap();
    drop(db);
    let mut walk = env.walk_log();
    let (mut gone, mut there) = (0, 0);
    for call in first_call..=env.log_len() {
        walk.advance_to(call);
        for (model, seeds) in
            [(CrashModel::Kill, 1), (CrashModel::Journal, 3), (CrashModel::Posix, 6)]
        {
            for seed in 0..seeds {
                let db = open(&walk.crash(model, seed), &options).unwrap();
                let place = format!("{model:?} {seed} after call {call}");
                let [before, after, later] =
                    ["before", "after", "later"].map(|key| db.contains_key(key).unwrap());
                assert_eq!(before, after, "{place}");
                assert!(before || !later, "{place}");
                let expected = if before { 40 } else { KEYS };
                assert_eq!(present(&db, 0..KEYS), expected, "{place}");
                if before { gone += 1 } else { there += 1 }
            }
        }
    }
    assert!(gone > 0 && there > 0, "{gone} {there}");
}

fn disk_bytes(directory: &Path) -> u64 {
    let files = std::fs::read_dir(directory).unwrap();
    // A worker may remove a file at any time.
    files.filter_map(|file| Some(file.ok()?.metadata().ok()?.len())).sum()
}

/// A log as a Raft node keeps it: entries are appended, and all but the newest are purged.
#[test]
fn purged_logs_give_their_space_back() {
    let rounds = setting("SIFTDB_PURGE_ROUNDS", 12);
    let appended = setting("SIFTDB_PURGE_ENTRIES", 6_000) as u64;
    let kept = appended / 300;
    let directory = tempdir().unwrap();
    let options = match appended >= 100_000 {
        true => Options::new(),
        false => small_options(),
    };
    let write_buffer_bytes = match appended >= 100_000 {
        true => 64 << 20,
        false => 64 << 10,
    };
    let db = options.open(directory.path()).unwrap();
    let (mut end, mut used) = (0u64, Vec::new());
    let mut slowest = Duration::ZERO;
    for _ in 0..rounds {
        for index in end..end + appended {
            db.put(keys::encode(&index), bytes(index, 100)).unwrap();
        }
        end += appended;
        let first = keys::encode(&(end - kept));
        db.delete_range(..&first).unwrap();
        let started = Instant::now();
        assert_eq!(db.first().unwrap().unwrap().0, first);
        slowest = slowest.max(started.elapsed());
        let bytes_max = 2 * appended * 130 + 4 * write_buffer_bytes;
        until("small", || disk_bytes(directory.path()) <= bytes_max);
        used.push(disk_bytes(directory.path()));
    }
    assert_eq!(db.iter().count() as u64, kept);
    let most = |rounds: &[u64]| rounds.iter().copied().max().unwrap_or(0);
    let (early, late) = (most(&used[..used.len() / 2]), most(&used[used.len() / 2..]));
    println!("{rounds} rounds of {appended}: {early} bytes, then {late}; first() {slowest:?}");
    // How much waits for the workers depends on the machine: at most a round.
    assert!(late <= early + appended * 130, "{used:?}");
}
