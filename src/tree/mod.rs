//! Which tables exist: the tree as a value, and its history on disk.
//!
//! | module | what |
//! |---|---|
//! | `set` | the current version, and the only way to the next one |
//! | `open_tables` | opens the tables of a version, several at a time |
//! | `level_iter` | a walk over one sorted level |
//! | `multi_get` | the point lookups of a batch, level by level |
//! | `range_filter` | which tables a scan may pass by |
//! | `version` | the tables at one moment, immutable, and the point lookup in them |
//! | `level` | the tables of one level as a lookup meets them |
//! | `handle` | an open table, and how its file goes |
//! | `overlap` | the order of a level, and which tables share keys |
//! | `manifest`, `edit` | the log of changes, CURRENT, and how one change is written |
//!
//! A reader takes a version and keeps it as long as it likes; a writer of tables makes an edit and
//! gives it to the set. When to flush or compact is decided above, in `db` and `compaction`.

#[cfg(test)]
pub mod testing;
pub mod runs;
pub mod set;
pub mod open_tables;
pub mod level_iter;
pub mod multi_get;
pub mod range_filter;
pub mod version;
pub mod level;
pub mod handle;
pub mod manifest;
pub mod overlap;
pub mod targets;
pub mod edit;
