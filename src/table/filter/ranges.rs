//! Range filters in tables: which ranges of keys a table has none of.
//!
//! The package `siftdb-filter` makes the bits (`siftdb-filter/range/`): a model, which is a
//! property of the table, and partitions, each with the lists of 64 data blocks. The partitions are
//! blocks under a top-level index, as those of a partitioned filter are. Their metaindex name says
//! so, and a reader without range filters takes them for a filter of an unknown policy.
//!
//! A list has the cells of its keys between two separators of the data index. So a range is looked
//! up in the data index (`table/reader.rs`), and then at most two lists are asked: a range that
//! spans a whole block is not empty.

use crate::base::error::{Error, Result};
use crate::base::key::LookupKey;
use crate::cache::cache::Reservation;
use crate::table::block::builder::BlockBuilder;
use crate::table::file::{TableFile, TableIo};
use crate::table::filter::layout::{BlockSink, FilterPinning, is_writable};
use crate::table::filter::partitions::Partitions;
use crate::table::format::{BlockHandle, BlockKind};
use crate::table::index::{CachedBlock, Index, IndexBuilder};
use crate::table::properties::Properties;
use siftdb_filter::cache_line::AlignedBytes;
use siftdb_filter::encoding::FilterVerdict;
use siftdb_filter::range::{BLOCKS_PER_PARTITION, BlockRange, RangeFilterBuilder, RangeModel};

/// The metaindex entry: a partitioned filter, of a policy that no point lookup knows.
pub(crate) const RANGE_FILTER_NAME: &str = "partitionedfilter.siftdb.RangeFilter";

/// Writes a range filter, and describes it in `properties`. Its top-level index; `None` without
/// keys, or if the index could not be read back.
pub(crate) fn write_range_filter(
    builder: RangeFilterBuilder,
    data_index: &IndexBuilder,
    properties: &mut Properties,
    sink: &mut dyn BlockSink,
) -> Result<Option<BlockHandle>> {
    let filter = builder.finish().map_err(Error::of_filter_build)?;
    if filter.bytes() == 0 {
        // A table of range deletes alone.
        return Ok(None);
    }
    let mut index = BlockBuilder::new(1);
    for (partition, contents) in filter.partitions().enumerate() {
        let blocks = (partition + 1) * BLOCKS_PER_PARTITION;
        let last = blocks.min(data_index.len()).saturating_sub(1);
        let mut handle = Vec::new();
        sink.write_raw(contents, BlockKind::Filter)?.encode(&mut handle);
        index.add(data_index.key(last), &handle);
    }
    let index = index.finish();
    if !is_writable(index.len()) {
        return Ok(None);
    }
    properties.range_filter_bytes = filter.bytes() + index.len() as u64;
    properties.range_filter_model = filter.model;
    sink.write_raw(index, BlockKind::FilterIndex).map(Some)
}

/// A range of user keys, as a question to one table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RangeQuestion<'q> {
    /// The first key of the range, before all its versions.
    pub start: &'q LookupKey,
    /// The key after the range; `None` if it has no end.
    pub end: Option<&'q [u8]>,
    /// What all keys of the range begin with.
    pub common: &'q [u8],
}

/// Reads the range filter of one table.
pub(crate) struct RangeReader {
    model: RangeModel,
    partitions: Partitions<AlignedBytes>,
    /// The reservation for the top-level index and the model.
    memory: Option<Reservation<CachedBlock>>,
}

impl RangeReader {
    /// The range filter that the metaindex names. `None` without one, or if its model is unknown.
    pub(crate) fn new(
        metaindex: &[(String, BlockHandle)],
        properties: &Properties,
    ) -> Option<Self> {
        let (_, handle) = metaindex.iter().find(|(name, _)| name == RANGE_FILTER_NAME)?;
        let model = RangeModel::decode(&properties.range_filter_model)?;
        Some(RangeReader { model, partitions: Partitions::new(*handle), memory: None })
    }

    /// Pins the top-level index, as far as `pinning` wants it and the cache has room, and with
    /// [`FilterPinning::All`] the partitions.
    pub(crate) fn pin(&mut self, file: &TableFile, pinning: FilterPinning, io: &mut TableIo) {
        if pinning == FilterPinning::None {
            return;
        }
        // A decoded index has flat arrays besides the block.
        let index_bytes = self.partitions.source.handle.size.saturating_mul(2);
        let bytes = index_bytes.saturating_add(RangeModel::MEMORY_BYTES as u64);
        self.memory = file.cache.try_reserve(bytes);
        if self.memory.is_some() {
            self.partitions.pin(file, io);
        }
        if pinning == FilterPinning::All {
            self.partitions.pin_all(file, |bytes| AlignedBytes::from(bytes));
        }
    }

    /// Bytes of the index of its partitions, as the file has it.
    pub(crate) fn top_level_bytes(&self) -> u64 {
        self.partitions.source.handle.size
    }

    /// Reads every block of the filter past the cache.
    ///
    /// # Errors
    /// What is wrong with the first of them that is damaged.
    pub(crate) fn check(&self, file: &TableFile) -> Result<()> {
        self.partitions.check(file).map_err(Error::of_filter)
    }

    /// May the table hold a key of the range? `blocks` are the data blocks where the range lies,
    /// with their bounds.
    pub(crate) fn may_match(
        &self,
        file: &TableFile,
        blocks: &[(u64, BlockRange<'_>)],
        io: &mut TableIo,
    ) -> FilterVerdict {
        let may_contain = self.partitions.with_index(file, io, |top, io| {
            for (block, range) in blocks {
                if self.block_may_contain(file, top, *block, range, io)? {
                    return Some(true);
                }
            }
            Some(false)
        });
        may_contain.map_or(FilterVerdict::NotConsulted, FilterVerdict::of)
    }

    fn block_may_contain(
        &self,
        file: &TableFile,
        top: &Index,
        block: u64,
        range: &BlockRange<'_>,
        io: &mut TableIo,
    ) -> Option<bool> {
        let block = usize::try_from(block).ok()?;
        let partition = top.entry(block / BLOCKS_PER_PARTITION)?;
        let ask = |bytes: &[u8]| self.model.may_contain(bytes, block, range);
        match self.partitions.pinned(partition) {
            Some(bytes) => ask(bytes),
            None => self.partitions.with_bytes(file, top, partition, io, ask)?,
        }
    }
}
