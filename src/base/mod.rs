//! The vocabulary of the engine: keys, values, batches, encodings, errors, counters and locks.
//!
//! Every other room uses it. Nothing here knows about trees, tables, logs or files.

// Public as `siftdb::keys`.
pub mod keys;
pub(crate) mod iterator;
pub(crate) mod write_batch;
pub(crate) mod batch_format;
pub(crate) mod expiry;
pub(crate) mod range_deletes;
pub(crate) mod range;
pub(crate) mod key;
pub(crate) mod value;
pub(crate) mod filename;
pub(crate) mod checksum;
pub(crate) mod coding;
pub(crate) mod stats;
pub(crate) mod levels;
pub(crate) mod events;
pub(crate) mod trace;
pub(crate) mod parallel;
pub(crate) mod sync;
#[cfg(feature = "interleavings")]
pub mod scheduled;
pub(crate) mod process;
mod error_text;
pub(crate) mod error;
