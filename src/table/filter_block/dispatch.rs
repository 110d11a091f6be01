//! The filter of a table, whatever its layout: what `table/builder.rs` and `table/reader.rs` use.
//!
//! Writing: `(start_block add_key*)* start_block finish`; `start_block` gets the offset at which
//! the next data block will stand, also behind the last one. Reading: a reader is opened from the
//! table's metaindex. A name whose policy nobody knows, and a table without a filter, answer
//! `NotConsulted`. Each layout answers one of the two questions and leaves the other alone.

use crate::error::Result;
use crate::filter::hash::KeyHash;
use crate::filter::policy::FilterPolicy;
use crate::filter::registry::{FilterReader, PreparedFilter};
use crate::key::LookupKey;
use crate::sync::Arc;
use crate::table::fetch::{TableFile, TableIo};
use crate::table::filter_block::block_based::{BlockBasedBuilder, BlockBasedReader};
use crate::table::filter_block::full::{FullBuilder, FullReader};
use crate::table::filter_block::layout::{
    BLOCK_BASED_PREFIX, BlockSink, FULL_PREFIX, FilterBlockSummary, FilterLayout, FilterVerdict,
    PARTITIONED_PREFIX, TableFilter,
};
use crate::table::filter_block::partitioned::{PartitionedBuilder, PartitionedReader};
use crate::table::format::BlockHandle;

/// Collects the keys of one table and writes its filter.
#[derive(Debug)]
pub enum FilterBlockBuilder {
    /// LevelDB's layout.
    BlockBased(BlockBasedBuilder),
    /// One filter.
    Full(FullBuilder),
    /// Partitions.
    Partitioned(PartitionedBuilder),
}

impl FilterBlockBuilder {
    /// A builder for one table.
    pub fn new(filter: &TableFilter) -> Self {
        let encoding = &filter.encoding;
        match filter.layout {
            FilterLayout::BlockBased { window_bytes } => {
                Self::BlockBased(BlockBasedBuilder::new(encoding, window_bytes))
            }
            FilterLayout::Full => Self::Full(FullBuilder::new(encoding)),
            FilterLayout::Partitioned { block_bytes } => {
                Self::Partitioned(PartitionedBuilder::new(encoding, block_bytes))
            }
        }
    }

    /// The next keys belong to a data block that will stand at `file_offset`.
    pub fn start_block(&mut self, file_offset: u64) {
        if let Self::BlockBased(builder) = self {
            builder.start_block(file_offset);
        }
    }

    /// Adds a user key; keys come sorted and may repeat.
    #[inline]
    pub fn add_key(&mut self, user_key: &[u8]) {
        match self {
            Self::BlockBased(builder) => builder.add_key(user_key),
            Self::Full(builder) => builder.add_key(user_key),
            Self::Partitioned(builder) => builder.add_key(user_key),
        }
    }

    /// Memory held.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Self::BlockBased(builder) => builder.memory_bytes(),
            Self::Full(builder) => builder.memory_bytes(),
            Self::Partitioned(builder) => builder.memory_bytes(),
        }
    }

    /// Writes the filter; `None` if no key came, and then there is no metaindex entry. An error is
    /// the sink's, or says that a user's policy broke its contract.
    pub fn finish(
        &mut self,
        index_key_is_user_key: bool,
        sink: &mut dyn BlockSink,
    ) -> Result<Option<FilterBlockSummary>> {
        match self {
            Self::BlockBased(builder) => builder.finish(sink),
            Self::Full(builder) => builder.finish(sink),
            Self::Partitioned(builder) => builder.finish(index_key_is_user_key, sink),
        }
    }
}

/// Asks the filter of one table.
#[derive(Debug)]
pub struct FilterBlockReader {
    /// The persisted policy name, also of a policy that nobody knows.
    name: Option<String>,
    layout: Layout,
}

#[derive(Debug)]
enum Layout {
    None,
    BlockBased(BlockBasedReader),
    Full(FullReader),
    Partitioned(PartitionedReader),
}

impl FilterBlockReader {
    /// The filter that the metaindex names. No I/O yet: blocks come through the cache until
    /// [`make_resident`](Self::make_resident). Where a table has several filters the first known
    /// one serves.
    pub fn open(metaindex: &[(String, BlockHandle)], custom: &[Arc<dyn FilterPolicy>]) -> Self {
        let mut unknown = None;
        for (entry, handle) in metaindex {
            let Some((make, policy)) = split_name(entry) else { continue };
            if let Some(reader) = FilterReader::for_name(policy, custom) {
                return FilterBlockReader {
                    name: Some(policy.to_string()),
                    layout: make(reader, *handle),
                };
            }
            unknown.get_or_insert_with(|| policy.to_string());
        }
        FilterBlockReader { name: unknown, layout: Layout::None }
    }

    /// About how many bytes [`make_resident`](Self::make_resident) would hold.
    pub fn residency_bytes(&self) -> u64 {
        match &self.layout {
            Layout::None => 0,
            Layout::BlockBased(reader) => reader.handle().size,
            Layout::Full(reader) => reader.handle().size,
            // The decoded form has flat arrays beside the block.
            Layout::Partitioned(reader) => reader.handle().size.saturating_mul(2),
        }
    }

    /// Loads the filter, or the top-level index of partitions, to stay. Damage is counted, and
    /// what could not be loaded is not consulted.
    pub fn make_resident(&mut self, file: &TableFile, io: &mut TableIo) {
        match &mut self.layout {
            Layout::None => {}
            Layout::BlockBased(reader) => reader.make_resident(file, io),
            Layout::Full(reader) => reader.make_resident(file, io),
            Layout::Partitioned(reader) => reader.make_resident(file, io),
        }
    }

    /// Memory held by what is resident.
    pub fn resident_bytes(&self) -> u64 {
        match &self.layout {
            Layout::None => 0,
            Layout::BlockBased(reader) => reader.resident_bytes(),
            Layout::Full(reader) => reader.resident().map_or(0, |filter| filter.bytes() as u64),
            Layout::Partitioned(reader) => reader.resident_bytes(),
        }
    }

    /// May the table hold the key? To be asked before the data index.
    #[inline]
    pub fn table_may_contain(
        &self,
        file: &TableFile,
        key: &LookupKey,
        hash: &KeyHash<'_>,
        io: &mut TableIo,
    ) -> FilterVerdict {
        match &self.layout {
            Layout::None | Layout::BlockBased(_) => FilterVerdict::NotConsulted,
            Layout::Full(reader) => reader.table_may_contain(file, hash, io),
            Layout::Partitioned(reader) => reader.table_may_contain(file, key, hash, io),
        }
    }

    /// May the data block at `block_offset` hold the key? To be asked with the offset that the
    /// data index names for the key.
    #[inline]
    pub fn block_may_contain(
        &self,
        file: &TableFile,
        block_offset: u64,
        hash: &KeyHash<'_>,
        io: &mut TableIo,
    ) -> FilterVerdict {
        match &self.layout {
            Layout::BlockBased(reader) => reader.block_may_contain(file, block_offset, hash, io),
            Layout::None | Layout::Full(_) | Layout::Partitioned(_) => FilterVerdict::NotConsulted,
        }
    }

    /// The whole table's filter where it stays in memory, for the version's probe array.
    pub fn resident_full(&self) -> Option<&Arc<PreparedFilter>> {
        match &self.layout {
            Layout::Full(reader) => reader.resident(),
            _ => None,
        }
    }

    /// The persisted policy name, also of a policy that nobody here knows.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The layout, for people; `none` where no filter is asked.
    pub fn layout_name(&self) -> &'static str {
        match &self.layout {
            Layout::None => "none",
            Layout::BlockBased(_) => "block-based",
            Layout::Full(_) => "full",
            Layout::Partitioned(_) => "partitioned",
        }
    }
}

type MakeLayout = fn(FilterReader, BlockHandle) -> Layout;

/// Layout and policy of a metaindex name, if it is a filter's.
fn split_name(entry: &str) -> Option<(MakeLayout, &str)> {
    let layouts: [(&str, MakeLayout); 3] = [
        (FULL_PREFIX, |reader, handle| Layout::Full(FullReader::new(reader, handle))),
        (PARTITIONED_PREFIX, |reader, handle| {
            Layout::Partitioned(PartitionedReader::new(reader, handle))
        }),
        (BLOCK_BASED_PREFIX, |reader, handle| {
            Layout::BlockBased(BlockBasedReader::new(reader, handle))
        }),
    ];
    layouts.into_iter().find_map(|(prefix, make)| Some((make, entry.strip_prefix(prefix)?)))
}
