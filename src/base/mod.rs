//! The vocabulary of the engine: keys, values, batches, encodings, errors, counters and locks.
//!
//! Every other room uses it. Nothing here knows about trees, tables, logs or files.

pub mod iterator;
pub mod write_batch;
pub mod range;
pub mod key;
pub mod value;
pub mod filename;
pub mod checksum;
pub mod coding;
pub mod stats;
pub mod levels;
pub mod prefetch;
pub mod sync;
#[cfg(feature = "interleavings")]
pub mod scheduled;
pub mod process;
pub mod error;
