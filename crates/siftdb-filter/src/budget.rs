//! The memory that filters take while they are built, as the owner of that memory sees it.

use std::fmt::Debug;

/// Counts the memory of filters while they are built. A program implements it for its own budget;
/// in siftdb the block cache does, so that builds and cached blocks share one.
pub trait ConstructionBudget: Send + Sync + Debug {
    /// Takes `bytes` of the budget; false, with nothing taken, if fewer are left.
    fn reserve(&self, bytes: u64) -> bool;

    /// Gives back reserved `bytes`.
    fn release(&self, bytes: u64);
}
