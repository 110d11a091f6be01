//! Databases in memory with options that make several levels of a few hundred kilobytes, and
//! functions that read all of such a database.

use super::rng::Rng;
use siftdb::env::{Env, MemEnv};
use siftdb::{Compression, Db, Error, Keyspace, KeyspaceOptions, Options, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The path of the databases on their disks in memory.
pub const HOME: &str = "/db";

/// Small blocks, tables, levels, write buffer and cache, and several compactions at a time, so that
/// little data causes everything that happens in a large database.
pub fn small_options() -> Options {
    Options::new()
        .write_buffer_bytes(64 << 10)
        .block_bytes(512)
        .index_partition_bytes(200)
        .table_bytes(16 << 10)
        .manifest_bytes(1 << 10)
        .level_base_bytes(64 << 10)
        .level0_compaction_trigger(2)
        .compaction_threads(3)
        .block_cache_bytes(128 << 10)
        .max_open_files(8)
}

/// The compressions that this build has, one of each codec.
pub fn compressions() -> Vec<Compression> {
    let mut all = vec![Compression::None, Compression::Snappy];
    if cfg!(feature = "lz4") {
        all.push(Compression::Lz4);
    }
    if cfg!(feature = "zstd") {
        all.push(Compression::Zstd(1));
    }
    all
}

/// Any compression, by level and at the last level, too, and any size of index partitions.
pub fn any_block_settings(rng: &mut Rng) -> KeyspaceOptions {
    let all = compressions();
    let mut settings = KeyspaceOptions::new().compression(*rng.pick(&all));
    settings = settings.index_partition_bytes(*rng.pick(&[0, 64, 200, 4096]));
    for level in 0..3 {
        if rng.chance(25) {
            settings = settings.compression_at_level(level, *rng.pick(&all));
        }
    }
    match rng.chance(40) {
        true => settings.compression_at_last_level(*rng.pick(&all)),
        false => settings,
    }
}

/// `env`, to be shared with a database.
pub fn as_env(env: &MemEnv) -> Arc<dyn Env> {
    Arc::new(env.clone())
}

/// Opens the database in [`HOME`] on `env`.
pub fn open(env: &MemEnv, options: &Options) -> Result<Db> {
    options.clone().env(as_env(env)).open(HOME)
}

/// All entries, in a forward scan.
pub fn scan(db: &Keyspace) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    db.iter().map(|entry| entry.map(|(key, value)| (key.into_vec(), value.into_vec()))).collect()
}

/// All entries, in the order of a reverse scan.
pub fn scan_back(db: &Keyspace) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let entries = db.iter().rev();
    entries.map(|entry| entry.map(|(key, value)| (key.into_vec(), value.into_vec()))).collect()
}

/// The contents of all files of the database but LOCK.
pub fn files(env: &MemEnv) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = env.list_files().into_iter().filter(|path| !path.ends_with("LOCK"));
    // A worker may remove a file after it was listed.
    paths.filter_map(|path| env.read_file(&path).map(|bytes| (path, bytes))).collect()
}

/// Files of a kind, by the end of their names, sorted.
pub fn files_ending(env: &MemEnv, end: &str) -> Vec<PathBuf> {
    env.list_files().into_iter().filter(|path| name(path).ends_with(end)).collect()
}

/// The last part of a path as text.
pub fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or("")
}

/// The logs that are begun, sorted. One that was made ahead of need is empty.
pub fn begun_logs(env: &MemEnv) -> Vec<PathBuf> {
    let begun = |log: &PathBuf| env.read_file(log).is_some_and(|bytes| !bytes.is_empty());
    files_ending(env, ".wal").into_iter().filter(begun).collect()
}

/// A disk of its own with the same files, all durable.
pub fn copy_of(files: &BTreeMap<PathBuf, Vec<u8>>) -> MemEnv {
    let env = MemEnv::new();
    for (path, bytes) in files {
        env.write_file(path, bytes);
    }
    env
}

/// True for the errors that damaged or missing files may lead to.
pub fn is_honest(error: &Error) -> bool {
    match error {
        Error::Io { .. } => true,
        Error::ReadOnly { cause } => is_honest(cause),
        error => error.is_corruption(),
    }
}

/// Waits until `holds`.
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "not {what}");
        std::thread::yield_now();
    }
}
