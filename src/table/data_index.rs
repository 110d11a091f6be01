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

use crate::base::error::Result;
use crate::base::key::LookupKey;
use crate::base::sync::{Arc, Mutex, OnceLock};
use crate::cache::budget::Purpose;
use crate::cache::cache::Reservation;
use crate::cache::cached::Cached;
use crate::table::features::PARTITIONED_INDEX;
use crate::table::fetch::BlockRef;
use crate::table::file::{TableFile, TableIo};
use crate::table::format::{
    BLOCK_BYTES_MAX, BLOCK_TRAILER_BYTES, BlockHandle, BlockIdentity, BlockKind, Codec,
};
use crate::table::index::{CachedBlock, Index, joined};
use crate::table::partitioned_index::TopLevel;
use crate::table::properties::Properties;

/// Memory of an [`Index`] for each data block, besides its entry: head, slot and position.
const BYTES_PER_BLOCK: u64 = 36;

/// The data index of one table.
pub(crate) struct DataIndex {
    /// The block that the footer names.
    handle: BlockHandle,
    is_partitioned: bool,
    /// Bytes of all its blocks, as the properties say.
    bytes: u64,
    pinned: OnceLock<Index>,
    /// Filled only if the index is partitioned and not pinned.
    top_level: OnceLock<TopLevel>,
    /// Held while one of them is read.
    reading: Mutex<()>,
    /// True if the cache granted the memory of the whole index.
    is_pinned: bool,
    _memory: Option<Reservation<CachedBlock>>,
}

impl DataIndex {
    /// The index whose block is at `handle`, not read yet. Reserves its memory if the cache grants
    /// that.
    pub(crate) fn new(file: &TableFile, handle: BlockHandle, properties: &Properties) -> Self {
        let is_partitioned = properties.requires(PARTITIONED_INDEX);
        let reserve = |purpose, bytes: u64| {
            file.cache().try_reserve_for(purpose, bytes.saturating_add(size_of::<Index>() as u64))
        };
        // With their arrays, the entries of a block take less than three times its size, unless
        // keys are shorter than four bytes.
        let of_block = || reserve(Purpose::Pinned, handle.size.min(file.bytes()).saturating_mul(3));
        let whole = if !is_partitioned {
            of_block()
        } else if properties.index_bytes <= BLOCK_BYTES_MAX as u64 {
            let arrays_bytes = properties.data_blocks.saturating_mul(BYTES_PER_BLOCK);
            reserve(Purpose::WholeIndex, properties.index_bytes.saturating_add(arrays_bytes))
        } else {
            None
        };
        let is_pinned = whole.is_some();
        DataIndex {
            handle,
            is_partitioned,
            bytes: properties.index_bytes,
            pinned: OnceLock::new(),
            top_level: OnceLock::new(),
            reading: Mutex::new(()),
            is_pinned,
            _memory: if is_partitioned { whole.or_else(of_block) } else { whole },
        }
    }

    /// The index, if it is pinned and was read.
    #[inline]
    pub(crate) fn pinned(&self) -> Option<&Index> {
        self.pinned.get()
    }

    /// The part that names the data block of a key; `None` if the key is above all blocks. `held`
    /// holds a part that is not pinned.
    ///
    /// # Errors
    /// A block of the index cannot be read, or is damaged; the same for all that follow.
    #[inline]
    pub(crate) fn part_for<'t>(
        &'t self,
        file: &TableFile,
        key: &LookupKey,
        held: &'t mut Option<BlockRef<'static>>,
        io: &mut TableIo,
    ) -> Result<Option<&'t Index>> {
        match self.pinned() {
            Some(index) => Ok(Some(index)),
            None => self.fetch_part_for(file, key, held, io),
        }
    }

    #[inline(never)]
    fn fetch_part_for<'t>(
        &'t self,
        file: &TableFile,
        key: &LookupKey,
        held: &'t mut Option<BlockRef<'static>>,
        io: &mut TableIo,
    ) -> Result<Option<&'t Index>> {
        let number = self.part_number(file, key.internal_key(), io)?;
        number.map(|number| self.part(file, number, true, held, io)).transpose()
    }

    /// How many parts it has; at least one.
    pub(crate) fn parts(&self, file: &TableFile, io: &mut TableIo) -> Result<usize> {
        Ok(self.top_level(file, io)?.map_or(1, |top_level| top_level.partitions().len()))
    }

    /// The first part with a separator at or above the internal key `bound`; `None` if there is
    /// none. A part that is the whole index may have none.
    pub(crate) fn part_number(
        &self,
        file: &TableFile,
        bound: &[u8],
        io: &mut TableIo,
    ) -> Result<Option<usize>> {
        let Some(top_level) = self.top_level(file, io)? else { return Ok(Some(0)) };
        let number = top_level.partitions().seek(bound);
        Ok(Some(number).filter(|number| *number < top_level.partitions().len()))
    }

    /// Part `number`. `held` holds it unless it is pinned. A partition that is read is kept in the
    /// cache if `fill` is set.
    pub(crate) fn part<'t>(
        &'t self,
        file: &TableFile,
        number: usize,
        fill: bool,
        held: &'t mut Option<BlockRef<'static>>,
        io: &mut TableIo,
    ) -> Result<&'t Index> {
        let top_level = self.top_level(file, io)?;
        if let Some(index) = self.pinned() {
            return Ok(index);
        }
        let wrong = |handle: BlockHandle, what: &str| file.corruption(handle.offset, what);
        let Some(top_level) = top_level else {
            // Kept in any case, since each use reads all of it.
            let block = file.fetch(self.handle, BlockKind::Index, true, io)?;
            // The cache has it as another kind: a damaged metaindex named it as a filter.
            return held
                .insert(block.for_long())
                .index()
                .ok_or_else(|| wrong(self.handle, "the data index is another block"));
        };
        let Some(entry) = top_level.partitions().entry(number) else {
            return Err(wrong(self.handle, "a top-level index without that partition"));
        };
        let kind = BlockKind::IndexPartition;
        let block = file.fetch_named(top_level.partitions(), entry, kind, fill, io)?;
        let held = held.insert(block.for_long());
        match held.cached().filter(|block| self.is_part(number, block)).and(held.index()) {
            Some(index) => Ok(index),
            None => {
                let handle = top_level.partitions().handle_of(entry);
                Err(wrong(handle, "a partition of the index that its top level does not describe"))
            }
        }
    }

    /// True if a block is partition `number` as the top level describes it: with as many data
    /// blocks, and the same last separator.
    pub(crate) fn is_part(&self, number: usize, block: &CachedBlock) -> bool {
        let (Some(top_level), Some(part)) = (self.top_level.get(), block.index()) else {
            return false;
        };
        let blocks = top_level.blocks_before(number + 1) - top_level.blocks_before(number);
        let last = part.key(part.len().saturating_sub(1));
        part.len() as u64 == blocks && last == top_level.partitions().key(number)
    }

    /// Part `number` of an index that is not pinned, as the cache holds it.
    pub(crate) fn shared_part(
        &self,
        file: &TableFile,
        number: usize,
        fill: bool,
        io: &mut TableIo,
    ) -> Result<Arc<Cached<CachedBlock>>> {
        let mut held = None;
        self.part(file, number, fill, &mut held, io)?;
        let held = held.unwrap_or_else(|| unreachable!("asked of an index that is pinned"));
        Ok(held.into_shared())
    }

    /// The number of data blocks before part `number`, as far as the top level is in memory.
    pub(crate) fn blocks_before(&self, number: usize) -> u64 {
        self.top_level.get().map_or(0, |top_level| top_level.blocks_before(number))
    }

    /// The last separator of part `number`, as a user key, if its top level is in memory.
    pub(crate) fn end_of_part(&self, number: usize) -> Option<&[u8]> {
        let partitions = self.top_level.get()?.partitions();
        (number < partitions.len()).then(|| partitions.user_key(number))
    }

    /// The top level, after reading what stays in memory; `None` if there are no partitions to be
    /// fetched.
    pub(crate) fn top_level(
        &self,
        file: &TableFile,
        io: &mut TableIo,
    ) -> Result<Option<&TopLevel>> {
        if self.top_level.get().is_none() && self.stays() && self.pinned().is_none() {
            self.load(file, io)?;
        }
        Ok(self.top_level.get())
    }

    /// The index of the partitions that are fetched one by one, if there are any and it was read.
    #[inline]
    pub(crate) fn known_partitions(&self) -> Option<&Index> {
        self.top_level.get().map(TopLevel::partitions)
    }

    /// True if something of it stays in memory.
    fn stays(&self) -> bool {
        self.is_pinned || self.is_partitioned
    }

    #[cold]
    fn load(&self, file: &TableFile, io: &mut TableIo) -> Result<()> {
        // Refuses a forked child, which would wait for a thread that it does not have.
        file.check_process()?;
        // Before the lock, whose holder reads.
        file.check_may_read(self.handle, io)?;
        let _reading = self.reading.lock();
        // Another thread may have read it while this one waited.
        if self.pinned().is_none() && self.is_pinned {
            let (index, _) = self.read(file, io)?;
            self.pinned.get_or_init(|| index);
        } else if self.top_level.get().is_none() && !self.is_pinned {
            let top_level = self.read_top_level(file, io)?;
            self.top_level.get_or_init(|| top_level);
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
        let stored = self.read_partitions(file, &top_level, io)?;
        let wrong = |what: &str| file.corruption(self.handle.offset, what);
        let whole = joined(stored.iter().map(Vec::as_slice));
        let whole = whole.ok_or_else(|| wrong("an index partition without restart points"))?;
        let index = file.decode_index(whole, self.handle)?;
        for number in 0..top_level.partitions().len() {
            let last = top_level.blocks_before(number + 1) as usize - 1;
            if last >= index.len() || index.key(last) != top_level.partitions().key(number) {
                return Err(wrong("a top-level index that does not describe its partitions"));
            }
        }
        let stored = top_level.partitions().handles().map(|handle| handle.stored_bytes());
        if stored.sum::<u64>() + self.handle.stored_bytes() != self.bytes {
            return Err(wrong("an index of another size than the properties say"));
        }
        let counted = top_level.blocks_before(top_level.partitions().len());
        match index.len() as u64 == counted {
            true => Ok((index, Some(top_level))),
            false => Err(wrong("a top-level index with a wrong count of data blocks")),
        }
    }

    fn read_top_level(&self, file: &TableFile, io: &mut TableIo) -> Result<TopLevel> {
        let contents = file.read_raw(self.handle, BlockKind::Index, io)?;
        TopLevel::new(contents, file.index_key_is_user_key(), self.handle.offset)
            .map_err(|what| file.corruption(self.handle.offset, what))
    }

    /// The contents of all partitions, by one read: a writer leaves them in one run.
    fn read_partitions(
        &self,
        file: &TableFile,
        top_level: &TopLevel,
        io: &mut TableIo,
    ) -> Result<Vec<Vec<u8>>> {
        let wrong = |what: &str| file.corruption(self.handle.offset, what);
        let handles: Vec<_> = top_level.partitions().handles().collect();
        let mut pairs = handles.iter().zip(handles.iter().skip(1));
        let is_run = pairs.all(|(one, next)| one.end() == next.start());
        let (first, last) = (handles.first(), handles.last());
        let (Some(first), Some(end)) = (first, last.and_then(BlockHandle::end)) else {
            return Err(wrong("a top-level index of no partitions"));
        };
        let bytes = end.saturating_sub(first.offset);
        if !is_run || bytes > BLOCK_BYTES_MAX as u64 {
            return Err(wrong("index partitions that are not in one run, or too large"));
        }
        let mut stored = vec![0; bytes as usize];
        file.read_bytes(first.offset, &mut stored)?;
        io.count(BlockKind::IndexPartition, true, bytes);
        let contents = |handle: &BlockHandle| {
            let start = (handle.offset - first.offset) as usize;
            let end = start + handle.size as usize + BLOCK_TRAILER_BYTES;
            let (table_id, offset) = (file.table_id(), handle.offset);
            let identity = BlockIdentity { table_id, offset, kind: BlockKind::IndexPartition };
            match identity.check(stored.get(start..end).unwrap_or_default()) {
                Ok((contents, Codec::None)) => Ok(contents.to_vec()),
                Ok(_) => Err(wrong("a compressed partition of an index, which no writer makes")),
                Err(what) => Err(file.corruption(handle.offset, what)),
            }
        };
        handles.iter().map(contents).collect()
    }
}
