//! Entries in memory before they are in a table.
//!
//! `memtable` takes writes and answers reads, and publishes sequences to readers; `bloom` is its
//! filter.

pub(crate) mod memtable;
pub(crate) mod bloom;
