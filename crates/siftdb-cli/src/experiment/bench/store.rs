//! The interface of a store to workloads. `siftdb` implements it for siftdb, `benches/peers` for
//! others.

use std::error::Error;

/// The result of a call. A store answers with errors of its own.
pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// An open database. Threads share it; each has a [`Reader`] of its own.
pub trait Store: Sync {
    /// Writes one entry; it survives a power loss if `sync`.
    ///
    /// # Errors
    /// Those of the store, as for all calls.
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()>;

    /// Deletes a key, which need not be there.
    ///
    /// # Errors
    /// Those of the store.
    fn delete(&self, key: &[u8], sync: bool) -> Result<()>;

    /// Writes entries as one step.
    ///
    /// # Errors
    /// Those of the store.
    fn write(&self, entries: &[(&[u8], &[u8])], sync: bool) -> Result<()>;

    /// A reader for one thread, which asks filters or not. A store without that choice ignores it.
    ///
    /// # Errors
    /// Those of the store.
    fn reader(&self, use_filters: bool) -> Result<Box<dyn Reader + '_>>;

    /// Writes entries that are only in memory and in the log to the files of the tree.
    ///
    /// # Errors
    /// Those of the store.
    fn flush(&self) -> Result<()>;

    /// Flushes and compacts to one level.
    ///
    /// # Errors
    /// Those of the store.
    fn settle(&self) -> Result<()>;

    /// Makes all writes durable.
    ///
    /// # Errors
    /// Those of the store.
    fn sync(&self) -> Result<()>;

    /// The counts of the store since it was opened; `None` if it does not count.
    fn counts(&self) -> Option<Counts> {
        None
    }

    /// Memory and files that it takes now.
    ///
    /// # Errors
    /// A file cannot be asked for its length.
    fn footprint(&self) -> Result<Footprint>;

    /// Closes cleanly.
    ///
    /// # Errors
    /// Those of the store.
    fn close(&self) -> Result<()>;
}

/// Reads of one thread.
pub trait Reader {
    /// Looks one key up. Answers the last byte of its value, or 0 of an empty one, so that the
    /// value must be at hand.
    ///
    /// # Errors
    /// Those of the store.
    fn get(&mut self, key: &[u8]) -> Result<Option<u8>>;

    /// Looks several keys up together; answers how many are there.
    ///
    /// # Errors
    /// Those of the store.
    fn multi_get(&mut self, keys: &[Vec<u8>]) -> Result<u64> {
        keys.iter().try_fold(0, |found, key| Ok(found + u64::from(self.get(key)?.is_some())))
    }

    /// Gives up to `count` entries to `each`, from the first one at or after `from`, or backward
    /// from the last one at or before it. Answers how many.
    ///
    /// # Errors
    /// Those of the store.
    fn scan(
        &mut self,
        from: &[u8],
        direction: Direction,
        count: u64,
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<u64>;
}

/// The direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

/// The counts of a store, or the difference of two such counts. Blocks and filters are those of
/// reads: what compactions read is not included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Point lookups.
    pub lookups: u64,
    /// Data blocks that reads searched, cached ones included.
    pub data_blocks: u64,
    /// Blocks of any kind that reads read from files.
    pub blocks_read: u64,
    /// Bytes of these blocks.
    pub bytes_read: u64,
    /// Tables that lookups skipped because a filter said no.
    pub negatives: u64,
    /// Tables that lookups searched in vain because a filter said maybe.
    pub false_positives: u64,
    /// Tables that lookups searched without asking their filter, because it had not paid.
    pub not_paying: u64,
    /// Bytes of keys and values that were written by the user.
    pub user_bytes: u64,
    /// Bytes written to logs.
    pub log_bytes_written: u64,
    /// Bytes of tables written to each level: by flushes, bulk loads and compactions.
    pub level_bytes_written: [u64; 7],
    /// Those of them that are filters.
    pub filter_bytes_written: u64,
}

impl Counts {
    /// Adds what was counted from `before` to `now`.
    pub(crate) fn add(&mut self, before: &Counts, now: &Counts) {
        self.lookups += now.lookups.saturating_sub(before.lookups);
        self.data_blocks += now.data_blocks.saturating_sub(before.data_blocks);
        self.blocks_read += now.blocks_read.saturating_sub(before.blocks_read);
        self.bytes_read += now.bytes_read.saturating_sub(before.bytes_read);
        self.negatives += now.negatives.saturating_sub(before.negatives);
        self.false_positives += now.false_positives.saturating_sub(before.false_positives);
        self.not_paying += now.not_paying.saturating_sub(before.not_paying);
        self.user_bytes += now.user_bytes.saturating_sub(before.user_bytes);
        self.log_bytes_written += now.log_bytes_written.saturating_sub(before.log_bytes_written);
        let levels = before.level_bytes_written.iter().zip(&now.level_bytes_written);
        for (sum, (before, now)) in self.level_bytes_written.iter_mut().zip(levels) {
            *sum += now.saturating_sub(*before);
        }
        self.filter_bytes_written +=
            now.filter_bytes_written.saturating_sub(before.filter_bytes_written);
    }

    /// The share of false positives in the filters' answers about absent keys; `None` before any.
    pub fn observed_fpr(&self) -> Option<f64> {
        let absent = self.false_positives + self.negatives;
        (absent > 0).then(|| self.false_positives as f64 / absent as f64)
    }

    /// Bytes written to logs and tables for each byte of the user; `None` if there are none.
    pub fn write_amplification(&self) -> Option<f64> {
        let written = self.log_bytes_written + self.level_bytes_written.iter().sum::<u64>();
        (self.user_bytes > 0).then(|| written as f64 / self.user_bytes as f64)
    }

    /// The same by reason: the log and each level, if anything was written there. Last the filters,
    /// which are counted with their levels, too. Empty if there are no bytes of the user.
    pub fn write_amplification_by_reason(&self) -> Vec<(String, f64)> {
        let of_level = |(level, written): (usize, &u64)| (format!("level{level}"), *written);
        let mut reasons = vec![("log".to_owned(), self.log_bytes_written)];
        reasons.extend(self.level_bytes_written.iter().enumerate().map(of_level));
        reasons.push(("filters".to_owned(), self.filter_bytes_written));
        let written = reasons.into_iter().filter(|(_, bytes)| *bytes > 0 && self.user_bytes > 0);
        written.map(|(reason, bytes)| (reason, bytes as f64 / self.user_bytes as f64)).collect()
    }
}

/// Memory and files that a store takes; `None` where it does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Bytes of all files of the database.
    pub disk_bytes: u64,
    /// Bytes of blocks in its cache.
    pub cache_bytes: Option<u64>,
    /// Bytes of filters and indexes that stay in memory.
    pub pinned_bytes: Option<u64>,
    /// Bytes of memtables.
    pub memtable_bytes: Option<u64>,
}
