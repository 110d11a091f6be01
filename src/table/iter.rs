//! Walks over a table, in one direction each.
//!
//! [`Table::iter`] gives a [`TableIter`]: the index is held for the walk's life, one data block at
//! a time, and towards its end the next; within a block a step takes no lock and allocates nothing.
//! Blocks read with `fill_cache` off (compaction) use what the cache has and leave it as it is. The
//! first failure ends the walk and stays in `status`; a table is never skipped or cut short without
//! one.

use crate::base::error::{Error, Result};
use crate::base::iterator::api::{Direction, InternalIterator};
use crate::base::sync::Arc;
use crate::base::value::Value;
use crate::cache::cached::Cached;
use crate::table::ahead::Ahead;
use crate::table::block::block::Block;
use crate::table::block::cursor::BlockCursor;
use crate::table::block_ref::BlockRef;
use crate::table::fetch::TableIo;
use crate::table::index::{CachedBlock, Index};
use crate::table::reader::Table;

/// A position in a table; see `base::iterator::api` for the legal calls.
pub struct TableIter {
    table: Arc<Table>,
    direction: Direction,
    fill_cache: bool,
    /// Whether `held` and the table have the index.
    is_open: bool,
    /// Holds the index if the table does not.
    held: Option<BlockRef>,
    /// Number of the current block in the index.
    position: usize,
    block: Option<Arc<Cached<CachedBlock>>>,
    cursor: BlockCursor,
    ahead: Ahead,
    failed: Option<Error>,
    io: TableIo,
}

impl Table {
    /// A walk over all entries, not yet positioned.
    #[must_use]
    pub fn iter(self: &Arc<Self>, direction: Direction, fill_cache: bool) -> TableIter {
        TableIter {
            table: Arc::clone(self),
            direction,
            fill_cache,
            is_open: false,
            held: None,
            position: 0,
            block: None,
            cursor: BlockCursor::new(direction),
            ahead: Ahead::default(),
            failed: None,
            io: TableIo::default(),
        }
    }
}

impl TableIter {
    /// The blocks that were touched since the last call.
    pub fn take_io(&mut self) -> TableIo {
        std::mem::take(&mut self.io)
    }

    fn index(&self) -> Option<&Index> {
        self.table.held_index(&self.held)
    }

    fn try_seek(&mut self, bound: Option<&[u8]>) -> Result<()> {
        if !self.is_open {
            self.table.index(&mut self.held, &mut self.io)?;
            self.is_open = true;
        }
        let blocks = self.index().map_or(0, Index::len);
        let sought = |bound| self.index().map_or(0, |index| index.seek(bound));
        self.position = match (self.direction, bound) {
            (Direction::Forward, None) => 0,
            (Direction::Forward, Some(bound)) => sought(bound),
            (Direction::Reverse, None) => blocks.saturating_sub(1),
            // The block where the bound would stand, or the last one below it.
            (Direction::Reverse, Some(bound)) => sought(bound).min(blocks.saturating_sub(1)),
        };
        if self.position >= blocks {
            self.end();
            return Ok(());
        }
        self.enter_block(bound)?;
        // Keys may end before the separator does, or begin behind the bound.
        if !self.cursor.valid() { self.leave_block() } else { Ok(()) }
    }

    /// Goes to the first entry of the next block that has one.
    fn leave_block(&mut self) -> Result<()> {
        loop {
            let next = match self.direction {
                Direction::Forward => self.position.checked_add(1),
                Direction::Reverse => self.position.checked_sub(1),
            };
            let blocks = self.index().map_or(0, Index::len);
            let Some(next) = next.filter(|&next| next < blocks) else {
                self.end();
                return Ok(());
            };
            self.position = next;
            self.enter_next()?;
            if self.cursor.valid() {
                return Ok(());
            }
        }
    }

    /// Enters the block that the walk has come to, which may be at hand.
    fn enter_next(&mut self) -> Result<()> {
        let left = self.block.as_ref().and_then(|cached| cached.data());
        let Some(cached) = self.ahead.enter(left) else { return self.enter_block(None) };
        if let Some(block) = cached.data() {
            self.io.data_cached += 1;
            self.cursor.seek(block, None);
        }
        self.block = Some(cached);
        Ok(())
    }

    /// Asks for what the walk comes to next.
    #[inline(never)]
    fn ask_ahead(&mut self) {
        let Some(block) = self.block.as_ref().and_then(|cached| cached.data()) else { return };
        let (index, next) = (self.table.held_index(&self.held), self.position + 1);
        self.ahead.ask(block, self.cursor.next_at(), || {
            index.and_then(|index| index.entry(next).map(|entry| index.slot(entry)))
        });
    }

    fn enter_block(&mut self, bound: Option<&[u8]>) -> Result<()> {
        let table = &self.table;
        let index = table.held_index(&self.held);
        let Some((index, entry)) = index.and_then(|i| Some((i, i.entry(self.position)?))) else {
            self.end();
            return Ok(());
        };
        let cached = table.fetch_data(index, entry, self.fill_cache, &mut self.io)?.into_shared();
        let block = cached.data().ok_or_else(|| table.not_data(entry.handle))?;
        Ahead::ask_for_all(block);
        self.cursor.seek(block, bound);
        self.ahead = Ahead::at(block, self.cursor.next_at());
        self.block = Some(cached);
        Ok(())
    }

    /// `leave_block`, for `next`.
    #[cold]
    fn next_block(&mut self) -> bool {
        let outcome = self.leave_block();
        self.settle(outcome);
        self.valid()
    }

    fn end(&mut self) {
        self.block = None;
    }

    fn settle(&mut self, outcome: Result<()>) {
        if let Err(error) = outcome {
            self.end();
            self.failed = Some(error);
        }
    }

    #[inline]
    fn data(&self) -> Option<&Block> {
        self.block.as_ref().and_then(|cached| cached.data())
    }
}

impl InternalIterator for TableIter {
    fn seek(&mut self, bound: Option<&[u8]>) {
        self.failed = None;
        let outcome = self.try_seek(bound);
        self.settle(outcome);
    }

    #[inline]
    fn next(&mut self) -> bool {
        let Some(block) = self.block.as_ref().and_then(|cached| cached.data()) else {
            return false;
        };
        if !self.cursor.next(block) {
            return self.next_block();
        }
        if self.ahead.is_due(self.cursor.next_at()) {
            self.ask_ahead();
        }
        true
    }

    #[inline]
    fn valid(&self) -> bool {
        self.block.is_some()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.cursor.key()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.data().map_or(&[], |block| self.cursor.value(block))
    }

    #[inline]
    fn value_owned(&self) -> Value {
        let (start, len) = self.cursor.value_place();
        let value = self.block.as_ref().and_then(|block| Value::from_shared(block, start, len));
        value.unwrap_or_else(|| Value::from(&[][..]))
    }

    fn status(&self) -> Result<()> {
        match &self.failed {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}
