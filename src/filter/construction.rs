//! How filters are built apart from their bits: what memory they are charged to, and whether the
//! result is checked.
//!
//! [`Construction`] comes down from the options through the table's builder to
//! `filter/builder.rs`. A [`Charge`] is memory taken from a [`ConstructionBudget`]; it gives all of
//! it back when it is dropped, so nothing stays charged after an error or a panic. A refusal is
//! never an error: memory that is needed either way is then not counted, and an encoding that can
//! do with less (Ribbon) does.

use crate::cache::budget::ConstructionBudget;
use std::sync::Arc;

/// How the filters of a table are built.
#[derive(Clone, Debug, Default)]
pub struct Construction {
    /// Check each filter against the hashes that it was built from before it is written.
    pub verify: bool,
    /// What the memory is charged to.
    pub budget: Option<Arc<dyn ConstructionBudget>>,
}

/// Unit in which growing memory is charged: 32,768 hashes of 8 bytes.
const BUCKET_BYTES: usize = 32_768 * 8;

/// Memory charged to a budget; given back on drop.
#[derive(Debug, Default)]
pub struct Charge {
    budget: Option<Arc<dyn ConstructionBudget>>,
    bytes: u64,
    /// Whole buckets that were asked for.
    buckets: usize,
}

impl Charge {
    /// Nothing yet, from the budget of `construction`.
    pub fn new(construction: &Construction) -> Self {
        Charge { budget: construction.budget.clone(), bytes: 0, buckets: 0 }
    }

    /// Another charge on the same budget, with nothing in it.
    pub fn more(&self) -> Self {
        Charge { budget: self.budget.clone(), ..Charge::default() }
    }

    /// Charges `bytes` more; false if the budget refuses. Without a budget nothing is refused.
    pub fn add(&mut self, bytes: usize) -> bool {
        let Some(budget) = &self.budget else { return true };
        let granted = budget.reserve(bytes as u64);
        if granted {
            self.bytes += bytes as u64;
        }
        granted
    }

    /// Charges for something that has grown to `bytes` and grows by little at a time: in whole
    /// buckets, rounded to the nearest. A refused bucket is not asked for again.
    #[inline]
    pub fn cover(&mut self, bytes: usize) {
        while bytes >= self.buckets * BUCKET_BYTES + BUCKET_BYTES / 2 {
            self.buckets += 1;
            self.add(BUCKET_BYTES);
        }
    }

    /// Gives everything back.
    pub fn release(&mut self) {
        self.buckets = 0;
        let bytes = std::mem::take(&mut self.bytes);
        if let Some(budget) = self.budget.as_ref().filter(|_| bytes > 0) {
            budget.release(bytes);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.release();
    }
}

/// A budget that tests look into.
#[cfg(test)]
pub mod testing {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Grants up to `limit` bytes and remembers the most that were taken at once.
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

        /// Settings that charge this budget and check every filter.
        pub fn construction(self: &Arc<Self>) -> Construction {
            Construction { verify: true, budget: Some(Arc::clone(self) as _) }
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::construction::testing::Budget;

    const BUCKET: u64 = BUCKET_BYTES as u64;

    #[test]
    fn growing_memory_is_charged_in_buckets() {
        let budget = Budget::new(u64::MAX);
        let mut charge = Charge::new(&budget.construction());
        for (bytes, buckets) in [
            (0, 0),
            (BUCKET_BYTES / 2 - 1, 0),
            (BUCKET_BYTES / 2, 1),
            (BUCKET_BYTES * 3 / 2 - 1, 1),
            (BUCKET_BYTES * 3 / 2, 2),
            (BUCKET_BYTES * 9, 9),
            (BUCKET_BYTES, 9),
        ] {
            charge.cover(bytes);
            assert_eq!(budget.taken(), buckets * BUCKET, "{bytes} bytes");
        }
        charge.release();
        assert_eq!(budget.taken(), 0);
        // It begins anew.
        charge.cover(BUCKET_BYTES);
        assert_eq!(budget.taken(), BUCKET);
    }

    #[test]
    fn refused_memory_is_not_returned() {
        let budget = Budget::new(BUCKET + 10);
        let mut charge = Charge::new(&budget.construction());
        charge.cover(3 * BUCKET_BYTES);
        assert!(!charge.add(11) && charge.add(10));
        assert_eq!(budget.taken(), BUCKET + 10);
        drop(charge);
        assert_eq!(budget.taken(), 0);
        assert!(Charge::default().add(usize::MAX), "without a budget nothing is refused");
    }
}
