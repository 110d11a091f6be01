//! Many lookups in one table: the steps of `Table::get`, each taken for all keys before the next.
//!
//! `tree/multi_get.rs` calls them for the keys between the fences of a table, ascending:
//! [`Table::ask_batch`] sets the verdict of each key, [`Table::locate_batch`] finds the blocks,
//! [`Table::search_batch`] sets the answers. Neighbours share one fetch of filter, partition, index
//! or data block. One partition and one data block are held at a time, besides blocks that were
//! read ahead.
//!
//! Between these steps it may call the functions that look ahead, for all tables of a level, so
//! that the cache misses and the reads of all keys overlap. A step that prefetches changes no
//! answer and counts nothing. Tables whose index does not stay in memory are not looked ahead in:
//! the last step finds their blocks.

use crate::base::error::Result;
use crate::base::key::Lookup;
use crate::table::batch_key::{BatchKey, ReadAhead, set_all};
use crate::table::block::directory::HashedBlock;
use crate::table::fetch::BlockRef;
use crate::table::file::TableIo;
use crate::table::index::{Index, IndexEntry};
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
            true => self.filter().ask_table(self.file(), keys, io),
            false => set_all(keys, FilterVerdict::NotConsulted),
        }
    }

    /// Finds the blocks of the keys that the filter did not exclude, and prefetches what leads to
    /// them, if the index stays in memory. A block-based filter is asked here.
    ///
    /// # Errors
    /// The index cannot be read.
    pub(crate) fn locate_batch(
        &self,
        keys: &mut [&mut BatchKey<'_>],
        use_filters: bool,
        io: &mut TableIo,
    ) -> Result<()> {
        if !self.pins_index() || !keys.iter().any(|key| key.may_be_here()) {
            return Ok(());
        }
        let mut held = None;
        let index = self.index(&mut held, io)?;
        self.find_blocks(index, keys, use_filters, io);
        for key in keys.iter().filter(|key| key.may_be_here()) {
            if let Some(entry) = key.block {
                index.slot(entry).prefetch();
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
        let Some(index) = self.pinned_index() else { return };
        for key in keys.iter().filter(|key| key.may_be_here()) {
            let slotted = key.block.and_then(|entry| index.slot(entry).get());
            if let Some(block) = slotted.as_ref().and_then(|slotted| slotted.cached().data()) {
                look(block, key.hash.xxph3());
            }
        }
    }

    /// The stored size of the block of a key, if it is not in memory.
    pub(crate) fn missing_bytes(&self, key: &BatchKey<'_>) -> Option<u64> {
        let index = self.pinned_index().filter(|_| key.may_be_here())?;
        let entry = key.block.filter(|entry| index.slot(*entry).get().is_none())?;
        Some(index.handle_of(entry).size)
    }

    /// Fetches the block of a key for the search that follows. If that fails, the search fetches it
    /// again and has the error.
    pub(crate) fn read_ahead(&self, key: &mut BatchKey<'_>, fill_cache: bool) {
        let (Some(index), Some(entry)) = (self.pinned_index(), key.block) else { return };
        let mut io = TableIo::default();
        if let Ok(block) = self.fetch_data(index, entry, fill_cache, &mut io) {
            key.ahead = Some(Box::new(ReadAhead { block: block.into_shared(), io }));
        }
    }

    /// Searches the blocks, and sets the answers of all keys.
    ///
    /// # Errors
    /// The first failure; keys without an answer then stay open.
    pub(crate) fn search_batch(
        &self,
        keys: &mut [&mut BatchKey<'_>],
        use_filters: bool,
        fill_cache: bool,
        io: &mut TableIo,
    ) -> Result<()> {
        if keys.iter().any(|key| key.may_be_here()) {
            let mut held = None;
            let index = self.index(&mut held, io)?;
            if !self.pins_index() {
                self.find_blocks(index, keys, use_filters, io);
            }
            self.search_blocks(index, keys, fill_cache, io)?;
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

    fn find_blocks(
        &self,
        index: &Index,
        keys: &mut [&mut BatchKey<'_>],
        use_filters: bool,
        io: &mut TableIo,
    ) {
        for key in keys.iter_mut().filter(|key| key.may_be_here()) {
            io.index_seeks += 1;
            key.block = index.find(&key.lookup);
        }
        if use_filters && keys.iter().any(|key| is_undecided(key)) {
            self.filter().ask_blocks(self.file(), index, keys, io);
        }
    }

    /// Looks into the blocks: one fetch for all keys of a block, which are neighbours.
    fn search_blocks(
        &self,
        index: &Index,
        keys: &mut [&mut BatchKey<'_>],
        fill_cache: bool,
        io: &mut TableIo,
    ) -> Result<()> {
        let mut held: Option<(IndexEntry, BlockRef)> = None;
        for key in keys.iter_mut().filter(|key| key.may_be_here()) {
            let Some(entry) = key.block else { continue };
            // Dropped first: the next block may be read to the same buffer.
            held = held.filter(|(own, _)| *own == entry);
            // Counted in any case. It is read for the second time if it left the cache in between.
            let ahead = key.ahead.take().map(|ahead| {
                io.absorb(&ahead.io);
                BlockRef::Shared(ahead.block)
            });
            let block = match held.take().map(|(_, block)| block).or(ahead) {
                Some(block) => block,
                None => self.fetch_data(index, entry, fill_cache, io)?,
            };
            let found = block.search(&key.lookup, &key.hash, self.covering(&key.lookup));
            key.answer = found.ok_or_else(|| self.not_data(index.handle_of(entry)))?;
            held = Some((entry, block));
        }
        Ok(())
    }
}

/// True for a key that the filter must be asked about after the index.
fn is_undecided(key: &BatchKey<'_>) -> bool {
    key.verdict == FilterVerdict::NotConsulted && key.block.is_some()
}
