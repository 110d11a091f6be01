//! One key of a `multi_get`, and the question that a batch of keys puts to one filter.
//!
//! `read/multi_get.rs` makes one [`BatchKey`] of each key and sorts them. Memtables, versions,
//! tables and filters each get a run of the keys that are still open, ascending, and write what
//! they find into the keys. So no step keeps a list of its own.

use crate::base::key::{Lookup, LookupKey, SequenceNumber, key_head};
use crate::base::sync::Arc;
use crate::cache::cached::Cached;
use crate::table::index::{CachedBlock, IndexEntry};
use siftdb_filter::encoding::FilterVerdict;
use siftdb_filter::hash::KeyHash;

/// Keys whose filter memory is prefetched before the first of them is probed. RocksDB's batches
/// have as many. A core tracks a dozen or two misses; further prefetches would be dropped.
pub(crate) const WINDOW_KEYS: usize = 32;

/// One key of a batch.
#[derive(Debug)]
pub(crate) struct BatchKey<'k> {
    /// The internal key to search for.
    pub lookup: LookupKey,
    /// The hashes to ask filters with.
    pub hash: KeyHash<'k>,
    /// The first bytes of the user key, which settle most comparisons with fences.
    pub head: u64,
    /// The answer of the filter that was asked last; each memtable and table sets its own.
    pub verdict: FilterVerdict,
    /// The block to read next for this key: a filter partition, a part of the data index, then a
    /// data block.
    pub block: Option<IndexEntry>,
    /// The part of the data index that names the data block, unless the index is pinned.
    pub part: Option<Arc<Cached<CachedBlock>>>,
    /// The answer so far: `Absent` while the key is open.
    pub answer: Lookup,
    /// Index of the key in the caller's list.
    pub position: usize,
}

impl<'k> BatchKey<'k> {
    /// The caller's key number `position`, to be read at `sequence`.
    pub(crate) fn new(user_key: &'k [u8], sequence: SequenceNumber, position: usize) -> Self {
        BatchKey {
            lookup: LookupKey::new(user_key, sequence),
            hash: KeyHash::new(user_key),
            head: key_head(user_key),
            verdict: FilterVerdict::NotConsulted,
            block: None,
            part: None,
            answer: Lookup::Absent,
            position,
        }
    }

    /// True while nothing was found, not even a tombstone.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.answer == Lookup::Absent
    }

    /// Distinguishes the blocks to be read next in one table.
    pub(crate) fn block_id(&self) -> Option<(*const Cached<CachedBlock>, IndexEntry)> {
        Some((self.part.as_ref().map_or(std::ptr::null(), Arc::as_ptr), self.block?))
    }

    /// True unless the filter excluded the key.
    #[inline]
    pub(crate) fn may_be_here(&self) -> bool {
        self.verdict != FilterVerdict::No
    }
}

/// Sets the verdict of every key, by the filter that both closures read.
#[inline]
pub(crate) fn ask<'k>(
    keys: &mut [&mut BatchKey<'k>],
    prefetch: impl Fn(&KeyHash<'k>),
    may_contain: impl Fn(&KeyHash<'k>) -> bool,
) {
    // Prefetching a whole window first lets its cache misses overlap. Single lookups wait for
    // their misses one by one.
    for window in keys.chunks_mut(WINDOW_KEYS) {
        window.iter().for_each(|key| prefetch(&key.hash));
        for key in window {
            key.verdict = FilterVerdict::of(may_contain(&key.hash));
        }
    }
}

/// Sets one verdict for all keys.
pub(crate) fn set_all(keys: &mut [&mut BatchKey<'_>], verdict: FilterVerdict) {
    keys.iter_mut().for_each(|key| key.verdict = verdict);
}
