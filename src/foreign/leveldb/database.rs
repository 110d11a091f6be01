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

use crate::base::coding::Decoder;
use crate::base::error::{Error, Result};
use crate::base::iterator::api::{Direction, InternalIterator};
use crate::base::iterator::merging::MergingIter;
use crate::base::key::{
    SEQUENCE_MAX, SequenceNumber, compare_internal, put_key_with_trailer, split_internal_key,
    user_key,
};
use crate::base::sync::Arc;
use crate::base::value::Value;
use crate::env::api::{Env, FileKind, read_file};
use crate::foreign::damage::Damage;
use crate::foreign::leveldb::log::{LogReader, Step};
use crate::foreign::leveldb::manifest::{CURRENT_BYTES_MAX, Manifest, TableFacts, read_manifest};
use crate::foreign::leveldb::run::{TableFile, TableRun};
use crate::log::recovery::DroppedPart;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const DELETION: u8 = 0;
const VALUE: u8 = 1;

/// A LevelDB database, opened to be read. Nothing in its directory is created or changed.
#[derive(Debug)]
pub struct LevelDb {
    env: Arc<dyn Env>,
    /// Sorted runs of tables: each table of level 0, the oldest first, then each deeper level.
    runs: Vec<Vec<TableFile>>,
    /// The number of runs of level 0.
    level_0: usize,
    logged: Arc<Logged>,
    damage: Damage,
}

impl LevelDb {
    /// True if `directory` has a `CURRENT` of LevelDB or RocksDB, which is only the name of a
    /// manifest.
    #[must_use]
    pub fn is_at(env: &dyn Env, directory: &Path) -> bool {
        let current = read_file(env, &directory.join("CURRENT"), CURRENT_BYTES_MAX);
        current.is_ok_and(|contents| contents.starts_with(b"MANIFEST-"))
    }

    /// Reads manifest and logs of the database in `directory`. With `salvage`, damage is noted in
    /// [`LevelDb::losses`] and is no error.
    ///
    /// The caller holds the lock on the database's file `LOCK`, so that LevelDB writes nothing at
    /// the same time.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no `CURRENT`, or a file cannot be read; [`Error::Corruption`] and
    /// [`Error::Missing`] for damage; [`Error::UnsupportedFormat`] for a comparator that is not
    /// bytewise, and for a database of RocksDB.
    pub fn open(env: Arc<dyn Env>, directory: &Path, salvage: bool) -> Result<Self> {
        let damage = Damage::new(salvage);
        let files = Files::list(&*env, directory)?;
        let manifest = match read_manifest(&*env, directory) {
            Ok(manifest) => Some(manifest),
            Err(error) => {
                damage.pass(error)?;
                None
            }
        };
        let (Runs { runs, level_0 }, logs) = match &manifest {
            Some(manifest) => {
                files.expect_log(manifest, directory, &damage)?;
                let needed = files.logs.iter().filter(|(number, _)| manifest.needs_log(**number));
                let logs: Vec<_> = needed.map(|(_, path)| path).collect();
                (files.tables_of(manifest, directory, &damage)?, logs)
            }
            None => (files.all_tables(), files.logs.values().collect()),
        };
        let logged = Arc::new(read_logs(&*env, &logs, &damage)?);
        Ok(LevelDb { env, runs, level_0, logged, damage })
    }

    /// The live entries, in ascending order of their keys.
    #[must_use]
    pub fn entries(&self) -> Entries {
        let run = |files: &Vec<TableFile>| {
            Source::Tables(Box::new(TableRun::new(&self.env, files.clone(), &self.damage)))
        };
        let mut sources: Vec<Source> = self.runs.iter().map(run).collect();
        sources.push(Source::Logs { entries: Arc::clone(&self.logged), at: 0 });
        let mut merged = MergingIter::new(Direction::Forward, sources);
        merged.seek(None);
        Entries { merged, last_key: None, failed: false }
    }

    /// The tables, the newest first. A newer table of level 0 has a larger number.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &TableFile> {
        let (level_0, deeper) = self.runs.split_at(self.level_0);
        level_0.iter().rev().chain(deeper).flatten()
    }

    /// Whether the logs have the key.
    pub(crate) fn is_logged(&self, key: &[u8]) -> bool {
        let at = self.logged.partition_point(|(logged, _)| user_key(logged) < key);
        self.logged.get(at).is_some_and(|(logged, _)| user_key(logged) == key)
    }

    /// Notes `error` if it is damage and the database was opened to salvage.
    ///
    /// # Errors
    /// `error` itself otherwise.
    pub(crate) fn pass(&self, error: Error) -> Result<()> {
        self.damage.pass(error)
    }

    /// The environment of its files.
    pub(crate) fn env(&self) -> &Arc<dyn Env> {
        &self.env
    }

    /// The number of its tables.
    #[must_use]
    pub fn tables(&self) -> usize {
        self.runs.iter().map(Vec::len).sum()
    }

    /// The parts that were not read so far: a record that a crash cut short and, if the database
    /// was opened to salvage, damage.
    #[must_use]
    pub fn losses(&self) -> Vec<DroppedPart> {
        self.damage.parts()
    }
}

/// The live entries of a [`LevelDb`], key by key. Ends after an error.
pub struct Entries {
    merged: MergingIter<Source>,
    /// The key of the last entry of `merged`. Its further versions are old.
    last_key: Option<Vec<u8>>,
    failed: bool,
}

impl std::fmt::Debug for Entries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entries").field("last_key", &self.last_key).finish_non_exhaustive()
    }
}

impl Iterator for Entries {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.failed && self.merged.valid() {
            let (key, trailer) = split_internal_key(self.merged.key())?;
            let is_newest = self.last_key.as_deref() != Some(key);
            let entry = (is_newest && trailer as u8 == VALUE)
                .then(|| (key.to_vec(), self.merged.value().to_vec()));
            if is_newest {
                let last = self.last_key.get_or_insert_default();
                last.clear();
                last.extend_from_slice(key);
            }
            self.merged.next();
            if entry.is_some() {
                return entry.map(Ok);
            }
        }
        let ended = self.merged.status().err().filter(|_| !self.failed);
        self.failed = true;
        ended.map(Err)
    }
}

/// Sorted runs of tables: each table of level 0, the oldest first, then each deeper level.
struct Runs {
    runs: Vec<Vec<TableFile>>,
    level_0: usize,
}

/// The tables and logs in a directory, by number.
#[derive(Debug, Default)]
struct Files {
    tables: BTreeMap<u64, PathBuf>,
    logs: BTreeMap<u64, PathBuf>,
}

impl Files {
    fn list(env: &dyn Env, directory: &Path) -> Result<Self> {
        let entries = env.list(directory).map_err(|error| Error::io("list", directory, error))?;
        let mut files = Files::default();
        for entry in entries.into_iter().filter(|entry| entry.kind == FileKind::File) {
            let Some((number, extension)) = entry.name.split_once('.') else { continue };
            let Ok(number) = number.parse() else { continue };
            let path = directory.join(&entry.name);
            match extension {
                "log" => _ = files.logs.insert(number, path),
                "ldb" => _ = files.tables.insert(number, path),
                // The extension before LevelDB 1.14.
                "sst" => _ = files.tables.entry(number).or_insert(path),
                _ => {}
            }
        }
        Ok(files)
    }

    /// Checks that the first needed log exists. LevelDB creates it before the manifest names it.
    fn expect_log(&self, manifest: &Manifest, directory: &Path, damage: &Damage) -> Result<()> {
        let number = manifest.log_number;
        if number == 0 || self.logs.contains_key(&number) {
            return Ok(());
        }
        let path = directory.join(format!("{number:06}.log"));
        damage.pass(Error::missing(path, "the manifest names this log"))
    }

    /// Every table as a run of its own.
    fn all_tables(&self) -> Runs {
        let alone = |path: &PathBuf| vec![TableFile { path: path.clone(), expected: None }];
        Runs { runs: self.tables.values().map(alone).collect(), level_0: self.tables.len() }
    }

    /// The tables that the manifest names: those of level 0 one by one, then each level.
    fn tables_of(&self, manifest: &Manifest, directory: &Path, damage: &Damage) -> Result<Runs> {
        let mut levels: BTreeMap<usize, Vec<(&TableFacts, TableFile)>> = BTreeMap::new();
        for (number, facts) in &manifest.tables {
            let Some(path) = self.tables.get(number) else {
                let path = directory.join(format!("{number:06}.ldb"));
                damage.pass(Error::missing(path, "the manifest names this table"))?;
                continue;
            };
            // The readable part of a damaged table may end anywhere.
            let expected = (!damage.is_noted()).then(|| facts.clone());
            let file = TableFile { path: path.clone(), expected };
            levels.entry(facts.level).or_default().push((facts, file));
        }
        // By number, so the oldest comes first.
        let alone = levels.remove(&0).unwrap_or_default().into_iter().map(|(_, file)| vec![file]);
        let mut runs: Vec<_> = alone.collect();
        let level_0 = runs.len();
        for mut tables in levels.into_values() {
            tables.sort_by(|(a, _), (b, _)| compare_internal(&a.smallest, &b.smallest));
            runs.push(tables.into_iter().map(|(_, file)| file).collect());
        }
        Ok(Runs { runs, level_0 })
    }
}

/// The entries of logs, by internal key.
type Logged = Vec<(Vec<u8>, Vec<u8>)>;

/// Reads logs, the oldest first.
fn read_logs(env: &dyn Env, logs: &[&PathBuf], damage: &Damage) -> Result<Logged> {
    let mut entries = Logged::new();
    // The last bad part of a log, until a valid record comes after it.
    let mut end: Option<DroppedPart> = None;
    let mut sequence = 0;
    for path in logs {
        let mut reader = LogReader::open(env, path)?;
        loop {
            match reader.step()? {
                Step::End => break,
                Step::Bad { offset, what } => {
                    if let Some(earlier) = end.take() {
                        damage.pass(corruption(earlier))?;
                    }
                    let path = path.to_path_buf();
                    end = Some(DroppedPart { path, offset, what: what.into() });
                }
                Step::Record { offset, bytes } => {
                    if let Some(earlier) = end.take() {
                        damage.pass(corruption(earlier))?;
                    }
                    match put_batch(&bytes, sequence, &mut entries) {
                        Ok(last) => sequence = last,
                        Err(what) => damage.pass(Error::corruption(path, offset, what))?,
                    }
                }
            }
        }
    }
    // A crash cut the last record short.
    if let Some(DroppedPart { path, offset, what }) = end {
        damage.note(&path, offset, what);
    }
    entries.sort_by(|(a, _), (b, _)| compare_internal(a, b));
    Ok(entries)
}

fn corruption(part: DroppedPart) -> Error {
    Error::corruption(part.path, part.offset, part.what)
}

/// Adds the entries of a batch. Returns the sequence of its last one; the first must be above
/// `after`. The error says what is wrong; then nothing was added.
fn put_batch(
    batch: &[u8],
    after: SequenceNumber,
    entries: &mut Logged,
) -> std::result::Result<SequenceNumber, &'static str> {
    let (before, malformed) = (entries.len(), "a malformed batch");
    let mut decoder = Decoder::new(batch);
    let (Some(first), Some(count)) = (decoder.u64(), decoder.u32()) else { return Err(malformed) };
    let last = (first + u64::from(count)).saturating_sub(1);
    if first > SEQUENCE_MAX || last > SEQUENCE_MAX || first <= after && count > 0 {
        return Err("a batch whose sequence does not follow the one before it");
    }
    for sequence in first..first + u64::from(count) {
        let entry = match (decoder.u8(), decoder.length_prefixed()) {
            (Some(VALUE), Some(key)) => decoder.length_prefixed().map(|value| (VALUE, key, value)),
            (Some(DELETION), Some(key)) => Some((DELETION, key, &[][..])),
            _ => None,
        };
        let Some((kind, key, value)) = entry else {
            entries.truncate(before);
            return Err(malformed);
        };
        let mut internal = Vec::with_capacity(key.len() + 8);
        put_key_with_trailer(&mut internal, key, sequence << 8 | u64::from(kind));
        entries.push((internal, value.to_vec()));
    }
    if !decoder.is_empty() {
        entries.truncate(before);
        return Err(malformed);
    }
    Ok(last.max(after))
}

/// A source of the merge.
enum Source {
    Tables(Box<TableRun>),
    Logs { entries: Arc<Logged>, at: usize },
}

impl InternalIterator for Source {
    fn seek(&mut self, bound: Option<&[u8]>) {
        match self {
            Source::Tables(run) => run.seek(bound),
            Source::Logs { entries, at } => {
                let before = |key: &[u8]| bound.is_some_and(|b| compare_internal(key, b).is_lt());
                *at = entries.partition_point(|(key, _)| before(key));
            }
        }
    }

    fn next(&mut self) -> bool {
        match self {
            Source::Tables(run) => run.next(),
            Source::Logs { entries, at } => {
                *at += 1;
                *at < entries.len()
            }
        }
    }

    fn valid(&self) -> bool {
        match self {
            Source::Tables(run) => run.valid(),
            Source::Logs { entries, at } => *at < entries.len(),
        }
    }

    fn key(&self) -> &[u8] {
        match self {
            Source::Tables(run) => run.key(),
            Source::Logs { entries, at } => entries.get(*at).map_or(&[], |(key, _)| key),
        }
    }

    fn value(&self) -> &[u8] {
        match self {
            Source::Tables(run) => run.value(),
            Source::Logs { entries, at } => entries.get(*at).map_or(&[], |(_, value)| value),
        }
    }

    fn value_owned(&self) -> Value {
        Value::from(self.value())
    }

    fn status(&self) -> Result<()> {
        match self {
            Source::Tables(run) => run.status(),
            Source::Logs { .. } => Ok(()),
        }
    }
}
