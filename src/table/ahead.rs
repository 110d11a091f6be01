//! What a forward walk over a table asks the processor for before it gets there.
//!
//! Alone a walk would meet the lines of a block one by one, and on its way into the next block one
//! miss behind the other: the slot's block, the place of its bytes, the bytes. So every few entries
//! `iter` calls [`Ahead::ask`]. It asks for the lines some entries further on; where those lie in
//! the next block, that block's head first, and the lines at a later call, when the head is there.
//!
//! Only what its slot has is asked for: nothing is read from the file, and a block that is not
//! there is left to the walk. One block is held beyond the one that the walk is in.

use crate::base::sync::Arc;
use crate::cache::cached::{Cached, SlotRef, Slotted};
use crate::table::block::block::Block;
use crate::table::index::CachedBlock;

/// From one call to the next.
const STEP_BYTES: usize = 512;

/// How far ahead of the walk lines are asked for, at least.
const LEAD_BYTES: usize = 1024;

/// Most that is asked for when a walk begins in a block that nobody asked for before.
const BEGIN_BYTES_MAX: usize = 8192;

/// What was asked for.
#[derive(Default)]
pub struct Ahead {
    /// Where in its block the walk asks for more.
    ask_at: usize,
    /// How far the block was asked for; what is beyond its end, of the next one.
    asked: usize,
    /// Whether the head of the next block was asked for.
    announced: bool,
    next: Option<Arc<Cached<CachedBlock>>>,
}

impl Ahead {
    /// Asks for all of a block that a walk is about to search, or to begin at one of its ends.
    pub fn ask_for_all(block: &Block) {
        block.prefetch(0..BEGIN_BYTES_MAX);
    }

    /// The state behind that, with the walk's next entry at `at`.
    #[must_use]
    pub fn at(block: &Block, at: usize) -> Self {
        let asked = BEGIN_BYTES_MAX.min(block.entries_end());
        Ahead { ask_at: at + STEP_BYTES, asked, ..Ahead::default() }
    }

    /// The next block, if there was one in its slot: the walk leaves `block` and enters it.
    pub fn enter(&mut self, block: Option<&Block>) -> Option<Arc<Cached<CachedBlock>>> {
        let next = self.next.take().filter(|cached| cached.data().is_some())?;
        let asked = self.asked.saturating_sub(block.map_or(0, Block::entries_end));
        *self = Ahead { asked, ..Ahead::default() };
        Some(next)
    }

    /// Whether to call `ask` in a walk whose next entry is at `at`.
    #[inline]
    pub fn is_due(&self, at: usize) -> bool {
        at >= self.ask_at
    }

    /// Asks for what follows. The walk's next entry is at `at` of `block`; `next` is where the
    /// block behind that would be.
    pub fn ask<'s>(
        &mut self,
        block: &Block,
        at: usize,
        next: impl FnOnce() -> Option<SlotRef<'s, CachedBlock>>,
    ) {
        let block_end = block.entries_end();
        let (start, end) = (self.asked.max(at), at + LEAD_BYTES + STEP_BYTES);
        block.prefetch(start..end);
        self.ask_at = at + STEP_BYTES;
        self.asked = start.max(end.min(block_end));
        if self.next.is_none() && self.announced && end > block_end {
            self.next = next().and_then(SlotRef::get).map(Slotted::into_shared);
        } else if end + STEP_BYTES > block_end && !self.announced {
            self.announced = true;
            next().into_iter().for_each(SlotRef::prefetch);
        }
        if let Some(next) = self.next.as_ref().and_then(|cached| cached.data()) {
            next.prefetch(start.saturating_sub(block_end)..end.saturating_sub(block_end));
            self.asked = start.max(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::key::{ValueKind, put_internal_key};
    use crate::cache::cached::Slots;
    use crate::table::block::block::tests::block;

    #[test]
    fn cached_next_blocks_are_fetched_early() {
        let entry = |i: u8| {
            let mut key = Vec::new();
            put_internal_key(&mut key, &[i], 1, ValueKind::Put);
            (key, vec![i; 100])
        };
        let block = || block(&(0..40).map(entry).collect(), 16, true);
        let (first, second) = (block(), Cached::uncached(CachedBlock::Data(block())));
        let slots = Slots::new(2);
        for (there, begin) in [(false, 0), (true, 0), (true, 2000), (true, 4000)] {
            if there {
                drop(second.insert_into(slots.slot(1)));
            }
            let owners = Arc::strong_count(&second);
            let (mut at, mut calls) = (begin, 0);
            let mut ahead = Ahead::at(&first, at);
            while let Some(entry) = first.entry_at(at) {
                at = entry.end;
                if ahead.is_due(at) {
                    ahead.ask(&first, at, || Some(slots.slot(1)));
                    calls += 1;
                }
                assert!(at > first.entries_end() / 2 || Arc::strong_count(&second) == owners);
            }
            assert!(calls <= (first.entries_end() - begin) / STEP_BYTES);
            let entered = ahead.enter(Some(&first));
            // What begins close to the end has no time to ask.
            assert_eq!(entered.is_some(), there && begin < 4000);
            assert!(entered.is_none_or(|entered| Arc::ptr_eq(&entered, &second)));
            assert!(ahead.enter(Some(&first)).is_none(), "entered once");
        }
    }
}
