//! Tables whose data index has partitions: what is read of it, and when.

use crate::base::iterator::api::Direction;
use crate::base::key::{LookupKey, ValueKind, put_internal_key};
use crate::cache::cache::Cache;
use crate::table::batch_key::BatchKey;
use crate::table::block::builder::BlockBuilder;
use crate::table::builder::TableOptions;
use crate::table::data_index::DataIndex;
use crate::table::features::PARTITIONED_INDEX;
use crate::table::file::TableIo;
use crate::table::filter::layout::FilterMembers;
use crate::table::filter::ranges::RangeQuestion;
use crate::table::format::{
    BLOCK_TRAILER_BYTES, BlockIdentity, BlockKind, Codec, FOOTER_BYTES, Footer,
};
use crate::table::index::BlockCache;
use crate::table::partitioned_index::TopLevel;
use crate::table::properties::Properties;
use crate::table::reader::{Expect, FilterUse, Table, TableReadOptions};
use crate::table::tests::{
    Entries, PATH, TABLE_ID, bytes_of, filters, model_get, multi_get, new_env, open_in, options,
    walk,
};
use siftdb_filter::encoding::FilterVerdict;
use siftdb_filter::hash::KeyHash;
use std::path::Path;
use std::sync::Arc;

const READ: TableReadOptions = TableReadOptions::new();

fn entries() -> Entries {
    let entry = |i: u64| {
        let mut key = Vec::new();
        put_internal_key(&mut key, format!("key{i:05}").as_bytes(), i, ValueKind::Put);
        (key, vec![i as u8; 30])
    };
    (0..2000).map(entry).collect()
}

/// A table of these entries with partitions of this size. The cache grants this share of its
/// memory.
fn table(index_partition_bytes: usize, pinned_share: f64) -> Arc<Table> {
    open_with(&table_bytes(index_partition_bytes), pinned_share)
}

fn table_bytes(index_partition_bytes: usize) -> Vec<u8> {
    let options = TableOptions { index_partition_bytes, block_bytes: 256, ..options(None) };
    bytes_of(&options, &entries())
}

fn open_with(bytes: &[u8], pinned_share: f64) -> Arc<Table> {
    open_cached(bytes, Cache::new(4 << 20, pinned_share))
}

fn open_cached(bytes: &[u8], cache: Arc<BlockCache>) -> Arc<Table> {
    let env = new_env();
    env.write_file(Path::new(PATH), bytes);
    open_in(env, Expect::default(), cache).unwrap()
}

/// What one lookup of a key that is there touches.
fn io_of(table: &Table, key: &str) -> TableIo {
    let (lookup, hash) = (LookupKey::new(key.as_bytes(), 9999), KeyHash::new(key.as_bytes()));
    let mut io = TableIo::default();
    let (found, _) = table.get(&lookup, &hash, READ, FilterUse::Ask, &mut io).unwrap();
    assert_eq!(found, model_get(&entries(), key.as_bytes(), 9999));
    io
}

#[test]
fn a_lookup_reads_one_partition() {
    let table = table(400, 0.0);
    // The top level, and the partition.
    assert_eq!(io_of(&table, "key00000").index_read, 2);
    let io = io_of(&table, "key00001");
    assert_eq!((io.index_read, io.data_read, io.data_cached), (0, 0, 1));
    let io = io_of(&table, "key01000");
    assert_eq!((io.index_read, io.data_read), (1, 1));
    assert!(io.index_bytes <= 400, "{io:?}");
    assert_eq!(io_of(&table, "key09999").index_read, 0, "above all partitions");
    assert!(table.index.pinned().is_none());
}

#[test]
fn a_pinned_index_is_read_once_and_whole() {
    let table = table(400, 0.5);
    assert_eq!(
        io_of(&table, "key00000").index_read,
        2,
        "the top level, and all partitions at once"
    );
    for key in ["key01000", "key01999", "key09999"] {
        assert_eq!(io_of(&table, key).index_read, 0, "{key}");
    }
    assert!(table.index.known_partitions().is_none());
}

/// Filters and top levels have the rest.
#[test]
fn whole_indexes_take_a_quarter_of_the_pinned_share() {
    let bytes = table_bytes(400);
    for (capacity, is_whole) in [(128 << 10, false), (512 << 10, true)] {
        let cache = Cache::new(capacity, 0.5);
        let table = open_cached(&bytes, Arc::clone(&cache));
        io_of(&table, "key00000");
        assert_eq!(table.index.pinned().is_some(), is_whole, "{capacity}");
        assert_eq!(table.index.known_partitions().is_some(), !is_whole, "{capacity}");
        assert!((1..capacity / 8).contains(&cache.reserved_bytes()), "{capacity}");
    }
}

/// A position that an earlier step left would name another part.
#[test]
fn stale_positions_are_not_read_ahead() {
    let table = table(400, 0.0);
    let mut key = BatchKey::new(b"key00000", 9999, 0);
    let (index, _) = table.index.read(&table.file, &mut TableIo::default()).unwrap();
    key.block = index.entry(5);
    assert!(!table.locate_parts(&mut [&mut key]), "the top level was not read");
    // Another thread reads it now.
    io_of(&table, "key01999");
    assert!(table.missing_block(&key, BlockKind::IndexPartition).is_none());
    let mut keys = [&mut key];
    let io = &mut TableIo::default();
    table.locate_batch(&mut keys, false, io).unwrap();
    table.search_batch(&mut keys, true, io).unwrap();
    assert_eq!(key.answer, model_get(&entries(), b"key00000", 9999));
}

/// What is asked for is what the keys need.
#[test]
fn missing_blocks_are_known_before_they_are_read() {
    let table = table(400, 0.0);
    io_of(&table, "key01999");
    let (first, last) = (&b"key00000"[..], &b"key01000"[..]);
    let mut batch = [first, last].map(|key| BatchKey::new(key, 9999, 0));
    let mut keys: Vec<_> = batch.iter_mut().collect();
    assert!(table.locate_parts(&mut keys));
    let missing = |keys: &[&mut BatchKey<'_>], kind| {
        keys.iter().filter_map(|key| table.missing_block(key, kind)).count()
    };
    assert_eq!(missing(&keys, BlockKind::IndexPartition), 2);
    let io = &mut TableIo::default();
    table.locate_batch(&mut keys, false, io).unwrap();
    assert_eq!((io.index_read, io.data_read), (2, 0));
    assert_eq!(missing(&keys, BlockKind::Data), 2);
    table.search_batch(&mut keys, true, io).unwrap();
    assert_eq!((io.index_read, io.data_read), (2, 2));
    for (key, name) in batch.iter().zip([first, last]) {
        assert!(key.part.is_none(), "held no longer than needed");
        assert_eq!(key.answer, model_get(&entries(), name, 9999));
    }
}

/// Each form of the index gives the same answers and the same blocks.
#[test]
fn forms_of_the_index_agree() {
    let whole = table(0, 0.5);
    let keys: Vec<String> = (0..2100).step_by(7).map(|i| format!("key{i:05}")).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
    for (partition_bytes, share) in [(0, 0.0), (64, 0.0), (64, 0.5), (400, 0.0), (1 << 20, 0.0)] {
        let table = table(partition_bytes, share);
        let is_partitioned = (1..10_000).contains(&partition_bytes);
        assert_eq!(table.properties.requires(PARTITIONED_INDEX), is_partitioned);
        table.verify(&mut |_| {}).unwrap();
        for (key, found) in keys.iter().zip(multi_get(&table, &keys, 9999, READ).unwrap()) {
            assert_eq!(found.answer, model_get(&entries(), key, 9999));
            let bound = LookupKey::new(key, 9999);
            let before = |table: &Table| table.blocks_before(bound.internal_key()).unwrap();
            assert_eq!(before(&table), before(&whole), "{}", key.escape_ascii());
        }
        for direction in [Direction::Forward, Direction::Reverse] {
            for bound in [None, Some(&entries()[777].0[..]), Some(&b"z         "[..])] {
                let found = walk(&table, direction, bound).unwrap();
                assert_eq!(found, walk(&whole, direction, bound).unwrap());
            }
        }
    }
}

/// A range filter numbers data blocks through all partitions.
#[test]
fn ranges_are_asked_across_partitions() {
    let mut filter = filters().remove(1).unwrap();
    filter.range_millibits = 16_000;
    filter.members = FilterMembers::default();
    let of = |index_partition_bytes, pinned_share| {
        let options = options(Some(filter.clone()));
        let options = TableOptions { index_partition_bytes, block_bytes: 100, ..options };
        open_with(&bytes_of(&options, &entries()), pinned_share)
    };
    let (whole, parts) = (of(0, 0.5), of(64, 0.0));
    let mut denied = 0;
    for i in 0..1999 {
        // Between two neighbours, and over both.
        for (from, to) in [
            (format!("key{i:05}a"), format!("key{i:05}c")),
            (format!("key{i:05}"), format!("key{:05}a", i + 1)),
        ] {
            let start = LookupKey::new(from.as_bytes(), 9999);
            let range = RangeQuestion { start: &start, end: Some(to.as_bytes()), common: b"key" };
            let [of_whole, of_parts] = [&whole, &parts]
                .map(|table| table.range_may_match(&range, &mut TableIo::default()));
            assert_eq!(of_whole, of_parts, "{from}..{to}");
            denied += u32::from(of_whole == FilterVerdict::No);
        }
    }
    assert!(denied > 1000, "{denied} of 1999 empty ranges");
}

#[test]
fn hostile_top_levels_are_refused() {
    let built = |values: &[&[u8]]| {
        let mut builder = BlockBuilder::new(1);
        for (i, value) in values.iter().enumerate() {
            builder.add(&[i as u8], value);
        }
        TopLevel::new(builder.finish().to_vec(), true, 1000)
    };
    // Offset, size and count of data blocks.
    let top_level = built(&[&[0, 10, 3], &[30, 10, 1]]).unwrap();
    assert_eq!([0, 1, 2].map(|part| top_level.blocks_before(part)), [0, 3, 4]);
    for (values, what) in [
        (&[&[0, 10][..]][..], "without a count"),
        (&[&[0, 10, 0]], "a partition of no blocks"),
        (&[&[0, 10, 3, 0]], "more than a count"),
        (&[], "no partitions"),
        (&[&[30, 10, 3], &[0, 10, 3]], "backwards"),
    ] {
        assert!(built(values).is_err(), "{what}");
    }
    let most = [0, 10, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
    let next = [30, 10, 1];
    assert!(built(&[&most]).is_ok());
    assert!(built(&[&most, &next]).is_err(), "more blocks than can be counted");
}

#[test]
fn partitions_have_at_most_their_size() {
    let table = table(400, 0.0);
    let (_, top_level) = table.index.read(&table.file, &mut TableIo::default()).unwrap();
    let handles: Vec<_> = top_level.unwrap().partitions.handles().collect();
    assert!(handles.len() > 10);
    // The last one has what is left.
    for handle in handles.into_iter().rev().skip(1) {
        let io = &mut TableIo::default();
        let read = table.file.read_index(handle, BlockKind::IndexPartition, io).unwrap();
        assert!(handle.stored_bytes() <= 400 && read.len() > 1, "{handle:?}");
    }
}

/// A top level may claim another count or separator than its partition has, under a checksum that
/// holds.
#[test]
fn wrong_top_levels_are_damage() {
    let sound = table_bytes(400);
    let footer = *sound.last_chunk::<FOOTER_BYTES>().unwrap();
    let footer = Footer::decode(&footer, Path::new(PATH), 0).unwrap();
    let (from, to) = (footer.index.offset as usize, footer.index.offset + footer.index.size);
    // The first entry: three lengths, key and value, whose last byte is the count.
    let key_end = from + 3 + usize::from(sound[from + 1]);
    let value_end = key_end + usize::from(sound[from + 2]);
    for (wrong, pinned_share) in
        [(key_end, 0.0), (value_end, 0.0), (key_end, 0.5), (value_end, 0.5)]
    {
        let mut bytes = sound.clone();
        bytes[wrong - 1] += 1;
        let (table_id, offset) = (TABLE_ID, footer.index.offset);
        let identity = BlockIdentity { table_id, offset, kind: BlockKind::Index };
        let trailer = identity.trailer(&bytes[from..to as usize], Codec::None);
        bytes[to as usize..][..BLOCK_TRAILER_BYTES].copy_from_slice(&trailer);
        let table = open_with(&bytes, pinned_share);
        let (lookup, hash) = (LookupKey::new(b"key00000", 9999), KeyHash::new(b"key00000"));
        let found = table.get(&lookup, &hash, READ, FilterUse::Ask, &mut TableIo::default());
        assert!(found.is_err_and(|error| error.is_corruption()));
        assert!(multi_get(&table, &[b"key00000"], 9999, READ).is_err());
        let mut key = BatchKey::new(b"key00000", 9999, 0);
        if table.locate_parts(&mut [&mut key]) {
            let io = &mut TableIo::default();
            assert!(table.locate_batch(&mut [&mut key], false, io).is_err());
        }
        assert!(walk(&table, Direction::Forward, None).is_err());
        assert!(table.verify(&mut |_| {}).is_err_and(|error| error.is_corruption()));
    }
}

/// The memory of an index is reserved by what the properties say.
#[test]
fn properties_that_claim_another_size_are_damage() {
    let table = table(400, 0.5);
    let mut properties = table.properties.clone();
    let read = |properties: &Properties| {
        let index = DataIndex::new(&table.file, table.footer.index, properties);
        index.read(&table.file, &mut TableIo::default()).map(|(index, _)| index.len() as u64)
    };
    assert_eq!(read(&properties).unwrap(), properties.data_blocks);
    properties.index_bytes -= 1;
    assert!(read(&properties).is_err_and(|error| error.is_corruption()));
}
