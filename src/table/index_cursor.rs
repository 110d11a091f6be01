//! A position in a data index, for iterators: the part and the data block that it names.
//!
//! The cursor holds one part at a time, unless the index is pinned. See `data_index.rs` for parts.

use crate::base::error::Result;
use crate::base::iterator::api::Direction;
use crate::base::sync::Arc;
use crate::cache::cached::{Cached, SlotRef};
use crate::table::data_index::DataIndex;
use crate::table::file::{TableFile, TableIo};
use crate::table::index::{CachedBlock, Index, IndexEntry};

/// A position in the data index of one table, which the caller passes to each call.
pub(crate) struct IndexCursor {
    direction: Direction,
    /// Keep parts that are read in the cache.
    fill_cache: bool,
    part: usize,
    /// Holds the part unless the index is pinned.
    held: Option<Arc<Cached<CachedBlock>>>,
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
        let sought = match (bound, self.direction) {
            (Some(bound), _) => index.part_number(file, bound, io)?,
            (None, Direction::Forward) => Some(0),
            (None, Direction::Reverse) => None,
        };
        self.valid = false;
        match (sought, self.direction) {
            (Some(number), _) => self.enter(index, file, number, bound, io),
            (None, Direction::Forward) => Ok(false),
            (None, Direction::Reverse) => {
                let last = index.parts(file, io)? - 1;
                self.enter(index, file, last, bound, io)
            }
        }
    }

    /// Goes to the next block in its direction. False, and without a position, if there is none.
    pub(crate) fn advance(
        &mut self,
        index: &DataIndex,
        file: &TableFile,
        io: &mut TableIo,
    ) -> Result<bool> {
        let Some((part, _)) = self.current(index) else { return Ok(false) };
        let (next, next_part) = match self.direction {
            Direction::Forward => (self.position.checked_add(1), self.part.checked_add(1)),
            Direction::Reverse => (self.position.checked_sub(1), self.part.checked_sub(1)),
        };
        if let Some(next) = next.filter(|next| *next < part.len()) {
            self.position = next;
            return Ok(true);
        }
        self.valid = false;
        let parts = index.parts(file, io)?;
        match next_part.filter(|number| *number < parts) {
            Some(number) => self.enter(index, file, number, None, io),
            None => Ok(false),
        }
    }

    /// Goes to the block of part `number` where `bound` would be, or where its direction begins.
    fn enter(
        &mut self,
        index: &DataIndex,
        file: &TableFile,
        number: usize,
        bound: Option<&[u8]>,
        io: &mut TableIo,
    ) -> Result<bool> {
        (self.valid, self.part, self.held) = (false, number, None);
        let part = index.part(file, number, self.fill_cache, io)?;
        let sought = bound.map(|bound| part.seek(bound));
        self.position = match self.direction {
            Direction::Forward => sought.unwrap_or(0),
            Direction::Reverse => sought.unwrap_or(part.len()).min(part.len().saturating_sub(1)),
        };
        self.valid = self.position < part.len();
        self.held = part.into_shared();
        Ok(self.valid)
    }

    /// The part and its entry at the position.
    #[inline]
    pub(crate) fn current<'i>(&'i self, index: &'i DataIndex) -> Option<(&'i Index, IndexEntry)> {
        let held = self.held.as_ref().and_then(|part| part.index());
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
}
