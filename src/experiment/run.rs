//! The demonstration: loads a database for each layout, checks that they are equal, measures each.
//!
//! [`run`] creates each database, loads it by `load`, and opens it again for each act, so that an
//! act starts with an empty cache. Before `probe` counts, the run reads the indexes and warms the
//! cache.
//!
//! Invariants: the databases differ only in their filters (tables by level, entries, data blocks
//! and their bytes are compared), and the keys of an act are the same in every column. A difference
//! is a fault in the report and not an error, so that the figures are shown next to it.

use crate::admin::inspect::live::live_tables;
use crate::base::error::{Error, Result};
use crate::base::levels::LEVELS;
use crate::db::database::Db;
use crate::env::api::Env;
use crate::env::counting::CountingEnv;
use crate::env::disk::DiskEnv;
use crate::experiment::keys::KeySet;
use crate::experiment::load::{KEYS_MAX, KEYS_MIN, Load, table_totals};
use crate::experiment::probe::measure;
use crate::experiment::report::{Act, ActKind, Column, DatabaseFacts, Report};
use crate::options::access::ReadOptions;
use crate::options::database::Options;
use crate::options::filter::Filter;
use std::path::PathBuf;
use std::sync::Arc;

/// How a run is done.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// Where the databases are created, each in a directory of its own. Created if need be; its
    /// parent has to exist. They are left there.
    pub directory: PathBuf,
    /// Bytes of each value. Default: 100.
    pub value_bytes: usize,
    /// How keys become bits; its layout is set by the run. Default: `Filter::bloom(10.0)`.
    pub filter: Filter,
    /// Lookups of each act in each column. Default: 50,000.
    pub lookups: usize,
    /// Decides order of loading, values and the keys that are looked up. Default: 42.
    pub seed: u64,
    /// The file system. Default: the real one.
    pub env: Arc<dyn Env>,
}

impl Settings {
    /// The defaults, with databases in `directory`.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Settings {
            directory: directory.into(),
            value_bytes: 100,
            filter: Filter::bloom(10.0),
            lookups: 50_000,
            seed: 42,
            env: Arc::new(DiskEnv::new()),
        }
    }

    /// The directory of a column's database.
    #[must_use]
    pub fn database(&self, column: Column) -> PathBuf {
        self.directory.join(match column {
            Column::NoFilter => "no-filter",
            Column::BlockBased => "block-based",
            Column::Full | Column::FullNotAsked => "full",
            Column::Partitioned => "partitioned",
        })
    }
}

/// What a run is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Writing keys; counted over all databases.
    Load,
    /// Looking keys up; counted over all acts and columns.
    LookUp,
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// What it is doing.
    pub stage: Stage,
    /// Keys done.
    pub done: u64,
    /// Keys in all.
    pub total: u64,
}

/// The share of the cache that pinned filters and indexes may take in the first acts: most of it,
/// so that almost no data stays in the cache.
const PINNED_SHARE: f64 = 0.9;

/// Loads the databases and makes the lookups. `progress` is told about every few hundred keys.
///
/// # Errors
/// `InvalidArgument` for fewer than 100 keys; a database of a former run in the way; any failure of
/// a database. Counts that disagree are no error; they are in `Report::faults`.
pub fn run(
    settings: &Settings,
    keys: &KeySet,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report> {
    if !(KEYS_MIN..=KEYS_MAX).contains(&keys.len()) {
        let what = format!("{} keys; this takes {KEYS_MIN} to {KEYS_MAX}", keys.len());
        return Err(Error::InvalidArgument { what });
    }
    let env = &settings.env;
    if let Err(error) = env.create_dir(&settings.directory)
        && error.kind() != std::io::ErrorKind::AlreadyExists
    {
        return Err(Error::io("create_dir", &settings.directory, error));
    }
    load(settings, keys, progress)?;
    let env = Arc::new(CountingEnv::new(Arc::clone(env)));
    let databases = Column::DATABASES.into_iter().map(|column| facts(settings, column));
    let open = Databases { settings, env, databases: databases.collect::<Result<_>>()? };
    let mut faults = open.differences();
    let absent = keys.absent(settings.lookups, settings.seed ^ 0xab5e);
    let present = keys.present(settings.lookups, settings.seed ^ 0x9e5e);
    let (roomy, starved) = open.cache_bytes()?;
    let plan = [
        (ActKind::Absent, &absent, roomy),
        (ActKind::Present, &present, roomy),
        (ActKind::Starved, &absent, starved),
    ];
    let total = (plan.len() * Column::ALL.len() * settings.lookups) as u64;
    let mut done = 0;
    let mut looked_up = |count| {
        done += count;
        progress(Progress { stage: Stage::LookUp, done, total });
    };
    let mut acts = Vec::new();
    for (kind, keys, cache_bytes) in plan {
        let act = open.act(kind, keys, cache_bytes, &mut looked_up)?;
        for (column, measured) in &act.columns {
            let place = format!("{}: {}", kind.name(), column.name());
            let named = |fault: &String| format!("{place}: {fault}");
            faults.extend(measured.faults.iter().map(named));
        }
        acts.push(act);
    }
    Ok(Report { databases: open.databases, acts, faults })
}

fn load(settings: &Settings, keys: &KeySet, progress: &mut dyn FnMut(Progress)) -> Result<()> {
    let load = Load { keys, value_bytes: settings.value_bytes, seed: settings.seed };
    let total = (keys.len() * Column::DATABASES.len()) as u64;
    let mut done = 0;
    for column in Column::DATABASES {
        let options = Options::new().env(Arc::clone(&settings.env));
        let options = options.filter(column.filter(settings.filter.clone()));
        load.run(&options, &settings.database(column), &mut |written| {
            done += written;
            progress(Progress { stage: Stage::Load, done, total });
        })?;
    }
    Ok(())
}

/// The facts of the closed database of `column`.
fn facts(settings: &Settings, column: Column) -> Result<DatabaseFacts> {
    let live = live_tables(&settings.env, &settings.database(column))?.unwrap_or_default();
    let mut tables = vec![0; LEVELS];
    live.iter().for_each(|table| tables[table.level] += 1);
    Ok(DatabaseFacts { column, tables, total: table_totals(&settings.env, &live)? })
}

/// The loaded databases, ready to be probed.
struct Databases<'a> {
    settings: &'a Settings,
    env: Arc<CountingEnv>,
    databases: Vec<DatabaseFacts>,
}

impl Databases<'_> {
    fn open(&self, column: Column, cache_bytes: u64, pinned_share: f64) -> Result<Db> {
        Options::new()
            .env(Arc::clone(&self.env) as Arc<dyn Env>)
            .filter(column.filter(self.settings.filter.clone()))
            .create_if_missing(false)
            .auto_compaction(false)
            .block_cache_bytes(cache_bytes)
            .filter_pinned_share(pinned_share)
            .open(self.settings.database(column))
    }

    fn filter_bytes(&self, column: Column) -> u64 {
        let facts = self.databases.iter().find(|facts| facts.column == column);
        facts.map_or(0, |facts| facts.total.filter_bytes)
    }

    /// Differences besides filters, which make the comparison void.
    fn differences(&self) -> Vec<String> {
        let Some(first) = self.databases.first() else { return Vec::new() };
        let held = |facts: &DatabaseFacts| {
            let total = &facts.total;
            (facts.tables.clone(), total.entries, total.data_blocks, total.data_bytes)
        };
        self.databases
            .iter()
            .filter(|facts| held(facts) != held(first))
            .map(|facts| {
                let (one, other) = (held(first), held(facts));
                let names = [first, facts].map(|facts| facts.column.name());
                format!("{} and {} differ: {one:?}, {other:?}", names[0], names[1])
            })
            .collect()
    }

    /// A cache in which the filters and indexes of every database fit, and little data; and one
    /// of half the filters' bytes.
    fn cache_bytes(&self) -> Result<(u64, u64)> {
        let mut pinned = 0;
        for column in Column::DATABASES {
            let db = self.open(column, 1 << 40, PINNED_SHARE)?;
            // Partitions are not pinned. They come through the cache and may take half of it.
            let partitioned = column == Column::Partitioned;
            let cached = if partitioned { 2 * self.filter_bytes(column) } else { 0 };
            pinned = pinned.max(db.stats().pinned_bytes + cached);
            db.close()?;
        }
        Ok((pinned * 5 / 4 + (64 << 10), self.filter_bytes(Column::Full) / 2))
    }

    fn act(
        &self,
        kind: ActKind,
        keys: &[Vec<u8>],
        cache_bytes: u64,
        looked_up: &mut dyn FnMut(u64),
    ) -> Result<Act> {
        let pinned_share = if kind == ActKind::Starved { 0.0 } else { PINNED_SHARE };
        let mut columns = Vec::new();
        for column in Column::ALL {
            let db = self.open(column, cache_bytes, pinned_share)?;
            read_indexes(&db)?;
            // Warms the cache.
            let options = ReadOptions::new().use_filters(column.asks_filters());
            for key in keys.iter().rev().take(keys.len() / 10 + 1_000) {
                db.get_with(key, &options)?;
            }
            let present = kind == ActKind::Present;
            let measured = measure(&db, &self.env, keys, present, &options, looked_up)?;
            columns.push((column, measured));
            db.close()?;
        }
        Ok(Act { kind, cache_bytes, columns })
    }
}

/// Scans everything, so that every table has read its index before lookups are counted. No data
/// stays in the cache.
fn read_indexes(db: &Db) -> Result<()> {
    let options = ReadOptions::new().fill_cache(false);
    db.range_with(.., &options).try_for_each(|entry| entry.map(drop))
}
