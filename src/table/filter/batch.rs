//! The keys of one `multi_get` on their way down, and the batched question to a filter.
//!
//! `read/multi_get.rs` makes a [`Wanted`] of each key, once, and sorts them; whatever it asks gets
//! a run of those that are still open, as `&mut [&mut Wanted]`, ascending by key. Memtables,
//! versions, tables and filters leave what they found in the key's own fields, so no step needs a
//! list of its own and a key whose answer is known is simply no longer in the next run.
//!
//! [`ask`] puts the question in windows of [`WINDOW_KEYS`]: the first loop asks the processor for
//! the memory of every key's bits, the second looks at them. The cache misses of a window then
//! overlap, where single lookups wait for them one by one.

use crate::base::key::{Lookup, LookupKey, SequenceNumber, key_head};
use crate::filter::hash::KeyHash;
use crate::table::cached_block::BlockPlace;
use crate::table::filter::layout::FilterVerdict;

/// Most keys whose memory is asked for before the first of them is looked at: more would begin to
/// drop requests, since a core has room for a dozen or two. RocksDB's batches have as many.
pub const WINDOW_KEYS: usize = 32;

/// One key of a batch.
#[derive(Debug)]
pub struct Wanted<'k> {
    /// What places are searched with.
    pub key: LookupKey,
    /// What filters are asked with.
    pub hash: KeyHash<'k>,
    /// The head of the user key, which settles most comparisons with fences.
    pub prefix: u64,
    /// What the filter asked last said. Set by each place for itself.
    pub verdict: FilterVerdict,
    /// The block that the next step for this key looks at: a partition, then a data block.
    pub block: Option<BlockPlace>,
    /// What was found so far: `Absent` as long as the key is open.
    pub answer: Lookup,
    /// Where the caller named the key.
    pub place: usize,
}

impl<'k> Wanted<'k> {
    /// The key that the caller named at `place`, to be read at `sequence`.
    #[must_use]
    pub fn new(user_key: &'k [u8], sequence: SequenceNumber, place: usize) -> Self {
        Wanted {
            key: LookupKey::new(user_key, sequence),
            hash: KeyHash::new(user_key),
            prefix: key_head(user_key),
            verdict: FilterVerdict::NotConsulted,
            block: None,
            answer: Lookup::Absent,
            place,
        }
    }

    /// Nothing was found yet, not even a tombstone.
    #[inline]
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.answer == Lookup::Absent
    }

    /// The filter did not exclude the key.
    #[inline]
    #[must_use]
    pub fn may_be_here(&self) -> bool {
        self.verdict != FilterVerdict::No
    }
}

/// Sets the verdict of every key by a filter that `prefetch` and `may_contain` lead to.
#[inline]
pub fn ask<'k>(
    keys: &mut [&mut Wanted<'k>],
    prefetch: impl Fn(&KeyHash<'k>),
    may_contain: impl Fn(&KeyHash<'k>) -> bool,
) {
    for window in keys.chunks_mut(WINDOW_KEYS) {
        window.iter().for_each(|wanted| prefetch(&wanted.hash));
        for wanted in window {
            wanted.verdict = FilterVerdict::of(may_contain(&wanted.hash));
        }
    }
}

/// Sets one verdict for all keys.
pub fn set_all(keys: &mut [&mut Wanted<'_>], verdict: FilterVerdict) {
    keys.iter_mut().for_each(|wanted| wanted.verdict = verdict);
}
