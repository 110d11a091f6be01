//! Column families in the reverse order: databases that are written by hand.

use crate::internal_key::{SEQUENCE_MAX, internal_key};
use crate::key_order::KeyOrder;
use crate::leveldb::testing::{Block, put_block};
use crate::merge::MergeOperator;
use crate::rocksdb::database::{RocksDb, RocksDbOptions};
use crate::rocksdb::database_tests::{Fields, Files, Pairs, database, log, open_with, pairs};
use crate::rocksdb::properties::{self, INDEX_TYPE};
use crate::rocksdb::table::{RANGE_DELETES_NAME, TABLE_MAGIC};
use crate::testing::{put_u32, put_u64};
use siftdb::{Error, Result};

const REVERSE: KeyOrder = KeyOrder::Reverse;

/// The internal key of a value.
fn value(key: &str, sequence: u64) -> Vec<u8> {
    internal_key(key.as_bytes(), sequence << 8 | 1)
}

/// The end of a table that a range delete extended to this key.
fn range_end(key: &str) -> Vec<u8> {
    internal_key(key.as_bytes(), SEQUENCE_MAX << 8 | 0xf)
}

/// A table of version 2: keys with their sequence numbers, each in a block of its own, with the
/// number as value; and range deletes.
fn table(order: KeyOrder, keys: &[(&str, u64)], ranges: &[(&str, &str, u64)]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut put = |entries: &[(Vec<u8>, Vec<u8>)]| {
        let mut block = Block::default();
        entries.iter().for_each(|(key, value)| block.add(key, value, 1));
        put_block(&mut file, &block.finish(), false)
    };
    let of_key = |(key, sequence): &(&str, u64)| {
        let key = value(key, *sequence);
        let handle = put(&[(key.clone(), sequence.to_string().into())]);
        (key, handle)
    };
    let index: Vec<_> = keys.iter().map(of_key).collect();
    let of_range = |(start, end, sequence): &(&str, &str, u64)| {
        (internal_key(start.as_bytes(), sequence << 8 | 0xf), Vec::from(*end))
    };
    let ranges: Vec<_> = ranges.iter().map(of_range).collect();
    let properties =
        put(&[(INDEX_TYPE.into(), vec![0; 4]), ("rocksdb.comparator".into(), order.name().into())]);
    let mut metaindex = vec![(properties::NAME.into(), properties)];
    if !ranges.is_empty() {
        metaindex.push((RANGE_DELETES_NAME.into(), put(&ranges)));
    }
    // The kind of checksum, CRC-32C.
    let mut footer = vec![1];
    footer.extend(put(&metaindex));
    footer.extend(put(&index));
    footer.resize(41, 0);
    put_u32(&mut footer, 2);
    put_u64(&mut footer, TABLE_MAGIC);
    [file, footer].concat()
}

/// Tables of a level, with the keys at their ends.
type Tables<'a> = &'a [(u64, Vec<u8>, [Vec<u8>; 2])];

/// A database whose `default` has the reverse order, with tables by level, numbered from 10 on, and
/// a log.
fn reverse_database(tables: Tables<'_>, batches: &[Vec<u8>]) -> Files {
    let mut edit = Fields::default().number(1).text(REVERSE.name()).number(2).number(0);
    for (number, (level, bytes, [smallest, largest])) in (10..).zip(tables) {
        edit = edit.number(100).number(*level).number(number).number(bytes.len() as u64);
        edit = edit.text(smallest).text(largest).number(0).number(50);
    }
    let mut files = database(&[edit], &[(4, log(batches))]);
    let named = (10..).zip(tables);
    files.extend(named.map(|(number, (_, bytes, _))| (format!("{number:06}.sst"), bytes.clone())));
    files
}

fn open(files: &Files) -> Result<RocksDb> {
    open_with(files, RocksDbOptions::new().reverse_keys(true).merge(MergeOperator::Append))
}

fn read(files: &Files) -> Result<Pairs> {
    let database = open(files)?;
    database.entries(&database.families()[0]).collect()
}

fn put(key: &str, value: &str) -> Fields {
    Fields::default().put(key, value)
}

#[test]
fn tables_of_a_level_follow_each_other_in_their_order() {
    let ends =
        |first: (&str, u64), last: (&str, u64)| [value(first.0, first.1), value(last.0, last.1)];
    let middle = table(REVERSE, &[("m", 5), ("ka", 5), ("k", 7), ("k", 5)], &[]);
    let tables = [
        (6, middle.clone(), ends(("m", 5), ("k", 5))),
        (6, table(REVERSE, &[("b", 5), ("a", 5)], &[]), ends(("b", 5), ("a", 5))),
        (6, table(REVERSE, &[("z", 5)], &[]), ends(("z", 5), ("z", 5))),
        (0, table(REVERSE, &[("x", 9), ("m", 9)], &[]), ends(("x", 9), ("m", 9))),
    ];
    let batches = [put("y", "log").put("a", "log").batch(20, 2)];
    let all = [("z", "5"), ("y", "log"), ("x", "9"), ("m", "9"), ("ka", "5"), ("k", "7")];
    let all = [&all[..], &[("b", "5"), ("a", "log")]].concat();
    assert_eq!(read(&reverse_database(&tables, &batches)).unwrap(), pairs(&all));
    // Keys that are not between the ends that the manifest names. With range deletes, the ends need
    // not be keys.
    let with_range = table(REVERSE, &[("t", 9), ("m", 9)], &[("t", "d", 8)]);
    for (table, ends) in [
        (middle, ends(("k", 5), ("m", 5))),
        (with_range.clone(), [value("s", 9), range_end("d")]),
        (with_range, [value("t", 9), range_end("n")]),
    ] {
        let Err(Error::Corruption { what, .. }) = read(&reverse_database(&[(6, table, ends)], &[]))
        else {
            panic!()
        };
        assert!(what.contains("beyond what the manifest says"), "{what}");
    }
}

#[test]
fn keys_that_ascend_are_damage_in_the_reverse_order() {
    let ascending = table(REVERSE, &[("a", 5), ("m", 5)], &[]);
    let crossing = [("m", "k"), ("l", "a")].map(|(first, last)| {
        let (first, last) = ((first, 5), (last, 5));
        (6, table(REVERSE, &[first, last], &[]), [value(first.0, 5), value(last.0, 5)])
    });
    for (tables, expected) in [
        (&[(6, ascending, [value("a", 5), value("a", 5)])][..], "keys of the index out of order"),
        (&crossing[..], "keys out of order"),
    ] {
        let Err(Error::Corruption { what, .. }) = read(&reverse_database(tables, &[])) else {
            panic!("{expected}")
        };
        assert_eq!(what, expected);
    }
}

#[test]
fn range_deletes_begin_at_their_largest_key() {
    // Extended by its range delete, which covers a level below.
    let newer = table(REVERSE, &[("t", 9)], &[("t", "d", 8), ("c", "bb", 8)]);
    let keys = ["w", "t", "m", "da", "d", "ca", "c", "bb", "b"].map(|key| (key, 5));
    let tables = [
        (5, newer, [value("t", 9), range_end("bb")]),
        (6, table(REVERSE, &keys, &[]), [value("w", 5), value("b", 5)]),
    ];
    let read_with = |batches: &[Vec<u8>]| read(&reverse_database(&tables, batches)).unwrap();
    let left = pairs(&[("w", "5"), ("t", "9"), ("d", "5"), ("ca", "5"), ("bb", "5"), ("b", "5")]);
    assert_eq!(read_with(&[]), left);
    // A range of the log, then an empty one, which takes no sequence number.
    let range = put("u", "log").byte(0xf).text("ca").text("b").put("c", "log");
    let batches =
        [range.byte(0xf).text("k").text("k").batch(20, 4), put("bb", "next").batch(23, 1)];
    let left = [
        ("w", "5"),
        ("u", "log"),
        ("t", "9"),
        ("d", "5"),
        ("c", "log"),
        ("bb", "next"),
        ("b", "5"),
    ];
    assert_eq!(read_with(&batches), pairs(&left));
}

#[test]
fn malformed_range_deletes_of_the_reverse_order_are_found() {
    let ascending = table(REVERSE, &[("t", 9)], &[("b", "d", 8)]);
    let tables = [(6, ascending, [value("t", 9), value("a", 1)])];
    let Err(Error::Corruption { what, .. }) = read(&reverse_database(&tables, &[])) else {
        panic!()
    };
    assert_eq!(what, "a malformed range delete");
}

#[test]
fn operands_count_from_the_oldest_in_the_reverse_order() {
    let operand = |key: &str, value: &str| Fields::default().byte(2).text(key).text(value);
    let batches = [
        put("k", "1").batch(5, 1),
        operand("k", "2").batch(6, 1),
        operand("l", "x").batch(7, 1),
        operand("k", "3").batch(8, 1),
        operand("l", "y").batch(9, 1),
    ];
    let merged = read(&reverse_database(&[], &batches)).unwrap();
    assert_eq!(merged, pairs(&[("l", "x,y"), ("k", "1,2,3")]));
}

#[test]
fn tables_of_another_order_than_their_family_are_refused() {
    let tables = [(6, table(KeyOrder::Bytewise, &[("m", 5)], &[]), [value("m", 5), value("m", 5)])];
    let Err(Error::UnsupportedFormat { what, .. }) = open(&reverse_database(&tables, &[])) else {
        panic!()
    };
    assert!(what.contains("here only \"rocksdb.ReverseBytewiseComparator\" is read"), "{what}");
}

#[test]
fn options_name_the_order_that_the_manifest_does_not() {
    let batches = [put("a", "1").put("b", "1").batch(5, 2)];
    let mut files = database(&[Fields::default().number(2).number(0)], &[(4, log(&batches))]);
    assert_eq!(read(&files).unwrap(), pairs(&[("a", "1"), ("b", "1")]));
    let options = "[CFOptions \"default\"]\n  comparator=rocksdb.ReverseBytewiseComparator\n";
    files.insert("OPTIONS-000007".into(), options.into());
    assert_eq!(read(&files).unwrap(), pairs(&[("b", "1"), ("a", "1")]));
    let Err(Error::UnsupportedFormat { what, .. }) = open_with(&files, RocksDbOptions::new())
    else {
        panic!()
    };
    assert!(what.contains("in the order of \"rocksdb.ReverseBytewiseComparator\""), "{what}");
}
