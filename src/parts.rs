//! The parts of a lookup and of a write, each by itself, for `benches/parts.rs`: so that a
//! regression that a whole lookup shows can be placed.
//!
//! [`parts`] prepares each part over so many keys and gives a closure that runs it once, for the
//! next of many random keys, as cold as it is in a database of that size. What a closure answers
//! is of no use but to the optimizer, which must not leave the work out. No part of the library
//! calls this, and its names may change with what they measure.

use crate::base::error::{Error, Result};
use crate::base::key::{Lookup, LookupKey, ValueKind, put_internal_key};
use crate::base::sync::Arc;
use crate::base::write_batch::{DecodedBatch, WriteBatch, put_batch_header};
use crate::cache::cache::{Cache, Priority};
use crate::cache::cached::{Cached, Slots};
use crate::cache::key::CacheKey;
use crate::env::api::Env;
use crate::env::disk::DiskEnv;
use crate::filter::hash::KeyHash;
use crate::filter::registry::{Encoding, FilterReader, PreparedFilter};
use crate::log::wal::format::WalStart;
use crate::log::wal::writer::WalWriter;
use crate::memtable::memtable::Memtable;
use crate::table::block::block::Block;
use crate::table::block::builder::BlockBuilder;
use crate::table::block::check::BlockKeys;
use crate::table::format::BlockHandle;
use crate::table::index::Index;
use std::path::Path;

/// Entries of a block of 4 KiB with values of 100 bytes.
const BLOCK_ENTRIES: u64 = 32;

/// A part of the engine, ready to run.
pub struct Part {
    /// What it is.
    pub name: &'static str,
    /// Runs it once; what it answers means nothing.
    pub run: Box<dyn FnMut() -> u64>,
}

/// The parts over `keys` keys. The log is written below `directory`.
///
/// # Errors
/// What the disk answers.
pub fn parts(keys: u64, directory: &Path) -> Result<Vec<Part>> {
    let mut parts = vec![filter_probe(keys)?, index_search(keys)?, block_load()?];
    parts.extend(block_search(keys)?);
    parts.extend(cache(keys)?);
    parts.extend(memtable());
    parts.push(wal_append(directory)?);
    Ok(parts)
}

fn mixed(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

fn user_key(n: u64) -> [u8; 16] {
    let mut key = [0; 16];
    for (i, digit) in key.iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(mixed(n) >> (60 - 4 * i)) as usize % 16];
    }
    key
}

/// Numbers below `count`, at random.
fn picks(count: u64) -> impl FnMut() -> u64 {
    let mut calls = 0;
    move || {
        calls += 1;
        mixed(calls) % count.max(1)
    }
}

fn refused(what: String) -> Error {
    Error::InvalidArgument { what }
}

fn filter_probe(keys: u64) -> Result<Part> {
    let encoding = Encoding::FastLocalBloom { millibits: 10_000 };
    let mut builder = encoding.builder();
    (0..keys).for_each(|n| builder.add_key(&user_key(n)));
    let mut bytes = Vec::new();
    builder.finish(&mut bytes)?;
    let reader = FilterReader::for_name(&encoding.full_name(), &[])
        .ok_or_else(|| refused("a built-in filter without a reader".into()))?;
    let filter = PreparedFilter::new(reader, Arc::from(bytes));
    let mut pick = picks(keys);
    let run = move || u64::from(filter.may_contain(&KeyHash::new(&user_key(keys + pick()))));
    Ok(Part { name: "filter probe, absent", run: Box::new(run) })
}

fn index_search(keys: u64) -> Result<Part> {
    let mut sorted: Vec<_> = (0..keys / BLOCK_ENTRIES).map(user_key).collect();
    sorted.sort_unstable();
    let mut builder = BlockBuilder::new(1);
    for (number, key) in (0..).zip(&sorted) {
        let mut handle = Vec::new();
        BlockHandle { offset: number * 4101, size: 4096 }.encode(&mut handle);
        builder.add(key, &handle);
    }
    let index = Index::new(builder.finish().to_vec(), true, u64::MAX).map_err(refused)?;
    let mut pick = picks(keys);
    let run = move || index.find(&LookupKey::new(&user_key(pick()), 1)).unwrap_or(0) as u64;
    Ok(Part { name: "index search", run: Box::new(run) })
}

/// Block number `number` as a file has it, and one of its keys.
fn block(number: u64) -> (Vec<u8>, [u8; 16]) {
    let mut keys: Vec<_> = (0..BLOCK_ENTRIES).map(|n| user_key(number << 32 | n)).collect();
    keys.sort_unstable();
    let mut builder = BlockBuilder::data(16, true);
    for key in &keys {
        let mut internal = Vec::new();
        put_internal_key(&mut internal, key, 1, ValueKind::Put);
        builder.add(&internal, &[7; 100]);
    }
    (builder.finish().to_vec(), keys[number as usize % keys.len()])
}

fn block_load() -> Result<Part> {
    let (bytes, _) = block(1);
    Block::new(&bytes, BlockKeys::Internal).map_err(refused)?;
    let run = move || Block::new(&bytes, BlockKeys::Internal).map_or(0, |b| b.restarts() as u64);
    Ok(Part { name: "block check and copy", run: Box::new(run) })
}

fn block_search(keys: u64) -> Result<Vec<Part>> {
    let blocks = (0..(keys / BLOCK_ENTRIES).max(1)).map(|number| {
        let (bytes, key) = block(number);
        Ok((Block::new(&bytes, BlockKeys::Internal).map_err(refused)?, key))
    });
    let blocks = blocks.collect::<Result<Vec<_>>>()?;
    let mut pick = picks(blocks.len() as u64);
    let run = move || {
        let (block, key) = &blocks[pick() as usize];
        let hash = KeyHash::new(key);
        block.get(&LookupKey::new(key, 1), hash.xxph3()).map_or(0, |found| found.trailer)
    };
    Ok(vec![Part { name: "block seek", run: Box::new(run) }])
}

fn cache(keys: u64) -> Result<Vec<Part>> {
    let blocks = (keys / BLOCK_ENTRIES).max(1);
    let cache: Arc<Cache<u64>> = Cache::new(u64::MAX / 2, 0.0);
    let slots: Arc<Slots<u64>> = Slots::new(blocks as usize);
    let key = |number| CacheKey { table: 1, offset: number * 4101 };
    for number in 0..blocks {
        let slot = Some(slots.slot(number as usize));
        cache.get_or_load(key(number), Priority::Low, slot, || Ok((number, 4096)))?;
    }
    let read = |cached: &Arc<Cached<u64>>| ***cached;
    let (held, mut pick) = (Arc::clone(&cache), picks(blocks));
    let by_key = move || held.get(key(pick()), Priority::Low).map_or(0, |cached| read(&cached));
    let mut pick = picks(blocks);
    let by_slot = move || {
        // The cache keeps what the slots show.
        let _cache = &cache;
        let slotted = slots.slot(pick() as usize).get();
        slotted.and_then(|slotted| slotted.as_ref().map(read)).unwrap_or(0)
    };
    Ok(vec![
        Part { name: "cache, by key", run: Box::new(by_key) },
        Part { name: "cache, by slot", run: Box::new(by_slot) },
    ])
}

/// The number that performance is stated for.
const ENTRIES: u64 = 100_000;

fn insert(memtable: &Memtable, n: u64) {
    let mut batch = WriteBatch::new();
    batch.put(user_key(n), [7; 100]);
    let mut bytes = Vec::new();
    put_batch_header(&mut bytes, n + 1, 1);
    bytes.extend_from_slice(batch.entries());
    if let Ok(decoded) = DecodedBatch::decode(&bytes) {
        memtable.apply(&decoded);
    }
}

fn filled() -> Memtable {
    let memtable = Memtable::new(64 << 20, true);
    (0..ENTRIES).for_each(|n| insert(&memtable, n));
    memtable
}

fn memtable() -> Vec<Part> {
    let (mut growing, mut next) = (filled(), ENTRIES);
    let run_insert = move || {
        if next == 2 * ENTRIES {
            (growing, next) = (filled(), ENTRIES);
        }
        insert(&growing, next);
        next += 1;
        next
    };
    let (full, mut pick) = (Arc::new(filled()), picks(ENTRIES));
    let asked = Arc::clone(&full);
    let run_get = move || {
        let found = {
            let key = user_key(pick());
            full.get(&LookupKey::new(&key, u64::MAX >> 8), Some(&KeyHash::new(&key)))
        };
        u64::from(found != Lookup::Absent)
    };
    let mut pick = picks(ENTRIES);
    let run_ask = move || u64::from(asked.may_contain(&KeyHash::new(&user_key(ENTRIES + pick()))));
    vec![
        Part { name: "memtable insert, 100,000 to 200,000 entries", run: Box::new(run_insert) },
        Part { name: "memtable get", run: Box::new(run_get) },
        Part { name: "memtable filter, absent", run: Box::new(run_ask) },
    ]
}

fn wal_append(directory: &Path) -> Result<Part> {
    const LOG_ENTRIES_MAX: u64 = 500_000;
    let directory = directory.to_path_buf();
    let env = DiskEnv::new();
    let create = move |number| {
        let start = WalStart { first_sequence: 1, ..WalStart::default() };
        WalWriter::create(&env as &dyn Env, &directory, number, &start, 1 << 20)
    };
    let mut batch = WriteBatch::new();
    batch.put(user_key(1), [7; 100]);
    let (mut log, mut sequence) = (create(1)?, 0);
    let run = move || {
        sequence += 1;
        if sequence % LOG_ENTRIES_MAX == 0
            && let Ok(next) = create(1 + sequence / LOG_ENTRIES_MAX)
        {
            log = next;
        }
        log.append(0, sequence, 1, &[batch.entries()]).unwrap_or(0)
    };
    Ok(Part { name: "WAL append of 130 bytes, no sync", run: Box::new(run) })
}
