//! Tests of whole tables: written by the builder, read by lookups, walks and `verify`.
//!
//! The model is the sorted list of entries. Options vary over block sizes, restart intervals, hash
//! index, compression, every filter layout and encoding, pinned or cached filters and indexes.

use crate::base::error::{Error, Result};
use crate::base::events::delivery::Events;
use crate::base::expiry::EXPIRY_BYTES;
use crate::base::iterator::api::{Direction, InternalIterator};
use crate::base::key::{
    KeyspaceLabel, Lookup, LookupKey, SEQUENCE_MAX, ValueKind, compare_internal, put_internal_key,
    put_key_with_trailer, split_internal_key, unpack_trailer, user_key,
};
use crate::base::sync::Arc;
use crate::base::value::Value;
use crate::cache::cache::Cache;
use crate::env::api::Env;
use crate::env::handle::FilePool;
use crate::env::mem::MemEnv;
use crate::table::batch_key::BatchKey;
use crate::table::builder::{TableBuilder, TableOptions, TableSummary};
use crate::table::compression::Compression;
use crate::table::compression::tests::available;
use crate::table::file::TableIo;
use crate::table::filter::layout::{FilterLayout, FilterMembers, TableFilter};
use crate::table::format::{
    BLOCK_PREFIX_BYTES, BLOCK_TRAILER_BYTES, FOOTER_BYTES, HEADER_BYTES, read_prefix,
};
use crate::table::index::BlockCache;
use crate::table::reader::{Expect, FilterUse, Table, TableContext, TableReadOptions};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use siftdb_filter::construction::Construction;
use siftdb_filter::encoding::{Encoding, FilterVerdict};
use siftdb_filter::hash::KeyHash;
use std::collections::BTreeSet;
use std::path::Path;

pub(crate) type Entries = Vec<(Vec<u8>, Vec<u8>)>;

pub(crate) const PATH: &str = "/db/000001.sst";
pub(crate) const TABLE_ID: u64 = 0x0123_4567_89ab_cdef;
pub(crate) const READ: TableReadOptions = TableReadOptions::new();

pub(crate) fn options(filter: Option<TableFilter>) -> TableOptions {
    TableOptions {
        keyspace: KeyspaceLabel::default(),
        databases: Vec::new(),
        block_bytes: 4096,
        restart_interval: 16,
        hash_index: true,
        index_partition_bytes: 0,
        compression: Compression::None,
        filter,
        construction: Construction::default(),
        write_bytes: 64 << 10,
        events: Events::default(),
    }
}

pub(crate) fn filters() -> Vec<Option<TableFilter>> {
    let layouts = [
        FilterLayout::BlockBased { window_bytes: 2048 },
        FilterLayout::Full,
        FilterLayout::Partitioned { block_bytes: 64 },
    ];
    let encodings = [
        Encoding::LevelDbBloom { bits_per_key: 10 },
        Encoding::FastLocalBloom { millibits: 10_000 },
        Encoding::Ribbon { millibits: 10_000 },
        Encoding::LegacyBloom { bits_per_key: 10 },
    ];
    let mut filters = vec![None];
    for layout in layouts {
        for encoding in &encodings {
            filters.push(Some(TableFilter {
                encoding: encoding.clone(),
                layout,
                members: FilterMembers::default(),
                range_millibits: 0,
            }));
        }
    }
    filters
}

pub(crate) fn any_options() -> impl Strategy<Value = TableOptions> {
    let sizes = prop_oneof![Just(1usize), Just(60), Just(300), Just(4096)];
    let all = filters();
    let compressions = proptest::sample::select(available());
    let partitions = prop_oneof![Just(0usize), Just(1), Just(100), Just(4096)];
    (sizes, 1usize..18, any::<bool>(), (partitions, compressions), 0..all.len()).prop_map(
        move |(block_bytes, restart_interval, hash_index, of_blocks, filter)| TableOptions {
            keyspace: KeyspaceLabel::default(),
            databases: Vec::new(),
            block_bytes,
            restart_interval,
            hash_index,
            index_partition_bytes: of_blocks.0,
            compression: of_blocks.1,
            filter: all[filter].clone(),
            construction: Construction::default(),
            write_bytes: 64 << 10,
            events: Events::default(),
        },
    )
}

/// Few letters and sequences, which give shared prefixes and several versions of a key.
pub(crate) fn any_entries() -> impl Strategy<Value = Entries> {
    let letter = prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(b'b'), Just(0xff)];
    let prefix = prop_oneof![Just(&b""[..]), Just(&b"user/with/a/long/prefix/"[..])];
    let keys = btree_set((vec(letter, 0..7), 0u64..12), 1..150);
    (prefix, keys, 0usize..80).prop_map(|(prefix, keys, value_bytes)| {
        let mut entries: Entries = Vec::new();
        for (tail, sequence) in keys {
            let kind = match sequence % 4 {
                3 => ValueKind::Tombstone,
                2 => ValueKind::ExpiringPut,
                _ => ValueKind::Put,
            };
            let mut key = Vec::new();
            put_internal_key(&mut key, &[prefix, &tail].concat(), sequence, kind);
            let value = match kind {
                ValueKind::Put => vec![sequence as u8; value_bytes * (tail.len() + 1)],
                ValueKind::ExpiringPut => vec![sequence as u8; value_bytes + EXPIRY_BYTES],
                ValueKind::Tombstone => Vec::new(),
            };
            entries.push((key, value));
        }
        entries.sort_by(|a, b| compare_internal(&a.0, &b.0));
        entries
    })
}

pub(crate) fn write(
    env: &MemEnv,
    options: &TableOptions,
    entries: &Entries,
) -> Result<TableSummary> {
    let file = env.create_new(Path::new(PATH)).unwrap();
    let mut builder = TableBuilder::new(file, PATH.into(), TABLE_ID, options.clone());
    for (key, value) in entries {
        builder.add(key, value)?;
    }
    builder.finish()
}

/// The bytes of a table of `entries` that says of itself that it was ingested.
pub(crate) fn ingested_bytes_of(options: &TableOptions, entries: &Entries) -> Vec<u8> {
    let env = new_env();
    let file = env.create_new(Path::new(PATH)).unwrap();
    let mut builder = TableBuilder::new(file, PATH.into(), TABLE_ID, options.clone());
    builder.mark_ingested();
    entries.iter().for_each(|(key, value)| builder.add(key, value).unwrap());
    builder.finish().unwrap();
    env.read_file(Path::new(PATH)).unwrap()
}

pub(crate) fn new_env() -> MemEnv {
    let env = MemEnv::new();
    env.create_dir(Path::new("/db")).unwrap();
    env
}

pub(crate) fn bytes_of(options: &TableOptions, entries: &Entries) -> Vec<u8> {
    let env = new_env();
    write(&env, options, entries).unwrap();
    env.read_file(Path::new(PATH)).unwrap()
}

/// Opens a table with these bytes; `pinned` decides whether index and filter stay in memory.
pub(crate) fn open(bytes: &[u8], expect: Expect, pinned: bool) -> Result<Arc<Table>> {
    let env = new_env();
    env.write_file(Path::new(PATH), bytes);
    open_in(env, expect, Cache::new(4 << 20, if pinned { 0.5 } else { 0.0 }))
}

pub(crate) fn open_in(env: MemEnv, expect: Expect, cache: Arc<BlockCache>) -> Result<Arc<Table>> {
    let context = TableContext::new(FilePool::new(Arc::new(env), 4), cache);
    Table::open(&context, Path::new(PATH), expect).map(Arc::new)
}

/// A table whose cache keeps nothing, so that every data block is uncached.
fn open_uncached(bytes: &[u8]) -> Arc<Table> {
    let env = new_env();
    env.write_file(Path::new(PATH), bytes);
    open_in(env, Expect::default(), Cache::new(0, 0.0)).unwrap()
}

pub(crate) fn get(
    table: &Table,
    user: &[u8],
    sequence: u64,
    read: TableReadOptions,
) -> Result<Lookup> {
    let (key, hash) = (LookupKey::new(user, sequence), KeyHash::new(user));
    let (lookup, verdict) =
        table.get(&key, &hash, read, FilterUse::Ask, &mut TableIo::default())?;
    let unseen = [Lookup::Absent, Lookup::Deleted];
    let unseen = &unseen[..1 + usize::from(table.range_deletes().is_some())];
    assert!(verdict != FilterVerdict::No || unseen.contains(&lookup));
    Ok(lookup)
}

pub(crate) fn multi_get<'k>(
    table: &Table,
    keys: &[&'k [u8]],
    sequence: u64,
    read: TableReadOptions,
) -> Result<Vec<BatchKey<'k>>> {
    let mut batch: Vec<_> = keys.iter().map(|key| BatchKey::new(key, sequence, 0)).collect();
    let mut open: Vec<_> = batch.iter_mut().collect();
    let io = &mut TableIo::default();
    if read.use_filters {
        let has_step = |step: &usize| table.filter.look_ahead(&mut open, *step);
        (0..).take_while(has_step).for_each(drop);
    }
    table.ask_batch(&mut open, read.use_filters, io);
    table.locate_parts(&mut open);
    table.locate_batch(&mut open, read.use_filters, io)?;
    table.search_batch(&mut open, read.fill_cache, io)?;
    Ok(batch)
}

pub(crate) fn model_get(entries: &Entries, user: &[u8], sequence: u64) -> Lookup {
    let key = LookupKey::new(user, sequence);
    let found = entries.iter().find(|(k, _)| compare_internal(k, key.internal_key()).is_ge());
    let Some((found, value)) = found.filter(|(k, _)| user_key(k) == user) else {
        return Lookup::Absent;
    };
    match split_internal_key(found).and_then(|(_, trailer)| unpack_trailer(trailer)) {
        Some((_, ValueKind::Put)) => Lookup::found(Value::from(&value[..])),
        Some((_, ValueKind::ExpiringPut)) => Lookup::expiring(Value::from(&value[..])),
        _ => Lookup::Deleted,
    }
}

pub(crate) fn walk(
    table: &Arc<Table>,
    direction: Direction,
    bound: Option<&[u8]>,
) -> Result<Entries> {
    let mut iter = table.iter(direction, READ);
    iter.seek(bound);
    let mut found = Vec::new();
    while iter.valid() {
        assert_eq!(iter.value_owned(), iter.value());
        found.push((iter.key().to_vec(), iter.value().to_vec()));
        iter.next();
    }
    iter.status()?;
    Ok(found)
}

/// The same table, whose blocks are written in parts: the file is away from entry `from` on, and
/// takes the full blocks of every `step` entries. `None` if the filter does not allow it.
fn detached_bytes_of(
    options: &TableOptions,
    entries: &Entries,
    from: usize,
    step: usize,
) -> Option<Vec<u8>> {
    let env = new_env();
    let file = env.create_new(Path::new(PATH)).unwrap();
    let mut builder = TableBuilder::new(file, PATH.into(), TABLE_ID, options.clone());
    let mut away = None;
    for (n, (key, value)) in entries.iter().enumerate() {
        if n == from.min(entries.len() - 1) {
            away = Some(builder.detach()?);
        }
        builder.add(key, value).unwrap();
        if let Some(file) = away.as_mut().filter(|_| n % step == 0) {
            let mut full = builder.detached().take();
            full.blocks.iter_mut().for_each(|block| file.write(block).unwrap());
            assert_eq!(builder.detached().away_memory, full.memory);
            builder.detached().give_back(full, file.file_bytes());
            assert_eq!(builder.detached().away_memory, 0);
        }
    }
    assert!(builder.detach().is_none(), "it is away");
    builder.attach(away.unwrap()).unwrap();
    builder.finish().unwrap();
    env.read_file(Path::new(PATH))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn detached_builders_write_the_same_bytes(
        entries in any_entries(),
        options in any_options(),
        from in 0usize..100,
        step in 1usize..50,
    ) {
        let is_placed = options.filter.as_ref()
            .is_some_and(|filter| matches!(filter.layout, FilterLayout::BlockBased { .. }));
        let detached = detached_bytes_of(&options, &entries, from, step);
        prop_assert_eq!(detached.is_none(), is_placed);
        if let Some(bytes) = detached {
            prop_assert!(bytes == bytes_of(&options, &entries));
        }
    }

    #[test]
    fn tables_agree_with_the_model(
        entries in any_entries(),
        options in any_options(),
        others in any_entries(),
        pinned: bool,
    ) {
        let bytes = bytes_of(&options, &entries);
        let table = open(&bytes, Expect::default(), pinned).unwrap();
        let uncached = open_uncached(&bytes);
        prop_assert_eq!(table.file.cache.reserved_bytes() > 0, pinned);
        let report = table.verify(&mut |_| ()).unwrap();
        prop_assert_eq!(report.entries, entries.len() as u64);
        prop_assert_eq!(report.filter_probes > 0, options.filter.is_some());
        for (key, _) in entries.iter().chain(&others) {
            for sequence in [0, 1, 4, 7, 11, SEQUENCE_MAX] {
                let user = user_key(key);
                let expected = model_get(&entries, user, sequence);
                prop_assert_eq!(&get(&table, user, sequence, READ).unwrap(), &expected);
                let without = TableReadOptions { use_filters: false, ..READ };
                prop_assert_eq!(&get(&table, user, sequence, without).unwrap(), &expected);
                prop_assert_eq!(&get(&uncached, user, sequence, READ).unwrap(), &expected);
            }
        }
        let mut keys: Vec<&[u8]> =
            entries.iter().chain(&others).map(|(key, _)| user_key(key)).collect();
        keys.sort_unstable();
        for sequence in [0, 1, 4, 7, 11, SEQUENCE_MAX] {
            for (table, use_filters) in
                [(&table, true), (&table, false), (&uncached, true), (&uncached, false)]
            {
                let read = TableReadOptions { use_filters, ..READ };
                for key in multi_get(table, &keys, sequence, read).unwrap() {
                    let user = key.lookup.user_key();
                    prop_assert_eq!(&key.answer, &model_get(&entries, user, sequence));
                    let mut io = TableIo::default();
                    let (_, verdict) =
                        table.get(&key.lookup, &key.hash, read, FilterUse::Ask, &mut io).unwrap();
                    prop_assert_eq!(key.verdict, verdict);
                }
            }
        }
        let mut bounds: Vec<Vec<u8>> = entries.iter().chain(&others).map(|e| e.0.clone()).collect();
        for (key, _) in &others {
            bounds.push(LookupKey::new(user_key(key), SEQUENCE_MAX).internal_key().to_vec());
            let mut last = Vec::new();
            put_key_with_trailer(&mut last, user_key(key), 0);
            bounds.push(last);
        }
        for bound in bounds.iter().step_by(7).map(|bound| Some(&bound[..])).chain([None]) {
            let ahead: Entries = entries
                .iter()
                .filter(|(key, _)| bound.is_none_or(|b| compare_internal(key, b).is_ge()))
                .cloned()
                .collect();
            let behind: Entries = entries
                .iter()
                .rev()
                .filter(|(key, _)| bound.is_none_or(|b| compare_internal(key, b).is_lt()))
                .cloned()
                .collect();
            prop_assert_eq!(walk(&table, Direction::Forward, bound).unwrap(), ahead);
            prop_assert_eq!(walk(&table, Direction::Reverse, bound).unwrap(), behind);
        }
    }
}

pub(crate) fn small_entries() -> Entries {
    let mut entries = Vec::new();
    for i in 0..40u64 {
        let user = format!("key{:03}", 3 * i);
        for sequence in (0..=(i % 3)).rev() {
            let mut key = Vec::new();
            let (kind, value) = match i % 7 {
                6 => (ValueKind::Tombstone, String::new()),
                5 => (ValueKind::ExpiringPut, format!("expires value {i}")),
                _ => (ValueKind::Put, format!("value {i}")),
            };
            put_internal_key(&mut key, user.as_bytes(), 10 * i + sequence, kind);
            entries.push((key, value.into_bytes()));
        }
    }
    entries
}

/// Every answer of a damaged table is right, or an error that blames the file.
fn assert_right_or_corrupt(table: Result<Arc<Table>>, entries: &Entries, case: &str) -> bool {
    let blames = |error: &Error| {
        assert!(error.is_corruption() && error.to_string().contains(PATH), "{case}: {error}");
    };
    let table = match table {
        Ok(table) => table,
        Err(error) => {
            blames(&error);
            return false;
        }
    };
    let mut whole = true;
    for (key, _) in entries.iter().step_by(3) {
        match get(&table, user_key(key), SEQUENCE_MAX, READ) {
            Ok(found) => {
                assert_eq!(found, model_get(entries, user_key(key), SEQUENCE_MAX), "{case}");
            }
            Err(error) => {
                blames(&error);
                whole = false;
            }
        }
    }
    match walk(&table, Direction::Reverse, None) {
        Ok(found) => assert!(found.iter().rev().eq(entries), "{case}"),
        Err(error) => {
            blames(&error);
            whole = false;
        }
    }
    match table.verify(&mut |_| ()) {
        Ok(_) => {}
        Err(error) => blames(&error),
    }
    whole
}

/// The bytes of a table that only `verify` and rescues read.
fn header_and_prefixes(table: &[u8]) -> BTreeSet<usize> {
    let mut places: BTreeSet<usize> = (0..HEADER_BYTES).collect();
    let mut position = HEADER_BYTES;
    while position + FOOTER_BYTES < table.len() {
        let contents = position + BLOCK_PREFIX_BYTES;
        let prefix = table[position..contents].try_into().unwrap();
        let (_, size) = read_prefix(prefix, TABLE_ID, contents as u64).unwrap();
        places.extend(position..contents);
        position = contents + size as usize + BLOCK_TRAILER_BYTES;
    }
    assert_eq!(position + FOOTER_BYTES, table.len(), "the last block ends at the footer");
    places
}

#[test]
fn each_flipped_byte_is_noticed_or_harmless() {
    let entries = small_entries();
    for filter in filters() {
        let options = TableOptions { block_bytes: 400, ..options(filter) };
        let bytes = bytes_of(&options, &entries);
        let table = open(&bytes, Expect::default(), true).unwrap();
        let data_end = HEADER_BYTES as u64 + table.properties.data_bytes;
        let filter_end = data_end + table.properties.filter_bytes;
        let unread = header_and_prefixes(&bytes);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            let case = format!("{:?}, byte {at}", options.filter);
            let pinned = at % 2 == 0;
            let opened = open(&damaged, Expect::default(), pinned);
            let verified = opened.as_ref().is_ok_and(|table| table.verify(&mut |_| ()).is_ok());
            assert!(!verified, "{case}: verify passed");
            let whole = assert_right_or_corrupt(opened, &entries, &case);
            if unread.contains(&at) {
                assert!(whole, "{case}: no lookup reads this byte");
                continue;
            }
            let in_filter = (data_end..filter_end).contains(&(at as u64));
            assert_eq!(whole, in_filter || whole && (at as u64) >= data_end, "{case}");
            assert!(whole || !in_filter, "{case}: a damaged filter cost more than time");
        }
    }
}

#[test]
fn opening_notices_cut_and_extended_tables() {
    let entries = small_entries();
    let bytes = bytes_of(&options(filters().remove(4)), &entries);
    let bytes_len = Some(bytes.len() as u64);
    let global_sequence = Some(None);
    let expect =
        Expect { table_id: Some(TABLE_ID), bytes: bytes_len, keyspace: Some(0), global_sequence };
    open(&bytes, expect, true).unwrap();
    for cut in 0..bytes.len() {
        for expect in [expect, Expect::default()] {
            let error = open(&bytes[..cut], expect, true).unwrap_err();
            assert!(error.is_corruption(), "cut at {cut}: {error}");
        }
    }
    let longer = [&bytes[..], b"junk"].concat();
    assert!(open(&longer, expect, true).unwrap_err().is_corruption());
    assert!(open(&longer, Expect::default(), true).unwrap_err().is_corruption());
    let other = Expect { table_id: Some(1), ..Expect::default() };
    assert!(open(&bytes, other, true).unwrap_err().to_string().contains("table id"));
    let other = Expect { keyspace: Some(1), ..Expect::default() };
    let error = open(&bytes, other, true).unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("keyspace 0"), "{error}");
}

#[test]
fn large_values_share_their_own_block() {
    let mut entries = Entries::new();
    for i in 0..9u8 {
        let mut key = Vec::new();
        put_internal_key(&mut key, &[b'k', i], 1, ValueKind::Put);
        let len = if i == 4 { 300_000 } else { 10 };
        entries.push((key, (0..len).map(|j| (j % 251) as u8).collect()));
    }
    let table = open(&bytes_of(&options(None), &entries), Expect::default(), true).unwrap();
    assert_eq!(table.properties.data_blocks, 3);
    let mut iter = table.iter(Direction::Forward, READ);
    iter.seek(Some(&entries[4].0));
    let from_walk = iter.value_owned();
    drop(iter);
    for user in [&[b'k', 4][..], &[b'k', 3]] {
        let found = get(&table, user, 9, READ).unwrap();
        assert_eq!(found, model_get(&entries, user, 9));
    }
    drop(table);
    assert_eq!(from_walk, entries[4].1);
}

/// The compression types of the data blocks of a table with such values, and the length of the
/// table.
fn stored(value: impl Fn(u64) -> Vec<u8>, compression: Compression) -> (BTreeSet<u8>, usize) {
    let entries: Entries = (0..2_000u64)
        .map(|i| {
            let mut key = Vec::new();
            put_internal_key(&mut key, format!("key{i:05}").as_bytes(), i, ValueKind::Put);
            (key, value(i))
        })
        .collect();
    let bytes = bytes_of(&TableOptions { compression, ..options(None) }, &entries);
    let table = open(&bytes, Expect::default(), true).unwrap();
    let (index, _) = table.index.read(&table.file, &mut TableIo::default()).unwrap();
    let types = index.handles().map(|handle| bytes[(handle.offset + handle.size) as usize]);
    (types.collect(), bytes.len())
}

#[test]
fn blocks_are_compressed_where_that_pays() {
    let alike = |i: u64| format!("{i:>8}").repeat(20).into_bytes();
    let (types, raw_bytes) = stored(alike, Compression::None);
    assert_eq!(types, BTreeSet::from([0]));
    for compression in available().into_iter().skip(1) {
        let (types, bytes) = stored(alike, compression);
        assert_eq!(types, BTreeSet::from([compression.codec() as u8]));
        assert!(bytes * 4 < raw_bytes, "{compression}: {bytes} of {raw_bytes} bytes");
    }
    // Bytes without a pattern: compressed, they would be longer.
    let noise = |i: u64| {
        let mut state = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        (0..160).map(|_| next()).collect()
    };
    let (_, raw_bytes) = stored(noise, Compression::None);
    let (types, bytes) = stored(noise, Compression::Snappy);
    assert_eq!((types, bytes), (BTreeSet::from([0]), raw_bytes + "snappy".len() - "none".len()));
}
