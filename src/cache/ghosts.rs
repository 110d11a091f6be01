//! Which data a full cache keeps: what was asked for three times in a row, each time soon after the
//! time before.
//!
//! A full cache that kept each block that is read would evict blocks in use for blocks that nobody
//! asks for again. So it rejects a block at first, and the slot of the block remembers when: as a
//! *ghost*. That is the A1out list of 2Q (Johnson and Shasha, 1994), kept in the slots.
//! "Soon" is counted in rejections: within [`Window`] of them.
//!
//! 2Q admits a block at its second request. But of blocks that are asked for at random, one in a
//! hundred is asked for again within the window that 2Q advises. Where entries are small, the cache
//! was full of such blocks, and nearly all of their entries were of no use. By chance, a third
//! request in a row is far rarer.
//!
//! A lookup asks for one entry of a block. If the last two lookups asked for the same one, the
//! cache keeps that entry as a *row*, which takes a small part of the memory of its block. A block
//! that is asked for different entries is kept whole.

use crate::base::sync::{AtomicU64, Mutex, Ordering};
use crate::cache::cached::Marks;
use crate::cache::recency_list::{CacheKey, HashedKey};
use std::collections::VecDeque;

/// A ghost is remembered for at least this many rejections, however small the cache is.
const WINDOW_MIN: u64 = 16;

/// That many rejections of large filters and indexes are remembered.
const LARGE_GHOSTS: usize = 64;

/// Flag of [`Marks::requests`]: the last request was soon after the one before.
const IS_SECOND: u32 = 1;

/// In how many rejections a request is soon after another.
#[derive(Clone, Copy)]
pub(crate) struct Window(u64);

/// How many requests were rejected: the clock of the ghosts.
#[derive(Default)]
pub(crate) struct Ghosts {
    pub rejected: AtomicU64,
}

/// The last large filters and indexes that were rejected. What was used since its own last
/// rejection is not evicted for one of them.
#[derive(Default)]
pub(crate) struct LargeGhosts {
    /// How many were rejected: the time of [`Node::used_at`](crate::cache::recency_list).
    pub rejected: AtomicU64,
    /// Oldest first.
    keys: Mutex<VecDeque<HashedKey>>,
}

impl Marks {
    /// Notes the row that a lookup in the block wants. True if the lookup before wanted the same.
    pub(crate) fn note_row(&self, row: CacheKey) -> bool {
        let before = self.requests.load(Ordering::Relaxed);
        let now = (row.offset >> 31) as u32 & !IS_SECOND | before & IS_SECOND;
        // Another thread may set the flag in between. Lost, it costs a request more.
        self.requests.store(now, Ordering::Relaxed);
        before == now
    }
}

impl Window {
    /// For something of `charge` bytes, where `held_bytes` of data are held: half as many
    /// rejections as such things fit, as 2Q advises.
    pub(crate) fn of_block(held_bytes: u64, charge: u64) -> Self {
        Window((held_bytes / charge / 2).max(WINDOW_MIN))
    }

    /// The same for a row: twice as many as fit. A row that is kept in vain costs little.
    pub(crate) fn of_row(held_bytes: u64, charge: u64) -> Self {
        Window((held_bytes / charge * 2).max(WINDOW_MIN))
    }

    /// For a block that can be used in place: to keep it takes the time of several uses, and then
    /// saves a part of each.
    pub(crate) fn of_block_in_place(held_bytes: u64, charge: u64) -> Self {
        Window(held_bytes / charge / 16)
    }
}

impl Ghosts {
    /// Whether a block is asked for soon after its last rejection. If not, it is rejected now, as
    /// at a first request.
    pub(crate) fn is_hit(&self, marks: &Marks, window: Window) -> bool {
        let last = marks.rejected_at.load(Ordering::Relaxed);
        let since = u64::from((self.rejected.load(Ordering::Relaxed) as u32).wrapping_sub(last));
        // Numbers wrap after 2^32. A block may then be admitted early.
        let is_hit = last != 0 && since <= window.0;
        if !is_hit {
            if marks.requests.load(Ordering::Relaxed) & IS_SECOND != 0 {
                marks.requests.fetch_and(!IS_SECOND, Ordering::Relaxed);
            }
            self.reject(marks);
        }
        is_hit
    }

    /// Whether to keep the block, or a row of it, that is asked for. If not, the request is
    /// rejected.
    pub(crate) fn admits(&self, marks: &Marks, window: Window) -> bool {
        if !self.is_hit(marks, window) {
            return false;
        }
        let flags = marks.requests.fetch_xor(IS_SECOND, Ordering::Relaxed);
        let is_third = flags & IS_SECOND != 0;
        match is_third {
            true => marks.rejected_at.store(0, Ordering::Relaxed),
            false => self.reject(marks),
        }
        is_third
    }

    fn reject(&self, marks: &Marks) {
        let number = self.rejected.fetch_add(1, Ordering::Relaxed) as u32;
        marks.rejected_at.store(number.max(1), Ordering::Relaxed);
    }
}

impl LargeGhosts {
    /// When a filter or index was rejected last: what was not used since was used less. For one
    /// whose rejection is not remembered, a time before all that are.
    pub(crate) fn asked_before(&self, key: &HashedKey) -> u64 {
        let keys = self.keys.lock();
        let later = keys.iter().rev().position(|ghost| ghost == key);
        self.rejected.load(Ordering::Relaxed).saturating_sub(later.unwrap_or(LARGE_GHOSTS) as u64)
    }

    pub(crate) fn reject(&self, key: HashedKey) {
        let mut keys = self.keys.lock();
        if keys.len() == LARGE_GHOSTS {
            keys.pop_front();
        }
        keys.push_back(key);
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(rejected: u64) -> Ghosts {
        Ghosts { rejected: AtomicU64::new(rejected) }
    }

    #[test]
    fn rejections_are_known_for_a_while() {
        let (marks, other, window) = (Marks::default(), Marks::default(), Window(10));
        assert!(!at(0).is_hit(&marks, window), "the first request");
        assert!(at(1).is_hit(&marks, window) && at(11).is_hit(&marks, window));
        assert!(!at(11).is_hit(&other, window), "another block");
        assert!(!at(12).is_hit(&marks, window), "eleven rejections later");
        let last = u64::from(u32::MAX);
        assert!(!at(last).is_hit(&marks, window));
        assert!(at(last + 4).is_hit(&marks, window), "numbers wrapped");
    }

    #[test]
    fn the_third_request_in_a_row_is_admitted() {
        let (marks, window) = (Marks::default(), Window(10));
        let ghosts = at(100);
        let ask_after = |rejections: u64| {
            ghosts.rejected.fetch_add(rejections, Ordering::Relaxed);
            let before = ghosts.rejected.load(Ordering::Relaxed);
            let is_admitted = ghosts.admits(&marks, window);
            assert_eq!(ghosts.rejected.load(Ordering::Relaxed) - before, u64::from(!is_admitted));
            is_admitted
        };
        assert!(!ask_after(0) && !ask_after(9) && ask_after(9), "third");
        assert!(!ask_after(0) && !ask_after(0) && ask_after(0), "once more");
        // A late request is the first one of a new series.
        assert!(!ask_after(0) && !ask_after(0) && !ask_after(10) && !ask_after(0) && ask_after(0));
    }

    #[test]
    fn lookups_of_one_key_in_a_row_are_seen() {
        let (marks, ghosts) = (Marks::default(), at(1));
        let [a, b] = [1 << 40, 1 << 41].map(|hash| CacheKey::of_row(7, hash));
        assert!(!marks.note_row(a) && marks.note_row(a) && !marks.note_row(b));
        assert!(!ghosts.admits(&marks, Window(10)) && !ghosts.admits(&marks, Window(10)));
        assert!(marks.note_row(b) && !marks.note_row(a), "the flag is no part of the row");
        assert!(ghosts.admits(&marks, Window(10)), "the flag is kept");
    }
}
