//! Iterators over a table, in one direction each, with software prefetching for forward scans.
//!
//! [`Table::iter`] gives a [`TableIter`]. It holds one part of the index and one data block at
//! a time, and towards the end of a block the next one. Within a block a step takes no lock and
//! allocates nothing. With `fill_cache` off (compaction) it uses cached blocks and leaves the cache
//! as it is. The first failure ends the iteration and stays in `status`; without one, no part of a
//! table is skipped.

use crate::base::error::{Error, Result};
use crate::base::iterator::api::{Direction, InternalIterator};
use crate::base::sync::Arc;
use crate::base::value::Value;
use crate::cache::cached::{Cached, SlotRef, Slotted};
use crate::table::block::block::Block;
use crate::table::block::cursor::BlockCursor;
use crate::table::file::TableIo;
use crate::table::format::BlockKind;
use crate::table::index::CachedBlock;
use crate::table::index_cursor::IndexCursor;
use crate::table::reader::{Table, TableReadOptions};
use crate::table::scan_ahead::ScanAhead;
use siftdb_filter::cache_line::{LINE_BYTES, prefetch_line_before};

/// A position in a table; see `base::iterator::api` for the legal calls.
pub(crate) struct TableIter {
    table: Arc<Table>,
    direction: Direction,
    read: TableReadOptions,
    /// The current block in the index.
    index: IndexCursor,
    block: Option<Arc<Cached<CachedBlock>>>,
    cursor: BlockCursor,
    prefetcher: Prefetcher,
    scan_ahead: ScanAhead,
    failed: Option<Error>,
    io: TableIo,
}

impl Table {
    /// An iterator over all entries, not yet positioned.
    pub(crate) fn iter(
        self: &Arc<Self>,
        direction: Direction,
        read: TableReadOptions,
    ) -> TableIter {
        TableIter {
            table: Arc::clone(self),
            direction,
            read,
            index: IndexCursor::new(direction, read.fill_cache),
            block: None,
            cursor: BlockCursor::new(direction),
            prefetcher: Prefetcher::default(),
            scan_ahead: ScanAhead::default(),
            failed: None,
            io: read.io(),
        }
    }
}

impl TableIter {
    /// How many blocks will probably be read from the file, in all. Called before the first seek.
    #[inline]
    pub(crate) fn expect_blocks(&mut self, blocks: u64) {
        self.scan_ahead = ScanAhead::expecting(blocks);
    }

    /// How many blocks were read from the file, or found in the cache without their slot; 0 if no
    /// block may be read.
    #[inline]
    pub(crate) fn blocks_read(&self) -> u32 {
        self.scan_ahead.blocks
    }

    /// The blocks touched since the last call.
    pub(crate) fn take_io(&mut self) -> TableIo {
        std::mem::replace(&mut self.io, self.read.io())
    }

    /// The first half of a seek: finds the block in the index. `start` is the other half.
    pub(crate) fn locate(&mut self, bound: Option<&[u8]>) {
        self.failed = None;
        let (index, file) = (&self.table.index, &self.table.file);
        let outcome = self.index.seek(index, file, bound, &mut self.io);
        self.settle(outcome.map(|_| ()));
    }

    /// Asks the disk for the block that was located, unless it is in memory.
    pub(crate) fn ask_for_block(&mut self) {
        let Some((part, entry)) = self.index.current(&self.table.index) else { return };
        if self.failed.is_none() && !self.io.in_memory_only && !part.slot(entry).is_filled() {
            let bytes = self.scan_ahead.first_block_is_later(part.handle_of(entry), self.direction);
            bytes.into_iter().for_each(|bytes| self.table.file.read_ahead(bytes));
        }
    }

    /// The second half of a seek to the same bound: enters the block.
    pub(crate) fn start(&mut self, bound: Option<&[u8]>) {
        if self.failed.is_none() {
            let outcome = self.try_start(bound);
            self.settle(outcome);
        }
    }

    fn try_start(&mut self, bound: Option<&[u8]>) -> Result<()> {
        self.enter_block(bound)?;
        // The bound may be above the last key of its block, or below the first in reverse.
        if self.valid() && !self.cursor.valid() { self.leave_block() } else { Ok(()) }
    }

    /// Goes to the first entry of the next block that has one.
    fn leave_block(&mut self) -> Result<()> {
        loop {
            let (index, file) = (&self.table.index, &self.table.file);
            if !self.index.advance(index, file, &mut self.io)? {
                self.end();
                return Ok(());
            }
            self.enter_next()?;
            if self.cursor.valid() {
                return Ok(());
            }
        }
    }

    /// Enters the block that the index cursor is at, which the prefetcher may hold.
    fn enter_next(&mut self) -> Result<()> {
        let Some(cached) = self.prefetcher.enter_next() else { return self.enter_block(None) };
        if let Some(block) = cached.data() {
            self.io.data_cached += 1;
            self.cursor.seek(block, None);
        }
        self.block = Some(cached);
        Ok(())
    }

    #[inline(never)]
    fn prefetch_next(&mut self) {
        let Some(block) = data_of(&self.block) else { return };
        let next = || self.index.next_slot(&self.table.index);
        self.prefetcher.prefetch_next(block, self.cursor.next_at(), next);
    }

    fn enter_block(&mut self, bound: Option<&[u8]>) -> Result<()> {
        let table = &self.table;
        let Some((index, entry)) = self.index.current(&table.index) else {
            self.end();
            return Ok(());
        };
        let (file, fill) = (&table.file, self.read.fill_cache);
        let fetched = match file.in_memory_block(index, entry, BlockKind::Data, fill, &mut self.io)
        {
            Some(block) => block.for_long(),
            None => {
                let (handle, slot) = (index.handle_of(entry), Some(index.slot(entry)));
                if !self.io.in_memory_only {
                    let ahead = self.scan_ahead.block_is_next(handle, self.direction);
                    ahead.into_iter().for_each(|bytes| file.read_ahead(bytes));
                }
                let kind = BlockKind::Data;
                file.fetch_through_cache(handle, slot, kind, fill, None, &mut self.io)?.0.for_long()
            }
        };
        let cached = fetched.cached().and_then(|cached| Some((cached, cached.data()?)));
        let (cached, block) = cached.ok_or_else(|| table.not_data(index.handle_of(entry)))?;
        // Writing the counts waits for their line, and later reads wait for that. So the line is
        // asked for now, and the block is searched before it is shared.
        prefetch_line_before(&**cached);
        let sought = bound.filter(|_| self.direction == Direction::Forward);
        match sought.and_then(|bound| Some((bound, block.version_from(bound)?))) {
            Some((bound, found)) => {
                self.prefetcher = Prefetcher::entering(block, found.0);
                self.cursor.enter(block, bound, found);
            }
            None => {
                Prefetcher::prefetch_front(block);
                self.cursor.seek(block, bound);
                self.prefetcher = Prefetcher::starting(block);
            }
        }
        self.block = Some(fetched.into_shared());
        Ok(())
    }

    /// `leave_block`, for `next`.
    #[cold]
    #[inline(never)]
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
}

#[inline]
fn data_of(block: &Option<Arc<Cached<CachedBlock>>>) -> Option<&Block> {
    block.as_ref().and_then(|cached| cached.data()).map(|block| &**block)
}

impl InternalIterator for TableIter {
    fn seek(&mut self, bound: Option<&[u8]>) {
        self.locate(bound);
        self.start(bound);
    }

    #[inline(always)]
    fn next(&mut self) -> bool {
        let Some(block) = data_of(&self.block) else { return false };
        let from = self.cursor.next_at();
        if !self.cursor.next(block) {
            return self.next_block();
        }
        Prefetcher::prefetch_ahead(block, from, self.cursor.next_at());
        if self.prefetcher.is_due(self.cursor.next_at()) {
            self.prefetch_next();
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
        data_of(&self.block).map_or(&[], |block| self.cursor.value(block))
    }

    #[inline]
    fn value_owned(&self) -> Value {
        let (start, len) = self.cursor.value_range();
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

/// Bytes of a block between two calls of [`Prefetcher::prefetch_next`].
const STEP_BYTES: usize = 512;

/// Lines are prefetched at least this far before the iterator reads them.
const LEAD_BYTES: usize = 1024;

/// Most bytes prefetched when an iterator enters a block that it has not prefetched.
const BEGIN_BYTES_MAX: usize = 8192;

/// Prefetches for a forward iteration over one block and into the next. Without it, an iterator
/// would miss the lines of a block one after the other. On the way into the next block it would
/// miss three that depend on each other: the slot's value, the address of its bytes, the bytes. So
/// each step prefetches lines `LEAD_BYTES` ahead. Towards the end of a block, one call prefetches
/// the head of the next block, and later calls, which find the head in the cache, its first lines.
/// A block that is not in its slot is left to the iterator: nothing is read from the file here.
#[derive(Default)]
struct Prefetcher {
    /// Position in the block of the next call for the next block.
    due_at: usize,
    /// End of the prefetched bytes of the next block.
    done: usize,
    /// Whether the head of the next block was prefetched.
    head_done: bool,
    next: Option<Arc<Cached<CachedBlock>>>,
}

impl Prefetcher {
    /// Prefetches the front of a block in which a search or an iteration begins.
    fn prefetch_front(block: &Block) {
        block.prefetch(0..BEGIN_BYTES_MAX);
    }

    /// Prefetches the first lines of an iteration that begins with the entry at `at`.
    fn entering(block: &Block, at: usize) -> Self {
        block.prefetch(at..at + LEAD_BYTES + 2 * LINE_BYTES);
        Prefetcher::starting(block)
    }

    /// The state at the begin of an iteration over `block`.
    fn starting(block: &Block) -> Self {
        let due_at = block.entries_end().saturating_sub(LEAD_BYTES + 2 * STEP_BYTES);
        Prefetcher { due_at, ..Prefetcher::default() }
    }

    /// The next block, if it was found in its slot: the iterator leaves its block and enters it.
    fn enter_next(&mut self) -> Option<Arc<Cached<CachedBlock>>> {
        let next = self.next.take()?;
        *self = Prefetcher::starting(next.data()?);
        Some(next)
    }

    /// Prefetches what is `LEAD_BYTES` ahead of a step that passed the entry `from..to`.
    #[inline(always)]
    fn prefetch_ahead(block: &Block, from: usize, to: usize) {
        // Two lines are enough for most entries, and no branch depends on how long one is.
        let ahead = from + LEAD_BYTES;
        block.prefetch_line(ahead);
        block.prefetch_line(ahead + LINE_BYTES);
        if to > from + 2 * LINE_BYTES {
            block.prefetch(ahead + 2 * LINE_BYTES..to + LEAD_BYTES);
        }
    }

    /// Whether to call `prefetch_next` when the iterator's next entry is at `at`.
    #[inline(always)]
    fn is_due(&self, at: usize) -> bool {
        at >= self.due_at
    }

    /// Prefetches what follows `block`. The iterator's next entry is at `at` of it; `next` is the
    /// slot of the next block.
    fn prefetch_next<'s>(
        &mut self,
        block: &Block,
        at: usize,
        next: impl FnOnce() -> Option<SlotRef<'s, CachedBlock>>,
    ) {
        self.due_at = at + STEP_BYTES;
        if !self.head_done {
            self.head_done = true;
            if let Some(slot) = next() {
                slot.prefetch();
            }
            return;
        }
        if self.next.is_none() {
            self.next = next().and_then(SlotRef::get).map(Slotted::into_shared);
        }
        if let Some(next) = data_of(&self.next) {
            let end = (at + LEAD_BYTES + STEP_BYTES).saturating_sub(block.entries_end());
            next.prefetch(self.done..end);
            self.done = end.max(self.done);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::key::{ValueKind, put_internal_key};
    use crate::cache::cached::Slots;
    use crate::table::block::directory::tests::block;

    #[test]
    fn cached_next_blocks_are_fetched_early() {
        let entry = |i: u8| {
            let mut key = Vec::new();
            put_internal_key(&mut key, &[i], 1, ValueKind::Put);
            (key, vec![i; 100])
        };
        let block = || block(&(0..40).map(entry).collect(), 16, true);
        let (first, second) = (block(), Cached::uncached(CachedBlock::Data(block())));
        let slots = Slots::of(2);
        for (there, begin) in [(false, 0), (true, 0), (true, 2000), (true, 4000)] {
            if there {
                drop(second.insert_into(slots.slot(1)));
            }
            let owners = Arc::strong_count(&second);
            let (mut at, mut calls) = (begin, 0);
            let mut prefetcher = Prefetcher::starting(&first);
            while let Some(entry) = first.entry_at(at) {
                at = entry.end;
                if prefetcher.is_due(at) {
                    prefetcher.prefetch_next(&first, at, || Some(slots.slot(1)));
                    calls += 1;
                }
                assert!(at > first.entries_end() / 2 || Arc::strong_count(&second) == owners);
            }
            assert!(calls <= 2 + LEAD_BYTES / STEP_BYTES);
            let entered = prefetcher.enter_next();
            // A walk that begins close to the end of a block has no time to prefetch.
            assert_eq!(entered.is_some(), there && begin < 4000);
            assert!(entered.is_none_or(|entered| Arc::ptr_eq(&entered, &second)));
            assert!(prefetcher.enter_next().is_none(), "entered once");
        }
    }
}
