//! RocksDB databases of any files, read in every way.
//!
//! Whatever the files hold, every answer is a value or an error that blames files, and no byte
//! changes. [`seal`] gives changed records their checksums. Most tables of the corpus have none, so
//! that changed blocks are read.

use crate::bundle::Files;
use crate::exercise::{HOME, contents, disk_of};
use crate::rng::Rng;
use siftdb::env::{Env, MemEnv};
use siftdb::{Error, Result};
use siftdb_foreign::{ForeignTable, MergeOperator, RocksDb, RocksDbOptions};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

/// The most keys found that are looked up.
const LOOKUPS_MAX: usize = 40;

/// Bytes of a page of a record file; no fragment crosses the end of one.
const PAGE: usize = 32 << 10;
/// Checksum, length and type of a fragment.
const HEADER: usize = 7;
/// The end of a table, which begins with the type of its checksums.
const FOOTER: usize = 53;

const MERGES: [Option<MergeOperator>; 5] = [
    None,
    Some(MergeOperator::Append),
    Some(MergeOperator::Uint64Add),
    Some(MergeOperator::Max),
    Some(MergeOperator::Last),
];

/// Reads a database of these files, with and without salvage. `choice` decides about merges.
pub fn exercise(files: &Files, choice: usize) {
    let env = disk_of(files);
    let before = contents(&env);
    for salvage in [false, true] {
        let mut options = options().salvage(salvage);
        if let Some(operator) = MERGES[choice % MERGES.len()] {
            options = options.merge(operator);
        }
        let open = |options| {
            let shared: Arc<dyn Env> = Arc::new(env.clone());
            honest(RocksDb::open(shared, Path::new(HOME), options), salvage)
        };
        let mut keys = vec![b"k".to_vec(), Vec::new(), vec![0xff; 9]];
        if let Some(database) = open(options.clone()) {
            read_entries(&database, &mut keys, salvage);
        }
        if let Some(database) = open(options.keys_only(true)) {
            look_up(&database, &keys);
        }
    }
    assert!(contents(&env) == before, "a look changed files");
}

/// The reason why files of the corpus are not good, as they are or sealed.
pub fn check(files: &Files) -> Result<()> {
    check_all(files)?;
    let mut sealed = files.clone();
    sealed.iter_mut().for_each(|(name, contents)| seal(name, contents));
    check_all(&sealed)
}

/// Reads all entries and filters.
fn check_all(files: &Files) -> Result<()> {
    let open = |options| RocksDb::open(Arc::new(disk_of(files)), Path::new(HOME), options);
    let database = open(options().merge(MergeOperator::Append))?;
    let database = database
        .families()
        .iter()
        .try_for_each(|family| database.entries(family).try_for_each(|entry| entry.map(drop)));
    database?;
    let database = open(options().keys_only(true))?;
    for family in database.families() {
        database.filter_figures(family)?;
        database.trace_lookups(family, &[b"k".to_vec()])?;
    }
    Ok(())
}

fn options() -> RocksDbOptions {
    RocksDbOptions::new().reverse_keys(true)
}

/// The answer, or an error that files can be blamed for. Salvage passes damage, unless there is no
/// manifest.
fn honest<T>(result: Result<T>, salvage: bool) -> Option<T> {
    match result {
        Ok(value) => return Some(value),
        Err(Error::Corruption { path, .. }) if salvage => {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            assert!(name == "CURRENT" || name.contains('-'), "salvage refused {name}");
        }
        Err(Error::Io { source, .. }) => {
            assert!(source.kind() != ErrorKind::UnexpectedEof, "read beyond the end of a file");
        }
        Err(Error::Missing { path, .. }) => assert!(!salvage, "salvage misses {}", path.display()),
        Err(
            Error::Corruption { .. }
            | Error::UnsupportedFormat { .. }
            | Error::InvalidArgument { .. },
        ) => {}
        Err(error) => panic!("no file is blamed by {error:?}"),
    }
    None
}

/// Reads all entries, which must be in order, and adds some of their keys to `keys`.
fn read_entries(database: &RocksDb, keys: &mut Vec<Vec<u8>>, salvage: bool) {
    for family in database.families() {
        let mut last: Option<Vec<u8>> = None;
        for entry in database.entries(family) {
            let Some((key, _)) = honest(entry, salvage) else { break };
            if let Some(last) = &last {
                let is_sorted = if family.has_reverse_keys() { *last > key } else { *last < key };
                assert!(is_sorted, "{last:?} before {key:?}");
            }
            if keys.len() < LOOKUPS_MAX {
                keys.push(key.clone());
            }
            last = Some(key);
        }
    }
    let _ = (database.losses(), database.prepared(), database.unread_wal_directory());
    let _ = database.entries_estimate();
}

/// Asks the filters of all tables.
fn look_up(database: &RocksDb, keys: &[Vec<u8>]) {
    for family in database.families() {
        let tables = honest(database.filter_figures(family), false);
        let trace = honest(database.trace_lookups(family, keys), false);
        let _ = family.filter_bits_per_key();
        if let (Some(tables), Some(trace)) = (tables, trace) {
            assert!(trace.lookups().len() <= keys.len() && trace.tables().len() >= tables.len());
        }
    }
}

/// Repairs the checksums of records, as far as frames hold. Blocks of tables keep theirs.
pub fn seal(name: &str, contents: &mut [u8]) {
    if is_record_file(name) {
        each_fragment(contents, |fragment| {
            let checksum = masked_crc32c(&fragment[6..]).to_le_bytes();
            fragment[..4].copy_from_slice(&checksum);
        });
    }
}

/// Logs and manifests.
pub fn is_record_file(name: &str) -> bool {
    name.ends_with(".log") || name.starts_with("MANIFEST-")
}

/// Calls `call` with the header and the payload of each fragment, as far as frames hold.
fn each_fragment(file: &mut [u8], mut call: impl FnMut(&mut [u8])) {
    for page in file.chunks_mut(PAGE) {
        let mut rest = page;
        while let Some(&[low, high]) = rest.get(4..6) {
            let end = HEADER + usize::from(u16::from_le_bytes([low, high]));
            let Some((fragment, after)) = rest.split_at_mut_checked(end) else { return };
            call(fragment);
            rest = after;
        }
    }
}

/// Changes a record of a log or manifest with `change`, or how many there are and their order. All
/// records become whole ones, so files of more than one page stay as they are.
pub fn in_records(
    file: &[u8],
    rng: &mut Rng,
    change: impl FnOnce(&mut Vec<u8>, &mut Rng),
) -> Vec<u8> {
    let mut payloads = Vec::new();
    each_fragment(&mut file.to_vec(), |fragment| payloads.push(fragment[HEADER..].to_vec()));
    if payloads.is_empty() || file.len() > PAGE {
        return file.to_vec();
    }
    let at = rng.below(payloads.len());
    match rng.below(8) {
        0 => payloads.insert(at, payloads[rng.below(payloads.len())].clone()),
        1 => drop(payloads.remove(at)),
        2 => {
            let next = (at + 1) % payloads.len();
            payloads.swap(at, next);
        }
        _ => change(&mut payloads[at], rng),
    }
    let mut changed = Vec::new();
    for payload in payloads {
        let checked = [&[1], &payload[..]].concat();
        changed.extend(masked_crc32c(&checked).to_le_bytes());
        changed.extend((payload.len() as u16).to_le_bytes());
        changed.extend(checked);
    }
    changed.truncate(PAGE);
    changed
}

/// RocksDB's checksum of a record.
fn masked_crc32c(bytes: &[u8]) -> u32 {
    let crc = bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 * (crc & 1)))
    });
    (!crc).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The databases of the corpus: those that RocksDB wrote for the tests, with `OPTIONS` cut down to
/// what is read.
pub const SEEDS: [&str; 10] = [
    "dictionary-lz4.rocksdb-7.8",
    "files-deleted.rocksdb-7.8",
    "ingested-ranges.rocksdb-7.8",
    "merge-append.rocksdb-7.8",
    "random-18.rocksdb-7.8",
    "ranges.rocksdb-7.8",
    "recycled-continued.rocksdb-11.8",
    "reverse-families.rocksdb-7.8",
    "snapshots.rocksdb-7.8",
    "transactions-prepared.rocksdb-7.8",
];

/// The files of a seed.
pub fn seed(name: &str) -> std::io::Result<Files> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/rocksdb").join(name);
    let mut files = crate::archive::unpack(&std::fs::read(path)?);
    files.remove("EXPECTED");
    const READ: [&str; 5] =
        ["wal_recovery_mode=", "allow_2pc=", "comparator=", "merge_operator=", "prefix_extractor="];
    for (_, options) in files.iter_mut().filter(|(name, _)| name.starts_with("OPTIONS-")) {
        let text = String::from_utf8_lossy(options).into_owned();
        let is_read = |line: &&str| {
            let line = line.trim();
            line.starts_with('[') || READ.iter().any(|name| line.starts_with(name))
        };
        let mut lines: Vec<&str> = text.lines().filter(is_read).collect();
        if let Some(database) = lines.iter().position(|line| *line == "[DBOptions]") {
            lines.insert(database + 1, "wal_dir=/other");
        }
        *options = lines.join("\n").into_bytes();
    }
    for (_, table) in files.iter_mut().filter(|(name, _)| name.ends_with(".sst")) {
        // One with another order of keys keeps its checksums.
        let _ = remove_checksums(table);
    }
    Ok(files)
}

/// Makes it a table without checksums. Those of format version 6 and later are not changed.
fn remove_checksums(table: &mut [u8]) -> Result<()> {
    let (env, path) = (MemEnv::new(), Path::new("/table"));
    env.write_file(path, table);
    let env: Arc<dyn Env> = Arc::new(env);
    let opened = ForeignTable::open(&env, path)?;
    if opened.format_version().is_none_or(|version| version > 5) {
        return Ok(());
    }
    opened.each_part(&mut |part| {
        let end = (part.offset + part.bytes) as usize;
        match part.kind {
            "footer" => table[end - FOOTER] = 0,
            _ => table[end - 4..end].fill(0),
        }
        Ok(())
    })
}
