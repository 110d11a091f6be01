//! Background jobs: flushes, compactions, and the removal of obsolete files. And bulk
//! loads, which run on the thread of their caller.
//!
//! `workers` decides when a job runs; `flush` writes memtables to level-0 tables and `compact`
//! merges tables, each from its input to the installed edit; `rewrite` is what both do with
//! entries; `deleted_tables` removes tables that range deletes cover, and `expired_tables` those in
//! which everything has expired; `obsolete` frees memtables and removes files; `sync_thread` syncs
//! logs for tickets; `job_events` tells of jobs; `ingest` writes the tables of a bulk load and puts
//! them into the tree. At most one flush runs at a time; several compactions run at a
//! time if they share no level and keys.

pub(crate) mod ingest;
pub(crate) mod workers;
pub(crate) mod sync_thread;
pub(crate) mod flush;
pub(crate) mod deleted_tables;
pub(crate) mod expired_tables;
pub(crate) mod compact;
pub(crate) mod rewrite;
pub(crate) mod job_events;
pub(crate) mod obsolete;
#[cfg(test)]
pub(crate) mod testing;
