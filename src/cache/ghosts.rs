//! Which data a full cache keeps: what was asked for three times in a row, each time soon after the
//! time before.
//!
//! A full cache that kept each block that is read would evict blocks in use for blocks that nobody
//! asks for again. So it rejects a block at first, and the slot of the block remembers when: as a
//! *ghost*. That is the A1out list of 2Q (Johnson and Shasha, 1994), kept in the slots.
//! "Soon" is counted in rejections: within [`Window`] of them.
//!
//! 2Q admits a block at its second request. But of blocks that are asked for at random, one in a
//! hundred is asked for again within the window that 2Q advises, and where entries are small, such
//! blocks kept the cache full of entries that nobody asks for. A third request is hardly ever
//! chance.
//!
//! A lookup asks for one entry of a block. If the last two lookups asked for the same one, the
//! cache keeps that entry as a *row*, which takes a small part of the memory of its block. A block
//! that is asked for different entries is kept whole.

use crate::base::sync::plain::AtomicU32;
use crate::base::sync::{AtomicU64, Ordering};
use std::num::NonZeroU32;

/// A ghost is remembered for at least this many rejections, however small the cache is.
const WINDOW_MIN: u64 = 16;

/// Flag of [`Marks::requests`]: the last request was soon after the one before.
const IS_SECOND: u32 = 1;

/// Flag of [`Marks::requests`]: a row of the block was kept.
const HAS_ROW: u32 = 2;

/// What the slot of a block remembers of it while the cache does not hold it.
#[derive(Default)]
pub(crate) struct Marks {
    /// The checksum with which the block was found sound; 0 before. It survives eviction.
    checksum: AtomicU32,
    /// The number of the request that was rejected last; 0 for none.
    rejected_at: AtomicU32,
    /// Which entry was asked for last, and flags.
    requests: AtomicU32,
}

/// In how many rejections a request is soon after another.
#[derive(Clone, Copy)]
pub(crate) struct Window(u64);

/// How many requests were rejected: the clock of the ghosts.
#[derive(Default)]
pub(crate) struct Ghosts {
    rejected: AtomicU64,
}

impl Marks {
    /// The checksum with which the block was found sound, if it was.
    #[inline]
    pub(crate) fn known_checksum(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.checksum.load(Ordering::Relaxed))
    }

    /// Remembers the checksum of a block that was found sound.
    pub(crate) fn remember_checksum(&self, checksum: Option<NonZeroU32>) {
        self.checksum.store(checksum.map_or(0, NonZeroU32::get), Ordering::Relaxed);
    }

    /// Whether a row of the block was kept. It may be evicted by now.
    #[inline]
    pub(crate) fn may_have_row(&self) -> bool {
        self.requests.load(Ordering::Relaxed) & HAS_ROW != 0
    }

    /// Remembers that a row of the block is kept.
    pub(crate) fn has_row(&self) {
        self.requests.fetch_or(HAS_ROW, Ordering::Relaxed);
    }

    /// Whether the last lookup in the block asked for the same entry, by a hash of its key.
    /// Remembers this one.
    pub(crate) fn asks_again(&self, hash: u64) -> bool {
        let before = self.requests.load(Ordering::Relaxed);
        let flags = before & (IS_SECOND | HAS_ROW);
        let now = (hash >> 32) as u32 & !(IS_SECOND | HAS_ROW) | flags;
        // Another thread may set a flag in between. Lost, it costs a read of the block.
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
    /// Requests that were rejected.
    pub(crate) fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// Whether a block is asked for soon after its last rejection. If not, it is rejected now, as
    /// at a first request.
    pub(crate) fn is_hit(&self, marks: &Marks, window: Window) -> bool {
        let last = marks.rejected_at.load(Ordering::Relaxed);
        let since = u64::from((self.rejected() as u32).wrapping_sub(last));
        // Numbers wrap after 2^32. A block may then be admitted early.
        let is_hit = last != 0 && since <= window.0;
        if !is_hit {
            marks.requests.fetch_and(!IS_SECOND, Ordering::Relaxed);
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
            let before = ghosts.rejected();
            let is_admitted = ghosts.admits(&marks, window);
            assert_eq!(ghosts.rejected() - before, u64::from(!is_admitted));
            is_admitted
        };
        assert!(!ask_after(0) && !ask_after(9) && ask_after(9), "third");
        assert!(!ask_after(0) && !ask_after(0) && ask_after(0), "once more");
        // A late request is the first one of a new series.
        assert!(!ask_after(0) && !ask_after(0) && !ask_after(10) && !ask_after(0) && ask_after(0));
    }

    #[test]
    fn lookups_of_one_key_in_a_row_are_seen() {
        let marks = Marks::default();
        let [a, b] = [0x1234_5678_0000_0000, 0x1234_567c_0000_0000];
        assert!(!marks.asks_again(a) && marks.asks_again(a) && !marks.asks_again(b));
        assert!(!marks.may_have_row());
        marks.has_row();
        assert!(marks.asks_again(b) && marks.may_have_row(), "flags are no part of the hash");
        let ghosts = at(1);
        assert!(!ghosts.admits(&marks, Window(10)) && !ghosts.admits(&marks, Window(10)));
        assert!(marks.asks_again(b) && !marks.asks_again(a));
        assert!(ghosts.admits(&marks, Window(10)) && marks.may_have_row());
    }
}
