//! What runs in the background: flushes, compactions, and the removal of obsolete files.
//!
//! `workers` decides when a job runs; `install` runs one job and installs its result in the tree;
//! `obsolete` frees memtables and removes files; `flush` writes memtables to level-0 tables;
//! `compact` rewrites tables. A job creates new files only. Its caller logs the edit, and only
//! that changes the tree. At most one flush and one compaction run at a time.

pub mod workers;
pub mod install;
pub mod obsolete;
pub mod flush;
pub mod compact;
#[cfg(test)]
pub mod testing;
