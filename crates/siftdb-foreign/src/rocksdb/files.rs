//! The files of a RocksDB database, by their names.

use crate::error;
use siftdb::Result;
use siftdb::env::{Env, FileKind};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Tables, logs and options in a directory.
#[derive(Debug)]
pub(crate) struct Files {
    pub directory: PathBuf,
    /// By number.
    tables: BTreeMap<u64, PathBuf>,
    /// By number.
    pub logs: BTreeMap<u64, PathBuf>,
    /// The newest file of options.
    pub options: Option<PathBuf>,
    /// RocksDB has opened the directory to write: then it has a `LOCK` and mostly an `IDENTITY`.
    /// Checkpoints and restored backups have neither.
    pub was_opened: bool,
}

impl Files {
    /// Lists a directory.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn list(env: &dyn Env, directory: &Path) -> Result<Self> {
        let entries = env.list(directory).map_err(|source| error::io("list", directory, source))?;
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
            } else if let Some(number) = entry.name.strip_suffix(".sst").and_then(number) {
                tables.insert(number, path);
            } else if let Some(number) = entry.name.strip_suffix(".ldb").and_then(number) {
                // RocksDB reads tables with LevelDB's extension, too.
                tables.entry(number).or_insert(path);
            }
            was_opened |= matches!(&*entry.name, "LOCK" | "IDENTITY");
        }
        let options = options.into_values().next_back();
        Ok(Files { directory: directory.to_path_buf(), tables, logs, options, was_opened })
    }

    /// Adds the tables of other directories (`db_paths`, `cf_paths`). `OPTIONS` does not name them.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn add_tables(&mut self, env: &dyn Env, directories: &[PathBuf]) -> Result<()> {
        for directory in directories {
            for (number, path) in Files::list(env, directory)?.tables {
                self.tables.entry(number).or_insert(path);
            }
        }
        Ok(())
    }

    /// All tables with their numbers.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (u64, &Path)> {
        self.tables.iter().map(|(number, path)| (*number, path.as_path()))
    }

    /// The table of this number.
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
