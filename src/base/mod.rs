//! The vocabulary of every other room: keys, values, encodings, errors, counters, locks.
//!
//! Nothing here knows that there is a tree, a table or a log.

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
