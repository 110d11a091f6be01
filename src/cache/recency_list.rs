//! [`RecencyList`]: the entries of a shard by their keys, in the order of their last use.
//!
//! An entry is a block or a row ([`Held`]), and counts in the budget. The list is a thin layer over
//! the crate `lru`, whose bound is not used: the cache counts bytes over all its lists and evicts
//! when it needs room.

use crate::base::sync::Arc;
use crate::cache::cached::Cached;
use lru::LruCache;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Shards of the cache, a power of two.
pub(crate) const SHARDS: usize = 16;

/// Names a block: the random id of its table and its offset in the file; or a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheKey {
    /// Id of the table.
    pub table: u64,
    /// Offset of the block. For a row, the hash of its key, with the highest bit set. A damaged
    /// index may name an offset with that bit, so that a reader finds a row where it wants a block.
    /// [`Held`] tells them apart.
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
            Held::Block(block) => block.charge,
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

/// Uses the `u64` that a key writes as the hash itself.
#[derive(Clone, Copy, Default)]
struct PassHasher(u64);

impl Hasher for PassHasher {
    #[inline]
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// An entry as its list holds it.
struct Node<V> {
    entry: Held<V>,
    /// The list's count of insertions when the entry was last moved to the front.
    moved_at: u64,
    /// The time of its last use, as the caller counts.
    used_at: u64,
}

/// Entries by key, in the order of their last use.
pub(crate) struct RecencyList<V> {
    entries: LruCache<HashedKey, Node<V>, BuildHasherDefault<PassHasher>>,
    insertions: u64,
}

impl<V> RecencyList<V> {
    pub(crate) fn new() -> Self {
        let entries = LruCache::unbounded_with_hasher(BuildHasherDefault::default());
        RecencyList { entries, insertions: 0 }
    }

    /// The entry of `key`, which becomes the most recently used one.
    #[inline]
    pub(crate) fn get(&mut self, key: &HashedKey, now: u64) -> Option<Held<V>> {
        let node = self.entries.peek_mut(key)?;
        if node.used_at != now {
            node.used_at = now;
        }
        // Moving an entry writes to its neighbours in the list, whose cache lines another core may
        // hold. So an entry moves once between two insertions: what was used between the same two
        // keeps the order of first use.
        if node.moved_at == self.insertions {
            return Some(node.entry.clone());
        }
        let node = self.entries.get_mut(key)?;
        node.moved_at = self.insertions;
        Some(node.entry.clone())
    }

    /// Adds an entry whose key is not in the list.
    pub(crate) fn insert(&mut self, key: HashedKey, entry: Held<V>, now: u64) {
        self.insertions += 1;
        let node = Node { entry, moved_at: self.insertions, used_at: now };
        let replaced = self.entries.put(key, node);
        debug_assert!(replaced.is_none(), "one load at a time per key");
    }

    /// Removes the least recently used entry. One that `was_used` without this list (through its
    /// slot) is moved to the front instead; only a few are, to keep the caller's lock short. With
    /// `unused_since`, an entry that was used since then is not removed.
    pub(crate) fn pop_oldest(
        &mut self,
        was_used: impl Fn(&Held<V>) -> bool,
        now: u64,
        unused_since: Option<u64>,
    ) -> Option<Held<V>> {
        const SPARED_MAX: usize = 8;
        for _ in 0..SPARED_MAX {
            let (&key, node) = self.entries.peek_lru()?;
            if !was_used(&node.entry) {
                break;
            }
            self.entries.get_mut(&key)?.used_at = now;
        }
        let (_, oldest) = self.entries.peek_lru()?;
        if unused_since.is_some_and(|since| oldest.used_at >= since) {
            return None;
        }
        self.entries.pop_lru().map(|(_, node)| node.entry)
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Held<V>> {
        self.entries.iter().map(|(_, node)| &node.entry)
    }
}
