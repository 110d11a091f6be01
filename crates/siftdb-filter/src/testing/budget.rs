//! A budget whose use tests can read.

use crate::budget::ConstructionBudget;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Grants up to `limit` bytes and remembers the most that was taken at once.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    taken: AtomicU64,
    peak: AtomicU64,
}

impl Budget {
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Budget { limit, taken: AtomicU64::new(0), peak: AtomicU64::new(0) })
    }

    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// The most at once since the last call.
    pub fn take_peak(&self) -> u64 {
        self.peak.swap(self.taken(), Ordering::Relaxed)
    }
}

impl ConstructionBudget for Budget {
    fn reserve(&self, bytes: u64) -> bool {
        let taken = self.taken() + bytes;
        if taken > self.limit {
            return false;
        }
        self.taken.store(taken, Ordering::Relaxed);
        self.peak.fetch_max(taken, Ordering::Relaxed);
        true
    }

    fn release(&self, bytes: u64) {
        assert!(bytes <= self.taken(), "more given back than was taken");
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}
