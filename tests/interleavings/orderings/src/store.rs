//! A memtable, written and read as the engine does it.

use crate::base::batch_format::DecodedBatch;
use crate::base::key::{Lookup, LookupKey};
use crate::base::write_batch::WriteBatch;
use crate::memtable::memtable::Memtable;
use crate::memtable::memtable::Published;
use siftdb_filter::hash::KeyHash;
use std::sync::Arc;

/// The bytes of a segment.
pub const SEGMENT_BYTES: usize = 4 << 10;

/// A memtable and its published sequence.
pub struct Store {
    memtable: Memtable,
    published: Published,
}

impl Store {
    /// Empty, with that many segments of [`SEGMENT_BYTES`].
    pub fn new(segments: usize) -> Arc<Self> {
        Store::with_buffer(SEGMENT_BYTES * segments, segments)
    }

    /// Empty, for a write buffer of that size.
    pub fn with_buffer(bytes: usize, segments: usize) -> Arc<Self> {
        let memtable = Memtable::with_segments(bytes, true, segments);
        Arc::new(Store { memtable, published: Published::new(0) })
    }

    fn key(sequence: u64) -> [u8; 9] {
        *format!("key {sequence:05}").as_bytes().first_chunk().unwrap()
    }

    /// As the leader of a write group does it.
    pub fn write(&self, sequence: u64, value_bytes: usize) {
        let mut batch = WriteBatch::new();
        batch.put(Store::key(sequence), vec![7; value_bytes]);
        self.memtable.apply(&DecodedBatch::trusted(sequence, 1, &batch.entries));
        self.published.publish(sequence);
    }

    /// As a lookup does it: every key that the published sequence covers is found, from `first` on.
    /// Returns that sequence.
    pub fn read(&self, first: u64) -> u64 {
        let visible = self.published.visible();
        for sequence in first..=visible {
            let key = Store::key(sequence);
            let hash = KeyHash::new(&key);
            assert!(self.memtable.may_contain(&hash), "{sequence} of {visible}: denied");
            let found = self.memtable.get(&LookupKey::new(&key, visible), Some(&hash), 0);
            assert!(matches!(found, Lookup::Found { .. }), "{sequence} of {visible}: {found:?}");
        }
        visible
    }
}
