//! Many lookups in one table: the steps of `Table::get`, each taken for all keys before the next.
//!
//! Called by `tree/multi_get.rs` with a run of keys, ascending, that lie between the table's
//! fences. Which keys the filter lets pass, which block each of them needs, what the filter says of
//! that block, what the block holds: at each step, what neighbours share (filter, partition, index,
//! data block) is fetched once. Nothing is held beyond the step that uses it, and of partitions and
//! data blocks one at a time, so a batch pins no more of the cache than a single lookup does.
//!
//! Answers and verdicts are those that [`Table::get`] gives for each key by itself.

use crate::base::error::Result;
use crate::filter::encoding::FilterVerdict;
use crate::table::batch_key::{BatchKey, set_all};
use crate::table::block_ref::BlockRef;
use crate::table::fetch::TableIo;
use crate::table::index::{Index, IndexEntry};
use crate::table::reader::{Table, TableReadOptions};

impl Table {
    /// Sets verdict and answer of every key. With `filter_said_maybe` the verdicts are there
    /// already, and the keys that the filter excluded are passed over.
    ///
    /// # Errors
    /// The first failure; what is not answered by then stays open.
    pub fn multi_get(
        &self,
        keys: &mut [&mut BatchKey<'_>],
        options: TableReadOptions,
        io: &mut TableIo,
    ) -> Result<()> {
        match options {
            TableReadOptions { use_filters: false, .. } => {
                set_all(keys, FilterVerdict::NotConsulted);
            }
            TableReadOptions { filter_said_maybe: true, .. } => {}
            _ => self.filter().ask_table(self.file(), keys, io),
        }
        if !keys.iter().any(|key| key.may_be_here()) {
            return Ok(());
        }
        let mut held = None;
        let index = self.index(&mut held, io)?;
        for key in keys.iter_mut().filter(|key| key.may_be_here()) {
            io.index_seeks += 1;
            key.block = index.find(&key.lookup);
        }
        if options.use_filters && keys.iter().any(|key| is_undecided(key)) {
            self.filter().ask_blocks(self.file(), keys, io);
        }
        self.search_blocks(index, keys, options.fill_cache, io)
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
            let block = match held.take() {
                Some((_, block)) => block,
                None => self.fetch_data(index, entry, fill_cache, io)?,
            };
            let found = block.search(&key.lookup, &key.hash);
            key.answer = found.ok_or_else(|| self.not_data(entry.handle))?;
            held = Some((entry, block));
        }
        Ok(())
    }
}

/// A key that the layout's second question is for.
fn is_undecided(key: &BatchKey<'_>) -> bool {
    key.verdict == FilterVerdict::NotConsulted && key.block.is_some()
}
