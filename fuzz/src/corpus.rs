//! The corpus: a few kilobytes of good input for each target, made by siftdb's own writers. RocksDB
//! wrote the databases of its target.
//!
//! [`write`] makes all of it again, after a change of a format. Table ids are random, so the bytes
//! differ each time. [`read`] is for the runs. A target's `check` makes sure that every input is
//! accepted: mutations of an input that is refused at its first byte would test nothing.

use crate::bundle::{Files, pack};
use crate::exercise::{HOME, disk_of};
use crate::mutate::records_of;
use crate::rocksdb;
use crate::seal::{HEADER, PREFIX, TRAILER, Table, flat_block, handle_bytes, record_file, seal};
use crate::targets::{FILTER_NAMES, ROCKSDB_DATABASE, batch_front};
use siftdb::env::MemEnv;
use siftdb::filter::Encoding;
use siftdb::{
    Compression, Db, Filter, FilterLayout, Keyspace, KeyspaceOptions, Options, WriteBatch,
    WriteOptions,
};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The directory of the corpus.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// Names and bytes of a target's inputs, by name.
pub fn read(target: &str) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut inputs = Vec::new();
    for entry in fs::read_dir(directory().join(target))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        inputs.push((name, fs::read(entry.path())?));
    }
    inputs.sort();
    Ok(inputs)
}

/// The reason why files of siftdb's own in the corpus are not good.
pub fn check(files: &Files) -> siftdb::Result<()> {
    let env = disk_of(files);
    let db = Options::new().env(Arc::new(env)).open(HOME)?;
    db.iter().try_for_each(|entry| entry.map(drop))?;
    (0..60).try_for_each(|number| db.get(key(number)).map(drop))?;
    db.close()
}

fn key(number: usize) -> String {
    format!("k{number:03}{}", if number % 4 == 1 { "/tail" } else { "" })
}

fn options() -> Options {
    Options::new().write_buffer_bytes(64 << 10).block_bytes(128).auto_compaction(false)
}

fn open(env: &MemEnv, options: Options) -> siftdb::Result<Db> {
    options.env(Arc::new(env.clone())).open(HOME)
}

fn files(env: &MemEnv) -> Files {
    let named = env.list_files().into_iter().filter_map(|path| {
        let name = path.file_name()?.to_str()?.to_owned();
        Some((name, env.read_file(&path)?))
    });
    // Counters take more room than all the rest together.
    named.filter(|(name, _)| !matches!(name.as_str(), "LOCK" | "STATS")).collect()
}

fn fill(db: &Keyspace, numbers: impl Iterator<Item = usize>, round: usize) -> siftdb::Result<()> {
    for number in numbers {
        match (number + round) % 7 {
            6 => db.delete(key(number))?,
            4 => db.put_with(key(number), "expires", &expiring(1 << 40))?,
            3 => db.put_with(key(number), "expired", &expiring(0))?,
            _ => db.put(key(number), format!("value {number} of round {round}"))?,
        }
    }
    Ok(())
}

/// Of a put that lives that many seconds.
fn expiring(seconds: u64) -> WriteOptions {
    WriteOptions::new().expire_after(Duration::from_secs(seconds))
}

/// A table at level 1, one above it, and a log: after a kill, and after a close.
fn stores() -> siftdb::Result<(Files, Files)> {
    let filter = Filter::bloom(10.0).layout(FilterLayout::Partitioned { block_bytes: 64 });
    let env = MemEnv::new();
    let db = open(&env, options().filter(filter))?;
    let users = KeyspaceOptions::new().filter(Filter::ribbon(12.0)).block_bytes(256);
    let users = db.keyspace_with("users", &users)?;
    db.keyspace("dropped")?.put("k", "v")?;
    fill(&db, 0..40, 0)?;
    fill(&users, 0..10, 0)?;
    db.compact_range(..)?;
    fill(&db, (0..20).step_by(2), 1)?;
    db.delete_range(key(11)..key(15))?;
    db.flush()?;
    db.drop_keyspace("dropped")?;
    db.flush()?;
    // The flush is done; its log is removed a moment later.
    while files(&env).keys().filter(|name| name.ends_with(".wal")).count() > 1 {
        std::thread::yield_now();
    }
    fill(&db, 30..36, 2)?;
    let mut batch = WriteBatch::new();
    batch.delete("k007").put("both", "1").delete_range(key(33)..);
    batch.in_keyspace(&users).put("both", "2").delete("k003");
    db.write(batch)?;
    let killed = files(&env);
    db.close()?;
    Ok((killed, files(&env)))
}

/// A table with two versions of some keys.
fn table(options: Options) -> siftdb::Result<Vec<u8>> {
    table_of(options, &[])
}

/// The same with the range deletes from one number to another.
fn table_of(options: Options, ranges: &[(usize, usize)]) -> siftdb::Result<Vec<u8>> {
    let env = MemEnv::new();
    let db = open(&env, options)?;
    fill(&db, 0..30, 0)?;
    let snapshot = db.snapshot();
    fill(&db, (0..30).step_by(3), 1)?;
    for (from, to) in ranges {
        db.delete_range(key(*from)..key(*to))?;
    }
    db.flush()?;
    drop(snapshot);
    db.close()?;
    let files = files(&env);
    let table = files.into_iter().find(|(name, _)| name.ends_with(".sst"));
    Ok(table.map(|(_, bytes)| bytes).unwrap_or_default())
}

fn tables() -> siftdb::Result<Vec<(&'static str, Vec<u8>)>> {
    let windows = FilterLayout::BlockBased { window_bytes: 256 };
    let partitions = FilterLayout::Partitioned { block_bytes: 16 };
    let filters = [
        ("none", Filter::none()),
        ("full-bloom", Filter::bloom(10.0)),
        ("ranges", Filter::bloom(10.0).ranges(8.0)),
        ("full-leveldb", Filter::leveldb_bloom(10.0)),
        ("full-legacy", Filter::legacy_bloom(10.0)),
        ("full-ribbon", Filter::ribbon(10.0)),
        ("partitioned-bloom", Filter::bloom(10.0).layout(partitions)),
        ("partitioned-leveldb", Filter::leveldb_bloom(10.0).layout(partitions)),
        ("windows-leveldb", Filter::leveldb_bloom(10.0).layout(windows)),
        ("windows-bloom", Filter::bloom(10.0).layout(windows)),
        ("windows-legacy", Filter::legacy_bloom(10.0).layout(windows)),
    ];
    let mut tables = vec![("snappy", table(options().filter(Filter::none()).block_bytes(2048))?)];
    for (name, compression) in [("lz4", Compression::Lz4), ("zstd", Compression::Zstd(3))] {
        tables.push((name, table(options().compression(compression).block_bytes(2048))?));
    }
    let bloom = options().snappy(false).filter(Filter::bloom(10.0));
    tables.push(("range-deletes", table_of(bloom, &[(5, 9), (7, 40), (50, 60)])?));
    for (name, filter) in filters {
        tables.push((name, table(options().snappy(false).filter(filter))?));
    }
    Ok(tables)
}

/// Filters of fewer keys are Bloom filters.
fn ribbon() -> siftdb::Result<Vec<u8>> {
    let mut builder = Encoding::Ribbon { millibits: 10_000 }.builder();
    (0..200).for_each(|number| builder.add_key(key(number).as_bytes()));
    let mut filter = Vec::new();
    let built = builder.finish(&mut filter);
    built.map_err(|error| siftdb::Error::InvalidArgument { what: error.to_string() })?;
    Ok(filter)
}

fn put(target: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    let directory = directory().join(target);
    fs::create_dir_all(&directory)?;
    fs::write(directory.join(name), bytes)
}

/// The log with a record of two bulk loads after its start, as format version 2 has it.
fn with_loads(log: &[u8], number: u32) -> Vec<u8> {
    let mut records = records_of(log);
    let mut loads = vec![0];
    for (table_id, sequence) in [(7u64, 1), (u64::MAX, 2)] {
        loads.extend_from_slice(&table_id.to_le_bytes());
        loads.push(sequence);
    }
    loads.push(3);
    records.insert(records.len().min(1), loads);
    let mut log = record_file(b"siftdbWL", number, &records);
    log[8] = 2;
    seal(".wal", &mut log);
    log
}

/// Writes the whole corpus.
pub fn write() -> Result<(), Box<dyn std::error::Error>> {
    let (killed, closed) = stores()?;
    for (name, files) in [("killed", &killed), ("closed", &closed)] {
        put("directory", name, &pack(files))?;
        for (file, contents) in files {
            if file.ends_with(".wal") {
                let used = contents.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                put("wal", name, &contents[..used])?;
            }
        }
    }
    let manifest = closed.iter().find(|(name, _)| name.starts_with("MANIFEST-"));
    put("manifest", "closed", manifest.ok_or("no manifest")?.1)?;
    let (name, log) = killed.iter().find(|(name, _)| name.ends_with(".wal")).ok_or("no log")?;
    put("wal", "loads", &with_loads(log, name.trim_end_matches(".wal").parse()?))?;
    let batch = records_of(log).get(1).ok_or("no batch")?.clone();
    // Between `synced_through`, here one byte, and the kind.
    put("batch", "one", &batch[1..batch.len() - 1])?;
    let mut several = batch_front(u64::from_le_bytes(batch[1..9].try_into()?), 3);
    several.extend_from_slice(b"\x01\x01a\x011\x00\x01b\x01\x04k007\x05value");
    put("batch", "several", &several)?;
    let mut several = batch_front(u64::from_le_bytes(batch[1..9].try_into()?), 3);
    several.extend_from_slice(b"\x02\x01k\x04k013\x02\x04k050\x00");
    several.extend_from_slice(b"\x03\x04k001\x09\xff\xff\xff\xff\xff\0\0\0v");
    put("batch", "ranges", &several)?;
    let one_block = table(options().snappy(false).block_bytes(4096).filter(Filter::none()))?;
    let one_block = Table::take_apart(&one_block).ok_or("not a table")?;
    put("block", "data", &[&[0], &one_block.data[0].1.bytes[..]].concat())?;
    put("filter", "ribbon", &[&[5], &ribbon()?[..]].concat())?;
    for name in rocksdb::SEEDS {
        put(ROCKSDB_DATABASE, name, &pack(&rocksdb::seed(name)?))?;
    }
    for (name, bytes) in tables()? {
        put("table", name, &bytes)?;
        let table = Table::take_apart(&bytes).ok_or("not a table")?;
        put_blocks(name, &table, &bytes)?;
    }
    Ok(())
}

/// The blocks of a table, for the targets `block` and `filter`.
fn put_blocks(name: &str, table: &Table, file: &[u8]) -> io::Result<()> {
    let with = |role: usize, bytes: &[u8]| [&[role as u8], bytes].concat();
    for named in &table.named {
        let full = String::from_utf8_lossy(&named.name);
        if let Some(choice) = FILTER_NAMES.iter().position(|known| *known == full) {
            let filter = named.children.first().map_or(&named.block, |(_, child)| child);
            put("filter", name, &with(choice, &filter.bytes))?;
        }
    }
    match name {
        "none" => {
            let mut index = Vec::new();
            let mut at = (HEADER + PREFIX) as u64;
            for (separator, block) in &table.data {
                index.push((separator.clone(), handle_bytes((at, block.bytes.len() as u64))));
                at += (block.bytes.len() + TRAILER + PREFIX) as u64;
            }
            put("block", "index", &with(2, &flat_block(&index)))?;
            let properties = table.named[0].block.bytes.len() as u64;
            let names = vec![(table.named[0].name.clone(), handle_bytes((at, properties)))];
            put("block", "metaindex", &with(3, &flat_block(&names)))?;
            put("block", "properties", &with(4, &table.named[0].block.bytes))?;
            put("block", "footer", &with(6, &file[file.len() - 56..file.len() - 16]))
        }
        "range-deletes" => {
            let mut named = table.named.iter();
            let deletes = named.find(|named| named.name == b"siftdb.rangedel");
            let deletes = deletes.map_or(&[][..], |named| &named.block.bytes);
            put("block", "range-deletes", &with(7, deletes))
        }
        "snappy" => {
            let compressed = table.data.iter().find(|(_, block)| block.kind == 1);
            put("block", "snappy", &with(1, compressed.map_or(&[][..], |(_, b)| &b.bytes)))
        }
        "partitioned-bloom" => {
            let top = vec![
                (b"k020".to_vec(), handle_bytes((0, 20))),
                (b"k999".to_vec(), handle_bytes((100, 20))),
            ];
            put("block", "top-level", &with(5, &flat_block(&top)))
        }
        _ => Ok(()),
    }
}
