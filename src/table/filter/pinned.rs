//! The partitions of a table's filter that stay in memory, and what may stay at all.
//!
//! `partitioned` loads them when a table is opened with [`FilterPinning::All`], behind everything
//! else of the table: one read from the first partition to the end of the last, then each is
//! checked by itself. A damaged one is absent here, and a lookup reads it, fails and says
//! "not consulted" as it would without pinning; after a failed read all are absent. Lookups touch
//! no lock and no cache. The memory is a reservation in the cache's budget, given back with the
//! table; where the cache refuses it, partitions come and go through the cache.

use crate::base::sync::Arc;
use crate::cache::cache::Reservation;
use crate::filter::registry::{FilterReader, PreparedFilter};
use crate::table::cached_block::CachedBlock;
use crate::table::fetch::TableFile;
use crate::table::format::{
    BLOCK_TRAILER_BYTES, BlockHandle, BlockIdentity, BlockKind, Compression,
};
use crate::table::index::Index;

/// How much of a table's filter stays in memory as long as the table is open, as far as the
/// cache's share for that allows (`Options::filter_resident_share`). The rest comes and goes
/// through the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FilterPinning {
    /// Nothing: for levels that are asked seldom, so that others have the room.
    None,
    /// The filter of a whole table (full, block-based), and of a partitioned one the top-level
    /// index: a lookup reads one partition at most.
    #[default]
    TopLevel,
    /// Partitions too: no lookup reads a filter, touches the cache or takes a lock for one. Costs
    /// the memory of the whole filter, and one read of it when a table is opened.
    All,
}

/// Partitions by the offsets at which they stand.
#[derive(Default)]
pub struct PinnedPartitions {
    offsets: Vec<u64>,
    filters: Vec<PreparedFilter>,
    _memory: Option<Reservation<CachedBlock>>,
}

impl PinnedPartitions {
    /// The partitions that `index` names, or none of them.
    #[must_use]
    pub fn load(index: &Index, reader: &FilterReader, file: &TableFile) -> Self {
        let handles: Vec<_> = (0..index.len()).filter_map(|i| index.handle(i)).collect();
        Self::try_load(&handles, reader, file).unwrap_or_default()
    }

    /// The partition at `handle`, if it is here.
    #[inline]
    #[must_use]
    pub fn get(&self, handle: BlockHandle) -> Option<&PreparedFilter> {
        let place = self.offsets.partition_point(|&offset| offset < handle.offset);
        let found = self.offsets.get(place) == Some(&handle.offset);
        if found { self.filters.get(place) } else { None }
    }

    fn try_load(handles: &[BlockHandle], reader: &FilterReader, file: &TableFile) -> Option<Self> {
        let (first, last) = (handles.first()?, handles.last()?);
        // An index may name what it likes: only what a writer leaves is worth one read.
        let in_a_row = |pair: &[BlockHandle]| match pair {
            [one, next] => one.end() == next.start(),
            _ => false,
        };
        let bytes = last.end()?.checked_sub(first.offset)?;
        if !handles.windows(2).all(in_a_row) || last.end()? > file.blocks_end() {
            return None;
        }
        let beside = size_of::<u64>() + size_of::<PreparedFilter>() + BESIDE_EACH_BYTES;
        let beside = (handles.len() as u64).saturating_mul(beside as u64);
        let memory = file.cache().try_reserve(bytes.saturating_add(beside))?;
        let mut stored = vec![0; usize::try_from(bytes).ok()?];
        file.read_bytes(first.offset, &mut stored).ok()?;
        let mut pinned = PinnedPartitions { _memory: Some(memory), ..Self::default() };
        for handle in handles {
            let start = (handle.offset - first.offset) as usize;
            let end = start + handle.size as usize + BLOCK_TRAILER_BYTES;
            let stored = stored.get(start..end)?;
            let (table_id, offset) = (file.table_id(), handle.offset);
            let place = BlockIdentity { table_id, offset, kind: BlockKind::Filter };
            if let Ok((filter, Compression::None)) = place.check(stored)
                && !filter.is_empty()
            {
                pinned.offsets.push(handle.offset);
                pinned.filters.push(PreparedFilter::new(reader.clone(), Arc::from(filter)));
            }
        }
        Some(pinned)
    }
}

/// Counts of references, and the allocator's share.
const BESIDE_EACH_BYTES: usize = 32;

impl std::fmt::Debug for PinnedPartitions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} partitions", self.filters.len())
    }
}
