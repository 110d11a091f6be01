//! Databases to measure: trees of tables that are the same in every run.
//!
//! [`settled`] has one level. [`Load`] makes the tree of the demonstration: half of the keys at
//! level 2, 29 % at level 1, the rest in three overlapping tables at level 0. Background compaction
//! depends on timing and on bytes, filters included, so it would give each layout another tree. In
//! [`Load::run`] each step has one outcome:
//!
//! 1. One large entry moves down to level 2, because the levels above are set to hold less. It
//!    makes level 2 the deepest level, and is deleted with the first keys.
//! 2. Half of the keys are flushed. `compact_range` moves all of them to level 2.
//! 3. 29 % of the keys are flushed while one table at level 0 starts a compaction into level 1,
//!    which is never full.
//! 4. The rest is flushed in three parts without compaction.

use crate::experiment::keys::{KeySet, present, splitmix64, value};
use siftdb::env::Env;
use siftdb::inspect::{LiveTable, TableFacts, table_facts};
use siftdb::{Db, Error, Options, Result, WriteBatch};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Fewer keys do not fill the levels.
pub const KEYS_MIN: usize = 100;

/// A position in the loading order is a `u32`.
pub const KEYS_MAX: usize = u32::MAX as usize;

/// Keys in one batch.
const BATCH_KEYS: usize = 500;

/// Memory of an entry in a memtable besides key and value: an upper bound, which decides when to
/// flush.
const ENTRY_BYTES: usize = 128;

/// Memory of a memtable, which is flushed by hand long before it is full.
const WRITE_BUFFER_BYTES: usize = 64 << 20;

/// Longer than the compaction of a few tables takes.
const SETTLE_LIMIT: Duration = Duration::from_secs(300);

/// Writes entries in batches.
///
/// # Errors
/// A write failed.
pub fn load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    db: &Db,
    entries: impl IntoIterator<Item = (K, V)>,
) -> Result<()> {
    let mut batch = WriteBatch::new();
    for (key, value) in entries {
        batch.put(key, value);
        if batch.len() == BATCH_KEYS {
            db.write(std::mem::take(&mut batch))?;
        }
    }
    db.write(batch)
}

/// A database of the numbered keys below `keys`, compacted into one level.
///
/// # Errors
/// Any failure of the database.
pub fn settled(directory: &Path, options: &Options, keys: u64) -> Result<Db> {
    let db = options.clone().open(directory)?;
    load(&db, (0..keys).map(|n| (present(n), value(n))))?;
    db.compact_range(..)?;
    Ok(db)
}

/// A database whose numbered keys lie in `tables` overlapping tables of level 0.
#[cfg(test)]
pub(crate) fn level0(directory: &Path, options: &Options, keys: u64, tables: u64) -> Result<Db> {
    let db = options.clone().auto_compaction(false).open(directory)?;
    for table in 0..tables {
        let numbers = (table..keys).step_by(tables as usize);
        load(&db, numbers.map(|n| (present(n), value(n))))?;
        db.flush()?;
    }
    Ok(db)
}

/// The facts of these tables, added up.
///
/// # Errors
/// A table cannot be read.
pub fn table_totals(env: &Arc<dyn Env>, tables: &[LiveTable]) -> Result<TableFacts> {
    let mut total = TableFacts::default();
    for table in tables {
        let facts = table_facts(env, &table.path)?;
        total.bytes += facts.bytes;
        total.entries += facts.entries;
        total.data_blocks += facts.data_blocks;
        total.data_bytes += facts.data_bytes;
        total.index_bytes += facts.index_bytes;
        total.filter_bytes += facts.filter_bytes;
        total.filter_partitions += facts.filter_partitions;
    }
    Ok(total)
}

/// The loaded keys and values, the same for every layout.
#[derive(Debug)]
pub(crate) struct Load<'a> {
    /// The keys.
    pub keys: &'a KeySet,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// Decides the values.
    pub seed: u64,
}

impl Load<'_> {
    /// Creates the database `directory` and fills it. `options` name filter and Env. `written` gets
    /// the number of keys written since its last call.
    ///
    /// # Errors
    /// Any failure of the database.
    pub(crate) fn run(
        &self,
        options: &Options,
        directory: &Path,
        written: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let order = self.keys.shuffled(self.seed);
        let half = order.len() / 2;
        let upper = half + order.len() * 29 / 100;
        let table_bytes = self.table_bytes();
        let options = options.clone().write_buffer_bytes(WRITE_BUFFER_BYTES);

        let anchor = self.anchor_key();
        let sinking = options.clone().error_if_exists(true).level0_compaction_trigger(1);
        let db = sinking.table_bytes(16 << 10).level_base_bytes(16 << 10).open(directory)?;
        db.put(&anchor, self.value(u64::MAX, 24 << 10))?;
        db.flush()?;
        settle(&db, directory, |tables| tables == [0, 0, 1])?;
        db.close()?;

        let options = options.create_if_missing(false).table_bytes(table_bytes);
        let options = options.level_base_bytes(1 << 50);
        let db = options.clone().auto_compaction(false).open(directory)?;
        db.delete(&anchor)?;
        self.write(&db, &order[..half], written)?;
        db.compact_range(..)?;
        db.close()?;

        let db = options.clone().level0_compaction_trigger(1).open(directory)?;
        self.write(&db, &order[half..upper], written)?;
        settle(&db, directory, |tables| tables[0] == 0 && tables[1] > 0)?;
        db.close()?;

        let db = options.auto_compaction(false).open(directory)?;
        let rest = &order[upper..];
        for third in 0..3 {
            let part = rest.len() * third / 3..rest.len() * (third + 1) / 3;
            self.write(&db, &rest[part], written)?;
        }
        db.close()
    }

    /// Writes a part of the order and flushes it: as one table, if it is not very large.
    fn write(&self, db: &Db, part: &[u32], written: &mut dyn FnMut(u64)) -> Result<()> {
        let mut buffered = 0;
        for chunk in part.chunks(BATCH_KEYS) {
            let entries = chunk.iter().map(|&place| {
                let key = self.keys.key(place as usize);
                buffered += key.len() + self.value_bytes + ENTRY_BYTES;
                (key, self.value(u64::from(place), self.value_bytes))
            });
            load(db, entries)?;
            written(chunk.len() as u64);
            if buffered > WRITE_BUFFER_BYTES / 2 {
                db.flush()?;
                buffered = 0;
            }
        }
        db.flush()
    }

    /// About seven tables at level 2. `compact_range` compacts ten tables' bytes at once, so one
    /// step takes all of them, and cuts them at the same keys whatever the filters take.
    fn table_bytes(&self) -> u64 {
        let entries = self.keys.len() as u64;
        let total = self.keys.bytes() + entries * (self.value_bytes as u64 + 16);
        (total / 14).clamp(64 << 10, 1 << 30)
    }

    fn anchor_key(&self) -> Vec<u8> {
        let mut key = b"anchor".to_vec();
        while self.keys.contains(&key) {
            key.push(b'.');
        }
        key
    }

    /// Random bytes, which do not compress.
    fn value(&self, place: u64, bytes: usize) -> Vec<u8> {
        let mut state = self.seed ^ place.wrapping_mul(0xd6e8_feb8_6659_fd93);
        let words = std::iter::repeat_with(|| splitmix64(&mut state).to_le_bytes());
        let mut value: Vec<u8> = words.take(bytes.div_ceil(8)).flatten().collect();
        value.truncate(bytes);
        value
    }
}

/// Waits until background compaction has given the first three levels these numbers of tables.
fn settle(db: &Db, directory: &Path, settled: impl Fn([u64; 3]) -> bool) -> Result<()> {
    let started = Instant::now();
    loop {
        let stats = db.stats();
        let tables = |level: usize| stats.levels.get(level).map_or(0, |level| level.tables);
        let now = [tables(0), tables(1), tables(2)];
        if settled(now) {
            return Ok(());
        }
        if started.elapsed() > SETTLE_LIMIT {
            let what = format!("the tree does not settle: tables at levels 0 to 2 are {now:?}");
            let (path, source) = (directory.to_path_buf(), Arc::new(io::Error::other(what)));
            return Err(Error::Io { op: "settle", path, source });
        }
        // Nothing is left to flush; the call returns the error of a failed background job.
        db.flush()?;
        std::thread::sleep(Duration::from_millis(1));
    }
}
