//! The bytes of the block cache: one sum over all its shards, and what of it is promised to others.
//!
//! Called by `cache/cache.rs`, without a lock. What is *spent* is what blocks hold and what is
//! reserved, for whatever [`Purpose`]; it is raised only by a compare-exchange against the
//! capacity, so that it never exceeds that. Legal order of a reservation: `promise`, then `spend`
//! as much, making room until that succeeds; `withdraw` and, if it was spent, `give_back` undo
//! them.

use crate::base::sync::{AtomicU64, Ordering};
use std::fmt::Debug;

/// Where the memory of filters in the making is counted, in bytes. The block cache implements it,
/// so that a build and the blocks in memory share one budget.
pub trait ConstructionBudget: Send + Sync + Debug {
    /// Takes `bytes` of the budget; false, with nothing taken, if there are not as many.
    fn reserve(&self, bytes: u64) -> bool;

    /// Gives back `bytes` that were reserved.
    fn release(&self, bytes: u64);
}

/// What bytes are reserved for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Filters and indexes that stay in memory elsewhere.
    Resident,
    /// Filters in the making.
    Construction,
}

/// The bytes of a cache.
#[derive(Debug)]
pub struct Budget {
    capacity: u64,
    spent: AtomicU64,
    /// By purpose.
    reserved: [AtomicU64; 2],
    /// The most of each.
    reservable: [u64; 2],
}

impl Budget {
    /// `capacity` bytes, of which what is resident may take `resident_share` (0 to 1), and what is
    /// constructed a half.
    pub fn new(capacity: u64, resident_share: f64) -> Self {
        let resident = (capacity as f64 * resident_share.clamp(0.0, 1.0)) as u64;
        Budget {
            capacity,
            spent: AtomicU64::new(0),
            reserved: [AtomicU64::new(0), AtomicU64::new(0)],
            reservable: [resident.min(capacity), capacity / 2],
        }
    }

    /// All of them.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Those reserved for a purpose.
    pub fn reserved(&self, purpose: Purpose) -> u64 {
        self.reserved[purpose as usize].load(Ordering::Relaxed)
    }

    /// What is left for blocks.
    pub fn for_blocks(&self) -> u64 {
        self.capacity
            .saturating_sub(self.reserved(Purpose::Resident))
            .saturating_sub(self.reserved(Purpose::Construction))
    }

    /// Whether so many could be spent.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.spent.load(Ordering::Relaxed).saturating_add(bytes) <= self.capacity
    }

    /// Spends so many, if there is room.
    pub fn spend(&self, bytes: u64) -> bool {
        raise(&self.spent, bytes, self.capacity)
    }

    /// Takes them back.
    pub fn give_back(&self, bytes: u64) {
        let before = self.spent.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(bytes <= before && before <= self.capacity, "I15: {bytes} of {before}");
    }

    /// Reserves so many, yet to be spent; false, with nothing changed, beyond what its purpose may
    /// have or where the reservations would exceed the capacity.
    pub fn promise(&self, purpose: Purpose, bytes: u64) -> bool {
        let (reserved, limit) =
            (&self.reserved[purpose as usize], self.reservable[purpose as usize]);
        if !raise(reserved, bytes, limit) {
            return false;
        }
        let all = self.reserved(Purpose::Resident) + self.reserved(Purpose::Construction);
        let kept = all <= self.capacity;
        if !kept {
            self.withdraw(purpose, bytes);
        }
        kept
    }

    /// Ends a reservation of so many, or a part of it.
    pub fn withdraw(&self, purpose: Purpose, bytes: u64) {
        let before = self.reserved[purpose as usize].fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(bytes <= before, "I15: {bytes} of {before} reserved are withdrawn");
    }

    /// What is spent.
    #[cfg(test)]
    pub fn spent(&self) -> u64 {
        self.spent.load(Ordering::Relaxed)
    }
}

/// Adds `bytes` to `counter` unless that exceeds `limit`.
fn raise(counter: &AtomicU64, bytes: u64, limit: u64) -> bool {
    let add = |now: u64| now.checked_add(bytes).filter(|&sum| sum <= limit);
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
}
