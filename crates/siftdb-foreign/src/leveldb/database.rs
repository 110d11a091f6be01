//! A LevelDB database: its live entries, in key order.
//!
//! The manifest names tables and the first log. Each level above 0 is one sorted run of tables;
//! each table of level 0 is a run of its own. The entries of the logs are sorted in memory. A merge
//! of all of them yields the newest version of each key first.
//!
//! The last record of the last log may be cut short by a crash. LevelDB drops such a record, and so
//! does this module, which also notes it. A bad record with a valid one after it is damage.
//!
//! Salvage continues after damage. If the manifest itself is damaged, salvage reads every table and
//! log of the directory. Then keys may return whose deletion a compaction completed.

use crate::current::read_current;
use crate::damage::{Damage, Loss};
use crate::entries::Entries;
use crate::error;
use crate::files::Files;
use crate::key_order::KeyOrder;
use crate::leveldb::logged::read_logs;
use crate::leveldb::manifest::{Manifest, read_manifest};
use crate::leveldb::table::open_expected;
use crate::merged::{Logged, MergedRuns};
use crate::range_deletes::RangeDeletes;
use crate::run::{Levels, TableFile, TableRun, sorted_runs};
use crate::store::Store;
use siftdb::Result;
use siftdb::env::Env;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The only order of keys that is read.
const ORDER: KeyOrder = KeyOrder::Bytewise;

/// A LevelDB database, opened to be read. Nothing in its directory is created or changed.
#[derive(Debug)]
pub struct LevelDb {
    pub(crate) env: Arc<dyn Env>,
    directory: PathBuf,
    /// Sorted runs of tables: each table of level 0, the oldest first, then each deeper level.
    runs: Vec<Vec<TableFile>>,
    /// The number of runs of level 0.
    level_0: usize,
    pub(crate) logged: Arc<Logged>,
    pub(crate) damage: Damage,
}

impl LevelDb {
    /// True if `directory` has a `CURRENT` of LevelDB or RocksDB, which is only the name of a
    /// manifest.
    #[must_use]
    pub fn is_at(env: &dyn Env, directory: &Path) -> bool {
        read_current(env, directory).is_ok_and(|contents| contents.starts_with(b"MANIFEST-"))
    }

    /// Reads manifest and logs of the database in `directory`. With `salvage`, damage is noted in
    /// [`LevelDb::losses`] and is no error.
    ///
    /// The caller holds the lock on the database's file `LOCK`, so that LevelDB writes nothing at
    /// the same time.
    ///
    /// # Errors
    /// [`Error::Io`](siftdb::Error::Io) if there is no `CURRENT`, or a file cannot be read. With
    /// `salvage` a missing `CURRENT` is noted, if there are tables or logs;
    /// [`Error::Corruption`](siftdb::Error::Corruption) and
    /// [`Error::Missing`](siftdb::Error::Missing) for damage;
    /// [`Error::UnsupportedFormat`](siftdb::Error::UnsupportedFormat) for a comparator that is not
    /// bytewise, and for a database of RocksDB.
    pub fn open(env: Arc<dyn Env>, directory: &Path, salvage: bool) -> Result<Self> {
        let damage = Damage::new(salvage);
        let files = Files::list(&*env, directory, Store::LevelDb)?;
        let manifest = match read_manifest(&*env, directory) {
            Ok(manifest) => Some(manifest),
            Err(error) => {
                // Without any file there is no database.
                let is_lost = salvage && !(files.tables.is_empty() && files.logs.is_empty());
                damage.pass(if is_lost { error::of_lost_file(error) } else { error })?;
                None
            }
        };
        let (Runs { runs, level_0 }, logs) = match &manifest {
            Some(manifest) => {
                expect_log(manifest, &files, &damage)?;
                let needed = files.logs.iter().filter(|(number, _)| manifest.needs_log(**number));
                let logs: Vec<_> = needed.map(|(_, path)| path).collect();
                (tables_of(manifest, &files, &damage)?, logs)
            }
            None => (all_tables(&files), files.logs.values().collect()),
        };
        let logged = Arc::new(read_logs(&*env, &logs, &damage)?);
        let directory = directory.to_path_buf();
        Ok(LevelDb { env, directory, runs, level_0, logged, damage })
    }

    /// The live entries, in ascending order of their keys.
    #[must_use]
    pub fn entries(&self) -> Entries {
        let run = |files: &Vec<TableFile>| {
            TableRun::new(&self.env, open_expected, files.clone(), &self.damage)
        };
        let runs = MergedRuns::new(ORDER, self.runs.iter().map(run), &self.logged);
        Entries::new(self.directory.clone(), runs, RangeDeletes::new(Vec::new()), None)
    }

    /// The tables, the newest first. A newer table of level 0 has a larger number.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &TableFile> {
        let (level_0, deeper) = self.runs.split_at(self.level_0);
        level_0.iter().rev().chain(deeper).flatten()
    }

    /// The number of its tables.
    #[must_use]
    pub fn tables(&self) -> usize {
        self.runs.iter().map(Vec::len).sum()
    }

    /// The parts that were not read so far: a record that a crash cut short and, if the database
    /// was opened to salvage, damage. The list ends after 16,384 of them, and says so.
    #[must_use]
    pub fn losses(&self) -> Vec<Loss> {
        self.damage.losses()
    }
}

/// Sorted runs of tables: each table of level 0, the oldest first, then each deeper level.
struct Runs {
    runs: Vec<Vec<TableFile>>,
    level_0: usize,
}

/// Checks that the first needed log exists. LevelDB creates it before the manifest names it.
fn expect_log(manifest: &Manifest, files: &Files, damage: &Damage) -> Result<()> {
    let number = manifest.log_number;
    if number == 0 || files.logs.contains_key(&number) {
        return Ok(());
    }
    let path = files.directory.join(format!("{number:06}.log"));
    damage.pass(error::missing(path, "the manifest names this log"))
}

/// Every table as a run of its own.
fn all_tables(files: &Files) -> Runs {
    let alone =
        |path: &PathBuf| vec![TableFile { path: path.clone(), expected: None, order: ORDER }];
    Runs { runs: files.tables.values().map(alone).collect(), level_0: files.tables.len() }
}

/// The tables that the manifest names: those of level 0 one by one, then each level.
fn tables_of(manifest: &Manifest, files: &Files, damage: &Damage) -> Result<Runs> {
    let mut levels = Levels::new();
    for (number, facts) in &manifest.tables {
        let Some(path) = files.tables.get(number) else {
            let path = files.directory.join(format!("{number:06}.ldb"));
            damage.pass(error::missing(path, "the manifest names this table"))?;
            continue;
        };
        // The readable part of a damaged table may end anywhere.
        let expected = (!damage.is_noted).then(|| facts.clone());
        let file = TableFile { path: path.clone(), expected, order: ORDER };
        levels.entry(facts.level).or_default().push((facts, file));
    }
    let level_0 = levels.get(&0).map_or(0, Vec::len);
    // Those of level 0 are by number, so the oldest comes first.
    Ok(Runs { runs: sorted_runs(levels, ORDER), level_0 })
}
