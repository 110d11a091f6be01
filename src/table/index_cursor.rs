//! A position in a data index, for iterators: the part and the data block that it names.
//!
//! The cursor holds one part at a time, unless the index is pinned. See `data_index.rs` for parts.

use crate::base::error::Result;
use crate::base::iterator::api::Direction;
use crate::cache::cached::SlotRef;
use crate::table::data_index::DataIndex;
use crate::table::fetch::BlockRef;
use crate::table::file::{TableFile, TableIo};
use crate::table::index::{CachedBlock, Index, IndexEntry};

/// A position in the data index of one table, which the caller passes to each call.
pub(crate) struct IndexCursor {
    direction: Direction,
    /// Keep parts that are read in the cache.
    fill_cache: bool,
    part: usize,
    /// Holds the part unless the index is pinned.
    held: Option<BlockRef<'static>>,
    position: usize,
    valid: bool,
}

impl IndexCursor {
    /// A cursor without a position.
    pub(crate) fn new(direction: Direction, fill_cache: bool) -> Self {
        IndexCursor { direction, fill_cache, part: 0, held: None, position: 0, valid: false }
    }

    /// Goes to the block where the internal key `bound` would be. A reverse cursor goes to the last
    /// block if all are below. Without a bound it goes to the first block in its direction. False
    /// if there is no such block.
    ///
    /// # Errors
    /// A block of the index cannot be read, or is damaged; the same for `advance`.
    pub(crate) fn seek(
        &mut self,
        index: &DataIndex,
        file: &TableFile,
        bound: Option<&[u8]>,
        io: &mut TableIo,
    ) -> Result<bool> {
        self.valid = false;
        let sought = bound.map(|bound| index.part_number(file, bound, io)).transpose()?.flatten();
        let number = match (self.direction, sought, bound) {
            (_, Some(number), _) => number,
            (Direction::Forward, None, None) => 0,
            (Direction::Forward, None, Some(_)) => return Ok(false),
            (Direction::Reverse, None, _) => index.parts(file, io)? - 1,
        };
        let part = self.enter_part(index, file, number, io)?;
        let (blocks, sought) = (part.len(), bound.map(|bound| part.seek(bound)));
        self.position = match self.direction {
            Direction::Forward => sought.unwrap_or(0),
            Direction::Reverse => sought.unwrap_or(blocks).min(blocks.saturating_sub(1)),
        };
        self.valid = self.position < blocks;
        Ok(self.valid)
    }

    /// Goes to the next block in its direction. False, and without a position, if there is none.
    pub(crate) fn advance(
        &mut self,
        index: &DataIndex,
        file: &TableFile,
        io: &mut TableIo,
    ) -> Result<bool> {
        let Some((part, _)) = self.current(index) else { return Ok(false) };
        let blocks = part.len();
        let (next, next_part) = match self.direction {
            Direction::Forward => {
                (Some(self.position + 1).filter(|next| *next < blocks), self.part.checked_add(1))
            }
            Direction::Reverse => (self.position.checked_sub(1), self.part.checked_sub(1)),
        };
        if let Some(next) = next {
            self.position = next;
            return Ok(true);
        }
        self.valid = false;
        let parts = index.parts(file, io)?;
        let Some(number) = next_part.filter(|number| *number < parts) else { return Ok(false) };
        let blocks = self.enter_part(index, file, number, io)?.len();
        self.position = match self.direction {
            Direction::Forward => 0,
            Direction::Reverse => blocks.saturating_sub(1),
        };
        self.valid = self.position < blocks;
        Ok(self.valid)
    }

    /// The part and its entry at the position.
    #[inline]
    pub(crate) fn current<'i>(&'i self, index: &'i DataIndex) -> Option<(&'i Index, IndexEntry)> {
        let held = self.held.as_ref().and_then(BlockRef::index);
        let part = held.or_else(|| index.pinned()).filter(|_| self.valid)?;
        Some((part, part.entry(self.position)?))
    }

    /// The slot of the block after the position, if the same part names it.
    pub(crate) fn next_slot<'i>(
        &'i self,
        index: &'i DataIndex,
    ) -> Option<SlotRef<'i, CachedBlock>> {
        let (part, _) = self.current(index)?;
        part.entry(self.position + 1).map(|entry| part.slot(entry))
    }

    fn enter_part<'i>(
        &'i mut self,
        index: &'i DataIndex,
        file: &TableFile,
        number: usize,
        io: &mut TableIo,
    ) -> Result<&'i Index> {
        // The part that is held is not fetched again.
        if self.part != number || self.held.is_none() {
            self.held = None;
            self.part = number;
            index.part(file, number, self.fill_cache, &mut self.held, io)?;
            // Held for long.
            let held = self.held.take().map(|part| BlockRef::Shared(part.into_shared()));
            self.held = held;
        }
        let held = self.held.as_ref().and_then(BlockRef::index);
        // `part` filled one of the two, or failed.
        Ok(held.or_else(|| index.pinned()).unwrap_or_else(|| unreachable!("a part is held")))
    }
}
