//! Resources that a database takes: descriptors, threads, memory, disk space. Each test runs in a
//! process of its own, with its own limits and counts.
//!
//! `SIFTDB_SOAK_SECONDS` sets how long memory is watched.

use crate::support::alone::{FIGURES, alone};
use crate::support::data::{absent_key, bytes, key};
use crate::support::rng::{Rng, setting};
use crate::support::stores::{scan, scan_back, small_options};
use siftdb::keys::encode;
use siftdb::{Db, Error, Filter, FilterLayout, FilterRebuild, Options, WriteBatch, WriteOptions};
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tempfile::{TempDir, tempdir, tempdir_in};

/// A directory in memory if the system has one, because the cost of a sync does not matter here.
fn quick_directory() -> TempDir {
    tempdir_in("/dev/shm").or_else(|_| tempdir()).unwrap()
}

/// The number of entries of `/proc/self/fd` or `task`. The former includes the descriptor that
/// lists them.
fn count_of(what: &str) -> usize {
    fs::read_dir(Path::new("/proc/self").join(what)).unwrap().count()
}

/// Small tables, no cache, and as many descriptors as the default allows.
fn many_tables() -> Options {
    small_options()
        .block_cache_bytes(0)
        .snappy(false)
        .level_base_bytes(256 << 10)
        .max_open_files(256)
}

/// The files that this test opens itself, to see that some are left.
fn can_open(files: usize) {
    let opened: Vec<_> = (0..files).map(|_| File::open("/dev/null")).collect();
    if let Some(Err(error)) = opened.iter().find(|file| file.is_err()) {
        panic!("the process has no descriptors left: {error}");
    }
}

fn fill(db: &Db, keys: usize, round: u64) {
    std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || {
                for place in (thread..keys).step_by(2) {
                    let value = bytes(round << 32 | place as u64, 400);
                    let options = WriteOptions::new().sync(place % 1000 == 0);
                    let mut batch = WriteBatch::new();
                    batch.put(key(place), value);
                    db.write_with(batch, &options).unwrap();
                }
            });
        }
        for _ in 0..3 {
            scope.spawn(move || {
                for place in (0..keys).step_by(7) {
                    db.get(key(place)).unwrap();
                    assert_eq!(db.get(absent_key(place)).unwrap(), None);
                }
                db.iter().step_by(10).for_each(|entry| drop(entry.unwrap()));
            });
        }
    });
}

fn check_filled(db: &Db, keys: usize, round: u64) {
    for place in 0..keys {
        let value = db.get(key(place)).unwrap().unwrap();
        assert_eq!(value, bytes(round << 32 | place as u64, 400));
    }
    assert_eq!(scan(db).unwrap().len(), keys);
    assert_eq!(scan_back(db).unwrap().len(), keys);
}

#[test]
fn hundreds_of_tables_need_64_descriptors() {
    const KEYS: usize = 12_000;
    let name = "resources::hundreds_of_tables_need_64_descriptors";
    alone(name, "ulimit -n 64", || {
        let opened: Vec<_> = (0..100).map(|_| File::open("/dev/null")).collect();
        assert!(opened.iter().any(Result::is_err), "no limit");
        drop(opened);
        let directory = quick_directory();
        let path = directory.path().join("db");
        let db = many_tables().open(&path).unwrap();
        for round in 0..2 {
            fill(&db, KEYS, round);
            db.compact_range(..).unwrap();
            check_filled(&db, KEYS, round);
            can_open(10);
        }
        let tables = db.stats().total().tables;
        assert!(tables > 300, "{tables} tables");
        // Another database takes its share.
        let other = many_tables().open(directory.path().join("other")).unwrap();
        fill(&other, KEYS / 4, 0);
        other.compact_range(..).unwrap();
        check_filled(&other, KEYS / 4, 0);
        check_filled(&db, KEYS, 1);
        assert!(other.verify(|_| {}).unwrap().is_sound());
        assert!(db.verify(|_| {}).unwrap().is_sound());
        other.close().unwrap();
        db.close().unwrap();
        drop((db, other));
        let db = many_tables().open_read_only(&path).unwrap();
        check_filled(&db, KEYS, 1);
        drop(db);
        fs::remove_file(path.join("CURRENT")).unwrap();
        assert!(many_tables().repair(&path).unwrap().saved_everything());
        let db = many_tables().open(&path).unwrap();
        check_filled(&db, KEYS, 1);
        fill(&db, KEYS, 2);
        db.close().unwrap();
        println!("{FIGURES}{tables} tables with 64 descriptors");
    });
}

/// A database with a table and a log, closed.
fn tiny(path: &Path) {
    let db = small_options().open(path).unwrap();
    db.put("a", "1").unwrap();
    db.flush().unwrap();
    db.put("b", "2").unwrap();
    db.close().unwrap();
}

#[test]
fn closed_databases_leave_no_thread_or_descriptor() {
    let name = "resources::closed_databases_leave_no_thread_or_descriptor";
    alone(name, "", || {
        let directory = quick_directory();
        let at = |number: usize| directory.path().join(format!("db{number}"));
        let (files, threads) = (count_of("fd"), count_of("task"));
        let check = |what: &str| {
            // A joined thread leaves its directory entry a moment later.
            let deadline = Instant::now() + Duration::from_secs(30);
            while count_of("task") != threads && Instant::now() < deadline {
                std::thread::yield_now();
            }
            assert_eq!((count_of("fd"), count_of("task")), (files, threads), "{what}");
        };
        for number in 0..200 {
            tiny(&at(number));
        }
        check("200, one after the other");

        let open = |number: usize| small_options().open(at(number)).unwrap();
        let workers = 1 + 3;
        let many: Vec<Db> = (0..40).map(open).collect();
        for db in &many {
            db.put("c", "3").unwrap();
            db.compact_range(..).unwrap();
            assert_eq!(db.get("a").unwrap().unwrap(), "1");
        }
        assert_eq!(count_of("task"), threads + workers * many.len(), "one flushes, three compact");
        many.iter().for_each(|db| db.sync_ticket().wait().unwrap());
        let with_syncs = threads + (workers + 1) * many.len();
        assert_eq!(count_of("task"), with_syncs, "and one that syncs for tickets");
        many.iter().step_by(2).for_each(|db| db.close().unwrap());
        drop(many);
        check("40 at once, half of them closed before they were dropped");

        for number in 0..20 {
            let db = open(number);
            db.put("d", "4").unwrap();
            let (clone, snapshot, mut iter) = (db.clone(), db.snapshot(), db.iter());
            match number % 3 {
                0 => drop(db),
                1 => drop((db, clone)),
                _ => db.close().unwrap(),
            }
            iter.next().unwrap().unwrap();
            assert_eq!(snapshot.get("a").unwrap().unwrap(), "1");
        }
        check("iterators and snapshots outlived them");

        for number in 0..20 {
            let db = small_options().open_read_only(at(number)).unwrap();
            assert_eq!(db.get("b").unwrap().unwrap(), "2");
        }
        check("read-only");

        for (number, end) in ["CURRENT", "MANIFEST", ".sst", ".wal"].iter().enumerate() {
            let found = fs::read_dir(at(number)).unwrap().map(|entry| entry.unwrap().path());
            let named: Vec<_> = found.filter(|path| path.to_str().unwrap().contains(end)).collect();
            assert!(!named.is_empty(), "{end}");
            for path in &named {
                fs::write(path, "damaged").unwrap();
            }
            for _ in 0..10 {
                assert!(small_options().open(at(number)).is_err(), "{end}");
                assert!(small_options().open_read_only(at(number)).is_err(), "{end}");
            }
        }
        let held = open(9);
        for _ in 0..10 {
            assert!(matches!(small_options().open(at(9)), Err(Error::Locked { .. })));
            assert!(small_options().write_buffer_bytes(0).open(at(8)).is_err());
            assert!(small_options().create_if_missing(false).open(at(999)).is_err());
            assert!(small_options().error_if_exists(true).open(at(8)).is_err());
        }
        drop(held);
        check("openings that failed");
    });
}

/// Bytes of anonymous memory of this process.
fn memory_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// A transaction that takes as much memory as it may, and is refused.
fn large_transaction(db: &Db, place: usize) {
    let transaction = db.transaction();
    let refused = (place..).find_map(|n| transaction.put(key(n), bytes(n as u64, 1000)).err());
    assert!(matches!(refused, Some(Error::TransactionTooLarge { .. })), "{refused:?}");
    let stats = db.stats();
    assert!(stats.transaction_bytes > stats.transaction_bytes_max, "{stats}");
    drop(transaction);
}

/// The limit is what the options allow for write buffers and cache. Half as much again is for
/// memtables that were just flushed and for what the allocator loses to fragmentation. Another 8
/// MiB are for tables being written and read. The allocator has one arena, because the number of
/// its arenas does not depend on siftdb.
#[test]
fn memory_stays_within_the_options_under_mixed_load() {
    const MEMORY: u64 = 16 << 20;
    const KEYS: usize = 300_000;
    let name = "resources::memory_stays_within_the_options_under_mixed_load";
    alone(name, "export MALLOC_ARENA_MAX=1", || {
        let directory = quick_directory();
        let before = memory_bytes();
        let options =
            Options::new().memory_bytes(MEMORY).table_bytes(4 << 20).level_base_bytes(16 << 20);
        let db = options.open(directory.path().join("db")).unwrap();
        let stop = AtomicBool::new(false);
        let most = AtomicU64::new(0);
        let operations = AtomicU64::new(0);
        let seconds = setting("SIFTDB_SOAK_SECONDS", 3) as u64;
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (db, stop, operations) = (&db, &stop, &operations);
                scope.spawn(move || {
                    let mut rng = Rng::new(thread);
                    while !stop.load(Ordering::Relaxed) {
                        let place = rng.below(KEYS);
                        match (thread, rng.below(100)) {
                            (0..2, 0..10) => db.delete(key(place)).unwrap(),
                            (0..2, _) => db.put(key(place), bytes(place as u64, 200)).unwrap(),
                            (2, 0..1) => large_transaction(db, place),
                            (2, 1..50) => drop(db.get(key(place)).unwrap()),
                            (2, _) => assert_eq!(db.get(absent_key(place)).unwrap(), None),
                            (_, 0..50) => {
                                let entries = db.range(key(place)..).take(100);
                                entries.for_each(|entry| drop(entry.unwrap()));
                            }
                            _ => drop(db.multi_get((0..50).map(|n| key(place + n))).unwrap()),
                        }
                        operations.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let deadline = Instant::now() + Duration::from_secs(seconds);
            while Instant::now() < deadline {
                most.fetch_max(memory_bytes(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(5));
            }
            stop.store(true, Ordering::Relaxed);
        });
        let stats = db.stats();
        let used = most.into_inner() - before;
        println!(
            "{FIGURES}{} KiB at most, {} by the options; {} operations, {} flushes, {} tables",
            used >> 10,
            MEMORY >> 10,
            operations.into_inner(),
            stats.flushes,
            stats.total().tables,
        );
        assert!(used < MEMORY + MEMORY / 2 + (8 << 20), "{used} bytes, {MEMORY} by the options");
    });
}

/// Bytes of entries in the log that [`unclosed`] leaves.
const LOG: u64 = 40 << 20;
/// Entries in it.
const LOG_ENTRIES: usize = (LOG / 1000) as usize;
/// The write buffer of [`large_log`].
const BUFFER: usize = 2 << 20;

fn large_log() -> Options {
    Options::new().write_buffer_bytes(BUFFER).block_cache_bytes(1 << 20)
}

/// Where a process of its own finds the database of [`unclosed`].
const UNCLOSED: &str = "SIFTDB_TEST_UNCLOSED";

/// Runs `work` in a process of its own, on a database as the death of its process leaves it, with
/// all entries in one log that ends in gigabytes of zeros. Another process writes it: memory that
/// a large memtable took and freed would hide what `work` takes.
fn unclosed(name: &str, work: impl FnOnce(&Path)) {
    if let Some(path) = std::env::var_os(UNCLOSED) {
        return alone(name, "", || work(Path::new(&path)));
    }
    let directory = quick_directory();
    let (path, copy) = (directory.path().join("db"), directory.path().join("copy"));
    let large = Options::new().write_buffer_bytes(2 * LOG as usize).open(&path).unwrap();
    (0..LOG_ENTRIES).for_each(|place| large.put(key(place), bytes(place as u64, 1000)).unwrap());
    fs::create_dir(&copy).unwrap();
    let mut logs = Vec::new();
    for entry in fs::read_dir(&path).unwrap().map(Result::unwrap) {
        let to = copy.join(entry.file_name());
        // A log that was made ahead of need is empty.
        let is_begun = fs::copy(entry.path(), &to).unwrap() > 0;
        logs.extend((is_begun && to.to_str().unwrap().ends_with(".wal")).then_some(to));
    }
    large.close().unwrap();
    let [log] = &logs[..] else { panic!("{logs:?}") };
    File::options().append(true).open(log).unwrap().set_len(2 << 30).unwrap();
    alone(name, &format!("export MALLOC_ARENA_MAX=1 {UNCLOSED}='{}'", copy.display()), || {});
}

fn has_all(db: &Db) -> bool {
    (0..LOG_ENTRIES).step_by(97).all(|place| db.get(key(place)).unwrap().is_some())
}

/// Runs `work`; the most memory that it takes, too.
fn most_memory<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let (before, most, done) = (memory_bytes(), AtomicU64::new(0), AtomicBool::new(false));
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                most.fetch_max(memory_bytes(), Ordering::Relaxed);
                std::thread::yield_now();
            }
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        result
    });
    (result, most.into_inner().saturating_sub(before))
}

/// Runs `work`, which must take little more memory than a write buffer and what writing a table
/// takes, however large its input is.
fn in_little_memory<T>(work: impl FnOnce() -> T) -> T {
    let (result, used) = most_memory(work);
    println!("{FIGURES}{} KiB for {} KiB of log", used >> 10, LOG >> 10);
    assert!(used < 3 * BUFFER as u64 + (8 << 20), "{used} bytes");
    result
}

#[test]
fn recovery_takes_a_write_buffer_of_memory() {
    unclosed("resources::recovery_takes_a_write_buffer_of_memory", |path| {
        let db = in_little_memory(|| large_log().open(path)).unwrap();
        assert!(db.stats().flushes >= LOG / (2 * BUFFER as u64) && has_all(&db));
    });
}

#[test]
fn repair_takes_a_write_buffer_of_memory() {
    unclosed("resources::repair_takes_a_write_buffer_of_memory", |path| {
        fs::remove_file(path.join("CURRENT")).unwrap();
        let report = in_little_memory(|| large_log().repair(path)).unwrap();
        assert_eq!(report.log_entries, LOG_ENTRIES as u64);
        assert!(has_all(&large_log().open(path).unwrap()));
    });
}

/// Each value begins a run of its own, and a merge of runs holds an entry of each.
#[test]
fn unsorted_loads_of_large_values_take_little_memory() {
    const VALUES: usize = 60;
    let name = "resources::unsorted_loads_of_large_values_take_little_memory";
    alone(name, "export MALLOC_ARENA_MAX=1 MALLOC_MMAP_THRESHOLD_=65536", || {
        let directory = quick_directory();
        let db = large_log().open(directory.path().join("db")).unwrap();
        let value = |place: usize| bytes(place as u64, BUFFER / 2 + 1);
        let places = (0..VALUES).map(|n| n * 37 % VALUES);
        let entries = places.map(|place| (key(place), value(place)));
        let (report, used) = most_memory(|| db.ingest_unsorted(entries));
        println!("{FIGURES}{} KiB for {VALUES} values of a mebibyte", used >> 10);
        assert!(used < 24 << 20, "{used} bytes");
        assert_eq!(report.unwrap().entries, VALUES as u64);
        for place in 0..VALUES {
            assert_eq!(db.get(key(place)).unwrap().unwrap(), value(place));
        }
    });
}

/// The keys of a filter take more memory than tiny entries take in a table.
#[test]
fn filters_of_tiny_entries_are_built_in_little_memory() {
    const MEMORY: u64 = 8 << 20;
    const KEYS: u64 = 4_000_000;
    let name = "resources::filters_of_tiny_entries_are_built_in_little_memory";
    alone(name, "export MALLOC_ARENA_MAX=1 MALLOC_MMAP_THRESHOLD_=65536", || {
        let directory = quick_directory();
        let options = Options::new().memory_bytes(MEMORY).compaction_threads(1);
        let options = options.filter(Filter::bloom(10.0).layout(FilterLayout::Full));
        let db = options.open(directory.path().join("db")).unwrap();
        let entries = (0..KEYS).map(|n| (encode(&n), [0u8; 0]));
        let (_, loading) = most_memory(|| db.ingest(entries).unwrap());
        let (_, rewriting) = most_memory(|| db.rebuild_filters(FilterRebuild::All).unwrap());
        println!("{FIGURES}{} KiB to load, {} KiB to rewrite", loading >> 10, rewriting >> 10);
        for used in [loading, rewriting] {
            assert!(used < MEMORY + MEMORY / 2 + (8 << 20), "{used} bytes");
        }
        assert!((0..KEYS).step_by(997).all(|n| db.get(encode(&n)).unwrap().is_some()));
    });
}

/// What a watch has read of a log takes more memory than it takes in the log.
#[test]
fn a_watch_of_tiny_entries_takes_little_memory() {
    const BATCHES: u32 = 4_000;
    let name = "resources::a_watch_of_tiny_entries_takes_little_memory";
    alone(name, "export MALLOC_ARENA_MAX=1", || {
        let directory = quick_directory();
        let db = Options::new().open(directory.path().join("db")).unwrap();
        let mut watch = db.watch().unwrap();
        for batch in 0..BATCHES {
            let mut tiny = WriteBatch::new();
            (0..100).for_each(|n| _ = tiny.put((100 * batch + n).to_le_bytes(), ""));
            db.write(tiny).unwrap();
        }
        let next = || watch.next_timeout(Duration::ZERO).unwrap();
        let (found, used) = most_memory(|| std::iter::from_fn(next).count());
        println!("{FIGURES}{} KiB of changes", used >> 10);
        assert_eq!(found, 100 * BATCHES as usize);
        assert!(used < 4 << 20, "{used} bytes");
    });
}

/// docs/tuning.md, "Many keyspaces".
#[test]
fn a_keyspace_takes_the_memory_that_the_guide_says() {
    const KEYSPACES: usize = 1_000;
    let name = "resources::a_keyspace_takes_the_memory_that_the_guide_says";
    alone(name, "export MALLOC_ARENA_MAX=1", || {
        let directory = quick_directory();
        let db = Options::new().open(directory.path().join("db")).unwrap();
        let mut since = memory_bytes();
        let mut figure = |what: &str, most: u64| {
            let each = memory_bytes().saturating_sub(since) / KEYSPACES as u64;
            since = memory_bytes();
            println!("{FIGURES}{each} bytes of {what}");
            assert!(each < most, "{each} bytes of {what}");
        };
        let keyspaces: Vec<_> =
            (0..KEYSPACES).map(|n| db.keyspace(&format!("keyspace {n}")).unwrap()).collect();
        figure("a keyspace", 8 << 10);
        keyspaces.iter().for_each(|keyspace| keyspace.put("key", "value").unwrap());
        figure("a memtable", 9 << 10);
        let started = Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    started.wait();
                    keyspaces.iter().for_each(|keyspace| drop(keyspace.get("key").unwrap()));
                    started.wait();
                });
            }
        });
        figure("counters of eight threads", 8 * (3 << 10));
    });
}

/// A prelude that mounts a small file system in memory on `/mnt`, for this process only; `None` if
/// the system does not allow it.
fn small_disk() -> Option<String> {
    let mount = |how: &str, then: &str| {
        format!("exec {how} sh -c 'mount -t tmpfs -o size=12m none /mnt && {then}' \"$0\" \"$@\"")
    };
    let works = |how: &&str| {
        let tried = Command::new("sh").args(["-c", &mount(how, "true")]).output();
        tried.is_ok_and(|done| done.status.success())
    };
    let how = ["unshare -m", "unshare -rm"].into_iter().find(works)?;
    Some(mount(how, "exec \"$0\" \"$@\""))
}

/// The error says that the disk is full, directly or as the background error.
fn assert_full(error: &Error) {
    match error {
        Error::Io { source, .. } => assert_eq!(source.raw_os_error(), Some(28), "{error}"),
        Error::ReadOnly { cause } => assert_full(cause),
        error => panic!("{error}"),
    }
}

/// On a real file system; `a_full_disk_loses_nothing` tries every moment on a disk in
/// memory.
#[test]
fn a_full_disk_refuses_writes_until_reopened() {
    let name = "resources::a_full_disk_refuses_writes_until_reopened";
    let Some(prelude) = small_disk() else {
        println!("{name} is skipped: this system does not let a test mount a file system");
        return;
    };
    alone(name, &prelude, || {
        let (path, ballast) = (Path::new("/mnt/db"), Path::new("/mnt/ballast"));
        let options = || {
            let options = Options::new().write_buffer_bytes(256 << 10).manifest_bytes(1 << 10);
            options.table_bytes(256 << 10).level_base_bytes(1 << 20).level0_compaction_trigger(2)
        };
        let check = |db: &Db, counts: &[usize]| {
            for (writer, &count) in counts.iter().enumerate() {
                for number in 0..count {
                    let value = db.get(key(number * 3 + writer)).unwrap();
                    assert_eq!(value.unwrap(), bytes(number as u64, 3000));
                }
            }
            let found = scan(db).unwrap().len();
            let (least, most) = (counts.iter().sum(), counts.iter().sum::<usize>() + 3);
            assert!((least..=most).contains(&found), "{found} of {least}");
        };
        let mut counts = [0; 3];
        for round in 0..3 {
            fs::write(ballast, bytes(0, 6 << 20)).unwrap();
            let db = options().open(path).unwrap();
            std::thread::scope(|scope| {
                for (writer, count) in counts.iter_mut().enumerate() {
                    let db = &db;
                    scope.spawn(move || {
                        let sync = WriteOptions::new().sync(round % 2 == 1);
                        loop {
                            let mut batch = WriteBatch::new();
                            batch.put(key(*count * 3 + writer), bytes(*count as u64, 3000));
                            match db.write_with(batch, &sync) {
                                Ok(()) => *count += 1,
                                Err(error) => return assert_full(&error),
                            }
                        }
                    });
                }
            });
            check(&db, &counts);
            for refused in [db.put("more", "1"), db.flush(), db.compact_range(..), db.close()] {
                assert_full(&refused.unwrap_err());
            }
            drop(db);
            let db = options().open_read_only(path).unwrap();
            check(&db, &counts);
            drop(db);
            if let Err(error) = options().open(path) {
                assert_full(&error);
            }
            fs::remove_file(ballast).unwrap();
            let db = options().open(path).unwrap();
            check(&db, &counts);
            assert!(db.verify(|_| {}).unwrap().is_sound());
            // Makes room for the next round, by deletes and a compaction that need some themselves.
            let kept = counts.map(|count| count / 4);
            for (writer, count) in counts.iter().enumerate() {
                for number in kept[writer]..count + 1 {
                    db.delete(key(number * 3 + writer)).unwrap();
                }
            }
            db.compact_range(..).unwrap();
            counts = kept;
            check(&db, &counts);
            db.close().unwrap();
        }
    });
}
