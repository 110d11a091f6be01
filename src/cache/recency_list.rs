//! [`RecencyList`]: entries in the order of their last use.
//!
//! A thin layer over the crate `lru`, whose bound is not used: the cache counts bytes over all its
//! lists and evicts when it needs room.

use lru::LruCache;
use std::hash::{BuildHasherDefault, Hash, Hasher};

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
struct Node<E> {
    entry: E,
    /// The list's count of insertions when the entry was last moved to the front.
    moved_at: u64,
    /// The time of its last use, as the caller counts.
    used_at: u64,
}

/// Entries by key, in the order of their last use.
pub(crate) struct RecencyList<K, E> {
    entries: LruCache<K, Node<E>, BuildHasherDefault<PassHasher>>,
    insertions: u64,
}

impl<K: Copy + Eq + Hash, E: Clone> RecencyList<K, E> {
    pub(crate) fn new() -> Self {
        let entries = LruCache::unbounded_with_hasher(BuildHasherDefault::default());
        RecencyList { entries, insertions: 0 }
    }

    /// The entry of `key`, which becomes the most recently used one.
    #[inline]
    pub(crate) fn get(&mut self, key: &K, now: u64) -> Option<E> {
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
    pub(crate) fn insert(&mut self, key: K, entry: E, now: u64) {
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
        was_used: impl Fn(&E) -> bool,
        now: u64,
        unused_since: Option<u64>,
    ) -> Option<E> {
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
    pub(crate) fn iter(&self) -> impl Iterator<Item = &E> {
        self.entries.iter().map(|(_, node)| &node.entry)
    }
}
