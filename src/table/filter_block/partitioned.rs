//! Partitions: full filters over runs of keys, under a top-level index.
//!
//! A partition is cut before the key that would be one too many goes in (RocksDB's decoupled
//! cut). The index has one entry per partition, its largest user key (followed by 8 zero bytes
//! where the table's indexes hold internal keys) and its handle; it is written last and the
//! metaindex points to it. Partition bytes equal RocksDB's; the index block is siftdb's own form.
//!
//! Several versions of one user key may lie on both sides of a cut. The key is added again behind
//! it, and a lookup, which takes the first partition whose index key is not below it, finds the
//! one before it; a partition of nothing but that key would never be asked and is not written. A
//! key above all index keys is asked of the last partition, as in RocksDB. Partitions always go
//! through the cache; the index is resident or cached.

use crate::error::Result;
use crate::filter::builder::FilterBuilder;
use crate::filter::hash::KeyHash;
use crate::filter::registry::{Encoding, FilterReader};
use crate::key::{LookupKey, put_key_with_trailer};
use crate::table::block_builder::BlockBuilder;
use crate::table::fetch::{BlockKind, TableFile, TableIo};
use crate::table::filter_block::layout::{
    BlockSink, FilterBlockSummary, FilterSource, FilterVerdict, PARTITIONED_PREFIX, build_error,
    is_writable,
};
use crate::table::format::BlockHandle;
use crate::table::index::Index;

/// What a partition takes of the metadata block size: RocksDB's default deviation of 10 %.
const PARTITION_PERCENT: usize = 90;

/// Writes a partitioned filter.
#[derive(Debug)]
pub struct PartitionedBuilder {
    name: String,
    keys: FilterBuilder,
    keys_per_partition: usize,
    previous_key: Vec<u8>,
    /// Filters of the finished partitions, one behind the other, and of each its largest key and
    /// where its filter ends. They are written behind the data blocks, at `finish`.
    filters: Vec<u8>,
    partitions: Vec<(Vec<u8>, usize)>,
    entries: u64,
    /// The first thing that went wrong; told at `finish`.
    failed: Option<String>,
}

impl PartitionedBuilder {
    /// Partitions of 90 % of `block_bytes`.
    pub fn new(encoding: &Encoding, block_bytes: usize) -> Self {
        let partition_bytes = block_bytes.saturating_mul(PARTITION_PERCENT).div_ceil(100).max(1);
        Self::with_partition_bytes(encoding, partition_bytes)
    }

    fn with_partition_bytes(encoding: &Encoding, partition_bytes: usize) -> Self {
        let keys = encoding.builder();
        PartitionedBuilder {
            name: format!("{PARTITIONED_PREFIX}{}", encoding.full_name()),
            keys_per_partition: keys.keys_per_partition(partition_bytes),
            keys,
            previous_key: Vec::new(),
            filters: Vec::new(),
            partitions: Vec::new(),
            entries: 0,
            failed: None,
        }
    }

    /// Adds a user key.
    pub fn add_key(&mut self, user_key: &[u8]) {
        if self.keys.entries() >= self.keys_per_partition {
            self.cut();
        }
        self.keys.add_key(user_key);
        self.previous_key.clear();
        self.previous_key.extend_from_slice(user_key);
    }

    /// Memory held.
    pub fn memory_bytes(&self) -> usize {
        let keys: usize = self.partitions.iter().map(|(key, _)| key.capacity()).sum();
        self.keys.memory_bytes()
            + self.filters.capacity()
            + keys
            + self.partitions.capacity() * size_of::<(Vec<u8>, usize)>()
    }

    /// Writes the partitions, then their index; nothing if no key came.
    pub fn finish(
        &mut self,
        index_key_is_user_key: bool,
        sink: &mut dyn BlockSink,
    ) -> Result<Option<FilterBlockSummary>> {
        if self.keys.entries() > 0 {
            self.cut();
        }
        if let Some(what) = self.failed.take() {
            return Err(build_error(what));
        }
        let filters = std::mem::take(&mut self.filters);
        let partitions = std::mem::take(&mut self.partitions);
        if partitions.is_empty() {
            return Ok(None);
        }
        let mut index = BlockBuilder::new(1);
        let mut start = 0;
        for (key, end) in &partitions {
            let filter = filters.get(start..*end).unwrap_or_default();
            start = *end;
            let mut index_key = key.clone();
            if !index_key_is_user_key {
                // Trailer 0 stands behind every version of the key.
                index_key.clear();
                put_key_with_trailer(&mut index_key, key, 0);
            }
            let mut value = Vec::new();
            sink.write_raw(filter)?.encode(&mut value);
            index.add(&index_key, &value);
        }
        let index = index.finish();
        if !is_writable(index.len()) {
            return Ok(None);
        }
        Ok(Some(FilterBlockSummary {
            metaindex_name: self.name.clone(),
            handle: sink.write_raw(index)?,
            filter_bytes: (filters.len() + index.len()) as u64,
            entries: self.entries,
            partitions: partitions.len() as u64,
        }))
    }

    /// Ends a partition behind the previous key.
    fn cut(&mut self) {
        let entries = self.keys.entries() as u64;
        let start = self.filters.len();
        if let Err(what) = self.keys.finish(&mut self.filters) {
            self.failed.get_or_insert(what);
        }
        let repeats = self.partitions.last().is_some_and(|(key, _)| *key == self.previous_key);
        if repeats || !is_writable(self.filters.len() - start) {
            self.filters.truncate(start);
        }
        if !repeats {
            self.entries += entries;
            self.partitions.push((self.previous_key.clone(), self.filters.len()));
        }
    }
}

/// Reads a partitioned filter.
#[derive(Debug)]
pub struct PartitionedReader {
    reader: FilterReader,
    top: FilterSource,
    resident: Option<Index>,
}

impl PartitionedReader {
    /// The filter whose top-level index stands at `handle`, fetched at each use.
    pub fn new(reader: FilterReader, handle: BlockHandle) -> Self {
        PartitionedReader { reader, top: FilterSource::new(handle), resident: None }
    }

    /// Loads the top-level index to stay; if that fails it is fetched at each use.
    pub fn make_resident(&mut self, file: &TableFile, io: &mut TableIo) {
        let handle = self.top.handle();
        self.resident =
            self.top.guard(io, |io| file.read_index(handle, BlockKind::FilterIndex, io));
    }

    /// Memory held.
    pub fn resident_bytes(&self) -> u64 {
        self.resident.as_ref().map_or(0, |index| index.memory_bytes() as u64)
    }

    /// Where the top-level index stands.
    pub fn handle(&self) -> BlockHandle {
        self.top.handle()
    }

    /// May the table hold the key? Asks the one partition that could hold it.
    #[inline]
    pub fn table_may_contain(
        &self,
        file: &TableFile,
        key: &LookupKey,
        hash: &KeyHash<'_>,
        io: &mut TableIo,
    ) -> FilterVerdict {
        let partition = match &self.resident {
            Some(index) => partition_of(index, key),
            None => {
                let handle = self.top.handle();
                let fetch = |io: &mut TableIo| file.fetch(handle, BlockKind::FilterIndex, true, io);
                let Some(block) = self.top.guard(io, fetch) else {
                    return FilterVerdict::NotConsulted;
                };
                block.index().and_then(|index| partition_of(index, key))
            }
        };
        self.ask(file, partition, hash, io).unwrap_or_else(|| {
            io.filter_errors += 1;
            FilterVerdict::NotConsulted
        })
    }

    /// `None` if the partition cannot be asked.
    #[inline]
    fn ask(
        &self,
        file: &TableFile,
        partition: Option<BlockHandle>,
        hash: &KeyHash<'_>,
        io: &mut TableIo,
    ) -> Option<FilterVerdict> {
        let partition = partition.filter(|handle| handle.size > 0)?;
        let block = file.fetch(partition, BlockKind::Filter, true, io).ok()?;
        Some(FilterVerdict::of(self.reader.may_contain(block.filter()?, hash)))
    }
}

/// The partition that holds the key if any does: the first whose index key is not below it, else
/// the last. Index keys are user keys or end with trailer 0, so all versions are found alike.
#[inline]
fn partition_of(index: &Index, key: &LookupKey) -> Option<BlockHandle> {
    index.handle(index.find(key).or_else(|| index.len().checked_sub(1))?)
}
