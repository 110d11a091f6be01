//! Many lookups in one table: the steps of `Table::get`, each taken for all keys before the next.
//!
//! `tree/multi_get.rs` calls them for the keys between the fences of a table, ascending:
//! [`Table::ask_batch`] sets the verdict of each key, [`Table::locate_batch`] finds the blocks, or
//! the rows in place of them, [`Table::search_batch`] sets the other answers. Neighbours share one
//! fetch of filter, partition, index or data block. One filter partition and one data block are
//! held at a time, and until the search ends the parts of data indexes that name the blocks.
//!
//! Between these steps it may call the functions that look ahead, for all tables of a level, so
//! that the cache misses and the reads of all keys overlap. A step that prefetches changes no
//! answer and counts nothing.

use crate::base::error::Result;
use crate::base::key::Lookup;
use crate::base::sync::Arc;
use crate::cache::cached::Cached;
use crate::table::batch_key::{BatchKey, set_all};
use crate::table::block::directory::HashedBlock;
use crate::table::file::TableIo;
use crate::table::format::{BlockHandle, BlockKind};
use crate::table::index::{CachedBlock, Index};
use crate::table::reader::Table;
use siftdb_filter::encoding::FilterVerdict;

impl Table {
    /// Asks the filter for all keys, and sets their verdicts. `OpenFilter::look_ahead` was called
    /// for the same keys.
    pub(crate) fn ask_batch(
        &self,
        keys: &mut [&mut BatchKey<'_>],
        use_filters: bool,
        io: &mut TableIo,
    ) {
        match use_filters {
            true => self.filter.ask_table(&self.file, keys, io),
            false => set_all(keys, FilterVerdict::NotConsulted),
        }
    }

    /// Sets the part of the data index to be read next for each key. False if the index has no
    /// parts that are fetched by themselves, or if they are not known yet.
    pub(crate) fn locate_parts(&self, keys: &mut [&mut BatchKey<'_>]) -> bool {
        let partitions = self.index.known_partitions();
        for key in keys.iter_mut() {
            // Without partitions, no position of an earlier step stays: another thread may read the
            // top level before the parts are read ahead.
            let index = partitions.filter(|_| key.may_be_here());
            (key.part, key.block) = (None, index.and_then(|index| index.find(&key.lookup)));
        }
        partitions.is_some()
    }

    /// Finds the blocks of the keys that the filter did not exclude, and prefetches what leads to
    /// them. A block-based filter is asked here, and a key that has a row gets its answer.
    ///
    /// # Errors
    /// The index cannot be read.
    pub(crate) fn locate_batch(
        &self,
        keys: &mut [&mut BatchKey<'_>],
        use_filters: bool,
        io: &mut TableIo,
    ) -> Result<()> {
        if !keys.iter().any(|key| key.may_be_here()) {
            return Ok(());
        }
        self.find_blocks(keys, io)?;
        if use_filters && keys.iter().any(|key| is_undecided(key)) {
            self.ask_blocks(keys, io);
        }
        for key in keys.iter_mut().filter(|key| key.may_be_here()) {
            let named = self.index_naming(key, BlockKind::Data).zip(key.block);
            let Some((index, entry)) = named else { continue };
            if index.slot(entry).prefetch() {
                continue;
            }
            let handle = index.handle_of(entry);
            if let Some(answer) = self.row_answer(handle, &key.lookup, &key.hash, io) {
                (key.answer, key.block) = (answer, None);
            }
        }
        Ok(())
    }

    /// Prefetches the places in the blocks' directories where the searches begin.
    pub(crate) fn look_into_directories(&self, keys: &[&mut BatchKey<'_>]) {
        self.with_cached_blocks(keys, |block, xxph3| block.prefetch_directory(xxph3));
    }

    /// Prefetches the entries that the directories name.
    pub(crate) fn look_at_entries(&self, keys: &[&mut BatchKey<'_>]) {
        self.with_cached_blocks(keys, |block, xxph3| block.prefetch_entry(xxph3));
    }

    fn with_cached_blocks(&self, keys: &[&mut BatchKey<'_>], look: impl Fn(&HashedBlock, u64)) {
        for key in keys.iter().filter(|key| key.may_be_here()) {
            let index = self.index_naming(key, BlockKind::Data);
            let slotted = index.and_then(|index| index.slot(key.block?).get());
            if let Some(block) = slotted.as_ref().and_then(|slotted| slotted.cached().data()) {
                look(block, key.hash.xxph3());
            }
        }
    }

    /// The index in memory that names the next block of a key: a data block, or a part of the data
    /// index itself.
    fn index_naming<'i>(&'i self, key: &'i BatchKey<'_>, kind: BlockKind) -> Option<&'i Index> {
        match (kind, &key.part) {
            (BlockKind::IndexPartition, _) => self.index.known_partitions(),
            (_, None) => self.index.pinned(),
            (_, Some(part)) => part.index(),
        }
    }

    /// The next block of a key, which is of this kind, if it is not in memory.
    pub(crate) fn missing_block(&self, key: &BatchKey<'_>, kind: BlockKind) -> Option<BlockHandle> {
        let index = self.index_naming(key, kind).filter(|_| key.may_be_here())?;
        let entry = key.block.filter(|entry| !index.slot(*entry).is_filled())?;
        Some(index.handle_of(entry))
    }

    /// Says that a block will be read soon.
    pub(crate) fn read_ahead(&self, block: BlockHandle) {
        if let Some(end) = block.end() {
            self.file.read_ahead(block.offset..end);
        }
    }

    /// Searches the blocks, and sets the answers of all keys.
    ///
    /// # Errors
    /// The first failure; keys without an answer then stay open.
    pub(crate) fn search_batch(
        &self,
        keys: &mut [&mut BatchKey<'_>],
        fill_cache: bool,
        io: &mut TableIo,
    ) -> Result<()> {
        if keys.iter().any(|key| key.may_be_here()) {
            self.search_blocks(keys, fill_cache, io)?;
            // A batch may be long: its keys must not hold a part each.
            keys.iter_mut().for_each(|key| key.part = None);
        }
        if self.range_deletes().is_some() {
            for key in keys.iter_mut().filter(|key| key.is_open()) {
                if self.covering(&key.lookup) > 0 {
                    key.answer = Lookup::Deleted;
                }
            }
        }
        Ok(())
    }

    fn find_blocks(&self, keys: &mut [&mut BatchKey<'_>], io: &mut TableIo) -> Result<()> {
        let (index, file) = (&self.index, &self.file);
        // Reads what stays in memory.
        index.top_level(file, io)?;
        let mut last: Option<(usize, Arc<Cached<CachedBlock>>)> = None;
        for key in keys.iter_mut().filter(|key| key.may_be_here()) {
            io.index_seeks += 1;
            (key.part, key.block) = (None, None);
            if let Some(index) = index.pinned() {
                key.block = index.find(&key.lookup);
                continue;
            }
            let number = index.part_number(file, key.lookup.internal_key(), io)?;
            let Some(number) = number else { continue };
            key.part = match last.take().filter(|(own, _)| *own == number) {
                Some((_, part)) => Some(part),
                None => index.part(file, number, true, io)?.into_shared(),
            };
            let part = key.part.as_ref();
            key.block = part.and_then(|part| part.index()?.find(&key.lookup));
            last = part.map(|part| (number, Arc::clone(part)));
        }
        Ok(())
    }

    fn ask_blocks(&self, keys: &mut [&mut BatchKey<'_>], io: &mut TableIo) {
        let same_part = |a: &&mut BatchKey<'_>, b: &&mut BatchKey<'_>| match (&a.part, &b.part) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        for run in keys.chunk_by_mut(same_part) {
            let part = run.first().and_then(|key| key.part.clone());
            let index = part.as_ref().map_or(self.index.pinned(), |part| part.index());
            if let Some(index) = index {
                self.filter.ask_blocks(&self.file, index, run, io);
            }
        }
    }

    /// Looks into the blocks: one fetch for all keys of a block, which are neighbours.
    fn search_blocks(
        &self,
        keys: &mut [&mut BatchKey<'_>],
        fill_cache: bool,
        io: &mut TableIo,
    ) -> Result<()> {
        let mut held = None;
        for key in keys.iter_mut().filter(|key| key.may_be_here()) {
            let Some(id) = key.block_id() else { continue };
            let Some((index, entry)) = self.index_naming(key, BlockKind::Data).zip(key.block)
            else {
                continue;
            };
            // Dropped first: the next block may be read to the same buffer.
            held = held.filter(|(own, _)| *own == id);
            let block = match held.take() {
                Some((_, block)) => block,
                None => self.file.fetch_named(index, entry, BlockKind::Data, fill_cache, io)?,
            };
            let found = block.search(&key.lookup, &key.hash, self.covering(&key.lookup));
            let found = found.ok_or_else(|| self.not_data(index.handle_of(entry)))?;
            key.answer = found;
            held = Some((id, block));
        }
        Ok(())
    }
}

/// True for a key that the filter must be asked about after the index.
fn is_undecided(key: &BatchKey<'_>) -> bool {
    key.verdict == FilterVerdict::NotConsulted && key.block.is_some()
}
