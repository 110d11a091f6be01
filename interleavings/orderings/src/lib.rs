//! The memtable of siftdb, and how its writes are published, on the atomics of
//! [loom](https://docs.rs/loom): a relaxed load may see any value that the memory model allows.
//!
//! The modules are siftdb's own files; [`sync`] stands in for its `sync.rs`. Loom runs the threads
//! of a model one at a time, so the skip list, whose atomics are not loom's, is always up to date.
//! What is checked is everything around it: filter bits, the segment in use, the published
//! sequence.

// Only what publishing touches is called.
#![allow(dead_code, missing_docs)]

pub mod store;
pub mod sync;

#[path = "../../../src/filter"]
pub mod filter {
    pub mod hash;
    pub mod simd;
}
#[path = "../../../src/iterator"]
pub mod iterator {
    pub mod api;
}
#[path = "../../../src/coding.rs"]
pub mod coding;
#[path = "../../../src/error.rs"]
pub mod error;
#[path = "../../../src/key.rs"]
pub mod key;
#[path = "../../../src/memtable.rs"]
pub mod memtable;
#[path = "../../../src/memtable_filter.rs"]
pub mod memtable_filter;
#[path = "../../../src/memtable_segment.rs"]
pub mod memtable_segment;
#[path = "../../../src/published.rs"]
pub mod published;
#[path = "../../../src/value.rs"]
pub mod value;
#[path = "../../../src/write_batch.rs"]
pub mod write_batch;
