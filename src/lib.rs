//! siftdb: a small embedded key-value store whose reads ask a filter first.

// The layers, top to bottom: a module may only use what stands below it in this list.
// `tests/it/architecture.rs` holds everyone to it.

// -- lab: measure -------------------------------------------------------------------------------
pub mod lab;

// -- engine: one user-visible database ----------------------------------------------------------
mod db;
pub mod inspect;
mod options;

// -- jobs: rewrite the tree -----------------------------------------------------------------------
mod compaction;

// -- tree: which tables exist -----------------------------------------------------------------------
mod version;

// -- containers: where keys live ------------------------------------------------------------------
mod table;
mod memtable;
mod memtable_filter;
mod wal;

// -- services ---------------------------------------------------------------------------------------
mod record;
mod cache;
mod single_flight;
mod iterator;
pub mod filter;
pub mod env;

// -- vocabulary: knows nothing of the engine ----------------------------------------------------
mod write_batch;
mod key;
mod value;
mod filename;
mod checksum;
mod coding;
pub mod stats;
mod sync;
mod error;

pub use db::{Db, Explain, ExplainStep, Iter, KeyRange, Snapshot};
pub use error::{Error, Result};
pub use options::{Filter, Options, ReadOptions, WriteOptions};
pub use stats::{LevelStats, Stats};
pub use table::filter_block::layout::FilterLayout;
pub use value::{Key, Value};
pub use write_batch::WriteBatch;
