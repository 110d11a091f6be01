//! One function for each kind of input: it makes a directory of files around the input and does
//! everything with it, as it is and with checksums that were repaired.
//!
//! | target | the input is |
//! |---|---|
//! | `wal` | the log of a database that was killed |
//! | `manifest` | the manifest of a database that was closed |
//! | `block` | a byte that chooses, and a block in that role: data, raw or compressed, index, top-level filter index, metaindex, properties, range deletes; or a footer |
//! | `filter` | a byte that chooses, and a filter under that name: every layout and encoding |
//! | `table` | a whole table |
//! | `directory` | a bundle of files |
//! | `batch` | the body of a write batch in a log |
//! | `rocksdb_database` | a bundle of files of a RocksDB database, which is only read |

use crate::bundle::{Files, unpack};
use crate::exercise::{HOME, disk_of, exercise};
use crate::rocksdb;
use crate::seal::{Named, Stored, Table, property, record_file, seal, store_of};
use siftdb::{Db, Options, ReadOptions, Result};
use std::path::Path;
use std::sync::Arc;

/// A target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub name: &'static str,
    /// The directory around an input, with the checksums that it came with.
    pub files: fn(&[u8]) -> Files,
    /// Repairs the checksums of a file with this name.
    seal: fn(&str, &mut Vec<u8>),
    /// Does everything with a directory. The number chooses options.
    exercise: fn(&Files, usize),
    /// Why the files of an input of the corpus are not good.
    pub check: fn(&Files) -> Result<()>,
}

/// A target of siftdb's own files.
const fn own(name: &'static str, files: fn(&[u8]) -> Files) -> Target {
    Target { name, files, seal, exercise, check: crate::corpus::check }
}

/// All of them.
pub const ALL: [Target; 8] = [
    own("wal", around_wal),
    own("manifest", around_manifest),
    own("block", around_block),
    own("filter", around_filter),
    own("table", around_table),
    own("directory", unpack),
    own("batch", around_batch),
    Target {
        name: ROCKSDB_DATABASE,
        files: unpack,
        seal: |name, contents| rocksdb::seal(name, contents),
        exercise: rocksdb::exercise,
        check: rocksdb::check,
    },
];

/// The name of the target for RocksDB databases.
pub const ROCKSDB_DATABASE: &str = "rocksdb_database";

/// The target of that name.
pub fn find(name: &str) -> Option<&'static Target> {
    ALL.iter().find(|target| target.name == name)
}

impl Target {
    /// Does everything with an input: with the checksums as they came, and with those that the
    /// contents should have.
    pub fn run(&self, input: &[u8]) {
        let files = (self.files)(input);
        let mut sealed = files.clone();
        for (name, contents) in &mut sealed {
            (self.seal)(name, contents);
        }
        if sealed != files {
            (self.exercise)(&sealed, choice(input));
        }
        (self.exercise)(&files, choice(input));
        if self.name == "filter" {
            filter_changes_no_value(&files);
        }
    }
}

/// Names under which a metaindex may list a filter: every layout, every encoding that is read.
pub const FILTER_NAMES: [&str; 9] = [
    "filter.leveldb.BuiltinBloomFilter2",
    "filter.siftdb.FastLocalBloom",
    "filter.siftdb.LegacyBloom",
    "filter.siftdb.Ribbon",
    "fullfilter.leveldb.BuiltinBloomFilter2",
    "fullfilter.rocksdb.BuiltinBloomFilter",
    "partitionedfilter.leveldb.BuiltinBloomFilter2",
    "partitionedfilter.rocksdb.BuiltinBloomFilter",
    "fullfilter.nobody.knows",
];

/// Roles of a block, by the first byte of an input for `block`.
pub const ROLES: u8 = 8;

/// Above every key.
const ABOVE: [u8; 20] = [0xff; 20];

fn closed() -> Files {
    unpack(include_bytes!("../corpus/directory/closed"))
}

fn killed() -> Files {
    unpack(include_bytes!("../corpus/directory/killed"))
}

/// A table without a filter, uncompressed.
fn plain_table() -> Table {
    Table::take_apart(include_bytes!("../corpus/table/none")).expect("a table of the corpus")
}

/// A table with range deletes.
fn range_deletes_table() -> Table {
    let bytes = include_bytes!("../corpus/table/range-deletes");
    Table::take_apart(bytes).expect("a table of the corpus")
}

/// Replaces the file whose name has this in it.
fn with(mut files: Files, part: &str, input: &[u8]) -> Files {
    if let Some((_, contents)) = files.iter_mut().find(|(name, _)| name.contains(part)) {
        *contents = input.to_vec();
    }
    files
}

fn around_wal(input: &[u8]) -> Files {
    with(killed(), ".wal", input)
}

fn around_manifest(input: &[u8]) -> Files {
    with(closed(), "MANIFEST-", input)
}

/// The database of one table. The table's own properties say how many entries it has.
fn around_table(input: &[u8]) -> Files {
    let number = |name| property(input, name).first().copied().unwrap_or(0);
    // A manifest that lists an empty table is refused.
    let least = u64::from(number("range_deletes") == 0);
    let store = store_of(Path::new(""), input, number("entries").max(least));
    store.into_iter().map(|(path, bytes)| (path.display().to_string(), bytes)).collect()
}

fn around_block(input: &[u8]) -> Files {
    let (&role, block) = input.split_first().unwrap_or((&0, &[]));
    let mut table = plain_table();
    let stored = |kind| Stored { kind, ..Stored::raw(block.to_vec()) };
    let file = match role % ROLES {
        role @ (0 | 1) => {
            table.data = vec![(ABOVE.to_vec(), stored(role))];
            table.assemble()
        }
        2 => table.assemble_with(|_| block.to_vec(), |names| crate::seal::flat_block(&names)),
        3 => table.assemble_with(|index| crate::seal::flat_block(&index), |_| block.to_vec()),
        4 => {
            table.named[0].block = stored(0);
            table.assemble()
        }
        5 => {
            let name = FILTER_NAMES[7].into();
            table.named.insert(0, Named { name, block: stored(0), children: Vec::new() });
            table.assemble()
        }
        7 => {
            let mut table = range_deletes_table();
            let named = table.named.iter_mut().find(|named| named.name == b"siftdb.rangedel");
            named.into_iter().for_each(|named| named.block = stored(0));
            table.assemble()
        }
        _ => {
            let mut file = table.assemble();
            let footer = file.len() - 56;
            let len = block.len().min(40);
            file[footer..footer + len].copy_from_slice(&block[..len]);
            seal(".sst", &mut file);
            file
        }
    };
    around_table(&file)
}

fn around_filter(input: &[u8]) -> Files {
    let (&choice, filter) = input.split_first().unwrap_or((&0, &[]));
    let name = FILTER_NAMES[usize::from(choice) % FILTER_NAMES.len()];
    let mut table = plain_table();
    let block = Stored::raw(filter.to_vec());
    let partition = |key: &[u8]| (key.to_vec(), block.clone());
    let children = match name.starts_with("partitioned") {
        true => vec![partition(b"k020"), partition(&ABOVE)],
        false => Vec::new(),
    };
    table.named.insert(0, Named { name: name.into(), block, children });
    around_table(&table.assemble())
}

/// A log with its own first record, and this batch.
fn around_batch(input: &[u8]) -> Files {
    let files = killed();
    let Some((name, log)) = files.iter().find(|(name, _)| name.ends_with(".wal")) else {
        return files;
    };
    let number = name.trim_end_matches(".wal").parse().unwrap_or(0);
    let first = usize::from(log[24]);
    let start = log[31..31 + first].to_vec();
    let mut batch = vec![0];
    batch.extend_from_slice(input);
    batch.push(2);
    let log = record_file(b"siftdbWL", number, &[start, batch]);
    with(files.clone(), ".wal", &log)
}

/// A number made of the input, which chooses options.
fn choice(input: &[u8]) -> usize {
    input.iter().fold(0, |all, &byte| (all ^ usize::from(byte)).wrapping_mul(31)) >> 3
}

/// A filter may deny keys, being forged; it must not change a value.
fn filter_changes_no_value(files: &Files) {
    let options = Options::new().write_buffer_bytes(64 << 10).env(Arc::new(disk_of(files)));
    let db: Db = options.open(HOME).expect("a filter refuses no opening");
    let unfiltered = ReadOptions::new().use_filters(false);
    for number in 0..60 {
        let key = format!("k{number:03}");
        let found = db.get(&key).expect("a filter is no error");
        let there = db.get_with(&key, &unfiltered).expect("the data are sound");
        assert!(found.is_none() || found == there, "{key}: {found:?} instead of {there:?}");
    }
}

/// Sequence and count, which are in front of a batch's entries.
pub fn batch_front(sequence: u64, count: u32) -> Vec<u8> {
    let mut bytes = sequence.to_le_bytes().to_vec();
    bytes.extend_from_slice(&count.to_le_bytes());
    bytes
}
