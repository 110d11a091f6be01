//! The memtable of siftdb, and how its writes are published, on the atomics of
//! [loom](https://docs.rs/loom): a relaxed load may see any value that the memory model allows.
//!
//! The modules are siftdb's own files, except `sync`, which this package replaces. Loom runs the
//! threads of a model one at a time, so the skip list, whose atomics are not loom's, is always up
//! to date. The models check everything around it: filter bits, the segment in use, the published
//! sequence, and the leaves of the list.

// Only what publishing touches is called.
#![allow(dead_code, missing_docs)]

pub mod split;
pub mod store;

#[path = "../../../../src/base"]
pub mod base {
    pub mod coding;
    mod error_text;
    pub mod error;
    pub mod expiry;
    #[path = "iterator"]
    pub mod iterator {
        pub mod api;
        pub mod newer;
    }
    pub mod key;
    pub mod range;
    pub mod range_deletes;
    #[path = "../../tests/interleavings/orderings/src/sync.rs"]
    pub mod sync;
    pub mod value;
    pub mod batch_format;
    pub mod write_batch;
}
#[path = "../../../../src/memtable"]
pub mod memtable {
    pub mod bloom;
    pub mod memtable;
    pub mod range_deletes;
    pub mod segment;
    pub mod node_key;
    pub mod leaf;
    pub mod arena;
    pub mod append_list;
}
