//! Databases that RocksDB wrote, with what RocksDB itself found in them.
//!
//! `tests/fixtures/rocksdb` has an archive of each; `tests/fixtures/rocksdb-writer` is the program
//! that wrote them. For tests of the packages in `crates/`.

use crate::support::archive::{Files, unpack};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Keys and values, in order.
pub type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// What is in a database.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// By name of the column family.
    pub families: BTreeMap<Vec<u8>, Entries>,
    /// Names of transactions that were prepared and not committed, in order.
    pub prepared: Vec<Vec<u8>>,
}

/// A database that RocksDB wrote.
#[derive(Default)]
pub struct Fixture {
    pub name: String,
    pub files: Files,
    /// In RocksDB's order.
    pub expected: Contents,
    /// The column families with keys in the order of `rocksdb.ReverseBytewiseComparator`.
    pub reversed: BTreeSet<Vec<u8>>,
    /// A word for what is refused.
    pub refused: Option<String>,
}

/// All of them, by name.
pub fn fixtures() -> Vec<Fixture> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/rocksdb");
    let mut paths: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let fixture = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let mut files = unpack(&fs::read(path).unwrap());
        let expected = String::from_utf8(files.remove("EXPECTED").unwrap()).unwrap();
        let mut fixture = Fixture { name, files, ..Fixture::default() };
        parse(&expected, &mut fixture);
        fixture
    };
    paths.iter().map(fixture).collect()
}

/// Reads what RocksDB found, as the program wrote it.
fn parse(text: &str, fixture: &mut Fixture) {
    let Fixture { expected: contents, reversed, refused, .. } = fixture;
    let mut family = Vec::new();
    for line in text.lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["refused", word] => *refused = Some(word.to_owned()),
            ["prepared", name] => contents.prepared.push(unhex(name)),
            ["family", name, order] => {
                family = unhex(name);
                if order == "rocksdb.ReverseBytewiseComparator" {
                    reversed.insert(family.clone());
                }
                contents.families.insert(family.clone(), Entries::new());
            }
            [key, value] => {
                let entries = contents.families.get_mut(&family).unwrap();
                entries.push((unhex(key), unhex(value)));
            }
            _ => panic!("{line}"),
        }
    }
    contents.prepared.sort();
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = if text == "-" { "" } else { text };
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(byte).collect()
}
