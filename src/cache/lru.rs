//! The entries of one shard and priority of the block cache, from the one used last to the oldest.
//!
//! Called by `cache/cache.rs` under the lock of the shard. A thin layer over `lru`, whose bound is
//! not used: the cache counts bytes over all its lists and says when the oldest entry goes. Entries
//! are handed out as clones (of an `Arc`), so that the lock is held no longer than it takes to find
//! them. Keys bring their own hash.

use lru::LruCache;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Passes on the one `u64` that a key gives as its hash.
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
struct Slot<E> {
    entry: E,
    /// The list's count of insertions when the entry was last moved to the front.
    moved_at: u64,
}

/// Entries by key, and the order of their last use.
pub struct RecencyList<K, E> {
    entries: LruCache<K, Slot<E>, BuildHasherDefault<PassHasher>>,
    insertions: u64,
}

impl<K: Copy + Eq + Hash, E: Clone> RecencyList<K, E> {
    /// An empty list.
    pub fn new() -> Self {
        let entries = LruCache::unbounded_with_hasher(BuildHasherDefault::default());
        RecencyList { entries, insertions: 0 }
    }

    /// The entry of `key`, which is now the one used last.
    ///
    /// Moving an entry writes to its neighbours, which another core may have at hand, and
    /// changes nothing unless something was inserted since: among entries that were used
    /// between the same two insertions, the order is that of their first use.
    #[inline]
    pub fn get(&mut self, key: &K) -> Option<E> {
        let slot = self.entries.peek(key)?;
        if slot.moved_at == self.insertions {
            return Some(slot.entry.clone());
        }
        let slot = self.entries.get_mut(key)?;
        slot.moved_at = self.insertions;
        Some(slot.entry.clone())
    }

    /// Adds an entry whose key is not in the list.
    pub fn insert(&mut self, key: K, entry: E) {
        self.insertions += 1;
        let replaced = self.entries.put(key, Slot { entry, moved_at: self.insertions });
        debug_assert!(replaced.is_none(), "one load at a time per key");
    }

    /// Takes the entry that was not used for longest. One that `was_used` unseen by this list
    /// counts as used now; a few times, so that the caller's lock is short.
    pub fn pop_oldest(&mut self, was_used: impl Fn(&E) -> bool) -> Option<E> {
        const SPARED_MAX: usize = 8;
        for _ in 0..SPARED_MAX {
            let (&key, slot) = self.entries.peek_lru()?;
            if !was_used(&slot.entry) {
                break;
            }
            self.entries.promote(&key);
        }
        self.entries.pop_lru().map(|(_, slot)| slot.entry)
    }

    /// All entries.
    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = &E> {
        self.entries.iter().map(|(_, slot)| &slot.entry)
    }
}
