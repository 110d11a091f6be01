//! `Db::verify` finds damage, names the file, and reports sound databases as sound.

use crate::support::data::key;
use crate::support::filters::{all_filters, layouts};
use crate::support::seal::{Named, Role, Table, role_of};
use crate::support::stores::{HOME, as_env, begun_logs, files_ending, name, open, small_options};
use siftdb::env::MemEnv;
use siftdb::inspect::{unchecked_logs, verify_table};
use siftdb::{Db, Error, Filter};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn fill(db: &Db) {
    for number in 0..3_000 {
        db.put(key(number), format!("value {number}")).unwrap();
    }
    db.compact_range(..).unwrap();
    for number in (0..3_000).step_by(5) {
        db.delete(key(number)).unwrap();
    }
    db.flush().unwrap();
    for number in 0..50 {
        db.put(key(number), "in the log").unwrap();
    }
}

fn sound(db: &Db, what: &str) -> siftdb::VerifyReport {
    let report = db.verify(|_| {}).unwrap();
    assert!(report.is_sound(), "{what}: {:?}", report.damage);
    report
}

#[test]
fn verify_reads_a_whole_sound_database() {
    for filter in all_filters() {
        let env = MemEnv::new();
        let options = small_options().auto_compaction(false).filter(filter.filter.clone());
        let db = open(&env, &options).unwrap();
        fill(&db);
        let report = sound(&db, &filter.name);
        let stats = db.stats().total();
        assert_eq!((report.tables, report.entries), (stats.tables, stats.entries));
        assert_eq!(report.table_bytes, stats.bytes);
        let asked = stats.filter_bytes > 0;
        assert_eq!(report.filter_probes, if asked { stats.entries } else { 0 }, "{}", filter.name);
        assert!(report.logs > 0 && report.log_records > 0);
        assert_eq!(report.log_entries, 50);
        db.close().unwrap();
        assert!(matches!(db.verify(|_| {}), Err(Error::Closed)));
        let reader = options.env(as_env(&env)).open_read_only(HOME).unwrap();
        let read = sound(&reader, &filter.name);
        assert_eq!((read.entries, read.log_entries), (report.entries, report.log_entries));
    }
}

#[test]
fn entries_that_are_only_in_logs_are_counted() {
    let env = MemEnv::new();
    let options = small_options().auto_compaction(false);
    let db = open(&env, &options).unwrap();
    let other = db.keyspace("other").unwrap();
    let counted = |reader: &Db| {
        let all = reader.verify(|_| {}).unwrap().log_entries;
        let found = unchecked_logs(&as_env(&env), Path::new(HOME)).unwrap();
        assert_eq!(found.entries, all);
        let other = reader.keyspace("other").unwrap().verify(|_| {}).unwrap().log_entries;
        (all, other)
    };
    assert_eq!(counted(&db), (0, 0));
    db.put("a", "1").unwrap();
    db.put("a", "2").unwrap();
    other.delete("b").unwrap();
    db.delete_range("c".."d").unwrap();
    assert_eq!(counted(&db), (4, 1));
    let follower = options.clone().env(as_env(&env)).open_follower(HOME).unwrap();
    assert_eq!(counted(&follower.moment()), (4, 1));
    db.close().unwrap();
    let reader = options.env(as_env(&env)).open_read_only(HOME).unwrap();
    assert_eq!(counted(&reader), (4, 1));
    drop(reader);
    let db = open(&env, &small_options()).unwrap();
    db.flush().unwrap();
    assert_eq!(counted(&db), (0, 0));
}

#[test]
fn verify_progress_reaches_the_total() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    fill(&db);
    let mut seen = Vec::new();
    db.verify(|progress| seen.push(*progress)).unwrap();
    assert!(seen.windows(2).all(|pair| {
        pair[0].bytes_done <= pair[1].bytes_done && pair[0].tables_done <= pair[1].tables_done
    }));
    let (first, last) = (seen[0], *seen.last().unwrap());
    assert_eq!((first.bytes_done, first.tables_done), (0, 0));
    assert_eq!((last.bytes_done, last.tables_done), (last.bytes, last.tables));
    assert!(seen.len() as u64 > last.tables * 3, "a call for each data block");
}

/// Changes a byte of each file while the database is open. `verify` names that file.
#[test]
fn verify_names_the_file_of_every_flip() {
    let env = MemEnv::new();
    let db = open(&env, &small_options().auto_compaction(false)).unwrap();
    fill(&db);
    // Filters are pinned and blocks are cached. `verify` must read the file all the same.
    db.iter().for_each(|entry| drop(entry.unwrap()));
    sound(&db, "before");
    // Wait until the background has removed the obsolete files of the flush and the compaction: a
    // log that disappeared between two flips of its bytes failed this test once.
    let in_use = || (1, db.stats().total().tables as usize);
    let started = Instant::now();
    while (begun_logs(&env).len(), files_ending(&env, ".sst").len()) != in_use() {
        assert!(started.elapsed() < Duration::from_secs(60), "{:?}", env.list_files());
        thread::yield_now();
    }
    let (mut tried, mut tables) = (0, 0);
    // The worker may be saving counters: to a temporary file, then to STATS.
    let is_checked = |path: &PathBuf| !["LOCK", "STATS"].iter().any(|other| path.ends_with(other));
    let all = env.list_files().into_iter().filter(is_checked);
    for path in all.filter(|path| !name(path).ends_with(".tmp")) {
        let good = env.read_file(&path).unwrap();
        // A log that was made ahead of need.
        if good.is_empty() {
            continue;
        }
        let used = good.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        let is_table = name(&path).ends_with(".sst");
        tables += usize::from(is_table);
        for at in (0..used).step_by((used / 25).max(1)) {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            env.write_file(&path, &bad);
            let report = db.verify(|_| {}).unwrap();
            let [error] = &report.damage[..] else {
                panic!("{} at {at}: {:?}", path.display(), report.damage)
            };
            let named = match error {
                Error::Corruption { path, .. } | Error::UnsupportedFormat { path, .. } => path,
                other => panic!("{other}"),
            };
            assert_eq!(named, &path, "{error}");
            tried += 1;
        }
        env.write_file(&path, &good);
    }
    assert!(tables >= 2 && tried > 100, "{tables}, {tried}");
    sound(&db, "undone");
}

#[test]
fn verify_finds_missing_cut_and_exchanged_files() {
    let env = MemEnv::new();
    let db = open(&env, &small_options().auto_compaction(false)).unwrap();
    fill(&db);
    let paths: Vec<PathBuf> = files_ending(&env, ".sst");
    let contents: Vec<_> = paths.iter().map(|path| env.read_file(path).unwrap()).collect();
    let found = |damaged: &[&PathBuf]| {
        let report = db.verify(|_| {}).unwrap();
        let named: Vec<PathBuf> = report
            .damage
            .iter()
            .map(|error| match error {
                Error::Corruption { path, .. }
                | Error::Missing { path, .. }
                | Error::Io { path, .. } => path.clone(),
                other => panic!("{other}"),
            })
            .collect();
        assert!(damaged.iter().all(|path| named.contains(path)), "{named:?}, {damaged:?}");
        assert_eq!(named.len(), damaged.len());
    };
    env.remove_file(&paths[0]);
    found(&[&paths[0]]);
    env.write_file(&paths[0], &contents[0][..contents[0].len() - 1]);
    found(&[&paths[0]]);
    env.write_file(&paths[0], &contents[1]);
    env.write_file(&paths[1], &contents[0]);
    found(&[&paths[0], &paths[1]]);
    env.write_file(&paths[0], &contents[0]);
    env.write_file(&paths[1], &contents[1]);
    let log = begun_logs(&env).pop().unwrap();
    let bytes = env.read_file(&log).unwrap();
    env.write_file(&log, &bytes[..bytes.len() / 2]);
    found(&[&log]);
    env.remove_file(&log);
    found(&[&log]);
    env.write_file(&log, &bytes);
    let manifest = Path::new(HOME).join("CURRENT");
    let current = env.read_file(&manifest).unwrap();
    env.remove_file(&manifest);
    found(&[&manifest]);
    env.write_file(&manifest, &current);
    sound(&db, "undone");
}

#[test]
fn verify_succeeds_during_writes_and_compactions() {
    let env = MemEnv::new();
    let db = open(&env, &small_options()).unwrap();
    let written = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..12_000 {
                db.put(key(number % 1_500), vec![number as u8; 40]).unwrap();
                written.store(number, Ordering::Relaxed);
            }
            written.store(usize::MAX, Ordering::Relaxed);
        });
        let mut rounds = 0;
        while written.load(Ordering::Relaxed) != usize::MAX || rounds < 3 {
            sound(&db, &format!("after {} writes", written.load(Ordering::Relaxed)));
            rounds += 1;
        }
    });
}

/// The filter of a table with all bits cleared, in the same format.
fn denying(named: &Named) -> Named {
    let mut named = named.clone();
    let encoded = |bytes: &mut Vec<u8>| {
        // Bits and one byte of probes, or lines and a trailer of five.
        let bits = if named.name.ends_with(b"leveldb.BuiltinBloomFilter2") { 1 } else { 5 };
        let end = bytes.len() - bits;
        bytes[..end].fill(0);
    };
    let block = &mut named.block.bytes;
    if named.name.starts_with(b"filter.") {
        let tail = block.len() - 5;
        let array = u32::from_le_bytes(block[tail..tail + 4].try_into().unwrap()) as usize;
        let place = |at: usize| {
            let at = array + 4 * at;
            u32::from_le_bytes(block[at..at + 4].try_into().unwrap()) as usize
        };
        let places: Vec<_> = (0..=(tail - array) / 4).map(place).collect();
        for window in places.windows(2) {
            let mut filter = block[window[0]..window[1]].to_vec();
            if !filter.is_empty() {
                encoded(&mut filter);
            }
            block[window[0]..window[1]].copy_from_slice(&filter);
        }
    } else if named.children.is_empty() {
        encoded(block);
    } else {
        named.children.iter_mut().for_each(|(_, child)| encoded(&mut child.bytes));
    }
    named
}

/// A wrong filter under checksums that hold, as a defect of a writer would leave it.
#[test]
fn verify_finds_a_filter_that_denies_keys() {
    for (name, layout) in layouts() {
        for filter in [Filter::bloom(10.0), Filter::leveldb_bloom(10.0), Filter::legacy_bloom(10.0)]
        {
            let env = MemEnv::new();
            let options = small_options().auto_compaction(false).filter(filter.layout(layout));
            let options = options.index_partition_bytes(0);
            let db = open(&env, &options).unwrap();
            fill(&db);
            db.close().unwrap();
            let path = files_ending(&env, ".sst").remove(0);
            let mut table = Table::take_apart(&env.read_file(&path).unwrap()).unwrap();
            let shared = as_env(&env);
            env.write_file(&path, &table.assemble());
            verify_table(&shared, &path).unwrap();
            for named in &mut table.named {
                if role_of(&named.name) != Role::Properties {
                    *named = denying(named);
                }
            }
            env.write_file(&path, &table.assemble());
            let error = verify_table(&shared, &path).unwrap_err();
            assert!(error.to_string().contains("denies"), "{name}: {error}");
            let db = open(&env, &options).unwrap();
            let report = db.verify(|_| {}).unwrap();
            assert_eq!(report.damage.len(), 1, "{name}: {:?}", report.damage);
        }
    }
}
