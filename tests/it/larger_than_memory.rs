//! What lookups read from the disk of a database that memory does not hold: a page for a present
//! key, nearly nothing for an absent one. The page cache is simulated, so the counts are exact.

use crate::support::data::{absent_key, key};
use crate::support::page_cache::{DiskReads, PageCacheEnv};
use crate::support::rng::Rng;
use crate::support::settled::{KEYS, fill, value};
use crate::support::stores::{HOME, as_env, files_ending};
use siftdb::env::{CountingEnv, MemEnv};
use siftdb::{Db, Options, ReadOptions};
use std::sync::Arc;

const LOOKUPS: usize = 20_000;

/// Fills `disk` with a database of a settled level and two tables of level 0, and opens it. Memory
/// for the two caches is a part of its data; a quarter of that is the block cache.
fn database(disk: &MemEnv, part: u64, random_bytes: usize) -> (PageCacheEnv, Db) {
    let memory_bytes = KEYS as u64 * 112 / part;
    let options = Options::new()
        .auto_compaction(false)
        .table_bytes(1 << 20)
        .block_cache_bytes(memory_bytes / 4);
    fill(disk, &options, key, random_bytes);
    let env = PageCacheEnv::new(as_env(disk), memory_bytes / 4 * 3);
    // Hints go through layers.
    let layer = CountingEnv::new(Arc::new(env.clone()));
    let db = options.env(Arc::new(layer)).open(HOME).unwrap();
    (env, db)
}

/// What an operation on a random key reads, once the caches are warm: how often it waits for the
/// disk, and pages.
fn reads_of(env: &PageCacheEnv, mut operation: impl FnMut(usize)) -> (f64, f64) {
    let mut rng = Rng::new(3);
    for _ in 0..LOOKUPS {
        operation(rng.below(KEYS));
    }
    env.take();
    for _ in 0..LOOKUPS {
        operation(rng.below(KEYS));
    }
    let DiskReads { waits, pages, .. } = env.take();
    (waits as f64 / LOOKUPS as f64, pages as f64 / LOOKUPS as f64)
}

/// Absent keys, present keys and scans of 100 keys: pages of each, and how often the latter two wait
/// for the disk.
fn pages_read(part: u64, random_bytes: usize) -> [f64; 5] {
    let (env, db) = database(&MemEnv::new(), part, random_bytes);
    let tables: Vec<_> = db.stats().levels.iter().map(|level| level.tables).collect();
    assert_eq!(tables[0], 2, "{tables:?}");
    assert_eq!(tables.iter().filter(|tables| **tables > 0).count(), 2, "{tables:?}");
    let (_, absent) = reads_of(&env, |number| {
        assert_eq!(db.get(absent_key(number)).unwrap(), None);
    });
    let (calls, present) = reads_of(&env, |number| {
        let found = db.get(key(number)).unwrap();
        assert_eq!(found.as_deref(), Some(&value(number, random_bytes)[..]));
    });
    let mut cursor = db.cursor();
    let (scan_waits, scan) = reads_of(&env, |number| {
        // One cursor for all scans.
        let mut is_there = cursor.seek(key(number)).unwrap();
        for _ in 1..100.min(KEYS - number) {
            assert!(is_there);
            is_there = cursor.next().unwrap();
        }
    });
    [absent, present, calls, scan, scan_waits]
}

/// Memory for a fifth of the data: filters and indexes stay in it.
#[test]
fn a_key_on_disk_is_one_page() {
    let [absent, present, calls, scan, scan_waits] = pages_read(5, 100);
    // A false positive at most in each of three runs, at 10 bits a key.
    assert!(absent < 3.0 * 0.011, "{absent}");
    assert!((0.7..1.0 + 2.0 * 0.011).contains(&present), "{present}");
    assert!(present < 1.01 * calls, "{present} pages, {calls} calls");
    // 100 entries lie in four blocks, which are read at once.
    assert!(scan < 4.5, "{scan}");
    assert!(scan_waits < 1.2, "{scan_waits}");
}

/// Nothing is read ahead of lookups. Long scans wait for few reads, and read little in vain.
#[test]
fn long_scans_read_ahead() {
    let disk = MemEnv::new();
    let (env, db) = database(&disk, 5, 100);
    assert_eq!(db.get(key(3)).unwrap().as_deref(), Some(&value(3, 100)[..]));
    let tables: u64 = db.stats().levels.iter().map(|level| level.tables).sum();
    assert!((1..=tables).contains(&env.files_without_read_ahead()));
    let bytes: u64 = db.stats().levels.iter().map(|level| level.bytes).sum();
    // The first blocks of each table are read by themselves. A table of level 0 is passed so slowly
    // that some of its pages go before they are used.
    let check = |what: &str| {
        let DiskReads { calls, pages, .. } = env.take();
        assert!(pages * 4096 < bytes * 21 / 20, "{what}: {pages} pages of {bytes} B");
        assert!(calls * 4096 < bytes / 10, "{what}: {calls} calls for {bytes} B");
    };
    env.take();
    assert_eq!(db.iter().filter(Result::is_ok).count(), KEYS);
    check("forward");
    assert_eq!(db.iter().rev().filter(Result::is_ok).count(), KEYS);
    check("in reverse");
    assert!(db.verify(|_| {}).unwrap().damage.is_empty());
    check("verify");
    db.close().unwrap();
    for table in files_ending(&disk, ".sst") {
        let mut bytes = disk.read_file(&table).unwrap();
        bytes[100] ^= 1;
        disk.write_file(&table, &bytes);
    }
    env.take();
    let report = Options::new().env(Arc::new(env.clone())).repair(HOME).unwrap();
    assert!(report.changed);
    check("repair");
}

/// How often scans of that many entries wait for the disk, and the pages that they read.
fn reads_of_scans(env: &PageCacheEnv, db: &Db, entries: usize, scans: usize) -> (f64, f64) {
    let mut rng = Rng::new(entries as u64);
    env.take();
    for _ in 0..scans {
        let range = key(rng.below(KEYS - entries))..;
        assert_eq!(db.range(range).take(entries).filter(Result::is_ok).count(), entries);
    }
    let DiskReads { waits, pages, .. } = env.take();
    (waits as f64 / scans as f64, pages as f64 / scans as f64)
}

#[test]
fn scans_read_at_once_what_the_last_ones_read() {
    let (env, db) = database(&MemEnv::new(), 5, 100);
    db.compact_range(..).unwrap();
    reads_of_scans(&env, &db, 500, 20);
    let (waits, pages) = reads_of_scans(&env, &db, 500, 500);
    assert!(waits < 1.5 && pages < 17.0, "{waits} waits, {pages} pages");
    let (waits, pages) = reads_of_scans(&env, &db, 1, 20);
    assert!(waits < 1.1 && pages < 3.0, "{waits} waits, {pages} pages");
    let (waits, pages) = reads_of_scans(&env, &db, 10, 500);
    assert!(waits < 1.3 && pages < 1.3, "{waits} waits, {pages} pages");
    // What may read nothing asks for nothing, whatever is expected.
    reads_of_scans(&env, &db, 500, 20);
    env.take();
    for number in (0..KEYS).step_by(KEYS / 100) {
        let options = ReadOptions::new().in_memory_only(true);
        let _ = db.range_with(key(number).., &options).take(500).count();
    }
    assert_eq!(env.take(), DiskReads::default());
}

/// A scan that was refused at its first block would have read more: it says nothing about lengths.
#[test]
fn refused_scans_are_no_short_scans() {
    let (env, db) = database(&MemEnv::new(), 5, 100);
    db.compact_range(..).unwrap();
    let options = ReadOptions::new().in_memory_only(true);
    let (mut waits, mut refused) = (0, 0);
    reads_of_scans(&env, &db, 500, 500);
    for first in 0..20 {
        for number in (first..KEYS - 500).step_by(KEYS / 50) {
            let mut found = db.range_with(key(number).., &options).take(500);
            refused += usize::from(found.any(|entry| entry.is_err()));
        }
        env.take();
        let range = key(first * (KEYS / 20))..;
        assert_eq!(db.range(range).take(500).filter(Result::is_ok).count(), 500);
        waits += env.take().waits;
    }
    assert!(refused > 500, "{refused} refused");
    assert!(waits < 20 * 3 / 2, "{waits} waits of 20 scans");
}

/// The disk works on the blocks of all levels at once.
#[test]
fn scans_of_several_levels_wait_once() {
    let (env, db) = database(&MemEnv::new(), 5, 100);
    for nth in 0..4 {
        for number in (nth..KEYS).step_by(7) {
            db.put(key(number), value(number, 100)).unwrap();
        }
        db.flush().unwrap();
    }
    assert!(db.stats().levels[0].tables >= 6);
    for is_reverse in [false, true] {
        let (waits, pages) = reads_of(&env, |number| {
            let first = number.min(KEYS - 10);
            let range = db.range(key(first)..key(first + 10));
            let mut found: Vec<_> = match is_reverse {
                false => range.map(Result::unwrap).collect(),
                true => range.rev().map(Result::unwrap).collect(),
            };
            found.sort();
            assert!((first..).zip(&found).all(|(number, (found, _))| *found == key(number)[..]));
            assert_eq!(found.len(), 10);
        });
        // Six levels wait six times if each waits by itself.
        assert!(waits < 1.7, "{waits} waits");
        assert!((3.0..7.2).contains(&pages), "{pages} pages");
    }
    env.take();
    for number in (0..KEYS).step_by(KEYS / 100) {
        let options = ReadOptions::new().in_memory_only(true);
        let _ = db.range_with(key(number).., &options).take(10).count();
    }
    assert_eq!(env.take(), DiskReads::default());
}

/// The disk works on all blocks of a batch at once, level by level.
#[test]
fn a_batch_waits_for_the_disk_as_one_key_does() {
    let (env, db) = database(&MemEnv::new(), 5, 100);
    let mut batch = Vec::new();
    let (waits, pages) = reads_of(&env, |number| {
        batch.push(number);
        if batch.len() == 32 {
            let found = db.multi_get(batch.iter().map(|&number| key(number))).unwrap();
            for (number, found) in batch.drain(..).zip(found) {
                assert_eq!(found.as_deref(), Some(&value(number, 100)[..]));
            }
        }
    });
    // A wait in the settled level, and one in each table of level 0 for batches with keys there.
    assert!(32.0 * waits < 3.0, "{waits} waits");
    assert!((0.6..1.05).contains(&pages), "{pages} pages");
}

/// A cursor reads ahead after each seek as a new iterator does.
#[test]
fn each_seek_begins_to_read_ahead_anew() {
    let env = PageCacheEnv::new(as_env(&MemEnv::new()), 1 << 20);
    let options = Options::new().auto_compaction(false).block_cache_bytes(1 << 20);
    let db = options.env(Arc::new(env.clone())).open(HOME).unwrap();
    for number in 0..KEYS / 5 {
        db.put(key(number), value(number, 100)).unwrap();
    }
    db.flush().unwrap();
    let mut cursor = db.cursor();
    for _ in 0..2 {
        env.take();
        let mut count = 0;
        let mut is_there = cursor.seek_to_first().unwrap();
        while is_there {
            count += 1;
            is_there = cursor.next().unwrap();
        }
        assert_eq!(count, KEYS / 5);
        let DiskReads { calls, pages, .. } = env.take();
        assert!(pages > 600 && calls < 20, "{calls} calls, {pages} pages");
    }
}

/// Memory for a twentieth: parts of filters and indexes are read, too.
#[test]
fn a_twentieth_of_the_data_is_enough_memory() {
    let [absent, present, calls, scan, _] = pages_read(20, 100);
    assert!(absent < 0.05, "{absent}");
    assert!(present < 1.15 && present < 1.03 * calls, "{present} pages, {calls} calls");
    assert!(scan < 7.0, "{scan}");
}

/// Blocks that are compressed to half a page share pages. Some cross the end of one.
#[test]
fn compressed_blocks_touch_few_pages() {
    let [_, present, calls, ..] = pages_read(5, 50);
    assert!(present < 1.5 * calls, "{present} pages, {calls} calls");
}

/// Draws ranks below `count` by Zipf's law with exponent 0.99.
struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    fn new(count: usize) -> Self {
        let weights = (1..=count).map(|rank| (rank as f64).powf(-0.99));
        let sums = weights.scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Zipf { sums: sums.collect() }
    }

    fn draw(&self, rng: &mut Rng) -> usize {
        let at = (rng.next() >> 11) as f64 / (1u64 << 53) as f64 * self.sums[self.sums.len() - 1];
        self.sums.partition_point(|sum| *sum < at).min(self.sums.len() - 1)
    }
}

/// Reads of lookups of which some are much more frequent than others: of single keys, or of the
/// keys of a block. A cache that keeps only blocks reads 0.49 and 0.34 pages a lookup.
#[test]
fn hot_keys_need_no_blocks_of_cold_ones() {
    let keys_per_block = 34;
    let blocks = KEYS / keys_per_block;
    let (of_keys, of_blocks) = (Zipf::new(KEYS), Zipf::new(blocks));
    // Multiplied with a large prime: neighbours in rank are far from each other.
    let hot_key = |rng: &mut Rng| of_keys.draw(rng) * 7_368_787 % KEYS;
    let in_hot_block = |rng: &mut Rng| {
        of_blocks.draw(rng) * 7_368_787 % blocks * keys_per_block + rng.below(keys_per_block)
    };
    let pages = |draw: &dyn Fn(&mut Rng) -> usize| {
        let (env, db) = database(&MemEnv::new(), 5, 100);
        let mut rng = Rng::new(3);
        let mut look_up = |lookups| {
            env.take();
            for _ in 0..lookups {
                let number = draw(&mut rng);
                let found = db.get(key(number)).unwrap();
                assert_eq!(found.as_deref(), Some(&value(number, 100)[..]));
            }
            env.take().pages as f64 / lookups as f64
        };
        look_up(200_000);
        look_up(50_000)
    };
    let (of_keys, of_blocks) = (pages(&hot_key), pages(&in_hot_block));
    assert!(of_keys < 0.37, "{of_keys}");
    assert!(of_blocks < 0.34, "{of_blocks}");
}
