//! siftdb as a store of the benchmark.

use crate::experiment::bench::data::Data;
use crate::experiment::bench::store::{Counts, Direction, Footprint, Reader, Result, Store};
use crate::experiment::keys::{KeySet, splitmix64};
use crate::experiment::probe::{blocks_read, bytes_read};
use siftdb::env::Env;
use siftdb::{Db, ReadOptions, WriteBatch, WriteOptions};
use std::sync::Arc;

/// An open database of siftdb and the file system that it is on.
#[derive(Debug)]
pub struct SiftdbStore {
    /// The database.
    pub db: Db,
    env: Arc<dyn Env>,
    fill_cache: bool,
}

impl SiftdbStore {
    /// The database `db`, which was opened with this `env`.
    pub fn new(db: Db, env: Arc<dyn Env>) -> Self {
        SiftdbStore { db, env, fill_cache: true }
    }

    /// The same, whose reads keep no block in the cache of the database.
    pub fn without_filling_the_cache(self) -> Self {
        SiftdbStore { fill_cache: false, ..self }
    }
}

/// Entries of an existing database to look up: its keys, or a sample of `most` of them, and as many
/// neighbours of theirs that it does not have. `None` if it is empty.
///
/// # Errors
/// The database cannot be read.
pub fn sampled(db: &Db, most: usize, seed: u64) -> siftdb::Result<Option<Data>> {
    let options = ReadOptions::new().fill_cache(false);
    let (mut keys, mut state) = (Vec::new(), seed);
    for (entry, number) in db.range_with(.., &options).zip(1u64..) {
        let (key, _) = entry?;
        // Each key stays with the same chance ("reservoir sampling").
        if keys.len() < most {
            keys.push(key.to_vec());
        } else if let Some(out) = keys.get_mut((splitmix64(&mut state) % number) as usize) {
            *out = key.to_vec();
        }
    }
    let keys = KeySet::new(keys);
    let mut absent = keys.absent(keys.len(), seed);
    for key in &mut absent {
        while db.contains_key(&key)? && key.len() < KeySet::KEY_BYTES_MAX {
            key.push(b'0' + (splitmix64(&mut state) % 10) as u8);
        }
    }
    let present: Vec<Vec<u8>> = keys.iter().map(<[u8]>::to_vec).collect();
    Ok((!present.is_empty()).then(|| Data::of_lists(present, absent, 0)))
}

fn durability(sync: bool) -> WriteOptions {
    WriteOptions::new().sync(sync)
}

impl Store for SiftdbStore {
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        Ok(self.db.put_with(key, value, &durability(sync))?)
    }

    fn delete(&self, key: &[u8], sync: bool) -> Result<()> {
        Ok(self.db.delete_with(key, &durability(sync))?)
    }

    fn write(&self, entries: &[(&[u8], &[u8])], sync: bool) -> Result<()> {
        let mut batch = WriteBatch::new();
        for (key, value) in entries {
            batch.put(key, value);
        }
        Ok(self.db.write_with(batch, &durability(sync))?)
    }

    fn reader(&self, use_filters: bool) -> Result<Box<dyn Reader + '_>> {
        let options = ReadOptions::new().use_filters(use_filters).fill_cache(self.fill_cache);
        Ok(Box::new(SiftdbReader { db: &self.db, options }))
    }

    fn flush(&self) -> Result<()> {
        Ok(self.db.flush()?)
    }

    fn settle(&self) -> Result<()> {
        Ok(self.db.compact_range(..)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.db.sync()?)
    }

    fn counts(&self) -> Option<Counts> {
        let stats = self.db.stats();
        let total = stats.total();
        Some(Counts {
            lookups: stats.gets,
            data_blocks: total.data_blocks()
                + total.scan_data_blocks_cached
                + total.scan_data_blocks_read,
            blocks_read: blocks_read(&total),
            bytes_read: bytes_read(&total),
            negatives: total.negatives,
            false_positives: total.false_positives,
            not_paying: total.not_paying,
            user_bytes: stats.entry_bytes,
            log_bytes_written: stats.wal_bytes,
            level_bytes_written: std::array::from_fn(|level| {
                stats.levels.get(level).map_or(0, |level| level.bytes_written)
            }),
            filter_bytes_written: stats.levels.iter().map(|level| level.filter_bytes_written).sum(),
        })
    }

    fn footprint(&self) -> Result<Footprint> {
        let stats = self.db.stats();
        let mut disk_bytes = 0;
        for entry in self.env.list(self.db.path())? {
            // A worker may remove a file at any time.
            let metadata = self.env.metadata(&self.db.path().join(&entry.name));
            disk_bytes += metadata.map_or(0, |metadata| metadata.bytes);
        }
        Ok(Footprint {
            disk_bytes,
            cache_bytes: Some(stats.cache_bytes),
            pinned_bytes: Some(stats.pinned_bytes),
            memtable_bytes: Some(stats.memtable_bytes),
        })
    }

    fn close(&self) -> Result<()> {
        Ok(self.db.close()?)
    }
}

struct SiftdbReader<'a> {
    db: &'a Db,
    options: ReadOptions,
}

impl Reader for SiftdbReader<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<u8>> {
        let value = self.db.get_with(key, &self.options)?;
        Ok(value.map(|value| value.last().copied().unwrap_or(0)))
    }

    fn multi_get(&mut self, keys: &[Vec<u8>]) -> Result<u64> {
        let values = self.db.multi_get_with(keys, &self.options)?;
        Ok(values.iter().flatten().count() as u64)
    }

    fn scan(
        &mut self,
        from: &[u8],
        direction: Direction,
        count: u64,
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<u64> {
        let is_forward = direction == Direction::Forward;
        let mut cursor = match is_forward {
            true => self.db.range_with(from.., &self.options).cursor(),
            false => self.db.range_with(..=from, &self.options).cursor(),
        };
        let mut is_there =
            if is_forward { cursor.seek_to_first()? } else { cursor.seek_to_last()? };
        let mut read = 0;
        while is_there && read < count {
            if let Some((key, value)) = cursor.entry() {
                each(key, value);
            }
            read += 1;
            if read < count {
                is_there = if is_forward { cursor.next()? } else { cursor.prev()? };
            }
        }
        Ok(read)
    }
}
