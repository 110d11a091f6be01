//! Tests of whole tables: written by the builder, read by lookups, walks and `verify`.
//!
//! The model is the sorted list of entries. Options vary over block sizes, restart intervals, hash
//! index, compression, every filter layout and encoding, resident or cached filters and indexes.

use crate::cache::Cache;
use crate::checksum::masked;
use crate::env::api::Env;
use crate::env::handle::FilePool;
use crate::env::mem::MemEnv;
use crate::error::{Error, Result};
use crate::filter::hash::KeyHash;
use crate::filter::registry::Encoding;
use crate::iterator::api::{Direction, InternalIterator};
use crate::key::{
    Lookup, LookupKey, SEQUENCE_MAX, ValueKind, compare_internal, put_internal_key,
    put_key_with_trailer, split_internal_key, unpack_trailer, user_key,
};
use crate::sync::Arc;
use crate::table::builder::{TableBuilder, TableOptions, TableSummary};
use crate::table::fetch::TableIo;
use crate::table::filter_block::layout::{FilterLayout, FilterVerdict, TableFilter};
use crate::table::format::Compression;
use crate::table::reader::{Expect, Table, TableContext, TableReadOptions};
use crate::value::Value;
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use std::path::Path;

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

const PATH: &str = "/db/000001.sst";
const TABLE_ID: u64 = 0x0123_4567_89ab_cdef;
const READ: TableReadOptions =
    TableReadOptions { use_filters: true, fill_cache: true, filter_said_maybe: false };

fn options(filter: Option<TableFilter>) -> TableOptions {
    TableOptions {
        block_bytes: 4096,
        restart_interval: 16,
        hash_index: true,
        compression: Compression::None,
        filter,
    }
}

fn filters() -> Vec<Option<TableFilter>> {
    let layouts = [
        FilterLayout::BlockBased { window_bytes: 2048 },
        FilterLayout::Full,
        FilterLayout::Partitioned { block_bytes: 64 },
    ];
    let encodings = [
        Encoding::LevelDbBloom { bits_per_key: 10 },
        Encoding::FastLocalBloom { millibits: 10_000 },
    ];
    let mut filters = vec![None];
    for layout in layouts {
        for encoding in &encodings {
            filters.push(Some(TableFilter { encoding: encoding.clone(), layout }));
        }
    }
    filters
}

fn any_options() -> impl Strategy<Value = TableOptions> {
    let sizes = prop_oneof![Just(1usize), Just(60), Just(300), Just(4096)];
    let all = filters();
    (sizes, 1usize..18, any::<bool>(), any::<bool>(), 0..all.len()).prop_map(
        move |(block_bytes, restart_interval, hash_index, snappy, filter)| TableOptions {
            block_bytes,
            restart_interval,
            hash_index,
            compression: if snappy { Compression::Snappy } else { Compression::None },
            filter: all[filter].clone(),
        },
    )
}

/// Few letters and sequences: shared prefixes, several versions, runs of one user key.
fn any_entries() -> impl Strategy<Value = Entries> {
    let letter = prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(b'b'), Just(0xff)];
    let prefix = prop_oneof![Just(&b""[..]), Just(&b"user/with/a/long/prefix/"[..])];
    let keys = btree_set((vec(letter, 0..7), 0u64..12), 1..150);
    (prefix, keys, 0usize..80).prop_map(|(prefix, keys, value_bytes)| {
        let mut entries: Entries = Vec::new();
        for (tail, sequence) in keys {
            let kind = if sequence % 4 == 3 { ValueKind::Tombstone } else { ValueKind::Put };
            let mut key = Vec::new();
            put_internal_key(&mut key, &[prefix, &tail].concat(), sequence, kind);
            let value = match kind {
                ValueKind::Put => vec![sequence as u8; value_bytes * (tail.len() + 1)],
                ValueKind::Tombstone => Vec::new(),
            };
            entries.push((key, value));
        }
        entries.sort_by(|a, b| compare_internal(&a.0, &b.0));
        entries
    })
}

fn write(env: &MemEnv, options: &TableOptions, entries: &Entries) -> Result<TableSummary> {
    let file = env.create_new(Path::new(PATH)).unwrap();
    let mut builder = TableBuilder::new(file, PATH.into(), TABLE_ID, options.clone());
    for (key, value) in entries {
        builder.add(key, value)?;
    }
    builder.finish()
}

fn new_env() -> MemEnv {
    let env = MemEnv::new();
    env.create_dir(Path::new("/db")).unwrap();
    env
}

fn bytes_of(options: &TableOptions, entries: &Entries) -> Vec<u8> {
    let env = new_env();
    write(&env, options, entries).unwrap();
    env.read_file(Path::new(PATH)).unwrap()
}

/// Opens a table with these bytes; `resident` decides whether index and filter stay in memory.
fn open(bytes: &[u8], expect: Expect, resident: bool) -> Result<Arc<Table>> {
    let env = new_env();
    env.write_file(Path::new(PATH), bytes);
    let context = TableContext {
        files: FilePool::new(Arc::new(env), 4),
        cache: Cache::new(4 << 20, if resident { 0.5 } else { 0.0 }),
        custom_policies: Vec::new(),
    };
    Table::open(&context, Path::new(PATH), expect).map(Arc::new)
}

fn get(table: &Table, user: &[u8], sequence: u64, read: TableReadOptions) -> Result<Lookup> {
    let (key, hash) = (LookupKey::new(user, sequence), KeyHash::new(user));
    let (lookup, verdict) = table.get(&key, &hash, read, &mut TableIo::default())?;
    assert!(verdict != FilterVerdict::No || lookup == Lookup::Absent);
    Ok(lookup)
}

fn model_get(entries: &Entries, user: &[u8], sequence: u64) -> Lookup {
    let key = LookupKey::new(user, sequence);
    let found = entries.iter().find(|(k, _)| compare_internal(k, key.internal_key()).is_ge());
    let Some((found, value)) = found.filter(|(k, _)| user_key(k) == user) else {
        return Lookup::Absent;
    };
    match split_internal_key(found).and_then(|(_, trailer)| unpack_trailer(trailer)) {
        Some((_, ValueKind::Put)) => Lookup::Found(Value::from(&value[..])),
        _ => Lookup::Deleted,
    }
}

fn walk(table: &Arc<Table>, direction: Direction, bound: Option<&[u8]>) -> Result<Entries> {
    let mut iter = table.iter(direction, false);
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn tables_answer_as_the_model(
        entries in any_entries(),
        options in any_options(),
        others in any_entries(),
        resident: bool,
    ) {
        let bytes = bytes_of(&options, &entries);
        let table = open(&bytes, Expect::default(), resident).unwrap();
        prop_assert_eq!(table.resident_bytes() > 0, resident);
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

fn small_entries() -> Entries {
    let mut entries = Vec::new();
    for i in 0..40u64 {
        let user = format!("key{:03}", 3 * i);
        for sequence in (0..=(i % 3)).rev() {
            let mut key = Vec::new();
            let kind = if i % 7 == 6 { ValueKind::Tombstone } else { ValueKind::Put };
            put_internal_key(&mut key, user.as_bytes(), 10 * i + sequence, kind);
            let value = if kind == ValueKind::Put { format!("value {i}") } else { String::new() };
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

#[test]
fn each_flipped_byte_is_noticed_or_harmless() {
    let entries = small_entries();
    for filter in filters() {
        let options = TableOptions { block_bytes: 400, ..options(filter) };
        let bytes = bytes_of(&options, &entries);
        let table = open(&bytes, Expect::default(), true).unwrap();
        let data_end = table.properties().data_bytes;
        let filter_end = data_end + table.properties().filter_bytes;
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            let case = format!("{:?}, byte {at}", options.filter);
            let resident = at % 2 == 0;
            let opened = open(&damaged, Expect::default(), resident);
            let verified = opened.as_ref().is_ok_and(|table| table.verify(&mut |_| ()).is_ok());
            assert!(!verified, "{case}: verify passed");
            let whole = assert_right_or_corrupt(opened, &entries, &case);
            let in_filter = (data_end..filter_end).contains(&(at as u64));
            assert_eq!(whole, in_filter || whole && (at as u64) >= data_end, "{case}");
            assert!(whole || !in_filter, "{case}: a damaged filter cost more than time");
        }
    }
}

#[test]
fn each_cut_and_added_junk_is_noticed_at_open() {
    let entries = small_entries();
    let bytes = bytes_of(&options(filters().remove(4)), &entries);
    let expect = Expect { table_id: Some(TABLE_ID), bytes: Some(bytes.len() as u64) };
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
}

#[test]
fn what_cannot_be_in_a_table_is_refused() {
    let env = new_env();
    let file = env.create_new(Path::new(PATH)).unwrap();
    let mut builder = TableBuilder::new(file, PATH.into(), TABLE_ID, options(None));
    let key = |user: &[u8], trailer: u64| {
        let mut key = Vec::new();
        put_key_with_trailer(&mut key, user, trailer);
        key
    };
    builder.add(&key(b"b", 5 << 8 | 1), b"v").unwrap();
    let refused = [
        key(b"a", 5 << 8 | 1),
        key(b"b", 5 << 8 | 1),
        key(b"b", 6 << 8 | 1),
        key(b"c", 5 << 8 | 2),
        b"short".to_vec(),
        key(&[b'x'; 65_536], 1),
    ];
    for key in refused {
        let error = builder.add(&key, b"v").unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    }
    builder.add(&key(b"b", 4 << 8), b"").unwrap();
    let summary = builder.finish().unwrap();
    assert_eq!((summary.entries, summary.tombstones), (2, 1));
    assert_eq!((summary.smallest_sequence, summary.largest_sequence), (4, 5));
    assert_eq!((summary.smallest, summary.largest), (key(b"b", 5 << 8 | 1), key(b"b", 4 << 8)));
    env.remove(Path::new(PATH)).unwrap();
    assert!(write(&env, &options(None), &Vec::new()).is_err(), "an empty table");
}

#[test]
fn a_large_value_has_a_block_of_its_own_and_is_shared() {
    let mut entries = Entries::new();
    for i in 0..9u8 {
        let mut key = Vec::new();
        put_internal_key(&mut key, &[b'k', i], 1, ValueKind::Put);
        let len = if i == 4 { 300_000 } else { 10 };
        entries.push((key, (0..len).map(|j| (j % 251) as u8).collect()));
    }
    let table = open(&bytes_of(&options(None), &entries), Expect::default(), true).unwrap();
    assert_eq!(table.properties().data_blocks, 3);
    let mut iter = table.iter(Direction::Forward, true);
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

#[test]
fn golden_table() {
    let mut entries = Entries::new();
    for (user, sequence, value) in [("deck", 3, "v1"), ("dock", 2, "v2"), ("duck", 1, "v3")] {
        let mut key = Vec::new();
        put_internal_key(&mut key, user.as_bytes(), sequence, ValueKind::Put);
        entries.push((key, value.as_bytes().to_vec()));
    }
    let filter = TableFilter {
        encoding: Encoding::LevelDbBloom { bits_per_key: 10 },
        layout: FilterLayout::Full,
    };
    let options = TableOptions { block_bytes: 20, hash_index: false, ..options(Some(filter)) };
    let bytes = bytes_of(&options, &entries);
    assert_eq!(bytes, bytes_of(&options, &entries), "the same bytes again");
    let hex = |range: std::ops::Range<usize>| {
        bytes[range].iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let data = ["000c02", "6465636b", "0103000000000000", "7631", "00000000", "01000000"].concat();
    assert_eq!(hex(0..30), data + "00e76e64b8", "deck; dock and duck have blocks like it");
    let filter = ["21810211b018044b", "06"].concat();
    assert_eq!(hex(90..104), filter + "000010dfac", "as LevelDB writes it");
    let index = ["0002026466", "0019", "000202", "6470", "1e19", "000402", "6475636b", "3c19"];
    let index_at = bytes.len() - 56 - 44;
    assert_eq!(hex(index_at..index_at + 23), index.concat(), "df, dp, duck: user keys");
    let footer = [
        "8a02000000000000",
        "4e00000000000000",
        "dd02000000000000",
        "2700000000000000",
        "efcdab8967452301",
        "f2bccc7b",
        "01000000",
        "7369667464625354",
    ];
    assert_eq!(hex(bytes.len() - 56..bytes.len()), footer.concat());
    assert_eq!((bytes.len(), masked(&bytes)), (833, 950_069_159));
}
