//! The name of a block in the block cache, and where that puts it.
//!
//! Called by `cache/cache.rs`; `table/fetch.rs` makes the names. One computation of the hash serves
//! the choice of the shard and the table within it, each by other bits.

use std::hash::{Hash, Hasher};

/// Shards of the cache, a power of two.
pub const SHARDS: usize = 16;

/// Names a block: the random id of its table and its offset in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheKey {
    /// Id of the table.
    pub table: u64,
    /// Offset of the block.
    pub offset: u64,
}

/// A key with its hash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashedKey {
    key: CacheKey,
    hash: u64,
}

impl HashedKey {
    /// Hashes a key.
    #[inline]
    pub fn new(key: CacheKey) -> Self {
        // A folded multiply: every input bit reaches the low bits (bucket) and the high (tag).
        let a = u128::from(key.table ^ 0x9e37_79b9_7f4a_7c15);
        let b = u128::from(key.offset ^ 0xd6e8_feb8_6659_fd93);
        let product = a * b;
        HashedKey { key, hash: product as u64 ^ (product >> 64) as u64 }
    }

    /// The shard that the block belongs to, below [`SHARDS`].
    #[inline]
    pub fn shard(&self) -> usize {
        (self.hash >> 48) as usize % SHARDS
    }
}

impl Hash for HashedKey {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}
