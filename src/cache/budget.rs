//! The bytes of the block cache: one sum over all its shards, and the part reserved for others.
//!
//! `cache/cache.rs` calls it without a lock. *Spent* bytes are those that blocks hold and those
//! that are reserved, for any [`Purpose`]. The sum is raised only by a compare-exchange against
//! the capacity, so it never exceeds the capacity. Legal order of a reservation: `promise`, then
//! `spend` of the same number, making room until that succeeds. `withdraw`, and `give_back` if they
//! were spent, undo it.

use crate::base::sync::{AtomicU64, Ordering};

/// The purpose of reserved bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// What tables pin in memory: filters, top-level indexes, indexes of one block, range deletes.
    Pinned,
    /// Data indexes that have partitions and are pinned as a whole.
    WholeIndex,
    /// Filters that are being built.
    Construction,
}

/// The bytes of a cache.
#[derive(Debug)]
pub(crate) struct Budget {
    pub capacity: u64,
    spent: AtomicU64,
    /// By purpose.
    reserved: [AtomicU64; 3],
    /// The limit of each.
    reservable: [u64; 3],
}

impl Budget {
    /// `capacity` bytes. Pinned blocks may take `pinned_share` of them (0 to 1), whole indexes a
    /// quarter of that share, and filters that are being built a half.
    ///
    /// Where data fit into the cache, whole indexes take about 2 % of it. Where they do not,
    /// filters and data need the room more: lookups read partitions.
    pub(crate) fn new(capacity: u64, pinned_share: f64) -> Self {
        let pinned = (capacity as f64 * pinned_share.clamp(0.0, 1.0)) as u64;
        Budget {
            capacity,
            spent: AtomicU64::new(0),
            reserved: Default::default(),
            reservable: [pinned.min(capacity), pinned.min(capacity) / 4, capacity / 2],
        }
    }

    /// Bytes reserved for a purpose.
    pub(crate) fn reserved(&self, purpose: Purpose) -> u64 {
        self.reserved[purpose as usize].load(Ordering::Relaxed)
    }

    /// Bytes that may be reserved for a purpose.
    pub(crate) fn reservable(&self, purpose: Purpose) -> u64 {
        self.reservable[purpose as usize]
    }

    /// Bytes left for blocks.
    pub(crate) fn for_blocks(&self) -> u64 {
        self.capacity.saturating_sub(self.reserved_in_all())
    }

    fn reserved_in_all(&self) -> u64 {
        self.reserved.iter().map(|reserved| reserved.load(Ordering::Relaxed)).sum()
    }

    /// Whether `bytes` could be spent now.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.spent.load(Ordering::Relaxed).saturating_add(bytes) <= self.capacity
    }

    /// Spends `bytes`, if there is room.
    pub(crate) fn spend(&self, bytes: u64) -> bool {
        raise(&self.spent, bytes, self.capacity)
    }

    /// Returns spent bytes.
    pub(crate) fn give_back(&self, bytes: u64) {
        let before = self.spent.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(bytes <= before && before <= self.capacity, "I15: {bytes} of {before}");
    }

    /// Reserves `bytes`, to be spent next. False, with nothing changed, beyond the limit of the
    /// purpose, or where all reservations would exceed the capacity.
    pub(crate) fn promise(&self, purpose: Purpose, bytes: u64) -> bool {
        let reserved = &self.reserved[purpose as usize];
        if !raise(reserved, bytes, self.reservable(purpose)) {
            return false;
        }
        // Whole indexes are pinned, too.
        let pinned = self.reserved(Purpose::Pinned) + self.reserved(Purpose::WholeIndex);
        let has_room = pinned <= self.reservable(Purpose::Pinned);
        let kept = has_room && self.reserved_in_all() <= self.capacity;
        if !kept {
            self.withdraw(purpose, bytes);
        }
        kept
    }

    /// Ends a reservation of `bytes`, or a part of one.
    pub(crate) fn withdraw(&self, purpose: Purpose, bytes: u64) {
        let before = self.reserved[purpose as usize].fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(bytes <= before, "I15: {bytes} of {before} reserved are withdrawn");
    }

    #[cfg(test)]
    pub(crate) fn spent(&self) -> u64 {
        self.spent.load(Ordering::Relaxed)
    }
}

/// Adds `bytes` to `counter` unless that exceeds `limit`.
fn raise(counter: &AtomicU64, bytes: u64, limit: u64) -> bool {
    let add = |now: u64| now.checked_add(bytes).filter(|&sum| sum <= limit);
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_indexes_are_a_part_of_what_is_pinned() {
        let budget = Budget::new(1000, 0.4);
        let (pinned, whole) = (Purpose::Pinned, Purpose::WholeIndex);
        assert!(!budget.promise(whole, 101) && budget.promise(whole, 100));
        assert!(!budget.promise(pinned, 301) && budget.promise(pinned, 300));
        budget.withdraw(whole, 100);
        assert!(budget.promise(pinned, 60) && !budget.promise(whole, 41));
        assert_eq!((budget.reserved(pinned), budget.reserved(whole)), (360, 0));
        assert!(budget.promise(Purpose::Construction, 500));
    }
}
