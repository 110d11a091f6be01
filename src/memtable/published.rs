//! [`Published`]: the last sequence that reads may see.
//!
//! The one step that makes a write visible. The leader of a write group sets filter bits and
//! inserts entries, all of which may be relaxed, then publishes; a reader looks at the published
//! sequence, then at the memtable. The pair of Release and Acquire here is what orders the two:
//! `interleavings/orderings` holds it against the memory model.

use crate::base::key::SequenceNumber;
use crate::base::sync::{AtomicU64, Ordering};

/// The published sequence, on a cache line of its own: every writer stores to it, every reader
/// loads it.
#[repr(align(128))]
#[derive(Debug)]
pub struct Published(AtomicU64);

impl Published {
    /// Everything up to `sequence` is there.
    #[must_use]
    pub fn new(sequence: SequenceNumber) -> Self {
        Published(AtomicU64::new(sequence))
    }

    /// The last sequence that a read may see; everything up to it is there.
    #[inline]
    #[must_use]
    pub fn visible(&self) -> SequenceNumber {
        self.0.load(Ordering::Acquire)
    }

    /// Makes everything up to `sequence` visible, now that it is applied.
    pub fn publish(&self, sequence: SequenceNumber) {
        self.0.store(sequence, Ordering::Release);
    }
}
