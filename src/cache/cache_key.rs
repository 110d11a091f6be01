//! What the cache knows a block or a row by.

use std::hash::{Hash, Hasher};

/// Shards of the cache, a power of two.
pub(crate) const SHARDS: usize = 16;

/// Names a block: the random id of its table and its offset in the file; or a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheKey {
    /// Id of the table.
    pub table: u64,
    /// Offset of the block. For a row, the hash of its key, with the highest bit set. A damaged
    /// index may name an offset with that bit, so that a reader finds a row where it wants a block.
    /// [`Held`](crate::cache::held::Held) tells them apart.
    pub offset: u64,
}

/// A key with its hash: one hash chooses the shard and the bucket in it, by different bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct HashedKey {
    key: CacheKey,
    hash: u64,
}

impl CacheKey {
    /// Names the row of the key with this hash. Keys with equal hashes have one name, so the row
    /// itself has the key.
    pub(crate) fn of_row(table: u64, hash: u64) -> Self {
        CacheKey { table, offset: hash | 1 << 63 }
    }

    #[inline]
    pub(crate) fn hashed(self) -> HashedKey {
        // A folded multiply: every input bit reaches the low bits (bucket) and the high (tag).
        let a = u128::from(self.table ^ 0x9e37_79b9_7f4a_7c15);
        let b = u128::from(self.offset ^ 0xd6e8_feb8_6659_fd93);
        let product = a * b;
        HashedKey { key: self, hash: product as u64 ^ (product >> 64) as u64 }
    }

    /// The shard that the block belongs to.
    #[cfg(any(test, feature = "interleavings"))]
    pub(crate) fn shard(self) -> usize {
        self.hashed().shard()
    }
}

impl HashedKey {
    #[inline]
    pub(crate) fn shard(&self) -> usize {
        (self.hash >> 48) as usize % SHARDS
    }
}

impl Hash for HashedKey {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}
