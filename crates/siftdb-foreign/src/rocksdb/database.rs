//! A RocksDB database: the live entries of its column families, in key order.
//!
//! The manifest names the tables of each column family, and the logs that are not in tables. Each
//! level above 0 is one sorted run of tables; each table of level 0 is a run of its own. The logs
//! are sorted in memory. A merge of all of them has the newest version of each key first, and range
//! deletes of all of them say which versions are deleted.
//!
//! Every table is opened once at first: what is not read is refused before anything is copied.

use crate::damage::{Damage, Loss};
use crate::entries::Entries;
use crate::error;
use crate::files::Files;
use crate::key_order::KeyOrder;
use crate::merge::{Merge, MergeOperator};
use crate::merged::{Logged, MergedRuns};
use crate::range_deletes::{RangeDelete, RangeDeletes};
use crate::refused::refuse_kind;
use crate::rocksdb::logged::{FamilyLog, RecoveryMode, read_logs};
use crate::rocksdb::manifest::{FamilyFacts, Manifest, read_manifest};
use crate::rocksdb::options::{FamilySettings, OptionsFile, read_options};
use crate::rocksdb::salvage::manifest_of_tables;
use crate::rocksdb::table::{self, open_expected};
use crate::rocksdb::wal_directory::LogFiles;
use crate::run::{Levels, TableFacts, TableFile, TableRun, sorted_runs};
use crate::store::{EntryKind, Store};
use siftdb::env::Env;
use siftdb::{Error, Result};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A RocksDB database, opened to be read. Nothing in its directory is created or changed.
#[derive(Debug)]
pub struct RocksDb {
    pub(crate) env: Arc<dyn Env>,
    directory: PathBuf,
    options_file: Option<PathBuf>,
    families: Vec<ColumnFamily>,
    prepared: Vec<Vec<u8>>,
    unread_wal_directory: Option<PathBuf>,
    merge: Option<MergeOperator>,
    keys_only: bool,
    pub(crate) damage: Damage,
}

/// How a RocksDB database is read.
#[derive(Clone, Debug, Default)]
pub struct RocksDbOptions {
    salvage: bool,
    keys_only: bool,
    merge: Option<MergeOperator>,
    reverse_keys: bool,
    wal_directory: Option<PathBuf>,
    table_directories: Vec<PathBuf>,
}

impl RocksDbOptions {
    /// Damage is an error, and so are operands of merges and orders of keys other than bytewise.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Note damage in [`RocksDb::losses`] and read on. If the manifest is lost, all tables of the
    /// directory are read: then deleted keys and older values may return.
    #[must_use]
    pub fn salvage(mut self, yes: bool) -> Self {
        self.salvage = yes;
        self
    }

    /// Open the database for [`RocksDb::filter_figures`] and [`RocksDb::trace_lookups`], which read
    /// no values. Then operands of merges, blob files and wide columns are no error of
    /// [`RocksDb::open`]; [`RocksDb::entries`] refuses those that it meets. Logs in another
    /// directory are no error either.
    #[must_use]
    pub fn keys_only(mut self, yes: bool) -> Self {
        self.keys_only = yes;
        self
    }

    /// Resolve operands of merges by this operator. It must be the one that `OPTIONS` names for
    /// each column family that has any.
    #[must_use]
    pub fn merge(mut self, operator: MergeOperator) -> Self {
        self.merge = Some(operator);
        self
    }

    /// Read column families whose keys are in the order of `rocksdb.ReverseBytewiseComparator`,
    /// too. Their entries come in descending order.
    #[must_use]
    pub fn reverse_keys(mut self, yes: bool) -> Self {
        self.reverse_keys = yes;
        self
    }

    /// Read the logs of this directory, and no others, as RocksDB does if it is the `wal_dir`. The
    /// logs of the database's own directory are then in [`RocksDb::losses`], if they are needed and
    /// this one does not have them. Name the database's own directory to ignore the `wal_dir` that
    /// `OPTIONS` names.
    #[must_use]
    pub fn wal_directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.wal_directory = Some(path.into());
        self
    }

    /// Look for tables in this directory, too: one of `db_paths` or `cf_paths`. `OPTIONS` does not
    /// name them. Each call adds one.
    #[must_use]
    pub fn table_directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.table_directories.push(path.into());
        self
    }
}

/// A column family of a [`RocksDb`].
#[derive(Debug)]
pub struct ColumnFamily {
    name: Vec<u8>,
    settings: FamilySettings,
    /// The order of its keys.
    pub(crate) order: KeyOrder,
    /// Sorted runs of tables: those of level 0 one by one, then each deeper level.
    runs: Vec<Vec<TableFile>>,
    pub(crate) logged: Arc<Logged>,
    range_deletes: Vec<RangeDelete>,
    merge: Option<Merge>,
    totals: Totals,
}

/// Sums of what the properties of tables say.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    filter_bytes: u64,
    /// Entries of the tables that have filters.
    filtered_entries: u64,
    /// Entries other than deletes, with those of logs.
    puts: u64,
    /// Deletes of one key, with those of logs.
    deletes: u64,
}

impl ColumnFamily {
    /// Its name: any bytes.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Whether its keys are in the order of `rocksdb.ReverseBytewiseComparator`.
    #[must_use]
    pub fn has_reverse_keys(&self) -> bool {
        self.order == KeyOrder::Reverse
    }

    /// Its settings as the file `OPTIONS` has them, by name; none without that file.
    #[must_use]
    pub fn settings(&self) -> &BTreeMap<String, String> {
        &self.settings.family
    }

    /// The settings of its tables, by name.
    #[must_use]
    pub fn table_settings(&self) -> &BTreeMap<String, String> {
        &self.settings.tables
    }

    /// The tables in the order in which lookups ask them: the newest of level 0 first.
    pub(crate) fn newest_first(&self) -> Vec<&TableFile> {
        let place = |file: &&TableFile| match (file.level(), &file.expected) {
            (0, Some(facts)) => (0, Reverse(facts.largest_sequence.unwrap_or_default())),
            (level, _) => (level, Reverse(0)),
        };
        let mut files: Vec<_> = self.runs.iter().flatten().collect();
        // Stable: deeper levels keep the order of their keys.
        files.sort_by_key(place);
        files
    }

    /// Bits of filters for each entry of the tables that have filters, as their properties say.
    /// Some versions of RocksDB write no bits into `OPTIONS`. `None` without filters.
    #[must_use]
    pub fn filter_bits_per_key(&self) -> Option<f64> {
        let Totals { filter_bytes, filtered_entries, .. } = self.totals;
        (filtered_entries > 0).then(|| 8.0 * filter_bytes as f64 / filtered_entries as f64)
    }
}

impl RocksDb {
    /// True if `directory` has a file that only RocksDB writes: `IDENTITY` or `OPTIONS`.
    #[must_use]
    pub fn is_at(env: &dyn Env, directory: &Path) -> bool {
        let is_its = |name: &str| name == "IDENTITY" || name.starts_with("OPTIONS-");
        env.list(directory).is_ok_and(|files| files.iter().any(|file| is_its(&file.name)))
    }

    /// Reads manifest, options and logs of the database in `directory`, and opens each table once.
    ///
    /// The caller holds the lock on the database's file `LOCK`, so that RocksDB writes nothing at
    /// the same time. Logs are read from `directory`, unless [`RocksDbOptions::wal_directory`]
    /// names another one.
    ///
    /// # Errors
    /// [`Error::Io`](siftdb::Error::Io) if there is no `CURRENT`, or a file cannot be read;
    /// [`Error::Corruption`](siftdb::Error::Corruption) and
    /// [`Error::Missing`](siftdb::Error::Missing) for damage;
    /// [`Error::UnsupportedFormat`](siftdb::Error::UnsupportedFormat) names what is not read:
    /// orders of keys other than bytewise and, unless [`RocksDbOptions::reverse_keys`] asks for it,
    /// the reverse; operands of merges, values in blob files, wide columns, timestamps,
    /// transactions other than of the policy `WriteCommitted`, compressed logs, and what
    /// [`ForeignTable`](crate::ForeignTable) does not read.
    /// [`Error::InvalidArgument`](siftdb::Error::InvalidArgument) for another merge operator than
    /// the database has; also if the `wal_dir` that `OPTIONS` names has logs that may be needed,
    /// `directory` does not have them, and no directory of logs is given.
    pub fn open(env: Arc<dyn Env>, directory: &Path, options: RocksDbOptions) -> Result<Self> {
        let damage = Damage::new(options.salvage);
        let mut files = Files::list(&*env, directory, Store::RocksDb)?;
        files.add_tables(&*env, &options.table_directories)?;
        let manifest = match read_manifest(&*env, directory, &damage) {
            Err(error) if options.salvage && !files.tables.is_empty() => {
                damage.pass(error::of_lost_file(error))?;
                manifest_of_tables(&*env, &files, &damage)?
            }
            read => read?,
        };
        let file = match &files.options {
            Some(path) => read_options(&*env, path)?,
            None => OptionsFile::default(),
        };
        let orders = orders_of(&manifest, &file, options.reverse_keys, directory)?;
        let mode = file.database.get("wal_recovery_mode").map(|name| &**name);
        let mode = mode.and_then(RecoveryMode::of_name).unwrap_or_default();
        // Without transactions in two phases, logs that all have in tables are not read.
        let may_commit_late = file.database.get("allow_2pc").is_none_or(|yes| yes != "false");
        let first = manifest.first_needed_log(may_commit_late);
        let found = match &options.wal_directory {
            Some(given) => LogFiles::of_directory(&*env, given, &files, first, &damage)?,
            None => {
                let wal_dir = file.database.get("wal_dir").filter(|_| !options.keys_only);
                LogFiles::of_database(&*env, &files, wal_dir.map(|name| &**name), first)?
            }
        };
        let mut logs = read_logs(&*env, &found.logs, &manifest, &orders, mode, &damage)?;
        let mut opened = RocksDb {
            env,
            directory: directory.to_path_buf(),
            options_file: files.options.clone(),
            families: Vec::new(),
            prepared: logs.prepared,
            unread_wal_directory: found.left_out,
            merge: options.merge,
            keys_only: options.keys_only,
            damage,
        };
        for (number, facts) in &manifest.families {
            let log = logs.families.remove(number).unwrap_or_default();
            let order = orders.get(number).copied().unwrap_or_default();
            opened.add(facts, order, &files, &file, log)?;
        }
        Ok(opened)
    }

    /// Adds a column family: opens its tables.
    fn add(
        &mut self,
        facts: &FamilyFacts,
        order: KeyOrder,
        files: &Files,
        options: &OptionsFile,
        log: FamilyLog,
    ) -> Result<()> {
        let mut levels = Levels::new();
        let settings = settings_of(options, facts).cloned().unwrap_or_default();
        let merge = self.merge_of(facts, &settings)?;
        let FamilyLog { entries, mut range_deletes } = log;
        let mut totals = Totals::default();
        for (number, table) in &facts.tables {
            let opened = files.table(*number).and_then(|path| {
                let file = TableFile { path: path.clone(), expected: Some(table.clone()), order };
                range_deletes.extend(self.open_once(&file, table, &mut totals)?);
                Ok(file)
            });
            match opened {
                // The readable part of a damaged table may end anywhere. Its global sequence stays.
                Ok(file) => levels.entry(table.level).or_default().push((table, file)),
                Err(error) => self.damage.pass(error)?,
            }
        }
        let kinds = || entries.iter().filter_map(|(key, _)| kind_of(key));
        let deletes = kinds().filter(|kind| kind.is_deletion()).count() as u64;
        totals.deletes = totals.deletes.saturating_add(deletes);
        totals.puts = totals.puts.saturating_add(entries.len() as u64 - deletes);
        let is_refused = |kind: &EntryKind| match kind {
            EntryKind::Merge => self.merge.is_none(),
            kind => matches!(kind, EntryKind::BlobIndex | EntryKind::WideColumns),
        };
        if let Some(kind) = kinds().find(is_refused).filter(|_| !self.keys_only) {
            return Err(refuse_kind(kind, &self.directory));
        }
        let runs = sorted_runs(levels, order);
        let name = facts.name.clone();
        let logged = Arc::new(entries);
        self.families.push(ColumnFamily {
            name,
            settings,
            order,
            runs,
            logged,
            range_deletes,
            merge,
            totals,
        });
        Ok(())
    }

    /// The merge operator of a column family, if one was named.
    fn merge_of(&self, facts: &FamilyFacts, settings: &FamilySettings) -> Result<Option<Merge>> {
        let Some(operator) = self.merge else { return Ok(None) };
        let setting = settings.family.get("merge_operator").map(|setting| &**setting);
        let merge = Merge::new(operator, setting).map_err(|what| {
            let name = String::from_utf8_lossy(&facts.name);
            let what = format!("column family {name:?} is not read with {operator:?}: {what}");
            Error::InvalidArgument { what }
        });
        merge.map(Some)
    }

    /// Opens a table: refuses what is not read, adds its properties to `totals`, and returns its
    /// range deletes.
    fn open_once(
        &self,
        file: &TableFile,
        facts: &TableFacts,
        totals: &mut Totals,
    ) -> Result<Vec<RangeDelete>> {
        if facts.has_blobs && !self.keys_only {
            return Err(refuse_kind(EntryKind::BlobIndex, &file.path));
        }
        let (table, rocks) = table::open(&*self.env, &file.path, file.order)?;
        let open = table::expected(table, &rocks, Some(facts))?;
        let resolves_merges = self.merge.is_some() || self.keys_only;
        if rocks.properties.is_set("rocksdb.merge.operands") && !resolves_merges {
            return Err(refuse_kind(EntryKind::Merge, &file.path));
        }
        let number = |name| rocks.properties.number(name).unwrap_or_default();
        let (entries, filter_bytes) =
            (open.entries.unwrap_or_default(), number("rocksdb.filter.size"));
        if filter_bytes > 0 {
            totals.filter_bytes = totals.filter_bytes.saturating_add(filter_bytes);
            totals.filtered_entries = totals.filtered_entries.saturating_add(entries);
        }
        // With range deletes.
        let deletes = number("rocksdb.deleted.keys");
        let deletes = deletes.saturating_sub(number("rocksdb.num.range-deletions"));
        totals.deletes = totals.deletes.saturating_add(deletes);
        totals.puts = totals.puts.saturating_add(entries.saturating_sub(deletes));
        let mut range_deletes = Vec::new();
        let Some(handle) = rocks.range_deletes else { return Ok(range_deletes) };
        let mut entries = open.table.entries(handle)?;
        while let Some((start, end, sequence)) =
            open.table.next_range_delete(handle, &mut entries)?
        {
            let sequence = open.global_sequence.unwrap_or(sequence);
            let range = RangeDelete::of_keys(start, end, sequence, file.order);
            range_deletes
                .extend(range.and_then(|range| range.within(&facts.smallest, &facts.largest)));
        }
        Ok(range_deletes)
    }

    /// The file `OPTIONS` that was read, if there is one.
    #[must_use]
    pub fn options_file(&self) -> Option<&Path> {
        self.options_file.as_deref()
    }

    /// Its directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Its column families, `default` first.
    #[must_use]
    pub fn families(&self) -> &[ColumnFamily] {
        &self.families
    }

    /// The live entries of a column family, in the order of its keys: ascending, or descending if
    /// [`ColumnFamily::has_reverse_keys`].
    #[must_use]
    pub fn entries(&self, family: &ColumnFamily) -> Entries {
        let run = |files: &Vec<TableFile>| {
            TableRun::new(&self.env, open_expected, files.clone(), &self.damage)
        };
        let runs = MergedRuns::new(family.order, family.runs.iter().map(run), &family.logged);
        let range_deletes = RangeDeletes::new(family.range_deletes.clone());
        Entries::new(self.directory.clone(), runs, range_deletes, family.merge.clone())
    }

    /// About how many entries all column families have: the entries of tables and logs, less those
    /// that deletes hide. Older versions of a key count; what range deletes hide counts, too.
    #[must_use]
    pub fn entries_estimate(&self) -> u64 {
        let totals = self.families.iter().map(|family| family.totals);
        totals.fold(0, |sum: u64, Totals { puts, deletes, .. }| {
            sum.saturating_add(puts.saturating_sub(deletes))
        })
    }

    /// Names of the transactions that were prepared, and neither committed nor rolled back. Their
    /// writes are in no column family.
    #[must_use]
    pub fn prepared(&self) -> &[Vec<u8>] {
        &self.prepared
    }

    /// The `wal_dir` that `OPTIONS` names, if it was not read and the database's own directory has
    /// no logs. A checkpoint keeps the `wal_dir` of its source database.
    #[must_use]
    pub fn unread_wal_directory(&self) -> Option<&Path> {
        self.unread_wal_directory.as_deref()
    }

    /// The parts that were not read so far: ends of logs and, if the database was opened to
    /// salvage, damage. The list ends after 16,384 of them, and says so.
    #[must_use]
    pub fn losses(&self) -> Vec<Loss> {
        self.damage.losses()
    }
}

/// The settings of a column family, if `OPTIONS` has them.
fn settings_of<'a>(options: &'a OptionsFile, facts: &FamilyFacts) -> Option<&'a FamilySettings> {
    options.families.get(&*String::from_utf8_lossy(&facts.name))
}

/// The order of keys of each column family, by its number. Refuses other orders than bytewise; the
/// reverse only if it is not `allowed`.
fn orders_of(
    manifest: &Manifest,
    options: &OptionsFile,
    allowed: bool,
    directory: &Path,
) -> Result<BTreeMap<u32, KeyOrder>> {
    let order_of = |(number, facts): (&u32, &FamilyFacts)| {
        let settings = settings_of(options, facts);
        // A new manifest says none for `default`: then `OPTIONS` does, and each table.
        let found = match &facts.comparator[..] {
            [] => settings
                .and_then(|settings| settings.family.get("comparator"))
                .map_or(KeyOrder::Bytewise.name().as_bytes(), |name| name.as_bytes()),
            named => named,
        };
        match KeyOrder::of_name(found) {
            Some(order) if allowed || order == KeyOrder::Bytewise => Ok((*number, order)),
            _ => Err(refuse_order(found, &facts.name, directory)),
        }
    };
    manifest.families.iter().map(order_of).collect()
}

fn refuse_order(order: &[u8], family: &[u8], directory: &Path) -> Error {
    let (order, family) = (String::from_utf8_lossy(order), String::from_utf8_lossy(family));
    let on_request = match KeyOrder::of_name(order.as_bytes()) {
        Some(_) => "; ask for reverse keys (`--reverse-keys`) to read it",
        None => "",
    };
    let what = format!(
        "column family {family:?} has keys in the order of {order:?}, siftdb orders bytewise\
         {on_request}"
    );
    error::unsupported(directory, what)
}

/// The kind of an entry of a log.
fn kind_of(internal_key: &[u8]) -> Option<EntryKind> {
    EntryKind::of_number(Store::RocksDb, *internal_key.iter().nth_back(7)?)
}
