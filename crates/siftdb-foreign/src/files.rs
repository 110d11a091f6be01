//! The files of a database of LevelDB or RocksDB, by their names.

use crate::error;
use crate::store::Store;
use siftdb::Result;
use siftdb::env::{Env, FileKind};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Tables, logs and options in a directory.
#[derive(Debug)]
pub(crate) struct Files {
    pub directory: PathBuf,
    /// By number.
    pub tables: BTreeMap<u64, PathBuf>,
    /// By number.
    pub logs: BTreeMap<u64, PathBuf>,
    /// RocksDB: the newest file of options.
    pub options: Option<PathBuf>,
    /// RocksDB has opened the directory to write: then it has a `LOCK` and mostly an `IDENTITY`.
    /// Checkpoints and restored backups have neither.
    pub was_opened: bool,
}

impl Files {
    /// Lists a directory of a store. Both read tables with the extension of the other, too.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn list(env: &dyn Env, directory: &Path, store: Store) -> Result<Self> {
        let entries = env.list(directory).map_err(|source| error::io("list", directory, source))?;
        let (own, other) = match store {
            Store::LevelDb => (".ldb", ".sst"),
            Store::RocksDb => (".sst", ".ldb"),
        };
        let (mut tables, mut logs, mut options) =
            (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut was_opened = false;
        for entry in entries.into_iter().filter(|entry| entry.kind == FileKind::File) {
            let path = directory.join(&entry.name);
            let number = |text: &str| text.parse::<u64>().ok();
            if let Some(number) = entry.name.strip_prefix("OPTIONS-").and_then(number) {
                options.insert(number, path);
            } else if let Some(number) = entry.name.strip_suffix(".log").and_then(number) {
                logs.insert(number, path);
            } else if let Some(number) = entry.name.strip_suffix(own).and_then(number) {
                tables.insert(number, path);
            } else if let Some(number) = entry.name.strip_suffix(other).and_then(number) {
                tables.entry(number).or_insert(path);
            }
            was_opened |= matches!(&*entry.name, "LOCK" | "IDENTITY");
        }
        let options = options.into_values().next_back();
        Ok(Files { directory: directory.to_path_buf(), tables, logs, options, was_opened })
    }

    /// RocksDB: adds the tables of other directories (`db_paths`, `cf_paths`). `OPTIONS` does not
    /// name them.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn add_tables(&mut self, env: &dyn Env, directories: &[PathBuf]) -> Result<()> {
        for directory in directories {
            for (number, path) in Files::list(env, directory, Store::RocksDb)?.tables {
                self.tables.entry(number).or_insert(path);
            }
        }
        Ok(())
    }

    /// RocksDB: the table of this number.
    ///
    /// # Errors
    /// `Missing`.
    pub(crate) fn table(&self, number: u64) -> Result<&PathBuf> {
        self.tables.get(&number).ok_or_else(|| {
            let what = "the manifest names this table; if it is in another directory (`db_paths`, \
                        `cf_paths`), name that (`siftdb import rocksdb --db-path`)";
            error::missing(self.directory.join(format!("{number:06}.sst")), what)
        })
    }
}
