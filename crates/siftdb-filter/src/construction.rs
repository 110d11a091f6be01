//! How filters are built, and the memory that they take until they are written.

use crate::budget::ConstructionBudget;
use std::sync::Arc;

/// How the filters of a table are built. The options fill it in.
#[derive(Clone, Debug, Default)]
pub struct Construction {
    /// Check each filter against the hashes that it was built from before it is written.
    pub verify: bool,
    /// The budget that the memory is charged to.
    pub budget: Option<Arc<dyn ConstructionBudget>>,
}

impl Construction {
    /// With every filter checked, and its memory charged to `budget`.
    #[must_use]
    pub fn checked(budget: Arc<dyn ConstructionBudget>) -> Self {
        Construction { verify: true, budget: Some(budget) }
    }
}

/// Unit in which growing memory is charged: 32,768 hashes of 8 bytes, as in RocksDB.
const BUCKET_BYTES: usize = 32_768 * 8;

/// Memory charged to a budget. Dropping it gives everything back, also after an error or a panic.
///
/// A refusal is no error. Memory that is needed either way is then not counted; Ribbon, which can
/// do with less, falls back to Bloom.
#[derive(Debug, Default)]
pub(crate) struct Charge {
    budget: Option<Arc<dyn ConstructionBudget>>,
    bytes: u64,
    /// Whole buckets that were asked for.
    buckets: usize,
}

impl Charge {
    /// An empty charge on the budget of `construction`.
    pub(crate) fn new(construction: &Construction) -> Self {
        Charge { budget: construction.budget.clone(), ..Charge::default() }
    }

    /// Charges `bytes` more; false if the budget refuses. Without a budget nothing is refused.
    pub(crate) fn add(&mut self, bytes: usize) -> bool {
        let Some(budget) = &self.budget else { return true };
        let granted = budget.reserve(bytes as u64);
        if granted {
            self.bytes += bytes as u64;
        }
        granted
    }

    /// Charges memory that grows in small steps and is now `bytes`: in whole buckets, rounded to
    /// the nearest. A refused bucket is not asked for again.
    #[inline]
    pub(crate) fn cover(&mut self, bytes: usize) {
        while bytes >= self.buckets * BUCKET_BYTES + BUCKET_BYTES / 2 {
            self.buckets += 1;
            self.add(BUCKET_BYTES);
        }
    }

    /// How much of `bytes` of memory the budget refused.
    pub(crate) fn refused(&self, bytes: usize) -> u64 {
        match self.budget {
            Some(_) => (bytes as u64).saturating_sub(self.bytes),
            None => 0,
        }
    }

    /// Gives everything back.
    pub(crate) fn release(&mut self) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::budget::Budget;

    const BUCKET: u64 = BUCKET_BYTES as u64;

    #[test]
    fn growing_memory_is_charged_in_buckets() {
        let budget = Budget::new(u64::MAX);
        let mut charge = Charge::new(&Construction::checked(budget.clone()));
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
        // The charge starts at zero again.
        charge.cover(BUCKET_BYTES);
        assert_eq!(budget.taken(), BUCKET);
    }

    #[test]
    fn refused_memory_is_not_returned() {
        let budget = Budget::new(BUCKET + 10);
        let mut charge = Charge::new(&Construction::checked(budget.clone()));
        charge.cover(3 * BUCKET_BYTES);
        assert!(!charge.add(11) && charge.add(10));
        assert_eq!(budget.taken(), BUCKET + 10);
        drop(charge);
        assert_eq!(budget.taken(), 0);
        assert!(Charge::default().add(usize::MAX), "without a budget nothing is refused");
    }
}
