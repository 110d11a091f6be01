//! Which tables exist: the tree as a value, and its history on disk.
//!
//! | module | what |
//! |---|---|
//! | `set` | the current version, and the only way to the next one |
//! | `followed_manifest` | a manifest that another process appends to |
//! | `session_manifest` | the manifest that this session writes |
//! | `trees` | the trees of all keyspaces, as a manifest describes them |
//! | `new_tables` | the tables that an edit adds: durable, then open |
//! | `open_tables` | opens the tables of a version, several at a time |
//! | `level_iter` | an iterator over one sorted level |
//! | `newer` | whether keys were written since some sequence |
//! | `filter_prepass` | the keys of a batch that no table can have, by pinned filters |
//! | `multi_get`, `read_ahead` | the point lookups of a batch, level by level, and their reads |
//! | `range_probe` | which tables a scan may skip |
//! | `scan_lengths` | how much scans read of each level |
//! | `version` | the tables at one moment, immutable, and the point lookup in them |
//! | `level` | the tables of one level: fences and filter probes |
//! | `handle` | an open table, and the files that are obsolete |
//! | `overlap` | the order of a level, and which tables share keys |
//! | `manifest`, `manifest_state` | the log of changes, and what it says in all |
//! | `edit` | the encoding of a change |
//! | `current` | `CURRENT`, which names the current manifest |
//! | `file_meta`, `fields` | what the manifest knows of a table; the fields of the encoding |
//! | `runs`, `targets` | sorted run sizes of the tree; how large each level should be |
//!
//! A reader takes a version and may keep it. A job makes an edit and gives it to the set. `jobs`
//! decides when to flush or compact.

#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod runs;
pub(crate) mod set;
pub(crate) mod session_manifest;
pub(crate) mod followed_manifest;
mod trees;
pub(crate) mod new_tables;
pub(crate) mod open_tables;
pub(crate) mod newer;
pub(crate) mod level_iter;
pub(crate) mod filter_prepass;
pub(crate) mod multi_get;
pub(crate) mod read_ahead;
pub(crate) mod range_probe;
pub(crate) mod scan_lengths;
pub(crate) mod version;
pub(crate) mod level;
pub(crate) mod handle;
pub(crate) mod manifest;
pub(crate) mod manifest_state;
pub(crate) mod current;
pub(crate) mod overlap;
pub(crate) mod targets;
pub(crate) mod edit;
pub(crate) mod file_meta;
pub(crate) mod fields;
