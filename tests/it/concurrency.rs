//! Many threads at once, on the real file system: readers and iterators while tables are written
//! and removed, group commit, exact counters, closing under load, locks.

use crate::support::data::{bytes, key};
use crate::support::rng::Rng;
use crate::support::stores::{HOME, as_env, open, small_options};
use siftdb::env::{Env, LockMode, MemEnv};
use siftdb::{Db, Error, FilterRebuild, Options, Snapshot, WriteBatch, WriteOptions};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tempfile::tempdir;

/// How long threads run at most, if the situation that a test waits for does not occur.
const RUN: Duration = Duration::from_secs(30);

/// Yields until `done` holds, for [`RUN`] at most.
fn until(done: impl Fn() -> bool) {
    let deadline = Instant::now() + RUN;
    while !done() && Instant::now() < deadline {
        std::thread::yield_now();
    }
}

fn number_in(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().unwrap())
}

/// Puts `number` under each of the first keys, in one batch.
fn write_everywhere(db: &Db, keys: usize, number: u64, value_bytes: usize) {
    let mut batch = WriteBatch::new();
    for place in 0..keys {
        batch.put(key(place), bytes(number, value_bytes));
    }
    db.write(batch).unwrap();
}

/// Each key has one writer, so it is a register. A read returns nothing older than what was
/// acknowledged before it began, and nothing newer than what was begun before it ended.
#[test]
fn reads_are_exact_during_flushes_and_compactions() {
    let directory = tempdir().unwrap();
    let options = small_options().max_open_files(2);
    let db = options.open(directory.path().join("db")).unwrap();
    let keys = 64;
    let begun: Vec<AtomicU64> = (0..keys).map(|_| AtomicU64::new(0)).collect();
    let acknowledged: Vec<AtomicU64> = (0..keys).map(|_| AtomicU64::new(0)).collect();
    for place in 0..keys {
        db.put(key(place), bytes(0, 300)).unwrap();
    }
    let stop = AtomicBool::new(false);
    let (reads, walks) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for writer in 0..2usize {
            let (db, begun, acknowledged, stop) = (&db, &begun, &acknowledged, &stop);
            scope.spawn(move || {
                let mut rng = Rng::new(writer as u64);
                for number in 1.. {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    let place = rng.below(keys / 2) * 2 + writer;
                    begun[place].store(number, Ordering::SeqCst);
                    db.put(key(place), bytes(number, 300)).unwrap();
                    acknowledged[place].store(number, Ordering::SeqCst);
                }
            });
        }
        scope.spawn(|| {
            let mut rng = Rng::new(77);
            while !stop.load(Ordering::SeqCst) {
                let place = rng.below(keys);
                let least = acknowledged[place].load(Ordering::SeqCst);
                let found = number_in(&db.get(key(place)).unwrap().expect("never deleted"));
                let most = begun[place].load(Ordering::SeqCst);
                assert!((least..=most).contains(&found), "{found}, not {least} to {most}");
                reads.fetch_add(1, Ordering::SeqCst);
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                let least: Vec<u64> =
                    acknowledged.iter().map(|number| number.load(Ordering::SeqCst)).collect();
                let backwards = walks.fetch_add(1, Ordering::SeqCst) % 2 == 1;
                let entries: Vec<_> = if backwards {
                    db.iter().rev().collect::<siftdb::Result<_>>().unwrap()
                } else {
                    db.iter().collect::<siftdb::Result<_>>().unwrap()
                };
                assert_eq!(entries.len(), keys);
                for (at, (found, value)) in entries.iter().enumerate() {
                    let place = if backwards { keys - 1 - at } else { at };
                    assert_eq!(*found, key(place));
                    assert!(number_in(value) >= least[place]);
                }
            }
        });
        until(|| {
            let (reads, walks) = (reads.load(Ordering::SeqCst), walks.load(Ordering::SeqCst));
            let stats = db.stats();
            reads > 1000 && walks > 20 && stats.flushes > 3 && stats.compactions > 3
        });
        stop.store(true, Ordering::SeqCst);
    });
    assert!(reads.into_inner() > 100 && walks.into_inner() > 5);
    db.compact_range(..).unwrap();
    let stats = db.stats();
    assert!(stats.flushes > 1 && stats.compactions > 0, "nothing happened below:\n{stats}");
    assert!(stats.log_switches == stats.flushes && stats.log_switch_nanos > 0, "{stats}");
    db.close().unwrap();
    drop(db);
    // Space was freed: only the files that the manifest names are left.
    let tables = std::fs::read_dir(directory.path().join("db")).unwrap();
    let tables = tables
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(".sst"));
    assert_eq!(tables.count() as u64, stats.total().tables);
}

#[test]
fn snapshots_are_stable_while_files_are_replaced() {
    let directory = tempdir().unwrap();
    let db = small_options().max_open_files(2).open(directory.path().join("db")).unwrap();
    let keys = 200;
    let write_round = |round: u64| {
        for place in 0..keys {
            db.put(key(place), bytes(round, 200)).unwrap();
        }
    };
    write_round(1);
    db.flush().unwrap();
    let snapshot = db.snapshot();
    // From here on only the snapshot and the iterators keep what they see.
    write_round(2);
    let (mut fresh, mut started) = (db.iter(), db.iter());
    started.next().unwrap().unwrap();
    started.next_back().unwrap().unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 3..12 {
                write_round(round);
                db.compact_range(..).unwrap();
            }
        });
        let mut looks = 0;
        while !writer.is_finished() || looks < 3 {
            for place in 0..keys {
                assert_eq!(number_in(&snapshot.get(key(place)).unwrap().unwrap()), 1);
            }
            let forwards = snapshot.iter().map(|entry| number_in(&entry.unwrap().1));
            assert!(forwards.eq(std::iter::repeat_n(1, keys)));
            looks += 1;
        }
    });
    for (iter, expected) in [(&mut fresh, keys), (&mut started, keys - 2)] {
        let numbers: Vec<u64> = iter.map(|entry| number_in(&entry.unwrap().1)).collect();
        assert_eq!(numbers, vec![2; expected]);
    }
    assert_eq!(number_in(&db.get(key(0)).unwrap().unwrap()), 11);
}

/// Each batch writes its number to every key, so all values of one moment are one number.
#[test]
fn iterators_survive_replacement_of_their_files() {
    let directory = tempdir().unwrap();
    let db = small_options().max_open_files(2).open(directory.path().join("db")).unwrap();
    let keys = 100;
    let write = |number| write_everywhere(&db, keys, number, 300);
    write(0);
    let stop = AtomicBool::new(false);
    let running = || !stop.load(Ordering::SeqCst);
    let looks: [AtomicU64; 4] = Default::default();
    std::thread::scope(|scope| {
        // Reverse scans, some of them given up half way.
        scope.spawn(|| {
            let mut rng = Rng::new(1);
            while running() {
                let end = 1 + rng.below(keys);
                let wanted = if rng.chance(30) { rng.below(end) } else { end };
                let walk = db.range(..key(end)).rev().take(wanted).map(Result::unwrap);
                let entries: Vec<_> = walk.collect();
                let places = (0..end).rev().take(wanted).map(key);
                assert!(entries.iter().map(|(key, _)| key.to_vec()).eq(places));
                assert!(entries.windows(2).all(|pair| pair[0].1 == pair[1].1));
                looks[0].fetch_add(1, Ordering::SeqCst);
            }
        });
        // Short scans around a key, in both directions, and from both ends of one iterator.
        scope.spawn(|| {
            let mut rng = Rng::new(2);
            let mut newest = 0;
            while running() {
                let place = rng.below(keys);
                let (at, _) = db.range(key(place)..).next().unwrap().unwrap();
                let (before, value) = db.range(..=key(place)).next_back().unwrap().unwrap();
                assert!(at == *key(place) && before == at);
                assert!(number_in(&value) >= newest, "back in time");
                newest = number_in(&value);
                let mut walk = db.range(key(place)..key(place + 9));
                let (first, last) = (walk.next(), walk.next_back());
                let numbers = [first, last].into_iter().flatten();
                let numbers: Vec<_> = numbers.map(|entry| number_in(&entry.unwrap().1)).collect();
                assert_eq!(numbers, vec![numbers[0]; (keys - place).min(2)]);
                looks[1].fetch_add(1, Ordering::SeqCst);
            }
        });
        // Snapshots and iterators of several moments, dropped in any order, read or not.
        scope.spawn(|| {
            let mut rng = Rng::new(3);
            let mut held = Vec::new();
            while running() {
                let snapshot = db.snapshot();
                let number = number_in(&snapshot.get(key(0)).unwrap().unwrap());
                let iter = snapshot.range(key(rng.below(keys))..);
                held.push((snapshot, iter, number));
                if held.len() > 4 {
                    let (snapshot, iter, number) = held.swap_remove(rng.below(5));
                    let iter = rng.chance(50).then_some(iter);
                    for place in [rng.below(keys), rng.below(keys)] {
                        let found = snapshot.get(key(place)).unwrap().unwrap();
                        assert_eq!(number_in(&found), number, "it moved");
                    }
                    drop(snapshot);
                    // An iterator outlives its snapshot.
                    for entry in iter.into_iter().flatten() {
                        assert_eq!(number_in(&entry.unwrap().1), number, "it moved");
                    }
                }
                looks[2].fetch_add(1, Ordering::SeqCst);
            }
        });
        // Everything that replaces or removes files, and `verify`.
        scope.spawn(|| {
            let mut rng = Rng::new(4);
            while running() {
                match rng.below(5) {
                    0 => db.flush().unwrap(),
                    1 => db.compact_range(key(rng.below(keys))..).unwrap(),
                    2 => drop(db.rebuild_filters(FilterRebuild::All).unwrap()),
                    3 => db.sync().unwrap(),
                    _ => {
                        let report = db.verify(|_| {}).unwrap();
                        assert!(report.is_sound(), "{report}");
                    }
                }
                looks[3].fetch_add(1, Ordering::SeqCst);
            }
        });
        let least = || looks.iter().map(|looks| looks.load(Ordering::SeqCst)).min();
        let deadline = Instant::now() + RUN;
        (1..).take_while(|_| least() < Some(20) && Instant::now() < deadline).for_each(write);
        stop.store(true, Ordering::SeqCst);
    });
    db.compact_range(..).unwrap();
    let stats = db.stats();
    assert!(stats.flushes > 1 && stats.compactions > 1 && stats.snapshots == 0, "{stats}");
    assert_eq!(stats.total().entries, keys as u64, "old versions that nobody sees any more");
}

#[test]
fn close_ends_reads_but_not_iterators() {
    for round in 0..8u64 {
        let env = MemEnv::new();
        let db = open(&env, &small_options()).unwrap();
        let keys = 300;
        for place in 0..keys {
            db.put(key(place), bytes(7, 200)).unwrap();
        }
        let started = Barrier::new(4);
        let looks = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for reader in 0..3 {
                let (db, started, looks) = (&db, &started, &looks);
                scope.spawn(move || {
                    let mut before = db.iter();
                    started.wait();
                    let outcome = (0..).find_map(|look| {
                        let place = look * 7 % keys;
                        let outcome = match reader {
                            0 => {
                                db.get(key(place)).map(|value| value.map(|value| number_in(&value)))
                            }
                            1 => db.multi_get([key(place)]).map(|mut values| {
                                values.pop().flatten().map(|value| number_in(&value))
                            }),
                            _ => match db.range(key(place)..).rev().last() {
                                Some(entry) => entry.map(|(_, value)| Some(number_in(&value))),
                                None => Ok(None),
                            },
                        };
                        match outcome {
                            Ok(found) => {
                                assert_eq!(found, Some(7));
                                looks.fetch_add(1, Ordering::SeqCst);
                                None
                            }
                            Err(error) => Some(error),
                        }
                    });
                    assert!(matches!(outcome, Some(Error::Closed)), "{outcome:?}");
                    assert!(before.by_ref().all(|entry| number_in(&entry.unwrap().1) == 7));
                });
            }
            started.wait();
            // Closes during the first reads of the threads, and later.
            until(|| looks.load(Ordering::SeqCst) >= round * 100);
            db.close().unwrap();
        });
        drop(db);
        let db = open(&env, &small_options()).expect("nobody reads any more");
        assert_eq!(db.iter().map(Result::unwrap).count(), keys);
    }
}

#[test]
fn batches_are_seen_whole() {
    let db = open(&MemEnv::new(), &small_options()).unwrap();
    let other = db.keyspace("other").unwrap();
    let (stop, sides) = (AtomicBool::new(false), 20);
    let looks: [AtomicU64; 2] = Default::default();
    // Each batch writes to both keyspaces.
    let write = |number| {
        let mut batch = WriteBatch::new();
        for side in 0..sides {
            batch.put(key(side), bytes(number, 50));
            batch.in_keyspace(&other).put(key(side), bytes(number, 50));
        }
        db.write(batch).unwrap();
    };
    write(0);
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (write, stop) = (&write, &stop);
            scope.spawn(move || {
                for number in 1.. {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    write(number * 2 + writer);
                }
            });
        }
        for (reader, looks) in looks.iter().enumerate() {
            let (db, other, stop) = (&db, &other, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    looks.fetch_add(1, Ordering::SeqCst);
                    let snapshot = db.snapshot();
                    let in_other = snapshot.in_keyspace(other);
                    let numbers: Vec<u64> = if reader == 0 {
                        let get =
                            |of: &Snapshot, side| number_in(&of.get(key(side)).unwrap().unwrap());
                        let pair = |side| [get(&snapshot, side), get(&in_other, side)];
                        (0..sides).rev().flat_map(pair).collect()
                    } else {
                        let entries = snapshot.iter().chain(in_other.iter());
                        entries.map(|entry| number_in(&entry.unwrap().1)).collect()
                    };
                    assert_eq!(numbers, vec![numbers[0]; 2 * sides]);
                    // Each scan without a snapshot sees batches whole too.
                    let numbers: Vec<u64> =
                        other.iter().map(|entry| number_in(&entry.unwrap().1)).collect();
                    assert_eq!(numbers, vec![numbers[0]; sides]);
                }
            });
        }
        let flushes = || db.stats().flushes;
        until(|| flushes() > 2 && looks.iter().all(|looks| looks.load(Ordering::SeqCst) > 300));
        stop.store(true, Ordering::SeqCst);
    });
}

/// A batch writes all keys of a round and one more, a range delete removes them, and sometimes the
/// next batch deletes and writes at once. Nobody sees a part of a round, or two rounds.
#[test]
fn deleted_ranges_vanish_at_once() {
    let options = small_options().level0_compaction_trigger(1);
    let db = open(&MemEnv::new(), &options).unwrap();
    let (stop, keys) = (AtomicBool::new(false), 40);
    let looks: [AtomicU64; 3] = Default::default();
    let running = || !stop.load(Ordering::SeqCst);
    let is_whole = |entries: &[(siftdb::Key, siftdb::Value)]| {
        let numbers: Vec<u64> = entries.iter().map(|(_, value)| number_in(value)).collect();
        assert!(numbers.is_empty() || numbers == vec![numbers[0]; keys], "{numbers:?}");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut rng = Rng::new(3);
            for number in 1.. {
                if !running() {
                    return;
                }
                let mut batch = WriteBatch::new();
                if rng.chance(30) {
                    batch.delete_range(..);
                } else {
                    db.delete_range(key(0)..key(keys)).unwrap();
                }
                (0..keys).for_each(|place| _ = batch.put(key(place), bytes(number, 150)));
                db.write(batch).unwrap();
                if rng.chance(5) {
                    db.compact_range(..).unwrap();
                }
            }
        });
        for (reader, looks) in looks.iter().enumerate() {
            let (db, running, is_whole) = (&db, &running, &is_whole);
            scope.spawn(move || {
                while running() {
                    let snapshot = db.snapshot();
                    let found: Vec<_> = match reader {
                        0 => db.iter().map(Result::unwrap).collect(),
                        1 => db.iter().rev().map(Result::unwrap).collect(),
                        _ => snapshot.iter().map(Result::unwrap).collect(),
                    };
                    is_whole(&found);
                    let held: Vec<_> = snapshot.iter().map(Result::unwrap).collect();
                    is_whole(&held);
                    let values = snapshot.multi_get((0..keys).map(key)).unwrap();
                    assert!(values.iter().flatten().eq(held.iter().map(|(_, value)| value)));
                    let first = snapshot.get(key(0)).unwrap();
                    assert_eq!(first.as_ref(), held.first().map(|(_, value)| value));
                    looks.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let flushes = || db.stats().flushes;
        until(|| flushes() > 4 && looks.iter().all(|looks| looks.load(Ordering::SeqCst) > 200));
        stop.store(true, Ordering::SeqCst);
    });
    assert!(looks.into_iter().all(|looks| looks.into_inner() > 20));
}

#[test]
fn concurrent_writers_share_a_group() {
    let directory = tempdir().unwrap();
    let db = Options::new().open(directory.path().join("db")).unwrap();
    let (writers, batches) = (8, 60);
    let write_all = || {
        std::thread::scope(|scope| {
            for writer in 0..writers {
                let db = db.clone();
                scope.spawn(move || {
                    for number in 0..batches {
                        let mut batch = WriteBatch::new();
                        let place = writer * batches + number;
                        batch.put(key(place), bytes(place as u64, 20)).delete("absent");
                        db.write_with(batch, &WriteOptions::new().sync(number % 2 == 0)).unwrap();
                    }
                });
            }
        });
    };
    write_all();
    let (mut rounds, deadline) = (1, Instant::now() + RUN);
    // The system decides whether threads meet. If a sync costs nothing, they may not.
    while db.stats().write_groups == db.stats().batches && Instant::now() < deadline {
        write_all();
        rounds += 1;
    }
    let stats = db.stats();
    let total = (rounds * writers * batches) as u64;
    assert_eq!((stats.batches, stats.entries), (total, 2 * total));
    assert!(stats.write_groups < total, "nobody ever shared a group");
    assert!(stats.write_groups >= total / writers as u64);
    assert!(stats.wal_syncs <= total / 2 + 1, "{} syncs", stats.wal_syncs);
    for place in 0..writers * batches {
        assert_eq!(number_in(&db.get(key(place)).unwrap().unwrap()), place as u64);
    }
}

#[test]
fn lookups_are_counted_exactly_under_threads() {
    let db = open(&MemEnv::new(), &small_options()).unwrap();
    for place in 0..1000 {
        db.put(key(place * 2), bytes(place as u64, 60)).unwrap();
    }
    db.compact_range(..).unwrap();
    let before = db.stats();
    let (threads, gets) = (6u64, 20_000u64);
    // No thread ends before the last one has begun.
    let begun = Barrier::new(threads as usize);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (db, begun) = (&db, &begun);
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                begun.wait();
                for get in 0..gets {
                    let place = rng.below(999) * 2 + usize::from(get % 2 == 1);
                    assert_eq!(db.get(key(place)).unwrap().is_some(), get % 2 == 0);
                }
            });
        }
    });
    let stats = db.stats().since(&before);
    assert_eq!((stats.gets, stats.gets_found), (threads * gets, threads * gets / 2));
    let total = stats.total();
    assert_eq!(total.true_positives, threads * gets / 2);
    // Absent keys may fall between two tables, where no filter is asked.
    assert!(total.negatives + total.false_positives <= threads * gets / 2);
    assert!(total.negatives + total.false_positives >= threads * gets / 3);
    assert_eq!(total.data_blocks(), total.true_positives + total.false_positives);
}

#[test]
fn close_keeps_acknowledged_concurrent_writes() {
    for round in 0..8 {
        let env = MemEnv::with_log();
        let db = open(&env, &small_options()).unwrap();
        let acknowledged: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for (writer, acknowledged) in acknowledged.iter().enumerate() {
                let db = db.clone();
                scope.spawn(move || {
                    for number in 1.. {
                        match db.put(format!("{writer}-{number:08}"), bytes(number, 200)) {
                            Ok(()) => acknowledged.store(number, Ordering::SeqCst),
                            Err(Error::Closed) => return,
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
            let written =
                || acknowledged.iter().map(|last| last.load(Ordering::SeqCst)).sum::<u64>();
            until(|| written() > 50 + 200 * round as u64);
            db.close().unwrap();
            db.close().expect("a second close does nothing");
        });
        for refused in [db.get("k").map(drop), db.flush(), db.sync(), db.compact_range(..)] {
            assert!(matches!(refused, Err(Error::Closed)), "{refused:?}");
        }
        assert!(matches!(db.iter().next(), Some(Err(Error::Closed))));
        drop(db);
        // A close is durable: power may fail now.
        let db = open(&env.power_cut(), &small_options()).unwrap();
        for (writer, acknowledged) in acknowledged.iter().enumerate() {
            let last = acknowledged.load(Ordering::SeqCst);
            let found = db.prefix(format!("{writer}-")).map(|entry| entry.unwrap().0);
            let expected = (1..=last).map(|number| format!("{writer}-{number:08}").into_bytes());
            assert!(found.map(|key| key.into_vec()).eq(expected), "writer {writer}");
        }
    }
}

/// Closing releases the lock last: after the workers, after compactions that a caller asked for,
/// and after the end of the log.
#[test]
fn no_file_changes_after_unlock() {
    for round in 0..20 {
        let env = MemEnv::with_log();
        let db = open(&env, &small_options()).unwrap();
        let fill = |number| -> siftdb::Result<()> {
            (0..300).try_for_each(|place| db.put(key(place), bytes(number, 300)))
        };
        fill(0).unwrap();
        let (closed, filled) = (AtomicBool::new(false), AtomicU64::new(0));
        let next = std::thread::scope(|scope| {
            let next = scope.spawn(|| {
                let path = Path::new(HOME).join("LOCK");
                loop {
                    let last_try = closed.load(Ordering::SeqCst);
                    match env.lock(&path, LockMode::Exclusive) {
                        Ok(lock) => return Some((lock, env.log_len())),
                        Err(_) if last_try => return None,
                        Err(_) => std::hint::spin_loop(),
                    }
                }
            });
            let writer = scope.spawn(|| {
                let ended = (1..).find_map(|number| {
                    filled.store(number, Ordering::SeqCst);
                    fill(number).err()
                });
                assert!(matches!(ended, Some(Error::Closed)), "{ended:?}");
            });
            let rebuilder = scope.spawn(|| {
                let ended = (1..).find_map(|_| db.rebuild_filters(FilterRebuild::All).err());
                assert!(matches!(ended, Some(Error::Closed)), "{ended:?}");
            });
            until(|| filled.load(Ordering::SeqCst) > round / 2);
            db.close().unwrap();
            // A write that had begun may look at a view, which keeps the lock, until it returns.
            writer.join().unwrap();
            rebuilder.join().unwrap();
            closed.store(true, Ordering::SeqCst);
            next.join().unwrap()
        });
        let (_lock, calls) = next.expect("closed, and nobody reads");
        assert_eq!(env.log_text()[calls..], [""; 0], "round {round}");
    }
}

#[test]
fn dropping_keeps_acknowledged_writes() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("db");
    for round in 0..5 {
        let db = small_options().open(&path).unwrap();
        for place in 0..round * 100 {
            assert_eq!(number_in(&db.get(key(place)).unwrap().unwrap()), place as u64);
        }
        for place in round * 100..(round + 1) * 100 {
            db.put(key(place), bytes(place as u64, 400)).unwrap();
        }
    }
}

#[test]
fn the_last_reader_releases_the_lock() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("db");
    let db = small_options().open(&path).unwrap();
    db.put("k", "v").unwrap();
    let is_locked = || matches!(small_options().open(&path), Err(Error::Locked { .. }));
    assert!(is_locked());
    let (snapshot, mut iter) = (db.snapshot(), db.iter());
    db.close().unwrap();
    assert!(is_locked(), "a snapshot and an iterator still read");
    assert_eq!(snapshot.get("k").unwrap().unwrap(), "v");
    drop(snapshot);
    assert!(is_locked(), "an iterator still reads");
    assert_eq!(iter.next().unwrap().unwrap().1, "v");
    drop(iter);
    drop(db);
    let again = small_options().open(&path).unwrap();
    assert_eq!(again.get("k").unwrap().unwrap(), "v");
    again.close().unwrap();
    let third = small_options().open(&path).expect("closed, and nobody reads");
    third.close().unwrap();
    drop(again);
}

#[test]
fn memory_disks_have_separate_locks() {
    let (first, second) = (MemEnv::with_log(), MemEnv::with_log());
    let _one = open(&first, &small_options()).unwrap();
    let _two = open(&second, &small_options()).unwrap();
    assert!(matches!(small_options().env(as_env(&first)).open("/db"), Err(Error::Locked { .. })));
}
