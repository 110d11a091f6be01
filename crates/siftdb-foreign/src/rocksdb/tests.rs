//! Reads of RocksDB's tables, compared with RocksDB's own answers.
//!
//! `tests/it/golden/rocksdb` has tables that RocksDB 11.8.1 wrote, and in `facts.json` what its own
//! reader says: entries (their number, and a checksum of all), counts, and for each lookup whether
//! its filter said no (0), maybe (1), or was not asked (-). `SIFTDB_ROCKSDB_TABLES` may name a
//! directory of more such tables.

use crate::filter::TableFilter;
use crate::key_order::KeyOrder;
use crate::rocksdb::properties::PropertyValue;
use crate::rocksdb::table::open;
use crate::single::{ForeignTable, TableItem};
use crate::testing::{file_bytes, put_u32, put_u64};
use serde_json::Value;
use siftdb::Result;
use siftdb::env::{DiskEnv, Env};
use siftdb_filter::testing::vectors::{array, number, unhex};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/it/golden/rocksdb")
}

pub(super) fn golden_bytes(name: &str) -> Vec<u8> {
    file_bytes(&golden().join(format!("{name}.sst")))
}

/// The tables of a directory by name, with what RocksDB says of them.
pub(super) fn recorded(directory: &Path) -> Vec<(PathBuf, Value)> {
    let facts = file_bytes(&directory.join("facts.json"));
    let Value::Object(facts) = serde_json::from_slice(&facts).unwrap() else { panic!("no facts") };
    facts.into_iter().map(|(name, fact)| (directory.join(format!("{name}.sst")), fact)).collect()
}

pub(super) fn all_recorded() -> Vec<(PathBuf, Value)> {
    let mut all = recorded(&golden());
    assert!(all.len() > 10);
    all.extend(
        std::env::var_os("SIFTDB_ROCKSDB_TABLES")
            .map(PathBuf::from)
            .iter()
            .flat_map(|more| recorded(more)),
    );
    all
}

/// All that a table has: range deletes, and entries as bytes.
pub(super) fn contents(table: &ForeignTable) -> Result<(Vec<u8>, Vec<u8>)> {
    let (mut ranges, mut entries) = (Vec::new(), Vec::new());
    let put = |dst: &mut Vec<u8>, bytes: &[u8]| {
        put_u32(dst, bytes.len() as u32);
        dst.extend_from_slice(bytes);
    };
    table.each_entry(None, &mut |item| {
        match *item {
            TableItem::RangeDelete { start, end, sequence } => {
                put(&mut ranges, start);
                put(&mut ranges, end);
                put_u64(&mut ranges, sequence);
            }
            TableItem::Entry { key, sequence, kind, value } => {
                put(&mut entries, key);
                put_u64(&mut entries, sequence << 8 | kind as u64);
                put(&mut entries, value);
            }
            TableItem::Block { .. } => {}
        }
        Ok(true)
    })?;
    Ok((ranges, entries))
}

pub(super) fn properties(table: &ForeignTable) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut all = Vec::new();
    table.each_property(&mut |name, value| {
        let value = match value {
            PropertyValue::Number(number) => number.to_le_bytes().to_vec(),
            PropertyValue::Bytes(bytes) => bytes.to_vec(),
        };
        all.push((name.to_vec(), value));
        Ok(())
    })?;
    Ok(all)
}

/// Different keys, in order.
pub(super) fn keys_of(table: &ForeignTable) -> Vec<Vec<u8>> {
    let mut keys = BTreeSet::new();
    let each = &mut |item: &TableItem<'_>| {
        if let TableItem::Entry { key, .. } = item {
            keys.insert(key.to_vec());
        }
        Ok(true)
    };
    table.each_entry(None, each).unwrap();
    keys.into_iter().collect()
}

#[test]
fn entries_and_counts_equal_those_of_rocksdb() {
    let env: Arc<dyn Env> = Arc::new(DiskEnv::new());
    for (path, facts) in all_recorded() {
        let table = ForeignTable::open(&env, &path).unwrap();
        let (_, entries) = contents(&table).unwrap();
        let digest = u64::from(crc32fast::hash(&entries));
        assert_eq!(digest, number(&facts, "digest"), "{}", path.display());
        let counts = table.verify().unwrap_or_else(|error| panic!("{error}"));
        let found = [
            counts.entries,
            counts.deletions + counts.range_deletes,
            counts.range_deletes,
            counts.data_blocks,
            counts.filter_bytes,
        ];
        let names = ["entries", "deletions", "range_deletes", "data_blocks", "filter_bytes"];
        assert_eq!(found, names.map(|name| number(&facts, name)), "{}", path.display());
        let mut parts = 0;
        let mut end = 0;
        table
            .each_part(&mut |part| {
                parts += 1;
                end = end.max(part.offset + part.bytes);
                Ok(())
            })
            .unwrap();
        assert!(parts as u64 > counts.data_blocks + counts.filter_partitions + 3);
        assert_eq!(end, table.bytes());
    }
}

/// The lookups of the recorded verdicts: absent keys, and each third key that is there.
fn probes_of(facts: &Value) -> Vec<Vec<u8>> {
    if facts.get("probes").is_some() {
        return array(facts, "probes").iter().map(|hex| unhex(hex.as_str().unwrap())).collect();
    }
    let written = number(facts, "written");
    let absent = (0..100u64).map(|i| {
        let letter = char::from(b'a' + (i % 26) as u8);
        format!("user{:06}{letter}", i * 37 % written)
    });
    let there = (0..written).step_by(3).map(|i| format!("user{i:06}"));
    absent.chain(there).map(String::into_bytes).collect()
}

#[test]
fn filters_answer_as_in_rocksdb() {
    let (env, mut asked, mut passed) = (DiskEnv::new(), 0, 0);
    for (path, facts) in all_recorded() {
        let (table, _) = open(&env, &path, KeyOrder::Bytewise).unwrap();
        let verdicts = facts["verdicts"].as_str().unwrap().bytes();
        let mut probes: Vec<(Vec<u8>, u8)> = probes_of(&facts).into_iter().zip(verdicts).collect();
        probes.sort();
        let filter = TableFilter::open(&table).unwrap();
        let Some(mut filter) = filter.filter(TableFilter::is_asked) else { continue };
        for (key, verdict) in &probes {
            let maybe = filter.ask(&table, key, 0).unwrap();
            if *verdict != b'-' {
                assert_eq!(maybe, Some(*verdict == b'1'), "{} {key:?}", path.display());
                asked += 1;
                passed += u64::from(*verdict == b'1');
            }
        }
        check_figures(&path, &probes);
    }
    assert!(asked > 500 && passed > 100, "{asked} {passed}");
}

/// The figures must be the sums of RocksDB's verdicts for keys from the first to the last.
fn check_figures(path: &Path, probes: &[(Vec<u8>, u8)]) {
    let env: Arc<dyn Env> = Arc::new(DiskEnv::new());
    let table = ForeignTable::open(&env, path).unwrap();
    let keys = keys_of(&table);
    let within = |key: &&Vec<u8>| keys.first() <= Some(*key) && Some(*key) <= keys.last();
    let verdict = |wanted: u8, there: bool| {
        let of = probes.iter().filter(|(_, verdict)| *verdict == wanted).map(|(key, _)| key);
        of.filter(within).filter(|key| keys.binary_search(key).is_ok() == there).count() as u64
    };
    let sought: Vec<Vec<u8>> = probes.iter().map(|(key, _)| key.clone()).collect();
    let figures = table.filter_figures().unwrap().filters;
    let trace = table.trace_lookups(&sought).unwrap();
    let counts = trace.tables()[0];
    assert_eq!(counts.negatives, verdict(b'0', false), "{}", path.display());
    assert_eq!(counts.true_positives, verdict(b'1', true), "{}", path.display());
    assert_eq!(counts.false_positives, verdict(b'1', false), "{}", path.display());
    assert_eq!((figures.keys, trace.found()), (keys.len() as u64, counts.true_positives));
    assert!(counts.blocks_read <= counts.true_positives + counts.false_positives);
    assert!(figures.expected_fpr().is_some_and(|rate| rate > 0.0 && rate < 1.0), "{figures:?}");
    assert_eq!((figures.tables, figures.tables_without_filter), (1, 0));
}
