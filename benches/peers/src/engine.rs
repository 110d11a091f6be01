//! What the benchmark knows of an engine: one trait, [`Store`], and a description.
//!
//! Each file below `engines/` implements [`Store`] and [`Reader`] and describes itself in a
//! constant [`Engine`]. The harness knows nothing else of an engine, so every engine gets the same
//! keys through the same loops. Each thread looks up through a reader of its own. Engines that read
//! in transactions hold one for the life of the reader, which is the fastest they offer.
//!
//! [`Reader::lookups`] is a provided method on purpose: it is compiled once for each engine, so a
//! lookup costs no virtual call.

use crate::tally::Tally;
use crate::workload::{Batch, KeyList};
use clap::ValueEnum;
use std::path::Path;
use std::time::Duration;

/// The result of a call. The harness only reports the error of an engine.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Where the bits of the filters are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Layout {
    /// The one that the engine is known for: full filters in memory, LevelDB's own, or none.
    Own,
    /// Filters in partitions that come and go through the cache.
    Partitioned,
    /// A filter for each window of file offsets, siftdb's only.
    BlockBased,
    /// No filter, where others have one.
    NoFilter,
}

/// The word for a layout or phase in options and in JSON.
pub fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// An engine as the harness sees it.
pub struct Engine {
    /// Its name in options, in JSON and over its column.
    pub name: &'static str,
    /// The versions of what is measured.
    pub version: fn() -> String,
    /// The layouts it has, [`Layout::Own`] first.
    pub layouts: &'static [Layout],
    /// True for log-structured merge trees: the others have neither level 0 nor memtable.
    pub log_structured: bool,
    /// Files at level 0 in the phase of that name; 0 if it has no such level.
    pub level0_files: u64,
    /// What the compressed phase compresses with, if the engine can.
    pub compression: Option<&'static str>,
    /// Whether it can read its files through memory maps, or does so always.
    pub maps_files: bool,
    /// Whether it stores large values outside of the tree. Such an engine has the phase of large
    /// values only.
    pub separates_values: bool,
    /// Where its settings differ from the common ones, for the report.
    pub settings: &'static str,
    /// Opens or creates a database in a directory that exists.
    pub open: fn(&Path, &Settings) -> Result<Box<dyn Store>>,
    /// The same with transactions, if the engine has serializable ones.
    pub open_transactions: Option<OpenTransactions>,
}

/// Opens or creates a database with transactions in a directory that exists.
pub type OpenTransactions = fn(&Path, &Settings) -> Result<Box<dyn Transactions>>;

/// The settings that are equal for all engines, as far as they have them.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "which of them are read depends on the engines that are built")]
pub struct Settings {
    /// Where the bits of the filters are.
    pub layout: Layout,
    /// Bytes of the block or page cache.
    pub cache_bytes: u64,
    /// Compress data blocks.
    pub compression: bool,
    /// Read files through memory maps, if the engine can.
    pub map_files: bool,
    /// Compact in the background.
    pub compaction: bool,
    /// Every write will be durable: for engines that decide it at open.
    pub durable: bool,
    /// More bytes than all entries will take, for engines that reserve address space.
    pub map_bytes: u64,
}

/// Bits a key in every filter.
pub const BITS_PER_KEY: u8 = 10;

/// The least bytes of a value that is stored outside of the tree, by engines that do so.
#[cfg(any(feature = "rocksdb", feature = "fjall"))]
pub const SEPARATED_BYTES: u32 = 1024;

/// Bytes of a data block.
pub const BLOCK_BYTES: usize = 4096;

/// Bytes of a write buffer.
pub const WRITE_BUFFER_BYTES: usize = 64 << 20;

/// An open database.
pub trait Store: Sync {
    /// Writes one entry; it survives the death of the process, and a power loss if `durable`.
    fn put(&self, key: &[u8], value: &[u8], durable: bool) -> Result<()>;

    /// Writes entries as one step.
    fn write(&self, batch: &Batch<'_>) -> Result<()>;

    /// A reader for one thread.
    fn reader(&self) -> Result<Box<dyn Reader + '_>>;

    /// Writes entries that are only in memory and in the log to the files of the tree.
    fn flush(&self) -> Result<()>;

    /// Flushes and compacts to one level.
    fn settle(&self) -> Result<()>;

    /// How long writers have waited since it was opened, by its own statistics, if it has such.
    fn stalled(&self) -> Option<Duration> {
        None
    }

    /// Closes cleanly: nothing is left to replay.
    fn close(self: Box<Self>) -> Result<()>;
}

/// What a scan gives an entry to: key and value.
pub type Each<'a> = dyn FnMut(&[u8], &[u8]) + 'a;

/// Reads of one thread.
pub trait Reader {
    /// The last byte of the value of `key`, so that the value must be at hand.
    fn get(&mut self, key: &[u8]) -> Result<Option<u8>>;

    /// Gives up to `count` entries to `each`, from the first one at or after `from`.
    fn scan(&mut self, from: &[u8], count: usize, each: &mut Each<'_>) -> Result<()>;

    /// The same as a tally.
    fn tally(&mut self, from: &[u8], count: usize) -> Result<Tally> {
        let mut tally = Tally::default();
        self.scan(from, count, &mut |_, value| tally.add(value.last().copied()))?;
        Ok(tally)
    }

    /// Looks all keys of a list up.
    fn lookups(&mut self, keys: &KeyList) -> Result<Tally> {
        let mut tally = Tally::default();
        for key in keys.iter() {
            tally.add(self.get(key)?);
        }
        Ok(tally)
    }
}

/// An open database with serializable transactions.
pub trait Transactions: Sync {
    /// The number at the begin of the value of `key`, without a transaction.
    fn get(&self, key: &[u8]) -> Result<Option<u64>>;

    /// Writes one entry, without a transaction where the engine can.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Runs `run` in a transaction and commits it; after a conflict it runs again. It survives a
    /// power loss if `durable`.
    fn transact(&self, durable: bool, run: &mut Run<'_>) -> Result<()>;

    /// Closes cleanly.
    fn close(self: Box<Self>) -> Result<()>;
}

/// What is done in a transaction.
pub type Run<'a> = dyn FnMut(&mut dyn Transaction) -> Result<()> + 'a;

/// A transaction that has not ended.
pub trait Transaction {
    /// The number at the begin of the value of `key`.
    fn get(&mut self, key: &[u8]) -> Result<Option<u64>>;

    /// Writes one entry.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Reads all entries below `end`. Answers how many there are.
    fn scan(&mut self, end: &[u8]) -> Result<u64>;
}

/// The number that a value begins with.
pub fn number(value: &[u8]) -> u64 {
    value.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}
