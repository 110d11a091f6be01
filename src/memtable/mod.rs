//! Entries in memory before they are in a table.
//!
//! `memtable` is what writes apply to and reads search; `segment` is one skip list; `bloom` is the
//! memtable's own filter; `published` is the sequence that reads may see.

pub mod memtable;
pub mod segment;
pub mod bloom;
pub mod published;
