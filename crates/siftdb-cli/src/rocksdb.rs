//! A RocksDB database, as a stream of keyspaces and entries: [`RocksSource`].
//!
//! A column family becomes a keyspace of the same name. Its settings are those of the newest file
//! `OPTIONS`, as far as siftdb has them and they mean the same; the others that change what is
//! stored are listed. Nothing is guessed: without that file a keyspace has the defaults.

use crate::args::unnamed;
use crate::bars::Bar;
use crate::exchange::record::{Expiry, Record};
use crate::failure::{Failure, Outcome};
use crate::filter_args::with_setting;
use crate::foreign_lock::lock;
use crate::settings::Setting;
use clap::{Args, ValueEnum};
use siftdb::env::DiskEnv;
use siftdb::{Db, Error, KeyspaceOptions};
use siftdb_foreign::{ColumnFamily, Entries, LevelDb, MergeOperator, RocksDb, RocksDbOptions};
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The settings of a column family that change what is stored or read and have no counterpart, with
/// the value of RocksDB's default. All others are about speed and memory alone.
const WITHOUT_COUNTERPART: [(&str, &[&str]); 9] = [
    ("comparator", &["leveldb.BytewiseComparator"]),
    ("compaction_filter", &["nullptr"]),
    ("compaction_filter_factory", &["nullptr"]),
    ("memtable_factory", &["SkipListFactory"]),
    ("merge_operator", &["nullptr"]),
    ("periodic_compaction_seconds", &["0", "18446744073709551614"]),
    ("sst_partitioner_factory", &["nullptr"]),
    ("table_factory", &["BlockBasedTable"]),
    ("ttl", &["0", "18446744073709551614"]),
];

/// The earliest stamp that `DBWithTTL` writes, in seconds since 1970: it is of the year 2013.
const STAMP_MIN: u32 = 1_368_146_402;

/// The arguments that only RocksDB's databases have.
#[derive(Args)]
pub struct RocksDbArgs {
    /// Resolve operands of merges in a RocksDB database by this operator
    #[arg(long, value_name = "OPERATOR", value_enum)]
    merge: Option<Merge>,
    /// For a database of DBWithTTL: each value ends with the time of its write. Take that from the
    /// value; the entry expires SECONDS later
    // Its operands of merges have stamps, too, which no operator here takes from them.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(conflicts_with = "merge")]
    ttl_db: Option<u32>,
    /// Read column families in the order of rocksdb.ReverseBytewiseComparator, too. Their keys
    /// ascend in siftdb; `siftdb scan --reverse` has RocksDB's order
    #[arg(long)]
    reverse_keys: bool,
    /// Read the logs of a RocksDB database from here, as with its option wal_dir. FROM itself
    /// leaves out the logs of the wal_dir that OPTIONS names
    #[arg(long, value_name = "DIR")]
    wal_dir: Option<PathBuf>,
    /// Look for tables here, too: a directory of RocksDB's db_paths or cf_paths. May be repeated
    #[arg(long, value_name = "DIR")]
    db_path: Vec<PathBuf>,
    /// After the copy, read the RocksDB database again, and look every entry up
    #[arg(long)]
    pub check: bool,
}

/// RocksDB's merge operators that are known.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Merge {
    /// UInt64AddOperator: the sum of numbers of eight bytes
    Uint64add,
    /// StringAppendOperator: one after the other, with its delimiter between them
    Append,
    /// MaxOperator: the bytewise largest
    Max,
    /// PutOperator: the last
    Last,
}

impl RocksDbArgs {
    /// Refuses the arguments for a source that is no RocksDB database.
    pub fn refuse_any(&self) -> Outcome {
        let any = self.merge.is_some()
            || self.ttl_db.is_some()
            || self.reverse_keys
            || self.wal_dir.is_some()
            || !self.db_path.is_empty()
            || self.check;
        match any {
            false => Ok(()),
            true => Err(Failure::usage(
                "--merge, --ttl-db, --reverse-keys, --wal-dir, --db-path and --check are for \
                 RocksDB databases",
            )),
        }
    }

    fn options(&self) -> RocksDbOptions {
        let mut options = RocksDbOptions::new().reverse_keys(self.reverse_keys);
        if let Some(directory) = &self.wal_dir {
            options = options.wal_directory(directory);
        }
        for directory in &self.db_path {
            options = options.table_directory(directory);
        }
        match self.merge {
            None => options,
            Some(Merge::Uint64add) => options.merge(MergeOperator::Uint64Add),
            Some(Merge::Append) => options.merge(MergeOperator::Append),
            Some(Merge::Max) => options.merge(MergeOperator::Max),
            Some(Merge::Last) => options.merge(MergeOperator::Last),
        }
    }
}

/// The sizes of blocks that siftdb has.
const BLOCK_BYTES: RangeInclusive<usize> = 64..=4 << 20;

/// The database, the lock that keeps RocksDB from opening it, and what was read of it.
pub struct RocksSource {
    pub database: RocksDb,
    _lock: Option<File>,
    /// Values end with stamps, after which entries live so long.
    ttl_seconds: Option<u32>,
    /// The column families that were begun.
    begun: usize,
    entries: Option<Entries>,
    bar: Bar,
}

/// Opens the database in `directory` to read its keys, after taking its lock. Other tables are in
/// `table_directories`. Changes no byte.
pub fn open_for_keys(
    directory: &Path,
    table_directories: &[PathBuf],
) -> Outcome<(RocksDb, Option<File>)> {
    let options = RocksDbOptions::new().keys_only(true).reverse_keys(true);
    let add = |options: RocksDbOptions, directory: &PathBuf| options.table_directory(directory);
    open(directory, table_directories.iter().fold(options, add))
}

fn open(directory: &Path, options: RocksDbOptions) -> Outcome<(RocksDb, Option<File>)> {
    let env = DiskEnv::new();
    // A database that was copied by hand may be without the files that only RocksDB writes.
    if !RocksDb::is_at(&env, directory) && !LevelDb::is_at(&env, directory) {
        return Err(Failure::no_foreign("RocksDB", directory));
    }
    let lock = lock(directory, "RocksDB")?;
    Ok((RocksDb::open(Arc::new(env), directory, options)?, lock))
}

impl RocksSource {
    /// Opens the database in `directory`, after taking its lock. Changes no byte.
    pub fn open(directory: &Path, salvage: bool, arguments: &RocksDbArgs) -> Outcome<Self> {
        let (database, _lock) = open(directory, arguments.options().salvage(salvage))?;
        // Before anything is written.
        database.families().iter().try_for_each(|family| name_of(family, &database).map(drop))?;
        let bar = Bar::about_keys("import", database.entries_estimate());
        let ttl_seconds = arguments.ttl_db;
        Ok(RocksSource { database, _lock, ttl_seconds, begun: 0, entries: None, bar })
    }

    /// The settings of `default`, which is the first column family.
    pub fn default_settings(&self) -> Outcome<KeyspaceOptions> {
        match self.database.families().first() {
            Some(family) if family.name() == b"default" => Ok(Carried::of(family).settings),
            _ => Ok(unnamed()),
        }
    }

    /// The next keyspace or entry; `None` at the end.
    pub fn next(&mut self) -> Outcome<Option<Record>> {
        if let Some(entry) = self.entries.as_mut().and_then(Iterator::next) {
            let (key, mut value) = entry?;
            self.bar.step();
            let expiry = match self.ttl_seconds {
                Some(seconds) => take_stamp(&key, &mut value, seconds)?,
                None => Expiry::OfKeyspace,
            };
            return Ok(Some(Record::Entry { key, value, expiry }));
        }
        let Some(family) = self.database.families().get(self.begun) else { return Ok(None) };
        let Carried { settings, mut left_out } = Carried::of(family);
        // It is a setting of the database, so it is listed once.
        if let Some(directory) = self.database.unread_wal_directory().filter(|_| self.begun == 0) {
            let value = directory.display().to_string();
            left_out.push(Setting { name: "wal_dir".into(), value });
        }
        self.begun += 1;
        self.entries = Some(self.database.entries(family));
        let (name, settings) = (name_of(family, &self.database)?, Box::new(settings));
        Ok(Some(Record::Keyspace { name, settings, left_out }))
    }

    /// Reads all, and compares every entry with what a lookup finds in `db`.
    pub fn check(mut self, db: &Db) -> Outcome {
        let mut keyspace = db.keyspace("default")?;
        while let Some(record) = self.next()? {
            match record {
                Record::Keyspace { name, .. } => keyspace = db.keyspace(&name)?,
                Record::Entry { key, value, expiry } => {
                    let found = keyspace.get(&key)?;
                    let is_over = matches!(expiry, Expiry::At(time) if time <= SystemTime::now());
                    if found.as_deref() != Some(&value[..]) && !(is_over && found.is_none()) {
                        let (name, key) = (keyspace.name(), key.escape_ascii());
                        let what = format!("keyspace {name:?} has another value of \"{key}\"");
                        return Err(Failure::fault(what));
                    }
                }
            }
        }
        Ok(())
    }
}

/// The keyspace name for a column family. Names of keyspaces are UTF-8.
fn name_of(family: &ColumnFamily, database: &RocksDb) -> Outcome<String> {
    std::str::from_utf8(family.name()).map(str::to_owned).map_err(|_| {
        let name = family.name().escape_ascii();
        let what = format!("a column family with the name \"{name}\", which is no UTF-8");
        Error::UnsupportedFormat { path: database.directory().into(), what }.into()
    })
}

/// Takes the stamp of `DBWithTTL` from the end of a value: when the entry was written.
fn take_stamp(key: &[u8], value: &mut Vec<u8>, ttl_seconds: u32) -> Outcome<Expiry> {
    let stamp = value.last_chunk().map(|stamp| u32::from_le_bytes(*stamp));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    // Clocks may differ by a day.
    let is_stamp = |stamp: &u32| *stamp >= STAMP_MIN && u64::from(*stamp) <= now + 86_400;
    let Some(stamp) = stamp.filter(is_stamp) else {
        let key = key.escape_ascii();
        let what = format!("the value of \"{key}\" has no stamp; DBWithTTL did not write it");
        return Err(Failure::usage(what));
    };
    value.truncate(value.len() - size_of::<u32>());
    let seconds = u64::from(stamp) + u64::from(ttl_seconds);
    Ok(Expiry::At(UNIX_EPOCH + Duration::from_secs(seconds)))
}

/// The settings of a column family as those of a keyspace.
#[derive(Debug)]
struct Carried {
    settings: KeyspaceOptions,
    /// Settings that have no counterpart, in RocksDB's words.
    left_out: Vec<Setting>,
}

impl Carried {
    fn of(family: &ColumnFamily) -> Self {
        let mut carried = Carried { settings: unnamed(), left_out: Vec::new() };
        let (own, tables) = (family.settings(), family.table_settings());
        carried.take_compression(own, "compression", "compression");
        let bottommost = "bottommost_compression";
        if own.get(bottommost).is_some_and(|how| how != "kDisableCompressionOption") {
            carried.take_compression(own, bottommost, "compression_at_last_level");
        }
        carried.take_block_bytes(tables);
        carried.take_filter(family);
        for (name, usual) in WITHOUT_COUNTERPART {
            if let Some(value) = own.get(name).filter(|value| !usual.contains(&&***value)) {
                carried.leave_out(name, value);
            }
        }
        carried
    }

    /// Takes a compression, if there is a setting of this name.
    fn take_compression(&mut self, own: &BTreeMap<String, String>, name: &str, own_name: &str) {
        let Some(value) = own.get(name) else { return };
        let compression = match &**value {
            "kNoCompression" => "none",
            "kSnappyCompression" => "snappy",
            "kLZ4Compression" | "kLZ4HCCompression" if cfg!(feature = "lz4") => "lz4",
            "kZSTD" if cfg!(feature = "zstd") => "zstd:3",
            value => return self.leave_out(name, value),
        };
        self.set(name, value, &format!("{own_name}={compression}"));
    }

    /// Takes the size of blocks, if there is a setting for it.
    fn take_block_bytes(&mut self, tables: &BTreeMap<String, String>) {
        let Some(value) = tables.get("block_size") else { return };
        match value.parse::<usize>().is_ok_and(|bytes| BLOCK_BYTES.contains(&bytes)) {
            true => self.set("block_size", value, &format!("block_bytes={value}")),
            false => self.leave_out("block_size", value),
        }
    }

    /// Takes filter and prefix extractor.
    fn take_filter(&mut self, family: &ColumnFamily) {
        let (own, tables) = (family.settings(), family.table_settings());
        let prefix = own.get("prefix_extractor").map(|value| (value, prefix_of(value)));
        if let Some((value, None)) = prefix
            && value != "nullptr"
        {
            self.leave_out("prefix_extractor", value);
        }
        let Some(policy) = tables.get("filter_policy") else { return };
        // Filters with prefixes have more keys than tables have entries.
        let has_prefixes = matches!(prefix, Some((_, Some(_))));
        let of_tables = family.filter_bits_per_key().filter(|_| !has_prefixes);
        let Some(filter) = filter_of(policy, of_tables) else {
            return self.leave_out("filter_policy", policy);
        };
        let is = |name: &str, value: &str| tables.get(name).is_some_and(|is| is == value);
        let prefix = prefix.and_then(|(_, prefix)| prefix).filter(|_| filter != "none");
        let has_whole_keys = !is("whole_key_filtering", "false");
        // Without whole keys and prefixes it has no keys at all.
        if filter == "none" || !has_whole_keys && prefix.is_none() {
            return self.set("filter_policy", policy, "filter=none");
        }
        let layout = if is("partition_filters", "true") { "partitioned" } else { "full" };
        let mut words = format!("filter={filter} layout={layout}");
        if let Some(prefix) = prefix {
            words += &format!(" prefix={prefix} whole_key={has_whole_keys}");
        }
        self.set("filter_policy", policy, &words);
    }

    /// Sets what `assignment` says. If siftdb cannot, the setting is left out.
    fn set(&mut self, name: &str, value: &str, assignment: &str) {
        match with_setting(self.settings.clone(), assignment) {
            Ok(settings) => self.settings = settings,
            Err(_) => self.leave_out(name, value),
        }
    }

    fn leave_out(&mut self, name: &str, value: &str) {
        self.left_out.push(Setting { name: name.into(), value: value.into() });
    }
}

/// The prefix that siftdb calls so.
fn prefix_of(extractor: &str) -> Option<String> {
    let (kind, bytes) = extractor.trim_matches(['{', '}']).rsplit_once(['.', ':'])?;
    let kind = match kind {
        "rocksdb.FixedPrefix" | "fixed" => "FixedPrefix",
        "rocksdb.CappedPrefix" | "capped" => "CappedPrefix",
        _ => return None,
    };
    Some(format!("siftdb.{kind}.{}", bytes.parse::<usize>().ok()?))
}

/// The filter that siftdb calls so. Some versions write no bits: then tables say how many they
/// have, a little more than whole bits, since filters end at cache lines.
fn filter_of(policy: &str, of_tables: Option<f64>) -> Option<String> {
    let mut parts = policy.split(':');
    let (kind, bits, level) = (parts.next()?, parts.next(), parts.next());
    let bits = match bits {
        Some(bits) => bits.parse::<f64>().ok()?,
        None if kind == "nullptr" => 0.0,
        None => of_tables?.round().clamp(1.0, 100.0),
    };
    match (kind, level) {
        ("nullptr", None) => Some("none".into()),
        ("bloomfilter" | "rocksdb.BuiltinBloomFilter", _) => Some(format!("bloom:{bits}")),
        ("ribbonfilter", Some("-1")) => Some(format!("ribbon:{bits}")),
        // Flushes make Bloom filters, and they make tables of level 0.
        ("ribbonfilter", None | Some("0")) => Some(format!("bloom-then-ribbon:{bits}:1")),
        // Bloom filters up to a level, Ribbon from there on.
        ("ribbonfilter", Some(level)) => {
            Some(format!("bloom-then-ribbon:{bits}:{}", level.parse::<u8>().ok()?))
        }
        _ => None,
    }
}
