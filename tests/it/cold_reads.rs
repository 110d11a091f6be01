//! What a lookup reads whose block is in no cache: one block, exactly, once the index is there.
//! What a batch reads: each block once, and all but the first are asked for before.

use crate::support::data::{absent_key, bytes, key};
use crate::support::filters::{NamedFilter, one_of_each_layout};
use crate::support::rng::{Rng, seeds};
use crate::support::stores::{HOME, as_env};
use crate::support::table_reads::{Read, ReadsEnv};
use siftdb::env::{CountingEnv, MemEnv};
use siftdb::{Db, Filter, FilterLayout, Options, ReadOptions};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

const KEYS: usize = 20_000;

/// Bytes of a page of the system's cache.
const PAGE_BYTES: u64 = 4096;

/// 100 bytes, of which Snappy saves the second half.
fn value(number: usize) -> Vec<u8> {
    [bytes(number as u64, 50), vec![b'v'; 50]].concat()
}

/// A database of one settled level. Its indexes and filters are in memory and no data block is.
fn cold(filter: &NamedFilter, options: &Options) -> (MemEnv, ReadsEnv, Db) {
    let memory = MemEnv::new();
    let env = ReadsEnv::new(as_env(&memory));
    let options = options.clone().filter(filter.filter.clone()).env(Arc::new(env.clone()));
    let db = options.clone().open(HOME).unwrap();
    for number in 0..KEYS {
        db.put(key(number), value(number)).unwrap();
    }
    db.compact_range(..).unwrap();
    db.close().unwrap();
    drop(db);
    let db = options.open(HOME).unwrap();
    for number in 0..KEYS {
        db.get_with(absent_key(number), &unfilled()).unwrap();
    }
    env.take();
    (memory, env, db)
}

fn unfilled() -> ReadOptions {
    ReadOptions::new().fill_cache(false)
}

fn large() -> Options {
    Options::new().auto_compaction(false).block_cache_bytes(64 << 20)
}

/// The pages that a range of a file lies in.
fn pages(offset: u64, bytes: u64) -> u64 {
    (offset + bytes - 1) / PAGE_BYTES - offset / PAGE_BYTES + 1
}

/// The read is of a data block and its trailer, and of nothing else.
fn must_be_a_block(memory: &MemEnv, read: &Read) {
    let file = memory.read_file(&read.path).unwrap();
    let start = read.offset as usize;
    // The prefix of a block: its size, and 1 for data.
    let size = u32::from_le_bytes(file[start - 8..start - 4].try_into().unwrap());
    assert_eq!((u64::from(size) + 5, file[start - 4]), (read.bytes, 1), "{read:?}");
}

#[test]
fn a_cold_key_costs_one_read() {
    for filter in one_of_each_layout() {
        for snappy in [false, true] {
            let (memory, env, db) = cold(&filter, &large().snappy(snappy));
            let name = format!("{}, snappy {snappy}", filter.name);
            let mut in_one_page = 0;
            for number in (0..KEYS).step_by(7) {
                assert!(db.get_with(key(number), &unfilled()).unwrap().is_some());
                let [read] = &env.take()[..] else { panic!("{name}: key {number}") };
                must_be_a_block(&memory, read);
                in_one_page += usize::from(pages(read.offset, read.bytes) == 1);
            }
            // Blocks of a page get one of their own, but some of the first. Smaller ones, which
            // Snappy makes here, may cross the end of a page; so may those under block-based
            // filters.
            let share = in_one_page as f64 / (0..KEYS).step_by(7).len() as f64;
            let is_page_each = !snappy && !filter.name.ends_with("block-based");
            assert_eq!(share > 0.99, is_page_each, "{name}: {share}");
        }
    }
}

#[test]
fn an_absent_key_costs_a_hundredth_of_a_read() {
    for filter in one_of_each_layout().into_iter().filter(|filter| filter.name != "none") {
        let (memory, env, db) = cold(&filter, &large());
        let most = if filter.name.ends_with("block-based") { 0.004 } else { 0.0125 };
        for number in 0..KEYS {
            assert_eq!(db.get_with(absent_key(number), &unfilled()).unwrap(), None);
        }
        let reads = env.take();
        reads.iter().for_each(|read| must_be_a_block(&memory, read));
        let each = reads.len() as f64 / KEYS as f64;
        assert!((0.0001..most).contains(&each), "{}: {each} reads a key", filter.name);
    }
}

/// The numbers of keys of different blocks, in no order.
fn spread(count: usize) -> Vec<usize> {
    (0..count).map(|n| n * 7919 % count * (KEYS / count)).collect()
}

/// Looks 32 keys of different blocks up.
fn read_a_batch(memory: &MemEnv, env: &ReadsEnv, db: &Db, fill: bool) {
    let numbers = spread(32);
    let options = ReadOptions::new().fill_cache(fill);
    let before = db.stats();
    let found = db.multi_get_with(numbers.iter().map(|&n| key(n)), &options).unwrap();
    for (number, answer) in numbers.iter().zip(found) {
        assert_eq!(answer.as_deref(), Some(&value(*number)[..]));
    }
    let ((requests, reads_before), reads) = (env.take_requests(), env.take());
    assert_eq!((&requests[..], reads_before), (&reads[1..], 0), "asked for before the first read");
    reads.iter().for_each(|read| must_be_a_block(memory, read));
    let places: HashSet<_> = reads.iter().map(|read| (&read.path, read.offset)).collect();
    assert_eq!((reads.len(), places.len()), (32, 32), "each block once");
    let total = db.stats().since(&before).total();
    assert_eq!((total.data_blocks_read, total.data_blocks_cached), (32, 0));
}

#[test]
fn batches_ask_for_blocks_before_they_read_one() {
    for filter in one_of_each_layout() {
        // Eight tables, so a table has few keys of the batch.
        let (memory, env, db) = cold(&filter, &large().snappy(false).table_bytes(320 << 10));
        assert!(db.stats().total().tables >= 7);
        env.take_requests();
        for fill in [false, true] {
            read_a_batch(&memory, &env, &db, fill);
        }
        // The last batch was kept.
        let found = db.multi_get(spread(32).into_iter().map(key)).unwrap();
        assert!(found.iter().all(Option::is_some), "{}", filter.name);
        assert!(env.take().is_empty() && env.take_requests().0.is_empty(), "{}", filter.name);
    }
}

#[test]
fn a_failed_read_of_a_batch_is_its_error() {
    for filter in one_of_each_layout() {
        let (_, env, db) = cold(&filter, &large().snappy(false));
        let numbers = spread(32);
        // What each key reads, by itself.
        let places: Vec<u64> = numbers
            .iter()
            .map(|&number| {
                db.get_with(key(number), &unfilled()).unwrap();
                env.take()[0].offset
            })
            .collect();
        for index in [0, 9, 31] {
            let place = places[index];
            env.fail_at(Some(place));
            let before = db.stats();
            let batch = db.multi_get_with(numbers.iter().map(|&n| key(n)), &unfilled());
            let error = batch.unwrap_err();
            // The blocks of the keys before it were searched, so they are counted.
            let searched = numbers.iter().filter(|&&number| number < numbers[index]).count();
            let total = db.stats().since(&before).total();
            assert_eq!(total.data_blocks_read, searched as u64, "{}", filter.name);
            assert!(matches!(error, siftdb::Error::Io { op: "read", .. }), "{error}");
            let others = numbers.iter().zip(&places).filter(|(_, at)| **at != place);
            let found = db.multi_get_with(others.map(|(&n, _)| key(n)), &unfilled()).unwrap();
            assert!(found.len() == 31 && found.iter().all(Option::is_some));
        }
    }
}

/// A settled level under two overlapping tables of level 0, with tombstones in both, and what is in
/// them. Filters and indexes are in memory.
fn overlapping(filter: &Filter) -> (ReadsEnv, Db, BTreeMap<Vec<u8>, Vec<u8>>) {
    let env = ReadsEnv::new(as_env(&MemEnv::new()));
    let options = large().snappy(false).filter(filter.clone()).env(Arc::new(env.clone()));
    let db = options.open(HOME).unwrap();
    let mut map = BTreeMap::new();
    for (round, step) in [1, 3, 5].into_iter().enumerate() {
        for number in (0..3_000).step_by(step) {
            if round > 0 && number % 7 == round {
                db.delete(key(number)).unwrap();
                map.remove(&key(number));
                continue;
            }
            let value = bytes((number * 3 + round) as u64, 100);
            db.put(key(number), &value).unwrap();
            map.insert(key(number), value);
        }
        match round {
            0 => db.compact_range(..).unwrap(),
            _ => db.flush().unwrap(),
        }
    }
    for number in 0..3_000 {
        db.get_with(absent_key(number), &unfilled()).unwrap();
    }
    (env, db, map)
}

/// Keys come twice, and blocks are read of tables that do not have the key.
#[test]
fn batches_agree_with_a_map_and_read_each_block_once() {
    let mut filters: Vec<_> =
        one_of_each_layout().into_iter().map(|named| (named.name, named.filter)).collect();
    // It lets a third of the absent keys pass.
    filters.push(("short".into(), Filter::bloom(2.0).layout(FilterLayout::Full)));
    for (name, filter) in filters {
        let (env, db, map) = overlapping(&filter);
        for seed in seeds(3) {
            let rng = &mut Rng::new(seed);
            let number = |rng: &mut Rng| rng.below(3_000);
            let wanted: Vec<_> = (0..150)
                .map(|_| if rng.chance(70) { key(number(rng)) } else { absent_key(number(rng)) })
                .collect();
            for use_filters in [true, false] {
                drop((env.take(), env.take_requests()));
                let before = db.stats();
                let options = unfilled().use_filters(use_filters);
                let found = db.multi_get_with(&wanted, &options).unwrap();
                for (key, found) in wanted.iter().zip(found) {
                    let expected = map.get(key).map(Vec::as_slice);
                    assert_eq!(found.as_deref(), expected, "{name}, {seed}: {key:?}");
                }
                let reads = env.take();
                let places: HashSet<_> = reads.iter().map(|r| (&r.path, r.offset)).collect();
                assert_eq!(places.len(), reads.len(), "{name}, {seed}: each block once");
                let (requests, _) = env.take_requests();
                let asked: HashSet<_> = requests.iter().map(|r| (&r.path, r.offset)).collect();
                assert_eq!(asked.len(), requests.len(), "{name}, {seed}: asked for once");
                assert!(asked.is_subset(&places), "{name}, {seed}: nothing else");
                let total = db.stats().since(&before).total();
                let bytes = reads.iter().map(|read| read.bytes).sum();
                let counted = (total.data_blocks_read, total.data_bytes_read);
                assert_eq!(counted, (reads.len() as u64, bytes), "{name}, {seed}: counted");
            }
        }
    }
}

#[test]
fn batches_ask_for_at_most_eight_mebibytes() {
    let env = ReadsEnv::new(as_env(&MemEnv::new()));
    let db = large().snappy(false).env(Arc::new(env.clone())).open(HOME).unwrap();
    let value = |number: usize| bytes(number as u64, 256 << 10);
    for number in 0..40 {
        db.put(key(number), value(number)).unwrap();
    }
    db.compact_range(..).unwrap();
    db.get_with(key(0), &unfilled()).unwrap();
    drop((env.take(), env.take_requests()));
    let found = db.multi_get_with((0..40).map(key), &unfilled()).unwrap();
    assert!(found.iter().enumerate().all(|(n, found)| found.as_deref() == Some(&value(n)[..])));
    // The first block is read at once, and counts as if it was asked for.
    let (requests, _) = env.take_requests();
    let bytes: u64 = requests.iter().map(|request| request.bytes).sum();
    assert!(bytes < 8 << 20 && bytes + 3 * (256 << 10) > 8 << 20, "{bytes}");
    assert_eq!(env.take().len(), 40);
}

/// What comes after the range and is newer than the snapshot is not read.
#[test]
fn scans_of_snapshots_end_with_their_range() {
    let env = CountingEnv::new(as_env(&MemEnv::new()));
    let options = Options::new().snappy(false).auto_compaction(false);
    let db = options.env(Arc::new(env.clone())).open(HOME).unwrap();
    db.put(key(0), value(0)).unwrap();
    let snapshot = db.snapshot();
    (1..KEYS).for_each(|number| db.put(key(number), value(number)).unwrap());
    db.flush().unwrap();
    let before = env.counts().read_bytes;
    assert_eq!(snapshot.range(..key(1)).count(), 1);
    assert_eq!(snapshot.range(..key(1)).rev().count(), 1);
    let mut cursor = snapshot.cursor();
    assert!(cursor.seek_range(..key(1)).unwrap() && !cursor.next().unwrap());
    let read = env.counts().read_bytes - before;
    assert!(read < 64 << 10, "{read} bytes");
}
