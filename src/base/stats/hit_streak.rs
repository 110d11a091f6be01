//! The hits of the last level in a row, which say whether asking its filter pays.
//!
//! A filter saves the search of a table that does not have the key. A lookup that finds its key in
//! the last level has asked that level's filter for nothing: for one or two cache lines, or for a
//! partition. After [`LONG`] such lookups in a row the next one searches without asking. The first
//! lookup that no table answers ends the streak, and filters are asked again; so does one that
//! finds no value in the last level, or reads a block for it.
//!
//! The guess can be wrong once for each streak. It then costs the search of one block that is at
//! hand, a few times a question: for any other block the filter is asked before it is read. So
//! wrong guesses take less than a thousandth of the time of all lookups.

use crate::base::sync::plain::{AtomicU64, Ordering};

/// So many hits make a streak long.
pub(crate) const LONG: u64 = 4096;

/// Of one thread, in one keyspace. A thread that gets the stripe of one that ended goes on with its
/// streak.
#[derive(Debug)]
pub(crate) struct HitStreak(AtomicU64);

impl HitStreak {
    /// No hits.
    pub(crate) const fn new() -> Self {
        HitStreak(AtomicU64::new(0))
    }

    /// Long enough to expect that the next lookup hits, too.
    #[inline]
    #[must_use]
    pub(crate) fn is_long(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= LONG
    }

    /// Notes a lookup that searched the last level: one more hit, or the end of the streak.
    #[inline]
    pub(crate) fn note(&self, cached_hit: bool) {
        let hits = if cached_hit { self.0.load(Ordering::Relaxed).saturating_add(1) } else { 0 };
        self.0.store(hits, Ordering::Relaxed);
    }

    /// Notes a lookup that no table answered.
    #[inline]
    pub(crate) fn end(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}
