//! Manifests and logs that are written by hand, for what no recorded database has.

use crate::checksum::masked_crc32c;
use crate::internal_key::internal_key;
use crate::leveldb::testing::record_file;
use crate::merge::MergeOperator;
use crate::rocksdb::database::{RocksDb, RocksDbOptions};
use crate::rocksdb::tests::golden_bytes;
use crate::single::{ForeignTable, TableItem};
use crate::testing::{put_length_prefixed, put_u32, put_u64, put_varint};
use siftdb::env::{CountingEnv, Env, MemEnv};
use siftdb::{Error, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

pub(super) type Files = BTreeMap<String, Vec<u8>>;
pub(super) type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// A record of bytes, varints and strings.
#[derive(Clone, Default)]
pub(super) struct Fields(Vec<u8>);

impl Fields {
    pub(super) fn byte(mut self, byte: u8) -> Self {
        self.0.push(byte);
        self
    }

    pub(super) fn number(mut self, number: u64) -> Self {
        put_varint(&mut self.0, number);
        self
    }

    pub(super) fn text(mut self, text: impl AsRef<[u8]>) -> Self {
        put_length_prefixed(&mut self.0, text.as_ref());
        self
    }

    pub(super) fn put(self, key: &str, value: &str) -> Self {
        self.byte(1).text(key).text(value)
    }

    /// As a batch from this sequence number on, which says that it has `count` entries.
    pub(super) fn batch(self, sequence: u64, count: u32) -> Vec<u8> {
        let mut batch = Vec::new();
        put_u64(&mut batch, sequence);
        put_u32(&mut batch, count);
        batch.extend(self.0);
        batch
    }
}

/// An edit of `default` alone: its comparator and first log.
fn first_edit() -> Fields {
    Fields::default().number(1).text("leveldb.BytewiseComparator").number(2).number(0)
}

/// A database of these edits, and logs by number.
pub(super) fn database(edits: &[Fields], logs: &[(u64, Vec<u8>)]) -> Files {
    let edits: Vec<_> = edits.iter().map(|edit| edit.0.clone()).collect();
    let mut files = Files::from([
        ("CURRENT".into(), b"MANIFEST-000001\n".to_vec()),
        ("MANIFEST-000001".into(), record_file(&edits)),
    ]);
    files.extend(logs.iter().map(|(number, log)| (format!("{number:06}.log"), log.clone())));
    files
}

pub(super) fn log(batches: &[Vec<u8>]) -> Vec<u8> {
    record_file(batches)
}

fn open(files: &Files, salvage: bool) -> Result<RocksDb> {
    // The recorded table has operands.
    open_with(files, RocksDbOptions::new().salvage(salvage).merge(MergeOperator::Last))
}

pub(super) fn open_with(files: &Files, options: RocksDbOptions) -> Result<RocksDb> {
    let env = MemEnv::new();
    let home = Path::new("/old");
    env.create_dir(home).unwrap();
    for (name, bytes) in files {
        env.write_file(&home.join(name), bytes);
    }
    RocksDb::open(Arc::new(env), home, options)
}

/// The entries of `default`.
fn read(files: &Files) -> Result<Pairs> {
    let database = open(files, false)?;
    database.entries(&database.families()[0]).collect()
}

fn damage(files: &Files) -> String {
    match read(files) {
        Err(Error::Corruption { what, .. }) => what,
        read => panic!("{read:?}"),
    }
}

pub(super) fn pairs(pairs: &[(&str, &str)]) -> Pairs {
    pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}

#[test]
fn batches_count_from_their_sequence_number() {
    let batches = [
        Fields::default().put("a", "1").put("b", "1").batch(5, 2),
        // A deletion, a range delete, a single deletion, a note, and a value with its time.
        Fields::default().byte(0).text("a").batch(7, 1),
        Fields::default().put("c", "1").byte(0xf).text("b").text("c").batch(8, 2),
        Fields::default().byte(7).text("c").byte(3).text("note").put("d", "1").batch(10, 2),
        Fields::default().byte(0x18).text("e").text("value12345678").batch(12, 1),
    ];
    let files = database(&[first_edit()], &[(4, log(&batches))]);
    assert_eq!(read(&files).unwrap(), pairs(&[("d", "1"), ("e", "value")]));
    let short = Fields::default().byte(0x18).text("e").text("1234567").batch(12, 1);
    let files = database(&[first_edit()], &[(4, log(&[short]))]);
    assert_eq!(damage(&files), "a value without its time");
}

/// The log of the next session began below what was expected, and was dropped.
#[test]
fn empty_range_deletes_take_no_sequence_number() {
    let empty = Fields::default().byte(0xf).text("k").text("k").put("a", "1").batch(5, 2);
    let next = Fields::default().put("b", "1").batch(6, 1);
    let files = database(&[first_edit()], &[(4, log(&[empty])), (6, log(&[next]))]);
    assert_eq!(read(&files).unwrap(), pairs(&[("a", "1"), ("b", "1")]));
    assert!(open(&files, false).unwrap().losses().is_empty());
}

#[test]
fn batches_that_contradict_themselves_are_not_replayed() {
    let good = Fields::default().put("a", "1").batch(5, 1);
    for (bad, what) in [
        (Fields::default().put("b", "1").batch(6, 2), "another number of entries"),
        (Fields::default().put("b", "1").batch(5, 1), "does not follow"),
        (Fields::default().byte(0x7e).text("b").batch(6, 1), "malformed"),
        (Fields::default().byte(1).text("b").batch(6, 1), "malformed"),
    ] {
        let files = database(&[first_edit()], &[(4, log(&[good.clone(), bad]))]);
        // Recovery to a point in time: what is before it counts.
        let opened = open(&files, false).unwrap();
        let losses = opened.losses();
        assert!(losses.len() == 1 && losses[0].what.contains(what), "{losses:?}");
        assert_eq!(read(&files).unwrap(), pairs(&[("a", "1")]));
        let mut strict = files.clone();
        let options = "[DBOptions]\nwal_recovery_mode=kAbsoluteConsistency\n";
        strict.insert("OPTIONS-000007".into(), options.into());
        assert!(damage(&strict).contains(what));
    }
}

#[test]
fn replay_stops_before_tables_that_are_newer() {
    let batch = Fields::default().put("a", "1").batch(5, 1);
    let mut cut = log(&[batch.clone(), batch]);
    cut.truncate(cut.len() - 1);
    // Another family has all up to log 6 in a table.
    let added = Fields::default().number(200).number(1).number(201).text("other");
    let added = added.number(1).text("leveldb.BytewiseComparator");
    let table = golden_bytes(TABLE);
    let flushed = |log: u64| {
        let edit = Fields::default().number(200).number(1).number(2).number(log);
        with_table(edit, &ends_of(&table, None), table.len())
    };
    for (first_log, is_newer) in [(4, false), (6, true)] {
        let edits = [first_edit(), added.clone(), flushed(first_log)];
        let mut files = database(&edits, &[(4, cut.clone())]);
        files.insert("000009.sst".into(), table.clone());
        match open(&files, false) {
            Err(Error::Corruption { what, .. }) if is_newer => {
                assert!(what.contains("has tables that are newer"), "{what}");
            }
            Ok(opened) if !is_newer => assert_eq!(opened.losses().len(), 1),
            opened => panic!("{opened:?}"),
        }
    }
}

/// A recorded table without checksums, and with range deletes.
const TABLE: &str = "v5_none_partitioned";

/// The sequence number that the database gave a recorded table when it ingested it.
const GLOBAL_SEQUENCE: u64 = 10;

/// The internal keys at the ends of a table, with this sequence number if it was ingested.
fn ends_of(table: &[u8], global_sequence: Option<u64>) -> [Vec<u8>; 2] {
    let env = MemEnv::new();
    env.write_file(Path::new("/table"), table);
    let env: Arc<dyn Env> = Arc::new(env);
    let mut keys = Vec::new();
    let table = ForeignTable::open(&env, Path::new("/table")).unwrap();
    table
        .each_entry(None, &mut |item| {
            if let TableItem::Entry { key, sequence, kind, .. } = item {
                let sequence = global_sequence.unwrap_or(*sequence);
                keys.push(internal_key(key, sequence << 8 | *kind as u64));
            }
            Ok(true)
        })
        .unwrap();
    [keys.first().unwrap().clone(), keys.last().unwrap().clone()]
}

/// Adds the table 9 of level 6 to an edit, with these keys at its ends and this size.
fn with_table(edit: Fields, ends: &[Vec<u8>; 2], bytes: usize) -> Fields {
    let edit = edit.number(100).number(6).number(9).number(bytes as u64);
    edit.text(&ends[0]).text(&ends[1]).number(0).number(GLOBAL_SEQUENCE)
}

#[test]
fn tables_are_what_the_manifest_says() {
    let of = |ends: &[Vec<u8>; 2], length: usize, table: &[u8]| {
        let mut files = database(&[with_table(first_edit(), ends, length)], &[]);
        files.insert("000009.sst".into(), table.to_vec());
        files
    };
    let bytes = golden_bytes("ingested_crc32c");
    let ends = ends_of(&bytes, Some(GLOBAL_SEQUENCE));
    let whole = read(&of(&ends, bytes.len(), &bytes)).unwrap();
    assert!(!whole.is_empty());
    assert!(damage(&of(&ends, bytes.len() + 1, &bytes)).contains("the manifest says"));
    for (end, key, what) in [
        (0, &b"a"[..], "beyond what the manifest says"),
        (0, &b"z"[..], "beyond what the manifest says"),
        (1, &b"a"[..], "beyond what the manifest says"),
        (1, &b"z"[..], "ends before the largest key"),
    ] {
        let mut other = ends.clone();
        other[end] = internal_key(key, 1 << 8 | 1);
        let found = damage(&of(&other, bytes.len(), &bytes));
        assert!(found.contains(what), "{found}");
    }
    let bytes = golden_bytes(TABLE);
    let ends = ends_of(&bytes, None);
    assert!(read(&of(&ends, bytes.len(), &bytes)).unwrap().len() > 50);
    // The end of the name `rocksdb.num.entries`; keys share their fronts.
    let name = b"entries";
    let at = bytes.windows(name.len()).position(|window| window == name).unwrap() + name.len();
    let mut fewer = bytes.clone();
    fewer[at] -= 1;
    let found = damage(&of(&ends, bytes.len(), &fewer));
    assert!(found.starts_with("the table says"), "{found}");
    let missing = database(&[with_table(first_edit(), &ends, bytes.len())], &[]);
    assert!(matches!(read(&missing), Err(Error::Missing { .. })));
    assert_eq!(open(&missing, true).unwrap().losses().len(), 1);
}

#[test]
fn groups_of_edits_count_whole_or_not_at_all() {
    let log = [(4, log(&[Fields::default().put("a", "1").batch(5, 1)]))];
    // Both say that the log is in tables.
    let part = |rest: u64| Fields::default().number(2).number(5).number(300).number(rest);
    let begun = database(&[first_edit(), part(1)], &log);
    assert_eq!(read(&begun).unwrap(), pairs(&[("a", "1")]));
    let whole = database(&[first_edit(), part(1), part(0)], &log);
    assert_eq!(read(&whole).unwrap(), pairs(&[]));
}

#[test]
fn fields_that_need_not_be_known_are_passed() {
    let edit = first_edit()
        .number(8192 + 99)
        .text("of a later version")
        .number(8196)
        .number(4)
        .number(2)
        .number(77)
        .number(1)
        .number(8197)
        .number(3)
        .number(10)
        .number(2)
        .number(9)
        .number(0);
    assert_eq!(read(&database(std::slice::from_ref(&edit), &[])).unwrap(), pairs(&[]));
    let unknown = database(&[edit.number(99).text("x")], &[]);
    let Err(Error::UnsupportedFormat { what, .. }) = read(&unknown) else { panic!() };
    assert_eq!(what, "a field 99 of the manifest");
}

/// A log of a database that compresses its logs, without records yet.
#[test]
fn a_compressed_log_without_records_is_empty() {
    let part = |kind: u8, bytes: &[u8]| {
        let checked = [&[kind][..], bytes].concat();
        let mut part = masked_crc32c(&[&checked]).to_le_bytes().to_vec();
        part.extend((bytes.len() as u16).to_le_bytes());
        part.extend(checked);
        part
    };
    let mut log = part(9, &7u32.to_le_bytes());
    assert_eq!(read(&database(&[first_edit()], &[(4, log.clone())])).unwrap(), pairs(&[]));
    log.extend(part(1, b"compressed"));
    let Err(Error::UnsupportedFormat { what, .. }) = read(&database(&[first_edit()], &[(4, log)]))
    else {
        panic!()
    };
    assert_eq!(what, "a compressed log");
}

/// A part of a log that was written over another one.
fn recycled(number: u32, batch: &[u8]) -> Vec<u8> {
    let checked = [&[5][..], &number.to_le_bytes(), batch].concat();
    let mut part = masked_crc32c(&[&checked]).to_le_bytes().to_vec();
    part.extend((batch.len() as u16).to_le_bytes());
    part.extend(checked);
    part
}

#[test]
fn what_is_left_of_an_old_log_is_not_replayed() {
    let batch = |key: &str, sequence| Fields::default().put(key, "1").batch(sequence, 1);
    let mut log = recycled(4, &batch("a", 5));
    log.extend(recycled(3, &batch("b", 6)));
    let files = database(&[first_edit()], &[(4, log.clone())]);
    assert_eq!(read(&files).unwrap(), pairs(&[("a", "1")]));
    assert!(open(&files, false).unwrap().losses().is_empty());
    // A changed number is damage: the checksum is over it, too.
    log[7] ^= 1;
    let files = database(&[first_edit()], &[(4, log)]);
    assert_eq!(open(&files, false).unwrap().losses().len(), 1);
}

#[test]
fn transactions_count_from_their_commit() {
    let prepared =
        |name: &str, key: &str| Fields::default().byte(9).put(key, name).byte(0xa).text(name);
    let first = [
        prepared("one", "a").batch(5, 1),
        prepared("two", "b").batch(5, 1),
        Fields::default().put("a", "plain").batch(5, 1),
    ];
    let second = [
        Fields::default().byte(0xb).text("one").batch(6, 0),
        Fields::default().byte(0xc).text("two").batch(7, 0),
        prepared("three", "c").batch(7, 1),
        Fields::default().put("d", "last").batch(7, 1),
    ];
    let files = database(&[first_edit()], &[(4, log(&first)), (6, log(&second))]);
    assert_eq!(read(&files).unwrap(), pairs(&[("a", "one"), ("d", "last")]));
    assert_eq!(open(&files, false).unwrap().prepared(), [b"three".to_vec()]);
    let unsupported = Fields::default().byte(0x12).put("a", "1").byte(0xa).text("x").batch(5, 1);
    let files = database(&[first_edit()], &[(4, log(&[unsupported]))]);
    let Err(Error::UnsupportedFormat { what, .. }) = read(&files) else { panic!() };
    assert!(what.contains("WritePrepared"), "{what}");
}

/// A database whose key `k` has the operands `x` and `y`, in the column family of this name, and
/// `OPTIONS` as RocksDB writes it: names and delimiters are escaped by its `EscapeOptionString`.
fn with_operands(family: &str, escaped_family: &str, merge_operator: &str) -> Files {
    let added = Fields::default().number(200).number(7).number(201).text(family);
    let named =
        Fields::default().number(200).number(7).number(1).text("leveldb.BytewiseComparator");
    let operand = |fields: Fields, operand| fields.byte(6).number(7).text("k").text(operand);
    let batch = operand(operand(Fields::default(), "x"), "y").batch(5, 2);
    let mut files = database(&[first_edit(), added, named], &[(4, log(&[batch]))]);
    let options = format!(
        "[DBOptions]\n  wal_recovery_mode=kPointInTimeRecovery\n[CFOptions \"default\"]\n  \
         merge_operator=nullptr\n[CFOptions \"{escaped_family}\"]\n  \
         merge_operator={merge_operator}\n"
    );
    files.insert("OPTIONS-000007".into(), options.into_bytes());
    files
}

fn merged_by(operator: MergeOperator, files: &Files) -> Result<Pairs> {
    let database = open_with(files, RocksDbOptions::new().merge(operator))?;
    let family = database.families().iter().find(|family| family.name() != b"default").unwrap();
    database.entries(family).collect()
}

/// Delimiters as `StringAppendOperator` has them, and as RocksDB writes them: `EscapeOptionString`
/// escapes `\ # : \r \n` alone, and an empty value is not written at all.
#[test]
fn operands_are_joined_by_the_delimiter_of_the_database() {
    for (delimiter, setting) in [
        ("|", "{id=StringAppendOperator;delimiter=|;}"),
        ("::", "{id=StringAppendOperator;delimiter=\\:\\:;}"),
        ("\n", "{id=StringAppendOperator;delimiter=\\n;}"),
        (" ", "{id=StringAppendOperator;delimiter= ;}"),
        ("\t", "{id=StringAppendOperator;delimiter=\t;}"),
        (", ", "{id=StringAppendOperator;delimiter=, ;}"),
        (";", "{id=StringAppendOperator;delimiter=;;}"),
    ] {
        let joined = format!("x{delimiter}y");
        let read = merged_by(MergeOperator::Append, &with_operands("f", "f", setting));
        assert_eq!(read.unwrap(), pairs(&[("k", &joined)]), "{setting:?}");
    }
    // Empty, or from a version that wrote no delimiter: what cannot be known is refused.
    let files = with_operands("f", "f", "StringAppendOperator");
    let error = merged_by(MergeOperator::Append, &files).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
}

/// The names of column families are escaped in `OPTIONS`.
#[test]
fn the_settings_of_a_family_are_found_by_any_name() {
    for (name, escaped) in [("f", "f"), ("a:b", "a\\:b"), ("a#b", "a\\#b"), ("a\\b", "a\\\\b")] {
        let files = with_operands(name, escaped, "MaxOperator");
        let read = merged_by(MergeOperator::Append, &files);
        assert!(matches!(read, Err(Error::InvalidArgument { .. })), "{name}: {read:?}");
        assert_eq!(merged_by(MergeOperator::Max, &files).unwrap(), pairs(&[("k", "y")]), "{name}");
    }
}

/// Zeros before a last byte: each block must not be searched for what follows again.
#[test]
fn zeros_of_logs_are_read_once() {
    let mut zeros = vec![0; 8 << 20];
    zeros.push(1);
    let files = database(&[first_edit()], &[(4, zeros)]);
    let env = MemEnv::new();
    for (name, bytes) in &files {
        env.write_file(&Path::new("/old").join(name), bytes);
    }
    let counting = CountingEnv::new(Arc::new(env));
    let options = RocksDbOptions::new().salvage(true);
    RocksDb::open(Arc::new(counting.clone()), Path::new("/old"), options).unwrap();
    let read = counting.counts().read_bytes;
    assert!(read < 20 * (8 << 20), "{read} bytes were read");
}
