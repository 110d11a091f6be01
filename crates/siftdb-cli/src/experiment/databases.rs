//! The databases of a run: the same keys under each filter layout, loaded once and opened for every
//! series of lookups.

use crate::experiment::keys::KeySet;
use crate::experiment::load::{Load, table_totals};
use crate::experiment::probe::{Measurement, measure};
use crate::experiment::report::{Column, DatabaseFacts};
use crate::experiment::settings::{Progress, Settings};
use siftdb::env::{CountingEnv, Env};
use siftdb::inspect::{LEVELS, live_tables};
use siftdb::{Db, Options, ReadOptions, Result};
use std::path::Path;
use std::sync::Arc;

/// The share of the cache that pinned filters and indexes may take in the first acts: most of it,
/// so that almost no data stays in the cache.
const PINNED_SHARE: f64 = 0.9;

/// The keys of a series of lookups, and whether each is there.
pub(crate) struct Lookups<'a> {
    pub(crate) keys: &'a [Vec<u8>],
    /// Looked up before, so that the cache is warm; drawn like `keys`.
    pub(crate) warm_up: &'a [Vec<u8>],
    pub(crate) is_present: &'a dyn Fn(&[u8]) -> bool,
}

/// The cache of a series of lookups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cache {
    pub(crate) bytes: u64,
    /// The share of it in which filters and indexes may be pinned.
    pub(crate) pinned_share: f64,
}

impl Cache {
    /// One in which all filters fit.
    pub(crate) const ROOMY: Cache = Cache { bytes: 1 << 30, pinned_share: PINNED_SHARE };
}

/// The loaded databases, ready to be probed.
pub(crate) struct Databases<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) env: Arc<CountingEnv>,
    pub(crate) facts: Vec<DatabaseFacts>,
}

impl<'a> Databases<'a> {
    /// Creates and loads the databases.
    pub(crate) fn load(
        settings: &Settings,
        keys: &KeySet,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        let total = (keys.len() * settings.databases().count()) as u64;
        let mut written = Progress::count("load", total, progress);
        for column in settings.databases() {
            let options = Options::new().filter(column.filter(settings.filter.clone()));
            load_one(settings, keys, options, &settings.database(column), &mut written)?;
        }
        Ok(())
    }

    /// The databases that were loaded.
    pub(crate) fn existing(settings: &'a Settings) -> Result<Self> {
        let facts = settings.databases().map(|column| facts(settings, column));
        let facts = facts.collect::<Result<_>>()?;
        let env = Arc::new(CountingEnv::new(Arc::clone(&settings.env)));
        Ok(Databases { settings, env, facts })
    }

    pub(crate) fn open(&self, column: Column, cache: Cache) -> Result<Db> {
        self.open_at(&self.settings.database(column), cache)
    }

    /// Opens the database in `directory`, which no compaction changes.
    pub(crate) fn open_at(&self, directory: &Path, cache: Cache) -> Result<Db> {
        Options::new()
            .env(Arc::clone(&self.env) as Arc<dyn Env>)
            .create_if_missing(false)
            .auto_compaction(false)
            .block_cache_bytes(cache.bytes)
            .filter_pinned_share(cache.pinned_share)
            .open(directory)
    }

    /// Looks keys up in the database of `column`, with indexes read and the cache warm.
    pub(crate) fn look_up(
        &self,
        column: Column,
        cache: Cache,
        lookups: &Lookups<'_>,
        looked_up: &mut dyn FnMut(u64),
    ) -> Result<Measurement> {
        let db = self.open(column, cache)?;
        let options = ReadOptions::new().use_filters(column.asks_filters());
        read_indexes(&db)?;
        for key in lookups.warm_up {
            db.get_with(key, &options)?;
        }
        let (keys, is_present) = (lookups.keys, lookups.is_present);
        let measured = measure(&db, &self.env, keys, is_present, &options, looked_up)?;
        db.close()?;
        Ok(measured)
    }

    pub(crate) fn filter_bytes(&self, column: Column) -> u64 {
        let facts = self.facts.iter().find(|facts| facts.column == column);
        facts.map_or(0, |facts| facts.total.filter_bytes)
    }

    /// Bytes of the full filters, or of the others if there are none.
    pub(crate) fn filters_to_hold(&self) -> u64 {
        match self.filter_bytes(self.settings.filtered()) {
            0 => 64 << 10,
            bytes => bytes,
        }
    }

    /// Differences besides filters, which make the comparison void.
    pub(crate) fn differences(&self) -> Vec<String> {
        let Some(first) = self.facts.first() else { return Vec::new() };
        let held = |facts: &DatabaseFacts| {
            let total = &facts.total;
            // Not their bytes: only blocks whose filters allow it begin at pages.
            (facts.tables.clone(), total.entries, total.data_blocks)
        };
        self.facts
            .iter()
            .filter(|facts| held(facts) != held(first))
            .map(|facts| {
                let [one, other] = [first, facts].map(|facts| facts.column.name());
                format!("{one} and {other} differ: {:?}, {:?}", held(first), held(facts))
            })
            .collect()
    }

    /// A cache in which the filters and indexes of every database fit, and little data; and one
    /// of half the filters' bytes.
    pub(crate) fn caches(&self) -> Result<(Cache, Cache)> {
        let unbounded = Cache { bytes: 1 << 40, pinned_share: PINNED_SHARE };
        let mut pinned = 0;
        for column in self.settings.databases() {
            let db = self.open(column, unbounded)?;
            // Partitions are not pinned. They come through the cache and may take half of it.
            let partitioned = column == Column::Partitioned;
            let cached = if partitioned { 2 * self.filter_bytes(column) } else { 0 };
            pinned = pinned.max(db.stats().pinned_bytes + cached);
            db.close()?;
        }
        let roomy = Cache { bytes: pinned * 5 / 4 + (64 << 10), pinned_share: PINNED_SHARE };
        Ok((roomy, Cache { bytes: self.filters_to_hold() / 2, pinned_share: 0.0 }))
    }
}

/// Creates the database `directory` with the filters of `options` and fills it.
pub(crate) fn load_one(
    settings: &Settings,
    keys: &KeySet,
    options: Options,
    directory: &Path,
    written: &mut dyn FnMut(u64),
) -> Result<()> {
    let load = Load { keys, value_bytes: settings.value_bytes, seed: settings.seed };
    load.run(&options.env(Arc::clone(&settings.env)), directory, written)
}

/// The facts of the closed database of `column`.
fn facts(settings: &Settings, column: Column) -> Result<DatabaseFacts> {
    let live = live_tables(&settings.env, &settings.database(column))?.unwrap_or_default();
    let mut tables = vec![0; LEVELS];
    live.iter().for_each(|table| tables[table.level] += 1);
    Ok(DatabaseFacts { column, tables, total: table_totals(&settings.env, &live)? })
}

/// Scans everything, so that every table has read its index before lookups are counted. No data
/// stays in the cache.
pub(crate) fn read_indexes(db: &Db) -> Result<()> {
    let options = ReadOptions::new().fill_cache(false);
    db.range_with(.., &options).try_for_each(|entry| entry.map(drop))
}
