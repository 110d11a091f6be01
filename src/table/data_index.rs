//! The data index of an open table, in parts: how much of it is in memory, and since when.
//!
//! On disk it is one block, or partitions under a top level (`partitioned_index.rs`). In memory it
//! is *pinned* if the cache granted the memory when the table was opened. Then all of it is one
//! [`Index`], whatever its form on disk, and a lookup takes no lock and no second search. An index
//! that is not pinned is used in *parts*, which come through the cache: the partitions, or the one
//! block as a whole. The top level of partitions stays in memory in any case. It takes about 1 % of
//! the index, off the cache's budget as far as that has room.
//!
//! Whole indexes have a small share of the budget ([`Budget::new`](crate::cache::budget::Budget)).
//! Where they had as much as filters, they displaced these when a cache was small, and lookups of
//! absent keys read whole filters.
//!
//! Opening a table reads no index: many tables of a large database are not asked soon. The first
//! use reads what stays in memory, once for all threads that ask at the same time. An error is that
//! of one use; the next use reads again.

use crate::base::error::{Error, Result};
use crate::base::key::LookupKey;
use crate::base::sync::{Arc, Mutex, OnceLock};
use crate::cache::budget::Purpose;
use crate::cache::cache::Reservation;
use crate::cache::cached::{Cached, Slotted};
use crate::table::features::PARTITIONED_INDEX;
use crate::table::fetch::BlockRef;
use crate::table::file::{TableFile, TableIo};
use crate::table::format::{BLOCK_BYTES_MAX, BlockHandle, BlockKind, run_bytes};
use crate::table::index::{CachedBlock, Index, without_restarts};
use crate::table::partitioned_index::TopLevel;
use crate::table::properties::Properties;
use std::ops::Deref;

/// Memory of an [`Index`] for each data block, besides its entry: head, slot with its marks, and
/// position.
const BYTES_PER_BLOCK: u64 = 40;

/// The data index of one table.
pub(crate) struct DataIndex {
    /// The block that the footer names.
    handle: BlockHandle,
    is_partitioned: bool,
    /// Bytes of all its blocks, as the properties say.
    bytes: u64,
    /// True if the cache granted the memory of the whole index.
    is_pinned: bool,
    /// What stays in memory, once it was read.
    in_memory: OnceLock<InMemory>,
    /// Held while that is read.
    reading: Mutex<()>,
    _memory: Option<Reservation<CachedBlock>>,
}

/// What stays in memory of an index.
enum InMemory {
    Whole(Index),
    TopLevel(TopLevel),
}

/// A part of a data index, for one reader. Small, since a lookup moves it.
pub(crate) enum IndexPart<'t> {
    /// All of an index that is pinned.
    Pinned(&'t Index),
    /// A block of an index that is not, found in its slot.
    Slotted(Slotted<CachedBlock>),
    /// The same, from the cache or the file.
    Shared(Arc<Cached<CachedBlock>>),
}

impl Deref for IndexPart<'_> {
    type Target = Index;

    #[inline]
    fn deref(&self) -> &Index {
        let block = match self {
            IndexPart::Pinned(index) => return index,
            IndexPart::Slotted(slotted) => slotted.cached(),
            IndexPart::Shared(block) => block,
        };
        // Only `DataIndex::part` makes one.
        block.index().unwrap_or_else(|| unreachable!("a part that is no index"))
    }
}

impl IndexPart<'_> {
    /// The block, to be held for long; `None` if the index is pinned.
    pub(crate) fn into_shared(self) -> Option<Arc<Cached<CachedBlock>>> {
        match self {
            IndexPart::Pinned(_) => None,
            IndexPart::Slotted(slotted) => Some(slotted.into_shared()),
            IndexPart::Shared(block) => Some(block),
        }
    }
}

/// A fetched block as a part, if it is the right one.
fn part_of<'t>(
    block: BlockRef<'_>,
    is_right: impl FnOnce(&CachedBlock) -> bool,
) -> Option<IndexPart<'t>> {
    match block {
        BlockRef::Slotted(slotted) => {
            is_right(slotted.cached()).then_some(IndexPart::Slotted(slotted))
        }
        other => {
            let block = other.into_shared();
            is_right(&block).then_some(IndexPart::Shared(block))
        }
    }
}

impl DataIndex {
    /// The index whose block is at `handle`, not read yet. Reserves its memory if the cache grants
    /// that.
    pub(crate) fn new(file: &TableFile, handle: BlockHandle, properties: &Properties) -> Self {
        let is_partitioned = properties.requires(PARTITIONED_INDEX);
        let reserve = |purpose, bytes: u64| {
            file.cache.try_reserve_for(purpose, bytes.saturating_add(size_of::<Index>() as u64))
        };
        // With their arrays, the entries of a block take less than three times its size, unless
        // keys are shorter than six bytes.
        let of_block = || reserve(Purpose::Pinned, handle.size.min(file.bytes).saturating_mul(3));
        let whole = if !is_partitioned {
            of_block()
        } else if properties.index_bytes <= BLOCK_BYTES_MAX as u64 {
            let arrays_bytes = properties.data_blocks.saturating_mul(BYTES_PER_BLOCK);
            reserve(Purpose::WholeIndex, properties.index_bytes.saturating_add(arrays_bytes))
        } else {
            None
        };
        DataIndex {
            handle,
            is_partitioned,
            bytes: properties.index_bytes,
            is_pinned: whole.is_some(),
            in_memory: OnceLock::new(),
            reading: Mutex::new(()),
            _memory: if is_partitioned { whole.or_else(of_block) } else { whole },
        }
    }

    /// Bytes of its top level, as the file has it; 0 without partitions.
    pub(crate) fn top_level_bytes(&self) -> u64 {
        if self.is_partitioned { self.handle.size } else { 0 }
    }

    /// The index, if it is pinned and was read.
    #[inline]
    pub(crate) fn pinned(&self) -> Option<&Index> {
        match self.in_memory.get() {
            Some(InMemory::Whole(index)) => Some(index),
            _ => None,
        }
    }

    /// The part that names the data block of a key, and its number; `None` if the key is above all
    /// blocks.
    ///
    /// # Errors
    /// A block of the index cannot be read, or is damaged; the same for all that follow.
    #[inline]
    pub(crate) fn part_for(
        &self,
        file: &TableFile,
        key: &LookupKey,
        io: &mut TableIo,
    ) -> Result<Option<(usize, IndexPart<'_>)>> {
        if let Some(index) = self.pinned() {
            return Ok(Some((0, IndexPart::Pinned(index))));
        }
        let number = self.part_number(file, key.internal_key(), io)?;
        number.map(|number| Ok((number, self.part(file, number, true, io)?))).transpose()
    }

    /// How many parts it has; at least one.
    pub(crate) fn parts(&self, file: &TableFile, io: &mut TableIo) -> Result<usize> {
        Ok(self.top_level(file, io)?.map_or(1, |top_level| top_level.partitions.len()))
    }

    /// The first part with a separator at or above the internal key `bound`; `None` if there is
    /// none. A part that is the whole index may have none.
    // Not inlined, nor is `part`: a lookup in a pinned index should not carry them.
    #[inline(never)]
    pub(crate) fn part_number(
        &self,
        file: &TableFile,
        bound: &[u8],
        io: &mut TableIo,
    ) -> Result<Option<usize>> {
        let Some(top_level) = self.top_level(file, io)? else { return Ok(Some(0)) };
        let number = top_level.partitions.seek(bound);
        Ok(Some(number).filter(|number| *number < top_level.partitions.len()))
    }

    /// Part `number`. A partition that is read is kept in the cache if `fill` is set.
    #[inline(never)]
    pub(crate) fn part(
        &self,
        file: &TableFile,
        number: usize,
        fill: bool,
        io: &mut TableIo,
    ) -> Result<IndexPart<'_>> {
        let top_level = self.top_level(file, io)?;
        if let Some(index) = self.pinned() {
            return Ok(IndexPart::Pinned(index));
        }
        let Some(top_level) = top_level else {
            // Kept in any case, since each use reads all of it.
            let block = file.fetch(self.handle, BlockKind::Index, true, io)?;
            // The cache has it as another kind: a damaged metaindex named it as a filter.
            return part_of(block, |block| block.index().is_some())
                .ok_or_else(|| self.wrong(file, "the data index is another block"));
        };
        let partitions = &top_level.partitions;
        let Some(entry) = partitions.entry(number) else {
            return Err(self.wrong(file, "a top-level index without that partition"));
        };
        let kind = BlockKind::IndexPartition;
        let block = file.fetch_named(partitions, entry, kind, fill, io)?;
        part_of(block, |block| self.is_part(number, block))
            .ok_or_else(|| self.wrong(file, "a top-level index that does not describe a partition"))
    }

    /// True if a block is partition `number` as the top level describes it: with as many data
    /// blocks, and the same last separator.
    fn is_part(&self, number: usize, block: &CachedBlock) -> bool {
        let last = block.index().and_then(|part| Some((part, part.len().checked_sub(1)?)));
        let (Some((part, last)), Some(partitions)) = (last, self.known_partitions()) else {
            return false;
        };
        let ends_at = self.blocks_before(number) + part.len() as u64;
        ends_at == self.blocks_before(number + 1) && part.key(last) == partitions.key(number)
    }

    /// The number of data blocks before part `number`, as far as the top level is in memory.
    pub(crate) fn blocks_before(&self, number: usize) -> u64 {
        self.known_top_level().map_or(0, |top_level| top_level.blocks_before(number))
    }

    /// The last separator of part `number`, as a user key, if its top level is in memory.
    pub(crate) fn end_of_part(&self, number: usize) -> Option<&[u8]> {
        let partitions = self.known_partitions()?;
        (number < partitions.len()).then(|| partitions.user_key(number))
    }

    /// Reads what stays in memory. The top level, if there are partitions to be fetched.
    pub(crate) fn top_level(
        &self,
        file: &TableFile,
        io: &mut TableIo,
    ) -> Result<Option<&TopLevel>> {
        if self.in_memory.get().is_none() && (self.is_pinned || self.is_partitioned) {
            self.load(file, io)?;
        }
        Ok(self.known_top_level())
    }

    fn known_top_level(&self) -> Option<&TopLevel> {
        match self.in_memory.get() {
            Some(InMemory::TopLevel(top_level)) => Some(top_level),
            _ => None,
        }
    }

    /// The index of the partitions that are fetched one by one, if there are any and it was read.
    #[inline]
    pub(crate) fn known_partitions(&self) -> Option<&Index> {
        self.known_top_level().map(|top_level| &top_level.partitions)
    }

    #[cold]
    fn load(&self, file: &TableFile, io: &mut TableIo) -> Result<()> {
        // Refuses a forked child, which would wait for a thread that it does not have.
        file.handle.check_process()?;
        // Before the lock, whose holder reads.
        file.check_may_read(self.handle, io)?;
        let _reading = self.reading.lock();
        // Another thread may have read it while this one waited.
        if self.in_memory.get().is_none() {
            let read = match self.is_pinned {
                true => InMemory::Whole(self.read(file, io)?.0),
                false => InMemory::TopLevel(self.read_top_level(file, io)?),
            };
            self.in_memory.get_or_init(|| read);
        }
        Ok(())
    }

    /// Reads all of the index past the cache: the whole as one, and its top level, if it has one.
    /// Checks that both agree.
    pub(crate) fn read(
        &self,
        file: &TableFile,
        io: &mut TableIo,
    ) -> Result<(Index, Option<TopLevel>)> {
        if !self.is_partitioned {
            return Ok((file.read_index(self.handle, BlockKind::Index, io)?, None));
        }
        let top_level = self.read_top_level(file, io)?;
        let index = self.read_partitions(file, &top_level, io)?;
        let (partitions, wrong) = (&top_level.partitions, |what| Err(self.wrong(file, what)));
        for number in 0..partitions.len() {
            let end = usize::try_from(top_level.blocks_before(number + 1)).unwrap_or(usize::MAX);
            if end > index.len() || index.key(end - 1) != partitions.key(number) {
                return wrong("a top-level index that does not describe its partitions");
            }
        }
        if index.len() as u64 != top_level.blocks_before(partitions.len()) {
            return wrong("a top-level index with a wrong count of data blocks");
        }
        let stored_bytes: u64 = partitions.handles().map(|handle| handle.stored_bytes()).sum();
        if stored_bytes + self.handle.stored_bytes() != self.bytes {
            return wrong("an index of another size than the properties say");
        }
        Ok((index, Some(top_level)))
    }

    fn read_top_level(&self, file: &TableFile, io: &mut TableIo) -> Result<TopLevel> {
        let contents = file.read_raw(self.handle, BlockKind::Index, io)?;
        TopLevel::new(contents, file.index_key_is_user_key, self.handle.offset)
            .map_err(|what| self.wrong(file, what))
    }

    /// All partitions as one index.
    fn read_partitions(
        &self,
        file: &TableFile,
        top_level: &TopLevel,
        io: &mut TableIo,
    ) -> Result<Index> {
        let handles: Vec<_> = top_level.partitions.handles().collect();
        let Some(bytes) = run_bytes(&handles).filter(|bytes| *bytes <= BLOCK_BYTES_MAX as u64)
        else {
            return Err(self.wrong(file, "index partitions that are too large or not in one run"));
        };
        let contents = file.read_run(&handles, BlockKind::IndexPartition, <[u8]>::to_vec)?;
        io.count(BlockKind::IndexPartition, true, bytes);
        let mut entries = Vec::with_capacity(bytes as usize);
        for contents in contents {
            let own = without_restarts(contents?).map_err(|what| self.wrong(file, what))?;
            entries.extend(own);
        }
        let is_user_key = file.index_key_is_user_key;
        Index::of_entries(entries, is_user_key, self.handle.offset, BlockHandle::decode)
            .map_err(|what| self.wrong(file, what))
    }

    fn wrong(&self, file: &TableFile, what: impl Into<String>) -> Error {
        file.corruption(self.handle.offset, what)
    }
}
