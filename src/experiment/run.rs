//! The run: load a database for each layout, check that they hold the same, probe them in turn.
//!
//! [`run`] is all that callers need: the demonstration, its tests and benches. Each database is
//! created anew, loaded by `load`, and opened again for each act, so that no act finds the cache of
//! the one before; indexes are read, and what comes through the cache is warmed, before `probe`
//! counts.
//!
//! Invariants: the databases differ in their filters only (tables by level, entries, blocks, bytes
//! are compared), and the keys of an act are the same in every column. A difference is a fault in
//! the report, not an error: the figures are shown beside it.

use crate::admin::inspect::tables::table_facts;
use crate::base::error::{Error, Result};
use crate::db::handle::Db;
use crate::env::api::Env;
use crate::env::counting::CountingEnv;
use crate::env::disk::DiskEnv;
use crate::experiment::keys::KeySet;
use crate::experiment::load::{KEYS_MAX, KEYS_MIN, Load};
use crate::experiment::probe::probe;
use crate::experiment::report::{Act, ActKind, Column, DatabaseFacts, Report};
use crate::options::access::ReadOptions;
use crate::options::database::Options;
use crate::options::filter::Filter;
use crate::table::filter::layout::FilterLayout;
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

    fn filter_of(&self, column: Column) -> Filter {
        let filter = self.filter.clone();
        match column {
            Column::NoFilter => Filter::none(),
            Column::BlockBased => filter.layout(FilterLayout::BlockBased { window_bytes: 2048 }),
            Column::Full | Column::FullNotAsked => filter.layout(FilterLayout::Full),
            Column::Partitioned => filter.layout(FilterLayout::Partitioned { block_bytes: 4096 }),
        }
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

/// Columns that have a database.
const DATABASES: [Column; 4] =
    [Column::NoFilter, Column::BlockBased, Column::Full, Column::Partitioned];

/// Of the cache of the first acts, what filters and indexes may take for good: most of it, so that
/// next to no data stays in the cache.
const RESIDENT_SHARE: f64 = 0.9;

/// Loads the databases and makes the lookups. `progress` is told about every few hundred keys.
///
/// # Errors
/// `InvalidArgument` for fewer than 100 keys; a database of a former run in the way; any failure
/// of a database. What merely does not add up is in `Report::faults`.
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
    match env.create_dir(&settings.directory) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(Error::io("create_dir", &settings.directory, error));
        }
        _ => {}
    }
    load(settings, keys, progress)?;
    let mut lab = Lab::new(settings)?;
    let mut faults = lab.differences();
    let absent = keys.absent(settings.lookups, settings.seed ^ 0xab5e);
    let present = keys.present(settings.lookups, settings.seed ^ 0x9e5e);
    let (roomy, starved) = lab.cache_bytes()?;
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
        let act = lab.act(kind, keys, cache_bytes, &mut looked_up)?;
        let named = |fault: &String| format!("{}: {fault}", kind.name());
        faults.extend(act.columns.iter().flat_map(|measured| &measured.faults).map(named));
        acts.push(act);
    }
    Ok(Report { databases: std::mem::take(&mut lab.databases), acts, faults })
}

fn load(settings: &Settings, keys: &KeySet, progress: &mut dyn FnMut(Progress)) -> Result<()> {
    let order = keys.shuffled(settings.seed);
    let value_bytes = settings.value_bytes;
    let load = Load { keys, order: &order, value_bytes, seed: settings.seed };
    let total = (keys.len() * DATABASES.len()) as u64;
    let mut done = 0;
    for column in DATABASES {
        let options = Options::new().env(Arc::clone(&settings.env));
        let options = options.filter(settings.filter_of(column));
        load.run(&options, &settings.database(column), &mut |written| {
            done += written;
            progress(Progress { stage: Stage::Load, done, total });
        })?;
    }
    Ok(())
}

/// The loaded databases, ready to be probed.
struct Lab<'a> {
    settings: &'a Settings,
    env: Arc<CountingEnv>,
    databases: Vec<DatabaseFacts>,
}

impl<'a> Lab<'a> {
    fn new(settings: &'a Settings) -> Result<Self> {
        let env = Arc::new(CountingEnv::new(Arc::clone(&settings.env)));
        let mut lab = Lab { settings, env, databases: Vec::new() };
        for column in DATABASES {
            let facts = lab.facts(column)?;
            lab.databases.push(facts);
        }
        Ok(lab)
    }

    fn open(&self, column: Column, cache_bytes: u64, resident_share: f64) -> Result<Db> {
        Options::new()
            .env(Arc::clone(&self.env) as Arc<dyn Env>)
            .filter(self.settings.filter_of(column))
            .create_if_missing(false)
            .auto_compaction(false)
            .block_cache_bytes(cache_bytes)
            .filter_resident_share(resident_share)
            .open(self.settings.database(column))
    }

    fn facts(&self, column: Column) -> Result<DatabaseFacts> {
        let directory = self.settings.database(column);
        let db = self.open(column, 0, 0.0)?;
        let stats = db.stats();
        db.close()?;
        let mut facts = DatabaseFacts {
            column,
            tables: stats.levels.iter().map(|level| level.tables).collect(),
            entries: 0,
            data_blocks: 0,
            data_bytes: 0,
            filter_bytes: 0,
            index_bytes: 0,
        };
        let listed = self.env.list(&directory);
        let listed = listed.map_err(|error| Error::io("list", &directory, error))?;
        for file in listed.iter().filter(|file| file.name.ends_with(".sst")) {
            let env = Arc::clone(&self.settings.env);
            let table = table_facts(&env, &directory.join(&file.name))?;
            facts.entries += table.entries;
            facts.data_blocks += table.data_blocks;
            facts.data_bytes += table.data_bytes;
            facts.filter_bytes += table.filter_bytes;
            facts.index_bytes += table.index_bytes;
        }
        Ok(facts)
    }

    /// In what the databases differ besides their filters: nothing, or the comparison is void.
    fn differences(&self) -> Vec<String> {
        let Some(first) = self.databases.first() else { return Vec::new() };
        let held = |facts: &DatabaseFacts| {
            (facts.tables.clone(), facts.entries, facts.data_blocks, facts.data_bytes)
        };
        self.databases
            .iter()
            .filter(|facts| held(facts) != held(first))
            .map(|facts| {
                let (one, other) = (held(first), held(facts));
                format!("{} and {} differ: {one:?}, {other:?}", first.column, facts.column)
            })
            .collect()
    }

    /// A cache in which the filters and indexes of every database fit, and little data; and one
    /// of half the filters' bytes.
    fn cache_bytes(&self) -> Result<(u64, u64)> {
        let mut resident = 0;
        for column in DATABASES {
            let db = self.open(column, 1 << 40, RESIDENT_SHARE)?;
            let facts = self.databases.iter().find(|facts| facts.column == column);
            let filters = facts.map_or(0, |facts| facts.filter_bytes);
            // Partitions are not resident: they come through the cache, half of which they keep.
            let cached = if column == Column::Partitioned { 2 * filters } else { 0 };
            resident = resident.max(db.stats().resident_bytes + cached);
            db.close()?;
        }
        let full = self.databases.iter().find(|facts| facts.column == Column::Full);
        let filters = full.map_or(0, |facts| facts.filter_bytes);
        Ok((resident * 5 / 4 + (64 << 10), filters / 2))
    }

    fn act(
        &self,
        kind: ActKind,
        keys: &[Vec<u8>],
        cache_bytes: u64,
        looked_up: &mut dyn FnMut(u64),
    ) -> Result<Act> {
        let resident_share = if kind == ActKind::Starved { 0.0 } else { RESIDENT_SHARE };
        let mut columns = Vec::new();
        for column in Column::ALL {
            let db = self.open(column, cache_bytes, resident_share)?;
            read_indexes(&db)?;
            // What comes through the cache is there when counting begins.
            let options = ReadOptions::new().use_filters(column.asks_filters());
            for key in keys.iter().rev().take(keys.len() / 10 + 1_000) {
                db.get_with(key, &options)?;
            }
            let present = kind == ActKind::Present;
            columns.push(probe(&db, &self.env, column, keys, present, looked_up)?);
            db.close()?;
        }
        Ok(Act { kind, cache_bytes, columns })
    }
}

/// Walks over everything, so that every table has its index and no lookup that is counted reads
/// one for the first time. Of the data nothing stays.
fn read_indexes(db: &Db) -> Result<()> {
    let options = ReadOptions::new().fill_cache(false);
    db.range_with(.., &options).try_for_each(|entry| entry.map(drop))
}
