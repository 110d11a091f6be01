//! Entries in memory before they are in a table.
//!
//! `memtable` takes writes and answers reads, and publishes sequences to readers. Its entries are
//! in segments (`segment`): records of an `arena`, in the order of their `leaf`, which a skip list
//! finds by its `node_key`. Its range deletes are in `range_deletes`, and `bloom` is its filter.

pub(crate) mod memtable;
pub(crate) mod segment;
pub(crate) mod node_key;
pub(crate) mod leaf;
pub(crate) mod arena;
pub(crate) mod append_list;
pub(crate) mod range_deletes;
pub(crate) mod bloom;
