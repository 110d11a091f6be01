//! What a list of the cache holds: a block or a row, and what it counts in the budget.

use crate::base::sync::Arc;
use crate::cache::cached::Cached;

/// The memory of an entry besides its value: list node, hash table entry, the allocator's share.
const ENTRY_BYTES: usize = 120;

/// The same for a row, with the counts of its [`Arc`].
const ROW_BYTES: usize = ENTRY_BYTES + 16;

/// A block, or a row: one entry of a block, in bytes of its table's making (`table/row.rs`).
pub(crate) enum Held<V> {
    Block(Arc<Cached<V>>),
    Row(Arc<[u8]>),
}

impl<V> Held<V> {
    /// Bytes that it counts in the cache.
    pub(crate) fn charge(&self) -> u64 {
        match self {
            Held::Block(block) => block.charge(),
            Held::Row(row) => row_charge(row.len() as u64),
        }
    }

    /// Whether a reader found it in its slot since the last call. A row has no slot.
    pub(crate) fn take_used(&self) -> bool {
        match self {
            Held::Block(block) => block.take_used(),
            Held::Row(_) => false,
        }
    }

    /// Called once, when no list holds it.
    pub(crate) fn evict(self) {
        if let Held::Block(block) = self {
            block.evict();
        }
    }

    pub(crate) fn into_block(self) -> Option<Arc<Cached<V>>> {
        match self {
            Held::Block(block) => Some(block),
            Held::Row(_) => None,
        }
    }

    pub(crate) fn into_row(self) -> Option<Arc<[u8]>> {
        match self {
            Held::Block(_) => None,
            Held::Row(row) => Some(row),
        }
    }
}

impl<V> Clone for Held<V> {
    fn clone(&self) -> Self {
        match self {
            Held::Block(block) => Held::Block(Arc::clone(block)),
            Held::Row(row) => Held::Row(Arc::clone(row)),
        }
    }
}

/// The charge of a value of `bytes` heap bytes.
pub(crate) const fn block_charge<V>(bytes: u64) -> u64 {
    bytes.saturating_add((ENTRY_BYTES + size_of::<Cached<V>>()) as u64)
}

/// The charge of a row of `bytes` bytes.
pub(crate) const fn row_charge(bytes: u64) -> u64 {
    bytes.saturating_add(ROW_BYTES as u64)
}
