//! Entries in memory before they are in a table.
//!
//! `memtable` takes writes and answers reads, and publishes sequences to readers. Its entries are
//! in skip lists (`segment`), its range deletes in `range_deletes`. `bloom` is the filter of both.

pub(crate) mod memtable;
pub(crate) mod segment;
pub(crate) mod range_deletes;
pub(crate) mod bloom;
