//! The data index of an open table: kept from its first use on, or fetched at each use.
//!
//! `reader` makes one when a table is opened, which reads nothing: an index is large, to read and
//! decode it would be most of what opening costs, and many tables of a large database are not asked
//! soon. Where the index will live is decided then, since its memory is reserved then: with the
//! table ("resident"), or in the cache like any block.
//!
//! Invariants: a resident index is read once, however many ask for it at once, and a use that finds
//! it there takes no lock. Whoever asks gets an index or an error; an error is that of this use
//! alone, and the next use reads again.

use crate::base::error::Result;
use crate::base::sync::{Arc, Mutex, OnceLock};
use crate::cache::cache::Reservation;
use crate::cache::cached::Cached;
use crate::table::cached_block::{BlockDirectory, CachedBlock};
use crate::table::fetch::{TableFile, TableIo};
use crate::table::format::{BlockHandle, BlockKind};
use crate::table::index::Index;

/// A data index, where it stands in the file and, from its first use on, in memory.
pub struct OpenIndex {
    handle: BlockHandle,
    /// Filled by the first use, if `memory` was granted.
    resident: OnceLock<BlockDirectory>,
    /// Held while the resident index is read.
    reading: Mutex<()>,
    memory: Option<Reservation<CachedBlock>>,
}

/// Holds an index that its table does not keep, for as long as it is used.
#[derive(Default)]
pub struct PinnedIndex(Option<Arc<Cached<CachedBlock>>>);

impl OpenIndex {
    /// The index at `handle`. Reserves the memory for it, if the cache has room for that, and reads
    /// nothing.
    pub fn new(file: &TableFile, handle: BlockHandle) -> Self {
        // In memory, offsets and prefixes stand beside the block: up to three times its size.
        let bytes = handle.size.min(file.bytes()).saturating_mul(3) + size_of::<Index>() as u64;
        let memory = file.cache().try_reserve(bytes);
        OpenIndex { handle, resident: OnceLock::new(), reading: Mutex::new(()), memory }
    }

    /// The index, which `pinned` holds if the table does not.
    ///
    /// # Errors
    /// It had to be read, and could not be or is damaged. The next use tries again.
    #[inline]
    pub fn get<'t>(
        &'t self,
        file: &TableFile,
        pinned: &'t mut PinnedIndex,
        io: &mut TableIo,
    ) -> Result<&'t BlockDirectory> {
        match self.resident.get() {
            Some(blocks) => Ok(blocks),
            None => self.fetch(file, pinned, io),
        }
    }

    /// What `pinned` was filled for by an earlier `get`; `None` without one.
    #[inline]
    pub fn pinned<'t>(&'t self, pinned: &'t PinnedIndex) -> Option<&'t BlockDirectory> {
        match &pinned.0 {
            Some(block) => block.index(),
            None => self.resident.get(),
        }
    }

    #[inline(never)]
    fn fetch<'t>(
        &'t self,
        file: &TableFile,
        pinned: &'t mut PinnedIndex,
        io: &mut TableIo,
    ) -> Result<&'t BlockDirectory> {
        if self.memory.is_none() {
            let block = pinned.0.insert(file.fetch(self.handle, BlockKind::Index, true, io)?);
            // Read as something else before, by a metaindex that names it as a filter.
            let other = || file.corruption(self.handle.offset, "the data index is another block");
            return block.index().ok_or_else(other);
        }
        file.check_process()?;
        let _reading = self.reading.lock();
        // Another thread may have read it while this one waited.
        if let Some(blocks) = self.resident.get() {
            return Ok(blocks);
        }
        let index = file.read_index(self.handle, BlockKind::Index, io)?;
        Ok(self.resident.get_or_init(|| BlockDirectory::new(index)))
    }
}
