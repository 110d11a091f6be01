//! The files of a RocksDB database, by their names.

use crate::error;
use siftdb::Result;
use siftdb::env::{Env, FileKind};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Tables, logs and options in a directory.
#[derive(Debug)]
pub(crate) struct Files {
    directory: PathBuf,
    /// By number.
    tables: BTreeMap<u64, PathBuf>,
    logs: BTreeMap<u64, PathBuf>,
    /// The newest file of options.
    pub options: Option<PathBuf>,
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
        }
        let options = options.into_values().next_back();
        Ok(Files { directory: directory.to_path_buf(), tables, logs, options })
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
            let what = "the manifest names this table; those of other paths (`db_paths`, \
                        `cf_paths`) must be in this directory, too";
            error::missing(self.directory.join(format!("{number:06}.sst")), what)
        })
    }

    /// The logs from this number on, the oldest first.
    pub(crate) fn logs_from(&self, number: u64) -> Vec<(u64, &PathBuf)> {
        self.logs.range(number..).map(|(number, path)| (*number, path)).collect()
    }
}
