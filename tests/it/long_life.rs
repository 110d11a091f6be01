//! Long use leaves few tables however small the flushes, frees the space of unreadable entries, and
//! keeps scans over deleted entries fast.

use crate::support::data::key;
use crate::support::reads::all_reads;
use crate::support::stores::{files_ending, open, until};
use siftdb::env::MemEnv;
use siftdb::{CompactRangeOptions, Db, Options, WriteBatch, WriteOptions};

fn tables(db: &Db) -> u64 {
    db.stats().levels.iter().map(|level| level.tables).sum()
}

const FEW: u64 = 12;

/// The number of flushed puts. Three of them make one session.
fn rounds() -> usize {
    let said = std::env::var("SIFTDB_FLUSHES").ok();
    said.map_or(300, |said| said.parse().unwrap())
}

#[test]
fn flushed_puts_leave_few_tables() {
    let rounds = rounds();
    let env = MemEnv::new();
    let db = open(&env, &Options::new()).unwrap();
    for number in 0..rounds {
        db.put(key(number), "value").unwrap();
        db.flush().unwrap();
    }
    until("few tables", || tables(&db) <= FEW);
    db.compact_range(..).unwrap();
    assert_eq!(tables(&db), 1);
    assert_eq!(all_reads(&db, [key(rounds)], "flushed").len(), rounds);
    // A worker removes the files of the tables before.
    until("one file", || files_ending(&env, ".sst").len() == 1);
    // Nothing to do: the one table stays as it is, unless by force.
    let before = files_ending(&env, ".sst");
    db.compact_range(..).unwrap();
    assert_eq!(files_ending(&env, ".sst"), before);
    db.compact_range_with(.., &CompactRangeOptions::new().force(true)).unwrap();
    until("one other table", || {
        let now = files_ending(&env, ".sst");
        now.len() == 1 && now != before
    });
}

#[test]
fn short_sessions_leave_few_tables() {
    let rounds = rounds() / 3;
    // A session after a power cut flushes what it recovers, so each of these leaves a table.
    for ends_in_power_cut in [false, true] {
        let mut env = MemEnv::new();
        for number in 0..rounds {
            let db = open(&env, &Options::new()).unwrap();
            let mut batch = WriteBatch::new();
            batch.put(key(number), "value");
            db.write_with(batch, &WriteOptions::new().sync(true)).unwrap();
            match ends_in_power_cut {
                true => env = env.power_cut(),
                false => db.close().unwrap(),
            }
        }
        let db = open(&env, &Options::new()).unwrap();
        db.put(key(rounds), "value").unwrap();
        until("few tables", || tables(&db) <= FEW);
        assert_eq!(all_reads(&db, [key(rounds + 1)], "sessions").len(), rounds + 1);
    }
}

/// Skipped tombstones are compacted away, although the memtable is far from full.
#[test]
fn popped_queue_entries_are_freed() {
    for flushed in [true, false] {
        let env = MemEnv::new();
        let db = open(&env, &Options::new()).unwrap();
        let count = 6000;
        for number in 0..count {
            db.put(key(number), "value").unwrap();
        }
        if flushed {
            db.flush().unwrap();
        }
        for number in 0..count - 100 {
            let (first, _) = db.first().unwrap().unwrap();
            assert_eq!(&first[..], key(number));
            db.delete(&first).unwrap();
        }
        until("what was popped is gone", || {
            db.first().unwrap();
            let stats = db.stats();
            let entries = stats.levels.iter().map(|level| level.entries).sum::<u64>();
            stats.flushes > u64::from(flushed) && entries < 4000
        });
        assert_eq!(all_reads(&db, (0..count).step_by(97).map(key), "popped").len(), 100);
    }
}

/// No scan runs and no level is full. The counts of tombstones alone make compactions due.
#[test]
fn tombstone_tables_disappear_at_rest() {
    let env = MemEnv::new();
    let db = open(&env, &Options::new()).unwrap();
    let count = 30_000;
    for number in 0..count {
        db.put(key(number), "value").unwrap();
    }
    db.flush().unwrap();
    for number in 0..count - 1000 {
        db.delete(key(number)).unwrap();
    }
    let entries = || db.stats().levels.iter().map(|level| level.entries).sum::<u64>();
    until("only what is left", || entries() < 1000 + 2 * 4096);
    assert_eq!(&db.first().unwrap().unwrap().0[..], key(count - 1000));
}

/// A few deletes all over the keys make a table of level 0 that is not worth a compaction.
#[test]
fn popped_entries_are_freed_above_scattered_deletes() {
    let env = MemEnv::new();
    let db = open(&env, &Options::new()).unwrap();
    let count = 6000;
    for number in 0..count {
        db.put(key(number), "value").unwrap();
    }
    db.compact_range(..).unwrap();
    for number in [1, count - 1] {
        db.delete(key(number)).unwrap();
    }
    db.flush().unwrap();
    for number in (0..count - 100).filter(|number| *number != 1) {
        let (first, _) = db.first().unwrap().unwrap();
        assert_eq!(&first[..], key(number));
        db.delete(&first).unwrap();
    }
    until("what was popped is gone", || {
        db.first().unwrap();
        db.stats().levels.iter().map(|level| level.entries).sum::<u64>() < 4000
    });
    assert_eq!(all_reads(&db, (0..count).step_by(97).map(key), "popped").len(), 99);
}

/// Without background compactions nothing happens that was not asked for.
#[test]
fn manual_mode_keeps_tombstones_until_flush() {
    let env = MemEnv::new();
    let db = open(&env, &Options::new().auto_compaction(false)).unwrap();
    for number in 0..5000 {
        db.put(key(number), "value").unwrap();
        db.delete(key(number)).unwrap();
    }
    assert!(db.first().unwrap().is_none() && db.last().unwrap().is_none());
    db.close().unwrap();
    assert!(files_ending(&env, ".sst").is_empty());
}
